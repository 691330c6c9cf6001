"""The update of a training in blocks of environments, on one or several devices.

One compiled program simulates each block, and other programs compute the rest of an update. Each
program runs on one device, and its shapes depend only on the number of environments per block and
in total. Between devices and processes, results are only copied. So no rounding depends on the
number of devices and of processes.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental import multihost_utils
from jax.lax import slice_in_dim
from jax.sharding import Mesh

from ..envs import Vectorized
from ..errors import ArgumentError
from ..model import arguments
from .checkpoint import is_key
from .rollouts import Simulated, WindowAlgorithm


def block_update(
    algorithm: WindowAlgorithm, env: Vectorized, mesh: Mesh | None, block: int
) -> Callable[[Any, Any], tuple[Any, dict[str, Array]]]:
    """The function from the parameters and a state to the state after an update, and its metrics.

    - `mesh`: the devices, each of which simulates the same number of blocks. With several
      processes, each one computes all other parts of the update (None: one device);
    - `block`: the number of environments of a block, from `block_size`.

    Raises ArgumentError for a mesh with unequal numbers of devices of the processes.
    """
    devices = [None] if mesh is None else [*mesh.devices.flat]
    count = algorithm.batch // block
    # The devices of the blocks, in the order of the blocks.
    places = [device for device in devices for _ in range(count // len(devices))]
    here = jax.process_index()
    processes = [here if device is None else device.process_index for device in places]
    distributed = {*processes} != {here}
    if distributed and len({processes.count(i) for i in range(jax.process_count())}) > 1:
        raise ArgumentError("mesh has not the same number of devices of each process")
    own = [i for i in range(count) if processes[i] == here]
    home = places[own[0]]

    draw = jax.jit(partial(algorithm.draw, env))
    simulate = jax.jit(partial(algorithm.simulate, env))

    @jax.jit
    def own_parts(params: Any, state: Any, draws: Any) -> list[tuple[Any, Any, Any]]:
        def part(i: int) -> tuple[Any, Any, Any]:
            def rows(axis: int | None, tree: Any) -> Any:
                if axis is None:
                    return tree
                first, last = i * block, (i + 1) * block
                return jax.tree.map(lambda x: slice_in_dim(x, first, last, axis=axis), tree)

            own_params = jax.tree.map(rows, env.params_axes, params, is_leaf=lambda x: x is None)
            return own_params, state._replace(states=rows(0, state.states)), rows(1, draws)

        return [part(i) for i in own]

    @jax.jit
    def learn(state: Any, draws: Any, parts: list[Simulated]) -> tuple[Any, dict[str, Array]]:
        return algorithm.learn(state, draws, _joined(parts))

    # One thread per device: on CPUs, the call of a program returns when its result is complete.
    # JAX traces in the main thread only, because some of its settings belong to a thread.
    pool = ThreadPoolExecutor(len({places[i] for i in own}))
    programs: list[Any] = []  # the compiled simulation of a block, for each device

    def simulate_all(program: Any, parts: list[Any]) -> list[Simulated]:
        return [program(*part) for part in parts]

    def update(params: Any, state: Any) -> tuple[Any, dict[str, Array]]:
        params, state = jax.device_put((params, state), home)
        draws = draw(state)
        parts = own_parts(params, state, draws)
        by_device: dict[Any, list[Any]] = {places[i]: [] for i in own}
        for i, part in zip(own, parts):
            by_device[places[i]].append(jax.device_put(part, places[i]))
        if not programs:
            lowered = [simulate.lower(*device_parts[0]) for device_parts in by_device.values()]
            programs.extend(pool.map(lambda x: x.compile(), lowered))
        simulated = pool.map(simulate_all, programs, by_device.values())
        found = jax.device_put([x for of_device in simulated for x in of_device], home)
        if distributed:
            found = jax.device_put(_of_all_processes(found, processes), home)
        return learn(state, draws, found)

    return update


def block_size(batch: int, mesh: Mesh | None, block: int | None) -> int:
    """The number of environments of a block; `block`: as in `Training`.

    Raises ArgumentError if the environments cannot be divided into such blocks.
    """
    devices = 1 if mesh is None else mesh.size
    if block is not None:
        arguments.require_counts(block=block)
    multiple = devices * (block or 1)
    if batch % multiple:
        expected = f"{multiple}, the number of devices" + (" times block" if block else "")
        raise ArgumentError(f"batch is {batch}, expected a multiple of {expected}")
    return block or batch // devices


def _joined(parts: list[Simulated]) -> Simulated:
    """The window of all environments from the windows of the blocks."""

    def joined(axis: int, *trees: Any) -> Any:
        return jax.tree.map(lambda *x: jnp.concatenate(x, axis), *trees)

    def mean(*trees: Any) -> Any:
        return jax.tree.map(lambda *x: jnp.mean(jnp.stack(x), axis=0), *trees)

    states, windows, losses, gradients = zip(*parts)
    return Simulated(joined(0, *states), joined(1, *windows), mean(*losses), mean(*gradients))


def _of_all_processes(own: list[Simulated], processes: list[int]) -> list[Simulated]:
    """The windows of the blocks of all processes; `processes`: the process of each block."""
    leaves, structure = jax.tree.flatten(own)
    arrays = [np.asarray(jax.random.key_data(x) if is_key(x) else x) for x in leaves]
    # All arrays as bytes: JAX sends them at once, and changes none, such as a zero with a sign.
    sent = np.concatenate([np.ravel(x).view(np.uint8) for x in arrays])
    ends = np.cumsum([x.nbytes for x in arrays])

    def parts(received: Any) -> list[Simulated]:
        found = []
        for like, x, data in zip(leaves, arrays, np.split(received, ends[:-1])):
            array = jnp.asarray(data.view(x.dtype).reshape(x.shape))
            key = is_key(like)
            found.append(
                jax.random.wrap_key_data(array, impl=jax.random.key_impl(like)) if key else array
            )
        return jax.tree.unflatten(structure, found)

    by_process = [iter(parts(x)) for x in multihost_utils.process_allgather(sent)]
    return [next(by_process[process]) for process in processes]
