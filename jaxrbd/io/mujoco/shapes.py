"""The visual and collision shapes of the bodies of a compiled MuJoCo model.

MuJoCo has one list of geoms. A geom is a visual if its group is 0, 1 or 2, the groups that MuJoCo's
viewer shows at the start. A geom is a collision if `contype` or `conaffinity` is not 0. A geom can
be both. The geoms of the world body belong to no link.
"""

from __future__ import annotations

import numpy as np

from ...model.geometry import Geometry, Mesh, Shape
from ...model.shapes import Box, Capsule, Cylinder, Ellipsoid, Sphere
from .source import Source

_VISIBLE_GROUPS = 3
_DEFAULT_COLOR = (0.5, 0.5, 0.5, 1.0)


def read_shapes(source: Source, body: int) -> tuple[tuple[Geometry, ...], tuple[Geometry, ...]]:
    """The visuals and the collisions of a body, in the frame of the body.

    Planes and height fields are left out, because they are no shapes of links.
    """
    m = source.m
    visuals, collisions = [], []
    first = int(m.body_geomadr[body])
    for geom in range(first, first + int(m.body_geomnum[body])):
        shape = geom_shape(source, geom)
        if shape is None:
            continue
        pose, name = source.pose(m.geom_pos[geom], m.geom_quat[geom]), source.geoms[geom]
        if m.geom_group[geom] < _VISIBLE_GROUPS:
            visuals.append(Geometry(shape, pose, _color(source, geom), name))
        if m.geom_contype[geom] or m.geom_conaffinity[geom]:
            collisions.append(Geometry(shape, pose, None, name))
    return tuple(visuals), tuple(collisions)


def geom_shape(source: Source, geom: int) -> Shape | None:
    """The shape of a geom in its frame; None for a plane and a height field."""
    m, kind = source.m, source.kind("Geom", source.m.geom_type[geom])
    x, y, z = (float(size) for size in m.geom_size[geom])
    if kind == "box":
        return Box((x, y, z))
    if kind == "sphere":
        return Sphere(x)
    if kind == "capsule":
        return Capsule(x, y)
    if kind == "cylinder":
        return Cylinder(x, y)
    if kind == "ellipsoid":
        return Ellipsoid((x, y, z))
    if kind not in ("mesh", "sdf"):
        return None
    mesh = int(m.geom_dataid[geom])
    vertices = slice(m.mesh_vertadr[mesh], m.mesh_vertadr[mesh] + m.mesh_vertnum[mesh])
    faces = slice(m.mesh_faceadr[mesh], m.mesh_faceadr[mesh] + m.mesh_facenum[mesh])
    return Mesh(np.array(m.mesh_vert[vertices]), np.array(m.mesh_face[faces]))


def _color(source: Source, geom: int) -> tuple[float, ...]:
    """The colour of a geom, or of its material if the geom states no other colour."""
    m = source.m
    color, material = m.geom_rgba[geom], int(m.geom_matid[geom])
    if material >= 0 and np.allclose(color, _DEFAULT_COLOR):
        color = m.mat_rgba[material]
    return tuple(float(x) for x in np.clip(color, 0, 1))
