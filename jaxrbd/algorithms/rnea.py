"""Inverse dynamics: the recursive Newton-Euler algorithm."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from ..model import Model, arguments
from ..model.joint_space import (
    armature_and_dissipation_force,
    generalized_force,
    joint_poses,
    relative_accelerations,
    relative_velocities,
)
from ..spatial import apply_inertia, cross_motion, gyroscopic_force
from ..tree import accumulate, propagate


@arguments.compiled
def rnea(
    model: Model, q: ArrayLike, v: ArrayLike, a: ArrayLike, f_ext: ArrayLike | None = None
) -> Float[Array, " nv"]:
    """Joint forces that give the robot the acceleration a: `M(q) a + bias(q, v) - J^T f_ext`.

    - `q` (nq,), `v` (nv,), `a` (nv,): configuration, velocity, acceleration;
    - `f_ext` (nb, 6): external force on each body, [N; N m], in the *body's own* frame, acting on
      the body; None is no force. `external_force` makes it from a force on a frame.

    Returns tau (nv,), in N or N m; the armature's share is included, joint damping and friction
    are not. Raises ArgumentError on a wrong shape or dtype. Source: Featherstone, table 5.1.
    """
    q = arguments.configuration(model, q)
    v = arguments.velocity(model, v)
    a = arguments.velocity(model, a, "a")
    X = joint_poses(model, q)
    vJ = relative_velocities(model, q, v)
    V = propagate(model.topology, X, vJ)
    aJ = relative_accelerations(model, q, v, a) + cross_motion(V, vJ)
    A = propagate(model.topology, X, aJ, world=gravity_acceleration(model))
    f = apply_inertia(model.inertia, A) + gyroscopic_force(model.inertia, V)
    if f_ext is not None:
        f = f - arguments.wrenches(model, f_ext)
    F = accumulate(model.topology, X, f)
    return generalized_force(model, q, F) + armature_and_dissipation_force(model, q, v, a)


@arguments.compiled
def bias_force(
    model: Model, q: ArrayLike, v: ArrayLike, f_ext: ArrayLike | None = None
) -> Float[Array, " nv"]:
    """Joint forces at zero acceleration: Coriolis, centrifugal and gravity forces, (nv,).

    The `C(q, v)` of Featherstone's (3.1), with gravity and `-J^T f_ext` in it. Arguments as for
    `rnea`, in N or N m. Raises ArgumentError on a wrong shape or dtype.
    """
    return rnea(model, q, v, jnp.zeros(arguments.robot(model).nv, model.dtype), f_ext)


@arguments.compiled
def gravity_force(model: Model, q: ArrayLike) -> Float[Array, " nv"]:
    """Joint forces that hold the robot at rest, (nv,) in N or N m.

    The gradient of `potential_energy` in the tangent space. `q` (nq,). Raises ArgumentError on a
    wrong shape or dtype. Source: Featherstone, table 5.1 at v = a = 0.
    """
    q = arguments.configuration(model, q)
    X = joint_poses(model, q)
    at_rest = jnp.zeros((model.nb, 6), model.dtype)
    A = propagate(model.topology, X, at_rest, world=gravity_acceleration(model))
    F = accumulate(model.topology, X, apply_inertia(model.inertia, A))
    return generalized_force(model, q, F)


@arguments.compiled
def static_torque(
    model: Model, q: ArrayLike, f_ext: ArrayLike | None = None
) -> Float[Array, " nv"]:
    """Joint forces that hold the robot at rest under external forces: `gravity - J^T f_ext`, (nv,).

    `q` (nq,), `f_ext` (nb, 6) as in `rnea`; in N or N m. Raises ArgumentError on a wrong shape or
    dtype. Source: Featherstone, table 5.1 at v = a = 0.
    """
    at_rest = jnp.zeros(arguments.robot(model).nv, model.dtype)
    return rnea(model, q, at_rest, at_rest, f_ext)


def gravity_acceleration(model: Model) -> Float[Array, "6"]:
    """The acceleration `[-g; 0]` of the world that stands for gravity on every body."""
    return jnp.concatenate([-model.gravity, jnp.zeros_like(model.gravity)])
