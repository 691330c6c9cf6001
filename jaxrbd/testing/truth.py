"""The true derivatives of a smooth curve, by central differences of its values.

A curve that is analytic near 0 is sampled at equally spaced points on both sides, and the
derivative of the polynomial through them is taken: of order 16 in the step. Four steps are tried.
Of the two neighbours that agree best the larger is believed, as it has less of the rounding. Only
the value itself is taken next to 0: what a library does to a derivative there cannot enter.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

_SIDE = 8  # points on each side
_STEPS = (0.015, 0.03, 0.06, 0.12)


def stencil(side: int = _SIDE) -> np.ndarray:
    """Weights (4, 2 side + 1) of the central differences of order 0 to 3 at unit step.

    The polynomial through all points has on the right the Lagrange basis
    `x (x + k) / (2 k^2) prod_j (x^2 - j^2) / (k^2 - j^2)`, j = 1, ..., side without k; row n holds
    n! times its coefficients of x^n. Columns are the points -side, ..., side.
    """
    weights = np.zeros((4, 2 * side + 1))
    weights[0, side] = 1
    for k in range(1, side + 1):
        others = [j for j in range(1, side + 1) if j != k]
        constant = math.prod(j * j / (j * j - k * k) for j in others)
        square = -constant * sum(1 / (j * j) for j in others)
        for n, coefficient, parity in (
            (1, constant / (2 * k), -1),
            (2, constant / (2 * k * k), 1),
            (3, square / (2 * k), -1),
        ):
            weights[n, side + k] = math.factorial(n) * coefficient
            weights[n, side - k] = parity * weights[n, side + k]
    weights[2, side] = -np.sum(weights[2])
    return weights


def true_derivatives(curve: Callable[[float], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Derivatives of order 0 to 3 of `curve` at 0, and their uncertainty: both (4, ...).

    `curve(t)`: values (...) in float64, any number of curves at once, for t in [-0.96, 0.96]. The
    uncertainty is the difference of the two neighbouring steps and the rounding of the values;
    where a value is not finite, neither is it. Source of the weights: see `stencil`.
    """
    values: dict[float, np.ndarray] = {}

    def value(t: float) -> np.ndarray:
        if t not in values:
            values[t] = np.asarray(curve(t), dtype=np.float64)
        return values[t]

    weights = stencil()
    rungs, rounding = [], []
    with np.errstate(invalid="ignore"):
        for step in _STEPS:
            samples = np.stack([value(k * step) for k in range(-_SIDE, _SIDE + 1)])
            scaled = weights / step ** np.arange(4.0)[:, None]
            rungs.append(np.tensordot(scaled, samples, 1))
            size = np.tensordot(np.abs(scaled), np.abs(samples), 1)
            rounding.append(np.finfo(np.float64).eps * size)
        gaps = np.abs(np.diff(np.stack(rungs), axis=0)) + np.stack(rounding[1:])
    best = np.argmin(np.where(np.isfinite(gaps), gaps, np.inf), axis=0)[None]
    truth, gap = (np.take_along_axis(x, best, axis=0)[0] for x in (np.stack(rungs[1:]), gaps))
    return truth, gap
