"""A robot as text: its sizes, its tree, its joints and frames."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ._algorithms.mass import total_mass
from .model import Model, joint_groups


def describe(model: Model) -> str:
    """The robot in lines of text: sizes and mass, then the tree, the joints and the frames."""
    mimic = "" if model.coupling is None else f" ({model.topology.nv} with the mimic joints)"
    sizes = (
        f"{model.name}: {model.nb} bodies, {len(model.frame_names)} frames, "
        f"nq = {model.nq}, nv = {model.nv}{mimic}, {float(total_mass(model)):.6g} kg"
    )
    return "\n\n".join([sizes, _tree(model), _joints(model), _frames(model)])


def _tree(model: Model) -> str:
    """One line a body, under its parent: its name and mass, and the joint that moves it."""
    parents = model.topology.parents
    last_child = {parent: body for body, parent in enumerate(parents)}
    kinds = _kinds(model)
    masses = np.asarray(model.inertia[:, 0])
    indent = {-1: ""}
    lines = ["world"]
    for body, parent in enumerate(parents):  # a parent always comes first
        is_last = last_child[parent] == body
        branch = "`-- " if is_last else "|-- "
        indent[body] = indent[parent] + ("    " if is_last else "|   ")
        lines.append(
            f"{indent[parent]}{branch}{model.body_names[body]}  {masses[body]:.4g} kg"
            f"  [{model.joint_names[body]}: {kinds[body]}]"
        )
    return "\n".join(lines)


def _joints(model: Model) -> str:
    """A table of the joints: kind, parent body, first coordinates, limits of one-dof joints."""
    topology, kinds = model.topology, _kinds(model)
    limits = [np.asarray(x) for x in (model.lower_limit, model.upper_limit)]
    strengths = [np.asarray(x) for x in (model.effort_limit, model.velocity_limit, model.damping)]
    rows = [
        ["joint", "kind", "parent", "q", "v", "lower", "upper", "effort", "velocity", "damping"]
    ]
    for body, name in enumerate(model.joint_names):
        q, v = topology.q_start[body], topology.v_start[body]
        nq, nv = topology.nqs[body], topology.nvs[body]
        parent = topology.parents[body]
        row = [name, kinds[body], "world" if parent < 0 else model.body_names[parent]]
        row += [_span(q, nq), _span(v, nv)]
        if nq == nv == 1:
            row += [f"{x[q]:.4g}" for x in limits] + [f"{x[v]:.4g}" for x in strengths]
        rows.append(row)
    return _table(rows)


def _frames(model: Model) -> str:
    """A table of the frames and the bodies that carry them."""
    carriers = ["world" if body < 0 else model.body_names[body] for body in model.frame_bodies]
    return _table([["frame", "on body"], *zip(model.frame_names, carriers)])


def _kinds(model: Model) -> dict[int, str]:
    """The kind of joint that moves each body."""
    return {
        int(body): type(group.joint).__name__
        for group in joint_groups(model)
        for body in group.bodies
    }


def _span(start: int, count: int) -> str:
    return f"{start}" if count == 1 else f"{start}-{start + count - 1}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text as columns two blanks apart; a short row leaves its last columns empty."""
    widths = [
        max(map(len, column)) for column in zip(*(_filled(row, len(rows[0])) for row in rows))
    ]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _filled(row: Sequence[str], length: int) -> list[str]:
    return [*row, *[""] * (length - len(row))]
