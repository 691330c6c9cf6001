"""Batches on several devices: map a function of one sample over a batch that is split over a mesh.

JAX provides devices, meshes and processes (`jax.make_mesh`, `jax.distributed`). The page "Many
devices" of the documentation has examples with several devices and several processes, and lists the
results that are equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from ._math.cast import is_integer
from ._math.tiles import in_blocks
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

    The result is a function like `jax.jit(jax.vmap(function, in_axes))`. Each device computes its
    part of the batch.

    - `mesh`: the batch is split over all axes of the mesh. The axes have the type Auto or Explicit;
    - `in_axes`: 0, or a tuple with one entry per argument. The entry is 0 if the first axis of the
      argument is the batch, and None if all samples share the argument, for example the model;
    - `block`: the number of samples that a device computes at a time. None: a device computes its
      whole part of the batch at once. With blocks, the results are identical, bit for bit, for
      every number of devices from two up. On one device they can differ by rounding.

    The first axis of the results is the batch, split over the devices. Devices communicate in two
    cases. First, if the size of the batch is not a multiple of the number of devices (times
    `block`), the batch is padded by `pad_batch`, and the padding is cut from the results. Second,
    derivatives with respect to shared arguments are sums over the devices. Raises ArgumentError if
    `function` is no function, if an entry of `in_axes` is not 0 or None, if `block` is no integer
    of 1 or more, or if `mesh` is no `jax.sharding.Mesh`. A call raises ArgumentError if the number
    of arguments differs from `in_axes`, or if the first axes of the batched arguments are empty or
    differ in size.
    """
    if not callable(function):
        raise ArgumentError(f"function is {function!r}, expected a function of one sample")
    if not all(axis is None or (is_integer(axis) and axis == 0) for axis in _tuple(in_axes, 1)):
        raise ArgumentError(f"in_axes is {in_axes}, expected 0 or None for each argument")
    if block is not None and not _is_count(block):
        raise ArgumentError(f"block is {block!r}, expected None or an integer of 1 or more")
    _require_mesh(mesh)
    split, whole = PartitionSpec(mesh.axis_names), PartitionSpec()
    multiple = mesh.size * (block or 1)

    @jax.jit
    def mapped(*args):
        axes = _tuple(in_axes, len(args))
        if len(axes) != len(args):
            raise ArgumentError(f"{len(args)} arguments, expected {len(axes)}, as many as in_axes")
        batched = tuple(x for x, axis in zip(args, axes) if axis == 0)
        shared = tuple(x for x, axis in zip(args, axes) if axis is None)

        def one_sample(sample, shared):
            sample, shared = iter(sample), iter(shared)
            return function(*(next(sample if axis == 0 else shared) for axis in axes))

        def part_of_one_device(batched, shared):
            return _in_blocks(jax.vmap(one_sample, (0, None)), batched, shared, block)

        size = _batch_size(batched)
        if size % multiple:
            batched, _ = pad_batch(_placed(batched, mesh, whole), multiple)
        # check_vma is off, because the check rejects the constants that are initial values of the
        # scans in tree/passes.py.
        out = jax.shard_map(
            part_of_one_device,
            mesh=mesh,
            in_specs=(split, whole),
            out_specs=split,
            check_vma=False,
        )(_placed(batched, mesh, split), _placed(shared, mesh, whole))
        if size % multiple:
            out = jax.tree.map(lambda x: x[:size], _placed(out, mesh, whole))
        return out

    return mapped


def pad_batch(tree: Any, multiple: int) -> tuple[Any, int]:
    """Pad a batch to a multiple of `multiple` samples: `(padded, size)`, with the original size.

    `tree`: a pytree of arrays, whose first axes are the samples. The padding repeats the samples
    from the first on, so it consists of valid samples. `jax.tree.map(lambda x: x[:size], padded)`
    removes the padding. Raises ArgumentError if the first axes of the arrays are empty or differ in
    size, or if `multiple` is no integer of 1 or more.
    """
    if not _is_count(multiple):
        raise ArgumentError(f"multiple is {multiple!r}, expected an integer of 1 or more")
    size = _batch_size(tree)
    index = np.arange(size + (-size) % multiple) % size
    return (tree if len(index) == size else jax.tree.map(lambda x: x[index], tree)), size


