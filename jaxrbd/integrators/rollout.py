"""Many steps of time."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import PyTree

from ..errors import ArgumentError


def rollout(
    step: Callable[..., tuple], state: tuple, inputs: PyTree = None, steps: int | None = None
) -> tuple:
    """The states of many steps, the first included: each array has one more axis, the first.

    - `step(*state)` or, with inputs, `step(*state, row)` returns the next state: a closure over
      one of the integrators, the model and dt;
    - `state`: (q, v), (q, v, z), or whatever the step takes;
    - `inputs`: an array (n, ...) or a pytree of them, one row a step, such as the joint forces;
    - `steps`: their number, where there are no inputs.

    Reverse mode keeps the states alone and computes the inside of each step again, so its memory
    is that of the states. Raises ArgumentError unless exactly one of `inputs` and `steps` is given.
    """
    if (inputs is None) == (steps is None):
        raise ArgumentError("rollout takes either inputs, one row a step, or the number of steps")

    @jax.checkpoint
    def advance(state, row):
        state = step(*state) if inputs is None else step(*state, row)
        return state, state

    state = jax.tree.map(jnp.asarray, state)
    _, states = lax.scan(advance, state, inputs, length=steps)
    return jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), state, states)
