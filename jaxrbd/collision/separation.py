"""Signed distances of two shapes, with their nearest points.

The separation along a direction n is the width of the gap between two shapes along n. If they
overlap along n, it is minus the width of the overlap. The signed distance is the largest separation
over all directions: the distance of shapes that are apart, and minus the depth of shapes that
overlap. The depth is the length of the shortest translation after which the shapes only touch.

- Cores that are apart: the direction follows from their nearest points (`nearest.py`).
- Cores that overlap: in each round, core b is moved by s along a direction n until the cores are
  apart. Then the nearest points give a candidate for the next direction. The separation along this
  candidate is not smaller than along n. A step of Newton's method for the direction that the rounds
  do not change gives a second candidate, and a larger change of n a third one. The direction of the
  first round is the best of the axes of both cores, their cross products, the normals of the faces
  of hulls, directions across the edges of boxes beside hulls, the direction of the centres, and
  directions that are spread over the sphere. The result is a local maximum of the separation, and
  nearly always the largest one. For a deep overlap with a hull, the rounds are repeated from
  several first directions.
- Two boxes, segments or points: `boxes.py` finds the direction and the points without iterations.
  `segments.py`, `segment_boxes.py` and `segment_cylinders.py` have shorter formulas for segments.
- Hulls: `hulls.py` finds the nearest points and the triangles of corners that contain them. In the
  steps of Newton's method, these triangles replace the hulls.

Derivatives. For the first derivative of the distance, the nearest points and n are constant
(envelope theorem). So the derivatives of the iterations are not needed. n and the points are roots
of equations; one step of Newton's method at the root gives their derivatives. Where the points are
not unique, as for parallel faces, the derivative of the distance is one of its subgradients, and
the points move as little as possible.

The size of a pair is the sum of the `extent()` of both cores.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from .._math.cast import select
from .._math.components import norm
from .._math.linear import matmul
from .._math.rules import custom_jvp, with_value
from .._math.tiles import repeat_in_blocks
from ..spatial import Pose, transform_point
from .boxes import nearest_points, widest_directions
from .cores import BoxCore, Core, HullCore
from .hulls import first_corners, has_hull, nearer_points, with_triangles
from .nearest import CorePair, closest, inverse, linearization

# The pairs of a batch are computed in blocks (`repeat_in_blocks`). In each visit of a block, the
# search for the nearest points makes this number of iterations.
_FEW = 5
# The largest number of visits for one direction, and of rounds after a first direction.
_VISITS, _ROUNDS = 12, 30
# Overlapping cores are moved apart until their distance is this fraction of the size of the pair.
GAP = 0.03
# The third candidate for the next direction changes it by this factor times the change of the first
# candidate.
_EXTRAPOLATION = 8.0
# With a hull, an overlap that is deeper than the fraction `_DEEP` of the size is searched from
# several first directions, at most `_STARTS`. The cosine of the angle of two of them is at most
# `_APART`. Of 1,389 pairs of hulls with 32 corners, one start left 4.6 % of the overlaps more than
# 1 % too deep, all of them deeper than 0.06 of the size; four starts left 0.3 %.
_DEEP, _STARTS, _APART = 0.05, 4, 0.97
# A first direction is left out if its separation is lower than the best one so far by more than
# this fraction of the size: the search from it would hardly reach the best one.
_GAIN = 0.1


def _spread_directions(count: int) -> np.ndarray:
    """Unit vectors (count, 3), spread evenly over a half of the sphere."""
    z = (np.arange(count) + 0.5) / count
    angle, r = np.pi * (3 - np.sqrt(5)) * np.arange(count), np.sqrt(1 - z * z)
    return np.stack([r * np.cos(angle), r * np.sin(angle), z], axis=1)


def _circles(count: int) -> np.ndarray:
    """Unit vectors (3 count, 3) on three circles, each orthogonal to an axis."""
    angles = (np.arange(count) + 0.5) * 2 * np.pi / count
    circle = np.stack([np.cos(angles), np.sin(angles), np.zeros(count)], axis=1)
    return np.concatenate([np.roll(circle, shift, axis=1) for shift in range(3)])


# Directions orthogonal to the edges of a box or to a segment, in its frame.
_CIRCLES = _circles(64)
# The first directions that do not depend on the pair, in the frame of b.
_DIRECTIONS = np.concatenate([np.eye(3), _spread_directions(32)])


class Separation(NamedTuple):
    """The signed distance of shapes a and b.

    - `distance` () in m: negative where the shapes overlap;
    - `point_a`, `point_b` (3,) in m: the points of a and b that are nearest to each other, or
      deepest in the other shape, in the world frame;
    - `normal` (3,): the unit vector from a to b in the world frame:
      `point_b - point_a = distance normal`.
    """

    distance: Float[Array, "*m"]
    point_a: Float[Array, "*m 3"]
    point_b: Float[Array, "*m 3"]
    normal: Float[Array, "*m 3"]

    def exchanged(self, where: np.ndarray) -> Separation:
        """The separations with a and b exchanged in some of the m rows."""
        rows = where[:, None]
        return Separation(
            self.distance,
            jnp.where(rows, self.point_b, self.point_a),
            jnp.where(rows, self.point_a, self.point_b),
            jnp.where(rows, -self.normal, self.normal),
        )


class Touch(NamedTuple):
    """Where two cores are nearest to each other, in the frame of b.

    - `n` (3,): the unit vector from a to b;
    - `gap` (): the distance of the cores. If they overlap, it is their distance after b was moved
      apart along n, see `movement`;
    - `u` (3,): the point of b that is nearest to a, after this movement of b;
    - `apart` (): whether the cores are apart;
    - `corners` (3, 2): for hulls, the corners of the triangles with the nearest points.
    """

    n: Array
    gap: Array
    u: Array
    apart: Array
    corners: Array

    def movement(self, separation: Array, n: Array) -> Array:
        """The movement s (3,) of b along n, for the separation of the cores along n.

        It is zero if the cores are apart.
        """
        return jnp.where(self.apart, 0, self.gap - separation) * n


def shape_separation(
    a: tuple[Core, Array], X_WA: Pose, b: tuple[Core, Array], X_WB: Pose
) -> Separation:
    """The `Separation` of two cores with roundings."""
    (core_a, radius_a), (core_b, radius_b) = a, b
    R_BA, p_BA = matmul(X_WB.R.T, X_WA.R), matmul(X_WA.p - X_WB.p, X_WB.R)
    distance, point_a, point_b, n = core_separation(CorePair(core_a, core_b, R_BA, p_BA))
    return Separation(
        distance - radius_a - radius_b,
        matmul(X_WB.R, point_a + radius_a * n) + X_WB.p,
        matmul(X_WB.R, point_b - radius_b * n) + X_WB.p,
        matmul(X_WB.R, n),
    )


def separation_at(
    X_WB: Pose, distance: Array, point_b: Array, n: Array, radius_a: Array, radius_b: Array
) -> Separation:
    """The `Separation` of two shapes, from the distance and a point of their cores.

    - `distance` (): the signed distance of the cores;
    - `point_b` (3,): the point of core b that is nearest to core a, in the frame of b;
    - `n` (3,): the unit vector from a to b, in the frame of b;
    - `radius_a`, `radius_b` (): the roundings.
    """
    return Separation(
        distance - radius_a - radius_b,
        matmul(X_WB.R, point_b + (radius_a - distance) * n) + X_WB.p,
        matmul(X_WB.R, point_b - radius_b * n) + X_WB.p,
        matmul(X_WB.R, n),
    )


def half_space_separation(X_WA: Pose, b: tuple[Core, Array], X_WB: Pose) -> Separation:
    """The `Separation` of a half-space a and a core b with a rounding."""
    core, radius = b
    normal = X_WA.R[:, 2]
    lowest = transform_point(X_WB, core.support(-matmul(normal, X_WB.R)))
    height = jnp.dot(normal, lowest - X_WA.p)
    return Separation(height - radius, lowest - height * normal, lowest - radius * normal, normal)


@custom_jvp
def core_separation(pair: CorePair) -> tuple[Array, Array, Array, Array]:
    """The signed distance of two cores, the points of a and b, and the unit vector from a to b."""
    touch = _find_touch(pair)
    if _are_boxes(pair):
        return _at_touch(pair, touch)
    local = with_triangles(pair, touch.corners)
    return _refined(pair, local, touch, _newton(local, touch))


@core_separation.defjvp
def _(primals, tangents):
    fixed = lax.stop_gradient(primals[0])
    touch = lax.stop_gradient(_find_touch(fixed))
    newton = _newton(with_triangles(fixed, touch.corners), touch)

    def refined(pair):
        return _refined(fixed, with_triangles(pair, touch.corners), touch, newton)

    return jax.jvp(refined, primals, tangents)


def _are_boxes(pair: CorePair) -> bool:
    return isinstance(pair.a, BoxCore) and isinstance(pair.b, BoxCore)


def _at_touch(pair: CorePair, touch: Touch) -> tuple[Array, Array, Array, Array]:
    """The result of `core_separation` for an exact touch."""
    distance = jnp.where(touch.apart, touch.gap, pair.separation(touch.n))
    return distance, touch.u - distance * touch.n, touch.u, touch.n


class _Newton(NamedTuple):
    """Newton's method for the point u and the direction n of a `Touch`, at this touch.

    - `s` (3,): the movement of b;
    - `n` (3,): the direction without its parts along the flat faces and edges at the touch;
    - `M_inverse` (3, 3): the inverse of the derivative of the equation for u;
    - `total_change` (3, 3): maps the change of n in one round to the sum of its changes in all
      following rounds.
    """

    s: Array
    n: Array
    M_inverse: Array
    total_change: Array


# With `jit`, JAX traces this function once for all pairs with the same kinds of cores. This is also
# the reason for `jit` at other functions of this module.
@jax.jit
def _newton(pair: CorePair, touch: Touch) -> _Newton:
    """The matrices of Newton's method.

    b moves by `s = (depth + gap) n`. K is the derivative of `u - P_A(u)` with respect to s, so a
    change dn of the direction changes the next direction by `K (depth + gap) / gap dn`.
    """
    s = touch.movement(pair.separation(touch.n), touch.n)
    at_u = linearization(pair.moved(s), touch.u)
    identity = jnp.eye(3, dtype=s.dtype)
    M_inverse = _damped_inverse(at_u.M)
    from_a, from_b = identity - at_u.J_a, identity - at_u.J_b
    K = matmul(matmul(from_a, M_inverse), from_b)
    across = identity - touch.n[:, None] * touch.n[None]
    ratio = jnp.dot(s, touch.n) / touch.gap
    n = unit(matmul(from_b, matmul(from_a, touch.n)), touch.n)
    return _Newton(s, n, M_inverse, inverse(identity - ratio * matmul(across, K)))


@jax.jit
def _refined(
    whole: CorePair, pair: CorePair, touch: Touch, newton: _Newton
) -> tuple[Array, Array, Array, Array]:
    """The result of `core_separation` after one step of Newton's method from a touch.

    `pair` is the pair `whole` with the triangles of the touch in place of hulls.

    In single precision, rounding errors can make the step a bad one if faces are nearly parallel.
    Then the result keeps the values of the touch, and has the derivatives of the step.
    """
    moved = pair.moved(newton.s)
    _, n = _step(moved, touch, newton.M_inverse)
    n = unit(touch.n + matmul(newton.total_change, n - touch.n), touch.n)
    exact = _are_boxes(pair)
    best = touch.n if exact else _best_direction(whole, jnp.stack([n, newton.n, touch.n]))
    n = with_value(n, best)
    # The movement depends on the direction and on the distance, and it moves the points.
    moved = pair.moved(touch.movement(pair.separation(n), n))
    u, _ = _step(moved, touch, newton.M_inverse)
    best_u = touch.u
    if not exact:
        best_u, _ = closest(moved, jnp.stack([u, touch.u]))
    u = with_value(u, best_u)
    y, _ = moved.nearest_in_a(u)
    x = matmul(u - moved.p, moved.R)
    a, _ = pair.a.nearest(x)
    b, _ = pair.b.nearest(y)
    # Errors of the points do not change the separation along n.
    distance = with_value(_distance(pair, n, y, x), whole.width(n))
    a = matmul(pair.R, a) + pair.p
    if exact:
        at_touch = _at_touch(pair, touch)
    else:
        middle, half = (a + b) / 2, distance / 2 * n
        at_touch = distance, middle - half, middle + half, n
    return jax.tree.map(with_value, (distance, a, b, n), at_touch)


def _best_direction(pair: CorePair, directions: Array) -> Array:
    """The first of the directions (k, 3) with the largest separation, but for rounding errors."""
    widths = jax.vmap(pair.width)(directions)
    eps = jnp.finfo(widths.dtype).eps
    tolerance = 4 * eps * (pair.a.extent() + pair.b.extent())
    return directions[jnp.argmax(widths >= jnp.max(widths) - tolerance)]


def _step(pair: CorePair, touch: Touch, M_inverse: Array) -> tuple[Array, Array]:
    """One step of Newton's method from u, and the direction from a to the new u."""
    image, _ = pair.b.nearest(pair.nearest_in_a(touch.u)[0])
    u = touch.u + matmul(M_inverse, image - touch.u)
    return u, unit(u - pair.nearest_in_a(u)[0], touch.n)


