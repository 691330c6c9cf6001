"""Derivatives of the motion of a robot under implicit constraints.

The acceleration a and the multipliers lambda satisfy the KKT system (`kkt.py`)

    rnea(q, v, a, f_ext) - K^T lambda = tau,      c = K a + dK/dt v + d K v + p phi = 0,

with the gains p and d of the stabilisation; `d K v` is a product. The implicit function of the
system is differentiated with respect to q, v and tau. In these equations da, dlambda, dc and
d(rnea) are differentials:

    [M  -K^T] [   da   ]   [dtau - d(rnea) + dK^T lambda]
    [K    0 ] [dlambda ] = [            -dc             ]

In an impact, a is the change of v. Then tau and the bias force are zero, and
`c = K (a + (1 + restitution) v)`. Except for the term `K (1 + restitution) v`, these are the
equations above at v = 0, without gravity, external forces and stabilisation.

d(rnea) and dc are the changes at constant a, from `rnea_derivatives` and `row_derivatives.py`. If
rows are redundant, the multipliers with the least `|lambda / s|`, for the scales s of the rows in
`kkt.py`, satisfy `lambda / s^2 = K y` for some y. If constraints contradict each other,
`c = -e / s^2` with `K^T e = 0`. These equations are differentiated too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
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
    """Derivatives of the acceleration and of the m multipliers with respect to q, v and tau.

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
    """Derivatives of the velocity after an impact and of the m impulses with respect to q and v.

    The derivatives with respect to q are in its tangent space. m is the number of equations of all
    constraints, in the order of the constraints.
    """

    dvelocity_dq: Float[Array, "nv nv"]
    dvelocity_dv: Float[Array, "nv nv"]
    dimpulses_dq: Float[Array, "m nv"]
    dimpulses_dv: Float[Array, "m nv"]


class DynamicsParameters(NamedTuple):
    """The arguments of the constrained dynamics, except for q, v and tau.

    - `gains`: p and d of the stabilisation;
    - `active` (number of constraints,) of bool, or None;
    - `impact` () of bool: whether the response is an impact instead of a motion; None for False;
    - `restitution` (): for an impact.
    """

    model: Model
    constraints: tuple[Constraint, ...]
    f_ext: Array | None
    gains: tuple[Array, Array]
    active: Array | None
    impact: Array | None
    restitution: Array


class Response(NamedTuple):
    """The acceleration, or the change of v in an impact (nv,); multipliers and residuals (m,)."""

    motion: Array
    multiplier: Array
    residual: Array


class _System(NamedTuple):
    """A solved KKT system.

    `solution.x` is the acceleration, or the change of v in an impact; k (m,) is the right-hand side
    of the rows.
    """

    kinematics: Kinematics
    M: Array
    rows: ConstraintRows
    solve: Callable[..., Solution]
    solution: Solution
    k: Array


def dynamics(
    parameters: DynamicsParameters, q: Array | Kinematics, v: Array, tau: Array
) -> Response:
    """The motion under constraints, or the impact. JAX differentiates the KKT system."""
    return _response(_solved(parameters, q, v, tau))


def _response(system: _System) -> Response:
    x, multiplier, _, _ = system.solution
    return Response(x, multiplier, matmul(system.rows.K, x) - system.k)


def _solved(parameters: DynamicsParameters, q: Array | Kinematics, v: Array, tau: Array) -> _System:
    """The KKT system of the motion or of the impact, with its solution."""
    model, constraints, f_ext, (p, d), active, impact, restitution = parameters
    kinematics = forward_kinematics.unchecked(model, q)
    rows = stacked_rows(model, constraint_blocks(model, kinematics, v, constraints), active)
    k = -rows.bias - d * matmul(rows.K, v) - p * rows.position
    force = tau - bias_force.unchecked(model, kinematics, v, f_ext)
    if impact is not None:
        k = jnp.where(impact, -(1 + restitution) * matmul(rows.K, v), k)
        force = jnp.where(impact, 0, force)
    M = crba(model, kinematics)
    solve = kkt_solver(M, rows)
    solution = solve(force, k, jnp.zeros_like(k), jnp.zeros_like(force))
    return _System(kinematics, M, rows, solve, solution, k)


