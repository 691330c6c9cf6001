"""A pass over the tree as one GPU kernel: one thread per state, and the loop over the nodes inside.

The kernel is written with JAX's Pallas for NVIDIA GPUs (Mosaic GPU). A block of 128 threads
computes 128 states. All arrays have the states as their last axis, so that the threads of a block
read and write contiguous memory. A thread reads only rows that it has written itself.

The step of the pass is the step that `lax.scan` runs on a CPU. `lanes.evaluate` computes it entry
by entry. On other devices the kernel can be interpreted, for tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .._math.gpu_kernels import LANES, blocks_of, launch
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
    # Pallas is imported only where it is used: its import takes longer than the import of jaxrbd.
    from jax.experimental import pallas

    n = len(parent_rows)
    leaves, structure = jax.tree.flatten((rows, nodes))
    batch = np.broadcast_shapes(*(x.shape[1 : 1 + batch_axes] for x in leaves))
    shapes = [x.shape[1 + batch_axes :] for x in leaves]
    like = jax.tree.unflatten(
        structure, [jax.ShapeDtypeStruct(s, x.dtype) for s, x in zip(shapes, leaves)]
    )
    row, outputs = jax.eval_shape(step, *like)
    results = [jax.ShapeDtypeStruct((n + 1, *row.shape), row.dtype)]
    results += [jax.ShapeDtypeStruct((n, *x.shape), x.dtype) for x in jax.tree.leaves(outputs)]
    blocks = blocks_of(math.prod(batch))

    def kernel(block, parent_ref, rows_ref, *refs):
        node_refs, (all_rows, *output_refs) = refs[: len(leaves) - 1], refs[len(leaves) - 1 :]
        lanes = pallas.ds(block * LANES, LANES)

        def load(ref, i, shape):
            shared = ref.shape[-1] == 1  # all states have the same value
            return entries(shape, lambda k: ref[i, k, 0] if shared else ref[i, k, lanes])

        def store(ref, i, x):
            for k, entry in enumerate(x.reshape(-1)):
                ref[i, k, lanes] = jnp.broadcast_to(entry, (LANES,))

        def copy(i, _):
            store(all_rows, i, load(rows_ref, i, row.shape))

        def visit(t, _):
            i = n - 1 - t if backward else t  # the node
            parent = parent_ref[i]
            arrays = [load(ref, i, shape) for ref, shape in zip(node_refs, shapes[1:])]
            before = load(all_rows, i if backward else parent, row.shape)
            node = jax.tree.unflatten(jax.tree.structure(nodes), arrays)
            after, output = evaluate(step, like, before, node)
            if backward:
                store(all_rows, parent, load(all_rows, parent, row.shape) + after)
            else:
                store(all_rows, i, after)
            for ref, x in zip(output_refs, jax.tree.leaves(output)):
                store(ref, i, x)

        if backward:
            lax.fori_loop(0, n + 1, copy, None)
        else:
            store(all_rows, n, load(rows_ref, 0, row.shape))
        lax.fori_loop(0, n, visit, None)

    def states_last(x, shape):
        """x (m, batch, entries) as (m, entries, states); one state if all states share x."""
        sizes = x.shape[1 : 1 + batch_axes]
        if math.prod(sizes) > 1:
            x = jnp.broadcast_to(x, (len(x), *batch, *shape))
        x = x.reshape(len(x), -1, math.prod(shape)).swapaxes(1, 2)
        padding = blocks * LANES - x.shape[-1] if x.shape[-1] > 1 else 0
        return jnp.pad(x, ((0, 0), (0, 0), (0, padding)))

    def batch_second(x, result):
        x = x[..., : math.prod(batch)].swapaxes(1, 2)
        return x.reshape(len(x), *batch, *result.shape[1:])

    flat = [
        jax.ShapeDtypeStruct((len(x), math.prod(x.shape[1:]), blocks * LANES), x.dtype)
        for x in results
    ]
    operands = [states_last(x, shape) for x, shape in zip(leaves, shapes)]
    found = launch(kernel, flat, blocks, interpret)(jnp.asarray(parent_rows, jnp.int32), *operands)
    all_rows, *arrays = map(batch_second, found, results)
    return all_rows, jax.tree.unflatten(jax.tree.structure(outputs), arrays)
