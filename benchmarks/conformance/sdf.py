"""A robot of the conformance suite as SDF text, which JaxSim reads without another program."""

import itertools
from xml.etree import ElementTree

import numpy as np

from jaxrbd import joints
from jaxrbd.conformance import Unsupported, about_com
from jaxrbd.conformance.urdf import _rpy, _text


def sdf(robot, floating):
    """The robot as SDF text. If `floating`, the first joint is left out, so its link is free."""
    root = ElementTree.Element("sdf", version="1.7")
    model = ElementTree.SubElement(root, "model", name="conformance")
    if not floating:
        base = ElementTree.SubElement(model, "link", name="base")
        _inertial(base, 1.0, np.zeros(3), np.eye(3))
        fixed = ElementTree.SubElement(model, "joint", name="fixed", type="fixed")
        ElementTree.SubElement(fixed, "parent").text = "world"
        ElementTree.SubElement(fixed, "child").text = "base"
    inertias = {link.name: link.inertia for link in robot.links}
    for i, joint in enumerate(robot.joints):
        link = ElementTree.SubElement(model, "link", name=joint.child)
        _inertial(link, *about_com(inertias[joint.child]))
        if floating and i == 0:
            continue
        ElementTree.SubElement(link, "pose", relative_to=joint.name).text = "0 0 0 0 0 0"
        kind = {joints.Revolute: "revolute", joints.Prismatic: "prismatic"}.get(type(joint.kind))
        if kind is None:
            raise Unsupported(f"no joint such as {joint.name}")
        element = ElementTree.SubElement(model, "joint", name=joint.name, type=kind)
        H, parent = joint.placement, joint.parent or "base"
        pose = ElementTree.SubElement(element, "pose", relative_to=parent)
        pose.text = f"{_text(H[:3, 3])} {_text(_rpy(H[:3, :3]))}"
        ElementTree.SubElement(element, "parent").text = parent
        ElementTree.SubElement(element, "child").text = joint.child
        axis = ElementTree.SubElement(element, "axis")
        unit = joint.kind.axis / np.linalg.norm(joint.kind.axis)
        ElementTree.SubElement(axis, "xyz").text = _text(unit)
        ElementTree.SubElement(axis, "limit")
    return ElementTree.tostring(root, encoding="unicode")


def _inertial(link, mass, com, I):
    element = ElementTree.SubElement(link, "inertial")
    ElementTree.SubElement(element, "mass").text = repr(mass)
    ElementTree.SubElement(element, "pose").text = f"{_text(com)} 0 0 0"
    inertia = ElementTree.SubElement(element, "inertia")
    for i, j in itertools.combinations_with_replacement(range(3), 2):
        ElementTree.SubElement(inertia, f"i{'xyz'[i]}{'xyz'[j]}").text = repr(float(I[i, j]))
