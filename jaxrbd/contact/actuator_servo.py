"""Converts affine actuators to a `Servo` and joint forces for a contact step.

The servo uses the q and v after the time step. An actuator without stiffness and damping becomes a
joint force.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from ..actuators import PD, AffineActuators
from ..actuators.joint_values import joints_of_dofs, values_of_dofs
from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.joints_by_name import scalar_joints
from .joint_terms import Servo


def servo_of_actuators(
    actuators: AffineActuators, model: Model, q: ArrayLike, control: ArrayLike
) -> tuple[Servo, Float[Array, " nv"]]:
    """A servo and joint forces tau (nv,) in N or N m, which together act as affine actuators.

    - `q` (nq,): the configuration before the step; `control` (n,): one value per actuator.

    An actuator applies the force `c - k q - d v` to its joint, where c, k and d are affine
    functions of the clipped control. If the stiffness k or the damping d is not zero, the servo
    applies this force, with the q and v after the step. Otherwise tau has the force c. So
    `contact_step(..., tau, dt, servo=servo)` is stable for any gains. With the forces
    `actuators(model, q, v, control)` in tau, it is stable only for small gains.

    Raises ArgumentError, which names the joint or the actuator, for a joint that follows others or
    has several degrees of freedom, for limits of the force that differ in the two directions, and
    for several actuators on one joint if the force of one of them has a limit. Raises ArgumentError
    for a negative k or d. If k or d is traced and negative, the servo has NaN. Source: MuJoCo,
    chapter "Computation", sections "Actuation model" and "Numerical integration" (in implicitfast,
    only the damping uses the velocity after the step).
    """
    ends = actuators.joints_without_tendons()
    _require_one_limit(actuators, ends)
    joints, n = actuators.driven_joints, len(actuators.driven_joints)
    scalar_joints(model, joints)
    owner = joints_of_dofs(model, joints)
    q = arguments.configuration(model, q)
    control = arguments.array(model, control, "control", (len(ends),), "number of actuators")
    gain, bias, gear, control_range, force_range, joint_range = (
        jnp.asarray(x, model.dtype) for x in actuators.values
    )
    control = jnp.clip(control, control_range[:, 0], control_range[:, 1])
    # The joint force is terms . [1, gear q, gear v].
    terms = gear[None] * (gain * control[:, None] + bias).T
    place = np.array(actuators.outputs, int)
    terms = terms * jnp.stack([jnp.ones_like(gear), -gear, -gear])
    c, k, d = jnp.zeros((3, n), model.dtype).at[:, place].add(terms)
    most = force_range[:, 1]
    # No product with an infinite limit: with gear 0, and in derivatives by the gear, it is NaN.
    bounded = most < jnp.inf
    most = jnp.where(bounded, jnp.abs(gear) * jnp.where(bounded, most, 0), most)
    limit = joint_range[:, 1].at[place].min(most)

    spring, damper = k != 0, (k == 0) & (d != 0)

    def dof_values(x: Array, rest: float = 0.0) -> Array:
        return jnp.asarray(values_of_dofs(owner, x, n, "actuators", rest))

    gains = PD(
        _not_negative(dof_values(k)), _not_negative(dof_values(d)), dof_values(limit, np.inf)
    )
    coordinates = np.array([model.joint(name).q.start for name in joints], int)
    target = jnp.where(spring, c / jnp.where(spring, k, 1), q[coordinates])
    servo = Servo(
        gains,
        q.at[coordinates].set(target),
        dof_values(jnp.where(damper, c / jnp.where(damper, d, 1), 0)),
    )
    return servo, dof_values(jnp.where(spring | damper, 0, jnp.clip(c, -limit, limit)))


def _not_negative(x: Array) -> Array:
    """x, with NaN in place of negative traced values; for known negative values `PD` raises."""
    return x if arguments.known(x) is not None else jnp.where(x < 0, jnp.nan, x)


def _require_one_limit(actuators: AffineActuators, joints: Sequence[str]) -> None:
    """Raise ArgumentError for limits of the force that a `PD` cannot have.

    `joints`: the joint of each actuator.
    """
    force_range = arguments.known(actuators.force_range)
    joint_range = arguments.known(actuators.joint_force_range)
    ranges = []
    if force_range is not None:
        ranges += [(f"actuator {x!r}", *y) for x, y in zip(actuators.names, force_range)]
        for joint, (_, high) in zip(joints, force_range):
            count = joints.count(joint)
            if count > 1 and np.isfinite(high):
                raise ArgumentError(
                    f"joint {joint!r} has {count} actuators with a limit of the force, expected "
                    "one actuator, or no limits"
                )
    if joint_range is not None:
        ranges += [(f"joint {x!r}", *y) for x, y in zip(actuators.driven_joints, joint_range)]
    for what, low, high in ranges:
        if low != -high:
            raise ArgumentError(
                f"{what} has forces from {low} to {high}, expected the same limit in both "
                "directions"
            )
