"""The configuration manifold: neutral and random configurations, integration, differences, rates.

A velocity (nv,) is a tangent vector of the manifold: the body velocity for a free-flyer, the
angular velocity in the child frame for a ball joint. Configurations and velocities contain the
independent coordinates alone. Joints that follow others, such as mimic joints, have no independent
coordinates.

The quaternions in q may have any length: every function with an argument q first normalizes them,
except `velocity_of_rate`. A zero quaternion is not a rotation. If q is in the memory of a CPU and
JAX does not trace it, a zero quaternion raises ArgumentError, which names the joint. Otherwise a
zero quaternion is read as the identity.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, PRNGKeyArray

from . import joints
from ._math.rows import merge_rows, take_rows
from .model import Model, arguments
from .model.joint_space import entries_of_all_joints, independent_entries, independent_index
from .model.model import joint_groups
from .spatial import cross_motion

__all__ = [
    "configuration_rate",
    "difference",
    "displace",
    "integrate",
    "interpolate",
    "neutral",
    "random_configuration",
    "transport",
    "turning_acceleration",
    "velocity_bracket",
]


def neutral(model: Model) -> Float[Array, " nq"]:
    """The configuration (nq,) of zeros and identity quaternions.

    The result does not depend on the arrays of the model, such as position limits. So the model may
    be a batch of models of one structure; the result is one configuration for all of them. Except
    for `joints.Custom` and for joints that follow others, every child frame coincides with the
    placement of its joint.
    """
    return jnp.asarray(neutral_coordinates(arguments.robot(model, batch=True)), model.dtype)


def neutral_coordinates(model: Model) -> np.ndarray:
    """The neutral configuration (nq,) in NumPy."""
    q = np.zeros(model.topology.nq)
    for group in joint_groups(model):
        q[group.index["q"]] = group.joint.neutral()
    return q[independent_index(model, "q")]


@arguments.compiled
def random_configuration(model: Model, key: PRNGKeyArray) -> Float[Array, " nq"]:
    """A random configuration (nq,), uniform within the position limits.

    `key`: a `jax.random` key. Without limits, angles and the coordinates of `joints.Screw` are
    within pi of zero, and lengths and the coordinates of `joints.Custom` within 1 of zero. With one
    limit, the range is at least pi or 1. Rotations are uniform on SO(3).
    """
    kinds = arguments.robot(model).joints
    key = arguments.typed_keys(key, "key", 0)
    keys = jax.random.split(key, max(len(kinds), 1))

    def draw(group, lower, upper):
        return group.joint.random(keys[group.number], lower, upper)

    return _by_kind(
        model, draw, (model.lower_position_limit, "q"), (model.upper_position_limit, "q"), gives="q"
    )


@arguments.compiled(arrays=("q", "dv"))
def integrate(model: Model, q: Array, dv: Array) -> Float[Array, " nq"]:
    """The configuration (nq,) that the robot reaches from q in unit time with the velocity dv.

    `q` (nq,); `dv` (nv,): the constant velocity times the time. The result is exact on the manifold
    of each joint, and its quaternions have unit length.
    """

    def step(group, q, v):
        return group.joint.integrate(q, v)

    return _by_kind(model, step, (q, "q"), (dv, "v"), gives="q")


@arguments.compiled(arrays=("q", "dx"))
def displace(model: Model, q: Array, dx: Array) -> Float[Array, " nq"]:
    """The configuration (nq,) after a displacement dx whose translations have fixed axes.

    `q` (nq,); `dx` (nv,). As `integrate`, except for joints whose linear velocity is in axes that
    turn with the child: free-flyers and planar joints. For these joints, the translation of dx is
    along the axes at q, and the rotation of dx turns the child about its origin.
    """

    def step(group, q, dx):
        return group.joint.displace(q, dx)

    return _by_kind(model, step, (q, "q"), (dx, "v"), gives="q")


@arguments.compiled(arrays=("v", "dx"))
def transport(model: Model, v: Array, dx: Array) -> Float[Array, " nv"]:
    """The velocity v (nv,), with its linear velocities in the axes after a displacement dx.

    In `v` (nv,), the linear velocities are in the axes before the displacement; `dx` (nv,) as for
    `displace`. Only the linear velocities of free-flyers and planar joints change, because their
    axes turn with the child. The entries of angular velocities do not change.
    """

    def turn(group, v, dx):
        return group.joint.transport(v, dx)

    return _by_kind(model, turn, (v, "v"), (dx, "v"), gives="v")


@arguments.compiled(arrays=("v",))
def turning_acceleration(model: Model, v: Array) -> Float[Array, " nv"]:
    """The rates (nv,) of linear velocities in fixed axes while the entries of v stay constant.

    `v` (nv,). For free-flyers and planar joints, the rate of the linear velocity u is `w x u`,
    because its axes turn with the angular velocity w. All other entries are zero.
    """

    def rate(group, v):
        return group.joint.turning_acceleration(v)

    return _by_kind(model, rate, (v, "v"), gives="v")


@arguments.compiled(arrays=("q0", "q1"))
def difference(model: Model, q0: Array, q1: Array) -> Float[Array, " nv"]:
    """The constant velocity (nv,) from q0 to q1 in unit time: the inverse of `integrate`.

    `q0`, `q1` (nq,). Ball joints, planar joints and free-flyers rotate by the smaller angle.
    """

    def step(group, a, b):
        return group.joint.difference(a, b)

    return _by_kind(model, step, (q0, "q"), (q1, "q"), gives="v")


@arguments.compiled(arrays=("q", "rate"))
def velocity_of_rate(model: Model, q: Array, rate: Array) -> Float[Array, " nv"]:
    """The velocity (nv,) at which the coordinates q (nq,) have the rate dq/dt = `rate` (nq,).

    It is the inverse of `configuration_rate` for unit quaternions. The rate of the length of a
    quaternion has no effect.
    """

    def velocity(group, q, rate):
        return group.joint.velocity_of_rate(q, rate)

    return _by_kind(model, velocity, (q, "q"), (rate, "q"), gives="v")


@arguments.compiled(arrays=("q0", "q1"), checks={"alpha": arguments.FINITE})
def interpolate(model: Model, q0: Array, q1: Array, alpha: ArrayLike):
    """The configuration (nq,) at the fraction `alpha` of the motion from q0 to q1.

    `q0`, `q1` (nq,); `alpha` (), finite: 0 gives q0, with unit quaternions. 1 gives a configuration
    with the poses of q1: a quaternion may have the other sign, and the angle of a planar joint may
    differ by a multiple of 2 pi.
    """
    alpha = arguments.number(model, alpha, "alpha")
    return integrate.unchecked(model, q0, alpha * difference.unchecked(model, q0, q1))


@arguments.compiled(arrays=("q", "v"))
def configuration_rate(model: Model, q: Array, v: Array) -> Float[Array, " nq"]:
    """The rate dq/dt (nq,) of the coordinates of a robot that moves with the velocity v.

    `q` (nq,), `v` (nv,). The rate is the derivative of `integrate(model, q, t v)` at t = 0. It is
    for solvers of ordinary differential equations in q. A finite step `q + dt dq/dt` leaves the
    manifold.
    """
    zero = jnp.zeros_like(v)
    return jax.jvp(lambda dv: integrate.unchecked(model, q, dv), (zero,), (v,))[1]


@arguments.compiled(arrays=("u", "w"))
def velocity_bracket(model: Model, u: Array, w: Array) -> Float[Array, " nv"]:
    """The Lie bracket [u, w] (nv,) of two velocities.

    `u`, `w` (nv,). Let a robot move with u, w, -u and -w, each for unit time. To second order, the
    robot reaches the same configuration as with [u, w] in unit time. The bracket is 0 for joints
    whose velocities are rates of coordinates.
    """
    return lie_operation(model, cross_motion, u, w)


def lie_operation(
    model: Model,
    operation: Callable[[Array, Array], Array],
    u: Float[Array, " nv"],
    w: Float[Array, " nv"],
) -> Float[Array, " nv"]:
    """An operation on motions, applied to velocities joint by joint: see `joints.lie_operation`."""

    def apply(group, u, w):
        return joints.lie_operation(group.joint, operation, u, w)

    return _by_kind(model, apply, (u, "v"), (w, "v"), gives="v")


def _by_kind(model: Model, function: Callable, *operands: tuple[Array, str], gives: str) -> Array:
    """Apply a function to the coordinates or velocities of all joints of a kind, for each kind.

    Each operand is a pair: an array over the independent coordinates, and the space of the array,
    "q" or "v". `gives` is the space of the result. For joints that follow others, the operands are
    zero, and the results are dropped.
    """
    groups = joint_groups(model)
    spread = [(entries_of_all_joints(model, x, space), space) for x, space in operands]
    rows = []
    for group in groups:
        coordinates = [take_rows(x, group.index[space]) for x, space in spread]
        rows.append(function(group, *coordinates).reshape(-1))
    all_joints = merge_rows(rows, [g.index[gives].ravel() for g in groups], (), model.dtype)
    return independent_entries(model, all_joints, gives)
