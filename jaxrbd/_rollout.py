"""One trajectory under given torques: its simulation, its energy balance, the cost of its end.

Everything here is written for one trajectory and batched by `jax.vmap`; the command
`jaxrbd rollout` does that.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ._algorithms.forward_dynamics import forward_dynamics
from ._algorithms.mass import kinetic_energy, passive_force, potential_energy
from .configuration import difference, integrate, neutral
from .model import Model


class Trajectory(NamedTuple):
    """`n` steps: configurations, velocities, and the work done on the robot since the start.

    `q` (n + 1, nq), `v` (n + 1, nv), `work` (n + 1,) in J, by torques and damping.
    """

    q: Float[Array, "n_states nq"]
    v: Float[Array, "n_states nv"]
    work: Float[Array, " n_states"]


def rk4_step(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    dt: Float[Array, ""],
) -> tuple[Float[Array, " nq"], Float[Array, " nv"], Float[Array, ""]]:
    """Advance the state by `dt` seconds under a constant joint force `tau`; fourth order.

    Returns q, v and the work (J) that `tau` and the passive forces do meanwhile, by the same
    quadrature as the state. The configuration moves along its manifold by `integrate` alone.
    Source: Celledoni, Marthinsen and Owren (2003), Commutator-free Lie group methods, section 3.
    """

    def rate(q, v):
        force = tau + passive_force(model, v)
        return forward_dynamics(model, q, v, force), jnp.sum(force * v)

    v1 = v
    a1, power1 = rate(q, v1)
    q2, v2 = integrate(model, q, dt / 2 * v1), v + dt / 2 * a1
    a2, power2 = rate(q2, v2)
    q3, v3 = integrate(model, q, dt / 2 * v2), v + dt / 2 * a2
    a3, power3 = rate(q3, v3)
    q4, v4 = integrate(model, q2, dt * (v3 - v1 / 2)), v + dt * a3
    a4, power4 = rate(q4, v4)

    halfway = integrate(model, q, dt / 12 * (3 * v1 + 2 * v2 + 2 * v3 - v4))
    q_next = integrate(model, halfway, dt / 12 * (-v1 + 2 * v2 + 2 * v3 + 3 * v4))
    v_next = v + dt / 6 * (a1 + 2 * a2 + 2 * a3 + a4)
    return q_next, v_next, dt / 6 * (power1 + 2 * power2 + 2 * power3 + power4)


def simulate(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, "n nv"],
    dt: Float[Array, ""],
) -> Trajectory:
    """Simulate one step of `dt` seconds for each row of `tau`, from the state (q, v).

    Reverse mode keeps the states alone and computes the inside of each step again, so its memory
    is that of the trajectory.
    """

    @jax.checkpoint
    def step(state, tau):
        q, v, work = state
        q, v, more = rk4_step(model, q, v, tau, dt)
        state = (q, v, work + more)
        return state, state

    start = (q, v, jnp.zeros((), model.dtype))
    _, states = jax.lax.scan(step, start, tau)
    return Trajectory(*jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), start, states))


def cost(
    model: Model, trajectory: Trajectory, tau: Float[Array, "n nv"], dt: Float[Array, ""]
) -> Float[Array, ""]:
    """Half the squared distance of the end from neutral, plus `EFFORT_WEIGHT` times the effort.

    The distance is that of the tangent space (`difference`); the effort is the integral of
    |tau|^2 / 2 over time.
    """
    miss = difference(model, neutral(model), trajectory.q[-1])
    return (jnp.sum(miss**2) + EFFORT_WEIGHT * dt * jnp.sum(tau**2)) / 2


EFFORT_WEIGHT = 1e-3


def energy_error(model: Model, trajectory: Trajectory) -> Float[Array, " n_states"]:
    """`|energy - first energy - work|` at each state, over the energy that was in motion.

    That scale is the largest kinetic energy plus the range of the potential energy, so it does not
    depend on where the potential energy is zero.
    """
    kinetic = jax.vmap(kinetic_energy, (None, 0, 0))(model, trajectory.q, trajectory.v)
    potential = jax.vmap(potential_energy, (None, 0))(model, trajectory.q)
    energy = kinetic + potential
    scale = jnp.max(kinetic) + jnp.max(potential) - jnp.min(potential)
    return jnp.abs(energy - energy[0] - trajectory.work) / jnp.maximum(scale, TINY_ENERGY)


TINY_ENERGY = 1e-12  # J: a robot that does not move has no scale of its own
