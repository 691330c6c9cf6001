"""The messages of the command: errors and warnings."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator

from ..errors import GeometryWarning, JaxRBDError, ModelError

# The options that stand for arguments of functions, in messages.
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
    """A message with the option of the command in place of the argument of the function."""
    option = OPTIONS.get(problem.argument or "")
    if option is None:
        return str(problem)
    return str(problem).replace(f"the argument `{problem.argument}`", f"the option {option}")


@contextlib.contextmanager
def print_warnings() -> Iterator[None]:
    """Print every warning in the block as a message of the command, on standard error.

    Only the first warning about a mesh lists the places of the search: a robot has many meshes.
    """
    printed: list[str] = []

    def say(message: Warning | str, *_: object, **__: object) -> None:
        text = with_option(message) if isinstance(message, GeometryWarning) else str(message)
        if printed:
            text = text.partition("; looked for:\n")[0]
        printed.append(text)
        print(f"jaxrbd: warning: {text}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", GeometryWarning)
        warnings.showwarning = say
        yield
