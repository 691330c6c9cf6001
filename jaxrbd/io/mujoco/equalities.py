"""Equality constraints of a compiled MuJoCo model."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ...constraints import Constraint, Equation, point, weld
from ...model import Follow, Mimic, Model
from ...model.joint_space import joint_coordinates
from ...spatial import Pose
from ...tendons import Tendons
from .source import Source


class Polynomial(eqx.Module):
    """A polynomial that relates two joints or two tendons.

    `x = rest[0] + sum_k coefficients_k (y - rest[1])^k`, where x and y are the coordinates of the
    first and the second joint, or the lengths of the first and the second tendon.

    - `coefficients`: (5,), from the constant to the fourth power;
    - `rest`: (2,), x and y in the configuration that the file states, MuJoCo's `qpos0`.
    """

    coefficients: Float[Array | np.ndarray, "5"]
    rest: Float[Array | np.ndarray, "2"]

    def __call__(self, leaders: Float[Array, "1"]) -> Float[Array, ""]:
        """The value x () for `leaders`, the array (1,) of y, as a `Follow` calls it."""
        c, rest = (jnp.asarray(x, leaders.dtype) for x in (self.coefficients, self.rest))
        y = leaders[0] - rest[1]
        return rest[0] + c[0] + y * (c[1] + y * (c[2] + y * (c[3] + y * c[4])))


class JointEquation(eqx.Module):
    """The equation of two joints, `x - polynomial(y) = 0`, as the function of an `Equation`.

    `joint` and `leader`: names of joints with one degree of freedom. If `leader` is None, x is
    constant.
    """

    polynomial: Polynomial
    joint: str = eqx.field(static=True)
    leader: str | None = eqx.field(static=True)

    def __call__(self, model: Model, q: Float[Array, " nq"]) -> Float[Array, "1"]:
        """The error (1,) in m or rad at q (nq,)."""
        coordinates = joint_coordinates(model, q)
        x = coordinates[_coordinate(model, self.joint)]
        if self.leader is None:
            y = jnp.asarray(self.polynomial.rest[1], model.dtype)
        else:
            y = coordinates[_coordinate(model, self.leader)]
        return (x - self.polynomial(y[None]))[None]


class TendonEquation(eqx.Module):
    """The equation of two tendons, `l_0 - polynomial(l_1) = 0`, as the function of an `Equation`.

    `tendons`: one tendon of constant length, or two tendons with the lengths l_0 and l_1.
    """

    polynomial: Polynomial
    tendons: Tendons

    def __call__(self, model: Model, q: Float[Array, " nq"]) -> Float[Array, "1"]:
        """The error (1,) in m at q (nq,)."""
        lengths = self.tendons.lengths(model, q)
        if len(lengths) > 1:
            return lengths[:1] - self.polynomial(lengths[1:])
        rest = jnp.asarray(self.polynomial.rest[1:], model.dtype)
        return lengths - self.polynomial(rest)


def _coordinate(model: Model, joint: str) -> int:
    """The index of the coordinate of a joint among the coordinates of all joints."""
    return int(model.topology.q_start[model.joint(joint).bodies[0]])


class FollowerRules(NamedTuple):
    """The rule of each joint that follows another joint, and the equalities that became rules."""

    rules: dict[str, Mimic | Follow]
    equalities: set[int]


def read_followers(source: Source) -> FollowerRules:
    """The rules from the active equalities of two joints.

    An equality stays a constraint if its first joint follows or leads a joint already, or if its
    second joint follows another joint.
    """
    followers: dict[str, Mimic | Follow] = {}
    leaders: set[str] = set()
    used: set[int] = set()
    for equality in range(source.m.neq):
        if not _is_active_joint_pair(source, equality):
            continue
        equation = _joint_equation(source, equality)
        joint, leader = equation.joint, equation.leader
        if joint in followers or joint in leaders or leader in followers or leader is None:
            continue
        c, rest = (np.asarray(x) for x in jax.tree.leaves(equation.polynomial))
        if c[2:].any():
            followers[joint] = Follow((leader,), equation.polynomial)
        else:
            offset = rest[0] + c[0] - c[1] * rest[1]
            followers[joint] = Mimic(leader, float(c[1]), float(offset))
        leaders.add(leader)
        used.add(equality)
    return FollowerRules(followers, used)


def read_constraints(
    source: Source, used: set[int], sites: dict[str, str], tendons: Tendons
) -> tuple[tuple[Constraint, ...], tuple[Constraint, ...]]:
    """The constraints that are active at the start, and the constraints that are not.

    - `used`: the equalities that became rules of followers. The result leaves these equalities out;
    - `sites`: the frame of each site; `tendons`: all tendons of the file.
    """
    found: dict[bool, list[Constraint]] = {True: [], False: []}
    if source.disabled("EQUALITY", "CONSTRAINT"):
        return (), ()
    for equality in sorted(set(range(source.m.neq)) - used):
        constraint = _constraint(source, equality, sites, tendons)
        if constraint is not None:
            found[bool(source.m.eq_active0[equality])].append(constraint)
    return tuple(found[True]), tuple(found[False])


def _is_active_joint_pair(source: Source, equality: int) -> bool:
    """Whether an equality is active and couples two joints."""
    m = source.m
    return bool(
        source.kind("Eq", m.eq_type[equality]) == "joint"
        and m.eq_active0[equality]
        and m.eq_obj2id[equality] >= 0
        and not source.disabled("EQUALITY", "CONSTRAINT")
    )


def _constraint(
    source: Source, equality: int, sites: dict[str, str], tendons: Tendons
) -> Constraint | None:
    """The constraint of an equality; None, and a text in `source.omitted`, for an unknown kind."""
    m, kind = source.m, source.kind("Eq", source.m.eq_type[equality])
    data = m.eq_data[equality]
    if kind == "joint":
        return Equation(_joint_equation(source, equality))
    if kind == "tendon":
        return Equation(_tendon_equation(source, equality, tendons))
    if kind not in ("connect", "weld"):
        source.omit(f"equality {source.equalities[equality]!r}: {kind}")
        return None
    a, b = (_frame(source, equality, end, sites) for end in (m.eq_obj1id, m.eq_obj2id))
    on_sites = source.kind("Obj", m.eq_objtype[equality]) == "site"
    zero = np.zeros(3)
    if kind == "connect":
        p_a, p_b = (zero, zero) if on_sites else (data[:3].copy(), data[3:6].copy())
        return point(a, b, p_a, p_b)
    if data[10] == 0:  # the torquescale: without moments, a weld is a connect
        return point(a, b, zero, zero) if on_sites else point(a, b, *_copies(data[3:6], data[:3]))
    if on_sites:
        return weld(a, b)
    # Constants stay in float64 until the dtype of the model is known.
    R_a, p_a, R_b, p_b = _copies(source.rotation(data[6:10]), data[3:6], np.eye(3), data[:3])
    return weld(a, b, Pose(R_a, p_a), Pose(R_b, p_b))


def _copies(*arrays: np.ndarray) -> Any:
    """Copies of arrays, because slices of `eq_data` are in the memory of MuJoCo."""
    return [np.array(x) for x in arrays]


def _ends(source: Source, equality: int) -> list[int]:
    """The ids of the two joints or tendons of an equality; the second one may be -1."""
    return [int(x[equality]) for x in (source.m.eq_obj1id, source.m.eq_obj2id)]


def _polynomial(source: Source, equality: int, rest: list[float]) -> Polynomial:
    """The polynomial of an equality; `rest`: the values of its two ends in `qpos0`."""
    return Polynomial(source.m.eq_data[equality, :5].copy(), np.array(rest))


def _joint_equation(source: Source, equality: int) -> JointEquation:
    m = source.m
    ends = _ends(source, equality)
    rest = [m.qpos0[m.jnt_qposadr[joint]] if joint >= 0 else 0.0 for joint in ends]
    polynomial = _polynomial(source, equality, rest)
    names = [source.joints[joint] if joint >= 0 else None for joint in ends]
    return JointEquation(polynomial, names[0] or "", names[1])


def _tendon_equation(source: Source, equality: int, tendons: Tendons) -> TendonEquation:
    m = source.m
    ends = _ends(source, equality)
    rest = [m.tendon_length0[tendon] if tendon >= 0 else 0.0 for tendon in ends]
    pair = [tendons.tendons[tendon] for tendon in ends if tendon >= 0]
    return TendonEquation(_polynomial(source, equality, rest), Tendons(pair))


def _frame(source: Source, equality: int, ends: np.ndarray, sites: dict[str, str]) -> str | None:
    """The name of the frame at one end of a constraint; None is the world.

    `ends`: the ids of the objects at this end of all equalities.
    """
    end = int(ends[equality])
    if source.kind("Obj", source.m.eq_objtype[equality]) == "site":
        return sites[source.sites[end]]
    return source.bodies[end] if end > 0 else None
