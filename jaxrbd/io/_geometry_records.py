"""The geometry of links as JSON: one record per shape, in a file of `save_model`.

A record has the fields of a `Geometry`, the name of the link, and the role, "visual" or
"collision". The record of a `Mesh` has its arrays as base64 of little-endian bytes: vertices in
float32 and faces in int32.

In files of the versions 2 and 3, the kinds of shapes other than meshes end in "Shape", and the
records state full sides and lengths.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import numpy as np

from ..errors import ArgumentError, ModelError
from ..model.geometry import SHAPES, Geometry, LinkGeometry, Mesh, MeshFile, checked_geometry

_ROLES = {"visual": "visuals", "collision": "collisions"}  # fields of a `LinkGeometry`
_FIELDS = {"link", "role", "name", "placement", "color", "shape"}
_ARRAYS = {"vertices": "<f4", "faces": "<i4"}
# For files of the versions 2 and 3: the kinds by their old names, and the fields of half lengths by
# the names of the fields of full lengths.
_OLD_KINDS = {
    f"{kind}Shape": kind for kind in ("Box", "Sphere", "Cylinder", "Capsule", "Ellipsoid")
}
_HALVES = {"size": "half_sizes", "length": "half_length"}


def geometry_records(geometry: LinkGeometry) -> list[dict[str, Any]]:
    """One record for each shape: the visual shapes by link, then the collision shapes by link.

    Raises ArgumentError, which names the link, for a shape that `checked_geometry` refuses.
    """
    return [
        {
            "link": link,
            "role": role,
            "name": shape.name,
            "placement": np.asarray(shape.placement, float).tolist(),
            "color": shape.color,
            "shape": _shape_record(shape.shape),
        }
        for role, field in _ROLES.items()
        for link, shapes in getattr(geometry, field).items()
        for shape in (_checked(x, link, role) for x in shapes)
    ]


def _checked(shape: Geometry, link: str, role: str) -> Geometry:
    try:
        return checked_geometry(shape)
    except ValueError as error:
        raise ArgumentError(f"link {link!r}: a {role} shape: {error}") from error


def link_geometry(records: list[dict[str, Any]]) -> LinkGeometry:
    """The geometry from records that `check_record` has accepted."""
    found: dict[str, dict[str, tuple[Geometry, ...]]] = {role: {} for role in _ROLES}
    for record in records:
        shapes, link = found[record["role"]], record["link"]
        shapes[link] = (*shapes.get(link, ()), _geometry(record))
    return LinkGeometry(**{field: found[role] for role, field in _ROLES.items()})


def check_record(record: Any, what: str, links: list[str]) -> None:
    """Raise ModelError, which calls the record `what`, unless it describes a shape of a link."""
    if not isinstance(record, dict) or record.keys() != _FIELDS:
        raise ModelError(f"{what} has not the fields {sorted(_FIELDS)}")
    if record["role"] not in list(_ROLES):
        raise ModelError(f"{what} has the role {record['role']!r}, expected one of {[*_ROLES]}")
    if record["link"] not in links:
        raise ModelError(f"{what} is on the link {record['link']!r}, which is no frame")
    try:
        _geometry(record)
    except (ValueError, TypeError, KeyError, OverflowError, binascii.Error) as error:
        raise ModelError(f"{what}: {error}") from None


def _shape_record(shape: Any) -> dict[str, Any]:
    record = {"kind": type(shape).__name__, **vars(shape)}
    if isinstance(shape, Mesh):
        for field, dtype in _ARRAYS.items():
            record[field] = base64.b64encode(getattr(shape, field).astype(dtype)).decode("ascii")
    elif not isinstance(shape, MeshFile):
        record |= {field: size.tolist() for field, size in vars(shape).items()}
    return record


def _converted(record: dict[str, Any]) -> dict[str, Any]:
    """The record of a shape in the form since version 4, from a record of any version."""
    if record["kind"] not in _OLD_KINDS:
        return record
    fields = {
        _HALVES.get(field, field): np.asarray(value, float) / 2 if field in _HALVES else value
        for field, value in record.items()
    }
    return fields | {"kind": _OLD_KINDS[record["kind"]]}


def _geometry(record: dict[str, Any]) -> Geometry:
    given = record["shape"]
    if not isinstance(given, dict) or given.get("kind") not in [*SHAPES, *_OLD_KINDS]:
        raise ValueError(f"its shape is unknown, expected one of {', '.join(SHAPES)}")
    given = _converted(given)
    fields = {field: value for field, value in given.items() if field != "kind"}
    kind = SHAPES[given["kind"]]
    if kind is Mesh:
        for field, dtype in _ARRAYS.items():
            data = base64.b64decode(fields[field], validate=True)
            fields[field] = np.frombuffer(data, dtype).reshape(-1, 3)
    return checked_geometry(
        Geometry(
            kind(**fields),
            np.asarray(record["placement"], float),
            record["color"],
            record["name"],
        )
    )
