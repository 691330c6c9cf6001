"""The impulses of position limits, dissipation and servos in `contact_step`."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd.actuators import PD
from jaxrbd.contact import Scene, Servo, contact_step
from jaxrbd.contact.inverse_inertia import joint_jacobian
from jaxrbd.contact.joint_terms import ClippedLaw, joint_law
from jaxrbd.model import Follow, JointSpec, Link, link_inertia
from support import finite_differences, zoo
from support.turning import in_first_axes
from support.zoo import close
from test_contact import derivative_check, direction_of

DT, RECOVERY, REGULARISATION = 4e-3, 0.02, 1e-3
step = jax.jit(contact_step)
NOTHING = Scene(())


def with_parameters(model, seed=0):
    """Damping, friction, and limits around the middle of the robot's range."""
    rng = np.random.default_rng(seed)
    n = len(model.armature)
    return dataclasses.replace(
        model,
        damping=jnp.asarray(rng.uniform(0, 3, n)),
        friction=jnp.asarray(rng.uniform(0, 4, n) * (rng.uniform(size=n) > 0.3)),
    ).with_dissipation()


def servo_of(model, seed=0):
    rng = np.random.default_rng(seed)
    position = rbd.random_configuration(model, jax.random.key(seed))
    gains = rng.uniform(0, 300, model.nv), rng.uniform(0, 10, model.nv)
    effort = np.where(rng.uniform(size=model.nv) < 0.5, 20.0, np.inf)
    return Servo(PD(*gains, effort), position, jnp.asarray(rng.normal(size=model.nv)))


def joint_matrix(model, q):
    """The matrix of the map from v to the velocities of all joints."""
    return jax.vmap(lambda v: rbd.model.joint_space.joint_rates(model, q, v), out_axes=1)(
        jnp.eye(model.nv)
    )


@jax.jit
def laws(model, q, v, tau, servo, f_ext):
    """A step, and the quantities in its laws."""
    result = contact_step(model, NOTHING, q, v, tau, DT, f_ext, REGULARISATION, RECOVERY, servo)
    free = model.with_dissipation(False)
    start, after = in_first_axes(model, v, result.v, DT)
    momentum = rbd.crba(free, q) @ (after - start)
    momentum = momentum + DT * (rbd.bias_force(free, q, v, f_ext) - tau)
    J = joint_matrix(model, q)
    q_0 = rbd.neutral(model)
    J_0 = joint_matrix(model, q_0)
    inverse = jnp.diag(J_0 @ jnp.linalg.inv(rbd.crba(free, q_0)) @ J_0.T)
    return result, after, momentum, J, inverse, rbd.difference(model, q, servo.position)


@pytest.mark.slow
@pytest.mark.parametrize("robot", ["small", "following"])
def test_the_laws_of_joint_impulses(robot):
    """Momentum; and each impulse is its formula at the velocity after the step."""
    model = with_parameters(getattr(zoo, robot)())
    coordinates, velocities = rbd.model.joint_space.coordinates_with_rates(model)
    independent = np.arange(model.nv)
    if model.coupling is not None:
        independent = np.array(model.coupling.v_independent)
    touched = 0
    for seed in range(3):
        q, v, tau, f_ext = zoo.state(model, seed)
        servo = servo_of(model, seed)
        result, after, momentum, J, inverse, error = laws(model, q, v, tau, servo, f_ext)
        found = result.joint_impulse
        assert result.residual < 1e-12
        close(J.T @ found.total, momentum, 1e-10, "momentum")
        u = J @ after

        R = REGULARISATION * inverse
        friction = jnp.clip(-u / R, -DT * model.friction, DT * model.friction)
        close(found.dissipation, friction - DT * model.damping * u, 1e-9, "dissipation")
        assert jnp.sum(found.dissipation * u) <= 0

        force = servo.control.stiffness * (error - DT * after)
        force = force + servo.control.damping * (servo.velocity - after)
        force = DT * jnp.clip(force, -servo.control.effort, servo.control.effort)
        close(found.servo[independent], force, 1e-10, "servo")

        limit = np.zeros(len(u))
        for i, j in zip(coordinates, velocities):
            for sign, bound in ((1, model.lower_position_limit), (-1, model.upper_position_limit)):
                gap = sign * (q[i] - bound[i])
                target = -gap / (DT + RECOVERY if gap < 0 else DT)
                k = independent[j]
                limit[k] += sign * max(0.0, (target - sign * after[j]) / R[k])
        close(found.limit, limit, 1e-9, "limit")
        touched += np.count_nonzero(limit)
    assert touched > 0


