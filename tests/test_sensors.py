"""Sensors: physical laws, MuJoCo's sensors, touch and height scans, noise, and errors."""

import dataclasses
import os

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxrbd as rbd
from jaxrbd import contact, sensors, spatial
from jaxrbd.collision import Box, PlacedShape, Sphere
from jaxrbd.contact import Height, Plane, Scene
from jaxrbd.sensors import Noise
from support import nightly, zoo
from support.finite_differences import slope
from support.zoo import close

G = 9.81
DT = 5e-3


@pytest.fixture(scope="module")
def model():
    return zoo.small()


# ------------------------------------------------------------------------------------------- IMU


@jax.jit
def motion_of_frames(model, q, v, a):
    """For each frame: its IMU, its rotation, gravity in its axes, and its velocity and rate."""

    def velocity(t):
        q_t, v_t = rbd.integrate(model, q, t * v), v + t * a
        return jnp.stack([rbd.frame_velocity(model, q_t, v_t, f) for f in model.frame_names])

    V, rate = jax.jvp(velocity, (0.0,), (1.0,))
    readings = [sensors.imu(model, q, v, a, frame) for frame in model.frame_names]
    down = [sensors.projected_gravity(model, q, frame) for frame in model.frame_names]
    R = rbd.frame_placements(model, q).R
    return jax.tree.map(lambda *x: jnp.stack(x), *readings), jnp.stack(down), R, V, rate


@pytest.mark.parametrize("robot", nightly.all_but(["small"], ["small", "following", "coupled"]))
def test_an_imu_measures_the_acceleration_minus_gravity(robot):
    """The derivative of the velocity of the frame along the motion, in the axes of the frame."""
    model = dataclasses.replace(getattr(zoo, robot)(), gravity=jnp.array([1.0, -2.0, -9.0]))
    for seed in range(2):
        q, v, a, _ = zoo.state(model, seed)
        imu, down, R, V, rate = jax.device_get(motion_of_frames(model, q, v, a))
        gravity = np.asarray(model.gravity)
        to_frame = np.swapaxes(R, 1, 2)
        specific = to_frame @ (rate[:, :3] - gravity)[..., None]
        close(imu.accelerometer, specific[..., 0], 1e-12, "accelerometer")
        close(imu.gyroscope, (to_frame @ V[:, 3:, None])[..., 0], 1e-12, "gyroscope")
        unit = gravity / np.linalg.norm(gravity)
        close(down, to_frame @ unit, 1e-14, "gravity")


def test_an_imu_at_rest_and_in_free_fall(model):
    q = zoo.state(model, 1)[0]
    still = np.zeros(model.nv)
    imu, down, R, *_ = jax.device_get(motion_of_frames(model, q, still, still))
    close(imu.accelerometer, G * R[:, 2], 1e-13, "at rest: upwards, in the axes of the frame")
    close(imu.gyroscope, np.zeros_like(imu.gyroscope), 0.0)
    close(down, -R[:, 2], 1e-14)
    falling = rbd.forward_dynamics(model, q, still, still)
    imu, *_ = motion_of_frames(model, q, still, falling)
    close(imu.accelerometer, np.zeros(imu.accelerometer.shape), 1e-12, "free fall")
    weightless = dataclasses.replace(model, gravity=np.zeros(3))
    imu, down, *_ = motion_of_frames(weightless, q, still, still)
    close(imu.accelerometer, np.zeros(imu.accelerometer.shape), 0.0)
    close(down, np.zeros(down.shape), 0.0, "there is no gravity")

    @jax.jit
    @jax.jacfwd
    def by_gravity(g):
        return sensors.projected_gravity(dataclasses.replace(model, gravity=g), q, "l1")

    assert np.all(np.isfinite(np.asarray(by_gravity(np.zeros(3)))))


