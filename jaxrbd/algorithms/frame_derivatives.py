"""Time derivatives of frame Jacobians; derivatives of frame motions with respect to q, v and a; the
Jacobian of a point."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.linear import matmul
from ..model import Model, arguments
from ..model.joint_space import independent_force, velocity_map_rate
from ..spatial import Pose, cross_motion, from_linear, transform_motion, transform_point
from .common_frame import (
    Velocities,
    accelerations,
    apply_chain_rule,
    centred,
    dof_columns,
    velocities,
    velocity_map_derivatives,
)
from .kinematics import (
    Kinematics,
    RootedPose,
    find_frame,
    forward_kinematics,
    root_centred,
    rotate_to_axes,
)


class FrameVelocityDerivatives(NamedTuple):
    """Derivatives of a frame's velocity with respect to q and to v (the Jacobian J), (6, nv)."""

    dV_dq: Array
    J: Array


class FrameAccelerationDerivatives(NamedTuple):
    """Derivatives of a frame's velocity and acceleration with respect to q, v, a, each (6, nv).

    The derivative with respect to a is the frame's Jacobian J.
    """

    dV_dq: Array
    dA_dq: Array
    dA_dv: Array
    J: Array


class _Frame(NamedTuple):
    """A frame on a moving body, with all velocities in world axes about the frame's origin."""

    body: int
    X: RootedPose
    velocity: Velocities
    moves: Array  # (nv_tree, 1): whether the dof moves the frame


@arguments.compiled(arrays=("q", "v"), static_argnames=("frame", "reference"))
def frame_jacobian_dot(
    model: Model,
    q: Array | Kinematics,
    v: Array,
    frame: str | int,
    reference: str = "local_world_aligned",
) -> Float[Array, "6 nv"]:
    """Time derivative of `frame_jacobian` at velocity v, (6, nv).

    `frame_acceleration` is `J a + dJ/dt v`. Arguments as for `frame_velocity`. Raises ArgumentError
    for an unknown frame or reference. Before G is applied, each column of J is the motion vector of
    one dof, which is fixed in the body of this dof. Source: Featherstone (2.45), the rate of such a
    vector in a moving frame.
    """
    arguments.reference_frame(reference)
    kinematics = forward_kinematics.unchecked(model, q)
    placed = _place(model, kinematics, v, frame)
    if placed is None:
        return jnp.zeros((6, model.nv), model.dtype)
    J, V = placed.velocity.J, placed.velocity.V[placed.body]
    J_dot = placed.velocity.J_dot - cross_motion(_reference_velocity(V, reference), J)
    rows = jnp.where(placed.moves, _express(placed, reference, J_dot), 0)
    columns = independent_force(model, kinematics.q, rows)
    if not model.velocity_map_is_constant:
        G_dot, _ = velocity_map_rate(model, kinematics.q, v)
        J = jnp.where(placed.moves, _express(placed, reference, J), 0)
        columns = columns + matmul(G_dot.T, J)
    return columns.T


@arguments.compiled(arrays=("q", "v"), static_argnames=("frame", "reference"))
def frame_velocity_derivatives(
    model: Model,
    q: Array | Kinematics,
    v: Array,
    frame: str | int,
    reference: str = "local_world_aligned",
) -> FrameVelocityDerivatives:
    """Derivatives of `frame_velocity` with respect to q (in the tangent space) and v.

    Arguments as for `frame_velocity`. Returns `(dV_dq, J)`, each (6, nv). The derivative in v is
    the Jacobian J. J is also the derivative in q of the placement X of the frame: with "local",
    column j of J is the motion vector of `X^-1 dX/dq_j`. Raises ArgumentError for an unknown frame
    or reference. Source: Carpentier and Mansard (2018), section III.
    """
    zero = jnp.zeros_like(v)
    derivatives = frame_acceleration_derivatives.unchecked(model, q, v, zero, frame, reference)
    return FrameVelocityDerivatives(derivatives.dV_dq, derivatives.J)


