"""Tendons: laws, MuJoCo as an oracle, derivatives, contact steps and wrong arguments."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import jaxrbd as rbd
from jaxrbd import constraints, contact, tendons
from jaxrbd.actuators import PD, AffineActuators
from jaxrbd.io import load_mjcf
from jaxrbd.model import arguments
from jaxrbd.model.shapes import Box, Cylinder, Sphere
from jaxrbd.spatial import Pose
from jaxrbd.tendons import FixedTendon, PathPoint, Pulley, SpatialTendon, Tendons, Wrap, wrapping
from jaxrbd.tendons.wrapping import wrapped_line

# A floating base with a sphere, and an arm with a cylinder at its elbow. Of the side sites, two are
# inside their shape, and two are outside.
WORLD = """
<mujoco>
  <default><geom contype="0" conaffinity="0" mass="1"/></default>
  <worldbody>
    <site name="wall" pos="0.1 0.2 0.6"/>
    <body name="base" pos="0 0 0.3">
      <freejoint name="free"/>
      <geom name="hub" type="sphere" size="0.15" pos="0.02 0 0.01"/>
      <site name="back" pos="-0.25 0.05 0.03"/>
      <site name="above" pos="0.02 0.05 0.3"/>
      <site name="core" pos="0.05 0.02 0.01"/>
      <body name="upper" pos="0.1 0 0">
        <joint name="shoulder" axis="0 1 0.2" pos="-0.05 0 0.01"/>
        <joint name="twist" axis="1 0 0"/>
        <geom type="capsule" size="0.02" fromto="0 0 0 0.4 0 0"/>
        <site name="origin" pos="0.12 0.03 0.05"/>
        <site name="low" pos="0.15 -0.02 -0.1"/>
        <body name="fore" pos="0.4 0 0">
          <joint name="elbow" axis="0 1 0"/>
          <geom name="pin" type="cylinder" size="0.05 0.08" quat="0.7 0.7 0.05 0"/>
          <site name="front" pos="0.1 0.03 0.15"/>
          <site name="axis" pos="0.01 0.02 0"/>
          <site name="insertion" pos="0.15 0.01 -0.04"/>
          <body name="tip" pos="0.3 0 0">
            <joint name="finger" type="slide" axis="1 0 0.3"/>
            <geom type="box" size="0.02 0.03 0.04"/>
            <site name="end" pos="0.02 0 0.03"/>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
  <tendon>
    <fixed name="coupling" stiffness="3" springlength="-0.1 0.2" damping="0.4">
      <joint joint="elbow" coef="0.3"/><joint joint="finger" coef="-2"/>
    </fixed>
    <spatial name="cable" stiffness="20" springlength="0.5" armature="0.7">
      <site site="wall"/><site site="origin"/><site site="end"/>
    </spatial>
    <spatial name="short">
      <site site="back"/><geom geom="hub"/><site site="low"/><geom geom="pin"/>
      <site site="insertion"/>
    </spatial>
    <spatial name="sided" stiffness="5" damping="2">
      <site site="back"/><geom geom="hub" sidesite="above"/><site site="origin"/>
      <geom geom="pin" sidesite="front"/><site site="insertion"/>
    </spatial>
    <spatial name="inside">
      <site site="back"/><geom geom="hub" sidesite="core"/><site site="origin"/>
      <geom geom="pin" sidesite="axis"/><site site="end"/>
    </spatial>
    <spatial name="pulleys" damping="1.5">
      <pulley divisor="2"/><site site="wall"/><geom geom="hub"/><site site="low"/>
      <pulley divisor="0.7"/><site site="origin"/><site site="front"/><site site="end"/>
    </spatial>
  </tendon>
  <actuator>
    <motor name="pull" tendon="sided" gear="3" ctrlrange="-1 1"/>
    <position name="hold" tendon="coupling" kp="7" kv="0.3" forcerange="-0.6 0.6"/>
    <motor name="knee" joint="elbow" gear="2"/>
    <general name="second" tendon="sided" gainprm="2 1 0.5" biastype="affine" biasprm="1 -2 -3"/>
  </actuator>
</mujoco>
"""
ROBOT = load_mjcf(WORLD)
MODEL = ROBOT.model


def quantities(model, cables, q, v):
    return {
        "lengths": cables.lengths(model, q),
        "moment arms": cables.moment_arms(model, q),
        "rates": cables.rates(model, q, v),
        "force": cables(model, q, v),
        "drive": ROBOT.actuators(model, q, v, CONTROL.astype(v.dtype)),
    }


CONTROL = jnp.array([0.8, 0.5, -0.7, 0.3])
in_batches = jax.jit(jax.vmap(quantities, in_axes=(None, None, 0, 0)))


@pytest.fixture(scope="module")
def states():
    """Eight states: MuJoCo's, and q and v of the model."""
    compiled = mujoco.MjModel.from_xml_string(WORLD)
    rng, found, q, v = np.random.default_rng(3), [], [], []
    to_q, to_v = (jax.jit(f) for f in (ROBOT.coordinates.q, ROBOT.coordinates.v))
    for _ in range(8):
        data = mujoco.MjData(compiled)
        data.qpos[:] = compiled.qpos0 + np.append(0.1 * rng.normal(size=7), rng.normal(size=4))
        data.qpos[-1] *= 0.2
        data.qvel[:] = rng.normal(size=compiled.nv)
        data.ctrl[:] = CONTROL
        mujoco.mj_forward(compiled, data)
        found.append(data)
        q.append(to_q(MODEL, data.qpos.copy()))
        v.append(to_v(MODEL, q[-1], data.qvel.copy()))
    return compiled, found, jnp.stack(q), jnp.stack(v)


