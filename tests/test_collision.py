"""Signed distances of shapes, and of the shapes of a robot and its world.

A distance of shapes that are apart is proved by duality: the two points are in the shapes, and the
separation along the normal, computed here from support functions, is equal to their distance.
"""

import dataclasses
import functools
import inspect
import itertools
import re
import tracemalloc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from scipy.optimize import nnls
from scipy.spatial import ConvexHull

import jaxrbd as rbd
from jaxrbd import io, se3, so3
from jaxrbd._math.cast import cast
from jaxrbd._math.tiles import BLOCK, Row, repeat_in_blocks
from jaxrbd.collision import (
    Box,
    Capsule,
    ConvexMesh,
    Cylinder,
    DistancePairs,
    Ellipsoid,
    HalfSpace,
    PlacedShape,
    Sphere,
    capsule_between,
    convex_hull,
    distance,
    mesh_hulls,
    pairs_of,
    robot_distances,
    robot_separations,
    separation as separation_module,
)
from jaxrbd.collision.cores import triangle_weights
from jaxrbd.collision.distances import separations
from jaxrbd.collision.hulls import first_corners, nearer_points
from jaxrbd.collision.nearest import CorePair
from jaxrbd.collision.robot_shapes import checked_pairs, distances_and_jacobian
from jaxrbd.collision.segment_boxes import segment_box_separation
from jaxrbd.collision.segment_cylinders import (
    _nearest_on_segment,
    _Pair,
    segment_cylinder_separation,
)
from jaxrbd.collision.segments import segment_separation
from jaxrbd.collision.separation import half_space_separation, shape_separation, unit
from jaxrbd.collision.shapes import checked_shape, core_of
from jaxrbd.conformance.distances import SHAPE_PAIRS, check_distances
from jaxrbd.model.geometry import Geometry, LinkGeometry, Mesh, MeshFile
from jaxrbd.spatial import Pose, compose, identity_pose
from support import finite_differences
from support.nightly import all_but

N = 2000  # a few of so many pairs need many iterations
# The sizes of a random shape, in the order of the arguments of its class.
SIZES = {
    Sphere: [()],
    Capsule: [(), ()],
    Box: [(3,), ()],
    Cylinder: [(), (), ()],
    Ellipsoid: [(3,), ()],
    ConvexMesh: [(8, 3), ()],
}
# The first pairs have all kinds of cores.
KINDS = [(Cylinder, Box), (Cylinder, ConvexMesh), (Ellipsoid, Cylinder)]
OTHERS = [(Sphere, Box), (Box, Box), (Cylinder, Cylinder), (Ellipsoid, Ellipsoid), (Ellipsoid, Box)]
OTHERS += [(Capsule, Capsule), (Capsule, Cylinder), (Sphere, Ellipsoid), (Sphere, Sphere)]
OTHERS += [(Sphere, Cylinder)]
OTHERS += [(Box, Capsule), (ConvexMesh, ConvexMesh), (Box, ConvexMesh), (Capsule, ConvexMesh)]
OTHERS += [(Ellipsoid, ConvexMesh)]
OTHERS += [(Sphere, Capsule), (Sphere, ConvexMesh), (Capsule, Ellipsoid)]
assert len({frozenset(pair) for pair in [*KINDS, *OTHERS]}) == 21  # all pairs of kinds


def of_kinds(default, kinds):
    """A test of pairs of kinds; those that are not in `default` run nightly."""
    name = "-".join
    return pytest.mark.parametrize(
        "kinds", all_but(default, kinds), ids=lambda pair: name(kind.__name__ for kind in pair)
    )


CLOSED = [(Capsule, Capsule), (Box, Capsule), (Capsule, Cylinder)]  # these have closed forms
EACH = of_kinds([*KINDS, *CLOSED], [*KINDS, *OTHERS])
WITH_BOX = of_kinds([*KINDS, *CLOSED], [*KINDS, *OTHERS])


@functools.cache
def separate():
    return jax.jit(jax.vmap(distance))


def shapes(kind, rng, scale=1.0):
    """N random shapes; their roundings are at most 0.05. The points of hulls repeat."""
    sizes = [rng.uniform(0.05, 1, (N, *shape)) * scale for shape in SIZES[kind]]
    if kind in (Box, Cylinder, Ellipsoid, ConvexMesh):
        sizes[-1] = rng.uniform(0, 0.05, N) * scale
    if kind is ConvexMesh:
        return hulls(rng, sizes[-1], scale)
    return jax.vmap(kind)(*map(jnp.asarray, sizes))


def hulls(rng, rounding, scale):
    """N hulls of 8 points, of which 200 are different."""
    vertices = rng.uniform(-1, 1, (200, 8, 3)) * scale
    made = [ConvexMesh(x) for x in vertices]
    normals = edge_normals(made, EDGES)
    rows = np.arange(N) % len(made)
    leaves = map(jnp.asarray, (vertices[rows], rounding, normals[rows]))
    return jax.tree.unflatten(jax.tree.structure(made[0]), leaves)


EDGES = 18  # a hull of 8 points has up to 18 edges


def edge_normals(hulls, count):
    """The normals of `count` edges of each hull; edges repeat."""
    return np.stack([np.resize(hull.edge_normals, (count, 2, 3)) for hull in hulls])


def poses(rng, spread):
    R = jax.vmap(so3.exp)(jnp.asarray(rng.normal(size=(N, 3)) * 2))
    return Pose(R, jnp.asarray(rng.normal(size=(N, 3)) * spread))


def pairs(kinds, rng, spread=1.0, scale=1.0):
    """N random pairs of two kinds: the arguments of `distance`."""
    a, b = (shapes(kind, rng, scale) for kind in kinds)
    return a, poses(rng, spread * scale), b, poses(rng, spread * scale)


def reach(shape, n):
    """The support function (N,) of shapes in directions n (N, 3) in their frames."""
    match shape:
        case Sphere():
            return shape.radius
        case Capsule():
            return shape.radius + shape.half_length * np.abs(n[:, 2])
        case Box():
            inner = shape.half_sizes - shape.rounding[:, None]
            return shape.rounding + np.sum(np.abs(n) * inner, axis=1)
        case Cylinder():
            r, h = shape.radius - shape.rounding, shape.half_length - shape.rounding
            return shape.rounding + r * np.hypot(n[:, 0], n[:, 1]) + h * np.abs(n[:, 2])
        case Ellipsoid():
            return shape.rounding + np.linalg.norm(shape.radii * n, axis=1)
        case ConvexMesh():
            return shape.rounding + np.max(np.einsum("nij,nj->ni", shape.vertices, n), axis=1)


def separation(a, X_a, b, X_b, n):
    """The separation (N,) along directions n (N, 3) from a to b."""
    n_a, n_b = (np.einsum("nij,ni->nj", X.R, n) for X in (X_a, X_b))
    return np.einsum("ni,ni->n", n, X_b.p - X_a.p) - reach(a, n_a) - reach(b, -n_b)


def outside(shape, X, point):
    """How far (N,) points are outside of shapes; 0 or less in a shape."""
    x = np.einsum("nij,ni->nj", X.R, point - X.p)
    if isinstance(shape, ConvexMesh):
        return np.array([*map(outside_of_hull, np.asarray(shape.vertices), x)]) - shape.rounding
    x = np.abs(x)
    match shape:
        case Sphere():
            return np.linalg.norm(x, axis=1) - shape.radius
        case Capsule():
            x[:, 2] = np.maximum(x[:, 2] - shape.half_length, 0)
            return np.linalg.norm(x, axis=1) - shape.radius
        case Box():
            rest = np.maximum(x - (shape.half_sizes - shape.rounding[:, None]), 0)
            return np.linalg.norm(rest, axis=1) - shape.rounding
        case Cylinder():
            r, h = shape.radius - shape.rounding, shape.half_length - shape.rounding
            rest = [np.maximum(np.hypot(x[:, 0], x[:, 1]) - r, 0), np.maximum(x[:, 2] - h, 0)]
            return np.hypot(*rest) - shape.rounding
        case Ellipsoid():
            # The nearest point of the ellipsoid, r^2 x / (r^2 + t), by bisection for t.
            square = np.asarray(shape.radii) ** 2
            low, high = np.zeros(N), np.linalg.norm(shape.radii * x, axis=1)
            for _ in range(80):
                t = (low + high) / 2
                is_low = np.sum(square * (x / (square + t[:, None])) ** 2, axis=1) > 1
                low, high = np.where(is_low, t, low), np.where(is_low, high, t)
            return (
                np.linalg.norm(x - square * x / (square + high[:, None]), axis=1) - shape.rounding
            )


def outside_of_hull(vertices, x):
    """The distance of a point x from the hull of vertices, by their linear inequalities.

    The shortest y with `normals y <= heights` follows from a nonnegative least-squares problem
    (Lawson and Hanson, Solving Least Squares Problems, 1974, chapter 23).
    """
    hull = ConvexHull(vertices)
    heights = -hull.equations[:, 3] - hull.equations[:, :3] @ x
    if np.all(heights >= 0):
        return 0
    E = np.vstack([-hull.equations[:, :3].T, -heights])
    weights, _ = nnls(E, np.array([0, 0, 0, 1.0]))
    rest = E @ weights - [0, 0, 0, 1]
    return np.linalg.norm(rest[:3] / rest[3])


@WITH_BOX
def test_the_distance_of_shapes_is_proved_by_its_points_and_its_normal(kinds, rng):
    """Apart: the points are in the shapes, and no larger separation than their distance exists."""
    if kinds == (Ellipsoid, ConvexMesh):
        # In an overlap, the iterations for a triangle of the hull take more than one visit.
        rng = np.random.default_rng(3)
    arguments = a, X_a, b, X_b = pairs(kinds, rng, spread=1.0)
    found = jax.tree.map(np.asarray, separate()(*arguments))
    d, n = found.distance, found.normal
    assert N / 10 < np.sum(d > 0) < 0.95 * N
    np.testing.assert_allclose(np.linalg.norm(n, axis=1), 1, atol=1e-14)
    np.testing.assert_allclose(found.point_b - found.point_a, d[:, None] * n, atol=1e-9)
    # Rounding errors turn the normal by the unit roundoff divided by the distance of the cores.
    gap = np.abs(d + sum(np.asarray(jax.vmap(lambda x: core_of(x)[1])(x)) for x in (a, b)))
    assert np.all(np.abs(separation(*arguments, n) - d) < 2e-13 + 2e-15 / gap)
    assert np.max(outside(a, X_a, found.point_a)) < 1e-9
    assert np.max(outside(b, X_b, found.point_b)) < 1e-9


