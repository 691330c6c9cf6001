"""Convex shapes for distances. The frame of a shape has its origin in the middle of the shape.

The sizes of a shape are leaves of a pytree, so JAX differentiates distances with respect to them
and batches them. The constructors raise ArgumentError for a negative size; a size of 0 is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Float

from ..errors import ArgumentError
from ..model import arguments
from ..model.arguments import Parameter
from ..model.geometry import (
    BoxShape,
    CapsuleShape,
    CylinderShape,
    EllipsoidShape,
    SphereShape,
)
from .cores import BoxCore, Core, CylinderCore, EllipsoidCore, HullCore
from .mesh_hulls import checked_hull, simplified_hull

Vector = ArrayLike | Sequence[int | float]


class Sphere(eqx.Module):
    """All points within `radius` () of the origin, in m."""

    radius: Float[Parameter, ""]

    def __init__(self, radius: ArrayLike):
        self.radius = _size(radius, "radius")

    def core(self) -> tuple[Core, Array]:
        """The core of the shape, and the radius () around the core."""
        radius = jnp.asarray(self.radius)
        return BoxCore(jnp.zeros(3, radius.dtype)), radius


class Capsule(eqx.Module):
    """All points within `radius` () of a segment on the z axis, in m.

    The segment extends from `-half_length` () to `half_length`.
    """

    radius: Float[Parameter, ""]
    half_length: Float[Parameter, ""]

    def __init__(self, radius: ArrayLike, half_length: ArrayLike):
        self.radius = _size(radius, "radius")
        self.half_length = _size(half_length, "half_length")

    def core(self) -> tuple[Core, Array]:
        """The core of the shape, and the radius () around the core."""
        length = jnp.asarray(self.half_length)
        return BoxCore(length * jnp.asarray([0, 0, 1], length.dtype)), jnp.asarray(self.radius)


class Box(eqx.Module):
    """A box along the axes of its frame.

    - `half_sizes` (3,) in m: half the lengths of the sides, including the rounding;
    - `rounding` () in m: the radius of edges and corners, at most the smallest half size.
    """

    half_sizes: Float[Parameter, "3"]
    rounding: Float[Parameter, ""]

    def __init__(self, half_sizes: Vector, rounding: ArrayLike = 0.0):
        self.half_sizes = _size(half_sizes, "half_sizes", (3,))
        self.rounding = _size(rounding, "rounding")
        _require_room(self.half_sizes, "half_sizes", self.rounding)

    def core(self) -> tuple[Core, Array]:
        """The core of the shape, and the radius () around the core."""
        rounding = jnp.asarray(self.rounding)
        return BoxCore(jnp.asarray(self.half_sizes) - rounding), rounding


class Cylinder(eqx.Module):
    """A cylinder about the z axis.

    - `radius` (), `half_length` () in m, including the rounding;
    - `rounding` () in m: the radius of the edges, at most the radius and the half length.
    """

    radius: Float[Parameter, ""]
    half_length: Float[Parameter, ""]
    rounding: Float[Parameter, ""]

    def __init__(self, radius: ArrayLike, half_length: ArrayLike, rounding: ArrayLike = 0.0):
        self.radius = _size(radius, "radius")
        self.half_length = _size(half_length, "half_length")
        self.rounding = _size(rounding, "rounding")
        _require_room(self.radius, "radius", self.rounding)
        _require_room(self.half_length, "half_length", self.rounding)

    def core(self) -> tuple[Core, Array]:
        """The core of the shape, and the radius () around the core."""
        rounding = jnp.asarray(self.rounding)
        sizes = jnp.stack([jnp.asarray(self.radius), jnp.asarray(self.half_length)])
        return CylinderCore(sizes - rounding), rounding


class Ellipsoid(eqx.Module):
    """An ellipsoid with the semi-axes `radii` (3,) along the axes of its frame, in m.

    `rounding` () in m: the distance from the ellipsoid within which points belong to the shape.
    """

    radii: Float[Parameter, "3"]
    rounding: Float[Parameter, ""]

    def __init__(self, radii: Vector, rounding: ArrayLike = 0.0):
        self.radii = _size(radii, "radii", (3,))
        self.rounding = _size(rounding, "rounding")

    def core(self) -> tuple[Core, Array]:
        """The core of the shape, and the radius () around the core."""
        return EllipsoidCore(jnp.asarray(self.radii)), jnp.asarray(self.rounding)


class ConvexMesh(eqx.Module):
    """The convex hull of points. `convex_hull` makes it from the vertices of any mesh.

    - `vertices` (n, 3) in m: the points, from 4 to 256, not all in one plane;
    - `rounding` () in m: the distance from the hull within which points belong to the shape;
    - `normals` (m, 3): the outward normals of the faces. They only improve the first direction in
      the search for the depth of an overlap; other vertices may keep them.

    Raises ArgumentError for another number of points, for points in one plane, and for points that
    are not finite.
    """

    vertices: Float[Parameter, "n 3"]
    rounding: Float[Parameter, ""]
    normals: Float[Parameter, "m 3"]

    def __init__(self, vertices: ArrayLike, rounding: ArrayLike = 0.0):
        self.vertices, self.normals = checked_hull(vertices)
        self.rounding = _size(rounding, "rounding")

    def core(self) -> tuple[Core, Array]:
        """The core of the shape, and the radius () around the core."""
        vertices = jnp.asarray(self.vertices)
        return HullCore(vertices, jnp.asarray(self.normals, vertices.dtype)), jnp.asarray(
            self.rounding
        )


class HalfSpace(eqx.Module):
    """All points with z at most 0 in its frame: a ground, a wall or a ceiling."""


Shape = Sphere | Capsule | Box | Cylinder | Ellipsoid | ConvexMesh | HalfSpace


def convex_hull(
    points: ArrayLike, rounding: ArrayLike = 0.0, *, most: int = 64
) -> tuple[ConvexMesh, float]:
    """The convex hull of the vertices of a mesh, and its error in m.

    - `points` (n, 3) in m: the vertices of a mesh, or any points. Only their convex hull counts, so
      the mesh need not be closed, and its hollows are filled;
    - `rounding` () in m: of the result;
    - `most`: the largest number of vertices of the result, from 4 to 256.

    If the hull has more vertices than `most`, the result has those of them that are farthest from
    each other. The error is then the largest distance of a point from the result; else it is 0.
    With the error as rounding, the shape contains all points.

    Raises ArgumentError for fewer than four points, for points in one plane, for points that are
    not finite or that JAX traces, and for `most` out of its range.
    """
    vertices, error = simplified_hull(points, most)
    return ConvexMesh(vertices, rounding), error


PrimitiveShape = BoxShape | SphereShape | CapsuleShape | CylinderShape | EllipsoidShape


def shape_of_geometry(shape: PrimitiveShape) -> Shape:
    """The shape that equals a shape of `Model.geometry` other than a mesh."""
    if isinstance(shape, SphereShape):
        return Sphere(shape.radius)
    if isinstance(shape, CapsuleShape):
        return Capsule(shape.radius, shape.length / 2)
    if isinstance(shape, BoxShape):
        return Box([size / 2 for size in shape.size])
    if isinstance(shape, CylinderShape):
        return Cylinder(shape.radius, shape.length / 2)
    return Ellipsoid(shape.radii)


def checked_shape(shape: Shape, name: str) -> Shape:
    """`shape`, if it is a shape; else raises ArgumentError, which names the argument."""
    if isinstance(shape, Shape):
        return shape
    kinds = "Sphere, Capsule, Box, Cylinder, Ellipsoid, ConvexMesh or HalfSpace"
    raise ArgumentError(f"{name} is {shape!r}, expected a {kinds} of jaxrbd.collision")


def _size(x: Vector, name: str, shape: tuple[int, ...] = ()) -> Parameter:
    size = arguments.parameter(x, name, shape)
    arguments.require(size, lambda x: (x >= 0) & (x < float("inf")), name, "0 or more, and finite")
    return size


def _require_room(size: Parameter, name: str, rounding: Parameter) -> None:
    if not isinstance(rounding, Tracer):
        least = float(rounding)
        arguments.require(size, lambda x: x >= least, name, f"{least} or more, the rounding")
