"""Converts actuators to a `Servo` and joint forces for a contact step.

The servo uses the q and v after the time step. A force without stiffness and damping becomes a
joint force.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.clip import clip_within
from .._math.linear import matmul
from ..actuators import PD, AffineActuators
from ..actuators.affine import near_lengths
from ..actuators.joint_values import joints_of_dofs, values_of_dofs
from ..actuators.muscle import muscle_forces
from ..actuators.transmissions import transmission_lengths_and_arms
from ..algorithms.kinematics import forward_kinematics
from ..configuration import integrate
from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.joints_by_name import scalar_joints
from ..tendons import FixedTendon
from .joint_terms import Servo, TendonServo

UNBOUNDED = (-np.inf, np.inf)


def servo_of_actuators(
    actuators: AffineActuators,
    model: Model,
    q: ArrayLike,
    control: ArrayLike,
    v: ArrayLike | None = None,
) -> tuple[Servo, Float[Array, " nv"]]:
    """A servo and joint forces tau (nv,) in N or N m, which together act as affine actuators.

    - `q` (nq,): the configuration before the step; `control` (actuators,): one value per actuator;
    - `v` (nv,): the velocity before the step, if some actuators are muscles.

    An actuator applies the force `c - k x - d u` to its joint, its tendon or its transmission,
    where c, k and d are affine functions of the clipped control, x is the coordinate or the length,
    and u is the rate of x. A control with a period, such as an angle, is first moved by whole
    periods, near to the length before the step (`periods` of `AffineActuators`). If the stiffness k
    or the damping d is not zero, the servo applies this force, with the x and u after the step.
    Otherwise tau has the force c. So `contact_step(..., tau, dt, servo=servo)` is stable for any
    gains. With the forces `actuators(model, q, v, control)` in tau, it is stable only for small
    gains.

    tau has the force of a muscle at the state before the step. The servo changes this force during
    the step, with a k and a d that are the negative derivatives of the force at this state with
    respect to x and u. k is zero where a muscle pulls less if it becomes longer. k and d are zero
    for a muscle at a limit of its `force_range`.

    Raises ArgumentError, which names the joint, the tendon or the actuator, for

    - a joint that follows others or has several degrees of freedom;
    - limits of the force on a joint that differ in the two directions;
    - several actuators on one joint, tendon or transmission, if one that is no muscle has a limit,
      or if the tendon has one;
    - a muscle on a joint or a tendon with a limit, and muscles without `v`;
    - a joint with a limit, together with a `FixedTendon` on this joint, or with a tendon of another
      kind or another transmission on any joints;
    - a negative k or d. If k or d is traced and negative, the servo has NaN.

    Traced limits are not checked, and the forces can exceed some of them: the lower limits of
    joints, the limits of joints on which tendons or other transmissions act, the limits of joints
    and tendons with muscles, and all limits of several actuators on one tendon. Source: MuJoCo,
    chapter "Computation", sections "Actuation model" and "Numerical integration" (in implicitfast,
    only the damping uses the velocity after the step).
    """
    arguments.require_type(actuators, "actuators", AffineActuators)
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
    control = clip_within(control, control_range[:, 0], control_range[:, 1])
    # For each actuator, the index of its joint, tendon or transmission.
    place = np.array(actuators.outputs, int)
    outputs = n + len(actuators.coupled)
    lengths, J = (jnp.zeros((0, *sizes), model.dtype) for sizes in ((), (model.nv,)))
    if actuators.coupled:
        kinematics = forward_kinematics.unchecked(model, q)
        lengths, J = transmission_lengths_and_arms(model, actuators.coupled, kinematics)
    coordinates = np.array([model.joint(name).q.start for name in joints], int)
    if actuators.periods is not None:
        x = jnp.concatenate([q[coordinates], lengths])
        control = near_lengths(actuators, control, gear * x[place])
    # The force on the joint or the tendon is terms . [1, gear x, gear u].
    terms = gear[None] * (gain * control[:, None] + bias).T
    terms = terms * jnp.stack([jnp.ones_like(gear), -gear, -gear])
    c, k, d = jnp.zeros((3, outputs), model.dtype).at[:, place].add(terms)
    # `explicit`: the forces of muscles before the step; `muscle_damping`: their d times u.
    explicit = muscle_damping = jnp.zeros(outputs, model.dtype)
    limits = force_range
    if actuators.muscles is not None:
        if v is None:
            raise ArgumentError("v is None, expected the velocity, because actuators are muscles")
        v, dofs = arguments.velocity(model, v), [model.joint(name).v.start for name in joints]
        x = jnp.concatenate([q[coordinates], lengths])
        u = jnp.concatenate([v[np.array(dofs, int)], matmul(J, v)])
        forces = _muscle_tangents(actuators, gear * x[place], gear * u[place], control)
        forces = forces * jnp.stack([gear, -gear * gear, -gear * gear])
        explicit, k_m, d_m = jnp.zeros((3, outputs), model.dtype).at[:, place].add(forces)
        c, k, d, muscle_damping = c + k_m * x, k + k_m, d + d_m, d_m * u
        pulls = jnp.asarray(actuators.muscles.peak_force, model.dtype) > 0
        limits = jnp.where(pulls[:, None], jnp.asarray(UNBOUNDED, model.dtype), force_range)
    most = _times(jnp.abs(gear), limits[:, 1])
    rows = {name: row for row, name in enumerate(actuators.limited_joints)}
    upper = jnp.append(joint_range[:, 1], jnp.inf)
    limit = upper[np.array([rows.get(name, -1) for name in joints], int)]
    limit = limit.at[place[place < n]].min(most[place < n])

    names = _output_names(actuators)
    k, d = (_not_negative(x, what, names) for x, what in ((k, "stiffness"), (d, "damping")))
    spring, damper = k != 0, (k == 0) & (d != 0)
    constant = jnp.where(spring | damper, 0, c)
    target = jnp.where(spring, c / jnp.where(spring, k, 1), 0)
    damping_force = muscle_damping + jnp.where(damper, c, 0)
    rate = jnp.where(d != 0, damping_force / jnp.where(d != 0, d, 1), 0)

    def dof_values(x: Array, rest: float = 0.0) -> Array:
        return jnp.asarray(values_of_dofs(owner, x[:n], n, "actuators", rest))

    gains = PD(dof_values(k), dof_values(d), dof_values(limit, np.inf))
    position = q.at[coordinates].set(jnp.where(spring[:n], target[:n], q[coordinates]))
    servo = Servo(gains, position, dof_values(rate))
    tau = dof_values(clip_within(constant[:n], -limit, limit) + explicit[:n])
    if not actuators.coupled:
        return servo, tau
    bounds = _coupled_bounds(actuators, gear, limits, place)
    driven = TendonServo(actuators.coupled, k[n:], d[n:], bounds, length=target[n:], rate=rate[n:])
    # Where the servo acts, the servo has the limits. There, the constant force is 0, also if 0 is
    # not within these limits.
    is_driven = (spring | damper)[n:]
    force = jnp.where(is_driven, 0, clip_within(constant[n:], bounds[:, 0], bounds[:, 1]))
    force = force + explicit[n:]
    return servo._replace(tendons=driven), tau + matmul(force, J)


def servo_of_forces(
    force: Callable[[Array, Array], Array], model: Model, q: ArrayLike, v: ArrayLike
) -> tuple[Servo, Float[Array, " nv"]]:
    """A servo and joint forces tau (nv,), which together apply the joint forces of a function.

    - `force`: a function of q (nq,) and v (nv,) that returns joint forces (nv,) in N or N m, such
      as a DC motor with its controller, or a neural network of an actuator;
    - `q` (nq,), `v` (nv,): the state before the step.

    tau is `force(q, v)`. The servo changes each joint force during the step, with the derivatives
    of the force with respect to the coordinate and the velocity of the same joint: a stiffness and
    a damping. Where such a derivative is positive, the stiffness or the damping is zero. So
    `contact_step(..., tau, dt, servo=servo)` is stable for forces that are stiff and damped in each
    joint. The servo does not use derivatives with respect to the coordinates of other joints.

    The servo does not have the limits of a force: a strong motor can still alternate between its
    limits, if it is far from its target. For a limit that does not depend on the speed, use a
    `Servo` with a `PD`.

    Raises ArgumentError for a `force` that is no function, and for a result with another shape or
    dtype.
    """
    arguments.require_function(force, "force", "a function of q and v")
    q, v = arguments.configuration(model, q), arguments.velocity(model, v)
    zero = jnp.zeros_like(v)

    def moved(dq: Array, dv: Array) -> tuple[Array, Array]:
        found = force(integrate.unchecked(model, q, dq), v + dv)
        found = arguments.velocity(model, found, "the result of force")
        return found, found

    (by_q, by_v), tau = jax.jacfwd(moved, argnums=(0, 1), has_aux=True)(zero, zero)
    gains = PD(*(jnp.maximum(-jnp.diagonal(J), 0) for J in (by_q, by_v)))
    return Servo(gains, None, velocity=v, error=zero), tau


def _muscle_tangents(
    actuators: AffineActuators, length: Array, rate: Array, control: Array
) -> Array:
    """The forces of muscles, and their derivatives with respect to length and rate, (3, n).

    The derivatives are zero for a muscle at a limit of its force. Positive derivatives with respect
    to the length are replaced by 0.
    """
    muscles, limits = actuators.muscles, jnp.asarray(actuators.force_range, length.dtype)
    assert muscles is not None

    def force(length: Array, rate: Array) -> Array:
        found = muscle_forces(muscles, length, rate)
        return clip_within(found.gain * control + found.bias, limits[:, 0], limits[:, 1])

    # Each force depends on the length and the rate of one muscle, so one direction gives all
    # derivatives.
    one, zero = jnp.ones_like(length), jnp.zeros_like(length)
    f, change = jax.linearize(force, length, rate)
    by_length, by_rate = change(one, zero), change(zero, one)
    # The force of an actuator that is no muscle is zero, also if zero is not within its limits.
    acts = jnp.asarray(muscles.peak_force, length.dtype) > 0
    return jnp.where(acts, jnp.stack([f, jnp.minimum(by_length, 0), by_rate]), 0)


def _coupled_bounds(
    actuators: AffineActuators, gear: Array, force_range: Array, place: np.ndarray
) -> Array:
    """The bounds (k, 2) of the forces on the tendons and the other transmissions."""
    unbounded = jnp.tile(jnp.array(UNBOUNDED, gear.dtype), (len(actuators.transmissions), 1))
    limits = jnp.asarray(actuators.tendon_force_range, gear.dtype)
    tendon_range = jnp.concatenate([limits, unbounded])
    bounds = jnp.stack([jnp.full(len(tendon_range), x, gear.dtype) for x in (-np.inf, np.inf)], 1)
    first = len(actuators.driven_joints)
    for actuator in np.flatnonzero(place >= first):
        tendon = place[actuator] - first
        inner = clip_within(force_range[actuator], *tendon_range[tendon])
        scaled = _times(gear[actuator], inner)
        limits = jnp.stack([jnp.min(scaled), jnp.max(scaled)])
        if np.sum(place == place[actuator]) == 1:
            bounds = bounds.at[tendon].set(limits)
    return bounds


def _times(gear: Array, limit: Array) -> Array:
    """The product of a gear with limits, some of which are infinite.

    An infinite limit is not multiplied: the product would be NaN for the gear 0, and so would its
    derivative with respect to the gear.
    """
    bounded = jnp.isfinite(limit)
    unbounded = jnp.where(gear < 0, -limit, limit)
    return jnp.where(bounded, gear * jnp.where(bounded, limit, 0), unbounded)


def _not_negative(x: Array, what: str, names: list[str]) -> Array:
    """x (n,), with NaN in place of negative traced values. Raises ArgumentError for known ones."""
    values = arguments.known(x)
    if values is None:
        return jnp.where(x < 0, jnp.nan, x)
    for name, value in zip(names, values):
        if value < 0:
            raise ArgumentError(f"the {what} of {name} is {value}, expected 0 or more")
    return x


def _output_names(actuators: AffineActuators) -> list[str]:
    """The joints, tendons and other transmissions for messages, in the order of `outputs`."""
    return [
        *(f"joint {name!r}" for name in actuators.driven_joints),
        *(f"tendon {tendon.name!r}" for tendon in actuators.tendons),
        *(f"transmission {x.name!r}" for x in actuators.transmissions),
    ]


def _require_one_limit(actuators: AffineActuators) -> None:
    """Raise ArgumentError for limits of the force that a servo cannot have."""
    force_range = arguments.known(actuators.force_range)
    joint_range = arguments.known(actuators.joint_force_range)
    tendon_range = arguments.known(actuators.tendon_force_range)
    muscles, first = actuators.muscles, len(actuators.driven_joints)
    peak_force = None if muscles is None else arguments.known(muscles.peak_force)
    names = _output_names(actuators)
    joint_limits = {} if joint_range is None else dict(zip(actuators.limited_joints, joint_range))
    ranges = []
    for i, (actuator, output) in enumerate(zip(actuators.names, actuators.outputs)):
        limits = []
        if first <= output < first + len(actuators.tendons) and tendon_range is not None:
            limits += [*tendon_range[output - first]]
        count = actuators.outputs.count(output)
        if peak_force is not None and peak_force[i] > 0:
            if output < first:
                limits += [*joint_limits.get(actuators.driven_joints[output], ())]
            if np.any(np.isfinite(limits)):
                raise ArgumentError(
                    f"actuator {actuator!r} is a muscle, and the force on {names[output]} has a "
                    "limit, expected none"
                )
            continue
        limits += [] if force_range is None else [*force_range[i]]
        if count > 1 and np.any(np.isfinite(limits)):
            raise ArgumentError(
                f"{names[output]} has {count} actuators and a limit of the force, expected "
                "one actuator, or no limits"
            )
        if output < first and force_range is not None:
            ranges.append((f"actuator {actuator!r}", *force_range[i]))
    for joint, limits in joint_limits.items():
        if joint in actuators.driven_joints:
            ranges.append((f"joint {joint!r}", *limits))
        for x in actuators.coupled if np.any(np.isfinite(limits)) else ():
            if not isinstance(x, FixedTendon) or joint in x.joints:
                raise ArgumentError(
                    f"joint {joint!r} has a limit of the force, and {x.name!r} acts on several "
                    "joints, expected no limit"
                )
    for what, low, high in ranges:
        if low != -high:
            raise ArgumentError(
                f"{what} has forces from {low} to {high}, expected the same limit in both "
                "directions"
            )
