"""Every algorithm of the package as a function of (model, q, v, u, f), for tests of all of them.

u is an acceleration or a torque, f the external forces. The model has the frames l1 and l2 and the
joint j1, as the robots of `zoo.build` do. The entries with contact points also need the frame l0.
"""

import inspect

import jax
import jax.numpy as jnp

import jaxrbd as rbd
from jaxrbd import (
    collision,
    constraints as con,
    contact,
    inverse_kinematics as ik,
    optimal_control,
    sensors,
    tendons,
)
from jaxrbd.model.shapes import Sphere

LOOP = (con.point(None, "l2", (0.1, 0.2, 0.3)),)
SCENE = contact.Scene(("l0", "l2"), 0.1)
TENDONS = tendons.Tendons(
    [
        tendons.SpatialTendon(
            "cable",
            [
                tendons.PathPoint("l1", (0.3, 0.2, 0.4)),
                tendons.Wrap(Sphere(0.05), "l1"),
                tendons.PathPoint("l2", (0.1, 0.2, 0.3)),
            ],
        )
    ],
    stiffness=[3.0],
    damping=[0.5],
    armature=[0.2],
)
FRAMES = ("l1", "l2")
ROD, BRICK = collision.Capsule(0.1, 0.2), collision.Box([0.2, 0.3, 0.4], 0.05)
PAIRS = collision.DistancePairs(
    (
        collision.PlacedShape(ROD, "l1", [0.1, 0.2, 0.3]),
        collision.PlacedShape(BRICK, "l2"),
        collision.PlacedShape(collision.Sphere(0.3), "l2", [0.5, 0.0, 0.1]),
    ),
    ((0, 1), (0, 2)),
)


def dynamics(model, u):
    return lambda q, v: rbd.forward_dynamics(model, q, v, u)


def step(integrator):
    return lambda m, q, v, u, f: integrator(m, dynamics(m, u), q, v, 0.01)


def shooting_step(model):
    return optimal_control.shooting_step(
        model, optimal_control.joint_torques(model), rbd.integrators.semi_implicit_euler, 0.01
    )


def distance(model, q):
    """The distance of a capsule and a box on two frames, with the nearest points."""
    kinematics = rbd.forward_kinematics(model, q)
    X_a, X_b = (rbd.frame_placement(model, kinematics, frame) for frame in FRAMES)
    return collision.distance(ROD, X_a, BRICK, X_b)


def scalar(model, v):
    return lambda q: rbd.kinetic_energy(model, q, v)


def step_of(f):
    """A contact step of `SCENE`, whose impulses are the first external forces."""
    nothing = [None] * 3
    return contact.ContactStep(*nothing, f[:2, :3], f[:2, 3:], *nothing, None)


def tasks(model, q):
    """A posture is the target, so the solution is unique."""
    return [ik.PostureTask(q, 1.0), ik.FrameTask.position("l2", [0.1, 0.2, 0.3]), *LOOP]


def draw(model, q):
    seed = (1000 * jnp.abs(q[0])).astype(jnp.uint32)
    return rbd.random_configuration(model, jax.random.fold_in(jax.random.key(0), seed))


# The modules whose functions take a robot, and their public names.
MODULES = (
    rbd,
    rbd.actuators,
    rbd.algorithms,
    rbd.collision,
    rbd.configuration,
    rbd.constraints,
    rbd.contact,
    rbd.identification,
    rbd.integrators,
    rbd.inverse_kinematics,
    rbd.io,
    rbd.model,
    rbd.optimal_control,
    rbd.robots,
    rbd.sensors,
    rbd.sharding,
    rbd.tangent,
    rbd.tendons,
    rbd.view,
)
PUBLIC = {name: getattr(module, name) for module in MODULES for name in module.__all__}


