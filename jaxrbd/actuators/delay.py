"""Delays of commands, from a buffer of past commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float, PyTree

from ..errors import ArgumentError
from ..model import arguments


class Delay(eqx.Module):
    """A delay of commands by a number of steps.

    - `lag`: (), the delay in steps, from 0 to `length`; or (n,), one lag for each entry of commands
      with the shape (n,). A delay of t seconds has the lag t / dt, where dt is the time between two
      commands. Between two commands the delay interpolates linearly, so the lag may be a fraction.
      The lag is a leaf: with `vmap` each environment has its own lag, and the lag may change from
      step to step;
    - `length`: the largest lag in steps, an int of 1 or more. It is static.

    A command is an array of floats or a pytree of arrays of floats, such as (position, velocity).
    `init` returns the past in which every command was `command`; `push` adds one command to the
    past and returns the delayed command:

        past = delay.init(command)
        past, delayed = delay.push(past, command)  # once per step

    The interpolation is entry by entry, so commands are joint positions, velocities or torques, but
    not quaternions. The derivative with respect to the lag is the difference between two successive
    commands; where the lag is an integer, it is the derivative towards larger lags (for the largest
    lag, towards smaller lags). Raises ArgumentError for a lag of another shape, and for a lag
    or a length out of its range. A traced lag out of its range gives NaN.
    """

    lag: Float[arguments.Parameter, "..."]
    length: int = eqx.field(static=True)

    def __init__(self, lag: ArrayLike | Sequence, length: int):
        arguments.require_counts(length=length)
        self.lag, self.length = arguments.parameter(lag, "lag", (), (None,)), int(length)
        expected = f"from 0 to the length {length}"
        arguments.require(self.lag, lambda x: (x >= 0) & (x <= length), "lag", expected)

    def init(self, command: PyTree) -> PyTree:
        """The past in which every command was `command`.

        The past has the structure of the command. Each array of shape s becomes an array
        (length + 1, *s) of commands, the newest first. Raises ArgumentError for a command with
        an array that is not of floats, or that does not have the shape of a lag (n,).
        """
        command = _arrays(command)
        for path, x in jax.tree_util.tree_leaves_with_path(command):
            if not jnp.issubdtype(x.dtype, jnp.floating):
                raise ArgumentError(f"{_leaf_name(path)} has dtype {x.dtype}, expected floats")
            self._require_shape_of_lag(path, x)
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (self.length + 1, *x.shape)), command)

    def push(self, past: PyTree, command: PyTree) -> tuple[PyTree, PyTree]:
        """The past with a new command, and the command of `lag` steps ago.

        `past`: a result of `init` or `push`; `command`: has the structure, shapes and dtypes of the
        command of `init`. With the lag 0, the delayed command is the new command. Raises
        ArgumentError for a command that does not match the past.
        """
        command = _arrays(command)
        if jax.tree.structure(past) != jax.tree.structure(command):
            raise ArgumentError(
                f"command is {jax.tree.structure(command)}, expected the structure of the past, "
                f"{jax.tree.structure(past)}"
            )
        leaves = jax.tree_util.tree_leaves_with_path(command)
        for (path, x), commands in zip(leaves, jax.tree.leaves(past)):
            self._require_shape_of_lag(path, x)
            expected = (self.length + 1, *x.shape), x.dtype
            if not isinstance(commands, Array | np.ndarray):
                raise ArgumentError(f"past has {commands!r}, expected a result of init or push")
            if (commands.shape, commands.dtype) != expected:
                raise ArgumentError(
                    f"{_leaf_name(path)} has shape {x.shape} and dtype {x.dtype}, expected one row "
                    f"of the past, which has shape {commands.shape} and dtype {commands.dtype} and "
                    f"{self.length + 1} rows"
                )
        return _push(self, past, command)

    def _require_shape_of_lag(self, path: Any, x: Array) -> None:
        lags = np.shape(self.lag)
        if lags not in ((), x.shape):
            raise ArgumentError(
                f"{_leaf_name(path)} has shape {x.shape}, expected {lags}, the shape of the lag"
            )


@jax.jit
def _push(delay: Delay, past: PyTree, command: PyTree) -> tuple[PyTree, PyTree]:
    past = jax.tree.map(lambda p, x: jnp.concatenate([x[None], p[:-1]]), past, command)

    def delayed(commands: Array) -> Array:
        lag = jnp.asarray(delay.lag, commands.dtype)
        lag = jnp.where((lag >= 0) & (lag <= delay.length), lag, jnp.nan)
        newer = jnp.clip(lag.astype(int), 0, delay.length - 1)
        if lag.ndim:
            pair = jnp.take_along_axis(commands, jnp.stack([newer, newer + 1]), axis=0)
        else:
            pair = lax.dynamic_slice_in_dim(commands, newer, 2)
        fraction = lag - newer.astype(lag.dtype)

        def weighted(weight, command):
            # A command that is infinite or NaN has no effect with the weight 0.
            unused = (weight == 0) & ~jnp.isfinite(command)
            return weight * jnp.where(unused, 0, command)

        return weighted(1 - fraction, pair[0]) + weighted(fraction, pair[1])

    return past, jax.tree.map(delayed, past)


def _arrays(command: PyTree) -> PyTree:
    """The command with arrays of JAX as leaves. Raises ArgumentError for other leaves, or none."""
    if not jax.tree.leaves(command):
        raise ArgumentError(f"command is {command!r}, expected an array or a pytree of arrays")
    return jax.tree_util.tree_map_with_path(
        lambda path, x: arguments.as_array(x, _leaf_name(path)), command
    )


def _leaf_name(path) -> str:
    return "command" + jax.tree_util.keystr(path)
