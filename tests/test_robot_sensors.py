"""All sensors of a robot by name: MuJoCo, laws, derivatives, batches and errors."""

import os

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd.io.mujoco import from_mujoco
from jaxrbd.sensors import (
    ActuatorSensor,
    FrameSensor,
    JointSensor,
    RobotSensors,
    StateSensor,
    SubtreeSensor,
    TendonSensor,
)
from jaxrbd.tendons import FixedTendon, Tendons, tendon_dynamics
from support.finite_differences import slope
from support.zoo import close

# A flying base carries an arm of a hinge, a ball and a slide. A tool is fixed to the arm, and it
# carries a wheel. A pendulum hangs in a frame that is fixed to the world.
BODIES = """
  <worldbody>
    <site name="beacon" pos="0.3 -0.2 0.5" euler="20 -10 40"/>
    <camera name="corner" pos="-0.4 0.2 1" euler="10 20 30"/>
    <body name="base" pos="0 0 1">
      <freejoint name="free"/>
      <geom name="box" type="box" size="0.2 0.1 0.05" pos="0.03 0.02 0" euler="5 10 0"/>
      <site name="imu" pos="0.1 0.1 0" euler="10 0 70"/>
      <body name="upper" pos="0.2 0 0">
        <joint name="hinge" axis="0 1 0.3" pos="0 0.02 0" stiffness="3" springref="0.2"/>
        <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03"/>
        <site name="shoulder" pos="0.1 0 0.04"/>
        <body name="tool" pos="0.3 0 0" euler="0 20 0">
          <geom type="capsule" fromto="0 0 0 0.2 0.1 0" size="0.03"/>
          <geom name="ball" type="sphere" size="0.05" pos="0.1 0.1 0.2" euler="1 2 3"/>
          <site name="wrist" pos="0.01 0 0.04" euler="15 -30 10"/>
          <body name="blade" pos="0.1 0.1 0.05" euler="40 0 0">
            <geom type="box" size="0.05 0.02 0.01" pos="0.02 0 0"/>
            <camera name="eye" pos="0.01 0 0.02" euler="5 15 25"/>
            <body name="lower" pos="0.1 0 0">
              <joint name="ball" type="ball"/>
              <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03"/>
              <site name="elbow" pos="0.15 0.01 0.05" euler="30 -20 10"/>
              <body name="hand" pos="0.3 0 0">
                <joint name="slide" type="slide" axis="1 0 0" range="-0.1 0.4"/>
                <geom type="sphere" size="0.04"/>
                <site name="palm" euler="0 40 5"/>
              </body>
            </body>
          </body>
        </body>
      </body>
    </body>
    <body name="wall" pos="0.2 0.6 0.3" euler="0 0 50">
      <geom type="box" size="0.02 0.02 0.1" contype="0" conaffinity="0"/>
      <site name="hook" pos="0 0.1 0.05"/>
      <body name="pendulum" pos="0.1 0 0">
        <joint name="swing" axis="1 0 0" armature="0.02"/>
        <geom type="cylinder" size="0.03 0.1" pos="0 0 -0.1"/>
      </body>
    </body>
  </worldbody>
  <tendon>
    <spatial name="cord" stiffness="20"><site site="shoulder"/><site site="elbow"/></spatial>
    <fixed name="sum"><joint joint="hinge" coef="0.4"/><joint joint="slide" coef="-0.7"/></fixed>
  </tendon>
  <actuator>
    <motor name="hinge" joint="hinge" gear="2" ctrlrange="-1 0.9"/>
    <position name="slide" joint="slide" kp="30" kv="2" gear="0.5" forcerange="-4 4"/>
    <motor name="cord" tendon="cord" gear="1.5"/>
    <position name="second" tendon="cord" kp="8"/>
    <motor name="sum" tendon="sum"/>
  </actuator>
"""
SENSORS = """
    <framepos name="place" objtype="site" objname="palm"/>
    <framepos name="from eye" objtype="geom" objname="box" reftype="camera" refname="eye"/>
    <framepos name="from wall" objtype="body" objname="hand" reftype="site" refname="hook"/>
    <framequat name="turn" objtype="xbody" objname="hand"/>
    <framequat name="turn of body" objtype="body" objname="tool" reftype="xbody" refname="base"/>
    <framequat name="fixed" objtype="camera" objname="corner" reftype="site" refname="imu"/>
    <framexaxis name="x" objtype="geom" objname="ball"/>
    <frameyaxis name="y" objtype="site" objname="wrist" reftype="site" refname="imu"/>
    <framezaxis name="z" objtype="xbody" objname="lower"/>
    <framelinvel name="move" objtype="site" objname="elbow"/>
    <framelinvel name="relative" objtype="site" objname="palm" reftype="site" refname="imu"/>
    <framelinvel name="beacon" objtype="site" objname="beacon" reftype="body" refname="tool"/>
    <frameangvel name="spin" objtype="body" objname="lower"/>
    <frameangvel name="spin of eye" objtype="camera" objname="eye" reftype="xbody" refname="hand"/>
    <framelinacc name="pull" objtype="site" objname="palm"/>
    <framelinacc name="world" objtype="site" objname="beacon"/>
    <frameangacc name="swirl" objtype="geom" objname="ball"/>
    <gyro name="gyro" site="imu" noise="0.3"/>
    <gyro name="clipped" site="palm" cutoff="0.4"/>
    <velocimeter name="velocimeter" site="wrist"/>
    <accelerometer name="accelerometer" site="wrist"/>
    <magnetometer name="compass" site="imu"/>
    <jointpos name="hinge" joint="hinge"/>
    <jointvel name="swing" joint="swing"/>
    <jointvel name="hinge rate" joint="hinge"/>
    <jointactuatorfrc name="slide force" joint="slide"/>
    <jointactuatorfrc name="hinge force" joint="hinge"/>
    <ballquat name="ball" joint="ball"/>
    <ballangvel name="ball rate" joint="ball"/>
    <tendonpos name="sum" tendon="sum"/>
    <tendonpos name="cord" tendon="cord"/>
    <tendonvel name="cord rate" tendon="cord"/>
    <tendonactuatorfrc name="cord force" tendon="cord"/>
    <tendonactuatorfrc name="sum force" tendon="sum"/>
    <actuatorpos name="length" actuator="slide"/>
    <actuatorvel name="rate" actuator="slide"/>
    <actuatorfrc name="force" actuator="slide"/>
    <actuatorfrc name="pulls" actuator="hinge"/>
    <subtreecom name="all" body="world"/>
    <subtreecom name="arm" body="upper"/>
    <subtreecom name="tool center" body="tool"/>
    <subtreelinvel name="tool velocity" body="tool"/>
    <subtreelinvel name="wall" body="wall"/>
    <subtreeangmom name="whole" body="base"/>
    <subtreeangmom name="tool momentum" body="tool"/>
    <force name="grip" site="palm"/>
    <force name="wrist" site="wrist"/>
    <force name="anchor" site="hook"/>
    <force name="elbow" site="elbow"/>
    <torque name="wrist torque" site="wrist"/>
    <torque name="elbow torque" site="elbow"/>
    <e_potential name="potential"/>
    <e_kinetic name="kinetic"/>
    <clock name="clock"/>
"""
LEFT_OUT = """
    <touch name="touch" site="palm"/>
    <rangefinder name="ray" site="imu"/>
    <jointlimitpos name="limit" joint="slide"/>
    <user name="mine" dim="2"/>
"""


