"""Torsional and rolling friction: the moments at contacts of a ball, a box and a pair of bodies."""

import dataclasses

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import contact
from jaxrbd.collision import PlacedShape, Sphere
from jaxrbd.contact import Material, Scene
from jaxrbd.errors import ArgumentError
from jaxrbd.io import load_mjcf
from support import finite_differences
from support.zoo import close

G, DT = 9.81, 0.002
MASS, RADIUS, MU, TORSIONAL, ROLLING = 2.0, 0.1, 0.8, 0.02, 0.005
INERTIA = 0.4 * MASS * RADIUS**2
WEIGHT = MASS * G


def free_bodies(count, gravity):
    """Balls of equal mass on free-flyers."""
    inertia = rbd.model.link_inertia(MASS, (0, 0, 0), INERTIA * np.eye(3))
    names = [f"body{i}" for i in range(count)]
    joints = [rbd.model.JointSpec(f"j{x}", rbd.joints.FreeFlyer(), None, x) for x in names]
    links = [rbd.model.Link(x, inertia) for x in names]
    return rbd.build_model(links, joints, gravity=gravity)


BALL = free_bodies(1, (0, 0, -G))
SURFACE = Material(1e6, 2.0, MU, 1e-3, torsional=TORSIONAL, rolling=ROLLING)
ON_PLANE = Scene(("body0",), radii=RADIUS, material=SURFACE)
START = np.array([0, 0, RADIUS, 0, 0, 0, 1.0])


@jax.jit
def simulate(model, scene, q, v):
    """100 steps of 2 ms: the last step."""

    def advance(state, _):
        step = contact.contact_step(model, scene, *state, jnp.zeros_like(v), DT)
        return (step.q, step.v), step

    steps = jax.lax.scan(advance, (jnp.asarray(q), jnp.asarray(v)), length=100)[1]
    return jax.tree.map(lambda x: x[-1], steps)


def world_velocity(q, v):
    """The linear and the angular velocity of the ball in world axes."""
    R = rbd.frame_placement(BALL, jnp.asarray(q), "body0").R
    return np.asarray(R @ v[:3]), np.asarray(R @ v[3:])


def normal_impulse(linear):
    """The sum of the normal impulses of `simulate`: of the weight, and of the change of momentum.

    A ball that turns hovers over the plane and sinks as it slows down (`contact_step`).
    """
    return WEIGHT * 100 * DT + MASS * linear[2]


def test_a_spinning_ball_slows_down_by_the_torsional_moment():
    step = simulate(BALL, ON_PLANE, START, np.array([0, 0, 0, 0, 0, 20.0]))
    linear, angular = world_velocity(step.q, step.v)
    expected = 20 - TORSIONAL * normal_impulse(linear) / INERTIA
    close(angular, np.array([0, 0, expected]), 1e-9)
    close(step.moment, np.array([[0, 0, -TORSIONAL * WEIGHT * DT]]), 1e-6)
    # A slower one comes to rest, and rests.
    step = simulate(BALL, ON_PLANE, START, np.array([0, 0, 0, 0, 0, 5.0]))
    assert np.max(np.abs(step.v)) < 1e-5


def test_a_rolling_ball_slows_down_by_the_rolling_moment():
    speed, inertia = 0.8, MASS * RADIUS**2 + INERTIA  # the inertia about the contact point
    first = simulate(BALL, ON_PLANE, START, np.array([speed, 0, 0, 0, speed / RADIUS, 0]))
    before, _ = world_velocity(first.q, first.v)
    step = simulate(BALL, ON_PLANE, first.q, first.v)
    linear, angular = world_velocity(step.q, step.v)
    # The pull of the plane, m a, takes a part of the cone.
    pull = MASS * ROLLING * G * RADIUS * MASS / inertia
    share = np.sqrt(1 - (pull / (MU * WEIGHT)) ** 2)
    expected = share * ROLLING * normal_impulse(linear - before) * RADIUS / inertia
    close(before[0] - linear[0], expected, 1e-4)
    close(angular[1], linear[0] / RADIUS, 4e-3)
    close(step.moment[0, 1], -share * ROLLING * WEIGHT * DT, 1e-7)


@pytest.mark.parametrize("holds", [True, False])
def test_a_ball_on_a_slope(holds):
    """It rests if the pull and the moment of its weight lie in the cone of the contact."""
    limit = np.arctan(1 / np.hypot(1 / MU, RADIUS / ROLLING))
    angle = limit + (-0.01 if holds else 0.01)
    gravity = G * jnp.array([np.sin(angle), 0, -np.cos(angle)])
    model = dataclasses.replace(BALL, gravity=gravity)
    step = simulate(model, ON_PLANE, START, np.zeros(6))
    linear, angular = world_velocity(step.q, step.v)
    if holds:
        # A moment creeps: the velocity of the friction is R times its impulse, see `contact_step`.
        scale = ROLLING / MU
        mean = contact.inverse_inertias(BALL, ON_PLANE).contacts[0]
        creep = 1e-3 * mean * RADIUS * WEIGHT * np.sin(angle) * DT / scale**2
        close(angular[1] / creep, 1.0, 1e-2)
    else:
        drive = RADIUS * WEIGHT * np.sin(angle) - ROLLING * WEIGHT * np.cos(angle)
        close(linear[0], 100 * DT * drive * RADIUS / (MASS * RADIUS**2 + INERTIA), 5e-4)
        assert linear[0] > 0.01


