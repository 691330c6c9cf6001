"""Mass, centre of mass and mechanical energy of the whole robot."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .. import arguments
from ..joint_space import armature_force, dissipation, joint_motion, joint_poses, joint_rates
from ..model import Model
from ..spatial import apply_inertia, inertia_center_of_mass, transform_inertia
from ..tree import propagate
from .kinematics import Kinematics, forward_kinematics


@jax.jit
def total_mass(model: Model) -> Float[Array, ""]:
    """Mass of all moving bodies in kg; links welded to the world are no part of it."""
    return jnp.sum(arguments.robot(model).inertia[:, 0])


@jax.jit
def center_of_mass(model: Model, q: ArrayLike | Kinematics) -> Float[Array, "3"]:
    """Centre of mass of all moving bodies, in the world, (3,) in m.

    `q` (nq,) or its `Kinematics`. The origin where the total mass is zero. Raises ArgumentError on
    a wrong shape or dtype.
    """
    in_world = transform_inertia(forward_kinematics(model, q).X_WB, model.inertia)
    return inertia_center_of_mass(jnp.sum(in_world, axis=0))


@jax.jit
def kinetic_energy(model: Model, q: ArrayLike, v: ArrayLike) -> Float[Array, ""]:
    """Kinetic energy `v^T M v / 2` in J, the armature's included.

    `q` (nq,), `v` (nv,). Raises ArgumentError on a wrong shape or dtype.
    Source: Featherstone (2.67), summed over the bodies.
    """
    q, v = arguments.configuration(model, q), arguments.velocity(model, v)
    V = propagate(model.topology, joint_poses(model, q), joint_motion(model, q, v))
    bodies = jnp.sum(V * apply_inertia(model.inertia, V))
    return (bodies + jnp.sum(v * armature_force(model, q, joint_rates(model, q, v)))) / 2


@jax.jit
def potential_energy(model: Model, q: ArrayLike | Kinematics) -> Float[Array, ""]:
    """Potential energy of gravity in J, `-m g . c`, zero with the mass at the world's origin.

    `q` (nq,) or its `Kinematics`. Raises ArgumentError on a wrong shape or dtype.
    """
    in_world = transform_inertia(forward_kinematics(model, q).X_WB, model.inertia)
    return -jnp.sum(jnp.sum(in_world[:, 1:4], axis=0) * model.gravity)


@jax.jit
def passive_force(model: Model, q: ArrayLike, v: ArrayLike) -> Float[Array, " nv"]:
    """Joint forces of viscous damping and Coulomb friction, (nv,) in N or N m.

    `-(damping v + friction sign(v))` of every joint, with sign(0) = 0; mimic joints' shares are
    mapped to their leaders. `q` (nq,), `v` (nv,). The algorithms hold it only for a model made by
    `Model.with_dissipation`; otherwise their results are Pinocchio's, and
    `tau + passive_force(model, q, v)` is what to pass to `forward_dynamics`. The derivative of the
    friction in v is zero, at v = 0 too, where it jumps. Raises ArgumentError on a wrong shape or
    dtype.
    """
    return -dissipation(model, arguments.configuration(model, q), arguments.velocity(model, v))
