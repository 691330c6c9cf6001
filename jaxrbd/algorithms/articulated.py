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
from ..spatial import inertia_matrix
from ..tree import backward_pass, forward_pass


class ArticulatedFactors(NamedTuple):
    """A factorisation of the mass matrix M, with one row per dof.

    J is the spatial vector of the dof in the common frame. A row of `terms` is `[U, 1/D]`, or
    `[U, 1/D, u]` if `articulate` was called with forces; it defines u. `U = IA J` is the force per
    unit of acceleration of the dof, where IA is the articulated-body inertia that the dof moves. D
    is `J . U` plus the armature. U and 1/D are in one array, so that one step of a pass compiles to
    eight kernels. On a CPU, XLA runs up to eight kernels without its scheduler. With more kernels,
    the scheduler would take a fifth of the time of a single call.
    """

    J: Float[Array, "nv 6"]
    terms: Float[Array, "nv _"]

    @property
    def U(self) -> Float[Array, "... 6"]:
        return self.terms[..., :6]

    @property
    def inverse_D(self) -> Float[Array, "..."]:
        return self.terms[..., 6]


def articulate(
    model: Model,
    J: Float[Array, "nv 6"],
    inertia: Float[Array, "nb 10"],
    force: Float[Array, "nb 6"] | None = None,
    b: Float[Array, " nv"] | None = None,
) -> ArticulatedFactors:
    """The factorisation of M by a backward pass, with all bodies in one frame.

    - `J`: the dof columns; `inertia`: the inertias of the bodies; both in this frame;
    - `force`, `b`: both or none, as for `articulated_motion`. A row of the pass is then `[IA | pA]`
      (6, 7), and a row of `terms` has the entry `u = b - J . pA` at its end.

    Requires a model whose velocity map G is the identity: no joint follows others, and no joint is
    a `joints.Custom`. Source: Featherstone, table 7.1.
    """
    rows, nodes = inertia_matrix(inertia), (J, model.armature)
    if force is not None:
        rows, nodes = jnp.concatenate([rows, force[..., None]], axis=-1), (*nodes, b)

    def eliminate(row, node):
        J, armature, *b = node
        U = jnp.sum(row[:, :6] * J[None], axis=-1)
        inverse_D = 1 / (jnp.sum(J * U, keepdims=True) + armature)
        u = [x - jnp.sum(J * row[:, 6], keepdims=True) for x in b]
        in_parent = row - U[:, None] * (jnp.concatenate([U, *(-x for x in u)]) * inverse_D)[None]
        return in_parent, jnp.concatenate([U, inverse_D, *u])

    parents = model.topology.dof_parent
    _, terms = backward_pass(parents, eliminate, _at_last_dofs(model, rows), nodes)
    return ArticulatedFactors(J, terms)


def _at_last_dofs(model: Model, rows: Array) -> Array:
    """The rows (nb, ...) of the bodies, each at the last dof of its body; zero at other dofs."""
    body = model.topology.dof_body
    is_last = np.append(np.diff(body) > 0, True)[: model.topology.nv]
    is_last = is_last.reshape(-1, *(1,) * (rows.ndim - 1))
    return jnp.where(is_last, take_rows(rows, body), 0)


def articulated_motion(
    model: Model,
    J: Float[Array, "nv 6"],
    inertia: Float[Array, "nb 10"],
    force: Float[Array, "nb 6"],
    b: Float[Array, " nv"],
) -> tuple[Float[Array, " nv"], Float[Array, "nb 6"], ArticulatedFactors]:
    """The accelerations of the dofs under generalized forces b (nv,), by two passes.

    - `J`: the dof columns; `inertia`: the inertias of the bodies; both in one frame;
    - `force`: the inertial forces of the bodies at zero acceleration of the dofs, minus the
      external forces, in this frame.

    Returns the accelerations of the dofs (nv,), the accelerations of the bodies (nb, 6) that they
    cause, and the factorisation of M. Requires a model as `articulate` does.
    """
    topology, factors = model.topology, articulate(model, J, inertia, force, b)

    def accelerate(A, dof):
        u = dof.terms[7]
        a = (u - jnp.sum(dof.U * A)) * dof.inverse_D
        return A + dof.J * a, a

    A, a = forward_pass(topology.dof_parent, accelerate, jnp.zeros(6, J.dtype), factors)
    last = topology.v_start + np.array(topology.nvs, int) - 1
    return a, take_rows(A, last), factors


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
    # The last row is that of the world. For a robot without dofs, zeros[0] is this row.
    zeros = jnp.zeros((model.nv + 1, 6), model.dtype)
    _, u = backward_pass(parents, subtract_bias, zeros, (factors, b))
    return forward_pass(parents, accelerate, zeros[0], (factors, u))[1]
