"""Derivatives of a solution of inverse kinematics, by the implicit function theorem.

A solution q and the multipliers lambda of the equations phi satisfy

    J^T w e + K^T lambda = 0    for the joints that are not at a limit,
    phi = 0                     for the equations of the constraints,
    coordinate = limit          for the joints at a limit that a step against the gradient crosses,
    coordinate = q0             for locked joints.

If there is a posture task and the other targets are reached (`solver.prioritise`), the errors of
these targets are equations too. The distances of a `Clearance` with a positive multiplier are
equations, and its other distances have no effect.

These equations give the change of q for a change of the targets, the weights and the model. The
joints at a limit are assumed to stay there. Where the equations leave a change undetermined, as for
a redundant robot without a posture task, the derivative is the change with the least Euclidean norm
in the tangent space. A direction counts as undetermined if its curvature is below `flat_curvature`
times the largest curvature. Where all errors are below `small_error`, or the errors with a weight
above 0 are within the tolerance of the solution, the second derivatives of the errors are left out:
they would add a curvature of the size of these errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from .._math.linear import matmul, pseudo_inverse
from .._math.rules import implicit_root
from ..configuration import difference, integrate
from ..constraints import Constraint
from ..model import Model
from ..model.joint_space import position_limits
from .solver import Box, Minimum, blocked, penalty, separated
from .tasks import Task, number_of_inequalities, number_of_leading_entries, rows


def flat_curvature(dtype) -> float:
    """The relative curvature below which a direction is undetermined, for a dtype."""
    return float(jnp.finfo(dtype).eps) ** 0.6


def small_error(dtype) -> float:
    """The size of errors below which their second derivatives are left out, for a dtype."""
    return float(jnp.finfo(dtype).eps) ** 0.4


def with_derivatives(
    model: Model,
    tasks: Sequence[Task | Constraint],
    box: Box,
    q0: Float[Array, " nq"],
    minimum: Minimum,
) -> Float[Array, " nq"]:
    """The solution `minimum.q`, with derivatives with respect to targets, weights and model.

    `minimum` is a result of `solver.prioritise`; `box` has the limits with their derivatives, and
    `q0` (nq,) the positions of locked joints.
    """
    minimum = lax.stop_gradient(minimum)
    constant_box = Box(position_limits(lax.stop_gradient(model)), box.locked)
    q, found, k = minimum.q, minimum.rows, len(minimum.force)
    fixed = blocked(
        constant_box,
        q,
        matmul(found.weights * found.error, found.J) + matmul(minimum.force, found.K),
    )
    least, _ = constant_box.gaps(q)
    # At the lower limit, `least` is 0.
    limit = jnp.where(least >= 0, box.limits.lower, box.limits.upper)
    limit = jnp.where(jnp.isfinite(limit) & fixed, limit, 0)
    q0_change = difference.unchecked(model, lax.stop_gradient(q0), q0)
    n, inequalities = number_of_leading_entries(tasks), number_of_inequalities(tasks)
    sizes = jnp.concatenate([found.error, minimum.force / penalty(found)])
    negligible = jnp.max(jnp.abs(sizes), initial=0) <= small_error(model.dtype)
    negligible = negligible | minimum.accurate

    def equations(unknown):
        d, force_change = unknown[: model.nv], unknown[model.nv :]
        moved = integrate.unchecked(model, q, d)
        whole = rows(model, tasks, moved)
        errors = jnp.where(negligible, whole.error - lax.stop_gradient(whole.error), whole.error)
        parts = separated(tasks, whole)
        force = jnp.where(negligible, 0, minimum.force) + force_change
        gradient = matmul(parts.weights * errors[n:], parts.J) + matmul(force, parts.K)
        at_limit = box.limits.coordinates(moved) - limit
        held = jnp.where(box.locked, d - q0_change, at_limit)
        position = parts.position
        if n:
            weights = whole.weights[:n]
            is_zero = minimum.reached & (weights > 0)
            leading = jnp.where(is_zero, position[:n], force[:n] - weights * errors[:n])
            position = jnp.concatenate([leading, position[n:]])
        if inequalities:
            # A distance without a multiplier may change: its multiplier stays 0.
            changes = jnp.where(
                minimum.force[-inequalities:] > 0,
                position[-inequalities:],
                force_change[-inequalities:],
            )
            position = jnp.concatenate([position[:-inequalities], changes])
        return jnp.concatenate([jnp.where(fixed, held, gradient), position])

    zero = jnp.zeros(model.nv + k, model.dtype)
    d = implicit_root(equations, lambda: zero, _least_change)[: model.nv]
    # d is 0. The value is q, without rounding errors of `integrate`; `moved` has the derivatives.
    moved = integrate.unchecked(model, q, d)
    return moved + lax.stop_gradient(q - moved)


def _least_change(function: Callable[[Array], Array], b: Float[Array, " n"]) -> Float[Array, " n"]:
    """The solution of `function(x) = b` with the least norm, for a linear function."""
    A = jax.jacfwd(function)(jnp.zeros_like(b))
    error = jnp.full_like(b, flat_curvature(b.dtype)) * jnp.max(jnp.abs(A), initial=1e-30)
    inverse = pseudo_inverse(A, error)
    return lax.custom_linear_solve(
        function, b, lambda _, b: matmul(inverse, b), lambda _, b: matmul(inverse.T, b)
    )
