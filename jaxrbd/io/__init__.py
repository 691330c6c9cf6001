"""Read URDF, SRDF and MJCF files; write URDF files; save and load models and exported programs.

The module `jaxrbd.io.pinocchio` converts models of Pinocchio. The module `jaxrbd.io.pytorch` makes
functions of PyTorch tensors.
"""

from . import pinocchio as pinocchio, pytorch as pytorch
from .meshes import read_meshes
from .model_file import load_model, load_parts, save_model
from .mujoco import from_mujoco, load_mjcf
from .packages import find_package_file
from .program import export_batched, load_program, save_program
from .srdf import (
    DisabledCollision,
    EndEffector,
    Group,
    GroupState,
    SemanticDescription,
    VirtualJoint,
    load_srdf,
)
from .urdf import load_urdf, parse_urdf, validate_urdf
from .urdf_writer import save_urdf, urdf_text

__all__ = [
    "DisabledCollision",
    "EndEffector",
    "Group",
    "GroupState",
    "SemanticDescription",
    "VirtualJoint",
    "export_batched",
    "from_mujoco",
    "load_mjcf",
    "find_package_file",
    "load_model",
    "load_parts",
    "load_program",
    "load_srdf",
    "load_urdf",
    "parse_urdf",
    "read_meshes",
    "save_model",
    "save_program",
    "save_urdf",
    "urdf_text",
    "validate_urdf",
]
