"""The equations of motion for the solvers of diffrax: `pip install diffrax`.

The state is (q, v), or (q, v, z) as in `jaxrbd.integrators`. A solver adds multiples of dq/dt to q,
so the length of a quaternion changes by the error of the solver. The dynamics do not depend on the
length, and `normalized` restores unit length. Use this module for adaptive steps and dense output.
For a fixed step, `jaxrbd.integrators.runge_kutta_munthe_kaas` stays on the manifold.
"""

from __future__ import annotations

import diffrax
import jax.numpy as jnp

from ..configuration import configuration_rate, integrate
from ..model import Model
from .steps import Dynamics, rates


def ode_term(model: Model, dynamics: Dynamics) -> diffrax.ODETerm:
    """The equation `d(q, v)/dt = (N(q) v, dynamics(q, v))` as a term of diffrax.

    `N(q) v` is `configuration_rate(model, q, v)`; `dynamics` as in `jaxrbd.integrators`. Example:
    `diffrax.diffeqsolve(ode_term(model, dynamics), solver, t0, t1, dt0, (q, v), ...)`. With the
    initial state (q, v, z), z is integrated too.
    """

    def field(t, y, args):
        q, v, *z = y
        a, z_rate = rates(model, dynamics, q, v, *z)
        rate = configuration_rate(model, q, v), a
        return (*rate, z_rate) if z else rate

    return diffrax.ODETerm(field)


def normalized(model: Model, y: tuple) -> tuple:
    """The state (q, v) or (q, v, z) with unit quaternions; for batches use `jax.vmap`."""
    q, *rest = y
    return integrate(model, q, jnp.zeros(model.nv, model.dtype)), *rest
