"""Parameters as arrays of one dtype."""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

Tree = TypeVar("Tree")


def cast(tree: Tree, dtype: DTypeLike) -> Tree:
    """The pytree with all floating-point leaves as arrays of JAX in one dtype."""

    def converted(x):
        return jnp.asarray(x, dtype) if jnp.issubdtype(jnp.result_type(x), jnp.floating) else x

    return jax.tree.map(converted, tree)
