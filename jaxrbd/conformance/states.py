"""The states that derivatives are taken at, and the curves that lead through them.

A curve moves the whole robot: `q(t) = A cos(r t) + B sin(r t) + C t`, entry by entry, and v and u
(acceleration or force) in a straight line. With `B = q w / |w|` and `r = |w| / 2` a quaternion
follows the geodesic of the angular velocity w, at whatever length it has; with `C` alone it leaves
its sphere. These formulas are analytic and see no angle: they have no singular state themselves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .robots import Coordinate, Robot

ANGLES = {"0": 0.0, "1e-20": 1e-20, "1e-9": 1e-9, "1e-4": 1e-4, "pi": np.pi, "2 pi": 2 * np.pi}
SPEEDS = {"0": 0.0, "1e-20": 1e-20, "1e-9": 1e-9, "1e-4": 1e-4}


@dataclasses.dataclass(frozen=True)
class Condition:
    """A singular-looking state of the tested joint, or of the `whole` robot.

    - `angle`: every angle of the joint in rad, and that of its rotation about a random axis where
      it has a quaternion; None is random. Below 1, also every length of it in m;
    - `speed`: length of the joint's velocity; None is random;
    - `scale`: a factor on its quaternion. With another than 1 only joints that have one are tested;
    - `smooth`: whether there is a derivative to speak of.

    Whatever is not tested is random.
    """

    name: str
    angle: float | None = None
    speed: float | None = None
    whole: bool = False
    scale: float = 1.0
    smooth: bool = True


CONDITIONS = (
    Condition("robot neutral, at rest", 0.0, 0.0, whole=True),
    Condition("robot neutral, moving", 0.0, whole=True),
    Condition("robot random, at rest", None, 0.0, whole=True),
    Condition("robot random, moving"),
    *(Condition(f"angle {name}, at rest", angle, 0.0) for name, angle in ANGLES.items()),
    *(Condition(f"angle {name}, moving", angle) for name, angle in ANGLES.items()),
    *(Condition(f"angle random, speed {name}", None, speed) for name, speed in SPEEDS.items()),
    *(Condition(f"angle 0, speed {name}", 0.0, speed) for name, speed in SPEEDS.items() if speed),
    Condition("quaternion -1, at rest", 0.0, 0.0, scale=-1.0),
    Condition("quaternion -1, moving", 0.0, scale=-1.0),
    Condition("quaternion 3, at rest", 0.0, 0.0, scale=3.0),
    Condition("quaternion 3, moving", 0.0, scale=3.0),
    Condition("quaternion random x 3, moving", None, scale=3.0),
    Condition("quaternion zero", 0.0, scale=0.0, smooth=False),
)

# What moves along the curve: the configuration on its manifold, the velocity, everything, or the
# bare numbers of q.
DIRECTIONS = ("q", "v", "q v u", "raw q")


class Curves(NamedTuple):
    """Curves through states: each field (n, nq) or (n, nv); see the head of this file."""

    A: np.ndarray
    B: np.ndarray
    C: np.ndarray
    r: np.ndarray
    v: np.ndarray
    dv: np.ndarray
    u: np.ndarray
    du: np.ndarray


class Layout(NamedTuple):
    """Which tree each entry of q and of v belongs to, and which coordinate."""

    q_tree: np.ndarray
    v_tree: np.ndarray


def layout(robot: Robot) -> Layout:
    """The trees of the entries of q and v."""
    q_tree = [c.tree for c in robot.coordinates for _ in range(4 if c.letter == "Q" else 1)]
    v_tree = [c.tree for c in robot.coordinates for _ in range(3 if c.letter == "Q" else 1)]
    return Layout(np.array(q_tree), np.array(v_tree))


def applies(robot: Robot, condition: Condition) -> np.ndarray:
    """(trees,): whether a condition means anything for the joint that the tree tests."""
    if condition.scale == 1:
        return np.ones(len(robot.trees), bool)
    found = {c.tree for c in robot.coordinates if c.tested and c.letter == "Q"}
    return np.array([i in found for i in range(len(robot.trees))], bool)


def curves(robot: Robot, conditions: Sequence[Condition]) -> Curves:
    """The curves of all conditions in all directions, n = conditions x directions."""
    rows = [_curve(robot, condition, d) for condition in conditions for d in DIRECTIONS]
    return Curves(*(np.stack(column) for column in zip(*rows)))


def _curve(robot: Robot, condition: Condition, direction: str) -> Curves:
    """One curve: each field (nq,) or (nv,)."""
    streams = [(t.rng("state"), t.rng("tested"), t.rng(direction)) for t in robot.trees]
    parts = [_through(c, condition, direction, *streams[c.tree]) for c in robot.coordinates]
    whole = Curves(*(np.concatenate(column) for column in zip(*parts)))
    return whole._replace(v=_slowed(robot, condition, whole.v))


def _through(
    coordinate: Coordinate,
    condition: Condition,
    direction: str,
    state: np.random.Generator,
    tested: np.random.Generator,
    moving: np.random.Generator,
) -> Curves:
    """The curve of one coordinate. Every stream is read the same way in every condition."""
    turns = coordinate.letter == "Q"
    special = condition.whole or coordinate.tested
    angle = condition.angle if special else None
    if turns:
        quaternion, axis = state.normal(size=4), tested.normal(size=3)
        q = quaternion / np.linalg.norm(quaternion)
        if angle is not None:
            axis = axis / np.linalg.norm(axis)
            q = np.append(np.sin(angle / 2) * axis, np.cos(angle / 2))
        q = q * (condition.scale if special else 1.0)
    else:
        reach = 2 if coordinate.letter == "a" else 1
        q = state.uniform(-reach, reach, size=1)
        if angle is not None and (coordinate.letter == "a" or angle < 1):
            q = np.full(1, angle / coordinate.ratio)
    n = 3 if turns else 1
    v, u = state.normal(size=n), state.normal(size=n)
    # No entry is small: a derivative that is missing must show.
    dq, dv, du = moving.uniform(0.3, 0.7, size=(3, n)) * moving.choice([-1, 1], size=(3, n))
    raw = moving.normal(size=len(q))
    moves_q, moves_v = direction in ("q", "q v u"), direction in ("v", "q v u")
    zero = np.zeros(len(q))
    B, C, r = zero, zero, zero
    if direction == "raw q":
        C = 0.5 * raw / np.linalg.norm(raw)
    elif moves_q and turns:
        rate = np.linalg.norm(dq)
        B, r = _multiply_by_vector(q, dq / rate), np.full(4, rate / 2)
    elif moves_q:
        C = dq
    return Curves(q, B, C, r, v, dv * moves_v, u, du * (direction == "q v u"))


def _slowed(robot: Robot, condition: Condition, v: np.ndarray) -> np.ndarray:
    """The velocity with that of the tested joint, or of every joint, at the condition's speed."""
    if condition.speed is None:
        return v
    v = v.copy()
    width = [3 if c.letter == "Q" else 1 for c in robot.coordinates]
    joint = np.repeat([3 * c.tree + c.joint for c in robot.coordinates], width)
    special = np.repeat([c.tested or condition.whole for c in robot.coordinates], width)
    for number in np.unique(joint[special]):
        own = joint == number
        v[own] *= condition.speed / np.linalg.norm(v[own])
    return v


def _multiply_by_vector(q: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The Hamilton product of a quaternion xyzw with the pure quaternion of w."""
    return np.append(q[3] * w + np.cross(q[:3], w), -q[:3] @ w)
