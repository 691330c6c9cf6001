"""Read a single `<link>` or `<joint>` of a URDF file; `load_urdf` reads the whole robot.

Each function adds the faults that it finds to `doc.faults`. Its result has a default value in place
of a missing or wrong value, except for a lower limit above an upper limit: both stay.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ..joints import FreeFlyer, Joint, Planar, Prismatic, Revolute
from ..model.description import Fixed, JointSpec, Link, Mimic, link_inertia
from ._urdf_origin import read_origin, unit_vector
from ._urdf_shapes import ShapeReader
from ._xml import Document, Element, clip

_ONE_DOF = {"revolute": Revolute, "continuous": Revolute, "prismatic": Prismatic}
_TYPES = (*_ONE_DOF, "fixed", "floating", "planar")


def read_link(doc: Document, element: Element, name: str, shapes: ShapeReader | None) -> Link:
    """The link with the inertia (10,) from `<inertial>`; massless without this element.

    `shapes` reads `<visual>` and `<collision>`; None skips them.
    """
    inertia = _read_inertial(doc, element)
    if shapes is None:
        return Link(name, inertia)
    return Link(name, inertia, shapes.read(element, "visual"), shapes.read(element, "collision"))


def _read_inertial(doc: Document, element: Element) -> np.ndarray:
    inertial = doc.child(element, "inertial")
    if inertial is None:
        return np.zeros(10)
    pose = read_origin(doc, inertial)
    mass = doc.child(inertial, "mass", required=True)
    inertia = doc.child(inertial, "inertia", required=True)
    kilograms = doc.number(mass, "value", 0.0, required=True, minimum=0.0)
    xx, xy, xz, yy, yz, zz = (
        doc.number(inertia, attribute, 0.0, required=True)
        for attribute in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")
    )
    about_com = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    with np.errstate(over="ignore", invalid="ignore"):  # the builder rejects infinity and NaN
        return link_inertia(kilograms, pose[:3, 3], about_com, pose[:3, :3])


def read_joint(doc: Document, element: Element, name: str, *, mimic: bool) -> JointSpec:
    """The joint of the element; parent and child are "" if the element does not name them."""
    joint_type = _read_type(doc, element)
    joint = JointSpec(
        name=name,
        kind=_read_kind(doc, element, joint_type),
        parent=doc.name(doc.child(element, "parent", required=True), "link") or "",
        child=doc.name(doc.child(element, "child", required=True), "link") or "",
        placement=read_origin(doc, element),
    )
    if joint_type not in _ONE_DOF:
        return joint
    return dataclasses.replace(
        joint,
        mimic=_read_mimic(doc, element) if mimic else None,
        **_read_limit(doc, element, joint_type),
        **_read_dynamics(doc, element),
    )


def _read_type(doc: Document, element: Element) -> str:
    joint_type = doc.text(element, "type", required=True)
    if joint_type is None or joint_type in _TYPES:
        return joint_type or "fixed"
    doc.fault(element, f'<joint type="{clip(joint_type)}">: expected one of {", ".join(_TYPES)}')
    return "fixed"


def _read_kind(doc: Document, element: Element, joint_type: str) -> Joint | Fixed:
    if joint_type == "fixed":
        return Fixed()
    if joint_type == "floating":
        return FreeFlyer()
    axis = doc.child(element, "axis")
    if joint_type == "planar":
        if not np.allclose(_read_axis(doc, axis, (0.0, 0.0, 1.0)), (0, 0, 1)):
            doc.fault(
                axis,
                "<axis> of a planar joint: expected z, the normal of its x-y plane; rotate the "
                "joint with <origin>",
            )
        return Planar()
    return _ONE_DOF[joint_type](_read_axis(doc, axis, (1.0, 0.0, 0.0)))


def _read_axis(
    doc: Document, axis: Element | None, default: tuple[float, float, float]
) -> np.ndarray:
    """The unit vector (3,) in `<axis>`, in the joint frame."""
    xyz = np.array(doc.numbers(axis, "xyz", default, required=True))
    if np.any(xyz):
        return unit_vector(xyz)
    doc.fault(axis, "<axis xyz>: an axis may not be zero")
    return np.array(default)


def _read_limit(doc: Document, element: Element, joint_type: str) -> dict[str, float | None]:
    """The limits by field of a JointSpec. If only lower or upper is given, the missing one is 0."""
    bounded = joint_type != "continuous"
    limit = doc.child(element, "limit", required=bounded)
    if limit is None:
        return {}
    fields: dict[str, float | None] = {}
    for field, attribute in (("effort_limit", "effort"), ("velocity_limit", "velocity")):
        if bounded or attribute in limit.attrib:
            fields[field] = doc.number(limit, attribute, 0.0, required=True, minimum=0.0)
    if bounded and ("lower" in limit.attrib or "upper" in limit.attrib):
        faults = len(doc.faults)
        lower, upper = (doc.number(limit, attribute, 0.0) for attribute in ("lower", "upper"))
        if lower > upper and len(doc.faults) == faults:
            doc.fault(limit, f"<limit>: lower {lower:g} lies above upper {upper:g}")
        fields |= {"lower": lower, "upper": upper}
    return fields


def _read_dynamics(doc: Document, element: Element) -> dict[str, float]:
    dynamics = doc.child(element, "dynamics")
    return {
        attribute: doc.number(dynamics, attribute, 0.0, minimum=0.0)
        for attribute in ("damping", "friction")
    }


def _read_mimic(doc: Document, element: Element) -> Mimic | None:
    mimic = doc.child(element, "mimic")
    leader = doc.name(mimic, "joint")
    if leader is None:
        return None
    return Mimic(leader, doc.number(mimic, "multiplier", 1.0), doc.number(mimic, "offset", 0.0))
