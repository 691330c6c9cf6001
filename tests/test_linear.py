"""Inverses by blocks: as accurate as the condition of the matrix allows, with derivatives."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from jaxrbd._linear import positive_inverse
from zoo import close

inverse = jax.jit(positive_inverse)


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
    """Also of vectors with which it nearly cancels."""
    for condition in (1.0, 1e3, 1e6, 1e9):
        M = positive(n, condition, rng)
        X = np.array(inverse(jnp.array(M)))
        for b in (np.eye(n), M @ rng.normal(size=(n, 3))):
            expected = exactly(M, b)
            size = np.abs(expected).max()
            allowed = 10 * np.finfo(float).eps * condition
            close(X @ b / size, expected / size, allowed)


def test_the_derivative_of_an_inverse(rng):
    M, dM = positive(9, 10.0, rng), positive(9, 10.0, rng)
    step = 1e-5
    difference = (inverse(jnp.array(M + step * dM)) - inverse(jnp.array(M - step * dM))) / (
        2 * step
    )
    _, derivative = jax.jvp(positive_inverse, (jnp.array(M),), (jnp.array(dM),))
    close(derivative, difference, 1e-6)


def test_the_inverse_of_a_singular_matrix_is_not_finite():
    M = jnp.diag(jnp.array([2.0, 1.0, 0.0]))
    assert not jnp.any(jnp.isfinite(jnp.diagonal(inverse(M))[2]))
