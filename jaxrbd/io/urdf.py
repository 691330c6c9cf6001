"""Read a `Model` from a URDF file: links, joints, inertias and shapes.

Errors in the file are reported with their line numbers.

Source: the URDF specification (wiki.ros.org/urdf/XML, versions 1.0 to 1.2). The reader follows
urdfdom 6 and Pinocchio. A robot has the same coordinates in jaxrbd and in Pinocchio, except for
continuous and planar joints: Pinocchio has the cosine and the sine of their angle in q. Where these
sources differ, or define nothing, the rules are:

- An `<inertial>` without mass and an `<axis>` without xyz are errors. (urdfdom reports them and
  reads zero.)
- A revolute or prismatic joint needs `<limit>` with effort and velocity. A joint without lower and
  upper is unlimited. (By the specification both are 0, and the joint cannot move.) If the file
  states only lower or only upper, the missing limit is 0. A continuous joint may have effort and
  velocity limits.
- A planar joint moves in the x-y plane of its frame, as in Pinocchio. An `<axis>` other than z is
  an error, because no source defines the directions of the coordinates in that case.
- In floating, planar and fixed joints the reader skips `<limit>`, `<dynamics>` and `<mimic>`.
- The joint between the world and the root link is called `root_joint`.

The reader reads the shapes of `<visual>` and `<collision>`: `<box>`, `<sphere>`, `<cylinder>`,
`<capsule>` and `<mesh>`. A size of a shape may be 0. The file of a mesh is not opened. A material
without a colour (a texture, or a name without definition) gives a shape without a colour.

The reader skips all other elements (gazebo, transmission, ...).
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ..errors import (
    ArgumentError,
    InertiaWarning,
    LimitWarning,
    ModelError,
    RobotFileError,
    listed,
)
from ..joints import FreeFlyer, Planar, Spherical, Translation
from ..model import Model
from ..model.builder import bodies_and_frames, build_model
from ..model.checks import checked, inertia_faults
from ..model.description import Fixed, JointSpec, Link, Mimic, Numbers
from ..model.mass_check import singular_joints
from ..model.model import ROOT_JOINT
from ..model.parameters import require_flag
from ._urdf_elements import read_joint, read_link
from ._urdf_limits import doubtful_limits
from ._urdf_origin import VERSIONS
from ._urdf_shapes import ShapeReader
from ._xml import Document, clip, parse_document, written_name

_MAX_NAMES = 8  # of joints or links, in a message

# The kinds of the joint between the world and the root link, by the argument `root_joint`.
_ROOT_KINDS: dict[str | None, type] = {
    None: Fixed,
    "free_flyer": FreeFlyer,
    "planar": Planar,
    "spherical": Spherical,
    "translation": Translation,
}


def load_urdf(
    path_or_text: str | os.PathLike[str],
    *,
    root_joint: str | None = None,
    mimic: bool = True,
    geometry: bool = True,
    strict: bool = False,
    gravity: Numbers = (0.0, 0.0, -9.81),
) -> Model:
    """Load a robot from a URDF file.

    - `path_or_text`: a path, or the text of the file: a string that starts with '<';
    - `root_joint`: the joint between the world and the root link: None (welded), "free_flyer",
      "planar", "spherical" or "translation";
    - `mimic`: whether to read `<mimic>`, which couples joints;
    - `geometry`: whether to read `<visual>` and `<collision>`, see `Model.geometry`;
    - `strict`: whether an inertia that no rigid body can have, and a mass matrix that is singular
      in every configuration, are errors; otherwise they give an InertiaWarning;
    - `gravity`: (3,), m/s^2, in the world frame.

    Returns the model. Its joints are in depth-first order, and the children of one link are sorted
    by joint name, as in Pinocchio. Raises RobotFileError, which names file and line, for a fault in
    the file, and ArgumentError for another `root_joint`. Warns with one `LimitWarning`, which names
    the joints, for limits that are valid but probably wrong. Source: the URDF specification.
    """
    require_flag(strict, "strict")
    robot = _Robot(path_or_text, root_joint=root_joint, mimic=mimic, geometry=geometry)
    robot.raise_first_fault()
    with _located_errors(robot):
        model = build_model(
            robot.links, robot.joints, gravity=gravity, name=robot.name, strict=strict
        )
    doubts = [
        f"{text} ({listed([repr(name) for name in names], _MAX_NAMES)})"
        for text, names in doubtful_limits(robot.joints).items()
    ]
    if doubts:
        message = f"{robot.doc.file}: joints have doubtful limits: {'; '.join(doubts)}"
        warnings.warn(message, LimitWarning, stacklevel=2)
    return model


@contextlib.contextmanager
def _located_errors(robot: _Robot) -> Iterator[None]:
    """Add the file and the line to a ModelError that the block raises."""
    try:
        yield
    except ModelError as error:
        raise robot.located(error) from error


def parse_urdf(
    path_or_text: str | os.PathLike[str],
    *,
    root_joint: str | None = None,
    mimic: bool = True,
    geometry: bool = True,
) -> tuple[str, list[Link], list[JointSpec]]:
    """Read the description of a robot from a URDF file, to edit it before `build_model`.

    Arguments as in `load_urdf`. Returns the name of the robot, the links in the order of the file,
    and the joints: the root joint, then the other joints sorted by name. Raises RobotFileError for
    a fault in the file. Only `build_model` detects cycles that are not connected to the root, and
    cycles of mimic joints. Source: the URDF specification.
    """
    robot = _Robot(path_or_text, root_joint=root_joint, mimic=mimic, geometry=geometry)
    robot.raise_first_fault()
    return robot.name, robot.links, robot.joints


def validate_urdf(path_or_text: str | os.PathLike[str]) -> list[str]:
    """The faults of a URDF file as "file:line: ...", sorted by line; empty for a valid file.

    The list also has the warnings of `load_urdf` as "file:line: warning: ...": an inertia that no
    rigid body can have, a joint that makes the mass matrix singular in every configuration, and a
    joint with limits that are probably wrong. The function looks for the root link and for cycles
    only if every link and joint is valid, and checks the mass matrix and the limits only if the
    tree is valid. In the check of the mass matrix, the root link is welded to the world.
    """
    faults, doubts = inspect_urdf(path_or_text)
    return [str(fault) for fault in _by_line([*faults, *doubts])]


def inspect_urdf(
    path_or_text: str | os.PathLike[str],
) -> tuple[list[RobotFileError], list[RobotFileError]]:
    """The errors and the warnings of `load_urdf`, each sorted by line; see `validate_urdf`."""
    faults, doubts, _ = _inspected(path_or_text)
    return faults, doubts


def inspect_and_load_urdf(
    path: str | os.PathLike[str],
) -> tuple[list[RobotFileError], list[RobotFileError], Model | None]:
    """The results of `inspect_urdf`, and of `load_urdf` without warnings. Reads the file once.

    The model is None for a file with errors.
    """
    faults, doubts, robot = _inspected(path)
    if faults or robot is None:
        return faults, doubts, None
    with warnings.catch_warnings(), _located_errors(robot):
        warnings.simplefilter("ignore", InertiaWarning)
        return faults, doubts, build_model(robot.links, robot.joints, name=robot.name)


def _inspected(
    path_or_text: str | os.PathLike[str],
) -> tuple[list[RobotFileError], list[RobotFileError], _Robot | None]:
    """The results of `inspect_urdf`, and the robot, or None if the file is no URDF document."""
    try:
        robot = _Robot(path_or_text, root_joint=None, mimic=True, geometry=True)
    except RobotFileError as error:
        return [error], [], None
    faults = robot.doc.faults or robot.tree_faults()
    # If a link has an error, its inertia can contain default values, so the inertia is not checked.
    faulty = {fault.link for fault in faults}
    sound = [link for link in robot.links if link.name not in faulty]
    doubts = [ModelError(why, link=link) for link, why in inertia_faults(sound).items()]
    if not faults:
        doubts += singular_joints(robot.links, checked(robot.links, robot.joints))
        doubts += [
            ModelError(f"joint {name!r}: {text}", joint=name)
            for text, names in doubtful_limits(robot.joints).items()
            for name in names
        ]
    located = [robot.located(doubt, "warning: ") for doubt in doubts]
    return _by_line(faults), _by_line(located), robot


class _Robot:
    """A URDF document as links and joints; they are complete only if `doc` has no faults."""

    def __init__(
        self,
        path_or_text: str | os.PathLike[str],
        *,
        root_joint: str | None,
        mimic: bool,
        geometry: bool,
    ):
        for name, value in (("mimic", mimic), ("geometry", geometry)):
            require_flag(value, name)
        doc = parse_document(path_or_text)
        if root_joint not in [*_ROOT_KINDS]:
            raise ArgumentError(f"root_joint is {root_joint!r}, expected one of {[*_ROOT_KINDS]}")
        _check_outermost(doc)
        self.doc = doc
        self.name = doc.name(doc.root) or ""
        self._link_elements = doc.by_name("link")
        self._joint_elements = doc.by_name("joint")
        names_are_sound = not doc.faults
        shapes = None
        if geometry:
            shapes = ShapeReader(doc, None if doc.file == "<string>" else path_or_text)
        self.links = [read_link(doc, e, name, shapes) for name, e in self._link_elements.items()]
        self.joints = [
            read_joint(doc, e, name, mimic=mimic)
            for name, e in sorted(self._joint_elements.items())
        ]
        if names_are_sound:
            self._check_references()
            self._check_parents()
        if not doc.faults:
            self._add_root_joint(root_joint)

    def raise_first_fault(self) -> None:
        """Raise the first fault in the file, if there is one."""
        faults = _by_line(self.doc.faults)
        if len(faults) > 1:
            faults[0].add_note(f"{len(faults) - 1} more; `jaxrbd check` lists all faults")
        if faults:
            raise faults[0]

    def located(self, error: ModelError, mark: str = "") -> RobotFileError:
        """The error with the file and the line of its joint or link; `mark` begins the message."""
        link, joint = error.link or "", error.joint or ""
        element = self._joint_elements.get(joint, self._link_elements.get(link))
        return RobotFileError(
            mark + str(error),
            file=self.doc.file,
            line=None if element is None else element.sourceline,
            link=error.link,
            joint=error.joint,
        )

    def tree_faults(self) -> list[RobotFileError]:
        """A list with the first fault in the tree of links and joints; empty if there is none."""
        try:
            bodies_and_frames(self.links, checked(self.links, self.joints), np.dtype(float))
        except ModelError as error:
            return [self.located(error)]
        return []

    def _check_references(self) -> None:
        """Check that the file has the parent link, child link and leader of every joint."""
        for joint in self.joints:
            self._check_known(joint, "parent", "link", joint.parent)
            self._check_known(joint, "child", "link", joint.child)
            if isinstance(joint.mimic, Mimic):
                self._check_known(joint, "mimic", "joint", joint.mimic.joint)

    def _check_parents(self) -> None:
        """Check that no link is the child of several joints."""
        joints: dict[str, list[str]] = {}
        for joint in self.joints:
            joints.setdefault(joint.child, []).append(joint.name)
        for link, names in joints.items():
            if link in self._link_elements and len(names) > 1:
                count = "two" if len(names) == 2 else str(len(names))
                lines = {name: self._joint_elements[name].sourceline for name in names}
                *first, last = (
                    f"{name!r} (line {line})"
                    for name, line in sorted(lines.items(), key=lambda item: item[1])
                )
                self.doc.fault(
                    self._link_elements[link],
                    f"child of {count} joints, {', '.join(first)} and {last}",
                )

    def _check_known(self, joint: JointSpec, tag: str, refers_to: str, name: str | None) -> None:
        """Check that the file has the link or joint that the element `tag` of a joint names.

        `refers_to`: "link" or "joint"; `name`: the name of this link or joint.
        """
        known = self._link_elements if refers_to == "link" else self._joint_elements
        if name and name not in known:
            (element, *_) = self.doc.children(self._joint_elements[joint.name], tag)
            hint = "; mimic=False skips it" if tag == "mimic" else ""
            self.doc.fault(
                element, f'<{tag} {refers_to}="{clip(name)}">: no {refers_to} has this name{hint}'
            )

    def _add_root_joint(self, root_joint: str | None) -> None:
        """Insert the joint between the world and the root link before the other joints."""
        root_link = self._find_root()
        name = ROOT_JOINT
        if name in self._joint_elements and root_joint is not None:
            self.doc.fault(
                self._joint_elements[name],
                f"root_joint={root_joint!r} adds a joint {name!r}, and the file has one too; "
                "rename the joint in the file",
            )
        # Find a free name. It belongs to a fixed joint, which the model does not store. (With
        # `root_joint`, the clash is already reported.)
        while name in self._joint_elements:
            name += "_"
        if root_link is not None:
            self.joints.insert(0, JointSpec(name, _ROOT_KINDS[root_joint](), None, root_link))

    def _find_root(self) -> str | None:
        """The name of the root link; None, and a fault, unless there is exactly one."""
        parents = {joint.child: joint.parent or "" for joint in self.joints}
        roots = [link.name for link in self.links if link.name not in parents]
        if len(roots) == 1:
            return roots[0]
        if roots:
            self.doc.fault(
                self._link_elements[roots[1]],
                "several root links, expected one: no joint has these links as child: "
                f"{_first_names(roots)}",
            )
        elif self.links:
            cycle = _cycle(parents, self.links[0].name)
            self.doc.fault(
                self._link_elements[cycle[0]],
                "there is no root link; these links form a cycle, parent before child: "
                f"{_first_names(cycle)}",
            )
        else:
            self.doc.fault(self.doc.root, "<robot> has no <link>")
        return None


def _check_outermost(doc: Document) -> None:
    tag, version = written_name(doc.root), doc.root.get("version", VERSIONS[0])
    if tag != "robot":
        raise RobotFileError(
            f"expected <robot> as the outermost element, found <{clip(tag)}>",
            file=doc.file,
            line=doc.root.sourceline,
        )
    if version not in VERSIONS:
        known = ", ".join(VERSIONS)
        doc.fault(doc.root, f'<robot version="{clip(version)}">: expected one of {known}')


def _cycle(parents: dict[str, str], start: str) -> list[str]:
    """The cycle among the ancestors of the link `start`, each link before its child."""
    path: dict[str, None] = {}  # an ordered set
    link = start
    while link not in path:
        path[link] = None
        link = parents[link]
    links = list(path)
    upwards = links[links.index(link) :]
    return [upwards[0], *reversed(upwards[1:])]


def _by_line(faults: Iterable[RobotFileError]) -> list[RobotFileError]:
    return sorted(faults, key=lambda fault: fault.line or 0)


def _first_names(names: Sequence[str]) -> str:
    """A list of names for a message."""
    return ", ".join(map(repr, names[:_MAX_NAMES])) + (", ..." if len(names) > _MAX_NAMES else "")
