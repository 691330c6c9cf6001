"""Mocap bodies of MJCF files: frames of the world whose poses are arguments."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import contact, so3
from jaxrbd.constraints import constraint_rows
from jaxrbd.contact.contacts import find_contacts
from jaxrbd.errors import ArgumentError
from jaxrbd.io import load_mjcf
from jaxrbd.spatial import Pose
from support.zoo import close

TEXT = """<mujoco><option gravity="0 0 -9.81"/><worldbody>
  <geom name="floor" type="plane" size="2 2 1"/>
  <body name="hand" mocap="true" pos="0.1 0.2 0.5" quat="1 0.2 0 0">
    <geom name="palm" type="box" size=".2 .15 .02"/><geom name="knob" size=".03" pos="0 .1 .04"/>
    <body name="finger" pos="0.1 0 0.05" quat="1 0 0.3 0"><site name="tip" pos="0 0 0.2"/></body>
  </body>
  <body name="other" mocap="true" pos="1 1 1"/>
  <body name="ball" pos="0.1 0.2 0.62"><freejoint/><geom name="ball" size=".1"/></body>
  <body name="cup" pos="0 0.3 0.62"><freejoint/>
    <geom name="cup" size=".05"/><site name="rim"/></body>
  </worldbody>
  <equality><weld body1="cup" body2="hand"/></equality>
  <keyframe><key name="away" mpos="1 2 3 4 5 6" mquat="1 1 0 0 1 0 0 0"/></keyframe></mujoco>"""


@pytest.fixture(scope="module")
def robot():
    return load_mjcf(TEXT)


def matrix(position, quaternion):
    """The pose (4, 4) of a position and a quaternion wxyz."""
    R = np.zeros(9)
    mujoco.mju_quat2Mat(R, np.asarray(quaternion, float))
    H = np.eye(4)
    H[:3, :3], H[:3, 3] = R.reshape(3, 3), position
    return H


@jax.jit
def state(model, scene, constraints, q):
    kinematics = rbd.forward_kinematics(model, q)
    rows = constraint_rows(model, kinematics, jnp.zeros(model.nv), constraints)
    found = find_contacts(model, scene, kinematics)
    return rbd.frame_placements(model, q), found.distance, rows.position


def test_frames_contacts_and_constraints_move_with_a_mocap_body(robot, rng):
    """Frames and distances against MuJoCo, for any pose."""
    compiled = mujoco.MjModel.from_xml_string(TEXT)
    data = mujoco.MjData(compiled)
    assert robot.mocap == {"hand": ("finger", "tip"), "other": ()}
    pairs = [("knob", "ball"), ("palm", "ball")]
    for pose in (None, rng):
        if pose is not None:
            quaternion = rng.normal(size=4)
            data.mocap_pos[0] = rng.normal(size=3)
            data.mocap_quat[0] = quaternion / np.linalg.norm(quaternion)
        mujoco.mj_forward(compiled, data)
        H = matrix(data.mocap_pos[0], data.mocap_quat[0])
        model = robot.place_mocap({"hand": H})
        X, distance, error = state(model, robot.scene, robot.constraints, robot.q0)
        close(X.p[np.array(robot.body_frames)], data.xpos[1:], 1e-12)
        close(X.R[np.array(robot.body_frames)], data.xmat[1:].reshape(-1, 3, 3), 1e-12)
        close(X.p[np.array(robot.site_frames)], data.site_xpos, 1e-12)
        for a, b in pairs:
            ids = [mujoco.mj_name2id(compiled, mujoco.mjtObj.mjOBJ_GEOM, x) for x in (a, b)]
            gap = mujoco.mj_geomDistance(compiled, data, *ids, 10.0, None)
            assert np.min(np.abs(distance - gap)) < 1e-6, (a, b)
        assert (np.linalg.norm(error) < 1e-12) == (pose is None)


def test_results_have_derivatives_with_respect_to_a_pose(robot):
    """The distances of all contacts, by a turn and a movement of the hand."""
    scene = robot.scene.astype(robot.model.dtype)

    def distances(t):
        R, p = so3.exp(t * jnp.array([0.3, -0.2, 0.5])), jnp.array([0.1, 0.2, 0.4])
        model = robot.place_mocap({"hand": Pose(R, p + t * jnp.array([0.2, 0.1, -1.0]))})
        return find_contacts(model, scene, rbd.forward_kinematics(model, robot.q0)).distance

    evaluate = jax.jit(jax.vmap(lambda t: jax.jvp(distances, (t,), (jnp.ones_like(t),))))
    value, slope = evaluate(0.1 + jnp.array([0.0, 1e-6, -1e-6]))
    close(slope[0], (value[1] - value[2]) / 2e-6, 1e-8)
    assert np.count_nonzero(slope[0]) >= 4  # of the hand with the ball and the cup


@pytest.mark.slow
def test_a_mocap_body_pushes(robot):
    """A ball on a hand that rises stays on it."""
    q = np.array(robot.q0)

    @jax.jit
    def advance(height, q, v):
        p = jnp.array([0.1, 0.25, 0.0]) + jnp.array([0.0, 0.0, 1.0]) * height
        model = robot.place_mocap({"hand": Pose(jnp.eye(3), p)})
        step = contact.contact_step(model, robot.scene, q, v, jnp.zeros(12), 0.004)
        return step.q, step.v

    v, start = np.zeros(12), q[2] - 0.12
    for i in range(100):
        q, v = advance(start + 0.001 * i, q, v)
    assert abs(q[2] - (start + 0.099 + 0.12)) < 0.006


def test_the_poses_of_a_keyframe(robot):
    poses = robot.keyframes["away"].mocap
    close(poses["hand"].p, np.array([1, 2, 3]))
    close(poses["hand"].R, matrix((1, 2, 3), np.array([1, 1, 0, 0]) / np.sqrt(2))[:3, :3])
    close(poses["other"].p, np.array([4, 5, 6]))
    model = robot.place_mocap(poses)
    close(rbd.frame_placement(model, robot.q0, "other").p, np.array([4, 5, 6]))


ERRORS = {
    "poses is None, expected a mapping from names to poses": None,
    "'cup' is no mocap body; the mocap bodies are: 'hand', 'other'": {"cup": np.eye(4)},
    "placement of the frame 'hand' is None, expected an array of floats": {"hand": None},
    "placement.R of the frame 'hand' is": {"hand": 2 * np.eye(4) - np.diag([0, 0, 0, 1])},
}


@pytest.mark.parametrize("message", ERRORS)
def test_wrong_poses_are_named(robot, message):
    with pytest.raises(ArgumentError) as error:
        robot.place_mocap(ERRORS[message])
    assert str(error.value).startswith(message)


def test_frames_of_moving_bodies_are_not_placed(robot):
    with pytest.raises(ArgumentError) as error:
        rbd.model.place_frames(robot.model, {"rim": np.eye(4)})
    assert str(error.value) == (
        "frame 'rim' is on the moving body 'cup', expected a frame that is fixed to the world"
    )
