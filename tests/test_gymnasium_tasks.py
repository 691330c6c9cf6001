"""The tasks of Gymnasium: the same numbers as Gymnasium's own environments for the same states."""

import functools
import importlib.util
import pathlib
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxrbd import envs, learning
from jaxrbd.errors import ArgumentError
from support import nightly
from support.zoo import close

gymnasium = pytest.importorskip("gymnasium")
mujoco = pytest.importorskip("mujoco")

SOME = ("Ant-v5", "Hopper-v5", "Reacher-v5", "Pusher-v5")
ENDING = ("Ant", "Hopper", "Walker2d", "Humanoid", "InvertedPendulum", "InvertedDoublePendulum")


@functools.cache
def ours(name):
    env = envs.gymnasium_task(name)
    return env, env.default_params()


@functools.cache
def theirs(name):
    return gymnasium.make(name).unwrapped


def state_of_gymnasium(env, params, before=None):
    """The state of Gymnasium's environment as our physical state, with MuJoCo's forces."""
    qpos, qvel, data = (jnp.asarray(x) for x in (env.data.qpos, env.data.qvel, env.data.ctrl))
    q = params.coordinates.q(params.model, qpos)
    v = params.coordinates.v(params.model, q, qvel)
    action = (data - params.control_center) / params.control_scale
    forces = {
        "cfrc_ext": jnp.array(env.data.cfrc_ext[1:]),
        "limit_force": jnp.array(env.data.qfrc_constraint),
    }
    none = jnp.zeros(0)
    return envs.MjcfPhysics(q, v, none, None, action, action, jnp.zeros(()), forces)


def end_at(env, qpos, qvel):
    """The next steps of Gymnasium's environment end in this state, evaluated exactly."""

    def simulate(control, frames):
        env.data.ctrl[:] = control
        env.set_state(qpos, qvel)
        mujoco.mj_rnePostConstraint(env.model, env.data)

    env.do_simulation = simulate


@pytest.mark.parametrize("name", envs.GYMNASIUM_TASKS)
def test_observations_and_rewards_are_those_of_gymnasium(name):
    """Gymnasium's own `step`, where only the simulation is replaced by a random state."""
    (env, params), gym = ours(name), theirs(name)
    rng = np.random.default_rng(0)
    nq, nv = gym.model.nq, gym.model.nv
    # Small and large changes of all coordinates, then of one coordinate: one that ends an episode.
    single = [(0.004, i, change) for i in (1, 2) if i < nq for change in (-1.2, -0.3, 0.3, 1.2)]
    expected, states = [], []
    for size, i, change in [(0.004, 0, 0.1), (0.05, 0, 0), (0.5, 0, 0), (1.5, 0, 0), *single]:
        positions = gym.init_qpos + rng.uniform(-size, size, (2, nq))
        speeds = 12 * size * rng.normal(size=(2, nv))
        positions[1, i] += change
        control = rng.uniform(*gym.model.actuator_ctrlrange.T)
        gym.set_state(positions[0], speeds[0])
        before = state_of_gymnasium(gym, params)
        end_at(gym, positions[1], speeds[1] + 150 * (change == 0.1))  # a speed that ends an episode
        observation, reward, terminated, _, info = gym.step(control)
        after = state_of_gymnasium(gym, params)
        names = [key for key in info if key.startswith("reward_") or key.endswith("_penalty")]
        terms = {key: info[key] for key in names}
        if name == "HumanoidStandup-v5":
            terms["alive"] = 1.0
        expected.append((observation, reward, float(terminated), terms))
        states.append((before, after))

    @jax.jit
    @jax.vmap
    def found(before, after):
        terms = env.terms(params, before, after.action, after)
        terms = {name: params.weights[name] * term for name, term in terms.items()}
        observation = env.observe(params, after, jax.random.key(0))
        failed = env.failed(params, after).astype(float)
        return observation, sum(terms.values()), failed, terms

    stack = lambda *rows: np.stack([np.asarray(row) for row in rows])  # noqa: E731
    actual = found(*jax.tree.map(stack, *states))
    assert set(actual[3]) == set(expected[0][3])
    jax.tree.map(lambda x, y: close(x, y, 1e-9), actual, jax.tree.map(stack, *expected))
    assert len(set(actual[2].tolist())) == 1 + (name.removesuffix("-v5") in ENDING)


@pytest.mark.parametrize("name", envs.GYMNASIUM_TASKS)
def test_lengths_and_ranges_are_those_of_gymnasium(name):
    (env, params), gym = ours(name), theirs(name)
    close(env.time_step, gym.dt, 1e-15)
    assert env.substeps == gym.frame_skip
    assert env.episode_steps == gymnasium.spec(name).max_episode_steps
    low, high = gym.model.actuator_ctrlrange.T
    close(params.control_center - params.control_scale, low)
    close(params.control_center + params.control_scale, high)


@pytest.mark.parametrize("name", nightly.all_but(SOME, envs.GYMNASIUM_TASKS))
def test_starts_have_the_distribution_of_gymnasium(name):
    """The two-sample test of Kolmogorov and Smirnov, for each coordinate and for two distances."""
    (env, params), gym = ours(name), theirs(name)
    n = 1500

    def features(qpos, qvel):
        places = [np.linalg.norm(qpos[:, i - 2 : i or None], axis=1) for i in (0, -2)]
        return np.column_stack([qpos, qvel, *places])

    @jax.jit
    @jax.vmap
    def start(key):
        physics, coordinates = env.initial(params, key), params.coordinates
        qpos = coordinates.qpos(params.model, physics.q)
        return qpos, coordinates.qvel(params.model, physics.q, physics.v)

    rows = []
    gym.reset(seed=0)
    for _ in range(n):
        gym.reset_model()
        rows.append((gym.data.qpos.copy(), gym.data.qvel.copy()))
    expected = features(*map(np.stack, zip(*rows)))
    found = features(*map(np.asarray, start(jax.random.split(jax.random.key(0), n))))
    for x, y in zip(found.T, expected.T):
        # Values with an error of rounding are equal. Above 0.1, the probability is below 1e-6.
        assert stats.ks_2samp(x.round(12), y.round(12)).statistic < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", envs.GYMNASIUM_TASKS)
