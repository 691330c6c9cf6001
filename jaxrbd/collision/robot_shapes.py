"""Distances between the shapes of a robot and its world."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._math.cast import cast
from ..algorithms.kinematics import forward_kinematics, root_positions
from ..algorithms.places import bodies_of, find_places, poses_from_root
from ..errors import ArgumentError
from ..model import Model, arguments
from ..spatial import Pose
from .distances import checked_pose, pose_of, separations
from .separation import Separation
from .shapes import HalfSpace, Shape, checked_shape, shape_of_geometry


class PlacedShape(eqx.Module):
    """A shape in a frame of a robot, or in the world.

    - `shape`: a shape of this package;
    - `frame`: the name or index of a frame, or None for the world;
    - `X_FS`: the pose of the frame of the shape in this frame; the identity by default;
    - `name`: a name for messages.
    """

    shape: Shape
    X_FS: Pose
    frame: str | int | None = eqx.field(static=True)
    name: str = eqx.field(static=True)

    def __init__(
        self,
        shape: Shape,
        frame: str | int | None = None,
        X_FS: Pose | None = None,
        name: str = "",
    ):
        self.shape = checked_shape(shape, "shape")
        self.frame = frame
        identity = pose_of(np.eye(3), np.zeros(3), "X_FS")
        self.X_FS = identity if X_FS is None else checked_pose(X_FS, "X_FS")
        self.name = name or f"{type(shape).__name__} in {frame or 'the world'}"


class DistancePairs(eqx.Module):
    """Pairs of shapes of a robot and its world, for `robot_distances`.

    - `shapes`: the shapes;
    - `members`: m pairs (i, j) of indices of the shapes a and b of each pair;
    - `left_out`: descriptions of the shapes of the model that have no pairs, because they are
      meshes.
    """

    shapes: tuple[PlacedShape, ...]
    members: tuple[tuple[int, int], ...] = eqx.field(static=True)
    left_out: tuple[str, ...] = eqx.field(static=True, default=())

    def __check_init__(self):
        for i, j in self.members:
            if not (0 <= i < len(self.shapes) and 0 <= j < len(self.shapes)) or i == j:
                raise ArgumentError(
                    f"members has the pair {(i, j)}, expected two different indices of "
                    f"{len(self.shapes)} shapes"
                )
            a, b = self.shapes[i], self.shapes[j]
            if isinstance(a.shape, HalfSpace) and isinstance(b.shape, HalfSpace):
                raise ArgumentError(f"the pair ({a.name}, {b.name}) has two half-spaces")

    def __len__(self) -> int:
        return len(self.members)

    @property
    def names(self) -> tuple[tuple[str, str], ...]:
        """The names of the shapes a and b of each pair."""
        return tuple((self.shapes[i].name, self.shapes[j].name) for i, j in self.members)


def pairs_of(
    model: Model,
    world: Iterable[PlacedShape] = (),
    *,
    disabled: Iterable[Sequence[Any]] = (),
    adjacent: bool = False,
) -> DistancePairs:
    """The pairs of the collision shapes of a robot with each other and with the shapes of a world.

    - `model`: its shapes are `model.geometry.collisions`. Meshes are left out; the result lists
      them in `left_out`;
    - `world`: more shapes. They may be in frames of the robot, for example a tool. Shapes in the
      world make no pairs with each other;
    - `disabled`: pairs of links without distances: pairs of names, or the `disabled_collisions` of
      `io.load_srdf`. Links that are not in the model are ignored, as in SRDF files;
    - `adjacent`: whether shapes of a body and of its parent body make pairs.

    Shapes that do not move relative to each other make no pairs. Raises ArgumentError for an
    unknown frame and for an object of another type in `world`.
    """
    shapes, left_out = _robot_shapes(arguments.robot(model))
    for shape in world:
        if not isinstance(shape, PlacedShape):
            raise ArgumentError(f"world has {shape!r}, expected objects of the type PlacedShape")
        shapes.append(shape)
    bodies = bodies_of(model, [shape.frame for shape in shapes]).tolist()
    without = {frozenset(pair[:2]) for pair in disabled}
    parents = (*model.topology.parents, None)  # the last entry, -1, is the world

    def is_pair(i: int, j: int) -> bool:
        a, b, frames = bodies[i], bodies[j], {shapes[i].frame, shapes[j].frame}
        if a == b or frames in without:
            return False
        if isinstance(shapes[i].shape, HalfSpace) and isinstance(shapes[j].shape, HalfSpace):
            return False
        # A link that is fixed to the world is the parent of a root body; an obstacle is not.
        return adjacent or None in frames or (parents[a] != b and parents[b] != a)

    pairs = itertools.combinations(range(len(shapes)), 2)
    return DistancePairs(
        tuple(shapes), tuple(pair for pair in pairs if is_pair(*pair)), tuple(left_out)
    )


def _robot_shapes(model: Model) -> tuple[list[PlacedShape], list[str]]:
    """The collision shapes of a model, and descriptions of its collision meshes."""
    shapes, left_out = [], []
    for link, geometries in model.geometry.collisions.items():
        for number, geometry in enumerate(geometries):
            name = geometry.name or (link if len(geometries) == 1 else f"{link} {number}")
            shape = shape_of_geometry(geometry.shape)
            if shape is None:
                left_out.append(f"{name}: {type(geometry.shape).__name__}")
            else:
                H = np.asarray(geometry.placement)
                shapes.append(PlacedShape(shape, link, pose_of(H[:3, :3], H[:3, 3], "X_FS"), name))
    return shapes, left_out


@arguments.compiled(arrays=("q",))
def robot_distances(
    model: Model, q: Float[Array, " nq"], pairs: DistancePairs
) -> Float[Array, " m"]:
    """The signed distances (m,) of the shapes of m pairs in a configuration q, in m.

    A distance is negative if the shapes overlap. Derivatives are as for `distance`. Raises
    ArgumentError for an unknown frame.
    """
    return robot_separations.unchecked(model, q, pairs).distance


@arguments.compiled(arrays=("q",))
def robot_separations(model: Model, q: Float[Array, " nq"], pairs: DistancePairs) -> Separation:
    """The `Separation` of each of m pairs of shapes in a configuration q, in the world frame.

    Its arrays have a leading axis of length m. Raises ArgumentError for an unknown frame.
    """
    dtype, shapes = model.dtype, cast(checked_pairs(pairs).shapes, model.dtype)
    if not len(pairs):
        zero, vectors = jnp.zeros(0, dtype), jnp.zeros((0, 3), dtype)
        return Separation(zero, vectors, vectors, vectors)
    kinematics = forward_kinematics.unchecked(model, q)
    X_FS = jax.tree.map(lambda *x: jnp.stack(x), *(shape.X_FS for shape in shapes))
    places = find_places(model, kinematics, [shape.frame for shape in shapes], X_FS)
    p_WR = root_positions(model, kinematics)[0]
    X = poses_from_root(places, p_WR)
    found = separations([shape.shape for shape in shapes], X, np.array(pairs.members))
    return found._replace(point_a=found.point_a + p_WR[None], point_b=found.point_b + p_WR[None])


def checked_pairs(pairs: DistancePairs) -> DistancePairs:
    """`pairs`, if they are DistancePairs; else raises ArgumentError."""
    if isinstance(pairs, DistancePairs):
        return pairs
    raise ArgumentError(f"pairs is {pairs!r}, expected DistancePairs, see pairs_of")
