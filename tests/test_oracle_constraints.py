"""Loops, contacts and impacts of real robots against Pinocchio's constrained dynamics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import constraints as con, spatial
from support import nightly, oracles, real_robots
from support.pinocchio_models import configuration, frame_id, load_oracle, pin

TOLERANCE = 1e-8
HYQ = "hyq_description/robots/hyq_no_sensors.urdf"
TALOS = "talos_data/robots/talos_reduced.urdf"
# Robot; frames on the ground and joined pairs of frames, with the numbers of their rows.
CASES = {
    "four feet": (HYQ, {"lf_foot": 3, "lh_foot": 3, "rf_foot": 3, "rh_foot": 3}, {}),
    "ball between legs": (HYQ, {"rh_foot": 3}, {("lf_foot", "rf_foot"): 3}),
    "weld between legs": (HYQ, {}, {("lf_lowerleg", "rf_lowerleg"): 6}),
    "soles and hands": (
        TALOS,
        {"left_sole_link": 6, "right_sole_link": 6},
        {("gripper_left_base_link", "gripper_right_base_link"): 3},
    ),
}


@jax.jit
def ours(model, q, v, tau, constraints):
    """Dynamics at a velocity that the constraints allow, and an impact at the given velocity."""
    impact = con.impact(model, q, v, constraints, 0.3)
    allowed = con.impact(model, q, v, constraints).velocity
    return allowed, con.constrained_dynamics(model, q, allowed, tau, constraints), impact


def closed_as_it_is(model, q, a, b, rows):
    """A constraint with the given number of rows that the present configuration satisfies."""
    X_WA, X_WB = (rbd.frame_placement(model, q, x) for x in (a, b))
    X_AB = spatial.inverse_compose(X_WA, X_WB)
    return con.point(a, b, X_AB.p) if rows == 3 else con.weld(a, b, X_AB)


@pytest.mark.parametrize("case", nightly.all_but(["four feet"], CASES))
def test_constrained_dynamics(case):
    name, ground, loops = CASES[case]
    model, oracle = real_robots.load(name, "free_flyer"), load_oracle(name, "free_flyer")
    state = oracles.random_state(model, 0)
    q, v, tau = (jnp.asarray(x) for x in (state.q, state.v, state.tau))
    constraints = [
        con.point(None, frame) if rows == 3 else con.weld(None, frame)
        for frame, rows in ground.items()
    ]
    constraints += [closed_as_it_is(model, q, *pair, rows) for pair, rows in loops.items()]
    allowed, dynamics, impact = ours(model, q, v, tau, constraints)

    models, datas = pin.StdVec_RigidConstraintModel(), pin.StdVec_RigidConstraintData()
    for frame, rows in ground.items():
        models.append(rigid(oracle, rows, frame))
    for pair, rows in loops.items():
        X = closed_as_it_is(model, q, *pair, rows).X_a
        place = pin.SE3(np.asarray(X.R), np.asarray(X.p))
        models.append(rigid(oracle, rows, pair[0], place, pair[1]))
    for one in models:
        datas.append(one.createData())
    data = oracle.createData()
    pin.initConstraintDynamics(oracle, data, models, datas)
    settings = pin.ProximalSettings(1e-14, 0.0, 1)
    q_pin = configuration(oracle.joints[1:], state.q)
    theirs = pin.constraintDynamics(
        oracle, data, q_pin, np.asarray(allowed), state.tau, models, datas, settings
    )
    check(dynamics.acceleration, theirs, "acceleration")
    compare_forces(model, q, constraints, dynamics.multipliers, datas, "force")

    pin.computeAllTerms(oracle, data, q_pin, state.v)
    J = pin.getConstraintsJacobian(oracle, data, models, datas)
    check(impact.velocity, pin.impulseDynamics(oracle, data, state.v, J, 0.3, 0.0), "velocity")
    theirs = pin.impulseDynamics(oracle, data, q_pin, state.v, models, datas, 0.3, settings)
    if loops:
        # Pinocchio's impulse with loops does not satisfy J v+ = -e J v for its own J.
        left = np.abs(J @ theirs + 0.3 * J @ state.v)
        assert np.max(left) > 0.1, "Pinocchio has corrected this: use it as an oracle"
    else:
        compare_forces(model, q, constraints, impact.impulses, datas, "impulse")


def rigid(oracle, rows, first, place=None, second=None):
    """Pinocchio's constraint between a place in one frame and another frame, or the world."""
    kind = getattr(pin.ContactType, f"CONTACT_{rows}D")
    ends = []
    for frame, X in ((first, place or pin.SE3.Identity()), (second, pin.SE3.Identity())):
        if frame is not None:
            known = oracle.frames[frame_id(oracle, frame)]
            ends += [known.parentJoint, known.placement * X]
    return pin.RigidConstraintModel(kind, oracle, *ends, pin.ReferenceFrame.LOCAL)


def compare_forces(model, q, constraints, multipliers, datas, what):
    """The constraint's wrench on its first body, in that end's axes, equals Pinocchio's.

    The rows of a weld are rates of the error here and velocities in Pinocchio, so wrenches are
    compared in place of constraint forces.
    """
    for i, (constraint, multiplier, data) in enumerate(zip(constraints, multipliers, datas)):
        on_bodies = con.constraint_wrenches(model, q, [constraint], [multiplier])
        frame = constraint.frame_a or constraint.frame_b
        index = model.frame_names.index(frame)
        X_BF = jax.tree.map(lambda x: x[index], model.frame_pose)
        if constraint.frame_a is not None:
            X_BF = spatial.compose(X_BF, jax.tree.map(jnp.asarray, constraint.X_a))
        wrench = spatial.inverse_transform_force(X_BF, on_bodies[model.frame_bodies[index]])
        expected = np.array(data.contact_force.vector)
        check(wrench, expected, f"{what} of constraint {i}")


def check(actual, expected, what):
    error = oracles.error(np.asarray(actual), np.asarray(expected), np.asarray(expected))
    assert error <= TOLERANCE, f"{what}: relative error {error:.1e}"