@pytest.mark.parametrize("double", [False, True])
def test_random_steps_are_finite(name, double):
    with jax.enable_x64(double):
        env = envs.gymnasium_task(name)
        params = env.default_params()
        batch = envs.vectorize(envs.auto_reset(env))

        @jax.jit
        def rollout(key):
            def step(state, key):
                shape = len(state.reward), env.action_size
                action = jax.random.uniform(key, shape, params.model.dtype, -1, 1)
                state = batch.step(params, state, action)
                return state, (state.observation, state.reward, state.diverged)

            keys = jax.random.split(key, 101)
            return jax.lax.scan(step, batch.reset(params, keys[:4]), keys[1:])[1]

        observations, rewards, diverged = rollout(jax.random.key(0))
        assert observations.dtype == rewards.dtype == params.model.dtype
        assert params.model.dtype == (jnp.float64 if double else jnp.float32)
        assert np.all(np.isfinite(observations))
        assert np.all(np.isfinite(rewards))
        assert not np.any(diverged)


@pytest.mark.slow
def test_a_step_in_single_precision():
    """The cart meets the end of its rail, so the force of the limit acts."""
    with jax.enable_x64(False):
        env = envs.gymnasium_task("InvertedDoublePendulum-v5")
        params = env.default_params()
        state = env.reset(params, jax.random.key(0))
        at_end = state.physics._replace(q=jnp.array([0.999, 0.0, 0.0]))
        after = jax.jit(env.step)(params, state._replace(physics=at_end), jnp.ones(1))
    assert after.observation.dtype == after.reward.dtype == jnp.float32
    assert np.all(np.isfinite(after.observation))
    assert after.observation[-1] == -10  # the clipped force
    assert np.all(state.observation[-1] == 0)


def test_the_hopper_lands_as_in_gymnasium():
    """With rigid contact, the velocities in the observation differ by up to 1 m/s."""
    env, params = ours("Hopper-v5")
    gym = gymnasium.make("Hopper-v5").unwrapped
    gym.reset(seed=0)
    gym.set_state(gym.init_qpos, 0 * gym.init_qvel)
    state = jax.jit(env.reset)(params, jax.random.key(0))
    physics = state_of_gymnasium(gym, params)
    start = state.physics._replace(q=physics.q, v=physics.v)
    state, step = state._replace(physics=start), jax.jit(env.step)
    action = np.array([0.1, -0.2, 0.3])
    touches = 0
    for _ in range(20):
        state = step(params, state, jnp.array(action))
        expected, *_ = gym.step(action)
        np.testing.assert_allclose(state.observation, expected, atol=0.06)
        touches += gym.data.ncon
    assert touches > 3
    assert not envs.gymnasium_task("Hopper-v5", soft=False).soft


def test_changes_of_a_task():
    env, _ = ours("Hopper-v5")
    assert env == envs.gymnasium_task("Hopper-v5")
    fine = envs.gymnasium_task("Hopper-v5", substeps=8, time_step=0.016, fails=None, path=env.path)
    assert (fine.substeps, fine.fails, fine.path) == (8, None, env.path)
    one, two = ({name: term for name, _, term in x.rewards} for x in (env, fine))
    physics = envs.MjcfPhysics(jnp.ones(6), *[None] * 7)
    moved = physics._replace(q=2 * physics.q)
    speeds = [x["reward_forward"](ours("Hopper-v5")[1], physics, None, moved) for x in (one, two)]
    close(speeds, [1 / 0.008, 1 / 0.016])


def test_wrong_names():
    with pytest.raises(ArgumentError, match=r"name is 'Ant', expected one of Ant-v5, .*'Ant-v5'"):
        envs.gymnasium_task("Ant")
    with pytest.raises(ArgumentError, match=r"no field 'substep', .*did you mean 'substeps'"):
        envs.gymnasium_task("Ant-v5", substep=3)
    with pytest.raises(ArgumentError, match="no field 'omitted'"):
        envs.gymnasium_task("Ant-v5", omitted=())
    with pytest.raises(ArgumentError, match=r"time_step is 0\.0, expected more than 0"):
        envs.gymnasium_task("Hopper-v5", time_step=0.0)


def test_gymnasium_is_optional(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ArgumentError, match=r"1\.1 or later: pip install gymnasium mujoco"):
        envs.gymnasium_task("Ant-v5")
    with pytest.raises(ArgumentError, match="pip install gymnasium mujoco"):
        learning.load_task("Ant-v5")
    assert "Ant-v5" in learning.task_names()
    found = types.SimpleNamespace(origin=str(pathlib.Path(tmp_path, "__init__.py")))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    with pytest.raises(ArgumentError, match=r"no file ant\.xml, expected gymnasium 1\.1 or later"):
        envs.gymnasium_task("Ant-v5")


def test_the_tasks_can_be_trained_by_name():
    assert learning.load_task("Hopper-v5", "ppo") == ours("Hopper-v5")[0]
    assert learning.algorithm_for("Pusher-v5", "ppo") == learning.Ppo()