def sliders(parameters):
    """Bodies of 2 kg on sliders along x, each on the world, with the parameters of each joint."""
    links = [Link(f"l{i}", link_inertia(2.0, (0, 0, 0), np.eye(3))) for i in range(len(parameters))]
    specs = [
        JointSpec(f"j{i}", rbd.joints.Prismatic((1, 0, 0)), None, f"l{i}", **options)
        for i, options in enumerate(parameters)
    ]
    return rbd.build_model(links, specs)


@jax.jit
def impulses(model, q, u, servo, dt):
    """The impulses on sliders at the velocity u after the step; R is 0.01 m/s per N s."""
    inverse_inertia, ratio = jnp.full(model.nv, 10.0), jnp.asarray(1e-3)
    recovery = jnp.asarray(RECOVERY)
    return joint_law(
        model, q, jnp.zeros_like(u), dt, ratio, recovery, inverse_inertia, None, servo
    ).impulses(u)


def test_a_traced_effort_out_of_its_range_gives_no_impulse_without_limit():
    model = sliders([{}, {}])
    servo = Servo(PD(np.ones(2), np.ones(2), np.full(2, 5.0)), jnp.zeros(2))
    wrong = eqx.tree_at(lambda x: x.control.effort, servo, jnp.array([-1.0, 5.0]))
    found = impulses(model, jnp.zeros(2), jnp.array([1e3, 1e3]), wrong, 0.01).servo
    assert jnp.isnan(found[0])
    close(found[1], -0.01 * 5.0, 1e-14)


def no_servo(model):
    return Servo(PD(*np.zeros((2, model.nv))), jnp.zeros(model.nv))


def test_the_impulses_of_limits():
    """A limit only pushes, to the limit or back from beyond; a joint without limits is free."""
    limited = {"lower": -0.5, "upper": 0.4}
    model = sliders([limited, limited, limited, limited, {}])
    # Close to the upper limit, far from both, beyond the lower limit, beyond the upper one, free.
    q = jnp.array([0.39, 0.0, -0.6, 0.5, 0.0])
    u = jnp.array([3.0, 3.0, -0.2, 0.1, 7.0])
    found = impulses(model, q, u, no_servo(model), jnp.asarray(DT)).limit
    back = 0.1 / (DT + RECOVERY)  # the velocity to which a limit pushes a joint beyond it
    close(found, 100 * jnp.array([0.01 / DT - 3.0, 0, back + 0.2, -back - 0.1, 0]), 1e-12)
    # A joint that returns faster is not held back.
    found = impulses(model, q, jnp.array([0, 0, 9.0, -9.0, 0]), no_servo(model), jnp.asarray(DT))
    close(found.limit, jnp.zeros(5), 0.0)


def test_the_impulses_of_a_servo():
    """`dt (k_p (e - dt u) + k_d (u_d - u))`, within the effort in both directions."""
    model = sliders([{}] * 4)
    stiffness, damping = np.array([50.0, 80.0, 80.0, 0.0]), np.array([3.0, 4.0, 4.0, 0.0])
    control = PD(stiffness, damping, np.array([np.inf, 20.0, 20.0, 20.0]))
    q, u = jnp.array([0.1, 0.0, 0.0, 0.0]), jnp.array([0.3, 0.1, -0.1, 2.0])
    position, velocity = jnp.array([0.2, -1.0, 1.0, 1.0]), jnp.array([0.5, 0.0, 0.0, 0.0])
    force = stiffness * (position - q - DT * u) + damping * (velocity - u)
    expected = DT * jnp.clip(
        force, jnp.array([-jnp.inf, -20, -20, 0]), jnp.array([jnp.inf, 20, 20, 0])
    )
    for servo in (
        Servo(control, position, velocity),
        Servo(control, None, velocity, error=position - q),
    ):
        close(impulses(model, q, u, servo, jnp.asarray(DT)).servo, expected, 1e-13)


def test_the_force_of_a_servo_is_within_its_effort():
    """The effort limits the sum. A force on a joint without gains would be lost, and is NaN."""
    model, zero = sliders([{}] * 3), jnp.zeros(3)
    control = PD(np.array([50.0, 50.0, 0.0]), np.array([3.0, 3.0, 0.0]), np.full(3, 20.0))
    servo = Servo(control, jnp.array([0.2, 0.3, 0.0]), force=jnp.array([4.0, 7.0, 0.0]))
    found = impulses(model, zero, zero, servo, jnp.asarray(DT)).servo
    close(found, DT * jnp.array([10.0 + 4.0, 20.0, 0.0]), 1e-13)
    lost = impulses(model, zero, zero, servo._replace(force=jnp.ones(3)), jnp.asarray(DT)).servo
    np.testing.assert_array_equal(np.isnan(lost), [False, False, True])


