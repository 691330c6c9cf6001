"""Inverse kinematics in which links keep a distance from each other and from obstacles.

An arm of two links of 1 m in the plane has a ball at its tip. Its solutions are known in closed
form.
"""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd.collision import PlacedShape, Sphere, pairs_of
from jaxrbd.collision.robot_shapes import checked_pairs, distances_and_jacobian
from jaxrbd.inverse_kinematics import (
    Clearance,
    FrameTask,
    PostureTask,
    differential_inverse_kinematics,
    inverse_kinematics,
    search_inverse_kinematics,
)
from jaxrbd.spatial import Pose

LINK = """<link name="{0}"><inertial><mass value="1"/>
    <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>{1}</link>"""
BALL = """<collision><origin xyz="{0} 0 0"/><geometry><sphere radius="0.1"/></geometry>
    </collision>"""
JOINT = """<joint name="{1}_joint" type="{2}"><parent link="{0}"/><child link="{1}"/>
    <origin xyz="{3} 0 0"/><axis xyz="0 0 1"/><limit lower="-3" upper="3" effort="1" velocity="1"/>
    </joint>"""
OBSTACLE = np.array([1.0, 1.0, 0.0])
RADIUS = 0.3


@functools.cache
def arm():
    """The arm, and its pairs with a ball of the radius 0.3 at (1, 1, 0)."""
    links = [LINK.format("base", ""), LINK.format("upper", BALL.format(0.5))]
    links += [LINK.format("lower", BALL.format(0.5)), LINK.format("tip", BALL.format(0.0))]
    joints = [
        JOINT.format("base", "upper", "revolute", 0),
        JOINT.format("upper", "lower", "revolute", 1),
    ]
    joints += [JOINT.format("lower", "tip", "fixed", 1)]
    model = rbd.load_urdf(f"<robot name='planar'>{''.join([*links, *joints])}</robot>")
    ball = PlacedShape(Sphere(RADIUS), X_FS=Pose(np.eye(3), OBSTACLE), name="ball")
    return model, pairs_of(model, [ball])


def tip(q):
    return np.array([np.cos(q[0]) + np.cos(q[0] + q[1]), np.sin(q[0]) + np.sin(q[0] + q[1]), 0])


@jax.jit
def distances_of(q):
    """The distances of the pairs of the arm."""
    model, pairs = arm()
    return distances_and_jacobian(model, rbd.forward_kinematics(model, q), pairs)[0]


@functools.cache
def solver():
    """One program for a position of the tip: a function of the target, the start and the margin."""
    model, pairs = arm()

    def solve(p, q0, margin):
        tasks = [FrameTask.position("tip", p), Clearance(pairs, margin)]
        return inverse_kinematics(model, tasks, q0)

    return jax.jit(solve)


def test_the_jacobian_of_distances_is_their_derivative(rng):
    model, pairs = arm()
    assert pairs.names == (("upper", "ball"), ("lower", "ball"), ("tip", "ball"))
    q, v = jnp.asarray(rng.uniform(-2, 2, (2, model.nv)))

    def distances(q):
        return distances_and_jacobian(model, rbd.forward_kinematics(model, q), pairs)

    (d, J), (rates, _) = jax.jit(lambda q, v: jax.jvp(distances, (q,), (v,)))(q, v)
    np.testing.assert_allclose(J @ v, rates, atol=1e-14)
    np.testing.assert_allclose(d[2], np.linalg.norm(tip(q) - OBSTACLE) - 0.4, atol=1e-14)


def test_a_target_in_an_obstacle_is_approached_up_to_the_margin():
    """The tip stops at the point of least distance from the target outside the obstacle."""
    target = OBSTACLE + 0.1 * np.array([0.6, -0.8, 0.0])
    found = solver()(target, jnp.array([-0.5, 1.0]), 0.05)
    assert not found.converged
    assert found.stationary
    # The ball at the tip has the radius 0.1.
    expected = OBSTACLE + (RADIUS + 0.1 + 0.05) * np.array([0.6, -0.8, 0.0])
    np.testing.assert_allclose(tip(found.q), expected, atol=1e-9)
    np.testing.assert_allclose(found.errors.linear, [0.35, 0], atol=1e-9)
    np.testing.assert_allclose(found.error, 0.35, atol=1e-9)


def test_a_margin_that_cannot_be_kept():
    """The error of the clearance is the largest lack of distance, here of the upper link."""
    found = solver()(np.array([-1.0, -1.0, 0.0]), jnp.array([-2.0, 0.5]), 4.0)
    assert not found.converged
    distances = np.asarray(distances_of(found.q))
    assert int(np.argmin(distances)) == 0
    np.testing.assert_allclose(found.errors.linear[1], 4.0 - distances[0], atol=1e-9)
    square = np.sum((4.0 - distances) ** 2) + found.errors.linear[0] ** 2
    np.testing.assert_allclose(found.error, np.sqrt(square), atol=1e-9)


