"""The command `jaxrbd`: simulate, time and view robots, check and convert files, train policies."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

import jax

from .. import __version__
from ..errors import ArgumentError, JaxRBDError
from ..model.names import similar_names
from . import (
    bench_command,
    cache,
    check_command,
    completion,
    convert_command,
    export_command,
    info_command,
    play_command,
    rollout_command,
    train_command,
    view_command,
)
from .completion import commands_of
from .messages import error_message

# One module per command, in the order of the help. `add_parser(commands)` of a module adds the
# options of the command; its parser has the default `run`, a function of the options.
COMMANDS = (
    rollout_command,
    bench_command,
    info_command,
    check_command,
    convert_command,
    view_command,
    train_command,
    play_command,
    export_command,
    completion,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    The exit status is

    - 0 for success;
    - 1 for an error, with one line on standard error (for `jaxrbd convert`, one line per fault);
    - 1 also for a file that `jaxrbd check` refuses, and after a closed pipe at the output;
    - 130 after an interrupt from the keyboard;
    - 143 after SIGTERM during `jaxrbd train`.

    `argv`: the arguments of the program; None means the arguments of this process. Raises
    SystemExit for `--help` and `--version` (status 0) and for invalid options (status 2), as
    argparse does.
    """
    options, unknown = _parser().parse_known_args(argv)
    if unknown:
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    try:
        _check_outputs(options)
        cache.keep_programs(options)
        status = options.run(options)
        sys.stdout.flush()  # a closed pipe raises here, not at exit
        return status
    except (JaxRBDError, OSError, MemoryError, jax.errors.JaxRuntimeError) as error:
        if isinstance(error, BrokenPipeError):  # the reader, such as `head`, has ended
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        print(f"jaxrbd: error: {error_message(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _check_outputs(options: argparse.Namespace) -> None:
    """Raise ArgumentError for a value of `--html`, `--png` or `--video` that is no file to write.

    Such a value is empty, is a folder, or names a file in a folder that does not exist. The name of
    a PNG file may only end in .png, or have no ending.
    """
    for name in ("html", "png", "video"):
        path = getattr(options, name, None)
        if path is None:
            continue
        if not path:
            raise ArgumentError(f"--{name} is '', expected a file")
        folder = os.path.dirname(path)
        if os.path.isdir(path):
            raise ArgumentError(f"--{name}: {path!r} is a folder, expected a file")
        if folder and not os.path.isdir(folder):
            raise ArgumentError(f"--{name}: the folder {folder!r} does not exist")
        suffix = os.path.splitext(path)[1]
        if name == "png" and suffix.lower() not in ("", ".png"):
            raise ArgumentError(f"--png: the name {path!r} ends in {suffix!r}, expected '.png'")


class _Parser(argparse.ArgumentParser):
    """A parser whose error about an unknown command names similar commands."""

    def error(self, message: str) -> NoReturn:
        found = re.search(r"argument COMMAND: invalid choice: '([^']*)'", message)
        hint = similar_names(found[1], list(commands_of(self))) if found else ""
        super().error(message + hint)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="jaxrbd",
        description="Rigid-body dynamics for JAX.",
        epilog=(
            "exit status: 0 for success, 1 for an error or a fault in a file, 2 for invalid "
            "options, 130 after Ctrl-C, 143 for SIGTERM in `train`; example: jaxrbd info quadruped"
        ),
    )
    parser.add_argument("--version", action="version", version=f"jaxrbd {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(commands)
    for command in commands.choices.values():
        # `parser` prints the usage of the command after an error.
        command.set_defaults(parser=command, main_parser=parser)
    return parser
