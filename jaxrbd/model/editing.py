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

from ..errors import ArgumentError
from ..joints import Joint
from ..spatial import pose_from_matrix, pose_matrix
from .arguments import robot, unknown_name
from .builder import assemble
from .checks import checked
from .description import Fixed, Follow, JointSpec, Link, Mimic, Numbers
from .model import Model


def describe(model: Model) -> tuple[list[Link], list[JointSpec]]:
    """The links and joints of which `build_model` makes this model again.

    A link that was welded to another comes back as a massless link on a Fixed joint: its inertia
    is with the body that carries it.
    """
    placements = np.array(pose_matrix(robot(model).placement), float)
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
    The links stay as frames. Joints that follow locked ones are welded where those put them. The
    dtype, gravity and `dissipative` are the model's.
    Raises ArgumentError where `configuration` is no mapping, for an unknown joint, one that follows
    others, one of several that another joint follows, a wrong size or a number that is not finite.
    """
    robot(model)
    if not isinstance(configuration, Mapping):
        raise ArgumentError(
            f"configuration is a {type(configuration).__name__!r}, expected a mapping from joint "
            f"names to coordinates, such as {{{next(iter(model.joint_names), 'joint')!r}: 0.0}}"
        )
    links, joints = describe(model)
    at: dict[str, np.ndarray] = {}
    for name, given in configuration.items():
        if name not in model.joint_names:
            raise ArgumentError(unknown_name(model, "joint", str(name), model.joint_names))
        body = model.joint_names.index(name)
        if (mimic := joints[body].mimic) is not None:
            raise ArgumentError(f"joint {name!r} follows {_leaders(mimic)}: lock what it follows")
        at[name] = _coordinates(name, model.topology.nqs[body], given)
    for body, joint in enumerate(joints[: model.nb]):
        if isinstance(mimic := joint.mimic, Mimic) and mimic.joint in at:
            at[joint.name] = mimic.multiplier * at[mimic.joint] + mimic.offset
        if isinstance(mimic, Follow) and at.keys() & set(mimic.joints):
            at[joint.name] = _followed(joint.name, mimic, at)
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

    Gravity, dtype and name are `model`'s. Raises ArgumentError for an unknown frame, for a
    placement of a wrong shape, and where one robot has its dissipation on and the other has not,
    because the result can only have it on for all joints or for none. Raises ModelError where names
    clash.
    """
    robot(model)
    robot(other, "the second argument")
    if frame is not None and frame not in model.frame_names:
        raise ArgumentError(unknown_name(model, "frame", str(frame), model.frame_names))
    if model.dissipative != other.dissipative:
        on, off = ("model", "other") if model.dissipative else ("other", "model")
        raise ArgumentError(
            f"{on} has its dissipation on and {off} has it off, expected the same of both: see "
            f"Model.with_dissipation"
        )
    mount = np.eye(4) if placement is None else np.asarray(placement, dtype=float)
    if mount.shape != (4, 4):
        raise ArgumentError(f"placement has shape {mount.shape}, expected (4, 4)")
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
                mimic=_renamed(mimic, prefix),
            )
        )
    return _rebuild(model, links, joints)


def _rebuild(model: Model, links: list[Link], joints: list[JointSpec]) -> Model:
    """The edited robot, with all else as it was. Of its inertias loading has warned already."""
    gravity = np.array(model.gravity, float)
    edited = assemble(links, checked(links, joints), gravity, model.name)
    return edited.astype(model.dtype).with_dissipation(model.dissipative)


def _joint(model: Model, body: int) -> Joint:
    """The joint of one body, on its own."""
    for joint, bodies in zip(model.joints, model.joint_bodies):
        if body in bodies:
            return jax.tree.map(lambda x: np.array(x[bodies.index(body)], float), joint)
    raise AssertionError(f"body {body} has no joint")


def _mimic(model: Model, body: int) -> Mimic | Follow | None:
    coupling, q = model.coupling, int(model.topology.q_start[body])
    if coupling is None or q in coupling.q_independent:
        return None

    def name(independent: int) -> str:
        at = coupling.q_independent[independent]
        return model.joint_names[int(np.searchsorted(model.topology.q_start, at, "right")) - 1]

    for group in coupling.followers:
        if q in group.q:
            k = group.q.index(q)
            function = jax.tree.map(lambda x: np.array(x[k], float), group.function)
            return Follow(tuple(name(i) for i in group.q_leaders[k]), function)
    return Mimic(
        joint=name(coupling.q_source[q]),
        multiplier=float(coupling.q_multiplier[q]),
        offset=float(coupling.q_offset[q]),
    )


def _leaders(mimic: Mimic | Follow) -> list[str]:
    return [mimic.joint] if isinstance(mimic, Mimic) else list(mimic.joints)


def _renamed(mimic: Mimic | Follow | None, prefix: str) -> Mimic | Follow | None:
    if isinstance(mimic, Mimic):
        return dataclasses.replace(mimic, joint=prefix + mimic.joint)
    if isinstance(mimic, Follow):
        return Follow(tuple(prefix + name for name in mimic.joints), mimic.function)
    return None


def _followed(name: str, follow: Follow, at: Mapping[str, np.ndarray]) -> np.ndarray:
    """The coordinate (1,) of a joint, all of whose leaders are locked."""
    if missing := set(follow.joints) - at.keys():
        raise ArgumentError(f"joint {name!r} follows {sorted(missing)} too: lock them as well")
    leaders = jnp.asarray(np.concatenate([at[leader] for leader in follow.joints]))
    return np.array(follow.function(leaders), float).reshape(1)


def _numbers(model: Model, body: int) -> dict[str, np.ndarray]:
    """A joint's limits, where it has coordinates of its own, and its dissipation and armature."""
    topology = model.topology
    q = topology.q_start[body] + np.arange(topology.nqs[body])
    widths = model.joint_nvs
    v = sum(widths[:body]) + np.arange(widths[body])
    of_tree = {"damping": model.damping, "friction": model.friction, "armature": model.armature}
    numbers = {field: np.array(x, float)[v] for field, x in of_tree.items()}
    if model.coupling is not None:
        if q[0] not in model.coupling.q_independent:
            return numbers
        q = np.array([model.coupling.q_source[i] for i in q])
        v = np.array([model.coupling.v_source[i] for i in v])
    numbers["lower"] = np.array(model.lower_position_limit, float)[q]
    numbers["upper"] = np.array(model.upper_position_limit, float)[q]
    numbers["velocity_limit"] = np.array(model.velocity_limit, float)[v]
    numbers["effort_limit"] = np.array(model.effort_limit, float)[v]
    return numbers


def _coordinates(name: str, nq: int, given: Numbers | Array) -> np.ndarray:
    try:
        q = np.atleast_1d(np.asarray(given, dtype=float))
    except (TypeError, ValueError):
        raise ArgumentError(
            f"joint {name!r}: configuration is {given!r}, expected numbers ({nq},)"
        ) from None
    if q.shape != (nq,):
        raise ArgumentError(
            f"joint {name!r}: configuration has shape {np.shape(given)}, expected ({nq},)"
        )
    if not np.all(np.isfinite(q)):
        raise ArgumentError(f"joint {name!r}: configuration {q} is not finite")
    return q


def _welded(joint: JointSpec, kind: Joint, q: np.ndarray) -> JointSpec:
    """The joint frozen at its configuration: the pose of its child becomes the placement."""
    placement = pose_from_matrix(jnp.asarray(joint.placement))
    child = pose_matrix(kind.pose(placement, jnp.asarray(q)))
    return JointSpec(joint.name, Fixed(), joint.parent, joint.child, np.array(child, float))
