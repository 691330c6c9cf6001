"""Positions, velocities and accelerations of bodies and frames, and their Jacobians."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.components import small_product
from .._math.ranks import minus, plus
from .._math.rows import rows_or_world, take_rows
from ..model import Model, arguments
from ..model.joint_space import (
    body_subspace,
    independent_force,
    joint_poses,
    relative_accelerations,
    relative_velocities,
)
from ..spatial import (
    Pose,
    compose,
    cross_motion,
    from_linear,
    identity_pose,
    inverse_compose,
    inverse_rotate,
    inverse_transform_motion,
    transform_force,
    transform_motion,
)
from ..topology import Topology
from ..tree import propagate
from .body_poses import body_poses, compose_from_roots
from .common_frame import centred, dof_columns


class Kinematics(NamedTuple):
    """The poses of the bodies in a configuration. Algorithms take a `Kinematics` in place of q.

    - `q` (nq,): the configuration;
    - `X_PB`: poses of the bodies in their parents; `X_WB`: poses in the world. Both have
      R (nb, 3, 3) and p (nb, 3) in m;
    - `p_RB` (nb, 3): positions of the bodies relative to the root body of their tree, in world
      axes, in m. The algorithms use `p_RB`, because far from the world's origin the rounding errors
      of `X_WB.p` are large. If `p_RB` is None, the algorithms compute it from `X_PB`.
    """

    q: Float[Array, " nq"]
    X_PB: Pose
    X_WB: Pose
    p_RB: Float[Array, "nb 3"] | None = None


@arguments.compiled(arrays=("q",))
def forward_kinematics(model: Model, q: Array | Kinematics) -> Kinematics:
    """Poses of all bodies in their parents and in the world, as `Kinematics`.

    `q` (nq,), or a `Kinematics`, which is returned with `p_RB`. The result can be passed in place
    of q to every algorithm, so that several algorithms share one forward pass.
    Source: SE(3) sheet, section 8.
    """
    if isinstance(q, Kinematics):
        if q.p_RB is not None:
            return q
        return q._replace(p_RB=compose_from_roots(model.topology, q.X_PB).p)
    X_PB = joint_poses(model, q)
    # Far from the origin the root positions are large, and later they are subtracted from each
    # other. If XLA computed them twice, with two different roundings, the difference would be
    # wrong. The barrier prevents this.
    X_PB = Pose(X_PB.R, lax.optimization_barrier(X_PB.p))
    X_RB = body_poses(model, q, X_PB)
    X_WB = Pose(X_RB.R, X_RB.p + take_rows(X_PB.p, model.topology.root))
    return Kinematics(q, X_PB, X_WB, X_RB.p)


def configuration_of(q: Array | Kinematics) -> Float[Array, " nq"]:
    """The configuration (nq,), for q that is a configuration or a `Kinematics`."""
    return q.q if isinstance(q, Kinematics) else q


def poses_in_parents(model: Model, q: Array | Kinematics) -> Pose:
    """Poses `X_PB` of the bodies in their parents, for q (nq,) or its `Kinematics`."""
    return q.X_PB if isinstance(q, Kinematics) else joint_poses(model, q)


def root_centred(kinematics: Kinematics) -> Pose:
    """Poses of the bodies in world axes, with positions relative to the root body of their tree.

    The positions lose no digits far from the world's origin. `kinematics`: a result of
    `forward_kinematics`, so that `p_RB` is not None.
    """
    assert kinematics.p_RB is not None
    return Pose(kinematics.X_WB.R, kinematics.p_RB)


def configuration_and_poses(model: Model, q: Array | Kinematics) -> tuple[Array, Pose]:
    """The configuration (nq,), and the poses of `root_centred`."""
    kinematics = forward_kinematics.unchecked(model, q)
    return kinematics.q, root_centred(kinematics)


def root_positions(model: Model, kinematics: Kinematics) -> Float[Array, "nb 3"]:
    """World position of the root body of the tree of each body, (nb, 3) in m."""
    return take_rows(kinematics.X_PB.p, model.topology.root)


def first_root_position(model: Model, kinematics: Kinematics) -> Float[Array, "3"]:
    """World position of the first root body in m; the origin for a robot without moving bodies."""
    if not model.nb:
        return jnp.zeros(3, model.dtype)
    return root_positions(model, kinematics)[0]


def first_root_centred(model: Model, kinematics: Kinematics) -> Pose:
    """Poses of all bodies in world axes, with positions relative to the first root body."""
    X = root_centred(kinematics)
    if not np.any(model.topology.root):
        return X
    roots = root_positions(model, kinematics)
    return Pose(X.R, X.p + (roots - roots[:1]))


class JointCalc(NamedTuple):
    """Transform M, motion subspace S, velocity v and bias acceleration c of one joint.

    - `M`: pose of the child body in the joint's frame on the parent, R (3, 3) and p (3,) in m;
    - `S` (n, 6): one row per velocity of the joint;
    - `v` (6,): spatial velocity `S^T v_J` of the child relative to the parent, where v_J (n,) are
      the velocities of the joint;
    - `c` (6,): time derivative of v where the time derivative of the robot's velocity is zero.

    S, v and c are in the frame of the child.
    """

    M: Pose
    S: Float[Array, "n 6"]
    v: Float[Array, "6"]
    c: Float[Array, "6"]


@arguments.compiled(arrays=("q", "v"), static_argnames="joint")
def joint_calc(model: Model, q: Array | Kinematics, v: Array, joint: str) -> JointCalc:
    """Transform, motion subspace, velocity and bias acceleration of one joint.

    `q` (nq,) or its `Kinematics`, `v` (nv,); `joint`: a name in `model.joint_names`. The name of a
    compound joint selects the last joint of its chain. The bias acceleration is zero except for a
    `joints.Custom` and for a joint that follows others. Raises ArgumentError for an unknown joint.
    Source: SE(3) sheet, section 7 (`j.calc`).
    """
    X_PB = poses_in_parents(model, q)
    q = configuration_of(q)
    body = model.joint(joint).bodies[-1]
    X_PJ, X_PB = (jax.tree.map(lambda x: x[body], X) for X in (model.placement, X_PB))
    return JointCalc(
        inverse_compose(X_PJ, X_PB),
        body_subspace(model, q, body),
        relative_velocities(model, q, v)[body],
        relative_accelerations(model, q, v, jnp.zeros_like(v))[body],
    )


class RootedPose(NamedTuple):
    """The pose of a frame F in the world. The position has two parts, so that no digit is lost.

    `X_RF`: the pose of F in world axes, with the position relative to a point R; `p_WR` (3,): the
    position of R in the world. R is the origin of the root body of the tree of F. For a frame that
    is fixed to the world, R is the origin of the frame.
    """

    X_RF: Pose
    p_WR: Array

    @property
    def X_WF(self) -> Pose:
        """The pose in the world."""
        return Pose(self.X_RF.R, self.X_RF.p + self.p_WR)


def relative_pose(a: RootedPose, b: RootedPose) -> Pose:
    """The pose `X_AB` of frame B in frame A; no digits are lost far from the world's origin."""
    X_RB = Pose(b.X_RF.R, plus(b.X_RF.p, minus(b.p_WR, a.p_WR)))
    return inverse_compose(a.X_RF, X_RB)


