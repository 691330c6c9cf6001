"""Checkpoints: all arrays of a training in one file with a checksum, replaced atomically.

`jaxrbd/io/_sealed.py` defines the format: a line with the checksum, a line of JSON, and the
arrays, one after another, in little-endian order. A process that is killed while it writes leaves
the previous file. The file contains no code.
"""

from __future__ import annotations

import math
import os
import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import SavedFileError
from ..io._sealed import read_sealed, write_sealed

# Version 1 has only random keys of JAX's default kind, and does not state the kind. The versions 1
# and 2 do not state the environment of a training. Up to version 3, settings have the names on the
# left of `_NAMES`, and `gae_lambda` of `Ppo` and `td_lambda` of `Shac` have the name `trace`.
VERSION = 4
_NAMES = {
    "rate": "learning_rate",
    "last_rate": "last_learning_rate",
    "critic_rate": "critic_learning_rate",
    "sweeps": "epochs",
    "parts": "minibatches",
    "critic_sweeps": "critic_epochs",
    "critic_batches": "critic_minibatches",
}
_LAMBDAS = {"ppo": "gae_lambda", "shac": "td_lambda"}


def save_checkpoint(path: str | os.PathLike[str], about: dict[str, Any], tree: Any) -> None:
    """Save a pytree of arrays and a description, which consists of values of JSON.

    Keys of `jax.random` are saved with their kind, such as "threefry2x32" or "rbg". If saving
    fails, the previous file is unchanged. Raises OSError if the file cannot be written.
    """
    named = _named(tree)
    arrays = {name: np.asarray(_data(x)) for name, x in named.items()}
    kinds = {name: str(jax.random.key_impl(x)) for name, x in named.items() if is_key(x)}
    entries = [_entry(name, x, kinds.get(name)) for name, x in arrays.items()]
    data = [x.astype(x.dtype.newbyteorder("<")).tobytes() for x in arrays.values()]
    header = {"about": about, "arrays": entries}
    write_sealed(path, "checkpoint", VERSION, header, b"".join(data))


def read_description(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The description of a checkpoint. Errors as in `load_checkpoint`."""
    about = read_sealed(path, "checkpoint", VERSION)[0].get("about")
    if not isinstance(about, dict):
        raise SavedFileError("its header has no description", file=os.fspath(path))
    settings = about.get("settings")
    if isinstance(settings, dict):
        names = {**_NAMES, "trace": _LAMBDAS.get(str(about.get("algorithm")), "trace")}
        about["settings"] = {names.get(name, name): x for name, x in settings.items()}
    return about


def load_checkpoint(path: str | os.PathLike[str], like: Any) -> Any:
    """The pytree of arrays of a checkpoint.

    `like`: a pytree with the structure, shapes and dtypes of the saved pytree, such as a result of
    `jax.eval_shape`. Random keys have the kind of the saved keys, also where the keys of `like`
    have another kind. Raises SavedFileError, which names the file, if the file cannot be read, is
    damaged, is of another kind, or has other arrays than `like`.
    """
    return _tree(path, _stored(path), _named(like), like, "this training")


def load_fields(path: str | os.PathLike[str], like: dict[str, Any]) -> dict[str, Any]:
    """The fields of `like` that a checkpoint has; the pytree of the checkpoint is a named tuple.

    `like`: a dict from the names of fields to pytrees with the structure, shapes and dtypes of the
    fields. Errors as in `load_checkpoint`.
    """
    stored, found = _stored(path), {}
    for field, tree in like.items():
        # The name of an array is the path to it: after the field, another field or an index.
        field_arrays = [x for x in stored if re.match(rf"\.{re.escape(field)}\b", x.name)]
        if field_arrays:
            expected = {f".{field}{rest}": x for rest, x in _named(tree).items()}
            owner = f"the {field} of this training"
            found[field] = _tree(path, field_arrays, expected, tree, owner)
    return found


class _Stored(NamedTuple):
    """An array of a checkpoint: what the header states about it, and its bytes."""

    entry: dict[str, Any]
    data: bytes

    @property
    def name(self) -> str:
        return self.entry["name"]


def _failure(path: str | os.PathLike[str], why: str) -> SavedFileError:
    return SavedFileError(why, file=os.fspath(path))


def _stored(path: str | os.PathLike[str]) -> list[_Stored]:
    """The arrays of a checkpoint, in their order."""
    header, body = read_sealed(path, "checkpoint", VERSION)
    stored: list[_Stored] = []
    end = 0
    try:
        for entry in header["arrays"]:
            size = np.dtype(entry["dtype"]).itemsize * math.prod(entry["shape"])
            stored.append(_Stored({**entry, "name": str(entry["name"])}, body[end : end + size]))
            end += size
    except (KeyError, TypeError, ValueError):
        raise _failure(path, "it has no valid list of arrays") from None
    if end != len(body):
        raise _failure(path, f"its arrays are {len(body)} bytes, expected {end}")
    return stored


def _tree(
    path: str | os.PathLike[str],
    stored: list[_Stored],
    expected: dict[str, Any],
    like: Any,
    owner: str,
) -> Any:
    """The stored arrays as a pytree like `like`, whose leaves have the names of `expected`.

    `owner`: what the arrays belong to, for the message.
    """
    if len(stored) != len(expected):
        raise _failure(path, f"it has other arrays than {owner}, which has {len(expected)}")
    leaves = []
    for (entry, data), (name, x) in zip(stored, expected.items()):
        kind = entry.get("key") if is_key(x) else None
        try:
            described = _shape(x) if kind is None else _key_data(x, kind)
        except (TypeError, ValueError):
            why = f"it has keys of the kind {kind!r}, which JAX does not have"
            raise _failure(path, why) from None
        wanted = _entry(name, described, kind)
        if entry != wanted:
            raise _failure(path, f"it has the array {entry}, expected {wanted}")
        dtype = np.dtype(entry["dtype"])
        values = np.frombuffer(data, dtype.newbyteorder("<")).reshape(entry["shape"])
        array = jnp.asarray(values.astype(dtype))
        leaves.append(jax.random.wrap_key_data(array, impl=kind) if is_key(x) else array)
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _named(tree: Any) -> dict[str, Any]:
    """The leaves of a pytree by the path to each leaf, such as ".policy.log_std"."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): x for path, x in leaves}


def _entry(name: str, x: Any, kind: str | None) -> dict[str, Any]:
    """What the header states about an array, or about the data of keys of a kind."""
    entry = {"name": name, "dtype": np.dtype(x.dtype).name, "shape": [*x.shape]}
    return entry if kind is None else {**entry, "key": kind}


def is_key(x: Any) -> bool:
    """Whether an array has keys of `jax.random`."""
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _data(x: Any) -> Any:
    return jax.random.key_data(x) if is_key(x) else x


def _shape(x: Any) -> Any:
    return jax.eval_shape(_data, x)


def _key_data(keys: Any, kind: str) -> Any:
    """The shape and dtype of the data of keys with another kind and the shape of `keys`."""
    data = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0, impl=kind)))
    return jax.ShapeDtypeStruct((*keys.shape, *data.shape), data.dtype)
