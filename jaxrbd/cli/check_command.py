"""`jaxrbd check`: the faults and the warnings of a robot file."""

from __future__ import annotations

import argparse

from ..errors import ArgumentError, RobotFileError, SavedFileError
from ..io.mujoco import Imported, inspect_and_load_mjcf, is_mjcf
from ..io.urdf import inspect_and_load_urdf, inspect_urdf
from ..model import Model
from . import parsing
from .loading import MODEL_ENDING, find_file, load_model_file
from .messages import one_line
from .overlaps import overlaps
from .reports import check_report, print_json


def add_parser(commands) -> None:
    """Add the command `check` and its options to the commands."""
    command = commands.add_parser(
        "check",
        help="validate a robot file; exit status 1 if it has faults",
        epilog="example: jaxrbd check robot.urdf --strict",
    )
    parsing.add_robot_name(command)
    parsing.add_json(command)
    command.add_argument("--strict", action="store_true", help="exit status 1 for warnings, too")
    command.add_argument(
        "--overlaps",
        action="store_true",
        help="warn about links whose collision shapes overlap in the neutral configuration and in "
        "the states of --srdf; for an MJCF file, in its initial configuration and its keyframes",
    )
    command.add_argument(
        "--srdf", metavar="FILE", help="an SRDF file with states and disabled pairs of links"
    )
    parsing.add_package(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the findings, and return the exit status: 1 if the file is refused."""
    path = find_file(options.robot)
    for option, given in (("--srdf", options.srdf is not None), ("--package", options.package)):
        if given and not options.overlaps:
            raise ArgumentError(f"{option} is for --overlaps")
    faults, warned, robot = _inspect(path, options.overlaps)
    if robot is not None:
        warned = [*warned, *overlaps(path, robot, options.srdf, dict(options.package))]
    refused = bool(faults or (warned and options.strict))
    if options.json:
        print_json(check_report(path, faults, warned, refused))
        return int(refused)
    for found in [*faults, *warned]:
        print(one_line(found))
    counts = ((len(faults), "fault"), (len(warned), "warning"))
    summary = ", ".join(f"{n} {what}{'s' * (n > 1)}" for n, what in counts if n)
    if refused:
        print(f"{path}: {summary}")
    else:
        print(f"ok: {path} ({summary})" if warned else f"ok: {path}")
    return int(refused)


def _inspect(
    path: str, load: bool
) -> tuple[list[RobotFileError], list[RobotFileError], Model | Imported | None]:
    """The faults and warnings of a file, and its robot if `load` is set and it has no faults."""
    if path.endswith(MODEL_ENDING):
        try:
            model, _ = load_model_file(path)
        except SavedFileError as error:
            fault = RobotFileError(str(error).removeprefix(f"{path}: "), file=path)
            return [fault], [], None
        return [], [], model if load else None
    if is_mjcf(path):
        faults, warned, robot = inspect_and_load_mjcf(path)
        return faults, warned, robot if load else None
    if load:
        return inspect_and_load_urdf(path)
    return *inspect_urdf(path), None
