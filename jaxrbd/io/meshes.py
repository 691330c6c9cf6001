"""The mesh files of a robot as meshes of its model."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping

import numpy as np

from ..collision.mesh_hulls import is_flat
from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.geometry import Geometry, LinkGeometry, Mesh, MeshFile
from .mesh_files import read_mesh_file
from .mesh_limits import UnreadableMesh
from .packages import find_package_file


def read_meshes(
    model: Model,
    packages: Mapping[str, str | os.PathLike[str]] | None = None,
    *,
    search_environment: bool = False,
) -> Model:
    """The model, with a `Mesh` in place of each `MeshFile` of its collision geometry.

    `collision.pairs_of` uses the convex hulls of these meshes. All parts of a file become one mesh.
    The visual geometry is not changed.

    - `packages`, `search_environment`: as for `find_package_file`, which finds the files.

    Raises ArgumentError, which names the link and the file, for a file that does not exist, cannot
    be read, is flat or is beyond a limit, and if trimesh is not installed. Other errors and the
    warnings are those of `find_package_file`.
    """
    arguments.require_flag(search_environment, "search_environment")
    known: dict[MeshFile, Mesh] = {}

    def read(link: str, geometry: Geometry) -> Geometry:
        file = geometry.shape
        if not isinstance(file, MeshFile):
            return geometry
        # The scale may be an array, which has no hash.
        key = dataclasses.replace(file, scale=tuple(np.array(file.scale, float).tolist()))
        if key not in known:
            try:
                path = find_package_file(
                    file.uri, packages, file.robot_file, search_environment=search_environment
                )
                parts = read_mesh_file(path, np.array(file.scale, float))
                vertices = np.concatenate([part.vertices for part in parts])
                if is_flat(vertices):
                    raise UnreadableMesh(
                        f"mesh {str(path)!r} has only points in one plane, expected a solid body"
                    )
            except (ArgumentError, UnreadableMesh) as error:
                message = f"link {link!r}: {error}"
                raise ArgumentError(message, argument=error.argument) from None
            offsets = np.cumsum([0, *(len(part.vertices) for part in parts)])
            faces = np.concatenate([part.faces + n for part, n in zip(parts, offsets)])
            known[key] = Mesh(vertices, faces)
        return dataclasses.replace(geometry, shape=known[key])

    links = arguments.robot(model).geometry
    collisions = {
        link: tuple(read(link, geometry) for geometry in geometries)
        for link, geometries in links.collisions.items()
    }
    return dataclasses.replace(model, geometry=LinkGeometry(links.visuals, collisions))
