"""The matrices A and B of a contact step, beside central differences of the step."""

import dataclasses
import functools
import importlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import actuators, constraints as con, contact
from jaxrbd.collision import PlacedShape, Sphere
from jaxrbd.contact import Material, Plane, Scene
from jaxrbd.errors import ArgumentError
from jaxrbd.tendons import FixedTendon, Tendons
from support import finite_differences, zoo
from support.zoo import close

DT = 0.01
module = importlib.import_module("jaxrbd.contact.contact_step_derivatives")


@jax.jit
def derivatives(model, scene, q, v, tau, options):
    return contact.contact_step_derivatives(model, scene, q, v, tau, DT, **options)


@jax.jit
def steps(model, scene, q, v, tau, options, changes):
    """The steps after changes (n, 3 nv) of q, v and tau, and the changes (n, 2 nv) of their ends.

    The first change is zero.
    """

    def step(change):
        dq, dv, dtau = jnp.split(change, 3)
        start = rbd.integrate(model, q, dq), v + dv, tau + dtau
        return contact.contact_step(model, scene, *start, DT, **options)

    found = jax.vmap(step)(changes)
    dq = jax.vmap(lambda end: rbd.difference(model, found.q[0], end))(found.q)
    return found, jnp.concatenate([dq, found.v], axis=1)


def check(model, scene, q, v, tau, options, h=1e-5):
    """Compare with differences; returns the step."""
    found = derivatives(model, scene, q, v, tau, options)
    one = h * np.eye(3 * model.nv)
    changes = np.concatenate([0 * one[:1], one, -one])
    all_steps, ends = steps(model, scene, q, v, tau, options, changes)
    step = jax.tree.map(lambda x: np.asarray(x[0]), all_steps)
    close(found.q, step.q, 1e-12)
    close(found.v, step.v, 1e-12)
    plus, minus = np.split(np.asarray(ends[1:]), 2)
    AB = (plus - minus).T / (2 * h)
    close(found.A, AB[:, : 2 * model.nv], 1e-6, "A")
    close(found.B, AB[:, 2 * model.nv :], 1e-6, "B")
    return step


GROUND = Plane((0.1, -0.2, 1.0))


def touching(model, scene, q, count):
    """The scene with the ground at a height where `count` spheres are in the ground."""
    points = contact.contact_points(model, scene, q, jnp.zeros(model.nv))
    order = np.sort(points.distance)
    offset = scene.ground.offset + np.mean(order[count - 1 : count + 1])
    return eqx.tree_at(lambda s: s.ground.offset, scene, np.asarray(offset))


def kinds_of(step, friction, normal):
    """Whether each contact is apart, slips or sticks."""
    push = np.asarray(step.impulse) @ normal
    across = np.linalg.norm(step.impulse - push[:, None] * normal, axis=1)
    edge = across >= friction * push * (1 - 1e-9)
    return {("apart" if n == 0 else "slips" if e else "sticks") for n, e in zip(push, edge)}


@pytest.mark.slow
def test_contacts_that_stick_slip_and_leave():
    """Three spheres on a robot with a free base, with external forces, a servo and dissipation."""
    model = zoo.build(["free_flyer", "revolute"], [-1, 0], seed=4)
    hinge = model.joint_names[-1]
    spring = actuators.PD.for_joints(model, [hinge], stiffness=30.0, damping=2.0)
    model = dataclasses.replace(model, friction=np.full(model.nv, 0.1)).with_dissipation()
    seen = set()
    for seed, friction in ((0, 0.6), (1, 5.0), (2, 0.2), (4, 5.0)):
        q, v, tau, f_ext = zoo.state(model, seed)
        offsets = 0.2 * np.random.default_rng(seed).normal(size=(3, 3))
        material = Material(friction=friction)
        scene = Scene(("l1", "l0", "l1"), [0.05, 0.0, 0.02], offsets, GROUND, material)
        scene = touching(model, scene, q, 1 + seed % 2)
        options = {"f_ext": f_ext, "servo": contact.Servo(spring, 0.9 * q), "regularisation": 0.02}
        step = check(model, scene, q, v, tau, options)
        normal = np.asarray(GROUND.normal) / np.linalg.norm(GROUND.normal)
        seen |= kinds_of(step, friction, normal)
    assert seen == {"apart", "slips", "sticks"}


