"""Distances of spheres and capsules from cylinders.

A sphere or a capsule is a segment with a rounding. All vectors are in the frame of the cylinder,
whose axis is z.

- The squared distance of the point `p + t d` of the segment from the cylinder is a convex function
  of t. The line crosses the planes of the ends and the round side at up to four values of t, and it
  is nearest to the axis at another one. Between these values the slope of the squared distance is
  smooth, and it is convex or concave. So Newton's method for the zero of the slope converges from
  one side. Only its first step can pass the zero; this step ends at the end of the interval.
- The separation of a segment and a cylinder that overlap is largest along one of five directions:
  the axis of the cylinder; the two directions from this axis to the ends of the segment; the
  direction orthogonal to both axes; and, of the directions orthogonal to the segment, the one with
  the largest separation from the rim of an end of the cylinder. Seen along the segment, this rim
  is an ellipse, and the segment is a point. The last direction is the normal of the ellipse at its
  point nearest to this point.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .._math.components import safe_norm, square_root
from .._math.linear import matmul
from .._math.rules import with_value
from ..spatial import Pose
from .cores import BoxCore, CylinderCore
from .segment_points import with_end
from .separation import GAP, Separation, envelope_derivative, separation_at, unit

# Steps of Newton's method for the nearest point of a segment, and for a direction. One more step
# gives the derivatives. The first number is large because of lines that touch the round side.
# There, the slope of the squared distance is a cubic function near its zero, and each step only
# removes a third of the error.
_POINT_STEPS, _DIRECTION_STEPS = 20, 10
# The tangents of half the angles, from 0 to a right angle, among which the search for a direction
# starts.
_TANGENTS = np.linspace(0, 1, 9)


class _Pair(NamedTuple):
    """The segment from `p - half d` to `p + half d`, with a unit vector d (3,), and a cylinder."""

    p: Array
    d: Array
    half: Array
    radius: Array  # of the cylinder
    length: Array  # half the length of the cylinder

    def separation(self, n: Array) -> Array:
        """The width of the gap along n, the direction from the segment to the cylinder."""
        across = safe_norm(n[:2])
        reach = self.radius * across + self.length * jnp.abs(n[2])
        return -jnp.dot(n, self.p) - reach - self.half * jnp.abs(jnp.dot(n, self.d))

    def nearest(self, x: Array) -> Array:
        """The point of the cylinder that is nearest to x."""
        from_axis = jnp.maximum(safe_norm(x[:2]), self.radius)
        ratio = self.radius / jnp.where(from_axis > 0, from_axis, 1)
        end = jnp.where(x[2] > 0, self.length, -self.length)
        return jnp.append(ratio * x[:2], jnp.where(self.outside(x)[1], end, x[2]))

    def outside(self, x: Array) -> tuple[Array, Array]:
        """Whether x is beside the cylinder, and whether it is beyond one of its ends.

        Each x is beside a cylinder without radius, and beyond the ends of one without length.
        """
        beside = (x[0] * x[0] + x[1] * x[1] > self.radius * self.radius) | (self.radius == 0)
        return beside, (jnp.abs(x[2]) > self.length) | (self.length == 0)


def segment_cylinder_separation(
    a: tuple[BoxCore, Array], X_WA: Pose, b: tuple[CylinderCore, Array], X_WB: Pose
) -> Separation:
    """The `Separation` of a segment a and a cylinder b with roundings.

    The segment is a box along its z axis. It may be a point, and the sizes of the cylinder may be
    0.
    """
    (segment, radius_a), (cylinder, radius_b) = a, b
    p, d = matmul(X_WA.p - X_WB.p, X_WB.R), matmul(X_WA.R[:, 2], X_WB.R)
    pair = _Pair(p, d, segment.half_sizes[2], *cylinder.sizes)
    size, eps = cylinder.extent() + pair.half, jnp.finfo(p.dtype).eps
    x = p + _nearest_on_segment(pair) * d
    gap = pair.nearest(x) - x
    length = square_root(jnp.dot(gap, gap))
    tolerance = 64 * eps * (size + length)
    widest = _widest_direction(pair)
    across, width = unit(gap, widest), pair.separation(widest)
    # Rounding errors turn the direction of a small gap, and then another one is better.
    apart = (length > tolerance) & (pair.separation(across) > width - tolerance)
    n = jnp.where(apart, across, widest)
    moved = pair._replace(p=p - jnp.where(apart, 0, jnp.maximum(GAP * size, eps) - width) * n)
    t = _nearest_on_segment(moved)
    x = moved.p + t * d
    distance = with_value(_width(pair, n, t, x), jnp.where(apart, length, width))
    point_b = moved.nearest(x)
    return separation_at(X_WB, distance, point_b, n, radius_a, radius_b)


@envelope_derivative
def _width(pair: _Pair, n: Array, t: Array, x: Array) -> Array:
    """The width along n of the gap between the point t of the segment and the cylinder.

    The point of the cylinder is the one nearest to x. If x is beyond an end or beside the round
    side, the point stays on this surface when the radius and the length change.
    """
    point = pair.p + with_end(t, pair.half) * pair.d
    from_axis = safe_norm(x[:2])
    outward = x[:2] / jnp.where(from_axis > 0, from_axis, 1)
    across = jnp.dot(n[:2], pair.radius * outward - point[:2])
    along = n[2] * (jnp.sign(x[2]) * pair.length - point[2])
    beside, beyond = pair.outside(x)
    return jnp.where(beside, across, 0) + jnp.where(beyond, along, 0)


def _around_axis(pair: _Pair) -> Array:
    """The t (3,) where the line enters the round side, is nearest to the axis, and leaves it.

    A line that does not meet the round side has three equal values; for a line along the axis, they
    are the end of the segment.
    """
    (px, py, _), (dx, dy, _) = pair.p, pair.d
    slope_square = dx * dx + dy * dy
    tilted = slope_square > jnp.finfo(slope_square.dtype).eps ** 2
    divisor = jnp.where(tilted, slope_square, 1)
    nearest = -(px * dx + py * dy) / divisor
    cross = px * dy - py * dx  # its square is the squared least distance times the divisor
    room = jnp.maximum(pair.radius * pair.radius - cross * cross / divisor, 0)
    inside = square_root(room) / jnp.sqrt(divisor)
    around = jnp.stack([nearest - inside, nearest, nearest + inside])
    return jnp.where(tilted, around, pair.half)


def _slope(pair: _Pair, t: Array, part: Array) -> tuple[Array, Array, Array]:
    """Half the slope of the squared distance at t, a bound of its error, and its derivative.

    The formula depends on whether the point is beside the cylinder, and whether it is beyond an
    end. `part` () in m: the coordinate of the point that selects the formula, t or near t.
    """
    (x, y, z), (dx, dy, dz) = pair.p + t * pair.d, pair.d
    middle = pair.p + part * pair.d
    beside, past_end = pair.outside(middle)
    beyond = jnp.where(past_end, z - jnp.sign(middle[2]) * pair.length, 0)
    from_axis = square_root(x * x + y * y)
    from_axis = jnp.where(from_axis > 0, from_axis, 1)
    growth, ratio = x * dx + y * dy, jnp.where(beside, pair.radius / from_axis, 1)
    slope = dz * beyond + (1 - ratio) * growth
    error = 4 * jnp.finfo(t.dtype).eps * (jnp.abs(beyond) + jnp.abs(1 - ratio) * from_axis)
    curvature = jnp.where(past_end, dz * dz, 0) + (1 - ratio) * (dx * dx + dy * dy)
    curvature += jnp.where(beside, ratio * (growth / from_axis) ** 2, 0)
    return slope, error, curvature


def _nearest_on_segment(pair: _Pair) -> Array:
    """The t of the point of the segment that is nearest to the cylinder.

    If all points of a part are nearest, as over an end or along the side, it is the middle of the
    part.
    """
    half = pair.half
    rising = jnp.abs(pair.d[2]) > jnp.finfo(half.dtype).eps
    ends = jnp.stack([-pair.length, pair.length]) - pair.p[2]
    ends = jnp.where(rising, ends / jnp.where(rising, pair.d[2], 1), half)
    crossings = jnp.concatenate([_around_axis(pair), ends])
    # The nearest point of a segment without length does not move along the segment.
    crossings = jnp.where(half > 0, crossings, lax.stop_gradient(crossings))
    knots = jnp.append(jnp.clip(crossings, -half, half), jnp.stack([-half, half]))
    slope, error, _ = jax.vmap(_slope, (None, 0, 0))(pair, knots, knots)
    falls, rises = slope < -error, slope > error
    last_fall = jnp.max(jnp.where(falls, knots, -half))
    first_rise = jnp.min(jnp.where(rises, knots, half))
    # The ends of a part where the distance does not change. If there is no such part, because the
    # slope has its zero between two knots, they are `first_rise` and `last_fall`.
    flat_from = jnp.min(jnp.where(falls, half, knots))
    flat_to = jnp.max(jnp.where(rises, -half, knots))
    fixed, middle = lax.stop_gradient((pair, (last_fall + first_rise) / 2))

    def newton(pair, t):
        slope, _, curvature = _slope(pair, t, middle)
        return t - slope / jnp.where(curvature > 0, curvature, 1)

    def step(_, t):
        return jnp.clip(newton(fixed, t), last_fall, first_rise)

    t = lax.fori_loop(0, _POINT_STEPS, step, lax.stop_gradient(first_rise))
    root = with_value(newton(pair, t), t)
    return jnp.where(flat_to < flat_from, root, (flat_from + flat_to) / 2)


def _widest_direction(pair: _Pair) -> Array:
    """The direction of the largest separation, from the segment to a cylinder that it overlaps."""
    p, d = pair.p, pair.d
    z, x = (jnp.asarray(v, p.dtype) for v in ([0, 0, 1], [1, 0, 0]))
    across = unit(jnp.stack([-d[1], d[0], jnp.zeros_like(d[0])]), x)
    up = jnp.cross(d, across)
    sides = [_side(jnp.dot(v, p)) * v for v in (z, across, up)]
    end = pair.half * d
    outward = [-unit((p + s * end).at[2].set(0), sides[1]) for s in (-1, 1)]
    c, s = _normal_of_ellipse(pair, -jnp.dot(sides[1], p), -jnp.dot(sides[2], p))
    directions = jnp.stack([*sides[:2], *outward, s * sides[1] + c * sides[2]])
    best = jnp.argmax(jax.vmap(pair.separation)(directions))
    return directions[best]


def _side(x: Array) -> Array:
    """-1 for a number that is 0 or more, else 1."""
    return jnp.where(x < 0, 1, -1).astype(x.dtype)


def _normal_of_ellipse(pair: _Pair, x: Array, y: Array) -> tuple[Array, Array]:
    """The cosine and the sine of the angle of the direction with the largest separation from a rim.

    - `x`, `y` (): the position of the middle of the cylinder relative to the segment, 0 or more, in
      the plane across the segment. The x axis is also across the axis of the cylinder. The angle is
      measured from the y axis.

    In this plane, the rim is an ellipse with the semi-axes r and b along x and y. Relative to its
    middle, the points of the quarter towards the segment are `-(r s, b c)` with the sine s and the
    cosine c of another angle, and the normals towards the middle are proportional to `(b s, r c)`.
    The distance from the segment to such a point is a function of u, the tangent of half this
    angle. Newton's method finds the root of its derivative.
    """
    k, m = jnp.abs(pair.d[2]), safe_norm(pair.d[:2])
    r, b = pair.radius, k * pair.radius
    y = y - pair.length * m  # relative to the middle of the rim

    def circle(u):
        return (1 - u * u) / (1 + u * u), 2 * u / (1 + u * u)

    def normal(c, s):
        # An ellipse without width has the normal y.
        square = k * k * s * s + c * c
        known = square > 0
        scale = 1 / jnp.sqrt(jnp.where(known, square, 1))
        return jnp.where(known, scale * c, 1), scale * k * s, scale

    def width(u):
        c, s = circle(u)
        along_y, along_x, scale = normal(c, s)
        return x * along_x + y * along_y - r * k * scale

    def derivative(u, r, b, x, y):
        """Minus half the derivative of the squared distance by the angle.

        The second result is the derivative of the first one by u.
        """
        c, s = circle(u)
        rate = r * (-s * (x - r * s) - r * c * c) - b * (c * (y - b * c) + b * s * s)
        return r * c * (x - r * s) - b * s * (y - b * c), rate * 2 / (1 + u * u)

    def newton(u, *at):
        value, rate = derivative(u, *at)
        return u - value / jnp.where(rate != 0, rate, 1)

    fixed = lax.stop_gradient((r, b, x, y))
    tangents = jnp.asarray(_TANGENTS, x.dtype)
    best = jnp.argmax(width(tangents))
    spacing = tangents[1]
    u = best.astype(x.dtype) * spacing
    low, high = jnp.maximum(u - spacing, 0), jnp.minimum(u + spacing, 1)

    def step(_, state):
        u, low, high = state
        decreases = derivative(u, *fixed)[0] > 0
        low, high = jnp.where(decreases, u, low), jnp.where(decreases, high, u)
        u = newton(u, *fixed)
        return jnp.where((u >= low) & (u <= high), u, (low + high) / 2), low, high

    u, _, _ = lax.fori_loop(0, _DIRECTION_STEPS, step, lax.stop_gradient((u, low, high)))
    along_y, along_x, _ = normal(*circle(with_value(newton(u, r, b, x, y), u)))
    return along_y, along_x