@pytest.fixture(scope="module")
def results(states):
    _, _, q, v = states
    return in_batches(MODEL, ROBOT.tendons, q, v)


def test_every_quantity_agrees_with_mujoco(states, results):
    compiled, data, q, v = states
    qfrc = jax.jit(ROBOT.coordinates.qfrc)
    qacc = jax.jit(ROBOT.coordinates.qacc)
    touching = np.zeros(compiled.ntendon)
    for i, state in enumerate(data):
        close = {"rtol": 1e-7, "atol": 1e-7}  # MuJoCo's iterations for the inside end at 1e-6
        np.testing.assert_allclose(results["lengths"][i], state.ten_length, rtol=1e-12)
        np.testing.assert_allclose(results["rates"][i], state.ten_velocity, **close)
        force = qfrc(MODEL, q[i], results["force"][i])
        np.testing.assert_allclose(force, state.qfrc_passive, **close)
        drive = qfrc(MODEL, q[i], results["drive"][i])
        np.testing.assert_allclose(drive, state.qfrc_actuator, **close)
        a = tendons.tendon_dynamics(MODEL, ROBOT.tendons, q[i], v[i], results["drive"][i])
        np.testing.assert_allclose(
            qacc(MODEL, q[i], v[i], a), state.qacc_smooth, rtol=1e-6, atol=1e-6
        )
        points = state.wrap_obj.ravel()
        for cable in range(compiled.ntendon):
            first = state.ten_wrapadr[cable]
            touching[cable] += np.sum(points[first : first + state.ten_wrapnum[cable]] >= 0)
    # Each tendon with shapes touches one in some states, and not in all.
    at_most = [0, 0, 32, 32, 32, 16]
    assert all((touching > 0) == (np.array(at_most) > 0))
    assert all(touching <= at_most)


@pytest.mark.slow
def test_the_rates_and_the_forces_follow_from_the_moment_arms(states, results):
    *_, q, v = states
    arms = np.asarray(results["moment arms"])
    np.testing.assert_allclose(results["rates"], np.einsum("bnv,bv->bn", arms, v), atol=1e-13)
    tensions = jax.jit(jax.vmap(ROBOT.tendons.tensions, (None, 0, 0)))(MODEL, q, v)
    force = -np.einsum("bn,bnv->bv", tensions, arms)
    np.testing.assert_allclose(results["force"], force, atol=1e-12)
    still = in_batches(MODEL, ROBOT.tendons, q, jnp.zeros_like(v))["force"]
    slope = jax.jit(jax.vmap(rbd.gradient(MODEL, lambda q: ROBOT.tendons.energy(MODEL, q))))(q)
    np.testing.assert_allclose(still, -slope, atol=1e-12)


def test_moment_arms_are_the_derivatives_of_the_lengths(states, results):
    *_, q, _ = states
    arms = np.asarray(results["moment arms"])
    dv = jnp.asarray(np.random.default_rng(0).normal(size=(len(q), MODEL.nv)))

    def lengths(q):
        return ROBOT.tendons.lengths(MODEL, q)

    @jax.jit
    @jax.vmap
    def lengths_and_jacobian(q, step):
        moved = rbd.integrate(MODEL, q, step)
        return lengths(moved), rbd.jacobian(MODEL, lengths)(moved)

    np.testing.assert_allclose(lengths_and_jacobian(q, 0 * dv)[1], arms, atol=1e-13)
    after, before = (lengths_and_jacobian(q, step * dv)[0] for step in (1e-6, -1e-6))
    change = np.asarray(after - before) / 2e-6
    np.testing.assert_allclose(change, np.einsum("nij,nj->ni", arms, dv), atol=1e-8)


@pytest.mark.slow
def test_derivatives_of_moment_arms_and_of_all_parameters(states):
    """Forward and reverse mode, against central differences."""
    *_, q, v = states
    values, unravel = ravel_pytree(jax.tree.map(jnp.asarray, ROBOT.tendons))
    weights = jnp.asarray(np.random.default_rng(1).normal(size=(6, MODEL.nv)))
    direction = jnp.asarray(np.random.default_rng(2).normal(size=values.shape))
    direction = jnp.where(values == 0, 0, direction)  # rest lengths of zero bound the dead band

    def total(q, dv, values):
        cables = unravel(values)
        moved = rbd.integrate(MODEL, q, dv)
        arms = cables.moment_arms(MODEL, moved)
        return jnp.sum(weights * arms) + jnp.sum(cables(MODEL, moved, v[0]))

    @jax.jit
    def all_along(q, t):
        """The value after a movement by t, and its derivatives by both modes."""
        changes = v[1], direction
        value, rate = jax.linearize(
            lambda *x: total(q, *x), t * changes[0], values + t * changes[1]
        )
        gradient = jax.linear_transpose(rate, *changes)(jnp.ones_like(value))
        return value, rate(*changes), sum(x @ dx for x, dx in zip(gradient, changes))

    for x in q[:3]:
        _, forward, reverse = all_along(x, 0.0)
        difference = (all_along(x, 1e-6)[0] - all_along(x, -1e-6)[0]) / 2e-6
        np.testing.assert_allclose(forward, reverse, rtol=1e-10)
        np.testing.assert_allclose(forward, difference, rtol=1e-6)


