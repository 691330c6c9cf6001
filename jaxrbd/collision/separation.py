"""Signed distances of two shapes, with their nearest points.

The separation along a direction n is the width of the gap between two shapes along n. If they
overlap along n, it is minus the width of the overlap. The signed distance is the largest separation
over all directions: the distance of shapes that are apart, and minus the depth of shapes that
overlap. The depth is the length of the shortest translation after which the shapes only touch.

- Cores that are apart: the direction follows from their nearest points (`nearest.py`).
- Cores that overlap: in each round, core b is moved by s along a direction n until the cores are
  apart. Then the nearest points give a candidate for the next direction. The separation along this
  candidate is not smaller than along n. A step of Newton's method for the direction that the rounds
  do not change gives a second candidate, and a larger change of n a third one. So the rounds find a
  local maximum of the separation. Before the rounds, the separation is evaluated along the axes of
  both cores, their cross products, the normals of the faces of hulls, directions across the axes of
  cylinders beside hulls, the direction of the centres, and directions that are spread over the
  sphere. A pattern search turns each of the best ones in shrinking steps (Hooke and Jeeves, 1961).
  The rounds begin from the best result, and again from other ones that are nearly as good. The
  largest local maximum that they find is the result.
- Two polyhedra that overlap, of which one is a hull: the candidates also have a direction across
  each pair of edges that counts (`crossing_edges.py`). The best candidate is the best direction of
  all, so there is no pattern search.
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

import dataclasses
import enum
from collections.abc import Callable, Sequence
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
from .._math.tiles import Row, repeat_in_blocks, retried
from ..spatial import Pose, transform_point
from .boxes import nearest_points, widest_directions
from .cores import BoxCore, Core, CylinderCore, HullCore
from .crossing_edges import directions_across_edges, have_known_edges
from .hulls import first_corners, nearer_points, with_triangles
from .nearest import CorePair, closest, inverse, linearization

# The pairs of a batch are computed in blocks (`repeat_in_blocks`). In each visit of a block, the
# search for the nearest points makes this number of iterations, for hulls twice as many.
_FEW = 5
# The largest number of visits for one direction, and of rounds after a first direction.
_VISITS, _ROUNDS = 12, 30
# Overlapping cores are moved apart until their distance is this fraction of the size of the pair.
GAP = 0.03
# The third candidate for the next direction changes it by this factor times the change of the first
# candidate.
_EXTRAPOLATION = 8.0
# The rounds begin from at most `_STARTS` first directions. They are the best results of a pattern
# search from each of the `_CANDIDATES` best candidates, with steps of `_STEPS` rad. The cosine of
# the angle of two first directions, and of two candidates, is at most `_APART`.
_STARTS, _CANDIDATES, _APART = 4, 8, 0.97
_STEPS = 0.2 * 0.55 ** np.arange(8)
# A first direction is left out if its separation is lower than the largest one so far by more than
# this fraction of the size: the pattern search finds a local maximum more exactly than that.
_GAIN = 0.005


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


# Directions orthogonal to the edges of a box, to a segment or to a cylinder, in its frame.
_CIRCLES = _circles(64)
# The candidates that do not depend on the pair, in the frame of b.
_DIRECTIONS = np.concatenate([np.eye(3), _spread_directions(32)])
# The changes of a direction in the steps of the pattern search, (steps, 6, 2): the corners of a
# hexagon, which turns by half of its angle from step to step.
_ANGLES = (np.arange(6) + np.arange(len(_STEPS))[:, None] / 2) * np.pi / 3
_CHANGES = _STEPS[:, None, None] * np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], axis=2)


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


def separation_at_touch(pair: CorePair, touch: Touch) -> tuple[Array, Array, Array, Array]:
    """As `core_separation`, for a touch that is known. The touch is constant in derivatives."""
    fixed, touch = lax.stop_gradient((pair, touch))
    newton = _newton(with_triangles(fixed, touch.corners), touch)
    return _refined(fixed, with_triangles(pair, touch.corners), touch, newton)


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
    """The first of the directions (k, 3) with the largest separation, within rounding errors."""
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
    - `exact` (): whether the point u of `touch` is exact for its corners, see `nearer_points`;
    - `rounds` (): the number of directions from the last first direction on, including it;
    - `firsts` (`_STARTS`, 3), `widths` (`_STARTS`,): the first directions and their separations;
    - `starts` (): the number of first directions so far;
    - `best`: the best touch from the first directions whose rounds have ended. `width` (): the
      separation along the n of `best`.
    """

    touch: Touch
    s: Array
    next: Array
    visits: Array
    exact: Array
    rounds: Array
    firsts: Array
    widths: Array
    starts: Array
    best: Touch
    width: Array


