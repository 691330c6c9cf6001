"""Identification of the inertias of a robot from measured motion and joint forces.

Joint forces are linear in the inertias: `tau = Y pi` with `Y = joint_torque_regressor(...)` and
pi = `inertia.ravel()`. No motion determines all of pi. The forces depend on fewer values, the base
parameters `beta = grouping @ pi`. `identify_inertia` estimates beta by least squares, and chooses
the pi with this beta that is closest to a prior. `identify_consistent_inertia` allows only
physically consistent inertias. The number of base parameters depends on array values. So these
functions do not run under jit; they solve in numpy, in double precision. Samples are stacked along
the first axis.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from ..algorithms.regressors import joint_torque_regressor, regressor_bounds
from ..configuration import random_configuration
from ..errors import ArgumentError
from ..inertial_parameters import consistency_margin, pseudo_inertia
from ..model import Model, arguments
from ..model.joint_space import armature_and_dissipation_force


class BaseParameters(NamedTuple):
    """The base parameters `beta = grouping @ inertia.ravel()`, which determine the joint forces.

    Each base parameter is the sum of one independent parameter and multiples of dependent
    parameters. The regressor column of a dependent parameter is a linear combination of the columns
    of independent parameters.

    - `independent` (rank,): the indices of the independent parameters in `inertia.ravel()`;
    - `grouping` (rank, 10 nb): row i has the coefficients of base parameter i: 1 for the
      parameter `independent[i]`, and 0 for the other independent parameters.

    For every regressor, `Y = Y[:, independent] @ grouping`.
    """

    independent: Int[np.ndarray, " rank"]
    grouping: Float[np.ndarray, "rank parameters"]

    @property
    def rank(self) -> int:
        """The number of base parameters."""
        return len(self.independent)


class Identification(NamedTuple):
    """Estimated inertias, and the covariance of the base parameters.

    - `model`: the robot with the estimated inertias;
    - `inertia` (nb, 10): the estimated inertias;
    - `base`: the definition of the base parameters;
    - `base_parameters` (rank,): the estimate of the base parameters;
    - `covariance` (rank, rank) of the base parameters. The variance of the noise is estimated from
      the residual;
    - `residual_rms`: root mean square of `(tau - predicted) / noise`;
    - `converged`: whether the search for the minimum converged (True for `identify_inertia`).
    """

    model: Model
    inertia: Float[Array, "nb 10"]
    base: BaseParameters
    base_parameters: Float[np.ndarray, " rank"]
    covariance: Float[np.ndarray, "rank rank"]
    residual_rms: float
    converged: bool

    @property
    def standard_deviation(self) -> Float[np.ndarray, " rank"]:
        """Standard deviations of the base parameters, (rank,)."""
        return np.sqrt(np.diag(self.covariance))


def base_parameters(model: Model, tolerance: float | None = None) -> BaseParameters:
    """The combinations of the inertial parameters on which joint forces depend, for any motion.

    The regressor is computed at random states. A parameter is dependent if its column of the
    regressor is a linear combination of the columns before it, to within `tolerance` times the size
    of the terms in the column. The default tolerance is the square root of the machine epsilon of
    the dtype, so double precision can find more base parameters than single precision. Columns and
    rows are scaled to unit size, so the units and the sizes of the links do not change which
    parameters are dependent. The result does not depend on `model.inertia`. Raises ArgumentError
    for a tolerance that is not between 0 and 1.
    Source: Gautier (1991), "Numerical calculation of the base inertial parameters of robots".
    """
    samples = 20 + 40 * arguments.robot(model).nb // max(model.nv, 1)  # 4 equations per parameter
    if tolerance is None:
        tolerance = float(np.sqrt(np.finfo(model.dtype).eps))
    known = arguments.parameter(tolerance, "tolerance", ())
    arguments.require(known, lambda x: 0 < x < 1, "tolerance", "above 0, below 1")
    key_q, key_v, key_a = jax.random.split(jax.random.key(0), 3)
    q = jax.vmap(random_configuration, (None, 0))(model, jax.random.split(key_q, samples))
    v, a = (jax.random.normal(key, (samples, model.nv), model.dtype) for key in (key_v, key_a))
    Y, bounds, _ = _stacked(model, q, v, a)
    dofs, columns = _sizes(np.asarray(bounds, float), model.nv)
    scaled = np.asarray(Y, float) / np.tile(dofs, samples)[:, None] / columns
    independent, basis = [], np.zeros((len(scaled), 0))
    for k, column in enumerate(scaled.T):
        rest = column - basis @ (basis.T @ column)
        rest = rest - basis @ (basis.T @ rest)  # again, because of rounding errors
        if (size := np.linalg.norm(rest)) > tolerance:
            independent.append(k)
            basis = np.column_stack([basis, rest / size])
    independent_columns = scaled[:, independent]
    grouping = np.linalg.lstsq(independent_columns, scaled, rcond=None)[0]
    grouping = grouping / columns[independent][:, None] * columns
    return BaseParameters(np.array(independent, int), grouping)


def identify_inertia(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    tau: ArrayLike,
    *,
    prior: ArrayLike | None = None,
    noise: ArrayLike | None = None,
    regularization: float = 0.0,
) -> Identification:
    """Inertias that fit the joint forces in least squares and, of these, are closest to a prior.

    - `q` (n, nq), `v`, `a`, `tau` (n, nv): n samples of the motion and of the joint forces. tau
      includes the same forces as the result of `rnea`: the armature of the model always, and
      damping and friction only for a model made by `Model.with_dissipation`. If the measured tau
      includes damping and friction and the model does not, add `passive_force(model, q, v)` to tau;
    - `prior` (nb, 10), default `model.inertia`: of all inertias with the best fit, the estimate
      has the least distance from the prior. The distance is the sum of squares of the scaled
      changes of all parameters. A change of the mass is divided by the mass m of the body in the
      prior, a change of a first moment by `m r`, and a change of a moment of inertia by `m r^2`.
      The radius r satisfies `2 m r^2 = |Ixx| + |Iyy| + |Izz|`. If m or r of a body is 0, the mean m
      or r of the other bodies takes its place;
    - `noise` (nv,), default 1: standard deviations of tau, up to a common factor;
    - `regularization`: the estimate minimises the sum of `((tau - predicted) / noise)^2` plus
      `regularization` times the distance from the prior (default 0).

    The function stores a matrix of `n nv` rows and `10 nb` columns. The estimate may be physically
    inconsistent: see `identify_consistent_inertia`. Raises ArgumentError for invalid values, for
    too few samples, for values of too different sizes and, without regularization, where the
    samples do not determine all base parameters.
    Source: Atkeson, An and Hollerbach (1986); Gautier (1991).
    """
    weight = _non_negative("regularization", regularization)
    Y, bounds, forces = _measurements(model, q, v, a, tau, noise)
    inertia = _prior(model, prior)
    start, unit = inertia.ravel(), _units(inertia)
    base = base_parameters(model)
    _check_count(len(forces), base)
    independent_units = unit[base.independent]
    # The matrix from a change of beta to the smallest change of pi, divided by `unit`.
    lift = np.linalg.pinv(base.grouping * unit / independent_units[:, None]) / independent_units
    eps = float(np.finfo(model.dtype).eps)
    columns = Y[:, base.independent]
    rounding = 100 * eps * np.linalg.norm(bounds[:, base.independent], axis=0)
    columns = np.where(np.linalg.norm(columns, axis=0) > rounding, columns, 0)
    A = np.concatenate([columns, np.sqrt(weight) * lift])
    b = np.concatenate([forces - Y @ start, np.zeros(len(lift))])
    size = np.linalg.norm(A, axis=0)
    size = np.where(size > 0, size, 1)
    change, _, rank, _ = np.linalg.lstsq(A / size, b, rcond=max(A.shape) * eps)
    if rank < base.rank:
        raise ArgumentError(
            f"q, v, a: the samples determine {rank} of the {base.rank} base parameters of "
            f"{model!r}; move more joints, or pass a regularization above 0"
        )
    covariance_factor = np.linalg.inv(np.linalg.qr(A / size, mode="r")) / size[:, None]
    parameters = start + unit * (lift @ (change / size))
    _check_fit(model, Y, bounds, forces, start, parameters)
    return _identification(model, base, parameters, Y, forces, covariance_factor)


def identify_consistent_inertia(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    tau: ArrayLike,
    *,
    prior: ArrayLike | None = None,
    noise: ArrayLike | None = None,
    regularization: float = 1e-3,
    max_steps: int = 1000,
) -> Identification:
    """Physically consistent inertias that fit the joint forces and stay near a prior.

    The estimate is the unique minimum of a convex function of the inertias: the sum of squares of
    `(tau - predicted) / noise` plus `2 regularization D`. D is the sum of
    `trace(J0^-1 J) - log det(J0^-1 J) - 4` over the links, with the pseudo-inertia J of the link
    and the pseudo-inertia J0 of the link in the prior. D does not depend on frames and units. D
    grows without bound at the border of the physically consistent inertias.

    The arguments are the same as for `identify_inertia`, with these differences:

    - `prior` must be strictly consistent (see `jaxrbd.inertial_parameters`), apart from massless
      links, which stay massless;
    - `regularization` must be above 0. Near the prior, 2 D is about the sum of
      `trace((J0^-1 dJ)^2)` with `dJ = J - J0`. If `noise` is the standard deviation of tau without
      a factor, and you expect the inertias to differ from the prior by a fraction r, pass
      `1 / r^2`;
    - `max_steps`: the limit on the steps of Newton's method. Some tens of steps are usual.
      `converged` is False if the search did not end within the limit.

    `covariance` is for the problem linearised at the estimate. Raises ArgumentError for invalid
    values, for too few samples, where the prior is not consistent, and where double precision is
    too low for the given values. Source: Lee, Wensing and Park (2020), "Geometric robot dynamic
    identification: a convex programming approach".
    """
    arguments.require_counts(max_steps=max_steps)
    weight = _non_negative("regularization", regularization)
    if weight == 0:
        raise ArgumentError("regularization is 0, expected a number above 0")
    Y, bounds, forces = _measurements(model, q, v, a, tau, noise)
    inertia = _prior(model, prior)
    _check_consistent(model, inertia)
    base = base_parameters(model)
    _check_count(len(forces), base)
    has_mass = np.any(inertia, axis=1)
    columns = np.repeat(has_mass, 10)
    # Divided by `unit`, all parameters are near 1. D does not depend on the units.
    unit = _units(inertia[has_mass]).reshape(-1, 10)
    # The least-squares problem of all samples, reduced to one row per unknown.
    samples = np.linalg.qr(np.column_stack([Y[:, columns] * unit.ravel(), forces]), mode="r")
    try:
        found, triangle, converged = _newton(samples, inertia[has_mass] / unit, weight, max_steps)
        covariance_factor = (base.grouping[:, columns] * unit.ravel()) @ np.linalg.inv(triangle)
    except np.linalg.LinAlgError:
        raise ArgumentError(
            "tau, prior: the inertias that explain the forces are too far from the prior for "
            "double precision, expected a prior that is closer to them"
        ) from None
    estimate = inertia.copy()
    estimate[has_mass] = found * unit
    _check_fit(model, Y, bounds, forces, inertia.ravel(), estimate.ravel())
    return _identification(model, base, estimate.ravel(), Y, forces, covariance_factor, converged)


# ------------------------------------------------------------------------------------ the samples


@jax.jit
def _stacked(model: Model, q: Array, v: Array, a: Array) -> tuple[Array, Array, Array]:
    """Regressors, bounds of their entries, and the forces of armature and dissipation.

    Regressors and `regressor_bounds` are (n nv, 10 nb) for n states; the forces are (n nv,).
    """

    def sample(q, v, a):
        joint_force = armature_and_dissipation_force(model, q, v, a)
        return joint_torque_regressor(model, q, v, a), regressor_bounds(model, q, v, a), joint_force

    Y, bounds, joint_force = jax.vmap(sample)(q, v, a)
    shape = joint_force.size, 10 * model.nb
    return Y.reshape(shape), bounds.reshape(shape), joint_force.ravel()


def _sizes(bounds: np.ndarray, nv: int) -> tuple[np.ndarray, np.ndarray]:
    """Units of the dofs (nv,), and units of the columns (10 nb,).

    `bounds` (n nv, 10 nb): bounds of regressor entries. Divided by both units, each column of
    `bounds` has the norm 1. A column or a dof of zeros has the unit 1.
    """
    columns = np.max(bounds, axis=0, initial=0)
    columns = np.where(columns > 0, columns, 1)
    if not bounds.size:
        return np.ones(nv), columns
    dofs = np.max((bounds / columns).reshape(-1, nv, bounds.shape[1]), axis=(0, 2), initial=0)
    dofs = np.where(dofs > 0, dofs, 1)
    scaled = bounds / np.tile(dofs, len(bounds) // max(nv, 1))[:, None]
    columns = np.linalg.norm(scaled, axis=0)
    return dofs, np.where(columns > 0, columns, 1)


def _measurements(model, q, v, a, tau, noise) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The regressor (n nv, 10 nb), bounds of its entries, and forces (n nv,).

    All are divided by the noise. The forces are the part of tau that is due to the inertias.
    """
    arguments.robot(model)
    n = len(jnp.atleast_1d(arguments.as_array(q, "q")))
    q = arguments.array(model, q, "q", (n, model.nq), "samples, nq")
    v, a, tau = (
        arguments.array(model, x, name, (n, model.nv), "samples, nv")
        for x, name in ((v, "v"), (a, "a"), (tau, "tau"))
    )
    if any(isinstance(x, Tracer) for x in jax.tree.leaves((model, q, v, a, tau, noise))):
        raise ArgumentError("an array is traced by JAX, expected known values: call it outside jit")
    deviation = np.ones(model.nv)
    if noise is not None:
        deviation = np.asarray(arguments.velocity(model, noise, "noise"), float)
    for name, x in {"q": q, "v": v, "a": a, "tau": tau, "noise": deviation}.items():
        if not np.all(np.isfinite(x)):
            raise ArgumentError(f"{name} is not finite")
    if np.any(deviation <= 0):
        raise ArgumentError(f"noise is {deviation}, expected numbers above 0")
    Y, bounds, joint_force = (np.asarray(x, float) for x in _stacked(model, q, v, a))
    unit = np.tile(deviation, n)
    with np.errstate(over="ignore", invalid="ignore"):
        Y, bounds = Y / unit[:, None], bounds / unit[:, None]
        forces = (np.asarray(tau, float).ravel() - joint_force) / unit
        sums = {"q, v, a, noise": np.sum(bounds**2), "tau, noise": np.sum(forces**2)}
    for names, squares in sums.items():
        if not np.isfinite(squares):
            raise ArgumentError(
                f"{names}: the squares of the forces over the noise overflow, expected smaller "
                f"values, or other units"
            )
    return Y, bounds, forces


