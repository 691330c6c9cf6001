"""Save a `Model` and other parts of a robot to one file, and load them.

The file has a line with a checksum, a line of JSON with the structure, and the arrays, one after
another, in little-endian order; the page "Model files" of the documentation has the format.
`load_model` computes the sizes nq and nv, the groups of joints of one kind, and the independent
coordinates from the joints. The file does not contain them, so they cannot contradict the joints.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from ..errors import ArgumentError, ModelError, SavedFileError
from ..joints import (
    FreeFlyer,
    Helical,
    Joint,
    Planar,
    Prismatic,
    Revolute,
    Screw,
    Spherical,
    Translation,
)
from ..model import Model, arguments
from ..model.coupling import Coupling, independent_coordinates
from ..model.model import joint_kinds
from ..spatial import Pose
from ..topology import Topology
from ._geometry_records import check_record as check_geometry, geometry_records, link_geometry
from ._part_records import DTYPES, has_array, part_of, part_record
from ._sealed import read_sealed, write_sealed

VERSION = 5

# The joint kinds that a file can name, and the shapes of their parameters.
_KINDS: dict[str, type[Joint]] = {
    kind.__name__: kind
    for kind in (Revolute, Prismatic, Helical, Screw, Spherical, Planar, Translation, FreeFlyer)
}
_PARAMETERS = {"axis": (3,), "pitch": (), "turn": (), "advance": ()}

# The entries of the header. The leader of joint i is the index of the joint that it follows. The
# leader is i if joint i follows no joint. The parent or body -1 is the world.
_HEADER = {
    "name": str,
    "dissipative": bool,
    "dtype": str,
    "joints": list,
    "frames": list,
    "geometry": list,
    "arrays": list,
    "parts": dict,
    "part_arrays": list,
}
_JOINT = {"name": str, "kind": str, "parent": int, "body": str, "leader": int}
_FRAME = {"name": str, "body": int}
_ARRAY = {"name": str, "shape": list}
_PART_ARRAY = {"dtype": str, "shape": list}
_DTYPES = ("float32", "float64")
_MOST_AXES = 64  # of a NumPy array


def save_model(
    model: Model, path: str | os.PathLike[str], parts: Mapping[str, Any] | None = None
) -> None:
    """Save a robot to a file, which `load_model` reads.

    - `parts`: other parts of the robot by name, which `load_parts` reads (default: none), such as
      `{"actuators": actuators, "tendons": tendons}`. A part is an object of `jaxrbd.tendons`,
      `jaxrbd.passive`, or `jaxrbd.actuators`, a `sensors.RobotSensors` or `Noise`, an array, a
      number, a text, or a tuple of these.

    The file holds every array exactly, in its dtype: float32 or float64 for a model; also int32,
    int64 or bool for other parts. It holds the whole structure. The model may be a batch of models
    from `jax.vmap` or from stacking, whose arrays have leading axes. If saving fails, the previous
    file is unchanged. Format: the page "Model files" of the documentation.

    A file cannot hold functions. For a `joints.Custom`, a `Follow` or a joint kind outside of
    `jaxrbd.joints`, this function therefore raises ArgumentError, which names the joint. Keep the
    Python code that builds such a robot, or export its algorithms with `export_batched`. Raises
    ArgumentError also for a part of another type, which the message names, and if the arrays of the
    model differ in dtype or do not have the shapes of a `Model`. Raises OSError if the file cannot
    be written.
    """
    header = _header(arguments.robot(model, batch=True))
    expected = _skeleton(header)
    if jax.tree.structure(expected) != jax.tree.structure(model):
        raise ArgumentError(f"{model!r} differs from models of build_model: it cannot be saved")
    arrays = {name: np.asarray(x) for name, x in _named(model).items()}
    for name, x in arrays.items():
        if x.dtype != model.dtype or x.dtype.name not in _DTYPES:
            raise ArgumentError(f"{name} is {x.dtype}, expected all float32 or all float64")
    header["arrays"] = [{"name": name, "shape": [*x.shape]} for name, x in arrays.items()]
    if wrong := _shape_fault(expected, {name: x.shape for name, x in arrays.items()}):
        raise ArgumentError(wrong)
    parts = {} if parts is None else parts
    if not isinstance(parts, Mapping) or not all(isinstance(name, str) for name in parts):
        raise ArgumentError(f"parts is {parts!r}, expected a mapping from names to parts")
    part_arrays: list[np.ndarray] = []
    header["parts"] = {
        name: part_record(part, f"parts[{name!r}]", part_arrays) for name, part in parts.items()
    }
    header["part_arrays"] = [{"dtype": x.dtype.name, "shape": [*x.shape]} for x in part_arrays]
    all_arrays = [*arrays.values(), *part_arrays]
    little = [x.astype(x.dtype.newbyteorder("<")).tobytes() for x in all_arrays]
    write_sealed(path, "model", VERSION, header, b"".join(little))


def load_model(path: str | os.PathLike[str], *, dtype: DTypeLike | None = None) -> Model:
    """Load a robot from a file of `save_model`.

    `dtype`: float32 or float64, to cast the arrays to; None keeps the saved dtype. The result has
    the structure of the saved model, so JAX reuses programs that it compiled for that model. The
    function opens only this file, and executes no code from it.

    Raises SavedFileError, which names the file, if the file cannot be read, is no file of
    `save_model`, is truncated or altered, has a newer version, names an unknown joint kind, or
    has entries that do not agree. Raises ArgumentError for another `dtype`, and for float64 if
    double precision is off in JAX (`jax_enable_x64`).
    """
    return _model(*_read(path), path, dtype)


def load_parts(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The parts of a robot other than its model, by name, from a file of `save_model`.

    The parts have arrays of NumPy, so they fit a model in any precision. The result is empty for a
    file without parts. The function opens only this file, and executes no code from it: it calls
    the constructors of the classes of the parts.

    Raises SavedFileError, which names the file and the part, as `load_model` does, and for a part
    of an unknown kind or with values that its constructor refuses.
    """
    return _parts(*_read(path), path)


