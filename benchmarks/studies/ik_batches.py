"""Measure inverse kinematics in large batches, for example on a GPU: targets per second.

    python -m benchmarks.studies.ik_batches --batches 1024,16384

The targets are poses of the tool of the bundled arm in random configurations, in float32. One call
solves all targets of a batch: from one start, with a search from up to 16 starts, and with a search
that keeps the arm 1 cm away from itself and from two boxes. A target counts as reached if the
solution has converged.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd
from benchmarks.studies import common
from jaxrbd import collision, inverse_kinematics as ik
from jaxrbd.spatial import Pose

STARTS = 16


def obstacles() -> list[collision.PlacedShape]:
    """A table and a box on it."""
    table, box = collision.Box([0.4, 0.4, 0.02]), collision.Box([0.1, 0.1, 0.15])
    places = np.array([[0.5, 0.0, -0.1], [0.5, 0.3, 0.1]])
    return [
        collision.PlacedShape(shape, X_FS=Pose(np.eye(3), p))
        for shape, p in zip((table, box), places)
    ]


def problems():
    """The functions of a pose of the tool and a random key, by name."""
    model = jaxrbd.load_robot("arm7")
    pairs = collision.pairs_of(model, obstacles(), disabled=[("forearm", "flange")])
    clearance = ik.Clearance(pairs, 0.01)

    def task(X):
        return ik.FrameTask("tool", X)

    def search(*more):
        return lambda X, key: ik.search_inverse_kinematics(model, [task(X), *more], key, STARTS)

    start = jnp.full(model.nq, 0.3)
    return model, {
        "one start": lambda X, key: ik.inverse_kinematics(model, [task(X)], start),
        "search": search(),
        f"search, {len(pairs)} distances": search(clearance),
    }


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--batches", type=common.counts, default=(1024,), help="N,M")
    batches = parser.parse_args().batches
    model, functions = problems()
    print(f"{common.machine()}, {jax.devices()[0].device_kind}, float32")
    common.head("problem", "batch", "reached", "ms per call", "targets/s", "compilation, s")
    for batch in batches:
        keys = jax.random.split(jax.random.key(0), (2, batch))
        q = jax.vmap(jaxrbd.random_configuration, (None, 0))(model, keys[0])
        X = jax.vmap(jaxrbd.frame_placement, (None, 0, None))(model, q, "tool")
        for name, function in functions.items():
            program = common.Program(function, X, keys[1])
            reached = float(jnp.mean(program.call().converged))
            seconds = common.least_seconds({"all": program.call}, repeat=5)["all"]
            compilation = program.trace_s + program.compile_s
            common.row(
                *(name, batch, f"{100 * reached:.1f} %", f"{1e3 * seconds:.3g}"),
                *(f"{batch / seconds:,.0f}", f"{compilation:.0f}"),
            )


if __name__ == "__main__":
    main()
