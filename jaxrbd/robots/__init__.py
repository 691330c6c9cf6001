"""The robots of the package, made of boxes, cylinders and spheres.

`_generate.py` defines them and writes the URDF files of this folder.
"""

from .bundled import load_robot, robot_names, robot_path
from .linkages import Linkage, linkage_names, load_linkage

__all__ = [
    "Linkage",
    "linkage_names",
    "load_linkage",
    "load_robot",
    "robot_names",
    "robot_path",
]
