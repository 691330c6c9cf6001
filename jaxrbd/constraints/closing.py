"""Configurations that satisfy constraints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float

from .._math.linear import matmul, pseudo_inverse, solve_positive_definite
from .._math.rules import implicit_root
from ..algorithms.crba import crba
from ..configuration import difference, integrate
from ..errors import ArgumentError
from ..model import Model, arguments
from .implicit import constraint_rows
from .kinds import Constraint, Nonholonomic
from .kkt import scaled_rows
from .rows import checked_constraints

# The largest residual of a closure that has converged, for each dtype.
TOLERANCES = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 2e-5}
# The largest number of starts. For 200 configurations near a flat parallelogram, 162 needed one
# start, 36 needed two, and 2 needed three.
STARTS = 8
SPREAD = 0.5  # in rad and m: the standard deviation of the random displacements


class Closure(NamedTuple):
    """A configuration that satisfies constraints.

    - `q` (nq,): the configuration;
    - `residual` (): the largest error of the constraints;
    - `converged`: whether the residual is at most 1e-9 in float64, 2e-5 in float32.
    """

    q: Float[Array, " nq"]
    residual: Float[Array, ""]
    converged: Bool[Array, ""]


@arguments.compiled(arrays=("q",))
def close_loops(model: Model, q: Array, constraints: Sequence[Constraint]) -> Closure:
    """A configuration near q that satisfies the constraints, as a `Closure`.

    `q` (nq,). The result is `integrate(q, M^-1 K^T lambda)`, with the Jacobian K of the constraints
    at q. So the displacement has the form of the acceleration that constraint forces give to a
    robot at rest. Newton's method finds the multipliers lambda for which the equations `phi = 0`
    of the constraints hold. Each equation is scaled so that a unit multiplier causes about a unit
    acceleration, so the units of the equations do not matter.

    If Newton's method finds no such displacement, the search continues from other starts instead of
    q. The next starts are alternately the configuration that Newton's method reached and q plus a
    random displacement. The random displacements are the same in every call. If none of 8 starts
    leads to a configuration that satisfies the constraints, the result is the configuration with
    the smallest error, and `converged` is false.

    The result has the derivatives of the solution with respect to q, the model and the constraints;
    no iteration is differentiated. The displacement from q to another start counts as constant.
    Raises ArgumentError for an unknown frame, for objects that are no constraints, and for a
    `Nonholonomic` constraint.
    Source: Ryckaert, Ciccotti and Berendsen (1977), for the displacement.
    """
    constraints = checked_constraints(constraints)
    for i, constraint in enumerate(constraints):
        if isinstance(constraint, Nonholonomic):
            raise ArgumentError(
                f"constraints[{i}] is a Nonholonomic constraint, which restricts velocities but "
                f"not the configuration; expected another constraint"
            )
    start, solution, directions = _search(*lax.stop_gradient((model, q, constraints)))
    equations = _equations(model, integrate.unchecked(model, q, start), constraints)
    # `_equations` computes the directions again, with other rounding errors, so y would not solve
    # the equations to the last digits. The sum below has the value of the directions of the search
    # and the derivative of the new directions.
    new = equations.directions
    equations = equations._replace(directions=directions + (new - lax.stop_gradient(new)))

    def solve_linear(function, b):
        # `pseudo_inverse` has no derivative. So JAX differentiates the linear system, to any order.
        inverse = pseudo_inverse(jax.jacobian(function)(jnp.zeros_like(b)), equations.rounding)
        return lax.custom_linear_solve(
            function, b, lambda _, b: matmul(inverse, b), lambda _, b: matmul(inverse.T, b)
        )

    y = implicit_root(equations.scaled, lambda: solution, solve_linear)
    residual = equations.residual(y)
    converged = residual <= TOLERANCES[np.dtype(model.dtype)]
    return Closure(equations.displaced(y), residual, converged)


class _Equations(NamedTuple):
    """The constraints as functions of y (m,), which displaces q by `directions @ y`.

    At y = 0, the derivative of the scaled equations with respect to y is the identity, if no
    equation is redundant. `rounding` (m,) has the rounding errors of the rows of this derivative.
    """

    model: Model
    q: Array
    constraints: tuple[Constraint, ...]
    directions: Array
    scales: Array
    rounding: Array

    def displaced(self, y: Array) -> Array:
        return integrate.unchecked(self.model, self.q, matmul(self.directions, y))

    def position(self, y: Array) -> Array:
        q = self.displaced(y)
        positions = [constraint.position(self.model, q) for constraint in self.constraints]
        return jnp.concatenate([jnp.zeros(0, self.model.dtype), *positions])

    def scaled(self, y: Array) -> Array:
        return self.scales * self.position(y)

    def residual(self, y: Array) -> Array:
        return jnp.max(jnp.abs(self.position(y)), initial=0.0)


def _equations(model: Model, q: Array, constraints: tuple[Constraint, ...]) -> _Equations:
    """The equations of displacements of the start q."""
    rows = constraint_rows.unchecked(model, q, jnp.zeros(model.nv, model.dtype), constraints)
    M = crba.unchecked(model, q)
    scaled = scaled_rows(M, rows)
    # The multipliers lambda for a unit of each entry of y.
    multipliers = matmul(scaled.s[:, None] * scaled.inverse.T, scaled.inverse)
    directions = matmul(solve_positive_definite(M, rows.K.T), multipliers)
    rounding = scaled.error * jnp.sqrt(jnp.sum(scaled.inverse**2))
    return _Equations(model, q, constraints, directions, scaled.s, rounding)


class _Attempts(NamedTuple):
    """The number of attempts, the next start, and the best attempt.

    The next start and the best start, each (nv,), are displacements of q. `y`, `directions` and
    `residual` are the values of the best attempt.
    """

    number: Array
    next_start: Array
    best_start: Array
    y: Array
    directions: Array
    residual: Array


def _search(model: Model, q: Array, constraints: tuple[Constraint, ...]) -> tuple[Array, ...]:
    """The best start (nv,), as a displacement of q; its y (m,); and its directions (nv, m)."""
    randoms = np.random.default_rng(0).normal(size=(STARTS + 1, model.nv))
    displacements = SPREAD * jnp.asarray(randoms, model.dtype)
    tolerance = TOLERANCES[np.dtype(model.dtype)]

    def attempt(attempts):
        start = attempts.next_start
        equations = _equations(model, integrate.unchecked(model, q, start), constraints)
        y = _newton(equations.scaled, jnp.zeros_like(equations.scales), equations.rounding)
        residual = equations.residual(y)
        count = attempts.number + 1
        reached = difference.unchecked(model, q, equations.displaced(y))
        next_start = jnp.where(count % 2 == 1, reached, displacements[count])
        better = residual < attempts.residual
        values = start, y, equations.directions, residual
        best = (jnp.where(better, new, old) for new, old in zip(values, attempts[2:]))
        return _Attempts(count, next_start, *best)

    def unfinished(attempts):
        return (attempts.number < STARTS) & ~(attempts.residual <= tolerance)

    zero = jnp.zeros(model.nv, model.dtype)
    rows = jax.eval_shape(lambda: constraint_rows.unchecked(model, q, zero, constraints))
    y, worst = (jnp.full(shape, jnp.inf, model.dtype) for shape in (rows.position.shape, ()))
    none = jnp.zeros((model.nv, len(y)), model.dtype)
    first = _Attempts(jnp.zeros((), jnp.int32), zero, zero, y, none, worst)
    attempts = lax.while_loop(unfinished, attempt, first)
    return attempts.best_start, attempts.y, attempts.directions


ITERATIONS = 100
# If a Newton step does not reduce the error, a quarter of this step is tried. Newton's method ends
# if at most this fraction of the whole step is left.
SHORTEST = 1e-4


class _NewtonState(NamedTuple):
    """The state of Newton's method.

    - `steps`: the number of steps;
    - `y`, and `error`: the sum of the squares of the function at y;
    - `fraction`: the fraction of the whole step that is tried next;
    - `continues`: whether another step follows.
    """

    steps: Array
    y: Array
    error: Array
    fraction: Array
    continues: Array


def _newton(function: Callable[[Array], Array], start: Array, rounding: Array) -> Array:
    """The zero of `function` near `start`, by Newton's method with steps that reduce the error.

    `rounding` (m,): the rounding errors of the rows of the derivative of `function`.
    """

    def step(state):
        whole = matmul(pseudo_inverse(jax.jacfwd(function)(state.y), rounding), function(state.y))
        y = state.y - state.fraction * whole
        error = jnp.sum(function(y) ** 2)
        better = error < state.error
        # A step that reduces the error, but changes y only by rounding errors, is the last step.
        moved = jnp.max(jnp.abs(y - state.y), initial=0.0)
        visible = moved > 4 * jnp.finfo(y.dtype).eps * jnp.max(jnp.abs(y), initial=0.0)
        return _NewtonState(
            state.steps + 1,
            jnp.where(better, y, state.y),
            jnp.where(better, error, state.error),
            jnp.where(better, jnp.minimum(1, 2 * state.fraction), state.fraction / 4),
            ~better | visible,
        )

    def unfinished(state):
        return (
            (state.steps < ITERATIONS)
            & (state.error > 0)
            & (state.fraction > SHORTEST)
            & state.continues
        )

    one, error = jnp.ones((), start.dtype), jnp.sum(function(start) ** 2)
    first = _NewtonState(jnp.zeros((), jnp.int32), start, error, one, one > 0)
    return lax.while_loop(unfinished, step, first).y
