"""Take and merge rows of arrays by indices that are known while JAX traces."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


def take_rows(x: Array, index: np.ndarray) -> Array:
    """`x[index]` along the first axis.

    Slices are cheaper than a gather. So the function uses slices if the index consists of at most
    `_FEW_RUNS` runs of consecutive or of equal indices.
    """
    runs = _runs(index.ravel().tolist())
    if not 0 < len(runs) <= _FEW_RUNS:
        return x[index]
    blocks = [
        x[first : first + n] if step else jnp.broadcast_to(x[first], (n, *x.shape[1:]))
        for first, n, step in runs
    ]
    rows = blocks[0] if len(blocks) == 1 else jnp.concatenate(blocks)
    return rows.reshape(*index.shape, *x.shape[1:])


def rows_or_world(rows, index: np.ndarray, world):
    """Rows `index` of each array of a pytree; the index -1 gives `world`."""

    def select(x: Array, last: Array) -> Array:
        x = jnp.concatenate([x, last[None]]) if np.any(index < 0) else x
        return take_rows(x, index % len(x))

    return jax.tree.map(select, rows, world)


# For a floating base with hinges after it, the index that gives the body of each dof has two runs:
# 0 six times, then 1, 2, 3 and so on. In the Jacobian of a frame on one limb, the columns of the
# other limbs are zero. So the index that selects the columns has four runs: the base, a zero
# column, the limb, a zero column.
_FEW_RUNS = 8


def _runs(index: list[int]) -> list[tuple[int, int, int]]:
    """The index as runs (first, n, step): n entries `first, first + step, ...`, step 0 or 1."""
    runs, start = [], 0
    while start < len(index):
        end = start + 1
        step = index[end] - index[start] if end < len(index) else 1
        step = step if step in (0, 1) else 1
        while end < len(index) and index[end] - index[end - 1] == step:
            end += 1
        runs.append((index[start], end - start, step))
        start = end
    return runs


def operand_rows(operand: Any, index: np.ndarray | None, batch_axes: int = 0) -> Any:
    """The rows `index` of all arrays of a pytree, or all rows if the index is None.

    The arrays (rows, *batch, ...) have `batch_axes` batch axes. The result is (n, *batch, ...) for
    an index (n,), and (n, *batch, k, ...) for an index (n, k).
    """
    if index is None:
        return operand
    found = jax.tree.map(lambda x: take_rows(x, index), operand)
    if index.ndim == 1 or not batch_axes:
        return found
    return jax.tree.map(lambda x: jnp.moveaxis(x, 1, 1 + batch_axes), found)


def merge_rows(parts: list[Array], places: list[np.ndarray], shape, dtype) -> Array:
    """One array of the rows of all parts: row i of `parts[k]` becomes row `places[k][i]`.

    `shape`: the shape of one row. All places together are 0, 1, ..., each exactly once.
    """
    if not parts:
        return jnp.zeros((0, *shape), dtype)
    stacked = parts[0] if len(parts) == 1 else jnp.concatenate(parts)
    return take_rows(stacked, np.argsort(np.concatenate(places)))
