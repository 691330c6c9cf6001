"""Checks of what a caller passes, made while tracing: what is wrong is named, never guessed at."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from .errors import ArgumentError
from .model import Model


def configuration(model: Model, q: ArrayLike, name: str = "q") -> Array:
    """`q` as an array (nq,) of the model's dtype.

    Raises ArgumentError where its shape or dtype is another, and where `model` is no Model; batches
    go through `jax.vmap`.
    """
    return array(model, q, name, (robot(model).nq,), "nq")


def velocity(model: Model, v: ArrayLike, name: str = "v") -> Array:
    """A vector over the degrees of freedom (v, a, tau, ...) as an array (nv,); see above."""
    return array(model, v, name, (robot(model).nv,), "nv")


def wrenches(model: Model, f_ext: ArrayLike, name: str = "f_ext") -> Array:
    """One spatial force a body as an array (nb, 6); see above."""
    return array(model, f_ext, name, (robot(model).nb, 6), "nb, 6")


def array(model: Model, x: ArrayLike, name: str, shape: tuple[int, ...], sizes: str) -> Array:
    """`x` as an array of the given shape and the model's dtype; see `configuration`."""
    x = jnp.asarray(_not_a_model(robot(model), x, name))
    if x.shape != shape:
        hint = "; batch with jax.vmap" if x.ndim > len(shape) else ""
        raise ArgumentError(
            f"{name} has shape {x.shape}, expected {shape} ({sizes}) for {model!r}{hint}"
        )
    if x.dtype != model.dtype:
        raise ArgumentError(
            f"{name} of shape {x.shape} has dtype {x.dtype}, expected {model.dtype} for {model!r}; "
            f"cast it, or the model with model.astype"
        )
    return x


def number(model: Model, x: ArrayLike, name: str) -> Array:
    """A number as an array () of the model's dtype; see `configuration`."""
    x = jnp.asarray(_not_a_model(robot(model), x, name), model.dtype)
    return array(model, x, name, (), "a number")


def robot(model: Model, place: str = "the first argument") -> Model:
    """The model, once it is known to be one: arguments given in another order end here.

    Raises ArgumentError where it is something else.
    """
    if isinstance(model, Model):
        return model
    raise ArgumentError(f"{place} is {_described(model)}, expected the Model of a robot")


def _not_a_model(model: Model, x: Any, name: str) -> Any:
    if isinstance(x, Model):
        raise ArgumentError(f"{name} is {x!r}, expected an array; {model!r} came before it")
    return x


def _described(x: Any) -> str:
    """What was given instead of something else; a tracer as the array that it stands for."""
    if isinstance(x, (jax.Array, np.ndarray)):
        return f"an array of shape {x.shape}"
    return f"{type(x).__name__!r}"


def frame_index(model: Model, frame: str | int) -> int:
    """Index of a frame given by name or by index; negative indices count from the last frame.

    Raises ArgumentError where the model has no such frame.
    """
    names = robot(model).frame_names
    if isinstance(frame, str):
        if frame in names:
            return names.index(frame)
        raise ArgumentError(unknown_name(model, "frame", frame, names))
    try:
        index = operator.index(frame)
    except TypeError:
        raise ArgumentError(
            f"frame is {_described(frame)}, expected the name or the index of a frame of {model!r}"
        ) from None
    if not -len(names) <= index < len(names):
        raise ArgumentError(
            f"frame {index} out of range: {model!r} has frames {-len(names)} to {len(names) - 1}"
        )
    return index % len(names)


def unknown_name(model: Model, kind: str, name: str, names: Sequence[str]) -> str:
    """The message for a name that the model lacks, with the names that look most like it."""
    close = [known for known in names if name and name.lower() in known.lower()]
    close += difflib.get_close_matches(name, [n for n in names if n not in close])
    hint = f"; did you mean {' or '.join(map(repr, close[:3]))}?" if close else ""
    return f"no {kind} {name!r} in {model!r}{hint}; {kind}s: {list(names)}"


REFERENCES = ("local", "world", "local_world_aligned")


def reference_frame(reference: str) -> str:
    """Check the name of a reference frame.

    Raises ArgumentError where it is not one of `REFERENCES`.
    """
    if reference not in REFERENCES:
        raise ArgumentError(f"reference is {reference!r}, expected one of {REFERENCES}")
    return reference