def test_a_solution_is_free_of_collisions_where_the_nearest_one_is_not():
    """Of the two solutions for a target, one touches the obstacle."""
    model, _ = arm()
    target = np.array([1.55, 0.1, 0.0])
    task = FrameTask.position("tip", target)
    blocked = inverse_kinematics(model, [task], jnp.array([0.9, -1.2]))
    assert blocked.converged
    margin = float(np.min(distances_of(blocked.q))) + 0.05
    found = solver()(target, blocked.q, margin)
    assert found.converged
    np.testing.assert_allclose(tip(found.q), target, atol=1e-8)
    assert np.min(distances_of(found.q)) >= margin - 1e-9
    assert jnp.sign(found.q[1]) == -jnp.sign(blocked.q[1])


def test_a_clearance_does_not_matter_where_it_is_satisfied():
    model, _ = arm()
    target, q0 = np.array([-1.0, -1.2, 0.0]), jnp.array([-2.0, 0.5])
    found = solver()(target, q0, 0.01)
    alone = inverse_kinematics(model, [FrameTask.position("tip", target)], q0)
    assert found.converged
    assert alone.converged
    np.testing.assert_allclose(found.q, alone.q, atol=1e-9)


@pytest.mark.slow
def test_the_derivative_of_a_solution_at_an_obstacle():
    """The tip slides along the obstacle; a change of the margin moves it outwards."""
    n = np.array([0.6, -0.8, 0.0])
    solve = solver()  # not while tracing: it is kept for other tests

    def position(angle, margin):
        target = jnp.asarray(OBSTACLE) + 0.1 * jnp.stack(
            [jnp.cos(angle), jnp.sin(angle), 0 * angle]
        )
        found = solve(target, jnp.array([-0.5, 1.0]), margin)
        x, y = found.q[0], found.q[0] + found.q[1]
        return jnp.stack([jnp.cos(x) + jnp.cos(y), jnp.sin(x) + jnp.sin(y), 0 * x])

    angle = float(np.arctan2(n[1], n[0]))
    by_angle, by_margin = jax.jit(jax.jacfwd(position, argnums=(0, 1)))(angle, 0.05)
    np.testing.assert_allclose(by_angle, 0.45 * np.array([-n[1], n[0], 0]), atol=1e-8)
    np.testing.assert_allclose(by_margin, n, atol=1e-8)


@pytest.mark.slow
def test_a_posture_among_the_configurations_that_keep_the_distance():
    """The tip has to be at x = 1; the posture would put it into the obstacle, at y = 0.9.

    The minimum is compared with all configurations of a fine grid of y.
    """
    model, pairs = arm()
    margin = 0.05

    def configurations(y):
        """Both configurations with the tip at (1, y)."""
        elbow, direction = np.arccos((1 + y**2) / 2 - 1), np.arctan2(y, 1)
        return np.stack([direction - elbow / 2, elbow]), np.stack([direction + elbow / 2, -elbow])

    posture = configurations(np.array(0.9))[0]
    task = FrameTask.position("tip", np.array([1.0, 0, 0]), weights=[1.0, 0, 0])

    def solve(q0):
        tasks = [task, PostureTask(posture, 1.0), Clearance(pairs, margin)]
        return inverse_kinematics(model, tasks, q0)

    found = jax.jit(solve)(jnp.asarray(configurations(np.array(0.1))[0]))
    assert found.converged
    assert found.stationary
    least = np.inf
    for q in configurations(np.linspace(0.0, 1.7, 20001)):
        middle = np.stack([np.cos(q[0]), np.sin(q[0])])
        end = np.stack([np.cos(q[0] + q[1]), np.sin(q[0] + q[1])])
        balls = (middle / 2, middle + end / 2, middle + end)
        nearest = np.min([np.linalg.norm(x - OBSTACLE[:2, None], axis=0) for x in balls], axis=0)
        free = nearest >= RADIUS + 0.1 + margin
        distance = np.linalg.norm(q - posture[:, None], axis=0)[free]
        least = min(least, np.min(distance, initial=np.inf))
    assert least > 0.1
    np.testing.assert_allclose(np.linalg.norm(found.q - posture), least, atol=1e-3)
    np.testing.assert_allclose(tip(found.q)[0], 1, atol=1e-9)
    np.testing.assert_allclose(np.min(distances_of(found.q)), margin, atol=1e-9)


@functools.cache
def velocity():
    """A function of the target, the configuration and the margin, and its derivative by the margin.

    The gain is 0.1.
    """
    model, pairs = arm()

    def solve(p, q, margin):
        tasks = [FrameTask.position("tip", p), Clearance(pairs, margin)]
        v = differential_inverse_kinematics(model, q, tasks, 0.1, 0.1, locked=())
        distances = functools.partial(distances_and_jacobian, pairs=pairs)
        d, J = distances(model, rbd.forward_kinematics(model, q))
        return v, d, J @ v

    def with_rate(p, q, margin):
        return jax.jvp(lambda x: solve(p, q, x), (margin,), (jnp.ones_like(margin),))

    return jax.jit(with_rate)


