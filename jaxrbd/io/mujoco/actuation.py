"""Actuators and joint springs of a compiled MuJoCo model."""

from __future__ import annotations

import numpy as np

from ...actuators import AffineActuators, JointSprings
from .source import Source


def read_actuators(source: Source) -> tuple[AffineActuators, list[int]]:
    """The actuators on hinges and slides, and the index of each control in MuJoCo's `ctrl`."""
    m = source.m
    kept, controls = [], []
    if source.disabled("ACTUATION"):
        return AffineActuators(()), []
    addresses = source.field("actuator_ctrladr", np.arange(len(source.actuators)))
    for actuator, name in enumerate(source.actuators):
        fault = _fault(source, actuator)
        if fault:
            source.omit(f"actuator {name!r}: {fault}")
        else:
            kept.append(actuator)
            controls.append(int(addresses[actuator]))
    joints = [source.driven_joint(actuator) for actuator in kept]
    constant_gain = [source.kind("Gain", m.actuator_gaintype[i]) == "fixed" for i in kept]
    no_bias = [source.kind("Bias", m.actuator_biastype[i]) == "none" for i in kept]
    gain, bias = (x[kept][:, :3].copy() for x in (m.actuator_gainprm, m.actuator_biasprm))
    gain[constant_gain, 1:] = 0
    bias[no_bias] = 0
    disabled = [bool(m.opt.disableactuator >> m.actuator_group[i] & 1) for i in kept]
    gain[disabled] = 0
    bias[disabled] = 0
    clamped = m.actuator_ctrllimited[controls].astype(bool) & (not source.disabled("CLAMPCTRL"))
    driven = np.array([*dict.fromkeys(joints)], int)
    return AffineActuators(
        [source.joints[joint] for joint in joints if joint is not None],
        gain,
        bias,
        [source.gear(actuator) for actuator in kept],
        _bounds(m.actuator_ctrlrange[controls], clamped),
        _bounds(m.actuator_forcerange[kept], m.actuator_forcelimited[kept]),
        _bounds(m.jnt_actfrcrange[driven], m.jnt_actfrclimited[driven]),
        [source.actuators[actuator] for actuator in kept],
    ), controls


def _fault(source: Source, actuator: int) -> str | None:
    """The feature of an actuator that is not carried over, or None."""
    m = source.m
    transmission = source.kind("Trn", m.actuator_trntype[actuator])
    if source.driven_joint(actuator) is None:
        if transmission.startswith("joint"):
            joint = source.joints[m.actuator_trnid[actuator, 0]]
            return f"transmission to the ball or free joint {joint!r}"
        return f"transmission to a {transmission}"
    for what, values, allowed in (
        ("Dyn", m.actuator_dyntype, ("none",)),
        ("Gain", m.actuator_gaintype, ("fixed", "affine")),
        ("Bias", m.actuator_biastype, ("none", "affine")),
    ):
        found = source.kind(what, values[actuator])
        if found not in allowed:
            return f"{what.lower()}type {found}"
    absent = np.zeros(len(source.actuators))
    if source.field("actuator_plugin", absent - 1)[actuator] >= 0:
        return "plugin"
    if source.field("actuator_delay", absent)[actuator] > 0:
        return "delay of the control"
    if source.field("actuator_dampingpoly", absent[:, None])[actuator].any():
        return "polynomial damping"
    return None


def _bounds(limits: np.ndarray, limited: np.ndarray) -> np.ndarray:
    """The bounds (n, 2), infinite where there is no limit."""
    out = np.tile([-np.inf, np.inf], (len(limits), 1))
    chosen = np.asarray(limited, bool)
    out[chosen] = limits[chosen]
    return out


def read_springs(source: Source) -> JointSprings:
    """The springs of the joints with stiffness."""
    m = source.m
    if source.disabled("SPRING", "PASSIVE"):
        return JointSprings()
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
    start = m.jnt_qposadr[balls].astype(int)[:, None]
    return JointSprings(
        [source.joints[joint] for joint in scalar],
        np.array(m.jnt_stiffness[scalar]),
        m.qpos_spring[m.jnt_qposadr[scalar]],
        [source.joints[joint] for joint in balls],
        np.array(m.jnt_stiffness[balls]),
        m.qpos_spring[start + np.array([1, 2, 3, 0])],
    )