def world(sensors):
    options = '<option magnetic="0.1 -0.4 0.3"><flag energy="enable" contact="disable"/></option>'
    return mujoco.MjModel.from_xml_string(
        f'<mujoco><compiler autolimits="true"/>{options}{BODIES}<sensor>{sensors}</sensor></mujoco>'
    )


@pytest.fixture(scope="module")
def compiled():
    return world(SENSORS)


@pytest.fixture(scope="module")
def robot(compiled):
    return from_mujoco(compiled)


@pytest.fixture(scope="module")
def read(robot):
    """A function of the state and the control that returns all readings.

    As in MuJoCo, a cord is no part of the links: its pull is an external force. The cord ends on
    the link `upper`, which is one body with the tool, and not on the tool.
    """

    @jax.jit
    def readings(q, v, control, time, robot=robot):
        model = robot.model
        forces = robot.actuators.states(model, q, v, control).force
        cord = robot.tendons.tensions(model, q, v) - jnp.array([1.5 * forces[2] + forces[3], 0])
        f_ext = robot.tendons.wrenches(model, q, cord)
        f_ext = f_ext.at[model.frame_bodies[model.frame_index("upper")]].set(0)
        tau = robot.actuators(model, q, v, control) + robot.passive(model, q, v)
        a = tendon_dynamics(model.with_dissipation(), robot.tendons, q, v, tau)
        return robot.sensors(
            model,
            q,
            v,
            a,
            f_ext,
            actuators=robot.actuators,
            control=control,
            tendons=robot.tendons,
            passive=robot.passive,
            time=time,
        )

    return readings