@EACH
def test_no_shorter_translation_separates_shapes(kinds, rng):
    """The depth against the least depth along 1000 directions, and around the best of them."""
    arguments = pairs(kinds, rng, spread=0.4)
    d = np.asarray(separate()(*arguments).distance)
    n, least = np.zeros((N, 3)), np.full(N, -np.inf)
    around = [1e6] * 1000 + np.geomspace(0.2, 1e-5, 300).tolist()
    for size in around:
        tried = n + size * rng.normal(size=3)
        tried /= np.linalg.norm(tried, axis=1, keepdims=True)
        width = separation(*arguments, tried)
        better = width > least
        n, least = np.where(better[:, None], tried, n), np.where(better, width, least)
    larger = least > d + 1e-12
    assert not np.any(larger)


def test_the_visits_of_a_hull_and_a_cylinder(rng):
    """`nearer_points` ends where no corner is nearer, and where the cores overlap for certain."""
    a, X_a, b, X_b = pairs((Cylinder, ConvexMesh), rng)

    @jax.jit
    @jax.vmap
    def after_four_visits(a, X_a, b, X_b):
        pair = CorePair(core_of(a)[0], core_of(b)[0], X_b.R.T @ X_a.R, X_b.R.T @ (X_a.p - X_b.p))

        def visit(i, found):
            return nearer_points(pair, *found[:2], 5, found[3])

        return lax.fori_loop(0, 4, visit, (pair.p, first_corners(pair), True, False))[2]

    assert np.mean(after_four_visits(a, X_a, b, X_b)) < 0.005


def test_hulls_leave_boxes_across_edges(rng):
    """Edges of boxes and of hulls; lines between any corners of a hull contain its edges."""
    a, X_a, b, X_b = arguments = pairs((Box, ConvexMesh), rng, spread=0.5)
    d = np.asarray(separate()(*arguments).distance)
    core = d + np.asarray(a.rounding + b.rounding)
    i, j = np.triu_indices(8, 1)
    edges = np.einsum("nij,nej->nei", X_b.R, b.vertices[:, i] - b.vertices[:, j])
    least = np.full(N, -np.inf)
    for axis in np.moveaxis(np.asarray(X_a.R), 2, 0):
        for edge in np.moveaxis(edges, 1, 0):
            n = np.cross(axis, edge)
            n = n / np.linalg.norm(n, axis=1, keepdims=True)
            least = np.max([least, *(separation(*arguments, s * n) for s in (1, -1))], axis=0)
    overlaps = core < -1e-3
    assert np.sum(overlaps) > 200
    assert np.max((least - d)[overlaps]) < 1e-10


# By the kind of a shape: the sizes of shapes, the poses of hulls in their frames (rotation vector,
# position), the corners of the hulls, and the directions of the least depth. The directions of the
# cylinders are across an edge and the axis of the cylinder; between the directions of the first
# candidates; and between the directions of one hexagon of the pattern search. That of the box is
# across two edges. Qhull gives the same depth of the box, as in `exact_separation` of the study of
# depths. For prisms of 512 sides in and around the cylinders, it gives a lower and an upper bound,
# which differ by less than 1e-4 of the depth.
HARD = {
    Cylinder: (
        (
            ((0.158, 0.419), (-0.45, -0.01, 1.84), (0.005, -0.008, -0.164)),
            [
                *[[-0.11, 0.013, 0.065], [0.027, -0.046, 0.015], [0.104, -0.015, 0.017]],
                *[[-0.091, -0.045, -0.046], [-0.1, 0.059, 0.011], [-0.029, -0.004, 0.073]],
                *[[-0.008, 0.058, 0.036], [-0.028, 0.05, -0.058]],
            ],
            (0.936778861, -0.349921942, 0.0),
        ),
        (
            ((0.038, 0.051), (-0.51, -1.57, -0.67), (0.079, -0.043, 0.067)),
            [
                *[[-0.092, 0.031, -0.555], [-0.1, -0.033, -0.295], [0.058, -0.045, 0.58]],
                *[[0.14, 0.0, -0.168], [0.011, 0.027, -0.523], [0.001, -0.098, 0.104]],
                *[[-0.057, -0.06, -0.224], [0.06, 0.013, 0.312]],
            ],
            (0.06988299, -0.12836028, 0.98926235),
        ),
        (
            ((0.191, 0.19), (-1.76, 0.19, -1.98), (0.157, -0.225, 0.11)),
            [
                *[[-0.113, -0.328, 0.057], [-0.285, 0.043, 0.001], [0.137, -0.007, -0.056]],
                *[[0.18, 0.144, 0.026], [0.038, 0.315, 0.032], [-0.051, 0.207, 0.037]],
                *[[-0.095, 0.273, -0.05], [0.226, 0.111, -0.037]],
            ],
            (0.995319941, -0.0966344391, 0.0),
        ),
    ),
    Box: (
        (
            (([0.479, 0.106, 0.034],), (-1.19, 0.79, -1.78), (0.056, 0.042, 0.016)),
            [
                *[[-0.009, 0.015, -0.043], [0.001, 0.099, -0.01], [-0.006, 0.111, -0.049]],
                *[[0.006, 0.021, -0.062], [-0.017, 0.007, 0.058], [0.009, -0.023, 0.072]],
                *[[0.017, -0.036, -0.02], [-0.007, 0.072, 0.022]],
            ],
            (0.0, 0.9502876005, -0.3113735318),
        ),
    ),
}


@pytest.mark.parametrize("kind", HARD)
def test_the_search_finds_the_least_depth_in_a_hull(kind):
    def repeated(x):
        return jnp.asarray(np.resize(x, (N, *np.shape(x)[1:])))  # the shape of the other tests

    sizes, turn, p, corners, n = zip(*((*numbers, hull, n) for numbers, hull, n in HARD[kind]))
    made = [ConvexMesh(x) for x in corners]
    leaves = map(repeated, (corners, np.zeros(1), edge_normals(made, EDGES)))
    b = jax.tree.unflatten(jax.tree.structure(made[0]), leaves)
    a = jax.vmap(kind)(*map(repeated, (*zip(*sizes), np.zeros(1))))
    X_a = Pose(repeated(np.eye(3)[None]), jnp.zeros((N, 3)))
    X_b = Pose(jax.vmap(so3.exp)(repeated(turn)), repeated(p))
    least = separation(a, X_a, b, X_b, np.asarray(repeated(n)))
    np.testing.assert_allclose(separate()(a, X_a, b, X_b).distance, least, atol=1e-6)


def test_the_normal_of_a_capsule_on_an_edge_of_a_hull(rng):
    """The distance is the separation along the normal where the axis is exactly on an edge."""
    mesh = ConvexMesh(CORNERS * [0.5, 0.25, 1.0])
    a, b = (
        jax.tree.map(lambda x: jnp.broadcast_to(x, (N, *jnp.shape(x))), shape)
        for shape in (mesh, Capsule(0.1, 0.25))
    )
    X_a = poses(rng, 1.0)
    edge = rng.choice([-1, 1], (N, 3)) * [0.5, 0.25, 0.7]
    turn = jax.vmap(so3.exp)(rng.uniform(-3, 3, (N, 1)) * np.array([0.0, 0, 1]))
    X_b = Pose(X_a.R @ turn, X_a.p + jnp.einsum("nij,nj->ni", X_a.R, edge))
    found = separate()(a, X_a, b, X_b)
    widths = separation(a, X_a, b, X_b, np.asarray(found.normal))
    np.testing.assert_allclose(found.distance, -0.1, atol=1e-12)
    np.testing.assert_allclose(widths, found.distance, atol=1e-12)


def test_the_depth_of_boxes_is_the_least_of_the_fifteen_axes(rng):
    a, X_a, b, X_b = arguments = pairs((Box, Box), rng, spread=0.3)
    a, b = (eqx.tree_at(lambda box: box.rounding, x, jnp.zeros(N)) for x in (a, b))
    arguments = a, X_a, b, X_b
    axes = [*np.moveaxis(np.asarray(X_a.R), 2, 0), *np.moveaxis(np.asarray(X_b.R), 2, 0)]
    axes += [np.cross(e, f) for e in axes[:3] for f in axes[3:]]
    axes = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in axes]
    largest = np.max([separation(*arguments, s * n) for n in axes for s in (1, -1)], axis=0)
    found = separate()(*arguments).distance
    overlap = largest < 0
    assert np.sum(overlap) > N / 2
    np.testing.assert_allclose(found[overlap], largest[overlap], atol=1e-13)


def depth_of_hulls(a, b):
    """The largest separation of two sets of corners: of the faces, and across two edges."""
    hulls, edges = [ConvexHull(x) for x in (a, b)], []
    for hull, x in zip(hulls, (a, b)):
        ends = {tuple(sorted(p)) for s in hull.simplices for p in itertools.combinations(s, 2)}
        edges.append(np.array([x[j] - x[i] for i, j in ends]))
    across = np.cross(edges[0][:, None], edges[1][None]).reshape(-1, 3)
    length = np.linalg.norm(across, axis=1, keepdims=True)
    across = (across / np.maximum(length, 1e-300))[length[:, 0] > 1e-9]
    faces = hulls[0].equations[:, :3], -hulls[1].equations[:, :3]
    n = np.concatenate([*faces, across, -across]).T
    return np.max(np.min(b @ n, axis=0) - np.max(a @ n, axis=0))


