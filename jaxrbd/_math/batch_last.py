"""Sums and elimination for arrays whose last axis is the batch axis.

Each function computes with vectors of many states. XLA compiles a sum over an axis before the last
one to scalar code. So each sum is a loop over its terms. A step of a loop costs three small
kernels, so one step adds several terms.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

# The largest number of terms that one step of a loop adds.
TERMS = 16


def plus_terms(
    start: Array, count: int, term: Callable[[Array], Array], stored: bool = False
) -> Array:
    """`start` plus the sum of the terms 0 to count - 1.

    With `stored`, the loop of two or more terms has at least two steps. Then XLA stores the sum and
    its operands, and does not compute them again for each of their uses.
    """
    if not count:
        return start
    terms = min(TERMS, count)
    if stored:
        terms = max(n for n in range(1, min(TERMS, max(count // 2, 1)) + 1) if count % n == 0)

    def add(sums, i):
        return sums + term(i), None

    return lax.scan(add, start, np.arange(count), unroll=terms)[0]


def row(x: Array, i: Array, axis: int = 0) -> Array:
    """Entry i of x along an axis."""
    return lax.dynamic_index_in_dim(x, i, axis, keepdims=False, allow_negative_indices=False)


def sum_of_rows(x: Array) -> Array:
    """The sum of the rows of x (n, s)."""
    return plus_terms(jnp.zeros_like(x, shape=x.shape[1:]), len(x), lambda i: row(x, i))


def solutions(A: Array) -> Array:
    """The solutions X (n, k, ...) of systems `K X = B`, by Gauss-Jordan elimination.

    `A` (n, n + k, ...) is `[K, B]`. All pivots must be positive, as for a positive definite K.
    """
    n = len(A)
    if not n:
        return A
    index = np.arange(n).reshape(-1, *[1] * (A.ndim - 1))

    def eliminate(A, i):
        pivot = row(A, i) / row(row(A, i), i)[None]
        is_pivot = index == i
        multiples = jnp.where(is_pivot, -1, row(A, i, 1)[:, None])
        return jnp.where(is_pivot, 0, A) - multiples * pivot[None], None

    return lax.scan(eliminate, A, np.arange(n))[0][:, n:]
