"""Muscles and transmissions of actuators: MuJoCo, laws, derivatives, contact steps and errors."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import contact
from jaxrbd.actuators import (
    AffineActuators,
    BallTorque,
    Filter,
    FrameDisplacement,
    FrameForce,
    Muscles,
    SliderCrank,
    activation_time,
)
from jaxrbd.actuators.affine import gain_and_bias
from jaxrbd.actuators.transmissions import transmission_lengths_and_arms
from jaxrbd.io.mujoco import from_mujoco
from jaxrbd.tendons import FixedTendon
from support.finite_differences import slope
from support.zoo import close

# A flying base with an arm of a hinge, a ball and a slide, and a crank on a second arm.
WORLD = """
<mujoco>
  <compiler autolimits="true"/>
  <worldbody>
    <body name="base" pos="0 0 1">
      <freejoint name="free"/>
      <geom type="box" size="0.2 0.1 0.05"/>
      <site name="thrust" pos="0.1 0.1 0" euler="10 0 0"/>
      <site name="rail" pos="0.1 0.5 0.2" euler="0 80 15"/>
      <body name="upper" pos="0.2 0 0">
        <joint name="hinge" axis="0 1 0.3" pos="0 0.02 0"/>
        <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03"/>
        <site name="shoulder" pos="0.1 0 0.04"/>
        <body name="lower" pos="0.3 0 0">
          <joint name="ball" type="ball"/>
          <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03"/>
          <site name="elbow" pos="0.15 0.01 0.05" euler="30 -20 10"/>
          <body name="hand" pos="0.3 0 0">
            <joint name="slide" type="slide" axis="1 0 0"/>
            <geom type="sphere" size="0.04"/>
            <site name="hand" euler="0 40 5"/>
          </body>
        </body>
      </body>
    </body>
    <body name="wheel" pos="0.2 0.6 0.3">
      <joint name="wheel" axis="0 0 1"/>
      <geom type="cylinder" size="0.1 0.02"/>
      <site name="crank" pos="0.1 0.02 0.01"/>
    </body>
  </worldbody>
  <tendon>
    <spatial name="flexor"><site site="shoulder"/><site site="elbow"/><site site="hand"/></spatial>
    <fixed name="sum"><joint joint="hinge" coef="0.4"/><joint joint="slide" coef="-0.7"/></fixed>
  </tendon>
  <actuator>
    <muscle name="flexor" tendon="flexor" lengthrange="0.2 0.5" force="30"/>
    <muscle name="scaled" tendon="sum" lengthrange="-0.4 0.9" scale="50" range="0.6 1.2"
      lmin="0.4" lmax="1.9" vmax="0.8" fpmax="0.7" fvmax="1.4" gear="1.5"
      timeconst="0.02 0.07" tausmooth="0.3"/>
    <muscle name="wheel" joint="wheel" lengthrange="-1 1" force="4" ctrlrange="0.1 0.8"/>
    <general name="thrust" site="thrust" gear="0.2 -0.1 0.9 0.3 0.1 -0.2" gainprm="2.5"/>
    <position name="grasp" site="hand" refsite="elbow" gear="0.3 0.2 -0.5 0 0 0" kp="40" kv="3"/>
    <position name="aim" site="hand" refsite="crank" gear="0.2 0.1 1 0.5 -0.3 0.4" kp="5"/>
    <position name="rod" cranksite="crank" slidersite="rail" cranklength="4" kp="20" gear="1.3"/>
    <position name="short" cranksite="crank" slidersite="rail" cranklength="0.02" kp="20"/>
    <position name="ball" joint="ball" gear="0.5 0.2 0.9" kp="3"/>
    <position name="turned" jointinparent="ball" gear="0.5 -0.2 0.9" kp="3" kv="0.2"/>
    <motor name="push" joint="free" gear="1 2 -3 0.5 0.7 -0.9"/>
    <motor name="turn" jointinparent="free" gear="1 0.4 -3 0.5 -0.7 0.9"/>
    <general name="integrated" joint="slide" dyntype="integrator" dynprm="0.3"
      gainprm="3" actrange="-1 0.95"/>
    <intvelocity name="speed" joint="hinge" kp="6" actrange="-2 2"/>
  </actuator>
