"""Inverse and forward dynamics of long chains, by loops and by passes of logarithmic depth.

    python -m benchmarks.studies.long_chains [--links 64,256,1024] [--gpu]

Three tables: rounding errors; times of one state on this CPU, in single precision; and, with
`--gpu`, the programs for an H200, which are compiled without a GPU (see gpu_programs.py for the
packages). The depth of a program is the largest number of kernels of which each needs the result of
the previous one. The time is a model: the launches of the kernels plus the memory traffic.

The chains have hinges about x, y and z in turn, or about y. An error is the largest difference from
`aba` and `rnea` in double precision by loops, divided by the largest entry. The tables in
docs/long_chains.md are from this program.
"""

import itertools
import os
import timeit

from benchmarks.studies import common, gpu_programs

LAUNCH, BANDWIDTH = 0.84, 3.4e6  # us per kernel and bytes per us of an H200, see docs/speed.md
WAYS = "scan", "parallel"


def chains(links: int) -> dict:
    """For each name a model and a state (q, v, tau), in double precision."""
    import dataclasses

    import jax.numpy as jnp
    import numpy as np

    import jaxrbd as rbd
    from benchmarks import robots

    rng = np.random.default_rng(0)
    q, v, tau = rng.uniform(-1, 1, links), rng.normal(size=links), rng.normal(size=links)
    turns = robots.bundled(f"chain{links}")
    rod = rbd.model.link_inertia(0.5, (0.02, 0.0, 0.15), np.diag([0.004, 0.005, 0.001]))
    names, hinge = [f"link{i}" for i in range(links)], rbd.joints.Revolute((0.0, 1.0, 0.0))
    place = rbd.model.placement_matrix((0.0, 0.0, 0.3))
    joints = [rbd.model.JointSpec(x, hinge, y, x, place) for x, y in zip(names, [None, *names])]
    plane = rbd.build_model([rbd.model.Link(name, rod) for name in names], joints)
    armature = dataclasses.replace(turns, armature=jnp.full(links, 0.02))
    return {
        "moving": (turns, q, v, tau),
        "moving, armature 0.02": (armature, q, v, tau),
        "at rest, straight": (turns, 0 * q, 0 * v, tau),
        "in a plane, moving": (plane, q, v, tau),
        "in a plane, at rest, straight": (plane, 0 * q, 0 * v, 0 * tau),
    }


def errors_and_times(sizes: tuple[int, ...]) -> None:
    """Print the tables of rounding errors and of times on this CPU."""
    import jax
    import jax.numpy as jnp

    import jaxrbd as rbd

    def cast(x, dtype):
        return jax.tree.map(lambda x: jnp.asarray(x, dtype), x)

    columns = list(itertools.product((jnp.float32, jnp.float64), WAYS))
    common.head("links", "chain", "error of", *(f"{w}, {x.__name__}" for x, w in columns))
    jobs = {"rnea": rbd.rnea, "forward_dynamics": rbd.forward_dynamics, "aba": rbd.aba}
    times = []
    for links in sizes:
        # A new function for each way, because JAX stores traces.
        runs = {(j, w): jax.jit(lambda *x, f=f: f(*x)) for j, f in jobs.items() for w in WAYS}
        for (chain, state), job in itertools.product(chains(links).items(), jobs):
            state = cast(cast(state, jnp.float32), jnp.float64)
            exact, cells = (rbd.rnea if job == "rnea" else rbd.aba)(*state), []
            for dtype, way in columns:
                with rbd.tree.implementation(way):
                    found = runs[job, way](*cast(state, dtype)).astype(exact.dtype)
                error = jnp.max(jnp.abs(found - exact)) / jnp.max(jnp.abs(exact))
                cells.append(f"{error:.0e}")
            common.row(links, chain, job, *cells)
        single = cast(chains(links)["moving"], jnp.float32)
        for job, way in ((j, w) for j in jobs for w in WAYS):
            with rbd.tree.implementation(way):
                program = common.Program(lambda *x, f=jobs[job]: f(*x), *single, batched=False)
            seconds = min(timeit.repeat(program.call, number=1, repeat=50))
            times.append((links, job, way, f"{1e3 * seconds:.2f}", program.compilation))
    print()
    common.head("links", "job", "implementation", "ms, float32", "s to compile")
    for row in times:
        common.row(*row)


def gpu_table(sizes: tuple[int, ...]) -> None:
    """Print the kernels of the programs of an H200."""
    common.head("links", "job", "implementation", "depth", "kernels", "MB", "us, model")
    ways = "scan", "products", "parallel"
    for links, job, way in itertools.product(sizes, ("fk", "rnea", "fd"), ways):
        text = gpu_programs.compiled(f"chain{links}", 1, job, way)
        found = gpu_programs.count(text)
        megabytes, kernels = found["bytes"] / 1e6, found["kernels"]
        time = LAUNCH * kernels + found["bytes"] / BANDWIDTH
        depth = gpu_programs.depth(text)
        common.row(links, job, way, depth, kernels, f"{megabytes:.1f}", f"{time:.0f}")


def main() -> None:
    os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    given = common.options(__doc__, links=(64, 256, 1024), gpu=False)
    common.start()
    errors_and_times(given.links)
    if given.gpu:
        print()
        gpu_table(given.links)


if __name__ == "__main__":
    main()
