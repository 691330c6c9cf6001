"""The folders and files that commands write."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..errors import ArgumentError


def make_folder(path: Path) -> None:
    """Make the folder for the results of a command, and its parents.

    Raises ArgumentError, which names the path and the reason, if this is not possible or if no file
    can be made in the folder.
    """
    try:
        for part in (path, *path.parents):
            if part.exists() and not part.is_dir():
                raise ArgumentError(
                    f"output folder {path}: {str(part)!r} is a file, expected a folder"
                )
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise ArgumentError(f"output folder {path}: {error.strerror or error}") from error


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Add `path` to an OSError of the block that names no file, such as an error of a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        if error.errno is None:  # NumPy raises such errors
            raise OSError(f"{os.fspath(path)}: {error}") from error
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
