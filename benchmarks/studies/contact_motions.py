"""Motions that find their contacts: from cold guesses, with random starts.

    python -m benchmarks.studies.contact_motions
    python -m benchmarks.studies.contact_motions --motions push --starts 5

- push: a finger on two slides pushes a box along the ground to a place. The start of the finger,
  the goal and the guess are random. A term of the cost draws the finger to the side of the box;
- hop: a vertical leg ends in the air, 0.8 to 1.2 m above the ground: it reaches 0.65 m with its
  foot on the ground;
- jump: a leg with a hip and a slide ends in the air, 0.4 m ahead and 0.95 m above the ground,
  0.3 m above the height that it reaches with its foot on the ground. A term of the cost avoids
  that the foot slides;
- step: the same leg jumps 0.7 m forward onto a step of 0.2 m, and stands there.

The guess is a constant force that carries the weight, plus noise: nothing states when a contact
begins. A motion counts if its last positions are within 0.02 m and rad of the goal. The table has
the largest depth, the complementarity, and the distance from the goal with half the time step:
each control acts for two steps, and the gains of the solution correct the motion.
"""

from __future__ import annotations

import functools
import time
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd
from benchmarks.studies import common
from jaxrbd import contact, optimal_control as oc
from jaxrbd.collision import Box, PlacedShape, Sphere
from jaxrbd.joints import Planar, Prismatic, Revolute
from jaxrbd.model import JointSpec, Link, link_inertia

X, Y, Z = np.eye(3)
DT, STAGES = 0.03, 40
HALF, TIP = 0.1, 0.03  # half the width of the box, and the radius of the finger, in m
CARRIED = 0.4 * 9.81  # the weight of the finger in N
STEP_AT, FOOT = 0.35, 0.05  # where the step is, and the radius of the foot, in m
WEIGHT = 3.3 * 9.81  # the weight that the leg carries in N


def body(name: str, mass: float, half: float) -> Link:
    return Link(name, link_inertia(mass, (0, 0, 0), mass * half**2 * 2 / 3 * np.eye(3)))


def push(dt: float) -> oc.Problem:
    """q is the finger in x and z, then the box in x and z and its angle."""
    upright = np.eye(4)
    upright[:3, :3] = np.stack([X, Z, -Y], axis=1)
    model = jaxrbd.build_model(
        [body("slide", 0.2, 0.05), body("finger", 0.2, 0.05), body("box", 1.0, HALF)],
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


def push_error(q, goal):
    return q[2:] - jnp.array([goal[0], HALF, 0.0])


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
            body("slide", 0.1, 0.02),
            body("base", 3.0, 0.1),
            body("thigh", 0.3, 0.05),
            body("foot", 0.2, 0.05),
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
        return jnp.concatenate([10 * (q - goal.q), goal.stop * v])

    bounds = np.array([30.0, 120.0])
    dynamics = oc.contact_shooting(model, scene, dt, dofs=(2, 3))
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


def jump_error(q, goal):
    return q - goal.q


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
# The problem for a time step, the start of a random generator, and the error of the last q.
MOTIONS = {
    "push": (push, push_start, push_error),
    "hop": (hop, hop_start, lambda q, goal: q - goal),
    "jump": (functools.partial(jump, height=0.0), IN_THE_AIR, jump_error),
    "step": (functools.partial(jump, height=0.2), ON_THE_STEP, jump_error),
}


@jax.jit
def half_steps(problem: oc.Problem, x0, solution: oc.Solution):
    """The last state of the motion with feedback, whose steps are half as long as those of x."""
    assert problem.control_bounds is not None
    space, (lower, upper) = problem.space, problem.control_bounds
    before, after = (jax.tree.map(lambda x, i=i: x[i:][:STAGES], solution.xs) for i in (0, 1))
    middle = jax.vmap(lambda x, y: space.retract(x, space.difference(x, y) / 2))(before, after)

    def stage(x, row):
        *planned, u, gain = row
        for reference in planned:
            force = jnp.clip(u + gain @ space.difference(reference, x), lower, upper)
            x = problem.step(0, x, force, None)
        return x, None

    return jax.lax.scan(stage, x0, (before, middle, solution.us, solution.gains))[0]


@jax.jit
def contact_forces(dynamics: oc.ContactShooting, solution: oc.Solution):
    """The sizes (N, n) of the forces on the contacts in N."""
    xs = jax.tree.map(lambda x: x[:-1], solution.xs)
    found = jax.vmap(dynamics.step)(xs, solution.us)
    return jnp.linalg.norm(found.impulse, axis=-1) / DT


def main() -> None:
    args = common.options(__doc__, motions=tuple(MOTIONS), starts=5)
    common.start()
    print("seconds and iterations of one solve; the first solve of a motion compiles too\n")
    for name in args.motions:
        make, start, error = MOTIONS[name]
        problem, half, arrived = make(DT), make(DT / 2), 0
        for seed in range(args.starts):
            x0, goal, guess = start(np.random.default_rng(seed))
            begin, begin_cpu = time.perf_counter(), time.process_time()
            found = jax.block_until_ready(oc.solve_contacts(problem, x0, goal, guess))
            seconds, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
            solution = found.solution
            last = jax.tree.map(lambda x: x[-1], solution.xs)
            off = float(jnp.max(jnp.abs(error(last[0], goal))))
            at_half = half_steps(half, x0, solution)
            off_half = float(jnp.max(jnp.abs(error(at_half[0], goal))))
            forces = contact_forces(problem.dynamics, solution)
            touching = np.asarray(forces[:, -1] > 1e-6)
            arrived += off < 0.02
            print(
                f"{name} {seed}: error {off:.1e}, at half the step {off_half:.1e}, "
                f"cost {float(solution.cost):.4f}, status {oc.Status(int(solution.status)).name}, "
                f"stationarity {float(solution.residuals.stationarity):.0e}, "
                f"defects {float(solution.residuals.defects):.0e}, "
                f"replay {float(found.replay_error):.0e}, depth {float(found.penetration):.1e} m, "
                f"complementarity {float(found.complementarity):.1e} N m, "
                f"{int(jnp.sum(found.iterations))} iterations, {seconds:.1f} s ({cpu:.1f} s of "
                f"processors), last contact in stages {''.join('.x'[int(t)] for t in touching)}",
                flush=True,
            )
        print(f"{name}: {arrived} of {args.starts} arrive\n", flush=True)


if __name__ == "__main__":
    main()
