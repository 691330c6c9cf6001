"""The geometry of links as JSON: one record per shape, in a file of `save_model`.

A record has the fields of a `Geometry`, the name of the link, and the role, "visual" or
"collision". The record of a `Mesh` has its arrays as base64 of little-endian bytes: vertices in
float32 and faces in int32.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import numpy as np

from ..errors import ModelError
from ..model.geometry import SHAPES, Geometry, LinkGeometry, Mesh, checked_geometry

_ROLES = {"visual": "visuals", "collision": "collisions"}  # fields of a `LinkGeometry`
_FIELDS = {"link", "role", "name", "placement", "color", "shape"}
_ARRAYS = {"vertices": "<f4", "faces": "<i4"}


def geometry_records(geometry: LinkGeometry) -> list[dict[str, Any]]:
    """One record for each shape, in the order of the links."""
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
        for shape in map(checked_geometry, shapes)
    ]


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
    except (ValueError, TypeError, KeyError, binascii.Error) as error:
        raise ModelError(f"{what}: {error}") from None


def _shape_record(shape: Any) -> dict[str, Any]:
    record = {"kind": type(shape).__name__, **vars(shape)}
    if isinstance(shape, Mesh):
        for field, dtype in _ARRAYS.items():
            record[field] = base64.b64encode(getattr(shape, field).astype(dtype)).decode("ascii")
    return record


def _geometry(record: dict[str, Any]) -> Geometry:
    given = record["shape"]
    if not isinstance(given, dict) or given.get("kind") not in list(SHAPES):
        raise ValueError(f"its shape is unknown, expected one of {', '.join(SHAPES)}")
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
