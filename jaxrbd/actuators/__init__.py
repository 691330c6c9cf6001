"""Joint forces: actuators with their controllers, delays and filters of commands.

An actuator is a pytree, and all of its parameters are leaves. A call returns the generalized force
tau (nv,) for `forward_dynamics` or `contact_step`.
"""

from .affine import AffineActuators
from .dc_motor import DCMotor
from .delay import Delay
from .filter import Filter
from .muscle import Muscles, activation_time
from .pd import PD
from .transmissions import BallTorque, FrameDisplacement, FrameForce, SliderCrank

__all__ = [
    "PD",
    "AffineActuators",
    "BallTorque",
    "DCMotor",
    "Delay",
    "Filter",
    "FrameDisplacement",
    "FrameForce",
    "Muscles",
    "SliderCrank",
    "activation_time",
]
