"""Checks of what a caller passes, made while tracing: what is wrong is named, never guessed at."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from .errors import ArgumentError
from .model import Model


def configuration(model: Model, q: ArrayLike, name: str = "q") -> Array:
    """`q` as an array (nq,) of the model's dtype.

    Raises ArgumentError where its shape or dtype is another; batches go through `jax.vmap`.
    """
    return array(model, q, name, (model.nq,), "nq")


def velocity(model: Model, v: ArrayLike, name: str = "v") -> Array:
    """A vector over the degrees of freedom (v, a, tau, ...) as an array (nv,); see above."""
    return array(model, v, name, (model.nv,), "nv")


def wrenches(model: Model, f_ext: ArrayLike, name: str = "f_ext") -> Array:
    """One spatial force a body as an array (nb, 6); see above."""
    return array(model, f_ext, name, (model.nb, 6), "nb, 6")


def array(model: Model, x: ArrayLike, name: str, shape: tuple[int, ...], sizes: str) -> Array:
    """`x` as an array of the given shape and the model's dtype; see `configuration`."""
    x = jnp.asarray(x)
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
    return array(model, jnp.asarray(x, model.dtype), name, (), "a number")


def frame_index(model: Model, frame: str | int) -> int:
    """Index of a frame given by name or index.

    Raises ArgumentError where the model has no such frame.
    """
    if isinstance(frame, str):
        if frame in model.frame_names:
            return model.frame_names.index(frame)
        raise ArgumentError(f"no frame {frame!r} in {model!r}; frames: {list(model.frame_names)}")
    if not -len(model.frame_names) <= frame < len(model.frame_names):
        raise ArgumentError(f"frame {frame} out of range: {model!r}")
    return frame % len(model.frame_names)


REFERENCES = ("local", "world", "local_world_aligned")


def reference_frame(reference: str) -> str:
    """Check the name of a reference frame.

    Raises ArgumentError where it is not one of `REFERENCES`.
    """
    if reference not in REFERENCES:
        raise ArgumentError(f"reference is {reference!r}, expected one of {REFERENCES}")
    return reference
