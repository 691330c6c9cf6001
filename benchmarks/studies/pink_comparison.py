"""Inverse kinematics of jaxrbd and of pink, which is based on Pinocchio, for the same targets.

    pip install --no-deps example-robot-data                        # robots; not imported
    python -m venv ENV && ENV/bin/pip install -r benchmarks/studies/pink.txt
    XLA_FLAGS=--xla_cpu_multi_thread_eigen=false taskset -c 0 \\
        python -m benchmarks.studies.pink_comparison ENV/bin/python

- Steps: the velocity of one time step of 10 ms towards targets that are near, within the limits of
  positions and velocities. `differential_inverse_kinematics` and pink's `solve_ik` each compute
  poses and Jacobians and solve a quadratic program.
- Solves: 300 random targets within reach, from the middle of the limits. A solve of pink repeats
  its step with a full gain, without limits of velocities, at most 100 times. A search of both
  libraries continues from random starts, at most 16 starts in all. A target is reached if every
  component of the error is below 1e-5 and the coordinates are within the limits up to 1e-9. For
  both libraries, `errors` of inverse_kinematics.py decides this.

The times are those of the processor, in float64, without compilation. `in a loop`: all problems in
one compiled program. `one call each`: one call from Python for each problem, as pink is called.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import tempfile
import time
import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd
from benchmarks.studies import inverse_kinematics as study
from jaxrbd import inverse_kinematics as ik

PEER = pathlib.Path(__file__).with_name("pink_peer.py")
DT, NEAR = 0.01, 0.02  # s; the targets of a step are this far, in the tangent space


def peer(python, name, robot, start, qs, targets):
    """What `pink_peer.py` measures for targets (problems, frames)."""
    model = robot.model
    floating = model.nq > model.nv
    corners = np.zeros((*targets.p.shape[:2], 4, 4))
    corners[..., :3, :3], corners[..., :3, 3], corners[..., 3, 3] = targets.R, targets.p, 1
    problems = {
        "urdf": str(study.file_of("example-robot-data", study.URDF[name])),
        "floating": floating,
        "joints": [n for n in model.joint_names if n != "root_joint"],
        "frames": robot.frames,
        "dt": DT,
        "start": None if start is None else np.asarray(start).tolist(),
        "starts": (1, study.STARTS),
        "tolerance": study.FINE,
        "rows": [{"q": q.tolist(), "targets": T.tolist()} for q, T in zip(np.asarray(qs), corners)],
    }
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "problems.json"
        file.write_text(json.dumps(problems))
        done = subprocess.run([python, PEER, file], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def steps(python, name, count):
    """A row of the table of steps."""
    robot = study.ROBOTS[name]()
    model = robot.model

    def draw(key):
        keys = jax.random.split(key)
        q = jaxrbd.random_configuration(model, keys[0])
        moved = jaxrbd.integrate(model, q, NEAR * jax.random.normal(keys[1], (model.nv,)))
        return q, study.poses(robot, moved)

    def velocity(problem):
        q, X = problem
        return ik.differential_inverse_kinematics(model, q, study.tasks(robot, X), DT)

    problems = jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(2), count))
    _, loop = study.elapsed(lambda x: jax.lax.map(velocity, x), problems)
    single = jax.jit(velocity)
    rows = [jax.tree.map(lambda x, i=i: x[i], problems) for i in range(count)]
    jax.block_until_ready(single(rows[0]))
    began = time.process_time()
    for row in rows:
        jax.block_until_ready(single(row))
    calls = time.process_time() - began
    other = peer(python, name, robot, None, *problems)
    return (
        f"| {name} | {len(robot.frames)} | {1e6 * loop / count:.0f} us "
        f"| {1e6 * calls / count:.0f} us | {1e6 * other['time']:.0f} us |"
    )


def solves(python, name, count):
    """The rows of the table of solves."""
    robot = study.ROBOTS[name]()
    model, start = robot.model, study.middle(robot)

    def draw(key):
        q = jaxrbd.random_configuration(model, key)
        return q, study.poses(robot, q)

    def solve(starts):
        def largest(problem):
            X, key = problem
            tasks = study.tasks(robot, X)
            if starts == 1:
                found = ik.inverse_kinematics(model, tasks, start)
            else:
                found = ik.search_inverse_kinematics(model, tasks, key, starts, start)
            return study.errors(robot, X, found)[2]

        return lambda x: jax.lax.map(largest, x)

    keys = jax.random.split(jax.random.key(1), (2, count))
    qs, targets = jax.jit(jax.vmap(draw))(keys[0])

    def percent(errors):
        return f"{100 * np.mean(errors < study.FINE):.1f} %"

    # Without constraints, `errors` reads only q of a solution.
    judge = jax.jit(jax.vmap(lambda X, q: study.errors(robot, X, SimpleNamespace(q=q))[2]))
    other = peer(python, name, robot, start, qs, targets)
    for starts in (1, study.STARTS):
        errors, spent = study.elapsed(solve(starts), (targets, keys[1]))
        theirs = other[str(starts)]
        yield (
            f"| {name} | {starts} | {percent(errors)} | {1e3 * spent / count:.2f} ms "
            f"| {percent(judge(targets, jnp.array(theirs['q'])))} | {1e3 * theirs['time']:.2f} ms |"
        )


def main(argv=None):
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("python", help="the interpreter of the environment of pink")
    parser.add_argument("--targets", type=int, default=300)
    arguments = parser.parse_args(argv)
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore", jaxrbd.InertiaWarning)
    print(f"{study.processor()}, jax {jax.__version__}, float64, {arguments.targets} targets\n")
    print("| robot | frames | jaxrbd, in a loop | jaxrbd, one call each | pink |\n|" + "---|" * 5)
    for name in study.URDF:
        print(steps(arguments.python, name, arguments.targets), flush=True)
    print("\n| robot | starts | jaxrbd | mean time | pink | mean time |\n|" + "---|" * 6)
    for name in ("panda", "ur10"):
        for row in solves(arguments.python, name, arguments.targets):
            print(row, flush=True)


if __name__ == "__main__":
    main()
