"""Convex hulls of the vertices of meshes, by Qhull of SciPy."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike

from ..errors import ArgumentError
from ..model import arguments
from ..model.arguments import Parameter

# The largest number of vertices of a `ConvexMesh`.
MAX_VERTICES = 256
# The largest coordinate in m. The products of larger ones can overflow.
_LARGEST = 1e30
# Points are in one plane if their distance from it, divided by their size, is less than this.
_FLAT = 1e-9
# Two triangles are in one face if their normals differ by at most this.
_FLAT_EDGE = 1e-9
# The number of points whose heights over all triangles of a hull are computed at a time.
_CHUNK = 2048
# `simplified_hull` chooses from at most this many points, because each choice compares all.
_CANDIDATES = 4096


def checked_hull(vertices: ArrayLike) -> tuple[Parameter, Parameter]:
    """The vertices (n, 3) of a hull, and the normals (m, 2, 3) of the two faces at each edge.

    The edges of vertices that JAX traces are not known: m is 0. Raises ArgumentError, see
    `ConvexMesh`.
    """
    vertices = arguments.parameter(vertices, "vertices", (None, 3))
    count = len(vertices)
    if not 4 <= count <= MAX_VERTICES:
        raise ArgumentError(
            f"vertices has {count} points, expected 4 to {MAX_VERTICES}; convex_hull simplifies "
            "a mesh"
        )
    if isinstance(vertices, Tracer):
        return vertices, jnp.zeros((0, 2, 3), vertices.dtype)
    hull = _hull(np.asarray(vertices, float), "vertices")
    return vertices, _edge_normals(hull).astype(vertices.dtype)


def simplified_hull(points: ArrayLike, most_vertices: int) -> tuple[np.ndarray, float]:
    """At most `most_vertices` of the vertices of the hull of points, and the error.

    The error is the largest distance of a point from the hull of the result. Raises ArgumentError,
    see `convex_hull`.
    """
    points = arguments.parameter(points, "points", (None, 3))
    if isinstance(points, Tracer):
        raise ArgumentError(
            "points is traced by JAX, expected known values: call it outside of jit"
        )
    points = np.asarray(points, float)
    require_most_vertices(most_vertices)
    if len(points) < 4:
        raise ArgumentError(f"points has {len(points)} points, expected 4 or more")
    points = points[_hull(points, "points").vertices]
    if len(points) <= most_vertices:
        return points, 0.0
    from scipy.spatial import ConvexHull

    candidates = points if len(points) <= _CANDIDATES else _farthest(points, _CANDIDATES)
    if len(candidates) < most_vertices:  # many points are close together
        candidates = points
    # As in Quickhull, the next vertex is the one that is farthest outside.
    hull = ConvexHull(candidates[_first_four(candidates)], incremental=True)
    while len(hull.points) < most_vertices:
        heights = np.max(_heights(hull, candidates), axis=1)
        hull.add_points(candidates[[np.argmax(heights)]])
    chunks = [points[i : i + _CHUNK] for i in range(0, len(points), _CHUNK)]
    return np.array(hull.points), max(_largest_distance(hull, chunk) for chunk in chunks)


def require_most_vertices(most_vertices: Any) -> None:
    """Raise ArgumentError unless `most_vertices` is an integer from 4 to `MAX_VERTICES`."""
    if not arguments.is_integer(most_vertices) or not 4 <= most_vertices <= MAX_VERTICES:
        expected = f"an integer from 4 to {MAX_VERTICES}"
        raise ArgumentError(f"most_vertices is {most_vertices!r}, expected {expected}")


def hull_triangles(vertices: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Points (n, 3), and the triangles (m, 3) of their hull, counter-clockwise from outside."""
    points = np.asarray(vertices, float)
    hull = _hull(points, "vertices")
    faces = np.array(hull.simplices)
    corners = points[faces]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    inwards = np.sum(normals * hull.equations[:, :3], axis=1) < 0
    faces[inwards] = faces[inwards, ::-1]
    return points, faces


def is_flat(points: np.ndarray) -> bool:
    """Whether all points (n, 3), of which there is one or more, are in one plane."""
    size = np.max(np.ptp(points, axis=0))
    if size == 0:
        return True
    points = (points - points[0]) / size
    a, b, c, d = points[_first_four(points)]
    normal = np.cross(b - a, c - a)
    length = np.linalg.norm(normal)
    # The fourth point is the farthest from the plane of the first three.
    return bool(length == 0 or abs((d - a) @ normal) < _FLAT * length)


