"""Newton's method for the convex function of a contact step.

The unknown x (nv,) is the change of the velocity in coordinates in which the mass matrix is the
identity. With the inverse factor W of M, `W M W^T = 1`, the velocity after the step is
`v + W^T x`. The function is

    |x|^2 / 2 - push . x + sum over all laws of l(u),     u = u_0 + rows x,

where `push = dt W (tau - bias)` is x without impulses, u_0 are velocities before the step, such as
the velocities of contact points, and `rows = J W^T` with the Jacobian J of u. The square |x|^2 is
twice the kinetic energy of the change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from .._math.linear import inverse_factor, matmul
from .coulomb import ContactLaw
from .joint_terms import ClippedLaw

TOLERANCE = 1000
MAX_STEPS = 50
HALVINGS = 12


# A convex function of velocities u, and the impulses that are its negative gradient. Both classes
# have a property `shape`, the shape of u, and the methods `impulses`, `penalty`, `hessian_product`.
Law = ContactLaw | ClippedLaw


class Term(NamedTuple):
    """A law, the rows of its velocities (..., nv), and the velocities before the step."""

    law: Law
    rows: Float[Array, "... nv"]
    u_0: Float[Array, "..."]


class Minimum(NamedTuple):
    """The minimizing x (nv,), and the residual of `ContactStep`."""

    x: Float[Array, " nv"]
    residual: Float[Array, ""]


def minimise(terms: Sequence[Term], push: Float[Array, " nv"], energy: Float[Array, ""]) -> Minimum:
    """The minimum of the function at the head of the module, from `x = push`.

    `energy` (): the kinetic energy before the step, a scale for rounding errors. Each step is
    halved until the function decreases by enough.
    """
    eps = float(jnp.finfo(push.dtype).eps)
    tiny = float(jnp.finfo(push.dtype).tiny)
    stacked = stacked_rows(terms)
    u_0 = jnp.concatenate([term.u_0.ravel() for term in terms])
    # The first fraction, zero, gives the value before the step.
    fractions = jnp.asarray([0, *(0.5 ** np.arange(HALVINGS))], push.dtype)

    def unfinished(state):
        count, solution = state
        return (count < MAX_STEPS) & (solution.residual > TOLERANCE * eps)

    def newton(state):
        count, (x, _) = state
        u = u_0 + matmul(stacked, x)
        impulses = [law.impulses(part).ravel() for law, part in _parts(terms, u)]
        gradient = x - push - matmul(jnp.concatenate(impulses), stacked)
        W = hessian_factor(terms, stacked, u)
        descent = matmul(W, -gradient)
        step = matmul(descent, W)
        du = matmul(stacked, step)
        products = [descent * descent, step * (x - push), step * step / 2, x * x]
        decrement, linear, quadratic, square = jnp.sum(jnp.stack(products), axis=1)
        trials = u + fractions[:, None] * du
        penalties = [law.penalty(part) for law, part in _parts(terms, trials)]
        penalty = sum(penalties, start=jnp.zeros_like(fractions))
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


def stacked_rows(terms: Sequence[Term]) -> Float[Array, "m nv"]:
    """The rows of all terms, below each other."""
    return jnp.concatenate([term.rows.reshape(-1, term.rows.shape[-1]) for term in terms])


def hessian_factor(
    terms: Sequence[Term], stacked: Float[Array, "m nv"], u: Float[Array, " m"]
) -> Float[Array, "nv nv"]:
    """The inverse factor of the Hessian of the function, for all velocities u."""
    nv = stacked.shape[-1]
    stiff = [
        term.law.hessian_product(part, term.rows).reshape(-1, nv)
        for term, (_, part) in zip(terms, _parts(terms, u))
    ]
    one = jnp.asarray(np.eye(nv), stacked.dtype)
    return inverse_factor(one + matmul(stacked.T, jnp.concatenate(stiff)))


def _parts(terms: Sequence[Term], u: Float[Array, "... m"]) -> list[tuple[Law, Array]]:
    """The laws, each with the part of u (..., m) that belongs to the law."""
    ends = np.cumsum([term.u_0.size for term in terms])[:-1]
    parts = jnp.split(u, ends, axis=-1)
    return [(t.law, x.reshape(*u.shape[:-1], *t.law.shape)) for t, x in zip(terms, parts)]
