"""Distances of shapes to the ground of a `HeightGrid`.

The expected values are those of all triangles of the ground, without the search of the package: the
distance of two polyhedra is a least-squares problem with bounds, and the clearance of a polyhedron
is the least one of its corners, above the nodes, and where edges cross.
"""

import functools
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import nnls

import jaxrbd as rbd
from jaxrbd import contact, so3
from jaxrbd.collision import (
    Box,
    Cylinder,
    DistancePairs,
    HalfSpace,
    HeightGrid,
    PlacedShape,
    Sphere,
    distance,
    pairs_of,
    robot_distances,
)
from jaxrbd.collision.robot_shapes import distances_and_jacobian
from jaxrbd.inverse_kinematics import Clearance, FrameTask, inverse_kinematics
from jaxrbd.spatial import Pose, identity_pose
from jaxrbd.view.triangles import shape_triangles
from support.nightly import all_but

N = 80
SHAPE, SPACING, ORIGIN = (11, 6), np.array([0.12, 0.15]), np.array([-0.6, -0.4])
EACH = pytest.mark.parametrize("kind", all_but([Box], [Box, Cylinder]), ids=lambda x: x.__name__)


def found(kind):
    """The `Separation` of a shape with the sizes (4,), of which a cylinder has no second one."""

    def one(x, heights):
        w, p, sizes = x[:3], x[3:6], x[6:]
        if kind is Box:
            shape = Box(sizes[:3], sizes[3])
        else:
            shape = Cylinder(sizes[0], sizes[2], sizes[3])
        grid = HeightGrid(heights, SPACING.astype(x.dtype), ORIGIN.astype(x.dtype))
        X_WG = Pose(so3.exp(jnp.asarray([0.2, -0.1, 0.3], x.dtype)), jnp.ones(3, x.dtype))
        X_GS = Pose(so3.exp(w), p)
        X_WS = Pose(X_WG.R @ X_GS.R, X_WG.R @ X_GS.p + X_WG.p)
        return distance(shape, X_WS, grid, X_WG)

    return one


@functools.cache
def values(kind=Box):
    return jax.jit(jax.vmap(found(kind)))


@functools.cache
def derivatives(kind=Box):
    """The gradients in reverse mode, and in forward mode along given changes."""

    def both(x, heights, dx, dheights):
        def value(x, heights):
            return found(kind)(x, heights).distance

        forward = jax.jvp(value, (x, heights), (dx, dheights))[1]
        return jax.grad(value, (0, 1))(x, heights), forward

    return jax.jit(jax.vmap(both))


