"""Dynamics under implicit constraints: motion, constraint forces and impulses.

`kkt.py` solves the KKT system, and `derivatives.py` differentiates the solution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from ..algorithms.crba import crba
from ..algorithms.kinematics import Kinematics, forward_kinematics
from ..algorithms.rnea import bias_force
from ..errors import ArgumentError
from ..model import Model, arguments
from .derivatives import (
    ConstrainedDynamicsDerivatives,
    DynamicsParameters,
    ImpactDerivatives,
    Response,
    analytic_dynamics,
    dynamics,
    dynamics_first_order,
)
from .kinds import Constraint, ConstraintRows
from .rows import (
    active_array,
    checked_constraints,
    constraint_blocks,
    nan_or_zero,
    require_no_nan,
    split_rows,
    stacked_rows,
    truth_values,
)


def require_stabilisation(name: str, values: arguments.Parameter, model: Any = None) -> None:
    """Raise ArgumentError unless the values are a rate () or a pair (2,), finite and 0 or more."""
    if values.dtype == bool:
        raise ArgumentError(f"{name} has dtype bool, expected a rate () or a pair (2,)")
    if values.shape not in ((), (2,)):
        raise ArgumentError(f"{name} has shape {values.shape}, expected a rate () or a pair (2,)")
    arguments.require_not_negative(values, name)


_CHECKS = {
    "stabilisation": require_stabilisation,
    "active": require_no_nan,
    "impact": require_no_nan,
}
_IMPACT_CHECKS = {"restitution": arguments.FRACTION, "active": require_no_nan}


class ConstrainedDynamics(NamedTuple):
    """Acceleration (nv,) and, for each constraint, its multipliers and residuals (m,).

    A constraint with the Jacobian K requires `K a = k`. Its generalized force is `K^T multiplier`:
    `M a + bias = tau + sum of K^T multiplier`. Its residuals are `K a - k`: rounding errors, unless
    constraints contradict each other.
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


@arguments.compiled(arrays=("q", "v", "tau", "f_ext"), checks=_CHECKS)
def constrained_dynamics(
    model: Model,
    q: Array | Kinematics,
    v: Array,
    tau: Array,
    constraints: Sequence[Constraint],
    f_ext: Array | None = None,
    stabilisation: ArrayLike = 0.0,
    active: ArrayLike | None = None,
    impact: ArrayLike | None = None,
) -> ConstrainedDynamics:
    """Acceleration and constraint forces of a robot with rigid loops or contacts.

    - `q` (nq,) or its `Kinematics`, `v` (nv,), `tau` (nv,), `f_ext` (nb, 6): as for
      `forward_dynamics`;
    - `constraints`: from `point`, `hinge`, `weld`, or any `Constraint`; rows may be redundant;
    - `stabilisation` s in 1/s, 0 or more: errors of position and velocity decay at this rate,
      critically damped (Baumgarte): `K a + dK/dt v = -2 s K v - s^2 phi`. At s = 0 the errors do
      not decay. A pair of gains (p, d), in 1/s^2 and 1/s, each 0 or more, gives
      `K a + dK/dt v = -d K v - p phi`;
    - `active` (number of constraints,): whether each constraint acts, as bool or as numbers (0 is
      False). The multipliers of a constraint that does not act are 0. So one program serves all
      contact phases. By default all constraints act;
    - `impact` (): whether the constraints that act begin to act in an impact, as bool or as a
      number. Then the result is that of `impact` without restitution: its `acceleration` is the
      change of v, in m/s and rad/s, and its multipliers are impulses. tau, gravity, `f_ext` and
      the stabilisation have no effect. So one program serves phases and impacts.

    If q is an array, the derivatives with respect to q, v and tau are those of
    `constrained_dynamics_derivatives`.

    Raises ArgumentError for an unknown frame, for objects that are no constraints, for a
    stabilisation that is negative, not finite, a bool or of another shape, and for NaN in `active`
    or `impact`. Traced values out of range give NaN. Source: Featherstone (3.17), and chapter 8
    (closed loops).
    """
    parameters = _parameters(model, constraints, f_ext, stabilisation, active, impact)
    a, *by_row = _response(parameters, q, v, tau)
    return ConstrainedDynamics(a, *split_rows(model, q, constraints, *by_row))


