"""Servos of any joint forces: PD control, quiet stiff motors, derivatives, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import contact
from jaxrbd.actuators import PD, DCMotor
from jaxrbd.joints import Revolute, Spherical
from jaxrbd.model import JointSpec, Link, link_inertia
from support.finite_differences import slope
from support.zoo import close

BODY = link_inertia(1.0, (0.0, 0.0, -0.2), 0.01 * np.eye(3))
MODEL = rbd.build_model(
    [Link("a", BODY), Link("b", BODY)],
    [
        JointSpec("hinge", Revolute((0, 1, 0)), None, "a"),
        JointSpec("ball", Spherical(), "a", "b"),
    ],
)
DT = 0.004
STIFFNESS = np.array([4000.0, 3000.0, 3000.0, 2000.0])
Q, V = jnp.array([0.4, 0.1, -0.2, 0.05, 0.97]), jnp.array([1.0, -2.0, 0.5, 3.0])
Q = Q.at[1:].divide(jnp.linalg.norm(Q[1:]))
TARGET = rbd.neutral(MODEL)


def step(q, v, tau, servo):
    return contact.contact_step(MODEL, contact.Scene(()), q, v, tau, DT, servo=servo)


@jax.jit
def after_forces(stiffness, q, v):
    """The state after a step with PD control as a function of q and v."""
    pd = PD(stiffness, 0.002 * stiffness)
    servo, tau = contact.servo_of_forces(lambda q, v: pd(MODEL, q, v, TARGET), MODEL, q, v)
    found = step(q, v, tau, servo)
    return jnp.concatenate([found.v, rbd.configuration.difference(MODEL, TARGET, found.q)])


def test_pd_control_is_a_servo():
    """Without the ball, whose rotation vector is no linear function of the displacement."""
    stiffness = jnp.asarray(STIFFNESS * [1, 0, 0, 0])
    servo = contact.Servo(PD(stiffness, 0.002 * stiffness), TARGET)
    found = jax.jit(step)(Q, V, jnp.zeros(4), servo)
    close(after_forces(stiffness, Q, V)[:4], found.v, 1e-12)


@pytest.mark.slow
def test_the_derivatives_of_a_step():
    """By the gains and the state."""

    def along(t, dv, dk):
        q = rbd.integrate(MODEL, Q, t * dv)
        return after_forces(jnp.asarray(STIFFNESS) + t * dk, q, V - t * dv)

    dv, dk = jnp.array([0.3, -0.1, 0.2, 0.4]), jnp.array([500.0, -300, 700, 100])
    forward = jax.jit(jax.jacfwd(along))(0.0, dv, dk)
    close(forward, slope(lambda t: along(t, dv, dk), 1e-3), 1e-6)
    assert np.all(np.abs(forward) > 1e-4)


def test_stiff_motors_are_quiet():
    """Motors with controllers stay at rest; the forces at the state before the step do not."""
    pd = PD(STIFFNESS, 0.02 * STIFFNESS)
    motors = DCMotor(np.full(4, 40.0), np.full(4, 20.0))

    def force(q, v):
        return motors(MODEL, v, pd(MODEL, q, v, TARGET))

    @jax.jit
    def settle(quiet):
        def body(_, state):
            servo, tau = contact.servo_of_forces(force, MODEL, *state)
            idle = jax.tree.map(jnp.zeros_like, servo)
            servo = jax.tree.map(lambda x, y: jnp.where(quiet, x, y), servo, idle)
            found = step(*state, tau, servo)
            return found.q, found.v

        return jax.lax.fori_loop(0, 250, body, (TARGET, 0.05 * V))[1]

    assert np.max(np.abs(settle(True))) < 1e-3
    assert np.max(np.abs(settle(False))) > 1


@pytest.mark.parametrize("size", [3, 5])
def test_a_wrong_force(size):
    with pytest.raises(rbd.errors.ArgumentError, match="the result of force has shape"):
        contact.servo_of_forces(lambda q, v: jnp.zeros(size), MODEL, Q, V)
