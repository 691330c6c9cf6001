"""Actuators: PD control, DC motors and delays: their laws, their derivatives and their errors."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd.actuators import PD, DCMotor, Delay
from jaxrbd.model import arguments
from support import pages, zoo
from support.finite_differences import slope
from support.zoo import close

NV = 10  # of zoo.small(): a free-flyer, a ball joint and a hinge


@pytest.fixture(scope="module")
def model():
    return zoo.small()


def arrays(*trees):
    """Trees with arrays of JAX as leaves."""
    return jax.tree.map(jnp.asarray, trees)


# -------------------------------------------------------------------------------------- PD control


@jax.jit
def control(model, pd, q, v, position, velocity):
    """The force with the target velocity and without it."""
    return pd(model, q, v, position, velocity), pd(model, q, v, position)


def gains(seed=0, effort=None):
    rng = np.random.default_rng(seed)
    return PD(rng.uniform(1, 5, NV), rng.uniform(0.1, 1, NV), effort)


def test_pd_control_is_a_spring_and_a_damper(model):
    """The spring has the potential K |difference|^2 / 2, and the damper dissipates energy."""
    q, v, *_ = zoo.state(model, 0)
    target, wanted, *_ = zoo.state(model, 1)
    # The potential needs the same stiffness in all directions of a rotation.
    spring = PD.for_joints(model, ("j1", "j2"), [3.0, 7.0], 0.0)
    np.testing.assert_array_equal(spring.stiffness, [0] * 6 + [3] * 3 + [7])

    @jax.jit
    def potential_slope(q):
        def energy(q):
            error = rbd.difference(model, q, target)
            return jnp.sum(spring.stiffness * error**2) / 2

        return rbd.gradient(model, energy)(q)

    infinite = PD(spring.stiffness, spring.damping, np.full(NV, np.inf))
    force, same = control(model, infinite, q, v, target, wanted)
    close(force, -potential_slope(q), 1e-12, "the spring has a potential")
    assert jnp.all(force == same)
    assert jnp.linalg.norm(force[6:9]) > 1

    damper = PD(np.zeros(NV), gains().damping, np.full(NV, np.inf))
    force, at_rest = control(model, damper, q, v, target, wanted)
    close(jnp.sum(force * (v - wanted)), -jnp.sum(damper.damping * (v - wanted) ** 2), 1e-14)
    close(jnp.sum(at_rest * v), -jnp.sum(damper.damping * v**2), 1e-14, "dissipated power")


def test_pd_control_is_right_on_the_manifold(model):
    """Near the target the error is the displacement; both signs of a quaternion are one target."""
    pd = gains(effort=np.full(NV, np.inf))
    target, still = zoo.state(model, 2)[0], jnp.zeros(NV)
    small = 1e-6 * jnp.asarray(np.random.default_rng(3).normal(size=NV))
    # K times a displacement in the axes of the child frames, for all joints at once.
    force, _ = control(model, pd, rbd.integrate(model, target, small), still, target, still)
    close(force / 1e-6, -pd.stiffness * small / 1e-6, 1e-9)
    negated = target.at[3:7].multiply(-1).at[7:11].multiply(-2)
    q = zoo.state(model, 4)[0]
    force, _ = control(model, pd, q, still, target, still)
    close(control(model, pd, q, still, negated, still)[0], force, 1e-13, "the same rotation")
    close(control(model, pd, target, still, target, still)[0], still, 1e-14, "at the target")


def test_the_force_of_pd_control_ends_at_the_effort(model):
    q, v, *_ = zoo.state(model, 0)
    target, wanted, *_ = zoo.state(model, 1)
    free, _ = control(model, gains(effort=np.full(NV, np.inf)), q, v, target, wanted)
    effort = np.abs(np.array(free)) * np.where(np.arange(NV) % 2, 0.5, 2.0)
    effort[0] = 0.0
    pd = gains(effort=effort)
    force, _ = control(model, pd, q, v, target, wanted)
    limited = (np.arange(NV) % 2 == 1) | (np.arange(NV) == 0)
    np.testing.assert_array_equal(force[~limited], free[~limited])
    np.testing.assert_allclose(force[limited], (np.sign(free) * effort)[limited], rtol=0)
    # The derivatives in the state: zero at the limit, else those without a limit.
    operands = arrays(q, v, target, wanted)

    @jax.jit
    @jax.jacfwd
    def by_velocity(v, pd):
        return pd(model, q, v, target, wanted)

    expected = np.where(limited, 0, -pd.damping)
    close(by_velocity(operands[1], pd), np.diag(expected), 1e-14)


@pytest.mark.parametrize("name", ["stiffness", "damping", "effort"])
def test_a_traced_gain_out_of_its_range_gives_nan(model, name):
    q, v, *_ = zoo.state(model, 0)
    target, wanted, *_ = zoo.state(model, 1)
    pd = gains(effort=np.full(NV, np.inf))
    wrong = np.array(getattr(pd, name))
    wrong[1] = -1.0
    found, _ = control(
        model, eqx.tree_at(lambda x: getattr(x, name), pd, wrong), q, v, target, wanted
    )
    expected = control(model, pd, q, v, target, wanted)[0].at[1].set(jnp.nan)
    np.testing.assert_array_equal(found, expected)


def test_the_default_has_no_limit_and_no_target_velocity():
    pd = PD([1.0, 2.0], [0.0, 0.5])
    np.testing.assert_array_equal(pd.effort, [np.inf, np.inf])
    assert pd.effort.shape == pd.damping.shape == (2,)


def test_the_largest_stable_time_step_of_the_guide():
    """One joint with semi-implicit Euler: just below and just above `dt^2 K + 2 dt D = 4 M`."""
    mass, dt = 2.0, 0.01
    spec = rbd.model.JointSpec("joint", rbd.joints.Prismatic((1, 0, 0)), None, "body")
    body = rbd.model.Link("body", rbd.model.link_inertia(mass, (0, 0, 0), np.eye(3)))
    model = rbd.build_model([body], [spec], gravity=(0, 0, 0))

    @jax.jit
    def last(stiffness, damping):
        pd = PD(stiffness[None], damping[None])

        def step(state, _):
            q, v = state
            v = v + dt * rbd.forward_dynamics(model, q, v, pd(model, q, v, jnp.zeros(1)))
            return (q + dt * v, v), None

        return jnp.abs(jax.lax.scan(step, (jnp.ones(1), jnp.zeros(1)), length=2000)[0][0][0])

    for part in (0.1, 0.5, 0.9):
        stiffness, damping = part * 4 * mass / dt**2, (1 - part) * 2 * mass / dt
        assert last(jnp.asarray(0.99 * stiffness), jnp.asarray(0.99 * damping)) < 1e-3
        assert last(jnp.asarray(1.01 * stiffness), jnp.asarray(1.01 * damping)) > 1e3


def test_gains_are_batched_and_differentiated(model):
    q, v, *_ = zoo.state(model, 0)
    target, wanted, *_ = zoo.state(model, 1)
    several = [gains(seed, np.full(NV, 3.0)) for seed in range(3)]
    batch = jax.tree.map(lambda *x: jnp.stack(x), *several)

    @jax.jit
    def both(batch):
        def force(pd):
            return pd(model, q, v, target, wanted)

        return jax.vmap(force)(batch), jax.vmap(jax.grad(lambda pd: jnp.sum(force(pd))))(batch)

    forces, slopes = both(batch)
    for i, pd in enumerate(several):
        close(forces[i], control(model, pd, q, v, target, wanted)[0], 1e-14)
    error = rbd.difference(model, q, target)
    inside = np.abs(forces) < 3
    assert 0 < inside.sum() < inside.size
    close(slopes.stiffness, np.where(inside, error, 0), 1e-13)
    close(slopes.damping, np.where(inside, wanted - v, 0), 1e-13)
    close(slopes.effort, np.where(inside, 0, np.sign(forces)), 1e-13)


def test_actuators_follow_the_dtype_of_the_model(model):
    single = model.astype("float32")
    q, v, tau, _ = zoo.state(single, 0)
    force = gains()(single, q, v, rbd.neutral(single))
    torque = DCMotor(np.ones(NV), np.ones(NV))(single, v, tau)
    assert force.dtype == torque.dtype == jnp.float32


def test_parameters_by_the_names_of_joints(model):
    pd = PD.for_joints(model, ["j2", "j1"], 3.0, [1.0, 2.0], [5.0, 6.0])
    np.testing.assert_array_equal(pd.stiffness, [0] * 6 + [3] * 4)
    np.testing.assert_array_equal(pd.damping, [0] * 6 + [2] * 3 + [1])
    np.testing.assert_array_equal(pd.effort, [np.inf] * 6 + [6] * 3 + [5])
    motor = DCMotor.for_joints(model, ("j2",), 2.0, 9.0, 1.5, 7.0)
    np.testing.assert_array_equal(motor.stall_torque, [0] * 9 + [2])
    np.testing.assert_array_equal(motor.no_load_speed, [np.inf] * 9 + [9])
    np.testing.assert_array_equal(motor.effort, [0] * 9 + [1.5])
    np.testing.assert_array_equal(motor.gear_ratio, [1] * 9 + [7])
    # A traced value: the gains are a differentiable function of the value per joint.
    by_joint = jax.jit(
        lambda model, k: PD.for_joints(model, ("j1", "j2"), k, jnp.asarray(1.0)).stiffness
    )
    slope = jax.jacfwd(by_joint, 1)(model, jnp.array([3.0, 4.0]))
    np.testing.assert_array_equal(slope, np.array([[0, 0]] * 6 + [[1, 0]] * 3 + [[0, 1]]))
    everything = PD.for_joints(zoo.coupled(), ("j0", "j1", "j5", "j6"), 1.0, 1.0)
    np.testing.assert_array_equal(everything.stiffness, np.ones(zoo.coupled().nv))


# -------------------------------------------------------------------------------------- DC motors


@jax.jit
def driven(model, motor, v, tau):
    return jax.vmap(lambda v, tau: motor(model, v, tau))(v, tau)


@pytest.fixture(scope="module")
def chain():
    return zoo.chain(3)


MOTOR = DCMotor([2.0, 2.0, 0.5], [10.0, 5.0, np.inf], [1.5, np.inf, 0.4], [1.0, 3.0, 2.0])


def test_the_torque_speed_curve_of_a_motor(chain):
    """In four quadrants: at standstill, at the corner, at the no-load speed and beyond."""
    pairs = [
        # speed, request, torque of a motor with stall torque 2, no-load speed 10, effort 1.5
        (0.0, 9.0, 1.5),
        (0.0, 1.0, 1.0),
        (2.5, 9.0, 1.5),  # the corner: 2 (1 - 2.5 / 10)
        (5.0, 9.0, 1.0),
        (10.0, 9.0, 0.0),
        (12.0, 9.0, -0.4),  # driven beyond the no-load speed
        (100.0, 9.0, -1.5),
        (5.0, -9.0, -1.5),  # braking
        (100.0, -9.0, -1.5),
        (-5.0, -9.0, -1.0),
        (-12.0, -9.0, 0.4),
        (-100.0, 0.0, 1.5),
        (5.0, 0.3, 0.3),
        (5.0, 0.0, 0.0),
    ]
    speeds, requests, expected = np.array(pairs).T
    zeros = np.zeros_like(speeds)
    v, tau = (jnp.asarray(np.stack([x, zeros, zeros], axis=1)) for x in (speeds, requests))
    close(driven(chain, MOTOR, v, tau)[:, 0], expected, 1e-15)
    # Without a limit by the current, a motor at -w0 brakes with twice the stall torque.
    v, tau = jnp.array([[0, -5 / 3, 0.0]]), jnp.array([[0, 1e3, 0]])
    close(driven(chain, MOTOR, v, tau)[0, 1], 3 * 2 * 2.0, 1e-14)
    # The torque of a motor with an infinite no-load speed does not depend on the speed.
    for speed in (-1e3, 0.0, 1e3):
        v, tau = jnp.array([[0, 0, speed]]), jnp.array([[0, 0, 9.0]])
        close(driven(chain, MOTOR, v, tau)[0, 2], 2 * 0.4, 1e-14)


@pytest.mark.parametrize("name", ["stall_torque", "no_load_speed", "effort", "gear_ratio"])
def test_a_traced_parameter_of_a_motor_out_of_its_range_gives_nan(chain, name):
    v, tau = jnp.ones((1, 3)), jnp.full((1, 3), 9.0)
    wrong = np.array(getattr(MOTOR, name))
    wrong[1] = -1.0
    motor = eqx.tree_at(lambda x: getattr(x, name), MOTOR, wrong)
    expected = driven(chain, MOTOR, v, tau).at[0, 1].set(jnp.nan)
    np.testing.assert_array_equal(driven(chain, motor, v, tau), expected)


def test_a_motor_at_an_unknown_speed_gives_nan(chain):
    v, tau = jnp.array([[jnp.nan, 0.0, 0.0]]), jnp.full((1, 3), 9.0)
    found = driven(chain, MOTOR, v, tau)[0]
    np.testing.assert_array_equal(jnp.isnan(found), [True, False, False])


def test_the_limits_agree_with_the_form_with_a_clipped_speed(chain, rng):
    """That form clips the speed where the line meets the effort, and then the torques."""
    v, tau = 8 * rng.normal(size=(200, 3)), 6 * rng.normal(size=(200, 3))
    found = driven(chain, MOTOR, jnp.asarray(v), jnp.asarray(tau))
    N, s, w0, e = MOTOR.gear_ratio, MOTOR.stall_torque, MOTOR.no_load_speed, MOTOR.effort
    s, w0, e = N * s, w0 / N, N * e  # at the joint
    with np.errstate(invalid="ignore"):
        corner = np.where(np.isinf(w0), np.inf, w0 * (1 + e / s))
    clipped = np.clip(v, -corner, corner)
    highest = np.minimum(s * (1 - clipped / w0), e)
    lowest = np.maximum(s * (-1 - clipped / w0), -e)
    close(found, np.clip(tau, lowest, highest), 1e-14)
    # The motor has no preferred direction.
    close(driven(chain, MOTOR, jnp.asarray(-v), jnp.asarray(-tau)), -found, 0.0)
    # A gear: the same motor in quantities of the joint.
    direct = DCMotor(s, w0, e)
    close(driven(chain, direct, jnp.asarray(v), jnp.asarray(tau)), found, 1e-14)


def test_derivatives_of_a_motor_are_the_true_ones(chain):
    """In the speed, the request and all parameters, on each side of the curve."""
    cases = [(6.0, 9.0), (-6.0, -9.0), (6.0, 0.2), (1.0, 9.0), (12.0, 9.0), (100.0, 9.0)]
    motor = DCMotor([2.0] * 3, [10.0] * 3, [1.5] * 3, [1.1] * 3)

    @jax.jit
    def both(v, tau, motor, direction):
        def total(t):
            moved = jax.tree.map(lambda x, dx: x + t * dx, (v, tau, motor), direction)
            return jnp.sum(moved[2](chain, *moved[:2]))

        exact = jax.grad(total)(0.0)
        return exact, slope(total, 1e-4)

    rng = np.random.default_rng(1)
    for speed, request in cases:
        operands = arrays(np.full(3, speed), np.full(3, request), motor)
        direction = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), operands)
        close(*both(*operands, direction), 1e-9)


# ------------------------------------------------------------------------------------------ delays


@jax.jit
def delayed_signal(delay, lags, commands):
    """The delayed commands of a signal (t, n), the lag of each step."""

    def step(past, now):
        lag, command = now
        past, out = Delay.push(jax.tree_util.tree_unflatten(structure, [lag]), past, command)
        return past, out

    structure = jax.tree.structure(delay)
    return jax.lax.scan(step, delay.init(commands[0]), (lags, commands))[1]


def test_each_entry_has_its_lag(rng):
    commands, lags = jnp.asarray(rng.normal(size=(9, 3))), np.array([0.0, 1.25, 4.0])
    found = delayed_signal(Delay(lags, 4), jnp.tile(lags, (9, 1)), commands)
    for entry, lag in enumerate(lags):
        alone = delayed_signal(Delay(lag, 4), jnp.full(9, lag), commands[:, entry])
        np.testing.assert_array_equal(found[:, entry], alone)
    with pytest.raises(rbd.ArgumentError, match=r"command has shape \(2,\), expected \(3,\), the"):
        Delay(lags, 4).init(jnp.zeros(2))
    with pytest.raises(rbd.ArgumentError, match="lag"):
        Delay([0.0, 5.0], 4)


def test_a_delayed_signal(rng):
    commands = jnp.asarray(rng.normal(size=(12, 2)))
    delay = Delay(0.0, 4)
    for lag in (0, 1, 3, 4):
        found = delayed_signal(delay, jnp.full(12, float(lag)), commands)
        expected = [commands[max(t - lag, 0)] for t in range(12)]
        np.testing.assert_array_equal(found, jnp.stack(expected))
    # Between two commands the delay is linear, so a ramp is delayed exactly.
    ramp = jnp.arange(12.0)[:, None] * jnp.array([[1.0, -2.0]])
    for lag in (0.25, 2.5, 3.75):
        found = delayed_signal(delay, jnp.full(12, lag), ramp)
        close(found[4:], ramp[4:] - lag * jnp.array([[1.0, -2.0]]), 1e-14)
    # The lag may change from step to step.
    lags = np.array([0, 1, 2, 4, 4, 0, 3, 1, 0, 2, 4, 1])
    found = delayed_signal(delay, jnp.asarray(lags, float), commands)
    expected = [commands[max(t - lag, 0)] for t, lag in enumerate(lags)]
    np.testing.assert_array_equal(found, jnp.stack(expected))


def test_a_command_of_another_step_has_no_effect():
    """Also where this command is infinite or NaN."""
    commands = jnp.array([[0.0], [jnp.inf], [1.0], [jnp.nan], [2.0], [3.0]])
    for lag in (0, 1, 2):
        found = delayed_signal(Delay(0.0, 2), jnp.full(6, float(lag)), commands)
        expected = jnp.stack([commands[max(t - lag, 0)] for t in range(6)])
        np.testing.assert_array_equal(found, expected)


def test_lags_are_batched_and_differentiated(rng):
    lags, commands = jnp.array([0.0, 1.5, 2.0, 3.0]), jnp.asarray(rng.normal(size=(6, 2)))

    @jax.jit
    def both(lags, commands):
        def last(lag, commands):
            return delayed_signal(Delay(0.0, 3), jnp.full(6, lag), commands)[-1]

        mapped = jax.vmap(last, (0, None))(lags, commands)
        return mapped, jax.vmap(jax.jacrev(last, (0, 1)), (0, None))(lags, commands)

    found, (by_lag, by_command) = both(lags, commands)
    newest = commands[::-1]
    close(found, jnp.stack([newest[0], (newest[1] + newest[2]) / 2, newest[2], newest[3]]), 1e-15)
    step = newest[1:] - newest[:-1]
    close(by_lag, jnp.stack([step[0], step[1], step[2], step[2]]), 1e-15)
    weights = by_command[:, 0, :, 0]
    close(weights[1], jnp.array([0, 0, 0, 0.5, 0.5, 0]), 1e-15, "in the commands")
    # A traced lag out of its range.
    with jax.debug_nans(False):  # the result has NaN
        beyond, _ = both(jnp.array([-0.5, 3.5, jnp.nan, 1.0]), commands)
    np.testing.assert_array_equal(np.isnan(beyond)[:, 0], [True, True, True, False])


def test_a_command_may_be_a_pytree():
    delay = Delay(1, 2)
    command = {"position": jnp.zeros((2, 3)), "velocity": jnp.float32(1.0)}
    past = delay.init(command)
    assert past["position"].shape == (3, 2, 3)
    past, first = delay.push(past, {"position": jnp.ones((2, 3)), "velocity": jnp.float32(2.0)})
    zoo.assert_identical(first, command)
    past, second = delay.push(past, command)
    np.testing.assert_array_equal(second["position"], np.ones((2, 3)))
    assert second["velocity"] == 2
    assert second["velocity"].dtype == jnp.float32
    zoo.assert_identical(delay.push(past, command)[1], command)


# ------------------------------------------------------------------------------------ the guide


@pytest.mark.documents
def test_the_examples_of_the_guide_run():
    names = {}
    examples = pages.blocks("actuators_and_sensors.md")
    assert len(examples) == 2
    for example in examples:
        exec(example, names)
    model, measured = names["model"], names["measured"]
    assert names["q"].shape == (model.nq,)
    assert measured["joints"].position.shape == (model.nv - 6,)
    assert measured["heights"].shape == (6,)
    assert names["scans"].shape == (8, 6)
    assert len(np.unique(names["scans"])) == 48
    for x in jax.tree.leaves([names["q"], names["v"], names["past"], measured]):
        assert jnp.all(jnp.isfinite(x))
    # The base has no stiffness, and the delayed target is the initial configuration.
    close(names["past"][-1], names["past"][0], 0.0)


# ------------------------------------------------------------------------------------------ errors

TWO = [1.0, 1.0]
FAULTS = {
    "stiffness negative": (lambda: PD([1.0, -1.0], TWO), "stiffness is .*finite, 0 or more"),
    "stiffness NaN": (lambda: PD([1.0, np.nan], TWO), "stiffness is"),
    "stiffness infinite": (lambda: PD([1.0, np.inf], TWO), "stiffness is"),
    "stiffness a number": (lambda: PD(1.0, 1.0), r"stiffness has shape \(\) .* expected \(n,\)"),
    "stiffness text": (
        lambda: arguments.parameter("stiff", "stiffness", (None,)),
        "stiffness is 'stiff', expected an array of floats",
    ),
    "damping negative": (lambda: PD(TWO, [-1.0, 1.0]), "damping is"),
    "damping short": (lambda: PD(TWO, [1.0]), r"damping has shape \(1,\) .* expected \(2,\)"),
    "effort negative": (lambda: PD(TWO, TWO, [-1.0, 1.0]), "effort is .* 0 or more"),
    "effort NaN": (lambda: PD(TWO, TWO, [np.nan, 1.0]), "effort is"),
    "effort a number": (lambda: PD(TWO, TWO, 3.0), r"effort has shape \(\)"),
    "gains of integers": (lambda: PD(jnp.array([1, 2]), TWO), "dtype int.* of floats"),
    "stall torque negative": (lambda: DCMotor([-1.0], [1.0]), "stall_torque is"),
    "stall torque infinite": (lambda: DCMotor([np.inf], [1.0]), "stall_torque is"),
    "no-load speed zero": (lambda: DCMotor([1.0], [0.0]), "no_load_speed is .* more than 0"),
    "motor effort NaN": (lambda: DCMotor([1.0], [1.0], [np.nan]), "effort is"),
    "gear ratio infinite": (lambda: DCMotor([1.0], [1.0], None, [np.inf]), "gear_ratio is .*inf"),
    "gear ratio zero": (lambda: DCMotor([1.0], [1.0], None, [0.0]), "gear_ratio is"),
    "gear ratio long": (lambda: DCMotor([1.0], [1.0], None, TWO), "gear_ratio has shape"),
    "lag negative": (lambda: Delay(-0.1, 3), "lag is -0.1, expected from 0 to the length 3"),
    "lag long": (lambda: Delay(3.01, 3), "lag is 3.01"),
    "lag NaN": (lambda: Delay(np.nan, 3), "lag is nan"),
    "lags": (lambda: Delay(np.ones((2, 1)), 3), r"lag has shape \(2, 1\)"),
    "length zero": (lambda: Delay(0, 0), "length is 0, expected an integer of 1 or more"),
    "length true": (lambda: Delay(0, True), "length is True"),
    "command of integers": (lambda: Delay(0, 1).init({"u": 1}), r"command\['u'\] has dtype int"),
    "command short": (
        lambda: Delay(0, 1).push(jnp.zeros((2, 3)), jnp.zeros(2)),
        r"command has shape \(2,\) .* shape \(2, 3\) .* 2 rows",
    ),
    "command of another dtype": (
        lambda: Delay(0, 1).push(jnp.zeros((2, 3)), jnp.zeros(3, "float32")),
        "command has shape .* float32",
    ),
    "past of another length": (
        lambda: Delay(0, 3).push(jnp.zeros((3, 3)), jnp.zeros(3)),
        "3, 3.* 4 rows",
    ),
    "command of another structure": (
        lambda: Delay(0, 1).push(jnp.zeros((2, 3)), (jnp.zeros(3),)),
        "expected the structure of the past",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_wrong_parameters(fault):
    call, message = FAULTS[fault]
    with pytest.raises(rbd.ArgumentError, match=f"(?s){message}"):
        call()


@pytest.mark.parametrize("make", [PD.for_joints, DCMotor.for_joints], ids=["PD", "DCMotor"])
@pytest.mark.parametrize("joints", range(5))
def test_wrong_joints(make, joints):
    model = zoo.coupled()
    names, value, message = [
        (("j1", "nowhere"), 1.0, "no joint 'nowhere'"),
        (("j1", "j6", "j1"), 1.0, "joint 'j1' is twice"),
        (("j1", "j2"), 1.0, "joint 'j2' .* follows other joints"),
        ("j1", 1.0, "joints is 'j1', expected a sequence"),
        (("j1", "j6"), [1.0, 2.0, 3.0], r"has shape \(3,\) .* expected \(\) or \(2,\)"),
    ][joints]
    with pytest.raises(rbd.ArgumentError, match=f"(?s){message}"):
        make(model, names, value, value)


def test_wrong_operands(model):
    q, v, tau, _ = zoo.state(model)
    for call, message in (
        (lambda: PD(TWO, TWO)(model, q, v, q), r"stiffness has shape \(2,\), expected \(10,\)"),
        (lambda: gains()(model, q[1:], v, q), "q has shape"),
        (lambda: gains()(model, q, v, v), "position has shape"),
        (lambda: gains()(model, q, v, q, q), "velocity has shape"),
        (lambda: gains()(model, q, v, q.at[3:7].set(0)), "position has the zero quaternion"),
        (lambda: gains()(model, q.at[3:7].set(0), v, q), "q has the zero quaternion"),
        (lambda: DCMotor(TWO, TWO)(model, v, tau), r"stall_torque has shape \(2,\)"),
        (lambda: DCMotor([1.0] * NV, [1.0] * NV)(model, v, tau[1:]), "tau has shape"),
        (lambda: DCMotor([1.0] * NV, [1.0] * NV)(model, q, tau), "v has shape"),
    ):
        with pytest.raises(rbd.ArgumentError, match=message):
            call()