class BodyMotions(NamedTuple):
    """Spatial velocities and accelerations (nb, 6) of the bodies, in the frames of the bodies."""

    velocity: Float[Array, "nb 6"]
    acceleration: Float[Array, "nb 6"]


@arguments.compiled(arrays=("q", "v", "a"))
def body_motions(model: Model, q: Array | Kinematics, v: Array, a: Array) -> BodyMotions:
    """Spatial velocities and accelerations of all bodies, (nb, 6) each, in the bodies' frames.

    `q` (nq,) or its `Kinematics`, `v` (nv,), `a` (nv,). The results are in m/s, rad/s,
    m/s^2 and rad/s^2. The accelerations do not include gravity. Source: Featherstone (5.7), (5.8).
    """
    return BodyMotions(*motions(model, forward_kinematics.unchecked(model, q), v, a))


def motions(
    model: Model,
    kinematics: Kinematics,
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    world: Float[Array, "6"] | None = None,
) -> tuple[Float[Array, "nb 6"], Float[Array, "nb 6"]]:
    """`body_motions` with an acceleration `world` (6,) of the world, in world axes (default 0)."""
    vJ = relative_velocities(model, kinematics.q, v)
    V = propagate(model.topology, kinematics.X_PB, vJ)
    aJ = relative_accelerations(model, kinematics.q, v, a) + cross_motion(V, vJ)
    return V, propagate(model.topology, kinematics.X_PB, aJ, world)


def find_frame(
    model: Model, q: Array | Kinematics, frame: str | int
) -> tuple[int, Pose, RootedPose]:
    """The body of a frame (-1 for the world), the frame's pose in the body and in the world.

    `places.find_places` finds many frames together.
    """
    index = arguments.frame_index(model, frame)
    body, X_BF = model.frame_bodies[index], jax.tree.map(lambda x: x[index], model.frame_pose)
    if body < 0:
        return body, X_BF, RootedPose(Pose(X_BF.R, jnp.zeros_like(X_BF.p)), X_BF.p)
    kinematics = forward_kinematics.unchecked(model, q)
    X_RB = jax.tree.map(lambda x: x[body], root_centred(kinematics))
    p_WR = kinematics.X_PB.p[model.topology.root[body]]
    return body, X_BF, RootedPose(compose(X_RB, X_BF), p_WR)