def turntable():
    """A link that turns about the vertical, with an IMU at a distance of 0.5 m from the axis."""
    inertia = rbd.model.link_inertia(1.0, (0, 0, 0), np.eye(3))
    links = [rbd.model.Link("table", inertia), rbd.model.Link("imu")]
    specs = [
        rbd.model.JointSpec("axle", rbd.joints.Revolute((0, 0, 1)), None, "table"),
        rbd.model.JointSpec(
            "mount",
            rbd.model.Fixed(),
            "table",
            "imu",
            rbd.model.placement_matrix((0.5, 0, 0.2), (0, 0, np.pi / 2)),
        ),
        rbd.model.JointSpec(
            "on the wall",
            rbd.model.Fixed(),
            None,
            "wall",
            rbd.model.placement_matrix((1, 2, 3), (np.pi / 2, 0, 0)),
        ),
    ]
    return rbd.build_model([*links, rbd.model.Link("wall")], specs)


def test_an_imu_on_a_turntable():
    """Centripetal and tangential acceleration; the y axis of the IMU points to the axis."""
    table = turntable()
    q, v, a = jnp.array([0.7]), jnp.array([3.0]), jnp.array([2.0])
    imu = sensors.imu(table, q, v, a, "imu")
    close(imu.accelerometer, jnp.array([0.5 * 2, 0.5 * 3**2, G]), 1e-14)
    close(imu.gyroscope, jnp.array([0, 0, 3.0]), 1e-15)
    # A frame that is fixed to the world.
    imu = sensors.imu(table, q, v, a, "wall")
    close(imu.accelerometer, jnp.array([0, G, 0]), 1e-14)
    close(imu.gyroscope, jnp.zeros(3), 0.0)
    close(sensors.projected_gravity(table, q, "wall"), jnp.array([0, -1.0, 0]), 1e-15)


# ----------------------------------------------------------------------------- MuJoCo's sensors


MJCF = """
<mujoco>
  <option gravity="0.4 -0.3 -9.6"/>
  <worldbody>
    <body name="base">
      <freejoint/>
      <geom type="box" size="0.1 0.2 0.05" pos="0.02 0.01 0.03" mass="3"/>
      <body name="arm" pos="{arm}" quat="{arm_quat}">
        <joint name="hinge" axis="0.2 -0.3 0.9"/>
        <geom type="box" size="0.05 0.1 0.2" pos="0.1 0 0.2" mass="1"/>
        <body name="rod" pos="{rod}" quat="{rod_quat}">
          <joint name="slide" type="slide" axis="0.5 0.1 0.7"/>
          <geom type="box" size="0.02 0.1 0.02" pos="0 0.1 0" mass="0.5"/>
          <site name="imu" pos="{imu}" quat="{imu_quat}"/>
        </body>
      </body>
    </body>
  </worldbody>
  <sensor>
    <accelerometer site="imu"/> <gyro site="imu"/> <velocimeter site="imu"/>
    <framexaxis objtype="site" objname="imu"/> <frameyaxis objtype="site" objname="imu"/>
    <framezaxis objtype="site" objname="imu"/>
    <jointpos joint="hinge"/> <jointpos joint="slide"/>
    <jointvel joint="hinge"/> <jointvel joint="slide"/>
  </sensor>
</mujoco>
"""


