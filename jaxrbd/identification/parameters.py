"""Parameters of any prediction from measurements, with confidence intervals.

The prediction is usually a rollout: the measured positions of a robot as a function of its motor
constants, friction and delays. JAX differentiates it in forward mode. The estimate minimises the
sum of the squared residuals. Let J be the Jacobian of the prediction, divided by the noise. For
Gaussian noise the estimate is the maximum-likelihood estimate, J^T J is the Fisher information, and
the inverse of the Fisher information is the covariance of the estimate.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable
from numbers import Real
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike
from jaxtyping import Float, PyTree

from ..errors import ArgumentError
from ..model import arguments

# A step shorter than _SMALL standard deviations ends the search.
_SMALL = 1e-3
# The damping of the first step, the factor by which each step changes it, and its largest value.
_DAMPING, _FACTOR, _MAX_DAMPING = 1e-3, 10.0, 1e12


class ParameterFit(NamedTuple):
    """Estimated parameters with n entries, and their uncertainty.

    - `parameters`: the estimate, a pytree with the structure of the start;
    - `covariance` (n, n): `s^2 (J^T J)^-1` for the entries in the order of
      `jax.flatten_util.ravel_pytree`, where s is `residual_rms` and J the Jacobian of the
      prediction, divided by the noise;
    - `residual_rms`: the root of `sum(((measured - predicted) / noise)^2) / (m - n)` for m
      measurements. It is about 1 if the noise was given and the model is right;
    - `converged`: whether the next step would be at most a thousandth of the standard deviations,
      or below rounding errors;
    - `steps`: the number of steps.
    """

    parameters: PyTree
    covariance: Float[np.ndarray, "n n"]
    residual_rms: float
    converged: bool
    steps: int

    @property
    def standard_deviation(self) -> PyTree:
        """The standard deviations, as a pytree with the structure of the parameters."""
        return self._unflatten(np.sqrt(np.diag(self.covariance)))

    def interval(self, level: float = 0.95) -> tuple[PyTree, PyTree]:
        """The lower and upper ends of the confidence intervals of the single parameters.

        Two pytrees with the structure of the parameters. In repeated experiments, the interval of
        a parameter contains its true value with the probability `level`, if the model is right, the
        noise is independent and Gaussian, and the prediction is nearly linear within the interval.
        Raises ArgumentError for a level that is not between 0 and 1.
        """
        if not (isinstance(level, Real) and 0 < level < 1):
            raise ArgumentError(f"level is {level!r}, expected a number between 0 and 1")
        width = statistics.NormalDist().inv_cdf(0.5 + level / 2)
        width *= np.sqrt(np.diag(self.covariance))
        middle = np.asarray(ravel_pytree(self.parameters)[0], float)
        return self._unflatten(middle - width), self._unflatten(middle + width)

    def _unflatten(self, entries: np.ndarray) -> PyTree:
        flat, unflatten = ravel_pytree(self.parameters)
        return unflatten(jnp.asarray(entries, flat.dtype))


def identify_parameters(
    predict: Callable[[PyTree], Array],
    start: PyTree,
    measured: ArrayLike,
    noise: ArrayLike = 1.0,
    *,
    max_steps: int = 50,
) -> ParameterFit:
    """Parameters whose prediction fits measurements in least squares, with their covariance.

    - `predict`: a function from the parameters to an array of the shape of `measured`. JAX compiles
      it with its Jacobian, once for several calls with the same function;
    - `start`: the first guess, a pytree of n floats of one dtype;
    - `measured`: more than n values, in any shape;
    - `noise`: the standard deviations of `measured`, up to a common factor, in a shape that
      broadcasts to the shape of `measured`;
    - `max_steps`: the largest number of steps.

    The steps are Levenberg-Marquardt steps. Each column of the Jacobian is scaled to the length 1,
    so the units of the parameters do not matter. A step to parameters with a prediction that is not
    finite is shortened: a prediction can return NaN outside of its range, as `actuators.Delay`
    does. The prediction must be continuous, and its derivative must be right: Coulomb friction with
    `sign(v)` is not differentiable where v changes its sign, so use a smooth function such as
    `tanh(v / width)`. Raises ArgumentError for invalid values, for a prediction at the start that
    is not finite, and where the measurements do not determine all parameters.
    Source: More (1978), "The Levenberg-Marquardt algorithm: implementation and theory"; Seber and
    Wild, "Nonlinear Regression", chapter 5, for the covariance.
    """
    arguments.require_counts(max_steps=max_steps)
    arguments.require_function(predict, "predict", "a function of the parameters")
    names = _entry_names(start)
    flat, unflatten = ravel_pytree(start)
    measured = _finite("measured", measured)
    noise = _positive("noise", noise, measured.shape)
    if measured.size <= flat.size:
        raise ArgumentError(
            f"measured has {measured.size} values for {flat.size} parameters, expected more"
        )

    def linearized(entries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The residuals (m,) and the Jacobian (m, n) of the prediction, divided by the noise."""
        predicted, J = _with_jacobian(predict, unflatten(jnp.asarray(entries, flat.dtype)))
        if predicted.shape != measured.shape:
            raise ArgumentError(
                f"predict returns the shape {predicted.shape}, expected the shape of measured, "
                f"{measured.shape}"
            )
        residual = (measured - np.asarray(predicted, float)) / noise
        J = np.asarray(J, float).reshape(measured.size, flat.size)
        return residual.ravel(), J / noise.reshape(-1, 1)

    entries = np.asarray(flat, float)
    residual, J = linearized(entries)
    if not (np.all(np.isfinite(residual)) and np.all(np.isfinite(J))):
        raise ArgumentError("start: the prediction or its derivative is not finite")
    rounding = 100 * float(jnp.finfo(flat.dtype).eps) * np.linalg.norm(measured / noise)
    freedom = measured.size - flat.size
    steps, damping = 0, _DAMPING
    while True:
        unit, U, sigma, V = _decomposed(J)
        change = U.T @ residual  # the change of the prediction in an undamped step
        deviation = np.linalg.norm(residual) / np.sqrt(freedom)
        converged = np.linalg.norm(change) <= max(_SMALL * deviation, rounding)
        if converged or steps == max_steps:
            break
        while damping < _MAX_DAMPING:
            trial = entries + unit * (V @ (sigma * change / (sigma**2 + damping)))
            found, J_found = linearized(trial)
            better = np.all(np.isfinite(J_found)) and found @ found < residual @ residual
            damping *= 1 / _FACTOR if better else _FACTOR
            if better:
                entries, residual, J, steps = trial, found, J_found, steps + 1
                break
        else:
            break  # no step reduces the residuals
    if undetermined := _undetermined(sigma, V, names, float(jnp.finfo(flat.dtype).eps)):
        raise ArgumentError(
            f"measured does not determine {', '.join(undetermined)}; measure another motion, or "
            f"keep some of these parameters constant"
        )
    covariance_factor = unit[:, None] * V / sigma
    return ParameterFit(
        parameters=unflatten(jnp.asarray(entries, flat.dtype)),
        covariance=deviation**2 * (covariance_factor @ covariance_factor.T),
        residual_rms=float(deviation),
        converged=bool(converged),
        steps=steps,
    )


