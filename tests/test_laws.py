"""The laws of mechanics, for every joint kind at the root, in the middle and at the leaf."""

import dataclasses
import functools
import zlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd.spatial import apply_inertia, transform_force, transform_motion
from support import nightly, zoo
from support.zoo import close

MODELS = {"everywhere": zoo.everywhere, "connected": zoo.connected, "coupled": zoo.coupled}


@functools.cache
def robot(name: str):
    """A model and a random state."""
    model = MODELS[name]()
    return model, zoo.state(model)


@functools.cache
def case(name: str):
    """A model, a random state, and all quantities in the laws, from one compiled program."""
    model, (q, v, a, f) = robot(name)

    @jax.jit
    def evaluate(model, q, v, a, f):
        def kinetic(v):
            return rbd.kinetic_energy(model, q, v)

        def potential(dq):
            return rbd.potential_energy(model, rbd.integrate(model, q, dq))

        def energy(t):
            q_t, v_t = rbd.integrate(model, q, t * v), v + t * a
            return rbd.kinetic_energy(model, q_t, v_t) + rbd.potential_energy(model, q_t)

        at_rest = jnp.zeros(model.nv)
        tau = rbd.rnea(model, q, v, a, f)
        return {
            "M": rbd.crba(model, q),
            "Minv": rbd.minverse(model, q),
            "M a": rbd.mass_matrix_product(model, q, a),
            "tau": tau,
            "unloaded tau": rbd.rnea(model, q, v, a),
            "bias": rbd.bias_force(model, q, v, f),
            "gravity": rbd.gravity_force(model, q),
            "bias at rest": rbd.bias_force(model, q, at_rest),
            "aba": rbd.aba(model, q, v, tau, f),
            "forward_dynamics": rbd.forward_dynamics(model, q, v, tau, f),
            "T": kinetic(v),
            "dT/dv": jax.grad(kinetic)(v),
            "d2T/dv2 a": jax.jvp(jax.grad(kinetic), (v,), (a,))[1],
            "dU/dq": jax.grad(potential)(at_rest),
            "dE/dt": jax.jvp(energy, (0.0,), (1.0,))[1],
        }

    return model, (q, v, a, f), jax.device_get(evaluate(model, q, v, a, f))


@pytest.fixture(params=nightly.all_but(["everywhere"], MODELS))
def law(request):
    return case(request.param)


def test_mass_matrix_is_symmetric_positive_definite(law):
    M = law[2]["M"]
    close(M, M.T, 0)
    assert np.linalg.eigvalsh(M).min() > 0


def test_mass_matrix_times_its_inverse_is_one(law):
    _, _, x = law
    assert np.linalg.cond(x["M"]) < 1e4  # otherwise the tolerance would be meaningless
    close(x["M"] @ x["Minv"], jnp.eye(len(x["M"])), 1e-12 * np.linalg.cond(x["M"]))
    close(x["Minv"], x["Minv"].T, 0)


def test_equation_of_motion(law):
    _, (_, _, a, _), x = law
    close(x["M"] @ a + x["bias"], x["tau"])


def test_mass_matrix_product(law):
    _, (_, _, a, _), x = law
    close(x["M a"], x["M"] @ a)


@pytest.mark.parametrize("algorithm", ["aba", "forward_dynamics"])
def test_forward_dynamics_inverts_inverse_dynamics(law, algorithm):
    _, (_, _, a, _), x = law
    close(x[algorithm], a, 1e-14 * np.linalg.cond(x["M"]))


def test_mass_matrix_is_the_hessian_of_kinetic_energy(law):
    _, (_, v, a, _), x = law
    close(x["d2T/dv2 a"], x["M"] @ a)
    close(x["dT/dv"], x["M"] @ v)
    close(x["T"], v @ x["M"] @ v / 2)


def test_gravity_force_is_the_gradient_of_potential_energy(law):
    x = law[2]
    close(x["gravity"], x["dU/dq"])
    close(x["bias at rest"], x["gravity"])


def test_power_balance(law):
    """The power of the joint forces is the rate of the mechanical energy."""
    _, (_, v, _, _), x = law
    close(x["dE/dt"], v @ x["unloaded tau"])


