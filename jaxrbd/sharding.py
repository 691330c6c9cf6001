"""Batches over many devices: a function of one sample, mapped over a batch that a mesh splits.

Devices, meshes and processes are JAX's own (`jax.make_mesh`, `jax.distributed`). docs/devices.md
has both worked out, and says what is the same bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from .errors import ArgumentError

__all__ = [
    "local_batch",
    "over_devices",
    "pad_batch",
    "shard_batch",
]


def over_devices(
    function: Callable[..., Any],
    mesh: Mesh,
    in_axes: int | tuple[int | None, ...] = 0,
    *,
    block: int | None = None,
) -> Callable[..., Any]:
    """Map a function of one sample over a batch that is split over the devices of a mesh.

    It is `jax.jit(jax.vmap(function, in_axes))`, each device with its share of the batch.

    - `mesh`: the batch is split over all its axes, be they of type Auto or Explicit;
    - `in_axes`: 0, or for each argument 0 where the samples are its first axis and None where all
      samples share it, as they do the model;
    - `block`: how many samples a device works on at a time, or None for all of its share. Results
      in blocks do not depend on the number of devices, if they are two or more.

    The results have the samples as their first axis, split over the devices. Nothing is sent
    between devices, with two exceptions: a batch that does not divide by their number (times
    `block`) is padded by `pad_batch` and its results are cut, and a derivative with respect to what
    the samples share is a sum over devices. Raises ArgumentError where `in_axes` or `block` is none
    of these, and in a call where arguments are not as many as `in_axes` or have no batch of one
    size.
    """
    if any(axis not in (0, None) for axis in _tuple(in_axes, 1)):
        raise ArgumentError(f"in_axes is {in_axes}, expected 0 or None for each argument")
    if block is not None and block < 1:
        raise ArgumentError(f"block is {block}, expected None or at least 1")
    split, whole = PartitionSpec(mesh.axis_names), PartitionSpec()
    multiple = mesh.size * (block or 1)

    @jax.jit
    def mapped(*args):
        axes = _tuple(in_axes, len(args))
        if len(axes) != len(args):
            raise ArgumentError(f"{len(args)} arguments, expected {len(axes)}, as in_axes has")
        rows = tuple(x for x, axis in zip(args, axes) if axis == 0)
        shared = tuple(x for x, axis in zip(args, axes) if axis is None)

        def one(rows, shared):
            rows, shared = iter(rows), iter(shared)
            return function(*(next(rows if axis == 0 else shared) for axis in axes))

        def share(rows, shared):
            return _in_blocks(jax.vmap(one, (0, None)), rows, shared, block)

        size = _batch_size(rows)
        if size % multiple:
            rows, _ = pad_batch(_placed(rows, mesh, whole), multiple)
        # Not check_vma: it refuses the constants that the scans of tree.py start from.
        out = jax.shard_map(
            share, mesh=mesh, in_specs=(split, whole), out_specs=split, check_vma=False
        )(_placed(rows, mesh, split), _placed(shared, mesh, whole))
        if size % multiple:
            out = jax.tree.map(lambda x: x[:size], _placed(out, mesh, whole))
        return out

    return mapped


def pad_batch(tree: Any, multiple: int) -> tuple[Any, int]:
    """Pad a batch to a multiple of a number of samples: `(padded, size)`, `size` what it was.

    The samples are the first axis of every array of the tree. They are repeated from the first on,
    so that padding is as valid as they are; `jax.tree.map(lambda x: x[:size], padded)` goes back.
    Raises ArgumentError where the arrays have no batch of one size, or `multiple` is less than 1.
    """
    if multiple < 1:
        raise ArgumentError(f"multiple is {multiple}, expected at least 1")
    size = _batch_size(tree)
    index = np.arange(size + -size % multiple) % size
    return (tree if len(index) == size else jax.tree.map(lambda x: x[index], tree)), size


def shard_batch(tree: Any, mesh: Mesh) -> Any:
    """Split a batch, the first axis of every array of the tree, over the devices of a mesh.

    Where there are several processes, each of them passes its own share, all of one size, and the
    batch is that of all processes in their order. Raises ArgumentError where the arrays have no
    batch of one size, or one that does not divide by the number of this process's devices.
    """
    size, devices = _batch_size(tree), len(mesh.local_devices)
    if size % devices:
        raise ArgumentError(f"{size} samples do not divide by {devices} devices: see pad_batch")
    sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
    return jax.tree.map(lambda x: jax.make_array_from_process_local_data(sharding, x), tree)


def local_batch(tree: Any) -> Any:
    """The samples of a split batch that are on this process's devices, in their order, in numpy.

    The inverse of `shard_batch`; in a single process, the whole batch. Raises ArgumentError where
    the arrays have no batch of one size.
    """
    _batch_size(tree)

    def rows(x: jax.Array) -> np.ndarray:
        parts = {shard.index[0].start or 0: shard.data for shard in x.addressable_shards}
        return np.concatenate([np.asarray(parts[start]) for start in sorted(parts)])

    return jax.tree.map(rows, tree)


def _in_blocks(function: Callable, rows: Any, shared: Any, block: int | None) -> Any:
    """`function(rows, shared)`, so many rows at a time."""
    if block is None:
        return function(rows, shared)

    def step(rows):
        # The barriers keep what surrounds a block out of its program, which is then the same for
        # any number of blocks: XLA would unroll a loop of one and fuse it with its surroundings.
        return lax.optimization_barrier(function(*lax.optimization_barrier((rows, shared))))

    blocks = jax.tree.map(lambda x: x.reshape(-1, block, *x.shape[1:]), rows)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), lax.map(step, blocks))


def _placed(tree: Any, mesh: Mesh, spec: PartitionSpec) -> Any:
    """The arrays so split, for a mesh whose splits are part of their types; else as they are."""
    if AxisType.Explicit not in mesh.axis_types:
        return tree
    return jax.tree.map(lambda x: jax.sharding.reshard(x, NamedSharding(mesh, spec)), tree)


def _batch_size(tree: Any) -> int:
    shapes = [np.shape(x) for x in jax.tree.leaves(tree)]
    sizes = {shape[0] if shape else 0 for shape in shapes}
    if len(sizes) != 1 or 0 in sizes:
        raise ArgumentError(
            f"arrays of shapes {shapes} have no batch: expected one size of first axis, not 0"
        )
    return sizes.pop()


def _tuple(in_axes: int | tuple[int | None, ...], n: int) -> tuple[int | None, ...]:
    return in_axes if isinstance(in_axes, tuple) else (in_axes,) * n
