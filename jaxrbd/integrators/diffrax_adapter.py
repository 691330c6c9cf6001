"""Motion as a differential equation for the solvers of diffrax: `pip install 'jaxrbd[diffrax]'`.

The state is (q, v), or (q, v, z) as in `jaxrbd.integrators`. A solver adds multiples of dq/dt to
q, so that quaternions leave their unit sphere by the solver's own error; nothing here reads their
length, and `normalized` takes it away. Adaptive steps and dense output are what this is for; at
a fixed step, `jaxrbd.integrators.runge_kutta_munthe_kaas` stays on the manifold.
"""

from __future__ import annotations

import diffrax
import jax.numpy as jnp

from ..configuration import configuration_rate, integrate
from ..model import Model
from .steps import Dynamics, rates


def ode_term(model: Model, dynamics: Dynamics) -> diffrax.ODETerm:
    """The equation `d(q, v)/dt = (N(q) v, dynamics(q, v))` as a term of diffrax.

    `dynamics` as in `jaxrbd.integrators`. For `diffrax.diffeqsolve(ode_term(model, dynamics),
    solver, t0, t1, dt0, (q, v), ...)`; a y0 of (q, v, z) integrates z along. Raises ArgumentError
    when solved with a wrong shape or dtype.
    """

    def field(t, y, args):
        q, v, *rest = y
        a, *rate = rates(model, dynamics, q, v, *rest)
        return configuration_rate(model, q, v), a, *rate[: len(rest)]

    return diffrax.ODETerm(field)


def normalized(model: Model, y: tuple) -> tuple:
    """The state with unit quaternions: the same configuration; for batches, `jax.vmap` it."""
    q, *rest = y
    return integrate(model, q, jnp.zeros(model.nv, model.dtype)), *rest
