"""Linear algebra of small matrices: products at full precision, inverses, eigenvalues.

No function calls LAPACK. XLA splits a batch of LAPACK calls into tasks of its thread pool, and the
tasks of two such batches can block each other forever.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_batching import custom_vmap
from jaxtyping import Bool, Float

from .gpu_kernels import inverse_factor_by_kernel
from .implementations import kernels_selected, with_kernel
from .rules import custom_jvp
from .tiles import TILE, in_tiles


def matmul(a: Array, b: Array) -> Array:
    """The product `a @ b` of arrays in the full precision of the dtype, on GPUs too."""
    return jnp.matmul(a, b, precision="highest")


def products(a: Array, *b: Array) -> Sequence[Array]:
    """The products `a @ b` of a with several matrices of the same size.

    Without GPU kernels, they are one product with all columns, which takes less time on a CPU.
    """
    if kernels_selected():
        return [matmul(a, x) for x in b]
    return jnp.split(matmul(a, jnp.concatenate(b, axis=1)), len(b), axis=1)


def einsum(subscripts: str, *operands: Array) -> Array:
    """`jnp.einsum` in the full precision of the dtype, on GPUs too."""
    return jnp.einsum(subscripts, *operands, precision="highest")


def complement(S: Float[Array, "n m"]) -> Float[Array, "m_n m"]:
    """Orthonormal rows T (m - n, m) of the orthogonal complement of n independent rows S.

    `T S^T = 0`. The rows of T are the last columns of a product of Householder reflections. Step j
    takes column j of S^T, as the reflections of steps 0 to j - 1 have left it, and reflects it to
    axis j. T is smooth in S, except where entry j of this column passes through zero. There the
    sign in the reflection changes, and T jumps to another basis of the same space.
    """
    n, m = S.shape
    rest, Q = S.T, jnp.eye(m, dtype=S.dtype)
    for j in range(n):
        x = jnp.where(jnp.arange(m) >= j, rest[:, j], 0)
        length = jnp.sqrt(jnp.sum(x * x))
        u = x.at[j].add(jnp.where(x[j] < 0, -length, length))
        u = u * jnp.sqrt(2 / jnp.sum(u * u))
        rest = rest - u[:, None] * matmul(u, rest)[None]
        Q = Q - matmul(Q, u)[:, None] * u[None]
    return Q[:, n:].T


def inverse_positive_definite(
    M: Float[Array, "n n"], W: Float[Array, "n n"] | None = None
) -> Float[Array, "n n"]:
    """Inverse of a symmetric positive definite matrix.

    `W`: the `inverse_factor` of M, where the caller has computed it. Where M is singular, rounding
    errors decide whether the result is finite.

    The inverse is `W^T W`, where W is the inverse of the Cholesky factor of M. The errors of the
    inverse and of its products with vectors grow as the condition number of M, as for a solve.
    The derivatives are those of the solution X of `(W M) X = W` for a constant W.
    """
    W = inverse_factor(M) if W is None else W
    return lax.custom_linear_solve(
        lambda X: matmul(W, matmul(M, X)),
        W,
        lambda _, b: matmul(_transposed(W), b),
        lambda _, b: matmul(W, b),
    )


def inverse_factor(M: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The inverse W of the Cholesky factor of M: lower triangular, with `W M W^T = 1`.

    M is symmetric positive definite. A GPU kernel reads only its upper triangle. Where M is
    singular, rounding errors decide whether W is finite. The derivative of W is zero for JAX. So
    use W only inside a solver whose derivatives follow from the solved equations, such as the
    solver of a `lax.custom_linear_solve`.
    """
    return _inverse_factor(lax.stop_gradient(M))


def solve_positive_definite(
    M: Float[Array, "n n"], b: Float[Array, "n ..."], W: Float[Array, "n n"] | None = None
) -> Float[Array, "n ..."]:
    """`M^-1 b` for a symmetric positive definite M.

    `W`: the `inverse_factor` of M, where the caller has computed it. Where M is singular, rounding
    errors decide whether the result is finite.
    """
    W = inverse_factor(M) if W is None else W
    return lax.custom_linear_solve(
        lambda x: matmul(M, x), b, lambda _, b: matmul(W.T, matmul(W, b)), symmetric=True
    )


def solve_free(
    M: Float[Array, "n n"], free: Bool[Array, " n"], b: Float[Array, " n"]
) -> Float[Array, " n"]:
    """The solution of `M x = b` over the free entries of x, for a positive definite M.

    The other entries are 0. For JAX the derivative with respect to M is zero, as for
    `inverse_factor`.
    """
    W = inverse_factor(free_part(M, free))
    return matmul(matmul(W, jnp.where(free, b, 0)), W)