def random_state(compiled, seed):
    """A state of MuJoCo, with forward dynamics and with the energies."""
    rng, data = np.random.default_rng(seed), mujoco.MjData(compiled)
    data.qpos[:] = compiled.qpos0
    mujoco.mj_integratePos(compiled, data.qpos, rng.normal(size=compiled.nv), 0.4)
    data.qpos[compiled.joint("slide").qposadr] = rng.uniform(0, 0.3)
    data.qvel[:] = rng.normal(size=compiled.nv)
    data.ctrl[:], data.time = rng.normal(size=compiled.nu), rng.uniform()
    mujoco.mj_forward(compiled, data)
    return data


def of_model(robot, data):
    """The state of MuJoCo as q, v and the control."""
    q = robot.coordinates.q(robot.model, data.qpos)
    return q, robot.coordinates.v(robot.model, q, data.qvel), jnp.array(data.ctrl)


def test_readings_are_those_of_mujoco(compiled, robot, read):
    assert robot.sensors.size == compiled.nsensordata
    for seed in range(3):
        data = random_state(compiled, seed)
        found = robot.sensors.by_name(read(*of_model(robot, data), data.time))
        for name in robot.sensors.names:
            theirs, ours = data.sensor(name).data, np.array(found[name])
            if len(theirs) == 4 and theirs @ ours < 0:  # quaternions of the same rotation
                ours = -ours
            scale = max(1.0, np.max(np.abs(theirs)))
            close(ours / scale, theirs / scale, 1e-9, f"{name}, seed {seed}")


@pytest.mark.slow
def test_rates_are_the_derivatives_of_positions(compiled, robot):
    """The derivative along the motion of a place in a moving place, of a tendon and of a center."""
    model, names = robot.model, ["sum", "cord", "arm", "tool center"]
    sensors = robot.sensors.chosen(names)
    place = {"frame": "hand", "X_FP": [0.1, 0.2, 0.3], "reference": "base", "X_RO": [0, 0.4, 0]}
    measured = RobotSensors(
        [
            *sensors.sensors,
            FrameSensor("place", "position", **place),
            SubtreeSensor("arm velocity", "linear_velocity", "upper"),
            *robot.sensors.chosen(["tool velocity"]).sensors,
            FrameSensor("velocity", "linear_velocity", **place),
            TendonSensor("sum rate", "rate", "sum"),
            TendonSensor("cord rate", "rate", "cord"),
        ]
    )
    q, v, _ = of_model(robot, random_state(compiled, 5))

    @jax.jit
    def with_rates(q, v):
        def readings(t):
            moved = rbd.integrate(model, q, t * v)
            return measured(model, moved, v, tendons=robot.tendons)

        return jax.jvp(readings, (0.0,), (1.0,))

    found, rates = (measured.by_name(x) for x in with_rates(q, v))
    for rate, name in {
        "arm velocity": "arm",
        "tool velocity": "tool center",
        "velocity": "place",
        "sum rate": "sum",
        "cord rate": "cord",
    }.items():
        close(found[rate], rates[name], 1e-12, rate)


def test_the_pull_of_a_tendon_is_its_generalized_force(compiled, robot):
    q, v, _ = of_model(robot, random_state(compiled, 2))
    tensions = jnp.array([2.0, 3.0])
    f_ext = robot.tendons.wrenches(robot.model, q, tensions)
    still = jnp.zeros_like(v)
    push = rbd.rnea(robot.model, q, still, still) - rbd.rnea(robot.model, q, still, still, f_ext)
    arms = robot.tendons.moment_arms(robot.model, q)[0]  # a fixed tendon acts in joints
    close(push, -2.0 * arms, 1e-12)