@pytest.mark.slow
def test_lengths_in_single_precision(states, results):
    *_, q, _ = states
    single = jax.tree.map(lambda x: jnp.asarray(np.asarray(x, np.float32)), MODEL)

    @jax.jit
    @jax.vmap
    def both(q):
        return ROBOT.tendons.lengths(single, q), ROBOT.tendons.moment_arms(single, q)

    found = both(q.astype(jnp.float32))
    for name, value in zip(("lengths", "moment arms"), found):
        assert value.dtype == jnp.float32
        np.testing.assert_allclose(value, results[name], atol=2e-5, err_msg=name)


def test_equalities_of_tendons_agree_with_mujoco(states):
    equalities = """<equality><tendon tendon1="coupling" polycoef="0.1 0 0 0 0"/>
      <tendon tendon1="sided" tendon2="inside" polycoef="0.2 0.5 -0.3 0.1 0.2"/></equality>"""
    text = WORLD.replace("</mujoco>", equalities + "</mujoco>")
    compiled, robot = mujoco.MjModel.from_xml_string(text), load_mjcf(text)
    data = mujoco.MjData(compiled)
    _, found, q, v = states
    data.qpos[:], data.qvel[:] = found[1].qpos, found[1].qvel
    mujoco.mj_forward(compiled, data)

    @jax.jit
    def position_and_rate(q, v):
        rows = constraints.constraint_rows(robot.model, q, v, robot.constraints)
        return rows.position, rows.K @ v

    position, rate = position_and_rate(q[1], v[1])
    np.testing.assert_allclose(position, data.efc_pos[:2], atol=1e-10)
    np.testing.assert_allclose(rate, data.efc_vel[:2], atol=1e-6)


def test_a_file_with_a_limited_actuator_force_on_a_tendon():
    text = WORLD.replace('name="sided"', 'name="sided" actuatorfrcrange="-1.5 2"')
    compiled, robot = mujoco.MjModel.from_xml_string(text), load_mjcf(text)
    q, v = robot.q0, jnp.zeros(MODEL.nv)
    for control in ([3.0, 0, 0, 0], [-1.0, 0, 0, -3]):
        data = mujoco.MjData(compiled)
        data.ctrl[:] = control
        mujoco.mj_forward(compiled, data)
        drive = robot.actuators(robot.model, q, v, jnp.array(control))
        np.testing.assert_allclose(drive, data.qfrc_actuator, atol=1e-10)


