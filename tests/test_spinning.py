"""Spinning bodies: steps keep their momentum, and contact steps keep their energy."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import contact, integrators
from jaxrbd._math.components import Mat3, Vec3
from jaxrbd.actuators import PD
from jaxrbd.collision import Box, PlacedShape
from jaxrbd.contact import free_motion, newton
from jaxrbd.model import JointSpec, Link, link_inertia
from support import nightly
from support.zoo import close

NOTHING = contact.Scene(())
# A rod of 0.12 kg: its inertia is 26 times larger across its axis than along its axis.
ROD = 0.12, np.diag([1.7231e-4, 6.58e-6, 1.7243e-4])


def dtypes(by_default):
    """Both precisions as parameters of a test; the other one is marked slow."""
    both = {"double": jnp.float64, "single": jnp.float32}
    marks = {name: () if name == by_default else pytest.mark.slow for name in both}
    return pytest.mark.parametrize(
        "dtype", [pytest.param(x, marks=marks[name], id=name) for name, x in both.items()]
    )


def body(joint, mass, inertia, com=(0, 0, 0), gravity=(0, 0, 0)):
    """One body on one joint of the world."""
    link = Link("body", link_inertia(mass, com, inertia))
    return rbd.build_model([link], [JointSpec("joint", joint, None, "body")], gravity=gravity)


def ball(gravity=(0, 0, 0)):
    return body(rbd.joints.FreeFlyer(), 2.0, 0.008 * np.eye(3), gravity=gravity)


def satellite():
    """A hull on a free-flyer with an arm of two links, whose joints are free."""
    links = [
        Link("hull", link_inertia(5.0, (0.05, 0, 0.02), np.diag([0.3, 0.5, 0.6]))),
        Link("upper", link_inertia(1.0, (0.3, 0, 0), np.diag([0.01, 0.04, 0.04]))),
        Link("lower", link_inertia(0.6, (0.2, 0, 0), np.diag([0.005, 0.02, 0.02]))),
    ]
    place = [np.eye(4), np.eye(4)]
    place[0][0, 3], place[1][0, 3] = 0.3, 0.6
    joints = [
        JointSpec("base", rbd.joints.FreeFlyer(), None, "hull"),
        JointSpec("shoulder", rbd.joints.Revolute((0, 1, 0)), "hull", "upper", place[0]),
        JointSpec("elbow", rbd.joints.Revolute((0, 0, 1)), "upper", "lower", place[1]),
    ]
    return rbd.build_model(links, joints, gravity=(0, 0, 0))


def contact_step(model, dynamics, q, v, dt):
    """`contact_step` without contacts, with the arguments of an integrator."""
    found = contact.contact_step(model, NOTHING, q, v, jnp.zeros_like(v), dt)
    return found.q, found.v


def free(model):
    return lambda q, v: rbd.forward_dynamics(model, q, v, jnp.zeros_like(v))


@functools.partial(jax.jit, static_argnums=(0, 4))
def simulate(step, model, state, dt, count):
    """The state after `count` steps, its energy relative to the start, and the momenta."""

    def advance(state, _):
        return step(model, free(model), *state, dt), None

    last = jax.lax.scan(advance, state, length=count)[0]
    energy = [rbd.kinetic_energy(model, *x) for x in (state, last)]
    momenta = [rbd.centroidal_momentum(model, *x) for x in (state, last)]
    return last, energy[1] / energy[0], momenta


STEPS = {
    integrators.explicit_euler: 1e-12,
    integrators.semi_implicit_euler: 1e-12,
    integrators.variational_midpoint: 1e-9,
    integrators.runge_kutta_munthe_kaas: 1e-4,
    contact_step: 1e-12,
}


@pytest.mark.parametrize(
    "step",
    nightly.all_but([integrators.semi_implicit_euler], STEPS),
    ids=lambda step: step.__name__,
)
def test_a_thrown_spinning_ball_keeps_its_speed(step):
    """Steps that add `dt a` to body-axes velocities reach 103 m/s."""
    model = ball()
    v = jnp.array([3.0, 0, 0, 0, 30.0, 0])
    (q, v), _, _ = simulate(step, model, (rbd.neutral(model), v), 4e-3, 500)
    close(jnp.linalg.norm(v[:3]), 3.0, STEPS[step], "speed")
    close(q[:3], jnp.array([6.0, 0, 0]), 2e-3 if step in SECOND_ORDER else 1e-10, "position")


SECOND_ORDER = integrators.variational_midpoint, integrators.runge_kutta_munthe_kaas


def test_a_planar_body_keeps_its_velocity():
    model = body(rbd.joints.Planar(), 2.0, 0.1 * np.eye(3))
    start = jnp.array([0.5, -0.2, 0.3]), jnp.array([3.0, 1.0, 20.0])
    (q, _), energy, _ = simulate(integrators.semi_implicit_euler, model, start, 4e-3, 250)
    close(energy, 1.0, 1e-12, "energy")
    c, s = np.cos(0.3), np.sin(0.3)
    close(q, start[0] + jnp.array([3 * c - s, 3 * s + c, 20.0]), 1e-11, "position")


SPINS = jnp.array([[0, 60.0, 3], [0, 150, 5], [0, 300, 5], [200, 200, 100]])


@pytest.mark.parametrize(
    "com",
    [
        pytest.param((0, 0, 0), id="centred", marks=pytest.mark.slow),
        pytest.param((0.05, 0.02, -0.03), id="offset"),
    ],
)
def test_contact_steps_keep_the_energy_of_a_tumbling_rod(com):
    """At 300 rad/s and 4 ms, the rod turns by 1.2 rad in each step."""
    mass, inertia = ROD
    model = body(rbd.joints.FreeFlyer(), mass, inertia, com)
    q = rbd.neutral(model)

    def run(w):
        state = q, jnp.concatenate([jnp.array([3.0, 1.0, 0]), w])
        return simulate(contact_step, model, state, 4e-3, 500)[1:]

    energy, (before, after) = jax.vmap(run)(SPINS)
    close(energy, jnp.ones(4), 1e-9, "energy")
    close(after[:, :3], before[:, :3], 1e-10, "linear momentum")
    close(after[:, 3:] / before[:, 3:].max(), before[:, 3:] / before[:, 3:].max(), 1e-9, "angular")


def test_a_free_body_moves_about_its_centre_of_mass():
    """The centre of mass of a spinning body moves on a straight line."""
    model = body(rbd.joints.FreeFlyer(), 2.0, 0.008 * np.eye(3), (0.05, 0.02, -0.03))
    start = rbd.neutral(model), jnp.array([3.0, 0, 0, 0, 30.0, 0])
    (q, _), _, (before, _) = simulate(contact_step, model, start, 4e-3, 500)
    moved = rbd.center_of_mass(model, q) - rbd.center_of_mass(model, start[0])
    close(moved, 2.0 * before[:3] / 2.0, 1e-10, "path of the centre of mass")


@pytest.mark.slow
def test_contact_steps_keep_the_energy_of_a_top_without_gravity():
    mass, inertia = ROD
    model = body(rbd.joints.Spherical(), mass, inertia, (0, 0.03, 0.01))
    start = rbd.neutral(model), jnp.array([0, 150.0, 5])
    _, energy, _ = simulate(contact_step, model, start, 4e-3, 500)
    close(energy, 1.0, 1e-9, "energy")


@pytest.mark.slow
def test_a_point_mass_on_a_ball_joint():
    """The rotational inertia of the body is singular, and M is regular by the armature."""
    link = Link("point", link_inertia(1.0, (0, 0, -0.5), np.zeros((3, 3))))
    joint = JointSpec("joint", rbd.joints.Spherical(), None, "point", armature=np.full(3, 0.01))
    model = rbd.build_model([link], [joint])
    q, v = rbd.random_configuration(model, jax.random.key(0)), jnp.array([0.3, -0.2, 1.0])
    found = contact.contact_step(model, NOTHING, q, v, jnp.zeros(3), 1e-3)
    close(found.v, v + 1e-3 * rbd.forward_dynamics(model, q, v, jnp.zeros(3)), 1e-12, "v")


def test_the_inertia_of_a_tree_is_that_of_all_its_bodies():
    """The mass matrix of a free-flyer, in the neutral configuration, is the inertia of the tree."""
    model = satellite()

    @jax.jit
    def both(model):
        base = jnp.eye(6)
        tree = free_motion.tree_inertias(model)[0]
        momenta = jax.vmap(rbd.spatial.apply_inertia, (None, 0))(tree, base)
        return momenta.T, rbd.crba(model, rbd.neutral(model))[:6, :6]

    close(*both(model), 1e-13)


@pytest.mark.slow
def test_a_satellite_with_an_arm():
    """The arm swings. Without the correction, the energy grows by a factor of 11."""
    model = satellite()
    v = jnp.array([0.5, 1.0, 0, 2.0, 6.0, 20.0, 0.5, -0.3])
    _, energy, (before, after) = simulate(contact_step, model, (rbd.neutral(model), v), 4e-3, 500)
    assert 0.99 < energy < 1.01
    error = jnp.linalg.norm((after - before)[3:]) / jnp.linalg.norm(before[3:])
    assert error < 2e-3
    assert jnp.linalg.norm((after - before)[:3]) < 0.01 * jnp.linalg.norm(before[:3])


@functools.partial(jax.jit, static_argnums=4)
def roll(model, scene, state, dt, count):
    def advance(state, _):
        found = contact.contact_step(model, scene, *state, jnp.zeros_like(state[1]), dt)
        return (found.q, found.v), found.residual

    return jax.lax.scan(advance, state, length=count)


@pytest.mark.slow
@dtypes("single")
def test_a_ball_rolls_down_a_slope(dtype):
    """The acceleration of a rolling ball is `5/7 g sin(angle)`."""
    angle, gravity = 0.2, 9.81
    slope = gravity * np.array([np.sin(angle), 0, -np.cos(angle)])
    model = ball(slope).astype(dtype)
    scene = contact.Scene(("body",), 0.1).astype(dtype)
    q = rbd.neutral(model).at[2].set(0.1)
    start = q, jnp.array([3.0, 0, 0, 0, 30.0, 0], dtype)
    (q, v), residual = roll(model, scene, start, jnp.asarray(2e-3, dtype), 500)
    assert jnp.all(residual <= 1000 * jnp.finfo(dtype).eps)
    a = 5 / 7 * gravity * np.sin(angle)
    speed = jnp.linalg.norm(rbd.frame_velocity(model, q, v, "body")[:3])
    close(speed, jnp.asarray(3 + a, dtype), 5e-3, "speed")
    close(q[0], jnp.asarray(3 + a / 2, dtype), 5e-3, "position")


def test_derivatives_of_a_free_rotation():
    """In the inertia, the velocity and the duration; forward and reverse mode, and differences."""
    I, w, dt = np.diag([0.01, 0.02, 0.025]), np.array([12.0, 30.0, 20.0]), 4e-3
    start = jnp.concatenate([I.ravel(), w, np.array([dt])])

    def rotated(x):
        I, w = Mat3.from_array(x[:9].reshape(3, 3)), Vec3.from_array(x[9:12])
        change, rotation = free_motion._free_step(I, w, x[12])
        return jnp.concatenate([change.array(), rotation.array()])

    h = 1e-6 * np.concatenate([np.full(9, 0.01), np.full(3, 10.0), [4e-3]])

    @jax.jit
    def derivatives(x):
        moved = jax.vmap(rotated)(jnp.concatenate([x[None] + np.diag(h), x[None] - np.diag(h)]))
        differences = (moved[:13] - moved[13:]).T / (2 * h[None])
        return jax.jacfwd(rotated)(x), jax.jacrev(rotated)(x), differences

    forward, reverse, differences = derivatives(start)
    close(forward * h[None], differences * h[None], 1e-6, "forward")
    close(reverse * h[None], forward * h[None], 1e-12, "reverse")


@pytest.mark.slow
def test_derivatives_of_a_step_of_a_spinning_body():
    """Forward and reverse mode, compared with central differences."""
    model = body(rbd.joints.FreeFlyer(), 2.0, np.diag([0.01, 0.02, 0.025]), (0.05, 0.02, -0.03))
    q = rbd.random_configuration(model, jax.random.key(0))
    v = jnp.array([0.5, 1.0, -0.4, 12.0, 30.0, 20.0])

    def moved(x):
        heavier = model.inertia + x[13] * jnp.arange(10.0)
        found = contact.contact_step(
            dataclasses.replace(model, inertia=heavier),
            NOTHING,
            rbd.integrate(model, q, x[:6]),
            v + x[6:12],
            jnp.zeros(6),
            4e-3 + x[12],
        )
        return jnp.concatenate([found.q, found.v])

    x, h = jnp.zeros(14), 1e-6
    forward, reverse = (jax.jit(mode(moved))(x) for mode in (jax.jacfwd, jax.jacrev))
    values = jax.jit(jax.vmap(moved))(jnp.concatenate([h * jnp.eye(14), -h * jnp.eye(14)]))
    differences = ((values[:14] - values[14:]) / (2 * h)).T
    close(forward, differences, 1e-6, "forward")
    close(reverse, forward, 1e-10, "reverse")


# --------------------------------------------------------------------------- the solver of a step


def box(dtype):
    """A box on the ground: its settled state after 100 steps, and the function of a step."""
    model = body(rbd.joints.FreeFlyer(), 2.0, 0.02 * np.eye(3), gravity=(0, 0, -9.81))
    shape = PlacedShape(Box((0.1, 0.12, 0.1)), "body")
    scene = contact.Scene.from_shapes([shape])
    return model.astype(dtype), scene.astype(dtype)


@pytest.mark.slow
@dtypes("double")
def test_a_box_at_rest_needs_few_iterations(dtype, monkeypatch):
    """The residual at rest is relative to the impulses, which are not zero."""
    monkeypatch.setattr(newton, "MAX_STEPS", 4)
    model, scene = box(dtype)
    q = rbd.neutral(model).at[2].set(0.1)
    (q, v), residual = roll(model, scene, (q, jnp.zeros(6, dtype)), jnp.asarray(4e-3, dtype), 200)
    assert jnp.all(residual[100:] <= 1000 * jnp.finfo(dtype).eps)
    assert jnp.max(jnp.abs(v)) < 1e-5
    close(q[2], jnp.asarray(0.1, dtype), 1e-4, "height")


def problem(seed, n, regularisation, friction, dry):
    """A convex function as of a robot with n dofs and three contacts, with dry friction."""
    rng = np.random.default_rng(seed)
    A, J = rng.normal(size=(n, n)), rng.normal(size=(3, 3, n))
    M = A @ A.T + 0.1 * np.eye(n)
    inverse = np.linalg.inv(M)
    of_joints = 1 / (regularisation * np.diag(inverse))
    of_contacts = 1 / (regularisation * np.trace(J @ inverse @ J.swapaxes(1, 2), axis1=1, axis2=2))
    normal = np.tile([0.0, 0.0, 1.0], (3, 1))
    law = contact.coulomb.ContactLaw(
        normal, of_contacts, 0 * normal, np.full(3, friction), np.zeros((3, 0, 3))
    )
    bound = np.full((1, n), dry)
    joints = contact.joint_terms.ClippedLaw(of_joints[None], np.zeros((1, n)), -bound, bound)
    none = contact.joint_terms.ClippedLaw(*[np.zeros((1, 0))] * 4)
    push, v = rng.normal(size=(2, n))
    return newton.Problem(M, push, v, law, J, joints, none, np.zeros((0, n)))


def solutions(dtype, regularisation, friction, dry, dofs=3):
    """The minima of 48 problems for each pair of a regularisation and a friction coefficient."""
    pairs = zip(regularisation, friction)
    problems = [problem(i, dofs, *pair, dry) for pair in pairs for i in range(48)]
    stacked = jax.tree.map(lambda *x: jnp.asarray(np.stack(x), dtype), *problems)
    whole = contact.branches.whole(dofs, 3)
    return jax.jit(jax.vmap(lambda p: newton.minimise(whole, p)))(stacked), stacked


@pytest.mark.parametrize("dofs", nightly.all_but([3], [3, 6]))
@dtypes("single")
def test_dry_friction_needs_few_iterations(dtype, dofs, monkeypatch):
    """Also without friction of the contacts, where dry friction alone bends the function."""
    monkeypatch.setattr(newton, "MAX_STEPS", {3: 15, 6: 20}[dofs])
    found, problems = solutions(dtype, (1e-3, 1e-3), (0.8, 0.0), 0.5, dofs)
    assert jnp.all(found.residual <= 1000 * jnp.finfo(dtype).eps)
    forces = jax.vmap(gradient)(problems, found.x)
    assert jnp.max(jnp.abs(forces)) < 1e6 * jnp.finfo(dtype).eps


@pytest.mark.parametrize(("count", "size"), [(65, 32), (20, 16)])
def test_a_slow_state_does_not_delay_a_batch(count, size, monkeypatch):
    """Each block has a few iterations; then only the slow states go on, in fewer blocks."""
    easy, slow = problem(0, 3, 1e-3, 0.8, 0.0), problem(5, 3, 1e-3, 0.8, 0.5)
    stacked = jax.tree.map(lambda x, y: jnp.asarray(np.stack([x] * (count - 1) + [y])), easy, slow)
    whole, blocks, iterate = contact.branches.whole(3, 3), [], newton._iterate

    def counted(*operands):
        found = iterate(*operands)
        jax.debug.callback(lambda x: blocks.append(len(x)), found.residual)
        return found

    alone = newton.minimise(whole, slow).x
    monkeypatch.setattr(newton, "_iterate", counted)
    monkeypatch.setattr(newton, "ONE_BLOCK_ENTRIES", 0)  # as for a large robot
    found = jax.jit(jax.vmap(lambda p: newton.minimise(whole, p)))(stacked)
    jax.effects_barrier()
    close(found.x[-1], alone, 1e-12)
    np.testing.assert_array_equal(found.x[:-1], np.tile(found.x[0], (count - 1, 1)))
    assert {*blocks} == {size}
    passes = -(-count // size)
    assert passes < len(blocks) < 2 * passes + 8


def quadruped_with_dry_friction(friction, dt):
    """A step of the bundled quadruped on a plane, with a servo, in single precision."""
    model = rbd.load_robot("quadruped")
    dry = friction * (np.arange(model.nv) >= 6)
    model = dataclasses.replace(model, friction=jnp.asarray(dry, float)).with_dissipation()
    model = model.astype("float32")
    feet = [name for name in model.frame_names if name.endswith("_foot")]
    scene = contact.Scene(feet, 0.02, material=contact.Material(friction=0.7)).astype("float32")
    gains = PD.for_joints(model, model.joint_names[1:], stiffness=60.0, damping=2.0, effort=40.0)

    def step(q, v, held):
        servo = contact.Servo(gains, held)
        tau, time = jnp.zeros(18, "f"), jnp.asarray(dt, "f")
        return contact.contact_step(model, scene, q, v, tau, time, servo=servo)

    return step


STANDING = np.float32([0, 0, 0.33, 0, 0, 0, 1, *[0, 0.8, -1.6] * 4])


@pytest.mark.slow
def test_a_walking_robot_with_dry_friction_converges(monkeypatch):
    """The friction changes its sign within a small part of a step of Newton's method."""
    monkeypatch.setattr(newton, "MAX_STEPS", 20)
    step = quadruped_with_dry_friction(0.1, 4e-3)
    rng = np.random.default_rng(0)
    held = np.tile(STANDING, (64, 1))
    held[:, 7:] += 0.5 * rng.normal(size=(64, 12))

    def walk(held):
        def advance(state, _):
            found = step(*state, held)
            return (found.q, found.v), found.residual

        start = jnp.asarray(STANDING), jnp.zeros(18, "f")
        return jax.lax.scan(advance, start, length=60)[1]

    residual = jax.jit(jax.vmap(walk))(jnp.asarray(held, "f"))
    assert jnp.max(residual) <= 1000 * jnp.finfo("float32").eps


