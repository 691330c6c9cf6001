"""The tree in one frame: bodies and dof columns in world axes, about an origin of one's choice.

In one frame every sweep is a sum over the supporting or the supported bodies, and every matrix of
the dynamics is a masked product of dof columns. The origin is instantaneous: a point fixed in the
world that the poses are taken relative to. At a tree's root it costs no digits however far the
robot is from the world's origin.

Notation of Singh, Russell and Wensing (2022): J the dof columns, psi_dot and psi_ddot their rates
as if they were fixed in the *parent* body, J_dot their rate.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .._math.linear import matmul
from .._math.rows import take_rows
from ..model import Model
from ..model.joint_space import (
    displaced_coordinates,
    independent_force,
    motion_subspace,
    sum_dofs,
    tree_rate_derivatives,
    tree_rates,
)
from ..spatial import Pose, cross_motion
from ..tree import sum_to_leaves, sum_to_root


class Velocities(NamedTuple):
    """Velocities V of the bodies (nb, 6) and, a row a dof of the tree, J, J_dot and psi_dot.

    `rates` (nv_tree,) are those of the dofs: `V = sum of J * rates` over what supports a body.
    """

    rates: Array
    J: Array
    V: Array
    V_parent: Array
    J_dot: Array
    psi_dot: Array


def centred(X: Pose, origin: Array) -> Pose:
    """Poses in world axes relative to a point (3,), which is stated in the frame of X."""
    return Pose(X.R, X.p - origin)


def dof_columns(model: Model, X: Pose, bodies: np.ndarray | None = None) -> Array:
    """J: the rows of S in the one frame, (nv_tree, 6), for poses X of the bodies in it.

    `bodies`: those of some of them, in increasing order, whose poses the rows of X then are.
    """
    # Used many times: without the barrier XLA computes them anew for each.
    return lax.optimization_barrier(motion_subspace(model, X, bodies))


def velocities(model: Model, X: Pose, q: Array, v: Array) -> Velocities:
    """All that moves with velocity v, for poses X of the bodies in the one frame."""
    J = dof_columns(model, X)
    rates = tree_rates(model, q, v)
    vJ = sum_dofs(model.topology, rates[:, None] * J)
    V = sum_to_leaves(model.topology, vJ)
    V_parent = _at_dofs(model, V - vJ)
    J_dot = cross_motion(_at_dofs(model, V), J)
    return Velocities(rates, J, V, V_parent, J_dot, cross_motion(V_parent, J))


def accelerations(
    model: Model, q: Array, v: Array, a: Array, of: Velocities, world: Array | None = None
) -> tuple[Array, Array]:
    """Accelerations of the bodies (nb, 6) and psi_ddot; `world` is the world's own (6,)."""
    second = tree_rate_derivatives(model, q, v, a)
    aJ = sum_dofs(model.topology, second[:, None] * of.J + of.rates[:, None] * of.J_dot)
    A = sum_to_leaves(model.topology, aJ)
    A = A if world is None else A + world
    A_parent = _at_dofs(model, A - aJ)
    return A, cross_motion(A_parent, of.J) + cross_motion(of.V_parent, of.psi_dot)


def subtree_sums(model: Model, *of_bodies: Array) -> list[Array]:
    """For each dof, sums over its body's subtree of arrays (nb, n): rows (nv_tree, n)."""
    summed = sum_to_root(model.topology, jnp.concatenate(of_bodies, axis=-1))
    splits = np.cumsum([x.shape[-1] for x in of_bodies])[:-1]
    return jnp.split(_at_dofs(model, summed), splits, axis=-1)


def _at_dofs(model: Model, x: Array) -> Array:
    return take_rows(x, model.topology.dof_body)


# ------------------------------------------------------------------------------- masked products


def at_or_above(model: Model) -> np.ndarray:
    """`[k, j]`: whether the body of dof k supports that of dof j, (nv_tree, nv_tree)."""
    body = model.topology.dof_body
    return model.topology.supports[np.ix_(body, body)]


def strictly_above(model: Model) -> np.ndarray:
    """The same, but for dofs of one joint."""
    body = model.topology.dof_body
    return at_or_above(model) & (body[:, None] != body)


def row_products(a: Array, b: Array) -> Array:
    """`[k, j]` is the product of row k of `a` with row j of `b`."""
    return matmul(a, b.T)


def symmetric_product(model: Model, J: Array, F: Array) -> Array:
    """The symmetric matrix with `J_k . F_j` wherever dof k supports j, zero across branches."""
    above = at_or_above(model)
    product = lax.optimization_barrier(row_products(J, F))  # else computed once more, in columns
    lower = jnp.where(np.tril(above.T, -1), product.T, 0)
    return jnp.where(np.triu(above), product, lower)


# ------------------------------------------------------------------- the chain rule through v = G v


class VelocityMapDerivatives(NamedTuple):
    """Of the map from (q, v, a) to the tree's rates and accelerations, where G depends on q.

    Derivatives (nv_tree, nv) of the rates in q, and of the accelerations in q and in v.
    """

    rates_q: Array
    accelerations_q: Array
    accelerations_v: Array


def velocity_map_derivatives(
    model: Model, q: Array, v: Array, a: Array
) -> VelocityMapDerivatives | None:
    """None where G does not depend on q, and so has no derivatives."""
    if model.velocity_map_is_constant:
        return None

    def mapped(dq, dv):
        q_moved, v_moved = displaced_coordinates(model, q, dq), v + dv
        rates = tree_rates(model, q_moved, v_moved)
        return rates, tree_rate_derivatives(model, q_moved, v_moved, a)

    zero = jnp.zeros_like(v)
    (rates_q, _), (seconds_q, seconds_v) = jax.jacfwd(mapped, argnums=(0, 1))(zero, zero)
    return VelocityMapDerivatives(rates_q, seconds_q, seconds_v)


def apply_chain_rule(
    model: Model, q: Array, of: VelocityMapDerivatives | None, D_q: Array, D_v: Array, D_a: Array
) -> tuple[Array, Array, Array]:
    """Derivatives in q, v and a from those in the tree's (q, rates, accelerations), row by row.

    With `rates = G v` and `accelerations = G a + dG/dt v`; the identity where the model is a tree.
    """
    if model.velocity_map_is_identity:
        return D_q, D_v, D_a

    def times_G(D):
        return independent_force(model, q, D.T).T

    in_q, in_v, in_a = times_G(D_q), times_G(D_v), times_G(D_a)
    if of is not None:
        in_q = in_q + matmul(D_v, of.rates_q) + matmul(D_a, of.accelerations_q)
        in_v = in_v + matmul(D_a, of.accelerations_v)
    return in_q, in_v, in_a
