"""Quantities that carry their frames, checked while JAX traces and free in the compiled program.

`Twist(V, body="hand", base="world", frame="hand")` is an array with its frames as static metadata.
Sums, products and changes of frame check them and raise a FrameError that names the operation and
all frames; `jit`, `vmap` and `grad` take the types as they are. `State` hands out the labelled
quantities of a robot.
"""

from .operations import (
    center_of_mass,
    cross,
    dot,
    exp,
    kinetic_energy,
    log,
    log_with_time_derivative,
    newton_euler,
    point_acceleration,
    point_velocity,
)
from .quantities import (
    Frame,
    FreeVector,
    GeometricJacobian,
    Momentum,
    MomentumMatrix,
    Point,
    SpatialAcceleration,
    SpatialInertia,
    Transform,
    Twist,
    Wrench,
    check,
    transform,
)
from .state import WORLD, State

__all__ = [
    # a robot's
    "State",
    "WORLD",
    # the types
    "Frame",
    "FreeVector",
    "GeometricJacobian",
    "Momentum",
    "MomentumMatrix",
    "Point",
    "SpatialAcceleration",
    "SpatialInertia",
    "Transform",
    "Twist",
    "Wrench",
    # checks and changes of frame
    "check",
    "transform",
    # what is computed from them
    "center_of_mass",
    "cross",
    "dot",
    "exp",
    "kinetic_energy",
    "log",
    "log_with_time_derivative",
    "newton_euler",
    "point_acceleration",
    "point_velocity",
]