def overlapping_hulls(n):
    """n pairs of hulls of 24 points with the pose of a in the frame of b, and their separations."""
    rng = np.random.default_rng(0)
    corners = rng.normal(size=(2, n, 24, 3))
    corners /= np.linalg.norm(corners, axis=3, keepdims=True)
    corners *= rng.uniform(0.3, 1, (2, n, 1, 3)) * rng.uniform(0.7, 1, (2, n, 24, 1))
    R = np.asarray(jax.vmap(so3.exp)(jnp.asarray(2 * rng.normal(size=(n, 3)))))
    p = 0.35 * rng.normal(size=(n, 3))
    placed = np.einsum("nij,nkj->nki", R, corners[0]) + p[:, None]
    expected = np.array([depth_of_hulls(a, b) for a, b in zip(placed, corners[1])])
    parts = [[ConvexMesh(x) for x in xs] for xs in corners]
    m = max(len(part.edge_normals) for part in itertools.chain(*parts))
    structure = jax.tree.structure(parts[0][0])
    leaves = [(xs, np.zeros(n), edge_normals(part, m)) for xs, part in zip(corners, parts)]
    a, b = (jax.tree.unflatten(structure, map(jnp.asarray, x)) for x in leaves)
    assert np.mean(expected < -1e-6) > 0.8
    return a, b, Pose(jnp.asarray(R), jnp.asarray(p)), expected


def test_the_first_direction_of_two_hulls_is_that_of_their_depth():
    a, b, X, expected = overlapping_hulls(60)

    edges = [Row(hull.edge_normals, jnp.arange(60)) for hull in (a, b)]

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, 0, 0, [Row(None, 0)] * 2))
    def first(a, b, X, edges):
        pair = CorePair(core_of(a)[0], core_of(b)[0], X.R, X.p)
        start = separation_module._start(pair)
        return separation_module._with_first_direction(pair, start, edges)

    search = first(a, b, X, edges)
    np.testing.assert_allclose(search.widths[:, 0], expected, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(search.touch.n, axis=1), 1)


def test_hulls_of_traced_vertices_have_a_first_direction():
    """Their edges are not known, so the direction is that of a local minimum of the depth."""
    a, b, X, expected = overlapping_hulls(60)

    @jax.jit
    @jax.vmap
    def first(a, b, X):
        hulls = (core_of(ConvexMesh(x))[0] for x in (a, b))
        return separation_module._first_directions(CorePair(*hulls, X.R, X.p))[1][0]

    width = first(a.vertices, b.vertices, X)
    assert np.max(width - expected) < 1e-12
    assert np.mean(width > 1.05 * expected) > 0.9


@pytest.mark.slow
def test_the_depth_of_hulls_is_the_least_of_their_faces_and_edges():
    a, b, X, expected = overlapping_hulls(400)
    still = Pose(jnp.broadcast_to(jnp.eye(3), (400, 3, 3)), jnp.zeros((400, 3)))
    found = separate()(a, X, b, still).distance
    overlaps = expected < -1e-6
    assert np.max(np.abs(found - expected)[overlaps]) < 1e-10


def degenerate_boxes(rng, n):
    """Boxes that are flat, aligned or turned by simple angles, with small deviations or any."""
    a, b = rng.choice([0, 0.01, 0.1, 0.25, 0.5, 1, 2], (2, n, 3))
    axes = np.eye(3)[rng.integers(0, 3, (2, n))]
    angles = rng.choice([0, np.pi / 4, np.pi / 2, np.pi / 6, 0.3], n)
    small = 10 ** rng.uniform(-18, -2, n) * (rng.random(n) < 0.7) + (rng.random(n) < 0.2)
    turns = [
        axes[0] * angles[:, None],
        axes[1] * np.pi / 2,
        rng.normal(size=(n, 3)) * small[:, None],
    ]
    R = functools.reduce(np.matmul, [np.asarray(jax.vmap(so3.exp)(jnp.asarray(x))) for x in turns])
    p = rng.choice([0, 0.1, 0.25, 0.5, 1, 1.5, 2.5, -0.3, -1, 0.7], (n, 3))
    p += (rng.random((n, 1)) < 0.5) * rng.normal(size=(n, 3)) / 2
    return a, b, R, p


def box_of(half_sizes):
    return Box(half_sizes)


def segment_of(half_sizes):
    return Capsule(0.0, half_sizes[2])


@pytest.mark.parametrize("radii", [(1.0, 1.0, 0.01), (1.0, 0.01, 0.01), (1.0, 0.1, 0.01)])
def test_the_distance_of_a_flat_ellipsoid_near_its_rim(radii, rng):
    """A point on the normal of a point of the surface is as far away as it was moved."""
    n, radii = 1000, np.array(radii)
    around = rng.normal(size=(n, 3)) * np.where(rng.random((n, 1)) < 0.5, [1, 1, 0.01], 1)
    surface = radii * around / np.linalg.norm(around, axis=1, keepdims=True)
    normal = surface / radii**2
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    expected = 10 ** rng.uniform(-4, 1, n)
    centres = jnp.asarray(surface + expected[:, None] * normal)

    found = from_ellipsoid(jnp.asarray(radii), centres)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11)


@jax.jit
@functools.partial(jax.vmap, in_axes=(None, 0))
def from_ellipsoid(radii, p):
    """The distance of a point from an ellipsoid."""
    shapes = Ellipsoid(radii), Sphere(0.0)
    return distance(shapes[0], identity_pose(), shapes[1], Pose(jnp.eye(3), p)).distance


def test_directions_of_tiny_vectors_have_unit_length():
    """A square that underflows has too few digits; then the direction is the fallback."""
    fallback = jnp.array([0.0, 0.0, 1.0])
    shapes = np.array([[1.0, 0.9, 0.9], [1.0, 1e-3, 0.7]])
    vectors = np.concatenate([shapes * size for size in np.logspace(-165, -140, 400)])
    found = np.asarray(jax.jit(jax.vmap(unit, (0, None)))(vectors, fallback))
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-12)
    assert np.any(found[:, 2] == 1)
    assert np.any(found[:, 2] != 1)


@pytest.mark.parametrize("shape_of", [box_of, segment_of])
@pytest.mark.parametrize(("dtype", "room"), [("float64", 2e-9), ("float32", 1e-4)])
def test_boxes_in_degenerate_positions(dtype, room, shape_of):
    """The points prove that the distance is not larger, and the normal that it is not smaller."""
    n = 100_000
    a, b, R, p = degenerate_boxes(np.random.default_rng(1), n)
    if shape_of is segment_of:
        a[:, :2] = 0
    cast = [jnp.asarray(x, dtype) for x in (a, b, R, p)]

    @jax.jit
    @jax.vmap
    def both(a, b, R, p):
        X_b = identity_pose(p.dtype)

        def of(p):
            found = distance(shape_of(a), Pose(R, p), Box(b), X_b)
            return found.distance, found

        return *of(p), *jax.value_and_grad(of, has_aux=True)(p)

    d, found, (d_again, found_again), slope = both(*cast)
    R, p, normal, d = (np.asarray(x, float) for x in (R, p, found.normal, d))
    assert np.all(np.isfinite(normal))
    assert np.all(np.isfinite(slope))
    np.testing.assert_allclose(np.linalg.norm(normal, axis=1), 1, atol=1e-6)
    tops = np.sum(np.abs(np.einsum("nij,ni->nj", R, normal)) * a, axis=1)
    width = -np.sum(normal * p, axis=1) - tops - np.sum(np.abs(normal) * b, axis=1)
    apart = d > room
    assert 0.7 < np.mean(apart) < 0.93
    np.testing.assert_allclose(width, d, atol=room)
    in_a = np.einsum("nij,ni->nj", R, np.asarray(found.point_a, float) - p)
    np.testing.assert_array_less(np.abs(in_a[apart]), a[apart] + max(10 * room, 1e-7))
    np.testing.assert_array_less(np.abs(found.point_b), b + 1e-6)
    rounding = 4 * jnp.finfo(dtype).eps
    np.testing.assert_allclose(d_again, d, atol=rounding)
    np.testing.assert_allclose(found_again.normal, normal, atol=rounding)
    axes = [*np.moveaxis(R, 2, 0), *(np.broadcast_to(e, (n, 3)) for e in np.eye(3))]
    axes += [np.cross(e, f) for e in axes[:3] for f in axes[3:]]
    depths = [np.full(n, -np.inf)]
    for x in axes:
        length = np.linalg.norm(x, axis=1)
        x = x / np.maximum(length, 1e-300)[:, None]
        tops = np.sum(np.abs(np.einsum("nij,ni->nj", R, x)) * a, axis=1)
        width = np.abs(np.sum(x * p, axis=1)) - tops - np.sum(np.abs(x) * b, axis=1)
        depths.append(np.where(length > 1e-9, width, -np.inf))
    largest = np.max(depths, axis=0)
    np.testing.assert_allclose(d[largest < 0], largest[largest < 0], atol=room)


@pytest.mark.parametrize(("dtype", "room"), [("float64", 2e-9), ("float32", 1e-4)])
def test_segments_and_cylinders_in_degenerate_positions(dtype, room):
    """As for boxes. No direction of many has a larger separation."""
    a, b, R, p = degenerate_boxes(np.random.default_rng(2), 20_000)
    half, sizes = a[:, 2], b[:, [0, 2]]
    cast = [jnp.asarray(x, dtype) for x in (half, sizes, R, p)]

    @jax.jit
    @jax.vmap
    def found_and_slope(half, sizes, R, p):
        def of(p):
            X_b = identity_pose(p.dtype)
            found = distance(Capsule(0.0, half), Pose(R, p), Cylinder(*sizes), X_b)
            return found.distance, found

        return jax.grad(of, has_aux=True)(p)

    slope, found = jax.tree.map(lambda x: np.asarray(x, float), found_and_slope(*cast))
    half, sizes, R, p = (np.asarray(x, float) for x in cast)
    d, n = found.distance, found.normal
    assert all(np.all(np.isfinite(x)) for x in (slope, *found))
    np.testing.assert_allclose(np.linalg.norm(n, axis=1), 1, atol=1e-6)
    axis, (radius, length) = R[:, :, 2], sizes.T

    def width(n):
        across = np.linalg.norm(n[..., :2], axis=-1)
        return (
            -np.sum(n * p, axis=-1)
            - half * np.abs(np.sum(n * axis, axis=-1))
            - (radius * across + length * np.abs(n[..., 2]))
        )

    apart = d > room
    assert 0.7 < np.mean(apart) < 0.95
    np.testing.assert_allclose(width(n), d, atol=room)
    along = np.sum((found.point_a - p) * axis, axis=1)
    off_axis = np.linalg.norm(found.point_a - p - along[:, None] * axis, axis=1)
    beyond = np.abs(along) - half
    from_axis = np.linalg.norm(found.point_b[:, :2], axis=1)
    outside = [off_axis[apart], beyond[apart], from_axis - radius]
    outside += [np.abs(found.point_b[:, 2]) - length]
    assert max(map(np.max, outside)) < max(10 * room, 1e-6)
    # No other point of the segment is nearer to the cylinder.
    place = jax.jit(jax.vmap(lambda *pair: _nearest_on_segment(_Pair(*pair))))
    t = np.asarray(place(*[jnp.asarray(x, dtype) for x in (p, axis, half, radius, length)]), float)

    def outside_of_cylinder(t):
        x = p + t[:, None] * axis
        across = np.maximum(np.hypot(x[:, 0], x[:, 1]) - radius, 0)
        return np.hypot(across, np.maximum(np.abs(x[:, 2]) - length, 0))

    assert np.all(np.abs(t) <= half)
    others = [outside_of_cylinder(fraction * half) for fraction in np.linspace(-1, 1, 41)]
    assert np.max(outside_of_cylinder(t) - np.min(others, axis=0)) < room
    directions = np.random.default_rng(3).normal(size=(400, 3))
    directions = [*np.eye(3), *-np.eye(3), *directions]
    for axes in (axis, np.cross(axis, [0.0, 0, 1]), np.cross(axis, np.cross(axis, [0, 0, 1.0]))):
        lengths = np.linalg.norm(axes, axis=1, keepdims=True)
        directions += [s * np.where(lengths > 1e-9, axes, [[1.0, 0, 0]]) for s in (1, -1)]
    for x in directions:
        x = np.broadcast_to(x / np.linalg.norm(x, axis=-1, keepdims=True), n.shape)
        assert np.max(width(x) - d) < room


