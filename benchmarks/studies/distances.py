"""Measure signed distances of shapes: their errors, and their times beside coal.

    pip install coal
    XLA_FLAGS=--xla_cpu_multi_thread_eigen=false taskset -c 0 \\
        python -m benchmarks.studies.distances

A batch has 64 x 50 random pairs of two kinds of shapes, in float64; 7 to 16 % of the pairs overlap.
Hulls have 32 vertices. The times are those per pair of one core: the value, the value with the
gradient with respect to the pose of one shape, and, if coal is installed, a call of coal from
Python less an empty call of its binding. coal computes the value, the points and the normal. The
errors are:

- duality: the largest difference of the distance and the separation along the normal, for shapes
  that are apart. The difference is 0 only for the exact distance;
- depth: the number of pairs that overlap and have a smaller depth along one of 10,000 directions.

The last rows are the distances of the bundled arm, all pairs and five obstacles. On a GPU:

    python -m benchmarks.studies.distances --single --pairs 65536 --configurations 1024 Box-Box
"""

from __future__ import annotations

import time
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial import ConvexHull

import jaxrbd
from benchmarks.studies import common
from jaxrbd import collision, so3
from jaxrbd._math.cast import cast
from jaxrbd.collision.nearest import CorePair
from jaxrbd.collision.shapes import core_of
from jaxrbd.spatial import Pose, inverse_compose

try:
    import coal
except ImportError:
    coal = None

KINDS = ("Sphere", "Capsule", "Box", "Cylinder", "Ellipsoid", "ConvexMesh")
VERTICES, HULLS = 32, 100  # the vertices of a hull, and the number of different hulls
SIZES = {"Sphere": [()], "Capsule": [(), ()], "Box": [(3,)], "Cylinder": [(), ()]}
SIZES["Ellipsoid"] = [(3,)]
TESTED = 3200  # the number of pairs whose errors are computed


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
    most = max(len(shape.normals) for shape in found)
    normals = [core_of(shape)[0].padded(VERTICES, most).normals for shape in found]
    found = [eqx.tree_at(lambda x: x.normals, *pair) for pair in zip(found, normals)]
    rows = np.arange(count) % HULLS
    return jax.tree.map(lambda *x: jnp.stack(x)[rows], *found)


def poses(rng: np.random.Generator, count: int) -> Pose:
    R = jax.vmap(so3.exp)(jnp.asarray(rng.normal(size=(count, 3)) * 2))
    return Pose(R, jnp.asarray(rng.normal(size=(count, 3)) * 1.2))


def compiled(function: Callable, *arguments) -> tuple[Callable, float]:
    """The compiled function, and the seconds that tracing and compiling took."""
    start = time.perf_counter()
    program = jax.jit(function).lower(*arguments).compile()
    return program, time.perf_counter() - start


def coal_shape(kind: str, shape, i: int):
    if kind == "ConvexMesh":
        hull = ConvexHull(np.asarray(shape.vertices[i], float))
        points, triangles = coal.StdVec_Vec3s(), coal.StdVec_Triangle()
        points.extend([*hull.points])
        for corners in hull.simplices:
            triangles.append(coal.Triangle(*map(int, corners)))
        return coal.Convex(points, triangles)
    sizes = [np.asarray(x, float)[i] for x in jax.tree.leaves(shape)]
    match kind:
        case "Sphere":
            return coal.Sphere(sizes[0])
        case "Capsule" | "Cylinder":
            return getattr(coal, kind)(sizes[0], 2 * sizes[1])
        case "Box":
            return coal.Box(*(2 * sizes[0]))
    return coal.Ellipsoid(*sizes[0])


def coal_time(kinds: tuple[str, ...], a, X_a: Pose, b, X_b: Pose) -> float:
    """Seconds per distance of coal, less the time of an empty call."""
    request, result = coal.DistanceRequest(), coal.DistanceResult()
    calls, count = [], len(X_a.p)
    for i in range(count):
        places = [
            coal.Transform3s(np.asarray(X.R[i], float), np.asarray(X.p[i], float))
            for X in (X_a, X_b)
        ]
        one, other = coal_shape(kinds[0], a, i), coal_shape(kinds[1], b, i)
        calls.append((one, places[0], other, places[1], request, result))

    def all_distances():
        for call in calls:
            coal.distance(*call)

    def nothing():
        for _ in calls:
            result.clear()

    found = common.least_seconds({"all": all_distances, "nothing": nothing}, repeat=5)
    return (found["all"] - found["nothing"]) / count


