"""Functions of single bodies or dofs by one GPU kernel, as JAX batches and differentiates them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..._math.implementations import with_kernel
from ..._math.rows import operand_rows
from ..._math.rules import changed_leaves, custom_jvp
from ...spatial import Pose
from ...topology import Topology
from ..passes import in_batches, nodes_first, number_of_states
from ..pose_entries import pose_entries, pose_of_entries
from .kernels import rows_by_kernel


def map_rows_by_kernel(
    function: Callable[..., Any], operands: Sequence[Any], indices: Sequence[np.ndarray | None]
) -> Any:
    """The result of `tree.map_rows`, where `indices` has one entry per operand."""
    n = max(len(jax.tree.leaves(x)[0]) if i is None else len(i) for x, i in zip(operands, indices))
    rows = [np.arange(n) if index is None else index for index in indices]
    # A pass computes the world poses as one array of entries, so a kernel reads this array.
    is_pose = [isinstance(x, Pose) for x in operands]
    operands = tuple(pose_entries(x) if pose else x for x, pose in zip(operands, is_pose))

    def of_entries(*operands):
        return function(*(pose_of_entries(x) if pose else x for x, pose in zip(operands, is_pose)))

    def of_batch(batch_axes, *operands):
        def repeated(*operands):
            """The function of operands that all have the sizes of the batch."""
            sizes = [x.shape[1 : 1 + batch_axes] for x in jax.tree.leaves(operands)]
            batch = jnp.broadcast_shapes(*sizes)

            def repeat(x):
                return jnp.broadcast_to(x, (len(x), *batch, *x.shape[1 + batch_axes :]))

            operands = jax.tree.map(repeat, operands)
            found = [operand_rows(x, index, batch_axes) for x, index in zip(operands, indices)]
            return of_entries(*found)

        kernel = functools.partial(rows_by_kernel, of_entries, rows, batch_axes)
        chosen = functools.partial(
            with_kernel, repeated, kernel, number_of_states(batch_axes, *operands)
        )
        return nodes_first(chosen, batch_axes)(*operands)

    @custom_jvp
    def mapped(*operands):
        return in_batches(of_batch)(*operands)

    def rule(primals, tangents):
        values, changes, with_values = changed_leaves(primals, tangents)

        def ordinary(*values):
            return of_entries(*map(operand_rows, with_values(list(values)), indices))

        return mapped(*primals), jax.jvp(ordinary, values, changes)[1]

    mapped.defjvp(rule, symbolic_zeros=True)
    return mapped(*operands)


def sum_over_dofs_by_kernel(
    topology: Topology,
    function: Callable[..., Array],
    operands: Sequence[Array],
    indices: Sequence[np.ndarray | None],
) -> Array:
    """The result of `tree.sum_over_dofs`, where `indices` has one entry per operand.

    In a kernel all bodies add the same number of rows. So a row has the factor 1 if it belongs to a
    dof of the body, and else 0.
    """
    nvs, start = np.array(topology.nvs), np.array(topology.v_start)
    dof = np.arange(max(nvs))
    rows = np.clip(start[:, None] + dof, 0, np.maximum(start + nvs - 1, 0)[:, None])
    rows = np.minimum(rows, topology.nv - 1)
    factors = jnp.asarray(dof < nvs[:, None], operands[0].dtype)

    def total(factors, *operands):
        return jnp.sum(factors[..., None] * function(*operands), axis=-2)

    chosen = [rows if index is None else index[rows] for index in indices]
    return map_rows_by_kernel(total, (factors, *operands), (None, *chosen))
