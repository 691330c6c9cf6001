"""The inertias of a robot from measurements: its motion, and the forces in its joints.

Joint forces are linear in the inertias, `tau = Y pi` with `Y = joint_torque_regressor(...)` and
pi = `inertia.ravel()`, but no motion tells all of pi: the forces depend on fewer numbers, the base
parameters `beta = grouping @ pi`. `identify_inertia` estimates these by least squares and leaves
the rest where a prior has it. `identify_consistent_inertia` does so among the inertias that rigid
bodies can have. How many base parameters there are is decided by numbers, so these functions run
outside jit, on the host and in double precision; samples are stacked along the first axis.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from . import arguments
from ._algorithms.regressors import joint_torque_regressor
from .configuration import random_configuration
from .errors import ArgumentError
from .inertial_parameters import consistency_margin, pseudo_inertia
from .joint_space import own_force
from .model import Model


class BaseParameters(NamedTuple):
    """What joint forces depend on: the base parameters `beta = grouping @ inertia.ravel()`.

    `independent` (rank,): the places in `inertia.ravel()` of the numbers that head a group each;
    `grouping` (rank, 10 nb): each group's number, once, and its multiples of later numbers that
    cannot be told from it. For every regressor, `Y = Y[:, independent] @ grouping`.
    """

    independent: Int[np.ndarray, " rank"]
    grouping: Float[np.ndarray, "rank parameters"]

    @property
    def rank(self) -> int:
        """How many base parameters there are."""
        return len(self.independent)


class Identification(NamedTuple):
    """Estimated inertias, and how sure the base parameters are.

    - `inertia` (nb, 10): the estimate, to put into a model with `equinox.tree_at`;
    - `base`: which numbers the forces tell, and `base_parameters` (rank,): the estimate of them;
    - `covariance` (rank, rank) of the base parameters, for the noise that the residual shows;
    - `residual_rms`: root mean square of `(tau - predicted) / noise`;
    - `converged`: whether it is the minimum that is asked for.
    """

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
    """The combinations of the inertias that joint forces can tell, for any motion.

    A number belongs to another's group where its column of the regressor, at random states, is a
    combination of those before it to within `tolerance` times the largest column; default: the
    square root of the dtype's rounding, and so double precision sees more than single. Does not
    depend on `model.inertia`.
    Source: Gautier (1991), "Numerical calculation of the base inertial parameters of robots".
    """
    if tolerance is None:
        tolerance = float(np.sqrt(np.finfo(model.dtype).eps))
    samples = 20 + 40 * model.nb // max(model.nv, 1)  # four equations a number, and some
    key_q, key_v, key_a = jax.random.split(jax.random.key(0), 3)
    q = jax.vmap(random_configuration, (None, 0))(model, jax.random.split(key_q, samples))
    v, a = (jax.random.normal(key, (samples, model.nv), model.dtype) for key in (key_v, key_a))
    Y, _ = _stacked(model, q, v, a)
    triangle = np.asarray(np.linalg.qr(np.asarray(Y, float), mode="r"))
    largest = np.max(np.linalg.norm(triangle, axis=0), initial=0)
    independent = np.flatnonzero(np.abs(np.diag(triangle)) > tolerance * largest)
    grouping = np.linalg.lstsq(triangle[:, independent], triangle, rcond=None)[0]
    return BaseParameters(independent, grouping)


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
    """Inertias by least squares: those closest to a prior that explain the joint forces best.

    - `q` (n, nq), `v`, `a`, `tau` (n, nv): n samples of the motion, and of the joint forces as
      `rnea` has them: armature as the model states it, damping and friction only where the model
      has them on (else, of motors that overcome them, pass `tau + passive_force(model, q, v)`);
    - `prior` (nb, 10), default `model.inertia`: what the forces do not tell is taken from there,
      which is to say that the sum of squares of all changes of the ten numbers, in SI units, is
      the least;
    - `noise` (nv,), default 1: standard deviations of tau, up to a common factor;
    - `regularization`: weight of that sum against that of `((tau - predicted) / noise)^2`.

    It holds n nv rows of 10 nb numbers in memory, and does not know which inertias a rigid body
    can have: see `identify_consistent_inertia`. Raises ArgumentError on a wrong shape, dtype or
    value, and where the samples do not tell all base parameters.
    Source: Atkeson, An and Hollerbach (1986); Gautier (1991).
    """
    weight = _non_negative("regularization", regularization)
    Y, forces = _measurements(model, q, v, a, tau, noise)
    start = _prior(model, prior).ravel()
    base = base_parameters(model)
    _check_count(len(forces), base)
    lift = np.linalg.pinv(base.grouping)  # the least change of pi for a change of beta
    A = np.concatenate([Y[:, base.independent], np.sqrt(weight) * lift])
    b = np.concatenate([forces - Y @ start, np.zeros(len(lift))])
    change, _, told, _ = np.linalg.lstsq(A, b, rcond=None)
    if told < base.rank:
        raise ArgumentError(
            f"q, v, a: the samples tell {told} of the {base.rank} base parameters of {model!r}; "
            f"move more joints, or pass a regularization above 0"
        )
    half = np.linalg.inv(np.linalg.qr(A, mode="r"))
    return _identification(model, base, start + lift @ change, Y, forces, half)


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
    """The inertias, of all that rigid bodies can have, that explain the joint forces best.

    The one minimum of the sum of squares of `(tau - predicted) / noise` plus `2 regularization D`,
    a convex function of the inertias. D sums `trace(J0^-1 J) - log det(J0^-1 J) - 4` over the
    links, with pseudo-inertias J and, of the prior, J0: a distance between bodies, whatever the
    frames and units. It grows without bound where an inertia ceases to be one of a rigid body.

    Arguments as for `identify_inertia`, but

    - `prior` must be strictly consistent itself (see `jaxrbd.inertial_parameters`); links that are
      massless in it stay so;
    - `regularization`, above 0: near the prior 2 D is `trace((J0^-1 dJ)^2)`, so that `1 / r^2`
      expects changes by a fraction r, where `noise` is the standard deviation itself;
    - `max_steps`: of Newton's method, some tens of which are usual; `converged` says whether they
      were enough.

    `covariance` is that of the problem linearised at the estimate. Raises ArgumentError as
    `identify_inertia` does, and where the prior is not consistent. Source: Lee, Wensing and Park
    (2020), "Geometric robot dynamic identification: a convex programming approach".
    """
    weight = _non_negative("regularization", regularization)
    if weight == 0:
        raise ArgumentError("regularization is 0, expected a number above it")
    Y, forces = _measurements(model, q, v, a, tau, noise)
    inertia = _prior(model, prior)
    _check_consistent(model, inertia)
    base = base_parameters(model)
    _check_count(len(forces), base)
    free = np.any(inertia, axis=1)  # the links with mass
    columns = np.repeat(free, 10)
    # All that the samples say, in as many rows as there are numbers to find.
    samples = np.linalg.qr(np.column_stack([Y[:, columns], forces]), mode="r")
    inertia[free], triangle, converged = _newton(samples, inertia[free], weight, max_steps)
    half = base.grouping[:, columns] @ np.linalg.inv(triangle)
    return _identification(model, base, inertia.ravel(), Y, forces, half, converged)


# ------------------------------------------------------------------------------------ the samples


@jax.jit
def _stacked(model: Model, q: Array, v: Array, a: Array) -> tuple[Array, Array]:
    """Regressors (n nv, 10 nb) of n states under one another, and the armature's forces."""

    def at(q, v, a):
        return joint_torque_regressor(model, q, v, a), own_force(model, q, v, a)

    Y, armature = jax.vmap(at)(q, v, a)
    return Y.reshape(armature.size, 10 * model.nb), armature.ravel()