def test_the_moments_of_compliant_contact():
    """The law of the docstring, and a moment about the normal that no point of a sphere gives."""
    depth, spin, roll = 1e-3, 3.0, 4.0
    q = START - np.array([0, 0, depth, 0, 0, 0, 0])
    v = np.array([roll * RADIUS, 0, 0, 0, roll, spin])
    force = contact.contact_force(BALL, ON_PLANE, q, v)
    f_n = force.normal_force[0]
    close(f_n, 1e6 * depth**2, 1e-9)
    rates = np.array([TORSIONAL / MU * spin, ROLLING / MU * roll])
    speed = np.sqrt(np.sum(rates**2) + 1e-3**2)
    expected = -MU * f_n / speed * rates * np.array([TORSIONAL, ROLLING]) / MU
    close(force.moment[0], np.array([0, expected[1], expected[0]]), 1e-9)
    close(force.friction_force, np.zeros((1, 3)), 1e-9)
    close(force.f_ext[0, 3:], force.moment[0], 1e-9)


@pytest.mark.slow
def test_a_pair_has_opposite_moments():
    """Two balls that touch, without gravity, keep their momentum."""
    model = free_bodies(2, (0, 0, 0))
    ball = [PlacedShape(Sphere(RADIUS), f"body{i}") for i in range(2)]
    scene = Scene.from_shapes((), [tuple(ball)], material=SURFACE)
    rotation = np.array([0.1, 0.2, 0.3, 0.9]) / np.linalg.norm([0.1, 0.2, 0.3, 0.9])
    place = 2 * RADIUS * np.array([0.96, 0.28, 0])
    q = np.array([0, 0, 0, 0, 0, 0, 1, *place, *rotation])
    v = np.array([0.5, 0, 0, 2.0, -1, 1, -0.3, 0.1, 0, -2, 3, 1.0])

    def momentum(q, v):
        total = np.zeros(6)
        for i in range(2):
            X = rbd.frame_placement(model, jnp.asarray(q), f"body{i}")
            p, w = MASS * X.R @ v[6 * i : 6 * i + 3], INERTIA * X.R @ v[6 * i + 3 : 6 * i + 6]
            total += np.concatenate([p, np.cross(X.p, p) + w])
        return total

    step = contact.contact_step(model, scene, q, v, np.zeros(12), 1e-6)
    close(momentum(step.q, step.v), momentum(q, v), 1e-6)
    assert np.linalg.norm(step.moment) > 1e-4
    # Compliant: the moments of the wrenches about the points of the two balls.
    q[7:10] *= 0.99
    force = contact.contact_force(model, scene, q, v)
    normal = -q[7:10] / np.linalg.norm(q[7:10])  # from body 1 to body 0
    for i, sign in ((0, 1), (1, -1)):
        R = np.asarray(rbd.frame_placement(model, q, f"body{i}").R)
        f, m = R @ force.f_ext[i, :3], R @ force.f_ext[i, 3:]
        arm = -sign * 0.99 * RADIUS * normal  # to the middle of the overlap
        close(m - np.cross(arm, f), sign * np.asarray(force.moment[0]), 1e-9)
    # The moment opposes the relative angular velocity, scaled about and across the normal.
    w = [rbd.frame_velocity(model, q, v, f"body{i}")[3:] for i in range(2)]
    spin = scene.spin(jnp.asarray(normal[None]))[0]
    opposed = -np.asarray(spin.T @ spin @ (w[0] - w[1]))
    size = np.linalg.norm(force.moment)
    close(force.moment[0], opposed / np.linalg.norm(opposed) * size, 1e-9)
    assert size > 1e-3


@jax.jit
def step_and_rate(q, values, directions):
    """A step for numbers and a displacement of q, and its derivative in a direction."""

    def step_of(numbers, dv):
        friction, torsional, rolling, v = numbers
        material = Material(1e6, 2.0, friction, torsional=torsional, rolling=rolling)
        scene = dataclasses.replace(ON_PLANE, material=material)
        step = contact.contact_step(BALL, scene, rbd.integrate(BALL, q, dv), v, jnp.zeros(6), DT)
        return jnp.concatenate([step.v, step.impulse[0], step.moment[0]])

    return jax.jvp(step_of, values, directions)


