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
from jax import Array

from ..joint_space import (
    along,
    independent_force,
    motion_subspace,
    sum_dofs,
    tree_accelerations,
    tree_rates,
)
from ..model import Model, take_rows
from ..spatial import Pose, cross_motion, transform_motion
from ..tree import sum_to_leaves


class Velocities(NamedTuple):
    """Velocities V of the bodies (nb, 6) and, a row a dof of the tree, J, J_dot and psi_dot."""

    J: Array
    V: Array
    V_parent: Array
    J_dot: Array
    psi_dot: Array


def root_centred(model: Model, X_WB: Pose) -> Pose:
    """World poses with each tree's origin moved to its root body, so that no digits are lost."""
    return Pose(X_WB.R, X_WB.p - X_WB.p[model.topology.root])


def centred(X_WB: Pose, origin: Array) -> Pose:
    """World poses relative to a point (3,)."""
    return Pose(X_WB.R, X_WB.p - origin)


def dof_columns(model: Model, X: Pose) -> Array:
    """J: the rows of S in the one frame, (nv_tree, 6), for poses X of the bodies in it."""
    at_dofs = jax.tree.map(lambda x: take_rows(x, model.topology.dof_body), X)
    return transform_motion(at_dofs, motion_subspace(model))


def velocities(model: Model, X: Pose, q: Array, v: Array) -> Velocities:
    """All that moves with velocity v, for poses X of the bodies in the one frame."""
    J = dof_columns(model, X)
    vJ = sum_dofs(model.topology, tree_rates(model, q, v)[:, None] * J)
    V = sum_to_leaves(model.topology, vJ)
    V_parent = _at_dofs(model, V - vJ)
    J_dot = cross_motion(_at_dofs(model, V), J)
    return Velocities(J, V, V_parent, J_dot, cross_motion(V_parent, J))


def accelerations(
    model: Model, q: Array, v: Array, a: Array, of: Velocities, world: Array | None = None
) -> tuple[Array, Array]:
    """Accelerations of the bodies (nb, 6) and psi_ddot; `world` is the world's own (6,)."""
    rates, second = tree_rates(model, q, v), tree_accelerations(model, q, v, a)
    aJ = sum_dofs(model.topology, second[:, None] * of.J + rates[:, None] * of.J_dot)
    A = sum_to_leaves(model.topology, aJ)
    A = A if world is None else A + world
    A_parent = _at_dofs(model, A - aJ)
    return A, cross_motion(A_parent, of.J) + cross_motion(of.V_parent, of.psi_dot)


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


def pairings(a: Array, b: Array) -> Array:
    """`[k, j]` is the product of row k of `a` with row j of `b`."""
    return jnp.matmul(a, b.T, precision="highest")


def symmetric_product(model: Model, J: Array, F: Array) -> Array:
    """The symmetric matrix with `J_k . F_j` wherever dof k supports j, zero across branches."""
    upper = jnp.where(np.triu(at_or_above(model)), pairings(J, F), 0)
    return upper + jnp.triu(upper, 1).T


# ------------------------------------------------------------------- the chain rule through v = G v


def chain(
    model: Model, q: Array, v: Array, a: Array, D_q: Array, D_v: Array, D_a: Array
) -> tuple[Array, Array, Array]:
    """Derivatives in q, v and a from those in the tree's (q, rates, accelerations), row by row.

    With `rates = G v` and `accelerations = G a + dG/dt v`; the identity where the model is a tree.
    """
    if model.is_tree:
        return D_q, D_v, D_a

    def times_G(D):
        return independent_force(model, q, D.T).T

    in_q, in_v, in_a = times_G(D_q), times_G(D_v), times_G(D_a)
    if model.varies:
        rates_q, seconds_q, seconds_v = _edge_derivatives(model, q, v, a)
        in_q = in_q + _dot(D_v, rates_q) + _dot(D_a, seconds_q)
        in_v = in_v + _dot(D_a, seconds_v)
    return in_q, in_v, in_a


def _edge_derivatives(model: Model, q: Array, v: Array, a: Array):
    """Of the tree's rates and accelerations at fixed a: d rates/dq, d acc/dq; and d(dG/dt v)/dv."""
    zero = jnp.zeros(model.nv, model.dtype)

    def rates(dq, dv):
        return tree_rates(model, along(model, q, dq), v + dv)

    def seconds(dq, dv):
        return tree_accelerations(model, along(model, q, dq), v + dv, a)

    return jax.jacfwd(rates)(zero, zero), *jax.jacfwd(seconds, argnums=(0, 1))(zero, zero)


def _dot(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision="highest")
