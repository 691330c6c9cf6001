"""The visual and collision geometry of links.

`view` draws the geometry. `collision` and `contact` make shapes for distances and contact from the
collision geometry. The algorithms of the dynamics do not read it.

The shapes are the meshes of this module and the convex shapes of `shapes` other than a half-space.

The geometry is a static part of a `Model`, not a leaf. `LinkGeometry` explains why it does not
affect compiled programs.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._math.cast import real_values
from ..errors import ArgumentError
from ..joints import is_rotation
from .shapes import Box, Capsule, Cylinder, Ellipsoid, Sphere

Numbers = Any  # a sequence or an array of numbers; `checked_geometry` checks it

# The file types of meshes that robot files name. Viewers cannot draw `.mesh` files.
MESH_TYPES = (".stl", ".obj", ".dae", ".glb", ".gltf", ".ply", ".mesh")


@dataclasses.dataclass(frozen=True)
class MeshFile:
    """A mesh in a file, which only `jaxrbd.view` and `io.read_meshes` open.

    - `uri`: the name of the file, as `io.find_package_file` reads it. The file type is one of
      .stl, .obj, .dae, .glb, .gltf, .ply and .mesh;
    - `scale`: (3,), factors of the coordinates in the file. No factor is 0;
    - `robot_file`: the path of the robot file that names the mesh, or None.
    """

    uri: str
    scale: Numbers = (1.0, 1.0, 1.0)
    robot_file: str | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Mesh:
    """A mesh of triangles: `vertices` (n, 3) in m, and `faces` (m, 3), indices of vertices.

    The vertices of a face are counter-clockwise when they are seen from outside.
    """

    vertices: Numbers
    faces: Numbers


Shape = Box | Sphere | Cylinder | Capsule | Ellipsoid | MeshFile | Mesh
SHAPES: dict[str, type] = {
    kind.__name__: kind for kind in (Box, Sphere, Cylinder, Capsule, Ellipsoid, MeshFile, Mesh)
}


@dataclasses.dataclass(frozen=True, eq=False)
class Geometry:
    """A shape on a link.

    - `shape`: a `Box`, `Sphere`, `Cylinder`, `Capsule` or `Ellipsoid` of `jaxrbd.collision`, a
      `MeshFile` or a `Mesh`;
    - `placement`: (4, 4), pose of the shape's frame in the frame of the link;
    - `color`: red, green, blue and opacity, each from 0 to 1, or None if nothing states it;
    - `name`: the name in the robot file, or "".
    """

    shape: Shape
    placement: np.ndarray = dataclasses.field(default_factory=lambda: np.eye(4))
    color: Numbers | None = None
    name: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class LinkGeometry:
    """The visual and collision geometry of the links of a model, by the name of the link.

    `visuals`, `collisions`: for each link with geometry its shapes, in the frame of the link. Every
    link is a frame of the model, so links that are welded together need no special case.

    All objects of this class are equal and have one hash. So a program that JAX compiled for a
    model also runs for the same robot with other geometry, or without geometry. A jitted function
    that returns a model returns it with the geometry of the first model that it was called with.
    """

    visuals: Mapping[str, tuple[Geometry, ...]] = dataclasses.field(default_factory=dict)
    collisions: Mapping[str, tuple[Geometry, ...]] = dataclasses.field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinkGeometry)

    def __hash__(self) -> int:
        return 8191

    def __repr__(self) -> str:
        counts = (sum(map(len, kind.values())) for kind in (self.visuals, self.collisions))
        return "LinkGeometry(visuals={}, collisions={})".format(*counts)


def checked_geometry(geometry: Geometry) -> Geometry:
    """The geometry with floats, tuples and read-only arrays in place of other numbers.

    The sizes of a shape are arrays of NumPy in float64. Raises ValueError with the reason, for a
    size that is negative, not finite or traced by JAX, a size with batch axes, a rounding that is
    too large, a placement that is no rigid pose, a colour outside of 0 to 1, an unknown file type,
    a scale of 0, a mesh whose faces are no indices of its vertices, and an object of another type.
    """
    if not isinstance(geometry, Geometry):
        raise ValueError(f"{geometry!r} is no Geometry")
    if not isinstance(geometry.name, str):
        raise ValueError(f"the name of its geometry is {geometry.name!r}, expected a string")
    shape = _checked_shape(geometry.shape)
    color = geometry.color
    if color is not None:
        color = _numbers(color, "color", (4,))
        if min(color) < 0 or max(color) > 1:
            raise ValueError(f"color is {color}, expected values from 0 to 1")
    placement = np.array(_array(geometry.placement, "placement of its geometry", (4, 4)))
    if not is_rotation(placement[:3, :3]) or not np.array_equal(placement[3], [0, 0, 0, 1]):
        raise ValueError("placement of its geometry is no rigid pose [[R, p], [0, 0, 0, 1]]")
    placement.setflags(write=False)
    return Geometry(shape, placement, color, geometry.name)


def mesh_type_fault(uri: str) -> str | None:
    """The reason why the file type in the name of a mesh is unknown, or None."""
    ending = os.path.splitext(uri)[1]
    if ending.lower() in MESH_TYPES:
        return None
    return f"its file type is {ending!r}, expected one of {', '.join(MESH_TYPES)}"


def _checked_shape(shape: Shape) -> Shape:
    kind = type(shape)
    if SHAPES.get(kind.__name__) is not kind:
        raise ValueError(f"its shape is a {kind.__name__}, expected one of {', '.join(SHAPES)}")
    if isinstance(shape, Mesh):
        return _checked_mesh(shape)
    if isinstance(shape, MeshFile):
        if not isinstance(shape.uri, str) or not shape.uri.strip():
            raise ValueError(f"the name of its mesh is {shape.uri!r}, expected a path or a URI")
        if fault := mesh_type_fault(shape.uri):
            raise ValueError(f"mesh {shape.uri!r}: {fault}")
        if not isinstance(shape.robot_file, (str, type(None))):
            raise ValueError(f"mesh {shape.uri!r}: robot_file is {shape.robot_file!r}")
        scale = _numbers(shape.scale, f"scale of the mesh {shape.uri!r}", (3,))
        if 0 in scale:
            raise ValueError(f"mesh {shape.uri!r}: scale is {scale}, expected no 0")
        return dataclasses.replace(shape, scale=scale)
    sizes = {}
    for field in dataclasses.fields(shape):
        size = getattr(shape, field.name)
        size = np.array(_array(size, f"{field.name} of its {kind.__name__}", np.shape(size)))
        size.setflags(write=False)
        sizes[field.name] = size
    try:  # the constructor checks shapes and signs
        return kind(**sizes)
    except ArgumentError as error:
        raise ValueError(f"its {kind.__name__}: {error}") from None


def _checked_mesh(mesh: Mesh) -> Mesh:
    vertices = _real_values(mesh.vertices)
    try:
        faces = np.array(mesh.faces)
    except (TypeError, ValueError):
        faces = None
    if vertices is None or faces is None:
        raise ValueError("its Mesh: expected vertices (n, 3) and faces (m, 3), both of numbers")
    with np.errstate(over="ignore"):
        vertices = vertices.astype(np.float32)
    if vertices.ndim != 2 or vertices.shape[1] != 3 or not np.all(np.isfinite(vertices)):
        raise ValueError(f"vertices of its Mesh {vertices.shape}: expected finite numbers (n, 3)")
    if faces.ndim != 2 or faces.shape[1] != 3 or faces.dtype.kind not in "iu":
        raise ValueError(f"faces of its Mesh {faces.shape}: expected whole numbers (m, 3)")
    if faces.size and not (faces.min() >= 0 and faces.max() < len(vertices)):
        raise ValueError(f"faces of its Mesh: expected indices of {len(vertices)} vertices")
    faces = faces.astype(np.int32)
    for x in (vertices, faces):
        x.setflags(write=False)
    return Mesh(vertices, faces)


def _numbers(x: Any, what: str, shape: tuple[int, ...]) -> tuple[float, ...]:
    return tuple(_array(x, what, shape).reshape(-1).tolist())


def _array(x: Any, what: str, shape: tuple[int, ...]) -> np.ndarray:
    values = _real_values(x)
    if values is None:
        raise ValueError(f"{what} is {x!r}, expected numbers of the shape {shape}")
    if values.shape != shape:
        raise ValueError(f"{what} has shape {values.shape}, expected {shape}")
    if not np.all(np.isfinite(values)):
        raise ValueError(f"{what} is not finite")
    return values


def _real_values(x: Any) -> np.ndarray | None:
    """`real_values`, or None also for an int that is too large for a float."""
    try:
        return real_values(x)
    except OverflowError:
        return None
