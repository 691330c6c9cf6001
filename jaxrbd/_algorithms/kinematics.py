"""Positions, velocities and accelerations of bodies and frames, and their Jacobians."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .. import arguments
from ..joint_space import (
    independent_force,
    joint_acceleration,
    joint_motion,
    joint_poses,
)
from ..model import Model, take_rows
from ..spatial import (
    Pose,
    compose,
    cross_motion,
    inverse_compose,
    inverse_rotate,
    inverse_transform_motion,
    transform_force,
    transform_motion,
)
from ..topology import Topology
from ..tree import compose_poses, propagate
from .world import centred, dof_columns


class Kinematics(NamedTuple):
    """The configuration as poses: what most algorithms compute first, to pass on instead of q.

    `q` (nq,); `X_PB`: poses of the bodies in their parents; `X_WB`: in the world. R (nb, 3, 3),
    p (nb, 3).
    """

    q: Float[Array, " nq"]
    X_PB: Pose
    X_WB: Pose


@arguments.compiled
def forward_kinematics(model: Model, q: ArrayLike | Kinematics) -> Kinematics:
    """Poses of all bodies in their parents and in the world, in m.

    `q` (nq,). Raises ArgumentError on a wrong shape or dtype. Source: SE(3) sheet, section 8.
    """
    if isinstance(q, Kinematics):
        return q
    q = arguments.configuration(model, q)
    X_PB = joint_poses(model, q)
    return Kinematics(q, X_PB, compose_poses(model.topology, X_PB))


def body_motions(
    model: Model, kinematics: Kinematics, v: Float[Array, " nv"], a: Float[Array, " nv"]
) -> tuple[Float[Array, "nb 6"], Float[Array, "nb 6"]]:
    """Velocities and accelerations of the bodies relative to the world, each in its own frame."""
    vJ = joint_motion(model, kinematics.q, v)
    V = propagate(model.topology, kinematics.X_PB, vJ)
    aJ = joint_acceleration(model, kinematics.q, v, a) + cross_motion(V, vJ)
    return V, propagate(model.topology, kinematics.X_PB, aJ)


def locate(model: Model, q: ArrayLike | Kinematics, frame: str | int) -> tuple[int, Pose, Pose]:
    """A frame's body (-1: the world), its pose in the body and its pose in the world."""
    kinematics = forward_kinematics(model, q)
    index = arguments.frame_index(model, frame)
    body = model.frame_bodies[index]
    X_BF = jax.tree.map(lambda x: x[index], model.frame_pose)
    if body < 0:
        return body, X_BF, X_BF
    return body, X_BF, compose(jax.tree.map(lambda x: x[body], kinematics.X_WB), X_BF)


def _reference_pose(X_WF: Pose, reference: str) -> Pose:
    """Pose in the world of the frame that a quantity of frame F is to be expressed in."""
    arguments.reference_frame(reference)
    if reference == "local":
        return X_WF
    aligned = jnp.eye(3, dtype=X_WF.p.dtype)
    return Pose(aligned, X_WF.p if reference == "local_world_aligned" else jnp.zeros_like(X_WF.p))


@arguments.compiled(static_argnames="frame")
def frame_placement(model: Model, q: ArrayLike | Kinematics, frame: str | int) -> Pose:
    """Pose of a frame in the world: R (3, 3), p (3,) in m.

    `q` (nq,) or its `Kinematics`; `frame`: name or index in `model.frame_names`. Raises
    ArgumentError on a wrong shape or dtype, or an unknown frame.
    """
    return locate(model, q, frame)[2]


@arguments.compiled(static_argnames=("frame", "reference"))
def frame_velocity(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    frame: str | int,
    reference: str = "local_world_aligned",
) -> Float[Array, "6"]:
    """Spatial velocity `[v; w]` of a frame relative to the world, in m/s and rad/s.

    - `q` (nq,), `v` (nv,); `frame`: name or index in `model.frame_names`;
    - `reference`: "local" (the frame's origin and axes), "local_world_aligned" (the frame's
      origin, the world's axes) or "world" (the world's origin and axes: the linear part is the
      velocity of the body point at the world's origin).

    Raises ArgumentError on a wrong shape or dtype, an unknown frame or reference.
    """
    v = arguments.velocity(model, v)
    kinematics = forward_kinematics(model, q)
    body, X_BF, X_WF = locate(model, kinematics, frame)
    X_RF = inverse_compose(_reference_pose(X_WF, reference), X_WF)
    if body < 0:
        return jnp.zeros(6, model.dtype)
    V = propagate(model.topology, kinematics.X_PB, joint_motion(model, kinematics.q, v))
    return transform_motion(X_RF, inverse_transform_motion(X_BF, V[body]))


