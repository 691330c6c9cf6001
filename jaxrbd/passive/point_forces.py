"""The generalized force of forces that act at points of a robot."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._math.linear import matmul
from ..algorithms.common_frame import dof_columns, subtree_sums
from ..algorithms.kinematics import Kinematics, first_root_centred
from ..algorithms.places import wrenches_at_points
from ..model import Model
from ..model.joint_space import independent_force


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
    - `p`: the points in m at which the forces act, relative to the first root body.

    Points, forces and moments have axes of the world.
    """
    wrenches = wrenches_at_points(p, forces, moments)
    on_body = jnp.asarray(np.arange(model.nb)[:, None] == bodies, model.dtype)
    columns = dof_columns(model, first_root_centred(model, kinematics))
    (on_subtree,) = subtree_sums(model, matmul(on_body, wrenches))
    return independent_force(model, kinematics.q, jnp.sum(columns * on_subtree, axis=-1))
