"""Passive forces: laws, derivatives, wrong arguments, and comparison with MuJoCo."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd.io.mujoco import from_mujoco
from jaxrbd.joints import Custom, FreeFlyer
from jaxrbd.model import JointSpec, Link, Mimic, link_inertia
from jaxrbd.passive import (
    FixedAxesArmature,
    FluidBoxes,
    FluidEllipsoids,
    FluidForces,
    GravityCompensation,
    JointSprings,
    PassiveForces,
    PolynomialDamping,
)
from jaxrbd.spatial import Pose
from support import finite_differences, mjcf, zoo
from support.joint_chain import chain

MODEL = chain()
FREE = zoo.small()  # "j0" is a free-flyer
COUPLED = chain(Mimic("b", 2.0, 0.1))
SPRINGS = JointSprings(
    ("a", "b", "d"), (1.0, 2.0, 3.0), (0.1, 0.2, -0.3), ("c",), (4.0,), [[0.1, 0.2, 0.3, 2]]
)


def state(model, seed=0):
    q = rbd.random_configuration(model, jax.random.key(seed))
    return q, jnp.asarray(np.random.default_rng(seed).normal(size=model.nv))


# ------------------------------------------------------------------------------------------ springs


def test_the_power_of_springs_is_the_rate_of_their_energy():
    """Behind a joint of one's own, with two velocities and six rows in the motion subspaces."""
    model = chain(Mimic("b", 2.0, 0.1), Custom(2, zoo.crank))
    q, v = state(model)
    springs = JointSprings(("d", "b"), (1.0, 2.0), None, ("c",), (6.0,))

    @jax.jit
    def powers(q, v):
        def energy(t):
            return springs.energy(model, rbd.integrate(model, q, t * v))

        return jnp.sum(springs(model, q) * v), -jax.jvp(energy, (0.0,), (1.0,))[1]

    found, expected = powers(q, v)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("model", [MODEL, COUPLED], ids=["independent", "coupled"])
def test_springs_have_an_energy(model):
    """The force is minus the gradient of the energy, and zero at rest."""
    for seed in range(3):
        q, _ = state(model, seed)
        slope = rbd.gradient(model, lambda q: SPRINGS.energy(model, q))(q)
        np.testing.assert_allclose(SPRINGS(model, q), -slope, atol=1e-12)
    ball = np.array([0.1, 0.2, 0.3, 2])
    rest = jnp.array([0.1, 0.2, *ball / np.linalg.norm(ball), -0.3])
    if model is MODEL:
        np.testing.assert_allclose(SPRINGS(model, rest), np.zeros(6), atol=1e-15)
        np.testing.assert_allclose(SPRINGS.energy(model, rest), 0, atol=1e-15)
        # A quaternion of any length is a rotation, here by 0.05 rad about each axis of the body.
        near = rbd.integrate(model, rest, jnp.full(6, 0.05)).at[2:6].multiply(-3)
        expected = -0.05 * np.array([1, 2, 4, 4, 4, 3])
        np.testing.assert_allclose(SPRINGS(model, near), expected, atol=1e-14)


def test_several_springs_of_one_joint_add_up():
    q, _ = state(MODEL)
    double = JointSprings(("b", "a", "b"), (1.0, 2.0, 3.0), (0.1, 0.0, -0.5))
    b = 1.0 * (q[1] - 0.1) + 3.0 * (q[1] + 0.5)
    np.testing.assert_allclose(double(MODEL, q), [-2 * q[0], -b, 0, 0, 0, 0], atol=1e-14)


