"""Newton's method for the convex function of a contact step.

The unknown x (nv,) is the change of the velocity in the step. The function is

    x . M x / 2 - push . x + sum over all laws of l(u),     u = u_0 + J x.

M is the mass matrix, and `push = dt (tau - bias)` is the impulse of all forces that no law
describes. u_0 are velocities before the step, such as the velocities of contact points, and J is
their Jacobian. The product `x . M x` is twice the kinetic energy of the change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from .._math.linear import inverse_factor, matmul, solve_positive_definite
from .coulomb import ContactLaw
from .joint_terms import ClippedLaw

TOLERANCE = 1000
MAX_STEPS = 50
HALVINGS = 12


# A convex function of velocities u, and the impulses that are its negative gradient. Both classes
# have a property `shape`, the shape of u, and the methods `impulses`, `penalty`, `hessian_product`.
Law = ContactLaw | ClippedLaw


class Term(NamedTuple):
    """A law, the velocities u_0 before the step, and their Jacobian J (..., nv).

    J is None if u are the velocities v of the robot.
    """

    law: Law
    u_0: Float[Array, "..."]
    J: Float[Array, "... nv"] | None

    def change(self, x: Float[Array, " nv"]) -> Float[Array, "..."]:
        """`J x`, the change of u."""
        return x if self.J is None else matmul(_matrix(self.J), x).reshape(self.u_0.shape)

    def force(self, impulses: Float[Array, "..."]) -> Float[Array, " nv"]:
        """`J^T impulses`, the generalized impulse."""
        return impulses if self.J is None else matmul(impulses.ravel(), _matrix(self.J))

    def hessian(self, u: Float[Array, "..."]) -> Float[Array, "nv nv"]:
        """The Hessian of l(u) in x, (nv, nv)."""
        if self.J is None:
            return self.law.hessian_product(u, jnp.asarray(np.eye(len(u)), u.dtype))
        return matmul(_matrix(self.J).T, _matrix(self.law.hessian_product(u, self.J)))


class Minimum(NamedTuple):
    """The minimizing x (nv,), and the residual of `ContactStep`."""

    x: Float[Array, " nv"]
    residual: Float[Array, ""]


def minimise(
    terms: Sequence[Term],
    M: Float[Array, "nv nv"],
    push: Float[Array, " nv"],
    energy: Float[Array, ""],
) -> Minimum:
    """The minimum of the function at the head of the module, from the x without laws.

    `energy` (): the kinetic energy before the step, a scale for rounding errors. Each step is
    halved until the function decreases by enough.
    """
    eps = float(jnp.finfo(push.dtype).eps)
    tiny = float(jnp.finfo(push.dtype).tiny)
    # The first fraction, zero, gives the value before the step.
    fractions = jnp.asarray([0, *(0.5 ** np.arange(HALVINGS))], push.dtype)

    def unfinished(state):
        count, solution = state
        return (count < MAX_STEPS) & (solution.residual > TOLERANCE * eps)

    def penalty(term: Term, step: Array, u: Array) -> Array:
        du = term.change(step)
        return term.law.penalty(u + fractions.reshape(-1, *[1] * u.ndim) * du)

    def newton(state):
        count, (x, _) = state
        us = velocities(terms, x)
        momentum = matmul(M, x) - push
        gradient = momentum - sum(t.force(t.law.impulses(u)) for t, u in zip(terms, us))
        W = hessian_factor(terms, M, us)
        descent = matmul(W, -gradient)
        step = matmul(descent, W)
        products = [descent**2, step * momentum, step * matmul(M, step) / 2, x * (momentum + push)]
        decrement, linear, quadratic, square = jnp.sum(jnp.stack(products), axis=1)
        each = [penalty(t, step, u) for t, u in zip(terms, us)]
        penalties = sum(each, start=jnp.zeros_like(fractions))
        growth = fractions * linear + fractions**2 * quadratic + (penalties - penalties[0])
        # Near the minimum the growth is below rounding errors. The last term then accepts the whole
        # step.
        scale = square + 2 * energy
        enough = growth <= -0.1 * fractions * decrement + 10 * eps * scale
        x = x + jnp.max(jnp.where(enough, fractions, fractions[-1])) * step
        residual = jnp.sqrt(decrement / jnp.maximum(scale, tiny))
        return count + 1, Minimum(x, residual)

    start = Minimum(solve_positive_definite(M, push), jnp.full((), jnp.inf, push.dtype))
    return lax.while_loop(unfinished, newton, (jnp.zeros((), int), start))[1]


def velocities(terms: Sequence[Term], x: Float[Array, " nv"]) -> list[Array]:
    """The velocities u of each term."""
    return [term.u_0 + term.change(x) for term in terms]


def hessian_factor(
    terms: Sequence[Term], M: Float[Array, "nv nv"], us: Sequence[Array]
) -> Float[Array, "nv nv"]:
    """The inverse factor W of the Hessian H of the function, `W H W^T = 1`, at the velocities u."""
    return inverse_factor(M + sum(term.hessian(u) for term, u in zip(terms, us)))


def _matrix(J: Array) -> Array:
    """J (..., nv) with one row per velocity."""
    return J.reshape(-1, J.shape[-1])