# The arguments after the model, of the functions that take nothing but these.
ARGUMENTS = {
    name: arguments.split()
    for arguments, names in {
        "q v u f": "rnea joint_wrenches aba forward_dynamics rnea_derivatives"
        " forward_dynamics_derivatives",
        "q v u u f": "rnea_second_order forward_dynamics_second_order",
        "q v u": "body_motions centroidal_derivatives centroidal_momentum_rate"
        " joint_torque_regressor",
        "q v": "bias_force coriolis_matrix passive_force kinetic_energy kinetic_energy_regressor"
        " centroidal_momentum centroidal_momentum_matrix_dot configuration_rate displace integrate",
        "q": "frame_placements crba minverse aba_minverse gravity_force forward_kinematics"
        " potential_energy potential_energy_regressor center_of_mass com_jacobian"
        " centroidal_momentum_matrix",
        "q f": "static_torque",
        "q u": "mass_matrix_product",
        "u v": "transport velocity_bracket",
        "v": "turning_acceleration",
        "q frame": "frame_placement frame_jacobian projected_gravity",
        "q v frame": "frame_velocity frame_jacobian_dot frame_velocity_derivatives",
        "q v u frame": "frame_acceleration frame_acceleration_derivatives imu",
        "q v joint": "joint_calc",
        "q frames": "delassus_matrix",
    }.items()
    for name in names.split()
}


def operands(name, q, v, u, f):
    """The arguments after the model, for a function of `ARGUMENTS`."""
    values = {"q": q, "v": v, "u": u, "f": f, "frame": "l2", "frames": FRAMES, "joint": "j2"}
    return [values[argument] for argument in ARGUMENTS[name]]


def public(name):
    return lambda model, *state: PUBLIC[name](model, *operands(name, *state))


