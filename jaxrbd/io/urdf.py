"""URDF to a `Model`: what of the format concerns dynamics, and a line number for every fault.

Source: the URDF specification (wiki.ros.org/urdf/XML, versions 1.0 to 1.2) as urdfdom 6 and
Pinocchio read it, so that a robot has the same coordinates here and there. Where those differ:

- what urdfdom reports and then reads as zero (an inertial without mass, an axis without xyz) is an
  error here;
- a revolute or prismatic joint needs `<limit>` with effort and velocity. With neither lower nor
  upper it is unlimited, where the specification means 0 and 0, a joint that cannot move; with one
  of them the other is 0. A continuous joint may have effort and velocity limits, or none;
- a planar joint moves in the x-y plane of its frame, as in Pinocchio. An `<axis>` other than z is
  refused: nothing says which directions its coordinates would then count along;
- floating and planar joints have no use for `<limit>` and `<dynamics>`, and a fixed joint none for
  `<mimic>` either: there these elements are skipped;
- the root link hangs on the world by a joint called `root_joint`.

Everything without a part in dynamics (visual, collision, gazebo, transmission, ...) is skipped.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from lxml import etree

from ..builder import (
    Fixed,
    JointSpec,
    Link,
    Mimic,
    build_model,
    inertia_faults,
    link_inertia,
    pose_matrix,
)
from ..errors import ArgumentError, ModelError, RobotFileError
from ..joints import FreeFlyer, Joint, Planar, Prismatic, Revolute, Spherical, Translation
from ..model import Model
from ._xml import Document, local_name, parse_document

_ONE_DOF = {"revolute": Revolute, "continuous": Revolute, "prismatic": Prismatic}
_TYPES = (*_ONE_DOF, "fixed", "floating", "planar")
_ROOTS: dict[str | None, type] = {
    None: Fixed,
    "free_flyer": FreeFlyer,
    "planar": Planar,
    "spherical": Spherical,
    "translation": Translation,
}
_VERSIONS = ("1.0", "1.1", "1.2")


def load_urdf(
    path_or_text: str | os.PathLike[str],
    *,
    root_joint: str | None = None,
    mimic: bool = True,
    strict: bool = False,
    gravity: Sequence[float] = (0.0, 0.0, -9.81),
) -> Model:
    """Load a robot from a URDF file.

    - `path_or_text`: a path, or the text itself: a string whose first character is '<'.
    - `root_joint`: what the root link hangs on the world by: None (welded to it), "free_flyer",
      "planar", "spherical" or "translation".
    - `mimic`: whether `<mimic>` couples joints; if False it is not read at all.
    - `strict`: whether an inertia that no rigid body can have is an error rather than a warning.
    - `gravity`: (3,), m/s^2, in the world's axes.

    Returns the model, its joints depth-first with siblings by name, as Pinocchio numbers them.
    Raises RobotFileError, which names file and line, where the file is at fault, and ArgumentError
    where an argument is. Warns with InertiaWarning. Source: the URDF specification.
    """
    robot = _Reader(parse_document(path_or_text), root_joint, mimic)
    robot.raise_first_fault()
    try:
        return build_model(
            robot.links, robot.joints, gravity=gravity, name=robot.name, strict=strict
        )
    except ModelError as error:
        raise robot.located(error) from error


def parse_urdf(
    path_or_text: str | os.PathLike[str],
    *,
    root_joint: str | None = None,
    mimic: bool = True,
) -> tuple[str, list[Link], list[JointSpec]]:
    """Read a URDF file into what `build_model` takes, so that it can be changed before that.

    Arguments as in `load_urdf`. Returns the robot's name, its links in the order of the file and
    its joints, the root joint first and then by name.
    Raises RobotFileError and ArgumentError; cycles, links with two parents and rings of mimic
    joints are left to `build_model`. Source: the URDF specification.
    """
    robot = _Reader(parse_document(path_or_text), root_joint, mimic)
    robot.raise_first_fault()
    return robot.name, robot.links, robot.joints


def validate_urdf(path_or_text: str | os.PathLike[str]) -> list[str]:
    """List the faults of a URDF file as lines "file:line: ...", in order; empty for a sound file.

    An inertia that no rigid body can have counts as a fault. The tree as a whole is judged once
    its links and joints are without fault. Raises ArgumentError where `path_or_text` is neither.
    """
    try:
        robot = _Reader(parse_document(path_or_text), None, mimic=True)
    except RobotFileError as error:
        return [str(error)]
    faults = list(robot.doc.faults)
    if not faults:
        faults += robot.tree_faults()
    for link, reason in inertia_faults(robot.links).items():
        faults.append(robot.located(ModelError(reason, link=link)))
    return [str(fault) for fault in sorted(faults, key=lambda fault: fault.line or 0)]


class _Reader:
    """One pass over a document: links and joints with stand-ins where `doc` notes a fault."""

    def __init__(self, doc: Document, root_joint: str | None, mimic: bool):
        if root_joint not in _ROOTS:
            raise ArgumentError(f"root_joint is {root_joint!r}, expected one of {[*_ROOTS]}")
        if local_name(doc.root) != "robot":
            raise RobotFileError(
                f"expected <robot> as the outermost element, found <{local_name(doc.root)}>",
                file=doc.file,
                line=doc.root.sourceline,
            )
        self.doc = doc
        self.mimic = mimic
        self.name = doc.name(doc.root) or ""
        self.version = self._read_version()
        self.link_elements = self._by_name("link")
        self.joint_elements = self._by_name("joint")
        self.links = [self._read_link(name) for name in self.link_elements]
        joints = [self._read_joint(name) for name in sorted(self.joint_elements)]
        self.joints = [self._hang_root(joints, root_joint), *joints]

    def raise_first_fault(self) -> None:
        """Raise what comes first in the file, and say how much more there is."""
        faults = sorted(self.doc.faults, key=lambda fault: fault.line or 0)
        if len(faults) > 1:
            faults[0].add_note(f"{len(faults) - 1} more faults; `jaxrbd check` lists them all")
        if faults:
            raise faults[0]

    def located(self, error: ModelError) -> RobotFileError:
        """The builder's error, with the line of the joint or link that it names."""
        element = self.joint_elements.get(error.joint, self.link_elements.get(error.link))
        return RobotFileError(
            str(error),
            file=self.doc.file,
            line=None if element is None else element.sourceline,
            link=error.link,
            joint=error.joint,
        )

    def tree_faults(self) -> list[RobotFileError]:
        """What the builder finds wrong with the joints; the inertias are left out of it."""
        try:
            build_model([Link(link.name) for link in self.links], self.joints)
        except ModelError as error:
            return [self.located(error)]
        return []

    def _read_version(self) -> str:
        version = self.doc.text(self.doc.root, "version")
        if version is None or version in _VERSIONS:
            return version or _VERSIONS[0]
        self.doc.fault(self.doc.root, f'<robot version="{version}">: expected one of {_VERSIONS}')
        return _VERSIONS[-1]

    def _by_name(self, tag: str) -> dict[str, etree._Element]:
        found: dict[str, etree._Element] = {}
        for element in self.doc.children(self.doc.root, tag):
            name = self.doc.name(element)
            if name in found:
                line = found[name].sourceline
                self.doc.fault(element, f"the {tag} on line {line} has the same name")
            elif name is not None:
                found[name] = element
        return found

    # ---------------------------------------------------------------------------------- links

    def _read_link(self, name: str) -> Link:
        doc = self.doc
        inertial = doc.child(self.link_elements[name], "inertial")
        if inertial is None:
            return Link(name)
        pose = self._read_origin(inertial)
        mass = doc.child(inertial, "mass", required=True)
        inertia = doc.child(inertial, "inertia", required=True)
        xx, xy, xz, yy, yz, zz = (
            doc.number(inertia, attribute, 0.0, required=True)
            for attribute in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")
        )
        about_com = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        kilograms = doc.number(mass, "value", 0.0, required=True, at_least=0.0)
        return Link(name, link_inertia(kilograms, pose[:3, 3], about_com, pose[:3, :3]))

    def _read_origin(self, element: etree._Element) -> np.ndarray:
        """The pose (4, 4) in `<origin>`; without one, the identity."""
        origin = self.doc.child(element, "origin")
        xyz = self.doc.numbers(origin, "xyz", (0.0, 0.0, 0.0))
        rpy = self.doc.numbers(origin, "rpy", (0.0, 0.0, 0.0))
        pose = pose_matrix(xyz, rpy)
        if origin is not None and "quat_xyzw" in origin.attrib:
            pose[:3, :3] = self._read_quaternion(origin)
        return pose

    def _read_quaternion(self, origin: etree._Element) -> np.ndarray:
        """The rotation (3, 3) of the attribute that version 1.1 brought beside rpy."""
        if self.version == _VERSIONS[0]:
            self.doc.fault(origin, '<origin quat_xyzw> needs <robot version="1.1"> or later')
        if "rpy" in origin.attrib:
            self.doc.fault(origin, "<origin> has both rpy and quat_xyzw, expected one of them")
        q = np.array(self.doc.numbers(origin, "quat_xyzw", (0.0, 0.0, 0.0, 1.0)))
        if not np.any(q):
            self.doc.fault(origin, "<origin quat_xyzw>: a quaternion may not be zero")
            return np.eye(3)
        x, y, z, w = _unit(q)
        K = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
        return np.eye(3) + 2 * w * K + 2 * K @ K

    # --------------------------------------------------------------------------------- joints

    def _read_joint(self, name: str) -> JointSpec:
        element = self.joint_elements[name]
        joint_type = self._read_type(element)
        joint = JointSpec(
            name=name,
            kind=self._read_kind(element, joint_type),
            parent=self._read_link_name(element, "parent"),
            child=self._read_link_name(element, "child"),
            placement=self._read_origin(element),
        )
        if joint_type not in _ONE_DOF:
            return joint
        return dataclasses.replace(
            joint,
            mimic=self._read_mimic(element) if self.mimic else None,
            **self._read_limit(element, joint_type),
            **self._read_dynamics(element),
        )

    def _read_type(self, element: etree._Element) -> str:
        joint_type = self.doc.text(element, "type", required=True)
        if joint_type is None or joint_type in _TYPES:
            return joint_type or "fixed"
        self.doc.fault(
            element, f'<joint type="{joint_type}">: expected one of {", ".join(_TYPES)}'
        )
        return "fixed"

    def _read_kind(self, element: etree._Element, joint_type: str) -> Joint | Fixed:
        if joint_type == "fixed":
            return Fixed()
        if joint_type == "floating":
            return FreeFlyer()
        if joint_type == "planar":
            axis = self._read_axis(element, default=(0.0, 0.0, 1.0))
            if not np.allclose(axis, (0, 0, 1)):
                self.doc.fault(
                    self.doc.child(element, "axis"),
                    "<axis> of a planar joint: expected z, the normal of its x-y plane; turn "
                    "<origin> so that the plane lies there",
                )
            return Planar()
        return _ONE_DOF[joint_type](self._read_axis(element, default=(1.0, 0.0, 0.0)))

    def _read_axis(
        self, element: etree._Element, default: tuple[float, float, float]
    ) -> np.ndarray:
        """The unit vector (3,) in `<axis>`, in the joint's frame."""
        axis = self.doc.child(element, "axis")
        xyz = np.array(self.doc.numbers(axis, "xyz", default, required=True))
        if np.any(xyz):
            return _unit(xyz)
        self.doc.fault(axis, "<axis xyz>: an axis may not be zero")
        return np.array(default)

    def _read_link_name(self, element: etree._Element, role: str) -> str:
        reference = self.doc.child(element, role, required=True)
        link = self.doc.name(reference, "link")
        if link is not None and link not in self.link_elements:
            self.doc.fault(reference, f'<{role} link="{link}">: no link has this name')
        return link or ""

    def _read_limit(self, element: etree._Element, joint_type: str) -> dict[str, float | None]:
        """The limits as fields of a JointSpec."""
        doc = self.doc
        limited = joint_type != "continuous"
        limit = doc.child(element, "limit", required=limited)
        if limit is None:
            return {}
        fields: dict[str, float | None] = {}
        for field, attribute in (("effort_limit", "effort"), ("velocity_limit", "velocity")):
            if limited or attribute in limit.attrib:
                fields[field] = doc.number(limit, attribute, 0.0, required=True, at_least=0.0)
        if limited and ("lower" in limit.attrib or "upper" in limit.attrib):
            lower = doc.number(limit, "lower", 0.0)
            upper = doc.number(limit, "upper", 0.0)
            if lower > upper:
                doc.fault(limit, f"<limit>: lower {lower:g} lies above upper {upper:g}")
            fields |= {"lower": lower, "upper": upper}
        return fields

    def _read_dynamics(self, element: etree._Element) -> dict[str, float]:
        dynamics = self.doc.child(element, "dynamics")
        return {
            attribute: self.doc.number(dynamics, attribute, 0.0, at_least=0.0)
            for attribute in ("damping", "friction")
        }

    def _read_mimic(self, element: etree._Element) -> Mimic | None:
        mimic = self.doc.child(element, "mimic")
        leader = self.doc.name(mimic, "joint")
        if mimic is None or leader is None:
            return None
        if leader not in self.joint_elements:
            self.doc.fault(
                mimic,
                f'<mimic joint="{leader}">: no joint has this name; mimic=False leaves all '
                "joints independent",
            )
        return Mimic(
            leader,
            self.doc.number(mimic, "multiplier", 1.0),
            self.doc.number(mimic, "offset", 0.0),
        )

    # ----------------------------------------------------------------------------------- root

    def _hang_root(self, joints: list[JointSpec], root_joint: str | None) -> JointSpec:
        """The joint between the world and the root link."""
        ...


def _unit(vector: np.ndarray) -> np.ndarray:
    """The vector over its length, which is formed without under- or overflow."""
    vector = vector / np.max(np.abs(vector))
    return vector / np.linalg.norm(vector)
