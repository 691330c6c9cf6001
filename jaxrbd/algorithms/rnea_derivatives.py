"""Analytic derivatives of inverse and of forward dynamics, as masked matrix products.

Move the configuration along dof j: its subtree turns rigidly by J_j, and all that the subtree sees
change is the motion of the world around it. So each body's force changes by
`J_j x* F + I psi_ddot_j + 2 B psi_dot_j`, and the forces of a subtree by the same with its
composites; J_k rides along where k lies in the subtree, which cancels the first term there.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from .._math.linear import inverse_positive_definite, matmul
from ..model import Model, arguments
from ..model.joint_space import (
    armature_and_dissipation_force,
    armature_inertia,
    displaced_coordinates,
    independent_force,
    project_diagonal,
)
from ..spatial import (
    apply_inertia,
    apply_velocity_moments,
    apply_velocity_moments_transpose,
    cross_force,
    gyroscopic_force,
    transform_force,
    transform_inertia,
    velocity_moments,
)
from .common_frame import (
    Velocities,
    accelerations,
    apply_chain_rule,
    at_or_above,
    row_products,
    strictly_above,
    subtree_sums,
    symmetric_product,
    velocities,
    velocity_map_derivatives,
)
from .forward_dynamics import forward_dynamics
from .kinematics import forward_kinematics, root_centred
from .rnea import gravity_acceleration


class RneaDerivatives(NamedTuple):
    """Derivatives of tau = rnea(model, q, v, a), each (nv, nv); in a it is the mass matrix M."""

    dtau_dq: Array
    dtau_dv: Array
    M: Array


class ForwardDynamicsDerivatives(NamedTuple):
    """Derivatives of a = forward_dynamics(model, q, v, tau), each (nv, nv)."""

    dqdd_dq: Array
    dqdd_dv: Array
    Minv: Array


class Composites(NamedTuple):
    """What the subtree of each dof amounts to, a row a dof: inertia, velocity moments and force."""

    inertia: Array
    moments: Array
    force: Array


def composites(
    model: Model, inertia: Array, V: Array, A: Array, f_world: Array | None
) -> Composites:
    """Sums over the subtrees of the bodies' inertias (nb, 10), velocity moments and forces."""
    force = apply_inertia(inertia, A) + gyroscopic_force(inertia, V)
    force = force if f_world is None else force - f_world
    return Composites(*subtree_sums(model, inertia, velocity_moments(inertia, V), force))


def force_columns(
    of: Composites, motion: Velocities, psi_ddot: Array
) -> tuple[Array, Array, Array]:
    """Derivatives of each dof's composite force in its q, v and a: rows (nv_tree, 6)."""
    J, J_dot, psi_dot = motion.J, motion.J_dot, motion.psi_dot
    in_q = (
        cross_force(J, of.force)
        + apply_inertia(of.inertia, psi_ddot)
        + 2 * apply_velocity_moments(of.moments, psi_dot)
    )
    in_v = apply_inertia(of.inertia, J_dot + psi_dot) + 2 * apply_velocity_moments(of.moments, J)
    return in_q, in_v, apply_inertia(of.inertia, J)


