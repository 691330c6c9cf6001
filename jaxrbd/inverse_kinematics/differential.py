"""Velocities that reduce the errors of tasks, within limits of velocity, position, acceleration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.linear import matmul
from ..constraints import Constraint
from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.joint_space import position_limits
from ..model.names import joint_of_dof
from .box_qp import BoxQP, minimise
from .solution import ROUNDING, check_limits, locked_dofs
from .solver import Box
from .tasks import Task, checked_tasks, number_of_inequalities, rows, weights_are_valid


def differential_inverse_kinematics(
    model: Model,
    q: ArrayLike,
    tasks: Sequence[Task | Constraint],
    dt: ArrayLike,
    gain: ArrayLike = 1.0,
    damping: ArrayLike = 1e-6,
    locked: Sequence[str] = (),
    acceleration_limit: ArrayLike | None = None,
    previous_velocity: ArrayLike | None = None,
) -> Float[Array, " nv"]:
    """The velocity v (nv,) that reduces the errors of tasks in a time step, within the limits.

    Its units are rad/s and m/s. With the errors e, the weights w and the Jacobian J of the tasks,
    and `d = dt v`, the velocity minimises

        sum of w (J d + gain e)^2 / 2  +  damping |d|^2 / 2

    under `|v| <= velocity_limit`, under the position limits for `q + d`, and under the equations
    `K d = -gain phi` of the constraints. For a `Clearance`, the distance of a pair decreases by at
    most `gain (distance - margin)`, to first order in d. A distance below the margin increases by
    at least `gain (margin - distance)`. So a robot comes to rest in front of an obstacle. A joint
    outside its limits moves back to the limit, as fast as its other limits allow.

    - `q` (nq,); `tasks`: as for `inverse_kinematics`, and a `constraints.Nonholonomic` is accepted;
    - `dt`: the time step in s, above 0;
    - `gain` from 0 to 1: the fraction of the errors that one step removes;
    - `damping` above 0: in the units of the weights. For each dof it is raised to at least
      `8 nv eps` times the diagonal entry of `J^T diag(w) J`, the size of its rounding errors. In
      float32, this raises the default for weights above about 0.1;
    - `locked`: names of joints with the velocity 0;
    - `acceleration_limit` () or (nv,), above 0, in rad/s^2 and m/s^2: the largest change of each
      velocity per second, from `previous_velocity` (nv,), the velocity of the step before. Infinite
      entries are no limits. Pass both arguments or neither. They do not act on locked joints.

    With acceleration limits, the velocity is also so low that the joint can stop before its
    position limit, in steps of the same dt. So if the velocity of one step is the
    `previous_velocity` of the next step, which starts where the first step ends, all limits can be
    satisfied again.

    Velocity limits act on all dofs with a finite `velocity_limit`, and position limits on all
    joints for which v is dq/dt, as in `inverse_kinematics`. If the limits contradict the equations
    or the distances, the limits hold. The result is the exact minimum of the quadratic
    program, to rounding errors. The derivatives assume that dofs at a limit stay there.

    Raises ArgumentError for an unknown frame or joint, a task that does not fit the model, limits
    that contradict each other, a negative velocity limit, a dt, gain, damping or acceleration limit
    out of its range, or a q or previous velocity that is not finite. It also raises ArgumentError,
    which names the dof, if a joint with the previous velocity cannot reach its velocity limit, or
    cannot stop before its position limit. A traced value out of its range gives NaN.
    """
    tasks = checked_tasks(model, tasks, velocities=True)
    dofs = locked_dofs(model, locked)
    check_limits(model)
    limit = arguments.known(model.velocity_limit)
    if limit is not None:
        arguments.require(limit, lambda x: x >= 0, "velocity_limit", "0 or more")
    if (acceleration_limit is None) != (previous_velocity is None):
        missing = "acceleration_limit" if acceleration_limit is None else "previous_velocity"
        raise ArgumentError(
            f"{missing} is None, expected both acceleration_limit and previous_velocity, or neither"
        )
    for name, x in (("q", q), ("previous_velocity", previous_velocity)):
        values = None if x is None else arguments.known(x)
        if values is not None and values.dtype.kind == "f":
            arguments.require_finite(name, values)
    limit = arguments.known(acceleration_limit)
    if limit is not None:
        arguments.require(limit, lambda x: x > 0, "acceleration_limit", "above 0 in each entry")
    change = (acceleration_limit, previous_velocity)
    v = _velocity(model, q, tasks, dt, gain, damping, dofs, *change)
    values = None if acceleration_limit is None else arguments.known(v)
    if values is not None and np.any(np.isnan(values)):
        _raise_for_limits(model, q, dt, change, dofs)
    return v


@arguments.compiled(
    static_argnames="locked",
    checks={
        "dt": arguments.POSITIVE,
        "gain": arguments.FRACTION,
        "damping": arguments.POSITIVE,
    },
)
def _velocity(
    model: Model,
    q: ArrayLike,
    tasks: tuple[Task | Constraint, ...],
    dt: ArrayLike,
    gain: ArrayLike,
    damping: ArrayLike,
    locked: tuple[bool, ...],
    acceleration_limit: ArrayLike | None,
    previous_velocity: ArrayLike | None,
) -> Float[Array, " nv"]:
    """The velocity; NaN if a traced value is out of range, or if no velocity is within limits."""
    q = arguments.configuration(model, q)
    dt = arguments.POSITIVE.or_nan(arguments.number(model, dt, "dt"))
    gain = arguments.FRACTION.or_nan(arguments.number(model, gain, "gain"))
    damping = arguments.POSITIVE.or_nan(arguments.number(model, damping, "damping"))
    change = _change_limits(model, acceleration_limit, previous_velocity)
    qp = quadratic_program(model, q, tasks, dt, gain, damping, np.array(locked, bool), change)
    valid = jnp.all(qp.lower <= qp.upper) & jnp.isfinite(dt + gain + damping)
    valid &= jnp.all(model.velocity_limit >= 0) & weights_are_valid(tasks)
    return jnp.where(valid, minimise(qp, number_of_inequalities(tasks)) / dt, jnp.nan)


class ChangeLimits(NamedTuple):
    """Limits of the change of v: the `acceleration` (nv,), and `previous` (nv,), the last v."""

    acceleration: Float[Array, " nv"]
    previous: Float[Array, " nv"]


def _change_limits(
    model: Model, acceleration_limit: ArrayLike | None, previous_velocity: ArrayLike | None
) -> ChangeLimits | None:
    """The limits as arrays (nv,); a traced acceleration that is not above 0 becomes NaN."""
    if acceleration_limit is None or previous_velocity is None:
        return None
    acceleration = arguments.real_array(acceleration_limit, "acceleration_limit", model.dtype)
    if acceleration.ndim == 0:
        acceleration = jnp.full(model.nv, acceleration)
    acceleration = arguments.velocity(model, acceleration, "acceleration_limit")
    previous = arguments.velocity(model, previous_velocity, "previous_velocity")
    return ChangeLimits(jnp.where(acceleration > 0, acceleration, jnp.nan), previous)


def quadratic_program(
    model: Model,
    q: Float[Array, " nq"],
    tasks: Sequence[Task | Constraint],
    dt: Float[Array, ""],
    gain: Float[Array, ""],
    damping: Float[Array, ""],
    locked: np.ndarray,
    change: ChangeLimits | None = None,
) -> BoxQP:
    """The quadratic program of `differential_inverse_kinematics`, with `d = dt v` as unknown.

    The last rows of K, of clearances, are inequalities.
    """
    found = rows(model, tasks, q)
    weighted = found.weights[:, None] * found.J
    H = matmul(weighted.T, found.J)
    # With less damping, rounding errors of H could be larger than its least eigenvalue.
    rounding = ROUNDING * model.nv * float(jnp.finfo(H.dtype).eps) * jnp.diagonal(H)
    H = H + jnp.diag(jnp.maximum(damping, rounding))
    least, most = _bounds(model, q, dt, locked, change)
    return BoxQP(
        H,
        gain * matmul(found.error, weighted),
        jnp.where(locked, 0, least),
        jnp.where(locked, 0, most),
        found.K,
        -gain * found.position,
    )


def _bounds(
    model: Model,
    q: Float[Array, " nq"],
    dt: Float[Array, ""],
    locked: np.ndarray,
    change: ChangeLimits | None,
) -> tuple[Float[Array, " nv"], Float[Array, " nv"]]:
    """The bounds of `dt v`, with least > most if no velocity satisfies the limits."""
    limits = position_limits(model)
    reach = dt * model.velocity_limit
    least, most = Box(limits, locked).gaps(q)
    if change is None:
        return jnp.clip(least, -reach, reach), jnp.clip(most, -reach, reach)
    step, previous = dt**2 * change.acceleration, dt * change.previous
    lowest, highest = jnp.maximum(previous - step, -reach), jnp.minimum(previous + step, reach)
    # A joint outside its limits moves back as fast as it can.
    most = jnp.where(most < 0, jnp.maximum(most, lowest), _stopping_displacement(most, step))
    least = jnp.where(least > 0, jnp.minimum(least, highest), -_stopping_displacement(-least, step))
    # The position limits hold exactly. So the acceleration may be beyond its limit by rounding
    # errors of the step before.
    eps = ROUNDING * float(jnp.finfo(q.dtype).eps)
    rounding = eps * (jnp.maximum(1, jnp.abs(limits.coordinates(q))) + jnp.abs(previous))
    lowest = jnp.where(lowest - rounding <= most, jnp.minimum(lowest, most), lowest)
    highest = jnp.where(highest + rounding >= least, jnp.maximum(highest, least), highest)
    return jnp.maximum(least, lowest), jnp.minimum(most, highest)


def _stopping_displacement(
    gap: Float[Array, " nv"], step: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    """The largest displacement d per time step from which a joint can stop within `gap`.

    Each time step reduces the displacement by at most `step`. With n more time steps until rest,
    `d + (d - step) + ... + (d - n step) = gap`.
    """
    finite = jnp.isfinite(gap) & jnp.isfinite(step)
    room, step = jnp.where(finite, gap, 0), jnp.where(finite, step, 1)
    n = jnp.floor((jnp.sqrt(1 + 8 * jnp.maximum(room / step, 0)) - 1) / 2)
    d = (room + step * n * (n + 1) / 2) / (n + 1)
    return jnp.where(finite, d, gap)


def _raise_for_limits(
    model: Model,
    q: ArrayLike,
    dt: ArrayLike,
    change: tuple[ArrayLike | None, ArrayLike | None],
    locked: tuple[bool, ...],
) -> None:
    """Raise ArgumentError, which names the first dof whose limits no velocity satisfies."""
    found = _change_limits(model, *change)
    assert found is not None
    q, dt = arguments.configuration(model, q), arguments.number(model, dt, "dt")
    least, most = _bounds(model, q, dt, np.array(locked, bool), found)
    for i in np.flatnonzero(~np.array(locked, bool) & np.asarray(least > most)).tolist():
        velocity, limit = float(found.previous[i]), float(model.velocity_limit[i])
        step = float(dt * found.acceleration[i])
        joint = joint_of_dof(model, i)
        bound, reason = float(np.copysign(limit, velocity)), "the velocity limit"
        if abs(velocity) - step <= limit:
            bound = float((most if velocity > 0 else least)[i] / dt)
            reason = "from which the joint can stop before its position limit"
        raise ArgumentError(
            f"previous_velocity is {velocity} for joint {joint!r} (dof {i}) and changes by at most "
            f"{step} in a time step, expected a velocity that can change to {bound}, {reason}"
        )
