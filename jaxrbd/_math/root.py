"""The root of a function by Broyden's method, as an implicit function."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from .linear import matmul, solve
from .rules import implicit_root

MAX_ITERATIONS = 30


def find_root(residual: Callable[[tuple], tuple[tuple, tuple]], guess: tuple) -> tuple:
    """The solution x of `f(x) = 0`; NaN where the iterations do not converge.

    `residual(x)` returns f(x), and the sizes of f(x): for each equation, the sum of the absolute
    values of its terms. Both have the structure of `guess`. The rounding error of an entry of f is
    near eps times its size, also where the terms cancel. So corrections of x are measured in units
    of the sizes. The derivative of f must be near the identity.

    The iterations end when the next correction would be below the rounding error of f, or when
    corrections below sqrt(eps) no longer decrease, because f has larger rounding errors. Broyden's
    method needs no derivatives. It needs a few evaluations more than Newton's method, but the
    program is smaller. JAX differentiates the result as an implicit function.
    Source: Dennis and Schnabel (1996), Numerical methods for unconstrained optimization, section 8.
    """
    start, unravel = ravel_pytree(guess)
    eps = jnp.finfo(start.dtype).eps

    def flat(x):
        value, sizes = residual(unravel(x))
        return ravel_pytree(value)[0], ravel_pytree(sizes)[0]

    def finished(last, previous):
        """Whether the next correction is below rounding, or rounding stops the convergence."""
        known = jnp.isfinite(previous)
        expected = last * jnp.where(known, last / jnp.where(previous > 0, previous, 1), 1)
        stopped = known & (last >= previous) & (last <= jnp.sqrt(eps))
        return (expected <= eps) | stopped

    def unfinished(carry):
        *_, (last, previous), count = carry
        more = ~finished(last, previous) & ~jnp.isnan(last)
        return (count == 0) | (more & (count < MAX_ITERATIONS))

    def broyden():
        def iterate(carry):
            x, step, f_before, H, (last, _), count = carry
            f, sizes = flat(x)
            change = matmul(H, f - f_before)
            projection = matmul(step, change)
            H = H + jnp.outer(step - change, matmul(step, H)) / jnp.where(
                projection == 0, 1, projection
            )
            step = -matmul(H, f)
            relative = jnp.where(step == 0, 0, jnp.abs(step) / sizes)
            return x + step, step, f, H, (jnp.max(relative, initial=0), last), count + 1

        zero, one = jnp.zeros_like(start), jnp.eye(start.size, dtype=start.dtype)
        unknown = jnp.full((), jnp.inf, start.dtype)
        carry = start, zero, zero, one, (unknown, unknown), 0
        x, *_, corrections, _ = lax.while_loop(unfinished, iterate, carry)
        return jnp.where(finished(*corrections), x, jnp.nan)

    def tangent_solve(linear, b):
        return solve(jax.jacfwd(linear)(jnp.zeros_like(b)), b)

    return unravel(implicit_root(lambda x: flat(x)[0], broyden, tangent_solve))
