"""Updates of the multipliers and of the penalty of the constraints, between two steps.

The solver minimises the augmented Lagrangian of `stages.py`. The multipliers are updated when the
trajectory is stationary for the old ones, to a tolerance. If the constraints have improved since
the last update, the tolerance decreases; if not, the penalty 1 / mu increases.
Source: Nocedal and Wright (2006), Numerical optimization, section 17.4.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from .._math.cast import select
from .stages import Multipliers, Residuals, Values, largest

# The constraints improve if their largest violation decreases to this fraction.
IMPROVEMENT = 0.25
# Without improvement, mu decreases by this factor, down to the least mu.
MU_FACTOR, LEAST_MU = 0.1, 1e-8
# The solver states that a problem is infeasible after this number of updates at the least mu that
# did not improve a violation above the solver's tolerance.
STALLS_UNTIL_INFEASIBLE = 3
# A trajectory is stationary if its defects and its scaled stationarity are at most a tolerance. If
# the largest multiplier is above LARGE_MULTIPLIER, the stationarity is divided by their ratio. The
# tolerance begins with FIRST_TOLERANCE. Each update that improves the constraints multiplies it by
# TOLERANCE_FACTOR, down to the solver's tolerance.
FIRST_TOLERANCE, TOLERANCE_FACTOR = 0.1, 0.1
LARGE_MULTIPLIER = 10


class Penalty(NamedTuple):
    """The terms of the constraints in the augmented Lagrangian.

    - `multipliers`, and `mu` (): the penalty is 1 / mu;
    - `tolerance` (): the largest residual of a stationary trajectory;
    - `violation` (): the largest violation of the constraints at the last update;
    - `stalls` (): the number of updates without improvement at the least mu.
    """

    multipliers: Multipliers
    mu: Array
    tolerance: Array
    violation: Array
    stalls: Array

    @property
    def is_largest(self) -> Array:
        """Whether the penalty has its largest value, at the least mu."""
        return self.mu <= LEAST_MU

    @property
    def infeasible(self) -> Array:
        """Whether the updates with the largest penalty do not reduce the violation any more."""
        return self.stalls >= STALLS_UNTIL_INFEASIBLE


def first_penalty(multipliers: Multipliers, mu: Array, tolerance: Array) -> Penalty:
    """The penalty before the first step; `tolerance` (): the tolerance of the solver."""
    dtype = mu.dtype
    return Penalty(
        multipliers,
        mu,
        jnp.maximum(tolerance, jnp.asarray(FIRST_TOLERANCE, dtype)),
        jnp.full((), jnp.inf, dtype),
        jnp.zeros((), int),
    )


def updated_penalty(
    penalty: Penalty,
    values: tuple[Values, Values],
    estimates: Multipliers,
    found: Residuals,
    tolerance: Array,
) -> Penalty:
    """The penalty with new multipliers and mu, if the trajectory is stationary for the old ones.

    `values`, `found`: the values and residuals of the trajectory; `estimates`: y_hat and z_hat,
    which become the new multipliers; `tolerance` (): the tolerance of the solver.
    """
    mu, old = penalty.mu, penalty.multipliers
    inner, last = values
    # The violation of an inequality is mu times the change of its multiplier.
    violation = largest(
        inner.h,
        last.h,
        jnp.maximum(inner.g, -mu * old.inequalities),
        jnp.maximum(last.g, -mu * old.terminal_inequalities),
    )
    # The gradient, and its rounding errors, are proportional to the multipliers.
    y, z, y_last, z_last, _ = estimates
    scale = jnp.maximum(1, largest(y, z, y_last, z_last) / LARGE_MULTIPLIER)
    stationary = jnp.maximum(found.stationarity / scale, found.defects) <= penalty.tolerance
    stationary &= violation > 0  # otherwise the estimates are the old multipliers
    better = violation <= IMPROVEMENT * penalty.violation
    stalled = stationary & ~better & penalty.is_largest & (violation > tolerance)
    lower = jnp.maximum(MU_FACTOR * mu, LEAST_MU)
    smaller = jnp.maximum(tolerance, TOLERANCE_FACTOR * penalty.tolerance)
    return Penalty(
        select(stationary, estimates, old),
        jnp.where(stationary & ~better, lower, mu),
        jnp.where(stationary & better, smaller, penalty.tolerance),
        jnp.where(stationary, violation, penalty.violation),
        jnp.where(stalled, penalty.stalls + 1, penalty.stalls),
    )
