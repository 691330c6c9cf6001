"""Inverse dynamics: the recursive Newton-Euler algorithm."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ..model import Model, arguments
from ..model.joint_space import (
    armature_and_dissipation_force,
    generalized_force,
    relative_accelerations,
    relative_velocities,
)
from ..spatial import apply_inertia, cross_motion, from_linear, inertial_force
from ..tree import accumulate, map_rows, propagate
from .kinematics import Kinematics, configuration_of, poses_in_parents


@arguments.compiled(arrays=("q", "v", "a", "f_ext"))
def rnea(
    model: Model,
    q: Array | Kinematics,
    v: Array,
    a: Array,
    f_ext: Array | None = None,
) -> Float[Array, " nv"]:
    """Joint forces that give the robot the acceleration a: `M(q) a + bias(q, v) - J^T f_ext`.

    - `q` (nq,) or its `Kinematics`, `v` (nv,), `a` (nv,): configuration, velocity, and its time
      derivative. The velocity of a free-flyer is in the axes of its body;
    - `f_ext` (nb, 6): external force on each body, [N; N m], in the body's frame (default zero).
      `external_force` computes `f_ext` from a wrench on a frame.

    Returns tau (nv,), in N or N m. tau includes the forces that accelerate the armature. tau
    includes damping and friction only for a model made by `Model.with_dissipation`.
    Source: Featherstone, table 5.1.
    """
    F = joint_wrenches.unchecked(model, q, v, a, f_ext)
    q = configuration_of(q)
    return generalized_force(model, q, F) + armature_and_dissipation_force(model, q, v, a)


@arguments.compiled(arrays=("q", "v", "a", "f_ext"))
def joint_wrenches(
    model: Model,
    q: Array | Kinematics,
    v: Array,
    a: Array,
    f_ext: Array | None = None,
) -> Float[Array, "nb 6"]:
    """Forces that the joints transmit from parent to child, `[N; N m]`, (nb, 6).

    Row i is the whole spatial force that joint i applies to body i, in the frame of body i. It
    includes the constraint force of the joint and the driving force of its motor, but not the force
    that accelerates the armature. Arguments as for `rnea`. Source: Featherstone, table 5.1: `f_i`
    after the backward pass.
    """
    X = poses_in_parents(model, q)
    q = configuration_of(q)
    vJ = relative_velocities(model, q, v)
    V = propagate(model.topology, X, vJ)
    aJ = map_rows(_joint_acceleration, relative_accelerations(model, q, v, a), V, vJ)
    A = propagate(model.topology, X, aJ, world=gravity_acceleration(model))
    f = map_rows(inertial_force, model.inertia, V, A)
    if f_ext is not None:
        f = f - f_ext
    return accumulate(model.topology, X, f)


def _joint_acceleration(aJ: Array, V: Array, vJ: Array) -> Array:
    return aJ + cross_motion(V, vJ)


@arguments.compiled(arrays=("q", "v", "f_ext"))
def bias_force(
    model: Model, q: Array | Kinematics, v: Array, f_ext: Array | None = None
) -> Float[Array, " nv"]:
    """Joint forces at zero acceleration, (nv,): `rnea` with a = 0.

    The result is Featherstone's C(q, v) of equation (3.1): Coriolis, centrifugal and gravity
    forces, `-J^T f_ext`, and dissipation as in `rnea`.
    Arguments as for `rnea`. The result is in N or N m.
    """
    return rnea.unchecked(model, q, v, jnp.zeros_like(v), f_ext)


@arguments.compiled(arrays=("q",))
def gravity_force(model: Model, q: Array | Kinematics) -> Float[Array, " nv"]:
    """Joint forces that hold the robot at rest against gravity, (nv,) in N or N m.

    `q` (nq,) or its `Kinematics`. The result is the gradient of `potential_energy` in the tangent
    space. Source: Featherstone, table 5.1 at v = a = 0.
    """
    X = poses_in_parents(model, q)
    at_rest = jnp.zeros((model.nb, 6), model.dtype)
    A = propagate(model.topology, X, at_rest, world=gravity_acceleration(model))
    F = accumulate(model.topology, X, apply_inertia(model.inertia, A))
    return generalized_force(model, configuration_of(q), F)


@arguments.compiled(arrays=("q", "f_ext"))
def static_torque(
    model: Model, q: Array | Kinematics, f_ext: Array | None = None
) -> Float[Array, " nv"]:
    """Joint forces that hold the robot at rest under external forces, `gravity - J^T f_ext`, (nv,).

    `q` (nq,) or its `Kinematics`; `f_ext` (nb, 6) as in `rnea`. The result is in N or N m.
    Source: Featherstone, table 5.1 at v = a = 0.
    """
    at_rest = jnp.zeros(model.nv, model.dtype)
    return rnea.unchecked(model, q, at_rest, at_rest, f_ext)


def gravity_acceleration(model: Model) -> Float[Array, "6"]:
    """The acceleration `[-g; 0]` of the world frame, which has the same effect as gravity."""
    return from_linear(-model.gravity)
