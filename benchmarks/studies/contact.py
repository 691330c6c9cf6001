"""Times of `contact_step` for a quadruped that is dropped on the ground, beside MuJoCo and MJX.

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
take turns. MuJoCo runs in compiled C. It solves another model of contact, with its default options;
for MJX the table states the limit of the iterations of its solver.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import session
from benchmarks.studies import common

DT, FRICTION, RADIUS = 2e-3, 0.7, 0.02
STIFFNESS, DAMPING, EFFORT = 60.0, 2.0, 40.0
TURN = 0.1  # s, the least processor time of a job in its turn
ANGLES = {"hip": 0.0, "thigh": 0.8, "knee": -1.6}


def package(checkout: pathlib.Path):
    """The package jaxrbd of another checkout."""
    folder = checkout.resolve() / "jaxrbd"
    name = "jaxrbd_baseline"
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise SystemExit(f"{folder} is no package")
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def posture(model) -> np.ndarray:
    """The angles of the joints that the control holds."""
    return np.array([ANGLES[name.split("_")[-2]] for name in model.joint_names[1:]])


def starts(model, batch: int) -> tuple[jax.Array, jax.Array]:
    """Random q and v of robots above the ground."""
    rng = np.random.default_rng(0)
    q = np.tile(np.asarray(rbd_neutral(model)), (batch, 1))
    q[:, :3] = rng.uniform([-1, -1, 0.33], [1, 1, 0.55], size=(batch, 3))
    q[:, 3:6] = 0.025 * rng.normal(size=(batch, 3))
    q[:, 6] = np.sqrt(1 - np.sum(q[:, 3:6] ** 2, axis=1))
    q[:, 7:] = posture(model) + 0.05 * rng.normal(size=(batch, 12))
    scale = [0.6, 0.6, 0.5, *[0.3] * 3, *[1.0] * 12]
    v = scale * rng.normal(size=(batch, 18))
    return jnp.asarray(q, jnp.float32), jnp.asarray(v, jnp.float32)


def rbd_neutral(model) -> np.ndarray:
    """Upright at the origin: zeros, and the identity as the last entry of the quaternion."""
    return np.eye(model.nq)[6]


def programs(rbd, batch: int, steps: int, dry_friction: float):
    """The compiled programs of one version of jaxrbd, their arguments and compilation times."""
    contact = importlib.import_module(f"{rbd.__name__}.contact")
    actuators = importlib.import_module(f"{rbd.__name__}.actuators")
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
    held = jnp.asarray(rbd_neutral(model), jnp.float32).at[7:].set(posture(model))
    servo = contact.Servo(gains, held)

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

    start = starts(model, batch)
    found = {"drop": (*common.compiled(jax.vmap(drop), *start), start)}
    # Its computation must not go on while the next program is compiled.
    q, v, tau, residual = jax.block_until_ready(found["drop"][0](*start))
    # One state of each robot, at a random time.
    at = np.random.default_rng(1).integers(0, min(400, steps), batch)
    state = tuple(x[np.arange(batch), at] for x in (q, v, tau))
    last = q[:, -1], v[:, -1]
    for name, function, arguments in (
        ("step", step, state),
        ("gradient", gradient, state),
        ("rest", lambda q, v: held_step(q, v)[:2], last),
    ):
        found[name] = (*common.compiled(jax.vmap(function), *arguments), arguments)
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


def mujoco_states(model, compiled_model, batch: int):
    """qpos, qvel and ctrl of the same start; MuJoCo's joints have the order of their names."""
    q, v = (np.asarray(x, float) for x in starts(model, batch))
    names = [compiled_model.joint(i).name for i in range(1, compiled_model.njnt)]
    order = [model.joint_names[1:].index(name) for name in names]
    qpos = np.concatenate([q[:, :3], q[:, 6:7], q[:, 3:6], q[:, 7:][:, order]], axis=1)
    qvel = np.concatenate([v[:, :6], v[:, 6:][:, order]], axis=1)
    return qpos, qvel, posture(model)[order]