@jax.jit
def _find_touch(pair: CorePair) -> Touch:
    """The touch with the largest separation."""
    if _are_boxes(pair):
        return _touch_of_boxes(pair)
    edges = [core.edge_normals for core in (pair.a, pair.b) if isinstance(core, HullCore)]
    pair = _with_edges(pair, [normals[:0] for normals in edges])
    return repeat_in_blocks(_visit, pair, _start(pair), edges).touch


def _start(pair: CorePair) -> _Search:
    """The search before its first visit."""
    zero = jnp.zeros((), jnp.int32)
    u = pair.p if isinstance(pair.b, HullCore) else pair.b.nearest(pair.p)[0]
    up = jnp.asarray([0, 0, 1], u.dtype)
    touch = Touch(up, jnp.zeros_like(u[0]), u, zero > 0, first_corners(pair))
    firsts, widths = jnp.zeros((_STARTS, 3), u.dtype), jnp.zeros(_STARTS, u.dtype)
    return _Search(
        touch=touch,
        s=jnp.zeros_like(u),
        next=zero + _Next.APPROACH,
        visits=zero,
        exact=zero > 0,
        rounds=zero,
        firsts=firsts,
        widths=widths,
        starts=zero,
        best=touch,
        width=touch.gap - jnp.inf,
    )


def _with_edges(pair: CorePair, edge_normals: Sequence[Array]) -> CorePair:
    """The pair with these edge normals in place of the edge normals of its hulls."""
    rest = iter(edge_normals)
    a, b = (
        dataclasses.replace(core, edge_normals=next(rest)) if isinstance(core, HullCore) else core
        for core in (pair.a, pair.b)
    )
    return pair._replace(a=a, b=b)


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
def _visit(pair: CorePair, search: _Search, edges: Sequence[Row]) -> tuple[_Search, Array]:
    """One visit of a block of pairs; the second result is which pairs need another visit.

    `edges`: the edge normals of the hulls of the pairs. The hulls of `pair` have no edges, because
    only first directions need them, and a visit copies each pair.

    It has a few iterations for the nearest points. Few pairs of a batch overlap. So a block
    computes next directions only if one of its pairs needs them, and the first directions, which
    take longest, only of the pairs that need them.
    """
    needed = search.next == _Next.NEXT_DIRECTION
    search = lax.cond(
        jnp.any(needed),
        lambda pair, search: jax.vmap(select)(
            needed, jax.vmap(_with_next_direction)(pair, search), search
        ),
        lambda _, search: search,
        pair,
        search,
    )
    axes = 0, (0, 0, [Row._make((None, 0)) for _ in edges]), 0
    first = jax.vmap(partial(retried, _with_first_direction), axes)
    search = first(search.next == _Next.FIRST_DIRECTION, (pair, search, edges), search)
    search = jax.vmap(_with_nearest_points)(pair, search)
    return search, search.next != _Next.END


def _with_first_direction(pair: CorePair, search: _Search, edges: Sequence[Row]) -> _Search:
    """The search from the best first direction. `edges`: as for `_visit`."""
    pair = _with_edges(pair, [normals.table[normals.row] for normals in edges])
    size = pair.a.extent() + pair.b.extent()
    gap = jnp.maximum(GAP * size, jnp.finfo(size.dtype).eps)
    firsts, widths = _first_directions(pair)
    touch = search.touch._replace(n=firsts[0], gap=gap)
    starts = jnp.ones_like(search.starts)
    search = search._replace(firsts=firsts, widths=widths, starts=starts)
    return _from_direction(pair, search, touch)


