"""Mechanisms with closed loops and contacts: a tree, and the constraints that close it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ..algorithms.kinematics import frame_placement
from ..configuration import neutral
from ..constraints import Constraint, hinge, point
from ..errors import ArgumentError
from ..joints import Revolute
from ..model import Model
from ..model.builder import build_model
from ..model.description import Fixed, JointSpec, Link, link_inertia, placement_matrix
from .bundled import load_robot

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
    """Closed with the crank up and the rocker to the right."""
    crank, coupler, rocker = 0.3, 0.9, 0.7
    base, turned = np.array([1.0, 0.0]), -np.pi / 3
    bar, other = _meet(_tip(crank, turned), coupler, base, rocker)
    chains = [("crank", crank), ("coupler", coupler)], [("rocker", rocker)]
    return _planar("four_bar", chains, (0.0, 1.0), (turned, bar - turned, other))


def _five_bar() -> Linkage:
    """Closed with the elbows out and the tip up."""
    arm, forearm, base = 0.4, 0.6, np.array([0.15, 0.0])
    left, right = -2.2, -0.9
    elbows = _tip(arm, left) - base, _tip(arm, right) + base
    bar, other = _meet(elbows[0], forearm, elbows[1], forearm)
    chains = [[(f"{side}_arm", arm), (f"{side}_forearm", forearm)] for side in ("left", "right")]
    q = (left, bar - left, right, other - right)
    return _planar("five_bar", chains, (-0.15, 0.15), q)


def _standing_quadruped() -> Linkage:
    model = load_robot("quadruped")
    q = neutral(model).at[7:].set(np.array([0.0, 0.7, -1.4] * 4, model.dtype))
    feet = [name for name in model.frame_names if name.endswith("_foot")]
    q = q.at[2].set(FOOT_RADIUS - frame_placement(model, q, feet[0]).p[2])
    ground = [frame_placement(model, q, foot).p for foot in feet]
    return Linkage(model, tuple(point(None, *pair) for pair in zip(feet, ground)), q)


def _tip(length: float, angle: float) -> np.ndarray:
    """Where in the plane (x, z) a bar ends that is turned from x about y."""
    return length * np.array([np.cos(angle), -np.sin(angle)])


def _meet(p: np.ndarray, length: float, o: np.ndarray, other: float) -> tuple[float, float]:
    """The angles of bars that start at p and o and meet, on the left of the way from p to o."""
    way = o - p
    distance = np.hypot(*way)
    along = (distance**2 + length**2 - other**2) / (2 * distance)
    across = np.sqrt(length**2 - along**2)
    tip = p + (along * way + across * np.array([-way[1], way[0]])) / distance
    first, second = tip - p, tip - o
    return float(np.arctan2(-first[1], first[0])), float(np.arctan2(-second[1], second[0]))


def _planar(
    name: str,
    chains: Sequence[Sequence[tuple[str, float]]],
    bases: Sequence[float],
    q: Sequence[float],
) -> Linkage:
    """Two chains of bars along their own x axes, whose tips a hinge joins."""
    links, joints = [], []
    for chain, base in zip(chains, bases):
        parent, at = None, (base, 0.0, 0.0)
        for bar, length in chain:
            links.append(Link(bar, _bar(length)))
            joints.append(JointSpec(bar, Revolute(AXIS), parent, bar, placement_matrix(at)))
            parent, at = bar, (length, 0.0, 0.0)
        tip = f"{parent}_tip"
        links.append(Link(tip))
        joints.append(JointSpec(tip, Fixed(), parent, tip, placement_matrix(at)))
    model = build_model(links, joints, name=name)
    first, second = (f"{chain[-1][0]}_tip" for chain in chains)
    return Linkage(model, (hinge(first, second, AXIS),), jnp.asarray(q, model.dtype))


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
