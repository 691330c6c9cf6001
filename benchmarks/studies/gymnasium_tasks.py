"""Steps per second of tasks of Gymnasium: here, in Gymnasium with MuJoCo, and in Brax.

    pip install -r benchmarks/peers/brax.txt "gymnasium[mujoco]" -e .     # into a new environment
    XLA_FLAGS=--xla_cpu_multi_thread_eigen=false taskset -c 0 \\
        python -m benchmarks.studies.gymnasium_tasks [--tasks Hopper-v5] [--batches 64,1024]

Random actions, with new episodes at the end of old ones, in one process on one core, in single
precision. A call is a window of 10 steps of all environments after 100 steps of warm-up. The times
are processor times. `--all` has all tasks.

- jaxrbd: `envs.gymnasium_task`.
- Gymnasium: `SyncVectorEnv` of `gymnasium.make`, whose environments run one after another in double
  precision, for `--seconds`.
- "brax" and "mjx": the tasks of Brax with the same names, `brax.envs.create` with the backends
  "generalized" and "mjx".

The physics differs. Contact is soft in jaxrbd and in MuJoCo, but jaxrbd has round friction cones
and a first-order integrator, and most of the files have pyramids and RK4. The files of Brax have
other contacts, and few iterations.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from benchmarks.studies import common
from jaxrbd import envs

WARM_UP, WINDOW = 100, 10  # steps
TASKS = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Swimmer-v5", "Reacher-v5")


class Batch(NamedTuple):
    """A batch of environments.

    `reset(keys)` is the first state; `step(state, action)` is the next state, the rewards, and
    whether each environment diverged.
    """

    action_size: int
    reset: Callable[[jax.Array], Any]
    step: Callable[[Any, jax.Array], tuple[Any, tuple[jax.Array, jax.Array]]]


def jaxrbd_batch(name: str, size: int) -> Batch:
    """The task of jaxrbd; the batch has the size of the keys of its reset."""
    del size
    env = envs.gymnasium_task(name)
    params = env.default_params()
    batch = envs.vectorize(envs.auto_reset(env))

    def step(state, action):
        state = batch.step(params, state, action)
        return state, (state.reward, state.diverged)

    return Batch(env.action_size, lambda keys: batch.reset(params, keys), step)


def brax_batch(name: str, size: int, backend: str) -> Batch:
    """The task of Brax, with the wrappers that its trainings have."""
    from brax import envs as tasks

    task = name.removesuffix("-v5").lower().replace("inverted", "inverted_")
    env = tasks.create(task.replace("doublep", "double_p"), backend=backend, batch_size=size)

    def step(state, action):
        state = env.step(state, action)
        return state, (state.reward, ~jnp.all(jnp.isfinite(state.obs), axis=-1))

    return Batch(env.action_size, lambda keys: env.reset(keys[0]), step)


BATCHES = {
    "jaxrbd": jaxrbd_batch,
    "brax": functools.partial(brax_batch, backend="generalized"),
    "mjx": functools.partial(brax_batch, backend="mjx"),
}


class Rollout:
    """Compiled windows of random steps of a batch of `size` environments."""

    def __init__(self, batch: Batch, size: int):
        def step(state: Any, key: jax.Array) -> tuple[Any, Any]:
            action = jax.random.uniform(key, (size, batch.action_size), minval=-1, maxval=1)
            return batch.step(state, action)

        def window(state: Any, key: jax.Array) -> tuple[Any, Any]:
            return jax.lax.scan(step, state, jax.random.split(key, WINDOW))

        keys = jax.random.split(jax.random.key(0), size)
        self.state = jax.block_until_ready(jax.jit(batch.reset)(keys))
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


def rate(library: str, name: str, size: int, seconds: float) -> tuple[float, str]:
    """The steps per second of a batch of a task, and the seconds of its compilation as a text."""
    if library == "gymnasium":
        return gymnasium_rate(name, size, seconds), ""
    rollout = Rollout(BATCHES[library](name, size), size)
    (least,) = common.least_seconds({name: rollout.call}, seconds).values()
    if rollout.diverged:
        print(f"{name} with {library}: {rollout.diverged} steps diverged")
    return WINDOW * size / least, rollout.program.compilation


def main() -> None:
    libraries = "jaxrbd", "gymnasium", *(name for name in BATCHES if name != "jaxrbd")
    given = common.options(
        __doc__, tasks=TASKS, batches=(64, 1024), seconds=3.0, all=False, libraries=libraries
    )
    common.start(double=False)
    first = given.libraries[0]
    sizes = [f"{size} environments" for size in given.batches]
    common.head("task", "library", *sizes, f"{first} / library", "compilation, s")
    for name in envs.GYMNASIUM_TASKS if given.all else given.tasks:
        rates: dict[tuple[str, int], float] = {}
        for library in given.libraries:
            for size in given.batches:
                rates[library, size], compilation = rate(library, name, size, given.seconds)
            size = max(given.batches)
            ratio = f"{rates[first, size] / rates[library, size]:.2g}"
            found = [rates[library, size] for size in given.batches]
            texts = [f"{float(f'{x:.3g}'):,.0f}" for x in found]
            common.row(name, library, *texts, ratio, compilation)


if __name__ == "__main__":
    main()
