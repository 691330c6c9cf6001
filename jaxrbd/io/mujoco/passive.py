"""Passive forces of a compiled MuJoCo model."""

from __future__ import annotations

import numpy as np

from ...passive import (
    FixedAxesArmature,
    GravityCompensation,
    JointSprings,
    PassiveForces,
    PolynomialDamping,
)
from .dof_parameters import damped_along_world_axes, damping_of_dofs, damping_polynomials, shortest
from .source import Source


def read_passive(source: Source) -> PassiveForces:
    """The passive forces, without those that the model and the tendons have."""
    armature = _read_armature(source)
    if source.passive_disabled:
        return PassiveForces(armature=armature)
    return PassiveForces(
        _read_springs(source), _read_gravity_compensation(source), _read_damping(source), armature
    )


def _read_armature(source: Source) -> FixedAxesArmature | None:
    """The free joints whose translation has armature, the same along the three axes."""
    joints = []
    for joint, name in enumerate(source.joints):
        first = source.m.jnt_dofadr[joint]
        armature = source.m.dof_armature[first : first + 3]
        if source.is_free(joint) and armature.any() and not np.ptp(armature):
            joints.append(name)
    return FixedAxesArmature(joints) if joints else None


def _read_springs(source: Source) -> JointSprings | None:
    """The springs of the joints with stiffness."""
    m = source.m
    if source.disabled("SPRING"):
        return None
    polynomials = source.field("jnt_stiffnesspoly", np.zeros((m.njnt, 2)))
    stiffness = np.column_stack([m.jnt_stiffness, polynomials])
    plastic = source.field("jnt_springyield", np.zeros(m.njnt))
    scalar, balls, free = [], [], []
    for joint in np.flatnonzero(stiffness.any(axis=1)).tolist():
        if plastic[joint] > 0:
            source.omit(f"joint {source.joints[joint]!r}: springyield")
            continue
        (scalar if source.is_scalar(joint) else balls).append(joint)
        if source.is_free(joint):
            free.append(joint)
    if not scalar and not balls:
        return None
    first, rest = m.jnt_qposadr.astype(int), np.array(m.qpos_spring)
    quaternion = first + [3 * source.is_free(joint) for joint in range(m.njnt)]
    return JointSprings(
        [source.joints[joint] for joint in scalar],
        shortest(stiffness[scalar]),
        rest[first[scalar]],
        [source.joints[joint] for joint in balls],
        shortest(stiffness[balls]),
        rest[quaternion[balls][:, None] + np.array([1, 2, 3, 0])],
        [source.joints[joint] for joint in free],
        shortest(stiffness[free]),
        rest[first[free][:, None] + np.arange(3)],
    )


def _read_damping(source: Source) -> PolynomialDamping | None:
    """The damping that `Model.damping` does not have."""
    m, polynomials = source.m, damping_polynomials(source)
    coefficients = np.column_stack([np.zeros(m.nv), polynomials])
    for joint in range(m.njnt):
        if damped_along_world_axes(source, joint):
            dofs = slice(m.jnt_dofadr[joint], m.jnt_dofadr[joint] + 3)
            coefficients[dofs, 0] = damping_of_dofs(source)[dofs]
    damped = np.array(m.dof_jntid)[coefficients.any(axis=1)]
    joints = np.unique(damped)
    if not len(joints):
        return None
    rows = coefficients[np.isin(m.dof_jntid, joints)]
    return PolynomialDamping([source.joints[joint] for joint in joints], shortest(rows))


def _read_gravity_compensation(source: Source) -> GravityCompensation | None:
    """The gravity compensation of the bodies that can move.

    MuJoCo may add the compensation of a joint to the forces of its actuators. The sum of all forces
    is the same, except where a range of forces clips this sum, and where there are no actuators.
    """
    m = source.m
    if source.disabled("GRAVITY") or not np.any(m.opt.gravity):
        return None
    kept = np.flatnonzero((np.array(m.body_gravcomp) != 0) & source.moving_bodies())
    if not len(kept):
        return None
    in_actuators = source.field("jnt_actgravcomp", np.zeros(m.njnt))
    without = source.disabled("ACTUATION") or not source.actuators
    for joint in np.flatnonzero(in_actuators):
        name = f"joint {source.joints[joint]!r}"
        if m.jnt_actfrclimited[joint]:
            source.omit(f"{name}: actuatorgravcomp with actuatorfrcrange")
        elif without:
            source.omit(f"{name}: actuatorgravcomp without actuators")
    return GravityCompensation(
        [source.bodies[body] for body in kept],
        np.array(m.body_gravcomp[kept]),
        np.array(m.body_mass[kept]),
        np.array(m.body_ipos[kept]),
    )
