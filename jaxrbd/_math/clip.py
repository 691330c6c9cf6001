"""Bounds of values, with the derivatives that an optimiser needs at a bound."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array


def clip_within(x: Array, low: Array | int, high: Array | int) -> Array:
    """`jnp.clip`, but the derivative with respect to x is 1 where x is equal to a bound.

    There `jnp.clip` has the derivative 1/2, so a solver with bounds on x would see wrong gradients.
    A bound that is NaN gives NaN.
    """
    below, above = (x < low) | (low != low), (x > high) | (high != high)
    return jnp.where(below, low, jnp.where(above, high, x))
