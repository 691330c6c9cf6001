"""SHAC, APG and PPO on one task, by steps and by seconds.

    python -m benchmarks.studies.learning_algorithms cart-pole --out DIR [--seed 0]

The settings are those of `jaxrbd train`. Each training is stopped twenty times, and the policy
without noise runs 64 episodes from the same starts. The seconds are CPU times of the process, with
the compilation and without these episodes. Single precision, without a cache of compiled programs.

DIR gets `TASK.json` and the picture `TASK.png`.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
from matplotlib.figure import Figure

from jaxrbd import learning

POINTS, EPISODES, STARTS = 20, 64, 99


def curve(task: str, name: str, seed: int) -> list[dict[str, float]]:
    """The steps, the CPU seconds and the mean return at POINTS times of a training."""
    env, algorithm = learning.load_task(task), learning.algorithm_for(task, name)
    params = jax.tree.map(lambda x: x.astype(jnp.float32), env.default_params())
    begin = time.process_time()
    training_env = learning.load_task(task, name)
    training = learning.Training(algorithm, training_env, seed, params, task=task)

    @jax.jit  # one program for all evaluations
    def mean_return(state):
        def policy(x):
            return algorithm.deterministic(state, x)

        key = jax.random.key(STARTS)
        return jnp.mean(learning.evaluate(env, params, policy, key, EPISODES).returns)

    found, evaluation = [], 0.0
    for record in training.run():
        if record.update % max(algorithm.updates // POINTS, 1) == 0:
            now = time.process_time()
            mean = float(mean_return(training.state))
            seconds = now - begin - evaluation
            found.append({"steps": record.steps, "seconds": seconds, "return": mean})
            print(task, name, json.dumps(found[-1]), flush=True)
            evaluation += time.process_time() - now
    return found


def plot(path: Path, title: str, curves: dict[str, list[dict[str, float]]]) -> None:
    """The returns of all algorithms by steps and by seconds."""
    figure = Figure(figsize=(7, 2.8), layout="constrained")
    for axes, key, label in zip(
        figure.subplots(1, 2, sharey=True),
        ("steps", "seconds"),
        ("steps of all environments", "CPU seconds, with compilation"),
    ):
        for name, points in curves.items():
            x, y = ([point[k] for point in points] for k in (key, "return"))
            axes.plot(x, y, ".-", linewidth=0.9, label=name.upper())
        axes.set(xlabel=label, xscale="log" if key == "steps" else "linear")
        axes.grid(alpha=0.3)
    figure.axes[0].set(ylabel="mean return", title=title)
    figure.axes[0].legend(fontsize=7)
    figure.savefig(path, dpi=90, metadata={"Software": None})


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("task")
    parser.add_argument("--algorithms", nargs="+", default=("shac", "apg", "ppo"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("learning-algorithms"))
    options = parser.parse_args()
    jax.config.update("jax_enable_compilation_cache", False)
    options.out.mkdir(parents=True, exist_ok=True)
    curves = {}
    for name in options.algorithms:
        curves[name] = curve(options.task, name, options.seed)
        (options.out / f"{options.task}.json").write_text(json.dumps(curves, indent=1))
        plot(options.out / f"{options.task}.png", f"{options.task}, seed {options.seed}", curves)


if __name__ == "__main__":
    main()
