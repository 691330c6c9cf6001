"""Labelled quantities: arrays with their frames, which are checked while JAX traces.

`Twist(V, body="hand", base="world", frame="hand")` is an array V (6,) with the names of its frames
as static metadata. Sums, products and changes of frame raise a FrameError, which names the
operation and all frames, if the frames do not fit. The compiled program contains no checks. `jit`,
`vmap` and `grad` accept labelled quantities as arguments and results. A `State` computes the
labelled quantities of a robot.
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
    # the state of a robot
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
    # functions of quantities
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
