"""Constrained motion: agreement of the book's methods, redundant rows, derivatives."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import constraints as con, inverse_kinematics as ik, so3, spatial
from jaxrbd.algorithms.kinematics import root_centred
from jaxrbd.constraints import closing
from jaxrbd.model import JointSpec, Link, euler, link_inertia, universal
from jaxrbd.robots import linkages
from jaxrbd.robots.linkages import linkage_names, load_linkage
from jaxrbd.spatial import transform_motion
from support import zoo
from support.finite_differences import slope
from support.zoo import close


def pose(seed):
    H = zoo.random_placement(np.random.default_rng(seed))
    return spatial.pose_from_matrix(jnp.asarray(H))


class Planes(eqx.Module):
    """A point stays on m planes: `normals @ p = 0`, with normals (m, 3)."""

    normals: jax.Array

    def __call__(self, X):
        return jnp.matmul(self.normals, X.p, precision="highest")


def slide(X):
    """A user-defined kind: B's origin stays on a plane of A that rotates with B's axes."""
    return jnp.sum(X.R[:, :1] * X.p[:, None], axis=0)


KINDS = {
    "point": con.point("l3", "l2", (0.1, 0.2, 0.3), (0.3, 0.2, 0.1)),
    "contact": con.point(None, "l5", (0.5, 0.2, 0.1)),
    "hinge": con.hinge("l2", "l3", (1.0, 2.0, -1.0), pose(0), pose(1)),
    "weld": con.weld("l1", None, pose(2), pose(3)),
    "own": con.FrameConstraint(slide, "l0", "l2"),
}
EACH = tuple(KINDS.values())
CONTACT = KINDS["contact"]
# A point on a line, and on a third plane that crosses the line or contains it.
NORMALS = jnp.array([[1.0, 2.0, 0.5], [-1.0, 0.3, 0.8]])
LINE = con.FrameConstraint(Planes(NORMALS), "l3", "l2", pose(4), pose(5))
ACROSS, THROUGH = (
    con.FrameConstraint(Planes(normal[None]), "l3", "l2", pose(4), pose(5))
    for normal in (jnp.array([0.2, -0.4, 1.0]), 0.7 * NORMALS[0] - 1.3 * NORMALS[1])
)
ONE_MORE = pytest.mark.parametrize("one_more", [ACROSS, THROUGH], ids=["independent", "redundant"])
REDUNDANT = pytest.mark.parametrize(  # by default; the nightly run has both
    "one_more",
    [pytest.param(ACROSS, marks=pytest.mark.slow), THROUGH],
    ids=["independent", "redundant"],
)


@pytest.fixture(scope="module")
def model():
    """A floating tree with a branch and armature."""
    kinds = ["free_flyer", "spherical", "revolute", "prismatic", "revolute", "revolute"]
    return zoo.build(kinds, [-1, 0, 1, 0, 3, 4], seed=9, armature=0.1)


# --------------------------------------------------------------------------------- implicit ones


@pytest.mark.slow
def test_rows_are_the_derivatives_of_the_equations(model):
    q, *_ = zoo.state(model)
    for seed in range(3):
        v = zoo.state(model, seed)[1]
        rows = con.constraint_rows(model, q, v, EACH)

        def moving(t, v=v):
            there = con.constraint_rows(model, rbd.integrate(model, q, t * v), v, EACH)
            return there.position, there.K @ v

        velocity, acceleration = slope(moving)
        close(rows.K @ v, velocity, 1e-9, "K v")
        close(rows.bias, acceleration, 1e-9, "dK/dt v")


@pytest.mark.slow
def test_equations_are_differentiated(model):
    """Rows of the same equations, from the motion of the bodies and from a function of q."""
    q, v, *_ = zoo.state(model)
    names = ("l2", "l5")
    equation = con.Equation(
        lambda model, q: jnp.concatenate([rbd.frame_placement(model, q, x).p for x in names])
    )
    both = [con.point(None, name) for name in names]
    of_equation, of_bodies = rows_of_both(model, q, v, equation, both)
    for name in ("position", "K", "bias"):
        close(getattr(of_equation, name), getattr(of_bodies, name), 1e-11, name)


@pytest.mark.slow
def test_a_blade_does_not_slip_sideways():
    """A sleigh: the velocity is along the blade, and the force across the blade rotates it."""
    mass, speed, turn = 3.0, 0.8, 1.5
    link = rbd.model.Link("sleigh", rbd.model.link_inertia(mass, (0, 0, 0), np.eye(3)))
    joint = rbd.model.JointSpec("plane", rbd.joints.Planar(), None, "sleigh")
    model = rbd.build_model([link], [joint], gravity=(0.0, 0.0, 0.0))
    blade = con.Nonholonomic(lambda model, q: jnp.array([[0.0, 1.0, 0.0]]))
    # The same with the blade in the world's axes: the rows rotate.
    heading = con.Nonholonomic(
        lambda model, q: (
            jnp.array([[-jnp.sin(q[2]), jnp.cos(q[2])]])
            @ rbd.frame_jacobian(model, q, "sleigh")[:2]
        )
    )
    q, v, zero = jnp.array([0.1, 0.2, 0.7]), jnp.array([speed, 0.0, turn]), jnp.zeros(3)
    for constraint in (blade, heading):
        found = con.constrained_dynamics(model, q, v, zero, [constraint])
        close(found.acceleration, zero, 1e-14, "in the body's axes")
        close(found.multipliers[0], [mass * speed * turn], 1e-14, "the force across")
    with pytest.raises(rbd.ArgumentError, match="has no forces on bodies"):
        con.constraint_wrenches(model, q, [blade], found.multipliers)


@jax.jit
def rows_of_both(model, q, v, equation, constraints):
    return [con.constraint_rows(model, q, v, c) for c in ([equation], constraints)]


@jax.jit
def solutions(model, q, v, a, f_ext, constraints):
    tau = rbd.rnea(model, q, v, a, f_ext)
    dynamics = con.constrained_dynamics(model, q, v, tau, constraints, f_ext)
    system = con.kkt_system(model, q, v, tau, constraints, f_ext)
    wrenches = con.constraint_wrenches(model, q, constraints, dynamics.multipliers)
    again = rbd.forward_dynamics(model, q, v, tau, f_ext + wrenches)
    hit = jax.vmap(lambda e: con.impact(model, q, v, constraints, e))(jnp.array([1.0, 0.0]))
    impacts = [jax.tree.map(lambda x: x[i], hit) for i in range(2)]
    energies = [rbd.kinetic_energy(model, q, x) for x in (v, impacts[0].velocity)]
    return dynamics, system, again, impacts, energies


@pytest.mark.slow
@ONE_MORE
def test_the_acceleration_is_that_of_the_kkt_system(model, one_more):
    q, v, a, f_ext = zoo.state(model, 1)
    constraints = (LINE, CONTACT, one_more)
    dynamics, (A, b), again, (elastic, plastic), energies = jax.device_get(
        solutions(model, q, v, a, f_ext, constraints)
    )
    K = A[model.nv :, : model.nv]
    solution = np.concatenate([dynamics.acceleration, *(-x for x in dynamics.multipliers)])
    close(A @ solution, b, 1e-11, "KKT")
    close(again, dynamics.acceleration, 1e-11, "the forces on the bodies")
    close(K @ elastic.velocity, -K @ v, 1e-11, "restitution 1")
    close(K @ plastic.velocity, np.zeros(len(K)), 1e-11, "restitution 0")
    close(energies[1], energies[0], 1e-11, "restitution 1 keeps the energy")
    if one_more is ACROSS:
        close(np.linalg.solve(A, b), solution, 1e-9, "a direct solution")
    else:
        alone = np.linalg.solve(A[:-1, :-1], b[:-1])[: model.nv]
        close(dynamics.acceleration, alone, 1e-11, "redundant rows change nothing")
        multiplier = np.concatenate(dynamics.multipliers)
        s = np.sum(K**2 / np.diagonal(A)[None, : model.nv], axis=1) ** -0.5
        A = s[:, None] * K
        close(A @ np.linalg.pinv(A) @ (multiplier / s), multiplier / s, 1e-10, "the shortest")


def test_no_constraint_is_free_motion(model):
    q, v, a, f_ext = zoo.state(model)
    tau = rbd.rnea(model, q, v, a, f_ext)
    found = con.constrained_dynamics(model, q, v, tau, (), f_ext)
    assert found.multipliers == ()
    close(found.acceleration, a, 1e-11)


@pytest.mark.slow
def test_stabilisation_is_a_critically_damped_return(model):
    q, v, a, f_ext = zoo.state(model)
    rows = con.constraint_rows(model, q, v, (LINE, CONTACT))
    found = con.constrained_dynamics(model, q, v, a, (LINE, CONTACT), f_ext, 7.0)
    second = rows.K @ found.acceleration + rows.bias
    close(second + 14.0 * rows.K @ v + 49.0 * rows.position, jnp.zeros(5), 1e-10)


def number(model, q, v, tau, constraints):
    """A scalar that depends on all results of the dynamics."""
    found = con.constrained_dynamics(model, q, v, tau, constraints, None, 2.0)
    parts = jnp.concatenate([found.acceleration, *found.multipliers])
    return jnp.sum(jnp.cos(jnp.arange(len(parts)).astype(parts.dtype)) * parts)


@jax.jit
def value_and_rate(operands, direction, t):
    """The number at operands that have moved by t times the direction, and its rate."""
    moved = jax.tree.map(lambda x, dx: x + t * dx, operands, direction)
    return jax.jvp(number, moved, direction)


@jax.jit
def by_reverse_mode(operands, direction):
    gradient = jax.grad(number, argnums=(0, 1, 2, 3, 4))(*operands)
    return sum(jax.tree.leaves(jax.tree.map(lambda x, y: jnp.sum(x * y), gradient, direction)))


LIMITS = ("lower_position_limit", "upper_position_limit", "velocity_limit", "effort_limit")


def operands_and_direction(model, one_more):
    """q, v, tau and all parameters of the model and the constraints, and a direction of change.

    Redundant rows stay redundant: both constraints' frames move equally, the normals do not move.
    """
    rng = np.random.default_rng(3)
    q, v, tau, _ = zoo.state(model)
    operands = (model, q, v, tau, (LINE, one_more))
    direction = jax.tree.map(lambda x: jnp.asarray(0.1 * rng.normal(size=np.shape(x))), operands)
    shared, poses = direction[4][0], lambda c: (c.X_a, c.X_b)
    still = jax.tree.map(jnp.zeros_like, operands[4])
    direction = (*direction[:4], tuple(eqx.tree_at(poses, c, poses(shared)) for c in still))
    # Limits are infinite.
    still = {name: jnp.zeros_like(getattr(model, name)) for name in LIMITS}
    direction = (dataclasses.replace(direction[0], **still), *direction[1:])
    return jax.tree.map(jnp.asarray, operands), direction


@pytest.mark.slow
@REDUNDANT
def test_derivatives_in_everything_are_the_true_ones(one_more):
    model = zoo.build(["free_flyer", "spherical", "revolute", "revolute"], [-1, 0, 1, 0], 9)
    operands, direction = operands_and_direction(model, one_more)
    rate = value_and_rate(operands, direction, 0.0)[1]
    close(rate, slope(lambda t: value_and_rate(operands, direction, t)[0]), 1e-6)


@pytest.mark.slow
@ONE_MORE
def test_both_modes_have_the_same_derivatives_in_everything(model, one_more):
    operands, direction = operands_and_direction(model, one_more)
    rate = value_and_rate(operands, direction, 0.0)[1]
    close(by_reverse_mode(operands, direction), rate, 1e-9)


@pytest.mark.slow
def test_second_derivatives_with_redundant_rows():
    model, constraints, q = load_linkage("four_bar")
    _, v, tau, _ = zoo.state(model)

    @jax.jit
    def gradient(t):
        operands = (model, q + t * tau, v, tau, constraints)
        return jax.grad(number, argnums=2)(*operands)

    second = jax.jit(jax.jacfwd(gradient))(jnp.zeros(()))
    close(second, slope(gradient), 1e-6)


# ------------------------------------------------------------------------------ explicit ones


@pytest.mark.slow
def test_three_ways_to_follow():
    """One joint is a function of another: as part of the model, explicitly, and implicitly."""

    def lead(x):
        return jnp.sin(2 * x[0]) + 0.3 * x[0] ** 2

    def robot(follow):
        kinds = [
            rbd.joints.Revolute((0, 1, 0)),
            rbd.joints.Revolute((1, 1, 0)),
            rbd.joints.Spherical(),
        ]
        rng = np.random.default_rng(0)
        return zoo.serial(kinds, rng, follow, lambda kind: {"armature": 0.1})

    coupled, free = robot({"j1": rbd.model.Follow(("j0",), lead)}), robot({})
    y, y_dot, tau, _ = zoo.state(coupled)

    def gamma(angle):
        return jnp.concatenate([angle, lead(angle)[None], y[1:]])

    @jax.jit
    def accelerations(y, y_dot, tau):
        # The ball joint is fixed in these coordinates: gamma returns its present configuration.
        explicit = con.explicit_dynamics(free, gamma, y[:1], y_dot[:1], spread(tau))
        held = con.Equation(lambda model, q: rbd.difference(model, gamma(q[:1]), q)[1:])
        implicit = con.constrained_dynamics(free, explicit.q, explicit.v, spread(tau), [held])
        follows = con.Equation(lambda model, q: q[1:2] - lead(q[:1])[None])
        v = jnp.concatenate([explicit.v[:2], y_dot[1:]])
        whole = con.constrained_dynamics(free, explicit.q, v, spread(tau), [follows])
        return explicit, implicit, whole, rbd.forward_dynamics(coupled, y, y_dot, tau)

    def spread(tau):
        return jnp.concatenate([tau[:1], jnp.zeros(1), tau[1:]])

    explicit, implicit, whole, of_model = accelerations(y, y_dot, tau)
    close(implicit.acceleration, explicit.a, 1e-11, "explicit and implicit")
    close(explicit.M @ explicit.y_accel + explicit.C, explicit.G.T @ spread(tau), 1e-11, "(3.21)")
    independent = whole.acceleration[np.array([0, 2, 3, 4])]
    close(independent, of_model, 1e-11, "implicit and the model's own")


def test_explicit_dynamics_without_a_constraint():
    """With all coordinates independent they equal forward_dynamics, with external forces."""
    model = zoo.build(["revolute", "prismatic", "helical"], [-1, 0, 1], seed=5, armature=0.1)
    model = model.with_dissipation()
    q, v, tau, f_ext = zoo.state(model)
    found = con.explicit_dynamics(model, lambda y: y, q, v, tau, f_ext)
    close(found.a, rbd.forward_dynamics(model, q, v, tau, f_ext), 1e-11)
    close(found.C, rbd.bias_force(model, q, v, f_ext))


# ------------------------------------------------------------------ joints as constraints on bodies


@jax.jit
def maximal(model, q, v, a, f_ext):
    tau = rbd.rnea(model, q, v, a, f_ext)
    return con.maximal_dynamics(model, q, v, tau, f_ext), rbd.aba(model, q, v, tau, f_ext), tau


@pytest.mark.slow
@pytest.mark.parametrize("name", ["everywhere", "connected", "own"])
def test_free_bodies_and_joint_constraints_move_like_the_robot(name):
    if name == "own":
        rng = np.random.default_rng(0)
        kinds = [rbd.joints.Custom(2, zoo.crank), rbd.joints.Revolute(rng.normal(size=3))]
        links = [rbd.model.Link(f"l{i}", zoo.random_inertia(rng)) for i in range(2)]
        placement = zoo.random_placement(rng)
        specs = [
            rbd.model.JointSpec("j0", kinds[0], None, "l0", placement),
            rbd.model.JointSpec("j1", kinds[1], "l0", "l1", placement, armature=0.2),
        ]
        model = rbd.build_model(links, specs)
    else:
        model = getattr(zoo, name)()
    q, v, a, f_ext = zoo.state(model)
    found, by_aba, tau = maximal(model, q, v, a, f_ext)
    close(found.acceleration, a, 1e-10, "joints")
    close(found.acceleration, by_aba, 1e-10, "aba")
    for body in range(2):
        name = model.body_names[body]
        expected = rbd.frame_acceleration(model, q, v, a, name, "local")
        close(found.body_acceleration[body], expected, 1e-10, f"acceleration of {name}")
    # The power of a joint's wrench is that of tau without the armature's part.
    for joint in model.joint_names[:2]:
        body = model.joint_names.index(joint)
        start = sum(model.joint_nvs[:body])
        dofs = slice(start, start + model.joint_nvs[body])
        S = con.joint_subspaces(model, q, joint).S
        rotors = model.armature[dofs] * a[dofs]
        close(S @ found.joint_wrench[body], tau[dofs] - rotors, 1e-9, f"force of {joint}")


def test_maximal_coordinates_refuse_joints_that_follow():
    model = zoo.coupled()
    q, v, *_ = zoo.state(model)
    with pytest.raises(rbd.ArgumentError, match="follow others"):
        con.maximal_dynamics(model, q, v, v)


def test_the_subspaces_of_a_compound_joint_by_its_own_name():
    """S of Euler angles and of a universal joint: the velocity of the child for each rate."""
    links = [Link(name, link_inertia(1.0, (0.0, 0.1, 0.2), np.eye(3))) for name in "abc"]
    specs = [
        JointSpec("base", rbd.joints.Spherical(), None, "a"),
        JointSpec("wrist", euler("zyx"), "a", "b"),
        JointSpec("gimbal", universal((1, 0, 0), (0, 1, 0.2)), "b", "c"),
    ]
    model = rbd.build_model(links, specs)
    q, v, *_ = zoo.state(model)
    for joint, link in (("wrist", "b"), ("gimbal", "c")):
        S, T, _ = con.joint_subspaces(model, q, joint)
        place = model.joint(joint)
        alone = jnp.zeros(model.nv).at[place.v].set(v[place.v])
        close(v[place.v] @ S, rbd.frame_velocity(model, q, alone, link, "local"), 1e-13, joint)
        assert T.shape == (6 - len(S), 6)


def test_the_system_of_maximal_coordinates_has_the_multipliers():
    """(3.74) is solved by the accelerations of the bodies and by the multipliers."""
    model = zoo.small()
    q, v, tau, f_ext = zoo.state(model)
    A, b = con.maximal_system(model, q, v, tau, f_ext)
    found = con.maximal_dynamics(model, q, v, tau, f_ext)
    X = root_centred(rbd.forward_kinematics(model, q))
    a = transform_motion(X, found.body_acceleration).ravel()
    close(A @ jnp.concatenate([a, -found.multipliers]), b, 1e-11)
    assert len(b) == 12 * model.nb - model.nv


@pytest.mark.slow
def test_subspaces_of_every_joint_are_complements():
    model = zoo.everywhere()
    q = rbd.neutral(model)
    for joint in model.joint_names[:24]:
        S, T, T_a = con.joint_subspaces(model, q, joint)
        n = model.joint_nvs[model.joint_names.index(joint)]
        assert S.shape == T_a.shape == (n, 6)
        close(T @ S.T, jnp.zeros((6 - n, n)), 1e-14, joint)
        close(T @ T.T, jnp.eye(6 - n), 1e-14, joint)
        close(T_a @ S.T, jnp.eye(n), 1e-14, joint)
    with pytest.raises(rbd.ArgumentError, match="no joint 'nose'"):
        con.joint_subspaces(model, q, "nose")


@jax.jit
def one_body(inertia, S, S_rate, force, bias):
    ways = {name: con.constrained_body(inertia, S, S_rate, force, bias, name) for name in METHODS}
    return ways, con.apparent_inverse_inertia(inertia, S)


METHODS = ("direct", "multipliers", "projection")


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_one_body_on_a_joint_by_three_methods(rng, n):
    inertia = jnp.asarray(zoo.random_inertia(rng))
    S = jnp.asarray(rng.normal(size=(n, 6)))
    S_rate, force, bias = (jnp.asarray(x) for x in rng.normal(size=(3, 6)))
    ways, Phi = one_body(inertia, S, S_rate, force, bias)
    a, f_c, q_accel = ways["direct"]
    close(S @ f_c, jnp.zeros(n), 1e-11, "the constraint force does no work")
    close(S.T @ q_accel + S_rate, a, 1e-11, "the joint's acceleration")
    close(spatial.apply_inertia(inertia, a) + bias, force + f_c, 1e-11, "equation of motion")
    for name, way in ways.items():
        for x, y in zip(way, ways["direct"]):
            close(x, y, 1e-9, name)
    close(Phi @ spatial.inertia_matrix(inertia) @ Phi, Phi, 1e-10, "Phi I Phi")


@pytest.mark.slow
def test_one_body_is_the_robot_of_one_body():
    model = zoo.build(["universal"], [-1], seed=1)
    q, v, tau, _ = zoo.state(model)
    a = rbd.forward_dynamics(model, q, v, tau)
    J = rbd.frame_jacobian(model, q, "l0", "local")
    S_rate = rbd.frame_acceleration(model, q, v, jnp.zeros(2), "l0", "local")
    V, R = J @ v, rbd.frame_placement(model, q, "l0").R
    inertia = model.inertia[-1]
    weight = spatial.apply_inertia(inertia, jnp.concatenate([R.T @ model.gravity, jnp.zeros(3)]))
    active = jnp.linalg.pinv(J).T @ tau
    found = con.constrained_body(
        inertia, J.T, S_rate, active, spatial.gyroscopic_force(inertia, V) - weight
    )
    close(found.joint_acceleration, a, 1e-11)


JOINTS = {
    "hinge": (rbd.joints.Revolute((1.0, 2.0, 3.0)), lambda X: con.hinge("l0", "l1", (1, 2, 3), X)),
    "point": (rbd.joints.Spherical(), lambda X: con.point("l0", "l1", X.p)),
    "weld": (rbd.model.Fixed(), lambda X: con.weld("l0", "l1", X)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", JOINTS)
def test_a_joint_is_a_free_body_and_its_constraint(rng, kind):
    """Two bodies with a joint between them equal two free bodies with the joint's constraint."""
    joint, constraint = JOINTS[kind]
    links = [rbd.model.Link(f"l{i}", zoo.random_inertia(rng)) for i in range(2)]
    first, placement = zoo.random_placement(rng), zoo.random_placement(rng)
    hinge = rbd.model.JointSpec("j0", rbd.joints.Revolute((0.0, 1.0, 0.5)), None, "l0", first)
    joined = rbd.build_model(
        links, [hinge, rbd.model.JointSpec("j1", joint, "l0", "l1", placement)]
    )
    flying = rbd.model.JointSpec("j1", rbd.joints.FreeFlyer(), None, "l1")
    apart = rbd.build_model(links, [hinge, flying])
    q, v, tau, _ = zoo.state(joined)
    tau = tau.at[1:].set(0.0)
    a = rbd.forward_dynamics(joined, q, v, tau)

    X = rbd.frame_placement(joined, q, "l1")
    flight = jnp.concatenate([X.p, so3.quaternion_from_matrix(X.R)])
    q_apart = jnp.concatenate([q[:1], flight])
    v_apart = jnp.concatenate([v[:1], rbd.frame_velocity(joined, q, v, "l1", "local")])
    tau_apart = jnp.zeros(7).at[0].set(tau[0])
    found = con.constrained_dynamics(
        apart,
        q_apart,
        v_apart,
        tau_apart,
        [constraint(spatial.pose_from_matrix(jnp.asarray(placement)))],
    )
    expected = jnp.append(a[:1], rbd.frame_acceleration(joined, q, v, a, "l1", "local"))
    close(found.acceleration, expected, 1e-11)


