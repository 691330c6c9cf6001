"""Pictures of a robot as arrays, drawn in NumPy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from ..errors import ArgumentError
from ..model import Model, arguments
from .drawing import Drawing, drawing
from .markers import LARGEST_LENGTH, Marker, axes, ball, decorated
from .motion import RELATIVE_AXIS_LENGTH, Motion, bounds, center_of_mass, motion
from .raster import Camera, Ground, Surface, draw
from .stage import checked_layers, robot_offsets
from .triangles import Packages

_COM_COLOR = (0.9, 0.1, 0.6, 1.0)


def render(
    model: Model,
    q: ArrayLike | None = None,
    *,
    width: int = 640,
    height: int = 480,
    camera: ArrayLike | Sequence[int | float] = (1.0, -0.8, 0.35),
    target: ArrayLike | Sequence[int | float] | None = None,
    distance: float | None = None,
    layers: Sequence[str] = ("visuals",),
    ground: bool = True,
    packages: Packages | None = None,
    background: Sequence[int | float] = (1.0, 1.0, 1.0),
    smooth: int = 2,
    markers: Sequence[Marker] = (),
    ghosts: ArrayLike | None = None,
    side_by_side: bool = True,
) -> np.ndarray:
    """A picture of the robot, (height, width, 3) of uint8: red, green and blue of each pixel.

    The function needs no display and no browser.

    - `q`: (nq,), or (B, nq) for B robots; None: the neutral configuration;
    - `camera` (3,): the direction from the target to the camera, in the world;
    - `target` (3,): the point that the camera looks at, with entries of at most 1e9 m; None: the
      middle of the robot;
    - `distance`: from the target to the camera, at most 1e9 m; None: the picture contains all
      robots;
    - `layers`: from "visuals", "collisions", "frames", "inertias" and "com", as in `drawing`;
    - `ground`: whether to draw a plane, at z = 0 or at the lowest point of the robot, if lower;
    - `packages`: as in `drawing`;
    - `background` (3,): red, green and blue, from 0 to 1;
    - `smooth`: each pixel is the mean of `smooth` x `smooth` samples;
    - `markers`: `Points`, `Axes`, `Arrows`, `Path` and `Obstacles`, drawn with each robot;
    - `ghosts`: (nq,) or (G, nq): more postures of the robot, translucent and in the same place;
    - `side_by_side`: whether B robots stand side by side, or all in one place.

    Errors and warnings are as for `drawing`. Raises ArgumentError also for a size below 1, a
    camera direction of zeros, a distance or a background out of range, an unknown layer, a wrong
    marker, values that are not finite, and lengths of markers or of the target above 1e9 m.
    """
    layers = checked_layers(layers)
    view = checked_view(width, height, camera, target, distance, ground, background, smooth)
    scene = drawing(model, packages)
    found = motion(model, q, "q", ("", "B"))
    scene, layers = decorated(model, scene, layers, markers, ghosts)
    return next(pictures(scene, found, layers, view, side_by_side))


class View(NamedTuple):
    """How pictures are drawn: the arguments of `render` with these names.

    `direction` (3,) is the argument `camera`, scaled to length 1.
    """

    width: int
    height: int
    direction: np.ndarray
    target: np.ndarray | None
    distance: float | None
    ground: bool
    background: np.ndarray
    smooth: int


def checked_view(
    width: int,
    height: int,
    camera: ArrayLike | Sequence[int | float],
    target: ArrayLike | Sequence[int | float] | None,
    distance: float | None,
    ground: bool,
    background: Sequence[int | float],
    smooth: int,
) -> View:
    """The arguments of `render` with these names. Raises ArgumentError for a wrong value."""
    for name, size in (("width", width), ("height", height), ("smooth", smooth)):
        if not arguments.is_integer(size) or size < 1:
            raise ArgumentError(f"{name} is {size!r}, expected a whole number of at least 1")
    arguments.require_flag(ground, "ground")
    direction = _vector(camera, "camera")
    if not np.any(direction):
        raise ArgumentError("camera is zero, expected a direction")
    direction = direction / np.max(np.abs(direction))
    direction = direction / np.linalg.norm(direction)
    if distance is not None:
        known = arguments.parameter(distance, "distance", ())
        expected = f"above 0 m, at most {LARGEST_LENGTH:.0e} m"
        arguments.require(known, lambda x: (x > 0) & (x <= LARGEST_LENGTH), "distance", expected)
    color = _vector(background, "background")
    arguments.require(color, lambda x: (x >= 0) & (x <= 1), "background", "values from 0 to 1")
    point = None if target is None else _vector(target, "target")
    if point is not None:
        expected = f"entries of at most {LARGEST_LENGTH:.0e} m"
        arguments.require(point, lambda x: np.abs(x) <= LARGEST_LENGTH, "target", expected)
    return View(width, height, direction, point, distance, ground, color, smooth)


def pictures(
    scene: Drawing,
    found: Motion,
    layers: Sequence[str],
    view: View,
    side_by_side: bool = True,
    steps: Sequence[int] = (0,),
    travel: np.ndarray | None = None,
) -> Iterator[np.ndarray]:
    """The pictures (height, width, 3) of uint8 of the robots at some steps of a motion.

    The camera sees the robots at all these steps. `travel` (T, 3) in m: how far the camera and its
    target have moved at each step; None: they stand still.
    """
    offsets = robot_offsets(scene, found, layers, side_by_side)
    moved = np.zeros((found.q.shape[1], 3)) if travel is None else travel
    # The boxes around the robots, as the camera sees them: without the travel of the camera.
    boxes = [_box(scene, found, layers, offsets, step) - moved[step] for step in steps]
    box = np.array([np.min(boxes, axis=0)[0], np.max(boxes, axis=0)[1]])
    middle = box.mean(axis=0) if view.target is None else view.target
    distance = view.distance
    if distance is None:
        camera = Camera(middle + view.direction, middle)
        distance = _fitting_distance(camera, box, view.width / view.height)
    floor = _ground(box) if view.ground else None
    n, width, height = view.smooth, view.width, view.height
    for step in steps:
        target = middle + moved[step]
        camera = Camera(target + distance * view.direction, target)
        surface = _surface(scene, found, layers, offsets, step)
        picture = draw(surface, camera, width * n, height * n, view.background, floor)
        picture = picture.reshape(height, n, width, n, 3).mean(axis=(1, 3))
        yield np.round(255 * np.clip(picture, 0, 1)).astype(np.uint8)


def _box(
    scene: Drawing, found: Motion, layers: Sequence[str], offsets: np.ndarray, step: int
) -> np.ndarray:
    """The box (2, 3) around all robots at a step of the motion."""
    poses = zip(found.R[:, step], found.p[:, step], offsets)
    boxes = np.array([bounds(scene, R, p, layers) + offset for R, p, offset in poses])
    return np.array([boxes[:, 0].min(axis=0), boxes[:, 1].max(axis=0)])


def _surface(
    scene: Drawing, found: Motion, layers: Sequence[str], offsets: np.ndarray, step: int
) -> Surface:
    """The triangles of all robots in the world at a step of the motion."""
    parts = []
    length = RELATIVE_AXIS_LENGTH * scene.size(layers)
    for R, p, offset in zip(found.R[:, step], found.p[:, step], offsets):
        for item in scene.items:
            if item.layer not in layers:
                continue
            vertices = item.vertices
            if item.body >= 0:
                vertices = vertices @ R[item.body].T + p[item.body]
            parts.append((vertices + offset, item.faces, item.color))
        if "com" in layers:
            vertices, faces = ball(length)
            parts.append((vertices + center_of_mass(scene, R, p) + offset, faces, _COM_COLOR))
        if "frames" in layers:
            parts += axes(R, p + offset, length)
    starts = np.cumsum([0, *(len(vertices) for vertices, _, _ in parts)])
    empty = np.zeros((0, 3))
    return Surface(
        np.concatenate([empty, *(vertices for vertices, _, _ in parts)]),
        np.concatenate([empty, *(f + start for (_, f, _), start in zip(parts, starts))]).astype(
            int
        ),
        np.concatenate([np.zeros((0, 4)), *(np.tile(color, (len(f), 1)) for _, f, color in parts)]),
    )


def _ground(box: np.ndarray) -> Ground:
    """A plane of tiles, at z = 0 or at the lowest point of the robots, if lower."""
    extent = max(np.max(box[1] - box[0]), 1e-3)
    power = 10.0 ** np.floor(np.log10(extent / 4))
    side = next(power * f for f in (1, 2, 5, 10) if power * f >= extent / 4)
    return Ground(min(0.0, box[0, 2]), float(side), 8 * float(extent))


def _fitting_distance(camera: Camera, box: np.ndarray, aspect: float) -> float:
    """The distance in m of a camera from its target, from which it sees all corners of a box.

    `aspect`: the width of the picture, divided by its height. The result has a margin of 8 %.
    """
    corners = np.array([[x, y, z] for x in box[:, 0] for y in box[:, 1] for z in box[:, 2]])
    right, up, back = ((corners - camera.target) @ camera.axes.T).T
    slope = np.tan(camera.field / 2)
    far = np.maximum(np.abs(up) / slope, np.abs(right) / (slope * aspect)) + back
    return 1.08 * float(max(np.max(far), 1e-2))


def _vector(x: ArrayLike | Sequence[int | float], name: str) -> np.ndarray:
    vector = np.asarray(arguments.parameter(x, name, (3,)), float)
    arguments.require_finite(name, vector)
    return vector
