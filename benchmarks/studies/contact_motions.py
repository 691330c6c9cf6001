"""Motions that find their contacts: from cold guesses, with random starts.

    python -m benchmarks.studies.contact_motions
    python -m benchmarks.studies.contact_motions --motions push --starts 5 --save FOLDER

- push: a finger on two slides pushes a box along the ground to a place. The start of the finger,
  the goal and the guess are random. A term of the cost draws the finger to the side of the box;
- hop: a vertical leg ends in the air, 0.8 to 1.2 m above the ground: it reaches 0.65 m with its
  foot on the ground;
- jump: a leg with a hip and a slide ends in the air, 0.4 m ahead and 0.95 m above the ground,
  0.3 m above the height that it reaches with its foot on the ground. A term of the cost avoids
  that the foot slides;
- step: the same leg jumps 0.7 m forward onto a step of 0.2 m, and stands there.

The guess is a constant force that carries the weight, plus noise: nothing states when a contact
begins. A servo holds the hip and the length of the leg, and the controls are added to its forces.
The bounds of the controls do not limit this sum, because the leg is no real robot. A motion counts
if its last positions are within 0.02 m and rad of the goal. The rows have the largest depth, the
complementarity, and the distance from the goal with half the time step: each control acts for two
steps, and the gains of the solution correct the motion. They also have the largest joint force,
divided by the limit of the robot, or by the bound of the control of a robot without limits. The
motions of the leg are then refined: solved again with half the time step, from this replay. With
`--save`, the configurations of the first start are stored in a file for each motion; docs/motions
has the files of `push` and `step`.
"""

from __future__ import annotations

import functools
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd
from benchmarks.studies import common
from jaxrbd import actuators, contact, optimal_control as oc
from jaxrbd.collision import Box, Cylinder, PlacedShape, Sphere
from jaxrbd.joints import Planar, Prismatic, Revolute
from jaxrbd.model import Geometry, JointSpec, Link, link_inertia, placement_matrix
from jaxrbd.optimal_control.contact_shooting import SMOOTHING

X, Y, Z = np.eye(3)
DT, STAGES = 0.03, 40
HALF, TIP = 0.1, 0.03  # half the width of the box, and the radius of the finger, in m
CARRIED = 0.4 * 9.81  # the weight of the finger in N
STEP_AT, FOOT = 0.35, 0.05  # where the step is, and the radius of the foot, in m
WEIGHT = 3.3 * 9.81  # the weight that the leg carries in N
POSTURE = 0.0, 0.45 + FOOT, 0.0, 0.4  # q that the servo of the leg tracks


class Motion(NamedTuple):
    """A motion of a study.

    - `problem(dt)`: the problem with the time step dt;
    - `start(random)`: the state at the start, the parameters p and the guess of the controls;
    - `error(x, p)`: the distance of the last state x from the goal, in m and rad;
    - `dt` in s, and the arguments `smoothing` and `iterations` of `solve_contacts`;
    - `part`: the part of the limits of the robot in the plan. The rest is left for the feedback;
    - `refined`: whether the solution is solved again with half the time step.
    """

    problem: Callable[[float], oc.Problem]
    start: Callable[[np.random.Generator], tuple[Any, Any, jax.Array]]
    error: Callable[[Any, Any], jax.Array]
    dt: float = DT
    smoothing: tuple[float, ...] = SMOOTHING
    iterations: int = 25
    part: float = 1.0
    refined: bool = False


def body(name: str, mass: float, half: float, *visuals: Geometry) -> Link:
    """A link with the inertia of a cube, and shapes to draw."""
    inertia = link_inertia(mass, (0, 0, 0), mass * half**2 * 2 / 3 * np.eye(3))
    return Link(name, inertia, visuals)


def rod(radius: float, z: float) -> Geometry:
    """A vertical rod of 0.3 m with its middle at z."""
    return Geometry(Cylinder(radius, 0.15), placement_matrix((0, 0, z)))


