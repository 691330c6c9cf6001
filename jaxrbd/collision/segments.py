"""Distances of spheres and capsules, which are segments with roundings."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .._math.components import cross, square_root
from ..spatial import Pose
from .cores import BoxCore
from .segment_points import nearest_on_segments
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
    c, along_a, along_b = (
        jnp.dot(*x) for x in ((axis_a, axis_b), (axis_a, between), (axis_b, between))
    )
    s, t = nearest_on_segments(half_a, half_b, c, along_a, along_b)
    gap = between + t * axis_b - s * axis_a
    length = square_root(jnp.dot(gap, gap))
    tolerance = 16 * jnp.finfo(gap.dtype).eps * (jnp.max(jnp.abs(between)) + half_a + half_b)
    apart = length > tolerance
    n = jnp.where(apart, gap / jnp.where(apart, length, 1), _across(axis_a, axis_b, half_a, half_b))
    distance = jnp.where(apart, length, jnp.dot(n, gap)) - radius_a - radius_b
    point_a = X_WA.p + s * axis_a + radius_a * n
    return Separation(distance, point_a, point_a + distance * n, n)


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
