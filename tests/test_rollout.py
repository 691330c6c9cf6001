"""The integrator of `jaxrbd rollout`: its order and its energy balance."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd
from jaxrbd.cli import rollout
from jaxrbd.robots import robot_path


@pytest.fixture(scope="module")
def tumbling():
    """A pendulum on a free-flyer, whose rotations do not commute."""
    return jaxrbd.load_urdf(robot_path("pendulum"), root_joint="free_flyer")


def test_order_is_four(tumbling):
    step = jax.jit(rollout.step)
    tau = jnp.linspace(0.3, -0.2, tumbling.nv)

    def thrown(steps):
        v = jnp.linspace(-1.5, 2.0, tumbling.nv)
        start = state = jaxrbd.neutral(tumbling), v, jnp.zeros(())
        for _ in range(steps):
            state = step(tumbling, *state, tau, jnp.asarray(0.25 / steps))
        return rollout.Trajectory(*(jnp.stack(pair) for pair in zip(start, state)))

    exact = thrown(512)

    def errors(run):
        dq = jaxrbd.difference(tumbling, exact.q[-1], run.q[-1])
        energy = rollout.energy_error(tumbling, run)[-1]
        return np.array([np.linalg.norm(dq), np.linalg.norm(run.v[-1] - exact.v[-1]), energy])

    coarse, fine = errors(thrown(32)), errors(thrown(64))
    assert np.all(fine > 1e-10)  # otherwise rounding hides the order
    assert np.all(np.log2(coarse / fine) > 3.7)


@pytest.fixture(scope="module")
def coasting():
    """A double pendulum and its free motion, in which only damping takes energy."""
    model = jaxrbd.load_robot("double_pendulum")
    q, v, tau = jaxrbd.neutral(model), jnp.array([2.0, -1.0]), jnp.zeros((32, 2))
    return model, rollout.simulate(model, q, v, tau, jnp.asarray(0.01))


def test_damping_takes_energy(coasting):
    model, run = coasting
    assert np.all(np.diff(run.work) < 0)
    assert np.max(rollout.energy_error(model, run)) < 1e-8


def test_energy_error_sees_a_wrong_state(coasting):
    model, run = coasting
    wrong = run._replace(v=run.v.at[-1].multiply(1.01))
    assert rollout.energy_error(model, wrong)[-1] > 1e-3


def test_a_robot_at_rest_has_no_energy_error(coasting):
    model, run = coasting
    rest = rollout.Trajectory(jnp.zeros_like(run.q), jnp.zeros_like(run.v), jnp.zeros(33))
    np.testing.assert_allclose(rollout.energy_error(model, rest), 0, atol=0)