def push(dt: float) -> oc.Problem:
    """q is the finger in x and z, then the box in x and z and its angle."""
    upright = np.eye(4)
    upright[:3, :3] = np.stack([X, Z, -Y], axis=1)
    model = jaxrbd.build_model(
        [
            body("slide", 0.2, 0.05, Geometry(Sphere(TIP / 3))),
            body("finger", 0.2, 0.05, Geometry(Sphere(TIP))),
            body("box", 1.0, HALF, Geometry(Box([HALF] * 3))),
        ],
        [
            JointSpec("forward", Prismatic(tuple(X)), None, "slide", damping=0.5),
            JointSpec("up", Prismatic(tuple(Z)), "slide", "finger", damping=0.5),
            JointSpec("plane", Planar(), None, "box", upright),
        ],
    )
    corners = [[x, y, 0.0] for x in (-HALF, HALF) for y in (-HALF, HALF)]
    tip, box = PlacedShape(Sphere(TIP), "finger"), PlacedShape(Box([HALF] * 3), "box")
    scene = contact.Scene(
        ["box"] * 4 + ["finger"],
        [0.0] * 4 + [TIP],
        np.array([*corners, [0.0] * 3]),
        material=contact.Material(friction=0.5),
        pairs=contact.collision_pairs([(tip, box)]),
    )

    def cost(t, x, u, goal):
        q, v = x
        reach = q[:2] - q[2:4] + jnp.array([HALF + TIP, 0.0])
        force = u - jnp.array([0.0, CARRIED])
        return dt**0.5 * jnp.concatenate([0.05 * force, 0.1 * v, 0.5 * reach, q[4:]])

    def last(x, goal):
        q, v = x
        return jnp.concatenate([10 * (q[2:3] - goal), 3 * (q[3:] - jnp.array([HALF, 0.0])), v])

    dynamics = oc.contact_shooting(model, scene, dt, dofs=(0, 1))
    return oc.Problem(oc.state_space(model), dynamics, cost, last, control_bounds=(-20.0, 20.0))


def push_start(random):
    finger = random.uniform(-0.35, -0.15), random.uniform(0.05, 0.25)
    x0 = jnp.array([*finger, 0.0, HALF, 0.0]), jnp.zeros(5)
    goal = jnp.array([random.uniform(0.2, 0.6)])
    return x0, goal, jnp.array([0.0, CARRIED]) + random.normal(size=(STAGES, 2))


def push_error(x, goal):
    return x[0][2:] - jnp.array([goal[0], HALF, 0.0])


class Ledge(eqx.Module):
    """The height of a smooth step."""

    height: jax.Array

    def __call__(self, xy):
        return self.height * jax.nn.sigmoid((xy[0] - STEP_AT) / 0.03)


@functools.cache
def leg_on_slides(dt: float) -> oc.Problem:
    """q is the base in x and z, the angle of the hip, and the length of the leg."""
    model = jaxrbd.build_model(
        [
            body("slide", 0.1, 0.02, Geometry(Sphere(0.02))),
            body("base", 3.0, 0.1, Geometry(Box([0.1] * 3))),
            body("thigh", 0.3, 0.05, rod(0.04, -0.15)),
            body("foot", 0.2, 0.05, rod(0.025, 0.15), Geometry(Sphere(FOOT))),
        ],
        [
            JointSpec("forward", Prismatic(tuple(X)), None, "slide"),
            JointSpec("up", Prismatic(tuple(Z)), "slide", "base"),
            JointSpec("hip", Revolute(tuple(Y)), "base", "thigh", lower=-1.2, upper=1.2),
            JointSpec("leg", Prismatic(tuple(-Z)), "thigh", "foot", lower=0.25, upper=0.6),
        ],
    )
    material = contact.Material(friction=0.8)
    scene = contact.Scene(["foot"], [FOOT], ground=Ledge(jnp.zeros(())), material=material)

    def foot(q):
        return q[:2] - q[3] * jnp.stack([jnp.sin(q[2]), jnp.cos(q[2])])

    def cost(t, x, u, goal):
        q, v = x
        place, velocity = jax.jvp(foot, (q,), (v,))
        above = place[1] - FOOT - Ledge(goal.height)(place)
        slip = velocity[:1] * jnp.exp(-jnp.maximum(above, 0) / 0.02)
        posture = q[2:] - jnp.array([0.0, 0.4])
        return dt**0.5 * jnp.concatenate([0.01 * u, 0.02 * v, 0.5 * posture, 0.05 * slip])

    def last(x, goal):
        q, v = x
        return jnp.concatenate([30 * (q - goal.q), goal.stop * v])

    bounds = np.array([30.0, 120.0])
    gains = actuators.PD([0.0, 0.0, 15.0, 250.0], [0.0, 0.0, 1.5, 15.0], np.full(4, np.inf))
    servo, load = contact.Servo(gains, np.array(POSTURE)), jaxrbd.total_mass(model)
    dynamics = oc.contact_shooting(model, scene, dt, dofs=(2, 3), servo=servo, load=load)
    return oc.Problem(oc.state_space(model), dynamics, cost, last, control_bounds=(-bounds, bounds))


