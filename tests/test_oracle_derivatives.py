"""Analytic derivatives, time derivatives and centroidal quantities against Pinocchio.

The same program also checks laws that relate these quantities. Errors are relative to the largest
entry. The errors of quantities that are solved with the mass matrix M may grow with cond(M). The
default run takes a few robots of different shapes; `-m slow` takes the others.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd
from support import oracles, real_robots
from support.pinocchio_models import (
    REFERENCES,
    configuration,
    frame_id,
    load_oracle,
    pin,
    symmetric,
)

TOLERANCE = 1e-9
INVERSES = ("aba(rnea) = a", "forward_dynamics(rnea) = a")
SOLVED = ("dqdd_dq", "dqdd_dv", "Minv", "aba_minverse", *INVERSES)


@partial(jax.jit, compiler_options=oracles.QUICKLY)
def our_quantities(model, state):
    q, v, a, tau, f_ext, _ = state
    kinematics = jaxrbd.forward_kinematics(model, q)
    M = jaxrbd.crba(model, kinematics)
    results = {
        **jaxrbd.rnea_derivatives(model, q, v, a, f_ext)._asdict(),
        **jaxrbd.forward_dynamics_derivatives(model, q, v, tau, f_ext)._asdict(),
        **jaxrbd.algorithms.centroidal_derivatives(model, q, v, a)._asdict(),
        "coriolis_matrix": jaxrbd.coriolis_matrix(model, q, v),
        "static_torque": jaxrbd.algorithms.static_torque(model, q, f_ext),
        "com_jacobian": jaxrbd.com_jacobian(model, kinematics),
        "centroidal_momentum": jaxrbd.centroidal_momentum(model, q, v),
        "centroidal_momentum_rate": jaxrbd.algorithms.centroidal_momentum_rate(model, q, v, a),
        "centroidal_momentum_matrix": jaxrbd.centroidal_momentum_matrix(model, kinematics),
        "centroidal_momentum_matrix_dot": jaxrbd.algorithms.centroidal_momentum_matrix_dot(
            model, q, v
        ),
        "aba_minverse": jaxrbd.algorithms.aba_minverse(model, kinematics),
    }
    if "deepest" in model.frame_names:
        for ref in oracles.REFERENCES:
            J_dot = jaxrbd.frame_jacobian_dot(model, q, v, "deepest", ref)
            results[f"frame_jacobian_dot {ref}"] = J_dot
        for ref in ("local", "world"):  # in the third, only ours is the classical acceleration
            derivatives = jaxrbd.algorithms.frame_acceleration_derivatives(
                model, q, v, a, "deepest", ref
            )
            results |= {f"{name} {ref}": x for name, x in derivatives._asdict().items()}
    return results, identities(model, state, kinematics, M, results)


def identities(model, state, kinematics, M, results):
    """Laws at one state: by name, two sides, and the terms that give the scale of the rounding."""
    q, v, a, _, f_ext, _ = state
    L, C = jaxrbd.algorithms.ltl_factor(model, M), results["coriolis_matrix"]
    bias, gravity = jaxrbd.bias_force(model, q, v), jaxrbd.gravity_force(model, q)
    forces = jaxrbd.rnea(model, q, v, a, f_ext)
    free = jaxrbd.rnea(model, q, v, a)

    def moving(q, v):
        return (
            jaxrbd.potential_energy(model, q),
            jaxrbd.kinetic_energy(model, q, v) + jaxrbd.potential_energy(model, q),
            jaxrbd.crba(model, q),
        )

    q_rate = jaxrbd.configuration.configuration_rate(model, q, v)
    fall, power, M_dot = jax.jvp(moving, (q, v), (q_rate, a))[1]
    pairs = {
        "L^T L = M": (L.T @ L, M, M),
        "M of the derivatives": (results["M"], M, M),
        "M is symmetric": (M, M.T, M),
        "M x": (jaxrbd.mass_matrix_product(model, q, a), M @ a, M @ a),
        "M a + bias": (forces, M @ a + jaxrbd.bias_force(model, q, v, f_ext), forces),
        "C v = bias - gravity": (C @ v, bias - gravity, jnp.append(bias, gravity)),
        "dM/dt = C + C^T": (M_dot, C + C.T, jnp.append(M_dot, jnp.max(jnp.abs(M)) * v)),
        "kinetic energy": (jaxrbd.kinetic_energy(model, q, v), v @ M @ v / 2, v @ M @ v),
        "gravity is a gradient": (fall, gravity @ v, gravity * v),
        "power": (power, free @ v, jnp.append(free * v, (M @ a) * v)),
        "A a + dA v": (
            results["A"] @ a + results["centroidal_momentum_matrix_dot"] @ v,
            results["centroidal_momentum_rate"],
            results["centroidal_momentum_rate"],
        ),
        "aba(rnea) = a": (jaxrbd.aba(model, q, v, forces, f_ext), a, a),
        "forward_dynamics(rnea) = a": (jaxrbd.forward_dynamics(model, q, v, forces, f_ext), a, a),
    }
    if model.joint_names[0] == "root_joint":
        # The only external forces on the robot are gravity and the force of this joint.
        X_WB = jax.tree.map(lambda x: x[0], kinematics.X_WB)
        about_com = X_WB._replace(p=X_WB.p - jaxrbd.center_of_mass(model, kinematics))
        held = jaxrbd.spatial.transform_force(about_com, free[:6])
        weight = jaxrbd.total_mass(model) * jnp.pad(model.gravity, (0, 3))
        rate = results["centroidal_momentum_rate"]
        pairs["rate of momentum"] = (held + weight, rate, jnp.append(held, rate))
    return pairs


def pinocchio_quantities(oracle, model, state):
    data = oracle.createData()
    q, v, a = configuration(oracle.joints[1:], state.q), state.v, state.a
    f_ext = pin.StdVec_Force([pin.Force.Zero(), *map(pin.Force, state.f_ext)])
    pin.computeRNEADerivatives(oracle, data, q, v, a, f_ext)
    results = {
        "dtau_dq": data.dtau_dq.copy(),
        "dtau_dv": data.dtau_dv.copy(),
        "M": symmetric(data.M),
    }
    pin.computeABADerivatives(oracle, data, q, v, state.tau, f_ext)
    Minv = symmetric(data.Minv)
    results |= {"dqdd_dq": data.ddq_dq.copy(), "dqdd_dv": data.ddq_dv.copy()}
    results |= {"Minv": Minv, "aba_minverse": Minv}
    names = ("dh_dq", "dhdot_dq", "dhdot_dv", "A")
    found = pin.computeCentroidalDynamicsDerivatives(oracle, data, q, v, a)
    results |= dict(zip(names, (x.copy() for x in found)))
    pin.computeCentroidalMomentumTimeVariation(oracle, data, q, v, a)
    results |= {
        "centroidal_momentum": data.hg.vector.copy(),
        "centroidal_momentum_rate": data.dhg.vector.copy(),
    }
    results["centroidal_momentum_matrix"] = pin.computeCentroidalMap(oracle, data, q).copy()
    A_dot = pin.computeCentroidalMapTimeVariation(oracle, data, q, v).copy()
    results["centroidal_momentum_matrix_dot"] = A_dot
    results["coriolis_matrix"] = pin.computeCoriolisMatrix(oracle, data, q, v).copy()
    results["static_torque"] = pin.computeStaticTorque(oracle, data, q, f_ext).copy()
    results["com_jacobian"] = pin.jacobianCenterOfMass(oracle, data, q).copy()
    probe = oracles.probe_names(model).get("deepest")
    if probe:
        frame = frame_id(oracle, probe)
        pin.computeJointJacobiansTimeVariation(oracle, data, q, v)
        pin.updateFramePlacements(oracle, data)
        for ref, flag in REFERENCES.items():
            J_dot = pin.getFrameJacobianTimeVariation(oracle, data, frame, flag)
            results[f"frame_jacobian_dot {ref}"] = J_dot
        pin.computeForwardKinematicsDerivatives(oracle, data, q, v, a)
        pin.updateFramePlacements(oracle, data)
        for ref in ("local", "world"):
            derivatives = pin.getFrameAccelerationDerivatives(oracle, data, frame, REFERENCES[ref])
            results |= dict(
                zip([f"{n} {ref}" for n in ("dV_dq", "dA_dq", "dA_dv", "J")], derivatives)
            )
    return results


# The terms of these quantities cancel on some robots. Their rounding is relative to the terms,
# which are as large as this matrix times a velocity.
RATE_OF = {
    "dtau_dv": "M",
    "coriolis_matrix": "M",
    "dh_dq": "A",
    "dhdot_dq": "A",
    "dhdot_dv": "A",
    "centroidal_momentum_matrix_dot": "A",
    "dA_dv local": "J local",
    "frame_jacobian_dot local": "J local",
}


def scale(what: str, theirs, v) -> np.ndarray:
    """The scale of an error: the expected value, or the terms that cancel in it."""
    if what == "dqdd_dv":
        return np.append(theirs[what], v)
    if what in RATE_OF and RATE_OF[what] in theirs:
        return np.append(theirs[what], np.max(np.abs(theirs[RATE_OF[what]])) * v)
    return theirs[what]


@pytest.mark.parametrize(
    ("name", "root_joint"),
    real_robots.with_both_bases(real_robots.ROBOTS, real_robots.ONE_EXAMPLE),
)
def test_derivatives_and_momentum(name, root_joint):
    model, oracle = real_robots.load(name, root_joint), load_oracle(name, root_joint)
    if model.nv == 0:
        pytest.skip("Pinocchio's algorithms crash without a degree of freedom")
    oracles.make_room(model)
    singular = name in real_robots.SINGULAR
    for seed in range(2):
        state = oracles.random_state(model, seed)
        results, laws = jax.tree.map(
            np.asarray, our_quantities(oracles.nameless(model), jax.tree.map(jnp.asarray, state))
        )
        theirs = pinocchio_quantities(oracle, model, state)
        assert set(theirs) == set(results)
        condition = oracles.condition(theirs["M"])
        found = {
            what: (results[what], theirs[what], scale(what, theirs, state.v)) for what in theirs
        }
        found |= laws
        wrong = []
        if not singular and not np.linalg.eigvalsh(results["M"])[0] > 0:
            wrong.append("  M is not positive definite")
        for what, (ours, expected, size) in found.items():
            if what in SOLVED and singular:
                continue
            allowed = TOLERANCE + (1e-14 * condition if what in SOLVED else 0)
            error = oracles.error(ours, expected, size)
            if not error <= allowed and not (singular and what == "L^T L = M"):
                wrong.append(f"  {what}: relative error {error:.1e}, allowed {allowed:.1e}")
        assert not wrong, f"{name}, seed {seed}, cond(M) {condition:.1e}:\n" + "\n".join(wrong)


# ------------------------------------------------------------------------- where Pinocchio is wrong

WRONG = {
    "JointModelSphericalZYX": jaxrbd.model.euler("zyx"),
    "JointModelUniversal": jaxrbd.model.universal((1, 0, 0), (0, 1, 0)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRONG)
def test_pinocchio_differentiates_joints_whose_subspace_moves_wrongly(kind):
    """Pinocchio's gravity derivative is not the derivative of its gravity force; jaxrbd's is.

    The gravity forces agree. jaxrbd's derivative equals the Hessian of the potential energy.
    """
    joint = pin.JointModelUniversal(np.eye(3)[0], np.eye(3)[1]) if "Univ" in kind else None
    oracle = pin.Model()
    index = oracle.addJoint(0, joint or pin.JointModelSphericalZYX(), pin.SE3.Identity(), "joint")
    inertia = pin.Inertia(2.0, np.array([0.3, -0.2, 0.5]), np.diag([0.3, 0.4, 0.5]))
    oracle.appendBodyToJoint(index, inertia, pin.SE3.Identity())
    data = oracle.createData()
    link = jaxrbd.model.Link("link", inertia.toDynamicParameters())
    model = jaxrbd.build_model([link], [jaxrbd.model.JointSpec("joint", WRONG[kind], None, "link")])
    q = np.array([0.4, -0.7, 0.9])[: model.nv]
    zero = np.zeros(model.nv)

    def gravity(q):
        return pin.computeGeneralizedGravity(oracle, data, q).copy()

    steps = 1e-5 * np.eye(model.nv)
    truth = np.array([(gravity(q + h) - gravity(q - h)) / 2e-5 for h in steps]).T
    theirs = pin.computeGeneralizedGravityDerivatives(oracle, data, q).copy()
    ours = jaxrbd.rnea_derivatives(model, q, zero, zero).dtau_dq
    of_energy = jax.hessian(partial(jaxrbd.potential_energy, model))(jnp.asarray(q))
    np.testing.assert_allclose(jaxrbd.gravity_force(model, q), gravity(q), atol=1e-12)
    np.testing.assert_allclose(ours, truth, atol=1e-8)
    np.testing.assert_allclose(ours, of_energy, atol=1e-12)
    assert np.max(np.abs(theirs - truth)) > 0.1, "Pinocchio has corrected this: use it as an oracle"
