"""Configurations to show, as poses of bodies."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from ..algorithms import forward_kinematics
from ..configuration import neutral
from ..errors import ArgumentError
from ..model import Model
from ..so3 import quaternion_from_matrix
from .drawing import Drawing


class Motion(NamedTuple):
    """Poses of the bodies of B robots at T times.

    - `q` (B, T, nq);
    - `R` (B, T, nb, 3, 3), `p` (B, T, nb, 3) in m: poses of the bodies in the world;
    - `quaternion` (B, T, nb, 4): the rotations as x, y, z, w.
    """

    q: np.ndarray
    R: np.ndarray
    p: np.ndarray
    quaternion: np.ndarray


@jax.jit
def _poses(model: Model, q: jax.Array):
    def one(q):
        X = forward_kinematics(model, q).X_WB
        return X.R, X.p, quaternion_from_matrix(X.R)

    return jax.vmap(one)(q)


def motion(model: Model, q: ArrayLike | None, name: str = "trajectory") -> Motion:
    """The poses of the bodies for q (nq,), (T, nq) or (B, T, nq); None: the neutral configuration.

    Raises ArgumentError for another shape, for no configuration, and for a value that is not
    finite.
    """
    given = np.asarray(neutral(model) if q is None else q)
    if given.ndim not in (1, 2, 3) or given.shape[-1] != model.nq:
        raise ArgumentError(
            f"{name} has shape {given.shape}, expected ({model.nq},), (T, {model.nq}) or "
            f"(B, T, {model.nq})"
        )
    if 0 in given.shape[:-1]:
        raise ArgumentError(f"{name} has shape {given.shape}: it has no configuration")
    if not np.all(np.isfinite(given)):
        index = tuple(int(i) for i in np.argwhere(~np.isfinite(given))[0])
        raise ArgumentError(f"{name}{list(index)} is {given[index]}, expected finite values")
    while given.ndim < 3:
        given = given[None]
    robots, times, _ = given.shape
    count = robots * times
    flat = given.reshape(count, model.nq).astype(model.dtype)
    # The number of configurations is a power of two, so few programs are compiled.
    repeated = np.minimum(np.arange(1 << (count - 1).bit_length()), count - 1)
    R, p, quaternion = (
        np.array(x[:count], float).reshape(robots, times, *x.shape[1:])
        for x in _poses(model, flat[repeated])
    )
    return Motion(given, R, p, quaternion)


def center_of_mass(drawing: Drawing, R: np.ndarray, p: np.ndarray) -> np.ndarray:
    """The centre of mass (..., 3) of the robot, for poses (..., nb); zero without mass."""
    weights = drawing.masses / (np.sum(drawing.masses) or 1.0)
    places = np.einsum("...bij,bj->...bi", R, drawing.centers) + p
    return np.einsum("b,...bi->...i", weights, places)


def bounds(drawing: Drawing, R: np.ndarray, p: np.ndarray) -> np.ndarray:
    """The smallest and the largest world coordinates (2, 3) of what is drawn, for poses (nb,)."""
    places = p if len(p) else np.zeros((1, 3))
    low, high = [places.min(axis=0)], [places.max(axis=0)]
    for item in drawing.items:
        if item.layer != "visuals":
            continue
        corners = item.vertices
        if item.body >= 0:
            corners = corners @ R[item.body].T + p[item.body]
        low.append(corners.min(axis=0))
        high.append(corners.max(axis=0))
    return np.array([np.min(low, axis=0), np.max(high, axis=0)])
