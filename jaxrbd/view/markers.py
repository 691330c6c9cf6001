"""Markers beside a robot: points, axes, arrows, paths, obstacles; ghosts of other postures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from ..collision import HalfSpace, PlacedShape, Separation
from ..errors import ArgumentError
from ..inverse_kinematics import ComTask, FrameTask, GazeTask, Task
from ..model import Model
from ..model.arguments import parameter, require, sequence
from ..model.names import described
from ..model.shapes import Sphere
from ..spatial import Pose, pose_matrix
from .drawing import Drawing, Item
from .motion import RELATIVE_AXIS_LENGTH, motion
from .triangles import shape_triangles, transformed

Color = Sequence[int | float]
_PATH_COLOR = (0.1, 0.55, 0.75)
_OVERLAP_COLOR = (0.9, 0.15, 0.15)
AXIS_COLORS = ((0.9, 0.2, 0.2, 1.0), (0.2, 0.7, 0.25, 1.0), (0.2, 0.35, 0.95, 1.0))
# Radii of axes, of arrows and paths, and of balls, divided by the length of the axes of a body.
_AXIS_RADIUS = 0.03
_LINE_RADIUS = 0.06
_BALL_RADIUS = 0.1
_GHOST_OPACITY = 0.3  # the opacity of a ghost, relative to the robot
# m. Beyond it, indices of the tiles of the ground overflow; far beyond it, products of lengths.
LARGEST_LENGTH = 1e9
_SIDES = 8  # the number of sides of a rod


class Points(NamedTuple):
    """Balls at `positions` (3,) or (n, 3) in the world, in m.

    - `color`: red, green and blue, and possibly the opacity, from 0 to 1;
    - `size`: the radius in m; None: proportional to the size of the robot.
    """

    positions: ArrayLike | Sequence
    color: Color = (0.95, 0.6, 0.1)
    size: float | None = None


class Axes(NamedTuple):
    """The axes of `poses` in the world, a `Pose` or n poses in one: x red, y green, z blue.

    `size`: the length of an axis in m; None: proportional to the size of the robot.
    """

    poses: Pose
    size: float | None = None


class Arrows(NamedTuple):
    """Arrows from `origins` (3,) or (n, 3) along `vectors`, of the same shape; both in m.

    - `color`: as for `Points`;
    - `size`: the radius of the shaft in m; None: proportional to the size of the robot.
    """

    origins: ArrayLike | Sequence
    vectors: ArrayLike | Sequence
    color: Color = (0.85, 0.15, 0.15)
    size: float | None = None


class Path(NamedTuple):
    """A line through `points` (n, 3) in the world, in m; see `frame_path`. One point has no line.

    - `color`: as for `Points`;
    - `size`: the radius of the line in m; None: proportional to the size of the robot.
    """

    points: ArrayLike | Sequence
    color: Color = _PATH_COLOR
    size: float | None = None


class Obstacles(NamedTuple):
    """Shapes in the world, for example the `shapes` of the result of `collision.pairs_of`.

    - `shapes`: objects of the type `collision.PlacedShape`. Half-spaces are not drawn, and neither
      are shapes on frames of the robot, because they move;
    - `color`: as for `Points`.
    """

    shapes: Sequence[PlacedShape]
    color: Color = (0.55, 0.5, 0.45)


Marker = Points | Axes | Arrows | Path | Obstacles


def frame_path(
    model: Model,
    trajectory: ArrayLike,
    frame: str | int | None = None,
    color: Color = _PATH_COLOR,
) -> Path:
    """The `Path` of the origin of a frame along a trajectory (T, nq).

    `frame`: as in `Model.frame_index`; None: the path of the centre of mass. Raises ArgumentError
    for an unknown frame, and for a trajectory of another shape or with values that are not finite.
    """
    found = motion(model, trajectory, axes=("", "T"))
    R, p = found.R[0], found.p[0]
    if frame is None:
        inertia = np.array(model.inertia, float)
        moments = np.einsum("tbij,bj->ti", R, inertia[:, 1:4]) + np.einsum(
            "b,tbi->ti", inertia[:, 0], p
        )
        return Path(moments / (np.sum(inertia[:, 0]) or 1.0), color)
    return Path(frame_origins(model, R, p, frame), color)


def frame_origins(model: Model, R: np.ndarray, p: np.ndarray, frame: str | int) -> np.ndarray:
    """The origin (..., 3) of a frame, for poses of the bodies R (..., nb, 3, 3), p (..., nb, 3).

    Raises ArgumentError for an unknown frame.
    """
    index = model.frame_index(frame)
    body, p_BF = model.frame_bodies[index], np.array(model.frame_pose.p[index], float)
    if body < 0:
        return np.broadcast_to(p_BF, (*p.shape[:-2], 3))
    return R[..., body, :, :] @ p_BF + p[..., body, :]


def targets(tasks: Sequence[Task]) -> list[Marker]:
    """Markers of the targets of tasks of inverse kinematics, from a list of tasks.

    A `FrameTask` with a target for the rotation has `Axes`. A `FrameTask` of the position alone, a
    `GazeTask` and a `ComTask` have `Points`. Raises ArgumentError for a target that is no point of
    the world: a posture, an orientation alone, and a target relative to a frame of the robot.
    """
    found: list[Marker] = []
    for i, task in enumerate(sequence(tasks, "tasks", "tasks of inverse kinematics")):
        if getattr(task, "relative_to", None) is not None:
            raise ArgumentError(f"tasks[{i}] is relative to a frame, expected a task in the world")
        weights = np.asarray(getattr(task, "weights", 0.0))
        if isinstance(task, FrameTask) and np.any(weights[:3] > 0):
            has_rotation = np.any(weights[3:] > 0)
            found.append(Axes(task.target) if has_rotation else Points(np.asarray(task.target.p)))
        elif isinstance(task, (GazeTask, ComTask)):
            found.append(Points(np.asarray(task.target)))
        else:
            raise ArgumentError(f"tasks[{i}] is {task!r}, expected a target with a position")
    return found


def separations(found: Separation, within: float = np.inf) -> list[Marker]:
    """Markers of the nearest points of pairs of shapes, and arrows between them.

    - `found`: the result of `collision.robot_separations` or of `collision.distance`;
    - `within`: pairs with a larger distance, in m, have no markers.

    Pairs that are apart are blue, with an arrow from the first shape to the second one. Pairs that
    overlap are red, with an arrow along which the second shape leaves the first one. Raises
    ArgumentError for an object of another type, if a distance is NaN, and if `within` is NaN or no
    number.
    """
    if not isinstance(found, Separation):
        raise ArgumentError(f"found is {found!r}, expected a Separation")
    require(parameter(within, "within", ()), lambda x: ~np.isnan(x), "within", "a distance in m")
    distance = np.reshape(found.distance, -1)
    require(distance, lambda x: ~np.isnan(x), "found.distance", "no NaN")
    a, b = (np.reshape(x, (-1, 3)) for x in (found.point_a, found.point_b))
    markers: list[Marker] = []
    for chosen, first, second, color in (
        (distance >= 0, a, b, _PATH_COLOR),
        (distance < 0, b, a, _OVERLAP_COLOR),
    ):
        rows = chosen & (distance <= within)
        if np.any(rows):
            points = np.concatenate([a[rows], b[rows]])
            markers.append(Points(points, color))
            markers.append(Arrows(first[rows], (second - first)[rows], color))
    return markers


def decorated(
    model: Model,
    scene: Drawing,
    layers: Sequence[str],
    markers: Sequence[Marker],
    ghosts: ArrayLike | None,
) -> tuple[Drawing, tuple[str, ...]]:
    """The drawing with markers and with ghosts (nq,) or (G, nq), and the names of its layers.

    The names are `layers`, and the layers of the markers and of the ghosts. Raises ArgumentError,
    which names the marker, for a wrong shape or value.
    """
    length = RELATIVE_AXIS_LENGTH * scene.size(layers or ("visuals",))
    markers = sequence(markers, "markers", "markers")
    items = [item for i, marker in enumerate(markers) for item in _items(marker, i, length)]
    items = [item for item in items if len(item.faces)]
    if ghosts is not None:
        items += _ghosts(model, scene, ghosts)
    shown = dict.fromkeys((*layers, *(item.layer for item in items)))
    return scene._replace(items=(*scene.items, *items)), tuple(shown)


def rods(
    starts: np.ndarray, ends: np.ndarray, first: float, last: float
) -> tuple[np.ndarray, np.ndarray]:
    """Vertices and faces of n rods or cones from `starts` (n, 3) to `ends` (n, 3).

    `first`, `last`: the radii at the starts and at the ends. A rod without a length is left out.
    """
    axis = ends - starts
    length = np.linalg.norm(axis, axis=1)
    starts, ends, axis = (
        x[length > 0] for x in (starts, ends, axis / np.maximum(length, 1e-300)[:, None])
    )
    least = np.eye(3)[np.argmin(np.abs(axis), axis=1)]
    u = np.cross(axis, least)
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    angle = 2 * np.pi * np.arange(_SIDES) / _SIDES
    ring = np.cos(angle)[:, None] * u[:, None] + np.sin(angle)[:, None] * np.cross(axis, u)[:, None]
    vertices = np.stack([starts[:, None] + first * ring, ends[:, None] + last * ring], axis=1)
    i = np.arange(_SIDES)
    j = (i + 1) % _SIDES
    quads = np.concatenate(
        [np.stack([i, j, j + _SIDES], 1), np.stack([i, j + _SIDES, i + _SIDES], 1)]
    )
    faces = quads + 2 * _SIDES * np.arange(len(starts))[:, None, None]
    return vertices.reshape(-1, 3), faces.reshape(-1, 3)


def axes(R: np.ndarray, p: np.ndarray, length: float) -> list[tuple[np.ndarray, np.ndarray, tuple]]:
    """Vertices, faces and colour of the x axes, y axes and z axes of poses (n, 3, 3) and (n, 3)."""
    radius = _AXIS_RADIUS * length
    return [
        (*rods(p, p + length * R[:, :, k], radius, radius), color)
        for k, color in enumerate(AXIS_COLORS)
    ]


def ball(length: float) -> tuple[np.ndarray, np.ndarray]:
    """Vertices and faces of a ball around 0 that marks a point.

    `length`: the length of the axes of a body, in m.
    """
    ((vertices, faces, _),) = shape_triangles(Sphere(_BALL_RADIUS * length))
    return vertices, faces


def _items(marker: Marker, index: int, length: float) -> list[Item]:
    """The items of the marker `markers[index]`; `length`: the length of the axes of a body in m."""
    name = f"markers[{index}]"
    if not isinstance(marker, Marker):
        kinds = "Points, Axes, Arrows, a Path or Obstacles"
        raise ArgumentError(f"{name} is {marker!r}, expected {kinds}")
    if isinstance(marker, Obstacles):
        return _obstacles(marker, name)
    if marker.size is not None:
        size = parameter(marker.size, f"{name}.size", ())
        expected = f"above 0 m, at most {LARGEST_LENGTH:.0e} m"
        require(size, lambda x: (x > 0) & (x <= LARGEST_LENGTH), f"{name}.size", expected)
    if isinstance(marker, Axes):
        if not isinstance(marker.poses, Pose):
            raise ArgumentError(f"{name}.poses is {described(marker.poses)}, expected a Pose")
        R = _array(marker.poses.R, f"{name}.poses.R", (3, 3))
        p = _array(marker.poses.p, f"{name}.poses.p", (3,))
        if len(R) != len(p):
            raise ArgumentError(f"{name}.poses has {len(R)} rotations and {len(p)} positions")
        parts = axes(R, p, marker.size or 2 * length)
        return [Item(f"{name} {x}", "markers", -1, *part) for x, part in zip("xyz", parts)]
    color = _color(marker.color, f"{name}.color")
    if isinstance(marker, Points):
        positions = _array(marker.positions, f"{name}.positions", (3,))
        corners, triangles = ball(length if marker.size is None else marker.size / _BALL_RADIUS)
        vertices = (positions[:, None] + corners).reshape(-1, 3)
        starts = len(corners) * np.arange(len(positions))[:, None, None]
        return [Item(name, "markers", -1, vertices, (starts + triangles).reshape(-1, 3), color)]
    radius = marker.size or _LINE_RADIUS * length
    if isinstance(marker, Path):
        points = _array(marker.points, f"{name}.points", (3,))
        return [Item(name, "markers", -1, *rods(points[:-1], points[1:], radius, radius), color)]
    origins = _array(marker.origins, f"{name}.origins", (3,))
    vectors = _array(marker.vectors, f"{name}.vectors", (3,))
    if origins.shape != vectors.shape:
        raise ArgumentError(f"{name} has {len(origins)} origins and {len(vectors)} vectors")
    size = np.linalg.norm(vectors, axis=1, keepdims=True)
    tips = origins + vectors
    necks = tips - vectors * np.minimum(6 * radius / np.maximum(size, 1e-300), 0.5)
    shafts, heads = rods(origins, necks, radius, radius), rods(necks, tips, 2.5 * radius, 0.0)
    faces = np.concatenate([shafts[1], heads[1] + len(shafts[0])])
    return [Item(name, "markers", -1, np.concatenate([shafts[0], heads[0]]), faces, color)]


def _obstacles(marker: Obstacles, name: str) -> list[Item]:
    color, items = _color(marker.color, f"{name}.color"), []
    for placed in sequence(marker.shapes, f"{name}.shapes", "PlacedShape"):
        if not isinstance(placed, PlacedShape):
            raise ArgumentError(f"{name}.shapes has {placed!r}, expected objects PlacedShape")
        if placed.frame is not None or isinstance(placed.shape, HalfSpace):
            continue
        H = np.array(pose_matrix(placed.X_FS), float)
        with np.errstate(over="ignore", invalid="ignore"):
            parts = [transformed(H, part) for part in shape_triangles(placed.shape)]
        for vertices, faces, _ in parts:
            if not np.all(np.abs(vertices) <= LARGEST_LENGTH):
                raise ArgumentError(
                    f"{name}.shapes has {placed.name!r} with a coordinate above "
                    f"{LARGEST_LENGTH:.0e} m or not finite"
                )
            items.append(Item(f"{name} {placed.name}", "markers", -1, vertices, faces, color))
    return items


def _ghosts(model: Model, scene: Drawing, ghosts: ArrayLike) -> list[Item]:
    """The visual shapes of the moving bodies in other postures, in the world."""
    found = motion(model, ghosts, "ghosts", ("", "G"))
    shapes = [item for item in scene.items if item.layer == "visuals" and item.body >= 0]
    return [
        item._replace(
            name=f"{ghost} {item.name}",
            layer="ghosts",
            body=-1,
            vertices=item.vertices @ R[item.body].T + p[item.body],
            color=(*item.color[:3], _GHOST_OPACITY * item.color[3]),
        )
        for ghost, (R, p) in enumerate(zip(found.R[0], found.p[0]))
        for item in shapes
    ]


def _array(x: ArrayLike | Sequence, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """x as an array (n, *shape), from the shape `shape` or (n, *shape).

    Raises ArgumentError for values above `LARGEST_LENGTH`, which is in m, or not finite.
    """
    array = np.asarray(parameter(x, name, shape, (None, *shape)), float)
    expected = f"finite values of at most {LARGEST_LENGTH:.0e}"
    require(array, lambda x: np.abs(x) <= LARGEST_LENGTH, name, expected)
    return array.reshape(-1, *shape)


def _color(color: Color, name: str) -> tuple[float, ...]:
    values = np.asarray(parameter(color, name, (3,), (4,)), float)
    if not np.all((values >= 0) & (values <= 1)):
        raise ArgumentError(f"{name} is {color!r}, expected 3 or 4 values from 0 to 1")
    return (*values.tolist(), 1.0)[:4]