</mujoco>
"""
PUSH = '<motor name="push" joint="free" gear="1 2 -3 0.5 0.7 -0.9"/>'
CURVE = 'biastype="muscle" biasprm="0.7 1 5 200 0.5 1.6 1.5 1.3 1.2" lengthrange="0 1"'
GAIN = 'gainprm="0.7 1 6 200 0.5 1.6 1.5 1.3 1.2"'
DT = 0.01


def world():
    compiled = mujoco.MjModel.from_xml_string(WORLD)
    compiled.opt.timestep = DT
    return compiled


@pytest.fixture(scope="module")
def robot():
    return from_mujoco(world())


@jax.jit
def qfrc(robot, q, tau):
    model, coordinates = robot
    return coordinates.qfrc(model, q, tau)


@jax.jit
def our_state(robot, qpos, qvel):
    model, coordinates = robot
    q = coordinates.q(model, qpos)
    return q, coordinates.v(model, q, qvel)


def state(rng, robot):
    """A state, controls and activations; the quaternion has any sign."""
    data = mujoco.MjData(compiled := world())
    data.qpos[:], data.qvel[:] = rng.normal(size=compiled.nq), rng.normal(size=compiled.nv)
    mujoco.mj_normalizeQuat(compiled, data.qpos)
    data.ctrl[:] = rng.uniform(-0.3, 1.2, compiled.nu)
    data.act[:] = rng.uniform(0, 1, compiled.na)
    mujoco.mj_forward(compiled, data)
    q, v = our_state((robot.model, robot.coordinates), data.qpos.copy(), data.qvel.copy())
    activation = np.append(data.act, 0)[compiled.actuator_actadr]
    return compiled, data, q, v, activation


@eqx.filter_jit
def push_and_force(robot, q, v, activation, control):
    after, filtered = robot.filter.push(activation, control, DT)
    return after, robot.actuators(robot.model, q, v, filtered)


# ------------------------------------------------------------------------------------------ MuJoCo


@pytest.mark.parametrize("seed", range(4))
def test_the_forces_and_the_activations_are_those_of_mujoco(robot, seed):
    compiled, data, q, v, activation = state(np.random.default_rng(seed), robot)
    after, tau = push_and_force(robot, q, v, jnp.asarray(activation), jnp.asarray(data.ctrl))
    close(qfrc((robot.model, robot.coordinates), q, tau), data.qfrc_actuator, 1e-11)
    mujoco.mj_step(compiled, data)
    moving = compiled.actuator_actadr >= 0
    close(np.asarray(after)[moving], data.act, 1e-14, "activations")


LIMITS = """
<mujoco>
  <worldbody>
    <body name="arm">
      <joint name="h" axis="0 1 0" actuatorfrcrange="-0.2 0.3"/>
      <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03"/>
      <body pos="0.3 0 0">
        <joint name="b" type="ball"/>
        <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03"/>
        <site name="tip" pos="0.3 0.1 0"/>
        <body>
          <joint name="s" type="slide" axis="1 0 0" actuatorfrcrange="-0.15 0.04"/>
          <geom size="0.1"/>
        </body>
      </body>
    </body>
  </worldbody>
  <tendon>
    <fixed name="t" actuatorfrclimited="true" actuatorfrcrange="-0.3 0.1">
      <joint joint="s" coef="1"/>
    </fixed>
    <fixed name="u"><joint joint="h" coef="2"/></fixed>
  </tendon>
  <actuator>
    <orientation joint="b"/>
    <motor name="wide" tendon="t"/>
    <motor name="narrow" tendon="t" forcerange="-0.1 0.1"/>
    <motor name="coupled" tendon="u"/>
    <motor name="push" site="tip" gear="0 0 1 0 0 0"/>
    <motor name="direct" joint="h"/>
    <muscle name="muscle" joint="h" lengthrange="-1 1.5" force="-1" scale="30" forcerange="-2 -1"/>
  </actuator>
