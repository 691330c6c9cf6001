"""The messages of the command: errors and warnings."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator

from ..errors import GeometryWarning, JaxRBDError, ModelError

# In messages, these names of options replace the names of arguments of functions.
OPTIONS = {
    "geometry": "--no-geometry",
    "packages": "--package NAME=DIR",
    "reorder": "--reorder",
    "unlimited": "--unlimited X",
}


def error_message(error: BaseException) -> str:
    """The message of an error in one line; for an error with several faults, one line per fault."""
    faults = error.faults if isinstance(error, ModelError) else ()
    if faults:
        head = str(error).splitlines()[0]
        return "\n  ".join([head, *(error_message(fault) for fault in faults)])
    if isinstance(error, OSError) and error.strerror:  # without the number of the error
        file = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return one_line(f"{file}{error.strerror}")
    return one_line(with_option(error) if isinstance(error, JaxRBDError) else error)


def one_line(message: object) -> str:
    """A message of several lines as one line."""
    return "; ".join(line.strip() for line in str(message).splitlines() if line.strip())


def with_option(problem: JaxRBDError | GeometryWarning) -> str:
    """The message, with the name of an option (`OPTIONS`) in place of the name of an argument."""
    option = OPTIONS.get(problem.argument or "")
    if option is None:
        return str(problem)
    return str(problem).replace(f"the argument `{problem.argument}`", f"the option {option}")


def warn(message: object) -> None:
    """Print a warning of the command on standard error."""
    print(f"jaxrbd: warning: {message}", file=sys.stderr)


@contextlib.contextmanager
def print_warnings() -> Iterator[None]:
    """Print the warnings of the block as messages of the command, on standard error.

    Only the first warning about a missing mesh lists the places of the search: a robot has many
    meshes.
    """
    places_printed = False

    def say(message: Warning | str, *_: object, **__: object) -> None:
        nonlocal places_printed
        text = with_option(message) if isinstance(message, GeometryWarning) else str(message)
        short = text.partition("; looked for:\n")[0]
        warn(short if places_printed else text)
        places_printed = places_printed or short != text

    with warnings.catch_warnings():
        warnings.simplefilter("always", GeometryWarning)
        warnings.showwarning = say
        yield