def samples(rng, count=N):
    """Poses and sizes (N, 10) of shapes, and heights. Some shapes are spheres or capsules."""
    p = rng.uniform([-0.9, -0.7, -0.2], [0.9, 0.7, 0.5], (count, 3))
    rounding = rng.uniform(0, 0.05, (count, 1))
    sizes = rng.uniform(0.02, 0.2, (count, 3))
    sizes[: count // 4] = 0
    sizes[count // 8 : count // 4, 2] = 0.2
    x = np.concatenate([rng.normal(size=(count, 3)), p, sizes + rounding, rounding], axis=1)
    heights = rng.uniform(-0.15, 0.15, (count, *SHAPE))
    heights[::5] = np.round(heights[::5], 1)  # steps
    return x, heights


def surface(heights):
    """The nodes of a grid that continues with the heights of its border."""
    far = 30.0
    x, y = (o + d * np.arange(n) for o, d, n in zip(ORIGIN, SPACING, SHAPE))
    x, y = (np.concatenate([[c[0] - far], c, [c[-1] + far]]) for c in (x, y))
    return np.stack([*np.meshgrid(x, y, indexing="ij"), np.pad(heights, 1, mode="edge")], axis=-1)


def triangles(nodes):
    a, b, c, d = nodes[:-1, :-1], nodes[1:, :-1], nodes[1:, 1:], nodes[:-1, 1:]
    return np.stack([a, b, c, a, c, d], axis=2).reshape(-1, 3, 3)


def corners_of(x):
    """The corners of the core of a box in the frame of the grid."""
    signs = np.array([*itertools.product((-1, 1), repeat=3)])
    R = np.array(so3.exp(jnp.asarray(x[:3])))
    return (signs * (x[6:9] - x[9])) @ R.T + x[3:6]


def least_distance(corners, nodes, limit):
    """The least distance of a polyhedron from the triangles that are not farther than the limit."""
    every = triangles(nodes)
    gaps = np.maximum(every.min(1) - corners.max(0), corners.min(0) - every.max(1))
    near = every[np.linalg.norm(np.maximum(gaps, 0), axis=1) <= limit]
    lengths = [np.inf]
    for triangle in near:
        points = (corners[:, None] - triangle[None]).reshape(-1, 3)
        weights, _ = nnls(np.vstack([points.T, np.ones(len(points))]), np.array([0, 0, 0, 1.0]))
        lengths.append(np.linalg.norm(points.T @ weights) / np.sum(weights))
    return min(lengths)


def height_of(nodes, xy):
    """The heights of the surface at points xy (n, 2)."""
    lines = nodes[:, 0, 0], nodes[0, :, 1]
    i, j = (np.clip(np.searchsorted(c, u) - 1, 0, len(c) - 2) for c, u in zip(lines, xy.T))
    s, t = ((u - c[k]) / (c[k + 1] - c[k]) for c, u, k in zip(lines, xy.T, (i, j)))
    z = nodes[..., 2]
    lower = (1 - s) * z[i, j] + (s - t) * z[i + 1, j] + t * z[i + 1, j + 1]
    upper = (1 - t) * z[i, j] + (t - s) * z[i, j + 1] + s * z[i + 1, j + 1]
    return np.where(s >= t, lower, upper)


def cross(a, b):
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def clearance(corners, nodes):
    """The least height of the points of a polyhedron above the surface."""
    values = [corners[:, 2] - height_of(nodes, corners[:, :2])]
    # The lowest point above a node lies in a triangle of corners.
    a, b, c = (corners[list(k)] for k in zip(*itertools.combinations(range(len(corners)), 3)))
    area = cross(b - a, c - a)
    a, b, c, area = (x[np.abs(area) > 1e-12] for x in (a, b, c, area))
    q = nodes.reshape(-1, 3)
    to_q = q[:, None] - a[None]
    s, t = cross(to_q, (c - a)[None]) / area, cross((b - a)[None], to_q) / area
    inside = (s >= 0) & (t >= 0) & (s + t <= 1)
    z = a[:, 2] + s * (b - a)[:, 2] + t * (c - a)[:, 2]
    values.append((z - q[:, None, 2])[inside])
    # Edges of the surface and lines between two corners, where they cross in the plan.
    start, end = (corners[list(k)] for k in zip(*itertools.combinations(range(len(corners)), 2)))
    for i, j in ((1, 0), (0, 1), (1, 1)):
        p = nodes[: len(nodes) - i, : nodes.shape[1] - j].reshape(-1, 3)
        edge = nodes[i:, j:].reshape(-1, 3) - p
        line, between = (end - start)[:, None], p[None] - start[:, None]
        area = cross(line, edge[None])
        crosses = np.abs(area) > 1e-12
        area = np.where(crosses, area, 1)
        s, t = cross(between, edge[None]) / area, cross(between, line) / area
        inside = crosses & (s >= 0) & (s <= 1) & (t >= 0) & (t <= 1)
        z = start[:, None, 2] + s * line[..., 2] - p[None, :, 2] - t * edge[None, :, 2]
        values.append(z[inside])
    return min(np.min(x, initial=np.inf) for x in values)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(np.float64, 1e-10), pytest.param(np.float32, 2e-5, marks=pytest.mark.slow)],
)
def test_a_distance_is_the_least_one_of_all_triangles(rng, dtype, tolerance):
    """Of spheres, capsules and boxes; for an overlap, the height by which the core is raised."""
    x, heights = (y.astype(dtype) for y in samples(rng))
    result = values()(jnp.asarray(x), jnp.asarray(heights))
    distances = np.asarray(result.distance, float)
    error, apart = np.zeros(N), np.zeros(N, bool)
    for i in range(N):
        corners, nodes = corners_of(x[i].astype(float)), surface(heights[i].astype(float))
        least = clearance(corners, nodes)
        apart[i] = least > 0
        if apart[i]:
            least = least_distance(corners, nodes, distances[i] + x[i, 9] + 1e-3)
        error[i] = distances[i] - (least - x[i, 9])
    assert 15 < apart.sum() < N - 15
    assert np.max(np.abs(error)) < tolerance
    between = result.point_b - result.point_a - result.distance[:, None] * result.normal
    assert np.max(np.abs(between)) < tolerance


