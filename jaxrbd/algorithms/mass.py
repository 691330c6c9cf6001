"""Mass, centre of mass and mechanical energy of the whole robot."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from .._math.linear import einsum, matmul
from ..model import Model, arguments
from ..model.joint_space import (
    armature_force,
    dissipative_force,
    joint_rates,
    relative_velocities,
)
from ..spatial import Pose, apply_inertia
from ..tree import propagate
from .kinematics import (
    Kinematics,
    RootedPose,
    configuration_of,
    first_root_centred,
    forward_kinematics,
    poses_in_parents,
)


@arguments.compiled
def total_mass(model: Model) -> Float[Array, ""]:
    """Mass of all moving bodies in kg. Links that are welded to the world do not count."""
    return jnp.sum(arguments.robot(model).inertia[:, 0])


@arguments.compiled(arrays=("q",))
def center_of_mass(model: Model, q: Array | Kinematics) -> Float[Array, "3"]:
    """Centre of mass of all moving bodies, in the world, (3,) in m.

    `q` (nq,) or its `Kinematics`. The result is zero where the total mass is zero.
    """
    return center_of_mass_frame(model, forward_kinematics.unchecked(model, q)).X_WF.p


def center_of_mass_frame(model: Model, kinematics: Kinematics) -> RootedPose:
    """The frame with world axes at the centre of mass.

    In the `RootedPose`, positions are relative to the origin of body 0, the root body of the first
    tree.
    """
    mass, moment, origin = _mass_moments(model, kinematics)
    axes, has_mass = jnp.eye(3, dtype=model.dtype), mass != 0
    com = jnp.where(has_mass, moment / jnp.where(has_mass, mass, 1), 0)
    return RootedPose(Pose(axes, com), jnp.where(has_mass, origin, 0))


def _mass_moments(
    model: Model, kinematics: Kinematics
) -> tuple[Float[Array, ""], Float[Array, "3"], Float[Array, "3"]]:
    """The mass of all bodies, its first moment, and the world position of the first root body.

    The first moment (3,) in kg m is mass times centre of mass, in world axes, relative to the
    origin of the first root body.
    """
    X, mass = first_root_centred(model, kinematics), model.inertia[:, 0]
    moment = model.inertia[:, 1:4]
    origin = kinematics.X_PB.p[0] if model.nb else jnp.zeros(3, model.dtype)
    return jnp.sum(mass), matmul(mass, X.p) + einsum("iab,ib->a", X.R, moment), origin


@arguments.compiled(arrays=("q", "v"))
def kinetic_energy(model: Model, q: Array | Kinematics, v: Array) -> Float[Array, ""]:
    """Kinetic energy `v^T M v / 2` in J, with the energy of the armature.

    `q` (nq,) or its `Kinematics`, `v` (nv,). Source: Featherstone (2.67), summed over the bodies.
    """
    X = poses_in_parents(model, q)
    q = configuration_of(q)
    V = propagate(model.topology, X, relative_velocities(model, q, v))
    bodies = jnp.sum(V * apply_inertia(model.inertia, V))
    return (bodies + jnp.sum(v * armature_force(model, q, joint_rates(model, q, v)))) / 2


@arguments.compiled(arrays=("q",))
def potential_energy(model: Model, q: Array | Kinematics) -> Float[Array, ""]:
    """Potential energy of gravity in J, `-m g . c`.

    `q` (nq,) or its `Kinematics`. The energy is zero if the centre of mass c is at the world's
    origin.
    """
    mass, moment, origin = _mass_moments(model, forward_kinematics.unchecked(model, q))
    return -jnp.sum((moment + mass * origin) * model.gravity)


@arguments.compiled(arrays=("q", "v"))
def passive_force(model: Model, q: Array | Kinematics, v: Array) -> Float[Array, " nv"]:
    """Joint forces of viscous damping and Coulomb friction, (nv,) in N or N m.

    The springs and other forces of `PassiveForces` are not among them.

    The force of each joint is `-(damping v + friction sign(v))`, with sign(0) = 0. The forces of
    mimic joints are mapped to the joints that they follow. `q` (nq,) or its `Kinematics`, `v`
    (nv,). The algorithms include this force only for a model made by `Model.with_dissipation`. For
    other models, the algorithms leave this force out, as Pinocchio does; to include this force,
    pass `tau + passive_force(model, q, v)` to `forward_dynamics`. The derivative of the friction in
    v is zero, also at v = 0, where the friction jumps.
    """
    return -dissipative_force(model, configuration_of(q), v)
