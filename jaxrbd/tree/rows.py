"""Functions of single bodies or dofs, and sums over the dofs of each body."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._math.implementations import kernels_selected, with_kernel
from .._math.rows import merge_rows, operand_rows, take_rows
from ..topology import Topology
from .gpu.kernels import states_by_kernel
from .gpu.rows import map_rows_by_kernel, sum_over_dofs_by_kernel
from .passes import number_of_states


def map_rows(
    function: Callable[..., Any], *operands: Any, indices: Sequence[np.ndarray | None] = ()
) -> Any:
    """The result of `function` for the rows of the operands that `indices` selects.

    - `function`: a function of pytrees of arrays (..., k) that broadcasts over leading axes. It
      uses only operations that `tree/gpu/lanes.py` can evaluate, and it depends on no other arrays;
    - `operands`: pytrees of arrays (m, ...);
    - `indices`: for each operand the indices (n,) or (n, w) of its rows, or None for all n rows;
      operands without an entry in `indices` have None.
      For (n, w) the operand of the function has one more axis, (..., w, k).

    On a GPU the function can be one kernel. The derivatives are the derivatives of `function`, to
    any order.
    """
    indices = (*indices, *[None] * (len(operands) - len(indices)))
    if kernels_selected():
        return map_rows_by_kernel(function, operands, indices)
    return function(*map(operand_rows, operands, indices))


def map_states(by_batch: Callable[..., Any], of_state: Callable[..., Any], *operands: Array) -> Any:
    """`by_batch(*operands)` for s states, or one kernel that computes `of_state` for each state.

    - `operands`: arrays (s, ...), or (1, ...) if all states share the values. With a symbolic size
      s of `jax.export` no kernel runs;
    - `by_batch`: the function of the operands; its result has arrays (s, ...);
    - `of_state`: the same function for operands without the first axis. It uses only operations
      that `tree/gpu/lanes.py` can evaluate.
    """
    kernel = functools.partial(states_by_kernel, of_state)
    return with_kernel(by_batch, kernel, number_of_states(1, *operands), *operands)


def sum_over_dofs(
    topology: Topology,
    function: Callable[..., Array],
    *operands: Array,
    indices: Sequence[np.ndarray | None] = (),
) -> Float[Array, "nb n"]:
    """For each body, the sum of `function` over the dofs of the body, (nb, n).

    `function`, `operands`, `indices`: as for `map_rows`, with one row per dof.
    """
    if kernels_selected() and topology.nv:
        indices = (*indices, *[None] * (len(operands) - len(indices)))
        return sum_over_dofs_by_kernel(topology, function, operands, indices)
    return sum_dofs(topology, map_rows(function, *operands, indices=indices))


def sum_dofs(topology: Topology, rows: Array) -> Array:
    """For each body, the sum of the given rows of its dofs, (nb, n); `rows` (nv, n)."""
    widths = sorted(set(topology.nvs))
    groups = [np.flatnonzero(np.array(topology.nvs) == width) for width in widths]
    sums = []
    for width, bodies in zip(widths, groups):
        index = topology.v_start[bodies][:, None] + np.arange(width)
        sums.append(jnp.sum(take_rows(rows, index), axis=1))
    return merge_rows(sums, groups, rows.shape[1:], rows.dtype)
