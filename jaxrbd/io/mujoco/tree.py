"""Bodies, joints and sites of a compiled MuJoCo model as links and joints.

The frame of a link is the frame of MuJoCo's body. The frame of a joint is at the anchor of the
joint. If the anchor of the last joint of a body is not at the origin of the body, then this joint
moves a massless link at the anchor, and the link of the body is welded to this massless link.
Several joints of one body become a chain of joints with massless links between them.

MuJoCo's coordinate of a hinge or a slide is `qpos0` in the pose that the file states. The placement
of the joint includes the motion by `-qpos0`, so the coordinates of both libraries are equal.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from ...joints import FreeFlyer, Joint, Prismatic, Revolute, Spherical
from ...model import Fixed, JointSpec, Link, Mimic, link_inertia
from ...model.description import Follow
from .dof_parameters import armature_of_dofs, damped_along_world_axes, damping_of_dofs
from .shapes import read_shapes
from .source import Source, fresh_name, translation


class Tree(NamedTuple):
    """Links and joints for `build_model`.

    `sites` maps the name of a site to its frame, and `mocap` the name of a mocap body to the frames
    of the bodies and sites that it carries.
    """

    links: list[Link]
    joints: list[JointSpec]
    sites: dict[str, str]
    mocap: dict[str, tuple[str, ...]]


def read_tree(source: Source, followers: dict[str, Mimic | Follow]) -> Tree:
    """The links, joints and sites. `followers`: the rule of each joint that follows another one."""
    m = source.m
    tree = Tree([], [], {}, {})
    link_names, joint_names = {*source.bodies[1:]}, {*source.joints}  # the names in use
    armature, damping = armature_of_dofs(source), damping_of_dofs(source)
    for body in range(1, m.nbody):
        name, parent = source.bodies[body], _link(source, int(m.body_parentid[body]))
        placement = source.pose(m.body_pos[body], m.body_quat[body])  # in the link `parent`
        anchor = np.zeros(3)
        first, count = int(m.body_jntadr[body]), int(m.body_jntnum[body])
        if count and source.carriers[body]:
            mocap = source.bodies[source.carriers[body]]
            source.omit(f"body {mocap!r}: mocap, and it carries the moving body {name!r}")
        for joint in range(first, first + count):
            kind, motion = _kind(source, joint)
            if source.is_free(joint):  # MuJoCo ignores the position of the body
                placement = np.eye(4)
            else:
                placement = placement @ translation(m.jnt_pos[joint] - anchor) @ motion
                anchor = m.jnt_pos[joint].copy()
            spec = _joint(source, joint, kind, armature, damping)
            last = joint == first + count - 1
            if last and not anchor.any():
                child = name
            else:
                child = fresh_name(f"{spec.name}.anchor", link_names)
                tree.links.append(Link(child))
            tree.joints.append(
                dataclasses.replace(
                    spec,
                    parent=parent,
                    child=child,
                    placement=placement,
                    mimic=followers.get(spec.name),
                )
            )
            parent, placement = child, np.eye(4)
        if parent != name:
            weld = fresh_name(f"{name}.weld", joint_names)
            placement = placement @ translation(-anchor)
            tree.joints.append(JointSpec(weld, Fixed(), parent, name, placement))
        inertia = link_inertia(
            m.body_mass[body],
            m.body_ipos[body],
            np.diag(m.body_inertia[body]),
            source.rotation(m.body_iquat[body]),
        )
        tree.links.append(Link(name, inertia, *read_shapes(source, body)))
    for site, name in enumerate(source.sites):
        frame = name if name not in link_names else f"{name}.site"
        frame = tree.sites[name] = fresh_name(frame, link_names)
        placement = source.pose(m.site_pos[site], m.site_quat[site])
        weld = fresh_name(f"{frame}.weld", joint_names)
        parent = _link(source, int(m.site_bodyid[site]))
        tree.links.append(Link(frame))
        tree.joints.append(JointSpec(weld, Fixed(), parent, frame, placement))
    return tree._replace(mocap=_carried_frames(source, tree.sites))


def _carried_frames(source: Source, sites: dict[str, str]) -> dict[str, tuple[str, ...]]:
    """For each mocap body, the frames of the bodies and sites that it carries, without its own."""
    frames = [*source.bodies, *(sites[name] for name in source.sites)]
    carriers = np.append(source.carriers, source.carriers[source.m.site_bodyid])
    found = {}
    for mocap in np.flatnonzero(source.m.body_mocapid >= 0).tolist():
        carried = np.flatnonzero(carriers == mocap).tolist()
        found[source.bodies[mocap]] = tuple(frames[i] for i in carried if i != mocap)
    return found


def _link(source: Source, body: int) -> str | None:
    return source.bodies[body] if body > 0 else None


def _kind(source: Source, joint: int) -> tuple[Joint, np.ndarray]:
    """The kind of a joint, and the pose (4, 4) of a hinge or a slide after a motion by `-qpos0`.

    For other joints the pose is the identity.
    """
    m, kind = source.m, source.kind("Joint", source.m.jnt_type[joint])
    axis = m.jnt_axis[joint].copy()
    reference = m.qpos0[m.jnt_qposadr[joint]]
    if kind == "hinge":
        quaternion = np.zeros(4)
        source.mj.mju_axisAngle2Quat(quaternion, axis, -reference)
        return Revolute(axis), source.pose(np.zeros(3), quaternion)
    if kind == "slide":
        return Prismatic(axis), translation(-reference * axis)
    return Spherical() if kind == "ball" else FreeFlyer(), np.eye(4)


def _joint(
    source: Source, joint: int, kind: Joint, armature: np.ndarray, damping: np.ndarray
) -> JointSpec:
    """The joint with its parameters, but without its links and its placement.

    `armature`, `damping`: (nv,), of all dofs.
    """
    m, name = source.m, source.joints[joint]
    dofs = slice(m.jnt_dofadr[joint], m.jnt_dofadr[joint] + kind.nv)
    armature, damping = armature[dofs], damping[dofs]
    friction = np.array(m.dof_frictionloss[dofs])
    if source.disabled("FRICTIONLOSS", "CONSTRAINT"):
        friction[:] = 0
    if source.is_free(joint):
        # The linear velocities of a free joint have world axes in MuJoCo, body axes in jaxrbd.
        if np.ptp(armature[:3]):
            source.omit(f"joint {name!r}: different armature along the axes of a free joint")
            armature = np.concatenate([np.zeros(3), armature[3:]])
        if friction[:3].any():
            source.omit(f"joint {name!r}: frictionloss of the translation of a free joint")
            friction[:3] = 0
        if damped_along_world_axes(source, joint):  # then it is a passive force
            damping = np.concatenate([np.zeros(3), damping[3:]])
    limits = {}
    # `read_tendons` reads the range of a ball joint, as the limit of a `RotationAngle`.
    limited = m.jnt_limited[joint] and kind.nv == 1
    if limited and not source.disabled("LIMIT", "CONSTRAINT"):
        limits["lower"], limits["upper"] = source.limits("jnt", joint, f"joint {name!r}")
    if m.jnt_actfrclimited[joint] and kind.nv == 1:
        limits["effort_limit"] = float(np.max(np.abs(m.jnt_actfrcrange[joint])))
    return JointSpec(
        name, kind, None, "", damping=damping, friction=friction, armature=armature, **limits
    )
