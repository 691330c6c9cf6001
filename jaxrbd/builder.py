"""Links and joints, by name, to a `Model`.

Every reader of files, and anyone who builds a robot by hand, states links and joints here; the
builder checks the tree, expands compound joints, welds fixed ones, numbers the bodies depth-first
and stacks the joints by kind. All of it is numpy in float64, before JAX sees a number.

Siblings are numbered in the order in which their joints are stated. A reader that wants
Pinocchio's numbering states them by name, as `load_urdf` does.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from .errors import InertiaWarning, ModelError
from .joints import Joint, Revolute
from .model import Coupling, Model
from .spatial import Pose
from .topology import Topology

Numbers = float | Sequence[float] | np.ndarray

# ---------------------------------------------------------------------------- what is described


@dataclasses.dataclass(frozen=True)
class Link:
    """A rigid link: a name and its ten inertial parameters in the link's own frame.

    `inertia`: (10,), `[m, m c, Ixx, Ixy, Iyy, Ixz, Iyz, Izz]`, rotational part about the frame's
    origin (kg, kg m, kg m^2); see `link_inertia`. Default: a massless link.
    """

    name: str
    inertia: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(10))


@dataclasses.dataclass(frozen=True)
class Fixed:
    """The joint that allows no motion: the builder welds its child to its parent."""


@dataclasses.dataclass(frozen=True)
class Compound:
    """A joint built as a chain of others, with massless links between: exact in every derivative.

    For joints whose motion subspace depends on q. Its coordinates are those of `stages`, in order.
    """

    stages: tuple[Joint, ...]


def universal(axis1: Numbers, axis2: Numbers) -> Compound:
    """Universal joint: a rotation about `axis1` of the parent, then `axis2` of the child, in rad."""
    return Compound((revolute(axis1), revolute(axis2)))


def euler(sequence: str) -> Compound:
    """Rotations in turn about the moving axes named in `sequence`, such as "zyx", in rad.

    Raises ModelError where a letter is not x, y or z.
    """
    axes = {"x": (1, 0, 0), "y": (0, 1, 0), "z": (0, 0, 1)}
    unknown = set(sequence) - set(axes)
    if unknown or not sequence:
        raise ModelError(f"Euler sequence {sequence!r}: expected letters x, y and z")
    return Compound(tuple(revolute(axes[letter]) for letter in sequence))


def revolute(axis: Numbers) -> Revolute:
    """A `Revolute` about an axis given as three numbers."""
    return Revolute(np.asarray(axis, dtype=float))


@dataclasses.dataclass(frozen=True)
class Mimic:
    """The coordinate of a one-dof joint follows another: `q = multiplier * q_leader + offset`."""

    joint: str
    multiplier: float = 1.0
    offset: float = 0.0


@dataclasses.dataclass(frozen=True)
class JointSpec:
    """A joint between two links.

    - `kind`: an instance of a class of `jaxrbd.joints`, such as `Revolute(axis)`, or `Fixed()`, or
      a `Compound`;
    - `parent`: the name of the parent link; None is the world;
    - `placement`: (4, 4), pose of the joint's fixed side in the parent link's frame. The child
      link's frame is the joint's moving side;
    - `lower`, `upper`: configuration limits, a number or (nq,); `velocity_limit`, `effort_limit`,
      `damping`, `friction`, `armature`: a number or (nv,). SI units. None means unlimited.
    """

    name: str
    kind: Joint | Fixed | Compound
    parent: str | None
    child: str
    placement: np.ndarray = dataclasses.field(default_factory=lambda: np.eye(4))
    lower: Numbers | None = None
    upper: Numbers | None = None
    velocity_limit: Numbers | None = None
    effort_limit: Numbers | None = None
    damping: Numbers = 0.0
    friction: Numbers = 0.0
    armature: Numbers = 0.0
    mimic: Mimic | None = None


# Fields over configuration coordinates and over dofs, with what None stands for.
_Q_FIELDS = {"lower": -np.inf, "upper": np.inf}
_V_FIELDS = {
    "velocity_limit": np.inf,
    "effort_limit": np.inf,
    "damping": 0.0,
    "friction": 0.0,
    "armature": 0.0,
}
_NON_NEGATIVE = tuple(_V_FIELDS)


def link_inertia(
    mass: float,
    com: Numbers = (0, 0, 0),
    inertia_com: np.ndarray | None = None,
    rotation: np.ndarray | None = None,
) -> np.ndarray:
    """The ten inertial parameters (10,) of a link.

    `mass` in kg; `com` (3,) in m in the link's frame; `inertia_com` (3, 3) in kg m^2 about the
    centre of mass, in axes turned by `rotation` (3, 3) from the link's (defaults: a point mass,
    the link's axes). Source: Featherstone (2.63).
    """
    c = np.asarray(com, dtype=float)
    turn = np.eye(3) if rotation is None else np.asarray(rotation, dtype=float)
    about_com = np.zeros((3, 3)) if inertia_com is None else np.asarray(inertia_com, dtype=float)
    I = turn @ about_com @ turn.T + mass * (c @ c * np.eye(3) - np.outer(c, c))
    return np.array([mass, *(mass * c), I[0, 0], I[0, 1], I[1, 1], I[0, 2], I[1, 2], I[2, 2]])


def pose_matrix(xyz: Numbers = (0, 0, 0), rpy: Numbers = (0, 0, 0)) -> np.ndarray:
    """The (4, 4) pose of a position in m and roll, pitch, yaw in rad about fixed axes.

    `R = Rz(yaw) Ry(pitch) Rx(roll)`. Source: the URDF specification, element origin.
    """
    (sr, sp, sy), (cr, cp, cy) = np.sin(rpy), np.cos(rpy)
    H = np.eye(4)
    H[:3, :3] = [
        [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
        [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
        [-sp, cp * sr, cp * cr],
    ]
    H[:3, 3] = xyz
    return H


# --------------------------------------------------------------------------------------- build


def build_model(
    links: Sequence[Link],
    joints: Sequence[JointSpec],
    *,
    gravity: Numbers = (0.0, 0.0, -9.81),
    name: str = "robot",
    strict: bool = False,
) -> Model:
    """The model of a tree of links and joints.

    Every link hangs on exactly one joint, and through joints on the world (parent None). A link
    whose inertia no rigid body can have gives one `InertiaWarning` that lists all such links, or
    with `strict=True` a ModelError. `gravity` (3,) in m/s^2 in the world's axes. The arrays are of
    JAX's default float dtype: float64 where `jax_enable_x64` is set, else float32.

    Raises ModelError, naming the link or joint, for: unknown, duplicate or empty names, a link
    with two parents or none, a cycle, a number that is not finite, a negative mass, limit, damping,
    friction or armature, inverted limits, a zero axis, an array of the wrong size, and a mimic of
    an unknown joint, of itself, in a ring, or by or of a joint of several dofs.
    """
    links, joints = list(links), list(joints)
    _check_links(links)
    joints = [_check_joint(joint) for joint in joints]
    _check_names(links, joints)
    faults = inertia_faults(links)
    if faults and strict:
        raise ModelError("; ".join(faults.values()), link=next(iter(faults)))
    if faults:
        warnings.warn(
            f"{name}: {len(faults)} links have an inertia that no rigid body can have: "
            + "; ".join(faults.values()),
            InertiaWarning,
            stacklevel=2,
        )
    links, joints = _expand(links, joints)
    bodies, frames = _weld(links, joints)
    return _assemble(bodies, frames, np.asarray(gravity, dtype=float), name)


def inertia_faults(links: Sequence[Link]) -> dict[str, str]:
    """The links whose inertia no rigid body can have, each with the reason and the numbers.

    About the centre of mass, the principal moments must be non-negative and satisfy the triangle
    inequality; a massless link must have no inertia at all. A relative 1e-6 is left to the digits
    that files are written with.
    """
    faults = {}
    for link in links:
        reason = _inertia_fault(link.inertia)
        if reason:
            faults[link.name] = f"link {link.name!r}: {reason}"
    return faults


def _inertia_fault(inertia: np.ndarray) -> str | None:
    mass, h = inertia[0], inertia[1:4]
    if mass == 0:
        return "mass 0 with rotational inertia or mass moment" if np.any(inertia[1:]) else None
    xx, xy, yy, xz, yz, zz = inertia[4:]
    c = h / mass
    about_com = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    about_com = about_com - mass * (c @ c * np.eye(3) - np.outer(c, c))
    small, middle, large = np.linalg.eigvalsh(about_com)
    moments = f"principal moments {small:.4g}, {middle:.4g}, {large:.4g} kg m^2"
    if small < -1e-6 * large or large < 0:
        return f"inertia not positive semidefinite, {moments}"
    if small + middle < large * (1 - 1e-6):
        return f"triangle inequality violated, {moments}"
    return None


# --------------------------------------------------------------------------------------- checks


def _check_links(links: list[Link]) -> None:
    for link in links:
        inertia = np.asarray(link.inertia, dtype=float)
        if inertia.shape != (10,):
            raise ModelError(
                f"link {link.name!r}: inertia has shape {inertia.shape}, expected (10,)",
                link=link.name,
            )
        if not np.all(np.isfinite(inertia)):
            raise ModelError(f"link {link.name!r}: inertia is not finite", link=link.name)
        if inertia[0] < 0:
            raise ModelError(f"link {link.name!r}: mass {inertia[0]:g} is negative", link=link.name)


def _check_joint(joint: JointSpec) -> JointSpec:
    """The joint with its numbers as arrays over its coordinates, checked."""

    def fail(message: str):
        return ModelError(f"joint {joint.name!r}: {message}", joint=joint.name)

    placement = np.asarray(joint.placement, dtype=float)
    if placement.shape != (4, 4):
        raise fail(f"placement has shape {placement.shape}, expected (4, 4)")
    if not np.all(np.isfinite(placement)):
        raise fail("placement is not finite")
    R = placement[:3, :3]
    rigid = np.allclose(R @ R.T, np.eye(3), atol=1e-6) and np.linalg.det(R) > 0
    if not rigid or not np.array_equal(placement[3], [0, 0, 0, 1]):
        raise fail("placement is no rigid pose: expected [[R, p], [0, 0, 0, 1]], R a rotation")
    stages = _stages(joint.kind)
    for stage in stages:
        for field, value in vars(stage).items():
            value = np.asarray(value, dtype=float)
            if not np.all(np.isfinite(value)):
                raise fail(f"{field} {value} is not finite")
            if field == "axis" and value.shape != (3,):
                raise fail(f"axis has shape {value.shape}, expected (3,)")
            if field == "axis" and not np.any(value):
                raise fail("axis is zero")
    nq, nv = sum(s.nq for s in stages), sum(s.nv for s in stages)
    numbers = {"placement": placement}
    for fields, size in ((_Q_FIELDS, nq), (_V_FIELDS, nv)):
        for field, default in fields.items():
            given = getattr(joint, field)
            value = np.asarray(default if given is None else given, dtype=float)
            if value.shape not in ((), (size,)):
                raise fail(f"{field} has shape {value.shape}, expected a number or ({size},)")
            if np.any(np.isnan(value)):
                raise fail(f"{field} is NaN")
            if field in _NON_NEGATIVE and np.any(value < 0):
                raise fail(f"{field} {value} is negative")
            numbers[field] = np.broadcast_to(value, (size,))
    for field in ("damping", "friction", "armature"):
        if not np.all(np.isfinite(numbers[field])):
            raise fail(f"{field} {numbers[field]} is not finite")
    if np.any(numbers["lower"] > numbers["upper"]):
        raise fail(f"lower limit {numbers['lower']} above upper limit {numbers['upper']}")
    if joint.mimic is not None and (nq, nv) != (1, 1):
        raise fail(f"mimic needs a joint of one dof, this one has {nv}")
    return dataclasses.replace(joint, **numbers)


def _stages(kind: Joint | Fixed | Compound) -> tuple[Joint, ...]:
    if isinstance(kind, Fixed):
        return ()
    return kind.stages if isinstance(kind, Compound) else (kind,)


def _check_names(links: list[Link], joints: list[JointSpec]) -> None:
    link_names: set[str] = set()
    for link in links:
        if not link.name or link.name in link_names:
            raise ModelError(f"link name {link.name!r} is empty or taken", link=link.name)
        link_names.add(link.name)
    by_name: dict[str, JointSpec] = {}
    hangs_on: dict[str, JointSpec] = {}
    for joint in joints:
        if not joint.name or joint.name in by_name:
            raise ModelError(f"joint name {joint.name!r} is empty or taken", joint=joint.name)
        by_name[joint.name] = joint
        for role, link in (("parent", joint.parent), ("child", joint.child)):
            if link not in link_names and not (role == "parent" and link is None):
                raise ModelError(
                    f"joint {joint.name!r}: {role} link {link!r} is unknown", joint=joint.name
                )
        if joint.child in hangs_on:
            other = hangs_on[joint.child].name
            raise ModelError(
                f"link {joint.child!r} is the child of two joints, {other!r} and {joint.name!r}",
                link=joint.child,
                joint=joint.name,
            )
        hangs_on[joint.child] = joint
    for link in links:
        if link.name not in hangs_on:
            raise ModelError(
                f"link {link.name!r} hangs on no joint; to weld it to the world, state a Fixed "
                f"joint with parent None",
                link=link.name,
            )
    _check_cycles(links, hangs_on)
    for joint in joints:
        _check_mimic(joint, by_name)


def _check_cycles(links: list[Link], hangs_on: dict[str, JointSpec]) -> None:
    rooted: set[str | None] = {None}
    for link in links:
        path: list[str] = []
        at: str | None = link.name
        while at not in rooted:
            if at in path:
                ring = path[path.index(at) :]
                raise ModelError(f"links form a cycle: {ring}", link=at, joint=hangs_on[at].name)
            path.append(at)
            at = hangs_on[at].parent
        rooted.update(path)


def _check_mimic(joint: JointSpec, by_name: dict[str, JointSpec]) -> None:
    seen = [joint.name]
    at = joint
    while at.mimic is not None:
        leader = by_name.get(at.mimic.joint)
        if leader is None:
            raise ModelError(
                f"joint {at.name!r}: mimics unknown joint {at.mimic.joint!r}", joint=at.name
            )
        if not np.all(np.isfinite([at.mimic.multiplier, at.mimic.offset])):
            raise ModelError(f"joint {at.name!r}: mimic is not finite", joint=at.name)
        if leader.name in seen:
            raise ModelError(f"joints mimic each other in a ring: {seen}", joint=at.name)
        if sum(s.nv for s in _stages(leader.kind)) != 1:
            raise ModelError(
                f"joint {at.name!r}: mimics joint {leader.name!r}, which has not one dof",
                joint=at.name,
            )
        seen.append(leader.name)
        at = leader


# ------------------------------------------------------------------------------ expand and weld


def _expand(links: list[Link], joints: list[JointSpec]) -> tuple[list[Link], list[JointSpec]]:
    """Replace each compound joint by its chain; stage k of joint j is named `j.k`, from 1."""
    links, expanded = list(links), []
    for joint in joints:
        if not isinstance(joint.kind, Compound):
            expanded.append(joint)
            continue
        parent, q, v = joint.parent, 0, 0
        for k, stage in enumerate(joint.kind.stages, start=1):
            last = k == len(joint.kind.stages)
            child = joint.child if last else f"{joint.name}.{k}"
            if not last:
                links.append(Link(child))
            own = {f: getattr(joint, f)[q : q + stage.nq] for f in _Q_FIELDS}
            own |= {f: getattr(joint, f)[v : v + stage.nv] for f in _V_FIELDS}
            own |= {} if k == 1 else {"placement": np.eye(4)}
            expanded.append(
                dataclasses.replace(
                    joint, name=f"{joint.name}.{k}", kind=stage, parent=parent, child=child, **own
                )
            )
            parent, q, v = child, q + stage.nq, v + stage.nv
    return links, expanded


@dataclasses.dataclass
class _Body:
    """A moving body: its joint, its parent body, and the inertia of all links welded to it."""

    joint: JointSpec
    parent: int
    placement: np.ndarray
    inertia: np.ndarray


@dataclasses.dataclass
class _Frame:
    """A link's frame: the body it is welded to (-1: the world) and its pose there."""

    name: str
    body: int
    pose: np.ndarray


