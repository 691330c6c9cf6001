"""Articulated-body inertias, and solves with the mass matrix by one backward and one forward pass.

All quantities are in one common frame, so the passes need no transforms between a body and its
parent. The passes run over the tree of degrees of freedom: a joint of n dofs is a chain of n nodes,
and the last node of the chain has the inertia of the joint's body.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from .._math.rows import take_rows
from ..model import Model
from ..spatial import Pose, inertia_matrix, transform_inertia
from ..tree import batch_axis_second, parent_rows, put_row, row_at, spread
from .common_frame import dof_columns


class ArticulatedFactors(NamedTuple):
    """A factorisation of the mass matrix M, one row per dof: J, and U with 1/D.

    J is the spatial vector of the dof in the common frame. `U = IA J` is the force per unit of
    acceleration of the dof, where IA is the articulated-body inertia that the dof moves. D is
    `J . U` plus the armature. U and 1/D share one array so that one step of a pass compiles to
    eight kernels. On a CPU, XLA runs up to eight kernels without its scheduler. With more kernels,
    the scheduler would take a fifth of the time of a single call.
    """

    J: Float[Array, "nv 6"]
    U_and_inverse: Float[Array, "nv 7"]

    @property
    def U(self) -> Float[Array, "... 6"]:
        return self.U_and_inverse[..., :6]

    @property
    def inverse_D(self) -> Float[Array, "..."]:
        return self.U_and_inverse[..., 6]


def articulate(model: Model, X: Pose) -> ArticulatedFactors:
    """The factorisation of M by a backward pass, for poses X (nb,) of the bodies in one frame.

    Requires a model whose velocity map G is the identity: no joint follows others, and no joint is
    a `joints.Custom`. Source: Featherstone, table 7.1, with all bodies in one frame.
    """
    topology = model.topology
    is_last = np.append(np.diff(topology.dof_body) > 0, True)[: topology.nv]
    bodies = inertia_matrix(transform_inertia(X, model.inertia))
    inertia = jnp.where(is_last[:, None, None], take_rows(bodies, topology.dof_body), 0)
    J = dof_columns(model, X)

    def eliminate(IA, step):
        i, parent, J, armature = step
        IA_i = row_at(IA, i)
        U = jnp.sum(IA_i * J[..., None, :], axis=-1)
        inverse_D = 1 / (jnp.sum(J * U, axis=-1, keepdims=True) + armature[..., None])
        Ia = IA_i - U[..., None] * (U * inverse_D)[..., None, :]
        return put_row(IA, parent, row_at(IA, parent) + Ia), jnp.concatenate([U, inverse_D], -1)

    def backward_pass(inertia, J, armature):
        inertia = spread(inertia, J[..., 0] + armature)
        IA = jnp.pad(inertia, ((0, 1), *((0, 0),) * (inertia.ndim - 1)))
        return lax.scan(eliminate, IA, (*_node_rows(model), J, armature), reverse=True)[1]

    return ArticulatedFactors(J, batch_axis_second(backward_pass)(inertia, J, model.armature))


def articulated_solve(
    model: Model, factors: ArticulatedFactors, b: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    """The acceleration `M^-1 b` (nv,) for a generalized force b (nv,), by two passes."""

    def subtract_bias(p, step):
        i, parent, dof, b = step
        p_i = row_at(p, i)
        u = b - jnp.sum(dof.J * p_i, axis=-1)
        p_parent = row_at(p, parent) + p_i + dof.U * (u * dof.inverse_D)[..., None]
        return put_row(p, parent, p_parent), u

    def accelerate(A, step):
        i, parent, dof, u = step
        A_parent = row_at(A, parent)
        a = (u - jnp.sum(dof.U * A_parent, axis=-1)) * dof.inverse_D
        return put_row(A, i, A_parent + dof.J * a[..., None]), a

    def both_passes(factors, b):
        rows = jnp.zeros_like(factors.J * (b + factors.inverse_D)[..., None])
        zeros = jnp.pad(rows, ((0, 1), *((0, 0),) * (rows.ndim - 1)))
        i, parent = _node_rows(model)
        u = lax.scan(subtract_bias, zeros, (i, parent, factors, b), reverse=True)[1]
        return lax.scan(accelerate, zeros, (i, parent, factors, u))[1]

    return batch_axis_second(both_passes)(factors, b)


def _node_rows(model: Model) -> tuple[Array, Array]:
    """The row of each dof, and the row of its parent in the tree of dofs, (nv,) each.

    If a dof has no parent, its parent row is nv, the last row, which stands for the world.
    """
    i = jnp.arange(model.topology.nv, dtype=jnp.int32)
    return i, jnp.asarray(parent_rows(model.topology.dof_parent))
