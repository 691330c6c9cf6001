"""Second derivatives of weighted inverse and forward dynamics, as masked matrix products.

Let W be the spatial velocities of the bodies for the joint velocity `weights`. Then the weighted
torque `weights . tau` is the sum of `W . F` over the bodies, where F is the inertial force of a
body minus the external force on it. (Armature and dissipation have no second derivatives.) A small
displacement of dof l moves the subtree of dof l rigidly along the dof column J_l. In a frame
that moves with the subtree, the velocities and accelerations of its bodies change as if the world
had an additional velocity psi_dot_l and an additional acceleration psi_ddot_l (defined in
common_frame.py; see rnea_derivatives.py). In the same way, the velocities W change by omega_l. The
formula of omega_l is the formula of psi_dot_l, with W in place of the body velocities V. For a dof
j in the subtree, the first derivative of the weighted torque with respect to `q_j`, `v_j` or `a_j`
changes by a linear function of these three changes. A change of v_l or a_l causes only changes of
velocity and acceleration. So each second derivative [l, j] is a sum of at most three products of a
column of the upper dof l with a column of the lower dof j. The upper dof is nearer to the root, or
a dof of the same joint. The second derivatives cost about as much as the first derivatives.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from .._math.linear import matmul
from ..configuration import integrate
from ..model import Model, arguments
from ..model.joint_space import project
from ..spatial import (
    apply_inertia,
    apply_velocity_moments,
    apply_velocity_moments_transpose,
    cross_force,
    from_angular,
    momentum_from_moments,
    transform_force,
    transform_inertia,
    velocity_moments,
)
from .common_frame import (
    accelerations,
    dof_strictly_supports,
    dof_supports,
    row_products,
    subtree_sums,
    symmetric_in_dofs,
    velocities,
)
from .forward_dynamics import forward_dynamics
from .kinematics import Kinematics, configuration_and_poses, forward_kinematics
from .rnea import gravity_acceleration
from .rnea_derivatives import (
    ForwardDynamicsDerivatives,
    composites,
    force_columns,
    forward_dynamics_derivatives,
    rnea_derivatives,
)


class RneaSecondOrder(NamedTuple):
    """Second derivatives of `weights . rnea`, each (nv, nv).

    The second derivatives in (v, a) and in (a, a) are zero.
    """

    dq_dq: Array
    dq_dv: Array
    dv_dv: Array
    dq_da: Array


class ForwardDynamicsSecondOrder(NamedTuple):
    """Second derivatives of `weights . forward_dynamics`, each (nv, nv).

    The second derivatives in (v, tau) and in (tau, tau) are zero.
    """

    dq_dq: Array
    dq_dv: Array
    dv_dv: Array
    dq_dtau: Array


@arguments.compiled(arrays=("q", "v", "a", "weights", "f_ext"))
def rnea_second_order(
    model: Model,
    q: Array | Kinematics,
    v: Array,
    a: Array,
    weights: Array,
    f_ext: Array | None = None,
) -> RneaSecondOrder:
    """Second derivatives of the scalar `weights . rnea(model, q, v, a, f_ext)`.

    `q` (nq,) or its `Kinematics`, `v` (nv,), `a` (nv,), `weights` (nv,), `f_ext` (nb, 6) as in
    `rnea`. Returns `(dq_dq, dq_dv, dv_dv, dq_da)`, each (nv, nv). The rows belong to the first
    variable. Derivatives in q are derivatives in dq at dq = 0, with `integrate(model, q, dq)` in
    place of q, as in `hessian`. The function costs about as much as `rnea_derivatives`. For a model
    with a `Follow` or a `joints.Custom`, it differentiates `rnea_derivatives` in forward mode.
    Source: the head of this module. Singh, Russell and Wensing (2024) give the third-order tensors;
    here the tensors are contracted with the weights.
    """
    q, X = configuration_and_poses(model, q)
    if not model.velocity_map_is_constant:
        return _by_forward_mode(model, q, v, a, weights, f_ext)
    f_common = None if f_ext is None else transform_force(X, f_ext)
    velocity = velocities(model, X, q, v)
    A, psi_ddot = accelerations(model, q, v, a, velocity, gravity_acceleration(model))
    inertia = transform_inertia(X, model.inertia)
    composite = composites(model, inertia, velocity.V, A, f_common)
    dF_dq, dF_dv, dF_da = force_columns(
        composite, velocity.J, velocity.J_dot, velocity.psi_dot, psi_ddot
    )

    # The weights act as a second joint velocity. W, P and `moments` are the body velocities, the
    # composite momenta and the composite velocity moments at this joint velocity. Q are the
    # subtree sums of 2 B(V)^T W.
    weighting = velocities(model, X, q, weights)
    W, omega = weighting.V, weighting.psi_dot
    Q_bodies = 2 * apply_velocity_moments_transpose(velocity_moments(inertia, velocity.V), W)
    moments, Q = subtree_sums(model, velocity_moments(inertia, W), Q_bodies)
    P, Q = momentum_from_moments(moments), from_angular(Q)

    # Columns of the lower dof. In a derivative with respect to q of the lower dof,
    # q_by_acceleration and q_by_velocity multiply the changes of acceleration and velocity that the
    # upper dof causes. In a derivative with respect to v of the lower dof, v_by_velocity multiplies
    # the change of velocity.
    J, psi_dot = velocity.J, velocity.psi_dot
    q_by_acceleration = apply_inertia(composite.inertia, omega) + cross_force(J, P)
    q_by_velocity = (
        2 * from_angular(apply_velocity_moments_transpose(composite.moments, omega))
        + 2 * cross_force(psi_dot, P)
        + cross_force(J, Q)
        - 2 * apply_velocity_moments(moments, psi_dot)
    )
    v_by_velocity = 2 * cross_force(J, P) - 2 * apply_velocity_moments(moments, J)

    def product(upper: list[Array], lower: list[Array]) -> Array:
        return row_products(jnp.concatenate(upper, axis=1), jnp.concatenate(lower, axis=1))

    dq_dq = product([omega, psi_ddot, psi_dot], [dF_dq, q_by_acceleration, q_by_velocity])
    dv_dv = product([J], [v_by_velocity])
    q_above_v = product([omega, psi_dot], [dF_dv, v_by_velocity])
    v_above_q = product([velocity.J_dot + psi_dot, J], [q_by_acceleration, q_by_velocity])
    q_above_a = product([omega], [dF_da])
    a_above_q = product([J], [q_by_acceleration])
    supports, in_subtree = dof_supports(model), dof_strictly_supports(model).T
    tree = RneaSecondOrder(
        dq_dq=symmetric_in_dofs(model, dq_dq),
        dq_dv=jnp.where(supports, q_above_v, jnp.where(in_subtree, v_above_q.T, 0)),
        dv_dv=symmetric_in_dofs(model, dv_dv),
        dq_da=jnp.where(supports, q_above_a, jnp.where(in_subtree, a_above_q.T, 0)),
    )
    return RneaSecondOrder(*(project(model, q, x) for x in tree))


def _by_forward_mode(model: Model, q, v, a, weights, f_ext) -> RneaSecondOrder:
    """`rnea_second_order` by forward-mode differentiation of `rnea_derivatives`."""

    def gradients(dq, dv, da):
        moved = integrate.unchecked(model, q, dq), v + dv, a + da
        first = rnea_derivatives.unchecked(model, *moved, f_ext)
        return matmul(weights, first.dtau_dq), matmul(weights, first.dtau_dv)

    zero = jnp.zeros_like(v)
    (qq, qv, qa), (_, vv, _) = jax.jacfwd(gradients, argnums=(0, 1, 2))(zero, zero, zero)
    return RneaSecondOrder((qq + qq.T) / 2, qv, (vv + vv.T) / 2, qa)


@arguments.compiled(arrays=("q", "v", "tau", "weights", "f_ext"))
def forward_dynamics_second_order(
    model: Model,
    q: Array | Kinematics,
    v: Array,
    tau: Array,
    weights: Array,
    f_ext: Array | None = None,
) -> ForwardDynamicsSecondOrder:
    """Second derivatives of the scalar `weights . forward_dynamics(model, q, v, tau, f_ext)`.

    `q` (nq,) or its `Kinematics`, `v` (nv,), `tau` (nv,), `weights` (nv,), `f_ext` (nb, 6) as in
    `rnea`. Returns `(dq_dq, dq_dv, dv_dv, dq_dtau)`, each (nv, nv), with rows and derivatives in q
    as for `rnea_second_order`. Where M is singular, the results have no meaning. Source: the second
    derivative of `rnea(q, v, qdd) = tau`, weighted by `M^-1 weights`.
    """
    kinematics = forward_kinematics.unchecked(model, q)
    qdd = forward_dynamics.unchecked(model, kinematics, v, tau, f_ext)
    first = forward_dynamics_derivatives.unchecked(model, kinematics, v, tau, f_ext)
    return second_order_from_first(model, kinematics, v, qdd, first, weights, f_ext)


def second_order_from_first(
    model: Model,
    q: Array | Kinematics,
    v: Array,
    qdd: Array,
    first: ForwardDynamicsDerivatives,
    weights: Array,
    f_ext: Array | None = None,
) -> ForwardDynamicsSecondOrder:
    """`forward_dynamics_second_order` from the acceleration and its first derivatives."""
    dqdd_dq, dqdd_dv, Minv = first
    second = rnea_second_order.unchecked(model, q, v, qdd, matmul(Minv, weights), f_ext)
    by_acceleration = matmul(second.dq_da, dqdd_dq)
    return ForwardDynamicsSecondOrder(
        dq_dq=-(second.dq_dq + by_acceleration + by_acceleration.T),
        dq_dv=-(second.dq_dv + matmul(second.dq_da, dqdd_dv)),
        dv_dv=-second.dv_dv,
        dq_dtau=-matmul(second.dq_da, Minv),
    )