def _measurements(model, q, v, a, tau, noise) -> tuple[np.ndarray, np.ndarray]:
    """The regressor (n nv, 10 nb) and the bodies' share of tau (n nv,), in units of the noise."""
    n = len(jnp.atleast_1d(jnp.asarray(q)))
    q = arguments.array(model, q, "q", (n, model.nq), "samples, nq")
    v, a, tau = (
        arguments.array(model, x, name, (n, model.nv), "samples, nv")
        for x, name in ((v, "v"), (a, "a"), (tau, "tau"))
    )
    deviation = np.ones(model.nv)
    if noise is not None:
        deviation = np.asarray(arguments.velocity(model, noise, "noise"), float)
    for name, x in {"q": q, "v": v, "a": a, "tau": tau, "noise": deviation}.items():
        if not np.all(np.isfinite(x)):
            raise ArgumentError(f"{name} is not finite")
    if np.any(deviation <= 0):
        raise ArgumentError(f"noise is {deviation}, expected numbers above 0")
    Y, armature = _stacked(model, q, v, a)
    unit = np.tile(deviation, n)
    return np.asarray(Y, float) / unit[:, None], np.asarray(tau.ravel() - armature, float) / unit


def _prior(model: Model, prior: ArrayLike | None) -> np.ndarray:
    """The ten numbers of each body that are the estimate where the forces tell nothing."""
    given = model.inertia if prior is None else prior
    inertia = arguments.array(model, given, "prior", (model.nb, 10), "nb, 10")
    if not np.all(np.isfinite(inertia)):
        raise ArgumentError("prior is not finite")
    return np.array(inertia, float)


def _non_negative(name: str, value: float) -> float:
    if not (np.isfinite(value) and value >= 0):
        raise ArgumentError(f"{name} is {value}, expected a number from 0 on")
    return float(value)


