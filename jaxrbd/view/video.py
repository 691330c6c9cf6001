"""Videos of a trajectory, drawn picture by picture in NumPy: no browser and no display."""

from __future__ import annotations

import itertools
import os
import struct
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
from jax.typing import ArrayLike

from ..errors import ArgumentError, require_package
from ..io._sealed import file_path, replace_file
from ..model import Model, arguments
from .drawing import drawing
from .markers import Marker, decorated, frame_origins
from .motion import Motion, check_dt, motion, nearest_steps
from .picture import checked_view, pictures
from .stage import checked_layers
from .triangles import Packages


def save_video(
    path: str | os.PathLike[str],
    model: Model,
    trajectory: ArrayLike,
    *,
    dt: float = 0.02,
    rate: float = 25,
    follow: str | None = None,
    width: int = 480,
    height: int = 360,
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
) -> None:
    """Write a video that plays the trajectory in real time.

    - `path`: the name of the file. It ends in .gif or .mp4, which decides the type of the video;
    - `trajectory`: configurations (T, nq), or (B, T, nq) for B robots;
    - `dt`: the time between configurations in s;
    - `rate`: pictures per second, at least 0.01, and at most 50 in a GIF and 240 in an MP4. Each
      picture shows the nearest configuration in time. A GIF states times in multiples of 0.01 s,
      so the time between two pictures is the multiple nearest to 1 / `rate`;
    - `follow`: the name of a frame, such as a link. The camera and its target move horizontally,
      with x and y of the origin of this frame, or with their means over B robots. None: the camera
      stands still;
    - `target` (3,): in m, at the start of the motion; None: the middle of the motion relative to
      the camera;
    - `distance`: as for `render`; None: every picture contains all robots.

    The other arguments are as for `render`. Markers and ghosts do not move. The pictures are
    drawn one after another, without a display: one of 480 x 360 pixels takes about 1 s.

    A GIF needs Pillow, and an MP4 needs imageio-ffmpeg (`pip install pillow imageio-ffmpeg`). If
    writing fails, the previous file is unchanged.

    Warnings and errors are as for `render`. Raises ArgumentError also for another ending of
    `path`, a folder that does not exist, an odd width or height of an MP4, a `dt` or `rate` out of
    range, more than a million pictures, an unknown frame, more than 655.35 s of equal pictures in a
    GIF, or if a package is not installed, and OSError if the file cannot be written.
    """
    kind = checked_type(path)
    _, largest_rate, write = _TYPES[kind]
    layers, dt = checked_layers(layers), check_dt(dt)
    rate = float(arguments.parameter(rate, "rate", ()))
    arguments.require(
        np.asarray(rate),
        lambda x: (x >= _SMALLEST_RATE) & (x <= largest_rate),
        "rate",
        f"from {_SMALLEST_RATE} to {largest_rate} pictures per second",
    )
    view = checked_view(width, height, camera, target, distance, ground, background, smooth)
    for name, size in (("width", width), ("height", height)):
        if kind == ".mp4" and size % 2:
            raise ArgumentError(f"{name} is {size}, expected an even number for an MP4 video")
    scene = drawing(model, packages)
    found = motion(model, trajectory, "trajectory", ("T", "BT"))
    if (found.q.shape[1] - 1) * dt * rate > _MOST_PICTURES:
        raise ArgumentError(
            f"dt is {dt}: the video has more than {_MOST_PICTURES} pictures, expected fewer"
        )
    scene, layers = decorated(model, scene, layers, markers, ghosts)
    travel = None if follow is None else _travel(model, found, follow)
    period = round(100 / rate) / 100 if kind == ".gif" else 1 / rate
    steps = nearest_steps(found.q.shape[1], dt, period)
    drawn = pictures(scene, found, layers, view, side_by_side, steps, travel)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"video{kind}"
        write(file, drawn, period)
        replace_file(path, file.read_bytes())


def checked_type(path: str | os.PathLike[str]) -> str:
    """The ending of the name of a video.

    Raises ArgumentError for another ending, if the folder of the file does not exist, and if the
    package that writes the video is not installed.
    """
    kind = Path(file_path(path)).suffix.lower()
    if kind not in _TYPES:
        raise ArgumentError(f"path is {str(path)!r}, expected a name that ends in .gif or .mp4")
    if not Path(path).parent.is_dir():
        raise ArgumentError(f"path is {str(path)!r}, and its folder does not exist")
    require_package(_TYPES[kind].module, "video", f"a {kind} video")
    return kind


def _travel(model: Model, found: Motion, frame: str) -> np.ndarray:
    """How far a frame has moved horizontally (T, 3), as the mean over all robots."""
    place = frame_origins(model, found.R, found.p, frame).mean(axis=0)
    return (place - place[0]) * (1, 1, 0)


def _write_gif(file: Path, pictures: Iterator[np.ndarray], period: float) -> None:
    """Write a GIF whose pictures are `period` s apart, and that starts again at its end."""
    from PIL import Image

    first, *rest = (Image.fromarray(picture) for picture in pictures)
    options = {"append_images": rest, "duration": round(1000 * period), "loop": 0}
    try:
        first.save(file, save_all=True, **options)
    except (OverflowError, struct.error) as error:  # Pillow joins equal pictures
        raise ArgumentError(
            "the pictures do not change for more than 655.35 s, the longest time of a picture in a "
            "GIF; expected a shorter rest, or a path that ends in .mp4"
        ) from error


def _write_mp4(file: Path, pictures: Iterator[np.ndarray], period: float) -> None:
    """Write an MP4 video (H.264) whose pictures are `period` s apart."""
    import imageio_ffmpeg

    first = next(pictures)
    size = (first.shape[1], first.shape[0])
    rate = cast("int", 1 / period)  # imageio_ffmpeg annotates an int, and accepts fractions
    writer = imageio_ffmpeg.write_frames(file, size, fps=rate, quality=7, macro_block_size=2)
    with warnings.catch_warnings():
        # JAX warns of forks, because the copy of a process with threads can wait for ever. Here the
        # copied process becomes ffmpeg at once.
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
        writer.send(None)
    try:
        for picture in itertools.chain([first], pictures):
            writer.send(picture.tobytes())
    finally:
        writer.close()


# The time between two pictures of a GIF has 16 bits, in units of 0.01 s.
_SMALLEST_RATE = 0.01  # pictures per second
_MOST_PICTURES = 1_000_000


class _Type(NamedTuple):
    """A type of video.

    - `module`: the package that it needs;
    - `largest_rate`: in pictures per second;
    - `write(file, pictures, period)`: writes a file whose pictures are `period` s apart.
    """

    module: str
    largest_rate: int
    write: Callable[[Path, Iterator[np.ndarray], float], None]


_TYPES = {
    ".gif": _Type("PIL", 50, _write_gif),
    ".mp4": _Type("imageio_ffmpeg", 240, _write_mp4),
}