def errors(a, X_a: Pose, b, X_b: Pose, found, rng) -> tuple[float, int, int]:
    """The duality error, the number of overlapping pairs, and the number of wrong depths."""
    directions = rng.normal(size=(10_000, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)

    def largest(a, X_a, b, X_b, normal):
        (core_a, radius_a), (core_b, radius_b) = core_of(a), core_of(b)
        X = inverse_compose(X_b, X_a)
        pair = CorePair(core_a, core_b, X.R, X.p)
        separations = jax.lax.map(pair.separation, jnp.asarray(directions), batch_size=1000)
        proved = pair.separation(X_b.R.T @ normal)
        return proved - radius_a - radius_b, jnp.max(separations) - radius_a - radius_b

    proved, least = jax.jit(jax.vmap(largest))(a, X_a, b, X_b, found.normal)
    apart = found.distance > 0
    duality = float(jnp.max(jnp.where(apart, jnp.abs(proved - found.distance), 0)))
    wrong = jnp.sum(~apart & (least > found.distance + 1e-9))
    return duality, int(jnp.sum(~apart)), int(wrong)


def study_of_kinds(kinds: tuple[str, ...], count: int, dtype: type) -> None:
    rng = np.random.default_rng(0)
    a, b = (shapes(kind, rng, count) for kind in kinds)
    arguments = cast((a, poses(rng, count), b, poses(rng, count)), dtype)
    value, compilation = compiled(jax.vmap(collision.distance), *arguments)

    def distance_and_gradient(a, X_a, b, X_b):
        return jax.value_and_grad(lambda X: collision.distance(a, X, b, X_b).distance)(X_a)

    with_gradient, _ = compiled(jax.vmap(distance_and_gradient), *arguments)
    found = value(*arguments)
    few = jax.tree.map(lambda x: x[:TESTED], (*arguments, found))
    duality, overlapping, wrong = errors(*few, rng)
    programs = {"value": value, "gradient": with_gradient}
    calls = {name: lambda f=f: f(*arguments) for name, f in programs.items()}
    times = [x / count for x in common.least_seconds(calls, repeat=10).values()]
    if coal:
        times.append(coal_time(kinds, *arguments))
    us = [f"{1e6 * x:.3g}" for x in times]
    peer = [us[2], f"{times[1] / times[2]:.1f}"] if coal else ["", ""]
    wrong_depths = f"{wrong} of {overlapping}"
    compiling = f"{compilation:.1f}"
    common.row(", ".join(kinds), *us[:2], *peer, compiling, f"{duality:.0e}", wrong_depths)


def study_of_the_arm(count: int, dtype: type) -> None:
    model = jaxrbd.load_robot("arm7").astype(dtype)
    rng = np.random.default_rng(0)
    world = [
        collision.PlacedShape(
            collision.Box([0.1, 0.1, 0.1]), X_FS=Pose(np.eye(3), rng.uniform(-0.8, 0.8, 3))
        )
        for _ in range(5)
    ]
    pairs = collision.pairs_of(model, world)
    q = jnp.asarray(rng.uniform(-1, 1, (count, model.nq)), dtype)

    def distances(q):
        return collision.robot_distances(model, q, pairs)

    for name, function in (
        ("all distances", distances),
        ("with their Jacobian", lambda q: (distances(q), jax.jacfwd(distances)(q))),
        ("with the gradient of their sum", jax.value_and_grad(lambda q: jnp.sum(distances(q)))),
    ):
        program, compilation = compiled(jax.vmap(function), q)
        found = common.least_seconds({"all": lambda p=program: p(q)}, repeat=10)
        us = 1e6 * found["all"] / len(q)
        common.row(f"{name}, {len(pairs)} pairs", f"{us:.3g}", f"{compilation:.1f}")


def main() -> None:
    parser = common.parser(__doc__)
    every = [(a, b) for i, a in enumerate(KINDS) for b in KINDS[i:]]
    parser.add_argument("kinds", nargs="*", help="such as Box-Box; default: all pairs of kinds")
    parser.add_argument("--pairs", type=int, default=64 * 50, help="the pairs of a batch")
    parser.add_argument("--configurations", type=int, default=64, help="a batch of the arm")
    parser.add_argument("--single", action="store_true", help="float32 instead of float64")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    dtype = np.float32 if given.single else np.float64
    print(f"{common.machine()}, {jax.devices()[0].device_kind}, {np.dtype(dtype)}")
    times = "value, us", "with gradient, us", "coal, us", "ratio", "compilation, s"
    common.head("shapes", *times, "duality", "deeper than needed")
    for kinds in [tuple(text.split("-")) for text in given.kinds] or every:
        study_of_kinds(kinds, given.pairs, dtype)
    print()
    configurations = f"arm, {given.configurations} configurations"
    common.head(configurations, "us per configuration", "compilation, s")
    study_of_the_arm(given.configurations, dtype)


if __name__ == "__main__":
    main()
