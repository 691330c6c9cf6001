"""`jaxrbd view`: a robot in the browser, as a page or as a picture."""

from __future__ import annotations

import argparse

from ..errors import ArgumentError
from ..io._sealed import replace_file
from ..view import LAYERS, render, save_html, serve
from . import parsing
from .loading import load
from .messages import print_warnings
from .png import png_bytes


def add_parser(commands) -> None:
    """Add the command `view` and its options to the commands."""
    command = commands.add_parser(
        "view",
        help="show a robot in the browser, or write a page or a picture of it",
        description=(
            "Show a robot in the browser, with a slider for each joint, until Ctrl-C. With --html "
            "or --png, write a file instead."
        ),
        epilog="example: jaxrbd view robot.urdf --png robot.png --layers visuals,frames",
    )
    parsing.add_robot(command)
    add = command.add_argument
    add("--html", metavar="FILE", help="write a page that needs no server and no network")
    add("--png", metavar="FILE", help="write a picture")
    add(
        "--port",
        type=parsing.port,
        metavar="N",
        help="port of the server, or the next free port (8080)",
    )
    add(
        "--layers",
        type=parsing.some_of(LAYERS),
        default=("visuals",),
        metavar="A,B",
        help=f"what is visible at the start: {', '.join(LAYERS)} (default: visuals)",
    )
    parsing.add_package(command)
    parsing.add_no_cache(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show the robot until Ctrl-C, or write the files; return the exit status."""
    if options.port is not None and (options.html or options.png):
        raise ArgumentError("--port is for the server, which --html and --png do not start")
    model = load(options.robot, options.free_flyer)
    arguments = {"layers": options.layers, "packages": dict(options.package)}
    with print_warnings():
        if options.html:
            save_html(options.html, model, **arguments)
            print(f"ok: {options.html}")
        if options.png:
            replace_file(options.png, png_bytes(render(model, **arguments)))
            print(f"ok: {options.png}")
        if options.html or options.png:
            return 0
        port = 8080 if options.port is None else options.port
        with serve(model, port=port, **arguments) as viewer:
            print(f"{model.name}: {viewer.url} (Ctrl-C ends)", flush=True)
            viewer.wait()
    return 0
