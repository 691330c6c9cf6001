"""The step of the solver: a linear-quadratic problem with the bounds of the controls.

A primal-dual active set method solves the problem: each inner iteration is one `lqr`, which holds
the active controls at their bounds.

A multiple of the identity is added to the Gauss-Newton matrix of the stages. The multiple is raised
if the linear-quadratic problem has no unique minimum, or if the whole step decreases the merit
(`line_search.py`) by much less than the quadratic model predicts. The multiple is lowered if the
prediction is good.

The exact Hessian has no such multiple. It is used in the first step, and after a step with the
factor 1, for example near the solution. The Gauss-Newton matrix replaces it if its linear-quadratic
problem has no unique minimum, or if its step has a factor below 1. The exact Hessian is used again
after a step with the factor 1, or with a factor of at most `SHORT`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from .._math.linear import einsum, free_part
from .line_search import Trial
from .lqr import LqrSolution, LqrStages, lqr

# The multiple of the identity is raised below the first gain, and lowered above the second. `Trial`
# defines the gain.
POOR_GAIN, GOOD_GAIN = 0.25, 0.75
# A step whose factor is at most this one is short: the multiple is raised, whatever the gain, and
# the exact Hessian is tried again.
SHORT = 0.125
# The multiple is raised and lowered by these factors. It is at least `FIRST_SHIFT` after a raise,
# and zero below `LEAST_SHIFT`. No step is found beyond `LARGEST_SHIFT`.
RAISE, LOWER = 10, 5
FIRST_SHIFT, LEAST_SHIFT, LARGEST_SHIFT = 1e-4, 1e-9, 1e9
# If this number of inner iterations finds no active set, the multiple is raised, or the
# Gauss-Newton matrix replaces the exact Hessian.
INNER = 10


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


def next_start(step: Step, trial: Trial, guess: Array, grows: Array, exact: bool) -> Step:
    """The start of `bounded_step` after the accepted trial of a step.

    The multiple of the identity follows the gain of a Gauss-Newton step. Where rounding errors
    hide the gain, it follows the gradient instead.

    - `guess` (): whether the trial is the guess, which has no step;
    - `grows` (): whether the residual of the stationarity grew in the step before;
    - `exact`: whether the solver uses the exact Hessian.
    """
    good = ~trial.measured | (trial.gain > GOOD_GAIN)
    poor = jnp.where(trial.measured, (trial.gain < POOR_GAIN) & trial.small_defects, grows)
    poor |= trial.factor <= SHORT
    poor &= ~step.newton
    newton = (trial.factor == 1) | (~step.newton & (trial.factor <= SHORT))
    shift = jnp.where(good, step.shift / LOWER, step.shift)
    shift = jnp.where(shift < LEAST_SHIFT, 0, shift)
    shift = jnp.where(poor, _raised(step.shift), shift)
    return step._replace(
        shift=jnp.where(guess, step.shift, shift),
        newton=jnp.where(guess, step.newton, newton & exact),
    )


def _raised(shift: Array) -> Array:
    return jnp.maximum(RAISE * shift, FIRST_SHIFT)


def bounded_step(
    stages: LqrStages,
    gauss_newton: LqrStages,
    start: Step,
    us: Array,
    bounds: tuple[Array, Array] | None,
    riccati: str,
) -> Step:
    """The minimum of the quadratic model over all steps that keep the controls in their bounds.

    - `stages`, `gauss_newton`: the model with the Hessian, and with the Gauss-Newton matrix;
    - `start`: the step whose active set, shift and choice of the Hessian are tried first;
    - `us` (N, m): the controls; `bounds`: their lower and upper bounds (m,), or None;
    - `riccati`: the method of `lqr`.

    Each inner iteration holds the active controls at their bounds. A free control beyond a bound
    becomes active, and an active control whose multiplier has the wrong sign becomes free. If the
    exact Hessian gives no minimum, the Gauss-Newton matrix replaces it. If this gives no minimum
    either, the multiple of the identity is raised.
    """
    (_, n, m), dtype = stages.B.shape, us.dtype
    zero_x = jnp.zeros(n, dtype)
    unit_x, unit_u = (jnp.eye(size, dtype=dtype)[None] for size in (n, m))
    slack = 10 * float(jnp.finfo(dtype).eps) * (1 + jnp.abs(us))
    reach = None if bounds is None else (bounds[0][None] - us, bounds[1][None] - us)

    def unfinished(step):
        return ~step.found & (step.shift <= LARGEST_SHIFT)

    def inner(step):
        shift = jnp.where(step.newton, 0, step.shift)
        shifted_stages = stages._replace(
            Q=jnp.where(step.newton, stages.Q, gauss_newton.Q) + shift * unit_x,
            R=jnp.where(step.newton, stages.R, gauss_newton.R) + shift * unit_u,
            S=jnp.where(step.newton, stages.S, gauss_newton.S),
        )
        if reach is None:
            solution, active = lqr(shifted_stages, zero_x, riccati), step.active
        else:
            lower, upper = reach
            held, values = step.active != 0, jnp.where(step.active > 0, upper, lower)
            solution = lqr(clamped(shifted_stages, held, values), zero_x, riccati)
            active = _next_active(shifted_stages, solution, step.active, lower, upper, slack)
        definite = solution.definite
        found = definite & jnp.all(active == step.active)
        solves = step.solves + 1
        fails = ~definite | (~found & (solves % INNER == 0))
        raises = fails & ~step.newton
        return Step(
            solution,
            jnp.where(definite, active, step.active),
            jnp.where(raises, _raised(step.shift), step.shift),
            step.newton & ~fails,
            found,
            solves,
        )

    begun = start._replace(found=jnp.asarray(False), solves=jnp.zeros((), int))
    return lax.while_loop(unfinished, inner, begun)


def clamped(stages: LqrStages, held: Array, values: Array) -> LqrStages:
    """The stages in which controls with `held` (N, m) True have the constant `values` (N, m)."""
    A, B, c, Q, R, S, q, r = stages
    values = jnp.where(held, values, 0)
    free = ~held
    return LqrStages(
        A,
        jnp.where(free[:, None, :], B, 0),
        c + einsum("tij,tj->ti", B, values),
        Q,
        jax.vmap(free_part)(R, free),
        jnp.where(free[:, :, None], S, 0),
        q.at[:-1].add(einsum("tij,ti->tj", S, values)),
        jnp.where(held, -values, r + einsum("tij,tj->ti", R, values)),
    )


def _next_active(
    stages: LqrStages,
    solution: LqrSolution,
    active: Array,
    lower: Array,
    upper: Array,
    slack: Array,
) -> Array:
    """The active set (N, m) after a solution with the active set `active`."""
    dxs, dus, next_costates = solution.xs[:-1], solution.us, solution.costates[1:]
    terms = [
        stages.r,
        einsum("tij,tj->ti", stages.S, dxs),
        einsum("tij,tj->ti", stages.R, dus),
        einsum("tij,ti->tj", stages.B, next_costates),
    ]
    slope = sum(terms[1:], terms[0])
    eps = float(jnp.finfo(dus.dtype).eps)
    rounding = 100 * eps * sum(map(jnp.abs, terms[1:]), jnp.abs(terms[0]))
    kept = active * slope <= rounding  # the multiplier is -slope
    active = jnp.where((active != 0) & kept, active, 0)
    free = active == 0
    active = jnp.where(free & (dus > upper + slack), 1, active)
    return jnp.where(free & (dus < lower - slack), -1, active)