def test_the_derivative_of_a_servo_without_a_bound_is_finite():
    """In the duration of the step and in the gains: the effort is infinite."""
    model = sliders([{}])
    q, u, position = jnp.array([0.1]), jnp.array([0.3]), jnp.array([0.4])

    @jax.jit
    @functools.partial(jax.value_and_grad, argnums=(0, 1))
    def impulse(control, dt):
        return impulses(model, q, u, Servo(control, position), dt).servo[0]

    control = jax.tree.map(jnp.asarray, PD([50.0], [3.0]))
    value, (gains, rate) = impulse(control, jnp.asarray(DT))
    force = 50.0 * (0.3 - DT * 0.3) - 3.0 * 0.3
    close(value, DT * force, 1e-13)
    close(rate, force - DT * 50.0 * 0.3, 1e-12, "in dt")
    close(gains.stiffness[0], DT * (0.3 - DT * 0.3), 1e-13, "in the stiffness")
    close(gains.damping[0], -DT * 0.3, 1e-13, "in the damping")


def test_the_jacobian_of_joints_that_follow():
    """The velocities of all joints are the rates of their coordinates."""
    hinge = rbd.joints.Revolute((0, 0, 1))
    links = [Link(f"l{i}", link_inertia(2.0, (0, 0, 0), np.eye(3))) for i in range(3)]
    specs = [JointSpec(f"j{i}", hinge, None, f"l{i}") for i in range(2)]
    follow = Follow(("j0", "j1"), zoo.Polynomial())
    specs.append(JointSpec("j2", hinge, None, "l2", mimic=follow))
    model = rbd.build_model(links, specs)
    q, v = jnp.array([0.7, -0.4]), jnp.array([0.3, 1.1])

    @jax.jit
    def both(t):
        coordinates = rbd.model.joint_space.joint_coordinates(model, q + t * v)
        return coordinates, joint_jacobian(model, q) @ v

    close(both(jnp.zeros(()))[1], finite_differences.slope(lambda t: both(t)[0]), 1e-9)


def test_the_hessian_of_the_law(rng):
    shape = (3, 4)
    law = ClippedLaw(
        *(jnp.asarray(rng.uniform(0.5, 2, shape)), jnp.asarray(rng.normal(size=shape))),
        *(jnp.asarray(x * rng.uniform(0.1, 2, shape)) for x in (-1, 1)),
    )

    @jax.jit
    def derivatives(u):
        return (
            (law.impulses(u), -jax.grad(law.penalty)(u)),
            (law.hessian_product(u, jnp.eye(4)), jax.hessian(law.penalty)(u)),
        )

    for _ in range(5):
        for found, expected in derivatives(jnp.asarray(2 * rng.normal(size=4))):
            close(found, expected, 1e-13)


def one_joint(joint, inertia=0.5, mass=2.0, lever=0.3, gravity=9.81, **parameters):
    """A body on one joint. The x axis of the joint is horizontal."""
    body = rbd.model.link_inertia(mass, (0, 0, -lever), inertia * np.eye(3))
    spec = rbd.model.JointSpec("joint", joint, None, "body", **parameters)
    return rbd.build_model([rbd.model.Link("body", body)], [spec], gravity=(0, 0, -gravity))


def simulate(model, q, v, steps, dt, servo=None, tau=None):
    """The states after each step, q (steps, nq) and v (steps, nv), and the joint impulses."""
    tau = jnp.zeros(model.nv) if tau is None else tau

    def body(state, _):
        result = contact_step(model, NOTHING, *state, tau, dt, servo=servo)
        return (result.q, result.v), (result.q, result.v, result.joint_impulse)

    return jax.lax.scan(body, (q, v), length=steps)[1]


run = jax.jit(simulate, static_argnums=(3,))


