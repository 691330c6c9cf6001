"""Times of steps of a body of each shape that falls on the ground and on a table.

    XLA_FLAGS=--xla_cpu_multi_thread_eigen=false taskset -c 0 \\
        python -m benchmarks.studies.shape_contact
    python -m benchmarks.studies.shape_contact --batch 16384 --single      # on a GPU

A batch of bodies falls from a random orientation for half a second, in steps of 4 ms. The times are
those of a step of one body, with the iterations of the contact solver.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd
from benchmarks.studies import common
from jaxrbd import collision, contact
from jaxrbd.spatial import Pose

STEPS, DT = 125, 0.004
SHAPES = {
    "sphere": collision.Sphere(0.1),
    "capsule": collision.Capsule(0.05, 0.1),
    "box": collision.Box([0.1, 0.15, 0.05]),
    "cylinder": collision.Cylinder(0.1, 0.15),
    "ellipsoid": collision.Ellipsoid([0.1, 0.12, 0.08]),
    "hull": collision.ConvexMesh(np.random.default_rng(0).normal(size=(20, 3)) * 0.1),
}


def scenes(kind: str) -> dict[str, contact.Scene]:
    shape = collision.PlacedShape(SHAPES[kind], "body")
    box = collision.Box([1.0, 1.0, 0.1])
    table = collision.PlacedShape(box, X_FS=Pose(np.eye(3), np.array([0, 0, -0.1])))
    return {
        "ground": contact.Scene.from_shapes([shape]),
        "table": contact.Scene.from_shapes([], [(shape, table)]),
    }


def main() -> None:
    given = common.options(__doc__, batch=64, single=False, kinds=tuple(SHAPES))
    common.start()
    dtype = np.float32 if given.single else np.float64
    inertia = jaxrbd.model.link_inertia(2.0, (0, 0, 0), np.diag([0.02, 0.015, 0.01]))
    joint = jaxrbd.model.JointSpec("joint", jaxrbd.joints.FreeFlyer(), None, "body")
    model = jaxrbd.build_model([jaxrbd.model.Link("body", inertia)], [joint]).astype(dtype)
    q = common.random_configurations(model, given.batch)
    q = q.at[:, :3].set(jnp.asarray([0, 0, 0.4], dtype))
    common.head(f"shape, {np.dtype(dtype)}", "on", "us per step", "compilation, s")
    for kind in given.kinds:
        for name, scene in scenes(kind).items():

            def fall(q, v, scene=scene):
                def advance(state, _):
                    tau = jnp.zeros(6, dtype)
                    step = contact.contact_step(model, scene, *state, tau, DT)
                    return (step.q, step.v), None

                return jax.lax.scan(advance, (q, v), length=STEPS)[0]

            program = common.Program(fall, q, jnp.zeros((given.batch, 6), dtype))
            (seconds,) = common.least_seconds({kind: program.call}).values()
            us = 1e6 * seconds / (STEPS * given.batch)
            common.row(kind, name, f"{us:.3g}", program.compilation)


if __name__ == "__main__":
    main()
