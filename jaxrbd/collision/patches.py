"""The points where two shapes touch: up to four, so that a face rests on a face.

`separation.py` gives the normal and the least distance. The face of a shape is a polygon of eight
points that are farthest along directions close to the normal; it can be an edge or a point. Each
edge of a polygon is cut by the borders of the other one (Cyrus and Beck, 1978). The ends of
these parts are the corners of the area in which the faces lie over each other. Four of them that
span a large area are the points of contact:

1. the corner with the least distance;
2. the corner that is farthest from the first one;
3. and 4. the corners that are farthest from the line through both, on each side of it.

If the shapes touch with a point or an edge, some of the four points are equal. If the polygons have
no common area, all four are the nearest points of the shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from .._math.linear import matmul
from ..spatial import Pose, identity_pose
from .cores import FacedCore
from .nearest import CorePair
from .separation import Separation, core_separation, shape_separation

# The directions of the points of a face differ from the normal by this angle in rad.
TILT = 0.02
# Points count as equally low if their heights differ by less than this fraction of the size of the
# area, which is a slope in rad.
_LEVEL = 1e-3
# Eight directions in the plane across the normal. For the normal of a face of box b, the axes of
# this plane are axes of the box. The 13 degrees avoid directions along these axes, in which two
# corners are equally far.
_ANGLES = np.deg2rad(13.0) + np.arange(8) * np.pi / 4
_COMPASS = np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], axis=1)


class Patch(NamedTuple):
    """Up to four points where cores a and b touch, in the frame of b.

    - `distance` (k,): the distances of the points along the normal;
    - `point_a` (k, 3), `point_b` (k, 3): the points of a and b;
    - `normal` (3,): the unit vector from a to b.
    """

    distance: Float[Array, " k"]
    point_a: Float[Array, "k 3"]
    point_b: Float[Array, "k 3"]
    normal: Float[Array, "3"]


def core_patch(
    a: FacedCore,
    b: FacedCore,
    R: Array,
    p: Array,
    count: int,
    formula: Callable[..., Separation] = shape_separation,
) -> Patch:
    """The patch of two cores with 1, 2 or 4 points.

    R (3, 3), p (3,): the orientation and the origin of a in the frame of b. One point is enough for
    shapes without a face or an edge, and two if one shape is a capsule. `formula` computes the
    `Separation` of two cores with roundings and poses.
    """
    pair = CorePair(a, b, R, p)
    if formula is shape_separation:
        distance, point_a, point_b, n = core_separation(pair)
    else:
        zero, X_b = jnp.zeros((), p.dtype), identity_pose(p.dtype)
        distance, point_a, point_b, n = formula((a, zero), Pose(R, p), (b, zero), X_b)
    if count == 1:
        return Patch(distance[None], point_a[None], point_b[None], n)
    across = tangents(n)
    middle = (point_a + point_b) / 2
    change = TILT * matmul(_compass(n), across)
    face_a = matmul(R, a.face(matmul(n, R), matmul(change, R)).T).T + p[None]
    face_b = b.face(-n, change)
    # From here on, x (.., 2) are coordinates in the plane across the normal, and h is along it.
    faces = [
        (matmul(points, across.T), matmul(points, n))
        for points in (face_a - middle[None], face_b - middle[None])
    ]
    (x_a, h_a), (x_b, h_b) = faces
    x, inside = _common_corners(x_a, x_b, pair.a.extent() + pair.b.extent())
    a_heights, b_heights = _plane(x_a, h_a, x), _plane(x_b, h_b, x)
    gap = b_heights - a_heights
    # The least gap is `distance`. The gaps at the other corners are exact if the faces are flat.
    least = jnp.min(jnp.where(inside, gap, jnp.inf))
    some = jnp.any(inside)
    gap = jnp.where(some, gap + distance - jnp.where(some, least, 0), distance)
    chosen = spread(jnp.where(some, x, 0), gap, inside | ~some, count)
    x, gap, height = x[chosen], gap[chosen], ((a_heights + b_heights) / 2)[chosen]
    on_plane = middle[None] + matmul(x, across) + height[:, None] * n[None]
    on_plane = jnp.where(some, on_plane, middle[None])
    half = gap[:, None] / 2 * n[None]
    return Patch(gap, on_plane - half, on_plane + half, n)


def tangents(n: Array) -> Array:
    """Two unit vectors (2, 3) that are orthogonal to the unit vector n and to each other."""
    least = jnp.argmin(jnp.abs(n))
    first = jnp.cross(n, jnp.eye(3, dtype=n.dtype)[least])
    first = first / jnp.sqrt(jnp.dot(first, first))
    return jnp.stack([first, jnp.cross(n, first)])


def face_points(core: FacedCore, n: Array) -> Array:
    """Points (8, 3) of the face or edge of a core that is farthest in the direction n."""
    return core.face(n, TILT * matmul(_compass(n), tangents(n)))


def spread(x: Array, height: Array, valid: Array, count: int) -> Array:
    """The indices (count,) of 2 or 4 of the points x (m, 2) that span a large area.

    The first point has about the least height. `height`, `valid` (m,): the heights of the points,
    and which of them may be chosen.
    """
    # The choice among points of one height must not depend on rounding errors: a shape at rest
    # would rock.
    size = jnp.max(jnp.where(valid[:, None], jnp.abs(x), 0))
    low = valid & (height <= jnp.min(jnp.where(valid, height, jnp.inf)) + _LEVEL * size)
    first = jnp.argmax(jnp.where(low, matmul(x, _compass(x)[0]), -jnp.inf))
    arm = x - x[first][None]
    second = jnp.argmax(jnp.where(valid, jnp.sum(arm * arm, axis=1), -1.0))
    if count == 2:
        return jnp.stack([first, second])
    side = arm[second][0] * arm[:, 1] - arm[second][1] * arm[:, 0]
    sides = jnp.where(valid, side, 0)
    third, fourth = jnp.argmax(sides), jnp.argmin(sides)
    # If all points are on a line, the first two points are repeated.
    tolerance = jnp.sqrt(jnp.finfo(x.dtype).eps) * jnp.sum(arm[second] * arm[second])
    third = jnp.where(sides[third] > tolerance, third, first)
    fourth = jnp.where(sides[fourth] < -tolerance, fourth, second)
    return jnp.stack([first, second, third, fourth])


def _compass(n: Array) -> Array:
    return jnp.asarray(_COMPASS, n.dtype)


def _common_corners(a: Array, b: Array, size: Array) -> tuple[Array, Array]:
    """The ends (32, 2) of the parts of the edges of polygons (8, 2) that lie in the other polygon.

    The second result (32,) is which of them exist. Both polygons are counterclockwise.
    """
    tolerance = jnp.sqrt(jnp.finfo(a.dtype).eps) * size

    def parts(points, other):
        """The ends of the parts of the edges of `points` that lie in `other`."""
        edges = jnp.roll(other, -1, 0) - other
        outward = jnp.stack([edges[:, 1], -edges[:, 0]], axis=1)
        square = jnp.sum(outward * outward, axis=1, keepdims=True)
        long = square > tolerance * tolerance
        outward = jnp.where(long, outward / jnp.sqrt(jnp.where(long, square, 1)), 0)
        # If `other` is only a line, its edges do not bound it at the ends. So lines through its
        # points bound it too: point i is farthest in the direction i of `_COMPASS`.
        normals = jnp.concatenate([outward, _compass(a)])
        limits = jnp.sum(normals * jnp.concatenate([other, other]), axis=1) + tolerance
        # How far each end of an edge is outside of each border.
        start = matmul(points, normals.T) - limits[None]
        end = jnp.roll(start, -1, 0)
        crosses = (start > 0) != (end > 0)
        cut = start / jnp.where(crosses, start - end, 1)
        first = jnp.max(jnp.where(crosses & (start > 0), cut, 0), axis=1)
        last = jnp.min(jnp.where(crosses & (end > 0), cut, 1), axis=1)
        exists = (first <= last) & ~jnp.any((start > 0) & (end > 0), axis=1)
        step = jnp.roll(points, -1, 0) - points
        ends = [points + part[:, None] * step for part in (first, last)]
        return jnp.concatenate(ends), jnp.concatenate([exists, exists])

    (x_a, in_b), (x_b, in_a) = parts(a, b), parts(b, a)
    return jnp.concatenate([x_a, x_b]), jnp.concatenate([in_b, in_a])


def _plane(points: Array, heights: Array, x: Array) -> Array:
    """The heights (m,) at points x (m, 2) of a flat polygon with the corners `points` (k, 2).

    `heights` (k,): the heights of the corners. The results are the heights of the plane through the
    corners. They are limited to the range of `heights`, because a polygon that is almost a line can
    give a plane of any slope. Across a line, the plane is level.
    """
    center, height = jnp.mean(points, axis=0), jnp.mean(heights)
    arm = points - center[None]
    C = matmul(arm.T, arm)
    tiny = jnp.finfo(x.dtype).tiny
    damping = jnp.sqrt(jnp.finfo(x.dtype).eps) * (C[0, 0] + C[1, 1]) + tiny**0.25
    m = jnp.stack([C[0, 0], C[1, 1]]) + damping
    determinant = m[0] * m[1] - C[0, 1] * C[0, 1]
    rise = matmul(arm.T, heights - height)
    slope = jnp.stack([m[1] * rise[0] - C[0, 1] * rise[1], m[0] * rise[1] - C[0, 1] * rise[0]])
    found = height + matmul(x - center[None], slope / determinant)
    # Where a value is equal to a bound, `clip` halves its derivative. On a level face, each value
    # is equal to both bounds. So the bounds have some slack.
    slack = jnp.sqrt(jnp.finfo(x.dtype).eps * lax.stop_gradient(C[0, 0] + C[1, 1]))
    return jnp.clip(found, jnp.min(heights) - slack, jnp.max(heights) + slack)
