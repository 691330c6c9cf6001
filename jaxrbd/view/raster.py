"""Draw triangles into an array with a depth buffer, in NumPy: no display, no OpenGL, no browser.

The triangles are sorted into classes by size. The size of a class is a power of 2 in pixels: the
longer side of the bounding box of a triangle, cut at the borders of the picture, is at most this
size and more than half of it. Each triangle is sampled at all pixels of a square of the size of its
class. A class is drawn in parts of about `_SAMPLES` samples; each part is at least one triangle.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_SAMPLES = 1_000_000  # samples of a part of a size class, to limit the memory
_LIGHTS = (((0.4, 0.3, 0.85), 0.65), ((-0.6, 0.5, 0.35), 0.3))  # direction in the world, strength
_AMBIENT = 0.32  # strength of the light from all directions
_TILES = np.array([[0.93, 0.94, 0.95], [0.86, 0.87, 0.89]])


class Camera(NamedTuple):
    """A camera at `position` (3,) that looks at `target` (3,), both in m.

    `field` in rad: the vertical angle of view. z is up in the picture, unless the camera looks
    along z: then y is up.
    """

    position: np.ndarray
    target: np.ndarray
    field: float = 0.6

    @property
    def axes(self) -> np.ndarray:
        """The rows (3, 3): the directions to the right, up, and backwards of the camera."""
        back = np.asarray(self.position, float) - self.target
        back = back / np.linalg.norm(back)
        up = np.array([0.0, 0.0, 1.0]) if abs(back[2]) < 0.999 else np.array([0.0, 1.0, 0.0])
        right = np.cross(up, back)
        right = right / np.linalg.norm(right)
        return np.stack([right, np.cross(back, right), back])


class Surface(NamedTuple):
    """Triangles in the world: `vertices` (n, 3), `faces` (m, 3), one colour (4,) per face."""

    vertices: np.ndarray
    faces: np.ndarray
    colors: np.ndarray


class Ground(NamedTuple):
    """The plane z = `height` with square tiles of the length `side`, all in m.

    The ground fades with the distance from the target of the camera: at `range` to 37 %.
    """

    height: float
    side: float
    range: float


class _DepthBuffer(NamedTuple):
    """The inverse depth of each pixel in 1/m, and the index of its triangle (-1: none)."""

    inverse_depth: np.ndarray
    triangle: np.ndarray


def draw(
    surface: Surface,
    camera: Camera,
    width: int,
    height: int,
    background: np.ndarray,
    ground: Ground | None = None,
) -> np.ndarray:
    """The picture (height, width, 3) of float, from 0 to 1.

    Each pixel shows the nearest opaque triangle and, in front of it, the nearest triangle with an
    opacity below 1. A pixel without a triangle shows the ground or the `background` (3,).
    """
    picture = np.empty((height * width, 3))
    picture[:] = background
    normals = _vertex_normals(surface)
    opaque = surface.colors[:, 3] >= 0.999
    inverse_depth = np.zeros(height * width)  # of the surface drawn so far
    if ground is not None and camera.position[2] > ground.height:
        _draw_ground(picture, inverse_depth, ground, camera, width, height)
    for chosen in (np.flatnonzero(opaque), np.flatnonzero(~opaque & (surface.colors[:, 3] > 0))):
        if len(chosen) == 0:
            continue
        part = Surface(surface.vertices, surface.faces[chosen], surface.colors[chosen])
        points, inverse = _projected(part.vertices, camera, width, height)
        layer = _rasterized(points, inverse, part.faces, width, height, inverse_depth)
        pixels = np.flatnonzero(layer.triangle >= 0)
        color, opacity = _shaded(
            part, normals, camera, points, inverse, layer.triangle[pixels], pixels, width
        )
        picture[pixels] += opacity[:, None] * (color - picture[pixels])
        inverse_depth = layer.inverse_depth
    return picture.reshape(height, width, 3)


def _draw_ground(
    picture: np.ndarray,
    inverse_depth: np.ndarray,
    ground: Ground,
    camera: Camera,
    width: int,
    height: int,
) -> None:
    """Draw the ground into the picture and the inverse depths, in place."""
    focal = height / (2 * np.tan(camera.field / 2))
    x = (np.arange(width) + 0.5 - width / 2) / focal
    y = (height / 2 - np.arange(height) - 0.5) / focal
    right, up, back = camera.axes
    ray = (y[:, None, None] * up + x[:, None] * right - back).reshape(-1, 3)
    hit = np.flatnonzero(ray[:, 2] < 0)
    depth = (ground.height - camera.position[2]) / ray[hit, 2]
    place = camera.position[:2] + depth[:, None] * ray[hit, :2]
    tile = np.floor(place / ground.side).sum(axis=1).astype(int) % 2
    fade = np.exp(-np.sum((place - camera.target[:2]) ** 2, axis=1) / ground.range**2)
    picture[hit] += fade[:, None] * (_TILES[tile] - picture[hit])
    inverse_depth[hit] = 1 / depth


def _projected(
    vertices: np.ndarray, camera: Camera, width: int, height: int
) -> tuple[np.ndarray, np.ndarray]:
    """Pixel coordinates (n, 2) and inverse depths (n,) of vertices.

    The inverse depth is 0 for a vertex behind the camera, or almost at the camera.
    """
    x, y, z = ((vertices - camera.position) @ camera.axes.T).T
    focal = height / (2 * np.tan(camera.field / 2))
    near = 1e-3 * np.linalg.norm(np.asarray(camera.position) - camera.target)
    visible = -z > near
    inverse = np.where(visible, 1 / np.where(visible, -z, 1), 0)
    points = np.stack([width / 2 + focal * x * inverse, height / 2 - focal * y * inverse], axis=1)
    return points, inverse


def _rasterized(
    points: np.ndarray,
    inverse: np.ndarray,
    faces: np.ndarray,
    width: int,
    height: int,
    inverse_depth: np.ndarray,
) -> _DepthBuffer:
    """The nearest triangle of each pixel, if it is nearer than `inverse_depth` (pixels,).

    `points`, `inverse`: the results of `_projected`.
    """
    corners = points[faces]  # (m, 3, 2)
    low = np.clip(np.floor(corners.min(axis=1)), 0, [width, height]).astype(int)
    high = np.clip(np.ceil(corners.max(axis=1)), 0, [width, height]).astype(int)
    a, b, c = corners[:, 0], corners[:, 1], corners[:, 2]
    area = _cross(b - a, c - a)
    drawn = np.all(inverse[faces] > 0, axis=1) & np.all(high > low, axis=1) & (area != 0)
    index = np.flatnonzero(drawn)
    extent = np.max(high - low, axis=1)[index]
    level = np.ceil(np.log2(np.maximum(extent, 1))).astype(int)
    largest, triangle = inverse_depth.copy(), np.full(width * height, -1)
    for size in np.unique(level):
        group, side = index[level == size], 1 << int(size)
        step = max(1, _SAMPLES // side**2)
        dx, dy = (x.ravel() for x in np.meshgrid(np.arange(side), np.arange(side)))
        for start in range(0, len(group), step):
            t = group[start : start + step]
            x, y = low[t, :1] + dx, low[t, 1:] + dy
            center = np.stack([x + 0.5, y + 0.5], axis=-1)
            # Barycentric coordinates: u is the weight of the corner a, and v the weight of b.
            u = _cross(b[t, None] - center, c[t, None] - center) / area[t, None]
            v = _cross(c[t, None] - center, a[t, None] - center) / area[t, None]
            inside = (u >= 0) & (v >= 0) & (u + v <= 1) & (x < high[t, :1]) & (y < high[t, 1:])
            row, column = np.nonzero(inside)
            u, v, t = u[row, column], v[row, column], t[row]
            pixel = y[row, column] * width + x[row, column]
            i, j, k = (inverse[faces[t, n]] for n in range(3))
            found = u * i + v * j + (1 - u - v) * k  # the inverse depth at the centre of the pixel
            closer = found > largest[pixel]
            pixel, found, t = pixel[closer], found[closer], t[closer]
            np.maximum.at(largest, pixel, found)
            nearest = found == largest[pixel]
            triangle[pixel[nearest]] = t[nearest]
    return _DepthBuffer(largest, triangle)


def _shaded(
    surface: Surface,
    normals: np.ndarray,
    camera: Camera,
    points: np.ndarray,
    inverse: np.ndarray,
    triangle: np.ndarray,
    pixels: np.ndarray,
    width: int,
) -> tuple[np.ndarray, np.ndarray]:
    """The colours (n, 3) and opacities (n,) of n pixels.

    - `normals`: the result of `_vertex_normals`; `points`, `inverse`: the results of `_projected`;
    - `triangle` (n,): the index of the triangle that each pixel shows;
    - `pixels` (n,): the index of each pixel in the picture, row by row.
    """
    face = surface.faces[triangle]
    a, b, c = (points[face[:, n]] for n in range(3))
    center = np.stack([pixels % width + 0.5, pixels // width + 0.5], axis=1)
    area = _cross(b - a, c - a)
    u, v = _cross(b - center, c - center) / area, _cross(c - center, a - center) / area
    weights = np.stack([u, v, 1 - u - v], axis=1) * inverse[face]
    weights = weights / weights.sum(axis=1, keepdims=True)
    normal = np.einsum("nk,nki->ni", weights, normals[face])
    position = np.einsum("nk,nki->ni", weights, surface.vertices[face])
    length = np.linalg.norm(normal, axis=1, keepdims=True)
    normal = normal / np.where(length > 0, length, 1)
    ray = camera.position - position
    normal = normal * np.where(np.einsum("ni,ni->n", normal, ray) < 0, -1, 1)[:, None]
    light = np.full(len(pixels), _AMBIENT)
    for direction, strength in _LIGHTS:
        direction = np.array(direction) / np.linalg.norm(direction)
        light += strength * np.maximum(normal @ direction, 0)
    color = surface.colors[triangle]
    return np.minimum(color[:, :3] * light[:, None], 1), color[:, 3]


def _vertex_normals(surface: Surface) -> np.ndarray:
    """The normals (n, 3) at the vertices: sums of the normals of the faces, weighted by area.

    The normals do not have length 1.
    """
    a, b, c = (surface.vertices[surface.faces[:, n]] for n in range(3))
    normal = np.cross(b - a, c - a)
    total = np.zeros_like(surface.vertices)
    for n in range(3):
        for axis in range(3):
            total[:, axis] += np.bincount(
                surface.faces[:, n], normal[:, axis], minlength=len(surface.vertices)
            )
    return total


def _cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