class Landing(NamedTuple):
    """The goal of a jump: the last q, the weight of the last velocities, the height of the step."""

    q: jax.Array
    stop: jax.Array
    height: jax.Array


def jump(dt: float, height: float) -> oc.Problem:
    return eqx.tree_at(
        lambda problem: problem.dynamics.scene.ground.height.height,
        leg_on_slides(dt),
        jnp.asarray(height),
    )


def jump_start(q, stop, height, random):
    x0 = jnp.array([0.0, 0.4 + FOOT, 0.0, 0.4]), jnp.zeros(4)
    guess = jnp.array([0.0, WEIGHT]) + random.normal(size=(STAGES, 2)) * [0.3, 3.0]
    return x0, Landing(jnp.array(q), jnp.asarray(stop), jnp.asarray(height)), guess


def jump_error(x, goal):
    return x[0] - goal.q


def hop(dt: float) -> oc.Problem:
    """q is the height of the base and the length of the leg."""
    model = jaxrbd.build_model(
        [body("base", 3.0, 0.1), body("foot", 0.3, 0.05)],
        [
            JointSpec("up", Prismatic(tuple(Z)), None, "base"),
            JointSpec("leg", Prismatic(tuple(-Z)), "base", "foot", lower=0.25, upper=0.6),
        ],
    )
    scene = contact.Scene(["foot"], [FOOT])

    def cost(t, x, u, goal):
        q, v = x
        return dt**0.5 * jnp.concatenate([0.01 * u, 0.02 * v, 0.5 * (q[1:] - 0.4)])

    def last(x, goal):
        q, v = x
        return jnp.concatenate([30 * (q - goal), 0.1 * v])

    dynamics = oc.contact_shooting(model, scene, dt, dofs=(1,))
    return oc.Problem(oc.state_space(model), dynamics, cost, last, control_bounds=(-120.0, 120.0))


def hop_start(random):
    x0 = jnp.array([0.4 + FOOT, 0.4]), jnp.zeros(2)
    goal = jnp.array([random.uniform(0.8, 1.2), 0.35])
    return x0, goal, WEIGHT + 3 * random.normal(size=(STAGES, 1))


IN_THE_AIR = functools.partial(jump_start, (0.4, 0.95, 0.0, 0.35), 0.1, 0.0)
ON_THE_STEP = functools.partial(jump_start, (0.7, 0.65, 0.0, 0.4), 1.0, 0.2)
MOTIONS = {
    "push": Motion(push, push_start, push_error),
    "hop": Motion(hop, hop_start, lambda x, goal: x[0] - goal),
    "jump": Motion(functools.partial(jump, height=0.0), IN_THE_AIR, jump_error, refined=True),
    "step": Motion(functools.partial(jump, height=0.2), ON_THE_STEP, jump_error, refined=True),
}


@jax.jit
def half_steps(problem: oc.Problem, x0, solution: oc.Solution):
    """The states and controls with feedback, for a `problem` with half of the solution's steps."""
    assert problem.control_bounds is not None
    space, (lower, upper) = problem.space, problem.control_bounds
    stages = len(solution.us)
    before, after = (jax.tree.map(lambda x, i=i: x[i:][:stages], solution.xs) for i in (0, 1))
    middle = jax.vmap(lambda x, y: space.retract(x, space.difference(x, y) / 2))(before, after)

    def stage(x, row):
        *planned, u, gain = row
        states, forces = [], []
        for reference in planned:
            force = jnp.clip(u + gain @ space.difference(reference, x), lower, upper)
            x = problem.step(0, x, force, None)
            states.append(x)
            forces.append(force)
        return x, (jax.tree.map(lambda *y: jnp.stack(y), *states), jnp.stack(forces))

    rows = before, middle, solution.us, solution.gains
    xs, us = jax.tree.map(jnp.concatenate, jax.lax.scan(stage, x0, rows)[1])
    return jax.tree.map(lambda x, y: jnp.concatenate([x[None], y]), x0, xs), us


@jax.jit
def touching_contacts(dynamics: oc.ContactShooting, solution: oc.Solution) -> jax.Array:
    """Whether each contact has a force (N, n)."""
    xs = jax.tree.map(lambda x: x[:-1], solution.xs)
    found = jax.vmap(dynamics.step)(xs, solution.us)
    return jnp.linalg.norm(found.impulse, axis=-1) / dynamics.dt > 1e-6


