"""Oracle one: Pinocchio, on every real robot, its base fixed and on a free-flyer."""

import numpy as np
import pytest

pin = pytest.importorskip("pinocchio", reason="Pinocchio has no wheel for this platform")

import oracles
import real_robots

REFERENCE = {
    "local": pin.ReferenceFrame.LOCAL,
    "world": pin.ReferenceFrame.WORLD,
    "local_world_aligned": pin.ReferenceFrame.LOCAL_WORLD_ALIGNED,
}


def load_pinocchio(name, root_joint, mimic=False):
    path = str(real_robots.path_of(name))
    base = [pin.JointModelFreeFlyer()] if root_joint else []
    return pin.buildModelFromUrdf(path, *base, mimic=mimic)


def configuration(model, q):
    """Pinocchio's configuration: it stores the angle of a joint without limits as (cos, sin)."""
    parts, start = [], 0
    for joint in model.joints[1:]:
        if (joint.nq, joint.nv) == (2, 1):
            parts.append([np.cos(q[start]), np.sin(q[start])])
            start += 1
        elif (joint.nq, joint.nv) == (4, 3):
            assert "Planar" in joint.shortname()
            x, y, angle = q[start:start+3]
            parts.append([x, y, np.cos(angle), np.sin(angle)])
            start += 3
        else:
            parts.append(q[start : start + joint.nq])
            start += joint.nq
    assert start == len(q)
    return np.concatenate([np.zeros(0), *parts])


def pinocchio_results(model, frames, state):
    data = model.createData()
    q, q1 = configuration(model, state.q), configuration(model, state.q1)
    v, a, tau = state.v, state.a, state.tau
    f_ext = pin.StdVec_Force([pin.Force.Zero(), *map(pin.Force, state.f_ext)])
    results = {
        "rnea": pin.rnea(model, data, q, v, a, f_ext).copy(),
        "bias_force": pin.nonLinearEffects(model, data, q, v).copy(),
        "gravity_force": pin.computeGeneralizedGravity(model, data, q).copy(),
        "crba": symmetric(pin.crba(model, data, q)),
        "aba": pin.aba(model, data, q, v, tau, f_ext).copy(),
        "forward_dynamics": pin.aba(model, data, q, v, tau, f_ext).copy(),
        "minverse": minverse(model, data, q),
        "total_mass": pin.computeTotalMass(model),
        "center_of_mass": pin.centerOfMass(model, data, q).copy(),
        "kinetic_energy": pin.computeKineticEnergy(model, data, q, v),
        "potential_energy": pin.computePotentialEnergy(model, data, q),
        "integrate": pin.integrate(model, q, v),
        "difference": pin.difference(model, q, q1),
    }
    pin.computeJointJacobians(model, data, q)
    pin.forwardKinematics(model, data, q, v, a)
    pin.updateFramePlacements(model, data)
    results["body placements"] = np.array([X.homogeneous[:3] for X in data.oMi[1:]]).reshape(-1,3,4)
    for frame, name in frames.items():
        i = model.getFrameId(name, pin.FrameType.BODY)
        results[f"frame_placement {frame}"] = data.oMf[i].homogeneous[:3]
        for ref in REFERENCE:
            results[f"frame_jacobian {frame} {ref}"] = pin.getFrameJacobian(model, data, i, REFERENCE[ref])
        for ref in oracles.motion_references(frame):
            V = pin.getFrameVelocity(model, data, i, REFERENCE[ref])
            classical = ref == "local_world_aligned"
            acceleration = pin.getFrameClassicalAcceleration if classical else pin.getFrameAcceleration
            results[f"frame_velocity {frame} {ref}"] = V.vector
            results[f"frame_acceleration {frame} {ref}"] = acceleration(model, data, i, REFERENCE[ref]).vector
    return results

def symmetric(upper):
    return np.triu(upper) + np.triu(upper, 1).T


def minverse(model, data, q):
    """The inverse mass matrix; Pinocchio's own crashes on a robot that cannot move."""
    return symmetric(pin.computeMinverse(model, data, q)) if model.nv else np.zeros((0, 0))