# ------------------------------------------------------------------------------ mechanisms


@pytest.mark.slow
@pytest.mark.parametrize("name", linkage_names())
def test_linkages_are_closed(name):
    model, constraints, q = load_linkage(name)
    rows = con.constraint_rows(model, q, jnp.zeros(model.nv), constraints)
    close(rows.position, jnp.zeros(len(rows.position)), 1e-14)
    freedoms = {"four_bar": 1, "five_bar": 2, "standing_quadruped": 6}
    assert model.nv - np.linalg.matrix_rank(rows.K, 1e-9) == freedoms[name]


@functools.partial(jax.jit, static_argnames="steps")
def simulate(linkage, v, dt, steps, stabilisation):
    """Energy and gap at each state of a linkage without motors."""
    model, constraints, q = linkage

    def dynamics(q, v):
        at_rest = jnp.zeros_like(v)
        held = con.constrained_dynamics(model, q, v, at_rest, constraints, None, stabilisation)
        return held.acceleration

    def step(q, v):
        return rbd.integrators.runge_kutta_munthe_kaas(model, dynamics, q, v, dt)

    def energy_and_gap(q, v):
        energy = rbd.kinetic_energy(model, q, v) + rbd.potential_energy(model, q)
        return energy, max(jnp.max(jnp.abs(c.position(model, q))) for c in constraints)

    return jax.vmap(energy_and_gap)(*rbd.integrators.rollout(step, (q, v), steps=steps))


