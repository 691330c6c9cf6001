"""Articulated-body inertias, and solves with the mass matrix by one backward and one forward pass.

All quantities are in one common frame, so the passes need no transforms between a body and its
parent. The passes run over the tree of degrees of freedom: a joint of n dofs is a chain of n nodes,
and the last node of the chain has the inertia of the joint's body.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._math.rows import take_rows
from ..model import Model
from ..spatial import Pose, inertia_matrix, transform_inertia
from ..tree import backward_pass, forward_pass, map_rows
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
    bodies = map_rows(_inertia_matrix, X, model.inertia)
    inertia = jnp.where(is_last[:, None, None], take_rows(bodies, topology.dof_body), 0)
    J = dof_columns(model, X)

    def eliminate(IA, node):
        J, armature = node
        U = jnp.sum(IA * J, axis=-1)
        inverse_D = 1 / (jnp.sum(J * U, keepdims=True) + armature)
        Ia = IA - U[:, None] * (U * inverse_D)
        return Ia, jnp.concatenate([U, inverse_D])

    _, U_and_inverse = backward_pass(topology.dof_parent, eliminate, inertia, (J, model.armature))
    return ArticulatedFactors(J, U_and_inverse)


def _inertia_matrix(X: Pose, inertia: Array) -> Array:
    return inertia_matrix(transform_inertia(X, inertia))


def articulated_solve(
    model: Model, factors: ArticulatedFactors, b: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    """The acceleration `M^-1 b` (nv,) for a generalized force b (nv,), by two passes."""

    def subtract_bias(p, node):
        dof, b = node
        u = b - jnp.sum(dof.J * p)
        return p + dof.U * (u * dof.inverse_D), u

    def accelerate(A, node):
        dof, u = node
        a = (u - jnp.sum(dof.U * A)) * dof.inverse_D
        return A + dof.J * a, a

    parents = model.topology.dof_parent
    zeros = jnp.zeros((model.nv + 1, 6), model.dtype)
    _, u = backward_pass(parents, subtract_bias, zeros, (factors, b))
    return forward_pass(parents, accelerate, zeros[0], (factors, u))[1]
