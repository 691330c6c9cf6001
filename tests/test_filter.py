"""First-order filters of commands: laws, derivatives, agreement with MuJoCo, and errors."""

import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import contact
from jaxrbd.actuators import Filter
from jaxrbd.io.mujoco import from_mujoco
from support.finite_differences import slope
from support.zoo import close

T = np.array([0.03, 0.5, 2.0])
START, COMMAND = jnp.array([0.3, -0.7, 1.2]), jnp.array([1.0, 0.4, -2.0])
EXACT, EULER = Filter(T), Filter(T, kinds=["explicit"] * 3)


@jax.jit
def push(filters, activation, command, dt):
    return filters.push(activation, command, dt)


def next_activation(filters, dt, command=COMMAND):
    return push(filters, START, command, dt)[0]


# -------------------------------------------------------------------------------------------- laws


def test_the_exact_filter_solves_its_differential_equation():
    """The rate is (u - activation) / T at any time, and steps add up."""
    close(next_activation(EXACT, 1e-300), START, 0.0, "at the start")
    for dt in (1e-6, 0.04, 1.0):
        found, rate = jax.jvp(lambda t: next_activation(EXACT, t), (dt,), (1.0,))
        close(rate, (COMMAND - found) / T, 1e-13, f"the rate at {dt}")
        third = functools.reduce(lambda x, _: push(EXACT, x, COMMAND, dt / 3)[0], range(3), START)
        close(third, found, 1e-14, "three steps of a third")


def test_the_other_filter_is_the_euler_method():
    """One step is on the tangent, and many small steps converge with the order 1."""
    for dt in (0.01, 0.045):  # the second one is longer than the first time constant
        close(next_activation(EULER, dt), START + dt * (COMMAND - START) / T, 1e-15)

    @functools.partial(jax.jit, static_argnums=0)
    def after_half_a_second(n):
        def step(activation, _):
            return EULER.push(activation, COMMAND, 0.5 / n)[0], None

        return jax.lax.scan(step, START, length=n)[0]

    exact = next_activation(EXACT, 0.5)
    errors = [jnp.max(jnp.abs(after_half_a_second(n) - exact)) for n in (500, 1000)]
    assert 0 < errors[1] < 1e-3
    np.testing.assert_allclose(errors[0] / errors[1], 2, rtol=0.01)


def test_the_filtered_command_is_the_activation_before_or_after_the_step():
    mixed = Filter(T, early=(False, True, False))
    after, filtered = push(mixed, START, COMMAND, 0.1)
    np.testing.assert_array_equal(filtered, jnp.array([START[0], after[1], START[2]]))
    assert jnp.all(after != START)


@pytest.mark.parametrize("kind", ["exact", "explicit"])
def test_commands_are_clipped_before_the_filter_and_activations_after_it(kind):
    """The ranges do not limit the activation at the start of the step."""
    commands = [[-0.5, 0.5], [-0.5, 0.5], [-0.5, -0.3]]
    narrow = Filter(T, commands, [[-1, 1], [-1, 1], [-0.1, 0.1]], [kind] * 3, [False] * 3)
    free = EXACT if kind == "exact" else EULER
    after, filtered = push(narrow, START, COMMAND, 0.02)
    unlimited = next_activation(free, 0.02, jnp.array([0.5, 0.4, -0.5]))
    close(after, unlimited.at[2].set(0.1), 1e-15)
    np.testing.assert_array_equal(filtered, START)
    rest = narrow.init(COMMAND)
    np.testing.assert_array_equal(rest, [0.5, 0.4, -0.1])
    close(push(narrow, rest, COMMAND, 0.02)[0], rest, 1e-16, "at rest")


def test_the_extreme_time_constants():
    """Zero: the clipped command to the last digit. Infinite: a constant activation."""
    wide = jnp.array([1e-17, 1 / 3, -7.0])
    passing = Filter([0.0] * 3, [[-np.inf, np.inf]] * 2 + [[-5, 5]], early=[True] * 3)
    after, filtered = push(passing, START, wide, 0.01)
    np.testing.assert_array_equal(filtered, wide.at[2].set(-5))
    np.testing.assert_array_equal(after, filtered)
    for kind in ("exact", "explicit"):
        constant = Filter([np.inf] * 3, kinds=[kind] * 3)
        np.testing.assert_array_equal(next_activation(constant, 0.01), START)


# ------------------------------------------------------------------------------------- derivatives


