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
from ..envs.environment import name_and_settings
from ..errors import ArgumentError, installation
from ..io._sealed import file_path, replace_file
from ..model import arguments
from .onnx_gait import add_gait_center
from .plain_controller import controller_arrays, history_length, stated
from .plain_policy import layer_count
from .training import Training

# Versions of the operators and of the file format of the year 2020, which have all operators of the
# graph, so that old programs can read the file.
_OPERATORS, _FORMAT = 13, 7


# Entries of the description that the ONNX file states too, each as a text of JSON.
_METADATA = (
    "task",
    "environment",
    "algorithm",
    "updates",
    "time_step",
    "control_rate",
    "observation",
    "action",
    "stiffness",
    "damping",
    "effort",
    "pose",
)
_UNITS = "SI units: m, rad, s, m/s, rad/s, N, N m"


def export_policy(
    training: Training,
    path: str | os.PathLike[str],
    params: Any = None,
    history: bool = False,
) -> None:
    """Write the policy without noise as an ONNX file, and a description in a JSON file beside it.

    - `path`: the ONNX file, a name that ends in ".onnx". The name of the JSON file ends in ".json".
      Existing files are replaced;
    - `params`: the parameters that the description states (default: those of the training);
    - `history`: whether the graph keeps the history of the observations, for an environment that is
      a `History`.

    The graph has the input `observation` (batch, m) and the output `action` (batch, k), in float32.
    The input is the observation of the environment, because the graph contains the normalisation.
    If observations are dicts, the input is their entry `policy_observation`. If the environment
    states the center and the scale of the commands, or the gait that the center follows, the graph
    has a second output, `targets` (batch, k): the commands of the actuators, in their order.

    With `history`, the inputs are `newest` (batch, m / length), the newest observation, and
    `history` (batch, m). Another output, `next_history` (batch, m), is the history for the next
    step. For the first step, repeat the newest observation `length` times in `history`.

    The metadata of the file has the entries of the description except the gait, each as a text of
    JSON, and the entry `units`. `policy_description` lists the content of the JSON file. The bytes
    of both files depend only on the training, on `params` and on the version of jaxrbd.

    Raises ArgumentError for another ending, a folder that does not exist, a folder in place of a
    file, without the package onnx (`pip install onnx`), for `history` without a `History` of the
    observation that the policy gets, and as `policy_description`; OSError if a file cannot be
    written.
    """
    json_path = checked_paths(path)[1]
    arguments.require_flag(history, "history")
    arrays, description = controller_arrays(training, params), policy_description(training, params)
    if history and "history_length" not in arrays:
        raise ArgumentError(
            "history is True, expected False, because the environment is no History of the "
            "observation that the policy gets"
        )
    graph = _onnx_bytes(arrays, description, history)
    text = json.dumps(description, indent=2, allow_nan=False)
    replace_file(path, graph)
    replace_file(json_path, text.encode("ascii") + b"\n")


