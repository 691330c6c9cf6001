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
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Float

from ..errors import ArgumentError, ContactWarning, listed
from ..model import arguments

Vector = ArrayLike | Sequence[int | float]


class Capsule(eqx.Module):
    """All points within `radius` () of the segment from `start` (3,) to `end` (3,), in m.

    `frame`: the name or index of the frame of start and end, or None for the world. Raises
    ArgumentError for a negative radius.
    """

    frame: str | int | None = eqx.field(static=True)
    radius: Float[arguments.Parameter, ""]
    start: Float[arguments.Parameter, "3"]
    end: Float[arguments.Parameter, "3"]

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
    def spheres(self) -> tuple[Capsule, ...]:
        """The spheres at the two ends, or one sphere if the ends are known to be equal."""
        if self.is_sphere:
            return (self,)
        return tuple(Capsule(self.frame, self.radius, x, x) for x in (self.start, self.end))


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
    half_sizes: Float[arguments.Parameter, "3"]
    centre: Float[arguments.Parameter, "3"]
    rotation: Float[arguments.Parameter, "3 3"]
    rounding: Float[arguments.Parameter, ""]

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
    def spheres(self) -> tuple[Capsule, ...]:
        """The eight spheres in the corners, with the rounding as radius."""
        signs = itertools.product((-1.0, 1.0), repeat=3)
        inner = self.half_sizes - self.rounding
        centres = [
            self.centre + sum(s * x * column for s, x, column in zip(sign, inner, self.rotation.T))
            for sign in signs
        ]
        return tuple(Capsule(self.frame, self.rounding, x, x) for x in centres)


Shape = Capsule | Box


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

    The order is: the pairs of capsules, then the pairs of a sphere and a box. `find_contacts`
    relies on it. `frames_a`, `frames_b`: the frames of the shapes of all pairs; None is the world.
    """

    capsules: CapsulePairs
    boxes: SphereBoxPairs
    frames_a: tuple[str | int | None, ...] = eqx.field(static=True)
    frames_b: tuple[str | int | None, ...] = eqx.field(static=True)

    def __len__(self) -> int:
        return len(self.frames_a)


def collision_pairs(pairs: Iterable[tuple[Shape, Shape]]) -> CollisionPairs:
    """The pairs of a `Scene` from pairs of shapes.

    A pair of a capsule and a capsule gives one contact, a capsule and a box two contacts, a sphere
    and a box one contact, a box and a box 16 contacts. Raises ArgumentError for two shapes that are
    both fixed in the world by `frame=None`.

    Warns with one `ContactWarning`, which names the frames, if there are pairs of two boxes, or of
    a box and a capsule that is not a sphere. Only the corners and the ends of these shapes touch
    the other shape, so other parts of the shapes can pass through each other.
    """
    pairs = list(pairs)
    stacked = stacked_pairs(pairs)
    warn_of_edges(pairs, stacklevel=3)
    return stacked


def warn_of_edges(pairs: Sequence[tuple[Shape, Shape]], stacklevel: int) -> None:
    """The warning of `collision_pairs`."""
    text = edge_text(pairs, [(_name(a), _name(b)) for a, b in pairs])
    if text is not None:
        warnings.warn(text, ContactWarning, stacklevel=stacklevel)


def edge_text(pairs: Sequence[tuple[Shape, Shape]], names: Sequence[tuple[str, str]]) -> str | None:
    """The text about pairs of shapes with contacts that are not found, or None.

    `names`: the names of both shapes of each pair.
    """
    found = [
        f"{name_a} and {name_b}"
        for (a, b), (name_a, name_b) in zip(pairs, names)
        if any(isinstance(x, Box) and _sphere_count(y) > 1 for x, y in ((a, b), (b, a)))
    ]
    if not found:
        return None
    return (
        f"contacts of edges are not found for {len(found)} of {len(pairs)} pairs of shapes: "
        f"{listed(found)}. A box touches another box only with its corners, and a capsule touches "
        f"a box only with its ends. An edge of a box passes through an edge of another box and "
        f"through the middle of a capsule"
    )


def _name(shape: Shape) -> str:
    """The kind of a shape and its frame."""
    if isinstance(shape, Box):
        kind = "the box"
    else:
        kind = "the sphere" if shape.is_sphere else "the capsule"
    if shape.frame is None:
        return f"{kind} in the world"
    return f"{kind} in frame {shape.frame!r}"


def _sphere_count(shape: Shape) -> int:
    """The number of `spheres` of a shape."""
    if isinstance(shape, Box):
        return 8
    return 1 if shape.is_sphere else 2


def contact_count(a: Shape, b: Shape) -> int:
    """The number of contacts of a pair of shapes."""
    if isinstance(a, Capsule) and isinstance(b, Capsule):
        return 1
    return sum(_sphere_count(x) for x, y in ((a, b), (b, a)) if isinstance(y, Box))


def stacked_pairs(pairs: Sequence[tuple[Shape, Shape]]) -> CollisionPairs:
    """As `collision_pairs`, without a warning."""
    capsules, boxes, corners = [], [], []
    for a, b in pairs:
        if a.frame is None and b.frame is None:
            raise ArgumentError(f"both shapes of the pair {(a, b)!r} are fixed to the world")
        if isinstance(a, Capsule) and isinstance(b, Capsule):
            capsules.append((a, b))
        for round_shape, box in ((a, b), (b, a)):
            if isinstance(box, Box):
                boxes += [(ball, box) for ball in round_shape.spheres]
                corners += [_corner_of(round_shape, ball) for ball in round_shape.spheres]
    fields = (("radius", ()), ("start", (3,)), ("end", (3,)))
    frames = [(a.frame, b.frame) for a, b in capsules + boxes]
    balls, blocks = [a for a, _ in boxes], [b for _, b in boxes]
    inner = [b.half_sizes - b.rounding for b in blocks]
    return CollisionPairs(
        CapsulePairs(
            *(
                stacked([getattr(pair[i], name) for pair in capsules], shape)
                for i in (0, 1)
                for name, shape in fields
            )
        ),
        SphereBoxPairs(
            stacked([a.radius for a in balls], ()),
            stacked([a.start for a in balls], (3,)),
            stacked(inner, (3,)),
            stacked([b.rounding for b in blocks], ()),
            stacked([b.centre for b in blocks], (3,)),
            stacked([b.rotation for b in blocks], (3, 3)),
            stacked([centre for centre, _ in corners], (3,)),
            stacked([axes for _, axes in corners], (3, 3)),
        ),
        tuple(a for a, _ in frames),
        tuple(b for _, b in frames),
    )


def _corner_of(shape: Shape, ball: Capsule) -> tuple[Any, Any]:
    """`corner_centre` and `corner_axes` of `SphereBoxPairs` for a sphere of a shape."""
    if isinstance(shape, Box):
        return shape.centre, shape.rotation * (shape.half_sizes - shape.rounding)
    return ball.start, np.zeros((3, 3))


def stacked(values: list[arguments.Parameter], shape: tuple[int, ...]) -> Any:
    """Parameters of this shape as the rows of one array."""
    if not values:
        return np.zeros((0, *shape))
    return (jnp if any(isinstance(x, Array) for x in values) else np).stack(values)
