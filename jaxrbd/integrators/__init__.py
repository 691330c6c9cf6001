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

from .rollout import rollout
from .steps import (
    explicit_euler,
    runge_kutta_munthe_kaas,
    semi_implicit_euler,
    variational_midpoint,
)

__all__ = [
    "explicit_euler",
    "rollout",
    "runge_kutta_munthe_kaas",
    "semi_implicit_euler",
    "variational_midpoint",
]
