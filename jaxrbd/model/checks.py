"""Checks of a description: names, the tree, parameters, and inertias."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from ..errors import ModelError
from ..joints import Joint, evaluate, is_rotation
from .description import (
    DOF_FIELDS,
    POSITION_FIELDS,
    Compound,
    Fixed,
    Follow,
    JointSpec,
    Link,
    Mimic,
    inertia_about_com,
    shaped,
    stages,
)
from .geometry import checked_geometry
from .parameters import require_type, text


def checked(links: Sequence[Link], joints: Sequence[JointSpec]) -> list[JointSpec]:
    """The joints after all checks, with limits and other parameters as arrays (nq,) or (nv,).

    Raises ModelError; `jaxrbd.model.build_model` lists the causes.
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
    """For each link whose inertia no rigid body can have, a message with the reason.

    About the centre of mass, the principal moments must be non-negative and satisfy the triangle
    inequality. A massless link must have zero inertia. The relative tolerance is 1e-6, because
    files hold rounded values.
    """
    faults = {}
    for link in links:
        reason = _inertia_fault(np.asarray(link.inertia, float))
        if reason:
            faults[link.name] = f"link {link.name!r}: {reason}"
    return faults


def _inertia_fault(inertia: np.ndarray) -> str | None:
    """The reason why no rigid body can have the inertia (10,), or None."""
    mass, h = inertia[0], inertia[1:4]
    if mass == 0:
        return "mass 0 with rotational inertia or mass moment" if np.any(inertia[1:]) else None
    with np.errstate(over="ignore", invalid="ignore"):
        _, _, about_com = inertia_about_com(inertia)
    if not np.all(np.isfinite(about_com)):
        return f"mass {mass:.4g} kg does not fit mass moment {h} kg m and inertia"
    # The rounding error of the subtraction. A smaller moment counts as zero (a point mass).
    rounding = 1e-12 * np.sum(inertia[[4, 6, 9]])
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
    """Raise ModelError, which names the link, for an invalid inertia or an invalid shape."""
    require_type(link, "an entry of links", Link)
    text(link.name, "the name of a link")
    fault = None
    try:
        inertia = shaped(link.inertia, "inertia", (10,))
    except ValueError as error:
        fault = str(error)
    else:
        if not np.all(np.isfinite(inertia)):
            fault = "inertia is not finite"
        elif inertia[0] < 0:
            fault = f"mass {inertia[0]:g} is negative"
    for kind in ("visuals", "collisions"):
        try:
            for geometry in getattr(link, kind):
                checked_geometry(geometry)
        except (TypeError, ValueError) as error:
            fault = fault or f"{kind}: {error}"
    if fault:
        raise ModelError(f"link {link.name!r}: {fault}", link=link.name)


def _check_joint(joint: JointSpec) -> JointSpec:
    """The joint with its parameters as arrays. Raises ModelError, which names the joint."""
    require_type(joint, "an entry of joints", JointSpec)
    text(joint.name, "the name of a joint")
    try:
        _check_types(joint)
        values = {"placement": _rigid(joint.placement)}
        parts = stages(joint.kind)
        for stage in parts:
            stage.check_parameters()
        nq, nv = sum(s.nq for s in parts), sum(s.nv for s in parts)
        for field, default in POSITION_FIELDS.items():
            values[field] = _sized(joint, field, default, nq)
        for field, default in DOF_FIELDS.items():
            values[field] = _sized(joint, field, default, nv)
            if np.any(values[field] < 0):
                raise ValueError(f"{field} {values[field]} is negative")
        for field in ("damping", "friction", "armature"):
            if not np.all(np.isfinite(values[field])):
                raise ValueError(f"{field} {values[field]} is not finite")
        if np.any(values["lower"] > values["upper"]):
            raise ValueError(f"lower limit {values['lower']} above upper limit {values['upper']}")
        if joint.mimic is not None and (nq, nv) != (1, 1):
            raise ValueError(f"mimic needs a joint with one dof, this joint has {nv}")
    except ValueError as fault:
        raise ModelError(f"joint {joint.name!r}: {fault}", joint=joint.name) from None
    return dataclasses.replace(joint, **values)


def _check_types(joint: JointSpec) -> None:
    """Raise ValueError for a kind, a mimic or the name of a link of another type."""
    if not isinstance(joint.kind, Joint | Fixed | Compound):
        raise ValueError(
            f"kind is {joint.kind!r}, expected an object of a class of jaxrbd.joints, such as "
            f"Revolute((0, 0, 1)), a Fixed or a Compound"
        )
    for field in ("parent", "child"):
        if (link := getattr(joint, field)) is not None:
            text(link, field)
    if isinstance(joint.mimic, Mimic):
        text(joint.mimic.joint, "mimic.joint")
        for field in ("multiplier", "offset"):
            shaped(getattr(joint.mimic, field), f"mimic.{field}", ())
    elif not isinstance(joint.mimic, Follow | None):
        raise ValueError(f"mimic is {joint.mimic!r}, expected a Mimic, a Follow or None")


