"""The jobs of the benchmark, the states they are done at, and how close a result has to be.

Needs numpy alone: the workers of all libraries import it.

A job takes arrays of states, the sample first, in jaxrbd's (and Pinocchio's) conventions:
q (B, nq), v, a, tau (B, nv), and taus (B, STEPS, motors), the forces of the joints that have a
motor: all but a free-flyer.
"""

from __future__ import annotations

import dataclasses

import numpy as np

STEPS, DT = 50, 1e-3  # of the rollout: semi-implicit Euler


@dataclasses.dataclass(frozen=True)
class Job:
    """What is computed.

    - `inputs`: names of the arrays it takes;
    - `solves`: whether M is inverted, so that errors grow with its condition number.
    """

    title: str
    inputs: tuple[str, ...]
    solves: bool = False


JOBS = {
    # The pose of every body: R (nb, 3, 3), p (nb, 3).
    "fk": Job("forward kinematics", ("q",)),
    # tau (nv,)
    "rnea": Job("inverse dynamics", ("q", "v", "a")),
    # M (nv, nv)
    "crba": Job("mass matrix", ("q",)),
    # a (nv,)
    "fd": Job("forward dynamics", ("q", "v", "tau"), solves=True),
    # J (6, nv) of the link furthest from the root; its origin, the world's axes; [linear; angular]
    "jacobian": Job("frame Jacobian", ("q",)),
    # d tau / dq, dv, da: each (nv, nv)
    "drnea": Job("d(tau)/d(q, v, a)", ("q", "v", "a")),
    # d a / dq, dv, dtau: each (nv, nv)
    "dfd": Job("d(qdd)/d(q, v, tau)", ("q", "v", "tau"), solves=True),
    # of |tau|^2 / 2 in q, v, a: each (nv,). The norm is the same in every convention.
    "grad": Job("gradient of rnea", ("q", "v", "a")),
    # of |v|^2 / 2 after STEPS steps, in the motors' forces: (STEPS, motors)
    "rollout_grad": Job("gradient of 50 steps", ("q", "v", "taus"), solves=True),
}

UNIQUE = 256  # states; a larger batch repeats them
CHECKED = 16  # states whose results are compared


def states(nq: int, nv: int, floating: bool, seed: int = 0) -> dict[str, np.ndarray]:
    """UNIQUE random states of a robot: coordinates within 1 of zero, any orientation."""
    rng = np.random.default_rng(seed)
    q = rng.uniform(-1, 1, (UNIQUE, nq))
    if floating:
        quaternion = rng.normal(size=(UNIQUE, 4))
        q[:, 3:7] = quaternion / np.linalg.norm(quaternion, axis=1, keepdims=True)
    v, a, tau = rng.uniform(-1, 1, (3, UNIQUE, nv))
    taus = rng.uniform(-1, 1, (UNIQUE, STEPS, nv - 6 * floating))
    return {"q": q, "v": v, "a": a, "tau": tau, "taus": taus}


def directions(motors: int) -> np.ndarray:
    """Two directions (2, STEPS, motors) along which a gradient is checked."""
    return np.random.default_rng(1).normal(size=(2, STEPS, motors))


def batch_of(array: np.ndarray, batch: int) -> np.ndarray:
    """The first `batch` rows, repeated as often as needed."""
    return np.ascontiguousarray(np.resize(array, (batch, *array.shape[1:])))


def checked(batch: int) -> np.ndarray:
    """The samples whose results are compared: the first and, of repeated states, the last."""
    first = np.arange(min(batch, CHECKED))
    if batch < 2 * UNIQUE:
        return first
    return np.concatenate([first, (batch // UNIQUE - 1) * UNIQUE + first])


def tolerance(job: str, dtype: str, condition: float, finite_differences: bool) -> float:
    """How far, relative to the largest entry of a sample, a result may be from the reference.

    - `condition`: of the mass matrix, which matters where it is inverted;
    - `finite_differences`: whether the result, or the reference, comes of such.
    """
    if finite_differences:
        return 1e-3 if dtype == "float64" else 1e-2
    eps = float(np.finfo(dtype).eps)
    return eps * (1e5 + 10 * condition * JOBS[job].solves)


def error(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference over the largest entry of the sample, of all samples."""
    if found.shape != expected.shape:
        return float("inf")
    axes = tuple(range(1, found.ndim))
    difference = np.max(np.abs(found - expected), axis=axes)
    size = np.max(np.abs(expected), axis=axes)
    relative = difference / np.where(size > 0, size, 1.0)
    return float(np.max(relative)) if np.all(np.isfinite(relative)) else float("inf")
