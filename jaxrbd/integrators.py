"""Integration of motion: one step of time on the configuration manifold, and many.

Each integrator is a pure function `step(model, dynamics, q, v, dt)` that returns (q, v) after `dt`
seconds. `dynamics(q, v)` is the acceleration (nv,): a closure over whatever acts, such as
`lambda q, v: forward_dynamics(model, q, v, tau)`, a feedback law, or constrained dynamics; the
model says on which manifold the motion takes place. A configuration moves by
`jaxrbd.integrate` alone, so it never leaves its manifold.

Quantities that are integrated along with the state (time, work, the state of a motor) are `z`, an
array or a pytree of them: with it, `dynamics(q, v, z)` returns the acceleration and the rate of z,
and the step returns (q, v, z), z in the model's dtype. Time is a z of rate 1.

    integrator                  order   evaluations   keeps
    explicit_euler              1       1             nothing
    semi_implicit_euler         1       1             energy near its value where M is constant
    runge_kutta_munthe_kaas     4       4             everything, to the fourth order
    variational_midpoint        2       implicit      momenta; energy near its value; symmetric

A negative `dt` goes back in time. The steps are not compiled by themselves: `jax.jit` what calls
them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike
from jaxtyping import PyTree

from . import arguments, se3
from ._algorithms.crba import mass_matrix_product, minverse
from ._algorithms.forward_dynamics import solve_mass_matrix
from ._linear import matmul, solve
from .configuration import integrate, lie_operation, velocity_bracket
from .errors import ArgumentError
from .model import Model

Dynamics = Callable[..., Any]


def explicit_euler(
    model: Model, dynamics: Dynamics, q: ArrayLike, v: ArrayLike, dt: ArrayLike, z: PyTree = None
) -> tuple:
    """One step with the rates at its start: `q exp(dt v)`, `v + dt a(q, v)`; first order.

    `q` (nq,), `v` (nv,), `dt` in s, `z` as the module says. Returns (q, v), or (q, v, z). Raises
    ArgumentError on a wrong shape or dtype. Source: SE(3) sheet of Pinocchio, the joint integrator.
    """
    q, v, dt, z = _checked(model, q, v, dt, z)
    a, rate = rates(model, dynamics, q, v, z)
    return _state(integrate(model, q, dt * v), v + dt * a, _add(z, dt, rate))


def semi_implicit_euler(
    model: Model, dynamics: Dynamics, q: ArrayLike, v: ArrayLike, dt: ArrayLike, z: PyTree = None
) -> tuple:
    """One step with the velocity at its end: `v' = v + dt a(q, v)`, `q exp(dt v')`; first order.

    Arguments, results and errors as of `explicit_euler`. What physics engines for games do. It is
    symplectic where M is constant, and only there.
    """
    q, v, dt, z = _checked(model, q, v, dt, z)
    a, rate = rates(model, dynamics, q, v, z)
    v = v + dt * a
    return _state(integrate(model, q, dt * v), v, _add(z, dt, rate))


def runge_kutta_munthe_kaas(
    model: Model, dynamics: Dynamics, q: ArrayLike, v: ArrayLike, dt: ArrayLike, z: PyTree = None
) -> tuple:
    """One step of the classical Runge-Kutta method in exponential coordinates; fourth order.

    With `q(t) = integrate(q, u(t))` the motion is an ordinary differential equation of u, which
    lies in a vector space: `du/dt = v + [u, v] / 2 + [u, [u, v]] / 12`. The next term has four
    brackets and is of fifth order in a step; the signs are those of body velocities. Arguments,
    results and errors as of `explicit_euler`.

    The stages are a loop, for the sake of the time that a gradient takes to compile.
    Source: Munthe-Kaas (1999), High order Runge-Kutta methods on manifolds.
    """
    q, v, dt, z = _checked(model, q, v, dt, z)

    def slope(y):
        u, v, z = y
        twist = velocity_bracket(model, u, v)
        du = v + twist / 2 + velocity_bracket(model, u, twist) / 12
        return du, *rates(model, dynamics, integrate(model, q, u), v, z)

    u, v, z = _runge_kutta_4(slope, (jnp.zeros_like(v), v, z), dt)
    return _state(integrate(model, q, u), v, z)


def variational_midpoint(
    model: Model, dynamics: Dynamics, q: ArrayLike, v: ArrayLike, dt: ArrayLike, z: PyTree = None
) -> tuple:
    """One step of stationary action, with the Lagrangian at the middle of the step; second order.

    The action of a step x is `dt L(integrate(q, x / 2), x / dt)`, and its derivatives in the two
    ends are the momenta `p = M v` there:

        2 M(middle) x / dt = J(x / 2)^T p + J(-x / 2)^T p'
        p' = p + dt d(M v)/dt, at the middle with `v = x / dt` and the acceleration there

    where J is the left Jacobian of the exponential. The first is solved for x. Without forces the
    step is symplectic: the energy stays near its value however long the motion, and momenta whose
    symmetry the model has are kept to rounding. The step is symmetric: `-dt` leads back. Forces
    of all kinds are in `dynamics`, and enter as a virtual work in the middle. Arguments, results
    and errors as of `explicit_euler`.

    Derivatives are those of the implicit function, not of the iterations. The result is NaN where
    the iterations do not converge: a step too large, or friction that jumps.
    Source: Marsden and West (2001), Discrete mechanics and variational integrators, sections 1.5
    and 3.2; on groups, Bou-Rabee and Marsden (2009), Hamilton-Pontryagin integrators on Lie groups.
    """
    q, v, dt, z = _checked(model, q, v, dt, z)

    def middle(x, dz):
        """The momentum of the middle, its rate, and what z gains in the step."""
        v = x / dt
        along = (dt / 2,), (jnp.ones_like(dt),)
        at, at_rate = jax.jvp(lambda time: integrate(model, q, time * v), *along)
        a, z_rate = rates(model, dynamics, at, v, _add(z, 0.5, dz))
        momentum = functools.partial(mass_matrix_product, model)
        return *jax.jvp(momentum, (at, v), (at_rate, a)), _scale(dt, z_rate)

    p = mass_matrix_product(model, q, v)
    as_step = lax.stop_gradient(dt * minverse(model, q))  # about the inverse of the slope in x

    def residual(unknown):
        x, dz = unknown
        p_middle, p_rate, gained = middle(x, dz)
        ends = _to_middle(model, x / 2, p) + _to_middle(model, -x / 2, p + dt * p_rate)
        missing = matmul(as_step, p_middle - ends / 2)
        return missing, _add(dz, -1, gained)

    x, dz = _root(residual, (dt * v, _scale(0, z)))
    _, p_rate, _ = middle(x, dz)
    q_next = integrate(model, q, x)
    v_next = solve_mass_matrix(model, q_next, p + dt * p_rate)
    return _state(q_next, v_next, _add(z, 1, dz))


def _to_middle(model: Model, y: Array, p: Array) -> Array:
    """`J(y)^T p`, with J the left Jacobian of the exponential on the configuration manifold."""

    def less_one(xi, m):
        return jnp.einsum("...ij,...j->...i", se3.left_jacobian(xi), m, precision="highest") - m

    (change,) = jax.linear_transpose(lambda w: lie_operation(model, less_one, y, w), p)(p)
    return p + change


def rollout(
    step: Callable[..., tuple], state: tuple, inputs: PyTree = None, steps: int | None = None
) -> tuple:
    """The states of many steps, the first included: each array has one more axis, the first.

    - `step(*state)` or, with inputs, `step(*state, row)` returns the next state: a closure over
      one of the integrators, the model and dt;
    - `state`: (q, v), (q, v, z), or whatever the step takes;
    - `inputs`: an array (n, ...) or a pytree of them, one row a step, such as the joint forces;
    - `steps`: their number, where there are no inputs.

    Reverse mode keeps the states alone and computes the inside of each step again, so its memory
    is that of the states. Raises ArgumentError unless exactly one of `inputs` and `steps` is given.
    """
    if (inputs is None) == (steps is None):
        raise ArgumentError("rollout takes either inputs, one row a step, or the number of steps")

    @jax.checkpoint
    def advance(state, row):
        state = step(*state) if inputs is None else step(*state, row)
        return state, state

    state = jax.tree.map(jnp.asarray, state)
    _, states = lax.scan(advance, state, inputs, length=steps)
    return jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), state, states)


# --------------------------------------------------------------------------- what the steps share


def _checked(model: Model, q, v, dt, z) -> tuple[Array, Array, Array, PyTree]:
    """The arguments as arrays of the model's dtype, and shapes as they should be."""
    q, v = arguments.configuration(model, q), arguments.velocity(model, v)
    dt = arguments.number(model, dt, "dt")
    return q, v, dt, jax.tree.map(lambda x: jnp.asarray(x, model.dtype), z)


