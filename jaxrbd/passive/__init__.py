"""Passive forces: springs, nonlinear damping, gravity compensation and fluid forces.

A passive force is a pytree, and all of its parameters are leaves. A call returns the generalized
force tau (nv,) for `forward_dynamics` or `contact_step`.
"""

from .armature import FixedAxesArmature
from .damping import PolynomialDamping
from .fluid import FluidBoxes, FluidEllipsoids, FluidForces
from .forces import PassiveForces
from .gravity import GravityCompensation
from .springs import JointSprings

__all__ = [
    "FixedAxesArmature",
    "FluidBoxes",
    "FluidEllipsoids",
    "FluidForces",
    "GravityCompensation",
    "JointSprings",
    "PassiveForces",
    "PolynomialDamping",
]