def test_actuators_add_armature_and_damping_to_their_tendons():
    text = WORLD.replace('name="pull"', 'name="pull" armature="0.2" damping="0.4"')
    text = text.replace('tendon="sided" gear="3"', 'tendon="cable" gear="3"')
    found, before = load_mjcf(text).tendons, ROBOT.tendons
    np.testing.assert_allclose(found.armature - before.armature, [0, 1.8, 0, 0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(found.damping - before.damping, [0, 3.6, 0, 0, 0, 0], atol=1e-12)


# ------------------------------------------------------------------ wrapping


def test_the_touching_point_needs_few_iterations(monkeypatch):
    """Of a tendon inside of a shape; also where Newton's method starts at the solution."""
    rng = np.random.default_rng(0)
    l_a, l_b = 1 + 10 ** rng.uniform(-2, 1, (2, 4000))
    psi = rng.uniform(0.01, np.pi, 4000)
    l_a[:9], l_b[:9], psi[:9] = 2.0, 2.0, np.linspace(0.1, 1.9, 9)  # the start is the solution
    a, b = np.stack([l_a, 0 * psi]), l_b * np.stack([np.cos(psi), np.sin(psi)])
    share = np.clip(-np.sum(a * (b - a), axis=0) / np.sum((b - a) ** 2, axis=0), 0, 1)
    misses = np.sum((a + share * (b - a)) ** 2, axis=0) > 1
    case = l_a[misses], l_b[misses], np.ones(np.sum(misses)), psi[misses]
    monkeypatch.setattr(wrapping, "_MAX_ITERATIONS", 9)
    phi = jax.jit(jax.vmap(wrapping._touching_angle))(*case)
    assert len(phi) > 1000
    assert np.max(np.abs(jax.jit(jax.vmap(wrapping._mismatch))(phi, *case))) < 1e-13


@pytest.mark.parametrize("second", [(2.0, 0.0, 0.0), (0.8, 0.0, 0.0), (1.5, 4e-9, -3e-9)])
def test_the_derivatives_of_a_tendon_that_bends_to_a_sphere_in_line_with_its_center(second):
    """Any plane through the line is right, but the derivatives of the forces turn the plane."""
    points = np.array([[0.8, 0.0, 0.0], second])
    turn = np.asarray(rbd.so3.exp(np.array([0.3, -0.5, 0.8])))
    points = points @ turn.T
    case = np.array(0.3), np.array(True), turn @ [0, 0.1, 0], np.array(True), np.array(1)

    def length(x):
        return wrapped_line(x[0], x[1], *case).length

    def forces(x):
        line = wrapped_line(x[0], x[1], *case)
        return jnp.stack([line.f_0, line.f_1])

    assert length(points) > np.linalg.norm(points[1] - points[0]) + 0.1
    check_forces = jax.jit(forces)
    found = jax.jit(jax.jacfwd(forces))(points).reshape(6, 6)
    step = 1e-5 * np.eye(6).reshape(6, 2, 3)
    differences = [check_forces(points + h) - check_forces(points - h) for h in step]
    np.testing.assert_allclose(found, np.reshape(differences, (6, 6)).T / 2e-5, atol=1e-7)
    np.testing.assert_allclose(found, found.T, atol=1e-7)
    slopes = jax.jit(jax.grad(length))(points)
    np.testing.assert_allclose(slopes, forces(points), atol=1e-9)


def test_a_tendon_around_a_sphere_stays_in_the_plane_of_points_nearly_opposite():
    """The length has a kink where the points are opposite, so the plane matters right beside it."""
    first, second = np.array([1.0, 0.0, 0.0]), np.array([-1.2, -6e-6, 8e-6])
    line = wrapped_line(first, second, np.array(0.3), np.array(True))
    tangent = np.arcsin(0.3)  # between the line to the center and the tendon
    np.testing.assert_allclose(line.f_0[0], np.cos(tangent), rtol=1e-9)
    np.testing.assert_allclose(line.f_0[1:], np.sin(tangent) * np.array([0.6, -0.8]), rtol=1e-4)


def line_and_slopes(*case):
    return wrapped_line(*case), jax.grad(lambda *x: wrapped_line(*x).length, (0, 1, 2))(*case)


wrap = jax.jit(jax.vmap(line_and_slopes))


def wraps(cases):
    """The lines of cases (x_0, x_1, radius, is_sphere, side or None), and their slopes."""
    padded = [*cases, *[cases[0]] * (1000 - len(cases))]  # one size, so one program
    x_0, x_1, radius, sphere, side = zip(*padded)
    sided = np.array([s is not None for s in side])
    side = np.array([np.zeros(3) if s is None else s for s in side], float)
    arrays = (np.array(x, float) for x in (x_0, x_1, radius))
    depends = np.full(len(padded), -1)  # whether a side site is inside depends on its position
    found = wrap(*map(jnp.asarray, (*arrays, np.array(sphere), side, sided, depends)))
    line, slopes = jax.tree.map(lambda x: np.asarray(x)[: len(cases)], found)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves((line, slopes)))
    np.testing.assert_allclose(line.f_0, slopes[0], atol=2e-7)
    np.testing.assert_allclose(line.f_1, slopes[1], atol=2e-7)
    return line, slopes


def test_paths_around_a_disk():
    quarter = np.pi / 2
    across = [(-2, 0, 0), (2, 0, 0), 1, False]  # both tangents have the angle pi / 3
    tangents, arc = 2 * np.sqrt(3), np.pi - 2 * np.pi / 3
    cases = {
        "tangents at a right angle": ([(1, -0.5, 0), (-0.5, 1, 0), 1, False, None], 1 + quarter),
        "a helix": ([(-0.5, 1, 1), (1, -0.5, 5), 1, False, None], np.hypot(1 + quarter, 4)),
        "past a sphere": ([(0, -0.5, 1), (0, 1, -0.5), 1, True, None], 1 + quarter),
        "through the middle": ([*across, None], tangents + arc),
        "beside the disk": ([(-2, 1.5, 0), (2, 1.5, 0), 1, False, None], 4),
        "behind, by the side site": (
            [(-2, 1.5, 0), (2, 1.5, 0), 1, False, (0, -2, 0)],
            2 * np.sqrt(5.25) + 2 * np.pi - 2 * np.arctan2(2, 1.5) - 2 * np.arccos(1 / 2.5),
        ),
        "at an angle, the side site has no effect": (
            [(-2, 1.5, 0), (2, 1.5, 0), 1, False, (-2, 0.1, 0)],
            4,
        ),
        "a point inside": ([(0.5, 0, 0), (2, 0, 0), 1, True, None], 1.5),
        "bent to the inside": (
            [(-2, 1.5, 0), (2, 1.5, 0), 1, False, (0.1, 0, 0)],
            2 * np.hypot(2, 0.5),
        ),
        "the chord crosses, so it stays": ([*across, (0.1, 0.2, 0)], 4),
    }
    line, _ = wraps([case for case, _ in cases.values()])
    for value, (name, (_, expected)) in zip(line.length, cases.items()):
        assert value == pytest.approx(expected, rel=1e-13), name


def test_an_inside_touching_point_gives_the_shortest_path():
    rng = np.random.default_rng(0)
    angles = np.linspace(0, 2 * np.pi, 200_001)
    circle = np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1)
    cases, expected = [], []
    while len(cases) < 12:
        a, b = (np.append(rng.uniform(-3, 3, 2), 0.0) for _ in range(2))
        part = np.clip(-a @ (b - a) / ((b - a) @ (b - a)), 0, 1)
        if min(np.linalg.norm(x) for x in (a, b, a + part * (b - a))) > 1.01:
            cases.append((a, b, 1.0, len(cases) % 2 == 0, (0.1, 0.1, 0)))
            paths = np.linalg.norm(circle - a, axis=1) + np.linalg.norm(circle - b, axis=1)
            expected.append(paths.min())
    line, _ = wraps(cases)
    np.testing.assert_allclose(line.length, expected, rtol=1e-8)


