"""Trigonometric quotients such as `sin(t)/t`, accurate to rounding, with derivatives of any order.

Each quotient is an analytic function of `x = t^2`. For `x < 4` its power series is summed, with all
terms that matter in float64. For larger x its closed form has no cancellation. There is no
tolerance to choose, and derivatives with respect to x are right everywhere, also at 0. `jnp.where`
selects the *input* of each branch, so a branch is never evaluated outside its domain.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import factorial

import jax.numpy as jnp
from jax import Array

_TERMS = 18
_SWITCH = 4.0


def _evaluate(x: Array, series: tuple[float, ...], closed: Callable[[Array], Array]) -> Array:
    small = x < _SWITCH
    return jnp.where(
        small,
        jnp.polyval(jnp.array(series[::-1], x.dtype), jnp.where(small, x, 0), unroll=_TERMS),
        closed(jnp.sqrt(jnp.where(small, _SWITCH, x))),
    )


def _alternating(start: int, weight: Callable[[int], int] = lambda k: 1) -> tuple[float, ...]:
    """Coefficients `weight(k) (-1)^k / (2k + start)!` of x^k."""
    return tuple((-1) ** k * weight(k) / factorial(2 * k + start) for k in range(_TERMS))


def _derivative_of_double_root(start: int) -> tuple[float, ...]:
    """Coefficients of x^(k-1), k >= 1, in `sum k (-x)^(k-1) / (2k + start)!`."""
    return tuple((-1) ** k * (k + 1) / factorial(2 * k + 2 + start) for k in range(_TERMS))


def _half_cotangent() -> tuple[float, ...]:
    """Coefficients of `(1 - (t/2) cot(t/2)) / t^2`: 1/12 + x/720 + x^2/30240 + ..."""
    n = _TERMS + 1
    numerator = [Fraction((-1) ** k, factorial(2 * k + 1)) for k in range(n)]
    denominator = [Fraction(2 * (-1) ** k, factorial(2 * k + 2)) for k in range(n)]
    quotient: list[Fraction] = []
    for k in range(n):
        rest = sum((quotient[j] * denominator[k - j] for j in range(k)), Fraction(0))
        quotient.append((numerator[k] - rest) / denominator[0])
    return tuple(float(-c) for c in quotient[1:])


_SINC = _alternating(1)
_COSC = _alternating(2)
_SINCC = _alternating(3)
_HALF_COT = _half_cotangent()
_COS = _alternating(0)
_AD1 = _alternating(2, lambda k: 1 - k)
_AD2 = _alternating(3, lambda k: 1 - k)
_AD3 = _derivative_of_double_root(2)
_AD4 = _derivative_of_double_root(3)


def cos_sqrt(x: Array) -> Array:
    """`cos t`, with t^2 = x."""
    return _evaluate(x, _COS, jnp.cos)


def sinc(x: Array) -> Array:
    """`sin(t) / t`, with t^2 = x."""
    return _evaluate(x, _SINC, lambda t: jnp.sin(t) / t)


def cosc(x: Array) -> Array:
    """`(1 - cos t) / t^2`, with t^2 = x."""
    return _evaluate(x, _COSC, lambda t: 2 * (jnp.sin(t / 2) / t) ** 2)


def sincc(x: Array) -> Array:
    """`(t - sin t) / t^3`, with t^2 = x."""
    return _evaluate(x, _SINCC, lambda t: (t - jnp.sin(t)) / t**3)


def half_cot(x: Array) -> Array:
    """`(1 - (t/2) cot(t/2)) / t^2`, with t^2 = x; infinite at t = 2 pi."""
    return _evaluate(x, _HALF_COT, lambda t: (1 - t / 2 / jnp.tan(t / 2)) / t**2)


def adjoint_coefficients(x: Array) -> tuple[Array, Array, Array, Array]:
    """The coefficients a_1 to a_4 of `sum ad^k / (k+1)! = 1 + sum a_k ad^k`.

    `ad` is the matrix of the cross product with a motion of angle t = sqrt(x). It satisfies
    `ad (ad^2 + t^2)^2 = 0`, so the powers of ad up to the fourth suffice. The closed forms are
    `(4 - t sin t - 4 cos t) / 2 t^2`, `(4 t - 5 sin t + t cos t) / 2 t^3`,
    `(2 - t sin t - 2 cos t) / 2 t^4`, `(2 t - 3 sin t + t cos t) / 2 t^5`.
    Source: Selig, Geometric Fundamentals of Robotics, section 7.6 (the differential of the
    exponential on SE(3)).
    """
    s, c = jnp.sin, jnp.cos
    return (
        _evaluate(x, _AD1, lambda t: (4 - t * s(t) - 4 * c(t)) / (2 * t**2)),
        _evaluate(x, _AD2, lambda t: (4 * t - 5 * s(t) + t * c(t)) / (2 * t**3)),
        _evaluate(x, _AD3, lambda t: (2 - t * s(t) - 2 * c(t)) / (2 * t**4)),
        _evaluate(x, _AD4, lambda t: (2 * t - 3 * s(t) + t * c(t)) / (2 * t**5)),
    )
