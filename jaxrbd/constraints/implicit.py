"""Dynamics under implicit constraints: motion, constraint forces and impulses.

For constraints `K a = k`, the acceleration a of the robot and the multipliers lambda solve the KKT
system, Featherstone (3.17),

    [M  K^T] [    a    ]   [tau - bias]
    [K   0 ] [-lambda  ] = [     k    ].

Let W be the inverse of the Cholesky factor of M, so that `W M W^T = 1`. Let s be scales of the rows
of K, and `A = s K W^T`. Then `a = M^-1 (tau - bias) + W^T x` with
`A x = s (k - K M^-1 (tau - bias))`, and the pseudo-inverse of A gives x.

Rows may be redundant, as for a planar linkage with a hinge (five equations) as its loop constraint,
or for a door on two hinges. The acceleration is then still unique. Of all possible multipliers, the
solver returns the multipliers with the least `|lambda / s|`. A row is redundant if the part of the
row that is independent of the other rows is as small as the rounding errors of K. So masses, units
and the scaling of an equation do not matter.

Derivatives are computed from the equations, not from the solver. The derivatives are right to any
order where the rank of K does not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.linear import REDUNDANT, inverse_factor, matmul, pseudo_inverse
from ..algorithms.crba import crba
from ..algorithms.kinematics import Kinematics, forward_kinematics, motions
from ..algorithms.rnea import bias_force
from ..errors import ArgumentError
from ..model import Model, arguments
from .between_frames import FrameConstraint, kind_of, rows_of_one_kind
from .kinds import BodyMotion, Constraint, ConstraintRows


class ConstrainedDynamics(NamedTuple):
    """Acceleration (nv,) and, for each constraint, its multipliers and residuals (m,).

    The generalized force of a constraint is `K^T multiplier`:
    `M a + bias = tau + sum of K^T multiplier`. The residuals are `K a - k`. The residuals are
    rounding errors, unless constraints contradict each other.
    """

    acceleration: Float[Array, " nv"]
    multipliers: tuple[Float[Array, " m"], ...]
    residuals: tuple[Float[Array, " m"], ...]


class Impact(NamedTuple):
    """Velocity (nv,) after an impact and, for each constraint, its impulses and residuals (m,).

    Impulses are in N s or N m s. The residuals are `K v+ + e K v`: v is the velocity before the
    impact, v+ is the velocity after the impact, and e is the restitution. The residuals are
    rounding errors, unless constraints contradict each other.
    """

    velocity: Float[Array, " nv"]
    impulses: tuple[Float[Array, " m"], ...]
    residuals: tuple[Float[Array, " m"], ...]


@arguments.compiled(checks={"stabilisation": arguments.NOT_NEGATIVE})
def constrained_dynamics(
    model: Model,
    q: ArrayLike | Kinematics,
    v: ArrayLike,
    tau: ArrayLike,
    constraints: Sequence[Constraint],
    f_ext: ArrayLike | None = None,
    stabilisation: ArrayLike = 0.0,
) -> ConstrainedDynamics:
    """Acceleration and constraint forces of a robot with rigid loops or contacts.

    - `q` (nq,) or its `Kinematics`, `v` (nv,), `tau` (nv,), `f_ext` (nb, 6): as for
      `forward_dynamics`;
    - `constraints`: from `point`, `hinge`, `weld`, or any `Constraint`; rows may be redundant;
    - `stabilisation` s in 1/s, 0 or more: errors of position and velocity decay at this rate,
      critically damped (Baumgarte): `K a + dK/dt v = -2 s K v - s^2 phi`. At s = 0 the errors
      persist.

    Raises ArgumentError for an unknown frame or a negative stabilisation; a traced negative
    stabilisation gives NaN.
    Source: Featherstone (3.17), and chapter 8 (closed loops).
    """
    kinematics = forward_kinematics(model, q)
    v, tau = arguments.velocity(model, v), arguments.velocity(model, tau, "tau")
    rate = arguments.NOT_NEGATIVE.or_nan(arguments.number(model, stabilisation, "stabilisation"))
    blocks = _rows(model, kinematics, v, constraints)
    rows = _stacked(model, blocks)
    k = -rows.bias - 2 * rate * matmul(rows.K, v) - rate * rate * rows.position
    force = tau - bias_force(model, kinematics, v, f_ext)
    a, *by_row = _constrain(model, kinematics, force, rows, k)
    return ConstrainedDynamics(a, *(_split(x, blocks) for x in by_row))


@arguments.compiled(checks={"restitution": arguments.FRACTION})
def impact(
    model: Model,
    q: ArrayLike | Kinematics,
    v: ArrayLike,
    constraints: Sequence[Constraint],
    restitution: ArrayLike = 0.0,
) -> Impact:
    """Velocity after an impact in which constraints begin to act, and the impulses.

    The velocity v+ after the impact satisfies `M (v+ - v) = K^T impulse` and `K v+ = -e K v`.

    - `q` (nq,) or its `Kinematics`, `v` (nv,): the state before the impact;
    - `constraints`: as for `constrained_dynamics`; rows may be redundant;
    - `restitution` e, from 0 to 1: at 0 the constraints hold after the impact, at 1 the kinetic
      energy is kept.

    Raises ArgumentError for an unknown frame or a restitution out of its range; a traced
    restitution out of its range gives NaN. Source: Featherstone (11.62) at e = 0.
    """
    kinematics, v = forward_kinematics(model, q), arguments.velocity(model, v)
    e = arguments.FRACTION.or_nan(arguments.number(model, restitution, "restitution"))
    blocks = _rows(model, kinematics, jnp.zeros_like(v), constraints)
    rows = _stacked(model, blocks)
    k = -(1 + e) * matmul(rows.K, v)
    change, *by_row = _constrain(model, kinematics, jnp.zeros_like(v), rows, k)
    return Impact(v + change, *(_split(x, blocks) for x in by_row))


@arguments.compiled
def constraint_rows(
    model: Model, q: ArrayLike | Kinematics, v: ArrayLike, constraints: Sequence[Constraint]
) -> ConstraintRows:
    """phi(q), its Jacobian K and `dK/dt v` of all constraints, concatenated in their order.

    `q` (nq,) or its `Kinematics`, `v` (nv,). Raises ArgumentError for an unknown frame.
    """
    kinematics, v = forward_kinematics(model, q), arguments.velocity(model, v)
    return _stacked(model, _rows(model, kinematics, v, constraints))


@arguments.compiled
def constraint_wrenches(
    model: Model,
    q: ArrayLike | Kinematics,
    constraints: Sequence[Constraint],
    multipliers: Sequence[ArrayLike],
) -> Float[Array, "nb 6"]:
    """The constraint forces on the bodies: an `f_ext` (nb, 6) in the body frames.

    `q` (nq,) or its `Kinematics`; `multipliers`: for each constraint (m,), as
    `constrained_dynamics` returns them. With these external forces the robot without constraints
    has the acceleration of the constrained robot. Raises ArgumentError for an unknown frame or a
    constraint that is not between frames.
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
    q: ArrayLike | Kinematics,
    v: ArrayLike,
    tau: ArrayLike,
    constraints: Sequence[Constraint],
    f_ext: ArrayLike | None = None,
) -> tuple[Float[Array, "n n"], Float[Array, " n"]]:
    """Matrix (n, n) and right-hand side (n,) of the KKT system with solution `[a, -multipliers]`.

    The arguments are as for `constrained_dynamics`, which solves the system; n is nv plus the
    number of constraint equations. Raises ArgumentError for an unknown frame. Source: Featherstone
    (3.17).
    """
    kinematics, tau = forward_kinematics(model, q), arguments.velocity(model, tau, "tau")
    rows = constraint_rows(model, kinematics, v, constraints)
    corner = jnp.zeros((len(rows.K), len(rows.K)), model.dtype)
    A = jnp.block([[crba(model, kinematics), rows.K.T], [rows.K, corner]])
    return A, jnp.concatenate([tau - bias_force(model, kinematics, v, f_ext), -rows.bias])


