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

    `W^T W`, with W the inverse of M's Cholesky factor: it and its products with vectors have the
    error of a solve, like M's condition number.
    """
    W = _factor_by_blocks(M, 3)
    return matmul(_transposed(W), W)


@positive_inverse.defjvp
def _(primals, tangents):
    inverse = positive_inverse(*primals)
    return inverse, -matmul(matmul(inverse, tangents[0]), inverse)


def _factor_by_blocks(M: Array, halvings: int) -> Array:
    """The inverse W of the Cholesky factor of `M = [[A, B], [B^T, D]]`, lower triangular.

    With W_A that of A, `G = W_A B`, and W_S that of `D - G^T G`, it is
    `[[W_A, 0], [-W_S G^T W_A, W_S]]`. Most of the work is then in products, which for a batch of
    small matrices are many times faster than LAPACK's solves. Halved three times whatever the size,
    so the program does not grow with it.
    """
    half = len(M) // 2
    if not halvings or not half:
        return _eliminated(M) if len(M) else M
    A, B, D = M[:half, :half], M[:half, half:], M[half:, half:]
    W_A = _factor_by_blocks(A, halvings - 1)
    G = matmul(W_A, B)
    G_T = _transposed(G)
    W_S = _factor_by_blocks(D - matmul(G_T, G), halvings - 1)
    return jnp.block([[W_A, jnp.zeros_like(B)], [-matmul(matmul(W_S, G_T), W_A), W_S]])


def _eliminated(M: Array) -> Array:
    """The factor by Gaussian elimination; each pivot is positive, so none is exchanged.

    The rows of `[M 1]` that are above are subtracted from those below. What becomes of the columns
    of 1 is kept where those of M are done with.
    """
    at = np.arange(len(M))

    def eliminate(A, i):
        own, row = at == i, lax.dynamic_index_in_dim(A, i, keepdims=False)
        pivot = lax.dynamic_index_in_dim(row, i, keepdims=False)
        of_row = jnp.where(at > i, row / pivot, 0)  # the column, by symmetry
        row = jnp.where(own, 1, row)
        below = jnp.where(own, 0, A) - of_row[:, None] * row
        return jnp.where(own[:, None], row / jnp.sqrt(pivot), below), None

    return jnp.tril(lax.scan(eliminate, M, jnp.asarray(at))[0])


def _transposed(A: Array) -> Array:
    """`A^T` in memory: a product with A read across takes twice as long on a CPU."""
    return lax.optimization_barrier(A.T)
