"""First-order low-pass filters of commands: the activation dynamics of MuJoCo's actuators."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from ..errors import ArgumentError
from ..model import arguments
from ..model.joints_by_name import ranges


class Filter(eqx.Module):
    """First-order low-pass filters of n commands, as in actuators that respond with a lag.

    The state of a filter is its activation. Let T be the time constant and dt the time step. Then

        u = clip(command, command_range)
        next_activation = clip(activation + g (u - activation), activation_range)

    with `g = 1 - exp(-dt / T)` if the filter is exact, and `g = dt / T` else. The exact filter is
    the solution of `d activation / dt = (u - activation) / T` for a constant u. The other formula
    is the explicit Euler method, which is stable for `dt < 2 T`. The filtered command is
    `activation`, or `next_activation` if the filter is early.

    - `time_constant`: (n,) in s: 0 or more for an exact filter, else more than 0. A filter that is
      exact and early with the time constant 0 only clips. An infinite time constant keeps the
      activation constant;
    - `command_range`, `activation_range`: (n, 2), lower and upper bounds, by default infinite;
    - `exact` (default all True) and `early` (default all False): one bool per command. Both are
      static.

    `push` makes one time step. The filtered command is the control of the actuators:

        # as after a long constant control; MuJoCo itself starts with the activation 0
        activation = filters.init(control)
        activation, filtered = filters.push(activation, control, dt)  # once per time step
        tau = actuators(model, q, v, filtered)

    The derivative of a clipped value is zero. Raises ArgumentError for a wrong shape and for values
    out of their range. A traced time constant out of its range gives NaN. Source: MuJoCo, chapter
    "Computation", section "Actuation model": the dynamics "filter" and "filterexact".
    """

    time_constant: Float[arguments.Parameter, " n"]
    command_range: Float[arguments.Parameter, "n 2"]
    activation_range: Float[arguments.Parameter, "n 2"]
    exact: tuple[bool, ...] = eqx.field(static=True)
    early: tuple[bool, ...] = eqx.field(static=True)

    def __init__(
        self,
        time_constant: ArrayLike | Sequence[int | float],
        command_range: ArrayLike | Sequence | None = None,
        activation_range: ArrayLike | Sequence | None = None,
        exact: Sequence[bool] | None = None,
        early: Sequence[bool] | None = None,
    ):
        self.time_constant = arguments.parameter(time_constant, "time_constant", (None,))
        n = len(self.time_constant)
        self.exact = _flags(exact, "exact", n, True)
        self.early = _flags(early, "early", n, False)
        arguments.require(
            self.time_constant,
            lambda x: (x > 0) | ((x == 0) & np.array(self.exact, bool)),
            "time_constant",
            "0 or more for exact filters, and more than 0 for other filters",
        )
        self.command_range = ranges(command_range, "command_range", n)
        self.activation_range = ranges(activation_range, "activation_range", n)

    def init(self, command: ArrayLike) -> Float[Array, " n"]:
        """The activation (n,) of a command (n,) that has been constant for a long time.

        Raises ArgumentError if the command does not have the shape (n,) or a floating-point dtype.
        """
        command = self._floats(command, "command")
        return _clip(_clip(command, self.command_range), self.activation_range)

    def push(
        self, activation: ArrayLike, command: ArrayLike, dt: ArrayLike
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """The activation (n,) after a time step, and the filtered command (n,) of the step.

        `activation` (n,): before the step; `command` (n,): constant in the step; `dt`: the time
        step in s, more than 0. Raises ArgumentError if the activation or the command does not have
        the shape (n,) or a floating-point dtype, if their dtypes differ, and for a wrong time step.
        A traced time step of 0 or less gives NaN.
        """
        activation = self._floats(activation, "activation")
        command = self._floats(command, "command")
        if command.dtype != activation.dtype:
            raise ArgumentError(
                f"command has dtype {command.dtype}, expected the dtype of the activation, "
                f"{activation.dtype}"
            )
        if np.shape(dt) != ():
            raise ArgumentError(f"dt has shape {np.shape(dt)}, expected ()")
        return _push(self, activation, command, dt)

    def _floats(self, x: ArrayLike, name: str) -> Array:
        x, n = jnp.asarray(x), len(self.exact)
        if x.shape != (n,) or not jnp.issubdtype(x.dtype, jnp.floating):
            raise ArgumentError(
                f"{name} has shape {x.shape} and dtype {x.dtype}, expected {(n,)} of floats"
            )
        return x


@arguments.compiled(checks={"dt": arguments.POSITIVE})
def _push(
    filters: Filter, activation: Array, command: Array, dt: ArrayLike
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """The next activation and the filtered command; see `Filter.push`."""
    dt = arguments.POSITIVE.or_nan(jnp.asarray(dt, activation.dtype))
    T = jnp.asarray(filters.time_constant, activation.dtype)
    exact, early = np.array(filters.exact, bool), np.array(filters.early, bool)
    # For T = 0, dt / T is not computed but is the constant infinity, so the derivative with respect
    # to T is 0 and not NaN.
    ratio_at_zero = jnp.where((T == 0) & exact, jnp.inf, jnp.nan)
    ratio = jnp.where(T > 0, dt / jnp.where(T > 0, T, 1), ratio_at_zero)
    g = jnp.where(exact, -jnp.expm1(-ratio), ratio)
    u = _clip(command, filters.command_range)
    # This form gives exactly u for g = 1; `activation + g (u - activation)` would have a rounding
    # error.
    next_activation = _clip((1 - g) * activation + g * u, filters.activation_range)
    return next_activation, jnp.where(early, next_activation, activation)


def _clip(x: Array, bounds: arguments.Parameter) -> Array:
    low, high = jnp.asarray(bounds, x.dtype).T
    return jnp.clip(x, low, high)


def _flags(x: Sequence[bool] | None, name: str, n: int, default: bool) -> tuple[bool, ...]:
    flags = (default,) * n if x is None else tuple(map(bool, x))
    if len(flags) != n:
        raise ArgumentError(f"{name} is {x!r}, expected {n} values True or False")
    return flags
