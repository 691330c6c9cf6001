"""Imitation: who controls the environments, the loss by its definition, what a student learns."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxrbd import envs, learning
from jaxrbd.errors import ArgumentError, SavedFileError, TrainingError
from jaxrbd.learning import networks
from support.point import Point, PointWithSecrets

BATCH = 8
ENV = Point(episode_steps=50)


def teacher(x):
    return jnp.tanh(0.5 - 2 * x[..., :1])


SMALL = learning.Imitation(
    teacher, batch=BATCH, horizon=1, hidden=(6,), epochs=1, minibatches=1, updates=8
)


@functools.cache
def program(algorithm, env=ENV):
    """The parameters, a state, and the compiled update."""
    batch, params = envs.vectorize(envs.auto_reset(env)), env.default_params()
    state = jax.jit(functools.partial(algorithm.init, batch))(params, jax.random.key(0))
    first = state.states._replace(steps=0 * state.states.steps)
    return params, state._replace(states=first), jax.jit(functools.partial(algorithm.update, batch))


def after(state, updates):
    """The state with the number of steps of the optimiser of so many updates."""
    count = jnp.asarray(updates * SMALL.epochs * SMALL.minibatches, jnp.int32)
    return state._replace(optimiser=optax.tree_utils.tree_set(state.optimiser, count=count))


def actions_of(params, before, after):
    """The actions of the points between two states."""
    return np.asarray(after.physics - (1 - params.friction) * before.physics)


def test_the_teacher_controls_a_share_that_falls_to_zero():
    params, state, update = program(SMALL)
    shares = []
    for updates in (0, 2, 4, 7):
        by_teacher = 0
        for seed in range(40):
            given = after(state, updates)._replace(key=jax.random.key(seed))
            found, _ = update(params, given)
            action = actions_of(params, state.states, found.states)
            by_teacher += np.sum(np.abs(action - teacher(state.states.physics)) < 1e-12)
        shares.append(by_teacher / (40 * BATCH))
    assert shares[0] == 1
    assert abs(shares[1] - 0.5) < 0.1
    assert shares[2:] == [0, 0]


def test_the_student_acts_with_noise():
    params, state, update = program(SMALL)
    given = after(state, 4)
    keys = jax.random.split(jax.random.key(1), 200)
    found = jax.vmap(lambda key: update(params, given._replace(key=key))[0].states)(keys)
    gaussian = np.arctanh(actions_of(params, state.states, found))
    x = state.statistics.normalise(state.states.observation)
    mean = networks.apply(state.policy.mean, x)
    np.testing.assert_allclose(gaussian.mean(axis=0), mean, atol=0.05)
    np.testing.assert_allclose(gaussian.std(), np.exp(-2), rtol=0.1)


def test_the_loss_and_the_step_are_those_of_the_definition():
    """One step of Adam along the gradient of the loss, with weights of the observations."""
    weighted = dataclasses.replace(SMALL, weights=lambda x: jnp.maximum(x, 0))
    params, state, update = program(weighted)
    found, metrics = update(params, state)
    x = state.states.observation
    kept = np.asarray(x[:, 0] > 0)
    assert 0 < kept.sum() < BATCH
    statistics = networks.with_observations(state.statistics, x)

    def loss(mean):
        action = jnp.tanh(networks.apply(mean, statistics.normalise(x)))
        return jnp.sum(((action - teacher(x)) ** 2)[kept]) / BATCH

    cost, gradient = jax.value_and_grad(loss)(state.policy.mean)
    np.testing.assert_allclose(metrics["loss"], cost, rtol=1e-12)
    leaves = jax.tree.leaves(gradient)
    norm = np.sqrt(sum(np.sum(np.square(y)) for y in leaves))
    np.testing.assert_allclose(metrics["gradient_norm"], norm, rtol=1e-12)
    assert norm < 1  # so the step of Adam does not limit the gradient
    for before, after, slope in zip(*map(jax.tree.leaves, (state.policy, found.policy)), leaves):
        # The first step of Adam has the length of the rate in each entry.
        np.testing.assert_allclose(before - after, 2e-3 * slope / (np.abs(slope) + 1e-8), rtol=1e-6)
    np.testing.assert_allclose(metrics["reward"], np.mean(found.states.reward), rtol=1e-12)


def test_robots_without_weights_change_nothing():
    without = dataclasses.replace(SMALL, weights=lambda x: 0 * x)
    params, state, update = program(without)
    found, metrics = update(params, state)
    assert metrics["loss"] == 0
    for x, y in zip(jax.tree.leaves(state.policy), jax.tree.leaves(found.policy)):
        np.testing.assert_array_equal(x, y)


@functools.cache
def trained():
    """A student that sees less than its teacher, after its training, and the records."""

    def teacher(x):
        return jnp.tanh(0.5 - 20 * x["privileged_state"][..., 1:] * x["privileged_state"][..., :1])

    imitation = learning.Imitation(
        teacher,
        batch=16,
        horizon=8,
        hidden=(16,),
        learning_rate=1e-2,
        updates=100,
        policy_observation="state",
    )
    training = learning.Training(imitation, PointWithSecrets(episode_steps=50))
    return training, list(training.run())


def test_a_student_learns_from_a_teacher_that_sees_more():
    training, records = trained()
    losses = [record.metrics["loss"] for record in records]
    assert losses[-1] < 1e-4 < 1e-2 < losses[0]
    x = np.linspace(0, 0.25, 6)[:, None]  # the places that it reaches
    found = training.policy()({"state": x, "privileged_state": np.zeros((6, 2))})
    np.testing.assert_allclose(found, np.tanh(0.5 - 2 * x), atol=0.05)


def test_all_samples_are_fitted_in_each_sweep_and_the_rate_falls_over_all_steps():
    """Two epochs of two minibatches are four steps of Adam, in each of eight updates."""
    several = dataclasses.replace(SMALL, epochs=2, minibatches=2, last_learning_rate=0.0)
    params, state, update = program(several)
    found, _ = update(params, state)
    assert found.optimiser[1][0].count == 4
    assert found.statistics.samples == pytest.approx(BATCH, abs=0.01)

    def change(steps):
        """The largest change of the policy in an update after so many steps of Adam."""
        counted = jax.tree.map(lambda x: x + steps if x.ndim == 0 else x, state.optimiser)
        policy = update(params, state._replace(optimiser=counted))[0].policy
        pairs = zip(jax.tree.leaves(policy), jax.tree.leaves(state.policy))
        return max(jnp.max(jnp.abs(x - y)) for x, y in pairs)

    assert change(31) > 0
    assert change(32) == 0


def test_a_training_continues_bit_for_bit(tmp_path):
    training = learning.Training(SMALL, ENV, seed=3)
    records = training.run(tmp_path / "file", every=5)
    for _ in range(5):
        next(records)
    after_five = learning.Training(SMALL, ENV, seed=3)
    after_five.load(tmp_path / "file")
    assert len(after_five.records) == 5
    for one in (training, after_five):
        list(one.run())
    for x, y in zip(jax.tree.leaves(training.state), jax.tree.leaves(after_five.state)):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = map(jax.random.key_data, (x, y))
        np.testing.assert_array_equal(x, y)
    with pytest.raises(SavedFileError, match="of an imitation, which needs its teacher"):
        learning.load_training(tmp_path / "file", ENV)


def test_wrong_settings_are_named():
    with pytest.raises(ArgumentError, match="teacher is 3, expected a function"):
        learning.Imitation(3)
    with pytest.raises(ArgumentError, match="weights is 3, expected a function"):
        learning.Imitation(teacher, weights=3)
    with pytest.raises(ArgumentError, match="updates is 0"):
        learning.Imitation(teacher, updates=0)
    with pytest.raises(ArgumentError, match="minibatches is 5, expected a divisor"):
        learning.Imitation(teacher, minibatches=5)
    for name in ("teacher", "weights"):
        wrong = dataclasses.replace(SMALL, **{name: lambda x: jnp.zeros((len(x), 2))})
        with pytest.raises(ArgumentError, match=rf"{name} gives an array of the shape \(8, 2\)"):
            learning.Training(wrong, ENV)


@pytest.mark.parametrize("name", ["teacher", "weights"])
def test_a_result_without_a_row_for_each_observation_is_refused(name):
    """As many rows as environments, but a window has twice as many observations."""
    algorithm = dataclasses.replace(SMALL, horizon=2, **{name: lambda x: jnp.ones((BATCH, 1))})
    message = rf"{name} gives an array of the shape \(8, 1\) for 16 observations"
    with pytest.raises(ArgumentError, match=message):
        next(learning.Training(algorithm, ENV).run())


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_weights_that_are_negative_or_not_finite_end_the_training(weight):
    algorithm = dataclasses.replace(SMALL, weights=lambda x: jnp.full_like(x[..., :1], weight))
    with pytest.raises(TrainingError, match="update 1: weights is nan"):
        next(learning.Training(algorithm, ENV).run())


def test_the_mean_weight_is_a_metric():
    algorithm = dataclasses.replace(SMALL, weights=lambda x: jnp.full_like(x[..., :1], 0.25))
    assert next(learning.Training(algorithm, ENV).run()).metrics["weights"] == 0.25
