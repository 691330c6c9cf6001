"""Times of signed distances of shapes beside coal, and of the distances of a robot.

    pip install coal
    XLA_FLAGS=--xla_cpu_multi_thread_eigen=false taskset -c 0 \\
        python -m benchmarks.studies.distances

A batch has 64 x 50 random pairs of two kinds of shapes, in float64; 7 to 16 % of the pairs overlap.
Hulls have 32 vertices. The times are those per pair of one core: the value, the value with the
gradient with respect to the pose of one shape, and, if coal is installed, a call of coal from
Python less an empty call of its binding. coal computes the value, the points and the normal.

The rows with a grid have the distances to a ground of 64 x 64 heights, and `--kinds` may select
them, as `Box-HeightGrid`. The last row has the distances of the bundled arm, all pairs and five
obstacles. On a GPU:

    python -m benchmarks.studies.distances --single --pairs 65536 --configurations 1024
"""

from __future__ import annotations

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial import ConvexHull

import jaxrbd
from benchmarks.studies import common
from jaxrbd import collision, so3
from jaxrbd._math.cast import cast
from jaxrbd.collision.shapes import core_of
from jaxrbd.spatial import Pose

try:
    import coal
except ImportError:
    coal = None

# The shapes of the sizes of each kind; a hull has no sizes.
SIZES = {"Sphere": [()], "Capsule": [(), ()], "Box": [(3,)], "Cylinder": [(), ()]}
SIZES |= {"Ellipsoid": [(3,)], "ConvexMesh": []}
VERTICES, HULLS = 32, 100  # the vertices of a hull, and the number of different hulls


def shapes(kind: str, rng: np.random.Generator, count: int):
    """Random shapes of one kind, with sizes from 0.05 to 1."""
    if kind == "ConvexMesh":
        return hulls(rng, count)
    sizes = [jnp.asarray(rng.uniform(0.05, 1, (count, *shape))) for shape in SIZES[kind]]
    return jax.vmap(getattr(collision, kind))(*sizes)


def hulls(rng: np.random.Generator, count: int):
    """Hulls of points on spheres with radii from 0.2 to 1. The first HULLS hulls repeat."""
    points = rng.normal(size=(HULLS, VERTICES, 3))
    points *= rng.uniform(0.2, 1, (HULLS, 1, 1)) / np.linalg.norm(points, axis=-1, keepdims=True)
    found = [collision.ConvexMesh(x) for x in points]
    most = max(len(shape.edge_normals) for shape in found)
    normals = [core_of(shape)[0].padded(VERTICES, most).edge_normals for shape in found]
    found = [eqx.tree_at(lambda x: x.edge_normals, *pair) for pair in zip(found, normals)]
    rows = np.arange(count) % HULLS
    return jax.tree.map(lambda *x: jnp.stack(x)[rows], *found)


def poses(rng: np.random.Generator, count: int) -> Pose:
    R = jax.vmap(so3.exp)(jnp.asarray(rng.normal(size=(count, 3)) * 2))
    return Pose(R, jnp.asarray(rng.normal(size=(count, 3)) * 1.2))


def coal_shape(shape):
    """The shape of coal for a shape of `jaxrbd.collision`."""
    kind = type(shape).__name__
    if kind == "ConvexMesh":
        hull = ConvexHull(np.asarray(shape.vertices, float))
        points, triangles = coal.StdVec_Vec3s(), coal.StdVec_Triangle()
        points.extend([*hull.points])
        for corners in hull.simplices:
            triangles.append(coal.Triangle(*map(int, corners)))
        return coal.Convex(points, triangles)
    if kind in ("Capsule", "Cylinder"):
        return getattr(coal, kind)(float(shape.radius), 2 * float(shape.half_length))
    if kind == "Box":
        return coal.Box(*(2 * np.asarray(shape.half_sizes, float)))
    radii = shape.radius if kind == "Sphere" else shape.radii
    return getattr(coal, kind)(*np.atleast_1d(np.asarray(radii, float)))


def coal_poses(X: Pose) -> list:
    """Poses (n,) for coal."""
    return [coal.Transform3s(np.asarray(R, float), np.asarray(p, float)) for R, p in zip(X.R, X.p)]


