"""Functions that compute a batch in parts, not all samples at once.

The parts are tiles, which fit into the cache of a CPU; blocks of samples that need the same
computation; or single samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap

from .cast import select

TILE = 64  # the largest number of states of a tile


def in_tiles(function: Callable[[Any], Any], states: Any) -> Any:
    """`function(states)` for a batch of states, computed tile by tile.

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


BLOCK = 64  # the largest number of samples of a block of `repeat_in_blocks` on a CPU


class Row(NamedTuple):
    """The array `table[row]`, of which a copy is made only where a function needs it."""

    table: Array
    row: Array


def repeat_in_blocks(
    step: Callable[..., tuple[Any, Array]], operands: Any, state: Any, tables: Any = None
) -> Any:
    """The state of one sample after `step` was repeated until the sample is finished.

    `step` computes a block of samples: its arguments are the operands and the states of the block,
    with a leading axis. It returns the new states, and bools (block,): which samples need another
    step. Under `vmap`, a finished sample does not change any more. On a CPU, a block consists of
    samples that are not finished, so a slow sample does not delay the others. On other devices, and
    for a symbolic batch size of `jax.export`, all samples are in one block. The caller defines the
    derivative of the result.

    A block has copies of the operands. So large operands that many samples share, or that few steps
    need, are given as `tables`, a pytree of arrays. Then the third argument of `step` is the same
    pytree with a `Row` for each array, with the rows (block,).
    """
    return _repeated(step, operands, state, tables, 0)


def _repeated(
    step: Callable[..., tuple[Any, Array]],
    operands: Any,
    state: Any,
    tables: Any,
    axes: int,
) -> Any:
    """`repeat_in_blocks` for a batch whose arrays have `axes` leading axes.

    An axis of an operand has length 1 if all samples along this axis have the same operand.
    """

    @custom_vmap
    def run(operands, state, tables):
        shape = jax.tree.leaves(state)[0].shape[:axes]
        count = math.prod(shape)
        if not isinstance(count, int):  # a symbolic size of `jax.export`
            return _repeated_at_once(step, operands, state, tables, shape)
        if not count:
            return state
        flat = jax.tree.map(lambda x: x.reshape(count, *x.shape[axes:]), state)

        def block_step(rows, block):
            place = jnp.unravel_index(rows, shape) if axes else ()

            def taken(x):
                if not axes:
                    return x[None]
                # `0 * i` has the shape (block,), also if all axes of the operand have length 1.
                return x[tuple(i if n > 1 else 0 * i for i, n in zip(place, x.shape))]

            def row_of(x):
                row = jnp.zeros_like(rows)
                for i, n in zip(place, x.shape):
                    row = n * row + (i if n > 1 else 0)
                return Row(x.reshape(math.prod(x.shape[:axes]), *x.shape[axes:]), row)

            arguments = jax.tree.map(taken, operands), block
            if tables is None:
                return step(*arguments)
            return step(*arguments, jax.tree.map(row_of, tables))

        def on_cpu(flat):
            return repeat_batch(block_step, flat, min(BLOCK, count))

        def elsewhere(flat):
            return repeat_batch(block_step, flat, count)

        found = by_platform(on_cpu, elsewhere, flat)
        return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), found)

    @run.def_vmap
    def _(count, is_batched, operands, state, tables):
        operands, tables = with_batch_axis((operands, tables), (is_batched[0], is_batched[2]))
        state = _filled(count, state, is_batched[1])
        found = _repeated(step, operands, state, tables, axes + 1)
        return found, jax.tree.map(lambda _: True, found)

    return run(operands, state, tables)


def with_batch_axis(operands: Any, is_batched: Any) -> Any:
    """The operands in a rule of `custom_vmap`, with an axis of length 1 if they have no batch."""
    return jax.tree.map(lambda x, mapped: x if mapped else x[None], operands, is_batched)


def _filled(count: Any, samples: Any, is_batched: Any) -> Any:
    """As `with_batch_axis`, with copies of an array without a batch for all samples."""
    given = with_batch_axis(samples, is_batched)
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape[1:])), given)


def _repeated_at_once(
    step: Callable[..., tuple[Any, Array]],
    operands: Any,
    state: Any,
    tables: Any,
    shape: tuple[int, ...],
) -> Any:
    """`_repeated` for a batch of this shape, in which all samples wait for the slowest one."""
    count, axes = math.prod(shape), len(shape)

    def flat(x: Array) -> Array:
        return jnp.broadcast_to(x, (*shape, *x.shape[axes:])).reshape(count, *x.shape[axes:])

    operands = jax.tree.map(flat, operands)
    table_rows = jax.tree.map(lambda x: Row(flat(x), jnp.arange(count)), tables)
    rows = () if tables is None else (table_rows,)

    def body(work: tuple[Any, Array]) -> tuple[Any, Array]:
        states, unfinished = work
        new, more = step(operands, states, *rows)
        return jax.vmap(select)(unfinished, new, states), unfinished & more

    start = jax.tree.map(flat, state), jnp.ones(count, bool)
    found, _ = lax.while_loop(lambda work: jnp.any(work[1]), body, start)
    return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), found)