@arguments.compiled
def rnea_derivatives(
    model: Model, q: ArrayLike, v: ArrayLike, a: ArrayLike, f_ext: ArrayLike | None = None
) -> RneaDerivatives:
    """Derivatives of `rnea` in q (in the tangent space), v and a, by matrix products.

    - `q` (nq,), `v` (nv,), `a` (nv,); `f_ext` (nb, 6), constant in the bodies' own frames.

    Returns `(dtau_dq, dtau_dv, M)`, each (nv, nv), in N or N m per unit of q, v and a; column j of
    the first is the derivative along `integrate(model, q, t e_j)`. Raises ArgumentError on a wrong
    shape or dtype. Source: Singh, Russell and Wensing (2022), for joints of any width and with the
    twelve `spatial.velocity_moments` per body.
    """
    q = arguments.configuration(model, q)
    v = arguments.velocity(model, v)
    a = arguments.velocity(model, a, "a")
    X = root_centred(forward_kinematics(model, q))
    f_world = None if f_ext is None else transform_force(X, arguments.wrenches(model, f_ext))
    motion = velocities(model, X, q, v)
    A, psi_ddot = accelerations(model, q, v, a, motion, gravity_acceleration(model))
    of = composites(model, transform_inertia(X, model.inertia), motion.V, A, f_world)
    in_q, in_v, in_a = force_columns(of, motion, psi_ddot)

    # Below dof j its columns meet the composites of dof k; above it, its own.
    J, below, above = motion.J, at_or_above(model).T, strictly_above(model)
    turned = 2 * apply_velocity_moments_transpose(of.moments, J)
    left = jnp.concatenate([in_a, turned], axis=-1)
    right_q = jnp.concatenate([psi_ddot, motion.psi_dot[:, 3:]], axis=-1)
    right_v = jnp.concatenate([motion.J_dot + motion.psi_dot, J[:, 3:]], axis=-1)
    D_q = jnp.where(below, row_products(left, right_q), jnp.where(above, row_products(J, in_q), 0))
    D_v = jnp.where(below, row_products(left, right_v), jnp.where(above, row_products(J, in_v), 0))
    M = symmetric_product(model, J, in_a)

    tau = jnp.sum(J * of.force, axis=-1)
    return _in_independent(model, q, v, a, tau, RneaDerivatives(D_q, D_v, M))


def _in_independent(
    model: Model, q: Array, v: Array, a: Array, tau: Array, of_tree: RneaDerivatives
) -> RneaDerivatives:
    """From the tree's derivatives to those of `G^T tau`, with the armature's and the friction's."""
    of_rates = apply_chain_rule(model, q, velocity_map_derivatives(model, q, v, a), *of_tree)
    D_q, D_v, M = (independent_force(model, q, D) for D in of_rates)
    M = M + armature_inertia(model, q)
    if model.velocity_map_is_constant:
        # That of Coulomb friction is zero.
        damping = project_diagonal(model, q, model.damping) if model.dissipative else 0
        return RneaDerivatives(D_q, D_v + damping, M)

    def force(dq, dv):
        """What depends on q and v beside the tree's own forces."""
        q_moved = displaced_coordinates(model, q, dq)
        return independent_force(model, q_moved, tau) + armature_and_dissipation_force(
            model, q_moved, v + dv, a
        )

    zero = jnp.zeros_like(v)
    extra_q, extra_v = jax.jacfwd(force, argnums=(0, 1))(zero, zero)
    return RneaDerivatives(D_q + extra_q, D_v + extra_v, M)


@arguments.compiled
def forward_dynamics_derivatives(
    model: Model, q: ArrayLike, v: ArrayLike, tau: ArrayLike, f_ext: ArrayLike | None = None
) -> ForwardDynamicsDerivatives:
    """Derivatives of `forward_dynamics` in q (in the tangent space), v and tau.

    Arguments as for `forward_dynamics`. Returns `(dqdd_dq, dqdd_dv, Minv)`, each (nv, nv):
    `-M^-1 dtau_dq`, `-M^-1 dtau_dv` and `M^-1`, with the derivatives of `rnea` at the acceleration
    that results. Where M is singular they are not finite. Raises ArgumentError on a wrong shape or
    dtype. Source: Carpentier and Mansard (2018), equation 12.
    """
    qdd = forward_dynamics(model, q, v, tau, f_ext)
    dtau_dq, dtau_dv, M = rnea_derivatives(model, q, v, qdd, f_ext)
    Minv = inverse_positive_definite(M)
    dqdd_dq, dqdd_dv = jnp.split(-matmul(Minv, jnp.concatenate([dtau_dq, dtau_dv], 1)), 2, axis=1)
    return ForwardDynamicsDerivatives(dqdd_dq, dqdd_dv, Minv)
