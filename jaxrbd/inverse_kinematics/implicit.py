"""Derivatives of a solution of inverse kinematics, by the implicit function theorem.

At a solution q the multipliers lambda of the equations phi exist, and

    J^T w e + K^T lambda = 0    for the joints that are not at a limit,
    phi = 0                     for the equations of the constraints,
    coordinate = limit          for the joints at a limit whose gradient points outwards,
    coordinate = q0             for locked joints.

These equations give the change of q for a change of the targets, the weights and the model. The
joints at a limit are assumed to stay there. Where the equations leave a change undetermined, as for
a redundant robot without a posture task, the derivative is the change with the least Euclidean norm
in the tangent space. A direction counts as undetermined if its curvature is below `FLAT` times the
largest curvature. Where all errors are below `SMALL`, their second derivatives are left out: they
would turn rounding errors into curvature.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from .._math.linear import matmul, pseudo_inverse
from .._math.tangents import batched_as
from ..configuration import difference, integrate
from ..constraints import Constraint
from ..model import Model
from ..model.joint_space import position_limits
from .solver import Box, Descent, blocked, stacked
from .tasks import Task, rows


def flat(dtype) -> float:
    """The relative curvature below which a direction is undetermined, for a dtype."""
    return float(jnp.finfo(dtype).eps) ** 0.6


def small(dtype) -> float:
    """The size of errors below which their second derivatives are left out, for a dtype."""
    return float(jnp.finfo(dtype).eps) ** 0.4


def with_derivatives(
    model: Model,
    tasks: Sequence[Task | Constraint],
    box: Box,
    q0: Float[Array, " nq"],
    descent: Descent,
) -> Float[Array, " nq"]:
    """The solution `descent.q` with its derivatives by the targets, the weights and the model.

    `descent` is a result of `solver.descend`; `box` has the limits with their derivatives, and `q0`
    (nq,) the positions of locked joints.
    """
    descent = lax.stop_gradient(descent)
    constant_box = Box(position_limits(lax.stop_gradient(model)), box.locked)
    q, k = descent.q, len(descent.shift)
    error, weights, J = lax.stop_gradient(stacked(descent.rows, descent.shift))
    fixed = blocked(constant_box, q, matmul(weights * error, J))
    least, _ = constant_box.gaps(q)
    # At the lower limit, `least` is 0.
    limit = jnp.where(least >= 0, box.limits.lower, box.limits.upper)
    limit = jnp.where(jnp.isfinite(limit) & fixed, limit, 0)
    start = difference.unchecked(model, lax.stop_gradient(q0), q0)
    # The multipliers of the equations are the errors of their rows times their weights.
    rho = weights[len(weights) - k :]
    multipliers = rho * error[len(error) - k :]
    negligible = jnp.max(jnp.abs(error), initial=0) <= small(model.dtype)

    def equations(unknown):
        d, change = unknown[: model.nv], unknown[model.nv :]
        moved = integrate.unchecked(model, q, d)
        at = rows(model, tasks, moved)
        e = jnp.where(negligible, at.error - lax.stop_gradient(at.error), at.error)
        force = jnp.where(negligible, 0, multipliers) + change
        gradient = matmul(at.weights * e, at.J) + matmul(force, at.K)
        at_limit = box.limits.coordinates(moved) - limit
        held = jnp.where(box.locked, d - start, at_limit)
        return jnp.concatenate([jnp.where(fixed, held, gradient), at.position])

    unknown = batched_as(jnp.zeros(model.nv + k, model.dtype), q)
    d = lax.custom_root(equations, unknown, lambda _, x: x, _least_change)[: model.nv]
    # JAX computes d = 0 without rounding errors, so the value of q does not change.
    moved = integrate.unchecked(model, q, d)
    return moved + lax.stop_gradient(q - moved)


def _least_change(function: Callable[[Array], Array], b: Float[Array, " n"]) -> Float[Array, " n"]:
    """The solution of `function(x) = b` with the least norm, for a linear function."""
    A = jax.jacfwd(function)(jnp.zeros_like(b))
    error = jnp.full_like(b, flat(b.dtype)) * jnp.maximum(jnp.max(jnp.abs(A)), 1e-30)
    inverse = pseudo_inverse(A, error)
    return lax.custom_linear_solve(
        function, b, lambda _, b: matmul(inverse, b), lambda _, b: matmul(inverse.T, b)
    )
