"""Configurations to show, as poses of bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from ..algorithms import forward_kinematics
from ..configuration import neutral
from ..errors import ArgumentError
from ..model import Model
from ..model.arguments import parameter
from ..so3 import quaternion_from_matrix
from .drawing import Drawing

RELATIVE_AXIS_LENGTH = 0.25  # length of the axes of a body, divided by the size of the robot


class Motion(NamedTuple):
    """Poses of the bodies of B robots at T times, or in T postures.

    - `q` (B, T, nq): the configurations;
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


def motion(
    model: Model,
    q: ArrayLike | None,
    name: str = "trajectory",
    axes: Sequence[str] = ("", "T", "BT"),
) -> Motion:
    """The poses of the bodies for configurations q; None: the neutral configuration.

    `axes`: each string lists axes that q may have before its last axis (nq): B for robots, T for
    times, and G for postures of one robot. `name`: the name of q in messages. Raises ArgumentError
    for other axes, for objects that are no real numbers, for an axis of length 0, for a value that
    is not finite, and for a zero quaternion.
    """
    shapes = [(*letters, model.nq) for letters in axes]
    given = np.asarray(parameter(neutral(model) if q is None else q, name, *shapes))
    if 0 in given.shape[:-1]:
        raise ArgumentError(f"{name} has shape {given.shape}: it has no configuration")
    if not np.all(np.isfinite(given)):
        index = tuple(int(i) for i in np.argwhere(~np.isfinite(given))[0])
        raise ArgumentError(f"{name}{list(index)} is {given[index]}, expected finite values")
    for joint, start in model.quaternions:
        zero = np.argwhere(~np.any(given[..., start : start + 4], axis=-1))
        if len(zero):
            place = f"{name}{zero[0].tolist()}" if given.ndim > 1 else name
            raise ArgumentError(
                f"{place} has the zero quaternion for joint {joint!r}, expected a rotation"
            )
    if given.ndim == 2 and "B" in axes:
        given = given[:, None]
    while given.ndim < 3:
        given = given[None]
    robots, times, _ = given.shape
    count = robots * times
    flat = given.reshape(count, model.nq).astype(model.dtype)
    # A program is compiled for each number of configurations. The last configuration is repeated up
    # to a power of two, so that few programs are compiled.
    repeated = np.minimum(np.arange(1 << (count - 1).bit_length()), count - 1)
    R, p, quaternion = (
        np.array(x[:count], float).reshape(robots, times, *x.shape[1:])
        for x in _poses(model, flat[repeated])
    )
    return Motion(given, R, p, quaternion)


def check_dt(dt: float) -> float:
    """dt in s. Raises ArgumentError unless it is a positive number."""
    time = np.asarray(None if isinstance(dt, Sequence) else dt)
    if time.dtype.kind not in "fiu" or time.shape != () or not 0 < time < np.inf:
        raise ArgumentError(f"dt is {dt!r}, expected a positive time in s")
    return float(time)


def nearest_steps(count: int, dt: float, period: float) -> list[int]:
    """The index of the nearest of `count` times, `dt` apart, for each multiple of `period`."""
    times = period * np.arange(int((count - 1) * dt / period + 1e-9) + 1)
    return np.minimum(np.round(times / dt).astype(int), count - 1).tolist()


def center_of_mass(drawing: Drawing, R: np.ndarray, p: np.ndarray) -> np.ndarray:
    """The centre of mass (..., 3) of the robot, for poses (..., nb); zero without mass."""
    weights = drawing.masses / (np.sum(drawing.masses) or 1.0)
    places = np.einsum("...bij,bj->...bi", R, drawing.centers) + p
    return np.einsum("b,...bi->...i", weights, places)


def bounds(
    drawing: Drawing, R: np.ndarray, p: np.ndarray, layers: Sequence[str] = ("visuals",)
) -> np.ndarray:
    """The smallest and the largest world coordinates (2, 3) of the drawing, for poses (nb,).

    The drawing contains the origins of the bodies, the items in `layers`, the axes of the bodies if
    `layers` has "frames", and the centre of mass if it has "com".
    """
    points = [p if len(p) else np.zeros((1, 3))]
    for item in drawing.items:
        if item.layer in layers:
            corners = item.vertices
            points.append(corners @ R[item.body].T + p[item.body] if item.body >= 0 else corners)
    if "frames" in layers:
        axes = np.swapaxes(R, 1, 2) * (RELATIVE_AXIS_LENGTH * drawing.size(layers))
        points.append((p[:, None] + axes).reshape(-1, 3))
    if "com" in layers:
        points.append(center_of_mass(drawing, R, p)[None])
    corners = np.concatenate(points)
    return np.array([corners.min(axis=0), corners.max(axis=0)])