def _weld(links: list[Link], joints: list[JointSpec]) -> tuple[list[_Body], list[_Frame]]:
    """Walk the tree depth-first; number the bodies and give every link a frame on one."""
    inertias = {link.name: np.asarray(link.inertia, dtype=float) for link in links}
    children: dict[str | None, list[JointSpec]] = {}
    for joint in joints:
        children.setdefault(joint.parent, []).append(joint)
    at: dict[str | None, tuple[int, np.ndarray]] = {None: (-1, np.eye(4))}
    bodies: list[_Body] = []
    frames: list[_Frame] = []
    pending = children.get(None, [])[::-1]
    while pending:
        joint = pending.pop()
        body, H = at[joint.parent]
        H = H @ joint.placement
        if not isinstance(joint.kind, Fixed):
            bodies.append(_Body(joint, body, H, np.zeros(10)))
            body, H = len(bodies) - 1, np.eye(4)
        at[joint.child] = (body, H)
        frames.append(_Frame(joint.child, body, H))
        if body >= 0:
            bodies[body].inertia += _move_inertia(H, inertias[joint.child])
        pending.extend(children.get(joint.child, [])[::-1])
    return bodies, frames


def _move_inertia(H: np.ndarray, inertia: np.ndarray) -> np.ndarray:
    """The ten parameters in the frame that H leads to, through the 4x4 pseudo-inertia."""
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