def test_the_direction_from_a_segment_to_the_rim_of_a_cylinder_has_derivatives(rng):
    segment, cylinder = Capsule(0.0, 1.0), Cylinder(0.5, 0.4)
    X, Y = poses(rng, 0.2), identity_pose(jnp.float64)
    twists = jnp.asarray(rng.normal(size=(N, 6)))

    @jax.jit
    @jax.vmap
    def normal_and_rate(X, twist, t):
        def normal(t):
            return distance(segment, compose(X, se3.exp(t * twist)), cylinder, Y).normal

        return jax.jvp(normal, (t,), (jnp.ones_like(t),))

    ahead, behind, here = (normal_and_rate(X, twists, jnp.full(N, t)) for t in (1e-5, -1e-5, 0.0))
    n, rate = map(np.asarray, here)
    slope = np.abs(n[:, 2])
    across = np.abs(np.sum(n * X.R[:, :, 2], axis=1)) < 1e-9
    at_rim = across & (slope > 0.05) & (slope < 0.95)
    assert np.sum(at_rim) > N / 10
    expected = np.asarray(ahead[0] - behind[0]) / 2e-5
    error = np.max(np.abs(rate - expected) / (1 + np.abs(expected)), axis=1)
    assert np.quantile(error[at_rim], 0.97) < 1e-6


def test_a_capsule_from_two_points():
    """Its ends, for every direction, and finite derivatives where the ends are equal."""
    for start, end in (([0, 0, 1], [0.3, 0.4, -1]), ([1, 2, 3], [1, 2, 4]), ([0, 0, 0], [1, 0, 0])):
        placed = capsule_between(start, end, 0.1, "base", "rod")
        assert (placed.frame, placed.name, placed.shape.radius) == ("base", "rod", 0.1)
        np.testing.assert_allclose(placed.X_FS.R @ placed.X_FS.R.T, np.eye(3), atol=1e-15)
        assert np.linalg.det(placed.X_FS.R) > 0
        half = placed.shape.half_length * placed.X_FS.R[:, 2]
        ends = sorted([(placed.X_FS.p - half).tolist(), (placed.X_FS.p + half).tolist()])
        np.testing.assert_allclose(ends, sorted([start, end]), atol=1e-15)

    def turned(start):
        placed = capsule_between(start, start, 0.1)
        return placed.X_FS.R, placed.shape.half_length

    R, half_length = turned(jnp.zeros(3))
    np.testing.assert_array_equal(R, np.eye(3))
    assert half_length == 0
    for x in jax.tree.leaves(jax.jacobian(turned)(jnp.zeros(3))):
        assert np.all(np.isfinite(x))


def test_a_capsule_between_an_array_of_jax_and_a_constant():
    for ends in (([0, 0, -1], jnp.ones(3, jnp.float32)), (jnp.ones(3, jnp.float32), np.zeros(3))):
        placed = capsule_between(*ends, 0.1)
        assert placed.X_FS.p.dtype == placed.shape.half_length.dtype == jnp.float32


def test_the_index_of_a_frame_is_an_integer_of_python():
    """Equinox warns of a static number of NumPy."""
    assert type(PlacedShape(POINT, np.int64(1)).frame) is int


@EACH
def test_distances_agree_with_coal(kinds, rng):
    coal = pytest.importorskip("coal")

    def coal_shape(shape, i):
        shape = jax.tree.map(lambda x: np.asarray(x)[i], shape)
        match shape:
            case Sphere():
                return coal.Sphere(shape.radius), 0
            case Capsule():
                return coal.Capsule(shape.radius, 2 * shape.half_length), 0
            case Box():
                return coal.Box(*(2 * (shape.half_sizes - shape.rounding))), shape.rounding
            case Cylinder():
                sizes = shape.radius - shape.rounding, shape.half_length - shape.rounding
                return coal.Cylinder(sizes[0], 2 * sizes[1]), shape.rounding
            case Ellipsoid():
                return coal.Ellipsoid(*shape.radii), shape.rounding
            case ConvexMesh():
                points, triangles = coal.StdVec_Vec3s(), coal.StdVec_Triangle()
                hull = ConvexHull(shape.vertices)
                places = {vertex: i for i, vertex in enumerate(hull.vertices)}
                points.extend([*shape.vertices[hull.vertices]])
                for corners in hull.simplices:
                    triangles.append(coal.Triangle(*(places[i] for i in corners)))
                return coal.Convex(points, triangles), shape.rounding

    a, X_a, b, X_b = arguments = pairs(kinds, rng, spread=2.0)
    found = np.asarray(separate()(*arguments).distance)
    request = coal.DistanceRequest()
    request.gjk_tolerance, request.gjk_max_iterations = 1e-10, 500
    for i in range(0, N, 4):
        (shape_a, radius_a), (shape_b, radius_b) = coal_shape(a, i), coal_shape(b, i)
        places = [coal.Transform3s(np.asarray(X.R[i]), np.asarray(X.p[i])) for X in (X_a, X_b)]
        expected = coal.distance(
            shape_a, places[0], shape_b, places[1], request, coal.DistanceResult()
        )
        if expected > 0:  # coal's own depth is a local minimum
            # coal is exact to the square root of its tolerance for curved shapes
            assert abs(found[i] - (expected - radius_a - radius_b)) < 2e-6


GEOMS = {
    Sphere: ("radius",),
    Capsule: ("radius", "half_length"),
    Box: ("half_sizes",),
    Cylinder: ("radius", "half_length"),
    Ellipsoid: ("radii",),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "kinds",
    list(itertools.combinations_with_replacement(GEOMS, 2)),
    ids=lambda kinds: "-".join(kind.__name__ for kind in kinds),
)
def test_distances_agree_with_mujoco(kinds, rng):
    """10,000 pairs. In some overlaps MuJoCo states a smaller depth, and never a larger one."""
    mujoco = pytest.importorskip("mujoco")
    n = 5 * N
    geoms = "".join(
        f'<body mocap="true"><geom type="{kind.__name__.lower()}" size="1 1 1"/></body>'
        for kind in kinds
    )
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{geoms}</worldbody></mujoco>")
    model.opt.ccd_iterations, model.opt.ccd_tolerance = 200, 1e-10
    model.geom_rbound[:] = 10
    data = mujoco.MjData(model)
    sizes, parts = np.zeros((2, n, 3)), []
    for kind, size in zip(kinds, sizes):
        fields = [rng.uniform(0.05, 1, (n, *SIZES[kind][k])) for k in range(len(GEOMS[kind]))]
        columns = np.concatenate([x.reshape(n, -1) for x in fields], axis=1)
        size[:, : columns.shape[1]] = columns
        parts.append(jax.vmap(kind)(*map(jnp.asarray, fields)))
    R = jax.vmap(so3.exp)(jnp.asarray(rng.normal(size=(2 * n, 3)) * 2)).reshape(2, n, 3, 3)
    p = jnp.asarray(rng.normal(size=(2, n, 3)))
    found = separate()(parts[0], Pose(R[0], p[0]), parts[1], Pose(R[1], p[1])).distance
    R, p, expected = np.asarray(R).reshape(2, n, 9), np.asarray(p), np.zeros(n)
    for i in range(n):
        model.geom_size[:], data.geom_xpos[:], data.geom_xmat[:] = sizes[:, i], p[:, i], R[:, i]
        expected[i] = mujoco.mj_geomDistance(model, data, 0, 1, 100.0, None)
    apart = np.asarray(found) > 1e-3
    assert 0.6 * n < np.sum(apart) < 0.95 * n
    np.testing.assert_allclose(found[apart], expected[apart], atol=1e-8)
    deeper = expected[~apart] - np.asarray(found)[~apart]
    assert np.min(deeper) > -1e-4
    assert np.sum(deeper > 1e-4) < 0.05 * n


@of_kinds([KINDS[0], *CLOSED], [*KINDS, *CLOSED])
def test_a_distance_depends_on_the_relative_pose_and_scales_with_the_sizes(kinds, rng):
    """Exchanged shapes, another world frame, and lengths in mm and km."""
    a, X_a, b, X_b = arguments = pairs(kinds, rng)
    found = separate()(*arguments)
    apart = np.asarray(found.distance) > 0
    X = Pose(*jax.tree.map(lambda x: x[:1].repeat(N, 0), poses(rng, 5.0)))
    moved = separate()(a, compose(X, X_a), b, compose(X, X_b))
    np.testing.assert_allclose(moved.distance[apart], found.distance[apart], atol=1e-13)
    normal = jnp.einsum("nij,nj->ni", X.R, found.normal)
    np.testing.assert_allclose(moved.normal[apart], normal[apart], atol=1e-6)
    if kinds == KINDS[1]:
        turned = jax.jit(jax.vmap(distance))(b, X_b, a, X_a)
        np.testing.assert_allclose(turned.distance, found.distance, atol=1e-13)
        np.testing.assert_array_equal(turned.point_a, found.point_b)
        np.testing.assert_array_equal(turned.normal, -found.normal)
    for scale in (1e-3, 1e3):
        scaled = jax.tree.map(lambda x: x * scale, (a, b))
        places = [Pose(X.R, X.p * scale) for X in (X_a, X_b)]
        other = separate()(scaled[0], places[0], scaled[1], places[1])
        np.testing.assert_allclose(other.distance, scale * found.distance, atol=1e-12 * scale)


