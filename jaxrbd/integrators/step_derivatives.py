"""Derivatives of one time step: the linear model of trajectory optimisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from ..configuration import displacement, integrate
from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.names import described
from .analytic_acceleration import acceleration
from .steps import time_step


class StepDerivatives(NamedTuple):
    """A time step `(q', v') = step(q, v, tau)` and its derivatives in the tangent space.

    `q` (nq,), `v` (nv,): the state (q', v') after the step. `A` (2 nv, 2 nv): the derivative of
    (q', v') by (q, v). `B` (2 nv, nv): the derivative of (q', v') by tau. Changes of q and of q'
    are vectors (nv,): the change dq moves q to `integrate(model, q, dq)`.
    """

    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    A: Float[Array, "n n"]
    B: Float[Array, "n nv"]


def step_derivatives(
    model: Model,
    integrator: Callable[..., Any],
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    dt: ArrayLike,
    f_ext: ArrayLike | None = None,
) -> StepDerivatives:
    """One step of an integrator under constant joint forces, and its derivatives.

    - `integrator`: a step of `jaxrbd.integrators`, for example `semi_implicit_euler`;
    - `q` (nq,), `v` (nv,): the state before the step; `tau` (nv,) in N or N m; `dt` () in s;
    - `f_ext` (nb, 6): external forces as in `forward_dynamics`, constant in the body frames.

    The derivatives of the acceleration are analytic (`forward_dynamics_derivatives`), and computed
    once per evaluation of the dynamics. JAX differentiates the remaining formulas of the step in
    forward mode. The result can be differentiated again. Raises ArgumentError for arrays of another
    shape or dtype, for a known dt that is not finite, and for an integrator that is no function,
    cannot be called as a step, or does not return (q, v).
    """
    q, v = arguments.configuration(model, q), arguments.velocity(model, v)
    arguments.require_callable("integrator", integrator, "(model, dynamics, q, v, dt)")
    tau, dt = arguments.velocity(model, tau, "tau"), time_step(model, dt)
    f_ext = None if f_ext is None else arguments.wrenches(model, f_ext)

    def step(q, v, tau):
        def dynamics(q, v):
            return acceleration((model, f_ext), q, v, tau)

        found = integrator(model, dynamics, q, v, dt)
        if not isinstance(found, tuple) or len(found) != 2:
            raise ArgumentError(
                f"the result of integrator is {described(found)}, expected the pair (q, v)"
            )
        q, v = found
        return (
            arguments.configuration(model, q, "q of the result of integrator"),
            arguments.velocity(model, v, "v of the result of integrator"),
        )

    return derivatives_of_step(model, step, q, v, tau)


def derivatives_of_step(
    model: Model, step: Callable[..., tuple[Array, Array]], q: Array, v: Array, tau: Array
) -> StepDerivatives:
    """The state (q, v) that `step(q, v, tau)` returns, and its derivatives by JAX."""

    def end(dq, v, tau):
        ends = step(integrate(model, q, dq), v, tau)
        return ends, ends

    columns, (q_next, v_next) = jax.jacfwd(end, (0, 1, 2), has_aux=True)(jnp.zeros_like(v), v, tau)
    dq, dv = (jnp.concatenate(blocks, axis=1) for blocks in columns)
    dq = jax.vmap(lambda q_dot: displacement.unchecked(model, q_next, q_dot), 1, 1)(dq)
    AB = jnp.concatenate([dq, dv])
    return StepDerivatives(q_next, v_next, AB[:, : 2 * model.nv], AB[:, 2 * model.nv :])
