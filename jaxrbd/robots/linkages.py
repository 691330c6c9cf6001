"""Mechanisms with closed loops and contacts: a tree, and the constraints that close it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jax import Array
from jaxtyping import Float

from .._algorithms.kinematics import frame_placement
from ..builder import build_model
from ..configuration import neutral
from ..constraints import Constraint, close_loops, hinge, point
from ..description import Fixed, JointSpec, Link, link_inertia, pose_matrix
from ..errors import ArgumentError
from ..joints import Revolute
from ..model import Model
from . import load_robot

AXIS = (0.0, 1.0, 0.0)
DENSITY = 2.0  # kg/m, of the bars
FOOT_RADIUS = 0.02  # m, of the quadruped


class Linkage(NamedTuple):
    """A robot, the constraints on it, and a configuration that satisfies them, (nq,)."""

    model: Model
    constraints: tuple[Constraint, ...]
    q: Float[Array, " nq"]


def linkage_names() -> tuple[str, ...]:
    """The names of the mechanisms that ship with the package."""
    return tuple(_LINKAGES)


def load_linkage(name: str) -> Linkage:
    """A mechanism that ships with the package, in JAX's default float.

    - "four_bar": a crank (0.3 m), a coupler (0.9 m) and a rocker (0.7 m) on a base of 1 m, in the
      vertical plane. Its loop is closed by a hinge: 5 equations of which 2 are independent;
    - "five_bar": a parallel robot, two arms of 0.4 m and 0.6 m on bases 0.3 m apart;
    - "standing_quadruped": the bundled quadruped, the centre of each foot fixed above the ground,
      which is at height 0.

    Raises ArgumentError for an unknown name.
    """
    if name not in _LINKAGES:
        raise ArgumentError(f"name: expected one of {', '.join(_LINKAGES)}; found {name!r}")
    return _LINKAGES[name]()


def _four_bar() -> Linkage:
    chains = [("crank", 0.3), ("coupler", 0.9)], [("rocker", 0.7)]
    return _planar("four_bar", chains, (0.0, 1.0), (-1.0, 0.8, -1.9))


def _five_bar() -> Linkage:
    chains = (
        [("left_arm", 0.4), ("left_forearm", 0.6)],
        [("right_arm", 0.4), ("right_forearm", 0.6)],
    )
    return _planar("five_bar", chains, (-0.15, 0.15), (-2.2, 0.9, -0.9, -0.9))


def _standing_quadruped() -> Linkage:
    model = load_robot("quadruped")
    q = neutral(model).at[7:].set(np.array([0.0, 0.7, -1.4] * 4, model.dtype))
    feet = [name for name in model.frame_names if name.endswith("_foot")]
    q = q.at[2].set(FOOT_RADIUS - frame_placement(model, q, feet[0]).p[2])
    ground = [frame_placement(model, q, foot).p for foot in feet]
    return Linkage(model, tuple(point(None, *pair) for pair in zip(feet, ground)), q)


def _planar(
    name: str,
    chains: Sequence[Sequence[tuple[str, float]]],
    bases: Sequence[float],
    guess: Sequence[float],
) -> Linkage:
    """Two chains of bars along their own x axes, whose tips a hinge joins."""
    links, joints = [], []
    for chain, base in zip(chains, bases):
        parent, at = None, (base, 0.0, 0.0)
        for bar, length in chain:
            links.append(Link(bar, _bar(length)))
            joints.append(JointSpec(bar, Revolute(AXIS), parent, bar, pose_matrix(at)))
            parent, at = bar, (length, 0.0, 0.0)
        tip = f"{parent}_tip"
        links.append(Link(tip))
        joints.append(JointSpec(tip, Fixed(), parent, tip, pose_matrix(at)))
    model = build_model(links, joints, name=name)
    first, second = (f"{chain[-1][0]}_tip" for chain in chains)
    constraints = (hinge(first, second, AXIS),)
    closed = close_loops(model, np.array(guess, model.dtype), constraints)
    return Linkage(model, constraints, closed.q)


def _bar(length: float) -> np.ndarray:
    """The inertia of a thin bar from its origin along x."""
    mass = DENSITY * length
    across = mass * length**2 / 12
    return link_inertia(mass, (length / 2, 0.0, 0.0), np.diag([1e-4 * mass, across, across]))


_LINKAGES: dict[str, Callable[[], Linkage]] = {
    "four_bar": _four_bar,
    "five_bar": _five_bar,
    "standing_quadruped": _standing_quadruped,
}
