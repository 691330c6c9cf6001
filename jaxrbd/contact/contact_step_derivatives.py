"""Derivatives of a contact step: the linear model of trajectory optimisation with contact.

The velocity v+ after a step solves an equation G = 0, the change of momentum minus all impulses
(`convex.py`). With the Hessian `H = (W^T W)^-1` of the convex function,

    dv+ = -W^T W (G_q dq + G_v dv + G_tau dtau).

The derivatives of the change of momentum are those of `rnea`, which are analytic, with the wrenches
of the contacts constant in the frames of the bodies. JAX differentiates the rest in forward mode:
the contact wrenches in these frames, the impulses on joints, and the movement with v+. The factor W
is the one of the solver.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.linear import einsum, matmul
from .._math.rows import take_rows
from ..algorithms.common_frame import dof_columns
from ..algorithms.kinematics import Kinematics, forward_kinematics, root_centred
from ..algorithms.rnea_derivatives import rnea_derivatives
from ..configuration import configuration_rate, displacement
from ..constraints import Constraint
from ..integrators import StepDerivatives
from ..model import Model
from ..model.joint_space import independent_joint_force
from ..tendons import Tendons
from .contacts import contact_bodies, contact_wrenches
from .convex import checked_options, compiled_step, impulses_at, laws_and_motion, solve
from .free_motion import free_motion, move
from .inverse_inertia import inverse_inertias
from .joint_terms import Servo
from .points import point_jacobians
from .scene import Scene


@compiled_step
def contact_step_derivatives(
    model: Model,
    scene: Scene,
    q: Array,
    v: Array,
    tau: Array,
    dt: ArrayLike,
    f_ext: Array | None = None,
    regularisation: ArrayLike = 1e-3,
    recovery: ArrayLike = 0.02,
    servo: Servo | None = None,
    constraints: Sequence[Constraint] = (),
    smoothing: ArrayLike | None = None,
    tendons: Tendons | None = None,
) -> StepDerivatives:
    """A step of `contact_step`, and its derivatives by q, v and tau.

    The arguments are those of `contact_step`, but q is an array (nq,). The result has the state
    after the step, q (nq,) and v (nv,), and the matrices A (2 nv, 2 nv) and B (2 nv, nv) of
    `integrators.StepDerivatives`. External forces, and the servo's targets, are constant; for other
    derivatives, differentiate `contact_step`, which has the same derivatives. They jump where a
    contact changes from sticking to sliding or to leaving; there, they are those of one side.
    Errors as in `contact_step`. The state and the derivatives are NaN where the solver does not
    converge. The head of the module has the equations.
    """
    dt, options = checked_options(model, dt, regularisation, recovery, smoothing)
    scene = scene.astype(model.dtype)
    scales = scene.inverse_inertia
    scales = inverse_inertias(model, scene) if scales is None else scales
    scene, trees = dataclasses.replace(scene, inverse_inertia=scales), scales.trees
    terms = servo, constraints, Tendons(()) if tendons is None else tendons
    kinematics = forward_kinematics.unchecked(model, q)
    laws, motion = laws_and_motion(model, scene, kinematics, v, dt, options, *terms)
    conservative = model.with_dissipation(False)
    operands = conservative, scene, kinematics, laws, v, motion.start, tau, dt, f_ext, options
    solved, conductance, factor = solve(*operands)
    v_next = solved.v

    def others(q: Array, v: Array) -> tuple[Array, Array]:
        """The contact wrenches (nb, 6) in the bodies, and all other impulses (nv,), at v_next."""
        kinematics = forward_kinematics.unchecked(model, q)
        laws, motion = laws_and_motion(model, scene, kinematics, v, dt, options, *terms)
        found = impulses_at(model, scene, kinematics, laws, v_next, conductance)
        f, spin = found.contacts / dt, laws.contacts.spin
        wrenches = contact_wrenches(model, scene, kinematics, laws.arm, spin, f)
        rest = independent_joint_force(model, kinematics.q, found.joints.total)
        rest += matmul(found.constraints, laws.K) + matmul(found.tendons, laws.J_tendons)
        if laws.armature is not None:
            a = (v_next - motion.start) / dt
            rest -= dt * (matmul(laws.armature.M, a) + laws.armature.bias)
        return wrenches, rest

    def end(q: Array, v: Array, v_next: Array) -> tuple[Array, Array]:
        """The state after the step."""
        motion = free_motion(model, v, dt, trees)
        return move(model, motion, q, v_next, dt)

    one, none = jnp.eye(model.nv, dtype=model.dtype), jnp.zeros((model.nv, model.nv), model.dtype)
    rates = jax.vmap(lambda x: configuration_rate.unchecked(model, q, x))(one)
    J = _jacobians_of_wrenches(model, scene, kinematics)

    def generalized(impulses: tuple[Array, Array]) -> Array:
        wrenches, rest = impulses
        return dt * einsum("biv,bin->vn", J, wrenches) + rest

    wrenches, _ = others(q, v)
    forces = wrenches if f_ext is None else wrenches + f_ext
    a = (v_next - motion.start) / dt
    by_rnea = rnea_derivatives.unchecked(conservative, kinematics, v, a, forces)
    by_q = jax.vmap(lambda rate: jax.jvp(lambda q: others(q, v), (q,), (rate,))[1], out_axes=-1)
    G_q = dt * by_rnea.dtau_dq - generalized(by_q(rates))
    start_by_v = jax.jacfwd(lambda v: free_motion(model, v, dt, trees).start)(v)
    G_v = dt * by_rnea.dtau_dv - matmul(by_rnea.M, start_by_v)
    if constraints or tendons is not None:
        G_v = G_v - generalized(jax.jacfwd(others, 1)(q, v))
    inverse_H = matmul(factor.T, factor)
    by_state = -matmul(inverse_H, jnp.concatenate([G_q, G_v], axis=1))
    dv_next = jnp.concatenate([by_state, dt * inverse_H], axis=1)

    def column(*changes: Array) -> tuple[Array, Array]:
        """The changes (nv,) of q and v after the step."""
        ends, (q_dot, v_dot) = jax.jvp(end, (q, v, v_next), changes)
        return displacement.unchecked(model, ends[0], q_dot), v_dot

    no_rates = jnp.zeros_like(rates)
    dq, dv = (jnp.concatenate(x) for x in ((rates, no_rates, no_rates), (none, one, none)))
    AB = jnp.concatenate(jax.vmap(column, out_axes=1)(dq, dv, dv_next.T))
    return StepDerivatives(*end(q, v, v_next), AB[:, : 2 * model.nv], AB[:, 2 * model.nv :])


def _jacobians_of_wrenches(
    model: Model, scene: Scene, kinematics: Kinematics
) -> Float[Array, "nb 6 nv"]:
    """The Jacobians of the bodies in their frames; zero for bodies without contacts."""
    bodies = np.unique(contact_bodies(model, scene))
    bodies = bodies[bodies >= 0]
    columns = dof_columns(model, root_centred(kinematics))
    origins = jnp.zeros((len(bodies), 3), model.dtype)
    J = point_jacobians(model, kinematics, columns, bodies, origins)
    R = take_rows(kinematics.X_WB.R, bodies)
    in_bodies = einsum("bji,bkjv->bkiv", R, J.reshape(len(bodies), 2, 3, model.nv))
    in_bodies = in_bodies.reshape(J.shape)
    return jnp.zeros((model.nb, 6, model.nv), model.dtype).at[bodies].set(in_bodies)
