"""From links and joints to a `Model`.

The builder checks the tree, expands compound joints, welds fixed joints, numbers the bodies in
depth-first order and stacks the joints of each kind. It uses NumPy in float64.

Siblings are numbered in the order of the joints in the list. `load_urdf` sorts the joints by name,
so its models have the numbering of Pinocchio.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._math.cast import as_array
from ..errors import ArgumentError, InertiaWarning, ModelError
from ..joints import Joint
from ..spatial import Pose
from ..topology import Topology
from .checks import checked, inertia_faults
from .coupling import Coupling, Followers, independent_coordinates
from .description import (
    DOF_FIELDS,
    POSITION_FIELDS,
    Compound,
    Follow,
    JointSpec,
    Link,
    Mimic,
    Numbers,
    renamed,
)
from .geometry import Geometry, LinkGeometry, checked_geometry
from .mass_check import singular_joints
from .model import Model
from .parameters import require_flag, sequence, text


def build_model(
    links: Sequence[Link],
    joints: Sequence[JointSpec],
    *,
    gravity: Numbers = (0.0, 0.0, -9.81),
    name: str = "robot",
    strict: bool = False,
) -> Model:
    """The model of a tree of links and joints.

    - `links`, `joints`: sequences. Each link is the child of exactly one joint. The parent None is
      the world;
    - `gravity`: (3,), m/s^2, in the world frame;
    - `strict`: raise ModelError instead of a warning.

    Warns with one `InertiaWarning` for each of these cases:

    - links have an inertia that no rigid body can have;
    - joints without armature make the mass matrix singular in every configuration, because such a
      joint moves no inertia, or because other joints can cancel its effect on every link with
      inertia.

    The arrays have JAX's default float dtype: float64 if `jax_enable_x64` is set, else float32.

    Raises ModelError, which names the link or the joint, for:

    - an unknown, duplicate or empty name, a link that is the child of several joints or of no
      joint, a cycle;
    - a kind, a `mimic` or a parameter of the wrong type, a value that is not finite, a negative
      mass, velocity or effort limit, damping, friction or armature, a lower limit above the upper
      limit, a zero axis, an array of the wrong size, a placement that is not a rigid pose;
    - a shape with a negative length, a colour outside of 0 to 1, a mesh of an unknown file type,
      and other invalid geometry;
    - a joint that follows an unknown joint, itself, or others in a ring; a follower or a leader
      that does not have exactly one dof; a `Mimic` joint whose leader is a `Follow` joint; a
      `Follow` joint with a leader that follows others;
    - a function of a `joints.Custom` or a `Follow` that gives an invalid result;
    - a value beyond the range of the dtype. Limits beyond this range become infinite instead.

    Raises ArgumentError for a gravity that is not finite or beyond the range of the dtype, for
    entries of `links` and `joints` of another type, for a name that is no text, and for a `strict`
    that is not True or False.
    """
    links, joints = sequence(links, "links", "Link"), sequence(joints, "joints", "JointSpec")
    text(name, "name")
    require_flag(strict, "strict")
    g = np.asarray(gravity)
    if g.shape != (3,) or g.dtype.kind not in "fiu" or not np.all(np.isfinite(g)):
        raise ArgumentError(f"gravity is {gravity!r}, expected three finite numbers in m/s^2")
    joints = checked(links, joints)
    faults = inertia_faults(links)
    if faults and strict:
        raise ModelError("; ".join(faults.values()), link=next(iter(faults)))
    if faults:
        warnings.warn(
            f"{name}: {len(faults)} links have an inertia that no rigid body can have: "
            + "; ".join(faults.values()),
            InertiaWarning,
            stacklevel=3,
        )
    dtype = jnp.result_type(float)
    if not _fits(g, dtype):
        raise ArgumentError(f"gravity {gravity!r} is beyond the range of {dtype.name}")
    bodies, frames = bodies_and_frames(links, joints, dtype)
    singular = singular_joints(links, joints)
    if singular:
        first = singular[0]
        message = "the mass matrix is singular in every configuration: "
        message += "; ".join(map(str, singular))
        if strict:
            raise ModelError(message, link=first.link, joint=first.joint)
        warnings.warn(f"{name}: {message}", InertiaWarning, stacklevel=3)
    return _stacked(bodies, frames, g, name, _geometry(links))


def assemble(
    links: Sequence[Link], joints: list[JointSpec], gravity: np.ndarray, name: str
) -> Model:
    """As `build_model`, but it only checks the range of the dtype.

    `joints`: as `checks.checked` returns them.
    """
    bodies, frames = bodies_and_frames(links, joints, jnp.result_type(float))
    return _stacked(bodies, frames, gravity, name, _geometry(links))


def bodies_and_frames(
    links: Sequence[Link], joints: list[JointSpec], dtype: np.dtype
) -> tuple[list[_Body], list[_Frame]]:
    """The moving bodies and the frames of a robot. `joints`: as `checks.checked` returns them.

    Raises ModelError, which names the link or the joint, for a value beyond the range of `dtype`.
    The range is checked after the inertias of welded links are summed, the poses across welded
    joints are multiplied, and each chain of mimic joints is reduced to one total multiplier and
    offset.
    """
    links, joints = _expand(links, joints)
    with np.errstate(over="ignore", invalid="ignore"):
        bodies, frames = _weld(links, joints)
        _check_range(bodies, frames, dtype)
    return bodies, frames


# ------------------------------------------------------------------------------ expand and weld


def _expand(links: Sequence[Link], joints: list[JointSpec]) -> tuple[list[Link], list[JointSpec]]:
    """Replace each compound joint by the chain of its stages."""
    links, expanded = list(links), []
    # The leader of other joints has one dof. If it is a compound joint, it has one stage.
    stage_of = {joint.name: joint.stage_names[0] for joint in joints if joint.stage_names}
    for joint in joints:
        mimic = renamed(joint.mimic, lambda name: stage_of.get(name, name))
        joint = dataclasses.replace(joint, mimic=mimic)
        if not isinstance(joint.kind, Compound):
            expanded.append(joint)
            continue
        parent, q, v = joint.parent, 0, 0
        for name, stage in zip(joint.stage_names, joint.kind.stages):
            is_first, is_last = (name == joint.stage_names[k] for k in (0, -1))
            child = joint.child if is_last else name
            if not is_last:
                links.append(Link(child))
            fields = {f: getattr(joint, f)[q : q + stage.nq] for f in POSITION_FIELDS}
            fields |= {f: getattr(joint, f)[v : v + stage.nv] for f in DOF_FIELDS}
            fields |= {} if is_first else {"placement": np.eye(4)}
            expanded.append(
                dataclasses.replace(
                    joint, name=name, kind=stage, parent=parent, child=child, **fields
                )
            )
            parent, q, v = child, q + stage.nq, v + stage.nv
    return links, expanded


# The fields of the joint classes that are arrays, and not functions as in `joints.Custom`.
JOINT_PARAMETERS = "axis", "pitch", "turn", "advance"


@dataclasses.dataclass
class _Body:
    """A moving body: its joint, its parent body, and the summed inertia of its welded links."""

    joint: JointSpec
    kind: Joint
    parent: int
    placement: np.ndarray
    inertia: np.ndarray


@dataclasses.dataclass
class _Frame:
    """The frame of a link: the body of the link (-1: the world), and the pose in the body frame.

    `inertia`: the inertia of the link, in the frame of the link.
    """

    name: str
    body: int
    pose: np.ndarray
    inertia: np.ndarray


def _weld(links: list[Link], joints: list[JointSpec]) -> tuple[list[_Body], list[_Frame]]:
    """Number the bodies in depth-first order, and give every link a frame on its body."""
    inertias = {link.name: np.asarray(link.inertia, dtype=float) for link in links}
    children: dict[str | None, list[JointSpec]] = {}
    for joint in joints:
        children.setdefault(joint.parent, []).append(joint)
    poses: dict[str | None, tuple[int, np.ndarray]] = {None: (-1, np.eye(4))}
    bodies: list[_Body] = []
    frames: list[_Frame] = []
    pending = children.get(None, [])[::-1]
    while pending:
        joint = pending.pop()
        body, H = poses[joint.parent]
        H = H @ joint.placement
        if isinstance(joint.kind, Joint):
            bodies.append(_Body(joint, joint.kind, body, H, np.zeros(10)))
            body, H = len(bodies) - 1, np.eye(4)
        poses[joint.child] = (body, H)
        frames.append(_Frame(joint.child, body, H, inertias[joint.child]))
        if body >= 0:
            bodies[body].inertia += _move_inertia(H, inertias[joint.child])
        pending.extend(children.get(joint.child, [])[::-1])
    return bodies, frames


def _move_inertia(H: np.ndarray, inertia: np.ndarray) -> np.ndarray:
    """`inertia` (10,) of a link, expressed in another frame.

    H (4, 4) is the pose of the link in this frame. The pseudo-inertia J (4, 4) transforms as
    `H J H^T`.
    """
    m, hx, hy, hz, xx, xy, yy, xz, yz, zz = inertia
    half = (xx + yy + zz) / 2
    J = np.array(
        [
            [half - xx, -xy, -xz, hx],
            [-xy, half - yy, -yz, hy],
            [-xz, -yz, half - zz, hz],
            [hx, hy, hz, m],
        ]
    )
    J = H @ J @ H.T
    I = np.trace(J[:3, :3]) * np.eye(3) - J[:3, :3]
    return np.array([m, *J[:3, 3], I[0, 0], I[0, 1], I[1, 1], I[0, 2], I[1, 2], I[2, 2]])


# ----------------------------------------------------------------------------------------- range


def _check_range(bodies: list[_Body], frames: list[_Frame], dtype: np.dtype) -> None:
    """Raise ModelError for the first value that `dtype` cannot hold. Limits may be infinite."""
    joints = [body.joint for body in bodies]
    by_name = {joint.name: i for i, joint in enumerate(joints)}
    for body in bodies:
        joint = body.joint
        values = {
            "placement": body.placement,
            **{field: getattr(joint, field) for field in ("damping", "friction", "armature")},
            **{field: getattr(body.kind, field, 0.0) for field in JOINT_PARAMETERS},
        }
        if isinstance(joint.mimic, Mimic):
            _, *values["total mimic multiplier or offset"] = _leader(joints, by_name, joint)
        for what, x in values.items():
            if not _fits(x, dtype):
                raise ModelError(
                    f"joint {joint.name!r}: its {what} is beyond the range of {dtype.name}",
                    joint=joint.name,
                )
    for frame in frames:
        if not _fits(frame.pose, dtype):
            raise ModelError(
                f"link {frame.name!r}: its pose on its body is beyond the range of {dtype.name}",
                link=frame.name,
            )
        if frame.body < 0 and not _fits(frame.inertia, dtype):
            raise ModelError(
                f"link {frame.name!r}: its inertia is beyond the range of {dtype.name}",
                link=frame.name,
            )
    for body in bodies:
        if not _fits(body.inertia, dtype):
            link = body.joint.child
            raise ModelError(
                f"link {link!r}: its inertia, summed with the links welded to it, is beyond the "
                f"range of {dtype.name}",
                link=link,
            )


def _fits(x: Numbers | list[float], dtype: np.dtype) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.all(np.isfinite(np.asarray(x, dtype=float).astype(dtype))))


# -------------------------------------------------------------------------------------- assemble


def _stacked(
    bodies: list[_Body],
    frames: list[_Frame],
    gravity: np.ndarray,
    name: str,
    geometry: LinkGeometry,
) -> Model:
    """The model of the bodies and frames, with their parameters stacked in arrays."""
    joints, kinds = [body.joint for body in bodies], [body.kind for body in bodies]
    topology = Topology(
        parents=tuple(body.parent for body in bodies),
        nqs=tuple(kind.nq for kind in kinds),
        nvs=tuple(kind.tree_nv for kind in kinds),
    )
    groups: dict[Any, list[int]] = {}
    for i, kind in enumerate(kinds):
        groups.setdefault(jax.tree.structure(kind), []).append(i)
    independent = [joint for joint in joints if joint.mimic is None]
    fixed = [frame.inertia for frame in frames if frame.body < 0]
    values = {
        "placement": _poses([body.placement for body in bodies]),
        "inertia": np.array([body.inertia for body in bodies]).reshape(-1, 10),
        "joints": tuple(_stack([kinds[i] for i in index]) for index in groups.values()),
        "frame_pose": _poses([frame.pose for frame in frames]),
        "fixed_inertia": np.array(fixed).reshape(-1, 10),
        "gravity": gravity,
        "armature": _concatenate(joints, "armature"),
        "damping": _concatenate(joints, "damping"),
        "friction": _concatenate(joints, "friction"),
        "lower_position_limit": _concatenate(independent, "lower"),
        "upper_position_limit": _concatenate(independent, "upper"),
        "velocity_limit": _concatenate(independent, "velocity_limit"),
        "effort_limit": _concatenate(independent, "effort_limit"),
        "coupling": _couple(joints, kinds),
    }
    dtype = jnp.result_type(float)
    with np.errstate(over="ignore"):  # only limits can overflow: `_check_range` has run
        leaves = jax.tree.map(lambda x: as_array(x, dtype), values)
    return Model(
        **leaves,
        topology=topology,
        joint_bodies=tuple(tuple(index) for index in groups.values()),
        joint_names=tuple(joint.name for joint in joints),
        body_names=tuple(joint.child for joint in joints),
        frame_names=tuple(frame.name for frame in frames),
        frame_bodies=tuple(frame.body for frame in frames),
        name=name,
        geometry=geometry,
    )


def _geometry(links: Sequence[Link]) -> LinkGeometry:
    def shapes_by_link(field: str) -> dict[str, tuple[Geometry, ...]]:
        by_link = {link.name: getattr(link, field) for link in links}
        return {
            name: tuple(map(checked_geometry, shapes)) for name, shapes in by_link.items() if shapes
        }

    return LinkGeometry(shapes_by_link("visuals"), shapes_by_link("collisions"))


def _poses(matrices: list[np.ndarray]) -> Pose:
    H: Any = np.array(matrices).reshape(-1, 4, 4)  # `_stacked` converts it to arrays of JAX
    return Pose(H[:, :3, :3], H[:, :3, 3])


def _stack(modules: list):
    """One module that stacks the arrays of several modules of the same structure."""
    return jax.tree.map(lambda *fields: np.stack(fields), *modules)


def _concatenate(joints: list[JointSpec], field: str) -> np.ndarray:
    return np.concatenate([np.zeros(0), *(getattr(joint, field) for joint in joints)])


def _couple(joints: list[JointSpec], kinds: list[Joint]) -> Coupling | None:
    """The map from independent coordinates to all joint coordinates; None if no joint follows."""
    if not any(joint.mimic for joint in joints):
        return None
    q_width, v_width = [kind.nq for kind in kinds], [kind.nv for kind in kinds]
    follows = np.array([joint.mimic is not None for joint in joints])
    # First index of each joint among the independent coordinates, and among all coordinates.
    q_start, v_start = (_starts(np.where(follows, 0, w)) for w in (q_width, v_width))
    q_joint, v_joint = _starts(q_width), _starts(v_width)
    by_name = {joint.name: i for i, joint in enumerate(joints)}
    leaders, scales, shifts = [], [], []
    groups: dict[Any, list[tuple[int, Follow]]] = {}
    for i, joint in enumerate(joints):
        leader, scale, shift = _leader(joints, by_name, joint)
        if isinstance(joint.mimic, Follow):
            form = (len(joint.mimic.joints), jax.tree.structure(joint.mimic.function))
            groups.setdefault(form, []).append((i, joint.mimic))
            leader, scale = by_name[joint.mimic.joints[0]], 0.0
        leaders.append(leader)
        scales.append(scale)
        shifts.append(shift)

    def followers(group: list[tuple[int, Follow]]) -> Followers:
        leaders = [[by_name[name] for name in follow.joints] for _, follow in group]
        return Followers(
            function=_stack([follow.function for _, follow in group]),
            q=tuple(int(q_joint[i]) for i, _ in group),
            v=tuple(int(v_joint[i]) for i, _ in group),
            q_leaders=tuple(tuple(int(q_start[j]) for j in row) for row in leaders),
            v_leaders=tuple(tuple(int(v_start[j]) for j in row) for row in leaders),
        )

    return Coupling(
        q_multiplier=jnp.array(np.repeat(scales, q_width)),
        q_offset=jnp.array(np.repeat(shifts, q_width)),
        v_multiplier=jnp.array(np.repeat(scales, v_width)),
        followers=tuple(followers(group) for group in groups.values()),
        **independent_coordinates(leaders, q_width, v_width),
    )


def _leader(
    joints: list[JointSpec], by_name: dict[str, int], joint: JointSpec
) -> tuple[int, float, float]:
    """The index of the last joint in the chain of `Mimic` leaders from `joint`.

    The second and third results are the total multiplier and the total offset of the chain.
    """
    leader, scale, shift = by_name[joint.name], 1.0, 0.0
    while isinstance(mimic := joints[leader].mimic, Mimic):
        shift += scale * mimic.offset
        scale *= mimic.multiplier
        leader = by_name[mimic.joint]
    return leader, scale, shift


def _starts(widths) -> np.ndarray:
    """The first index of each run, for consecutive runs of the given widths."""
    return np.cumsum([0, *widths])[:-1]
