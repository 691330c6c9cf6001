"""Contact as a force: smooth in the state, so that simulations through it have gradients."""

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

    `f_ext` (nb, 6), for `forward_dynamics` and `rnea`: on the bodies, each in its own frame. Of
    each sphere: `distance` (n,) in m; `normal_force` (n,) in N, 0 or more, along the ground's
    normal; `friction_force` (n, 3) in N, in world axes.
    """

    f_ext: Float[Array, "nb 6"]
    distance: Float[Array, " n"]
    normal_force: Float[Array, " n"]
    friction_force: Float[Array, "n 3"]


@arguments.compiled
def contact_force(model: Model, scene: Scene, q: ArrayLike, v: ArrayLike) -> ContactForce:
    """Forces of a ground that yields: a stiffening spring with damping, and smoothed friction.

    `q` (nq,), `v` (nv,). With d the depth of a sphere in the ground, 0 outside, d' its rate, and
    stiffness k, dissipation c, friction coefficient mu and slip speed s of `scene.material`,

        f_n = k d^2 (c d' + sqrt(1 + (c d')^2)),     f_t = -mu f_n v_t / sqrt(|v_t|^2 + s^2),

    with v_t the velocity of the contact point along the ground. The factor is 1 + c d' to first
    order, as Hunt and Crossley (1975) have it, but positive at any speed: the ground never pulls.
    Its product with the factor at -d' is 1, so that damping always takes energy. Both forces are
    once continuously differentiable in q, v and all numbers, at touch-down and at rest too, and
    twice everywhere but at touch-down.

    What follows: a sphere rests at the depth sqrt(weight / k). Held against a force f along the
    ground below mu f_n it creeps, at the speed `s f / sqrt((mu f_n)^2 - f^2)`. On a mass m,
    semi-implicit Euler is stable for steps below `2 m s / (mu f_n)` and `2 sqrt(m / (2 k d))`.

    Where the distance's gradient is not of unit length (a `Height`, off its surface), the force is
    along the gradient and f_n is multiplied by that length, so that the elastic part has the
    potential `contact_energy` on any ground. Raises ArgumentError on a wrong shape or dtype, or an
    unknown frame.
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
    """Energy that the ground holds as a spring, in J: `k d^3 / 3`, summed over the spheres.

    `q` (nq,) or its `Kinematics`. Its negative gradient is the joint force of `contact_force` at
    rest; the rest of that force takes energy. Raises ArgumentError on a wrong shape or dtype, or an
    unknown frame.
    """
    points = contact_points(model, scene, q, jnp.zeros(arguments.robot(model).nv, model.dtype))
    stiffness = arguments.number(model, scene.material.stiffness, "stiffness")
    return stiffness * jnp.sum(jnp.maximum(-points.distance, 0) ** 3) / 3
