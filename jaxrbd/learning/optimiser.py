"""Adam with a limit of the gradient, from optax; limits of the gradients of single rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int

from ..errors import ArgumentError, installation


class Update(NamedTuple):
    """Parameters and a state of the optimiser after a step, and the norm () of the gradient."""

    params: Any
    state: Any
    gradient_norm: Float[Array, ""]


class Adam(NamedTuple):
    """Adam with a learning rate that falls linearly to the last one over `updates` steps.

    A gradient whose norm is above `largest` is scaled to the norm `largest`.
    """

    learning_rate: float
    last_learning_rate: float
    updates: int
    largest: float = 1.0
    b1: float = 0.9
    b2: float = 0.999

    def init(self, params: Any) -> Any:
        """The state of the optimiser before the first step."""
        return self._chain().init(params)

    def step(self, gradient: Any, state: Any, params: Any) -> Update:
        """One step that reduces a loss with this gradient."""
        optax = optax_module()
        norm = jnp.sqrt(sum(jnp.sum(x * x) for x in jax.tree.leaves(gradient)))
        with jax.numpy_dtype_promotion("standard"):  # optax multiplies floats with its counter
            changes, state = self._chain().update(gradient, state, params)
            return Update(optax.apply_updates(params, changes), state, norm)

    def fit(
        self, loss: Callable[[Any, Array], Array], params: Any, state: Any, rows: Int[Array, "m k"]
    ) -> tuple[tuple[Any, Any], tuple[Float[Array, " m"], Float[Array, " m"]]]:
        """One step per row that reduces `loss(params, row)`.

        Returns the parameters and the state of the optimiser after the steps, and for each step the
        loss and the norm of the gradient.
        """

        def step(carry: tuple, row: Array) -> tuple[tuple, tuple[Array, Array]]:
            params, state = carry
            cost, gradient = jax.value_and_grad(loss)(params, row)
            update = self.step(gradient, state, params)
            return (update.params, update.state), (cost, update.gradient_norm)

        return lax.scan(step, (params, state), rows)

    def progress(self, state: Any) -> Float[Array, ""]:
        """The share of the steps up to now among all `updates` steps, at most 1."""
        _, (adam, *_) = state
        dtype = jax.tree.leaves(adam.mu)[0].dtype
        return jnp.minimum(adam.count.astype(dtype) / max(self.updates, 1), 1)

    def _chain(self) -> Any:
        """The transformation of optax: the limit of the gradient, then Adam."""
        optax = optax_module()
        most = np.iinfo(jnp.result_type(int)).max
        if self.updates > most:
            raise ArgumentError(
                f"updates lead to {self.updates} steps of Adam, expected at most {most}"
            )
        rates = self.learning_rate, self.last_learning_rate
        rate = optax.linear_schedule(*rates, max(self.updates, 1))
        return optax.chain(
            optax.clip_by_global_norm(self.largest), optax.adam(rate, b1=self.b1, b2=self.b2)
        )


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def with_limited_gradient(x: Float[Array, "n k"], largest: float) -> Float[Array, "n k"]:
    """The array x, with a limit in reverse mode.

    A row of the gradient whose norm is above `largest` is scaled to the norm `largest`.
    """
    return x


def _forward(x: Array, largest: float) -> tuple[Array, None]:
    return x, None


def _backward(largest: float, _: None, gradient: Array) -> tuple[Array]:
    norm = jnp.linalg.norm(gradient, axis=-1, keepdims=True)
    return (gradient * jnp.minimum(1, largest / norm),)  # where the norm is 0, the quotient is inf


with_limited_gradient.defvjp(_forward, _backward)


def optax_module() -> Any:
    """The package optax. Raises ArgumentError if it is not installed."""
    try:
        import optax
    except ImportError as error:
        raise ArgumentError(
            f"jaxrbd.learning needs the package optax: {installation('learn')}"
        ) from error
    return optax
