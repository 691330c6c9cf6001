"""Problems that Crocoddyl solves; `crocoddyl_comparison.py` runs this file and reads its output.

The problems are examples of Crocoddyl. The guess has the initial state in all nodes, and zero
controls. The output is one JSON object per line.
"""

import json
import pathlib
import time

import crocoddyl
import example_robot_data
import numpy as np
import pinocchio
from crocoddyl.utils import pendulum

STAGES, DT = 100, 1e-2


def costs(state, nu, terms):
    found = crocoddyl.CostModelSum(state, nu)
    for name, cost, weight in terms:
        found.addCost(name, cost, weight)
    return found


def shooting(state, actuation, x0, running, terminal, terminal_dt):
    def integrated(sum_of_costs, dt):
        model = crocoddyl.DifferentialActionModelFreeFwdDynamics(state, actuation, sum_of_costs)
        return crocoddyl.IntegratedActionModelEuler(model, dt)

    stages = [integrated(running, DT)] * STAGES
    return crocoddyl.ShootingProblem(x0, stages, integrated(terminal, terminal_dt))


ROBOTS = pathlib.Path(example_robot_data.getModelPath("double_pendulum_description")).parent


def path(name):
    """The URDF file of a robot of example-robot-data."""
    (found,) = pathlib.Path(ROBOTS).glob(f"**/{name}.urdf")
    return str(found)


def double_pendulum():
    file = path("double_pendulum")
    model = pinocchio.buildModelFromUrdf(file)
    state = crocoddyl.StateMultibody(model)
    actuation = pendulum.ActuationModelDoublePendulum(state, actLink=1)
    effort = crocoddyl.CostModelResidual(state, crocoddyl.ResidualModelControl(state, 1))
    weights = crocoddyl.ActivationModelWeightedQuad(np.array([1.0, 1.0, 1.0, 1.0, 0.1, 0.1]))
    upright = pendulum.CostModelDoublePendulum(state, weights, 1)
    running = costs(state, 1, [("u", effort, 1e-4 / DT), ("x", upright, 1e-5 / DT)])
    terminal = costs(state, 1, [("x", upright, 100.0)])
    x0 = np.array([3.14, 0.0, 0.0, 0.0])
    return shooting(state, actuation, x0, running, terminal, DT), file, model


def arm():
    file = path("kinova")
    model = pinocchio.buildModelFromUrdf(file)
    postures = file.replace("robots/kinova.urdf", "srdf/kinova.srdf")
    pinocchio.loadReferenceConfigurations(model, postures, False)
    state = crocoddyl.StateMultibody(model)
    x0 = np.concatenate([model.referenceConfigurations["arm_up"], np.zeros(model.nv)])
    goal = pinocchio.SE3(np.eye(3), np.array([0.6, 0.2, 0.5]))
    frame = model.getFrameId("j2s6s200_end_effector")
    residuals = {
        "frame": crocoddyl.ResidualModelFramePlacement(state, frame, goal, model.nv),
        "x": crocoddyl.ResidualModelState(state, x0, model.nv),
        "u": crocoddyl.ResidualModelControl(state, model.nv),
    }
    terms = {name: crocoddyl.CostModelResidual(state, r) for name, r in residuals.items()}
    weights = {"frame": 1.0, "x": 0.1, "u": 0.1}
    running = costs(state, model.nv, [(name, terms[name], weights[name]) for name in terms])
    terminal = costs(state, model.nv, [("frame", terms["frame"], 1e3)])
    actuation = crocoddyl.ActuationModelFull(state)
    return shooting(state, actuation, x0, running, terminal, 0.0), file, model


def unicycle():
    model = crocoddyl.ActionModelUnicycle()
    model.costWeights = np.array([10.0, 1.0])
    return crocoddyl.ShootingProblem(np.array([-1.0, -1.0, 1.0]), [model] * 20, model), None, None


def angles(model, x):
    """The configuration of a state with one angle per joint; Pinocchio has two entries for some."""
    if model is None:
        return list(x)
    q, found = x[: model.nq], []
    for joint in model.joints[1:]:
        part = q[joint.idx_q : joint.idx_q + joint.nq]
        found.append(float(np.arctan2(part[1], part[0]) if joint.nq == 2 else part[0]))
    return found


def main():
    for name, make in [("double pendulum", double_pendulum), ("arm", arm), ("unicycle", unicycle)]:
        problem, file, model = make()
        xs = [problem.x0] * (problem.T + 1)
        us = [np.zeros(problem.runningModels[0].nu)] * problem.T
        solver = crocoddyl.SolverFDDP(problem)
        times = []
        for _ in range(3):
            began = time.perf_counter()
            converged = solver.solve(xs, us, 500, False)
            times.append(time.perf_counter() - began)
        result = {
            "name": name,
            "urdf": file,
            "x0": angles(model, problem.x0),
            "converged": bool(converged),
            "cost": problem.calc(problem.rollout(solver.us), solver.us),
            "iterations": int(solver.iter) + 1,
            "seconds": min(times),
            "us": np.array(solver.us).tolist(),
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
