"""The contacts of pairs of shapes that may touch, and of shapes on the ground.

A pair has one contact if one of its shapes is a sphere or an ellipsoid, or if both are capsules. A
pair of a capsule and a shape of another kind has two, and all other pairs have four
(`collision/patches.py`). A shape on the ground has as many contacts as in a pair with a half-space.
On a plane its contacts are exact. On another ground they are the points of the shape that are
lowest along the normal of the ground at the shape.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._math.cast import cast, select
from .._math.components import norm
from .._math.linear import matmul
from ..collision.distances import Batch, batches_of
from ..collision.height_grid import HeightGrid
from ..collision.patches import core_patch, face_points, spread, tangents
from ..collision.robot_shapes import PlacedShape, require_members
from ..collision.segments import segment_separation
from ..collision.shapes import Box, Capsule, Ellipsoid, HalfSpace, Sphere, core_of
from ..errors import ArgumentError
from ..model import arguments
from ..model.arguments import Parameter
from ..spatial import Pose, inverse_compose, inverse_rotate, rotate, transform_point

# The index of the ground in the members of a pair.
GROUND = -1


class CollisionPairs(eqx.Module):
    """Pairs of shapes, and shapes on the ground, that may touch. `collision_pairs` makes them.

    - `shapes`: the shapes;
    - `members`: the pairs (i, j) of indices of shapes a and b; j is -1 for the ground.

    The length is the number of contacts. The contacts are in the order of the pairs. Raises
    ArgumentError as `collision_pairs`, for members that are no pairs of different indices, and for
    a half-space or a shape in the world on the ground.
    """

    shapes: tuple[PlacedShape, ...]
    members: tuple[tuple[int, int], ...] = eqx.field(static=True)

    def __check_init__(self):
        require_members(self.shapes, self.members, GROUND)
        for shape in self.shapes:
            if isinstance(shape.shape, HeightGrid):
                raise ArgumentError(
                    f"the pairs have the HeightGrid {shape.name!r}, expected it as the ground"
                )
        for i, j in self.members:
            a, b = (self.shapes[k] for k in (i, j))
            if j == GROUND:
                if a.frame is None or isinstance(a.shape, HalfSpace):
                    raise ArgumentError(f"{a.name} on the ground, expected a shape on the robot")
            elif a.frame is None and b.frame is None:
                raise ArgumentError(f"both shapes of the pair {a.name}, {b.name} are in the world")

    def __len__(self) -> int:
        return int(np.sum(self.counts))

    @property
    def are_segments(self) -> np.ndarray:
        """Whether both shapes of each pair are spheres or capsules."""
        flags = [isinstance(shape.shape, Sphere | Capsule) for shape in self.shapes]
        return np.array([j != GROUND and flags[i] and flags[j] for i, j in self.members], bool)

    @property
    def counts(self) -> np.ndarray:
        """The number of contacts of each pair."""
        sizes = [_number_of_points(shape.shape) for shape in self.shapes] + [
            _number_of_points(HalfSpace())
        ]
        counts = np.array([min(sizes[i], sizes[j]) for i, j in self.members], int)
        return np.where(self.are_segments, 1, counts)

    @property
    def contact_members(self) -> np.ndarray:
        """The members of each contact, (m, 2)."""
        return np.repeat(np.array(self.members, int).reshape(-1, 2), self.counts, axis=0)

    @property
    def frames(self) -> tuple[list[str | int | None], list[str | int | None]]:
        """The frames of the shapes a and of the shapes b of each contact."""
        frames = [*(shape.frame for shape in self.shapes), None]
        a, b = self.contact_members.T
        return [frames[i] for i in a], [frames[j] for j in b]

    def reference_spheres(self, dtype: np.dtype) -> list[tuple[Array, Array]]:
        """For the shapes a and b of all contacts: their centres (m, 3) in their frames, and sizes.

        The centre is the middle of the box around the shape, along the axes of the shape. The size
        (m,) of a capsule is the distance of its ends from its centre. The size of another shape is
        its mean half width along its axes. The size of a half-space and of the ground is 0.
        """
        spheres = [_sphere(shape, dtype) for shape in self.shapes]
        spheres.append((jnp.zeros(3, dtype), jnp.zeros((), dtype)))  # of the ground
        p, size = (jnp.stack(x) for x in zip(*spheres))
        return [(p[i], size[i]) for i in self.contact_members.T]


def collision_pairs(pairs: Iterable[tuple[PlacedShape, PlacedShape]]) -> CollisionPairs:
    """The pairs of a `Scene` from pairs of shapes.

    A sphere or an ellipsoid has one contact with any shape, and so have two capsules. A capsule has
    two contacts with another shape. Other shapes have four.

    Raises ArgumentError for two shapes that are both fixed in the world by `frame=None`, for two
    half-spaces, for a shape that is paired with itself, for a `HeightGrid`, which can be the ground
    of a scene, and for objects of another type.
    """
    return pairs_and_ground(pairs, ())


def pairs_and_ground(
    pairs: Iterable[tuple[PlacedShape, PlacedShape]], on_ground: Iterable[PlacedShape]
) -> CollisionPairs:
    """As `collision_pairs`, and after the pairs the shapes on the ground."""
    pairs, on_ground = arguments.sequence(pairs, "pairs", "pairs of shapes"), list(on_ground)
    for i, pair in enumerate(pairs):
        if len(arguments.sequence(pair, f"pairs[{i}]", "two shapes")) != 2:
            raise ArgumentError(f"pairs[{i}] has {len(pair)} entries, expected two shapes")
    shapes = {id(shape): shape for shape in itertools.chain(*pairs, on_ground)}
    for shape in shapes.values():
        if not isinstance(shape, PlacedShape):
            raise ArgumentError(f"the pairs have {shape!r}, expected objects of type PlacedShape")
    places = {key: place for place, key in enumerate(shapes)}
    members = [(places[id(a)], places[id(b)]) for a, b in pairs]
    members += [(places[id(shape)], GROUND) for shape in on_ground]
    return CollisionPairs(tuple(shapes.values()), tuple(members))


def ground_spheres(placed: PlacedShape) -> tuple[Parameter, Sequence[Parameter]] | None:
    """The radius () and the centres (3,) of the spheres with which a shape touches a ground.

    These are a sphere itself, the ends of a capsule, and the corners of a box, whose rounding is
    the radius. The result is None for other shapes.
    """
    shape, (R, p) = placed.shape, placed.X_FS
    if isinstance(shape, Sphere):
        return shape.radius, [p]
    if isinstance(shape, Capsule):
        half = shape.half_length * R[:, 2]
        return shape.radius, [p - half, p + half]
    if not isinstance(shape, Box):
        return None
    inner = shape.half_sizes - shape.rounding
    corners = [
        p + sum(sign * size * axis for sign, size, axis in zip(signs, inner, R.T))
        for signs in itertools.product((-1.0, 1.0), repeat=3)
    ]
    return shape.rounding, corners


def _sphere(placed: PlacedShape, dtype: np.dtype) -> tuple[Array, Array]:
    """The centre (3,) and the size () in m of a shape, see `CollisionPairs.reference_spheres`."""
    shape: Any = placed.shape
    X_FS = cast(placed.X_FS, dtype)
    if isinstance(shape, HalfSpace):
        return X_FS.p, jnp.zeros((), dtype)
    core, radius = core_of(cast(shape, dtype))
    axes = jnp.eye(3, dtype=dtype)
    high, low = (jnp.stack([jnp.dot(n, core.support(s * n)) for n in axes]) for s in (1, -1))
    size = core.extent() if isinstance(shape, Capsule) else jnp.sum(high - low) / 6
    return transform_point(X_FS, (high + low) / 2), size + radius


def _number_of_points(shape: Any) -> int:
    """The number of points with which a shape touches a plane."""
    if isinstance(shape, Sphere | Ellipsoid):
        return 1
    return 2 if isinstance(shape, Capsule) else 4


class PairContacts(NamedTuple):
    """The contacts of `CollisionPairs`, in the order of the pairs.

    - `distance` (m,) in m; `gradient` (m, 3): the gradient with respect to point a. It points from
      shape b to shape a;
    - `a`, `b` (m, 3) in m: the points in axes of the world, relative to the root position.
    """

    distance: Float[Array, " m"]
    gradient: Float[Array, "m 3"]
    a: Float[Array, "m 3"]
    b: Float[Array, "m 3"]


def pair_contacts(
    pairs: CollisionPairs, ground: Callable[[Array], Array], X: Pose, p_WR: Array
) -> PairContacts:
    """The contacts of pairs with the dtype of the model.

    - `ground`: the distance () of a point (3,) in the world from the ground;
    - `X`: the poses of the shapes, relative to the root position p_WR (3,).
    """
    shapes = [shape.shape for shape in pairs.shapes]
    members, counts = np.array(pairs.members, int), pairs.counts
    with_ground = members[:, 1] == GROUND
    parts, rows = [], []
    for batches, compute in (
        (_batches(shapes, X, members, counts, ~with_ground), _patches),
        (_batches(shapes, X, members, counts, with_ground), _ground_contacts(ground, p_WR)),
    ):
        for batch in batches:
            count, part = batch.label, compute(batch)
            parts.append(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), part))
            # The places of the contacts in the list of all contacts.
            rows.append((np.cumsum(counts) - counts)[batch.rows][:, None] + np.arange(count))
    order = np.argsort(np.concatenate([x.ravel() for x in rows]))
    return jax.tree.map(lambda *x: jnp.concatenate(x)[order], *parts)


def _batches(
    shapes: Sequence[Any], X: Pose, members: np.ndarray, labels: np.ndarray, chosen: np.ndarray
) -> list[Batch]:
    """The batches of the chosen pairs. For a shape on the ground, shape b is the shape itself."""
    rows = np.flatnonzero(chosen)
    if not len(rows):
        return []
    chosen_members = np.where(members[rows] == GROUND, members[rows][:, :1], members[rows])
    return [
        batch._replace(rows=rows[batch.rows])
        for batch in batches_of(shapes, X, chosen_members, labels[rows])
    ]


def _patches(batch: Batch) -> PairContacts:
    """The contacts (n, k) of a batch of pairs, whose label is k."""

    def one(a, X_a, b, X_b, exchanged):
        if a is None:
            contacts = _half_space_contacts(X_a, b, X_b, batch.label)
        elif batch.formula is segment_separation:
            contacts = _segment_contacts(a, X_a, b, X_b)
        else:
            contacts = _core_contacts(a, X_a, b, X_b, batch)
        other = PairContacts(contacts.distance, -contacts.gradient, contacts.b, contacts.a)
        return select(exchanged, other, contacts)

    return jax.vmap(one)(batch.a, batch.X_a, batch.b, batch.X_b, batch.exchanged)


def _segment_contacts(a, X_a: Pose, b, X_b: Pose) -> PairContacts:
    separation = segment_separation(a, X_a, b, X_b)
    rows = (separation.distance, -separation.normal, separation.point_a, separation.point_b)
    return PairContacts(*(x[None] for x in rows))


def _core_contacts(a, X_a: Pose, b, X_b: Pose, batch: Batch) -> PairContacts:
    (core_a, radius_a), (core_b, radius_b) = a, b
    X_BA = inverse_compose(X_b, X_a)
    patch = core_patch(core_a, core_b, X_BA.R, X_BA.p, batch.label, batch.formula)
    n = rotate(X_b.R, patch.normal)
    point_a, point_b = (transform_point(X_b, x) for x in (patch.point_a, patch.point_b))
    distance = patch.distance - radius_a - radius_b
    normals = jnp.broadcast_to(-n, point_a.shape)
    return PairContacts(
        distance, normals, point_a + radius_a * n[None], point_b - radius_b * n[None]
    )


def _half_space_contacts(X_a: Pose, b, X_b: Pose, count: int) -> PairContacts:
    normal = X_a.R[:, 2]
    core, radius = b
    points, height = _lowest(core, X_b, normal, count, lambda x: jnp.dot(normal, x - X_a.p))
    normals = jnp.broadcast_to(-normal, points.shape)
    return PairContacts(
        height - radius,
        normals,
        points - height[:, None] * normal[None],
        points - radius * normal[None],
    )


def _ground_contacts(ground: Callable[[Array], Array], p_WR: Array) -> Callable[..., PairContacts]:
    def height(x: Array) -> Array:
        return ground(x + p_WR)

    def one(shape, X: Pose, count: int) -> PairContacts:
        core, radius = shape
        slope = jax.grad(height)
        # The normal at the origin of the shape gives a first lowest point. The normal at this point
        # gives the points of contact.
        normal = slope(X.p)
        lowest, _ = _lowest(core, X, normal / norm(normal), 1, height)
        normal = slope(lowest[0])
        points, heights = _lowest(core, X, normal / norm(normal), count, height)
        gradient = jax.vmap(slope)(points)
        a = points - (radius / norm(gradient))[:, None] * gradient
        return PairContacts(heights - radius, gradient, a, a)

    def compute(batch: Batch) -> PairContacts:
        return jax.vmap(lambda shape, X: one(shape, X, batch.label))(batch.b, batch.X_b)

    return compute


def _lowest(
    core: Any, X: Pose, normal: Array, count: int, height: Callable[[Array], Array]
) -> tuple[Array, Array]:
    """The points (count, 3) of a core with the least heights along a normal, and the heights."""
    n = -inverse_rotate(X.R, normal)
    points = transform_point(X, core.support(n)[None] if count == 1 else face_points(core, n))
    heights = jax.vmap(height)(points)
    if count == 1:
        return points, heights
    plane = matmul(points - X.p[None], tangents(normal).T)
    chosen = spread(plane, heights, jnp.ones(len(points), bool), count)
    return points[chosen], heights[chosen]