def load_model_and_parts(path: str | os.PathLike[str]) -> tuple[Model, dict[str, Any]]:
    """The results of `load_model` and of `load_parts`. Reads the file once; errors as for both."""
    header, body = _read(path)
    return _model(header, body, path), _parts(header, body, path)


def _model(
    header: dict[str, Any],
    body: bytes,
    path: str | os.PathLike[str],
    dtype: DTypeLike | None = None,
) -> Model:
    """The model of a file with this header and body; see `load_model`."""
    try:
        body = _with_fixed_inertia(header, body)
        expected = _skeleton(header)
        shapes = {array["name"]: tuple(array["shape"]) for array in header["arrays"]}
        if wrong := _shape_fault(expected, shapes):
            raise ModelError(wrong)
        sizes = [math.prod(shape) for shape in shapes.values()]
        saved = np.dtype(header["dtype"]).newbyteorder("<")
    except ModelError as error:
        raise SavedFileError(str(error), file=os.fspath(path)) from error
    try:
        wanted = np.dtype(header["dtype"] if dtype is None else dtype).newbyteorder("=")
    except TypeError:
        wanted = None
    if wanted is None or wanted.name not in _DTYPES:
        raise ArgumentError(f"dtype is {wanted or repr(dtype)}, expected float32 or float64")
    if wanted == np.float64 and jnp.result_type(float) != np.float64:
        raise ArgumentError(
            f"{os.fspath(path)}: the robot is in double precision, which is off in JAX: "
            'call jax.config.update("jax_enable_x64", True) first, or pass dtype="float32"'
        )
    numbers = np.frombuffer(body, saved, count=sum(sizes))
    parts = np.split(numbers, np.cumsum(sizes)[:-1])
    # `jnp.array` compiles a program, which takes long for a large shape without entries.
    leaves = [
        jax.device_put(x.reshape(shape).astype(wanted)) for x, shape in zip(parts, shapes.values())
    ]
    return jax.tree.unflatten(jax.tree.structure(expected), leaves)


