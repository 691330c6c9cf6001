"""Actuators of a compiled MuJoCo model."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...actuators import (
    AffineActuators,
    BallTorque,
    Filter,
    FrameDisplacement,
    FrameForce,
    Muscles,
    SliderCrank,
)
from ...actuators.transmissions import Transmission
from ...tendons import Tendons
from ...tendons.paths import Tendon
from .source import Source


class ReadActuators(NamedTuple):
    """The actuators, with their activation dynamics.

    - `controls`: for each actuator the index of its control in MuJoCo's `ctrl`;
    - `activations`: for each actuator the index of its activation in MuJoCo's `act`, or -1;
    - `delays`: for each actuator the delay of its control in s;
    - `holds`: for each actuator whether the delayed control is the newest control that is at least
      as old as the delay; otherwise it is interpolated between two controls.
    """

    actuators: AffineActuators
    filter: Filter
    controls: list[int]
    activations: list[int]
    delays: np.ndarray
    holds: tuple[bool, ...]


_HOLD, _LINEAR = 0, 1  # the interpolations of delayed controls
# The kinds of activation dynamics of MuJoCo, as kinds of filters.
_DYNAMICS = {
    "none": "exact",
    "filterexact": "exact",
    "filter": "explicit",
    "integrator": "integrator",
    "muscle": "muscle",
}


def read_actuators(source: Source, tendons: Tendons, sites: dict[str, str]) -> ReadActuators:
    """The actuators. Those without a counterpart are added to `source.omitted`.

    `sites`: the frame of each site. MuJoCo clips the control of an actuator with dynamics before
    the filter, and the filtered control only by the range of the activation.
    """
    m = source.m
    if source.disabled("ACTUATION"):
        return ReadActuators(AffineActuators(()), Filter(()), [], [], np.zeros(0), ())
    kept = []
    for actuator, name in enumerate(source.actuators):
        fault = _fault(source, actuator)
        if fault:
            source.omit(f"actuator {name!r}: {fault}")
        else:
            kept.append(actuator)
    addresses = source.field("actuator_ctrladr", np.arange(len(source.actuators)))
    controls = [int(addresses[actuator]) for actuator in kept]
    driven = [_driven(source, actuator, tendons, sites) for actuator in kept]
    joints = _joints_with_force_range(source, kept)
    tendon_ids = [
        *dict.fromkeys(m.actuator_trnid[i, 0] for i in kept if source.transmission(i) == "tendon")
    ]
    gain = _coefficients(source, "Gain", m.actuator_gaintype, m.actuator_gainprm)[kept]
    bias = _coefficients(source, "Bias", m.actuator_biastype, m.actuator_biasprm)[kept]
    disabled = np.array([(m.opt.disableactuator >> m.actuator_group[i]) & 1 for i in kept], bool)
    gain[disabled] = 0
    bias[disabled] = 0
    clamped = m.actuator_ctrllimited[controls].astype(bool) & (not source.disabled("CLAMPCTRL"))
    control_range = _bounds(m.actuator_ctrlrange[controls], clamped)
    tendon_limited = source.field("tendon_actfrclimited", np.zeros(m.ntendon))
    tendon_range = source.field("tendon_actfrcrange", np.zeros((m.ntendon, 2)))
    filtered = np.array([source.kind("Dyn", m.actuator_dyntype[i]) != "none" for i in kept], bool)
    unbounded = (-np.inf, np.inf)
    actuators = AffineActuators(
        driven,
        gain,
        bias,
        gear=[
            # The vectors of other transmissions are multiplied by the gears already.
            source.gear(i) if isinstance(x, str | Tendon | SliderCrank) else 1.0
            for i, x in zip(kept, driven)
        ],
        control_range=np.where(filtered[:, None], unbounded, control_range),
        force_range=_bounds(m.actuator_forcerange[kept], m.actuator_forcelimited[kept]),
        joint_force_range=_bounds(m.jnt_actfrcrange[joints], m.jnt_actfrclimited[joints]),
        names=[source.actuators[actuator] for actuator in kept],
        tendon_force_range=_bounds(tendon_range[tendon_ids], tendon_limited[tendon_ids]),
        muscles=_read_muscles(source, kept, disabled),
        limited_joints=[source.joints[joint] for joint in joints],
        periods=_periods(source, kept, driven),
    )
    filters = _read_filter(
        source, kept, filtered, disabled, np.where(filtered[:, None], control_range, unbounded)
    )
    activations = [
        int(m.actuator_actadr[i]) if dynamic else -1 for i, dynamic in zip(kept, filtered)
    ]
    n = len(source.actuators)
    delays = np.array(source.field("actuator_delay", np.zeros(n)), float)[kept]
    history = source.field("actuator_history", np.zeros((n, 2)))
    holds = tuple(bool(x) for x in history[kept, 1] == _HOLD)
    return ReadActuators(actuators, filters, controls, activations, delays, holds)


def _joints_with_force_range(source: Source, kept: list[int]) -> np.ndarray:
    """The ids of the hinges and slides that the actuators `kept` drive.

    If an actuator drives no single hinge or slide, all hinges and slides with a force range are
    added, because the range limits the sum of the forces on a joint.
    """
    driven = [source.driven_joint(actuator) for actuator in kept]
    joints = [*dict.fromkeys(joint for joint in driven if joint is not None)]
    if None in driven:
        limited = np.flatnonzero(source.m.jnt_actfrclimited).tolist()
        joints = [*dict.fromkeys([*joints, *(x for x in limited if source.is_scalar(x))])]
    return np.array(joints, int)


def _driven(
    source: Source, actuator: int, tendons: Tendons, sites: dict[str, str]
) -> str | Tendon | Transmission:
    """The joint, tendon or transmission that an actuator drives, for `AffineActuators`."""
    m, kind = source.m, source.transmission(actuator)
    first, second = (int(x) for x in m.actuator_trnid[actuator])
    if kind == "tendon":
        return tendons.tendons[first]
    gear = source.gears(actuator)
    force, moment = gear[:3], gear[3:]

    def site(index: int) -> str:
        return sites[source.sites[index]]

    if kind == "site" and second >= 0:
        return FrameDisplacement(site(first), site(second), force, moment)
    if kind == "site":
        return FrameForce(site(first), force, moment)
    if kind == "slidercrank":
        return SliderCrank(site(first), site(second), m.actuator_cranklength[actuator])
    joint, in_parent = source.joints[first], kind == "jointinparent"
    if source.is_scalar(first):
        return joint
    if source.is_free(first):
        body = source.bodies[m.jnt_bodyid[first]]
        return FrameForce(body, force, moment, "world", "world" if in_parent else "frame")
    return BallTorque(joint, gear[:3], in_parent)


def _periods(
    source: Source, kept: list[int], driven: list[str | Tendon | Transmission]
) -> np.ndarray | None:
    """The periods (n,) of position servos of ball joints and of rotations of sites, or None.

    MuJoCo moves the control of such a servo by whole turns. An actuator is a position servo if its
    gain is the negative of the coefficient of the length in its bias.
    """
    m = source.m
    periods = np.full(len(kept), np.inf)
    for place, (i, transmission) in enumerate(zip(kept, driven)):
        kinds = (
            source.kind("Gain", m.actuator_gaintype[i]),
            source.kind("Bias", m.actuator_biastype[i]),
        )
        if kinds != ("fixed", "affine") or m.actuator_gainprm[i, 0] != -m.actuator_biasprm[i, 1]:
            continue
        gear = source.gears(i)
        if isinstance(transmission, BallTorque):
            periods[place] = 2 * np.pi * np.linalg.norm(gear[:3])
        elif isinstance(transmission, FrameDisplacement) and not np.any(gear[:3]):
            periods[place] = 2 * np.pi * np.linalg.norm(gear[3:])
    periods = np.where(periods > 0, periods, np.inf)
    return periods if np.any(np.isfinite(periods)) else None


def _coefficients(source: Source, what: str, kinds: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The gain or the bias (n, 3) of all actuators: coefficients of 1, the length and the rate."""
    names = [source.kind(what, kind) for kind in kinds]
    count = {"fixed": 1, "affine": 3}
    return np.array(
        [np.where(np.arange(3) < count.get(name, 0), x[:3], 0) for name, x in zip(names, values)]
    ).reshape(-1, 3)