@pytest.mark.parametrize("filters", [EXACT, EULER], ids=["exact", "Euler"])
def test_the_derivatives_are_the_true_ones(filters, rng):
    """In the time constants, the activation, the command, the bounds and the time step."""
    limited = Filter(T, [[-1, 0.9]] * 3, [[-1, 1], [-1, 1], [-0.2, 0.5]], filters.kinds)
    operands = jax.tree.map(jnp.asarray, (limited, START, COMMAND, 0.02))

    @jax.jit
    def both(operands, direction):
        def values(t):
            filters, *rest = jax.tree.map(lambda x, dx: x + t * dx, operands, direction)
            return jnp.stack(filters.push(*rest))

        reverse = jax.jacrev(values)(0.0)
        return jax.jacfwd(values)(0.0), reverse, slope(values, 1e-4)

    for _ in range(3):
        direction = jax.tree.map(lambda x: 0.01 * jnp.asarray(rng.normal(size=x.shape)), operands)
        forward, reverse, expected = both(operands, direction)
        close(forward, expected, 1e-9)
        close(reverse, forward, 1e-14)
        assert jnp.all(forward[0] != 0)


def test_the_derivative_by_the_time_constant_is_finite_at_its_bounds():
    """It is zero at 0 and at infinity, in both modes and twice."""

    @jax.jit
    def derivatives(T):
        def after(T):
            return Filter(T).push(START, COMMAND, 0.02)[0]

        modes = jax.jacfwd, jax.jacrev
        return [mode(after)(T) for mode in modes], [mode(mode(after))(T) for mode in modes]

    for value in (0.0, np.inf):
        for found in jax.tree.leaves(derivatives(jnp.full(3, value))):
            np.testing.assert_array_equal(found, np.zeros_like(found))


@pytest.mark.gives_nan
def test_time_constants_are_batched():
    """One time constant per environment; a traced value out of its range gives NaN."""
    constants = jnp.array([[0.1, 0.2, 0.3], [0.0, 1.0, -1.0], [np.nan, np.inf, 1e-9]])

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, None))
    def after(constants, exact):
        kinds = ["exact"] * 3, ["explicit"] * 3
        pushed = [Filter(constants, kinds=kind).push(START, COMMAND, 0.01)[0] for kind in kinds]
        return jnp.where(exact, *pushed)

    expected = START + (1 - np.exp(-0.01 / constants[0])) * (COMMAND - START)
    found = after(constants, jnp.array(True))
    close(found[0], expected, 1e-15)
    np.testing.assert_array_equal(jnp.isnan(found[1:]), [[0, 0, 1], [1, 0, 0]])
    found = after(constants, jnp.array(False))
    np.testing.assert_array_equal(jnp.isnan(found[1:]), [[1, 0, 1], [1, 0, 0]])
    assert jnp.all(jnp.isnan(push(EXACT, START, COMMAND, jnp.array(-0.01))[0]))


def test_single_precision():
    found = Filter(T).push(START.astype("float32"), COMMAND.astype("float32"), 0.01)
    assert [x.dtype for x in found] == ["float32", "float32"]
    np.testing.assert_allclose(found[0], next_activation(EXACT, 0.01), rtol=2e-6)


# ------------------------------------------------------------------------------------------ MuJoCo

ARM = """
<mujoco>
  <option timestep="0.004"/>
  <worldbody>
    <body><joint name="a" axis="0 1 0" damping="0.2"/><geom size="0.1" pos="0.3 0 0"/>
      <body pos="0.4 0 0"><joint name="b" axis="0 0 1" damping="0.1"/>
        <geom size="0.08" pos="0.2 0.1 0"/>
        <body pos="0 0.3 0"><joint name="c" type="slide" axis="1 0 1" damping="1"/>
          <geom size="0.05"/></body></body></body>
  </worldbody>
  <actuator>
    <general name="exact" joint="a" dyntype="filterexact" dynprm="0.05" gainprm="3" gear="2"
             ctrlrange="-1 1.5" actlimited="true" actrange="-0.4 0.7"/>
    <motor name="motor" joint="b" ctrlrange="-0.5 0.5"/>
    <general name="Euler" joint="b" dyntype="filter" dynprm="0.03" gaintype="affine"
             gainprm="2 0.3 -0.1" biastype="affine" biasprm="0.1 -2 -0.2" forcerange="-2 1"
             actlimited="true" actrange="-0.6 0.8"/>
    <general name="early" joint="c" dyntype="filter" dynprm="0.1" actearly="true" gear="-1.5"
             ctrlrange="-2 2"/>
    <position name="servo" joint="c" kp="20" kv="2" timeconst="0.2" ctrlrange="0.1 0.3"/>
    <general name="early exact" joint="a" dyntype="filterexact" dynprm="0.02" actearly="true"
             actlimited="true" actrange="-0.5 0.5"/>
    <general name="at once" joint="b" dyntype="filterexact" dynprm="0"/>
    <general name="off" joint="a" dyntype="filter" dynprm="0.1" group="3" actlimited="true"
             actrange="-0.1 0.1"/>
  </actuator>
  <keyframe><key name="start" qpos="0.1 0.2 0.3" ctrl="1 2 3 4 5 6 7 8"
                 act="0.9 -0.7 0.3 0.5 0.4 -0.2 0.3"/></keyframe>
</mujoco>
"""
NAMES = ("exact", "motor", "Euler", "early", "servo", "early exact", "at once", "off")


