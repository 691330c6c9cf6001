"""Environments with the interfaces of Gymnasium, gymnax and Brax."""

import importlib.util
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrbd import envs
from jaxrbd.errors import ArgumentError
from support.point import Point

POINT = Point(episode_steps=5)
PARAMS = POINT.default_params()
has_gymnasium = pytest.mark.skipif(
    importlib.util.find_spec("gymnasium") is None, reason="the package gymnasium is not installed"
)


# ----------------------------------------------------------------------------------- Gymnasium


@pytest.fixture(scope="module")
def vector():
    return envs.gymnasium_vector(POINT, 3, seed=4)


@has_gymnasium
def test_spaces_of_gymnasium(vector):
    gymnasium = pytest.importorskip("gymnasium")
    assert isinstance(vector, gymnasium.vector.VectorEnv)
    assert vector.num_envs == 3
    assert vector.single_action_space == gymnasium.spaces.Box(-1, 1, (1,), np.float64)
    assert vector.observation_space.shape == (3, 1)
    observation, info = vector.reset(seed=1)
    assert info == {}
    assert observation in vector.observation_space
    assert vector.action_space.sample() in vector.action_space


@has_gymnasium
def test_a_seed_of_gymnasium_repeats_an_episode(vector):
    first, other, again = (vector.reset(seed=seed)[0] for seed in (1, 2, 1))
    np.testing.assert_array_equal(first, again)
    assert np.all(first != other)
    assert np.all(vector.reset()[0] != again)
    with pytest.raises(ArgumentError, match="expected one integer for all"):
        vector.reset(seed=[1, 2, 3])


@has_gymnasium
def test_the_last_observations_in_gymnasium(vector):
    """One environment fails in the second step, and the others are truncated in the fifth."""
    before, _ = vector.reset(seed=0)
    actions = np.zeros((5, 3, 1))
    actions[1, 0] = 2.0
    for i, action in enumerate(actions):
        after, reward, terminated, truncated, infos = vector.step(action)
        expected = 0.9 * before + action
        np.testing.assert_allclose(infos["effort"], -0.5 * action[:, 0] ** 2)
        np.testing.assert_allclose(reward, infos["place"] + infos["effort"])
        np.testing.assert_allclose(infos["place"], expected[:, 0], rtol=1e-12)
        done = terminated | truncated
        assert terminated.tolist() == [i == 1, False, False]
        assert truncated.tolist() == [False, i == 4, i == 4]
        if np.any(done):
            assert infos["_final_obs"].tolist() == done.tolist()
            np.testing.assert_allclose(infos["final_obs"], expected, rtol=1e-12)
            assert np.all(np.abs(after[done]) <= 0.1)
            assert np.all(after[done] != expected[done])
        else:
            assert "final_obs" not in infos
        np.testing.assert_allclose(after[~done], expected[~done], rtol=1e-12)
        before = after


@has_gymnasium
def test_wrong_sizes_and_order_are_refused():
    with pytest.raises(ArgumentError, match="size is 0"):
        envs.gymnasium_vector(POINT, 0)
    with pytest.raises(ArgumentError, match="step before reset"):
        envs.gymnasium_vector(POINT, 2).step(np.zeros((2, 1)))


def test_gymnasium_is_optional(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ArgumentError, match="needs the package gymnasium"):
        envs.gymnasium_vector(POINT, 2)


# -------------------------------------------------------------------------------------- gymnax


@pytest.mark.parametrize("make_key", [jax.random.key, jax.random.PRNGKey])
def test_an_episode_in_the_manner_of_gymnax(make_key):
    """The scan over steps that training loops for gymnax contain, with both kinds of keys."""
    env = envs.GymnaxEnv(POINT)
    params = env.default_params
    observation, state = env.reset(make_key(0), params)

    def step(carry, key):
        observation, state = carry
        action = 0.05 + 0 * env.action_space(params).sample(key)
        observation, state, reward, done, info = env.step(key, state, action, params)
        return (observation, state), (observation, reward, done, info)

    keys = jax.random.split(make_key(1), 12)
    found, reward, done, info = jax.lax.scan(step, (observation, state), keys)[1]
    assert done.tolist() == [False] * 4 + [True] + [False] * 4 + [True] + [False] * 2
    before = jnp.concatenate([observation[None], found[:-1]])
    np.testing.assert_allclose(info["final_observation"], 0.9 * before + 0.05, rtol=1e-12)
    np.testing.assert_allclose(reward, info["place"] + info["effort"], rtol=1e-12)
    assert jnp.all(info["discount"] == 1)
    assert jnp.all(info["truncated"] == done)
    assert found[4] != found[9]
    assert env.observation_space(params).shape == (1,)
    assert env.observation_space(params).contains(found[0])
    assert not env.action_space(params).contains(jnp.full(1, 1.5))
    assert (env.num_actions, env.name) == (1, "Point")


def test_a_step_of_gymnax_without_a_new_episode(key):
    env = envs.GymnaxEnv(POINT)
    _, state = env.reset(key)
    found, state, _, done, info = env.step_env(key, state, jnp.full(1, 2.0))
    assert found == state.observation == info["final_observation"] > 1
    assert done
    assert info["discount"] == 0


# ---------------------------------------------------------------------------------------- Brax


def test_an_episode_in_the_manner_of_brax():
    """The fields that the wrappers of Brax read and write, in a batch."""
    env = envs.BraxEnv(POINT)
    assert (env.observation_size, env.action_size, env.dt) == (1, 1, 0.1)
    assert env.unwrapped is env
    state = jax.vmap(env.reset)(jax.random.split(jax.random.PRNGKey(0), 3))
    info = {"steps": jnp.zeros(3), "first_obs": state.obs}
    state = state.replace(info=state.info | info)

    def step(state, action):
        before = state.obs
        state = jax.vmap(env.step)(state, action)
        state.info["steps"] = state.info["steps"] + 1
        return state, (before, state.obs, state.done, state.metrics)

    actions = jnp.zeros((7, 3, 1)).at[6, 1].set(2.0)
    last, (before, after, done, metrics) = jax.lax.scan(step, state, actions)
    np.testing.assert_allclose(after, 0.9 * before + actions, rtol=1e-12)
    assert jnp.all(last.info["steps"] == 7)
    np.testing.assert_array_equal(last.info["first_obs"], state.obs)
    expected = jnp.zeros((7, 3)).at[6, 1].set(1)  # no truncation after five steps
    np.testing.assert_array_equal(done, expected)
    np.testing.assert_allclose(metrics["place"], after[:, :, 0], rtol=1e-12)
    other = envs.BraxEnv(POINT, PARAMS._replace(friction=jnp.array(0.5)))
    state = other.step(other.reset(jax.random.key(0)), jnp.zeros(1))
    np.testing.assert_allclose(
        state.obs, 0.5 / 0.9 * env.step(env.reset(jax.random.key(0)), jnp.zeros(1)).obs
    )
