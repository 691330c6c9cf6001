"""Compliant contact: a force that is smooth in the state, so simulations have gradients."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from ..algorithms.kinematics import Kinematics, forward_kinematics
from ..model import Model, arguments
from ..spatial import inverse_rotate
from .scene import Scene, contact_points, cross, tangential


class ContactForce(NamedTuple):
    """The forces of the ground on a robot.

    - `f_ext` (nb, 6): external forces in the body frames, for `forward_dynamics` and `rnea`;
    - `distance` (n,): the distance of each contact sphere of the scene from the ground, in m;
    - `normal_force` (n,): the force on each sphere along the normal of the ground, in N, 0 or more;
    - `friction_force` (n, 3): the friction force on each sphere, in N, in world axes.
    """

    f_ext: Float[Array, "nb 6"]
    distance: Float[Array, " n"]
    normal_force: Float[Array, " n"]
    friction_force: Float[Array, "n 3"]


@arguments.compiled
def contact_force(
    model: Model, scene: Scene, q: ArrayLike | Kinematics, v: ArrayLike
) -> ContactForce:
    """Contact forces of compliant ground: a stiffening spring, damping and smoothed friction.

    `q` (nq,) or its `Kinematics`, `v` (nv,). Let d be the depth of a sphere in the ground, which is
    0 outside the ground, and d' the rate of d. With the stiffness k, dissipation c, friction
    coefficient mu and slip speed s of `scene.material`,

        f_n = k d^2 (c d' + sqrt(1 + (c d')^2)),     f_t = -mu f_n v_t / sqrt(|v_t|^2 + s^2),

    where v_t is the velocity of the contact point along the ground. To first order the factor in
    brackets is 1 + c d', as in Hunt and Crossley (1975). The factor is positive at any speed, so
    the ground never pulls. The factor is above 1 while the depth grows and below 1 while the depth
    shrinks, so damping always dissipates energy. Both forces are once continuously differentiable
    in q, v and all parameters, also at touch-down and at rest. Except at touch-down they are twice
    continuously differentiable.

    Consequences:

    - a sphere rests at the depth sqrt(weight / k);
    - under a force f along the ground with f < mu f_n, a sphere creeps at the speed
      `s f / sqrt((mu f_n)^2 - f^2)`;
    - for a mass m, semi-implicit Euler is stable for time steps below both `2 m s / (mu f_n)` and
      `2 sqrt(m / (2 k d))`.

    The gradient of the distance may have a length other than 1. For example, the distance from a
    `Height`, the ground `z = height(xy)`, is approximate, and its gradient has the length 1 only on
    the surface. The normal force is then along the gradient, and f_n is multiplied by this length.
    So the elastic force has the potential `contact_energy` on any ground. Raises ArgumentError for
    an unknown frame.
    """
    kinematics = forward_kinematics(model, q)
    points = contact_points(model, scene, kinematics, v)
    scene = scene.astype(model.dtype)
    material = scene.material
    depth = jnp.maximum(-points.distance, 0)
    damping = -jnp.sum(points.gradient * points.velocity, axis=-1) * material.dissipation
    push = depth**2 * material.stiffness * (damping + jnp.sqrt(1 + damping**2))

    normal = points.normal
    normal_force = push * jnp.sum(normal * points.gradient, axis=-1)
    slip = tangential(normal, points.velocity)
    speed = jnp.sqrt(jnp.sum(slip * slip, axis=-1) + material.slip_speed**2)
    friction = -(normal_force * material.friction / speed)[:, None] * slip

    bodies = scene.bodies(model)
    f = inverse_rotate(kinematics.X_WB.R[bodies], push[:, None] * points.gradient + friction)
    wrenches = jnp.concatenate([f, cross(points.arm, f)], axis=-1)
    f_ext = jnp.zeros((model.nb, 6), model.dtype).at[bodies].add(wrenches)
    return ContactForce(f_ext, points.distance, normal_force, friction)


@arguments.compiled
def contact_energy(model: Model, scene: Scene, q: ArrayLike | Kinematics) -> Float[Array, ""]:
    """Elastic energy of the ground in J: `k d^3 / 3`, summed over the spheres.

    `q` (nq,) or its `Kinematics`. The negative gradient in q is the generalized force of
    `contact_force` at v = 0. The damping and the friction, which `contact_force` adds at other v,
    dissipate energy. Raises ArgumentError for an unknown frame.
    """
    points = contact_points(model, scene, q, jnp.zeros(arguments.robot(model).nv, model.dtype))
    stiffness = arguments.number(model, scene.material.stiffness, "stiffness")
    return stiffness * jnp.sum(jnp.maximum(-points.distance, 0) ** 3) / 3
