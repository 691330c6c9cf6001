"""`jaxrbd convert`: a robot as a file of another format."""

from __future__ import annotations

import argparse
import os
from typing import Any

import jax

from ..errors import ArgumentError, listed
from ..io.model_file import save_model
from ..io.urdf_writer import save_urdf
from ..tendons import RotationAngle, Tendons
from ..tendons.paths import Tendon
from . import parsing
from .loading import (
    MODEL_ENDING,
    counts_of_parts,
    find_file,
    load_with_parts,
    warn_of_parts,
)


def add_parser(commands) -> None:
    """Add the command `convert` and its options to the commands."""
    command = commands.add_parser(
        "convert",
        help="write a robot as a URDF file or as a model file of jaxrbd",
        description=(
            "Write a robot in another format: as a URDF file if OUT ends in .urdf, and as a model "
            "file of jaxrbd, which load_model and load_parts read, if OUT ends in .jaxrbd. A URDF "
            "file holds no tendons: they are an error, unless --no-tendons leaves them out."
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
    add("--no-tendons", action="store_true", help="leave out the tendons in a URDF file")
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
    if ending == MODEL_ENDING:
        for name in ("unlimited", "reorder", "no_geometry", "no_tendons"):
            if getattr(options, name):
                option = "--" + name.replace("_", "-")
                raise ArgumentError(f"{option} is for URDF files, but OUT is {options.out!r}")
    if os.path.exists(options.out) and os.path.samefile(find_file(options.robot), options.out):
        raise ArgumentError(f"OUT is {options.out!r}, which is the file of the robot")
    loaded = load_with_parts(options.robot, options.free_flyer)
    if ending == MODEL_ENDING:
        warn_of_parts(options.robot, loaded.left_out)
        save_model(loaded.model, options.out, loaded.parts)
    else:
        names = [repr(x.name) for x in _tendons(loaded.parts)]
        if names and not options.no_tendons:
            raise ArgumentError(
                f"a URDF file cannot hold the tendons {listed(names, 40)}: write a .jaxrbd file, "
                "or leave them out with --no-tendons"
            )
        warn_of_parts(options.robot, counts_of_parts(loaded.parts) | loaded.left_out)
        save_urdf(
            loaded.model,
            options.out,
            unlimited=options.unlimited,
            reorder=options.reorder,
            geometry=not options.no_geometry,
        )
    print(f"ok: {options.out}")
    return 0


def _tendons(parts: dict[str, Any]) -> tuple[Tendon, ...]:
    """The tendons in the parts of a robot, which a URDF file cannot hold.

    A `RotationAngle`, the limit of a spherical joint, is not among them: `run` only warns of it.
    """
    found = parts.get("tendons")
    if not isinstance(found, Tendons):
        return ()
    return tuple(x for x in found.tendons if not isinstance(x, RotationAngle))