@functools.cache
def arm(*flags):
    """The compiled model with one group of actuators switched off, and our import."""
    compiled = mujoco.MjModel.from_xml_string(ARM)
    compiled.opt.disableactuator = 1 << 3
    for flag in flags:
        compiled.opt.disableflags |= getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag}")
    return compiled, from_mujoco(compiled)


@pytest.mark.parametrize("flags", [(), ("CLAMPCTRL",)], ids=["clamped", "not clamped"])
def test_activations_and_forces_agree_with_mujoco(flags):
    """400 steps with steps of the controls; the activations start beyond their ranges."""
    compiled, found = arm(*flags)
    assert found.actuators.names == NAMES
    controls = np.random.default_rng(0).normal(size=(400, 8)).repeat(5, axis=0)[:400]
    controls[:, 4] = 0.2 + 0.2 * controls[:, 4]
    data = mujoco.MjData(compiled)
    mujoco.mj_resetDataKeyframe(compiled, data, 0)
    key = found.keyframes["start"]
    dynamic = np.array([0, 2, 3, 4, 5, 6, 7])
    np.testing.assert_array_equal(key.activation[dynamic], data.act)
    assert key.activation[1] == 0
    states, forces, activations = [], [], []
    for control in controls:
        data.ctrl[:] = control
        states.append((data.qpos.copy(), data.qvel.copy()))
        mujoco.mj_step(compiled, data)
        forces.append(data.qfrc_actuator.copy())
        activations.append(data.act.copy())
    model, coordinates = found.model, found.coordinates

    @jax.jit
    def simulate(filters, actuators, states, controls):
        def step(activation, now):
            (qpos, qvel), control = now
            q = coordinates.q(model, qpos)
            v = coordinates.v(model, q, qvel)
            activation, filtered = filters.push(activation, control, 0.004)
            tau = actuators(model, q, v, filtered)
            return activation, (activation, coordinates.qfrc(model, q, tau))

        return jax.lax.scan(step, key.activation, (states, controls))[1]

    states = tuple(map(np.array, zip(*states)))
    ours, tau = simulate(found.filter, found.actuators, states, controls)
    np.testing.assert_allclose(ours[:, dynamic], activations, rtol=0, atol=1e-12)
    np.testing.assert_allclose(tau, forces, rtol=0, atol=1e-9)
    # Every range acts in some steps and not in others.
    activations = np.array(activations)
    for i, bounds in (0, (-0.4, 0.7)), (1, (-0.6, 0.8)), (4, (-0.5, 0.5)):
        assert all(0 < np.mean(activations[:, i] == bound) < 1 for bound in bounds)
    assert np.all(activations[:, 6] == 0.1)  # a group that is switched off


@pytest.mark.slow
def test_a_servo_with_filtered_controls_gives_the_force_of_the_actuators():
    """`contact_step` gives the force of the actuators after the step, with the filtered control."""
    compiled, _ = arm()
    text = ARM.replace('forcerange="-2 1"', "").replace("2 0.3 -0.1", "2 0 0")
    found = from_mujoco(mujoco.MjModel.from_xml_string(text))
    model, key = found.model, found.keyframes["start"]
    control = jnp.linspace(-1, 1, compiled.nu)
    v = jnp.array([0.3, -0.2, 0.1])

    @jax.jit
    def both(filters, actuators):
        _, filtered = filters.push(key.activation, control, 0.004)
        servo, tau = contact.servo_of_actuators(actuators, model, key.q, filtered)
        step = contact.contact_step(model, contact.Scene(()), key.q, v, tau, 0.004, servo=servo)
        impulse = step.joint_impulse.servo + 0.004 * tau
        return impulse, 0.004 * actuators(model, step.q, step.v, filtered)

    impulse, expected = both(found.filter, found.actuators)
    np.testing.assert_allclose(impulse, expected, rtol=0, atol=1e-11)
    assert jnp.all(jnp.abs(expected) > 1e-4)


