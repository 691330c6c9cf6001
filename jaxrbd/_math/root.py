"""The root of a function by Broyden's method, as an implicit function."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from .linear import matmul, solve

MAX_ITERATIONS = 30


def find_root(residual: Callable[[tuple], tuple], guess: tuple) -> tuple:
    """The solution of `residual(x) = 0`; NaN where the iterations do not converge.

    The derivative of the residual must be near the identity. Broyden's method needs no derivatives.
    It needs a few evaluations more than Newton's method, but the program is smaller. The iterations
    end when the next correction would be below the rounding error of x, or when rounding errors
    stop the convergence. JAX differentiates the result as an implicit function.
    Source: Dennis and Schnabel (1996), Numerical methods for unconstrained optimization, section 8.
    """
    start, unravel = ravel_pytree(guess)
    eps = jnp.finfo(start.dtype).eps

    def largest(x):
        return jnp.max(jnp.abs(x), initial=0)

    def flat(x):
        return ravel_pytree(residual(unravel(x)))[0]

    def finished(x, last, before):
        """Whether the next correction is below rounding, or rounding stops the convergence."""
        rounding = eps * (largest(x) + eps)
        stopped = (last >= before) & (last**2 <= rounding * largest(x))
        return (last**2 <= rounding * before) | stopped

    def unfinished(carry):
        x, *_, corrections, count = carry
        return ~finished(x, *corrections) & (count < MAX_ITERATIONS)

    def broyden(flat, start):
        def iterate(carry):
            x, step, f_before, H, (last, _), count = carry
            f = flat(x)
            change = matmul(H, f - f_before)
            projection = matmul(step, change)
            H = H + jnp.outer(step - change, matmul(step, H)) / jnp.where(
                projection == 0, 1, projection
            )
            step = -matmul(H, f)
            return x + step, step, f, H, (largest(step), last), count + 1

        zero, one = jnp.zeros_like(start), jnp.eye(start.size, dtype=start.dtype)
        unknown = jnp.ones((), start.dtype)
        carry = start, zero, zero, one, (unknown, unknown), 0
        x, *_, (last, before), _ = lax.while_loop(unfinished, iterate, carry)
        small = last <= jnp.sqrt(eps) * (largest(x) + eps)
        return jnp.where(small & finished(x, last, before), x, jnp.nan)

    def tangent_solve(linear, b):
        return solve(jax.jacfwd(linear)(jnp.zeros_like(b)), b)

    return unravel(lax.custom_root(flat, start, broyden, tangent_solve))