def envelope_derivative(function: Callable[..., Array]) -> Callable[..., Array]:
    """The function, with the first derivative of the envelope theorem.

    In the first derivative, all arguments except the first one are constant. The derivatives of
    this derivative depend on all arguments.
    """
    changed = custom_jvp(function)

    @changed.defjvp
    def _(primals, tangents):
        # The value is `changed` again, so the envelope theorem holds for it in every derivative.
        first, *rest = primals
        _, derivative = jax.jvp(lambda first: function(first, *rest), (first,), (tangents[0],))
        return changed(*primals), derivative

    return changed


@envelope_derivative
def _distance(pair: CorePair, n: Array, y: Array, x: Array) -> Array:
    """The distance along n of the points of a and b that are nearest to x and y.

    x and y are in the frames of a and b.
    """
    a, _ = pair.a.nearest(x)
    b, _ = pair.b.nearest(y)
    return jnp.dot(n, b - pair.p) - jnp.dot(matmul(n, pair.R), a)


class _Next(enum.IntEnum):
    """What the search for a touch does next."""

    APPROACH = 0  # more iterations for the nearest points of the cores where they are
    FIRST_DIRECTION = 1  # the cores overlap
    ITERATE = 2  # more iterations for the nearest points after b has moved
    NEXT_DIRECTION = 3
    END = 4


