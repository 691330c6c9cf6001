"""Signed distances of pairs of shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._math.cast import cast, stacked
from ..errors import ArgumentError
from ..model import arguments
from ..spatial import Pose
from .cores import HullCore
from .grid_distances import grid_separations
from .height_grid import HeightGrid
from .segment_boxes import segment_box_separation
from .segment_cylinders import segment_cylinder_separation
from .segments import segment_separation
from .separation import Separation, half_space_separation, shape_separation
from .shapes import (
    Box,
    Capsule,
    Cylinder,
    Shape,
    Sphere,
    Unbounded,
    checked_shape,
    core_of,
    require_single,
)

# The formulas of pairs; the first one is for all pairs of cores. Spheres and capsules are segments.
_FORMULAS = (
    shape_separation,
    segment_separation,
    segment_box_separation,
    segment_cylinder_separation,
)
# Indices in `_FORMULAS`: two segments, a segment with a box, a segment with a cylinder.
_OF_SEGMENTS, _WITH_BOX, _WITH_CYLINDER = 1, 2, 3


def distance(a: Shape, X_WA: Pose, b: Shape, X_WB: Pose) -> Separation:
    """The signed distance of two shapes, the points where they are nearest, and the normal.

    - `a`, `b`: shapes; at most one is a `HalfSpace` or a `HeightGrid`;
    - `X_WA`, `X_WB`: the poses of the frames of the shapes in the world, of one dtype. For batches
      use `jax.vmap`.

    The distance of shapes that are apart is exact to rounding errors. Shapes that overlap have
    minus the length of the shortest translation after which they only touch. If one of them is a
    cylinder or an ellipsoid, the result can be a local minimum of this length.

    A `HeightGrid` is the ground below flat triangles through its nodes. The diagonal of each cell
    goes from node [i, j] to node [i + 1, j + 1]. Outside of the grid, the ground continues with the
    height of the nearest point of the border. If the core of a shape, which is the shape without
    its rounding, overlaps this ground, the distance is minus the height by which the core must be
    raised along the z axis of the grid, minus the rounding. Then the normal is the normal of the
    ground where the raised core leaves it. In all derivatives, this normal and the places of the
    points on both shapes are constant: the first derivative of the distance is exact, the second is
    not.

    Derivatives with respect to poses and sizes are exact in both modes, up to the second of the
    distance and the first of the points and of the normal. Where the points are not unique, as for
    parallel faces, the derivative of the distance is one of its subgradients.

    Raises ArgumentError for objects of other types, for two shapes that are half-spaces or grids,
    for poses of two dtypes, and for a batch of shapes.
    """
    shapes = checked_shape(a, "a"), checked_shape(b, "b")
    if all(isinstance(shape, Unbounded) for shape in shapes):
        kinds = " and b is a ".join(type(shape).__name__ for shape in shapes)
        raise ArgumentError(f"a is a {kinds}, expected at most one HalfSpace or HeightGrid")
    poses = [arguments.pose_parameter(X, name) for X, name in ((X_WA, "X_WA"), (X_WB, "X_WB"))]
    if poses[0].p.dtype != poses[1].p.dtype:
        raise ArgumentError(
            f"X_WA has dtype {poses[0].p.dtype} and X_WB has dtype {poses[1].p.dtype}, expected one"
        )
    X = stacked(poses)
    return _separation(cast(shapes, X.p.dtype), X)


@jax.jit
def _separation(shapes: tuple[Shape, Shape], X: Pose) -> Separation:
    found = separations(shapes, X, np.array([[0, 1]]))
    return jax.tree.map(lambda x: x[0], found)


def separations(shapes: Sequence[Shape], X: Pose, members: np.ndarray) -> Separation:
    """The separations (m,) of pairs of shapes; arguments as for `batches_of`."""
    batches = batches_of(shapes, X, members, np.zeros(len(members), int))
    order = np.argsort(np.concatenate([batch.rows for batch in batches]))
    parts = [_separations_of(batch) for batch in batches]
    return jax.tree.map(lambda *x: jnp.concatenate(x)[order], *parts)


def _separations_of(batch: Batch) -> Separation:
    if isinstance(batch.a, HeightGrid):
        found = grid_separations(batch.a, batch.X_a, batch.b, batch.X_b)
    elif batch.a is None:
        found = jax.vmap(half_space_separation)(batch.X_a, batch.b, batch.X_b)
    else:
        found = jax.vmap(batch.formula)(batch.a, batch.X_a, batch.b, batch.X_b)
    return found.exchanged(batch.exchanged)


def _formulas_of(shapes: Sequence[Shape], members: np.ndarray) -> np.ndarray:
    """The index (m,) in `_FORMULAS` of the formula of each pair."""

    def have_type(*kinds: type) -> np.ndarray:
        """Which shapes (m, 2) of the pairs have one of these types."""
        return np.array([isinstance(shape, kinds) for shape in shapes])[members]

    segments = have_type(Sphere, Capsule)
    formulas = np.where(np.all(segments, axis=1), _OF_SEGMENTS, 0)
    for kind, formula in ((Box, _WITH_BOX), (Cylinder, _WITH_CYLINDER)):
        with_segment = np.any(segments, axis=1) & np.any(have_type(kind), axis=1)
        formulas = np.where(with_segment, formula, formulas)
    return formulas


def gradient_lengths(
    shapes: Sequence[Shape], X: Pose, members: np.ndarray, found: Separation
) -> Array:
    """The lengths (m,) of the gradients of distances with respect to the position of a shape.

    They are 1 if no core overlaps a grid, see `grid_separations`. `found`: the separations of the
    pairs; other arguments as for `batches_of`.
    """
    lengths = jnp.ones_like(found.distance)
    are_grids = np.array([isinstance(shape, HeightGrid) for shape in shapes])[members]
    rows = np.flatnonzero(np.any(are_grids, axis=1))
    if not len(rows):
        return lengths
    grids, others = members[are_grids], members[rows][~are_grids[rows]]
    radii = jnp.stack([core_of(shapes[i])[1] for i in others])
    slope = jnp.abs(jnp.sum(found.normal[rows] * X.R[grids][:, :, 2], axis=1))
    overlap = found.distance[rows] < -radii
    return lengths.at[rows].set(jnp.where(overlap, 1 / jnp.where(overlap, slope, 1), 1))


class Batch(NamedTuple):
    """Pairs of shapes of one kind and with one label.

    - `rows` (n,): the places of the pairs in the list of all pairs;
    - `exchanged` (n,): whether a and b are the second and the first shape of a pair;
    - `a`, `b`: the cores with roundings; `a` is None for half-spaces, and one grid for all pairs
      with this grid;
    - `X_a`, `X_b`: the poses of the shapes;
    - `label`: the label that all pairs of the batch have;
    - `formula`: the function of a, X_a, b and X_b that computes the `Separation` of a pair.
    """

    rows: np.ndarray
    exchanged: np.ndarray
    a: Any
    X_a: Pose
    b: Any
    X_b: Pose
    label: int
    formula: Callable[..., Separation]


def batches_of(
    shapes: Sequence[Shape], X: Pose, members: np.ndarray, labels: np.ndarray
) -> list[Batch]:
    """The pairs of shapes, in batches of one kind of pair.

    - `X`: the poses of the shapes, in arrays with one row per shape;
    - `members` (m, 2): the indices of the shapes of each pair;
    - `labels` (m,): an integer for each pair. Pairs with different labels are in different batches.
    """
    grids = [i for i, shape in enumerate(shapes) if isinstance(shape, HeightGrid)]
    for i in grids:
        require_single(shapes[i])
    cores = [None if isinstance(shape, Unbounded) else core_of(shape) for shape in shapes]
    types = sorted({type(core[0]).__name__ for core in cores if core is not None})
    # The kind of a shape is an integer: its place in (half-spaces, first grid, ..., first type of
    # cores, ...). In a batch, shape a has the lower kind. Segments and boxes have the same kind;
    # then shape a is the segment.
    first = 1 + len(grids)
    kind = np.array([0 if c is None else first + types.index(type(c[0]).__name__) for c in cores])
    kind[grids] = 1 + np.arange(len(grids))
    kinds = first + len(types)
    stacks = [_stack([cores[i] for i in np.flatnonzero(kind == k)]) for k in range(first, kinds)]
    places = [int(np.sum(kind[:i] == k)) for i, k in enumerate(kind)]

    def cores_at(index: np.ndarray) -> Any:
        """The cores of shapes of one kind; the grid, if the kind is a grid."""
        if kind[index[0]] < first:
            return None if kind[index[0]] == 0 else shapes[index[0]]
        rows = np.array(places)[index]
        return jax.tree.map(lambda x: x[rows], stacks[kind[index[0]] - first])

    order = 2 * kind + [isinstance(shape, Box) for shape in shapes]
    exchanged = order[members[:, 0]] > order[members[:, 1]]
    ordered = np.where(exchanged[:, None], members[:, ::-1], members)
    formulas = _formulas_of(shapes, members)
    # A code per combination of a label, a formula, and the kinds of a and b.
    groups = labels * len(_FORMULAS) + formulas
    codes = kind[ordered] @ [kinds, 1] + groups * kinds**2
    found = []
    for code in np.unique(codes):
        rows = np.flatnonzero(codes == code)
        a, b = ordered[rows].T
        X_a, X_b = (jax.tree.map(lambda x: x[i], X) for i in (a, b))
        label, formula = int(labels[rows[0]]), _FORMULAS[formulas[rows[0]]]
        found.append(
            Batch(rows, exchanged[rows], cores_at(a), X_a, cores_at(b), X_b, label, formula)
        )
    return found


def _stack(cores: Sequence[Any]) -> Any:
    """Cores with roundings as one pytree with a leading axis."""
    if isinstance(cores[0][0], HullCore):
        n = max(len(core.vertices) for core, _ in cores)
        m = max(len(core.edge_normals) for core, _ in cores)
        cores = [(core.padded(n, m), radius) for core, radius in cores]
    return stacked(cores)


def pose_of(R: Any, p: Any, name: str) -> Pose:
    """The pose with R (3, 3) and p (3,), arrays of NumPy or JAX.

    Only the shapes and dtypes of the arrays are checked.
    """
    rotation: Any = arguments.parameter(R, f"{name}.R", (3, 3))
    position: Any = arguments.parameter(p, f"{name}.p", (3,))
    return Pose(rotation, position)
