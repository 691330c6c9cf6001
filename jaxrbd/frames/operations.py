"""Functions of labelled quantities: energy, power, wrenches, point motion, exp and log.

Every function raises FrameError if the frames of its arguments do not fit, and ArgumentError if an
argument has the wrong type. The labels do not state whether a frame is inertial. If a docstring
requires an inertial base, the function does not check this requirement.
"""

from __future__ import annotations

from typing import overload

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from .. import se3, spatial
from .._math.linear import matmul
from .quantities import (
    FreeVector,
    Momentum,
    Point,
    SpatialAcceleration,
    SpatialInertia,
    Transform,
    Twist,
    Wrench,
    require,
    require_one_frame,
    require_same_motion,
    require_types,
)


def center_of_mass(inertia: SpatialInertia) -> Point:
    """The centre of mass in the frame of the inertia. It is the origin if the mass is zero."""
    require_types("center_of_mass", (inertia, SpatialInertia))
    return Point(spatial.inertia_center_of_mass(inertia.array), frame=inertia.frame)


def kinetic_energy(inertia: SpatialInertia, twist: Twist) -> Float[Array, ""]:
    """Kinetic energy `T . I T / 2` () in J of a body with spatial inertia I and twist T.

    The base of the twist must be an inertial frame.
    """
    require_types("kinetic_energy", (inertia, SpatialInertia), (twist, Twist))
    require_one_frame("kinetic_energy", inertia, twist)
    return jnp.sum(twist.array * spatial.apply_inertia(inertia.array, twist.array)) / 2


def dot(wrench: Wrench, twist: Twist) -> Float[Array, ""]:
    """Power `f . v + n . w` () in W of a wrench `[f; n]` on a body with the twist `[v; w]`."""
    require_types("dot", (wrench, Wrench), (twist, Twist))
    require_one_frame("dot", wrench, twist)
    return jnp.sum(wrench.array * twist.array)


@overload
def cross(x: Twist, y: Twist) -> SpatialAcceleration: ...


@overload
def cross(x: Twist, y: Momentum) -> Wrench: ...


@overload
def cross(x: FreeVector, y: FreeVector) -> FreeVector: ...


def cross(
    x: Twist | FreeVector, y: Twist | Momentum | FreeVector
) -> SpatialAcceleration | Wrench | FreeVector:
    """The cross product of two quantities that are expressed in the same frame.

    - Two twists: `T x U`, the rate of a twist U with constant coordinates in a frame that moves
      with the twist T. The result is a spatial acceleration with the body and the base of U.
    - A twist and a momentum: `T x* h`, the rate of a momentum h with constant coordinates in a
      frame that moves with the twist T. The result is a wrench.
    - Two free vectors: `a x b`.

    Source: SE(3) sheet of Pinocchio, section 6.
    """
    if not isinstance(x, Twist) or isinstance(y, FreeVector):
        require_types("cross", (x, FreeVector), (y, FreeVector))
        require_one_frame("cross", x, y)
        return FreeVector(jnp.cross(x.array, y.array), frame=x.frame)
    if isinstance(y, Momentum):
        require_one_frame("cross", x, y)
        return Wrench(spatial.cross_force(x.array, y.array), frame=x.frame)
    require_types("cross", (y, Twist))
    require_one_frame("cross", x, y)
    rate = spatial.cross_motion(x.array, y.array)
    return SpatialAcceleration(rate, body=y.body, base=y.base, frame=y.frame)


def newton_euler(
    inertia: SpatialInertia, acceleration: SpatialAcceleration, twist: Twist
) -> Wrench:
    """Net wrench on a body: the sum of all wrenches, including gravity, `I A + T x* (I T)`.

    I is the `inertia` of the body. A and T are the `acceleration` and the `twist` of the body
    relative to an inertial base. The result is the rate of the momentum of the body.

    I, A and T must be expressed in the same frame, which must be the body frame or the base frame.
    Any other frame raises FrameError. A `SpatialAcceleration` is the time derivative of the
    coordinates of a twist in a frame. In a third frame, which may move, this rate is not the
    spatial acceleration A of the formula. Use `transform` to change to the body frame or the base
    frame.
    """
    types = (inertia, SpatialInertia), (acceleration, SpatialAcceleration), (twist, Twist)
    require_types("newton_euler", *types)
    require_one_frame("newton_euler", inertia, acceleration)
    _require_motion("newton_euler", acceleration, twist)
    force = spatial.apply_inertia(inertia.array, acceleration.array)
    force = force + spatial.gyroscopic_force(inertia.array, twist.array)
    return Wrench(force, frame=inertia.frame)