class _Search(NamedTuple):
    """The state of the search for a touch.

    - `touch`: the touch so far; `s` (3,): the movement of b;
    - `next` (): a value of `_Next`;
    - `visits` (): the number of visits for this direction;
    - `rounds` (): the number of directions from the last first direction on, including it;
    - `starts` (): the number of first directions so far;
    - `best`: for a pair with a hull, the best touch from the first directions whose rounds have
      ended; None for other pairs. `width` (): the separation along the n of `best`.
    """

    touch: Touch
    s: Array
    next: Array
    visits: Array
    rounds: Array
    starts: Array
    best: Touch | None
    width: Array


@jax.jit
def _find_touch(pair: CorePair) -> Touch:
    """The touch with the largest separation."""
    if _are_boxes(pair):
        return _touch_of_boxes(pair)
    zero = jnp.zeros((), jnp.int32)
    u = pair.p if isinstance(pair.b, HullCore) else pair.b.nearest(pair.p)[0]
    up = jnp.asarray([0, 0, 1], u.dtype)
    touch = Touch(up, jnp.zeros_like(u[0]), u, zero > 0, first_corners(pair))
    best = touch if has_hull(pair) else None
    search = _Search(
        touch, jnp.zeros_like(u), zero + _Next.APPROACH, zero, zero, zero, best, touch.gap - jnp.inf
    )
    return repeat_in_blocks(_visit, pair, search).touch