def _parts(header: dict[str, Any], body: bytes, path: str | os.PathLike[str]) -> dict[str, Any]:
    """The parts of a file with this header and body; see `load_parts`."""
    try:
        start = len(body) - sum(map(_size, header["part_arrays"]))
        arrays = []
        for array in header["part_arrays"]:
            saved, shape = np.dtype(array["dtype"]), tuple(array["shape"])
            little = saved.newbyteorder("<")
            values = np.frombuffer(body, little, count=math.prod(shape), offset=start)
            arrays.append(values.reshape(shape).astype(saved))
            start += _size(array)
        return {
            name: part_of(record, arrays, f"parts[{name!r}]")
            for name, record in header["parts"].items()
        }
    except ModelError as error:
        raise SavedFileError(str(error), file=os.fspath(path)) from error


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], bytes]:
    """The checked header and the body of a model file. Raises SavedFileError for a wrong file."""
    header, body = read_sealed(path, "model", VERSION)
    # Version 1 of the format has no geometry; versions 1 to 4 have no parts.
    for name, empty in (("geometry", []), ("parts", {}), ("part_arrays", [])):
        header.setdefault(name, empty)
    try:
        _check(header)
        width = np.dtype(header["dtype"]).itemsize
        needed = width * sum(math.prod(array["shape"]) for array in header["arrays"])
        if needed + sum(map(_size, header["part_arrays"])) != len(body):
            raise ModelError(
                f"its arrays are {len(body)} bytes, but their shapes need another size"
            )
    except ModelError as error:
        raise SavedFileError(str(error), file=os.fspath(path)) from error
    return header, body


def _size(array: dict[str, Any]) -> int:
    """The size in bytes of an array of a part, from its entry in `part_arrays`."""
    return np.dtype(array["dtype"]).itemsize * math.prod(array["shape"])


def _with_fixed_inertia(header: dict[str, Any], body: bytes) -> bytes:
    """The body of a file, with zeros for `fixed_inertia`, which versions 1 and 2 do not have.

    Adds the array to the header too.
    """
    shapes = {array["name"]: array["shape"] for array in header["arrays"]}
    names = [*shapes]
    if "fixed_inertia" in shapes or not {"gravity", "inertia"} <= shapes.keys():
        return body
    place = names.index("gravity")
    fixed = sum(frame["body"] < 0 for frame in header["frames"])
    shape = [*shapes["inertia"][:-2], fixed, 10]
    header["arrays"].insert(place, {"name": "fixed_inertia", "shape": shape})
    width = np.dtype(header["dtype"]).itemsize
    start = width * sum(math.prod(shapes[name]) for name in names[:place])
    return body[:start] + bytes(width * math.prod(shape)) + body[start:]


# ------------------------------------------------------------------------------------- structure


def _header(model: Model) -> dict[str, Any]:
    """The header of a model without its entry "arrays".

    Raises ArgumentError for a joint that a file cannot hold.
    """
    kinds, leaders = joint_kinds(model), _leaders(model)
    for i, name in enumerate(model.joint_names):
        if _KINDS.get(kinds[i].__name__) is not kinds[i]:
            raise ArgumentError(
                f"joint {name!r} is a {kinds[i].__name__}, which no file can hold: expected one of "
                f"{', '.join(_KINDS)}"
            )
        if leaders[i] is None:
            raise ArgumentError(
                f"joint {name!r} follows others by a function, which no file can hold"
            )
    return {
        "name": model.name,
        "dissipative": bool(model.dissipative),
        "dtype": model.dtype.name,
        "joints": [
            {
                "name": name,
                "kind": kinds[i].__name__,
                "parent": int(model.topology.parents[i]),
                "body": model.body_names[i],
                "leader": leaders[i],
            }
            for i, name in enumerate(model.joint_names)
        ],
        "frames": [
            {"name": name, "body": int(body)}
            for name, body in zip(model.frame_names, model.frame_bodies)
        ],
        "geometry": geometry_records(model.geometry),
    }