def test_against_the_sensors_of_mujoco(rng):
    places = {name: zoo.random_placement(rng) for name in ("arm", "rod", "imu")}
    values = {}
    for name, placement in places.items():
        quat = np.zeros(4)
        mujoco.mju_mat2Quat(quat, placement[:3, :3].ravel())
        values |= {name: placement[:3, 3], f"{name}_quat": quat}
    text = MJCF.format(**{k: " ".join(map(repr, x.tolist())) for k, x in values.items()})
    theirs = mujoco.MjModel.from_xml_string(text)

    # Only the kinematics count, because the accelerations are those of MuJoCo.
    links = [
        rbd.model.Link(name, rbd.model.link_inertia(1.0, (0, 0, 0), np.eye(3)))
        for name in ("base", "arm", "rod")
    ]
    specs = [
        rbd.model.JointSpec("root", rbd.joints.FreeFlyer(), None, "base"),
        rbd.model.JointSpec(
            "hinge", rbd.joints.Revolute((0.2, -0.3, 0.9)), "base", "arm", places["arm"]
        ),
        rbd.model.JointSpec(
            "slide", rbd.joints.Prismatic((0.5, 0.1, 0.7)), "arm", "rod", places["rod"]
        ),
        rbd.model.JointSpec("mount", rbd.model.Fixed(), "rod", "imu", places["imu"]),
    ]
    model = rbd.build_model(
        [*links, rbd.model.Link("imu")], specs, gravity=theirs.opt.gravity.tolist()
    )

    @jax.jit
    def readings(q, v, a):
        q = rbd.forward_kinematics(model, q)  # which sensors take in place of q
        imu = sensors.imu(model, q, v, a, "imu")
        encoders = sensors.joint_encoders(model, q, v, ("hinge", "slide"))
        velocity = rbd.frame_velocity(model, q, v, "imu", "local")[:3]
        down = sensors.projected_gravity(model, q, "imu")
        return jnp.concatenate([*imu, velocity, down, *encoders])

    data = mujoco.MjData(theirs)
    for _ in range(5):
        data.qpos[:] = rng.normal(size=9)
        data.qpos[3:7] /= np.linalg.norm(data.qpos[3:7])
        data.qvel[:] = rng.normal(size=8)
        data.qfrc_applied[:] = rng.normal(size=8)
        mujoco.mj_forward(theirs, data)
        R = data.body("base").xmat.reshape(3, 3)
        q = np.concatenate([data.qpos[:3], np.roll(data.qpos[3:7], -1), data.qpos[7:]])
        v, a = data.qvel.copy(), data.qacc.copy()
        v[:3] = R.T @ v[:3]
        a[:3] = R.T @ a[:3] - np.cross(v[3:6], v[:3])
        measured = data.sensordata.copy()
        axes = measured[9:18].reshape(3, 3)
        unit = theirs.opt.gravity / np.linalg.norm(theirs.opt.gravity)
        expected = np.concatenate([measured[:9], axes @ unit, measured[18:]])
        close(readings(*map(jnp.asarray, (q, v, a))), expected, 1e-9)


# ----------------------------------------------------------------------------------- encoders


def test_encoders_of_joints_that_follow_others():
    model = zoo.coupled()
    q, v, *_ = zoo.state(model, 0)
    names = ("j4", "j1", "j2", "j6", "j3")
    found = sensors.joint_encoders(model, q, v, names)
    j1, j6 = q[model.joint("j1").q][0], q[model.joint("j6").q][0]
    j2 = -0.7 * j1 + 0.2
    close(found.position, jnp.stack([1.5 * j2 + 0.3, j1, j2, j6, 0.4 * j6 - 0.1]), 1e-14)
    w1, w6 = v[model.joint("j1").v][0], v[model.joint("j6").v][0]
    close(found.velocity, jnp.stack([-1.05 * w1, w1, -0.7 * w1, w6, 0.4 * w6]), 1e-14)
    for none in ((), []):
        assert [x.shape for x in sensors.joint_encoders(model, q, v, none)] == [(0,), (0,)]
    connected = zoo.connected()
    q, v, *_ = zoo.state(connected, 0)
    found = sensors.joint_encoders(connected, q, v, ("j8", "j8.2"))
    place = connected.joint("j8")
    close(found.position, jnp.append(q[place.q], q[place.q][1]), 0.0, "stages of a compound joint")
    close(found.velocity, jnp.append(v[place.v], v[place.v][1]), 0.0)


# ---------------------------------------------------------------------------------- the ground

HILLS = Height(lambda xy: 0.2 * jnp.sin(2 * xy[0]) * jnp.cos(xy[1]) + 0.1)
SLOPE = Plane((0.3, -0.2, 2.0), 0.1)


def ball(radius):
    inertia = rbd.model.link_inertia(2.0, (0, 0, 0), 0.4 * 2 * radius**2 * np.eye(3))
    spec = rbd.model.JointSpec("joint", rbd.joints.FreeFlyer(), None, "ball")
    return rbd.build_model([rbd.model.Link("ball", inertia)], [spec])


