"""The reference results of every job, by the Python interface of Pinocchio.

`python -m benchmarks.reference FOLDER` reads robot.urdf, robot.json and states.npz in FOLDER. It
writes reference.npz with results for the first jobs.CHECKED states: the arrays of job J as J_0,
J_1, ...; and `condition`, the largest condition number of the mass matrices.
"""

import json
import pathlib
import sys

import numpy as np
import pinocchio as pin

from . import jobs


def main(folder: pathlib.Path) -> None:
    robot = json.loads((folder / "robot.json").read_text())
    text = (folder / "robot.urdf").read_text()
    base = [pin.JointModelFreeFlyer()] if robot["floating"] else []
    model = pin.buildModelFromXML(text, *base)
    assert (model.nq, model.nv) == (robot["nq"], robot["nv"])
    names = [joint["name"] for joint in robot["joints"]]
    assert list(model.names)[1 + robot["floating"] :] == names[robot["floating"] :]
    states = np.load(folder / "states.npz")
    rows = [{key: states[key][i] for key in states} for i in range(jobs.CHECKED)]
    results = [outputs(model, robot, row) for row in rows]
    arrays = {
        f"{job}_{k}": np.stack([result[job][k] for result in results])
        for job in jobs.JOBS
        for k in range(len(results[0][job]))
    }
    arrays["condition"] = np.array(max(np.linalg.cond(M) for M in arrays["crba_0"]))
    np.savez(folder / "reference.npz", **arrays)


def outputs(model: pin.Model, robot: dict, state: dict) -> dict[str, tuple[np.ndarray, ...]]:
    """The arrays of every job at one state."""
    q, v, a, tau = (state[key] for key in ("q", "v", "a", "tau"))
    data = model.createData()
    pin.forwardKinematics(model, data, q)
    poses = list(data.oMi)[1:]
    joint = robot["frame"] + 1
    pin.computeJointJacobians(model, data, q)
    J = pin.getJointJacobian(model, data, joint, pin.LOCAL_WORLD_ALIGNED)
    rnea = pin.rnea(model, data, q, v, a).copy()
    M = _symmetric(pin.crba(model, data, q))
    drnea = tuple(np.array(x) for x in pin.computeRNEADerivatives(model, data, q, v, a))
    drnea = (*drnea[:2], _symmetric(drnea[2]))
    dfd = tuple(np.array(x) for x in pin.computeABADerivatives(model, data, q, v, tau))
    return {
        "fk": (np.stack([X.rotation for X in poses]), np.stack([X.translation for X in poses])),
        "rnea": (rnea,),
        "crba": (M,),
        "fd": (pin.aba(model, data, q, v, tau).copy(),),
        "jacobian": (J,),
        "drnea": drnea,
        "dfd": (*dfd[:2], _symmetric(dfd[2])),
        "grad": tuple(x.T @ rnea for x in drnea),
        "rollout_grad": (_rollout_gradient(model, data, q, v, state["taus"]),),
    }


def _rollout_gradient(model, data, q, v, taus) -> np.ndarray:
    """The gradient (STEPS, motors) of a rollout, by the adjoint of semi-implicit Euler."""
    steps = []
    for row in taus:
        tau = np.concatenate([np.zeros(model.nv - len(row)), row])
        before = v
        v = before + jobs.DT * pin.aba(model, data, q, before, tau)
        steps.append((q, before, tau, jobs.DT * v))
        q = pin.integrate(model, q, jobs.DT * v)
    along_q, along_v, gradient = np.zeros(model.nv), v, np.zeros_like(taus)
    for i, (q, v, tau, dq) in reversed(list(enumerate(steps))):
        of_q, of_dq = pin.dIntegrate(model, q, dq)
        along_v = along_v + jobs.DT * of_dq.T @ along_q
        along_a = jobs.DT * along_v
        da_dq, da_dv, Minv = pin.computeABADerivatives(model, data, q, v, tau)
        along_q = of_q.T @ along_q + da_dq.T @ along_a
        along_v = along_v + da_dv.T @ along_a
        gradient[i] = (_symmetric(Minv) @ along_a)[model.nv - taus.shape[1] :]
    return gradient


def _symmetric(M: np.ndarray) -> np.ndarray:
    """The symmetric matrix with the upper triangle of M."""
    upper = np.triu(M)
    return upper + np.triu(M, 1).T


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
