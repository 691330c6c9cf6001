"""Names of tasks, and settings of the algorithms for them."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from .. import envs
from ..envs.environment import default_settings
from ..errors import ArgumentError, SavedFileError
from ..model import arguments
from ..model.names import similar_names
from .attention import JointAttention
from .checkpoint import read_description
from .training import ALGORITHMS, Algorithm, Training, without_resets

_TASKS: dict[str, Any] = {  # values: envs.Env, frozen dataclasses
    "cart-pole": envs.CartPoleSwingUp(),
    "double-pendulum": envs.DoublePendulumSwingUp(),
    "arm-reach": envs.ArmReach(),
    "hopper": envs.Hopper(),
    "quadruped-stand": envs.QuadrupedStand(),
    "quadruped-trot": envs.QuadrupedTrot(smoothing=0.01),
    "quadruped-joystick": envs.QuadrupedJoystick(),
    "quadruped-hills": envs.QuadrupedJoystick(rough=True),
    "humanoid-stand": envs.HumanoidStand(),
    "humanoid-walk": envs.HumanoidWalk(smoothing=0.01),
}

_RUNNERS = {"batch": 64, "horizon": 64, "learning_rate": 5e-4, "reward_scale": 0.03}

# Settings other than the defaults, by task and algorithm.
_SETTINGS: dict[tuple[str, str], dict[str, Any]] = {
    ("cart-pole", "shac"): {
        "mirror_observation": (-1, -1, -1, 1, -1),
        "mirror_action": (-1,),
        "updates": 1400,
    },
    ("hopper", "shac"): {"updates": 200, "learning_rate": 4e-3},
    ("quadruped-trot", "apg"): {
        "batch": 32,
        "horizon": 64,
        "betas": (0.7, 0.95),
        "log_std": -1.0,
        "last_noise": 0.0,
        "action_limit": 1.0,
    },
    ("humanoid-walk", "shac"): {
        "hidden": (128, 64),
        "learning_rate": 2e-3,
        "log_std": -2.5,
        "last_noise": 0.0,
        "updates": 300,
    },
    ("quadruped-trot", "shac"): {"updates": 300, "learning_rate": 2e-3, "last_noise": 0.0},
    ("HalfCheetah-v5", "ppo"): {**_RUNNERS, "updates": 500},
    ("Hopper-v5", "ppo"): {**_RUNNERS, "updates": 1000},
    ("Walker2d-v5", "ppo"): {**_RUNNERS, "updates": 1000},
    ("Ant-v5", "ppo"): {
        "batch": 128,
        "horizon": 64,
        "learning_rate": 4e-4,
        "reward_scale": 0.1,
        "discount": 0.98,
        "gae_lambda": 0.9,
        "entropy_weight": 0.0,
        "epochs": 8,
        "minibatches": 16,
        "updates": 400,
    },
    ("Humanoid-v5", "ppo"): {**_RUNNERS, "updates": 500},
    ("InvertedPendulum-v5", "ppo"): {"learning_rate": 3e-4, "updates": 150},
    ("InvertedDoublePendulum-v5", "ppo"): {"reward_scale": 0.01},
    ("Swimmer-v5", "ppo"): {"discount": 0.999, "reward_scale": 1.0},
}

# Settings of the environment in a training, by task and algorithm.
_TRAINING_SETTINGS: dict[tuple[str, str], dict[str, Any]] = {
    ("quadruped-trot", "apg"): {"episode_steps": 100},
    ("humanoid-walk", "shac"): {"episode_steps": 100},
}


def task_names() -> tuple[str, ...]:
    """The names of the tasks; the tasks of `envs.GYMNASIUM_TASKS` need gymnasium and mujoco."""
    return (*_TASKS, *envs.GYMNASIUM_TASKS)


def load_task(name: str, algorithm: str | None = None) -> envs.Env:
    """The environment of a task.

    `algorithm`: "shac", "apg" or "ppo", for the environment in which this algorithm is trained.
    Its episodes can be shorter, so that a training has more starts. Raises ArgumentError for an
    unknown name, and as `envs.gymnasium_task`.
    """
    _check_task(name)
    env = _TASKS[name] if name in _TASKS else envs.gymnasium_task(name)
    if algorithm is None:
        return env
    _check_algorithm(algorithm)
    settings = _TRAINING_SETTINGS.get((name, algorithm), {})
    return dataclasses.replace(env, **settings) if settings else env


def algorithm_for(task: str, algorithm: str, steps: int | None = None) -> Algorithm:
    """An algorithm with its settings for a task.

    `algorithm`: "shac", "apg" or "ppo"; `steps`: the least number of steps of all environments,
    which is rounded up to whole updates (default: the usual number). Raises ArgumentError for an
    unknown name, for a number of steps below 1, and for more than 2**31 - 1 updates.
    """
    _check_task(task)
    _check_algorithm(algorithm)
    found = ALGORITHMS[algorithm](**_SETTINGS.get((task, algorithm), {}))
    if steps is None:
        return found
    if not arguments.is_integer(steps) or steps < 1:
        raise ArgumentError(f"steps is {steps!r}, expected an integer of 1 or more")
    updates = -(-steps // found.update_steps)
    if updates >= 2**31:
        most = (2**31 - 1) * found.update_steps
        raise ArgumentError(f"steps is {steps}, expected at most {most}")
    return dataclasses.replace(found, updates=updates)


def load_training(
    path: str | os.PathLike[str], env: envs.Env | None = None, params: Any = None
) -> Training:
    """The training of a checkpoint, with the settings and the seed that the file states.

    `env`, `params`: as in `Training` (default: the environment of the task that the file names,
    with the settings that the file states, and its usual parameters).
    `load_training(path).policy()` is the policy. Raises SavedFileError as `Training.load` does, if
    no `env` is given and the file names no task, and for an imitation or a policy network other
    than a `JointAttention`: then make the `Training`, and call `Training.load`.
    """
    about = read_description(path)
    if about.get("algorithm") == "imitation":
        raise SavedFileError(
            "it is of an imitation, which needs its teacher: make the Training, and call its load",
            file=os.fspath(path),
        )
    try:
        task, name, seed = str(about["task"]), str(about["algorithm"]), int(about["seed"])
        settings = {setting: _with_tuples(x) for setting, x in about["settings"].items()}
        if (stated := settings.get("policy_network")) is not None:
            settings["policy_network"] = _policy_network(stated, path)
        algorithm = ALGORITHMS[name](**settings)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise SavedFileError(
            f"it has no valid task, algorithm, settings and seed: {error}", file=os.fspath(path)
        ) from error
    if env is None and task not in task_names():
        raise SavedFileError(
            f"its task is {task!r}, expected one of {', '.join(task_names())}; or pass its env",
            file=os.fspath(path),
        )
    if env is None:
        env = _with_stated_settings(load_task(task, name), about, path)
    training = Training(algorithm, env, seed, params, task=task, block=about.get("block"))
    training.load(path)
    return training


def _check_task(name: str) -> None:
    if not isinstance(name, str) or name not in task_names():
        hint = similar_names(str(name), task_names())
        raise ArgumentError(f"task is {name!r}, expected one of {', '.join(task_names())}{hint}")


def with_whole_episodes(training: Training) -> envs.Env:
    """The environment of a training, with the number of steps per episode of its task.

    In a training, episodes can be shorter; see `load_task`.
    """
    env: Any = without_resets(training.env)
    if training.task not in _TASKS:
        return env
    return dataclasses.replace(env, episode_steps=_TASKS[training.task].episode_steps)


def _with_stated_settings(
    env: Any, about: dict[str, Any], path: str | os.PathLike[str]
) -> envs.Env:
    """The environment with the settings that a checkpoint states.

    Settings that the environment does not have are left out; `Training.load` refuses them.
    """
    stated = about.get("environment")
    settings = stated.get("settings") if isinstance(stated, dict) else None
    found = {**default_settings(env), **settings} if isinstance(settings, dict) else {}
    try:
        changes = {
            name: _with_tuples(found[name])
            for name, x in env.settings().items()
            if name in found and found[name] != x
        }
        return dataclasses.replace(env, **changes)
    except (TypeError, ValueError) as error:
        raise SavedFileError(
            f"it has no valid settings of the environment: {error}", file=os.fspath(path)
        ) from error


def _with_tuples(x: Any) -> Any:
    """A value of JSON with a tuple for each list."""
    if isinstance(x, dict):
        return {name: _with_tuples(y) for name, y in x.items()}
    return tuple(map(_with_tuples, x)) if isinstance(x, list) else x


def _policy_network(stated: Any, path: str | os.PathLike[str]) -> JointAttention:
    """The policy network that a checkpoint states."""
    name = stated["name"] if isinstance(stated, dict) else stated
    if name != JointAttention.__name__:
        raise SavedFileError(
            f"its policy network is {name!r}, expected 'JointAttention'; make the Training with "
            "this network, and call Training.load",
            file=os.fspath(path),
        )
    return JointAttention(**stated["settings"])


def _check_algorithm(name: str) -> None:
    if not isinstance(name, str) or name not in ALGORITHMS:
        raise ArgumentError(f"algorithm is {name!r}, expected one of {', '.join(ALGORITHMS)}")