def test_a_side_site_is_inside_by_its_distance_in_space():
    """As in MuJoCo: a site beyond the end of a cylinder is outside, also near its axis."""
    ends = [(-2, 1.5, 0), (2, 1.5, 0), 1, False]
    near, far = (0.1, 0.2, 0), (0.1, 0.2, 1.5)
    line, _ = wraps([(*ends, near), (*ends, far)])
    np.testing.assert_allclose(line.length, [2 * np.hypot(2, 0.5), 4])


def test_forces_of_points_in_line_with_the_center_are_unit_vectors():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 3))
    cases = [(a, -k * a, 0.1, True, None) for a, k in zip(x, rng.uniform(0.5, 2, 50))]
    line, _ = wraps(cases)
    np.testing.assert_allclose(np.linalg.norm(line.f_0, axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(line.f_1, axis=1), 1, rtol=1e-12)


def test_a_point_on_the_surface_is_outside():
    angles = np.linspace(0, 2 * np.pi, 40)
    points = [(0.03 * np.cos(t), 0.03 * np.sin(t), 0.02) for t in angles]
    ends = [(0.1 * np.cos(t + 2.8), 0.1 * np.sin(t + 2.8), 0.02) for t in angles]
    line, _ = wraps([(a, b, 0.03, False, None) for a, b in zip(points, ends)])
    tangent = np.sqrt(0.1**2 - 0.03**2)
    np.testing.assert_allclose(line.length, tangent + 0.03 * (2.8 - np.arccos(0.3)), rtol=1e-7)


def test_equal_points_in_the_plane_have_a_straight_line():
    along_the_axis = [(0.6, 1.7, -1), (0.6, 1.7, 2), 1, False]
    line, _ = wraps([(*along_the_axis, None), (*along_the_axis, (-0.6, -1.7, 0))])
    np.testing.assert_allclose(line.length, 3)


def test_special_positions_have_finite_derivatives():
    origin, on, near = (0, 0, 0), (1, 0, 0), (1 + 1e-9, 1e-9, 0)
    points = [origin, on, near, (0, 0, 2), (-2, 0, 0), (2, 0, 0), (2, 1e-12, 1e-12)]
    sides = [None, origin, (0.2, 0, 0), (0, 3, 0), on]
    wraps([(a, b, r, s, c) for a in points for b in points for r in (0, 1) for s in (True, False)
           for c in sides])  # fmt: skip


def test_lengths_are_smooth_where_a_tendon_begins_to_touch():
    heights = 1 + np.array([-1e-5, -1e-7, 1e-7, 1e-5])
    for sphere, side in ((True, None), (False, None), (False, (0.1, 0, 0))):
        cases = [((-2, h, 0.3), (1.5, h, 0.3 * sphere), 1.0, sphere, side) for h in heights]
        if sphere:
            cases = [((-2, h, 0), (1.5, h, 0), 1.0, True, None) for h in heights]
        line, slopes = wraps(cases)
        np.testing.assert_allclose(np.diff(line.length), 0, atol=3e-5)
        # The slope by an end changes continuously, as the square root of the height or slower.
        assert np.max(np.abs(np.diff(slopes[0][1:3], axis=0))) < 1e-3


# ------------------------------------------------------------------ contact steps

PENDULUM = """
<mujoco><option gravity="0 0 -9.81"/>
  <worldbody><site name="hook" pos="0 0 1"/>
    <body name="bob"><joint name="slide" type="slide" axis="0 0 1"/>
      <joint name="side" type="slide" axis="1 0 0"/>
      <geom size="0.05" mass="2" contype="0" conaffinity="0"/><site name="eye" pos="0 0 0.1"/>
    </body></worldbody>
  <tendon><spatial name="rope"><site site="hook"/><site site="eye"/></spatial></tendon>
</mujoco>
"""
BOB = load_mjcf(PENDULUM)
(ROPE,) = BOB.tendons.tendons


@jax.jit
def fall(cables, q, v, dt, steps):
    def body(_, state):
        found = contact.contact_step(
            BOB.model, contact.Scene(()), *state[:2], jnp.zeros(2), dt, tendons=cables
        )
        return found.q, found.v, found.tendon_impulse

    return jax.lax.fori_loop(0, steps, body, (q, v, jnp.zeros(1)))


FULL = {name: [0.0] for name in ("stiffness", "damping", "friction", "armature")}
FULL |= {"limits": [[0.0, 1e9]]}


@pytest.mark.parametrize(
    ("properties", "length"),
    [
        ({"limits": [[0.0, 1.2]]}, 1.2),
        ({"stiffness": [1e7], "rest": [[0.2, 1.1]]}, 1.1 + 2 * 9.81 / 1e7),
        ({"stiffness": [400.0], "rest": [[1.0, 1.0]], "damping": [80.0]}, 1.0 + 2 * 9.81 / 400),
        ({"friction": [25.0]}, 0.9),
        ({"stiffness": [1e7], "rest": [[-np.inf, 1.1]]}, 1.1 + 2 * 9.81 / 1e7),
        # A stiff spring with the tension 1e7 x^3, and damping.
        (
            {"stiffness": [[0.0, 0, 1e7]], "rest": [[0.2, 1.1]], "damping": [[80.0, 20, 0]]},
            1.1 + (2 * 9.81 / 1e7) ** (1 / 3),
        ),
    ],
)
def test_a_rope_holds_a_weight(properties, length):
    cables = Tendons([ROPE], **FULL | properties)
    dt = 0.004
    q, v, impulse = fall(cables, jnp.zeros(2), jnp.zeros(2), dt, 1000)
    assert float(cables.lengths(BOB.model, q)[0]) == pytest.approx(length, abs=2e-3)
    np.testing.assert_allclose(v, 0, atol=5e-3)
    assert float(impulse[0]) == pytest.approx(dt * 2 * 9.81, rel=5e-3)


def test_a_rope_that_is_too_short_pushes_and_a_weak_friction_slides():
    pushed = Tendons([ROPE], **FULL | {"limits": [[1.3, 2.0]]})
    q, _, impulse = fall(pushed, jnp.array([-0.4, 0.0]), jnp.array([1.0, 0.0]), 0.004, 30)
    assert pushed.lengths(BOB.model, q)[0] > 1.29
    # A rope of 1.25 m grows at the rate gap / (dt + recovery).
    _, v, _ = fall(pushed, jnp.array([-0.35, 0.0]), jnp.zeros(2), 0.004, 1)
    assert float(-v[0]) == pytest.approx(0.05 / 0.024, rel=0.01)
    sliding = Tendons([ROPE], **FULL | {"friction": [5.0]})
    _, v, impulse = fall(sliding, jnp.zeros(2), jnp.zeros(2), 0.004, 50)
    assert float(v[0]) == pytest.approx(-(9.81 - 2.5) * 0.2, rel=1e-3)
    assert float(impulse[0]) == pytest.approx(0.004 * 5.0)


@pytest.mark.parametrize(
    ("stiffness", "damping"),
    [(30.0, 2.0), ([30.0, 50.0, -9.0], [2.0, 3.0, 4.0]), ([30.0, -900.0, 0.0], [0.0, 0.0, 1.0])],
    ids=["constants", "polynomials", "negative stiffness"],
)
def test_a_step_has_the_acceleration_of_the_dynamics(stiffness, damping):
    q, v = jnp.array([-0.2, 0.3]), jnp.array([0.4, -1.0])
    laws = {"stiffness": [stiffness], "rest": [[0.2, 0.9]], "damping": [damping]}
    cables = Tendons([ROPE], **FULL | laws | {"armature": [1.5]})
    a = tendons.tendon_dynamics(BOB.model, cables, q, v, jnp.zeros(2))
    dt = 1e-6
    _, after, _ = fall(cables, q, v, dt, 1)
    np.testing.assert_allclose((after - v) / dt, a, rtol=1e-4)
    bare = tendons.tendon_dynamics(BOB.model, Tendons([ROPE]), q, v, jnp.zeros(2))
    assert np.max(np.abs(bare - a)) > 1
    np.testing.assert_allclose(bare, rbd.forward_dynamics(BOB.model, q, v, jnp.zeros(2)))


def test_the_acting_tendons_of_arrays_on_another_device(monkeypatch):
    monkeypatch.setattr(arguments, "known", lambda x: None)  # as for an array on a GPU
    found = Tendons([ROPE], stiffness=jnp.ones(1)).only_acting()
    assert found.names == ("rope",)


def test_no_tendons_act():
    assert Tendons([], stiffness=[]).only_acting().tendons == ()


def test_the_derivatives_of_a_step():
    """With respect to the state and all properties, where each property acts."""
    q, v = jnp.array([-0.2, 0.3]), jnp.array([-0.4, -1.0])
    second = FixedTendon("sum", {"slide": 1.0, "side": 0.5})
    cables = Tendons(
        [ROPE, second],
        stiffness=[30.0, 5.0],
        rest=[[0.2, 0.9], [0.1, 0.2]],
        damping=[2.0, 1.0],
        friction=[0.5, 0.2],
        armature=[1.5, 0.4],
        limits=[[0.0, 1.24], [-0.06, 3.0]],
    )
    values, unravel = ravel_pytree((q, v, jax.tree.map(jnp.asarray, cables)))
    scene, zero = contact.Scene(()), jnp.zeros(2)

    def after(values):
        q, v, cables = unravel(values)
        found = contact.contact_step(BOB.model, scene, q, v, zero, 0.01, tendons=cables)
        return found.q @ jnp.array([1.0, 2.0]) + found.v @ jnp.array([3.0, 1.0])

    direction = jnp.asarray(np.random.default_rng(0).normal(size=values.shape))

    @jax.jit
    def results(t):
        x = values + t * direction
        return after(x), jax.grad(after)(x) @ direction

    (above, _), (below, _), (_, slope) = (results(t) for t in (1e-5, -1e-5, 0.0))
    np.testing.assert_allclose(slope, (above - below) / 2e-5, rtol=1e-6)


FIRST = FixedTendon("difference", {"slide": -1.0, "side": 0.3})
SECOND = FixedTendon("sum", {"slide": 1.0, "side": 0.5})
DRIVES = AffineActuators(
    [FIRST, SECOND, "side", SECOND],
    gain=[[9.0, 0, 0], [40.0, 0, 0], [3.0, 0, 0], [0, -1.0, 0]],
    bias=[[0, -9.0, -0.6], [2.0, 0, 0], [0, -3.0, 0], [0, 0, -1.5]],
    gear=[2.0, 1.0, 1.0, -1.5],
    control_range=[[-9, 9]] * 4,
)
PULLS = AffineActuators(
    [FIRST, SECOND],
    gain=[[9.0, 0, 0], [40.0, 0, 0]],
    bias=[[0, -9.0, -0.6], [2.0, 0, 0]],
    gear=[-2.0, -1.0],
    force_range=[[-1.0, 25.0], [-60.0, 0.5]],
    tendon_force_range=[[-90.0, 3.0], [-5.0, 7.0]],
)


@jax.jit
def driven_step(actuators, q, v, control):
    servo, tau = contact.servo_of_actuators(actuators, BOB.model, q, control)
    found = contact.contact_step(BOB.model, contact.Scene(()), q, v, tau, 0.004, servo=servo)
    after = rbd.integrate(BOB.model, q, 0.004 * found.v)
    impulse = tau * 0.004 + found.joint_impulse.servo
    impulse = impulse - found.tendon_impulse @ Tendons([FIRST, SECOND]).moment_arms(BOB.model, q)
    return impulse / 0.004, actuators(BOB.model, after, found.v, control)


@pytest.mark.parametrize(
    ("actuators", "control"),
    [
        (DRIVES, [0.3, -0.2, 0.5, 0.4]),
        (PULLS, [0.3, 0.1]),
        (PULLS, [8.0, -0.3]),
        (PULLS, [-8.0, -0.1]),
    ],
)
def test_a_servo_pulls_tendons_with_the_force_after_the_step(actuators, control):
    found, expected = driven_step(
        actuators, jnp.array([-0.2, 0.3]), jnp.array([0.4, -1.0]), jnp.array(control)
    )
    assert np.all(np.isfinite(found))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_traced_range_without_order_gives_nan():
    joints = contact.Servo(PD(*np.zeros((2, 2))), jnp.zeros(2))
    one = jnp.ones(1)

    @jax.jit
    @jax.vmap
    def velocity(force_range):
        servo = contact.TendonServo((FIRST,), one, one, force_range[None], length=one, rate=one)
        servo, x = joints._replace(tendons=servo), jnp.array([-0.2, 0.3])
        return contact.contact_step(BOB.model, contact.Scene(()), x, x, x, 0.01, servo=servo).v

    found = velocity(jnp.array([[-1.0, 1.0], [jnp.nan, 1.0], [-1.0, jnp.nan], [1.0, -1.0]]))
    np.testing.assert_array_equal(jnp.any(jnp.isnan(found), axis=1), [False, True, True, True])


# ------------------------------------------------------------------ wrong arguments


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SpatialTendon("t", ["a"]), "branch 0 of tendon 't' has 1 points"),
        (lambda: SpatialTendon("t", "ab"), "path of tendon 't' is 'ab'"),
        (
            lambda: SpatialTendon("t", ["a", "b", Pulley(2.0), "c"]),
            "branch 1 of tendon 't' has 1 points",
        ),
        (lambda: SpatialTendon("t", [Wrap(Sphere(1.0), "a"), "b", "c"]), "entry 0 of the path"),
        (
            lambda: SpatialTendon("t", ["a", Wrap(Sphere(1.0), "a"), Pulley(1.0), "b", "c"]),
            "entry 1 of the path of tendon 't' is a Wrap",
        ),
        (lambda: Pulley(0.0), "divisor is 0.0, expected more than 0"),
        (lambda: PathPoint("a", [1.0, 2.0]), r"position has shape \(2,\)"),
        (lambda: FixedTendon("t", [1.0, 2.0], ["a"]), "coefficients has shape"),
        (lambda: FixedTendon("t", [1.0]), "joints is None"),
        (lambda: FixedTendon("t", {"a": 1.0}, ["a"]), "joints is given"),
        (lambda: FixedTendon("t", {}), "tendon 't' has no joints"),
        (
            lambda: contact.servo_of_actuators(
                AffineActuators([FIRST], bias=[[0, 0, 1.0]]), BOB.model, jnp.zeros(2), jnp.zeros(1)
            ),
            "the damping of tendon",
        ),
        (lambda: Tendons([ROPE], stiffness=[-1.0]), "stiffness is .*, expected finite, 0 or more"),
        (lambda: Tendons([ROPE], armature=[jnp.nan]), "armature is .*, expected no NaN"),
        (lambda: Tendons([ROPE], limits=[[2.0, 1.0]]), "limits has a lower bound above"),
        (
            lambda: Tendons([SpatialTendon("t", ["hook", "eyes"])]).lengths(
                BOB.model, jnp.zeros(2)
            ),
            "eyes",
        ),
        (
            lambda: Tendons([FixedTendon("t", {"x": 1.0})]).lengths(BOB.model, jnp.zeros(2)),
            "no joint 'x'",
        ),
        (
            lambda: contact.servo_of_actuators(
                AffineActuators([ROPE, ROPE], force_range=[[-1, 1], [-2, 2]]),
                BOB.model,
                jnp.zeros(2),
                jnp.zeros(2),
            ),
            "tendon 'rope' has 2 actuators and a limit",
        ),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(rbd.ArgumentError, match=message):
        make()


