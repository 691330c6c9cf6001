"""Dynamics under explicit constraints: the configuration as a function of fewer coordinates."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from ..._math.linear import inverse_positive_definite, matmul
from ...algorithms.crba import crba
from ...algorithms.rnea import rnea
from ...configuration import difference
from ...model import Model, arguments


class ExplicitDynamics(NamedTuple):
    """Motion of a robot with the configuration `gamma(y)`, for n coordinates y.

    - `y_accel` (n,): the acceleration of y;
    - `q` (nq,), `v` (nv,), `a` (nv,): configuration, velocity and acceleration of the robot;
    - `G` (nv, n): the derivative of gamma, with `v = G dy/dt`;
    - `M` (n, n): the mass matrix in the coordinates y, `G^T H G`, with the mass matrix H of the
      robot;
    - `C` (n,): the bias force in the coordinates y, `G^T (bias + H g)`, with `g = dG/dt dy/dt` and
      the bias force of the robot.
    """

    y_accel: Float[Array, " n"]
    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    a: Float[Array, " nv"]
    G: Float[Array, "nv n"]
    M: Float[Array, "n n"]
    C: Float[Array, " n"]


def explicit_dynamics(
    model: Model,
    gamma: Callable[[Array], Array],
    y: Float[Array, " n"],
    y_dot: Float[Array, " n"],
    tau: ArrayLike,
    f_ext: ArrayLike | None = None,
) -> ExplicitDynamics:
    """Acceleration under the constraint `q = gamma(y)`, by projection on the coordinates y.

    - `gamma`: a smooth function from y (n,) to configurations (nq,), differentiated twice;
    - `y` (n,) and its rate `y_dot` (n,); `tau` (nv,), `f_ext` (nb, 6): as for `forward_dynamics`.

    With `a = G y_accel + g` the equations of motion become `M y_accel + C = G^T tau`, with the
    symbols of `ExplicitDynamics`. These equations do not contain the constraint forces, which do no
    work for velocities `G dy/dt`. The columns of G must be independent: else the acceleration of y
    is not unique, and the result is usually not finite. Raises ArgumentError for an argument of a
    wrong shape and for a `gamma` that is not a function. Source: Featherstone (3.18) to (3.21).
    """
    arguments.require_function(gamma, "gamma", "a function of y")
    y = arguments.array(model, y, "y", (jnp.size(y),), "n")
    y_dot = arguments.array(model, y_dot, "y_dot", y.shape, "n")
    tau = arguments.velocity(model, tau, "tau")
    q = arguments.configuration(model, gamma(y), "gamma(y)")

    def moved(dy):
        """The difference from q to gamma(y + dy).

        Its first and second time derivatives along y + t y_dot are v and g at t = 0.
        """
        return difference.unchecked(model, q, gamma(y + dy))

    def velocity(t):
        return jax.jvp(moved, (t * y_dot,), (y_dot,))[1]

    G = jax.jacfwd(moved)(jnp.zeros_like(y))
    one = jnp.ones((), model.dtype)
    v, g = jax.jvp(velocity, (jnp.zeros_like(one),), (one,))
    M = matmul(G.T, matmul(crba.unchecked(model, q), G))
    C = matmul(G.T, rnea(model, q, v, g, f_ext))
    y_accel = matmul(inverse_positive_definite((M + M.T) / 2), matmul(G.T, tau) - C)
    return ExplicitDynamics(y_accel, q, v, matmul(G, y_accel) + g, G, M, C)
