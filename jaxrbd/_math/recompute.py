"""Reverse mode that stores few arrays: the other arrays are computed again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import jax
from jax.ad_checkpoint import checkpoint_name

SOLUTIONS = "solutions of iterations, rates of stages"
WORLD_POSES = "world poses"

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable)


def stored(arrays: T, name: str = SOLUTIONS) -> T:
    """The arrays of a pytree, with a `name` by which `recompute` selects arrays to store."""
    return checkpoint_name(arrays, name)


def recompute(function: Function, *names: str) -> Function:
    """The function, with a reverse mode that stores few arrays.

    It stores the arguments, and the arrays to which `stored` gave the name `SOLUTIONS` or one of
    `names`. The backward pass computes all other arrays again. In a loop, this saves memory and
    kernels: a loop writes each array that it stores by a separate kernel. Outside of loops, XLA
    finds most of the arrays that are computed twice, and computes them once.
    """
    policy = jax.checkpoint_policies.save_only_these_names(SOLUTIONS, *names)
    return cast(Function, jax.checkpoint(function, prevent_cse=False, policy=policy))
