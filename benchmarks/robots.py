"""The robots of the benchmark, written in the file format of each library.

jaxrbd reads a robot and welds its fixed joints. Geometry, limits, damping and armature are omitted.
The result is written as URDF, MJCF, SDF and JSON. The names of joints and links contain their
indices in depth-first order. So every library has the same order of q and v, whether it sorts the
joints by name or depth-first.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import itertools
import json
import pathlib
import warnings
from xml.etree import ElementTree

import numpy as np

import jaxrbd
from jaxrbd import joints
from jaxrbd.conformance import about_com
from jaxrbd.conformance.urdf import _inertial, _origin, _rpy, _text

from .conformance.mjcf import mjcf
from .conformance.sdf import sdf

GRAVITY = (0.0, 0.0, -9.81)
# Robots of example-robot-data: the file, whether the base floats, the joint to lock at zero.
FILES = {
    "panda": ("panda_description/urdf/panda.urdf", False, "panda_finger_joint1"),
    "hyq": ("hyq_description/robots/hyq_no_sensors.urdf", True, ""),
    "g1": ("g1_description/urdf/g1_29dof_rev_1_0.urdf", True, ""),
    "talos": ("talos_data/robots/talos_reduced.urdf", True, ""),
}
NAMES = ("arm7", "panda", "hyq", "g1", "talos", "chain8", "chain32", "chain128")


@dataclasses.dataclass(frozen=True)
class Robot:
    """A robot as links and joints, in the order of jaxrbd: joint i moves link i.

    `frame` is the index of the link that is farthest from the root, by the number of joints. The
    job "jacobian" computes the Jacobian of this link.
    """

    name: str
    links: tuple[jaxrbd.model.Link, ...]
    joints: tuple[jaxrbd.model.JointSpec, ...]
    gravity: tuple[float, float, float] = GRAVITY

    @property
    def floating(self) -> bool:
        """Whether the first joint is a free-flyer."""
        return isinstance(self.joints[0].kind, joints.FreeFlyer)

    @property
    def nq(self) -> int:
        return len(self.joints) + 6 * self.floating

    @property
    def nv(self) -> int:
        return len(self.joints) + 5 * self.floating

    @property
    def parents(self) -> list[int]:
        """The index of the parent of each link; -1 is the world."""
        names = {link.name: i for i, link in enumerate(self.links)}
        return [names.get(joint.parent, -1) for joint in self.joints]

    @property
    def frame(self) -> int:
        depth: list[int] = []
        for parent in self.parents:
            depth.append(depth[parent] + 1 if parent >= 0 else 0)
        return int(np.argmax(depth))


def make(name: str) -> Robot:
    """The robot with this name. Raises FileNotFoundError if example-robot-data is missing."""
    if name not in FILES:
        return plain(name, bundled(name))
    file, floating, locked = FILES[name]
    root_joint = "free_flyer" if floating else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jaxrbd.InertiaWarning)
        model = jaxrbd.load_urdf(file_of("example-robot-data", file), root_joint=root_joint)
        if locked:
            model = jaxrbd.model.lock_joints(model, {locked: 0.0})
    return plain(name, model)


def plain(name: str, model: jaxrbd.Model) -> Robot:
    """The moving links and the joints of a model, named by index."""
    links, specs = jaxrbd.model.describe(model)
    links, specs = links[: model.nb], specs[: model.nb]
    names = {link.name: f"b{i:03}" for i, link in enumerate(links)}
    renamed = [jaxrbd.model.Link(names[x.name], _physical(x.inertia)) for x in links]
    moving = [
        jaxrbd.model.JointSpec(
            f"j{i:03}", x.kind, x.parent and names[x.parent], names[x.child], x.placement
        )
        for i, x in enumerate(specs)
    ]
    return Robot(name, tuple(renamed), tuple(moving))


def bundled(name: str) -> jaxrbd.Model:
    """A bundled robot, or for the name `chainN` a chain of N rods of 0.3 m.

    The axes of the hinges of a chain are x, y and z in turn.
    """
    count = name.removeprefix("chain")
    if not count.isdigit():
        return jaxrbd.load_robot(name)
    rod = jaxrbd.model.link_inertia(0.5, (0.02, 0.0, 0.15), np.diag([0.004, 0.005, 0.001]))
    names = [None, *(f"link{i:03}" for i in range(int(count)))]
    specs = []
    for i, (parent, child) in enumerate(itertools.pairwise(names)):
        place = jaxrbd.model.placement_matrix((0.05 * (-1) ** i, 0, 0.3) if i else (0, 0, 0))
        hinge = joints.Revolute(np.eye(3)[i % 3])
        specs.append(jaxrbd.model.JointSpec(f"joint{i:03}", hinge, parent, child, place))
    return jaxrbd.build_model([jaxrbd.model.Link(name, rod) for name in names[1:]], specs)


def _physical(inertia: np.ndarray) -> np.ndarray:
    """The inertia, increased until its principal moments satisfy the triangle inequality.

    MuJoCo refuses other inertias, which no rigid body can have.
    """
    mass, com, I = about_com(inertia)
    low, middle, high = np.linalg.eigvalsh(I)
    more = max(0.0, 1.0001 * high - middle - low)
    return jaxrbd.model.link_inertia(mass, com, I + more * np.eye(3))


def file_of(package: str, end: str) -> pathlib.Path:
    """A file of an installed package, by the end of its path.

    Raises FileNotFoundError if there is none.
    """
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.as_posix().endswith(f"/{end}"):
            return pathlib.Path(str(file.locate()))
    raise FileNotFoundError(f"{end}: pip install {package}")


# --------------------------------------------------------------------------- files of the libraries


def write(robot: Robot, folder: pathlib.Path) -> None:
    """Write the files of a robot: robot.urdf, robot.xml (MJCF), robot.sdf and robot.json."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "robot.urdf").write_text(urdf(robot))
    (folder / "robot.xml").write_text(mjcf(robot))
    (folder / "robot.sdf").write_text(sdf(robot, robot.floating))
    (folder / "robot.json").write_text(json.dumps(numbers(robot)))


