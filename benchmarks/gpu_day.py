"""Eight minutes on a GPU: jaxrbd's implementations of the passes, timed beside each other.

    python -m benchmarks --gpu-day [--out FOLDER]

The command writes one line of JSON per row to FOLDER/gpu_day.jsonl, and can be interrupted: called
again, it computes the missing rows. First it measures the limits of the device: the time of a call,
of a kernel, and the memory bandwidth. Each result is compared with a result in float64 of the CPU
before it is timed. `bound_us` is the time that the measured limits allow for the kernels and bytes
of the program, and `share` is the part of this bound in the time of the call.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import platform
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from . import report
from .studies import common, gpu_programs

ROBOT = "humanoid"
BATCHES = (4096, 65536, 1, 1_048_576)  # the most important batch first
IMPLEMENTATIONS = ("scan", "products", "kernels")
SAMPLES = 64  # that are compared with the reference
TOLERANCE = 1e-3  # of the largest entry of a result: rounding in float32


def program(job: str):
    """A job of a batch, as a jitted function of the model and arrays, and the number of arrays."""
    import jax

    function, vectors = gpu_programs.programs()[job]
    return jax.jit(jax.vmap(function, (None, *[0] * (1 + vectors)))), 1 + vectors


def write_reference(path: str, robot: str) -> None:
    """Write the states and the results of all jobs, in float64, computed on the CPU."""
    import jax

    import jaxrbd as rbd

    model = rbd.load_robot(robot)
    q = common.random_configurations(model, SAMPLES)
    v, a = np.random.default_rng(0).normal(size=(2, SAMPLES, model.nv))
    found = {"q": np.asarray(q), "v": v, "a": a}
    for job in gpu_programs.programs():
        run, count = program(job)
        result = run(model, *(found[name] for name in "qva"[:count]))
        found |= {f"{job}:{k}": np.asarray(x) for k, x in enumerate(jax.tree.leaves(result))}
    np.savez(path, **found)


def reference(folder: pathlib.Path, robot: str) -> dict[str, np.ndarray]:
    """The states and results in float64; another process computes them, on the CPU."""
    path = folder / f"reference_{robot}.npz"
    if not path.is_file():
        code = "import sys; from benchmarks import gpu_day; gpu_day.write_reference(*sys.argv[1:])"
        settings = {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"}
        common.python("-c", code, path, robot, **settings)
    with np.load(path) as arrays:
        return dict(arrays)


def seconds_per_call(call: Callable[[], object], duration: float) -> float:
    """The least time of a call within about the duration."""
    (found,) = common.least_seconds({"": call}, duration).values()
    return found


def limits(duration: float) -> dict:
    """The measured limits of the device: us per call and per kernel, and GB/s of a copy."""
    import jax
    import jax.numpy as jnp

    def chain(kernels):
        def run(x):
            for _ in range(kernels):
                x = jax.lax.optimization_barrier(x + 1)
            return x

        return jax.jit(run)

    small = jnp.zeros(128, jnp.float32)
    few, many = (seconds_per_call(partial(chain(n), small), duration) for n in (1, 201))
    on_gpu = jax.default_backend() == "gpu"
    large = jnp.zeros(2**28 if on_gpu else 2**24, jnp.float32)
    copy = seconds_per_call(partial(jax.jit(lambda x: x + 1), large), duration)
    return {
        "call_us": 1e6 * few,
        "kernel_us": 1e6 * (many - few) / 200,
        "copy_GB_per_s": 2 * large.nbytes / copy / 1e9,
    }


def row(job: str, implementation: str, batch: int, model, known: dict, measured: dict, duration):
    """The time of one program and the error of its results, or the reason why it has none."""
    import jax

    import jaxrbd as rbd

    run, count = program(job)
    operands = [np.resize(known[name], (batch, known[name].shape[1])) for name in "qva"[:count]]
    operands = jax.device_put([np.float32(x) for x in operands])
    on_gpu = jax.default_backend() == "gpu"
    start = time.perf_counter()
    with rbd.tree.implementation(implementation):
        compiled = run.lower(model, *operands).compile()
    found: dict = {"compile_s": time.perf_counter() - start}
    if on_gpu:
        counts = gpu_programs.count(compiled.as_text())
        launches = counts["kernels"] * measured["kernel_us"]
        traffic = counts["bytes"] / measured["copy_GB_per_s"] / 1e3
        found |= counts | {"bound_us": max(launches, traffic)}
    errors = []
    for k, x in enumerate(jax.tree.leaves(compiled(model, *operands))):
        expected = known[f"{job}:{k}"][: min(batch, SAMPLES)]
        error = np.max(np.abs(np.asarray(x[:SAMPLES]) - expected)) / np.max(np.abs(expected))
        errors.append(error)
    found["error"] = float(np.max(errors))  # NaN if any result is NaN
    if not found["error"] < TOLERANCE:
        return found | {"failed": "the result is wrong"}
    us = 1e6 * seconds_per_call(lambda: compiled(model, *operands), duration)
    found |= {"us": us, "ns_per_sample": 1e3 * us / batch}
    return found | ({"share": found["bound_us"] / us} if on_gpu else {})


def run(
    folder: pathlib.Path,
    *,
    robot: str = ROBOT,
    batches: tuple[int, ...] = BATCHES,
    implementations: tuple[str, ...] = IMPLEMENTATIONS,
    job_names: tuple[str, ...] | None = None,
    minutes: float = 8.0,
    duration: float = 0.2,
) -> list[dict]:
    """Compute the rows that gpu_day.jsonl lacks, until the minutes are over; return all rows."""
    import jax

    import jaxrbd as rbd

    end = time.monotonic() + 60 * minutes
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "gpu_day.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    device = jax.devices()[0].device_kind
    model = jax.tree.map(lambda x: x.astype(np.float32), rbd.load_robot(robot))
    known = reference(folder, robot)

    def write(found: dict) -> None:
        rows.append(found)
        with path.open("a") as file:
            file.write(json.dumps(found) + "\n")
        print(json.dumps(found), flush=True)

    measured = next((x for x in rows if "call_us" in x), None)
    if measured is None:
        measured = {"device": device, "host": platform.machine(), "jax": jax.__version__}
        measured |= limits(duration)
        write(measured)
    elif measured["device"] != device:
        raise SystemExit(f"{path} has rows of {measured['device']}, and this is {device}")
    names = job_names or tuple(gpu_programs.programs())
    done = {(x.get("batch"), x.get("job"), x.get("implementation")) for x in rows}
    missing = [key for key in itertools.product(batches, names, implementations) if key not in done]
    for count, (batch, job, way) in enumerate(missing):
        if time.monotonic() > end:
            lacking = len(missing) - count
            print(f"{lacking} rows are missing; the same command computes them", file=sys.stderr)
            break
        found = {"job": job, "implementation": way, "batch": batch}
        try:
            found |= row(job, way, batch, model, known, measured, duration)
        except (jax.errors.JaxRuntimeError, MemoryError, rbd.ArgumentError) as error:
            found["failed"] = str(error).splitlines()[0][:200]
        write(found)
    (folder / "gpu_day.md").write_text(table(rows))
    return rows


def table(rows: list[dict]) -> str:
    """The times in ns per sample, as a table in Markdown."""
    timed = [x for x in rows if "job" in x]
    ways = list(dict.fromkeys(x["implementation"] for x in timed))
    head = [
        f"{x['device']}, JAX {x['jax']}: {x['call_us']:.3g} us per call, {x['kernel_us']:.3g} us "
        f"per kernel, {x['copy_GB_per_s']:.4g} GB/s\n\n"
        for x in rows
        if "call_us" in x
    ]
    cells = {(x["job"], x["batch"], x["implementation"]): x for x in timed}
    body = [
        [*row, *(_text(cells.get((*row, way), {"failed": "-"})) for way in ways)]
        for row in dict.fromkeys((x["job"], x["batch"]) for x in timed)
    ]
    return "".join(head) + report.table(["job", "batch", *ways], body)


def _text(x: dict) -> str:
    share = f" ({100 * x['share']:.0f} %)" if "share" in x else ""
    return x.get("failed") or f"{x['ns_per_sample']:.3g}{share}"
