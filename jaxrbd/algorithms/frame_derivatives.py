"""Rates and derivatives of frames: of their Jacobians, velocities and accelerations."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from ..model import Model, arguments
from ..model.joint_space import independent_force, velocity_map_rate
from ..spatial import Pose, cross_motion, inverse_rotate, transform_motion, transform_point
from .common_frame import (
    Velocities,
    accelerations,
    apply_chain_rule,
    centred,
    dof_columns,
    velocities,
    velocity_map_derivatives,
)
from .kinematics import Kinematics, RootedPose, find_frame, forward_kinematics, root_centred


class FrameVelocityDerivatives(NamedTuple):
    """Derivatives of a frame's velocity, each (6, nv); in v it is the frame's Jacobian."""

    dV_dq: Array
    J: Array


class FrameAccelerationDerivatives(NamedTuple):
    """Derivatives of a frame's velocity in q and of its acceleration in q, v, a, each (6, nv)."""

    dV_dq: Array
    dA_dq: Array
    dA_dv: Array
    J: Array


class _Frame(NamedTuple):
    """A frame on a moving body, and what moves it, in world axes about the frame's origin."""

    body: int
    X: RootedPose
    motion: Velocities
    moves: Array  # (nv_tree, 1): whether a dof moves it


@arguments.compiled(static_argnames=("frame", "reference"))
def frame_jacobian_dot(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    frame: str | int,
    reference: str = "local_world_aligned",
) -> Float[Array, "6 nv"]:
    """Time derivative of `frame_jacobian` along v, (6, nv): `frame_acceleration = J a + dJ/dt v`.

    Arguments as for `frame_velocity`. Raises ArgumentError on a wrong shape or dtype, an unknown
    frame or reference. Source: Featherstone (2.45): a column moves with its body, and is seen from
    a reference that moves.
    """
    q, v = arguments.configuration(model, q), arguments.velocity(model, v)
    at = _attach(model, q, v, frame)
    if at is None:
        return jnp.zeros((6, model.nv), model.dtype)
    J, V = at.motion.J, at.motion.V[at.body]
    J_dot = at.motion.J_dot - cross_motion(_of_reference(V, reference), J)
    D = jnp.where(at.moves, _express(at, reference, J_dot), 0)
    columns = independent_force(model, q, D)
    if not model.velocity_map_is_constant:
        G_dot, _ = velocity_map_rate(model, q, v)
        seen = jnp.where(at.moves, _express(at, reference, J), 0)
        columns = columns + jnp.matmul(G_dot.T, seen, precision="highest")
    return columns.T


@arguments.compiled(static_argnames=("frame", "reference"))
def frame_velocity_derivatives(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    frame: str | int,
    reference: str = "local_world_aligned",
) -> FrameVelocityDerivatives:
    """Derivatives of `frame_velocity` in q (in the tangent space) and in v.

    Arguments as for `frame_velocity`. Returns `(dV_dq, J)`, each (6, nv). The derivative of the
    frame's placement is J too: its columns in "local" are `X^-1 dX`. Raises ArgumentError on a
    wrong shape or dtype, an unknown frame or reference. Source: Carpentier and Mansard (2018),
    section III.
    """
    zero = jnp.zeros(arguments.robot(model).nv, model.dtype)
    of = frame_acceleration_derivatives(model, q, v, zero, frame, reference)
    return FrameVelocityDerivatives(of.dV_dq, of.J)