def test_a_shape_that_is_no_sphere_or_cylinder():
    shape = [Box([1.0, 1.0, 1.0])]
    with pytest.raises(Exception, match="Box"):
        Wrap(shape[0], "a")
    assert isinstance(Wrap(Cylinder(1.0, 1.0), "a", Pose(np.eye(3), np.zeros(3))), Wrap)


# ---------------------------------------------------------------- limits of rotations

BALL = """
<mujoco><compiler angle="radian"/><option gravity="0 0 -9.81"/>
  <worldbody><body name="arm" quat="1 0.2 0.1 0">
    <joint name="turn" axis="0 0 1" pos="0.2 0 0"/>
    <joint name="ball" type="ball" limited="true" range="0 0.9"/>
    <geom size="0.1" pos="0.3 0.1 0.4" mass="2" contype="0" conaffinity="0"/>
  </body></worldbody>
</mujoco>"""
CONE = load_mjcf(BALL)


@jax.jit
def swing(q, v, dt, steps):
    def body(_, state):
        q, v, greatest, _ = state
        found = contact.contact_step(
            CONE.model, contact.Scene(()), q, v, jnp.zeros(4), dt, tendons=CONE.tendons
        )
        (angle,) = CONE.tendons.lengths(CONE.model, found.q)
        return found.q, found.v, jnp.maximum(greatest, angle), found.tendon_impulse[0]

    return jax.lax.fori_loop(0, steps, body, (q, v, jnp.zeros(()), jnp.zeros(())))


