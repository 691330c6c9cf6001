"""Polynomials whose coefficients are parameters: nonlinear springs and dampers."""

from __future__ import annotations

from functools import reduce

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float


def polynomial(coefficients: ArrayLike, x: Float[Array, " n"]) -> Float[Array, " n"]:
    """The values of n polynomials, one for each entry of x: the sum of `coefficients[:, k] x^k`.

    `coefficients` (n, p); or (n,), for constants. The result has the dtype of x.
    """
    c = jnp.asarray(coefficients, x.dtype)
    if c.ndim == 1:
        return c
    return reduce(lambda total, c_k: total * x + c_k, jnp.flip(c, 1).T, jnp.zeros_like(x))


def spring_energy(coefficients: ArrayLike, x: Float[Array, " n"]) -> Float[Array, " n"]:
    """The energies of n springs with the forces `-polynomial(coefficients, x) x`."""
    c = jnp.asarray(coefficients, x.dtype)
    c = c[:, None] if c.ndim == 1 else c
    powers = jnp.arange(2, c.shape[1] + 2, dtype=x.dtype)
    return polynomial(c / powers[None], x) * x * x
