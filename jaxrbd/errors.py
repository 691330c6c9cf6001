"""The package's own exceptions: each names the thing at fault and what was expected of it."""

from __future__ import annotations


class JaxRBDError(Exception):
    """Base of every exception that jaxrbd raises on purpose."""


class ArgumentError(JaxRBDError, ValueError):
    """An argument of a public function has the wrong shape, dtype or value."""


class FrameError(ArgumentError):
    """Quantities of `jaxrbd.frames` do not fit together: the message names operation and frames."""


class ModelError(JaxRBDError, ValueError):
    """A description of a robot is inconsistent.

    `link` and `joint` hold the name of the element at fault where there is one, so that a reader
    of files can add the line it stands on.
    """

    def __init__(self, message: str, *, link: str | None = None, joint: str | None = None):
        super().__init__(message)
        self.link = link
        self.joint = joint


class RobotFileError(ModelError):
    """A robot file is malformed; the message starts with `file:line:`.

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
    """A file is not what `save_model` or `save_program` wrote; the message starts with its path.

    It is foreign, truncated, altered, of a newer version, or it contradicts itself.
    """

    def __init__(self, message: str, *, file: str):
        super().__init__(f"{file}: {message}")
        self.file = file


class InertiaWarning(UserWarning):
    """The inertias of a robot are at fault, although it can be loaded.

    Some links have an inertia that no rigid body can have; or the mass matrix is singular in every
    configuration, and then forward dynamics gives NaN or meaningless values.
    """