def _read_muscles(source: Source, kept: list[int], disabled: np.ndarray) -> Muscles | None:
    """The muscles among the actuators `kept`, or None; `disabled` (n,) as in `_read_filter`."""
    m = source.m
    is_muscle, has_passive_force = (
        np.array([source.kind(what, kinds[i]) == "muscle" for i in kept], bool)
        for what, kinds in (("Gain", m.actuator_gaintype), ("Bias", m.actuator_biastype))
    )
    if not is_muscle.any():
        return None
    values, outputs = m.actuator_gainprm[kept], source.outputs[kept]
    force, scale = values[:, 2], values[:, 3]
    acceleration = np.maximum(m.actuator_acc0[outputs], source.mj.mjMINVAL)
    peak = np.where(force < 0, scale / acceleration, force)
    default = Muscles(np.zeros(len(kept)), np.tile([0.0, 1.0], (len(kept), 1)))
    rows = is_muscle[:, None]
    return Muscles(
        peak_force=np.where(is_muscle & ~disabled, peak, 0),
        length_range=np.where(rows, m.actuator_lengthrange[outputs], default.length_range),
        scaled_range=np.where(rows, values[:, :2], default.scaled_range),
        active_range=np.where(rows, values[:, 4:6], default.active_range),
        largest_speed=np.where(is_muscle, values[:, 6], default.largest_speed),
        passive_peak=np.where(is_muscle & has_passive_force, values[:, 7], 0),
        eccentric_peak=np.where(is_muscle, values[:, 8], default.eccentric_peak),
    )


