"""Inverses by blocks, as accurate as the condition number allows; eigenvalues; derivatives."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from jaxrbd._math.batch_last import plus_terms, row, solutions, sum_of_rows
from jaxrbd._math.linear import (
    complement,
    inverse_factor,
    inverse_positive_definite,
    power_of_two,
    pseudo_inverse,
    solve,
    solve_positive_definite,
    symmetric_eigenvalues,
)
from support import finite_differences
from support.zoo import close

inverse = jax.jit(inverse_positive_definite)


def positive(n, condition, rng):
    """A random symmetric matrix with eigenvalues from 1 down to 1/condition."""
    Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
    M = (Q * np.geomspace(1, 1 / condition, n)) @ Q.T
    return (M + M.T) / 2


def exactly(M, b):
    """`M^-1 b` to forty digits."""
    with mpmath.workdps(40):
        solved = mpmath.matrix(M.tolist()) ** -1 * mpmath.matrix(b.tolist())
        return np.array(solved.tolist(), dtype=float)


@pytest.mark.parametrize("n", [1, 2, 7, 24])
def test_the_error_of_a_product_with_the_inverse_is_like_the_condition(n, rng):
    """Also for vectors whose product with the inverse nearly cancels."""
    for condition in (1.0, 1e3, 1e6, 1e9):
        M = positive(n, condition, rng)
        X = np.array(inverse(jnp.array(M)))
        for b in (np.eye(n), M @ rng.normal(size=(n, 3))):
            expected = exactly(M, b)
            size = np.abs(expected).max()
            allowed = 10 * np.finfo(float).eps * condition
            close(X @ b / size, expected / size, allowed)


@pytest.mark.parametrize("n", [3, 30, 50])
@pytest.mark.parametrize("batch", [(5,), (130,), (3, 50)], ids=str)
def test_inverses_of_batches(n, batch, rng):
    """A batch with more matrices than a tile, and batches of batches."""
    M = np.stack([positive(n, 1e3, rng) for _ in range(np.prod(batch))]).reshape(*batch, n, n)
    run = inverse_positive_definite
    for _ in batch:
        run = jax.vmap(run)
    close(jax.jit(run)(jnp.array(M)), np.linalg.inv(M), 1e-11)


def test_the_inverse_factor_is_lower_triangular(rng):
    for n in (1, 9, 30):
        M = positive(n, 1e3, rng)
        W = inverse_factor(jnp.array(M))
        close(W @ M @ W.T, np.eye(n), 1e-12)
        close(W, jnp.tril(W), 0.0)


def test_the_derivative_of_an_inverse(rng):
    M, dM = positive(9, 10.0, rng), positive(9, 10.0, rng)
    step = 1e-5
    difference = (inverse(jnp.array(M + step * dM)) - inverse(jnp.array(M - step * dM))) / (
        2 * step
    )
    _, derivative = jax.jvp(inverse_positive_definite, (jnp.array(M),), (jnp.array(dM),))
    close(derivative, difference, 1e-6)


@pytest.mark.gives_nan
def test_the_inverse_of_a_singular_matrix_is_not_finite():
    M = jnp.diag(jnp.array([2.0, 1.0, 0.0]))
    assert not jnp.any(jnp.isfinite(jnp.diagonal(inverse(M))[2]))


# ------------------------------------------------------------------------- 3x3 eigenvalues

eigenvalues = jax.jit(symmetric_eigenvalues)

SPECTRA = {
    "apart": (1.0, 2.0, 3.5),
    "of both signs": (-2.0, 0.5, 1.0),
    "two equal": (1.0, 1.0, 2.0),
    "two equal, the larger": (1.0, 2.0, 2.0),
    "three equal": (2.0, 2.0, 2.0),
    "nearly equal": (1.0, 1.0 + 1e-9, 1.0 + 3e-9),
    "of rank one": (0.0, 0.0, 3.0),
    "zero": (0.0, 0.0, 0.0),
    "far apart": (1e-12, 1e-5, 1.0),
}


def symmetric(spectrum, rng, n=20):
    """Random symmetric matrices (n, 3, 3) with the given eigenvalues. The first one is diagonal."""
    Q, _ = np.linalg.qr(rng.normal(size=(n, 3, 3)))
    Q[0] = np.eye(3)[[2, 0, 1]]
    A = (Q * np.array(spectrum)) @ np.swapaxes(Q, -1, -2)
    return (A + np.swapaxes(A, -1, -2)) / 2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("name", SPECTRA)
def test_eigenvalues_are_those_of_numpy(name, scale, dtype, rng):
    A = (scale * symmetric(SPECTRA[name], rng)).astype(dtype)
    found, expected = eigenvalues(A), np.linalg.eigvalsh(A.astype(float))
    assert found.dtype == dtype
    error = np.max(np.abs(np.asarray(found) - expected))
    # In float64 this includes the error of numpy.
    digits = {"float32": 2, "float64": 10}[dtype] * np.finfo(dtype).eps
    assert error <= digits * scale * np.max(np.abs(SPECTRA[name]))
    assert np.all(np.diff(found, axis=-1) >= 0)


@pytest.mark.parametrize("length", [1e-300, 1e300])
def test_eigenvalues_do_not_see_the_unit(length, rng):
    A = symmetric(SPECTRA["apart"], rng, 1)[0]
    close(eigenvalues(jnp.array(length * A)) / length, np.array(SPECTRA["apart"]), 1e-14)


@pytest.mark.gives_nan
def test_eigenvalues_of_what_is_not_a_number():
    A = np.broadcast_to(np.eye(3), (6, 3, 3)).copy()
    for k, (i, j) in enumerate(zip(*np.triu_indices(3))):
        A[k, i, j] = A[k, j, i] = np.nan
    assert np.all(np.isnan(eigenvalues(A)))


@pytest.mark.parametrize("name", ["apart", "of both signs", "far apart"])
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_derivatives_of_eigenvalues_that_differ(name, mode, rng):
    """First derivatives against numpy's eigenvectors, second against differences of the first."""
    A = jnp.array(symmetric(SPECTRA[name], rng, 4)[1])
    dA = jnp.array(symmetric((1.0, -0.3, 0.7), rng, 4)[1])

    @jax.jit
    def first(t):
        return jnp.sum(mode(symmetric_eigenvalues)(A + t * dA) * dA[None], axis=(-2, -1))

    X = np.linalg.eigh(A)[1]
    # The error of an eigenvector is inverse to the gap between the eigenvalues.
    gap = np.min(np.diff(SPECTRA[name]))
    close(first(0.0), np.diagonal(X.T @ dA @ X), 1e-14 / min(gap, 0.1))
    if name != "far apart":  # whose second derivatives are 1e5
        close(jax.jit(jax.jacfwd(first))(0.0), finite_differences.central(first, 1e-5), 1e-8)