@functools.partial(jax.jit, static_argnums=0)
def _with_jacobian(predict: Callable[[PyTree], Array], parameters: PyTree) -> tuple[Array, Array]:
    """The prediction, and its Jacobian with the entries of the parameters as the last axis."""
    flat, unflatten = ravel_pytree(parameters)

    def flat_prediction(entries: Array) -> Array:
        predicted = predict(unflatten(entries))
        if not isinstance(predicted, Array):
            raise ArgumentError(f"predict returns {type(predicted).__name__}, expected an array")
        if not jnp.issubdtype(predicted.dtype, jnp.floating):
            raise ArgumentError(f"predict returns the dtype {predicted.dtype}, expected floats")
        return predicted

    def derivative(tangent: Array) -> tuple[Array, Array]:
        return jax.jvp(flat_prediction, (flat,), (tangent,))

    return jax.vmap(derivative, out_axes=(None, -1))(jnp.eye(flat.size, dtype=flat.dtype))


def _decomposed(J: np.ndarray) -> tuple[np.ndarray, ...]:
    """The units (n,) in which the columns of J have the length 1, and `U sigma V^T = J unit`.

    U (m, n), sigma (n,) and V (n, n). A column of zeros has the unit 1. The columns of U are zero
    where sigma is zero within rounding.
    """
    length = np.linalg.norm(J, axis=0)
    unit = 1 / np.where(length > 0, length, 1)
    U, sigma, Vt = np.linalg.svd(J * unit, full_matrices=False)
    rounding = max(J.shape) * np.finfo(float).eps * sigma[0]
    return unit, np.where(sigma > rounding, U, 0), sigma, Vt.T


def _undetermined(sigma: np.ndarray, V: np.ndarray, names: list[str], eps: float) -> list[str]:
    """The names of the parameters that can change without a change of the prediction."""
    rounding = 100 * eps * sigma[0]
    null = V[:, sigma <= rounding]
    return [name for name, row in zip(names, null) if np.linalg.norm(row) > 1e-3]


def _entry_names(start: PyTree) -> list[str]:
    """One name per entry of the parameters, such as `.friction[2]`; checks the leaves."""
    names, dtypes = [], set()
    for path, leaf in jax.tree_util.tree_leaves_with_path(start):
        name = jax.tree_util.keystr(path)
        x = arguments.as_array(leaf, f"start{name}")
        if not jnp.issubdtype(x.dtype, jnp.floating):
            raise ArgumentError(f"start{name} has dtype {x.dtype}, expected floats")
        dtypes.add(x.dtype.name)
        names += [name + "".join(f"[{i}]" for i in index) for index in np.ndindex(x.shape)]
    if dtypes and not names:
        raise ArgumentError("start has no entries, expected at least one parameter")
    if len(dtypes) != 1:
        raise ArgumentError(f"start has the dtypes {sorted(dtypes)}, expected floats of one dtype")
    return names


def _finite(name: str, x: ArrayLike) -> np.ndarray:
    values = np.asarray(arguments.parameter(x, name), float)
    if not np.all(np.isfinite(values)):
        raise ArgumentError(f"{name} is not finite")
    return values


def _positive(name: str, x: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    """The values, all above 0, in the given shape."""
    values = _finite(name, x)
    if np.any(values <= 0):
        raise ArgumentError(f"{name} has the smallest value {np.min(values)}, expected above 0")
    try:
        return np.broadcast_to(values, shape)
    except ValueError:
        raise ArgumentError(
            f"{name} has shape {values.shape}, expected a shape that broadcasts to {shape}"
        ) from None
