"""The states of the suite, and the curves through them along which derivatives are taken.

A curve moves the whole robot. Each entry of the configuration is
`q(t) = A cos(r t) + B sin(r t) + C t`. The velocity v and the input u, an acceleration or a force,
are linear in t.

A is the configuration at t = 0. For a quaternion, A, B and C have four entries, and A has any
length. With the quaternion product `B = A w / |w|`, `r = |w| / 2` and C = 0, q(t) rotates with the
constant angular velocity w in the body frame, and the length of q(t) is constant. With
B = 0 and r = 0, q(t) is a straight line, and the length of q(t) changes. The formulas are analytic
in t at every state.
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
    """A state of the tested joint, or of the `whole` robot; all other joints have random states.

    - `angle`: the value in rad of every angle of the joint, and the rotation angle of a quaternion,
      about a random axis. If `angle` is below 1, it is also the value in m of every length of the
      joint. None means random values;
    - `speed`: the norm of the entries of v of the joint, or of the joint that it mimics. None means
      random values;
    - `scale`: a factor on the quaternion. A condition with a factor other than 1 is tested only for
      joints with a quaternion;
    - `smooth`: whether the derivatives exist. If not, only the value (order 0) is tested, and it is
      correct if it is finite.
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

# What changes along a curve: "q": q on the configuration manifold; "v": only v; "q v u": q on the
# manifold, v and u; "raw q": the entries of q as independent values, off the manifold.
DIRECTIONS = ("q", "v", "q v u", "raw q")


class Curves(NamedTuple):
    """n curves: A, B, C, r (n, nq), and v, u at t = 0 with their rates dv, du (n, nv)."""

    A: np.ndarray
    B: np.ndarray
    C: np.ndarray
    r: np.ndarray
    v: np.ndarray
    dv: np.ndarray
    u: np.ndarray
    du: np.ndarray


class Layout(NamedTuple):
    """The index of the tree of each entry of q and of v."""

    q_tree: np.ndarray
    v_tree: np.ndarray


def layout(robot: Robot) -> Layout:
    """The `Layout` of a robot."""
    q_tree = [c.tree for c in robot.coordinates for _ in range(4 if c.letter == "Q" else 1)]
    v_tree = [c.tree for c in robot.coordinates for _ in range(3 if c.letter == "Q" else 1)]
    return Layout(np.array(q_tree), np.array(v_tree))


def applies(robot: Robot, condition: Condition) -> np.ndarray:
    """Whether a condition applies to the tested joint of each tree, (trees,)."""
    if condition.scale == 1:
        return np.ones(len(robot.trees), bool)
    found = {c.tree for c in robot.coordinates if c.tested and c.letter == "Q"}
    return np.array([i in found for i in range(len(robot.trees))], bool)


def curves(robot: Robot, conditions: Sequence[Condition]) -> Curves:
    """The curves for all conditions and directions; n is the product of their counts."""
    rows = [_curve(robot, condition, d) for condition in conditions for d in DIRECTIONS]
    return Curves(*(np.stack(column) for column in zip(*rows)))


def _curve(robot: Robot, condition: Condition, direction: str) -> Curves:
    """The curve of the robot for one condition and one direction, with fields (nq,) or (nv,)."""
    streams = [(t.rng("state"), t.rng("tested"), t.rng(direction)) for t in robot.trees]
    parts = [
        _coordinate_curve(c, condition, direction, *streams[c.tree]) for c in robot.coordinates
    ]
    whole = Curves(*(np.concatenate(column) for column in zip(*parts)))
    return whole._replace(v=_with_speed(robot, condition, whole.v))


def _coordinate_curve(
    coordinate: Coordinate,
    condition: Condition,
    direction: str,
    state: np.random.Generator,
    tested: np.random.Generator,
    moving: np.random.Generator,
) -> Curves:
    """The curve of one coordinate.

    The random generators `state`, `tested` and `moving` are for the state, for the axis of a
    rotation by `condition.angle`, and for the rates along the curve. The function draws the same
    values from them for every condition.
    """
    is_quaternion = coordinate.letter == "Q"
    special = condition.whole or coordinate.tested
    angle = condition.angle if special else None
    if is_quaternion:
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
    n = 3 if is_quaternion else 1
    v, u = state.normal(size=n), state.normal(size=n)
    # No entry is small, so a missing derivative causes a large error.
    dq, dv, du = moving.uniform(0.3, 0.7, size=(3, n)) * moving.choice([-1, 1], size=(3, n))
    raw = moving.normal(size=len(q))
    moves_q, moves_v = direction in ("q", "q v u"), direction in ("v", "q v u")
    zero = np.zeros(len(q))
    B, C, r = zero, zero, zero
    if direction == "raw q":
        C = 0.5 * raw / np.linalg.norm(raw)
    elif moves_q and is_quaternion:
        rate = np.linalg.norm(dq)
        B, r = _multiply_by_vector(q, dq / rate), np.full(4, rate / 2)
    elif moves_q:
        C = dq
    return Curves(q, B, C, r, v, dv * moves_v, u, du * (direction == "q v u"))


def _with_speed(robot: Robot, condition: Condition, v: np.ndarray) -> np.ndarray:
    """The velocity v (nv,), scaled to the speed of the condition.

    It is scaled in the tested joint, or in every joint if the condition is of the whole robot.
    """
    if condition.speed is None:
        return v
    v = v.copy()
    width = [3 if c.letter == "Q" else 1 for c in robot.coordinates]
    joint = np.repeat([3 * c.tree + c.joint for c in robot.coordinates], width)
    special = np.repeat([c.tested or condition.whole for c in robot.coordinates], width)
    for number in np.unique(joint[special]):
        entries = joint == number
        v[entries] *= condition.speed / np.linalg.norm(v[entries])
    return v


def _multiply_by_vector(q: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The Hamilton product of a quaternion xyzw with the pure quaternion of w."""
    return np.append(q[3] * w + np.cross(q[:3], w), -q[:3] @ w)
