"""Edit models: lock joints, append one robot to another, add frames.

`lock_joints` and `append_model` edit the description of a model and build the edited model. They
use NumPy, so they do not work inside JAX transformations; `add_frame` and `place_frames` do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from .._math.cast import real_values
from ..errors import ArgumentError
from ..joints import Joint
from ..spatial import Pose, compose, identity_pose, pose_from_matrix, pose_matrix
from .arguments import parameter, pose_parameter, require, robot
from .builder import assemble
from .checks import checked
from .description import Fixed, Follow, JointSpec, Link, Mimic, Numbers, renamed
from .model import Model
from .names import bodies_of_joint, unknown_name


def describe(model: Model) -> tuple[list[Link], list[JointSpec]]:
    """The links and joints from which `build_model` makes this model again.

    `build_model` adds the inertia of a welded link to the body that carries the link. So a welded
    link is returned as a massless link on a Fixed joint, whose name is the name of the link and
    " (welded)". It keeps its geometry. A link that is fixed to the world keeps its inertia too. The
    new model may have the frames in another order: the frame of a link that is welded to a body
    comes after the frames of the body's descendants, and the frames of links that are fixed to the
    world come last.
    """
    placements = np.array(pose_matrix(robot(model).placement), float)
    frames = np.array(pose_matrix(model.frame_pose), float)
    names = {-1: None, **dict(enumerate(model.body_names))}
    links = [Link(name, I) for name, I in zip(model.body_names, np.array(model.inertia, float))]
    visuals, collisions = model.geometry.visuals, model.geometry.collisions
    joints = [
        JointSpec(
            name=model.joint_names[i],
            kind=_joint(model, i),
            parent=names[model.topology.parents[i]],
            child=model.body_names[i],
            placement=placements[i],
            mimic=_mimic(model, i),
            **_parameters(model, i),
        )
        for i in range(model.nb)
    ]
    fixed = iter(np.array(model.fixed_inertia, float))
    taken = {*model.joint_names}
    for name, body, pose in zip(model.frame_names, model.frame_bodies, frames):
        if name not in model.body_names:
            links.append(Link(name, next(fixed) if body < 0 else np.zeros(10)))
            weld = f"{name} (welded)"
            while weld in taken:
                weld += " (welded)"
            taken.add(weld)
            joints.append(JointSpec(weld, Fixed(), names[body], name, pose))
    links = [
        dataclasses.replace(
            link, visuals=visuals.get(link.name, ()), collisions=collisions.get(link.name, ())
        )
        for link in links
    ]
    return links, joints


def lock_joints(model: Model, configuration: Mapping[str, Numbers | Array]) -> Model:
    """The robot with some joints welded at given coordinates.

    `configuration`: a mapping from names in `joint_names` to coordinates, () or (nq of the joint,),
    in rad or m. The links of locked joints remain as frames. A joint that follows locked joints is
    locked too, at the coordinate that its `Mimic` or `Follow` gives. The result has the dtype,
    gravity and `dissipative` of `model`. The frames may have another order, as for `describe`.

    Raises ArgumentError for an unknown joint, for a joint that follows others, for a value that is
    not finite, and if only some leaders of a `Follow` joint are locked.
    """
    robot(model)
    if not isinstance(configuration, Mapping):
        raise ArgumentError(
            f"configuration is a {type(configuration).__name__!r}, expected a mapping from joint "
            f"names to coordinates, such as {{{next(iter(model.joint_names), 'joint')!r}: 0.0}}"
        )
    links, joints = describe(model)
    locked: dict[str, np.ndarray] = {}
    for name, given in configuration.items():
        if name not in model.joint_names:
            raise ArgumentError(unknown_name(model, "joint", name, model.joint_names))
        body = model.joint_names.index(name)
        if (mimic := joints[body].mimic) is not None:
            raise ArgumentError(
                f"joint {name!r} follows {_leaders(mimic)}: lock these joints instead"
            )
        locked[name] = _coordinates(name, _joint(model, body), model.topology.nqs[body], given)
    for body, joint in enumerate(joints[: model.nb]):
        if isinstance(mimic := joint.mimic, Mimic) and mimic.joint in locked:
            locked[joint.name] = mimic.multiplier * locked[mimic.joint] + mimic.offset
        if isinstance(mimic, Follow) and locked.keys() & set(mimic.joints):
            locked[joint.name] = _followed(joint.name, mimic, locked)
        if joint.name in locked:
            joints[body] = _welded(joint, _joint(model, body), locked[joint.name])
    return _rebuild(model, links, joints)


def append_model(
    model: Model,
    other: Model,
    frame: str | int | None = None,
    placement: Pose | ArrayLike | None = None,
    prefix: str = "",
) -> Model:
    """The robot `model` with the robot `other` mounted on a frame of `model`.

    - `frame`: the frame of `model` to which the world frame of `other` is welded (default: the
      world);
    - `placement`: the pose of the world frame of `other` in this frame, a `Pose` or a matrix (4, 4)
      (default: the identity);
    - `prefix`: put before every joint name and link name of `other`, to avoid equal names.

    The links of `other` that are fixed to the world of `other`, such as the palm of a gripper, are
    welded to the frame with their inertia. The result has the gravity, dtype and name of `model`.
    The frames may have another order, as for `describe`.

    Raises ArgumentError for an unknown frame, and for a `Pose` that is no rigid pose. Raises
    ArgumentError if dissipation is on in only one of the robots, because dissipation is on for all
    joints of a model or for none. Raises ModelError if the robots have a name in common, and for a
    matrix that is no rigid pose.
    """
    robot(model)
    robot(other, "the second argument")
    if frame is not None:
        frame = model.frame_names[model.frame_index(frame)]
    if model.dissipative != other.dissipative:
        first, second = ("model", "other") if model.dissipative else ("other", "model")
        raise ArgumentError(
            f"{first} has dissipation on and {second} has it off, expected both on or both off: "
            f"see Model.with_dissipation"
        )
    if not isinstance(prefix, str):
        raise ArgumentError(f"prefix is {prefix!r}, expected a text")
    if isinstance(placement, Pose):
        placement = np.asarray(pose_matrix(pose_parameter(placement, "placement")))
    mount: Any = np.eye(4) if placement is None else parameter(placement, "placement", (4, 4))
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
                mimic=renamed(mimic, lambda name: prefix + name),
            )
        )
    return _rebuild(model, links, joints)


def add_frame(
    model: Model,
    name: str,
    frame: str | int | None = None,
    placement: Pose | ArrayLike | None = None,
) -> Model:
    """The same robot with one more frame, such as the frame of a camera or of a tool.

    - `name`: the name of the new frame, which is no name of a frame or of a joint yet;
    - `frame`: the frame on which the new frame is fixed, as in `Model.frame_index` (default: the
      world);
    - `placement`: the pose of the new frame in this frame, a `Pose` or a matrix (4, 4) (default:
      the identity). It may be traced, and results have derivatives with respect to it.

    The new frame is the last one in `frame_names`, so the indices of all other frames stay. It is
    the frame of a link without mass.

    Raises ArgumentError for a name that is empty or in use, for an unknown frame, and for a
    placement that is no rigid pose.
    """
    robot(model)
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"name is {name!r}, expected the name of a new frame")
    if name in model.frame_names or bodies_of_joint(model, name):
        kind = "frame" if name in model.frame_names else "joint"
        raise ArgumentError(
            f"name is {name!r}, which is a {kind} of {model!r}; expected a new name"
        )
    X_FN = identity_pose(model.dtype) if placement is None else _placement(model, placement, name)
    if frame is None:
        body, X_BN = -1, X_FN
    else:
        index = model.frame_index(frame)
        body = model.frame_bodies[index]
        X_BN = compose(jax.tree.map(lambda x: x[index], model.frame_pose), X_FN)
    poses = jax.tree.map(lambda old, new: jnp.concatenate([old, new[None]]), model.frame_pose, X_BN)
    fixed = model.fixed_inertia
    if body < 0:
        fixed = jnp.concatenate([fixed, jnp.zeros((1, 10), fixed.dtype)])
    return dataclasses.replace(
        model,
        frame_pose=poses,
        fixed_inertia=fixed,
        frame_names=(*model.frame_names, name),
        frame_bodies=(*model.frame_bodies, body),
    )


def place_frames(model: Model, poses: Mapping[str, Pose | ArrayLike]) -> Model:
    """The same robot with frames of the world at other poses, such as targets and obstacles.

    `poses`: for each frame its pose in the world, a `Pose` or a matrix (4, 4). A pose may be
    traced, and results have derivatives with respect to it. The frames are fixed to the world:
    links that are welded to the world, or frames of `add_frame`. Other frames stay where they are.
    The result and `model` share compiled programs.

    Raises ArgumentError for an unknown frame, for a frame on a moving body, and for a pose that is
    no rigid pose.
    """
    frame_pose = robot(model).frame_pose
    if not isinstance(poses, Mapping):
        raise ArgumentError(f"poses is {poses!r}, expected a mapping from names to poses")
    for name, pose in poses.items():
        index = model.frame_index(name)
        body = model.frame_bodies[index]
        if body >= 0:
            raise ArgumentError(
                f"frame {name!r} is on the moving body {model.body_names[body]!r}, expected a "
                f"frame that is fixed to the world"
            )
        X_WF = _placement(model, pose, name)
        frame_pose = jax.tree.map(lambda x, new: x.at[index].set(new), frame_pose, X_WF)
    return dataclasses.replace(model, frame_pose=frame_pose)


def _placement(model: Model, placement: Pose | ArrayLike, name: str) -> Pose:
    """The placement of a frame as a pose of the dtype of the model."""
    place = f"of the frame {name!r}"
    if not isinstance(placement, Pose):
        H: Any = parameter(placement, f"placement {place}", (4, 4))
        require(H[3], lambda x: x == [0, 0, 0, 1], f"placement {place}", "a pose")
        placement = Pose(H[:3, :3], H[:3, 3])
    X = pose_parameter(placement, "placement", place)
    return jax.tree.map(lambda x: jnp.asarray(x, model.dtype), X)


def _rebuild(model: Model, links: list[Link], joints: list[JointSpec]) -> Model:
    """The model of the edited description, without the warnings about inertias."""
    gravity = np.array(model.gravity, float)
    edited = assemble(links, checked(links, joints), gravity, model.name)
    return edited.astype(model.dtype).with_dissipation(model.dissipative)


def _joint(model: Model, body: int) -> Joint:
    """The joint of one body, without the leading axis of its group."""
    for joint, bodies in zip(model.joints, model.joint_bodies):
        if body in bodies:
            return jax.tree.map(lambda x: np.array(x[bodies.index(body)], float), joint)
    raise AssertionError(f"body {body} has no joint")


def _mimic(model: Model, body: int) -> Mimic | Follow | None:
    """The rule by which the joint of a body follows other joints, or None."""
    coupling, q = model.coupling, int(model.topology.q_start[body])
    if coupling is None or not model.topology.nqs[body] or q in coupling.q_independent:
        return None

    def name(independent: int) -> str:
        q_joint = coupling.q_independent[independent]
        body = int(np.searchsorted(model.topology.q_start, q_joint, "right")) - 1
        return model.joint_names[body]

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


def _followed(name: str, follow: Follow, locked: Mapping[str, np.ndarray]) -> np.ndarray:
    """The coordinate (1,) of a joint that follows locked joints.

    Raises ArgumentError if a leader is not locked.
    """
    if missing := set(follow.joints) - locked.keys():
        raise ArgumentError(f"joint {name!r} follows {sorted(missing)} too: lock them as well")
    leaders = jnp.asarray(np.concatenate([locked[leader] for leader in follow.joints]))
    return np.array(follow.function(leaders), float).reshape(1)


def _parameters(model: Model, body: int) -> dict[str, np.ndarray]:
    """The damping, friction and armature of a joint; its limits if it follows no other joint."""
    topology = model.topology
    q = topology.q_start[body] + np.arange(topology.nqs[body])
    widths = model.joint_nvs
    v = sum(widths[:body]) + np.arange(widths[body])
    joint_fields = ("damping", "friction", "armature")
    parameters = {field: np.array(getattr(model, field), float)[v] for field in joint_fields}
    if model.coupling is not None:
        if not np.isin(q, model.coupling.q_independent).all():
            return parameters
        q = np.array([model.coupling.q_source[i] for i in q], int)
        v = np.array([model.coupling.v_source[i] for i in v], int)
    parameters["lower"] = np.array(model.lower_position_limit, float)[q]
    parameters["upper"] = np.array(model.upper_position_limit, float)[q]
    parameters["velocity_limit"] = np.array(model.velocity_limit, float)[v]
    parameters["effort_limit"] = np.array(model.effort_limit, float)[v]
    return parameters


def _coordinates(name: str, joint: Joint, nq: int, given: Numbers | Array) -> np.ndarray:
    """The given coordinates of a joint as an array (nq,).

    Raises ArgumentError, which names the joint, for another shape or an invalid value.
    """
    values = real_values(given)
    if values is None:
        raise ArgumentError(f"joint {name!r}: configuration is {given!r}, expected numbers ({nq},)")
    q = np.atleast_1d(values)
    if q.shape != (nq,):
        raise ArgumentError(
            f"joint {name!r}: configuration has shape {np.shape(given)}, expected ({nq},)"
        )
    if not np.all(np.isfinite(q)):
        raise ArgumentError(f"joint {name!r}: configuration {q} is not finite")
    if joint.quaternion is not None and not np.any(q[joint.quaternion : joint.quaternion + 4]):
        raise ArgumentError(f"joint {name!r}: configuration {q} has a zero quaternion")
    return q


def _welded(joint: JointSpec, kind: Joint, q: np.ndarray) -> JointSpec:
    """A Fixed joint whose placement is the pose of the child at the coordinates q."""
    placement = pose_from_matrix(jnp.asarray(joint.placement))
    child = pose_matrix(kind.pose(placement, jnp.asarray(q)))
    return JointSpec(joint.name, Fixed(), joint.parent, joint.child, np.array(child, float))
