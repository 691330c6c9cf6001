"""Places: frames of a robot by name or index, or the world, which is None.

A place is fixed to a body, or to the world, whose body is -1. So an array with one row per body or
frame gets a last row for the world (`rows_of`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..model import Model, arguments
from ..spatial import Pose, compose, identity_pose
from .kinematics import Kinematics, RootedPose, root_centred, root_positions

Frames = Sequence[str | int | None]


class Places(NamedTuple):
    """n places.

    - `bodies` (n,): the bodies to which the places are fixed; -1 is the world;
    - `X_BF`: the poses in the bodies; `X`: the poses in the world.
    """

    bodies: np.ndarray
    X_BF: Pose
    X: RootedPose


def find_places(
    model: Model, kinematics: Kinematics, frames: Frames, X_FP: Pose | None = None
) -> Places:
    """The places in n frames: the frames, or places with the poses `X_FP` (n,) in the frames."""
    bodies, X_BF = bodies_of(model, frames), poses_in_bodies(model, frames)
    if X_FP is not None:
        X_BF = compose(X_BF, jax.tree.map(lambda x: jnp.asarray(x, model.dtype), X_FP))
    X_RB = rows_of(root_centred(kinematics), bodies, identity_pose(model.dtype))
    X_RF = compose(X_RB, X_BF)
    p_WR = rows_of(root_positions(model, kinematics), bodies, jnp.zeros(3, model.dtype))
    if np.any(bodies < 0):
        # Where a place is fixed to the world, R is the origin of the place.
        fixed = (bodies < 0)[:, None]
        p_WR = jnp.where(fixed, X_RF.p, p_WR)
        X_RF = Pose(X_RF.R, jnp.where(fixed, 0, X_RF.p))
    return Places(bodies, X_BF, RootedPose(X_RF, p_WR))


def bodies_of(model: Model, frames: Frames) -> np.ndarray:
    """The bodies of frames, (n,); -1 for the world. Raises ArgumentError for an unknown frame."""
    return np.array([-1 if i < 0 else model.frame_bodies[i] for i in _indices(model, frames)], int)


def poses_in_bodies(model: Model, frames: Frames) -> Pose:
    """The poses of frames in their bodies, (n,); the identity for the world."""
    return rows_of(model.frame_pose, _indices(model, frames), identity_pose(model.dtype))


def rows_of(rows, index: np.ndarray, world):
    """The rows of each array of a pytree; the index of the row `world` is -1."""

    def select(x: Array, last: Array) -> Array:
        return (jnp.concatenate([x, last[None]]) if np.any(index < 0) else x)[index]

    return jax.tree.map(select, rows, world)


def _indices(model: Model, frames: Frames) -> np.ndarray:
    return np.array([-1 if f is None else arguments.frame_index(model, f) for f in frames], int)
