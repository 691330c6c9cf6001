"""Inverses by blocks: as accurate as the condition of the matrix allows, with derivatives."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from jaxrbd._linear import positive_inverse
from zoo import close


def positive(n, condition, rng):
    """A random symmetric matrix with eigenvalues from 1 down to 1/condition."""
    Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
    M = (Q * np.geomspace(1, 1 / condition, n)) @ Q.T
    return (M + M.T) / 2


@pytest.mark.parametrize("n", [1, 2, 7, 24])
def test_the_error_of_an_inverse_is_like_the_condition(n, rng):
    """And not like its square, as that of the blocks is by themselves."""
    inverse = jax.jit(positive_inverse)
    for condition in (1.0, 1e3, 1e6, 1e9):
        M = positive(n, condition, rng)
        with mpmath.workdps(40):
            exact = np.array((mpmath.matrix(M.tolist()) ** -1).tolist(), dtype=float)
        allowed = 10 * np.finfo(float).eps * condition
        close(inverse(jnp.array(M)) / np.abs(exact).max(), exact / np.abs(exact).max(), allowed)


def test_the_derivative_of_an_inverse(rng):
    M, dM = positive(9, 10.0, rng), positive(9, 10.0, rng)
    step = 1e-5
    inverse = jax.jit(positive_inverse)
    difference = (inverse(jnp.array(M + step * dM)) - inverse(jnp.array(M - step * dM))) / (
        2 * step
    )
    _, derivative = jax.jvp(positive_inverse, (jnp.array(M),), (jnp.array(dM),))
    close(derivative, difference, 1e-6)