def with_whole_effort(problem: oc.Problem, part: float) -> oc.Problem:
    """The problem whose servo has the limits of the robot, instead of a part of them."""
    dynamics: Any = problem.dynamics
    if dynamics.servo is None:
        return problem
    effort = dynamics.servo.control.effort / part
    return eqx.tree_at(lambda problem: problem.dynamics.servo.control.effort, problem, effort)


def largest_effort(problem: oc.Problem, part: float, joint_forces: jax.Array) -> float:
    """The largest of the joint forces (N, nv) of a motion, divided by its limit."""
    assert problem.control_bounds is not None
    dynamics: Any = with_whole_effort(problem, part).dynamics
    dofs, (_, limit) = np.array(dynamics.dofs), problem.control_bounds
    if dynamics.servo is not None:
        effort = np.asarray(dynamics.servo.control.effort)[dofs]
        limit = np.where(np.isfinite(effort), effort, limit)
    return float(np.max(np.abs(joint_forces[:, dofs]) / limit))


def largest_error(motion: Motion, xs, p) -> float:
    """The largest component of the distance from the goal at the end, in m and rad."""
    return float(jnp.max(jnp.abs(motion.error(jax.tree.map(lambda x: x[-1], xs), p))))


def report(motions: Mapping[str, Motion], starts: int, folder: str) -> None:
    """Solve the motions, and print a row per start. Store the first ones in a folder, unless ""."""
    print("seconds and iterations of one solve; the first solve of a motion compiles too\n")
    for name, motion in motions.items():
        problem, half, arrived = motion.problem(motion.dt), motion.problem(motion.dt / 2), 0
        half = with_whole_effort(half, motion.part)
        for seed in range(starts):
            x0, p, guess = motion.start(np.random.default_rng(seed))
            begin, begin_cpu = time.perf_counter(), time.process_time()
            found = jax.block_until_ready(
                oc.solve_contacts(problem, x0, p, guess, motion.smoothing, motion.iterations)
            )
            seconds, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
            solution, last = found.solution, jax.tree.map(lambda x: x[-1], found.solution.xs)
            replay = half_steps(half, x0, solution)
            off, off_half = (largest_error(motion, xs, p) for xs in (solution.xs, replay[0]))
            touching = touching_contacts(problem.dynamics, solution)
            arrived += off < 0.02
            path, states = pathlib.Path(folder) / f"{name}.npy", solution.xs
            print(
                f"{name} {seed}: error {off:.1e}, at half the step {off_half:.1e}, "
                f"cost {float(solution.cost):.4f}, status {oc.Status(int(solution.status)).name}, "
                f"stationarity {float(solution.residuals.stationarity):.0e}, "
                f"defects {float(solution.residuals.defects):.0e}, "
                f"replay {float(found.replay_error):.0e}, depth {float(found.penetration):.1e} m, "
                f"complementarity {float(found.complementarity):.1e} N m, "
                f"last speed {float(jnp.max(jnp.abs(last[1]))):.2f}, "
                f"joint forces / limits "
                f"{largest_effort(problem, motion.part, found.joint_forces):.3f}, "
                f"{int(jnp.sum(found.iterations))} iterations, {seconds:.1f} s ({cpu:.1f} s of "
                f"processors)",
                flush=True,
            )
            for contact_touches in np.asarray(touching).T:
                print("    " + "".join(".x"[int(x)] for x in contact_touches))
            if motion.refined:
                begin_cpu = time.process_time()
                fine = jax.block_until_ready(
                    oc.solve_contacts(half, x0, p, replay, (0.0,), 50, depth=0.02)
                )
                states = fine.solution.xs
                print(
                    f"    refined: error {largest_error(motion, fine.solution.xs, p):.1e}, cost "
                    f"{float(fine.solution.cost):.4f}, replay {float(fine.replay_error):.0e}, "
                    f"depth {float(fine.penetration):.1e} m, complementarity "
                    f"{float(fine.complementarity):.1e} N m, joint forces / limits "
                    f"{largest_effort(problem, motion.part, fine.joint_forces):.3f}, "
                    f"{time.process_time() - begin_cpu:.1f} s of processors",
                    flush=True,
                )
            if folder and seed == 0:
                np.save(path, np.asarray(states[0], np.float32))
        print(f"{name}: {arrived} of {starts} arrive\n", flush=True)


def main() -> None:
    args = common.options(__doc__, motions=tuple(MOTIONS), starts=5, save="")
    common.start()
    report({name: MOTIONS[name] for name in args.motions}, args.starts, args.save)


if __name__ == "__main__":
    main()
