"""Positions, velocities and accelerations of bodies and frames, and their Jacobians."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.rows import take_rows
from ..model import Model, arguments
from ..model.joint_space import (
    independent_force,
    joint_poses,
    relative_accelerations,
    relative_velocities,
)
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
from .common_frame import centred, dof_columns


class Kinematics(NamedTuple):
    """The configuration as poses: what most algorithms compute first, to pass on instead of q.

    `q` (nq,); `X_PB`: poses of the bodies in their parents; `X_WB`: in the world. R (nb, 3, 3),
    p (nb, 3). `p_RB` (nb, 3): positions of the bodies relative to the root body of their tree, in
    world axes, in m. They have all digits however far from the world's origin the robot is, where
    `X_WB.p` is rounded to the digits of that distance; the algorithms use them. Where `p_RB` is
    None, the functions that take a `Kinematics` compute it from `X_PB`.
    """

    q: Float[Array, " nq"]
    X_PB: Pose
    X_WB: Pose
    p_RB: Float[Array, "nb 3"] | None = None


@arguments.compiled
def forward_kinematics(model: Model, q: ArrayLike | Kinematics) -> Kinematics:
    """Poses of all bodies in their parents and in the world, in m.

    `q` (nq,). Raises ArgumentError on a wrong shape or dtype. Source: SE(3) sheet, section 8.
    """
    if isinstance(q, Kinematics):
        if q.p_RB is not None:
            return q
        return q._replace(p_RB=_compose_from_roots(model.topology, q.X_PB).p)
    q = arguments.configuration(model, q)
    X_PB = joint_poses(model, q)
    # The positions of the roots are large far from the origin, and cancel: the barrier keeps XLA
    # from computing them twice, with another rounding.
    X_PB = Pose(X_PB.R, lax.optimization_barrier(X_PB.p))
    X_RB = _compose_from_roots(model.topology, X_PB)
    X_WB = Pose(X_RB.R, X_RB.p + take_rows(X_PB.p, model.topology.root))
    return Kinematics(q, X_PB, X_WB, X_RB.p)


def configuration_of(model: Model, q: ArrayLike | Kinematics) -> Float[Array, " nq"]:
    """The configuration (nq,), of itself or of its `Kinematics`."""
    return q.q if isinstance(q, Kinematics) else arguments.configuration(model, q)


def poses_in_parents(model: Model, q: ArrayLike | Kinematics) -> Pose:
    """Poses `X_PB` of the bodies in their parents, of a configuration or of its `Kinematics`."""
    if isinstance(q, Kinematics):
        return q.X_PB
    return joint_poses(model, arguments.configuration(model, q))


def _compose_from_roots(topology: Topology, X_PB: Pose) -> Pose:
    """Poses of the bodies in world axes, relative to the root body of their tree.

    The position of a root body is left out before the poses are composed, and not subtracted
    afterwards: far from the world's origin a difference of world positions has few digits left.
    """
    is_root = np.array(topology.parents)[:, None] < 0
    return compose_poses(topology, Pose(X_PB.R, jnp.where(is_root, 0, X_PB.p)))


def root_centred(kinematics: Kinematics) -> Pose:
    """World poses of the bodies with each tree's origin moved to its root body, with all digits.

    `kinematics`: from `forward_kinematics`.
    """
    assert kinematics.p_RB is not None
    return Pose(kinematics.X_WB.R, kinematics.p_RB)


def configuration_and_poses(model: Model, q: ArrayLike | Kinematics) -> tuple[Array, Pose]:
    """The configuration (nq,), and the poses of `root_centred`."""
    kinematics = forward_kinematics(model, q)
    return kinematics.q, root_centred(kinematics)


def root_positions(model: Model, kinematics: Kinematics) -> Float[Array, "nb 3"]:
    """For each body the position of the root body of its tree in the world, (nb, 3) in m."""
    return take_rows(kinematics.X_PB.p, model.topology.root)


def first_root_centred(model: Model, kinematics: Kinematics) -> Pose:
    """World poses of all bodies with the origin moved to the first root body, with all digits."""
    X = root_centred(kinematics)
    if not np.any(model.topology.root):
        return X
    roots = root_positions(model, kinematics)
    return Pose(X.R, X.p + (roots - roots[:1]))


class RootedPose(NamedTuple):
    """The pose of a frame in the world, its position in two parts so that no digit is lost.

    `X_RF`: the pose in world axes relative to the point R; `p_WR` (3,): the position of R in the
    world. R is the origin of the root body of the frame's tree, or of the frame itself where that
    is fixed to the world.
    """

    X_RF: Pose
    p_WR: Array

    @property
    def X_WF(self) -> Pose:
        """The pose in the world."""
        return Pose(self.X_RF.R, self.X_RF.p + self.p_WR)


def fixed_in_world(X_WF: Pose) -> RootedPose:
    """The pose of a frame that does not move."""
    return RootedPose(Pose(X_WF.R, jnp.zeros_like(X_WF.p)), X_WF.p)


def relative_pose(a: RootedPose, b: RootedPose) -> Pose:
    """The pose `X_AB` of frame B in frame A, with all digits of what lies between them."""
    seen = Pose(b.X_RF.R, b.X_RF.p + (b.p_WR - a.p_WR))
    return inverse_compose(a.X_RF, seen)


def body_motions(
    model: Model,
    kinematics: Kinematics,
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    world: Float[Array, "6"] | None = None,
) -> tuple[Float[Array, "nb 6"], Float[Array, "nb 6"]]:
    """Velocities and accelerations of the bodies, each in its own frame.

    `world` (6,): the acceleration of the world, in its axes (default zero).
    """
    vJ = relative_velocities(model, kinematics.q, v)
    V = propagate(model.topology, kinematics.X_PB, vJ)
    aJ = relative_accelerations(model, kinematics.q, v, a) + cross_motion(V, vJ)
    return V, propagate(model.topology, kinematics.X_PB, aJ, world)


def find_frame(
    model: Model, q: ArrayLike | Kinematics, frame: str | int
) -> tuple[int, Pose, RootedPose]:
    """A frame's body (-1: the world), its pose in the body and its pose in the world."""
    kinematics = forward_kinematics(model, q)
    index = arguments.frame_index(model, frame)
    body = model.frame_bodies[index]
    X_BF = jax.tree.map(lambda x: x[index], model.frame_pose)
    if body < 0:
        return body, X_BF, fixed_in_world(X_BF)
    X_RB = jax.tree.map(lambda x: x[body], root_centred(kinematics))
    p_WR = kinematics.X_PB.p[model.topology.root[body]]
    return body, X_BF, RootedPose(compose(X_RB, X_BF), p_WR)


