"""The joint-space inertia matrix M, the product of M with a vector, and the inverse of M."""

from __future__ import annotations

from jax import Array
from jaxtyping import Float

from .._math.linear import inverse_positive_definite, matmul
from ..model import Model, arguments
from ..model.joint_space import (
    armature_force,
    armature_inertia,
    generalized_force,
    joint_rates,
    project,
    relative_velocities,
)
from ..spatial import apply_inertia
from ..tree import accumulate, map_rows, propagate, sum_to_root
from .common_frame import body_inertias, dof_columns, symmetric_product
from .kinematics import (
    Kinematics,
    configuration_of,
    forward_kinematics,
    poses_in_parents,
    root_centred,
)


@arguments.compiled(arrays=("q",))
def crba(model: Model, q: Array | Kinematics) -> Float[Array, "nv nv"]:
    """Joint-space inertia matrix M(q), symmetric, including the armature, (nv, nv).

    `q` (nq,) or its `Kinematics`. The entries are in kg, kg m or kg m^2. All composite inertias Ic
    and all columns of S are expressed in one frame with world axes. Then entries [k, j] and [j, k]
    are `S_k . (Ic_j S_j)` where dof k supports dof j, and zero between branches: one matrix product
    with a mask. Source: Featherstone, table 6.2.
    """
    kinematics = forward_kinematics.unchecked(model, q)
    X = root_centred(kinematics)
    composite = sum_to_root(model.topology, body_inertias(model, X))
    J = dof_columns(model, X)
    F = map_rows(apply_inertia, composite, J, indices=(model.topology.dof_body,))
    return mass_matrix(model, kinematics.q, J, F)


def mass_matrix(
    model: Model,
    q: Float[Array, " nq"],
    J: Float[Array, "nv_tree 6"],
    F: Float[Array, "nv_tree 6"],
) -> Float[Array, "nv nv"]:
    """M(q) from the dof columns J and their products F with the composite inertias of the dofs."""
    M = symmetric_product(model, J, F)
    return project(model, q, M) + armature_inertia(model, q)


@arguments.compiled(arrays=("q", "x"))
def mass_matrix_product(model: Model, q: Array | Kinematics, x: Array) -> Float[Array, " nv"]:
    """The product `M(q) x` (nv,) without forming M: `S^T accumulate(I propagate(S x))`.

    `q` (nq,) or its `Kinematics`, `x` (nv,). If x is an acceleration, the result is in N or N m.
    `propagate` is the forward pass and `accumulate` the backward pass of `tree/`.
    Source: Featherstone, section 6.1 (the differential inverse dynamics).
    """
    X = poses_in_parents(model, q)
    q = configuration_of(q)
    A = propagate(model.topology, X, relative_velocities(model, q, x))
    F = accumulate(model.topology, X, apply_inertia(model.inertia, A))
    return generalized_force(model, q, F) + armature_force(model, q, joint_rates(model, q, x))


@arguments.compiled(arrays=("q",))
def minverse(model: Model, q: Array | Kinematics) -> Float[Array, "nv nv"]:
    """Inverse of the joint-space inertia matrix M, symmetric, (nv, nv).

    `q` (nq,) or its `Kinematics`. Where M is singular, the result has no meaning: rounding
    errors decide whether it is finite. For a massless last link without armature it is not finite.
    """
    inverse = inverse_positive_definite(crba.unchecked(model, q))
    return (inverse + inverse.T) / 2


def inverse_form(M: Float[Array, "n n"], B: Float[Array, "n m"]) -> Float[Array, "m m"]:
    """`B^T M^-1 B` for a positive definite M, exactly symmetric; not finite for an indefinite M."""
    form = matmul(B.T, matmul(inverse_positive_definite(M), B))
    return (form + form.T) / 2
