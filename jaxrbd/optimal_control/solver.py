"""The solver of optimal control problems: multiple shooting with a Newton step per iteration.

One iteration linearises all stages at once, and solves the linear-quadratic problem of its step
with the control bounds, by a primal-dual active set method: each inner iteration is one `lqr`. The
step is then scaled by the first of the factors 1, 1/2, ... that decreases the merit by enough. The
merit of a trajectory is the augmented Lagrangian with the new costates lambda,

    cost + sum over stages of  lambda . d + rho |d|^2 / 2,     d the defects.

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
    Multipliers,
    Residuals,
    all_values,
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


class Settings(NamedTuple):
    """The options of a solve that are static."""

    exact: bool
    riccati: str
    iterations: int
    fixed: bool
    rollout: str


class Iterate(NamedTuple):
    """The state of the loop."""

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
    history: History


def minimise(
    problem: Problem,
    p: PyTree,
    start: Iterate,
    bounds: tuple[Array, Array],
    tolerance: Array,
    settings: Settings,
) -> Iterate:
    """The last iterate. After the last step of an unfinished solve, its residuals are computed."""

    def unfinished(state):
        return (state.status == RUNNING) & (state.steps <= settings.iterations)

    def iterate(state):
        return _iterate(problem, p, state, bounds, tolerance, settings)

    if settings.fixed:
        end, _ = lax.scan(
            lambda state, _: (iterate(state), None), start, length=settings.iterations + 1
        )
    else:
        end = lax.while_loop(unfinished, iterate, start)
    limit = jnp.where(end.status == RUNNING, int(Status.ITERATION_LIMIT), end.status)
    return end._replace(status=limit, steps=jnp.minimum(end.steps, settings.iterations))


def _iterate(problem, p, state: Iterate, bounds, tolerance, settings: Settings) -> Iterate:
    xs, us, costates, mu = state.xs, state.us, state.costates, state.mu
    n, dtype = problem.space.size, us.dtype
    running = state.status == RUNNING
    linear = linearise(problem, p, xs, us, costates, state.multipliers, mu, settings.exact)
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
    multipliers = multipliers._replace(bounds=at_bounds)

    # The gradient and the Hessian with the new multipliers and the new mu.
    raised = shifted(values, outer.multipliers, outer.mu)
    stages = lqr_stages(linear, raised, outer.mu, n)
    first = without_curvature(stages, linear)
    step = _bounded_step(stages, first, us, bounds, state, settings.riccati)
    chosen = _line_search(
        problem,
        p,
        xs,
        us,
        (outer.multipliers, outer.mu),
        stages,
        step,
        values,
        bounds,
        settings.rollout,
    )
    # The multiple of the identity follows the gain of a Gauss-Newton step. Where rounding errors
    # hide the gain, it follows the gradient instead.
    good = ~chosen.measured | (chosen.gain > GOOD_GAIN)
    grows = found.stationarity > state.residuals.stationarity
    poor = jnp.where(chosen.measured, (chosen.gain < POOR_GAIN) & chosen.feasible, grows)
    poor |= chosen.factor <= SHORT
    poor &= ~step.newton
    newton = (chosen.factor == 1) | (~step.newton & (chosen.factor <= SHORT))
    newton &= settings.exact
    shift = jnp.where(good, step.shift / LOWER, step.shift)
    shift = jnp.where(shift < LEAST_SHIFT, 0, shift)
    shift = jnp.where(poor, jnp.maximum(RAISE * step.shift, FIRST_SHIFT), shift)
    stuck = (shift > LARGEST_SHIFT) | ~step.found
    violated = jnp.maximum(found.equalities, found.inequalities) > tolerance
    end = jnp.where(violated & (mu <= LEAST_MU), int(Status.INFEASIBLE), int(Status.FAILED))
    status = jnp.where((status == RUNNING) & stuck, end, status)
    status = jnp.where(running, status, state.status)

    moves = (status == RUNNING) & (state.steps < settings.iterations)
    factor = jnp.where(moves, chosen.factor, 0)
    dual = factor * (step.solution.costates - costates)
    index = jnp.minimum(state.steps, settings.iterations - 1)
    written = running & (state.steps < settings.iterations)
    record = History(cost, found, factor, step.shift, outer.mu)
    history = jax.tree.map(
        lambda old, new: jnp.where(written, old.at[index].set(new), old), state.history, record
    )

    def keep(new, old):
        """The new values, unless the solve had ended."""
        return jax.tree.map(lambda new, old: jnp.where(running, new, old), new, old)

    return Iterate(
        steps=jnp.where(running & (status == RUNNING), state.steps + 1, state.steps),
        status=status,
        xs=jax.tree.map(lambda new, old: jnp.where(moves, new, old), chosen.xs, xs),
        us=jnp.where(moves, chosen.us, us),
        costates=costates + jnp.where(factor > 0, dual, 0),
        multipliers=keep(multipliers, state.multipliers),
        mu=keep(outer.mu, state.mu),
        inner_tolerance=keep(outer.inner_tolerance, state.inner_tolerance),
        violation=keep(outer.violation, state.violation),
        stalls=keep(outer.stalls, state.stalls),
        shift=jnp.asarray(jnp.where(moves, shift, state.shift), dtype),
        newton=jnp.where(moves, newton, state.newton),
        active=jnp.where(moves, step.active, state.active),
        gains=keep(
            jnp.where(step.solution.definite, step.solution.gains, state.gains), state.gains
        ),
        cost=keep(cost, state.cost),
        residuals=keep(found, state.residuals),
        history=history,
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
    multipliers = jax.tree.map(lambda new, old: jnp.where(still, new, old), estimates, old)
    return state._replace(
        multipliers=multipliers,
        mu=jnp.where(still & ~better, lower, mu),
        inner_tolerance=jnp.where(
            still, jnp.maximum(tolerance, 0.1 * state.inner_tolerance), state.inner_tolerance
        ),
        violation=jnp.where(still, violation, state.violation),
        stalls=stalls,
        status=jnp.where(stalls >= 3, int(Status.INFEASIBLE), RUNNING),
    )


# ---------------------------------------------------------------------- the step with its bounds


class Step(NamedTuple):
    """A solution of the linear-quadratic problem with bounds.

    `active` (N, m): -1, 0 or 1 for a control at its lower bound, between the bounds, or at its
    upper bound. `shift`: the multiple of the identity. `newton`: whether the Hessian is exact.
    `found`: whether the solution was found.
    """

    solution: LqrSolution
    active: Array
    shift: Array
    newton: Array
    found: Array
    trials: Array


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


def _bounded_step(stages, first, us, bounds, state: Iterate, riccati) -> Step:
    """The minimum of the quadratic model over all steps that keep the controls in their bounds.

    Each inner iteration holds the active controls at their bounds. A free control beyond a bound
    becomes active, and an active control whose multiplier has the wrong sign becomes free. If the
    exact Hessian gives no minimum, the Gauss-Newton matrix, `first`, replaces it. If this gives
    no minimum either, the multiple of the identity is raised.
    """
    lower, upper = bounds[0] - us, bounds[1] - us
    n, dtype = stages.A.shape[-1], us.dtype
    eps = float(jnp.finfo(dtype).eps)
    slack = 10 * eps * (1 + jnp.abs(us))
    zero_x = jnp.zeros(n, dtype)

    def unfinished(step):
        return ~step.found & (step.shift <= LARGEST_SHIFT)

    def inner(step):
        shift = jnp.where(step.newton, 0, step.shift)
        shifted_stages = stages._replace(
            Q=jnp.where(step.newton, stages.Q, first.Q) + shift * jnp.eye(n, dtype=dtype),
            R=jnp.where(step.newton, stages.R, first.R) + shift * jnp.eye(us.shape[1], dtype=dtype),
            S=jnp.where(step.newton, stages.S, first.S),
        )
        values = jnp.where(step.active > 0, upper, lower)
        solution = lqr(clamped(shifted_stages, step.active != 0, values), zero_x, riccati)
        dxs, dus, after = solution.xs[:-1], solution.us, solution.costates[1:]
        terms = [
            shifted_stages.r,
            einsum("tij,tj->ti", shifted_stages.S, dxs),
            einsum("tij,tj->ti", shifted_stages.R, dus),
            einsum("tij,ti->tj", shifted_stages.B, after),
        ]
        slope = sum(terms[1:], terms[0])
        rounding = 100 * eps * sum(map(jnp.abs, terms[1:]), jnp.abs(terms[0]))
        kept = step.active * slope <= rounding  # the multiplier is -slope
        active = jnp.where((step.active != 0) & kept, step.active, 0)
        free = step.active == 0
        active = jnp.where(free & (dus > upper + slack), 1, active)
        active = jnp.where(free & (dus < lower - slack), -1, active)
        definite = solution.definite
        found = definite & jnp.all(active == step.active)
        trials = step.trials + 1
        fails = ~definite | (~found & (trials % INNER == 0))
        raises = fails & ~step.newton
        raised = jnp.maximum(RAISE * step.shift, FIRST_SHIFT)
        return Step(
            solution,
            jnp.where(definite, active, step.active),
            jnp.where(raises, raised, step.shift),
            step.newton & ~fails,
            found,
            trials,
        )

    N, m = us.shape
    along_x, along_u = jnp.zeros((N + 1, n), dtype), jnp.zeros_like(us)
    gains = jnp.zeros((N, m, n), dtype)
    unknown = LqrSolution(along_x, along_u, gains, along_u, along_x, jnp.asarray(False))
    start = Step(
        unknown, state.active, state.shift, state.newton, jnp.asarray(False), jnp.zeros((), int)
    )
    return lax.while_loop(unfinished, inner, start)


# ------------------------------------------------------------------------------------ line search


class Chosen(NamedTuple):
    """The factor of the step, 0 if none decreases the merit, and the trajectory after the step."""

    factor: Array
    xs: PyTree
    us: Array
    gain: Array
    measured: Array
    feasible: Array


class Trial(NamedTuple):
    """A trajectory with a factor of the step, and whether it decreases the merit by enough."""

    factor: Array
    xs: PyTree
    us: Array
    enough: Array
    gain: Array


def _line_search(
    problem, p, xs, us, constraints, stages: LqrStages, step: Step, values, bounds, rollout
) -> Chosen:
    """The largest factor whose trajectory decreases the merit by enough.

    `gain`: the decrease of the merit by the whole step, divided by the decrease that the quadratic
    model predicts. `measured`: whether this decrease is above the rounding errors of the merit.
    `feasible`: whether the defects cause less than half of the predicted decrease.
    """
    solution, dtype = step.solution, us.dtype
    multipliers, mu = constraints
    dxs, dus, after = solution.xs, solution.us, solution.costates[1:]
    defects = values[0].defect
    size = jnp.maximum(largest(defects), largest(dxs, dus))
    rho = largest(after) / jnp.where(size > 0, size, 1)
    moved = _linear_motion if rollout == "linear" else _feedback_motion

    def merit(inner, last):
        y, z, y_last, z_last, _ = shifted((inner, last), multipliers, mu)
        penalty = sum(jnp.sum(x * x) for x in (y, z, y_last, z_last)) * mu / 2
        by_defects = jnp.sum(after * inner.defect) + rho * jnp.sum(inner.defect**2) / 2
        return total_cost(inner, last) + penalty + by_defects

    before = merit(*values)
    slope = jnp.sum(stages.q * dxs) + jnp.sum(stages.r * dus)
    slope = slope - jnp.sum(after * defects) - rho * jnp.sum(defects * defects)
    eps = float(jnp.finfo(dtype).eps)
    rounding = 100 * eps * (jnp.abs(before) + jnp.sum(jnp.abs(after * defects)))
    measured = -slope > MEASURED * rounding

    def trial(old: Trial) -> Trial:
        factor = old.factor / 2
        states, controls = moved(problem, p, xs, us, solution, defects, factor, bounds)
        found = merit(*all_values(problem, p, states, controls))
        enough = found <= before + ARMIJO * factor * slope + rounding
        enough &= jnp.isfinite(found) & (slope <= rounding)
        gain = 2 * (before - found) / jnp.where(measured, -slope, 1)
        gain = jnp.where(factor == 1, gain, old.gain)
        return Trial(factor, states, controls, enough, gain)

    start = Trial(jnp.asarray(2, dtype), xs, us, jnp.asarray(False), jnp.zeros((), dtype))
    end = lax.while_loop(lambda old: ~old.enough & (old.factor > LEAST_FACTOR), trial, start)
    gain = jnp.where(jnp.isfinite(end.gain), end.gain, -jnp.inf)
    states, controls = jax.tree.map(
        lambda new, old: jnp.where(end.enough, new, old), (end.xs, end.us), (xs, us)
    )
    factor = jnp.where(end.enough, end.factor, 0)
    by_defects = jnp.sum(jnp.abs(after * defects)) + rho * jnp.sum(defects * defects)
    return Chosen(factor, states, controls, gain, measured, 2 * by_defects < -slope)


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
