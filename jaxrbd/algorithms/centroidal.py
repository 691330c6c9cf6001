"""Centroidal momentum, its matrix, and their derivatives; the Jacobian of the centre of mass.

All quantities are in world axes about the centre of mass c of the robot. The point c moves. Let o
be the fixed point that coincides with c at this instant. The time derivative of a spatial force or
momentum F about c is its time derivative about o, minus `[dc/dt; 0] x* F`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from .._math.linear import matmul
from ..model import Model, arguments
from ..model.joint_space import independent_force, velocity_map_rate
from ..spatial import (
    Pose,
    apply_inertia,
    cross_force,
    from_linear,
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
    """Derivatives of the centroidal momentum h by q, and of dh/dt by q, v and a, each (6, nv).

    `A` is the centroidal momentum matrix: the derivative of h in v and of dh/dt in a. The first
    three rows of a matrix are the linear part. Divided by the total mass, they are the derivatives
    of the velocity of the centre of mass (for h) or of its acceleration (for dh/dt).
    """

    dh_dq: Array
    dhdot_dq: Array
    dhdot_dv: Array
    A: Array


@arguments.compiled(arrays=("q",))
def com_jacobian(model: Model, q: Array | Kinematics) -> Float[Array, "3 nv"]:
    """Jacobian J of the centre of mass, (3, nv).

    `q` (nq,) or its `Kinematics`. `J v` is the velocity of the centre of mass in world axes. J is
    the derivative of `center_of_mass` in the tangent space. J is zero where the total mass is zero.
    """
    return _divided_by_mass(model, centroidal_momentum_matrix.unchecked(model, q)[:3])


@arguments.compiled(arrays=("q",))
def centroidal_momentum_matrix(model: Model, q: Array | Kinematics) -> Float[Array, "6 nv"]:
    """Centroidal momentum matrix A, (6, nv): the centroidal momentum is `A v`.

    `q` (nq,) or its `Kinematics`. The momentum is in world axes, about the centre of mass.
    Source: Orin, Goswami and Lee (2013), equation 24.
    """
    kinematics = forward_kinematics.unchecked(model, q)
    X, inertia = _about_com(model, kinematics)
    (composite,) = subtree_sums(model, inertia)
    columns = apply_inertia(composite, dof_columns(model, X))
    return independent_force(model, kinematics.q, columns).T


@arguments.compiled(arrays=("q", "v"))
def centroidal_momentum(model: Model, q: Array | Kinematics, v: Array) -> Float[Array, "6"]:
    """Momentum `[m dc/dt; L]` of all moving bodies about their centre of mass, (6,).

    `q` (nq,) or its `Kinematics`, `v` (nv,). c is the centre of mass and L the angular momentum, in
    world axes, in N s and N m s. The armature does not contribute.
    Source: Orin, Goswami and Lee (2013).
    """
    kinematics = forward_kinematics.unchecked(model, q)
    X, inertia = _about_com(model, kinematics)
    return jnp.sum(apply_inertia(inertia, velocities(model, X, kinematics.q, v).V), axis=0)


@arguments.compiled(arrays=("q", "v", "a"))
def centroidal_momentum_rate(
    model: Model, q: Array | Kinematics, v: Array, a: Array
) -> Float[Array, "6"]:
    """Time derivative of `centroidal_momentum`, `A a + dA/dt v`, (6,).

    `q` (nq,) or its `Kinematics`, `v` (nv,), `a` (nv,). The result equals the sum of gravity and
    all external forces, in N and N m, in world axes, about the centre of mass.
    Source: Orin, Goswami and Lee (2013).
    """
    kinematics = forward_kinematics.unchecked(model, q)
    X, inertia = _about_com(model, kinematics)
    velocity = velocities(model, X, kinematics.q, v)
    A_bodies, _ = accelerations(model, kinematics.q, v, a, velocity)
    return jnp.sum(apply_inertia(inertia, A_bodies) + gyroscopic_force(inertia, velocity.V), axis=0)


@arguments.compiled(arrays=("q", "v"))
def centroidal_momentum_matrix_dot(
    model: Model, q: Array | Kinematics, v: Array
) -> Float[Array, "6 nv"]:
    """Time derivative of `centroidal_momentum_matrix` at velocity v, (6, nv).

    `q` (nq,) or its `Kinematics`, `v` (nv,). Source: Wensing and Orin (2016).
    """
    kinematics = forward_kinematics.unchecked(model, q)
    X, inertia = _about_com(model, kinematics)
    velocity = velocities(model, X, kinematics.q, v)
    composite, moments = subtree_sums(model, inertia, velocity_moments(inertia, velocity.V))
    momentum = apply_inertia(composite, velocity.J)
    h = jnp.sum(apply_inertia(inertia, velocity.V), axis=0)
    columns = (
        apply_inertia(inertia_rate_from_moments(moments), velocity.J)
        + apply_inertia(composite, velocity.J_dot)
        - cross_force(from_linear(_divided_by_mass(model, h[:3])), momentum)
    )
    columns = independent_force(model, kinematics.q, columns)
    if not model.velocity_map_is_constant:
        G_dot, _ = velocity_map_rate(model, kinematics.q, v)
        columns = columns + matmul(G_dot.T, momentum)
    return columns.T


@arguments.compiled(arrays=("q", "v", "a"))
def centroidal_derivatives(
    model: Model, q: Array | Kinematics, v: Array, a: Array
) -> CentroidalDerivatives:
    """Derivatives of `centroidal_momentum` and of `centroidal_momentum_rate`.

    `q` (nq,) or its `Kinematics`, `v` (nv,), `a` (nv,). Returns `(dh_dq, dhdot_dq, dhdot_dv, A)`,
    each (6, nv); derivatives in q are in the tangent space. Source: Singh, Russell and Wensing
    (2022), as for `rnea_derivatives`, with the centre of mass as the origin.
    """
    kinematics = forward_kinematics.unchecked(model, q)
    X, inertia = _about_com(model, kinematics)
    velocity = velocities(model, X, kinematics.q, v)
    A_bodies, psi_ddot = accelerations(model, kinematics.q, v, a, velocity)
    composite = composites(model, inertia, velocity.V, A_bodies, None)
    dF_dq, dF_dv, dF_da = force_columns(
        composite, velocity.J, velocity.J_dot, velocity.psi_dot, psi_ddot
    )
    composite_momentum = momentum_from_moments(composite.moments)
    dh_dq = cross_force(velocity.J, composite_momentum)
    dh_dq = dh_dq + apply_inertia(composite.inertia, velocity.psi_dot)

    # Row j of dc_dq is `[c_j; 0]`: a unit displacement of dof j moves the centre of mass by c_j.
    dc_dq = from_linear(_divided_by_mass(model, dF_da[:, :3]))
    force = jnp.sum(
        apply_inertia(inertia, A_bodies) + gyroscopic_force(inertia, velocity.V), axis=0
    )
    dh_dq = dh_dq - cross_force(dc_dq, jnp.sum(apply_inertia(inertia, velocity.V), axis=0))
    dF_dq = dF_dq - cross_force(dc_dq, force)
    map_derivatives = velocity_map_derivatives(model, kinematics.q, v, a)

    def in_velocities(*rows):
        return apply_chain_rule(model, kinematics.q, map_derivatives, *(x.T for x in rows))

    return CentroidalDerivatives(
        in_velocities(dh_dq, dF_da, jnp.zeros_like(dF_da))[0], *in_velocities(dF_dq, dF_dv, dF_da)
    )


def _about_com(model: Model, kinematics: Kinematics) -> tuple[Pose, Array]:
    """Poses and inertias of the bodies about the centre of mass of the robot, in world axes."""
    X_root = first_root_centred(model, kinematics)
    com = inertia_center_of_mass(jnp.sum(transform_inertia(X_root, model.inertia), axis=0))
    X = centred(X_root, com)
    return X, transform_inertia(X, model.inertia)


def _divided_by_mass(model: Model, momentum: Array) -> Array:
    """A linear momentum divided by the total mass; zero where the total mass is zero."""
    mass = jnp.sum(model.inertia[:, 0])
    has_mass = mass != 0
    return jnp.where(has_mass, momentum / jnp.where(has_mass, mass, 1), 0)
