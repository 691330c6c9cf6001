"""The libraries: one module for each, which runs in an interpreter that has the library.

A module has the class `Library(folder, robot, dtype)`, which loads a robot. `folder` has the files
of the robot, and `robot` is the content of robot.json. The class raises Unsupported if the library
cannot express the robot. Its methods are:

- `versions()`: the names and versions of packages, for the head of the tables;
- `prepare(job, arrays)`: a `Prepared`. Raises Unsupported if the library has no such function.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np


class Unsupported(Exception):
    """A library cannot express a robot or a job. The message states the reason."""


class Prepared(NamedTuple):
    """A compiled job.

    - `time(calls)`: calls the job so many times, and returns the seconds of each call;
    - `outputs(samples)`: the results for the samples with these indices;
    - `facts`: some of compile_s, temp_bytes, platform, device and note.
    """

    time: Callable[[int], list[float]]
    outputs: Callable[[np.ndarray], Sequence[np.ndarray]]
    facts: dict


def call_seconds(run: Callable[[], object], calls: int) -> list[float]:
    """The seconds of each call, for this number of calls of a function."""
    found = []
    for _ in range(calls):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return found


class Peer(NamedTuple):
    """Facts about a library that are needed before its process starts.

    - `module`: a module of the library. An interpreter with this module has the library;
    - `convention`: "pinocchio" or "mujoco", the convention of its arguments and results;
    - `loop`: whether it computes one sample after another, in a compiled loop;
    - `environment`: environment variables that its documentation requires;
    - `optional`: whether it runs only on a machine with a GPU, or if `--peers` names it.
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
}
