"""Kernels and compilation time of the programs of jaxrbd, on this machine's default device.

    python -m benchmarks.studies.kernels [--robot quadruped] [--batch 64] [--jobs dfd,contact]
    python -m benchmarks.studies.kernels --baseline ../older     # beside another checkout
    python -m benchmarks.studies.kernels --jobs dfd --time 2     # also the time per state

A kernel is one instruction of the optimized program that runs by itself, such as a fusion, a
product or a copy. The body of a loop counts once. The compilation time is the time of XLA without a
cache, the best of `--repeat` compilations. The time per state is the least processor time of a call
in `--time` seconds, divided by the batch. On a busy machine it depends on the other programs:
compare the ratios of several runs.
"""

import argparse
import functools
import json
import pathlib
import sys
import time

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
    from jaxrbd import constraints, contact, integrators

    jax.config.update("jax_enable_x64", True)
    model = gpu_programs.robot_model(robot)
    rng = np.random.default_rng(0)
    draw = jax.vmap(rbd.random_configuration, (None, 0))
    q = np.asarray(draw(model, jax.random.split(jax.random.key(0), batch)))
    v, tau = (rng.normal(size=(batch, model.nv)) for _ in range(2))
    ends = [f for f in model.frame_names if f.endswith(("_foot", "_sole"))] or model.frame_names[
        -1:
    ]
    scene = contact.Scene(tuple(ends))
    scales = contact.inverse_inertias(model, scene)
    scene = contact.Scene(tuple(ends), inverse_inertia=scales)

    def step(integrator):
        def one(q, v, tau):
            def dynamics(q, v):
                return rbd.forward_dynamics(model, q, v, tau)

            return integrator(model, dynamics, q, v, 1e-3)

        return one

    def contact_step(q, v, tau):
        found = contact.contact_step(model, scene, q, v, tau, 1e-3)
        return found.q, found.v

    feet = [constraints.point(None, end) for end in ends]

    def constrained(q, v, tau):
        found = constraints.constrained_dynamics(model, q, v, tau, feet)
        return found.acceleration, found.multipliers

    def constrained_derivatives(q, v, tau):
        return tuple(constraints.constrained_dynamics_derivatives(model, q, v, tau, feet))

    def constrained_jacobian(q, v, tau):
        """The derivatives by JAX, in the tangent space of q."""

        def displaced(dq, v, tau):
            return constrained(rbd.integrate(model, q, dq), v, tau)

        return jax.jacfwd(displaced, (0, 1, 2))(jnp.zeros_like(v), v, tau)

    def gradient(function, *places):
        def loss(*state):
            return sum(jnp.sum(x**2) for x in jax.tree.leaves(function(*state)))

        return jax.grad(loss, places)

    def integrate(q, v):
        return rbd.integrate(model, q, v)

    algorithms = {
        name: (functools.partial(function, model), (q, v, tau)[: 1 + vectors])
        for name, (function, vectors) in gpu_programs.programs().items()
        if name != "gradient"
    }
    rnea, fd = algorithms["rnea"][0], algorithms["fd"][0]
    kutta = step(integrators.runge_kutta_munthe_kaas)
    euler = step(integrators.semi_implicit_euler)
    return {
        **algorithms,
        "rnea gradient": (gradient(rnea, 0, 1, 2), (q, v, tau)),
        "fd gradient": (gradient(fd, 0, 1, 2), (q, v, tau)),
        "integrate": (integrate, (q, v)),
        "integrate gradient": (gradient(integrate, 0, 1), (q, v)),
        "euler": (euler, (q, v, tau)),
        "euler gradient": (gradient(euler, 0, 1, 2), (q, v, tau)),
        "kutta": (kutta, (q, v, tau)),
        "kutta gradient": (gradient(kutta, 0, 1, 2), (q, v, tau)),
        "constrained": (constrained, (q, v, tau)),
        "constrained derivatives": (constrained_derivatives, (q, v, tau)),
        "constrained jacobian": (constrained_jacobian, (q, v, tau)),
        "contact": (contact_step, (q, v, tau)),
        "contact gradient": (gradient(contact_step, 0, 1, 2), (q, v, tau)),
    }


def measure(options: argparse.Namespace) -> None:
    """Print, for each job, a line of JSON: its name, its kernels, its seconds, its times."""
    import jax

    jobs = programs(options.robot, options.batch)
    for name in options.jobs or jobs:
        function, arrays = jobs[name]
        seconds = []
        for _ in range(options.repeat):
            jax.clear_caches()
            lowered = jax.jit(jax.vmap(function)).lower(*arrays)
            start = time.perf_counter()
            compiled = lowered.compile()
            seconds.append(time.perf_counter() - start)
        text = compiled.as_text()
        if options.dump:
            options.dump.mkdir(parents=True, exist_ok=True)
            (options.dump / f"{name.replace(' ', '_')}.hlo").write_text(text)
        measured = [count_kernels(text), min(seconds)]
        if options.time:
            call = {name: lambda compiled=compiled, arrays=arrays: compiled(*arrays)}
            found = common.least_seconds(call, 1, options.time)[name]
            measured.append(1e6 * found / options.batch)
        print(json.dumps([name, *measured]), flush=True)


def run(checkout: pathlib.Path, words: list[str]) -> dict[str, list[float]]:
    """What `measure` prints for the jaxrbd of a checkout."""
    output = common.python("-m", __spec__.name, *words, "--measure", checkout.resolve())
    return {name: measured for name, *measured in map(json.loads, output.splitlines())}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--robot", default="quadruped", help="a bundled robot, or chainN")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--jobs", type=common.names, metavar="A,B")
    parser.add_argument("--baseline", type=pathlib.Path, help="another checkout of jaxrbd")
    parser.add_argument("--time", type=float, default=0, metavar="SECONDS", help="time the calls")
    parser.add_argument("--dump", type=pathlib.Path, help="a folder for the optimized programs")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        sys.path.insert(0, options.measure)
        return measure(options)
    found = {"jaxrbd": run(common.ROOT, sys.argv[1:])}
    if options.baseline:
        found["baseline"] = run(options.baseline, sys.argv[1:])
    print(f"{options.robot}, float64, batch {options.batch}\n")
    columns = ["kernels", "compile, s", *(["time per state, us"] if options.time else [])]
    common.head("job", *(f"{name}: {column}" for name in found for column in columns))
    for job in found["jaxrbd"]:
        cells = [
            (kernels, *(f"{x:.2f}" for x in times))
            for kernels, *times in (measured[job] for measured in found.values())
        ]
        common.row(job, *(cell for part in cells for cell in part))
    return None


if __name__ == "__main__":
    main()
