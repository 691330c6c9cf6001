"""A batch of 64 environments, one of which has a NaN: it ends, and the others keep their bits."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import envs, learning
from support import nightly
from support.point import Point, arrays

pytestmark = pytest.mark.gives_nan

SIZE, WHICH, STEPS = 64, 17, 12
OTHERS = np.arange(SIZE) != WHICH


class Params(NamedTuple):
    """One parameter for each method of the environment."""

    model: rbd.Model
    friction: jax.Array
    start: jax.Array
    sensor: jax.Array
    weights: dict


class NoisyPoint(Point):
    """A point whose start and observation also have parameters."""

    def default_params(self):
        model, friction, weights = super().default_params()
        return Params(model, friction, jnp.zeros(()), 0.01 * jnp.ones(()), weights)

    def initial(self, params, key):
        return params.start + super().initial(params, key)

    def observe(self, params, physics, key):
        return (1 + params.sensor * jax.random.normal(key, (1,))) * physics


ENV = NoisyPoint(episode_steps=5)
DRAWN = {name: envs.Scale(0.9, 1.1) for name in ("friction", "start", "sensor", "weights.place")}
PARAMS, AXES = envs.randomise(ENV.default_params(), DRAWN, jax.random.key(0), SIZE)
BATCH = envs.vectorize(envs.auto_reset(ENV), AXES)
# What can have the NaN: a parameter that the environment has drawn, or what a user gives.
PARAMETERS = ["friction", "start", "sensor", "weights"]
GIVEN = ["action", "physics", "observation"]


def with_nan(x):
    """The array with a NaN in the row of one environment."""
    return jnp.asarray(x).at[WHICH].set(jnp.nan)


def poisoned(params, states, kind):
    """The parameters and the states with a NaN; the states of another `start` are of a reset."""
    if kind == "weights":
        weights = {**params.weights, "place": with_nan(params.weights["place"])}
        return params._replace(weights=weights), states
    if kind in PARAMETERS:
        params = params._replace(**{kind: with_nan(getattr(params, kind))})
    elif kind in states._fields:
        states = states._replace(**{kind: with_nan(getattr(states, kind))})
    return params, states


def assert_same(found, expected, axis=0):
    """The same bits for all environments but one."""
    for x, y in zip(arrays(found), arrays(expected)):
        np.testing.assert_array_equal(np.compress(OTHERS, x, axis), np.compress(OTHERS, y, axis))


@pytest.fixture(scope="module")
def rollout():
    """The states of some steps and the gradient of their rewards, compiled once.

    The gain of the policy belongs to all environments, as the parameters of a network do.
    """

    def rewards(gain, actions, friction, params, states):
        params = params._replace(friction=friction)

        def step(states, action):
            after = BATCH.step(params, states, gain * states.observation + action)
            return after, after

        found = jax.lax.scan(step, states, actions)[1]
        return jnp.sum(found.reward), found

    run = jax.jit(jax.value_and_grad(rewards, (0, 1, 2), has_aux=True))
    reset = jax.jit(lambda params: BATCH.reset(params, jax.random.split(jax.random.key(1), SIZE)))
    actions = 0.3 * jax.random.normal(jax.random.key(2), (STEPS, SIZE, 1))

    def found(kind=None):
        params, states = PARAMS, reset(PARAMS)
        if kind is not None:
            params, states = poisoned(params, states, kind)
            if kind in PARAMETERS:
                states = reset(params)
        moved = actions.at[3, WHICH].set(jnp.nan) if kind == "action" else actions
        (_, after), gradient = run(jnp.asarray(-0.1), moved, params.friction, params, states)
        return states, after, gradient

    return found, found()


@pytest.mark.parametrize("kind", [*PARAMETERS, *GIVEN])
def test_the_other_environments_keep_their_bits(kind, rollout):
    """Over steps, automatic resets, and in the gradients of their actions and parameters."""
    run, (start, expected, expected_gradient) = rollout
    first, found, (gain, actions, friction) = run(kind)
    assert np.sum(expected.terminated | expected.truncated) > 2 * SIZE
    if kind in PARAMETERS:
        assert_same(first, start)
    assert_same(found, expected, axis=1)
    assert_same(actions, expected_gradient[1], axis=1)
    assert_same(friction, expected_gradient[2])
    if kind != "observation":  # the policy multiplies it; steps and resets return none with a NaN
        assert np.isfinite(gain)
    assert np.all(np.isfinite(actions))
    assert np.isfinite(friction[WHICH])

    diverged = found.diverged[:, WHICH]
    assert not np.any(expected.diverged)
    assert np.all(found.terminated[diverged][:, WHICH])
    assert np.all(found.steps[diverged][:, WHICH] == 0)  # a new episode has begun
    assert not np.any(found.truncated[diverged][:, WHICH])
    for name in ("observation", "final_observation", "reward", "reward_terms"):
        assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(getattr(found, name))), name
    if kind in PARAMETERS:
        assert np.all(diverged)
    else:
        assert np.flatnonzero(diverged).tolist() == [3 if kind == "action" else 0]
        assert np.all(np.isfinite(found.physics))


def test_an_action_that_is_not_finite_does_not_move_the_environment():
    """Also where the physics and the reward do not use it; the other entries are dropped too."""

    @dataclasses.dataclass(frozen=True)
    class Idle(Point):
        action_size = 2

        def advance(self, params, physics, action, key):
            return physics + action[1]

        def terms(self, params, before, action, after):
            return {"place": after[0], "effort": -(action[1] ** 2)}

    env = Idle()
    params = env.default_params()
    state = env.reset(params, jax.random.key(0))
    for wrong in (jnp.nan, jnp.inf):
        after = env.step(params, state, jnp.array([wrong, 0.5]))
        assert after.diverged
        assert after.terminated
        assert after.physics == state.physics
        assert after.reward_terms["effort"] == 0
    assert not env.step(params, state, jnp.array([0.0, 0.5])).diverged


def test_gymnasium_ends_the_episode_of_an_action_that_is_not_finite():
    pytest.importorskip("gymnasium")
    found = []
    for wrong in (0.1, np.nan):
        env = envs.gymnasium_vector(Point(), 3)
        env.reset(seed=0)
        actions = np.full((3, 1), 0.1)
        actions[1] = wrong
        found.append(env.step(actions))
    (right, reward, *_), (observation, other, terminated, *_) = found
    assert terminated.tolist() == [False, True, False]
    assert np.all(np.isfinite(observation))
    assert np.all(np.isfinite(other))
    np.testing.assert_array_equal(observation[[0, 2]], right[[0, 2]])
    np.testing.assert_array_equal(other[[0, 2]], reward[[0, 2]])


SMALL = {
    "shac": learning.Shac(SIZE, 9, (6,), critic_epochs=2, critic_minibatches=3, updates=6),
    "apg": learning.Apg(SIZE, 9, (6,), updates=6),
    "ppo": learning.Ppo(SIZE, 9, (6,), epochs=2, minibatches=3, updates=6),
}


@pytest.mark.parametrize("name", nightly.all_but(["apg"], SMALL))
def test_an_update_of_a_training_is_finite_and_leaves_the_others(name):
    """The window of the update has the same steps of the others, whatever has the NaN."""
    algorithm = SMALL[name]
    init = jax.jit(lambda params: algorithm.init(BATCH, params, jax.random.key(0)))
    update = jax.jit(lambda params, state: algorithm.update(BATCH, params, state))
    start = init(PARAMS)
    right, right_metrics = update(PARAMS, start)
    for kind in [*PARAMETERS, "physics"]:
        params, states = poisoned(PARAMS, start.states, kind)
        state = init(params) if kind in PARAMETERS else start._replace(states=states)
        found, metrics = update(params, state)
        assert_same(found.states, right.states)
        assert_same(found.episodes.current, right.episodes.current)
        assert metrics["diverged"] == (9 if kind in PARAMETERS else 1), kind
        assert set(metrics) == set(right_metrics)
        assert all(np.isfinite(x) for x in metrics.values()), kind
        for part in (found.policy, found.statistics):
            assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(part)), kind
        metrics = update(params, found)[1]
        assert all(np.isfinite(x) for x in metrics.values()), kind


# Two feet whose soles touch the ground and each other.
BIPED = """
<mujoco>
  <default><joint armature="0.02" damping="0.3"/></default>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body name="trunk" pos="0 0 0.3"><freejoint/>
      <geom type="box" size="0.1 0.1 0.1" mass="4" contype="0" conaffinity="0"/>
      <body pos="0 0.06 -0.1"><joint name="left" axis="1 0 0"/>
        <geom type="box" size="0.08 0.05 0.1" pos="0 0 -0.1" mass="0.5"/></body>
      <body pos="0 -0.06 -0.1"><joint name="right" axis="1 0 0"/>
        <geom type="box" size="0.08 0.05 0.1" pos="0 0 -0.1" mass="0.5"/></body>
    </body>
  </worldbody>
  <actuator>
    <position joint="left" kp="40" kv="2"/><position joint="right" kp="40" kv="2"/>
  </actuator>
