"""A trot at 0.75 m/s: corrections of a policy that was trained for slower commands.

    python -m benchmarks.studies.residual_trot --out DIR [--seeds 0 1 2]

For each seed, SHAC trains the policy of the task "quadruped-trot", with commands between -0.5 and
0.5 m/s, as `jaxrbd train` does. Then an algorithm trains a second policy with the command 0.75 m/s
forward. Its actions are added to the actions of the first policy, which does not change. The study
compares the first policy and the sum with the command 0.75 m/s, without noise, in 64 episodes from
the same starts: the mean velocity forward in the seconds 2 to 10 of the episodes without a fall,
the mean of the reward term `velocity` as a share of its best value, and the falls.

Single precision. The seconds are CPU times of the process, with compilation.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
from jax import Array

from jaxrbd import envs, learning

TASK, COMMAND, EPISODES = "quadruped-trot", (0.75, 0.0, 0.0), 64


@dataclasses.dataclass(frozen=True)
class FastTrot(envs.QuadrupedTrot):
    """`QuadrupedTrot` with the command `COMMAND`. `first`: a policy, to which actions are added."""

    first: Callable[[Array], Array] | None = None

    def initial(self, params, key):
        physics = super().initial(params, key)
        return physics._replace(command=jnp.asarray(COMMAND, physics.command.dtype))

    def advance(self, params, physics, action, key):
        if self.first is not None:
            action = action + self.first(self.observe(params, physics, key))
        return super().advance(params, physics, action, key)

    def terms(self, params, before, action, after):
        return super().terms(params, before, after.action, after)  # of the sum


def train(algorithm, env, seed: int, params, path: Path, task="") -> tuple[Callable, float]:
    """The policy without noise and the CPU seconds of a training, which continues from `path`.

    `path` may be the checkpoint of `jaxrbd train` for the task.
    """
    begin = time.process_time()
    training = learning.Training(algorithm, env, seed, params, task=task)
    if path.exists():
        training.load(path)
    for _ in training.run(path):
        pass
    return training.policy(), time.process_time() - begin


def measure(env, params, policy) -> str:
    """The velocity, the reward term and the falls of a policy, as text."""

    @jax.jit
    def run():
        batch, keys = envs.vectorize(env), jax.random.split(jax.random.key(99), EPISODES)

        def step(states, _):
            states = batch.step(params, states, policy(states.observation))
            return states, (
                states.physics.v[:, 0],
                states.reward_terms["velocity"],
                states.terminated,
            )

        return jax.lax.scan(step, batch.reset(params, keys), length=env.episode_steps)[1]

    speed, term, failed = run()
    fell = jnp.any(failed, axis=0)
    mean = jnp.sum(jnp.where(fell, 0, jnp.mean(speed[100:], axis=0))) / jnp.sum(~fell)
    share = jnp.mean(term) / params.weights["velocity"]
    return f"{mean:.3f} m/s, velocity term {share:.2f}, {jnp.sum(fell)} falls"


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    names = {"choices": ("shac", "apg")}
    parser.add_argument("--first", **names, default="shac", help="algorithm of the first training")
    parser.add_argument("--second", **names, default="shac", help="algorithm of the second")
    parser.add_argument("--updates", type=int, default=100, help="of the second training")
    parser.add_argument("--first-updates", type=int, help="of the first training")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--out", type=Path, default=Path("residual-trot"))
    options = parser.parse_args()
    jax.config.update("jax_enable_compilation_cache", False)
    options.out.mkdir(parents=True, exist_ok=True)
    env = learning.load_task(TASK, options.first)
    settings = learning.algorithm_for(TASK, options.first)
    if options.first_updates:
        settings = dataclasses.replace(settings, updates=options.first_updates)
    later = dataclasses.replace(
        learning.algorithm_for(TASK, options.second), updates=options.updates
    )
    params = jax.tree.map(lambda x: x.astype(jnp.float32), env.default_params())
    for seed in options.seeds:
        path = options.out / f"{options.first}-{seed}.jaxrbd"
        first, cpu = train(settings, env, seed, params, path, TASK)
        alone = FastTrot(smoothing=env.smoothing)
        found = measure(alone, params, first)
        print(f"seed {seed}, first policy: {found}; {cpu:.0f} s", flush=True)
        both = dataclasses.replace(alone, first=first)
        path = options.out / f"{options.first}-{options.second}-{seed}.jaxrbd"
        second, cpu = train(later, both, seed, params, path)
        found = measure(both, params, second)
        print(f"seed {seed}, with corrections: {found}; {cpu:.0f} s", flush=True)


if __name__ == "__main__":
    main()
