"""All contacts of a robot: spheres on the ground, and pairs of shapes.

A contact acts on a point a of one body and, for a pair, on a point b of another body. The points
are listed as `[a of all contacts, b of the pairs]`. For n spheres on the ground and m pairs there
are n + m contacts and n + 2 m points. The body of a point is -1 if the point is fixed to the world.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from ..algorithms.kinematics import Kinematics, root_positions
from ..algorithms.places import bodies_of, find_places, poses_from_root, poses_in_bodies
from ..errors import ArgumentError
from ..model import Model
from ..spatial import (
    Pose,
    compose,
    inverse_rotate,
    inverse_transform_point,
    rotate,
    transform_point,
)
from .coulomb import spin_moments
from .placed_pairs import placed_contacts
from .points import body_wrenches
from .scene import Scene, contact_points
from .shapes import CapsulePairs, CollisionPairs, SphereBoxPairs

# For corners of a box, another box is wider by this fraction of the smaller half sizes.
_MARGIN = 0.01
# The direction, in world axes, that selects the face through which two boxes with equal centres
# leave each other. No component is zero, so that both boxes choose opposite faces.
_SKEW = (0.36, 0.48, 0.8)


class Contacts(NamedTuple):
    """The geometry of n + m contacts.

    - `distance` (n + m,) in m: negative where the shapes, enlarged by the margin, overlap;
    - `gradient` (n + m, 3): the gradients of the distances with respect to the points a, in world
      axes; for pairs, unit vectors from b to a;
    - `arm` (n + 2 m, 3) in m: the points in the frames of their bodies.
    """

    distance: Float[Array, " k"]
    gradient: Float[Array, "k 3"]
    arm: Float[Array, "points 3"]


def contact_bodies(model: Model, scene: Scene) -> np.ndarray:
    """The body of each point, (n + 2 m,), or -1. Raises ArgumentError for an unknown frame."""
    bodies = scene.bodies(model)
    a, b = (bodies_of(model, frames) for frames in (scene.pairs.frames_a, scene.pairs.frames_b))
    for i in np.flatnonzero(a == b):
        frames = scene.pairs.frames_a[i], scene.pairs.frames_b[i]
        raise ArgumentError(
            f"the shapes of a pair in frames {frames!r} do not move relative to each other"
        )
    return np.concatenate([bodies, a, b])


def find_contacts(model: Model, scene: Scene, kinematics: Kinematics) -> Contacts:
    """The contacts of a scene, whose parameters have the dtype of the model."""
    ground = contact_points.unchecked(model, scene, kinematics, jnp.zeros(model.nv, model.dtype))
    pairs = scene.pairs
    if not pairs:  # a shortcut: JAX would trace the geometry of no pairs
        return Contacts(ground.distance - scene.margin, ground.gradient, ground.arm)
    p_WR = root_positions(model, kinematics)[0]
    found = []
    if len(pairs) > len(pairs.placed):
        found.append(_round_contacts(model, pairs, kinematics, p_WR))
    if pairs.placed:
        found.append(_placed_contacts(model, scene, kinematics, p_WR))
    distance, gradient, a, b = (jnp.concatenate(parts) for parts in zip(*found))
    return Contacts(
        jnp.concatenate([ground.distance, distance]) - scene.margin,
        jnp.concatenate([ground.gradient, gradient]),
        jnp.concatenate([ground.arm, a, b]),
    )


class _PairContacts(NamedTuple):
    """Distances (m,), gradients (m, 3), and the points a and b (m, 3) in the frames of bodies."""

    distance: Array
    gradient: Array
    a: Array
    b: Array


def _round_contacts(
    model: Model, pairs: CollisionPairs, kinematics: Kinematics, p_WR: Array
) -> _PairContacts:
    """The contacts of the pairs of capsules, and of the pairs of a sphere and a box."""
    n_capsules, size = len(pairs.capsules.radius_a), len(pairs) - len(pairs.placed)
    frames = (pairs.frames_a[:size], pairs.frames_b[:size])
    places = [find_places(model, kinematics, x) for x in frames]
    X_a, X_b = (poses_from_root(place, p_WR) for place in places)
    bodies_a, bodies_b = (place.bodies[n_capsules:] for place in places)
    order = np.where(bodies_a < bodies_b, 1, -1)
    found = [
        _capsules(pairs.capsules, *jax.tree.map(lambda x: x[:n_capsules], (X_a, X_b))),
        _spheres_and_boxes(pairs.boxes, order, *jax.tree.map(lambda x: x[n_capsules:], (X_a, X_b))),
    ]
    distance, normal, a, b = (jnp.concatenate(parts) for parts in zip(*found))
    arms = [
        transform_point(place.X_BF, inverse_transform_point(X, point))
        for place, X, point in zip(places, (X_a, X_b), (a, b))
    ]
    return _PairContacts(distance, normal, *arms)


def _placed_contacts(
    model: Model, scene: Scene, kinematics: Kinematics, p_WR: Array
) -> _PairContacts:
    """The contacts of `PlacedPairs`."""
    pairs = scene.pairs.placed
    X_FS = jax.tree.map(lambda *x: jnp.stack(x), *(shape.X_FS for shape in pairs.shapes))
    places = find_places(model, kinematics, [shape.frame for shape in pairs.shapes], X_FS)
    X = poses_from_root(places, p_WR)
    found = placed_contacts(pairs, scene.ground.distance, X, p_WR)

    def arms(points: Array, shapes: np.ndarray) -> Array:
        """Points of shapes in the frames of the bodies of the shapes."""
        X_BS, X_RS = jax.tree.map(lambda x: x[shapes], (places.X_BF, X))
        return transform_point(X_BS, inverse_transform_point(X_RS, points))

    # The ground is fixed to the world, so its points count nowhere.
    a, b = pairs.contact_members.T
    return _PairContacts(
        found.distance, found.gradient, arms(found.a, a), arms(found.b, np.maximum(b, 0))
    )


def reference_spheres(
    model: Model, scene: Scene
) -> tuple[Float[Array, "points 3"], Float[Array, " points"]]:
    """For each point, the centre of its shape in the body frame, and the size of the shape in m.

    The sizes at the points b are negative. The scene has the dtype of the model.
    """
    capsules, boxes = scene.pairs.capsules, scene.pairs.boxes
    half_lengths = [
        _direction((end - start) / 2)[0]
        for start, end in ((capsules.start_a, capsules.end_a), (capsules.start_b, capsules.end_b))
    ]
    a = jnp.concatenate([(capsules.start_a + capsules.end_a) / 2, boxes.centre])
    b = jnp.concatenate([(capsules.start_b + capsules.end_b) / 2, boxes.box_centre])
    size_a = jnp.concatenate([capsules.radius_a + half_lengths[0], boxes.radius])
    box_size = jnp.mean(boxes.half_sizes, axis=-1) + boxes.rounding
    size_b = jnp.concatenate([capsules.radius_b + half_lengths[1], box_size])
    placed_a, placed_b = scene.pairs.placed.reference_spheres(model.dtype)
    a, b = (jnp.concatenate([x, y]) for x, (y, _) in ((a, placed_a), (b, placed_b)))
    sizes = [jnp.concatenate([x, y]) for x, (_, y) in ((size_a, placed_a), (size_b, placed_b))]
    X_a, X_b = (
        poses_in_bodies(model, frames) for frames in (scene.pairs.frames_a, scene.pairs.frames_b)
    )
    return (
        jnp.concatenate([scene.centres(model), transform_point(X_a, a), transform_point(X_b, b)]),
        jnp.concatenate([scene.radii, sizes[0], -sizes[1]]),
    )


def relative(scene: Scene, x: Float[Array, "points ..."]) -> Float[Array, "contacts ..."]:
    """The values at the points a; for pairs, minus the values at the points b."""
    n, m = len(scene.frames), len(scene.pairs)
    return jnp.concatenate([x[:n], x[n : n + m] - x[n + m :]])


def opposed(scene: Scene, f: Float[Array, "contacts 3"]) -> Float[Array, "points 3"]:
    """Forces on the points: f at the points a and -f at the points b."""
    return jnp.concatenate([f, -f[len(scene.frames) :]])


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


def _capsules(pairs: CapsulePairs, X_a: Pose, X_b: Pose):
    """Distances, normals and contact points of pairs of capsules."""
    a_0, a_1 = transform_point(X_a, pairs.start_a), transform_point(X_a, pairs.end_a)
    b_0, b_1 = transform_point(X_b, pairs.start_b), transform_point(X_b, pairs.end_b)
    s, t = closest_points(a_0, a_1, b_0, b_1)
    a, b = a_0 + s[:, None] * (a_1 - a_0), b_0 + t[:, None] * (b_1 - b_0)
    length, normal = _direction(a - b)
    distance = length - pairs.radius_a - pairs.radius_b
    return (
        distance,
        normal,
        a - pairs.radius_a[:, None] * normal,
        b + pairs.radius_b[:, None] * normal,
    )


def closest_points(
    a_0: Float[Array, "m 3"],
    a_1: Float[Array, "m 3"],
    b_0: Float[Array, "m 3"],
    b_1: Float[Array, "m 3"],
) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
    """The fractions s and t, from 0 to 1, of the closest points of segments a and b.

    The closest points are `a_0 + s (a_1 - a_0)` and `b_0 + t (b_1 - b_0)`. For parallel segments
    the points are in the middle of the part in which the segments face each other. Each segment
    may be a point. Source: Ericson (2005), Real-time collision detection, section 5.1.9.
    """
    da, db, r = a_1 - a_0, b_1 - b_0, b_0 - a_0
    aa, bb, ab = _dot(da, da), _dot(db, db), _dot(da, db)
    ar, br = _dot(da, r), _dot(db, r)
    # The fractions of a that are closest to the two ends of b.
    first, second = _fraction(ar, aa), _fraction(ar + ab, aa)
    determinant = aa * bb - ab * ab
    crossing = determinant > 16 * jnp.finfo(aa.dtype).eps * aa * bb
    s = jnp.where(
        crossing,
        _fraction(ar * bb - br * ab, jnp.where(crossing, determinant, 0)),
        (first + second) / 2,
    )
    t = _fraction(s * ab - br, bb)
    # If t was limited, the closest point of b is an end of b. So compute s again for the final t.
    return _fraction(ar + t * ab, aa), t


def _spheres_and_boxes(pairs: SphereBoxPairs, order: np.ndarray, X_a: Pose, X_b: Pose):
    """Distances, normals and contact points of pairs of a sphere and a box.

    The sphere may be in a corner of another box, a. `order` (m,): 1 or -1, with opposite signs if
    the shapes a and b are exchanged. It decides on which side two boxes with equal centres leave
    each other.
    """
    X_box = compose(X_b, Pose(pairs.rotation, pairs.box_centre))
    centre = inverse_transform_point(X_box, transform_point(X_a, pairs.centre))
    half = pairs.half_sizes
    # The face gives the normal of centres in the box. For a corner of box a, it is the face along
    # whose normal both boxes overlap least. Other spheres have reach 0 and get the nearest face.
    middle = inverse_transform_point(X_box, transform_point(X_a, pairs.corner_centre))
    axes = [rotate(X_a.R, pairs.corner_axes[..., j]) for j in range(3)]
    reach = sum(jnp.abs(inverse_rotate(X_box.R, axis)) for axis in axes)
    overlap = half + reach - jnp.abs(middle)
    face = jnp.argmin(overlap, axis=-1)[:, None] == np.arange(3)[None]
    skew = inverse_rotate(X_box.R, jnp.asarray(order[:, None] * np.array(_SKEW), half.dtype))
    negative = middle + jnp.sqrt(jnp.finfo(half.dtype).eps) * reach * skew < 0
    # Corners that are slightly beyond an edge of the face are on the face too.
    margin = lax.stop_gradient(jnp.where(face, 0, _MARGIN * jnp.minimum(reach, half)))
    wide = half + margin
    outside = jnp.any(jnp.abs(centre) > wide, axis=-1)
    length, away = _direction(centre - jnp.clip(centre, -wide, wide))
    to_face = jnp.where(face, jnp.where(negative, -1, 1).astype(half.dtype), 0)
    gap = jnp.where(outside, length, jnp.sum(to_face * centre - jnp.where(face, half, 0), axis=-1))
    normal = jnp.where(outside[:, None], away, to_face)
    a = centre - pairs.radius[:, None] * normal
    b = centre - (gap - pairs.rounding)[:, None] * normal
    distance = gap - pairs.rounding - pairs.radius
    a, b = transform_point(X_box, a), transform_point(X_box, b)
    return distance, rotate(X_box.R, normal), a, b


def _fraction(x: Array, y: Array) -> Array:
    """x / y, limited to the range from 0 to 1; 0 where y is 0."""
    positive = y > 0
    return jnp.clip(jnp.where(positive, x / jnp.where(positive, y, 1), 0), 0, 1)


def _dot(a: Array, b: Array) -> Array:
    return jnp.sum(a * b, axis=-1)


def _direction(x: Array) -> tuple[Array, Array]:
    """The lengths and directions of vectors; the direction of a zero vector is the z axis."""
    square = _dot(x, x)
    positive = square > 0
    length = jnp.sqrt(jnp.where(positive, square, 1))
    z = jnp.asarray([0, 0, 1], x.dtype)
    direction = jnp.where(positive[:, None], x / length[:, None], z)
    return jnp.where(positive, length, 0), direction
