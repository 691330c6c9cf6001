"""The half of pink_comparison.py that runs in the environment of pink; see there.

    python pink_peer.py PROBLEMS.json > RESULTS.json

A file of problems has the URDF, the names of the joints in the order of the coordinates, whether
the base floats, the frames, and one row per problem: coordinates, and poses of the frames.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import pink
import pinocchio

SOLVER = "daqp"
FINE = 1e-5  # m and rad, of every component
STEPS = 100
STARTS = 16


def robot(problems):
    """The model, with all other joints locked, and the places of the joints in its q."""
    root = [pinocchio.JointModelFreeFlyer()] if problems["floating"] else []
    whole = pinocchio.buildModelFromUrdf(problems["urdf"], *root)
    moving = {"universe", "root_joint", *problems["joints"]}
    others = [i for i, name in enumerate(whole.names) if name not in moving]
    model = pinocchio.buildReducedModel(whole, others, pinocchio.neutral(whole))
    base = list(range(7)) if problems["floating"] else []
    places = [model.joints[model.getJointId(name)].idx_q for name in problems["joints"]]
    return model, np.array(base + places)


class Solver:
    """Steps of pink towards the poses of the frames."""

    def __init__(self, model, frames, dt, limits):
        self.model, self.data, self.dt, self.limits = model, model.createData(), dt, limits
        self.tasks = [pink.tasks.FrameTask(frame, 1.0, 1.0) for frame in frames]

    def aim(self, targets):
        """Set the targets, matrices (4, 4)."""
        for task, target in zip(self.tasks, targets):
            task.set_target(pinocchio.SE3(target))

    def at(self, q):
        """The robot at q, with the poses of its frames."""
        return pink.Configuration(self.model, self.data, q)

    def velocity(self, configuration):
        """The velocity of one step."""
        return pink.solve_ik(
            configuration, self.tasks, self.dt, SOLVER, damping=1e-6, limits=self.limits
        )

    def error(self, configuration):
        """The largest component of all errors: position and rotation vector."""
        found = 0.0
        for task in self.tasks:
            off = task.transform_target_to_world.actInv(
                configuration.get_transform_frame_to_world(task.frame)
            )
            parts = off.translation, pinocchio.log3(off.rotation)
            found = max(found, *(np.max(np.abs(part)) for part in parts))
        return found

    def solve(self, q):
        """Whether steps from q reach the targets."""
        configuration = self.at(q)
        for _ in range(STEPS):
            if self.error(configuration) < FINE:
                return True
            configuration.integrate_inplace(self.velocity(configuration), self.dt)
        return self.error(configuration) < FINE


def measure_steps(problems):
    """The mean processor time of a step in s: its kinematics and its quadratic program."""
    model, places = robot(problems)
    solver = Solver(model, problems["frames"], problems["dt"], None)
    rows = []
    for row in problems["rows"]:
        q = np.zeros(model.nq)
        q[places] = row["q"]
        rows.append((q, [np.array(target) for target in row["targets"]]))
    solver.aim(rows[0][1])
    solver.velocity(solver.at(rows[0][0]))
    began = time.process_time()
    for q, targets in rows:
        solver.aim(targets)
        solver.velocity(solver.at(q))
    return (time.process_time() - began) / len(rows)


def measure_solves(problems, starts):
    """The fraction of the targets that are reached, and the mean processor time in s."""
    model, places = robot(problems)
    limits = [pink.limits.ConfigurationLimit(model, 1.0)]  # one step may reach a limit
    solver = Solver(model, problems["frames"], 1.0, limits)
    middle = np.zeros(model.nq)
    middle[places] = problems["start"]
    random = np.random.default_rng(0)
    low, high = model.lowerPositionLimit, model.upperPositionLimit
    reached = 0
    began = time.process_time()
    for row in problems["rows"]:
        solver.aim([np.array(target) for target in row["targets"]])
        q = middle
        for _ in range(starts):
            if solver.solve(q):
                reached += 1
                break
            q = random.uniform(low, high)
    return reached / len(problems["rows"]), (time.process_time() - began) / len(problems["rows"])


def main():
    with open(sys.argv[1]) as file:
        problems = json.load(file)
    found = {"pink": pink.__version__, "pinocchio": pinocchio.__version__}
    if problems["start"] is None:
        found["step"] = measure_steps(problems)
    else:
        found["solves"] = {n: measure_solves(problems, n) for n in (1, STARTS)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