def crank_speed(linkage, speed):
    """The velocity that the loop allows and that has the given speed of the first joint."""
    model, constraints, q = linkage
    K = con.constraint_rows(model, q, jnp.zeros(model.nv), constraints).K
    first = jnp.zeros((1, model.nv)).at[0, 0].set(1.0)
    rows = jnp.concatenate([first, K])
    return jnp.linalg.pinv(rows) @ jnp.zeros(len(rows)).at[0].set(speed)


@pytest.mark.slow
def test_a_four_bar_keeps_its_energy_for_a_second():
    linkage = load_linkage("four_bar")
    energy, gap = simulate(linkage, crank_speed(linkage, 2.0), 5e-4, 2000, 0.0)
    assert np.ptp(energy) < 1e-8
    assert np.max(gap) < 1e-8


@pytest.mark.slow
def test_a_stabilised_loop_stays_closed_for_a_minute():
    linkage = load_linkage("four_bar")
    _, gap = simulate(linkage, crank_speed(linkage, 2.0), 2e-3, 30000, 10.0)
    assert np.max(gap) < 1e-7
    assert np.max(gap[-10000:]) < 2 * np.max(gap[:10000])


def test_unknown_linkages_are_named():
    with pytest.raises(rbd.ArgumentError, match=r"four_bar.*found 'six_bar'"):
        load_linkage("six_bar")


