"""Pytrees: parameters as arrays of one dtype, and the choice between two pytrees."""

from __future__ import annotations

from typing import TypeVar

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


def select(condition: Array, first: Tree, second: Tree) -> Tree:
    """The first pytree if the condition () holds, the second otherwise."""
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), first, second)


def as_array(x: ArrayLike, dtype: DTypeLike) -> Array:
    """x as an array of JAX in one dtype. NumPy converts NumPy arrays, so JAX compiles nothing."""
    return jnp.asarray(x if isinstance(x, Array) else np.asarray(x, dtype), dtype)
