"""All contacts of a robot: spheres on the ground, and pairs of shapes.

A contact acts on a point a of one body and, for a pair, on a point b of another body. The points
are listed as `[a of all contacts, b of the pairs]`. For n spheres on the ground and pairs with m
contacts there are n + m contacts and n + 2 m points. The body of a point is -1 if the point is
fixed to the world.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ..algorithms.kinematics import Kinematics, root_positions
from ..algorithms.places import bodies_of, poses_from_root, poses_in_bodies
from ..collision.robot_shapes import shape_places
from ..errors import ArgumentError
from ..model import Model
from ..spatial import inverse_transform_point, transform_point
from .coulomb import spin_moments, with_spins
from .points import body_wrenches, point_jacobians, point_motions
from .scene import Scene, contact_points
from .shape_pairs import GROUND, pair_contacts


class Contacts(NamedTuple):
    """The geometry of n + m contacts.

    - `distance` (n + m,) in m: negative where the shapes, enlarged by the margin, overlap;
    - `gradient` (n + m, 3): the gradients of the distances with respect to the points a, in world
      axes; for two shapes, the unit normals that point from the second shape to the first;
    - `arm` (n + 2 m, 3) in m: the points in the frames of their bodies. A force and its reaction
      act at one point: for a pair of moving shapes, in the middle of the nearest points of both.
    """

    distance: Float[Array, " k"]
    gradient: Float[Array, "k 3"]
    arm: Float[Array, "points 3"]


def contact_bodies(model: Model, scene: Scene) -> np.ndarray:
    """The body of each point, (n + 2 m,), or -1.

    Raises ArgumentError for an unknown frame, and for a pair of shapes on the same body.
    """
    frames_a, frames_b = scene.pairs.frames
    a, b = (bodies_of(model, frames) for frames in (frames_a, frames_b))
    for i in np.flatnonzero(a == b):
        frames = frames_a[i], frames_b[i]
        raise ArgumentError(
            f"the shapes of a pair in frames {frames!r} do not move relative to each other"
        )
    return np.concatenate([scene.bodies(model), a, b])


def find_contacts(model: Model, scene: Scene, kinematics: Kinematics) -> Contacts:
    """The contacts of a scene, whose parameters have the dtype of the model."""
    ground = contact_points.unchecked(model, scene, kinematics, jnp.zeros(model.nv, model.dtype))
    pairs = scene.pairs
    if not pairs:  # a shortcut: JAX would trace the geometry of no pairs
        return Contacts(ground.distance - scene.margin, ground.gradient, ground.arm)
    p_WR = root_positions(model, kinematics)[0]
    places = shape_places(model, kinematics, pairs.shapes)
    X = poses_from_root(places, p_WR)
    found = pair_contacts(pairs, scene.ground.distance, X, p_WR)

    def arms(points: Array, shapes: np.ndarray) -> Array:
        """Points of shapes in the frames of the bodies of the shapes."""
        X_BS, X_RS = jax.tree.map(lambda x: x[shapes], (places.X_BF, X))
        return transform_point(X_BS, inverse_transform_point(X_RS, points))

    # The ground and the shapes in the world are fixed, so the positions of their points do not
    # matter. The ground has no shape; shape 0 takes its place in `arms`.
    a, b = pairs.contact_members.T
    moving = np.array([shape.frame is not None for shape in pairs.shapes])
    both = (moving[a] & (b != GROUND) & moving[b])[:, None]
    middle = (found.a + found.b) / 2
    point_a, point_b = (jnp.where(both, middle, x) for x in (found.a, found.b))
    return Contacts(
        jnp.concatenate([ground.distance, found.distance]) - scene.margin,
        jnp.concatenate([ground.gradient, found.gradient]),
        jnp.concatenate([ground.arm, arms(point_a, a), arms(point_b, np.maximum(b, 0))]),
    )


def reference_spheres(
    model: Model, scene: Scene
) -> tuple[Float[Array, "points 3"], Float[Array, " points"]]:
    """For each point, the centre of its shape in the body frame, and the size of the shape in m.

    The sizes at the points b are negative. The scene has the dtype of the model.
    """
    centres, sizes = [scene.centres(model)], [scene.radii]
    if scene.pairs:
        found = scene.pairs.reference_spheres(model.dtype)
        for (p, size), frames, sign in zip(found, scene.pairs.frames, (1, -1)):
            centres.append(transform_point(poses_in_bodies(model, frames), p))
            sizes.append(sign * size)
    return jnp.concatenate(centres), jnp.concatenate(sizes)


def relative(scene: Scene, x: Float[Array, "points ..."]) -> Float[Array, "contacts ..."]:
    """The values at the points a. For pairs, the values at the points b are subtracted."""
    n, m = len(scene.frames), len(scene.pairs)
    return jnp.concatenate([x[:n], x[n : n + m] - x[n + m :]])


def opposed(scene: Scene, f: Float[Array, "contacts 3"]) -> Float[Array, "points 3"]:
    """Forces on the points: f at the points a and -f at the points b."""
    return jnp.concatenate([f, -f[len(scene.frames) :]])


def contact_velocities(
    model: Model,
    scene: Scene,
    kinematics: Kinematics,
    arm: Float[Array, "points 3"],
    spin: Float[Array, "contacts s 3"],
    v: Float[Array, " nv"],
) -> Float[Array, "contacts d"]:
    """The velocities u of the contacts; `arm`: as in `Contacts`; `spin`: as in `ContactLaw`."""
    motions = point_motions(model, kinematics, contact_bodies(model, scene), arm, v)
    return with_spins(spin, *(relative(scene, x) for x in motions))


def contact_jacobians(
    model: Model,
    scene: Scene,
    kinematics: Kinematics,
    columns: Float[Array, "nv_tree 6"],
    arm: Float[Array, "points 3"],
    spin: Float[Array, "contacts s 3"],
) -> Float[Array, "contacts d nv"]:
    """The Jacobians of `contact_velocities`; `columns`: as for `point_jacobians`."""
    J = point_jacobians(model, kinematics, columns, contact_bodies(model, scene), arm)
    return with_spins(spin, relative(scene, J[:, :3]), relative(scene, J[:, 3:]))


def contact_wrenches(
    model: Model,
    scene: Scene,
    kinematics: Kinematics,
    arm: Float[Array, "points 3"],
    spin: Float[Array, "contacts s 3"],
    f: Float[Array, "contacts d"],
) -> Float[Array, "nb 6"]:
    """The wrenches on the bodies of contact forces f (n + m, 3 + s), as `f_ext` of `rnea`.

    `arm`: as in `Contacts`; `spin`: as in `ContactLaw`.
    """
    moments = opposed(scene, spin_moments(spin, f)) if spin.shape[1] else None
    bodies = contact_bodies(model, scene)
    return body_wrenches(model, kinematics, bodies, arm, opposed(scene, f[:, :3]), moments)
