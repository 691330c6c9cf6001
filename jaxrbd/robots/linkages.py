"""Mechanisms with closed loops or contacts, each modelled as a tree with constraints."""

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

AXIS = (0.0, 1.0, 0.0)  # of all hinges: the bars move in the x-z plane
DENSITY = 2.0  # kg/m, of the bars
FOOT_RADIUS = 0.02  # m, of the quadruped


class Linkage(NamedTuple):
    """A robot, its constraints, and a configuration (nq,) that satisfies them."""

    model: Model
    constraints: tuple[Constraint, ...]
    q: Float[Array, " nq"]


def linkage_names() -> tuple[str, ...]:
    """The names of the bundled mechanisms."""
    return tuple(_LINKAGES)


def load_linkage(name: str) -> Linkage:
    """A bundled mechanism, in JAX's default float dtype.

    - "four_bar": a crank (0.3 m), a coupler (0.9 m) and a rocker (0.7 m) on a base of 1 m, in the
      vertical plane. A hinge closes the loop: 5 equations, of which 2 are independent;
    - "five_bar": a parallel robot with two arms, whose bases are 0.3 m apart. Each arm has two bars
      of 0.4 m and 0.6 m. A hinge connects the tips of the arms;
    - "standing_quadruped": the bundled quadruped on the ground, the plane z = 0. A constraint per
      foot fixes the centre of the foot in the world.

    Raises ArgumentError for an unknown name.
    """
    if name not in [*_LINKAGES]:
        raise ArgumentError(f"name: expected one of {', '.join(_LINKAGES)}; found {name!r}")
    return _LINKAGES[name]()


def _four_bar() -> Linkage:
    """The four-bar linkage with the crank to the upper right and the rocker up."""
    crank, coupler, rocker = 0.3, 0.9, 0.7
    base, crank_angle = np.array([1.0, 0.0]), -np.pi / 3
    coupler_angle, rocker_angle = _meet(_tip(crank, crank_angle), coupler, base, rocker)
    chains = [("crank", crank), ("coupler", coupler)], [("rocker", rocker)]
    q = (crank_angle, coupler_angle - crank_angle, rocker_angle)
    return _planar("four_bar", chains, (0.0, 1.0), q)


def _five_bar() -> Linkage:
    """The five-bar linkage with the elbows out and the tip up."""
    arm, forearm, base = 0.4, 0.6, np.array([0.15, 0.0])
    left, right = -2.2, -0.9
    elbows = _tip(arm, left) - base, _tip(arm, right) + base
    left_forearm, right_forearm = _meet(elbows[0], forearm, elbows[1], forearm)
    chains = [[(f"{side}_arm", arm), (f"{side}_forearm", forearm)] for side in ("left", "right")]
    q = (left, left_forearm - left, right, right_forearm - right)
    return _planar("five_bar", chains, (-0.15, 0.15), q)


def _standing_quadruped() -> Linkage:
    model = load_robot("quadruped")
    q = neutral(model).at[7:].set(np.array([0.0, 0.7, -1.4] * 4, model.dtype))
    feet = [name for name in model.frame_names if name.endswith("_foot")]
    q = q.at[2].set(FOOT_RADIUS - frame_placement(model, q, feet[0]).p[2])
    ground = [frame_placement(model, q, foot).p for foot in feet]
    return Linkage(model, tuple(point(None, *pair) for pair in zip(feet, ground)), q)


def _tip(length: float, angle: float) -> np.ndarray:
    """The end (x, z) of a bar from the origin, rotated by `angle` from x about y."""
    return length * np.array([np.cos(angle), -np.sin(angle)])


def _meet(p1: np.ndarray, length1: float, p2: np.ndarray, length2: float) -> tuple[float, float]:
    """The angles of two bars that start at p1 and p2 and meet to the left of the line p1 p2.

    Points are (x, z) with x to the right and z up.
    """
    line = p2 - p1
    distance = np.hypot(*line)
    parallel = (distance**2 + length1**2 - length2**2) / (2 * distance)
    normal = np.sqrt(length1**2 - parallel**2)
    tip = p1 + (parallel * line + normal * np.array([-line[1], line[0]])) / distance
    first, second = tip - p1, tip - p2
    return float(np.arctan2(-first[1], first[0])), float(np.arctan2(-second[1], second[0]))


def _planar(
    name: str,
    chains: Sequence[Sequence[tuple[str, float]]],
    bases: Sequence[float],
    q: Sequence[float],
) -> Linkage:
    """Two chains of bars; a hinge connects their tips. Each bar is on the x axis of its link.

    `chains`: for each chain, the name and the length of every bar; `bases`: for each chain, the x
    coordinate of the start; `q`: a configuration that closes the loop.
    """
    links, joints = [], []
    for chain, base in zip(chains, bases):
        parent, xyz = None, (base, 0.0, 0.0)
        for bar, length in chain:
            links.append(Link(bar, _bar(length)))
            joints.append(JointSpec(bar, Revolute(AXIS), parent, bar, placement_matrix(xyz)))
            parent, xyz = bar, (length, 0.0, 0.0)
        tip = f"{parent}_tip"
        links.append(Link(tip))
        joints.append(JointSpec(tip, Fixed(), parent, tip, placement_matrix(xyz)))
    model = build_model(links, joints, name=name)
    first, second = (f"{chain[-1][0]}_tip" for chain in chains)
    return Linkage(model, (hinge(first, second, AXIS),), jnp.asarray(q, model.dtype))


def _bar(length: float) -> np.ndarray:
    """The inertia (10,) of a thin bar from the origin along the x axis."""
    mass = DENSITY * length
    moment = mass * length**2 / 12
    return link_inertia(mass, (length / 2, 0.0, 0.0), np.diag([1e-4 * mass, moment, moment]))


_LINKAGES: dict[str, Callable[[], Linkage]] = {
    "four_bar": _four_bar,
    "five_bar": _five_bar,
    "standing_quadruped": _standing_quadruped,
}
