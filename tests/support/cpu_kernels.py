"""Kernels and compilation times of the programs of jaxrbd on this machine.

    python -m tests.support.cpu_kernels [--robot quadruped] [--batch 64] [--jobs dfd,contact]

A kernel is one instruction of the optimized program that runs by itself, such as a fusion, a
product or a copy. The body of a loop counts once. The times are processor times without a cache.
The solvers of optimal control solve one problem, with the Gauss-Newton matrix: a reach of the
bundled arm7 (100 stages of 10 ms), and a motion of the bundled quadruped in flight (20 of 20 ms).
"""

import functools

from benchmarks.studies import common, gpu_programs

# Instructions that compute nothing, or that only start a loop or a call whose body is counted.
NOT_A_KERNEL = set(
    """
    parameter constant tuple get-tuple-element bitcast while call conditional opt-barrier after-all
    add-dependency
    """.split()
)


def count_kernels(text: str) -> int:
    """The number of kernels in the text of an optimized program (HLO)."""
    bodies, _ = gpu_programs.computations(text)
    everything = [x for body in bodies.values() for x in body.values()]
    called = {name for x in everything for name in x.called("calls|to_apply")}
    called -= {name for x in everything if x.operation == "call" for name in x.called("to_apply")}
    kernels = (body.values() for name, body in bodies.items() if name not in called)
    return sum(x.operation not in NOT_A_KERNEL for body in kernels for x in body)


def programs(robot: str, batch: int) -> dict:
    """For each job a function of one state, and its arguments with a leading axis of size batch."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import jaxrbd as rbd
    from benchmarks import robots

    model = robots.bundled(robot)
    rng = np.random.default_rng(0)
    q = np.asarray(common.random_configurations(model, batch))
    v, tau = (rng.normal(size=(batch, model.nv)) for _ in range(2))
    ends = [f for f in model.frame_names if f.endswith(("_foot", "_sole"))]
    ends = tuple(ends or model.frame_names[-1:])
    scene = rbd.contact.Scene(ends)
    scene = rbd.contact.Scene(ends, inverse_inertia=rbd.contact.inverse_inertias(model, scene))

    def step(integrator):
        def one(q, v, tau):
            def dynamics(q, v):
                return rbd.forward_dynamics(model, q, v, tau)

            return integrator(model, dynamics, q, v, 1e-3)

        return one

    def contact_step(q, v, tau):
        found = rbd.contact.contact_step(model, scene, q, v, tau, 1e-3)
        return found.q, found.v

    def integrate(q, v):
        return rbd.integrate(model, q, v)

    def with_gradient(name, function, arguments):
        def loss(*state):
            return sum(jnp.sum(x**2) for x in jax.tree.leaves(function(*state)))

        gradient = jax.grad(loss, tuple(range(len(arguments))))
        return {name: (function, arguments), f"{name} gradient": (gradient, arguments)}

    state = q, v, tau
    jobs = {
        name: (functools.partial(function, model), state[: 1 + vectors])
        for name, (function, vectors) in gpu_programs.programs().items()
        if name != "gradient"
    }
    return {
        **jobs,
        **with_gradient("rnea", *jobs["rnea"]),
        **with_gradient("fd", *jobs["fd"]),
        **with_gradient("integrate", integrate, (q, v)),
        **with_gradient("euler", step(rbd.integrators.semi_implicit_euler), state),
        **with_gradient("kutta", step(rbd.integrators.runge_kutta_munthe_kaas), state),
        **with_gradient("contact", contact_step, state),
    }


def solvers() -> dict:
    """For each problem of optimal control a solver, and its arguments."""
    import jax.numpy as jnp

    import jaxrbd as rbd
    from jaxrbd import optimal_control as oc

    def solver(model, dofs, dt, hold, last):
        """The cost of a stage is that of the velocity and of the change of the force `hold`."""
        torques = oc.joint_torques(model, dofs)
        dynamics = oc.shooting_step(model, torques, rbd.integrators.semi_implicit_euler, dt)

        def cost(t, x, u, p):
            return jnp.concatenate([0.1 * x[1], 0.1 * (u - hold)])

        problem = oc.Problem(oc.state_space(model), dynamics, cost, last)
        return lambda x0, p, us, tolerance: oc.solve(problem, x0, p, us, tolerance=tolerance)

    arm, quadruped = rbd.load_robot("arm7"), rbd.load_robot("quadruped")
    bent, tolerance = 0.3 * jnp.ones(arm.nv), jnp.asarray(1e-8)
    hold = rbd.gravity_force(arm, bent)

    def tool_at_rest(x, p):
        error = rbd.frame_placement(arm, x[0], "tool").p - p
        return jnp.concatenate([30 * error, x[1]])

    def at_goal(x, p):
        return 3 * rbd.difference(quadruped, x[0], p)

    target = rbd.frame_placement(arm, bent, "tool").p + jnp.array([0.2, -0.2, 0.1])
    numbers = jnp.arange(1.0, quadruped.nv + 1)
    first = rbd.integrate(quadruped, rbd.neutral(quadruped), 0.3 * jnp.cos(numbers))
    goal = rbd.integrate(quadruped, first, 0.2 * jnp.sin(numbers))
    legs = range(6, quadruped.nv)
    return {
        "solve arm7": (
            solver(arm, None, 0.01, hold, tool_at_rest),
            ((bent, jnp.zeros(arm.nv)), target, jnp.tile(hold, (100, 1)), tolerance),
        ),
        "solve quadruped": (
            solver(quadruped, legs, 0.02, jnp.zeros(len(legs)), at_goal),
            ((first, jnp.zeros(quadruped.nv)), goal, jnp.zeros((20, len(legs))), tolerance),
        ),
    }


def main() -> None:
    given = common.options(__doc__, robot="quadruped", batch=64, jobs=("all",))
    common.start()
    single = solvers() if any(job.startswith(("all", "solve")) for job in given.jobs) else {}
    jobs = programs(given.robot, given.batch) | single
    common.head(f"job of {given.robot}, batch {given.batch}", "kernels", "trace, s", "compile, s")
    for job in jobs if given.jobs == ("all",) else given.jobs:
        function, arguments = jobs[job]
        program = common.Program(function, *arguments, batched=job not in single)
        count = count_kernels(program.compiled.as_text())
        common.row(job, count, f"{program.trace_s:.2f}", f"{program.compile_s:.2f}")


if __name__ == "__main__":
    main()
