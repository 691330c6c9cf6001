"""A conformance robot as MJCF text, and its state in MuJoCo's conventions."""

from __future__ import annotations

from xml.etree import ElementTree

import jax.numpy as jnp
import numpy as np

from jaxrbd import so3
from jaxrbd.conformance import Robot, Tree, about_com

# It has no planar and no helical joint, its mimic is a soft constraint, and links must have mass.
MJCF_KINDS = (
    "revolute",
    "prismatic",
    "spherical",
    "translation",
    "free_flyer",
    "universal",
    "euler",
)
STAGES = {
    "Revolute": "hinge",
    "Prismatic": "slide",
    "Spherical": "ball",
    "Translation": "slide",
    "FreeFlyer": "free",
}


def expressible(tree: Tree) -> bool:
    """Whether MJCF has the tree's joints; a free joint hangs on the world alone."""
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
        quaternion = np.roll(_quaternion(H[:3, :3]), 1)
        body = ElementTree.SubElement(elements[joint.parent], "body", name=joint.child)
        body.attrib.update(pos=_text(H[:3, 3]), quat=_text(quaternion))
        elements[joint.child] = body
        for kind, axis in stages(joint):
            attributes = {"type": kind, "armature": _text([np.max(joint.armature)])}
            if kind == "free":
                ElementTree.SubElement(body, "freejoint")
                continue
            if axis is not None:
                attributes["axis"] = _text(axis)
            ElementTree.SubElement(body, "joint", attributes)
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
    """The MJCF joints that make up a joint: type and axis."""
    found = []
    for stage in getattr(joint.kind, "stages", (joint.kind,)):
        kind = type(stage).__name__
        axes = np.eye(3) if kind == "Translation" else [getattr(stage, "axis", None)]
        found += [(STAGES[kind], axis) for axis in axes]
    return found


def _quaternion(R: np.ndarray) -> np.ndarray:
    """A unit quaternion xyzw of a rotation matrix, in numpy: an eigenvector of 4 q q^T."""
    (a, b, c), (d, e, f), (g, h, i) = R
    outer = [
        [1 + a - e - i, d + b, g + c, h - f],
        [d + b, 1 - a + e - i, h + f, c - g],
        [g + c, h + f, 1 - a - e + i, d - b],
        [h - f, c - g, d - b, 1 + a + e + i],
    ]
    return np.linalg.eigh(np.array(outer))[1][:, -1]


def _text(numbers) -> str:
    return " ".join(repr(float(x)) for x in numbers)


class Conversion:
    """q, v, a and tau between jaxrbd's conventions and MuJoCo's, for a robot.

    MuJoCo's quaternions are wxyz. A free joint's pose is in the world and leaves its body's
    placement out; its velocity is [p_dot in the world's axes; w in the body's], so that
    `a_mj = [R (a + w x v); alpha]`. A force is the transpose of a velocity.
    """

    def __init__(self, robot: Robot):
        self.q, self.v = [], []  # (jaxrbd's entries, kind, placement)
        at_q = at_v = 0
        for joint in robot.joints:
            for kind, _ in stages(joint):
                nq, nv = {"ball": (4, 3), "free": (7, 6)}.get(kind, (1, 1))
                self.q.append((slice(at_q, at_q + nq), slice(at_v, at_v + nv), kind, joint))
                at_q, at_v = at_q + nq, at_v + nv

    def position(self, q):
        """MuJoCo's qpos of q."""
        parts = []
        for own, _, kind, joint in self.q:
            x = q[own]
            if kind == "ball":
                x = jnp.roll(x, 1)
            if kind == "free":
                R0, p0 = (jnp.asarray(y, q.dtype) for y in _split(joint.placement))
                turn = jnp.asarray(_quaternion(joint.placement[:3, :3]), q.dtype)
                p = p0 + jnp.matmul(R0, x[:3], precision="highest")
                x = jnp.concatenate([p, jnp.roll(so3.quaternion_multiply(turn, x[3:]), 1)])
            parts.append(x)
        return jnp.concatenate(parts)

    def position_back(self, qpos):
        """q of MuJoCo's qpos."""
        parts = []
        for own, _, kind, joint in self.q:
            x = qpos[own]
            if kind == "ball":
                x = jnp.roll(x, -1)
            if kind == "free":
                R0, p0 = (jnp.asarray(y, qpos.dtype) for y in _split(joint.placement))
                turn = jnp.asarray(_quaternion(joint.placement[:3, :3].T), qpos.dtype)
                p = jnp.matmul(R0.T, x[:3] - p0, precision="highest")
                x = jnp.concatenate([p, so3.quaternion_multiply(turn, jnp.roll(x[3:], -1))])
            parts.append(x)
        return jnp.concatenate(parts)

    def motion(self, q, v):
        """MuJoCo's qvel of v, and its generalised force of tau: they transform alike."""
        return self._turn(q, v, forth=True)

    def motion_back(self, q, v):
        """The inverse of `motion`."""
        return self._turn(q, v, forth=False)

    def acceleration(self, q, v, a):
        """MuJoCo's qacc of a."""
        return self.motion(q, a + self._transport(v))

    def acceleration_back(self, q, v, a):
        """a of MuJoCo's qacc."""
        return self.motion_back(q, a) - self._transport(v)

    def _transport(self, v):
        out = jnp.zeros_like(v)
        for _, own, kind, _ in self.q:
            if kind == "free":
                x = v[own]
                out = out.at[own.start : own.start + 3].set(jnp.cross(x[3:], x[:3]))
        return out

    def _turn(self, q, v, forth):
        out = v
        for at_q, own, kind, joint in self.q:
            if kind == "free":
                R0 = jnp.asarray(joint.placement[:3, :3], q.dtype)
                R = jnp.matmul(R0, so3.quaternion_to_matrix(q[at_q][3:]), precision="highest")
                R = R if forth else R.T
                linear = slice(own.start, own.start + 3)
                out = out.at[linear].set(jnp.matmul(R, v[linear], precision="highest"))
        return out


def _split(H: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return H[:3, :3], H[:3, 3]
