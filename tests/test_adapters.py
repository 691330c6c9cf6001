"""Environments with the interfaces of Gymnasium, gymnax and Brax."""

import importlib.util
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrbd import envs
from jaxrbd.errors import ArgumentError
from support.point import Point, PointWithDraws, PointWithSecrets

POINT = Point(episode_steps=5)
PARAMS = POINT.default_params()
has_gymnasium = pytest.mark.skipif(
    importlib.util.find_spec("gymnasium") is None, reason="the package gymnasium is not installed"
)


# ----------------------------------------------------------------------------------- Gymnasium


@pytest.fixture(scope="module")
def vector():
    return envs.gymnasium_vector(POINT, 3, seed=4, autoreset="SameStep")


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
    np.testing.assert_array_equal(vector.reset(seed=np.int64(1))[0], first)
    with pytest.raises(ArgumentError, match="seed is -1, expected an integer of 0 or more"):
        vector.reset(seed=-1)
    with pytest.raises(ArgumentError, match=r"options is .'reset_mask': 1., expected"):
        vector.reset(seed=2, options={"reset_mask": 1})
    with pytest.raises(ArgumentError, match="actions has dtype complex128, expected real numbers"):
        vector.step(np.zeros((3, 1), complex))
    with pytest.raises(ArgumentError, match=r"seed is \[1, 2, 3\], expected an integer of"):
        vector.reset(seed=[1, 2, 3])


@has_gymnasium
def test_parameters_and_the_first_seed_of_gymnasium(vector, key):
    """The seed of the constructor is that of the first reset."""
    names = {"friction": envs.Uniform(0.2, 0.9)}
    params, axes = envs.randomise(PARAMS, names, key, 3)
    other = envs.gymnasium_vector(POINT, 3, params, axes, seed=1)
    before, _ = other.reset()
    np.testing.assert_array_equal(before, vector.reset(seed=1)[0])
    after = other.step(np.zeros((3, 1)))[0]
    np.testing.assert_allclose(after, (1 - params.friction)[:, None] * before, rtol=1e-12)
    assert vector.metadata["render_fps"] == 10


@has_gymnasium
def test_the_last_observations_in_gymnasium(vector):
    """One environment fails in the second step, and the others are truncated in the fifth."""
    assert vector.metadata["autoreset_mode"].value == "SameStep"
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
def test_a_new_episode_in_the_next_step_of_gymnasium():
    """One environment fails in the second step and the others end in the fifth; two episodes."""
    gymnasium = pytest.importorskip("gymnasium")
    vector = envs.gymnasium_vector(POINT, 3, seed=4)
    assert vector.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.NEXT_STEP
    before, _ = vector.reset(seed=0)
    action, ended = np.zeros((3, 1)), np.zeros(3, bool)
    counts = []
    for i in range(9):
        action[0] = 2.0 if i == 1 else 0.1
        after, reward, terminated, truncated, infos = vector.step(action)
        expected = np.where(ended[:, None], after, 0.9 * before + action)
        np.testing.assert_allclose(after, expected, rtol=1e-12)
        assert np.all(np.abs(after[ended]) <= 0.1)
        place = np.where(ended, 0, after[:, 0])
        np.testing.assert_allclose(infos["place"], place, rtol=1e-12)
        np.testing.assert_allclose(reward, infos["place"] + infos["effort"], rtol=1e-12)
        assert terminated.tolist() == [i == 1, False, False]
        assert "final_obs" not in infos
        before, ended = after, terminated | truncated
        counts.append(ended.tolist())
    assert [i for i, row in enumerate(counts) if row[0]] == [1, 7]
    assert [i for i, row in enumerate(counts) if row[1]] == [4]


@has_gymnasium
def test_wrappers_of_gymnasium(key):
    """Normalised observations, statistics of episodes, and one array of a dict of arrays."""
    wrappers = pytest.importorskip("gymnasium.wrappers.vector")
    vector = envs.gymnasium_vector(PointWithSecrets(episode_steps=5), 3)
    assert vector.reset(seed=1)[0] in vector.observation_space
    assert vector.single_observation_space["privileged_state"].shape == (2,)
    wrapped = wrappers.RecordEpisodeStatistics(wrappers.FlattenObservation(vector))
    wrapped = wrappers.NormalizeObservation(wrapped)
    observation, _ = wrapped.reset(seed=1)
    assert observation.shape == (3, 3)
    lengths = []
    for _ in range(12):
        observation, *_, infos = wrapped.step(np.full((3, 1), 0.1))
        assert observation in wrapped.observation_space
        lengths += infos["episode"]["l"].tolist() if "episode" in infos else []
    assert lengths == [5] * 6