def _leaders(model: Model) -> list[int | None]:
    """For each joint i, the index of the joint that it follows.

    The entry is i if the joint follows no joint, and None if it follows others by a function.
    """
    coupling = model.coupling
    if coupling is None:
        return [*range(model.nb)]
    first = [int(q) for q in model.topology.q_start]
    joint_index = dict(zip(first, range(model.nb)))
    by_function = {q for group in coupling.followers for q in group.q}
    return [
        None if q in by_function else joint_index[coupling.q_independent[coupling.q_source[q]]]
        for q in first
    ]


def _skeleton(header: dict[str, Any]) -> Model:
    """The model that the header describes, with a `jax.ShapeDtypeStruct` for each array."""
    joints, frames = header["joints"], header["frames"]
    kinds = [_KINDS[joint["kind"]] for joint in joints]
    leaders = [joint["leader"] for joint in joints]
    nqs, nvs = tuple(kind.nq for kind in kinds), tuple(kind.nv for kind in kinds)
    groups: dict[type[Joint], list[int]] = {}
    for i, kind in enumerate(kinds):
        groups.setdefault(kind, []).append(i)
    topology = Topology(tuple(joint["parent"] for joint in joints), nqs, nvs)
    space = independent_coordinates(leaders, nqs, nvs)
    nb, nf, nq, nv = len(joints), len(frames), topology.nq, topology.nv
    nq_independent, nv_independent = len(space["q_independent"]), len(space["v_independent"])
    zeros = jnp.zeros
    geometry = link_geometry(header["geometry"])

    def stacked(kind: type[Joint], n: int) -> Joint:
        fields = [field.name for field in dataclasses.fields(kind)]
        return kind(**{field: zeros((n, *_PARAMETERS[field])) for field in fields})

    def model() -> Model:
        coupling = Coupling(
            q_multiplier=zeros(nq),
            q_offset=zeros(nq),
            v_multiplier=zeros(nv),
            followers=(),
            **space,
        )
        return Model(
            placement=Pose(zeros((nb, 3, 3)), zeros((nb, 3))),
            inertia=zeros((nb, 10)),
            joints=tuple(stacked(kind, len(bodies)) for kind, bodies in groups.items()),
            frame_pose=Pose(zeros((nf, 3, 3)), zeros((nf, 3))),
            fixed_inertia=zeros((sum(frame["body"] < 0 for frame in frames), 10)),
            gravity=zeros(3),
            armature=zeros(nv),
            damping=zeros(nv),
            friction=zeros(nv),
            lower_position_limit=zeros(nq_independent),
            upper_position_limit=zeros(nq_independent),
            velocity_limit=zeros(nv_independent),
            effort_limit=zeros(nv_independent),
            coupling=None if leaders == [*range(nb)] else coupling,
            topology=topology,
            joint_bodies=tuple(tuple(bodies) for bodies in groups.values()),
            joint_names=tuple(joint["name"] for joint in joints),
            body_names=tuple(joint["body"] for joint in joints),
            frame_names=tuple(frame["name"] for frame in frames),
            frame_bodies=tuple(frame["body"] for frame in frames),
            name=header["name"],
            dissipative=header["dissipative"],
            geometry=geometry,
        )

    return jax.eval_shape(model)


def _named(model: Model) -> dict[str, Any]:
    """The leaves by name, such as "placement.R" or "joints.0.axis", in tree order."""
    leaves, _ = jax.tree.flatten_with_path(model)
    return {jax.tree_util.keystr(path, simple=True, separator="."): x for path, x in leaves}


