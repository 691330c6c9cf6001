"""Read SRDF files: named configurations, groups, and pairs of links without collision checks.

Source: the SRDF specification (wiki.ros.org/srdf), as MoveIt and Pinocchio read it. The reader
skips elements that `SemanticDescription` does not have. It checks the joints of configurations
against the model. It does not check other names: files often name links and groups that the robot
does not have.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..configuration import neutral_coordinates
from ..errors import RobotFileError
from ..model import Model
from ..model.arguments import require_flag, robot
from ._xml import Document, Element, clip, parse_document, written_name


class GroupState(NamedTuple):
    """A named configuration of a group of joints: an element `<group_state>`.

    - `name`, `group`: the names of the state and of the group ("" if absent);
    - `q`: (nq,), the configuration of the model. Joints that the state does not name are neutral;
    - `joints`: the joints with a value, without skipped ones, in the order of the file.
    """

    name: str
    group: str
    q: Array
    joints: tuple[str, ...]


class Group(NamedTuple):
    """A group of joints and links: an element `<group>`, with the names that the file gives.

    - `joints`, `links`, `groups`: the names of joints, of links and of other groups in this group;
    - `chains`: pairs (base link, tip link): all joints on the path between the two links.
    """

    name: str
    joints: tuple[str, ...]
    links: tuple[str, ...]
    chains: tuple[tuple[str, str], ...]
    groups: tuple[str, ...]


class DisabledCollision(NamedTuple):
    """Two links whose collisions are not checked, and the reason in the file ("" if absent)."""

    link1: str
    link2: str
    reason: str


class VirtualJoint(NamedTuple):
    """The joint between the world and the robot.

    `kind`: the type that the file states, "fixed", "floating" or "planar"; it is not checked.
    """

    name: str
    kind: str
    parent_frame: str
    child_link: str


class EndEffector(NamedTuple):
    """An end effector: the link that carries it, its group, and the parent group ("" if absent)."""

    name: str
    parent_link: str
    group: str
    parent_group: str


class SemanticDescription(NamedTuple):
    """The content of an SRDF file for one model; `load_srdf` returns it.

    - `name`: the name of the robot in the file;
    - `configurations`: the configurations (nq,) by name. States of different groups with the same
      name are one configuration;
    - `states`: the states in the order of the file;
    - `groups`, `virtual_joints`, `end_effectors`: by name;
    - `passive_joints`: the names of joints without a motor;
    - `disabled_collisions`: the pairs of links whose collisions are not checked.
    """

    name: str
    configurations: dict[str, Array]
    states: tuple[GroupState, ...]
    groups: dict[str, Group]
    virtual_joints: dict[str, VirtualJoint]
    end_effectors: dict[str, EndEffector]
    passive_joints: tuple[str, ...]
    disabled_collisions: tuple[DisabledCollision, ...]


def load_srdf(
    path_or_text: str | os.PathLike[str], model: Model, *, skip_unknown_joints: bool = False
) -> SemanticDescription:
    """The configurations, groups and disabled collisions in an SRDF file, for a model.

    - `path_or_text`: a path, or the text of the file: a string that starts with '<';
    - `model`: the robot whose joints the file names;
    - `skip_unknown_joints`: whether to skip the values of joints that are not joints of `model`,
      such as fixed joints, and of joints that follow other joints.

    A joint has as many values as coordinates in `model`: one angle for a continuous joint, the
    position and the quaternion xyzw for a free-flyer. A joint `j` that is a chain of joints `j.1`,
    `j.2`, ... has the values of all of them.

    Raises RobotFileError, which names file and line, for a file that is no SRDF file, for a missing
    attribute, for two groups, virtual joints or end effectors of one name, and, in configurations,
    for an unknown joint, a joint that follows others, a wrong number of values, a quaternion whose
    norm is not 1 to 1e-3, and a joint with two different values in the states of one name. Source:
    the SRDF specification.
    """
    robot(model)
    require_flag(skip_unknown_joints, "skip_unknown_joints")
    doc = parse_document(path_or_text)
    if written_name(doc.root) != "robot":
        raise RobotFileError(
            f"expected <robot> as the outermost element, found <{clip(written_name(doc.root))}>",
            file=doc.file,
            line=doc.root.sourceline,
        )
    for element in doc.children(doc.root, "link"):
        raise RobotFileError(
            "found <link> in <robot>, as in a URDF file, expected an SRDF file",
            file=doc.file,
            line=element.sourceline,
        )
    name = doc.name(doc.root) or ""
    groups = [_group(doc, element) for element in doc.children(doc.root, "group")]
    collisions = [
        DisabledCollision(
            _text(doc, element, "link1"), _text(doc, element, "link2"), element.get("reason", "")
        )
        for element in doc.children(doc.root, "disable_collisions")
    ]
    virtual = [
        VirtualJoint(
            *(_text(doc, element, word) for word in ("name", "type", "parent_frame", "child_link"))
        )
        for element in doc.children(doc.root, "virtual_joint")
    ]
    effectors = [
        EndEffector(
            name=_text(doc, element, "name"),
            parent_link=_text(doc, element, "parent_link"),
            group=_text(doc, element, "group"),
            parent_group=element.get("parent_group", ""),
        )
        for element in doc.children(doc.root, "end_effector")
    ]
    passive = [_text(doc, e, "name") for e in doc.children(doc.root, "passive_joint")]
    reader = _States(doc, model, skip_unknown_joints)
    for element in doc.children(doc.root, "group_state"):
        reader.read(element)
    for tag in ("group", "virtual_joint", "end_effector"):
        doc.by_name(tag)
    if doc.faults:
        raise min(doc.faults, key=lambda fault: fault.line or 0)
    return SemanticDescription(
        name=name,
        configurations={key: jnp.asarray(q, model.dtype) for key, q in reader.merged.items()},
        states=tuple(reader.states),
        groups={group.name: group for group in groups},
        virtual_joints={joint.name: joint for joint in virtual},
        end_effectors={effector.name: effector for effector in effectors},
        passive_joints=tuple(passive),
        disabled_collisions=tuple(collisions),
    )


def _text(doc: Document, element: Element, attribute: str) -> str:
    """The text of a required attribute; "" at a fault."""
    return doc.name(element, attribute) or ""


def _group(doc: Document, element: Element) -> Group:
    def names(tag: str) -> tuple[str, ...]:
        return tuple(_text(doc, child, "name") for child in doc.children(element, tag))

    chains = [
        (_text(doc, chain, "base_link"), _text(doc, chain, "tip_link"))
        for chain in doc.children(element, "chain")
    ]
    return Group(
        name=_text(doc, element, "name"),
        joints=names("joint"),
        links=names("link"),
        chains=tuple(chains),
        groups=names("group"),
    )


class _States:
    """The states of a file, and the configurations that merge the states of one name."""

    def __init__(self, doc: Document, model: Model, skip_unknown_joints: bool):
        self.doc, self.model, self.skip = doc, model, skip_unknown_joints
        self.neutral = neutral_coordinates(model)
        self.states: list[GroupState] = []
        self.merged: dict[str, np.ndarray] = {}
        # For each name of a state, the lines of the coordinates (nq,); 0 without a value.
        self._lines: dict[str, np.ndarray] = {}

    def read(self, element: Element) -> None:
        """Add one `<group_state>`."""
        name, group = _text(self.doc, element, "name"), element.get("group", "")
        q, joints = self.neutral.copy(), []
        merged = self.merged.setdefault(name, self.neutral.copy())
        lines = self._lines.setdefault(name, np.zeros(self.model.nq, int))
        for child in self.doc.children(element, "joint"):
            joint = self.doc.name(child)
            part = None if joint is None else self._slice(child, joint)
            if joint is None or part is None:
                continue
            faults = len(self.doc.faults)
            neutral = tuple(self.neutral[part].tolist())
            values = np.array(self.doc.numbers(child, "value", neutral, required=True))
            if len(self.doc.faults) > faults:
                continue
            self._normalise_quaternions(child, part, values)
            given = lines[part] > 0  # a stage "j.1" and its joint "j" have common coordinates
            if np.any(merged[part][given] != values[given]):
                self.doc.fault(
                    child,
                    f"state {name!r} has two values of this joint, {merged[part][given].tolist()} "
                    f"on line {lines[part].max()} and {values[given].tolist()} here",
                )
                continue
            lines[part] = child.sourceline
            q[part] = merged[part] = values
            joints.append(joint)
        q = jnp.asarray(q, self.model.dtype)
        self.states.append(GroupState(name, group, q, tuple(dict.fromkeys(joints))))

    def _slice(self, element: Element, joint: str) -> slice | None:
        """The slice of q with the coordinates of a joint.

        None for a joint without coordinates, which is a fault unless `self.skip`.
        """
        known = joint in self.model.joint_names or f"{joint}.1" in self.model.joint_names
        part = self.model.joint(joint).q if known else slice(0, 0)
        if part.start < part.stop:
            return part
        if not self.skip:
            why = "follows another joint" if known else f"is no moving joint of {self.model!r}"
            self.doc.fault(
                element,
                f"the joint has a value, but it {why}; skip_unknown_joints=True skips the value",
            )
        return None

    def _normalise_quaternions(self, element: Element, part: slice, values: np.ndarray) -> None:
        """Normalise the quaternions of the values for a part of q, in place."""
        for _, start in self.model.quaternions:
            if not part.start <= start < part.stop:
                continue
            quaternion = values[start - part.start :][:4]
            size = np.linalg.norm(quaternion)
            if abs(size - 1) > 1e-3:  # files round to a few digits
                self.doc.fault(element, f"the quaternion has norm {size:g}, expected 1, xyzw")
            else:
                quaternion /= size
