"""Dynamics under implicit constraints: motion, constraint forces and impulses.

With `K a = k` the robot's acceleration and the multipliers solve the KKT system (3.17),

    [M  K^T] [    a    ]   [tau - bias]
    [K   0 ] [-lambda  ] = [     k    ].

It is solved by its Schur complement `D = K M^-1 K^T`, with a pseudo-inverse: where rows are
redundant (a planar linkage closed in space, a door on two hinges) D is singular, the acceleration
is still the only one, and lambda is the shortest of all that give it. Both inverses are
differentiated implicitly, the pseudo-inverse with the change of its null space, so derivatives are
right to any order wherever the rank of K does not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .. import arguments
from .._algorithms.crba import crba
from .._algorithms.kinematics import Kinematics, body_motions, forward_kinematics
from .._algorithms.rnea import bias_force
from .._linear import matmul
from ..errors import ArgumentError
from ..model import Model
from .between_frames import FrameConstraint, kind_of, rows_of_one_kind
from .kinds import BodyMotion, Constraint, Rows


class ConstrainedDynamics(NamedTuple):
    """Acceleration (nv,) and, for each constraint, its multipliers (m,).

    The joints feel `K^T multiplier` of each: `M a + bias = tau + sum of K^T multiplier`.
    """

    acceleration: Float[Array, " nv"]
    multipliers: tuple[Float[Array, " m"], ...]


class Impact(NamedTuple):
    """Velocity (nv,) after an impact, and each constraint's impulses (m,) in N s or N m s."""

    velocity: Float[Array, " nv"]
    impulses: tuple[Float[Array, " m"], ...]


@arguments.compiled
def constrained_dynamics(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    constraints: Sequence[Constraint],
    f_ext: ArrayLike | None = None,
    stabilisation: ArrayLike = 0.0,
) -> ConstrainedDynamics:
    """Acceleration and constraint forces of a robot whose loops or contacts do not yield.

    - `q` (nq,), `v` (nv,), `tau` (nv,), `f_ext` (nb, 6): as for `forward_dynamics`;
    - `constraints`: from `point`, `hinge`, `weld`, or any `Constraint`; rows may be redundant;
    - `stabilisation` in 1/s: the rate at which errors of position and velocity die out, critically
      damped (Baumgarte): `K a + dK/dt v = -2 s K v - s^2 phi`. At 0 they persist.

    Raises ArgumentError on a wrong shape or dtype, or an unknown frame.
    Source: Featherstone (3.17), in the form of his section 8.
    """
    q, v = arguments.configuration(model, q), arguments.velocity(model, v)
    tau = arguments.velocity(model, tau, "tau")
    rate = arguments.number(model, stabilisation, "stabilisation")
    each = _rows(model, q, v, constraints)
    rows = _stacked(model, each)
    k = -rows.bias - 2 * rate * matmul(rows.K, v) - rate * rate * rows.position
    a, multiplier = _constrain(model, q, tau - bias_force(model, q, v, f_ext), rows.K, k)
    return ConstrainedDynamics(a, _split(multiplier, each))


@arguments.compiled
def impact(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    constraints: Sequence[Constraint],
    restitution: ArrayLike = 0.0,
) -> Impact:
    """Velocity after the instant in which constraints begin to act, and their impulses.

    `M (v+ - v) = K^T impulse` with `K v+ = -e K v`. `q` (nq,), `v` (nv,) before; `restitution` e, a
    number: 0 and the constraints hold from then on, 1 and no energy is lost. Rows may be redundant.
    Raises ArgumentError on a wrong shape or dtype, or an unknown frame.
    Source: Featherstone (11.62) at e = 0.
    """
    q, v = arguments.configuration(model, q), arguments.velocity(model, v)
    e = arguments.number(model, restitution, "restitution")
    each = _rows(model, q, jnp.zeros_like(v), constraints)
    rows = _stacked(model, each)
    change, impulse = _constrain(model, q, jnp.zeros_like(v), rows.K, -(1 + e) * matmul(rows.K, v))
    return Impact(v + change, _split(impulse, each))


@arguments.compiled
def constraint_rows(
    model: Model, q: ArrayLike, v: ArrayLike, constraints: Sequence[Constraint]
) -> Rows:
    """phi(q), its Jacobian K and `dK/dt v`, of all constraints one after the other.

    `q` (nq,), `v` (nv,). Raises ArgumentError on a wrong shape or dtype, or an unknown frame.
    """
    q, v = arguments.configuration(model, q), arguments.velocity(model, v)
    return _stacked(model, _rows(model, q, v, constraints))


