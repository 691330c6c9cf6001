"""Batches that a CPU computes in parts: tiles, which fit into its cache, or single samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap

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


BLOCK = 32  # the number of samples of a block of `where_needed`


def where_needed(
    function: Callable[..., Any], needed: Array, operands: Any, results: Any, axes: int = 0
) -> Any:
    """`function(*operands)` for the samples of a batch that need it, and `results` for the others.

    `needed` (): a bool; function, operands and results are those of one sample. Under `vmap`, only
    the samples with a true `needed` are computed, in blocks; so the others cost nothing. JAX does
    not differentiate the result.

    `axes`: the number of leading batch axes that all arguments have.
    """

    @custom_vmap
    def selected(needed, operands, results):
        if not axes:
            # One sample: only one branch is computed. Under `vmap`, JAX would compute both.
            return lax.cond(needed, lambda: function(*operands), lambda: results)
        shape = needed.shape
        flat = jax.tree.map(
            lambda x: x.reshape(needed.size, *x.shape[axes:]), (needed, operands, results)
        )
        found = _in_needed_blocks(function, *flat)
        return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), found)

    @selected.def_vmap
    def _(count, is_batched, *arguments):
        def filled(x, mapped):
            return x if mapped else jnp.broadcast_to(x, (count, *x.shape))

        arguments = jax.tree.map(filled, arguments, tuple(is_batched))
        found = where_needed(function, *arguments, axes + 1)
        return found, jax.tree.map(lambda _: True, found)

    return selected(needed, operands, results)


def _in_needed_blocks(function: Callable[..., Any], needed: Array, operands: Any, results: Any):
    """`where_needed` for n samples in the rows of the arrays."""
    count = len(needed)
    block = min(BLOCK, count)
    # The samples that need it come first. The last block may overlap the block before.
    order, total = jnp.argsort(~needed), jnp.sum(needed)

    def body(state):
        start, results = state
        rows = lax.dynamic_slice(order, [start], [block])
        found = jax.vmap(function)(*jax.tree.map(lambda x: x[rows], operands))
        keep = needed[rows]
        results = jax.tree.map(
            lambda x, y: x.at[rows].set(
                jnp.where(keep.reshape(-1, *[1] * (y.ndim - 1)), y, x[rows])
            ),
            results,
            found,
        )
        return start + block, results

    start = jnp.zeros((), total.dtype)
    return lax.while_loop(lambda state: state[0] < total, body, (start, results))[1]


def by_platform(on_cpu: Callable[..., Any], elsewhere: Callable[..., Any], *operands: Any) -> Any:
    """The result of `on_cpu` on a CPU, and of `elsewhere` on other devices.

    A process whose default device is a CPU does not trace `elsewhere`.
    """
    if jax.default_backend() == "cpu":
        return on_cpu(*operands)
    return lax.platform_dependent(*operands, cpu=on_cpu, default=elsewhere)


def in_turn(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose batches under `vmap` are computed one sample after the other on CPUs.

    A loop of a batch ends when the loop of its slowest sample ends. On a CPU the samples of a batch
    take turns, so each loop ends by itself. Other devices compute the samples of a batch at the
    same time. JAX does not differentiate the result in reverse mode.
    """
    batched = custom_vmap(function)

    @batched.def_vmap
    def rule(_, is_batched, *operands):
        axes = jax.tree.map(lambda mapped: 0 if mapped else None, tuple(is_batched))
        leaves, structure = jax.tree.flatten(operands)
        flags = jax.tree.leaves(tuple(is_batched))
        samples = [x for x, mapped in zip(leaves, flags) if mapped]

        def one_by_one(leaves, samples):
            def of_sample(sample):
                rest = iter(sample)
                rows = [next(rest) if mapped else x for x, mapped in zip(leaves, flags)]
                return batched(*jax.tree.unflatten(structure, rows))

            return lax.map(of_sample, samples)

        def together(leaves, _):
            return jax.vmap(function, axes)(*jax.tree.unflatten(structure, leaves))

        found = by_platform(one_by_one, together, leaves, samples)
        return found, jax.tree.map(lambda _: True, found)

    return batched
