"""The reference results of every job, by the Python interface of Pinocchio.

`python -m benchmarks.reference FOLDER` reads robot.urdf, robot.json and states.npz in FOLDER. It
writes reference.npz with results for the first jobs.CHECKED states: the arrays of job J as J_0,
J_1, ...; and `condition`, the largest condition number of the mass matrices.

MuJoCo integrates the linear velocity of a floating base in the axes of the world, so its step
differs from the step of jaxrbd and Pinocchio. For robots with a floating base, `rollout_grad_along`
has the derivatives of the result of MuJoCo's rollout along `jobs.directions`, by central
differences.
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
    if robot["floating"]:
        along = [_along(model, row) for row in rows]
        arrays["rollout_grad_along"] = np.array(along)
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


def _along(model, state) -> list[float]:
    """Derivatives of |v|^2 / 2 after MuJoCo's rollout, along each of `jobs.directions`."""
    h, data = 1e-2, model.createData()
    found = []
    for direction in jobs.directions(state["taus"].shape[1]):
        ends = [
            _mujoco_rollout(
                model, data, state["q"], state["v"], state["taus"] + sign * h * direction
            )
            for sign in (1, -1)
        ]
        found.append((ends[0] - ends[1]) / (2 * h))
    return found


def _mujoco_rollout(model, data, q, v, taus) -> float:
    """|v|^2 / 2 after semi-implicit Euler, with the linear velocity in the axes of the world."""
    q, v = q.copy(), v.copy()
    for row in taus:
        a = pin.aba(model, data, q, v, np.concatenate([np.zeros(6), row]))
        R = pin.Quaternion(q[3:7]).matrix()
        linear = R @ (v[:3] + jobs.DT * (a[:3] + np.cross(v[3:6], v[:3])))
        v = v + jobs.DT * a
        R = R @ pin.exp3(jobs.DT * v[3:6])
        v[:3] = R.T @ linear
        q[:3] += jobs.DT * linear
        q[3:7] = pin.Quaternion(R).coeffs()
        q[7:] += jobs.DT * v[6:]
    return 0.5 * v @ v


def _symmetric(M: np.ndarray) -> np.ndarray:
    """The symmetric matrix with the upper triangle of M."""
    upper = np.triu(M)
    return upper + np.triu(M, 1).T


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
