"""Files that jaxrbd writes itself: whole, or not at all; and read back as written, or refused.

A file is two lines of ASCII and the bytes after them, of whose order and meaning the header tells:

    jaxrbd model 1 18234 9f86d081...    kind, version, size and SHA-256 of all after this line
    {"name": "arm7", ...}               the header, JSON
    ...                                 the body

The checksum is against accidents. Who can write the file can write a checksum too, so whoever reads
a header believes nothing that it says.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import time
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import SavedFileError

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None

_LONGEST_FIRST_LINE = 200
_MAGIC, _SUFFIX = b"jaxrbd ", ".tmp"


def write_sealed(
    path: str | os.PathLike[str], kind: str, version: int, header: dict[str, Any], body: bytes
) -> None:
    """Write a file of this kind; a failure at any moment leaves what was there before."""
    content = json.dumps(header).encode("ascii") + b"\n" + body
    digest = hashlib.sha256(content).hexdigest()
    _replace(path, f"jaxrbd {kind} {version} {len(content)} {digest}\n".encode("ascii") + content)


def read_sealed(
    path: str | os.PathLike[str], kind: str, version: int
) -> tuple[dict[str, Any], bytes]:
    """The header and the body of a file of this kind, of this version or an older one.

    Raises SavedFileError where it cannot be read, is another's, truncated, altered or newer.
    """

    def refuse(why: str) -> SavedFileError:
        return SavedFileError(why, file=os.fspath(path))

    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise refuse(f"the file cannot be read: {why}") from error
    if not data:
        raise refuse("the file is empty")
    first, newline, content = data.partition(b"\n")
    if not first[:_LONGEST_FIRST_LINE].startswith(_MAGIC):
        raise refuse("not a file that jaxrbd saved")
    words = first[:_LONGEST_FIRST_LINE].decode("ascii", "replace").split(" ")
    if not newline or len(words) != 5 or not (words[2].isdecimal() and words[3].isdecimal()):
        raise refuse("its first line is truncated, or altered")
    _, found, its_version, size, digest = words
    if found != kind:
        raise refuse(f"it holds a {found!r}, expected a {kind!r}")
    if int(its_version) > version:
        raise refuse(
            f"version {its_version} of the format is of a newer jaxrbd: this one knows {version}"
        )
    if len(content) < int(size):
        raise refuse(f"truncated: {len(content)} of {size} bytes are left after the first line")
    if len(content) > int(size) or hashlib.sha256(content).hexdigest() != digest:
        raise refuse("altered: it has not the bytes that were saved")
    line, _, body = content.partition(b"\n")
    try:
        header = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise refuse(f"its header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise refuse("its header is not an object")
    return header, body


def _replace(path: str | os.PathLike[str], data: bytes) -> None:
    """Put a file in the place of another in one step, once it is on the disk.

    Until then it has a name that no other file has, and its writer holds a lock on it. The lock
    ends with the writer: a new file without one was left by a writer that was killed.
    """
    target = Path(os.path.realpath(path))
    prefix = f".{target.name[:100]}."
    new, file = _locked_file(target.parent, prefix)
    try:
        with file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            if fcntl is not None:
                new.replace(target)
        if fcntl is None:  # on Windows an open file cannot be renamed
            new.replace(target)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    _remove_abandoned(target.parent, prefix)
    if os.name == "posix":  # elsewhere a folder cannot be opened
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _locked_file(folder: Path, prefix: str) -> tuple[Path, BinaryIO]:
    """A new file with an unused name, open for writing and locked where the system has locks."""
    while True:
        path = folder / f"{prefix}{secrets.token_hex(8)}{_SUFFIX}"
        file = path.open("xb")
        try:
            _lock(file, wait=True)
            # Between the two lines above it looked abandoned to others.
            if os.fstat(file.fileno()).st_nlink > 0:
                return path, file
        except BaseException:
            file.close()
            path.unlink(missing_ok=True)
            raise
        file.close()


def _remove_abandoned(folder: Path, prefix: str) -> None:
    """Remove the new files of writers that were killed before they put them in place."""
    name = re.compile(re.escape(prefix) + "[0-9a-f]{16}" + re.escape(_SUFFIX))
    for path in [folder / found for found in os.listdir(folder) if name.fullmatch(found)]:
        with contextlib.suppress(OSError), path.open("r+b") as file:  # or it is gone by now
            if _MAGIC.startswith(file.read(len(_MAGIC))) and _abandoned(file):
                path.unlink()


def _abandoned(file: BinaryIO) -> bool:
    """Whether no writer has this file any more: it is not locked, or without locks a day old."""
    if fcntl is None:
        return time.time() - os.fstat(file.fileno()).st_mtime > 86400
    return _lock(file, wait=False)


def _lock(file: BinaryIO, *, wait: bool) -> bool:
    """Whether this process has the lock on a file now, until it closes the file or ends."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # another has it, or the file system knows no locks
        return False
    return True
