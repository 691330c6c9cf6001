"""The bundled robots: URDF files in this folder."""

from __future__ import annotations

from pathlib import Path

from ..errors import ArgumentError
from ..io.urdf import load_urdf
from ..model import Model

_ROOT_JOINT = {
    "pendulum": None,
    "double_pendulum": None,
    "cart_pole": None,
    "arm7": None,
    "quadruped": "free_flyer",
    "humanoid": "free_flyer",
}


def robot_names() -> tuple[str, ...]:
    """The names of the bundled robots, smallest first."""
    return tuple(_ROOT_JOINT)


def robot_path(name: str) -> Path:
    """The URDF file of a bundled robot. Raises `ArgumentError` for an unknown name."""
    if name not in _ROOT_JOINT:
        raise ArgumentError(f"name: expected one of {', '.join(_ROOT_JOINT)}; found {name!r}")
    return Path(__file__).with_name(f"{name}.urdf")


def load_robot(name: str) -> Model:
    """Load a bundled robot; `robot_names` lists the names.

    The quadruped and the humanoid have a free-flyer as root joint; the other robots are welded to
    the world. Raises `ArgumentError` for an unknown name.
    """
    return load_urdf(robot_path(name), root_joint=_ROOT_JOINT[name])