@pytest.mark.slow
def test_the_range_of_a_ball_joint_limits_its_angle():
    """The row agrees with MuJoCo's, and the arm stays within the range."""
    compiled, model = mujoco.MjModel.from_xml_string(BALL), CONE.model
    data = mujoco.MjData(compiled)
    data.qpos[:] = [0.4, 0.8, 0.2, -0.4, 0.3]
    data.qvel[:] = [0.3, -0.5, 0.7, 0.2]
    mujoco.mj_normalizeQuat(compiled, data.qpos)
    mujoco.mj_forward(compiled, data)
    assert data.nefc == 1
    q = CONE.coordinates.q(model, data.qpos)
    angle, arms = CONE.tendons.lengths(model, q), CONE.tendons.moment_arms(model, q)
    np.testing.assert_allclose(0.9 - angle, data.efc_pos, rtol=0, atol=1e-14)
    np.testing.assert_allclose(-arms, data.efc_J.reshape(1, -1), rtol=0, atol=1e-14)
    slope = jax.jit(rbd.gradient(model, lambda q: CONE.tendons.lengths(model, q)[0]))(q)
    np.testing.assert_allclose(arms[0], slope, rtol=0, atol=1e-13)
    for dt in (0.004, 0.001):  # the error is of first order
        _, _, greatest, impulse = swing(CONE.q0, jnp.zeros(4), dt, int(0.8 / dt))
        assert 0 < float(greatest) - 0.9 < 10 * dt
        assert float(impulse) > 0