class _Work(NamedTuple):
    """The state of the loop of `repeat_batch`.

    The loop consists of passes. In a pass each unfinished sample has one step, block by block.

    - `states`: the states of the samples and their rows in the batch. A pass begins with its
      samples in the first rows;
    - `waiting` (): the number of samples of this pass;
    - `head` (): the number of these samples that already had their step in this pass;
    - `kept` (): the number of those of the `head` samples that need another step. They are moved to
      the first rows of `states`, for the next pass;
    - `results`, `finished` (): the states and rows of the finished samples, and their number.
    """

    states: Any
    waiting: Array
    head: Array
    kept: Array
    results: Any
    finished: Array


def repeat_batch(step: Callable[..., tuple[Any, Array]], states: Any, block: int) -> Any:
    """The states of n samples, each after as many calls of `step` as it needs; n is not 0.

    - `step(rows, states)`: computes the samples of the rows (block,) of the batch. It returns their
      new states, and bools (block,): which samples need another step;
    - `states`: arrays with one row per sample;
    - `block`: the number of samples per call of `step`.
    """
    count = len(jax.tree.leaves(states)[0])
    rows, k = jnp.arange(count), jnp.arange(block)
    states, unpacked = _packed((states, rows))
    zero = jnp.zeros_like(rows[0])

    def stored(x: Any, part: Any, start: Array) -> Any:
        return jax.tree.map(
            lambda x, part: lax.dynamic_update_slice_in_dim(x, part, start, 0), x, part
        )

    def body(work: _Work) -> _Work:
        part = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, work.head, block), work.states)
        states, rows = unpacked(part)
        valid = k < work.waiting - work.head
        states, unfinished = step(rows, states)
        unfinished &= valid
        # The samples that need another step come first, then those that are finished.
        order = jnp.argsort(jnp.where(unfinished, 0, jnp.where(valid, 1, 2)))
        more = jnp.sum(unfinished)
        part = jax.tree.map(lambda x: x[order], _packed((states, rows))[0])
        ended = jax.tree.map(lambda x: jnp.roll(x, -more, 0), part)
        # The rows after the kept samples had their step already, so they can be overwritten.
        states = stored(work.states, part, work.kept)
        results = stored(work.results, ended, work.finished)
        head, kept = work.head + block, work.kept + more
        last, finished = head >= work.waiting, work.finished + jnp.sum(valid) - more
        waiting = jnp.where(last, kept, work.waiting)
        head, kept = jnp.where(last, 0, head), jnp.where(last, 0, kept)
        return _Work(states, waiting, head, kept, results, finished)

    def padded(x: Array) -> Array:
        return jnp.concatenate([x, jnp.broadcast_to(x[:1], (block, *x.shape[1:]))])

    states = jax.tree.map(padded, states)
    work = _Work(states, zero + count, zero, zero, states, zero)
    work = lax.while_loop(lambda work: work.waiting > 0, body, work)
    results, rows = unpacked(jax.tree.map(lambda x: x[:count], work.results))
    order = jnp.argsort(rows)
    return jax.tree.map(lambda x: x[order], results)


def _packed(samples: Any) -> tuple[dict[Any, Array], Callable[[dict[Any, Array]], Any]]:
    """One array (n, k) for each dtype of the leaves of n samples, and the inverse function."""
    leaves, structure = jax.tree.flatten(samples)
    dtypes = [x.dtype for x in leaves]
    sizes = [x[0].size for x in leaves]

    def indices_with(dtype):
        return [i for i, other in enumerate(dtypes) if other == dtype]

    def unpacked(arrays):
        found = list(leaves)
        for dtype, x in arrays.items():
            start = 0
            for i in indices_with(dtype):
                part = x[:, start : start + sizes[i]]
                found[i] = part.reshape(len(x), *leaves[i].shape[1:])
                start += sizes[i]
        return jax.tree.unflatten(structure, found)

    arrays = {
        str(dtype): jnp.concatenate(
            [leaves[i].reshape(len(leaves[i]), -1) for i in indices_with(dtype)], 1
        )
        for dtype in sorted(set(dtypes), key=str)
    }
    return arrays, unpacked


