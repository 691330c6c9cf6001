"""The true derivatives of a smooth curve, by central differences of its values.

A curve that is analytic near 0 is sampled at `(k - 1/2) h` on both sides, k = 1, ..., 8, and the
derivative of the polynomial of degree 15 through these points is taken. Five steps h are tried. Of
the two neighbours that agree best the larger is believed, as it has less of the rounding. No point
is near 0: what a library does below some small angle, or for an exact zero, cannot enter.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

_SIDE = 8  # points on each side
_STEPS = (0.008, 0.016, 0.032, 0.064, 0.128)


def stencil() -> tuple[np.ndarray, np.ndarray]:
    """Points (16,) and weights (3, 16) of the derivatives of order 1 to 3 at unit step.

    With `P_k(x) = prod_j (x^2 - x_j^2) / (x_k^2 - x_j^2)` over the other points x_j > 0, the
    interpolating polynomial is the sum over x_k > 0 of the even part of the curve at x_k times
    `P_k(x)` and of its odd part times `P_k(x) x / x_k`.
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

    `curve(t)`: values (...) in float64, any number of curves at once, for t in [-0.96, 0.96]. Both
    results are (4, ...). The uncertainty is the difference of the two neighbouring steps and the
    rounding of the samples; where a sample is not finite, neither is it. See `stencil`.
    """
    points, weights = stencil()
    orders = np.arange(1, 4)[:, None]
    rungs, rounding = [], []
    with np.errstate(invalid="ignore"):
        for step in _STEPS:
            samples = np.stack([np.asarray(curve(float(x * step))) for x in points])
            scaled = weights / step**orders
            rungs.append(np.tensordot(scaled, samples, 1))
            size = np.tensordot(np.abs(scaled), np.abs(samples), 1)
            rounding.append(np.finfo(np.float64).eps * size)
        gaps = np.abs(np.diff(np.stack(rungs), axis=0)) + np.stack(rounding[1:])
    best = np.argmin(np.where(np.isfinite(gaps), gaps, np.inf), axis=0)[None]
    truth, gap = (np.take_along_axis(x, best, axis=0)[0] for x in (np.stack(rungs[1:]), gaps))
    value = np.asarray(curve(0.0), np.float64)[None]
    return np.concatenate([value, truth]), np.concatenate([np.zeros_like(value), gap])