def frame_axes(model: Model, q: Array | Kinematics, frame: str | int) -> Float[Array, "3 3"]:
    """The rotation matrix of a frame in the world, from the poses between the root and the frame.

    Unlike `find_frame`, it does not compute the poses of all bodies.
    """
    index = arguments.frame_index(model, frame)
    body, R_BF = model.frame_bodies[index], model.frame_pose.R[index]
    if body < 0:
        return R_BF
    X_RB, _ = _path_poses(model, q, np.flatnonzero(model.topology.supports[:, body]))
    return small_product(X_RB.R[-1], R_BF)


def _reference_pose(X: RootedPose, reference: str) -> Pose:
    """The pose `X_RA` of the reference frame A for a frame with the pose X.

    `X_RA` is in world axes, with the position relative to the point R of X.
    """
    arguments.reference_frame(reference)
    if reference == "local":
        return X.X_RF
    aligned = jnp.eye(3, dtype=X.p_WR.dtype)
    return Pose(aligned, X.X_RF.p if reference == "local_world_aligned" else -X.p_WR)


@arguments.compiled(arrays=("q",), static_argnames="frame")
def frame_placement(model: Model, q: Array | Kinematics, frame: str | int) -> Pose:
    """Pose of a frame in the world: R (3, 3), p (3,) in m.

    `q` (nq,) or its `Kinematics`; `frame`: as in `Model.frame_index`. Raises
    ArgumentError for an unknown frame.
    """
    return find_frame(model, q, frame)[2].X_WF


@arguments.compiled(arrays=("q",))
def frame_placements(model: Model, q: Array | Kinematics) -> Pose:
    """Poses of all frames in the world, in the order of `model.frame_names`.

    `q` (nq,) or its `Kinematics`. Returns R (nf, 3, 3) and p (nf, 3) in m.
    """
    X_WB = forward_kinematics.unchecked(model, q).X_WB
    X_WP = rows_or_world(X_WB, np.array(model.frame_bodies, int), identity_pose(model.dtype))
    return compose(X_WP, model.frame_pose)


@arguments.compiled(arrays=("q", "v"), static_argnames=("frame", "reference"))
def frame_velocity(
    model: Model,
    q: Array | Kinematics,
    v: Array,
    frame: str | int,
    reference: str = "local_world_aligned",
) -> Float[Array, "6"]:
    """Spatial velocity `[v; w]` (6,) of a frame relative to the world, in m/s and rad/s.

    - `q` (nq,) or its `Kinematics`, `v` (nv,); `frame`: as in `Model.frame_index`;
    - `reference`: "local" (the frame's origin and axes), "local_world_aligned" (the frame's origin,
      world axes) or "world" (the world's origin and axes; the linear part is the velocity of the
      body's point at the world's origin).

    Raises ArgumentError for an unknown frame or reference.
    """
    kinematics = forward_kinematics.unchecked(model, q)
    body, X_BF, X = find_frame(model, kinematics, frame)
    X_AF = inverse_compose(_reference_pose(X, reference), X.X_RF)
    if body < 0:
        return jnp.zeros(6, model.dtype)
    V = propagate(model.topology, kinematics.X_PB, relative_velocities(model, kinematics.q, v))
    return transform_motion(X_AF, inverse_transform_motion(X_BF, V[body]))


@arguments.compiled(arrays=("q", "v", "a"), static_argnames=("frame", "reference"))
def frame_acceleration(
    model: Model,
    q: Array | Kinematics,
    v: Array,
    a: Array,
    frame: str | int,
    reference: str = "local_world_aligned",
) -> Float[Array, "6"]:
    """Acceleration (6,) of a frame relative to the world, `J a + dJ/dt v`, in m/s^2 and rad/s^2.

    Arguments as for `frame_velocity`, and `a` (nv,). With "local" and "world" the result is the
    spatial acceleration. With "local_world_aligned" the result is the classical acceleration, whose
    linear part is the second time derivative of the frame's position. Gravity is not included.
    Raises ArgumentError for an unknown frame or reference. Source: Featherstone, section 2.11.
    """
    kinematics = forward_kinematics.unchecked(model, q)
    body, X_BF, X = find_frame(model, kinematics, frame)
    X_AF = inverse_compose(_reference_pose(X, reference), X.X_RF)
    if body < 0:
        return jnp.zeros(6, model.dtype)
    V, A = motions(model, kinematics, v, a)
    V_F = inverse_transform_motion(X_BF, V[body])
    A_F = inverse_transform_motion(X_BF, A[body])
    if reference == "local_world_aligned":
        A_F = A_F + from_linear(jnp.cross(V_F[3:], V_F[:3]))
    return transform_motion(X_AF, A_F)