@arguments.compiled
def constraint_wrenches(
    model: Model,
    q: ArrayLike | Kinematics,
    constraints: Sequence[Constraint],
    multipliers: Sequence[ArrayLike],
) -> Float[Array, "nb 6"]:
    """The forces of constraints on the bodies: an `f_ext` (nb, 6), each in its body's own frame.

    `q` (nq,) or its `Kinematics`; `multipliers`: for each constraint (m,), as the dynamics return
    them. Under these external forces the free robot moves as the constrained one does. Raises
    ArgumentError on a wrong shape or dtype, an unknown frame, or a constraint that is
    not between frames.
    """
    _check(constraints)
    kinematics = forward_kinematics(model, q)
    if len(multipliers) != len(constraints):
        raise ArgumentError(f"{len(multipliers)} multipliers, expected {len(constraints)}")
    f_ext = jnp.zeros((model.nb, 6), model.dtype)
    for constraint, multiplier in zip(constraints, multipliers):
        f_ext = f_ext + constraint.wrenches(model, kinematics, jnp.asarray(multiplier))
    return f_ext


@arguments.compiled
def kkt_system(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    constraints: Sequence[Constraint],
    f_ext: ArrayLike | None = None,
) -> tuple[Float[Array, "n n"], Float[Array, " n"]]:
    """Matrix and right-hand side of (3.17), whose solution is `[a, -multipliers]`.

    Arguments as for `constrained_dynamics`, which is the way to solve it; n is nv and the number
    of equations. Raises ArgumentError on a wrong shape or dtype, or an unknown frame.
    """
    tau = arguments.velocity(model, tau, "tau")
    rows = constraint_rows(model, q, v, constraints)
    corner = jnp.zeros((len(rows.K), len(rows.K)), model.dtype)
    A = jnp.block([[crba(model, q), rows.K.T], [rows.K, corner]])
    return A, jnp.concatenate([tau - bias_force(model, q, v, f_ext), -rows.bias])


def _check(constraints: Sequence[Constraint]) -> None:
    if isinstance(constraints, Constraint):
        raise ArgumentError(f"constraints is {constraints!r}, expected a sequence of them")
    for i, constraint in enumerate(constraints):
        if not isinstance(constraint, Constraint):
            raise ArgumentError(f"constraints[{i}] is {constraint!r}, expected a Constraint")


def _rows(model: Model, q: Array, v: Array, constraints: Sequence[Constraint]) -> list[Rows]:
    _check(constraints)
    kinematics = forward_kinematics(model, q)
    motion = BodyMotion(kinematics, v, *body_motions(model, kinematics, v, jnp.zeros_like(v)))
    rows: dict[int, Rows] = {}
    alike: dict[Any, list[tuple[int, FrameConstraint]]] = {}
    for i, constraint in enumerate(constraints):
        if isinstance(constraint, FrameConstraint):
            alike.setdefault(kind_of(constraint), []).append((i, constraint))
        else:
            rows[i] = constraint.rows(model, motion)
    for places, of_one_kind in (zip(*pairs) for pairs in alike.values()):
        rows |= zip(places, rows_of_one_kind(model, motion, of_one_kind))
    return [rows[i] for i in range(len(constraints))]


def _stacked(model: Model, each: list[Rows]) -> Rows:
    none = Rows(*(jnp.zeros(shape, model.dtype) for shape in ((0,), (0, model.nv), (0,))))
    return jax.tree.map(lambda *x: jnp.concatenate(x), none, *each)


def _split(x: Array, each: list[Rows]) -> tuple[Array, ...]:
    parts, start = [], 0
    for rows in each:
        parts.append(x[start : start + len(rows.bias)])
        start += len(rows.bias)
    return tuple(parts)


def _constrain(model: Model, q: Array, force: Array, K: Array, k: Array) -> tuple[Array, Array]:
    """The x and lambda of `M x = force + K^T lambda`, `K x = k`."""
    B = jnp.concatenate([force[:, None], K.T], axis=1)
    solved = jax.scipy.linalg.solve(crba(model, q), B, assume_a="pos")
    free, X = solved[:, 0], solved[:, 1:]
    D = matmul(K, X)
    tolerance = float(jnp.finfo(D.dtype).eps) ** RANK_DIGITS
    inverse = jnp.linalg.pinv((D + D.T) / 2, rtol=tolerance, hermitian=True)
    multiplier = matmul(inverse, k - matmul(K, free))
    return free + matmul(X, multiplier), multiplier


# Eigenvalues of D below the largest times eps to this power are those of redundant rows.
RANK_DIGITS = 0.7