def test_single_precision():
    model = MODEL.astype("float32")
    q, v = (x.astype("float32") for x in state(MODEL))
    parts = SPRINGS, GravityCompensation(("lb",), (1.0,), (2.0,), np.ones((1, 3)))
    parts = *parts, PolynomialDamping(("a", "c"), np.ones((4, 3))), None, FLUID
    passive = PassiveForces(*parts)
    traced = jax.eval_shape(lambda q, v: (passive(model, q, v), passive.energy(model, q)), q, v)
    assert {x.dtype.name for x in jax.tree.leaves(traced)} == {"float32"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"joints": "a"}, "joints is 'a'"),
        ({"balls": "c"}, "balls is 'c'"),
        ({"stiffness": (1.0, 2.0)}, r"stiffness has shape \(2,\)"),
        ({"ball_rest": [[0.0, 1]]}, "ball_rest has shape"),
        ({"positions": "c"}, "positions is 'c'"),
        (
            {"stiffness": [[[1.0]]]},
            r"stiffness has .* \(1, 1, 1\) .* expected \(1,\) or \(1, p\)",
        ),
        ({"stiffness": [[1.0, 2.0], [3.0]]}, "stiffness is .* expected an array"),
    ],
)
def test_wrong_parameters_of_springs(change, message):
    with pytest.raises(rbd.ArgumentError, match=message):
        JointSprings(**{"joints": ("a",), "stiffness": (1.0,)} | change)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda q, v: JointSprings(("c",), (1.0,))(MODEL, q), "'c' has 3 degrees"),
        (lambda q, v: JointSprings(balls=("a",), ball_stiffness=(1.0,))(MODEL, q), "'a' is no"),
        (
            lambda q, v: JointSprings(positions=("c",), position_stiffness=(1,))(MODEL, q),
            "'c' is no",
        ),
        (
            lambda q, v: PolynomialDamping(("c",), np.ones((2, 3)))(MODEL, q, v),
            "has 2 rows, expected 3",
        ),
        (lambda q, v: PolynomialDamping("c", np.ones((3, 3))), "joints is 'c'"),
        (lambda q, v: PolynomialDamping(("c",), np.ones((3, 3, 1))), "coefficients has shape"),
        (lambda q, v: FixedAxesArmature("c"), "joints is 'c'"),
        (lambda q, v: FixedAxesArmature(("c",))(MODEL, q, v), "'c' is no free-flyer"),
        (lambda q, v: SPRINGS(MODEL, 0 * q), "zero quaternion"),
        (lambda q, v: GravityCompensation(("x",), *ONE)(MODEL, q), "no frame 'x'"),
        (lambda q, v: GravityCompensation("la", *ONE), "frames is 'la', expected a sequence"),
        (lambda q, v: GravityCompensation(("la",), *ONE[:2], (0, 0, 0)), "centers has shape"),
        (lambda q, v: GravityCompensation(("la",), (1.0,), (-1.0,), [[0, 0, 0]]), "masses is"),
        (lambda q, v: PassiveForces(SPRINGS)(MODEL, q, v[1:]), "v has shape"),
        (lambda q, v: FluidBoxes("la", [[1, 1, 1]]), "frames is 'la'"),
        (lambda q, v: FluidBoxes(("la",), [[-1, 1, 1]]), "sizes is .* 0 or more"),
        (lambda q, v: FluidEllipsoids(("la",), [[0, 1, 1]]), "semi_axes is .* more than 0"),
        (lambda q, v: FluidEllipsoids(("la",), [[1, 1, 1]], None, [1.0]), "coefficients has shape"),
        (lambda q, v: FluidForces(-1.0, 0.0), "density is -1.0, expected finite, 0 or more"),
        (lambda q, v: FluidForces(1.0, 0.0, (1, 2)), "wind has shape"),
        (
            lambda q, v: FluidForces(1, 0, None, FluidBoxes(("x",), [[1, 1, 1]]))(MODEL, q, v),
            "no frame 'x'",
        ),
    ],
)
def test_wrong_calls(call, message):
    with pytest.raises(rbd.ArgumentError, match=message):
        call(*state(MODEL))


# --------------------------------------------------------------------- free-flyers and polynomials

POLYNOMIAL = JointSprings(
    ("j2",),
    [[1.0, 0.5, -0.3]],
    (0.2,),
    ("j0",),
    [[2.0, 0.7, 0.4]],
    None,
    ("j0",),
    [[3.0, 0.2]],
    [[0.1, -0.2, 0.3]],
)


