"""Affine actuators: laws, derivatives and wrong arguments."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import contact, sensors
from jaxrbd.actuators import AffineActuators
from jaxrbd.joints import Custom
from jaxrbd.model import Mimic
from support import zoo
from support.joint_chain import chain

MODEL = chain()
COUPLED = chain(Mimic("b", 2.0, 0.1))
ACTUATORS = AffineActuators(
    ("a", "d", "a"),
    gain=[[1, 0, 0], [2, 0.5, 0.3], [1, 0, 0]],
    bias=[[0, 0, 0], [0.1, -3, -0.4], [0, 0, 0]],
    gear=[2, 1, -1],
    control_range=[[-1, 1], [-np.inf, np.inf], [-5, 5]],
    force_range=[[-0.9, 0.8], [-2, 3], [-9, 9]],
    joint_force_range=[[-4, 6], [-np.inf, np.inf]],
)


def state(model, seed=0):
    q = rbd.random_configuration(model, jax.random.key(seed))
    return q, jnp.asarray(np.random.default_rng(seed).normal(size=model.nv))


def expected(q, v, control):
    """The formula of the class, with numbers of the joints a and d of `MODEL`."""
    u = np.clip(control, [-1, -np.inf, -5], [1, np.inf, 5])
    f = (2 + 0.5 * q[-1] + 0.3 * v[-1]) * u[1] + 0.1 - 3 * q[-1] - 0.4 * v[-1]
    tau = np.zeros(6)
    tau[0] = np.clip(2 * np.clip(u[0], -0.9, 0.8) - np.clip(u[2], -9, 9), -4, 6)
    tau[-1] = np.clip(f, -2, 3)
    return tau


@pytest.mark.parametrize("control", [(0.5, 0.2, 0.1), (3, -2, -7), (-1, 4, 3), (0, 0.4, -9)])
def test_the_formula_with_all_ranges(control):
    q, v = state(MODEL)
    control = np.array(control, float)
    found = ACTUATORS(MODEL, q, v, control)
    np.testing.assert_allclose(found, expected(np.array(q), np.array(v), control), atol=1e-14)


def test_a_motor_is_the_default():
    q, v = state(MODEL)
    motors = AffineActuators(("d", "b"))
    assert motors.names == motors.driven_joints == ("d", "b")
    np.testing.assert_array_equal(motors(MODEL, q, v, jnp.array([2.0, 3])), [0, 3, 0, 0, 0, 2])
    constant = AffineActuators(("d", "b"), control_range=[[-1, -1], [4, 4]])
    np.testing.assert_array_equal(constant(MODEL, q, v, jnp.array([2.0, 3])), [0, 4, 0, 0, 0, -1])


def test_derivatives_follow_the_parameters_and_stop_at_the_ranges():
    q, v = state(MODEL)

    def force(actuators, control):
        return actuators(MODEL, q, v, control)[0]

    inside, beyond = jnp.array([0.5, 0.0, 0.1]), jnp.array([3.0, 0.0, 0.1])
    gradient = eqx.filter_grad(force)(ACTUATORS, inside)
    np.testing.assert_allclose(gradient.gear, [0.5, 0, 0.1], atol=1e-15)
    np.testing.assert_allclose(gradient.bias[:, 0], [2, 0, -1], atol=1e-15)
    slopes = [jax.grad(lambda u: force(ACTUATORS, u))(u) for u in (inside, beyond)]
    np.testing.assert_allclose(slopes, [[2, 0, -1], [0, 0, -1]], atol=1e-15)


def test_forces_of_followers_act_on_their_leaders():
    q, v = state(COUPLED)
    control = jnp.array([0.5, 0.2, 0.1])
    tau = ACTUATORS(COUPLED, q, v, control)
    q_all = np.array([*q, 2 * q[1] + 0.1])
    by_joint = expected(q_all, np.array([*v, 2 * v[1]]), np.array(control))
    by_joint[1] += 2 * by_joint[-1]
    np.testing.assert_allclose(tau, by_joint[:-1], atol=1e-14)


def test_powers_of_joints_behind_a_joint_of_ones_own():
    """The powers of motors, by the speeds that encoders measure.

    The joint "a" has two velocities, but six rows in the motion subspaces.
    """
    model = chain(Mimic("b", 2.0, 0.1), Custom(2, zoo.crank))
    q, v = state(model)
    names, control = ("d", "b"), np.array([1.0, 3.0])
    motors = AffineActuators(names)

    @jax.jit
    def powers(q, v):
        speeds = sensors.joint_encoders(model, q, v, names).velocity
        return jnp.sum(motors(model, q, v, control) * v), jnp.sum(control * speeds)

    found, expected = powers(q, v)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_single_precision():
    model = MODEL.astype("float32")
    q, v = (x.astype("float32") for x in state(MODEL))
    control = jnp.array([0.5, 0.2, 0.1], "float32")
    assert ACTUATORS(model, q, v, control).dtype == "float32"
    traced = jax.eval_shape(lambda q: contact.servo_of_actuators(SERVOS, model, q, q[:5]), q)
    assert {x.dtype.name for x in jax.tree.leaves(traced)} == {"float32"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"joints": "a"}, "joints is 'a', expected a sequence"),
        ({"gain": [1.0]}, r"gain has shape \(1,\) .* expected \(1, 3\)"),
        ({"gear": [[1.0]]}, r"gear has shape \(1, 1\)"),
        ({"gear": jnp.ones(1, int)}, "gear .* expected .* of floats"),
        ({"bias": [[np.nan, 0, 0]]}, "bias is .* expected no NaN"),
        ({"control_range": [[1, -1]]}, "control_range has a lower bound above the upper"),
        ({"joint_force_range": [[0, 1], [0, 1]]}, r"joint_force_range has shape \(2, 2\)"),
        ({"names": ("x", "y")}, "names has 2 entries, expected 1"),
    ],
)
def test_wrong_parameters_of_actuators(change, message):
    with pytest.raises(rbd.ArgumentError, match=message):
        AffineActuators(**{"joints": ("a",)} | change)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda q, v: AffineActuators(("x",))(MODEL, q, v, jnp.ones(1)), "no joint 'x'"),
        (lambda q, v: AffineActuators(("c",))(MODEL, q, v, jnp.ones(1)), "'c' has 3 degrees"),
        (lambda q, v: AffineActuators(("a",))(MODEL, q, v, jnp.ones(2)), "control has shape"),
        (lambda q, v: AffineActuators(("a",))(MODEL, q[1:], v, jnp.ones(1)), "q has shape"),
    ],
)
def test_wrong_calls(call, message):
    with pytest.raises(rbd.ArgumentError, match=message):
        call(*state(MODEL))


# ------------------------------------------------------- with the velocity after a time step

SERVOS = AffineActuators(
    ("a", "d", "b", "a", "b"),
    # A position servo, an affine actuator, a motor, a motor beside the servo, and a second motor.
    gain=[[3000.0, 0, 0], [2, -0.5, -0.3], [1, 0, 0], [50, 0, 0], [0.5, 0, 0]],
    bias=[[0, -3000.0, -200.0], [0.1, 0, -0.4], [0, 0, 0], [3, 0, 0], [0, 0, 0]],
    gear=[2, -3, 1.5, -1, 1],
    control_range=[[-1, 1], [-np.inf, np.inf], [-5, 5], [-1, 1], [-9, 9]],
    force_range=[[-np.inf, np.inf], [-40, 40]] + 3 * [[-np.inf, np.inf]],
    joint_force_range=[[-1500, 1500], [-np.inf, np.inf], [-8, 8]],
)


@jax.jit
def step_with_servo(actuators, q, v, control):
    servo, tau = contact.servo_of_actuators(actuators, MODEL, q, control)
    found = contact.contact_step(MODEL, contact.Scene(()), q, v, tau, 0.004, servo=servo)
    return found, found.joint_impulse.servo + 0.004 * tau


@pytest.mark.parametrize(
    "control", [(0.5, 1.0, 2.0, 0.3, 7.0), (-3.0, 0.0, -7.0, 0.1, 0.4), (0.1, 30.0, 5.0, -7.0, 2.0)]
)
def test_a_servo_gives_the_force_of_the_actuators_after_the_step(control):
    q, v = state(MODEL)
    found, impulse = step_with_servo(SERVOS, q, v, jnp.asarray(control))
    after = rbd.integrate(MODEL, q, 0.004 * found.v)
    expected = 0.004 * SERVOS(MODEL, after, found.v, jnp.asarray(control))
    assert jnp.all(expected[jnp.array([0, 1, 5])] != 0)
    np.testing.assert_allclose(impulse, expected, rtol=0, atol=1e-9)


def test_a_damper_without_stiffness_tracks_a_velocity():
    """A motor beside the damper changes the velocity; an actuator with gear 0 changes nothing."""
    damper = AffineActuators(
        ("a", "a", "a"),
        gain=[[4.0, 0, 0], [1, 0, 0], [1, 0, 0]],
        bias=[[0, 0, -4.0], [0, 0, 0], [0, -1, 0]],
        gear=[1, 1, 0],
    )
    control = np.array([0.25, 2, 3])
    servo, tau = contact.servo_of_actuators(damper, MODEL, state(MODEL)[0], control)
    assert jnp.all(tau == 0)
    assert servo.control.effort[0] == np.inf
    assert (servo.control.stiffness[0], servo.control.damping[0]) == (0, 4)
    assert servo.velocity[0] == 0.75


def test_derivatives_of_a_servo_by_the_gear():
    """With infinite limits of the force, as by default: the stiffness is gear^2 kp."""

    def values(gear):
        actuators = AffineActuators(("a",), [[7.0, 0, 0]], [[0, -7.0, 0]], gear[None])
        servo, _ = contact.servo_of_actuators(actuators, MODEL, jnp.zeros(7), jnp.ones(1))
        limit = jnp.minimum(servo.control.effort[0], 1e9)
        return jnp.stack([servo.control.stiffness[0], servo.position[0], limit])

    for derivative in jax.jit(lambda gear: (jax.jacrev(values)(gear), jax.jacfwd(values)(gear)))(
        jnp.asarray(-2.0)
    ):
        np.testing.assert_allclose(derivative, [2 * -2 * 7, -1 / 4, 0], rtol=1e-14)


@pytest.mark.slow
@pytest.mark.gives_nan
def test_a_stiff_servo_is_stable_where_the_force_is_not():
    model = rbd.load_robot("pendulum")
    stiff = AffineActuators(model.joint_names, gain=[[1e5, 0, 0]], bias=[[0, -1e5, -1e3]])
    target = jnp.array([0.2])

    def simulate(forces):
        def advance(state, _):
            servo, tau = forces(*state)
            found = contact.contact_step(model, contact.Scene(()), *state, tau, 0.004, servo=servo)
            return (found.q, found.v), None

        return jax.lax.scan(advance, (jnp.zeros(1), jnp.zeros(1)), length=200)[0][0]

    after = simulate(lambda q, v: contact.servo_of_actuators(stiff, model, q, target))
    before = simulate(lambda q, v: (None, stiff(model, q, v, target)))
    np.testing.assert_allclose(after, target, atol=1e-3)
    assert not np.all(np.abs(before) < 10)


REFUSED = {
    "actuator 'motor' has forces from -2.0 to 3.0, expected the same": {
        "force_range": [[-2, 3]],
        "names": ("motor",),
    },
    "joint 'a' has forces from -2.0 to 3.0, expected the same": {
        "joints": ("d", "d", "a", "b"),
        "joint_force_range": [[-1, 1], [-2, 3], [-1, 1]],
    },
    "the stiffness of joint 'a' is -1": {"bias": [[0, 1.0, 0]]},
    "the damping of joint 'a' is -1": {"bias": [[0, 0, 1.0]]},
    "joint 'c' has 3 degrees of freedom": {"joints": ("c",)},
    "joint 'a' has 2 actuators and a limit": {
        "joints": ("a", "a"),
        "force_range": [[-1, 1], [-1, 1]],
    },
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_a_servo_cannot_do_is_refused(message):
    actuators = AffineActuators(**{"joints": ("a",), **REFUSED[message]})
    control = np.zeros(len(actuators.joints))
    with pytest.raises(rbd.ArgumentError, match=message):
        contact.servo_of_actuators(actuators, MODEL, state(MODEL)[0], control)


def test_a_servo_of_a_joint_that_follows_others_is_refused():
    with pytest.raises(rbd.ArgumentError, match=r"joint 'd' of .* follows"):
        contact.servo_of_actuators(AffineActuators(("d",)), COUPLED, state(COUPLED)[0], np.zeros(1))


@pytest.mark.gives_nan
@pytest.mark.parametrize("wrong", [[[0, 1.0, 0]], [[0, 0, 1.0]]], ids=["stiffness", "damping"])
def test_a_traced_negative_gain_gives_nan(wrong):
    found, _ = step_with_servo(AffineActuators(("a",), bias=wrong), *state(MODEL), jnp.zeros(1))
    assert jnp.isnan(found.v[0])
