"""Sensors: what the sensors of a robot measure in one state, and noise.

`RobotSensors` reads many sensors by name. Each function reads sensors of one kind. Readings are
exact; `Noise` adds bias, white noise and quantisation.
"""

from .contacts import Touch, height_scan, touch
from .descriptions import (
    ActuatorSensor,
    FrameSensor,
    JointSensor,
    Sensor,
    StateSensor,
    SubtreeSensor,
    TendonSensor,
)
from .motion import ImuReading, JointReading, imu, joint_encoders, projected_gravity
from .noise import Noise
from .robot_sensors import RobotSensors

__all__ = [
    # all sensors of a robot
    "RobotSensors",
    "Sensor",
    "FrameSensor",
    "JointSensor",
    "TendonSensor",
    "ActuatorSensor",
    "SubtreeSensor",
    "StateSensor",
    # motion
    "ImuReading",
    "imu",
    "projected_gravity",
    "JointReading",
    "joint_encoders",
    # contact and the ground
    "Touch",
    "touch",
    "height_scan",
    # errors of sensors
    "Noise",
]
