"""The length of a tendon between two points, past a sphere or around a cylinder.

Both shapes lead to a problem in a plane: the shortest path between two points that does not cross a
disk. For a sphere, the plane contains the center and both points. For a cylinder, the plane is
orthogonal to the axis; the path on the cylinder is a helix, so its length is the hypotenuse of the
length in the plane and the distance along the axis.

From a point at the distance l from the center of the disk with the radius r, the tangent of the
disk has the length `s = sqrt(l^2 - r^2)`. Seen from the center, the angle between the point and the
point of contact is `alpha = acos(r / l)`. For two points with the angle psi between them, the path
has the length

    s_0 + s_1 + r (psi - alpha_0 - alpha_1) = g(l_0) + g(l_1) + r psi,    g(l) = s - r alpha.

The side point is the point `Wrap.side`. It is inside if its distance from the center of the shape
is less than the radius; for a cylinder too, this is the distance from the center, not from the
axis. There are three cases:

- Without a side point, the path goes around the disk on the shorter side, if the straight line
  crosses the disk.
- With a side point outside, the path is the same as without it, except in one case: if the
  direction from the center to the side point is between the directions opposite to the two points,
  the path goes around the longer side.
- With a side point inside, the path does not go around the disk. Instead, where the straight line
  misses the disk, the path bends and touches the disk in the point where both parts of the path
  have the same angle to the normal of the disk. Where the straight line crosses the disk, the path
  is this line.

Source: MuJoCo, XML reference, tendon/spatial; the rule for a side point outside is the
observed behaviour of MuJoCo 4.0.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from .._math.cast import select
from .._math.components import cross, norm, safe_norm, square_root
from .._math.linear import matmul
from .._math.rules import custom_jvp

# Iterations for the point at which a bent tendon touches the disk; about six are usual.
_MAX_ITERATIONS = 60


class Line(NamedTuple):
    """A part of a tendon between two points.

    - `length` () in m; `f_0`, `f_1` (3,): the derivatives of the length with respect to the two
      points. They are unit vectors along the tendon at these points, or zero if the length is zero.
    """

    length: Array
    f_0: Array
    f_1: Array


class _Path(NamedTuple):
    """A path in the plane that touches the disk.

    - `used` (): whether the tendon takes this path; `length` () in m;
    - `by_a`, `by_b` (2,): the derivatives of the length with respect to the two points;
    - `rise_a`, `rise_b` (): the parts of these derivatives that are orthogonal to the plane,
      divided by the distance of the second point from the plane; see `_axes_of_sphere`.
    """

    used: Array
    length: Array
    by_a: Array
    by_b: Array
    rise_a: Array
    rise_b: Array


def wrapped_line(
    x_0: Float[Array, "3"],
    x_1: Float[Array, "3"],
    radius: Float[Array, ""],
    is_sphere: Bool[Array, ""],
    side: Float[Array, "3"] | None = None,
    has_side: Bool[Array, ""] | None = None,
    inside: Int[Array, ""] | None = None,
) -> Line:
    """The part of a tendon from a point x_0 to x_1, past a sphere or around a cylinder.

    - `x_0`, `x_1` in m, in the frame of the shape; the axis of a cylinder is z. Cylinders are
      infinitely long;
    - `side` in m: the side point, in the frame of the shape; it is used if `has_side` is True;
    - `inside`: 1 if the side point is inside, 0 if it is outside, -1 if `side` decides this. If it
      is None, the side point is outside.

    If the tendon does not touch the shape, the line is straight. The length has continuous first
    derivatives where a tendon begins to touch. The side point has no derivatives, because it only
    decides between paths.
    """
    bends = None
    if side is not None and has_side is not None and inside is not None:
        found = _square(lax.stop_gradient(side)) < radius * radius
        bends = has_side & jnp.where(inside < 0, found, inside > 0)
    sphere_axes, rise = _axes_of_sphere(x_0, x_1, bends)
    axes = jnp.where(is_sphere, sphere_axes, np.eye(2, 3, dtype=x_0.dtype))
    rise = jnp.where(is_sphere, rise, 0)
    a, b = matmul(axes, x_0), matmul(axes, x_1)
    axial = jnp.where(is_sphere, 0, x_1[2] - x_0[2])  # the distance along the axis of a cylinder
    if side is None or has_side is None:
        path = _outer_path(a, b, radius)
    else:
        side = lax.stop_gradient(side)
        direction = matmul(lax.stop_gradient(axes), side)
        path = _outer_path(a, b, radius, direction, has_side)
        if bends is not None:
            inner = _inner_path(a, b, radius, bends)
            path = select(bends, inner, path)
    # Unused lengths become 1, so their derivatives are not NaN.
    planar = jnp.where(path.used, path.length, 1)
    length = jnp.sqrt(planar * planar + axial * axial)
    along_axis = jnp.stack([jnp.zeros_like(axial)] * 2 + [axial])

    def force(by_end: Array, rise_by_end: Array, sign: int) -> Array:
        """The derivative (3,) of the length with respect to one end."""
        in_plane = matmul(by_end, axes)
        return (planar * (in_plane + rise_by_end * rise) + sign * along_axis) / length

    straight = straight_line(x_0, x_1)
    f_0, f_1 = force(path.by_a, path.rise_a, -1), force(path.by_b, path.rise_b, 1)
    wrapped = Line(length, f_0, f_1)
    return select(path.used, wrapped, straight)


def straight_line(x_0: Float[Array, "3"], x_1: Float[Array, "3"]) -> Line:
    """The straight line from a point x_0 to x_1; without a length, its derivatives are zero."""
    step = x_1 - x_0
    length = safe_norm(step)
    unit = step / jnp.where(length > 0, length, 1)
    return Line(length, -unit, unit)


def _axes_of_sphere(x_0: Array, x_1: Array, bends: Array | None = None) -> tuple[Array, Array]:
    """Two axes (2, 3) of the plane through the center and both points; x_0 is on the first axis.

    For points in line with the center, any plane through this line is right. The second result (3,)
    is the displacement of x_1 from the plane. It is zero at points in line, but its derivatives are
    not zero: from them, the forces of a path with the side point inside (`bends`) get their first
    derivatives. The length of such a path is smooth, so points near a line through the center count
    as in line too. The length of a path around the disk has a kink for points in line, so there
    points count as in line only within rounding errors.
    """
    eps = jnp.finfo(x_0.dtype).eps
    l, l_1 = safe_norm(x_0), safe_norm(x_1)
    first = x_0 / jnp.where(l > 0, l, 1)
    normal = cross(x_0, x_1)
    sine = safe_norm(normal)
    least = 64 * eps if bends is None else jnp.where(bends, jnp.sqrt(eps), 64 * eps)
    spans_plane = sine > least * l * l_1
    # `other`: a unit vector orthogonal to `first`, the normal of the plane for points in line.
    largest = jnp.arange(3) == jnp.argmax(jnp.abs(first))
    other = cross(first, jnp.where(largest, 0, jnp.ones_like(first)))
    other = other / jnp.where(l > 0, norm(jnp.where(l > 0, other, 1)), 1)
    other = lax.stop_gradient(other)
    normal = jnp.where(spans_plane, normal / jnp.where(spans_plane, sine, 1), other)
    height = jnp.dot(other, x_1) - l_1 * jnp.dot(other, first)
    return jnp.stack([first, cross(normal, first)]), jnp.where(spans_plane, 0, height * other)


def _outer_path(
    a: Array, b: Array, r: Array, side: Array | None = None, has_side: Array | None = None
) -> _Path:
    """The path around the disk; `side` (2,): the side point."""
    l_a, l_b = safe_norm(a), safe_norm(b)
    # A point on the surface counts as outside, in spite of rounding errors.
    least_distance = r * (1 - 64 * jnp.finfo(r.dtype).eps)
    outside = (l_a >= least_distance) & (l_b >= least_distance) & (r > 0) & _differ(a, b)
    # Other values in place of points inside the disk, so that all derivatives are finite.
    radius = jnp.where(outside, r, 1)
    l_a, l_b = (jnp.maximum(jnp.where(outside, l, 2), radius) for l in (l_a, l_b))
    psi = _angle(a, b)
    sense = jnp.where(psi <= jnp.pi, 1, -1)
    used = _square(_nearest_point(a, b)) < r * r
    if side is not None and has_side is not None:
        # The shorter path passes the directions between a and b. The path becomes the longer one if
        # the direction of the side point is between -a and -b.
        sine = _cross(a, b)
        is_opposite = (sine * _cross(a, side) < 0) & (sine * _cross(side, b) < 0) & has_side
        sense = jnp.where(is_opposite, -sense, sense)
        used = used | is_opposite
    angle = jnp.where(sense > 0, psi, 2 * jnp.pi - psi)
    length = _excess(l_a, radius) + _excess(l_b, radius) + radius * angle

    def by_end(x: Array, l: Array, sense: Array) -> Array:
        tangent = square_root((l - radius) * (l + radius))
        return (tangent * x + sense * radius * _quarter_turn(x)) / (l * l)

    by_a, by_b = by_end(a, l_a, -sense), by_end(b, l_b, sense)
    return _Path(outside & used, length, by_a, by_b, jnp.zeros_like(r), jnp.zeros_like(r))


def _inner_path(a: Array, b: Array, r: Array, inside: Array) -> _Path:
    """The path that bends towards the disk; `inside`: whether the side point is inside."""
    l_a, l_b = safe_norm(a), safe_norm(b)
    nearest = _nearest_point(a, b)
    between = jnp.any(nearest != a) & jnp.any(nearest != b)
    crosses = between & (_square(nearest) <= r * r)
    used = inside & (l_a > r) & (l_b > r) & (r > 0) & ~crosses
    # Other values in place of points of straight lines, so that all derivatives are finite.
    a, b = (jnp.where(used, x, jnp.asarray(y, x.dtype)) for x, y in ((a, [2, 0]), (b, [0, 2])))
    l_a, l_b, r = (jnp.where(used, x, y) for x, y in ((l_a, 2.0), (l_b, 2.0), (r, 1.0)))
    psi = _angle(a, b)
    sense = jnp.where(psi <= jnp.pi, 1, -1)
    psi = jnp.where(sense > 0, psi, 2 * jnp.pi - psi)
    fixed = lax.stop_gradient((l_a, l_b, r, psi))
    phi = lax.stop_gradient(_touching_angle(*fixed))
    # One more step of Newton's method, with a constant slope, has the first derivatives of the
    # exact angle.
    slope = lax.stop_gradient(_mismatch_rate(phi, *fixed))
    phi = phi - _mismatch(phi, l_a, l_b, r, psi) / slope
    point = r / l_a * (jnp.cos(phi) * a + sense * jnp.sin(phi) * _quarter_turn(a))
    (d_a, by_a), (d_b, by_b) = ((safe_norm(x - point), x - point) for x in (a, b))
    # The second derivatives of the length for points in line, where phi and psi are 0. For points
    # at the small distances a_1 and b_1 from this line, and at the heights h above the disk, the
    # length is least at r phi = (a_1 / h_a + b_1 / h_b) / k.
    h_a, h_b = l_a - r, l_b - r
    k = 2 / r + 1 / h_a + 1 / h_b
    rise_a, rise_b = -1 / (h_a * h_b * k), (1 - 1 / (h_b * k)) / h_b
    return _Path(used, d_a + d_b, by_a / d_a, by_b / d_b, rise_a, rise_b)


def _touching_angle(l_a: Array, l_b: Array, r: Array, psi: Array) -> Array:
    """The angle phi from a to the touching point, by Newton's method in a bracket.

    `_mismatch` increases with phi, and is zero between 0 and psi.
    """

    def body(state):
        phi, low, high, count, _ = state
        value = _mismatch(phi, l_a, l_b, r, psi)
        low, high = jnp.where(value <= 0, phi, low), jnp.where(value >= 0, phi, high)
        newton = phi - value / _mismatch_rate(phi, l_a, l_b, r, psi)
        inner = (newton >= low) & (newton <= high)
        after = jnp.where(inner, newton, (low + high) / 2)
        return after, low, high, count + 1, jnp.abs(after - phi)

    # The number of correct digits doubles in each step of Newton's method. So after a change by
    # sqrt(eps), only rounding errors are left.
    enough = np.sqrt(jnp.finfo(psi.dtype).eps).astype(psi.dtype) * psi

    def unfinished(state):
        *_, count, change = state
        return (count < _MAX_ITERATIONS) & (change > enough)

    # The start divides the angle in the ratio of the heights of a and b above the disk. It is exact
    # if a and b are close to the disk, where the border of the disk is nearly straight.
    start = psi * (l_a - r) / (l_a - r + l_b - r)
    state = start, jnp.zeros_like(psi), psi, jnp.zeros((), jnp.int32), jnp.ones_like(psi)
    return lax.while_loop(unfinished, body, state)[0]


def _mismatch(phi: Array, l_a: Array, l_b: Array, r: Array, psi: Array) -> Array:
    """The difference of the angles between the normal of the disk and the lines to a and to b."""
    (x, y), (u, w) = (
        (l * jnp.cos(angle) - r, l * jnp.sin(angle)) for l, angle in ((l_a, phi), (l_b, psi - phi))
    )
    return jnp.arctan2(y * u - x * w, x * u + y * w)


def _mismatch_rate(phi: Array, l_a: Array, l_b: Array, r: Array, psi: Array) -> Array:
    """The derivative of `_mismatch` with respect to phi, which is positive."""

    def rate(l, angle):
        # The square of the distance. The law of cosines would lose digits.
        square = (l - r) ** 2 + 4 * l * r * jnp.sin(angle / 2) ** 2
        return l * (l - r * jnp.cos(angle)) / square

    return rate(l_a, phi) + rate(l_b, psi - phi)


@custom_jvp
def _excess(l: Array, r: Array) -> Array:
    """`g(l) = sqrt(l^2 - r^2) - r acos(r / l)`, for l of at least r."""
    return square_root((l - r) * (l + r)) - r * _tangent_angle(l, r)


@_excess.defjvp
def _(primals, tangents):
    # The derivatives of the two terms with respect to l are infinite at l = r. Their sum is finite.
    (l, r), (dl, dr) = primals, tangents
    return _excess(l, r), square_root((l - r) * (l + r)) / l * dl - _tangent_angle(l, r) * dr


def _tangent_angle(l: Array, r: Array) -> Array:
    """`acos(r / l)`, for l of at least r."""
    return jnp.arctan2(square_root((l - r) * (l + r)), r)


def _angle(a: Array, b: Array) -> Array:
    """The angle from a to b, counterclockwise, from 0 to 2 pi; 0 if a or b is zero."""
    sine, cosine = _cross(a, b), jnp.dot(a, b)
    zero = (sine == 0) & (cosine == 0)
    angle = jnp.arctan2(sine, jnp.where(zero, 1, cosine))
    return jnp.where(angle < 0, angle + 2 * jnp.pi, angle)


def _nearest_point(a: Array, b: Array) -> Array:
    """The point of the segment from a to b that is nearest to the origin; without derivatives."""
    a, b = lax.stop_gradient((a, b))
    step = b - a
    square = _square(step)
    part = jnp.clip(-jnp.dot(a, step) / jnp.where(square > 0, square, 1), 0, 1)
    return jnp.where(part < 1, a + part * step, b)


def _cross(a: Array, b: Array) -> Array:
    return a[0] * b[1] - a[1] * b[0]


def _quarter_turn(x: Array) -> Array:
    """The vector (2,) turned counterclockwise by a right angle."""
    return jnp.stack([-x[1], x[0]])


def _differ(a: Array, b: Array) -> Array:
    """Whether two points differ by more than rounding errors."""
    return safe_norm(b - a) > 64 * jnp.finfo(a.dtype).eps * (safe_norm(a) + safe_norm(b))


def _square(x: Array) -> Array:
    return jnp.dot(x, x, precision="highest")
