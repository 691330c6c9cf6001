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


# In the order of the tables: the module that tells whether an interpreter has the library, and the
# conventions of its arrays.
PEERS = {
    "jaxrbd": ("jaxrbd", "pinocchio"),
    "pinocchio": ("pinocchio", "pinocchio"),
    "mujoco": ("mujoco", "mujoco"),
    "mjx": ("mujoco.mjx", "mujoco"),
    "brax": ("brax", "mujoco"),
    "frax": ("frax", "mujoco"),
    "jaxsim": ("jaxsim", "pinocchio"),
    "adam": ("adam", "pinocchio"),
}
