"""Eight minutes on a GPU: jaxrbd's implementations of the passes, timed beside each other.

    python -m benchmarks --gpu-day [--out FOLDER]

The command writes one line of JSON per row to FOLDER/gpu_day.jsonl, and can be interrupted: called
again, it computes the missing rows. First it measures the limits of the device: the time of a call,
of a kernel, and the memory bandwidth. Each result is compared with a result in float64 of the CPU
before it is timed. `bound_us` is the time that the measured limits allow for the kernels and bytes
of the program, and `share` is the part of this bound in the time of the call. At the end, a process
of `python -m benchmarks` times other libraries (OTHERS) with the same robot and batches.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import pathlib
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from . import jobs
from .studies import gpu_programs

ROBOT = "humanoid"
BATCHES = (4096, 65536, 1, 1_048_576)  # the most important batch first
IMPLEMENTATIONS = ("scan", "products", "kernels", "scan in a graph")
SAMPLES = 64  # that are compared with the reference
TOLERANCE = 1e-3  # of the largest entry of a result: rounding in float32
OTHERS = ("mjx", "mujoco_warp", "grid_rbd")
GRAPH = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,WHILE",
    "xla_gpu_command_buffer_unroll_loops": True,
}


def states(model) -> tuple[np.ndarray, ...]:
    """Configurations (SAMPLES, nq) and two sets of random vectors (SAMPLES, nv)."""
    import jax

    import jaxrbd as rbd

    keys = jax.random.split(jax.random.key(0), SAMPLES)
    q = jax.vmap(rbd.random_configuration, (None, 0))(model, keys)
    v, a = np.random.default_rng(0).normal(size=(2, SAMPLES, model.nv))
    return np.asarray(q), v, a


def write_reference(path: pathlib.Path, robot: str) -> None:
    """Write the states and the results of all jobs, in float64, computed on the CPU."""
    import jax

    import jaxrbd as rbd

    model = rbd.load_robot(robot)
    q, v, a = states(model)
    found = {"q": q, "v": v, "a": a}
    for job, (function, vectors) in gpu_programs.programs().items():
        operands = (q, v, a)[: 1 + vectors]
        result = jax.jit(jax.vmap(function, (None, *[0] * len(operands))))(model, *operands)
        for k, x in enumerate(jax.tree.leaves(result)):
            found[f"{job}:{k}"] = np.asarray(x)
    np.savez(path, **found)


def reference(folder: pathlib.Path, robot: str) -> dict[str, np.ndarray]:
    """The states and results in float64; another process computes them, on the CPU."""
    path = folder / f"reference_{robot}.npz"
    if not path.is_file():
        code = (
            "import pathlib, sys; from benchmarks import gpu_day; "
            "gpu_day.write_reference(pathlib.Path(sys.argv[1]), sys.argv[2])"
        )
        environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"}
        command = [sys.executable, "-c", code, str(path), robot]
        subprocess.run(command, env=environment, check=True)
    with np.load(path) as arrays:
        return dict(arrays)


def seconds_per_call(call: Callable[[], object], duration: float) -> float:
    """The fastest of the calls within the duration, of at least three calls."""
    import jax

    times: list[float] = []
    jax.block_until_ready(call())
    while len(times) < 3 or sum(times) < duration:
        start = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - start)
    return min(times)


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

    function, vectors = gpu_programs.programs()[job]
    operands = [np.tile(known[name], (-(-batch // SAMPLES), 1))[:batch] for name in "qva"]
    operands = jax.device_put([np.float32(x) for x in operands[: 1 + vectors]])
    way, _, graph = implementation.partition(" in a ")
    on_gpu = jax.default_backend() == "gpu"
    with rbd.tree.implementation(way):
        mapped = jax.jit(jax.vmap(function, (None, *[0] * len(operands))))
        start = time.perf_counter()
        lowered = mapped.lower(model, *operands)
        compiled = lowered.compile(compiler_options=GRAPH if graph and on_gpu else None)
    found: dict = {"compile_s": time.perf_counter() - start}
    if on_gpu:
        counts = gpu_programs.count(compiled.as_text())
        bound = max(
            counts["kernels"] * measured["kernel_us"],
            counts["bytes"] / measured["copy_GB_per_s"] / 1e3,
        )
        found |= counts | {"bound_us": bound}
    result = compiled(model, *operands)
    errors = []
    for k, x in enumerate(jax.tree.leaves(result)):
        expected = known[f"{job}:{k}"][: min(batch, SAMPLES)]
        error = np.max(np.abs(np.asarray(x[:SAMPLES]) - expected)) / np.max(np.abs(expected))
        errors.append(float(error))
    found["error"] = max(errors)
    del result
    if not found["error"] < TOLERANCE:
        return found | {"failed": "the result is wrong"}
    us = 1e6 * seconds_per_call(lambda: compiled(model, *operands), duration)
    found |= {"us": us, "ns_per_sample": 1e3 * us / batch}
    return found | ({"share": found["bound_us"] / us} if on_gpu else {})


def rows_of_others(
    folder: pathlib.Path,
    robot: str,
    batch: int,
    job_names: Sequence[str],
    libraries: Sequence[str],
    options: Sequence[str],
    seconds: float,
) -> list[dict]:
    """The rows of other libraries for one batch, by `python -m benchmarks` in a process.

    `options`: more options of that command; `seconds`: the time that the process may take. Without
    enough time the rows are incomplete.
    """
    out = folder / f"others_{batch}"
    results = out / "results.json"
    results.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks", "--robots", robot, "--batches", str(batch)]
    command += ["--jobs", ",".join(job_names), "--peers", ",".join(libraries)]
    command += ["--dtypes", "float32", "--out", str(out.absolute()), *options]
    keys = [(job, library) for job in job_names for library in libraries]
    root = pathlib.Path(__file__).parents[1]
    try:
        done = subprocess.run(command, cwd=root, timeout=seconds, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        done = None
    if done is not None and done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1][:200]
        return [
            {"job": job, "implementation": library, "batch": batch, "failed": reason}
            for job, library in keys
        ]
    cells = json.loads(results.read_text())["cells"] if results.exists() else []
    return [_row_of_cell(cell) for cell in cells if (cell["job"], cell["peer"]) in keys]


def _row_of_cell(cell: dict) -> dict:
    """A cell of `python -m benchmarks` as a row of this command."""
    row = {"job": cell["job"], "implementation": cell["peer"], "batch": cell["batch"]}
    row |= {key: cell[key] for key in ("compile_s", "error", "failed") if key in cell}
    if "failed" not in cell:
        row |= {"us": cell["min_us"] * cell["batch"], "ns_per_sample": 1e3 * cell["min_us"]}
    return row


def run(
    folder: pathlib.Path,
    *,
    robot: str = ROBOT,
    batches: tuple[int, ...] = BATCHES,
    implementations: tuple[str, ...] = IMPLEMENTATIONS,
    job_names: tuple[str, ...] | None = None,
    minutes: float = 8.0,
    duration: float = 0.2,
    libraries: tuple[str, ...] = OTHERS,
    options: tuple[str, ...] = (),
) -> list[dict]:
    """Compute the rows that gpu_day.jsonl lacks, until the minutes are over; return all rows.

    `libraries`: other libraries; `options`: options of `python -m benchmarks` for them.
    """
    import jax

    import jaxrbd as rbd

    end = time.monotonic() + 60 * minutes
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "gpu_day.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    device = jax.devices()[0].device_kind
    machine = {"device": device, "host": platform.machine(), "jax": jax.__version__}
    done = {(x.get("job"), x.get("implementation"), x.get("batch")) for x in rows}
    model = jax.tree.map(lambda x: x.astype(np.float32), rbd.load_robot(robot))
    known = reference(folder, robot)

    def write(found: dict) -> None:
        rows.append(found)
        with path.open("a") as file:
            file.write(json.dumps(found) + "\n")
        print(json.dumps(found), flush=True)

    measured = next((x for x in rows if "call_us" in x), None)
    if measured is None:
        measured = machine | limits(duration)
        write(measured)
    elif measured["device"] != device:
        raise SystemExit(f"{path} has rows of {measured['device']}, and this is {device}")
    missing = []
    names = job_names or tuple(gpu_programs.programs())
    for batch, job, implementation in itertools.product(batches, names, implementations):
        key = (job, implementation, batch)
        if key in done:
            continue
        if time.monotonic() > end:
            missing.append(key)
            continue
        found = {"job": job, "implementation": implementation, "batch": batch}
        try:
            found |= row(*key, model, known, measured, duration)
        except (jax.errors.JaxRuntimeError, MemoryError, rbd.ArgumentError) as error:
            found["failed"] = str(error).splitlines()[0][:200]
        write(found)
    for batch in batches:
        wanted = [job for job in names if job in jobs.JOBS]
        wanted = [job for job in wanted if any((job, x, batch) not in done for x in libraries)]
        left = end - time.monotonic()
        if wanted and libraries and left > 0:
            arguments = (folder, robot, batch, wanted, libraries, options, left)
            found = {(x["job"], x["implementation"], batch): x for x in rows_of_others(*arguments)}
            for key in (key for key in found if key not in done):
                write(found[key])
            done |= found.keys()
        missing += [(job, x, batch) for job in wanted for x in libraries]
    missing = [key for key in missing if key not in done]
    if missing:
        print(f"{len(missing)} rows are missing; the same command computes them", file=sys.stderr)
    (folder / "gpu_day.md").write_text(table(rows))
    return rows


def table(rows: list[dict]) -> str:
    """The times in ns per sample, as a table in Markdown."""
    timed = [x for x in rows if "job" in x]
    ways = list(dict.fromkeys(x["implementation"] for x in timed))
    lines = [
        f"{x['device']}, JAX {x['jax']}: {x['call_us']:.3g} us per call, {x['kernel_us']:.3g} us "
        f"per kernel, {x['copy_GB_per_s']:.4g} GB/s\n"
        for x in rows
        if "call_us" in x
    ]
    lines += ["| job | batch | " + " | ".join(ways) + " |", "|---|---|" + "---|" * len(ways)]
    for job, batch in dict.fromkeys((x["job"], x["batch"]) for x in timed):
        cells = {x["implementation"]: x for x in timed if (x["job"], x["batch"]) == (job, batch)}
        texts = []
        for way in ways:
            x = cells.get(way, {"failed": "-"})
            share = x.get("share", math.nan)
            percent = "" if math.isnan(share) else f" ({100 * share:.0f} %)"
            texts.append(x.get("failed") or f"{x['ns_per_sample']:.3g}{percent}")
        lines.append(f"| {job} | {batch} | " + " | ".join(texts) + " |")
    return "\n".join(lines) + "\n"