def _touch_of_boxes(pair: CorePair) -> Touch:
    """The touch of two boxes, which needs no search."""
    widest = widest_directions(pair)
    n = widest.n
    width, size = pair.separation(n), pair.a.extent() + pair.b.extent()
    eps = jnp.finfo(size.dtype).eps
    apart = width > 64 * eps * (size + jnp.abs(width))
    gap = jnp.maximum(GAP * size, eps)
    a, b = nearest_points(pair.moved(jnp.where(apart, 0, gap - width) * n), widest)
    # Of several pairs of points with the least distance, the one whose direction has the largest
    # separation is taken. If the boxes nearly touch, rounding errors can determine a direction.
    lengths = norm(b - a)
    least = jnp.min(lengths)
    nearest = lengths <= least + 8 * eps * (size + least)
    directions = jax.vmap(unit, (0, None))(b - a, n)
    widths = jnp.where(nearest, jax.vmap(pair.separation)(directions), -jnp.inf)
    best = jnp.argmax(widths)
    n = jnp.where(apart & (widths[best] > width), directions[best], n)
    gap = jnp.where(apart, lengths[best], gap)
    return Touch(n, gap, b[best], apart, first_corners(pair))


@jax.jit
def _visit(pair: CorePair, search: _Search) -> tuple[_Search, Array]:
    """One visit of a block of pairs; the second result is which pairs need another visit.

    It has a few iterations for the nearest points. Few pairs of a batch overlap. So a block
    computes new directions only if one of its pairs needs them.
    """
    for value, change in (
        (_Next.NEXT_DIRECTION, _with_next_direction),
        (_Next.FIRST_DIRECTION, _with_first_direction),
    ):
        needed = search.next == value
        search = lax.cond(
            jnp.any(needed), partial(_changed, change), lambda *same: same[2], needed, pair, search
        )
    search = jax.vmap(_with_nearest_points)(pair, search)
    return search, search.next != _Next.END


