"""Times of `contact_step` for a quadruped that is dropped on the ground, beside MuJoCo.

    NPROC=1 taskset -c 0 python -m benchmarks.studies.contact

The bundled quadruped has four spheres as feet, a friction coefficient of 0.7, dry friction in its
joints or none, limits and PD control of its joints, and the time step is 2 ms, in single precision.
The robots of a batch start at heights of 0.33 to 0.55 m with random velocities. They fall, land,
slide, and stand or fall over.

- `step`, `gradient`: one step with given joint torques, from states of the first 0.8 s, and the
  gradient of the sum of squares of its result with respect to q, v and tau;
- `drop`: 1,000 steps, per step;
- `rest`: one step with the control from the states after these steps;
- `residual`: the largest residual of the steps; `compile`: of the step and of the gradient.

Times are processor times in microseconds per sample. All programs take turns. MuJoCo runs in
compiled C, in double precision. It solves another model of contact, with its default options.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd as rbd
from benchmarks.studies import common
from jaxrbd import actuators, contact

DT, FRICTION, RADIUS = 2e-3, 0.7, 0.02
STIFFNESS, DAMPING, EFFORT = 60.0, 2.0, 40.0
ANGLES = {"hip": 0.0, "thigh": 0.8, "knee": -1.6}


def posture(model) -> np.ndarray:
    """The angles of the joints that the control holds."""
    return np.array([ANGLES[name.split("_")[-2]] for name in model.joint_names[1:]])


def starts(model, batch: int) -> tuple[jax.Array, jax.Array]:
    """Random q and v of robots above the ground."""
    rng = np.random.default_rng(0)
    q = np.zeros((batch, 19))
    q[:, :3] = rng.uniform([-1, -1, 0.33], [1, 1, 0.55], size=(batch, 3))
    q[:, 3:6] = 0.025 * rng.normal(size=(batch, 3))
    q[:, 6] = np.sqrt(1 - np.sum(q[:, 3:6] ** 2, axis=1))
    q[:, 7:] = posture(model) + 0.05 * rng.normal(size=(batch, 12))
    scale = [0.6, 0.6, 0.5, *[0.3] * 3, *[1.0] * 12]
    v = scale * rng.normal(size=(batch, 18))
    return jnp.asarray(q, jnp.float32), jnp.asarray(v, jnp.float32)


def robot(dry_friction: float):
    """The quadruped, its feet on the ground, and its control."""
    model = rbd.load_robot("quadruped")
    dry = dry_friction * (np.arange(model.nv) >= 6)
    model = dataclasses.replace(model, friction=dry).with_dissipation().astype(jnp.float32)
    feet = [name for name in model.frame_names if name.endswith("_foot")]
    material = contact.Material(friction=FRICTION)
    scene = contact.Scene(feet, RADIUS, material=material).astype(jnp.float32)
    scene = dataclasses.replace(scene, inverse_inertia=contact.inverse_inertias(model, scene))
    gains = actuators.PD.for_joints(
        model, model.joint_names[1:], stiffness=STIFFNESS, damping=DAMPING, effort=EFFORT
    )
    held = rbd.neutral(model).at[7:].set(posture(model))
    return model, scene, contact.Servo(gains, held)


def programs(batch: int, steps: int, dry_friction: float):
    """The program of each column, and the largest residual of a drop."""
    model, scene, servo = robot(dry_friction)

    def step(q, v, tau):
        found = contact.contact_step(model, scene, q, v, tau, DT)
        return found.q, found.v, found.residual

    def gradient(q, v, tau):
        def loss(*state):
            return sum(jnp.sum(x**2) for x in step(*state)[:2])

        return jax.grad(loss, (0, 1, 2))(q, v, tau)

    def held_step(q, v):
        still = jnp.zeros(18, jnp.float32)
        return contact.contact_step(model, scene, q, v, still, DT, servo=servo)

    def drop(q, v):
        def advance(state, _):
            found = held_step(*state)
            tau = found.joint_impulse.servo / DT
            return (found.q, found.v), (*state, tau, found.residual)

        return jax.lax.scan(advance, (q, v), length=steps)[1]

    falls = common.Program(drop, *starts(model, batch))
    q, v, tau, residual = falls.call()
    # One state of each robot, at a random time.
    at = np.random.default_rng(1).integers(0, min(400, steps), batch)
    state = [x[np.arange(batch), at] for x in (q, v, tau)]
    found = {
        "step": common.Program(step, *state),
        "gradient": common.Program(gradient, *state),
        "drop": falls,
        "rest": common.Program(lambda q, v: held_step(q, v)[:2], q[:, -1], v[:, -1]),
    }
    return found, float(jnp.max(residual))


def in_mujoco(dry_friction: float):
    """The same robot for MuJoCo, from the same URDF file."""
    import mujoco
    from lxml import etree

    robot = etree.parse(common.ROOT / "jaxrbd" / "robots" / "quadruped.urdf").getroot()
    for element in [*robot.iter("visual", "collision"), *robot.findall("mujoco")]:
        element.getparent().remove(element)
    etree.SubElement(etree.SubElement(robot, "mujoco"), "compiler", fusestatic="false")
    spec = mujoco.MjSpec.from_string(etree.tostring(robot).decode())
    spec.worldbody.bodies[0].add_freejoint()
    spec.option.timestep = DT
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    plane, sphere = mujoco.mjtGeom.mjGEOM_PLANE, mujoco.mjtGeom.mjGEOM_SPHERE
    # Feet touch the ground, and not each other.
    ground, foot = {"contype": 1, "conaffinity": 2}, {"contype": 2, "conaffinity": 1}
    friction = [FRICTION, 0.005, 0.0001]
    spec.worldbody.add_geom(type=plane, size=[5, 5, 1], friction=friction, **ground)
    for body in spec.bodies:
        if body.name.endswith("_foot"):
            body.add_geom(type=sphere, size=[RADIUS, 0, 0], friction=friction, **foot)
    for joint in spec.joints:
        if joint.type == mujoco.mjtJoint.mjJNT_HINGE:
            motor = spec.add_actuator(target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
            motor.biastype = mujoco.mjtBias.mjBIAS_AFFINE
            motor.gainprm[0], motor.biasprm[1], motor.biasprm[2] = STIFFNESS, -STIFFNESS, -DAMPING
            motor.forcelimited, motor.forcerange = True, [-EFFORT, EFFORT]
            joint.frictionloss = dry_friction
    return spec.compile()


def with_mujoco(batch: int, steps: int, dry_friction: float):
    """A function that simulates the drop of each robot with MuJoCo."""
    model, compiled = rbd.load_robot("quadruped"), in_mujoco(dry_friction)
    # MuJoCo's joints have the order of their names, and its quaternions are wxyz.
    names = [compiled.joint(i).name for i in range(1, compiled.njnt)]
    order = np.array([model.joint_names[1:].index(name) for name in names])
    q, v = (np.asarray(x, float) for x in starts(model, batch))
    qpos = np.concatenate([q[:, [0, 1, 2, 6, 3, 4, 5]], q[:, 7 + order]], axis=1)
    qvel = np.concatenate([v[:, :6], v[:, 6 + order]], axis=1)
    control = np.tile(posture(model)[order], (batch, 1))
    return common.in_mujoco(compiled, qpos, qvel, control, steps)


def main() -> None:
    given = common.options(__doc__, batch=64, steps=1000)
    common.start(double=False)
    units = "step, us", "gradient, us", "drop, us per step", "rest, us"
    common.head("program", "dry friction", *units, "residual", "compile, s")
    for dry_friction in (0.2, 0.0):
        found, residual = programs(given.batch, given.steps, dry_friction)
        calls = {name: program.call for name, program in found.items()}
        calls["MuJoCo"] = with_mujoco(given.batch, given.steps, dry_friction)
        us = {name: 1e6 * x / given.batch for name, x in common.least_seconds(calls).items()}
        us["drop"], us["MuJoCo"] = us["drop"] / given.steps, us["MuJoCo"] / given.steps
        cells = [f"{us[name]:.2f}" for name in found]
        compiling = ", ".join(f"{found[name].compile_s:.1f}" for name in ("step", "gradient"))
        common.row("contact_step", dry_friction, *cells, f"{residual:.1e}", compiling)
        common.row("MuJoCo", dry_friction, "-", "-", f"{us['MuJoCo']:.2f}", "-", "-", "-")


if __name__ == "__main__":
    main()