@of_kinds(CLOSED, [*KINDS, *CLOSED, (ConvexMesh, ConvexMesh)])
def test_distances_in_single_precision(kinds, rng):
    samples = [(rng, 1.5)]
    if ConvexMesh in kinds:
        # In some of these pairs, a corner of a hull is nearer by rounding errors only. In others,
        # the nearest point of an edge is nearer than its end by rounding errors only.
        samples = [(np.random.default_rng(seed), spread) for seed, spread in ((6, 1.0), (17, 1.5))]
    for sample, spread in samples:
        arguments = pairs(kinds, sample, spread)
        expected = np.asarray(separate()(*arguments).distance)
        single = jax.tree.map(lambda x: x.astype(jnp.float32), arguments)
        found = np.asarray(separate()(*single).distance)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found[expected > 0], expected[expected > 0], atol=1e-5)
        # A depth can be a minimum along another direction.
        assert np.mean(np.abs(found - expected) > 1e-5) < 0.02


@pytest.mark.parametrize("fraction", [1e-4, 1 - 1e-4])
def test_the_nearest_point_of_an_edge_close_to_its_end_in_single_precision(fraction):
    """The squares of the distances of both points from the origin are equal in this precision."""
    ends = np.array([[0.0, 0, 1], [1, 0, 1]]) - np.array([fraction, 0, 0])
    for order in ([0, 0, 1], [0, 1, 1], [1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 0, 1]):
        weights, J = triangle_weights(jnp.asarray(ends[order], jnp.float32))
        np.testing.assert_allclose(np.asarray(weights) @ order, fraction, atol=1e-6)
        np.testing.assert_allclose(J, np.diag([1.0, 0, 0]), atol=1e-6)


@pytest.mark.parametrize(
    "kind",
    all_but([Box], [Capsule, Box, Cylinder, Ellipsoid, ConvexMesh]),
    ids=lambda x: x.__name__,
)
def test_shapes_close_to_a_face_in_single_precision(kind, rng):
    """A shape over a table, with all orientations: its distance is that of its lowest point."""
    shape, table = shapes(kind, rng, 0.2), Box(jnp.asarray([1.0, 1.0, 0.1]))
    R = np.array(poses(rng, 1.0).R)
    # Half of the shapes have an axis that is nearly vertical.
    R[::2] = jax.vmap(so3.exp)(jnp.asarray(rng.normal(size=(N // 2, 3)) * 0.003))
    below = -R[:, 2, :]
    n = np.einsum("nij,j->ni", np.swapaxes(R, 1, 2), [0.0, 0.0, -1.0])
    np.testing.assert_allclose(n, below, atol=1e-15)
    compute = jax.jit(jax.vmap(distance, (0, 0, None, None)))
    ground = cast((table, identity_pose(float)), jnp.float32)
    for gap in (1e-2, 1e-3, 1e-5, 0.0, -1e-5, -1e-3):
        p = np.stack([*rng.uniform(-0.2, 0.2, (2, N)), 0.1 + gap + reach(shape, n)], axis=1)
        found = compute(*cast((shape, Pose(jnp.asarray(R), jnp.asarray(p))), jnp.float32), *ground)
        np.testing.assert_allclose(found.distance, gap, atol=1e-4)
        np.testing.assert_allclose(found.normal, np.tile([0, 0, -1.0], (N, 1)), atol=1e-2)


@pytest.mark.parametrize(
    "shapes", all_but([("capsule", "box"), ("capsule", "cylinder")], SHAPE_PAIRS), ids="-".join
)
def test_derivatives_of_a_distance_are_central_differences(shapes):
    """With respect to both poses and all sizes: the distance twice, the points once, both modes."""
    report = check_distances([shapes])
    assert not report.wrong, report.table()


def test_the_distance_of_two_spheres_and_of_a_sphere_to_a_half_space(rng):
    a, X_a, b, X_b = arguments = pairs((Sphere, Sphere), rng, spread=0.7)
    length = np.linalg.norm(X_b.p - X_a.p, axis=1)
    found = separate()(*arguments)
    np.testing.assert_allclose(found.distance, length - a.radius - b.radius, atol=1e-14)
    np.testing.assert_allclose(found.normal, (X_b.p - X_a.p) / length[:, None], atol=1e-12)
    ground = HalfSpace()
    found = jax.jit(jax.vmap(lambda X, b, Y: distance(ground, X, b, Y)))(X_a, b, X_b)
    normal = X_a.R[:, :, 2]
    height = np.einsum("ni,ni->n", normal, X_b.p - X_a.p)
    np.testing.assert_allclose(found.distance, height - b.radius, atol=1e-14)
    np.testing.assert_allclose(found.normal, normal, atol=0)
    np.testing.assert_allclose(found.point_b, X_b.p - b.radius[:, None] * normal, atol=1e-14)
    np.testing.assert_allclose(found.point_a, X_b.p - height[:, None] * normal, atol=1e-14)


POINT = Sphere(0.0)
UNIT = Box([1.0, 1.0, 1.0])
CORNERS = np.array([*itertools.product([-1.0, 1.0], repeat=3)])
CUBE = ConvexMesh(CORNERS)
DEGENERATE = {
    # shapes, position of b, distance
    "equal centres of spheres": (Sphere(0.3), Sphere(0.2), [0, 0, 0], -0.5),
    "two points": (POINT, POINT, [0, 0, 0], 0.0),
    "a point on a face": (UNIT, POINT, [1, 0, 0], 0.0),
    "a point on a corner": (UNIT, POINT, [1, 1, 1], 0.0),
    "a point in the middle": (UNIT, POINT, [0, 0, 0], -1.0),
    "a segment over a face": (UNIT, Capsule(0.1, 2.0), [3, 0, 0], 1.9),
    "a segment on a face": (UNIT, Capsule(0.0, 0.5), [1, 0, 0], 0.0),
    "a segment on an edge": (UNIT, Capsule(0.1, 0.5), [1, 1, 0], -0.1),
    "a segment through a box": (UNIT, Capsule(0.1, 3.0), [0, 0, 0], -1.1),
    "a segment through a point": (Box([0.0, 0.0, 0.0]), Capsule(0.1, 3.0), [0, 0, 0], -0.1),
    "parallel faces": (UNIT, UNIT, [3, 0, 0], 1.0),
    "faces that touch": (UNIT, UNIT, [2, 0.5, 0], 0.0),
    "edges that touch": (UNIT, UNIT, [2, 2, 0], 0.0),
    "corners that touch": (UNIT, UNIT, [2, 2, 2], 0.0),
    "a box in a box": (UNIT, Box([0.1, 0.2, 0.3]), [0, 0, 0], -1.1),
    "equal boxes": (UNIT, UNIT, [0, 0, 0], -2.0),
    "a box without height": (UNIT, Box([0.5, 0.5, 0.0]), [0, 0, 1.5], 0.5),
    "crossing segments": (Capsule(0.0, 1.0), Capsule(0.1, 0.0), [0, 0, 0.5], -0.1),
    "equal capsules": (Capsule(0.1, 1.0), Capsule(0.1, 1.0), [0, 0, 0], -0.2),
    "equal cylinders": (Cylinder(1.0, 2.0), Cylinder(1.0, 2.0), [0, 0, 0], -2.0),
    "cylinders end to end": (Cylinder(1.0, 2.0), Cylinder(0.5, 1.0), [0, 0, 3], 0.0),
    "cylinders side by side": (Cylinder(1.0, 2.0), Cylinder(0.5, 1.0), [2, 0, 0], 0.5),
    "a disk": (Cylinder(1.0, 0.0), Cylinder(0.5, 1.0), [0, 0, 1.25], 0.25),
    "a point in the middle of a cylinder": (Cylinder(1.0, 2.0), POINT, [0, 0, 0], -1.0),
    "a point on an end": (Cylinder(1.0, 2.0), POINT, [0.5, 0, 2], 0.0),
    "a point on the rim": (Cylinder(1.0, 2.0), POINT, [1, 0, 2], 0.0),
    "a segment on the axis": (Cylinder(1.0, 2.0), Capsule(0.1, 3.0), [0, 0, 0], -1.1),
    "a segment along the side": (Cylinder(1.0, 2.0), Capsule(0.1, 3.0), [1, 0, 0], -0.1),
    "a segment in a cylinder without size": (Cylinder(0.0, 0.0), POINT, [0, 0, 0], 0.0),
    "a sphere beside a segment": (Cylinder(0.0, 1.0), Sphere(0.2), [1, 0, 0], 0.8),
    "equal balls": (Ellipsoid([1.0, 1.0, 1.0]), Ellipsoid([1.0, 1.0, 1.0]), [0, 0, 0], -2.0),
    "a flat ellipsoid": (Ellipsoid([1.0, 1.0, 0.0]), POINT, [0, 0, 0.5], 0.5),
    "an ellipsoid without size": (Ellipsoid([0.0, 0.0, 0.0]), UNIT, [0, 0, 2.0], 1.0),
    "parallel faces of hulls": (CUBE, CUBE, [3, 0, 0], 1.0),
    "faces of hulls that touch": (CUBE, CUBE, [2, 0.5, 0], 0.0),
    "edges of hulls that touch": (CUBE, CUBE, [2, 2, 0], 0.0),
    "corners of hulls that touch": (CUBE, CUBE, [2, 2, 2], 0.0),
    "a hull in a hull": (CUBE, ConvexMesh(CORNERS * [0.1, 0.2, 0.3]), [0, 0, 0], -1.1),
    "equal hulls": (CUBE, CUBE, [0, 0, 0], -2.0),
    "a point on a face of a hull": (CUBE, POINT, [1, 0, 0], 0.0),
    "a point on a diagonal": (CUBE, POINT, [3, 0.5, 0.5], 2.0),
    "a point in the middle of a hull": (CUBE, POINT, [0, 0, 0], -1.0),
}
SELDOM = ("ball", "ellipsoid", "equal hulls", "of a hull", "of hulls", "in a hull", "diagonal")


@functools.partial(jax.jit, static_argnames="separation")
def evaluated(cores, position, separation):
    """The separation of cores at a position of b, and the gradient of the distance."""
    dtype = position.dtype

    def value(cores, p):
        a, b = cores
        found = separation(a, identity_pose(dtype), b, Pose(jnp.eye(3, dtype=dtype), p))
        return found.distance, found

    gradient, found = jax.grad(value, argnums=(0, 1), has_aux=True)(cores, position)
    return found, gradient


def of_box_and_segment(a, X_a, b, X_b):
    return segment_box_separation(b, X_b, a, X_a)


def of_cylinder_and_segment(a, X_a, b, X_b):
    return segment_cylinder_separation(b, X_b, a, X_a)


def separation_of(a, b):
    """The function of the separation of two shapes, of which a segment is the second."""
    are_segments = [isinstance(shape, Sphere | Capsule) for shape in (a, b)]
    if all(are_segments):
        return segment_separation
    if are_segments[1] and isinstance(a, Box):
        return of_box_and_segment
    return (
        of_cylinder_and_segment if are_segments[1] and isinstance(a, Cylinder) else shape_separation
    )


@pytest.mark.parametrize("dtype", all_but([jnp.float64], [jnp.float64, jnp.float32]))
@pytest.mark.parametrize(
    "name", all_but([x for x in DEGENERATE if not any(y in x for y in SELDOM)], DEGENERATE)
)
def test_special_positions_have_finite_distances_and_derivatives(name, dtype):
    a, b, position, expected = DEGENERATE[name]
    cores = jax.tree.map(lambda x: jnp.asarray(x, dtype), (core_of(a), core_of(b)))
    separation = separation_of(a, b)
    found, gradient = evaluated(cores, jnp.asarray(position, dtype), separation)
    np.testing.assert_allclose(found.distance, expected, atol=30 * jnp.finfo(dtype).eps)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves((found, gradient)))
    np.testing.assert_allclose(np.linalg.norm(gradient[1]), 1, atol=1e-3)


TILTED = np.array([[0.6, 0, 0.8], [0, 1, 0], [-0.8, 0, 0.6]])
CROSSED = np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]])  # the axis z becomes y
SEGMENT_CASES = {
    # the half lengths, the rotation and the position of b, the normal, the middle of the points
    "crossing lines": (1.0, 1.0, CROSSED, [0, 0, 0], [1, 0, 0], [0, 0, 0]),
    "a point on a segment": (1.0, 0.0, CROSSED, [0, 0, 0.5], None, [0, 0, 0.5]),
    "segments in one line": (1.0, 0.5, np.eye(3), [0, 0, 1.2], None, [0, 0, 0.85]),
    "parallel segments": (1.0, 0.5, np.eye(3), [2, 0, 1.0], [1, 0, 0], [1, 0, 0.75]),
    "end to end": (1.0, 1.0, np.eye(3), [0, 0, 3], [0, 0, 1], [0, 0, 1.5]),
    "an end beside a segment": (1.0, 1.0, TILTED, [1.8, 0, 0.6], [1, 0, 0], [0.5, 0, 0.0]),
}


