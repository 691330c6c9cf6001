"""The pose of a frame in the world, with analytic first and second derivatives.

Let x_k be the three axes of the frame and its position p. A displacement of dof j moves the frame
with the linear velocity v_j and the angular velocity w_j of its dof column, at the frame's origin:

    dx_k / dq_j = w_j x x_k for an axis,   dp / dq_j = v_j.

A displacement of a dof i that supports dof j turns the rest of the tree, and these derivatives with
it:

    d^2 x_k / (dq_i dq_j) = w_i x (dx_k / dq_j).

For two dofs of the same joint, the symmetric second derivative is the mean of [i, j] and [j, i].
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from ..model import Model, arguments
from ..model.joint_space import independent_force, motion_subspace, project
from ..spatial import Pose
from .analytic_rules import FirstOrder, SecondOrder, with_analytic_derivatives
from .common_frame import centred, row_products, symmetric_in_dofs
from .kinematics import Kinematics, find_frame, forward_kinematics, root_centred


@arguments.compiled(arrays=("q",), static_argnames="frame")
def frame_placement(model: Model, q: Array | Kinematics, frame: str | int) -> Pose:
    """Pose of a frame in the world: R (3, 3), p (3,) in m.

    `q` (nq,) or its `Kinematics`; `frame`: as in `Model.frame_index`. First and second derivatives
    with respect to q (nq,) are analytic; JAX differentiates the program for a `Kinematics`, and
    with respect to the model. Raises ArgumentError for an unknown frame. Source: the head of this
    module; Featherstone (2.5) for the velocities of a frame.
    """
    index = arguments.frame_index(model, frame)
    if isinstance(q, Kinematics) or model.frame_bodies[index] < 0:
        return find_frame(model, q, index)[2].X_WF
    placement = _placement if model.velocity_map_is_constant else _placement_first_order
    return _pose(placement((model, _Frame(index)), q))


class _Frame(eqx.Module):
    """A frame by its index, as a constant of a rule."""

    index: int = eqx.field(static=True)


_Constants = tuple[Model, _Frame]


def _vectors(X: Pose) -> Array:
    """The axes and the position of a frame in one row (12,)."""
    return jnp.concatenate([X.R.T, X.p[None]]).ravel()


def _pose(vectors: Array) -> Pose:
    axes, p = jnp.split(vectors.reshape(4, 3), [3])
    return Pose(axes.T, p[0])


def _value(constants: _Constants, q: Array) -> Array:
    model, frame = constants
    return _vectors(find_frame(model, q, frame.index)[2].X_WF)


def _motion(constants: _Constants, q: Array) -> tuple[Pose, Array, Array]:
    """The pose; of each dof of the tree, the angular velocity w (nv_tree, 3) and the changes of the
    axes and of the position (nv_tree, 4, 3)."""
    model, frame = constants
    kinematics = forward_kinematics.unchecked(model, q)
    body, _, X = find_frame(model, kinematics, frame.index)
    moves = model.topology.supports[model.topology.dof_body, body]
    J = motion_subspace(model, centred(root_centred(kinematics), X.X_RF.p))
    v, w = jnp.split(jnp.where(moves[:, None], J, 0), 2, axis=-1)
    of_axes = jnp.cross(w[:, None], X.X_RF.R.T)
    return X.X_WF, w, jnp.concatenate([of_axes, v[:, None]], axis=1)


def _first_order(constants: _Constants, q: Array) -> FirstOrder:
    X, _, changes = _motion(constants, q)
    columns = independent_force(constants[0], q, changes.reshape(-1, 12)).T
    return FirstOrder(_vectors(X), (columns,))


def _second_order(constants: _Constants, q: Array, _: FirstOrder, weights: Array) -> SecondOrder:
    model, (w, changes) = constants[0], _motion(constants, q)[1:]
    # weights . (w x change) = (weights x w) . change
    turned = jnp.cross(weights.reshape(4, 3), w[:, None])
    upper = row_products(turned.reshape(-1, 12), changes.reshape(-1, 12))
    return ((project(model, q, symmetric_in_dofs(model, upper)),),)


_placement = with_analytic_derivatives(_value, _first_order, _second_order)
_placement_first_order = with_analytic_derivatives(_value, _first_order)
