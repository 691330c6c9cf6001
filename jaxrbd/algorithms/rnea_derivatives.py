"""Analytic derivatives of inverse and forward dynamics, as masked matrix products.

A small displacement of dof j moves the subtree of dof j rigidly along the dof column J_j. In a
frame that is displaced with the subtree, the poses of its bodies do not change. The displacement
has the same effect on their velocities and accelerations as an additional velocity psi_dot_j and an
additional acceleration psi_ddot_j of the world, which is the base of the tree (common_frame.py
defines the dof columns, psi_dot and psi_ddot). So the force F on a body of the subtree changes by

    J_j x* F + I psi_ddot_j + 2 B psi_dot_j,

where B is the matrix of `spatial.apply_velocity_moments`. The first term is due to the displacement
of the body, and the others are due to the change of its motion. The composite force of the subtree
changes by the same formula, with the composite force, inertia and B in place of F, I and B.

Entry [k, j] of the derivative is the change of `J_k . F_k`, where F_k is the composite force of the
subtree of dof k. Where dof k strictly supports dof j, J_k does not change, and F_k changes by the
change of F_j. Where dof k is in the subtree of dof j, J_k moves with the subtree, and the change of
J_k cancels the first term.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from .._math.linear import (
    inverse_factor,
    inverse_positive_definite,
    matmul,
    products,
    solve_positive_definite,
)
from ..model import Model, arguments
from ..model.joint_space import (
    armature_and_dissipation_force,
    armature_inertia,
    displaced_coordinates,
    independent_force,
    project_diagonal,
    tree_rates,
)
from ..spatial import (
    apply_inertia,
    apply_velocity_moments,
    apply_velocity_moments_transpose,
    cross_force,
    transform_force,
)
from ..tree import map_rows, sum_to_root
from .common_frame import (
    Velocities,
    apply_chain_rule,
    at_dofs,
    body_accelerations,
    body_inertias,
    body_quantities,
    column_derivatives,
    dof_strictly_supports,
    dof_supports,
    row_products,
    symmetric_product,
    velocities,
    velocity_map_derivatives,
)
from .equation_of_motion import EquationTerms, equation_terms
from .kinematics import Kinematics, configuration_and_poses
from .rnea import gravity_acceleration


class RneaDerivatives(NamedTuple):
    """Derivatives of tau = rnea(model, q, v, a), each (nv, nv). M is `dtau_da`."""

    dtau_dq: Array
    dtau_dv: Array
    M: Array


class ForwardDynamicsDerivatives(NamedTuple):
    """Derivatives of a = forward_dynamics(model, q, v, tau), each (nv, nv). Minv is `dqdd_dtau`."""

    dqdd_dq: Array
    dqdd_dv: Array
    Minv: Array


class Composites(NamedTuple):
    """Composite inertias (n, 10), velocity moments (n, 12) and forces (n, 6) of subtrees."""

    inertia: Array
    moments: Array
    force: Array


def _composites_of_rows(rows: Array) -> Composites:
    """The quantities in rows (n, 28)."""
    return Composites(rows[..., :10], rows[..., 10:22], rows[..., 22:])


def composites(
    model: Model, inertia: Array, V: Array, A: Array, f_common: Array | None
) -> Composites:
    """The `Composites` of the subtree of each dof, for `inertia` (nb, 10) in the common frame.

    `f_common` (nb, 6): external forces on the bodies in the common frame, or None.
    """
    rows = sum_to_root(model.topology, body_quantities(inertia, V, A, f_common))
    return _composites_of_rows(at_dofs(model, rows))


def force_columns(
    composite: Composites, J: Array, J_dot: Array, psi_dot: Array, psi_ddot: Array
) -> tuple[Array, Array, Array]:
    """For each dof j, derivatives (nv_tree, 6) of its composite force by q_j, v_j and a_j."""
    dF_dq = (
        cross_force(J, composite.force)
        + apply_inertia(composite.inertia, psi_ddot)
        + 2 * apply_velocity_moments(composite.moments, psi_dot)
    )
    dF_dv = apply_inertia(composite.inertia, J_dot + psi_dot)
    dF_dv = dF_dv + 2 * apply_velocity_moments(composite.moments, J)
    return dF_dq, dF_dv, apply_inertia(composite.inertia, J)


@arguments.compiled(arrays=("q", "v", "a", "f_ext"))
def rnea_derivatives(
    model: Model,
    q: Array | Kinematics,
    v: Array,
    a: Array,
    f_ext: Array | None = None,
) -> RneaDerivatives:
    """Derivatives of `rnea` with respect to q (in the tangent space), v and a, by matrix products.

    - `q` (nq,) or its `Kinematics`, `v` (nv,), `a` (nv,);
    - `f_ext` (nb, 6): external forces as in `rnea`, constant in the frames of the bodies.

    Returns `(dtau_dq, dtau_dv, M)`, each (nv, nv), in N or N m per unit of q, v and a. Column j of
    dtau_dq is the derivative, with respect to t at t = 0, of tau at `integrate(model, q, t e_j)`,
    where e_j is the unit vector of dof j. Source: Singh, Russell and Wensing (2022). Here joints
    may have any number of dofs, and twelve velocity moments represent the matrix B of the source.
    """
    q, X = configuration_and_poses(model, q)
    f_common = None if f_ext is None else transform_force(X, f_ext)
    velocity = velocities(model, X, q, v)
    A, aJ = body_accelerations(model, q, v, a, velocity, gravity_acceleration(model))
    bodies = body_quantities(body_inertias(model, X), velocity.V, A, f_common)
    sums = sum_to_root(model.topology, bodies)
    return _derivatives(model, q, v, a, velocity, A - aJ, sums)


def _derivatives(
    model: Model,
    q: Array,
    v: Array,
    a: Array,
    velocity: Velocities,
    A_parent: Array,
    sums: Array,
    changes: tuple[Array, ...] = (),
) -> RneaDerivatives:
    """The derivatives of `rnea` at q, v and a.

    - `velocity`: from `velocities`; `A_parent` (nb, 6): the accelerations of the parents;
    - `sums` (nb, 28): the sums of `body_quantities` over the subtrees;
    - `changes`: from `_changes_with_acceleration`, if `A_parent` and `sums` are for a = 0.
    """

    def columns(row, V, V_parent, A_parent, J, *changes):
        composite = _composites_of_rows(row)
        if changes:
            A_parent = A_parent + changes[0]
            composite = composite._replace(force=composite.force + changes[1])
        J_dot, psi_dot, psi_ddot = column_derivatives(J, V, V_parent, A_parent)
        dF_dq, dF_dv, dF_da = force_columns(composite, J, J_dot, psi_dot, psi_ddot)
        # Where dof k is in the subtree of dof j, entry [k, j] is `J_k^T (I psi_ddot_j + 2 B
        # psi_dot_j)`: row k of `left` times row j of `right_q`. The linear part of B^T J_k is zero,
        # so only the angular part of psi_dot_j counts.
        couple = 2 * apply_velocity_moments_transpose(composite.moments, J)
        left = jnp.concatenate([dF_da, couple], axis=-1)
        right_q = jnp.concatenate([psi_ddot, psi_dot[..., 3:]], axis=-1)
        right_v = jnp.concatenate([J_dot + psi_dot, J[..., 3:]], axis=-1)
        tau = jnp.sum(J * composite.force, axis=-1)
        return tau, dF_dq, dF_dv, left, right_q, right_v

    J, V_parent, body = velocity.J, velocity.V - velocity.vJ, model.topology.dof_body
    operands = sums, velocity.V, V_parent, A_parent, J, *changes
    found = map_rows(columns, *operands, indices=(body, body, body, body))
    tau, dF_dq, dF_dv, left, right_q, right_v = found

    # Entry [k, j] uses the composites of dof k if the body of dof k is the body of dof j or a
    # descendant of it. It uses the composites of dof j if the body of dof k is an ancestor of the
    # body of dof j.
    in_subtree, supports = dof_supports(model).T, dof_strictly_supports(model)
    D_q = jnp.where(
        in_subtree, row_products(left, right_q), jnp.where(supports, row_products(J, dF_dq), 0)
    )
    D_v = jnp.where(
        in_subtree, row_products(left, right_v), jnp.where(supports, row_products(J, dF_dv), 0)
    )
    M = symmetric_product(model, J, left[:, :6])
    return _map_to_independent(model, q, v, a, tau, RneaDerivatives(D_q, D_v, M))


def _changes_with_acceleration(
    model: Model, terms: EquationTerms, rates_dot: Array
) -> tuple[Array, Array]:
    """Changes of the accelerations of the parents and of the composite forces, (nv_tree, 6) each.

    Both are due to the accelerations `rates_dot` (nv_tree,) of the dofs. Products of masks with one
    row per dof need fewer kernels than passes over the bodies.
    """

    def product(mask, rows):
        return matmul(jnp.asarray(mask, rows.dtype), rows)

    supports, strictly = dof_supports(model), dof_strictly_supports(model)
    accelerations, forces = rates_dot[:, None] * terms.velocity.J, rates_dot[:, None] * terms.F
    A_body, A_parent = product(supports.T, accelerations), product(strictly.T, accelerations)
    inertia = at_dofs(model, terms.sums[:, :10])
    return A_parent, apply_inertia(inertia, A_body) + product(strictly, forces)


def _map_to_independent(
    model: Model, q: Array, v: Array, a: Array, tau: Array, tree: RneaDerivatives
) -> RneaDerivatives:
    """Derivatives, by q, v and a, of `G^T tau` plus the forces of armature and dissipation.

    `tau` (nv_tree,): generalized forces on the dofs of the tree; `tree`: the derivatives of tau
    with respect to the displacements, rates and rate derivatives of these dofs.
    """
    columns = apply_chain_rule(model, q, velocity_map_derivatives(model, q, v, a), *tree)
    D_q, D_v, M = (independent_force(model, q, D) for D in columns)
    M = M + armature_inertia(model, q)
    if model.velocity_map_is_constant:
        # The derivative of Coulomb friction is zero.
        damping = project_diagonal(model, q, model.damping) if model.dissipative else 0
        return RneaDerivatives(D_q, D_v + damping, M)

    def force(dq, dv):
        """The generalized force for constant tau, in which G^T, armature and dissipation vary."""
        q_moved = displaced_coordinates(model, q, dq)
        return independent_force(model, q_moved, tau) + armature_and_dissipation_force(
            model, q_moved, v + dv, a
        )

    zero = jnp.zeros_like(v)
    extra_q, extra_v = jax.jacfwd(force, argnums=(0, 1))(zero, zero)
    return RneaDerivatives(D_q + extra_q, D_v + extra_v, M)


@arguments.compiled(arrays=("q", "v", "tau", "f_ext"))
def forward_dynamics_derivatives(
    model: Model,
    q: Array | Kinematics,
    v: Array,
    tau: Array,
    f_ext: Array | None = None,
) -> ForwardDynamicsDerivatives:
    """Derivatives of `forward_dynamics` with respect to q (in the tangent space), v and tau.

    Arguments as for `forward_dynamics`. Returns `(dqdd_dq, dqdd_dv, Minv)`, each (nv, nv):
    `-M^-1 dtau_dq`, `-M^-1 dtau_dv` and `M^-1`, with the derivatives of `rnea` at the resulting
    acceleration. Where M is singular, the results have no meaning, as for `forward_dynamics`.
    Source: Carpentier and Mansard (2018), equation 12.
    """
    return acceleration_and_derivatives(model, q, v, tau, f_ext)[1]


def acceleration_and_derivatives(
    model: Model,
    q: Array | Kinematics,
    v: Array,
    tau: Array,
    f_ext: Array | None = None,
) -> tuple[Array, ForwardDynamicsDerivatives]:
    """The acceleration (nv,) of `forward_dynamics`, and `forward_dynamics_derivatives`."""
    q, X = configuration_and_poses(model, q)
    f_common = None if f_ext is None else transform_force(X, f_ext)
    # In a batch on a CPU, `few_kernels` replaces two loops over the bodies by products. The program
    # has fewer kernels, but takes 2 % more time for a quadruped.
    terms = equation_terms(model, q, X, v, f_common, moments=True, few_kernels=True)
    # The product of M^-1 with the force is less accurate than the solve. With this product, the
    # derivatives of a chain of 64 links in float32 would lose two digits.
    W = inverse_factor(terms.M)
    qdd = solve_positive_definite(terms.M, tau - terms.bias, W)
    Minv = inverse_positive_definite(terms.M, W)

    changes = _changes_with_acceleration(model, terms, tree_rates(model, q, qdd))
    A, aJ = terms.acceleration
    found = _derivatives(model, q, v, qdd, terms.velocity, A - aJ, terms.sums, changes)
    dqdd_dq, dqdd_dv = (-x for x in products(Minv, found.dtau_dq, found.dtau_dv))
    return qdd, ForwardDynamicsDerivatives(dqdd_dq, dqdd_dv, Minv)