@pytest.mark.slow
def test_polynomial_springs_have_an_energy():
    """The force is minus the gradient of the energy, and its derivatives at rest are finite."""

    @jax.jit
    def compare(q):
        def slope(q):
            return rbd.gradient(FREE, lambda q: POLYNOMIAL.energy(FREE, q))(q)

        def stiffness(force):
            def moved(dq):
                return force(rbd.integrate(FREE, q, dq))

            return jax.jacfwd(moved)(jnp.zeros(FREE.nv))

        force = functools.partial(POLYNOMIAL, FREE)
        return slope(q), force(q), stiffness(force)

    for seed in range(2):
        slope, force, _ = compare(state(FREE, seed)[0])
        np.testing.assert_allclose(force, -slope, rtol=0, atol=1e-12)
    rest = rbd.neutral(FREE).at[jnp.array([0, 1, 2, -1])].set(jnp.array([0.1, -0.2, 0.3, 0.2]))
    slope, force, stiffness = compare(rest)
    np.testing.assert_allclose([slope, force], 0, atol=1e-15)
    expected = np.diag([3.0] * 3 + [2.0] * 3 + [0.0] * 3 + [1.0])
    np.testing.assert_allclose(stiffness, -expected, rtol=0, atol=1e-14)


def test_polynomial_damping_takes_power_and_has_derivatives_at_rest():
    damping = PolynomialDamping(("j2", "j0"), np.arange(21.0).reshape(7, 3))
    q, v = state(FREE)
    force = jax.jit(lambda v: damping(FREE, q, v))
    # In the axes in which the position is given, along one axis after the other.
    R = rbd.so3.quaternion_to_matrix(q[3:7])
    for axis, row in enumerate(damping.coefficients[1:4]):
        found = force(jnp.zeros_like(v).at[:3].set(-2 * R[axis]))
        expected = (row @ [1, 2, 4]) * 2 * np.array(R[axis])
        np.testing.assert_allclose(found, [*expected, *[0] * (FREE.nv - 3)], atol=1e-12)
    assert force(v) @ v < 0
    np.testing.assert_allclose(force(-v), -force(v), rtol=0, atol=1e-13)
    slope = np.array(jax.jacfwd(force)(jnp.zeros_like(v)))
    linear = R.T @ np.diag(damping.coefficients[1:4, 0]) @ R
    np.testing.assert_allclose(slope[:3, :3], -linear, atol=1e-13)
    np.testing.assert_allclose(np.diag(slope)[3:], [-12, -15, -18, 0, 0, 0, 0])


def test_the_correction_of_the_armature_has_no_power():
    model = dataclasses.replace(FREE, armature=FREE.armature.at[:3].set(0.7))
    q, v = state(model)
    found = FixedAxesArmature(("j0",))(model, q, v)
    expected = [*(-0.7 * np.cross(v[3:6], v[:3])), *[0] * (model.nv - 3)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)


# -------------------------------------------------------------------------------------------- fluid

CHAIN_AXES = np.array([[0.1, 0.2, 0.3], [0.2, 0.2, 0.05]])
ELLIPSOIDS = FluidEllipsoids(
    ("ld", "lb"),
    CHAIN_AXES,
    Pose(np.tile(np.eye(3), (2, 1, 1)), np.array([[0.1, 0, 0.2], [0, 0.3, 0]])),
    added_volume=CHAIN_AXES**3,
    added_moment=CHAIN_AXES**5,
)
FLUID = FluidForces(3.0, 0.2, None, FluidBoxes(("la", "lc"), [[0.1, 0.2, 0.3]] * 2), ELLIPSOIDS)


@jax.jit
def in_fluid(fluid, q, v):
    return fluid(MODEL, q, v)


def test_a_fluid_takes_power_and_its_lift_has_none():
    q, v = state(MODEL)
    assert in_fluid(FLUID, q, v) @ v < -1e-3
    without_drag = np.tile([0.0, 0, 0, 2.0, 3.0], (2, 1))
    lifted = eqx.tree_at(lambda x: x.ellipsoids.coefficients, FLUID, without_drag)
    lifted = eqx.tree_at(lambda x: (x.viscosity, x.boxes.sizes), lifted, (0.0, np.zeros((2, 3))))
    force = in_fluid(lifted, q, v)
    assert np.linalg.norm(force) > 0.01
    np.testing.assert_allclose(force @ v, 0, atol=1e-14)


