"""The tasks of docs/learning.md: times, returns and learning curves of several seeds.

    python -m benchmarks.studies.learning cart-pole:shac hopper:shac quadruped-trot:apg --out DIR

Each training is the command `jaxrbd train` in a process of its own, in single precision and without
a cache of compiled programs. The time is that of the whole command: start, compilation, training,
checkpoints and the picture. CPU seconds are those of all threads; they depend little on other
programs on the machine. The returns are those of the policy without noise, in 64 episodes from the
same random starts for each seed.

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

EPISODES, STARTS = 64, 99
FORMATS = {"seed": "", "steps": ",", "elapsed": ".0f", "cpu": ".0f", "return": ".4g"}
FORMATS |= {"worst": ".4g", "failed": ""}
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


def evaluator(task: str, algorithm: str):
    """The algorithm, and a compiled function from the checkpoint of a seed to its evaluation.

    The function returns the state of the training after its last update, its steps and mean
    rewards, and the evaluation of its policy.
    """
    env = learning.load_task(task)
    settings = learning.algorithm_for(task, algorithm)
    params = single(env.default_params())
    training = learning.Training(settings, env, 0, params, task=task)

    @jax.jit  # one program for all seeds
    def evaluate(state) -> learning.Evaluation:
        def policy(x):
            return settings.deterministic(state, x)

        return learning.evaluate(env, params, policy, jax.random.key(STARTS), EPISODES)

    def load(seed: int, folder: Path):
        training.seed = seed
        training.load(folder / "checkpoint.jaxrbd")
        curve = [(r.steps, r.metrics["reward"]) for r in training.records]
        return training.state, curve, evaluate(training.state)

    return settings, load


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


def excesses(settings, rows: list[dict], states: list, returns: list[np.ndarray]) -> None:
    """Add to the rows of the cart-pole by which share the returns are worse than the references."""
    state = states[int(np.argmax([row["return"] for row in rows]))]
    policy, references = best_returns(lambda x: settings.deterministic(state, x))
    references = np.mean(np.maximum(references, np.max(returns, axis=0)))
    for row, found in zip(rows, returns):
        row["excess"] = float(np.mean(found) / references - 1)
    print(f"mean return of the best policy {np.mean(policy):.5g}, of the references", end=" ")
    print(f"{references:.5g}; excess of the seeds:", *(f"{row['excess']:.1%}" for row in rows))


def main():
    parser = common.parser(__doc__)
    parser.add_argument("trainings", nargs="+", metavar="TASK:ALGORITHM")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("learning-study"))
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, list[dict]] = {}
    for name in options.trainings:
        task, algorithm = name.split(":")
        settings, load = evaluator(task, algorithm)
        results[name], curves, states, returns = [], [], [], []
        for seed in range(options.seeds):
            folder = options.out / f"{task}-{algorithm}-{seed}"
            seconds = train(task, algorithm, seed, folder)
            state, curve, found = load(seed, folder)
            row = {
                "seed": seed,
                "steps": curve[-1][0],
                **seconds,
                "return": float(jnp.mean(found.returns)),
                "worst": float(jnp.min(found.returns)),
                "failed": int(jnp.sum(found.terminated)),
                "terms": {k: float(jnp.mean(x)) for k, x in found.terms.items()},
            }
            print(name, row, flush=True)
            results[name].append(row)
            curves.append(curve)
            states.append(state)
            returns.append(np.asarray(found.returns))
        plot(options.out / f"{task}-{algorithm}.png", f"{task}: {algorithm}", curves)
        if task == "cart-pole":
            excesses(settings, results[name], states, returns)
        (options.out / "results.json").write_text(json.dumps(results, indent=1))
    print(f"\n{common.machine()}\n")
    common.head("training", "seed", "steps", "elapsed s", "CPU s", *[*FORMATS][4:])
    for name, rows in results.items():
        for row in rows:
            common.row(name, *(format(row[key], text) for key, text in FORMATS.items()))


if __name__ == "__main__":
    main()