@pytest.mark.slow
def test_readings_have_derivatives(compiled, robot):
    """In the state and the accelerations along a direction, against central differences."""
    model = robot.model
    sensors = robot.sensors.chosen(
        ["turn", "relative", "swirl", "accelerometer", "ball", "whole", "wrist", "potential"]
    )
    q, v, _ = of_model(robot, random_state(compiled, 7))
    a, dq, dv, da = np.random.default_rng(1).normal(size=(4, len(v)))

    @jax.jit
    def along(t):
        moved = rbd.integrate(model, q, t * dq)
        return sensors(model, moved, v + t * dv, a + t * da, passive=robot.passive)

    derivative = jax.jvp(along, (0.0,), (1.0,))[1]
    close(derivative, slope(along), 1e-8)


@pytest.mark.slow
def test_a_batch_in_single_precision(compiled, robot, read):
    states = [of_model(robot, random_state(compiled, seed)) for seed in range(3)]
    single, actuators = robot.model.astype(jnp.float32), robot.actuators
    few = robot.sensors.chosen(["relative", "all", "turn", "tool momentum", "gyro", "slide force"])

    @jax.jit
    def of_one(q, v, control):
        return few(single, q, v, actuators=actuators, control=control)

    batch = [jnp.stack(x).astype(jnp.float32) for x in zip(*states)]
    found = few.by_name(jax.vmap(of_one)(*batch))
    assert found["turn"].shape == (3, 4)
    for i, state in enumerate(states):
        exact = robot.sensors.by_name(read(*state, 0.0))
        for name, values in found.items():
            close(values[i], exact[name], 3e-6, name)


def test_errors_of_sensors_have_their_deviation(robot):
    gyros = robot.sensors.chosen(["gyro", "clipped"])
    keys = jax.random.split(jax.random.key(0), 4000)
    noisy = jax.vmap(gyros.with_noise, (0, None))(keys, jnp.ones(6))
    close(np.std(noisy[:, :3], axis=0), [0.3] * 3, 0.02)
    close(np.mean(noisy[:, :3], axis=0), [1.0] * 3, 0.03)
    assert np.all(noisy[:, 3:] == 1)


@pytest.mark.skipif("JAXRBD_TEST_ANNOTATIONS" in os.environ, reason="wrong types")
@pytest.mark.gives_nan
def test_the_errors_of_traced_readings_check_the_shape_and_the_dtype():
    quiet, noisy = (RobotSensors([StateSensor("t", "time", noise=x)]) for x in (0.0, 0.5))
    key = jax.random.key(0)
    for sensors in (quiet, noisy):
        traced = jax.jit(lambda x, sensors=sensors: sensors.with_noise(key, x))
        for readings, message in (
            (jnp.ones(2), r"readings has shape \(2,\), expected 1 values"),
            (jnp.ones(()), r"readings has shape \(\), expected 1 values"),
            (jnp.ones(1, int), "readings has dtype int.*, expected floats"),
        ):
            for call in (traced, lambda x, sensors=sensors: sensors.with_noise(key, x)):
                with pytest.raises(rbd.ArgumentError, match=message):
                    call(readings)
        for readings in ([[1.0], [2.0, 3.0]], None):
            with pytest.raises(rbd.ArgumentError, match=r"readings is .*, expected an array"):
                sensors.with_noise(key, readings)
        assert np.isnan(traced(jnp.array([jnp.nan])))[0]
    with pytest.raises(rbd.ArgumentError, match="noise of sensor 't' is traced, expected a known"):
        jax.jit(lambda x: StateSensor("t", "time", noise=x).noise)(0.5)
    assert StateSensor("t", "time", noise=jnp.array(0.5)).noise == 0.5


