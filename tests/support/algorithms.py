"""Every algorithm of the package as one function of (model, q, v, u, f), for sweeps over them all.

u is an acceleration or a torque, f the external forces; the model is `zoo.small()` or has its
structure.
"""

import inspect

import jax
import jax.numpy as jnp

import jaxrbd as rbd
from jaxrbd import constraints as con, contact

LOOP = (con.point(None, "l2", (0.1, 0.2, 0.3)),)
SCENE = contact.Scene(("l0", "l2"), 0.1)
FRAMES = ("l1", "l2")


def dynamics(model, u):
    return lambda q, v: rbd.forward_dynamics(model, q, v, u)


def step(integrator):
    return lambda m, q, v, u, f: integrator(m, dynamics(m, u), q, v, 0.01)


def scalar(model, v):
    return lambda q: rbd.kinetic_energy(model, q, v)


def draw(model, q):
    seed = (1000 * jnp.abs(q[0])).astype(jnp.uint32)
    return rbd.random_configuration(model, jax.random.fold_in(jax.random.key(0), seed))


# The modules whose functions take a robot, and what they offer, by name.
MODULES = (
    rbd,
    rbd.algorithms,
    rbd.configuration,
    rbd.constraints,
    rbd.contact,
    rbd.identification,
    rbd.integrators,
    rbd.io,
    rbd.model,
    rbd.robots,
    rbd.sharding,
    rbd.tangent,
)
PUBLIC = {name: getattr(module, name) for module in MODULES for name in module.__all__}


def taking(names, **of):
    """By name, functions of the package that take these arguments after the model."""

    def one(name):
        def call(m, q, v, u, f):
            found = {"q": q, "v": v, "u": u, "f": f, "frame": "l2", "frames": FRAMES}
            return PUBLIC[name](m, *(found[argument] for argument in of["by"].split()))

        return call

    return {name: one(name) for name in names.split()}


ALGORITHMS = {
    **taking("rnea aba forward_dynamics", by="q v u f"),
    **taking("rnea_derivatives forward_dynamics_derivatives", by="q v u f"),
    **taking("rnea_second_order forward_dynamics_second_order", by="q v u u f"),
    **taking("centroidal_derivatives centroidal_momentum_rate joint_torque_regressor", by="q v u"),
    **taking("bias_force coriolis_matrix passive_force kinetic_energy", by="q v"),
    **taking("centroidal_momentum centroidal_momentum_matrix_dot", by="q v"),
    **taking("kinetic_energy_regressor configuration_rate integrate", by="q v"),
    **taking("crba minverse aba_minverse gravity_force static_torque", by="q"),
    **taking("center_of_mass com_jacobian centroidal_momentum_matrix potential_energy", by="q"),
    **taking("potential_energy_regressor forward_kinematics", by="q"),
    **taking("mass_matrix_product", by="q u"),
    **taking("velocity_bracket", by="u v"),
    **taking("frame_placement frame_jacobian", by="q frame"),
    **taking("frame_velocity frame_jacobian_dot frame_velocity_derivatives", by="q v frame"),
    **taking("frame_acceleration frame_acceleration_derivatives", by="q v u frame"),
    **taking("delassus_matrix", by="q frames"),
    "operational_space_inertia": lambda m, q, v, u, f: rbd.algorithms.operational_space_inertia(
        m, q, FRAMES, damping=0.1
    ),
    "total_mass": lambda m, q, v, u, f: rbd.total_mass(m) + q[0],
    "neutral": lambda m, q, v, u, f: rbd.neutral(m) + q,
    "random_configuration": lambda m, q, v, u, f: draw(m, q),
    "difference": lambda m, q, v, u, f: rbd.difference(m, q, rbd.neutral(m)),
    "interpolate": lambda m, q, v, u, f: rbd.interpolate(m, q, rbd.neutral(m), v[0]),
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
    "constrained_dynamics": lambda m, q, v, u, f: con.constrained_dynamics(m, q, v, u, LOOP, f),
    "constraint_rows": lambda m, q, v, u, f: con.constraint_rows(m, q, v, LOOP),
    "constraint_wrenches": lambda m, q, v, u, f: con.constraint_wrenches(m, q, LOOP, (u[:3],)),
    "impact": lambda m, q, v, u, f: con.impact(m, q, v, LOOP),
    "kkt_system": lambda m, q, v, u, f: con.kkt_system(m, q, v, u, LOOP, f),
    "close_loops": lambda m, q, v, u, f: con.close_loops(m, q, LOOP),
    "explicit_dynamics": lambda m, q, v, u, f: con.explicit_dynamics(
        m, lambda y: rbd.integrate(m, q, jnp.outer(v, y)[:, 0]), u[:1], v[:1], u, f
    ),
    "maximal_dynamics": lambda m, q, v, u, f: con.maximal_dynamics(m, q, v, u, f),
    "joint_subspaces": lambda m, q, v, u, f: con.joint_subspaces(m, q, "j1"),
    "contact_points": lambda m, q, v, u, f: contact.contact_points(m, SCENE, q, v),
    "contact_energy": lambda m, q, v, u, f: contact.contact_energy(m, SCENE, q),
    "contact_force": lambda m, q, v, u, f: contact.contact_force(m, SCENE, q, v),
    "contact_step": lambda m, q, v, u, f: contact.contact_step(m, SCENE, q, v, u, 0.01, f),
}

# Functions of a model that no program can hold: they work in numpy, on the host.
ON_THE_HOST = {
    "append_model",
    "base_parameters",
    "describe",
    "identify_consistent_inertia",
    "identify_inertia",
    "lock_joints",
    "save_model",
}


def functions_of_a_model():
    """The names of all public functions whose first argument is a model."""
    return {
        name
        for name, thing in PUBLIC.items()
        if inspect.isfunction(inspect.unwrap(thing))
        and next(iter(inspect.signature(thing).parameters), None) == "model"
    }
