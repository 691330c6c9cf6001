"""Linear algebra in small: products at full precision, and complements of a few rows."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float


def matmul(a: Array, b: Array) -> Array:
    """The product `a @ b` of matrices or vectors in the dtype's own precision, on GPUs too."""
    return jnp.matmul(a, b, precision="highest")


def complement(S: Float[Array, "n m"]) -> Float[Array, "m_n m"]:
    """Orthonormal rows T, (m - n, m), that with n independent rows S span all: `T S^T = 0`.

    They are the last columns of a product of Householder reflections. T is smooth in S, but where a
    reflection changes its sign: there, as a basis of the same space.
    """
    n, m = S.shape
    rest, Q = S.T, jnp.eye(m, dtype=S.dtype)
    for j in range(n):
        x = jnp.where(jnp.arange(m) >= j, rest[:, j], 0)
        length = jnp.sqrt(jnp.sum(x * x))
        u = x.at[j].add(jnp.where(x[j] < 0, -length, length))
        u = u * jnp.sqrt(2 / jnp.sum(u * u))
        rest = rest - u[:, None] * matmul(u, rest)
        Q = Q - matmul(Q, u)[:, None] * u
    return Q[:, n:].T