RETRY_BLOCK = 16  # the largest number of samples of a block of `retried` on a CPU
RETRY_PASSES = 8  # the largest number of blocks of `retried` on other devices


def retried(function: Callable[..., Any], failed: Array, operands: Any, found: Any) -> Any:
    """`found` of one sample or, if `failed` () is True, `function(*operands)` in its place.

    Under `vmap`, the samples that failed are computed in blocks: on CPUs, and for a symbolic batch
    size of `jax.export`, of at most `RETRY_BLOCK` samples; on other devices in at most
    `RETRY_PASSES` blocks. Other samples fill the last block, and keep `found`. The caller defines
    the derivative of the result.
    """
    return _retried(function, failed, operands, found, 0)


def _retried(
    function: Callable[..., Any], failed: Array, operands: Any, found: Any, axes: int
) -> Any:
    """`retried` for a batch whose arrays have `axes` leading axes.

    An axis of an operand has length 1 if all samples along this axis have the same operand.
    """

    @custom_vmap
    def run(failed, operands, found):
        if not axes:
            return lax.cond(failed, lambda: function(*operands), lambda: found)
        shape = failed.shape
        count = math.prod(shape)
        total = jnp.sum(failed)

        def compute(i):
            place = jnp.unravel_index(i, shape)

            def taken(x):
                if all(n == 1 for n in x.shape[:axes]):  # shared: no copy for each sample
                    return x.reshape(x.shape[axes:])
                return x[tuple(i if n > 1 else 0 for i, n in zip(place, x.shape))]

            return function(*jax.tree.map(taken, operands))

        def in_blocks_of(block, flat):
            k = jnp.arange(block)
            # The samples that failed come first.
            order = jnp.pad(jnp.argsort(~failed.reshape(-1)), (0, block))

            def retry(state):
                start, found = state
                rows = lax.dynamic_slice_in_dim(order, start, block)
                part = jax.vmap(compute)(rows)
                rows = jnp.where(start + k < total, rows, count)
                found = jax.tree.map(lambda x, y: x.at[rows].set(y, mode="drop"), found, part)
                return start + block, found

            start = jnp.zeros_like(total), flat
            return lax.while_loop(lambda state: state[0] < total, retry, start)[1]

        flat = jax.tree.map(lambda x: x.reshape(count, *x.shape[axes:]), found)
        # In an exported program, the size of the batch may be a symbol.
        known = isinstance(count, int)
        few = min(RETRY_BLOCK, count) if known else RETRY_BLOCK
        many = max(few, -(-count // RETRY_PASSES)) if known else few
        flat = by_platform(partial(in_blocks_of, few), partial(in_blocks_of, many), flat)
        return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), flat)

    @run.def_vmap
    def _(count, is_batched, failed, operands, found):
        failed, found = _filled(count, (failed, found), (is_batched[0], is_batched[2]))
        operands = with_batch_axis(operands, is_batched[1])
        found = _retried(function, failed, operands, found, axes + 1)
        return found, jax.tree.map(lambda _: True, found)

    return run(failed, operands, found)


def by_platform(on_cpu: Callable[..., Any], elsewhere: Callable[..., Any], *operands: Any) -> Any:
    """The result of `on_cpu` on a CPU, and of `elsewhere` on other devices.

    A process whose default device is a CPU does not trace `elsewhere`.
    """
    if jax.default_backend() == "cpu":
        return on_cpu(*operands)
    return lax.platform_dependent(*operands, cpu=on_cpu, default=elsewhere)


def in_turn(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function. Under `vmap`, CPUs compute one sample of the batch after another.

    A loop over a whole batch ends when its slowest sample is finished. So on a CPU each sample has
    a separate loop. Other devices compute all samples of a batch at the same time. JAX cannot
    differentiate the result in reverse mode.
    """
    batched = custom_vmap(function)

    @batched.def_vmap
    def rule(_, is_batched, *operands):
        axes = jax.tree.map(lambda mapped: 0 if mapped else None, tuple(is_batched))
        leaves, structure = jax.tree.flatten(operands)
        flags = jax.tree.leaves(tuple(is_batched))
        samples = [x for x, mapped in zip(leaves, flags) if mapped]

        def one_by_one(leaves, samples):
            def compute(sample):
                rest = iter(sample)
                rows = [next(rest) if mapped else x for x, mapped in zip(leaves, flags)]
                return batched(*jax.tree.unflatten(structure, rows))

            return lax.map(compute, samples)

        def together(leaves, _):
            return jax.vmap(function, axes)(*jax.tree.unflatten(structure, leaves))

        found = by_platform(one_by_one, together, leaves, samples)
        return found, jax.tree.map(lambda _: True, found)

    return batched
