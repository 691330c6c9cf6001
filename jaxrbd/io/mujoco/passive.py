"""Passive forces of a compiled MuJoCo model."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...passive import (
    FixedAxesArmature,
    FluidBoxes,
    FluidEllipsoids,
    FluidForces,
    GravityCompensation,
    JointSprings,
    PassiveForces,
    PolynomialDamping,
)
from ...spatial import Pose
from .dof_parameters import (
    damped_along_world_axes,
    damping_of_dofs,
    damping_polynomials,
    without_zero_terms,
)
from .source import Source


def read_passive(source: Source) -> PassiveForces:
    """The passive forces except the dissipation of the model and the forces of the tendons."""
    armature = _read_armature(source)
    if source.passive_disabled:
        return PassiveForces(armature=armature)
    return PassiveForces(
        _read_springs(source),
        _read_gravity_compensation(source),
        _read_damping(source),
        armature,
        _read_fluid(source),
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
        joints=[source.joints[joint] for joint in scalar],
        stiffness=without_zero_terms(stiffness[scalar]),
        rest=rest[first[scalar]],
        balls=[source.joints[joint] for joint in balls],
        ball_stiffness=without_zero_terms(stiffness[balls]),
        ball_rest=rest[quaternion[balls][:, None] + np.array([1, 2, 3, 0])],
        positions=[source.joints[joint] for joint in free],
        position_stiffness=without_zero_terms(stiffness[free]),
        position_rest=rest[first[free][:, None] + np.arange(3)],
    )


def _read_damping(source: Source) -> PolynomialDamping | None:
    """The damping that `Model.damping` cannot state.

    The damping of a free joint that differs along the world axes, and coefficients of damping that
    depend on the velocity.
    """
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
    return PolynomialDamping([source.joints[joint] for joint in joints], without_zero_terms(rows))


def _read_gravity_compensation(source: Source) -> GravityCompensation | None:
    """The gravity compensation of the bodies that can move.

    MuJoCo may add the compensation of a joint to the forces of its actuators. The sum of all forces
    is the same, except where a range of forces clips this sum, and where there are no actuators.
    If no body has a positive `gravcomp`, MuJoCo (4.0) ignores negative values too, because its
    `ngravcomp` counts only the bodies with a positive value.
    """
    m = source.m
    if source.disabled("GRAVITY") or not np.any(m.opt.gravity) or not m.ngravcomp:
        return None
    kept = np.flatnonzero((np.array(m.body_gravcomp) != 0) & source.moving_bodies())
    if not len(kept):
        return None
    in_actuators = source.field("jnt_actgravcomp", np.zeros(m.njnt))
    no_actuators = source.disabled("ACTUATION") or not source.actuators
    for joint in np.flatnonzero(in_actuators):
        name = f"joint {source.joints[joint]!r}"
        if m.jnt_actfrclimited[joint]:
            source.omit(f"{name}: actuatorgravcomp with actuatorfrcrange")
        elif no_actuators:
            source.omit(f"{name}: actuatorgravcomp without actuators")
    return GravityCompensation(
        [source.bodies[body] for body in kept],
        np.array(m.body_gravcomp[kept]),
        np.array(m.body_mass[kept]),
        np.array(m.body_ipos[kept]),
    )


def _read_fluid(source: Source) -> FluidForces | None:
    """The forces of the fluid on the bodies that can move.

    The fluid acts on geoms whose `fluidshape` is "ellipsoid". If a body has no such geom, the fluid
    acts on a box with the inertia of the body.
    """
    m = source.m
    for name in ("density", "viscosity"):
        if not getattr(m.opt, name) >= 0:  # a negative value, or NaN
            source.omit(f"option {name} {getattr(m.opt, name):g}")
            return None
    if not (m.opt.density > 0 or m.opt.viscosity > 0):
        return None
    bodies = source.moving_bodies() & (m.body_mass >= source.mj.mjMINVAL)
    geoms = np.flatnonzero((m.geom_fluid[:, 0] > 0) & bodies[m.geom_bodyid])
    boxes = np.setdiff1d(np.flatnonzero(bodies), m.geom_bodyid[geoms])
    for geom in geoms:
        if m.geom_fluid[geom, 0] != 1:
            scale = m.geom_fluid[geom, 0]
            source.omit(f"geom {source.geom_in_text(int(geom))}: fluid interaction {scale:g}")
    geoms = geoms[m.geom_fluid[geoms, 0] == 1]
    if not len(boxes) and not len(geoms):
        return None
    return FluidForces(
        m.opt.density,
        m.opt.viscosity,
        np.array(m.opt.wind),
        _fluid_boxes(source, boxes) if len(boxes) else None,
        _fluid_ellipsoids(source, geoms) if len(geoms) else None,
    )


def _fluid_boxes(source: Source, bodies: np.ndarray) -> FluidBoxes:
    """The boxes with the masses and the principal moments of inertia of the bodies."""
    m = source.m
    inertia, mass = m.body_inertia[bodies], m.body_mass[bodies]
    squares = np.maximum(inertia.sum(axis=1, keepdims=True) - 2 * inertia, source.mj.mjMINVAL)
    poses = [source.pose(m.body_ipos[body], m.body_iquat[body]) for body in bodies]
    names = [source.bodies[body] for body in bodies]
    return FluidBoxes(names, np.sqrt(6 * squares / mass[:, None]), _stacked(poses))


def _fluid_ellipsoids(source: Source, geoms: np.ndarray) -> FluidEllipsoids:
    """The ellipsoids whose semi-axes are half the extents of the geoms."""
    m = source.m
    kinds, semi_axes = source.geom_kinds[geoms], np.array(m.geom_size[geoms])
    spheres, capsules, cylinders = (kinds == kind for kind in ("sphere", "capsule", "cylinder"))
    semi_axes[spheres] = semi_axes[spheres][:, :1]
    for round_geoms in (capsules, cylinders):  # their sizes are the radius and the half length
        semi_axes[round_geoms] = semi_axes[round_geoms][:, [0, 0, 1]]
    semi_axes[capsules, 2] += semi_axes[capsules, 0]
    poses = [source.pose(m.geom_pos[geom], m.geom_quat[geom]) for geom in geoms]
    fluid = np.array(m.geom_fluid[geoms])
    return FluidEllipsoids(
        [source.bodies[m.geom_bodyid[geom]] for geom in geoms],
        semi_axes,
        _stacked(poses),
        coefficients=fluid[:, 1:6],
        added_volume=fluid[:, 6:9],
        added_moment=fluid[:, 9:12],
    )


def _stacked(poses: list[np.ndarray]) -> Pose:
    H: Any = np.stack(poses)
    return Pose(H[:, :3, :3], H[:, :3, 3])