def test_fluid_forces_have_a_gradient_at_rest():
    """Only the viscosity has derivatives at rest; they are a symmetric matrix."""
    q, direction = state(MODEL)
    found = jax.grad(lambda v: in_fluid(FLUID, q, v) @ direction)(jnp.zeros_like(direction))
    thin = eqx.tree_at(lambda x: x.density, FLUID, 0.0)
    np.testing.assert_allclose(found, in_fluid(thin, q, direction), rtol=0, atol=1e-14)


@pytest.mark.slow
def test_fluid_forces_have_derivatives_also_at_rest():
    q, v = state(MODEL)
    _, direction = state(MODEL, 5)

    @jax.jit
    def slopes(v):
        force = functools.partial(FLUID, MODEL, q)
        return jax.jvp(force, (v,), (direction,))[1], jax.vjp(force, v)[1](direction)[0]

    along, back = slopes(v)
    differences = finite_differences.central(lambda h: in_fluid(FLUID, q, v + h * direction), 1e-5)
    np.testing.assert_allclose(along, differences, rtol=0, atol=1e-6)
    np.testing.assert_allclose(back @ direction, along @ direction, rtol=1e-12)
    at_rest, back = slopes(jnp.zeros_like(v))
    thin = eqx.tree_at(lambda x: x.density, FLUID, 0.0)
    np.testing.assert_allclose(at_rest, in_fluid(thin, q, direction), rtol=0, atol=1e-14)
    np.testing.assert_allclose(back, at_rest, rtol=0, atol=1e-14)  # a symmetric matrix
    assert np.all(in_fluid(FLUID, q, jnp.zeros_like(v)) == 0)


def test_wind_is_a_motion_of_the_fluid():
    """A free body that moves with the wind has no force."""
    model = rbd.build_model(
        [Link("body", link_inertia(1.0, (0.1, 0.2, 0.3), np.eye(3)))],
        [JointSpec("free", FreeFlyer(), None, "body")],
    )
    shape = FluidEllipsoids(("body",), [[0.01, 0.002, 0.003]])
    moving = FluidForces(1000.0, 1e-3, (0.3, -0.2, 0.1), None, shape)
    q = rbd.neutral(model).at[:3].set(5.0)
    v = jnp.array([0.3, -0.2, 0.1, 0, 0, 0])
    np.testing.assert_allclose(moving(model, q, v), 0, atol=1e-18)
    # In single precision the products of small lengths do not underflow.
    small, q, v = model.astype("float32"), q.astype("float32"), -2 * v
    found = moving(small, q, v.astype("float32"))
    assert found.dtype == "float32"
    np.testing.assert_allclose(found, moving(model, q.astype(float), v), rtol=1e-5)


# ----------------------------------------------------------------------------- gravity compensation


ONE = (1.0,), (1.0,), [[0.0, 0, 0]]


def test_compensated_links_have_no_weight():
    """With all links compensated, the robot floats; the energy is minus the potential energy."""
    mass, centers = np.ones(4), np.tile([0.1, 0.2, 0.3], (4, 1))
    compensation = GravityCompensation(("la", "lb", "lc", "ld"), mass, mass, centers)
    for model in (MODEL, COUPLED):
        q, v = state(model)
        passive = PassiveForces(gravity_compensation=compensation)
        weight = rbd.gravity_force(model, q)
        np.testing.assert_allclose(passive(model, q, v), weight, rtol=0, atol=1e-13)
        total = passive.energy(model, q) + rbd.potential_energy(model, q)
        np.testing.assert_allclose(total, 0, atol=1e-13)


def test_the_force_of_gravity_compensation_is_minus_the_gradient_of_its_energy():
    compensation = GravityCompensation(
        ("lc", "lc", "ld"), (0.3, -1.0, 2.0), (1.0, 2.0, 3.0), np.arange(9.0).reshape(3, 3)
    )
    q, _ = state(MODEL, 3)
    slope = rbd.gradient(MODEL, lambda q: compensation.energy(MODEL, q))(q)
    np.testing.assert_allclose(compensation(MODEL, q), -slope, rtol=0, atol=1e-11)
    poses = rbd.forward_kinematics(MODEL, q)
    np.testing.assert_array_equal(compensation(MODEL, poses), compensation(MODEL, q))


