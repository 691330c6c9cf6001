"""The derivatives of all stages of a trajectory, in the tangent spaces of its states.

A change of a trajectory is a tangent vector dx_t (n,) at each state and a change du_t (m,) of each
control. In these coordinates, the dynamics are `dx_{t+1} = phi_t(dx_t, du_t)` with

    phi_t = difference(x_{t+1}, dynamics(t, retract(x_t, dx_t), u_t + du_t, p)).

The defect of stage t is `phi_t(0, 0)`. The coordinates dx_{t+1} enter linearly, also where the
defects are not zero. So the second derivatives of the Lagrangian have no terms between two stages.

Constraints enter by an augmented Lagrangian with the penalty 1 / mu. With multipliers y and z of
equalities h and inequalities g, it has the terms

    mu / 2 |y_hat|^2 + mu / 2 |z_hat|^2,     y_hat = y + h / mu,     z_hat = max(0, z + g / mu).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import PyTree

from .._math.linear import einsum, matmul
from ..errors import ArgumentError
from .lqr import LqrStages
from .problem import Problem


class Multipliers(NamedTuple):
    """The multipliers of the constraints of a `Problem`.

    `equalities` (N, a), `inequalities` (N, b): those of `path`, N stages. `terminal_equalities`,
    `terminal_inequalities`: those of `terminal`. `bounds` (N, m): positive at an upper bound,
    negative at a lower bound, 0 between them. Multipliers of inequalities are 0 or more.
    """

    equalities: Array
    inequalities: Array
    terminal_equalities: Array
    terminal_inequalities: Array
    bounds: Array


class Values(NamedTuple):
    """The functions of one stage, or of all stages: defect, cost (residual or scalar), h, g."""

    defect: Array
    cost: Array
    h: Array
    g: Array


class Derivatives(NamedTuple):
    """Values, their Jacobians, and the Hessian of the Lagrangian or of the cost.

    If the Hessian is exact, `curvature` is the part that the Gauss-Newton matrix leaves out.
    """

    values: Values
    jacobians: Values
    hessian: Array
    curvature: Array | None


class Linearisation(NamedTuple):
    """Derivatives of all stages, `inner` (N, ...), and of the last state, `last`."""

    inner: Derivatives
    last: Derivatives


def parts(constraints: Any, name: str, dtype: Any) -> tuple[Array, Array]:
    """Equalities and inequalities as vectors; None stands for no constraints."""
    if not isinstance(constraints, (tuple, list)) or len(constraints) != 2:
        raise ArgumentError(f"{name} returns no pair, expected (equalities, inequalities)")
    vectors = [jnp.zeros(0, dtype) if x is None else jnp.asarray(x) for x in constraints]
    for kind, x in zip(("equalities", "inequalities"), vectors):
        if x.ndim != 1 or x.dtype != dtype:
            raise ArgumentError(
                f"the {kind} of {name} have shape {x.shape} and dtype {x.dtype}, expected a vector "
                f"of {dtype}"
            )
    return vectors[0], vectors[1]


def _cost(cost: Any, name: str, dtype: Any) -> Array:
    cost = jnp.asarray(cost)
    if cost.ndim > 1 or cost.dtype != dtype:
        raise ArgumentError(
            f"{name} returns shape {cost.shape} and dtype {cost.dtype}, expected a vector or a "
            f"number of {dtype}"
        )
    return cost


def stage_values(problem: Problem, p: PyTree, t: Array, x: PyTree, x_next: PyTree, u: Array):
    """The `Values` of one stage."""
    common = problem.common(t, x, u, p)
    state = problem.dynamics(t, x, u, p, *common)
    if jax.tree.structure(state) != jax.tree.structure(x):
        raise ArgumentError(
            f"dynamics returns {jax.tree.structure(state)}, expected a state, "
            f"{jax.tree.structure(x)}"
        )
    defect = problem.space.difference(x_next, state)
    cost = _cost(problem.cost(t, x, u, p, *common), "cost", u.dtype)
    pair = (None, None) if problem.path is None else problem.path(t, x, u, p, *common)
    return Values(defect, cost, *parts(pair, "path", u.dtype))


def last_values(problem: Problem, p: PyTree, x: PyTree, dtype: Any) -> Values:
    """The `Values` of the last state; the defect is empty."""
    none = jnp.zeros(0, dtype)
    cost = none if problem.terminal_cost is None else problem.terminal_cost(x, p)
    pair = (None, None) if problem.terminal is None else problem.terminal(x, p)
    return Values(none, _cost(cost, "terminal_cost", dtype), *parts(pair, "terminal", dtype))


def control_bounds(problem: Problem, us: Array) -> tuple[Array, Array]:
    """The lower and upper bounds of the controls, each (m,)."""
    if problem.control_bounds is None:
        infinite = jnp.full(us.shape[1], jnp.inf, us.dtype)
        return -infinite, infinite
    for i, bound in enumerate(problem.control_bounds):
        if bound.shape not in ((), us.shape[1:]):
            raise ArgumentError(
                f"control_bounds[{i}] has shape {bound.shape}, expected () or {us.shape[1:]} "
                f"for the controls of shape {us.shape} of guess"
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
    """The values of all stages (N, ...), and those of the last state."""
    before, after = split(xs)
    stages = jnp.arange(len(us))
    inner = jax.vmap(lambda *row: stage_values(problem, p, *row))(stages, before, after, us)
    return inner, last_values(problem, p, jax.tree.map(lambda x: x[-1], xs), us.dtype)


def value_shapes(problem: Problem, p: PyTree, xs: PyTree, us: Array) -> tuple[Values, Values]:
    """The shapes and dtypes of the values of one stage, and of those of the last state."""

    def values(x, u):
        first = jnp.zeros((), int)
        return stage_values(problem, p, first, x, x, u), last_values(problem, p, x, us.dtype)

    return jax.eval_shape(values, jax.tree.map(lambda x: x[0], xs), us[0])


def blank_linearisation(shapes: tuple[Values, Values], stages: int, n: int, m: int):
    """Zeros with the shapes of `linearise` for the Gauss-Newton matrix."""

    def blank(values, leading, size):
        def zeros(shape):
            return jnp.zeros((*leading, *shape), values.defect.dtype)

        of_values, of_jacobians = (
            Values(*[zeros((*x.shape, *more)) for x in values]) for more in ((), (size,))
        )
        return Derivatives(of_values, of_jacobians, zeros((size, size)), None)

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
    """The values of all stages, their Jacobians, and the Hessian of the Lagrangian or of the cost.

    If `exact`, the weights of the second derivatives are `costates` (N + 1, n) and the multipliers
    y_hat and z_hat. The Hessian leaves out the first-order terms of the penalty. Otherwise it is
    the Gauss-Newton matrix of the cost. The Gauss-Newton matrix of a scalar cost is its Hessian.
    """
    space, m = problem.space, us.shape[1]

    def derivatives(values, sizes, costate, y, z_old):
        def at(z):
            return values(*jnp.split(z, np.cumsum(sizes)[:-1]))

        def lagrangian(z):
            """The Lagrangian, with y_hat and z_hat as constants, and the values."""
            found = at(z)
            h, g = lax.stop_gradient((found.h, found.g))
            weights = costate, y + h / mu, jnp.maximum(z_old + g / mu, 0)
            terms = zip(weights, (found.defect, found.h, found.g))
            return sum([jnp.sum(w * x) for w, x in terms], _scalar(found.cost)), found

        def gradient(z):
            """The values, and the gradient whose Jacobian is the Hessian."""
            slope, found = jax.grad(lagrangian, has_aux=True)(z) if exact else (None, at(z))
            of_cost = None if found.cost.ndim else jax.grad(lambda z: at(z).cost)(z)
            return (found, slope, of_cost), found

        zero = jnp.zeros(sum(sizes), us.dtype)
        if exact or not jax.eval_shape(at, zero).cost.ndim:
            (jacobians, whole, of_cost), found = jax.jacfwd(gradient, has_aux=True)(zero)
        else:
            (found, jacobians), whole, of_cost = _jacobian(values, sizes, us.dtype), None, None
        gauss_newton = matmul(jacobians.cost.T, jacobians.cost) if of_cost is None else of_cost
        hessian = gauss_newton if whole is None else whole
        hessian, gauss_newton = ((H + H.T) / 2 for H in (hessian, gauss_newton))
        return Derivatives(found, jacobians, hessian, hessian - gauss_newton if exact else None)

    def stage(t, x, x_next, u, *weights):
        def values(*parts):
            *dx, du = parts
            return stage_values(problem, p, t, space.move(x, *dx), x_next, u + du)

        return derivatives(values, (*space.parts, m), *weights)

    x_last = jax.tree.map(lambda x: x[-1], xs)

    def values(*parts):
        return last_values(problem, p, space.move(x_last, *parts), us.dtype)

    y, z, y_last, z_last, _ = multipliers
    inner = jax.vmap(stage)(jnp.arange(len(us)), *split(xs), us, costates[1:], y, z)
    none = jnp.zeros(0, us.dtype)
    return Linearisation(inner, derivatives(values, space.parts, none, y_last, z_last))


def _jacobian(function: Callable, sizes: Sequence[int], dtype: Any) -> tuple[Any, Any]:
    """The value of `function(*parts)` at zero, and its Jacobian in all parts together.

    The parts are vectors of the given sizes. The function is linearised once. The columns of a part
    are computed without the other parts, so what does not depend on the part takes no time.
    """
    zeros = [jnp.zeros(size, dtype) for size in sizes]
    value, linear = jax.linearize(function, *zeros)

    def columns(i):
        def of_part(part):
            return linear(*zeros[:i], part, *zeros[i + 1 :])

        def column(change):
            # Unlike `of_part(change)`, this has no terms of the other parts.
            return jax.jvp(of_part, (zeros[i],), (change,))[1]

        return jax.vmap(column, out_axes=-1)(jnp.eye(sizes[i], dtype=dtype))

    blocks = [columns(i) for i in range(len(sizes))]
    return value, jax.tree.map(lambda *blocks: jnp.concatenate(blocks, axis=-1), *blocks)


def shifted(values: tuple[Values, Values], multipliers: Multipliers, mu: Array) -> Multipliers:
    """The multipliers y_hat and z_hat of the head of the module."""
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
    """The largest errors of the optimality conditions of a trajectory, each ().

    - `stationarity`: of the derivatives of the Lagrangian in the states and controls, where the
      multipliers of the control bounds are eliminated;
    - `defects`: of `difference(x_{t+1}, dynamics(t, x_t, u_t, p))`, and of the initial state;
    - `equalities`: of the absolute values of the equalities;
    - `inequalities`: of the positive inequalities, and of the controls beyond their bounds;
    - `complementarity`: of the products of an inequality and its multiplier.
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


