"""The integrators: one time step each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import PyTree

from .. import se3
from .._math.linear import einsum, matmul
from .._math.recompute import recompute, stored
from .._math.root import find_root
from ..algorithms.crba import mass_matrix_product, minverse
from ..algorithms.forward_dynamics import solve_mass_matrix
from ..configuration import (
    displace,
    integrate,
    lie_operation,
    transport,
    turning_acceleration,
    velocity_bracket,
)
from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.names import described

Dynamics = Callable[..., Any]


def explicit_euler(
    model: Model, dynamics: Dynamics, q: ArrayLike, v: ArrayLike, dt: ArrayLike, z: PyTree = None
) -> tuple:
    """One step with the rates at its start: q moves with v, and `v' = v + dt a(q, v)`; first order.

    a is the acceleration from `dynamics`. `q` (nq,), `v` (nv,), `dt` () in s; `dynamics` and `z` as
    described in `jaxrbd.integrators`. Returns (q, v), or (q, v, z).

    Linear velocities of free-flyers and planar joints are in axes that turn with the body. During
    the step, these velocities are in the axes at q: v moves q by `displace(model, q, dt v)`, v' is
    `v + dt (a + w x v)` in the axes at q, and `transport` expresses v' in the new axes. Here w is
    the angular velocity. So a body without forces keeps its linear velocity, if its origin is the
    centre of mass. If a step added `dt a` to the entries of v, the kinetic energy would grow like
    `exp(w^2 dt t)`. For joints whose axes do not turn, q moves by `integrate(model, q, dt v)`.
    Source: SE(3) sheet of Pinocchio, the joint integrator, for these joints.
    """
    q, v, dt, z = _checked(model, q, v, dt, z)
    a, rate = rates(model, dynamics, q, v, z)
    v_next = v + dt * (a + turning_acceleration(model, v))
    dx = dt * v
    q, v = displace(model, q, dx), transport(model, v_next, dx)
    return _state(q, v, _add(z, dt, rate))


def semi_implicit_euler(
    model: Model, dynamics: Dynamics, q: ArrayLike, v: ArrayLike, dt: ArrayLike, z: PyTree = None
) -> tuple:
    """One step with the velocity at its end: `v' = v + dt a(q, v)`, and q moves with v'.

    First order. Same arguments, axes and results as `explicit_euler`. Many physics engines use this
    step. It is symplectic only where M is constant.

    The step is explicit in the gyroscopic force, which is part of the acceleration. So a body that
    rotates about an axis other than a principal axis gains kinetic energy, to first order in dt:
    the guide to the integrators gives values. `contact_step` has no such gain.
    """
    q, v, dt, z = _checked(model, q, v, dt, z)
    a, rate = rates(model, dynamics, q, v, z)
    v = v + dt * (a + turning_acceleration(model, v))
    dx = dt * v
    q, v = displace(model, q, dx), transport(model, v, dx)
    return _state(q, v, _add(z, dt, rate))


def runge_kutta_munthe_kaas(
    model: Model, dynamics: Dynamics, q: ArrayLike, v: ArrayLike, dt: ArrayLike, z: PyTree = None
) -> tuple:
    """One step of the classical Runge-Kutta method in exponential coordinates; fourth order.

    With `q(t) = integrate(q, u(t))`, the vector u (nv,) satisfies the differential equation
    `du/dt = v + [u, v] / 2 + [u, [u, v]] / 12`, where [u, v] is the Lie bracket of two velocities.
    The next term of the series has four brackets. It would change the result of a step only by
    terms of order dt^5, which do not matter for a method of fourth order. The signs are for
    velocities in the body frame. Same arguments and results as `explicit_euler`.

    The stages are a `lax.scan`, which shortens the compilation of gradients.
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
    """One step of stationary action, with the Lagrangian at the midpoint of the step; second order.

    The step moves the configuration from q to `integrate(q, x)`, where the displacement x (nv,) is
    unknown. The midpoint is `integrate(q, x / 2)`. The action of the step is dt times the
    Lagrangian at the midpoint and at the velocity `x / dt`. The derivatives of the action with
    respect to the two ends of the step give equations for x and for the momenta `p = M v` and
    `p' = M v'` at the ends:

        2 M(midpoint) x / dt = J(x / 2)^T p + J(-x / 2)^T p'
        p' = p + dt d(M v)/dt

    J is the left Jacobian of the exponential. The rate `d(M v)/dt` is evaluated at the midpoint,
    with the velocity `x / dt` and the acceleration from `dynamics`. The equations are solved for
    `x / dt`.
    Without forces the step is symplectic: the energy stays near its initial value for any number of
    steps, and momenta of the symmetries of the model are preserved to rounding. The step is
    symmetric: a second step with `-dt` returns to the start. Forces are part of `dynamics`; their
    virtual work is evaluated at the midpoint. Same arguments and results as `explicit_euler`.

    JAX differentiates the implicit function and not the iterations. The result is NaN where the
    iterations do not converge, for example for large time steps or for discontinuous friction. In
    single precision, angles of hundreds of turns have too large rounding errors.
    Source: Marsden and West (2001), Discrete mechanics and variational integrators, sections 1.5
    and 3.2; on groups, Bou-Rabee and Marsden (2009), Hamilton-Pontryagin integrators on Lie groups.
    """
    q, v, dt, z = _checked(model, q, v, dt, z)

    def midpoint_rates(v, dz):
        """The momentum at the midpoint, the rate of this momentum, and the change of z."""
        q_middle, q_rate = jax.jvp(
            lambda time: integrate(model, q, time * v), (dt / 2,), (jnp.ones_like(dt),)
        )
        a, z_rate = rates(model, dynamics, q_middle, v, _add(z, 0.5, dz))
        momentum = functools.partial(mass_matrix_product, model)
        return *jax.jvp(momentum, (q_middle, v), (q_rate, a)), _scale(dt, z_rate)

    p = mass_matrix_product(model, q, v)
    inverse = lax.stop_gradient(minverse(model, q))  # approximates the inverse of M(midpoint)

    def residual(unknown):
        v_middle, dz = unknown
        p_middle, p_rate, gained = midpoint_rates(v_middle, dz)
        x = dt * v_middle
        ends = _midpoint_part(model, x / 2, p) + _midpoint_part(model, -x / 2, p + dt * p_rate)
        missing = matmul(inverse, p_middle - ends / 2)
        # The sizes of the terms, in whose units `find_root` measures the residuals.
        momenta = jnp.abs(p_middle) + jnp.abs(p) + jnp.abs(dt * p_rate)
        size = matmul(jnp.abs(inverse), momenta)
        size_z = jax.tree.map(lambda *terms: sum(map(jnp.abs, terms)), z, dz, gained)
        return (missing, _add(dz, -1, gained)), (size, size_z)

    v_middle, dz = find_root(residual, (v, _scale(0, z)))
    _, p_rate, _ = midpoint_rates(v_middle, dz)
    q_next = integrate(model, q, dt * v_middle)
    # Solve for the change of v: a solve for v_next would add a rounding error of v in each step.
    missing = (p - mass_matrix_product(model, q_next, v)) + dt * p_rate
    v_next = v + solve_mass_matrix(model, q_next, missing)
    return _state(q_next, v_next, _add(z, 1, dz))