def _hull(points: np.ndarray, name: str) -> Any:
    """The hull by Qhull, of the points after a translation and a scaling to the size 1.

    The vertex indices, the triangles and the normals hold for the given points too; `hull.points`
    and the offsets in `hull.equations` do not. Raises ArgumentError for points that are not finite,
    too large, or in one plane.
    """
    from scipy.spatial import ConvexHull, QhullError

    if not np.all(np.abs(points) <= _LARGEST):
        raise ArgumentError(f"{name} has entries that are not finite, or above {_LARGEST:.0e} m")
    size = np.max(np.ptp(points, axis=0))
    try:
        # Qhull compares numbers with constants, so it gets points of size 1.
        hull = ConvexHull((points - points[0]) / max(size, np.finfo(float).tiny))
    except QhullError:
        raise _flat(name) from None
    if is_flat(points):
        raise _flat(name)
    return hull


def _edge_normals(hull: Any) -> np.ndarray:
    """The outward normals (m, 2, 3) of the two faces at each edge of a hull.

    Qhull divides faces into triangles. The sides of triangles inside a face are not edges.
    """
    first = np.repeat(np.arange(len(hull.neighbors)), 3)
    second = hull.neighbors.reshape(-1)
    pairs = np.stack([first, second], axis=1)[first < second]
    normals = hull.equations[pairs, :3]
    return normals[np.linalg.norm(normals[:, 1] - normals[:, 0], axis=1) > _FLAT_EDGE]


def _flat(name: str) -> ArgumentError:
    return ArgumentError(f"{name} has only points in one plane, expected points of a solid body")


def _first_four(points: np.ndarray) -> list[int]:
    """The indices of four points that are far from being in one plane."""
    a = int(np.argmin(points[:, 0]))
    rest = points - points[a]
    b = int(np.argmax(np.linalg.norm(rest, axis=1)))
    across = np.cross(rest, rest[b])
    c = int(np.argmax(np.linalg.norm(across, axis=1)))
    return [a, b, c, int(np.argmax(np.abs(rest @ across[c])))]


def _farthest(points: np.ndarray, count: int) -> np.ndarray:
    """The points that are farthest in `count` directions, which are spread over the sphere."""
    # A spiral of Fibonacci: equal steps in height, and in angle by the golden ratio.
    height = (2 * np.arange(count) + 1) / count - 1
    angle = np.pi * (1 + np.sqrt(5)) * np.arange(count)
    radius = np.sqrt(1 - height * height)
    directions = np.stack([radius * np.cos(angle), radius * np.sin(angle), height], axis=1)
    parts = np.split(directions, range(64, count, 64))
    return points[np.unique([np.argmax(points @ part.T, axis=0) for part in parts])]


def _heights(hull: Any, points: np.ndarray) -> np.ndarray:
    """The heights (n, m) of n points over the planes of the m triangles of a hull."""
    return points @ hull.equations[:, :3].T + hull.equations[:, 3]


def _largest_distance(hull: Any, points: np.ndarray) -> float:
    """The largest distance of points (n, 3) from a hull, 0 if all are inside."""
    # The nearest triangle of a point is one of those that it is above.
    point, triangle = np.nonzero(_heights(hull, points) > 0)
    if len(point) == 0:
        return 0.0
    distances = _distances(points[point], hull.points[hull.simplices[triangle]])
    first_of_point = np.flatnonzero(np.diff(point, prepend=-1))
    return float(np.max(np.minimum.reduceat(distances, first_of_point)))


def _distances(points: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """The distances (n,) of points (n, 3) from triangles with the corners (n, 3, 3)."""
    to_corners = corners - points[:, None]
    edges = np.roll(corners, -1, 1) - corners
    squares = np.sum(edges * edges, axis=-1)
    part = np.clip(-np.sum(to_corners * edges, axis=-1) / squares, 0, 1)
    to_edges = np.linalg.norm(to_corners + part[..., None] * edges, axis=-1)
    normals = np.cross(edges[:, 0], edges[:, 1])
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    inside_edges = np.sum(np.cross(to_corners, edges) * normals[:, None], axis=-1)
    above = np.abs(np.sum(to_corners[:, 0] * normals, axis=-1))
    over_face = np.where(np.all(inside_edges >= 0, axis=-1), above, np.inf)
    return np.minimum(np.min(to_edges, axis=-1), over_face)
