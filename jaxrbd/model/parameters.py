"""Checks of the parameters of pytrees other than the model, for example of the sizes of shapes.

The module `arguments` has the same names, for modules that import `arguments` anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike

from ..errors import ArgumentError

# A parameter of a pytree: an array of JAX, or a constant whose dtype is not chosen yet.
Parameter = Array | np.ndarray


def parameter(x: ArrayLike | Sequence, name: str, shape: tuple[int | None, ...]) -> Parameter:
    """A parameter of a pytree as an array of floats; constants stay in float64.

    A function that uses the parameter casts it to the model's dtype. `shape`: None stands for any
    length. Raises ArgumentError for another shape or for an array of JAX that has no floats.
    """
    try:
        array = x if isinstance(x, Array) else np.asarray(x, float)
    except (TypeError, ValueError):
        raise ArgumentError(f"{name} is {x!r}, expected an array of floats") from None
    fits = len(array.shape) == len(shape) and all(
        n is None or n == m for n, m in zip(shape, array.shape)
    )
    if not fits or not jnp.issubdtype(array.dtype, jnp.floating):
        sizes = str(tuple("n" if n is None else n for n in shape)).replace("'", "")
        raise ArgumentError(
            f"{name} has shape {array.shape} and dtype {array.dtype}, expected {sizes} of floats"
        )
    return array


def require(x: Parameter, test: Callable[[np.ndarray], Any], name: str, expected: str) -> None:
    """Raise ArgumentError if the values of a parameter fail a test, unless JAX traces them.

    `test`: whether each entry, or the array as a whole, is right; `expected`: the same in words.
    """
    if not isinstance(x, Tracer) and not np.all(test(np.asarray(x))):
        raise ArgumentError(f"{name} is {x}, expected {expected}")