def _check(constraints: Sequence[Constraint]) -> None:
    if isinstance(constraints, Constraint):
        raise ArgumentError(f"constraints is {constraints!r}, expected a sequence of constraints")
    for i, constraint in enumerate(constraints):
        if not isinstance(constraint, Constraint):
            raise ArgumentError(f"constraints[{i}] is {constraint!r}, expected a Constraint")


def _rows(
    model: Model, kinematics: Kinematics, v: Array, constraints: Sequence[Constraint]
) -> list[ConstraintRows]:
    _check(constraints)
    motion = BodyMotion(kinematics, v, *motions(model, kinematics, v, jnp.zeros_like(v)))
    rows: dict[int, ConstraintRows] = {}
    kinds: dict[Any, list[tuple[int, FrameConstraint]]] = {}
    for i, constraint in enumerate(constraints):
        if isinstance(constraint, FrameConstraint):
            kinds.setdefault(kind_of(constraint), []).append((i, constraint))
        else:
            rows[i] = _with_terms(constraint.rows(model, motion))
    for places, same_kind in (zip(*pairs) for pairs in kinds.values()):
        rows |= zip(places, rows_of_one_kind(model, motion, same_kind))
    return [rows[i] for i in range(len(constraints))]


def _with_terms(rows: ConstraintRows) -> ConstraintRows:
    if rows.K_terms is not None:
        return rows
    largest = jnp.max(jnp.abs(rows.K), axis=0, initial=0)
    return rows._replace(K_terms=jnp.broadcast_to(largest, rows.K.shape))