@pytest.mark.slow
def test_all_terms_of_a_step():
    """Coupled joints, a constraint, a tendon with inertia, two shapes, and torsional friction."""
    model = zoo.coupled()
    q, v, tau, f_ext = zoo.state(model)
    names = [spec for spec, nv in zip(model.joint_names, model.joint_nvs) if nv == 1][:2]
    tendon = FixedTendon("sum", dict.fromkeys(names, 0.7))
    tendons = Tendons([tendon], stiffness=[3.0], damping=[0.5], armature=[0.2])
    n = model.nb - 1
    first, last = (PlacedShape(Sphere(0.1), f"l{i}", np.zeros(3)) for i in (0, n))
    apart = rbd.frame_placement(model, q, f"l{n}").p - rbd.frame_placement(model, q, "l0").p
    radius = float(np.linalg.norm(apart)) / 2 + 1e-3
    first, last = (dataclasses.replace(x, shape=Sphere(radius)) for x in (first, last))
    pairs = contact.collision_pairs([(first, last)])
    material = Material(friction=0.5, torsional=0.02)
    scene = Scene((f"l{n}",), 0.05, ground=GROUND, material=material, pairs=pairs)
    points = contact.contact_points(model, scene, q, v)
    ground = Plane(GROUND.normal, points.distance[0] + 1e-3)
    scene = dataclasses.replace(scene, ground=ground)
    fixed = con.point(None, f"l{n}", rbd.frame_placement(model, q, f"l{n}").p + 1e-3)
    options = {"f_ext": f_ext, "tendons": tendons, "regularisation": 0.02}
    step = check(model, scene, q, v, tau, {**options, "constraints": (fixed,)})
    assert np.all(np.linalg.norm(step.impulse, axis=1) > 0)
    assert np.all(np.abs(step.constraint_impulse) > 0)
    assert np.all(np.abs(step.tendon_impulse) > 0)


@pytest.mark.slow
@pytest.mark.parametrize("smoothing", [0.05, 0.5])
def test_smoothing_is_that_of_the_step(smoothing):
    """The derivatives of both functions by JAX; before touch-down they see the ground."""
    model = zoo.build(["free_flyer", "revolute"], [-1, 0])
    q, v, tau, _ = zoo.state(model)
    scene = Scene(("l0", "l1"), 0.1, ground=GROUND)
    scene = touching(model, scene, q, 1)

    @jax.jit
    def both(q, v, tau):
        def step(dq, v, tau):
            start = rbd.integrate(model, q, dq)
            found = contact.contact_step(model, scene, start, v, tau, DT, smoothing=smoothing)
            return found.v

        by_jax = jax.jacfwd(step, (0, 1, 2))(jnp.zeros(model.nv), v, tau)
        compute = contact.contact_step_derivatives
        found = compute(model, scene, q, v, tau, DT, smoothing=smoothing)
        return found, jnp.concatenate(by_jax, axis=1)

    found, expected = both(q, v, tau)
    close(jnp.concatenate([found.A, found.B], axis=1)[model.nv :], expected, 1e-9)
    plain = derivatives(model, scene, q, v, tau, {})
    assert np.max(np.abs(plain.A - found.A)) > 1e-3


@pytest.mark.slow
def test_two_legs_that_touch_each_other():
    """Each leg moves the contacts of the other one, and the ground holds one of them."""
    model = zoo.build(["free_flyer", "revolute", "revolute"], [-1, 0, 0], seed=4)
    q, v, tau, _ = zoo.state(model)
    apart = rbd.frame_placement(model, q, "l2").p - rbd.frame_placement(model, q, "l1").p
    radius = float(np.linalg.norm(apart)) / 2 + 1e-3
    legs = [PlacedShape(Sphere(radius), name, np.zeros(3)) for name in ("l1", "l2")]
    scene = Scene(("l1",), 0.05, ground=GROUND, pairs=contact.collision_pairs([legs]))
    distance = contact.contact_points(model, scene, q, v).distance[0]
    scene = dataclasses.replace(scene, ground=Plane(GROUND.normal, distance + 1e-3))
    step = check(model, scene, q, v, tau, {"regularisation": 0.02})
    assert np.all(np.linalg.norm(step.impulse, axis=1) > 0)


@pytest.mark.slow
def test_the_feet_of_the_quadruped_stick_slip_touch_and_leave(rng):
    """The matrices of the bundled robot; at zero distance and velocity they are finite."""
    model = rbd.load_robot("quadruped")
    home = rbd.robots.home_posture("quadruped")
    feet = [name for name in model.frame_names if name.endswith("_foot")]
    scene = Scene(feet, 0.02, material=Material(friction=0.8))
    still = jnp.zeros(model.nv)
    down = np.min(contact.contact_points(model, scene, jnp.asarray(home), still).distance)

    def start(height, along=0.0, up=0.0, noise=0.05):
        q, v = np.array(home, float), noise * rng.normal(size=model.nv)
        q[2] += height - down
        v[[0, 2]] += along, up
        return (
            jnp.asarray(q),
            jnp.asarray(v),
            jnp.asarray(np.append(np.zeros(6), rng.normal(size=12))),
        )

    seen = set()
    for state in (
        start(-1e-4),
        start(-1e-4, along=2.0),
        start(0.003, up=-0.6),
        start(-1e-4, up=1.0),
        start(0.2),
    ):
        step = check(model, scene, *state, {}, h=1e-6)
        seen |= kinds_of(step, 0.8, np.array([0.0, 0.0, 1.0]))
    assert seen == {"apart", "slips", "sticks"}
    at_a_kink = derivatives(model, scene, *start(0.0, noise=0.0), {})
    assert all(np.all(np.isfinite(x)) for x in (at_a_kink.A, at_a_kink.B))