@pytest.mark.slow
def test_closing_is_the_solution_and_has_its_derivative():
    model, constraints, q = load_linkage("four_bar")
    constraints = (*constraints, con.Equation(lambda model, q: q[:1] + 1.0))

    @jax.jit
    def closed(t):
        longer = dataclasses.replace(
            model, placement=model.placement._replace(p=model.placement.p * (1 + t))
        )
        return con.close_loops(longer, q, constraints)

    found, slope = jax.jvp(closed, (jnp.zeros(()),), (jnp.ones(()),))
    assert found.residual < 1e-14
    close(found.q[0], -1.0, 1e-14)
    ahead, back = closed(jnp.asarray(1e-5)), closed(jnp.asarray(-1e-5))
    close(slope.q, (ahead.q - back.q) / 2e-5, 1e-9)


class Hill(eqx.Module):
    """`scale (1 + u - u^2 + c u^3) = 0` with `u = x^2` and `x = 4 q0 + q1`.

    For c = 0, x is the root of the golden ratio, or minus this root. Newton's method stops at the
    least value at x = 0 if it starts near 0. For c = 0.2 the equation has no solution.
    """

    c: jax.Array
    scale: jax.Array

    def __call__(self, model, q):
        u = jnp.sum(LEVER * q) ** 2
        return (self.scale * (1 + u - u**2 + self.c * u**3))[None]


