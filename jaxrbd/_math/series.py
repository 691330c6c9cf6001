"""Trigonometric quotients such as `sin(t)/t`, accurate to rounding, with derivatives of any order.

All quotients follow from Stumpff's functions of `x = t^2`,

    c_k(x) = 1 / k! - x / (k + 2)! + x^2 / (k + 4)! - ...,

which are `cos t`, `sin(t) / t`, `(1 - cos t) / t^2` and `(t - sin t) / t^3` for k = 0 to 3. They
satisfy

    x c_(k+2) = 1 / k! - c_k,         dc_k/dx = (k c_(k+2) - c_(k+1)) / 2.

For small x the power series is summed, with all terms that matter in float64. For larger x the
first relation has no cancellation. There is no tolerance to choose, and derivatives with respect to
x are right everywhere, also at 0. Source: Stumpff (1947).
"""

from __future__ import annotations

import functools
from math import factorial

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .ranks import times
from .rules import custom_jvp

# The number of terms of the power series, and the least x from which a closed form replaces it.
_TERMS = 18
_SWITCH = 4.0


@functools.partial(custom_jvp, nondiff_argnums=(1,))
def stumpff(x: Float[Array, "..."], n: int) -> Float[Array, "... n"]:
    """Stumpff's functions c_0 to c_(n-1) at x >= 0, on a new last axis."""

    def constants(values):
        """The n values as an array (1, ..., 1, n)."""
        return jnp.asarray(np.reshape(values, (*[1] * x.ndim, n)), x.dtype)

    k = np.arange(n)
    terms = [[(-1) ** j / factorial(2 * j + i) for i in k] for j in range(_TERMS)]
    # The closed form of c_k has the difference `1/(k-2)! - c_(k-2)`, which cancels below these x.
    small = x[..., None] < constants(np.maximum(_SWITCH, k * (k - 1)))
    within = jnp.where(small, x[..., None], 0)
    series = constants(terms[-1])
    for row in reversed(terms[:-1]):
        series = series * within + constants(row)

    half = jnp.sqrt(jnp.where(x < _SWITCH, _SWITCH, x)) / 2
    inverse = 1 / half
    s, c = jnp.sin(half), jnp.cos(half)
    closed = [1 - 2 * s * s, s * inverse * c, (s * inverse) ** 2 / 2]
    for i in range(3, n):
        closed.append((1 / factorial(i - 2) - closed[i - 2]) * (inverse * inverse / 4))
    return jnp.where(small, series, jnp.stack(closed[:n], axis=-1))


@stumpff.defjvp
def _(n, primals, tangents):
    c = stumpff(primals[0], n + 2)
    k = jnp.arange(n, dtype=c.dtype)
    rates = (times(k, c[..., 2:]) - c[..., 1:-1]) / 2
    return c[..., :n], rates * tangents[0][..., None]


def sinc(x: Array) -> Array:
    """`sin(t) / t`, with t^2 = x."""
    return stumpff(x, 2)[..., 1]


def cosc(x: Array) -> Array:
    """`(1 - cos t) / t^2`, with t^2 = x."""
    return stumpff(x, 3)[..., 2]


def half_cot(x: Array) -> Array:
    """`(1 - (t/2) cot(t/2)) / t^2`, with t^2 = x; infinite at t = 2 pi."""
    _, c1, c2, c3 = jnp.unstack(stumpff(x / 4, 4), axis=-1)
    return (c2 - c3) / (4 * c1)


def adjoint_coefficients(x: Array) -> tuple[Array, Array, Array, Array]:
    """The coefficients a_1 to a_4 of `sum ad^k / (k+1)! = 1 + sum a_k ad^k`.

    `ad` is the matrix of the cross product with a motion of angle t = sqrt(x). It satisfies
    `ad (ad^2 + t^2)^2 = 0`, so the powers of ad up to the fourth suffice. The closed forms are
    `(4 - t sin t - 4 cos t) / 2 t^2`, `(4 t - 5 sin t + t cos t) / 2 t^3`,
    `(2 - t sin t - 2 cos t) / 2 t^4`, `(2 t - 3 sin t + t cos t) / 2 t^5`.
    Source: Selig, Geometric Fundamentals of Robotics, section 7.6 (the differential of the
    exponential on SE(3)).
    """
    _, c1, c2, c3, c4, c5, c6, c7 = jnp.unstack(stumpff(x, 8), axis=-1)
    # Both expressions are equal. Near 0 the derivatives of the shorter one cancel.
    small = x < _SWITCH
    a1 = jnp.where(small, (1 + x * x * (4 * c6 - c5)) / 2, (4 * c2 - c1) / 2)
    a2 = jnp.where(small, 1 / 6 + x * x * (5 * c7 - c6) / 2, (5 * c3 - c2) / 2)
    return a1, a2, (c3 - 2 * c4) / 2, (c4 - 3 * c5) / 2


def inverse_adjoint_coefficients(x: Array) -> tuple[Array, Array]:
    """The coefficients b_2 and b_4 of the inverse of `sum ad^k / (k+1)!`.

    `ad` and x: as in `adjoint_coefficients`. The inverse is `1 - ad / 2 + b_2 ad^2 + b_4 ad^4`. At
    each eigenvalue z of ad, this polynomial has the value and the derivative of the function
    `z / (e^z - 1) = (z/2) coth(z/2) - z/2`. With `D = half_cot(x)`, it follows that
    `b_4 = -dD/dx` and `b_2 = D - x dD/dx`.
    """
    _, c1, c2, c3, c4, c5 = jnp.unstack(stumpff(x / 4, 6), axis=-1)
    D = (c2 - c3) / (4 * c1)
    slope = (3 * (c4 - c5) - c3) / (32 * c1) + D * D / 2
    return D - x * slope, -slope
