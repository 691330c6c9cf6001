"""Measure the time from the start of a process to its first result, with and without caches.

    python -m benchmarks.studies.compilation [ROBOT] [--batch N]

ROBOT is a URDF file, or the name of a bundled robot. The function is forward dynamics of a batch of
states. Each row of the table is measured in a fresh process. The table in docs/compilation.md is
from this program.
"""

import itertools
import json
import pathlib
import tempfile
import time

from benchmarks.studies import common

WAYS = {
    "no cache": ("urdf", False),
    "cold cache": ("urdf", True),
    "warm cache": ("urdf", True),
    "warm cache, other masses": ("heavier", True),
    "warm cache, model from its file": ("model", True),
    "program from its file, cold cache": ("program", True),
    "program from its file, warm cache": ("program", True),
}
REPEAT = 3
STEPS = ("import", "robot", "trace and lower", "compile", "run", "all")


def load(source: str, robot: str, folder: pathlib.Path):
    import jaxrbd

    if source == "model":
        return jaxrbd.io.load_model(folder / "model")
    if robot in jaxrbd.robot_names():
        return jaxrbd.load_robot(robot)
    return jaxrbd.load_urdf(robot, root_joint="free_flyer")


def prepare(robot: str, folder: pathlib.Path) -> None:
    """Save the model and its program."""
    import jax.numpy as jnp

    import jaxrbd

    model = load("urdf", robot, folder)
    v = jnp.zeros(model.nv)
    program = jaxrbd.io.export_batched(jaxrbd.forward_dynamics, model, jaxrbd.neutral(model), v, v)
    jaxrbd.io.save_model(model, folder / "model")
    jaxrbd.io.save_program(program, folder / "program")


def measure(source: str, robot: str, batch: int, folder: pathlib.Path) -> None:
    """Print the seconds of each step of this process, as JSON."""
    times = [time.perf_counter()]

    import jax
    import numpy as np

    import jaxrbd

    times.append(time.perf_counter())
    if source == "program":
        program = jaxrbd.io.load_program(folder / "program")
        nq, nv = (x.shape[1] for x in program.in_avals[:2])
        function, leading = jax.jit(program.call), ()
    else:
        model = load(source, robot, folder)
        if source == "heavier":
            model = jax.tree.map(lambda x: 1.1 * x, model)
        nq, nv = model.nq, model.nv
        dynamics = jax.vmap(jaxrbd.forward_dynamics, (None, 0, 0, 0))
        function, leading = jax.jit(dynamics), (model,)
    state = [np.ones((batch, n), np.float32) for n in (nq, nv, nv)]
    times.append(time.perf_counter())
    lowered = function.lower(*leading, *state)
    times.append(time.perf_counter())
    compiled = lowered.compile()
    times.append(time.perf_counter())
    jax.block_until_ready(compiled(*leading, *state))
    times.append(time.perf_counter())
    steps = [after - before for before, after in itertools.pairwise(times)]
    print(json.dumps([*steps, times[-1] - times[0]]))


def main() -> None:
    given = common.options(__doc__, "robot", batch=64, measure="", folder="")
    (robot,), batch = given.robot or ["humanoid"], given.batch
    if given.measure == "prepare":
        return prepare(robot, pathlib.Path(given.folder))
    if given.measure:
        return measure(given.measure, robot, batch, pathlib.Path(given.folder))
    common.start(double=False)
    common.head(f"seconds, best of {REPEAT}", *STEPS)
    found: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    words = "-m", __spec__.name, robot, "--batch", batch, "--measure"
    for _ in range(REPEAT):
        with tempfile.TemporaryDirectory() as folder:
            common.python(*words, "prepare", "--folder", folder)
            cache = {
                "JAX_COMPILATION_CACHE_DIR": f"{folder}/cache",
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            }
            for way, (source, cached) in WAYS.items():
                variables = cache if cached else {}
                output = common.python(*words, source, "--folder", folder, **variables)
                found[way].append(json.loads(output))
    for way, runs in found.items():
        common.row(way, *(f"{x:.2f}" for x in min(runs, key=lambda steps: steps[-1])))
    return None


if __name__ == "__main__":
    main()
