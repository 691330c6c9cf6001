"""A robot of the conformance suite as URDF text, for libraries that read only URDF."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import numpy as np

from ..joints import Prismatic, Revolute
from ..model.arguments import require_type
from ..model.description import Mimic, inertia_about_com
from .adapters import Unsupported
from .robots import Robot

_TYPES = {Revolute: "continuous", Prismatic: "prismatic"}


def urdf(robot: Robot) -> str:
    """The robot as URDF text: the trees on a root link "world". URDF has no element for gravity.

    Raises Unsupported if a joint is neither revolute nor prismatic, or has armature, and
    ArgumentError for an object that is no `Robot`.
    """
    require_type(robot, "robot", Robot)
    root = ElementTree.Element("robot", name="conformance")
    ElementTree.SubElement(root, "link", name="world")
    for link in robot.links:
        element = ElementTree.SubElement(root, "link", name=link.name)
        if link.inertia[0] > 0:
            _inertial(element, link.inertia)
    for joint in robot.joints:
        kind: Any = joint.kind
        if type(kind) not in _TYPES or np.any(joint.armature):
            raise Unsupported(f"URDF cannot state the joint {joint.name}")
        element = ElementTree.SubElement(root, "joint", name=joint.name, type=_TYPES[type(kind)])
        ElementTree.SubElement(element, "parent", link=joint.parent or "world")
        ElementTree.SubElement(element, "child", link=joint.child)
        _origin(element, joint.placement[:3, 3], _rpy(joint.placement[:3, :3]))
        axis = np.asarray(kind.axis) / np.linalg.norm(kind.axis)
        ElementTree.SubElement(element, "axis", xyz=_text(axis))
        limits = {"lower": "-100", "upper": "100", "effort": "1000", "velocity": "1000"}
        ElementTree.SubElement(element, "limit", limits)
        if isinstance(joint.mimic, Mimic):
            ElementTree.SubElement(
                element,
                "mimic",
                joint=joint.mimic.joint,
                multiplier=repr(joint.mimic.multiplier),
                offset=repr(joint.mimic.offset),
            )
    return ElementTree.tostring(root, encoding="unicode")


def about_com(inertia: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass in kg, centre of mass (3,) in m, and the inertia (3, 3) about it in kg m^2.

    The position and the axes are in the link frame. `inertia` (10,): the parameters of a link with
    nonzero mass, as in `jaxrbd.model.Link`.
    """
    return inertia_about_com(inertia)


def _inertial(link: ElementTree.Element, inertia: np.ndarray) -> None:
    mass, com, I = about_com(inertia)
    element = ElementTree.SubElement(link, "inertial")
    _origin(element, com, np.zeros(3))
    ElementTree.SubElement(element, "mass", value=repr(mass))
    indices = [(i, j) for i in range(3) for j in range(i, 3)]
    entries = {f"i{'xyz'[i]}{'xyz'[j]}": repr(float(I[i, j])) for i, j in indices}
    ElementTree.SubElement(element, "inertia", entries)


def _origin(parent: ElementTree.Element, xyz: np.ndarray, rpy: np.ndarray) -> None:
    ElementTree.SubElement(parent, "origin", xyz=_text(xyz), rpy=_text(rpy))


def _rpy(R: np.ndarray) -> np.ndarray:
    """Roll, pitch, yaw about fixed axes: `R = Rz(yaw) Ry(pitch) Rx(roll)`."""
    pitch = np.arctan2(-R[2, 0], np.hypot(R[0, 0], R[1, 0]))
    return np.array([np.arctan2(R[2, 1], R[2, 2]), pitch, np.arctan2(R[1, 0], R[0, 0])])


def _text(numbers: np.ndarray) -> str:
    return " ".join(repr(float(x)) for x in numbers)
