"""Velocities and Jacobians of points on the bodies, and the inverse inertias of a robot.

The points are given by the indices of their bodies, `bodies` (n,), and by their positions in the
body frames, `arm` (n, 3).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._math.linear import einsum, inverse_positive_definite
from ..algorithms.common_frame import dof_columns
from ..algorithms.crba import crba
from ..algorithms.kinematics import Kinematics, forward_kinematics, root_centred
from ..configuration import neutral
from ..model import Model, arguments
from ..model.joint_space import independent_force, joint_rates, relative_velocities
from ..spatial import rotate
from ..tree import propagate
from .scene import InverseInertias, Scene, cross


def point_velocities(
    model: Model,
    kinematics: Kinematics,
    bodies: np.ndarray,
    arm: Float[Array, "n 3"],
    v: Float[Array, " nv"],
) -> Float[Array, "n 3"]:
    """The velocities (n, 3) of the points, in world axes."""
    V = propagate(model.topology, kinematics.X_PB, relative_velocities(model, kinematics.q, v))
    V = V[bodies]
    return rotate(kinematics.X_WB.R[bodies], V[:, :3] + cross(V[:, 3:], arm))


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
    X = root_centred(kinematics)
    positions = X.p[bodies] + rotate(X.R[bodies], arm)
    linear, angular = columns[:, None, :3], columns[:, None, 3:]
    linear, angular = jnp.broadcast_arrays(linear + cross(angular, positions), angular)
    moves = model.topology.supports[np.ix_(model.topology.dof_body, bodies)]
    by_dof = jnp.where(moves[..., None], jnp.concatenate([linear, angular], axis=-1), 0)
    return jnp.transpose(independent_force(model, kinematics.q, by_dof), (1, 2, 0))


@arguments.compiled
def inverse_inertias(model: Model, scene: Scene) -> InverseInertias:
    """The inverse inertia of a robot at each sphere and joint, in the neutral configuration.

    For a point of a body with the Jacobian J, the mean over all directions of the inverse inertia
    is a third of the trace of `J M^-1 J^T`. The value of a sphere is the mean over all points of
    the sphere. The value of a joint is a diagonal entry of M^-1.

    `contact_step` computes these values if `scene.inverse_inertia` is None. Many steps are faster
    with `dataclasses.replace(scene, inverse_inertia=inverse_inertias(model, scene))`. The values
    depend on the frames, offsets and radii of the scene and on the model. Raises ArgumentError for
    an unknown frame or a frame that is fixed to the world.
    """
    scene = scene.astype(model.dtype)
    kinematics = forward_kinematics(model, neutral(model))
    columns = dof_columns(model, root_centred(kinematics))
    J = point_jacobians(model, kinematics, columns, scene.bodies(model), scene.centres(model))
    inverse_M = inverse_positive_definite(crba(model, kinematics))
    inverse = jnp.sum(J * einsum("nij,jk->nik", J, inverse_M), axis=-1)
    linear, angular = jnp.sum(inverse[:, :3], axis=1), jnp.sum(inverse[:, 3:], axis=1)
    # The mean of `|w x r|^2` over all directions of r is `(2 / 3) |w|^2 |r|^2`.
    spheres = (linear + 2 / 3 * scene.radii**2 * angular) / 3
    by_joint = joint_rows(model, kinematics.q, inverse_M)
    return InverseInertias(spheres, jnp.diagonal(joint_rows(model, kinematics.q, by_joint)))


def joint_rows(
    model: Model, q: Float[Array, " nq"], A: Float[Array, "n nv"]
) -> Float[Array, "nv_joint n"]:
    """`J A^T`, where J is the Jacobian of the velocities of all joints."""
    if model.coupling is None:
        return A.T
    return jax.vmap(lambda v: joint_rates(model, q, v), out_axes=1)(A)
