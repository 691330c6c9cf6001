"""The minimum of a strictly convex quadratic function in a box, with equations and inequalities.

The function is `g . d + d . H d / 2` with `lower <= d <= upper`, `K d = k`, and `K d <= k` for the
last rows of K. Projected Newton steps minimise it in the box (Bertsekas 1982, SIAM Journal on
Control and Optimization 20). A step fixes the entries at a bound whose negative gradient points
outwards, and moves the other entries by a Newton step. This step is shortened until its projection
into the box decreases the function. If no projection decreases the function, the step ends at the
first bound. The equations are added by the method of multipliers. An inequality is the equation
`K d = s` with one more unknown `s <= k`. A last solve, with the entries and inequalities at their
bounds fixed, gives the minimum to rounding errors, and its derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float

from .._math.linear import free_part, matmul, pseudo_inverse, solve_free

# The largest number of projected Newton steps in one round, and of rounds of the method of
# multipliers. The HALVINGS lengths of a step that are tried are 1, 1/2, 1/4, ...
MAX_STEPS = 100
MAX_ROUNDS = 50
HALVINGS = 12
# The first weight rho of the equations makes `rho K^T K` about this multiple of the largest entry
# of H. Each round multiplies rho by GROWTH, up to LARGEST_WEIGHTS in the same unit: nearly parallel
# rows need a large weight. A larger weight loses digits.
EQUATION_WEIGHT = 10.0
GROWTH = 4.0
LARGEST_WEIGHTS = {"float32": 2560.0, "float64": 655_360.0}
# The method of multipliers ends when the errors of the equations are below this multiple of eps.
EQUATION_TOLERANCE = 1000


class BoxQP(NamedTuple):
    """The function, the box and the equations: H (n, n), g, lower, upper (n,), K (m, n), k (m,)."""

    H: Float[Array, "n n"]
    g: Float[Array, " n"]
    lower: Float[Array, " n"]
    upper: Float[Array, " n"]
    K: Float[Array, "m n"]
    k: Float[Array, " m"]


def minimise(qp: BoxQP, inequalities: int = 0) -> Float[Array, " n"]:
    """The minimum d (n,). If no d in the box satisfies the equations, their error is least.

    `inequalities`: the number of the last rows of K with `K d <= k`. Entries of d at a bound are
    exactly at the bound. The derivatives assume that they stay there, and that an inequality that
    holds with equality is an equation.
    """
    if not len(qp.g):
        return qp.g
    qp = _with_scaled_equations(qp)
    constant_qp = lax.stop_gradient(qp)
    if len(qp.k) == 0:
        d, at_bound = _search(constant_qp)
    else:
        d, at_bound, held = _search_with_rows(constant_qp, inequalities)
        qp = qp._replace(K=jnp.where(held[:, None], qp.K, 0), k=jnp.where(held, qp.k, 0))
    bound = jnp.where(d >= constant_qp.upper, qp.upper, qp.lower)
    bound = jnp.where(at_bound, jnp.where(jnp.isfinite(bound), bound, 0), 0)
    solved = _solve_free(qp, at_bound, bound, d)
    # Rounding errors of the solve can move an entry that is not fixed beyond its bound.
    return jnp.clip(jnp.where(at_bound, bound, solved), qp.lower, qp.upper)


def _search(qp: BoxQP) -> tuple[Float[Array, " n"], Bool[Array, " n"]]:
    """The minimum without equations, and which entries are fixed at a bound."""
    start = jnp.clip(jnp.zeros_like(qp.g), qp.lower, qp.upper)
    return _projected_newton(qp.H, qp.g, qp.lower, qp.upper, start, partial(solve_free, qp.H))


def _projected_newton(
    H: Array,
    g: Array,
    lower: Array,
    upper: Array,
    start: Array,
    solve: Callable[[Array, Array], Array],
) -> tuple[Array, Array]:
    """The minimum, and which entries are at a bound.

    `solve(free, b)`: x (n,) with the free rows of `H x = b`; its entries that are not free are 0.
    """
    eps = float(jnp.finfo(g.dtype).eps)
    fractions = jnp.asarray(0.5 ** np.arange(HALVINGS), g.dtype)

    def at_bound(d, gradient):
        return ((d <= lower) & (gradient >= 0)) | ((d >= upper) & (gradient <= 0))

    def unfinished(state):
        return (state[0] < MAX_STEPS) & ~state[-1]

    def step(state):
        count, d, _, blocked, _ = state
        gradient = g + matmul(H, d)
        fixed = at_bound(d, gradient) | blocked
        newton = solve(~fixed, -gradient)
        trials = jnp.clip(d[None] + fractions[:, None] * newton[None], lower[None], upper[None])
        moves = trials - d[None]
        # The change of the function, without the cancellation of two values.
        slopes = matmul(moves, gradient)
        growth = slopes + jnp.sum(moves * matmul(moves, H), axis=1) / 2
        enough = growth <= 0.1 * slopes
        shortened = trials[jnp.argmax(enough)]
        # If the projected steps do not decrease the function, the step ends at the first bound, and
        # the entries at this bound are fixed in the next step.
        room = jnp.where(newton > 0, upper - d, lower - d)
        ratios = jnp.where(newton == 0, jnp.inf, room / jnp.where(newton == 0, 1, newton))
        first = jnp.min(ratios, initial=1)
        to_bound = jnp.clip(d + first * newton, lower, upper)
        reached = ratios <= first
        to_bound = jnp.where(reached, jnp.where(newton > 0, upper, lower), to_bound)
        whole = jnp.all(trials[0] == d + newton)  # the whole Newton step is in the box
        projected = (jnp.any(enough) & ~jnp.any(blocked)) | whole
        found = jnp.where(whole, trials[0], jnp.where(projected, shortened, to_bound))
        blocked = ~projected & (blocked | reached)
        # A whole Newton step ends the search, if no fixed entry has to move.
        stays = jnp.all(at_bound(found, g + matmul(H, found)) | ~fixed)
        small = jnp.max(jnp.abs(newton), initial=0) <= 10 * eps * jnp.max(jnp.abs(d), initial=0)
        done = (whole | small) & stays
        return count + 1, found, fixed, blocked, done

    none = jnp.zeros(len(g), bool)
    begin = jnp.zeros((), jnp.int32), start, none, none, jnp.zeros((), bool)
    _, d, fixed, _, _ = lax.while_loop(unfinished, step, begin)
    return d, fixed


def _search_with_rows(
    qp: BoxQP, inequalities: int
) -> tuple[Float[Array, " n"], Bool[Array, " n"], Bool[Array, " m"]]:
    """The minimum with equations and inequalities.

    The other results: which entries are fixed at a bound, and which rows hold with equality.
    """
    eps, largest_weight = float(jnp.finfo(qp.g.dtype).eps), LARGEST_WEIGHTS[qp.g.dtype.name]
    # The largest entries of K and H are equal, unless K is tiny: see `_with_scaled_equations`.
    largest = jnp.max(jnp.abs(qp.H))
    unit = 1 / jnp.maximum(jnp.max(jnp.sum(qp.K**2, axis=1)) / largest, largest)
    n, equations = len(qp.g), len(qp.k) - inequalities
    K_equal, J = qp.K[:equations], qp.K[equations:]
    H, squares = qp.H, matmul(K_equal.T, K_equal)
    qp = _with_slacks(qp, inequalities)
    all_squares = matmul(qp.K.T, qp.K)

    def solve(rho: Array, free: Array, b: Array) -> Array:
        """As in `_projected_newton`, after elimination of the slacks s that are free."""
        free_slack, right = free[n:], jnp.where(free[n:], b[n:], 0)
        S = H + rho * (squares + matmul(J.T, jnp.where(free_slack[:, None], 0, J)))
        d = solve_free(S, free[:n], b[:n] + matmul(right, J))
        return jnp.concatenate([d, jnp.where(free_slack, matmul(J, d) + right / rho, 0)])

    def unfinished(state):
        count, _, d, _, _ = state
        error = jnp.max(jnp.abs(matmul(qp.K, d) - qp.k))
        scale = jnp.max(jnp.abs(qp.k)) + jnp.max(jnp.abs(qp.K)) * jnp.max(jnp.abs(d))
        return (count < MAX_ROUNDS) & (error > EQUATION_TOLERANCE * eps * scale)

    def next_round(state):
        count, rho, d, shift, _ = state
        # The new shift is divided by the growth of rho, because the multipliers are `rho shift`.
        larger = jnp.minimum(GROWTH * rho, largest_weight * unit)
        shift = rho / larger * (shift + matmul(qp.K, d) - qp.k)
        return count + 1, larger, *minimum(larger, d, shift)

    def minimum(rho, d, shift):
        weighted, g = qp.H + rho * all_squares, qp.g + rho * matmul(shift - qp.k, qp.K)
        d, fixed = _projected_newton(weighted, g, qp.lower, qp.upper, d, partial(solve, rho))
        return d, shift, fixed

    start, rho = jnp.clip(jnp.zeros_like(qp.g), qp.lower, qp.upper), EQUATION_WEIGHT * unit
    first = jnp.ones((), jnp.int32), rho, *minimum(rho, start, jnp.zeros_like(qp.k))
    *_, d, _, fixed = lax.while_loop(unfinished, next_round, first)
    held = jnp.concatenate([jnp.ones(equations, bool), fixed[n:]])
    return d[:n], fixed[:n], held


def _with_slacks(qp: BoxQP, inequalities: int) -> BoxQP:
    """The program with one more unknown per inequality, the slack s: `K d = s` with `s <= k`."""
    m, dtype = inequalities, qp.k.dtype
    rows = np.eye(len(qp.k))[:, len(qp.k) - m :]
    is_equation = np.arange(len(qp.k)) < len(qp.k) - m
    return BoxQP(
        jnp.pad(qp.H, (0, m)),
        jnp.pad(qp.g, (0, m)),
        jnp.concatenate([qp.lower, jnp.full(m, -jnp.inf, dtype)]),
        jnp.concatenate([qp.upper, qp.k[len(qp.k) - m :]]),
        jnp.concatenate([qp.K, -jnp.asarray(rows, dtype)], axis=1),
        jnp.where(is_equation, qp.k, 0),
    )


def _with_scaled_equations(qp: BoxQP) -> BoxQP:
    """The same program with K and k scaled, so that the largest entries of K and H are equal.

    A tiny K is not scaled. Without the scale, the size of the multipliers would depend on the units
    of the equations.
    """
    H, K = (jnp.max(jnp.abs(lax.stop_gradient(x)), initial=0) for x in (qp.H, qp.K))
    scalable = H * float(jnp.finfo(K.dtype).tiny) ** 0.5 < K
    scale = jnp.where(scalable, H / jnp.where(scalable, K, 1), 1)
    return qp._replace(K=scale * qp.K, k=scale * qp.k)


def _solve_free(qp: BoxQP, at_bound: Array, bound: Array, near: Array) -> Float[Array, " n"]:
    """The entries that are not at a bound, from the equations of the minimum.

    The unknowns are the change of d from `near` and the multipliers of the equations.
    """
    n, m = len(qp.g), len(qp.k)
    free = ~at_bound
    near = jnp.where(at_bound, bound, near)
    gradient = jnp.where(free, qp.g + matmul(qp.H, near), 0)
    right = jnp.concatenate([-gradient, qp.k - matmul(qp.K, near)])

    def equations(x):
        d, multipliers = jnp.where(free, x[:n], 0), x[n:]
        top = jnp.where(free, matmul(qp.H, d) + matmul(multipliers, qp.K), x[:n])
        return jnp.concatenate([top, matmul(qp.K, d)])

    constant_qp = lax.stop_gradient(qp)
    inverse = _kkt_inverse(constant_qp, free) if m else None

    def solve(_, b):
        if inverse is not None:
            return matmul(inverse, b)
        return solve_free(constant_qp.H, free, b) + jnp.where(free, 0, b)

    x = lax.custom_linear_solve(equations, right, solve, symmetric=True)
    return near + x[:n]


def _kkt_inverse(qp: BoxQP, free: Array) -> Array:
    """The pseudo-inverse of the matrix of `equations` in `_solve_free`."""
    n, m = len(qp.g), len(qp.k)
    K = jnp.where(free, qp.K, 0)
    H = free_part(qp.H, free)
    A = jnp.block([[H, K.T], [K, jnp.zeros((m, m), H.dtype)]])
    eps = float(jnp.finfo(H.dtype).eps)
    size = [jnp.full(k, jnp.max(jnp.abs(x))) for k, x in ((n, H), (m, qp.H))]
    return pseudo_inverse(A, 10 * eps * jnp.concatenate(size))