def test_external_forces_act_through_the_jacobians(law):
    """A force f on a body's frame lowers tau by J^T f, by the principle of virtual work."""
    model, (q, _, _, f), x = law
    chosen = np.arange(model.nb) % 7 == 0

    @jax.jit
    def evaluate(q, f):
        kinematics = rbd.forward_kinematics(model, q)
        return sum(
            rbd.frame_jacobian(model, kinematics, model.body_names[body], "local").T @ f[body]
            for body in np.flatnonzero(chosen)
        )

    q, v, a, _ = law[1]
    some = np.where(chosen[:, None], f, 0)
    close(x["unloaded tau"] - rbd.rnea(model, q, v, a, some), evaluate(q, f))


def test_static_torque_balances_gravity_and_external_forces():
    model = zoo.connected()
    q, _, _, f_ext = zoo.state(model)

    @jax.jit
    def compare(q, f_ext):
        zero = jnp.zeros(model.nv)
        return (
            (rbd.algorithms.static_torque(model, q), rbd.gravity_force(model, q)),
            (
                rbd.algorithms.static_torque(model, q, f_ext),
                rbd.rnea(model, q, zero, zero, f_ext),
            ),
        )

    for torque, expected in compare(q, f_ext):
        close(torque, expected)


def momentum(model, q, v):
    """Total momentum of the bodies about the world's origin, (6,)."""
    X_WB = rbd.forward_kinematics(model, q).X_WB
    V = jnp.stack([rbd.frame_velocity(model, q, v, name, "local") for name in model.body_names])
    return jnp.sum(transform_force(X_WB, apply_inertia(model.inertia, V)), axis=0)


def test_total_wrench_is_the_rate_of_momentum():
    """On a free-flyer, only the root's joint force and gravity change the momentum."""
    model = zoo.small()
    q, v, a, f = zoo.state(model)

    def h(t):
        return momentum(model, rbd.integrate(model, q, t * v), v + t * a)

    @jax.jit
    def wrench_and_rate():
        X_WB = rbd.forward_kinematics(model, q).X_WB
        root = transform_force(jax.tree.map(lambda x: x[0], X_WB), rbd.rnea(model, q, v, a, f)[:6])
        weight = rbd.total_mass(model) * model.gravity
        at_com = jnp.concatenate([weight, jnp.cross(rbd.center_of_mass(model, q), weight)])
        external = jnp.sum(transform_force(X_WB, f), axis=0)
        return root + at_com + external, jax.jvp(h, (0.0,), (1.0,))[1]

    close(*wrench_and_rate())


def test_moving_the_world_changes_nothing():
    """All roots are moved by one pose, and gravity is rotated: M and the forces are the same."""
    model, (q, v, a, f), x = case("everywhere")
    roots = np.array(model.topology.parents) < 0

    @jax.jit
    def evaluate(model, q, v, a, f):
        X = rbd.se3.exp(jnp.array([3.0, -2.0, 5.0, 0.4, -1.0, 0.7]))
        moved = rbd.spatial.compose(X, model.placement)
        placement = jax.tree.map(
            lambda new, old: jnp.where(roots.reshape((-1,) + (1,) * (old.ndim - 1)), new, old),
            moved,
            model.placement,
        )
        elsewhere = eqx.tree_at(
            lambda m: (m.placement, m.gravity), model, (placement, X.R @ model.gravity)
        )
        return (
            rbd.crba(elsewhere, q),
            rbd.rnea(elsewhere, q, v, a, f),
            rbd.center_of_mass(elsewhere, q),
            rbd.spatial.transform_point(X, rbd.center_of_mass(model, q)),
        )

    M, tau, com, com_by_pose = evaluate(model, q, v, a, f)
    close(M, x["M"])
    close(tau, x["tau"])
    close(com, com_by_pose)


CHAINS = {
    "translation": (["prismatic_x", "prismatic_y", "prismatic_z"], "translation"),
    "planar": (["prismatic_x", "prismatic_y", "revolute_z"], "planar"),
    "spherical": (["revolute_z", "revolute_y", "revolute_x"], "spherical"),
    "free_flyer": (
        ["prismatic_x", "prismatic_y", "prismatic_z", "revolute_z", "revolute_y", "revolute_x"],
        "free_flyer",
    ),
}
AXES = {"x": (1, 0, 0), "y": (0, 1, 0), "z": (0, 0, 1)}


