"""Parts of a robot other than its model, as JSON and arrays, for files of `save_model`.

A part is an object of one of `KINDS`, an array, a number, a text, None, or a tuple of these. A
record of an object names its kind and has one entry per argument of the constructor, so loading
calls the constructor, which checks the values. A number, a text and None stand for themselves;
`{"list": [...]}` is a tuple, and `{"array": i}` is array i.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from .. import actuators, passive, sensors, tendons
from ..errors import ArgumentError, ModelError
from ..model.shapes import Cylinder, Sphere
from ..spatial import Pose

# The classes of objects that a file can hold.
KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        Pose,
        Sphere,
        Cylinder,
        tendons.Tendons,
        tendons.FixedTendon,
        tendons.SpatialTendon,
        tendons.RotationAngle,
        tendons.PathPoint,
        tendons.Wrap,
        tendons.Pulley,
        actuators.AffineActuators,
        actuators.Muscles,
        actuators.Filter,
        actuators.FrameForce,
        actuators.FrameDisplacement,
        actuators.SliderCrank,
        actuators.BallTorque,
        actuators.PD,
        actuators.DCMotor,
        actuators.Delay,
        passive.PassiveForces,
        passive.JointSprings,
        passive.GravityCompensation,
        passive.PolynomialDamping,
        passive.FixedAxesArmature,
        passive.FluidForces,
        passive.FluidBoxes,
        passive.FluidEllipsoids,
        sensors.RobotSensors,
        sensors.FrameSensor,
        sensors.JointSensor,
        sensors.TendonSensor,
        sensors.ActuatorSensor,
        sensors.SubtreeSensor,
        sensors.StateSensor,
        sensors.Noise,
    )
}
DTYPES = ("float32", "float64", "int32", "int64", "bool")  # of the arrays


def part_record(part: Any, name: str, arrays: list[np.ndarray]) -> Any:
    """The record of a part; its arrays are appended to `arrays`.

    `name`: the name of the part, for messages. Raises ArgumentError, which names the entry, for an
    object that a file cannot hold.
    """
    if isinstance(part, list):
        raise ArgumentError(f"{name} is a list, expected a tuple, which a file can hold")
    record = _record(part, name, arrays, {})
    try:
        loaded = part_of(record, arrays, name)
    except ModelError as error:
        raise ArgumentError(f"{error}; a file cannot hold a batch of parts") from error
    if jax.tree.structure(loaded) != jax.tree.structure(part):
        raise ArgumentError(f"{name} is {part!r}, which differs from what its constructor makes")
    return record


def _record(x: Any, name: str, arrays: list[np.ndarray], known: dict[int, Any]) -> Any:
    """The record of x, a part or an entry of a part; see `part_record`.

    `known`: the records of objects by their ids. An object that occurs twice has one record.
    """
    if id(x) in known:
        return known[id(x)]
    if isinstance(x, int) and not -(2**63) <= x < 2**63:
        raise ArgumentError(f"{name} is an integer of more than 64 bits, which no file can hold")
    if x is None or isinstance(x, bool | int | float | str):
        return x
    if isinstance(x, Tracer):
        raise ArgumentError(f"{name} is traced, expected known values")
    kind = KINDS.get(type(x).__name__)
    if kind is not None and kind is type(x):
        fields = {
            field: _record(value, f"{name}.{field}", arrays, known)
            for field, value in _arguments(x).items()
        }
        known[id(x)] = {"kind": kind.__name__, "arguments": fields}
        return known[id(x)]
    if isinstance(x, tuple | list):
        return {"list": [_record(y, f"{name}[{i}]", arrays, known) for i, y in enumerate(x)]}
    if isinstance(x, np.ndarray | np.generic | jax.Array):
        if x.dtype.name not in DTYPES:
            raise ArgumentError(
                f"{name} is an array of {x.dtype}, which no file can hold: expected "
                f"{', '.join(DTYPES[:-1])} or {DTYPES[-1]}"
            )
        arrays.append(np.asarray(x))
        return {"array": len(arrays) - 1}
    raise ArgumentError(
        f"{name} is {x!r}, which no file can hold: expected an array or one of {', '.join(KINDS)}"
    )


def _arguments(x: Any) -> dict[str, Any]:
    """The arguments of the constructor that makes an equal object. None stands for a default."""
    if isinstance(x, actuators.AffineActuators):
        first = len(x.driven_joints)
        driven = [
            joint if joint is not None else x.coupled[output - first]
            for joint, output in zip(x.joints, x.outputs)
        ]
        names = [name for name in _parameters(type(x)) if name != "joints"]
        return {"joints": driven} | {name: getattr(x, name) for name in names}
    values = {name: getattr(x, name) for name in _parameters(type(x))}
    if isinstance(x, actuators.Filter) and "muscle" not in x.kinds:
        values |= {"release_time": None, "smoothing": None}  # only muscles have them
    return values


def _parameters(kind: type) -> tuple[str, ...]:
    return tuple(inspect.signature(kind).parameters)


def has_array(record: Any, index: int) -> bool:
    """Whether a record, which may be wrong, contains the array with this index."""
    records = [record]
    while records:
        x = records.pop()
        if isinstance(x, dict):
            if x == {"array": index}:
                return True
            records += x.values()
        elif isinstance(x, list):
            records += x
    return False


def part_of(record: Any, arrays: Sequence[np.ndarray], name: str) -> Any:
    """The part with this record. Raises ModelError, which names the part, for a wrong record."""
    made: dict[str, Any] = {}  # objects by record, so equal records give one object

    def decoded(x: Any) -> Any:
        if x is None or isinstance(x, bool | int | float | str):
            return x
        if not isinstance(x, dict):
            raise ModelError(f"{name} has the entry {x!r}")
        if x.keys() == {"list"} and isinstance(x["list"], list):
            return tuple(map(decoded, x["list"]))
        if x.keys() == {"array"}:
            index = x["array"]
            if type(index) is not int or not 0 <= index < len(arrays):
                raise ModelError(f"{name} has no array {index!r}")
            return arrays[index]
        if x.keys() != {"kind", "arguments"} or not isinstance(x["arguments"], dict):
            raise ModelError(f"{name} has an entry with {sorted(x)}")
        kind = KINDS.get(x["kind"]) if isinstance(x["kind"], str) else None
        if kind is None:
            raise ModelError(f"{name} has an object of the unknown kind {x['kind']!r}")
        if unknown := x["arguments"].keys() - {*_parameters(kind)}:
            raise ModelError(f"{name}: a {x['kind']} has no argument {min(unknown)!r}")
        if (key := json.dumps(x)) in made:
            return made[key]
        values = {argument: decoded(value) for argument, value in x["arguments"].items()}
        try:
            made[key] = kind(**values)
            return made[key]
        except (ArgumentError, TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise ModelError(f"{name}: {error}") from error
        except AttributeError as error:
            raise ModelError(f"{name}: a {x['kind']} has wrong arguments") from error

    try:
        return decoded(record)
    except RecursionError as error:
        raise ModelError(f"{name} has too many parts within each other") from error
