"""Checked parameters of scenes, materials and servos."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from ..errors import ArgumentError

Number = Array | np.ndarray


def parameter(x: Any, name: str, shape: tuple[int, ...]) -> Number:
    """x as an array of this shape. Constants stay in float64 until the model's dtype is known.

    Raises ArgumentError for another shape, or a dtype that is not a floating-point type.
    """
    x = x if isinstance(x, Array) else np.asarray(x, float)
    if x.shape != shape or not jnp.issubdtype(x.dtype, jnp.floating):
        raise ArgumentError(
            f"{name} has shape {x.shape} and dtype {x.dtype}, expected {shape} of floats"
        )
    return x


def check(x: Number, test: Callable[[np.ndarray], bool], name: str, expected: str) -> None:
    """Raise ArgumentError if `test(x)` is false, unless JAX traces x."""
    if not isinstance(x, Tracer) and not test(np.asarray(x)):
        raise ArgumentError(f"{name} is {x}, expected {expected}")


def stacked(values: list[Number], shape: tuple[int, ...]) -> Any:
    """Parameters of this shape as the rows of one array."""
    if not values:
        return np.zeros((0, *shape))
    return (jnp if any(isinstance(x, Array) for x in values) else np).stack(values)