def dynamics_first_order(
    parameters: DynamicsParameters, q: Array | Kinematics, v: Array, tau: Array
) -> FirstOrder:
    """The response, and its derivatives with respect to q (tangent space), v and tau."""
    model, constraints, f_ext, gains, active, impact, restitution = parameters
    system = _solved(parameters, q, v, tau)
    kinematics, a = system.kinematics, system.solution.x
    a_of_rows, moving = a, 1.0
    if impact is not None:
        # The change a of v in an impact has the equations of a motion at v = 0, without gravity,
        # external forces and stabilisation. Its rows are `K (a + (1 + restitution) v)`.
        moving = jnp.where(impact, 0, 1).astype(model.dtype)
        a_of_rows = a + (1 - moving) * (1 + restitution) * v
        model = eqx.tree_at(lambda model: model.gravity, model, moving * model.gravity)
        f_ext = None if f_ext is None else moving * f_ext
        gains = moving * gains[0], moving * gains[1]
        v = moving * v
    rows = row_derivatives(model, kinematics, v, a_of_rows, constraints, gains, active)
    rows_by_v = rows.by_v
    if impact is not None:
        rows_by_v = jnp.where(impact, (1 + restitution) * system.rows.K, rows_by_v)
    dtau_dq, dtau_dv, _ = rnea_derivatives.unchecked(model, kinematics, v, a, f_ext)
    force = jnp.concatenate(
        [_constraint_force_by_q(system, rows) - dtau_dq, -moving * dtau_dv], axis=1
    )
    k = jnp.concatenate([-rows.by_q, -rows_by_v], axis=1)
    unit = moving * jnp.eye(model.nv, dtype=model.dtype)
    by_state = _by_state(model, system, rows, force, k)
    by_q = jax.tree.map(lambda D: D[:, : model.nv], by_state)
    by_v = jax.tree.map(lambda D: D[:, model.nv :], by_state)
    return FirstOrder(_response(system), (by_q, by_v, _by_force(system, unit)))


def _by_force(system: _System, force: Array) -> Response:
    """The derivatives for changes of the force, the columns of `force`, at constant rows."""
    none, zero = jnp.zeros_like(system.rows.K), jnp.zeros_like(force)
    x, multiplier, _, _ = _solve_columns(system, force, none, none, zero)
    return Response(x, multiplier, matmul(system.rows.K, x))


def _solve_columns(system: _System, *right: Array) -> Solution:
    return jax.vmap(functools.partial(system.solve, many=True), 1, 1)(*right)


def _by_state(
    model: Model, system: _System, rows: RowDerivatives, force: Array, k: Array
) -> Response:
    """The derivatives with respect to q and v, for the right-hand sides in columns.

    The first nv columns of `force` and of k are for q, the next nv columns for v.
    """
    e, weights = system.solution.e, _weights_by_q(model, system, rows)
    by_q = (
        e[:, None] * weights,
        _multiplier_equation_by_q(system, rows, weights),
        -rows.derivative_of_K.force(e),
    )
    others = k.shape[1] - model.nv
    by_weights, rest, gradient = (jnp.pad(x, ((0, 0), (0, others))) for x in by_q)
    x, multiplier, _, _ = _solve_columns(system, force, k - by_weights, rest, gradient)
    return Response(x, multiplier, matmul(system.rows.K, x) - k)


def _constraint_force_by_q(system: _System, rows: RowDerivatives) -> Array:
    """The derivative (nv, nv) with respect to q of `K^T lambda` at constant lambda."""
    return rows.derivative_of_K.force(system.solution.multiplier)


def _multiplier_equation_by_q(system: _System, rows: RowDerivatives, weights: Array) -> Array:
    """The derivative (m, nv) with respect to q of `K y - lambda / s^2` at constant y and lambda.

    `weights`: the result of `_weights_by_q`.
    """
    _, multiplier, y, _ = system.solution
    return rows.derivative_of_K.rate(y) - multiplier[:, None] * weights


def _weights_by_q(model: Model, system: _System, rows: RowDerivatives) -> Array:
    """The derivative (m, nv) of `1 / s^2` with respect to q."""
    masses = jnp.diagonal(system.M)
    ratio = system.rows.K / masses[None]
    weights = rows.derivative_of_K.squares(1 / masses)
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


analytic_dynamics = with_analytic_derivatives(dynamics, dynamics_first_order)
"""`dynamics` of (parameters, q, v, tau) at q (nq,), with analytic first derivatives."""
