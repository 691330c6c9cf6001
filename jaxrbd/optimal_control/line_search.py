"""The factor of a step: the first of 1, 1/2, ... that decreases the merit by enough.

The merit of a trajectory is the augmented Lagrangian with the new costates lambda,

    cost + terms of the constraints + sum over stages of (lambda . d + rho |d|^2 / 2),

where d are the defects.
Source: Nocedal and Wright (2006), Numerical optimization, section 18.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import PyTree

from .._math.cast import select
from .._math.linear import einsum
from .lqr import LqrSolution, LqrStages
from .penalty import Penalty
from .problem import Problem
from .stages import Linearisation, Values, estimated, largest, split, total_cost

# The least factor of a step. If it does not decrease the merit by enough, the factor is 0.
LEAST_FACTOR = 0.5**11
# The merit decreases by at least this part of the decrease that its slope predicts, up to rounding.
ARMIJO = 1e-4
# The gain is measured only if the decrease that the slope predicts is above this multiple of the
# rounding errors of the merit.
NOISE_MULTIPLE = 10


class Merit(NamedTuple):
    """The merit of a trajectory, and the quantities that the merit of a trial needs.

    `value`: the merit, whose rounding errors are about `rounding`. `slope`: the derivative of the
    merit along the step. `rho`: the weight of the squares of the defects. `by_defects`: a bound of
    the decrease that the defects cause. `defects` (N, n): the defects of the trajectory.
    """

    value: Array
    slope: Array
    rounding: Array
    rho: Array
    by_defects: Array
    defects: Array


def merit_of_step(
    values: tuple[Values, Values], stages: LqrStages, solution: LqrSolution, penalty: Penalty
) -> Merit:
    """The merit of a trajectory from its values, its quadratic model and its step."""
    dxs, dus, next_costates = solution.xs, solution.us, solution.costates[1:]
    inner, _ = values
    defects = inner.defect
    size = jnp.maximum(largest(defects), largest(dxs, dus))
    rho = largest(next_costates) / jnp.where(size > 0, size, 1)
    value = _merit(values, solution, rho, penalty)
    defect_slope = jnp.sum(next_costates * defects) + rho * jnp.sum(defects * defects)
    slope = jnp.sum(stages.q * dxs) + jnp.sum(stages.r * dus) - defect_slope
    weighted = jnp.sum(jnp.abs(next_costates * defects))
    rounding = 100 * float(jnp.finfo(dus.dtype).eps) * (jnp.abs(value) + weighted)
    by_defects = weighted + rho * jnp.sum(defects * defects)
    return Merit(value, slope, rounding, rho, by_defects, defects)


def _merit(
    values: tuple[Values, Values], solution: LqrSolution, rho: Array, penalty: Penalty
) -> Array:
    """The merit of a trajectory from its values."""
    inner, last = values
    y, z, y_last, z_last, _ = estimated(values, penalty.multipliers, penalty.mu)
    squares = sum(jnp.sum(x * x) for x in (y, z, y_last, z_last)) * penalty.mu / 2
    products = jnp.sum(solution.costates[1:] * inner.defect) + rho * jnp.sum(inner.defect**2) / 2
    return total_cost(inner, last) + squares + products


class Trial(NamedTuple):
    """A trajectory with a factor of the step, and its merit compared with the merit before.

    `linear`: its linearisation; with the exact Hessian None, and computed after the search.
    `enough`: whether the merit decreases by enough, or the factor is 0, which ends the search.
    `gain`: the decrease of the merit by the whole step, divided by the decrease that the quadratic
    model predicts; -inf if it is not finite. `measured`: whether the gain counts, see
    `NOISE_MULTIPLE`. `small_defects`: whether the defects cause less than half of the decrease that
    the slope predicts.
    """

    factor: Array
    xs: PyTree
    us: Array
    linear: Linearisation | None
    enough: Array
    gain: Array
    measured: Array
    small_defects: Array


def line_search(
    xs: PyTree,
    us: Array,
    has_step: Array,
    solution: LqrSolution,
    merit: Merit,
    penalty: Penalty,
    move: Callable[[Array], tuple[PyTree, Array]],
    evaluate: Callable[[PyTree, Array], tuple[tuple[Values, Values], Linearisation | None]],
    blank: Linearisation | None,
) -> Trial:
    """The trial with the largest factor that decreases the merit by enough, or with the factor 0.

    - `xs`, `us`: the trajectory, from which the step `solution` begins;
    - `has_step` (): whether there is a step; without it, the factor is 0;
    - `move`: the states and controls for a factor above 0;
    - `evaluate`: the values of a trajectory, and its linearisation or None;
    - `blank`: a linearisation of zeros, or None.
    """
    measured = -merit.slope > NOISE_MULTIPLE * merit.rounding

    def trial(before: Trial) -> Trial:
        factor = jnp.where(before.factor > LEAST_FACTOR, before.factor / 2, 0)
        states, controls = select(factor > 0, move(factor), (xs, us))
        values, linear = evaluate(states, controls)
        found = _merit(values, solution, merit.rho, penalty)
        enough = found <= merit.value + ARMIJO * factor * merit.slope + merit.rounding
        enough &= jnp.isfinite(found) & (merit.slope <= merit.rounding)
        gain = 2 * (merit.value - found) / jnp.where(measured, -merit.slope, 1)
        return before._replace(
            factor=factor,
            xs=states,
            us=controls,
            linear=linear,
            enough=enough | (factor == 0),
            gain=jnp.where(factor == 1, gain, before.gain),
        )

    factor = jnp.where(has_step, jnp.asarray(2, us.dtype), 0)
    small_defects = 2 * merit.by_defects < -merit.slope
    false = jnp.asarray(False)
    start = Trial(factor, xs, us, blank, false, jnp.zeros_like(factor), measured, small_defects)
    end = lax.while_loop(lambda trial: ~trial.enough, trial, start)
    return end._replace(gain=jnp.where(jnp.isfinite(end.gain), end.gain, -jnp.inf))


def linear_motion(problem: Problem, xs, us, solution: LqrSolution, factor, bounds):
    """The states, and the controls within the bounds, after `factor` times the step."""
    states = jax.vmap(problem.space.retract)(xs, factor * solution.xs)
    return states, jnp.clip(us + factor * solution.us, *(x[None] for x in bounds))


def feedback_motion(problem: Problem, p, xs, us, solution: LqrSolution, defects, factor, bounds):
    """A rollout with feedback, within the bounds, that keeps `1 - factor` times the defects."""
    retract, difference = problem.space.retract, problem.space.difference

    def stage(x, row):
        t, planned, u, gain, offset, defect = row
        change = factor * offset + einsum("ij,j->i", gain, difference(planned, x))
        u = jnp.clip(u + change, *bounds)
        x_next = retract(problem.step(t, x, u, p), (factor - 1) * defect)
        return x_next, (x_next, u)

    initial, planned = jax.tree.map(lambda x: x[0], xs), split(xs)[0]
    rows = jnp.arange(len(us)), planned, us, solution.gains, solution.offsets, defects
    _, (after, controls) = lax.scan(stage, initial, rows)
    return jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), initial, after), controls