def test_a_pendulum_rests_on_its_limit():
    """At rest, the joint is beyond its limit by `(dt + recovery) R gamma`."""
    limit = -0.4
    model = one_joint(rbd.joints.Revolute((1, 0, 0)), lower=limit, upper=2.0)
    mass_matrix = float(rbd.crba(model, jnp.zeros(1))[0, 0])
    torque, R = 3.0, REGULARISATION / mass_matrix
    q, v, impulse = run(model, jnp.zeros(1), jnp.zeros(1), 2000, DT, None, jnp.array([-torque]))
    assert abs(float(v[-1, 0])) < 1e-9
    at_rest = float(rbd.gravity_force(model, q[-1])[0])
    gamma = DT * (torque + at_rest)
    close(impulse.limit[-1], jnp.array([gamma]), 1e-9)
    close(q[-1], jnp.array([limit - (DT + RECOVERY) * R * gamma]), 1e-9)
    # The joint does not bounce. Its depth decays, except for the compliance.
    landed = int(jnp.argmax(impulse.limit[:, 0] > 0)) + 1
    before, after = (limit - q[i:j, 0] for i, j in ((landed, -1), (landed + 1, None)))
    gammas = impulse.limit[landed + 1 :, 0]
    assert jnp.all(gammas > 0)
    close(after, before * RECOVERY / (DT + RECOVERY) + DT * R * gammas, 1e-12)
    # Without the torque the pendulum leaves the limit: the limit does not pull.
    q, _, impulse = run(model, q[-1], v[-1], 2000, DT, None, jnp.array([torque]))
    assert jnp.max(q) > 0
    assert jnp.all(impulse.limit >= 0)


def test_dry_friction_sticks_and_slips():
    mass, friction = 2.0, 5.0
    slider = rbd.joints.Prismatic((1, 0, 0))
    model = one_joint(slider, mass=mass, friction=friction).with_dissipation()
    zero = jnp.zeros(1)
    # Below the friction force, the joint creeps at the speed R gamma.
    _, v, impulse = run(model, zero, zero, 200, DT, None, jnp.array([0.9 * friction]))
    gamma = DT * 0.9 * friction
    close(v[-1], jnp.array([REGULARISATION / mass * gamma]), 1e-9)
    close(impulse.dissipation[-1], jnp.array([-gamma]), 1e-9)
    # Above the friction force, the joint accelerates under the difference of the forces.
    _, v, _ = run(model, zero, zero, 200, DT, None, jnp.array([1.5 * friction]))
    close(v[-1], jnp.array([200 * DT * 0.5 * friction / mass]), 1e-9)
    # Without a force, friction stops the joint after the time `m v / f`, and does not reverse it.
    _, v, _ = run(model, zero, jnp.array([1.0]), 200, DT, None, zero)
    stop = int(mass / friction / DT)
    assert v[stop - 3, 0] > 0.01
    assert jnp.all(jnp.abs(v[stop + 2 :]) < 1e-12)


@pytest.mark.slow
def test_a_servo_holds_an_arm_at_any_gain():
    """At a time step of 4 ms. Explicit control is unstable from a gain of about 1e4 on."""
    arm = rbd.load_robot("arm7")
    target = jnp.asarray(0.3 * np.cos(np.arange(arm.nq)))
    still = jnp.zeros(arm.nv)
    for gain in (10.0, 1e3, 1e5):
        control = PD(np.full(arm.nv, gain), np.full(arm.nv, 2 * np.sqrt(gain)))
        servo = Servo(control, target)
        q, v, impulse = run(arm, target, still, 1500, DT, servo)
        assert jnp.max(jnp.abs(v[-1])) < (1e-3 if gain < 100 else 1e-6)
        # At rest, the servo carries the weight.
        if gain > 100:
            close(impulse.servo[-1] / DT, rbd.gravity_force(arm, q[-1]), 1e-5)
            close(gain * (target - q[-1]), rbd.gravity_force(arm, q[-1]), 1e-5)


@pytest.mark.slow
def test_a_servo_with_an_error_in_place_of_a_position():
    """The same step, with the error of the position."""
    model = zoo.small()
    q, v, tau = zoo.state(model)[:3]
    servo = servo_of(model)
    error = rbd.difference(model, q, servo.position)
    assert jnp.min(jnp.abs(error)) > 0
    known = servo._replace(position=None, error=error)
    first, second = (step(model, NOTHING, q, v, tau, DT, servo=x) for x in (servo, known))
    close(second.v, first.v, 1e-13)
    close(second.joint_impulse.servo, first.joint_impulse.servo, 1e-12)


