"""The solver of optimal control problems: multiple shooting with a Newton step per iteration.

One iteration (`Solver.iterate`):

1. moves the trajectory along the step of the previous iteration (`line_search.py`);
2. linearises all stages, and computes the residuals of the trajectory (`stages.py`);
3. updates the multipliers of the constraints and their penalty 1 / mu (`penalty.py`);
4. solves the linear-quadratic problem of the next step (`bounded_step.py`);
5. decides whether the solve ends.

The first iteration has no step, and evaluates the guess. With this order, the program linearises
the stages at one place only: in the line search or, for the exact Hessian, after it.

The automatic rollout is linear first. If it does not succeed, the rollout with feedback follows
(`Solver.with_other_rollout`). The linear rollout can fail with control bounds. A full step closes
the linearised defects, also with a multiple of the identity in the Hessian. So this multiple cannot
make the step short, and the active set of the bounds may not settle.

Sources: Nocedal and Wright (2006), Numerical optimization, chapters 17 and 18; Jallet et al.
(2025), ProxDDP: Proximal constrained trajectory optimization.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import PyTree

from .._math.cast import select
from .bounded_step import LARGEST_SHIFT, Step, bounded_step, next_start
from .line_search import Merit, Trial, feedback_motion, line_search, linear_motion, merit_of_step
from .lqr import LqrSolution
from .penalty import Penalty, first_penalty, updated_penalty
from .problem import Problem
from .stages import (
    Linearisation,
    Multipliers,
    Residuals,
    all_values,
    estimated,
    first_costate,
    linearise,
    lqr_stages,
    residuals,
    total_cost,
    without_curvature,
)


class Status(enum.IntEnum):
    """Why a solve ended.

    - `CONVERGED`: all residuals are at most the tolerance;
    - `ITERATION_LIMIT`: the largest number of iterations was reached;
    - `INFEASIBLE`: no small change of the trajectory reduces the violation of the constraints;
    - `FAILED`: no step decreases the merit, or the functions give values that are not finite.
    """

    CONVERGED = 0
    ITERATION_LIMIT = 1
    INFEASIBLE = 2
    FAILED = 3


RUNNING = -1


class History(NamedTuple):
    """The progress of a solve: arrays (iterations,); `iterations` is its largest number of steps.

    Entry i belongs to step i. If a solve has fewer steps, the next entry belongs to its result, and
    the rest is infinite; it is not NaN, so that `jax_debug_nans` accepts a solution. A result of
    `shift` or `first_solution` has no entries.

    `cost`, `residuals`: before the step, or of the result. `factor`: the factor of the step, 0 for
    no step. `shift`: the multiple of the identity that a step, or the gains of the result, add to
    the Gauss-Newton matrix; with the exact Hessian it is not added. `mu`: the penalty is 1 / mu.
    Where the automatic rollout starts again from the guess, one entry has no step: its `shift`
    belongs to the step that was not found. This entry counts as a step.
    """

    cost: Array
    residuals: Residuals
    factor: Array
    shift: Array
    mu: Array


# The columns of `Iterate.history`: the cost, the residuals, the factor, the shift and mu.
FACTOR = 1 + len(Residuals._fields)
COLUMNS = FACTOR + 3


def recorded(rows: Array) -> History:
    """The `History` from the rows of `Iterate.history`."""
    cost, *found, factor, shift, mu = rows[:-1].T
    return History(cost, Residuals(*found), factor, shift, mu)


class Trajectory(NamedTuple):
    """States, controls and costates, the feedback gains (N, m, n), the cost and the residuals."""

    xs: PyTree
    us: Array
    costates: Array
    gains: Array
    cost: Array
    residuals: Residuals


class Search(NamedTuple):
    """The step that the next iteration scales, and the merit of the trajectory before this step.

    `grows`: whether the residual of the stationarity grew in the last step.
    """

    step: Step
    merit: Merit
    grows: Array


class Iterate(NamedTuple):
    """The state of the loop.

    - `steps` (): the number of steps, -1 before the guess has been evaluated;
    - `status` (): a `Status`, or `RUNNING`;
    - `begun` (): whether the trajectory has been evaluated, so that `search` has a step;
    - `feedback` (): whether the present rollout is the rollout with feedback;
    - `history` (iterations + 1, COLUMNS): row i has the cost and the residuals before step i, and
      the factor of step i, which the next iteration writes. The first iteration has no step; it
      writes its factor into the last row, which `recorded` drops.
    """

    steps: Array
    status: Array
    begun: Array
    feedback: Array
    trajectory: Trajectory
    penalty: Penalty
    search: Search
    history: Array


class Settings(NamedTuple):
    """The static options of a solve.

    - `exact`: whether the quadratic model has the exact Hessian;
    - `riccati`: the method of the linear-quadratic problem, as in `solve`;
    - `iterations`: the largest number of steps;
    - `linear_iterations`: the automatic rollout has feedback after this number of steps;
    - `fixed`: whether all iterations are computed, by a scan, also after the solve has ended;
    - `rollout`: "linear", "feedback" or "automatic".
    """

    exact: bool
    riccati: str
    iterations: int
    linear_iterations: int
    fixed: bool
    rollout: str


class Solver(NamedTuple):
    """A problem, and the quantities that are the same in all iterations.

    - `p`: the parameters of its functions;
    - `bounds`: the lower and upper bounds (m,) of the controls; infinite where there are none;
    - `blank`: a linearisation of zeros, with which the loop of the line search starts; None for the
      exact Hessian.
    """

    problem: Problem
    p: PyTree
    bounds: tuple[Array, Array]
    tolerance: Array
    settings: Settings
    blank: Linearisation | None

    def start(
        self,
        xs: PyTree,
        us: Array,
        costates: Array,
        gains: Array,
        multipliers: Multipliers,
        mu: Array,
    ) -> Iterate:
        """The state of the loop before the guess has been evaluated."""
        settings, dtype = self.settings, us.dtype
        zero, false = jnp.zeros((), dtype), jnp.asarray(False)
        dxs, dus = jnp.zeros_like(costates), jnp.zeros_like(us)
        no_step = Step(
            solution=LqrSolution(
                xs=dxs,
                us=dus,
                gains=jnp.zeros_like(gains),
                offsets=dus,
                costates=dxs,
                definite=false,
            ),
            active=jnp.sign(multipliers.bounds),
            shift=zero,
            newton=jnp.asarray(settings.exact),
            found=false,
            solves=jnp.zeros((), int),
        )
        no_merit = Merit(
            value=zero, slope=zero, rounding=zero, rho=zero, by_defects=zero, defects=dxs[1:]
        )
        return Iterate(
            steps=jnp.full((), -1, int),
            status=jnp.full((), RUNNING, int),
            begun=false,
            feedback=jnp.asarray(settings.rollout == "feedback"),
            trajectory=Trajectory(xs, us, costates, gains, zero, Residuals(*[zero] * 5)),
            penalty=first_penalty(multipliers, mu, self.tolerance),
            search=Search(step=no_step, merit=no_merit, grows=false),
            history=jnp.full((settings.iterations + 1, COLUMNS), jnp.inf, dtype),
        )

    def minimise(self, start: Iterate) -> Iterate:
        """The last iterate, whose residuals belong to its trajectory."""
        settings = self.settings

        def unfinished(state):
            return (state.status == RUNNING) & (state.steps < settings.iterations)

        def iterate_unfinished(state, _):
            running = unfinished(state)
            new = self.iterate(state)
            return select(running, new, state), None

        def with_one_rollout(state):
            def linear_or_feedback(state):
                early = state.steps < settings.linear_iterations
                return unfinished(state) & (state.feedback | early)

            end = lax.while_loop(linear_or_feedback, self.iterate, state)
            return self.with_other_rollout(start, end)

        if settings.rollout == "automatic":
            end = lax.while_loop(unfinished, with_one_rollout, start)
        elif settings.fixed:
            end, _ = lax.scan(iterate_unfinished, start, length=settings.iterations + 1)
        else:
            end = lax.while_loop(unfinished, self.iterate, start)
        limit = jnp.where(end.status == RUNNING, int(Status.ITERATION_LIMIT), end.status)
        return end._replace(status=limit)

    def with_other_rollout(self, start: Iterate, state: Iterate) -> Iterate:
        """The state from which the automatic rollout continues.

        `start`: the state before the guess has been evaluated; `state`: the last state of one
        rollout.

        - If the linear rollout found no step, the solve starts again from the guess, with feedback,
          because the iterates before such a failure are poor. But if the guess itself has no step,
          the solve ends: the step from the guess is the same for both rollouts.
        - If the linear rollout has had `linear_iterations` steps, the solve continues from `state`,
          with feedback.
        - Otherwise the result is `state`.
        """
        settings, linear = self.settings, ~state.feedback
        ended = (state.status == int(Status.FAILED)) | (state.status == int(Status.INFEASIBLE))
        failed = linear & ended & ~state.search.step.found
        failed &= (state.steps > 0) & (state.steps < settings.iterations)
        slow = linear & (state.status == RUNNING) & (state.steps >= settings.linear_iterations)
        restarted = start._replace(steps=state.steps, history=state.history)
        state = select(failed, restarted, state)
        return state._replace(feedback=state.feedback | failed | slow)

    def iterate(self, state: Iterate) -> Iterate:
        """The state after one iteration; the head of the module lists its parts."""
        problem, settings, steps = self.problem, self.settings, state.steps
        before, penalty, search = state.trajectory, state.penalty, state.search

        # 1. The trajectory with the accepted factor of the step.
        trial = self._line_search(state)
        xs, us, factor = trial.xs, trial.us, trial.factor
        change = factor * (search.step.solution.costates - before.costates)
        costates = before.costates + jnp.where(factor > 0, change, 0)

        # 2. Its values, derivatives and residuals, with the old multipliers and the old mu.
        linear = trial.linear
        if linear is None:
            linear = self._linearise(xs, us, costates, penalty)
        values = linear.inner.values, linear.last.values
        estimates = estimated(values, penalty.multipliers, penalty.mu)
        stages = lqr_stages(linear, estimates, penalty.mu, problem.space.size)
        found, at_bounds = residuals(linear, stages, costates, estimates, us, self.bounds)
        converged = found.largest <= self.tolerance
        cost = total_cost(*values)
        # No step and no residual depends on the first costate.
        costates = costates.at[0].set(first_costate(stages, costates))

        # 3. The new multipliers and the new mu.
        new = updated_penalty(penalty, values, estimates, found, self.tolerance)

        # 4. The next step, of the quadratic model with the new multipliers and the new mu. The last
        # iteration needs only the gains, of a model without a multiple of the identity.
        new_estimates = estimated(values, new.multipliers, new.mu)
        stages = lqr_stages(linear, new_estimates, new.mu, problem.space.size)
        gauss_newton = without_curvature(stages, linear)
        start = next_start(search.step, trial, ~state.begun, search.grows, settings.exact)
        too_large = start.shift > LARGEST_SHIFT
        last = converged | too_large | (steps + 1 >= settings.iterations)
        start = start._replace(
            shift=jnp.where(last, 0, start.shift),
            newton=jnp.where(last, settings.exact, start.newton),
        )
        bounds = None if problem.control_bounds is None else self.bounds
        step = bounded_step(stages, gauss_newton, start, us, bounds, settings.riccati)
        solution = step.solution
        gains = jnp.where(step.found, solution.gains, before.gains)
        step = step._replace(found=step.found & ~too_large)

        # 5. Whether the solve ends.
        finite = jnp.isfinite(cost) & jnp.isfinite(found.largest) & ~jnp.isnan(self.tolerance)
        violated = jnp.maximum(found.equalities, found.inequalities) > self.tolerance
        infeasible = new.infeasible | (~step.found & violated & penalty.is_largest)
        # The dtype of the start, so that one program serves the solutions of all solves.
        status = jnp.where(step.found, RUNNING, int(Status.FAILED)).astype(state.status.dtype)
        status = jnp.where(infeasible, int(Status.INFEASIBLE), status)
        status = jnp.where(converged, int(Status.CONVERGED), status)
        status = jnp.where(finite, status, int(Status.FAILED))

        # A converged solve returns the estimates, because its residuals belong to them.
        multipliers = select(converged, estimates, new.multipliers)
        row = jnp.stack([cost, *found, jnp.zeros_like(cost), step.shift, new.mu])
        return Iterate(
            steps=steps + 1,
            status=status,
            begun=jnp.asarray(True),
            feedback=state.feedback,
            trajectory=Trajectory(
                xs,
                us,
                costates,
                gains,
                cost,
                found,
            ),
            penalty=new._replace(multipliers=multipliers._replace(bounds=at_bounds)),
            search=Search(
                step,
                merit_of_step(values, stages, solution, new),
                found.stationarity > before.residuals.stationarity,
            ),
            history=state.history.at[steps, FACTOR].set(factor).at[steps + 1].set(row),
        )

    def _line_search(self, state: Iterate) -> Trial:
        """The accepted trial of the step of the state.

        With the Gauss-Newton matrix, each trial is linearised, because most steps need one trial
        only. So the program contains the functions of a stage only once. With the exact Hessian,
        only the values of a trial are computed.
        """
        problem, p, exact = self.problem, self.p, self.settings.exact
        xs, us = state.trajectory.xs, state.trajectory.us
        solution, merit = state.search.step.solution, state.search.merit

        def with_feedback(factor):
            defects = merit.defects
            return feedback_motion(problem, p, xs, us, solution, defects, factor, self.bounds)

        def move(factor):
            if self.settings.rollout == "feedback":
                return with_feedback(factor)
            linear = linear_motion(problem, xs, us, solution, factor, self.bounds)
            if self.settings.rollout == "linear":
                return linear
            return _replaced(state.feedback, linear, lambda: with_feedback(factor))

        def evaluate(xs, us):
            if exact:
                return all_values(problem, p, xs, us), None
            linear = self._linearise(xs, us, state.trajectory.costates, state.penalty)
            return (linear.inner.values, linear.last.values), linear

        # The guess, and a solve that has ended, have no step.
        begun = (state.status == RUNNING) & state.begun
        constants = solution, merit, state.penalty
        return line_search(xs, us, begun, *constants, move, evaluate, self.blank)

    def _linearise(self, xs: PyTree, us: Array, costates: Array, penalty: Penalty) -> Linearisation:
        constants = costates, penalty.multipliers, penalty.mu
        return linearise(self.problem, self.p, xs, us, *constants, self.settings.exact)


def _replaced(condition: Array, value: PyTree, function: Callable[[], PyTree]) -> PyTree:
    """`function()` where the condition holds, else the value.

    A loop of at most one iteration: a batch calls the function only if the condition holds in one
    of its problems. With `lax.cond`, a batch would always call it.
    """
    start = condition, value
    end = lax.while_loop(lambda x: x[0], lambda _: (jnp.asarray(False), function()), start)
    return end[1]
