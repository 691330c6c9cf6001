"""The robot of a command: a bundled robot, or a file of one of several formats."""

from __future__ import annotations

import argparse
import os
import warnings
from typing import Any, NamedTuple

import jax
import numpy as np

from ..actuators import AffineActuators, Filter
from ..errors import ArgumentError, ContactWarning, InertiaWarning, LimitWarning
from ..io._sealed import is_sealed
from ..io.model_file import load_model_and_parts
from ..io.mujoco import Imported, is_mjcf, load_mjcf
from ..io.urdf import load_urdf
from ..model import Model
from ..model.names import similar_names
from ..passive import PassiveForces
from ..robots import load_robot, robot_names, robot_path
from ..sensors import RobotSensors
from ..tendons import RotationAngle, Tendons
from .messages import warn

MODEL_ENDING = ".jaxrbd"  # the ending of the names of model files

# The parts of an MJCF file that a model file can hold: attributes of `Imported`, with their types.
_SAVED = {
    "actuators": AffineActuators,
    "delays": np.ndarray,
    "delays_hold": tuple,
    "filter": Filter,
    "passive": PassiveForces,
    "tendons": Tendons,
    "sensors": RobotSensors,
}


class Loaded(NamedTuple):
    """A robot: its model, and what its file has besides the model.

    - `parts`: the parts that a model file can hold, by name, as from `load_parts`;
    - `left_out`: the counts of the elements of an MJCF file that no model file can hold, by noun,
      such as "keyframe".
    """

    model: Model
    parts: dict[str, Any]
    left_out: dict[str, int]


def load(robot: str, free_flyer: bool) -> Model:
    """The model of a bundled robot or of a file; warnings go to standard error."""
    loaded = load_with_parts(robot, free_flyer)
    warn_of_parts(robot, counts_of_parts(loaded.parts) | loaded.left_out)
    return loaded.model


def warn_of_parts(robot: str, counts: dict[str, int]) -> None:
    """Print a warning about the parts of a robot that are left out. `counts`: by noun."""
    words = [f"{n} {_plural(what, n)}" for what, n in counts.items() if n]
    if words:
        path = find_file(robot)
        warn(f"{path}: left out: {', '.join(words)}")


def load_with_parts(robot: str, free_flyer: bool) -> Loaded:
    """A bundled robot or the robot of a file; warnings go to standard error."""
    path = find_file(robot)
    if path.endswith(MODEL_ENDING):
        if free_flyer:
            raise ArgumentError(
                f"{path}: --free-flyer is for URDF files; a model file has its joints"
            )
        return Loaded(*load_model_file(path), {})
    mjcf = is_mjcf(path)
    if mjcf and free_flyer:
        raise ArgumentError(f"{path}: --free-flyer is for URDF files; an MJCF file has its joints")
    omitted: tuple[str, ...] = ()
    with warnings.catch_warnings(record=True) as caught:
        for category in (InertiaWarning, ContactWarning, LimitWarning):
            warnings.simplefilter("always", category)
        if robot in robot_names() and not free_flyer:
            loaded = Loaded(load_robot(robot), {}, {})
        elif mjcf:
            found = load_mjcf(path, strict=False)
            parts = {name: getattr(found, name) for name in _SAVED}
            loaded, omitted = Loaded(found.model, parts, _left_out(found)), found.omitted
        else:
            root_joint = "free_flyer" if free_flyer else None
            loaded = Loaded(load_urdf(path, root_joint=root_joint), {}, {})
    for warning in caught:
        warn(warning.message)
    for feature in omitted:
        warn(f"{path}: no counterpart for {feature}")
    return loaded


def load_in_precision(options: argparse.Namespace) -> Model:
    """The model of the robot of a command with the option `--float32`."""
    model = load(options.robot, options.free_flyer)
    return model.astype("float32") if options.float32 else model


def load_model_file(path: str) -> tuple[Model, dict[str, Any]]:
    """The model and the other parts of a model file, in the precision of the file."""
    jax.config.update("jax_enable_x64", True)  # the file may have double precision
    return load_model_and_parts(path)


def find_file(robot: str) -> str:
    """The path of a bundled robot, or the given path.

    Raises ArgumentError if there is neither, and for a file that jaxrbd saved, such as a model
    file, if its name does not end in .jaxrbd.
    """
    if robot in robot_names():
        return str(robot_path(robot))
    if not os.path.isfile(robot):
        raise ArgumentError(_not_found(robot))
    if not robot.endswith(MODEL_ENDING) and is_sealed(robot):
        raise ArgumentError(
            f"{robot}: jaxrbd saved this file, expected a name that ends in {MODEL_ENDING}"
        )
    return robot


def _not_found(robot: str) -> str:
    """The message for a robot that is neither a bundled robot nor a file."""
    if os.path.isdir(robot):
        return f"{robot!r} is a folder, expected a file"
    if os.path.exists(robot):  # such as a pipe: a command reads a file more than once
        return f"{robot!r} is a pipe or a device, expected a file"
    if os.path.splitext(robot)[1].lower() in (".urdf", ".xml", ".mjcf", ".jaxrbd"):
        return f"file not found: {robot!r}"
    hint = similar_names(robot, robot_names())
    return f"no file and no bundled robot {robot!r}; bundled: {', '.join(robot_names())}{hint}"


def counts_of_parts(parts: dict[str, Any]) -> dict[str, int]:
    """The counts of the elements in the parts of an MJCF file, by noun, such as "tendon"."""
    if not all(isinstance(parts.get(name), kind) for name, kind in _SAVED.items()):
        # A file of `save_model` may have other parts.
        return {"part": len(parts)}
    passive, tendons = parts["passive"], parts["tendons"]
    springs, compensation = passive.springs, passive.gravity_compensation
    fluid, damping = passive.fluid, passive.damping
    shapes = () if fluid is None else (fluid.boxes, fluid.ellipsoids)
    rotations = sum(isinstance(tendon, RotationAngle) for tendon in tendons.tendons)
    return {
        "actuator": len(parts["actuators"].joints),
        "delayed control": int(np.count_nonzero(parts["delays"])),
        "spring": 0 if springs is None else len(springs.joints) + len(springs.balls),
        "compensation of gravity": 0 if compensation is None else len(compensation.frames),
        "joint of nonlinear damping": 0 if damping is None else len(damping.joints),
        "shape of the fluid forces": sum(len(x.frames) for x in shapes if x is not None),
        "tendon": len(tendons.names) - rotations,
        "limit of the rotation of a ball": rotations,
        "sensor": len(parts["sensors"].names),
    }


def _left_out(found: Imported) -> dict[str, int]:
    """The counts of the elements of an MJCF file that no model file can hold, by noun."""
    return {
        "contact point": 0 if found.scene is None else len(found.scene.frames),
        "pair of shapes": len(found.pairs),
        "constraint": len(found.constraints) + len(found.inactive_constraints),
        "keyframe": len(found.keyframes),
        "sensor of another kind": len(found.sensors.left_out),
    }


def _plural(noun: str, count: int) -> str:
    head, blank, rest = noun.partition(" of ")
    return noun if count == 1 else f"{head}s{blank}{rest}"