UPHILL = np.array([0.36, 0.48, 0.8])  # a unit normal


class SteepSlope(contact.Ground):
    """A plane, whose distance is in units of a third of a metre: its gradient has the length 3."""

    def distance(self, x):
        return 3 * jnp.sum(jnp.asarray(UPHILL, x.dtype) * x)


def test_touch_is_the_normal_part_of_the_impulse():
    """Of a ball on a slope, beside a wall: per second of the step, without the friction.

    The second sphere of the ball touches nothing.
    """
    robot, shape = ball(0.1), PlacedShape(Sphere(0.1), "ball")
    wall = PlacedShape(Box((0.1, 1, 1)), X_FS=(0.2, 0, 0))
    pairs = contact.collision_pairs([(shape, wall)])
    scene = Scene(("ball", "ball"), 0.1, ground=SteepSlope(), pairs=pairs)
    impulse = jnp.array([[0.3, 0.4, 2.0], [0, 0, 0], [-5.0, 0.7, 0.6]])  # and away from the wall
    step = contact.ContactStep(*[None] * len(contact.ContactStep._fields))._replace(
        impulse=impulse, distance=jnp.zeros(3)
    )
    q = rbd.neutral(robot).at[2].set(0.1)

    @jax.jit
    def touch(dt):
        kinematics = rbd.forward_kinematics(robot, q)
        return sensors.touch(robot, scene, kinematics, step, dt)

    found = touch(DT)
    close(found.normal_force, jnp.array([impulse[0] @ UPHILL, 0, 5.0]) / DT, 1e-13)
    assert found.touching.tolist() == [True, False, True]
    assert jnp.all(jnp.isnan(touch(-DT).normal_force)), "the duration of a step is positive"


def test_touch_is_the_normal_force_of_compliant_contact():
    scene = Scene(("ball", "ball"), 0.1)
    force = contact.ContactForce(*[None] * 5)._replace(
        distance=jnp.array([-0.01, 0.2]), normal_force=jnp.array([7.0, 0.0])
    )
    robot = ball(0.1)
    found = sensors.touch(robot, scene, rbd.neutral(robot), force)
    np.testing.assert_array_equal(found.normal_force, force.normal_force)
    assert found.touching.tolist() == [True, False]


@pytest.mark.slow
def test_touch_measures_the_weight_and_the_force_of_the_ground(model):
    resting = ball(0.1)
    scene = Scene(("ball", "ball"), 0.1, [[0, 0, 0], [0, 0, 0.5]], material=contact.Material(1e4))
    still, tau = jnp.zeros(6), jnp.zeros(6)
    # At rest in a compliant ground, and on the way there on rigid ground.
    q = rbd.neutral(resting).at[2].set(0.1 - np.sqrt(2 * G / 1e4))
    found = sensors.touch(resting, scene, q, contact.contact_force(resting, scene, q, still))
    close(found.normal_force, jnp.array([2 * G, 0]), 1e-12, "weight")
    assert found.touching.tolist() == [True, False]
    state = q.at[2].set(0.1), still
    for _ in range(60):
        step = contact.contact_step(resting, scene, *state, tau, DT)
        found = sensors.touch(resting, scene, state[0], step, DT)
        state = step.q, step.v
    close(found.normal_force, jnp.array([2 * G, 0]), 1e-4, "weight")
    assert found.touching.tolist() == [True, False]

    # On a slope with friction, the normal part alone; spheres above the ground touch nothing.
    q, v, tau, _ = zoo.state(model, 2)
    scene = Scene(("l2", "l0", "l2"), [0.05, 0.0, 0.02], 0.2 * np.eye(3), SLOPE)
    depths = jnp.sort(contact.contact_points(model, scene, q, v).distance)
    ground = Plane(SLOPE.normal, SLOPE.offset + jnp.mean(depths[1:]))
    scene = dataclasses.replace(scene, ground=ground)
    step = contact.contact_step(model, scene, q, v, tau, DT)
    found = sensors.touch(model, scene, q, step, DT)
    normal = np.array([0.3, -0.2, 2.0]) / np.linalg.norm([0.3, -0.2, 2.0])
    close(found.normal_force * DT, step.impulse @ normal, 1e-13)
    np.testing.assert_array_equal(found.touching, jnp.linalg.norm(step.impulse, axis=1) > 0)
    assert len(set(found.touching.tolist())) == 2
    force = contact.contact_force(model, scene, q, v)
    found = sensors.touch(model, scene, q, force)
    np.testing.assert_array_equal(found.normal_force, force.normal_force)
    np.testing.assert_array_equal(found.touching, force.distance < 0)
    assert jnp.isnan(jax.jit(sensors.touch)(model, scene, q, step, -DT).normal_force[0])


