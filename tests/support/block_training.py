"""Trainings in blocks of environments, which tests/test_sharding.py runs in separate processes.

    python -m support.block_training TASK DEVICES FILE [options]

TASK is `point`, or a name of `load_task`. The checkpoints of PPO, APG, SHAC and an imitation are
FILE-ppo and so on. With `--kill`, the process kills itself in the middle of each training; it
continues with `--resume`. With `--process I --port PORT`, the process is one of two.
"""

import argparse
import os
import signal

import jax
import jax.numpy as jnp

from jaxrbd import envs, learning
from support.point import Point

BATCH, BLOCK, UPDATES = 8, 2, 4


def trainings(task, mesh, names, block=BLOCK):
    """The trainings by name. Each point has its own friction."""
    env = Point(episode_steps=5) if task == "point" else learning.load_task(task)
    settings = {"batch": BATCH, "horizon": 9, "hidden": (6,), "updates": UPDATES}
    algorithms = {
        "ppo": learning.Ppo(**settings, epochs=2, minibatches=3),
        "apg": learning.Apg(**settings, action_limit=1.0),
        "shac": learning.Shac(**settings, critic_epochs=2, critic_minibatches=3),
        "imitation": learning.Imitation(lambda x: jnp.tanh(x[..., :1]), **settings),
    }
    params, axes = env.default_params(), None
    if task == "point":
        friction = {"friction": envs.Uniform(0.0, 0.5)}
        params, axes = envs.randomise(params, friction, jax.random.key(0), BATCH)
    for name in names:
        yield (
            name,
            learning.Training(algorithms[name], env, 1, params, axes, mesh=mesh, block=block),
        )


def main():
    parser = argparse.ArgumentParser()
    add = parser.add_argument
    add("task")
    add("devices", type=int)
    add("file")
    add("--names", nargs="*", default=["ppo", "apg", "shac", "imitation"])
    add("--kill", action="store_true")
    add("--resume", action="store_true")
    add("--process", type=int)
    add("--port")
    options = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", options.devices)
    if options.process is not None:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"localhost:{options.port}", 2, options.process)
    mesh = jax.make_mesh((jax.device_count(),), ("environments",)) if options.devices > 1 else None
    for name, training in trainings(options.task, mesh, options.names):
        path = f"{options.file}-{name}"
        if options.resume:
            training.load(path)
        for record in training.run(path, every=1):
            if options.kill and record.update == UPDATES // 2:
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
