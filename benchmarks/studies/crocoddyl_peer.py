"""Problems that Crocoddyl solves; `crocoddyl_comparison.py` runs this file and reads its output.

    ENV/bin/python crocoddyl_peer.py [--short] [PROBLEM ...]

The problems are examples of Crocoddyl. The guess has the initial state in all nodes, and the
controls of the example. The output is one JSON object per line. It has the values of some nodes at
random states and controls. With `--short` it is the file `tests/data/crocoddyl.jsonl`: it has no
trajectories, no times and no paths.
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
from crocoddyl.utils.biped import SimpleBipedGaitProblem
from crocoddyl.utils.quadruped import SimpleQuadrupedalGaitProblem

DT = 1e-2


def shooting(state, actuation, x0, running, terminal, stages=100, dt=DT, terminal_dt=0.0):
    """The problem with these costs, as pairs of a residual or a cost and its weight.

    `terminal_dt`: the duration of the last cost, or 0.
    """

    def node(terms, dt):
        total = crocoddyl.CostModelSum(state, actuation.nu)
        for k, (term, weight) in enumerate(terms):
            if isinstance(term, crocoddyl.ResidualModelAbstract):
                term = crocoddyl.CostModelResidual(state, term)
            total.addCost(str(k), term, weight)
        model = crocoddyl.DifferentialActionModelFreeFwdDynamics(state, actuation, total)
        return crocoddyl.IntegratedActionModelEuler(model, dt)

    return crocoddyl.ShootingProblem(x0, [node(running, dt)] * stages, node(terminal, terminal_dt))


ROBOTS = pathlib.Path(example_robot_data.getModelPath("double_pendulum_description")).parent


def path(name):
    """The URDF file of a robot of example-robot-data."""
    (found,) = ROBOTS.glob(f"**/{name}.urdf")
    return str(found)


def double_pendulum():
    file = path("double_pendulum")
    model = pinocchio.buildModelFromUrdf(file)
    state = crocoddyl.StateMultibody(model)
    actuation = pendulum.ActuationModelDoublePendulum(state, actLink=1)
    effort = crocoddyl.ResidualModelControl(state, 1)
    weights = crocoddyl.ActivationModelWeightedQuad(np.array([1.0, 1.0, 1.0, 1.0, 0.1, 0.1]))
    upright = pendulum.CostModelDoublePendulum(state, weights, 1)
    running, x0 = [(effort, 1e-4 / DT), (upright, 1e-5 / DT)], np.array([3.14, 0.0, 0.0, 0.0])
    problem = shooting(state, actuation, x0, running, [(upright, 100.0)], terminal_dt=DT)
    return problem, file, model


def reach(model, x0, frame, goal, weight, last_weight, **durations):
    """A reach of an arm with the costs of the first releases of Crocoddyl."""
    state = crocoddyl.StateMultibody(model)
    goal, frame = pinocchio.SE3(np.eye(3), np.array(goal)), model.getFrameId(frame)
    track = crocoddyl.ResidualModelFramePlacement(state, frame, goal, model.nv)
    change = crocoddyl.ResidualModelState(state, x0, model.nv)
    effort = crocoddyl.ResidualModelControl(state, model.nv)
    running = [(track, 1.0), (change, weight), (effort, weight)]
    actuation = crocoddyl.ActuationModelFull(state)
    return shooting(state, actuation, x0, running, [(track, last_weight)], **durations)


def arm():
    file = path("kinova")
    model = pinocchio.buildModelFromUrdf(file)
    postures = file.replace("robots/kinova.urdf", "srdf/kinova.srdf")
    pinocchio.loadReferenceConfigurations(model, postures, False)
    x0 = np.concatenate([model.referenceConfigurations["arm_up"], np.zeros(model.nv)])
    return reach(model, x0, "j2s6s200_end_effector", [0.6, 0.2, 0.5], 0.1, 1e3), file, model


def talos_arm():
    file = path("talos_left_arm")
    model = pinocchio.buildModelFromUrdf(file)
    x0 = np.array([0.173046, 1.0, -0.52366, 0.0, 0.0, 0.1, -0.005, *[0.0] * model.nv])
    durations = {"stages": 250, "dt": 1e-3}
    problem = reach(model, x0, "gripper_left_joint", [0.0, 0.0, 0.4], 1e-4, 1.0, **durations)
    return problem, file, model


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
    track = crocoddyl.ResidualModelFramePlacement(state, frame, goal, 4)
    weights = crocoddyl.ActivationModelWeightedQuad(
        np.array([0.1] * 3 + [1000.0] * 3 + [1000.0] * model.nv)
    )
    at_rest = crocoddyl.ResidualModelState(state, state.zero(), 4)
    effort = crocoddyl.ResidualModelControl(state, 4)
    posture = crocoddyl.CostModelResidual(state, weights, at_rest)
    running = [(posture, 1e-6), (effort, 1e-6), (track, 1e-2)]
    problem = shooting(state, actuation, state.zero(), running, [(track, 3.0)], 33, dt, dt)
    return problem, file, model


def unicycle():
    model = crocoddyl.ActionModelUnicycle()
    model.costWeights = np.array([10.0, 1.0])
    return crocoddyl.ShootingProblem(np.array([-1.0, -1.0, 1.0]), [model] * 20, model), None, None


def trot():
    """Two steps of ANYmal, whose diagonal feet swing in turn."""
    robot = example_robot_data.load("anymal")
    feet = ["LF_FOOT", "RF_FOOT", "LH_FOOT", "RH_FOOT"]
    gait = SimpleQuadrupedalGaitProblem(robot.model, *feet)
    x0 = gait.rmodel.defaultState.copy()
    return gait.createTrottingProblem(x0, 0.15, 0.1, 1e-2, 25, 2), robot.urdf, robot.model, feet


def walk():
    """Two steps of the legs of Talos."""
    robot = example_robot_data.load("talos_legs")
    feet = ["right_sole_link", "left_sole_link"]
    gait = SimpleBipedGaitProblem(robot.model, *feet)
    x0 = gait.rmodel.defaultState.copy()
    return gait.createWalkingProblem(x0, 0.6, 0.1, 0.03, 15, 4), robot.urdf, robot.model, feet


def stage_of_gait(action, feet):
    """The contacts and the costs of a node, with one entry per foot."""
    impulse = not hasattr(action, "differential")
    sums = (action if impulse else action.differential).costs.costs.todict()
    kind = action.impulses.impulses if impulse else action.differential.contacts.contacts
    names = kind.todict()
    found = {
        "dt": 0.0 if impulse else action.dt,
        "stands": [not impulse and f"{foot}_contact" in names for foot in feet],
        "lands": [impulse and f"{foot}_impulse" in names for foot in feet],
    }
    terms = {
        name: (item.weight, item.cost.residual, item.cost.activation) for name, item in sums.items()
    }

    def weight(name):
        return terms[name][0] if name in terms else 0.0

    def reference(name, default):
        return terms[name][1].reference if name in terms else default

    tracks = [f"{foot}_footTrack" for foot in feet]
    poses = [reference(name, np.zeros(3)) for name in tracks]
    poses = [p.translation if isinstance(p, pinocchio.SE3) else p for p in poses]
    cone = [name for name in terms if name.endswith(("_frictionCone", "_wrenchCone"))]
    return found | {
        "foot_weights": [weight(name) for name in tracks],
        "feet": np.array(poses).tolist(),
        "com_weight": weight("comTrack"),
        "com": reference("comTrack", np.zeros(3)).tolist(),
        "cone_weight": max(map(weight, cone), default=0.0),
        "state_weights": (weight("stateReg") * terms["stateReg"][2].weights).tolist(),
        "control_weight": weight("ctrlReg"),
        "bounds_weight": weight("stateBounds"),
    }


def gait_constants(problem, model, feet):
    """What is the same in all stages of a gait, and one table per stage."""
    actions = [*problem.runningModels, problem.terminalModel]
    differential = actions[0].differential
    terms = differential.costs.costs.todict()
    (cone, *_) = [
        item.cost for name, item in terms.items() if name.endswith(("frictionCone", "wrenchCone"))
    ]
    bounds = [np.inf * np.ones(2 * model.nv)] * 2
    if "stateBounds" in terms:
        found = terms["stateBounds"].cost.activation.bounds
        bounds = [np.where(np.isnan(x), np.inf, np.abs(x)) for x in (found.lb, found.ub)]
    contact = next(iter(differential.contacts.contacts.todict().values())).contact
    return {
        "feet": feet,
        "joints": list(model.names)[1:],
        "armature": model.armature.tolist(),
        "inertias": [[Y.mass, Y.lever.tolist(), Y.inertia.tolist()] for Y in model.inertias[1:]],
        "gains": contact.gains.tolist(),
        "cone": cone.residual.reference.A.tolist(),
        "cone_bounds": [x.tolist() for x in (cone.activation.bounds.lb, cone.activation.bounds.ub)],
        "state_bounds": [x.tolist() for x in (-bounds[0], bounds[1])],
        "posture": terms["stateReg"].cost.residual.reference[: model.nq].tolist(),
        "stages": [stage_of_gait(action, feet) for action in actions],
    }


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


def state(model, x):
    """A state as a list, or as the lists of q and v."""
    return angles(model, x) if model is None else [angles(model, x), x[model.nq :].tolist()]


def nodes(problem, model, us, stages):
    """The values of some nodes at random states and controls; stage -1 is the last node."""
    found, random = [], np.random.default_rng(0)
    for t in stages:
        action = problem.terminalModel if t < 0 else problem.runningModels[t]
        data = action.createData()
        change = random.uniform(-0.3, 0.3, action.state.ndx)
        x = action.state.integrate(problem.x0, change)
        u = us[t] + random.uniform(-1, 1, len(us[t])) * (1 + np.abs(us[t]))
        if t < 0:
            action.calc(data, x)
        else:
            action.calc(data, x, u)
        after = state(model, data.xnext) if t >= 0 else None
        values = {"x": state(model, x), "u": u.tolist(), "after": after, "cost": data.cost}
        found.append({"stage": t, **values})
    return found


def adjoints(problem, xs, us):
    """The derivatives of the cost of the remaining nodes in each state of a rollout."""
    problem.calc(xs, us)
    problem.calcDiff(xs, us)
    found = [problem.terminalData.Lx]
    for data in reversed(problem.runningDatas.tolist()):
        found.append(data.Lx + data.Fx.T @ found[-1])
    return found[::-1]


def solved(name, function, short):
    """The result of a problem, without trajectories and times if `short`."""
    problem, file, model, *feet = function()
    xs = [problem.x0] * (problem.T + 1)
    us = [np.zeros(action.nu) for action in problem.runningModels]
    gait = gait_constants(problem, model, *feet) if feet else None
    if gait:
        us = list(problem.quasiStatic(xs[1:]))
    m = max(map(len, us))

    def padded(us):
        """The controls, with zeros for the nodes that have none."""
        return [u.tolist() if len(u) else [0.0] * m for u in us]

    impulses = [t for t, u in enumerate(us) if not len(u)]
    stages = [0, problem.T // 3, *impulses[:1], problem.T - 1, -1]
    solver = crocoddyl.SolverFDDP(problem)
    times = []
    for _ in range(5):
        began = time.process_time()
        converged = solver.solve(xs, us, 500, False)
        times.append(time.process_time() - began)
    states = problem.rollout(solver.us)
    result = {
        "name": name,
        "urdf": file and str(pathlib.Path(file).resolve().relative_to(ROBOTS.resolve())),
        "x0": angles(model, problem.x0),
        "guess": padded(us),
        "gait": gait,
        "nodes": nodes(problem, model, us, stages),
        "converged": bool(converged),
        "cost": problem.calc(states, solver.us),
        "iterations": int(solver.iter) + 1,
    }
    if not short:
        result |= {"robots": str(ROBOTS), "seconds": min(times), "us": padded(solver.us)}
        result["xs"] = [state(model, x) for x in states]
        result["costates"] = [x.tolist() for x in adjoints(problem, states, solver.us)]
    return result


def main():
    every = double_pendulum, arm, quadrotor, unicycle, talos_arm, trot, walk
    problems = {function.__name__.replace("_", " "): function for function in every}
    pinocchio.WITH_COLLISION = False  # the loaders of the robots need this name
    for name in [word for word in sys.argv[1:] if word in problems] or problems:
        print(json.dumps(solved(name, problems[name], "--short" in sys.argv)), flush=True)


if __name__ == "__main__":
    main()
