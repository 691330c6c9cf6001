"""The results of commands as JSON objects, for `--json`.

The page "Command line" of the documentation lists their fields.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..algorithms.mass import center_of_mass, total_mass
from ..configuration import neutral
from ..errors import RobotFileError
from ..model import Model
from ..model.description import Follow, JointSpec, Mimic, stages
from ..model.editing import describe


def print_report(options: argparse.Namespace, run: Callable[[], dict[str, Any]]) -> int:
    """Run a command. With `--json`, print its JSON object, and its text on standard error."""
    if not options.json:
        run()
        return 0
    with contextlib.redirect_stdout(sys.stderr):
        report = run()
    print_json(report)
    return 0


def print_json(report: dict[str, Any]) -> None:
    """Print one JSON object. JSON has no infinity and no NaN: these values become null."""
    print(json.dumps(_finite(report), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    """The value with None in place of each float that is not finite."""
    if isinstance(value, dict):
        return {key: _finite(x) for key, x in value.items()}
    if isinstance(value, list):
        return [_finite(x) for x in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def robot_report(model: Model) -> dict[str, Any]:
    """The object of `jaxrbd info --json`: sizes, mass, and the lists of bodies, joints, frames."""
    joints = describe(model)[1][: model.nb]  # one per body; the other joints are welds
    masses = np.asarray(model.inertia[:, 0], float)
    com = None
    if np.any(masses):
        com = np.asarray(center_of_mass(model, neutral(model)), float).tolist()
    return {
        "name": model.name,
        "nb": model.nb,
        "nq": model.nq,
        "nv": model.nv,
        "mass": float(total_mass(model)),
        "gravity": np.asarray(model.gravity, float).tolist(),
        "neutral_center_of_mass": com,
        "bodies": [
            {
                "name": name,
                "parent": None if parent < 0 else model.body_names[parent],
                "joint": model.joint_names[body],
                "mass": float(masses[body]),
            }
            for body, (name, parent) in enumerate(zip(model.body_names, model.topology.parents))
        ],
        "joints": _joint_reports(joints),
        "frames": [
            {"name": name, "body": None if body < 0 else model.body_names[body]}
            for name, body in zip(model.frame_names, model.frame_bodies)
        ],
    }


def _joint_reports(joints: Sequence[JointSpec]) -> list[dict[str, Any]]:
    reports, q, v = [], 0, 0
    for joint in joints:
        follows = joint.mimic is not None
        (stage,) = stages(joint.kind)
        nq, nv = (0, 0) if follows else (stage.nq, stage.nv)
        reports.append(
            {
                "name": joint.name,
                "kind": type(joint.kind).__name__,
                "parent": joint.parent,
                "child": joint.child,
                "q": [q, q + nq],
                "v": [v, v + nv],
                "lower": _values(joint.lower, stage.nq),
                "upper": _values(joint.upper, stage.nq),
                "effort": _values(joint.effort_limit, stage.nv),
                "velocity": _values(joint.velocity_limit, stage.nv),
                "damping": _values(joint.damping, stage.nv),
                "friction": _values(joint.friction, stage.nv),
                "armature": _values(joint.armature, stage.nv),
                "follows": _leaders(joint.mimic),
            }
        )
        q, v = q + nq, v + nv
    return reports


def _values(values: Any, size: int) -> list[float]:
    """A list of `size` values, from `size` values or one for all; None stands for infinity."""
    array = np.asarray(np.inf if values is None else values, float)
    return np.broadcast_to(array, (size,)).tolist()


def _leaders(mimic: Mimic | Follow | None) -> dict[str, Any] | None:
    """The joints that a joint follows, and the equation of a mimic joint; None without them."""
    if isinstance(mimic, Mimic):
        factor, offset = float(mimic.multiplier), float(mimic.offset)
        return {"joints": [mimic.joint], "multiplier": factor, "offset": offset}
    if isinstance(mimic, Follow):
        return {"joints": list(mimic.joints)}
    return None


def check_report(
    path: str, faults: Sequence[RobotFileError], warned: Sequence[RobotFileError], refused: bool
) -> dict[str, Any]:
    """The object of `jaxrbd check --json`: the file, whether it is accepted, and the findings."""
    findings = [("fault", found) for found in faults] + [("warning", found) for found in warned]
    return {
        "file": path,
        "ok": not refused,
        "findings": [
            {
                "severity": severity,
                "line": found.line,
                "link": found.link,
                "joint": found.joint,
                "message": _message(found),
            }
            for severity, found in findings
        ],
    }


def _message(found: RobotFileError) -> str:
    """The message of a finding without file, line and "warning", which are in other fields."""
    where = found.file if found.line is None else f"{found.file}:{found.line}"
    return str(found).removeprefix(f"{where}: ").removeprefix("warning: ")
