"""Operands with equal numbers of axes.

JAX adds leading axes to the operand that has fewer axes. With the setting
`jax_numpy_rank_promotion="raise"` it refuses such operands. So the package adds the axes itself;
the compiled programs are the same.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax


def same_rank(*operands) -> tuple:
    """The operands with new leading axes of size 1, so that all have the same number of axes.

    Scalars stay as they are.
    """
    rank = max(map(np.ndim, operands))
    return tuple(x if np.ndim(x) in (0, rank) else lax.broadcast_to_rank(x, rank) for x in operands)


def times(x, y):
    """The product `x y` of operands with different numbers of axes."""
    x, y = same_rank(x, y)
    return lax.mul(x, y) if _alike(x, y) else x * y


def plus(x, y):
    """The sum `x + y` of operands with different numbers of axes."""
    x, y = same_rank(x, y)
    return lax.add(x, y) if _alike(x, y) else x + y


def minus(x, y):
    """The difference `x - y` of operands with different numbers of axes."""
    x, y = same_rank(x, y)
    return lax.sub(x, y) if _alike(x, y) else x - y


def _alike(x, y) -> bool:
    """Whether two arrays have the same number of axes and the same dtype.

    Then `lax` computes their sums and products. The operators of JAX make the same program, but
    trace each operation as a function, which takes three times as long.
    """
    arrays = isinstance(x, Array) and isinstance(y, Array)
    return arrays and x.ndim == y.ndim and x.dtype == y.dtype


def identity_like(A: Array) -> Array:
    """The identity matrix (1, ..., 1, n, n), in the rank and dtype of A (..., n, n)."""
    return lax.broadcast_to_rank(jnp.eye(A.shape[-1], dtype=A.dtype), A.ndim)