def _units(inertia: np.ndarray) -> np.ndarray:
    """The units (10 n,) in which inertias (n, 10) are near 1: see `identify_inertia`."""
    mass = _filled(np.abs(inertia[:, 0]))
    radius = _filled(np.sqrt(np.sum(np.abs(inertia[:, [4, 6, 9]]), axis=1) / (2 * mass)))
    powers = np.array([0, 1, 1, 1, 2, 2, 2, 2, 2, 2])
    return (mass[:, None] * radius[:, None] ** powers).ravel()


def _filled(sizes: np.ndarray) -> np.ndarray:
    """The sizes, with zeros replaced by the mean of the positive sizes, or by 1 if all are zero."""
    known = sizes[sizes > 0]
    return np.where(sizes > 0, sizes, np.mean(known) if known.size else 1.0)


def _prior(model: Model, prior: ArrayLike | None) -> np.ndarray:
    """The inertias (nb, 10) of the prior, checked."""
    given = model.inertia if prior is None else prior
    inertia = arguments.array(model, given, "prior", (model.nb, 10), "nb, 10")
    if not np.all(np.isfinite(inertia)):
        raise ArgumentError("prior is not finite")
    return np.array(inertia, float)


def _non_negative(name: str, value: float) -> float:
    known = np.asarray(arguments.parameter(value, name, ()))
    arguments.require_not_negative(known, name)
    return float(known)