@arguments.compiled(arrays=("q", "v", "tau", "f_ext"), checks=_CHECKS)
def constrained_dynamics_derivatives(
    model: Model,
    q: Array | Kinematics,
    v: Array,
    tau: Array,
    constraints: Sequence[Constraint],
    f_ext: Array | None = None,
    stabilisation: ArrayLike = 0.0,
    active: ArrayLike | None = None,
    impact: ArrayLike | None = None,
) -> ConstrainedDynamicsDerivatives:
    """Derivatives of `constrained_dynamics` with respect to q (in the tangent space), v and tau.

    The arguments are as for `constrained_dynamics`. Returns (nv, nv) matrices for the acceleration,
    and (m, nv) matrices for the m multipliers of all constraints. The errors are those of
    `constrained_dynamics`. Source: the implicit function of the KKT system (3.17) of Featherstone;
    the heads of `derivatives.py` and `row_derivatives.py` have the formulas.
    """
    parameters = _parameters(model, constraints, f_ext, stabilisation, active, impact)
    kinematics = forward_kinematics.unchecked(model, q)
    columns = dynamics_first_order(parameters, kinematics, v, tau).columns
    by_row = (D.multiplier for D in columns)
    return ConstrainedDynamicsDerivatives(*(D.motion for D in columns), *by_row)


@arguments.compiled(arrays=("q", "v"), checks=_IMPACT_CHECKS)
def impact(
    model: Model,
    q: Array | Kinematics,
    v: Array,
    constraints: Sequence[Constraint],
    restitution: ArrayLike = 0.0,
    active: ArrayLike | None = None,
) -> Impact:
    """Velocity after an impact in which constraints begin to act, and the impulses.

    The velocity v+ after the impact satisfies `M (v+ - v) = K^T impulse` and `K v+ = -e K v`.

    - `q` (nq,) or its `Kinematics`, `v` (nv,): the state before the impact;
    - `constraints`, `active`: as for `constrained_dynamics`; rows may be redundant;
    - `restitution` e, from 0 to 1: at 0 the constraints hold after the impact, at 1 the kinetic
      energy is kept.

    If q is an array, the derivatives with respect to q and v are those of `impact_derivatives`.

    Raises ArgumentError for an unknown frame or a restitution out of its range; a traced
    restitution out of its range gives NaN. Source: Featherstone (11.62) at e = 0.
    """
    parameters = _impact_parameters(model, constraints, restitution, active)
    change, *by_row = _response(parameters, q, v, jnp.zeros_like(v))
    return Impact(v + change, *split_rows(model, q, constraints, *by_row))


@arguments.compiled(arrays=("q", "v"), checks=_IMPACT_CHECKS)
def impact_derivatives(
    model: Model,
    q: Array | Kinematics,
    v: Array,
    constraints: Sequence[Constraint],
    restitution: ArrayLike = 0.0,
    active: ArrayLike | None = None,
) -> ImpactDerivatives:
    """Derivatives of `impact` with respect to q (in the tangent space) and v.

    The arguments are as for `impact`. Returns (nv, nv) matrices for the velocity after the impact,
    and (m, nv) matrices for the m impulses of all constraints. The errors are those of `impact`.
    Source: the implicit function of the equations of `impact`, as for
    `constrained_dynamics_derivatives`.
    """
    parameters = _impact_parameters(model, constraints, restitution, active)
    kinematics, no_force = forward_kinematics.unchecked(model, q), jnp.zeros_like(v)
    by_q, by_v, _ = dynamics_first_order(parameters, kinematics, v, no_force).columns
    by_v_after = jnp.eye(model.nv, dtype=model.dtype) + by_v.motion
    return ImpactDerivatives(by_q.motion, by_v_after, by_q.multiplier, by_v.multiplier)


@arguments.compiled(arrays=("q", "v"))
def constraint_rows(
    model: Model, q: Array | Kinematics, v: Array, constraints: Sequence[Constraint]
) -> ConstraintRows:
    """The m rows of all constraints, in their order: phi(q) (m,), K (m, nv) and `dK/dt v` (m,).

    `q` (nq,) or its `Kinematics`, `v` (nv,). Raises ArgumentError for an unknown frame.
    """
    kinematics = forward_kinematics.unchecked(model, q)
    return stacked_rows(model, constraint_blocks(model, kinematics, v, constraints))


