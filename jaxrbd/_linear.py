"""Linear algebra in small: products at full precision, and complements of a few rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
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


@jax.custom_jvp
def positive_inverse(M: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Inverse of a symmetric positive definite matrix; not finite where M is singular.

    By blocks: `[[A, B], [B^T, D]]` has an inverse made of those of A and of `D - B^T A^-1 B`. Most
    of the work is then in products, which for a batch of small matrices are many times faster than
    LAPACK's solves. Halved three times whatever the size, so the program does not grow with it. The
    blocks lose digits like the square of M's condition number; one step of Newton's method,
    `X + X (1 - M X)`, has them back: what is left is like the condition number.
    """
    X = _inverse_by_blocks(M, 3)
    return X + matmul(X, jnp.eye(len(M), dtype=M.dtype) - matmul(M, X))


@positive_inverse.defjvp
def _(primals, tangents):
    inverse = positive_inverse(*primals)
    return inverse, -matmul(matmul(inverse, tangents[0]), inverse)


def _inverse_by_blocks(M: Array, halvings: int) -> Array:
    half = len(M) // 2
    if not halvings or not half:
        return _swept(M) if len(M) else M
    A, B, D = M[:half, :half], M[:half, half:], M[half:, half:]
    A = _inverse_by_blocks(A, halvings - 1)
    AB = matmul(A, B)
    D = _inverse_by_blocks(D - matmul(B.T, AB), halvings - 1)
    ABD = matmul(AB, D)
    return jnp.block([[A + matmul(ABD, AB.T), -ABD], [-ABD.T, D]])


def _swept(M: Array) -> Array:
    """The inverse by Gauss-Jordan elimination; each pivot is positive, so none is exchanged."""
    at = np.arange(len(M))

    def sweep(A, i):
        own, row = at == i, lax.dynamic_index_in_dim(A, i, keepdims=False)
        pivot = lax.dynamic_index_in_dim(row, i, keepdims=False)
        moved = jnp.where(own, -1, row) / pivot
        rest = A - row[:, None] * (row / pivot)
        return jnp.where(own[:, None], moved, jnp.where(own, moved[:, None], rest)), None

    return -lax.scan(sweep, M, jnp.asarray(at))[0]
