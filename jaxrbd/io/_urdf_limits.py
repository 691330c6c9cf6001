"""Limits of joints that are valid, but that the author of a file probably did not mean.

A velocity limit of 0 often stands for an unknown limit. An effort limit of 0 is not doubtful: no
motor drives the joint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..joints import Joint, subspace_rows
from ..model.description import JointSpec

# Two turns in degrees. Limits in degrees are seldom larger; larger limits stand for no limit.
_DEGREES = 720.0


def doubtful_limits(joints: Sequence[JointSpec]) -> dict[str, list[str]]:
    """The names of the joints with each kind of doubtful limits; each key describes a kind.

    `joints`: as `parse_urdf` returns them. The limits of joints that follow others are not
    checked, because a model does not have them.
    """
    moving = [joint for joint in joints if joint.mimic is None]
    found = {text: [joint.name for joint in moving if test(joint)] for text, test in _KINDS.items()}
    return {text: names for text, names in found.items() if names}


def _is_kept_at_rest(joint: JointSpec) -> bool:
    return joint.velocity_limit is not None and not np.any(joint.velocity_limit)


def _has_no_range(joint: JointSpec) -> bool:
    return bool(joint.lower is not None and joint.lower == joint.upper)


def _has_degrees(joint: JointSpec) -> bool:
    if not isinstance(joint.kind, Joint) or joint.lower is None or joint.upper is None:
        return False
    if not np.any(subspace_rows(joint.kind)[:, 3:]):  # a sliding joint
        return False
    largest = max(np.max(np.abs(joint.lower)), np.max(np.abs(joint.upper)))
    return bool(4 * np.pi < largest <= _DEGREES)


_KINDS: dict[str, Callable[[JointSpec], bool]] = {
    "velocity limit 0: differential inverse kinematics keeps the joint at rest": _is_kept_at_rest,
    "equal lower and upper limits: the joint cannot move": _has_no_range,
    "limits beyond two turns: degrees? URDF files state radians": _has_degrees,
}
