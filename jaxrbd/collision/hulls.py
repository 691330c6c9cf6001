"""The corners of convex hulls where two cores are nearest to each other.

The method is that of Gilbert, Johnson and Keerthi (1988). The differences of the points of a and b
are a convex set, and the distance of a and b is the distance of this set from the origin. The
method keeps three points of the set, and the point v of their triangle that is nearest to the
origin. Each iteration takes a fourth point, the farthest one in the direction -v, and keeps the
triangle of the four points that is nearest to the origin.

In the end, the hulls are replaced by the triangles of their corners that belong to the three
points. `nearest.py` finds the nearest points of these triangles.

For a curved core the method converges too slowly. So the curved core is replaced by one of its
points, then the hull by a triangle, and the nearest points of the curved core and the triangle
follow. This is repeated from the new point, until no corner of the hull is nearer.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax

from .._math.linear import matmul
from .cores import BoxCore, Core, CylinderCore, EllipsoidCore, HullCore, nearest_of_triangle
from .nearest import CorePair, nearest_point


def nearest_with_corners(
    pair: CorePair, u: Array, iterations: int = 60, rounds: int = 20
) -> tuple[Array, Array, Array]:
    """`nearest_point` of any cores; the second result is the corners (3, 2) of hulls.

    If the cores overlap, the corners are any corners, and the last result is true.
    """
    if not (isinstance(pair.a, HullCore) or isinstance(pair.b, HullCore)):
        u, inexact = nearest_point(pair, u, iterations)
        return u, jnp.zeros((3, 2), jnp.int32), inexact
    eps, size = jnp.finfo(u.dtype).eps, pair.a.extent() + pair.b.extent()

    def body(state):
        u, _, _, _, count = state
        corners = _nearest_corners(_with_point(pair, u), 2 * iterations)
        local = with_triangles(pair, corners)
        u, inexact = nearest_point(local, local.b.nearest(u)[0], iterations)
        v = u - local.nearest_in_a(u)[0]
        length = jnp.sqrt(jnp.dot(v, v))
        # The corners are right if no corner is nearer along v.
        separation = pair.separation(v / jnp.where(length > 0, length, 1))
        return u, corners, inexact, separation < length - 16 * eps * (size + length), count + 1

    def unfinished(state):
        return state[3] & (state[4] < rounds)

    yes = jnp.ones((), bool)
    start = u, jnp.zeros((3, 2), jnp.int32), yes, yes, jnp.zeros((), jnp.int32)
    u, corners, inexact, wrong, _ = lax.while_loop(unfinished, body, start)
    return u, corners, inexact | wrong


def _with_point(pair: CorePair, u: Array) -> CorePair:
    """The pair with a point in place of a curved core: its point that is nearest to u."""
    curved = CylinderCore | EllipsoidCore
    point = BoxCore(jnp.zeros_like(u))
    if isinstance(pair.a, curved):
        return CorePair(point, pair.b, pair.R, pair.nearest_in_a(u)[0])
    if isinstance(pair.b, curved):
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


def _nearest_corners(pair: CorePair, iterations: int) -> Array:
    """The corners (3, 2) of hulls with the nearest points; any corners if the cores overlap."""
    eps = jnp.finfo(pair.p.dtype).eps
    size = pair.a.extent() + pair.b.extent()

    def farthest(n: Array) -> tuple[Array, Array]:
        """The difference (3,) of the points of a and b that is farthest along n, its corners."""
        a, i = _farthest(pair.a, matmul(n, pair.R))
        b, j = _farthest(pair.b, -n)
        return matmul(pair.R, a) + pair.p - b, jnp.stack([i, j])

    def body(state):
        points, corners, v, _, count = state
        point, corner = farthest(-v / jnp.sqrt(jnp.dot(v, v)))
        # Choice i has the new point in place of point i.
        new = jnp.eye(3, dtype=bool)[:, :, None]
        choices = jnp.where(new, point[None, None], points[None])
        found = jax.vmap(nearest_of_triangle)(choices)
        square = jnp.sum(found * found, axis=1)
        best = jnp.argmin(square)
        nearest = found[best]
        length = jnp.sqrt(jnp.dot(v, v))
        closer = square[best] < length * length - 2 * eps * length * (length + size)
        # If the origin is inside the four points, the point that is left out is behind it.
        apart = jnp.dot(points[best], nearest) > square[best] / 2
        kept = jnp.where(closer, choices[best], points)
        corners = jnp.where(closer, jnp.where(new[best], corner[None], corners), corners)
        return kept, corners, jnp.where(closer, nearest, v), closer & apart, count + 1

    def unfinished(state):
        return state[3] & (state[4] < iterations)

    # The first points are those that are farthest from a towards b, and from b towards a.
    toward = jnp.where(jnp.dot(pair.p, pair.p) > 0, pair.p, jnp.ones_like(pair.p))
    point, corner = farthest(-toward / jnp.sqrt(jnp.dot(toward, toward)))
    three = jnp.tile(point, (3, 1)), jnp.tile(corner, (3, 1))
    start = *three, point, jnp.dot(point, point) > 0, jnp.zeros((), jnp.int32)
    return lax.while_loop(unfinished, body, start)[1]


def _farthest(core: Core, n: Array) -> tuple[Array, Array]:
    """A point of the core that is farthest along n, and its corner, if the core is a hull."""
    if isinstance(core, HullCore):
        corner = core.corner(n)
        return core.vertices[corner], corner
    return core.support(n), jnp.zeros((), jnp.int32)