@pytest.mark.slow
@pytest.mark.parametrize("walls", [1, 2])
def test_touch_measures_the_forces_between_shapes(walls):
    """A ball without friction on the ground, pushed against a wall, beside another wall."""
    robot, k = ball(0.1), 1e4
    shape = PlacedShape(Sphere(0.1), "ball")
    blocks = [PlacedShape(Box((0.1, 1, 1)), X_FS=(x, 0, 0)) for x in (0.2, -0.3)]
    pairs = contact.collision_pairs([(shape, block) for block in blocks[:walls]])
    material = contact.Material(k, friction=0.0)
    scene = Scene(("ball",), 0.1, material=material, pairs=pairs)
    expected = jnp.array([2 * G, 5.0, 0.0][: 1 + walls])
    still, push = jnp.zeros(6), jnp.zeros(6).at[0].set(5.0)
    depths = np.sqrt(np.array([5.0, 2 * G]) / k)
    q = rbd.neutral(robot).at[jnp.array([0, 2])].set(jnp.array([depths[0], 0.1 - depths[1]]))
    found = sensors.touch(robot, scene, q, contact.contact_force(robot, scene, q, still))
    close(found.normal_force, expected, 1e-12, "compliant")
    assert found.touching.tolist() == [True, True, False][: 1 + walls]

    @jax.jit
    def settle(q):
        def advance(state, _):
            step = contact.contact_step(robot, scene, *state, push, DT)
            return (step.q, step.v), sensors.touch(robot, scene, state[0], step, DT)

        readings = jax.lax.scan(advance, (q, still), length=60)[1]
        return jax.tree.map(lambda x: x[-1], readings)

    found = settle(rbd.neutral(robot).at[2].set(0.1))
    close(found.normal_force, expected, 1e-4, "rigid")
    assert found.touching.tolist() == [True, True, False][: 1 + walls]


PATTERN = np.array([[0.0, 0.0], [0.4, 0.1], [-0.2, 0.3], [0.1, -0.6]])


@jax.jit
def scan(model, q, ground, pattern):
    return sensors.height_scan(model, rbd.forward_kinematics(model, q), ground, "l1", pattern)


@pytest.mark.parametrize("ground", [SLOPE, HILLS], ids=["plane", "height"])
def test_a_height_scan_ends_on_the_ground(model, ground):
    distances = jax.jit(jax.vmap(ground.distance))
    for seed in range(3):
        q = zoo.state(model, seed)[0]
        found = np.asarray(scan(model, q, ground, PATTERN))
        X = jax.device_get(rbd.frame_placement(model, q, "l1"))
        yaw = np.arctan2(X.R[1, 0], X.R[0, 0])
        turned = PATTERN @ np.array([[np.cos(yaw), np.sin(yaw)], [-np.sin(yaw), np.cos(yaw)]])
        points = np.concatenate([X.p[None, :2] + turned, (X.p[2] - found)[:, None]], axis=1)
        close(distances(points), np.zeros(4), 1e-14)