def _check_count(equations: int, base: BaseParameters) -> None:
    if equations <= base.rank:
        raise ArgumentError(
            f"q, v, a, tau: {equations} equations for {base.rank} base parameters, expected more"
        )


def _check_fit(model, Y, bounds, forces, start, parameters) -> None:
    """Raise ArgumentError where an estimate explains the forces worse than the prior does.

    Only rounding errors can cause this, where the given values have very different sizes.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.all(np.isfinite(parameters.astype(model.dtype)))
        before, after = (np.linalg.norm(forces - Y @ x) for x in (start, parameters))
        scale = np.linalg.norm(forces) + np.linalg.norm(bounds @ np.abs(start))
        explained = after <= (1 + 1e-6) * before + 1e-8 * scale
    if not (finite and explained):
        raise ArgumentError(
            f"q, v, a, tau: values of too different sizes: by rounding in {model.dtype} the "
            f"estimate has an error of {after:.3g} and the prior an error of {before:.3g} (in "
            f"units of the noise), expected smaller values"
        )


def _identification(
    model, base, parameters, Y, forces, covariance_factor, converged=True
) -> Identification:
    """The result of an estimate.

    With F, the `covariance_factor`, `F F^T` is the covariance for noise of unit size.
    """
    residual = forces - Y @ parameters
    square = float(residual @ residual)
    inertia = jnp.asarray(parameters.reshape(model.nb, 10), model.dtype)
    return Identification(
        model=dataclasses.replace(model, inertia=inertia),
        inertia=inertia,
        base=base,
        base_parameters=base.grouping @ parameters,
        covariance=square / (len(residual) - base.rank) * (covariance_factor @ covariance_factor.T),
        residual_rms=float(np.sqrt(square / len(residual))),
        converged=converged,
    )


# ----------------------------------------------------------------------- the convex minimisation

# The size of a step is the largest relative change of a pseudo-inertia. After a step below _NEAR
# the weight of the prior is reduced. A step below _SMALL ends the search: Newton's method converges
# quadratically, so the next step would be about _SMALL^2.
_NEAR, _SMALL = 0.3, 1e-6


def _newton(samples, prior, weight, max_steps) -> tuple[np.ndarray, np.ndarray, bool]:
    """The minimum (n, 10), a triangular factor R, and whether the steps converged.

    `R^T R` is half of the second derivative of the minimised function.

    The weight of the prior starts large, so that the first inertias stay near the prior. Then it is
    reduced to `weight`. With `J = C C^T`, the second derivative of D along dJ is the sum of the
    squared entries of `W = C^-1 dJ C^-T`. So Newton's step is the solution of a least-squares
    problem. `samples`: the columns of the regressor, then the forces. `prior` (n, 10): in the units
    of the regressor.
    """
    Y, forces = samples[:, :-1], samples[:, -1]
    basis = np.asarray(pseudo_inertia(jnp.eye(10)), float)  # dJ for each of the ten parameters
    prior_inverse = np.linalg.inv(_combine(prior.ravel(), basis))
    parameters, triangle = prior.ravel(), np.eye(prior.size)
    prior_weight = np.sum((forces - Y @ parameters) ** 2)
    for _ in range(max_steps):
        prior_weight = max(weight, prior_weight)
        residual = forces - Y @ parameters
        C = np.linalg.cholesky(_combine(parameters, basis))
        C_inverse = np.linalg.inv(C)[:, None]
        W = C_inverse @ basis @ _transposed(C_inverse)
        descent = np.eye(4) - _transposed(C) @ prior_inverse @ C  # minus the gradient of D by W
        prior_rows = _block_diagonal(_transposed(W.reshape(-1, 10, 16)))
        Q, triangle = np.linalg.qr(np.concatenate([Y, np.sqrt(prior_weight) * prior_rows]))
        target = np.concatenate([residual, np.sqrt(prior_weight) * descent.ravel()])
        step = np.linalg.solve(triangle, Q.T @ target)
        W_step = np.einsum("bk,bkij->bij", step.reshape(-1, 10), W)
        size = np.max(np.abs(np.linalg.eigvalsh(W_step)), initial=0)
        if size < _SMALL and prior_weight == weight:
            return (parameters + step).reshape(-1, 10), triangle, True
        length = _step_length(Y @ step, residual, prior_weight, W_step, descent)
        parameters = parameters + length * step
        if size < _NEAR:
            prior_weight = prior_weight / 10
    return parameters.reshape(-1, 10), triangle, False


def _step_length(Y_step, residual, weight, W_step, descent) -> float:
    """The factor by which a step is multiplied to reach the minimum along its direction."""
    eigenvalues = np.linalg.eigvalsh(W_step)
    linear = Y_step @ residual - weight * np.sum((np.eye(4) - descent) * W_step)
    square = Y_step @ Y_step

    def decrease_rate(length):
        """The rate at which the function decreases; the rate is smaller at a larger length."""
        return linear - length * square + weight * np.sum(eigenvalues / (1 + length * eigenvalues))

    # For a negative eigenvalue, a pseudo-inertia is singular at the length -1 / eigenvalue.
    shrinkage = -float(np.min(eigenvalues, initial=0))
    low, high = 0.0, 1 / shrinkage if shrinkage > 0 else np.inf
    high = min(high, 1e3)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if decrease_rate(middle) > 0 else (low, middle)
    return low


def _combine(parameters: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """The pseudo-inertias (n, 4, 4) of parameters (10 n,)."""
    return np.tensordot(parameters.reshape(-1, 10), basis, 1)


def _block_diagonal(blocks: np.ndarray) -> np.ndarray:
    """The block-diagonal matrix (n i, n j) of n blocks (n, i, j)."""
    n, i, j = blocks.shape
    return np.einsum("bij,bc->bicj", blocks, np.eye(n)).reshape(n * i, n * j)


def _transposed(a: np.ndarray) -> np.ndarray:
    return np.swapaxes(a, -1, -2)


def _check_consistent(model: Model, prior: np.ndarray) -> None:
    margin = np.asarray(consistency_margin(jnp.asarray(prior)))
    faulty = np.any(prior, axis=1) & ~(margin > 0)
    if np.any(faulty):
        names = [model.body_names[i] for i in np.flatnonzero(faulty)]
        raise ArgumentError(
            f"prior: the inertia of {names} belongs to no rigid body, or only to a point, a rod or "
            f"a plate; expected pseudo-inertias that are positive definite"
        )