def _rigid(placement: np.ndarray) -> np.ndarray:
    """The placement as a float array (4, 4). Raises ValueError if it is no rigid pose."""
    H = shaped(placement, "placement", (4, 4))
    if not np.all(np.isfinite(H)):
        raise ValueError("placement is not finite")
    if not is_rotation(H[:3, :3]) or not np.array_equal(H[3], [0, 0, 0, 1]):
        raise ValueError("placement is no rigid pose [[R, p], [0, 0, 0, 1]] with R a rotation")
    return H


def _sized(joint: JointSpec, field: str, default: float, size: int) -> np.ndarray:
    """A field of the joint as a float array (size,); `default` replaces None."""
    given = getattr(joint, field)
    value = shaped(default if given is None else given, field, (), (size,))
    if np.any(np.isnan(value)):
        raise ValueError(f"{field} is NaN")
    return np.broadcast_to(value, (size,))


def _check_tree(links: Sequence[Link], joints: Sequence[JointSpec]) -> None:
    """Raise ModelError unless the names are unique and the links form trees on the world."""
    known: set[str | None] = {None}
    for link in links:
        if not link.name or link.name in known:
            raise ModelError(f"link name {link.name!r} is empty or used twice", link=link.name)
        known.add(link.name)
    taken: set[str] = set()
    parent_joints: dict[str, JointSpec] = {}
    for joint in joints:
        fault = None
        if not joint.name or joint.name in taken:
            fault = "its name is empty or used twice"
        elif joint.parent not in known:
            fault = f"parent link {joint.parent!r} is unknown"
        elif joint.child not in known or joint.child is None:
            fault = f"child link {joint.child!r} is unknown"
        elif joint.child in parent_joints:
            fault = (
                f"link {joint.child!r} is already the child of {parent_joints[joint.child].name!r}"
            )
        if fault:
            raise ModelError(f"joint {joint.name!r}: {fault}", joint=joint.name)
        taken.add(joint.name)
        parent_joints[joint.child] = joint
    for joint in joints:
        for name in joint.stage_names:
            if name in taken or name in known:
                raise ModelError(
                    f"joint {joint.name!r}: its stage {name!r} has the name of another joint or of "
                    "a link",
                    joint=joint.name,
                )
    for link in links:
        if link.name not in parent_joints:
            raise ModelError(
                f"link {link.name!r} is the child of no joint; to weld it to the world, add a "
                f"Fixed joint with parent None",
                link=link.name,
            )
    _check_cycles(links, parent_joints)


def _check_cycles(links: Sequence[Link], parent_joints: dict[str, JointSpec]) -> None:
    """Raise ModelError for links that form a cycle. `parent_joints`: the joint above each link."""
    rooted: set[str] = set()
    for link in links:
        path: dict[str, None] = {}  # an ordered set
        name: str | None = link.name
        while name is not None and name not in rooted:
            if name in path:
                ring = list(path)[list(path).index(name) :]
                joint = parent_joints[name].name
                raise ModelError(f"links form a cycle: {ring}", link=name, joint=joint)
            path[name] = None
            name = parent_joints[name].parent
        rooted.update(path)


def _check_mimic(joint: JointSpec, by_name: dict[str, JointSpec]) -> None:
    """Raise ModelError for an invalid rule of the joint or of a joint in its chain of leaders."""
    if isinstance(joint.mimic, Follow):
        _check_follow(joint, joint.mimic, by_name)
        return
    seen = [joint.name]
    follower = joint
    while follower.mimic is not None:
        if isinstance(follower.mimic, Follow):
            raise ModelError(
                f"joint {joint.name!r}: mimics {follower.name!r}, which is a function of others; "
                f"state a Follow of {list(follower.mimic.joints)}",
                joint=joint.name,
            )
        leader = by_name.get(follower.mimic.joint)
        if leader is None:
            raise ModelError(
                f"joint {follower.name!r}: mimics unknown joint {follower.mimic.joint!r}",
                joint=follower.name,
            )
        if not np.all(np.isfinite([follower.mimic.multiplier, follower.mimic.offset])):
            raise ModelError(f"joint {follower.name!r}: mimic is not finite", joint=follower.name)
        if leader.name in seen:
            raise ModelError(f"joints mimic each other in a ring: {seen}", joint=follower.name)
        if sum(s.nv for s in stages(leader.kind)) != 1:
            raise ModelError(
                f"joint {follower.name!r}: mimics joint {leader.name!r}, which does not have one "
                f"dof",
                joint=follower.name,
            )
        seen.append(leader.name)
        follower = leader


def _check_follow(joint: JointSpec, follow: Follow, by_name: dict[str, JointSpec]) -> None:
    """Raise ModelError for invalid leaders of a `Follow`, or an invalid value of its function."""
    fault = None if follow.joints else "follows no joint"
    for name in follow.joints:
        leader = by_name.get(name)
        if leader is None:
            fault = f"follows unknown joint {name!r}"
        elif leader.mimic is not None:
            fault = f"follows joint {name!r}, which also follows others"
        elif sum(s.nv for s in stages(leader.kind)) != 1:
            fault = f"follows joint {name!r}, which does not have one dof"
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