@pytest.mark.slow
def test_the_search_along_a_step_descends():
    """A robot that lands, with strong dry friction."""
    q = np.float32(
        (
            "0 0 0.3523 0.0333 -0.0162 0.0131 0.9992 0.0154 0.7836 -1.6169 -0.0175 0.7834 -1.6092 "
            "-0.0166 0.816 -1.5949 0.0173 0.8158 -1.6184"
        ).split()
    )
    v = np.float32(
        (
            "-0.9427 -0.4279 -1.4686 0.0082 -0.488 0.0716 -0.0066 0.0001 0.0095 0.059 0.0026 "
            "0.0006 0.0096 -0.0001 -0.0003 -0.018 -0.0041 0.0456"
        ).split()
    )
    found = quadruped_with_dry_friction(1.0, 2e-3)(q, v, jnp.asarray(STANDING).at[2].set(0))
    assert found.residual <= 1000 * jnp.finfo("float32").eps


@jax.jit
def gradient(problem, x):
    """The gradient of the convex function."""

    def value(x):
        v = problem.v + x
        laws = problem.contacts.penalty(problem.J @ v) + problem.joints.penalty(v)
        return x @ problem.M @ x / 2 - problem.free_impulse @ x + laws

    return jax.grad(value)(x)


def test_stiff_contacts_converge():
    """A small compliance, and a friction coefficient of 1,000."""
    found, _ = solutions(jnp.float64, (1e-6, 1e-3), (0.8, 1e3), 0.5)
    assert jnp.all(found.residual <= 1e-8)
    assert jnp.all(jnp.isfinite(found.x))


