"""Adam with a limit of the gradient, from optax."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ..errors import ArgumentError


class Update(NamedTuple):
    """Parameters and a state of the optimiser after a step, and the norm () of the gradient."""

    params: Any
    state: Any
    gradient_norm: Float[Array, ""]


class Adam(NamedTuple):
    """Adam with the rate that falls linearly from `rate` to `last_rate` over `updates` steps.

    A gradient whose norm is above `largest` is scaled to this norm.
    """

    rate: float
    last_rate: float
    updates: int
    largest: float = 1.0
    b1: float = 0.9
    b2: float = 0.999

    def init(self, params: Any) -> Any:
        """The state of the optimiser before the first step."""
        return self._chain().init(params)

    def step(self, gradient: Any, state: Any, params: Any) -> Update:
        """One step along the gradient of a loss."""
        optax = optax_module()
        norm = jnp.sqrt(sum(jnp.sum(x * x) for x in jax.tree.leaves(gradient)))
        with jax.numpy_dtype_promotion("standard"):  # optax multiplies floats with its counter
            changes, state = self._chain().update(gradient, state, params)
            return Update(optax.apply_updates(params, changes), state, norm)

    def _chain(self) -> Any:
        optax = optax_module()
        rate = optax.linear_schedule(self.rate, self.last_rate, max(self.updates, 1))
        return optax.chain(
            optax.clip_by_global_norm(self.largest), optax.adam(rate, b1=self.b1, b2=self.b2)
        )


def optax_module() -> Any:
    """The package optax. Raises ArgumentError, which names the extra, if it is not installed."""
    try:
        import optax
    except ImportError as error:
        raise ArgumentError(
            "jaxrbd.learning needs the package optax: pip install 'jaxrbd[learn]'"
        ) from error
    return optax
