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
from ..actuators import PD, AffineActuators, Muscles
from ..actuators.joint_values import joints_of_dofs, values_of_dofs
from ..actuators.muscle import muscle_forces
from ..actuators.transmissions import transmission_lengths_and_arms
from ..algorithms.kinematics import forward_kinematics
from ..configuration import integrate
from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.joints_by_name import scalar_joints
from .joint_terms import Servo, TendonServo


def servo_of_actuators(
    actuators: AffineActuators,
    model: Model,
    q: ArrayLike,
    control: ArrayLike,
    v: ArrayLike | None = None,
) -> tuple[Servo, Float[Array, " nv"]]:
    """A servo and joint forces tau (nv,) in N or N m, which together act as affine actuators.

    - `q` (nq,): the configuration before the step; `control` (n,): one value per actuator;
    - `v` (nv,): the velocity before the step, if some actuators are muscles.

    An actuator applies the force `c - k x - d u` to its joint, its tendon or its transmission,
    where c, k and d are affine functions of the clipped control, x is the coordinate or the length,
    and u its rate. If the stiffness k or the damping d is not zero, the servo applies this force,
    with the x and u after the step. Otherwise tau has the force c. So
    `contact_step(..., tau, dt, servo=servo)` is stable for any gains. With the forces
    `actuators(model, q, v, control)` in tau, it is stable only for small gains.

    tau has the force of a muscle at the state before the step, and the servo changes it during the
    step, with the k and d of the tangent of the force. Where a muscle pulls less if it becomes
    longer, its k is zero.

    Raises ArgumentError, which names the joint or the actuator, for a joint that follows others or
    has several degrees of freedom, for limits of the force on a joint that differ in the two
    directions, for several actuators on one joint or tendon if the force of one of them has a
    limit, for a muscle with a limit of the force, and for muscles without `v`. Raises ArgumentError
    for a negative k or d. If k or d is traced and negative, the servo
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
    control = clip_within(control, control_range[:, 0], control_range[:, 1])
    place = np.array(actuators.outputs, int)
    outputs = n + len(actuators.coupled)
    lengths, J = (jnp.zeros((0, *sizes), model.dtype) for sizes in ((), (model.nv,)))
    if actuators.coupled:
        kinematics = forward_kinematics.unchecked(model, q)
        lengths, J = transmission_lengths_and_arms(model, actuators.coupled, kinematics)
    coordinates = np.array([model.joint(name).q.start for name in joints], int)
    # The force on the joint or the tendon is terms . [1, gear x, gear u].
    terms = gear[None] * (gain * control[:, None] + bias).T
    terms = terms * jnp.stack([jnp.ones_like(gear), -gear, -gear])
    c, k, d = jnp.zeros((3, outputs), model.dtype).at[:, place].add(terms)
    explicit = damped = jnp.zeros(outputs, model.dtype)
    if actuators.muscles is not None:
        if v is None:
            raise ArgumentError("v is None, expected the velocity, because actuators are muscles")
        v, dofs = arguments.velocity(model, v), [model.joint(name).v.start for name in joints]
        x = jnp.concatenate([q[coordinates], lengths])
        u = jnp.concatenate([v[np.array(dofs, int)], matmul(J, v)])
        forces = _muscle_tangents(actuators.muscles, gear * x[place], gear * u[place], control)
        forces = forces * jnp.stack([gear, -gear * gear, -gear * gear])
        explicit, k_m, d_m = jnp.zeros((3, outputs), model.dtype).at[:, place].add(forces)
        c, k, d, damped = c + k_m * x, k + k_m, d + d_m, d_m * u
    most = _times(jnp.abs(gear), force_range[:, 1])
    limit = joint_range[:, 1].at[place[place < n]].min(most[place < n])

    spring, damper = k != 0, (k == 0) & (d != 0)
    constant = jnp.where(spring | damper, 0, c)
    target = jnp.where(spring, c / jnp.where(spring, k, 1), 0)
    rate = jnp.where(d != 0, (damped + jnp.where(damper, c, 0)) / jnp.where(d != 0, d, 1), 0)

    def dof_values(x: Array, rest: float = 0.0) -> Array:
        return jnp.asarray(values_of_dofs(owner, x[:n], n, "actuators", rest))

    gains = PD(
        _not_negative(dof_values(k), "stiffness"),
        _not_negative(dof_values(d), "damping"),
        dof_values(limit, np.inf),
    )
    position = q.at[coordinates].set(jnp.where(spring[:n], target[:n], q[coordinates]))
    servo = Servo(gains, position, dof_values(rate))
    tau = dof_values(jnp.clip(constant[:n], -limit, limit) + explicit[:n])
    if not actuators.coupled:
        return servo, tau
    bounds = _coupled_bounds(actuators, gear, force_range, place)
    stiffness = _not_negative(k[n:], "the stiffness of the tendons and transmissions")
    damping = _not_negative(d[n:], "the damping of the tendons and transmissions")
    driven = TendonServo(
        actuators.coupled, stiffness, damping, bounds, length=target[n:], rate=rate[n:]
    )
    force = jnp.clip(constant[n:], bounds[:, 0], bounds[:, 1]) + explicit[n:]
    return servo._replace(tendons=driven), tau + matmul(force, J)


def servo_of_forces(
    force: Callable[[Array, Array], Array], model: Model, q: ArrayLike, v: ArrayLike
) -> tuple[Servo, Float[Array, " nv"]]:
    """A servo and joint forces tau (nv,), which together act as any joint forces, stably.

    - `force`: a function of q (nq,) and v (nv,) that returns joint forces (nv,) in N or N m, such
      as a DC motor with its controller, or a neural network of an actuator;
    - `q` (nq,), `v` (nv,): the state before the step.

    tau is `force(q, v)`. The servo changes each joint force during the step, with the derivatives
    of the force by its own coordinate and its own velocity: a stiffness and a damping. Where such a
    derivative is positive, the stiffness or the damping is zero. So
    `contact_step(..., tau, dt, servo=servo)` is stable for forces that are stiff and damped in each
    joint. Derivatives by the coordinates of other joints have no part in the servo.

    The tangent does not know the limits of a force: a strong motor can still alternate between its
    limits, if it is far from its target. A limit that does not depend on the speed belongs to a
    `Servo` with a `PD`.

    Raises ArgumentError for a result of `force` with another shape or dtype.
    """
    q, v = arguments.configuration(model, q), arguments.velocity(model, v)
    zero = jnp.zeros_like(v)

    def at(dq: Array, dv: Array) -> Array:
        found = force(integrate.unchecked(model, q, dq), v + dv)
        return arguments.velocity(model, found, "the result of force")

    by_q, by_v = jax.jacfwd(at, argnums=(0, 1))(zero, zero)
    gains = PD(*(jnp.maximum(-jnp.diagonal(J), 0) for J in (by_q, by_v)))
    return Servo(gains, None, velocity=v, error=zero), at(zero, zero)


def _muscle_tangents(muscles: Muscles, length: Array, rate: Array, control: Array) -> Array:
    """The forces of muscles, and their derivatives by the length and by the rate, (3, n).

    The derivatives by the length are not positive: 0 is in the place of positive ones.
    """

    def force(length: Array, rate: Array) -> Array:
        found = muscle_forces(muscles, length, rate)
        return found.gain * control + found.bias

    # A derivative by all lengths at once is that of each muscle by its own length.
    one, zero = jnp.ones_like(length), jnp.zeros_like(length)
    f, by_length = jax.jvp(force, (length, rate), (one, zero))
    by_rate = jax.jvp(force, (length, rate), (zero, one))[1]
    return jnp.stack([f, jnp.minimum(by_length, 0), by_rate])


def _coupled_bounds(
    actuators: AffineActuators, gear: Array, force_range: Array, place: np.ndarray
) -> Array:
    """The bounds (k, 2) of the forces on the tendons and the other transmissions."""
    unbounded = jnp.tile(
        jnp.array([-jnp.inf, jnp.inf], gear.dtype), (len(actuators.transmissions), 1)
    )
    limits = jnp.asarray(actuators.tendon_force_range, gear.dtype)
    tendon_range = jnp.concatenate([limits, unbounded])
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
    muscles, first = actuators.muscles, len(actuators.driven_joints)
    peak_force = None if muscles is None else arguments.known(muscles.peak_force)
    names = [f"joint {name!r}" for name in actuators.driven_joints]
    names += [f"tendon {tendon.name!r}" for tendon in actuators.tendons]
    names += [f"transmission {x.name!r}" for x in actuators.transmissions]
    ranges = []
    for i, (actuator, output) in enumerate(zip(actuators.names, actuators.outputs)):
        limits = [] if force_range is None else [*force_range[i]]
        if first <= output < first + len(actuators.tendons) and tendon_range is not None:
            limits += [*tendon_range[output - first]]
        count = actuators.outputs.count(output)
        if peak_force is not None and peak_force[i] > 0:
            if output < first and joint_range is not None:
                limits += [*joint_range[output]]
            if np.any(np.isfinite(limits)):
                raise ArgumentError(
                    f"actuator {actuator!r} is a muscle with a limit of the force, expected none"
                )
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
