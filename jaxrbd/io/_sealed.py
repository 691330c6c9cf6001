"""Sealed files: files with a checksum, written atomically.

Format: two lines of ASCII, then the body. The second line is the header, which describes the body.

    jaxrbd model 1 18234 9f86d081...    kind, version, size and SHA-256 of all bytes after this line
    {"name": "arm7", ...}               the header, JSON
    ...                                 the body

The checksum does not cover the first line, so the header repeats the version, in its entry
"version". The checksum detects damage. It does not detect a forged file, so readers check every
entry of the header before they use it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import stat
import time
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import ArgumentError, SavedFileError

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None

_LONGEST_FIRST_LINE = 200
_MAGIC, _SUFFIX = b"jaxrbd ", ".tmp"


def write_sealed(
    path: str | os.PathLike[str], kind: str, version: int, header: dict[str, Any], body: bytes
) -> None:
    """Write a file of this kind. If writing fails, the previous file is unchanged."""
    content = json.dumps({"version": version, **header}).encode("ascii") + b"\n" + body
    digest = hashlib.sha256(content).hexdigest()
    replace_file(
        path, f"jaxrbd {kind} {version} {len(content)} {digest}\n".encode("ascii") + content
    )


def read_sealed(
    path: str | os.PathLike[str], kind: str, version: int
) -> tuple[dict[str, Any], bytes]:
    """The header and the body of a file of this kind, of this version or an older version.

    Raises SavedFileError if the file cannot be read, has another format or kind, is truncated or
    altered, or has a newer version.
    """

    path = file_path(path)

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
        raise refuse("its first line is truncated or altered")
    _, found, file_version, size, digest = words
    if int(file_version) < 1:
        raise refuse(f"version {file_version} of the format: the first version is 1")
    if found != kind:
        raise refuse(f"it holds a {found!r}, expected a {kind!r}")
    if int(file_version) > version:
        raise refuse(
            f"version {file_version} of the format needs a newer jaxrbd: this one reads {version}"
        )
    if len(content) < int(size):
        raise refuse(f"truncated: {len(content)} of {size} bytes remain after the first line")
    if len(content) > int(size) or hashlib.sha256(content).hexdigest() != digest:
        raise refuse("altered: its bytes differ from the saved bytes")
    line, _, body = content.partition(b"\n")
    try:
        header = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise refuse(f"its header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise refuse("its header is not an object")
    # Older files, such as model files of the versions 1 to 4, do not have this entry.
    if header.pop("version", int(file_version)) != int(file_version):
        raise refuse("altered: the version of its first line differs from its header")
    return header, body


def file_path(path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """`path`, if it is the path of a file. Raises ArgumentError for another object."""
    if not isinstance(path, str | os.PathLike) or "\0" in str(path):
        raise ArgumentError(f"path is {path!r}, expected the path of a file")
    return path


def is_sealed(path: str | os.PathLike[str]) -> bool:
    """Whether a file starts as the files of `write_sealed`; False if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def replace_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace a file atomically: if writing fails, the previous file is unchanged.

    The function writes the data to a temporary file with a unique name, and then renames this file.
    It holds a lock on the temporary file. The lock ends with the process. So if a temporary file
    has no lock, the process that wrote it was killed. The function deletes such files if they are
    empty or start with `_MAGIC`. The new file has the permissions of the previous one.

    Raises OSError, which names the file, if the file cannot be written, and ArgumentError for an
    object that is no path.
    """
    target = Path(os.path.realpath(file_path(path)))
    prefix = f".{target.name[:100]}."
    try:
        new, file = _locked_file(target.parent, prefix)
        try:
            with file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                if target.exists():
                    new.chmod(stat.S_IMODE(target.stat().st_mode))
                if fcntl is not None:
                    new.replace(target)
            if fcntl is None:  # on Windows an open file cannot be renamed
                new.replace(target)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
    except OSError as error:  # this error names the temporary file, or no file
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    _remove_abandoned(target.parent, prefix)
    if os.name == "posix":  # elsewhere a folder cannot be opened
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _locked_file(folder: Path, prefix: str) -> tuple[Path, BinaryIO]:
    """A new file with an unused name, open for writing, and locked if the system has locks."""
    while True:
        path = folder / f"{prefix}{secrets.token_hex(8)}{_SUFFIX}"
        file = path.open("xb")
        try:
            _lock(file, wait=True)
            # Before the lock, another process may have deleted the file in `_remove_abandoned`.
            if os.fstat(file.fileno()).st_nlink > 0:
                return path, file
        except BaseException:
            file.close()
            path.unlink(missing_ok=True)
            raise
        file.close()


def _remove_abandoned(folder: Path, prefix: str) -> None:
    """Delete temporary files of killed processes, if a file is empty or starts with `_MAGIC`."""
    name = re.compile(re.escape(prefix) + "[0-9a-f]{16}" + re.escape(_SUFFIX))
    for path in [folder / found for found in os.listdir(folder) if name.fullmatch(found)]:
        with contextlib.suppress(OSError), path.open("r+b") as file:  # the file may be gone
            if _MAGIC.startswith(file.read(len(_MAGIC))) and _abandoned(file):
                path.unlink()


def _abandoned(file: BinaryIO) -> bool:
    """Whether no process writes this file any more.

    This is true if no process has locked the file. On a system without locks, it is true if the
    file is more than one day old.
    """
    if fcntl is None:
        return time.time() - os.fstat(file.fileno()).st_mtime > 86400
    return _lock(file, wait=False)


def _lock(file: BinaryIO, *, wait: bool) -> bool:
    """Lock a file until it is closed or the process ends. Returns whether this succeeded."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # another process has the lock, or the file system has no locks
        return False
    return True