@has_gymnasium
def test_wrong_sizes_and_order_are_refused():
    with pytest.raises(ArgumentError, match="autoreset is 'Disabled', expected one of NextStep, S"):
        envs.gymnasium_vector(POINT, 2, autoreset="Disabled")
    with pytest.raises(ArgumentError, match="env is 'AutoReset', expected an Env without"):
        envs.gymnasium_vector(envs.auto_reset(POINT), 2)
    with pytest.raises(ArgumentError, match=r"autoreset is \['x'\], expected one of Ne"):
        envs.gymnasium_vector(POINT, 2, autoreset=["x"])
    with pytest.raises(ArgumentError, match="seed is -1, expected an integer of 0 or more"):
        envs.gymnasium_vector(POINT, 2, seed=-1)
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
        observation, state, reward, *ends, info = env.step(key, state, action, params)
        return (observation, state), (observation, reward, ends, info)

    keys = jax.random.split(make_key(1), 12)
    found, reward, (terminated, done), info = jax.lax.scan(step, (observation, state), keys)[1]
    assert not jnp.any(terminated)
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


@pytest.mark.parametrize("name", ["step", "step_env"])
def test_the_key_and_the_parameters_of_a_step_of_gymnax(name, key):
    env = envs.GymnaxEnv(PointWithDraws())
    _, state = env.reset(key)
    step, keys = getattr(env, name), jax.random.split(key)
    found = [step(keys[i], state, jnp.zeros(1))[0][0] for i in (0, 1, 0)]
    assert found[0] == found[2] != found[1]
    env = envs.GymnaxEnv(POINT)
    params = PARAMS._replace(friction=jnp.array(0.6))
    observation, state = env.reset(key, params)
    after = getattr(env, name)(key, state, jnp.zeros(1), params)[0]
    np.testing.assert_allclose(after, 0.4 * observation, rtol=1e-12)


def test_samples_of_the_spaces_of_gymnax(key):
    env = envs.GymnaxEnv(POINT)
    keys = jax.random.split(key, 200)
    actions = jax.vmap(env.action_space().sample)(keys)
    space = env.action_space()
    assert env.action_space().contains(actions[0])
    assert not space.contains(jnp.zeros(2))
    assert not space.contains(jnp.full(1, 1.1))
    assert not space.contains(np.zeros(1, complex))
    with pytest.raises(ArgumentError, match="key has shape"):
        space.sample(0)
    with pytest.raises(ArgumentError, match="params is 'int', expected parameters"):
        env.action_space(3)
    assert jnp.min(actions) < -0.9
    assert jnp.max(actions) > 0.9
    observations = jax.vmap(env.observation_space().sample)(keys)
    assert abs(jnp.mean(observations)) < 0.3
    assert 0.8 < jnp.std(observations) < 1.2


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
    extra = {"reward": state.reward}
    state = state.replace(info=state.info | info, metrics=state.metrics | extra)

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
    assert jnp.all(metrics["reward"] == 0)
    other = envs.BraxEnv(POINT, PARAMS._replace(friction=jnp.array(0.5)))
    state = other.step(other.reset(jax.random.key(0)), jnp.zeros(1))
    np.testing.assert_allclose(
        state.obs, 0.5 / 0.9 * env.step(env.reset(jax.random.key(0)), jnp.zeros(1)).obs
    )


def test_observations_of_several_arrays_in_the_manner_of_brax_and_gymnax(key):
    env = PointWithSecrets()
    brax = envs.BraxEnv(env)
    assert brax.observation_size == {"state": (1,), "privileged_state": (2,)}
    assert brax.reset(key).obs["privileged_state"][1] == 0.1
    gymnax = envs.GymnaxEnv(env)
    space, (observation, _) = gymnax.observation_space(), gymnax.reset(key)
    assert space["privileged_state"].shape == (2,)
    assert space["state"].contains(observation["state"])