@EACH
def test_derivatives_are_central_differences_in_both_modes(kind, rng):
    x, heights = map(jnp.asarray, samples(rng))
    dx, dheights = jnp.asarray(rng.normal(size=x.shape)), jnp.asarray(rng.normal(size=(N, *SHAPE)))
    dx = dx.at[: N // 4, 6:9].set(dx[: N // 4, 9:])  # the core of a sphere stays a point
    (gx, gheights), forward = derivatives(kind)(x, heights, dx, dheights)
    result = values(kind)(x, heights)
    assert np.isfinite(gx).all()
    assert np.isfinite(gheights).all()
    e = 1e-6
    ends = [values(kind)(x + s * e * dx, heights + s * e * dheights).distance for s in (1, -1)]
    expected = (ends[0] - ends[1]) / (2 * e)
    reverse = jnp.sum(gx * dx, axis=1) + jnp.sum(gheights * dheights, axis=(1, 2))
    assert np.max(np.abs(forward - reverse)) < 1e-12
    # A few samples have a kink within the step.
    assert np.sum(np.abs(forward - expected) > 1e-6) <= 3
    assert 15 < np.sum(result.distance > 0) < N - 15


@functools.cache
def lowered():
    """The distances, and the slopes, of a box at some heights above a grid."""
    one = found(Box)

    def value(z, x, heights):
        return one(x.at[5].set(z), heights).distance

    return jax.jit(jax.vmap(jax.value_and_grad(value), (0, None, None)))


@pytest.mark.slow
def test_a_distance_is_continuous_and_increases_with_the_height(rng):
    x, heights = (jnp.asarray(y[-1]) for y in samples(rng))
    z = jnp.linspace(-0.6, 0.6, 1201)
    value, slope = lowered()(z, x, heights)
    steps = np.diff(value)
    assert value[0] < -0.3 < 0.3 < value[-1]
    assert np.all(steps > 0)
    assert np.all(steps < 1e-3 + 1e-12)
    assert np.all(slope >= 0)
    core_overlaps = value + x[9] < 0
    assert np.max(np.abs(slope[core_overlaps] - 1)) < 1e-7


def test_planes(rng):
    """Apart, the distance is exact; for an overlap it is larger by the inverse of the cosine."""
    x, _ = samples(rng)
    x[:, 3:5] *= 0.3
    slopes = rng.normal(size=(N, 2)) * 0.2
    nodes = np.stack(
        np.meshgrid(
            *(o + d * np.arange(n) for o, d, n in zip(ORIGIN, SPACING, SHAPE)), indexing="ij"
        )
    )
    heights = np.einsum("ni,ixy->nxy", slopes, nodes)
    result = values()(jnp.asarray(x), jnp.asarray(heights))
    normals = np.concatenate([-slopes, np.ones((N, 1))], axis=1)
    cosine = 1 / np.linalg.norm(normals, axis=1)
    core = [np.min(corners_of(x[i]) @ normals[i]) * cosine[i] for i in range(N)]
    near = np.abs(core) < 0.25  # the nearest point is inside of the grid
    expected = np.where(np.array(core) > 0, core, core / cosine) - x[:, 9]
    assert near.sum() > 30
    assert np.max(np.abs(result.distance - expected)[near]) < 1e-10


@pytest.mark.parametrize(
    "dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)], ids=["64", "32"]
)
def test_no_result_is_nan(rng, dtype):
    """Flat ground, shapes without size, shapes exactly on a node, and far away ones."""
    x, heights = samples(rng)
    x[:, 0:3] *= rng.random((N, 1)) < 0.5
    x[:, 3:5] = ORIGIN + SPACING * rng.integers(-3, 12, (N, 2))
    x[:, 5] = 0
    x[:16, 6:] = 0
    x[16:20, 3:6] = rng.normal(size=(4, 3)) * 1e3
    heights[: N // 2] = 0
    heights[N // 2 :: 2] = np.round(heights[N // 2 :: 2], 1)
    zero = np.zeros_like(x), np.zeros_like(heights)
    operands = [jnp.asarray(y, dtype) for y in (x, heights, *zero)]
    result = values()(*operands[:2])
    for y in jax.tree.leaves((result, derivatives()(*operands) if dtype is np.float64 else ())):
        assert np.isfinite(y).all()
    np.testing.assert_allclose(np.linalg.norm(result.normal, axis=1), 1, rtol=1e-5)
    flat_points = result.distance[:16][x[:16, 3] < 1e3]
    assert np.all(np.abs(flat_points) < 1e-5)


def test_the_ground_of_contact_has_the_same_nodes_and_continues_in_the_same_way(rng):
    """A point on a node, or outside at the height of the border, is on both surfaces."""
    assert contact.HeightGrid is HeightGrid
    _, heights = samples(rng, 1)
    grid = HeightGrid(heights[0], SPACING, ORIGIN)
    outside = np.array([[-5.0, 0.05], [3.0, 3.0], [ORIGIN[0] + 2 * SPACING[0], -9.0]])
    outside[0, 1] = ORIGIN[1] + 3 * SPACING[1]
    xy = jnp.asarray(np.concatenate([outside, ORIGIN + SPACING * np.array([[0, 0], [4, 3]])]))
    z = jax.vmap(grid.elevation)(xy)
    x = jnp.concatenate([jnp.zeros((5, 3)), xy, z[:, None], jnp.zeros((5, 4))], axis=1)
    x = jnp.tile(x, (-(-N // 5), 1))[:N]  # the shape of the other tests: no other program
    result = values()(x, jnp.broadcast_to(heights[0], (N, *SHAPE)))
    assert np.max(np.abs(result.distance)) < 1e-12


def test_a_viewer_draws_the_triangles():
    heights = np.random.default_rng(0).normal(size=(4, 5))
    (drawn,) = shape_triangles(HeightGrid(heights, 0.5, (1.0, 2.0)))
    corners = drawn.vertices[drawn.faces]
    assert len(corners) == 2 * 3 * 4
    up = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])[:, 2]
    np.testing.assert_allclose(up, 0.25)
    below = corners.reshape(-1, 3)
    i, j = np.round((below[:, :2] - [1, 2]) / 0.5).astype(int).T
    np.testing.assert_allclose(below[:, 2], heights[i, j])
    # The diagonal of a cell connects node [i, j] and node [i + 1, j + 1].
    sides = np.sort(np.stack([i, j], 1).reshape(-1, 3, 2) @ [10, 1], axis=1)
    assert np.all(np.any(np.diff(sides, axis=1) == 11, axis=1) | (sides[:, 2] - sides[:, 0] == 11))


# ------------------------------------------------------------------------------------- robots


BALL = """<link name="{0}"><inertial><mass value="1"/>
    <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><origin xyz="0.2 0 0"/><geometry><sphere radius="0.06"/></geometry></collision>
    </link>"""
JOINT = """<joint name="{1}_joint" type="revolute"><parent link="{0}"/><child link="{1}"/>
    <origin xyz="0.4 0 0"/><axis xyz="0 {2} {3}"/>
    <limit lower="-3" upper="3" effort="1" velocity="1"/></joint>"""


@functools.cache
def arm():
    """An arm of two balls above a terrain, which is turned, and a terrain on its first link."""
    rng = np.random.default_rng(3)
    links = [BALL.format(name) for name in ("base", "upper", "lower")]
    joints = [JOINT.format("base", "upper", 1, 0.5), JOINT.format("upper", "lower", 1, 0)]
    model = rbd.load_urdf(f"<robot name='arm'>{''.join([*links, *joints])}</robot>")
    R = np.array(so3.exp(jnp.asarray([0.1, 0.2, 0.3])))
    ground = HeightGrid(rng.uniform(-0.1, 0.1, (12, 10)), 0.15, (-0.7, -0.7))
    X = Pose(R, np.array([0.4, 0.0, -0.2]))
    on_link = HeightGrid(rng.uniform(-0.05, 0.05, (4, 5)), 0.1, (-0.1, -0.2))
    world = [PlacedShape(ground, None, X, "terrain"), PlacedShape(Sphere(0.1), None, None, "ball")]
    world.append(PlacedShape(on_link, "upper", (0.2, 0.0, 0.1), "tray"))
    return model, pairs_of(model, world)


def test_distances_of_a_robot_and_their_jacobian(rng):
    """Of shapes with a terrain in the world and with one on a link, apart and overlapping."""
    model, pairs = arm()
    assert ("lower", "terrain") in pairs.names
    assert ("ball", "tray") in pairs.names
    q = jnp.asarray(rng.uniform(-1.5, 1.5, (30, 2)))

    @jax.jit
    @jax.vmap
    def all_of(q):
        return distances_and_jacobian(model, rbd.forward_kinematics(model, q), pairs)

    value, jacobian = all_of(q)
    e = 1e-6
    for k, step in enumerate(e * jnp.eye(2)):
        ends = [all_of(q + s * step[None])[0] for s in (1, -1)]
        error = np.abs((ends[0] - ends[1]) / (2 * e) - jacobian[:, :, k])
        assert np.sum(error > 1e-6) <= 2  # a few have a kink within the step
    for name in (("lower", "terrain"), ("ball", "tray")):
        of_pair = value[:, pairs.names.index(name)]
        assert np.any(of_pair < -0.05)
        assert np.any(of_pair > 0.05)
    kinematics = rbd.forward_kinematics(model, q[0])
    a, b = (pairs.shapes[i] for i in pairs.members[pairs.names.index(("lower", "terrain"))])
    H = rbd.frame_placement(model, kinematics, "lower")
    R, p = H.R, H.p
    X_WA = Pose(R @ a.X_FS.R, R @ a.X_FS.p + p)
    alone = distance(a.shape, X_WA, b.shape, Pose(*map(jnp.asarray, b.X_FS))).distance
    assert abs(alone - value[0, pairs.names.index(("lower", "terrain"))]) < 1e-12


@pytest.mark.slow
def test_inverse_kinematics_stays_above_a_terrain():
    """The target of the arm is inside of the ground."""
    model, pairs = arm()
    tasks = [FrameTask.position("lower", jnp.array([0.75, 0.05, -0.4])), Clearance(pairs, 0.02)]
    solution = jax.jit(lambda q: inverse_kinematics(model, tasks, q))(jnp.array([0.2, 0.1]))
    ground = [i for i, names in enumerate(pairs.names) if "terrain" in names]
    least = jnp.min(robot_distances(model, solution.q, pairs)[np.array(ground)])
    assert least > 0.02 - 1e-4


# ------------------------------------------------------------------------------------- errors

GRID = HeightGrid(np.zeros((4, 4)), 0.1)
WRONG = {
    "a is a HeightGrid and b is a HeightGrid, expected at most one": lambda: distance(
        GRID, identity_pose(), GRID, identity_pose()
    ),
    "a is a HalfSpace and b is a HeightGrid, expected at most one": lambda: distance(
        HalfSpace(), identity_pose(), GRID, identity_pose()
    ),
    "the HeightGrid 'hill' and the HalfSpace 'floor'": lambda: DistancePairs(
        (PlacedShape(GRID, name="hill"), PlacedShape(HalfSpace(), name="floor")), ((0, 1),)
    ),
    "heights of a HeightGrid has shape (3, 4, 4)": lambda: distance(
        jax.vmap(lambda z: HeightGrid(jnp.full((4, 4), z), 0.1))(jnp.ones(3)),
        identity_pose(),
        Sphere(0.1),
        identity_pose(),
    ),
    "the pairs have the HeightGrid 'hill', expected it as the ground": lambda: (
        contact.collision_pairs(
            [(PlacedShape(Sphere(0.1), "lower"), PlacedShape(GRID, name="hill"))]
        )
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_pairs_are_named(message):
    with pytest.raises(rbd.ArgumentError, match=re.escape(message)):
        WRONG[message]()


def test_two_grounds_make_no_pair():
    model, _ = arm()
    world = [PlacedShape(HalfSpace(), "lower", name="palm"), PlacedShape(GRID, name="hill")]
    assert ("palm", "hill") not in pairs_of(model, world).names