LEVER = np.array([4.0, 1.0])
STARTS = 0.4 * np.random.default_rng(0).normal(size=(20, 2))


@jax.jit
def closed_hills(model, c):
    """Closed loops, their derivatives by the start, and the residuals after the first attempt."""
    hill = (con.Equation(Hill(c, jnp.ones_like(c))),)

    def closed(q):
        direction = jnp.array([1.0, -0.5])
        found, change = jax.jvp(lambda q: con.close_loops(model, q, hill), (q,), (direction,))
        equations = closing._equations(model, q, hill)
        start = jnp.zeros_like(equations.scales)
        first = equations.residual(closing._newton(equations.scaled, start, equations.rounding))
        return found, change.q, first, rbd.crba(model, q)

    return jax.vmap(closed)(STARTS)


def test_a_loop_that_one_start_does_not_close_is_closed_from_another():
    found, change, first, M = closed_hills(rbd.load_robot("double_pendulum"), np.array(0.0))
    once = np.asarray(first) < 1e-9
    assert 2 < np.sum(~once) < 15
    assert np.all(found.converged)
    x = np.asarray(found.q) @ LEVER
    close(x**2, np.full(20, (1 + np.sqrt(5)) / 2), 1e-9)
    # The loops that another start closes stay closed too.
    close(np.asarray(change) @ LEVER, np.zeros(20), 1e-9, "rate")
    assert np.min(np.max(np.abs(change), axis=1)) > 1e-3
    # The others are displaced by M^-1 K^T y, with M and K at their start.
    for i in np.flatnonzero(once):
        displacement = np.linalg.solve(M[i], LEVER)
        displacement *= (x[i] - STARTS[i] @ LEVER) / (displacement @ LEVER)
        close(found.q[i], STARTS[i] + displacement, 1e-9)


