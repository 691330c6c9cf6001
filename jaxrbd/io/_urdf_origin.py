"""Read the element `<origin>` of an inertial, a joint, a visual or a collision of a URDF file."""

from __future__ import annotations

import numpy as np

from ..model.description import placement_matrix
from ._xml import Document, Element

VERSIONS = ("1.0", "1.1", "1.2")  # of the URDF specification


def read_origin(doc: Document, element: Element) -> np.ndarray:
    """The pose (4, 4) in `<origin>`; the identity without this element."""
    origin = doc.child(element, "origin")
    xyz = doc.numbers(origin, "xyz", (0.0, 0.0, 0.0))
    rpy = doc.numbers(origin, "rpy", (0.0, 0.0, 0.0))
    pose = placement_matrix(xyz, rpy)
    if origin is not None and "quat_xyzw" in origin.attrib:
        pose[:3, :3] = _read_quaternion(doc, origin)
    return pose


def _read_quaternion(doc: Document, origin: Element) -> np.ndarray:
    """The rotation (3, 3) in the attribute `quat_xyzw`, an alternative to rpy since version 1.1."""
    if doc.root.get("version", VERSIONS[0]) == VERSIONS[0]:
        doc.fault(origin, '<origin quat_xyzw> needs <robot version="1.1"> or later')
    if "rpy" in origin.attrib:
        doc.fault(origin, "<origin> has both rpy and quat_xyzw, expected one of them")
    q = np.array(doc.numbers(origin, "quat_xyzw", (0.0, 0.0, 0.0, 1.0)))
    if not np.any(q):
        doc.fault(origin, "<origin quat_xyzw>: a quaternion may not be zero")
        return np.eye(3)
    x, y, z, w = unit_vector(q)
    K = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + 2 * w * K + 2 * K @ K


def unit_vector(vector: np.ndarray) -> np.ndarray:
    """The vector divided by its length, without underflow and overflow."""
    vector = vector / np.max(np.abs(vector))
    return vector / np.linalg.norm(vector)
