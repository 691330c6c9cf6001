"""Factors of the mass matrix with the same zeros as the mass matrix.

M[k, j] is zero unless one dof supports the other. The factor L of `M = L^T L`, computed from the
leaves, has the same zeros. In the usual Cholesky factor, `M = L L^T`, they become nonzero. Row k of
L is nonzero at k and at its ancestors alone, so a step works on a path to the root and not on the
whole matrix.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from ..errors import ArgumentError
from ..model import Model, arguments


@arguments.compiled
def ltl_factor(model: Model, M: ArrayLike) -> Float[Array, "nv nv"]:
    """Lower-triangular L with `M = L^T L` and the zeros of the tree, (nv, nv).

    `M` (nv, nv): the mass matrix from `crba`, or any positive definite matrix with its zeros; only
    its lower triangle is read. Where M is not positive definite the result is not finite. Raises
    ArgumentError for a model whose joints follow others (mimic) or with a `joints.Custom`: its M
    does not have these zeros. Source: Featherstone, table 6.3 (LTL).
    """
    nv = arguments.robot(model).nv
    M = arguments.array(model, M, "M", (nv, nv), "nv, nv")
    ancestors = _ancestors(model)

    def eliminate(H, step):
        k, path = step  # path: the ancestors of k
        row = H[k]
        pivot = jnp.sqrt(row[k])
        l = row[path] / pivot
        H = H.at[path[:, None], path].add(-l[:, None] * l)
        return H.at[k, path].set(l).at[k, k].set(pivot), None

    padded = jnp.zeros((model.nv + 1, model.nv + 1), model.dtype)
    padded = padded.at[: model.nv, : model.nv].set(jnp.tril(M))
    H, _ = lax.scan(eliminate, padded, (jnp.arange(model.nv), ancestors), reverse=True)
    return jnp.tril(H[: model.nv, : model.nv])


@arguments.compiled
def ltl_solve(model: Model, L: ArrayLike, b: ArrayLike) -> Float[Array, " nv"]:
    """x with `L^T L x = b`, (nv,), for L from `ltl_factor`.

    `b` (nv,); a matrix of right-hand sides goes through `jax.vmap`. Raises ArgumentError as
    `ltl_factor` does. Source: Featherstone, table 6.5.
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
    """The ancestors of each dof in the dof tree, nearest first; `nv` where there are no more."""
    if not model.velocity_map_is_identity:
        cause = "a joints.Custom" if model.coupling is None else "joints that follow others"
        raise ArgumentError(f"{model!r} has {cause}: M lacks the zeros of the tree")
    dof_parent = model.topology.dof_parent
    parent = np.append(np.where(dof_parent < 0, model.nv, dof_parent), model.nv)
    columns = []
    ancestor = parent[: model.nv]
    while np.any(ancestor < model.nv):
        columns.append(ancestor)
        ancestor = parent[ancestor]
    return jnp.asarray(np.array(columns, np.int32).reshape(len(columns), model.nv).T)
