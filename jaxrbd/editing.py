"""New robots from old: lock joints, append one robot to another.

A model is taken back to its description, which is edited and built again. That is work in numpy,
done once and outside of any JAX transformation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .builder import build_model
from .description import Fixed, JointSpec, Link, Mimic, Numbers
from .errors import ArgumentError
from .joints import Joint
from .model import Model
from .spatial import pose_from_matrix, pose_matrix


def describe(model: Model) -> tuple[list[Link], list[JointSpec]]:
    """The links and joints of which `build_model` makes this model again.

    A link that was welded to another comes back as a massless link on a Fixed joint: its inertia
    is with the body that carries it.
    """
    placements = np.array(pose_matrix(model.placement), float)
    frames = np.array(pose_matrix(model.frame_pose), float)
    names = {-1: None, **dict(enumerate(model.body_names))}
    links = [Link(name, I) for name, I in zip(model.body_names, np.array(model.inertia, float))]
    joints = [
        JointSpec(
            name=model.joint_names[i],
            kind=_joint(model, i),
            parent=names[model.topology.parents[i]],
            child=model.body_names[i],
            placement=placements[i],
            mimic=_mimic(model, i),
            **_numbers(model, i),
        )
        for i in range(model.nb)
    ]
    for name, body, pose in zip(model.frame_names, model.frame_bodies, frames):
        if name not in model.body_names:
            links.append(Link(name))
            joints.append(JointSpec(f"{name} (welded)", Fixed(), names[body], name, pose))
    return links, joints


def lock_joints(model: Model, configuration: Mapping[str, Numbers | Array]) -> Model:
    """The robot with some joints welded, each at the configuration given for it.

    `configuration`: joint name to its coordinates, a number or (nq of the joint,), in rad or m.
    The links stay as frames. Joints that mimic a locked one are welded where that puts them.
    Raises ArgumentError for an unknown joint, one that mimics another, or a wrong size.
    """
    links, joints = describe(model)
    at: dict[str, np.ndarray] = {}
    for name, given in configuration.items():
        if name not in model.joint_names:
            raise ArgumentError(f"no joint {name!r} in {model!r}; joints: {model.joint_names}")
        body = model.joint_names.index(name)
        if (mimic := joints[body].mimic) is not None:
            raise ArgumentError(f"joint {name!r} mimics {mimic.joint!r}: lock that one")
        at[name] = _coordinates(name, model.topology.nqs[body], given)
    for body, joint in enumerate(joints[: model.nb]):
        if (mimic := joint.mimic) is not None and mimic.joint in at:
            at[joint.name] = mimic.multiplier * at[mimic.joint] + mimic.offset
        if joint.name in at:
            joints[body] = _welded(joint, _joint(model, body), at[joint.name])
    return _rebuild(model, links, joints)


def append_model(
    model: Model,
    other: Model,
    frame: str | None = None,
    placement: np.ndarray | None = None,
    prefix: str = "",
) -> Model:
    """The robot with another one mounted on one of its frames.

    - `frame`: the frame of `model` that `other`'s world is welded to; None is the world;
    - `placement`: (4, 4) pose of that world in the frame (default: the identity);
    - `prefix`: put before every joint and link name of `other`, to keep names apart.

    Gravity is `model`'s. Raises ArgumentError for an unknown frame, ModelError where names clash.
    """
    if frame is not None and frame not in model.frame_names:
        raise ArgumentError(f"no frame {frame!r} in {model!r}; frames: {model.frame_names}")
    mount = np.eye(4) if placement is None else np.asarray(placement, dtype=float)
    links, joints = describe(model)
    other_links, other_joints = describe(other)
    links += [dataclasses.replace(link, name=prefix + link.name) for link in other_links]
    for joint in other_joints:
        mimic, parent = joint.mimic, joint.parent
        joints.append(
            dataclasses.replace(
                joint,
                name=prefix + joint.name,
                parent=frame if parent is None else prefix + parent,
                child=prefix + joint.child,
                placement=mount @ joint.placement if parent is None else joint.placement,
                mimic=mimic and dataclasses.replace(mimic, joint=prefix + mimic.joint),
            )
        )
    return _rebuild(model, links, joints)


def _rebuild(model: Model, links: list[Link], joints: list[JointSpec]) -> Model:
    gravity = np.array(model.gravity, float)
    return build_model(links, joints, gravity=gravity, name=model.name).astype(model.dtype)


def _joint(model: Model, body: int) -> Joint:
    """The joint of one body, on its own."""
    for joint, bodies in zip(model.joints, model.joint_bodies):
        if body in bodies:
            return jax.tree.map(lambda x: np.array(x[bodies.index(body)], float), joint)
    raise AssertionError(f"body {body} has no joint")


def _mimic(model: Model, body: int) -> Mimic | None:
    coupling, dof = model.coupling, model.topology.v_start[body]
    if coupling is None or dof in coupling.v_independent:
        return None
    leader = coupling.v_independent[coupling.v_source[dof]]
    q = model.topology.q_start[body]
    return Mimic(
        joint=model.joint_names[model.topology.dof_body[leader]],
        multiplier=float(coupling.q_multiplier[q]),
        offset=float(coupling.q_offset[q]),
    )


def _numbers(model: Model, body: int) -> dict[str, np.ndarray]:
    """A joint's limits, where it has coordinates of its own, and its dissipation and armature."""
    topology = model.topology
    q = topology.q_start[body] + np.arange(topology.nqs[body])
    v = topology.v_start[body] + np.arange(topology.nvs[body])
    of_tree = {"damping": model.damping, "friction": model.friction, "armature": model.armature}
    numbers = {field: np.array(x, float)[v] for field, x in of_tree.items()}
    if model.coupling is not None:
        if v[0] not in model.coupling.v_independent:
            return numbers
        q = np.array([model.coupling.q_source[i] for i in q])
        v = np.array([model.coupling.v_source[i] for i in v])
    numbers["lower"] = np.array(model.lower_position_limit, float)[q]
    numbers["upper"] = np.array(model.upper_position_limit, float)[q]
    numbers["velocity_limit"] = np.array(model.velocity_limit, float)[v]
    numbers["effort_limit"] = np.array(model.effort_limit, float)[v]
    return numbers


def _coordinates(name: str, nq: int, given: Numbers | Array) -> np.ndarray:
    q = np.atleast_1d(np.asarray(given, dtype=float))
    if q.shape != (nq,):
        raise ArgumentError(
            f"joint {name!r}: configuration has shape {np.shape(given)}, expected ({nq},)"
        )
    return q


def _welded(joint: JointSpec, kind: Joint, q: np.ndarray) -> JointSpec:
    """The joint frozen at its configuration: the pose of its child becomes the placement."""
    placement = pose_from_matrix(jnp.asarray(joint.placement))
    child = pose_matrix(kind.pose(placement, jnp.asarray(q)))
    return JointSpec(joint.name, Fixed(), joint.parent, joint.child, np.array(child, float))