def numbers(robot: Robot) -> dict:
    """The content of robot.json, which every worker reads.

    The loop of Pinocchio builds its model from these values.
    """
    rows = []
    for link, joint, parent in zip(robot.links, robot.joints, robot.parents):
        mass, com, I = about_com(link.inertia)
        kind = type(joint.kind).__name__
        rows.append(
            {
                "name": joint.name,
                "link": link.name,
                "parent": parent,
                "kind": "free_flyer" if kind == "FreeFlyer" else kind.lower(),
                "axis": _axis(joint).tolist(),
                "R": joint.placement[:3, :3].tolist(),
                "p": joint.placement[:3, 3].tolist(),
                "mass": mass,
                "com": com.tolist(),
                "inertia": I.tolist(),
            }
        )
    return {
        "name": robot.name,
        "nq": robot.nq,
        "nv": robot.nv,
        "floating": robot.floating,
        "frame": robot.frame,
        "joints": rows,
    }


def _axis(joint: jaxrbd.model.JointSpec) -> np.ndarray:
    axis = np.asarray(getattr(joint.kind, "axis", (0.0, 0.0, 0.0)), float)
    return axis / (np.linalg.norm(axis) or 1.0)


def urdf(robot: Robot) -> str:
    """The robot as URDF text. If the base does not float, the root link is `world`."""
    root = ElementTree.Element("robot", name=robot.name)
    if not robot.floating:
        ElementTree.SubElement(root, "link", name="world")
    for link in robot.links:
        _inertial(ElementTree.SubElement(root, "link", name=link.name), link.inertia)
    for joint in robot.joints[robot.floating :]:
        kind = type(joint.kind).__name__.lower()
        element = ElementTree.SubElement(root, "joint", name=joint.name, type=kind)
        ElementTree.SubElement(element, "parent", link=joint.parent or "world")
        ElementTree.SubElement(element, "child", link=joint.child)
        _origin(element, joint.placement[:3, 3], _rpy(joint.placement[:3, :3]))
        ElementTree.SubElement(element, "axis", xyz=_text(_axis(joint)))
        limits = {"lower": "-10", "upper": "10", "effort": "1000", "velocity": "1000"}
        ElementTree.SubElement(element, "limit", limits)
    return ElementTree.tostring(root, encoding="unicode")