def _changed(
    change: Callable[..., _Search], needed: Array, pair: CorePair, search: _Search
) -> _Search:
    """The searches of a block, changed where it is needed."""

    return jax.vmap(select)(needed, jax.vmap(change)(pair, search), search)


def _with_first_direction(pair: CorePair, search: _Search) -> _Search:
    """The search from the next first direction; its end if this direction is not good enough."""
    size = pair.a.extent() + pair.b.extent()
    gap = jnp.maximum(GAP * size, jnp.finfo(size.dtype).eps)
    directions = _first_directions(pair)
    first = directions[jnp.minimum(search.starts, len(directions) - 1)]
    touch = search.touch._replace(n=first, gap=gap)
    search = search._replace(rounds=jnp.zeros_like(search.rounds), starts=search.starts + 1)
    following = _from_direction(pair, search, touch)
    if search.best is None:
        return following
    hopeless = pair.width(first) + _GAIN * size < search.width
    ended = search._replace(touch=search.best, next=jnp.full_like(search.next, _Next.END))
    return select(hopeless, ended, following)


def _with_next_direction(pair: CorePair, search: _Search) -> _Search:
    """The search from the best of three new directions; its end if none is better.

    With a hull, another first direction can follow instead of the end.
    """
    touch, moved = search.touch, pair.moved(search.s)
    local = with_triangles(moved, touch.corners)
    n = unit(touch.u - local.nearest_in_a(touch.u)[0], touch.n)
    # The second candidate is a step of Newton's method for the best direction.
    total_change = _newton(with_triangles(pair, touch.corners), touch).total_change
    newton = unit(touch.n + matmul(total_change, n - touch.n), touch.n)
    far = unit(touch.n + _EXTRAPOLATION * (n - touch.n), n)
    directions = jnp.stack([touch.n, n, newton, far])
    widths = jax.vmap(pair.width)(directions)
    best = jnp.argmax(widths)
    eps, size = jnp.finfo(n.dtype).eps, pair.a.extent() + pair.b.extent()
    better = (widths[best] > widths[0] + 4 * eps * size) & (search.rounds < _ROUNDS)
    next_round = _from_direction(pair, search, touch._replace(n=directions[best]))
    ended = search._replace(next=jnp.full_like(search.next, _Next.END))
    if search.best is not None:
        improves = widths[0] > search.width
        kept = select(improves, touch, search.best)
        width = jnp.where(improves, widths[0], search.width)
        again = (width < -_DEEP * size) & (search.starts < _STARTS)
        following = jnp.where(again, _Next.FIRST_DIRECTION, _Next.END).astype(search.next.dtype)
        ended = search._replace(touch=kept, next=following, best=kept, width=width)
    return select(better, next_round, ended)


