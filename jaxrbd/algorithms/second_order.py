"""Second derivatives of weighted inverse and forward dynamics, as masked matrix products.

With W the motions of the bodies for the velocity `weights`, the weighted torque is `sum W . F`.
Moving along dof l turns its subtree by J_l; seen from there, only the world's motion has changed:
its velocity by psi_dot_l, its acceleration by psi_ddot_l (and the velocity's share), its W by
omega_l. What the first derivatives hold of a dof below is linear in those three, so the second ones
are products of three columns of the upper dof with three of the lower, at the cost of the first.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from .._math.linear import matmul
from ..configuration import integrate
from ..model import Model, arguments
from ..model.joint_space import project
from ..spatial import (
    apply_inertia,
    apply_velocity_moments,
    apply_velocity_moments_transpose,
    cross_force,
    momentum_from_moments,
    transform_force,
    transform_inertia,
    velocity_moments,
)
from .common_frame import (
    accelerations,
    at_or_above,
    row_products,
    strictly_above,
    subtree_sums,
    velocities,
)
from .forward_dynamics import forward_dynamics
from .kinematics import forward_kinematics, root_centred
from .rnea import gravity_acceleration
from .rnea_derivatives import (
    composites,
    force_columns,
    forward_dynamics_derivatives,
    rnea_derivatives,
)


class RneaSecondOrder(NamedTuple):
    """Second derivatives of `weights . rnea`, each (nv, nv); in (v, a) and (a, a) they are zero."""

    dq_dq: Array
    dq_dv: Array
    dv_dv: Array
    dq_da: Array


class ForwardDynamicsSecondOrder(NamedTuple):
    """Second derivatives of `weights . forward_dynamics`, each (nv, nv); others are zero."""

    dq_dq: Array
    dq_dv: Array
    dv_dv: Array
    dq_dtau: Array


@arguments.compiled
def rnea_second_order(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    weights: ArrayLike,
    f_ext: ArrayLike | None = None,
) -> RneaSecondOrder:
    """Second derivatives of the number `weights . rnea(model, q, v, a, f_ext)`.

    `q` (nq,), `v` (nv,), `a` (nv,), `weights` (nv,), `f_ext` (nb, 6) as in `rnea`. Returns `(dq_dq,
    dq_dv, dv_dv, dq_da)`, each (nv, nv), rows for the variable named first. In q they are those of
    `integrate(model, q, dq)` at dq = 0, the symmetric ones of `hessian`. Their cost is about that
    of `rnea_derivatives`; with a `Follow` or `joints.Custom` they are by differentiating it.
    Raises ArgumentError on a wrong shape or dtype. Source: the head of this module; compare Singh,
    Russell and Wensing (2024), whose third-order tensors are contracted here before they arise.
    """
    q = arguments.configuration(model, q)
    v = arguments.velocity(model, v)
    a = arguments.velocity(model, a, "a")
    weights = arguments.velocity(model, weights, "weights")
    if not model.velocity_map_is_constant:
        return _by_forward_mode(model, q, v, a, weights, f_ext)
    X = root_centred(forward_kinematics(model, q))
    f_world = None if f_ext is None else transform_force(X, arguments.wrenches(model, f_ext))
    motion = velocities(model, X, q, v)
    A, psi_ddot = accelerations(model, q, v, a, motion, gravity_acceleration(model))
    inertia = transform_inertia(X, model.inertia)
    of = composites(model, inertia, motion.V, A, f_world)
    in_q, in_v, in_a = force_columns(of, motion, psi_ddot)

    # The weights as a second velocity: its momenta P, its velocity moments, and Q = 2 B(V)^T W.
    weighting = velocities(model, X, q, weights)
    W, omega = weighting.V, weighting.psi_dot
    Q_bodies = 2 * apply_velocity_moments_transpose(velocity_moments(inertia, motion.V), W)
    moments, Q = subtree_sums(model, velocity_moments(inertia, W), Q_bodies)
    P, Q = momentum_from_moments(moments), _moment(Q)

    J, psi_dot = motion.J, motion.psi_dot
    of_acceleration = apply_inertia(of.inertia, omega) + cross_force(J, P)
    of_velocity = (
        2 * _moment(apply_velocity_moments_transpose(of.moments, omega))
        + 2 * cross_force(psi_dot, P)
        + cross_force(J, Q)
        - 2 * apply_velocity_moments(moments, psi_dot)
    )
    of_twist = 2 * cross_force(J, P) - 2 * apply_velocity_moments(moments, J)

    def product(upper: list[Array], lower: list[Array]) -> Array:
        return row_products(jnp.concatenate(upper, axis=1), jnp.concatenate(lower, axis=1))

    dq_dq = product([omega, psi_ddot, psi_dot], [in_q, of_acceleration, of_velocity])
    dv_dv = product([J], [of_twist])
    q_above_v = product([omega, psi_dot], [in_v, of_twist])
    v_above_q = product([motion.J_dot + psi_dot, J], [of_acceleration, of_velocity])
    q_above_a = product([omega], [in_a])
    a_above_q = product([J], [of_acceleration])
    above, below = at_or_above(model), strictly_above(model).T
    tree = RneaSecondOrder(
        dq_dq=_symmetric(model, dq_dq),
        dq_dv=jnp.where(above, q_above_v, jnp.where(below, v_above_q.T, 0)),
        dv_dv=_symmetric(model, dv_dv),
        dq_da=jnp.where(above, q_above_a, jnp.where(below, a_above_q.T, 0)),
    )
    return RneaSecondOrder(*(project(model, q, x) for x in tree))


def _symmetric(model: Model, upper: Array) -> Array:
    """From the entries [l, j] with l above j, or of one joint, whose block is made symmetric."""
    strict = strictly_above(model)
    block = at_or_above(model) & ~strict
    one_side = jnp.where(strict, upper, 0) + jnp.where(block, upper / 2, 0)
    return one_side + one_side.T


def _moment(n: Array) -> Array:
    """The force `[0; n]`."""
    return jnp.concatenate([jnp.zeros_like(n), n], axis=-1)


def _by_forward_mode(model: Model, q, v, a, weights, f_ext) -> RneaSecondOrder:
    def gradients(dq, dv, da):
        of = rnea_derivatives(model, integrate(model, q, dq), v + dv, a + da, f_ext)
        in_q, in_v, _ = (matmul(weights, x) for x in of)
        return in_q, in_v

    zero = jnp.zeros_like(v)
    (qq, qv, qa), (_, vv, _) = jax.jacfwd(gradients, argnums=(0, 1, 2))(zero, zero, zero)
    return RneaSecondOrder((qq + qq.T) / 2, qv, (vv + vv.T) / 2, qa)


@arguments.compiled
def forward_dynamics_second_order(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    weights: ArrayLike,
    f_ext: ArrayLike | None = None,
) -> ForwardDynamicsSecondOrder:
    """Second derivatives of the number `weights . forward_dynamics(model, q, v, tau, f_ext)`.

    `q` (nq,), `v` (nv,), `tau` (nv,), `weights` (nv,), `f_ext` (nb, 6) as in `rnea`. Returns
    `(dq_dq, dq_dv, dv_dv, dq_dtau)`, each (nv, nv), rows for the variable named first, in q as for
    `rnea_second_order`. Where M is singular they are not finite. Raises ArgumentError on a wrong
    shape or dtype. Source: the second derivative of `rnea(q, v, qdd) = tau`, weighted by
    `M^-1 weights`.
    """
    weights = arguments.velocity(model, weights, "weights")
    qdd = forward_dynamics(model, q, v, tau, f_ext)
    in_q, in_v, Minv = forward_dynamics_derivatives(model, q, v, tau, f_ext)
    of = rnea_second_order(model, q, v, qdd, matmul(Minv, weights), f_ext)
    through_q = matmul(of.dq_da, in_q)
    return ForwardDynamicsSecondOrder(
        dq_dq=-(of.dq_dq + through_q + through_q.T),
        dq_dv=-(of.dq_dv + matmul(of.dq_da, in_v)),
        dv_dv=-of.dv_dv,
        dq_dtau=-matmul(of.dq_da, Minv),
    )
