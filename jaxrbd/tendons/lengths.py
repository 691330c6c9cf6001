"""Lengths of tendons, and their moment arms.

A spatial tendon consists of lines: straight lines between two points, and lines past a shape. All
straight lines are one batch, and all other lines are another batch, so the size of the program does
not depend on the number of tendons.

The moment arms need no derivative of the kinematics. The derivative of the length of a line with
respect to one end is a vector, which counts as a force at this end. The products of the wrench of
this force with the columns of the Jacobian are a part of the row of moment arms of the tendon. The
length does not change if both ends and the shape move together. So the wrench on the shape is minus
the sum of the wrenches on the ends. All wrenches are about the origin of the first root body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .. import so3
from .._math.components import safe_norm
from .._math.linear import matmul
from .._math.rows import take_rows
from ..algorithms.common_frame import dof_columns
from ..algorithms.kinematics import Kinematics, first_root_centred
from ..algorithms.places import places_from_first_root, wrenches_at_points
from ..model import Model
from ..model.joint_indices import ball_indices
from ..model.joint_space import independent_force, independent_joint_force, joint_coordinates
from ..model.joints_by_name import scalar_joints
from ..model.shapes import Sphere
from ..spatial import Pose, inverse_rotate, inverse_transform_force, rotate
from .paths import FixedTendon, Pulley, RotationAngle, SpatialTendon, Tendon, Wrap
from .wrapping import Line, straight_line, wrapped_line


class _Lines(NamedTuple):
    """n lines of spatial tendons: all straight lines, or all lines past shapes.

    - `tendon` (n,): the index of the tendon of each line;
    - `branch` (n,): the index of the branch, among the branches of all tendons;
    - `ends` (n, 2): the indices of the places of both ends; see `_Layout` for places.
    """

    tendon: np.ndarray
    branch: np.ndarray
    ends: np.ndarray


class _Wraps(NamedTuple):
    """The shapes of n lines; see `_Layout` for places.

    - `place` (n,): the index of the place of each shape; `side` (n,): the index of the place of
      the side point, or -1 without a side point;
    - `is_sphere` (n,): whether each shape is a sphere, not a cylinder; `radius`: the radii in m, a
      list;
    - `inside`: for each line `Wrap.side_is_inside`, a list.
    """

    place: np.ndarray
    side: np.ndarray
    is_sphere: np.ndarray
    radius: list[Any]
    inside: list[bool | None]


class _Layout(NamedTuple):
    """The places, the lines and the shapes of all spatial tendons.

    - `frames`, `R`, `p`: three lists, with the frame of each place and the pose of the place in
      this frame. A place is a point of a path, a shape or a side point;
    - `straight`: the straight lines; `wrapped`: the lines past shapes; `wraps`: these shapes;
    - `divisors`: a list with the divisor of each branch, by which its length is divided.
    """

    frames: list[str | None]
    R: list[Any]
    p: list[Any]
    straight: _Lines
    wrapped: _Lines
    wraps: _Wraps
    divisors: list[Any]


def _layout(tendons: Sequence[Tendon]) -> _Layout:
    frames: list[str | None] = []
    R: list[Any] = []
    p: list[Any] = []
    divisors: list[Any] = []
    # Rows of (tendon, branch, place of the first end, place of the second end).
    straight: list[tuple[int, int, int, int]] = []
    wrapped: list[tuple[int, int, int, int]] = []
    shapes: list[tuple[int, int, bool]] = []  # (place, place of the side point, is a sphere)
    radius: list[Any] = []
    inside: list[bool | None] = []

    def add_place(frame: str | None, position: Any, rotation: Any) -> int:
        frames.append(frame)
        R.append(rotation)
        p.append(position)
        return len(frames) - 1

    for index, tendon in enumerate(tendons):
        if not isinstance(tendon, SpatialTendon):
            continue
        divisors.append(np.ones(()))
        previous: int | None = None  # the place of the previous point of the branch
        wrap: Wrap | None = None
        for part in tendon.path:
            if isinstance(part, Pulley):
                divisors.append(part.divisor)
                previous = None
            elif isinstance(part, Wrap):
                wrap = part
            else:
                end = add_place(part.frame, part.position, np.eye(3))
                if previous is not None:
                    line = index, len(divisors) - 1, previous, end
                    (straight if wrap is None else wrapped).append(line)
                if wrap is not None:
                    side = wrap.side
                    shapes.append(
                        (
                            add_place(wrap.frame, wrap.X_FS.p, wrap.X_FS.R),
                            -1 if side is None else add_place(side.frame, side.position, np.eye(3)),
                            isinstance(wrap.shape, Sphere),
                        )
                    )
                    radius.append(wrap.shape.radius)
                    inside.append(wrap.side_is_inside)
                previous, wrap = end, None

    def lines(rows: list[tuple[int, int, int, int]]) -> _Lines:
        table = np.array(rows, int).reshape(-1, 4)
        return _Lines(table[:, 0], table[:, 1], table[:, 2:])

    table = np.array(shapes, int).reshape(-1, 3)
    wraps = _Wraps(table[:, 0], table[:, 1], table[:, 2].astype(bool), radius, inside)
    return _Layout(frames, R, p, lines(straight), lines(wrapped), wraps, divisors)


class LengthsAndArms(NamedTuple):
    """The lengths (n,) of n tendons in m, and their derivatives (n, nv) in the tangent space.

    The length of a `RotationAngle` is in rad.
    """

    lengths: Float[Array, " n"]
    moment_arms: Float[Array, "n nv"]


def lengths(model: Model, tendons: Sequence[Tendon], kinematics: Kinematics) -> Float[Array, " n"]:
    """The lengths of n tendons, in m."""
    return lengths_and_arms(model, tendons, kinematics).lengths


def lengths_and_arms(
    model: Model, tendons: Sequence[Tendon], kinematics: Kinematics
) -> LengthsAndArms:
    """The lengths and the moment arms of n tendons."""
    total = jnp.zeros(len(tendons), model.dtype)
    arms = jnp.zeros((len(tendons), model.nv), model.dtype)
    if any(isinstance(tendon, FixedTendon) for tendon in tendons):
        q_coefficients, joint_arms = _coefficients(model, tendons)
        total = total + matmul(q_coefficients, joint_coordinates(model, kinematics.q))
        arms = arms + independent_joint_force(model, kinematics.q, joint_arms.T).T
    if any(isinstance(tendon, RotationAngle) for tendon in tendons):
        coordinates = joint_coordinates(model, kinematics.q)
        angles, joint_arms = _rotation_angles(model, tendons, coordinates)
        total = total + angles
        arms = arms + independent_joint_force(model, kinematics.q, joint_arms.T).T
    lines = _line_wrenches(model, tendons, kinematics)
    if lines is None:
        return LengthsAndArms(total, arms)
    rows = rows_of_wrenches(
        model, kinematics, lines.owners, lines.bodies, lines.wrenches, len(tendons)
    )
    return LengthsAndArms(total + lines.lengths, arms + rows)


class _LineWrenches(NamedTuple):
    """The lengths of the spatial tendons among n tendons, and the m wrenches of their lines.

    - `lengths` (n,): zero for other tendons;
    - `wrenches` (m, 6): the derivatives of the lengths as forces and moments on links, as if each
      spatial tendon pushed its ends apart with 1 N; about the first root, in axes of the world;
    - `owners` (m,): the tendon of each wrench; `bodies` (m,): its body, -1 for the world.
    """

    lengths: Float[Array, " n"]
    wrenches: Float[Array, "m 6"]
    owners: np.ndarray
    bodies: np.ndarray


def _line_wrenches(
    model: Model, tendons: Sequence[Tendon], kinematics: Kinematics
) -> _LineWrenches | None:
    """The lengths and wrenches of spatial tendons, or None if no tendon is spatial."""
    layout = _layout(tendons)
    if not layout.frames:
        return None
    total = jnp.zeros(len(tendons), model.dtype)
    R, p = (jnp.stack([jnp.asarray(x, model.dtype) for x in v]) for v in (layout.R, layout.p))
    places, X = places_from_first_root(model, kinematics, layout.frames, Pose(R, p))
    weights = 1 / jnp.stack([jnp.asarray(x, model.dtype) for x in layout.divisors])
    parts = []  # (places, tendons, wrenches)
    for lines, (values, *forces), shapes in (
        (layout.straight, _straight_lines(X.p, layout.straight), None),
        (layout.wrapped, _wrapped_lines(model, X, layout), layout.wraps.place),
    ):
        if not len(lines.ends):
            continue
        weight = weights[lines.branch]
        total = total + _sums(weight * values, lines.tendon, len(tendons))
        ends = [
            wrenches_at_points(X.p[end], weight[:, None] * f)
            for end, f in zip(lines.ends.T, forces, strict=True)
        ]
        parts += [(end, lines.tendon, w) for end, w in zip(lines.ends.T, ends, strict=True)]
        if shapes is not None:
            parts.append((shapes, lines.tendon, -(ends[0] + ends[1])))
    owners, index = (np.concatenate([part[i] for part in parts]) for i in (1, 0))
    wrenches = jnp.concatenate([w for _, _, w in parts])
    return _LineWrenches(total, wrenches, owners, places.bodies[index])


def wrenches_on_bodies(
    model: Model, tendons: Sequence[Tendon], kinematics: Kinematics, tensions: Float[Array, " n"]
) -> Float[Array, "nb 6"]:
    """The wrenches (nb, 6) of spatial tendons on the bodies, as `f_ext` of `rnea`.

    `tensions` (n,) in N: a positive tension pulls.
    """
    lines = _line_wrenches(model, tendons, kinematics)
    if lines is None:
        return jnp.zeros((model.nb, 6), model.dtype)
    pulls = -take_rows(tensions, lines.owners)[:, None] * lines.wrenches
    moving = np.flatnonzero(lines.bodies >= 0)
    sums = _sums(take_rows(pulls, moving), lines.bodies[moving], model.nb)
    return inverse_transform_force(first_root_centred(model, kinematics), sums)


def rows_of_wrenches(
    model: Model,
    kinematics: Kinematics,
    owners: np.ndarray,
    bodies: np.ndarray,
    wrenches: Float[Array, "m 6"],
    n: int,
    fixed: np.ndarray | None = None,
) -> Float[Array, "n nv"]:
    """The generalized forces (n, nv) of n groups of wrenches, m wrenches in all.

    - `owners` (m,): the group of each wrench, which is its row of the result; `bodies` (m,): the
      body of each wrench, -1 for the world;
    - `wrenches` (m, 6): force and moment about the first root, in axes of the world;
    - `fixed` (n, nb): for each group the bodies whose joints are left out, by default none.
    """
    # First the sum of the wrenches of each group on each body, then the sum over the bodies.
    pairs, index = np.unique(np.stack([owners, bodies]), axis=1, return_inverse=True)
    wrenches = _sums(wrenches, index.ravel(), pairs.shape[1])
    columns = dof_columns(model, first_root_centred(model, kinematics))
    moves = model.topology.movers(pairs[1])
    if fixed is not None:
        moves = moves & ~fixed[pairs[0]]
    per_body = jnp.where(moves[:, model.topology.dof_body], matmul(wrenches, columns.T), 0)
    tree_rows = _sums(per_body, pairs[0], n)
    return independent_force(model, kinematics.q, tree_rows.T).T


def _coefficients(model: Model, tendons: Sequence[Tendon]) -> tuple[Array, Array]:
    """The coefficients of fixed tendons, for the coordinates and velocities of all joints.

    Their shapes are (n, nq_joint) and (n, nv_joint); the rows of other tendons are zero.
    """
    fixed = [(i, t) for i, t in enumerate(tendons) if isinstance(t, FixedTendon)]
    rows = np.repeat([i for i, _ in fixed], [len(t.joints) for _, t in fixed])
    columns = scalar_joints(model, [joint for _, tendon in fixed for joint in tendon.joints])
    values = jnp.concatenate([jnp.asarray(t.coefficients, model.dtype) for _, t in fixed])
    by_q, by_v = (
        jnp.zeros((len(tendons), size), model.dtype).at[rows, index].add(values)
        for size, index in (
            (sum(model.topology.nqs), columns.q),
            (sum(model.joint_nvs), columns.v),
        )
    )
    return by_q, by_v


def _rotation_angles(
    model: Model, tendons: Sequence[Tendon], coordinates: Array
) -> tuple[Array, Array]:
    """The angles (n,) of spherical joints, and their derivatives (n, nv_joint).

    `coordinates`: of all joints. The rows of tendons of other kinds are zero.
    """
    found = [(i, t) for i, t in enumerate(tendons) if isinstance(t, RotationAngle)]
    rows = np.array([i for i, _ in found])
    places = ball_indices(model, [tendon.joint for _, tendon in found])
    w = so3.quaternion_log(coordinates[places.q])
    angle = safe_norm(w)
    turned = angle > 0
    axis = jnp.where(turned[:, None], w / jnp.where(turned, angle, 1)[:, None], 0)
    arms = jnp.zeros((len(tendons), sum(model.joint_nvs)), w.dtype)
    angles = jnp.zeros(len(tendons), w.dtype).at[rows].set(angle)
    return angles, arms.at[rows[:, None], places.v].set(axis)


def _sums(x: Float[Array, "m ..."], index: np.ndarray, n: int) -> Float[Array, "n ..."]:
    """The n sums of rows of x, where row j belongs to the sum `index[j]`."""
    # Row i of `rows` lists the rows of the sum i, then m, the index of an appended row of zeros.
    m = len(index)
    order, counts = np.argsort(index, kind="stable"), np.bincount(index, minlength=n)
    places = np.arange(m) - np.repeat(np.cumsum(counts) - counts, counts)
    rows = np.full((n, counts.max(initial=0)), m)
    rows[index[order], places] = order
    return jnp.sum(jnp.concatenate([x, jnp.zeros_like(x[:1])])[rows], axis=1)


def _straight_lines(p: Array, lines: _Lines) -> Line:
    return jax.vmap(straight_line)(p[lines.ends[:, 0]], p[lines.ends[:, 1]])


def _wrapped_lines(model: Model, X: Pose, layout: _Layout) -> Line:
    """The lines past shapes, with their derivatives in axes of the world."""
    lines, wraps = layout.wrapped, layout.wraps
    if not len(wraps.place):
        return _straight_lines(X.p, lines)
    X_S = Pose(X.R[wraps.place], X.p[wraps.place])

    def local(place: np.ndarray) -> Array:
        return inverse_rotate(X_S.R, X.p[place] - X_S.p)

    radius = jnp.stack([jnp.asarray(r, model.dtype) for r in wraps.radius])
    operands = [local(lines.ends[:, 0]), local(lines.ends[:, 1]), radius, wraps.is_sphere]
    if np.any(wraps.side >= 0):
        operands += [local(wraps.side), wraps.side >= 0]
    # For each side point 1 if it is known to be inside, 0 if it is known to be outside, else -1.
    # Only lines whose side point may be inside need an iteration, so they are a separate batch.
    inside = np.array([-1 if x is None else x for x in wraps.inside], int)
    parts, order = [], [np.flatnonzero(inside), np.flatnonzero(inside == 0)]
    for index, more in zip(order, ([inside], [])):
        if len(index):
            chosen: list[Any] = [x[index] for x in (*operands, *more)]
            parts.append(jax.vmap(wrapped_line)(*chosen))
    place = np.argsort(np.concatenate(order))
    found = jax.tree.map(lambda *x: take_rows(jnp.concatenate(x), place), *parts)
    return Line(found.length, rotate(X_S.R, found.f_0), rotate(X_S.R, found.f_1))