def with_mujoco(model, batch: int, steps: int, dry_friction: float):
    """A job that simulates the drop of each robot with MuJoCo."""
    import mujoco
    from mujoco import rollout

    robot = in_mujoco(dry_friction)
    data = mujoco.MjData(robot)
    qpos, qvel, held = mujoco_states(model, robot, batch)
    state = np.zeros((batch, mujoco.mj_stateSize(robot, mujoco.mjtState.mjSTATE_FULLPHYSICS)))
    state[:, 1 : 1 + robot.nq + robot.nv] = np.concatenate([qpos, qvel], axis=1)
    control = np.tile(held, (batch, steps, 1))
    return lambda: rollout.rollout(robot, data, state, control)[0]


def with_mjx(model, batch: int, steps: int, dry_friction: float, iterations: int):
    """A compiled drop with MJX."""
    from mujoco import mjx

    robot = in_mujoco(dry_friction)
    robot.opt.iterations, robot.opt.ls_iterations = iterations, 4
    on_device = mjx.put_model(robot)
    qpos, qvel, held = mujoco_states(model, robot, batch)

    def drop(qpos, qvel):
        data = mjx.make_data(robot).replace(qpos=qpos, qvel=qvel, ctrl=jnp.asarray(held, "f"))
        step = lambda data, _: (mjx.step(on_device, data), None)  # noqa: E731
        return jax.lax.scan(step, data, length=steps)[0].qpos

    start = jnp.asarray(qpos, "f"), jnp.asarray(qvel, "f")
    program, seconds = common.compiled(jax.vmap(drop), *start)
    return (lambda: program(*start)), seconds


def main() -> None:
    import jaxrbd

    parser = common.parser(__doc__)
    parser.add_argument("--batches", type=common.counts, default=(64, 1024))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--dry-friction", type=float, default=0.2, help="of each joint, N m")
    parser.add_argument("--peers", default="mujoco,mjx", help="of mujoco, mjx; or none")
    parser.add_argument("--baseline", type=pathlib.Path, help="another checkout of jaxrbd")
    options = parser.parse_args()
    versions = {"jaxrbd": jaxrbd}
    if options.baseline:
        versions["baseline"] = package(options.baseline)
    model = jaxrbd.load_robot("quadruped")
    print(f"{session.machine()['processor']}, JAX {jax.__version__}\n")
    units = "step, us", "gradient, us", "drop, us per step", "rest, us"
    common.head("program", "batch", *units, "residual", "compile, s")
    for batch in options.batches:
        jobs, steps, rows = {}, {}, {}  # by program and by name of a column
        size = batch, options.steps, options.dry_friction
        for version, rbd in versions.items():
            found, residual = programs(rbd, *size)
            for name, (program, _, arguments) in found.items():
                count = 1 if name == "drop" else max(1, 4096 // batch)
                jobs[version, name] = functools.partial(repeated, program, arguments, count)
                steps[version, name] = options.steps if name == "drop" else count
            seconds = [f"{name} {found[name][1]:.1f}" for name in ("step", "gradient")]
            rows[version] = f"{residual:.1e}", ", ".join(seconds)
        if "mujoco" in options.peers:
            jobs["MuJoCo", "drop"] = with_mujoco(model, *size)
        if "mjx" in options.peers:
            for iterations in (1, 5):
                name = f"MJX, {iterations} iterations"
                jobs[name, "drop"], seconds = with_mjx(model, *size, iterations)
                rows[name] = "-", f"drop {seconds:.1f}"
        times = common.least_seconds(jobs, options.repeat, TURN)
        for program in dict.fromkeys(program for program, _ in jobs):
            cells = []
            for key in [(program, name) for name in ("step", "gradient", "drop", "rest")]:
                us = times.get(key, 0) / batch / steps.get(key, options.steps) * 1e6
                cells.append(f"{us:.2f}" if key in times else "-")
            common.row(program, batch, *cells, *rows.get(program, ("-", "-")))


def repeated(program, arguments, count: int):
    """The result of the last of `count` calls of a program."""
    for _ in range(count):
        result = program(*arguments)
    return result


if __name__ == "__main__":
    main()
