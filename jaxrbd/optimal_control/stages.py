"""The derivatives of all stages of a trajectory, in the tangent spaces of its states.

A change of a trajectory is a tangent vector dx_t (n,) at each state and a change du_t (m,) of each
control. In these coordinates, the dynamics are `dx_{t+1} = phi_t(dx_t, du_t)` with

    phi_t = difference(x_{t+1}, dynamics(t, retract(x_t, dx_t), u_t + du_t, p)).

The defect of stage t is `phi_t(0, 0)`. The dynamics are linear in dx_{t+1}, also where the defects
are not zero. So the second derivatives of the Lagrangian have no terms between two stages.

Constraints are terms of an augmented Lagrangian with the penalty 1 / mu. With multipliers y and z
of equalities h and inequalities g, these terms are

    mu / 2 |y_hat|^2 + mu / 2 |z_hat|^2,     y_hat = y + h / mu,     z_hat = max(0, z + g / mu).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import PyTree

from .._math.linear import einsum, matmul
from ..errors import ArgumentError
from ..model import arguments
from ..model.names import described
from .lqr import LqrStages
from .problem import Problem


class Multipliers(NamedTuple):
    """The multipliers of the constraints of a `Problem`.

    - `equalities` (N, a), `inequalities` (N, b): for the constraints `path` of N stages;
    - `terminal_equalities`, `terminal_inequalities`: for the constraints `terminal`;
    - `bounds` (N, m): for the control bounds. A multiplier is positive at an upper bound, negative
      at a lower bound, and 0 between the bounds.

    Multipliers of inequalities are 0 or more.
    """

    equalities: Array
    inequalities: Array
    terminal_equalities: Array
    terminal_inequalities: Array
    bounds: Array


class Values(NamedTuple):
    """The values of one stage, or of all stages.

    - `defect` (n,): empty for the last state;
    - `cost`: a number, or a vector r for the cost |r|^2 / 2;
    - `h`, `g`: the vectors of the equalities and of the inequalities.
    """

    defect: Array
    cost: Array
    h: Array
    g: Array


class Derivatives(NamedTuple):
    """Values, their Jacobians, and the Hessian of the Lagrangian or the Gauss-Newton matrix.

    `curvature` is `hessian` minus the Gauss-Newton matrix, or None if `hessian` is this matrix.
    """

    values: Values
    jacobians: Values
    hessian: Array
    curvature: Array | None


class Linearisation(NamedTuple):
    """The derivatives of all stages, `inner` (N, ...), and of the last state, `last`."""

    inner: Derivatives
    last: Derivatives


def constraint_vectors(constraints: Any, name: str, dtype: Any) -> tuple[Array, Array]:
    """Equalities and inequalities as vectors; None stands for no constraints."""
    if not isinstance(constraints, (tuple, list)) or len(constraints) != 2:
        raise ArgumentError(
            f"{name} is {described(constraints)}, expected the pair (equalities, inequalities)"
        )
    kinds = "equalities", "inequalities"
    vectors = [
        jnp.zeros(0, dtype) if x is None else arguments.as_array(x, f"the {kind} of {name}")
        for kind, x in zip(kinds, constraints)
    ]
    for kind, x in zip(kinds, vectors):
        if x.ndim != 1 or x.dtype != dtype:
            raise ArgumentError(
                f"the {kind} of {name} have shape {x.shape} and dtype {x.dtype}, expected a vector "
                f"of {dtype}"
            )
    return vectors[0], vectors[1]


def checked_cost(cost: Any, name: str, dtype: Any) -> Array:
    """A cost as an array; raises ArgumentError, which names it, for another shape or dtype."""
    cost = arguments.as_array(cost, name)
    if cost.ndim > 1 or cost.dtype != dtype:
        raise ArgumentError(
            f"{name} has shape {cost.shape} and dtype {cost.dtype}, expected a vector or a number "
            f"of {dtype}"
        )
    return cost


def stage_values(problem: Problem, p: PyTree, t: Array, x: PyTree, x_next: PyTree, u: Array):
    """The `Values` of one stage."""
    common = problem.common(t, x, u, p)
    state = problem.space.checked(problem.dynamics(t, x, u, p, *common), "the result of dynamics")
    defect = problem.space.difference(x_next, state)
    cost = checked_cost(problem.cost(t, x, u, p, *common), "the result of cost", u.dtype)
    pair = (None, None) if problem.path is None else problem.path(t, x, u, p, *common)
    return Values(defect, cost, *constraint_vectors(pair, "the result of path", u.dtype))


def last_values(problem: Problem, p: PyTree, x: PyTree, dtype: Any) -> Values:
    """The `Values` of the last state; the defect is empty."""
    none = jnp.zeros(0, dtype)
    cost = none if problem.terminal_cost is None else problem.terminal_cost(x, p)
    cost = checked_cost(cost, "the result of terminal_cost", dtype)
    pair = (None, None) if problem.terminal is None else problem.terminal(x, p)
    return Values(none, cost, *constraint_vectors(pair, "the result of terminal", dtype))


def control_bounds(problem: Problem, us: Array, argument: str = "guess") -> tuple[Array, Array]:
    """The lower and upper bounds of the controls, each (m,).

    `argument`: the name of the guess or the solution with the controls us, for messages.
    """
    if problem.control_bounds is None:
        infinite = jnp.full(us.shape[1], jnp.inf, us.dtype)
        return -infinite, infinite
    for i, bound in enumerate(problem.control_bounds):
        if bound.shape not in ((), us.shape[1:]):
            raise ArgumentError(
                f"control_bounds[{i}] has shape {bound.shape}, expected () or {us.shape[1:]} "
                f"for the controls of shape {us.shape} of {argument}"
            )
    lower, upper = (
        jnp.broadcast_to(jnp.asarray(bound, us.dtype), us.shape[1:])
        for bound in problem.control_bounds
    )
    return lower, upper


def split(xs: PyTree) -> tuple[PyTree, PyTree]:
    """The states before and after each stage."""
    return jax.tree.map(lambda x: x[:-1], xs), jax.tree.map(lambda x: x[1:], xs)


def all_values(problem: Problem, p: PyTree, xs: PyTree, us: Array) -> tuple[Values, Values]:
    """The values of all stages (N, ...), and the values of the last state."""
    before, after = split(xs)
    stages = jnp.arange(len(us))
    inner = jax.vmap(lambda *row: stage_values(problem, p, *row))(stages, before, after, us)
    return inner, last_values(problem, p, jax.tree.map(lambda x: x[-1], xs), us.dtype)


def value_shapes(problem: Problem, p: PyTree, xs: PyTree, us: Array) -> tuple[Values, Values]:
    """The shapes and dtypes of the values of one stage, and of the values of the last state."""

    def values(x, u):
        first = jnp.zeros((), int)
        return stage_values(problem, p, first, x, x, u), last_values(problem, p, x, us.dtype)

    return jax.eval_shape(values, jax.tree.map(lambda x: x[0], xs), us[0])


def blank_linearisation(shapes: tuple[Values, Values], stages: int, n: int, m: int):
    """A `Linearisation` of zeros, with the shapes that `linearise` returns if not `exact`."""

    def blank(values, leading, size):
        def zeros(shape):
            return jnp.zeros((*leading, *shape), values.defect.dtype)

        zero_values, zero_jacobians = (
            Values(*[zeros((*x.shape, *more)) for x in values]) for more in ((), (size,))
        )
        return Derivatives(zero_values, zero_jacobians, zeros((size, size)), None)

    return Linearisation(blank(shapes[0], (stages,), n + m), blank(shapes[1], (), n))


def total_cost(inner: Values, last: Values) -> Array:
    """The cost of a trajectory from its values."""
    return jnp.sum(jax.vmap(_scalar)(inner.cost)) + _scalar(last.cost)


def _scalar(cost: Array) -> Array:
    return cost if cost.ndim == 0 else jnp.sum(cost * cost) / 2


def linearise(
    problem: Problem,
    p: PyTree,
    xs: PyTree,
    us: Array,
    costates: Array,
    multipliers: Multipliers,
    mu: Array,
    exact: bool,
) -> Linearisation:
    """The values of all stages, their Jacobians, and a Hessian or Gauss-Newton matrix.

    If `exact`, the matrix is the Hessian of the Lagrangian with the multipliers `costates`
    (N + 1, n), y_hat and z_hat, all held constant. If not `exact`, the matrix is the Gauss-Newton
    matrix of the cost; for a scalar cost, this is the Hessian of the cost. `lqr_stages` adds the
    terms J^T J / mu of the penalty, with the Jacobian J of the equalities and active inequalities.
    """
    space, m = problem.space, us.shape[1]

    def derivatives(values, sizes, costate, y, z):
        def lagrangian(*parts):
            """The Lagrangian, with y_hat and z_hat as constants, and the values."""
            found = values(*parts)
            h, g = lax.stop_gradient((found.h, found.g))
            weights = costate, y + h / mu, jnp.maximum(z + g / mu, 0)
            terms = zip(weights, (found.defect, found.h, found.g))
            return sum([jnp.sum(w * x) for w, x in terms], _scalar(found.cost)), found

        def values_and_gradients(*parts):
            """The values, and two gradients with respect to the parts of a change (dx, du).

            These are the gradient of the Lagrangian (None if not `exact`), and the gradient of a
            scalar cost (None for a vector of residuals).
            """
            every_part = tuple(range(len(parts)))
            if exact:
                gradient, found = jax.grad(lagrangian, every_part, has_aux=True)(*parts)
                gradient = jnp.concatenate(gradient)
            else:
                gradient, found = None, values(*parts)
            if found.cost.ndim:
                return found, gradient, None
            cost_gradient = jax.grad(lambda *parts: values(*parts).cost, every_part)(*parts)
            return found, gradient, jnp.concatenate(cost_gradient)

        results, result_jacobians = _jacobian(values_and_gradients, sizes, us.dtype)
        found, _, _ = results
        jacobians, lagrangian_hessian, cost_hessian = result_jacobians
        if cost_hessian is None:
            gauss_newton = matmul(jacobians.cost.T, jacobians.cost)
        else:
            gauss_newton = cost_hessian
        hessian = gauss_newton if lagrangian_hessian is None else lagrangian_hessian
        hessian, gauss_newton = ((H + H.T) / 2 for H in (hessian, gauss_newton))
        return Derivatives(found, jacobians, hessian, hessian - gauss_newton if exact else None)

    def stage(t, x, x_next, u, *weights):
        def values(*changes):
            *dx, du = changes
            return stage_values(problem, p, t, space.move(x, *dx), x_next, u + du)

        return derivatives(values, (*space.parts, m), *weights)

    x_last = jax.tree.map(lambda x: x[-1], xs)

    def values(*dx):
        return last_values(problem, p, space.move(x_last, *dx), us.dtype)

    y, z, y_last, z_last, _ = multipliers
    inner = jax.vmap(stage)(jnp.arange(len(us)), *split(xs), us, costates[1:], y, z)
    none = jnp.zeros(0, us.dtype)
    return Linearisation(inner, derivatives(values, space.parts, none, y_last, z_last))


def _jacobian(function: Callable, sizes: Sequence[int], dtype: Any) -> tuple[Any, Any]:
    """The value of `function(*parts)` at zero, and its Jacobian in all parts together.

    The parts are vectors of the given sizes. The function is linearised once. The columns of a part
    are computed without the other parts, so JAX skips the operations that do not depend on the
    part.
    """
    zeros = [jnp.zeros(size, dtype) for size in sizes]
    value, linear = jax.linearize(function, *zeros)

    def columns(i):
        def linear_in_part(part):
            return linear(*zeros[:i], part, *zeros[i + 1 :])

        def column(change):
            # A call of `linear_in_part` would compute the terms of all parts; `jax.jvp` does not.
            return jax.jvp(linear_in_part, (zeros[i],), (change,))[1]

        return jax.vmap(column, out_axes=-1)(jnp.eye(sizes[i], dtype=dtype))

    blocks = [columns(i) for i in range(len(sizes))]
    return value, jax.tree.map(lambda *blocks: jnp.concatenate(blocks, axis=-1), *blocks)


def estimated(values: tuple[Values, Values], multipliers: Multipliers, mu: Array) -> Multipliers:
    """The multipliers y_hat and z_hat, as the head of this file defines them."""
    inner, last = values
    y, z, y_last, z_last, bounds = multipliers
    return Multipliers(
        y + inner.h / mu,
        jnp.maximum(z + inner.g / mu, 0),
        y_last + last.h / mu,
        jnp.maximum(z_last + last.g / mu, 0),
        bounds,
    )


def lqr_stages(linear: Linearisation, estimates: Multipliers, mu: Array, n: int) -> LqrStages:
    """The quadratic model of the augmented Lagrangian with the multipliers y_hat and z_hat."""
    y, z, y_last, z_last, _ = estimates

    def model(derivatives, y, z):
        values, jacobians, hessian, _ = derivatives
        J = jacobians.cost
        gradient = J if values.cost.ndim == 0 else matmul(values.cost, J)
        gradient = gradient + matmul(y, jacobians.h) + matmul(z, jacobians.g)
        active = jnp.where((z > 0)[:, None], jacobians.g, 0)
        penalty = matmul(jacobians.h.T, jacobians.h) + matmul(active.T, jacobians.g)
        return gradient, hessian + penalty / mu

    gradient, H = jax.vmap(model)(linear.inner, y, z)
    q_last, Q_last = model(linear.last, y_last, z_last)
    J = linear.inner.jacobians.defect
    return LqrStages(
        J[:, :, :n],
        J[:, :, n:],
        linear.inner.values.defect,
        jnp.concatenate([H[:, :n, :n], Q_last[None]]),
        H[:, n:, n:],
        H[:, n:, :n],
        jnp.concatenate([gradient[:, :n], q_last[None]]),
        gradient[:, n:],
    )


def without_curvature(stages: LqrStages, linear: Linearisation) -> LqrStages:
    """The quadratic model with the Gauss-Newton matrix, also where the Hessian is exact."""
    C, C_last, n = linear.inner.curvature, linear.last.curvature, stages.A.shape[-1]
    if C is None or C_last is None:
        return stages
    return stages._replace(
        Q=stages.Q - jnp.concatenate([C[:, :n, :n], C_last[None]]),
        R=stages.R - C[:, n:, n:],
        S=stages.S - C[:, n:, :n],
    )


class Residuals(NamedTuple):
    """The errors of the optimality conditions of a trajectory: largest absolute values, each ().

    - `stationarity`: the derivatives of the Lagrangian by the states and controls, where the
      multipliers of the control bounds are eliminated;
    - `defects`: `difference(x_{t+1}, dynamics(t, x_t, u_t, p))`, and the error of the first state;
    - `equalities`: the equalities;
    - `inequalities`: the positive inequalities, and the distances of controls beyond their bounds;
    - `complementarity`: the products of an inequality and its multiplier.
    """

    stationarity: Array
    defects: Array
    equalities: Array
    inequalities: Array
    complementarity: Array

    @property
    def largest(self) -> Array:
        """The largest of the five residuals."""
        return jnp.max(jnp.stack(self))


def largest(*arrays: Array) -> Array:
    """The largest absolute value of all entries."""
    return jnp.max(jnp.abs(jnp.concatenate([x.ravel() for x in arrays])), initial=0)


def first_costate(stages: LqrStages, costates: Array) -> Array:
    """The costate (n,) of the initial state, from the costate of the next state."""
    return stages.q[0] + matmul(costates[1], stages.A[0])


def residuals(
    linear: Linearisation,
    stages: LqrStages,
    costates: Array,
    estimates: Multipliers,
    us: Array,
    bounds: tuple[Array, Array],
) -> tuple[Residuals, Array]:
    """The residuals of a trajectory, and the multipliers (N, m) of the bounds.

    `stages`: the quadratic model from `lqr_stages` with the multipliers `estimates`. The residuals
    do not include the defect and the stationarity of the initial state; `kkt_residual` adds them.
    """
    inner, last = linear.inner.values, linear.last.values
    lower, upper = (x[None] for x in bounds)
    next_costates = costates[1:]
    by_x = stages.q[1:] - next_costates
    by_x = by_x.at[:-1].add(einsum("tij,ti->tj", stages.A[1:], next_costates[1:]))
    by_u = stages.r + einsum("tij,ti->tj", stages.B, next_costates)
    slope_at_bounds = jnp.where(us >= upper, jnp.minimum(by_u, 0), 0)
    slope_at_bounds = slope_at_bounds + jnp.where(us <= lower, jnp.maximum(by_u, 0), 0)
    _, z, _, z_last, _ = estimates
    excess = jnp.maximum(jnp.maximum(lower - us, us - upper), 0)
    found = Residuals(
        largest(by_x, by_u - slope_at_bounds),
        largest(inner.defect),
        largest(inner.h, last.h),
        largest(jnp.maximum(inner.g, 0), jnp.maximum(last.g, 0), excess),
        largest(inner.g * z, last.g * z_last),
    )
    return found, -slope_at_bounds
