"""Calls batches of constrained dynamics, impacts and contact steps in a loop, from many threads.

    python tests/support/stress.py [--seconds 8] [--threads 2] [--devices 2] [--runs 10]

Prints the number of calls of each run. A run that hangs prints nothing; tests/test_lapack.py has a
time limit. By hand, use `timeout 600 python tests/support/stress.py`.
"""

import argparse
import threading
import time

import jax
import jax.numpy as jnp

import jaxrbd as rbd
from jaxrbd import constraints, contact

BATCH = 256


def program(devices):
    """A compiled program of a batch, and its operands."""
    model = rbd.load_robot("quadruped")
    feet = [name for name in model.frame_names if name.endswith("foot")]
    points = tuple(constraints.point(None, foot) for foot in feet)
    scene = contact.Scene(tuple(feet), 0.02)

    def step(model, q, v):
        tau = jnp.zeros_like(v)
        held = constraints.constrained_dynamics(model, q, v, tau, points)
        hit = constraints.impact(model, q, v, points)
        moved = contact.contact_step(model, scene, q, v, tau, 2e-3)
        return held.acceleration, hit.velocity, moved.v

    keys = jax.random.split(jax.random.key(0), BATCH)
    q = jax.vmap(rbd.random_configuration, (None, 0))(model, keys)
    v = jax.random.normal(jax.random.key(1), (BATCH, model.nv), q.dtype)
    if devices == 1:
        return jax.jit(jax.vmap(step, (None, 0, 0))), (model, q, v)
    mesh = jax.make_mesh((devices,), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
    split = rbd.sharding.over_devices(step, mesh, (None, 0, 0))
    return split, (model, *rbd.sharding.shard_batch((q, v), mesh))


def run(function, operands, seconds, threads):
    """The number of calls of all threads in the given time."""
    counts = [0] * threads
    end = time.monotonic() + seconds

    def work(i):
        while time.monotonic() < end:
            jax.block_until_ready(function(*operands))
            counts[i] += 1

    workers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if options.devices > 1:
        jax.config.update("jax_num_cpu_devices", options.devices)
    function, operands = program(options.devices)
    jax.block_until_ready(function(*operands))
    for _ in range(options.runs):
        calls = run(function, operands, options.seconds, options.threads)
        print(f"{calls} calls, {options.threads} threads, {options.devices} devices", flush=True)


if __name__ == "__main__":
    main()
