"""Configurations that satisfy constraints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.linear import matmul, pseudo_inverse, solve_positive_definite
from ..algorithms.crba import crba
from ..configuration import integrate
from ..model import Model, arguments
from .implicit import constraint_rows
from .kinds import Constraint
from .kkt import scaled_rows


class Closure(NamedTuple):
    """A configuration `q` (nq,), and its `residual` (): the largest error of the constraints."""

    q: Float[Array, " nq"]
    residual: Float[Array, ""]


@arguments.compiled
def close_loops(model: Model, q: ArrayLike, constraints: Sequence[Constraint]) -> Closure:
    """The configuration near q that satisfies the constraints, and its residual.

    `q` (nq,). The result is `integrate(q, M^-1 K^T lambda)`, with the Jacobian K of the constraints
    at q. So the displacement has the form of the acceleration that constraint forces give to a
    robot at rest. Newton's method finds the multipliers lambda for which `phi = 0`. Each equation
    is scaled so that a unit multiplier causes about a unit acceleration, so the units of the
    equations do not matter. Check the residual: it is large if no configuration near q satisfies
    the constraints.

    The result has the derivatives of the solution with respect to q, the model and the constraints;
    no iteration is differentiated. Raises ArgumentError for an unknown frame.
    Source: Ryckaert, Ciccotti and Berendsen (1977), for the displacement.
    """
    q = arguments.configuration(model, q)
    rows = constraint_rows(model, q, jnp.zeros(model.nv, model.dtype), constraints)
    M = crba(model, q)
    scaled = scaled_rows(M, rows)
    # The unknown y is chosen so that, at y = 0, the derivative of the scaled equations with respect
    # to y is the identity.
    units = matmul(scaled.s[:, None] * scaled.inverse.T, scaled.inverse)
    directions = matmul(solve_positive_definite(M, rows.K.T), units)
    rounding = scaled.error * jnp.sqrt(jnp.sum(scaled.inverse**2))

    def displaced(y):
        return integrate(model, q, matmul(directions, y))

    def position(y):
        q_displaced = displaced(y)
        positions = [constraint.position(model, q_displaced) for constraint in constraints]
        return jnp.concatenate([jnp.zeros(0, model.dtype), *positions])

    def newton(function, start):
        return _newton(function, start, rounding)

    def solve_linear(function, b):
        # pseudo_inverse has no derivative: JAX differentiates the solve instead, to any order.
        inverse = pseudo_inverse(jax.jacobian(function)(jnp.zeros_like(b)), rounding)
        return lax.custom_linear_solve(
            function, b, lambda _, b: matmul(inverse, b), lambda _, b: matmul(inverse.T, b)
        )

    y = jnp.zeros_like(rows.position)
    y = lax.custom_root(lambda y: scaled.s * position(y), y, newton, solve_linear)
    return Closure(displaced(y), jnp.max(jnp.abs(position(y)), initial=0.0))


ITERATIONS = 100
# A Newton step that does not reduce the error is cut to a quarter. The search ends at this fraction
# of the whole step.
SHORTEST = 1e-4


class _Search(NamedTuple):
    steps: Array
    y: Array
    error: Array
    fraction: Array
    moves: Array


def _newton(function: Callable[[Array], Array], start: Array, rounding: Array) -> Array:
    """The solution near `start` by Newton's method, with steps that reduce the error.

    `rounding` (m,): the rounding errors of the rows of the derivative of `function`.
    """

    def step(search):
        whole = matmul(pseudo_inverse(jax.jacfwd(function)(search.y), rounding), function(search.y))
        y = search.y - search.fraction * whole
        error = jnp.sum(function(y) ** 2)
        better = error < search.error
        moved = jnp.max(jnp.abs(y - search.y), initial=0.0)
        moves = ~better | (moved > 4 * jnp.finfo(y.dtype).eps * jnp.max(jnp.abs(y), initial=0.0))
        return _Search(
            search.steps + 1,
            jnp.where(better, y, search.y),
            jnp.where(better, error, search.error),
            jnp.where(better, jnp.minimum(1, 2 * search.fraction), search.fraction / 4),
            moves,
        )

    def unfinished(search):
        return (
            (search.steps < ITERATIONS)
            & (search.error > 0)
            & (search.fraction > SHORTEST)
            & search.moves
        )

    one = jnp.ones((), start.dtype)
    search = _Search(jnp.zeros((), jnp.int32), start, jnp.sum(function(start) ** 2), one, one > 0)
    return lax.while_loop(unfinished, step, search).y