def test_a_loop_that_cannot_close_is_not_converged():
    """The result is then the best of all attempts: never worse than the first one."""
    found, _, first, _ = closed_hills(rbd.load_robot("double_pendulum"), np.array(0.2))
    assert not np.any(found.converged)
    assert np.all(np.isfinite(found.q))
    assert np.min(found.residual) > 0.1
    assert np.all(found.residual <= first * (1 + 1e-12))
    assert np.any(found.residual < 0.5 * first)


def test_a_closed_loop_moves_with_its_start():
    """The displacement is along M^-1 K^T at the start, which turns with the start."""
    model = rbd.load_robot("double_pendulum")
    start, direction = np.array([0.3, 0.5]), np.array([1.0, -0.5])

    @jax.jit
    def closed(q):
        hill = (con.Equation(Hill(jnp.zeros(()), jnp.ones(()))),)
        found, change = jax.jvp(lambda q: con.close_loops(model, q, hill).q, (q,), (direction,))
        return found, change, rbd.crba(model, q)

    def expected(t):
        q = start + float(t) * direction
        displacement = np.linalg.solve(closed(jnp.asarray(q))[2], LEVER)
        gap = np.sqrt((1 + np.sqrt(5)) / 2) - q @ LEVER
        return q + displacement * gap / (displacement @ LEVER)

    found, change, _ = closed(jnp.asarray(start))
    close(found, expected(0), 1e-12)
    close(change, slope(expected, 1e-3), 1e-9)


