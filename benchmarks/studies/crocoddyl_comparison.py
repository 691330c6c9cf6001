"""Trajectories of jaxrbd and of Crocoddyl for the same problems: cost, iterations and time.

    python -m venv ENV && ENV/bin/pip install -r benchmarks/studies/crocoddyl.txt
    taskset -c 0 python -m benchmarks.studies.crocoddyl_comparison ENV/bin/python

Crocoddyl runs in its own environment (`crocoddyl_peer.py`). Both solvers have the same robots,
costs, stages and guess. To prove that the problems are the same, the script computes the cost of
the controls of Crocoddyl with the functions of jaxrbd; `tests/test_crocoddyl.py` compares single
stages at random states.

The residual is the largest error of the optimality conditions, of `kkt_residual`. The trajectories
of Crocoddyl are rollouts. Their costates follow from the derivatives of Crocoddyl.

The times are those of the processor. With `--batch 64`, jaxrbd also solves 64 problems in one
program, from starts near the start of the problem, with as many iterations as the single solve
takes: all at once (`jax.vmap`), and in turn (`jax.lax.map`). The times of these rows are per
problem. A problem can have several local minima. Parts of the double pendulum are Python classes in
Crocoddyl, so its iterations are slow there.
"""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp

import jaxrbd
from benchmarks.studies import common, crocoddyl_gaits
from jaxrbd import optimal_control, se3

DT = 1e-2
TOLERANCE = 1e-8
# The weights of the walk are up to 1e8, so the rounding errors of its residuals are above 1e-8.
TOLERANCES = {"walk": 1e-6}
HESSIANS = ("gauss_newton", "exact")


def robot_problem(model, dt, cost, last, dofs=None, rotors=None):
    """A problem with the time steps of Crocoddyl; u are forces of dofs or thrusts of rotors."""
    step = optimal_control.shooting_step(
        model, optimal_control.joint_torques(model, dofs), crocoddyl_gaits.step_of_crocoddyl, dt
    )

    def flight(t, x, u, p):
        return step(t, x, u @ rotors, p)

    dynamics = step if rotors is None else flight
    return optimal_control.Problem(optimal_control.state_space(model), dynamics, cost, last)


def double_pendulum(urdf):
    """The swing-up by a torque on the first joint."""

    def upright(x):
        q, v = x
        return jnp.concatenate([jnp.sin(q), 1 - jnp.cos(q), 0.1**0.5 * v])

    def cost(t, x, u, p):
        return jnp.concatenate([1e-2 * u, 1e-5**0.5 * upright(x)])

    def last(x, p):
        return 10 * upright(x)

    return robot_problem(jaxrbd.load_urdf(urdf), DT, cost, last, dofs=[0])


def reach(urdf, frame, goal, dt, weight, last_weight):
    """A reach of an arm; p is the initial state.

    `weight`: of the change of the state and of the control; `last_weight`: of the last pose.
    """
    model = jaxrbd.load_urdf(urdf)
    goal = jaxrbd.Pose(jnp.eye(3), jnp.array(goal))

    def error(q):
        return se3.log(goal.inverse() @ jaxrbd.frame_placement(model, q, frame))

    def cost(t, x, u, p):
        change = jnp.concatenate([jaxrbd.difference(model, p[0], x[0]), x[1] - p[1], u])
        return dt**0.5 * jnp.concatenate([error(x[0]), weight**0.5 * change])

    def last(x, p):
        return last_weight**0.5 * error(x[0])

    return robot_problem(model, dt, cost, last)


def quadrotor(urdf):
    """A flight with four rotors over 1 m in x and z; u are the thrusts."""
    model = jaxrbd.load_urdf(urdf, root_joint="free_flyer")
    dt, arm, ratio = 3e-2, 0.1525, 1e-6 / 6.6e-5
    # The force and the moment of each rotor on the body.
    places = arm * jnp.array([[1.0, 0, 0], [0, 1.0, 0], [-1.0, 0, 0], [0, -1.0, 0]])
    up = jnp.tile(jnp.array([0.0, 0.0, 1.0]), (4, 1))
    turning = ratio * jnp.array([-1.0, 1.0, -1.0, 1.0])
    rotors = jnp.concatenate([up, jnp.cross(places, up) + turning[:, None] * up], axis=1)
    neutral = jaxrbd.neutral(model)
    goal = jaxrbd.Pose(jnp.eye(3), jnp.array([1.0, 0.0, 1.0]))
    weights = jnp.sqrt(1e-6 * jnp.array([0.1] * 3 + [1000.0] * 9))

    def error(q):
        return se3.log(goal.inverse() @ jaxrbd.frame_placement(model, q, "base_link"))

    def cost(t, x, u, p):
        change = jnp.concatenate([jaxrbd.difference(model, neutral, x[0]), x[1]])
        return dt**0.5 * jnp.concatenate([weights * change, 1e-3 * u, 0.1 * error(x[0])])

    def last(x, p):
        return 3.0**0.5 * error(x[0])

    return robot_problem(model, dt, cost, last, rotors=rotors)


def unicycle(_):
    """A vehicle that parks at the origin."""

    def dynamics(t, x, u, p):
        return x + 0.1 * jnp.stack([u[0] * jnp.cos(x[2]), u[0] * jnp.sin(x[2]), u[1]])

    def cost(t, x, u, p):
        return jnp.concatenate([10 * x, u])

    def last(x, p):
        return 10 * x

    return optimal_control.Problem(optimal_control.vector_space(3), dynamics, cost, last)