</mujoco>
"""


def test_limits_of_joints_tendons_and_actuators_together():
    """In the order of MuJoCo, with an actuator with three controls before the others."""
    compiled = mujoco.MjModel.from_xml_string(LIMITS)
    with pytest.raises(rbd.errors.ModelError, match="transmission to a so3"):
        from_mujoco(compiled)
    robot = from_mujoco(compiled, strict=False)
    force = jax.jit(lambda q, v, u: robot.actuators(robot.model, q, v, u))
    rng = np.random.default_rng(0)
    clipped = 0
    for _ in range(20):
        data = mujoco.MjData(compiled)
        data.qpos[:], data.qvel[:] = rng.normal(size=compiled.nq), rng.normal(size=compiled.nv)
        mujoco.mj_normalizeQuat(compiled, data.qpos)
        control = rng.choice([-1, -0.2, -0.05, 0.05, 0.2, 1], 5)
        data.ctrl[3:8], data.act[:] = control, rng.uniform(0, 1, compiled.na)
        mujoco.mj_forward(compiled, data)
        q, v = our_state((robot.model, robot.coordinates), data.qpos.copy(), data.qvel.copy())
        u = np.append(control, data.act[0])
        found = qfrc((robot.model, robot.coordinates), q, force(q, v, u))
        rotations = data.qfrc_actuator[1:4] - found[1:4]  # of the omitted actuator
        expected = data.qfrc_actuator - np.concatenate([[0], rotations, [0]])
        close(found, expected, 1e-12)
        clipped += np.isin(data.qfrc_actuator[0].round(12), [-0.2, 0.3])
    assert 0 < clipped < 20


# Position servos of angles, and actuators that are like them but for one number.
ANGLES = """
<mujoco>
  <worldbody>
    <site name="world" euler="20 0 50"/>
    <body name="body"><joint name="ball" type="ball"/><geom size="0.1"/>
      <site name="site" pos="0.1 0 0" euler="0 30 0"/>
      <body name="wheel" pos="0 0 0.2"><joint name="wheel" axis="0 0 1"/><geom size="0.1"/></body>
    </body>
  </worldbody>
  <actuator>
    <position joint="ball" gear="0 0 1" kp="3"/>
    <position jointinparent="ball" gear="0.1 0.2 0.3" kp="2" kv="0.4" ctrlrange="-9 9"/>
    <position site="site" refsite="world" gear="0 0 0 0 2 0" kp="5"/>
    <position site="site" refsite="world" gear="0 0.1 0 0 2 0" kp="5"/>
    <position joint="ball" gear="1 0 0" kp="3" timeconst="0.1"/>
    <intvelocity joint="ball" gear="0 1 0" kp="3" actrange="-20 20"/>
    <general joint="ball" gear="0 0 1" gainprm="3" biastype="affine" biasprm="0.5 -3 -1"/>
    <general joint="ball" gear="0 0 1" gainprm="3" biastype="affine" biasprm="0 -2 0"/>
    <general joint="ball" gear="0 0 1" gaintype="affine" gainprm="3" biastype="affine"
      biasprm="0 -3 0"/>
    <position joint="wheel" kp="3"/>
    <motor joint="ball" gear="0 0 1"/>
  </actuator>