@pytest.mark.parametrize("name", SEGMENT_CASES)
def test_special_positions_of_capsules(name):
    """The normal of cores that touch is orthogonal to both; else it is along the shortest line."""
    half_a, half_b, R, p, normal, middle = SEGMENT_CASES[name]
    a, b = Capsule(0.1, half_a), Capsule(0.1, half_b)
    found = distance(a, at(0.0, 0.0, 0.0), b, Pose(R, np.array(p, float)))
    np.testing.assert_allclose((found.point_a + found.point_b) / 2, middle, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(found.normal), 1, atol=1e-14)
    step = found.distance * found.normal
    np.testing.assert_allclose(found.point_b - found.point_a, step, atol=1e-14)
    if normal is not None:
        np.testing.assert_allclose(np.abs(found.normal), normal, atol=1e-12)
    if found.distance < -0.2 + 1e-9:  # the cores touch
        assert abs(found.normal[2]) < 1e-12
        assert abs(found.normal @ R[:, 2]) * half_b < 1e-12


def test_a_capsule_over_a_face_is_nearest_in_the_middle_of_the_common_part():
    capsule, lying = Capsule(0.1, 1.0), Pose(CROSSED, np.array([0.3, 0.7, 1.5]))
    found = distance(UNIT, at(0.0, 0.0, 0.0), capsule, lying)
    np.testing.assert_allclose(found.distance, 0.4, atol=1e-15)
    np.testing.assert_allclose(found.point_a, [0.3, 0.35, 1], atol=1e-15)
    np.testing.assert_allclose(found.point_b, [0.3, 0.35, 1.4], atol=1e-15)


def test_a_capsule_beside_a_cylinder_is_nearest_in_the_middle_of_the_common_part(rng):
    for X_a in (at(0.0, 0.0, 0.0), jax.tree.map(lambda x: x[0], poses(rng, 1.0))):
        cylinder = Cylinder(0.5, 1.0)
        for R, p, middle in (
            (np.eye(3), [1.0, 0, 0.7], [0.5, 0, 0.35]),  # along the side, from -0.3 to 1.7
            (CROSSED, [0, 0.2, 1.5], [0, 0, 1.0]),  # across the whole end
            (CROSSED, [0.3, 0.9, 1.5], [0.3, 0.15, 1.0]),  # from -0.1 to 1.9, over a chord to 0.4
        ):
            X_b = compose(X_a, Pose(R, np.array(p)))
            found = distance(cylinder, X_a, Capsule(0.1, 1.0), X_b)
            local = X_a.R.T @ (found.point_a - X_a.p)
            np.testing.assert_allclose(found.distance, 0.4, atol=1e-14)
            np.testing.assert_allclose(local, middle, atol=1e-14)


def test_parallel_faces_in_any_frame(rng):
    """The points are not unique, and they move as little as possible."""
    half_sizes = jnp.asarray(rng.uniform(0.5, 1, (2, N, 3)))
    X_a = poses(rng, 1.0)
    height = half_sizes[0, :, 2] + half_sizes[1, :, 2] + 0.3
    shift = jnp.asarray(rng.uniform(-0.4, 0.4, (N, 3))).at[:, 2].set(height)
    X_b = compose(X_a, Pose(jnp.tile(jnp.eye(3), (N, 1, 1)), shift))

    def moved(a, X_a, b, X_b, twist):
        def value(t):
            return distance(Box(a), X_a, Box(b), compose(X_b, se3.exp(t * twist)))

        return jax.jvp(value, (0.0,), (1.0,))

    twists = jnp.asarray(rng.normal(size=(N, 6)))
    found, rates = jax.jit(jax.vmap(moved))(half_sizes[0], X_a, half_sizes[1], X_b, twists)
    np.testing.assert_allclose(found.distance, 0.3, atol=1e-14)
    np.testing.assert_allclose(found.normal, X_a.R[:, :, 2], atol=1e-14)
    assert max(np.max(np.abs(x)) for x in rates) < 30


def test_each_sample_of_a_batch_takes_the_steps_that_it_needs():
    """For one sample, a batch, and a batch of batches with operands that are not batched."""
    blocks = []

    def step(operands, state):
        x, y = operands
        jax.debug.callback(lambda more: blocks.append(int(np.sum(more))), state[1] > 0)
        value, steps, data = state
        return (value * x + y, steps - 1, data), steps > 1

    def repeated(x, y, steps):
        start = jnp.zeros(2), steps, {"half": steps.astype(float) / 2, "even": steps % 2 == 0}
        return repeat_in_blocks(step, (x, y), start)

    rng = np.random.default_rng(0)
    x, y = rng.uniform(0.5, 1, (5, 170, 2)), rng.uniform(1, 2, (170, 2))
    steps = rng.integers(1, 9, (5, 170))
    found, last, data = jax.jit(jax.vmap(jax.vmap(repeated), (0, None, 0)))(x, y, steps)
    powers = [np.sum(x[i, j] ** np.arange(k)[:, None], 0) for (i, j), k in np.ndenumerate(steps)]
    np.testing.assert_allclose(found, np.reshape(powers, x.shape) * y, rtol=1e-12)
    np.testing.assert_array_equal(last, 0)
    np.testing.assert_array_equal(data["half"], steps / 2)
    np.testing.assert_array_equal(data["even"], steps % 2 == 0)
    jax.effects_barrier()
    full = np.sum(steps) / BLOCK
    assert full <= len(blocks) < 1.2 * full + 8
    one = jax.jit(repeated)(np.array([2.0, 3.0]), np.array([1.0, 1.0]), jnp.array(3))
    np.testing.assert_allclose(one[0], (7, 13))


def test_tables_without_entries():
    """Such as the edges of hulls whose vertices are traced."""

    def step(operands, state, table):
        assert table.table.shape[1:] == (0, 2)
        return state - 1 + jnp.sum(table.table, axis=(0, 1, 2)), state > 1

    count = jax.vmap(lambda x, table: repeat_in_blocks(step, x, x, table))
    np.testing.assert_array_equal(count(jnp.arange(1, 4.0), jnp.zeros((3, 0, 2))), 0)


def test_batches_without_samples_and_of_symbolic_sizes():
    """A sample that is finished does not change while other samples take steps."""

    def repeated(x, steps):
        def step(x, state):
            return (state[0] + x, state[1] - 1), state[1] > 1

        return repeat_in_blocks(step, x, (jnp.zeros_like(x), steps))[0]

    function = jax.jit(jax.vmap(jax.vmap(repeated), (None, 0)))
    x = jnp.array([1.0, 2.0])
    assert function(x, jnp.zeros((0, 2), int)).shape == (0, 2)
    (b,) = jax.export.symbolic_shape("b")
    shapes = jax.ShapeDtypeStruct((2,), x.dtype), jax.ShapeDtypeStruct((b, 2), int)
    steps = jnp.array([[1, 5], [3, 2], [4, 1]])
    found = jax.export.export(function)(*shapes).call(x, steps)
    np.testing.assert_allclose(found, np.asarray(x) * np.asarray(steps))