def _shape_fault(expected: Model, found: dict[str, tuple[int, ...]]) -> str | None:
    """A message about the first wrong name or shape, or None. Arrays may have batch axes."""
    wanted = {name: x.shape for name, x in _named(expected).items()}
    if [*found] != [*wanted]:
        return f"its arrays are {[*found]}, expected {[*wanted]}"
    batches = set()
    for name, shape in found.items():
        batch = len(shape) - len(wanted[name])
        if batch < 0 or shape[batch:] != wanted[name]:
            return f"{name} has shape {shape}, expected {wanted[name]}"
        batches.add(shape[:batch])
    if len(batches - {()}) > 1:
        return f"the leading axes of its arrays differ: {sorted(batches)}"
    return None


# ------------------------------------------------------------------------------ checks of a header


def _check(header: dict[str, Any]) -> None:
    """Raise ModelError unless the header describes a model."""
    _check_record(header, _HEADER, "its header")
    records = {"joints": _JOINT, "frames": _FRAME, "arrays": _ARRAY, "part_arrays": _PART_ARRAY}
    for key, fields in records.items():
        for i, record in enumerate(header[key]):
            _check_record(record, fields, f"entry {i} of its {key}")
    if header["dtype"] not in _DTYPES:
        raise ModelError(f"its arrays are {header['dtype']!r}, expected float32 or float64")
    joints, frames, arrays = header["joints"], header["frames"], header["arrays"]
    for i, array in enumerate(header["part_arrays"]):
        if array["dtype"] not in DTYPES:
            names = [name for name, part in header["parts"].items() if has_array(part, i)]
            part = " and ".join(f"parts[{name!r}]" for name in names) or "a part"
            raise ModelError(
                f"an array of {part} is {array['dtype']!r}, expected {', '.join(DTYPES[:-1])} or "
                f"{DTYPES[-1]}"
            )
    for array in [{"name": "an array of a part", **x} for x in header["part_arrays"]] + arrays:
        if not all(type(n) is int and 0 <= n < 2**31 for n in array["shape"]):
            raise ModelError(f"{array['name']!r} has shape {array['shape']!r}")
        if math.prod(n for n in array["shape"] if n) >= 2**48:
            raise ModelError(f"{array['name']!r} has shape {array['shape']!r}")
        if len(array["shape"]) > _MOST_AXES:
            raise ModelError(f"{array['name']!r} has {len(array['shape'])} axes")
    for joint in joints:
        if joint["kind"] not in _KINDS:
            raise ModelError(
                f"joint {joint['name']!r} is of the unknown kind {joint['kind']!r}; "
                f"known: {', '.join(_KINDS)}"
            )
    for what, names in (
        ("joints", [joint["name"] for joint in joints]),
        ("bodies", [joint["body"] for joint in joints]),
        ("frames", [frame["name"] for frame in frames]),
        ("arrays", [array["name"] for array in arrays]),
    ):
        if len(set(names)) < len(names):
            raise ModelError(f"two of its {what} have the same name")
    for frame in frames:
        if not -1 <= (body := frame["body"]) < len(joints):
            raise ModelError(f"frame {frame['name']!r} is on body {body} of {len(joints)}")
    for i, record in enumerate(header["geometry"]):
        check_geometry(record, f"entry {i} of its geometry", [frame["name"] for frame in frames])
    for i, joint in enumerate(joints):
        _check_leader(joints, i, joint["leader"])


def _check_leader(joints: list[dict[str, Any]], i: int, leader: int) -> None:
    if leader == i:
        return
    name = joints[i]["name"]
    if not 0 <= leader < len(joints) or joints[leader]["leader"] != leader:
        raise ModelError(f"joint {name!r} follows joint {leader}, expected an independent one")
    for kind in (_KINDS[joints[j]["kind"]] for j in (i, leader)):
        if (kind.nq, kind.nv) != (1, 1):
            raise ModelError(f"joint {name!r} follows joint {leader}: expected one dof each")


def _check_record(record: Any, fields: dict[str, type], what: str) -> None:
    """Raise ModelError unless the record is a dict with these fields; `what` names the record."""
    found = {k: type(x) for k, x in record.items()} if isinstance(record, dict) else type(record)
    if found != fields:
        names = {name: kind.__name__ for name, kind in fields.items()}
        raise ModelError(f"{what} has not the form {names}")
