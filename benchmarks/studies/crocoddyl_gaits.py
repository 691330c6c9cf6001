"""Gaits of Crocoddyl as problems of jaxrbd.

`crocoddyl_peer.py` gives the contacts, references and weights of all stages. They are tables in p,
so one program serves all phases of a gait. A stage with an impact has no duration: its state before
the impact has costs, and the impact changes the velocity. Then the feet that stand afterwards act.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd
from jaxrbd import constraints, optimal_control, se3
from jaxrbd.model import Fixed, Link, describe, link_inertia


def step_of_crocoddyl(model, dynamics, q, v, dt, impact=False):
    """The semi-implicit Euler step of Crocoddyl: linear velocities in axes that turn.

    In an impact, the dynamics return the change of v.
    """
    v = v + jnp.where(impact, 1.0, dt) * dynamics(q, v)
    return jaxrbd.integrate(model, q, dt * v), v


@jax.custom_jvp
def _twist_coordinates(X):
    """Six coordinates whose rate is the velocity of B relative to A, in the axes of B.

    No functions of the pose have this rate, so the value is only a placeholder.
    """
    return jnp.zeros(6, X.p.dtype)


@_twist_coordinates.defjvp
def _twist_coordinates_jvp(primals, tangents):
    ((R, _),), ((dR, dp),) = primals, tangents
    spin = R.T @ dR
    twist = jnp.concatenate([R.T @ dp, jnp.stack([spin[2, 1], spin[0, 2], spin[1, 0]])])
    return jnp.zeros_like(twist), twist


def sole(frame):
    """A frame at rest in the world: its spatial velocity is zero."""
    return constraints.FrameConstraint(_twist_coordinates, None, frame)


def _inertia(mass, com, inertia_com):
    return link_inertia(mass, com, np.array(inertia_com))


def robot(gait, file):
    """The robot of the file with a floating base and the joints of the gait; others are cut off.

    The inertias are those of Crocoddyl's example, whose legs of Talos have the inertia of a sole
    twice.
    """
    links, joints = describe(jaxrbd.load_urdf(file, root_joint="free_flyer", geometry=False))
    armature = dict(zip(gait["joints"][1:], gait["armature"][6:], strict=True))
    moving = [joint for joint in joints if joint.name in gait["joints"]]
    bodies = [joint.child for joint in moving]
    inertias = dict(zip(gait["joints"], gait["inertias"], strict=True))
    inertias = {joint.child: _inertia(*inertias[joint.name]) for joint in moving}
    joints = [
        dataclasses.replace(joint, armature=armature.get(joint.name, 0.0)) for joint in moving
    ] + [joint for joint in joints if isinstance(joint.kind, Fixed) and joint.parent in bodies]
    kept = {joint.child for joint in joints}
    links = [Link(link.name, inertias.get(link.name, link.inertia)) for link in links]
    return jaxrbd.build_model([link for link in links if link.name in kept], joints)


def parameters(gait):
    """The tables in p, one row per stage and one for the last state, and what is constant.

    The tables have the factors of the residuals: roots of weights times durations.
    """
    stages = {name: np.array([row[name] for row in gait["stages"]]) for name in gait["stages"][0]}
    duration = np.where(stages["dt"] > 0, stages["dt"], 1.0)
    duration[-1] = 1.0  # the cost of the last state is no integral
    found = {name: stages[name] for name in ("dt", "feet", "com")}
    found["impact"] = np.any(stages["lands"], axis=1)
    found["acts"] = np.where(found["impact"][:, None], stages["lands"], stages["stands"])
    for name, x in stages.items():
        if "weight" in name:
            found[name] = np.sqrt((x.T * duration).T)
    # The control does nothing in an impact. With a weight, it is zero there.
    found["control_weight"] = np.where(found["control_weight"] > 0, found["control_weight"], 1.0)
    constant = {"cone": gait["cone"], "posture": gait["posture"]}
    for name in ("cone_bounds", "state_bounds"):
        constant[name] = np.clip(gait[name], -1e300, 1e300)
    found |= {name: np.array(x) for name, x in constant.items()}
    return {name: jnp.asarray(x, bool if x.dtype == bool else float) for name, x in found.items()}


def _beyond(x, bounds):
    """How far x is beyond its bounds."""
    lower, upper = (jnp.broadcast_to(bound, x.shape) for bound in bounds)
    return jnp.maximum(x - upper, 0) + jnp.minimum(x - lower, 0)


def problem(gait, file):
    """The problem of a gait, whose p are the `parameters`."""
    model = robot(gait, file)
    feet, flat = gait["feet"], len(gait["cone"][0]) == 6
    contact = sole if flat else functools.partial(constraints.point, None)
    contacts = [contact(foot) for foot in feet]
    acceleration = optimal_control.joint_torques(
        model,
        range(6, model.nv),
        contacts,
        gait["gains"],
        active=lambda t, p: p["acts"][t],
        impact=lambda t, p: p["impact"][t],
    )

    def motion(t, x, u, p):
        """The acceleration, and the contact forces for the cost."""
        return acceleration.constrained(t, *x, u, p)

    def dynamics(t, x, u, p, motion):
        step = p["dt"][t], p["impact"][t]
        return step_of_crocoddyl(model, lambda q, v: motion.acceleration, *x, *step)

    def placements_of_feet(q):
        return [jaxrbd.frame_placement(model, q, foot) for foot in feet]

    def of_state(t, x, p):
        """The residuals of references and bounds of the state."""
        q, v = x
        kinematics = jaxrbd.forward_kinematics(model, q)
        placements = placements_of_feet(kinematics)
        places = jnp.stack([X.p for X in placements])
        off = places - p["feet"][t]
        if flat:
            goals = [jaxrbd.Pose(jnp.eye(3), goal) for goal in p["feet"][t]]
            off = jnp.stack(
                [se3.log(goal.inverse() @ X) for goal, X in zip(goals, placements, strict=True)]
            )
        change = jnp.concatenate([jaxrbd.difference(model, p["posture"], q), v])
        from_zero = jnp.concatenate([jaxrbd.difference(model, jaxrbd.neutral(model), q), v])
        com = jaxrbd.center_of_mass(model, kinematics)
        return [
            (p["foot_weights"][t][:, None] * off).ravel(),
            p["com_weight"][t] * (com - p["com"][t]),
            p["state_weights"][t] * change,
            p["bounds_weight"][t] * _beyond(from_zero, p["state_bounds"]),
        ]

    def cost(t, x, u, p, motion):
        forces = motion.multipliers
        if flat:  # the wrenches are in the axes of the soles, and the cones in world axes
            axes = [X.R for X in placements_of_feet(jaxrbd.forward_kinematics(model, x[0]))]
            forces = [(f.reshape(2, 3) @ R.T).ravel() for f, R in zip(forces, axes, strict=True)]
        cone = _beyond(jnp.stack(forces) @ p["cone"].T, p["cone_bounds"])
        by_force = p["cone_weight"][t] * cone.ravel()
        return jnp.concatenate([*of_state(t, x, p), by_force, p["control_weight"][t] * u])

    def last(x, p):
        return jnp.concatenate(of_state(-1, x, p))

    space = optimal_control.state_space(model)
    return optimal_control.Problem(space, dynamics, cost, last, shared=motion)
