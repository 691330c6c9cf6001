"""Derivatives of the rows of constraints with respect to q and v.

Let `c = K a + dK/dt v + d K v + p phi` be the equation of a constraint that acts on the
acceleration a, with the gains p and d of its stabilisation.

For a constraint between frames A and B, c is a function of the relative pose X_AB and of the
relative velocity U and acceleration U_dot, both in the axes of B:

    c = E (U_dot + d U) + (dE/dt) U + p phi,      U = V_B - V_A,      U_dot = A_B - A_A + V_B x V_A,

where E(X_AB) (m, 6) is the derivative of the error phi along a motion of B relative to A. Let n_j
be 1 if dof j moves B but not A, -1 if it moves A but not B, and 0 otherwise. In the axes of B, with
the notation of `algorithms/common_frame.py`, dof j causes the relative motion `R_j = n_j J_j` and

    dU/dq_j     = n_j psi_dot_j + R_j x V_A
    dU_dot/dq_j = n_j psi_ddot_j + R_j x A_A + n_j psi_dot_j x (V_A + V_B) - V_B x (R_j x V_A)
    dU/dv_j     = R_j
    dU_dot/dv_j = n_j (J_dot_j + psi_dot_j) + R_j x (V_A + V_B).

Column k of K is `E R_k`. A displacement of dof j moves R_k in the axes of B by

    dR_k/dq_j = n_k (s_jk - m_j) J_j x J_k,

where s_jk is 1 if dof j supports dof k, m_j is 1 if dof j moves B, and both are 0 otherwise. The
derivative of K has `m nv^2` entries, and only products with it are needed (`DerivativeOfK`). JAX
differentiates constraints of other kinds, and all constraints of a robot with joints that follow
others or are user-defined.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._math.linear import einsum, matmul
from .._math.rows import rows_or_world, take_rows
from ..algorithms.common_frame import accelerations, dof_supports, velocities
from ..algorithms.kinematics import (
    Kinematics,
    forward_kinematics,
    motions,
    relative_pose,
    root_centred,
    root_positions,
)
from ..configuration import integrate
from ..model import Model
from ..spatial import Pose, cross_force, cross_motion, inverse_transform_motion
from .between_frames import (
    FrameConstraint,
    both_ends,
    error_functions,
    error_rate,
    pose_rate,
)
from .kinds import BodyMotion, Constraint
from .rows import by_kind, only_active


class RowDerivatives(NamedTuple):
    """Derivatives of m constraint equations with respect to q (in the tangent space) and v.

    - `by_q`, `by_v` (m, nv): of c, the equation at the head of this module, at constant a;
    - `derivative_of_K`: the derivative of K with respect to q.
    """

    by_q: Float[Array, "m nv"]
    by_v: Float[Array, "m nv"]
    derivative_of_K: DerivativeOfK


class DerivativeOfK(NamedTuple):
    """Products with the derivative of K (m, nv) with respect to q.

    - `blocks`: one per kind of constraint between frames, and one per other constraint;
    - `rows`: the indices of the rows of K in each block.
    """

    blocks: tuple[_FrameBlock | _TensorBlock, ...]
    rows: tuple[tuple[int, ...], ...]

    def force(self, multiplier: Array) -> Array:
        """The derivative (nv, nv) of `K^T multiplier` at a constant multiplier (m,)."""
        parts = [
            block.force(take_rows(multiplier, np.array(rows, int)))
            for block, rows in zip(self.blocks, self.rows)
        ]
        return sum(parts[1:], start=parts[0])

    def rate(self, y: Array) -> Array:
        """The derivative (m, nv) of `K y` at a constant y (nv,)."""
        return self._in_order([block.rate(y) for block in self.blocks])

    def squares(self, weights: Array) -> Array:
        """The derivative (m, nv) of the sums over k of `weights[k] K[i, k]^2`.

        The weights (nv,) are constant.
        """
        return self._in_order([block.squares(weights) for block in self.blocks])

    def _in_order(self, blocks: Sequence[Array]) -> Array:
        """The rows of all blocks, in the order of the rows of K."""
        order = np.argsort(list(itertools.chain(*self.rows)))
        return take_rows(jnp.concatenate(blocks), order)


class _TensorBlock(NamedTuple):
    """K (m, nv), and the derivatives (m, nv, nv) [i, k, j] of K[i, k] along dof j."""

    K: Array
    K_by_q: Array

    def force(self, multiplier: Array) -> Array:
        return einsum("i,ikj->kj", multiplier, self.K_by_q)

    def rate(self, y: Array) -> Array:
        return einsum("k,ikj->ij", y, self.K_by_q)

    def squares(self, weights: Array) -> Array:
        return 2 * einsum("ik,ikj->ij", weights * self.K, self.K_by_q)


class _FrameBlock(NamedTuple):
    """The rows of n constraints between frames, with m equations each.

    With the notation of the head of this module,
    `dK_ik/dq_j = F_kj moved_ij . J_k + by_pose_ij . R_k`, with `F_kj = n_k (s_jk - m_j)`.

    - `J` (n, nv, 6): the dof columns; `R` (n, nv, 6): the motions of B relative to A;
    - `factor` (n, nv, nv): F_kj;
    - `E` (n, m, 6): the derivatives of the errors; `moved` (n, m, nv, 6): the products
      `-J_j x* E_i`;
    - `by_pose` (n, m, nv, 6): the derivative of E_i along the motion R_j of B.
    """

    J: Array
    R: Array
    factor: Array
    E: Array
    moved: Array
    by_pose: Array

    def force(self, multiplier: Array) -> Array:
        multiplier = multiplier.reshape(self.E.shape[:2])
        moved = einsum("ni,nija->nja", multiplier, self.moved)
        by_pose = einsum("ni,nija->nja", multiplier, self.by_pose)
        by_constraint = self.factor * einsum("nka,nja->nkj", self.J, moved)
        # XLA adds slices faster than it reduces an axis.
        return sum(by_constraint[1:], by_constraint[0] + einsum("nka,nja->kj", self.R, by_pose))

    def rate(self, y: Array) -> Array:
        columns = einsum("nkj,nka->nja", self.factor, y[:, None] * self.J)
        motion = einsum("k,nka->na", y, self.R)
        found = einsum("nija,nja->nij", self.moved, columns)
        found = found + einsum("nija,na->nij", self.by_pose, motion)
        return found.reshape(-1, len(y))

    def squares(self, weights: Array) -> Array:
        weighted = weights * einsum("nia,nka->nik", self.E, self.R)
        columns = einsum("nkj,nika->nija", self.factor, weighted[..., None] * self.J[:, None])
        motions = einsum("nik,nka->nia", weighted, self.R)
        found = einsum("nija,nija->nij", self.moved, columns)
        found = found + einsum("nija,nia->nij", self.by_pose, motions)
        return 2 * found.reshape(-1, len(weights))


def row_derivatives(
    model: Model,
    kinematics: Kinematics,
    v: Array,
    a: Array,
    constraints: Sequence[Constraint],
    gains: tuple[Array, Array],
    active: Array | None = None,
) -> RowDerivatives:
    """The derivatives of the rows of all constraints, concatenated in their order.

    `v`, `a` (nv,): velocity and acceleration; `gains`: p and d; `active` (number of constraints,)
    of bool: the rows of a constraint that does not act are zero.
    """
    kinds, others = by_kind(constraints)
    if not model.velocity_map_is_identity:
        kinds, others = [], list(range(len(constraints)))
    motion = _dof_motions(model, kinematics, v, a) if kinds else None
    equations: dict[int, Sequence[Array]] = {}  # `by_q` and `by_v` of each constraint
    blocks: list[_FrameBlock | _TensorBlock] = []
    for indices in kinds:
        same_kind: list[Any] = [constraints[i] for i in indices]
        assert motion is not None
        acts = None if active is None else take_rows(active, np.array(indices, int))
        *by_state, block = _frame_derivatives(model, kinematics, motion, same_kind, gains, acts)
        equations |= zip(indices, zip(*by_state))
        blocks.append(block)
    for i in others:
        found = _by_forward_mode(model, kinematics, v, a, constraints[i], gains)
        if active is not None:
            found = only_active(found, active[i])
        *equations[i], block = found
        blocks.append(block)
    none = jnp.zeros((0, model.nv), model.dtype)
    in_order = [equations[i] for i in range(len(constraints))]
    by_q, by_v = (jnp.concatenate([none, *x]) for x in zip((none, none), *in_order))
    ends = np.cumsum([0, *(len(x) for x, _ in in_order)])
    rows = [
        tuple(itertools.chain(*(range(ends[i], ends[i + 1]) for i in indices)))
        for indices in (*kinds, *((i,) for i in others))
    ]
    if not constraints:
        rows.append(())
        blocks.append(_TensorBlock(none, jnp.zeros((0, model.nv, model.nv), model.dtype)))
    return RowDerivatives(by_q, by_v, DerivativeOfK(tuple(blocks), tuple(rows)))


def _by_forward_mode(
    model: Model,
    kinematics: Kinematics,
    v: Array,
    a: Array,
    constraint: Constraint,
    gains: tuple[Array, Array],
) -> tuple[Array, Array, _TensorBlock]:
    """`by_q`, `by_v` and the derivative of K for any constraint, by JAX."""
    p, d = gains
    zero = jnp.zeros_like(v)

    def equations(dq, dv):
        q = integrate.unchecked(model, kinematics.q, dq)
        moved = forward_kinematics.unchecked(model, q)
        motion = BodyMotion(moved, v + dv, *motions(model, moved, v + dv, zero))
        rows = constraint.rows(model, motion)
        c = matmul(rows.K, a + d * (v + dv)) + rows.bias + p * rows.position
        return (c, rows.K), rows.K

    derivatives, K = jax.jacfwd(equations, argnums=(0, 1), has_aux=True)(zero, zero)
    (by_q, by_v), (K_by_q, _) = derivatives
    return by_q, by_v, _TensorBlock(K, K_by_q)


class _DofMotions(NamedTuple):
    """The dof columns and the motions of the bodies, in the common frame of each tree.

    `J`, `psi_dot`, `psi_ddot` (nv, 6); `rate` (nv, 6): `J_dot + psi_dot`; `V`, `A` (nb, 6), without
    gravity; `p_WR` (nv, 3): the world position of the origin of the common frame of each dof.
    """

    J: Array
    psi_dot: Array
    psi_ddot: Array
    rate: Array
    V: Array
    A: Array
    p_WR: Array


def _dof_motions(model: Model, kinematics: Kinematics, v: Array, a: Array) -> _DofMotions:
    velocity = velocities(model, root_centred(kinematics), kinematics.q, v)
    A, psi_ddot = accelerations(model, kinematics.q, v, a, velocity)
    p_WR = take_rows(root_positions(model, kinematics), model.topology.dof_body)
    rate = velocity.J_dot + velocity.psi_dot
    return _DofMotions(velocity.J, velocity.psi_dot, psi_ddot, rate, velocity.V, A, p_WR)


def _frame_derivatives(
    model: Model,
    kinematics: Kinematics,
    motion: _DofMotions,
    constraints: Sequence[FrameConstraint],
    gains: tuple[Array, Array],
    active: Array | None,
) -> tuple[Array, Array, _FrameBlock]:
    """`by_q`, `by_v` and the derivative of K for n constraints with the same error function.

    `active` (n,) of bool, or None. `by_q` and `by_v` are (n, m, nv).
    """
    errors = error_functions(model, constraints)
    a, b = both_ends(model, kinematics, constraints)
    X_AB = jax.vmap(relative_pose)(a.X, b.X)
    dof_body = model.topology.dof_body
    moves_a, moves_b = (model.topology.movers(x.bodies)[:, dof_body] for x in (a, b))
    n = moves_b.astype(int) - moves_a.astype(int)
    # [constraint, k, j]: the factor of J_j x J_k in dR_k/dq_j.
    factor = n[:, :, None] * (dof_supports(model).T.astype(int) - moves_b[:, None, :].astype(int))
    still = jnp.zeros(6, model.dtype)
    motion_a, motion_b = (
        rows_or_world((motion.V, motion.A), x.bodies, (still, still)) for x in (a, b)
    )
    # The position of B relative to the origin of the common frame of each dof and of each end.
    p_dofs, p_a, p_b = (
        b.X.X_RF.p[:, None] + (b.X.p_WR[:, None] - p_WR)
        for p_WR in (motion.p_WR[None], a.X.p_WR[:, None], b.X.p_WR[:, None])
    )

    def rows(error, X_AB, R_WB, p_dofs, p_a, p_b, motion_a, motion_b, n):
        J, psi_dot, psi_ddot, rate = (_in_axes(R_WB, p_dofs, x) for x in motion[:4])
        V_a, A_a = (_in_axes(R_WB, p_a, x)[0] for x in motion_a)
        V_b, A_b = (_in_axes(R_WB, p_b, x)[0] for x in motion_b)
        n = n[:, None]
        R, psi_dot, psi_ddot, rate = n * J, n * psi_dot, n * psi_ddot, n * rate
        V_sum = V_a + V_b
        moved_V = cross_motion(R, V_a)
        U_by_q = psi_dot + moved_V
        U_dot_by_q = psi_ddot + cross_motion(R, A_a) + cross_motion(psi_dot, V_sum)
        U_dot_by_q = U_dot_by_q - cross_motion(V_b, moved_V)
        U_dot_by_v = rate + cross_motion(R, V_sum)
        U, U_dot = V_b - V_a, A_b - A_a + cross_motion(V_b, V_a)

        E, H, by_X, by_U = _error_derivatives(error, X_AB, U, U_dot, gains)
        by_q = matmul(by_X, R.T) + matmul(by_U, U_by_q.T) + matmul(E, U_dot_by_q.T)
        by_v = matmul(by_U, R.T) + matmul(E, U_dot_by_v.T)
        # E_i (J_j x J_k) is the product of J_k with the force -J_j x* E_i.
        moved, by_pose = -cross_force(J, E[:, None]), einsum("iab,jb->ija", H, R)
        return (by_q, by_v, E, moved, by_pose), J, R

    found, J, R = jax.vmap(rows)(
        errors,
        X_AB,
        b.X.X_RF.R,
        p_dofs,
        p_a,
        p_b,
        motion_a,
        motion_b,
        jnp.asarray(n, model.dtype),
    )
    if active is not None:
        found = jax.vmap(only_active)(found, active)
    by_q, by_v, *of_E = found
    return by_q, by_v, _FrameBlock(J, R, jnp.asarray(factor, model.dtype), *of_E)


def _in_axes(R_WB: Array, p: Array, x: Array) -> Array:
    """Motions in the axes of B (..., 6), from motions x (..., 6) in world axes.

    p (..., 3): the position of B relative to the point about which x is given.
    """
    return inverse_transform_motion(Pose(jnp.broadcast_to(R_WB, (*p.shape, 3)), p), x)


def _error_derivatives(
    error: Callable[[Pose], Array],
    X: Pose,
    U: Array,
    U_dot: Array,
    gains: tuple[Array, Array],
) -> tuple[Array, Array, Array, Array]:
    """E (m, 6), its derivative H (m, 6, 6) along the motions of B, and two derivatives of c (m, 6).

    The derivatives of c are along the motions of B, and with respect to U.
    """
    p, d = gains
    units = jnp.eye(6, dtype=X.p.dtype)

    def slopes(X):
        return jax.vmap(lambda y: error_rate(error, X, y), out_axes=1)(units)

    def derivative(function, y):
        return jax.jvp(function, (X,), (pose_rate(X, y),))[1]

    def c(X):
        velocity_product = jax.jvp(lambda X: error_rate(error, X, U), (X,), (pose_rate(X, U),))[1]
        return error_rate(error, X, U_dot + d * U) + velocity_product + p * error(X)

    E = slopes(X)
    H = jax.vmap(lambda y: derivative(slopes, y), out_axes=-1)(units)
    by_X = jax.vmap(lambda y: derivative(c, y), out_axes=-1)(units)
    by_U = einsum("iab,b->ia", H, U) + einsum("iab,a->ib", H, U) + d * E
    return E, H, by_X, by_U
