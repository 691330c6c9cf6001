"""Read the triangles and colours of mesh files by trimesh, within the limits of `mesh_limits`."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import require_package
from . import mesh_limits
from .mesh_limits import NamedFiles, UnreadableMesh, check_coordinates, check_limit, checked_data


class Part(NamedTuple):
    """A part of a mesh.

    - `vertices`: (n, 3), in m; `faces`: (m, 3), indices of vertices;
    - `color`: (4,), red, green, blue and opacity from 0 to 1, or None if the file states no colour.
    """

    vertices: np.ndarray
    faces: np.ndarray
    color: tuple[float, ...] | None


def read_mesh_file(path: Path, scale: np.ndarray) -> list[Part]:
    """The parts of a mesh file in its frame, with coordinates multiplied by `scale` (3,).

    Raises UnreadableMesh, which names the file, if the file is damaged, beyond a limit of
    `mesh_limits`, or has coordinates that are not finite in single precision. Raises ArgumentError
    if trimesh is not installed.
    """
    require_package("trimesh", "view", f"{path}: a mesh")
    import trimesh

    files = NamedFiles(path)
    try:
        data = checked_data(path, files)
        kind = path.suffix.lower()[1:]
        # Suppress warnings about numbers that `_parts` refuses, and of pycollada with NumPy 2.5.
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            # `process=True` would drop vertices that are not finite; `_parts` refuses them.
            resolver: Any = files
            scene = trimesh.load_scene(
                io.BytesIO(data), file_type=kind, resolver=resolver, process=False
            )
            if files.fault is not None:
                raise files.fault
            found = list(_parts(scene, scale))
        if not found:
            raise UnreadableMesh("it has no triangles")
    except Exception as error:  # each reader of a format has other exceptions
        raise UnreadableMesh(f"mesh {str(path)!r} cannot be read: {error}") from None
    return found


def _parts(scene: Any, scale: np.ndarray) -> Iterator[Part]:
    """The parts of a scene, placed at the poses of their nodes. A part can be in several nodes."""
    import trimesh

    placed = map(scene.graph.get, list(scene.graph.nodes_geometry))
    nodes = [(pose, scene.geometry[name]) for pose, name in placed]
    nodes = [(pose, part) for pose, part in nodes if isinstance(part, trimesh.Trimesh)]
    nodes = [(pose, part) for pose, part in nodes if len(part.faces)]
    check_limit(len(nodes), mesh_limits.MAX_NODES, "parts, with copies")
    triangles = sum(len(part.faces) for _, part in nodes)
    check_limit(triangles, mesh_limits.MAX_TRIANGLES, "triangles, with copies")
    colors = _Colors()
    known: dict[int, tuple[np.ndarray, np.ndarray, tuple[float, ...] | None]] = {}
    for pose, part in nodes:
        if id(part) not in known:
            used, faces = np.unique(np.asarray(part.faces), return_inverse=True)
            if used[0] < 0:
                raise UnreadableMesh("it has a negative index of a vertex")
            vertices = np.asarray(part.vertices, float)[used]
            known[id(part)] = vertices, faces.reshape(-1, 3), colors.mean(part.visual)
        vertices, faces, color = known[id(part)]
        H = np.diag(scale * _unit(part)) @ np.asarray(pose, float)[:3]
        vertices = vertices @ H[:, :3].T + H[:, 3]
        check_coordinates(vertices)
        turned_inside_out = np.linalg.det(H[:, :3]) < 0
        yield Part(vertices, faces[:, :: -1 if turned_inside_out else 1], color)


def _unit(part: Any) -> float:
    """The unit of length of a COLLADA file, in m; 1 for other files. trimesh does not apply it."""
    factor, _, unit = str(part.metadata.get("units", "")).partition(" * ")
    return float(factor) if unit == "meters" else 1.0


class _Colors:
    """Mean colours of parts. Each texture is decoded once."""

    def __init__(self) -> None:
        self._pixels: dict[int, np.ndarray] = {}
        self._textures: list[Any] = []  # keeps the textures alive, so their ids stay unique

    def mean(self, visual: Any) -> tuple[float, ...] | None:
        """The mean colour that the file states for a part, or None."""
        if not getattr(visual, "defined", False):
            return None
        try:
            rgba = self._mean(visual)
        except UnreadableMesh:
            raise
        except Exception:  # a texture that is missing or damaged: the mesh has no colour
            return None
        return tuple(float(x) for x in np.clip(np.asarray(rgba, float)[:4] / 255, 0, 1))

    def _mean(self, visual: Any) -> Any:
        """As `mean`, but from 0 to 255, and with errors for textures that cannot be read."""
        if visual.kind != "texture":
            return np.mean(visual.face_colors, axis=0)
        image = getattr(visual.material, "image", None)
        image = image or getattr(visual.material, "baseColorTexture", None)
        if image is None:
            return visual.material.main_color
        pixels = self._decoded(image)
        height, width = pixels.shape[:2]
        u, v = np.asarray(visual.uv, float).T
        column = np.round(u * (width - 1)).astype(int) % width
        row = np.round((1 - v) * (height - 1)).astype(int) % height
        return np.mean(pixels[row, column], axis=0)

    def _decoded(self, image: Any) -> np.ndarray:
        """The pixels (height, width, 4) of a texture, from 0 to 255."""
        if image.format not in mesh_limits.PICTURES:
            raise ValueError(f"a texture of the type {image.format}")
        if id(image) not in self._pixels:
            total = sum(known.size // 4 for known in self._pixels.values())
            total += image.width * image.height
            check_limit(total, mesh_limits.MAX_PIXELS, "pixels in its textures")
            self._textures.append(image)
            self._pixels[id(image)] = np.asarray(image.convert("RGBA"))
        return self._pixels[id(image)]