@pytest.mark.parametrize("speed", [1e-4, 2.0], ids=["sticks", "slips"])
def test_the_derivatives_of_a_step_with_moments(speed):
    v = speed * np.array([0.5, -0.2, -0.05, 1.0, 2.0, 1.5])
    values = (MU, TORSIONAL, ROLLING, v), np.zeros(6)
    q = START - np.array([0, 0, 1e-4, 0, 0, 0, 0])
    directions = (0.1, 0.01, 0.003, v), np.array([0.1, 0.2, 0.02, 0.3, -0.1, 0.2])
    result, found = map(np.asarray, step_and_rate(q, values, directions))
    on_edge = np.hypot(*result[6:8]) ** 2 / MU**2 + result[11] ** 2 / TORSIONAL**2
    on_edge += np.sum(result[9:11] ** 2) / ROLLING**2
    assert (abs(on_edge / result[8] ** 2 - 1) < 1e-6) == (speed > 1)

    def at(h):
        moved = jax.tree.map(lambda x, d: x + h * d, values, directions)
        return np.asarray(step_and_rate(q, moved, directions)[0])

    close(found, finite_differences.central(at, 1e-6), 1e-5)


@pytest.mark.slow
def test_batches_and_single_precision_of_moments():
    rng = np.random.default_rng(0)
    v = rng.normal(size=(70, 6))
    batch = jax.vmap(simulate, (None, None, None, 0))
    single = batch(BALL.astype(jnp.float32), ON_PLANE, START.astype(np.float32), v.astype("f4"))
    assert single.v.dtype == jnp.float32
    for i in (0, 69):
        one = simulate(BALL, ON_PLANE, START, v[i])
        close(np.asarray(single.v[i], float), one.v, 1e-3)


@pytest.mark.slow
def test_a_torsional_moment_alone_needs_one_row():
    """The same motion as with a rolling moment of zero."""
    v = np.array([0.3, 0, 0, 0.5, 1, 6.0])
    materials = [
        Material(friction=MU, torsional=0.02),
        Material(friction=MU, torsional=0.02, rolling=0),
    ]
    scenes = [dataclasses.replace(ON_PLANE, material=x) for x in materials]
    normal = jnp.array([[0, 0, 1.0]])
    assert [scene.spin(normal).shape for scene in scenes] == [(1, 1, 3), (1, 3, 3)]
    one, three = (simulate(BALL, scene, START, v) for scene in scenes)
    close(one.v, three.v, 1e-9)
    close(one.moment, three.moment, 1e-12)


ERRORS = {
    "torsional is -0.1, expected finite, 0 or more": {"torsional": -0.1},
    "rolling is [ 0.1 -0.1], expected finite, 0 or more": {"rolling": [0.1, -0.1]},
    "torsional is 0.1, expected 0 where the friction is 0; friction is 0.0": {
        "friction": 0.0,
        "torsional": 0.1,
    },
}


@pytest.mark.parametrize("message", ERRORS)
def test_wrong_moments_are_named(message):
    with pytest.raises(ArgumentError) as error:
        Material(**ERRORS[message])
    assert str(error.value) == message


def test_a_moment_for_each_contact():
    material = Material(friction=MU, rolling=[0.1, 0.2])
    scene = Scene(("body0",), radii=RADIUS, material=material)
    with pytest.raises(ArgumentError, match=r"rolling has shape \(2,\), expected \(\) or \(1,\)"):
        contact.contact_step(BALL, scene, START, np.zeros(6), np.zeros(6), DT)


# --------------------------------------------------------------------------------------- MuJoCo

FILE = """<mujoco><option timestep="0.002" cone="elliptic" impratio="10"/>
  <worldbody><geom type="plane" size="5 5 1" condim="1"/>
  <body pos="0 0 0.1"><freejoint/>
    <geom type="{kind}" size=".1 .1 .1" mass="2" condim="{condim}" friction=".8 .02 .005"/>
  </body></worldbody></mujoco>"""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "condim"), [("sphere", 6), ("sphere", 4), ("box", 4)])
def test_a_file_turns_and_rolls_as_in_mujoco(kind, condim):
    text = FILE.format(kind=kind, condim=condim)
    robot = load_mjcf(text)
    compiled = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(compiled)
    spin = 0.8 if kind == "box" else 6.0
    data.qvel[:] = [0.4, 0, 0, 0, 4 if kind == "sphere" else 0, spin]
    q, v = np.array([0, 0, 0.1, 0, 0, 0, 1.0]), data.qvel.copy()
    for _ in range(100):
        mujoco.mj_step(compiled, data)
    step = simulate(robot.model, robot.scene, q, v)
    R = rbd.frame_placement(robot.model, step.q, 0).R
    theirs = np.concatenate([data.qvel[:3], R @ data.qvel[3:]])
    ours = np.concatenate([R @ step.v[:3], R @ step.v[3:]])
    close(ours, theirs, 0.03 * np.linalg.norm(v))
    assert np.linalg.norm(theirs - v) > 0.1 * np.linalg.norm(v)
