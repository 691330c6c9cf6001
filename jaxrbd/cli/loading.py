"""The robot of a command: a bundled robot, or a file of one of several formats."""

from __future__ import annotations

import argparse
import os
import sys
import warnings

import jax

from ..errors import ArgumentError, ContactWarning, InertiaWarning, LimitWarning
from ..io.model_file import load_model
from ..io.mujoco import Imported, is_mjcf, load_mjcf
from ..io.urdf import load_urdf
from ..model import Model
from ..model.names import similar_names
from ..robots import load_robot, robot_names, robot_path
from ..tendons import RotationAngle

MODEL_ENDING = ".jaxrbd"  # the ending of the names of model files


def load(robot: str, free_flyer: bool) -> Model:
    """The model of a bundled robot or of a file; warnings go to standard error."""
    path = find_file(robot)
    if path.endswith(MODEL_ENDING):
        if free_flyer:
            raise ArgumentError(
                f"{path}: --free-flyer is for URDF files; a model file has its joints"
            )
        return load_model_file(path)
    mjcf = is_mjcf(path)
    if mjcf and free_flyer:
        raise ArgumentError(f"{path}: --free-flyer is for URDF files; an MJCF file has its joints")
    omitted: tuple[str, ...] = ()
    left_out = ""
    with warnings.catch_warnings(record=True) as caught:
        for category in (InertiaWarning, ContactWarning, LimitWarning):
            warnings.simplefilter("always", category)
        if robot in robot_names() and not free_flyer:
            model = load_robot(robot)
        elif mjcf:
            found = load_mjcf(path, strict=False)
            model, omitted, left_out = found.model, found.omitted, _left_out(found)
        else:
            model = load_urdf(path, root_joint="free_flyer" if free_flyer else None)
    for warning in caught:
        print(f"jaxrbd: warning: {warning.message}", file=sys.stderr)
    for feature in omitted:
        print(f"jaxrbd: warning: {path}: no counterpart for {feature}", file=sys.stderr)
    if left_out:
        print(f"jaxrbd: warning: {path}: left out: {left_out}", file=sys.stderr)
    return model


def load_in_precision(options: argparse.Namespace) -> Model:
    """The model of the robot of a command with the option `--float32`."""
    model = load(options.robot, options.free_flyer)
    return model.astype("float32") if options.float32 else model


def load_model_file(path: str) -> Model:
    """The model of a model file, in the precision of the file."""
    jax.config.update("jax_enable_x64", True)  # the file may have double precision
    return load_model(path)


def find_file(robot: str) -> str:
    """The path of a bundled robot, or the given path. Raises ArgumentError if neither exists."""
    if robot in robot_names():
        return str(robot_path(robot))
    if not os.path.isfile(robot):
        raise ArgumentError(_not_found(robot))
    return robot


def _not_found(robot: str) -> str:
    """The message for a robot that is neither a bundled robot nor a file."""
    if os.path.isdir(robot):
        return f"{robot!r} is a folder, expected a file"
    if os.path.splitext(robot)[1].lower() in (".urdf", ".xml", ".mjcf", ".jaxrbd"):
        return f"file not found: {robot!r}"
    hint = similar_names(robot, robot_names())
    return f"no file and no bundled robot {robot!r}; bundled: {', '.join(robot_names())}{hint}"


def _left_out(found: Imported) -> str:
    """The parts of an MJCF file that are not in its `Model`, with their counts."""
    scene, passive = found.scene, found.passive
    springs, compensation = passive.springs, passive.gravity_compensation
    fluid, damping = passive.fluid, passive.damping
    shapes = () if fluid is None else (fluid.boxes, fluid.ellipsoids)
    rotations = sum(isinstance(tendon, RotationAngle) for tendon in found.tendons.tendons)
    counts = {
        "actuator": len(found.actuators.joints),
        "contact point": 0 if scene is None else len(scene.frames),
        "pair of shapes": len(found.pairs),
        "spring": 0 if springs is None else len(springs.joints) + len(springs.balls),
        "compensation of gravity": 0 if compensation is None else len(compensation.frames),
        "joint of nonlinear damping": 0 if damping is None else len(damping.joints),
        "shape of the fluid forces": sum(len(x.frames) for x in shapes if x is not None),
        "tendon": len(found.tendons.names) - rotations,
        "limit of the rotation of a ball": rotations,
        "constraint": len(found.constraints) + len(found.inactive_constraints),
        "keyframe": len(found.keyframes),
    }
    words = (f"{n} {_plural(what, n)}" for what, n in counts.items() if n)
    return ", ".join(words)


def _plural(noun: str, count: int) -> str:
    head, blank, rest = noun.partition(" of ")
    return noun if count == 1 else f"{head}s{blank}{rest}"
