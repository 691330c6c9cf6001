"""Tendons: lengths, moment arms and forces of cables and coupled joints.

`FixedTendon` is a sum of joint coordinates. `SpatialTendon` is a path over points, past spheres and
around cylinders, with pulleys. `RotationAngle` is the angle of a spherical joint, in place of a
length. `Tendons` has the tendons of a robot with their springs, damping, friction, limits and
armature.
"""

from .paths import FixedTendon, PathPoint, Pulley, RotationAngle, SpatialTendon, Wrap
from .tendons import Tendons, tendon_dynamics

__all__ = [
    "FixedTendon",
    "PathPoint",
    "Pulley",
    "RotationAngle",
    "SpatialTendon",
    "Tendons",
    "Wrap",
    "tendon_dynamics",
]
