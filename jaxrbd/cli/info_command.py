"""`jaxrbd info`: a robot as text or as JSON."""

from __future__ import annotations

import argparse

import jax

from . import parsing
from .loading import load
from .overview import overview
from .reports import print_json, robot_report


def add_parser(commands) -> None:
    """Add the command `info` and its options to the commands."""
    command = commands.add_parser(
        "info",
        help="show a robot: joints, bodies, frames, tree",
        epilog="example: jaxrbd info robot.urdf --free-flyer",
    )
    parsing.add_robot(command)
    parsing.add_json(command)
    parsing.add_no_cache(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the robot, and return the exit status."""
    if options.json:
        jax.config.update("jax_enable_x64", True)  # JSON has all digits
    model = load(options.robot, options.free_flyer)
    if options.json:
        print_json(robot_report(model))
    else:
        print(overview(model))
    return 0