def _with_next_direction(pair: CorePair, search: _Search) -> _Search:
    """The search from the best of three new directions.

    If none is better, the next first direction follows, or the end if this direction is left out.
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
    improves = ~better & (widths[0] > search.width)
    kept = select(improves, touch, search.best)
    width = jnp.where(improves, widths[0], search.width)
    start = jnp.minimum(search.starts, _STARTS - 1)
    hopeful = (search.starts < _STARTS) & (search.widths[start] + _GAIN * size > width)
    search = search._replace(
        starts=jnp.where(better, search.starts, search.starts + 1),
        rounds=jnp.where(better, search.rounds, 0),
        best=kept,
        width=width,
    )
    n = jnp.where(better, directions[best], search.firsts[start])
    following = _from_direction(pair, search, touch._replace(n=n))
    ended = search._replace(touch=kept, next=jnp.full_like(search.next, _Next.END))
    return select(better | hopeful, following, ended)


def _from_direction(pair: CorePair, search: _Search, touch: Touch) -> _Search:
    """The search for the nearest points after b was moved along the direction n of `touch`."""
    s = touch.movement(pair.width(touch.n), touch.n)
    iterate = jnp.full_like(search.next, _Next.ITERATE)
    visits = jnp.zeros_like(search.visits)
    return search._replace(touch=touch, s=s, next=iterate, visits=visits, rounds=search.rounds + 1)


def _with_nearest_points(pair: CorePair, search: _Search) -> _Search:
    """The search after a few more iterations for the nearest points."""
    touch, moved = search.touch, pair.moved(search.s)
    again = search.exact & (search.visits > 0)
    u, corners, inexact, exact = nearer_points(moved, touch.u, touch.corners, _FEW, again)
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
        touch=found,
        next=jnp.where(more, search.next, after),
        visits=search.visits + 1,
        exact=exact,
    )
    ended = search.next == _Next.END
    return select(ended, search, found)


def _first_directions(pair: CorePair) -> tuple[Array, Array]:
    """The first directions (`_STARTS`, 3), the best one first, and their separations (`_STARTS`,).

    The candidates are `_DIRECTIONS`, the axes of core a, their cross products with the axes of b,
    the direction of the centres, the opposites of all these, and the normals of hulls. For two
    polyhedra, one of the candidates across their edges or one of the normals is the best direction
    of all. For a hull and a cylinder, `_CIRCLES` are candidates too: the best direction can be
    across an edge and the axis of the cylinder. They also stand in for unknown edges of a box.
    """
    fixed = jnp.asarray(_DIRECTIONS, pair.p.dtype)
    axes = pair.R.T
    cross = jnp.cross(fixed[:3, None], axes[None]).reshape(9, 3)
    both = jnp.concatenate([fixed, axes, cross, -pair.p[None]])
    directions = [both, -both]
    if isinstance(pair.a, HullCore):
        directions.append(matmul(pair.a.edge_normals.reshape(-1, 3), pair.R.T))
    known_edges = have_known_edges(pair)
    if isinstance(pair.b, HullCore):
        directions.append(-pair.b.edge_normals.reshape(-1, 3))
        # `batches_of` puts a box, a segment and a cylinder before a hull.
        if known_edges:
            directions.append(directions_across_edges(pair))
        elif isinstance(pair.a, BoxCore | CylinderCore):
            directions.append(matmul(jnp.asarray(_CIRCLES, pair.p.dtype), pair.R.T))
    directions = jax.vmap(unit, (0, None))(jnp.concatenate(directions), fixed[-1])
    widths = jax.vmap(pair.width)(directions)
    if known_edges:
        best, width = _best_directions(directions, widths, 1)
        rest = jnp.full(_STARTS - 1, -jnp.inf, width.dtype)
        return jnp.tile(best, (_STARTS, 1)), jnp.concatenate([width, rest])
    start = _best_directions(directions, widths, _CANDIDATES)
    changes = jnp.asarray(_CHANGES, fixed.dtype)

    def with_step(i, found):
        """A direction and its separation after one step of the pattern search."""
        n, width = found
        # Two unit vectors across n. n differs from the axis by more than 50 degrees.
        axis = jnp.roll(fixed[0], jnp.argmin(jnp.abs(n)))
        x = unit(jnp.cross(n, axis), axis)
        turned = n[None] + matmul(changes[i], jnp.stack([x, jnp.cross(n, x)]))
        turned = turned / jnp.sqrt(jnp.sum(turned * turned, axis=1, keepdims=True))
        widths = jax.vmap(pair.width)(turned)
        best = jnp.argmax(widths)
        better = widths[best] > width
        return jnp.where(better, turned[best], n), jnp.where(better, widths[best], width)

    step = jax.vmap(with_step, (None, 0))
    directions, widths = lax.fori_loop(0, len(_STEPS), step, start)
    return _best_directions(directions, widths, _STARTS)


def _best_directions(directions: Array, widths: Array, count: int) -> tuple[Array, Array]:
    """The directions (count, 3) with the largest widths that are far from each other (`_APART`).

    The second result is their widths (count,). It has minus infinity where no direction is left.
    """

    def choose(i, state):
        rest, found, found_widths = state
        best = jnp.argmax(rest)
        near = matmul(directions, directions[best]) > _APART
        found = found.at[i].set(directions[best])
        return jnp.where(near, -jnp.inf, rest), found, found_widths.at[i].set(rest[best])

    found = jnp.zeros((count, 3), widths.dtype), jnp.zeros(count, widths.dtype)
    _, *found = lax.fori_loop(0, count, choose, (widths, *found))
    return tuple(found)


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
