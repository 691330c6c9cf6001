"""Converts affine actuators to a `Servo` and joint forces for a contact step.

The servo uses the q and v after the time step. An actuator without stiffness and damping becomes a
joint force.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.linear import matmul
from ..actuators import PD, AffineActuators
from ..actuators.joint_values import joints_of_dofs, values_of_dofs
from ..algorithms.kinematics import forward_kinematics
from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.joints_by_name import scalar_joints
from ..tendons.lengths import lengths_and_arms
from .joint_terms import Servo, TendonServo


def servo_of_actuators(
    actuators: AffineActuators, model: Model, q: ArrayLike, control: ArrayLike
) -> tuple[Servo, Float[Array, " nv"]]:
    """A servo and joint forces tau (nv,) in N or N m, which together act as affine actuators.

    - `q` (nq,): the configuration before the step; `control` (n,): one value per actuator.

    An actuator applies the force `c - k x - d u` to its joint or its tendon, where c, k and d are
    affine functions of the clipped control, x is the coordinate or the length, and u its rate. If
    the stiffness k or the damping d is not zero, the servo applies this force, with the x and u
    after the step. Otherwise tau has the force c. So `contact_step(..., tau, dt, servo=servo)` is
    stable for any gains. With the forces `actuators(model, q, v, control)` in tau, it is stable
    only for small gains.

    Raises ArgumentError, which names the joint or the actuator, for a joint that follows others or
    has several degrees of freedom, for limits of the force on a joint that differ in the two
    directions, and for several actuators on one joint or tendon if the force of one of them has a
    limit. Raises ArgumentError for a negative k or d. If k or d is traced and negative, the servo
    has NaN. Traced limits are not checked: the lower limits of joints, and all limits of several
    actuators on one tendon, are then not used. Source: MuJoCo, chapter "Computation", sections
    "Actuation model" and "Numerical integration" (in implicitfast, only the damping uses the
    velocity after the step).
    """
    _require_one_limit(actuators)
    joints, n = actuators.driven_joints, len(actuators.driven_joints)
    scalar_joints(model, joints)
    owner = joints_of_dofs(model, joints)
    q = arguments.configuration(model, q)
    control = arguments.array(
        model, control, "control", (len(actuators.names),), "number of actuators"
    )
    gain, bias, gear, control_range, force_range, joint_range = (
        jnp.asarray(x, model.dtype) for x in actuators.values
    )
    control = jnp.clip(control, control_range[:, 0], control_range[:, 1])
    # The force on the joint or the tendon is terms . [1, gear x, gear u].
    terms = gear[None] * (gain * control[:, None] + bias).T
    place = np.array(actuators.outputs, int)
    terms = terms * jnp.stack([jnp.ones_like(gear), -gear, -gear])
    outputs = n + len(actuators.tendons)
    c, k, d = jnp.zeros((3, outputs), model.dtype).at[:, place].add(terms)
    most = _times(jnp.abs(gear), force_range[:, 1])
    limit = joint_range[:, 1].at[place[place < n]].min(most[place < n])

    spring, damper = k != 0, (k == 0) & (d != 0)
    constant = jnp.where(spring | damper, 0, c)
    target, rate = (
        jnp.where(acts, c / jnp.where(acts, x, 1), 0) for acts, x in ((spring, k), (damper, d))
    )

    def dof_values(x: Array, rest: float = 0.0) -> Array:
        return jnp.asarray(values_of_dofs(owner, x[:n], n, "actuators", rest))

    gains = PD(
        _not_negative(dof_values(k), "stiffness"),
        _not_negative(dof_values(d), "damping"),
        dof_values(limit, np.inf),
    )
    coordinates = np.array([model.joint(name).q.start for name in joints], int)
    position = q.at[coordinates].set(jnp.where(spring[:n], target[:n], q[coordinates]))
    servo = Servo(gains, position, dof_values(rate))
    tau = dof_values(jnp.clip(constant[:n], -limit, limit))
    if not actuators.tendons:
        return servo, tau
    bounds = _tendon_bounds(actuators, gear, force_range, place)
    stiffness = _not_negative(k[n:], "the stiffness of the tendons")
    damping = _not_negative(d[n:], "the damping of the tendons")
    driven = TendonServo(
        actuators.tendons, stiffness, damping, bounds, length=target[n:], rate=rate[n:]
    )
    kinematics = forward_kinematics.unchecked(model, q)
    J = lengths_and_arms(model, actuators.tendons, kinematics).moment_arms
    force = jnp.clip(constant[n:], bounds[:, 0], bounds[:, 1])
    return servo._replace(tendons=driven), tau + matmul(force, J)


def _tendon_bounds(
    actuators: AffineActuators, gear: Array, force_range: Array, place: np.ndarray
) -> Array:
    """The bounds (k, 2) of the forces on the tendons."""
    tendon_range = jnp.asarray(actuators.tendon_force_range, gear.dtype)
    bounds = jnp.stack([jnp.full(len(tendon_range), x, gear.dtype) for x in (-np.inf, np.inf)], 1)
    first = len(actuators.driven_joints)
    for actuator in np.flatnonzero(place >= first):
        tendon = place[actuator] - first
        inner = jnp.clip(force_range[actuator], *tendon_range[tendon])
        scaled = _times(gear[actuator], inner)
        limits = jnp.stack([jnp.min(scaled), jnp.max(scaled)])
        if np.sum(place == place[actuator]) == 1:
            bounds = bounds.at[tendon].set(limits)
    return bounds


def _times(gear: Array, limit: Array) -> Array:
    """The product of a gear with limits, some of which are infinite.

    There is no product with an infinite limit: with gear 0, and in derivatives by the gear, it is
    NaN.
    """
    bounded = jnp.isfinite(limit)
    unbounded = jnp.where(gear < 0, -limit, limit)
    return jnp.where(bounded, gear * jnp.where(bounded, limit, 0), unbounded)


def _not_negative(x: Array, name: str) -> Array:
    """x, with NaN in place of negative traced values. Raises ArgumentError for known ones."""
    if arguments.known(x) is None:
        return jnp.where(x < 0, jnp.nan, x)
    arguments.require(x, lambda x: x >= 0, name, "0 or more")
    return x


def _require_one_limit(actuators: AffineActuators) -> None:
    """Raise ArgumentError for limits of the force that a servo cannot have."""
    force_range = arguments.known(actuators.force_range)
    joint_range = arguments.known(actuators.joint_force_range)
    tendon_range = arguments.known(actuators.tendon_force_range)
    first = len(actuators.driven_joints)
    names = [f"joint {name!r}" for name in actuators.driven_joints]
    names += [f"tendon {tendon.name!r}" for tendon in actuators.tendons]
    ranges = []
    for i, (actuator, output) in enumerate(zip(actuators.names, actuators.outputs)):
        limits = [] if force_range is None else [*force_range[i]]
        if output >= first and tendon_range is not None:
            limits += [*tendon_range[output - first]]
        count = actuators.outputs.count(output)
        if count > 1 and np.any(np.isfinite(limits)):
            raise ArgumentError(
                f"{names[output]} has {count} actuators with a limit of the force, expected "
                "one actuator, or no limits"
            )
        if output < first and force_range is not None:
            ranges.append((f"actuator {actuator!r}", *force_range[i]))
    if joint_range is not None:
        ranges += [(name, *limits) for name, limits in zip(names, joint_range)]
    for what, low, high in ranges:
        if low != -high:
            raise ArgumentError(
                f"{what} has forces from {low} to {high}, expected the same limit in both "
                "directions"
            )
