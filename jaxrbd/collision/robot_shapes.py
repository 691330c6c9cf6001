"""Distances between the shapes of a robot and its world."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.cast import as_array, cast, stacked
from .._math.linear import matmul
from ..algorithms.analytic_rules import FirstOrder, with_analytic_derivatives
from ..algorithms.common_frame import dof_columns
from ..algorithms.kinematics import (
    Kinematics,
    first_root_centred,
    first_root_position,
    forward_kinematics,
)
from ..algorithms.places import (
    Places,
    bodies_of,
    find_places,
    poses_from_root,
    wrenches_at_points,
)
from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.geometry import Mesh, MeshFile
from ..model.joint_space import independent_force
from ..model.names import described
from ..model.shapes import Vector
from ..spatial import Pose
from .distances import gradient_lengths, pose_of, separations
from .mesh_hulls import require_most_vertices
from .separation import Separation
from .shapes import (
    Capsule,
    ConvexMesh,
    Shape,
    Unbounded,
    checked_shape,
    convex_hull,
)


class PlacedShape(eqx.Module):
    """A shape in a frame of a robot, or in the world.

    - `shape`: a shape of this package;
    - `frame`: the name or index of a frame, or None for the world;
    - `X_FS`: the pose of the frame of the shape in this frame, or only its position (3,) in m; the
      identity by default;
    - `name`: a name for messages; by default the type and the frame of the shape.

    Raises ArgumentError for arguments of another type, and for an `X_FS` that has another shape,
    has entries that are not finite, or has an R that is no rotation matrix.
    """

    shape: Shape
    X_FS: Pose
    frame: str | int | None = eqx.field(static=True)
    name: str = eqx.field(static=True)

    def __init__(
        self,
        shape: Shape,
        frame: str | int | None = None,
        X_FS: Pose | Vector | None = None,
        name: str = "",
    ):
        self.shape = checked_shape(shape, "shape")
        if not (frame is None or isinstance(frame, str) or arguments.is_integer(frame)):
            raise ArgumentError(f"frame is {frame!r}, expected a name, an index or None")
        self.frame = frame if frame is None or isinstance(frame, str) else int(frame)
        if not isinstance(X_FS, Pose):
            position = np.zeros(3) if X_FS is None else X_FS
            X_FS = pose_of(np.eye(3), arguments.parameter(position, "X_FS", (3,)), "X_FS")
        self.X_FS = arguments.pose_parameter(X_FS, "X_FS")
        name = arguments.text(name, "name")
        self.name = name or f"{type(shape).__name__} in {'the world' if frame is None else frame}"


def capsule_between(
    start: Vector,
    end: Vector,
    radius: ArrayLike,
    frame: str | int | None = None,
    name: str = "",
) -> PlacedShape:
    """A capsule about the segment from `start` (3,) to `end` (3,), in m, in a frame.

    Other arguments as for `Capsule` and `PlacedShape`. The ends may be equal. Raises ArgumentError
    for a radius that is negative, and for a radius or ends that are not finite.
    """
    start, end = (arguments.parameter(x, n, (3,)) for x, n in ((start, "start"), (end, "end")))
    for x, n in ((start, "start"), (end, "end")):
        arguments.require(x, np.isfinite, n, "finite")
    dtypes = [x.dtype for x in (start, end) if isinstance(x, Array)]
    if dtypes:  # a constant gets the dtype of the other end
        start, end = (x if isinstance(x, Array) else as_array(x, dtypes[0]) for x in (start, end))
    xp = jnp if dtypes else np
    half = (end - start) / 2
    square = xp.sum(half * half)
    long = square > 0
    length = xp.sqrt(xp.where(long, square, 1))
    axis = xp.where(long, half / length, np.array([0, 0, 1], half.dtype))
    axis = xp.where(axis[2] < 0, -axis, axis)  # a capsule has no direction
    # The rotation of the z axis to the axis of the capsule, about a vector orthogonal to both.
    x, y, z = axis
    w = 1 / (1 + z)
    R = xp.stack(
        [
            xp.stack([1 - w * x * x, -w * x * y, x]),
            xp.stack([-w * x * y, 1 - w * y * y, y]),
            xp.stack([-x, -y, z]),
        ]
    )
    shape = Capsule(radius, xp.where(long, length, 0))
    return PlacedShape(shape, frame, pose_of(R, (start + end) / 2, "X_FS"), name)


class DistancePairs(eqx.Module):
    """Pairs of shapes of a robot and its world, for `robot_distances`.

    - `shapes`: the shapes;
    - `members`: m pairs (i, j) of indices of the shapes a and b of each pair;
    - `left_out`: descriptions of the shapes of the model that have no pairs, because they are
      meshes in files, see `io.read_meshes`;
    - `simplified`: descriptions of the meshes whose hull was replaced by one with fewer vertices,
      with the error in m.

    Raises ArgumentError for objects of another type, for members that are no pairs of different
    indices, and for a pair of two unbounded shapes, which are half-spaces and grids.
    """

    shapes: tuple[PlacedShape, ...]
    members: tuple[tuple[int, int], ...] = eqx.field(static=True)
    left_out: tuple[str, ...] = eqx.field(static=True, default=())
    simplified: tuple[str, ...] = eqx.field(static=True, default=())

    def __check_init__(self):
        require_members(self.shapes, self.members)

    def __len__(self) -> int:
        return len(self.members)

    @property
    def names(self) -> tuple[tuple[str, str], ...]:
        """The names of the shapes a and b of each pair."""
        return tuple((self.shapes[i].name, self.shapes[j].name) for i, j in self.members)


def require_members(shapes: Any, members: Any, least: int = 0) -> None:
    """Raise ArgumentError unless `members` are pairs of indices of different shapes.

    - `shapes`: the shapes, a sequence of PlacedShape. At most one shape of a pair may be a
      half-space or a grid;
    - `least`: the least index of the second shape of a pair. A negative index stands for no shape.
    """
    for place, shape in enumerate(arguments.sequence(shapes, "shapes", "PlacedShape")):
        if not isinstance(shape, PlacedShape):
            raise ArgumentError(f"shapes[{place}] is {shape!r}, expected a PlacedShape")
    for pair in arguments.sequence(members, "members", "pairs of indices"):
        is_pair = isinstance(pair, tuple | list) and len(pair) == 2
        if not is_pair or not all(map(arguments.is_integer, pair)):
            raise ArgumentError(f"members has {pair!r}, expected pairs of indices of shapes")
        i, j = pair
        if not (0 <= i < len(shapes) and least <= j < len(shapes)) or i == j:
            raise ArgumentError(
                f"members has the pair {(i, j)}, expected two different indices of "
                f"{len(shapes)} shapes"
            )
        if j >= 0 and all(isinstance(shapes[k].shape, Unbounded) for k in pair):
            a, b = (f"the {type(shapes[k].shape).__name__} {shapes[k].name!r}" for k in pair)
            raise ArgumentError(
                f"members has the pair of {a} and {b}, expected at most one HalfSpace or HeightGrid"
            )


def pairs_of(
    model: Model,
    world: Iterable[PlacedShape] = (),
    *,
    disabled: Iterable[Sequence[Any]] = (),
    adjacent: bool = False,
    most_vertices: int = 64,
) -> DistancePairs:
    """The pairs of the collision shapes of a robot with each other and with the shapes of a world.

    - `model`: its shapes are `model.geometry.collisions`. A `Mesh` is replaced by its convex hull.
      A `MeshFile` is left out, and the result lists it in `left_out`: `io.read_meshes` makes a
      `Mesh` of it;
    - `world`: more shapes. They may be in frames of the robot, for example a tool. Two shapes in
      the world make no pair, and neither do two half-spaces or grids;
    - `disabled`: pairs of links without distances: pairs of names, or the `disabled_collisions` of
      `io.load_srdf`. Names that are not in the model are ignored, as in SRDF files. A shape whose
      frame is a joint name or an index belongs to the link of this frame;
    - `adjacent`: whether shapes of a body and of its parent body make pairs;
    - `most_vertices`: the largest number of vertices of a hull, see `convex_hull`. The result lists
      the hulls that had more in `simplified`.

    Shapes that do not move relative to each other make no pairs. Raises ArgumentError for an
    unknown frame, for an object of another type in `world` or `disabled`, for an `adjacent` that is
    not True or False, for `most_vertices` out of its range, and for a mesh without volume, which it
    names.
    """
    arguments.require_flag(adjacent, "adjacent")
    shapes, left_out, simplified = shapes_of(model, most_vertices)
    for shape in arguments.sequence(world, "world", "PlacedShape"):
        if not isinstance(shape, PlacedShape):
            raise ArgumentError(f"world has {shape!r}, expected objects of the type PlacedShape")
        shapes.append(shape)
    bodies = bodies_of(model, [shape.frame for shape in shapes]).tolist()
    links = [None if x.frame is None else model.frame_index(x.frame) for x in shapes]
    pairs_without = arguments.sequence(disabled, "disabled", "pairs of names of links")
    without = {_link_pair(model, pair) for pair in pairs_without}
    parents = (*model.topology.parents, None)  # the last entry, -1, is the world

    def is_pair(i: int, j: int) -> bool:
        a, b, frames = bodies[i], bodies[j], {links[i], links[j]}
        if a == b or frames in without:
            return False
        if isinstance(shapes[i].shape, Unbounded) and isinstance(shapes[j].shape, Unbounded):
            return False
        # The parent of a root body is the world. A link that is fixed to the world belongs to this
        # parent, so it has no pair with a root body. An obstacle, whose frame is None, has one.
        return adjacent or None in frames or (parents[a] != b and parents[b] != a)

    pairs = itertools.combinations(range(len(shapes)), 2)
    members = tuple(pair for pair in pairs if is_pair(*pair))
    return DistancePairs(tuple(shapes), members, tuple(left_out), tuple(simplified))


def _link_pair(model: Model, pair: Sequence[Any]) -> frozenset[int | str]:
    """The indices of the frames of two links; for a link that is not in the model, its name."""
    entries = arguments.entries(pair) if isinstance(pair, Sequence) else None
    names = [] if entries is None else list(entries[:2])
    if len(names) != 2 or not all(isinstance(name, str) for name in names):
        raise ArgumentError(f"disabled has {pair!r}, expected pairs of names of links")
    known = model.frame_names
    return frozenset(model.frame_index(name) if name in known else name for name in names)


def shapes_of(
    model: Model, most_vertices: int = 64
) -> tuple[list[PlacedShape], list[str], list[str]]:
    """The collision shapes of a model, and `left_out` and `simplified` of `DistancePairs`.

    Arguments and errors are as for `pairs_of`.
    """
    require_most_vertices(most_vertices)
    shapes, left_out, simplified = [], [], []
    for link, geometries in arguments.robot(model).geometry.collisions.items():
        for number, geometry in enumerate(geometries):
            name = geometry.name or (link if len(geometries) == 1 else f"{link} {number}")
            if isinstance(geometry.shape, MeshFile):
                left_out.append(f"{name}: MeshFile {geometry.shape.uri}")
                continue
            if isinstance(geometry.shape, Mesh):
                shape, error = _hull_of_mesh(geometry.shape, name, most_vertices)
                if error:
                    simplified.append(f"{name}: within {error:.2g} m")
            else:
                shape = geometry.shape
            H = np.asarray(geometry.placement)
            shapes.append(PlacedShape(shape, link, pose_of(H[:3, :3], H[:3, 3], "X_FS"), name))
    return shapes, left_out, simplified


def _hull_of_mesh(mesh: Mesh, name: str, most_vertices: int) -> tuple[ConvexMesh, float]:
    """`convex_hull` of a mesh; its errors name the mesh."""
    try:
        return convex_hull(mesh.vertices, most_vertices=most_vertices)
    except ArgumentError as error:
        raise ArgumentError(f"the mesh {name!r}: {error}") from None


@arguments.compiled(arrays=("q",))
def robot_distances(
    model: Model, q: Array | Kinematics, pairs: DistancePairs
) -> Float[Array, " m"]:
    """The signed distances (m,) of the shapes of m pairs, in m.

    `q` (nq,) or its `Kinematics`. A distance is negative if the shapes overlap. Derivatives are as
    for `distance`. Raises ArgumentError for an unknown frame.
    """
    distances = _value if isinstance(q, Kinematics) else _distances
    return distances((model, checked_pairs(pairs)), q)


@arguments.compiled(arrays=("q",))
def robot_separations(model: Model, q: Array | Kinematics, pairs: DistancePairs) -> Separation:
    """The `Separation` of each of m pairs of shapes, in the world frame.

    `q` (nq,) or its `Kinematics`. The arrays of the result have a leading axis of length m. Raises
    ArgumentError for an unknown frame.
    """
    if not len(checked_pairs(pairs)):
        _require_frames(model, pairs)
        zero, vectors = jnp.zeros(0, model.dtype), jnp.zeros((0, 3), model.dtype)
        return Separation(zero, vectors, vectors, vectors)
    kinematics = forward_kinematics.unchecked(model, q)
    p_WR = first_root_position(model, kinematics)
    places = shape_places(model, kinematics, pairs.shapes)
    found = _separations(model, poses_from_root(places, p_WR), pairs)
    return found._replace(point_a=found.point_a + p_WR[None], point_b=found.point_b + p_WR[None])


def distances_and_jacobian(
    model: Model, kinematics: Kinematics, pairs: DistancePairs
) -> tuple[Float[Array, " m"], Float[Array, "m nv"]]:
    """The distances (m,) of `robot_distances`, and the matrix (m, nv) from v to their rates.

    The rate of a distance is the velocity of point b relative to point a, along the normal, times
    the length of the gradient of the distance. Raises ArgumentError for an unknown frame.
    """
    if not len(checked_pairs(pairs)):
        _require_frames(model, pairs)
        return jnp.zeros(0, model.dtype), jnp.zeros((0, model.nv), model.dtype)
    places = shape_places(model, kinematics, pairs.shapes)
    p_WR = first_root_position(model, kinematics)
    X = poses_from_root(places, p_WR)
    found = _separations(model, X, pairs)
    # Both points are on the line of the normal, so one force along it acts on both shapes.
    shapes, members = [shape.shape for shape in cast(pairs.shapes, model.dtype)], pairs.members
    lengths = gradient_lengths(shapes, X, np.array(members), found)
    force = wrenches_at_points(found.point_b, lengths[:, None] * found.normal)
    columns = dof_columns(model, first_root_centred(model, kinematics))
    a, b = places.bodies[np.array(members)].T
    a, b = (model.topology.movers(bodies).astype(int) for bodies in (a, b))
    # 1 for a dof that moves only b, -1 for a dof that moves only a, else 0.
    moves = jnp.asarray((b - a)[:, model.topology.dof_body], model.dtype)
    rows = moves * matmul(force, columns.T)
    return found.distance, independent_force(model, kinematics.q, rows.T).T


def _value(constants: tuple[Model, DistancePairs], q: Array | Kinematics) -> Array:
    """The distances (m,) of `robot_distances`."""
    model, pairs = constants
    return robot_separations.unchecked(model, q, pairs).distance


def _first_order(constants: tuple[Model, DistancePairs], q: Array) -> FirstOrder:
    """The distances (m,), and their Jacobian."""
    model, pairs = constants
    kinematics = forward_kinematics.unchecked(model, q)
    distances, jacobian = distances_and_jacobian(model, kinematics, pairs)
    return FirstOrder(distances, (jacobian,))


# JAX differentiates the program of the Jacobian for second derivatives.
_distances = with_analytic_derivatives(_value, _first_order)


def shape_places(model: Model, kinematics: Kinematics, shapes: Sequence[PlacedShape]) -> Places:
    """The places of the frames of the shapes."""
    X_FS = stacked(cast([shape.X_FS for shape in shapes], model.dtype))
    return find_places(model, kinematics, [shape.frame for shape in shapes], X_FS)


def _separations(model: Model, X: Pose, pairs: DistancePairs) -> Separation:
    """The separations of the pairs for the poses X of the shapes."""
    shapes = [shape.shape for shape in cast(pairs.shapes, model.dtype)]
    return separations(shapes, X, np.array(pairs.members))


def _require_frames(model: Model, pairs: DistancePairs) -> None:
    """Raise ArgumentError for a shape in a frame that the model does not have."""
    bodies_of(model, [shape.frame for shape in pairs.shapes])


def checked_pairs(pairs: DistancePairs) -> DistancePairs:
    """`pairs`, if they are DistancePairs; else raises ArgumentError."""
    if isinstance(pairs, DistancePairs):
        return pairs
    given = described(pairs) if isinstance(pairs, Array) else repr(pairs)
    raise ArgumentError(f"pairs is {given}, expected DistancePairs, see pairs_of")