</mujoco>
"""


def robot_task(name):
    """A task by name, or the two feet; the humanoid of Gymnasium has a working set of contacts."""
    if name in ("biped", "Hopper-v5", "Humanoid-v5"):
        pytest.importorskip("mujoco")
    if name == "biped":
        env = envs.MjcfWalk(BIPED)
        assert env.default_params().scene.pairs
        return env
    if name.endswith("-v5"):
        pytest.importorskip("gymnasium")
    return learning.load_task(name)


TASKS = ["cart-pole", "hopper", "quadruped-trot", "biped", "Hopper-v5", "Humanoid-v5"]


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_robots_keep_their_bits_beside_one_with_a_nan(task):
    """An inertia, a configuration or an action; contact is solved for all robots at once."""
    env = robot_task(task)
    env = dataclasses.replace(env, episode_steps=6)
    names = {"model.inertia": envs.Scale(0.9, 1.1)}
    params, axes = envs.randomise(env.default_params(), names, jax.random.key(0), SIZE)
    batch = envs.vectorize(envs.auto_reset(env), axes)
    start = jax.jit(lambda: batch.reset(params, jax.random.split(jax.random.key(1), SIZE)))()
    shape = (8, SIZE, env.action_size)
    actions = 0.3 * jax.random.normal(jax.random.key(2), shape, params.model.dtype)

    @jax.jit
    def run(inertia, states, actions):
        model = dataclasses.replace(params.model, inertia=inertia)
        changed = params._replace(model=model)

        def step(states, action):
            after = batch.step(changed, states, action)
            return after, after

        return jax.lax.scan(step, states, actions)[1]

    inertia = params.model.inertia
    right = run(inertia, start, actions)
    assert not np.any(right.diverged)
    broken = start._replace(physics=start.physics._replace(q=with_nan(start.physics.q)))
    for found, when in (
        (run(with_nan(inertia), start, actions), range(8)),
        (run(inertia, broken, actions), [0]),
        (run(inertia, start, actions.at[2, WHICH, 0].set(jnp.nan)), [2]),
    ):
        assert_same(found, right, axis=1)
        assert np.flatnonzero(found.diverged[:, WHICH]).tolist() == [*when]
        for x in jax.tree.leaves((found.observation, found.reward_terms)):
            assert np.all(np.isfinite(x))
