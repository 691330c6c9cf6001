"""Read and write files: URDF and MJCF robots, saved models and exported programs."""

from .model_file import load_model, save_model
from .mujoco import from_mujoco, load_mjcf
from .program import export_batched, load_program, save_program
from .urdf import load_urdf, parse_urdf, validate_urdf

__all__ = [
    "export_batched",
    "from_mujoco",
    "load_mjcf",
    "load_model",
    "load_program",
    "load_urdf",
    "parse_urdf",
    "save_model",
    "save_program",
    "validate_urdf",
]