def test_sensors_without_counterpart_are_named():
    """They change no motion, so the import is strict and says at their use what is missing."""
    robot = from_mujoco(world(LEFT_OUT + '<gyro name="gyro" site="imu"/>'))
    assert robot.sensors.names == ("gyro",)
    assert [name for name, _ in robot.sensors.left_out] == ["touch", "ray", "limit", "mine"]
    with pytest.raises(rbd.ArgumentError, match=r"sensor 'ray' was left out: .*'rangefinder'"):
        robot.sensors.chosen(["gyro", "ray"])
    with pytest.raises(rbd.ArgumentError, match="no sensor 'gyros'; the sensors are 'gyro'; did"):
        robot.sensors.chosen(["gyros"])
    # Sensors of actuators that were not read, and of joints whose forces are added up.
    force = '<actuatorfrc name="force" actuator="hinge"/>'
    compiled = world(force)
    compiled.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ACTUATION
    assert from_mujoco(compiled).sensors.left_out == (
        ("force", "the actuator 'hinge' was left out"),
    )
    compiled.opt.disableflags = mujoco.mjtDisableBit.mjDSBL_SENSOR
    assert from_mujoco(compiled).sensors.left_out == (("force", "the file disables all sensors"),)
    follower = "<mujoco><worldbody><body><joint name='x'/><geom size='1'/><body><joint name='y'/>"
    follower += "<geom size='1'/></body></body></worldbody><equality><joint joint1='y' joint2='x'/>"
    follower += "</equality><actuator><motor joint='x'/></actuator>"
    follower += "<sensor><jointactuatorfrc name='f' joint='x'/></sensor></mujoco>"
    compiled = mujoco.MjModel.from_xml_string(follower)
    assert from_mujoco(compiled).sensors.names == ("f",)
    assert from_mujoco(compiled, mimic=True).sensors.names == ()


def test_the_energies_and_the_centers_of_strange_robots():
    """A tendon with inertia; and a link without mass, whose center is at its origin."""
    text = """<mujoco><option><flag energy="enable"/></option><worldbody>
      <body pos="0 0 1"><joint name="a"/><geom size="0.1" pos="0.3 0 0"/>
        <body name="empty" pos="0.2 0.1 0"><site name="s"/></body></body></worldbody>
      <tendon><fixed name="t" armature="0.5"><joint joint="a" coef="2"/></fixed></tendon>
      <sensor><e_kinetic name="e"/><subtreecom name="c" body="empty"/></sensor></mujoco>"""
    compiled = mujoco.MjModel.from_xml_string(text)
    robot, data = from_mujoco(compiled), mujoco.MjData(compiled)
    data.qpos[:], data.qvel[:] = 0.4, 1.3
    mujoco.mj_forward(compiled, data)
    found = robot.sensors(robot.model, data.qpos.copy(), data.qvel.copy(), tendons=robot.tendons)
    close(found, [data.energy[1], *data.body("empty").xpos], 1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FrameSensor("a", "speed", "hand"), "quantity of sensor 'a' is 'speed', expected"),
        (lambda: FrameSensor("a", "gyroscope", 3), "^frame of sensor 'a' is 3, expected a name"),
        (
            lambda: FrameSensor("a", "gyroscope", "hand", reference="base"),
            "sensor 'a' measures 'gyroscope' and has a reference, which only",
        ),
        (lambda: FrameSensor("a", "magnetometer", "hand"), "has no magnetic_field"),
        (
            lambda: FrameSensor("a", "x_axis", "hand", magnetic_field=[1, 0, 0]),
            "has a magnetic_field",
        ),
        (lambda: FrameSensor("a", "x_axis", "hand", [1, 2]), r"X_FP.p has shape \(2,\)"),
        (lambda: JointSensor("a", "position", "x", cutoff=0), "cutoff of sensor 'a' is 0"),
        (
            lambda: JointSensor("a", "position", "x", cutoff="x"),
            "cutoff of sensor 'a' is 'x'",
        ),
        (lambda: JointSensor("a", "rotation", "x", cutoff=1), "expected infinite for 'rotation'"),
        (lambda: JointSensor("a", ["position"], "x"), "quantity of sensor 'a' is .'position'"),
        (lambda: JointSensor("a", "position", "x", noise=None), "noise of sensor 'a' is None"),
        (
            lambda: SubtreeSensor("a", "force", "hand", inertia=np.zeros(10), carried="leg"),
            "carried of sensor 'a' is 'leg', expected a sequence of names",
        ),
        (lambda: JointSensor("a", "position", "x", noise=-1), "noise of sensor 'a' is -1"),
        (lambda: JointSensor("a", "position", "x", noise=[1]), "noise of sensor 'a' is .1., exp"),
        (lambda: JointSensor("a", "position", "x", cutoff=1j), "cutoff of sensor 'a' is 1j, exp"),
        (lambda: JointSensor("a", "position", None), "joint is None, expected a name"),
        (lambda: TendonSensor("a", "position", "x"), "'position', expected one of length, rate"),
        (lambda: ActuatorSensor("a", "power", "x"), "expected one of length, rate, force"),
        (lambda: StateSensor("a", "power"), "expected one of time, kinetic_energy"),
        (
            lambda: SubtreeSensor("a", "force", "hand", carried=()),
            "inertia of sensor 'a' is missing, expected both or none",
        ),
        (lambda: RobotSensors(["gyro"]), "entry 0 of sensors is 'gyro', expected a sensor"),
        (lambda: RobotSensors([StateSensor("t", "time")] * 2), "two sensors have the name 't'"),
        (lambda: RobotSensors().chosen("gyro"), "names is 'gyro', expected a sequence"),
        (lambda: RobotSensors().by_name([1.0, 2]), r"readings has shape \(2,\), expected 0"),
        (
            lambda: RobotSensors().with_noise(jax.random.key(0), np.zeros(2)),
            r"readings has shape \(2,\), expected 0",
        ),
    ],
)
def test_wrong_sensors_are_refused(make, message):
    with pytest.raises(rbd.ArgumentError, match=message):
        make()