def _stacked(model: Model, blocks: list[ConstraintRows]) -> ConstraintRows:
    shapes = ((0,), (0, model.nv), (0,), (0, model.nv))
    none = ConstraintRows(*(jnp.zeros(shape, model.dtype) for shape in shapes))
    return jax.tree.map(lambda *x: jnp.concatenate(x), none, *blocks)


def _split(x: Array, blocks: list[ConstraintRows]) -> tuple[Array, ...]:
    parts, start = [], 0
    for rows in blocks:
        parts.append(x[start : start + len(rows.bias)])
        start += len(rows.bias)
    return tuple(parts)


class ScaledRows(NamedTuple):
    """Rows of K, scaled, in coordinates in which the mass matrix is the identity.

    - `A` (m, nv): `s K W^T`, with `W` (nv, nv) the inverse of the Cholesky factor of M;
    - `s` (m,): the scale of each row, 0 for a row that consists of rounding errors;
    - `inverse` (nv, m): the pseudo-inverse of A;
    - `error` (m,): for each row of A, an estimate of the norm of the rounding errors.

    JAX treats these arrays as constants.
    """

    A: Float[Array, "m nv"]
    W: Float[Array, "nv nv"]
    s: Float[Array, " m"]
    inverse: Float[Array, "nv m"]
    error: Float[Array, " m"]


def scaled_rows(M: Float[Array, "nv nv"], rows: ConstraintRows) -> ScaledRows:
    """The rows of K, scaled so that a unit multiplier causes about a unit acceleration `K a`."""
    M, rows = lax.stop_gradient((M, rows))
    assert rows.K_terms is not None  # `constraint_rows` fills them in
    W = inverse_factor(M)
    eps = float(jnp.finfo(W.dtype).eps)
    A, terms = matmul(rows.K, W.T), matmul(rows.K_terms, jnp.abs(W).T)
    error = eps * jnp.sqrt(jnp.sum(terms * terms, axis=1))
    counts = jnp.sum(A * A, axis=1) > (REDUNDANT * error) ** 2
    s = jnp.where(counts, 1 / jnp.sqrt(jnp.where(counts, _weights(M, rows.K), 1)), 0)
    A, error = s[:, None] * A, jnp.where(counts, s * error, 1)
    return ScaledRows(A, W, s, pseudo_inverse(A, error), error)


def _weights(M: Array, K: Array) -> Array:
    """`1 / s^2`: for each row of K, `K M^-1 K^T` with M replaced by the diagonal of M."""
    return jnp.sum(K * K / jnp.diagonal(M), axis=1)


def _constrain(
    model: Model, kinematics: Kinematics, force: Array, rows: ConstraintRows, k: Array
) -> tuple[Array, Array, Array]:
    """The x and lambda of `M x = force + K^T lambda`, `K x = k`, and the residual `K x - k`.

    For redundant rows lambda is not unique. The lambda with the least `|lambda / s|` is `s^2 K y`
    for some y (nv,). To select this lambda, the function `equations` below adds a third equation,
    `lambda / s^2 = K y` with `y = W^T A^+ z`, and a third unknown, z (m,). JAX treats W and the
    pseudo-inverse A^+ as constants.
    """
    M, K = crba(model, kinematics), rows.K
    weights = _weights(M, K)
    A, W, s, inverse, _ = scaled_rows(M, rows)

    def parts(values):
        return jnp.split(values, [model.nv, model.nv + len(K)])

    def equations(unknown):
        x, multiplier, z = parts(unknown)
        y = matmul(W.T, matmul(inverse, z))
        force, k = matmul(M, x) - matmul(K.T, multiplier), matmul(K, x)
        return jnp.concatenate([force, k, weights * multiplier - matmul(K, y)])

    fixed = lax.stop_gradient((K, weights))

    def solve(right):
        K, weights = fixed
        force, k, rest = parts(right)
        x = matmul(W.T, matmul(W, force))
        change = jnp.zeros_like(x)
        for _ in range(2):  # the second step corrects the rounding errors of the first
            step = matmul(inverse, s * (k - matmul(K, x)))
            x, change = x + matmul(W.T, step), change + step
        independent = matmul(A, matmul(inverse, s * rest))
        multiplier = s * (matmul(inverse.T, change) + s * rest - independent)
        return jnp.concatenate([x, multiplier, s * (weights * multiplier - rest)])

    def transposed_solve(right):
        (solution,) = jax.linear_transpose(solve, right)(right)
        return solution

    right = jnp.concatenate([force, k, jnp.zeros_like(k)])
    solved = lax.custom_linear_solve(
        equations, right, lambda _, b: solve(b), lambda _, b: transposed_solve(b)
    )
    x, multiplier, _ = parts(solved)
    return x, multiplier, matmul(K, x) - k
