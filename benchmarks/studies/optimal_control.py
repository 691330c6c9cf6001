"""Optimal control: kernels, compile time, time per iteration, and the result, on one core.

    taskset -c 0 python -m benchmarks.studies.optimal_control

The problems are a reach of the bundled arm7 (100 stages of 10 ms) and a motion of the bundled
quadruped in flight (20 stages of 20 ms). The largest residual at the end is 1e-8. The time per
iteration includes the linearisation of all stages, the linear-quadratic problems and the line
search. Times are processor times; the compilation includes tracing.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

import jaxrbd
from benchmarks.studies import common
from benchmarks.studies.kernels import count_kernels
from jaxrbd import integrators, optimal_control

TOLERANCE = 1e-8


def arm():
    """The tool of the arm moves by 0.3 m to the point p, and stops there."""
    model = jaxrbd.load_robot("arm7")
    q = 0.3 * jnp.ones(model.nv)
    hold = jaxrbd.gravity_force(model, q)
    step = optimal_control.shooting_step(
        model, optimal_control.joint_torques(model), integrators.semi_implicit_euler, 0.01
    )

    def cost(t, x, u, p):
        return jnp.concatenate([0.1 * x[1], 0.1 * (u - hold)])

    def last(x, p):
        error = jaxrbd.frame_placement(model, x[0], "tool").p - p
        return jnp.concatenate([30 * error, x[1]])

    problem = optimal_control.Problem(optimal_control.state_space(model), step, cost, last)
    target = jaxrbd.frame_placement(model, q, "tool").p + jnp.array([0.2, -0.2, 0.1])
    return problem, (q, jnp.zeros(model.nv)), target, jnp.tile(hold, (100, 1))


def quadruped():
    """The quadruped moves its legs and its trunk in flight to the configuration p."""
    model = jaxrbd.load_robot("quadruped")
    step = optimal_control.shooting_step(
        model,
        optimal_control.joint_torques(model, range(6, model.nv)),
        integrators.semi_implicit_euler,
        0.02,
    )

    def cost(t, x, u, p):
        return jnp.concatenate([0.1 * x[1], 0.1 * u])

    def last(x, p):
        return 3 * jaxrbd.difference(model, x[0], p)

    problem = optimal_control.Problem(optimal_control.state_space(model), step, cost, last)
    numbers = jnp.arange(1.0, model.nv + 1)
    q = jaxrbd.integrate(model, jaxrbd.neutral(model), 0.3 * jnp.cos(numbers))
    goal = jaxrbd.integrate(model, q, 0.2 * jnp.sin(numbers))
    return problem, (q, jnp.zeros(model.nv)), goal, jnp.zeros((20, model.nv - 6))


def measure(name, operands, hessian):
    def solve(problem, x0, p, us, tolerance):
        return optimal_control.solve(problem, x0, p, us, tolerance=tolerance, hessian=hessian)

    program = common.Program(solve, *operands, jnp.asarray(TOLERANCE), batched=False)
    solution = program.call()
    seconds = common.least_seconds({name: program.call}, 3)[name]
    count = int(solution.iterations)
    print(
        f"{name}, {hessian}: {optimal_control.Status(int(solution.status)).name}, {count} "
        f"iterations, cost {float(solution.cost):.6g}, residual "
        f"{float(solution.residuals.largest):.1e}; "
        f"{count_kernels(program.compiled.as_text())} kernels, "
        f"compilation {program.trace_s + program.compile_s:.1f} s, "
        f"{seconds / (count + 1) * 1e3:.2f} ms per iteration",
        flush=True,
    )


def main():
    parser = common.parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="Gauss-Newton alone")
    quick = parser.parse_args().quick
    jax.config.update("jax_enable_x64", True)
    print(common.machine())
    for name, operands in {"arm7": arm(), "quadruped": quadruped()}.items():
        for hessian in ("gauss_newton",) if quick else ("gauss_newton", "exact"):
            measure(name, operands, hessian)


if __name__ == "__main__":
    main()