# -------------------------------------------------------------------------------------- assemble


def _assemble(
    bodies: list[_Body], frames: list[_Frame], gravity: np.ndarray, name: str
) -> Model:
    joints = [body.joint for body in bodies]
    topology = Topology(
        parents=tuple(body.parent for body in bodies),
        nqs=tuple(joint.kind.nq for joint in joints),
        nvs=tuple(joint.kind.nv for joint in joints),
    )
    of_kind: dict[type, list[int]] = {}
    for i, joint in enumerate(joints):
        of_kind.setdefault(type(joint.kind), []).append(i)
    model = Model(
        placement=_poses([body.placement for body in bodies]),
        inertia=np.array([body.inertia for body in bodies]).reshape(-1, 10),
        joints=tuple(_stack([joints[i].kind for i in index]) for index in of_kind.values()),
        frame_pose=_poses([frame.pose for frame in frames]),
        gravity=gravity,
        armature=_over_tree(joints, "armature"),
        damping=_over_tree(joints, "damping"),
        friction=_over_tree(joints, "friction"),
        lower_limit=_over_tree(joints, "lower"),
        upper_limit=_over_tree(joints, "upper"),
        velocity_limit=_over_tree(joints, "velocity_limit"),
        effort_limit=_over_tree(joints, "effort_limit"),
        coupling=_couple(joints, topology),
        topology=topology,
        joint_bodies=tuple(tuple(index) for index in of_kind.values()),
        joint_names=tuple(joint.name for joint in joints),
        body_names=tuple(joint.child for joint in joints),
        frame_names=tuple(frame.name for frame in frames),
        frame_bodies=tuple(frame.body for frame in frames),
        name=name,
    )
    return model.astype(jnp.result_type(float))