def two_links(kind) -> rbd.Model:
    """A link on a joint of the given kind, and a second one on a hinge."""
    rng = np.random.default_rng(7)
    links = [
        rbd.model.Link("a", zoo.random_inertia(rng)),
        rbd.model.Link("b", zoo.random_inertia(rng)),
    ]
    on_world = rbd.model.JointSpec("j", kind, None, "a", zoo.random_placement(rng))
    hinge = rbd.joints.Revolute((0.3, -1.0, 0.5))
    return rbd.build_model(
        links, [on_world, rbd.model.JointSpec("k", hinge, "a", "b", zoo.random_placement(rng))]
    )


@pytest.mark.parametrize("kind", nightly.all_but(["free_flyer"], CHAINS))
def test_a_multi_dof_joint_is_its_chain_of_one_dof_joints(kind):
    """With the chain's coordinates c, q = f(c) and v = E dc/dt: M_chain = E^T M E, and forces."""
    stages = [
        (rbd.joints.Revolute if s.startswith("revolute") else rbd.joints.Prismatic)(AXES[s[-1]])
        for s in CHAINS[kind][0]
    ]
    chain = two_links(rbd.model.Compound(tuple(stages)))
    joint = two_links(zoo.KINDS[kind](None))
    c, dc, ddc, _ = zoo.state(chain)
    c = 0.7 * c

    def coordinates(c):
        """The multi-dof joint's q that gives its link the same pose as the chain's link."""
        X = rbd.frame_placement(chain, c, "a")
        X_0 = jax.tree.map(lambda x: x[0], joint.placement)
        R, p = rbd.spatial.inverse_compose(X_0, X)
        joint_q = {
            "translation": lambda: p,
            "planar": lambda: jnp.array([p[0], p[1], jnp.arctan2(R[1, 0], R[0, 0])]),
            "spherical": lambda: rbd.so3.quaternion_from_matrix(R),
            "free_flyer": lambda: jnp.concatenate([p, rbd.so3.quaternion_from_matrix(R)]),
        }[kind]()
        return jnp.concatenate([joint_q, c[-1:]])

    @jax.jit
    def compare(c, dc, ddc):
        def E(c):
            return jax.jacfwd(lambda d: rbd.difference(joint, coordinates(c), coordinates(d)))(c)

        q, Ec = coordinates(c), E(c)
        v = Ec @ dc
        a = Ec @ ddc + jax.jvp(E, (c,), (dc,))[1] @ dc
        return (
            (rbd.crba(chain, c), Ec.T @ rbd.crba(joint, q) @ Ec),
            (rbd.rnea(chain, c, dc, ddc), Ec.T @ rbd.rnea(joint, q, v, a)),
            (
                rbd.frame_acceleration(chain, c, dc, ddc, "b"),
                rbd.frame_acceleration(joint, q, v, a, "b"),
            ),
        )

    for what, (of_chain, of_joint) in zip(("M", "tau", "acceleration"), compare(c, dc, ddc)):
        close(of_joint, of_chain, 1e-11, what)


def test_renaming_and_reordering_permutes_the_result():
    model, (q, v, a, _) = robot("connected")
    links, specs = rbd.model.describe(model)
    rename = {name: f"x{zlib.crc32(name.encode()) % 97}_{name}" for name in model.body_names}
    links = [rbd.model.Link(rename[link.name], link.inertia) for link in links][::-1]
    specs = [
        dataclasses.replace(
            s, name=f"n_{s.name}", parent=rename.get(s.parent), child=rename[s.child]
        )
        for s in specs
    ][::-1]
    other = rbd.build_model(links, specs)
    order = [model.joint_names.index(name[2:]) for name in other.joint_names]
    assert order != sorted(order)
    starts_q, starts_v = model.topology.q_start, model.topology.v_start
    q_order = np.concatenate([starts_q[i] + np.arange(model.topology.nqs[i]) for i in order])
    v_order = np.concatenate([starts_v[i] + np.arange(model.topology.nvs[i]) for i in order])
    close(rbd.crba(other, q[q_order]), rbd.crba(model, q)[np.ix_(v_order, v_order)])
    tau = rbd.rnea(other, q[q_order], v[v_order], a[v_order])
    close(tau, rbd.rnea(model, q, v, a)[v_order])


