"""Trained policies as arrays, and as a function of NumPy.

With the networks p of the policy and c of the critic, the action for an observation x is

    z(x) = (x - mean) / scale
    action(x) = tanh(p(z(x))).

A network applies an affine map `y weight + bias` per layer, and elu between the layers. With a
mirror (`mirror.py`), s and a are the signs of the observation and of the action, and the action is
`a tanh(p(z(s x)))` where `c(z(s x)) > c(z(x))`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import ArgumentError
from ..model import arguments
from .networks import Network, entry, policy_layers
from .shac import Shac
from .training import Training


def policy_arrays(training: Training) -> dict[str, np.ndarray]:
    """The arrays of the policy of a training, in its dtype; see the head of the file.

    - `mean`, `scale` (m,): of the observation, or of the entry `policy_observation` of it;
    - `weight_0` (m, h), `bias_0` (h,), `weight_1`, ...: the layers of the policy;
    - with a mirror: `mirror_observation` (m,), `mirror_action` (k,), and the layers of the critic,
      `critic_weight_0`, `critic_bias_0`, ...

    Raises ArgumentError, which names the array, for values that are not finite, and for a policy
    network without layers, such as a `JointAttention`.
    """
    arguments.require_type(training, "training", Training)
    algorithm, state = training.algorithm, training.state
    statistics = entry(algorithm.policy_observation, state.statistics)
    arrays: dict[str, Any] = {"mean": statistics.mean, "scale": statistics.scale}
    arrays |= _layers("", policy_layers(state.policy))
    if isinstance(algorithm, Shac) and algorithm.mirror_observation:
        dtype = statistics.mean.dtype
        arrays["mirror_observation"] = np.array(algorithm.mirror_observation, dtype)
        arrays["mirror_action"] = np.array(algorithm.mirror_action, dtype)
        arrays |= _layers("critic_", state.critic)
    for name, x in arrays.items():
        arrays[name] = np.asarray(x)
        if not np.all(np.isfinite(arrays[name])):
            raise ArgumentError(f"{name} of the policy is not finite, so it gives no actions")
    return arrays


def numpy_policy(arrays: Mapping[str, np.ndarray]) -> Callable[[ArrayLike], np.ndarray]:
    """The policy without noise as a function of NumPy, from the arrays of `policy_arrays`.

    The function takes observations (..., m) and returns actions (..., k). It raises ArgumentError
    for observations of another size, and for objects that are no arrays of floats or integers.
    """
    arguments.require_type(arrays, "arrays", Mapping)
    layers = range(max(layer_count(arrays, ""), 1))
    names = [f"{kind}_{i}" for i in layers for kind in ("weight", "bias")]
    for name in ("mean", "scale", *names):
        if name not in arrays:
            raise ArgumentError(f"arrays has no {name!r}, expected the arrays of policy_arrays")

    def network(prefix: str, x: np.ndarray) -> np.ndarray:
        z = (x - arrays["mean"]) / arrays["scale"]
        for i in range(layer_count(arrays, prefix)):
            if i:
                z = np.where(z > 0, z, np.expm1(np.minimum(z, 0)))  # elu
            z = z @ arrays[f"{prefix}weight_{i}"] + arrays[f"{prefix}bias_{i}"]
        return z

    def actions(observation: ArrayLike) -> np.ndarray:
        x = checked_floats(observation, "observation", len(arrays["mean"]))
        found = np.tanh(network("", x))
        if "mirror_action" not in arrays:
            return found
        image = arrays["mirror_observation"] * x
        mirrored = arrays["mirror_action"] * np.tanh(network("", image))
        better = network("critic_", x) >= network("critic_", image)
        return np.where(better, found, mirrored)

    return actions


def checked_floats(x: ArrayLike, name: str, size: int) -> np.ndarray:
    """An argument as an array of NumPy. Raises ArgumentError unless it has floats (..., size)."""
    try:
        found = np.asarray(x)
    except ValueError:  # lists of different lengths
        found = np.empty(0, object)
    if found.dtype.kind not in "fiu":
        raise ArgumentError(f"{name} is {x!r}, expected an array of floats")
    if found.shape[-1:] != (size,):
        raise ArgumentError(f"{name} has shape {found.shape}, expected (..., {size})")
    return found


def layer_count(arrays: Mapping[str, np.ndarray], prefix: str) -> int:
    """The number of layers of the policy (`prefix` "") or of the critic ("critic_")."""
    return sum(name.startswith(f"{prefix}weight_") for name in arrays)


def _layers(prefix: str, network: Network) -> dict[str, Any]:
    layers = {}
    for i, layer in enumerate(network):
        layers[f"{prefix}weight_{i}"], layers[f"{prefix}bias_{i}"] = layer
    return layers
