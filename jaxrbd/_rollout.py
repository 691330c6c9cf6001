"""One trajectory under given torques: its simulation, its energy balance, the cost of its end.

Everything here is written for one trajectory and batched by `jax.vmap`; the command
`jaxrbd rollout` does that.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
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


# Stage i starts from the configuration of stage BASE[i] and moves by SHIFT[i], a combination of the
# velocities found so far. The step ends with the two motions FINISH, one after the other, where a
# vector space needs only their sum.
BASE = np.array([0, 0, 0, 1])
SHIFT = np.array([[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [-1, 0, 2, 0]]) / 2
FINISH = np.array([[3, 2, 2, -1], [-1, 2, 2, 3]]) / 12


class _Stages(NamedTuple):
    """At each stage: q (4, nq), v and acceleration a (4, nv), power (4,) in W."""

    q: Array
    v: Array
    a: Array
    power: Array


def rk4_step(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    dt: Float[Array, ""],
) -> tuple[Float[Array, " nq"], Float[Array, " nv"], Float[Array, ""]]:
    """Advance the state by `dt` seconds under a constant joint force `tau`; fourth order.

    Returns q, v and the work (J) that `tau` and the passive forces do meanwhile, by the same
    quadrature as the state. The configuration moves along its manifold by `integrate` alone. The
    stages are a loop, for the sake of the time that a gradient takes to compile.
    Source: Celledoni, Marthinsen and Owren (2003), Commutator-free Lie group methods, section 3.
    """

    def stage(known, row):
        number, base, shift, path = row
        q_i = integrate(model, known.q[base], dt * _combine(shift, known.v))
        v_i = v + dt * _combine(path, known.a)
        force = tau + passive_force(model, q_i, v_i)
        a_i = forward_dynamics(model, q_i, v_i, force)
        found = _Stages(q_i, v_i, a_i, jnp.sum(force * v_i))
        return jax.tree.map(lambda all, one: all.at[number].set(one), known, found), None

    def finish(q, shift):
        return integrate(model, q, dt * _combine(shift, known.v)), None

    shift, path, ends = (jnp.asarray(x, model.dtype) for x in (SHIFT, SHIFT + SHIFT[BASE], FINISH))
    zeros = jnp.zeros((4, model.nv), model.dtype)
    known = _Stages(jnp.tile(q, (4, 1)), zeros, zeros, zeros[:, 0])
    known, _ = lax.scan(stage, known, (jnp.arange(4), jnp.asarray(BASE), shift, path))
    q, _ = lax.scan(finish, q, ends)
    weights = ends[0] + ends[1]
    return q, v + dt * _combine(weights, known.a), dt * _combine(weights, known.power)


def _combine(weights: Array, rates: Array) -> Array:
    """The weighted sum of the stages' rates."""
    return jnp.tensordot(weights, rates, 1, precision="highest")


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
    _, states = lax.scan(step, start, tau)
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
