"""The configuration manifold: neutral and random points, steps along it, and differences.

Velocities are tangent vectors (nv,) as everywhere: body velocities for a free-flyer, angular
velocity in the child's frame for a ball joint. Mimic joints need no care here: they are functions
of the independent coordinates, which all of these take and return.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, PRNGKeyArray

from . import arguments
from .model import Model, joint_groups, merge_rows, take_rows, tree_motion, tree_position


def neutral(model: Model) -> Float[Array, " nq"]:
    """The configuration with every child frame on its joint's placement: zeros, unit quaternions.

    Limits are not consulted.
    """
    q = np.zeros(model.topology.nq)
    for group in joint_groups(model):
        q[group.index["q"]] = group.joint.neutral()
    return _independent_q(model, jnp.asarray(q, model.dtype))


@jax.jit
def random_configuration(model: Model, key: PRNGKeyArray) -> Float[Array, " nq"]:
    """A random configuration (nq,), uniform within the limits.

    Where a limit is infinite: angles within pi of zero, lengths within 1 m; rotations are uniform
    on SO(3). `key`: a `jax.random` key.
    """
    keys = jax.random.split(key, max(len(model.joints), 1))

    def draw(group, lower, upper):
        return group.joint.random(keys[group.number], lower, upper)

    lower = tree_position(model, model.lower_position_limit)
    upper = tree_position(model, model.upper_position_limit)
    q = _by_kind(model, draw, (lower, "q"), (upper, "q"), gives="q")
    return _independent_q(model, q)


@jax.jit
def integrate(model: Model, q: ArrayLike, dv: ArrayLike) -> Float[Array, " nq"]:
    """The configuration (nq,) reached from q in unit time with the constant velocity dv.

    `q` (nq,), `dv` (nv,), that is velocity times time; exact on each joint's manifold, and the
    result's quaternions are unit. Raises ArgumentError on a wrong shape or dtype.
    """
    q, dv = arguments.configuration(model, q), arguments.velocity(model, dv, "dv")
    operands = (tree_position(model, q), "q"), (tree_motion(model, dv), "v")
    step = _by_kind(model, lambda group, q, v: group.joint.integrate(q, v), *operands, gives="q")
    return _independent_q(model, step)


@jax.jit
def difference(model: Model, q0: ArrayLike, q1: ArrayLike) -> Float[Array, " nv"]:
    """The constant velocity (nv,) that leads from q0 to q1 in unit time: inverse of `integrate`.

    `q0` and `q1` (nq,). Rotations of balls, planes and free-flyers go the shorter way. Raises
    ArgumentError on a wrong shape or dtype.
    """
    q0 = tree_position(model, arguments.configuration(model, q0, "q0"))
    q1 = tree_position(model, arguments.configuration(model, q1, "q1"))
    operands = (q0, "q"), (q1, "q")
    dv = _by_kind(model, lambda group, a, b: group.joint.difference(a, b), *operands, gives="v")
    return _independent_v(model, dv)


@jax.jit
def interpolate(model: Model, q0: ArrayLike, q1: ArrayLike, alpha: ArrayLike):
    """The configuration (nq,) at the fraction `alpha` of the way from q0 to q1.

    `q0`, `q1` (nq,), `alpha` a number: 0 gives q0, 1 gives q1. Raises ArgumentError on a wrong
    shape or dtype.
    """
    alpha = arguments.array(model, jnp.asarray(alpha, model.dtype), "alpha", (), "a number")
    return integrate(model, q0, alpha * difference(model, q0, q1))


def _by_kind(model: Model, function: Callable, *operands: tuple[Array, str], gives: str) -> Array:
    """Apply a function of the joints of one kind to their coordinates, kind by kind.

    An operand is an array over the tree's coordinates and "q" or "v", the space it lies in;
    `gives` is the space of the result.
    """
    groups = joint_groups(model)
    rows = []
    for group in groups:
        own = [take_rows(x, group.index[space]) for x, space in operands]
        rows.append(function(group, *own).reshape(-1))
    return merge_rows(rows, [group.index[gives].ravel() for group in groups], (), model.dtype)


def _independent_q(model: Model, q: Array) -> Array:
    return q if model.coupling is None else q[np.array(model.coupling.q_independent)]


def _independent_v(model: Model, v: Array) -> Array:
    return v if model.coupling is None else v[np.array(model.coupling.v_independent)]
