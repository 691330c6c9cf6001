"""Actuators: the joint forces that motors and their controllers give."""

from .dc_motor import DCMotor
from .delay import Delay
from .pd import PD

__all__ = ["PD", "DCMotor", "Delay"]
