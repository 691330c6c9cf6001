"""Compare the speed of N CPU devices on N cores and of one device on one core, at a batch of 8192.

    python benchmarks/studies/devices.py [--devices N] [--block K] [ROBOT]

ROBOT is the name of a bundled robot, or a URDF file of a robot with a floating base. Each device
has one thread. Rounds with one device and with N devices alternate. The result is the rate of the
fastest call.
"""

import argparse
import json
import os
import subprocess
import sys

import numpy as np

BATCH, ROUNDS, DURATION = 8192, 3, 5.0  # s of each round and function


def measure(robot, devices, block):
    """Print the samples per second of each function on the devices of this process, as JSON."""
    import time

    import jax

    import jaxrbd as rbd

    jax.config.update("jax_num_cpu_devices", devices)
    jax.config.update("jax_enable_x64", True)
    if robot in rbd.robot_names():
        model = rbd.load_robot(robot)
    else:
        model = rbd.load_urdf(robot, root_joint="free_flyer")
    mesh = jax.make_mesh((devices,), ("batch",))
    keys = jax.random.split(jax.random.key(0), BATCH)
    q = jax.vmap(rbd.random_configuration, (None, 0))(model, keys)
    v, a = jax.random.normal(jax.random.key(1), (2, BATCH, model.nv))
    batch = rbd.sharding.shard_batch((q, v, a), mesh)
    rates = {}
    for function in (rbd.rnea, rbd.forward_dynamics):
        program = rbd.sharding.over_devices(function, mesh, (None, 0, 0, 0), block=block)
        jax.block_until_ready(program(model, *batch))
        best, end = np.inf, time.perf_counter() + DURATION
        while time.perf_counter() < end:
            began = time.perf_counter()
            jax.block_until_ready(program(model, *batch))
            best = min(best, time.perf_counter() - began)
        rates[function.__name__] = BATCH / best
    print(json.dumps(rates))


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("robot", nargs="?", default="quadruped")
    parser.add_argument("--devices", type=int, default=os.cpu_count())
    parser.add_argument("--block", type=int, default=64)
    parser.add_argument("--here", action="store_true", help="measure in this process and stop")
    options = parser.parse_args()
    if options.here:
        measure(options.robot, options.devices, options.block)
        return

    best = {1: {}, options.devices: {}}
    for _ in range(ROUNDS):
        for devices in best:
            command = [sys.executable, __file__, options.robot, "--here"]
            command += ["--devices", str(devices), "--block", str(options.block)]
            cores = range(devices)
            run = subprocess.run(
                command,
                check=True,
                capture_output=True,
                env={**os.environ, "NPROC": str(devices)},
                preexec_fn=lambda cores=cores: os.sched_setaffinity(0, cores),
            )
            for name, rate in json.loads(run.stdout).items():
                best[devices][name] = max(best[devices].get(name, 0.0), rate)
    for name, rate in best[1].items():
        many = best[options.devices][name]
        print(f"{name}: {rate:.0f} samples/s on one core, {many:.0f} on", end=" ")
        print(f"{options.devices} devices: {many / rate:.2f} times as many")


if __name__ == "__main__":
    main()