def free_part(M: Float[Array, "n n"], free: Bool[Array, " n"]) -> Float[Array, "n n"]:
    """M in the rows and columns of the free entries, and the identity in the others."""
    return jnp.where(free[:, None] & free[None], M, 0) + jnp.diag((~free).astype(M.dtype))


def _inverse_factor(M: Array) -> Array:
    """The inverse W of the Cholesky factor of `M = [[A, B], [B^T, D]]`, lower triangular.

    A large M is halved twice. W is then `[[W_A, 0], [-W_S G^T W_A, W_S]]`, with `G = W_A B` and the
    inverse factors W_A of A and W_S of `D - G^T G`. Products of large matrices are faster than the
    elimination.
    """
    return _inverse_factor_by_blocks(M, 0 if len(M) <= LARGEST_WHOLE else 2)


def _inverse_factor_by_blocks(M: Array, halvings: int) -> Array:
    """`_inverse_factor` of M, which is halved this number of times."""
    if not halvings:
        return _inverse_factor_by_elimination(M) if len(M) else M
    half = len(M) // 2
    A, B, D = M[:half, :half], M[:half, half:], M[half:, half:]
    W_A = _inverse_factor_by_blocks(A, halvings - 1)
    G = matmul(W_A, B)
    G_T = _transposed(G)
    W_S = _inverse_factor_by_blocks(D - matmul(G_T, G), halvings - 1)
    return jnp.block([[W_A, jnp.zeros_like(B)], [-matmul(matmul(W_S, G_T), W_A), W_S]])


# For a batch of matrices of up to this size, the elimination takes at most 1.2 times the time of
# the computation by halves, and its program is a third as large.
LARGEST_WHOLE = 40


@custom_vmap
def _inverse_factor_by_elimination(M: Array) -> Array:
    """The inverse factors of matrices (..., n, n) by Gaussian elimination; all pivots are positive.

    The loop has the batch axis last. Then each of its operations is on contiguous entries of many
    matrices.
    """
    *batch, n, _ = M.shape
    count = math.prod(batch)

    def eliminate(M):
        return jnp.moveaxis(_elimination(jnp.moveaxis(M, 0, -1)), -1, 0)

    if not batch and not kernels_selected():
        return _elimination(M)
    if not isinstance(count, int):  # a symbolic size of `jax.export`
        return eliminate(M.reshape(count, n, n)).reshape(M.shape)

    def by_loops(M):
        if count <= TILE:
            return eliminate(M)
        by_tiles = functools.partial(in_tiles, eliminate)
        return lax.platform_dependent(M, cpu=by_tiles, default=eliminate)

    flat = M.reshape(count, n, n)
    return with_kernel(by_loops, inverse_factor_by_kernel, count, flat).reshape(M.shape)


@_inverse_factor_by_elimination.def_vmap
def _(_, is_batched, M):
    return _inverse_factor_by_elimination(M), True


def _elimination(M: Array) -> Array:
    """The inverse factor of M (n, n, ...). Multiples of upper rows are subtracted from lower rows.

    With the pivots d and the unit triangular factor L, `M = L diag(d) L^T`. The columns of
    `L^-1 diag(d)` are stored in place of the eliminated columns of M.
    """
    index = np.arange(len(M))
    row, column = (np.expand_dims(index, [*axes, *range(2, M.ndim)]) for axes in ([1], [0]))

    def pivot(A, i):
        """The pivot row of step i, and the multiples of it to subtract from the rows below.

        The pivot d in the row is doubled. So the change of A, an outer product, turns the entries
        `m d` of column i into `-m d`, where m is the multiple. The multiples are computed from
        column i, not from row i. Row and column differ by rounding errors, which may be larger than
        d.
        """
        pivot_row = lax.dynamic_index_in_dim(A, i, keepdims=False)
        pivot_column = lax.dynamic_index_in_dim(A, i, axis=1, keepdims=False)
        d = lax.dynamic_index_in_dim(pivot_row, i, keepdims=False)
        multiples = jnp.where(row[:, 0] > i, pivot_column / d[None], 0)
        return jnp.where(row[:, 0] == i, 2 * pivot_row, pivot_row), multiples

    def eliminate(state, i):
        # The row and the multiples are part of the state. So XLA computes them once, and changes A
        # in place. No row is below the last pivot, so its change is zero.
        A, pivot_row, multiples = state
        A = A - multiples[:, None] * pivot_row[None]
        return (A, *pivot(A, i)), None

    zero = jnp.zeros_like(M[0])
    (A, _, _), _ = lax.scan(eliminate, (M, zero, zero), jnp.asarray(index))
    d = A[index, index]
    lower = jnp.where(row > column, A / d[None], (row == column).astype(A.dtype))
    return lower / jnp.sqrt(d)[:, None]


