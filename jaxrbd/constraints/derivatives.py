"""Derivatives of the motion of a robot under implicit constraints.

The acceleration a and the multipliers lambda satisfy the KKT system (`kkt.py`)

    rnea(q, v, a, f_ext) - K^T lambda = tau,      c = K a + dK/dt v + d K v + p phi = 0.

with the gains p and d of the stabilisation; `d K v` is a product. The implicit function of the
system is differentiated by q, v and tau. In these equations da, dlambda, dc and d(rnea) are
differentials:

    [M  -K^T] [   da   ]   [dtau - d(rnea) + dK^T lambda]
    [K    0 ] [dlambda ] = [            -dc             ]

d(rnea) and dc are the changes at constant a, from `rnea_derivatives` and `row_derivatives.py`. If
rows are redundant, the multipliers with the least `|lambda / s|`, for the scales s of the rows in
`kkt.py`, satisfy `lambda / s^2 = K y` for some y. If constraints contradict each other,
`c = -e / s^2` with `K^T e = 0`. These equations are differentiated too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from .._math.linear import einsum, matmul
from ..algorithms.analytic_rules import FirstOrder, with_analytic_derivatives
from ..algorithms.common_frame import dof_columns, dof_strictly_supports, subtree_sums
from ..algorithms.crba import crba
from ..algorithms.kinematics import Kinematics, forward_kinematics, root_centred
from ..algorithms.rnea import bias_force
from ..algorithms.rnea_derivatives import rnea_derivatives
from ..configuration import integrate
from ..model import Model
from ..spatial import (
    inertia_rate_from_moments,
    inertia_regressor,
    transform_inertia,
    velocity_moments,
)
from .kinds import Constraint, ConstraintRows
from .kkt import Solution, kkt_solver
from .row_derivatives import RowDerivatives, row_derivatives
from .rows import constraint_blocks, stacked_rows


class ConstrainedDynamicsDerivatives(NamedTuple):
    """Derivatives of the acceleration (nv, nv) and of the multipliers (m, nv) by q, v and tau.

    The derivatives with respect to q are in its tangent space. m is the number of equations of all
    constraints, in the order of the constraints.
    """

    dqdd_dq: Float[Array, "nv nv"]
    dqdd_dv: Float[Array, "nv nv"]
    dqdd_dtau: Float[Array, "nv nv"]
    dmultipliers_dq: Float[Array, "m nv"]
    dmultipliers_dv: Float[Array, "m nv"]
    dmultipliers_dtau: Float[Array, "m nv"]


class ImpactDerivatives(NamedTuple):
    """Derivatives of the velocity after an impact (nv, nv) and of the impulses (m, nv) by q and v.

    The derivatives with respect to q are in its tangent space. m is the number of equations of all
    constraints, in the order of the constraints.
    """

    dvelocity_dq: Float[Array, "nv nv"]
    dvelocity_dv: Float[Array, "nv nv"]
    dimpulses_dq: Float[Array, "m nv"]
    dimpulses_dv: Float[Array, "m nv"]


class DynamicsParameters(NamedTuple):
    """The arguments of the constrained dynamics, except for q, v and tau.

    `gains`: p and d of the stabilisation; `active` (number of constraints,) of bool, or None.
    """

    model: Model
    constraints: tuple[Constraint, ...]
    f_ext: Array | None
    gains: tuple[Array, Array]
    active: Array | None


class ImpactParameters(NamedTuple):
    """The arguments of an impact, except for q and v; `restitution` ()."""

    model: Model
    constraints: tuple[Constraint, ...]
    restitution: Array
    active: Array | None


class Response(NamedTuple):
    """The acceleration, or the velocity after an impact (nv,); multipliers and residuals (m,)."""

    motion: Array
    multiplier: Array
    residual: Array


class _System(NamedTuple):
    """A solved KKT system. `solution.x` is the acceleration or, in an impact, the change of v."""

    kinematics: Kinematics
    M: Array
    rows: ConstraintRows
    solve: Callable[[Array, Array, Array, Array], Solution]
    solution: Solution
    k: Array


def _solved(
    model: Model,
    kinematics: Kinematics,
    rows: ConstraintRows,
    force: Array,
    k: Array,
) -> _System:
    M = crba(model, kinematics)
    solve = kkt_solver(M, rows)
    solution = solve(force, k, jnp.zeros_like(k), jnp.zeros_like(force))
    return _System(kinematics, M, rows, solve, solution, k)


def _motion(system: _System, v_before: Array | float = 0.0) -> Response:
    x, multiplier, _, _ = system.solution
    return Response(v_before + x, multiplier, matmul(system.rows.K, x) - system.k)


# ------------------------------------------------------------------------------- acceleration


def dynamics(
    parameters: DynamicsParameters, q: Array | Kinematics, v: Array, tau: Array
) -> Response:
    """The acceleration under constraints. JAX differentiates the KKT system."""
    return _motion(_dynamics(parameters, q, v, tau))


def _dynamics(
    parameters: DynamicsParameters, q: Array | Kinematics, v: Array, tau: Array
) -> _System:
    model, constraints, f_ext, (p, d), active = parameters
    kinematics = forward_kinematics.unchecked(model, q)
    rows = stacked_rows(model, constraint_blocks(model, kinematics, v, constraints), active)
    k = -rows.bias - d * matmul(rows.K, v) - p * rows.position
    bias = bias_force.unchecked(model, kinematics, v, f_ext)
    return _solved(model, kinematics, rows, tau - bias, k)


def dynamics_columns(
    parameters: DynamicsParameters, q: Array | Kinematics, v: Array, tau: Array
) -> Response:
    """The derivatives of `dynamics`, (..., 3 nv): columns for q (tangent space), v and tau."""
    return _dynamics_and_columns(parameters, q, v, tau)[1]


def _dynamics_and_columns(
    parameters: DynamicsParameters, q: Array | Kinematics, v: Array, tau: Array
) -> tuple[Response, Response]:
    """The motion, and its derivatives with respect to q, v and tau as columns (..., 3 nv)."""
    model, constraints, f_ext, gains, active = parameters
    system = _dynamics(parameters, q, v, tau)
    kinematics, a = system.kinematics, system.solution.x
    by_q = row_derivatives(model, kinematics, v, a, constraints, gains, active)
    dtau_dq, dtau_dv, _ = rnea_derivatives.unchecked(model, kinematics, v, a, f_ext)
    unit = jnp.eye(model.nv, dtype=model.dtype)
    force = jnp.concatenate([_constraint_forces(system, by_q) - dtau_dq, -dtau_dv, unit], axis=1)
    k = jnp.concatenate([-by_q.by_q, -by_q.by_v, jnp.zeros_like(by_q.by_q)], axis=1)
    return _motion(system), _columns(model, system, by_q, force, k)


def _columns(
    model: Model, system: _System, rows: RowDerivatives, force: Array, k: Array
) -> Response:
    """The derivatives, for the columns of `force` and k; the first nv columns are for q."""
    e, weights = system.solution.e, _weights_by_q(model, system, rows)
    by_q = (
        e[:, None] * weights,
        _multiplier_equation_by_q(system, rows, weights),
        -einsum("i,ikj->kj", e, rows.K_by_q),
    )
    others = k.shape[1] - model.nv
    by_weights, rest, gradient = (jnp.pad(x, ((0, 0), (0, others))) for x in by_q)
    x, multiplier, _, _ = jax.vmap(system.solve, 1, 1)(force, k - by_weights, rest, gradient)
    return Response(x, multiplier, matmul(system.rows.K, x) - k)


def _constraint_forces(system: _System, rows: RowDerivatives) -> Array:
    """The derivative (nv, nv) with respect to q of `K^T lambda` at constant lambda."""
    return einsum("i,ikj->kj", system.solution.multiplier, rows.K_by_q)


def _multiplier_equation_by_q(system: _System, rows: RowDerivatives, weights: Array) -> Array:
    """The derivative (m, nv) with respect to q of `K y - lambda / s^2` at constant y and lambda.

    `weights`: the result of `_weights_by_q`.
    """
    _, multiplier, y, _ = system.solution
    return einsum("k,ikj->ij", y, rows.K_by_q) - multiplier[:, None] * weights


def _weights_by_q(model: Model, system: _System, rows: RowDerivatives) -> Array:
    """The derivative (m, nv) of `1 / s^2` with respect to q."""
    ratio = system.rows.K / jnp.diagonal(system.M)[None]
    weights = 2 * einsum("ik,ikj->ij", ratio, rows.K_by_q)
    return weights - matmul(ratio * ratio, _diagonal_by_q(model, system.kinematics))


def _diagonal_by_q(model: Model, kinematics: Kinematics) -> Array:
    """The derivative (nv, nv) with respect to q of the diagonal of M.

    Entry k is `J_k . (I_k J_k)`. A dof j below dof k moves the part I_j of the composite inertia
    I_k. The entry is linear in the ten parameters of I_k, so its change is linear in their change.
    """
    if not model.velocity_map_is_identity:

        def diagonal(dq):
            return jnp.diagonal(crba.unchecked(model, integrate.unchecked(model, kinematics.q, dq)))

        return jax.jacfwd(diagonal)(jnp.zeros(model.nv, model.dtype))
    X = root_centred(kinematics)
    (inertia,) = subtree_sums(model, transform_inertia(X, model.inertia))
    J = dof_columns(model, X)
    rates = inertia_rate_from_moments(velocity_moments(inertia, J))
    squares = einsum("ka,kap->kp", J, inertia_regressor(J))
    return jnp.where(dof_strictly_supports(model), matmul(squares, rates.T), 0)


def _dynamics_first_order(
    parameters: DynamicsParameters, q: Array, v: Array, tau: Array
) -> FirstOrder:
    return _first_order(parameters.model, *_dynamics_and_columns(parameters, q, v, tau))


def _first_order(model: Model, found: Response, columns: Response) -> FirstOrder:
    starts = range(0, columns.motion.shape[1], model.nv)
    blocks = (jax.tree.map(lambda D, i=i: D[:, i : i + model.nv], columns) for i in starts)
    return FirstOrder(found, tuple(blocks))


analytic_dynamics = with_analytic_derivatives(dynamics, _dynamics_first_order)
"""`dynamics` of (parameters, q, v, tau) at q (nq,), with analytic first derivatives."""


# ------------------------------------------------------------------------------------- impact


def impact_motion(parameters: ImpactParameters, q: Array | Kinematics, v: Array) -> Response:
    """The velocity after an impact. JAX differentiates the KKT system."""
    return _motion(_impact(parameters, q, v), v)


def _impact(parameters: ImpactParameters, q: Array | Kinematics, v: Array) -> _System:
    model, constraints, e, active = parameters
    kinematics, zero = forward_kinematics.unchecked(model, q), jnp.zeros_like(v)
    rows = stacked_rows(model, constraint_blocks(model, kinematics, zero, constraints), active)
    k = -(1 + e) * matmul(rows.K, v)
    return _solved(model, kinematics, rows, zero, k)


def impact_columns(parameters: ImpactParameters, q: Array | Kinematics, v: Array) -> Response:
    """The derivatives of `impact_motion`, (..., 2 nv): columns for q (tangent space) and v."""
    return _impact_and_columns(parameters, q, v)[1]


def _impact_and_columns(
    parameters: ImpactParameters, q: Array | Kinematics, v: Array
) -> tuple[Response, Response]:
    """The motion, and its derivatives with respect to q and v as columns (..., 2 nv)."""
    model, constraints, e, active = parameters
    system = _impact(parameters, q, v)
    kinematics, change = system.kinematics, system.solution.x
    zero, no_gain = jnp.zeros_like(v), jnp.zeros((), model.dtype)
    by_q = row_derivatives(model, kinematics, zero, zero, constraints, (no_gain, no_gain), active)
    # The change of momentum is the inverse dynamics at rest, without gravity.
    weightless = dataclasses.replace(model, gravity=jnp.zeros_like(model.gravity))
    weightless = weightless.with_dissipation(False)
    momentum, _, _ = rnea_derivatives.unchecked(weightless, kinematics, zero, change)
    force = _constraint_forces(system, by_q) - momentum
    k = -einsum("ikj,k->ij", by_q.K_by_q, change + (1 + e) * v)
    force = jnp.concatenate([force, jnp.zeros_like(force)], axis=1)
    k = jnp.concatenate([k, -(1 + e) * system.rows.K], axis=1)
    found = _columns(model, system, by_q, force, k)
    unit = jnp.eye(model.nv, dtype=model.dtype)
    by_v = jnp.concatenate([jnp.zeros_like(unit), unit], axis=1)
    return _motion(system, v), found._replace(motion=found.motion + by_v)


def _impact_first_order(parameters: ImpactParameters, q: Array, v: Array) -> FirstOrder:
    return _first_order(parameters.model, *_impact_and_columns(parameters, q, v))


analytic_impact = with_analytic_derivatives(impact_motion, _impact_first_order)
"""`impact_motion` of (parameters, q, v) at q (nq,), with analytic first derivatives."""