def rates(
    model: Model, dynamics: Dynamics, q: Array, v: Array, z: PyTree = None
) -> tuple[Array, PyTree]:
    """The acceleration, and the rate of z; None where there is no z."""
    if z is None:
        return arguments.velocity(model, dynamics(q, v), "the result of dynamics(q, v)"), None
    result = dynamics(q, v, z)
    if not isinstance(result, tuple) or len(result) != 2:
        raise ArgumentError(
            "with z, dynamics(q, v, z) returns two: the acceleration, the rate of z"
        )
    a, rate = result
    rate = jax.tree.map(lambda x: jnp.asarray(x, model.dtype), rate)
    expected, found = (jax.tree.map(jnp.shape, x) for x in (z, rate))
    if expected != found:
        raise ArgumentError(f"dynamics gives a rate of z of shape {found}, expected {expected}")
    return arguments.velocity(model, a, "the acceleration of dynamics(q, v, z)"), rate


def _state(q, v, z: PyTree) -> tuple[Any, ...]:
    return (q, v) if z is None else (q, v, z)


def _scale(factor, y: PyTree) -> PyTree:
    return jax.tree.map(lambda y: factor * y, y)


def _add(y: PyTree, factor, rate: PyTree) -> PyTree:
    """`y + factor rate`, leaf by leaf."""
    return jax.tree.map(lambda y, rate: y + factor * rate, y, rate)


