"""Armature and damping of the dofs of a compiled MuJoCo model and of its actuators."""

from __future__ import annotations

import numpy as np

from .source import Source


def armature_of_dofs(source: Source) -> np.ndarray:
    """The armature (nv,), with the armature of the actuators."""
    return source.m.dof_armature + _reflected(source, "actuator_armature")[:, 0]


def damping_of_dofs(source: Source) -> np.ndarray:
    """The linear damping (nv,), with the damping of the actuators."""
    if source.disabled("DAMPER", "PASSIVE"):
        return np.zeros(source.m.nv)
    return source.m.dof_damping + _reflected(source, "actuator_damping")[:, 0]


def damping_polynomials(source: Source) -> np.ndarray:
    """c_1 and c_2 (nv, 2) of the damping coefficients `c_0 + c_1 |v| + c_2 v^2`."""
    zeros = np.zeros((source.m.nv, 2))
    if source.disabled("DAMPER", "PASSIVE"):
        return zeros
    polynomials = source.field("dof_dampingpoly", zeros)
    return polynomials + _reflected(source, "actuator_dampingpoly", 2)


def damped_along_world_axes(source: Source, joint: int) -> bool:
    """Whether a joint is free, with different linear damping along the three axes of the world."""
    first = source.m.jnt_dofadr[joint]
    return source.is_free(joint) and bool(np.ptp(damping_of_dofs(source)[first : first + 3]))


def without_zero_terms(coefficients: np.ndarray) -> np.ndarray:
    """The coefficients (n, p) of polynomials; (n,) if all polynomials are constants."""
    return coefficients if coefficients[:, 1:].any() else coefficients[:, 0]


def _reflected(source: Source, field: str, width: int = 1) -> np.ndarray:
    """Sums (nv, width) of gear^2 times a parameter, over the actuators of each hinge or slide."""
    out = np.zeros((source.m.nv, width))
    n = len(source.actuators)
    values = source.field(field, np.zeros((n, width))).reshape(n, width)
    for actuator, row in enumerate(values):
        joint = source.driven_joint(actuator)
        if joint is not None:
            out[source.m.jnt_dofadr[joint]] += source.gear(actuator) ** 2 * row
    return out
