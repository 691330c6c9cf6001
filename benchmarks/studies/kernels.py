"""Kernels and compilation time of the programs of jaxrbd, on this machine's default device.

    python benchmarks/studies/kernels.py [--robot quadruped] [--batch 64] [--jobs dfd,contact]
    python benchmarks/studies/kernels.py --baseline ../older     # beside another checkout
    python benchmarks/studies/kernels.py --jobs dfd --time 2     # also the time per state

A kernel is one instruction of the optimized program that runs by itself, such as a fusion, a
product or a copy. The body of a loop counts once. The compilation time is the time of XLA without a
cache, the best of `--repeat` compilations. The time per state is the least processor time of a call
in `--time` seconds, divided by the batch. On a busy machine it depends on the other programs:
compare the ratios of several runs.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[2]
# Instructions that compute nothing, or that only start a loop or a call whose body is counted.
NOT_A_KERNEL = """
    parameter constant tuple get-tuple-element bitcast while call conditional opt-barrier after-all
    add-dependency
""".split()


def count_kernels(text: str) -> int:
    """The number of kernels in the text of an optimized program (HLO)."""
    count = 0
    inside_kernel = False
    called = set(re.findall(r"(?:calls|to_apply)=%?([\w.\-]+)", text))
    parallel = set(re.findall(r" call\(.*to_apply=%?([\w.\-]+)", text))
    for line in text.splitlines():
        if head := re.match(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{", line):
            inside_kernel = head.group(1) in called - parallel
        elif (m := re.match(r"^\s+(?:ROOT )?%?[\w.\-]+ = (.*)$", line)) and not inside_kernel:
            operation = re.search(r"(?:^|[\s)}])([a-z][\w\-]*)\(", m.group(1))
            count += operation is not None and operation.group(1) not in NOT_A_KERNEL
    return count


def programs(robot: str, batch: int) -> dict:
    """For each job a function of one state, and its arguments with a leading axis of size batch."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import jaxrbd as rbd
    from benchmarks.studies.gpu_programs import robot_model
    from jaxrbd import constraints, contact, integrators

    jax.config.update("jax_enable_x64", True)
    model = robot_model(robot)
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

    def rnea(q, v, a):
        return rbd.rnea(model, q, v, a)

    def fd(q, v, tau):
        return rbd.forward_dynamics(model, q, v, tau)

    kutta = step(integrators.runge_kutta_munthe_kaas)
    euler = step(integrators.semi_implicit_euler)
    return {
        "fk": (lambda q: rbd.forward_kinematics(model, q).X_WB, (q,)),
        "rnea": (rnea, (q, v, tau)),
        "rnea gradient": (gradient(rnea, 0, 1, 2), (q, v, tau)),
        "crba": (lambda q: rbd.crba(model, q), (q,)),
        "fd": (fd, (q, v, tau)),
        "fd gradient": (gradient(fd, 0, 1, 2), (q, v, tau)),
        "drnea": (lambda q, v, a: tuple(rbd.rnea_derivatives(model, q, v, a)), (q, v, tau)),
        "dfd": (lambda *x: tuple(rbd.forward_dynamics_derivatives(model, *x)), (q, v, tau)),
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
        for k in range(options.repeat):
            if k:
                jax.clear_caches()
            lowered = jax.jit(jax.vmap(function)).lower(*arrays)
            start = time.perf_counter()
            compiled = lowered.compile()
            seconds.append(time.perf_counter() - start)
        text = compiled.as_text()
        if options.dump:
            options.dump.mkdir(parents=True, exist_ok=True)
            (options.dump / f"{name.replace(' ', '_')}.hlo").write_text(text)
        times = []
        end = time.perf_counter() + options.time
        while options.time and (time.perf_counter() < end or len(times) < 2):
            start = time.process_time()
            jax.block_until_ready(compiled(*arrays))
            times.append(1e6 * (time.process_time() - start) / options.batch)
        measured = count_kernels(text), min(seconds), *([min(times)] if times else [])
        print(json.dumps([name, *measured]), flush=True)


def run(checkout: pathlib.Path, words: list[str]) -> dict[str, list[float]]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_COMPILATION")}
    environment["PYTHONPATH"] = str(checkout)
    command = [sys.executable, __file__, *words, "--measure"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the measurement of {checkout} ended with status {done.returncode}")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {name: measured for name, *measured in lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--robot", default="quadruped", help="a bundled robot, or chainN")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--jobs", type=lambda text: text.split(","), metavar="A,B")
    parser.add_argument("--baseline", type=pathlib.Path, help="another checkout of jaxrbd")
    parser.add_argument("--time", type=float, default=0, metavar="SECONDS", help="time the calls")
    parser.add_argument("--dump", type=pathlib.Path, help="a folder for the optimized programs")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        return measure(options)
    words = ["--robot", options.robot, "--batch", str(options.batch)]
    words += ["--repeat", str(options.repeat), "--time", str(options.time)]
    words += ["--jobs", ",".join(options.jobs)] if options.jobs else []
    words += ["--dump", str(options.dump)] if options.dump else []
    found = {"jaxrbd": run(ROOT, words)}
    if options.baseline:
        found["baseline"] = run(options.baseline.resolve(), words)
    print(f"{options.robot}, float64, batch {options.batch}\n")
    columns = ["kernels", "compile, s", *(["time per state, us"] if options.time else [])]
    heads = [f"{name}: {column}" for name in found for column in columns]
    print("| job | " + " | ".join(heads) + " |")
    print("|---|" + "---|" * len(heads))
    for job in found["jaxrbd"]:
        rows = [measured[job] for measured in found.values()]
        cells = [" | ".join([str(k), *(f"{x:.2f}" for x in times)]) for k, *times in rows]
        print(f"| {job} | " + " | ".join(cells) + " |")
    return None


if __name__ == "__main__":
    main()
