"""Measure inverse kinematics: success rates, errors and times for random reachable targets.

    pip install --no-deps example-robot-data pybullet gymnasium-robotics   # robots; not imported
    XLA_FLAGS=--xla_cpu_multi_thread_eigen=false taskset -c 0 \\
        python -m benchmarks.studies.inverse_kinematics                # 10,000 targets each
    python -m benchmarks.studies.inverse_kinematics --targets 64 --robots arm7

The targets are poses of random configurations, uniform within the limits of the joints. A
coordinate without limits is uniform within -pi and pi. A target counts as reached if the errors of
the solution are below the tolerance and its coordinates are within the limits up to 1e-9. The
errors are computed again from the configuration, and those of all targets count, reached or not.
The joints that do not move the target frame, such as fingers, are locked.

The times are those of all targets, reached or not, in float64, without compilation. The start is
the middle of the limits. A search continues from random starts until one converges.

- Panda, UR10, G1: example-robot-data. iiwa14: pybullet. Fetch, arm and torso: gymnasium-robotics.
- G1: targets of the pelvis, the hands and the feet, whose joints are in random postures.
- five_bar: the bundled linkage with a closed loop. Its tip reaches random points.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd
from benchmarks.robots import file_of
from benchmarks.studies import common
from jaxrbd import inverse_kinematics as ik
from jaxrbd.model import lock_joints
from jaxrbd.model.joint_space import coordinates_with_rates

BATCH = 64
STARTS = 16
COARSE = 1e-3, np.radians(0.1)  # m, rad
FINE = 1e-5  # m and rad, of every component
DATA = "example-robot-data"
FETCH_ARM = "torso_lift shoulder_pan shoulder_lift upperarm_roll elbow_flex forearm_roll wrist_flex"


class Robot(NamedTuple):
    """A robot, the frames of its targets, and constraints that close its loops."""

    model: jaxrbd.Model
    frames: tuple[str, ...]
    constraints: tuple = ()
    q0: np.ndarray | None = None


def _urdf(package: str, end: str, **options) -> jaxrbd.Model:
    return jaxrbd.load_urdf(file_of(package, end), geometry=False, **options)


def panda() -> Robot:
    model = _urdf(DATA, "panda_description/urdf/panda.urdf")
    return Robot(lock_joints(model, {"panda_finger_joint1": 0.0}), ("panda_hand",))


def ur10() -> Robot:
    return Robot(_urdf(DATA, "ur_description/urdf/ur10_robot.urdf"), ("tool0",))


def iiwa14() -> Robot:
    return Robot(_urdf("pybullet", "kuka_iiwa/model.urdf"), ("lbr_iiwa_link_7",))


def fetch() -> Robot:
    file = file_of("gymnasium-robotics", "assets/fetch/reach.xml")
    model = jaxrbd.io.load_mjcf(file, strict=False).model
    arm = [f"robot0:{name}_joint" for name in (*FETCH_ARM.split(), "wrist_roll")]
    others = {name: 0.0 for name in model.joint_names if name not in arm}
    return Robot(lock_joints(model, others), ("robot0:gripper_link",))


def arm7() -> Robot:
    return Robot(jaxrbd.load_robot("arm7"), ("tool",))


def g1() -> Robot:
    model = _urdf(DATA, "g1_description/urdf/g1_29dof_rev_1_0.urdf", root_joint="free_flyer")
    ends = "left_rubber_hand", "right_rubber_hand", "left_ankle_roll_link", "right_ankle_roll_link"
    return Robot(model, ("pelvis", *ends))


def five_bar() -> Robot:
    model, loops, q = jaxrbd.robots.load_linkage("five_bar")
    return Robot(model, (model.frame_names[-1],), loops, q)


ROBOTS = {f.__name__: f for f in (panda, ur10, iiwa14, fetch, arm7, g1, five_bar)}


def limits(model: jaxrbd.Model) -> tuple[np.ndarray, jax.Array, jax.Array]:
    """The indices in q of the coordinates with limits, and their lower and upper limits."""
    place, *_ = coordinates_with_rates(model)
    return place, model.lower_position_limit[place], model.upper_position_limit[place]


def middle(robot: Robot) -> jax.Array:
    """The start: each limited coordinate in the middle of its limits, the others neutral."""
    if robot.q0 is not None:
        return robot.q0
    place, lower, upper = limits(robot.model)
    limited = jnp.isfinite(lower) & jnp.isfinite(upper)
    return jaxrbd.neutral(robot.model).at[place].set(jnp.where(limited, (lower + upper) / 2, 0))


def poses(robot: Robot, q: jax.Array) -> jaxrbd.Pose:
    """The poses of the frames of the targets, (frames,)."""
    found = [jaxrbd.frame_placement(robot.model, q, frame) for frame in robot.frames]
    return jax.tree.map(lambda *x: jnp.stack(x), *found)


def draw(robot: Robot, key: jax.Array) -> jaxrbd.Pose:
    """The poses of the frames at a random configuration that closes the loops."""
    q = jaxrbd.random_configuration(robot.model, key)
    if robot.constraints:
        posture = ik.PostureTask(q, 1.0)
        q = ik.inverse_kinematics(robot.model, [posture, *robot.constraints], robot.q0).q
    return poses(robot, q)


def tasks(robot: Robot, X: jaxrbd.Pose) -> list:
    """The tasks of a problem: poses of frames, or positions where loops are closed."""
    targets = [jax.tree.map(lambda x, i=i: x[i], X) for i in range(len(robot.frames))]
    if robot.constraints:
        targets = [T.p for T in targets]
    kind = ik.FrameTask.position if robot.constraints else ik.FrameTask
    return [*map(kind, robot.frames, targets), *robot.constraints]


def errors(robot: Robot, X: jaxrbd.Pose, found: ik.IkSolution) -> tuple[jax.Array, ...]:
    """The largest distance in m, angle in rad and component of the errors; inf beyond limits.

    The errors of constraints count as distances. Without targets of rotations the angle is 0.
    """
    place, lower, upper = limits(robot.model)
    reached = poses(robot, found.q)
    linear = jax.vmap(lambda R, d: R.T @ d)(X.R, reached.p - X.p)
    angular = jax.vmap(lambda R, S: jaxrbd.so3.log(R.T @ S))(X.R, reached.R)
    if robot.constraints:
        angular = 0 * angular
        linear = jnp.append(linear, jnp.full((1, 3), jnp.max(found.errors.mixed)), axis=0)
    q = found.q[place]
    beyond = jnp.where(jnp.all((q >= lower - 1e-9) & (q <= upper + 1e-9)), 0, jnp.inf)
    return (
        jnp.max(jnp.linalg.norm(linear, axis=1)) + beyond,
        jnp.max(jnp.linalg.norm(angular, axis=1)) + beyond,
        jnp.max(jnp.abs(jnp.concatenate([linear, angular]))) + beyond,
    )


def measure(name: str, targets: int) -> tuple[list, list]:
    """A row of the table of successes and times, and a row of the table of errors."""
    robot = ROBOTS[name]()
    start = middle(robot)

    def descend(problem):
        X, _ = problem
        return errors(robot, X, ik.inverse_kinematics(robot.model, tasks(robot, X), start))

    def search(problem):
        X, key = problem
        found = ik.search_inverse_kinematics(robot.model, tasks(robot, X), key, STARTS, start)
        return errors(robot, X, found)

    keys = jax.random.split(jax.random.key(1), (2, targets))
    problems = jax.jit(jax.vmap(lambda key: draw(robot, key)))(keys[0]), keys[1]
    once, _, once_time, _ = common.in_turn_and_in_batches(descend, problems, BATCH)
    found, _, time, batch_time = common.in_turn_and_in_batches(search, problems, BATCH)
    linear, angular, largest = found
    rates = once[2] < FINE, (linear < COARSE[0]) & (angular < COARSE[1]), largest < FINE
    once_rate, coarse, fine = (f"{100 * np.mean(rate):.2f} %" for rate in rates)
    successes = [name, robot.model.nv, once_rate, f"{1e3 * once_time:.2f} ms", coarse, fine]
    successes += [f"{1e3 * time:.2f} ms", f"{1 / batch_time:,.0f}"]
    percentiles = [np.percentile(x, (50, 98, 100), method="higher") for x in (linear, angular)]
    return successes, [name, *(f"{x:.0e}" for x in np.concatenate(percentiles))]


def main(argv=None):
    given = common.options(__doc__, argv=argv, targets=10_000, robots=tuple(ROBOTS))
    common.start()
    warnings.simplefilter("ignore", jaxrbd.InertiaWarning)
    search = "search: 1 mm, 0.1 degree", "1e-5", "mean time"
    once = "one start: 1e-5", "mean time"
    common.head("robot", "dofs", *once, *search, f"targets/s in batches of {BATCH}")
    rows = []
    for name in given.robots:
        successes, sizes = measure(name, given.targets)
        common.row(*successes)
        rows.append(sizes)
    print()
    common.head("robot", "distance in m: p50", "p98", "p100", "angle in rad: p50", "p98", "p100")
    for row in rows:
        common.row(*row)


if __name__ == "__main__":
    main()