def test_a_robot_without_joints_has_no_generalized_force():
    model = rbd.load_robot("pendulum")
    fixed = rbd.model.lock_joints(model, dict.fromkeys(model.joint_names, 0.0))
    compensation = GravityCompensation(fixed.frame_names[:1], *ONE)
    assert PassiveForces(None, compensation)(fixed, jnp.zeros(0), jnp.zeros(0)).shape == (0,)


# ------------------------------------------------------------------------------------------- MuJoCo


@functools.cache
def imported(*flags, **changes):
    """MuJoCo's model of `mjcf.PASSIVE` with disabled flags, and our import."""
    text = mjcf.PASSIVE
    for old, new in changes.items():
        text = text.replace(old, new)
    compiled = mujoco.MjModel.from_xml_string(text)
    for flag in flags:
        compiled.opt.disableflags |= getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag}")
    return compiled, from_mujoco(compiled)


@jax.jit
def forces(found, qpos, qvel):
    """The generalized force and the state in our coordinates."""
    model, passive, tendons, coordinates = found
    q = coordinates.q(model, qpos)
    v = coordinates.v(model, q, qvel)
    tau = passive(model, q, v) + tendons(model, q, v)
    # MuJoCo has the armature in its mass matrix.
    total = tau + rbd.passive_force(model, q, v)
    if passive.armature is not None:
        total = total - passive.armature(model, q, v)
    return coordinates.qfrc(model, q, total), tau, q, v


def passive_state(compiled, seed):
    """A state of MuJoCo with its passive forces, and with controls that are zero."""
    data = mjcf.random_state(compiled, np.random.default_rng(seed))
    data.ctrl[:] = 0
    mujoco.mj_forward(compiled, data)
    return data


def parts_of(found):
    return found.model, found.passive, found.tendons, found.coordinates


def assert_close(ours, theirs):
    scale = np.max(np.abs(theirs), initial=1)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9 * scale)


@pytest.mark.parametrize(
    "flags", [(), ("SPRING",), ("DAMPER",), ("GRAVITY",), ("SPRING", "DAMPER")]
)
def test_passive_forces_agree_with_mujoco(flags):
    compiled, found = imported(*flags)
    for seed in range(3):
        data = passive_state(compiled, seed)
        assert_close(forces(parts_of(found), *states_of(data))[0], data.qfrc_passive)


def states_of(data):
    return np.array(data.qpos), np.array(data.qvel)


def test_accelerations_agree_with_mujoco():
    """With the armature of a free joint, which turns in jaxrbd and not in MuJoCo."""
    compiled, found = imported()
    for seed in range(3):
        data = passive_state(compiled, seed)
        _, tau, q, v = forces(parts_of(found), *states_of(data))
        a = rbd.forward_dynamics(found.model.with_dissipation(), q, v, tau)
        assert_close(found.coordinates.qacc(found.model, q, v, a), data.qacc_smooth)


def test_forces_that_do_not_act_are_left_out():
    damping = ("damping", "armature", "fluid")
    assert imported("SPRING", "DAMPER")[1].passive.parts == ("armature",)
    assert imported("GRAVITY")[1].passive.parts == ("springs", *damping)
    assert imported("SPRING")[1].passive.parts == ("gravity_compensation", *damping)
    assert imported("DAMPER")[1].passive.damping is None
    assert imported()[1].passive.gravity_compensation.frames == ("trunk", "pack", "arm", "sled")


@pytest.mark.parametrize("gravcomp", [(-0.5, -1.0), (-0.5, 0.3)])
def test_negative_gravity_compensation_acts_only_beside_a_positive_one(gravcomp):
    """As in MuJoCo."""
    bodies = "".join(
        f'<body gravcomp="{x}"><joint axis="0 1 0"/><geom size=".1" pos=".2 0 0"/></body>'
        for x in gravcomp
    )
    compiled = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>")
    data, found = mujoco.MjData(compiled), from_mujoco(compiled)
    mujoco.mj_forward(compiled, data)
    np.testing.assert_allclose(
        found.passive(found.model, found.q0, np.zeros(2)), data.qfrc_gravcomp, atol=1e-12
    )
