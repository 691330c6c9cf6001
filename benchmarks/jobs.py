"""The jobs of the benchmark, their states, and the tolerances of their results.

The processes of all libraries import this module, so it needs only numpy.

A job takes arrays of B states, in the conventions of jaxrbd and Pinocchio: q (B, nq); v, a, tau
(B, nv); and taus (B, STEPS, motors), the motor forces in each step of a rollout. Every joint has a
motor, except a free-flyer.
"""

from __future__ import annotations

import dataclasses

import numpy as np

STEPS, DT = 50, 1e-3  # of the rollout: semi-implicit Euler


@dataclasses.dataclass(frozen=True)
class Job:
    """A quantity that the libraries compute.

    - `inputs`: the names of the arrays that the job takes;
    - `solves`: whether the job inverts M, so that errors grow with the condition number of M.
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
    # J (6, nv) of the link farthest from the root: about its origin, in the axes of the world
    "jacobian": Job("frame Jacobian", ("q",)),
    # d tau / dq, dv, da: each (nv, nv)
    "drnea": Job("d(tau)/d(q, v, a)", ("q", "v", "a")),
    # d a / dq, dv, dtau: each (nv, nv)
    "dfd": Job("d(qdd)/d(q, v, tau)", ("q", "v", "tau"), solves=True),
    # Gradient of |tau|^2 / 2 with respect to q, v and a: each (nv,). |tau| is the same in every
    # convention.
    "grad": Job("gradient of rnea", ("q", "v", "a")),
    # Gradient of |v|^2 / 2 after STEPS steps, with respect to the motor forces: (STEPS, motors)
    "rollout_grad": Job("gradient of 50 steps", ("q", "v", "taus"), solves=True),
}

UNIQUE = 256  # states; a larger batch repeats them
CHECKED = 16  # states whose results are compared


def states(nq: int, nv: int, floating: bool, seed: int = 0) -> dict[str, np.ndarray]:
    """UNIQUE random states of a robot: entries in [-1, 1], and any orientation of the base."""
    rng = np.random.default_rng(seed)
    q = rng.uniform(-1, 1, (UNIQUE, nq))
    if floating:
        quaternion = rng.normal(size=(UNIQUE, 4))
        q[:, 3:7] = quaternion / np.linalg.norm(quaternion, axis=1, keepdims=True)
    v, a, tau = rng.uniform(-1, 1, (3, UNIQUE, nv))
    taus = rng.uniform(-1, 1, (UNIQUE, STEPS, nv - 6 * floating))
    return {"q": q, "v": v, "a": a, "tau": tau, "taus": taus}


def batch_of(array: np.ndarray, batch: int) -> np.ndarray:
    """The first `batch` rows, repeated as often as needed."""
    return np.ascontiguousarray(np.resize(array, (batch, *array.shape[1:])))


def checked(batch: int) -> np.ndarray:
    """The indices of the samples whose results are compared.

    These are the first CHECKED samples. If the batch repeats all states, they are also the samples
    of the last complete repetition that have the same states.
    """
    first = np.arange(min(batch, CHECKED))
    if batch < 2 * UNIQUE:
        return first
    return np.concatenate([first, (batch // UNIQUE - 1) * UNIQUE + first])


def tolerance(job: str, dtype: str, condition: float, coarse: bool) -> float:
    """The largest allowed error of a result, relative to the largest entry of its sample.

    - `condition`: the condition number of the mass matrix, for jobs that invert this matrix;
    - `coarse`: whether the result is a finite difference, or depends on the rule by which the
      library integrates quaternions.
    """
    if coarse:
        return 1e-3 if dtype == "float64" else 1e-2
    eps = float(np.finfo(dtype).eps)
    return eps * (1e5 + 10 * condition * JOBS[job].solves)


def error(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest relative error of all samples.

    The error of a sample is its largest difference, divided by its largest expected entry.
    """
    if found.shape != expected.shape:
        return float("inf")
    axes = tuple(range(1, found.ndim))
    difference = np.max(np.abs(found - expected), axis=axes)
    size = np.max(np.abs(expected), axis=axes)
    relative = difference / np.where(size > 0, size, 1.0)
    return float(np.max(relative)) if np.all(np.isfinite(relative)) else float("inf")