def _reference_pose(at: RootedPose, reference: str) -> Pose:
    """The frame that a quantity of frame F is to be expressed in: its pose relative to R."""
    arguments.reference_frame(reference)
    if reference == "local":
        return at.X_RF
    aligned = jnp.eye(3, dtype=at.p_WR.dtype)
    return Pose(aligned, at.X_RF.p if reference == "local_world_aligned" else -at.p_WR)


@arguments.compiled(static_argnames="frame")
def frame_placement(model: Model, q: ArrayLike | Kinematics, frame: str | int) -> Pose:
    """Pose of a frame in the world: R (3, 3), p (3,) in m.

    `q` (nq,) or its `Kinematics`; `frame`: name or index in `model.frame_names`. Raises
    ArgumentError on a wrong shape or dtype, or an unknown frame.
    """
    return find_frame(model, q, frame)[2].X_WF


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
    body, X_BF, at = find_frame(model, kinematics, frame)
    X_RF = inverse_compose(_reference_pose(at, reference), at.X_RF)
    if body < 0:
        return jnp.zeros(6, model.dtype)
    V = propagate(model.topology, kinematics.X_PB, relative_velocities(model, kinematics.q, v))
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
    body, X_BF, at = find_frame(model, kinematics, frame)
    X_RF = inverse_compose(_reference_pose(at, reference), at.X_RF)
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
    X_RB, p_WR = _poses_along(model, q, path)
    X_BF = jax.tree.map(lambda x: x[index], model.frame_pose)
    at = RootedPose(compose(Pose(X_RB.R[-1], X_RB.p[-1]), X_BF), p_WR)
    moved = np.flatnonzero(np.isin(topology.dof_body, path))
    columns = dof_columns(model, centred(X_RB, _reference_pose(at, reference).p), path)
    if reference == "local":
        columns = _in_axes(at.X_RF.R, columns)
    place = np.full(topology.nv, len(moved))
    place[moved] = np.arange(len(moved))
    columns = take_rows(jnp.concatenate([columns, jnp.zeros_like(columns[:1])]), place)
    return independent_force(model, configuration_of(model, q), columns).T


def _poses_along(
    model: Model, q: ArrayLike | Kinematics, path: np.ndarray
) -> tuple[Pose, Float[Array, "3"]]:
    """Poses relative to the root of the bodies on a path from it, and the root's position.

    No other poses are composed, unless q is `Kinematics`.
    """
    if isinstance(q, Kinematics):
        kinematics = forward_kinematics(model, q)
        return _take(root_centred(kinematics), path), kinematics.X_PB.p[path[0]]
    chain = Topology(
        tuple(range(-1, len(path) - 1)),
        *(tuple(widths[i] for i in path) for widths in (model.topology.nqs, model.topology.nvs)),
    )
    X_PB = joint_poses(model, arguments.configuration(model, q), path)
    return _compose_from_roots(chain, X_PB), X_PB.p[0]


def _take(X: Pose, rows: np.ndarray) -> Pose:
    return jax.tree.map(lambda x: take_rows(x, rows), X)


def body_columns(
    model: Model, kinematics: Kinematics, moves: Array | np.ndarray, X_RF: Pose
) -> Float[Array, "nv 6"]:
    """Columns of the Jacobian of a body in a frame F, as rows; `moves` (nb,): who supports it.

    `X_RF`: the pose of F relative to the root of the body's tree, in world axes.
    """
    columns = dof_columns(model, centred(root_centred(kinematics), X_RF.p))
    columns = jnp.where(moves[model.topology.dof_body, None], _in_axes(X_RF.R, columns), 0)
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
    body, X_BF, at = find_frame(model, q, frame)
    X_FR = inverse_compose(at.X_RF, _reference_pose(at, reference))
    f_ext = jnp.zeros((model.nb, 6), model.dtype)
    if body < 0:
        return f_ext
    return f_ext.at[body].set(transform_force(compose(X_BF, X_FR), wrench))
