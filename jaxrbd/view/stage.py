"""The scene of a viewer: one node per body, with triangles in layers.

After the start, only the poses of the nodes, the visible layers and the contact forces change.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentError, require_package
from ..model import Model
from ..model.arguments import names, require_flag
from .drawing import LAYERS, Drawing
from .motion import RELATIVE_AXIS_LENGTH, Motion, bounds, center_of_mass

_COM_COLOR = (230, 30, 150)
_FORCE_COLOR = (220, 40, 40)


def checked_layers(layers: Sequence[str]) -> tuple[str, ...]:
    """The layers. Raises ArgumentError for an unknown layer."""
    found = (layers,) if isinstance(layers, str) else names(layers, "layers")
    for layer in found:
        if layer not in LAYERS:
            raise ArgumentError(f"layers has {layer!r}, expected some of {', '.join(LAYERS)}")
    return found


def viser_module() -> Any:
    """The module `viser`. Raises ArgumentError if it is not installed."""
    require_package("viser", "view", "the viewer")
    import viser

    return viser


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Discard the messages of viser, which the library rich prints."""
    import rich

    console = rich.get_console()
    was_quiet, console.quiet = console.quiet, True
    try:
        yield
    finally:
        console.quiet = was_quiet


def robot_offsets(
    drawing: Drawing,
    motion: Motion,
    layers: Sequence[str] = ("visuals",),
    side_by_side: bool = True,
) -> np.ndarray:
    """Positions (B, 3) in m that put B robots side by side along y, around the origin.

    If `side_by_side` is False, all positions are zero.

    The distance between two robots is 1.25 times the width of the widest robot in its first
    configuration, with the layers that are drawn. Raises ArgumentError if `side_by_side` is not
    True or False.
    """
    require_flag(side_by_side, "side_by_side")
    count = len(motion.p)
    if not side_by_side:
        return np.zeros((count, 3))
    boxes = [bounds(drawing, R, p, layers) for R, p in zip(motion.R[:, 0], motion.p[:, 0])]
    width = max(np.ptp(box, axis=0)[1] for box in boxes) or drawing.size(layers)
    y = (np.arange(count) - (count - 1) / 2) * 1.25 * width
    return np.stack([np.zeros(count), y, np.zeros(count)], axis=1)


