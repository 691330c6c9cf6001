"""Compliant contact: a force that is smooth in the state, so simulations have gradients."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ..algorithms.kinematics import Kinematics, forward_kinematics
from ..model import Model, arguments
from .contacts import contact_bodies, contact_wrenches, find_contacts, relative
from .coulomb import spin_moments, with_spins
from .points import point_motions
from .scene import Scene, lengths_and_normals, scene_for, tangential


class ContactForce(NamedTuple):
    """The contact forces on a robot: first of n spheres, then of the m contacts of the pairs.

    - `f_ext` (nb, 6): external forces in the body frames, for `forward_dynamics` and `rnea`;
    - `distance` (n + m,): the distances, in m;
    - `normal_force` (n + m,): the force on each sphere along the normal of the ground, or on the
      first shape of the pair along the normal of the contact, in N, 0 or more;
    - `friction_force` (n + m, 3): the friction forces on the same shapes, in N, in world axes;
    - `moment` (n + m, 3): the moments of torsional and rolling friction on the same shapes, about
      the contact points, in N m, in world axes; zeros without such friction.
    """

    f_ext: Float[Array, "nb 6"]
    distance: Float[Array, " contacts"]
    normal_force: Float[Array, " contacts"]
    friction_force: Float[Array, "contacts 3"]
    moment: Float[Array, "contacts 3"]


@arguments.compiled(arrays=("q", "v"))
def contact_force(model: Model, scene: Scene, q: Array | Kinematics, v: Array) -> ContactForce:
    """Contact forces of compliant ground: a stiffening spring, damping and smoothed friction.

    `q` (nq,) or its `Kinematics`, `v` (nv,). Let d be the depth of a contact, which is 0 where the
    shapes, enlarged by the margin, are apart, and d' the rate of d. With the stiffness k,
    dissipation c, friction coefficient mu and slip speed s of `scene.material`,

        f_n = k d^2 (c d' + sqrt(1 + (c d')^2)),     f_t = -mu f_n v_t / sqrt(|v_t|^2 + s^2),

    where v_t is the velocity of the contact point along the ground. With torsional or rolling
    friction, v_t has further components: angular velocities, scaled by lengths (`Scene.spin`). The
    same components of f_t give the `moment`. To first order, the factor in brackets is 1 + c d', as
    in Hunt and Crossley (1975). The factor is positive at any speed, so the ground never pulls. The
    factor is above 1 while the depth grows and below 1 while the depth shrinks, so damping always
    dissipates energy. For spheres on a smooth ground, both forces are once continuously
    differentiable in q, v and all parameters, also at touch-down and at rest. Except at touch-down
    they are twice continuously differentiable.

    Consequences:

    - a sphere rests at the depth sqrt(weight / k);
    - under a force f along the ground with f < mu f_n, a sphere creeps at the speed
      `s f / sqrt((mu f_n)^2 - f^2)`;
    - for a mass m, semi-implicit Euler is stable for time steps below both `2 m s / (mu f_n)` and
      `2 sqrt(m / (2 k d))`, if the dissipation is 0. Dissipation lowers the second bound.

    The gradient of the distance may have a length other than 1. For example, the distance from a
    `Height`, the ground `z = height(xy)`, is approximate, and its gradient has the length 1 only on
    the surface. The normal force is then along the gradient, and f_n is multiplied by this length.
    So the elastic force has the potential `contact_energy` on any ground. Raises ArgumentError for
    an unknown frame. Traced parameters of the material out of their range give NaN.
    """
    kinematics = forward_kinematics.unchecked(model, q)
    scene = scene_for(model, scene)
    material = scene.material
    found, bodies = find_contacts(model, scene, kinematics), contact_bodies(model, scene)
    motions = point_motions(model, kinematics, bodies, found.arm, v)
    velocity, angular = (relative(scene, x) for x in motions)
    depth = jnp.maximum(-found.distance, 0)
    dissipation = arguments.NOT_NEGATIVE.or_nan(jnp.asarray(material.dissipation))
    stiffness = arguments.NOT_NEGATIVE.or_nan(jnp.asarray(material.stiffness))
    damping = -jnp.sum(found.gradient * velocity, axis=-1) * dissipation
    push = depth**2 * stiffness * (damping + jnp.sqrt(1 + damping**2))

    length, normal = lengths_and_normals(found.gradient)
    normal_force = push * length
    spin = scene.spin(normal)
    slip = with_spins(spin, tangential(normal, velocity), angular)
    slip_speed = arguments.POSITIVE.or_nan(jnp.asarray(material.slip_speed))
    speed = jnp.sqrt(jnp.sum(slip * slip, axis=-1) + slip_speed**2)
    friction = -(normal_force * scene.friction / speed)[:, None] * slip

    f = friction + jnp.pad(push[:, None] * found.gradient, ((0, 0), (0, spin.shape[1])))
    f_ext = contact_wrenches(model, scene, kinematics, found.arm, spin, f)
    moment = spin_moments(spin, friction)
    return ContactForce(f_ext, found.distance + scene.margin, normal_force, friction[:, :3], moment)


@arguments.compiled(arrays=("q",))
def contact_energy(model: Model, scene: Scene, q: Array | Kinematics) -> Float[Array, ""]:
    """Elastic energy in J: the sum of `k d^3 / 3` over all contacts, with the depth d.

    `q` (nq,) or its `Kinematics`. The negative gradient with respect to q is the generalized force
    of `contact_force` at v = 0. At other v, `contact_force` also has damping and friction, which
    dissipate energy. Raises ArgumentError for an unknown frame. A traced stiffness that is negative
    gives NaN.
    """
    scene = scene_for(model, scene)
    found = find_contacts(model, scene, forward_kinematics.unchecked(model, q))
    stiffness = arguments.number(model, scene.material.stiffness, "stiffness")
    stiffness = arguments.NOT_NEGATIVE.or_nan(stiffness)
    return stiffness * jnp.sum(jnp.maximum(-found.distance, 0) ** 3) / 3
