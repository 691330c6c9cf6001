"""The libraries: a module each, which its worker imports in the library's own interpreter.

A module has `load(folder, robot, dtype)`: the library with a robot, whose files are in the folder;
`robot` is its robot.json. It raises Unsupported where it cannot express the robot. Its result has

- `versions()`: names and versions to print;
- `prepare(job, arrays)`: a `Prepared`. Raises Unsupported where there is no such job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np


class Unsupported(Exception):
    """A library cannot express a robot or a job; the message says why."""


class Prepared(NamedTuple):
    """A job ready to be timed.

    - `time(calls)`: does it so many times; the seconds of each;
    - `outputs(samples)`: the job's arrays of these samples;
    - `facts`: what else is known: compile_s, temp_bytes, flops, bytes, note.
    """

    time: Callable[[int], list[float]]
    outputs: Callable[[np.ndarray], Sequence[np.ndarray]]
    facts: dict


class Peer(NamedTuple):
    """What is known of a library without importing it.

    - `module`: tells whether an interpreter has it;
    - `convention`: "pinocchio" or "mujoco", of the arrays it takes and returns;
    - `jax`: whether it runs where JAX does, so also on a GPU;
    - `environment`: variables that its documentation asks for;
    - `optional`: whether it takes part only where there is a GPU, or when it is asked for.
    """

    module: str
    convention: str
    jax: bool = False
    environment: dict[str, str] = {}  # noqa: RUF012
    optional: bool = False


FRAX = {
    "OPENBLAS_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_scheduler_type=CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
}
# In the order of the tables.
PEERS = {
    "jaxrbd": Peer("jaxrbd", "pinocchio", jax=True),
    "pinocchio": Peer("pinocchio", "pinocchio"),
    "mujoco": Peer("mujoco", "mujoco"),
    "mjx": Peer("mujoco.mjx", "mujoco", jax=True),
    "brax": Peer("brax", "mujoco", jax=True),
    "frax": Peer("frax", "mujoco", jax=True, environment=FRAX),
    "jaxsim": Peer("jaxsim", "pinocchio", jax=True),
    "adam": Peer("adam", "pinocchio", jax=True),
    "mujoco_warp": Peer("mujoco_warp", "mujoco", optional=True),
    "grid_rbd": Peer("grid_rbd", "pinocchio", optional=True),
}
