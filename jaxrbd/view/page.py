"""Pages that show robots without a server: in a notebook, or in one HTML file."""

from __future__ import annotations

import contextlib
import html
import os
from collections.abc import Iterator, Sequence
from typing import Any

from jax.typing import ArrayLike

from ..contact import Scene
from ..io._sealed import replace_file
from ..model import Model, arguments
from .contact_arrows import arrow_scale, contact_arrows
from .drawing import Drawing, drawing
from .markers import Marker, decorated
from .motion import check_dt, motion, nearest_steps
from .stage import Stage, checked_layers, silent, viser_module
from .triangles import Packages

_FRAMES_PER_SECOND = 30.0


class Page:
    """A page with a robot, which a notebook displays; `html` is the text of the page.

    `height`: the height in a notebook, in pixels.
    """

    def __init__(self, text: str, height: int = 480):
        self.html = text
        arguments.require_counts(height=height)
        self.height = int(height)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file. If writing fails, the previous file is unchanged."""
        replace_file(path, self.html.encode("utf-8"))

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{html.escape(self.html, quote=True)}" width="100%" '
            f'height="{self.height}" style="border:none;display:block"></iframe>'
        )

    def __repr__(self) -> str:
        return f"Page({len(self.html) / 1e6:.1f} MB of HTML)"


def show(
    model: Model,
    q: ArrayLike | None = None,
    *,
    dt: float = 0.02,
    layers: Sequence[str] = ("visuals",),
    contact: Scene | None = None,
    packages: Packages | None = None,
    height: int = 480,
    markers: Sequence[Marker] = (),
    ghosts: ArrayLike | None = None,
    side_by_side: bool = True,
) -> Page:
    """A page that a notebook displays inline: put the call at the end of a cell.

    `q`: a configuration or trajectories, as `trajectory` in `save_html`; None: the neutral
    configuration. The other arguments, the errors and the warnings are as for `save_html`;
    `height` is in pixels. The page needs no server, and stays in the saved notebook.
    """
    layers, dt = checked_layers(layers), check_dt(dt)
    scene, layers = decorated(model, drawing(model, packages), layers, markers, ghosts)
    return Page(_page(model, scene, q, dt, layers, contact, side_by_side, "q"), height)


def save_html(
    path: str | os.PathLike[str],
    model: Model,
    trajectory: ArrayLike | None = None,
    *,
    dt: float = 0.02,
    layers: Sequence[str] = ("visuals",),
    contact: Scene | None = None,
    packages: Packages | None = None,
    markers: Sequence[Marker] = (),
    ghosts: ArrayLike | None = None,
    side_by_side: bool = True,
) -> None:
    """Write one HTML file that shows the robot and plays the trajectory, without a network.

    - `trajectory`: configurations (T, nq), or (B, T, nq) for B robots, or one configuration (nq,);
      None: the neutral configuration;
    - `dt`: the time between configurations in s. At most 30 configurations per second are kept;
    - `layers`: the layers that are visible at the start, as in `render`. The scene tree of the page
      shows and hides every shape;
    - `contact`: a scene; the forces of the ground on its spheres are drawn as arrows. They are the
      forces of `contact_force`, with velocities from the differences of the configurations;
    - `packages`: as in `drawing`;
    - `markers`, `ghosts`, `side_by_side`: as in `render`. Markers and ghosts do not move.

    The file has each mesh once, and the poses of the bodies at each shown time. Needs viser
    (`pip install viser 'trimesh[easy]'`). If writing fails, the previous file is unchanged.

    Warnings and errors are as for `drawing`. Raises ArgumentError also for values that are
    not finite, a dt that is not positive, an unknown layer, a wrong marker, or if viser is not
    installed, and OSError if the file cannot be written.
    """
    layers, dt = checked_layers(layers), check_dt(dt)
    scene, layers = decorated(model, drawing(model, packages), layers, markers, ghosts)
    text = _page(model, scene, trajectory, dt, layers, contact, side_by_side, "trajectory")
    Page(text).save(path)


def _page(
    model: Model,
    scene: Drawing,
    q: ArrayLike | None,
    dt: float,
    layers: Sequence[str],
    contact: Scene | None,
    side_by_side: bool,
    name: str,
) -> str:
    """The text of a page.

    `scene`: the drawing with its markers and ghosts; `name`: the name of q in messages.
    """
    if contact is not None:
        arguments.require_type(contact, "contact", Scene)
    found = motion(model, q, name)
    kept = _kept(found.q.shape[1], dt)
    arrows = None if contact is None else contact_arrows(model, contact, found, dt)
    scale = arrow_scale(model, scene, scene.size(layers or ("visuals",)))
    with server("127.0.0.1", 0) as started:
        stage = Stage(started, model, scene, found, layers, side_by_side)

        def place(step: int) -> None:
            stage.place(found, step)
            if arrows is not None:
                for robot in range(len(found.p)):
                    points, forces = arrows.points[robot, step], arrows.forces[robot, step]
                    stage.show_forces(robot, points, forces, scale, True)

        place(kept[0])
        recording = started.get_scene_serializer()
        for step in kept[1:]:
            recording.insert_sleep(max(dt, 1 / _FRAMES_PER_SECOND))
            place(step)
        if len(kept) > 1:
            recording.insert_sleep(max(dt, 1 / _FRAMES_PER_SECOND))
        return recording.as_html()


def _kept(count: int, dt: float) -> Sequence[int]:
    """The indices of the shown configurations, at most 30 per second."""
    period = 1 / _FRAMES_PER_SECOND
    return range(count) if dt >= period else nearest_steps(count, dt, period)


@contextlib.contextmanager
def server(host: str, port: int) -> Iterator[Any]:
    """A viser server that is stopped at the end. Its messages are discarded."""
    viser = viser_module()
    with silent():
        started = viser.ViserServer(host=host, port=port, verbose=False)
    try:
        yield started
    finally:
        with silent():
            started.stop()