def _check_count(equations: int, base: BaseParameters) -> None:
    if equations <= base.rank:
        raise ArgumentError(
            f"q, v, a, tau: {equations} equations for {base.rank} base parameters, expected more"
        )


def _identification(model, base, parameters, Y, forces, half, converged=True) -> Identification:
    """The result of an estimate; `half half^T` is the covariance for noise of unit size."""
    residual = forces - Y @ parameters
    square = float(residual @ residual)
    return Identification(
        inertia=jnp.asarray(parameters.reshape(model.nb, 10), model.dtype),
        base=base,
        base_parameters=base.grouping @ parameters,
        covariance=square / (len(residual) - base.rank) * (half @ half.T),
        residual_rms=float(np.sqrt(square / len(residual))),
        converged=converged,
    )


# ----------------------------------------------------------------------- the convex minimisation

# Sizes of a step, as the largest relative change of a pseudo-inertia: from which on the next value
# of the prior's weight is due, and the search has ended. Newton's method squares the second one.
_NEAR, _SMALL = 0.3, 1e-6


def _newton(samples, prior, weight, max_steps) -> tuple[np.ndarray, np.ndarray, bool]:
    """The minimum (n, 10), a triangular factor of the second derivative there, and whether it is.

    The prior's weight comes down to its own from one that holds the inertias near it. With
    `J = C C^T`, the second derivative of D is the sum of squares of `W = C^-1 dJ C^-T`, so that
    Newton's step is a least-squares solution.
    """
    Y, forces = samples[:, :-1], samples[:, -1]
    basis = np.asarray(pseudo_inertia(jnp.eye(10)), float)  # J of each of the ten numbers
    inverse = np.linalg.inv(_combine(prior.ravel(), basis))
    parameters, triangle = prior.ravel(), np.eye(prior.size)
    heavy = np.sum((forces - Y @ parameters) ** 2)
    for _ in range(max_steps):
        heavy = max(weight, heavy)
        missing = forces - Y @ parameters
        C = np.linalg.cholesky(_combine(parameters, basis))
        C_inverse = np.linalg.inv(C)[:, None]
        W = C_inverse @ basis @ _t(C_inverse)
        downhill = np.eye(4) - _t(C) @ inverse @ C
        of_D = _block_diagonal(_t(W.reshape(-1, 10, 16)))
        Q, triangle = np.linalg.qr(np.concatenate([Y, np.sqrt(heavy) * of_D]))
        target = np.concatenate([missing, np.sqrt(heavy) * downhill.ravel()])
        step = np.linalg.solve(triangle, Q.T @ target)
        W_step = np.einsum("bk,bkij->bij", step.reshape(-1, 10), W)
        size = np.max(np.abs(np.linalg.eigvalsh(W_step)), initial=0)
        if size < _SMALL and heavy == weight:
            return (parameters + step).reshape(-1, 10), triangle, True
        parameters = parameters + _step_length(Y @ step, missing, heavy, W_step, downhill) * step
        if size < _NEAR:
            heavy = heavy / 10
    return parameters.reshape(-1, 10), triangle, False


def _step_length(Y_step, missing, weight, W_step, downhill) -> float:
    """The part of a step, or the multiple of it, to the minimum along its line."""
    stretch = np.linalg.eigvalsh(W_step)
    linear = Y_step @ missing - weight * np.sum((np.eye(4) - downhill) * W_step)
    square = Y_step @ Y_step

    def slope(length):
        """The rate at which what is minimised falls; it falls with the length itself."""
        return linear - length * square + weight * np.sum(stretch / (1 + length * stretch))

    shortest = -float(np.min(stretch, initial=0))
    low, high = 0.0, 1 / shortest if shortest > 0 else np.inf
    high = min(high, 1e3)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return low


def _combine(parameters: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """The pseudo-inertias (n, 4, 4) of parameters (10 n,)."""
    return np.tensordot(parameters.reshape(-1, 10), basis, 1)


def _block_diagonal(blocks: np.ndarray) -> np.ndarray:
    """The matrix of (n, i, j) blocks on its diagonal, (n i, n j)."""
    n, i, j = blocks.shape
    return np.einsum("bij,bc->bicj", blocks, np.eye(n)).reshape(n * i, n * j)


def _t(a: np.ndarray) -> np.ndarray:
    return np.swapaxes(a, -1, -2)


def _check_consistent(model: Model, prior: np.ndarray) -> None:
    margin = np.asarray(consistency_margin(jnp.asarray(prior)))
    faulty = np.any(prior, axis=1) & ~(margin > 0)
    if np.any(faulty):
        names = [model.body_names[i] for i in np.flatnonzero(faulty)]
        raise ArgumentError(
            f"prior: no rigid body, or only a point, a rod or a plate, has the inertia of {names}; "
            f"expected pseudo-inertias that are positive definite"
        )
