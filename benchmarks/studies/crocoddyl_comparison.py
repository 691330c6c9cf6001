"""Trajectories of jaxrbd and of Crocoddyl for the same problems: cost, iterations and time.

    python -m venv ENV && ENV/bin/pip install -r benchmarks/studies/crocoddyl.txt
    taskset -c 0 python -m benchmarks.studies.crocoddyl_comparison ENV/bin/python

Crocoddyl runs in its own environment (`crocoddyl_peer.py`). Both solvers have the same robots,
costs, stages and guess. To prove that the problems are the same, the script computes the cost of
the controls of Crocoddyl with the functions of jaxrbd.

The residual is the largest error of the optimality conditions. For jaxrbd it is that of
`kkt_residual`. The trajectories of Crocoddyl are rollouts, so their states and costates have no
error, and the residual is the largest entry of the gradient of the cost in the controls.

A problem can have several local minima. Parts of the double pendulum are Python classes in
Crocoddyl, so its iterations are slow there.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import time
from pathlib import Path

import jax
import jax.numpy as jnp

import jaxrbd
from jaxrbd import integrators, optimal_control, se3

DT = 1e-2
TOLERANCE = 1e-8


def double_pendulum(urdf):
    """The swing-up by a torque on the first joint."""
    model = jaxrbd.load_urdf(urdf)
    acceleration = optimal_control.joint_torques(model, dofs=[0])
    step = optimal_control.shooting_step(model, acceleration, integrators.semi_implicit_euler, DT)

    def upright(x):
        q, v = x
        return jnp.concatenate([jnp.sin(q), 1 - jnp.cos(q), 0.1**0.5 * v])

    def cost(t, x, u, p):
        return jnp.concatenate([1e-2 * u, 1e-5**0.5 * upright(x)])

    def last(x, p):
        return 10 * upright(x)

    space = optimal_control.state_space(model)
    return optimal_control.Problem(space, step, cost, last), model.nv, 1, 100


def arm(urdf):
    """A reach of an arm with six joints; p is the initial state."""
    model = jaxrbd.load_urdf(urdf)
    acceleration = optimal_control.joint_torques(model)
    step = optimal_control.shooting_step(model, acceleration, integrators.semi_implicit_euler, DT)
    goal = jaxrbd.Pose(jnp.eye(3), jnp.array([0.6, 0.2, 0.5]))

    def error(q):
        placement = jaxrbd.frame_placement(model, q, "j2s6s200_end_effector")
        return se3.log(goal.inverse() @ placement)

    def cost(t, x, u, p):
        change = jnp.concatenate([jaxrbd.difference(model, p[0], x[0]), x[1] - p[1]])
        weighted = [error(x[0]), 0.1**0.5 * change, 0.1**0.5 * u]
        return DT**0.5 * jnp.concatenate(weighted)

    def last(x, p):
        return 1e3**0.5 * error(x[0])

    space = optimal_control.state_space(model)
    return optimal_control.Problem(space, step, cost, last), model.nv, model.nv, 100


def quadrotor(urdf):
    """A flight with four rotors over 1 m in x and z; u are the thrusts."""
    model = jaxrbd.load_urdf(urdf, root_joint="free_flyer")
    dt, arm, ratio = 3e-2, 0.1525, 1e-6 / 6.6e-5
    # The force and the moment of each rotor on the body.
    places = arm * jnp.array([[1.0, 0, 0], [0, 1.0, 0], [-1.0, 0, 0], [0, -1.0, 0]])
    up = jnp.tile(jnp.array([0.0, 0.0, 1.0]), (4, 1))
    turning = ratio * jnp.array([-1.0, 1.0, -1.0, 1.0])
    rotors = jnp.concatenate([up, jnp.cross(places, up) + turning[:, None] * up], axis=1)
    acceleration = optimal_control.joint_torques(model)
    step = optimal_control.shooting_step(model, acceleration, integrators.semi_implicit_euler, dt)
    neutral = jaxrbd.neutral(model)
    goal = jaxrbd.Pose(jnp.eye(3), jnp.array([1.0, 0.0, 1.0]))
    weights = jnp.sqrt(1e-6 * jnp.array([0.1] * 3 + [1000.0] * 9))

    def dynamics(t, x, u, p):
        return step(t, x, u @ rotors, p)

    def error(q):
        return se3.log(goal.inverse() @ jaxrbd.frame_placement(model, q, "base_link"))

    def cost(t, x, u, p):
        change = jnp.concatenate([jaxrbd.difference(model, neutral, x[0]), x[1]])
        return dt**0.5 * jnp.concatenate([weights * change, 1e-3 * u, 0.1 * error(x[0])])

    def last(x, p):
        return 3.0**0.5 * error(x[0])

    space = optimal_control.state_space(model)
    return optimal_control.Problem(space, dynamics, cost, last), model.nv, 4, 33


def unicycle(_):
    """A vehicle that parks at the origin."""

    def dynamics(t, x, u, p):
        return x + 0.1 * jnp.stack([u[0] * jnp.cos(x[2]), u[0] * jnp.sin(x[2]), u[1]])

    def cost(t, x, u, p):
        return jnp.concatenate([10 * x, u])

    def last(x, p):
        return 10 * x

    problem = optimal_control.Problem(optimal_control.vector_space(3), dynamics, cost, last)
    return problem, None, 2, 20


PROBLEMS = {
    "double pendulum": double_pendulum,
    "arm": arm,
    "quadrotor": quadrotor,
    "unicycle": unicycle,
}


def controls_cost(problem, x0, p):
    """The cost and its gradient, as functions of the controls."""

    def cost(us):
        def scalar(x):
            return x if x.ndim == 0 else jnp.sum(x * x) / 2

        def stage(x, row):
            t, u = row
            return problem.dynamics(t, x, u, p), scalar(problem.cost(t, x, u, p))

        x, costs = jax.lax.scan(stage, x0, (jnp.arange(len(us)), us))
        return jnp.sum(costs) + scalar(problem.terminal_cost(x, p))

    return jax.jit(jax.value_and_grad(cost))


def row(name, solver, cost, residual, iterations, seconds):
    print(
        f"| {name} | {solver} | {cost:.10g} | {iterations} | {residual:.1e} | "
        f"{seconds * 1e3:.3g} | {seconds * 1e3 / iterations:.3g} |",
        flush=True,
    )


def compare(result):
    name = result["name"]
    problem, nv, m, stages = PROBLEMS[name](result["urdf"])
    x0 = jnp.asarray(result["x0"])
    if nv is not None:
        x0 = x0, jnp.zeros(nv)
    evaluate = controls_cost(problem, x0, x0)
    cost, gradient = evaluate(jnp.asarray(result["us"]))
    if abs(cost - result["cost"]) > 1e-8 * abs(cost):
        raise SystemExit(f"{name}: Crocoddyl's cost is {result['cost']}, jaxrbd's is {cost}")
    largest = float(jnp.max(jnp.abs(gradient)))
    row(name, "Crocoddyl, FDDP", float(cost), largest, result["iterations"], result["seconds"])
    xs = jax.tree.map(lambda x: jnp.repeat(x[None], stages + 1, axis=0), x0)
    guess = xs, jnp.zeros((stages, m))
    for hessian in ("gauss_newton", "exact"):

        def solve(hessian=hessian):
            options = {"hessian": hessian, "tolerance": TOLERANCE, "iterations": 500}
            return jax.block_until_ready(optimal_control.solve(problem, x0, x0, guess, **options))

        found, times = solve(), []
        for _ in range(3):
            began = time.perf_counter()
            found = solve()
            times.append(time.perf_counter() - began)
        residual = float(max(optimal_control.kkt_residual(problem, x0, x0, found)))
        status = optimal_control.Status(int(found.status)).name.lower()
        solver = f"jaxrbd, {hessian}: {status}"
        row(name, solver, float(found.cost), residual, int(found.iterations), min(times))


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("python", help="the interpreter of the environment of Crocoddyl")
    parser.add_argument("--problem", choices=PROBLEMS, action="append", help="default: all")
    words = parser.parse_args()
    peer = Path(__file__).with_name("crocoddyl_peer.py")
    command = [words.python, str(peer), *(words.problem or ())]
    jax.config.update("jax_enable_x64", True)
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    processor = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            processor = line.partition(":")[2].strip()
            break
    print(f"{processor}, JAX {jax.__version__}\n")
    print("| problem | solver | cost | iterations | residual | ms | ms per iteration |")
    print("|---|---|---|---|---|---|---|")
    for line in output.splitlines():
        compare(json.loads(line))


if __name__ == "__main__":
    main()