@pytest.mark.parametrize("name", SPECTRA)
def test_derivatives_of_eigenvalues_are_finite(name, rng):
    """Also for equal eigenvalues: the sum of their derivatives is the derivative of the trace."""
    A = jnp.array(symmetric(SPECTRA[name], rng, 6))
    first = jax.jit(jax.vmap(jax.jacrev(symmetric_eigenvalues)))(A)
    close(jnp.sum(first, axis=1), jnp.broadcast_to(jnp.eye(3), A.shape), 1e-14)
    if name != "nearly equal":
        second = jax.vmap(jax.jacfwd(jax.jacrev(symmetric_eigenvalues)))
        assert np.all(np.isfinite(jax.jit(second)(A)))


def test_a_program_of_eigenvalues_calls_no_lapack():
    A = jnp.zeros((7, 3, 3))
    gradient = jax.vmap(jax.grad(lambda A: symmetric_eigenvalues(A)[0]))
    for function in (symmetric_eigenvalues, gradient):
        assert "lapack" not in jax.jit(function).lower(A).as_text()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_powers_of_two(dtype):
    limits = np.finfo(dtype)
    x = np.array([limits.max, 1.5, 1.0, 1e-10, 1e10, 8 * limits.tiny], dtype)
    p = np.asarray(power_of_two(jnp.array(x)))
    np.testing.assert_array_equal(np.frexp(p)[0], 0.5)
    assert np.all((x / p >= 2) & (x / p <= 4))
    assert np.all(1 / p >= limits.tiny)
    assert power_of_two(jnp.zeros((), dtype)) == 0
    tiny = jnp.finfo(dtype).smallest_normal
    bounds = [power_of_two(jnp.asarray(x * tiny, dtype)) for x in (2.6, 2.7)]
    np.testing.assert_array_equal(bounds, [0, tiny])
    assert jax.grad(power_of_two)(jnp.ones((), dtype)) == 0


# ------------------------------------------------------------------------------- other inverses


