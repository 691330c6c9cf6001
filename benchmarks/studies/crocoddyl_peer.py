"""Problems that Crocoddyl solves; `crocoddyl_comparison.py` runs this file and reads its output.

The problems are examples of Crocoddyl. The guess has the initial state in all nodes, and zero
controls. The output is one JSON object per line.
"""

import json
import pathlib
import sys
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


def quadrotor():
    """A flight with four rotors over 1 m in x and z."""
    file, dt, arm, ratio = path("quadrotor_base"), 3e-2, 0.1525, 1e-6 / 6.6e-5
    model = pinocchio.buildModelFromUrdf(file, pinocchio.JointModelFreeFlyer())
    state = crocoddyl.StateMultibody(model)
    places = [[arm, 0, 0], [0, arm, 0], [-arm, 0, 0], [0, -arm, 0]]
    turns = [crocoddyl.ThrusterType.CCW, crocoddyl.ThrusterType.CW] * 2
    rotors = [
        crocoddyl.Thruster(pinocchio.SE3(np.eye(3), np.array(place)), ratio, turn)
        for place, turn in zip(places, turns)
    ]
    actuation = crocoddyl.ActuationModelFloatingBaseThrusters(state, rotors)
    goal = pinocchio.SE3(np.eye(3), np.array([1.0, 0.0, 1.0]))
    frame = model.getFrameId("base_link")
    pose = crocoddyl.ResidualModelFramePlacement(state, frame, goal, 4)
    weights = crocoddyl.ActivationModelWeightedQuad(
        np.array([0.1] * 3 + [1000.0] * 3 + [1000.0] * model.nv)
    )
    at_rest = crocoddyl.ResidualModelState(state, state.zero(), 4)
    effort = crocoddyl.CostModelResidual(state, crocoddyl.ResidualModelControl(state, 4))
    posture = crocoddyl.CostModelResidual(state, weights, at_rest)
    track = crocoddyl.CostModelResidual(state, pose)
    running = costs(state, 4, [("x", posture, 1e-6), ("u", effort, 1e-6), ("goal", track, 1e-2)])
    terminal = costs(state, 4, [("goal", track, 3.0)])
    stages = [
        crocoddyl.IntegratedActionModelEuler(
            crocoddyl.DifferentialActionModelFreeFwdDynamics(state, actuation, running), dt
        )
    ] * 33
    last = crocoddyl.IntegratedActionModelEuler(
        crocoddyl.DifferentialActionModelFreeFwdDynamics(state, actuation, terminal), dt
    )
    return crocoddyl.ShootingProblem(state.zero(), stages, last), file, model


def unicycle():
    model = crocoddyl.ActionModelUnicycle()
    model.costWeights = np.array([10.0, 1.0])
    return crocoddyl.ShootingProblem(np.array([-1.0, -1.0, 1.0]), [model] * 20, model), None, None


def angles(model, x):
    """The configuration of a state with one angle per joint; Pinocchio has two entries for some."""
    if model is None:
        return list(x)
    q, found = x[: model.nq], []
    if model.joints[1].nq == 7:
        return q.tolist()
    for joint in model.joints[1:]:
        part = q[joint.idx_q : joint.idx_q + joint.nq]
        found.append(float(np.arctan2(part[1], part[0]) if joint.nq == 2 else part[0]))
    return found


def main():
    problems = {
        "double pendulum": double_pendulum,
        "arm": arm,
        "quadrotor": quadrotor,
        "unicycle": unicycle,
    }
    for name in sys.argv[1:] or problems:
        problem, file, model = problems[name]()
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
