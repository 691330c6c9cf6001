"""The process of one library: `python -m benchmarks.worker PEER FOLDER DTYPE`.

It runs in the interpreter that has the library. It reads commands from the standard input, one JSON
object per line, and answers each command with one line:

    {"do": "prepare", "job": ..., "batch": ..., "inputs": states.npz, "outputs": where to write}
        -> {"compile_s": ..., "temp_bytes": ..., "note": ..., ...}   or   {"failed": why}
    {"do": "time", "seconds": s} -> {"seconds": [...], ...}: the times of calls, in total about s

It needs only numpy and the library. Text that a library prints goes to the standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import sys
import time
import traceback

# Restrict the process to one core before a library is imported and starts threads.
if os.environ.get("BENCHMARK_CORE"):
    os.sched_setaffinity(0, {int(os.environ["BENCHMARK_CORE"])})

import numpy as np

from . import jobs
from .peers import Unsupported


class Worker:
    """A library with a loaded robot, and the prepared job."""

    def __init__(self, peer: str, folder: pathlib.Path, dtype: str):
        self.dtype = np.dtype(dtype)
        module = importlib.import_module(f"benchmarks.peers.{peer}")
        robot = json.loads((folder / "robot.json").read_text())
        self.peer = module.Library(folder, robot, self.dtype)
        self.prepared = None

    def prepare(self, job: str, batch: int, inputs: str, outputs: str) -> dict:
        self.prepared = None
        names = jobs.JOBS[job].inputs
        with np.load(inputs) as states:
            arrays = [jobs.batch_of(states[name].astype(self.dtype), batch) for name in names]
        self.prepared = self.peer.prepare(job, arrays)
        found = self.prepared.outputs(jobs.checked(batch))
        np.savez(outputs, *(np.asarray(x, float) for x in found))
        return self.prepared.facts

    def time(self, seconds: float) -> dict:
        """Run at least one call, and further calls for about `seconds`.

        Returns the seconds of each call, and the wall-clock and CPU time of all calls together.
        """
        assert self.prepared is not None
        start, cpu = time.perf_counter(), time.process_time()
        taken = list(self.prepared.time(1))
        while (left := start + seconds - time.perf_counter()) > 0:
            # Request the calls of a third of the remaining time at once: for short calls, Python
            # code between the calls would take too much of the time.
            taken += self.prepared.time(max(1, int(left / 3 / np.median(taken))))
        return {
            "seconds": taken,
            "wall": time.perf_counter() - start,
            "cpu": time.process_time() - cpu,
        }


def attempt(function, **arguments):
    """The result of a function; `{"failed": reason}` if the library cannot do it or raises."""
    try:
        return function(**arguments)
    except Unsupported as error:
        return {"failed": str(error)}
    except Exception as error:
        traceback.print_exc()
        line = (str(error).strip() or "no message").splitlines()[0]
        return {"failed": f"{type(error).__name__}: {line[:150]}"}


def answer(worker: Worker, command: dict) -> dict:
    """The answer to a command."""
    return attempt(getattr(worker, command.pop("do")), **command)


def main() -> None:
    # Only answers go to the original standard output; all other output goes to the standard error.
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(message: dict) -> None:
        pipe.write(json.dumps(message) + "\n")
        pipe.flush()

    peer, folder, dtype = sys.argv[1:]
    worker = attempt(Worker, peer=peer, folder=pathlib.Path(folder), dtype=dtype)
    if isinstance(worker, dict):
        return say(worker)
    say({"versions": worker.peer.versions()})
    for line in sys.stdin:
        say(answer(worker, json.loads(line)))
    return None


if __name__ == "__main__":
    main()