def _from_direction(pair: CorePair, search: _Search, touch: Touch) -> _Search:
    """The search for the nearest points after b was moved along the direction n of `touch`."""
    s = touch.movement(pair.width(touch.n), touch.n)
    iterate = jnp.full_like(search.next, _Next.ITERATE)
    visits = jnp.zeros_like(search.visits)
    return search._replace(touch=touch, s=s, next=iterate, visits=visits, rounds=search.rounds + 1)


def _with_nearest_points(pair: CorePair, search: _Search) -> _Search:
    """The search after a few more iterations for the nearest points."""
    touch, moved = search.touch, pair.moved(search.s)
    u, corners, inexact = nearer_points(moved, touch.u, touch.corners, _FEW, search.visits > 0)
    v = u - with_triangles(moved, corners).nearest_in_a(u)[0]
    length, size = jnp.sqrt(jnp.dot(v, v)), pair.a.extent() + pair.b.extent()
    n = unit(v, touch.n)
    more = inexact & (search.visits < _VISITS)
    approach = search.next == _Next.APPROACH
    apart = approach & (length > jnp.finfo(u.dtype).eps ** 0.5 * size)
    apart &= ~more & (pair.width(n) > 0)
    after = jnp.where(
        approach, jnp.where(apart, _Next.END, _Next.FIRST_DIRECTION), _Next.NEXT_DIRECTION
    )
    found = Touch(
        jnp.where(apart, n, touch.n), jnp.where(apart, length, touch.gap), u, apart, corners
    )
    found = search._replace(
        touch=found, next=jnp.where(more, search.next, after), visits=search.visits + 1
    )
    ended = search.next == _Next.END
    return select(ended, search, found)


def _first_directions(pair: CorePair) -> Array:
    """The first directions of the search, (1, 3); with a hull, (`_STARTS`, 3).

    The first one is the candidate with the largest separation. Each other one has the largest
    separation of the candidates that are far from the directions before it (`_APART`).

    The candidates are `_DIRECTIONS`, the axes of core a, their cross products with the axes of b,
    the direction of the centres, the opposites of all these, and the normals of hulls. For a hull
    and a box or a segment, `_CIRCLES` are candidates too: the best direction can be across two
    edges.
    """
    fixed = jnp.asarray(_DIRECTIONS, pair.p.dtype)
    axes = pair.R.T
    cross = jnp.cross(fixed[:3, None], axes[None]).reshape(9, 3)
    both = jnp.concatenate([fixed, axes, cross, -pair.p[None]])
    directions = [both, -both]
    circles = jnp.asarray(_CIRCLES, pair.p.dtype)
    if isinstance(pair.a, HullCore):
        directions.append(matmul(pair.a.normals, pair.R.T))
        if isinstance(pair.b, BoxCore):
            directions.append(circles)
    if isinstance(pair.b, HullCore):
        directions.append(-pair.b.normals)
        if isinstance(pair.a, BoxCore):
            directions.append(matmul(circles, pair.R.T))
    directions = jax.vmap(unit, (0, None))(jnp.concatenate(directions), fixed[-1])
    widths, found = jax.vmap(pair.width)(directions), []
    for _ in range(_STARTS if has_hull(pair) else 1):
        found.append(directions[jnp.argmax(widths)])
        widths = jnp.where(matmul(directions, found[-1]) > _APART, -jnp.inf, widths)
    return jnp.stack(found)


def _damped_inverse(M: Array) -> Array:
    """The inverse of a matrix with eigenvalues from 0 to 1.

    Where an eigenvalue is near 0, the eigenvalue of the result is also near 0.
    """
    eps = jnp.finfo(M.dtype).eps
    return matmul(inverse(matmul(M, M) + eps * jnp.eye(3, dtype=M.dtype)), M)


def unit(v: Array, fallback: Array) -> Array:
    """v / |v|, or the fallback if v is 0 or its square loses digits to underflow."""
    square = jnp.dot(v, v)
    known = square > jnp.finfo(v.dtype).tiny / jnp.finfo(v.dtype).eps
    return jnp.where(known, v / jnp.sqrt(jnp.where(known, square, 1)), fallback)
