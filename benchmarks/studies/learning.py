"""The tasks of docs/learning.md: times, returns and learning curves of several seeds.

    python -m benchmarks.studies.learning cart-pole:shac hopper:shac quadruped-trot:apg --out DIR

Each training is the command `jaxrbd train` in a process of its own, in single precision and without
a cache of compiled programs. The CPU seconds are those of all threads of the whole command: start,
compilation, training, checkpoints and the picture. The returns are those of the policy without
noise, in 64 episodes from the same random starts for each seed.

For the cart-pole, `jaxrbd.optimal_control` optimises the trajectories of the best policy, with the
pole turning to either side. The reference for each start is the best of these two and of the
trajectories of the policies of all seeds. The excess of a policy is the share by which its mean
return is worse.

DIR gets one folder per training, and one picture per task. A training whose folder has results is
not repeated.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from benchmarks.studies import common
from jaxrbd import envs, learning, optimal_control

EPISODES, STARTS = 64, 99
COMMAND = "import sys; from jaxrbd import cli; sys.exit(cli.main(sys.argv[1:]))"


def train(task: str, algorithm: str, seed: int, folder: Path) -> float:
    """The CPU seconds of `jaxrbd train`."""
    stored = folder / "seconds.json"
    if stored.exists():
        return json.loads(stored.read_text())
    options = ["train", task, "--algorithm", algorithm, "--seed", str(seed), "--out", str(folder)]
    if (folder / "checkpoint.jaxrbd").exists():
        raise SystemExit(f"{folder} has an incomplete training: remove it")
    environment = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    process = subprocess.Popen([sys.executable, "-c", COMMAND, *options], env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{task} {algorithm}, seed {seed}: the command failed")
    seconds = usage.ru_utime + usage.ru_stime
    stored.write_text(json.dumps(seconds))
    return seconds


def single(params):
    """The parameters in single precision, as in the trainings."""
    return jax.tree.map(lambda x: x.astype(jnp.float32), params)


def evaluated(task: str, folder: Path) -> tuple[learning.Training, learning.Evaluation]:
    """The training of a folder, and the evaluation of its policy in the episodes of the task."""
    env = learning.load_task(task)
    params = single(env.default_params())
    training = learning.load_training(folder / "checkpoint.jaxrbd", params=params)
    key = jax.random.key(STARTS)
    return training, learning.evaluate(env, params, training.policy(), key, EPISODES)


def best_returns(policy) -> tuple[np.ndarray, np.ndarray]:
    """The returns of the policy and of optimised trajectories from all starts."""
    env = envs.CartPoleSwingUp()
    params = env.default_params()
    batch, small = envs.vectorize(env), single(params)
    first = batch.reset(small, jax.random.split(jax.random.key(STARTS), EPISODES))

    @jax.jit
    def play():
        def step(states, _):
            action = policy(states.observation)
            states = batch.step(small, states, action)
            return states, (action, states.reward)

        actions, rewards = jax.lax.scan(step, first, length=env.episode_steps)[1]
        return actions.swapaxes(0, 1), jnp.sum(rewards, axis=0)

    start = envs.Motion(*(x.astype(params.model.dtype) for x in first.physics))
    root = {name: jnp.sqrt(2 * weight) for name, weight in params.weights.items()}

    def residuals(x, goal):
        (place, angle), (speed, rate) = x
        values = {"angle": angle - goal, "angular_velocity": rate}
        values |= {"position": place, "velocity": speed}
        return jnp.stack([root[name] * value for name, value in values.items()])

    def cost(t, x, u, goal):  # the first state has no reward; a small cost of u keeps u unique
        return jnp.concatenate([jnp.where(t > 0, residuals(x, goal), 0), 1e-3 * u])

    def dynamics(t, x, u, goal):
        return tuple(env.advance(params, envs.Motion(*x), u, jax.random.key(0)))

    problem = optimal_control.Problem(
        optimal_control.state_space(params.model), dynamics, cost, residuals, (-1.0, 1.0)
    )

    @jax.jit
    @jax.vmap
    def solve(x0, guess, turns):
        goal = 2 * np.pi * turns
        return optimal_control.solve(problem, tuple(x0), goal, guess, iterations=100).us

    @jax.jit
    @jax.vmap
    def total(x0, actions):
        state = env.reset(params, jax.random.key(0))._replace(physics=x0)
        step = lambda state, action: (env.step(params, state, action),) * 2  # noqa: E731
        return jnp.sum(jax.lax.scan(step, state, actions)[1].reward)

    actions, returns = play()
    found = [np.asarray(returns)]
    for turns in (0.0, 1.0):
        us = solve(start, actions.astype(params.model.dtype), jnp.full(EPISODES, turns))
        found.append(np.asarray(total(start, us)))
    return found[0], np.nanmax(found, axis=0)


def plot(path: Path, title: str, curves) -> None:
    """The learning curves of all seeds."""
    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.subplots()
    for seed, curve in enumerate(curves):
        axes.plot(*np.transpose(curve), linewidth=0.9, label=f"seed {seed}")
    axes.set(xlabel="steps of all environments", ylabel="mean reward of a step", title=title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    figure.savefig(path, dpi=90, metadata={"Software": None})


def excesses(policies: list, returns: list[np.ndarray]) -> str:
    """By which share the mean returns of the seeds are worse than the references, as text."""
    _, references = best_returns(policies[int(np.argmax(np.mean(returns, axis=1)))])
    references = np.mean(np.maximum(references, np.max(returns, axis=0)))
    shares = ", ".join(f"{np.mean(x) / references - 1:.1%}" for x in returns)
    return f"mean return of the references {references:.5g}; excess of the seeds: {shares}"


def main():
    given = common.options(__doc__, "trainings", seeds=5, out=Path("learning-study"))
    common.start()
    given.out.mkdir(parents=True, exist_ok=True)
    columns = "seed", "steps", "CPU s", "return", "worst", "falls", "terms of the reward"
    for name in given.trainings:
        task, algorithm = name.split(":")
        rows, curves, policies, returns = [], [], [], []
        for seed in range(given.seeds):
            folder = given.out / f"{task}-{algorithm}-{seed}"
            seconds = train(task, algorithm, seed, folder)
            training, found = evaluated(task, folder)
            curve = [(r.steps, r.metrics["reward"]) for r in training.records]
            terms = {k: f"{float(jnp.mean(x)):.3g}" for k, x in found.terms.items()}
            values = f"{jnp.mean(found.returns):.4g}", f"{jnp.min(found.returns):.4g}"
            steps, falls = f"{curve[-1][0]:,}", int(jnp.sum(found.terminated))
            rows.append((name, seed, steps, f"{seconds:.0f}", *values, falls, terms))
            curves.append(curve)
            policies.append(training.policy())
            returns.append(np.asarray(found.returns))
        plot(given.out / f"{task}-{algorithm}.png", f"{task}: {algorithm}", curves)
        common.head("training", *columns)
        for row in rows:
            common.row(*row)
        if task == "cart-pole":
            print(excesses(policies, returns))


if __name__ == "__main__":
    main()
