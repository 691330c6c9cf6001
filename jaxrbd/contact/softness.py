"""Soft contacts and soft position limits, with the parameters and the equations of MuJoCo.

Let r be the distance minus the margin, divided by the length of the gradient of the distance. A
soft contact acts while r is negative. With the velocity u of its point before the step and the time
step dt, `contact_step` replaces the target velocity and the compliance R of `convex.py` by

    target = (1 - dt b) u - dt k d r n,        R = (1 - d) / d  times the inverse inertia,

where n is the normal, and the impedance d depends on r. With torsional or rolling friction, u also
has angular velocities (`ContactLaw` in `coulomb.py`), for which n is zero. With the time constant T
and the damping ratio z of `solref`, and with the second impedance d_w of `solimp`,

    b = 2 / (d_w T),        k = 1 / (d_w T z)^2.

The same equations hold for position limits with the rate of the joint. They are MuJoCo's reference
acceleration and regularisation (chapter "Computation" of its documentation), with the acceleration
written as the change of the velocity divided by dt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from ..errors import ArgumentError
from ..model import arguments

# MuJoCo replaces impedances outside of this interval by its ends.
LEAST_IMPEDANCE, MOST_IMPEDANCE = 1e-4, 0.9999


class Softness(eqx.Module):
    """How soft contacts or position limits are: `solref` and `solimp` of MuJoCo.

    - `solref` (2,) or (k, 2) for k contacts or joints: the time constant in s and the damping ratio
      of the error, both more than 0; or, both negative, minus the stiffness in 1/s^2 and minus the
      damping in 1/s;
    - `solimp` (5,) or (k, 5): the impedance at the depth 0 and at the depth `width`, `width` in m
      or rad, the midpoint (a fraction of the width) and the power of the curve between them. The
      impedances are from 0.0001 to 0.9999, the midpoint is more than 0 and less than 1, the width
      is 0 or more, and the power 1 or more.

    The defaults are those of MuJoCo. A time constant below 2 dt acts as 2 dt, as in MuJoCo. An
    impedance near 1 is nearly rigid.

    Raises ArgumentError for another shape and for values out of their ranges.
    """

    solref: Float[arguments.Parameter, "..."]
    solimp: Float[arguments.Parameter, "..."]

    def __init__(
        self,
        solref: ArrayLike | Sequence = (0.02, 1.0),
        solimp: ArrayLike | Sequence = (0.9, 0.95, 0.001, 0.5, 2.0),
    ):
        self.solref = arguments.parameter(solref, "solref", (2,), ("k", 2))
        self.solimp = arguments.parameter(solimp, "solimp", (5,), ("k", 5))
        arguments.require(self.solref, _valid_solref, "solref", _SOLREF)
        arguments.require(self.solimp, _valid_solimp, "solimp", _SOLIMP)

    def response(self, r: Float[Array, " k"], dt: Float[Array, ""], name: str) -> Response:
        """The parameters of k contacts or limits at the distances r from touching.

        `name`: of this object, for errors. Raises ArgumentError for another number of contacts.
        Traced values out of their ranges give NaN.
        """
        solref, solimp = (
            self._rows(x, f"{name}.{field}", len(r))
            for x, field in ((self.solref, "solref"), (self.solimp, "solimp"))
        )
        solref = jnp.where(_valid_solref(solref)[:, None], solref, jnp.nan)
        solimp = jnp.where(_valid_solimp(solimp)[:, None], solimp, jnp.nan)
        low, high, width, midpoint, power = solimp.T
        d = _impedance(jnp.abs(r), low, high, width, midpoint, power)
        direct = solref[:, 0] < 0
        time = jnp.where(direct, 1, jnp.maximum(solref[:, 0], 2 * dt))
        ratio = jnp.where(direct, 1, solref[:, 1])
        k = jnp.where(direct, -solref[:, 0], 1 / (time * ratio) ** 2) / high**2
        b = jnp.where(direct, -solref[:, 1], 2 / time) / high
        return Response(1 - dt * b, -dt * k * d * r, (1 - d) / d)

    @staticmethod
    def _rows(x: arguments.Parameter, name: str, size: int) -> Array:
        x = jnp.asarray(x)
        if x.ndim == 2 and len(x) != size:
            raise ArgumentError(
                f"{name} has shape {x.shape}, expected ({x.shape[-1]},) or ({size}, {x.shape[-1]})"
            )
        return jnp.broadcast_to(x, (size, x.shape[-1]))


class Response(NamedTuple):
    """The terms of the equations at the head of the module.

    - `kept` (k,): the factor `1 - dt b` of the velocity before the step;
    - `push` (k,): the velocity `-dt k d r` in m/s or rad/s, positive where r is negative;
    - `ratio` (k,): R divided by the inverse inertia.
    """

    kept: Float[Array, " k"]
    push: Float[Array, " k"]
    ratio: Float[Array, " k"]


def _impedance(
    depth: Array, low: Array, high: Array, width: Array, midpoint: Array, power: Array
) -> Array:
    """The impedance d at a depth of 0 or more: a curve of two powers from `low` to `high`.

    For a width of 0, d is the mean of `low` and `high`.
    """
    wide = width > 0
    x = jnp.where(wide, jnp.minimum(depth / jnp.where(wide, width, 1), 1), midpoint)
    rises = x <= midpoint
    base = jnp.where(rises, x / midpoint, (1 - x) / (1 - midpoint))
    # JAX's derivatives of a power of 0 can be NaN.
    positive = base > 0
    part = jnp.where(positive, jnp.where(positive, base, 1) ** power, 0)
    y = jnp.where(rises, midpoint * part, 1 - (1 - midpoint) * part)
    return low + jnp.where(wide, y, 0.5) * (high - low)


_SOLREF = "two numbers above 0 (time constant, damping ratio) or two negative numbers"
_SOLIMP = (
    f"two impedances from {LEAST_IMPEDANCE} to {MOST_IMPEDANCE}, a width of 0 or more, a midpoint "
    "between 0 and 1, and a power of 1 or more"
)


def _valid_solref(x: Any) -> Any:
    """Whether each row of an array (..., 2) is a valid `solref`."""
    first, second = x[..., 0], x[..., 1]
    finite = (abs(first) < np.inf) & (abs(second) < np.inf)
    return finite & (((first > 0) & (second > 0)) | ((first < 0) & (second < 0)))


def _valid_solimp(x: Any) -> Any:
    """Whether each row of an array (..., 5) is a valid `solimp`."""
    low, high, width, midpoint, power = (x[..., i] for i in range(5))
    rigid = MOST_IMPEDANCE
    impedances = (low >= LEAST_IMPEDANCE) & (low <= rigid)
    impedances = impedances & (high >= LEAST_IMPEDANCE) & (high <= rigid)
    curve = (midpoint > 0) & (midpoint < 1) & (power >= 1) & (power < np.inf)
    return impedances & curve & (width >= 0) & (width < np.inf)