def test_a_positive_solve_and_its_derivatives(rng):
    M, dM = positive(9, 10.0, rng), positive(9, 10.0, rng)
    b, db = rng.normal(size=(9, 2)), rng.normal(size=(9, 2))
    operands, changes = (jnp.array(M), jnp.array(b)), (jnp.array(dM), jnp.array(db))
    value, derivative = jax.jvp(solve_positive_definite, operands, changes)
    close(value, np.linalg.solve(M, b), 1e-13)
    close(derivative, np.linalg.solve(M, db - dM @ value), 1e-13)
    weights = jnp.array(rng.normal(size=(9, 2)))
    _, pull = jax.vjp(solve_positive_definite, *operands)
    reverse = sum(jnp.sum(x * y) for x, y in zip(pull(weights), changes))
    close(reverse, jnp.sum(weights * derivative), 1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_solution_for_any_square_matrix(dtype, rng):
    """Zero pivots that need an exchange of rows, and rows of very different size."""
    A = rng.normal(size=(8, 8))
    A[np.arange(8), np.arange(8)] = 0
    A[:2, :2] = 0
    sizes = np.geomspace(1e-12, 1e12, 8)
    b = rng.normal(size=8)
    found = jax.jit(solve)(jnp.asarray(sizes[:, None] * A, dtype), jnp.asarray(sizes * b, dtype))
    allowed = 20 * np.finfo(dtype).eps * np.linalg.cond(A)
    close(np.asarray(found, float), np.linalg.solve(A, b), allowed)


def test_the_derivatives_of_a_solution(rng):
    A, dA = rng.normal(size=(2, 6, 6))
    b = rng.normal(size=6)
    x = np.linalg.solve(A, b)
    _, forward = jax.jvp(lambda A: solve(A, jnp.array(b)), (jnp.array(A),), (jnp.array(dA),))
    close(forward, -np.linalg.solve(A, dA @ x), 1e-12)
    weights = rng.normal(size=6)
    reverse = jax.grad(lambda A: jnp.sum(weights * solve(A, jnp.array(b))))(jnp.array(A))
    close(reverse, -np.outer(np.linalg.solve(A.T, weights), x), 1e-12)


CASES = {  # m rows, n columns, rank, condition
    "independent": (12, 18, 12, 1e2),
    "redundant": (12, 18, 8, 1e2),
    "more rows than columns": (30, 12, 12, 1e2),
    "more rows, and redundant": (30, 12, 6, 10.0),
    "ill-conditioned": (24, 35, 18, 1e4),
}
rank_inverse = jax.jit(pseudo_inverse)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", CASES)
def test_a_pseudo_inverse_has_the_error_of_a_solve(case, dtype, rng):
    m, n, rank, condition = CASES[case]
    U, V = (np.linalg.qr(rng.normal(size=(k, k)))[0][:, :rank] for k in (m, n))
    values = np.geomspace(1, 1 / condition, rank)
    A, expected = (U * values) @ V.T, (V / values) @ U.T
    error = np.full(m, np.finfo(dtype).eps, dtype)
    found = np.asarray(rank_inverse(jnp.asarray(A, dtype), error), float)
    close(found / condition, expected / condition, 3 * np.finfo(dtype).eps * condition)


def test_the_rounding_errors_of_rows_decide_the_rank():
    """The stated rounding error decides whether a small difference of two rows counts."""
    A = jnp.array([[1.0, 0.0, 0.0], [1.0, 1e-9, 0.0], [0.0, 0.0, 1e-20]])
    counts = rank_inverse(A, jnp.array([1e-16, 1e-16, 1e-36]))
    close(counts @ A, np.eye(3), 1e-6)
    rounding = rank_inverse(A, jnp.array([1e-9, 1e-9, 1e-36]))
    expected = np.zeros((3, 3))
    expected[0, :2], expected[2, 2] = 0.5, 1e20
    close(rounding / 1e20, expected / 1e20, 1e-15)
    close(rounding[:2], expected[:2], 1e-8)


def test_the_pseudo_inverse_of_no_rows():
    assert pseudo_inverse(jnp.zeros((0, 4)), jnp.zeros(0)).shape == (4, 0)
    assert not jnp.any(rank_inverse(jnp.zeros((3, 4)), jnp.ones(3)))


@pytest.mark.parametrize("row", [(1, 0, 0), (-1, 0, 0), (0, -1, 0), (0, 0, 1), (-1, -2, -2)])
def test_the_complement_of_a_row(row):
    S = jnp.array([row], float)
    T = complement(S)
    close(T @ T.T, np.eye(2), 1e-15)
    close(T @ S.T, np.zeros((2, 1)), 1e-15)


@pytest.mark.parametrize("stored", [False, True])
def test_batch_last_sums(stored, rng):
    """Sums of no, one, few and many terms, whose counts are not multiples of the terms per step."""
    for count in (0, 1, 2, 9, 17, 23, 40):
        a, b = rng.normal(size=(2, count, 3, 5))
        start = rng.normal(size=(3, 5))

        def total(a, b, start):
            return plus_terms(start, len(a), lambda i: row(a, i) * row(b, i), stored)

        close(jax.jit(total)(a, b, start), start + np.sum(a * b, axis=0), 1e-13)
        close(jax.jit(sum_of_rows)(a[:, 0]), np.sum(a[:, 0], axis=0), 1e-13)


def test_batch_last_elimination(rng):
    for n in (0, 1, 6):
        K = np.array([positive(n, 100, rng) for _ in range(4)]).reshape(4, n, n)
        B = rng.normal(size=(4, n, 2))
        A = jnp.moveaxis(jnp.asarray(np.concatenate([K, B], axis=2)), 0, -1)
        close(jnp.moveaxis(jax.jit(solutions)(A), -1, 0), np.linalg.solve(K, B), 1e-12)
