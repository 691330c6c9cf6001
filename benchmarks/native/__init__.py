"""The loops in C++. They are compiled on the machine of the benchmark, and the result is kept."""

from __future__ import annotations

import ctypes
import hashlib
import os
import pathlib
import shutil
import subprocess

import numpy as np

from .. import jobs
from ..peers import Prepared, Unsupported

HERE = pathlib.Path(__file__).parent
BUILT = HERE.parent / ".environments" / "built"


def build(source: str, flags: list[str]) -> ctypes.CDLL:
    """The compiled loop of a source file. Raises Unsupported where it does not compile."""
    text = (HERE / source).read_bytes()
    compiler = shutil.which("g++")
    if compiler is None:
        raise Unsupported("no g++ to compile its loop")
    machine = subprocess.run(
        [compiler, "-march=native", "-E", "-v", "-"], input=b"", capture_output=True, check=False
    ).stderr
    key = hashlib.sha256(b"\0".join([text, " ".join(flags).encode(), machine])).hexdigest()[:16]
    library = BUILT / f"{pathlib.Path(source).stem}-{key}.so"
    if not library.exists():
        BUILT.mkdir(parents=True, exist_ok=True)
        partial = library.with_suffix(f".{os.getpid()}")
        command = [compiler, "-O3", "-DNDEBUG", "-march=native", "-std=c++17", "-w", "-shared"]
        command += ["-fPIC", str(HERE / source), "-o", str(partial), *flags]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stderr)
            raise Unsupported(f"its loop does not compile: see {source} in the log")
        partial.rename(library)
    return ctypes.CDLL(str(library))


class Loop:
    """A robot in a compiled loop over the samples.

    `library` has `void run(handle, job, batch, q, v, x, x_width, steps, dt, repeats, seconds,
    out)`. `shapes` has the shapes of the results of each job for one sample; `out` has the results
    in this order.
    """

    def __init__(self, library: ctypes.CDLL, handle: int, dtype: np.dtype, shapes: dict, note=""):
        self.library, self.handle, self.dtype = library, handle, dtype
        self.shapes, self.note = shapes, note

    def prepare(self, job: str, arrays: list[np.ndarray]) -> Prepared:
        if job not in self.shapes:
            raise Unsupported("no such function")
        number, batch = list(jobs.JOBS).index(job), len(arrays[0])
        arrays = [np.ascontiguousarray(x, self.dtype).reshape(batch, -1) for x in arrays]
        q, v, x = arrays if len(arrays) == 3 else arrays * 3

        def run(n: int, repeats: int, out: np.ndarray | None) -> list[float]:
            seconds = np.zeros(repeats)
            self.library.run(
                ctypes.c_void_p(self.handle),
                ctypes.c_int(number),
                ctypes.c_int(n),
                *(ctypes.c_void_p(y.ctypes.data) for y in (q, v, x)),
                ctypes.c_int(x.shape[1]),
                ctypes.c_int(jobs.STEPS),
                ctypes.c_double(jobs.DT),
                ctypes.c_int(repeats),
                ctypes.c_void_p(seconds.ctypes.data),
                ctypes.c_void_p(None if out is None else out.ctypes.data),
            )
            return seconds.tolist()

        def outputs(samples: np.ndarray) -> list[np.ndarray]:
            sizes = [int(np.prod(shape)) for shape in self.shapes[job]]
            n = int(samples[-1]) + 1
            out = np.full((n, sum(sizes)), np.nan, self.dtype)
            run(n, 1, out)
            parts = np.split(out[samples], np.cumsum(sizes)[:-1], axis=1)
            return [x.reshape(-1, *s) for x, s in zip(parts, self.shapes[job])]

        return Prepared(lambda calls: run(batch, calls, None), outputs, {"note": self.note})


def shapes(robot: dict) -> dict[str, list[tuple[int, ...]]]:
    """The shapes of the results of each job for one sample."""
    nb, nv = len(robot["joints"]), robot["nv"]
    return {
        "fk": [(nb, 3, 3), (nb, 3)],
        "rnea": [(nv,)],
        "crba": [(nv, nv)],
        "fd": [(nv,)],
        "jacobian": [(6, nv)],
        "drnea": [(nv, nv)] * 3,
        "dfd": [(nv, nv)] * 3,
        "grad": [(nv,)] * 3,
        "rollout_grad": [(jobs.STEPS, nv - 6 * robot["floating"])],
    }
