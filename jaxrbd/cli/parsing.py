"""Options of several commands, the types of their values, and the form of the help."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Sequence

ROBOT = "name of a bundled robot, or a URDF file, an MJCF file, or a model file (.jaxrbd)"


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """A formatter that adds the default of an option to the help of the option.

    It adds no default that is None, False or [], and no default that the help already states.
    """

    def _get_help_string(self, action: argparse.Action) -> str | None:
        no_value = action.default is None or action.default is False or action.default == []
        if no_value or "(default: " in (action.help or ""):
            return action.help
        return super()._get_help_string(action)


def add_robot(command: argparse.ArgumentParser, **kwargs) -> None:
    """Add the argument ROBOT, with `kwargs` of `add_argument`, and the option `--free-flyer`."""
    add_robot_name(command, **kwargs)
    command.add_argument(
        "--free-flyer",
        action="store_true",
        help="connect the root link to the world by a free-flyer joint; for URDF files",
    )


def add_robot_name(command: argparse.ArgumentParser, **kwargs) -> None:
    """Add the argument ROBOT, with `kwargs` of `add_argument`."""
    command.add_argument("robot", metavar="ROBOT", help=ROBOT, **kwargs)


def add_json(command: argparse.ArgumentParser) -> None:
    """Add the option `--json`."""
    command.add_argument(
        "--json", action="store_true", help="print one JSON object, and nothing else, to the output"
    )


def add_no_cache(command: argparse.ArgumentParser) -> None:
    """Add the option `--no-cache` to a command that compiles programs.

    `bench` does not have the option, because it measures the compilation, nor has `check`, which
    compiles programs only for `--overlaps`.
    """
    command.add_argument(
        "--no-cache",
        action="store_true",
        help="do not use compiled programs of earlier runs, and do not keep those of this run",
    )


def add_package(command: argparse.ArgumentParser) -> None:
    """Add the option `--package`, whose value is a list of names and folders."""
    command.add_argument(
        "--package",
        action="append",
        default=[],
        type=package,
        metavar="NAME=DIR",
        help="the folder of the ROS package NAME, for meshes with package://NAME/ URIs; may be "
        "repeated",
    )


def package(text: str) -> tuple[str, str]:
    """The name and the folder of a package, from NAME=DIR."""
    name, equals, folder = text.partition("=")
    if not (name and equals and folder):
        raise argparse.ArgumentTypeError(f"expected NAME=DIR, found {text!r}")
    if not os.path.isdir(folder):
        raise argparse.ArgumentTypeError(f"{folder!r} is no folder")
    return name, folder


def some_of(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """A function that parses names separated by commas, and refuses names not in `known`."""

    def names(text: str) -> tuple[str, ...]:
        for name in (found := tuple(text.split(","))):
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r}, expected some of {', '.join(known)}")
        return found

    return names


def count(text: str) -> int:
    """A whole number from 1 to 2**40, as the size of an array: larger arrays fit into no memory."""
    value = whole_number(text)
    if value > 2**40:
        raise argparse.ArgumentTypeError(f"expected at most {2**40}, found {text}")
    return value


def whole_number(text: str) -> int:
    """A whole number of 1 or more, without an upper bound."""
    value = _number(text, int, "a whole number")
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, found {text}")
    return value


def seed(text: str) -> int:
    """A whole number of 64 bits."""
    value = _number(text, int, "a whole number")
    if not -(2**63) <= value < 2**63:
        raise argparse.ArgumentTypeError(f"expected a whole number of 64 bits, found {text}")
    return value


def port(text: str) -> int:
    """The number of a port."""
    value = _number(text, int, "a whole number")
    if not 1 <= value < 2**16:
        raise argparse.ArgumentTypeError(f"expected a number from 1 to 65535, found {text}")
    return value


def positive(text: str) -> float:
    """A positive, finite number."""
    value = _number(text, float, "a positive number")
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a positive number, found {text}")
    return value


def number(text: str) -> float:
    """A finite number."""
    value = _number(text, float, "a number")
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"expected a finite number, found {text}")
    return value


def _number(text: str, kind: type, expected: str):
    try:
        return kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected {expected}, found {text!r}") from None
