"""Reference derivatives of a smooth curve, by central differences of its values.

The curve is sampled at the 16 points `+-(k - 1/2) h`, k = 1, ..., 8, where h is the step. The
estimates are the derivatives at 0 of the polynomial of degree 15 through these samples. Five steps
give five estimates. Two neighboring steps have a gap: the difference of their estimates, plus the
rounding error of the larger step. The method takes the two steps with the smallest gap. The result
is the estimate of the larger of these steps, because its rounding error is smaller. No sample is
near t = 0, so special cases of a library for small angles or for zero do not affect the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..model.arguments import require_callable

_SIDE = 8  # points with t > 0, and as many with t < 0
_STEPS = (0.008, 0.016, 0.032, 0.064, 0.128)


def stencil() -> tuple[np.ndarray, np.ndarray]:
    """Points (16,) and weights (3, 16) of the derivatives of order 1 to 3 for the step 1.

    Let `P_k(x) = prod_j (x^2 - x_j^2) / (x_k^2 - x_j^2)` for a point x_k > 0, with the product over
    the other points x_j > 0. The interpolating polynomial is the sum over all points x_k > 0 of
    `even(x_k) P_k(x) + odd(x_k) P_k(x) x / x_k`, where even and odd are the even and odd parts of
    the samples. In the code, `P_k(x) = constant + square x^2 + ...`.
    """
    positive = np.arange(1, _SIDE + 1) - 0.5
    even, odd = np.zeros((3, _SIDE)), np.zeros((3, _SIDE))
    for k, x in enumerate(positive):
        others = np.delete(positive, k)
        constant = math.prod(y * y / (y * y - x * x) for y in others)
        square = -constant * math.fsum(1 / (y * y) for y in others)
        odd[0, k], even[1, k], odd[2, k] = constant / x, 2 * square, 6 * square / x
    weights = np.concatenate([(even + odd) / 2, (even - odd) / 2], axis=1)
    return np.concatenate([positive, -positive]), weights


def true_derivatives(curve: Callable[[float], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The value and the derivatives of order 1 to 3 of `curve` at 0, and their uncertainty.

    `curve(t)`: the values (...) of any number of curves in float64, for t in [-0.96, 0.96]. Both
    results are (4, ...). The uncertainty of a derivative is the smallest gap (see the head of this
    module); the uncertainty of the value is 0. An uncertainty is not finite if no two neighboring
    steps have finite samples.
    """
    require_callable("curve", curve, "(t)")
    points, weights = stencil()
    orders = np.arange(1, 4)[:, None]
    estimates, rounding = [], []
    with np.errstate(invalid="ignore"):
        for step in _STEPS:
            samples = np.stack([np.asarray(curve(float(x * step))) for x in points])
            scaled = weights / step**orders
            estimates.append(np.tensordot(scaled, samples, 1))
            size = np.tensordot(np.abs(scaled), np.abs(samples), 1)
            rounding.append(np.finfo(np.float64).eps * size)
        gaps = np.abs(np.diff(np.stack(estimates), axis=0)) + np.stack(rounding[1:])
    best = np.argmin(np.where(np.isfinite(gaps), gaps, np.inf), axis=0)[None]
    truth, gap = (np.take_along_axis(x, best, axis=0)[0] for x in (np.stack(estimates[1:]), gaps))
    value = np.asarray(curve(0.0), np.float64)[None]
    return np.concatenate([value, truth]), np.concatenate([np.zeros_like(value), gap])