def test_mimic_is_the_projection_of_the_free_robot():
    """With v_free = G v: M and tau of the coupled robot are `G^T M G`, `G^T tau`."""
    model, (q, v, a, f) = robot("coupled")
    free = eqx.tree_at(lambda m: m.coupling, model, None, is_leaf=lambda c: c is None)
    frame = model.body_names[-1]

    @jax.jit
    def compare(q, v, a, f):
        G = jax.jacfwd(lambda v: model.coupling.velocity(q, v))(jnp.zeros(model.nv))
        q_free = model.coupling.position(q)
        J = rbd.frame_jacobian(model, q, frame)
        return {
            "M": (G.T @ rbd.crba(free, q_free) @ G, rbd.crba(model, q)),
            "tau": (
                G.T @ rbd.rnea(free, q_free, G @ v, G @ a, f),
                rbd.rnea(model, q, v, a, f),
            ),
            "J": (rbd.frame_jacobian(free, q_free, frame) @ G, J),
            "velocity": (J @ v, rbd.frame_velocity(model, q, v, frame)),
        }

    for what, (found, expected) in compare(q, v, a, f).items():
        close(found, expected, what=what)


REFERENCES = ("local", "world", "local_world_aligned")


@functools.cache
def velocities_and_accelerations(name):
    """By reference: the velocity and the acceleration of a frame from its Jacobian, and alone."""
    model, (q, v, a, _) = robot(name)
    frame = model.body_names[-1]

    @jax.jit
    def evaluate(model, q, v, a):
        def jacobians(t):
            kinematics = rbd.forward_kinematics(model, rbd.integrate(model, q, t * v))
            return [rbd.frame_jacobian(model, kinematics, frame, x) for x in REFERENCES]

        at, rates = jax.jvp(jacobians, (0.0,), (1.0,))
        return {
            x: (
                (J @ v, rbd.frame_velocity(model, q, v, frame, x)),
                (J @ a + J_dot @ v, rbd.frame_acceleration(model, q, v, a, frame, x)),
            )
            for x, J, J_dot in zip(REFERENCES, at, rates)
        }

    return evaluate(model, q, v, a)


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize("name", nightly.all_but(["everywhere"], MODELS))
def test_jacobian_velocity_and_acceleration_agree(name, reference):
    pairs = velocities_and_accelerations(name)[reference]
    for what, (left, right) in zip(("velocity", "acceleration"), pairs):
        close(left, right, what=what)


@pytest.mark.parametrize("build", nightly.all_but([zoo.small], [zoo.small, zoo.connected]))
def test_classical_acceleration_is_the_second_derivative_of_position(build):
    model = build()
    q, v, a, _ = zoo.state(model)
    frame = model.body_names[-1]

    def position(t):
        # The curve has velocity v and acceleration a at t = 0 to second order.
        first = rbd.integrate(model, q, t * v)
        return rbd.frame_placement(model, rbd.integrate(model, first, t * t * a / 2), frame).p

    second = jax.jit(jax.jacfwd(jax.jacfwd(position)))(0.0)
    close(second, rbd.frame_acceleration(model, q, v, a, frame)[:3])


def test_external_force_in_each_reference():
    """The same physical wrench, stated in three references, is the same f_ext."""
    model, (q, _, _, _) = robot("connected")
    frame, body = model.frame_names[-1], model.frame_bodies[-1]

    @jax.jit
    def evaluate(q):
        wrench, v = jnp.array([1.0, -2.0, 0.5, 0.3, 0.7, -0.2]), jnp.ones(model.nv)
        X = rbd.frame_placement(model, q, frame)
        aligned = transform_force(rbd.Pose(X.R, jnp.zeros(3)), wrench)
        world = transform_force(X, wrench)
        wrenches = {"local": wrench, "local_world_aligned": aligned, "world": world}
        forces = [rbd.external_force(model, q, frame, w, x) for x, w in wrenches.items()]
        V = transform_motion(X, rbd.frame_velocity(model, q, v, frame, "local"))
        V_B = rbd.frame_velocity(model, q, v, model.body_names[body], "local")
        return forces, (world @ V, forces[0][body] @ V_B)

    (local, *others), powers = evaluate(q)
    for other in others:
        close(other, local)
    close(*powers)
