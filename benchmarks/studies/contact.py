"""Times of `contact_step` for a quadruped that is dropped on the ground, beside MuJoCo.

    NPROC=1 taskset -c 0 python -m benchmarks.studies.contact
    NPROC=1 taskset -c 0 python -m benchmarks.studies.contact --baseline ../older --peers none

The bundled quadruped has four spheres as feet, a friction coefficient of 0.7, dry friction of
0.2 N m (`--dry-friction`), limits and PD control of its joints, and the time step is 2 ms, in
single precision. The robots of a batch start at heights of 0.33 to 0.55 m with random velocities.
They fall, land, slide, and stand or fall over.

- `step`, `gradient`: one step with given joint torques, from states of the first 0.8 s, and the
  gradient of the sum of squares of its result with respect to q, v and tau;
- `drop`: 1,000 steps, per step;
- `rest`: one step with the control from the states after these steps;
- `residual`: the largest residual of the steps; `compile`: the compilation time.

Times are processor times in microseconds per sample, the best of several runs in which all programs
take turns. MuJoCo runs in compiled C, in double precision. It solves another model of contact, with
its default options.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.studies import common

DT, FRICTION, RADIUS = 2e-3, 0.7, 0.02
STIFFNESS, DAMPING, EFFORT = 60.0, 2.0, 40.0
TURN = 0.1  # s, the least processor time of a program in its turn
ANGLES = {"hip": 0.0, "thigh": 0.8, "knee": -1.6}
COLUMNS = "step", "gradient", "drop", "rest"


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


def robot(rbd, dry_friction: float):
    """The quadruped of one version of jaxrbd, its feet on the ground, and its control."""
    contact, actuators = rbd.contact, rbd.actuators
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


def programs(rbd, batch: int, steps: int, dry_friction: float):
    """The program of each column for one version of jaxrbd, and the largest residual of a drop."""
    model, scene, servo = robot(rbd, dry_friction)

    def step(q, v, tau):
        found = rbd.contact.contact_step(model, scene, q, v, tau, DT)
        return found.q, found.v, found.residual

    def gradient(q, v, tau):
        def loss(*state):
            return sum(jnp.sum(x**2) for x in step(*state)[:2])

        return jax.grad(loss, (0, 1, 2))(q, v, tau)

    def held_step(q, v):
        still = jnp.zeros(18, jnp.float32)
        return rbd.contact.contact_step(model, scene, q, v, still, DT, servo=servo)

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
    friction = [FRICTION, 0.005, 0.0001]
    # Feet touch the ground, and not each other.
    spec.worldbody.add_geom(type=plane, size=[5, 5, 1], friction=friction, contype=1, conaffinity=2)
    for body in spec.bodies:
        if body.name.endswith("_foot"):
            body.add_geom(
                type=sphere, size=[RADIUS, 0, 0], friction=friction, contype=2, conaffinity=1
            )
    for joint in spec.joints:
        if joint.type == mujoco.mjtJoint.mjJNT_HINGE:
            motor = spec.add_actuator(target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
            motor.biastype = mujoco.mjtBias.mjBIAS_AFFINE
            motor.gainprm[0], motor.biasprm[1], motor.biasprm[2] = STIFFNESS, -STIFFNESS, -DAMPING
            motor.forcelimited, motor.forcerange = True, [-EFFORT, EFFORT]
            joint.frictionloss = dry_friction
    return spec.compile()


def with_mujoco(model, batch: int, steps: int, dry_friction: float):
    """A function that simulates the drop of each robot with MuJoCo."""
    import mujoco
    from mujoco import rollout

    robot = in_mujoco(dry_friction)
    data = mujoco.MjData(robot)
    # MuJoCo's joints have the order of their names, and its quaternions are wxyz.
    names = [robot.joint(i).name for i in range(1, robot.njnt)]
    order = [model.joint_names[1:].index(name) for name in names]
    q, v = (np.asarray(x, float) for x in starts(model, batch))
    start = q[:, :3], q[:, 6:7], q[:, 3:6], q[:, 7:][:, order], v[:, :6], v[:, 6:][:, order]
    state = np.zeros((batch, mujoco.mj_stateSize(robot, mujoco.mjtState.mjSTATE_FULLPHYSICS)))
    state[:, 1 : 1 + robot.nq + robot.nv] = np.concatenate(start, axis=1)
    control = np.tile(posture(model)[order], (batch, steps, 1))
    return lambda: rollout.rollout(robot, data, state, control)[0]


def repeated(program: common.Program, count: int):
    """The result of the last of `count` calls of a program."""
    for _ in range(count):
        result = program.compiled(*program.arguments)
    return result


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--batches", type=common.counts, default=(64, 1024))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--dry-friction", type=float, default=0.2, help="of each joint, N m")
    parser.add_argument("--peers", choices=("mujoco", "none"), default="mujoco")
    parser.add_argument("--baseline", type=pathlib.Path, help="another checkout of jaxrbd")
    options = parser.parse_args()
    versions = common.versions(options.baseline)
    print(f"{common.machine()}\n")
    units = "step, us", "gradient, us", "drop, us per step", "rest, us"
    common.head("program", "batch", *units, "residual", "compile, s")
    for batch in options.batches:
        size = batch, options.steps, options.dry_friction
        calls, last_cells = {}, {"MuJoCo": ("-", "-")}
        # A call of "drop" has all steps; short programs are called several times in a row.
        steps = {name: max(1, 4096 // batch) for name in COLUMNS} | {"drop": options.steps}
        for version, rbd in versions.items():
            found, residual = programs(rbd, *size)
            for name, program in found.items():
                count = 1 if name == "drop" else steps[name]
                calls[version, name] = functools.partial(repeated, program, count)
            seconds = [f"{name} {found[name].compile_s:.1f}" for name in ("step", "gradient")]
            last_cells[version] = f"{residual:.1e}", ", ".join(seconds)
        if options.peers == "mujoco":
            model = versions["jaxrbd"].load_robot("quadruped")
            calls["MuJoCo", "drop"] = with_mujoco(model, *size)
        times = common.least_seconds(calls, options.repeat, TURN)
        for program in dict.fromkeys(program for program, _ in calls):
            us = {name: 1e6 * times.get((program, name), 0) / batch / steps[name] for name in steps}
            cells = [f"{us[name]:.2f}" if us[name] else "-" for name in COLUMNS]
            common.row(program, batch, *cells, *last_cells[program])


if __name__ == "__main__":
    main()
