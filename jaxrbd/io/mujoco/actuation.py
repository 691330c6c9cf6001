"""Actuators of a compiled MuJoCo model."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...actuators import AffineActuators, Filter
from ...tendons import Tendons
from .source import Source


class ReadActuators(NamedTuple):
    """The actuators on hinges, slides and tendons, with their activation dynamics.

    - `controls`: for each actuator the index of its control in MuJoCo's `ctrl`;
    - `activations`: for each actuator the index of its activation in MuJoCo's `act`, or -1.
    """

    actuators: AffineActuators
    filter: Filter
    controls: list[int]
    activations: list[int]


def read_actuators(source: Source, tendons: Tendons) -> ReadActuators:
    """The actuators on hinges, slides and tendons; the others are added to `omitted`.

    MuJoCo clips the control of an actuator with dynamics before the filter, and the filtered
    control only by the range of the activation.
    """
    m = source.m
    kept, controls = [], []
    if source.disabled("ACTUATION"):
        return ReadActuators(AffineActuators(()), Filter(()), [], [])
    addresses = source.field("actuator_ctrladr", np.arange(len(source.actuators)))
    for actuator, name in enumerate(source.actuators):
        fault = _fault(source, actuator)
        if fault:
            source.omit(f"actuator {name!r}: {fault}")
        else:
            kept.append(actuator)
            controls.append(int(addresses[actuator]))
    joints = [source.driven_joint(actuator) for actuator in kept]
    target_ids = [int(m.actuator_trnid[actuator, 0]) for actuator in kept]
    ends = [
        tendons.tendons[tendon] if joint is None else source.joints[joint]
        for joint, tendon in zip(joints, target_ids)
    ]
    constant_gain = [source.kind("Gain", m.actuator_gaintype[i]) == "fixed" for i in kept]
    no_bias = [source.kind("Bias", m.actuator_biastype[i]) == "none" for i in kept]
    gain, bias = (x[kept][:, :3].copy() for x in (m.actuator_gainprm, m.actuator_biasprm))
    gain[constant_gain, 1:] = 0
    bias[no_bias] = 0
    disabled = np.array([(m.opt.disableactuator >> m.actuator_group[i]) & 1 for i in kept], bool)
    gain[disabled] = 0
    bias[disabled] = 0
    clamped = m.actuator_ctrllimited[controls].astype(bool) & (not source.disabled("CLAMPCTRL"))
    control_range = _bounds(m.actuator_ctrlrange[controls], clamped)
    tendon_limited = source.field("tendon_actfrclimited", np.zeros(m.ntendon))
    tendon_range = source.field("tendon_actfrcrange", np.zeros((m.ntendon, 2)))
    driven = np.array([*dict.fromkeys(joint for joint in joints if joint is not None)], int)
    tendon_ids = np.array(
        [*dict.fromkeys(i for joint, i in zip(joints, target_ids) if joint is None)], int
    )
    filtered = np.array([source.kind("Dyn", m.actuator_dyntype[i]) != "none" for i in kept], bool)
    unbounded = (-np.inf, np.inf)
    actuators = AffineActuators(
        ends,
        gain,
        bias,
        gear=[source.gear(actuator) for actuator in kept],
        control_range=np.where(filtered[:, None], unbounded, control_range),
        force_range=_bounds(m.actuator_forcerange[kept], m.actuator_forcelimited[kept]),
        joint_force_range=_bounds(m.jnt_actfrcrange[driven], m.jnt_actfrclimited[driven]),
        names=[source.actuators[actuator] for actuator in kept],
        tendon_force_range=_bounds(tendon_range[tendon_ids], tendon_limited[tendon_ids]),
    )
    filters = _read_filter(
        source, kept, filtered, disabled, np.where(filtered[:, None], control_range, unbounded)
    )
    activations = [
        int(m.actuator_actadr[i]) if dynamic else -1 for i, dynamic in zip(kept, filtered)
    ]
    return ReadActuators(actuators, filters, controls, activations)


def _read_filter(
    source: Source,
    kept: list[int],
    filtered: np.ndarray,
    disabled: np.ndarray,
    command_range: np.ndarray,
) -> Filter:
    """The filter of the controls of the actuators `kept`.

    - `filtered`, `disabled`: (n,), whether an actuator has dynamics, and whether its group is
      disabled. MuJoCo only clips the activation of a disabled actuator;
    - `command_range`: (n, 2), the bounds of the controls before the filter.
    """
    m = source.m
    # A filter that is exact and early with the time constant 0 does not change the control.
    time_constant = np.where(filtered, np.maximum(m.actuator_dynprm[kept, 0], 0), 0)
    time_constant[filtered & disabled] = np.inf
    limited = m.actuator_actlimited[kept].astype(bool)
    return Filter(
        time_constant,
        command_range,
        _bounds(m.actuator_actrange[kept], limited & filtered),
        exact=[source.kind("Dyn", m.actuator_dyntype[i]) != "filter" for i in kept],
        early=(~filtered | m.actuator_actearly[kept].astype(bool)).tolist(),
    )


def _fault(source: Source, actuator: int) -> str | None:
    """The feature of an actuator that is not carried over, or None."""
    m = source.m
    transmission = source.kind("Trn", m.actuator_trntype[actuator])
    if source.driven_joint(actuator) is None and transmission != "tendon":
        if transmission.startswith("joint"):
            joint = source.joints[m.actuator_trnid[actuator, 0]]
            return f"transmission to the ball or free joint {joint!r}"
        return f"transmission to a {transmission}"
    for what, values, allowed in (
        ("Dyn", m.actuator_dyntype, ("none", "filter", "filterexact")),
        ("Gain", m.actuator_gaintype, ("fixed", "affine")),
        ("Bias", m.actuator_biastype, ("none", "affine")),
    ):
        found = source.kind(what, values[actuator])
        if found not in allowed:
            return f"{what.lower()}type {found}"
    time_constant = m.actuator_dynprm[actuator, 0]
    if source.kind("Dyn", m.actuator_dyntype[actuator]) == "filter" and time_constant <= 0:
        return f"dyntype filter with the time constant {time_constant:g}"
    n = len(source.actuators)
    if source.field("actuator_plugin", np.full(n, -1))[actuator] >= 0:
        return "plugin"
    if source.field("actuator_delay", np.zeros(n))[actuator] > 0:
        return "delay of the control"
    return None


def _bounds(limits: np.ndarray, limited: np.ndarray) -> np.ndarray:
    """The bounds (n, 2), infinite where there is no limit."""
    out = np.tile([-np.inf, np.inf], (len(limits), 1))
    chosen = np.asarray(limited, bool)
    out[chosen] = limits[chosen]
    return out