def test_a_pattern_turns_about_the_vertical_only():
    """With roll and pitch the pattern stays, also if the x axis of the frame is vertical."""
    model = ball(0.1)

    def turned(axis, angle):
        q = np.array(rbd.neutral(model))
        half = angle / 2
        q[3:7] = np.append(np.sin(half) * np.array(axis), np.cos(half))
        return q

    @jax.jit
    def heights(q, pattern):
        return sensors.height_scan(model, q, HILLS, "ball", pattern)

    level = heights(rbd.neutral(model), PATTERN)
    for angle in (0.5, -1.2):
        close(heights(turned((1, 0, 0), angle), PATTERN), level, 1e-14, "roll")
        close(heights(turned((0, 1, 0), angle), PATTERN), level, 1e-14, "pitch")
        c, s = np.cos(angle), np.sin(angle)
        back = PATTERN @ np.array([[c, -s], [s, c]])
        close(heights(turned((0, 0, 1), angle), back), level, 1e-14, "yaw")
    # Where the x axis is almost vertical, its small horizontal part still is the first axis.
    c, s = np.cos(0.7), np.sin(0.7)
    back = PATTERN @ np.array([[c, -s], [s, c]])
    for pitch in (1.55, 1.5707):
        q, yaw = turned((0, 1, 0), pitch), Rotation.from_rotvec([0, 0, 0.7])
        q[3:7] = (yaw * Rotation.from_quat(q[3:7])).as_quat()
        close(heights(q, back), level, 1e-10, "yaw after pitch")
    downwards = spatial.Pose(jnp.array([[[0, 0, 1.0], [0, 1, 0], [-1, 0, 0]]]), jnp.zeros((1, 3)))
    upright = dataclasses.replace(model, placement=downwards)
    values, slopes = jax.jit(
        lambda m, q: (
            sensors.height_scan(m, q, HILLS, "ball", PATTERN),
            jax.jacrev(lambda q: sensors.height_scan(m, q, HILLS, "ball", PATTERN))(q),
        )
    )(upright, rbd.neutral(model))
    close(values, level, 1e-14, "the x axis of the frame points downwards")
    assert jnp.all(jnp.isfinite(slopes))


@pytest.mark.slow
def test_derivatives_of_sensors_are_the_true_ones(model):
    """Along one direction in the model and in all operands, forward and reverse."""
    q, v, a, _ = zoo.state(model, 1)
    operands = jax.tree.map(jnp.asarray, (model.gravity, v, a, PATTERN, SLOPE))
    rng = np.random.default_rng(2)
    direction = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), operands)
    dq = jnp.asarray(rng.normal(size=model.nv))

    @jax.jit
    def both(operands, direction, dq):
        def total(t):
            g, v, a, pattern, ground = jax.tree.map(lambda x, dx: x + t * dx, operands, direction)
            m, q_t = dataclasses.replace(model, gravity=g), rbd.integrate(model, q, t * dq)
            parts = (
                sensors.imu(m, q_t, v, a, "l2"),
                sensors.projected_gravity(m, q_t, "l2"),
                sensors.joint_encoders(m, q_t, v, ("j2",)),
                sensors.height_scan(m, q_t, ground, "l1", pattern),
            )
            flat = jnp.concatenate([x.ravel() for x in jax.tree.leaves(parts)])
            return jnp.sum(jnp.cos(jnp.arange(flat.size).astype(flat.dtype)) * flat)

        return jax.grad(total)(0.0), jax.jvp(total, (0.0,), (1.0,))[1], slope(total)

    reverse, forward, differences = both(operands, direction, dq)
    close(reverse, forward, 1e-12)
    close(reverse, differences, 1e-9)


def test_sensors_follow_the_dtype_of_the_model(model):
    single = model.astype("float32")
    q, v, a, _ = zoo.state(single, 1)
    step = contact.ContactStep(*[None] * len(contact.ContactStep._fields))._replace(
        impulse=jnp.ones((2, 3), "float32"), distance=jnp.zeros(2, "float32")
    )
    pairs = contact.collision_pairs([(PlacedShape(Sphere(0.1), "l2"), PlacedShape(Sphere(0.2)))])
    scene = Scene(("l2",), 0.1, ground=SLOPE, pairs=pairs)
    readings = (
        sensors.touch(single, scene, q, step, DT).normal_force,
        sensors.imu(single, q, v, a, "l2"),
        sensors.projected_gravity(single, q, "l2"),
        sensors.height_scan(single, q, SLOPE, "l1", PATTERN),
        Noise(0.1, 0.2, 0.3)(jax.random.key(0), v),
    )
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(readings))


