"""The errors of sensors."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, PRNGKeyArray

from ..errors import ArgumentError
from ..model import arguments


class Noise(eqx.Module):
    """The errors of a sensor: a bias, white noise and quantisation.

    - `std`: standard deviation of the white noise, 0 or more (default 0);
    - `bias`: a constant error (default 0);
    - `resolution`: the difference between two successive values that the sensor can return, more
      than 0, or None for a sensor without quantisation (default).

    Each field is () for all values of the sensor, or has the shape of the measured array, in the
    units of the sensor. All fields are leaves, so a batch of `Noise` gives each environment its own
    bias under `vmap`.
    Raises ArgumentError for a parameter that is not finite, a negative standard deviation and a
    resolution that is not positive. Only shapes and dtypes of traced parameters are checked: a
    negative standard deviation or resolution has the distribution of its absolute value, and the
    resolution 0 gives NaN.
    """

    std: Float[arguments.Parameter, "..."]
    bias: Float[arguments.Parameter, "..."]
    resolution: Float[arguments.Parameter, "..."] | None

    def __init__(
        self,
        std: ArrayLike | Sequence = 0.0,
        bias: ArrayLike | Sequence = 0.0,
        resolution: ArrayLike | Sequence | None = None,
    ):
        self.std = arguments.parameter(std, "std")
        self.bias = arguments.parameter(bias, "bias")
        self.resolution = None
        arguments.require_not_negative(self.std, "std")
        arguments.require(self.bias, np.isfinite, "bias", "finite")
        if resolution is not None:
            step = arguments.parameter(resolution, "resolution")
            arguments.require(
                step, lambda x: (x > 0) & np.isfinite(x), "resolution", "finite, more than 0"
            )
            self.resolution = step

    def __call__(self, key: PRNGKeyArray, x: ArrayLike) -> Float[Array, "..."]:
        """The measured values for the exact values x, with the shape of x.

        `key`: a key of `jax.random`, another one for each measurement. The result is
        `x + bias + std n`, rounded to the nearest multiple of the resolution, if there is one. Here
        n is normal with unit variance and independent for each entry of x. With a resolution, the
        derivative with respect to x is zero. Raises ArgumentError if x does not consist of floats,
        and if a field has neither the shape () nor the shape of x. Traced values of x are not
        checked: NaN stays NaN.
        """
        return _measured(self, arguments.typed_keys(key, "key", 0), arguments.as_array(x, "x"))


@jax.jit
def _measured(noise: Noise, key: PRNGKeyArray, x: Array) -> Float[Array, "..."]:
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise ArgumentError(f"x has dtype {x.dtype}, expected floats")

    def field(name: str) -> Array:
        value = jnp.asarray(getattr(noise, name), x.dtype)
        if value.shape not in ((), x.shape):
            raise ArgumentError(f"{name} has shape {value.shape}, expected () or {x.shape} as x")
        return value

    noisy = x + field("bias") + field("std") * jax.random.normal(key, x.shape, x.dtype)
    if noise.resolution is None:
        return noisy
    step = field("resolution")
    return step * jnp.round(noisy / step)
