"""Velocities that reduce the errors of tasks, within the limits of velocities and positions."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.linear import matmul
from ..constraints import Constraint
from ..model import Model, arguments
from ..model.joint_space import position_limits
from .box_qp import BoxQP, minimise
from .solution import check_limits, locked_dofs
from .solver import Box
from .tasks import Task, checked_tasks, rows


def differential_inverse_kinematics(
    model: Model,
    q: ArrayLike,
    tasks: Sequence[Task | Constraint],
    dt: ArrayLike,
    gain: ArrayLike = 1.0,
    damping: ArrayLike = 1e-6,
    locked: Sequence[str] = (),
) -> Float[Array, " nv"]:
    """The velocity v (nv,) that reduces the errors of tasks in a time step, within the limits.

    With the errors e, the weights w and the Jacobian J of the tasks, and `d = dt v`, the velocity
    minimises

        sum of w (J d + gain e)^2 / 2  +  damping |d|^2 / 2

    under `|v| <= velocity_limit`, under the position limits for `q + d`, and under the equations
    `K d = -gain phi` of the constraints. A joint outside its limits moves back to the limit, as
    fast as its velocity limit allows.

    - `q` (nq,); `tasks`: as for `inverse_kinematics`; a `constraints.Nonholonomic` is accepted too;
    - `dt`: the time step in s, above 0;
    - `gain` from 0 to 1: the fraction of the errors that one step removes;
    - `damping` above 0: in the units of the weights;
    - `locked`: names of joints with the velocity 0.

    Velocity limits act on all dofs with a finite `velocity_limit`, and position limits on all
    joints for which v is dq/dt, as in `inverse_kinematics`. If the limits and the equations
    contradict each other, the limits hold. The result is the exact minimum of the quadratic
    program, to rounding errors. Its derivatives assume that dofs at a limit stay there.

    Raises ArgumentError for an unknown frame or joint, a target that does not fit, limits that
    contradict each other, a negative velocity limit, or a dt, gain or damping out of its range; a
    traced value out of its range gives NaN.
    """
    tasks = checked_tasks(model, tasks, velocities=True)
    dofs = locked_dofs(model, locked)
    check_limits(model)
    limit = arguments.known(model.velocity_limit)
    if limit is not None:
        arguments.require(limit, lambda x: x >= 0, "velocity_limit", "0 or more")
    return _velocity(model, q, tasks, dt, gain, damping, dofs)


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
) -> Float[Array, " nv"]:
    q = arguments.configuration(model, q)
    dt = arguments.POSITIVE.or_nan(arguments.number(model, dt, "dt"))
    gain = arguments.FRACTION.or_nan(arguments.number(model, gain, "gain"))
    damping = arguments.POSITIVE.or_nan(arguments.number(model, damping, "damping"))
    qp = quadratic_program(model, q, tasks, dt, gain, damping, np.array(locked, bool))
    valid = jnp.all(qp.lower <= qp.upper) & jnp.isfinite(dt + gain + damping)
    return jnp.where(valid, minimise(qp) / dt, jnp.nan)


def quadratic_program(
    model: Model,
    q: Float[Array, " nq"],
    tasks: Sequence[Task | Constraint],
    dt: Float[Array, ""],
    gain: Float[Array, ""],
    damping: Float[Array, ""],
    locked: np.ndarray,
) -> BoxQP:
    """The quadratic program of `differential_inverse_kinematics`, with `d = dt v` as unknown."""
    found, box = rows(model, tasks, q), Box(position_limits(model), locked)
    weighted = found.weights[:, None] * found.J
    H = matmul(weighted.T, found.J) + damping * jnp.eye(model.nv, dtype=model.dtype)
    reach = dt * model.velocity_limit
    least, most = box.gaps(q)
    return BoxQP(
        H,
        gain * matmul(found.error, weighted),
        jnp.where(locked, 0, jnp.clip(least, -reach, reach)),
        jnp.where(locked, 0, jnp.clip(most, -reach, reach)),
        found.K,
        -gain * found.position,
    )