@pytest.mark.gives_nan
def test_a_step_that_does_not_converge_is_nan(monkeypatch):
    monkeypatch.setattr(newton, "MAX_STEPS", 2)
    found, _ = solutions(jnp.float64, (1e-6,), (0.8,), 0.5)
    failed = found.residual > 1e-8
    assert jnp.any(failed)
    np.testing.assert_array_equal(jnp.all(jnp.isnan(found.x), axis=1), failed)


# ------------------------------------------------------------------------------------- long motions


@pytest.mark.slow
@dtypes("single")
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_momentum_and_energy_over_100_000_steps(step, dtype):
    """A body with three different moments of inertia tumbles at 4 rad/s, with steps of 2 ms."""
    inertia = np.diag([0.01, 0.02, 0.025])
    model = body(rbd.joints.FreeFlyer(), 2.0, inertia).astype(dtype)
    v = jnp.array([3.0, 1.0, 0, 0.6, 4.0, 0.8], dtype)
    state = rbd.neutral(model), v
    _, energy, (before, after) = simulate(step, model, state, jnp.asarray(2e-3, dtype), 100_000)
    speed = jnp.linalg.norm(before[:3])
    rounding = 1e-3 if dtype == jnp.float32 else 1e-9
    assert jnp.linalg.norm((after - before)[:3]) < max(rounding, LINEAR[step]) * speed
    assert abs(energy - 1) < max(rounding, ENERGY[step])


EXPLICIT = integrators.explicit_euler, integrators.semi_implicit_euler
LINEAR = dict.fromkeys(STEPS, 1e-6)
# Euler's steps are explicit in the gyroscopic force: see docs/integrators.md.
ENERGY = {step: 0.1 if step in EXPLICIT else 1e-6 for step in STEPS}
