"""Write the shape of a `<visual>` or a `<collision>` element of a URDF file."""

from __future__ import annotations

import os
import re
from xml.etree import ElementTree

from ..errors import ModelError
from ..model.geometry import (
    BoxShape,
    CapsuleShape,
    CylinderShape,
    Geometry,
    MeshFile,
    SphereShape,
)


def add_shape(element: ElementTree.Element, link: str, index: int, geometry: Geometry) -> None:
    """Add `<geometry>`, `<material>` and the name to an element, which has the pose already.

    `index`: the place of the shape among the visuals or collisions of the link. Raises ModelError,
    which names the link, for a shape that URDF cannot state.
    """

    def refuse(what: str) -> ModelError:
        return ModelError(
            f"link {link!r}: its {element.tag} {index} has {what}, which URDF cannot state; leave "
            "out the shapes by the argument `geometry`",
            link=link,
            argument="geometry",
        )

    if geometry.name.strip():
        element.set("name", geometry.name)
    outer = ElementTree.SubElement(element, "geometry")
    shape = geometry.shape
    if isinstance(shape, BoxShape):
        ElementTree.SubElement(outer, "box", size=_text(*shape.size))
    elif isinstance(shape, SphereShape):
        ElementTree.SubElement(outer, "sphere", radius=_text(shape.radius))
    elif isinstance(shape, (CylinderShape, CapsuleShape)):
        tag = "cylinder" if isinstance(shape, CylinderShape) else "capsule"
        lengths = {"radius": _text(shape.radius), "length": _text(shape.length)}
        ElementTree.SubElement(outer, tag, lengths)
    elif isinstance(shape, MeshFile):
        mesh = ElementTree.SubElement(outer, "mesh", filename=_filename(shape))
        if shape.scale != (1.0, 1.0, 1.0):
            mesh.set("scale", _text(*shape.scale))
    else:
        raise refuse(f"a {type(shape).__name__}")
    if geometry.color is None:
        return
    if element.tag == "collision":
        raise refuse("a colour")
    material = ElementTree.SubElement(element, "material", name=f"{link} {index}")
    ElementTree.SubElement(material, "color", rgba=_text(*geometry.color))


def _filename(mesh: MeshFile) -> str:
    """The URI of a mesh; a path relative to the read robot file becomes an absolute path.

    So the written file may be in another folder than the read file.
    """
    if mesh.robot_file is None or re.match("[A-Za-z][A-Za-z0-9+.-]+://", mesh.uri):
        return mesh.uri
    folder = os.path.dirname(mesh.robot_file)
    return os.path.normpath(os.path.join(folder, mesh.uri))


def _text(*numbers: float) -> str:
    return " ".join(repr(float(x)) for x in numbers)