# ------------------------------------------------------------------------------------------ delays

DELAYED = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody><body><joint name="a"/><geom size="0.1"/></body></worldbody>
  <actuator>
    <motor name="linear" joint="a" delay="0.025" nsample="6" interp="linear"/>
    <motor name="hold" joint="a" delay="0.025" nsample="6" interp="zoh"/>
    <motor name="whole" joint="a" delay="0.03" nsample="6" interp="zoh"/>
    <motor name="now" joint="a"/>
    <general name="lag" joint="a" dyntype="filterexact" dynprm="0.05" delay="0.012" nsample="4"
      interp="linear"/>
  </actuator>
</mujoco>
"""


@pytest.mark.skipif(not hasattr(mujoco.MjModel, "actuator_delay"), reason="an older MuJoCo")
def test_delayed_controls_are_those_of_mujoco(rng):
    """The forces of motors, which are their controls, and the activation of a filter."""
    compiled = mujoco.MjModel.from_xml_string(DELAYED)
    robot, data = from_mujoco(compiled), mujoco.MjData(compiled)
    np.testing.assert_array_equal(robot.delays, [0.025, 0.025, 0.03, 0, 0.012])
    delay = robot.delay(0.01)
    activation, past = jnp.zeros(5), delay.init(jnp.zeros(5))
    for control in rng.normal(size=(9, 5)):
        data.ctrl[:] = control
        mujoco.mj_step(compiled, data)
        past, delayed = delay.push(past, control)
        activation, filtered = push(robot.filter, activation, delayed, 0.01)
        close(filtered[:4], data.actuator_force[:4], 1e-12)
        close(activation[4], data.act[0], 1e-12)
    # A time step that does not divide the delays: the control of four steps ago is old enough.
    np.testing.assert_allclose(robot.delay(0.008).lag, [3.125, 4, 4, 0, 1.5])
    # 0.07 / 0.01 is more than 7 by a rounding error.
    longer = robot._replace(delays=np.array([0.025, 0.025, 0.07, 0, 0.012]))
    np.testing.assert_allclose(longer.delay(0.01).lag, [2.5, 3, 7, 0, 1.2])
    for dt in (0, np.inf, True):
        with pytest.raises(rbd.ArgumentError, match=f"dt is {dt}, expected a known finite number"):
            robot.delay(dt)
    plain = DELAYED.partition("<motor")[0] + '<motor joint="a"/></actuator></mujoco>'
    assert from_mujoco(mujoco.MjModel.from_xml_string(plain)).delay(0.01) is None


# ------------------------------------------------------------------------------------------ errors

WRONG = {
    "time_constant is .* expected 0 or more for exact": lambda: Filter([-0.1]),
    "time_constant is .* more than 0 for other filters": lambda: Filter([0.0], kinds=["explicit"]),
    "time_constant is .*nan": lambda: Filter([np.nan]),
    r"time_constant has shape \(\) .* expected \(n,\)": lambda: Filter(0.1),
    "command_range has a lower bound above": lambda: Filter([0.1], [[1, -1]]),
    r"activation_range has shape \(2,\)": lambda: Filter([0.1], None, [-1, 1]),
    r"early is \[True\], expected 2 values": lambda: Filter([0.1, 0.2], early=[True]),
    r"command has shape \(2,\) .* expected \(3,\)": lambda: EXACT.init(jnp.ones(2)),
    "command has shape .* int64, expected .* floats": lambda: EXACT.init(jnp.arange(3)),
    r"activation has shape \(1, 3\)": lambda: EXACT.push(START[None], COMMAND, 0.1),
    "command has dtype float32, expected the dtype of the activation": lambda: EXACT.push(
        START, COMMAND.astype("float32"), 0.1
    ),
    "dt is -0.1, expected a finite number above 0": lambda: EXACT.push(START, COMMAND, -0.1),
    "dt is None, expected the time step in s": lambda: EXACT.push(START, COMMAND, None),
    "dt is True, expected the time step in s": lambda: EXACT.push(START, COMMAND, True),
    "dt is 1j, expected the time step in s": lambda: EXACT.push(START, COMMAND, 1j),
    r"dt has shape \(3,\), expected \(\)": lambda: EXACT.push(START, COMMAND, np.ones(3)),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments(message):
    with pytest.raises(rbd.ArgumentError, match=message):
        WRONG[message]()
