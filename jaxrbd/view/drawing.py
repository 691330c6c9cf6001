"""The drawing of a robot: triangles on bodies, in layers, for any viewer."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from ..errors import GeometryWarning, ModelError
from ..io import mesh_limits
from ..io.mesh_limits import UnreadableMesh, check_coordinates, check_limit
from ..model import Geometry, Mesh, MeshFile, Model
from ..model.arguments import robot
from ..model.description import inertia_about_com
from ..model.geometry import Shape
from ..model.shapes import Box, Ellipsoid
from ..spatial import pose_matrix
from .triangles import Packages, Triangles, shape_triangles, transformed

LAYERS = ("visuals", "collisions", "frames", "inertias", "com")
_GREY = (0.66, 0.69, 0.73, 1.0)
_COLLISION_COLOR = (0.95, 0.55, 0.2, 0.45)
_INERTIA_COLOR = (0.25, 0.45, 0.95, 0.45)


class Item(NamedTuple):
    """Triangles that move with a body.

    - `name`: the name of the link, and of the shape if it has a name;
    - `layer`: "visuals", "collisions" or "inertias"; in a page or a picture also "markers" or
      "ghosts";
    - `body`: the index of the body, or -1 for the world;
    - `vertices` (n, 3) in m, in the frame of the body; `faces` (m, 3), indices of vertices;
    - `color`: red, green, blue and opacity, from 0 to 1.
    """

    name: str
    layer: str
    body: int
    vertices: np.ndarray
    faces: np.ndarray
    color: tuple[float, ...]


class Drawing(NamedTuple):
    """The drawing of a robot.

    - `items`: the triangles on the bodies;
    - `masses` (nb,) in kg and `centers` (nb, 3) in m: mass and centre of mass of each body, in the
      frame of the body;
    - `reach`: the largest distance in m of a joint from the frame of its parent body.
    """

    items: tuple[Item, ...]
    masses: np.ndarray
    centers: np.ndarray
    reach: float

    def size(self, layers: Sequence[str]) -> float:
        """The size of the robot in m, from which the lengths of drawn axes are computed.

        It is the maximum of `reach` and of the extents of the shapes on moving bodies, if their
        layer is in `layers`, and is "visuals" or "collisions". Ellipsoids of inertias do not count,
        because they can be much larger than the robot. If this maximum is almost 0, all shapes of
        "visuals" and "collisions" count, and the size is at least 1 mm.
        """
        shapes = [item for item in self.items if item.layer in ("visuals", "collisions")]
        shown = [item for item in shapes if item.layer in layers and item.body >= 0]
        size = max([self.reach, *map(_extent, shown)])
        return size if size > 1e-6 else max([1e-3, *map(_extent, shapes)])


def drawing(model: Model, packages: Packages | None = None) -> Drawing:
    """The triangles to draw of a robot, from its `Model` alone, as a `Drawing`.

    The layer "visuals" has the visual shapes of the links. For a body with mass and without
    drawable visual shapes it has the collision shapes of the body. If there are none, it has a box
    with the mass and the inertia of the body. The layer "inertias" has an ellipsoid of uniform
    density with the mass and the inertia of each body.

    `packages`: folders of ROS packages by their names, as in `io.find_package_file`. Warns with a
    GeometryWarning, which names the link and the file, for each mesh that cannot be read, and for
    each shape beyond a limit: see the page "Viewing robots" of the documentation. Raises
    ArgumentError for a batch of models, and if a mesh is to be read and trimesh is not installed,
    and ModelError, which names the link, for an inertia that is not finite.
    """
    robot(model)
    poses = np.array(pose_matrix(model.frame_pose), float).reshape(-1, 4, 4)
    items: list[Item] = []
    reader = _ShapeReader(packages)
    for layer, default in (("visuals", _GREY), ("collisions", _COLLISION_COLOR)):
        for link, shapes in getattr(model.geometry, layer).items():
            frame = model.frame_names.index(link)
            for shape in shapes:
                body = model.frame_bodies[frame]
                try:
                    # No messages about values that `check_coordinates` refuses.
                    with np.errstate(over="ignore", invalid="ignore"):
                        items += reader.items(shape, link, layer, body, poses[frame], default)
                except UnreadableMesh as error:
                    message = f"link {link!r}: not drawn: {error}"
                    warning = GeometryWarning(message, argument=error.argument)
                    warnings.warn(warning, stacklevel=3)  # the caller of `render`, `show`, ...
    inertia = np.array(model.inertia, float)
    for name, values in zip(model.body_names, inertia):
        if not np.all(np.isfinite(values)):
            raise ModelError(f"link {name!r} has an inertia that is not finite", link=name)
    masses = inertia[:, 0]
    centers = inertia[:, 1:4] / np.where(masses == 0, 1, masses)[:, None]
    bodies_with_visuals = {item.body for item in items if item.layer == "visuals"}
    for body in range(model.nb):
        found = [item for item in items if (item.layer, item.body) == ("collisions", body)]
        name = model.body_names[body]
        if body not in bodies_with_visuals and masses[body] > 0:
            items += [item._replace(layer="visuals", color=_GREY) for item in found] or [
                Item(name, "visuals", body, *_inertia_box(inertia[body]), _GREY)
            ]
        if masses[body] > 0:
            ellipsoid = _inertia_ellipsoid(inertia[body])
            items.append(Item(name, "inertias", body, *ellipsoid, _INERTIA_COLOR))
    child_bodies = [i for i, parent in enumerate(model.topology.parents) if parent >= 0]
    distances = np.linalg.norm(np.array(model.placement.p, float)[child_bodies], axis=-1)
    return Drawing(tuple(items), masses, centers, float(np.max(distances, initial=0.0)))


class _ShapeReader:
    """Makes items from shapes. It reads each shape once, and counts the triangles of all items."""

    def __init__(self, packages: Packages | None):
        self._packages = packages
        self._known: dict[Hashable, list[Triangles]] = {}
        self._count = 0

    def items(
        self,
        geometry: Geometry,
        link: str,
        layer: str,
        body: int,
        X_BL: np.ndarray,
        default: tuple[float, ...],
    ) -> list[Item]:
        """The items of one shape. Raises UnreadableMesh if it cannot be drawn."""
        key = _key(geometry.shape)
        if key not in self._known:
            self._known[key] = []  # a file that cannot be read is opened once
            self._known[key] = shape_triangles(geometry.shape, self._packages)
        H = X_BL @ np.asarray(geometry.placement, float)
        name = f"{link} {geometry.name}" if geometry.name else link
        found = []
        for triangles in self._known[key]:
            vertices, faces, color = transformed(H, triangles)
            check_coordinates(vertices)
            if layer == "collisions":
                color = default
            elif geometry.color is not None:
                color = tuple(geometry.color)
            if len(faces):
                found.append(Item(name, layer, body, vertices, faces, color or default))
        count = self._count + sum(len(item.faces) for item in found)
        check_limit(count, mesh_limits.MAX_ROBOT_TRIANGLES, "triangles together with other shapes")
        self._count = count
        return found


def _key(shape: Shape) -> Hashable:
    """A key that equal shapes share. A `Mesh` is equal only to itself."""
    if isinstance(shape, MeshFile | Mesh):
        return shape
    sizes = (getattr(shape, field.name) for field in dataclasses.fields(shape))
    return type(shape), *(np.asarray(size, float).tobytes() for size in sizes)


def _principal(inertia: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """The mass in kg, the pose (4, 4) of the principal axes, and three mean squares in m^2.

    A mean square is the mean over the mass of the squared coordinate along a principal axis.
    """
    mass, c, I = inertia_about_com(inertia)
    second = np.trace(I) / 2 * np.eye(3) - I  # the integral of r r^T dm about the centre of mass
    moments, R = np.linalg.eigh(second)
    H = np.eye(4)
    H[:3, :3], H[:3, 3] = R * np.sign(np.linalg.det(R)), c
    return mass, H, np.maximum(moments, 0) / mass


def _inertia_box(inertia: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vertices and faces of the box of uniform density with this inertia.

    A point mass has a small box.
    """
    _, H, moments = _principal(inertia)
    sides = np.sqrt(12 * moments)  # the second moment of a side a is m a^2 / 12
    (box,) = shape_triangles(Box(np.maximum(sides, _smallest_side(inertia[0], sides)) / 2))
    return transformed(H, box)[:2]


def _inertia_ellipsoid(inertia: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vertices and faces of the ellipsoid of uniform density with this inertia.

    A point mass has a small ellipsoid.
    """
    _, H, moments = _principal(inertia)
    radii = np.sqrt(5 * moments)  # the second moment of a semi-axis r is m r^2 / 5
    (ball,) = shape_triangles(Ellipsoid(np.maximum(radii, _smallest_side(inertia[0], radii) / 2)))
    return transformed(H, ball)[:2]


def _smallest_side(mass: float, sides: np.ndarray) -> float:
    """The smallest side to draw in m, so that rods and discs without thickness are visible.

    It is 4 % of the largest side. For a point mass it is the side of a cube of steel.
    """
    largest = np.max(sides)
    return 0.04 * largest if largest > 1e-6 else (mass / 7850) ** (1 / 3)  # 7850 kg/m^3: steel


def _extent(item: Item) -> float:
    return float(np.ptp(item.vertices, axis=0).max())
