"""A robot as text: its sizes, its tree, its joints and frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..algorithms.kinematics import forward_kinematics
from ..algorithms.mass import center_of_mass, total_mass
from ..configuration import neutral
from ..model import Model
from ..model.description import Follow, JointSpec, Mimic, stages
from ..model.editing import describe


def overview(model: Model) -> str:
    """The text of `jaxrbd info`: sizes and mass, then the tree, the joints and the frames."""
    joints = describe(model)[1][: model.nb]  # one per body; the other joints are welds
    mimic = "" if model.coupling is None else f" ({sum(model.joint_nvs)} with the mimic joints)"
    sizes = (
        f"{model.name}: {model.nb} bodies, {len(model.frame_names)} frames, "
        f"nq = {model.nq}, nv = {model.nv}{mimic}, {float(total_mass(model)):.6g} kg "
        "in the moving bodies"
    )
    return "\n\n".join(
        [f"{sizes}\n{_neutral(model)}", _tree(model, joints), _joints(joints), _frames(model)]
    )


def _neutral(model: Model) -> str:
    """A line about the neutral configuration: centre of mass, and its height above joint 0."""
    if model.nb == 0 or not np.any(np.asarray(model.inertia[:, 0])):
        return "neutral configuration: no moving mass"
    kinematics = forward_kinematics(model, neutral(model))
    com = np.asarray(center_of_mass(model, kinematics), float)
    position = ", ".join(f"{x:g}" for x in np.round(com, 3) + 0.0)  # + 0.0 turns -0 into 0
    text = f"neutral configuration: centre of mass at ({position}) m"
    gravity = np.asarray(model.gravity, float)
    if not np.any(gravity):
        return text
    height = (com - np.asarray(kinematics.X_WB.p[0])) @ -gravity / np.linalg.norm(gravity)
    side = "above" if height >= 0 else "below"
    return f"{text}, {abs(height):.3g} m {side} the joint {model.joint_names[0]}"


def _tree(model: Model, joints: Sequence[JointSpec]) -> str:
    """One line per body, below its parent: the name and mass of the body, and its joint."""
    parents = model.topology.parents
    last_child = {parent: body for body, parent in enumerate(parents)}
    masses = np.asarray(model.inertia[:, 0])
    indent = {-1: ""}
    lines = ["world"]
    for body, (parent, joint) in enumerate(zip(parents, joints)):  # parents come first
        is_last = last_child[parent] == body
        indent[body] = indent[parent] + ("    " if is_last else "|   ")
        branch = "`-- " if is_last else "|-- "
        what = f"{joint.child}  {masses[body]:.4g} kg  [{joint.name}: {_kind(joint)}]"
        lines.append(indent[parent] + branch + what)
    return "\n".join(lines)


def _joints(joints: Sequence[JointSpec]) -> str:
    """A table of the joints: kind, parent, and indices in q and v.

    A joint with one degree of freedom also has its limits, damping and friction. A joint that
    follows others has its equation in place of the indices.
    """
    header = ["joint", "kind", "parent", "q", "v", "lower", "upper", "effort", "velocity"]
    rows = [[*header, "damping", "friction"]]
    q = v = 0
    for joint in joints:
        row = [joint.name, _kind(joint), joint.parent or "world"]
        if isinstance(joint.mimic, Mimic):
            row.append(f"= {joint.mimic.multiplier:g} {joint.mimic.joint} + {joint.mimic.offset:g}")
        elif isinstance(joint.mimic, Follow):
            row.append(f"= f({', '.join(joint.mimic.joints)})")
        else:
            (stage,) = stages(joint.kind)
            nq, nv = stage.nq, stage.nv
            row += [_span(q, nq), _span(v, nv)]
            q, v = q + nq, v + nv
            if nq == nv == 1:
                limits = (joint.lower, joint.upper, joint.effort_limit, joint.velocity_limit)
                row += [_number(x) for x in (*limits, joint.damping, joint.friction)]
        rows.append(row)
    return _table(rows)


def _frames(model: Model) -> str:
    """A table of the frames that are not body frames: links that are welded to other links."""
    rows = [["frame", "welded to"]]
    for name, body in zip(model.frame_names, model.frame_bodies):
        if name not in model.body_names:
            rows.append([name, "world" if body < 0 else model.body_names[body]])
    return _table(rows) if len(rows) > 1 else "every frame is a body frame"


def _kind(joint: JointSpec) -> str:
    return type(joint.kind).__name__


def _number(value: Any) -> str:
    return f"{np.asarray(value).item():.4g}"


def _span(start: int, count: int) -> str:
    return f"{start}" if count == 1 else f"{start}-{start + count - 1}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    """The rows as text in aligned columns, two blanks apart.

    If a row has fewer cells than the table has columns, its last cell may be wider than the column.
    """
    columns = len(rows[0])
    sized = [row if len(row) == columns else row[:-1] for row in rows]
    widths = [max(len(row[i]) for row in sized if i < len(row)) for i in range(columns)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
