"""Cores: convex sets with a formula for the nearest point.

A shape is all points within a radius, the rounding, of its core. A sphere has a point as core, a
capsule a segment. A core states six functions of vectors (3,) in the frame of the core:

- `nearest(x)`: the point of the core that is nearest to a point x, and the derivative J (3, 3) of
  this point with respect to x. J is symmetric, with eigenvalues from 0 to 1. If x is in the core,
  the nearest point is x, and J is the identity or, for a core without volume, the projection on
  its plane or line;
- `support(n)`: a point of the core that is farthest in the direction n. If there are several, it is
  the point in their middle;
- `height(n)`: the largest component () of a point of the core along n;
- `flat_part(u, step)`: the fraction, at most 1, of the step after which a point u of the surface
  leaves the flat face or the edge that contains u. It is 1 if u does not leave it or lies on a
  curved surface;
- `extent()`: an upper bound () of the distances from the origin of the frame;
- `face(n, change)`: points (k, 3) of the face or edge that is farthest in the direction n, for
  changes (k, 3) of n. On a flat face, point i is farthest in the direction `n + change[i]`, so the
  points are in the order of the changes. On the round side of a cylinder, the points are on a line
  along the axis. On an ellipsoid, all points are `support(n)`.

The convex hull of points has only `support`, `height`, `extent` and `face`, and `corner` and
`corner_points` for `hulls.py`. For `nearest` and `flat_part`, one of its triangles replaces it. A
triangle has all of these functions but `face`.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from .._math.linear import matmul

# Newton's steps in `EllipsoidCore`, before the two steps that have derivatives. They converge if
# the largest radius is at most 100 times the smallest one.
_ELLIPSOID_STEPS = 8
# The bits of the index of a corner of a box: 1 if the corner has a positive x, y, z.
_CORNER_BITS = np.array([1, 2, 4], np.int32)


class BoxCore(eqx.Module):
    """The box from `-half_sizes` (3,) to `half_sizes`. It can be a point or a segment."""

    half_sizes: Float[Array, "3"]

    def nearest(self, x: Float[Array, "3"]) -> tuple[Array, Array]:
        limit = self.half_sizes
        inside = (jnp.abs(x) <= limit) & (limit > 0)  # a point does not move with x
        point = jnp.where(inside, x, jnp.where(x > 0, limit, -limit))
        return point, jnp.diag(inside.astype(x.dtype))

    def support(self, n: Float[Array, "3"]) -> Array:
        return _sign(n) * self.half_sizes

    def height(self, n: Float[Array, "3"]) -> Array:
        return jnp.sum(jnp.abs(n) * self.half_sizes)

    def flat_part(self, u: Float[Array, "3"], step: Float[Array, "3"]) -> Array:
        return _part_in_box(u, step, self.half_sizes)

    def face(self, n: Float[Array, "3"], change: Float[Array, "k 3"]) -> Array:
        return jax.vmap(self.support)(n[None] + change)

    def corner(self, n: Float[Array, "3"]) -> Array:
        """The index () of a corner that is farthest in the direction n."""
        return jnp.sum(jnp.where(n > 0, _CORNER_BITS, 0), dtype=jnp.int32)

    def corner_points(self, corners: Array) -> Array:
        """The corners (k, 3) with some indices (k,)."""
        signs = jnp.where(corners[:, None] & _CORNER_BITS[None], 1, -1)
        return signs.astype(self.half_sizes.dtype) * self.half_sizes[None]

    def extent(self) -> Array:
        return jnp.sum(self.half_sizes)


class CylinderCore(eqx.Module):
    """The cylinder with a radius about the z axis, from `-half_length` to `half_length`.

    `sizes` (2,): the radius and the half length.
    """

    sizes: Float[Array, "2"]

    def nearest(self, x: Float[Array, "3"]) -> tuple[Array, Array]:
        radius, half_length = self.sizes
        # The nearest point of a cylinder without length does not move along the axis, and without
        # radius it does not move across the axis.
        along = (jnp.abs(x[2]) <= half_length) & (half_length > 0)
        height = jnp.where(along, x[2], jnp.where(x[2] > 0, half_length, -half_length))
        square = jnp.dot(x[:2], x[:2])
        outside = square > radius * radius
        across = ~outside & (radius > 0)
        beside = radius / jnp.sqrt(jnp.where(outside, square, 1))
        ratio = jnp.where(outside, beside, jnp.where(across, 1, 0))
        point = jnp.concatenate([ratio * x[:2], height[None]])
        # Beside the cylinder, the nearest point moves only along the circle.
        tangent = jnp.stack([-x[1], x[0], jnp.zeros_like(height)])
        tangent = tangent / jnp.sqrt(jnp.where(outside, square, 1))
        flat = jnp.stack([across, across, along]).astype(x.dtype)
        circle = jnp.where(outside, ratio, 0) * tangent[:, None] * tangent[None]
        return point, circle + jnp.diag(flat)

    def support(self, n: Float[Array, "3"]) -> Array:
        radius, half_length = self.sizes
        square = jnp.dot(n[:2], n[:2])
        # If n is along the axis, all points of an end are farthest; their middle is the result.
        tilted = square > (16 * jnp.finfo(n.dtype).eps) ** 2
        ratio = jnp.where(tilted, radius / jnp.sqrt(jnp.where(tilted, square, 1)), 0)
        return jnp.concatenate([ratio * n[:2], _sign(n[2:]) * half_length])

    def height(self, n: Float[Array, "3"]) -> Array:
        radius, half_length = self.sizes
        return radius * jnp.sqrt(jnp.sum(n[:2] * n[:2])) + half_length * jnp.abs(n[2])

    def flat_part(self, u: Float[Array, "3"], step: Float[Array, "3"]) -> Array:
        to_end = _part_in_box(u[2:], step[2:], self.sizes[1:])
        # The fraction t of the step at which u + t step meets the circle, if u is in the circle.
        radius = self.sizes[0]
        room = radius * radius - jnp.dot(u[:2], u[:2])
        square, slope = jnp.dot(step[:2], step[:2]), jnp.dot(step[:2], u[:2])
        inside = (room > _face_tolerance(room) * radius * radius) & (square > 0)
        root = jnp.sqrt(jnp.where(inside, slope * slope + square * room, 1))
        # Both formulas have the same value. Each one is exact for one sign of the slope, where it
        # does not subtract similar numbers.
        outwards = slope > 0
        first = room / jnp.where(inside & outwards, slope + root, 1)
        second = (root - slope) / jnp.where(inside, square, 1)
        to_circle = jnp.where(outwards, first, second)
        return jnp.where(inside, jnp.minimum(to_circle, to_end), to_end)

    def face(self, n: Float[Array, "3"], change: Float[Array, "k 3"]) -> Array:
        # On the round side, the face is a line along the axis. So only the changes along the axis
        # count.
        end = jnp.sum(n[:2] * n[:2]) < jnp.max(jnp.sum(change * change, axis=1))
        changed = n[None] + change
        across = jnp.where(end, changed[:, :2], n[None, :2])
        return jax.vmap(self.support)(jnp.concatenate([across, changed[:, 2:]], axis=1))

    def extent(self) -> Array:
        return jnp.sum(self.sizes)


class EllipsoidCore(eqx.Module):
    """The ellipsoid with the semi-axes `radii` (3,) along the axes of its frame."""

    radii: Float[Array, "3"]

    def nearest(self, x: Float[Array, "3"]) -> tuple[Array, Array]:
        radii = self._positive_radii()
        inside = jnp.dot(x / radii, x / radii) <= 1
        # The nearest point is y = r^2 x / (r^2 + t), with the t >= 0 for which |y / r| = 1.
        square = radii * radii
        ratio = jnp.where(inside, 1, square / (square + _multiplier(radii, x)))
        y = ratio * x
        # J = B - (B n) (B n)^T / (n^T B n), with B = diag(ratio) and the normal n = y / r^2.
        normal = y / square
        image = ratio * normal
        size = jnp.dot(normal, image)
        curved = ~inside & (size > 0)
        rank_one = (
            jnp.where(curved, 1 / jnp.where(curved, size, 1), 0) * image[:, None] * image[None]
        )
        return y, jnp.diag(ratio) - rank_one

    def support(self, n: Float[Array, "3"]) -> Array:
        scaled = self.radii * n
        square = jnp.dot(scaled, scaled)
        return self.radii * scaled / jnp.sqrt(jnp.where(square > 0, square, 1))

    def height(self, n: Float[Array, "3"]) -> Array:
        return jnp.sqrt(jnp.sum((self.radii * n) ** 2))

    def flat_part(self, u: Float[Array, "3"], step: Float[Array, "3"]) -> Array:
        return jnp.ones_like(u[0])

    def face(self, n: Float[Array, "3"], change: Float[Array, "k 3"]) -> Array:
        return jnp.broadcast_to(self.support(n), change.shape)

    def extent(self) -> Array:
        return jnp.max(self.radii)

    def _positive_radii(self) -> Array:
        """The radii, increased where their squares would vanish."""
        return jnp.maximum(self.radii, jnp.finfo(self.radii.dtype).tiny ** 0.25)


class TriangleCore(eqx.Module):
    """The triangle with the three `corners` (3, 3) in its rows. It can be a point or a segment."""

    corners: Float[Array, "3 3"]

    def nearest(self, x: Float[Array, "3"]) -> tuple[Array, Array]:
        weights, derivative = triangle_weights(self.corners - x[None])
        return matmul(weights, self.corners), derivative

    def support(self, n: Float[Array, "3"]) -> Array:
        return _middle_of_farthest(self.corners, n)

    def height(self, n: Float[Array, "3"]) -> Array:
        return jnp.max(matmul(self.corners, n))

    def corner(self, n: Float[Array, "3"]) -> Array:
        """The index () of a corner that is farthest in the direction n."""
        return jnp.argmax(matmul(self.corners, n)).astype(jnp.int32)

    def corner_points(self, corners: Array) -> Array:
        """The corners (k, 3) with some indices (k,)."""
        return self.corners[corners]

    def flat_part(self, u: Float[Array, "3"], step: Float[Array, "3"]) -> Array:
        room, known = _face_weights(self.corners - u[None])
        end, _ = _face_weights(self.corners - (u + step)[None])
        leaves = known & (room > _face_tolerance(room)) & (end < 0)
        return jnp.min(jnp.where(leaves, room / jnp.where(leaves, room - end, 1), 1))

    def extent(self) -> Array:
        return _largest_norm(self.corners)


class HullCore(eqx.Module):
    """The convex hull of points.

    - `vertices` (n, 3): the points;
    - `edge_normals` (m, 2, 3): the outward normals of the two faces at each edge. They give
      candidates for the first direction in the search for the depth of an overlap.

    A hull has no formula for its nearest point: `hulls.py` replaces it by one of its triangles.
    """

    vertices: Float[Array, "n 3"]
    edge_normals: Float[Array, "m 2 3"]

    def corner(self, n: Float[Array, "3"]) -> Array:
        """The index () of a vertex that is farthest in the direction n."""
        return row_of_largest(matmul(self.vertices, n))

    def corner_points(self, corners: Array) -> Array:
        """The vertices (k, 3) with some indices (k,)."""
        return self.vertices[corners]

    def triangle(self, corners: Array) -> TriangleCore:
        """The triangle of three vertices, by their indices (3,)."""
        return TriangleCore(self.vertices[corners])

    def support(self, n: Float[Array, "3"]) -> Array:
        return _middle_of_farthest(self.vertices, n)

    def height(self, n: Float[Array, "3"]) -> Array:
        return jnp.max(matmul(self.vertices, n))

    def face(self, n: Float[Array, "3"], change: Float[Array, "k 3"]) -> Array:
        return self.vertices[jax.vmap(self.corner)(n[None] + change)]

    def extent(self) -> Array:
        return _largest_norm(self.vertices)

    def padded(self, n: int, m: int) -> HullCore:
        """The same hull with n points and m edges. Hulls of one size can be a batch.

        Both faces at an added edge have the same normal, so no edge of another hull crosses it.
        """
        points = jnp.tile(jnp.mean(self.vertices, axis=0), (n - len(self.vertices), 1))
        up = jnp.asarray([0.0, 0.0, 1.0], self.edge_normals.dtype)
        edges = jnp.tile(up, (m - len(self.edge_normals), 2, 1))
        return HullCore(
            jnp.concatenate([self.vertices, points]), jnp.concatenate([self.edge_normals, edges])
        )


FacedCore = BoxCore | CylinderCore | EllipsoidCore | HullCore
Core = FacedCore | TriangleCore


def triangle_weights(corners: Array) -> tuple[Array, Array]:
    """The point of a triangle that is nearest to the origin.

    The result is the weights (3,) of the corners at this point, and the derivative (3, 3) of the
    point with respect to the position of the origin.
    """
    edges = jnp.roll(corners, -1, 0) - corners
    # The nearest point of edge i is corner i + part_i edge_i.
    square = jnp.sum(edges * edges, axis=1)
    long = square > 0
    slope = -jnp.sum(corners * edges, axis=1) / jnp.where(long, square, 1)
    part = jnp.clip(slope, 0, 1)
    points = corners + part[:, None] * edges
    # If the nearest point of an edge is inside the edge, it is nearer than both ends. Close to an
    # end, rounding errors can hide this. So the ends of such an edge are not compared.
    moves = (slope > 0) & (slope < 1)
    farther = ~moves & jnp.where(slope > 0, jnp.roll(moves, -1), jnp.roll(moves, 1))
    best = jnp.argmin(jnp.where(farther, jnp.inf, jnp.sum(points * points, axis=1)))
    identity = jnp.eye(3, dtype=corners.dtype)
    along, start = part[best], identity[best]
    on_edge = start + along * (jnp.roll(identity, 1, 1)[best] - start)
    edge = edges[best] / jnp.sqrt(jnp.where(moves[best], square[best], 1))
    edge_derivative = jnp.where(moves[best], edge[:, None] * edge[None], 0)
    on_face, known = _face_weights(corners)
    inside = known & (jnp.min(on_face) > -_face_tolerance(on_face))
    normal = jnp.cross(edges[0], edges[1])
    normal = normal / jnp.sqrt(jnp.where(inside, jnp.dot(normal, normal), 1))
    face_derivative = identity - normal[:, None] * normal[None]
    derivative = jnp.where(inside, face_derivative, edge_derivative)
    return jnp.where(inside, on_face, on_edge), derivative


def _face_weights(corners: Array) -> tuple[Array, Array]:
    """The weights (3,) of the corners of a triangle for the projection of the origin on its plane.

    The second result is false if the corners lie on a line.
    """
    edges = jnp.roll(corners, -1, 0) - corners
    normal = jnp.cross(edges[0], edges[1])
    square, longest = jnp.dot(normal, normal), jnp.max(jnp.sum(edges * edges, axis=1))
    known = square > 1e4 * jnp.finfo(corners.dtype).eps ** 2 * longest * longest
    # The area of the triangle of the origin and the edge opposite to each corner.
    areas = jnp.roll(matmul(jnp.cross(corners, edges), normal), -1)
    return areas / jnp.where(known, square, 1), known


def _middle_of_farthest(points: Array, n: Array) -> Array:
    """The mean (3,) of the rows of `points` (n, 3) that are farthest in the direction n."""
    heights = matmul(points, n)
    scale = 16 * jnp.finfo(n.dtype).eps * _largest_norm(points)
    farthest = (heights >= jnp.max(heights) - scale).astype(n.dtype)
    return matmul(farthest / jnp.sum(farthest), points)


def _largest_norm(points: Array) -> Array:
    """The largest distance () of points (n, 3) from the origin."""
    square = jnp.max(jnp.sum(points * points, axis=1))
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)


def _multiplier(radii: Array, x: Array) -> Array:
    """The root t >= 0 of `|r x / (r^2 + t)| = 1`. Its first three derivatives are exact.

    `1 / |r x / (r^2 + t)|` increases with t, is concave and, for radii of similar size, nearly
    linear. So Newton's method from a t below the root converges from below.
    """

    def newton(t, radii, x):
        denominator = radii * radii + t
        part = radii * x / denominator
        square, slope = jnp.dot(part, part), jnp.dot(part, part / denominator)
        solvable = slope > 0
        length = jnp.sqrt(jnp.where(solvable, square, 1))
        change = (length - 1) * square / jnp.where(solvable, slope, 1)
        return jnp.maximum(t + jnp.where(solvable, change, 0), 0)

    fixed = lax.stop_gradient((radii, x))
    below = fixed[0] * jnp.abs(fixed[1]) - fixed[0] * fixed[0]
    t = jnp.maximum(jnp.max(below), 0)
    t = lax.fori_loop(0, _ELLIPSOID_STEPS, lambda _, t: newton(t, *fixed), t)
    # The derivatives follow from two more steps.
    return newton(newton(t, radii, x), radii, x)


def _part_in_box(u: Array, step: Array, half_sizes: Array) -> Array:
    """`flat_part` of a box of any dimension."""
    room = jnp.where(step > 0, half_sizes - u, half_sizes + u)
    length = jnp.abs(step)
    leaves = (room > _face_tolerance(room) * half_sizes) & (length > room)
    return jnp.min(jnp.where(leaves, room / jnp.where(leaves, length, 1), 1))


def _face_tolerance(x: Array) -> float:
    """A point within this fraction of a size from a face is on the face; for the dtype of x."""
    return max(1e-9, 16 * float(jnp.finfo(x.dtype).eps))


def _sign(n: Array) -> Array:
    """The signs of components of a unit vector; 0 for components that may be rounding errors."""
    return jnp.where(jnp.abs(n) > 16 * jnp.finfo(n.dtype).eps, jnp.sign(n), 0)


def row_of_largest(x: Array) -> Array:
    """As `jnp.argmax(x, axis=0)`, which XLA computes without vector instructions on CPUs."""
    rows = jnp.arange(len(x), dtype=jnp.int32).reshape(-1, *[1] * (x.ndim - 1))
    is_largest = x == jnp.max(x, axis=0, keepdims=True)
    return jnp.min(jnp.where(is_largest, rows, len(x) - 1), axis=0)