def solve(A: Float[Array, "n n"], b: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
    """The solution of `A x = b` for any invertible A; of no meaning where A is singular."""
    return lax.custom_linear_solve(
        lambda x: matmul(A, x),
        b,
        lambda _, b: _gauss_jordan(A, b),
        lambda _, b: _gauss_jordan(A.T, b),
    )


def _gauss_jordan(A: Array, b: Array) -> Array:
    """The solution of `A x = b` by Gauss-Jordan elimination.

    The pivot is the entry that is largest relative to the largest entry of its row of A.
    """
    if not len(A):
        return b
    size = jnp.max(jnp.abs(A), axis=1)
    size = jnp.where(size > 0, size, 1)

    def eliminate(state, column):
        rows, unused = state
        entries = lax.dynamic_index_in_dim(rows, column, axis=1, keepdims=False)
        best = jnp.argmax(jnp.where(unused, jnp.abs(entries) / size, -1))
        pivot = jnp.arange(len(A)) == best
        row = jnp.sum(jnp.where(pivot[:, None], rows, 0), axis=0)
        row = row / jnp.sum(jnp.where(pivot, entries, 0))
        rows = jnp.where(pivot[:, None], row, rows - entries[:, None] * row[None])
        return (rows, unused & ~pivot), pivot

    columns = b.reshape(len(A), -1)
    start = jnp.concatenate([A, columns], axis=1), jnp.ones(len(A), bool)
    (rows, _), pivots = lax.scan(eliminate, start, jnp.arange(len(A)))
    return matmul(pivots.astype(b.dtype), rows[:, len(A) :]).reshape(b.shape)


# A row is redundant where its distance from the span of the previous pivot rows is below this
# multiple of the rounding error of the row. In 600 random states of robots with duplicate
# constraints, the distance of a redundant row was at most 0.4 rounding errors. The distance of an
# independent row was at least 40 rounding errors.
REDUNDANT = 10


def pseudo_inverse(A: Float[Array, "m n"], error: Float[Array, " m"]) -> Float[Array, "n m"]:
    """The Moore-Penrose inverse (n, m) of a matrix whose rows may be redundant.

    `error` (m,), positive: the Euclidean norm of the rounding errors in each row of A. The errors
    determine the rank. Let d be the distance of a row from the span of the previous pivot rows.
    Each step of an elimination takes the row with the largest d / error as the pivot row. Rows with
    d less than `REDUNDANT` times the error are redundant. The derivative of the result is zero for
    JAX.
    """
    A, error = lax.stop_gradient((A, error))
    if 0 in A.shape:
        return A.T
    R, L, kept = _eliminated_rows(A, error)
    # A = L R, and the rows of R are orthogonal. With its rows in the order of the pivots, L is
    # lower triangular with ones on the diagonal, and the choice of pivots bounds the other entries.
    # Such a matrix is well conditioned in practice. So L^T L is too, and the result has the
    # rounding errors of a solve.
    G = matmul(L.T, L) + jnp.diag(jnp.where(kept, 0, 1).astype(A.dtype))
    squares = jnp.where(kept, jnp.sum(R * R, axis=1), 1)
    W = _inverse_factor(G)
    return matmul((R / squares[:, None]).T, matmul(W.T, matmul(W, L.T)))


def _eliminated_rows(A: Array, error: Array) -> tuple[Array, Array, Array]:
    """`A = L R` by Gram-Schmidt elimination with k = min(m, n) pivots.

    - R (k, n): the pivot rows. A pivot row is a row of A minus its projections on the previous
      pivot rows, so the pivot rows are orthogonal;
    - L (m, k): the coefficients of the rows of A in the pivot rows;
    - kept (k,): whether the pivot row is larger than rounding errors. Where `kept` is False, the
      row of R and the column of L are zero.
    """
    m, n = A.shape
    weight = 1 / error**2

    def eliminate(rest, _):
        squares = jnp.sum(rest * rest, axis=1) * weight
        best = jnp.argmax(squares)
        pivot = jnp.arange(m) == best
        kept = jnp.max(squares) > REDUNDANT**2
        row = jnp.sum(jnp.where(pivot[:, None] & kept, rest, 0), axis=0)
        square = jnp.sum(row * row)
        share = jnp.where(kept, jnp.sum(rest * row[None], axis=1) / jnp.where(kept, square, 1), 0)
        share = jnp.where(pivot & kept, 1, share)
        return rest - share[:, None] * row[None], (row, share, kept)

    _, (R, L, kept) = lax.scan(eliminate, A, length=min(m, n))
    return R, L.T, kept


def _transposed(A: Array) -> Array:
    """`A^T`, stored in memory: a product that reads A by columns takes twice as long on a CPU."""
    return lax.optimization_barrier(A.T)


# ---------------------------------------------------------------------------- 3x3 eigenvalues


def power_of_two(x: Array) -> Array:
    """The power of two p with x / p from 2 to 4, for x above 0; 0 for x = 0.

    p is 0 also for x below 8 / 3 of the smallest normal floating-point number. A division by any
    other p has no rounding error, and 1 / p is a normal floating-point number. JAX treats p as a
    constant in derivatives.
    """
    return lax.reduce_precision(
        0.375 * lax.stop_gradient(x), int(jnp.finfo(x.dtype).nexp), mantissa_bits=0
    )


def symmetric_eigenvalues(A: Float[Array, "... 3 3"]) -> Float[Array, "... 3"]:
    """Eigenvalues (..., 3) of symmetric 3x3 matrices in increasing order.

    The errors of the eigenvalues are of the order of the rounding error of the largest eigenvalue,
    for any scale of A. The derivative of an eigenvalue is `x^T dA x`, where x is the unit
    eigenvector. For equal eigenvalues the derivatives are finite: they are the derivatives for one
    choice of orthonormal eigenvectors, and their sum is right. Second derivatives have terms with
    the difference of two eigenvalues in the denominator. The terms of equal eigenvalues are
    omitted.
    """
    largest = jnp.max(jnp.abs(A), axis=(-2, -1), keepdims=True)
    scale = power_of_two(largest)
    scale = jnp.where(scale == 0, 1, scale)
    return _eigen(A / scale)[0] * scale[..., 0]


@custom_jvp
def _eigen(A: Array) -> tuple[Array, Array]:
    """Eigenvalues (..., 3), increasing, and eigenvectors as columns, by cyclic Jacobi rotations.

    Source: Golub and Van Loan (2013), Matrix computations, section 8.5.
    """

    def rotate(carry, _):
        (a, b, c, ab, bc, ca), (x, y, z) = carry
        d, h = b - a, 2 * ab
        reach = jnp.abs(d) + jnp.sqrt(d * d + h * h)
        is_zero = reach == 0
        tangent = jnp.where(is_zero, 0, jnp.where(d < 0, -h, h) / jnp.where(is_zero, 1, reach))
        cosine = 1 / jnp.sqrt(1 + tangent * tangent)
        sine = tangent * cosine
        change = tangent * ab
        ca, bc = cosine * ca - sine * bc, sine * ca + cosine * bc
        cosine, sine = cosine[..., None], sine[..., None]
        x, y = cosine * x - sine * y, sine * x + cosine * y
        # Every rotation is in the plane of the first two axes, a and b. The axes are exchanged in a
        # cycle, so the next rotation is in the plane of the present axes b and c.
        return ((b + change, c, a - change, bc, ca, jnp.zeros_like(ab)), (y, z, x)), None

    diagonal = jnp.unstack(jnp.diagonal(A, axis1=-2, axis2=-1), axis=-1)
    entries = (*diagonal, A[..., 0, 1], A[..., 1, 2], A[..., 0, 2])
    axes = tuple(jnp.broadcast_to(row, A.shape[:-1]) for row in jnp.eye(3, dtype=A.dtype))
    (entries, axes), _ = lax.scan(rotate, (entries, axes), length=3 * _SWEEPS)
    values, V = jnp.stack(entries[:3], axis=-1), jnp.stack(axes, axis=-1)
    order = jnp.argsort(values, axis=-1)
    vectors = jnp.take_along_axis(V, order[..., None, :], axis=-1)
    return jnp.take_along_axis(values, order, axis=-1), vectors


# Sweeps converge quadratically: after four sweeps, the rotations are below the rounding of float64.
_SWEEPS = 5


@_eigen.defjvp
def _(primals, tangents):
    values, V = _eigen(*primals)
    rotated = matmul(jnp.swapaxes(V, -1, -2), matmul(tangents[0], V))
    gaps = values[..., None, :] - values[..., :, None]
    equal = gaps == 0
    rates = jnp.where(equal, 0, rotated / jnp.where(equal, 1, gaps))
    return (values, V), (jnp.diagonal(rotated, axis1=-2, axis2=-1), matmul(V, rates))
