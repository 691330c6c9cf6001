"""Keyframes of MJCF files by name, with the check of the name."""

from __future__ import annotations

from ..errors import ArgumentError, listed
from ..io.mujoco import Imported
from ..io.mujoco.imported import Keyframe
from ..model.names import similar_names


def find_keyframe(robot: Imported, name: str) -> Keyframe:
    """The keyframe with this name. Raises ArgumentError for an unknown name."""
    names = [*robot.keyframes]
    if isinstance(name, str) and name in names:
        return robot.keyframes[name]
    known = listed([*map(repr, names)], 40)
    expected = f"one of {known}" if names else "None, because the file has no keyframes"
    hint = similar_names(str(name), names)
    raise ArgumentError(f"keyframe is {name!r}, expected {expected}{hint}")
