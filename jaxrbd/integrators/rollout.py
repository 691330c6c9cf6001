"""Rollouts: many time steps."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import PyTree

from .._math.recompute import recompute
from ..errors import ArgumentError
from ..model import arguments
from ..model.names import described


def rollout(
    step: Callable[..., tuple], state: tuple, inputs: PyTree = None, steps: int | None = None
) -> tuple:
    """The initial state and the states after each of n steps.

    Each array of the state gets a new first axis of size n + 1.

    - `step(*state)` or, with inputs, `step(*state, row)` returns the next state. `step` is usually
      a closure over an integrator, the model and dt;
    - `state`: the initial state, (q, v), (q, v, z), or any other tuple that `step` accepts;
    - `inputs`: an array (n, ...) or a pytree of arrays, one row per step, such as joint forces;
    - `steps`: the number n of steps, if there are no inputs.

    Reverse-mode differentiation stores only the states, the rates of the four stages of
    `runge_kutta_munthe_kaas`, and the solutions of `contact_step`. It computes the other arrays of
    each step again. Raises ArgumentError unless exactly one of `inputs` and `steps` is given, for
    inputs without an axis of rows or with different numbers of rows, for steps that are no integer
    of 0 or more, for a `step` that is no function or returns another structure than the
    state, and for a state that is no tuple.
    """
    arguments.require_function(step, "step", "a function that makes one step")
    if not isinstance(state, tuple):
        raise ArgumentError(f"state is {described(state)}, expected a tuple such as (q, v)")
    if (inputs is None) == (steps is None):
        raise ArgumentError(
            "rollout takes either inputs (one row per step) or steps (the number of steps)"
        )

    if steps is not None:
        arguments.require_counts(least=0, steps=steps)

    @recompute
    def advance(state, row):
        found = step(*state) if inputs is None else step(*state, row)
        if jax.tree.structure(found) != jax.tree.structure(state):
            raise ArgumentError(
                f"step returned {jax.tree.structure(found)}, expected the structure of the state, "
                f"{jax.tree.structure(state)}"
            )
        return found, found

    shapes = [np.shape(x) for x in jax.tree.leaves(inputs)]
    if steps is None and (len({shape[:1] for shape in shapes}) != 1 or () in shapes):
        raise ArgumentError(
            f"inputs has the shapes {shapes}, expected arrays with one row per step, and the same "
            "number of rows in each array"
        )
    state = jax.tree.map(jnp.asarray, state)
    _, states = lax.scan(advance, state, inputs, length=steps)
    return jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), state, states)