@arguments.compiled(static_argnames=("frame", "reference"))
def frame_acceleration_derivatives(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    frame: str | int,
    reference: str = "local_world_aligned",
) -> FrameAccelerationDerivatives:
    """Derivatives of `frame_velocity` in q and of `frame_acceleration` in q, v and a.

    Arguments as for `frame_acceleration`, and like it spatial in "local" and "world", classical in
    "local_world_aligned". Returns `(dV_dq, dA_dq, dA_dv, J)`, each (6, nv), in q in the tangent
    space. Raises ArgumentError on a wrong shape or dtype, an unknown frame or reference.
    Source: Carpentier and Mansard (2018), section III.
    """
    q, v = arguments.configuration(model, q), arguments.velocity(model, v)
    a = arguments.velocity(model, a, "a")
    at = _attach(model, q, v, frame)
    if at is None:
        zero = jnp.zeros((6, model.nv), model.dtype)
        return FrameAccelerationDerivatives(zero, zero, zero, zero)
    motion = at.motion
    A_bodies, psi_ddot = accelerations(model, q, v, a, motion)
    J, V, A = motion.J, motion.V[at.body], A_bodies[at.body]

    # A dof turns the frame by J and, in some references, what the frame is seen from as well.
    seen = J - _of_reference(J, reference)
    dV_dq = cross_motion(seen, V) + motion.psi_dot
    dA_dq = cross_motion(seen, A) + cross_motion(motion.psi_dot, V) + psi_ddot
    dA_dv = motion.J_dot + motion.psi_dot + cross_motion(J, V)
    if reference == "local_world_aligned":
        dA_dq = dA_dq + _centripetal(V, dV_dq)
        dA_dv = dA_dv + _centripetal(V, J)

    rows = (dV_dq, dA_dq, dA_dv, J)
    dV_dq, dA_dq, dA_dv, J = (jnp.where(at.moves, _express(at, reference, x), 0).T for x in rows)
    of = velocity_map_derivatives(model, q, v, a)
    dV_dq, _, _ = apply_chain_rule(model, q, of, dV_dq, J, jnp.zeros_like(J))
    return FrameAccelerationDerivatives(dV_dq, *apply_chain_rule(model, q, of, dA_dq, dA_dv, J))


@arguments.compiled(static_argnames="frame")
def point_jacobian(
    model: Model, q: ArrayLike | Kinematics, frame: str | int, point: ArrayLike
) -> Float[Array, "3 nv"]:
    """Jacobian of a point that moves with a frame: J with the point's velocity `J v`, (3, nv).

    `q` (nq,) or its `Kinematics`; `frame`: name or index in `model.frame_names`; `point` (3,) in m,
    in the frame. The velocity is in the world's axes, in m/s. Raises ArgumentError on a wrong shape
    or dtype, or an unknown frame. Source: Featherstone (2.7).
    """
    point = arguments.array(model, point, "point", (3,), "3")
    kinematics = forward_kinematics(model, q)
    body, _, at = find_frame(model, kinematics, frame)
    if body < 0:
        return jnp.zeros((3, model.nv), model.dtype)
    X_RB = root_centred(kinematics)
    J = dof_columns(model, centred(X_RB, transform_point(at.X_RF, point)))
    moves = model.topology.supports[model.topology.dof_body, body]
    columns = jnp.where(moves[:, None], J[:, :3], 0)
    return independent_force(model, kinematics.q, columns).T


def _attach(model: Model, q: Array, v: Array, frame: str | int) -> _Frame | None:
    """The frame and all that moves it; None for one fixed to the world."""
    kinematics = forward_kinematics(model, q)
    body, _, X = find_frame(model, kinematics, frame)
    if body < 0:
        return None
    motion = velocities(model, centred(root_centred(kinematics), X.X_RF.p), q, v)
    moves = model.topology.supports[model.topology.dof_body, body][:, None]
    return _Frame(body, X, motion, moves)


def _of_reference(motion: Array, reference: str) -> Array:
    """How the reference moves where the frame has this motion (in world axes, at its origin)."""
    arguments.reference_frame(reference)
    if reference == "local":
        return motion
    if reference == "world":
        return jnp.zeros_like(motion)
    return motion.at[..., 3:].set(0)


def _express(at: _Frame, reference: str, rows: Array) -> Array:
    """Motions in world axes about the frame's origin, expressed in the reference."""
    if reference == "local":
        v, w = (inverse_rotate(at.X.X_RF.R, half) for half in jnp.split(rows, 2, axis=-1))
        return jnp.concatenate([v, w], axis=-1)
    if reference == "world":
        return transform_motion(Pose(jnp.eye(3, dtype=rows.dtype), at.X.X_WF.p), rows)
    return rows


def _centripetal(V: Array, dV: Array) -> Array:
    """Change of the linear acceleration `w x v`, classical less spatial, as rows (n, 6)."""
    v, w = V[:3], V[3:]
    linear = jnp.cross(dV[:, 3:], v) + jnp.cross(w, dV[:, :3])
    return jnp.concatenate([linear, jnp.zeros_like(linear)], axis=-1)