def _poses(matrices: list[np.ndarray]) -> Pose:
    H = np.array(matrices).reshape(-1, 4, 4)
    return Pose(H[:, :3, :3], H[:, :3, 3])


def _stack(joints: list[Joint]) -> Joint:
    return jax.tree.map(lambda *fields: np.stack(fields), *joints)


def _over_tree(joints: list[JointSpec], field: str) -> np.ndarray:
    return np.concatenate([np.zeros(0), *(getattr(joint, field) for joint in joints)])


def _couple(joints: list[JointSpec], topology: Topology) -> Coupling | None:
    """The mimic joints as one map from the independent coordinates, or None without any."""
    if not any(joint.mimic for joint in joints):
        return None
    by_name = {joint.name: i for i, joint in enumerate(joints)}
    independent = [i for i, joint in enumerate(joints) if joint.mimic is None]
    q_start, v_start = {}, {}
    q = v = 0
    for i in independent:
        q_start[i], v_start[i] = q, v
        q, v = q + topology.nqs[i], v + topology.nvs[i]
    q_source, v_source, multiplier_q, multiplier_v, offset = [], [], [], [], []
    for i in range(len(joints)):
        leader, scale, shift = i, 1.0, 0.0
        while (mimic := joints[leader].mimic) is not None:
            shift += scale * mimic.offset
            scale *= mimic.multiplier
            leader = by_name[mimic.joint]
        q_source += range(q_start[leader], q_start[leader] + topology.nqs[i])
        v_source += range(v_start[leader], v_start[leader] + topology.nvs[i])
        multiplier_q += [scale] * topology.nqs[i]
        multiplier_v += [scale] * topology.nvs[i]
        offset += [shift] * topology.nqs[i]
    followers = np.array([joint.mimic is not None for joint in joints])
    return Coupling(
        q_multiplier=np.array(multiplier_q),
        q_offset=np.array(offset),
        v_multiplier=np.array(multiplier_v),
        q_source=tuple(q_source),
        v_source=tuple(v_source),
        q_independent=tuple(np.flatnonzero(~np.repeat(followers, topology.nqs)).tolist()),
        v_independent=tuple(np.flatnonzero(~np.repeat(followers, topology.nvs)).tolist()),
    )
