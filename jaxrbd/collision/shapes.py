"""The shapes of distances and of contact: the shapes of `model.shapes`, hulls and grids.

`core_of` divides a shape into a core, see `cores`, and the radius around the core.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from ..errors import ArgumentError
from ..model.parameters import Parameter, parameter
from ..model.shapes import Box, Capsule, Cylinder, Ellipsoid, HalfSpace, Sphere, checked_size
from .cores import BoxCore, Core, CylinderCore, EllipsoidCore, HullCore
from .height_grid import HeightGrid
from .mesh_hulls import checked_hull, simplified_hull


class ConvexMesh(eqx.Module):
    """The convex hull of points. `convex_hull` makes it from the vertices of any mesh.

    - `vertices` (n, 3) in m: the points, from 4 to 256, not all in one plane;
    - `rounding` () in m: the distance from the hull within which points belong to the shape;
    - `edge_normals` (m, 2, 3): the outward normals of the two faces at each edge. The search for
      the depth of an overlap begins from them. If the vertices change and the normals do not, the
      depth of a large overlap can be a local minimum.

    Raises ArgumentError for another number of points, for points in one plane, for coordinates that
    are not finite or above 1e30 m, and for a rounding that is negative or not finite.
    """

    vertices: Float[Parameter, "n 3"]
    rounding: Float[Parameter, ""]
    edge_normals: Float[Parameter, "m 2 3"]

    def __init__(self, vertices: ArrayLike, rounding: ArrayLike = 0.0):
        self.vertices, self.edge_normals = checked_hull(vertices)
        self.rounding = checked_size(rounding, "rounding")


BoundedShape = Sphere | Capsule | Box | Cylinder | Ellipsoid | ConvexMesh
Unbounded = HalfSpace | HeightGrid
Shape = BoundedShape | Unbounded
# The array shapes of the parameters of the shapes; other parameters are scalars.
_SIZES = {"half_sizes": (3,), "radii": (3,), "vertices": (None, 3), "edge_normals": (None, 2, 3)}
_SIZES |= {"heights": (None, None), "spacing": (2,), "origin": (2,)}


def core_of(shape: BoundedShape) -> tuple[Core, Array]:
    """The core of a shape, and the radius () around the core.

    A half-space and a grid have no core. Raises ArgumentError for a batch of shapes outside of
    `jax.vmap`.
    """
    require_single(shape)
    if isinstance(shape, Sphere):
        radius = jnp.asarray(shape.radius)
        return BoxCore(jnp.zeros(3, radius.dtype)), radius
    if isinstance(shape, Capsule):
        length = jnp.asarray(shape.half_length)
        return BoxCore(length * jnp.asarray([0, 0, 1], length.dtype)), jnp.asarray(shape.radius)
    rounding = jnp.asarray(shape.rounding)
    if isinstance(shape, Box):
        return BoxCore(jnp.asarray(shape.half_sizes) - rounding), rounding
    if isinstance(shape, Cylinder):
        sizes = jnp.stack([jnp.asarray(shape.radius), jnp.asarray(shape.half_length)])
        return CylinderCore(sizes - rounding), rounding
    if isinstance(shape, Ellipsoid):
        return EllipsoidCore(jnp.asarray(shape.radii)), rounding
    vertices = jnp.asarray(shape.vertices)
    return HullCore(vertices, jnp.asarray(shape.edge_normals, vertices.dtype)), rounding


def require_single(shape: Shape) -> None:
    """Raise ArgumentError for a batch of shapes outside of `jax.vmap`."""
    for name, x in vars(shape).items():
        parameter(x, f"{name} of a {type(shape).__name__}", _SIZES.get(name, ()))


def convex_hull(
    points: ArrayLike, rounding: ArrayLike = 0.0, *, most_vertices: int = 64
) -> tuple[ConvexMesh, float]:
    """The convex hull of the vertices of a mesh, and its error in m.

    - `points` (n, 3) in m: the vertices of a mesh, or any points. Only their convex hull counts, so
      the mesh need not be closed, and its hollows are filled;
    - `rounding` () in m: of the result;
    - `most_vertices`: the largest number of vertices of the result, from 4 to 256.

    If the hull has more than `most_vertices` vertices, the result begins with four of them; then
    the vertex that is farthest outside is added, one by one. Of a hull with more than 4,096
    vertices, only the farthest ones in 4,096 directions are added. The error is then the largest
    distance of a point from the hull of these vertices, without the rounding; else it is 0. With
    the error as rounding, the shape contains all points.

    Raises ArgumentError for fewer than four points, for points in one plane, for coordinates that
    are not finite or above 1e30 m, for points that JAX traces, for `most_vertices` out of its
    range, and for a rounding that is negative or not finite.
    """
    vertices, error = simplified_hull(points, most_vertices)
    return ConvexMesh(vertices, rounding), error


def checked_shape(shape: Shape, name: str) -> Shape:
    """`shape`, if it is a shape; else raises ArgumentError, which names the argument."""
    if isinstance(shape, Shape):
        return shape
    kinds = "Sphere, Capsule, Box, Cylinder, Ellipsoid, ConvexMesh, HalfSpace or HeightGrid"
    raise ArgumentError(f"{name} is {shape!r}, expected a {kinds} of jaxrbd.collision")
