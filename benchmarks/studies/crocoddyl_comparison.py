"""Trajectories of jaxrbd and of Crocoddyl for the same problems: cost, iterations and time.

    python -m venv ENV && ENV/bin/pip install -r benchmarks/studies/crocoddyl.txt
    taskset -c 0 python -m benchmarks.studies.crocoddyl_comparison ENV/bin/python

Crocoddyl runs in its own environment (`crocoddyl_peer.py`). Both solvers have the same robots,
costs, stages and guess. To prove that the problems are the same, the script compares the costs and
the dynamics of some stages at random states and controls. It also computes the cost of the controls
of Crocoddyl with the functions of jaxrbd.

The residual is the largest error of the optimality conditions, of `kkt_residual`. The trajectories
of Crocoddyl are rollouts. Their costates follow from the derivatives of Crocoddyl.

The times are those of the processor, the least of five solves. With `--batch 64`, jaxrbd also
solves 64 problems in one program, from starts near the start of the problem, with as many
iterations as the single solve takes: all at once (`jax.vmap`), and in turn (`jax.lax.map`). The
times of these rows are per problem. A problem can have several local minima. Parts of the double
pendulum are Python classes in Crocoddyl, so its iterations are slow there.
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


def stage(problem, p):
    """The function (t, x, u) to the state after a stage and its cost."""

    @jax.jit
    def found(*x):
        common = problem.common(*x, p)
        return problem.dynamics(*x, p, *common), scalar(problem.cost(*x, p, *common))

    return found


def scalar(cost):
    return cost if cost.ndim == 0 else jnp.sum(cost * cost) / 2


def node_errors(problem, p, nodes, evaluate):
    """The largest relative errors of the cost and of the state after the stage, per node."""
    (m,) = {len(node["u"]) for node in nodes if node["u"]}
    found = []
    for node in nodes:
        x, error = state(node["x"]), 0.0
        if node["stage"] < 0:
            cost = scalar(problem.terminal_cost(x, p))
        else:
            after, cost = evaluate(node["stage"], x, jnp.asarray(node["u"] or [0.0] * m))
            gap = problem.space.difference(state(node["after"]), after)
            size = problem.space.difference(x, after)
            error = jnp.max(jnp.abs(gap)) / jnp.max(jnp.abs(size))
        found.append((float(abs(cost / node["cost"] - 1)), float(error)))
    return found


def controls_cost(problem, x, p, us, evaluate):
    """The cost of the motion from x with the controls us."""
    total = 0.0
    for t, u in enumerate(us):
        x, cost = evaluate(t, x, jnp.asarray(u))
        total += cost
    return total + scalar(problem.terminal_cost(x, p))


def state(x):
    """A state from lists: a vector, or the pair (q, v)."""
    return tuple(map(jnp.asarray, x)) if isinstance(x[0], list) else jnp.asarray(x)


def row(name, solver, cost, residual, iterations, seconds):
    times = f"{seconds * 1e3:.3g}", f"{seconds * 1e3 / iterations:.3g}"
    common.row(name, solver, f"{cost:.10g}", iterations, f"{residual:.1e}", *times)


def solver(problem, p, guess, **options):
    """A function from the initial state to the solution."""
    return lambda x0: optimal_control.solve(problem, x0, p, guess, **options)


def batch_seconds(solve, problem, x0, batch):
    """The processor times per problem of a batch of solves from starts near x0, by name."""
    size = jax.eval_shape(problem.space.difference, x0, x0).shape
    changes = 1e-3 * jax.random.normal(jax.random.key(0), (batch, *size))
    starts = jax.vmap(lambda dx: problem.space.retract(x0, dx))(changes)
    ways = {f"batch of {batch}": jax.vmap(solve)}
    ways[f"{batch} in turn"] = lambda starts: jax.lax.map(solve, starts)
    for name, way in ways.items():
        program = common.Program(way, starts, batched=False)
        yield name, common.least_seconds({name: program.call}, 3)[name] / batch


def check(result, problem, x0, p):
    """Raise SystemExit if costs or states differ from those of Crocoddyl; return the cost."""
    name, evaluate = result["name"], stage(problem, p)
    errors = node_errors(problem, p, result["nodes"], evaluate)
    if max(map(max, errors)) > 1e-9:
        raise SystemExit(f"{name}: the relative errors of costs and states are {errors}")
    cost = controls_cost(problem, x0, p, result["us"], evaluate)
    if abs(cost - result["cost"]) > 1e-8 * abs(cost):
        raise SystemExit(f"{name}: Crocoddyl's cost is {result['cost']}, jaxrbd's is {cost}")
    return float(cost)


def compare(result, hessians, batch):
    name = result["name"]
    problem, x0, p = restated(result, result["robots"])
    cost = check(result, problem, x0, p)
    us = jnp.asarray(result["guess"])
    guess = jax.tree.map(lambda x: jnp.repeat(x[None], len(us) + 1, axis=0), x0), us
    for hessian in hessians:
        options = {"hessian": hessian, "tolerance": TOLERANCES.get(name, TOLERANCE)}
        solve = solver(problem, p, guess, iterations=500, **options)
        found = jax.block_until_ready(solve(x0))
        seconds = common.least_seconds({name: lambda solve=solve: solve(x0)}, 5)[name]
        if hessian == hessians[0]:
            residual = kkt(problem, x0, p, found._replace(**trajectory(result)))
            count = result["iterations"]
            row(name, "Crocoddyl, FDDP", cost, residual, count, result["seconds"])
        residual, count = kkt(problem, x0, p, found), int(found.iterations)
        status = optimal_control.Status(int(found.status)).name.lower()
        of = f"jaxrbd, {hessian}"
        row(name, f"{of}: {status}", float(found.cost), residual, count, seconds)
        if batch:
            fixed = {"iterations": count, "tolerance": 0.0, "fixed_iterations": True}
            solve = solver(problem, p, guess, hessian=hessian, **fixed)
            for label, seconds in batch_seconds(solve, problem, x0, batch):
                row(name, f"{of}: {label}", float(found.cost), residual, count, seconds)


def trajectory(result):
    """The states, controls and costates of Crocoddyl."""
    states = [state(x) for x in result["xs"]]
    return {
        "xs": jax.tree.map(lambda *x: jnp.stack(x), *states),
        "us": jnp.asarray(result["us"]),
        "costates": jnp.asarray(result["costates"]),
    }


def kkt(problem, x0, p, solution):
    return float(optimal_control.kkt_residual(problem, x0, p, solution).largest)


def main():
    parser = common.parser(__doc__)
    parser.add_argument("python", help="the interpreter of the environment of Crocoddyl")
    names = (*PROBLEMS, *GAITS)
    parser.add_argument("--problem", choices=names, action="append", help="default: all")
    parser.add_argument("--hessian", choices=HESSIANS, action="append", help="default: both")
    parser.add_argument("--batch", type=int, help="also solve this number of problems at once")
    words = parser.parse_args()
    peer = Path(__file__).with_name("crocoddyl_peer.py")
    command = [words.python, str(peer), *(words.problem or ())]
    jax.config.update("jax_enable_x64", True)
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    print(f"{common.machine()}\n")
    per_iteration = "residual", "ms", "ms per iteration"
    common.head("problem", "solver", "cost", "iterations", *per_iteration)
    for line in output.splitlines():
        compare(json.loads(line), words.hessian or HESSIANS, words.batch)


if __name__ == "__main__":
    main()
