"""Solutions of optimal control problems: `solve`, and functions of a solution."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float, Int, PyTree

from .._math.linear import matmul
from ..errors import ArgumentError
from ..integrators import rollout
from ..model import arguments
from ..model.arguments import Requirement
from .implicit import Point, with_derivatives
from .lqr import METHODS, choice
from .problem import Problem
from .solver import COLUMNS, History, Iterate, Settings, Solver, Status, recorded
from .stages import (
    Multipliers,
    Residuals,
    Values,
    blank_linearisation,
    checked_cost,
    constraint_vectors,
    control_bounds,
    first_costate,
    largest,
    linearise,
    lqr_stages,
    residuals,
    value_shapes,
)

HESSIANS = ("gauss_newton", "exact")
ROLLOUTS = ("automatic", "linear", "feedback")
# The default number of steps with one rollout.
ITERATIONS = 100
Function = TypeVar("Function", bound=Callable)


def _compiled(
    *static: str, requirements: Mapping[str, Requirement] | None = None
) -> Callable[[Function], Function]:
    """`arguments.compiled` of a function that does not read the history of a solution.

    The length of a history depends on the solve. So the programs get solutions without it, and one
    program serves the solutions of all solves. `static`: the names of the static arguments.
    `requirements`: the conditions on numbers, by the name of the argument. A call raises
    ArgumentError for a problem or a solution of another type, and for a wrong x0.
    """

    def compiled(function: Any) -> Any:
        program = arguments.compiled(function, static_argnames=static, checks=requirements)
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args, **kwargs):
            given = signature.bind(*args, **kwargs).arguments
            for name, kind in (("problem", Problem), ("solution", Solution)):
                if name in given:
                    arguments.require_type(given[name], name, kind)
            if "x0" in given:  # the program checks shapes only
                given["problem"].space.checked(given["x0"], "x0")
            args = map(_without_history, args)
            return program(*args, **{name: _without_history(x) for name, x in kwargs.items()})

        for name in ("lower", "trace", "eval_shape"):
            setattr(call, name, getattr(program, name))
        return call

    return compiled


def _without_history(argument: Any) -> Any:
    return argument._replace(history=None) if isinstance(argument, Solution) else argument


class Solution(NamedTuple):
    """A trajectory with N stages, and the state of the solver that found it.

    - `xs`: the states, a pytree of arrays (N + 1, ...); `us` (N, m): the controls;
    - `gains` (N, m, n): for a state x near xs[t], the control
      `us[t] + gains[t] @ difference(xs[t], x)` minimises the quadratic model of the problem near
      the trajectory. With `hessian="exact"` this control is optimal to first order near a solution
      that converged; the Gauss-Newton matrix neglects second derivatives. Rows of controls at a
      bound are zero;
    - `costates` (N + 1, n): the derivative of the cost of the remaining stages in the state;
    - `multipliers`: the multipliers of the constraints and of the control bounds;
    - `cost` (): the cost without terms of constraints;
    - `residuals`: the errors of the optimality conditions;
    - `status` (): a `Status`; `iterations` (): the number of steps, where a new start of the
      automatic rollout counts as one; `history`: the progress.
    """

    xs: PyTree
    us: Float[Array, "N m"]
    gains: Float[Array, "N m n"]
    costates: Float[Array, "N_1 n"]
    multipliers: Multipliers
    cost: Float[Array, ""]
    residuals: Residuals
    status: Int[Array, ""]
    iterations: Int[Array, ""]
    history: History


@_compiled(
    *("hessian", "riccati", "iterations", "fixed_iterations", "rollout"),
    requirements={"tolerance": arguments.FINITE_NOT_NEGATIVE, "mu": arguments.POSITIVE},
)
def solve(
    problem: Problem,
    x0: PyTree,
    p: PyTree,
    guess: Any,
    hessian: str = "gauss_newton",
    riccati: str = "sequential",
    iterations: int | None = None,
    fixed_iterations: bool = False,
    tolerance: ArrayLike | None = None,
    mu: ArrayLike = 1e-2,
    rollout: str = "automatic",
) -> Solution:
    """A trajectory from the state x0 that is a local minimum of the cost under the constraints.

    - `x0`: the initial state, for a robot (q, v); `p`: the parameters of the functions;
    - `guess`: the controls (N, m), whose states follow from the dynamics; or the pair (xs, us) with
      any states, a pytree of arrays (N + 1, ...); or a `Solution` of a problem with the same
      numbers of constraints. x0 replaces the first state of a guess;
    - `hessian`: "gauss_newton", or "exact" with the second derivatives of all functions;
    - `riccati`: the method of `lqr`, "sequential" or "parallel";
    - `iterations`: the largest number of steps. The default is 100, and 100 more for the automatic
      rollout. With `fixed_iterations` every solve runs the same loop, which suits control with a
      fixed period;
    - `tolerance`, finite, 0 or more: the solve converges when the largest residual is at most this;
      by default the square root of the eps of the dtype;
    - `mu`, above 0: the initial penalty of constraints is 1 / mu; without constraints mu is checked
      and has no effect;
    - `rollout`: how a step changes the states. "linear" moves all states at once along the step.
      "feedback" computes the states from the controls with feedback, one stage after the other: an
      iteration takes longer, and the defects stay at zero once they are zero. "automatic" is
      linear. If the linear rollout fails, the solve starts again from the guess with feedback; by
      default, it also continues with feedback if 100 linear steps were not enough. With
      `fixed_iterations`, it is only linear.

    The field `status` of the result states whether the solver converged. The result has the
    dtype of the controls. Raises ArgumentError for arguments and results of functions with wrong
    shapes or dtypes, and for numbers out of range. A traced number that is out of range counts as
    NaN, and the status is then `FAILED`.

    JAX differentiates `xs`, `us`, `costates`, `multipliers` and `cost` by x0, by p and by the float
    leaves of the problem, in both modes, by the implicit function theorem (`implicit.py`). The
    iterations are not differentiated. The constraints and bounds that are active at the solution
    are assumed to stay active. The derivatives are wrong where the solver did not converge, and
    have no meaning where the solution is no strict local minimum. The derivatives of the other
    fields, such as the gains, and the derivatives by the guess are zero.
    """
    arguments.require_flag(fixed_iterations, "fixed_iterations")
    if choice(rollout, "rollout", ROLLOUTS) == "automatic" and fixed_iterations:
        rollout = "linear"
    settings = Settings(
        choice(hessian, "hessian", HESSIANS) == "exact",
        choice(riccati, "riccati", METHODS),
        *_counts(iterations, rollout),
        bool(fixed_iterations),
        rollout,
    )
    x0 = problem.space.checked(x0, "x0")
    theta = problem, x0, p
    # `with_derivatives` has the derivatives of the solution; the iterations need none.
    problem, x0, p, guess, tolerance, mu = lax.stop_gradient((*theta, guess, tolerance, mu))
    xs, us, warm = _guess(problem, x0, p, guess)
    bounds = control_bounds(problem, us)
    us = jnp.clip(us, *(x[None] for x in bounds))
    eps = float(jnp.finfo(us.dtype).eps)
    largest_residual = eps**0.5 if tolerance is None else tolerance
    tolerance = _number("tolerance", largest_residual, arguments.FINITE_NOT_NEGATIVE, us)
    mu = _number("mu", mu, arguments.POSITIVE, us)
    shapes = value_shapes(problem, p, xs, us)
    (N, m), n = us.shape, problem.space.size
    blank = None if settings.exact else blank_linearisation(shapes, N, n, m)
    solver = Solver(problem, p, bounds, tolerance, settings, blank)
    end = solver.minimise(_start(solver, xs, us, shapes, warm, mu))
    found = end.trajectory
    point = Point(found.xs, found.us, found.costates, end.penalty.multipliers, found.cost)
    xs, us, costates, multipliers, cost = with_derivatives(theta, point)
    return Solution(
        xs,
        us,
        found.gains,
        costates,
        multipliers,
        cost,
        found.residuals,
        end.status,
        end.steps,
        recorded(end.history),
    )


def _number(name: str, x: ArrayLike, requirement: Requirement, us: Array) -> Array:
    """A number () of the dtype of us; NaN if it does not satisfy the requirement."""
    x = arguments.real_array(x, name, us.dtype)
    if x.shape != ():
        raise ArgumentError(f"{name} has shape {x.shape}, expected a number")
    return requirement.or_nan(x)


def _counts(iterations: int | None, rollout: str) -> tuple[int, int]:
    """The largest number of steps, and the number before the automatic rollout has feedback."""
    if iterations is None:
        return (2 * ITERATIONS if rollout == "automatic" else ITERATIONS), ITERATIONS
    arguments.require_counts(iterations=iterations)
    return iterations, iterations


def _guess(problem: Problem, x0: PyTree, p: PyTree, guess: Any):
    """States that begin with x0, controls, and the solution of a warm start or None."""
    warm = guess if isinstance(guess, Solution) else None
    if warm is not None:
        arguments.require_type(warm.multipliers, "the multipliers of guess", Multipliers)
    states, us = states_and_controls(guess)
    for leaf in jax.tree.leaves(x0):
        if leaf.dtype != us.dtype:
            raise ArgumentError(
                f"x0 has dtype {leaf.dtype}, expected {us.dtype} as the controls of guess"
            )
    check_functions(problem, x0, us, p)
    if states is None:
        rows = jnp.arange(len(us)), us
        (states,) = rollout(lambda x, row: (problem.step(row[0], x, row[1], p),), (x0,), rows)
        return states, us, warm

    return _states_from(x0, states, us, "guess"), us, warm


def _states_from(x0: PyTree, states: PyTree, us: Array, argument: str) -> PyTree:
    """The checked states (N + 1, ...) of a guess or a solution, with x0 as the first state."""
    if jax.tree.structure(states) != jax.tree.structure(x0):
        raise ArgumentError(
            f"the states of {argument} are {jax.tree.structure(states)}, expected "
            f"{jax.tree.structure(x0)} as x0 (tuples, not lists)"
        )

    def with_x0(xs, x):
        if xs.shape != (len(us) + 1, *x.shape) or xs.dtype != x.dtype:
            raise ArgumentError(
                f"the states of {argument} have shape {xs.shape} and dtype {xs.dtype}, expected "
                f"{(len(us) + 1, *x.shape)} of {x.dtype} for {len(us)} stages"
            )
        return xs.at[0].set(x)

    return jax.tree.map(with_x0, states, x0)


def states_and_controls(guess: Any, argument: str = "guess") -> tuple[Any, Array]:
    """The states of a guess, or None, and its controls (N, m), whose shape is checked.

    `argument`: the name of the guess, or of a solution, in messages.
    """
    if isinstance(guess, Solution):
        states, us = guess.xs, guess.us
    elif isinstance(guess, (tuple, list)) and len(guess) == 2:
        states, us = guess
    else:
        states, us = None, guess
    us = arguments.as_array(us, argument)
    if us.ndim != 2 or not len(us) or not jnp.issubdtype(us.dtype, jnp.floating):
        raise ArgumentError(
            f"the controls of {argument} have shape {us.shape} and dtype {us.dtype}, expected "
            f"(N, m) of floats with N stages"
        )
    return states, us


def check_functions(
    problem: Problem, x0: PyTree, us: Array, p: PyTree, argument: str = "guess"
) -> None:
    """Raise ArgumentError for a function that fails, or whose result has another shape or dtype.

    `argument`: the name of the guess or the solution with the controls us, for messages.
    """
    control_bounds(problem, us, argument)
    dtype, common = us.dtype, []

    def state(x, name):
        x = problem.space.checked(x, name)
        if jax.tree.map(jnp.result_type, x) != jax.tree.map(jnp.result_type, x0):
            raise ArgumentError(f"{name} is {jax.tree.map(jnp.result_type, x)}, expected {dtype}")
        return x

    def checked(name, check, call, *operands):
        """The shapes of the result of a function."""
        function = getattr(problem, name)
        if function is None:
            return None

        def result(*operands):
            try:
                found = function(*operands)
            except Exception as error:  # a function of the user can raise any exception
                reason = str(error).strip().partition("\n")[0]
                if isinstance(error, (LookupError, ArithmeticError)):
                    reason = f"{type(error).__name__} {reason}"  # the message is only a key
                raise ArgumentError(
                    f"{name}{call} raises an error for the x0 and p of this call, and u of shape "
                    f"{us.shape[1:]}, a row of the controls of {argument} of shape {us.shape}: "
                    f"{reason}"
                ) from error
            return check(found, f"the result of {name}")

        return jax.eval_shape(result, *operands)

    def constraints(pair, name):
        return constraint_vectors(pair, name, dtype)

    def cost(x, name):
        return checked_cost(x, name, dtype)

    stage = jnp.zeros((), int), x0, us[0], p
    if problem.shared is not None:
        common = [checked("shared", lambda x, _: x, "(t, x, u, p)", *stage)]
    call = f"(t, x, u, p{', shared' if common else ''})"
    checked("dynamics", state, call, *stage, *common)
    checked("cost", cost, call, *stage, *common)
    checked("path", constraints, call, *stage, *common)
    checked("terminal_cost", cost, "(x, p)", x0, p)
    checked("terminal", constraints, "(x, p)", x0, p)


def _start(solver: Solver, xs, us, shapes, warm: Solution | None, mu: Array) -> Iterate:
    """The first state of the loop."""
    inner, _ = shapes
    if inner.defect.dtype != us.dtype:
        raise ArgumentError(
            f"the states have dtype {inner.defect.dtype}, expected {us.dtype} as us"
        )
    cold = _cold_start(us, shapes, solver.problem.space.size)
    if warm is None:
        return solver.start(xs, us, *cold, mu)
    start = warm.costates, warm.gains, warm.multipliers
    hint = "; the pair (guess.xs, guess.us) is a guess for a problem with other constraints"
    _require_same_shapes(start, cold, "guess", hint)
    return solver.start(xs, us, *start, mu)


def _cold_start(
    us: Array, shapes: tuple[Values, Values], n: int
) -> tuple[Array, Array, Multipliers]:
    """Costates (N + 1, n), gains (N, m, n) and multipliers of zeros.

    `shapes`: the result of `value_shapes`; `n`: the size of the tangent space of the states.
    """
    (N, m), (inner, last), dtype = us.shape, shapes, us.dtype
    y, z = (jnp.zeros((N, *x.shape), dtype) for x in (inner.h, inner.g))
    y_last, z_last = (jnp.zeros(x.shape, dtype) for x in (last.h, last.g))
    multipliers = Multipliers(y, z, y_last, z_last, jnp.zeros_like(us))
    return jnp.zeros((N + 1, n), dtype), jnp.zeros((N, m, n), dtype), multipliers


def _require_same_shapes(found: tuple, cold: tuple, argument: str, hint: str = "") -> None:
    """Raise ArgumentError if the costates, gains and multipliers have other shapes or dtypes.

    `cold`: the result of `_cold_start`; `argument`: the name of their guess or their solution.
    """
    names = "costates", "gains", *(f"multipliers.{name}" for name in Multipliers._fields)
    for name, x, expected in zip(names, jax.tree.leaves(found), jax.tree.leaves(cold)):
        if jnp.shape(x) != expected.shape or jnp.result_type(x) != expected.dtype:
            raise ArgumentError(
                f"{name} of {argument} has shape {jnp.shape(x)} and dtype {jnp.result_type(x)}, "
                f"expected {expected.shape} of {expected.dtype} for the stages and constraints of "
                f"problem{hint}"
            )


def _check_solution(problem: Problem, x0: PyTree, p: PyTree, solution: Solution) -> None:
    """Raise ArgumentError, which names the solution, if its states or controls do not fit."""
    states, us = states_and_controls(solution, "solution")
    _states_from(x0, states, us, "solution")
    check_functions(problem, x0, us, p, "solution")


@_compiled()
def first_solution(problem: Problem, x0: PyTree, p: PyTree, guess: Any) -> Solution:
    """The `Solution` of a guess before the first step, with the types of a result of `shift`.

    The arguments are those of `solve`, with the controls (N, m) or the pair (xs, us) as the guess.
    JAX compiles `solve` again for a guess of another type. So if a controller starts with this
    solution, one program serves its first solve and all others. The costates, gains and multipliers
    are zero. The cost and the residuals are infinite, because they are not computed. Errors as in
    `solve`.
    """
    x0 = problem.space.checked(x0, "x0")
    xs, us, _ = _guess(problem, x0, p, guess)
    us = jnp.clip(us, *(x[None] for x in control_bounds(problem, us)))
    shapes = value_shapes(problem, p, xs, us)
    costates, gains, multipliers = _cold_start(us, shapes, problem.space.size)
    infinite = jnp.full((), jnp.inf, us.dtype)
    return Solution(
        xs,
        us,
        gains,
        costates,
        multipliers,
        infinite,
        Residuals(*[infinite] * 5),
        jnp.full((), int(Status.ITERATION_LIMIT), int),
        jnp.zeros((), int),
        recorded(jnp.zeros((1, COLUMNS), us.dtype)),
    )


@_compiled()
def kkt_residual(problem: Problem, x0: PyTree, p: PyTree, solution: Solution) -> Residuals:
    """The errors of the optimality conditions of a solution, computed from its trajectory.

    x0, p: as for `solve`. The multipliers are from the solution; the multipliers of the control
    bounds are eliminated. Negative multipliers of inequalities are part of `complementarity`.
    Raises ArgumentError for a solution of a problem with other stages or constraints.
    """
    x0 = problem.space.checked(x0, "x0")
    _check_solution(problem, x0, p, solution)
    xs, us, costates, multipliers = (
        solution.xs,
        solution.us,
        solution.costates,
        solution.multipliers,
    )
    cold = _cold_start(us, value_shapes(problem, p, xs, us), problem.space.size)
    _require_same_shapes((costates, cold[1], multipliers), cold, "solution")
    one = jnp.ones((), us.dtype)
    linear = linearise(problem, p, xs, us, costates, multipliers, one, False)
    stages = lqr_stages(linear, multipliers, one, problem.space.size)
    found, _ = residuals(linear, stages, costates, multipliers, us, control_bounds(problem, us))
    initial = problem.space.difference(jax.tree.map(lambda x: x[0], xs), x0)
    error = first_costate(stages, costates) - costates[0]
    z, z_last = multipliers.inequalities, multipliers.terminal_inequalities
    negative = [jnp.minimum(x, 0) for x in (z, z_last)]
    return found._replace(
        stationarity=jnp.maximum(found.stationarity, largest(error)),
        defects=jnp.maximum(found.defects, largest(initial)),
        complementarity=jnp.maximum(found.complementarity, largest(*negative)),
    )


@_compiled()
def follow(
    problem: Problem, x0: PyTree, p: PyTree, solution: Solution
) -> tuple[PyTree, Float[Array, "N m"]]:
    """The states (N + 1, ...) and the controls (N, m) of a motion from x0 with feedback.

    The control of stage t is `us[t] + gains[t] @ difference(xs[t], x)`, clipped to the control
    bounds, and the state x follows from the dynamics. x0, p: as for `solve`; x0 may differ from the
    initial state of the solution. Raises ArgumentError for a solution of a problem with other
    states or controls.
    """
    x0 = problem.space.checked(x0, "x0")
    _check_solution(problem, x0, p, solution)
    bounds = control_bounds(problem, solution.us)

    def stage(x, row):
        t, planned, u, gain = row
        u = jnp.clip(u + matmul(gain, problem.space.difference(planned, x)), *bounds)
        x = problem.step(t, x, u, p)
        return x, (x, u)

    planned = jax.tree.map(lambda x: x[:-1], solution.xs)
    rows = jnp.arange(len(solution.us)), planned, solution.us, solution.gains
    _, (after, us) = lax.scan(stage, x0, rows)
    return jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), x0, after), us


@_compiled("n")
def shift(solution: Solution, n: int = 1) -> Solution:
    """The solution without its first n stages, as a guess for a horizon that starts n stages later.

    The last stage is repeated n times, so the number of stages is the same. The fields cost,
    residuals, status and iterations do not change. The history is empty, so the shapes of the
    result do not depend on the options of the solve, and one program serves all periods of a
    controller. Raises ArgumentError unless n is an int from 0 to the number of stages.
    """
    stages = len(solution.us)
    if not arguments.is_integer(n) or not 0 <= n <= stages:
        raise ArgumentError(f"n is {n!r}, expected an int from 0 to {stages}")

    def shifted(x):
        return x[jnp.minimum(jnp.arange(len(x)) + n, len(x) - 1)]

    xs, us, gains, costates = jax.tree.map(
        shifted, (solution.xs, solution.us, solution.gains, solution.costates)
    )
    y, z, y_last, z_last, by_bounds = solution.multipliers
    y, z, by_bounds = map(shifted, (y, z, by_bounds))
    multipliers = Multipliers(y, z, y_last, z_last, by_bounds)
    return solution._replace(
        xs=xs,
        us=us,
        gains=gains,
        costates=costates,
        multipliers=multipliers,
        history=recorded(jnp.zeros((1, COLUMNS), us.dtype)),
    )
