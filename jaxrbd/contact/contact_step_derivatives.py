"""Derivatives of a contact step: the linear model of trajectory optimisation with contact.

The velocity v+ after a step solves an equation G = 0, the change of momentum minus all impulses
(`convex.py`). With the Hessian `H = (W^T W)^-1` of the convex function,

    dv+ = -W^T W (G_q dq + G_v dv + G_tau dtau).

`rnea_derivatives` has the derivatives of the change of momentum, at constant contact wrenches in
the frames of the bodies. JAX differentiates the rest in forward mode: the contact wrenches in these
frames, the impulses on joints, and the movement with v+. Degrees of freedom that change different
entries, such as those of different legs, share one tangent (Curtis, Powell and Reid (1974), On the
estimation of sparse Jacobian matrices). The solver has already computed the factor W.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.linear import einsum, inverse_positive_definite, matmul
from .._math.rows import take_rows
from ..algorithms.common_frame import dof_columns
from ..algorithms.kinematics import Kinematics, forward_kinematics, root_centred
from ..algorithms.rnea_derivatives import rnea_derivatives
from ..configuration import configuration_rate, velocity_of_rate
from ..constraints import Constraint
from ..integrators import StepDerivatives
from ..model import Model
from ..model.joint_space import independent_joint_force
from ..tendons import Tendons
from .contacts import contact_bodies, contact_wrenches
from .convex import (
    checked_options,
    compiled_step,
    differentiable_velocity,
    impulses_at,
    laws_and_motion,
    solve,
    unbalanced_momentum,
)
from .free_motion import free_motion, move
from .inverse_inertia import inverse_inertias
from .joint_terms import Servo
from .points import point_jacobians
from .scene import Scene, scene_for


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
    """A step of `contact_step`, and its derivatives with respect to q, v and tau.

    The arguments are those of `contact_step`, but q is an array (nq,). The result has the state
    after the step, q (nq,) and v (nv,), and the matrices A (2 nv, 2 nv) and B (2 nv, nv) of
    `integrators.StepDerivatives`. External forces and the targets of the servo are constant; for
    derivatives with respect to them, differentiate `contact_step`. The derivatives jump where a
    contact changes from sticking to sliding or to leaving; there, the result has the derivatives of
    one side. Errors as in `contact_step`. The state and the derivatives are NaN where the solver
    does not converge. The head of the module has the equations.
    """
    dt, options = checked_options(model, dt, regularisation, recovery, smoothing)
    scene = scene_for(model, scene)
    scales = scene.inverse_inertia
    scales = inverse_inertias(model, scene) if scales is None else scales
    scene, trees = dataclasses.replace(scene, inverse_inertia=scales), scales.trees
    terms = servo, constraints, Tendons(()) if tendons is None else tendons
    kinematics = forward_kinematics.unchecked(model, q)
    laws, motion = laws_and_motion(model, scene, kinematics, v, dt, options, *terms)
    conservative = model.with_dissipation(False)
    operands = conservative, scene, kinematics, laws, v, motion.start, tau, dt, f_ext
    solved, conductance, factor = solve(*lax.stop_gradient((*operands, options)))
    unbalanced = unbalanced_momentum(*operands, conductance)
    v_next = differentiable_velocity(unbalanced, solved.v, factor)

    def impulses(q: Array, v: Array) -> tuple[Array, Array]:
        """At v_next: the contact wrenches (nb, 6) in the bodies, and all other impulses (nv,)."""
        kinematics = forward_kinematics.unchecked(model, q)
        laws, motion = laws_and_motion(model, scene, kinematics, v, dt, options, *terms)
        found = impulses_at(model, scene, kinematics, laws, v_next, conductance)
        f, spin = found.contacts / dt, laws.contacts.spin
        wrenches = contact_wrenches(model, scene, kinematics, laws.arm, spin, f)
        other_impulses = independent_joint_force(model, kinematics.q, found.joints.total)
        other_impulses += matmul(found.constraints, laws.K) + matmul(found.tendons, laws.J_tendons)
        if laws.armature is not None:
            a = (v_next - motion.start) / dt
            other_impulses -= dt * (matmul(laws.armature.M, a) + laws.armature.bias)
        return wrenches, other_impulses

    def end(q: Array, v: Array, v_next: Array) -> tuple[Array, Array]:
        """The state after the step."""
        motion = free_motion(model, v, dt, trees)
        return move(model, motion, q, v_next, dt)

    drives_tendons = servo is not None and servo.tendons is not None
    joined = constraints or tendons is not None or drives_tendons
    coupled = bool(joined) or not model.velocity_map_is_identity
    wrench_pattern, joint_pattern = _sparsity_patterns(model, scene, coupled)
    impulse_columns = _ColumnGroups.for_pattern(np.concatenate([wrench_pattern, joint_pattern]))
    J = _jacobians_of_wrenches(model, scene, kinematics)

    def generalized(impulses: tuple[Array, Array]) -> Array:
        wrenches, other_impulses = impulses
        return dt * einsum("biv,bin->vn", J, wrenches) + other_impulses

    wrenches, _ = impulses(q, v)
    forces = wrenches if f_ext is None else wrenches + f_ext
    a = (v_next - motion.start) / dt
    by_rnea = rnea_derivatives.unchecked(conservative, kinematics, v, a, forces)

    def impulses_by_q(change: Array) -> tuple[Array, Array]:
        """The changes of `impulses` for a change (nv,) of q."""
        rate = configuration_rate.unchecked(model, q, change)
        return jax.jvp(lambda q: impulses(q, v), (q,), (rate,))[1]

    by_wrenches, by_joints = jax.vmap(impulses_by_q, out_axes=-1)(impulse_columns.tangents(model))
    by_q = (
        impulse_columns.matrix(by_wrenches, wrench_pattern[:, None]),
        impulse_columns.matrix(by_joints, joint_pattern),
    )
    G_q = dt * by_rnea.dtau_dq - generalized(by_q)
    start_by_v = jax.jacfwd(lambda v: free_motion(model, v, dt, trees).start)(v)
    G_v = dt * by_rnea.dtau_dv - matmul(by_rnea.M, start_by_v)
    soft = scene.material.softness is not None or scene.limit_softness is not None
    if constraints or tendons is not None or soft:
        G_v = G_v - generalized(jax.jacfwd(impulses, 1)(q, v))
    H = jax.jacfwd(unbalanced)(v_next)  # used only where JAX differentiates the matrices
    inverse_H = inverse_positive_definite(H, factor)
    # The derivatives (nv, 3 nv) of v_next with respect to q, v and tau; G_tau is -dt.
    by_state = -matmul(inverse_H, jnp.concatenate([G_q, G_v], axis=1))
    dv_next = jnp.concatenate([by_state, dt * inverse_H], axis=1)

    end_columns = _ColumnGroups.for_pattern(joint_pattern)

    def end_by(change_q: Array, change_v: Array, change_v_next: Array) -> Array:
        """The changes (2, nv) of q and v after the step."""
        rate = configuration_rate.unchecked(model, q, change_q)
        ends, (q_dot, v_dot) = jax.jvp(end, (q, v, v_next), (rate, change_v, change_v_next))
        return jnp.stack([velocity_of_rate.unchecked(model, ends[0], q_dot), v_dot])

    # Tangents of each argument while the two others are constant.
    tangents = (
        jnp.eye(3, dtype=model.dtype)[:, :, None, None] * end_columns.tangents(model)[None, None]
    )
    changes = jax.vmap(end_by, out_axes=-1)(*tangents.reshape(3, -1, model.nv))
    by_q, by_v, by_v_next = (
        end_columns.matrix(x, joint_pattern).reshape(2 * model.nv, model.nv)
        for x in jnp.split(changes, 3, axis=-1)
    )
    # The matrices A and B side by side.
    AB = matmul(by_v_next, dv_next)
    AB += jnp.concatenate([by_q, by_v, jnp.zeros_like(by_q)], axis=1)
    return StepDerivatives(*end(q, v, v_next), AB[:, : 2 * model.nv], AB[:, 2 * model.nv :])


class _ColumnGroups(NamedTuple):
    """Groups of columns of a sparse matrix. In each row, at most one column of a group is not 0.

    `groups` (columns,): the index of the group of each column; `size`: the number of groups.
    """

    groups: np.ndarray
    size: int

    @classmethod
    def for_pattern(cls, pattern: np.ndarray) -> _ColumnGroups:
        """The groups for a sparsity pattern, which is False where the matrix has zeros.

        Each column joins the first group that is zero in all rows where the column is not zero.
        """
        groups, taken = [], []
        for column in pattern.T:
            free = [k for k, rows in enumerate(taken) if not np.any(rows & column)]
            if not free:
                taken.append(np.zeros_like(column))
            group = free[0] if free else len(taken) - 1
            taken[group] = taken[group] | column
            groups.append(group)
        return cls(np.array(groups, int), len(taken))

    def tangents(self, model: Model) -> Float[Array, "size columns"]:
        """The sum of the unit vectors of each group."""
        members = np.arange(self.size)[:, None] == self.groups
        return jnp.asarray(members, model.dtype)

    def matrix(
        self, products: Float[Array, "... size"], pattern: np.ndarray
    ) -> Float[Array, "... columns"]:
        """The matrix, from its products with the tangents; `pattern` broadcasts to its shape."""
        columns = take_rows(jnp.moveaxis(products, -1, 0), self.groups)
        return jnp.where(pattern, jnp.moveaxis(columns, 0, -1), 0)


def _sparsity_patterns(model: Model, scene: Scene, coupled: bool) -> tuple[np.ndarray, np.ndarray]:
    """Which dofs change the wrench on a body (nb, nv), and the impulse on a dof (nv, nv).

    The second pattern also holds for the movement with v+, because the coordinates of a joint
    after the step depend only on the coordinates and the velocity of this joint. `coupled`: whether
    constraints, tendons, joints that follow others or user-defined joints may couple the joints.
    Then all entries of the patterns are True.
    """
    if coupled:
        return np.ones((model.nb, model.nv), bool), np.ones((model.nv, model.nv), bool)
    body, moves = model.topology.dof_body, model.topology.movers(np.arange(model.nb))
    in_pairs = contact_bodies(model, scene)[len(scene.frames) :]
    in_pairs = in_pairs[in_pairs >= 0]
    moves[in_pairs] = np.any(moves[in_pairs], axis=0)
    return moves[:, body], body[:, None] == body


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
