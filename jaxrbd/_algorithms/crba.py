"""The joint-space inertia matrix: by composite bodies, as an operator, and inverted."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .. import arguments
from ..model import (
    Model,
    armature_force,
    independent_force,
    joint_force,
    joint_motion,
    joint_poses,
    motion_subspace,
)
from ..spatial import Pose, apply_inertia, transform_inertia, transform_motion
from ..tree import accumulate, propagate
from .kinematics import Kinematics, forward_kinematics


@jax.jit
def crba(model: Model, q: ArrayLike | Kinematics) -> Float[Array, "nv nv"]:
    """Joint-space inertia matrix M(q), symmetric, armature on its diagonal, (nv, nv).

    `q` (nq,) or its `Kinematics`. With all composite inertias and columns of S in world axes,
    `M = S^T (Ic S)` wherever one dof supports the other: a masked matrix product. Raises
    ArgumentError on a wrong shape or dtype. Source: Featherstone, table 6.2.
    """
    topology = model.topology
    X = _root_centred(model, forward_kinematics(model, q).X_WB)
    composite = jnp.matmul(
        jnp.asarray(topology.supports, model.dtype),
        transform_inertia(X, model.inertia),
        precision="highest",
    )
    dof_body = topology.dof_body
    S = transform_motion(Pose(X.R[dof_body], X.p[dof_body]), motion_subspace(model))
    F = apply_inertia(composite[dof_body], S)
    above = np.triu(topology.supports[np.ix_(dof_body, dof_body)])
    upper = jnp.where(above, jnp.matmul(S, F.T, precision="highest"), 0)
    M = upper + jnp.triu(upper, 1).T + jnp.diag(model.armature)
    return independent_force(model, independent_force(model, M).T)


@jax.jit
def mass_matrix_product(model: Model, q: ArrayLike, x: ArrayLike) -> Float[Array, " nv"]:
    """`M(q) x` without forming M: `S^T accumulate(I propagate(S x))`, in N or N m for x = a.

    `q` (nq,), `x` (nv,). Raises ArgumentError on a wrong shape or dtype.
    Source: Featherstone, section 6.1 (the differential inverse dynamics).
    """
    q, x = arguments.configuration(model, q), arguments.velocity(model, x, "x")
    X = joint_poses(model, q)
    A = propagate(model.topology, X, joint_motion(model, x))
    F = accumulate(model.topology, X, apply_inertia(model.inertia, A))
    return joint_force(model, F) + armature_force(model, x)


@jax.jit
def minverse(model: Model, q: ArrayLike | Kinematics) -> Float[Array, "nv nv"]:
    """Inverse of the joint-space inertia matrix, symmetric, (nv, nv).

    `q` (nq,) or its `Kinematics`. Where M is singular (a massless last link without armature) the
    result is not finite. Raises ArgumentError on a wrong shape or dtype.
    """
    L = jnp.linalg.cholesky(crba(model, q))
    half = jax.scipy.linalg.solve_triangular(L, jnp.eye(model.nv, dtype=model.dtype), lower=True)
    return jnp.matmul(half.T, half, precision="highest")


def _root_centred(model: Model, X_WB: Pose) -> Pose:
    """World poses with each tree's origin moved to its root body, so that no digits are lost."""
    return Pose(X_WB.R, X_WB.p - X_WB.p[model.topology.root])