@arguments.compiled(arrays=("q", "v", "a"), static_argnames=("frame", "reference"))
def frame_acceleration_derivatives(
    model: Model,
    q: Array | Kinematics,
    v: Array,
    a: Array,
    frame: str | int,
    reference: str = "local_world_aligned",
) -> FrameAccelerationDerivatives:
    """Derivatives of `frame_velocity` and `frame_acceleration` with respect to q, v and a.

    Arguments as for `frame_acceleration`. The acceleration is spatial with "local" and "world"
    and classical with "local_world_aligned". Returns `(dV_dq, dA_dq, dA_dv, J)`, each (6, nv).
    Derivatives in q are in the tangent space. Raises ArgumentError for an unknown frame or
    reference. Source: Carpentier and Mansard (2018), section III.
    """
    arguments.reference_frame(reference)
    kinematics = forward_kinematics.unchecked(model, q)
    placed = _place(model, kinematics, v, frame)
    if placed is None:
        zero = jnp.zeros((6, model.nv), model.dtype)
        return FrameAccelerationDerivatives(zero, zero, zero, zero)
    velocity = placed.velocity
    # For J_dot, psi_dot and psi_ddot see the head of common_frame.py.
    A_bodies, psi_ddot = accelerations(model, kinematics.q, v, a, velocity)
    J, V, A = velocity.J, velocity.V[placed.body], A_bodies[placed.body]

    # A displacement of dof j moves the frame by column j of J. It also moves the reference frame,
    # unless this is the world frame.
    relative = J - _reference_velocity(J, reference)
    dV_dq = cross_motion(relative, V) + velocity.psi_dot
    dA_dq = cross_motion(relative, A) + cross_motion(velocity.psi_dot, V) + psi_ddot
    dA_dv = velocity.J_dot + velocity.psi_dot + cross_motion(J, V)
    if reference == "local_world_aligned":
        dA_dq = dA_dq + _centripetal(V, dV_dq)
        dA_dv = dA_dv + _centripetal(V, J)

    rows = (dV_dq, dA_dq, dA_dv, J)
    dV_dq, dA_dq, dA_dv, J = (
        jnp.where(placed.moves, _express(placed, reference, x), 0).T for x in rows
    )
    map_derivatives = velocity_map_derivatives(model, kinematics.q, v, a)
    dV_dq, _, _ = apply_chain_rule(
        model, kinematics.q, map_derivatives, dV_dq, J, jnp.zeros_like(J)
    )
    return FrameAccelerationDerivatives(
        dV_dq, *apply_chain_rule(model, kinematics.q, map_derivatives, dA_dq, dA_dv, J)
    )


@arguments.compiled(arrays=("q",), static_argnames="frame")
def point_jacobian(
    model: Model, q: Array | Kinematics, frame: str | int, point: ArrayLike
) -> Float[Array, "3 nv"]:
    """Jacobian of a point fixed in a frame, (3, nv): the velocity of the point is `J v`.

    `q` (nq,) or its `Kinematics`; `frame`: as in `Model.frame_index`; `point` (3,) in m,
    in the frame. The velocity is in world axes, in m/s. Raises ArgumentError for an unknown frame.
    Source: Featherstone (2.7).
    """
    point = arguments.array(model, point, "point", (3,), "3")
    kinematics = forward_kinematics.unchecked(model, q)
    body, _, X = find_frame(model, kinematics, frame)
    if body < 0:
        return jnp.zeros((3, model.nv), model.dtype)
    X_RB = root_centred(kinematics)
    J = dof_columns(model, centred(X_RB, transform_point(X.X_RF, point)))
    moves = model.topology.supports[model.topology.dof_body, body]
    columns = jnp.where(moves[:, None], J[:, :3], 0)
    return independent_force(model, kinematics.q, columns).T


def _place(model: Model, kinematics: Kinematics, v: Array, frame: str | int) -> _Frame | None:
    """The `_Frame` of a frame; None for a frame that is fixed to the world."""
    body, _, X = find_frame(model, kinematics, frame)
    if body < 0:
        return None
    # The poses of the bodies in world axes, relative to the origin of the frame.
    poses = centred(root_centred(kinematics), X.X_RF.p)
    velocity = velocities(model, poses, kinematics.q, v)
    moves = model.topology.supports[model.topology.dof_body, body][:, None]
    return _Frame(body, X, velocity, moves)


def _reference_velocity(V: Array, reference: str) -> Array:
    """Velocity of the reference frame, for the velocity V (..., 6) of the frame.

    Both are in world axes about the origin of the frame.
    """
    if reference == "local":
        return V
    if reference == "world":
        return jnp.zeros_like(V)
    return V.at[..., 3:].set(0)


def _express(placed: _Frame, reference: str, rows: Array) -> Array:
    """Motions in world axes about the frame's origin, expressed in the reference frame."""
    if reference == "local":
        return rotate_to_axes(placed.X.X_RF.R, rows)
    if reference == "world":
        return transform_motion(Pose(jnp.eye(3, dtype=rows.dtype), placed.X.X_WF.p), rows)
    return rows


def _centripetal(V: Array, dV: Array) -> Array:
    """Derivatives of `[w x v; 0]` as rows (n, 6), for V = [v; w] and its derivatives dV (n, 6).

    `w x v` is the classical acceleration minus the spatial acceleration.
    """
    v, w = V[:3], V[3:]
    linear = jnp.cross(dV[:, 3:], v) + jnp.cross(w, dV[:, :3])
    return from_linear(linear)
