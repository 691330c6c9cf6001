"""The exceptions of the package."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

__all__ = [
    "JaxRBDError",
    "ArgumentError",
    "FrameError",
    "ModelError",
    "RobotFileError",
    "SavedFileError",
    "TrainingError",
    "InertiaWarning",
    "LimitWarning",
    "ContactWarning",
    "GeometryWarning",
]


class JaxRBDError(Exception):
    """Base of all exceptions that jaxrbd defines.

    Attribute: `argument`: the name of an argument of the called function, or None. A call with
    another value of this argument can avoid the error. The message contains "the argument `NAME`".
    """

    def __init__(self, message: str = "", *, argument: str | None = None):
        super().__init__(message)
        self.argument = argument


class ArgumentError(JaxRBDError, ValueError):
    """An argument of a public function has the wrong shape, dtype or value."""


class FrameError(ArgumentError):
    """The frames of quantities of `jaxrbd.frames` do not match in an operation."""


class ModelError(JaxRBDError, ValueError):
    """A description of a robot is inconsistent.

    Attributes: `link` and `joint`: the name of the link or joint that causes the error, or None;
    `faults`: if the message lists several errors, one per line, these errors; otherwise ().
    """

    def __init__(
        self,
        message: str,
        *,
        link: str | None = None,
        joint: str | None = None,
        argument: str | None = None,
        faults: tuple[JaxRBDError, ...] = (),
    ):
        super().__init__(message, argument=argument)
        self.link = link
        self.joint = joint
        self.faults = faults


class RobotFileError(ModelError):
    """A robot file is malformed; the message starts with `file:line:`, or `file:` without a line.

    Attributes: `file` (path, or "<string>"), `line` (1-based, or None), and `link`, `joint` as in
    `ModelError`.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str,
        line: int | None = None,
        link: str | None = None,
        joint: str | None = None,
    ):
        where = file if line is None else f"{file}:{line}"
        super().__init__(f"{where}: {message}", link=link, joint=joint)
        self.file = file
        self.line = line


class SavedFileError(JaxRBDError, ValueError):
    """The file of a saved model, program or training cannot be used.

    The file has another format, is truncated or altered, has a newer version, has contradictory
    entries, or is of another training than the training that reads it. The message starts with the
    path of the file.
    """

    def __init__(self, message: str, *, file: str):
        super().__init__(f"{file}: {message}")
        self.file = file


class TrainingError(JaxRBDError, ArithmeticError):
    """In an update of `jaxrbd.learning`, a metric is not finite, or all steps diverged."""


class InertiaWarning(UserWarning):
    """The inertias of a robot are wrong, but the model can be built.

    There are two cases. In the first case a link has an inertia that no rigid body can have. In the
    second case the mass matrix is singular in every configuration, and forward dynamics gives NaN
    or meaningless values.
    """


class LimitWarning(UserWarning):
    """Joints of a robot file have limits that are valid but probably wrong.

    There are three cases: a velocity limit of 0, which often stands for an unknown limit; equal
    lower and upper limits; and limits of a rotating joint above 4 pi and up to 720, which may be in
    degrees.
    """


class ContactWarning(UserWarning):
    """Bodies of a scene can pass through each other, or fall without end.

    There are three cases: a shape of the robot is left out, because it is a mesh in a file; the
    hull of a mesh was replaced by one with fewer vertices; and nothing supports a robot that moves
    freely, because contacts of its geoms (shapes of an MJCF file) were left out.
    """


class GeometryWarning(UserWarning):
    """A shape of a robot is not drawn, or the robot file spells the name of its mesh otherwise.

    A shape is not drawn if its mesh is missing, cannot be read or is beyond a limit. Spellings are
    explained in `io.find_package_file`.

    Attribute: `argument`: as in `JaxRBDError`.
    """

    def __init__(self, message: str, *, argument: str | None = None):
        super().__init__(message)
        self.argument = argument


# The packages of each extra of pyproject.toml except test, docs and dev, as words for a shell.
_PACKAGES = {
    "cli": "matplotlib",
    "completion": "shtab",
    "diffrax": "diffrax",
    "export": "flatbuffers",
    "kernels": "absl-py",
    "learn": "optax",
    "mujoco": "mujoco",
    "onnx": "onnx",
    "pinocchio": "pin",
    "tensorboard": "tensorboardX",
    "torch": "torch",
    "video": "pillow imageio-ffmpeg",
    "view": "viser 'trimesh[easy]'",
}


def installation(extra: str) -> str:
    """The command that installs the packages of an extra, for example "pip install optax".

    It does not name "jaxrbd[extra]", because jaxrbd may be in no package index.
    """
    return f"pip install {_PACKAGES[extra]}"


def require_package(package: str, extra: str, what: str, hint: str = "") -> None:
    """Raise ArgumentError, which says what needs the package of an extra, if it is missing."""
    if importlib.util.find_spec(package) is None:
        raise ArgumentError(f"{what} needs {package}: {installation(extra)}{hint}")


def listed(names: Sequence[str], limit: int = 4, separator: str = ", ") -> str:
    """The first names, and the count of the others: "a, b and 3 more"."""
    if len(names) <= limit:
        return separator.join(names)
    return f"{separator.join(names[:limit])} and {len(names) - limit} more"
