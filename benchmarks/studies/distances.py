"""Measure signed distances of shapes: their errors, and their times beside coal.

    pip install coal
    XLA_FLAGS=--xla_cpu_multi_thread_eigen=false taskset -c 0 \\
        python -m benchmarks.studies.distances

A batch has 64 x 50 random pairs of two kinds of shapes, in float64; 7 to 16 % of the pairs overlap.
The times are those per pair of one core: the value, the value with the gradient with respect to the
pose of one shape, and a call of coal from Python less an empty call of its binding. coal computes
the value, the points and the normal. The errors are:

- duality: the largest difference of the distance and the separation along the normal, for shapes
  that are apart. The difference is 0 only for the exact distance;
- depth: the number of pairs that overlap and have a smaller depth along one of 10,000 directions.

The last rows are the distances of the bundled arm, all pairs and five obstacles.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import coal
import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd
from benchmarks.studies import common
from jaxrbd import collision, so3
from jaxrbd.collision.nearest import CorePair
from jaxrbd.spatial import Pose, inverse_compose

PAIRS = 64 * 50
KINDS = ("Sphere", "Capsule", "Box", "Cylinder", "Ellipsoid")
SIZES = {"Sphere": [()], "Capsule": [(), ()], "Box": [(3,)], "Cylinder": [(), ()]}
SIZES["Ellipsoid"] = [(3,)]


def shapes(kind: str, rng: np.random.Generator):
    """Random shapes of one kind, with sizes from 0.05 to 1."""
    sizes = [jnp.asarray(rng.uniform(0.05, 1, (PAIRS, *shape))) for shape in SIZES[kind]]
    return jax.vmap(getattr(collision, kind))(*sizes)


def poses(rng: np.random.Generator) -> Pose:
    R = jax.vmap(so3.exp)(jnp.asarray(rng.normal(size=(PAIRS, 3)) * 2))
    return Pose(R, jnp.asarray(rng.normal(size=(PAIRS, 3)) * 1.2))


def compiled(function: Callable, *arguments) -> tuple[Callable, float]:
    """The compiled function, and the seconds that tracing and compiling took."""
    start = time.perf_counter()
    program = jax.jit(function).lower(*arguments).compile()
    return program, time.perf_counter() - start


def coal_shape(kind: str, shape, i: int):
    sizes = [np.asarray(x)[i] for x in jax.tree.leaves(shape)]
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
    calls = []
    for i in range(PAIRS):
        places = [coal.Transform3s(np.asarray(X.R[i]), np.asarray(X.p[i])) for X in (X_a, X_b)]
        one, other = coal_shape(kinds[0], a, i), coal_shape(kinds[1], b, i)
        calls.append((one, places[0], other, places[1], request, result))

    def all_distances():
        for call in calls:
            coal.distance(*call)

    def nothing():
        for _ in calls:
            result.clear()

    found = common.least_seconds({"all": all_distances, "nothing": nothing}, repeat=5)
    return (found["all"] - found["nothing"]) / PAIRS


def errors(a, X_a: Pose, b, X_b: Pose, found, rng) -> tuple[float, int, int]:
    """The duality error, the number of overlapping pairs, and the number of wrong depths."""
    directions = rng.normal(size=(10_000, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)

    def largest(a, X_a, b, X_b, normal):
        (core_a, radius_a), (core_b, radius_b) = a.core(), b.core()
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


def study_of_kinds(kinds: tuple[str, ...]) -> None:
    rng = np.random.default_rng(0)
    a, b = (shapes(kind, rng) for kind in kinds)
    arguments = a, poses(rng), b, poses(rng)
    value, compilation = compiled(jax.vmap(collision.distance), *arguments)

    def distance_and_gradient(a, X_a, b, X_b):
        return jax.value_and_grad(lambda X: collision.distance(a, X, b, X_b).distance)(X_a)

    with_gradient, _ = compiled(jax.vmap(distance_and_gradient), *arguments)
    found = value(*arguments)
    duality, overlapping, wrong = errors(*arguments, found, rng)
    programs = {"value": value, "gradient": with_gradient}
    calls = {name: lambda f=f: f(*arguments) for name, f in programs.items()}
    times = [x / PAIRS for x in common.least_seconds(calls, repeat=10).values()]
    times.append(coal_time(kinds, *arguments))
    us = [f"{1e6 * x:.2f}" for x in times]
    ratio = f"{times[1] / times[2]:.1f}"
    wrong_depths = f"{wrong} of {overlapping}"
    common.row(", ".join(kinds), *us, ratio, f"{compilation:.1f}", f"{duality:.0e}", wrong_depths)


def study_of_the_arm() -> None:
    model = jaxrbd.load_robot("arm7")
    rng = np.random.default_rng(0)
    world = [
        collision.PlacedShape(
            collision.Box([0.1, 0.1, 0.1]), X_FS=Pose(np.eye(3), rng.uniform(-0.8, 0.8, 3))
        )
        for _ in range(5)
    ]
    pairs = collision.pairs_of(model, world)
    q = jnp.asarray(rng.uniform(-1, 1, (64, model.nq)))

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
        common.row(f"{name}, {len(pairs)} pairs", f"{us:.0f}", f"{compilation:.1f}")


def main() -> None:
    parser = common.parser(__doc__)
    every = [(a, b) for i, a in enumerate(KINDS) for b in KINDS[i:]]
    parser.add_argument("kinds", nargs="*", help="such as Box-Box; default: all pairs of kinds")
    given = [tuple(text.split("-")) for text in parser.parse_args().kinds]
    jax.config.update("jax_enable_x64", True)
    print(common.machine())
    times = "value, us", "with gradient, us", "coal, us", "ratio", "compilation, s"
    common.head("shapes", *times, "duality", "deeper than needed")
    for kinds in given or every:
        study_of_kinds(kinds)
    print()
    common.head("arm, 64 configurations", "us per configuration", "compilation, s")
    study_of_the_arm()


if __name__ == "__main__":
    main()
