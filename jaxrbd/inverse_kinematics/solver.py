"""Inverse kinematics by a damped Gauss-Newton method with joint limits.

The unknown is a displacement d (nv,) in the tangent space; `integrate` moves q. With the errors e,
the weights w and the Jacobian J of all tasks, the cost is `sum of w e^2 / 2`. Each step minimises

    g . d + d . (H + damping) d / 2,    g = J^T w e,    H = J^T w J

within the limits of the joints. A joint at a limit is fixed if the negative gradient points beyond
the limit. Joints that the step moves beyond a limit are placed at the limit, and the step is solved
again for the other joints. The damping is a multiple of the cost plus a tiny constant, so it is
tiny where the targets are reached (Sugihara 2011, IEEE Transactions on Robotics 27). The multiple
grows where a step reduces the cost by much less than `-(g . d + d . H d / 2)` predicts.

The equations phi = 0 of the constraints add the errors `phi + shift` with a large weight rho. The
shift is the multiplier of the equations over rho (method of multipliers). So the equations hold to
rounding errors, also where the targets contradict the constraints.

The distances of a `Clearance` are inequalities phi <= 0. They add the errors `max(phi + shift, 0)`
with the weight rho, and their multipliers are not negative. A step takes into account the
inequalities that it would violate to first order.

A posture task is a preference. The errors of the other tasks are the first entries of
`Rows.error`; with a preference they are called the leading errors. The minimum of the cost is near
the targets of the leading errors, but not at them. So `prioritise` continues with the leading
errors as equations. If these equations hold, the result is the minimum of the preferences among the
configurations that reach the targets. Otherwise the targets are out of reach, and the result is the
minimum of the cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from .._math.cast import select
from .._math.linear import matmul, solve_free
from ..configuration import integrate
from ..constraints import Constraint
from ..model import Model
from ..model.joint_space import PositionLimits
from .tasks import (
    Rows,
    Task,
    clip_inequalities,
    has_to_hold,
    number_of_inequalities,
    number_of_leading_entries,
    rows,
)

# The damping is FIRST_DAMPING times the cost in the first step. After a step this multiple is
# multiplied by GROWTH if the step increased the cost, by POOR_GROWTH if it reduced the cost by less
# than 1/4 of the prediction, and by DECAY if it reduced the cost by at least 3/4 of the prediction.
# The multiple is at least LEAST_DAMPING. The iterations end when it reaches LARGEST_DAMPING.
FIRST_DAMPING = 1.0
GROWTH, POOR_GROWTH, DECAY = 8.0, 3.0, 0.2
LEAST_DAMPING, LARGEST_DAMPING = 1e-6, 1e12
# q is a minimum if the Newton step of each single dof is shorter than this, in rad or m. If 8 eps
# of the dtype is larger, 8 eps is the bound.
LEAST_STEP = 1e-11
# The weight rho of the equations is EQUATION_WEIGHT times the largest weight of the tasks, or times
# LEAST_TASK_WEIGHT if this is larger.
EQUATION_WEIGHT, LEAST_TASK_WEIGHT = 1e2, 1.0
# Multipliers of the equations change only in steps shorter than this, in m and rad.
SHORT = 0.1
# How often a step is computed again with the inequalities that it would violate.
REFINEMENTS = 2
# The largest number of steps with the leading errors as equations.
PRIORITY_STEPS = 60


class Box(NamedTuple):
    """The limits of the displacement: limits of the coordinates, and dofs (nv,) that are locked."""

    limits: PositionLimits
    locked: np.ndarray

    def gaps(self, q: Float[Array, " nq"]) -> tuple[Float[Array, " nv"], Float[Array, " nv"]]:
        """The least and the largest displacement of each dof."""
        _, lower, upper = self.limits
        x = self.limits.coordinates(q)
        least, most = (jnp.where(self.locked, 0, y - x) for y in (lower, upper))
        return least, most

    def move(self, model: Model, q: Float[Array, " nq"], d: Float[Array, " nv"]):
        """The configuration after a displacement, exactly within the limits."""
        return self.clip(model, integrate.unchecked(model, q, d))

    def clip(self, model: Model, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
        """q, with the coordinates of dofs that are not locked clipped to their limits."""
        # `place` is nq for a dof that has no coordinate.
        place, lower, upper = self.limits
        dofs = np.flatnonzero((place < model.nq) & ~self.locked)
        place = place[dofs]
        limited = jnp.clip(q[place], lower[dofs], upper[dofs])
        return q.at[place].set(limited, unique_indices=True)


class Descent(NamedTuple):
    """The state of the iterations: see the head of the module.

    `rows`: the errors and Jacobians at q. `damping`: the damping divided by the cost. `stationary`:
    whether the gradient over the dofs that are not `blocked` is zero to rounding errors, and the
    constraints hold; with leading errors as equations, the last step must also be short.
    `accurate`: whether all errors are within the tolerance; False with a posture task.
    """

    q: Float[Array, " nq"]
    rows: Rows
    shift: Float[Array, " k"]
    damping: Float[Array, ""]
    iterations: Int[Array, ""]
    stationary: Bool[Array, ""]
    accurate: Bool[Array, ""]

    @property
    def unfinished(self) -> Bool[Array, ""]:
        """Whether another step could reduce the error."""
        return ~(self.stationary | self.accurate) & (self.damping < LARGEST_DAMPING)


class Minimum(NamedTuple):
    """A result of the iterations.

    - `rows`: the rows at q, as `separated` returns them; `force` (k,): the multipliers of their
      equations. The force of a leading error is `w e`, unless the steps with the leading errors as
      equations reach the targets;
    - `reached`: whether the leading errors and the equations are zero, within the tolerance; False
      without a posture task;
    - `stationary`: as in `Descent`; with `reached`, whether the preferences have their minimum;
    - `last_q`: where the steps towards the minimum of the preferences ended.
    """

    q: Float[Array, " nq"]
    rows: Rows
    force: Float[Array, " k"]
    reached: Bool[Array, ""]
    iterations: Int[Array, ""]
    stationary: Bool[Array, ""]
    accurate: Bool[Array, ""]
    last_q: Float[Array, " nq"]


def start(
    model: Model,
    tasks: Sequence[Task | Constraint],
    box: Box,
    q: Float[Array, " nq"],
    tolerance: Float[Array, ""],
) -> Descent:
    """The state before the first step, at q, with its coordinates within the limits."""
    q = box.clip(model, q)
    task_rows = rows(model, tasks, q)
    return Descent(
        q,
        task_rows,
        jnp.zeros_like(task_rows.position),
        jnp.full((), FIRST_DAMPING, model.dtype),
        jnp.zeros((), jnp.int32),
        jnp.zeros((), bool),
        _accurate(tasks, task_rows, tolerance),
    )


def descend(
    model: Model,
    tasks: Sequence[Task | Constraint],
    box: Box,
    state: Descent,
    tolerance: Float[Array, ""],
    steps: int | Array,
    separate: bool = False,
) -> Descent:
    """The state after at most `steps` more steps; `separate`: whether its rows are `separated`."""
    last = state.iterations + steps

    def unfinished(state):
        return state.unfinished & (state.iterations < last)

    def step(state):
        return _step(model, tasks, box, state, tolerance, separate)

    return lax.while_loop(unfinished, step, state)


def prioritise(
    model: Model,
    tasks: Sequence[Task | Constraint],
    box: Box,
    state: Descent,
    tolerance: Float[Array, ""],
    max_iterations: int,
) -> Minimum:
    """The minimum of the preferences among the configurations that reach the other targets.

    If the steps do not end at such a configuration, the result is the configuration of `state`.
    `state` may be a result of `descend` for other weights of the preferences.
    """
    n = number_of_leading_entries(tasks)
    all_rows = rows(model, tasks, state.q) if n else state.rows
    task_rows = separated(tasks, all_rows)
    multipliers = penalty(state.rows) * clip_inequalities(tasks, state.rows.position + state.shift)
    error, weights = state.rows.error[:n], state.rows.weights[:n]
    force = jnp.concatenate([weights * error, multipliers])
    false = jnp.zeros((), bool)
    unchanged = Minimum(
        state.q,
        task_rows,
        force,
        false,
        state.iterations,
        state.stationary,
        state.accurate,
        state.q,
    )
    if not n:
        return unchanged
    # With this shift, the multipliers of the equations are `force` before the first step. The shift
    # of an inequality is `force / rho`: 0 if its multiplier is 0.
    shift = force / penalty(task_rows) - task_rows.position
    count = number_of_inequalities(tasks)
    if count:
        shift = shift.at[-count:].add(task_rows.position[-count:])
    first = Descent(
        state.q,
        task_rows,
        shift,
        jnp.minimum(state.damping, FIRST_DAMPING),
        state.iterations,
        false,
        false,
    )
    steps = jnp.minimum(PRIORITY_STEPS, max_iterations - state.iterations)
    end = descend(model, tasks, box, first, tolerance, steps, separate=True)
    force = penalty(end.rows) * clip_inequalities(tasks, end.rows.position + end.shift)
    reached = _small(clip_inequalities(tasks, end.rows.position), tolerance, len(multipliers))
    reached_before = _small(
        clip_inequalities(tasks, task_rows.position), tolerance, len(multipliers)
    )
    unchanged = unchanged._replace(
        reached=reached_before, stationary=state.stationary & ~reached_before, last_q=end.q
    )
    exact = Minimum(end.q, end.rows, force, reached, end.iterations, end.stationary, false, end.q)
    return select(reached, exact, unchanged)


def separated(tasks: Sequence[Task | Constraint], task_rows: Rows) -> Rows:
    """The rows with the leading errors as equations; entries with the weight 0 have no equation."""
    n = number_of_leading_entries(tasks)
    if not n:
        return task_rows
    used = task_rows.weights[:n] > 0
    return Rows(
        task_rows.error[n:],
        task_rows.J[n:],
        task_rows.weights[n:],
        jnp.concatenate([jnp.where(used, task_rows.error[:n], 0), task_rows.position]),
        jnp.concatenate([jnp.where(used[:, None], task_rows.J[:n], 0), task_rows.K]),
    )


def penalty(task_rows: Rows) -> Float[Array, ""]:
    """The weight rho of the equations."""
    return EQUATION_WEIGHT * jnp.max(task_rows.weights, initial=LEAST_TASK_WEIGHT)


def stacked(task_rows: Rows, shift: Float[Array, " k"]) -> tuple[Array, Array, Array]:
    """The errors, weights and Jacobian of the tasks, and below them of the equations.

    The last errors belong to inequalities. If they are negative, they count as 0 in the cost: see
    `clip_inequalities`.
    """
    rho = jnp.broadcast_to(penalty(task_rows), task_rows.position.shape)
    return (
        jnp.concatenate([task_rows.error, task_rows.position + shift]),
        jnp.concatenate([task_rows.weights, rho]),
        jnp.concatenate([task_rows.J, task_rows.K]),
    )


def blocked(box: Box, q: Float[Array, " nq"], gradient: Float[Array, " nv"]) -> Bool[Array, " nv"]:
    """Which dofs are locked, or at a limit that a step against the gradient crosses, (nv,)."""
    least, most = box.gaps(q)
    return ((least >= 0) & (gradient >= 0)) | ((most <= 0) & (gradient <= 0)) | box.locked


def _step(
    model: Model,
    tasks: Sequence[Task | Constraint],
    box: Box,
    state: Descent,
    tolerance: Float[Array, ""],
    separate: bool,
) -> Descent:
    """The state after one step, which keeps q if the cost would increase or q is stationary."""
    eps = float(jnp.finfo(model.dtype).eps)

    # The cost, its gradient and its Gauss-Newton matrix H.
    stacked_error, weights, J = stacked(state.rows, state.shift)
    error = clip_inequalities(tasks, stacked_error)
    weighted = weights * error
    gradient = matmul(weighted, J)
    with_inequalities = number_of_inequalities(tasks)
    # An inequality with `phi + shift < 0` has no weight.
    used = jnp.where(error == stacked_error, weights, 0) if with_inequalities else weights
    H = matmul((used[:, None] * J).T, J)
    cost = jnp.sum(weighted * error) / 2
    diagonal = jnp.diagonal(H)
    scale = jnp.max(diagonal, initial=0)
    least_damping = eps**0.75 * scale + float(jnp.finfo(model.dtype).tiny)
    free = ~blocked(box, state.q, gradient)
    least, most = box.gaps(state.q)

    # Whether q is stationary. `rounding` is the size of the rounding errors of the gradient; the
    # rounding errors of q change the cost by as much.
    rounding = 16 * eps * jnp.max(matmul(jnp.abs(weighted), jnp.abs(J)), initial=0)
    least_step = max(LEAST_STEP, 8 * eps)
    zero = jnp.abs(gradient) <= least_step * (diagonal + least_damping) + rounding
    # For an inequality, `max(phi, -shift)` is 0 if phi <= 0 and the multiplier is 0, or if phi = 0
    # and the multiplier is positive.
    violation = clip_inequalities(tasks, state.rows.position, -state.shift)
    holds = jnp.max(jnp.abs(violation), initial=0) <= 10 * tolerance
    stationary = jnp.all(zero | ~free) & holds

    # The step, and the decrease of the cost that H predicts.
    damping = state.damping * cost + least_damping
    identity = jnp.eye(len(H), dtype=H.dtype)

    def bounded_step(gradient: Array, H: Array) -> Array:
        """The damped step of a quadratic cost within the limits."""
        damped = H + damping * identity
        d = jnp.clip(solve_free(damped, free, -gradient), least, most)
        inside = free & (d > least) & (d < most)
        at_limit = jnp.where(inside, 0, jnp.where(free, d, 0))
        rest = -gradient - matmul(H, at_limit)
        d = jnp.where(inside, solve_free(damped, inside, rest), at_limit)
        d = jnp.clip(d, least, most)
        return jnp.where(box.locked, 0, d)

    d = bounded_step(gradient, H)
    if separate:
        # The equations dominate the diagonal of H. So the step of each single dof can be short
        # although the step of all dofs is long.
        stationary &= jnp.max(jnp.abs(d), initial=0) <= eps**0.5
    predicted = -jnp.sum(d * (gradient + matmul(H, d) / 2))
    if with_inequalities:
        # The step again, with the inequalities that the step before would violate.
        for _ in range(REFINEMENTS):
            linear = stacked_error + matmul(J, d)
            used = jnp.where(clip_inequalities(tasks, linear) == linear, weights, 0)
            weighted_J = used[:, None] * J
            d = bounded_step(matmul(stacked_error, weighted_J), matmul(weighted_J.T, J))
        linear = clip_inequalities(tasks, stacked_error + matmul(J, d))
        predicted = cost - jnp.sum(weights * linear**2) / 2

    # The new state, if the cost does not increase.
    q = box.move(model, state.q, d)
    task_rows = rows(model, tasks, q)
    task_rows = separated(tasks, task_rows) if separate else task_rows
    new_error = clip_inequalities(tasks, stacked(task_rows, state.shift)[0])
    new_cost = jnp.sum(weights * new_error**2) / 2
    accepted = new_cost <= cost * (1 + 10 * eps) + rounding
    good, poor = cost - new_cost >= 0.75 * predicted, cost - new_cost < 0.25 * predicted
    factor = jnp.where(good, DECAY, jnp.where(poor, POOR_GROWTH, 1))
    # A predicted decrease below this bound is lost in the rounding errors.
    factor = jnp.where(predicted > 10 * (10 * eps * cost + rounding), factor, 1)
    factor = jnp.where(accepted, factor, GROWTH)
    short = accepted & (jnp.max(jnp.abs(d), initial=0) <= SHORT)
    change = clip_inequalities(tasks, task_rows.position, -state.shift)
    shift = jnp.where(short, state.shift + change, state.shift)
    q, task_rows = select(accepted, (q, task_rows), (state.q, state.rows))
    return Descent(
        jnp.where(stationary, state.q, q),
        select(stationary, state.rows, task_rows),
        jnp.where(stationary, state.shift, shift),
        jnp.maximum(factor * state.damping, LEAST_DAMPING),
        state.iterations + 1,
        stationary,
        _accurate(tasks, task_rows, tolerance),
    )


def _accurate(
    tasks: Sequence[Task | Constraint], task_rows: Rows, tolerance: Float[Array, ""]
) -> Bool[Array, ""]:
    """Whether each entry of each error is so small that all norms are within the tolerance.

    If any task is a preference, the result is False, and the iterations end at the minimum.
    """
    if not np.all(has_to_hold(tasks)):
        return jnp.zeros((), bool)
    error = jnp.where(task_rows.weights > 0, task_rows.error, 0)
    violation = clip_inequalities(tasks, task_rows.position)
    return _small(jnp.concatenate([error, violation]), tolerance, len(violation))


def _small(error: Array, tolerance: Float[Array, ""], entries: int = 0) -> Bool[Array, ""]:
    """Whether the norm of each error is within the tolerance.

    An error has at most max(3, `entries`) entries. So it is enough that each entry is small.
    """
    share = np.sqrt(max(3, entries)).astype(tolerance.dtype)
    return jnp.max(jnp.abs(error), initial=0) <= tolerance / share