@arguments.compiled(arrays=("q",), static_argnames=("frame", "reference"))
def frame_jacobian(
    model: Model,
    q: Array | Kinematics,
    frame: str | int,
    reference: str = "local_world_aligned",
) -> Float[Array, "6 nv"]:
    """Geometric Jacobian of a frame, (6, nv): `frame_velocity` is `J v`.

    Arguments as for `frame_velocity`. Raises ArgumentError for an unknown frame or reference.
    Source: Featherstone (2.5), section 4.5.
    """
    number = arguments.frame_index(model, frame)
    arguments.reference_frame(reference)
    body, topology = model.frame_bodies[number], model.topology
    if body < 0:
        return jnp.zeros((6, model.nv), model.dtype)
    path = np.flatnonzero(topology.supports[:, body])
    X_RB, p_WR = _path_poses(model, q, path)
    X_BF = jax.tree.map(lambda x: x[number], model.frame_pose)
    X = RootedPose(compose(Pose(X_RB.R[-1], X_RB.p[-1]), X_BF), p_WR)
    moved = np.flatnonzero(np.isin(topology.dof_body, path))
    columns = dof_columns(model, centred(X_RB, _reference_pose(X, reference).p), path)
    if reference == "local":
        columns = rotate_to_axes(X.X_RF.R, columns)
    index = np.full(topology.nv, len(moved))  # the zero row, for dofs that do not move the frame
    index[moved] = np.arange(len(moved))
    columns = take_rows(jnp.concatenate([columns, jnp.zeros_like(columns[:1])]), index)
    return independent_force(model, configuration_of(q), columns).T


def _path_poses(
    model: Model, q: Array | Kinematics, path: np.ndarray
) -> tuple[Pose, Float[Array, "3"]]:
    """Poses of the bodies on a path from the root, as in `root_centred`; the root's world position.

    Only the poses of these bodies are computed, unless q is a `Kinematics`, which has all poses.
    """
    if isinstance(q, Kinematics):
        kinematics = forward_kinematics.unchecked(model, q)
        return _take(root_centred(kinematics), path), kinematics.X_PB.p[path[0]]
    path_topology = Topology(
        tuple(range(-1, len(path) - 1)),
        *(tuple(widths[i] for i in path) for widths in (model.topology.nqs, model.topology.nvs)),
    )
    X_PB = joint_poses(model, q, path)
    return compose_from_roots(path_topology, X_PB), X_PB.p[0]


def _take(X: Pose, rows: np.ndarray) -> Pose:
    return jax.tree.map(lambda x: take_rows(x, rows), X)


def body_columns(
    model: Model, kinematics: Kinematics, moves: Array | np.ndarray, X_RF: Pose
) -> Float[Array, "nv 6"]:
    """Columns of the Jacobian of a body in a frame F, as rows (nv, 6).

    `moves` (nb,) of bool: for each body, whether it supports the body of the Jacobian. `X_RF`: the
    pose of F in world axes, with the position relative to the root of the tree of that body.
    """
    columns = dof_columns(model, centred(root_centred(kinematics), X_RF.p))
    columns = jnp.where(moves[model.topology.dof_body, None], rotate_to_axes(X_RF.R, columns), 0)
    return independent_force(model, kinematics.q, columns)


def rotate_to_axes(R_WA: Array, motions: Array) -> Array:
    """Motions (..., 6) in the axes of a frame A, from motions in world axes; R_WA (3, 3)."""
    linear, angular = jnp.split(motions, 2, axis=-1)
    return jnp.concatenate([inverse_rotate(R_WA, linear), inverse_rotate(R_WA, angular)], axis=-1)


@arguments.compiled(arrays=("q",), static_argnames=("frame", "reference"))
def external_force(
    model: Model,
    q: Array | Kinematics,
    frame: str | int,
    wrench: ArrayLike,
    reference: str = "local_world_aligned",
) -> Float[Array, "nb 6"]:
    """The `f_ext` (nb, 6) of one wrench on one frame. To apply several wrenches, add their `f_ext`.

    `wrench` (6,) `[force; moment]` in N and N m acts on the frame's body. `reference` gives the
    axes of the wrench and the point about which the moment is taken, as in `frame_velocity`. Other
    arguments as for `frame_jacobian`. Row i of the result is in the frame of body i. The result is
    zero for a frame that is fixed to the world. Raises ArgumentError for an unknown frame or
    reference.
    """
    wrench = arguments.array(model, wrench, "wrench", (6,), "6")
    body, X_BF, X = find_frame(model, q, frame)
    X_FA = inverse_compose(X.X_RF, _reference_pose(X, reference))
    f_ext = jnp.zeros((model.nb, 6), model.dtype)
    if body < 0:
        return f_ext
    return f_ext.at[body].set(transform_force(compose(X_BF, X_FA), wrench))
