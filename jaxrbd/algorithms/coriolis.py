"""The Coriolis matrix."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from .._math.linear import matmul
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
    dof_strictly_supports,
    dof_supports,
    row_products,
    subtree_sums,
    symmetric_product,
    velocities,
)
from .kinematics import Kinematics, configuration_and_poses


@arguments.compiled(arrays=("q", "v"))
def coriolis_matrix(model: Model, q: Array | Kinematics, v: Array) -> Float[Array, "nv nv"]:
    """Coriolis matrix C(q, v), (nv, nv): `dM/dt - 2 C` is skew-symmetric.

    Without dissipation, `C v = bias_force - gravity_force`: C includes neither joint damping nor
    friction. `q` (nq,) or its `Kinematics`, `v` (nv,). An entry is a force (N or N m) per unit of
    velocity. If v is dq/dt for all joints, the entries are the Christoffel symbols of M contracted
    with v. The velocities of a spherical, planar or free-flyer joint are not dq/dt, so M has no
    Christoffel symbols for them. For these joints the formula of the source defines C.
    Source: Echeandia and Wensing (2021), algorithm 1.
    """
    q, X = configuration_and_poses(model, q)
    velocity = velocities(model, X, q, v)
    inertia = transform_inertia(X, model.inertia)
    inertia, moments = subtree_sums(model, inertia, velocity_moments(inertia, velocity.V))

    J, J_dot = velocity.J, velocity.J_dot
    force = apply_inertia(inertia, J_dot) + apply_velocity_moments(moments, J)
    momentum = apply_inertia(inertia, J)
    left = jnp.concatenate([momentum, apply_velocity_moments_transpose(moments, J)], axis=-1)
    right = jnp.concatenate([J_dot, J[:, 3:]], axis=-1)
    in_subtree = jnp.where(dof_strictly_supports(model).T, row_products(left, right), 0)
    C = jnp.where(dof_supports(model), row_products(J, force), in_subtree)
    if model.velocity_map_is_constant:
        return project(model, q, C)
    # For the independent velocities the matrix is G^T (C G + M dG/dt). The armature has the same
    # formula, with C = 0 and the map to the joint rates in place of G.
    M = symmetric_product(model, J, momentum)
    G_dot, joint_rates_dot = velocity_map_rate(model, q, v)
    C = project(model, q, C) + independent_force(model, q, matmul(M, G_dot))
    return C + independent_joint_force(model, q, model.armature[:, None] * joint_rates_dot)
