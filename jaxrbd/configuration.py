"""The configuration manifold: neutral and random points, steps along it, differences, rates.

Velocities are tangent vectors (nv,) as everywhere: body velocities for a free-flyer, angular
velocity in the child's frame for a ball joint. Mimic joints need no care here: they are functions
of the independent coordinates, which all of these take and return.

Quaternions in q are normalised where they are read, whatever their length. A zero quaternion is no
rotation: ArgumentError names its joint where the values of q are known (`arguments.known`), and a
traced one is read as the identity.
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
from .model.model import joint_groups
from .spatial import cross_motion

__all__ = [
    "configuration_rate",
    "difference",
    "integrate",
    "interpolate",
    "neutral",
    "random_configuration",
    "velocity_bracket",
]


def neutral(model: Model) -> Float[Array, " nq"]:
    """The configuration with every child frame on its joint's placement: zeros, unit quaternions.

    Limits are not consulted.
    """
    q = np.zeros(arguments.robot(model).topology.nq)
    for group in joint_groups(model):
        q[group.index["q"]] = group.joint.neutral()
    return jnp.asarray(q[_independent(model, "q")], model.dtype)


@arguments.compiled
def random_configuration(model: Model, key: PRNGKeyArray) -> Float[Array, " nq"]:
    """A random configuration (nq,), uniform within the limits.

    Where a limit is infinite: angles within pi of zero, lengths within 1 m; rotations are uniform
    on SO(3). `key`: a `jax.random` key.
    """
    keys = jax.random.split(key, max(len(arguments.robot(model).joints), 1))

    def draw(group, lower, upper):
        return group.joint.random(keys[group.number], lower, upper)

    return _by_kind(
        model, draw, (model.lower_position_limit, "q"), (model.upper_position_limit, "q"), gives="q"
    )


@arguments.compiled
def integrate(model: Model, q: ArrayLike, dv: ArrayLike) -> Float[Array, " nq"]:
    """The configuration (nq,) reached from q in unit time with the constant velocity dv.

    `q` (nq,), `dv` (nv,), that is velocity times time; exact on each joint's manifold, and the
    result's quaternions are unit. Raises ArgumentError on a wrong shape or dtype.
    """
    q, dv = arguments.configuration(model, q), arguments.velocity(model, dv, "dv")

    def step(group, q, v):
        return group.joint.integrate(q, v)

    return _by_kind(model, step, (q, "q"), (dv, "v"), gives="q")


@arguments.compiled
def difference(model: Model, q0: ArrayLike, q1: ArrayLike) -> Float[Array, " nv"]:
    """The constant velocity (nv,) that leads from q0 to q1 in unit time: inverse of `integrate`.

    `q0` and `q1` (nq,). Rotations of balls, planes and free-flyers go the shorter way. Raises
    ArgumentError on a wrong shape or dtype.
    """
    q0 = arguments.configuration(model, q0, "q0")
    q1 = arguments.configuration(model, q1, "q1")

    def step(group, a, b):
        return group.joint.difference(a, b)

    return _by_kind(model, step, (q0, "q"), (q1, "q"), gives="v")


@arguments.compiled
def interpolate(model: Model, q0: ArrayLike, q1: ArrayLike, alpha: ArrayLike):
    """The configuration (nq,) at the fraction `alpha` of the way from q0 to q1.

    `q0`, `q1` (nq,), `alpha` a number: 0 gives q0, 1 gives q1. Raises ArgumentError on a wrong
    shape or dtype.
    """
    alpha = arguments.number(model, alpha, "alpha")
    return integrate(model, q0, alpha * difference(model, q0, q1))


@arguments.compiled
def configuration_rate(model: Model, q: ArrayLike, v: ArrayLike) -> Float[Array, " nq"]:
    """The rate dq/dt (nq,) of the coordinates of a robot that moves with the velocity v.

    `q` (nq,), `v` (nv,): the derivative of `integrate(model, q, t v)` at t = 0. For an ordinary
    differential equation in q; adding `dt` times it to q leaves the manifold. Raises ArgumentError
    on a wrong shape or dtype.
    """
    q, v = arguments.configuration(model, q), arguments.velocity(model, v)
    return jax.jvp(lambda dv: integrate(model, q, dv), (jnp.zeros_like(v),), (v,))[1]


@arguments.compiled
def velocity_bracket(model: Model, u: ArrayLike, w: ArrayLike) -> Float[Array, " nv"]:
    """The Lie bracket [u, w] (nv,) of two velocities: by how much the motions do not commute.

    `u`, `w` (nv,): to second order, moving with u, w, -u, -w in turn is moving with [u, w]. It is 0
    where velocities are rates of coordinates. Raises ArgumentError on a wrong shape or dtype.
    """
    u, w = arguments.velocity(model, u, "u"), arguments.velocity(model, w, "w")
    return lie_operation(model, cross_motion, u, w)


def lie_operation(
    model: Model,
    operation: Callable[[Array, Array], Array],
    u: Float[Array, " nv"],
    w: Float[Array, " nv"],
) -> Float[Array, " nv"]:
    """An operation of motions on velocities, joint by joint: see `joints.lie_operation`."""

    def apply(group, u, w):
        return joints.lie_operation(group.joint, operation, u, w)

    return _by_kind(model, apply, (u, "v"), (w, "v"), gives="v")


def _by_kind(model: Model, function: Callable, *operands: tuple[Array, str], gives: str) -> Array:
    """Apply a function of the joints of one kind to their coordinates, kind by kind.

    An operand is an array over the independent coordinates and "q" or "v", the space it lies in;
    `gives` is the space of the result. Joints that follow others get zeros, and are dropped.
    """
    groups = joint_groups(model)
    spread = [(_spread(model, x, space), space) for x, space in operands]
    rows = []
    for group in groups:
        coordinates = [take_rows(x, group.index[space]) for x, space in spread]
        rows.append(function(group, *coordinates).reshape(-1))
    all_joints = merge_rows(rows, [g.index[gives].ravel() for g in groups], (), model.dtype)
    return take_rows(all_joints, _independent(model, gives))


def _independent(model: Model, space: str) -> np.ndarray:
    """The places of the independent coordinates among those of all joints, in "q" or in "v"."""
    if model.coupling is None:
        return np.arange(model.nq if space == "q" else model.nv)
    return np.array(getattr(model.coupling, f"{space}_independent"), int)


def _spread(model: Model, x: Array, space: str) -> Array:
    """An array over the independent coordinates as one over those of all joints."""
    if model.coupling is None:
        return x
    size = model.topology.nq if space == "q" else sum(model.joint_nvs)
    return jnp.zeros(size, x.dtype).at[_independent(model, space)].set(x)
