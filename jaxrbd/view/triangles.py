"""Triangles of shapes: primitives by formula, mesh files by trimesh.

Smooth parts of a surface share vertices, and parts that meet at an edge do not. So a viewer that
averages the normals of the faces at each vertex draws round surfaces round and edges sharp.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ..collision import ConvexMesh, HeightGrid
from ..collision.mesh_hulls import hull_triangles
from ..errors import ArgumentError
from ..io.mesh_files import read_mesh_file
from ..io.mesh_limits import UnreadableMesh
from ..io.packages import find_package_file
from ..model.geometry import Mesh, MeshFile, Shape
from ..model.shapes import Box, Capsule, Cylinder, Ellipsoid, Sphere

Packages = Mapping[str, str | os.PathLike[str]]

_SIDES = 32  # the number of sides of a circle
_SHARP = np.cos(np.deg2rad(35))  # faces that meet at a larger angle have an edge between them


class Triangles(NamedTuple):
    """`vertices` (n, 3) in m, `faces` (m, 3), and the colour (4,) that a mesh file states or None.

    The vertices of a face are counter-clockwise when they are seen from outside.
    """

    vertices: np.ndarray
    faces: np.ndarray
    color: tuple[float, ...] | None = None


def shape_triangles(
    shape: Shape | ConvexMesh | HeightGrid, packages: Packages | None = None
) -> list[Triangles]:
    """The triangles of a shape in its frame; several parts for a mesh file with several colours.

    The rounding of a shape is ignored: a `Box`, a `Cylinder` and a `ConvexMesh` have sharp edges,
    and an `Ellipsoid` has its semi-axes.

    `packages`: as in `io.find_package_file`. Raises UnreadableMesh for a file that is missing,
    damaged, of a type without a reader, or beyond a limit of `mesh_limits`. Raises ArgumentError if
    a mesh file is to be read and trimesh is not installed.
    """
    if isinstance(shape, Box):
        return [_box(np.array(shape.half_sizes, float))]
    if isinstance(shape, Sphere):
        return [_ellipsoid(np.full(3, shape.radius, float))]
    if isinstance(shape, Ellipsoid):
        return [_ellipsoid(np.array(shape.radii, float))]
    if isinstance(shape, Cylinder):
        r, h = float(shape.radius), float(shape.half_length)
        profile = [[(0, -h), (r, -h)], [(r, -h), (r, h)], [(r, h), (0, h)]]
        return [_joined([_revolved(np.array(part, float)) for part in profile])]
    if isinstance(shape, Capsule):
        r, h = float(shape.radius), float(shape.half_length)
        arc = np.linspace(0, np.pi / 2, _SIDES // 4 + 1)
        angle = np.concatenate([-arc[::-1], arc])
        z = r * np.sin(angle) + np.repeat([-h, h], len(arc))
        return [_revolved(np.stack([r * np.cos(angle), z], axis=1))]
    if isinstance(shape, ConvexMesh):
        return [with_edges(Triangles(*hull_triangles(shape.vertices)))]
    if isinstance(shape, HeightGrid):
        return [with_edges(_grid(shape))]
    if isinstance(shape, Mesh):
        return [with_edges(Triangles(np.array(shape.vertices, float), np.array(shape.faces)))]
    return mesh_file_triangles(shape, packages)


def mesh_file_triangles(mesh: MeshFile, packages: Packages | None) -> list[Triangles]:
    """The parts of a mesh file, scaled; errors as for `shape_triangles`."""
    try:
        path = find_package_file(mesh.uri, packages, mesh.robot_file)
    except ArgumentError as error:
        raise UnreadableMesh(str(error), argument=error.argument) from None
    parts = read_mesh_file(path, np.array(mesh.scale, float))
    found = [part for part in (with_edges(Triangles(*part)) for part in parts) if len(part.faces)]
    if not found:
        raise UnreadableMesh(f"mesh {str(path)!r} has no triangle with an area")
    return found


def with_edges(triangles: Triangles) -> Triangles:
    """The same triangles, with separate vertices for faces that meet at a sharp edge.

    Vertices at one place become one vertex, except where the normals of two faces at this place
    differ by more than 35 degrees. Triangles without area are dropped.
    """
    _, place = np.unique(triangles.vertices + 0.0, axis=0, return_inverse=True)  # no -0.0
    place = place.reshape(-1)
    corners = triangles.vertices[triangles.faces]
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    area = np.linalg.norm(normal, axis=1)
    faces, corners = triangles.faces[area > 0], corners[area > 0]
    normal = (normal / np.where(area > 0, area, 1)[:, None])[area > 0]
    # The corners are sorted by place. In each round, the first corner of each place begins a group.
    # The group takes all corners of this place with nearly the same normal, and becomes one vertex.
    # The next round has the rest of the corners.
    places, owner = place[faces].reshape(-1), np.repeat(np.arange(len(faces)), 3)
    vertex = np.full(len(places), -1)
    rest, count = np.argsort(places, kind="stable"), 0
    while len(rest):
        first = np.r_[True, places[rest[1:]] != places[rest[:-1]]]
        leader = rest[np.flatnonzero(first)[np.cumsum(first) - 1]]
        near = np.einsum("ij,ij->i", normal[owner[rest]], normal[owner[leader]]) >= _SHARP
        near |= rest == leader
        vertex[rest[near]] = count + (np.cumsum(first) - 1)[near]
        count += int(np.sum(first))
        rest = rest[~near]
    position = np.zeros((count, 3))
    position[vertex] = corners.reshape(-1, 3)
    return Triangles(position, vertex.reshape(-1, 3), triangles.color)


def transformed(H: np.ndarray, triangles: Triangles) -> Triangles:
    """The triangles moved by the pose H (4, 4)."""
    return triangles._replace(vertices=triangles.vertices @ H[:3, :3].T + H[:3, 3])


def _box(half_sizes: np.ndarray) -> Triangles:
    sides = []
    for axis in range(3):
        for sign in (-1.0, 1.0):
            u, v = np.roll(np.eye(3), axis, axis=1)[1:]
            corner = np.array([-u - v, u - v, u + v, -u + v]) + sign * np.eye(3)[axis]
            faces = np.array([[0, 1, 2], [0, 2, 3]])
            sides.append(Triangles(corner * half_sizes, faces if sign > 0 else faces[:, ::-1]))
    return _joined(sides)


def _grid(grid: HeightGrid) -> Triangles:
    """The triangles whose distances `collision.distance` computes, inside the rectangle."""
    z = np.array(grid.heights, float)
    i, j = np.indices(z.shape)
    xy = np.array(grid.origin, float) + np.stack([i, j], axis=-1) * np.array(grid.spacing, float)
    node = np.arange(z.size).reshape(z.shape)
    a, b, c, d = node[:-1, :-1], node[1:, :-1], node[1:, 1:], node[:-1, 1:]
    faces = np.stack([a, b, c, a, c, d], axis=-1).reshape(-1, 3)
    return Triangles(np.concatenate([xy, z[..., None]], axis=-1).reshape(-1, 3), faces)


def _ellipsoid(radii: np.ndarray) -> Triangles:
    angle = np.linspace(-np.pi / 2, np.pi / 2, _SIDES // 2 + 1)
    ball = _revolved(np.stack([np.cos(angle), np.sin(angle)], axis=1))
    return ball._replace(vertices=ball.vertices * radii)


def _revolved(profile: np.ndarray) -> Triangles:
    """The surface that a curve makes when it turns about the z axis.

    `profile` (n, 2): the radius and z of the points of the curve. z must increase along the curve;
    in a disc, the radius must increase at the bottom and decrease at the top. Then the vertices of
    the faces are counter-clockwise when they are seen from outside.
    """
    angle = 2 * np.pi * np.arange(_SIDES) / _SIDES
    r, z = profile.T
    x, y = r[:, None] * np.cos(angle), r[:, None] * np.sin(angle)
    vertices = np.stack([x, y, np.broadcast_to(z[:, None], x.shape)], axis=-1).reshape(-1, 3)
    i, j = np.meshgrid(np.arange(len(profile) - 1), np.arange(_SIDES), indexing="ij")
    a, b = (i * _SIDES + j).ravel(), (i * _SIDES + (j + 1) % _SIDES).ravel()
    faces = np.concatenate(
        [np.stack([a, b, b + _SIDES], 1), np.stack([a, b + _SIDES, a + _SIDES], 1)]
    )
    corners = vertices[faces]
    area = np.linalg.norm(
        np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1
    )
    return Triangles(vertices, faces[area > 1e-12 * np.max(area, initial=0)])


def _joined(parts: list[Triangles]) -> Triangles:
    starts = np.cumsum([0, *(len(part.vertices) for part in parts)])
    return Triangles(
        np.concatenate([part.vertices for part in parts]),
        np.concatenate([part.faces + start for part, start in zip(parts, starts)]),
    )