def test_the_units_of_the_equations_of_a_loop_do_not_matter():
    """A unit multiplier changes a scaled equation by 1, whatever its unit."""
    model = rbd.load_robot("double_pendulum")

    @jax.jit
    def scaled(scale, y):
        hill = (con.Equation(Hill(jnp.zeros(()), scale)),)
        return closing._equations(model, jnp.array([0.1, 0.2]), hill).scaled(y)

    for scale in (1e-4, 1.0, 1e4):
        rate = slope(lambda t, scale=scale: scaled(scale, t[None]), 1e-3)
        close(rate, [1.0], 1e-8)


def parallelogram(base=0.9):
    """A four-bar linkage with its flat configuration; with a base of 5 m it cannot close."""
    chains = [("crank", 0.3), ("coupler", 0.9)], [("rocker", 0.3)]
    return linkages._planar("parallelogram", chains, (0.0, base), (0.0, 0.0, 0.0))


@jax.jit
def closed_from_40_starts(model, loop, flat):
    """Closed loops, their changes and errors, and the residuals after the first attempt."""

    def closed(q):
        direction = jnp.array([1.0, -0.5, 0.3])
        found, change = jax.jvp(lambda q: con.close_loops(model, q, loop), (q,), (direction,))

        def error(q):
            return loop[0].position(model, q)

        equations = closing._equations(model, q, loop)
        start = jnp.zeros_like(equations.scales)
        first = equations.residual(closing._newton(equations.scaled, start, equations.rounding))
        return found, change.q, *jax.jvp(error, (found.q,), (change.q,)), first

    return jax.vmap(closed)(flat + 0.5 * np.random.default_rng(0).normal(size=(40, 3)))


@pytest.mark.slow
def test_loops_close_from_all_starts_near_a_flat_parallelogram():
    """Newton's method from the start alone fails for 10 of the 40 starts."""
    found, change, error, rate, first = closed_from_40_starts(*parallelogram())
    assert np.sum(first > 1e-9) == 10
    assert np.all(found.converged)
    assert np.max(np.abs(error)) < 1e-9
    np.testing.assert_allclose(found.residual, np.max(np.abs(error), axis=1), atol=1e-15)
    assert np.all(np.max(np.abs(change), axis=1) > 1e-3)
    np.testing.assert_allclose(rate, 0, atol=1e-6)


@pytest.mark.slow
def test_loops_that_cannot_close_are_not_converged():
    """The result is then the best of all attempts: never worse than the first one."""
    found, _, _, _, first = closed_from_40_starts(*parallelogram(5.0))
    assert not np.any(found.converged)
    assert np.all(np.isfinite(found.q))
    assert np.min(found.residual) > 0.1
    assert np.all(found.residual <= first * (1 + 1e-12))


@pytest.mark.slow
def test_the_second_derivative_of_a_loop_with_a_known_solution():
    """The second joint is a known function of the first one, which moves with the time."""
    model = rbd.load_robot("double_pendulum")

    def loop(time):
        return con.Equation(
            lambda model, q: jnp.stack([q[0] - 0.3 - time**2, jnp.sin(q[1]) - 0.5 * q[0]])
        )

    def angles(time):
        return con.close_loops(model, jnp.array([0.3, 0.2]), (loop(time),)).q

    def rates(time):
        return jax.jvp(angles, (time,), (jnp.ones(()),))[1]

    def expected(time):
        return np.array([0.3 + time**2, np.arcsin(0.15 + 0.5 * time**2)])

    time = jnp.asarray(0.4)
    found, second = jax.jit(lambda time: jax.jvp(rates, (time,), (jnp.ones(()),)))(time)
    first = slope(lambda t: expected(0.4 + t), 1e-3)
    twice = slope(lambda t: slope(lambda u, t=t: expected(0.4 + t + u), 1e-3), 1e-3)
    close(found, first, 1e-9, "rate")
    close(second, twice, 1e-9, "second derivative")


@pytest.mark.slow
def test_the_second_derivative_of_a_closed_loop_is_its_acceleration():
    """While the crank turns at a constant speed, the equations give `K v = 0` and `K a = -bias`."""
    model, loop, q = load_linkage("four_bar")

    def configuration(time):
        crank = con.Equation(lambda model, x: x[:1] - (q[:1] + 3.0 * time))
        return con.close_loops(model, q, (*loop, crank)).q

    def velocity(time):
        return jax.jvp(configuration, (time,), (1.0,))[1]

    v, a = jax.jit(lambda time: jax.jvp(velocity, (time,), (1.0,)))(0.0)
    rows = con.constraint_rows(model, q, v, loop)
    assert jnp.max(jnp.abs(a)) > 1
    close(rows.K @ v, jnp.zeros(len(rows.K)), 1e-9, "velocity")
    close(rows.K @ a, -rows.bias, 1e-9, "acceleration")