def shard_batch(tree: Any, mesh: Mesh) -> Any:
    """Split a batch over the devices of a mesh.

    `tree`: a pytree of arrays, whose first axes are the samples. With several processes, each
    process passes its part of the batch. All parts have the same size, and the batch is the
    concatenation of the parts in the order of the processes. Raises ArgumentError if the first axes
    of the arrays are empty or differ in size, if the size is not a multiple of the number of
    devices of this process, or if `mesh` is no `jax.sharding.Mesh`.
    """
    _require_mesh(mesh)
    size, devices = _batch_size(tree), len(mesh.local_devices)
    if size % devices:
        raise ArgumentError(f"{size} samples do not divide by {devices} devices: see pad_batch")
    sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
    return jax.tree.map(lambda x: jax.make_array_from_process_local_data(sharding, x), tree)


def local_batch(tree: Any) -> Any:
    """The samples of a split batch on the devices of this process, in order, as NumPy arrays.

    `local_batch` is the inverse of `shard_batch`. With a single process the result is the whole
    batch. Raises ArgumentError if the first axes of the arrays are empty or differ in size, or if
    an array is no `jax.Array`.
    """
    _batch_size(tree)
    for x in jax.tree.leaves(tree):
        if not isinstance(x, jax.Array):
            raise ArgumentError(f"the batch has a {type(x).__name__!r}, expected arrays of JAX")

    def rows(x: jax.Array) -> np.ndarray:
        # The key of a part is the index of its first sample. The start of a whole axis is None.
        parts = {shard.index[0].start or 0: shard.data for shard in x.addressable_shards}
        return np.concatenate([np.asarray(parts[start]) for start in sorted(parts)])

    return jax.tree.map(rows, tree)


def _in_blocks(function: Callable, batched: Any, shared: Any, block: int | None) -> Any:
    """`function(batched, shared)`, computed for `block` samples at a time."""
    if block is None:
        return function(batched, shared)

    def step(batched):
        # XLA unrolls a loop of one block. The barriers prevent fusion of the block with the
        # operations around it. So the program of a block is the same for any number of blocks.
        return lax.optimization_barrier(function(*lax.optimization_barrier((batched, shared))))

    return in_blocks(step, batched, block)


def _placed(tree: Any, mesh: Mesh, spec: PartitionSpec) -> Any:
    """The arrays, resharded to `spec` where the mesh has axes of type Explicit."""
    if AxisType.Explicit not in mesh.axis_types:
        return tree
    return jax.tree.map(lambda x: jax.sharding.reshard(x, NamedSharding(mesh, spec)), tree)


def _batch_size(tree: Any) -> int:
    """The size of the first axes. Raises ArgumentError if they are empty or differ in size."""
    shapes = [np.shape(x) for x in jax.tree.leaves(tree)]
    sizes = {shape[0] if shape else 0 for shape in shapes}
    if len(sizes) != 1 or 0 in sizes:
        raise ArgumentError(
            f"arrays of shapes {shapes} are no batch: expected first axes of equal size, not empty"
        )
    return sizes.pop()


def _is_count(x: Any) -> bool:
    return bool(is_integer(x) and x >= 1)


def _require_mesh(mesh: Any) -> None:
    if not isinstance(mesh, Mesh):
        raise ArgumentError(f"mesh is {mesh!r}, expected a jax.sharding.Mesh")


def _tuple(in_axes: int | tuple[int | None, ...], n: int) -> tuple[int | None, ...]:
    return in_axes if isinstance(in_axes, tuple) else (in_axes,) * n