def _midpoint_part(model: Model, y: Array, p: Array) -> Array:
    """`J(y)^T p`, with J the left Jacobian of the exponential on the configuration manifold."""

    def change_by_jacobian(xi, m):
        return einsum("...ij,...j->...i", se3.left_jacobian(xi), m) - m

    (change,) = jax.linear_transpose(lambda w: lie_operation(model, change_by_jacobian, y, w), p)(p)
    return p + change


# ----------------------------------------------------------------------------- shared functions


def _checked(model: Model, q, v, dt, z) -> tuple[Array, Array, Array, PyTree]:
    """The arguments as arrays of the model's dtype, with checked shapes."""
    q, v = arguments.configuration(model, q), arguments.velocity(model, v)
    dt = time_step(model, dt)
    return q, v, dt, _real_arrays(model, z, "z")


def _real_arrays(model: Model, tree: PyTree, name: str) -> PyTree:
    """The leaves as arrays of the model's dtype. Raises ArgumentError if one is no real number."""
    kinds = "real floating", "integral"
    for x in jax.tree.leaves(tree):
        if not arguments.is_array(x) or not jnp.isdtype(jnp.result_type(x), kinds):
            raise ArgumentError(f"{name} contains {described(x)}, expected arrays of real numbers")
    return jax.tree.map(lambda x: jnp.asarray(x, model.dtype), tree)


def time_step(model: Model, dt: ArrayLike) -> Array:
    """dt () in the model's dtype. Raises ArgumentError for a known dt that is not finite."""
    checked = arguments.number(model, dt, "dt")
    arguments.FINITE.check_known("dt", dt)
    return checked


def rates(
    model: Model, dynamics: Dynamics, q: Array, v: Array, z: PyTree = None
) -> tuple[Array, PyTree]:
    """The acceleration (nv,) and the rate of z; the rate is None if z is None."""
    if not callable(dynamics):
        raise ArgumentError(
            f"dynamics is {described(dynamics)}, expected a function dynamics(q, v) that returns "
            "the acceleration"
        )
    if z is None:
        return arguments.velocity(model, dynamics(q, v), "the result of dynamics(q, v)"), None
    result = dynamics(q, v, z)
    if not isinstance(result, tuple) or len(result) != 2:
        raise ArgumentError(
            "expected that dynamics(q, v, z) returns two results: the acceleration and the rate "
            "of z"
        )
    a, rate = result
    rate = _real_arrays(model, rate, "the rate of z from dynamics")
    expected, found = (jax.tree.map(jnp.shape, x) for x in (z, rate))
    if expected != found:
        raise ArgumentError(f"the rate of z from dynamics has shape {found}, expected {expected}")
    return arguments.velocity(model, a, "the acceleration of dynamics(q, v, z)"), rate


def _state(q, v, z: PyTree) -> tuple[Any, ...]:
    return (q, v) if z is None else (q, v, z)


def _scale(factor, y: PyTree) -> PyTree:
    return jax.tree.map(lambda y: factor * y, y)


def _add(y: PyTree, factor, rate: PyTree) -> PyTree:
    """`y + factor rate`, for each leaf."""
    return jax.tree.map(lambda y, rate: y + factor * rate, y, rate)


# TIMES: the fractions of the step at which the stages evaluate the rates. A stage reaches its time
# with the rates of the previous stage. WEIGHTS: the weights of the stages in the mean rates.
TIMES = np.array([0, 1, 1, 2]) / 2
WEIGHTS = np.array([1, 2, 2, 1]) / 6


def _runge_kutta_4(slope: Callable[[tuple], tuple], y: tuple, dt: Array) -> tuple:
    """One step of `dy/dt = slope(y)` in a vector space, by the classical method of order four."""

    @recompute
    def stage(carry, row):
        rates, mean = carry
        rates = stored(rates)
        time, weight = row
        rates = slope(_add(y, time * dt, rates))
        return (rates, _add(mean, weight, rates)), None

    rows = (jnp.asarray(TIMES, dt.dtype), jnp.asarray(WEIGHTS, dt.dtype))
    zeros = jax.tree.map(jnp.zeros_like, y)
    (_, mean), _ = lax.scan(stage, (zeros, zeros), rows)
    return _add(y, dt, mean)
