"""Simulation, energy balance and cost of one trajectory under given torques.

The command `jaxrbd rollout` applies these functions to a batch of trajectories with `jax.vmap`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ..algorithms.forward_dynamics import forward_dynamics
from ..algorithms.mass import kinetic_energy, passive_force, potential_energy
from ..configuration import difference, neutral
from ..integrators import rollout, runge_kutta_munthe_kaas
from ..model import Model


class Trajectory(NamedTuple):
    """A trajectory of n steps.

    - `q` (n + 1, nq), `v` (n + 1, nv): configurations and velocities;
    - `work` (n + 1,): work of torques and damping on the robot since the start, in J.
    """

    q: Float[Array, "n_states nq"]
    v: Float[Array, "n_states nv"]
    work: Float[Array, " n_states"]


def step(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    work: Float[Array, ""],
    tau: Float[Array, " nv"],
    dt: Float[Array, ""],
) -> tuple[Float[Array, " nq"], Float[Array, " nv"], Float[Array, ""]]:
    """The state after one Runge-Kutta step of `dt` seconds under a constant joint force `tau`.

    `model`: without dissipation, because the step itself adds damping and friction. `work`: the
    work in J of `tau`, damping and friction, integrated together with the state.
    """

    def dynamics(q, v, _):
        force = tau + passive_force(model, q, v)
        return forward_dynamics(model, q, v, force), jnp.sum(force * v)

    return runge_kutta_munthe_kaas(model, dynamics, q, v, dt, work)


def simulate(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, "n nv"],
    dt: Float[Array, ""],
) -> Trajectory:
    """Simulate one step of `dt` seconds for each row of `tau`, from the state (q, v)."""
    start = (q, v, jnp.zeros((), model.dtype))
    states = rollout(lambda q, v, work, tau: step(model, q, v, work, tau, dt), start, tau)
    return Trajectory(*states)


def cost(
    model: Model, trajectory: Trajectory, tau: Float[Array, "n nv"], dt: Float[Array, ""]
) -> Float[Array, ""]:
    """Half the squared distance from neutral at the end, plus `EFFORT_WEIGHT` times the effort.

    The distance is the norm of `difference` from the neutral to the last configuration. The effort
    is the time integral of |tau|^2 / 2.
    """
    displacement = difference(model, neutral(model), trajectory.q[-1])
    return (jnp.sum(displacement**2) + EFFORT_WEIGHT * dt * jnp.sum(tau**2)) / 2


EFFORT_WEIGHT = 1e-3  # per N^2 m^2 s


def energy_error(model: Model, trajectory: Trajectory) -> Float[Array, " n_states"]:
    """The relative error `|energy - first energy - work| / scale` at each state.

    The scale is the largest kinetic energy plus the range of the potential energy. So the scale
    does not depend on the height at which the potential energy is zero.
    """
    kinetic = jax.vmap(kinetic_energy, (None, 0, 0))(model, trajectory.q, trajectory.v)
    potential = jax.vmap(potential_energy, (None, 0))(model, trajectory.q)
    energy = kinetic + potential
    scale = jnp.max(kinetic) + jnp.max(potential) - jnp.min(potential)
    return jnp.abs(energy - energy[0] - trajectory.work) / jnp.maximum(scale, TINY_ENERGY)


TINY_ENERGY = 1e-12  # J, the smallest scale; prevents a division by 0 for a robot at rest
