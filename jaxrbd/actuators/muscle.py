"""Forces of muscles: how they depend on the length, on its rate and on the activation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.clip import clip_within
from ..errors import ArgumentError
from ..model import arguments
from ..model.joints_by_name import parameters, ranges


class MuscleForces(NamedTuple):
    """The force `gain a + bias` of n muscles in N, for the activations a; (n,) each."""

    gain: Float[Array, " n"]
    bias: Float[Array, " n"]


class Muscles(eqx.Module):
    """n muscles with their tendons, as in MuJoCo.

    A muscle has the length l in m and the rate dl in m/s, including its tendon, whose length does
    not change. The indices 0 and 1 mean the lower and the upper value of a range. With the optimal
    length L0 of the muscle without its tendon, its scaled length and rate are

        L0 = (length_range_1 - length_range_0) / (scaled_range_1 - scaled_range_0)
        L = scaled_range_0 + (l - length_range_0) / L0
        V = dl / (L0 largest_speed).

    With the activation a, from 0 to 1, the force is

        f = -peak_force (a active(L) velocity(V) + passive(L)).

    It is negative: a muscle pulls. The three curves consist of parabolas and lines. Their first
    derivatives are continuous, except for `velocity` at V = 0 with an `eccentric_peak` of 1:

    - `active` is 1 at L = 1, and 0 outside of `active_range`;
    - `velocity` is 0 for V of -1 or less, 1 at V = 0, and `eccentric_peak` for V of
      `eccentric_peak - 1` or more;
    - `passive` is 0 for x of 0 or less, `passive_peak x^2 / 2` up to x = 1, and
      `passive_peak (x - 1/2)` beyond, with `x = 2 (L - 1) / (active_range_1 - 1)`.

    The parameters:

    - `peak_force` (n,) in N, 0 or more. A muscle with the peak force 0 has no force;
    - `length_range` (n, 2) in m: the least and the largest length of the muscle with its tendon;
    - `scaled_range` (n, 2): the scaled lengths L at the ends of `length_range`, by default 0.75 and
      1.05;
    - `active_range` (n, 2): the scaled lengths, below 1 and above 1, between which the muscle can
      be active, by default 0.5 and 1.6;
    - `largest_speed` (n,) in 1/s, more than 0, by default 1.5: the speed -dl / L0 from which on the
      active force is 0;
    - `passive_peak` (n,), 0 or more, by default 1.3;
    - `eccentric_peak` (n,), 1 or more, by default 1.2.

    A `Filter` of the kind "muscle" returns the activations for given excitations. Raises
    ArgumentError for a wrong shape and a value out of its range. Source: MuJoCo, chapter
    "Modeling", section "Muscle actuators".
    """

    peak_force: Float[arguments.Parameter, " n"]
    length_range: Float[arguments.Parameter, "n 2"]
    scaled_range: Float[arguments.Parameter, "n 2"]
    active_range: Float[arguments.Parameter, "n 2"]
    largest_speed: Float[arguments.Parameter, " n"]
    passive_peak: Float[arguments.Parameter, " n"]
    eccentric_peak: Float[arguments.Parameter, " n"]

    def __init__(
        self,
        peak_force: ArrayLike | Sequence,
        length_range: ArrayLike | Sequence,
        scaled_range: ArrayLike | Sequence | None = None,
        active_range: ArrayLike | Sequence | None = None,
        largest_speed: ArrayLike | Sequence | None = None,
        passive_peak: ArrayLike | Sequence | None = None,
        eccentric_peak: ArrayLike | Sequence | None = None,
    ):
        self.peak_force = arguments.parameter(peak_force, "peak_force", (None,))
        n = len(self.peak_force)
        self.length_range = ranges(length_range, "length_range", n)
        if scaled_range is None:
            scaled_range = np.tile([0.75, 1.05], (n, 1))
        if active_range is None:
            active_range = np.tile([0.5, 1.6], (n, 1))
        self.scaled_range = ranges(scaled_range, "scaled_range", n)
        self.active_range = ranges(active_range, "active_range", n)
        self.largest_speed = parameters(largest_speed, "largest_speed", np.full(n, 1.5))
        self.passive_peak = parameters(passive_peak, "passive_peak", np.full(n, 1.3))
        self.eccentric_peak = parameters(eccentric_peak, "eccentric_peak", np.full(n, 1.2))
        for name, least in (("peak_force", 0), ("passive_peak", 0), ("eccentric_peak", 1)):
            arguments.require(
                getattr(self, name),
                lambda x, least=least: (x >= least) & np.isfinite(x),
                name,
                f"finite, {least} or more",
            )
        arguments.require(
            self.largest_speed,
            lambda x: (x > 0) & np.isfinite(x),
            "largest_speed",
            "finite, more than 0",
        )
        for name in ("length_range", "scaled_range"):
            arguments.require(
                getattr(self, name),
                lambda x: np.isfinite(x).all(1) & (x[:, 0] < x[:, 1]),
                name,
                "finite, the second value above the first",
            )
        arguments.require(
            self.active_range,
            lambda x: np.isfinite(x).all(1) & (x[:, 0] < 1) & (x[:, 1] > 1),
            "active_range",
            "finite, the first value below 1 and the second above 1",
        )

    def forces(self, length: ArrayLike, rate: ArrayLike) -> MuscleForces:
        """The gain and the bias (n,) of the forces in N, for lengths (n,) in m and rates in m/s.

        The force for the activation a is `gain a + bias`. Raises ArgumentError for an object that
        is no array, another shape than (n,), a dtype other than float, and different dtypes.
        """
        shape = np.shape(self.peak_force)
        length = arguments.floats(length, "length", shape)
        rate = arguments.floats(rate, "rate", shape)
        if length.dtype != rate.dtype:
            raise ArgumentError(
                f"rate has dtype {rate.dtype}, expected the dtype of length, {length.dtype}"
            )
        return muscle_forces(self, length, rate)


def muscle_forces(muscles: Muscles, length: Array, rate: Array) -> MuscleForces:
    """As `Muscles.forces`, for arrays that are already checked."""
    dtype = length.dtype
    peak, speed, passive_peak, eccentric_peak = (
        jnp.asarray(x, dtype)
        for x in (
            muscles.peak_force,
            muscles.largest_speed,
            muscles.passive_peak,
            muscles.eccentric_peak,
        )
    )
    (least, largest), (low, high), (short, long) = (
        jnp.asarray(x, dtype).T
        for x in (muscles.length_range, muscles.scaled_range, muscles.active_range)
    )
    optimal = (largest - least) / (high - low)
    L = low + (length - least) / optimal
    V = rate / (optimal * speed)
    # Below and above L = 1, the curve is `_step` of a variable that is 0 at the end of the active
    # range and 1 at L = 1.
    active = _step(jnp.where(L < 1, (L - short) / (1 - short), (long - L) / (long - 1)))
    above = eccentric_peak - 1
    eccentric = above > 0
    shortfall = jnp.clip(above - V, 0, None)
    lengthening = eccentric_peak - shortfall * shortfall / jnp.where(eccentric, above, 1)
    shortening = jnp.square(jnp.clip(V + 1, 0, None))
    velocity = jnp.where(V < 0, shortening, jnp.where(eccentric, lengthening, eccentric_peak))
    x = jnp.clip(2 * (L - 1) / (long - 1), 0, None)
    passive = passive_peak * jnp.where(x < 1, x * x / 2, x - 1 / 2)
    return MuscleForces(-peak * active * velocity, -peak * passive)


def activation_time(
    activation: ArrayLike, excitation: ArrayLike, rise: ArrayLike, fall: ArrayLike, width: ArrayLike
) -> Float[Array, " n"]:
    """The time constants (n,) in s of the activations of muscles.

    The activation a of a muscle follows its excitation u by `da/dt = (u - a) / time`. For a between
    0 and 1, the time is `rise (0.5 + 1.5 a)` if a increases, and `fall / (0.5 + 1.5 a)` if it
    decreases. For differences u - a from -`width`/2 to `width`/2, the time changes smoothly between
    these two values.

    `activation`, `excitation` (n,); `rise`, `fall` (n,) in s, finite, more than 0; `width` (n,), 0
    or more. Raises ArgumentError for different shapes, a dtype other than float, and a known value
    out of its range.
    Source: Millard, Uchida, Seth and Delp, "Flexing computational muscle: modeling and simulation
    of musculotendon dynamics", 2013; the smooth change: MuJoCo, chapter "Modeling",
    section "Muscle actuators".
    """
    shape = arguments.as_array(activation, "activation").shape
    given = {"activation": activation, "excitation": excitation}
    given |= {"rise": rise, "fall": fall, "width": width}
    checked = [arguments.floats(x, name, shape) for name, x in given.items()]
    for name, x in (("rise", checked[2]), ("fall", checked[3])):
        arguments.require(x, lambda x: (x > 0) & (x < np.inf), name, "finite, more than 0")
    arguments.require(checked[4], lambda x: x >= 0, "width", "0 or more")
    return muscle_time_constants(*checked)


def muscle_time_constants(
    activation: Array, excitation: Array, rise: Array, fall: Array, width: Array
) -> Array:
    """As `activation_time`, for arrays that are already checked."""
    scale = 0.5 + 1.5 * clip_within(activation, 0, 1)
    rise, fall = rise * scale, fall / scale
    difference = excitation - activation
    smooth = width > 0
    part = jnp.clip(difference / jnp.where(smooth, width, 1) + 0.5, 0, 1)
    blend = part * part * part * (part * (6 * part - 15) + 10)
    share = jnp.where(smooth, blend, jnp.where(difference > 0, 1.0, 0.0).astype(part.dtype))
    return fall + (rise - fall) * share


def _step(x: Array) -> Array:
    """0 for x of 0 or less, 1 for x of 1 or more, and two parabolas that meet at 1/2 between."""
    x = jnp.clip(x, 0, 1)
    return jnp.where(x < 0.5, 2 * x * x, 1 - 2 * (1 - x) * (1 - x))