@pytest.mark.slow
def test_explicit_dynamics_of_a_closed_loop_need_its_second_derivative():
    """The coordinates as a function of the crank angle: projected, and by the KKT system."""
    model, loop, q = load_linkage("four_bar")

    def gamma(y):
        crank = con.Equation(lambda model, q: q[:1] - y)
        return con.close_loops(model, q, (*loop, crank)).q

    tau = jnp.array([2.0, 0.0, 0.0])

    @jax.jit
    def accelerations(y, y_rate):
        found = con.explicit_dynamics(model, gamma, y, y_rate, tau)
        return found.a, con.constrained_dynamics(model, q, found.v, tau, loop).acceleration

    close(*accelerations(q[:1], jnp.array([3.0])), 1e-9)


def test_constraints_of_a_robot_without_dofs():
    model, none = zoo.build([], []), jnp.zeros(0)
    weld = con.weld(model.frame_names[0] if model.frame_names else None, None, pose(1), pose(1))
    found = con.constrained_dynamics(model, none, none, none, [weld])
    assert found.acceleration.shape == (0,)
    close(found.residuals[0], np.zeros(6), 1e-15)
    assert con.impact(model, none, none, [weld]).velocity.shape == (0,)
    assert con.close_loops(model, none, [weld]).converged


def turned_weld(angle):
    """A ball joint, a configuration that is turned by an angle, and a weld at the neutral one."""
    model = zoo.build(["spherical"], [-1])
    q = rbd.integrate(model, rbd.neutral(model), angle * jnp.array([0.6, 0.0, 0.8]))
    X = rbd.frame_placement(model, rbd.neutral(model), "l0")
    return model, q, con.weld(None, "l0", X_a=X)


@pytest.mark.parametrize("angle", [np.pi, np.pi - 1e-9, 3.0])
def test_the_error_of_a_weld_that_is_turned_by_half_a_turn(angle):
    model, q, weld = turned_weld(angle)
    found = con.constraint_rows(model, q, jnp.ones(3), [weld])
    assert np.linalg.norm(found.position) == pytest.approx(angle, abs=1e-9)
    close(jnp.abs(found.position[3:]), angle * np.array([0.6, 0.0, 0.8]), 1e-7)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(found))


@pytest.mark.slow
@pytest.mark.parametrize("angle", [np.pi, np.pi - 1e-9, 3.0])
def test_inverse_kinematics_turns_a_weld_back_by_half_a_turn(angle):
    model, q, weld = turned_weld(angle)
    assert ik.inverse_kinematics(model, [weld], q).converged


# ------------------------------------------------------------------------------------ wrong input


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        (lambda: con.point(None, "nose"), "no frame 'nose'"),
        (
            lambda: con.point(None, "l1", (0.0, 1.0)),
            r"p_a has shape \(2,\) .* \(3,\) of fl",
        ),
        (lambda: con.hinge(None, "l1", (0.0, 1.0)), r"axis has shape \(2,\) .* \(3,\) of fl"),
        (lambda: con.Equation(lambda model, q: q[0]), r"Equation gives shape \(\)"),
        (lambda: con.Nonholonomic(lambda model, q: q[None]), r"Nonholonomic has shape \(1, 15\)"),
        (lambda: con.FrameConstraint(lambda X: X.R, None, "l1"), "between None and 'l1' has"),
        (
            lambda: con.weld(None, "l1", X_a=np.eye(4)),
            "X_a of the constraint between None and 'l1'",
        ),
        (
            lambda: con.weld(None, "l1", X_b=spatial.Pose(2 * np.eye(3), np.zeros(3))),
            r"(?s)X_b.R of the constraint between None and 'l1' is .* a rotation matrix",
        ),
        (
            lambda: con.hinge(
                "l0", "l1", (0, 0, 1), spatial.Pose(np.eye(3), np.array([0, 0, np.inf]))
            ),
            "X_a.p of the constraint between 'l0' and 'l1' is .* finite",
        ),
    ],
)
def test_wrong_constraints_are_named(model, constraint, message):
    q, v, *_ = zoo.state(model)
    with pytest.raises(rbd.ArgumentError, match=message):
        con.constraint_rows(model, q, v, [constraint()])


def test_wrong_arguments_are_named(model):
    q, v, *_ = zoo.state(model)
    with pytest.raises(rbd.ArgumentError, match="tau has shape"):
        con.constrained_dynamics(model, q, v, q, [CONTACT])
    with pytest.raises(rbd.ArgumentError, match="restitution has shape"):
        con.impact(model, q, v, [CONTACT], jnp.zeros(3))
    with pytest.raises(rbd.ArgumentError, match="method is 'guess'"):
        con.constrained_body(model.inertia[0], jnp.ones((1, 6)), v[:6], v[:6], v[:6], "guess")
    with pytest.raises(rbd.ArgumentError, match=r"gamma\(y\) has shape"):
        con.explicit_dynamics(model, lambda y: y, v[:2], v[:2], v)
    with pytest.raises(rbd.ArgumentError, match="gamma is None, expected a function of y"):
        con.explicit_dynamics(model, None, v, v, v)
