"""The poses of the bodies relative to the roots of their trees, with analytic derivatives.

All positions are relative to the root body of the tree, in world axes. Let x be an axis of a body,
and p its position. Dof j moves the bodies of its subtree with the velocity [v_j; w_j] at the origin
of the root body, in world axes; v_j is zero for a dof of the root body, because positions are
relative to this body. So the first derivatives are

    dx / dq_j = w_j x x,    dp / dq_j = v_j + w_j x p.

A displacement of a dof i that supports dof j turns the subtree of j, and also these derivatives.
So the second derivatives are

    d^2 x / (dq_i dq_j) = w_i x (dx / dq_j),    d^2 p / (dq_i dq_j) = w_i x (dp / dq_j).

For two dofs of the same joint, the symmetric second derivative is the mean of [i, j] and [j, i].

Weights of the axes and the positions act as forces. The weighted first derivative j is
`v_j . F_j + w_j . m_j`, where F_j is the sum over the subtree of the weights of the positions, and
m_j the moment of all weights. The weighted second derivative [i, j] is

    w_i . (v_j x F_j + (M_j - trace(M_j) 1) w_j),

where M_j is the sum of the products `x weight^T` of the axes and positions of the subtree. The
moment m_j is the vector of the antisymmetric part of M_j.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .._math.linear import matmul
from ..model import Model
from ..model.joint_space import independent_force, joint_poses, project, tree_rates
from ..spatial import Pose
from ..topology import Topology
from ..tree import compose_poses, sum_dofs, sum_to_leaves, sum_to_root
from .analytic_rules import Parts, SecondOrder, with_analytic_derivatives
from .common_frame import at_dofs, dof_columns, row_products, symmetric_in_dofs


def body_poses(model: Model, q: Array, X_PB: Pose | None = None) -> Pose:
    """Poses of the bodies in world axes, with positions relative to the root body of their tree.

    `q` (nq,); `X_PB`: the poses of the bodies in their parents, if they are known. Returns R
    (nb, 3, 3), p (nb, 3) in m. First derivatives with respect to q are analytic; in forward over
    reverse mode, second derivatives are too, except for a model with a `Follow` or a
    `joints.Custom`. JAX differentiates the program with respect to the model. Derivatives with
    respect to both q and the model are right only for changes of the model that keep rotation
    matrices orthogonal, and `q_multiplier` equal to `v_multiplier` for each mimic joint. Source:
    the head of this module.
    """
    X_PB = joint_poses(model, q) if X_PB is None else X_PB
    poses = _poses if model.velocity_map_is_constant else _poses_first_order
    return poses((_geometry(model), lax.stop_gradient(X_PB)), q)


def compose_from_roots(topology: Topology, X_PB: Pose) -> Pose:
    """As `body_poses`, from the poses of the bodies in their parents.

    The positions of the root bodies are set to zero before the poses are composed. Subtracting them
    afterwards would lose digits far from the world's origin.
    """
    is_root = np.array(topology.parents)[:, None] < 0
    return compose_poses(topology, Pose(X_PB.R, jnp.where(is_root, 0, X_PB.p)))


def _geometry(model: Model) -> Model:
    """The model, where only the arrays that determine the poses have derivatives."""

    def moving(model):
        return [model.placement, model.joints, model.coupling]

    fixed = lax.stop_gradient(model)
    return eqx.tree_at(moving, fixed, moving(model), is_leaf=lambda x: x is None)


_Constants = tuple[Model, Pose]


def _value(constants: _Constants, q: Array) -> Pose:
    model, X_PB = constants
    return compose_from_roots(model.topology, X_PB)


def _program(constants: _Constants, q: Array) -> Pose:
    model, _ = constants
    return compose_from_roots(model.topology, joint_poses(model, q))


class _Motions(NamedTuple):
    """The poses, and the velocities v and w (nv_tree, 3) of the dofs."""

    value: Pose
    v: Array
    w: Array

    def product(self, point: tuple, parts: Parts, changes: Sequence[Array]) -> Pose:
        """The changes of the poses for a displacement (nv,)."""
        (model, _), q = point
        (displacement,) = changes
        rates = tree_rates(model, q, displacement)[:, None]
        motions = sum_dofs(model.topology, rates * jnp.concatenate([self.v, self.w], axis=1))
        v, w = jnp.split(sum_to_leaves(model.topology, motions), 2, axis=1)
        R, p = self.value
        return Pose(jnp.cross(w[:, :, None], R, axis=1), v + jnp.cross(w, p))

    def weighted(self, point: tuple, parts: Parts, weights: Pose) -> tuple[Array]:
        """The weighted first derivatives (nv,)."""
        (model, _), q = point
        M, F = _moments(model, self.value, weights)
        moment = jnp.stack([M[:, 5] - M[:, 7], M[:, 6] - M[:, 2], M[:, 1] - M[:, 3]], axis=1)
        slopes = jnp.sum(self.v * F + self.w * moment, axis=1)
        return (independent_force(model, q, slopes),)


def _moments(model: Model, X: Pose, weights: Pose) -> tuple[Array, Array]:
    """The sums M (nv_tree, 9) and F (nv_tree, 3) over the subtrees of the dofs."""
    M = matmul(X.R, jnp.swapaxes(weights.R, 1, 2)) + X.p[:, :, None] * weights.p[:, None]
    sums = sum_to_root(model.topology, jnp.concatenate([M.reshape(-1, 9), weights.p], axis=1))
    M, F = jnp.split(at_dofs(model, sums), [9], axis=1)
    return M, F


def _first_order(constants: _Constants, q: Array) -> _Motions:
    model, _ = constants
    X = body_poses(model, q)
    v, w = jnp.split(dof_columns(model, X), 2, axis=1)
    is_root_dof = np.array(model.topology.parents)[model.topology.dof_body] < 0
    return _Motions(X, jnp.where(is_root_dof[:, None], 0, v), w)


def _second_order(constants: _Constants, q: Array, first: _Motions, weights: Pose) -> SecondOrder:
    (model, _), (X, v, w) = constants, first
    M, F = _moments(model, X, weights)
    trace = (M[:, 0] + M[:, 4] + M[:, 8])[:, None]
    turned = jnp.sum(M.reshape(-1, 3, 3) * w[:, None], axis=2) - trace * w
    upper = row_products(w, jnp.cross(v, F) + turned)
    return ((project(model, q, symmetric_in_dofs(model, upper)),),)


_poses = with_analytic_derivatives(_value, _first_order, _second_order, _program)
_poses_first_order = with_analytic_derivatives(_value, _first_order, program=_program)
