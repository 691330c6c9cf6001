"""Momentum about the centre of mass: its matrix, rate and derivatives; the Jacobian of the CoM.

Everything is in world axes about the robot's centre of mass c, which moves: seen from c, a force or
momentum of the bodies changes by its rate about a fixed point less `[dc/dt; 0] x*` of it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from ..model import Model, arguments
from ..model.joint_space import independent_force, velocity_map_rate
from ..spatial import (
    Pose,
    apply_inertia,
    cross_force,
    gyroscopic_force,
    inertia_center_of_mass,
    inertia_rate_from_moments,
    momentum_from_moments,
    transform_inertia,
    velocity_moments,
)
from .common_frame import (
    accelerations,
    apply_chain_rule,
    centred,
    dof_columns,
    subtree_sums,
    velocities,
    velocity_map_derivatives,
)
from .kinematics import Kinematics, first_root_centred, forward_kinematics
from .rnea_derivatives import composites, force_columns


class CentroidalDerivatives(NamedTuple):
    """Derivatives of the centroidal momentum h in q, and of its rate in q, v and a, each (6, nv).

    h's own derivative in v, and that of its rate in a, is the centroidal momentum matrix A. The
    linear halves over the mass are the derivatives of the CoM's velocity and acceleration.
    """

    dh_dq: Array
    dhdot_dq: Array
    dhdot_dv: Array
    A: Array


@arguments.compiled
def com_jacobian(model: Model, q: ArrayLike | Kinematics) -> Float[Array, "3 nv"]:
    """Jacobian of the centre of mass: J with its velocity `J v` in world axes, (3, nv).

    The derivative of `center_of_mass` in the tangent space. `q` (nq,) or its `Kinematics`. Zero
    where the total mass is zero. Raises ArgumentError on a wrong shape or dtype.
    """
    return _over_mass(model, centroidal_momentum_matrix(model, q)[:3])


@arguments.compiled
def centroidal_momentum_matrix(model: Model, q: ArrayLike | Kinematics) -> Float[Array, "6 nv"]:
    """The matrix A of the centroidal momentum: `h = A v`, (6, nv).

    `q` (nq,) or its `Kinematics`. World axes, about the centre of mass. Raises ArgumentError on a
    wrong shape or dtype. Source: Orin, Goswami and Lee (2013), equation 24.
    """
    kinematics = forward_kinematics(model, q)
    X, inertia = _about_com(model, kinematics)
    (composite,) = subtree_sums(model, inertia)
    columns = apply_inertia(composite, dof_columns(model, X))
    return independent_force(model, kinematics.q, columns).T


@arguments.compiled
def centroidal_momentum(model: Model, q: ArrayLike, v: ArrayLike) -> Float[Array, "6"]:
    """Momentum `[m dc/dt; L]` of all moving bodies about their centre of mass, (6,).

    `q` (nq,), `v` (nv,). World axes, in N s and N m s; the rotors that armature stands for have no
    share. Raises ArgumentError on a wrong shape or dtype. Source: Orin, Goswami and Lee (2013).
    """
    q, v = arguments.configuration(model, q), arguments.velocity(model, v)
    X, inertia = _about_com(model, forward_kinematics(model, q))
    return jnp.sum(apply_inertia(inertia, velocities(model, X, q, v).V), axis=0)


@arguments.compiled
def centroidal_momentum_rate(
    model: Model, q: ArrayLike, v: ArrayLike, a: ArrayLike
) -> Float[Array, "6"]:
    """Rate of `centroidal_momentum`, `A a + dA/dt v`: what external forces and gravity sum to.

    `q` (nq,), `v` (nv,), `a` (nv,); the result (6,) in N and N m, in world axes, about the centre
    of mass. Raises ArgumentError on a wrong shape or dtype. Source: Orin, Goswami and Lee (2013).
    """
    q, v = arguments.configuration(model, q), arguments.velocity(model, v)
    a = arguments.velocity(model, a, "a")
    X, inertia = _about_com(model, forward_kinematics(model, q))
    motion = velocities(model, X, q, v)
    A, _ = accelerations(model, q, v, a, motion)
    return jnp.sum(apply_inertia(inertia, A) + gyroscopic_force(inertia, motion.V), axis=0)


@arguments.compiled
def centroidal_momentum_matrix_dot(
    model: Model, q: ArrayLike, v: ArrayLike
) -> Float[Array, "6 nv"]:
    """Time derivative of `centroidal_momentum_matrix` along v, (6, nv).

    `q` (nq,), `v` (nv,). Raises ArgumentError on a wrong shape or dtype.
    Source: Wensing and Orin (2016).
    """
    q, v = arguments.configuration(model, q), arguments.velocity(model, v)
    X, inertia = _about_com(model, forward_kinematics(model, q))
    motion = velocities(model, X, q, v)
    composite, moments = subtree_sums(model, inertia, velocity_moments(inertia, motion.V))
    momentum = apply_inertia(composite, motion.J)
    h = jnp.sum(apply_inertia(inertia, motion.V), axis=0)
    columns = (
        apply_inertia(inertia_rate_from_moments(moments), motion.J)
        + apply_inertia(composite, motion.J_dot)
        - cross_force(_linear(_over_mass(model, h[:3])), momentum)
    )
    columns = independent_force(model, q, columns)
    if not model.velocity_map_is_constant:
        G_dot, _ = velocity_map_rate(model, q, v)
        columns = columns + jnp.matmul(G_dot.T, momentum, precision="highest")
    return columns.T


@arguments.compiled
def centroidal_derivatives(
    model: Model, q: ArrayLike, v: ArrayLike, a: ArrayLike
) -> CentroidalDerivatives:
    """Derivatives of `centroidal_momentum` and of `centroidal_momentum_rate`.

    `q` (nq,), `v` (nv,), `a` (nv,). Returns `(dh_dq, dhdot_dq, dhdot_dv, A)`, each (6, nv), those
    in q in the tangent space. Raises ArgumentError on a wrong shape or dtype. Source: as for
    `rnea_derivatives`; the composite forces of the dofs, seen from the centre of mass.
    """
    q, v = arguments.configuration(model, q), arguments.velocity(model, v)
    a = arguments.velocity(model, a, "a")
    X, inertia = _about_com(model, forward_kinematics(model, q))
    motion = velocities(model, X, q, v)
    A, psi_ddot = accelerations(model, q, v, a, motion)
    of = composites(model, inertia, motion.V, A, None)
    in_q, in_v, in_a = force_columns(of, motion, psi_ddot)
    h_of_dofs = momentum_from_moments(of.moments)
    h_q = cross_force(motion.J, h_of_dofs) + apply_inertia(of.inertia, motion.psi_dot)

    # The centre of mass moves along with dof j by c_j.
    c = _linear(_over_mass(model, in_a[:, :3]))
    total = jnp.sum(apply_inertia(inertia, A) + gyroscopic_force(inertia, motion.V), axis=0)
    h_q = h_q - cross_force(c, jnp.sum(apply_inertia(inertia, motion.V), axis=0))
    in_q = in_q - cross_force(c, total)
    through = velocity_map_derivatives(model, q, v, a)
    dh_dq, _, _ = apply_chain_rule(model, q, through, h_q.T, in_a.T, jnp.zeros_like(in_a.T))
    dhdot_dq, dhdot_dv, A_G = apply_chain_rule(model, q, through, in_q.T, in_v.T, in_a.T)
    return CentroidalDerivatives(dh_dq, dhdot_dq, dhdot_dv, A_G)


def _about_com(model: Model, kinematics: Kinematics) -> tuple[Pose, Array]:
    """The bodies' poses and inertias about the centre of mass of all, in world axes."""
    near = first_root_centred(model, kinematics)
    com = inertia_center_of_mass(jnp.sum(transform_inertia(near, model.inertia), axis=0))
    X = centred(near, com)
    return X, transform_inertia(X, model.inertia)


def _over_mass(model: Model, momentum: Array) -> Array:
    """A linear momentum as the velocity of the centre of mass; zero where there is no mass."""
    mass = jnp.sum(model.inertia[:, 0])
    has_mass = mass != 0
    return jnp.where(has_mass, momentum / jnp.where(has_mass, mass, 1), 0)


def _linear(v: Array) -> Array:
    """The motion `[v; 0]`."""
    return jnp.concatenate([v, jnp.zeros_like(v)], axis=-1)
