"""Solutions of inverse kinematics from one start, and from many."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from .._math.cast import select
from .._math.components import square_root
from .._math.tiles import in_turn
from ..actuators.joint_values import joints_of_dofs
from ..configuration import difference, integrate, neutral, random_configuration
from ..constraints import Constraint
from ..constraints.closing import TOLERANCES
from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.joint_space import position_limits
from ..model.names import joint_of_coordinate
from .implicit import with_derivatives
from .solver import Box, Descent, Minimum, descend, prioritise, start
from .tasks import (
    FrameTask,
    Rows,
    Task,
    TaskErrors,
    checked_tasks,
    clip_inequalities,
    has_to_hold,
    number_of_leading_entries,
    rows,
    scale_preferences,
    task_errors,
    weights_are_valid,
)

# The steps of each start of a search, and the steps before a restart. For 2,000 random targets of
# three arms, nine of ten successful starts needed at most 24 steps.
STEPS_OF_A_START = 32
# Each random start is the best of this number of random configurations. One more configuration
# costs about as much as half a step. With 1, 8 or 32 configurations per start and 16 starts per
# target, a UR10 did not reach 5, 1 or 1 of 2,000 targets, and a Panda did not reach 2, 1 or 0.
DRAWS = 8
# Limits farther from 0 than this, in rad or m, do not give a start in the middle of the limits.
FAR = 100.0
# With targets for several frames, every fourth start is random in all dofs, and most starts are
# random in a few dofs only. For pelvis, hands and feet of a G1, 16 starts reached 95 % of 1,024
# targets, and 62 % if all starts were random in all dofs.
FULLY_RANDOM_EVERY = 4
# A coordinate of a start may be beyond its limit by a rounding error: this multiple of eps times
# max(1, |limit|).
ROUNDING = 8


class IkSolution(NamedTuple):
    """A solution of inverse kinematics.

    - `q` (nq,): the configuration, within the limits of the joints;
    - `error` (): `sqrt(sum of w e^2 over all tasks + sum of phi^2 over all constraints)`, with the
      errors e and the weights w of the tasks, and the errors phi of the constraints. For each pair
      of a `Clearance`, phi is `max(margin - distance, 0)`;
    - `errors`: the error of each task, `TaskErrors`;
    - `converged`: whether the errors of all constraints, and of all tasks but posture tasks, are
      within the tolerance;
    - `stationary`: whether q is a minimum to rounding errors or, without a posture task, converged.
      A solution that is stationary and not converged is a local minimum: the targets are out of
      reach, or another start is needed. For a target far out of reach the method converges slowly,
      so `max_iterations` may stop it before it reaches the minimum; then `stationary` is False;
    - `iterations`: the number of steps of the attempt, or of the start of a search, that led to q.

    A solution that is not converged is finite and within the limits, except for the traced values
    that `inverse_kinematics` lists. For these values q is NaN, and `converged` and `stationary` are
    False.
    """

    q: Float[Array, " nq"]
    error: Float[Array, ""]
    errors: TaskErrors
    converged: Bool[Array, ""]
    stationary: Bool[Array, ""]
    iterations: Int[Array, ""]


def inverse_kinematics(
    model: Model,
    tasks: Sequence[Task | Constraint],
    q0: ArrayLike,
    locked: Sequence[str] = (),
    tolerance: ArrayLike | None = None,
    max_iterations: int = 100,
    restart: bool = True,
) -> IkSolution:
    """The configuration near q0 that minimises the weighted errors of tasks, as an `IkSolution`.

    - `tasks`: a sequence of `FrameTask`, `GazeTask`, `ComTask`, `PostureTask`, `Clearance` and
      constraints of `jaxrbd.constraints`. Constraints and clearances have priority: another task
      cannot violate them;
    - `q0` (nq,): the start, within the limits of the joints. A coordinate outside its limit by a
      rounding error, at most 8 eps of the dtype times max(1, |limit|), is moved to the limit;
    - `locked`: names of joints that keep their position in q0;
    - `tolerance` in m and rad, above 0: the iterations end when all errors are smaller (default
      1e-9 in float64, 2e-5 in float32). With a posture task they end at the minimum;
    - `max_iterations`: the largest number of steps from one start;
    - `restart`: whether the method starts once more, at the middle of the limits, if it does not
      reach the targets in 32 steps from q0. With a posture task, it first tries steps without the
      posture. If it reaches the targets from the middle, the result can be far from q0. Otherwise
      the steps from q0 continue. With `restart=False`, or `max_iterations` of at most 32, the
      result is always the minimum near q0, as a controller needs it.

    The limits `lower_position_limit` and `upper_position_limit` of the model hold exactly for the
    joints for which v is dq/dt, such as revolute, prismatic and translation joints. They are not
    enforced for free-flyer, spherical and planar joints. Limits of joints that follow others are
    not part of a model.

    The result has derivatives with respect to the targets, the weights and the model, in forward
    and reverse mode, by the implicit function theorem. Joints at a limit are assumed to stay there.
    If the solution is not unique, as for a redundant robot without a posture task, the derivative
    is the change of q with the least norm. The derivative with respect to q0 is zero, except for
    locked joints. The derivative is right where `stationary` is true.

    Raises ArgumentError for an unknown frame or joint, a task that does not fit the model, a q0
    outside the limits, or limits that contradict each other. If JAX traces these values, a q0
    outside the limits is moved to the nearest limit, except for locked joints; contradicting
    limits, weights that are negative or not finite, and a q0 that is not finite give NaN. For a
    target that is not finite, the result is not converged.
    """
    tasks = checked_tasks(model, tasks)
    dofs = locked_dofs(model, locked)
    arguments.require_counts(max_iterations=max_iterations)
    arguments.require_flag(restart, "restart")
    check_limits(model)
    q0 = arguments.configuration(model, q0, "q0")
    _check_start(model, q0)
    return _solve(model, tasks, q0, _tolerance(model, tolerance), dofs, max_iterations, restart)


def search_inverse_kinematics(
    model: Model,
    tasks: Sequence[Task | Constraint],
    key: PRNGKeyArray,
    seeds: int = 16,
    q0: ArrayLike | None = None,
    locked: Sequence[str] = (),
    tolerance: ArrayLike | None = None,
    max_iterations: int = 100,
    parallel: int = 1,
) -> IkSolution:
    """The best solution of inverse kinematics from random starts, as an `IkSolution`.

    - `key`: a `jax.random` key; `seeds`: the largest number of starts. For each start but the
      first, 8 random configurations are drawn within the limits, and the one with the least error
      is used. With targets for several frames, most starts are random only in the joints that move
      the frame with the largest error but do not move all frames, for example in one leg. All other
      joints start as in the best solution up to now. Every fourth start is random in all joints;
    - `q0` (nq,): the first start, and the positions of locked joints. The default is neutral, with
      each coordinate in the middle of its limits, if both are within +-100 rad or m;
    - `parallel`: the number of starts that run at the same time, in one batch. The search ends
      after the first batch with a converged solution. Other arguments as for `inverse_kinematics`.

    Each start has up to 32 steps. Then the best solution continues, for `max_iterations` steps in
    all. With a posture task all starts run, and every second start has no posture in its
    first steps. The result is the solution nearest to the posture among the solutions that reach
    the other targets. If no solution reaches them, the result has the least weighted error. It has
    the same derivatives as a solution of `inverse_kinematics`, and wrong arguments raise the same
    exceptions.
    """
    tasks = checked_tasks(model, tasks)
    dofs = locked_dofs(model, locked)
    arguments.require_counts(max_iterations=max_iterations, seeds=seeds, parallel=parallel)
    check_limits(model)
    if q0 is None:
        q0 = _middle(model)
    q0 = arguments.configuration(model, q0, "q0")
    key = arguments.typed_keys(key, "key", 0)
    _check_start(model, q0)
    return _search(
        model, tasks, key, q0, _tolerance(model, tolerance), dofs, seeds, parallel, max_iterations
    )


@functools.partial(arguments.compiled, static_argnames=("locked", "max_iterations", "restart"))
def _solve(
    model: Model,
    tasks: tuple[Task | Constraint, ...],
    q0: Array,
    tolerance: Array,
    locked: tuple[bool, ...],
    max_iterations: int,
    restart: bool,
) -> IkSolution:
    """`inverse_kinematics` of checked arguments."""
    locks = np.array(locked, bool)
    # A posture task is a preference. With preferences, constraints and clearances only, there is no
    # target that a restart could reach.
    with_targets = number_of_leading_entries(tasks) > 0 or bool(np.all(has_to_hold(tasks)))
    restart = restart and with_targets and max_iterations > STEPS_OF_A_START
    find = functools.partial(
        _first_successful_attempt if restart else _one_attempt, locks, max_iterations
    )
    # On a CPU, the samples of a batch are computed one after the other.
    minimum = in_turn(find)(*lax.stop_gradient((model, tasks, q0, tolerance)))
    return _solution(model, tasks, q0, minimum, tolerance, locks)


def _one_attempt(
    locked: np.ndarray,
    max_iterations: int,
    model: Model,
    tasks: tuple[Task | Constraint, ...],
    q0: Array,
    tolerance: Array,
) -> Minimum:
    """The minimum of `inverse_kinematics` from q0 only, without derivatives."""
    box = Box(position_limits(model), locked)
    descent = start(model, tasks, box, q0, tolerance)
    descent = descend(model, tasks, box, descent, tolerance, max_iterations)
    return prioritise(model, tasks, box, descent, tolerance, max_iterations)


def _first_successful_attempt(
    locked: np.ndarray,
    max_iterations: int,
    model: Model,
    tasks: tuple[Task | Constraint, ...],
    q0: Array,
    tolerance: Array,
) -> Minimum:
    """The minimum of `inverse_kinematics` with `restart`, without derivatives.

    The first attempt starts at q0. If there are preferences, the second attempt starts at the end
    of the first one, without preferences. The next attempt starts at the middle of the limits,
    without preferences. The last attempt continues the first one. The loop ends after the first
    attempt that reaches the targets.
    """
    box = Box(position_limits(model), locked)
    middle = _keep_dofs(model, q0, _middle(model), locked)
    with_preference = number_of_leading_entries(tasks) > 0
    shares = jnp.asarray([1, 0, 0, 1] if with_preference else [1, 1, 1], model.dtype)
    last_attempt = len(shares) - 1

    def next_attempt(state):
        attempt, first, before = state
        scaled = scale_preferences(tasks, shares[attempt])
        q = jnp.where(
            attempt == 0, q0, jnp.where(attempt == last_attempt - 1, middle, before.last_q)
        )
        fresh = start(model, scaled, box, q, tolerance)
        continues = attempt == last_attempt
        descent = select(continues, first, fresh)
        most = jnp.where(continues, max_iterations, STEPS_OF_A_START)
        descent = descend(model, scaled, box, descent, tolerance, most - descent.iterations)
        first = select(attempt == 0, descent, first)
        minimum = prioritise(model, tasks, box, descent, tolerance, max_iterations)
        return attempt + 1, first, minimum

    def unfinished(state):
        attempt, _, minimum = state
        return (attempt <= last_attempt) & ~(minimum.accurate | minimum.reached)

    descent = _zeros(lambda: start(model, tasks, box, q0, tolerance))
    minimum = _zeros(lambda: prioritise(model, tasks, box, descent, tolerance, max_iterations))
    first_attempt = jnp.zeros((), jnp.int32)
    return lax.while_loop(unfinished, next_attempt, (first_attempt, descent, minimum))[2]


def _zeros(function: Callable[[], Any]) -> Any:
    """Zeros with the shapes and dtypes of the result of a function, which is not computed."""
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(function))


@functools.partial(
    arguments.compiled, static_argnames=("locked", "seeds", "parallel", "max_iterations")
)
def _search(
    model: Model,
    tasks: tuple[Task | Constraint, ...],
    key: PRNGKeyArray,
    q0: Array,
    tolerance: Array,
    locked: tuple[bool, ...],
    seeds: int,
    parallel: int,
    max_iterations: int,
) -> IkSolution:
    """`search_inverse_kinematics` of checked arguments."""
    locks = np.array(locked, bool)
    find = functools.partial(_best_of_starts, locks, seeds, parallel, max_iterations)
    # On a CPU, the samples of a batch are computed one after the other.
    minimum = in_turn(find)(*lax.stop_gradient((model, tasks, key, q0, tolerance)))
    return _solution(model, tasks, q0, minimum, tolerance, locks)


def _best_of_starts(
    locked: np.ndarray,
    seeds: int,
    parallel: int,
    max_iterations: int,
    model: Model,
    tasks: tuple[Task | Constraint, ...],
    key: PRNGKeyArray,
    first_q: Array,
    tolerance: Array,
) -> Minimum:
    """The minimum of `search_inverse_kinematics`, without derivatives."""
    box = Box(position_limits(model), locked)
    steps = min(STEPS_OF_A_START, max_iterations)
    width = min(parallel, seeds)
    with_preference = number_of_leading_entries(tasks) > 0
    first_state = start(model, tasks, box, first_q, tolerance)

    def start_of_seed(seed, best):
        """The start with the least error of `DRAWS` random configurations; `first_q` for seed 0."""
        keys = jax.random.split(jax.random.fold_in(key, seed), DRAWS)
        q, kept = first_q, box.locked
        if sum(isinstance(task, FrameTask) for task in tasks) > 1:
            partial = (seed > 0) & (seed % FULLY_RANDOM_EVERY != 0)
            q = jnp.where(partial, best.q, first_q)
            kept = box.locked | (partial & ~_dofs_of_worst_frame(tasks, best.rows))

        def draw(key):
            drawn = _keep_dofs(model, q, random_configuration(model, key), kept)
            return start(model, tasks, box, drawn, tolerance)

        drawn = jax.vmap(draw)(keys)
        least = jnp.argmin(jax.vmap(functools.partial(_total, tasks))(drawn))
        drawn = jax.tree.map(lambda x: x[least], drawn)
        return select(seed == 0, first_state, drawn)

    def attempt(seed, best):
        """The result of one start, and its rank: the least is the best.

        The rank is the result of `_total`, infinite beyond the last seed. With a preference, a
        start that reaches the other targets has a negative rank.
        """
        descent = start_of_seed(seed, best)
        scaled = tasks
        if with_preference:
            # Every second start has no preferences: they can move it away from the targets.
            scaled = scale_preferences(tasks, jnp.asarray([1, 0], model.dtype)[seed % 2])
            descent = descent._replace(rows=rows(model, scaled, descent.q))
        descent = descend(model, scaled, box, descent, tolerance, steps)
        minimum, rank = None, _total(tasks, descent)
        if with_preference:
            minimum = prioritise(model, tasks, box, descent, tolerance, max_iterations)
            preferred = jnp.sum(minimum.rows.weights * minimum.rows.error**2)
            rank = jnp.where(minimum.reached, -1 / (1 + preferred), rank)
        return (descent, minimum), jnp.where(seed < seeds, rank, jnp.inf)

    def batch(first_seed, best):
        """The best of `parallel` starts; `best`: the best solution of the starts before."""
        seeds_of_batch = first_seed + jnp.arange(width, dtype=jnp.int32)
        if width == 1:
            return attempt(seeds_of_batch[0], best)
        found, ranks = jax.vmap(attempt, (0, None))(seeds_of_batch, best)
        least = jnp.argmin(ranks)
        return jax.tree.map(lambda x: x[least], (found, ranks))

    def unfinished(state):
        first_seed, (descent, _), _ = state
        return (first_seed < seeds) & ~descent.accurate

    def next_batch(state):
        first_seed, found, rank = state
        new, new_rank = batch(first_seed, found[0])
        better = (first_seed == 0) | (new_rank < rank) | new[0].accurate
        found, rank = select(better, (new, new_rank), (found, rank))
        return first_seed + width, found, rank

    _, minimum = _zeros(lambda: attempt(jnp.zeros((), jnp.int32), first_state)[0])
    no_rank = jnp.asarray(jnp.inf, model.dtype)
    state = jnp.zeros((), jnp.int32), (first_state, minimum), no_rank
    _, (descent, minimum), _ = lax.while_loop(unfinished, next_batch, state)
    descent = descend(model, tasks, box, descent, tolerance, max_iterations - steps)
    last = prioritise(model, tasks, box, descent, tolerance, max_iterations)
    if minimum is None:
        return last
    return select(minimum.reached, minimum, last)


def _solution(
    model: Model,
    tasks: tuple[Task | Constraint, ...],
    q0: Array,
    minimum: Minimum,
    tolerance: Array,
    locked: np.ndarray,
) -> IkSolution:
    """The solution with its derivatives; NaN if traced limits, weights or q0 are out of range."""
    box = Box(position_limits(model), locked)
    q = with_derivatives(model, tasks, box, q0, minimum)
    valid = jnp.all(lax.stop_gradient(box.limits.lower <= box.limits.upper))
    valid &= lax.stop_gradient(weights_are_valid(tasks)) & jnp.all(jnp.isfinite(q0))
    q = jnp.where(valid, q, jnp.nan)
    last = rows(model, tasks, q)
    errors = task_errors(model, tasks, last, q)
    violation = clip_inequalities(tasks, last.position)
    square = jnp.sum(last.weights * last.error**2) + jnp.sum(violation**2)
    largest = jnp.max(jnp.stack(errors)[:, has_to_hold(tasks)], initial=0)
    # For `accurate`, each entry of an error is compared with the tolerance / sqrt(entries). So the
    # norm of the error may be larger than the tolerance by a rounding error.
    converged = (largest <= tolerance * (1 + 1e-6)) & valid
    stationary = (minimum.stationary | minimum.accurate) & jnp.all(jnp.isfinite(q))
    return IkSolution(
        q,
        square_root(square),
        errors,
        converged,
        stationary,
        minimum.iterations,
    )


def _total(tasks: Sequence[Task | Constraint], descent: Descent) -> Float[Array, ""]:
    """The sum of squared errors of a state, by which starts are ranked; infinite instead of NaN.

    The equations have the largest weight of the tasks.
    """
    last = descent.rows
    largest = jnp.max(last.weights, initial=1e-3)
    violation = clip_inequalities(tasks, last.position)
    total = jnp.sum(last.weights * last.error**2) + largest * jnp.sum(violation**2)
    return jnp.where(jnp.isnan(total), jnp.inf, total)


def _dofs_of_worst_frame(tasks: tuple[Task | Constraint, ...], found: Rows) -> Array:
    """Whether each dof is specific to the frame with the largest error, (nv,).

    A dof is specific to a frame if it moves this frame but not all target frames. The frame is the
    one with the largest error among the frames that have specific dofs. If no frame has any, all
    entries are True.
    """
    count = sum(isinstance(task, FrameTask) for task in tasks)
    error, weights = (x[: 6 * count].reshape(count, 6) for x in (found.error, found.weights))
    moves = jnp.any(found.J[: 6 * count].reshape(count, 6, -1) != 0, axis=1)
    specific = moves & ~jnp.all(moves, axis=0)[None]
    square = jnp.where(jnp.any(specific, axis=1), jnp.sum(weights * error**2, axis=1), -1)
    return specific[jnp.argmax(square)] | ~jnp.any(specific)


def _keep_dofs(model: Model, q0: Array, q: Array, locked: Array | np.ndarray) -> Array:
    """The configuration q, in which the dofs with `locked` (nv,) True are as in q0."""
    if isinstance(locked, np.ndarray) and not np.any(locked):
        return q
    change = difference.unchecked(model, q0, q)
    return integrate.unchecked(model, q0, jnp.where(locked, 0, change))


def _middle(model: Model) -> Float[Array, " nq"]:
    """The neutral configuration, with each limited coordinate in the middle of its limits.

    If the lower limit is below `-FAR` or the upper limit is above `FAR`, the coordinate is 0 or, if
    0 is outside the limits, at the nearest limit.
    """
    place, lower, upper = position_limits(model)
    limited = (lower >= -FAR) & (upper <= FAR)
    nearest = jnp.clip(jnp.zeros_like(lower), lower, upper)
    # The sum of two infinite limits is NaN.
    lower, upper = (jnp.where(limited, x, 0) for x in (lower, upper))
    middle = jnp.where(limited, (lower + upper) / 2, nearest)
    moved = np.flatnonzero(place < model.nq)
    return neutral(model).at[place[moved]].set(middle[moved])


# ----------------------------------------------------------------------------------- checks


def locked_dofs(model: Model, locked: Sequence[str]) -> tuple[bool, ...]:
    """Whether each dof is locked, (nv,)."""
    locked = arguments.names(locked, "locked")
    # `joints_of_dofs` gives the index of the joint in `locked`, or len(locked) for other joints.
    return tuple((joints_of_dofs(model, locked, "locked") < len(locked)).tolist())


def _tolerance(model: Model, tolerance: ArrayLike | None) -> Array:
    if tolerance is None:
        return jnp.asarray(TOLERANCES[model.dtype], model.dtype)
    values = arguments.known(tolerance)
    if values is not None:
        arguments.POSITIVE("tolerance", values)
    return arguments.POSITIVE.or_nan(arguments.number(model, tolerance, "tolerance"))


def check_limits(model: Model) -> None:
    """Raise ArgumentError, which names the joint, if known limits contradict each other."""
    lower, upper = (
        arguments.known(x) for x in (model.lower_position_limit, model.upper_position_limit)
    )
    if lower is None or upper is None or lower.shape != (model.nq,) or upper.shape != (model.nq,):
        return
    for i in np.flatnonzero(~(lower <= upper)).tolist():
        raise ArgumentError(
            f"the limits of joint {joint_of_coordinate(model, i)!r} of {model!r} are {lower[i]} to "
            f"{upper[i]}, expected lower <= upper"
        )


def _check_start(model: Model, q0: Array) -> None:
    """Raise ArgumentError if q0 is not finite, has a wrong quaternion, or is outside the limits.

    A coordinate may be beyond its limit by a rounding error: `solver.start` moves it to the limit.
    Nothing is checked if the values are not known, for example while JAX traces q0.
    """
    values = arguments.known(q0)
    if values is None:
        return
    arguments.require_finite("q0", values)
    arguments.nonzero_quaternions("q0", values, model)
    limits = position_limits(model)
    lower, upper = arguments.known(limits.lower), arguments.known(limits.upper)
    if lower is None or upper is None:
        return
    x = np.asarray(limits.coordinates(jnp.asarray(values)))
    rounding = ROUNDING * np.finfo(x.dtype).eps
    below, above = (rounding * np.maximum(1, np.abs(y)) for y in (lower, upper))
    for i in np.flatnonzero((x < lower - below) | (x > upper + above)).tolist():
        middle = (lower[i] + upper[i]) / 2
        hint = f", whose middle is {middle}" if np.isfinite(middle) else ""
        joint = joint_of_coordinate(model, int(limits.place[i]))
        raise ArgumentError(
            f"q0 has {x[i]} for joint {joint!r}, expected a value within "
            f"its limits {lower[i]} to {upper[i]}{hint}; the neutral configuration may be "
            "outside the limits"
        )