# ------------------------------------------------------------------------------------------ noise


def test_noise_has_a_bias_a_standard_deviation_and_a_resolution(key):
    x = np.random.default_rng(0).normal(size=(3, 20_000))
    std, bias = np.full((3, 20_000), 0.3), np.zeros((3, 20_000))
    std[1], bias[1], bias[2] = 0.1, 2.0, -1.0
    error = np.asarray(Noise(std, bias)(key, x)) - x
    close(np.mean(error, axis=1), np.array([0, 2, -1.0]), 0.01)
    close(np.std(error, axis=1), np.array([0.3, 0.1, 0.3]), 0.01)
    correlation = np.corrcoef(error)
    assert np.max(np.abs(correlation - np.eye(3))) < 0.03
    np.testing.assert_array_equal(Noise()(key, x), x)
    np.testing.assert_array_equal(Noise(0.3)(key, x), Noise(0.3)(key, x))
    other = Noise(0.3)(jax.random.key(1), x)
    assert np.all(np.asarray(Noise(0.3)(key, x)) != np.asarray(other))
    kurtosis = np.mean(((error[0] - np.mean(error[0])) / np.std(error[0])) ** 4)
    assert abs(kurtosis - 3) < 0.15, "a normal distribution"
    coarse = Noise(bias=0.1, resolution=0.25)(key, x)
    np.testing.assert_array_equal(np.asarray(coarse) / 0.25, np.round((x + 0.1) / 0.25))


def test_a_measured_value_is_a_multiple_of_the_resolution(key):
    """Also with noise, and with a resolution of its own for each value."""
    x = np.random.default_rng(0).normal(size=(2, 200))
    step = np.array([[0.25], [0.0625]]) * np.ones(x.shape)
    coarse, fine = (np.asarray(y(key, x)) for y in (Noise(0.5, 0.1, step), Noise(0.5, 0.1)))
    np.testing.assert_array_equal(coarse / step, np.round(coarse / step))
    rounding = np.abs(coarse - fine) / step
    assert np.all(rounding <= 0.5)
    assert np.all(np.max(rounding, axis=1) > 0.45)


def test_noise_is_batched_and_differentiated(key):
    noises = jax.vmap(lambda b: Noise(0.5, b))(jnp.arange(3.0))
    x, keys = jnp.ones((3, 4)), jax.random.split(key, 3)
    found = jax.jit(jax.vmap(lambda n, k, x: n(k, x)))(noises, keys, x)
    for i in range(3):
        close(found[i], Noise(0.5, float(i))(keys[i], x[i]), 1e-15)
    slopes = jax.grad(lambda n: jnp.sum(n(key, x)))(Noise(jnp.asarray(0.5), jnp.asarray(0.0)))
    close(slopes.bias, 12.0, 1e-15)
    close(slopes.std, jnp.sum(Noise(1.0)(key, jnp.zeros((3, 4)))), 1e-13)
    rounded = jax.grad(lambda x: jnp.sum(Noise(0.5, 0.0, 0.1)(key, x)))(x)
    close(rounded, jnp.zeros((3, 4)), 0.0, "the derivative of the rounding")


@pytest.mark.skipif("JAXRBD_TEST_ANNOTATIONS" in os.environ, reason="wrong types")
@pytest.mark.gives_nan
def test_values_of_traced_parameters_are_not_checked(key):
    x = jnp.ones(3)
    exact = jax.jit(lambda std, step: Noise(std, 0.0, step)(key, x))
    close(exact(-0.5, 0.1) - x, x - exact(0.5, 0.1), 1e-13, "the error has the other sign")
    assert np.all(np.isnan(exact(0.5, 0.0)))
    for wrong in ([[1.0], [2.0, 3.0]], None):
        with pytest.raises(rbd.ArgumentError, match=r"x is .*, expected an array"):
            Noise(0.5)(key, wrong)


