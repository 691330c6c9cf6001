"""The nearest points of two cores, of which one or both are convex hulls.

The method of Gilbert, Johnson and Keerthi (1988): The differences of the points of a and b are a
convex set, and the distance of a and b is the distance of this set from the origin. The method
keeps three points of the set, and the point v of their triangle that is nearest to the origin. Each
iteration takes a fourth point, the farthest one in the direction -v, and keeps the triangle of the
four points that is nearest to the origin.

Each of the three points is a corner of a minus a corner of b. For derivatives, the triangle of its
three corners replaces each hull.

For a curved core the method converges too slowly. So the curved core is replaced by one of its
points, then the hull by a triangle, and `nearest.py` finds the nearest points of the curved core
and the triangle. This is repeated from the new point, until no corner of the hull is nearer. If
only rounding errors decide which triangle is nearest to the point, several triangles are tried.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax

from .._math.linear import matmul
from .cores import BoxCore, CylinderCore, EllipsoidCore, HullCore, triangle_weights
from .nearest import CorePair, nearest_point


def nearer_points(
    pair: CorePair, u: Array, corners: Array, iterations: int, exact: Array
) -> tuple[Array, Array, Array, Array]:
    """A few iterations for the point u (3,) of b that is nearest to a.

    - `corners` (3, 2): for hulls, three corners of a and three of b, from `first_corners` or from
      an earlier result;
    - `exact` (): whether u and the corners are results of this function for this pair, and u was
      the exact nearest point for these corners.

    The results are u, the corners whose triangles have the nearest points, whether more iterations
    may find nearer ones, and whether u is exact for these corners. If the cores overlap, u and the
    corners are arbitrary.
    """
    if not has_hull(pair):
        u, inexact = nearest_point(pair, u, iterations)
        return u, corners, inexact, ~inexact
    found, u_corners, farthest, inexact, overlap = _nearer_corners(
        _with_point(pair, u), corners, 2 * iterations
    )
    if not isinstance(pair.a, _CURVED) and not isinstance(pair.b, _CURVED):
        return u_corners, found, inexact, ~inexact
    # The corner search puts a point in place of the curved core. If it kept the corners, `farthest`
    # is nearer to this point by rounding errors at most, but it can be much nearer to the curved
    # core. So it replaces the first corner on trial, once u is exact for the three corners.
    trial = exact & jnp.all(found == corners)
    tried = jnp.where(trial, jnp.concatenate([corners[1:], farthest[None]]), found)
    local = with_triangles(pair, tried)
    near, curved_inexact = nearest_point(local, local.b.nearest(u)[0], iterations)
    gap = near - local.nearest_in_a(near)[0]
    old_gap = u - with_triangles(pair, corners).nearest_in_a(u)[0]
    length, old_length = jnp.sqrt(jnp.dot(gap, gap)), jnp.sqrt(jnp.dot(old_gap, old_gap))
    eps, size = jnp.finfo(u.dtype).eps, pair.a.extent() + pair.b.extent()
    noise = 16 * eps * (size + length)
    keeps = trial & (old_length < length - noise)
    gap, length = jnp.where(keeps, old_gap, gap), jnp.where(keeps, old_length, length)
    overlap |= length <= jnp.sqrt(eps) * size
    # The corners are right if no other corner is nearer along the gap. This is compared with the
    # corners, not with `near`: the error of `near` along the surface is the root of the precision.
    n = gap / jnp.where(overlap, 1, length)
    corners = jnp.where(keeps, corners, tried)
    wrong = pair.width(n) < with_triangles(pair, corners).width(n) - noise
    # The next call tries another triangle.
    corners = jnp.where(keeps, jnp.roll(corners, -1, axis=0), corners)
    more = ~overlap & (inexact | curved_inexact | wrong)
    return jnp.where(keeps, u, near), corners, more, keeps | ~curved_inexact


_CURVED = CylinderCore | EllipsoidCore


def has_hull(pair: CorePair) -> bool:
    """Whether one of the cores is a convex hull."""
    return isinstance(pair.a, HullCore) or isinstance(pair.b, HullCore)


def first_corners(pair: CorePair) -> Array:
    """The first corners (3, 2) for `nearer_points`: the farthest ones towards the other core."""
    if not has_hull(pair):
        return jnp.zeros((3, 2), jnp.int32)
    center = jnp.zeros_like(pair.p)
    pair = _with_point(pair, center)
    n = jnp.where(jnp.dot(pair.p, pair.p) > 0, -pair.p, -jnp.ones_like(pair.p))
    return jnp.tile(_farthest_corners(pair, n), (3, 1))


def _with_point(pair: CorePair, u: Array) -> CorePair:
    """The pair with a point in place of a curved core: its point that is nearest to u."""
    point = BoxCore(jnp.zeros_like(u))
    if isinstance(pair.a, _CURVED):
        return CorePair(point, pair.b, pair.R, pair.nearest_in_a(u)[0])
    if isinstance(pair.b, _CURVED):
        return CorePair(pair.a, point, pair.R, pair.p - pair.b.nearest(u)[0])
    return pair


def with_triangles(pair: CorePair, corners: Array) -> CorePair:
    """The pair with the triangles of three corners in place of hulls.

    `corners` (3, 2): the indices of corners of a and of b; not used for other cores.
    """
    a, b = (
        core.triangle(corners[:, i]) if isinstance(core, HullCore) else core
        for i, core in enumerate((pair.a, pair.b))
    )
    return pair._replace(a=a, b=b)


def _nearer_corners(
    pair: CorePair, corners: Array, iterations: int
) -> tuple[Array, Array, Array, Array, Array]:
    """A few iterations for two cores with corners.

    The results are three corners (3, 2), the point (3,) of their triangle of b that is nearest to
    their triangle of a, the last corner (2,) that was compared with them, whether more iterations
    may find nearer ones, and whether the cores overlap for certain. A corner is a pair here: the
    index of a corner of a, and the index of a corner of b.
    """
    eps = jnp.finfo(pair.p.dtype).eps
    size = pair.a.extent() + pair.b.extent()

    def differences(corners: Array) -> Array:
        """The differences (3, 3) of three corners of a and b."""
        a, b = pair.a.corner_points(corners[:, 0]), pair.b.corner_points(corners[:, 1])
        return matmul(a, pair.R.T) + pair.p[None] - b

    def body(state):
        corners, _, v, _, _, count = state
        points = differences(corners)
        corner = _farthest_corners(pair, -v)
        point = differences(corner[None])
        # Choice i has the new point in place of point i.
        new = jnp.eye(3, dtype=bool)[:, :, None]
        choices = jnp.where(new, point[None], points[None])
        found = jax.vmap(lambda x: matmul(triangle_weights(x)[0], x))(choices)
        square = jnp.sum(found * found, axis=1)
        best = jnp.argmin(square)
        nearest = found[best]
        length = jnp.sqrt(jnp.dot(v, v))
        # The distance can decrease by less than its rounding errors while the new point is still
        # nearer along v by more than rounding errors. Then v is not the right direction yet.
        noise = 2 * eps * (length + size)
        change, gain = square[best] - length * length, jnp.dot(v, v - point[0])
        closer = change < jnp.where(gain > noise * size, noise, -noise) * length
        # If the cores overlap, the origin can be inside the tetrahedron of the four points. Then
        # the point that is left out and the nearest triangle are on opposite sides of the origin.
        apart = jnp.dot(points[best], nearest) > square[best] / 2
        corners = jnp.where(closer, jnp.where(new[best], corner[None], corners), corners)
        v = jnp.where(closer, nearest, v)
        return corners, closer & apart, v, corner, closer & ~apart, count + 1

    def unfinished(state):
        return state[1] & (state[5] < iterations)

    points = differences(corners)
    v = matmul(triangle_weights(points)[0], points)
    away = jnp.dot(v, v) > 0
    start = corners, away, v, corners[0], ~away, jnp.zeros((), jnp.int32)
    corners, inexact, _, farthest, overlap, _ = lax.while_loop(unfinished, body, start)
    weights = triangle_weights(differences(corners))[0]
    nearest = matmul(weights, pair.b.corner_points(corners[:, 1]))
    return corners, nearest, farthest, inexact, overlap


def _farthest_corners(pair: CorePair, n: Array) -> Array:
    """The corners (2,) of a, farthest along n, and of b, farthest in the opposite direction."""
    return jnp.stack([pair.a.corner(matmul(n, pair.R)), pair.b.corner(-n)])
