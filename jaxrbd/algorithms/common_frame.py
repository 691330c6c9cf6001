"""Quantities of all bodies in one common frame: velocities, sums over subtrees, masked products.

The common frame has world axes. Its origin is a point fixed in the world, usually the present
position of the root body of the tree. With this origin, results lose no digits far from the world's
origin. In the common frame a forward pass is a sum over the supporting bodies, and a backward pass
is a sum over the subtree.

The dof column of a dof is its motion vector, a column of S, in the common frame. Dof k supports dof
j if the body of dof k is the body of dof j or one of its ancestors. Each matrix of the dynamics is
a masked product: a product of dof columns with other columns, set to zero where neither dof
supports the other.

Notation of Singh, Russell and Wensing (2022): J are the dof columns. J_dot are the time derivatives
of the dof columns; each column is fixed in its body. psi_dot and psi_ddot are the first and second
time derivatives that the columns would have if they were fixed in the *parent* body.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .._math.linear import matmul
from .._math.ranks import minus
from .._math.rows import take_rows
from ..model import Model
from ..model.joint_space import (
    displaced_coordinates,
    independent_force,
    motion_subspace,
    tree_rate_derivatives,
    tree_rates,
)
from ..spatial import (
    Pose,
    cross_motion,
    inertial_force,
    transform_inertia,
    velocity_moments,
)
from ..tree import map_rows, sum_over_dofs, sum_to_leaves, sum_to_root


class Velocities(NamedTuple):
    """Spatial velocities of the bodies, and the dof columns with their time derivatives.

    - `rates` (nv_tree,): the tree rates `G v`, which are the velocities of the tree's dofs;
    - `J`, `J_dot`, `psi_dot` (nv_tree, 6): the dof columns and their derivatives, one row per dof;
    - `vJ` (nb, 6): for each body, the sum of `J * rates` over the dofs of the body;
    - `V` (nb, 6): for each body, the sum of `J * rates` over the dofs that support the body;
    - `V_parent` (nv_tree, 6): for each dof, the velocity of the parent of the dof's body.
    """

    rates: Array
    J: Array
    vJ: Array
    V: Array
    V_parent: Array
    J_dot: Array
    psi_dot: Array


def centred(X: Pose, origin: Array) -> Pose:
    """The poses X in a frame with the same axes and another origin (3,), given in the old frame."""
    return Pose(X.R, minus(X.p, origin))


def dof_columns(model: Model, X: Pose, bodies: np.ndarray | None = None) -> Array:
    """The dof columns J as rows (nv_tree, 6), for poses X of the bodies in the common frame.

    `bodies`: indices of bodies in increasing order (default all bodies). X then has one row per
    listed body, and J has only the rows of the dofs of these bodies.
    """
    # Without the barrier XLA computes J again for each of its many uses.
    return lax.optimization_barrier(motion_subspace(model, X, bodies))


def body_inertias(model: Model, X: Pose) -> Array:
    """The inertias of the bodies (nb, 10) in the common frame, for poses X of the bodies in it."""
    return map_rows(transform_inertia, X, model.inertia)


def body_quantities(
    inertia: Array, V: Array, A: Array, f_common: Array | None, moments: bool = True
) -> Array:
    """Inertia (10), velocity moments (12) and force (6) of each body in one row, (nb, 28).

    The force is the inertial force minus the external force.

    `inertia` (nb, 10), `V`, `A` (nb, 6), and the external forces `f_common` (nb, 6) or None, in one
    frame. Without `moments`, a row has only the inertia and the force, (nb, 16).
    """

    def body_row(inertia, V, A, *f_common):
        force = inertial_force(inertia, V, A)
        force = force - f_common[0] if f_common else force
        velocity_row = [velocity_moments(inertia, V)] if moments else []
        return jnp.concatenate([inertia, *velocity_row, force], axis=-1)

    return map_rows(body_row, inertia, V, A, *([] if f_common is None else [f_common]))


def velocities(model: Model, X: Pose, q: Array, v: Array, few_kernels: bool = False) -> Velocities:
    """The `Velocities` at the velocity v (nv,), for poses X of the bodies in the common frame.

    `few_kernels`: as in `sum_to_leaves`.
    """
    J = dof_columns(model, X)
    rates = tree_rates(model, q, v)
    vJ = sum_over_dofs(model.topology, jnp.multiply, rates[:, None], J)
    V = sum_to_leaves(model.topology, vJ, few_kernels=few_kernels)

    def dof_motions(V, vJ, J):
        V_parent = V - vJ
        return V_parent, cross_motion(V, J), cross_motion(V_parent, J)

    body = model.topology.dof_body
    V_parent, J_dot, psi_dot = map_rows(dof_motions, V, vJ, J, indices=(body, body))
    return Velocities(rates, J, vJ, V, V_parent, J_dot, psi_dot)


def body_accelerations(
    model: Model,
    q: Array,
    v: Array,
    a: Array,
    velocity: Velocities,
    world: Array | None = None,
    few_kernels: bool = False,
) -> tuple[Array, Array]:
    """Accelerations of the bodies, and accelerations relative to their parents, (nb, 6) each.

    `world` (6,): the acceleration of the world, which is added to the first result (default 0; the
    acceleration -g has the same effect as gravity); `few_kernels`: as in `sum_to_leaves`.
    """
    rates, rates_dot = velocity.rates, tree_rate_derivatives(model, q, v, a)

    def acceleration_of_dof(rate, rate_dot, J, V):
        return rate_dot * J + rate * cross_motion(V, J)

    operands = rates[:, None], rates_dot[:, None], velocity.J, velocity.V
    indices = (None, None, None, model.topology.dof_body)
    aJ = sum_over_dofs(model.topology, acceleration_of_dof, *operands, indices=indices)
    return sum_to_leaves(model.topology, aJ, world, few_kernels), aJ


def accelerations(
    model: Model, q: Array, v: Array, a: Array, velocity: Velocities, world: Array | None = None
) -> tuple[Array, Array]:
    """Accelerations of the bodies (nb, 6) and psi_ddot (nv_tree, 6).

    `world` (6,): as in `body_accelerations`.
    """
    A, aJ = body_accelerations(model, q, v, a, velocity, world)
    body = model.topology.dof_body
    operands = A, aJ, velocity.J, velocity.V_parent, velocity.psi_dot

    def psi_ddot(A, aJ, J, V_parent, psi_dot):
        return cross_motion(A - aJ, J) + cross_motion(V_parent, psi_dot)

    return A, map_rows(psi_ddot, *operands, indices=(body, body))


def column_derivatives(
    J: Array, V: Array, V_parent: Array, A_parent: Array
) -> tuple[Array, Array, Array]:
    """J_dot, psi_dot and psi_ddot (nv_tree, 6).

    `V`, `V_parent`, `A_parent` (nv_tree, 6): for each dof, the velocity of its body, and the
    velocity and acceleration of the parent of its body.
    """
    psi_dot = cross_motion(V_parent, J)
    psi_ddot = cross_motion(A_parent, J) + cross_motion(V_parent, psi_dot)
    return cross_motion(V, J), psi_dot, psi_ddot


def subtree_sums(model: Model, *quantities: Array) -> list[Array]:
    """The sums of the quantities (nb, n) over the subtree of each dof, (nv_tree, n) each."""
    summed = sum_to_root(model.topology, jnp.concatenate(quantities, axis=-1))
    splits = np.cumsum([x.shape[-1] for x in quantities])[:-1]
    return jnp.split(at_dofs(model, summed), splits, axis=-1)


def at_dofs(model: Model, x: Array) -> Array:
    """The rows of x (nb, ...) at the bodies of the dofs, (nv_tree, ...)."""
    return take_rows(x, model.topology.dof_body)


# ------------------------------------------------------------------------------- masked products


def dof_supports(model: Model) -> np.ndarray:
    """`[k, j]`: whether the body of dof k supports the body of dof j, (nv_tree, nv_tree)."""
    body = model.topology.dof_body
    return model.topology.supports[np.ix_(body, body)]


def dof_strictly_supports(model: Model) -> np.ndarray:
    """As `dof_supports`, but False where both dofs move the same body."""
    body = model.topology.dof_body
    return dof_supports(model) & (body[:, None] != body)


def row_products(a: Array, b: Array) -> Array:
    """`[k, j]` is the scalar product of row k of `a` with row j of `b`."""
    return matmul(a, b.T)


def symmetric_product(model: Model, J: Array, F: Array) -> Array:
    """The symmetric matrix with [k, j] = [j, k] = `J_k . F_j` where dof k supports dof j.

    All entries between branches are zero.
    """
    supports = dof_supports(model)
    # Without the barrier XLA computes the product once more, transposed.
    product = lax.optimization_barrier(row_products(J, F))
    transposed = jnp.where(np.tril(supports.T, -1), product.T, 0)
    return jnp.where(np.triu(supports), product, transposed)


def symmetric_in_dofs(model: Model, upper: Array) -> Array:
    """The symmetric matrix (nv_tree, nv_tree) from the upper entries of a matrix `upper`.

    The entries [l, j] and [j, l] are `upper[l, j]` where dof l strictly supports dof j. For two
    dofs of the same joint, they are the mean of `upper[l, j]` and `upper[j, l]`.
    """
    strict = dof_strictly_supports(model)
    block = dof_supports(model) & ~strict
    one_side = jnp.where(strict, upper, 0) + jnp.where(block, upper / 2, 0)
    return one_side + one_side.T


# -------------------------------------------------------- the chain rule through the velocity map G


class VelocityMapDerivatives(NamedTuple):
    """Derivatives (nv_tree, nv) of the tree rates r and of `r_dot = dr/dt`, by q and v."""

    dr_dq: Array
    dr_dot_dq: Array
    dr_dot_dv: Array


def velocity_map_derivatives(
    model: Model, q: Array, v: Array, a: Array
) -> VelocityMapDerivatives | None:
    """Derivatives of the tree rates `r = G v` and of r_dot; None if G does not depend on q."""
    if model.velocity_map_is_constant:
        return None

    def mapped(dq, dv):
        q_moved, v_moved = displaced_coordinates(model, q, dq), v + dv
        rates = tree_rates(model, q_moved, v_moved)
        return rates, tree_rate_derivatives(model, q_moved, v_moved, a)

    zero = jnp.zeros_like(v)
    (dr_dq, _), (dr_dot_dq, dr_dot_dv) = jax.jacfwd(mapped, argnums=(0, 1))(zero, zero)
    return VelocityMapDerivatives(dr_dq, dr_dot_dq, dr_dot_dv)


def apply_chain_rule(
    model: Model,
    q: Array,
    map_derivatives: VelocityMapDerivatives | None,
    D_q: Array,
    D_v: Array,
    D_a: Array,
) -> tuple[Array, Array, Array]:
    """Derivatives (n, nv) of n quantities with respect to q, v and a.

    `D_q`, `D_v`, `D_a` (n, nv_tree): the derivatives with respect to the displacements of the dofs
    of the tree, the tree rates `r = G v`, and `r_dot = G a + dG/dt v`; `map_derivatives`: from
    `velocity_map_derivatives`.
    """
    if model.velocity_map_is_identity:
        return D_q, D_v, D_a

    def times_G(D):
        return independent_force(model, q, D.T).T

    in_q, in_v, in_a = times_G(D_q), times_G(D_v), times_G(D_a)
    if map_derivatives is not None:
        in_q = in_q + matmul(D_v, map_derivatives.dr_dq) + matmul(D_a, map_derivatives.dr_dot_dq)
        in_v = in_v + matmul(D_a, map_derivatives.dr_dot_dv)
    return in_q, in_v, in_a
