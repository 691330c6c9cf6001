"""Distances of spheres and capsules: closed forms for the nearest points of two segments."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .._math.components import cross, square_root
from ..spatial import Pose
from .cores import BoxCore
from .separation import Separation


def segment_separation(
    a: tuple[BoxCore, Array], X_WA: Pose, b: tuple[BoxCore, Array], X_WB: Pose
) -> Separation:
    """The `Separation` of two segments with roundings; a segment is a box along its z axis.

    Either segment may be a point.
    """
    (core_a, radius_a), (core_b, radius_b) = a, b
    half_a, half_b = core_a.half_sizes[2], core_b.half_sizes[2]
    axis_a, axis_b = X_WA.R[:, 2], X_WB.R[:, 2]
    between = X_WB.p - X_WA.p
    s, t = _nearest_points(half_a, half_b, axis_a, axis_b, between)
    gap = between + t * axis_b - s * axis_a
    length = square_root(jnp.dot(gap, gap))
    rounding = 16 * jnp.finfo(gap.dtype).eps * (jnp.max(jnp.abs(between)) + half_a + half_b)
    apart = length > rounding
    n = jnp.where(apart, gap / jnp.where(apart, length, 1), _across(axis_a, axis_b, half_a, half_b))
    distance = jnp.where(apart, length, jnp.dot(n, gap)) - radius_a - radius_b
    point_a = X_WA.p + s * axis_a + radius_a * n
    return Separation(distance, point_a, point_a + distance * n, n)


def _nearest_points(
    half_a: Array, half_b: Array, axis_a: Array, axis_b: Array, between: Array
) -> tuple[Array, Array]:
    """The coordinates s and t in m of the nearest points along the axes of segments a and b.

    For parallel segments, the points are in the middle of the part in which they face each other.
    `between` (3,): from the middle of a to the middle of b. Source: Ericson (2005), Real-time
    collision detection, section 5.1.9, with coordinates from the middles of the segments.
    """
    c = jnp.dot(axis_a, axis_b)
    along_a, along_b = jnp.dot(axis_a, between), jnp.dot(axis_b, between)
    determinant = 1 - c * c
    crossing = determinant > 16 * jnp.finfo(c.dtype).eps
    of_lines = (along_a - c * along_b) / jnp.where(crossing, determinant, 1)
    ends = [jnp.clip(along_a + c * t, -half_a, half_a) for t in (-half_b, half_b)]
    s = jnp.where(crossing, jnp.clip(of_lines, -half_a, half_a), (ends[0] + ends[1]) / 2)
    t = jnp.clip(c * s - along_b, -half_b, half_b)
    # If t was limited, its point is an end of b. So s is computed again for the final t.
    return jnp.clip(along_a + c * t, -half_a, half_a), t


def _across(axis_a: Array, axis_b: Array, half_a: Array, half_b: Array) -> Array:
    """A unit vector orthogonal to both segments; without derivatives."""
    axis = jnp.where(half_a > 0, axis_a, axis_b)
    # Of the coordinate axes, the one with the largest angle to the axis.
    other = (np.arange(3) == jnp.argmin(jnp.abs(axis))).astype(axis.dtype)
    both = (half_a > 0) & (half_b > 0)
    n = jnp.where(both, cross(axis_a, axis_b), 0)
    crossing = jnp.dot(n, n) > 16 * jnp.finfo(n.dtype).eps
    n = jnp.where(crossing, n, cross(axis, other))
    return lax.stop_gradient(n / jnp.sqrt(jnp.dot(n, n)))