@arguments.compiled(arrays=("q",))
def constraint_wrenches(
    model: Model,
    q: Array | Kinematics,
    constraints: Sequence[Constraint],
    multipliers: Sequence[ArrayLike],
) -> Float[Array, "nb 6"]:
    """The constraint forces on the bodies: an `f_ext` (nb, 6) in the body frames.

    `q` (nq,) or its `Kinematics`; `multipliers`: for each constraint (m,), as
    `constrained_dynamics` returns them. With these external forces the robot without constraints
    has the acceleration of the constrained robot. Raises ArgumentError for an unknown frame, a
    constraint that is not between frames, and another number of multipliers than constraints.
    """
    checked_constraints(constraints)
    kinematics = forward_kinematics.unchecked(model, q)
    multipliers = arguments.sequence(multipliers, "multipliers", "arrays")
    if len(multipliers) != len(constraints):
        raise ArgumentError(f"{len(multipliers)} multipliers, expected {len(constraints)}")
    f_ext = jnp.zeros((model.nb, 6), model.dtype)
    for i, (constraint, multiplier) in enumerate(zip(constraints, multipliers)):
        multiplier = arguments.as_array(multiplier, f"multipliers[{i}]")
        f_ext = f_ext + constraint.wrenches(model, kinematics, multiplier)
    return f_ext


@arguments.compiled(arrays=("q", "v", "tau", "f_ext"))
def kkt_system(
    model: Model,
    q: Array | Kinematics,
    v: Array,
    tau: Array,
    constraints: Sequence[Constraint],
    f_ext: Array | None = None,
) -> tuple[Float[Array, "n n"], Float[Array, " n"]]:
    """Matrix (n, n) and right-hand side (n,) of the KKT system with solution `[a, -multipliers]`.

    The arguments are as for `constrained_dynamics`, which solves the system; n is nv plus the
    number of constraint equations. Raises ArgumentError for an unknown frame. Source: Featherstone
    (3.17).
    """
    kinematics = forward_kinematics.unchecked(model, q)
    rows = constraint_rows.unchecked(model, kinematics, v, constraints)
    corner = jnp.zeros((len(rows.K), len(rows.K)), model.dtype)
    A = jnp.block([[crba(model, kinematics), rows.K.T], [rows.K, corner]])
    bias = bias_force.unchecked(model, kinematics, v, f_ext)
    return A, jnp.concatenate([tau - bias, -rows.bias])


def _response(
    parameters: DynamicsParameters, q: Array | Kinematics, v: Array, tau: Array
) -> Response:
    solve = dynamics if isinstance(q, Kinematics) else analytic_dynamics
    return solve(parameters, q, v, tau)


def _parameters(
    model: Model,
    constraints: Sequence[Constraint],
    f_ext: Array | None,
    stabilisation: ArrayLike,
    active: ArrayLike | None,
    impact: ArrayLike | None,
) -> DynamicsParameters:
    acts = active_array(constraints, active)
    is_impact = None if impact is None else truth_values(impact, "impact", ())
    # The conversion to bool loses NaN. So NaN in `active` or `impact` is added to the gains and to
    # the restitution.
    invalid = nan_or_zero(active, model.dtype) + nan_or_zero(impact, model.dtype)
    p, d = _gains(model, stabilisation)
    return DynamicsParameters(
        model,
        checked_constraints(constraints),
        f_ext,
        (p + invalid, d + invalid),
        acts,
        is_impact,
        invalid,
    )


def _gains(model: Model, stabilisation: ArrayLike) -> tuple[Array, Array]:
    """The gains p and d of the errors of position and velocity."""
    require_stabilisation("stabilisation", arguments.as_array(stabilisation, "stabilisation"))
    rates = arguments.real_array(stabilisation, "stabilisation", model.dtype)
    rates = arguments.FINITE_NOT_NEGATIVE.or_nan(rates)
    if rates.shape == (2,):
        return rates[0], rates[1]
    return rates * rates, 2 * rates


def _impact_parameters(
    model: Model,
    constraints: Sequence[Constraint],
    restitution: ArrayLike,
    active: ArrayLike | None,
) -> DynamicsParameters:
    parameters = _parameters(model, constraints, None, 0.0, active, True)
    e = arguments.FRACTION.or_nan(arguments.number(model, restitution, "restitution"))
    return parameters._replace(restitution=e + parameters.restitution)
