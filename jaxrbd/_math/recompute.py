"""Reverse mode that stores few arrays: the other arrays are computed again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import jax
from jax.ad_checkpoint import checkpoint_name

_STORED = "stored for reverse mode"

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable)


def stored(arrays: T) -> T:
    """The arrays of a pytree. Reverse mode of a function by `recompute` stores them."""
    return checkpoint_name(arrays, _STORED)


def recompute(function: Function) -> Function:
    """The function. Its reverse mode stores only the arguments and the results of `stored`.

    The backward pass computes all other arrays again. In a loop, this saves memory and kernels: a
    loop writes each array that it stores by a kernel of its own. Outside of loops, XLA finds most
    of the arrays that are computed twice, and computes them once.
    """
    policy = jax.checkpoint_policies.save_only_these_names(_STORED)
    return cast(Function, jax.checkpoint(function, prevent_cse=False, policy=policy))
