"""The direction and the nearest points of two boxes, without iterations.

Each box can be a segment or a point. All vectors are in the frame of box b. The components of a
`Vec3` are scalars or, for k candidates, arrays (k,).

The separation of overlapping boxes is largest along one of 15 directions: the normals of the faces
of both boxes, and the vectors across an edge of a and an edge of b, which are orthogonal to both
(Gottschalk, Lin and Manocha, 1996). Boxes are apart if the separation along one of them is
positive. Then a pair of nearest points is one of these:

- a corner of b, and the nearest point of a;
- the nearest points of an edge of a and an edge of b. Of the vectors across two edges, the one with
  the largest separation selects the axes of the edges. Of the edges with these axes, the farthest
  ones along the vector are taken;
- a point of an edge of a, and the nearest point of b. The point is an end of the edge or, if the
  edge is parallel to a face of b, the middle of the part of the edge that lies over the face.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from .._math.components import Mat3, Vec3
from .nearest import CorePair
from .segment_points import nearest_on_segments

_CORNERS = np.array([*itertools.product((-1.0, 1.0), repeat=3)])  # (8, 3), in half sizes
# The axes (12,) and the middles (12, 3), in half sizes, of the edges of a box.
_EDGE_AXES = np.repeat(np.arange(3), 4)
_EDGES = np.tile(_CORNERS[_CORNERS[:, 0] > 0], (3, 1))
_EDGES[:, 0] = 0  # the middles of the four edges along x, in three copies
_EDGES = np.array([np.roll(edge, axis) for edge, axis in zip(_EDGES, _EDGE_AXES)])


class _Boxes(NamedTuple):
    """The orientation and the centre of a in the frame of b, and the half sizes of both boxes."""

    R: Mat3
    p: Vec3
    a: Vec3
    b: Vec3


class Widest(NamedTuple):
    """The directions of the largest separation, as unit vectors from a to b.

    - `n` (3,): the best of all 15 directions;
    - `across` (3,): the best of the vectors across two edges;
    - `edges` (2,): the indices of the axes of these edges, first the edge of b, then of a.
    """

    n: Array
    across: Array
    edges: Array


def widest_directions(pair: CorePair) -> Widest:
    """The directions of the largest separation."""
    boxes = _split(pair)
    R, identity = boxes.R, Mat3.from_array(jnp.eye(3, dtype=pair.p.dtype))
    directions = Vec3(
        *(
            jnp.concatenate([_array(e), _array(r), across])
            for e, r, across in zip(identity.rows, R.rows, _across(R).components)
        )
    )
    height = directions.dot(boxes.p)
    width = _absolute(directions).dot(boxes.b) + _absolute(R.T @ directions).dot(boxes.a)
    separation = jnp.abs(height) - width
    edges = jnp.argmax(separation[6:])

    def towards_b(i: Array) -> Array:
        return jnp.where(height[i] > 0, -1, 1) * _chosen(directions, i)

    n, across = towards_b(jnp.argmax(separation)), towards_b(6 + edges)
    return Widest(n, across, jnp.stack([edges // 3, edges % 3]))


def nearest_points(pair: CorePair, widest: Widest) -> tuple[Array, Array]:
    """Three points (3, 3) of a, and three of b, in the rows.

    If the boxes are apart, one row has their nearest points.
    """
    boxes = _split(pair)
    a, b = _crossing_edges(boxes, widest)
    points = [(_array(a), _array(b))]
    for find in (_corners_of_b, _edges_of_a):
        a, b = find(boxes)
        best = jnp.argmin((b - a).dot(b - a))
        points.append((_chosen(a, best), _chosen(b, best)))
    points_a, points_b = zip(*points)
    return jnp.stack(points_a), jnp.stack(points_b)


def _split(pair: CorePair) -> _Boxes:
    sizes = (Vec3.from_array(core.half_sizes) for core in (pair.a, pair.b))
    return _Boxes(Mat3.from_array(pair.R), Vec3.from_array(pair.p), *sizes)


def _across(R: Mat3) -> Vec3:
    """The unit vectors (9,) that are orthogonal to an axis of b and an axis of a."""
    x, y, z = (_array(row) for row in R.rows)
    zero = jnp.zeros_like(x)
    v = Vec3(
        jnp.concatenate([zero, z, -y]),
        jnp.concatenate([-z, zero, x]),
        jnp.concatenate([y, -x, zero]),
    )
    square = v.dot(v)
    # For parallel axes, the vector (1, 0, 0) is the result.
    crossing = square > jnp.finfo(square.dtype).tiny ** 0.5
    scale = jnp.where(crossing, 1 / jnp.sqrt(jnp.where(crossing, square, 1)), 0)
    return Vec3(jnp.where(crossing, v.x * scale, 1), v.y * scale, v.z * scale)


def _corners_of_b(boxes: _Boxes) -> tuple[Vec3, Vec3]:
    corners = _scaled(_CORNERS, boxes.b)
    nearest = _nearest_in(boxes.a, boxes.R.T @ (corners - boxes.p))
    return boxes.R @ nearest + boxes.p, corners


def _crossing_edges(boxes: _Boxes, widest: Widest) -> tuple[Vec3, Vec3]:
    """The nearest points of the edges of both boxes that are farthest along `widest.across`."""
    n, (i, j) = Vec3.from_array(widest.across), widest.edges
    # The middles and the axes of the edges.
    a = boxes.R @ _edge(boxes.R.T @ n, boxes.a, j) + boxes.p
    b = _edge(-n, boxes.b, i)
    axis_a, axis_b = boxes.R @ _unit_vector(j, n.x), _unit_vector(i, n.x)
    half_a, half_b = (v.dot(_unit_vector(k, n.x)) for v, k in ((boxes.a, j), (boxes.b, i)))
    between = b - a
    c, along_a, along_b = axis_a.dot(axis_b), axis_a.dot(between), axis_b.dot(between)
    s, t = nearest_on_segments(half_a, half_b, c, along_a, along_b)
    return a + s * axis_a, b + t * axis_b


def _edges_of_a(boxes: _Boxes) -> tuple[Vec3, Vec3]:
    """For each edge of a, a point (12,) of the edge, and the nearest point of b.

    If the edge is parallel to a face of b and partly lies over the face, the point is the middle of
    this part. If the boxes are nearest at a corner of a and at a face or an edge of b, this corner
    is among the points.
    """
    middle = boxes.R @ _scaled(_EDGES, boxes.a) + boxes.p
    half_a = jnp.repeat(_array(boxes.a), 4)
    step = half_a * Vec3(*(jnp.repeat(_array(row), 4) for row in boxes.R.rows))
    size = _absolute(step)
    least = _parallel(half_a) * jnp.maximum(jnp.maximum(size.x, size.y), size.z)
    # An edge goes from -1 to 1. Its part from `first` to `last` lies between the two faces of b
    # across each axis of b. An axis along which the edge does not move is left out: the edge is
    # parallel to the faces across this axis. If there is no such part, `clip` gives a point of the
    # edge.
    first, last = -jnp.ones_like(half_a), jnp.ones_like(half_a)
    for x, dx, half in zip(middle.components, step.components, boxes.b.components):
        moves = jnp.abs(dx) > least
        scale = 1 / jnp.where(moves, dx, 1)
        low, high = (-half - x) * scale, (half - x) * scale
        first = jnp.maximum(first, jnp.where(moves, jnp.minimum(low, high), -1))
        last = jnp.minimum(last, jnp.where(moves, jnp.maximum(low, high), 1))
    part = (jnp.clip(first, -1, 1) + jnp.clip(last, -1, 1)) / 2
    points = middle + part * step
    return points, _nearest_in(boxes.b, points)


def _parallel(x: Array) -> float:
    """The slope below which an edge counts as parallel to a face; for the dtype of x."""
    return max(1e-6, 256 * float(jnp.finfo(x.dtype).eps))


def _edge(n: Vec3, half_sizes: Vec3, axis: Array) -> Vec3:
    """Of the four edges along an axis, the middle of the one that is farthest in direction n."""
    return Vec3(
        *(
            jnp.where(axis == k, 0, jnp.where(x > 0, size, -size))
            for k, (x, size) in enumerate(zip(n.components, half_sizes.components))
        )
    )


def _nearest_in(half_sizes: Vec3, x: Vec3) -> Vec3:
    """The points of a box that are nearest to points x in the frame of the box."""
    pairs = zip(x.components, half_sizes.components)
    return Vec3(*(jnp.clip(x, -size, size) for x, size in pairs))


def _scaled(points: np.ndarray, half_sizes: Vec3) -> Vec3:
    """Points (k, 3) in half sizes as vectors."""
    columns = jnp.asarray(points.T, half_sizes.x.dtype)
    return Vec3(*(x * size for x, size in zip(columns, half_sizes.components)))


def _unit_vector(axis: Array, like: Array) -> Vec3:
    """The vector along an axis, with the dtype of `like`."""
    return Vec3(*((axis == k).astype(like.dtype) for k in range(3)))


def _absolute(v: Vec3) -> Vec3:
    return Vec3(*(jnp.abs(x) for x in v.components))


def _array(v: Vec3) -> Array:
    """The components (3,) of one vector."""
    return jnp.stack(v.components)


def _chosen(v: Vec3, index: Array) -> Array:
    """One of the vectors, (3,)."""
    return jnp.stack([x[index] for x in v.components])