ARM = {"frame": "j2s6s200_end_effector", "goal": [0.6, 0.2, 0.5]}
TALOS_ARM = {"frame": "gripper_left_joint", "goal": [0.0, 0.0, 0.4]}
PROBLEMS = {
    "double pendulum": double_pendulum,
    "arm": functools.partial(reach, **ARM, dt=DT, weight=0.1, last_weight=1e3),
    "quadrotor": quadrotor,
    "unicycle": unicycle,
    "talos arm": functools.partial(reach, **TALOS_ARM, dt=1e-3, weight=1e-4, last_weight=1.0),
}
GAITS = ("trot", "walk")


def restated(result, robots):
    """The problem that `crocoddyl_peer.py` describes, the initial state, and p.

    `robots`: the folder of the files of the robots.
    """
    urdf, gait = result["urdf"] and Path(robots) / result["urdf"], result["gait"]
    x0 = jnp.asarray(result["x0"])
    if gait:
        problem, p = crocoddyl_gaits.problem(gait, urdf), crocoddyl_gaits.parameters(gait)
        return problem, (x0, jnp.zeros(len(gait["armature"]))), p
    problem = PROBLEMS[result["name"]](urdf)
    if urdf is not None:
        x0 = x0, jnp.zeros(problem.space.size // 2)
    return problem, x0, x0


def peer(python, *words):
    """The results of `crocoddyl_peer.py` in another interpreter, one per line of its output."""
    command = [python, str(Path(__file__).with_name("crocoddyl_peer.py")), *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def scalar(cost):
    return cost if cost.ndim == 0 else jnp.sum(cost * cost) / 2


def cost_of_controls(problem, x, p, us):
    """The cost of the motion from x with the controls us."""

    @jax.jit
    def stage(t, x, u):
        shared = problem.common(t, x, u, p)
        return problem.dynamics(t, x, u, p, *shared), scalar(problem.cost(t, x, u, p, *shared))

    total = 0.0
    for t, u in enumerate(us):
        x, cost = stage(t, x, u)
        total += cost
    return float(total + scalar(problem.terminal_cost(x, p)))


def state(x):
    """A state from lists: a vector, or the pair (q, v)."""
    return tuple(map(jnp.asarray, x)) if isinstance(x[0], list) else jnp.asarray(x)


def batch_seconds(solve, problem, x0, batch):
    """The processor times per problem of a batch of solves from starts near x0, by name."""
    size = jax.eval_shape(problem.space.difference, x0, x0).shape
    changes = 1e-3 * jax.random.normal(jax.random.key(0), (batch, *size))
    starts = jax.vmap(lambda dx: problem.space.retract(x0, dx))(changes)
    ways = {f"batch of {batch}": jax.vmap(solve)}
    ways[f"{batch} in turn"] = lambda starts: jax.lax.map(solve, starts)
    calls = {name: common.Program(way, starts, batched=False).call for name, way in ways.items()}
    return {name: x / batch for name, x in common.least_seconds(calls).items()}


def compare(result, batch):
    name = result["name"]
    problem, x0, p = restated(result, result["robots"])
    us = jnp.asarray(result["us"])
    cost = cost_of_controls(problem, x0, p, us)
    if abs(cost - result["cost"]) > 1e-8 * abs(cost):
        raise SystemExit(f"{name}: Crocoddyl's cost is {result['cost']}, jaxrbd's is {cost}")
    guess = jnp.asarray(result["guess"])
    guess = jax.tree.map(lambda x: jnp.repeat(x[None], len(us) + 1, axis=0), x0), guess

    def solver(**options):
        return lambda x0: optimal_control.solve(problem, x0, p, guess, **options)

    def row(solver, cost, solution, iterations, seconds):
        residual = float(optimal_control.kkt_residual(problem, x0, p, solution).largest)
        ms = f"{seconds * 1e3:.3g}", f"{seconds * 1e3 / iterations:.3g}"
        common.row(name, solver, f"{cost:.10g}", iterations, f"{residual:.1e}", *ms)

    for hessian in HESSIANS:
        tolerance = TOLERANCES.get(name, TOLERANCE)
        solve = solver(iterations=500, hessian=hessian, tolerance=tolerance)
        found = jax.block_until_ready(solve(x0))
        (seconds,) = common.least_seconds({name: lambda solve=solve: solve(x0)}).values()
        if hessian == "gauss_newton":
            states = [state(x) for x in result["xs"]]
            xs = jax.tree.map(lambda *x: jnp.stack(x), *states)
            theirs = found._replace(xs=xs, us=us, costates=jnp.asarray(result["costates"]))
            row("Crocoddyl, FDDP", cost, theirs, result["iterations"], result["seconds"])
        count = int(found.iterations)
        status = optimal_control.Status(int(found.status)).name.lower()
        times = {status: seconds}
        if batch:
            fixed = {"iterations": count, "tolerance": 0.0, "fixed_iterations": True}
            times |= batch_seconds(solver(hessian=hessian, **fixed), problem, x0, batch)
        for label, seconds in times.items():
            row(f"jaxrbd, {hessian}: {label}", float(found.cost), found, count, seconds)


def main():
    given = common.options(__doc__, "python", problems=(*PROBLEMS, *GAITS), batch=0)
    common.start()
    per_iteration = "residual", "ms", "ms per iteration"
    common.head("problem", "solver", "cost", "iterations", *per_iteration)
    for result in peer(*given.python, *given.problems):
        compare(result, given.batch)


if __name__ == "__main__":
    main()
