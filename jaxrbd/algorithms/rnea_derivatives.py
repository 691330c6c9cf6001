"""Analytic derivatives of inverse and forward dynamics, as masked matrix products.

A small displacement of dof j moves the subtree of dof j rigidly along J_j. In a frame that is
displaced with the subtree, the poses of its bodies do not change. The displacement has the same
effect on their velocities and accelerations as an additional velocity psi_dot_j and an additional
acceleration psi_ddot_j of the world, which is the base of the tree (common_frame.py defines psi_dot
and psi_ddot). So the force F on a body of the subtree changes by `J_j x* F + I psi_ddot_j + 2 B
psi_dot_j`, where B is the matrix of `spatial.apply_velocity_moments`. The first term is due to the
displacement of the body, and the others are due to the change of its motion. The composite force of
the subtree changes by the same formula, with the composite force, inertia and B in place of F, I
and B.

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

from .._math.implementations import kernels_selected
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
    sum_over_dofs,
    tree_rates,
)
from ..spatial import (
    apply_inertia,
    apply_velocity_moments,
    apply_velocity_moments_transpose,
    cross_force,
    inertial_force,
    transform_force,
    velocity_moments,
)
from ..tree import map_rows, sum_to_leaves, sum_to_root
from .common_frame import (
    Velocities,
    apply_chain_rule,
    at_dofs,
    body_accelerations,
    body_inertias,
    column_derivatives,
    dof_strictly_supports,
    dof_supports,
    row_products,
    symmetric_product,
    velocities,
    velocity_map_derivatives,
)
from .crba import mass_matrix
from .kinematics import Kinematics, configuration_and_poses
from .rnea import gravity_acceleration


class RneaDerivatives(NamedTuple):
    """Derivatives of tau = rnea(model, q, v, a), each (nv, nv); M is the derivative in a."""

    dtau_dq: Array
    dtau_dv: Array
    M: Array


class ForwardDynamicsDerivatives(NamedTuple):
    """Derivatives of a = forward_dynamics(model, q, v, tau), each (nv, nv)."""

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
    model: Model, inertia: Array, V: Array, A: Array, f_world: Array | None
) -> Composites:
    """The `Composites` of the subtree of each dof, for `inertia` (nb, 10) in the common frame.

    `f_world` (nb, 6): external forces on the bodies in the common frame, or None.
    """
    rows = sum_to_root(model.topology, _body_quantities(inertia, V, A, f_world))
    return _composites_of_rows(at_dofs(model, rows))


def _body_quantities(inertia: Array, V: Array, A: Array, f_world: Array | None) -> Array:
    """Inertia, velocity moments and force of each body, (nb, 28)."""

    def of_body(inertia, V, A, *f_world):
        force = inertial_force(inertia, V, A)
        force = force - f_world[0] if f_world else force
        return jnp.concatenate([inertia, velocity_moments(inertia, V), force], axis=-1)

    return map_rows(of_body, inertia, V, A, *([] if f_world is None else [f_world]))


def force_columns(
    composite: Composites, J: Array, J_dot: Array, psi_dot: Array, psi_ddot: Array
) -> tuple[Array, Array, Array]:
    """For each dof j, derivatives (nv_tree, 6) of its composite force in q_j, v_j and a_j."""
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
    """Derivatives of `rnea` by q (in the tangent space), v and a, with matrix products.

    - `q` (nq,) or its `Kinematics`, `v` (nv,), `a` (nv,);
    - `f_ext` (nb, 6): external forces as in `rnea`, constant in the frames of the bodies.

    Returns `(dtau_dq, dtau_dv, M)`, each (nv, nv), in N or N m per unit of q, v and a. Column j of
    dtau_dq is the derivative, with respect to t at t = 0, of tau at `integrate(model, q, t e_j)`,
    where e_j is the unit vector of dof j. Source: Singh, Russell and Wensing (2022). Here joints
    may have any number of dofs, and twelve velocity moments represent the matrix B of the source.
    """
    q, X = configuration_and_poses(model, q)
    f_world = None if f_ext is None else transform_force(X, f_ext)
    velocity = velocities(model, X, q, v)
    A, aJ = body_accelerations(model, q, v, a, velocity, gravity_acceleration(model))
    bodies = _body_quantities(body_inertias(model, X), velocity.V, A, f_world)
    sums = sum_to_root(model.topology, bodies)
    return _derivatives(model, q, v, a, velocity, (A, aJ), sums)


def _derivatives(
    model: Model,
    q: Array,
    v: Array,
    a: Array,
    velocity: Velocities,
    acceleration: tuple[Array, Array],
    sums: Array,
    change: tuple[Array, ...] = (),
) -> RneaDerivatives:
    """The derivatives of `rnea` at q, v and a.

    `velocity` and `acceleration`: from `velocities` and `body_accelerations`; `sums` (nb, 28): the
    sums of `_body_quantities` over the subtree of each body; `change`: from
    `_changes_with_acceleration`, if `acceleration` and `sums` are the values at a = 0.
    """

    def columns(row, V, V_parent, A_parent, J, *change):
        composite = _composites_of_rows(row)
        if change:
            A_parent = A_parent + change[0]
            composite = composite._replace(force=composite.force + change[1])
        J_dot, psi_dot, psi_ddot = column_derivatives(J, V, V_parent, A_parent)
        dF_dq, dF_dv, dF_da = force_columns(composite, J, J_dot, psi_dot, psi_ddot)
        couple = 2 * apply_velocity_moments_transpose(composite.moments, J)
        left = jnp.concatenate([dF_da, couple], axis=-1)
        right_q = jnp.concatenate([psi_ddot, psi_dot[..., 3:]], axis=-1)
        right_v = jnp.concatenate([J_dot + psi_dot, J[..., 3:]], axis=-1)
        tau = jnp.sum(J * composite.force, axis=-1)
        return tau, dF_dq, dF_dv, left, right_q, right_v

    def columns_in_kernel(row, V, vJ, A, aJ, J, *change):
        return columns(row, V, V - vJ, A - aJ, J, *change)

    J, V, vJ, (A, aJ) = velocity.J, velocity.V, velocity.vJ, acceleration
    if kernels_selected():
        body = model.topology.dof_body
        indices = (*[body] * 5, None, *[body] * len(change))
        found = map_rows(columns_in_kernel, sums, V, vJ, A, aJ, J, *change, indices=indices)
    else:
        rows = [at_dofs(model, x) for x in (sums, V, V - vJ, A - aJ)]
        found = columns(*rows, J, *change)
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
    return _in_independent_velocities(model, q, v, a, tau, RneaDerivatives(D_q, D_v, M))


def _changes_with_acceleration(
    model: Model, rates_dot: Array, J: Array, F: Array, sums: Array, bodies: Array
) -> tuple[Array, Array]:
    """Changes of the acceleration of the parent and of the composite force, due to `rates_dot`.

    - `rates_dot` (nv_tree,): accelerations of the dofs; `F` (nv_tree, 6): the composite force of
      each dof per unit of its acceleration;
    - `bodies`, `sums` (nb, 28): `_body_quantities` and their sums over the subtrees.

    Returns one row per dof, (nv_tree, 6). With GPU kernels, the function returns one row per body,
    (nb, 6), because two passes need fewer kernels than three products. On a CPU the products need
    fewer kernels than the loops of the passes.
    """
    if kernels_selected():
        none = (None, None)
        aJ = sum_over_dofs(model.topology, jnp.multiply, rates_dot[:, None], J, indices=none)

        def of_body(row, A, aJ):
            return A - aJ, apply_inertia(row[..., :10], A)

        A_parent, force = map_rows(of_body, bodies, sum_to_leaves(model.topology, aJ), aJ)
        return A_parent, sum_to_root(model.topology, force)

    def product(mask, rows):
        return matmul(jnp.asarray(mask, rows.dtype), rows)

    supports, strictly = dof_supports(model), dof_strictly_supports(model)
    accelerations, forces = rates_dot[:, None] * J, rates_dot[:, None] * F
    A_body, A_parent = product(supports.T, accelerations), product(strictly.T, accelerations)
    inertia = at_dofs(model, sums[:, :10])
    return A_parent, apply_inertia(inertia, A_body) + product(strictly, forces)


def _in_independent_velocities(
    model: Model, q: Array, v: Array, a: Array, tau: Array, tree: RneaDerivatives
) -> RneaDerivatives:
    """Derivatives by q, v and a of `G^T tau` plus the forces of armature and dissipation.

    `tau` (nv_tree,): generalized forces on the dofs of the tree; `tree`: the derivatives of tau in
    the displacements, rates and rate derivatives of these dofs.
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
    """Derivatives of `forward_dynamics` by q (in the tangent space), v and tau.

    Arguments as for `forward_dynamics`. Returns `(dqdd_dq, dqdd_dv, Minv)`, each (nv, nv):
    `-M^-1 dtau_dq`, `-M^-1 dtau_dv` and `M^-1`, with the derivatives of `rnea` at the resulting
    acceleration. Where M is singular the results are not finite.
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
    f_world = None if f_ext is None else transform_force(X, f_ext)
    gravity = gravity_acceleration(model)
    # `few_kernels` avoids two loops over the bodies. For a quadruped it takes 2 % more time.
    velocity = velocities(model, X, q, v, few_kernels=True)

    # The composites at zero acceleration give M and the bias force, and so the acceleration.
    zero = jnp.zeros_like(v)
    acceleration = body_accelerations(model, q, v, zero, velocity, gravity, few_kernels=True)
    bodies = _body_quantities(body_inertias(model, X), velocity.V, acceleration[0], f_world)
    sums = sum_to_root(model.topology, bodies)

    def column_and_force(row, J):
        composite = _composites_of_rows(row)
        return apply_inertia(composite.inertia, J), jnp.sum(J * composite.force, axis=-1)

    F, force = map_rows(column_and_force, sums, velocity.J, indices=(model.topology.dof_body,))
    M = mass_matrix(model, q, velocity.J, F)
    bias = independent_force(model, q, force)
    bias = bias + armature_and_dissipation_force(model, q, v, zero)
    # The product of M^-1 with the force is less accurate than the solve. With this product, the
    # derivatives of a chain of 64 links in float32 would lose two digits.
    upper = mass_matrix(model, q, velocity.J, F, lower=False) if kernels_selected() else M
    W = inverse_factor(upper)
    qdd = solve_positive_definite(M, tau - bias, W)
    Minv = inverse_positive_definite(M, W)

    rates_dot = tree_rates(model, q, qdd)
    change = _changes_with_acceleration(model, rates_dot, velocity.J, F, sums, bodies)
    dtau_dq, dtau_dv, _ = _derivatives(model, q, v, qdd, velocity, acceleration, sums, change)
    dqdd_dq, dqdd_dv = (-x for x in products(Minv, dtau_dq, dtau_dv))
    return qdd, ForwardDynamicsDerivatives(dqdd_dq, dqdd_dv, Minv)