# ------------------------------------------------------------------------------------------ errors


@pytest.mark.gives_nan
def test_wrong_arguments(model, key):
    q, v, a, _ = zoo.state(model)
    scene = Scene(("l2",), 0.1)
    # Only the kind of the result and the number of its contacts count.
    step = contact.ContactStep(*[None] * len(contact.ContactStep._fields))._replace(
        distance=jnp.zeros(1)
    )
    force = contact.ContactForce(*[None] * 5)._replace(distance=jnp.zeros(1))

    class Bowl(contact.Ground):
        """A ground without elevation."""

        def distance(self, x):
            return 1 - jnp.sum(x * x)

    for call, message in (
        (lambda: sensors.imu(model, q, v, a, "nowhere"), "no frame 'nowhere'"),
        (lambda: sensors.imu(model, q, v, a[1:], "l1"), "a has shape"),
        (lambda: sensors.projected_gravity(model, v, "l1"), "q has shape"),
        (lambda: sensors.joint_encoders(model, q, v, "j2"), "joints is 'j2', expected a sequence"),
        (lambda: sensors.joint_encoders(model, q, v, ("j",)), "no joint 'j'"),
        (lambda: sensors.joint_encoders(model, q, v, ("j1", "j2")), "joint 'j1' .* 4 c.* 3 vel"),
        (lambda: sensors.joint_encoders(model, q, v, ("j0",)), "joint 'j0' .* 7 coord"),
        (
            lambda: sensors.touch(model, scene, q, step),
            "dt is None for a ContactStep, expected the duration of the step in s",
        ),
        (
            lambda: sensors.touch(model, scene, q, force, DT),
            "dt was given for a ContactForce, expected None",
        ),
        (lambda: sensors.touch(model, scene, q, step, 0.0), "dt is 0.0, expected"),
        (lambda: sensors.touch(model, scene, q, step, np.ones(2)), r"dt has shape \(2,\), expect"),
        (
            lambda: sensors.touch(model, Scene(("l2", "l0"), 0.1), q, force),
            r"contact.distance has shape \(1,\), expected \(2,\) for a scene of 2 spheres and 0 c",
        ),
        (lambda: sensors.height_scan(model, q, SLOPE, "l9", PATTERN), "no frame 'l9'"),
        (
            lambda: sensors.height_scan(model, q, SLOPE, "l1", PATTERN.T),
            r"pattern has shape \(2, 4",
        ),
        (lambda: sensors.height_scan(model, q, SLOPE, "l1", 1.0), r"pattern has shape \(\)"),
        (lambda: sensors.height_scan(model, q, Bowl(), "l1", PATTERN), "ground is 'Bowl', exp"),
        (lambda: Noise(-0.1), "std is -0.1, expected finite, 0 or more"),
        (lambda: Noise(np.nan), "std is nan"),
        (lambda: Noise(np.inf), "std is inf"),
        (lambda: Noise(0.1, np.inf), "bias is inf"),
        (lambda: Noise(0.1, np.nan), "bias is nan, expected finite"),
        (lambda: Noise(0.1, 0.0, 0.0), "resolution is 0.0"),
        (lambda: Noise(0.1, 0.0, np.inf), "resolution is inf, expected finite, more than 0"),
        (lambda: Noise(np.ones(2))(key, v), r"std has shape \(2,\), expected \(\) or \(10,\)"),
        (lambda: Noise(0.1, np.ones((1, 10)))(key, v), "bias has shape"),
        (lambda: Noise(0.1)(key, np.arange(3)), "x has dtype int"),
    ):
        with pytest.raises(rbd.ArgumentError, match=message):
            call()
    vertical = sensors.height_scan(model, q, Plane((1, 0, 0)), "l1", PATTERN)
    assert jnp.all(jnp.isnan(vertical))
