"""Files that a robot file names, such as meshes: `package://` and `file://` URIs, and paths.

The URDF reader keeps the names of meshes and does not open the files. `jaxrbd.view` and
`io.read_meshes` open them, and so can collision libraries.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from ..errors import ArgumentError, GeometryWarning
from ..model.parameters import require_flag

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
# Environment variables that list folders. A package is in the subfolder share/ of such a folder.
_PREFIXES = ("AMENT_PREFIX_PATH", "COLCON_PREFIX_PATH", "CMAKE_PREFIX_PATH")
# The environment variable that lists folders of packages.
_SOURCES = "ROS_PACKAGE_PATH"


def find_package_file(
    uri: str,
    packages: Mapping[str, str | os.PathLike[str]] | None = None,
    urdf_path: str | os.PathLike[str] | None = None,
    *,
    search_environment: bool = False,
) -> Path:
    """The path of the file that a URI in a robot file names, such as a mesh.

    - `uri`: "package://PACKAGE/PATH", "file:///PATH", or a path, relative to the folder of
      `urdf_path`;
    - `packages`: the folders of packages, by the name of the package;
    - `urdf_path`: the robot file that contains the URI;
    - `search_environment`: whether to search the folders in the environment variables
      AMENT_PREFIX_PATH, COLCON_PREFIX_PATH, CMAKE_PREFIX_PATH and ROS_PACKAGE_PATH too.

    The folder of a package is searched in this order; the first folder that has the file is taken:

    1. the folder in `packages`;
    2. the folders that contain `urdf_path`, from the innermost to the outermost: each folder itself
       if it is called PACKAGE, and its subfolder PACKAGE; then the same for the path without
       symbolic links;
    3. with `search_environment`: `share/PACKAGE` in the folders of the first three variables, and
       the folders of ROS_PACKAGE_PATH, each as in 2.

    If no file has exactly this name, and exactly one file has the name in another spelling, this
    file is taken, with a GeometryWarning. Other spellings have other upper and lower case letters,
    `\\` instead of `/`, or escapes such as %20.

    Raises ArgumentError if the file does not exist. The error lists the paths that were tried, and
    the folder of the package, if `packages` states it or it contains a file package.xml. Raises
    ArgumentError also for a folder in `packages` that does not exist, for a URI with another scheme
    (such as http), with a host, without a package or without a path, for a path with ".." in a
    package, and for a relative path without `urdf_path`.
    """
    if not isinstance(uri, str):
        raise ArgumentError(f"uri is {uri!r}, expected a text")
    if not isinstance(packages, Mapping | None):
        raise ArgumentError(f"packages is {packages!r}, expected a mapping from names to folders")
    for name, folder in (packages or {}).items():
        if not isinstance(folder, str | os.PathLike):
            raise ArgumentError(f"packages[{name!r}] is {folder!r}, expected a folder")
    require_flag(search_environment, "search_environment")
    if not isinstance(urdf_path, str | os.PathLike | None):
        raise ArgumentError(f"urdf_path is {urdf_path!r}, expected the path of a robot file")
    scheme = _SCHEME.match(uri)
    package, folders, inside = None, [], PurePosixPath()
    if scheme is None:
        candidates = [_absolute_path(uri, urdf_path)]
    elif scheme[1] == "package":
        package, inside = _package_and_path(uri)
        folders = _package_folders(package, packages or {}, urdf_path, search_environment)
        candidates = list(dict.fromkeys(folder / inside for folder in folders))
    elif scheme[1] == "file":
        candidates = [_path_of_file_uri(uri)]
    else:
        raise ArgumentError(
            f"uri is {uri!r}, expected a path or a URI of the scheme package or file"
        )
    for path in candidates:
        if _is_file(path):
            return path
    if package is None:
        similar = _other_spellings(_existing_folder(candidates[0]), candidates[0])
    else:
        similar = [file for x in folders for file in _other_spellings(x, x / inside)]
    # Several paths can lead to one file; of these paths, the first one is kept.
    files = {os.path.realpath(file): file for file in reversed(similar)}
    if len(files) == 1:
        (path,) = files.values()
        warnings.warn(
            f"uri is {uri!r}, but there is no such file; the file {str(path)!r} has this name in "
            f"another spelling and is used instead",
            GeometryWarning,
            stacklevel=2,
        )
        return path
    known = folders if package in (packages or {}) else []
    known = known or [x for x in folders if _is_file(x / "package.xml")]
    raise _missing_file(uri, package, known[0] if known else None, candidates)


def _missing_file(
    uri: str, package: str | None, folder: Path | None, candidates: list[Path]
) -> ArgumentError:
    """The error that lists the paths that were tried.

    `package`: the name of the package in the URI; `folder`: the folder of the package, if known.
    """
    tried = "".join(f"\n  {path}" for path in candidates) or " nowhere: there is no folder to try"
    hint, argument = "", None
    if folder is not None:
        hint = f" in the package {package!r}, which is {str(folder)!r}"
    elif package is not None:
        argument = "packages"
        hint = f"; give the folder of the package {package!r} by the argument `{argument}`"
    return ArgumentError(
        f"uri is {uri!r}, but there is no such file{hint}; looked for:{tried}", argument=argument
    )


def _path_of_file_uri(uri: str) -> Path:
    """The path in a URI `file:///PATH`. Raises ArgumentError for a host."""
    host = uri.partition("://")[2].partition("/")[0]
    if host not in ("", "localhost"):
        raise ArgumentError(f"uri is {uri!r}, which names the host {host!r}, expected file:///PATH")
    path = unquote(uri.partition("://")[2].removeprefix("localhost"))
    # On Windows the path of file:///C:/robot is C:/robot.
    return Path(path[1:] if re.match("/[A-Za-z]:", path) and os.name == "nt" else path)


def _absolute_path(uri: str, urdf_path: str | os.PathLike[str] | None) -> Path:
    r"""The path `uri` in the folder of the robot file; with `/` for `\` if no such file exists."""
    if not uri.strip():
        raise ArgumentError("uri is empty, expected a path or a URI")
    if Path(uri).is_absolute():
        return Path(uri)
    if urdf_path is None:
        raise ArgumentError(
            f"uri is the relative path {uri!r}, so urdf_path, the robot file, must be given"
        )
    folder = Path(urdf_path).absolute().parent
    path = Path(os.path.normpath(folder / uri))
    if _is_file(path):
        return path
    return Path(os.path.normpath(folder / uri.replace("\\", "/")))


def _is_file(path: Path) -> bool:
    """Whether a path is a file; False if the system refuses it, such as a name too long."""
    try:
        return path.is_file()
    except OSError:
        return False


def _existing_folder(path: Path) -> Path:
    """The innermost folder of a path that exists."""
    return next((folder for folder in path.parents if os.path.isdir(folder)), path.parent)


def _other_spellings(folder: Path, path: Path) -> list[Path]:
    """The files in a folder whose paths differ from `path` only in spelling.

    There are none for a path with "..".
    """
    parts = [name for part in path.relative_to(folder).parts for name in part.split("\\")]
    names = [_common_spelling(name) for name in parts if name not in ("", ".")]
    return _files_by_spelling(folder, names)


def _files_by_spelling(folder: Path, names: list[str]) -> list[Path]:
    """The files in a folder whose paths from the folder have the common spellings `names`."""
    if not names:
        return [folder] if _is_file(folder) else []
    try:
        entries = sorted(folder.iterdir())
    except OSError:  # no folder, or a folder that may not be read
        return []
    similar = [entry for entry in entries if _common_spelling(entry.name) == names[0]]
    return [file for entry in similar for file in _files_by_spelling(entry, names[1:])]


def _common_spelling(name: str) -> str:
    """The name without escapes, in lower case. It is the same for all spellings of a name."""
    return unquote(name).casefold()


def _package_folders(
    package: str,
    packages: Mapping[str, str | os.PathLike[str]],
    urdf_path: str | os.PathLike[str] | None,
    search_environment: bool,
) -> list[Path]:
    """The folders that may be a package, in the order of the search."""
    folders = []
    if package in packages:
        folders.append(Path(packages[package]))
        if not os.path.isdir(folders[0]):
            raise ArgumentError(
                f"packages: the folder of {package!r} is {str(folders[0])!r}, which is no folder"
            )
    if urdf_path is not None:
        # The folders as written, then the folders after resolving symbolic links.
        for file in (Path(os.path.abspath(urdf_path)), Path(os.path.realpath(urdf_path))):
            for folder in file.parents:
                folders += _folders_called(package, folder)
    if search_environment:
        for variable in _PREFIXES:
            folders += [folder / "share" / package for folder in _folders(variable)]
        for folder in _folders(_SOURCES):
            folders += _folders_called(package, folder)
    return folders


def _folders_called(package: str, folder: Path) -> list[Path]:
    """The folder itself, if it has the name of the package, and its subfolder with this name."""
    inside = folder / package
    return [folder, inside] if folder.name == package else [inside]


def _package_and_path(uri: str) -> tuple[str, PurePosixPath]:
    """The name of the package, and the path in the package, of a URI `package://PACKAGE/PATH`."""
    package, _, path = uri.partition("://")[2].partition("/")
    inside = PurePosixPath(path.lstrip("/"))
    if not package or not inside.parts:
        raise ArgumentError(f"uri is {uri!r}, expected package://PACKAGE/PATH")
    if ".." in (package, *inside.parts):
        raise ArgumentError(f"uri is {uri!r}, expected a path inside the package, without '..'")
    return package, inside


def _folders(variable: str) -> list[Path]:
    """The folders that an environment variable lists."""
    return [Path(folder) for folder in os.environ.get(variable, "").split(os.pathsep) if folder]
