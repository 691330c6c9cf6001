"""Time integration on the configuration manifold: single steps, and rollouts of many steps.

Each integrator is a pure function `step(model, dynamics, q, v, dt)` that returns (q, v) after `dt`
seconds. `dynamics(q, v)` returns the acceleration (nv,), for example
`lambda q, v: forward_dynamics(model, q, v, tau)`; it can contain a feedback law or constraints. The
model defines the manifold, and configurations stay on it.

Other quantities can be integrated with the state: time, work, the state of a motor. Pass them as
`z`, an array or a pytree of arrays. With z, `dynamics(q, v, z)` returns the acceleration and the
rate of z, and the step returns (q, v, z), with z in the model's dtype. For time, the rate is 1.

    integrator                  order   evaluations   preserves
    explicit_euler              1       1             linear velocities of bodies without forces
    semi_implicit_euler         1       1             also energy approximately, if M is constant
    runge_kutta_munthe_kaas     4       4             energy and momenta, to the fourth order
    variational_midpoint        2       implicit      momenta; energy approximately; time symmetry

`step_derivatives` computes a step and its derivatives. A negative `dt` integrates backward in time.
A step raises ArgumentError for a `dt` that is known and not finite.
The steps are not compiled: apply `jax.jit` to the function that calls them.
"""

from .rollout import rollout
from .step_derivatives import StepDerivatives, step_derivatives
from .steps import (
    explicit_euler,
    runge_kutta_munthe_kaas,
    semi_implicit_euler,
    variational_midpoint,
)

__all__ = [
    "StepDerivatives",
    "explicit_euler",
    "rollout",
    "runge_kutta_munthe_kaas",
    "semi_implicit_euler",
    "step_derivatives",
    "variational_midpoint",
]
