"""Batches that are computed in parts, so that the arrays of a part fit into the cache of a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

TILE = 64  # the largest number of states of a tile


def in_tiles(function: Callable[[Any], Any], states: Any) -> Any:
    """`function(states)` for a batch of states, computed for one tile of the batch after the other.

    The arrays of `states` and of the result have one row per state. All tiles have the same size.
    Copies of the last state fill the last tile.
    """
    count = len(jax.tree.leaves(states)[0])
    tiles = -(-count // TILE)
    size = -(-count // tiles)

    def filled(x: Array) -> Array:
        return jnp.pad(x, [(0, tiles * size - count), *[(0, 0)] * (x.ndim - 1)], "edge")

    found = in_blocks(function, jax.tree.map(filled, states), size)
    return jax.tree.map(lambda x: x[:count], found)


def in_blocks(function: Callable[[Any], Any], states: Any, size: int) -> Any:
    """As `in_tiles`, for blocks of `size` states; the number of states is a multiple of `size`."""
    blocks = jax.tree.map(lambda x: x.reshape(len(x) // size, size, *x.shape[1:]), states)
    found = lax.map(function, blocks)
    return jax.tree.map(lambda x: x.reshape(len(x) * size, *x.shape[2:]), found)
