"""Factors of the mass matrix with the same zeros as the mass matrix.

M[k, j] is zero unless dof k supports dof j or dof j supports dof k. The lower-triangular factor L
of `M = L^T L`, computed from the leaves to the root, has the same zeros. The usual Cholesky factor
of `M = L L^T` does not have them. Row k of L is nonzero only at k and at the ancestors of dof k. So
each step of a loop works on one path to the root, and not on the whole matrix.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from ...errors import ArgumentError
from ...model import Model, arguments


@arguments.compiled
def ltl_factor(model: Model, M: ArrayLike) -> Float[Array, "nv nv"]:
    """Lower-triangular factor L with `M = L^T L` and with the zeros of M, (nv, nv).

    `M` (nv, nv): the mass matrix from `crba`, or another positive definite matrix with the same
    zeros. Only the lower triangle of M is read. Where M is indefinite, the result is not finite.
    Where M is singular, rounding errors decide whether the result is finite. Raises ArgumentError
    if joints of the model follow others (mimic) or are `joints.Custom`: the mass matrix of such a
    model does not have these zeros. Source: Featherstone, table 6.3 (LTL).
    """
    nv = arguments.robot(model).nv
    M = arguments.array(model, M, "M", (nv, nv), "nv, nv")
    ancestors = _ancestors(model)

    def eliminate(H, step):
        k, path = step  # path: the ancestors of k
        row = H[k]
        pivot = jnp.sqrt(row[k])
        l = row[path] / pivot
        H = H.at[path[:, None], path].add(-l[:, None] * l[None])
        return H.at[k, path].set(l).at[k, k].set(pivot), None

    padded = jnp.zeros((model.nv + 1, model.nv + 1), model.dtype)
    padded = padded.at[: model.nv, : model.nv].set(jnp.tril(M))
    H, _ = lax.scan(eliminate, padded, (jnp.arange(model.nv), ancestors), reverse=True)
    return jnp.tril(H[: model.nv, : model.nv])


@arguments.compiled
def ltl_solve(model: Model, L: ArrayLike, b: ArrayLike) -> Float[Array, " nv"]:
    """The solution x (nv,) of `L^T L x = b`, for L from `ltl_factor`.

    `b` (nv,). For several right-hand sides use `jax.vmap`. Raises ArgumentError as `ltl_factor`
    does. Source: Featherstone, table 6.5.
    """
    nv = arguments.robot(model).nv
    L = arguments.array(model, L, "L", (nv, nv), "nv, nv")
    b = arguments.velocity(model, b, "b")
    ancestors = _ancestors(model)
    rows = jnp.take_along_axis(jnp.pad(L, ((0, 0), (0, 1))), ancestors, axis=1)
    steps = (jnp.arange(model.nv), ancestors, rows, jnp.diagonal(L))

    def to_root(y, step):
        k, path, row, pivot = step
        y_k = y[k] / pivot
        return y.at[k].set(y_k).at[path].add(-row * y_k), None

    def to_leaves(x, step):
        k, path, row, pivot = step
        return x.at[k].set((x[k] - jnp.sum(row * x[path])) / pivot), None

    y, _ = lax.scan(to_root, jnp.pad(b, (0, 1)), steps, reverse=True)
    x, _ = lax.scan(to_leaves, y.at[model.nv].set(0), steps)
    return x[: model.nv]


def _ancestors(model: Model) -> Array:
    """The ancestors of each dof in the tree of dofs, nearest first: (nv, depth), padded with nv."""
    if not model.velocity_map_is_identity:
        cause = "a joints.Custom" if model.coupling is None else "joints that follow others"
        raise ArgumentError(f"{model!r} has {cause}, so M is not zero between branches")
    dof_parent = model.topology.dof_parent
    parent = np.append(np.where(dof_parent < 0, model.nv, dof_parent), model.nv)
    columns = []
    ancestor = parent[: model.nv]
    while np.any(ancestor < model.nv):
        columns.append(ancestor)
        ancestor = parent[ancestor]
    return jnp.asarray(np.array(columns, np.int32).reshape(len(columns), model.nv).T)
