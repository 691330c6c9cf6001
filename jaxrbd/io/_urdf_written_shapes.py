"""Write the shape of a `<visual>` or a `<collision>` element of a URDF file.

URDF has no capsule. Some readers of URDF files leave out an element `<capsule>` without a warning.
So a capsule is written as a cylinder and two spheres. URDF states full sides and lengths: twice the
half sizes of a shape.
"""

from __future__ import annotations

import dataclasses
import os
import re
from typing import Any
from xml.etree import ElementTree

import numpy as np

from ..errors import ModelError
from ..model.geometry import Geometry, MeshFile
from ..model.shapes import Box, Capsule, Cylinder, Ellipsoid, Sphere

# A character that XML cannot hold.
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def written_shapes(geometry: Geometry) -> list[Geometry]:
    """A shape as a list of shapes of URDF: three for a capsule, one for any other shape.

    A capsule of length 0 becomes one sphere. Otherwise the two spheres have the name of the
    capsule, if it has one, with "end 1" and "end 2".
    """
    shape = geometry.shape
    if not isinstance(shape, Capsule):
        return [geometry]
    ball, half = Sphere(shape.radius), float(shape.half_length)
    if half == 0:
        return [dataclasses.replace(geometry, shape=ball)]
    parts = [dataclasses.replace(geometry, shape=Cylinder(shape.radius, half))]
    for number, z in enumerate((-half, half), start=1):
        placement = np.array(geometry.placement, float)
        placement[:3, 3] += z * placement[:3, 2]
        name = f"{geometry.name} end {number}" if geometry.name.strip() else ""
        parts.append(Geometry(ball, placement, geometry.color, name))
    return parts


def add_shape(
    element: ElementTree.Element, link: str, index: int, number: int, geometry: Geometry
) -> None:
    """Add `<geometry>`, `<material>` and the name to an element, which has the pose already.

    `index`: the place of the shape among the visuals or collisions of the link. `number`: the place
    of the element among the written elements: a capsule is written as three elements. Raises
    ModelError, which names the link, for a shape that URDF cannot state.
    """

    def refusal(what: str) -> ModelError:
        return ModelError(
            f"link {link!r}: its {element.tag} {index} has {what}, which URDF cannot state; leave "
            "out the shapes by the argument `geometry`",
            link=link,
            argument="geometry",
        )

    if geometry.name.strip():
        if NOT_XML.search(geometry.name):
            raise refusal(f"the name {geometry.name!r} with a character that XML cannot hold")
        element.set("name", geometry.name)
    outer = ElementTree.SubElement(element, "geometry")
    shape = geometry.shape
    if isinstance(shape, Box | Cylinder) and shape.rounding != 0:
        raise refusal(f"a {type(shape).__name__} with a rounding")
    if isinstance(shape, Box):
        ElementTree.SubElement(outer, "box", size=as_text(*(2 * shape.half_sizes)))
    elif isinstance(shape, Sphere):
        ElementTree.SubElement(outer, "sphere", radius=as_text(shape.radius))
    elif isinstance(shape, Cylinder):
        lengths = {"radius": as_text(shape.radius), "length": as_text(2 * shape.half_length)}
        ElementTree.SubElement(outer, "cylinder", lengths)
    elif isinstance(shape, MeshFile):
        if NOT_XML.search(shape.uri):
            raise refusal(f"the file {shape.uri!r} with a character that XML cannot hold")
        if "${" in shape.uri or "$(" in shape.uri:
            raise refusal(f"the file {shape.uri!r}, an xacro expression for load_urdf")
        mesh = ElementTree.SubElement(outer, "mesh", filename=_filename(shape))
        if shape.scale != (1.0, 1.0, 1.0):
            mesh.set("scale", as_text(*shape.scale))
    else:
        raise refusal("an Ellipsoid" if isinstance(shape, Ellipsoid) else "a Mesh")
    if geometry.color is None:
        return
    if element.tag == "collision":
        raise refusal("a colour")
    material = ElementTree.SubElement(element, "material", name=f"{link} {number}")
    ElementTree.SubElement(material, "color", rgba=as_text(*geometry.color))


def _filename(mesh: MeshFile) -> str:
    """The URI of a mesh. A path relative to the original robot file becomes an absolute path.

    So the written file may be in another folder than the original file.
    """
    if mesh.robot_file is None or re.match("[A-Za-z][A-Za-z0-9+.-]+://", mesh.uri):
        return mesh.uri
    folder = os.path.dirname(mesh.robot_file)
    return os.path.abspath(os.path.join(folder, mesh.uri))


def as_text(*numbers: Any) -> str:
    """Numbers as text, with all their digits."""
    return " ".join(repr(float(x)) for x in numbers)