def point_velocity(twist: Twist, point: Point) -> FreeVector:
    """Velocity `v + w x p` in m/s, relative to the base, of a point p fixed to the body."""
    require_types("point_velocity", (twist, Twist), (point, Point))
    require_one_frame("point_velocity", twist, point)
    return FreeVector(_point_motion(twist.array, point.array), frame=twist.frame)


def point_acceleration(twist: Twist, acceleration: SpatialAcceleration, point: Point) -> FreeVector:
    """Acceleration in m/s^2, relative to the base, of a point p fixed to the body.

    For a twist `[v; w]` and an acceleration `[A_v; A_w]` this is `A_v + A_w x p + w x (v + w x p)`:
    the second time derivative of the position of the point in the base, expressed in the frame of
    the twist. Twist and acceleration must have the same body and the same base. Twist, acceleration
    and point must be expressed in the same frame, which must be the body frame or the base frame.
    """
    types = (twist, Twist), (acceleration, SpatialAcceleration), (point, Point)
    require_types("point_acceleration", *types)
    require_one_frame("point_acceleration", twist, point)
    _require_motion("point_acceleration", acceleration, twist)
    turning = jnp.cross(twist.array[3:], _point_motion(twist.array, point.array))
    return FreeVector(_point_motion(acceleration.array, point.array) + turning, frame=twist.frame)


def exp(twist: Twist) -> Transform:
    """The transform from body to base that a constant twist reaches from the identity in unit time.

    The twist must be expressed in the base frame.
    """
    require_types("exp", (twist, Twist))
    require(twist.frame == twist.base, "exp", "the base frame", twist)
    return Transform(se3.exp(twist.array), from_=twist.body, to=twist.base)


def log(t: Transform) -> Twist:
    """Exponential coordinates of a transform, with angle in [0, pi]: `exp(log(t))` is t.

    The result is the constant twist of `t.from_` relative to `t.to`, expressed in `t.to`, that
    leads from the identity to t in unit time. The function is smooth also at the identity.
    """
    require_types("log", (t, Transform))
    return Twist(se3.log(t.pose), body=t.from_, base=t.to, frame=t.to)


def log_with_time_derivative(t: Transform, twist: Twist) -> tuple[Twist, SpatialAcceleration]:
    """`log(t)` and its time derivative, for the twist of `t.from_` relative to `t.to`.

    The twist T must be expressed in the body frame `t.from_` or in the base frame `t.to`. Both
    results are expressed in `t.to`. With the right and left Jacobians J_r and J_l of SE(3), the
    derivative is `J_r(log(t))^-1 T` for T in the body frame, and `J_l(log(t))^-1 T` for T in the
    base frame.
    Source: Bullo and Murray (1995), section 2; Sola, Deray and Atchuthan (2018), section III-B.
    """
    operation = "log_with_time_derivative"
    require_types(operation, (t, Transform), (twist, Twist))
    fits = (twist.body, twist.base) == (t.from_, t.to)
    expected = f'the twist of "{t.from_}" relative to "{t.to}"'
    require(fits, operation, expected, t, twist)
    _require_body_or_base_frame(operation, twist)
    xi = log(t)
    in_body = twist.frame == twist.body
    inverse = se3.right_jacobian_inverse if in_body else se3.left_jacobian_inverse
    rate = matmul(inverse(xi.array), twist.array)
    return xi, SpatialAcceleration(rate, body=xi.body, base=xi.base, frame=xi.frame)


def _point_motion(motion: Array, point: Array) -> Array:
    """The linear part (3,) of a spatial motion (6,) at a point (3,)."""
    return motion[:3] + jnp.cross(motion[3:], point)


def _require_motion(operation: str, acceleration: SpatialAcceleration, twist: Twist) -> None:
    """Raise FrameError unless both are of one motion, in the body frame or the base frame."""
    require_same_motion(operation, acceleration, twist)
    _require_body_or_base_frame(operation, acceleration)


def _require_body_or_base_frame(operation: str, x: Twist | SpatialAcceleration) -> None:
    fits = x.frame in (x.body, x.base)
    require(fits, operation, "the body frame or the base frame", x)