SPHERES = {
    "two spheres": (Sphere(0.1), Sphere(0.2)),
    "an ellipsoid": (Sphere(0.1), Ellipsoid([0.2, 0.2, 0.2])),
    "a cylinder": (Sphere(0.1), Cylinder(0.2, 0.2, 0.2)),
    "two cylinders": (Cylinder(0.1, 0.1, 0.1), Cylinder(0.2, 0.2, 0.2)),
}


@pytest.mark.parametrize("name", all_but(["an ellipsoid", "two cylinders"], SPHERES))
def test_derivatives_beside_a_sphere(name):
    """The position of the second shape has coordinates that are exactly 0.

    Some of the spheres are cylinders whose core has no radius and no length.
    """

    def found(p):
        a, b = SPHERES[name]
        return distance(a, at(0.0, 0.0, 0.0), b, identity_pose()._replace(p=p))

    derivatives = jax.jit(
        lambda p: (jax.jacfwd(jax.grad(lambda p: found(p).distance))(p), jax.jacfwd(found)(p))
    )
    for axis in jnp.eye(3)[::2]:
        second, first = derivatives(2 * axis)
        across = np.diag((1 - axis) / 2)
        np.testing.assert_allclose(second, across, atol=1e-12)
        np.testing.assert_allclose(first.normal, across, atol=1e-12)
        np.testing.assert_allclose(first.point_a, 0.1 * across, atol=1e-12)


# --------------------------------------------------------------------------------------- robots


LINK = """<link name="{0}"><inertial><mass value="1"/>
    <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial><collision>
    <origin xyz="0 0 0.2" rpy="0.3 0.2 0.1"/><geometry>{1}</geometry></collision></link>"""
JOINT = """<joint name="{0}_{1}" type="continuous"><parent link="{0}"/><child link="{1}"/>
    <origin xyz="0.1 0 0.4"/><axis xyz="0.6 0.8 0"/></joint>"""
LINKS = {
    "base": '<box size="0.2 0.3 0.2"/>',
    "upper": '<capsule radius="0.05" length="0.3"/>',
    "elbow": '<sphere radius="0.08"/>',
    "lower": '<cylinder radius="0.05" length="0.3"/>',
    "hand": '<box size="0.1 0.2 0.1"/>',
}


@functools.cache
def arm():
    """An arm of four joints, and its pairs with three more shapes."""
    names = list(LINKS)
    links = [LINK.format(name, shape) for name, shape in LINKS.items()]
    joints = itertools.starmap(JOINT.format, itertools.pairwise(names))
    model = rbd.load_urdf(f"<robot name='arm'>{''.join([*links, *joints])}</robot>")
    world = [
        PlacedShape(Box([0.5, 0.5, 0.02]), X_FS=at(0.6, 0.0, 0.1), name="table"),
        PlacedShape(HalfSpace(), name="ground"),
        PlacedShape(Sphere(0.05), "hand", at(0.0, 0.0, 0.3), name="tool"),
    ]
    return model, pairs_of(model, world, disabled=[("upper", "lower"), ("no", "link")])


def at(*p):
    return Pose(np.eye(3), np.array(p))


def test_distances_of_a_robot_are_the_distances_of_its_shapes(rng):
    model, found = arm()
    q = jnp.asarray(rng.uniform(-1, 1, model.nq))
    separations = robot_separations(model, q, found)
    few = dataclasses.replace(found, members=((2, 6), (2, 7)))  # of two kinds
    rows = [found.members.index(pair) for pair in few.members]
    distances = robot_distances(model, q, few)
    np.testing.assert_allclose(distances, separations.distance[np.array(rows)], atol=1e-15)
    assert separations.point_a.shape == (len(found), 3)
    kinematics = rbd.forward_kinematics(model, q)
    shapes = cast(found.shapes, model.dtype)
    places = [
        compose(rbd.frame_placement(model, kinematics, shape.frame), shape.X_FS)
        if shape.frame
        else shape.X_FS
        for shape in shapes
    ]
    kinds = set()
    for row, (i, j) in enumerate(found.members):
        a, b = shapes[i].shape, shapes[j].shape
        if isinstance(a, HalfSpace):
            expected = half_space_separation(places[i], core_of(b), places[j])
        elif isinstance(b, HalfSpace):
            expected = half_space_separation(places[j], core_of(a), places[i])
            expected = expected._replace(point_a=expected.point_b, point_b=expected.point_a)
        else:
            expected = core_separation(core_of(a), places[i], core_of(b), places[j])
        kinds.add((type(a), type(b)))
        for name in ("distance", "point_a", "point_b"):
            x, y = getattr(separations, name)[row], getattr(expected, name)
            np.testing.assert_allclose(x, y, atol=1e-9)
    assert {(Capsule, Box), (Sphere, HalfSpace), (Cylinder, Box)} <= kinds


core_separation = jax.jit(shape_separation)


def test_pairs_leave_out_neighbours_and_disabled_links():
    model, found = arm()
    names = set(found.names)
    assert {("upper", "hand"), ("upper", "table"), ("table", "tool"), ("ground", "tool")} < names
    assert not names & {("upper", "lower"), ("base", "upper"), ("base", "table"), ("hand", "tool")}
    assert not names & {("table", "ground"), ("elbow", "lower")}
    assert [shape.name for shape in found.shapes] == [*LINKS, "table", "ground", "tool"]
    assert len(pairs_of(model, adjacent=True)) == 5 * 4 / 2
    assert pairs_of(model).left_out == ()


@pytest.mark.parametrize("frame", ["hand", "index"])
def test_disabled_links_belong_to_frames_by_name_and_by_index(frame):
    model, _ = arm()
    frame = model.frame_index("hand") if frame == "index" else frame
    tool = PlacedShape(Sphere(0.05), frame, name="tool")
    all_names, names = (
        set(pairs_of(model, [tool], disabled=x).names) for x in ([], [("base", "hand")])
    )
    assert all_names - names == {("base", "hand"), ("base", "tool")}
    with pytest.raises(rbd.ArgumentError, match=r"disabled has .ab., expected pairs"):
        pairs_of(model, disabled=["ab"])
    with pytest.raises(rbd.ArgumentError, match=r"disabled has \(1, 2\), expected pairs of names"):
        pairs_of(model, disabled=[(1, 2)])


def test_names_of_shapes_without_a_name():
    assert PlacedShape(Sphere(0.1), 0).name == "Sphere in 0"
    assert PlacedShape(Sphere(0.1)).name == "Sphere in the world"


def test_disabled_collisions_of_an_srdf_file(tmp_path):
    model, _ = arm()
    file = tmp_path / "arm.srdf"
    file.write_text(
        "<robot name='arm7'><disable_collisions link1='hand' link2='base' reason='Never'/></robot>"
    )
    disabled = io.load_srdf(file, model).disabled_collisions
    all_names, names = (set(pairs_of(model, disabled=x).names) for x in ([], disabled))
    assert all_names - names == {("base", "hand")}


def test_shapes_of_links():
    """URDF states full lengths."""
    urdf = """<robot name="r">
        <link name="base"><collision><geometry>{}</geometry></collision></link>
        <joint name="j" type="fixed"><parent link="base"/><child link="tip"/></joint>
        <link name="tip"/></robot>"""
    for text, expected in {
        '<sphere radius="2"/>': Sphere(2.0),
        '<box size="2 4 6"/>': Box([1.0, 2.0, 3.0]),
        '<cylinder radius="2" length="6"/>': Cylinder(2.0, 3.0),
        '<capsule radius="2" length="6"/>': Capsule(2.0, 3.0),
    }.items():
        (found,) = pairs_of(rbd.load_urdf(urdf.format(text))).shapes
        assert found.frame == "base"
        assert eqx.tree_equal(found.shape, expected)


def test_a_mesh_is_replaced_by_its_hull_and_a_file_is_left_out(rng):
    model, _ = arm()
    ball = rng.normal(size=(200, 3))
    ball /= 10 * np.linalg.norm(ball, axis=1, keepdims=True)
    faces = ConvexHull(ball).simplices
    shapes = (Mesh(ball, faces), Mesh(CORNERS, ConvexHull(CORNERS).simplices), MeshFile("a.stl"))
    collisions = {"hand": tuple(map(Geometry, shapes))}
    model = dataclasses.replace(model, geometry=LinkGeometry(collisions=collisions))
    found = pairs_of(model, most_vertices=32)
    assert found.left_out == ("hand 2: MeshFile a.stl",)
    (simplified,) = found.simplified
    assert simplified.startswith("hand 0: within 0.01")
    assert [len(shape.shape.vertices) for shape in found.shapes] == [32, 8]
    assert len(found) == 0
    flat = Geometry(Mesh(ball * [1, 1, 0], faces), name="plate")
    model = dataclasses.replace(model, geometry=LinkGeometry(collisions={"hand": (flat,)}))
    with pytest.raises(rbd.ArgumentError, match="mesh 'plate': points has only points in one"):
        pairs_of(model)


@pytest.mark.slow
def test_hulls_of_several_sizes_are_one_batch(rng):
    """A cube, a tetrahedron and a ball of 30 points in one program; none changes another one."""
    ball = rng.normal(size=(30, 3))
    ball /= np.linalg.norm(ball, axis=1, keepdims=True)
    tetrahedron = CORNERS[[0, 3, 5, 6]]
    hulls = [ConvexMesh(tetrahedron, 0.1), CUBE, ConvexMesh(ball), CUBE]
    X = Pose(
        jnp.tile(jnp.eye(3), (4, 1, 1)), jnp.array([[0, 0, 0], [3, 0, 0], [6, 0, 0], [9, 0, 0.0]])
    )
    members = np.array([[0, 1], [1, 3], [2, 1], [0, 2]])
    compute = jax.jit(lambda X: separations(hulls, X, members))
    found = compute(X)
    reach = [-np.min(ball[:, 0]), np.max(ball[:, 0])]
    # The face of the cube and the nearest corners of the ball and the tetrahedron.
    np.testing.assert_allclose(found.distance[:2], [0.9, 4.0], atol=1e-14)
    np.testing.assert_allclose(found.distance[2], 3 - 1 - reach[0], atol=1e-14)
    assert found.distance[3] > 6 - 1.1 - reach[0] - 1e-12
    np.testing.assert_allclose(found.normal[1:3], [[1, 0, 0], [-1, 0, 0]], atol=1e-14)
    # No normal of a face of the ball or the cube separates them by a shorter translation.
    inside = compute(Pose(X.R, X.p.at[2].set(X.p[1] + jnp.array([0.3, 0, 0]))))
    normals = ConvexHull(ball).equations[:, :3]
    directions = np.concatenate([normals, -np.eye(3), np.eye(3)])
    overlap = np.max(directions @ ball.T, axis=1) + np.sum(np.abs(directions), axis=1)
    assert inside.distance[2] >= np.max(-0.3 * directions[:, 0] - overlap) - 1e-12


