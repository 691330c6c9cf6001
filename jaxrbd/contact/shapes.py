"""Shapes on frames of a robot, and pairs of shapes that may touch.

A capsule is all points within a radius of a segment. A sphere is a capsule whose segment is a
point. A box may have round edges and corners. There are two kinds of pairs:

- two capsules, with one contact at the closest points of the two segments;
- a sphere and a box, with one contact at the closest point of the box. If the centre of the sphere
  is in the box, the contact is at the nearest face.

`collision_pairs` makes pairs of these kinds from shapes. A capsule and a box give two pairs, one
for each end of the capsule. Two boxes give 16 pairs, one for each corner of both boxes. A corner in
the other box touches the face along whose normal the two boxes overlap least. For corners, a box is
slightly wider beside this face, by 1 % of the half sizes. So boxes with aligned edges rest on each
other. The contact of an edge of a box with another edge, or with the middle of a capsule, is not
found. `collision_pairs` warns about pairs that can have such a contact.

A pair of `collision.PlacedShape`s becomes a pair of one of these kinds if both shapes are spheres
or capsules, or if they are a sphere and a box. All other pairs of placed shapes, with contacts of
all edges, are in `placed_pairs.py`.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Float

from .. import collision
from ..collision import PlacedShape
from ..errors import ArgumentError, ContactWarning, listed
from ..model import arguments
from ..model.arguments import Parameter
from .placed_pairs import GROUND, PlacedPairs

Vector = ArrayLike | Sequence[int | float]


class Capsule(eqx.Module):
    """All points within `radius` () of the segment from `start` (3,) to `end` (3,), in m.

    `frame`: the name or index of the frame of start and end, or None for the world. Raises
    ArgumentError for a negative radius.
    """

    frame: str | int | None = eqx.field(static=True)
    radius: Float[Parameter, ""]
    start: Float[Parameter, "3"]
    end: Float[Parameter, "3"]

    def __init__(self, frame: str | int | None, radius: ArrayLike, start: Vector, end: Vector):
        self.frame = frame
        self.radius = arguments.parameter(radius, "radius", ())
        self.start = arguments.parameter(start, "start", (3,))
        self.end = arguments.parameter(end, "end", (3,))
        arguments.require(self.radius, lambda x: x >= 0, "radius", "0 or more")

    @property
    def is_sphere(self) -> bool:
        """Whether the ends are known to be equal."""
        known = not isinstance(self.start, Tracer) and not isinstance(self.end, Tracer)
        return known and np.array_equal(self.start, self.end)

    @property
    def sphere_radius(self) -> Parameter:
        """The radius () of the `spheres`."""
        return self.radius

    @property
    def sphere_centres(self) -> tuple[Parameter, ...]:
        """The centres (3,) of the `spheres`."""
        return (self.start,) if self.is_sphere else (self.start, self.end)

    @property
    def spheres(self) -> tuple[Capsule, ...]:
        """The spheres at the two ends, or one sphere if the ends are known to be equal."""
        return _spheres(self)


def sphere(frame: str | int | None, radius: ArrayLike, centre: Vector = (0.0, 0.0, 0.0)) -> Capsule:
    """A sphere as a `Capsule`, in a frame or in the world (None); radius and centre (3,) in m."""
    return Capsule(frame, radius, centre, centre)


class Box(eqx.Module):
    """A box in a frame.

    - `frame`: the name or index of a frame, or None for the world;
    - `half_sizes` (3,) in m: half the lengths of the sides, including the rounding;
    - `centre` (3,) in m, and `rotation` (3, 3), the axes of the box as columns, in the frame;
    - `rounding` () in m: the radius of edges and corners, at most the smallest half size. A small
      rounding makes the normal of a contact near an edge continuous.

    Raises ArgumentError for a negative size or rounding, or a rounding above a half size.
    """

    frame: str | int | None = eqx.field(static=True)
    half_sizes: Float[Parameter, "3"]
    centre: Float[Parameter, "3"]
    rotation: Float[Parameter, "3 3"]
    rounding: Float[Parameter, ""]

    def __init__(
        self,
        frame: str | int | None,
        half_sizes: Vector,
        centre: Vector = (0.0, 0.0, 0.0),
        rotation: ArrayLike | None = None,
        rounding: ArrayLike = 0.0,
    ):
        self.frame = frame
        self.half_sizes = arguments.parameter(half_sizes, "half_sizes", (3,))
        self.centre = arguments.parameter(centre, "centre", (3,))
        self.rotation = arguments.parameter(
            np.eye(3) if rotation is None else rotation, "rotation", (3, 3)
        )
        self.rounding = arguments.parameter(rounding, "rounding", ())
        arguments.require(self.rounding, lambda x: x >= 0, "rounding", "0 or more")
        if not isinstance(self.rounding, Tracer):
            least = float(self.rounding)
            expected = f"{least} or more, the rounding"
            arguments.require(self.half_sizes, lambda x: x >= least, "half_sizes", expected)

    @property
    def inner_sizes(self) -> Parameter:
        """The half sizes (3,) without the rounding."""
        return self.half_sizes - self.rounding

    @property
    def sphere_radius(self) -> Parameter:
        """The radius () of the `spheres`: the rounding."""
        return self.rounding

    @property
    def sphere_centres(self) -> tuple[Parameter, ...]:
        """The centres (3,) of the `spheres`."""
        centre, columns, inner = self.centre, self.rotation.T, self.inner_sizes
        return tuple(
            centre + sum(s * x * column for s, x, column in zip(sign, inner, columns))
            for sign in itertools.product((-1.0, 1.0), repeat=3)
        )

    @property
    def spheres(self) -> tuple[Capsule, ...]:
        """The eight spheres in the corners, with the rounding as radius."""
        return _spheres(self)


Shape = Capsule | Box
AnyShape = Shape | PlacedShape


def round_shape(placed: PlacedShape) -> Shape | None:
    """The `Capsule` or `Box` that equals a placed shape; None for other kinds."""
    shape, X = placed.shape, placed.X_FS
    if isinstance(shape, collision.Sphere):
        return sphere(placed.frame, shape.radius, X.p)
    if isinstance(shape, collision.Capsule):
        half = shape.half_length * X.R[:, 2]
        return Capsule(placed.frame, shape.radius, X.p - half, X.p + half)
    if isinstance(shape, collision.Box):
        return Box(placed.frame, shape.half_sizes, X.p, X.R, shape.rounding)
    return None


def _spheres(shape: Shape) -> tuple[Capsule, ...]:
    return tuple(sphere(shape.frame, shape.sphere_radius, x) for x in shape.sphere_centres)


class CapsulePairs(NamedTuple):
    """m pairs of capsules a and b: radii (m,) and the ends of the segments (m, 3), in m."""

    radius_a: Float[Array, " m"]
    start_a: Float[Array, "m 3"]
    end_a: Float[Array, "m 3"]
    radius_b: Float[Array, " m"]
    start_b: Float[Array, "m 3"]
    end_b: Float[Array, "m 3"]


class SphereBoxPairs(NamedTuple):
    """m pairs of a sphere a and a box b.

    - `radius` (m,), `centre` (m, 3) of the spheres, in m;
    - `half_sizes` (m, 3) without the rounding, `rounding` (m,), `box_centre` (m, 3), in m, and
      `rotation` (m, 3, 3) of the boxes;
    - `corner_centre` (m, 3) and `corner_axes` (m, 3, 3) in m: for a sphere in a corner of another
      box, the centre and the half axes, as columns, of that box in the frame of the sphere. The
      rounding is not included. For all other spheres, the centre of the sphere and zeros.
    """

    radius: Float[Array, " m"]
    centre: Float[Array, "m 3"]
    half_sizes: Float[Array, "m 3"]
    rounding: Float[Array, " m"]
    box_centre: Float[Array, "m 3"]
    rotation: Float[Array, "m 3 3"]
    corner_centre: Float[Array, "m 3"]
    corner_axes: Float[Array, "m 3 3"]


class CollisionPairs(eqx.Module):
    """Pairs of shapes that may touch, from `collision_pairs`.

    The order is: the pairs of capsules, the pairs of a sphere and a box, then the contacts of
    `placed`. `find_contacts` relies on it. `frames_a`, `frames_b`: the frames of the shapes of all
    contacts; None is the world.
    """

    capsules: CapsulePairs
    boxes: SphereBoxPairs
    placed: PlacedPairs
    frames_a: tuple[str | int | None, ...] = eqx.field(static=True)
    frames_b: tuple[str | int | None, ...] = eqx.field(static=True)

    def __len__(self) -> int:
        return len(self.frames_a)


def collision_pairs(pairs: Iterable[tuple[AnyShape, AnyShape]]) -> CollisionPairs:
    """The pairs of a `Scene` from pairs of shapes.

    - Pairs of `collision.PlacedShape`: all kinds of shapes, with all their edges. Two spheres or
      capsules give one contact, and so does a sphere or an ellipsoid with any shape; a capsule and
      another shape give two contacts; other shapes give four.
    - Pairs of a `Capsule` or `Box` of this package: a pair of capsules gives one contact, a capsule
      and a box two, a sphere and a box one, two boxes 16.

    Raises ArgumentError for two shapes that are both fixed in the world by `frame=None`, and for a
    pair of a `PlacedShape` and another shape.

    Warns with one `ContactWarning`, which names the frames, if there are pairs of two `Box`es, or
    of a `Box` and a `Capsule` that is not a sphere. Only the corners and the ends of these shapes
    touch the other shape, so other parts of the shapes can pass through each other.
    """
    found = shape_pairs(pairs)
    stacked = stacked_pairs(found)
    warn_of_edges(found, stacklevel=3)
    return stacked


class ShapePairs(NamedTuple):
    """Pairs of shapes: the different shapes, and the indices (n, 2) of the shapes of each pair.

    Both shapes of a pair are placed shapes, or none is. A robot can have many more pairs than
    shapes, so functions of pairs examine each shape once.
    """

    shapes: Sequence[AnyShape]
    members: np.ndarray

    def per_shape(self, test: Callable[[AnyShape], Any]) -> np.ndarray:
        """The value of a test of both shapes of each pair, (n, 2)."""
        return np.array([test(shape) for shape in self.shapes], int)[self.members]

    @property
    def are_placed(self) -> np.ndarray:
        """Whether the shapes of each pair are placed shapes, (n,)."""
        return self.per_shape(lambda shape: isinstance(shape, PlacedShape))[:, 0].astype(bool)


def shape_pairs(pairs: Iterable[tuple[AnyShape, AnyShape]]) -> ShapePairs:
    """`ShapePairs` from pairs of shapes. Two shapes are equal if they are one object."""
    pairs = list(pairs)
    shapes = {id(shape): shape for pair in pairs for shape in pair}
    places = {key: place for place, key in enumerate(shapes)}
    index = [(places[id(a)], places[id(b)]) for a, b in pairs]
    return with_formulas(ShapePairs([*shapes.values()], np.array(index, int).reshape(-1, 2)))


def with_formulas(pairs: ShapePairs) -> ShapePairs:
    """The pairs with a `Capsule` or a `Box` in place of placed shapes whose contact has a formula.

    These are pairs of spheres and capsules, and pairs of a sphere and a box. Raises ArgumentError
    for a pair of a `PlacedShape` and another shape.
    """
    shapes, members = pairs
    placed = pairs.per_shape(lambda shape: isinstance(shape, PlacedShape)).astype(bool)
    mixed = placed[:, 0] != placed[:, 1]
    if mixed.any():
        pair = tuple(shapes[i] for i in members[np.argmax(mixed)])
        raise ArgumentError(f"the pair {pair!r} has one PlacedShape, expected two or none")
    kinds = (collision.Sphere, collision.Capsule, collision.Box)
    is_sphere, is_capsule, is_box = (
        pairs.per_shape(lambda x, kind=kind: _is_placed(x, kind)).astype(bool) for kind in kinds
    )
    formula = np.all(is_sphere | is_capsule, axis=1)
    formula |= np.any(is_sphere, axis=1) & np.any(is_box, axis=1)
    used = np.unique(members[formula])
    simple: list[Any] = [round_shape(shapes[i]) for i in used.tolist()]
    replaced = len(shapes) + np.searchsorted(used, members[formula])
    members = members.copy()
    members[formula] = replaced
    return ShapePairs([*shapes, *simple], members)


def _is_placed(shape: AnyShape, kind: type) -> bool:
    return isinstance(shape, PlacedShape) and isinstance(shape.shape, kind)


def warn_of_edges(pairs: ShapePairs, stacklevel: int) -> None:
    """The warning of `collision_pairs`."""
    text = edge_text(pairs, [_name(shape) for shape in pairs.shapes])
    if text is not None:
        warnings.warn(text, ContactWarning, stacklevel=stacklevel)


def edge_text(pairs: ShapePairs, names: Sequence[str]) -> str | None:
    """The text about pairs of shapes with contacts that are not found, or None.

    `names`: the name of each shape.
    """
    # A box, and a shape with several spheres.
    several = pairs.per_shape(lambda shape: _sphere_count(shape) > 1)
    with_edges = np.any(pairs.per_shape(_is_box) * several[:, ::-1], axis=1)
    found = [f"{names[a]} and {names[b]}" for a, b in pairs.members[with_edges].tolist()]
    if not found:
        return None
    total = len(pairs.members)
    return (
        f"contacts of edges are not found for {len(found)} of {total} pairs of shapes: "
        f"{listed(found)}. A box touches another box only with its corners, and a capsule touches "
        f"a box only with its ends. An edge of a box passes through an edge of another box and "
        f"through the middle of a capsule"
    )


def _name(shape: AnyShape) -> str:
    """The kind of a shape and its frame."""
    if isinstance(shape, PlacedShape):
        return shape.name
    if isinstance(shape, Box):
        kind = "the box"
    else:
        kind = "the sphere" if shape.is_sphere else "the capsule"
    if shape.frame is None:
        return f"{kind} in the world"
    return f"{kind} in frame {shape.frame!r}"


def _sphere_count(shape: AnyShape) -> int:
    """The number of `spheres` of a shape; 1 for a placed shape."""
    if isinstance(shape, PlacedShape):
        return 1
    if isinstance(shape, Box):
        return 8
    return 1 if shape.is_sphere else 2


def _is_box(shape: AnyShape) -> bool:
    return isinstance(shape, Box)


def contact_owners(pairs: ShapePairs, on_ground: Sequence[PlacedShape] = ()) -> np.ndarray:
    """The pair of each contact of `stacked_pairs`, by its index (m,).

    The shapes on the ground count as pairs after the others.
    """
    box, count = pairs.per_shape(_is_box), pairs.per_shape(_sphere_count)
    with_box = np.any(box, axis=1)
    counts = np.where(with_box, (box * count[:, ::-1]).sum(axis=1), 1)
    placed = pairs.are_placed
    each = np.arange(len(counts))
    round_pairs = [each[~placed & (with_box == flag)] for flag in (False, True)]
    owners = [np.repeat(rows, counts[rows]) for rows in round_pairs]
    rows = np.append(each[placed], len(counts) + np.arange(len(on_ground)))
    return np.concatenate([*owners, np.repeat(rows, _placed_pairs(pairs, on_ground).counts)])


def _placed_pairs(pairs: ShapePairs, on_ground: Sequence[PlacedShape]) -> PlacedPairs:
    """The pairs of placed shapes, then the shapes on the ground."""
    members = pairs.members[pairs.are_placed]
    used = np.unique(members)
    shapes = [pairs.shapes[i] for i in used.tolist()]
    both = [tuple(pair) for pair in np.searchsorted(used, members).tolist()]
    ground = [(len(shapes) + i, GROUND) for i in range(len(on_ground))]
    return PlacedPairs((*shapes, *on_ground), (*both, *ground))


def stacked_pairs(pairs: ShapePairs, on_ground: Sequence[PlacedShape] = ()) -> CollisionPairs:
    """As `collision_pairs`, without a warning; with contacts of shapes on the ground."""
    in_world = np.all(pairs.per_shape(lambda shape: shape.frame is None), axis=1)
    if in_world.any():
        pair = tuple(pairs.shapes[i] for i in pairs.members[np.argmax(in_world)])
        raise ArgumentError(f"both shapes of the pair {pair!r} are fixed to the world")
    placed = _placed_pairs(pairs, on_ground)
    shapes, members = pairs = ShapePairs(pairs.shapes, pairs.members[~pairs.are_placed])
    is_box = pairs.per_shape(_is_box).astype(bool)
    capsules = members[~np.any(is_box, axis=1)]
    # The other shape of each box. Each of two boxes has spheres that touch the other box.
    touches_box = is_box[:, ::-1]
    others, boxes = members[touches_box], members[:, ::-1][touches_box]
    # The spheres of all these other shapes, in the order of the shapes.
    balls = [
        _Ball(i, shapes[i].sphere_radius, centre, *_corner(shapes[i], centre))
        for i in np.unique(others).tolist()
        for centre in shapes[i].sphere_centres
    ]
    owners = np.array([ball.shape for ball in balls], int)
    first, last = (np.searchsorted(owners, others, side) for side in ("left", "right"))
    counts = last - first
    # Within each pair: 0, 1 and so on.
    number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    ball, box = np.repeat(first, counts) + number, np.repeat(boxes, counts)
    a, b = np.append(capsules[:, 0], owners[ball]), np.append(capsules[:, 1], box)
    frames = [shape.frame for shape in shapes]
    placed_a, placed_b = placed.frames
    capsule_a, capsule_b = (_rows(shapes, side) for side in capsules.T)
    ball_a, box_b = _rows(balls, ball), _rows(shapes, box)
    fields = (("radius", ()), ("start", (3,)), ("end", (3,)))
    return CollisionPairs(
        CapsulePairs(
            *(rows(name, shape) for rows in (capsule_a, capsule_b) for name, shape in fields)
        ),
        SphereBoxPairs(
            ball_a("radius", ()),
            ball_a("centre", (3,)),
            box_b("inner_sizes", (3,)),
            box_b("rounding", ()),
            box_b("centre", (3,)),
            box_b("rotation", (3, 3)),
            ball_a("corner_centre", (3,)),
            ball_a("corner_axes", (3, 3)),
        ),
        placed,
        (*(frames[i] for i in a.tolist()), *placed_a),
        (*(frames[i] for i in b.tolist()), *placed_b),
    )


class _Ball(NamedTuple):
    """A sphere of a shape: the index of the shape, and rows of `SphereBoxPairs`."""

    shape: int
    radius: Any
    centre: Any
    corner_centre: Any
    corner_axes: Any


def _corner(shape: Shape, centre: Any) -> tuple[Any, Any]:
    """`corner_centre` and `corner_axes` of `SphereBoxPairs` for a sphere of a shape."""
    if isinstance(shape, Box):
        return shape.centre, shape.rotation * shape.inner_sizes
    return centre, np.zeros((3, 3))


def _rows(items: Sequence[Any], index: np.ndarray) -> Callable[[str, tuple[int, ...]], Any]:
    """A function (name, shape) that stacks the attribute of this name and shape of the items."""
    distinct, places = np.unique(index, return_inverse=True)

    def rows(name: str, shape: tuple[int, ...]) -> Any:
        values = [getattr(items[i], name) for i in distinct.tolist()]
        if any(isinstance(x, Array) for x in values):
            return stacked([values[place] for place in places.tolist()], shape)
        return stacked(values, shape)[places]

    return rows


def stacked(values: Sequence[Parameter], shape: tuple[int, ...]) -> Any:
    """Parameters of this shape as the rows of one array."""
    if not values:
        return np.zeros((0, *shape))
    return (jnp if any(isinstance(x, Array) for x in values) else np).stack(values)
