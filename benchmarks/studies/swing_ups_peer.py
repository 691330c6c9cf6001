"""Swing-ups that Crocoddyl's BoxFDDP solves; `swing_ups.py` runs this file and reads its output.

    ENV/bin/python swing_ups_peer.py < problems.json

The input is a list of problems, and the output is one JSON object per problem and guess: the cost
of the guess, and the last positions, the cost and the iterations of the solution.
"""

import json
import sys

import crocoddyl
import numpy as np
import pinocchio


def shooting(problem):
    """The problem of Crocoddyl: weighted squares of the error, the velocity and the control."""
    model = pinocchio.buildModelFromUrdf(problem["urdf"])
    state = crocoddyl.StateMultibody(model)
    dofs, bound = problem["dofs"], problem["bound"]
    selection = np.zeros((model.nv, len(dofs)))
    selection[dofs, range(len(dofs))] = 1
    actuation = Motors(state, selection)
    goal = np.concatenate([problem["goal"], np.zeros(model.nv)])

    def node(position, velocity, control, dt):
        weights = np.repeat([position**2, velocity**2], model.nv)
        change = crocoddyl.ResidualModelState(state, goal, actuation.nu)
        terms = crocoddyl.CostModelSum(state, actuation.nu)
        activation = crocoddyl.ActivationModelWeightedQuad(weights)
        terms.addCost("state", crocoddyl.CostModelResidual(state, activation, change), 1.0)
        effort = crocoddyl.ResidualModelControl(state, actuation.nu)
        terms.addCost("effort", crocoddyl.CostModelResidual(state, effort), control**2)
        differential = crocoddyl.DifferentialActionModelFreeFwdDynamics(state, actuation, terms)
        action = crocoddyl.IntegratedActionModelEuler(differential, dt)
        action.u_lb, action.u_ub = -bound * np.ones(len(dofs)), bound * np.ones(len(dofs))
        return action

    # A stage of Crocoddyl multiplies its cost by dt.
    dt = problem["dt"]
    stage = node(*(weight / dt**0.5 for weight in problem["weights"]), dt)
    last = node(*problem["terminal_weights"], 0.0)
    x0 = np.concatenate([problem["start"], np.zeros(model.nv)])
    return crocoddyl.ShootingProblem(x0, [stage] * problem["stages"], last)


class Motors(crocoddyl.ActuationModelAbstract):
    """Forces of some dofs."""

    def __init__(self, state, selection):
        super().__init__(state, selection.shape[1])
        self.selection = selection

    def calc(self, data, x, u=None):
        data.tau = self.selection @ (np.zeros(self.nu) if u is None else u)

    def calcDiff(self, data, x, u=None):
        data.dtau_du = self.selection


def main():
    for problem in json.load(sys.stdin):
        for k, guess in enumerate(problem["guesses"]):
            trajectory = shooting(problem)
            us = [np.array(u) for u in guess]
            xs = list(trajectory.rollout(us))
            first = trajectory.calc(xs, us)
            solver = crocoddyl.SolverBoxFDDP(trajectory)
            solver.solve(xs, us, problem["iterations"], True)
            nq = len(problem["goal"])
            found = {
                "name": problem["name"],
                "guess": k,
                "cost_of_guess": first,
                "cost": solver.cost,
                "iterations": solver.iter,
                "end": np.array(solver.xs[-1])[:nq].tolist(),
                "defects": max(float(np.max(np.abs(gap))) for gap in solver.fs),
            }
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