@functools.cache
def sliding():
    """The matrices of a step as a function of a line of q, v and tau: a sphere slides."""
    model = zoo.build(["revolute", "revolute"], [-1, 0], seed=1)
    free = np.full(2, np.inf)
    model = dataclasses.replace(model, lower_position_limit=-free, upper_position_limit=free)
    q, v, tau, _ = zoo.state(model, 1)
    material = Material(friction=0.3)
    scene = Scene(("l1",), 0.1, [(0.5, 0.4, 0.3)], ground=GROUND, material=material)
    nearest = np.min(contact.contact_points(model, scene, q, v).distance)
    scene = eqx.tree_at(lambda s: s.ground.offset, scene, np.asarray(nearest + 1e-3))

    def matrices(t):
        direction = jnp.array([0.3, -0.7])
        start = q + t * direction, v - t * direction, tau + 2 * t * direction
        return contact.contact_step_derivatives(model, scene, *start, DT)

    return matrices


def test_the_matrices_have_derivatives():
    """By JAX, beside differences. JAX does not differentiate the solver."""
    matrices = sliding()
    both = jax.jit(lambda t: jax.jvp(matrices, (t,), (jnp.ones(()),)))
    found, rates = both(jnp.zeros(()))
    assert np.max(np.abs(found.A)) > 10  # the velocity that leaves the ground, by the distance
    differences = finite_differences.slope(lambda t: list(both(t)[0]), 1e-4)
    for name, rate, expected in zip(rates._fields, rates, differences, strict=True):
        scale = np.max(np.abs(expected))
        close(rate / scale, expected / scale, 1e-7, name)


@pytest.mark.slow
def test_the_matrices_have_derivatives_in_reverse_mode():
    matrices, zero = sliding(), jnp.zeros(())
    weights = jax.tree.map(jnp.cos, jax.jit(matrices)(zero))

    def total(t):
        return sum(map(jnp.vdot, weights, matrices(t)))

    by_reverse, by_forward = jax.jit(lambda t: (jax.grad(total)(t), jax.jacfwd(total)(t)))(zero)
    close(by_reverse / by_forward, 1.0, 1e-11)


def test_columns_without_a_common_row_share_a_tangent():
    """The products of a sparse matrix with the tangents have all of its entries."""
    rng = np.random.default_rng(0)
    model = zoo.build(["revolute"] * 9, [-1] * 9)
    depends = rng.random((7, 9)) < 0.3
    columns = module._ColumnGroups.for_pattern(depends)
    A = np.where(depends, rng.normal(size=(2, 7, 9)), 0)
    close(columns.matrix(jnp.asarray(A @ columns.tangents(model).T), depends), A, 1e-15)
    for rows in depends:
        assert len(set(columns.groups[rows])) == np.sum(rows)
    assert module._ColumnGroups.for_pattern(np.eye(9, dtype=bool)).size == 1
    assert module._ColumnGroups.for_pattern(np.ones((1, 9), bool)).size == 9


@pytest.mark.parametrize("touch", [False, True])
def test_a_leg_moves_its_own_contacts_and_those_that_it_touches(touch):
    model = zoo.build(["free_flyer", "revolute", "revolute", "revolute"], [-1, 0, 0, 2])
    legs = [PlacedShape(Sphere(0.1), name, np.zeros(3)) for name in ("l1", "l3")]
    pairs = contact.collision_pairs([legs] if touch else [])
    scene = Scene(("l1",), 0.05, pairs=pairs)
    of_wrenches, of_joints = module._sparsity_patterns(model, scene, False)
    legs = np.array([[1, 0, 0], [0, 1, 1]]) if not touch else np.ones((2, 3))
    expected = np.concatenate([np.ones((2, 6)), legs], axis=1)
    np.testing.assert_array_equal(of_wrenches[[1, 3]], expected)
    joints = np.zeros((9, 9), bool)
    joints[:6, :6] = True
    np.testing.assert_array_equal(of_joints, joints | np.eye(9, dtype=bool))


def test_wrong_arguments_are_those_of_the_step():
    model = zoo.build(["free_flyer"], [-1])
    q, v, tau, _ = zoo.state(model)
    compute = functools.partial(contact.contact_step_derivatives, model)
    scene = Scene(("l0",), 0.1)
    with pytest.raises(ArgumentError, match="dt is"):
        compute(scene, q, v, tau, -0.1)
    with pytest.raises(ArgumentError, match="smoothing is"):
        compute(scene, q, v, tau, 0.01, smoothing=0.0)
    with pytest.raises(ArgumentError, match="'nose'"):
        compute(Scene(("nose",)), q, v, tau, 0.01)
