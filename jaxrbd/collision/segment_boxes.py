"""Distances of spheres and capsules from boxes, without iterations.

A sphere or a capsule is a segment with a rounding. All vectors are in the frame of the box.

- The squared distance of the point `p + t d` of the segment from the box is a convex function of
  t. Its slope is linear between the values of t at which the line crosses the planes of the faces.
  So the slopes at these crossings and at the ends of the segment are enough to find the zero of the
  slope.
- The separation of a segment and a box that overlap is largest along the normal of a face or along
  the common normal of the segment and an edge. The segment is moved along this direction until it
  is apart from the box. Then its nearest points are found as above.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from .._math.components import Vec3, square_root
from .._math.linear import matmul
from .._math.rules import with_value
from ..spatial import Pose
from .cores import BoxCore
from .segment_points import with_end
from .separation import GAP, Separation, envelope_derivative, separation_at, unit

_SIDES = np.array([[-1.0], [1.0]])  # of the faces along an axis, (2, 1)
_NEXT, _LAST = np.array([1, 2, 0]), np.array([2, 0, 1])  # the other two axes of each axis


class _Pair(NamedTuple):
    """The segment from `p - half d` to `p + half d`, with a unit vector d (3,), and a box."""

    p: Array
    d: Array
    half: Array
    sizes: Array  # half sizes of the box, (3,)

    def separation(self, n: Array) -> Array:
        """The width of the gap along n, the direction from the segment to the box."""
        reach = jnp.dot(jnp.abs(n), self.sizes) + self.half * jnp.abs(jnp.dot(n, self.d))
        return -jnp.dot(n, self.p) - reach

    def gap(self, t: Array) -> Array:
        """The vector from the point t of the segment to the nearest point of the box."""
        x = self.p + t * self.d
        return jnp.clip(x, -self.sizes, self.sizes) - x


def segment_box_separation(
    a: tuple[BoxCore, Array], X_WA: Pose, b: tuple[BoxCore, Array], X_WB: Pose
) -> Separation:
    """The `Separation` of a segment a and a box b, each given by its core and its rounding.

    The core of a is a `BoxCore` with zero sizes along x and y. It may be a point, and the sizes of
    the box may be 0.
    """
    (segment, radius_a), (box, radius_b) = a, b
    p, d = matmul(X_WA.p - X_WB.p, X_WB.R), matmul(X_WA.R[:, 2], X_WB.R)
    pair = _Pair(p, d, segment.half_sizes[2], box.half_sizes)
    widest = _widest_direction(pair)
    width, size, eps = pair.separation(widest), box.extent() + pair.half, jnp.finfo(p.dtype).eps
    apart = width > 64 * eps * (size + jnp.abs(width))
    away = jnp.where(apart, 0, jnp.maximum(GAP * size, eps) - width) * widest
    moved = pair._replace(p=p - away)
    t = _nearest_on_segment(moved)
    gap = moved.gap(t)
    n = jnp.where(apart, unit(gap, widest), widest)
    x = moved.p + t * d
    distance = with_value(_width(pair, n, t, x), pair.separation(n))
    return separation_at(X_WB, distance, x + gap, n, radius_a, radius_b)


@envelope_derivative
def _width(pair: _Pair, n: Array, t: Array, x: Array) -> Array:
    """The width along n of the gap between the point t of the segment and the box.

    `x` (3,): this point, after a segment that overlaps the box was moved apart from it. The point
    of the box is the one nearest to x. It lies on the faces of the box that x is outside of, and
    moves with them.
    """
    point = pair.p + with_end(t, pair.half) * pair.d
    side = jnp.where(jnp.abs(x) > pair.sizes, jnp.sign(x), 0)
    return jnp.sum(jnp.where(side == 0, 0, n * (side * pair.sizes - point)))


def _widest_direction(pair: _Pair) -> Array:
    """The direction of the largest separation, from the segment to the box."""
    p, d, half, sizes = pair
    faces = -_SIDES.astype(p.dtype) * p[None] - (sizes + half * jnp.abs(d))[None]
    # For an edge along the axis e, the common normal is e x d. Its components along the next two
    # axes i and j are -d_j and d_i.
    i, j = _NEXT, _LAST
    length = square_root(d[i] * d[i] + d[j] * d[j])
    crosses = length > 0
    reach = jnp.abs(d[j]) * sizes[i] + jnp.abs(d[i]) * sizes[j]
    across = -_SIDES.astype(p.dtype) * (d[i] * p[j] - d[j] * p[i])[None] - reach[None]
    across = jnp.where(crosses[None], across / jnp.where(crosses, length, 1)[None], -jnp.inf)
    best = jnp.argmax(jnp.concatenate([faces, across]).ravel())
    # XLA may compute the separations again in each kernel, with other rounding errors, but it
    # stores the index. So the axis is computed from the index: then all kernels use the same one.
    axis = (jnp.arange(3) == best % 3).astype(p.dtype)
    side = (2 * ((best // 3) % 2) - 1).astype(p.dtype)
    return side * jnp.where(best < 6, axis, unit(jnp.cross(axis, d), axis))


def _nearest_on_segment(pair: _Pair) -> Array:
    """The t of the point of the segment that is nearest to the box.

    If all points of a part are nearest, as over a parallel face, it is the middle of the part.
    """
    half, eps = pair.half, jnp.finfo(pair.half.dtype).eps
    crosses = jnp.abs(pair.d) > eps
    scale = 1 / jnp.where(crosses, pair.d, 1)
    crossings = (_SIDES.astype(scale.dtype) * pair.sizes[None] - pair.p[None]) * scale[None]
    crossings = jnp.where(crosses[None], jnp.clip(crossings, -half, half), half)
    knots = jnp.concatenate([crossings.ravel(), jnp.stack([-half, half])])

    def slopes(t: Array) -> tuple[Array, Array]:
        """Half the slopes (k,) of the squared distance at t (k,), and bounds of their errors."""
        vectors = (Vec3.from_array(x).components for x in (pair.p, pair.d, pair.sizes))
        x, y, z = (
            d * (p + t * d - jnp.clip(p + t * d, -size, size)) for p, d, size in zip(*vectors)
        )
        return x + y + z, 4 * eps * (jnp.abs(x) + jnp.abs(y) + jnp.abs(z))

    slope, tolerance = slopes(knots)
    falls, rises = slope < -tolerance, slope > tolerance
    # The first nearest point is between the last knot where the distance falls and the next knot,
    # the last one between the first knot where it rises and the knot before. All points of the
    # segment between these two points are nearest.
    ends = jnp.stack(
        [
            jnp.max(jnp.where(falls, knots, -half)),
            jnp.min(jnp.where(rises, knots, half)),
            jnp.min(jnp.where(falls, half, knots)),
            jnp.max(jnp.where(rises, -half, knots)),
        ]
    )
    slope, _ = slopes(ends)
    start, end = ends.reshape(2, 2)
    # Within rounding errors, the slopes in the directions out of the intervals are not negative.
    outward = jnp.maximum(slope.reshape(2, 2) * np.array([[-1, 1], [1, -1]], slope.dtype), 0)
    both = outward[0] + outward[1]
    fraction = jnp.where(both > 0, outward[0] / jnp.where(both > 0, both, 1), 1)
    return jnp.mean(start + fraction * (end - start))