def residuals(
    linear: Linearisation,
    stages: LqrStages,
    costates: Array,
    estimates: Multipliers,
    us: Array,
    bounds: tuple[Array, Array],
) -> tuple[Residuals, Array]:
    """The residuals of a trajectory, and the multipliers (N, m) of the bounds.

    `stages` is the quadratic model whose gradient has the multipliers `estimates`.
    """
    inner, last = linear.inner.values, linear.last.values
    lower, upper = bounds
    after = costates[1:]
    by_x = stages.q[1:] - after
    by_x = by_x.at[:-1].add(einsum("tij,ti->tj", stages.A[1:], after[1:]))
    by_u = stages.r + einsum("tij,ti->tj", stages.B, after)
    pushed = jnp.where(us >= upper, jnp.minimum(by_u, 0), 0)
    pushed = pushed + jnp.where(us <= lower, jnp.maximum(by_u, 0), 0)
    _, z, _, z_last, _ = estimates
    excess = jnp.maximum(jnp.maximum(lower - us, us - upper), 0)
    found = Residuals(
        largest(by_x, by_u - pushed),
        largest(inner.defect),
        largest(inner.h, last.h),
        largest(jnp.maximum(inner.g, 0), jnp.maximum(last.g, 0), excess),
        largest(inner.g * z, last.g * z_last),
    )
    return found, -pushed