def policy_description(training: Training, params: Any = None) -> dict[str, Any]:
    """What a controller on a robot needs besides the policy, as an object of JSON.

    `params`: as in `export_policy`. Units are SI units. What the environment does not state
    (`Env.interface`) is None, and so is an infinite effort.

    - `task`, `algorithm`, `updates`: the training; `environment`: the name of its class, and its
      `settings` as in `Env.settings`;
    - `time_step` in s: the time between two actions; `control_rate` in Hz: its inverse;
    - `observation`: its `size`, the `entry` of an observation that is a dict, its `parts`, each
      with `name` and `size`, in their order, and the `history`: the number of observations in an
      observation of a `History`;
    - `action`: its `size`; the `actuators` in its order; and the `command` of the actuators, whose
      value is `center + scale * action`. If the center follows a gait, it is None, and `gait` has
      the values of `Interface.gait` by name;
    - `stiffness` (kp), `damping` (kd), `effort`: the gains and the largest forces of the PD
      control, in the order of the actuators;
    - `pose`: the default pose, a list of coordinates per joint, in the order of q.

    Raises ArgumentError if the training has `params_axes` and there are no `params`, if the sizes
    that the environment states differ from the sizes of the policy, and as `policy_arrays`.
    """
    env, found, parts, size, count = stated(training, params)
    return {
        "task": training.task,
        "environment": name_and_settings(env),
        "algorithm": training.algorithm_name,
        "updates": len(training.records),
        "time_step": env.time_step,
        "control_rate": 1 / env.time_step,
        "observation": {
            "size": size,
            "entry": training.algorithm.policy_observation,
            "parts": parts and [{"name": part, "size": n} for part, n in parts],
            "history": history_length(training),
        },
        "action": {
            "size": count,
            "actuators": found.actuators and [*found.actuators],
            "command": found.command,
            "center": _numbers(found.center),
            "scale": _numbers(found.scale),
            "gait": found.gait and {name: _nested(x) for name, x in found.gait.items()},
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


def _onnx_bytes(
    arrays: Mapping[str, np.ndarray], description: Mapping[str, Any], history: bool
) -> bytes:
    """The ONNX file of a policy with the arrays of `controller_arrays`; see `export_policy`."""
    onnx = _onnx()
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes: list[Any] = []
    constants: list[Any] = []

    def add(operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        output = output or f"{operator}_{len(nodes)}"
        nodes.append(helper.make_node(operator, inputs, [output], name=output, **attributes))
        return output

    def constant(value: Any, name: str | None = None) -> str:
        x, name = np.asarray(value), name or f"constant_{len(constants)}"
        x = x.astype(np.float32 if x.dtype.kind == "f" else x.dtype)
        constants.append(onnx.numpy_helper.from_array(x, name))
        return name

    def normalised(x: str) -> str:
        return add("Div", add("Sub", x, "mean"), "scale")

    def network(prefix: str, x: str) -> str:
        for i in range(layer_count(arrays, prefix)):
            x = add("Elu", x) if i else x
            x = add("Gemm", x, f"{prefix}weight_{i}", f"{prefix}bias_{i}")
        return x

    for name, value in arrays.items():
        if not name.startswith(("gait_", "history_")):
            constant(value, name)
    size, count = len(arrays["mean"]), len(arrays[f"bias_{layer_count(arrays, '') - 1}"])
    given = {"observation": size}
    observed, outputs = "observation", {"action": count}
    if history:
        newest = size // int(arrays["history_length"])
        given = {"newest": newest, "history": size}
        first, last, axis = constant([0]), constant([size - newest]), constant([1])
        past = add("Slice", "history", first, last, axis)
        observed = add("Concat", "newest", past, output="next_history", axis=1)
    x = normalised(observed)
    if "mirror_action" in arrays:
        image = normalised(add("Mul", observed, "mirror_observation"))
        mirrored = add("Mul", add("Tanh", network("", image)), "mirror_action")
        better = add("GreaterOrEqual", network("critic_", x), network("critic_", image))
        add("Where", better, add("Tanh", network("", x)), mirrored, output="action")
    else:
        add("Tanh", network("", x), output="action")
    if "action_scale" in arrays:
        center = "action_center"
        if center not in arrays:
            center = add_gait_center(add, constant, arrays, observed)
        add("Add", add("Mul", "action", "action_scale"), center, output="targets")
        outputs["targets"] = count
    if history:
        outputs["next_history"] = size

    def values(sizes: Mapping[str, int]) -> list[Any]:
        return [helper.make_tensor_value_info(x, kind, ["batch", n]) for x, n in sizes.items()]

    graph = helper.make_graph(nodes, "policy", values(given), values(outputs), constants)
    model = helper.make_model(
        graph,
        producer_name="jaxrbd",
        producer_version=__version__,
        ir_version=_FORMAT,
        opset_imports=[helper.make_opsetid("", _OPERATORS)],
    )
    action = {name: x for name, x in description["action"].items() if name != "gait"}
    stated_values = {**description, "action": action}
    texts = {name: json.dumps(stated_values[name], allow_nan=False) for name in _METADATA}
    helper.set_model_props(model, {**texts, "units": _UNITS})
    return model.SerializeToString(deterministic=True)


def _numbers(x: Any) -> list[float | None] | None:
    """The shortest decimals that round to the entries of an array; None for infinity and NaN."""
    if x is None:
        return None
    numbers = [float(str(number)) for number in np.ravel(np.asarray(x))]
    return [number if math.isfinite(number) else None for number in numbers]


def _nested(x: Any) -> Any:
    """An array as nested lists of the shortest decimals that round to its entries."""
    x = np.asarray(x)
    return [_nested(row) for row in x] if x.ndim else float(str(x))
