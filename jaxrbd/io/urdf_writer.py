"""Write a `Model` as a URDF file that `load_urdf` reads as the same robot.

A URDF file is a tree of links. `load_urdf` numbers the children of a link in the order of the names
of their joints. The names of fixed joints are not part of a model. So this module chooses the names
of the fixed joints. For each link it also chooses the parent link, among the links of the parent
body. With these choices, `load_urdf` reads joints and frames in the order of the model.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Iterator
from numbers import Real
from typing import Any
from xml.etree import ElementTree

import numpy as np

from ..errors import ArgumentError, ModelError
from ..joints import FreeFlyer, Planar, Prismatic, Revolute, Spherical, Translation
from ..model import Model
from ..model.arguments import require_flag, robot
from ..model.description import Fixed, JointSpec, Link, Mimic, inertia_about_com
from ..model.editing import describe
from ..model.geometry import Geometry, checked_geometry
from ..model.model import ROOT_JOINT
from ._sealed import replace_file
from ._urdf_written_shapes import NOT_XML, add_shape, as_text, written_shapes

_ROOT_KINDS: dict[type, str] = {
    FreeFlyer: "free_flyer",
    Planar: "planar",
    Spherical: "spherical",
    Translation: "translation",
}
_TYPES: dict[type, str] = {
    Revolute: "revolute",
    Prismatic: "prismatic",
    FreeFlyer: "floating",
    Planar: "planar",
    Fixed: "fixed",
}
_ROOT_LINK = "world"


def save_urdf(
    model: Model,
    path: str | os.PathLike[str],
    *,
    unlimited: float | None = None,
    reorder: bool = False,
    geometry: bool = True,
) -> None:
    """Save a robot to a URDF file, which `load_urdf` reads as the same robot.

    The arguments, the errors and the content are those of `urdf_text`. If saving fails, the
    previous file is unchanged. Raises OSError if the file cannot be written.
    """
    text = urdf_text(model, unlimited=unlimited, reorder=reorder, geometry=geometry)
    replace_file(path, text.encode("utf-8"))


def urdf_text(
    model: Model,
    *,
    unlimited: float | None = None,
    reorder: bool = False,
    geometry: bool = True,
) -> str:
    """The robot as the text of a URDF file, which `load_urdf` reads as the same robot.

    - `unlimited`: the value to write for an infinite limit where URDF needs a number: the effort
      and velocity limits of a joint with position limits and of a prismatic joint, and the other
      limit of a joint with one position limit. None: such a limit is an error;
    - `reorder`: whether `load_urdf` may read the joints in another order, because it numbers the
      joints of a body by their names. If False, such an order is an error;
    - `geometry`: whether to write the visual and collision shapes.

    The file has the links, joints and frames by their names, inertias, limits, damping, friction
    and linear mimic joints, and shapes with their colours. Numbers have all digits; `load_urdf`
    normalizes the axes. A frame other than the frame of a body is a massless link on a fixed joint,
    or, if it is fixed to the world, a link with its inertia. A capsule becomes a cylinder and two
    spheres, because URDF has no capsule: the form is the same, and the loaded link has three shapes
    instead of one. A joint that follows another joint has the limits that its leader implies. A
    relative path of a mesh becomes an absolute path.

    If only a joint `root_joint`, of a kind and at the place that `load_urdf` gives it, connects the
    robot to the world, the root body is the root link of the file. Then load the file with the same
    argument `root_joint`, which a comment in the file states. Otherwise, the root link is the first
    frame of the world, if this frame is at the origin. If there is no such frame, the file has a
    root link "world", which is one more frame of the loaded model.

    Raises ModelError, which names the joint or the link, for what URDF cannot state. Several faults
    are one error, with one line per fault and the single errors in the attribute `faults`:

    - a joint that is helical or user-defined; a spherical or translation joint other than
      `root_joint`; a nonlinear follower (`Follow`);
    - armature; limits, damping or friction of a floating, planar or root joint; infinite limits,
      see `unlimited`; the order of joints, see `reorder`;
    - a first moment of mass without mass, and names that XML or `load_urdf` does not accept;
    - negative masses, damping, friction and limits of velocity and effort, and NaN;
    - shapes that `build_model` does not accept, such as a radius that is negative or NaN;
    - with `geometry`: an ellipsoid, a mesh that is not in a file, a colour of a collision shape.

    Raises ArgumentError for a batch of models, for a wrong argument and, if this is the only fault,
    for dissipation (use `model.with_dissipation(False)`) and for a gravity other than
    (0, 0, -9.81), which is an argument of `load_urdf`. Source: the URDF specification.
    """
    robot(model)
    for flag, value in (("reorder", reorder), ("geometry", geometry)):
        require_flag(value, flag)
    if unlimited is not None:
        is_number = isinstance(unlimited, Real) and not isinstance(unlimited, bool)
        if not (is_number and np.isfinite(unlimited) and unlimited >= 0):
            raise ArgumentError(
                f"unlimited is {unlimited!r}, expected a finite number of at least 0"
            )
    faults = _Faults()
    with faults.collected():
        if model.dissipative:
            raise ArgumentError(
                "dissipation is on, which a URDF file cannot state: save "
                "model.with_dissipation(False)"
            )
    with faults.collected():
        if not np.array_equal(model.gravity, np.array([0, 0, -9.81], model.dtype)):
            raise ArgumentError(
                f"gravity is {np.asarray(model.gravity).tolist()}, which a URDF file cannot state, "
                "expected (0, 0, -9.81): set it, and pass the gravity to load_urdf"
            )
    links, joints, root_joint = _description(model, faults)
    if not geometry:
        links = [dataclasses.replace(link, visuals=(), collisions=()) for link in links]
    joints = _ordered(links, joints, faults, reorder=reorder)
    root = ElementTree.Element("robot", name=model.name)
    with faults.collected():
        _check_name(model.name, "robot")
    if root_joint is not None:
        root.append(ElementTree.Comment(f' load_urdf(..., root_joint="{root_joint}") '))
    for link in links:
        _add_link(root, link, faults)
    by_name = {joint.name: joint for joint in joints}
    for joint in joints:
        _add_joint(root, joint, by_name, unlimited, faults)
    faults.report()
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=False) + "\n"


class _Faults:
    """The errors for all parts of a robot that URDF cannot state."""

    def __init__(self):
        self._found: list[ModelError | ArgumentError] = []

    @contextlib.contextmanager
    def collected(self) -> Iterator[None]:
        """Keep an error that is raised in the block, and continue after the block."""
        try:
            yield
        except (ModelError, ArgumentError) as error:
            self._found.append(error)

    def report(self) -> None:
        """Raise the error that was kept, or one error for all of them."""
        if len(self._found) == 1:
            raise self._found[0]
        if self._found:
            lines = "".join(f"\n  {error}" for error in self._found)
            raise ModelError(
                f"{len(self._found)} parts of the robot cannot be in a URDF file:{lines}",
                faults=tuple(self._found),
            )


# ----------------------------------------------------------------------------------- tree of links


def _description(model: Model, faults: _Faults) -> tuple[list[Link], list[JointSpec], str | None]:
    """The links, root link first, the joints between links, and the `root_joint` of `load_urdf`."""
    links, joints = describe(model)
    order = {name: place for place, name in enumerate(model.frame_names)}
    links.sort(key=lambda link: order.get(link.name, len(order)))
    on_world = [joint for joint in joints if joint.parent is None]
    if len(on_world) == 1:
        (joint,) = on_world
        at_origin = np.array_equal(joint.placement, np.eye(4))
        if joint.name == ROOT_JOINT and type(joint.kind) in _ROOT_KINDS and at_origin:
            _refuse_limits_and_forces(joint, faults)
            others = [other for other in joints if other is not joint]
            return links, others, _ROOT_KINDS[type(joint.kind)]
    fixed = [name for name, body in zip(model.frame_names, model.frame_bodies) if body < 0]
    poses = {joint.child: joint.placement for joint in on_world}
    if fixed and links[0].name == fixed[0] and np.array_equal(poses[fixed[0]], np.eye(4)):
        root = fixed[0]
        joints = [joint for joint in joints if joint.child != root]
    else:
        root = _unused(_ROOT_LINK, {link.name for link in links})
        links.insert(0, Link(root))
    joints = [
        dataclasses.replace(joint, parent=root) if joint.parent is None else joint
        for joint in joints
    ]
    return links, joints, None


def _ordered(
    links: list[Link], joints: list[JointSpec], faults: _Faults, *, reorder: bool
) -> list[JointSpec]:
    """The joints, attached and named such that `load_urdf` reads them in the order of the model."""
    by_child = {joint.child: joint for joint in joints}
    joints_of_body: dict[str | None, list[JointSpec]] = {}
    for link in links:
        if link.name in by_child:
            joint = by_child[link.name]
            joints_of_body.setdefault(joint.parent, []).append(joint)
    taken = {joint.name for joint in joints if _moves(joint)}
    ordered: dict[str, JointSpec] = {}  # by the child link
    for children in joints_of_body.values():
        names = [joint.name for joint in children if _moves(joint)]
        attached = [*children] if names == sorted(names) else _attached_to_welds(children)
        if attached is None and not reorder:
            first, second = next(pair for pair in itertools.pairwise(names) if pair[0] > pair[1])
            with faults.collected():
                raise ModelError(
                    f"joint {second!r}: it comes after joint {first!r} of the same body, and "
                    "load_urdf reads the joints of a body in the order of their names; rename a "
                    "joint, or accept the order by the argument `reorder`",
                    joint=second,
                    argument="reorder",
                )
        if attached is None:
            attached = sorted(children, key=lambda joint: (_moves(joint), joint.name))
        joints_of_link: dict[str | None, list[JointSpec]] = {}
        for joint in attached:
            joints_of_link.setdefault(joint.parent, []).append(joint)
        for siblings in joints_of_link.values():
            ordered |= {joint.child: joint for joint in siblings}
            with faults.collected():  # without new names, the old names stay
                ordered |= {joint.child: joint for joint in _with_names(siblings, taken)}
    return [ordered[link.name] for link in links if link.name in ordered]


def _attached_to_welds(children: list[JointSpec]) -> list[JointSpec] | None:
    """The joints on a body, some attached to welded links, such that `load_urdf` keeps their order.

    The result is None if no attachment keeps the order. `load_urdf` visits the links depth-first,
    and the children of one link in the order of the names of their joints. A link is open while
    joints can still be attached to it. At first only the link of the body is open. Each welded link
    is attached to the last open link, and is then open too. A moving link is attached to the last
    open link whose moving joints have smaller names; the open links after that link are closed.
    """
    opened: list[tuple[str | None, np.ndarray]] = [(children[0].parent, np.eye(4))]
    last_names = [""]  # for each open link, the name of its last moving joint
    attached = []
    for joint in children:
        while _moves(joint) and last_names[-1] >= joint.name:
            opened.pop()
            last_names.pop()
            if not opened:
                return None
        parent, pose = opened[-1]
        placement = np.linalg.inv(pose) @ joint.placement if len(opened) > 1 else joint.placement
        attached.append(dataclasses.replace(joint, parent=parent, placement=placement))
        if _moves(joint):
            last_names[-1] = joint.name
        else:
            opened.append((joint.child, joint.placement))
            last_names.append("")
    return attached


def _with_names(children: list[JointSpec], taken: set[str]) -> list[JointSpec]:
    """The children of one link, with new names of the fixed joints.

    The new name of a fixed joint is between the names of the previous and the next moving joint.
    """
    named: list[JointSpec] = []
    welds: list[JointSpec] = []
    previous_name = ""
    children_and_end: list[JointSpec | None] = [*children, None]
    for joint in children_and_end:
        if joint is not None and not _moves(joint):
            welds.append(joint)
            continue
        names = _names_between(
            previous_name,
            None if joint is None else joint.name,
            [weld.child for weld in welds],
            taken,
        )
        taken |= set(names)
        named += [dataclasses.replace(weld, name=name) for weld, name in zip(welds, names)]
        welds = []
        if joint is not None:
            named.append(joint)
            previous_name = joint.name
    return named


def _names_between(
    previous_name: str, next_name: str | None, links: list[str], taken: set[str]
) -> list[str]:
    """Unused increasing names between two names, for the joints that weld these links.

    `next_name`: None for the names after the last moving joint.
    """
    numbered = [f"{k:04d}_{link}" for k, link in enumerate(links, start=1)]
    suffixes = ("_fixed_", "_", ".", "!")
    stems = ("fixed_", *(previous_name + suffix for suffix in suffixes), "0_", "!")
    for names in (
        [f"{link}_fixed" for link in links],
        *([stem + number for number in numbered] for stem in stems),
    ):
        increasing = all(x < y for x, y in zip([previous_name, *names], names))
        is_below = next_name is None or not names or names[-1] < next_name
        if increasing and is_below and not taken & set(names):
            return names
    raise ModelError(
        f"joint {next_name!r}: no names are between the names {previous_name!r} and {next_name!r} "
        f"for the joints that weld {links} to the same body; rename a joint",
        joint=next_name,
    )


def _moves(joint: JointSpec) -> bool:
    return not isinstance(joint.kind, Fixed)


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


# ---------------------------------------------------------------------------------------- elements


def _add_link(root: ElementTree.Element, link: Link, faults: _Faults) -> None:
    element = ElementTree.SubElement(root, "link", name=link.name)
    with faults.collected():
        _check_name(link.name, "link")
    with faults.collected():
        _add_inertial(element, link)
    for kind, tag in (("visuals", "visual"), ("collisions", "collision")):
        parts = []
        for index, shape in enumerate(getattr(link, kind)):
            with faults.collected():
                shape = _checked_shape(link.name, tag, index, shape)
                parts += [(index, part) for part in written_shapes(shape)]
        for number, (index, part) in enumerate(parts):
            placement = part.placement
            child = ElementTree.SubElement(element, tag)
            _add_origin(child, placement[:3, 3], _roll_pitch_yaw(placement[:3, :3]))
            with faults.collected():
                add_shape(child, link.name, index, number, part)


def _checked_shape(link: str, tag: str, index: int, shape: Geometry) -> Geometry:
    """The shape after the checks of `build_model`: a user can replace its values in a model.

    Raises ModelError, which names the link, for values that `build_model` does not accept.
    """
    try:
        return checked_geometry(shape)
    except ValueError as error:
        raise ModelError(f"link {link!r}: its {tag} {index}: {error}", link=link) from error


def _add_inertial(element: ElementTree.Element, link: Link) -> None:
    mass, h = link.inertia[0], link.inertia[1:4]
    if not np.any(link.inertia):
        return
    if not np.all(np.isfinite(link.inertia)) or mass < 0:
        raise ModelError(
            f"link {link.name!r}: its inertia is {link.inertia.tolist()}, expected finite numbers "
            "and a mass of 0 or more",
            link=link.name,
        )
    if mass == 0 and np.any(h):
        raise ModelError(
            f"link {link.name!r}: it has the mass moment {h.tolist()} kg m and no mass, which URDF "
            "cannot state",
            link=link.name,
        )
    _, com, about_com = inertia_about_com(link.inertia)
    inertial = ElementTree.SubElement(element, "inertial")
    _add_origin(inertial, com, np.zeros(3))
    ElementTree.SubElement(inertial, "mass", value=as_text(mass))
    entries = {
        f"i{'xyz'[i]}{'xyz'[j]}": as_text(about_com[i, j]) for i in range(3) for j in range(i, 3)
    }
    ElementTree.SubElement(inertial, "inertia", entries)


def _add_joint(
    root: ElementTree.Element,
    joint: JointSpec,
    by_name: dict[str, JointSpec],
    unlimited: float | None,
    faults: _Faults,
) -> None:
    kind = type(joint.kind)
    with faults.collected():
        _check_name(joint.name, "joint")
    if kind in (FreeFlyer, Planar):
        _refuse_limits_and_forces(joint, faults)
    else:
        _check_zero(joint, "armature", faults)
    with faults.collected():
        if kind not in _TYPES:
            only = f", except as {ROOT_JOINT!r}" if kind in _ROOT_KINDS else ""
            raise ModelError(
                f"joint {joint.name!r}: URDF has no joint of the kind {kind.__name__}{only}",
                joint=joint.name,
            )
        _add_joint_element(root, joint, by_name, unlimited, faults)


def _add_joint_element(
    root: ElementTree.Element,
    joint: JointSpec,
    by_name: dict[str, JointSpec],
    unlimited: float | None,
    faults: _Faults,
) -> None:
    kind = type(joint.kind)
    limits: dict[str, str] = {}
    if kind in (Revolute, Prismatic):
        limits = _limits(_with_implied_limits(joint, by_name), unlimited, faults)
    bounded = kind is not Revolute or limits.keys() >= {"effort", "velocity", "lower"}
    element = ElementTree.SubElement(
        root,
        "joint",
        name=joint.name,
        type=_TYPES[kind] if bounded else "continuous",
    )
    ElementTree.SubElement(element, "parent", link=joint.parent or "")
    ElementTree.SubElement(element, "child", link=joint.child)
    _require(joint, "placement", np.isfinite(joint.placement), "finite numbers")
    _add_origin(element, joint.placement[:3, 3], _roll_pitch_yaw(joint.placement[:3, :3]))
    if kind is Planar:
        ElementTree.SubElement(element, "axis", xyz="0 0 1")
    if kind in (Fixed, FreeFlyer, Planar):
        return
    kind_with_axis: Any = joint.kind
    ElementTree.SubElement(element, "axis", xyz=as_text(*np.asarray(kind_with_axis.axis)))
    if limits:
        ElementTree.SubElement(element, "limit", limits)
    for field in ("damping", "friction"):
        values = np.asarray(getattr(joint, field))
        _require(joint, field, np.isfinite(values) & (values >= 0), "a finite number of 0 or more")
    damping, friction = (np.max(x, initial=0.0) for x in (joint.damping, joint.friction))
    if damping or friction:
        dynamics = {"damping": as_text(damping), "friction": as_text(friction)}
        ElementTree.SubElement(element, "dynamics", dynamics)
    if joint.mimic is not None:
        mimic = _linear(joint)
        ElementTree.SubElement(
            element,
            "mimic",
            joint=mimic.joint,
            multiplier=as_text(mimic.multiplier),
            offset=as_text(mimic.offset),
        )


def _with_implied_limits(joint: JointSpec, by_name: dict[str, JointSpec]) -> JointSpec:
    """A joint that mimics another, with the limits that its leader implies; else the joint."""
    if joint.mimic is None:
        return joint
    mimic = _linear(joint)
    leader = by_name[mimic.joint]
    scale = mimic.multiplier
    if scale == 0:
        ends = np.full(2, mimic.offset)
    else:
        ends = np.sort([scale * _number(x) + mimic.offset for x in (leader.lower, leader.upper)])
    velocity = abs(scale) * _number(leader.velocity_limit) if scale else 0.0
    return dataclasses.replace(
        joint,
        lower=ends[0],
        upper=ends[1],
        velocity_limit=velocity,
        effort_limit=_number(leader.effort_limit),
    )


def _linear(joint: JointSpec) -> Mimic:
    if isinstance(joint.mimic, Mimic):
        return joint.mimic
    raise ModelError(
        f"joint {joint.name!r}: it is a function of other joints (Follow), and URDF has only "
        "linear mimic joints",
        joint=joint.name,
    )


def _limits(joint: JointSpec, unlimited: float | None, faults: _Faults) -> dict[str, str]:
    """The attributes of `<limit>`; no attribute "lower" means a joint without position limits."""
    for field in ("lower", "upper"):
        _require(joint, field, ~np.isnan(getattr(joint, field)), "a number")
    for field in ("effort_limit", "velocity_limit"):
        _require(joint, field, np.asarray(getattr(joint, field)) >= 0, "0 or more")
    lower, upper = _number(joint.lower), _number(joint.upper)
    values = {"effort": _number(joint.effort_limit), "velocity": _number(joint.velocity_limit)}
    bounded = np.isfinite(lower) or np.isfinite(upper)
    if bounded:
        values |= {"lower": lower, "upper": upper}
    if type(joint.kind) is Revolute and not bounded:
        values = {name: value for name, value in values.items() if np.isfinite(value)}
    for name, value in values.items():
        if np.isfinite(value):
            continue
        with faults.collected():
            if unlimited is None:
                raise ModelError(
                    f"joint {joint.name!r}: its {name} limit is {value}, and URDF needs a finite "
                    "number; set the limit, or give one by the argument `unlimited`",
                    joint=joint.name,
                    argument="unlimited",
                )
            values[name] = float(np.copysign(unlimited, value))
    if "lower" in values and values["lower"] > values["upper"]:
        raise ModelError(
            f"joint {joint.name!r}: the lower position limit {values['lower']:g} is above the "
            f"upper position limit {values['upper']:g}, with unlimited={unlimited}",
            joint=joint.name,
        )
    return {name: as_text(value) for name, value in values.items()}


def _refuse_limits_and_forces(joint: JointSpec, faults: _Faults) -> None:
    """Collect an error for each limit, damping, friction and armature of the joint.

    URDF can state none of them for this joint.
    """
    for field in ("lower", "upper", "velocity_limit", "effort_limit"):
        with faults.collected():
            if np.any(np.isfinite(np.asarray(getattr(joint, field), float))):
                _refuse(joint, field)
    for field in ("damping", "friction", "armature"):
        _check_zero(joint, field, faults)


def _check_zero(joint: JointSpec, field: str, faults: _Faults) -> None:
    with faults.collected():
        if np.any(getattr(joint, field)):
            _refuse(joint, field)


def _refuse(joint: JointSpec, field: str) -> None:
    raise ModelError(
        f"joint {joint.name!r} of the kind {type(joint.kind).__name__}: its {field} is "
        f"{np.asarray(getattr(joint, field)).tolist()}, which URDF cannot state",
        joint=joint.name,
    )


def _require(joint: JointSpec, field: str, holds: Any, expected: str) -> None:
    """Raise ModelError unless the condition holds for each entry of a field of the joint."""
    if not np.all(holds):
        raise ModelError(
            f"joint {joint.name!r}: its {field} is {np.asarray(getattr(joint, field)).tolist()}, "
            f"expected {expected}",
            joint=joint.name,
        )


def _check_name(name: str, what: str) -> None:
    wrong = None
    if not name.strip():
        wrong = "is empty"
    elif NOT_XML.search(name):
        wrong = "has a character that XML cannot hold"
    elif "${" in name or "$(" in name:
        wrong = "is an xacro expression for load_urdf"
    if wrong is not None:
        link, joint = (name if what == kind else None for kind in ("link", "joint"))
        raise ModelError(f"{what} {name!r}: its name {wrong}", link=link, joint=joint)


def _number(x: Any) -> float:
    """The value of an array of one entry."""
    return float(np.asarray(x).reshape(()))


def _add_origin(parent: ElementTree.Element, xyz: np.ndarray, rpy: np.ndarray) -> None:
    if np.any(xyz) or np.any(rpy):
        ElementTree.SubElement(parent, "origin", xyz=as_text(*xyz), rpy=as_text(*rpy))


def _roll_pitch_yaw(R: np.ndarray) -> np.ndarray:
    """Angles about fixed axes with `R = Rz(yaw) Ry(pitch) Rx(roll)`, accurate for every pitch.

    At a pitch of 90 degrees, R determines only the sum or the difference of roll and yaw. So the
    roll is computed from `Rz(-yaw) R`, where yaw is the rounded result.
    """
    yaw = np.arctan2(R[1, 0], R[0, 0])
    c, s = np.cos(yaw), np.sin(yaw)
    pitch = np.arctan2(-R[2, 0], c * R[0, 0] + s * R[1, 0])
    roll = np.arctan2(s * R[0, 2] - c * R[1, 2], c * R[1, 1] - s * R[0, 1])
    return np.array([roll, pitch, yaw])
