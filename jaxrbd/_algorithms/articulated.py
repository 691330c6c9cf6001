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

from ..model import Model
from ..spatial import Pose, inertia_matrix, transform_inertia
from ..tree import batched_behind_nodes, spread
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
    bodies = inertia_matrix(transform_inertia(X, model.inertia))[topology.dof_body]
    borne = jnp.where(bears[:, None, None], bodies, 0)
    J = dof_columns(model, X)

    def eliminate(IA, step):
        i, parent, J, armature = step
        own = _row(IA, i)
        U = jnp.sum(own * J[..., None, :], axis=-1)
        D = jnp.sum(J * U, axis=-1) + armature
        handed = own - U[..., None] * (U / D[..., None])[..., None, :]
        return _put(IA, parent, _row(IA, parent) + handed), (U, D)

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
        own = _row(p, i)
        u = b - jnp.sum(J * own, axis=-1)
        at_parent = _row(p, parent) + own + U * (u / D)[..., None]
        return _put(p, parent, at_parent), u

    def accelerate(A, step):
        i, parent, (J, U, D), u = step
        above = _row(A, parent)
        a = (u - jnp.sum(U * above, axis=-1)) / D
        return _put(A, i, above + J * a[..., None]), a

    def sweep(of, b):
        rows = jnp.zeros_like(of.J * (b + of.D)[..., None])
        nothing = jnp.pad(rows, ((0, 1), *((0, 0),) * (rows.ndim - 1)))
        i, parent = _numbering(model)
        u = lax.scan(bear, nothing, (i, parent, of, b), reverse=True)[1]
        return lax.scan(accelerate, nothing, (i, parent, of, u))[1]

    return batched_behind_nodes(sweep)(of, b)


def _numbering(model: Model) -> tuple[Array, Array]:
    """Each dof's row and its parent's; the world's is the last."""
    nv = model.topology.nv
    parents = model.topology.dof_parent
    return jnp.arange(nv, dtype=jnp.int32), jnp.asarray(
        np.where(parents < 0, nv, parents), jnp.int32
    )


def _row(x: Array, i: Array) -> Array:
    return lax.dynamic_index_in_dim(x, i, keepdims=False)


def _put(x: Array, i: Array, row: Array) -> Array:
    return lax.dynamic_update_index_in_dim(x, row, i, 0)
