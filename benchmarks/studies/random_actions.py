"""Values that are not finite, in many steps with random actions and random parameters.

    python -m benchmarks.studies.random_actions quadruped-trot --steps 1000000

Single precision, with new episodes where episodes end. Each block of 200 steps of 256 environments
has other parameters: the masses, and for robots with contact also the friction, the gains and the
delay, where the environment has them. Actions are uniform between -1 and 1, and in every other
block each action is held for 25 steps.
"""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp

from jaxrbd import envs, learning
from jaxrbd.errors import ArgumentError

SIZE, LENGTH = 256, 200
NAMES = {
    "model.inertia": envs.Scale(0.5, 2.0, per_row=True),
    "scene.material.friction": envs.Uniform(0.1, 1.2),
    "control.stiffness": envs.Scale(0.5, 2.0),
    "control.damping": envs.Scale(0.5, 2.0),
    "delay.lag": envs.Uniform(0.0, 8.0),
}


def known_names(params):
    """The distributions whose parameters the environment has."""
    found = {}
    for name, distribution in NAMES.items():
        try:
            envs.randomise(params, {name: distribution}, jax.random.key(0), 1)
        except ArgumentError:
            continue
        found[name] = distribution
    return found


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("tasks", nargs="+", metavar="TASK")
    parser.add_argument("--steps", type=int, default=1_000_000)
    options = parser.parse_args()
    for task in options.tasks:
        env = learning.load_task(task)
        params = jax.tree.map(lambda x: x.astype(jnp.float32), env.default_params())
        names = known_names(params)
        axes = envs.randomise(params, names, jax.random.key(0), SIZE).axes
        batch = envs.vectorize(envs.auto_reset(env), axes)

        def block(params, key, held, batch=batch, env=env, names=names):
            reset, draw, act = jax.random.split(key, 3)
            several = envs.randomise(params, names, draw, SIZE).params
            shape = LENGTH, SIZE, env.action_size
            actions = jax.random.uniform(act, shape, jnp.float32, -1, 1)
            actions = jnp.where(held, actions[(jnp.arange(LENGTH) // 25) * 25], actions)

            def step(carry, action):
                state, bad, ends = carry
                state = batch.step(several, state, action)
                values = state.physics, state.observation, state.final_observation, state.reward
                bad += sum(jnp.sum(~jnp.isfinite(x)) for x in jax.tree.leaves(values))
                return (state, bad, ends + jnp.sum(state.terminated)), jnp.max(
                    jnp.abs(state.final_observation)
                )

            zero = jnp.zeros((), jnp.int32)
            start = batch.reset(several, jax.random.split(reset, SIZE)), zero, zero
            (_, bad, ends), largest = jax.lax.scan(step, start, actions)
            return bad, ends, jnp.max(largest)

        run = jax.jit(block)
        blocks = -(-options.steps // (SIZE * LENGTH))
        bad = ends = 0
        largest, begin = 0.0, time.process_time()
        for i in range(blocks):
            found = run(params, jax.random.key(i), i % 2 == 1)
            bad, ends = bad + int(found[0]), ends + int(found[1])
            largest = max(largest, float(found[2]))
        print(
            f"{task}: {blocks * SIZE * LENGTH} steps, {bad} values not finite, {ends} failures, "
            f"largest observation {largest:.3g}, random: {', '.join(names)}; "
            f"{run._cache_size()} program, {time.process_time() - begin:.0f} s of the CPU",
            flush=True,
        )


if __name__ == "__main__":
    main()