def coal_time(a, X_a: Pose, b, X_b: Pose) -> float:
    """Seconds per distance of coal, less the time of an empty call.

    The result is cleared before each call: coal returns at once if an earlier pair overlapped.
    """
    request, result = coal.DistanceRequest(), coal.DistanceResult()
    places = zip(coal_poses(X_a), coal_poses(X_b))
    arrays = jax.tree.map(np.asarray, (a, b))
    rows = [jax.tree.map(lambda x, i=i: x[i], arrays) for i in range(len(X_a.p))]
    pairs = [map(coal_shape, row) for row in rows]
    calls = [(one, X, other, Y, request, result) for (one, other), (X, Y) in zip(pairs, places)]

    def all_distances():
        for call in calls:
            result.clear()
            coal.distance(*call)

    def nothing():
        for _ in calls:
            result.clear()

    found = common.least_seconds({"all": all_distances, "nothing": nothing})
    return (found["all"] - found["nothing"]) / len(calls)


def study_of_kinds(kinds: tuple[str, str], count: int, dtype: type) -> None:
    rng = np.random.default_rng(0)
    a, b = (shapes(kind, rng, count) for kind in kinds)
    arguments = cast((a, poses(rng, count), b, poses(rng, count)), dtype)

    def with_gradient(a, X_a, b, X_b):
        return jax.value_and_grad(lambda X: collision.distance(a, X, b, X_b).distance)(X_a)

    value = common.Program(collision.distance, *arguments)
    calls = {"value": value.call, "gradient": common.Program(with_gradient, *arguments).call}
    times = [f"{1e6 * x / count:.3g}" for x in common.least_seconds(calls).values()]
    times.append(f"{1e6 * coal_time(*arguments):.3g}" if coal else "-")
    common.row(", ".join(kinds), *times, value.compilation)


def study_of_a_grid(kind: str, count: int, dtype: type) -> None:
    """Shapes over hills of +-0.3 m with nodes 0.2 m apart; most of them are near the ground."""
    rng = np.random.default_rng(0)
    x, y = np.meshgrid(*[0.2 * np.arange(64)] * 2, indexing="ij")
    grid = collision.HeightGrid(0.3 * np.sin(1.5 * x) * np.cos(y), 0.2)
    X = poses(rng, count)
    places = rng.uniform([2, 2, -0.2], [10, 10, 1.5], (count, 3))
    arguments = cast((shapes(kind, rng, count), X._replace(p=jnp.asarray(places))), dtype)
    X_WG = cast(Pose(jnp.eye(3), jnp.zeros(3)), dtype)

    def distance(a, X):
        return collision.distance(a, X, cast(grid, dtype), X_WG)

    def with_gradient(a, X):
        return jax.value_and_grad(lambda X: distance(a, X).distance)(X)

    value = common.Program(distance, *arguments)
    calls = {"value": value.call, "gradient": common.Program(with_gradient, *arguments).call}
    times = [f"{1e6 * x / count:.3g}" for x in common.least_seconds(calls).values()]
    common.row(f"{kind}, HeightGrid", *times, "-", value.compilation)


def study_of_the_arm(count: int, dtype: type) -> None:
    model = jaxrbd.load_robot("arm7").astype(dtype)
    rng = np.random.default_rng(0)
    box = collision.Box([0.1, 0.1, 0.1])
    places = [Pose(np.eye(3), rng.uniform(-0.8, 0.8, 3)) for _ in range(5)]
    pairs = collision.pairs_of(model, [collision.PlacedShape(box, X_FS=X) for X in places])
    q = jnp.asarray(rng.uniform(-1, 1, (count, model.nq)), dtype)

    def distances(q):
        return collision.robot_distances(model, q, pairs)

    def with_jacobian(q):
        return distances(q), jax.jacfwd(distances)(q)

    programs = [common.Program(function, q) for function in (distances, with_jacobian)]
    found = common.least_seconds({i: program.call for i, program in enumerate(programs)})
    us = [f"{1e6 * found[i] / count:.3g}" for i in found]
    common.row(f"{len(pairs)} distances of the arm", *us, "-", programs[0].compilation)


def main() -> None:
    every = [f"{a}-{b}" for a, b in itertools.combinations_with_replacement(SIZES, 2)]
    every += [f"{kind}-HeightGrid" for kind in SIZES]
    given = common.options(
        __doc__, kinds=tuple(every), pairs=64 * 50, configurations=64, single=False
    )
    common.start()
    times = "value, us", "with gradient or Jacobian, us", "coal, us", "compilation, s"
    common.head("shapes", *times)
    dtype = np.float32 if given.single else np.float64
    for kinds in given.kinds:
        a, b = kinds.split("-")
        if b == "HeightGrid":
            study_of_a_grid(a, given.pairs, dtype)
        else:
            study_of_kinds((a, b), given.pairs, dtype)
    study_of_the_arm(given.configurations, dtype)


if __name__ == "__main__":
    main()
