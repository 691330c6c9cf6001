"""The libraries: a module each, which its worker imports in the library's own interpreter.

A module has the class `Library(folder, robot, dtype)`: the library with a robot, whose files are in
the folder; `robot` is the content of robot.json. It raises Unsupported if it cannot express the
robot. Its methods are

- `versions()`: names and versions to print;
- `prepare(job, arrays)`: a `Prepared`. Raises Unsupported where there is no such job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np


class Unsupported(Exception):
    """A library cannot express a robot or a job; the message says why."""


class Prepared(NamedTuple):
    """A job ready to be timed.

    - `time(calls)`: does it so many times; the seconds of each;
    - `outputs(samples)`: the job's arrays of these samples;
    - `facts`: what else is known: compile_s, temp_bytes, platform, device, note.
    """

    time: Callable[[int], list[float]]
    outputs: Callable[[np.ndarray], Sequence[np.ndarray]]
    facts: dict


def call_seconds(run: Callable[[], object], calls: int) -> list[float]:
    """The seconds of each of so many calls of a function."""
    found = []
    for _ in range(calls):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return found


class Peer(NamedTuple):
    """What is known of a library without importing it.

    - `module`: tells whether an interpreter has it;
    - `convention`: "pinocchio" or "mujoco", of the arrays it takes and returns;
    - `loop`: whether it goes through a batch sample by sample, in a loop that is compiled first;
    - `environment`: variables that its documentation asks for;
    - `optional`: whether it takes part only where there is a GPU, or when it is asked for.
    """

    module: str
    convention: str
    loop: bool = False
    environment: dict[str, str] = {}  # noqa: RUF012
    optional: bool = False


FRAX = {
    "OPENBLAS_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_scheduler_type=CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
}
# Another version of jaxrbd: the checkout that `--baseline FOLDER` gives.
BASELINE = "baseline"
# In the order of the tables.
PEERS = {
    "jaxrbd": Peer("jaxrbd", "pinocchio"),
    BASELINE: Peer("jaxrbd", "pinocchio", optional=True),
    "pinocchio": Peer("pinocchio", "pinocchio", loop=True),
    "mujoco": Peer("mujoco", "mujoco", loop=True),
    "mjx": Peer("mujoco.mjx", "mujoco"),
    "brax": Peer("brax", "mujoco"),
    "frax": Peer("frax", "mujoco", environment=FRAX),
    "jaxsim": Peer("jaxsim", "pinocchio"),
    "adam": Peer("adam", "pinocchio"),
    "mujoco_warp": Peer("mujoco_warp", "mujoco", optional=True),
    "grid_rbd": Peer("grid_rbd", "pinocchio", optional=True),
}