def test_the_angle_zero_has_finite_derivatives():
    model, q = CONE.model, CONE.q0

    def moved(dq):
        after = rbd.integrate(model, q, dq)
        return CONE.tendons.lengths(model, after), CONE.tendons.moment_arms(model, after)

    slopes = jax.jit(lambda dq: (jax.jacfwd(moved)(dq), jax.jacrev(moved)(dq)))(jnp.zeros(4))
    assert all(jnp.all(x == 0) for x in jax.tree.leaves(slopes))


def test_a_disabled_limit_of_a_ball_is_left_out():
    for flag in ("limit", "constraint"):
        text = BALL.replace("<option gr", f"<option><flag {flag}='disable'/></option><option gr")
        assert not load_mjcf(text).tendons.acting


def test_only_acting_tendons():
    """The force is the same; the tendons without properties are left out."""
    tendons = ROBOT.tendons
    bare = Tendons([tendons.tendons[1], *tendons.tendons], rest=np.zeros((7, 2)))
    assert bare.only_acting().names == ()
    n = len(tendons.names)
    idle = np.zeros(n)
    idle[2] = 3.0
    some = Tendons(tendons.tendons, stiffness=idle, rest=tendons.rest, damping=np.zeros(n))
    found = some.only_acting()
    assert found.names == (tendons.names[2],)
    np.testing.assert_array_equal(found.rest, tendons.rest[2:3])
    bounds = np.where(np.arange(n)[:, None] == 1, [0, 1], [-np.inf, np.inf])
    limited = Tendons(tendons.tendons, limits=bounds)
    assert limited.only_acting().names == (tendons.names[1],)
    with pytest.raises(rbd.ArgumentError, match="stiffness is traced, expected known values"):
        jax.jit(lambda k: Tendons(tendons.tendons, stiffness=k).only_acting().rest)(jnp.ones(n))


@pytest.mark.parametrize(
    ("side", "expected"),
    [
        (None, False),
        (PathPoint("upper", (0.0, 0.0, 0.2)), False),
        (PathPoint("upper", (0.0, 0.1, 0.01)), True),
        (PathPoint("lower", (0.0, 0.0, 0.01)), None),
    ],
)
def test_whether_a_side_site_is_inside_is_known_in_the_frame_of_the_shape(side, expected):
    wrap = Wrap(Sphere(0.05), "upper", (0.0, 0.1, 0.0), side)
    assert wrap.side_is_inside is expected


def test_the_derivative_of_a_spring_at_its_rest_length():
    """One length without tension, or an interval whose bound is the length."""
    model = rbd.load_robot("pendulum")
    for rest in ((0.3, 0.3), (-np.inf, 0.3), (0.3, 0.4)):
        tendon = FixedTendon("t", {model.joint_names[0]: 1.0})
        spring = Tendons([tendon], stiffness=[10.0], rest=[rest])
        found = jax.jacfwd(lambda q, spring=spring: spring(model, q, jnp.zeros(1)))(
            jnp.array([0.3])
        )
        np.testing.assert_array_equal(found, [[-10]])