@pytest.mark.parametrize(
    ("sensor", "message"),
    [
        (FrameSensor("a", "accelerometer", "hand"), "a is missing, which sensor 'a' needs"),
        (StateSensor("a", "time"), "time is missing, which sensor 'a' needs"),
        (TendonSensor("a", "rate", "cord"), "tendons is missing, which sensor 'a' needs"),
        (JointSensor("a", "actuator_force", "hinge"), "actuators is missing, which sensor 'a'"),
        (FrameSensor("a", "position", "foot"), "sensor 'a': .*'foot'"),
        (SubtreeSensor("a", "force", "foot"), "sensor 'a': .*'foot'"),
        (JointSensor("a", "position", "ball"), "sensor 'a': joint 'ball' has 3 degrees of freedom"),
        (JointSensor("a", "rotation", "hinge"), "joint 'hinge' is no spherical joint"),
        (SubtreeSensor("a", "force", "wall"), "frame 'wall' of sensor 'a' is fixed to the world"),
    ],
)
def test_missing_arguments_and_unknown_elements_are_named(robot, sensor, message):
    model = robot.model
    a = jnp.zeros(model.nv) if isinstance(sensor, SubtreeSensor) else None
    with pytest.raises(rbd.ArgumentError, match=message):
        RobotSensors([sensor])(model, robot.q0, jnp.zeros(model.nv), a)


def test_unknown_tendons_and_actuators_are_named(robot):
    model = robot.model
    state = model, robot.q0, jnp.zeros(model.nv)
    with pytest.raises(rbd.ArgumentError, match="no tendon 'rope'; expected one of: 'cord', 'sum'"):
        RobotSensors([TendonSensor("a", "length", "rope")])(*state, tendons=robot.tendons)
    pull = RobotSensors([TendonSensor("a", "actuator_force", "rope")])
    with pytest.raises(rbd.ArgumentError, match="sensor 'a': there is no tendon 'rope'; exp"):
        pull(*state, actuators=robot.actuators, control=jnp.zeros(5))
    with pytest.raises(rbd.ArgumentError, match="passive is 3, expected PassiveForces or None"):
        pull(*state, actuators=robot.actuators, control=jnp.zeros(5), passive=3)
    with pytest.raises(rbd.ArgumentError, match=r"no actuator 'hing'.*; did you mean 'hinge'"):
        RobotSensors([ActuatorSensor("a", "force", "hing")])(
            *state, actuators=robot.actuators, control=jnp.zeros(5)
        )
    twice = Tendons([FixedTendon("rope", {"hinge": x}) for x in (1.0, 2.0)])
    with pytest.raises(rbd.ArgumentError, match="sensor 'a': there are several tendons 'rope'"):
        RobotSensors([TendonSensor("a", "length", "rope")])(*state, tendons=twice)
    # The message lists tendons without actuators too.
    pull = RobotSensors([TendonSensor("a", "actuator_force", "rope")])
    bare = FixedTendon("ropes", {"hinge": 1.0})
    with pytest.raises(rbd.ArgumentError, match="'sum', 'ropes'; did you mean 'ropes'"):
        pull(*state, actuators=robot.actuators, control=jnp.zeros(5), tendons=Tendons([bare]))
