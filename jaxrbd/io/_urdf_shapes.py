"""Read the shapes in `<visual>` and `<collision>` of a URDF file.

URDF states full sides and lengths; the shapes of a model state the halves.
"""

from __future__ import annotations

import os

from ..model.geometry import Geometry, MeshFile, Shape, mesh_type_fault
from ..model.shapes import Box, Capsule, Cylinder, Sphere
from ._urdf_origin import read_origin
from ._xml import Document, Element, clip, written_name

_SHAPES = ("box", "sphere", "cylinder", "capsule", "mesh")
_Color = tuple[float, ...] | None


class ShapeReader:
    """A reader of shapes. It stores the colours of the materials that the robot file defines.

    `path`: the robot file, to which the names of meshes are relative, or None for a text. Faults
    are added to `doc.faults`; a shape with a fault must not be used.
    """

    def __init__(self, doc: Document, path: str | os.PathLike[str] | None):
        self.doc = doc
        self.robot_file = None if path is None else os.path.abspath(path)
        self.colors: dict[str, _Color] = {}
        for material in doc.children(doc.root, "material"):
            if name := material.get("name"):
                self.colors[name] = self._stated_color(material)

    def read(self, link: Element, tag: str) -> tuple[Geometry, ...]:
        """The shapes in all elements called `tag` ("visual" or "collision") of a link."""
        return tuple(self._geometry(element) for element in self.doc.children(link, tag))

    def _geometry(self, element: Element) -> Geometry:
        return Geometry(
            shape=self._shape(self.doc.child(element, "geometry", required=True)),
            placement=read_origin(self.doc, element),
            color=self._color(element) if written_name(element) == "visual" else None,
            name=element.get("name") or "",
        )

    def _shape(self, element: Element | None) -> Shape:
        doc, default = self.doc, Sphere(0.0)
        if element is None:
            return default
        found = [*element]
        if len(found) != 1 or written_name(found[0]) not in _SHAPES:
            names = ", ".join(f"<{clip(written_name(child))}>" for child in found[:4]) or "nothing"
            doc.fault(element, f"<geometry> has {names}, expected one of {', '.join(_SHAPES)}")
            return default
        (shape,) = found
        kind = written_name(shape)
        if kind == "mesh":
            return self._mesh(shape)
        if kind == "box":
            sides = doc.numbers(shape, "size", (1.0, 1.0, 1.0), required=True, minimum=0.0)
            return Box([side / 2 for side in sides])
        radius = doc.number(shape, "radius", 1.0, required=True, minimum=0.0)
        if kind == "sphere":
            return Sphere(radius)
        half = doc.number(shape, "length", 1.0, required=True, minimum=0.0) / 2
        return Cylinder(radius, half) if kind == "cylinder" else Capsule(radius, half)

    def _mesh(self, element: Element) -> Shape:
        uri = self.doc.name(element, "filename")
        scale = self.doc.numbers(element, "scale", (1.0, 1.0, 1.0))
        if 0 in scale:
            self.doc.fault(element, "<mesh scale>: a scale may not be 0")
        if uri is None:
            return Sphere(0.0)
        if fault := mesh_type_fault(uri):
            self.doc.fault(element, f'<mesh filename="{clip(uri, 120)}">: {clip(fault, 200)}')
        return MeshFile(uri, scale, self.robot_file)

    def _color(self, visual: Element) -> _Color:
        """The colour in the `<material>` of a visual, or of the robot's material of that name."""
        material = self.doc.child(visual, "material")
        if material is None:
            return None
        color = self._stated_color(material)
        return color or self.colors.get(material.get("name", ""))

    def _stated_color(self, material: Element) -> _Color:
        """The colour in the element `<color>` of a material, or None without this element."""
        element = self.doc.child(material, "color")
        if element is None:
            return None
        color = self.doc.numbers(element, "rgba", (0.5, 0.5, 0.5, 1.0), required=True, minimum=0.0)
        if max(color) > 1:
            text = clip(element.get("rgba", ""))
            self.doc.fault(element, f'<color rgba="{text}">: expected values from 0 to 1')
        return color
