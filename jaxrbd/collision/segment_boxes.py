"""Distances of spheres and capsules from boxes, without iterations.

A sphere or a capsule is a segment with a rounding. All vectors are in the frame of the box.

- The squared distance of the point `p + t d` of the segment from the box is a convex function of
  t. Its slope is linear between the places t at which the line crosses the planes of the faces. So
  the slopes at these places and at the ends of the segment are enough to find its zero.
- The separation of a segment and a box that overlap is largest along the normal of a face or along
  a vector across the segment and an edge, which is orthogonal to both. The segment moves along
  this direction until it is apart, and then its nearest points are those of the overlap.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from .._math.components import Vec3
from .._math.linear import matmul
from ..spatial import Pose
from .cores import BoxCore
from .separation import GAP, Separation, at_fixed_rest, with_value


class _Pair(NamedTuple):
    """The segment from `p - half d` to `p + half d`, with a unit vector d, and a box."""

    p: Vec3
    d: Vec3
    half: Array
    sizes: Vec3  # half sizes of the box

    def separation(self, n: Vec3) -> Array:
        """The width of the gap along n, the direction from the segment to the box."""
        reach = _absolute(n).dot(self.sizes) + self.half * jnp.abs(n.dot(self.d))
        return -n.dot(self.p) - reach

    def gap(self, t: Array) -> Vec3:
        """The vector from the point t of the segment to the nearest point of the box."""
        x = self.p + t * self.d
        pairs = zip(x.components, self.sizes.components)
        return Vec3(*(jnp.clip(x, -size, size) - x for x, size in pairs))


def segment_box_separation(
    a: tuple[BoxCore, Array], X_WA: Pose, b: tuple[BoxCore, Array], X_WB: Pose
) -> Separation:
    """The `Separation` of a segment a and a box b with roundings.

    The segment is a box along its z axis. It may be a point, and the sizes of the box may be 0.
    """
    (segment, radius_a), (box, radius_b) = a, b
    p, d = matmul(X_WA.p - X_WB.p, X_WB.R), matmul(X_WA.R[:, 2], X_WB.R)
    shapes = (p, d, segment.half_sizes[2], box.half_sizes)
    t, away, n, separation = _touch(*shapes)
    x = p + t * d - away
    distance = with_value(_width(shapes, n, t, x), separation)
    point_b = jnp.clip(x, -box.half_sizes, box.half_sizes)
    return Separation(
        distance - radius_a - radius_b,
        matmul(X_WB.R, point_b + (radius_a - distance) * n) + X_WB.p,
        matmul(X_WB.R, point_b - radius_b * n) + X_WB.p,
        matmul(X_WB.R, n),
    )


@at_fixed_rest
def _width(shapes: tuple[Array, ...], n: Array, t: Array, x: Array) -> Array:
    """The width along n of the gap between the point t of the segment and the box.

    The point of the box is the one that is nearest to x, and it moves with the faces. `shapes` has
    the entries of a `_Pair` as arrays.
    """
    p, d, half, sizes = shapes
    end = jnp.where(jnp.abs(t) >= half, jnp.sign(t), 0)
    point = p + jnp.where(end == 0, t, end * half) * d
    side = jnp.where(jnp.abs(x) > sizes, jnp.sign(x), 0)
    return jnp.sum(jnp.where(side == 0, 0, n * (side * sizes - point)))


def _touch(p: Array, d: Array, half: Array, sizes: Array) -> tuple[Array, Array, Array, Array]:
    """Where a segment and a box are nearest to each other.

    Returns the place t () on the segment, the movement (3,) of the box after which the shapes are
    apart, the direction n (3,) from the segment to the box, and the separation () along n.
    """
    pair = _Pair(*map(Vec3.from_array, (p, d)), half, Vec3.from_array(sizes))
    widest, width = _widest_direction(pair)
    size, eps = sum(pair.sizes.components) + half, jnp.finfo(width.dtype).eps
    apart = width > 64 * eps * (size + jnp.abs(width))
    away = jnp.where(apart, 0, jnp.maximum(GAP * size, eps) - width) * widest
    moved = pair._replace(p=pair.p - away)
    t = _nearest_on_segment(moved)
    gap = moved.gap(t)
    # If both nearly touch, the direction of the gap can be that of rounding errors.
    direct = _inverse_length(gap.dot(gap)) * gap
    better = apart & (pair.separation(direct) > width)
    n = Vec3(*(jnp.where(better, *pairs) for pairs in zip(direct.components, widest.components)))
    return t, _array(away), _array(n), pair.separation(n)


def _widest_direction(pair: _Pair) -> tuple[Vec3, Array]:
    """The direction of the largest separation, from the segment to the box, and this separation."""
    d = pair.d.components
    zero, one = jnp.zeros_like(pair.half), jnp.ones_like(pair.half)
    directions = [Vec3(*(one if i == k else zero for i in range(3))) for k in range(3)]
    for k in range(3):
        i, j = (k + 1) % 3, (k + 2) % 3
        scale = _inverse_length(d[i] * d[i] + d[j] * d[j])
        across = [zero, zero, zero]
        # For a segment along the edge, another direction takes the place.
        across[i], across[j] = jnp.where(scale > 0, -d[j] * scale, 1), d[i] * scale
        directions.append(Vec3(*across))
    best, width = None, None
    for n in directions:
        n = jnp.where(n.dot(pair.p) > 0, -1, 1) * n
        separation = pair.separation(n)
        if best is None:
            best, width = n, separation
            continue
        wider = separation > width
        best = Vec3(*(jnp.where(wider, x, y) for x, y in zip(n.components, best.components)))
        width = jnp.where(wider, separation, width)
    return best, width


def _nearest_on_segment(pair: _Pair) -> Array:
    """The place t of the point of the segment that is nearest to the box.

    If all points of a part are nearest, as over a parallel face, it is the middle of the part.
    """
    half, eps = pair.half, jnp.finfo(pair.half.dtype).eps
    places = [-half, half]
    for p, d, size in zip(pair.p.components, pair.d.components, pair.sizes.components):
        crosses = jnp.abs(d) > eps
        scale = 1 / jnp.where(crosses, d, 1)
        for face in (-size, size):
            place = jnp.clip((face - p) * scale, -half, half)
            places.append(jnp.where(crosses, place, half))

    def slope(t: Array) -> tuple[Array, Array]:
        """Half the slope of the squared distance at t, and its rounding error."""
        parts = [-d * x for d, x in zip(pair.d.components, pair.gap(t).components)]
        return sum(parts), 4 * eps * sum(jnp.abs(part) for part in parts)

    # The last place where the distance falls and the place after it, and the first place where it
    # rises and the place before it.
    falls, after, rises, before = -half, half, half, -half
    for place in places:
        value, room = slope(place)
        is_low, is_high = value < -room, value > room
        falls = jnp.where(is_low, jnp.maximum(falls, place), falls)
        after = jnp.where(is_low, after, jnp.minimum(after, place))
        rises = jnp.where(is_high, jnp.minimum(rises, place), rises)
        before = jnp.where(is_high, before, jnp.maximum(before, place))

    def zero(start: Array, end: Array) -> Array:
        """The zero of the slope between two places, or the second place if there is none."""
        first, last = slope(start)[0], slope(end)[0]
        crosses = first * last < 0
        part = first / jnp.where(crosses, first - last, 1)
        return jnp.where(crosses, start + part * (end - start), end)

    return (zero(falls, after) + zero(rises, before)) / 2


def _inverse_length(square: Array) -> Array:
    """1 / length, from the square of a length; 0 if the square has lost digits to underflow."""
    known = square > jnp.finfo(square.dtype).tiny / jnp.finfo(square.dtype).eps
    return jnp.where(known, 1 / jnp.sqrt(jnp.where(known, square, 1)), 0)


def _absolute(v: Vec3) -> Vec3:
    return Vec3(*(jnp.abs(x) for x in v.components))


def _array(v: Vec3) -> Array:
    """The components (3,) of a vector.

    XLA does not vectorize a kernel that ends with a concatenation. All work of this file is one
    kernel, and so a choice is 30 times faster.
    """
    axis = jnp.arange(3)
    return jnp.where(axis == 0, v.x, jnp.where(axis == 1, v.y, v.z))
