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
    given = common.options(__doc__, batches=(1024,))
    common.start(double=False)
    model, functions = problems()
    common.head("problem", "batch", "reached", "ms per call", "targets/s")
    for batch in given.batches:
        keys = jax.random.split(jax.random.key(1), batch)
        q = common.random_configurations(model, batch)
        X = jax.vmap(jaxrbd.frame_placement, (None, 0, None))(model, q, "tool")
        for name, function in functions.items():
            program = common.Program(function, X, keys)
            reached = 100 * float(jnp.mean(program.call().converged))
            (seconds,) = common.least_seconds({name: program.call}).values()
            cells = f"{reached:.1f} %", f"{1e3 * seconds:.3g}", f"{batch / seconds:,.0f}"
            common.row(name, batch, *cells)


if __name__ == "__main__":
    main()