# A stage starts a part of the step, TIMES, along the rates of the stage before it.
TIMES = np.array([0, 1, 1, 2]) / 2
WEIGHTS = np.array([1, 2, 2, 1]) / 6


def _runge_kutta_4(slope: Callable[[tuple], tuple], y: tuple, dt: Array) -> tuple:
    """One step of `dy/dt = slope(y)` in a vector space, by the classical method of order four."""

    def stage(carry, row):
        rates, mean = carry
        time, weight = row
        rates = slope(_add(y, time * dt, rates))
        return (rates, _add(mean, weight, rates)), None

    rows = (jnp.asarray(TIMES, dt.dtype), jnp.asarray(WEIGHTS, dt.dtype))
    zeros = jax.tree.map(jnp.zeros_like, y)
    (_, mean), _ = lax.scan(stage, (zeros, zeros), rows)
    return _add(y, dt, mean)


MAX_ITERATIONS = 30


def _root(residual: Callable[[tuple], tuple], guess: tuple) -> tuple:
    """The solution of `residual(x) = 0`, whose slope is about one; NaN if it is not found.

    By Broyden's method, which needs no derivatives: a few evaluations more than Newton's, and a
    program of a fifth of the size. It ends when the next correction would be lost in rounding, or
    when rounding stops its progress. Derivatives are those of the implicit function.
    Source: Dennis and Schnabel (1996), Numerical methods for unconstrained optimization, section 8.
    """
    start, unravel = ravel_pytree(guess)
    eps = jnp.finfo(start.dtype).eps

    def largest(x):
        return jnp.max(jnp.abs(x), initial=0)

    def flat(x):
        return ravel_pytree(residual(unravel(x)))[0]

    def unfinished(carry):
        x, *_, (last, before), count = carry
        rounding = eps * (largest(x) + eps)
        stopped = (last >= before) & (last**2 <= rounding * largest(x))
        return (last**2 > rounding * before) & ~stopped & (count < MAX_ITERATIONS)

    def broyden(flat, start):
        def iterate(carry):
            x, step, f_before, H, (last, _), count = carry
            f = flat(x)
            change = matmul(H, f - f_before)
            along = matmul(step, change)
            H = H + jnp.outer(step - change, matmul(step, H)) / jnp.where(along == 0, 1, along)
            step = -matmul(H, f)
            return x + step, step, f, H, (largest(step), last), count + 1

        zero, one = jnp.zeros_like(start), jnp.eye(start.size, dtype=start.dtype)
        unknown = jnp.ones((), start.dtype)
        carry = start, zero, zero, one, (unknown, unknown), 0
        x, *_, (last, _), _ = lax.while_loop(unfinished, iterate, carry)
        return jnp.where(last <= jnp.sqrt(eps) * (largest(x) + eps), x, jnp.nan)

    def tangent_solve(linear, b):
        return solve(jax.jacfwd(linear)(jnp.zeros_like(b)), b)

    return unravel(lax.custom_root(flat, start, broyden, tangent_solve))
