"""Kernels and compilation time of the programs of jaxrbd, on this machine's default device.

    python -m benchmarks.studies.kernels [--robot quadruped] [--batch 64] [--jobs dfd,contact]
    python -m benchmarks.studies.kernels --baseline ../older     # beside another checkout
    python -m benchmarks.studies.kernels --jobs dfd --time 2     # also the time per state

A kernel is one instruction of the optimized program that runs by itself, such as a fusion, a
product or a copy. The body of a loop counts once. The compilation time is the processor time of XLA
without a cache. The time per state is the least processor time of a call in `--time` seconds,
divided by the batch; two checkouts take turns. On a busy machine it depends on the other programs:
compare the ratios of several runs.
"""

import functools
import pathlib

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


def programs(rbd, robot: str, batch: int) -> dict:
    """For each job a function of one state, and its arguments with a leading axis of size batch.

    `rbd`: the package jaxrbd of a checkout.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    model = gpu_programs.robot_model(rbd, robot)
    rng = np.random.default_rng(0)
    draw = jax.vmap(rbd.random_configuration, (None, 0))
    q = np.asarray(draw(model, jax.random.split(jax.random.key(0), batch)))
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

    feet = [rbd.constraints.point(None, end) for end in ends]

    def constrained(q, v, tau):
        found = rbd.constraints.constrained_dynamics(model, q, v, tau, feet)
        return found.acceleration, found.multipliers

    def constrained_derivatives(q, v, tau):
        return tuple(rbd.constraints.constrained_dynamics_derivatives(model, q, v, tau, feet))

    def constrained_jacobian(q, v, tau):
        """The derivatives by JAX, in the tangent space of q."""

        def displaced(dq, v, tau):
            return constrained(rbd.integrate(model, q, dq), v, tau)

        return jax.jacfwd(displaced, (0, 1, 2))(jnp.zeros_like(v), v, tau)

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
        for name, (function, vectors) in gpu_programs.programs(rbd).items()
        if name != "gradient"
    }
    return {
        **jobs,
        **with_gradient("rnea", *jobs["rnea"]),
        **with_gradient("fd", *jobs["fd"]),
        **with_gradient("integrate", integrate, (q, v)),
        **with_gradient("euler", step(rbd.integrators.semi_implicit_euler), state),
        **with_gradient("kutta", step(rbd.integrators.runge_kutta_munthe_kaas), state),
        "constrained": (constrained, state),
        "constrained derivatives": (constrained_derivatives, state),
        "constrained jacobian": (constrained_jacobian, state),
        **with_gradient("contact", contact_step, state),
    }


def main() -> None:
    import jax

    parser = common.parser(__doc__)
    parser.add_argument("--robot", default="quadruped", help="a bundled robot, or chainN")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--jobs", type=common.names, metavar="A,B")
    parser.add_argument("--baseline", type=pathlib.Path, help="another checkout of jaxrbd")
    parser.add_argument("--time", type=float, default=0, metavar="SECONDS", help="time the calls")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_enable_compilation_cache", False)
    jobs = {
        name: programs(rbd, options.robot, options.batch)
        for name, rbd in common.versions(options.baseline).items()
    }
    print(f"{common.machine()}; {options.robot}, float64, batch {options.batch}\n")
    columns = ["kernels", "compile, s", *(["time per state, us"] if options.time else [])]
    common.head("job", *(f"{name}: {column}" for name in jobs for column in columns))
    for job in options.jobs or jobs["jaxrbd"]:
        found = {}
        for name in jobs:
            function, arguments = jobs[name][job]
            found[name] = common.Program(function, *arguments)
        times = {}
        if options.time:
            calls = {name: program.call for name, program in found.items()}
            times = common.least_seconds(calls, 10, options.time / 10)
        cells = []
        for name, program in found.items():
            cells += [count_kernels(program.compiled.as_text()), f"{program.compile_s:.2f}"]
            cells += [f"{1e6 * times[name] / options.batch:.2f}"] if times else []
        common.row(job, *cells)


if __name__ == "__main__":
    main()
