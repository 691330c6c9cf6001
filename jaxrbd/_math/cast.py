"""Pytrees: parameters as arrays of one dtype, and the choice between two pytrees.

The last functions test and read arguments of any type.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

Tree = TypeVar("Tree")


def cast(tree: Tree, dtype: DTypeLike) -> Tree:
    """The pytree with all floating-point leaves as arrays of JAX in one dtype."""

    def converted(x):
        return as_array(x, dtype) if jnp.issubdtype(jnp.result_type(x), jnp.floating) else x

    return jax.tree.map(converted, tree)


def stacked(trees: Sequence[Any]) -> Any:
    """One pytree, whose arrays of JAX have a leading axis for pytrees of the same structure."""
    return jax.tree.map(lambda *x: jnp.stack(x), *trees)


def select(condition: Array, first: Tree, second: Tree) -> Tree:
    """The first pytree if the condition () holds, the second otherwise."""
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), first, second)


def as_array(x: ArrayLike, dtype: DTypeLike) -> Array:
    """x as an array of JAX in one dtype. NumPy converts NumPy arrays, so JAX compiles nothing."""
    return jnp.asarray(x if isinstance(x, Array) else np.asarray(x, dtype), dtype)


def is_integer(x: Any) -> bool:
    """Whether x is an integer of Python or NumPy, and no truth value."""
    return isinstance(x, (int, np.integer)) and not isinstance(x, bool)


def real_values(x: Any) -> np.ndarray | None:
    """The values as an array of float64, or None if they are no array of real numbers.

    Raises OverflowError for an int that is too large.
    """
    try:
        array = np.asarray(x)
        # NumPy would read texts, dates and bools, read None as NaN, and drop imaginary parts.
        if array.dtype.kind in "bcSUMm":
            return None
        if isinstance(x, list | tuple) and any(isinstance(y, bool) for y in jax.tree.leaves(x)):
            return None
        if array.dtype.kind == "O" and not all(isinstance(y, Real) for y in array.flat):
            return None
        return np.asarray(array, float)
    except (TypeError, ValueError):  # such as lists of different lengths
        return None
