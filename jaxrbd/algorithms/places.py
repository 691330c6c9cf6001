"""Places: frames of a robot by name or index, or the world, which is None.

A place is fixed to a body, or to the world, whose index is -1. The index -1 is the last row of an
array. So `rows_or_world` adds a last row for the world to arrays with one row per body or frame.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._math.cast import cast
from .._math.components import cross
from .._math.rows import rows_or_world
from ..model import Model, arguments
from ..spatial import Pose, compose, identity_pose, inverse_transform_motion
from .kinematics import (
    Kinematics,
    RootedPose,
    body_columns,
    first_root_position,
    root_centred,
    root_positions,
)

Frames = Sequence[str | int | None]


class Places(NamedTuple):
    """n places.

    - `bodies` (n,): the bodies to which the places are fixed; -1 is the world;
    - `X_BF`: the poses (n,) of the places in their bodies;
    - `X`: the poses (n,) of the places in the world. The position of a `RootedPose` has two parts.
    """

    bodies: np.ndarray
    X_BF: Pose
    X: RootedPose


def find_places(
    model: Model, kinematics: Kinematics, frames: Frames, X_FP: Pose | None = None
) -> Places:
    """The places of n frames, or of n frames P with the poses `X_FP` (n,) in these frames."""
    bodies, X_BF = bodies_of(model, frames), poses_in_bodies(model, frames)
    if X_FP is not None:
        X_BF = compose(X_BF, cast(X_FP, model.dtype))
    X_RB = rows_or_world(root_centred(kinematics), bodies, identity_pose(model.dtype))
    X_RF = compose(X_RB, X_BF)
    p_WR = rows_or_world(root_positions(model, kinematics), bodies, jnp.zeros(3, model.dtype))
    if np.any(bodies < 0):
        # For a place that is fixed to the world, the root point R is the origin of the place.
        fixed = (bodies < 0)[:, None]
        p_WR = jnp.where(fixed, X_RF.p, p_WR)
        X_RF = Pose(X_RF.R, jnp.where(fixed, 0, X_RF.p))
    return Places(bodies, X_BF, RootedPose(X_RF, p_WR))


def poses_from_root(places: Places, p_WR: Float[Array, "3"]) -> Pose:
    """The poses of places in world axes, with positions relative to a root position p_WR.

    So the positions of a robot far from the origin lose no digits.
    """
    return Pose(places.X.X_RF.R, places.X.X_RF.p + (places.X.p_WR - p_WR[None]))


def places_from_first_root(
    model: Model, kinematics: Kinematics, frames: Frames, X_FP: Pose | None = None
) -> tuple[Places, Pose]:
    """As `find_places`, and the poses (n,) in world axes, relative to the first root body."""
    places = find_places(model, kinematics, frames, X_FP)
    return places, poses_from_root(places, first_root_position(model, kinematics))


def wrenches_at_points(
    p: Float[Array, "n 3"], forces: Float[Array, "n 3"], moments: Float[Array, "n 3"] | None = None
) -> Float[Array, "n 6"]:
    """The wrenches, about the origin, of forces and moments on bodies at points p."""
    about_origin = cross(p, forces)
    if moments is not None:
        about_origin = about_origin + moments
    return jnp.concatenate([forces, about_origin], axis=1)


def place_jacobians(model: Model, kinematics: Kinematics, places: Places) -> Float[Array, "n nv 6"]:
    """The Jacobians of n places in the axes of the places, with one row per entry of v."""
    movers = model.topology.movers(places.bodies)  # for each place, the joints that move it
    columns = functools.partial(body_columns, model, kinematics)
    return jax.vmap(columns)(movers, places.X.X_RF)


def place_motions(
    places: Places, motions: Float[Array, "nb 6"], world: Float[Array, "6"] | None = None
) -> Float[Array, "n 6"]:
    """The motions of n places, in their axes, from the motions of the bodies in the body frames.

    `world`: the motion of the world (default 0).
    """
    world = jnp.zeros(6, motions.dtype) if world is None else world
    return inverse_transform_motion(places.X_BF, rows_or_world(motions, places.bodies, world))


def bodies_of(model: Model, frames: Frames) -> np.ndarray:
    """The bodies of frames, (n,); -1 for the world. Raises ArgumentError for an unknown frame."""
    return np.array([-1 if i < 0 else model.frame_bodies[i] for i in _indices(model, frames)], int)


def poses_in_bodies(model: Model, frames: Frames) -> Pose:
    """The poses of frames in their bodies, (n,); the identity for the world."""
    return rows_or_world(model.frame_pose, _indices(model, frames), identity_pose(model.dtype))


def _indices(model: Model, frames: Frames) -> np.ndarray:
    return np.array([-1 if f is None else arguments.frame_index(model, f) for f in frames], int)
