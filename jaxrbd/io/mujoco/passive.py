"""Passive forces of a compiled MuJoCo model."""

from __future__ import annotations

import numpy as np

from ...passive import GravityCompensation, JointSprings, PassiveForces
from .source import Source


def read_passive(source: Source) -> PassiveForces:
    """The passive forces, without those that the model and the tendons have."""
    if source.passive_disabled:
        return PassiveForces()
    return PassiveForces(_read_springs(source), _read_gravity_compensation(source))


def _read_springs(source: Source) -> JointSprings | None:
    """The springs of the joints with stiffness."""
    m = source.m
    if source.disabled("SPRING"):
        return None
    polynomial = source.field("jnt_stiffnesspoly", np.zeros((m.njnt, 1)))
    plastic = source.field("jnt_springyield", np.zeros(m.njnt))
    scalar, balls = [], []
    for joint, name in enumerate(source.joints):
        if polynomial[joint].any():
            source.omit(f"joint {name!r}: polynomial stiffness")
        if m.jnt_stiffness[joint] == 0:
            continue
        if plastic[joint] > 0:
            source.omit(f"joint {name!r}: springyield")
        elif source.is_free(joint):
            source.omit(f"joint {name!r}: stiffness of a free joint")
        else:
            (scalar if source.is_scalar(joint) else balls).append(joint)
    if not scalar and not balls:
        return None
    start = m.jnt_qposadr[balls].astype(int)[:, None]
    return JointSprings(
        [source.joints[joint] for joint in scalar],
        np.array(m.jnt_stiffness[scalar]),
        m.qpos_spring[m.jnt_qposadr[scalar]],
        [source.joints[joint] for joint in balls],
        np.array(m.jnt_stiffness[balls]),
        m.qpos_spring[start + np.array([1, 2, 3, 0])],
    )


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
