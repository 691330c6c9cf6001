"""What is computed from labelled quantities: energy, power, momentum's rate, points, exp and log.

Every function raises FrameError where its arguments' frames do not fit, and ArgumentError where an
argument is of another type. That a base is inertial is the caller's word: labels cannot show it.
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
    """The centre of mass, in the inertia's frame; the origin where the mass is zero."""
    require_types("center_of_mass", (inertia, SpatialInertia))
    return Point(spatial.inertia_center_of_mass(inertia.array), frame=inertia.frame)


def kinetic_energy(inertia: SpatialInertia, twist: Twist) -> Float[Array, ""]:
    """Kinetic energy `T . I T / 2` in J, of a body with this twist relative to an inertial base."""
    require_types("kinetic_energy", (inertia, SpatialInertia), (twist, Twist))
    require_one_frame("kinetic_energy", inertia, twist)
    return jnp.sum(twist.array * spatial.apply_inertia(inertia.array, twist.array)) / 2


def dot(wrench: Wrench, twist: Twist) -> Float[Array, ""]:
    """Power in W of a wrench on a body with this twist: `f . v + n . w`."""
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
    """The cross product of two quantities that are expressed in one frame.

    - of twists, `T x U`: the rate of the twist U where it moves with the twist T, as a spatial
      acceleration of U's body relative to U's base;
    - of a twist and a momentum, `T x* h`: the rate of the momentum where it moves with T, a wrench;
    - of free vectors, `a x b`.

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
    """The wrench `I A + T x* (I T)` that gives a body this acceleration, gravity's included.

    Acceleration and twist are of the body relative to a base, which must be inertial: then the
    wrench is the rate of the body's momentum. They are expressed in the body or in the base; in a
    third frame, which may move, the derivative of the twist's coordinates is not the acceleration,
    and FrameError is raised: `transform` first.
    """
    types = (inertia, SpatialInertia), (acceleration, SpatialAcceleration), (twist, Twist)
    require_types("newton_euler", *types)
    require_one_frame("newton_euler", inertia, acceleration)
    _require_motion("newton_euler", acceleration, twist)
    force = spatial.apply_inertia(inertia.array, acceleration.array)
    force = force + spatial.gyroscopic_force(inertia.array, twist.array)
    return Wrench(force, frame=inertia.frame)


def point_velocity(twist: Twist, point: Point) -> FreeVector:
    """Velocity `v + w x p` relative to the base, in m/s, of a point fixed to the body."""
    require_types("point_velocity", (twist, Twist), (point, Point))
    require_one_frame("point_velocity", twist, point)
    return FreeVector(_velocity(twist.array, point.array), frame=twist.frame)


def point_acceleration(twist: Twist, acceleration: SpatialAcceleration, point: Point) -> FreeVector:
    """Acceleration relative to the base, in m/s^2, of a point fixed to the body.

    `A_v + A_w x p + w x (v + w x p)`: the second derivative of its position in the base, in the
    axes of the frame. Twist and acceleration as for `newton_euler`.
    """
    types = (twist, Twist), (acceleration, SpatialAcceleration), (point, Point)
    require_types("point_acceleration", *types)
    require_one_frame("point_acceleration", twist, point)
    _require_motion("point_acceleration", acceleration, twist)
    turning = jnp.cross(twist.array[3:], _velocity(twist.array, point.array))
    return FreeVector(_velocity(acceleration.array, point.array) + turning, frame=twist.frame)


def exp(twist: Twist) -> Transform:
    """The transform from body to base of exponential coordinates, expressed in the base.

    Where the body gets in unit time from the base with this constant twist.
    """
    require_types("exp", (twist, Twist))
    require(twist.frame == twist.base, "exp", "it expressed in its base", twist)
    return Transform(se3.exp(twist.array), from_=twist.body, to=twist.base)


def log(t: Transform) -> Twist:
    """Exponential coordinates of a transform, with angle in [0, pi]: `exp(log(t))` is t.

    The twist of `t.from_` relative to `t.to`, expressed in `t.to`, that leads from the identity to
    t in unit time. It and its derivatives are right at the identity too.
    """
    require_types("log", (t, Transform))
    return Twist(se3.log(t.pose), body=t.from_, base=t.to, frame=t.to)


def log_with_time_derivative(t: Transform, twist: Twist) -> tuple[Twist, SpatialAcceleration]:
    """`log(t)` and its time derivative, where `t.from_` moves with this twist relative to `t.to`.

    The twist may be expressed in its body or in its base; the results are expressed in `t.to`. The
    derivative is `J_r(log)^-1 T` of the twist in the body, `J_l(log)^-1 T` of that in the base.
    Source: Bullo and Murray (1995), section 2; Sola, Deray and Atchuthan (2018), section III-B.
    """
    operation = "log_with_time_derivative"
    require_types(operation, (t, Transform), (twist, Twist))
    fits = (twist.body, twist.base) == (t.from_, t.to)
    expected = f'the twist of "{t.from_}" relative to "{t.to}"'
    require(fits, operation, expected, t, twist)
    _require_expressed_at_an_end(operation, twist)
    xi = log(t)
    in_body = twist.frame == twist.body
    inverse = se3.right_jacobian_inverse if in_body else se3.left_jacobian_inverse
    rate = matmul(inverse(xi.array), twist.array)
    return xi, SpatialAcceleration(rate, body=xi.body, base=xi.base, frame=xi.frame)


def _velocity(motion: Array, point: Array) -> Array:
    return motion[:3] + jnp.cross(motion[3:], point)


def _require_motion(operation: str, acceleration: SpatialAcceleration, twist: Twist) -> None:
    require_same_motion(operation, acceleration, twist)
    _require_expressed_at_an_end(operation, acceleration)


def _require_expressed_at_an_end(operation: str, x: Twist | SpatialAcceleration) -> None:
    at_an_end = x.frame in (x.body, x.base)
    require(at_an_end, operation, "it expressed in its body or its base", x)
