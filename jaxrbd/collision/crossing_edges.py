"""Directions across an edge of one polyhedron and an edge of another one.

The separation of two polyhedra that overlap is largest along the normal of a face, or along a
vector that is orthogonal to an edge of a and to an edge of b. Such a vector only counts if no point
of a is farther along it than the edge of a, and no point of b is farther in the opposite direction
than the edge of b. The unit vectors along which an edge is farthest are an arc of the unit sphere,
between the normals of the two faces at the edge. So a pair of edges counts if the arc of the edge
of a and the opposite of the arc of the edge of b cross (Gregorius, "The Separating Axis Test
between Convex Polyhedra", GDC 2013). The direction is the point where the arcs cross, and its
separation follows from one point of each edge.
"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._math.linear import matmul
from .cores import BoxCore, HullCore, row_of_largest
from .nearest import CorePair


def _box_edges() -> np.ndarray:
    """The normals (12, 2, 3) of the two faces at each edge of a box."""
    axes = itertools.combinations(np.eye(3), 2)
    signs = list(itertools.product((-1.0, 1.0), repeat=2))
    return np.array([[i * x, j * y] for x, y in axes for i, j in signs])


_BOX_EDGES = _box_edges()


def have_known_edges(pair: CorePair) -> bool:
    """Whether both cores are polyhedra with known edges, and one of them is a hull."""
    hulls = [core for core in (pair.a, pair.b) if isinstance(core, HullCore)]
    others = [core for core in (pair.a, pair.b) if not isinstance(core, HullCore)]
    known = all(len(hull.edge_normals) > 0 for hull in hulls)
    return bool(hulls) and known and all(isinstance(core, BoxCore) for core in others)


def directions_across_edges(pair: CorePair) -> Array:
    """For each edge of b, the best direction across this edge and an edge of a.

    The result (k, 3) has unit vectors from a to b, for the k edges of b. The best direction is the
    one with the largest separation. The row of an edge of b whose arc crosses no arc is arbitrary.
    """
    a = matmul(_edge_normals(pair.a, pair.p.dtype), pair.R.T)
    b = -_edge_normals(pair.b, pair.p.dtype)
    along_a, along_b = _axes(a), _axes(b)
    point_a = matmul(_points(pair.a, matmul(a, pair.R)), pair.R.T) + pair.p[None]
    point_b = _points(pair.b, -b)
    a_0, a_1 = (_products(a[:, i], along_b) for i in range(2))
    b_0, b_1 = (_products(along_a, b[:, i]) for i in range(2))
    # The arcs cross if the ends of each one are on different sides of the plane of the other one,
    # and if they are on the same half of the sphere.
    cross = (a_0 * a_1 < 0) & (b_0 * b_1 < 0) & (b_0 * a_1 > 0)
    # With v = along_a x along_b: |v| times the separation along v. If a_0 < 0, -v is the direction.
    separation = _products(along_a, jnp.cross(along_b, point_b))
    separation -= _products(jnp.cross(point_a, along_a), along_b)
    cosine = _products(along_a, along_b)
    square = jnp.maximum(1 - cosine * cosine, jnp.finfo(cosine.dtype).eps)
    width = jnp.where(cross, jnp.sign(a_0) * separation / jnp.sqrt(square), -jnp.inf)
    best = row_of_largest(width)
    n = jnp.cross(along_a[best], along_b)
    return jnp.where(jnp.sum(a[best, 0] * along_b, axis=1, keepdims=True) > 0, n, -n)


def _edge_normals(core: BoxCore | HullCore, dtype: jnp.dtype) -> Array:
    """The outward normals (k, 2, 3) of the two faces at each edge, in the frame of the core."""
    return core.edge_normals if isinstance(core, HullCore) else jnp.asarray(_BOX_EDGES, dtype)


def _axes(normals: Array) -> Array:
    """Unit vectors (k, 3) along edges, from the normals (k, 2, 3) of their faces; 0 if unknown."""
    v = jnp.cross(normals[:, 0], normals[:, 1])
    square = jnp.sum(v * v, axis=1, keepdims=True)
    return jnp.where(square > 0, v / jnp.sqrt(jnp.where(square > 0, square, 1)), 0)


def _points(core: BoxCore | HullCore, normals: Array) -> Array:
    """A point (k, 3) of each edge, in the frame of the core like the normals (k, 2, 3)."""
    return core.corner_points(jax.vmap(core.corner)(normals[:, 0] + normals[:, 1]))


def _products(a: Array, b: Array) -> Array:
    """The dot products (m, k) of all vectors (m, 3) and (k, 3), as sums that XLA can join."""
    x, y, z = (a[:, None, i] * b[None, :, i] for i in range(3))
    return x + y + z
