"""Rows of arrays, taken and merged by an index that is known while JAX traces."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array


def take_rows(x: Array, index: np.ndarray) -> Array:
    """`x[index]` along the first axis; by slices, which are cheaper, where a few of them do."""
    runs = _runs(index.ravel().tolist())
    if not 0 < len(runs) <= _FEW_RUNS:
        return x[index]
    blocks = [
        x[first : first + n] if step else jnp.broadcast_to(x[first], (n, *x.shape[1:]))
        for first, n, step in runs
    ]
    rows = blocks[0] if len(blocks) == 1 else jnp.concatenate(blocks)
    return rows.reshape(*index.shape, *x.shape[1:])


_FEW_RUNS = 8  # a floating base and the joints after it are two, a limb's rows among zeros four


def _runs(index: list[int]) -> list[tuple[int, int, int]]:
    """The index as runs `first, first + step, ...` of n, with a step of 1, or of 0: repeated."""
    runs, at = [], 0
    while at < len(index):
        end = at + 1
        step = index[end] - index[at] if end < len(index) else 1
        step = step if step in (0, 1) else 1
        while end < len(index) and index[end] - index[end - 1] == step:
            end += 1
        runs.append((index[at], end - at, step))
        at = end
    return runs


def merge_rows(parts: list[Array], places: list[np.ndarray], shape, dtype) -> Array:
    """One array of the rows of all parts, each row at its place; `shape` is that of a row."""
    if not parts:
        return jnp.zeros((0, *shape), dtype)
    stacked = parts[0] if len(parts) == 1 else jnp.concatenate(parts)
    return take_rows(stacked, np.argsort(np.concatenate(places)))
