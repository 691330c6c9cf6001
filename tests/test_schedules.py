"""Parameters that change during a training: they act, and nothing is compiled again."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrbd import envs, learning
from jaxrbd.errors import ArgumentError
from jaxrbd.learning.schedules import scheduled
from support import nightly
from support.jax_events import work
from support.point import Point

ENV = Point(episode_steps=5)
PARAMS = ENV.default_params()
UPDATES = 4
SMALL = {
    "apg": learning.Apg(4, 3, (4,), updates=UPDATES),
    "shac": learning.Shac(4, 3, (4,), critic_epochs=1, critic_minibatches=2, updates=UPDATES),
    "ppo": learning.Ppo(4, 3, (4,), epochs=1, minibatches=2, updates=UPDATES),
}


@functools.cache
def usual_rewards(name):
    """The mean rewards of the updates without a schedule."""
    return [x.metrics["reward"] for x in learning.Training(SMALL[name], ENV).run()]


def slippery(params, progress):
    """Friction and a weight that change, as floats of Python and as arrays."""
    weights = {**params.weights, "effort": 0.5 - 0.4 * progress}
    return params._replace(friction=(1 - progress) * params.friction, weights=weights)


@pytest.mark.parametrize("block", nightly.all_but([None], [None, 2]))
@pytest.mark.parametrize("name", nightly.all_but(["apg"], SMALL))
def test_a_training_with_a_schedule_compiles_once(name, block):
    training = learning.Training(SMALL[name], ENV, block=block, schedule=slippery)
    evaluation = learning.Evaluations(1, episodes=2)
    records = training.run(evaluation=evaluation)
    with work() as first:
        next(records)
    assert first
    with work() as later:
        assert len(list(records)) == UPDATES - 1
    assert not later


@pytest.mark.parametrize("name", nightly.all_but(["apg"], SMALL))
def test_each_update_has_the_parameters_of_its_progress(name):
    """And the start, too: as if each update were computed with these parameters."""
    algorithm = SMALL[name]
    training = learning.Training(algorithm, ENV, schedule=slippery)
    batch = envs.vectorize(envs.auto_reset(ENV))
    update = jax.jit(lambda params, state: algorithm.update(batch, params, state))
    state = jax.jit(lambda params: algorithm.init(batch, params, jax.random.key(0)))(
        slippery(PARAMS, 0.0)
    )
    for i, record in enumerate(training.run()):
        progress = i / UPDATES
        params = scheduled(slippery, PARAMS, progress)
        assert params.friction == (1 - progress) * PARAMS.friction
        state, metrics = update(params, state)
        assert record.metrics["reward"] == float(metrics["reward"])
        np.testing.assert_array_equal(training.state.states.physics, state.states.physics)
        assert training.params.friction == pytest.approx(0.1 * (1 - (i + 1) / UPDATES))
    # The parameters act: without the schedule, the rewards are others.
    usual = usual_rewards(name)
    found = [x.metrics["reward"] for x in training.records]
    assert usual[0] == found[0]
    assert not np.any(np.equal(usual[1:], found[1:]))


def test_a_training_with_a_schedule_continues_bit_for_bit(tmp_path):
    def training():
        return learning.Training(SMALL["apg"], ENV, schedule=slippery)

    whole, part, again = training(), training(), training()
    records = list(whole.run())
    for _ in zip(range(2), part.run()):
        pass
    part.save(tmp_path / "file")
    again.load(tmp_path / "file")
    assert again.params.friction == 0.5 * PARAMS.friction
    assert repr(list(again.run())) == repr(records[2:])


def test_evaluations_have_the_parameters_of_the_end():
    """The starts and the policy are the same, so the returns are those of the last parameters."""
    still = dataclasses.replace(SMALL["apg"], learning_rate=0.0, last_learning_rate=0.0)
    evaluation = learning.Evaluations(1, episodes=3)
    training = learning.Training(still, ENV, schedule=slippery)
    found = [x.metrics["evaluation_return"] for x in training.run(evaluation=evaluation)]
    at_end = learning.Training(still, ENV, params=scheduled(slippery, PARAMS, 1.0))
    at_end.state = training.state
    results = learning.evaluate(
        ENV, at_end.params, training.policy(), jax.random.fold_in(jax.random.key(0), 2**31), 3
    )
    assert found[-1] == pytest.approx(float(jnp.mean(results.returns)), rel=1e-12)
    usual = learning.Training(still, ENV)
    other = [x.metrics["evaluation_return"] for x in usual.run(evaluation=evaluation)]
    assert found[0] != other[0]


def test_parameters_that_are_set_between_updates_act_without_compilation():
    training = learning.Training(SMALL["apg"], ENV)
    records = training.run()
    next(records)
    training.params = training.params._replace(friction=jnp.array(0.9))  # of a weak type
    with work() as events:
        found = next(records)
    assert not events
    assert found.metrics["reward"] != usual_rewards("apg")[1]


def test_a_schedule_of_a_robot_with_legs_keeps_the_structure():
    """Commands, pushes and the height of the ground, as in the documents."""
    params = envs.QuadrupedJoystick(rough=True).default_params()
    params = params._replace(pushes=jnp.array([0.5, 4.0]))

    def harder(params, progress):
        ground = params.scene.ground
        ground = dataclasses.replace(ground, heights=progress * ground.heights)
        scene = dataclasses.replace(params.scene, ground=ground)
        return params._replace(command=progress * params.command, scene=scene)

    found = scheduled(harder, params, 0.5)
    np.testing.assert_array_equal(found.command, 0.5 * params.command)
    np.testing.assert_array_equal(found.scene.ground.heights, 0.5 * params.scene.ground.heights)
    assert jax.tree.structure(found) == jax.tree.structure(params)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"friction": jnp.zeros(2)}, r"entry \.friction of .* has shape \(2,\), expected \(\)"),
        ({"friction": "much"}, r"entry \.friction of .* is 'str', expected an array"),
        ({"friction": None}, r"PointParams' without the entry \.friction, expected"),
        ({"weights": {}}, r"without the entry \.weights\['effort'\]"),
    ],
)
def test_schedules_that_do_not_fit_are_refused(change, message):
    with pytest.raises(ArgumentError, match=message):
        scheduled(lambda params, _: params._replace(**change), PARAMS, 0.0)


def test_a_schedule_is_a_function_and_keeps_other_dtypes():
    with pytest.raises(ArgumentError, match="schedule is 'int', expected a function"):
        learning.Training(SMALL["apg"], ENV, schedule=3)
    with pytest.raises(ArgumentError, match=r"entry \['n'\] .* has dtype float64, expected int"):
        scheduled(lambda params, _: {"n": jnp.ones(3)}, {"n": jnp.arange(3)}, 0.0)
    single = scheduled(lambda params, _: {"x": 2.0}, {"x": jnp.zeros((), jnp.float32)}, 0.0)["x"]
    assert (single.dtype, single.weak_type) == (jnp.float32, False)
