"""Parameters of an environment that follow a schedule, without another compilation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ArgumentError
from ..model import arguments
from ..model.names import described

# A function from the usual parameters and the progress of a training, between 0 and 1, to the
# parameters of the next update.
Schedule = Callable[[Any, float], Any]


def scheduled(schedule: Schedule, params: Any, progress: float) -> Any:
    """The parameters that a schedule returns, as arrays of the dtypes of `params`.

    The structure, the shapes and the dtypes are those of `params`, so that compiled programs accept
    them. Raises ArgumentError, which names the entry, for another structure or another shape, and
    for values that have no such dtype.
    """
    found = schedule(params, progress)
    expected, structure = jax.tree_util.tree_flatten_with_path(params)
    if jax.tree.structure(found) != structure:
        difference = _first_difference(found, expected)
        raise ArgumentError(
            f"the schedule returns {described(found)}{difference}, expected parameters with the "
            "structure of those that it gets"
        )
    leaves = []
    for (path, like), x in zip(expected, jax.tree.leaves(found)):
        name = f"the entry {jax.tree_util.keystr(path)} of the result of the schedule"
        if not arguments.is_array(x):
            raise ArgumentError(f"{name} is {described(x)}, expected an array")
        if jnp.shape(x) != jnp.shape(like):
            raise ArgumentError(f"{name} has shape {jnp.shape(x)}, expected {jnp.shape(like)}")
        dtype = jnp.result_type(like)
        if jnp.result_type(x) != dtype and not jnp.issubdtype(dtype, jnp.floating):
            raise ArgumentError(f"{name} has dtype {jnp.result_type(x)}, expected {dtype}")
        leaves.append(_typed(x, like))
    return jax.tree.unflatten(structure, leaves)


def with_types(params: Any, like: Any) -> Any:
    """The parameters with the types of other parameters, if they have the same structure.

    A float of Python, and an array that `jax.numpy.array` makes of it, are of weak types, for which
    JAX would compile another program than for other arrays.
    """
    if jax.tree.structure(params) != jax.tree.structure(like):
        return params
    return jax.tree.map(_typed, params, like)


def _typed(x: Any, like: Any) -> Any:
    """A value as an array of the dtype of `like`, unless the type of `like` is weak too."""
    floats = all(jnp.issubdtype(jnp.result_type(y), jnp.floating) for y in (x, like))
    if not floats or _is_weak(like) or (jnp.result_type(x) == like.dtype and not _is_weak(x)):
        return x
    return jax.device_put(np.asarray(x).astype(like.dtype))  # without a program


def _is_weak(x: Any) -> bool:
    return type(x) is float or getattr(x, "weak_type", False)


def _first_difference(found: Any, expected: list[tuple[Any, Any]]) -> str:
    """Words about the first entry that only one of two pytrees has."""
    given = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(found)]
    wanted = [jax.tree_util.keystr(path) for path, _ in expected]
    for name in wanted:
        if name not in given:
            return f" without the entry {name}"
    for name in given:
        if name not in wanted:
            return f" with the entry {name}"
    return ""