def _read_filter(
    source: Source,
    kept: list[int],
    filtered: np.ndarray,
    disabled: np.ndarray,
    command_range: np.ndarray,
) -> Filter:
    """The filter of the controls of the actuators `kept`.

    - `filtered`, `disabled`: (n,), whether an actuator has dynamics, and whether its group is
      disabled. MuJoCo keeps the activation of a disabled actuator, but clips it;
    - `command_range`: (n, 2), the bounds of the controls before the filter.
    """
    m = source.m
    dynamics = [source.kind("Dyn", m.actuator_dyntype[i]) for i in kept]
    # An actuator without dynamics has a filter of the kind "exact" with `early` and the time
    # constant 0, which does not change the control. An infinite time constant keeps the activation.
    constant = filtered & disabled
    kinds = np.where(constant, "exact", [_DYNAMICS[x] for x in dynamics])
    time_constant = np.where(filtered, np.maximum(m.actuator_dynprm[kept, 0], 0), 0)
    time_constant[kinds == "integrator"] = 1
    time_constant[constant] = np.inf
    muscle = kinds == "muscle"
    limited = m.actuator_actlimited[kept].astype(bool)
    return Filter(
        time_constant,
        command_range,
        _bounds(m.actuator_actrange[kept], limited & filtered),
        kinds=kinds.tolist(),
        early=(~filtered | m.actuator_actearly[kept].astype(bool)).tolist(),
        release_time=np.where(muscle, m.actuator_dynprm[kept, 1], 1) if muscle.any() else None,
        smoothing=np.where(muscle, m.actuator_dynprm[kept, 2], 0) if muscle.any() else None,
    )


def _fault(source: Source, actuator: int) -> str | None:
    """The feature of an actuator that jaxrbd does not have, or None."""
    m, transmission = source.m, source.transmission(actuator)
    allowed = ("joint", "jointinparent", "tendon", "site", "slidercrank")
    if transmission not in allowed:
        return f"transmission to a {transmission}"
    found = {}
    for what, kinds, allowed in (
        ("dyn", m.actuator_dyntype, (*_DYNAMICS,)),
        ("gain", m.actuator_gaintype, ("fixed", "affine", "muscle")),
        ("bias", m.actuator_biastype, ("none", "affine", "muscle")),
    ):
        found[what] = source.kind(what.title(), kinds[actuator])
        if found[what] not in allowed:
            return f"{what}type {found[what]}"
    muscle_bias = found["bias"] == "muscle"
    if muscle_bias and found["gain"] != "muscle":
        return f"biastype muscle with gaintype {found['gain']}"
    parameters = m.actuator_gainprm[actuator], m.actuator_biasprm[actuator]
    if muscle_bias and np.any(parameters[0][:9] != parameters[1][:9]):
        return "muscle with different parameters of gain and bias"
    times = m.actuator_dynprm[actuator, : 2 if found["dyn"] == "muscle" else 1]
    if found["dyn"] in ("filter", "muscle") and np.any(times <= 0):
        return f"dyntype {found['dyn']} with the time constant {np.min(times):g}"
    if found["gain"] == "muscle" and parameters[0][8] < 1:
        return f"muscle with fvmax {parameters[0][8]:g}"
    n = len(source.actuators)
    for name in ("armature", "damping"):
        driven = transmission == "tendon" or source.driven_joint(actuator) is not None
        if not driven and source.field(f"actuator_{name}", np.zeros(n))[actuator]:
            return f"{name} with a transmission to a {transmission}"
    if source.field("actuator_plugin", np.full(n, -1))[actuator] >= 0:
        return "plugin"
    delay = source.field("actuator_delay", np.zeros(n))[actuator]
    samples, interpolation = source.field("actuator_history", np.zeros((n, 2)))[actuator]
    if delay > 0 and interpolation not in (_HOLD, _LINEAR):
        return "delay of the control with a cubic interpolation"
    if delay > (samples + 1e-4) * m.opt.timestep:
        return f"delay of the control beyond its {int(samples)} samples"
    return None


def _bounds(limits: np.ndarray, limited: np.ndarray) -> np.ndarray:
    """The limits (n, 2), with infinite bounds where the mask `limited` (n,) is false."""
    out = np.tile([-np.inf, np.inf], (len(limits), 1))
    chosen = np.asarray(limited, bool)
    out[chosen] = limits[chosen]
    return out
