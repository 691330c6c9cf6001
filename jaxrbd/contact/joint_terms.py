"""Impulses of position limits, dissipation and servos on the joints of a robot.

Each term acts on the velocity u of one joint with the impulse

    gamma = clip(conductance (target - u), lower, upper),

which is the negative derivative of a convex function of u:

    term            conductance        target                               lower, upper
    lower limit     1 / R              -gap / time                          0, inf
    upper limit     1 / R              gap / time                           -inf, 0
    dry friction    1 / R              0                                    -dt f, dt f
    damping         dt d               0                                    -inf, inf
    servo           dt (k_d + dt k_p)  (k_p e + k_d u_d + f)                -dt effort, dt effort
                                       / (k_d + dt k_p)

The gap is the distance of the joint from its limit, negative for a joint beyond the limit. The time
is dt for a joint within its limits and `dt + recovery` for a joint beyond a limit. R is a fraction
of the inverse inertia of the joint. The friction force is f, the damping coefficient is d, and
`Servo` defines the other symbols. Soft limits act only beyond the limit, with the conductance and
the target of `softness.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.cast import stacked
from ..actuators import PD
from ..actuators.transmissions import Transmission
from ..configuration import difference
from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.joint_space import entries_of_all_joints, position_limits
from ..model.names import described, joint_of_dof
from ..tendons.paths import Tendon
from .softness import Softness


class TendonServo(NamedTuple):
    """PD control of the lengths of n tendons in a time step, with the rates after the step.

    A tendon may be replaced by another transmission of an actuator.

    The force on a tendon, positive if it makes the tendon longer, is

        clip(stiffness (length - l - dt u) + damping (rate - u), force_range),

    where l is the length before the step, and u is the rate after the step.

    - `tendons`: the tendons;
    - `stiffness`, `damping` (n,): 0 or more, in N/m and N s/m; `force_range` (n, 2): the bounds in
      N, which may be infinite;
    - `length`, `rate` (n,): the length in m and the rate in m/s that the servo tracks.

    `contact_step` raises ArgumentError, which names the field, for another shape or dtype, and for
    values out of range. With a traced value that is out of range or NaN, the state after the step
    is NaN.
    """

    tendons: tuple[Tendon | Transmission, ...]
    stiffness: Float[Array, " n"]
    damping: Float[Array, " n"]
    force_range: Float[Array, "n 2"]
    length: Float[Array, " n"]
    rate: Float[Array, " n"]


class Servo(NamedTuple):
    """PD control of the joints in a time step, with the velocity after the step.

    The joint force of the servo, constant in the step, is

        tau = clip(k_p (e - dt v+) + k_d (u_d - v+) + f, -effort, effort),

    where v+ is the velocity after the step, and e = `difference(model, q, position)` is the error
    before the step. To first order, `e - dt v+` is the error after the step. So a step is stable
    for any gains and any dt.

    - `control`: the stiffness k_p, the damping k_d and the effort of a `PD`;
    - `position` (nq,): the configuration that the servo tracks, or None if `error` is given;
    - `velocity` u_d (nv,): the velocity that the servo tracks (default zero);
    - `error` e (nv,): in place of a `position`. Then the step does not compute `difference`. The
      entries of joints without a servo, such as a free joint, are zero;
    - `tendons`: a `TendonServo` that acts at the same time, or None;
    - `force` f (nv,): a force in N or N m that the servo adds before it applies the limit, such as
      the feedforward torque of a motor (default zero). For a joint without stiffness and damping it
      must be zero, because a servo does not drive this joint.

    `contact_step` raises ArgumentError, which names the field, for an entry that is not finite, and
    for a force on a joint without stiffness and damping, whose name it states. With such an entry
    that is traced, the state after the step is NaN.
    """

    control: PD
    position: ArrayLike | None
    velocity: ArrayLike | None = None
    error: ArrayLike | None = None
    tendons: TendonServo | None = None
    force: ArrayLike | None = None

    @property
    def _force_without_gains(self) -> np.ndarray | None:
        """`force` with zeros for all dofs (nv,) with a gain; None without a known force."""
        if self.force is None or not isinstance(self.control, PD):
            return None
        fields = self.force, self.control.stiffness, self.control.damping
        force, stiffness, damping = (arguments.known(x) for x in fields)
        if force is None or stiffness is None or damping is None:
            return None
        if not force.shape == stiffness.shape == damping.shape:
            return None  # the shapes are checked later
        return np.where((stiffness > 0) | (damping > 0), 0, force)


class JointImpulses(NamedTuple):
    """The impulses of a time step on the joints, (nv_joint,) each, in N s or N m s.

    There is one entry per velocity of a joint, also of the joints that follow others.

    - `limit`: from the position limits;
    - `dissipation`: from dry friction and damping;
    - `servo`: from the servo.
    """

    limit: Float[Array, " nv_joint"]
    dissipation: Float[Array, " nv_joint"]
    servo: Float[Array, " nv_joint"]

    @property
    def total(self) -> Float[Array, " nv_joint"]:
        """The sum of all impulses on each joint."""
        return self.limit + self.dissipation + self.servo


class ClippedLaw(NamedTuple):
    """k impulses on each of n velocities u (n,): `clip(conductance (target - u), lower, upper)`.

    All fields are (k, n). A conductance of zero means no impulse if the bounds contain zero. At a
    bound, the derivatives are one-sided: at the lower bound, the impulse changes with u; at the
    upper bound, it does not. So where one row begins to push and another one begins to pull, as
    for a spring at its rest length, the derivative is that of a single row.
    """

    conductance: Float[Array, "k n"]
    target: Float[Array, "k n"]
    lower: Float[Array, "k n"]
    upper: Float[Array, "k n"]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of u."""
        return self.target.shape[1:]

    def impulses(self, u: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
        """The sum of the k impulses on each velocity."""
        return jnp.sum(self._parts(u)[1], axis=0)

    def penalty(self, u: Float[Array, " n"]) -> Float[Array, ""]:
        """The sum of the convex functions, in joules."""
        return jnp.sum(self.penalties(u))

    def penalties(self, u: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
        """The sum of the k convex functions of each velocity, in joules.

        With `y = conductance (target - u)` and gamma, which is y clipped to the bounds, the
        function of one impulse is `gamma (2 y - gamma) / (2 conductance)`.
        """
        y, gamma, _ = self._parts(u)
        resistance = jnp.where(self.conductance > 0, 1 / self.conductance, 0)
        return jnp.sum(resistance * gamma * (2 * y - gamma), axis=0) / 2

    def curvatures(self, u: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
        """The diagonal of the Hessian of the penalty."""
        _, _, changes = self._parts(u)
        return jnp.sum(jnp.where(changes, self.conductance, 0), axis=0)

    def hessian_product(self, u: Float[Array, " n"], x: Float[Array, "n m"]) -> Float[Array, "n m"]:
        """The product of the Hessian of the penalty, which is diagonal, with m vectors x."""
        return self.curvatures(u)[:, None] * x

    def _parts(self, u: Array) -> tuple[Array, Array, Array]:
        """y, the impulse gamma, and whether gamma changes with u."""
        y = self.conductance * (self.target - u[None])
        low, high = y < self.lower, y >= self.upper
        gamma = jnp.where(low, self.lower, jnp.where(high, self.upper, y))
        return y, gamma, ~(low | high)


class JointLaw(NamedTuple):
    """The laws of the limits, of the dissipation and of the servo, for all joint velocities."""

    limit: ClippedLaw
    dissipation: ClippedLaw
    servo: ClippedLaw

    def impulses(self, u: Float[Array, " nv_joint"]) -> JointImpulses:
        """The impulses of each law at the velocities u of all joints."""
        return JointImpulses(*(law.impulses(u) for law in self))

    def merged(self) -> ClippedLaw:
        """The three laws as one."""
        return ClippedLaw(*(jnp.concatenate(fields) for fields in zip(*self)))


def conductance_of(ratio: Array, inverse_inertia: Array) -> Array:
    """1 / R, or 0 for a point that cannot move, such as a point on the axis of the only joint.

    `ratio`: R divided by the inverse inertia. An impulse on a point that cannot move has no
    effect. An inverse inertia that is NaN gives NaN.
    """
    moves = ~(inverse_inertia <= 0)
    return jnp.where(moves, 1 / (ratio * jnp.where(moves, inverse_inertia, 1)), 0)


def joint_law(
    model: Model,
    q: Float[Array, " nq"],
    u: Float[Array, " nv_joint"],
    dt: Float[Array, ""],
    regularisation: Float[Array, ""],
    recovery: Float[Array, ""],
    inverse_inertia: Float[Array, " nv_joint"],
    softness: Softness | None,
    servo: Servo | None,
) -> JointLaw:
    """The impulses of the table at the head of the module.

    - `u`: the velocities of all joints before the step, for soft limits;
    - `regularisation`: R divided by the inverse inertia of the joint, except for soft limits;
    - `softness`: of the limits, or None.
    """
    conductance = conductance_of(regularisation, inverse_inertia)
    empty = ClippedLaw(*(jnp.zeros((0, *conductance.shape), model.dtype),) * 4)
    sign, gap, limited = _limit_gaps(model, q)
    if softness is None:
        limit_conductance = conductance
        target = sign * gap / jnp.where(gap <= 0, dt + recovery, dt)
    else:
        lower, upper = (softness.response(x, dt, "limit_softness") for x in gap)
        response = stacked((lower, upper))
        limited = limited & (gap < 0)
        limit_conductance = conductance_of(response.ratio, inverse_inertia)
        target = response.kept * u - sign * response.push
    zero, bound = jnp.zeros_like(gap), jnp.full_like(gap, jnp.inf)
    return JointLaw(
        ClippedLaw(
            jnp.where(limited, limit_conductance, 0),
            target,
            jnp.where(sign < 0, zero, -bound),
            jnp.where(sign < 0, bound, zero),
        ),
        _dissipation_law(model, dt, conductance) if model.dissipative else empty,
        empty if servo is None else _servo_law(model, q, dt, servo),
    )


def _limit_gaps(model: Model, q: Array) -> tuple[Array, Array, Array]:
    """The lower and the upper limit of each joint, in arrays with two rows.

    The results are the sign (2, 1), the gap (2, nv_joint), which is negative beyond a limit, and
    whether there is a limit (2, nv_joint). The gap of a joint without the limit is 0.
    """
    limits = position_limits(model)
    sign = jnp.asarray([[-1], [1]], q.dtype)
    bounds = jnp.stack([limits.lower, limits.upper])
    limited = jnp.isfinite(bounds)
    gap = sign * (jnp.where(limited, bounds, 0) - limits.coordinates(q)[None])
    gap = jnp.where(limited, gap, 0)
    limited, gap = (entries_of_all_joints(model, x, "v") for x in (limited, gap))
    return sign, gap, limited


def _dissipation_law(model: Model, dt: Array, conductance: Array) -> ClippedLaw:
    zero, unbounded = jnp.zeros_like(model.friction), jnp.full_like(model.friction, jnp.inf)
    friction = dt * model.friction
    rows = [
        (jnp.where(friction > 0, conductance, 0), zero, -friction, friction),
        (dt * model.damping, zero, -unbounded, unbounded),
    ]
    return ClippedLaw(*map(jnp.stack, zip(*rows)))


def require_servo(model: Model, servo: Any) -> None:
    """Raise ArgumentError, which names the field, for a servo that cannot drive this robot.

    Such a servo is an object of another type, or it has both or none of position and error, an
    array of another shape, a value that is not finite, a zero quaternion, or a force on a joint
    without stiffness and damping. Values of traced arrays are not checked.
    """
    arguments.require_type(servo, "servo", Servo)
    arguments.require_type(servo.control, "servo.control", PD)
    if servo.tendons is not None:
        arguments.require_type(servo.tendons, "servo.tendons", TendonServo)
        _require_tendon_servo(model, servo.tendons)
    if (servo.position is None) == (servo.error is None):
        given = "no position and no" if servo.error is None else "a position and an"
        raise ArgumentError(f"servo has {given} error, expected one of the two")
    for name in ("position", "velocity", "error", "force"):
        given = getattr(servo, name)
        if given is None:
            continue
        check = arguments.configuration if name == "position" else arguments.velocity
        array = check(model, given, f"servo.{name}")
        arguments.require(array, np.isfinite, f"servo.{name}", "finite entries")
        if name == "position" and (values := arguments.known(array)) is not None:
            arguments.nonzero_quaternions("servo.position", values, model)
    if (force := servo._force_without_gains) is not None:
        _no_force("servo.force", force, model)


def _require_tendon_servo(model: Model, servo: TendonServo) -> None:
    """Raise ArgumentError, which names the field, for wrong objects, shapes, dtypes or values."""
    tendons = arguments.sequence(servo.tendons, "servo.tendons.tendons", "tendons")
    for i, x in enumerate(tendons):
        if not isinstance(x, Tendon | Transmission):
            raise ArgumentError(
                f"servo.tendons.tendons[{i}] is {described(x)}, expected a tendon or another "
                "transmission"
            )
    for name in servo._fields[1:]:
        sizes = ("n, 2", (2,)) if name == "force_range" else ("n", ())
        shape, whole_name = (len(tendons), *sizes[1]), f"servo.tendons.{name}"
        array = arguments.array(model, getattr(servo, name), whole_name, shape, sizes[0])
        values = arguments.known(array)
        if values is not None and name in TENDON_SERVO_CHECKS:
            TENDON_SERVO_CHECKS[name](whole_name, values, model)


def _gains(name: str, values: np.ndarray, model: Any) -> None:
    if values.dtype.kind not in "biuf":  # the shape and the dtype are checked later
        return
    arguments.require_not_negative(values, name)


def _force_ranges(name: str, values: np.ndarray, model: Any) -> None:
    if values.shape[-1:] == (2,):
        expected = "lower and upper bounds, no NaN"
        arguments.require(values, lambda x: x[..., 0] <= x[..., 1], name, expected)


def _finite(name: str, values: np.ndarray, model: Any) -> None:
    if values.dtype.kind == "f":
        arguments.require_finite(name, values)


def _no_force(name: str, values: np.ndarray, model: Any) -> None:
    """Raise ArgumentError, which names the joint, for a force on a dof without gains."""
    if values.any():
        dof = int(np.flatnonzero(values)[0])
        raise ArgumentError(
            f"servo.force is {values[dof]} for joint {joint_of_dof(model, dof)!r}, which has no "
            "stiffness and no damping; expected 0, with the force in tau"
        )


def _positions(name: str, values: np.ndarray, model: Any) -> None:
    _finite(name, values, model)
    arguments.nonzero_quaternions(name, values, model)


# The checks of the values of a `Servo` and of a `TendonServo`, by field.
SERVO_CHECKS = {
    "position": _positions,
    "velocity": _finite,
    "error": _finite,
    "force": _finite,
    "_force_without_gains": _no_force,
}
TENDON_SERVO_CHECKS = {
    "stiffness": _gains,
    "damping": _gains,
    "force_range": _force_ranges,
    "length": _finite,
    "rate": _finite,
}


def _servo_law(model: Model, q: Array, dt: Array, servo: Servo) -> ClippedLaw:
    law = independent_servo_law(model, q, dt, servo)
    return ClippedLaw(*(entries_of_all_joints(model, x, "v") for x in law))


def independent_servo_law(
    model: Model, q: Float[Array, " nq"], dt: Float[Array, ""], servo: Servo
) -> ClippedLaw:
    """The law (1, nv) of a servo that satisfies `require_servo`, for the independent joints."""
    stiffness, damping, effort = servo.control.checked_values(model, "servo.control.")
    velocity = 0 if servo.velocity is None else jnp.asarray(servo.velocity)
    force = 0 if servo.force is None else jnp.asarray(servo.force)
    if servo.position is not None:
        error = difference.unchecked(model, q, jnp.asarray(servo.position))
    else:
        error = jnp.asarray(servo.error)
    # Below, an effort that is not finite gives no bound. So an effort that is NaN must make the
    # gain NaN.
    gain = jnp.where(jnp.isnan(effort), jnp.nan, damping + dt * stiffness)
    driven = gain > 0
    target = (stiffness * error + damping * velocity + force) / jnp.where(driven, gain, 1)
    bounded = jnp.isfinite(effort)
    bound = jnp.where(bounded, dt * jnp.where(bounded, effort, 0), jnp.inf)
    # Without gains there is no impulse, so a traced force would be lost.
    target = jnp.where(driven, target, jnp.where(force == 0, 0, jnp.nan))
    return ClippedLaw(*(x[None] for x in (dt * gain, target, -bound, bound)))
