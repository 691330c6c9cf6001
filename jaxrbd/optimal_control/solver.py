"""The solver of optimal control problems: multiple shooting with a Newton step per iteration.

One iteration linearises all stages at once, and solves the linear-quadratic problem of its step
with the control bounds, by a primal-dual active set method: each inner iteration is one `lqr`. The
step is then scaled by the first of the factors 1, 1/2, ... that decreases the merit by enough. The
merit of a trajectory is the augmented Lagrangian with the new costates lambda,

    cost + sum over stages of  lambda . d + rho |d|^2 / 2,     d the defects.

The loop begins an iteration with the line search along the step of the iteration before, and the
first iteration evaluates the guess. So the program linearises the stages at one place only: in the
line search or, for the exact Hessian, after it.

A multiple of the identity is added to the Gauss-Newton matrix of the stages. It is raised if the
linear-quadratic problem has no unique minimum, or if the whole step decreases the merit by much
less than the quadratic model predicts. It is lowered if the model is good.

The exact Hessian has no such multiple. It is used where a step with the factor 1 precedes, for
example near the solution. If its linear-quadratic problem has no unique minimum, or if its step is
scaled, the Gauss-Newton matrix replaces it, and stays until a step has the factor 1 or a very small
one.

Constraints enter by the augmented Lagrangian of `stages.py`. Its multipliers are updated when the
trajectory is stationary, and mu decreases where the constraints have not improved.
Sources: Nocedal and Wright (2006), Numerical optimization, chapters 17 and 18; Jallet et al.
(2025), ProxDDP: Proximal constrained trajectory optimization.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import PyTree

from .._math.linear import einsum
from .lqr import LqrSolution, LqrStages, lqr
from .problem import Problem
from .stages import (
    Linearisation,
    Multipliers,
    Residuals,
    Values,
    all_values,
    blank_linearisation,
    largest,
    linearise,
    lqr_stages,
    residuals,
    shifted,
    split,
    total_cost,
    without_curvature,
)

# The least factor of a step.
LEAST_FACTOR = 0.5**11
# The merit decreases by at least this part of the decrease that its slope predicts.
ARMIJO = 1e-4
# The merit measures a decrease that is above this multiple of its rounding errors.
MEASURED = 10
# The multiple of the identity is raised below the first gain, and lowered above the second.
POOR_GAIN, GOOD_GAIN = 0.25, 0.75
# Up to this factor, the multiple is raised in any case, and the exact Hessian is tried again.
SHORT = 0.125
# The bounds of the multiple of the identity. Below the first it is zero.
LEAST_SHIFT, LARGEST_SHIFT = 1e-9, 1e9
# The least multiple after a raise.
FIRST_SHIFT = 1e-4
RAISE, LOWER = 10, 5
# The active set has this number of inner iterations before the Hessian is raised.
INNER = 10
# The constraints improve if their largest violation decreases to this part.
IMPROVEMENT = 0.25
MU_FACTOR, LEAST_MU = 0.1, 1e-8
# A trajectory is stationary for the old multipliers if its residuals are below the inner tolerance,
# which decreases by this factor with each update of the multipliers.
INNER_FACTOR = 0.1
# The problem is infeasible after this number of updates without improvement at the least mu.
MOST_STALLS = 3


class Status(enum.IntEnum):
    """Why a solve ended.

    - `CONVERGED`: all residuals are below the tolerance;
    - `ITERATION_LIMIT`: the iterations were not enough;
    - `INFEASIBLE`: the trajectory is stationary for the violation of the constraints;
    - `FAILED`: no step decreases the merit, or the functions give values that are not finite.
    """

    CONVERGED = 0
    ITERATION_LIMIT = 1
    INFEASIBLE = 2
    FAILED = 3


RUNNING = -1


class History(NamedTuple):
    """The progress of a solve, one entry per iteration; entries of later iterations are NaN.

    `cost`, `residuals`: before the step. `factor`: the factor of the step, 0 for no step.
    `shift`: the multiple of the identity. `mu`: the penalty is 1 / mu.
    """

    cost: Array
    residuals: Residuals
    factor: Array
    shift: Array
    mu: Array


# The column of the factor in the rows of `Iterate.history`.
FACTOR = 6


def recorded(rows: Array) -> History:
    """The history of rows (iterations + 1, 9) with the fields of `History` in order."""
    cost, *found, factor, shift, mu = rows[:-1].T
    return History(cost, Residuals(*found), factor, shift, mu)


class Settings(NamedTuple):
    """The options of a solve that are static."""

    exact: bool
    riccati: str
    iterations: int
    fixed: bool
    rollout: str


class Iterate(NamedTuple):
    """The state of the loop: a trajectory, and the step that the next iteration scales.

    `steps`: the number of steps, -1 before the guess has been evaluated. `inner_tolerance`,
    `violation`, `stalls`: those of the last update of the multipliers. `shift`, `newton`,
    `active`: where the search of the next step begins, see `Step`. `grows`: whether the
    stationarity grew in the last step. `history` (iterations + 1, ...): one row per iteration, see
    `recorded`; the last row has no meaning.
    """

    steps: Array
    status: Array
    xs: PyTree
    us: Array
    costates: Array
    multipliers: Multipliers
    mu: Array
    inner_tolerance: Array
    violation: Array
    stalls: Array
    shift: Array
    newton: Array
    active: Array
    gains: Array
    cost: Array
    residuals: Residuals
    history: Array
    step: Step
    merit: Merit
    grows: Array


def minimise(
    problem: Problem,
    p: PyTree,
    start: Iterate,
    shapes: tuple[Values, Values],
    bounds: tuple[Array, Array],
    tolerance: Array,
    settings: Settings,
) -> Iterate:
    """The last iterate, whose residuals belong to its trajectory.

    `shapes`: of the values of a stage and of the last state.
    """
    n, (N, m) = problem.space.size, start.us.shape
    blank = None if settings.exact else blank_linearisation(shapes, N, n, m)

    def unfinished(state):
        return (state.status == RUNNING) & (state.steps < settings.iterations)

    def iterate(state):
        chosen = _line_search(problem, p, state, blank, bounds, settings)
        moved = _moved(state, chosen, settings)
        return _evaluated(problem, p, moved, chosen.linear, bounds, tolerance, settings)

    def iterate_unfinished(state, _):
        running = unfinished(state)
        new = jax.tree.map(lambda new, old: jnp.where(running, new, old), iterate(state), state)
        return new, None

    if settings.fixed:
        end, _ = lax.scan(iterate_unfinished, start, length=settings.iterations + 1)
    else:
        end = lax.while_loop(unfinished, iterate, start)
    limit = jnp.where(end.status == RUNNING, int(Status.ITERATION_LIMIT), end.status)
    return end._replace(status=limit)


def _moved(state: Iterate, chosen: Chosen, settings: Settings) -> Iterate:
    """The state after the step with the chosen factor."""
    step, factor = state.step, chosen.factor
    # The multiple of the identity follows the gain of a Gauss-Newton step. Where rounding errors
    # hide the gain, it follows the gradient instead.
    good = ~chosen.measured | (chosen.gain > GOOD_GAIN)
    poor = jnp.where(chosen.measured, (chosen.gain < POOR_GAIN) & chosen.feasible, state.grows)
    poor |= factor <= SHORT
    poor &= ~step.newton
    newton = (factor == 1) | (~step.newton & (factor <= SHORT))
    shift = jnp.where(good, step.shift / LOWER, step.shift)
    shift = jnp.where(shift < LEAST_SHIFT, 0, shift)
    shift = jnp.where(poor, jnp.maximum(RAISE * step.shift, FIRST_SHIFT), shift)
    guess = state.steps < 0
    dual = factor * (step.solution.costates - state.costates)
    return state._replace(
        steps=state.steps + 1,
        xs=chosen.xs,
        us=chosen.us,
        costates=state.costates + jnp.where(factor > 0, dual, 0),
        shift=jnp.where(guess, state.shift, shift),
        newton=jnp.where(guess, state.newton, newton & settings.exact),
        active=step.active,
        history=state.history.at[state.steps, FACTOR].set(factor),
    )


def _evaluated(
    problem, p, state: Iterate, linear: Linearisation | None, bounds, tolerance, settings: Settings
) -> Iterate:
    """The state with the residuals of its trajectory, new multipliers, and the next step."""
    xs, us, costates, mu = state.xs, state.us, state.costates, state.mu
    n = problem.space.size
    if linear is None:
        linear = linearise(problem, p, xs, us, costates, state.multipliers, mu, True)
    values = linear.inner[0], linear.last[0]
    estimates = shifted(values, state.multipliers, mu)
    stages = lqr_stages(linear, estimates, mu, n)
    found, at_bounds = residuals(linear, stages, costates, estimates, us, bounds)
    cost = total_cost(*values)

    outer = _update_multipliers(state, values, estimates, found, tolerance)
    converged = found.largest <= tolerance
    finite = jnp.isfinite(cost) & jnp.isfinite(found.largest)
    status = jnp.where(converged, int(Status.CONVERGED), outer.status)
    status = jnp.where(finite, status, int(Status.FAILED))
    multipliers = jax.tree.map(
        lambda new, old: jnp.where(converged, new, old), estimates, outer.multipliers
    )

    # The gradient and the Hessian with the new multipliers and the new mu.
    raised = shifted(values, outer.multipliers, outer.mu)
    stages = lqr_stages(linear, raised, outer.mu, n)
    gauss_newton = without_curvature(stages, linear)
    step = _bounded_step(problem, stages, gauss_newton, us, bounds, state, settings.riccati)
    violated = jnp.maximum(found.equalities, found.inequalities) > tolerance
    failure = jnp.where(violated & (mu <= LEAST_MU), int(Status.INFEASIBLE), int(Status.FAILED))
    status = jnp.where((status == RUNNING) & ~step.found, failure, status)

    row = jnp.stack([cost, *found, jnp.zeros_like(cost), step.shift, outer.mu])
    return outer._replace(
        status=status,
        multipliers=multipliers._replace(bounds=at_bounds),
        gains=jnp.where(step.solution.definite, step.solution.gains, state.gains),
        cost=cost,
        residuals=found,
        history=state.history.at[state.steps].set(row),
        step=step,
        merit=Merit.along(values, stages, step.solution, outer),
        grows=found.stationarity > state.residuals.stationarity,
    )


# ------------------------------------------------------------------------- constraints, outer loop


def _update_multipliers(state: Iterate, values, estimates: Multipliers, found, tolerance):
    """The state with new multipliers and mu, if the trajectory is stationary for the old ones."""
    mu = state.mu
    old = state.multipliers
    inner, last = values
    violation = largest(
        inner.h,
        last.h,
        jnp.maximum(inner.g, -mu * old.inequalities),
        jnp.maximum(last.g, -mu * old.terminal_inequalities),
    )
    # Rounding errors of the gradient grow as the multipliers.
    scale = jnp.maximum(1, largest(*estimates[:4]) / 100)
    still = jnp.maximum(found.stationarity / scale, found.defects) <= state.inner_tolerance
    still &= violation > 0
    better = violation <= IMPROVEMENT * state.violation
    floor = mu <= LEAST_MU
    stalled = still & ~better & floor & (violation > tolerance)
    stalls = jnp.where(stalled, state.stalls + 1, state.stalls)
    lower = jnp.maximum(MU_FACTOR * mu, LEAST_MU)
    smaller = jnp.maximum(tolerance, INNER_FACTOR * state.inner_tolerance)
    multipliers = jax.tree.map(lambda new, old: jnp.where(still, new, old), estimates, old)
    return state._replace(
        multipliers=multipliers,
        mu=jnp.where(still & ~better, lower, mu),
        inner_tolerance=jnp.where(still, smaller, state.inner_tolerance),
        violation=jnp.where(still, violation, state.violation),
        stalls=stalls,
        status=jnp.where(stalls >= MOST_STALLS, int(Status.INFEASIBLE), RUNNING),
    )


# ---------------------------------------------------------------------- the step with its bounds


class Step(NamedTuple):
    """A solution of the linear-quadratic problem with bounds.

    `active` (N, m): -1, 0 or 1 for a control at its lower bound, between the bounds, or at its
    upper bound. `shift`: the multiple of the identity. `newton`: whether the Hessian is exact.
    `found`: whether the solution was found. `solves`: the number of inner iterations.
    """

    solution: LqrSolution
    active: Array
    shift: Array
    newton: Array
    found: Array
    solves: Array


def clamped(stages: LqrStages, held: Array, values: Array) -> LqrStages:
    """The stages whose controls `held` (N, m) are constants, `values` (N, m)."""
    A, B, c, Q, R, S, q, r = stages
    values = jnp.where(held, values, 0)
    free = ~held
    one = jnp.eye(R.shape[-1], dtype=R.dtype)
    both = free[:, :, None] & free[:, None, :]
    return LqrStages(
        A,
        jnp.where(free[:, None, :], B, 0),
        c + einsum("tij,tj->ti", B, values),
        Q,
        jnp.where(both, R, jnp.where(held[:, :, None], one, 0)),
        jnp.where(free[:, :, None], S, 0),
        q.at[:-1].add(einsum("tij,ti->tj", S, values)),
        jnp.where(held, -values, r + einsum("tij,tj->ti", R, values)),
    )


def _bounded_step(problem, stages, gauss_newton, us, bounds, state: Iterate, riccati) -> Step:
    """The minimum of the quadratic model over all steps that keep the controls in their bounds.

    Each inner iteration holds the active controls at their bounds. A free control beyond a bound
    becomes active, and an active control whose multiplier has the wrong sign becomes free. If the
    exact Hessian gives no minimum, the Gauss-Newton matrix, `gauss_newton`, replaces it. If this
    gives no minimum either, the multiple of the identity is raised.
    """
    lower, upper = bounds[0] - us, bounds[1] - us
    (_, n, m), dtype = stages.B.shape, us.dtype
    eps = float(jnp.finfo(dtype).eps)
    slack = 10 * eps * (1 + jnp.abs(us))
    zero_x = jnp.zeros(n, dtype)

    def unfinished(step):
        return ~step.found & (step.shift <= LARGEST_SHIFT)

    def inner(step):
        shift = jnp.where(step.newton, 0, step.shift)
        shifted_stages = stages._replace(
            Q=jnp.where(step.newton, stages.Q, gauss_newton.Q) + shift * jnp.eye(n, dtype=dtype),
            R=jnp.where(step.newton, stages.R, gauss_newton.R) + shift * jnp.eye(m, dtype=dtype),
            S=jnp.where(step.newton, stages.S, gauss_newton.S),
        )
        if problem.control_bounds is None:
            solution, active = lqr(shifted_stages, zero_x, riccati), step.active
        else:
            values = jnp.where(step.active > 0, upper, lower)
            held = step.active != 0
            solution = lqr(clamped(shifted_stages, held, values), zero_x, riccati)
            active = _next_active(shifted_stages, solution, step.active, lower, upper, slack)
        definite = solution.definite
        found = definite & jnp.all(active == step.active)
        solves = step.solves + 1
        fails = ~definite | (~found & (solves % INNER == 0))
        raises = fails & ~step.newton
        raised = jnp.maximum(RAISE * step.shift, FIRST_SHIFT)
        return Step(
            solution,
            jnp.where(definite, active, step.active),
            jnp.where(raises, raised, step.shift),
            step.newton & ~fails,
            found,
            solves,
        )

    start = state.step._replace(
        active=state.active,
        shift=state.shift,
        newton=state.newton,
        found=jnp.asarray(False),
        solves=jnp.zeros((), int),
    )
    return lax.while_loop(unfinished, inner, start)


def _next_active(
    stages: LqrStages,
    solution: LqrSolution,
    active: Array,
    lower: Array,
    upper: Array,
    slack: Array,
) -> Array:
    """The active set (N, m) after a solution with the active set `active`."""
    dxs, dus, after = solution.xs[:-1], solution.us, solution.costates[1:]
    terms = [
        stages.r,
        einsum("tij,tj->ti", stages.S, dxs),
        einsum("tij,tj->ti", stages.R, dus),
        einsum("tij,ti->tj", stages.B, after),
    ]
    slope = sum(terms[1:], terms[0])
    eps = float(jnp.finfo(dus.dtype).eps)
    rounding = 100 * eps * sum(map(jnp.abs, terms[1:]), jnp.abs(terms[0]))
    kept = active * slope <= rounding  # the multiplier is -slope
    active = jnp.where((active != 0) & kept, active, 0)
    free = active == 0
    active = jnp.where(free & (dus > upper + slack), 1, active)
    return jnp.where(free & (dus < lower - slack), -1, active)


# ------------------------------------------------------------------------------------ line search


class Merit(NamedTuple):
    """The merit of a trajectory, and what it takes to compute the merit of its trials.

    `value`: the merit, whose rounding errors are about `rounding`. `slope`: its derivative along
    the step. `rho`: the weight of the squares of the defects. `by_defects`: the decrease that the
    defects cause. `defects` (N, n): of the trajectory.
    """

    value: Array
    slope: Array
    rounding: Array
    rho: Array
    by_defects: Array
    defects: Array

    @classmethod
    def along(cls, values, stages: LqrStages, solution: LqrSolution, state: Iterate) -> Merit:
        """The merit of the trajectory with these values and this quadratic model."""
        dxs, dus, after = solution.xs, solution.us, solution.costates[1:]
        defects = values[0].defect
        size = jnp.maximum(largest(defects), largest(dxs, dus))
        rho = largest(after) / jnp.where(size > 0, size, 1)
        value = _merit(values, solution, rho, state)
        by_defects = jnp.sum(after * defects) + rho * jnp.sum(defects * defects)
        slope = jnp.sum(stages.q * dxs) + jnp.sum(stages.r * dus) - by_defects
        weighted = jnp.sum(jnp.abs(after * defects))
        rounding = 100 * float(jnp.finfo(dus.dtype).eps) * (jnp.abs(value) + weighted)
        by_defects = weighted + rho * jnp.sum(defects * defects)
        return cls(value, slope, rounding, rho, by_defects, defects)


def _merit(values, solution: LqrSolution, rho: Array, state: Iterate) -> Array:
    """The merit of a trajectory from its values."""
    inner, last = values
    y, z, y_last, z_last, _ = shifted(values, state.multipliers, state.mu)
    penalty = sum(jnp.sum(x * x) for x in (y, z, y_last, z_last)) * state.mu / 2
    by_defects = jnp.sum(solution.costates[1:] * inner.defect) + rho * jnp.sum(inner.defect**2) / 2
    return total_cost(inner, last) + penalty + by_defects


class Chosen(NamedTuple):
    """A trajectory with a factor of the step, and whether it decreases the merit by enough.

    `linear`: its linearisation, None for the exact Hessian. `gain`: the decrease of the merit by
    the whole step, divided by the decrease that the quadratic model predicts. `measured`: whether
    this decrease is above the rounding errors of the merit. `feasible`: whether the defects cause
    less than half of the predicted decrease.
    """

    factor: Array
    xs: PyTree
    us: Array
    linear: Linearisation | None
    enough: Array
    gain: Array
    measured: Array
    feasible: Array


def _line_search(problem, p, state: Iterate, blank, bounds, settings: Settings) -> Chosen:
    """The largest factor whose trajectory decreases the merit by enough, else 0.

    With the Gauss-Newton matrix, each trial is linearised, because most steps need one trial only.
    So the program has the functions of a stage once. A trial of the exact Hessian has only values.
    `blank`: a linearisation of zeros, None for the exact Hessian.
    """
    xs, us, step, old = state.xs, state.us, state.step, state.merit
    moved = _linear_motion if settings.rollout == "linear" else _feedback_motion
    measured = -old.slope > MEASURED * old.rounding

    def evaluated(states, controls):
        if settings.exact:
            return all_values(problem, p, states, controls), None
        constants = state.costates, state.multipliers, state.mu
        linear = linearise(problem, p, states, controls, *constants, False)
        return (linear.inner[0], linear.last[0]), linear

    def trial(before: Chosen) -> Chosen:
        factor = jnp.where(before.factor > LEAST_FACTOR, before.factor / 2, 0)
        states, controls = moved(problem, p, xs, us, step.solution, old.defects, factor, bounds)
        states, controls = jax.tree.map(
            lambda new, old: jnp.where(factor > 0, new, old), (states, controls), (xs, us)
        )
        values, linear = evaluated(states, controls)
        found = _merit(values, step.solution, old.rho, state)
        enough = found <= old.value + ARMIJO * factor * old.slope + old.rounding
        enough &= jnp.isfinite(found) & (old.slope <= old.rounding)
        gain = 2 * (old.value - found) / jnp.where(measured, -old.slope, 1)
        return before._replace(
            factor=factor,
            xs=states,
            us=controls,
            linear=linear,
            enough=enough | (factor == 0),
            gain=jnp.where(factor == 1, gain, before.gain),
        )

    # The guess, and a solve that has ended, have no step.
    begun = (state.status == RUNNING) & (state.steps >= 0)
    factor = jnp.where(begun, jnp.asarray(2, us.dtype), 0)
    feasible = 2 * old.by_defects < -old.slope
    no = jnp.asarray(False)
    start = Chosen(factor, xs, us, blank, no, jnp.zeros_like(factor), measured, feasible)
    end = lax.while_loop(lambda trial: ~trial.enough, trial, start)
    return end._replace(gain=jnp.where(jnp.isfinite(end.gain), end.gain, -jnp.inf))


def _linear_motion(problem, p, xs, us, solution: LqrSolution, defects, factor, bounds):
    """The states and controls that move along the step."""
    states = jax.vmap(problem.space.retract)(xs, factor * solution.xs)
    return states, jnp.clip(us + factor * solution.us, *bounds)


def _feedback_motion(problem, p, xs, us, solution: LqrSolution, defects, factor, bounds):
    """The states that follow from the controls with feedback; the defects shrink by the factor."""
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
