"""Passes over the tree, and functions of single nodes, as one GPU kernel each.

The kernel of a pass has one thread per state. The loop over the nodes is inside the kernel, and a
thread reads only results that it has written itself. The kernel of a function of single nodes has
one thread per state and node, and each block of threads computes one node.

The step of a pass is the step that `lax.scan` runs on a CPU. `lanes.evaluate` computes it entry by
entry. On other devices a kernel can be interpreted, for tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..._math.gpu_kernels import LANES, blocks_of, launch
from .lanes import entries, evaluate


def pass_by_kernel(
    parent_rows: np.ndarray,
    step: Callable[[Array, Any], tuple[Array, Any]],
    batch_axes: int,
    rows: Array,
    nodes: Any,
    *,
    backward: bool,
    interpret: bool = False,
) -> tuple[Array, Any]:
    """The results of `passes.forward_pass_of_batch` or `passes.backward_pass_of_batch`.

    `parent_rows` (n,): the row of the parent of each node; `rows`: the row of the world, (1, ...),
    for a forward pass, and all rows, (n + 1, ...), for a backward pass; `interpret`: whether to
    interpret the kernel, which needs no GPU.
    """
    n = len(parent_rows)
    # The row of the world is a separate array. So the rows of the nodes can be a result of another
    # kernel, and XLA does not copy them.
    start = (rows[n:], rows[:n]) if backward else (rows,)
    batch = _Batch(batch_axes, (*start, nodes))
    like = batch.one_node((start[0], nodes))
    row, outputs = jax.eval_shape(step, *like)
    results = [(n, row), *((n, x) for x in jax.tree.leaves(outputs))]

    def kernel(block, parent_ref, world_ref, *refs):
        refs = list(refs)
        start_ref = refs.pop(0) if backward else None
        node_refs = [refs.pop(0) for _ in jax.tree.leaves(nodes)]
        end_ref = refs.pop() if backward else None
        row_ref, *output_refs = refs
        lanes = batch.lanes(block)

        def copy(i, _):
            _store(row_ref, lanes, i, _load(start_ref, lanes, i, row.shape))

        def visit(t, _):
            i = n - 1 - t if backward else t  # the node
            parent = parent_ref[i]
            in_world = parent == n
            parent = jnp.where(in_world, n - 1, parent)
            arrays = [
                _load(ref, lanes, i, x.shape) for ref, x in zip(node_refs, jax.tree.leaves(like[1]))
            ]
            node = jax.tree.unflatten(jax.tree.structure(nodes), arrays)
            if backward:
                operand = _load(row_ref, lanes, i, row.shape)
            else:
                operand = _select(
                    in_world,
                    _load(world_ref, lanes, 0, row.shape),
                    _load(row_ref, lanes, parent, row.shape),
                )
            result, output = evaluate(step, like, operand, node)
            if backward:
                in_tree = _load(row_ref, lanes, parent, row.shape)
                world = _load(end_ref, lanes, 0, row.shape)
                _store(row_ref, lanes, parent, _select(in_world, in_tree, in_tree + result))
                _store(end_ref, lanes, 0, _select(in_world, world + result, world))
            else:
                _store(row_ref, lanes, i, result)
            for ref, x in zip(output_refs, jax.tree.leaves(output)):
                _store(ref, lanes, i, x)

        if backward:
            _store(end_ref, lanes, 0, _load(world_ref, lanes, 0, row.shape))
            lax.fori_loop(0, n, copy, None)
        lax.fori_loop(0, n, visit, None)

    if backward:
        results.append((1, row))
    indices = jnp.asarray(parent_rows, jnp.int32)
    found = batch.run(kernel, [indices], [*start, *jax.tree.leaves(nodes)], results, interpret)
    row_of_world = found.pop() if backward else jnp.broadcast_to(rows, (1, *found[0].shape[1:]))
    all_rows = jnp.concatenate([found.pop(0), row_of_world])
    return all_rows, jax.tree.unflatten(jax.tree.structure(outputs), found)


def rows_by_kernel(
    function: Callable[..., Any],
    indices: Sequence[np.ndarray],
    batch_axes: int,
    *operands: Any,
    interpret: bool = False,
) -> Any:
    """The results of `tree.map_rows` for operands with batch axes after the first axis."""
    n = len(indices[0])
    batch = _Batch(batch_axes, operands)
    leaves = [jax.tree.leaves(x) for x in batch.one_node(operands)]
    # The sizes of the axes that an index adds.
    widths = [index.shape[1:] for index in indices]
    like = [
        jax.tree.map(lambda x, w=width: jax.ShapeDtypeStruct((*w, *x.shape), x.dtype), operand)
        for operand, width in zip(batch.one_node(operands), widths)
    ]
    outputs = jax.eval_shape(function, *like)
    columns = np.cumsum([0, *map(math.prod, widths)])

    def kernel(block, index_ref, *refs):
        block, i = lax.div(block, np.int32(n)), lax.rem(block, np.int32(n))
        lanes, refs = batch.lanes(block), list(refs)

        def rows(ref, k, shape):
            found = [
                _load(ref, lanes, index_ref[c, i], shape) for c in range(columns[k], columns[k + 1])
            ]
            return np.stack(found).reshape(*widths[k], *shape)

        arrays = [[rows(refs.pop(0), k, x.shape) for x in group] for k, group in enumerate(leaves)]
        nodes = [jax.tree.unflatten(jax.tree.structure(x), a) for x, a in zip(operands, arrays)]
        found = evaluate(function, like, *nodes)
        for ref, x in zip(refs, jax.tree.leaves(found)):
            _store(ref, lanes, i, x)

    results = [(n, x) for x in jax.tree.leaves(outputs)]
    table = jnp.asarray(np.concatenate([x.reshape(n, -1).T for x in indices]), jnp.int32)
    found = batch.run(kernel, [table], jax.tree.leaves(operands), results, interpret, n)
    return jax.tree.unflatten(jax.tree.structure(outputs), found)


def states_by_kernel(
    function: Callable[..., Any], *operands: Array, interpret: bool = False
) -> Any:
    """The results of `tree.map_states`: one thread computes the function of one state."""
    # A kernel cannot have operands without entries.
    filled = [x for x in operands if x.size]

    def of_filled(*filled):
        rest = iter(filled)
        return function(
            *(next(rest) if x.size else np.zeros(x.shape[1:], x.dtype) for x in operands)
        )

    index = [np.zeros(1, int)] * len(filled)
    found = rows_by_kernel(of_filled, index, 1, *(x[None] for x in filled), interpret=interpret)
    return jax.tree.map(lambda x: x[0], found)


def _load(ref: Any, lanes: Any, i: Any, shape: tuple[int, ...]) -> np.ndarray:
    shared = ref.shape[-1] == 1  # all states have the same value
    return entries(shape, lambda k: ref[i, k, 0] if shared else ref[i, k, lanes])


def _store(ref: Any, lanes: Any, i: Any, x: np.ndarray) -> None:
    for k, entry in enumerate(x.reshape(-1)):
        ref[i, k, lanes] = jnp.broadcast_to(entry, (LANES,))


def _select(condition: Array, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x where the condition holds, else y; all states have the same condition."""
    return entries(x.shape, lambda k: jnp.where(condition, x.reshape(-1)[k], y.reshape(-1)[k]))


