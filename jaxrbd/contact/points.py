"""Points on the bodies of a robot: velocities, Jacobians, and the wrenches of forces on them.

The points are given by the indices of their bodies, `bodies` (n,), and by their positions in the
body frames, `arm` (n, 3). The body of a point that is fixed to the world is -1.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._math.components import cross
from .._math.rows import take_rows
from ..algorithms.kinematics import Kinematics, root_centred
from ..model import Model
from ..model.joint_space import independent_force, relative_velocities
from ..spatial import inverse_rotate, rotate, transform_point
from ..tree import propagate


def point_velocities(
    model: Model,
    kinematics: Kinematics,
    bodies: np.ndarray,
    arm: Float[Array, "n 3"],
    v: Float[Array, " nv"],
) -> Float[Array, "n 3"]:
    """The velocities (n, 3) of the points, in world axes."""
    V = propagate(model.topology, kinematics.X_PB, relative_velocities(model, kinematics.q, v))
    moving = bodies >= 0
    bodies = np.where(moving, bodies, 0)
    V, R = take_rows(V, bodies), take_rows(kinematics.X_WB.R, bodies)
    u = rotate(R, V[:, :3] + cross(V[:, 3:], arm))
    return u if np.all(moving) else jnp.where(moving[:, None], u, 0)


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
    moving = bodies >= 0
    bodies = np.where(moving, bodies, 0)
    X = jax.tree.map(lambda x: take_rows(x, bodies), root_centred(kinematics))
    positions = transform_point(X, arm)
    linear, angular = columns[:, None, :3], columns[:, None, 3:]
    linear, angular = jnp.broadcast_arrays(linear + cross(angular, positions), angular)
    moves = model.topology.supports[np.ix_(model.topology.dof_body, bodies)] & moving
    by_dof = jnp.where(moves[..., None], jnp.concatenate([linear, angular], axis=-1), 0)
    return jnp.transpose(independent_force(model, kinematics.q, by_dof), (1, 2, 0))


def body_wrenches(
    model: Model,
    kinematics: Kinematics,
    bodies: np.ndarray,
    arm: Float[Array, "n 3"],
    f: Float[Array, "n 3"],
) -> Float[Array, "nb 6"]:
    """The sum of the forces f, in world axes, on the points of each body, as `f_ext`."""
    moving = np.flatnonzero(bodies >= 0)
    bodies, arm, f = bodies[moving], arm[moving], f[moving]
    f = inverse_rotate(take_rows(kinematics.X_WB.R, bodies), f)
    wrenches = jnp.concatenate([f, cross(arm, f)], axis=-1)
    return jnp.zeros((model.nb, 6), model.dtype).at[bodies].add(wrenches)