@arguments.compiled(static_argnames=("frame", "reference"))
def frame_acceleration(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    frame: str | int,
    reference: str = "local_world_aligned",
) -> Float[Array, "6"]:
    """Acceleration of a frame relative to the world: `J a + dJ/dt v`, in m/s^2 and rad/s^2.

    Arguments as for `frame_velocity`, and `a` (nv,). In "local" and "world" it is the spatial
    acceleration; in "local_world_aligned" it is the classical one, whose linear part is the
    second derivative of the frame's position. Gravity is not in it. Raises ArgumentError on a
    wrong shape or dtype, an unknown frame or reference. Source: Featherstone, section 2.11.
    """
    v, a = arguments.velocity(model, v), arguments.velocity(model, a, "a")
    kinematics = forward_kinematics(model, q)
    body, X_BF, X_WF = locate(model, kinematics, frame)
    X_RF = inverse_compose(_reference_pose(X_WF, reference), X_WF)
    if body < 0:
        return jnp.zeros(6, model.dtype)
    V, A = body_motions(model, kinematics, v, a)
    V_F = inverse_transform_motion(X_BF, V[body])
    A_F = inverse_transform_motion(X_BF, A[body])
    if reference == "local_world_aligned":
        A_F = A_F + jnp.concatenate([jnp.cross(V_F[3:], V_F[:3]), jnp.zeros_like(V_F[3:])])
    return transform_motion(X_RF, A_F)


@arguments.compiled(static_argnames=("frame", "reference"))
def frame_jacobian(
    model: Model,
    q: ArrayLike | Kinematics,
    frame: str | int,
    reference: str = "local_world_aligned",
) -> Float[Array, "6 nv"]:
    """Geometric Jacobian of a frame: J with `frame_velocity = J v`, (6, nv).

    Arguments as for `frame_velocity`; `q` may be its `Kinematics`. Raises ArgumentError on a
    wrong shape or dtype, an unknown frame or reference. Source: Featherstone (2.5), section 4.5.
    """
    index = arguments.frame_index(model, frame)
    arguments.reference_frame(reference)
    body, topology = model.frame_bodies[index], model.topology
    if body < 0:
        return jnp.zeros((6, model.nv), model.dtype)
    path = np.flatnonzero(topology.supports[:, body])
    X_WB = _poses_along(model, q, path)
    X_BF = jax.tree.map(lambda x: x[index], model.frame_pose)
    X_WF = compose(Pose(X_WB.R[-1], X_WB.p[-1]), X_BF)
    moved = np.flatnonzero(np.isin(topology.dof_body, path))
    columns = dof_columns(model, centred(X_WB, _reference_pose(X_WF, reference).p), path)
    if reference == "local":
        columns = _in_axes(X_WF.R, columns)
    place = np.full(topology.nv, len(moved))
    place[moved] = np.arange(len(moved))
    columns = take_rows(jnp.concatenate([columns, jnp.zeros_like(columns[:1])]), place)
    return independent_force(model, configuration_of(model, q), columns).T


def _poses_along(model: Model, q: ArrayLike | Kinematics, path: np.ndarray) -> Pose:
    """World poses of the bodies on a path from a root: no others, unless q is `Kinematics`."""
    if isinstance(q, Kinematics):
        return _take(q.X_WB, path)
    chain = Topology(
        tuple(range(-1, len(path) - 1)),
        *(tuple(widths[i] for i in path) for widths in (model.topology.nqs, model.topology.nvs)),
    )
    return compose_poses(chain, joint_poses(model, arguments.configuration(model, q), path))


def configuration_of(model: Model, q: ArrayLike | Kinematics) -> Array:
    """q itself, (nq,)."""
    return q.q if isinstance(q, Kinematics) else arguments.configuration(model, q)


def _take(X: Pose, rows: np.ndarray) -> Pose:
    return jax.tree.map(lambda x: take_rows(x, rows), X)


def body_columns(
    model: Model, kinematics: Kinematics, moves: Array | np.ndarray, X_WR: Pose
) -> Float[Array, "nv 6"]:
    """Columns of the Jacobian of a body in a frame R, as rows; `moves` (nb,): who supports it."""
    columns = dof_columns(model, centred(kinematics.X_WB, X_WR.p))
    columns = jnp.where(moves[model.topology.dof_body, None], _in_axes(X_WR.R, columns), 0)
    return independent_force(model, kinematics.q, columns)


def _in_axes(R_WR: Array, motions: Array) -> Array:
    """Motions (n, 6) in the world's axes, in those of a frame R."""
    linear, angular = jnp.split(motions, 2, axis=-1)
    return jnp.concatenate([inverse_rotate(R_WR, linear), inverse_rotate(R_WR, angular)], axis=-1)


@arguments.compiled(static_argnames=("frame", "reference"))
def external_force(
    model: Model,
    q: ArrayLike | Kinematics,
    frame: str | int,
    wrench: ArrayLike,
    reference: str = "local_world_aligned",
) -> Float[Array, "nb 6"]:
    """The `f_ext` of one wrench on one frame; add several for several.

    `wrench` (6,) `[force; moment]` in N and N m, acting on the frame's body, its coordinates and
    the point of its moment given by `reference` as in `frame_velocity`. Other arguments as for
    `frame_jacobian`. Returns (nb, 6) in the bodies' own frames; zero for a frame fixed to the
    world. Raises ArgumentError on a wrong shape or dtype, an unknown frame or reference.
    """
    wrench = arguments.array(model, wrench, "wrench", (6,), "6")
    body, X_BF, X_WF = locate(model, q, frame)
    X_FR = inverse_compose(X_WF, _reference_pose(X_WF, reference))
    f_ext = jnp.zeros((model.nb, 6), model.dtype)
    if body < 0:
        return f_ext
    return f_ext.at[body].set(transform_force(compose(X_BF, X_FR), wrench))