@pytest.mark.slow
def test_the_error_of_a_servo_is_of_first_order():
    """Against steps of 1/80 of the size: half the step, half the error."""
    model = one_joint(rbd.joints.Revolute((1, 0, 0)))
    servo = Servo(PD([400.0], [5.0]), jnp.ones(1))
    start, still = jnp.array([0.2]), jnp.array([0.5])
    fine = run(model, start, still, 8000, DT / 80, servo)[0][-1]
    errors = [
        float(run(model, start, still, 100 * n, DT / n, servo)[0][-1, 0] - fine[0]) for n in (1, 2)
    ]
    assert abs(errors[0]) < 0.1
    assert 1.7 < errors[0] / errors[1] < 2.4


@pytest.mark.slow
def test_derivatives_in_everything():
    """In q, v, tau, dt, the servo and all parameters of the model, gains and limits included."""
    model = with_parameters(zoo.small())

    def number(model, servo, q, v, tau, dt, regularisation, recovery):
        result = contact_step(model, NOTHING, q, v, tau, dt, None, regularisation, recovery, servo)
        parts = jnp.concatenate([result.q, result.v, *result.joint_impulse])
        weights = jnp.cos(jnp.arange(len(parts)).astype(parts.dtype))
        return jnp.sum(weights * parts), result.joint_impulse

    kinds, check = set(), derivative_check(number)
    for seed in range(3):
        q, v, tau, _ = zoo.state(model, seed)
        operands = (model, servo_of(model, seed), q, v, tau, DT, 0.1, RECOVERY)
        operands = jax.tree.map(jnp.asarray, operands)
        direction = direction_of(operands, seed, 1e-2)
        limits = {
            name: jnp.where(jnp.isfinite(getattr(model, name)), 0.01, 0.0)
            for name in ("lower_position_limit", "upper_position_limit")
        }
        # Friction has a kink at zero.
        limits["friction"] = jnp.where(model.friction > 0, direction[0].friction, 0)
        effort = jnp.where(jnp.isfinite(operands[1].control.effort), 0.3, 0.0)
        direction = (
            dataclasses.replace(direction[0], **limits),
            eqx.tree_at(lambda servo: servo.control.effort, direction[1], effort),
            *direction[2:5],
            *(0.1 * x for x in operands[5:]),
        )
        impulse = check(operands, direction, 1e-4)
        kinds |= {name for name, x in impulse._asdict().items() if jnp.any(x != 0)}
    assert kinds == {"limit", "dissipation", "servo"}


@pytest.mark.slow
def test_batches_and_single_precision():
    model = with_parameters(zoo.small())
    states = [zoo.state(model, seed)[:3] for seed in range(3)]
    servos = [servo_of(model, seed) for seed in range(3)]
    stacked, servo = jax.tree.map(lambda *x: jnp.stack(x), *zip(states, servos))
    batch = jax.jit(
        jax.vmap(
            lambda q, v, tau, servo: contact_step(
                model.astype(q.dtype), NOTHING, q, v, tau, DT, servo=servo
            )
        )
    )
    double = batch(*stacked, servo)
    for i in range(3):
        single = step(model, NOTHING, *states[i], DT, servo=servos[i])
        close(double.v[i], single.v, 1e-11)
    low = batch(*jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (*stacked, servo)))
    assert low.v.dtype == jnp.float32
    close(low.v.astype(float), double.v, 1e-4)
    assert jnp.all(low.residual < 1e-3)


ONE = one_joint(rbd.joints.Revolute((1, 0, 0)))
ZERO = jnp.zeros(1)
WRONG = {
    "servo.position has shape (2,)": lambda: use(Servo(PD([1.0], [1.0]), jnp.zeros(2))),
    "servo.velocity has shape (2,)": lambda: use(Servo(PD([1.0], [1.0]), ZERO, jnp.zeros(2))),
    "servo.force has shape (2,)": lambda: use(Servo(PD([1.0], [1.0]), ZERO, force=jnp.zeros(2))),
    "servo.error has shape (2,)": lambda: use(Servo(PD([1.0], [1.0]), None, error=jnp.zeros(2))),
    "servo has no position and no error": lambda: use(Servo(PD([1.0], [1.0]), None)),
    "servo has a position and an error": lambda: use(Servo(PD([1.0], [1.0]), ZERO, error=ZERO)),
    "servo.control.stiffness has shape (2,)": lambda: use(Servo(PD([1.0, 2.0], [1.0, 2.0]), ZERO)),
}


def use(servo):
    return contact_step(ONE, NOTHING, ZERO, ZERO, ZERO, DT, servo=servo)


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_is_named(message):
    with pytest.raises(rbd.ArgumentError) as error:
        WRONG[message]()
    assert message in str(error.value)
