"""Functions of all peers in JAX: derivatives, compilation, timing."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import time
from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from .. import jobs
from . import Prepared, Unsupported, call_seconds

BLOCK = 64  # samples; every larger batch is a multiple of it


class Library:
    """A library with a robot. A subclass defines a method for each job of the library.

    A method takes one sample. This class has the derivatives, by automatic differentiation in
    reverse mode.
    """

    names: tuple[str, ...] = ()  # the packages in `versions`

    def __init__(self, folder: pathlib.Path, robot: dict, dtype: np.dtype):
        jax.config.update("jax_enable_x64", dtype == np.float64)
        self.folder, self.robot, self.dtype = folder, robot, dtype
        self.floating, self.nv = robot["floating"], robot["nv"]

    def versions(self) -> dict[str, str]:
        return {name: importlib.metadata.version(name) for name in (*self.names, "jax", "jaxlib")}

    def prepare(self, job: str, arrays: Sequence[np.ndarray]) -> Prepared:
        if not hasattr(self, job):
            raise Unsupported("no such function")
        function = jax.vmap(getattr(self, job))
        return prepare(function, arrays, lambda x: self.finish(job, x))

    def finish(self, job: str, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """The results in the order of jaxrbd. This function is not timed."""
        return arrays

    def integrate(self, q, v, dt):
        """The configuration after the time dt at the velocity v; here for robots with q_dot = v."""
        if self.floating:
            raise Unsupported("no function moves a floating base along its manifold")
        return q + dt * v

    def step(self, q, v, tau):
        """One step of semi-implicit Euler: (q, v)."""
        v = v + jobs.DT * self.fd(q, v, tau)
        return self.integrate(q, v, jobs.DT), v

    def drnea(self, q, v, a):
        return jax.jacrev(self.rnea, (0, 1, 2))(q, v, a)

    def dfd(self, q, v, tau):
        return jax.jacrev(self.fd, (0, 1, 2))(q, v, tau)

    def grad(self, q, v, a):
        return jax.grad(lambda *x: 0.5 * jnp.sum(self.rnea(*x) ** 2), (0, 1, 2))(q, v, a)

    def rollout_grad(self, q, v, taus):
        def loss(taus):
            def step(state, row):
                motorless = jnp.zeros(6 * self.floating, row.dtype)
                return self.step(*state, jnp.concatenate([motorless, row])), None

            (_, end), _ = jax.lax.scan(step, (q, v), taus)
            return 0.5 * jnp.sum(end**2)

        return jax.grad(loss)(taus)


def rotation(w, x, y, z):
    """The rotation matrices (..., 3, 3) of unit quaternions, from their entries."""
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)


def prepare(function: Callable, arrays: Sequence[np.ndarray], finish: Callable) -> Prepared:
    """The compiled job `function(*arrays)`; `finish` puts its results into the order of jaxrbd.

    On a CPU, a large batch is computed whole and in blocks, and the faster program is timed.
    """
    inputs = jax.block_until_ready(list(map(jax.device_put, arrays)))
    ways = {"whole": jax.jit(function)}
    if len(arrays[0]) > BLOCK and jax.default_backend() == "cpu":
        ways["blocks"] = jax.jit(in_blocks(function))
    facts = {way: _compiled(run, inputs) for way, run in ways.items()}
    limit = _memory_limit()
    ways = {way: run for way, run in ways.items() if (facts[way]["temp_bytes"] or 0) <= limit}
    if not ways:
        raise Unsupported(f"needs {facts['whole']['temp_bytes'] / 1e9:.0f} GB")

    def call(run: Callable):
        return jax.block_until_ready(run(*inputs))

    found = {way: [call(run)] for way, run in ways.items()}
    timed = {way: partial(call_seconds, partial(call, run)) for way, run in ways.items()}
    way = min(ways, key=lambda way: min(timed[way](3))) if len(ways) > 1 else min(ways)
    found = found[way]

    def outputs(samples: np.ndarray) -> Sequence[np.ndarray]:
        return finish([np.asarray(x)[samples] for x in jax.tree.leaves(found.pop())])

    facts = {**facts[way], "note": way if way != "whole" else None}
    return Prepared(timed[way], outputs, facts)


def in_blocks(function: Callable) -> Callable:
    """The function for blocks of `BLOCK` samples, whose temporary arrays fit into the cache."""

    def run(*arrays):
        blocks = [x.reshape(-1, BLOCK, *x.shape[1:]) for x in arrays]
        results = jax.lax.map(lambda block: function(*block), blocks)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), results)

    return run


def _compiled(run: Callable, inputs: Sequence) -> dict:
    start = time.perf_counter()
    compiled = run.lower(*inputs).compile()
    seconds, device = time.perf_counter() - start, jax.devices()[0]
    return {
        "compile_s": seconds,
        "temp_bytes": getattr(compiled.memory_analysis(), "temp_size_in_bytes", None),
        "platform": device.platform,
        "device": device.device_kind,
    }


def _memory_limit() -> float:
    """The bytes for temporary arrays: half of the memory, or 90 % of the free memory of a GPU."""
    stats = jax.devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return 0.9 * (stats["bytes_limit"] - stats["bytes_in_use"])
    return 0.5 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
