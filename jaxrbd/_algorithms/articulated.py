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

from ..model import Model, take_rows
from ..spatial import Pose, inertia_matrix, transform_inertia
from ..tree import batched_behind_nodes, parent_rows, put_row, row_at, spread
from .world import dof_columns


class Articulated(NamedTuple):
    """For each dof: its column J, the force `U = IA J` per unit of its acceleration, `D = J . U`.

    IA is the articulated-body inertia of what the dof moves; D includes the armature.
    """

    J: Float[Array, "nv 6"]
    U: Float[Array, "nv 6"]
    D: Float[Array, " nv"]


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
        D = jnp.sum(J * U, axis=-1) + armature
        handed = own - U[..., None] * (U / D[..., None])[..., None, :]
        return put_row(IA, parent, row_at(IA, parent) + handed), (U, D)

    def sweep(borne, J, armature):
        borne = spread(borne, J[..., 0] + armature)
        IA = jnp.pad(borne, ((0, 1), *((0, 0),) * (borne.ndim - 1)))
        return lax.scan(eliminate, IA, (*_numbering(model), J, armature), reverse=True)[1]

    U, D = batched_behind_nodes(sweep)(borne, J, model.armature)
    return Articulated(J, U, D)


def articulated_solve(model: Model, of: Articulated, b: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """`M^-1 b`, in units of acceleration for b in N or N m."""

    def bear(p, step):
        i, parent, (J, U, D), b = step
        own = row_at(p, i)
        u = b - jnp.sum(J * own, axis=-1)
        at_parent = row_at(p, parent) + own + U * (u / D)[..., None]
        return put_row(p, parent, at_parent), u

    def accelerate(A, step):
        i, parent, (J, U, D), u = step
        above = row_at(A, parent)
        a = (u - jnp.sum(U * above, axis=-1)) / D
        return put_row(A, i, above + J * a[..., None]), a

    def sweep(of, b):
        rows = jnp.zeros_like(of.J * (b + of.D)[..., None])
        nothing = jnp.pad(rows, ((0, 1), *((0, 0),) * (rows.ndim - 1)))
        i, parent = _numbering(model)
        u = lax.scan(bear, nothing, (i, parent, of, b), reverse=True)[1]
        return lax.scan(accelerate, nothing, (i, parent, of, u))[1]

    return batched_behind_nodes(sweep)(of, b)


def _numbering(model: Model) -> tuple[Array, Array]:
    """Each dof's row and its parent's."""
    i = jnp.arange(model.topology.nv, dtype=jnp.int32)
    return i, jnp.asarray(parent_rows(model.topology.dof_parent))