@pytest.mark.slow
def test_a_velocity_approaches_an_obstacle_by_the_gain():
    """The target is in the obstacle. The tip would approach by a tenth of its error per step."""
    n, margin = np.array([0.6, -0.8, 0.0]), 0.05
    for gap in (0.02, 0.0, -0.02):  # of the ball at the tip, beyond the margin
        reach = RADIUS + 0.1 + margin + gap
        q = np.asarray(solver()(OBSTACLE + reach * n, jnp.array([-0.5, 1.0]), -9.0).q)
        (v, d, rates), (_, _, by_margin) = velocity()(OBSTACLE, jnp.asarray(q), margin)
        np.testing.assert_allclose(d[2], margin + gap, atol=1e-8)
        np.testing.assert_allclose(rates[2], -0.1 * gap / 0.1, atol=1e-8)
        assert np.all(np.abs(v) < 1)  # the velocity limit
        np.testing.assert_allclose(by_margin[2], 0.1 / 0.1, atol=1e-6)


def test_a_velocity_away_from_obstacles_does_not_depend_on_them():
    model, _ = arm()
    target, q = np.array([-1.0, -1.2, 0.0]), jnp.array([-2.0, 0.5])
    found = velocity()(target, q, 0.01)[0][0]
    alone = differential_inverse_kinematics(model, q, [FrameTask.position("tip", target)], 0.1, 0.1)
    np.testing.assert_allclose(found, alone, atol=1e-9)


@pytest.mark.slow
def test_a_velocity_servo_of_an_arm_among_boxes():
    """The tip is drawn into a box, and stops in front of it."""
    from jaxrbd.collision import Box, robot_distances

    model = rbd.load_robot("arm7")
    places = [(0.5, 0, 0.6), (0, 0.5, 0.8), (-0.4, -0.3, 0.5)]
    boxes = [
        PlacedShape(Box([0.1, 0.1, 0.1]), X_FS=Pose(np.eye(3), np.array(p)), name=f"box {p}")
        for p in places
    ]
    pairs = pairs_of(model, boxes)

    @jax.jit
    def advance(q):
        tasks = [FrameTask.position("flange", places[0]), Clearance(pairs, 0.02)]
        v = differential_inverse_kinematics(model, q, tasks, 0.01, 0.2)
        after = rbd.integrate(model, q, 0.01 * v)
        return after, jnp.min(robot_distances(model, after, pairs)), v

    q = jnp.array([0.3, 0.5, 0, -1.2, 0, 0.8, 0])
    least = []
    for _ in range(300):
        q, distance, v = advance(q)
        least.append(float(distance))
        assert jnp.all(jnp.isfinite(v))
    assert min(least) > 0.0185  # the rates of distances change within a step
    assert abs(least[-1] - 0.02) < 1e-6


@pytest.mark.slow
def test_a_search_and_a_posture_with_obstacles():
    """Reachable targets of the bundled arm among boxes: reached, and free of collisions."""
    from jaxrbd.collision import Box, robot_distances

    model = rbd.load_robot("arm7")
    places = [(0.5, 0, 0.6), (0, 0.5, 0.8), (-0.4, -0.3, 0.5), (0.3, -0.5, 0.9), (0, 0, 1.5)]
    boxes = [
        PlacedShape(Box([0.1, 0.1, 0.1]), X_FS=Pose(np.eye(3), np.array(p)), name=f"box {p}")
        for p in places
    ]
    pairs = pairs_of(model, boxes)
    distances = jax.jit(jax.vmap(lambda q: jnp.min(robot_distances(model, q, pairs))))
    keys = jax.random.split(jax.random.key(0), 200)
    q = jax.vmap(lambda key: rbd.random_configuration(model, key))(keys)
    q = q[np.flatnonzero(distances(q) > 0.02)[:100]]
    targets = jax.vmap(lambda q: rbd.frame_placement(model, q, "flange"))(q)

    def search(X, key):
        tasks = [FrameTask("flange", X), Clearance(pairs, 0.01)]
        return search_inverse_kinematics(model, tasks, key)

    found = jax.jit(jax.vmap(search))(targets, keys[: len(q)])
    assert np.mean(found.converged) >= 0.99
    assert np.min(np.where(found.converged, distances(found.q), 1)) > 0.01 - 1e-9

    def near(X, q0, posture):
        tasks = [FrameTask("flange", X), Clearance(pairs, 0.01), PostureTask(posture, 1e-3)]
        return inverse_kinematics(model, tasks, q0)

    found = jax.jit(jax.vmap(near))(targets, q[::-1], q[::-1])
    assert np.mean(found.converged) >= 0.95
    assert np.min(np.where(found.converged, distances(found.q), 1)) > 0.01 - 1e-8


WRONG = {
    "margin of the Clearance has shape": lambda: Clearance(arm()[1], [0.1, 0.2]),
    "margin of the Clearance is nan": lambda: Clearance(arm()[1], np.nan),
    # The type checker of the tests would refuse this before the package does.
    "pairs is 3": lambda: inspect.unwrap(checked_pairs)(3),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments(message):
    with pytest.raises(rbd.ArgumentError, match=message):
        WRONG[message]()
