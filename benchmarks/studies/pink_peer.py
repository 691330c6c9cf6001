"""The half of pink_comparison.py that runs in the environment of pink; see there.

    python pink_peer.py PROBLEMS.json > RESULTS.json

A file of problems has the URDF, the names of the joints in the order of the coordinates, whether
the base floats, the frames, the time step, and one row per problem: coordinates, and poses of the
frames. With a start, the targets are solved from there: the file then has the numbers of starts to
try, and the tolerance of every component of the errors in m and rad.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import pink
import pinocchio

SOLVER = "daqp"
STEPS = 100


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

    def solve(self, q, tolerance):
        """The configuration after steps from q, and whether all errors are below the tolerance."""
        configuration = self.at(q)
        for _ in range(STEPS):
            if self.error(configuration) < tolerance:
                break
            configuration.integrate_inplace(self.velocity(configuration), self.dt)
        return configuration.q, self.error(configuration) < tolerance


def measure_steps(model, problems, rows):
    """The mean processor time of a step in s: its kinematics and its quadratic program."""
    solver = Solver(model, problems["frames"], problems["dt"], None)
    q, targets = rows[0]
    solver.aim(targets)
    solver.velocity(solver.at(q))
    began = time.process_time()
    for q, targets in rows:
        solver.aim(targets)
        solver.velocity(solver.at(q))
    return {"time": (time.process_time() - began) / len(rows)}


def measure_solves(model, problems, rows, start, starts):
    """The last configuration for each target, and the mean processor time in s."""
    limits = [pink.limits.ConfigurationLimit(model, 1.0)]  # one step may reach a limit
    solver = Solver(model, problems["frames"], 1.0, limits)
    random = np.random.default_rng(0)
    ends = []
    began = time.process_time()
    for _, targets in rows:
        solver.aim(targets)
        q = start
        for _ in range(starts):
            end, reached = solver.solve(q, problems["tolerance"])
            if reached:
                break
            q = random.uniform(model.lowerPositionLimit, model.upperPositionLimit)
        ends.append(end)
    return {"time": (time.process_time() - began) / len(rows), "q": ends}


def main():
    with open(sys.argv[1]) as file:
        problems = json.load(file)
    model, places = robot(problems)

    def configuration(coordinates):
        q = np.zeros(model.nq)
        q[places] = coordinates
        return q

    rows = [(configuration(row["q"]), np.array(row["targets"])) for row in problems["rows"]]
    if problems["start"] is None:
        found = measure_steps(model, problems, rows)
    else:
        start, found = configuration(problems["start"]), {}
        for starts in problems["starts"]:
            found[starts] = measure_solves(model, problems, rows, start, starts)
            found[starts]["q"] = [q[places].tolist() for q in found[starts]["q"]]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
