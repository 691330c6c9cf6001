"""Passive forces: springs, nonlinear damping and gravity compensation.

A passive force is a pytree, and all of its parameters are leaves. A call returns the generalized
force tau (nv,) for `forward_dynamics` or `contact_step`.
"""

from .armature import FixedAxesArmature
from .damping import PolynomialDamping
from .forces import PassiveForces
from .gravity import GravityCompensation
from .springs import JointSprings

__all__ = [
    "FixedAxesArmature",
    "GravityCompensation",
    "JointSprings",
    "PassiveForces",
    "PolynomialDamping",
]
