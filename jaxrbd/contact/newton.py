"""Newton's method for the convex function of a contact step.

The unknown x (nv,) is the change of the velocity in coordinates in which the mass matrix is the
identity. With the inverse factor W of M, `W M W^T = 1`, the velocity after the step is
`v + W^T x`. The function is

    |x|^2 / 2 - push . x + sum over contacts of l(u),     u = u_0 + rows x,

where `push = dt W (tau - bias)` is x without contact, u_0 are the velocities of the contact points
before the step, and `rows = J W^T`. The square |x|^2 is twice the kinetic energy of the change.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from .._math.linear import inverse_factor, matmul
from .coulomb import ContactLaw

TOLERANCE = 1000
MAX_STEPS = 50
HALVINGS = 12


class Minimum(NamedTuple):
    """The minimizing x (nv,), and the residual of `ContactStep`."""

    x: Float[Array, " nv"]
    residual: Float[Array, ""]


def minimise(
    law: ContactLaw,
    rows: Float[Array, "n 3 nv"],
    u_0: Float[Array, "n 3"],
    push: Float[Array, " nv"],
    energy: Float[Array, ""],
) -> Minimum:
    """The minimum of the function at the head of the module, from `x = push`.

    `energy` (): the kinetic energy before the step, a scale for rounding errors. Each step is
    halved until the function decreases by enough.
    """
    eps = float(jnp.finfo(push.dtype).eps)
    tiny = float(jnp.finfo(push.dtype).tiny)
    stacked = rows.reshape(-1, len(push))
    # The first fraction, zero, gives the value before the step.
    fractions = jnp.asarray([0, *(0.5 ** np.arange(HALVINGS))], push.dtype)

    def unfinished(state):
        count, solution = state
        return (count < MAX_STEPS) & (solution.residual > TOLERANCE * eps)

    def newton(state):
        count, (x, _) = state
        u = (u_0.ravel() + matmul(stacked, x)).reshape(-1, 3)
        gradient = x - push - matmul(law.impulses(u).ravel(), stacked)
        W = hessian_factor(law, rows, u)
        descent = matmul(W, -gradient)
        step = matmul(descent, W)
        du = matmul(stacked, step).reshape(-1, 3)
        products = [descent * descent, step * (x - push), step * step / 2, x * x]
        decrement, linear, quadratic, square = jnp.sum(jnp.stack(products), axis=1)
        penalty = law.penalty(u + fractions[:, None, None] * du)
        growth = fractions * linear + fractions**2 * quadratic + (penalty - penalty[0])
        # Near the minimum the growth is below rounding errors. The last term then accepts the whole
        # step.
        scale = square + 2 * energy
        enough = growth <= -0.1 * fractions * decrement + 10 * eps * scale
        x = x + jnp.max(jnp.where(enough, fractions, fractions[-1])) * step
        residual = jnp.sqrt(decrement / jnp.maximum(scale, tiny))
        return count + 1, Minimum(x, residual)

    start = Minimum(push, jnp.full((), jnp.inf, push.dtype))
    return lax.while_loop(unfinished, newton, (jnp.zeros((), int), start))[1]


def hessian_factor(
    law: ContactLaw, rows: Float[Array, "n 3 nv"], u: Float[Array, "n 3"]
) -> Float[Array, "nv nv"]:
    """The inverse factor of the Hessian of the function at the velocities u of the points."""
    nv = rows.shape[-1]
    stiff = law.hessian_product(u, rows).reshape(-1, nv)
    one = jnp.asarray(np.eye(nv), rows.dtype)
    return inverse_factor(one + matmul(rows.reshape(-1, nv).T, stiff))
