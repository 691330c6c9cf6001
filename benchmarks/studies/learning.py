"""The tasks of docs/learning.md: times, returns and learning curves of several seeds.

    python -m benchmarks.studies.learning cart-pole:shac hopper:shac quadruped-trot:apg --out DIR

Each training is the command `jaxrbd train` in a process of its own, in single precision and without
a cache of compiled programs. The time is that of the whole command: start, compilation, training,
checkpoints and the picture. CPU seconds are those of all threads; they depend little on other
programs on the machine. The returns are those of the policy without noise, in 64 episodes from the
same random starts for each seed. The number of episodes that fail is also counted with the noise of
the training.

For the cart-pole, `jaxrbd.optimal_control` optimises the trajectories of the best policy, with the
pole turning to either side. The reference for each start is the best of these two and of the
trajectories of the policies of all seeds. The excess of a policy is the share by which its mean
return is worse.

DIR gets one folder per training, `results.json`, and one picture per task. A training whose folder
has results is not repeated.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from benchmarks.studies import common
from jaxrbd import envs, learning, optimal_control
from jaxrbd.learning.networks import act
from jaxrbd.learning.rollouts import roll

EPISODES, STARTS = 64, 99
SHOWN = "seed", "steps", "elapsed", "cpu", "return", "worst", "failed", "failed_with_noise"
COMMAND = "import sys; from jaxrbd import cli; sys.exit(cli.main(sys.argv[1:]))"


def train(task: str, algorithm: str, seed: int, folder: Path) -> dict[str, float]:
    """The seconds of `jaxrbd train`: elapsed, and of the CPU."""
    stored = folder / "seconds.json"
    if stored.exists():
        return json.loads(stored.read_text())
    options = ["train", task, "--algorithm", algorithm, "--seed", str(seed), "--out", str(folder)]
    if (folder / "checkpoint.jaxrbd").exists():
        raise SystemExit(f"{folder} has an incomplete training: remove it")
    environment = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", COMMAND, *options], env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{task} {algorithm}, seed {seed}: the command failed")
    elapsed = time.perf_counter() - begin
    seconds = {"elapsed": elapsed, "cpu": usage.ru_utime + usage.ru_stime}
    stored.write_text(json.dumps(seconds))
    return seconds


def single(params):
    """The parameters in single precision, as in the trainings."""
    return jax.tree.map(lambda x: x.astype(jnp.float32), params)


class Trained:
    """The trainings of one task and algorithm, one after another."""

    def __init__(self, task: str, algorithm: str):
        env = learning.load_task(task)
        settings = learning.algorithm_for(task, algorithm)
        params = single(env.default_params())
        self.training = learning.Training(settings, env, 0, params, task=task)

        @jax.jit  # one program for all seeds
        def evaluate(state) -> learning.Evaluation:
            def policy(x):
                return settings.deterministic(state, x)

            key = jax.random.key(STARTS)
            return learning.evaluate(env, params, policy, key, EPISODES)

        @jax.jit
        def failures_with_noise(state) -> jax.Array:
            def actions(x, noise):
                return act(state.policy, state.statistics, x, noise)

            batch, keys = envs.vectorize(env), jax.random.split(jax.random.key(STARTS), EPISODES)
            shape = env.episode_steps, EPISODES, env.action_size
            noise = jax.random.normal(jax.random.key(STARTS + 1), shape, params.model.dtype)
            _, window = roll(batch, params, batch.reset(params, keys), actions, noise)
            return jnp.sum(jnp.any(window.terminated, axis=0))

        self.evaluate, self.failures_with_noise = evaluate, failures_with_noise

    def load(self, seed: int, folder: Path):
        """The state and the rewards of the training of a folder, after its last update."""
        self.training.seed = seed
        self.training.load(folder / "checkpoint.jaxrbd")
        records = self.training.records
        return self.training.state, [(r.steps, r.metrics["reward"]) for r in records]


def best_returns(policy, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The returns of the policy and of optimised trajectories from the first `count` starts."""
    env = envs.CartPoleSwingUp()
    params = env.default_params()
    batch, small = envs.vectorize(env), single(params)
    first = batch.reset(small, jax.random.split(jax.random.key(STARTS), EPISODES))
    first = jax.tree.map(lambda x: x[:count], first)

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
        values = {
            "angle": angle - goal,
            "angular_velocity": rate,
            "position": place,
            "velocity": speed,
        }
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
        us = solve(start, actions.astype(params.model.dtype), jnp.full(count, turns))
        found.append(np.asarray(total(start, us)))
        print(f"  optimised, turns {turns}: mean return {np.mean(found[-1]):.5g}", flush=True)
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


def main():
    parser = common.parser(__doc__)
    parser.add_argument("trainings", nargs="+", metavar="TASK:ALGORITHM")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--optimised", type=int, default=64, help="number of optimised starts")
    parser.add_argument("--out", type=Path, default=Path("learning-study"))
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    results = {}
    for name in options.trainings:
        task, algorithm = name.split(":")
        rows, curves, states, returns, trained = [], [], [], [], Trained(task, algorithm)
        for seed in range(options.seeds):
            folder = options.out / f"{task}-{algorithm}-{seed}"
            seconds = train(task, algorithm, seed, folder)
            state, curve = trained.load(seed, folder)
            found = trained.evaluate(state)
            row = {
                "seed": seed,
                "steps": curve[-1][0],
                **seconds,
                "return": float(jnp.mean(found.returns)),
                "worst": float(jnp.min(found.returns)),
                "failed": int(jnp.sum(found.terminated)),
                "failed_with_noise": int(trained.failures_with_noise(state)),
                "terms": {k: float(jnp.mean(x)) for k, x in found.terms.items()},
            }
            print(name, row, flush=True)
            rows.append(row)
            curves.append(curve)
            states.append(state)
            returns.append(np.asarray(found.returns))
        results[name] = {"seeds": rows}
        plot(options.out / f"{task}-{algorithm}.png", f"{task}: {algorithm}", curves)
        if task == "cart-pole":
            state = states[int(np.argmax([row["return"] for row in rows]))]
            settings = trained.training.algorithm
            found = best_returns(lambda x: settings.deterministic(state, x), options.optimised)
            policies = np.array(returns)[:, : options.optimised]
            best = np.mean(np.maximum(found[1], np.max(policies, axis=0)))
            for row, mean in zip(rows, np.mean(policies, axis=1)):
                row["excess"] = float(mean / best - 1)
            results[name]["optimised"] = {"policy": float(np.mean(found[0])), "best": float(best)}
            print(f"{name}: {options.optimised} starts, mean return of the best policy")
            print(f"{np.mean(found[0]):.5g}, of the references {best:.5g}; excess of the seeds:")
            print(", ".join(f"{row['excess']:.1%}" for row in rows), flush=True)
        (options.out / "results.json").write_text(json.dumps(results, indent=1))
    results = [(name, seed) for name, found in results.items() for seed in found["seeds"]]
    numbers = {"elapsed": ".0f", "cpu": ".0f", "return": ".4g", "worst": ".4g"}
    common.head("training", "seed", "steps", "elapsed s", "CPU s", *SHOWN[4:-1], "with noise")
    for name, row in results:
        common.row(name, *(format(row[key], numbers.get(key, "")) for key in SHOWN))


if __name__ == "__main__":
    main()
