"""Whether a description is one of a robot: names, tree, numbers, and inertias that can exist."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from ..errors import ModelError
from ..joints import evaluate, is_rotation
from .description import DOF_FIELDS, POSITION_FIELDS, Follow, JointSpec, Link, stages


def checked(links: Sequence[Link], joints: Sequence[JointSpec]) -> list[JointSpec]:
    """The joints with their numbers as arrays over their coordinates, once everything is checked.

    Raises ModelError as `jaxrbd.model.builder.build_model` documents it.
    """
    for link in links:
        _check_link(link)
    joints = [_check_joint(joint) for joint in joints]
    _check_tree(links, joints)
    by_name = {joint.name: joint for joint in joints}
    for joint in joints:
        _check_mimic(joint, by_name)
    return joints


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
    with np.errstate(over="ignore", invalid="ignore"):
        c = h / mass
        about_com = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        about_com = about_com - mass * (c @ c * np.eye(3) - np.outer(c, c))
    if not np.all(np.isfinite(about_com)):
        return f"mass {mass:.4g} kg does not go with mass moment {h} kg m and inertia"
    # What the subtraction above may leave where the true moment is zero, as for a point mass.
    rounding = 1e-12 * (xx + yy + zz)
    small, middle, large = (
        0.0 if abs(x) <= rounding else x for x in np.linalg.eigvalsh(about_com).tolist()
    )
    moments = f"principal moments {small:.4g}, {middle:.4g}, {large:.4g} kg m^2"
    if small < -1e-6 * abs(large) - rounding:
        return f"inertia not positive semidefinite, {moments}"
    if small + middle < large * (1 - 1e-6) - rounding:
        return f"triangle inequality violated, {moments}"
    return None


def _check_link(link: Link) -> None:
    inertia = np.asarray(link.inertia, dtype=float)
    fault = None
    if inertia.shape != (10,):
        fault = f"inertia has shape {inertia.shape}, expected (10,)"
    elif not np.all(np.isfinite(inertia)):
        fault = "inertia is not finite"
    elif inertia[0] < 0:
        fault = f"mass {inertia[0]:g} is negative"
    if fault:
        raise ModelError(f"link {link.name!r}: {fault}", link=link.name)


def _check_joint(joint: JointSpec) -> JointSpec:
    try:
        numbers = {"placement": _rigid(joint.placement)}
        parts = stages(joint.kind)
        for stage in parts:
            stage.check_parameters()
        nq, nv = sum(s.nq for s in parts), sum(s.nv for s in parts)
        for field, default in POSITION_FIELDS.items():
            numbers[field] = _sized(joint, field, default, nq)
        for field, default in DOF_FIELDS.items():
            numbers[field] = _sized(joint, field, default, nv)
            if np.any(numbers[field] < 0):
                raise ValueError(f"{field} {numbers[field]} is negative")
        for field in ("damping", "friction", "armature"):
            if not np.all(np.isfinite(numbers[field])):
                raise ValueError(f"{field} {numbers[field]} is not finite")
        if np.any(numbers["lower"] > numbers["upper"]):
            raise ValueError(f"lower limit {numbers['lower']} above upper limit {numbers['upper']}")
        if joint.mimic is not None and (nq, nv) != (1, 1):
            raise ValueError(f"mimic needs a joint of one dof, this one has {nv}")
    except ValueError as fault:
        raise ModelError(f"joint {joint.name!r}: {fault}", joint=joint.name) from None
    return dataclasses.replace(joint, **numbers)


def _rigid(placement: np.ndarray) -> np.ndarray:
    H = np.asarray(placement, dtype=float)
    if H.shape != (4, 4):
        raise ValueError(f"placement has shape {H.shape}, expected (4, 4)")
    if not np.all(np.isfinite(H)):
        raise ValueError("placement is not finite")
    if not is_rotation(H[:3, :3]) or not np.array_equal(H[3], [0, 0, 0, 1]):
        raise ValueError("placement is no rigid pose [[R, p], [0, 0, 0, 1]] with R a rotation")
    return H


def _sized(joint: JointSpec, field: str, default: float, size: int) -> np.ndarray:
    given = getattr(joint, field)
    value = np.asarray(default if given is None else given, dtype=float)
    if value.shape not in ((), (size,)):
        raise ValueError(f"{field} has shape {value.shape}, expected a number or ({size},)")
    if np.any(np.isnan(value)):
        raise ValueError(f"{field} is NaN")
    return np.broadcast_to(value, (size,))


def _check_tree(links: Sequence[Link], joints: Sequence[JointSpec]) -> None:
    known: set[str | None] = {None}
    for link in links:
        if not link.name or link.name in known:
            raise ModelError(f"link name {link.name!r} is empty or taken", link=link.name)
        known.add(link.name)
    taken: set[str] = set()
    hangs_on: dict[str, JointSpec] = {}
    for joint in joints:
        fault = None
        if not joint.name or joint.name in taken:
            fault = "its name is empty or taken"
        elif joint.parent not in known:
            fault = f"parent link {joint.parent!r} is unknown"
        elif joint.child not in known or joint.child is None:
            fault = f"child link {joint.child!r} is unknown"
        elif joint.child in hangs_on:
            fault = f"link {joint.child!r} is already the child of {hangs_on[joint.child].name!r}"
        if fault:
            raise ModelError(f"joint {joint.name!r}: {fault}", joint=joint.name)
        taken.add(joint.name)
        hangs_on[joint.child] = joint
    for link in links:
        if link.name not in hangs_on:
            raise ModelError(
                f"link {link.name!r} hangs on no joint; to weld it to the world, state a Fixed "
                f"joint with parent None",
                link=link.name,
            )
    _check_cycles(links, hangs_on)


def _check_cycles(links: Sequence[Link], hangs_on: dict[str, JointSpec]) -> None:
    rooted: set[str] = set()
    for link in links:
        path: dict[str, None] = {}  # an ordered set
        at: str | None = link.name
        while at is not None and at not in rooted:
            if at in path:
                ring = list(path)[list(path).index(at) :]
                raise ModelError(f"links form a cycle: {ring}", link=at, joint=hangs_on[at].name)
            path[at] = None
            at = hangs_on[at].parent
        rooted.update(path)


def _check_mimic(joint: JointSpec, by_name: dict[str, JointSpec]) -> None:
    if isinstance(joint.mimic, Follow):
        _check_follow(joint, joint.mimic, by_name)
        return
    seen = [joint.name]
    at = joint
    while at.mimic is not None:
        if isinstance(at.mimic, Follow):
            raise ModelError(
                f"joint {joint.name!r}: mimics {at.name!r}, which is a function of others; state "
                f"its own Follow of {list(at.mimic.joints)}",
                joint=joint.name,
            )
        leader = by_name.get(at.mimic.joint)
        if leader is None:
            raise ModelError(
                f"joint {at.name!r}: mimics unknown joint {at.mimic.joint!r}", joint=at.name
            )
        if not np.all(np.isfinite([at.mimic.multiplier, at.mimic.offset])):
            raise ModelError(f"joint {at.name!r}: mimic is not finite", joint=at.name)
        if leader.name in seen:
            raise ModelError(f"joints mimic each other in a ring: {seen}", joint=at.name)
        if sum(s.nv for s in stages(leader.kind)) != 1:
            raise ModelError(
                f"joint {at.name!r}: mimics joint {leader.name!r}, which has not one dof",
                joint=at.name,
            )
        seen.append(leader.name)
        at = leader


def _check_follow(joint: JointSpec, follow: Follow, by_name: dict[str, JointSpec]) -> None:
    fault = None if follow.joints else "follows no joint"
    for name in follow.joints:
        leader = by_name.get(name)
        if leader is None:
            fault = f"follows unknown joint {name!r}"
        elif leader.mimic is not None:
            fault = f"follows joint {name!r}, which follows others itself"
        elif sum(s.nv for s in stages(leader.kind)) != 1:
            fault = f"follows joint {name!r}, which has not one dof"
    if fault is None:
        try:
            value = np.asarray(evaluate(follow.function, jnp.zeros(len(follow.joints)), "function"))
        except ValueError as error:
            fault = str(error)
        else:
            if value.size != 1 or value.dtype.kind != "f" or not np.all(np.isfinite(value)):
                fault = f"its function gives {value!r} at zero, expected a finite number"
    if fault:
        raise ModelError(f"joint {joint.name!r}: {fault}", joint=joint.name)
