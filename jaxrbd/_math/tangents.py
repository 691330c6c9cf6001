"""Tangents of rules of `jax.custom_jvp`: symbolic zeros, and batch axes of values."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import PyTree


def changed_leaves(
    operands: PyTree, tangents: PyTree
) -> tuple[list[Array], list[Array], Callable[[list[Array]], PyTree]]:
    """The leaves of the operands that change, their tangents, and a function that puts them back.

    `tangents` has the structure of `operands`. A leaf does not change if its tangent is a
    `SymbolicZero`. The function takes new values of the changing leaves, and returns the operands
    with these values.
    """
    leaves, tree = jax.tree.flatten(operands)
    changes = tree.flatten_up_to(tangents)
    indices = [i for i, x in enumerate(changes) if not isinstance(x, SymbolicZero)]

    def with_values(values: list[Array]) -> PyTree:
        found = list(leaves)
        for i, x in zip(indices, values):
            found[i] = x
        return tree.unflatten(found)

    return [leaves[i] for i in indices], [changes[i] for i in indices], with_values


def batched_as(value: Array, x: Array) -> Array:
    """`value`, with the batch axis of `x` under `vmap`, if `x` has entries.

    The value of a `custom_jvp` or a `custom_root` must have a batch axis if its tangent has one.
    Otherwise JAX 0.10 makes a wrong program for `grad` of `vmap` of `jit`. So a value that does not
    depend on the operands needs this function. The compiled program does not contain it.
    """
    if not x.size:
        return value
    first = lax.stop_gradient(x).ravel()[0]
    return jnp.where(first == first, value, value)


@jax.custom_jvp
def with_tangents(value: Array, x: Array) -> Array:
    """`value`, with the derivative of `x`, which has the same value. The value does not use `x`."""
    return value


@with_tangents.defjvp
def _(primals, tangents):
    return with_tangents(*primals), tangents[1]