def test_a_simplified_hull_states_its_error(rng, monkeypatch):
    """Every point is within the error, and one is as far away as the error."""
    monkeypatch.setattr(mesh_hulls, "_CHUNK", 16)
    points = rng.normal(size=(400, 3)) * [1.0, 0.5, 0.2]
    full, none = convex_hull(points, most_vertices=256)
    corners = points[ConvexHull(points).vertices]
    assert none == 0
    np.testing.assert_array_equal(full.vertices, corners)
    for most, bound in ((4, 2.0), (6, 1.0), (20, 0.2)):
        hull, error = convex_hull(points, 0.01, most_vertices=most)
        assert hull.vertices.shape == (most, 3)
        assert hull.rounding == 0.01
        assert {*map(tuple, hull.vertices)} <= {*map(tuple, corners)}
        distances = [outside_of_hull(hull.vertices, x) for x in corners]
        np.testing.assert_allclose(np.max(distances), error, rtol=1e-9)
        assert 0 < error < bound
    monkeypatch.undo()
    # A mesh of many vertices, in a frame far from it and in mm.
    ball = rng.normal(size=(20_000, 3))
    ball = 1e3 + ball / np.linalg.norm(ball, axis=1, keepdims=True)
    ball = ball[np.argsort(ball[:, 0])]
    tracemalloc.start()
    hull, error = convex_hull(ball)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.01 < error < 0.08
    assert max(outside_of_hull(hull.vertices, x) for x in ball[::50]) < error + 1e-9
    assert peak < 1e8  # the heights of all vertices over all faces would be 6 GB


def test_derivatives_of_the_distances_of_a_robot(rng):
    """The first in both modes and the second, also for a quaternion of another length than 1."""
    model = rbd.load_robot("quadruped")
    names = model.body_names[::6]
    balls = [PlacedShape(Sphere(0.05), name, at(0.03, 0.02, 0.1)) for name in names]
    world = [PlacedShape(HalfSpace(), name="ground"), PlacedShape(Sphere(0.2), X_FS=at(1, 0, 0))]
    found = pairs_of(dataclasses.replace(model, geometry=LinkGeometry()), [*balls, *world])
    q = rbd.neutral(model) + 0.3 * jnp.asarray(rng.normal(size=model.nq))
    direction, weights = rng.normal(size=model.nq), rng.normal(size=len(found))

    def total(q):
        return jnp.tanh(robot_distances(model, q, found)) @ weights

    @jax.jit
    def derivatives(q):
        slope, second = jax.jvp(jax.grad(total), (q,), (direction,))
        return total(q), jax.jvp(total, (q,), (direction,))[1], slope, second

    rates = finite_differences.central(lambda t: derivatives(q + t * direction), 1e-5)
    _, forward, slope, second = derivatives(q)
    np.testing.assert_allclose(forward, rates[0], atol=1e-8)
    np.testing.assert_allclose(slope @ direction, forward, atol=1e-12)
    np.testing.assert_allclose(second, rates[2], atol=1e-7)


@pytest.mark.slow
def test_the_gradient_of_a_smallest_distance_of_a_robot(rng):
    """With respect to q and to the size of a shape, in a batch of configurations."""
    model, found = arm()
    without = [i for i, s in enumerate(found.shapes) if isinstance(s.shape, Cylinder)]
    members = tuple(pair for pair in found.members if not set(pair) & set(without))
    found = dataclasses.replace(found, members=members)
    q = jnp.asarray(rng.uniform(-0.6, 0.6, (4, model.nq)))

    def total(q, found):
        return jnp.sum(jnp.tanh(5 * robot_distances(model, q, found)))

    slopes = jax.value_and_grad(total, argnums=(0, 1), allow_int=True)
    evaluate = jax.jit(jax.vmap(slopes, (0, None)))
    _, (by_q, by_pairs) = evaluate(q, found)
    direction = jnp.asarray(rng.normal(size=q.shape))
    expected = finite_differences.central(lambda t: evaluate(q + t * direction, found)[0], 1e-6)
    np.testing.assert_allclose(jnp.sum(by_q * direction, axis=1), expected, atol=1e-7)
    index = len(found.shapes) - 1
    shape = found.shapes[index]
    assert shape.name == "tool"

    def with_larger_tool(t):
        tool = dataclasses.replace(shape, shape=Sphere(0.05 + t))
        return evaluate(q, dataclasses.replace(found, shapes=(*found.shapes[:-1], tool)))[0]

    expected = finite_differences.central(with_larger_tool, 1e-6)
    np.testing.assert_allclose(by_pairs.shapes[index].shape.radius, expected, atol=1e-7)


def distances_without_members(function, frame):
    """The distances of a shape in a frame that makes no pairs."""
    model = arm()[0]
    q = rbd.neutral(model)
    place = q if function is robot_distances else rbd.forward_kinematics(model, q)
    return function(model, place, DistancePairs((PlacedShape(POINT, frame),), ()))


WRONG = {
    "radius is -1": lambda: Sphere(-1.0),
    "half_sizes has shape": lambda: Box([1.0, 2.0]),
    "half_sizes is": lambda: Box([1.0, 0.1, 1.0], rounding=0.2),
    "half_length is 0.1, expected 0.2 or more, the rounding": lambda: Cylinder(1.0, 0.1, 0.2),
    "radii is": lambda: Ellipsoid([1.0, float("nan"), 1.0]),
    "radius is inf": lambda: Capsule(float("inf"), 1.0),
    "vertices has 3 points, expected 4 to 256": lambda: ConvexMesh(CORNERS[:3]),
    "vertices has 257 points": lambda: ConvexMesh(np.ones((257, 3))),
    "vertices has shape": lambda: ConvexMesh(np.ones((5, 2))),
    "vertices has only points in one plane": lambda: ConvexMesh(CORNERS[:4]),
    "vertices has only points in one plane, expected points of a solid": lambda: ConvexMesh(
        CORNERS * [1, 1, 1e-10]
    ),
    "vertices has entries that are not finite": lambda: ConvexMesh(CORNERS * np.nan),
    "vertices has entries that are not finite, or above": lambda: ConvexMesh(1e308 * CORNERS),
    "points has entries that are not finite, or above": lambda: convex_hull(1e100 * CORNERS),
    "vertices is [['-1', '-1', '-1']": lambda: ConvexMesh(CORNERS.astype(int).astype(str).tolist()),
    "rounding is -1": lambda: ConvexMesh(CORNERS, -1.0),
    "points has 3 points, expected 4 or more": lambda: convex_hull(CORNERS[:3]),
    "points has only points in one plane": lambda: convex_hull(np.ones((9, 3))),
    "points has entries that are not finite": lambda: convex_hull(CORNERS * np.inf),
    "points is traced by JAX": lambda: jax.jit(lambda x: convex_hull(x)[1])(CORNERS),
    "most_vertices is 3, expected an integer": lambda: convex_hull(CORNERS, most_vertices=3),
    # The type checker of the tests would refuse these before the package does.
    "a is 3, expected a Sphere": lambda: inspect.unwrap(checked_shape)(3, "a"),
    "X_WB is 'int'": lambda: distance(POINT, identity_pose(), POINT, 4),
    "pairs is 3": lambda: inspect.unwrap(checked_pairs)(3),
    "world has Sphere": lambda: inspect.unwrap(pairs_of)(arm()[0], [Sphere(1.0)]),
    "X_WA has dtype float32": lambda: distance(
        POINT, identity_pose(jnp.float32), POINT, identity_pose(jnp.float64)
    ),
    "a is a HalfSpace and b is a HalfSpace": lambda: distance(
        HalfSpace(), identity_pose(), HalfSpace(), identity_pose()
    ),
    "X_FS.R has shape": lambda: PlacedShape(POINT, X_FS=Pose(np.eye(4), np.zeros(3))),
    "no_frame": lambda: pairs_of(arm()[0], [PlacedShape(POINT, "no_frame")]),
    "at most one HalfSpace or HeightGrid": lambda: DistancePairs(
        (PlacedShape(HalfSpace()),) * 2, ((0, 1),)
    ),
    "shapes is PlacedShape": lambda: DistancePairs(PlacedShape(POINT), ()),
    "members is 3": lambda: DistancePairs((PlacedShape(POINT),), 3),
    "members has (False, True)": lambda: DistancePairs((PlacedShape(POINT),) * 2, ((False, True),)),
    "X_FS.p is": lambda: PlacedShape(POINT, X_FS=[0.0, float("nan"), 0.0]),
    "end is": lambda: capsule_between([0.0, 0.0, 0.0], [0.0, 0.0, float("inf")], 0.1),
    "radius of a Sphere has shape (3,)": lambda: distance(
        HalfSpace(), identity_pose(), jax.vmap(Sphere)(jnp.ones(3)), identity_pose()
    ),
    "members has the pair": lambda: DistancePairs((PlacedShape(POINT),), ((0, 0),)),
    "q has shape": lambda: robot_distances(arm()[0], jnp.zeros(5), arm()[1]),
    "unknown_hand": lambda: distances_without_members(robot_distances, "unknown_hand"),
    "unknown_tool": lambda: distances_without_members(distances_and_jacobian, "unknown_tool"),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments(message):
    with pytest.raises(rbd.ArgumentError, match=re.escape(message)):
        WRONG[message]()
