"""The mass matrix in factors: articulated-body inertias, and solves in one pass up and one down.

All in one frame, where a body hands its parent what it has without a transform. The tree is that of
the degrees of freedom: a joint of n is a chain of n nodes, of which the last bears the body.
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
from ..tree import batched_behind_nodes, parent_rows, put_row, row_at, spread
from .common_frame import dof_columns


class Articulated(NamedTuple):
    """For each dof: its column J, and in one row `U = IA J` and 1/D, `D = J . U`.

    IA is the articulated-body inertia of what the dof moves, U the force per unit of its
    acceleration; D includes the armature. The two share a row because a step of the sweep is then
    eight kernels; more than eight XLA schedules on a CPU, at a fifth of a single call's time.
    """

    J: Float[Array, "nv 6"]
    U_and_inverse: Float[Array, "nv 7"]

    @property
    def U(self) -> Float[Array, "... 6"]:
        return self.U_and_inverse[..., :6]

    @property
    def inverse_D(self) -> Float[Array, "..."]:
        return self.U_and_inverse[..., 6]


def articulate(model: Model, X: Pose) -> Articulated:
    """Leaves to root, for poses X (nb,) of the bodies in the one frame; `model` is a tree.

    Source: Featherstone, table 7.1, with all bodies in one frame.
    """
    topology = model.topology
    bears = np.append(np.diff(topology.dof_body) > 0, True)[: topology.nv]
    bodies = inertia_matrix(transform_inertia(X, model.inertia))
    borne = jnp.where(bears[:, None, None], take_rows(bodies, topology.dof_body), 0)
    J = dof_columns(model, X)

    def eliminate(IA, step):
        i, parent, J, armature = step
        own = row_at(IA, i)
        U = jnp.sum(own * J[..., None, :], axis=-1)
        inverse_D = 1 / (jnp.sum(J * U, axis=-1, keepdims=True) + armature[..., None])
        handed = own - U[..., None] * (U * inverse_D)[..., None, :]
        at_parent = row_at(IA, parent) + handed
        return put_row(IA, parent, at_parent), jnp.concatenate([U, inverse_D], axis=-1)

    def sweep(borne, J, armature):
        borne = spread(borne, J[..., 0] + armature)
        IA = jnp.pad(borne, ((0, 1), *((0, 0),) * (borne.ndim - 1)))
        return lax.scan(eliminate, IA, (*_numbering(model), J, armature), reverse=True)[1]

    return Articulated(J, batched_behind_nodes(sweep)(borne, J, model.armature))


def articulated_solve(model: Model, of: Articulated, b: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """`M^-1 b`, in units of acceleration for b in N or N m."""

    def bear(p, step):
        i, parent, dof, b = step
        own = row_at(p, i)
        u = b - jnp.sum(dof.J * own, axis=-1)
        at_parent = row_at(p, parent) + own + dof.U * (u * dof.inverse_D)[..., None]
        return put_row(p, parent, at_parent), u

    def accelerate(A, step):
        i, parent, dof, u = step
        above = row_at(A, parent)
        a = (u - jnp.sum(dof.U * above, axis=-1)) * dof.inverse_D
        return put_row(A, i, above + dof.J * a[..., None]), a

    def sweep(of, b):
        rows = jnp.zeros_like(of.J * (b + of.inverse_D)[..., None])
        nothing = jnp.pad(rows, ((0, 1), *((0, 0),) * (rows.ndim - 1)))
        i, parent = _numbering(model)
        u = lax.scan(bear, nothing, (i, parent, of, b), reverse=True)[1]
        return lax.scan(accelerate, nothing, (i, parent, of, u))[1]

    return batched_behind_nodes(sweep)(of, b)


def _numbering(model: Model) -> tuple[Array, Array]:
    """Each dof's row and its parent's."""
    i = jnp.arange(model.topology.nv, dtype=jnp.int32)
    return i, jnp.asarray(parent_rows(model.topology.dof_parent))