# Each entry may return a pytree.
ALGORITHMS = {
    "tendon_dynamics": lambda m, q, v, u, f: tendons.tendon_dynamics(m, TENDONS, q, v, u, f),
    **{name: public(name) for name in ARGUMENTS},
    "operational_space_inertia": lambda m, q, v, u, f: rbd.algorithms.operational_space_inertia(
        m, q, FRAMES, damping=0.1
    ),
    "total_mass": lambda m, q, v, u, f: rbd.total_mass(m) + q[0],
    "neutral": lambda m, q, v, u, f: rbd.neutral(m) + q,
    "random_configuration": lambda m, q, v, u, f: draw(m, q),
    "difference": lambda m, q, v, u, f: rbd.difference(m, q, rbd.integrate(m, q, 0.1 * v)),
    "interpolate": lambda m, q, v, u, f: rbd.interpolate(m, q, rbd.integrate(m, q, 0.1 * v), u[0]),
    "external_force": lambda m, q, v, u, f: rbd.external_force(m, q, "l2", u[:6]),
    "point_jacobian": lambda m, q, v, u, f: rbd.algorithms.point_jacobian(m, q, "l2", u[:3]),
    "ltl_factor": lambda m, q, v, u, f: rbd.algorithms.ltl_factor(m, rbd.crba(m, q)),
    "ltl_solve": lambda m, q, v, u, f: rbd.algorithms.ltl_solve(
        m, rbd.algorithms.ltl_factor(m, rbd.crba(m, q)), u
    ),
    "gradient": lambda m, q, v, u, f: rbd.gradient(m, scalar(m, v))(q),
    "jacobian": lambda m, q, v, u, f: rbd.jacobian(m, lambda q: rbd.gravity_force(m, q))(q),
    "hessian": lambda m, q, v, u, f: rbd.hessian(m, scalar(m, v))(q),
    "explicit_euler": step(rbd.integrators.explicit_euler),
    "semi_implicit_euler": step(rbd.integrators.semi_implicit_euler),
    "runge_kutta_munthe_kaas": step(rbd.integrators.runge_kutta_munthe_kaas),
    "variational_midpoint": step(rbd.integrators.variational_midpoint),
    "step_derivatives": lambda m, q, v, u, f: rbd.integrators.step_derivatives(
        m, rbd.integrators.semi_implicit_euler, q, v, u, 0.01, f
    ),
    "state_space": lambda m, q, v, u, f: optimal_control.state_space(m).retract(
        (q, v), jnp.concatenate([0.1 * v, u])
    ),
    "joint_torques": lambda m, q, v, u, f: optimal_control.joint_torques(m)(0, q, v, u, None),
    "shooting_step": lambda m, q, v, u, f: shooting_step(m)(0, (q, v), u, None),
    "constrained_dynamics": lambda m, q, v, u, f: con.constrained_dynamics(m, q, v, u, LOOP, f),
    "constrained_dynamics_derivatives": lambda m, q, v, u, f: con.constrained_dynamics_derivatives(
        m, q, v, u, LOOP, f
    ),
    "impact_derivatives": lambda m, q, v, u, f: con.impact_derivatives(m, q, v, LOOP),
    "constraint_rows": lambda m, q, v, u, f: con.constraint_rows(m, q, v, LOOP),
    "constraint_wrenches": lambda m, q, v, u, f: con.constraint_wrenches(m, q, LOOP, (u[:3],)),
    "impact": lambda m, q, v, u, f: con.impact(m, q, v, LOOP),
    "kkt_system": lambda m, q, v, u, f: con.kkt_system(m, q, v, u, LOOP, f),
    "close_loops": lambda m, q, v, u, f: con.close_loops(m, q, LOOP)[:2],  # without the flag
    "explicit_dynamics": lambda m, q, v, u, f: con.explicit_dynamics(
        m, lambda y: rbd.integrate(m, q, jnp.outer(v, y)[:, 0]), u[:1], v[:1], u, f
    ),
    "maximal_dynamics": lambda m, q, v, u, f: con.maximal_dynamics(m, q, v, u, f),
    "maximal_system": lambda m, q, v, u, f: con.maximal_system(m, q, v, u, f),
    "joint_subspaces": lambda m, q, v, u, f: con.joint_subspaces(m, q, "j1"),
    "contact_points": lambda m, q, v, u, f: contact.contact_points(m, SCENE, q, v),
    "contact_energy": lambda m, q, v, u, f: contact.contact_energy(m, SCENE, q),
    "contact_force": lambda m, q, v, u, f: contact.contact_force(m, SCENE, q, v),
    "inverse_inertias": lambda m, q, v, u, f: contact.inverse_inertias(m, SCENE),
    "contact_step": lambda m, q, v, u, f: contact.contact_step(m, SCENE, q, v, u, 0.01, f),
    "contact_step_derivatives": lambda m, q, v, u, f: contact.contact_step_derivatives(
        m, SCENE, q, v, u, 0.01, f
    ),
    "step_wrenches": lambda m, q, v, u, f: contact.step_wrenches(m, SCENE, q, step_of(f), 0.01),
    "distance": lambda m, q, v, u, f: distance(m, q),
    "robot_distances": lambda m, q, v, u, f: collision.robot_distances(m, q, PAIRS),
    "robot_separations": lambda m, q, v, u, f: collision.robot_separations(m, q, PAIRS),
    "joint_encoders": lambda m, q, v, u, f: sensors.joint_encoders(m, q, v, ("j2",)),
    "touch": lambda m, q, v, u, f: (
        sensors.touch(
            m, SCENE, q, contact.contact_step(m, SCENE, q, v, u, 0.01, f), 0.01
        ).normal_force
    ),
    "height_scan": lambda m, q, v, u, f: sensors.height_scan(
        m, q, contact.Plane(), "l2", [[0.0, 0.0], [0.2, 0.1]]
    ),
}
ALGORITHMS |= {
    "inverse_kinematics": lambda m, q, v, u, f: ik.inverse_kinematics(m, tasks(m, q), q).q,
    "search_inverse_kinematics": lambda m, q, v, u, f: (
        ik.search_inverse_kinematics(m, tasks(m, q), jax.random.key(0), 2, q).q
    ),
    "differential_inverse_kinematics": lambda m, q, v, u, f: ik.differential_inverse_kinematics(
        m, q, tasks(m, q), 0.1
    ),
}

# Functions of a model that are no compiled programs: they use NumPy, or they add names to a model.
ON_THE_HOST = {
    "add_frame",
    "place_frames",
    "append_model",
    "base_parameters",
    "contact_shooting",  # it makes the dynamics of a problem, whose program is `contact_step`
    "describe",
    "drawing",
    "frame_path",
    "identify_consistent_inertia",
    "identify_inertia",
    "lock_joints",
    "pairs_of",
    "read_meshes",
    "render",
    "save_model",
    "save_urdf",
    "serve",
    "show",
    "urdf_text",
}


def functions_of_a_model():
    """The names of the public functions whose first argument is a model."""
    return {
        name
        for name, thing in PUBLIC.items()
        if inspect.isfunction(inspect.unwrap(thing))
        and next(iter(inspect.signature(thing).parameters), None) == "model"
    }
