"""The Coriolis matrix."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from ..model import Model, arguments
from ..model.joint_space import (
    independent_force,
    independent_joint_force,
    project,
    velocity_map_rate,
)
from ..spatial import (
    apply_inertia,
    apply_velocity_moments,
    apply_velocity_moments_transpose,
    transform_inertia,
    velocity_moments,
)
from .common_frame import (
    at_or_above,
    row_products,
    strictly_above,
    subtree_sums,
    symmetric_product,
    velocities,
)
from .kinematics import forward_kinematics, root_centred


@arguments.compiled
def coriolis_matrix(model: Model, q: ArrayLike, v: ArrayLike) -> Float[Array, "nv nv"]:
    """Coriolis matrix C(q, v) with `C v = bias_force - gravity_force` and `dM/dt - 2 C` skew.

    `q` (nq,), `v` (nv,); the result (nv, nv) in N s or N m s. For joints of one dof its entries are
    the Christoffel symbols of M contracted with v; for wider joints, whose v are no coordinate
    rates, it is the matrix that the same body-level form gives. Joint damping is no part of it.
    Raises ArgumentError on a wrong shape or dtype.
    Source: Echeandia and Wensing (2021), algorithm 1.
    """
    q, v = arguments.configuration(model, q), arguments.velocity(model, v)
    X = root_centred(forward_kinematics(model, q))
    motion = velocities(model, X, q, v)
    inertia = transform_inertia(X, model.inertia)
    inertia, moments = subtree_sums(model, inertia, velocity_moments(inertia, motion.V))

    J, J_dot = motion.J, motion.J_dot
    own = apply_inertia(inertia, J_dot) + apply_velocity_moments(moments, J)
    momentum = apply_inertia(inertia, J)
    left = jnp.concatenate([momentum, apply_velocity_moments_transpose(moments, J)], axis=-1)
    right = jnp.concatenate([J_dot, J[:, 3:]], axis=-1)
    below = jnp.where(strictly_above(model).T, row_products(left, right), 0)
    C = jnp.where(at_or_above(model), row_products(J, own), below)
    if model.velocity_map_is_constant:
        return project(model, q, C)
    # C_G = G^T (C G + M dG/dt), and the armature's share of the same.
    M = symmetric_product(model, J, momentum)
    G_dot, joints_dot = velocity_map_rate(model, q, v)
    C = project(model, q, C) + independent_force(
        model, q, jnp.matmul(M, G_dot, precision="highest")
    )
    return C + independent_joint_force(model, q, model.armature[:, None] * joints_dot)
