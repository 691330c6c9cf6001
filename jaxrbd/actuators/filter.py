"""Filters of commands: the activation dynamics of MuJoCo's actuators."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.clip import clip_within
from ..errors import ArgumentError, listed
from ..model import arguments
from ..model.joints_by_name import ranges
from .muscle import muscle_time_constants

EXACT, EXPLICIT, INTEGRATOR, MUSCLE = KINDS = ("exact", "explicit", "integrator", "muscle")


class Filter(eqx.Module):
    """Filters of n commands, as in actuators that respond gradually.

    The state of a filter is its activation a. Let T be the time constant, dt the time step, and

        u = clip(command, command_range)
        next_activation = clip(activation + change, activation_range).

    The kind of a filter selects the change:

    - "exact": `(1 - exp(-dt / T)) (u - a)`, the solution of `da/dt = (u - a) / T` for a constant u;
    - "explicit": `(u - a) dt / T`, the explicit Euler method, which is stable for `dt < 2 T`;
    - "integrator": `u dt / T`. In MuJoCo, T is 1 s;
    - "muscle": `(u - a) dt / T_a`, with u also clipped to [0, 1]. The function `activation_time`
      returns T_a, from T while the activation rises and from `release_time` while it falls.

    The filtered command is `activation`, or `next_activation` if the filter is early.

    - `time_constant`: (n,) in s: 0 or more for an exact filter, else more than 0, and finite for a
      muscle. A filter that is exact and early with the time constant 0 only clips. An infinite time
      constant keeps the activation constant;
    - `command_range`, `activation_range`: (n, 2), lower and upper bounds, by default infinite;
    - `kinds` (default all "exact") and `early` (default all False): one value per command. Both are
      static;
    - `release_time`: (n,) in s, more than 0, of muscles only, by default `time_constant`;
    - `smoothing`: (n,), 0 or more, of muscles only, by default 0: T_a changes smoothly between the
      values for rising and falling where `u - a` is between `-smoothing / 2` and `smoothing / 2`.

    `push` makes one time step. The filtered command is the control of the actuators:

        # start as after a long constant control; MuJoCo starts with the activation 0
        activation = filters.init(control)
        activation, filtered = filters.push(activation, control, dt)  # once per time step
        tau = actuators(model, q, v, filtered)

    The derivative of a clipped value is zero beyond its bounds, and one at a bound. Raises
    ArgumentError for a wrong shape and for values out of their range. A traced time
    constant out of its range gives NaN. Source: MuJoCo, chapter "Computation", section "Actuation
    model": the dynamics "filterexact", "filter", "integrator" and "muscle".
    """

    time_constant: Float[arguments.Parameter, " n"]
    command_range: Float[arguments.Parameter, "n 2"]
    activation_range: Float[arguments.Parameter, "n 2"]
    release_time: Float[arguments.Parameter, " n"]
    smoothing: Float[arguments.Parameter, " n"]
    kinds: tuple[str, ...] = eqx.field(static=True)
    early: tuple[bool, ...] = eqx.field(static=True)

    def __init__(
        self,
        time_constant: ArrayLike | Sequence[int | float],
        command_range: ArrayLike | Sequence | None = None,
        activation_range: ArrayLike | Sequence | None = None,
        kinds: Sequence[str] | None = None,
        early: Sequence[bool] | None = None,
        release_time: ArrayLike | Sequence[int | float] | None = None,
        smoothing: ArrayLike | Sequence[int | float] | None = None,
    ):
        self.time_constant = arguments.parameter(time_constant, "time_constant", (None,))
        n = len(self.time_constant)
        self.kinds = _checked_kinds(kinds, n)
        self.early = _flags(early, n)
        arguments.require(
            self.time_constant,
            lambda x: (x > 0) | ((x == 0) & self._have_kind(EXACT)),
            "time_constant",
            "0 or more for exact filters, and more than 0 for other filters",
        )
        self.command_range = ranges(command_range, "command_range", n)
        self.activation_range = ranges(activation_range, "activation_range", n)
        self.release_time, self.smoothing = self.time_constant, np.zeros(n)
        for name, given in (("release_time", release_time), ("smoothing", smoothing)):
            if given is not None and MUSCLE not in self.kinds:
                raise ArgumentError(
                    f"{name} is {given}, expected None, because no filter is a muscle"
                )
        if release_time is not None:
            self.release_time = arguments.parameter(release_time, "release_time", (n,))
        if smoothing is not None:
            self.smoothing = arguments.parameter(smoothing, "smoothing", (n,))
        no_muscle = ~self._have_kind(MUSCLE)
        for name, test, expected in (
            ("time_constant", np.isfinite, "finite for muscles"),
            (
                "release_time",
                lambda x: (x > 0) & np.isfinite(x),
                "finite, more than 0, for muscles",
            ),
            ("smoothing", lambda x: (x >= 0) & np.isfinite(x), "finite, 0 or more, for muscles"),
        ):
            arguments.require(
                getattr(self, name), lambda x, test=test: no_muscle | test(x), name, expected
            )

    @property
    def instant(self) -> Array | np.ndarray:
        """Whether each filter only clips its command, (n,)."""
        return self._have_kind(EXACT) & np.array(self.early, bool) & (self.time_constant == 0)

    def _have_kind(self, kind: str) -> np.ndarray:
        """Whether each filter is of a kind, (n,)."""
        return np.array([kind == x for x in self.kinds], bool)

    def init(self, command: ArrayLike) -> Float[Array, " n"]:
        """The activation (n,) that a constant command (n,) keeps constant.

        The activation of an integrator is 0, or the bound of its range nearest to 0. Raises
        ArgumentError if the command does not have the shape (n,) or a floating-point dtype.
        """
        command = self._floats(command, "command")
        u = jnp.where(self._have_kind(INTEGRATOR), 0, self._inputs(command))
        return _clip(u, self.activation_range)

    def _inputs(self, command: Array) -> Array:
        """The values u (n,) of the class: clipped commands."""
        u = _clip(command, self.command_range)
        if MUSCLE in self.kinds:
            u = jnp.where(self._have_kind(MUSCLE), clip_within(u, 0, 1), u)
        return u

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
        if dt is None or isinstance(dt, bool | np.bool_) or jnp.iscomplexobj(dt):
            raise ArgumentError(f"dt is {dt}, expected the time step in s")
        if np.shape(dt) != ():
            raise ArgumentError(f"dt has shape {np.shape(dt)}, expected ()")
        return _push(self, activation, command, dt)

    def _floats(self, x: ArrayLike, name: str) -> Array:
        return arguments.floats(x, name, (len(self.kinds),))


@arguments.compiled(checks={"dt": arguments.POSITIVE})
def _push(
    filters: Filter, activation: Array, command: Array, dt: ArrayLike
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """The next activation and the filtered command; see `Filter.push`."""
    dt = arguments.POSITIVE.or_nan(jnp.asarray(dt, activation.dtype))
    T = jnp.asarray(filters.time_constant, activation.dtype)
    exact, integrates, muscle = map(filters._have_kind, (EXACT, INTEGRATOR, MUSCLE))
    u = filters._inputs(command)
    if muscle.any():
        release, smoothing = (
            jnp.asarray(x, activation.dtype) for x in (filters.release_time, filters.smoothing)
        )
        T = jnp.where(muscle, muscle_time_constants(activation, u, T, release, smoothing), T)
    # For T = 0, dt / T is not computed but is the constant infinity, so the derivative with respect
    # to T is 0 and not NaN.
    ratio_at_zero = jnp.where((T == 0) & exact, jnp.inf, jnp.nan)
    ratio = jnp.where(T > 0, dt / jnp.where(T > 0, T, 1), ratio_at_zero)
    g = jnp.where(exact, -jnp.expm1(-ratio), ratio)
    # This form gives exactly u for g = 1; `activation + g (u - activation)` would have a rounding
    # error.
    kept = jnp.where(integrates, 1, 1 - g)
    next_activation = _clip(kept * activation + g * u, filters.activation_range)
    return next_activation, jnp.where(np.array(filters.early, bool), next_activation, activation)


def _clip(x: Array, bounds: arguments.Parameter) -> Array:
    low, high = jnp.asarray(bounds, x.dtype).T
    return clip_within(x, low, high)


def _checked_kinds(kinds: Sequence[str] | None, n: int) -> tuple[str, ...]:
    found = (EXACT,) * n if kinds is None else arguments.entries(kinds)
    if found is None or len(found) != n or not all(map(_is_kind, found)):
        raise ArgumentError(f"kinds is {kinds!r}, expected {n} of {listed(KINDS)}")
    return tuple(map(str, found))


def _is_kind(x: object) -> bool:
    return isinstance(x, str) and x in KINDS


def _flags(early: Sequence[bool] | None, n: int) -> tuple[bool, ...]:
    if early is None:
        return (False,) * n
    flags = arguments.entries(early)
    if flags is None or len(flags) != n or not all(isinstance(x, bool | np.bool_) for x in flags):
        raise ArgumentError(f"early is {early!r}, expected {n} values True or False")
    return tuple(map(bool, flags))
