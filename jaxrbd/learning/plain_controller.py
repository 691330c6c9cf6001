"""The commands of actuators without JAX: a policy with its history, center and scale.

With the action a of a policy, the command of each actuator is `center + scale a`. The center of a
robot that follows a gait depends on the command and on the clock of the gait, which are parts of
the observation.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..envs import Env, History
from ..envs.environment import Interface, Parts, checked_params
from ..errors import ArgumentError
from ..model import arguments
from .networks import entry, policy_layers
from .plain_gait import gait_center
from .plain_policy import checked_floats, numpy_policy, policy_arrays
from .training import Training, without_resets

# The parts of an observation on which the center of a gait depends.
COMMAND, CLOCK = "command", "sine_and_cosine_of_gait"


class Commands(NamedTuple):
    """What a controller computes from an observation.

    - `action` (..., k): the action of the policy without noise;
    - `targets` (..., k): the commands of the actuators, in their order; None if the environment
      does not state them;
    - `history` (..., m): the history for the next step; None without a history.
    """

    action: np.ndarray
    targets: np.ndarray | None
    history: np.ndarray | None


class Stated(NamedTuple):
    """What an environment states about the policy of a training.

    `parts`: of the observation that the policy gets; `size`, `actions`: the sizes of this
    observation and of the action.
    """

    env: Env
    interface: Interface
    parts: Parts | None
    size: int
    actions: int


def controller_arrays(training: Training, params: Any = None) -> dict[str, np.ndarray]:
    """The arrays of a controller: a policy, with what turns its actions into commands.

    `params`: the parameters of the environment (default: those of the training). To the arrays of
    `policy_arrays` are added, as far as the environment states them:

    - `action_center`, `action_scale` (k,): the commands are `action_center + action_scale action`;
    - for a center that follows a gait, `action_scale` and the entries of `Interface.gait` as
      `gait_NAME`, with `gait_time_step` () in s, and the first index of the command and of the
      clock in an observation, `gait_command` () and `gait_clock` (). Without the command or the
      clock in the observation, there are no such arrays;
    - `history_length` (): for the observations of a `History`, the number of its observations.

    Raises ArgumentError as `policy_arrays` and `policy_description`.
    """
    arrays: dict[str, Any] = policy_arrays(training)
    found = stated(training, params)
    interface, dtype = found.interface, arrays["mean"].dtype
    if interface.scale is not None:
        if interface.center is not None:
            arrays |= {"action_center": interface.center, "action_scale": interface.scale}
        elif interface.gait is not None and {COMMAND, CLOCK} <= {x for x, _ in found.parts or ()}:
            arrays["action_scale"] = interface.scale
            arrays |= {f"gait_{name}": x for name, x in interface.gait.items()}
            arrays["gait_time_step"] = np.array(found.env.time_step, dtype)
            arrays["gait_command"] = np.array(_first_index(found.parts, COMMAND))
            arrays["gait_clock"] = np.array(_first_index(found.parts, CLOCK))
    if (length := history_length(training)) is not None:
        arrays["history_length"] = np.array(length)
    for name, x in arrays.items():
        arrays[name] = np.asarray(x)
        if not np.all(np.isfinite(arrays[name])):
            raise ArgumentError(f"{name} of the controller is not finite, so it gives no commands")
    return arrays


def numpy_controller(arrays: Mapping[str, np.ndarray]) -> Callable[..., Commands]:
    """The function of a controller in NumPy, from the arrays of `controller_arrays`.

    The function `control(observation, history=None)` returns `Commands`. Without a history, it
    takes observations (..., m). With a history, it takes the newest observation (..., m / length)
    and the `history` of the step before; without it, an episode starts, and the newest observation
    takes the place of all past ones. It raises ArgumentError for arrays of other sizes, for objects
    that are no arrays of floats or integers, and for a history of a policy without one.
    """
    policy = numpy_policy(arrays)
    size = len(arrays["mean"])
    length = int(arrays["history_length"]) if "history_length" in arrays else None

    def control(observation: ArrayLike, history: ArrayLike | None = None) -> Commands:
        if length is None and history is not None:
            raise ArgumentError("history is given, expected none, because the policy has none")
        x = checked_floats(observation, "observation", size // (length or 1))
        if history is not None:
            past = checked_floats(history, "history", size)
            x = np.concatenate([x, past[..., : size - x.shape[-1]]], axis=-1)
        elif length is not None:
            x = np.concatenate([x] * length, axis=-1)
        action = policy(x)
        targets = None
        if "action_scale" in arrays:
            constant = "action_center" in arrays
            center = arrays["action_center"] if constant else gait_center(arrays, x)
            targets = center + arrays["action_scale"] * action
        return Commands(action, targets, None if length is None else x)

    return control


def history_length(training: Training) -> int | None:
    """The number of observations in an observation of the policy; None without a `History`."""
    env = without_resets(training.env)
    if isinstance(env, History) and env.entry == training.algorithm.policy_observation:
        return env.length
    return None


def stated(training: Training, params: Any = None) -> Stated:
    """What the environment of a training states about the policy.

    `params`: as in `controller_arrays`. Raises ArgumentError as `policy_description`.
    """
    arguments.require_type(training, "training", Training)
    env = without_resets(training.env)
    if params is None and training.params_axes is not None:
        raise ArgumentError(
            "params is missing, expected the parameters of one robot, because the training has "
            "params_axes"
        )
    found = env.interface(training.params if params is None else checked_params(env, params))
    name, policy = training.algorithm.policy_observation, training.state.policy
    size, count = policy_layers(policy)[0].weight.shape[0], policy.log_std.shape[0]
    parts = None if found.observation is None else entry(name, found.observation)
    _check_sizes(env, found, parts, size, count)
    return Stated(env, found, parts, size, count)


def _first_index(parts: Any, name: str) -> int:
    """The first index of a part in an observation."""
    return sum(n for _, n in itertools.takewhile(lambda part: part[0] != name, parts))


def _check_sizes(env: Env, found: Interface, parts: Any, size: int, count: int) -> None:
    """Raise ArgumentError if an environment states other sizes than those of its policy."""
    sizes: dict[str, tuple[Any, Any]] = {}
    if parts is not None:
        sizes["observation"] = sum(n for _, n in parts), size
    for name in ("actuators", "center", "scale", "stiffness", "damping", "effort"):
        if (x := getattr(found, name)) is not None:
            sizes[name] = np.shape(x), (count,)
    for name, (given, expected) in sizes.items():
        if given != expected:
            raise ArgumentError(
                f"{name} of the interface of {type(env).__name__} has the size {given}, expected "
                f"{expected}"
            )
