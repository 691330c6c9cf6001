"""`jaxrbd convert`: a robot as a file of another format."""

from __future__ import annotations

import argparse
import os

import jax

from ..errors import ArgumentError
from ..io.model_file import save_model
from ..io.urdf_writer import save_urdf
from . import parsing
from .loading import MODEL_ENDING, find_file, load


def add_parser(commands) -> None:
    """Add the command `convert` and its options to the commands."""
    command = commands.add_parser(
        "convert",
        help="write a robot as a URDF file or as a model file of jaxrbd",
        description=(
            "Write a robot in another format: as a URDF file if OUT ends in .urdf, and as a model "
            "file of jaxrbd, which load_model reads, if OUT ends in .jaxrbd."
        ),
        epilog="example: jaxrbd convert robot.xml robot.urdf --unlimited 1000",
    )
    parsing.add_robot(command)
    add = command.add_argument
    add("out", metavar="OUT", help="the file to write: NAME.urdf or NAME.jaxrbd")
    add(
        "--unlimited",
        type=parsing.positive,
        metavar="X",
        help="the limit to write where URDF needs a limit and the robot has none",
    )
    add("--reorder", action="store_true", help="accept another order of joints in the URDF file")
    add("--no-geometry", action="store_true", help="write no shapes to the URDF file")
    parsing.add_no_cache(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the file, and return the exit status."""
    jax.config.update("jax_enable_x64", True)  # files have all digits
    ending = os.path.splitext(options.out)[1]
    if ending not in (".urdf", MODEL_ENDING):
        raise ArgumentError(
            f"OUT is {options.out!r}, expected a name that ends in .urdf or .jaxrbd"
        )
    if os.path.exists(options.out) and os.path.samefile(find_file(options.robot), options.out):
        raise ArgumentError(f"OUT is {options.out!r}, which is the file of the robot")
    model = load(options.robot, options.free_flyer)
    if ending == MODEL_ENDING:
        save_model(model, options.out)
    else:
        save_urdf(
            model,
            options.out,
            unlimited=options.unlimited,
            reorder=options.reorder,
            geometry=not options.no_geometry,
        )
    print(f"ok: {options.out}")
    return 0
