"""Quadruped robots at rest, in `contact_step` and in MuJoCo."""

import pathlib

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from lxml import etree

import jaxrbd as rbd
from jaxrbd.actuators import PD
from jaxrbd.contact import Servo, contact_points, contact_step
from jaxrbd.io.mujoco import from_mujoco

KP, KD, DT = 80.0, 3.0, 2e-3
PARTS = ("hip", "thigh", "knee")
LEGS = (("fl", 0.2, 0.1), ("fr", 0.2, -0.1), ("rl", -0.2, 0.1), ("rr", -0.2, -0.1))
LEG = """
<body name="{name}" pos="{x} {y} 0">
  <joint name="{name}_hip" axis="1 0 0" range="-60 60"/>
  <geom class="leg" size="0.03" fromto="0 0 0 0 {side} 0" mass="0.5"/>
  <body pos="0 {side} 0"><joint name="{name}_thigh" axis="0 1 0" range="-120 120"/>
    <geom class="leg" size="0.02" fromto="0 0 0 0 0 -0.2" mass="0.6"/>
    <body pos="0 0 -0.2"><joint name="{name}_knee" axis="0 1 0" range="-150 -20"/>
      <geom type="capsule" size="0.015" fromto="0 0 0 0 0 -0.2" mass="0.2"/>
    </body></body></body>
"""


def written():
    """A quadruped as MJCF: the lower legs are capsules that touch the floor with their ends."""
    legs = "".join(
        LEG.format(name=name, x=x, y=y, side=0.08 * np.sign(y))
        for name, x, y in (
            ("fl", 0.2, 0.1),
            ("fr", 0.2, -0.1),
            ("rl", -0.2, 0.1),
            ("rr", -0.2, -0.1),
        )
    )
    joints = [f"{leg}_{part}" for leg, *_ in LEGS for part in PARTS]
    motors = "".join(
        f"<position joint='{name}' kp='{KP}' kv='{KD}' forcerange='-40 40'/>" for name in joints
    )
    return mujoco.MjModel.from_xml_string(
        f"""<mujoco><option timestep="{DT}" integrator="implicitfast"/>
        <default><joint armature="0.02" damping="0.1"/><geom condim="1"/><default class="leg">
          <geom type="capsule" contype="0" conaffinity="0"/></default></default>
        <worldbody><geom name="floor" type="plane" size="5 5 1"/>
          <body name="trunk" pos="0 0 0.4"><freejoint/>
            <geom type="box" size="0.25 0.1 0.05" mass="8" contype="0" conaffinity="0"/>{legs}
          </body></worldbody>
        <actuator>{motors}</actuator></mujoco>"""
    )


def bundled():
    """The bundled quadruped on a floor, with spheres as feet and position servos."""
    folder = pathlib.Path(rbd.robots.__file__).parent
    robot = etree.parse(folder / "quadruped.urdf").getroot()
    for element in [*robot.iter("visual", "collision"), *robot.findall("mujoco")]:
        element.getparent().remove(element)
    etree.SubElement(etree.SubElement(robot, "mujoco"), "compiler", fusestatic="false")
    spec = mujoco.MjSpec.from_string(etree.tostring(robot).decode())
    trunk = spec.worldbody.bodies[0]
    trunk.add_freejoint()
    trunk.pos = [0, 0, 0.4]
    spec.option.timestep = DT
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[5, 5, 1], condim=1)
    for body in spec.bodies:
        if body.name.endswith("_foot"):
            body.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.02, 0, 0], condim=1)
    for joint in spec.joints:
        if joint.type == mujoco.mjtJoint.mjJNT_HINGE:
            joint.armature = 0.02
            motor = spec.add_actuator(target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
            motor.biastype = mujoco.mjtBias.mjBIAS_AFFINE
            motor.gainprm[0], motor.biasprm[1], motor.biasprm[2] = KP, -KP, -KD
    return spec.compile()


ANGLES = {"hip": 0.05, "thigh": 0.7, "knee": -1.3}


@pytest.mark.slow
@pytest.mark.parametrize("robot", [written, bundled])
def test_a_quadruped_rests_as_in_mujoco(robot):
    """The posture, and the forces of the servos and of the ground.

    Without friction there is one posture at rest. With friction, both simulators creep.
    """
    compiled = robot()
    found = from_mujoco(compiled)
    model, scene = found.model.with_dissipation(), found.scene
    angles = [
        ANGLES[next(part for part in PARTS if part in name)] for name in model.joint_names[1:]
    ]
    q = found.q0.at[7:].set(jnp.array(angles))
    # Start with the lowest point 1 mm above the floor.
    distance = contact_points(model, scene, q, jnp.zeros(model.nv)).distance
    q = q.at[2].add(1e-3 - jnp.min(distance))
    gains = [np.where(model.actuated, gain, 0.0) for gain in (KP, KD)]
    assert np.count_nonzero(gains[0]) == 12
    servo = Servo(PD(*gains), q)

    @jax.jit
    def settle(q):
        def advance(state, _):
            step = contact_step(model, scene, *state, jnp.zeros(model.nv), DT, servo=servo)
            return (step.q, step.v), None

        state, _ = jax.lax.scan(advance, (q, jnp.zeros(model.nv)), length=2000)
        return contact_step(model, scene, *state, jnp.zeros(model.nv), DT, servo=servo)

    step = settle(q)
    state = mujoco.MjData(compiled)
    state.qpos[:] = found.coordinates.qpos(model, q)
    state.ctrl[:] = [q[model.joint(name).q][0] for name in found.actuators.joints]
    mujoco.mj_step(compiled, state, 2000)
    theirs = found.coordinates.q(model, jnp.asarray(state.qpos))

    assert jnp.max(jnp.abs(step.v)) < 1e-5
    assert np.max(np.abs(state.qvel)) < 1e-5
    weight = float(rbd.total_mass(model)) * 9.81
    np.testing.assert_allclose(
        jnp.sum(step.impulse, axis=0) / DT, [0, 0, weight], atol=1e-5 * weight
    )
    # The contacts of MuJoCo give way by about a millimetre.
    assert abs(float(step.q[2] - theirs[2])) < 2e-3
    np.testing.assert_allclose(step.q[7:], theirs[7:], atol=5e-4)
    torques = step.joint_impulse.servo[6:] / DT
    scale = np.max(np.abs(state.qfrc_actuator))
    expected = found.coordinates.tau(model, theirs, jnp.asarray(state.qfrc_actuator))[6:]
    np.testing.assert_allclose(torques, expected, atol=0.01 * scale)
