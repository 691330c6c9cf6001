"""Inertias, velocities and contact forces of MuJoCo's bodies, against MuJoCo."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrbd import contact, io
from jaxrbd.algorithms.kinematics import forward_kinematics
from jaxrbd.contact.contacts import contact_bodies, find_contacts
from jaxrbd.errors import ArgumentError
from support.zoo import close

mujoco = pytest.importorskip("mujoco")

# Two trees and a shelf. The heel has no joints, and one geom of the shelf touches the ball.
TEXT = """
<mujoco>
  <compiler autolimits="true"/>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body name="ball" pos="1 0 0.2"><freejoint/><geom size="0.1" mass="2"/></body>
    <body name="leg" pos="0 0 0.5"><freejoint/>
      <geom type="box" size="0.1 0.2 0.05" pos="0.02 0 0" mass="3"/>
      <body name="heel" pos="0 0.1 -0.2" quat="1 0.3 0 0"><geom size="0.05" pos="0.01 0 0"/>
        <body name="toe" pos="0.1 0 0">
          <joint name="toe" axis="0 1 0"/><joint name="turn" axis="1 0 0"/>
          <geom type="capsule" fromto="0 0 0 0.2 0 0" size="0.03"/>
        </body>
      </body>
    </body>
    <body name="shelf" pos="1 0.3 0.2"><geom name="shelf" size="0.1"/></body>
  </worldbody>
</mujoco>
"""


@pytest.fixture(scope="module")
def state():
    compiled = mujoco.MjModel.from_xml_string(TEXT)
    data, rng = mujoco.MjData(compiled), np.random.default_rng(0)
    data.qpos += 0.3 * rng.normal(size=compiled.nq)
    data.qvel[:] = rng.normal(size=compiled.nv)
    mujoco.mj_normalizeQuat(compiled, data.qpos)
    mujoco.mj_forward(compiled, data)
    robot = io.from_mujoco(compiled)
    q = robot.coordinates.q(robot.model, data.qpos)
    return compiled, data, robot, q, robot.coordinates.v(robot.model, q, data.qvel)


def test_inertias_and_velocities(state):
    _, data, robot, q, v = state
    close(robot.bodies.cinert(robot.model, q), data.cinert[1:], 1e-13)
    close(robot.bodies.cvel(robot.model, q, v), data.cvel[1:], 1e-13)
    far = q.at[0].add(1e6)  # the ball: the quantities of the other tree do not change
    close(robot.bodies.cinert(robot.model, far)[1:], data.cinert[2:], 1e-13)


@pytest.mark.slow
def test_contact_forces(state):
    """Random impulses on all contacts act in MuJoCo as `xfrc_applied` on the bodies."""
    compiled, data, robot, q, _ = state
    model, scene, dt = robot.model, robot.scene, 0.002
    kinematics = forward_kinematics(model, q)
    names = [*scene.frames, *scene.pairs.frames[0], *scene.pairs.frames[1]]
    assert {*names} == {"ball", "leg", "heel", "toe", None}
    bodies = contact_bodies(model, scene)
    rng = np.random.default_rng(1)
    impulse, moment = rng.normal(size=(2, scene.size, 3))
    step = contact.ContactStep(q, *[None] * 2, impulse, moment, *[None] * 4)
    found = jax.jit(lambda q: robot.bodies.cfrc_ext(model, scene, q, step, dt))(q)
    arms = find_contacts(model, scene, kinematics).arm
    n, m = len(scene.frames), len(scene.pairs)
    assert m > 0
    signs, contacts = np.append(np.ones(n + m), -np.ones(m)), [*range(n + m), *range(n, n + m)]
    data.xfrc_applied[:] = 0
    for name, body, arm, sign, i in zip(names, bodies, arms, signs, contacts):
        if name is None:
            continue
        R = np.eye(3) if body < 0 else kinematics.X_WB.R[body]
        p = arm if body < 0 else R @ arm + kinematics.X_WB.p[body]
        row = mujoco.mj_name2id(compiled, mujoco.mjtObj.mjOBJ_BODY, name)
        f, moment_i = sign * impulse[i] / dt, sign * moment[i] / dt
        data.xfrc_applied[row] += [*f, *(moment_i + np.cross(p - data.xipos[row], f))]
    compiled.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
    mujoco.mj_forward(compiled, data)
    mujoco.mj_rnePostConstraint(compiled, data)
    compiled.opt.disableflags = 0
    assert np.any(data.cfrc_ext[1:] != 0, axis=1).tolist() == [True] * 4 + [False]  # the shelf
    close(found, data.cfrc_ext[1:], 1e-12)
    with pytest.raises(ArgumentError, match=r"step.impulse has shape \(0, 3\), expected"):
        robot.bodies.cfrc_ext(model, scene, q, step._replace(impulse=jnp.zeros((0, 3))), dt)
    with pytest.raises(ArgumentError, match=r"dt is -0\.01, expected a finite number above 0"):
        robot.bodies.cfrc_ext(model, scene, q, step, -0.01)
