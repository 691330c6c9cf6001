"""Steps per second of tasks of Gymnasium: here, and in Gymnasium with MuJoCo.

    XLA_FLAGS=--xla_cpu_multi_thread_eigen=false taskset -c 0 \\
        python -m benchmarks.studies.gymnasium_tasks [--tasks Hopper-v5] [--batches 64,1024]

Random actions, with new episodes at the end of old ones, in one process on one core. jaxrbd runs
`envs.gymnasium_task` in single precision; a call is a window of 10 steps of all environments after
100 steps of warm-up. Gymnasium runs `SyncVectorEnv` of `gymnasium.make`, whose environments run one
after another, so it is timed for the smallest batch only, for `--seconds`. The times are processor
times. The physics differs: contact is rigid here, with a first-order integrator, and soft in
MuJoCo, with RK4 in most of the files. `--all` has all tasks.
"""

from __future__ import annotations

import time
from typing import Any

import jax

from benchmarks.studies import common
from jaxrbd import envs

WARM_UP, WINDOW = 100, 10  # steps
TASKS = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Swimmer-v5", "Reacher-v5")


class Rollout:
    """Compiled windows of random steps of a batch of environments."""

    def __init__(self, name: str, size: int):
        env = envs.gymnasium_task(name)
        params = env.default_params()
        batch = envs.vectorize(envs.auto_reset(env))

        def step(state: envs.State, key: jax.Array) -> tuple[envs.State, Any]:
            shape, dtype = (size, env.action_size), params.model.dtype
            action = jax.random.uniform(key, shape, dtype, -1, 1)
            state = batch.step(params, state, action)
            return state, (state.reward, state.diverged)

        def window(state: envs.State, key: jax.Array) -> tuple[envs.State, Any]:
            return jax.lax.scan(step, state, jax.random.split(key, WINDOW))

        keys = jax.random.split(jax.random.key(0), size)
        self.state = jax.block_until_ready(jax.jit(batch.reset)(params, keys))
        self.key, self.diverged = jax.random.key(1), 0
        self.program = common.Program(window, self.state, self.key, batched=False)
        for _ in range(WARM_UP // WINDOW):
            self.call()

    def call(self) -> jax.Array:
        """The rewards of the next window."""
        self.key, key = jax.random.split(self.key)
        self.state, (rewards, diverged) = self.program.compiled(self.state, key)
        self.diverged += int(diverged.sum())
        return rewards


def gymnasium_rate(name: str, size: int, seconds: float) -> float:
    """The steps per second of Gymnasium's vector environment."""
    import gymnasium

    vector = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make(name)] * size)
    vector.reset(seed=0)
    vector.action_space.seed(0)
    for _ in range(5):
        vector.step(vector.action_space.sample())
    steps, start = 0, time.process_time()
    while time.process_time() - start < seconds:
        vector.step(vector.action_space.sample())
        steps += size
    rate = steps / (time.process_time() - start)
    vector.close()
    return rate


def main() -> None:
    given = common.options(__doc__, tasks=TASKS, batches=(64, 1024), seconds=3.0, all=False)
    common.start(double=False)
    rates = [f"jaxrbd, {size}" for size in given.batches]
    common.head("task", *rates, f"Gymnasium, {min(given.batches)}", "ratio", "compilation, s")
    for name in envs.GYMNASIUM_TASKS if given.all else given.tasks:
        found, diverged = [], 0
        for size in given.batches:
            rollout = Rollout(name, size)
            (least,) = common.least_seconds({name: rollout.call}, given.seconds).values()
            found.append(WINDOW * size / least)
            diverged += rollout.diverged
        theirs = gymnasium_rate(name, min(given.batches), given.seconds)
        ratio = f"{found[-1] / theirs:.2g}"
        texts = [f"{float(f'{x:.3g}'):,.0f}" for x in (*found, theirs)]
        common.row(name, *texts, ratio, rollout.program.compilation)
        if diverged:
            print(f"{name}: {diverged} steps diverged")


if __name__ == "__main__":
    main()
