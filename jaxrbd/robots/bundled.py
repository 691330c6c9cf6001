"""The robots that ship with the package as URDF files of this folder."""

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
    """The names of the robots that ship with the package, smallest first."""
    return tuple(_ROOT_JOINT)


def robot_path(name: str) -> Path:
    """The URDF file of a robot that ships with the package. Raises `ArgumentError`."""
    if name not in _ROOT_JOINT:
        raise ArgumentError(f"name: expected one of {', '.join(_ROOT_JOINT)}; found {name!r}")
    return Path(__file__).with_name(f"{name}.urdf")


def load_robot(name: str) -> Model:
    """Load a robot that ships with the package: see `robot_names`.

    The quadruped and the humanoid stand on a free-flyer, the others are fixed to the world.
    Raises `ArgumentError` for an unknown name.
    """
    return load_urdf(robot_path(name), root_joint=_ROOT_JOINT[name])
