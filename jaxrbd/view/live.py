"""A live viewer in the browser: sliders, layers, inverse kinematics by dragging, playback."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ..algorithms import frame_placement
from ..configuration import difference, integrate, neutral
from ..contact import Scene
from ..errors import ArgumentError, JaxRBDError
from ..inverse_kinematics import FrameTask, inverse_kinematics
from ..model import Model, arguments
from ..model.model import joint_groups
from ..so3 import quaternion_from_matrix, quaternion_to_matrix
from ..spatial import Pose
from .contact_arrows import arrow_scale, contact_arrows
from .drawing import drawing
from .markers import Marker, decorated
from .motion import Motion, check_dt, motion
from .stage import Stage, checked_layers, silent, viser_module
from .triangles import Packages

_NO_FRAME = "none"
_LABELS = {
    "visuals": "visuals",
    "collisions": "collisions",
    "frames": "frames",
    "inertias": "inertia ellipsoids",
    "com": "centre of mass",
}


class SliderRange(NamedTuple):
    """A slider: its label, and the range of the coordinate of its dof, in rad or m."""

    label: str
    lower: float
    upper: float


def slider_ranges(model: Model, size: float) -> list[SliderRange]:
    """The sliders of all dofs, (nv,).

    The range of a joint with one dof is its position limits. Without limits, and for joints with
    several dofs, an angle is from -pi to pi, and a length is from -2 `size` to 2 `size`. If a joint
    has only one limit, the other end of its range is at least pi or 2 `size` away from this limit.
    `size`: the size of the drawn robot in m.
    """
    dofs: list[tuple[int, SliderRange]] = []
    for group in joint_groups(model):
        # A dof whose motion has a rotation is an angle.
        turns = np.any(np.asarray(group.joint.subspace())[..., 3:] != 0, axis=-1)
        turns = np.broadcast_to(turns, (len(group.bodies), turns.shape[-1]))
        for body, angles in zip(group.bodies, turns):
            name = model.joint_names[body]
            place = model.joint(name)
            count = place.v.stop - place.v.start
            for k in range(count):
                reach = np.pi if k < len(angles) and angles[k] else 2 * size
                lower, upper = -reach, reach
                if count == 1 and place.q.stop - place.q.start == 1:
                    low = float(model.lower_position_limit[place.q.start])
                    high = float(model.upper_position_limit[place.q.start])
                    lower = low if np.isfinite(low) else min(-reach, high - reach)
                    upper = high if np.isfinite(high) else max(reach, low + reach)
                label = name if count == 1 else f"{name} {k + 1}"
                dofs.append((place.v.start + k, SliderRange(label, lower, upper)))
    return [dof for _, dof in sorted(dofs, key=lambda entry: entry[0])]


class Viewer:
    """A robot in the browser, at `url`, while this Python process runs.

    `serve` makes it. Methods may be called from any thread. `with serve(model) as viewer:` stops
    the viewer at the end of the block.
    """

    def __init__(
        self,
        server: Any,
        model: Model,
        start: Motion,
        dt: float,
        stage: Stage,
        contact: Scene | None,
        layers: Sequence[str],
    ):
        self._server, self._model, self._stage = server, model, stage
        self._motion, self._dt = start, dt
        self._contact = None if contact is None else contact.astype(model.dtype)
        self._scale = arrow_scale(model, stage.drawing, stage.size)
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._show_forces = contact is not None
        self._sliders: list[Any] = []
        self._moved_by_program = False  # whether the program, not the user, moves the sliders
        self._handle: Any = None
        self._add_layers(layers)
        self._play_box: Any = None
        self._time_slider: Any = None
        self._fixed_root: Any = None
        if start.p.shape[1] > 1:
            self._add_playback()
        if len(start.p) == 1:
            self._add_dragging()
            self._add_sliders()
        self._show(start, 0)
        self._player = threading.Thread(target=self._play, daemon=True)
        self._player.start()

    @property
    def url(self) -> str:
        """The address of the page."""
        host = self._server.get_host()
        host = "localhost" if host in ("0.0.0.0", "127.0.0.1", "::") else host
        host = f"[{host}]" if ":" in host else host  # an address of version 6
        return f"http://{host}:{self._server.get_port()}"

    @property
    def q(self) -> np.ndarray:
        """The configuration that is shown: (nq,), or (B, nq) for several robots."""
        with self._lock:
            return self._q[0].copy() if len(self._q) == 1 else self._q.copy()

    def set_configuration(self, q: ArrayLike) -> None:
        """Show a configuration (nq,), or (B, nq) for B robots. Playback stops.

        Raises ArgumentError for another number of robots and for values that are not finite, and
        JaxRBDError after `stop`.
        """
        self._require_running()
        body_poses = motion(self._model, q, "q", ("", "B"))
        self._check_count(body_poses)
        with self._lock:
            self._pause()
            self._show(body_poses, 0)

    def play(self, trajectory: ArrayLike, dt: float = 0.02) -> None:
        """Play a trajectory (T, nq), or (B, T, nq) for B robots, again and again.

        `dt`: the time between configurations in s. Raises ArgumentError for another number of
        robots, for values that are not finite, and for a dt that is not positive, and JaxRBDError
        after `stop`.
        """
        self._require_running()
        dt, body_poses = check_dt(dt), motion(self._model, trajectory)
        self._check_count(body_poses)
        with self._lock:
            self._motion, self._dt = body_poses, dt
            for control in (self._time_slider, self._play_box):
                if control is not None:
                    control.remove()
            self._add_playback()

    def wait(self) -> None:
        """Return when the viewer is stopped, by `stop` or by an interrupt from the keyboard."""
        with contextlib.suppress(KeyboardInterrupt):
            while not self._stopped.wait(0.5):
                pass
        self.stop()

    def stop(self) -> None:
        """Stop the server. The page in the browser stays, and no longer changes."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        self._player.join(timeout=5)
        with silent():
            self._server.stop()

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Viewer({self._model.name!r}, {self.url})"

    # ------------------------------------------------------------------------------- the scene

    def _require_running(self) -> None:
        if self._stopped.is_set():
            raise JaxRBDError(f"{self!r} is stopped: `serve` starts a new viewer")

    def _check_count(self, body_poses: Motion) -> None:
        if len(body_poses.p) != len(self._stage.offsets):
            raise ArgumentError(
                f"{len(body_poses.p)} robots, expected {len(self._stage.offsets)}: the viewer "
                "keeps the number of robots of `serve`"
            )

    def _show(self, body_poses: Motion, index: int) -> None:
        """Show the configurations at the time with this index, and move the sliders there."""
        self._q = body_poses.q[:, index]
        self._stage.place(body_poses, index)
        self._draw_forces()
        if self._sliders:
            self._moved_by_program = True
            x = difference(self._model, neutral(self._model), self._typed(self._q[0]))
            for slider, value in zip(self._sliders, np.asarray(x, float)):
                slider.value = float(np.clip(value, slider.min, slider.max))
            self._moved_by_program = False

    def _typed(self, q: np.ndarray) -> Any:
        """q as an array of JAX, in the dtype of the model."""
        return jnp.asarray(q, self._model.dtype)

    def _draw_forces(self) -> None:
        if self._contact is None:
            return
        body_poses = motion(self._model, self._q, "q", ("B",))
        arrows = contact_arrows(self._model, self._contact, body_poses, self._dt)
        for robot in range(len(self._q)):
            self._stage.show_forces(
                robot,
                arrows.points[robot, 0],
                arrows.forces[robot, 0],
                self._scale,
                self._show_forces,
            )

    def _show_single(self, q: Any) -> None:
        """Show the configuration (nq,) of a single robot."""
        self._show(motion(self._model, q), 0)

    # -------------------------------------------------------------------------------- controls

    def _add_layers(self, layers: Sequence[str]) -> None:
        gui = self._server.gui
        with gui.add_folder("Show"):
            for layer in (*_LABELS, *(x for x in layers if x not in _LABELS)):
                box = gui.add_checkbox(_LABELS.get(layer, layer), layer in layers)

                @box.on_update
                def _(event: Any, layer: str = layer) -> None:
                    self._stage.show_layer(layer, event.target.value)

            if self._contact is not None:
                forces = gui.add_checkbox("contact forces", True)

                @forces.on_update
                def _(event: Any) -> None:
                    with self._lock:
                        self._show_forces = event.target.value
                        self._draw_forces()

    def _add_playback(self) -> None:
        gui = self._server.gui
        duration = (self._motion.p.shape[1] - 1) * self._dt
        self._play_box = gui.add_checkbox("play", True)
        self._time_slider = gui.add_slider("time in s", 0.0, max(duration, self._dt), self._dt, 0.0)

        @self._time_slider.on_update
        def _(event: Any) -> None:
            if event.client is not None:  # the user moved the slider
                with self._lock:
                    self._pause()
                    self._show(self._motion, self._index(event.target.value))

    def _index(self, seconds: float) -> int:
        return int(np.clip(round(seconds / self._dt), 0, self._motion.p.shape[1] - 1))

    def _pause(self) -> None:
        if self._play_box is not None:
            self._play_box.value = False

    def _play(self) -> None:
        """Show the configurations of a trajectory at their times, until the viewer is stopped."""
        last = time.monotonic()
        while not self._stopped.wait(1 / 30):
            now = time.monotonic()
            elapsed, last = now - last, now
            with self._lock:
                if self._play_box is None or self._time_slider is None or not self._play_box.value:
                    continue
                end = (self._motion.p.shape[1] - 1) * self._dt
                seconds = self._time_slider.value + elapsed
                self._time_slider.value = seconds if seconds <= end else 0.0
                self._show(self._motion, self._index(self._time_slider.value))

    def _add_sliders(self) -> None:
        gui, model = self._server.gui, self._model
        with gui.add_folder("Joints"):
            for dof in slider_ranges(model, self._stage.size):
                step = (dof.upper - dof.lower) / 1000 or 1e-3
                value = float(np.clip(0.0, dof.lower, dof.upper))
                upper = dof.upper if dof.upper > dof.lower else dof.lower + step
                slider = gui.add_slider(dof.label, dof.lower, upper, step, value)
                slider.on_update(self._slide)
                self._sliders.append(slider)

    def _slide(self, event: Any) -> None:
        if self._moved_by_program or event.client is None:
            return
        with self._lock:
            self._pause()
            x = jnp.asarray([slider.value for slider in self._sliders], self._model.dtype)
            self._show_single(integrate(self._model, neutral(self._model), x))

    # ------------------------------------------------------------------------ inverse kinematics

    def _add_dragging(self) -> None:
        model = self._model
        frames = [f for f, body in zip(model.frame_names, model.frame_bodies) if body >= 0]
        if not frames or model.nv == 0:
            return
        gui = self._server.gui
        with gui.add_folder("Inverse kinematics"):
            choice = gui.add_dropdown("drag", (_NO_FRAME, *frames), initial_value=_NO_FRAME)
            if self._roots:
                self._fixed_root = gui.add_checkbox("keep the root", True)

        @choice.on_update
        def _(event: Any) -> None:
            with self._lock:
                self._place_handle(event.target.value)

    @property
    def _roots(self) -> tuple[str, ...]:
        """The names of the free-flyer joints of the root bodies."""
        found = []
        for group in joint_groups(self._model):
            if not group.joint.actuated:
                found += [
                    self._model.joint_names[body]
                    for body in group.bodies
                    if self._model.topology.parents[body] < 0
                ]
        return tuple(found)

    def _place_handle(self, frame: str) -> None:
        """Put the drag handle at a frame."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        if frame == _NO_FRAME:
            return
        X = frame_placement(self._model, self._typed(self._q[0]), frame)
        x, y, z, w = np.asarray(quaternion_from_matrix(X.R), float).tolist()
        handle = self._handle = self._server.scene.add_transform_controls(
            "/drag handle",
            scale=0.4 * self._stage.size,
            depth_test=False,
            position=tuple(np.asarray(X.p, float).tolist()),
            wxyz=(w, x, y, z),
        )
        last_target = b""

        @handle.on_update
        def _(_: Any) -> None:
            nonlocal last_target
            with self._lock:
                target = np.concatenate([handle.position, handle.wxyz])
                if self._handle is not handle or last_target == target.tobytes():
                    return  # the handle was replaced, or an earlier event has used this pose
                last_target = target.tobytes()
                self.reach(frame, target[:3], target[[4, 5, 6, 3]])

    def reach(self, frame: str, position: ArrayLike, quaternion: ArrayLike) -> None:
        """Move the robot so that a frame comes near a pose in the world, within the limits.

        `position` (3,) in m; `quaternion` (4,) as x, y, z, w, not zero. The search starts at the
        configuration that is shown. A free-flyer joint at the root keeps its place if the box "keep
        the root" is checked. Raises ArgumentError for an unknown frame, for values that are not
        finite or of another shape, for a zero quaternion, and for several robots, and JaxRBDError
        after `stop`.
        """
        self._require_running()
        position = arguments.parameter(position, "position", (3,))
        quaternion = arguments.parameter(quaternion, "quaternion", (4,))
        arguments.require(position, np.isfinite, "position", "finite")
        arguments.require(
            quaternion,
            lambda x: np.all(np.isfinite(x)) and np.any(x != 0),
            "quaternion",
            "finite and not zero",
        )
        if len(self._q) != 1:
            raise ArgumentError(f"the viewer shows {len(self._q)} robots, expected one")
        dtype = self._model.dtype
        R = quaternion_to_matrix(jnp.asarray(quaternion, dtype))
        task = FrameTask(frame, Pose(R, jnp.asarray(position, dtype)), (1, 1, 1, 0.1, 0.1, 0.1))
        with self._lock:
            self._pause()
            lower = np.asarray(self._model.lower_position_limit)
            q0 = np.clip(self._q[0], lower, np.asarray(self._model.upper_position_limit))
            locked = self._roots if self._fixed_root is not None and self._fixed_root.value else ()
            found = inverse_kinematics(
                self._model, [task], self._typed(q0), locked=locked, max_iterations=30
            )
            self._show_single(found.q)


def _free_port(host: str, port: int) -> int:
    """The first free port from `port`, or any free port for 0.

    Viser waits without end if its port is in use.
    """
    if not arguments.is_integer(port) or not 0 <= port <= 65535:
        raise ArgumentError(f"port is {port!r}, expected an integer from 0 to 65535")
    unknown = ArgumentError(f"host is {host!r}, expected the name of this machine")
    try:
        if not isinstance(host, str) or not host:  # "" would be all addresses of this machine
            raise TypeError
        family, kind, *_ = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
    except (OSError, TypeError, UnicodeError):
        raise unknown from None
    for free in range(port, 65536):
        with socket.socket(family, kind) as listener:
            try:
                listener.bind((host, free))
                return listener.getsockname()[1]
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL:  # the host is another machine
                    raise unknown from None
    raise ArgumentError(f"no port of {host} from {port} to 65535 is free")


def serve(
    model: Model,
    q: ArrayLike | None = None,
    *,
    dt: float = 0.02,
    contact: Scene | None = None,
    layers: Sequence[str] = ("visuals",),
    packages: Packages | None = None,
    host: str = "127.0.0.1",
    port: int = 8080,
    markers: Sequence[Marker] = (),
    ghosts: ArrayLike | None = None,
    side_by_side: bool = True,
) -> Viewer:
    """A live page with the robot, as a `Viewer`: open its `url` in a browser.

    - `q`: a configuration (nq,), a trajectory (T, nq), which is played, or (B, T, nq) for B robots;
      None: the neutral configuration, moved into the position limits;
    - `dt`: the time between the configurations of a trajectory, in s;
    - `contact`: a scene; the forces of the ground on its spheres are drawn as arrows. They are the
      forces of `contact_force` at zero velocity. Forces between the shapes of `scene.pairs` are not
      drawn;
    - `layers`, `packages`, `markers`, `ghosts`, `side_by_side`: as in `render`;
    - `host`, `port`: the address of the server. If the port is in use, the next free port is taken;
      0 stands for any free port. With the host "0.0.0.0" other machines can open the page.

    The page has a box for each layer. For a single robot it has a slider for each dof, and a list
    of frames: the chosen frame gets a handle, and dragging it solves inverse kinematics. The
    sliders of a joint with several dofs are coordinates of `integrate` from the neutral
    configuration. Needs viser (`pip install viser`).

    Warnings and errors are as for `save_html`. Raises ArgumentError also for a host that is no
    name of this machine, for a port that is no integer from 0 to 65535, and if no port from `port`
    is free.
    """
    layers, dt = checked_layers(layers), check_dt(dt)
    if contact is not None:
        arguments.require_type(contact, "contact", Scene)
    port = _free_port(host, port)
    viser = viser_module()
    scene, layers = decorated(model, drawing(model, packages), layers, markers, ghosts)
    if q is None:
        start = np.asarray(neutral(model))
        q = np.clip(start, model.lower_position_limit, model.upper_position_limit)
    body_poses = motion(model, q, "q")
    with silent():
        server = viser.ViserServer(host=host, port=port, verbose=False)
    try:
        stage = Stage(server, model, scene, body_poses, layers, side_by_side)
        return Viewer(server, model, body_poses, dt, stage, contact, layers)
    except BaseException:
        with silent():
            server.stop()
        raise
