"""Derivatives of a solution of an optimal control problem, by the implicit function theorem.

The unknowns w of the optimality conditions are tangent vectors dx_t (n,) and changes du_t (m,) of
the trajectory, and changes of the costates and of the multipliers. With the functions of
`stages.py`, the Lagrangian is

    L(w) = cost + sum over t of  lambda_{t+1} . (phi_t(dx_t, du_t) - dx_{t+1})
           + lambda_0 . (difference(x_0, initial state) - dx_0) + y . h + z . g.

At a solution, w = 0 and the gradient of L is zero, except in the inactive unknowns. These are the
controls at a bound, which follow the bound, and the zero multipliers of inequalities, which stay
zero. Inequalities with a positive multiplier count as equalities. The derivative of w with respect
to a parameter theta solves `K dw = -d(grad L)/d theta`. K is the Hessian of L in w, with rows and
columns of the identity for the inactive unknowns. K is symmetric, so reverse mode solves the same
system.

K has the structure of a linear-quadratic problem with equality constraints. `lqr` solves the
problem that has a penalty 1 / mu instead of the constraints. Its matrix is K with -mu in the
diagonal of the rows of the multipliers. The solution for K follows by iterative refinement. The
error shrinks by about `mu / (mu + s)` per iteration, where s is the least eigenvalue of
`C H^-1 C^T`: C is the Jacobian of the constraints, and H is the Hessian on the motions that satisfy
the dynamics.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from .._math.cast import select
from .._math.linear import einsum, matmul
from .._math.rules import changed_leaves, custom_jvp
from .bounded_step import clamped
from .lqr import LqrStages, lqr
from .problem import Problem
from .stages import (
    Linearisation,
    Multipliers,
    all_values,
    control_bounds,
    largest,
    last_values,
    linearise,
    split,
    stage_values,
    total_cost,
)

# The largest number of refinements of a linear solve.
REFINEMENTS = 20


class Point(NamedTuple):
    """The fields of a solution that have derivatives."""

    xs: PyTree
    us: Array
    costates: Array
    multipliers: Multipliers
    cost: Array


class Unknowns(NamedTuple):
    """The unknowns w of the head of the module, or a right-hand side of its linear system."""

    dxs: Array
    dus: Array
    costates: Array
    y: Array
    z: Array
    y_last: Array
    z_last: Array


@custom_jvp
def with_derivatives(theta: tuple[Problem, PyTree, PyTree], point: Point) -> Point:
    """The point, a solution for theta = (problem, x0, p), with its derivatives in theta.

    Derivatives of the argument `point` are ignored.
    """
    return point


def _with_derivatives_jvp(primals, tangents):
    theta, point = primals
    # JAX differentiates this rule for second derivatives: they need the derivatives of the point.
    point = with_derivatives(theta, point)
    return point, _change(theta, tangents[0], point)


with_derivatives.defjvp(_with_derivatives_jvp, symbolic_zeros=True)


def _change(theta: tuple[Problem, PyTree, PyTree], dtheta: Any, point: Point) -> Point:
    """The derivative of the point for the change dtheta of theta."""
    problem, _, p = theta
    leaves, changes, with_values = changed_leaves(theta, dtheta)
    xs, us, costates, multipliers, _ = point
    y, z, y_last, z_last, by_bounds = multipliers
    system = _system(problem, p, point)
    zero = jax.tree.map(jnp.zeros_like, Unknowns(costates, us, costates, y, z, y_last, z_last))

    def gradient(leaves):
        return jax.grad(lambda w: _lagrangian(with_values(leaves), point, w))(zero)

    def bounds(leaves):
        lower, upper = control_bounds(with_values(leaves)[0], us)
        return jnp.where(system.held, jnp.where(by_bounds > 0, upper, lower), 0)

    by_theta = jax.jvp(gradient, (leaves,), (changes,))[1]
    bound_change = zero._replace(dus=jax.jvp(bounds, (leaves,), (changes,))[1])
    gradient_change = system.free(_sum(by_theta, system.product(bound_change)))
    dw = _sum(_solved(system, jax.tree.map(jnp.negative, gradient_change)), bound_change)

    def moved(leaves, w):
        problem, _, p = with_values(leaves)
        states = jax.vmap(problem.space.retract)(xs, w.dxs)
        weights = jax.vmap(lambda *row: _transported(problem.space, *row))(
            xs, w.dxs, costates + w.costates
        )
        cost = total_cost(*all_values(problem, p, states, us + w.dus))
        new = Multipliers(y + w.y, z + w.z, y_last + w.y_last, z_last + w.z_last, by_bounds)
        return Point(states, us + w.dus, weights, new, cost)

    change = jax.jvp(moved, (leaves, zero), (changes, dw))[1]
    # The multiplier of a held control makes the gradient in this control zero.
    slope = by_theta.dus + system.product(dw).dus
    by_bounds = jnp.where(system.held, -slope, 0)
    return change._replace(multipliers=change.multipliers._replace(bounds=by_bounds))


def _transported(space, x: PyTree, dx: Array, costate: Array) -> Array:
    """The costate at the state `retract(x, dx)`, from the costate at the state x."""
    moved = space.retract(x, dx)
    return jax.grad(
        lambda step: jnp.sum(costate * space.difference(x, space.retract(moved, step)))
    )(jnp.zeros_like(dx))


def _sum(a: Unknowns, b: Unknowns) -> Unknowns:
    return jax.tree.map(jnp.add, a, b)


def _lagrangian(theta: tuple[Problem, PyTree, PyTree], point: Point, w: Unknowns) -> Array:
    """The Lagrangian L of the head of the module."""
    problem, x0, p = theta
    xs, us, costates, (y, z, y_last, z_last, _), _ = point
    retract, difference = problem.space.retract, problem.space.difference
    before, after = split(xs)

    def stage(t, x, x_next, u, dx, du):
        return stage_values(problem, p, t, retract(x, dx), x_next, u + du)

    inner = jax.vmap(stage)(jnp.arange(len(us)), before, after, us, w.dxs[:-1], w.dus)
    final = jax.tree.map(lambda x: x[-1], xs)
    last = last_values(problem, p, retract(final, w.dxs[-1]), us.dtype)
    initial = difference(jax.tree.map(lambda x: x[0], xs), x0)
    gaps = jnp.concatenate([initial[None], inner.defect]) - w.dxs
    products = [
        (costates + w.costates, gaps),
        (y + w.y, inner.h),
        (z + w.z, inner.g),
        (y_last + w.y_last, last.h),
        (z_last + w.z_last, last.g),
    ]
    return sum([jnp.sum(a * b) for a, b in products], total_cost(inner, last))


# ------------------------------------------------------------------------------ the linear system


class System(NamedTuple):
    """The Hessian of L, the controls at a bound `held` (N, m), and the active inequalities."""

    linear: Linearisation
    held: Array
    active: Array
    active_last: Array

    def product(self, w: Unknowns) -> Unknowns:
        """The product of the Hessian of L with w."""
        inner, last = self.linear
        n = w.dxs.shape[1]
        steps = jnp.concatenate([w.dxs[:-1], w.dus], 1)
        weights = w.costates[1:], w.y, w.z
        matrices = inner.jacobians.defect, inner.jacobians.h, inner.jacobians.g
        by_step = [einsum("tij,tj->ti", inner.hessian, steps)]
        by_step += [einsum("tij,ti->tj", J, x) for J, x in zip(matrices, weights)]
        by_step = sum(by_step[1:], by_step[0])
        end = w.dxs[-1]
        h_last, g_last = last.jacobians.h, last.jacobians.g
        by_end = matmul(last.hessian, end) + matmul(w.y_last, h_last) + matmul(w.z_last, g_last)
        defects, y, z = (einsum("tij,tj->ti", J, steps) for J in matrices)
        return Unknowns(
            jnp.concatenate([by_step[:, :n], by_end[None]]) - w.costates,
            by_step[:, n:],
            jnp.concatenate([jnp.zeros_like(end)[None], defects]) - w.dxs,
            y,
            z,
            matmul(h_last, end),
            matmul(g_last, end),
        )

    def free(self, w: Unknowns) -> Unknowns:
        """The unknowns w, with zeros for the inactive ones."""
        return w._replace(
            dus=jnp.where(self.held, 0, w.dus),
            z=jnp.where(self.active, w.z, 0),
            z_last=jnp.where(self.active_last, w.z_last, 0),
        )


def _system(problem: Problem, p: PyTree, point: Point) -> System:
    xs, us, costates, multipliers, _ = point
    # With an infinite mu, y_hat = y and z_hat = z.
    infinite = jnp.asarray(jnp.inf, us.dtype)
    linear = linearise(problem, p, xs, us, costates, multipliers, infinite, True)
    lower, upper = control_bounds(problem, us)
    _, z, _, z_last, by_bounds = multipliers
    return System(linear, (by_bounds != 0) | (lower == upper)[None], z > 0, z_last > 0)


class Refinement(NamedTuple):
    """The state of the refinement of a linear solve.

    `rest`: the residual of the unknowns w; `error`: its largest entry; `improves`: whether the
    last refinement has halved the error; `number`: the number of refinements.
    """

    w: Unknowns
    rest: Unknowns
    error: Array
    improves: Array
    number: Array


def _solved(system: System, right: Unknowns) -> Unknowns:
    """The solution of the linear system of the head of the module."""

    def inactive(w):
        return jax.tree.map(jnp.subtract, w, system.free(w))

    def product(w):
        return _sum(system.free(system.product(system.free(w))), inactive(w))

    def solve(right):
        sweep = _penalised(system)
        found = _sum(sweep(right), inactive(right))
        if not any(x.size for x in (right.y, right.z, right.y_last, right.z_last)):
            return found

        def residual(w):
            return jax.tree.map(jnp.subtract, right, product(w))

        def improves(state):
            return state.improves & (state.number < REFINEMENTS)

        def refine(state):
            new = _sum(state.w, sweep(state.rest))
            rest = residual(new)
            error = largest(*rest)
            halved, better = error < 0.5 * state.error, error < state.error
            w = select(better, new, state.w)
            return Refinement(w, rest, error, halved, state.number + 1)

        rest = residual(found)
        begun = jnp.asarray(True), jnp.zeros((), int)
        return lax.while_loop(improves, refine, Refinement(found, rest, largest(*rest), *begun)).w

    # One vector: JAX transposes a linear solve only if every operand depends on the tangents.
    b, tree = ravel_pytree(right)

    def flat(function):
        return lambda x: ravel_pytree(function(tree(x)))[0]

    solver = flat(solve)
    found = lax.custom_linear_solve(flat(product), b, lambda _, b: solver(b), symmetric=True)
    return tree(found)


def _penalised(system: System):
    """The solver of the system with -mu in the diagonal of the rows of the multipliers."""
    inner, last = system.linear
    n, dtype = last.hessian.shape[0], last.hessian.dtype
    J, J_last = inner.jacobians, last.jacobians
    C = jnp.concatenate([J.h, jnp.where(system.active[:, :, None], J.g, 0)], axis=1)
    C_last = jnp.concatenate([J_last.h, jnp.where(system.active_last[:, None], J_last.g, 0)])
    scale = largest(C, C_last) ** 2 / largest(inner.hessian, last.hessian)
    usable = jnp.isfinite(scale) & (scale > 0)
    mu = jnp.where(usable, scale, 1) * float(jnp.finfo(dtype).eps) ** 0.5
    H = inner.hessian + einsum("tki,tkj->tij", C, C) / mu
    H_last = last.hessian + matmul(C_last.T, C_last) / mu
    A, B = J.defect[:, :, :n], J.defect[:, :, n:]
    a, a_last = J.h.shape[1], J_last.h.shape[0]

    def sweep(right):
        e = jnp.concatenate([right.y, right.z], axis=1)
        e_last = jnp.concatenate([right.y_last, right.z_last])
        by_step = einsum("tki,tk->ti", C, e) / mu
        gradient = right.dxs + jnp.concatenate([by_step[:, :n], matmul(e_last, C_last)[None] / mu])
        stages = LqrStages(
            A,
            B,
            -right.costates[1:],
            jnp.concatenate([H[:, :n, :n], H_last[None]]),
            H[:, n:, n:],
            H[:, n:, :n],
            -gradient,
            -right.dus - by_step[:, n:],
        )
        stages = clamped(stages, system.held, jnp.zeros_like(right.dus))
        found = lqr(stages, -right.costates[0])
        steps = jnp.concatenate([found.xs[:-1], found.us], axis=1)
        weights = (einsum("tki,ti->tk", C, steps) - e) / mu
        last_weights = (matmul(C_last, found.xs[-1]) - e_last) / mu
        return system.free(
            Unknowns(
                found.xs,
                found.us,
                found.costates,
                weights[:, :a],
                weights[:, a:],
                last_weights[:a_last],
                last_weights[a_last:],
            )
        )

    return sweep
