"""Points on the bodies of a robot: velocities, Jacobians, and the wrenches of forces on them.

The points are given by the indices of their bodies, `bodies` (n,), and by their positions in the
body frames, `arm` (n, 3). The body of a point that is fixed to the world is -1. `nv_tree` is the
number of dofs of the tree, see `model/joint_space.py`.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from .._math.components import cross
from .._math.rows import rows_or_world, take_rows
from ..algorithms.kinematics import Kinematics, root_centred
from ..model import Model
from ..model.joint_space import independent_force, relative_velocities
from ..spatial import identity_pose, inverse_rotate, rotate, transform_point
from ..tree import propagate


def point_motions(
    model: Model,
    kinematics: Kinematics,
    bodies: np.ndarray,
    arm: Float[Array, "n 3"],
    v: Float[Array, " nv"],
) -> tuple[Float[Array, "n 3"], Float[Array, "n 3"]]:
    """The velocities of the points, and the angular velocities of their bodies, in world axes."""
    V = propagate(model.topology, kinematics.X_PB, relative_velocities(model, kinematics.q, v))
    still = jnp.zeros(6, model.dtype), jnp.eye(3, dtype=model.dtype)
    V, R = rows_or_world((V, kinematics.X_WB.R), bodies, still)
    return rotate(R, V[:, :3] + cross(V[:, 3:], arm)), rotate(R, V[:, 3:])


def point_jacobians(
    model: Model,
    kinematics: Kinematics,
    columns: Float[Array, "nv_tree 6"],
    bodies: np.ndarray,
    arm: Float[Array, "n 3"],
) -> Float[Array, "n 6 nv"]:
    """The Jacobians of the velocities of the points, and of the angular velocities of the bodies.

    The velocities are in world axes. `columns` (nv_tree, 6): the dof columns in the frame of
    `root_centred`.
    """
    positions = point_positions(model, kinematics, bodies, arm)
    return jacobians_at(model, kinematics.q, columns, dof_movers(model, bodies), positions)


def point_positions(
    model: Model, kinematics: Kinematics, bodies: np.ndarray, arm: Float[Array, "n 3"]
) -> Float[Array, "n 3"]:
    """The positions of the points in the frame of `root_centred`, or in the world for body -1."""
    X = rows_or_world(root_centred(kinematics), bodies, identity_pose(model.dtype))
    return transform_point(X, arm)


def dof_movers(model: Model, bodies: np.ndarray) -> np.ndarray:
    """For each of n bodies, which dofs of the tree move it, (n, nv_tree) of bool."""
    return model.topology.movers(bodies)[:, model.topology.dof_body]


def jacobians_at(
    model: Model,
    q: Float[Array, " nq"],
    columns: Float[Array, "nv_tree 6"],
    moves: Bool[np.ndarray | Array, "n nv_tree"],
    positions: Float[Array, "n 3"],
) -> Float[Array, "n 6 nv"]:
    """`point_jacobians` for given `dof_movers` and `point_positions`."""
    linear, angular = columns[:, None, :3], columns[:, None, 3:]
    linear, angular = jnp.broadcast_arrays(linear + cross(angular, positions), angular)
    by_dof = jnp.where(moves.T[..., None], jnp.concatenate([linear, angular], axis=-1), 0)
    return jnp.transpose(independent_force(model, q, by_dof), (1, 2, 0))


def body_wrenches(
    model: Model,
    kinematics: Kinematics,
    bodies: np.ndarray,
    arm: Float[Array, "n 3"],
    f: Float[Array, "n 3"],
    moments: Float[Array, "n 3"] | None = None,
) -> Float[Array, "nb 6"]:
    """The wrenches (nb, 6) on the bodies, in the body frames, as the argument `f_ext` of `rnea`.

    `f` (n, 3), `moments` (n, 3): the forces on the points and the moments about the points (default
    none), in world axes.
    """
    moving = np.flatnonzero(bodies >= 0)
    bodies, arm = bodies[moving], arm[moving]
    R = take_rows(kinematics.X_WB.R, bodies)
    f = inverse_rotate(R, f[moving])
    moment = cross(arm, f)
    if moments is not None:
        moment += inverse_rotate(R, moments[moving])
    wrenches = jnp.concatenate([f, moment], axis=-1)
    return jnp.zeros((model.nb, 6), model.dtype).at[bodies].add(wrenches)
