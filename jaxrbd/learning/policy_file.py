"""Files for a controller on a robot: a policy as an ONNX file, described by a JSON file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..envs import Env
from ..envs.environment import Interface, checked_params, name_and_settings
from ..errors import ArgumentError, installation
from ..io._sealed import file_path, replace_file
from ..model import arguments
from .networks import entry, policy_layers
from .plain_policy import layer_count, policy_arrays
from .training import Training, without_resets

# Versions of the operators and of the file format of the year 2020, which have all operators of the
# graph, so that old programs can read the file.
_OPERATORS, _FORMAT = 13, 7


def export_policy(training: Training, path: str | os.PathLike[str], params: Any = None) -> None:
    """Write the policy without noise as an ONNX file, and a description in a JSON file beside it.

    - `path`: the ONNX file, a name that ends in ".onnx". The name of the JSON file ends in ".json".
      Existing files are replaced;
    - `params`: the parameters that the description states (default: those of the training).

    The graph has the input `observation` (batch, m) and the output `action` (batch, k), in float32.
    The input is the observation of the environment, because the graph contains the normalisation.
    If observations are dicts, the input is their entry `policy_observation`. `policy_description`
    lists the content of the JSON file. The bytes of both files depend only on the training, on
    `params` and on the version of jaxrbd.

    Raises ArgumentError for another ending, a folder that does not exist, a folder in place of a
    file, without the package onnx (`pip install onnx`), and as `policy_description`; OSError if a
    file cannot be written.
    """
    json_path = checked_paths(path)[1]
    graph = _onnx_bytes(policy_arrays(training))
    description = json.dumps(policy_description(training, params), indent=2, allow_nan=False)
    replace_file(path, graph)
    replace_file(json_path, description.encode("ascii") + b"\n")


def policy_description(training: Training, params: Any = None) -> dict[str, Any]:
    """What a controller on a robot needs besides the policy, as an object of JSON.

    `params`: as in `export_policy`. Units are SI units. What the environment does not state
    (`Env.interface`) is None, and so is an infinite effort.

    - `task`, `algorithm`, `updates`: the training; `environment`: the name of its class, and its
      `settings` as in `Env.settings`;
    - `time_step` in s: the time between two actions; `control_rate` in Hz: its inverse;
    - `observation`: its `size`, the `entry` of an observation that is a dict, and its `parts`, each
      with `name` and `size`, in their order;
    - `action`: its `size`; the `actuators` in its order; and the `command` of the actuators, whose
      value is `center + scale * action`;
    - `stiffness` (kp), `damping` (kd), `effort`: the gains and the largest forces of the PD
      control, in the order of the actuators;
    - `pose`: the default pose, a list of coordinates per joint, in the order of q.

    Raises ArgumentError if the training has `params_axes` and there are no `params`, if the sizes
    that the environment states differ from the sizes of the policy, and as `policy_arrays`.
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
    return {
        "task": training.task,
        "environment": name_and_settings(env),
        "algorithm": training.algorithm_name,
        "updates": len(training.records),
        "time_step": env.time_step,
        "control_rate": 1 / env.time_step,
        "observation": {
            "size": size,
            "entry": name,
            "parts": parts and [{"name": part, "size": n} for part, n in parts],
        },
        "action": {
            "size": count,
            "actuators": found.actuators and [*found.actuators],
            "command": found.command,
            "center": _numbers(found.center),
            "scale": _numbers(found.scale),
        },
        "stiffness": _numbers(found.stiffness),
        "damping": _numbers(found.damping),
        "effort": _numbers(found.effort),
        "pose": found.pose and {joint: _numbers(x) for joint, x in found.pose.items()},
    }


def checked_paths(path: str | os.PathLike[str]) -> tuple[Path, Path]:
    """The ONNX file and the JSON file of a policy. Raises ArgumentError as `export_policy`."""
    file = Path(file_path(path))
    if file.suffix != ".onnx":
        raise ArgumentError(
            f"the file of the policy is {os.fspath(path)!r}, expected a name that ends in .onnx"
        )
    if not file.parent.is_dir():
        raise ArgumentError(f"{file}: the folder {os.fspath(file.parent)!r} does not exist")
    files = file, file.with_suffix(".json")
    for target in files:
        if target.is_dir():
            raise ArgumentError(f"{target} is a folder, expected a file, or none")
    _onnx()
    return files


def _onnx() -> Any:
    try:
        import onnx
    except ImportError as error:
        raise ArgumentError(f"ONNX files need the package onnx: {installation('onnx')}") from error
    return onnx


def _onnx_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The ONNX file of a policy with the arrays of `policy_arrays`."""
    onnx = _onnx()
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = []

    def add(operator: str, *inputs: str, output: str | None = None) -> str:
        output = output or f"{operator}_{len(nodes)}"
        nodes.append(helper.make_node(operator, inputs, [output], name=output))
        return output

    def normalised(x: str) -> str:
        return add("Div", add("Sub", x, "mean"), "scale")

    def network(prefix: str, x: str) -> str:
        for i in range(layer_count(arrays, prefix)):
            x = add("Elu", x) if i else x
            x = add("Gemm", x, f"{prefix}weight_{i}", f"{prefix}bias_{i}")
        return x

    x = normalised("observation")
    if "mirror_action" in arrays:
        image = normalised(add("Mul", "observation", "mirror_observation"))
        mirrored = add("Mul", add("Tanh", network("", image)), "mirror_action")
        better = add("GreaterOrEqual", network("critic_", x), network("critic_", image))
        add("Where", better, add("Tanh", network("", x)), mirrored, output="action")
    else:
        add("Tanh", network("", x), output="action")
    size, count = len(arrays["mean"]), len(arrays[f"bias_{layer_count(arrays, '') - 1}"])
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("observation", kind, ["batch", size])],
        [helper.make_tensor_value_info("action", kind, ["batch", count])],
        [onnx.numpy_helper.from_array(x.astype(np.float32), name) for name, x in arrays.items()],
    )
    model = helper.make_model(
        graph,
        producer_name="jaxrbd",
        producer_version=__version__,
        ir_version=_FORMAT,
        opset_imports=[helper.make_opsetid("", _OPERATORS)],
    )
    return model.SerializeToString(deterministic=True)


def _check_sizes(env: Env, found: Interface, parts: Any, size: int, count: int) -> None:
    """Raise ArgumentError if an environment states other sizes than those of its policy."""
    stated: dict[str, tuple[Any, Any]] = {}
    if parts is not None:
        stated["observation"] = sum(n for _, n in parts), size
    for name in ("actuators", "center", "scale", "stiffness", "damping", "effort"):
        if (x := getattr(found, name)) is not None:
            stated[name] = np.shape(x), (count,)
    for name, (given, expected) in stated.items():
        if given != expected:
            raise ArgumentError(
                f"{name} of the interface of {type(env).__name__} has the size {given}, expected "
                f"{expected}"
            )


def _numbers(x: Any) -> list[float | None] | None:
    """The shortest decimals that round to the entries of an array; None for infinity and NaN."""
    if x is None:
        return None
    numbers = [float(str(number)) for number in np.ravel(np.asarray(x))]
    return [number if math.isfinite(number) else None for number in numbers]
