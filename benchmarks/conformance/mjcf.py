"""A robot of the conformance suite as MJCF text, and its state in the conventions of MuJoCo."""

from __future__ import annotations

from xml.etree import ElementTree

import jax.numpy as jnp
import numpy as np

from jaxrbd import Model, so3
from jaxrbd.conformance import Robot, Tree, about_com
from jaxrbd.conformance.urdf import _text
from jaxrbd.io.mujoco.coordinates import MujocoCoordinates

# MuJoCo has no planar and no helical joint. Its links need a mass, and its mimic joints are soft.
MJCF_KINDS = ("revolute", "prismatic", "spherical", "translation", "free_flyer")
MJCF_KINDS += ("universal", "euler")
STAGES = {"Revolute": "hinge", "Prismatic": "slide", "Translation": "slide"}
STAGES |= {"Spherical": "ball", "FreeFlyer": "free"}
# The places in qpos of the coordinates of a joint, and the number of its velocities.
COORDINATES = {"free": ((0, 1, 2, 4, 5, 6, 3), 6), "ball": ((1, 2, 3, 0), 3)}


def expressible(tree: Tree) -> bool:
    """Whether MJCF can state the joints of the tree. A free joint must be a child of the world."""
    return tree.kind in MJCF_KINDS and (tree.kind != "free_flyer" or tree.place == "root")


def mjcf(robot: Robot) -> str:
    """The robot as text: no contacts, no limits, no damping."""
    root = ElementTree.Element("mujoco")
    ElementTree.SubElement(root, "compiler", angle="radian", autolimits="false")
    option = ElementTree.SubElement(root, "option", gravity=_text(robot.gravity), timestep="0.5")
    ElementTree.SubElement(option, "flag", contact="disable", constraint="disable")
    elements = {None: ElementTree.SubElement(root, "worldbody")}
    inertias = {link.name: link.inertia for link in robot.links}
    for joint in robot.joints:
        H = joint.placement
        body = ElementTree.SubElement(elements[joint.parent], "body", name=joint.child)
        body.attrib.update(pos=_text(H[:3, 3]), xyaxes=_text([*H[:3, 0], *H[:3, 1]]))
        elements[joint.child] = body
        for kind, axis in stages(joint):
            attributes = {} if axis is None else {"axis": _text(axis)}
            if kind != "free":
                attributes["armature"] = _text([np.max(joint.armature)])
            ElementTree.SubElement(body, "joint", attributes, type=kind)
        mass, com, I = about_com(inertias[joint.child])
        ElementTree.SubElement(
            body,
            "inertial",
            mass=_text([mass]),
            pos=_text(com),
            fullinertia=_text([I[0, 0], I[1, 1], I[2, 2], I[0, 1], I[0, 2], I[1, 2]]),
        )
    return ElementTree.tostring(root, encoding="unicode")


def stages(joint) -> list[tuple[str, np.ndarray | None]]:
    """The joints of MJCF for a joint, each with its type and axis."""
    found = []
    for stage in getattr(joint.kind, "stages", (joint.kind,)):
        kind = type(stage).__name__
        axes = np.eye(3) if kind == "Translation" else [getattr(stage, "axis", None)]
        found += [(STAGES[kind], axis) for axis in axes]
    return found


def _placed(q, places):
    """q after the poses at some places of q are multiplied by matrices (4, 4) from the left."""
    for at, H in places:
        R, p = jnp.asarray(H[:3, :3], q.dtype), H[:3, 3].astype(q.dtype)
        p = p + jnp.matmul(R, q[at : at + 3], precision="highest")
        turn = so3.quaternion_multiply(so3.quaternion_from_matrix(R), q[at + 3 : at + 7])
        q = q.at[at : at + 7].set(jnp.concatenate([p, turn]))
    return q


class Conversion:
    """q, v, a and tau between the conventions of jaxrbd and MuJoCo; `model`: the robot in jaxrbd.

    The map is `jaxrbd.io.load_mjcf(...).coordinates`, with one more difference. In jaxrbd, the pose
    of a free joint is relative to the placement of the joint. In MuJoCo it is the pose in the
    world.
    """

    def __init__(self, robot: Robot, model: Model):
        q_index: list[int] = []
        nv, free, self.places = 0, [], []
        for joint in robot.joints:
            for kind, _ in stages(joint):
                at = len(q_index)
                places, count = COORDINATES.get(kind, ((0,), 1))
                q_index += [at + place for place in places]
                if kind == "free":
                    free.append((at + 3, nv))
                    self.places.append((at, joint.placement))
                nv += count
        self.model = model
        self.map = MujocoCoordinates(tuple(q_index), tuple(range(nv)), tuple(free))

    def in_world(self, q):
        """q with the poses of free joints in the world."""
        return _placed(q, self.places)

    def from_world(self, q):
        """The inverse of `in_world`."""
        return _placed(q, [(at, np.linalg.inv(H)) for at, H in self.places])

    def position(self, q):
        """MuJoCo's qpos of q."""
        return self.map.qpos(self.model, self.in_world(q))

    def position_back(self, qpos):
        """q of MuJoCo's qpos."""
        return self.from_world(self.map.q(self.model, qpos))

    def motion(self, q, v):
        """MuJoCo's qvel of v, and its generalised force of tau: they transform alike."""
        return self.map.qvel(self.model, self.in_world(q), v)

    def motion_back(self, q, v):
        """The inverse of `motion`."""
        return self.map.v(self.model, self.in_world(q), v)

    def acceleration(self, q, v, a):
        """MuJoCo's qacc of a."""
        return self.map.qacc(self.model, self.in_world(q), v, a)

    def acceleration_back(self, q, v, a):
        """a of MuJoCo's qacc."""
        return self.map.a(self.model, self.in_world(q), v, a)
