"""Contact forces as arrows: points and forces in the world."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..algorithms import forward_kinematics
from ..configuration import difference
from ..contact import Scene, contact_force, contact_points
from ..contact.scene import scene_for
from ..model import Model
from ..spatial import transform_point
from .drawing import Drawing
from .motion import Motion


class ContactArrows(NamedTuple):
    """Contact forces of B robots at T times, on n spheres.

    - `points` (B, T, n, 3): the centres of the spheres in the world, in m;
    - `forces` (B, T, n, 3): the forces of the ground on the spheres, in N, in world axes.
    """

    points: np.ndarray
    forces: np.ndarray


@jax.jit
def _arrows(model: Model, scene: Scene, q: jax.Array, v: jax.Array):
    bodies = scene.bodies(model)

    def one(q, v):
        kinematics = forward_kinematics(model, q)
        X = jax.tree.map(lambda x: x[bodies], kinematics.X_WB)
        points = transform_point(X, scene.centres(model))
        contact = contact_force(model, scene, kinematics, v)
        normals = contact_points(model, scene, kinematics, v).normal
        n = len(bodies)
        return points, contact.normal_force[:n, None] * normals + contact.friction_force[:n]

    return jax.vmap(one)(q, v)


def contact_arrows(model: Model, scene: Scene, motion: Motion, dt: float) -> ContactArrows:
    """The forces of the ground on the spheres of a scene along a motion, by `contact_force`.

    `dt`: the time between two configurations of the motion, in s. The velocity of a configuration
    is its difference to the next configuration, divided by `dt`. The last configuration has the
    velocity of the configuration before it; a single configuration is at rest. The forces between
    shapes of `scene.pairs` are not part of the result.
    """
    scene = scene_for(model, scene)
    q = jnp.asarray(motion.q, model.dtype)
    v = jnp.zeros((*q.shape[:2], model.nv), model.dtype)
    if q.shape[1] > 1:
        steps = jax.vmap(jax.vmap(lambda a, b: difference(model, a, b)))(q[:, :-1], q[:, 1:])
        v = jnp.concatenate([steps, steps[:, -1:]], axis=1) / jnp.asarray(dt, model.dtype)
    points, forces = _arrows(model, scene, q.reshape(-1, model.nq), v.reshape(-1, model.nv))
    shape = (*q.shape[:2], -1, 3)
    return ContactArrows(
        np.asarray(points, float).reshape(shape), np.asarray(forces, float).reshape(shape)
    )


def arrow_scale(model: Model, drawing: Drawing, size: float) -> float:
    """The length of an arrow per force, in m/N: `size` is the length for the robot's weight."""
    weight = float(np.sum(drawing.masses) * np.linalg.norm(np.asarray(model.gravity, float)))
    return size / (weight or 1.0)