</mujoco>
"""


def test_servos_of_angles_go_the_shortest_way(rng):
    """As in MuJoCo; also the servo of a contact step, before the step."""
    compiled = mujoco.MjModel.from_xml_string(ANGLES)
    imported = from_mujoco(compiled)
    model, actuators, n = imported.model, imported.actuators, compiled.nu
    plain = eqx.tree_at(lambda x: x.periods, actuators, np.full(n, np.inf))

    @jax.jit
    def forces(q, v, control):
        kinematics = rbd.forward_kinematics(model, q)
        lengths, J = transmission_lengths_and_arms(model, actuators.coupled, kinematics)
        servo = contact.servo_of_actuators(actuators, model, q, control)[0].tendons
        error, error_rate = servo.length - lengths, servo.rate - J @ v
        by_servo = servo.stiffness * error + servo.damping * error_rate
        found = (x.states(model, q, v, control).force for x in (actuators, plain))
        return *found, jnp.where(servo.stiffness > 0, by_servo, jnp.nan)

    data, moved = mujoco.MjData(compiled), 0
    drives_no_joint = np.array([joint is None for joint in actuators.joints])
    dynamic = compiled.actuator_actadr >= 0
    for _ in range(20):
        data.qpos[:], data.qvel[:] = rng.normal(size=5), rng.normal(size=4)
        mujoco.mj_normalizeQuat(compiled, data.qpos)
        data.ctrl[:], data.act[:] = rng.uniform(-15, 15, n), rng.uniform(-15, 15, compiled.na)
        mujoco.mj_forward(compiled, data)
        control = np.where(dynamic, np.append(data.act, 0)[compiled.actuator_actadr], data.ctrl)
        coordinates = model, imported.coordinates
        q, v = our_state(coordinates, data.qpos.copy(), data.qvel.copy())
        found, unmoved, by_servo = forces(q, v, control)
        close(found, data.actuator_force, 1e-12)
        moved += np.abs(unmoved - found) > 1e-9
        expected = np.where(np.isnan(by_servo), by_servo, found[drives_no_joint])
        np.testing.assert_allclose(by_servo, expected, rtol=1e-12, atol=1e-12)
    assert np.all((moved > 3) == np.isfinite(actuators.periods))
    for periods, message in (([1.0], "periods has"), (np.zeros(n), "above 0 in each entry")):
        with pytest.raises(rbd.ArgumentError, match=message):
            AffineActuators(n * ["wheel"], periods=periods)


@pytest.mark.slow
def test_kinematics_in_place_of_q(robot):
    _, data, q, v, _ = state(np.random.default_rng(1), robot)
    kinematics = rbd.forward_kinematics(robot.model, q)
    found, expected = (
        robot.actuators(robot.model, x, v, jnp.asarray(data.ctrl)) for x in (kinematics, q)
    )
    np.testing.assert_array_equal(found, expected)


def test_transmissions_of_a_robot_without_joints():
    weld = rbd.model.JointSpec("weld", rbd.model.Fixed(), None, "stand")
    model = rbd.build_model([rbd.model.Link("stand")], [weld])
    empty = jnp.zeros(0)
    actuators = AffineActuators(
        [FrameForce("stand", (1, 0, 0)), FrameDisplacement("stand", "stand", (1, 0, 0))]
    )
    assert actuators(model, empty, empty, jnp.ones(2)).shape == (0,)


# -------------------------------------------------------------------------------------------- laws

PEAK = np.array([30.0, 80.0])
BOTH = Muscles(PEAK, [[0.2, 0.5], [0.1, 0.2]], passive_peak=[1.3, 0.4], eccentric_peak=[1.2, 1.0])


@jax.jit
def forces(muscles, length, rate):
    return muscles.forces(length, rate)


def lengths_at(scaled):
    """The lengths of `BOTH` with these scaled lengths."""
    least, largest = BOTH.length_range.T
    return jnp.asarray(least + (scaled - 0.75) * (largest - least) / 0.3)


@pytest.mark.parametrize(
    ("scaled", "speed", "gain", "passive"),
    [
        (1, 0, (1, 1), 0),  # the optimal length at rest
        (0.5, 0, (0, 0), 0),  # the ends of the active range
        (1.6, 0, (0, 0), 1.5),
        (0.75, 0, (0.5, 0.5), 0),  # the middles of both flanks
        (1.3, 0, (0.5, 0.5), 0.5),
        (1, -1, (0, 0), 0),  # the largest speed of shortening, and half of it
        (1, -2, (0, 0), 0),
        (1, -0.5, (0.25, 0.25), 0),
        (1, 0.2, (1.2, 1), 0),  # the largest force, and beyond
        (1, 7, (1.2, 1), 0),
        (1, 0.1, (1.15, 1), 0),
        (1.45, 0, (0.125, 0.125), 1),
    ],
)
def test_the_curves_of_muscles_at_their_ends_and_middles(scaled, speed, gain, passive):
    optimal = (BOTH.length_range[:, 1] - BOTH.length_range[:, 0]) / 0.3
    found = forces(BOTH, lengths_at(scaled), jnp.asarray(speed * 1.5 * optimal))
    close(found.gain, -PEAK * np.array(gain), 1e-12)
    close(found.bias, -PEAK * passive * BOTH.passive_peak, 1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_curves_and_their_derivatives_are_continuous_and_finite(dtype):
    """In all parameters. With an eccentric peak of 1, the curve of the speed has a corner at 0."""
    scaled, speed = np.meshgrid([0.4, 0.5, 0.75, 1, 1.3, 1.6, 1.7], [-2, -1, 0, 0.2, 3])
    optimal = (BOTH.length_range[:, 1] - BOTH.length_range[:, 0]) / 0.3
    at = jax.vmap(jax.grad(sum_of_forces, argnums=(0, 1, 2)), (None, 0, 0))
    muscles = jax.tree.map(lambda x: jnp.asarray(x, dtype), BOTH)
    smooth = np.array([True, False]) | (speed.ravel()[:, None] != 0)
    length = np.stack([np.asarray(lengths_at(x)) for x in scaled.ravel()])
    rate = speed.ravel()[:, None] * 1.5 * optimal
    below, above = (
        jax.jit(at)(muscles, *(jnp.asarray(x + s * 1e-9, dtype) for x in (length, rate)))
        for s in (-1, 1)
    )
    for x, y in zip(jax.tree.leaves(below), jax.tree.leaves(above)):
        assert x.dtype == dtype
        assert jnp.all(jnp.isfinite(x))
        if dtype == "float64":
            shape = smooth.shape + (1,) * (x.ndim - 2)
            difference = np.where(smooth.reshape(shape), x - y, 0)
            assert np.max(np.abs(difference)) < 1e-5 * (1 + np.max(np.abs(x)))


def sum_of_forces(muscles, length, rate):
    found = muscles.forces(length, rate)
    return jnp.sum(found.gain + found.bias)


def test_the_time_of_an_activation():
    """Rise and fall, their scale with the activation, and the middle of a smooth change."""
    a, u = jnp.array([0.0, 1, 0.5, 0.5, -3]), jnp.array([1.0, 0, 0.5, 0.6, 0])
    width = jnp.array([0, 0, 0.4, 0.4, 0])
    found = jax.jit(activation_time)(a, u, np.full(5, 0.01), np.full(5, 0.04), width)
    rise, fall = 0.01 * 1.25, 0.04 / 1.25
    x = 0.75
    blend = x**3 * (6 * x * x - 15 * x + 10)
    mixed = [(rise + fall) / 2, fall + (rise - fall) * blend]
    close(found, [0.005, 0.02, *mixed, 0.005], 1e-15)


def test_a_value_at_a_bound_has_the_derivative_one():
    """So a solver whose bounds are those of the commands has the right gradients there."""
    muscle = Filter([0.01], kinds=["muscle"], early=[True])
    motor = AffineActuators(["wheel"], control_range=[[-1, 1]])
    model = from_mujoco(world()).model
    q, v = rbd.neutral(model), jnp.zeros(model.nv)
    at = jax.grad(lambda u: muscle.push(jnp.zeros(1), u, 0.001)[1][0])
    close(at(jnp.zeros(1)), [0.001 / (0.01 / 0.5)], 1e-14)
    force = jax.grad(lambda u: jnp.sum(motor(model, q, v, u)))
    for value, slope_ in ((1.0, 1), (-1.0, 1), (1.1, 0)):
        np.testing.assert_array_equal(force(jnp.array([value])), [slope_])


def test_integrators_and_muscles_of_filters():
    """An integrator adds, and keeps its activation; a muscle clips its excitation to [0, 1]."""
    filters = Filter(
        [2.0, 0.01, 0.01], kinds=("integrator", "muscle", "exact"), release_time=[1, 0.05, 1]
    )
    activation, command = jnp.array([0.3, 0.2, 0.2]), jnp.array([4.0, -1.0, -1])
    after, filtered = filters.push(activation, command, 0.001)
    close(after[:2], [0.3 + 0.001 / 2 * 4, 0.2 - 0.001 / (0.05 / 0.8) * 0.2], 1e-15)
    np.testing.assert_array_equal(filtered, activation)
    np.testing.assert_array_equal(filters.init(jnp.array([4.0, 1.5, 1.5])), [0, 1, 1.5])
    assert Filter([0.0, 0.0], early=(True, False)).instant.tolist() == [True, False]


def test_moment_arms_are_the_derivatives_of_lengths(robot):
    """For tendons, cranks, and a ball that turns about its rotation vector."""
    model, coupled = robot.model, robot.actuators.coupled
    _, _, q, v, _ = state(np.random.default_rng(7), robot)
    ball = model.joint("ball")
    v = v.at[ball.v].set(jax.jit(rbd.so3.quaternion_log)(q[ball.q]))

    @jax.jit
    def rates(t):
        kinematics = rbd.forward_kinematics(model, rbd.integrate(model, q, t * v))
        found = transmission_lengths_and_arms(model, coupled, kinematics)
        return found.lengths, found.moment_arms @ v

    others = FrameForce | FrameDisplacement
    chosen = np.flatnonzero([not isinstance(x, others) for x in coupled])
    change = slope(lambda t: rates(t)[0], 1e-4)[chosen]
    close(rates(jnp.zeros(()))[1][chosen], change, 1e-9)
    assert change.shape == (6,)
    assert np.all(np.abs(change) > 1e-2)


# ------------------------------------------------------------------------------------- derivatives


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_the_derivatives_of_forces_and_activations(robot, mode):
    """In q, v, activations, controls, and all parameters of actuators, muscles and filters."""
    _, data, q, v, activation = state(np.random.default_rng(3), robot)
    rng = np.random.default_rng(4)
    operands = robot.actuators, robot.filter, v, jnp.asarray(activation), jnp.asarray(data.ctrl)
    operands = jax.tree.map(jnp.asarray, operands)

    def values(t, dq, direction):
        actuators, filters, v, activation, control = jax.tree.map(
            lambda x, dx: jnp.where(jnp.isfinite(x) & (x != 0), x + t * dx, x),
            operands,
            direction,
        )
        after, filtered = filters.push(activation, control, DT)
        at = rbd.integrate(robot.model, q, t * dq)
        found = jnp.concatenate([after, actuators(robot.model, at, v, filtered)])
        return found, found

    derivative_and_values = jax.jit(mode(values, has_aux=True))
    for _ in range(2):
        direction = jax.tree.map(lambda x: jnp.asarray(1e-2 * rng.normal(size=x.shape)), operands)
        dq = jnp.asarray(rng.normal(size=robot.model.nv))
        found, _ = derivative_and_values(jnp.zeros(()), dq, direction)
        close(found, slope(lambda t: derivative_and_values(t, dq, direction)[1], 1e-4), 1e-8)
        assert np.count_nonzero(found) > 18


# ----------------------------------------------------------------------------------- contact steps


def fixed_robot():
    """The robot without its free joint and its ball, whose axes turn in a time step."""
    text = WORLD.replace('<freejoint name="free"/>', "").replace('type="ball"', 'axis="0 1 1"')
    kept = [line for line in text.splitlines() if '="ball" gear' not in line]
    text = "\n".join(line for line in kept if '="free" gear' not in line)
    return from_mujoco(mujoco.MjModel.from_xml_string(text))


def test_a_servo_has_the_tangent_of_the_forces():
    """The impulse of a step is that of the tangent, at the lengths and rates after the step."""
    robot, rng, dt = fixed_robot(), np.random.default_rng(5), 0.004
    model, actuators = robot.model, robot.actuators
    q, v = jnp.array([0.5, 0.3, -0.2, 0.4]), jnp.asarray(rng.normal(size=4))
    control = jnp.asarray(rng.uniform(0.2, 0.7, len(actuators.names)))

    @jax.jit
    def both(q, v):
        servo, tau = contact.servo_of_actuators(actuators, model, q, control, v)
        step = contact.contact_step(model, contact.Scene(()), q, v, tau, dt, servo=servo)

        def force(x):
            return forces_at(actuators, model, q, v, control, *x)

        found = transmission_lengths_and_arms(
            model, actuators.coupled, rbd.forward_kinematics(model, q)
        )
        joints = np.array([model.joint(name).v.start for name in actuators.driven_joints])
        J = jnp.concatenate([jnp.eye(model.nv)[joints], found.moment_arms])
        before = jnp.zeros(len(J)), jnp.zeros(len(J))
        change = dt * (J @ step.v), J @ (step.v - v)
        values, tangent = jax.jvp(force, (before,), (change,))
        n = len(actuators.driven_joints)
        impulse = dt * tau + step.joint_impulse.servo - step.tendon_impulse @ J[n:]
        return impulse, dt * (values + tangent) @ J

    impulse, expected = both(q, v)
    close(impulse, expected, 1e-10)


def forces_at(actuators, model, q, v, control, dx, du):
    """The forces on joints, tendons and other transmissions at displaced lengths and rates."""
    found = transmission_lengths_and_arms(
        model, actuators.coupled, rbd.forward_kinematics(model, q)
    )
    joints = [model.joint(name) for name in actuators.driven_joints]
    x = jnp.concatenate([*(q[j.q] for j in joints), found.lengths]) + dx
    u = jnp.concatenate([*(v[j.v] for j in joints), found.moment_arms @ v]) + du
    order = np.array(actuators.outputs)
    gain, bias = gain_and_bias(actuators, actuators.gear * x[order], actuators.gear * u[order])
    return jnp.zeros(len(x)).at[order].add(actuators.gear * (gain * control + bias))


def test_a_servo_of_a_muscle_that_weakens_as_it_grows_has_no_stiffness(robot):
    """At rest on the descending flank; joint forces and servo together are still the actuators."""
    kinds = {
        "free": joint_muscle(scaled_range=[[1.1, 1.5]]),
        "limited": joint_muscle(scaled_range=[[1.1, 1.5]], force_range=[[-1, 0]]),
    }
    q, v, control = robot.q0, np.zeros(robot.model.nv), np.array([0.8])

    @functools.partial(jax.jit, static_argnums=0)
    def servo_and_forces(name, q, v):
        found = contact.servo_of_actuators(kinds[name], robot.model, q, control, v)
        return *found, kinds[name](robot.model, q, v, control)

    servo, tau, force = servo_and_forces("free", q, v)
    dof = robot.model.joint("wheel").v.start
    assert servo.control.stiffness[dof] == 0
    assert servo.control.damping[dof] > 0.1
    np.testing.assert_array_equal(servo.velocity, v)
    close(tau, force, 1e-14)
    assert tau[dof] < -1
    servo, tau, _ = servo_and_forces("limited", q, v)
    np.testing.assert_array_equal([tau[dof], servo.control.damping[dof]], [-1, 0])


# ------------------------------------------------------------------------------------------ errors


def joint_muscle(force_range=None, joint_force_range=None, **change):
    settings = {"peak_force": [4.0], "length_range": [[-1, 1]], "passive_peak": [0]} | change
    return AffineActuators(
        ["wheel"],
        muscles=Muscles(**settings),
        force_range=force_range,
        joint_force_range=joint_force_range,
    )


def test_a_flag_of_numpy_is_a_flag():
    torque = BallTorque("ball", [1, 0, 0], in_parent=np.bool_(True))
    assert jax.tree.structure(torque) == jax.tree.structure(BallTorque("ball", [1, 0, 0], True))


WRONG = {
    "peak_force is .* expected finite, 0 or more": lambda: joint_muscle(peak_force=[-1.0]),
    r"length_range has shape \(1, 3\)": lambda: joint_muscle(length_range=[[0, 1, 2]]),
    "length_range is .* the second value above the first": lambda: joint_muscle(
        length_range=[[1.0, 1.0]]
    ),
    "scaled_range is .* finite": lambda: joint_muscle(scaled_range=[[0.5, np.inf]]),
    "active_range is .* the first value below 1": lambda: joint_muscle(active_range=[[1.0, 2.0]]),
    "largest_speed is .* more than 0": lambda: joint_muscle(largest_speed=[0.0]),
    "passive_peak is .* finite, 0 or more": lambda: joint_muscle(passive_peak=[np.inf]),
    "eccentric_peak is .* finite, 1 or more": lambda: joint_muscle(eccentric_peak=[0.9]),
    r"length has shape \(1,\) .* expected \(2,\)": lambda: BOTH.forces(jnp.ones(1), jnp.ones(2)),
    "rate has shape .* int64, expected": lambda: BOTH.forces(jnp.ones(2), jnp.arange(2)),
    "muscles has 2 entries, expected 1": lambda: AffineActuators(["wheel"], muscles=BOTH),
    "force_axes is 'local', expected 'frame' or 'world'": lambda: FrameForce(
        "hand", (1, 0, 0), force_axes="local"
    ),
    r"moment has shape \(2,\)": lambda: FrameForce("hand", moment=[1.0, 2.0]),
    "force and moment are None": lambda: FrameForce("hand"),
    "direction and axis are None": lambda: FrameDisplacement("hand", "elbow"),
    "in_parent is 'no'": lambda: BallTorque("ball", [1, 0, 0], "no"),
    "limited_joints is .*expected each joint once": lambda: AffineActuators(
        ["wheel"], limited_joints=["hinge", "hinge"]
    ),
    "early is 'no'": lambda: Filter([0.1, 0.1], early="no"),
    "early is .2.": lambda: Filter([0.1], early=[2]),
    "rate has dtype float64, expected the dtype of length, float32": lambda: BOTH.forces(
        jnp.ones(2, "float32"), jnp.ones(2)
    ),
    "rod is 0.0, expected finite, above 0": lambda: SliderCrank("a", "b", 0.0),
    "axis is .*nan": lambda: BallTorque("ball", [0, 0, np.nan]),
    "time_constant is .* finite for muscles": lambda: Filter([np.inf], kinds=["muscle"]),
    "release_time is .* finite, more than 0": lambda: Filter(
        [0.1], kinds=["muscle"], release_time=[0.0]
    ),
    "smoothing is .* 0 or more": lambda: Filter([0.1], kinds=["muscle"], smoothing=[-0.1]),
    "smoothing is .* because no filter is a muscle": lambda: Filter([0.1], smoothing=[0.1]),
    "kinds is .'lag'., expected 1 of exact, explicit": lambda: Filter([0.1], kinds=["lag"]),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments(message):
    with pytest.raises(rbd.errors.ArgumentError, match=message):
        WRONG[message]()


@pytest.mark.parametrize(
    ("message", "actuators"),
    [
        ("'slide' is no spherical joint", AffineActuators([BallTorque("slide", [1, 0, 0])])),
        ("no frame 'nowhere'", AffineActuators([FrameForce("nowhere", (1, 0, 0))])),
    ],
)
def test_wrong_names(robot, message, actuators):
    with pytest.raises(rbd.errors.ArgumentError, match=message):
        actuators(robot.model, robot.q0, jnp.zeros(robot.model.nv), jnp.ones(1))


@pytest.mark.parametrize(
    ("message", "actuators"),
    [
        ("v is None, expected the velocity", joint_muscle()),
        ("and the force on joint 'wheel' has a limit", joint_muscle(joint_force_range=[[-9, 1]])),
        (
            "'wheel' has a limit of the force, and 'force on hand' acts on several joints",
            AffineActuators(
                [FrameForce("hand", (1, 0, 0))],
                joint_force_range=[[-1, 1]],
                limited_joints=["wheel"],
            ),
        ),
        (
            "the stiffness of tendon 'gear' is -2.0, expected 0 or more",
            AffineActuators([FixedTendon("gear", {"wheel": 1.0})], bias=[[0.0, 2.0, 0.0]]),
        ),
    ],
)
def test_wrong_servos(robot, message, actuators):
    with pytest.raises(rbd.errors.ArgumentError, match=message):
        contact.servo_of_actuators(actuators, robot.model, robot.q0, jnp.ones(1))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('gear="1 0.4', 'armature="1" gear="1 0.4', "armature with a transmission to a joint"),
        (PUSH, '<adhesion name="push" body="hand" ctrlrange="0 1"/>', "transmission to a body"),
        (PUSH, f'<general joint="hinge" {CURVE}/>', "muscle with gaintype fixed"),
        (PUSH, f'<general joint="hinge" gaintype="muscle" {GAIN} {CURVE}/>', "different"),
    ],
)
def test_actuators_without_counterpart(old, new, message):
    compiled = mujoco.MjModel.from_xml_string(WORLD.replace(old, new))
    with pytest.raises(rbd.errors.ModelError, match=message):
        from_mujoco(compiled)
