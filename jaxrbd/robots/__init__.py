"""The bundled robots, made of boxes, cylinders and spheres, and the bundled mechanisms."""

# tests/support/bundled_robots.py defines the robots, and writes their URDF files in this folder.

from .bundled import home_posture, load_robot, robot_names, robot_path
from .linkages import Linkage, linkage_names, load_linkage

__all__ = [
    "Linkage",
    "home_posture",
    "linkage_names",
    "load_linkage",
    "load_robot",
    "robot_names",
    "robot_path",
]
