"""Measure inverse kinematics: success rates and times for random reachable targets.

    python benchmarks/studies/inverse_kinematics.py                     # 10,000 targets per robot
    python benchmarks/studies/inverse_kinematics.py --targets 2000

The targets are poses of random configurations, uniform within the limits of the joints. A target
counts as reached if the errors of the solution are below the tolerance and the solution is within
the limits. All robots but the bundled arm come from the package example-robot-data. The fingers of
the Panda are locked. Times are those of all targets, reached or not; compilation is not included.
Set XLA_FLAGS=--xla_cpu_multi_thread_eigen=false and use one core for times of one core.
"""

import argparse
import importlib.metadata
import pathlib
import platform
import time

import jax
import numpy as np

import jaxrbd
from jaxrbd import inverse_kinematics as ik
from jaxrbd.model.joint_space import coordinates_with_rates

BATCH = 64
STARTS = 16
# name: (file, frame of the task, locked joints)
ROBOTS = {
    "arm7": (None, "tool", ()),
    "panda": ("panda_description/urdf/panda.urdf", "panda_hand", ("panda_finger_joint1",)),
    "ur10": ("ur_description/urdf/ur10_robot.urdf", "tool0", ()),
}


def folder() -> pathlib.Path:
    """The folder of the robots of example-robot-data."""
    marker = "example-robot-data/robots/"
    for file in importlib.metadata.files("example-robot-data") or []:
        if marker in file.as_posix():
            inside = file.as_posix().split(marker)[1]
            return pathlib.Path(file.locate()).resolve().parents[inside.count("/")]
    raise SystemExit("example-robot-data is not installed")


def processor() -> str:
    """The name of the processor."""
    info = pathlib.Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def elapsed(function, *operands):
    """The result of a compiled function and the time of its second call in s."""
    jax.block_until_ready(function(*operands))
    start = time.perf_counter()
    result = jax.block_until_ready(function(*operands))
    return result, time.perf_counter() - start


def measure(name: str, targets: int) -> str:
    """One row of the table."""
    file, frame, locked = ROBOTS[name]
    model = jaxrbd.load_robot(name) if file is None else jaxrbd.load_urdf(folder() / file)

    def draw(key):
        return jaxrbd.frame_placement(model, jaxrbd.random_configuration(model, key), frame)

    def solve(X, key):
        task = ik.FrameTask(frame, X)
        return ik.search_inverse_kinematics(model, [task], key, STARTS, locked=locked)

    keys = jax.random.split(jax.random.key(1), (2, targets))
    X = jax.jit(jax.vmap(draw))(keys[0])
    alone = jax.jit(lambda *problems: jax.lax.map(lambda problem: solve(*problem), problems))
    found, single = elapsed(alone, X, keys[1])
    whole = targets // BATCH * BATCH
    batches = jax.tree.map(lambda x: x[:whole].reshape(-1, BATCH, *x.shape[1:]), (X, keys[1]))
    _, batched = elapsed(
        jax.jit(lambda *b: jax.lax.map(lambda b: jax.vmap(solve)(*b).q, b)), *batches
    )

    place, _ = coordinates_with_rates(model)
    q = np.asarray(found.q)[:, place]
    lower, upper = (
        np.asarray(x)[place] for x in (model.lower_position_limit, model.upper_position_limit)
    )
    inside = np.all((q >= lower - 1e-9) & (q <= upper + 1e-9), axis=1)
    linear, angular = found.errors.linear[:, 0], found.errors.angular[:, 0]
    coarse = np.mean(inside & (linear < 1e-3) & (angular < np.radians(0.1)))
    fine = np.mean(inside & (linear < 1e-5) & (angular < 1e-5))
    return (
        f"| {name} | {100 * coarse:.2f} % | {100 * fine:.2f} % | {1e6 * single / targets:.0f} us "
        f"| {whole / batched:,.0f} |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--targets", type=int, default=10_000)
    parser.add_argument("--robots", nargs="*", default=list(ROBOTS), choices=list(ROBOTS))
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(f"{processor()}, jax {jax.__version__}, float64, {arguments.targets} targets per robot")
    print(f"at most {STARTS} starts per target\n")
    print(f"| robot | 1 mm, 0.1 degree | 1e-5 | mean time | targets/s in batches of {BATCH} |")
    print("|---|---|---|---|---|")
    for name in arguments.robots:
        print(measure(name, arguments.targets), flush=True)


if __name__ == "__main__":
    main()
