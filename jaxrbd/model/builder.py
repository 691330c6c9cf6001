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
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

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
)
from .mass_check import singular_joints
from .model import Model


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
    with `strict=True` a ModelError. Joints without armature that move no inertia make the mass
    matrix singular in every configuration: they give another warning, or with `strict` a
    ModelError. `gravity` (3,) in m/s^2 in the world's axes. The arrays are of JAX's default float
    dtype: float64 where `jax_enable_x64` is set, else float32.

    Raises ArgumentError where gravity is not three finite numbers, and ModelError, naming the link
    or joint, for: unknown, duplicate or empty names, a link with two parents or none, a cycle, a
    number that is not finite, a negative mass, limit, damping, friction or armature, inverted
    limits, a zero axis, an array of the wrong size, a mimic of an unknown joint, of itself, in a
    ring, or by or of a joint of several dofs, and a function of a `joints.Custom` or a `Follow`
    that does not give what it has to, and a number beyond the range of the arrays' dtype. A finite
    limit beyond that range becomes infinite: no limit.
    """
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
    bodies, frames = composed(links, joints, dtype)
    singular = singular_joints(links, joints)
    if singular:
        first = singular[0]
        message = "the mass matrix is singular in every configuration: "
        message += "; ".join(map(str, singular))
        if strict:
            raise ModelError(message, link=first.link, joint=first.joint)
        warnings.warn(f"{name}: {message}", InertiaWarning, stacklevel=3)
    return _stacked(bodies, frames, g, name)


def assemble(
    links: Sequence[Link], joints: list[JointSpec], gravity: np.ndarray, name: str
) -> Model:
    """The model of links and joints that `checks.checked` has returned; see `build_model`."""
    return _stacked(*composed(links, joints, jnp.result_type(float)), gravity, name)


def composed(
    links: Sequence[Link], joints: list[JointSpec], dtype: np.dtype
) -> tuple[list[_Body], list[_Frame]]:
    """The moving bodies and the frames of links and joints that `checks.checked` has passed.

    Raises ModelError, naming link or joint, where a number is beyond the range of `dtype`, as it is
    stated or once inertias are summed and poses and mimic joints composed.
    """
    links, joints = _expand(links, joints)
    with np.errstate(over="ignore", invalid="ignore"):
        bodies, frames = _weld(links, joints)
        _check_range(bodies, frames, dtype)
    return bodies, frames


# ------------------------------------------------------------------------------ expand and weld


def _expand(links: Sequence[Link], joints: list[JointSpec]) -> tuple[list[Link], list[JointSpec]]:
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
            own = {f: getattr(joint, f)[q : q + stage.nq] for f in POSITION_FIELDS}
            own |= {f: getattr(joint, f)[v : v + stage.nv] for f in DOF_FIELDS}
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
    kind: Joint
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
        if isinstance(joint.kind, Joint):
            bodies.append(_Body(joint, joint.kind, body, H, np.zeros(10)))
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


# ----------------------------------------------------------------------------------------- range


def _check_range(bodies: list[_Body], frames: list[_Frame], dtype: np.dtype) -> None:
    """Raise ModelError for the first number that `dtype` cannot hold. Limits may be infinite."""
    joints = [body.joint for body in bodies]
    by_name = {joint.name: i for i, joint in enumerate(joints)}
    for body in bodies:
        joint = body.joint
        numbers = {
            "placement": body.placement,
            **{field: getattr(joint, field) for field in ("damping", "friction", "armature")},
            **{field: getattr(body.kind, field, 0.0) for field in ("axis", "pitch")},
        }
        if isinstance(joint.mimic, Mimic):
            _, *numbers["mimic, with those that it follows,"] = _leader(joints, by_name, joint)
        for what, x in numbers.items():
            if not _fits(x, dtype):
                raise ModelError(
                    f"joint {joint.name!r}: its {what} is beyond the range of {dtype.name}",
                    joint=joint.name,
                )
    for frame in frames:
        if not _fits(frame.pose, dtype):
            raise ModelError(
                f"link {frame.name!r}: its pose on the body that it is welded to is beyond the "
                f"range of {dtype.name}",
                link=frame.name,
            )
    for body in bodies:
        if not _fits(body.inertia, dtype):
            link = body.joint.child
            raise ModelError(
                f"link {link!r}: its inertia, with that of the links welded to it, is beyond the "
                f"range of {dtype.name}",
                link=link,
            )


def _fits(x: Numbers | list[float], dtype: np.dtype) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.all(np.isfinite(np.asarray(x, dtype=float).astype(dtype))))


# -------------------------------------------------------------------------------------- assemble


def _stacked(bodies: list[_Body], frames: list[_Frame], gravity: np.ndarray, name: str) -> Model:
    joints, kinds = [body.joint for body in bodies], [body.kind for body in bodies]
    topology = Topology(
        parents=tuple(body.parent for body in bodies),
        nqs=tuple(kind.nq for kind in kinds),
        nvs=tuple(kind.tree_nv for kind in kinds),
    )
    of_kind: dict[Any, list[int]] = {}
    for i, kind in enumerate(kinds):
        of_kind.setdefault(jax.tree.structure(kind), []).append(i)
    independent = [joint for joint in joints if joint.mimic is None]
    numbers = {
        "placement": _poses([body.placement for body in bodies]),
        "inertia": np.array([body.inertia for body in bodies]).reshape(-1, 10),
        "joints": tuple(_stack([kinds[i] for i in index]) for index in of_kind.values()),
        "frame_pose": _poses([frame.pose for frame in frames]),
        "gravity": gravity,
        "armature": _over(joints, "armature"),
        "damping": _over(joints, "damping"),
        "friction": _over(joints, "friction"),
        "lower_position_limit": _over(independent, "lower"),
        "upper_position_limit": _over(independent, "upper"),
        "velocity_limit": _over(independent, "velocity_limit"),
        "effort_limit": _over(independent, "effort_limit"),
        "coupling": _couple(joints, kinds),
    }
    dtype = jnp.result_type(float)
    with np.errstate(over="ignore"):  # of limits alone: the rest has been found to fit
        leaves = jax.tree.map(lambda x: jnp.asarray(x, dtype), numbers)
    return Model(
        **leaves,
        topology=topology,
        joint_bodies=tuple(tuple(index) for index in of_kind.values()),
        joint_names=tuple(joint.name for joint in joints),
        body_names=tuple(joint.child for joint in joints),
        frame_names=tuple(frame.name for frame in frames),
        frame_bodies=tuple(frame.body for frame in frames),
        name=name,
    )


def _poses(matrices: list[np.ndarray]) -> Pose:
    H = jnp.asarray(np.array(matrices).reshape(-1, 4, 4))
    return Pose(H[:, :3, :3], H[:, :3, 3])


def _stack(modules: list):
    """Modules of one structure as one, their arrays stacked."""
    return jax.tree.map(lambda *fields: np.stack(fields), *modules)


def _over(joints: list[JointSpec], field: str) -> np.ndarray:
    return np.concatenate([np.zeros(0), *(getattr(joint, field) for joint in joints)])


def _couple(joints: list[JointSpec], kinds: list[Joint]) -> Coupling | None:
    """The joints that follow others as one map from the independent coordinates, or None."""
    if not any(joint.mimic for joint in joints):
        return None
    q_width, v_width = [kind.nq for kind in kinds], [kind.nv for kind in kinds]
    follows = np.array([joint.mimic is not None for joint in joints])
    # Where the coordinates of each joint start among the independent ones, and among all.
    q_start, v_start = (_starts(np.where(follows, 0, w)) for w in (q_width, v_width))
    q_own, v_own = _starts(q_width), _starts(v_width)
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
            q=tuple(int(q_own[i]) for i, _ in group),
            v=tuple(int(v_own[i]) for i, _ in group),
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
    """The joint that `joint` follows in the end, itself where none; the multiplier, the offset."""
    leader, scale, shift = by_name[joint.name], 1.0, 0.0
    while isinstance(mimic := joints[leader].mimic, Mimic):
        shift += scale * mimic.offset
        scale *= mimic.multiplier
        leader = by_name[mimic.joint]
    return leader, scale, shift


def _starts(widths) -> np.ndarray:
    """Where each run of so many coordinates starts."""
    return np.cumsum([0, *widths])[:-1]
