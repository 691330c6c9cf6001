"""Forward and backward passes over a tree, node by node, for one state or a batch of states.

The nodes of the tree are bodies or dofs. A step of a forward pass computes the row of a node from
the row of its parent and the data of the node. A step of a backward pass computes what the node
adds to the row of its parent. The caller writes the step for one state of the robot.

All rows are in one buffer with a row per node. The last row belongs to the world. A `lax.scan` or a
GPU kernel (gpu/kernels.py) runs the steps in order, so the size of the program does not depend on
the number of nodes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_batching import custom_vmap

from .._math.implementations import in_context, with_kernel
from .gpu.kernels import pass_by_kernel

# A step has two arguments, a row and the data of a node, and two results, a row and an output.
Step = Callable[[Array, Any], tuple[Array, Any]]


def forward_pass(
    parents: Sequence[int] | np.ndarray,
    step: Step,
    world: Array,
    nodes: Any,
    differentiable: bool = False,
) -> tuple[Array, Any]:
    """Forward pass, from the root to the leaves: `row_i, output_i = step(row_p(i), nodes_i)`.

    `parents`: the parent p(i) of each of the n nodes, or -1 for the world; a parent comes before
    its children. `world`: the row of the world; `nodes`: a pytree of arrays (n, ...), with the data
    of the nodes; `differentiable`: whether JAX can differentiate the pass. A differentiable pass is
    always a loop, and slower in batches. Returns the rows (n + 1, ...), of which the last row is
    `world`, and the outputs (n, ...).
    """
    run = functools.partial(forward_pass_of_batch, parents, step)
    return (_loop(run) if differentiable else in_batches(run))(world[None], nodes)


def backward_pass(
    parents: Sequence[int] | np.ndarray,
    step: Step,
    rows: Array,
    nodes: Any,
    differentiable: bool = False,
) -> tuple[Array, Any]:
    """Backward pass, from the leaves to the root: each node adds a row to the row of its parent.

    `addend_i, output_i = step(row_i, nodes_i)`, then `row_p(i) += addend_i`. `rows` (n + 1, ...):
    the rows before the pass; the last row belongs to the world. If `rows` is (n, ...), the row of
    the world is zero before the pass. Other arguments as for `forward_pass`. Returns the rows after
    the pass, (n + 1, ...), and the outputs (n, ...).
    """
    run = functools.partial(backward_pass_of_batch, parents, step)
    return (_loop(run) if differentiable else in_batches(run))(rows, nodes)


def _loop(run: Callable[..., Any]) -> Callable[..., Any]:
    """The pass of one state as a loop, which JAX batches and differentiates by its own rules."""

    def loop(*operands):
        with in_context("scan"):
            return run(0, *operands)

    return loop


def forward_pass_of_batch(
    parents: Sequence[int] | np.ndarray,
    step: Step,
    batch_axes: int,
    world: Array,
    nodes: Any,
    rows_in_place: bool = False,
) -> tuple[Array, Any]:
    """`forward_pass` of arrays with leading batch axes; `world` (*batch, 1, *row).

    `rows_in_place`: as for `_scan`.
    """

    def visit(axis, rows, i, parent, node):
        row, output = _step_of_batch(step, batch_axes)(row_at(rows, parent, axis), node)
        return put_row(rows, i, row, axis), output

    def scan(world, nodes):
        size = (*world.shape[:batch_axes], len(parents) + 1, *world.shape[batch_axes + 1 :])
        rows = jnp.broadcast_to(world, size)
        return _scan(visit, parents, batch_axes, rows, nodes, False, rows_in_place)

    return _scan_or_kernel(scan, parents, step, batch_axes, world, nodes, backward=False)


def backward_pass_of_batch(
    parents: Sequence[int] | np.ndarray,
    step: Step,
    batch_axes: int,
    rows: Array,
    nodes: Any,
    rows_in_place: bool = False,
) -> tuple[Array, Any]:
    """`backward_pass` of arrays with leading batch axes; `rows_in_place`: as for `_scan`."""

    def visit(axis, rows, i, parent, node):
        addend, output = _step_of_batch(step, batch_axes)(row_at(rows, i, axis), node)
        return put_row(rows, parent, row_at(rows, parent, axis) + addend, axis), output

    def scan(rows, nodes):
        return _scan(visit, parents, batch_axes, rows, nodes, True, rows_in_place)

    return _scan_or_kernel(scan, parents, step, batch_axes, rows, nodes, backward=True)


def _scan(
    visit: Callable[..., Any],
    parents: Sequence[int] | np.ndarray,
    batch_axes: int,
    rows: Array,
    nodes: Any,
    reverse: bool,
    rows_in_place: bool,
) -> tuple[Array, Any]:
    """The loop `rows, output_i = visit(axis, rows, i, parent of i, node i)` over all nodes i.

    `axis`: the node axis of `rows`. With `rows_in_place`, the node axis stays after the batch axes,
    and the step must return None as its output. Otherwise the node axis is moved to the front,
    which needs copies. `rows_in_place` is faster for rows of few entries. If rows have many
    entries, moving the axis is faster: without the move, one step would touch a different memory
    page for each state.
    """
    node_indices, in_parent = np.arange(len(parents), dtype=np.int32), parent_rows(parents)
    rows = _broadcast_to_batch(rows, nodes, batch_axes)
    if rows_in_place and batch_axes and len(parents):  # without nodes there is no row to read

        def visit_next(rows, indices):
            i, parent = indices
            node = jax.tree.map(lambda x: row_at(x, i, batch_axes), nodes)
            return visit(batch_axes, rows, i, parent, node)

        # The node indices of a backward pass are stored in reverse order. With `reverse=True`, the
        # compiled loop would need an extra kernel that computes the decreasing index.
        order = slice(None, None, -1 if reverse else 1)
        steps = jnp.asarray(node_indices[order]), jnp.asarray(in_parent[order])
        return lax.scan(visit_next, _with_world(rows, len(parents), batch_axes), steps)

    def loop(rows, nodes):
        def visit_next(rows, indices_and_node):
            return visit(0, rows, *indices_and_node)

        steps = jnp.asarray(node_indices), jnp.asarray(in_parent), nodes
        return lax.scan(visit_next, _with_world(rows, len(parents), 0), steps, reverse=reverse)

    return nodes_first(loop, batch_axes)(rows, nodes)


def _with_world(rows: Array, nodes: int, axis: int) -> Array:
    """`rows`, with a zero row for the world added if it is missing."""
    if rows.shape[axis] > nodes:
        return rows
    padding = [(0, 0)] * rows.ndim
    padding[axis] = (0, 1)
    return jnp.pad(rows, padding)


def number_of_states(batch_axes: int, *operands: Any) -> int | float:
    """The number of states of a batch; infinite if a size is symbolic, as in some exports."""
    leaves = jax.tree.leaves(operands)
    sizes = [x.shape[:batch_axes] for x in leaves]
    if not all(isinstance(n, int) for size in sizes for n in size):
        return math.inf
    return math.prod(np.broadcast_shapes(*sizes))


def _scan_or_kernel(
    scan, parents, step: Step, batch_axes: int, rows: Array, nodes: Any, backward: bool
):
    """The results of `scan(rows, nodes)`, or of a kernel that computes the same results."""

    def kernel(rows, nodes, interpret=False):
        def run(rows, nodes):
            rows = _with_world(rows, len(parents), 0) if backward else rows
            table = parent_rows(parents)
            return pass_by_kernel(
                table, step, batch_axes, rows, nodes, backward=backward, interpret=interpret
            )

        return nodes_first(run, batch_axes)(rows, nodes)

    return with_kernel(scan, kernel, number_of_states(batch_axes, rows, nodes), rows, nodes)


def parent_rows(parents: Sequence[int] | np.ndarray) -> np.ndarray:
    """For each node the row of its parent, (n,). The row of the world is n, the last one."""
    rows = np.array(parents, dtype=np.int32)
    return np.where(rows < 0, len(rows), rows)


def row_at(x: Array, i: Array, axis: int = 0) -> Array:
    """Row i of x, as a slice; `axis`: the node axis of x."""
    return lax.dynamic_index_in_dim(x, i, axis, keepdims=False)


def put_row(x: Array, i: Array, row: Array, axis: int = 0) -> Array:
    """x with row i replaced; `axis`: the node axis of x."""
    return lax.dynamic_update_index_in_dim(x, row, i, axis)


# ------------------------------------------------------------------------------ batches of states


def in_batches(run: Callable[..., Any]) -> Callable[..., Any]:
    """The function `run(0, *operands)`, with a rule for `vmap` that keeps rows as slices.

    `run(k, ...)` computes a pass of operands with k leading batch axes, followed by the axis of the
    nodes. The size of a batch axis is 1 in operands that all states share. A step reads and writes
    one row of all states as a slice. With JAX's own batching rules a step would gather and scatter
    rows.
    """

    def batched_run(batch_axes: int):
        batched = custom_vmap(functools.partial(run, batch_axes))

        @batched.def_vmap
        def rule(_, is_batched, *operands):
            def with_batch_axis(x, is_batched):
                return x if is_batched else x[None]

            operands = jax.tree.map(with_batch_axis, operands, tuple(is_batched))
            results = batched_run(batch_axes + 1)(*operands)
            return results, jax.tree.map(lambda _: True, results)

        return batched

    return batched_run(0)


def nodes_first(function: Callable[..., Any], batch_axes: int) -> Callable[..., Any]:
    """The function of arrays (n, *batch, ...), as a function of arrays (*batch, n, ...).

    The GPU kernels, and the matrix products of gpu/products.py, take arrays whose first axis is the
    nodes.
    """

    def moved(*operands):
        operands = jax.tree.map(lambda x: jnp.moveaxis(x, batch_axes, 0), operands)
        found = function(*operands)
        return jax.tree.map(lambda x: jnp.moveaxis(x, 0, batch_axes), found)

    return moved


def _step_of_batch(step: Step, batch_axes: int) -> Step:
    """The step for a row and a node with leading batch axes, of which some have the size 1."""
    if not batch_axes:
        return step

    def batched_step(*operands):
        axes = jax.tree.map(lambda x: None if x.shape[0] == 1 else 0, operands)
        if not jax.tree.leaves(axes):  # every size is 1
            axes = 0
        else:
            operands = jax.tree.map(lambda x: x[0] if x.shape[0] == 1 else x, operands)
        return jax.vmap(_step_of_batch(step, batch_axes - 1), axes)(*operands)

    return batched_step


def _broadcast_to_batch(rows: Array, nodes: Any, batch_axes: int) -> Array:
    """The rows, repeated along batch axes of size 1 to the sizes in `nodes`.

    The function adds zeros of the shape of the nodes' data, instead of a broadcast. So JAX splits
    the rows over devices in the same way as the data.
    """

    def first_entries(x):
        return x[(..., *(0,) * (x.ndim - 1 - batch_axes))]

    leaves = [first_entries(x) for x in jax.tree.leaves(nodes)]
    sizes = [x.shape[:batch_axes] for x in leaves]
    if all(n == 1 or n == m for size in sizes for n, m in zip(size, rows.shape)):
        return rows
    zeros = jnp.sum(jnp.zeros_like(sum(leaves)), axis=-1)
    return rows + zeros.reshape(*zeros.shape, *(1,) * (rows.ndim - zeros.ndim))
