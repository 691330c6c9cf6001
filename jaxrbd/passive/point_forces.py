"""The generalized force of forces on points of a robot."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._math.components import cross
from .._math.linear import matmul
from ..algorithms.common_frame import dof_columns, subtree_sums
from ..algorithms.kinematics import Kinematics, first_root_centred, first_root_position
from ..algorithms.places import Frames, Places, find_places, poses_from_root
from ..model import Model
from ..model.joint_space import independent_force
from ..spatial import Pose


def points_in_frames(
    model: Model, kinematics: Kinematics, frames: Frames, X_FP: Pose
) -> tuple[Places, Pose]:
    """n places with the poses `X_FP` (n,) in frames, and their poses in the common frame.

    The common frame has world axes, and its origin is the first root body.
    """
    places = find_places(model, kinematics, frames, X_FP)
    return places, poses_from_root(places, first_root_position(model, kinematics))


def generalized_force_at_points(
    model: Model,
    kinematics: Kinematics,
    bodies: np.ndarray,
    p: Float[Array, "n 3"],
    forces: Float[Array, "n 3"],
    moments: Float[Array, "n 3"] | None = None,
) -> Float[Array, " nv"]:
    """The generalized force (nv,) of n forces in N, and moments in N m, on bodies of the robot.

    - `bodies` (n,): the bodies on which the forces act; forces on the world, body -1, have no
      effect;
    - `p`: the points in m at which the forces act. Points, forces and moments are in the common
      frame of `points_in_frames`.
    """
    turning = cross(p, forces)
    turning = turning if moments is None else turning + moments
    wrenches = jnp.concatenate([forces, turning], axis=1)
    on_body = jnp.asarray(np.arange(model.nb)[:, None] == bodies, model.dtype)
    columns = dof_columns(model, first_root_centred(model, kinematics))
    (on_subtree,) = subtree_sums(model, matmul(on_body, wrenches))
    return independent_force(model, kinematics.q, jnp.sum(columns * on_subtree, axis=-1))