class _Batch:
    """The states of a batch: operands and results (m, *batch, ...) as arrays of a kernel.

    An array of a kernel is (m, entries, states). It has one state if all states share the values.
    """

    def __init__(self, batch_axes: int, operands: Any):
        sizes = [x.shape[1 : 1 + batch_axes] for x in jax.tree.leaves(operands)]
        self.axes = batch_axes
        self.shape = np.broadcast_shapes(*sizes)
        self.states = math.prod(self.shape)
        self.blocks = blocks_of(self.states)

    def one_node(self, operands: Any) -> Any:
        """The shapes and dtypes of the operands for one node and one state."""
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape[1 + self.axes :], x.dtype), operands
        )

    def lanes(self, block: Any) -> Any:
        """The states of a block."""
        # Pallas is imported here, because its import takes longer than the import of jaxrbd.
        from jax.experimental import pallas

        return pallas.ds(block * LANES, LANES)

    def run(
        self,
        kernel: Callable[..., None],
        indices: list[Array],
        operands: list[Array],
        results: list[tuple[int, jax.ShapeDtypeStruct]],
        interpret: bool,
        nodes: int = 1,
    ) -> list[Array]:
        """The results (m, *batch, ...) of the kernel, in `nodes` blocks for each 128 states.

        `results`: m, and the shape and dtype for one state.
        """
        states = self.blocks * LANES
        flat = [jax.ShapeDtypeStruct((m, math.prod(x.shape), states), x.dtype) for m, x in results]
        launched = launch(kernel, flat, self.blocks * nodes, interpret)
        found = launched(*indices, *map(self._states_last, operands))
        return [self._batch_second(x, like.shape) for x, (_, like) in zip(found, results)]

    def _states_last(self, x: Array) -> Array:
        sizes, shape = x.shape[1 : 1 + self.axes], x.shape[1 + self.axes :]
        if math.prod(sizes) > 1:
            x = jnp.broadcast_to(x, (len(x), *self.shape, *shape))
        x = x.reshape(len(x), -1, math.prod(shape)).swapaxes(1, 2)
        padding = self.blocks * LANES - x.shape[-1] if x.shape[-1] > 1 else 0
        return jnp.pad(x, ((0, 0), (0, 0), (0, padding)))

    def _batch_second(self, x: Array, shape: tuple[int, ...]) -> Array:
        x = x[..., : self.states].swapaxes(1, 2)
        return x.reshape(len(x), *self.shape, *shape)