class Stage:
    """B robots in the scene of a viser server.

    - `drawing`: what is drawn on each body; `motion`: the poses of the bodies at each time;
    - `visible`: the layers that are visible at the start;
    - `side_by_side`: whether the robots stand side by side, or all in one place.
    """

    def __init__(
        self,
        server: Any,
        model: Model,
        drawing: Drawing,
        motion: Motion,
        visible: Sequence[str],
        side_by_side: bool = True,
    ):
        self.drawing = drawing
        self._server = server
        self._layers: dict[str, list[Any]] = {
            layer: [] for layer in (*LAYERS, *(item.layer for item in drawing.items))
        }
        self._forces: dict[int, Any] = {}
        # The last position and quaternion of each node, by the name of the node.
        self._last: dict[str, tuple[np.ndarray, np.ndarray | None]] = {}
        # The layers from which all sizes and distances are computed.
        shown = visible or ("visuals",)
        self.size = drawing.size(shown)
        self.offsets = robot_offsets(drawing, motion, shown, side_by_side)
        scene = server.scene
        scene.set_up_direction("+z")
        poses = zip(motion.R[:, 0], motion.p[:, 0])
        box = np.array([bounds(drawing, R, p, shown) for R, p in poses])
        box = box + self.offsets[:, None]
        low, high = box[:, 0].min(axis=0), box[:, 1].max(axis=0)
        extent = float(np.linalg.norm(high - low)) or 1.0
        scene.add_grid(
            "/ground",
            width=20 * extent,
            height=20 * extent,
            cell_size=_round(extent / 10),
            section_size=_round(extent / 10) * 5,
            position=(0.0, 0.0, min(0.0, float(low[2]))),
        )
        middle = (low + high) / 2
        server.initial_camera.look_at = tuple(middle)
        server.initial_camera.position = tuple(middle + extent * np.array([0.85, -0.7, 0.35]))
        server.initial_camera.fov = 0.9
        self._add_robots(model, visible)

    def _add_robots(self, model: Model, visible: Sequence[str]) -> None:
        scene, drawing = self._server.scene, self.drawing
        name = _node(model.name)
        self._roots = [
            f"/{name}" if len(self.offsets) == 1 else f"/{i} {name}"
            for i in range(len(self.offsets))
        ]
        # Markers and ghosts are the items whose layers are not in LAYERS. If all robots are in one
        # place, these items are drawn for the first robot only.
        self._without_markers = self._roots[1:] if not np.any(self.offsets) else []
        self._bodies = []
        self._coms = []
        axes = RELATIVE_AXIS_LENGTH * self.size
        for root, offset in zip(self._roots, self.offsets):
            scene.add_frame(root, show_axes=False, position=tuple(offset))
            paths = [f"{root}/{i} {_node(body)}" for i, body in enumerate(model.body_names)]
            self._bodies.append([scene.add_frame(path, show_axes=False) for path in paths])
            for path in paths:
                frame = scene.add_frame(
                    f"{path}/frame",
                    axes_length=axes,
                    axes_radius=0.03 * axes,
                    visible="frames" in visible,
                )
                self._layers["frames"].append(frame)
            for i, item in enumerate(drawing.items):
                if item.layer not in LAYERS and root in self._without_markers:
                    continue
                path = paths[item.body] if item.body >= 0 else f"{root}/world"
                *color, opacity = item.color
                mesh = scene.add_mesh_simple(
                    f"{path}/{item.layer}/{i} {_node(item.name)}",
                    vertices=item.vertices.astype(np.float32),
                    faces=item.faces.astype(np.uint32),
                    color=tuple(round(255 * x) for x in color),
                    opacity=None if opacity >= 0.999 else opacity,
                    side="double",
                    visible=item.layer in visible,
                )
                self._layers[item.layer].append(mesh)
            com = scene.add_icosphere(
                f"{root}/centre of mass",
                radius=0.1 * axes,
                color=_COM_COLOR,
                visible="com" in visible,
            )
            self._coms.append(com)
            self._layers["com"].append(com)

    def place(self, motion: Motion, time: int) -> None:
        """Move the robots to their configurations at the time with this index."""
        with self._server.atomic():
            for robot, bodies in enumerate(self._bodies):
                R, p = motion.R[robot, time], motion.p[robot, time]
                # viser has the order [w x y z].
                quaternion = motion.quaternion[robot, time][:, [3, 0, 1, 2]]
                for body, handle in enumerate(bodies):
                    self._move(handle, p[body], quaternion[body])
                self._move(self._coms[robot], center_of_mass(self.drawing, R, p), None)

    def _move(self, handle: Any, p: np.ndarray, quaternion: np.ndarray | None) -> None:
        """Set a pose. A pose that has not changed is not sent again."""
        last_p, last = self._last.get(handle.name, (None, None))
        if last_p is None or not np.array_equal(last_p, p):
            handle.position = tuple(p.tolist())
        if quaternion is not None and (last is None or not np.array_equal(last, quaternion)):
            handle.wxyz = tuple(quaternion.tolist())
        self._last[handle.name] = (p, quaternion)

    def show_layer(self, layer: str, visible: bool) -> None:
        """Show or hide a layer of all robots."""
        for handle in self._layers[layer]:
            handle.visible = visible

    def show_forces(
        self, robot: int, points: np.ndarray, forces: np.ndarray, scale: float, visible: bool
    ) -> None:
        """Draw forces (n, 3) in N at points (n, 3) in m as arrows of `scale` m/N.

        The arrows replace the previous arrows of the robot. The vectors are in world axes.
        """
        if robot in self._forces:
            self._forces.pop(robot).remove()
        acting = np.linalg.norm(forces, axis=1) > 0
        if not np.any(acting):
            return
        ends = points[acting] + scale * forces[acting]
        size = 0.1 * self.size
        self._forces[robot] = self._server.scene.add_arrows(
            f"{self._roots[robot]}/contact forces",
            np.stack([points[acting], ends], axis=1).astype(np.float32),
            colors=_FORCE_COLOR,
            shaft_radius=0.1 * size,
            head_radius=0.25 * size,
            head_length=0.5 * size,
            visible=visible,
        )


def _node(name: str) -> str:
    """A name as part of the path of a node."""
    return name.replace("/", "_").strip() or "_"


def _round(x: float) -> float:
    """A length of the form 1, 2 or 5 times a power of ten, near x."""
    power = 10.0 ** np.floor(np.log10(x))
    return float(power * min((1, 2, 5, 10), key=lambda f: abs(f - x / power)))
