"""Measure inverse kinematics that keeps a distance from obstacles and from the robot itself.

    pip install --no-deps example-robot-data coal
    XLA_FLAGS=--xla_cpu_multi_thread_eigen=false taskset -c 0 \\
        python -m benchmarks.studies.ik_obstacles [--robot g1 --targets 200]
    python -m benchmarks.studies.ik_obstacles --robot arm7 --at-once --targets 16384    # on a GPU

The robot is a Panda as 13 capsules, with the pairs that its SRDF file leaves on, and five boxes.
Or it is the humanoid G1 with a fixed pelvis, as one capsule around each link, with all pairs that
are apart in the neutral configuration. The target is the pose of the hand, of the G1 the left one,
in a random configuration whose distances are above the margin, so each target can be reached. A
target counts as reached if the solution has converged. coal computes the distances of all solutions
again. The times are processor times in float64, without compilation: those of one target after the
other, and of all 64 targets of a batch over 64. The first table has the times of all distances.

With `--at-once`, one call solves all targets in float32: poses of random configurations, some of
which are not free. The arm7 is the bundled arm, with a table and a box.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd
from benchmarks.robots import file_of
from benchmarks.studies import common
from benchmarks.studies.distances import coal, coal_poses, coal_shape
from benchmarks.studies.inverse_kinematics import BATCH, panda
from jaxrbd import collision, inverse_kinematics as ik
from jaxrbd.collision.robot_shapes import distances_and_jacobian
from jaxrbd.model.geometry import LinkGeometry
from jaxrbd.view.triangles import shape_triangles

MARGIN = 0.01
# The half sizes and the places of the boxes.
AROUND_PANDA = {
    "table": ([0.5, 0.8, 0.02], [0.6, 0.0, -0.03]),
    "shelf": ([0.15, 0.5, 0.01], [0.6, 0.0, 0.75]),
    "wall": ([0.02, 0.8, 0.6], [-0.45, 0.0, 0.5]),
    "low box": ([0.1, 0.1, 0.15], [0.5, 0.35, 0.14]),
    "high box": ([0.05, 0.15, 0.25], [0.45, -0.45, 0.24]),
}
AROUND_ARM7 = {
    "table": ([0.4, 0.4, 0.02], [0.5, 0.0, -0.1]),
    "box": ([0.1, 0.1, 0.15], [0.5, 0.3, 0.1]),
}


class Setting(NamedTuple):
    """A robot, its pairs of shapes, and the frame of its hand.

    `draws`: the number of random configurations for each target; only some are free.
    """

    model: jaxrbd.Model
    pairs: collision.DistancePairs
    hand: str
    draws: int


def placed(boxes: dict) -> list[collision.PlacedShape]:
    return [
        collision.PlacedShape(collision.Box(size), X_FS=place, name=name)
        for name, (size, place) in boxes.items()
    ]


def arm7() -> Setting:
    """The bundled arm, with a table and a box on it."""
    model = jaxrbd.load_robot("arm7")
    pairs = collision.pairs_of(model, placed(AROUND_ARM7), disabled=[("forearm", "flange")])
    return Setting(model, pairs, "tool", 8)


def g1() -> Setting:
    """The G1 with a capsule around each link."""
    file = file_of("example-robot-data", "g1_description/urdf/g1_29dof_rev_1_0.urdf")
    model = jaxrbd.load_urdf(file)
    points: dict[str, list[np.ndarray]] = {}
    for placed in collision.pairs_of(jaxrbd.io.read_meshes(model), most_vertices=64).shapes:
        points.setdefault(placed.frame, []).append(surface_points(placed))
    capsules = [capsule_around(np.concatenate(x), link) for link, x in points.items()]
    bare = dataclasses.replace(model, geometry=LinkGeometry())
    pairs = collision.pairs_of(bare, capsules)
    distances = collision.robot_distances(bare, jaxrbd.neutral(bare), pairs)
    apart = [pair for pair, x in zip(pairs.members, distances.tolist()) if x > MARGIN]
    pairs = collision.DistancePairs(pairs.shapes, tuple(apart))
    return Setting(bare, pairs, "left_wrist_yaw_link", 40)


def surface_points(placed: collision.PlacedShape) -> np.ndarray:
    """Points (n, 3) in the frame of a link, on the surface of a shape."""
    if isinstance(placed.shape, collision.ConvexMesh):
        points = np.asarray(placed.shape.vertices)
    else:
        (part,) = shape_triangles(placed.shape)
        points = part.vertices
    return points @ placed.X_FS.R.T + placed.X_FS.p


def capsule_around(points: np.ndarray, link: str) -> collision.PlacedShape:
    """A capsule about the longest axis of points (n, 3) that contains them."""
    axes = np.linalg.svd(points - np.mean(points, axis=0), full_matrices=False)[2]
    x = points @ axes.T
    middle = (x.min(axis=0) + x.max(axis=0)) / 2
    aside = np.linalg.norm((x - middle)[:, 1:], axis=1)
    radius = float(aside.max())
    beyond = np.abs((x - middle)[:, 0]) - np.sqrt(radius**2 - aside**2)
    half = max(float(beyond.max()), 0.0) * axes[0]
    center = middle @ axes
    return collision.capsule_between(center - half, center + half, radius, link, link)


def panda_and_boxes() -> Setting:
    """The Panda with locked fingers, and its pairs of shapes."""
    data = "example-robot-data"
    model = panda().model
    shapes = jaxrbd.load_urdf(file_of(data, "panda_description/urdf/panda_collision.urdf"))
    srdf = jaxrbd.io.load_srdf(file_of(data, "panda_description/srdf/panda.srdf"), shapes)
    # The file states each capsule as a cylinder and two spheres.
    on_links = [
        collision.PlacedShape(
            collision.Capsule(x.shape.radius, x.shape.half_length), x.frame, x.X_FS, x.name
        )
        for x in collision.pairs_of(shapes).shapes
        if isinstance(x.shape, collision.Cylinder)
    ]
    shapes = [*on_links, *placed(AROUND_PANDA)]
    pairs = collision.pairs_of(model, shapes, disabled=srdf.disabled_collisions)
    return Setting(model, pairs, "panda_hand", 8)


def solvers(setting: Setting) -> dict:
    """Functions of a pose of the hand and a random key."""
    model, pairs, hand, _ = setting
    clearance = ik.Clearance(pairs, MARGIN)

    def search(seeds, *more):
        def found(problem):
            X, key = problem
            tasks = [ik.FrameTask(hand, X), *more]
            found = ik.search_inverse_kinematics(model, tasks, key, seeds)
            return found.q, found.converged

        return found

    return {
        "without distances, 16 starts": search(16),
        "16 starts": search(16, clearance),
        "64 starts": search(64, clearance),
    }


def free_targets(setting: Setting, count: int):
    """Poses of the hand in random configurations whose distances are above the margin."""
    model, pairs, hand, draws = setting

    def draw(key):
        q = jaxrbd.random_configuration(model, key)
        return jnp.min(collision.robot_distances(model, q, pairs)), q

    least, q = jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), draws * count))
    q = q[np.flatnonzero(least > MARGIN)[:count]]
    place = jax.vmap(jaxrbd.frame_placement, (None, 0, None))
    return jax.jit(lambda q: place(model, q, hand))(q)


def least_distance(model: jaxrbd.Model, pairs: collision.DistancePairs, q) -> float:
    """The least distance in the configurations q (n, nq), by coal."""

    @jax.jit
    @jax.vmap
    def poses(q):
        kinematics = jaxrbd.forward_kinematics(model, q)
        found = []
        for shape in pairs.shapes:
            X = jax.tree.map(jnp.asarray, shape.X_FS)
            if shape.frame is not None:
                X = jaxrbd.frame_placement(model, kinematics, shape.frame) @ X
            found.append(X)
        return found

    shapes = [coal_shape(placed.shape) for placed in pairs.shapes]
    places = [coal_poses(X) for X in poses(q)]
    request, least = coal.DistanceRequest(), np.inf
    for k in range(len(q)):
        for i, j in pairs.members:
            result = coal.DistanceResult()
            coal.distance(shapes[i], places[i][k], shapes[j], places[j][k], request, result)
            least = min(least, result.min_distance)
    return least


def times_of_distances(setting: Setting) -> None:
    """Print the times of all distances of a configuration, without and with their Jacobian."""
    model, pairs, *_ = setting
    q = common.random_configurations(model, BATCH)

    def distances(q):
        return collision.robot_distances(model, q, pairs)

    def with_jacobian(q):
        kinematics = jaxrbd.forward_kinematics(model, q)
        return distances_and_jacobian(model, kinematics, pairs)

    common.head(f"batches of {BATCH}", "us per configuration", "compilation, s")
    for name, function in (("distances", distances), ("with Jacobian", with_jacobian)):
        program = common.Program(function, q)
        (seconds,) = common.least_seconds({name: program.call}).values()
        common.row(name, f"{1e6 * seconds / BATCH:.3g}", program.compilation)


def in_turn(setting: Setting, count: int) -> None:
    """Print the table of solves in turn and in batches."""
    model, pairs, *_ = setting
    targets = free_targets(setting, count)
    problems = targets, jax.random.split(jax.random.key(1), len(targets.p))
    columns = "reached", "least distance, m", "mean time, ms", f"in batches of {BATCH}, ms"
    title = f"{len(targets.p)} targets, {len(pairs)} distances"
    common.head(title, *columns, "compilation, s")
    for name, solve in solvers(setting).items():
        found = common.in_turn_and_in_batches(solve, problems, BATCH)
        (q, converged), compilation, *seconds = found
        least = least_distance(model, pairs, q[np.asarray(converged)]) if coal else np.nan
        reached = f"{100 * float(jnp.mean(converged)):.1f} %"
        ms = [f"{1e3 * x:.2f}" for x in seconds]
        common.row(name, reached, f"{least:.6f}", *ms, compilation)


def at_once(setting: Setting, batch: int) -> None:
    """Print the table of solves of all targets in one call."""
    model, _, hand, _ = setting
    q = common.random_configurations(model, batch)
    X = jax.vmap(jaxrbd.frame_placement, (None, 0, None))(model, q, hand)
    start = jnp.full(model.nq, 0.3)

    def from_one_start(problem):
        found = ik.inverse_kinematics(model, [ik.FrameTask(hand, problem[0])], start)
        return found.q, found.converged

    common.head(f"{batch} targets, {len(setting.pairs)} distances", "reached", "ms", "targets/s")
    for name, solve in {"one start": from_one_start, **solvers(setting)}.items():
        program = common.Program(solve, (X, jax.random.split(jax.random.key(1), batch)))
        reached = f"{100 * float(jnp.mean(program.call()[1])):.1f} %"
        (seconds,) = common.least_seconds({name: program.call}).values()
        common.row(name, reached, f"{1e3 * seconds:.3g}", f"{batch / seconds:,.0f}")


def main() -> None:
    given = common.options(__doc__, robot="panda", targets=1000, at_once=False)
    common.start(double=not given.at_once)
    settings = {"panda": panda_and_boxes, "g1": g1, "arm7": arm7}
    setting = settings[given.robot]()
    if given.at_once:
        at_once(setting, given.targets)
    else:
        times_of_distances(setting)
        in_turn(setting, given.targets)


if __name__ == "__main__":
    main()
