"""Inverse kinematics: reached targets, limits, minima, derivatives and errors."""

import dataclasses
import functools
import re
import types

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from scipy.optimize import least_squares, lsq_linear, nnls

import jaxrbd as rbd
from jaxrbd import constraints as con, inverse_kinematics as ik
from jaxrbd._math import linear
from jaxrbd.inverse_kinematics import (
    box_qp,
    differential,
    implicit,
    solution as ik_solution,
    solver,
    tasks as ik_tasks,
)
from jaxrbd.model.joint_space import coordinates_with_rates, position_limits
from support import finite_differences, nightly, pages, real_robots, zoo
from support.zoo import close

IDENTITY = rbd.spatial.identity_pose(float)


@pytest.fixture(scope="module")
def arm():
    return rbd.load_robot("arm7")


def random_pose(seed):
    rng = np.random.default_rng(seed)
    return rbd.Pose(rbd.so3.exp(jnp.asarray(rng.normal(size=3))), jnp.asarray(rng.normal(size=3)))


def within_limits(model, q):
    place, _ = coordinates_with_rates(model)
    x, lower, upper = (
        np.asarray(y)[..., place]
        for y in (q, model.lower_position_limit, model.upper_position_limit)
    )
    return np.all((x >= lower) & (x <= upper))


@jax.jit
def solve(model, tasks, q0):
    return ik.inverse_kinematics(model, tasks, q0)


rows = jax.jit(ik_tasks.rows)


@functools.partial(jax.jit, static_argnums=3)
def search(model, tasks, key, seeds=16):
    return ik.search_inverse_kinematics(model, tasks, key, seeds)


# A planar arm: three links on hinges about z, each 1 m along x from the hinge before it.
MASSES, CENTRES = np.array([1.0, 2.0, 1.5]), np.array([0.5 + 0.2j, 0.3 - 0.1j, 0.8 + 0.3j])


@functools.cache
def planar(link="l"):
    links = [
        rbd.model.Link(f"{link}{i}", rbd.model.link_inertia(m, (c.real, c.imag, 0), np.eye(3)))
        for i, (m, c) in enumerate(zip(MASSES, CENTRES))
    ]
    joints = [
        rbd.model.JointSpec(
            f"j{i}",
            rbd.joints.Revolute((0, 0, 1)),
            f"{link}{i - 1}" if i else None,
            f"{link}{i}",
            rbd.model.placement_matrix((1.0 if i else 0.0, 0, 0)),
            lower=-3.0,
            upper=3.0,
        )
        for i in range(3)
    ]
    return rbd.build_model(links, joints)


def planar_centre(q, length=1.0):
    """The centre of mass of the planar arm as x + y i; `length`: of its first link."""
    turns = np.exp(1j * np.cumsum(np.asarray(q)))
    places = np.array([0, length * turns[0], length * turns[0] + turns[1]])
    return MASSES @ (places + turns * CENTRES) / np.sum(MASSES)


# ----------------------------------------------------------------------------- errors and Jacobians


def test_jacobians_are_the_rates_of_the_errors():
    """Along a line, on which frames turn relative to their target, each other, and a posture."""
    model = zoo.build(["spherical", "revolute"], [-1, 0])
    q, dq, *_ = zoo.state(model, 1)
    tasks = [
        ik.FrameTask("l1", random_pose(0)),
        ik.FrameTask("l0", random_pose(1), relative_to="l1"),
        ik.GazeTask("l1", random_pose(2).p, random_pose(3).p),
        ik.GazeTask("l0", random_pose(4).p, random_pose(5).p, relative_to="l1"),
        ik.PostureTask(zoo.state(model, 2)[0], 0.5),
    ]
    found = jax.jit(lambda t: ik_tasks.rows(model, tasks, rbd.integrate(model, q, t * dq)))
    rate = finite_differences.slope(lambda t: found(t).error, 1e-3)
    close(found(jnp.zeros(())).J @ dq, rate, 1e-9)
    # A planar joint has as many coordinates as velocities, but they are not their rates.
    sledge, q, dq = zoo.build(["planar"], [-1]), jnp.array([0.1, 0.2, 0.9]), dq[:3]
    posture = [ik.PostureTask(jnp.array([0.3, -0.4, 0.5]), 0.5)]
    found = jax.jit(lambda t: ik_tasks.rows(sledge, posture, rbd.integrate(sledge, q, t * dq)))
    rate = finite_differences.slope(lambda t: found(t).error, 1e-3)
    close(found(jnp.zeros(())).J @ dq, rate, 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("robot", ["small", "following", "coupled"])
def test_jacobians_are_the_derivatives_of_the_errors(robot):
    model = getattr(zoo, robot)()
    q = zoo.state(model, 1)[0]
    tasks = [
        ik.FrameTask("l2", random_pose(0), np.arange(1.0, 7)),
        ik.ComTask([0.1, 0.2, 0.3]),
        ik.FrameTask("l1", random_pose(1), relative_to="l2"),
        ik.FrameTask.position("l1", [0.3, 0.2, 0.1]),
        ik.PostureTask(zoo.state(model, 2)[0], 0.5),
        con.point("l1", "l2"),
    ]

    @jax.jit
    def both(q):
        found = ik_tasks.rows(model, tasks, q)
        by_jax = rbd.jacobian(
            model, lambda q: (ik_tasks.rows(model, tasks, q).error, con_position(q))
        )
        return found, by_jax(q)

    def con_position(q):
        return tasks[-1].position(model, q)

    found, (J, K) = both(q)
    close(found.J, J, 1e-12, "tasks")
    close(found.K, K, 1e-12, "equations")
    close(found.position, con_position(q), 1e-14)
    np.testing.assert_allclose(found.weights[:6], np.arange(1.0, 7))
    # The error is the pose of the frame in the target.
    X_TF = tasks[0].target.inverse() @ rbd.frame_placement(model, q, "l2")
    close(found.error[:3], X_TF.p, 1e-14)
    close(found.error[3:6], rbd.so3.log(X_TF.R), 1e-14)
    X_AF = rbd.frame_placement(model, q, "l2").inverse() @ rbd.frame_placement(model, q, "l1")
    X_TF = tasks[2].target.inverse() @ X_AF
    close(found.error[6:9], X_TF.p, 1e-14, "relative")
    close(found.error[9:12], rbd.so3.log(X_TF.R), 1e-14, "relative")
    assert np.all(np.asarray(found.weights[15:18]) == 0)


BALL = zoo.build(["spherical"], [-1], seed=9)
GAZE = jnp.array([1.2, 0.0, 1.6])  # twice a unit vector


def gaze_target(angle, distance=0.4):
    """A point in the world; the axis `GAZE` of the body of `BALL` has this angle to it."""
    X = rbd.frame_placement(BALL, rbd.neutral(BALL), "l0")
    direction = rbd.so3.exp(angle * jnp.array([0.0, 1.0, 0.0])) @ GAZE
    return X.p + distance * X.R @ direction


ANGLES = [0.0, 1e-9, 1e-3, 1.0, 2.0, 3.0, np.pi - 1e-3, np.pi - 1e-9, np.pi]


def test_the_error_of_a_gaze_is_the_angle_and_has_no_minimum_backwards():
    """The norm of the gradient of angle^2 / 2 is the angle, because a ball joint turns any way."""
    targets = jnp.stack([gaze_target(angle) for angle in ANGLES])

    @jax.jit
    @jax.vmap
    def found(target):
        tasks = [ik.GazeTask("l0", target, GAZE)]
        at = ik_tasks.rows(BALL, tasks, rbd.neutral(BALL))
        errors = ik_tasks.task_errors(BALL, tasks, at, rbd.neutral(BALL))
        return errors, jnp.linalg.norm(at.error @ at.J), jnp.linalg.norm(at.J)

    errors, gradient, size = found(targets)
    close(errors.angular[:, 0], ANGLES, 1e-7)
    close(errors.linear + errors.mixed, jnp.zeros((len(ANGLES), 1)), 0)
    close(gradient, ANGLES, 1e-6)
    assert 1 < jnp.min(size) < jnp.max(size) < 3  # also at pi


def test_a_gaze_backwards_turns_where_opposite_hinges_cancel():
    """The hinges have the axes z and -z. The direction to the target turns by 2 sqrt(eps)."""
    model = rbd.build_model(
        [rbd.model.Link(name, rbd.model.link_inertia(1.0, (0, 0, 0), np.eye(3))) for name in "ab"],
        [
            rbd.model.JointSpec("j0", rbd.joints.Revolute((0, 0, 1)), None, "a"),
            rbd.model.JointSpec("j1", rbd.joints.Revolute((0, 0, -1)), "a", "b"),
        ],
    )
    found = rows(model, [ik.GazeTask("b", [-3.0, 0.0, 0.0], [2.0, 0.0, 0.0])], jnp.zeros(2))
    angle = np.pi - 2 * np.sqrt(np.finfo(float).eps)
    close(jnp.linalg.norm(found.error), angle, 1e-12)
    rates = np.asarray(found.error @ found.J) / angle  # of the angle, for 1 rad/s of each hinge
    close(rates, np.sign(rates[0]) * np.array([1.0, -1.0]), 1e-6)


def test_errors_of_tasks_have_units(arm):
    """A target that is 3 cm and 0.2 rad away, seen from the configuration that reaches it."""
    q = arm.lower_position_limit * 0.3
    X = rbd.frame_placement(arm, q, "tool")
    moved = X @ rbd.Pose(rbd.so3.exp(jnp.array([0.0, 0.2, 0.0])), jnp.array([0.0, 0.0, 0.03]))
    lists = [ik.FrameTask("tool", moved), ik.FrameTask("tool", moved, [1, 1, 0, 1, 0, 1])]
    lists += [ik.ComTask(rbd.center_of_mass(arm, q) + 1), ik.PostureTask(q.at[2].add(0.5), 1.0)]
    found = rows(arm, lists, q)
    errors = jax.jit(ik_tasks.task_errors)(arm, lists, found, q)
    close(errors.angular, [0.2, 0, 0, 0], 1e-14)
    free_axis = np.linalg.norm(np.asarray(found.error)[6:8])
    close(errors.linear, [0.03, free_axis, np.sqrt(3), 0], 1e-14)
    close(errors.mixed, [0, 0, 0, 0.5], 1e-14)


def test_weights_and_errors_of_all_tasks():
    """In the order of the list, with closed forms for the planar arm. Two frames are relative."""
    model, q, angle = planar(), jnp.array([0.3, 0.4, 1.2]), 0.5
    tip, first, centre = 1 + np.exp(0.4j), np.exp(0.3j), planar_centre(q)
    target = first + 2 * np.exp(1j * (0.3 + 0.4 + 0.6))  # at 0.6 rad from the axis x of l1
    R = rbd.so3.exp(jnp.array([0.0, 0.0, angle]))
    tasks = [
        ik.PostureTask(q + jnp.array([0.0, 0.3, -0.4])),
        ik.ComTask([centre.real, centre.imag, 0.7], [9, 10, 11]),
        ik.GazeTask("l1", [target.real, target.imag, 0], [3, 0, 0], weights=8),
        ik.GazeTask("l0", [0, 0, 0], weights=7),  # at the origin of l0: no direction
        ik.FrameTask.orientation("l2", R, [4, 5, 6], relative_to="l1"),
        ik.FrameTask.position("l2", [tip.real, tip.imag - 0.2, 0], [1, 2, 3], relative_to="l0"),
        ik.ComTask([centre.real - 0.1, centre.imag, 0], [12, 13, 14]),
    ]

    @jax.jit
    def evaluate(q):
        found = ik_tasks.rows(model, tasks, q)
        return found, ik_tasks.task_errors(model, tasks, found, q)

    found, errors = evaluate(q)
    weights = [0, 0, 0, 4, 5, 6, 1, 2, 3, 0, 0, 0, 8, 8, 8, 7, 7, 7, 9, 10, 11, 12, 13, 14]
    close(found.weights, weights + 3 * [1e-4], 0)
    close(errors.linear, [0, 0.7, 0, 0, 0, 0.2, 0.1], 1e-14)
    close(errors.mixed, [0.5, 0, 0, 0, 0, 0, 0], 1e-14)
    expected = jnp.array([0, 0, 0.6, errors.angular[3], 1.2 - angle, 0, 0])
    close(errors.angular, expected, 1e-14)
    assert jnp.all(jnp.isfinite(found.error))
    assert jnp.all(jnp.isfinite(found.J))


def test_the_defaults_of_tasks():
    p = np.array([0.3, 0.2, 0.1])
    gaze = ik.GazeTask("tool", p)
    for task, weights in (
        (ik.FrameTask("tool", IDENTITY), [1, 1, 1, 1, 1, 1]),
        (ik.FrameTask.position("tool", p), [1, 1, 1, 0, 0, 0]),
        (ik.FrameTask.orientation("tool", np.eye(3)), [0, 0, 0, 1, 1, 1]),
        (ik.ComTask(p), [1, 1, 1]),
        (gaze, 1),
        (ik.PostureTask(p), 1e-4),
    ):
        np.testing.assert_array_equal(task.weights, weights)
    np.testing.assert_array_equal(gaze.axis, [0, 0, 1])
    # The constants have the dtype of arrays of JAX.
    one, R = jnp.ones(3, np.float32), jnp.eye(3, dtype=np.float32)
    for task in (ik.FrameTask.position("tool", one, one), ik.FrameTask.orientation("tool", R, one)):
        assert {x.dtype for x in jax.tree.leaves(task)} == {one.dtype}


def test_each_constraint_has_its_own_error():
    """Constraints of two and of one equations, in the order of the list."""
    model, q = planar(), jnp.array([0.3, 0.4, 1.2])
    lists = [con.Equation(lambda model, q: q[:2]), con.Equation(lambda model, q: 2 * q[2:])]
    zero = jnp.zeros(0)
    empty = jnp.zeros((0, 3))
    for tasks, expected in ((lists, [0.5, 2.4]), (lists[::-1], [2.4, 0.5])):
        position = jnp.concatenate([task.position(model, q) for task in tasks])
        found = ik_tasks.Rows(zero, empty, zero, position, jnp.zeros((3, 3)))
        close(ik_tasks.task_errors(model, tasks, found, q).mixed, expected, 1e-15)

    def error(position):
        reached = found._replace(position=position)
        return ik_tasks.task_errors(model, tasks, reached, q).mixed

    close(jax.jacfwd(error)(jnp.zeros(3)), jnp.zeros((2, 3)), 0)  # where a norm has a corner


# ------------------------------------------------------------------------------- reached targets


@pytest.mark.slow
def test_reachable_targets_are_reached_within_the_limits(arm):
    """Poses of random configurations, from at most 16 starts, in one batch."""
    keys = jax.random.split(jax.random.key(0), 64)
    wanted = jax.vmap(rbd.random_configuration, (None, 0))(arm, keys)
    X = jax.vmap(rbd.frame_placement, (None, 0, None))(arm, wanted, "tool")

    @jax.jit
    @jax.vmap
    def found(X, key):
        return ik.search_inverse_kinematics(arm, [ik.FrameTask("tool", X)], key)

    solution = found(X, keys)
    assert jnp.all(solution.converged & solution.stationary)
    reached = jax.vmap(rbd.frame_placement, (None, 0, None))(arm, solution.q, "tool")
    np.testing.assert_allclose(reached.p, X.p, atol=1e-9)
    np.testing.assert_allclose(reached.R, X.R, atol=1e-9)
    assert within_limits(arm, solution.q)
    assert jnp.max(solution.errors.linear) <= 1e-9
    assert jnp.max(solution.errors.angular) <= 1e-9
    # One of the batch alone.
    alone = search(arm, [ik.FrameTask("tool", jax.tree.map(lambda x: x[3], X))], keys[3])
    close(alone.q, solution.q[3], 1e-9)


def test_a_search_for_several_frames_starts_again_in_one_limb():
    """Only the joints of the limb with the largest error are random in such a start."""
    model = rbd.load_robot("humanoid")
    frames = ("pelvis", "left_foot", "left_sole", "right_sole", "left_hand", "right_hand")
    q = rbd.neutral(model)
    targets = [rbd.frame_placement(model, q, frame) for frame in frames]

    @jax.jit
    def redrawn(distances):
        goals = tuple(
            ik.FrameTask(frame, X._replace(p=X.p.at[0].add(distance)))
            for frame, X, distance in zip(frames, targets, distances)
        )
        return ik_solution._dofs_of_worst_frame(goals, ik_tasks.rows(model, goals, q))

    def dofs(*words):
        names = [name for name in model.joint_names if name.startswith(words)]
        return np.isin(np.arange(model.nv), np.r_[tuple(model.joint(name).v for name in names)])

    for frame, words in (
        ("left_sole", ("left_hip", "left_knee", "left_ankle")),
        ("right_hand", ("waist", "right_shoulder", "right_elbow", "right_wrist")),
    ):
        expected = dofs(*words)
        assert 5 < np.sum(expected) < 12
        # The pelvis has a larger error, but no joint moves it alone.
        distances = np.where(np.array(frames) == frame, 0.2, 0.1)
        distances[0] = 0.3
        np.testing.assert_array_equal(redrawn(distances), expected)
    # All joints move both frames, so no limb belongs to one of them. Other tasks do not count.
    joined = ik_tasks.Rows(*map(jnp.ones, (15, (15, 3), 15, 0, (0, 3))))
    goals = (*(ik.FrameTask(f, X) for f, X in zip(frames[:2], targets)), ik.ComTask(targets[0].p))
    np.testing.assert_array_equal(ik_solution._dofs_of_worst_frame(goals, joined), [True] * 3)


@pytest.mark.slow
@pytest.mark.parametrize("robot", ["following", "small", "coupled", "connected"])
def test_every_kind_of_joint(robot):
    """Near the targets the tasks are reached; floating bases, quaternions, joints that follow."""
    model = getattr(zoo, robot)()
    wanted = rbd.random_configuration(model, jax.random.key(1))
    last = model.frame_names[-1]
    place, _ = coordinates_with_rates(model)
    dv = 0.1 * jnp.sin(jnp.arange(1.0, model.nv + 1))
    q0 = rbd.integrate(model, wanted, dv)
    lower, upper = (x[place] for x in (model.lower_position_limit, model.upper_position_limit))
    q0 = q0.at[place].set(jnp.clip(q0[place], lower, upper))
    tasks = [
        ik.FrameTask(last, rbd.frame_placement(model, wanted, last)),
        ik.FrameTask("l1", rbd.frame_placement(model, wanted, "l1"), 0.5),
        ik.ComTask(rbd.center_of_mass(model, wanted)),
    ]
    solution = solve(model, tasks, q0)
    assert solution.converged
    for task in tasks[:2]:
        reached = rbd.frame_placement(model, solution.q, task.frame)
        close(reached.p, task.target.p, 1e-9)
        close(reached.R, task.target.R, 1e-9)
    close(rbd.center_of_mass(model, solution.q), tasks[2].target, 1e-9)
    assert within_limits(model, solution.q)


@pytest.mark.slow
def test_several_tasks_of_a_humanoid():
    """Both feet on the ground, a hand at a target, the centre of mass, and a posture."""
    model = rbd.load_robot("humanoid")
    q0 = rbd.neutral(model)
    feet = [name for name in model.frame_names if name.endswith("_foot")]
    (hand, *_) = [name for name in model.frame_names if "hand" in name or "forearm" in name]
    tasks = [ik.FrameTask(foot, rbd.frame_placement(model, q0, foot)) for foot in feet]
    tasks.append(ik.FrameTask.position(hand, rbd.frame_placement(model, q0, hand).p + 0.05))
    com = rbd.center_of_mass(model, q0)
    tasks += [ik.ComTask(com - jnp.array([0.0, 0.0, 0.05]))]
    free = solve(model, tasks, q0)
    assert free.converged
    assert free.iterations < 30
    assert within_limits(model, free.q)
    posed = solve(model, [*tasks, ik.PostureTask(q0, 1e-6)], q0)
    assert posed.converged
    assert jnp.max(posed.errors.linear[:4]) < 1e-4
    assert posed.errors.mixed[-1] <= free_distance(model, q0, free.q) + 1e-9


def free_distance(model, q0, q):
    return jnp.linalg.norm(rbd.difference(model, q0, q))


@pytest.mark.slow
def test_single_precision(arm):
    model = arm.astype(np.float32)
    wanted = rbd.random_configuration(model, jax.random.key(2))
    X = rbd.frame_placement(model, wanted, "tool")
    solution = search(model, [ik.FrameTask("tool", X)], jax.random.key(3))
    assert solution.q.dtype == np.float32
    assert solution.converged
    np.testing.assert_allclose(rbd.frame_placement(model, solution.q, "tool").p, X.p, atol=3e-5)
    assert within_limits(model, solution.q)


def test_a_search_leaves_starts_that_are_not_finite():
    """The equation is not defined at the first start, nor for about half of the other starts."""
    model = planar()
    equation = con.Equation(lambda model, q: jnp.sqrt(q[:1]) - 1)
    q0 = jnp.array([-2.0, 0.1, 0.1])
    found = ik.search_inverse_kinematics(model, [equation], jax.random.key(0), q0=q0)
    assert found.converged
    close(found.q[0], 1, 1e-9)

    @jax.jit
    def total(q):
        box = solver.Box(position_limits(model), np.zeros(3, bool))
        state = solver.start(model, (equation,), box, q, jnp.asarray(1e-9))
        return ik_solution._total((equation,), state)

    # The starts are compared by the errors of equations also where there are no tasks.
    far, near, reached = (total(q0.at[0].set(x)) for x in (9 / 4, 25 / 16, 1.0))
    close(far, 4 * near, 1e-12)
    assert far > near > reached == 0

    # No step is taken from such a start. The steps end where the damping is larger than 1e12.
    @jax.jit
    def steps(q):
        box, tolerance = solver.Box(position_limits(model), np.zeros(3, bool)), jnp.asarray(1e-9)
        state = solver.start(model, (equation,), box, q, tolerance)
        return solver.descend(model, (equation,), box, state, tolerance, 100).iterations

    assert steps(q0) == 14 == np.ceil(np.log(1e12) / np.log(solver.GROWTH))


def test_the_best_start_of_a_search(monkeypatch):
    """Three starts without steps, each with the best of eight draws of the only free joint.

    With targets for two frames, these starts are random in the joints between the frames.
    """
    monkeypatch.setattr(ik_solution, "descend", lambda model, tasks, box, descent, *_: descent)
    model, goal = planar(), jnp.array([0.4, -0.9, 1.1])
    tasks = tuple(
        ik.FrameTask(frame, rbd.frame_placement(model, goal, frame)) for frame in ("l0", "l2")
    )
    search = functools.partial(ik_solution._best_of_starts, np.array([False, True, False]), 4, 1, 5)

    @jax.jit
    def best(key, q0):
        return search(model, tasks, key, q0, jnp.asarray(1e-9)).q

    def found(q0):
        return np.array([best(key, q0) for key in jax.random.split(jax.random.key(0), 12)])

    far = goal.at[2].add(-np.pi)
    ends = found(far)
    np.testing.assert_array_equal(ends[:, :2], np.tile(far[:2], (12, 1)))
    # The distance of 24 random angles from the goal is 3 / 25 in the mean.
    assert np.mean(np.abs(ends[:, 2] - 1.1)) < 0.2
    # The first start is the best one if it is near the goal.
    near = goal.at[2].add(1e-6)
    np.testing.assert_array_equal(found(near), np.tile(near, (12, 1)))


def test_a_search_starts_in_the_middle_of_the_limits():
    lower, upper = jnp.array([-1.0, 2.0, -jnp.inf]), jnp.array([3.0, jnp.inf, jnp.inf])
    model = dataclasses.replace(planar(), lower_position_limit=lower, upper_position_limit=upper)
    with jax.debug_nans(True):
        np.testing.assert_array_equal(ik_solution._middle(model), [1.0, 2.0, 0.0])
    # Limits that are large numbers are no limits.
    far = {"lower_position_limit": jnp.array([-1e6, -0.5, -99.0])}
    far["upper_position_limit"] = jnp.array([-4.0, 3e38, 1.0])
    far = dataclasses.replace(model, **far)
    np.testing.assert_array_equal(ik_solution._middle(far), [-4.0, 0.0, -49.0])
    edge = {"lower_position_limit": jnp.array([-100.0, -100.5, -50.0])}
    edge["upper_position_limit"] = jnp.array([50.0, 50.0, 100.5])
    edge = dataclasses.replace(model, **edge)
    np.testing.assert_array_equal(ik_solution._middle(edge), [-25.0, 0.0, 0.0])
    # The coordinate of a hinge on a floating base has another index than its dof.
    floating = zoo.build(["free_flyer", "revolute"], [-1, 0])
    lower, upper = (rbd.neutral(floating).at[-1].set(x) for x in (1.0, 2.0))
    model = dataclasses.replace(floating, lower_position_limit=lower, upper_position_limit=upper)
    np.testing.assert_array_equal(ik_solution._middle(model), (lower + upper) / 2)


class Started(Exception):
    """The iterations with their arguments."""


def test_the_defaults_of_a_search(monkeypatch):
    """Up to 16 starts, one after the other, with 100 steps; the first is in the middle."""

    def started(model, tasks, key, q0, tolerance, locked, *counts):
        raise Started(q0, tolerance, counts)

    lower = jnp.array([-1.0, 2.0, -jnp.inf])
    model = dataclasses.replace(planar(), lower_position_limit=lower)
    monkeypatch.setattr(ik_solution, "_search", started)
    tasks, key = [ik.ComTask(np.zeros(3))], jax.random.key(0)
    for options, tolerance in (({}, 1e-9), ({"tolerance": 1e-4}, 1e-4)):
        with pytest.raises(Started) as caught:
            ik.search_inverse_kinematics(model, tasks, key, **options)
        np.testing.assert_array_equal(caught.value.args[0], [1.0, 2.5, 0.0])
        assert caught.value.args[1:] == (tolerance, (16, 1, 100))


def test_the_defaults_of_solutions_and_velocities(monkeypatch):
    """100 steps and a restart; the whole error in one time step, with little damping."""

    def started(*args):
        raise Started(*args)

    monkeypatch.setattr(ik_solution, "_solve", started)
    monkeypatch.setattr(differential, "_velocity", started)
    tasks, q = [ik.ComTask(np.zeros(3))], np.zeros(3)
    with pytest.raises(Started) as caught:
        ik.inverse_kinematics(planar(), tasks, q)
    assert caught.value.args[3:] == (1e-9, (False,) * 3, 100, True)
    with pytest.raises(Started) as caught:
        ik.differential_inverse_kinematics(planar(), q, tasks, 0.1)
    assert caught.value.args[3:] == (0.1, 1.0, 1e-6, (False,) * 3, None, None)


@pytest.mark.parametrize("preference", [True, False])
def test_the_attempts_to_reach_a_target(monkeypatch, preference):
    """No attempt succeeds. Each attempt takes seven steps, and moves q by one."""
    steps, ends = [], []

    def start(model, tasks, box, q, tolerance):
        zero, no = jnp.zeros(()), jnp.zeros((), bool)
        return solver.Descent(
            q,
            jnp.mean(jnp.asarray(tasks[-1].weights)),
            zero,
            zero,
            jnp.zeros((), jnp.int32),
            no,
            no,
        )

    def descend(model, tasks, box, state, tolerance, count):
        steps.append((tasks[-1].weights, state.q, count, state.rows))
        return state._replace(q=state.q + 1, iterations=state.iterations + 7)

    def prioritise(model, tasks, box, state, tolerance, count):
        ends.append((tasks[-1].weights, state.q, count))
        no = state.accurate
        fields = state.rows, state.shift, no, state.iterations, no, no
        return solver.Minimum(state.q, *fields, last_q=state.q + 10)

    for function in (start, descend, prioritise):
        monkeypatch.setattr(ik_solution, function.__name__, function)
    lower, q0 = jnp.array([-1.0, -2.0, -2.5]), jnp.array([0.5, 0.7, 0.4])
    model = dataclasses.replace(planar(), lower_position_limit=lower)
    tasks = (ik.ComTask(np.zeros(3)), ik.PostureTask(np.zeros(3), 0.5))[: 1 + preference]
    locked = np.array([False, False, True])
    with jax.disable_jit():
        end = ik_solution._first_successful_attempt(locked, 50, model, tasks, q0, jnp.asarray(1e-9))
    # The loop begins with zeros of the same shapes.
    steps, ends = ([x for x in xs if not isinstance(x[1], jax.core.Tracer)] for xs in (steps, ends))
    ends = [x for x in ends if np.any(x[1])]
    middle = jnp.array([1.0, 0.5, 0.4])
    expected = [(0.5, q0, 32), (0, q0 + 11, 32), (0, middle, 32), (0.5, q0 + 1, 43)]
    if not preference:
        expected = [(1, q0, 32), (1, middle, 32), (1, q0 + 1, 43)]
    assert len(steps) == len(ends) == len(expected)
    for (weight, q, count), begun, ended in zip(expected, steps, ends):
        np.testing.assert_array_equal(begun[0], np.broadcast_to(weight, np.shape(begun[0])))
        np.testing.assert_array_equal(ended[0], np.full(np.shape(ended[0]), expected[0][0]))
        close(begun[1], q, 1e-15)
        close(ended[1], q + 1, 1e-15)
        assert begun[2:] == (count, weight)
        assert ended[2] == 50
    assert end.iterations == 14
    close(end.q, q0 + 2, 1e-15)


def test_the_starts_of_a_search_with_a_posture(monkeypatch):
    """Eight starts without steps; a start reaches the targets where the second angle is positive.

    The starts 1, 2, 3, 5, 6 and 7 keep the first joint, which moves both frames, as in the best
    solution up to now. The odd starts have no posture. The best start is the nearest to the posture
    among those that reach the targets.
    """
    histories, counts = [], set()
    model, q0, posture = planar(), jnp.array([2.5, -1.0, 2.0]), jnp.array([0.4, 1.0, 0.3])
    tasks = (ik.FrameTask("l0", IDENTITY), ik.FrameTask("l2", IDENTITY), ik.PostureTask(posture))

    def recorded(unfinished, step, state):
        def both(state, _):
            state = step(state)
            return state, state

        end, history = jax.lax.scan(both, state, None, length=8)
        histories.append(history)
        return end

    def descend(model, tasks, box, descent, tolerance, steps):
        counts.add(steps)
        return descent

    def prioritise(model, tasks, box, state, tolerance, steps):
        counts.add(-steps)
        found = state.rows._replace(error=state.q - posture, weights=jnp.full(3, 0.1))
        fields = state.iterations, state.stationary, state.accurate, state.q
        return solver.Minimum(state.q, found, state.shift, state.q[1] > 0, *fields)

    monkeypatch.setattr(ik_solution, "lax", types.SimpleNamespace(while_loop=recorded))
    monkeypatch.setattr(ik_solution, "descend", descend)
    monkeypatch.setattr(ik_solution, "prioritise", prioritise)

    @jax.jit
    @jax.vmap
    def best(key):
        end = ik_solution._best_of_starts(
            np.zeros(3, bool), 8, 1, 50, model, tasks, key, q0, jnp.asarray(1e-9)
        )
        _, (descent, minimum), rank = histories.pop()
        return end.q, descent.q, descent.rows.weights[:, 12:], minimum.reached, rank

    n = 24
    end, qs, weights, reached, rank = map(np.asarray, best(jax.random.split(jax.random.key(0), n)))
    assert counts == {32, 50 - 32, -50}
    np.testing.assert_array_equal(qs[:, 0], np.tile(q0, (n, 1)))
    np.testing.assert_array_equal(end, qs[:, -1])
    changed = np.any(np.diff(qs, axis=1) != 0, axis=2)
    turned = np.diff(qs[..., 0], axis=1) != 0
    assert np.any(turned[:, 3])
    assert not np.any(np.delete(turned, 3, axis=1))
    assert np.any(changed[:, 4:] & turned[:, 3:4])
    number = np.maximum.accumulate(np.where(changed, np.arange(1, 8), 0), axis=1)
    shares = np.concatenate([np.ones((n, 1)), 1 - number % 2], axis=1)
    np.testing.assert_allclose(weights, 1e-4 * np.repeat(shares[..., None], 3, axis=2))
    distances = 0.1 * np.sum((qs - np.asarray(posture)) ** 2, axis=2)
    np.testing.assert_array_equal(reached, qs[..., 1] > 0)
    np.testing.assert_allclose(rank[reached], -1 / (1 + distances[reached]))
    assert np.all(rank[~reached] > 0)
    assert np.all(np.diff(rank, axis=1) <= 0)
    assert 0 < np.mean(reached) < 1


def test_starts_in_a_batch_are_the_starts_one_after_the_other(monkeypatch):
    """Five starts, two at a time; the third batch does not count a sixth start.

    The error of a start without steps is its configuration.
    """
    zero, no = jnp.zeros(()), jnp.zeros((), bool)

    def start(model, tasks, box, q, tolerance):
        found = ik_tasks.Rows(q, jnp.eye(3), jnp.ones(3), q[:0], jnp.zeros((0, 3)))
        return solver.Descent(q, found, q[:0], zero, zero, no, no)

    monkeypatch.setattr(ik_solution, "start", start)
    monkeypatch.setattr(ik_solution, "descend", lambda model, tasks, box, descent, *_: descent)
    model, tasks = planar(), (ik.ComTask(np.zeros(3)),)

    @jax.jit
    @jax.vmap
    def both(key):
        return [
            ik_solution._best_of_starts(
                np.zeros(3, bool), 5, n, 5, model, tasks, key, jnp.full(3, 2.0), jnp.asarray(1e-9)
            ).q
            for n in (1, 2)
        ]

    single, batch = both(jax.random.split(jax.random.key(0), 24))
    np.testing.assert_array_equal(batch, single)
    assert len(np.unique(single[:, 0])) == 24


def test_a_restart_needs_more_than_32_steps(monkeypatch):
    """And targets. Otherwise all steps are near the start."""

    def started(name, *args):
        raise Started(name)

    for name in ("_one_attempt", "_first_successful_attempt"):
        monkeypatch.setattr(ik_solution, name, functools.partial(started, name))
    target, posture = ik.ComTask(np.zeros(3)), ik.PostureTask(np.zeros(3))
    equation = con.Equation(lambda model, q: q[:1])
    model = planar("other ")  # so JAX has no compiled program of another test
    for tasks, options, name in (
        ([target], {"max_iterations": 32}, "_one_attempt"),
        ([target], {"max_iterations": 33}, "_first_successful_attempt"),
        ([target], {"max_iterations": 33, "restart": False}, "_one_attempt"),
        ([target, posture], {}, "_first_successful_attempt"),
        ([posture], {}, "_one_attempt"),
        ([equation, posture], {}, "_one_attempt"),
        ([equation], {}, "_first_successful_attempt"),
    ):
        with pytest.raises(Started, match=name):
            ik.inverse_kinematics(model, tasks, np.zeros(3), **options)


def test_a_solution_converges_within_the_tolerance_and_rounding_errors(monkeypatch):
    """The norm of the errors may be above the tolerance by a millionth."""
    monkeypatch.setattr(ik_solution, "with_derivatives", lambda *args: args[-1].q)
    model, q = planar(), jnp.array([0.5, 0.7, 0.4])
    tasks = (ik.ComTask(planar_target(q) + np.array([0.6, 0.8, 0.0])), ik.PostureTask(q + 9))

    @jax.jit
    @jax.vmap
    def converged(tolerance):
        box = solver.Box(position_limits(model), np.zeros(3, bool))
        descent = solver.start(model, tasks[:1], box, q, tolerance)
        minimum = solver.prioritise(model, tasks[:1], box, descent, tolerance, 1)
        return ik_solution._solution(model, tasks, q, minimum, tolerance, box.locked).converged

    np.testing.assert_array_equal(converged(1 / (1 + jnp.array([1e-7, 1e-5]))), [True, False])


def test_a_search_out_of_reach_keeps_locked_joints(monkeypatch):
    """The first start points away from the target, where the error is stationary; others do not.

    The best start continues after its first steps.
    """
    monkeypatch.setattr(ik_solution, "STEPS_OF_A_START", 6)
    arm, far = planar(), -1.3 + 0.75j
    bent = jnp.array([0.0, 1.2, 0.8])
    angle = np.angle(far / planar_centre(bent))
    q0 = bent.at[0].set(angle - np.pi)

    change = jnp.array([0.0, 0.3, -0.5])

    def searched(target):
        def found(q0):
            tasks, key = [ik.ComTask([target.real, target.imag, 0])], jax.random.key(0)
            found = ik.search_inverse_kinematics(
                *(arm, tasks, key), q0=q0, seeds=3, locked=["j1", "j2"], tolerance=1e-3
            )
            return found.q, found

        return jax.jvp(found, (q0,), (change,), has_aux=True)[1:]

    def pointing(h):
        return np.angle(far / planar_centre(bent + h * change))

    rate, found = searched(far)
    np.testing.assert_array_equal(found.q[1:], q0[1:])
    close(rate, change.at[0].set(finite_differences.slope(pointing, 1e-3)), 1e-7)
    close(found.q[0], angle, 1e-7)
    close(found.errors.linear[0], np.abs(far) - np.abs(planar_centre(found.q)), 1e-9)
    assert found.stationary
    assert not found.converged
    # A search ends after the first start that converges, here within the tolerance.
    _, found = searched(planar_centre(q0) + 5e-4)
    assert found.converged
    assert found.iterations == 0


@pytest.mark.slow
def test_locked_joints_keep_their_position(arm):
    wanted = rbd.random_configuration(arm, jax.random.key(4))
    X = rbd.frame_placement(arm, wanted, "tool")
    name = arm.joint_names[2]
    q0 = (0.8 * wanted).at[2].set(wanted[2])
    solution = ik.inverse_kinematics(arm, [ik.FrameTask("tool", X)], q0, locked=[name])
    assert solution.converged
    assert solution.q[2] == wanted[2]
    free = solve(arm, [ik.FrameTask("tool", X)], q0)
    assert free.q[2] != wanted[2]
    found = ik.search_inverse_kinematics(
        arm, [ik.FrameTask("tool", X)], jax.random.key(5), q0=q0, locked=[name]
    )
    assert found.q[2] == wanted[2]
    # Out of reach, the search uses all of its starts.
    far = [ik.FrameTask("tool", rbd.Pose(X.R, X.p + 5))]
    best = ik.search_inverse_kinematics(arm, far, jax.random.key(5), q0=q0, locked=[name])
    assert not best.converged
    assert best.q[2] == wanted[2]


def test_a_displacement_to_a_limit_ends_within_the_limits(arm):
    """Exactly, where the sum of position and displacement is beyond the limit by rounding."""
    box = solver.Box(position_limits(arm), np.zeros(arm.nv, bool))

    keys = jax.random.split(jax.random.key(0), 300)
    qs = 0.9 * jax.vmap(rbd.random_configuration, (None, 0))(arm, keys)
    to_lowest, to_highest = jax.vmap(box.gaps)(qs)
    move = jax.jit(jax.vmap(lambda q, d: box.move(arm, q, d)))
    lowest, highest = move(qs, to_lowest), move(qs, to_highest)
    assert np.any(np.array(qs) + np.array(to_lowest) < np.array(arm.lower_position_limit))
    assert np.any(np.array(qs) + np.array(to_highest) > np.array(arm.upper_position_limit))
    assert jnp.all(lowest >= arm.lower_position_limit[None])
    assert jnp.all(highest <= arm.upper_position_limit[None])
    close(qs + to_lowest, jnp.broadcast_to(arm.lower_position_limit, lowest.shape), 1e-14)
    close(qs + to_highest, jnp.broadcast_to(arm.upper_position_limit, lowest.shape), 1e-14)
    close(lowest, jnp.broadcast_to(arm.lower_position_limit, lowest.shape), 1e-15)
    close(highest, jnp.broadcast_to(arm.upper_position_limit, highest.shape), 1e-15)


@pytest.mark.parametrize("angle", nightly.all_but([0.0], [np.pi, np.pi - 1e-9, 1e-9, 0.0]))
def test_a_target_at_the_angle_pi(angle):
    """One body on a ball joint turns by the angle, about an oblique axis."""
    model = zoo.build(["spherical"], [-1], seed=9)
    axis = jnp.array([0.6, 0.0, 0.8])
    q0 = rbd.neutral(model)
    X = rbd.frame_placement(model, q0, "l0")
    target = X.R @ rbd.so3.exp(angle * axis)
    solution = solve(model, [ik.FrameTask.orientation("l0", target)], q0)
    assert solution.converged
    close(rbd.frame_placement(model, solution.q, "l0").R, target, 1e-9)


@pytest.mark.slow
def test_a_gaze_is_reached_within_the_limits(arm):
    """By one start, by a search with a position, and in the nullspace, with derivatives."""
    q0 = 0.3 * arm.upper_position_limit
    X = rbd.frame_placement(arm, q0, "tool")

    def off(q, target):
        X = rbd.frame_placement(arm, q, "tool")
        line = target - X.p
        return jnp.linalg.norm(jnp.cross(X.R[:, 2], line)), X.R[:, 2] @ line

    for distance in (1.0, -1.0):  # forwards and exactly backwards
        target = X.p + distance * X.R[:, 2] + jnp.array([0.0, 0.1 + 0.1 * distance, 0.0])
        solution = solve(arm, [ik.GazeTask("tool", target)], q0)
        assert solution.converged
        assert within_limits(arm, solution.q)
        assert off(solution.q, target)[0] < 1e-8
        assert off(solution.q, target)[1] > 0.5
    place = ik.FrameTask.position("tool", [0.3, 0.2, 0.6])
    found = search(arm, [place, ik.GazeTask("tool", target)], jax.random.key(0))
    assert found.converged
    assert within_limits(arm, found.q)
    assert off(found.q, target)[1] > 0

    def reached(x):
        tasks = [ik.GazeTask("tool", target + x), ik.PostureTask(q0)]
        return ik.inverse_kinematics(arm, tasks, solution.q, max_iterations=1000).q

    x = jnp.zeros(3)
    forward, reverse = jax.jit(lambda x: (jax.jacfwd(reached)(x), jax.jacrev(reached)(x)))(x)
    numerical = finite_differences.central(
        lambda h: jax.jit(jax.vmap(reached))(x + h * jnp.eye(3)), 1e-5
    ).T
    close(forward, numerical, 1e-5)
    close(reverse, forward, 1e-8)


# -------------------------------------------------------------------------------------- minima


def test_a_posture_is_preferred_among_the_configurations_that_reach_the_target():
    """The centre of mass is at its target; the gradient of the posture has no other component."""
    model, posture, q0 = planar(), jnp.array([0.1, 0.9, 0.9]), jnp.array([0.5, 0.7, 0.4])
    target = planar_centre([0.3, 0.8, 0.6])
    place, change = jnp.array([target.real, target.imag]), jnp.array([0.6, -0.8])
    # Two postures, whose mean with their weights is `posture`.
    off = jnp.array([0.2, -0.1, 0.3])
    postures = ik.PostureTask(posture + 3 * off), ik.PostureTask(posture - off, 3e-4)

    @jax.jit
    def solved(place, weights):
        def found(place):
            tasks = [ik.ComTask(jnp.append(place, 0.0), weights), *postures]
            solution = ik.inverse_kinematics(model, tasks, q0)
            return solution.q, solution

        return jax.jvp(found, (place,), (change,), has_aux=True)

    def jacobian(q):
        return np.asarray(rows(model, [ik.ComTask(jnp.zeros(3))], q).J)

    whole = jnp.ones(3)
    _, rate, solution = solved(place, whole)
    assert solution.converged
    assert solution.stationary
    close(planar_centre(solution.q), target, 1e-9)
    free = np.linalg.svd(jacobian(solution.q)[:2])[2][2]
    close(free @ (solution.q - posture), 0.0, 1e-7)
    assert solution.errors.mixed[1] > 0.1
    close(
        rate, finite_differences.slope(lambda h: solved(place + h * change, whole)[0], 1e-3), 1e-6
    )
    # The y coordinate of the centre of mass is free, so it is the best one for the posture.
    *_, solution = solved(place + jnp.array([-0.3, 1.0]), jnp.array([1.0, 0.0, 1.0]))
    assert solution.converged
    close(planar_centre(solution.q).real, target.real - 0.3, 1e-9)
    along, off = jacobian(solution.q)[0], np.asarray(solution.q - posture)
    close(off - along * (off @ along) / (along @ along), np.zeros(3), 1e-7)
    assert np.linalg.norm(off) > 0.1
    # Out of reach, where the target has a force on the joints.
    far, weights = 1.6 * place, jnp.array([2.0, 3.0, 1.0])
    _, rate, solution = solved(far, weights)
    assert solution.stationary
    assert solution.errors.linear[0] > 0.5
    close(
        rate, finite_differences.slope(lambda h: solved(far + h * change, weights)[0], 1e-3), 1e-6
    )


def test_a_solution_ends_at_the_tolerance_or_the_largest_number_of_iterations():
    """Two steps at most, for tasks that begin at the target, near it and far away from it."""
    model, q0 = planar(), jnp.array([0.5, 0.7, 0.4])
    centre = planar_centre(q0)

    @jax.jit
    def compiled(dx, dy, weights, tolerance, gap):
        # A gap makes the two equations contradict each other.
        middle = con.Equation(lambda model, q: jnp.stack([q[1] - 0.7, q[1] - 0.7 - gap]))
        target = jnp.stack([centre.real + dx, centre.imag + dy, jnp.zeros(())])
        tasks = [ik.ComTask(target, weights), middle]
        return ik.inverse_kinematics(model, tasks, q0, tolerance=tolerance, max_iterations=2)

    def solved(dx, dy, weights=(1.0, 1.0, 1.0), tolerance=1e-9, gap=0.0):
        return compiled(dx, dy, np.array(weights), tolerance, gap)

    for found in (solved(0.0, 0.5, (1.0, 0.0, 1.0)), solved(0.3, 0.4, tolerance=1.0)):
        assert found.iterations == 0
        assert found.converged & found.stationary
        np.testing.assert_array_equal(found.q, q0)
    # Two entries below the tolerance have a norm above it.
    found = solved(0.9e-3, 0.9e-3, tolerance=1e-3)
    assert found.iterations == 1
    assert found.converged
    # Near the target there is almost no damping.
    assert solved(3e-3, 3e-3, tolerance=1e-6).converged
    found = solved(-1.0, 0.5, (2.0, 3.0, 5.0), gap=0.01)
    violated = np.hypot(found.q[1] - 0.7, found.q[1] - 0.71)
    assert found.iterations == 2
    assert not found.converged | found.stationary
    error = planar_centre(found.q) - planar_centre(q0) - (-1.0 + 0.5j)
    square = 2 * error.real**2 + 3 * error.imag**2 + violated**2
    close(found.error, np.sqrt(square), 1e-12)
    close(found.errors.linear, [np.abs(error), 0], 1e-12)
    close(found.errors.mixed, [0, violated], 1e-12)
    assert violated > 1e-3


def test_steps_with_a_preference_end_at_the_minimum():
    """Not where all errors are within the tolerance: another minimum can be nearer to it."""
    found = ik_tasks.Rows(*map(jnp.zeros, (6, (6, 3), 6, 0, (0, 3))))
    target, posture = ik.ComTask(np.zeros(3)), ik.PostureTask(np.zeros(3))
    tolerance = jnp.asarray(1e-9)
    for tasks, within in (((target, target), True), ((target, posture), False)):
        assert solver._accurate(tasks, found, tolerance) == within
    for error, within in ((0.57e-9, True), (0.58e-9, False)):
        equal = found._replace(error=jnp.full(6, error), weights=jnp.ones(6))
        assert solver._accurate((target, target), equal, tolerance) == within
    # The norm of six equal errors of equations is sqrt(6) times one of them.
    for error, within in ((0.40e-9, True), (0.41e-9, False)):
        equal = found._replace(position=jnp.full(6, error))
        assert solver._accurate((target, target), equal, tolerance) == within
    # The errors of the target and the equations have the order of their Jacobians.
    order, one = jnp.arange(6.0), jnp.full(1, 9.0)
    whole = ik_tasks.Rows(order, order[:, None], jnp.ones(6), one, one[None])
    parts = solver.separated((target, posture), whole)
    np.testing.assert_array_equal(parts.position, [0, 1, 2, 9])
    np.testing.assert_array_equal(parts.K[:, 0], [0, 1, 2, 9])
    # Also after steps without the preference, the result has its weights.
    model, tasks = planar(), (target, ik.PostureTask(np.zeros(3), 2.0))
    box = solver.Box(position_limits(model), np.zeros(3, bool))

    @jax.jit
    def ended(q, place, steps):
        tasks = (ik.ComTask(place, 3.0), ik.PostureTask(np.zeros(3), 2.0))
        without = ik_tasks.scale_preferences(tasks, jnp.zeros(()))
        state = solver.start(model, without, box, q, tolerance)
        state = state._replace(stationary=jnp.ones((), bool), iterations=1 - steps)
        return solver.prioritise(model, tasks, box, state, tolerance, 1)

    end = ended(jnp.zeros(3), jnp.zeros(3), jnp.int32(0))
    close(end.rows.weights, [2, 2, 2], 0)
    np.testing.assert_array_equal(end.last_q, np.zeros(3))  # no steps are left
    assert end.stationary & ~end.reached
    # At the target, the steps without the preference ended, but not at its minimum.
    error = 3e-10
    end = ended(jnp.zeros(3), planar_target(np.zeros(3)) - error, jnp.int32(0))
    assert end.reached & ~end.stationary
    np.testing.assert_allclose(end.force, np.full(3, 3 * error), rtol=1e-5)
    # One step towards the posture leaves the target. The result is the configuration before it.
    q = jnp.array([0.5, 0.7, 0.4])
    end = ended(q, planar_target(q), jnp.int32(1))
    assert end.reached & ~end.stationary
    np.testing.assert_array_equal(end.q, q)
    assert jnp.max(jnp.abs(end.last_q - q)) > 0.01

    @jax.jit
    @jax.vmap
    def stationary(x):
        state = solver.start(model, tasks[1:], box, jnp.full(3, x), tolerance)
        return solver._step(model, tasks[1:], box, state, tolerance, False).stationary

    # A Newton step of less than 1e-11 rad is no step.
    np.testing.assert_array_equal(stationary(jnp.array([0.5e-11, 2e-11])), [True, False])


def test_no_step_increases_the_error():
    """Steps with the least damping go too far from some states. They are not taken.

    The multiplier of an equation changes in short steps only.
    """
    arm = planar()
    box = solver.Box(position_limits(arm), np.zeros(3, bool))
    goal, starts = np.array([0.2, -0.25, 0.5]), np.random.default_rng(0).normal(size=(50, 3))
    starts[:25] = goal + 0.02 * starts[:25]
    target = planar_centre(goal)
    middle = con.Equation(lambda model, q: q[1:2] + q[2:] ** 2)
    tasks = (ik.ComTask([target.real, target.imag, 0]), middle)
    tolerance = jnp.asarray(1e-9)
    damping = jnp.asarray(solver.LEAST_DAMPING)

    def square(q):
        error = np.square(np.abs(planar_centre(q) - target))
        return error + solver.EQUATION_WEIGHT * np.square(q[1] + q[2] ** 2)

    @jax.jit
    @jax.vmap
    def stepped(q):
        state = solver.start(arm, tasks, box, q, tolerance)._replace(damping=damping)
        return solver._step(arm, tasks, box, state, tolerance, False)

    after = stepped(starts)
    ends = np.asarray(after.q)
    before, error = (np.array([square(q) for q in qs]) for qs in (starts, ends))
    assert np.all(error <= before * (1 + 1e-12))
    rejected = np.all(ends == starts, axis=1)
    assert 0 < np.sum(rejected) < 50
    factor = np.asarray(after.damping / damping)
    np.testing.assert_array_equal(factor == solver.GROWTH, rejected)
    still = rejected | (np.max(np.abs(ends - starts), axis=1) > 0.1)
    assert 0 < np.sum(~still) < 50
    shift = np.where(still, 0, ends[:, 1] + ends[:, 2] ** 2)
    close(after.shift[:, 0], shift, 1e-12)


def test_the_first_step():
    """The damping of the first step is the cost; after a good step it is a fifth of that.

    The weight of two equations is 100 times the largest weight of the tasks, which counts as 1 if
    it is smaller. A state is stationary only if the equations hold to ten times the tolerance.
    """
    arm, q, tolerance = planar(), jnp.array([0.5, 0.7, 0.4]), jnp.asarray(1e-9)
    box = solver.Box(position_limits(arm), np.zeros(3, bool))
    goal = planar_centre(q) + (0.03 + 0.05j)

    @jax.jit
    def stepped(q, weights, gap):
        middle = con.Equation(lambda model, q: jnp.stack([q[1] - 0.7, q[1] - 0.7 - gap]))
        tasks = (ik.ComTask([goal.real, goal.imag, 0], weights), middle)
        state = solver.start(arm, tasks, box, q, tolerance)
        return state.rows, solver._step(arm, tasks, box, state, tolerance, False)

    weights = np.array([0.1, 0.3, 0.2])
    for factor, rho in ((1.0, 100.0), (20.0, 600.0)):
        found, after = stepped(q, factor * weights, 0.02)
        J = np.concatenate([found.J, found.K])
        error = np.concatenate([found.error, found.position])
        w = np.concatenate([factor * weights, [rho, rho]])
        H, gradient, cost = J.T @ (w[:, None] * J), J.T @ (w * error), w @ error**2 / 2
        close(after.q - q, -np.linalg.solve(H + cost * np.eye(3), gradient), 1e-8)
        close(after.damping, 0.2, 1e-15)
    for error, holds in ((0.9e-8, True), (1.1e-8, False)):
        _, after = stepped(q.at[1].add(error), 0 * weights, 2 * error)
        assert after.stationary == holds


def test_the_damping_grows_where_a_step_reduces_the_error_less_than_predicted():
    """Steps with the least damping whose reduction is less than a quarter of the prediction."""
    arm, limit = planar(), 1.8
    limits = position_limits(arm)._replace(lower=jnp.full(3, -limit), upper=jnp.full(3, limit))
    box = solver.Box(limits, np.zeros(3, bool))
    starts = np.clip(np.random.default_rng(0).normal(size=(50, 3)), -limit, limit)
    target = 0.9 * planar_centre(np.zeros(3))
    tasks = (ik.ComTask([target.real, target.imag, 0]),)
    damping = jnp.asarray(solver.LEAST_DAMPING)

    @jax.jit
    @jax.vmap
    def stepped(q):
        state = solver.start(arm, tasks, box, q, jnp.asarray(1e-9))._replace(damping=damping)
        return state.rows, solver._step(arm, tasks, box, state, jnp.asarray(1e-9), False)

    first, after = stepped(starts)
    step = np.asarray(after.q) - starts
    predicted = first.error + np.einsum("nij,nj->ni", first.J, step)
    before, left, linear = (
        np.sum(np.asarray(x) ** 2, axis=1) for x in (first.error, after.rows.error, predicted)
    )
    taken = np.any(step != 0, axis=1)
    poor = taken & (before - left < 0.25 * (before - linear))
    good = taken & (before - left >= 0.75 * (before - linear))
    assert min(np.sum(poor), np.sum(good)) > 0
    factor = np.asarray(after.damping / damping)
    np.testing.assert_array_equal(factor == solver.POOR_GROWTH, poor)
    np.testing.assert_array_equal(factor == solver.GROWTH, ~taken)
    assert np.all(factor[good] == 1)  # The least damping stays.
    # Where one joint ends at its limit, the other joints make the best step for it.
    at_limit = np.abs(np.asarray(after.q)) > limit - 1e-9
    one = taken & (np.sum(at_limit, axis=1) == 1)
    slopes = np.einsum("ni,nij->nj", predicted, first.J)
    assert np.sum(one) > 0
    assert np.max(np.abs(slopes[one] * ~at_limit[one])) < 1e-5
    assert np.min(factor[~taken]) > np.max(factor[poor]) > 1


@functools.cache
def planar_solutions(locked=()):
    """The compiled function (model, target of the centre of mass, q0) to the solutions.

    They are the solutions with and without a restart.
    """

    @jax.jit
    def both(model, target, q0):
        tasks = [ik.ComTask(target)]
        return [ik.inverse_kinematics(model, tasks, q0, locked, restart=x) for x in (True, False)]

    return both


def test_a_restart_finds_the_way_round_a_limit():
    """The target is behind the limit of the first joint, which it reaches from the middle.

    The last joint is locked.
    """
    arm = planar()
    q0 = jnp.array([2.9, 0.3, 0.2])
    target = rbd.center_of_mass(arm, jnp.array([-2.9, 0.3, 0.2]))
    found, near = planar_solutions(("j2",))(arm, target, q0)
    assert found.converged
    assert found.q[2] == near.q[2] == q0[2]
    close(rbd.center_of_mass(arm, found.q), target, 1e-8)
    assert not near.converged
    assert near.stationary
    assert near.q[0] == 3


def test_a_restart_without_success_changes_nothing():
    """Out of reach, both end at the minimum near q0; the middle leads to another minimum."""
    arm = planar()
    q0 = jnp.array([2.9, 0.3, 0.2])
    solved, iterations = planar_solutions(("j2",)), []
    for x, y in ((-3.6, -1.7), (-3.5, -1.5), (-3.6, -1.5)):
        far = jnp.array([x, y, 0.0])
        found, near = solved(arm, far, q0)
        assert not found.converged
        assert found.iterations == near.iterations
        close(found.q, near.q, 1e-12)
        _, other = solved(arm, far, jnp.zeros(3).at[2].set(q0[2]))
        assert jnp.max(jnp.abs(other.q - near.q)) > 1
        iterations.append(near.iterations)
    assert max(iterations) > 32


@pytest.mark.slow
def test_targets_are_reached_with_a_posture_as_without():
    """The tip of an arm reaches random points from one start, with a strong posture far away."""
    arm, rng = planar(), np.random.default_rng(0)
    q0 = jnp.array([2.0, 1.0, 1.0])
    targets = np.stack([planar_target(q) for q in rng.uniform(-2, 2, size=(100, 3))])

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, None))
    def solved(target, weight):
        tasks = [ik.ComTask(target), ik.PostureTask(-q0, weight)]
        return ik.inverse_kinematics(arm, tasks, q0)

    for weight in (0.1, 1.0):
        found = solved(targets, weight)
        assert jnp.all(found.converged)
        assert jnp.max(found.errors.linear[:, 0]) < 1e-8
        assert jnp.mean(found.stationary) > 0.9

    @jax.jit
    @jax.vmap
    def searched(target, key):
        tasks = [ik.ComTask(target), ik.PostureTask(-q0, 1.0)]
        return ik.search_inverse_kinematics(arm, tasks, key, seeds=4)

    found = searched(targets, jax.random.split(jax.random.key(0), len(targets)))
    assert jnp.mean(found.converged) > 0.7  # 0.58 if all starts have the posture


def planar_target(q):
    centre = planar_centre(q)
    return np.array([centre.real, centre.imag, 0])


@pytest.mark.slow
def test_a_restart_keeps_locked_joints(arm):
    q0, X = arm.upper_position_limit, rbd.frame_placement(arm, rbd.neutral(arm) + 0.3, "tool")
    for locked in ((), ("joint_7",)):
        found = ik.inverse_kinematics(arm, [ik.FrameTask.position("tool", X.p)], q0, locked)
        assert found.converged
        assert not locked or found.q[6] == q0[6]
    posture = ik.PostureTask(rbd.neutral(arm), 1e-3)
    found = ik.inverse_kinematics(arm, [ik.FrameTask.position("tool", X.p), posture], q0)
    assert found.converged
    assert found.stationary


@pytest.mark.slow
def test_solutions_in_single_precision_reach_the_default_tolerance():
    """All of 100 random targets near the start."""
    arm, rng = planar().astype(np.float32), np.random.default_rng(0)
    wanted = rng.uniform(-2, 2, size=(100, 3)).astype(np.float32)
    q0 = wanted + rng.normal(size=(100, 3), scale=0.1).astype(np.float32)
    targets = jax.jit(jax.vmap(lambda q: rbd.center_of_mass(arm, q)))(wanted)
    batch = jax.jit(jax.vmap(planar_solutions(), in_axes=(None, 0, 0)))
    found, _ = batch(arm, targets, q0)
    assert found.q.dtype == np.float32
    assert jnp.all(found.converged)


def test_a_joint_that_moves_no_target_is_stationary():
    """The first hinge points the frame to a target out of reach.

    The frame is on the oblique axis of the second hinge, to rounding errors.
    """
    axis, place = np.array([2.0, -3.0, 6.0]) / 7, np.array([1.0, 0.2, 0.1])
    inertia = rbd.model.link_inertia(1.0, (0, 0, 0), np.eye(3))
    hinges = (
        ("j0", rbd.joints.Revolute((0, 0, 1)), None, "l0"),
        ("j1", rbd.joints.Revolute(axis), "l0", "l1", rbd.model.placement_matrix(place)),
    )
    links = [rbd.model.Link(name, inertia) for name in ("l0", "l1")]
    model = rbd.build_model(links, [rbd.model.JointSpec(*hinge) for hinge in hinges])
    model = rbd.model.add_frame(model, "tip", "l1", rbd.model.placement_matrix(axis))
    tasks, tolerance = (ik.FrameTask.position("tip", 3 * (place + axis)),), jnp.asarray(1e-9)
    box = solver.Box(position_limits(model), np.zeros(2, bool))

    @jax.jit
    def stepped(q):
        first = solver.start(model, tasks, box, q, tolerance)
        return first.rows, solver._step(model, tasks, box, first, tolerance, False)

    found, after = stepped(jnp.array([0.0, 0.3]))
    gradient = (found.weights * found.error) @ found.J
    assert 0 < jnp.abs(gradient[1]) < 1e-14
    assert jnp.max(jnp.abs(found.J[:3, 0])) > 0.5
    assert after.stationary


@pytest.mark.slow
def test_minima_are_stationary_though_a_joint_does_not_move_the_frame(arm):
    """From random starts, with default options. The last joint turns about the tool."""
    keys = jax.random.split(jax.random.key(0), 300)
    q0 = jax.vmap(lambda key: rbd.random_configuration(arm, key))(keys)
    p = rbd.frame_placement(arm, rbd.neutral(arm) + 0.3, "tool").p

    @jax.jit
    @jax.vmap
    def solved(q0):
        task = ik.FrameTask.position("tool", p)
        return ik.inverse_kinematics(arm, [task], q0, restart=False)

    found = solved(q0)
    assert jnp.mean(found.converged) < 0.95
    assert jnp.mean(found.stationary) > 0.95


@pytest.mark.slow
def test_a_target_out_of_reach(arm):
    """The result is finite, within the limits, and a minimum; two minima by SciPy are no better."""
    far = rbd.Pose(jnp.eye(3), jnp.array([0.9, 1.5, 0.4]))
    task = ik.FrameTask("tool", far, [1, 1, 1, 0.01, 0.01, 0.01])
    q0 = 0.2 * arm.upper_position_limit
    solution = ik.inverse_kinematics(arm, [task], q0, max_iterations=2000)
    assert not solution.converged
    assert jnp.all(jnp.isfinite(solution.q))
    assert within_limits(arm, solution.q)
    assert solution.errors.linear[0] > 0.1
    assert_minimum(arm, [task], solution.q, 1e-5)
    roots = np.sqrt(np.asarray(task.weights))

    @jax.jit
    def residual(q):
        return roots * rows(arm, [task], q).error

    def reference(start):
        bounds = (np.asarray(arm.lower_position_limit), np.asarray(arm.upper_position_limit))
        return least_squares(
            residual, start, bounds=bounds, xtol=1e-12, ftol=1e-14, gtol=1e-12, max_nfev=300
        )

    found = reference(np.asarray(solution.q) * (1 - 1e-9))
    assert solution.error**2 / 2 <= found.cost * (1 + 1e-7)
    best = search(arm, [task], jax.random.key(0))
    assert best.error**2 / 2 <= reference(np.asarray(q0)).cost * (1 + 1e-6)


def assert_minimum(model, tasks, q, tolerance=1e-8):
    """The gradient is zero for joints within their limits, and points outwards at a limit."""

    def cost(q):
        found = ik_tasks.rows(model, tasks, q)
        return jnp.sum(found.weights * found.error**2) / 2

    gradient = jax.jit(rbd.gradient(model, cost))(q)
    box = solver.Box(position_limits(model), np.zeros(model.nv, bool))
    least, most = box.gaps(q)
    inward = jnp.where(least >= 0, jnp.minimum(gradient, 0), gradient)
    inward = jnp.where(most <= 0, jnp.maximum(gradient, 0), inward)
    close(inward, jnp.zeros_like(inward), tolerance, "projected gradient")


# ----------------------------------------------------------------------------------- constraints


def test_an_equation_holds_against_a_posture():
    """The result is the projection of the posture on the plane of the equation."""
    model = rbd.load_robot("double_pendulum")
    normal, posture, change = np.array([[0.6, 0.8], [0.9, -0.3], [0.7, 0.5]])
    plane = con.Equation(lambda model, q: (normal @ q - 0.5)[None])

    @jax.jit
    def solved(upper):
        limited = dataclasses.replace(model, upper_position_limit=upper)

        def found(posture):
            tasks = [plane, ik.PostureTask(posture, 1.0)]
            solution = ik.inverse_kinematics(limited, tasks, jnp.zeros(2))
            return solution.q, solution

        return jax.jvp(found, (posture,), (change,), has_aux=True)

    q, rate, found = solved(jnp.array([9.0, 9.0]))
    assert found.converged & found.stationary
    close(q, posture - (normal @ posture - 0.5) * normal, 1e-9)
    close(rate, change - (normal @ change) * normal, 1e-9)
    # The equation presses the second hinge against its limit, and the posture pulls it away.
    q, rate, found = solved(jnp.array([9.0, -0.2]))
    assert found.converged & found.stationary
    close(q, [1.1, -0.2], 1e-9)
    close(rate, np.zeros(2), 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["four_bar", "five_bar"])
def test_closed_loops_hold(name):
    linkage = rbd.robots.load_linkage(name)
    model, loops, q0 = linkage
    wanted = con.close_loops(model, q0.at[0].add(0.2), loops).q
    angles = ik.PostureTask(wanted, 1.0)
    solution = solve(model, [*loops, angles], q0)
    assert solution.stationary & solution.converged
    close(solution.q, wanted, 1e-9)
    # A posture that breaks the loop: the loop holds, and the posture is off.
    solution = solve(model, [*loops, ik.PostureTask(wanted + 0.3, 1.0)], q0)
    assert solution.stationary
    assert solution.errors.mixed[-1] > 0.01
    assert jnp.max(solution.errors.mixed[: len(loops)]) < 1e-9
    found = rows(model, [*loops, ik.PostureTask(wanted + 0.3, 1.0)], solution.q)
    multipliers = np.linalg.lstsq(np.asarray(found.K.T), -np.asarray(found.error), rcond=1e-9)[0]
    close(
        found.error + found.K.T @ multipliers, jnp.zeros(model.nv), 1e-7, "stationary in the loop"
    )


@pytest.mark.slow
def test_a_standing_quadruped_moves_its_trunk():
    model, feet, q0 = rbd.robots.load_linkage("standing_quadruped")
    X = rbd.frame_placement(model, q0, "trunk")
    task = ik.FrameTask("trunk", X @ rbd.Pose(rbd.so3.exp(jnp.array([0.1, 0.05, 0.1])), X.p * 0))
    solution = solve(model, [task, *feet], q0)
    assert solution.converged
    for foot in feet:
        close(foot.position(model, solution.q), jnp.zeros(3), 1e-9)


# ----------------------------------------------------------------------------------- derivatives


def test_the_derivative_of_a_posture_that_is_known():
    """A free hinge, a hinge at its limit, and a locked hinge; the target is out of reach.

    The free hinge points the centre of mass to the target. The parameters are the target, the
    limit, the position of the locked hinge, and the length of the first link. The limit is the
    upper one if the target is near, and the lower one if the target is far.
    """
    arm, box = planar(), solver.Box(position_limits(planar()), np.array([False, False, True]))

    def posture(x):
        *target, limit, start, length = np.asarray(x)
        rest = planar_centre([0, limit, start], length)
        return np.array([np.angle(complex(*target) / rest), limit, start])

    def found(x, q, near):
        target, limit, start, length = jnp.split(x, [2, 3, 4])
        there = q.at[2].set(start[0])
        lower, upper = jnp.where(near, -3.0, limit[0]), jnp.where(near, limit[0], 3.0)
        moved = eqx.tree_at(
            lambda m: (m.lower_position_limit, m.upper_position_limit, m.placement.p),
            arm,
            (
                jnp.full(3, -3.0).at[1].set(lower),
                jnp.full(3, 3.0).at[1].set(upper),
                arm.placement.p.at[1, 0].set(length[0]),
            ),
        )
        task = (ik.ComTask(jnp.append(target, 0.0)),)
        limits = solver.Box(position_limits(moved), box.locked)
        tolerance = jnp.asarray(1e-9)
        descent = solver.start(moved, task, limits, q, tolerance)
        minimum = solver.prioritise(moved, task, limits, descent, tolerance, 1)
        return implicit.with_derivatives(moved, task, limits, there, minimum)

    derivative = jax.jit(jax.jacrev(found))
    for target, near in ((0.5 + 0.6j, True), (1.5 + 1.8j, False)):
        x = jnp.array([target.real, target.imag, 0.7, 0.4, 1.0])
        q = jnp.asarray(posture(x))
        # The hinge at its limit would go on.
        assert (np.abs(planar_centre(q)) > np.abs(target)) == near
        expected = [
            finite_differences.slope(lambda h, x=x, dx=dx: posture(x + h * dx), 1e-3)
            for dx in np.eye(5)
        ]
        close(derivative(x, q, near), np.stack(expected, axis=1), 1e-9)


def test_the_derivative_between_two_postures():
    """The first joint is at its limit, because the posture beyond has three times the weight."""
    model, other = planar(), jnp.array([-1.0, 0.4, -0.8])

    def found(x):
        upper, target = jnp.split(x, [1])
        limits = jnp.concatenate([upper, jnp.full(2, 3.0)])
        limited = dataclasses.replace(model, upper_position_limit=limits)
        tasks = [ik.PostureTask(target, 3.0), ik.PostureTask(other, 1.0)]
        return ik.inverse_kinematics(limited, tasks, jnp.zeros(3)).q

    x = jnp.array([1.0, 2.0, 0.8, 0.4])
    q, derivative = jax.jit(lambda x: (found(x), jax.jacfwd(found)(x)))(x)
    close(q, [1.0, 0.7, 0.1], 1e-9)
    close(derivative, [[1, 0, 0, 0], [0, 0, 0.75, 0], [0, 0, 0, 0.75]], 1e-9)


@pytest.mark.slow
def test_derivatives_with_a_joint_at_its_limit(arm):
    """Targets, weights and model leaves, in both modes, against solutions of changed problems."""
    q0 = 0.3 * arm.upper_position_limit
    limit = arm.upper_position_limit.at[3].set(q0[3] + 0.05)
    arm = eqx.tree_at(lambda m: m.upper_position_limit, arm, limit)
    X = rbd.frame_placement(arm, q0.at[3].add(0.4), "tool")
    weights, rng = jnp.array([1.0, 2.0, 3.0, 0.5, 0.6, 0.7]), np.random.default_rng(0)
    lift, turn, change = (jnp.asarray(rng.normal(size=n)) for n in (3, 3, 6))
    shift = jnp.asarray(rng.normal(size=arm.placement.p.shape))
    leaves = jnp.array([1.0, 1.0, 1.0, 1.0])

    def problem(t):
        """The solution for four changes: of the target, the weights, the placements, a limit."""
        target = rbd.Pose(X.R @ rbd.so3.exp(t[0] * turn), X.p + t[0] * lift)
        task = ik.FrameTask("tool", target, weights + t[1] * change)
        moved = eqx.tree_at(
            lambda m: (m.placement.p, m.upper_position_limit),
            arm,
            (arm.placement.p + 0.1 * t[2] * shift, limit + t[3]),
        )
        posture = ik.PostureTask(q0, 1e-2)
        tasks = [task, posture]
        return ik.inverse_kinematics(moved, tasks, q0, max_iterations=500, restart=False)

    @jax.jit
    def derivatives(t):
        def q(t):
            return problem(t).q

        return jax.jacfwd(q)(t), jax.jacrev(q)(t), problem(t)

    forward, reverse, solution = derivatives(0 * leaves)
    assert solution.stationary
    assert solution.q[3] == limit[3]
    assert solution.errors.linear[0] > 1e-3
    close(forward, reverse, 1e-11)
    batch = jax.jit(jax.vmap(problem))
    h = 1e-4
    around = batch(h * jnp.concatenate([jnp.eye(4), -jnp.eye(4), 2 * jnp.eye(4), -2 * jnp.eye(4)]))
    assert jnp.all(around.stationary)
    up, down, up2, down2 = around.q.reshape(4, 4, -1)
    numerical = (8 * (up - down) - (up2 - down2)).T / (12 * h)
    assert jnp.all(jnp.max(jnp.abs(numerical), axis=0) > 1e-3)
    close(forward, numerical, 1e-6)
    close(forward[3], [0.0, 0.0, 0.0, 1.0], 1e-12, "the joint at its limit")


def test_the_derivative_within_the_tolerance_has_the_least_norm():
    """A redundant arm ends 0.3 um or 0.3 mm from its target, and 1 m from one with the weight 0.

    These errors do not select a configuration. If only the other target is left, q is constant.
    """
    model, q0 = planar(), jnp.array([0.5, 0.7, 0.4])

    @jax.jit
    @functools.partial(jax.jacfwd, has_aux=True)
    def derivatives(target, weight, tolerance):
        tasks = [ik.ComTask(target, weight), ik.ComTask(target + 1, 0.0)]
        end = ik.inverse_kinematics(model, tasks, q0, tolerance=tolerance, max_iterations=1)
        return (end.q, end.error), end.error

    for distance, tolerance in ((3e-7, 1e-6), (3e-4, 1e-3)):
        centre = planar_centre(q0) + distance * (0.6 + 0.8j)
        target = jnp.array([centre.real, centre.imag, 0.0])
        (dq, _), error = derivatives(target, 1.0, tolerance)
        assert error > 0.3 * distance
        close(dq, np.linalg.pinv(rows(model, [ik.ComTask(target)], q0).J), 1e-12)
    for x in derivatives(target, 0.0, 1e-6)[0]:
        np.testing.assert_array_equal(x, np.zeros(x.shape))


@pytest.mark.slow
def test_the_derivative_of_a_redundant_robot_has_the_least_norm(arm):
    """It is the pseudo-inverse of the Jacobian, and the change that the solver finds nearby."""
    q0 = 0.3 * arm.upper_position_limit
    X = rbd.frame_placement(arm, q0, "tool")

    def found(d):
        target = X @ rbd.Pose(rbd.so3.exp(d[3:]), d[:3])
        return ik.inverse_kinematics(arm, [ik.FrameTask("tool", target)], q0)

    @jax.jit
    def both(d):
        return jax.jacfwd(lambda d: found(d).q)(d), jax.jacrev(lambda d: found(d).q)(d)

    J = np.asarray(rbd.frame_jacobian(arm, q0, "tool", "local"))
    for matrix in both(jnp.zeros(6)):
        close(matrix, np.linalg.pinv(J), 1e-8)
    numerical = finite_differences.central(
        lambda h: jax.jit(jax.vmap(found))(h * jnp.eye(6)).q, 1e-4
    ).T
    close(numerical, np.linalg.pinv(J), 1e-6)


@pytest.mark.slow
def test_derivatives_of_a_closed_loop():
    model, loops, q0 = rbd.robots.load_linkage("five_bar")
    target = q0 + 0.1 * jnp.array([1.0, -1.0, 0.5, 2.0])

    @jax.jit
    def found(target):
        return ik.inverse_kinematics(model, [ik.PostureTask(target, 1.0), *loops], q0).q

    forward = jax.jit(jax.jacfwd(found))(target)
    columns = [
        finite_differences.central(lambda h, i=i: found(target.at[i].add(h)), 1e-4)
        for i in range(model.nq)
    ]
    close(forward, jnp.stack(columns, axis=1), 1e-6)
    close(jax.jit(jax.jacrev(found))(target), forward, 1e-10)


@pytest.mark.slow
def test_locked_joints_move_with_the_start(arm):
    name = arm.joint_names[1]
    q0 = 0.3 * arm.upper_position_limit
    X = rbd.frame_placement(arm, q0, "tool")

    def found(q0):
        return ik.inverse_kinematics(arm, [ik.FrameTask("tool", X)], q0, locked=[name]).q

    by_start = jax.jit(jax.jacfwd(found))(q0)
    close(by_start[1], jnp.eye(arm.nq)[1], 1e-12)
    close(jnp.delete(by_start, 1, axis=1), jnp.zeros((arm.nq, arm.nq - 1)), 1e-12)
    J = np.asarray(rbd.frame_jacobian(arm, q0, "tool", "local"))
    others = np.delete(np.arange(arm.nv), 1)
    close(by_start[others, 1], -np.linalg.solve(J[:, others], J[:, 1]), 1e-7)


# --------------------------------------------------------------------------------- the box QP


def random_programs(seed, count, n, m=0):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(count, n + 1, n)) * 10.0 ** rng.uniform(-1.5, 1.5, (count, 1, n))
    b = rng.normal(size=(count, n + 1))
    lower, upper = -rng.uniform(0, 0.3, (count, n)), rng.uniform(0, 0.3, (count, n))
    lower[:, 0], upper[:, 1] = -np.inf, np.inf
    K, k = rng.normal(size=(count, m, n)), 0.05 * rng.normal(size=(count, m))
    H = np.einsum("bij,bik->bjk", A, A) + 1e-6 * np.eye(n)
    g = -np.einsum("bij,bi->bj", A, b)
    return A, b, box_qp.BoxQP(*map(jnp.asarray, (H, g, lower, upper, K, k)))


def test_box_qp_is_the_minimum():
    """The KKT conditions to rounding errors, and the solutions of SciPy."""
    A, b, qp = random_programs(0, 50, 8)
    minimise = jax.jit(jax.vmap(box_qp.minimise))
    d = np.asarray(minimise(qp))
    gradient = np.einsum("bij,bj->bi", qp.H, d) + qp.g
    assert np.all((d >= qp.lower) & (d <= qp.upper))
    # d is the projection of a gradient step.
    projected = np.clip(
        d - gradient / np.max(np.abs(qp.H), axis=(1, 2))[:, None], qp.lower, qp.upper
    )
    np.testing.assert_allclose(projected, d, atol=1e-10)
    scale = np.max(np.abs(qp.g), axis=1, keepdims=True)
    inside = (d > qp.lower) & (d < qp.upper)
    assert np.max(np.abs(np.where(inside, gradient / scale, 0))) < 1e-10
    assert 0.2 < np.mean(inside) < 0.8
    for i in range(5):
        regular = np.concatenate([A[i], 1e-3 * np.eye(8)]), np.concatenate([b[i], np.zeros(8)])
        expected = lsq_linear(*regular, (qp.lower[i], qp.upper[i]), tol=1e-14).x
        np.testing.assert_allclose(d[i], expected, atol=1e-7)
    # The minimum without bounds is at the upper bounds, and not beyond them by rounding errors.
    upper = np.where(np.isinf(qp.upper), 0.1, qp.upper)
    edge = qp._replace(g=-np.einsum("bij,bj->bi", qp.H, upper), upper=jnp.asarray(upper))
    d = np.asarray(minimise(edge))
    assert np.all(d <= upper)
    np.testing.assert_allclose(d, upper, atol=1e-10)


def test_the_derivative_of_a_box_qp():
    """The ends are at their bounds b and c, and the middle is -(g + H21 b + H23 c) / H22."""
    H = jnp.array([[3.0, 1.0, 0.0], [1.0, 2.0, 1.0], [0.0, 1.0, 3.0]])

    def minimum(x):
        g, above, below = jnp.split(x, 3)
        lower, upper = jnp.full(3, -9.0).at[2].set(below[0]), jnp.full(3, 9.0).at[0].set(above[0])
        force = jnp.array([-5.0, 0.0, 5.0]).at[1].set(g[0])
        return box_qp.minimise(box_qp.BoxQP(H, force, lower, upper, H[:0], H[0, :0]))

    expected = [[0, 1, 0], [-1 / 2, -1 / 2, -1 / 2], [0, 0, 1]]
    for mode in (jax.jacfwd, jax.jacrev):
        close(jax.jit(mode(minimum))(jnp.array([0.4, 0.3, -0.2])), expected, 1e-14)


def test_the_derivative_of_a_box_qp_with_an_equation():
    """By the gradient, the bound of the first entry, and the right side of the equation.

    The units of the equation do not matter, and an equation of zeros has no effect.
    """
    H = jnp.array([[3.0, 1.0, 0.0], [1.0, 2.0, 1.0], [0.0, 1.0, 3.0]])
    K, upper = jnp.array([[1.0, 2.0, -1.0]]), jnp.full(3, 9.0)

    def minimum(x, unit):
        force = jnp.array([-9.0, 0.0, 0.0]).at[1].set(x[0])
        box = -upper, upper.at[0].set(x[1])
        return box_qp.minimise(box_qp.BoxQP(H, force, *box, unit * K, unit * x[2:]))

    # The other entries and the multiplier, from the conditions of the minimum.
    free = np.block([[H[1:, 1:], K[:, 1:].T], [K[:, 1:], np.zeros((1, 1))]])
    right = np.array([[-1.0, -H[1, 0], 0.0], [0.0, -H[2, 0], 0.0], [0.0, -K[0, 0], 1.0]])
    expected = np.concatenate([[[0.0, 1.0, 0.0]], np.linalg.solve(free, right)[:2]])
    derivative, x = jax.jit(jax.jacrev(minimum)), jnp.array([0.4, 0.3, -0.2])
    for unit in (1.0, 1e-10, 1e8):
        close(derivative(x, unit), expected, 1e-13)
    # The largest entry of K can be negative.
    qp = box_qp.BoxQP(H, H[0], -upper, upper, -1e-10 * jnp.abs(K), jnp.full(1, 2e-10))
    scaled = box_qp._with_scaled_equations(qp)
    close(scaled.K, -1.5 * jnp.abs(K), 1e-14)
    close(scaled.k, [3.0], 1e-14)
    free = np.linalg.solve(H[1:, 1:], np.array([[-1.0, -H[1, 0], 0.0], [0.0, -H[2, 0], 0.0]]))
    close(derivative(x, 0.0), np.concatenate([expected[:1], free]), 1e-13)


def test_box_qp_with_equations():
    """Also programs whose multipliers select the entries at a bound (34 and 91 of 300).

    The program 73 needs more steps than one round has. In the program 979 of 3000, an entry that
    reached its bound leaves it again.
    """
    qp, others = (jax.device_get(random_programs(1, count, 8, 2)[2]) for count in (300, 3000))
    few = np.array([462, 518, 979, 1092, 2791])
    qp = jax.tree.map(lambda x, y: np.concatenate([x, y[few]]), qp, others)
    minimise = jax.jit(jax.vmap(box_qp.minimise))
    # Zero and a random point are in every box, so both equations have solutions.
    share = np.random.default_rng(0).uniform(size=qp.g.shape)
    inside = np.clip(qp.lower, -0.3, 0.3) * share + np.clip(qp.upper, -0.3, 0.3) * (1 - share)
    # With nearly equal rows, the programs 462, 518 and 1092 need many rounds, and 2791 needs large
    # weights. The equations then have larger rounding errors.
    similar = qp._replace(K=np.stack([qp.K[:, 0], qp.K[:, 0] + 0.02 * qp.K[:, 1]], axis=1))
    for program, point, room in (
        (qp, 0 * inside, 1e-10),
        (qp, inside, 1e-10),
        (similar, 0 * inside, 1e-9),
    ):
        shifted = program._replace(k=np.einsum("bij,bj->bi", program.K, point))
        assert_minimum_with_equations(shifted, np.asarray(minimise(shifted)), room)


def assert_minimum_with_equations(qp, d, room):
    """The equations hold, and the multipliers of all bounds point outwards."""
    qp = jax.device_get(qp)
    np.testing.assert_allclose(np.einsum("bij,bj->bi", qp.K, d), qp.k, atol=room)
    gradient = np.einsum("bij,bj->bi", qp.H, d) + qp.g
    for i in range(len(d)):
        inside = (d[i] > qp.lower[i]) & (d[i] < qp.upper[i])
        K, scale = np.asarray(qp.K[i]), np.max(np.abs(qp.g[i]))
        multipliers = np.linalg.lstsq(K[:, inside].T, -gradient[i][inside], rcond=None)[0]
        force = (gradient[i] + K.T @ multipliers) / scale
        assert np.max(np.abs(force[inside]), initial=0) < 1e-10
        if inside.sum() > 2:
            assert np.all(force[d[i] <= qp.lower[i]] >= -1e-9)
            assert np.all(force[d[i] >= qp.upper[i]] <= 1e-9)


def test_box_qp_with_inequalities(rng):
    """Some rows are equations. The multipliers that prove the minimum are not negative."""
    size, n, m, inequalities = 200, 5, 6, 4
    root = rng.normal(size=(size, n, n))
    H = root @ root.swapaxes(1, 2) + 0.1 * np.eye(n)
    K, g = rng.normal(size=(size, m, n)), rng.normal(size=(size, n)) * 3
    # Some inequalities exclude d = 0, as for shapes that are too close; all have a solution.
    inside = rng.uniform(-0.4, 0.4, (size, n))
    room = np.abs(rng.normal(size=(size, m))) * (np.arange(m) >= m - inequalities)
    k = np.einsum("bij,bj->bi", K, inside) + 0.3 * room
    upper = np.full((size, n), 0.5)
    qp = box_qp.BoxQP(*map(jnp.asarray, (H, g, -upper, upper, K, k)))
    minimise = jax.jit(jax.vmap(lambda qp: box_qp.minimise(qp, inequalities)))
    d = np.asarray(minimise(qp))
    rest = np.einsum("bij,bj->bi", K, d) - k
    equation = np.arange(m) < m - inequalities
    np.testing.assert_allclose(rest[:, equation], 0, atol=1e-9)
    assert np.max(rest) < 1e-9
    held = ~equation & (rest > -1e-9)
    assert 200 < np.sum(held) < 600
    for i in range(size):
        forces = [*K[i][equation], *-K[i][equation], *K[i][held[i]]]
        forces += [s * np.eye(n)[j] for s in (1, -1) for j in np.flatnonzero(s * d[i] >= 0.5)]
        assert nnls(np.array(forces).T, -(H[i] @ d[i] + g[i]))[1] < 1e-8


def test_the_derivative_of_a_box_qp_with_an_inequality():
    """The minimum of |d - a|^2 / 2 on a half-plane, inside and at its border."""
    row = np.array([0.6, 0.8])

    @jax.jit
    @jax.jacfwd
    def derivative(x):
        box = jnp.full(2, 9.0)
        qp = box_qp.BoxQP(jnp.eye(2), -x[:2], -box, box, jnp.asarray(row[None]), x[2:])
        return box_qp.minimise(qp, 1)

    np.testing.assert_allclose(derivative(jnp.array([1.0, 1.0, 2.0])), np.eye(2, 3), atol=1e-12)
    outside = np.concatenate([np.eye(2) - np.outer(row, row), row[:, None]], axis=1)
    np.testing.assert_allclose(derivative(jnp.array([1.0, 1.0, 1.0])), outside, atol=1e-12)


def test_the_steps_of_a_box_qp(monkeypatch):
    """The first step moves an entry to its bound, and the second step is a whole Newton step.

    With an equation of the weight w, a round reduces the error of the equation to 1 / (1 + w).
    """
    steps = []

    def counted(*args):
        jax.debug.callback(lambda: steps.append(1))
        return linear.solve_free(*args)

    monkeypatch.setattr(box_qp, "solve_free", counted)
    g, bound = jnp.array([-3.0, 0.5]), jnp.ones(2)

    @jax.jit
    def search(g):
        H, solve = jnp.eye(2), functools.partial(box_qp.solve_free, jnp.eye(2))
        return box_qp._projected_newton(H, g, -bound, bound, jnp.zeros(2), solve)

    d, fixed = search(g)
    jax.effects_barrier()
    np.testing.assert_array_equal(d, [1.0, -0.5])
    np.testing.assert_array_equal(fixed, [True, False])
    assert len(steps) == 2
    steps.clear()
    qp = box_qp.BoxQP(jnp.eye(2), 0 * g, -bound, bound, jnp.eye(1, 2), jnp.array([0.5]))
    d, *_ = jax.jit(lambda qp: box_qp._search_with_rows(qp, 0))(qp)
    jax.effects_barrier()
    exact = 1000 * np.finfo(float).eps
    weights = np.minimum(10 * 4.0 ** np.arange(9), 2560)
    rounds = 1 + np.flatnonzero(0.5 / np.cumprod(1 + weights) < exact)[0]
    assert len(steps) == rounds == 6
    np.testing.assert_allclose(d, [0.5, 0.0], atol=exact)


def test_redundant_equations_in_single_precision():
    """The second equation is a multiple of the first one, to rounding errors of float32."""
    a, b = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    K = jnp.stack([a, a / 3])
    box = jnp.full(4, 9, jnp.float32)
    qp = box_qp.BoxQP(jnp.eye(4, dtype=np.float32), jnp.asarray(b), -box, box, K, 0 * K[:, 0])
    exact = -b + a * np.dot(a, b) / np.dot(a, a)
    np.testing.assert_allclose(jax.jit(box_qp.minimise)(qp), exact, atol=1e-6)


# --------------------------------------------------------------- differential inverse kinematics


@jax.jit
def velocity(model, q, tasks, dt, gain):
    return ik.differential_inverse_kinematics(model, q, tasks, dt, gain)


def test_a_velocity_within_the_limits_reaches_the_target_in_one_step(arm):
    q = 0.3 * arm.upper_position_limit
    arm = eqx.tree_at(lambda m: m.velocity_limit, arm, jnp.full(arm.nv, 10.0))
    X = rbd.frame_placement(arm, q, "tool")
    tasks = [ik.FrameTask("tool", X @ rbd.Pose(jnp.eye(3), jnp.array([0.0, 0.0, 1e-4])))]
    v = velocity(arm, q, tasks, 0.01, 1.0)
    J = np.asarray(rbd.frame_jacobian(arm, q, "tool", "local"))
    close(J @ v, [0, 0, 1e-2, 0, 0, 0], 1e-5)
    close(velocity(arm, q, tasks, 0.01, 0.5), v / 2, 1e-12, "gain")
    close(velocity(arm, q, tasks, 0.02, 1.0), v / 2, 1e-12, "time step")


@pytest.mark.slow
@pytest.mark.parametrize("robot", ["following", "small"])
def test_velocities_and_positions_stay_within_the_limits(robot):
    """Floating bases and user-defined joints, with the KKT conditions of the program."""
    model = getattr(zoo, robot)()
    q = rbd.random_configuration(model, jax.random.key(0))
    place, _ = coordinates_with_rates(model)
    near = model.upper_position_limit[place[-1]] - 1e-4
    q = q.at[place[-1]].set(near)
    tasks = [ik.FrameTask("l2", random_pose(3)), ik.PostureTask(model.upper_position_limit * 0 + q)]
    tasks[1] = ik.PostureTask(q.at[place].set(model.upper_position_limit[place] + 1), 10.0)
    dt = 0.05
    v = np.asarray(velocity(model, q, tasks, dt, 1.0))
    assert np.all(np.abs(v) <= np.asarray(model.velocity_limit))
    assert np.any(np.abs(v) == np.asarray(model.velocity_limit))
    moved = rbd.integrate(model, q, dt * v)
    over = np.asarray(moved - model.upper_position_limit)[place]
    assert np.max(over) <= 1e-15
    assert np.max(over) > -1e-12
    program = functools.partial(differential.quadratic_program, locked=np.zeros(model.nv, bool))
    qp = jax.jit(program)(model, q, tasks, *map(jnp.asarray, (dt, 1.0, 1e-6)))
    gradient = np.asarray(qp.H @ (dt * v) + qp.g)
    scale = np.max(np.abs(qp.g))
    d = dt * v
    gaps = np.maximum(np.asarray(qp.lower) - d, d - np.asarray(qp.upper))
    projected = np.clip(d - gradient / scale, qp.lower, qp.upper)
    np.testing.assert_allclose(projected, d, atol=1e-10)
    assert np.max(gaps) <= 1e-15


def test_a_joint_beyond_its_limit_moves_back(arm):
    q = 0.3 * arm.upper_position_limit
    X = rbd.frame_placement(arm, q, "tool")
    for limit, sign in ((arm.upper_position_limit, 1.0), (arm.lower_position_limit, -1.0)):
        outside = q.at[1].set(limit[1] + 0.5 * sign)
        v = velocity(arm, outside, [ik.FrameTask("tool", X)], 0.01, 1.0)
        assert v[1] == -sign * arm.velocity_limit[1]


def test_the_gain_acts_on_the_equations_of_constraints():
    """A gain of 0.5 removes half of the error 0.2 of the equation in the time step of 0.1 s."""
    model, q = planar(), jnp.array([0.2, 0.1, 0.3])
    tasks = [con.Equation(lambda model, q: q[:1])]
    v = ik.differential_inverse_kinematics(model, q, tasks, 0.1, gain=0.5)
    close(v, [-1.0, 0, 0], 1e-9)
    # The velocity limit holds if the equations contradict it.
    slow = dataclasses.replace(model, velocity_limit=jnp.full(3, 0.6))
    v = ik.differential_inverse_kinematics(slow, q, tasks, 0.1, gain=0.5)
    close(v, [-0.6, 0, 0], 1e-9)
    still = dataclasses.replace(model, velocity_limit=jnp.zeros(3))
    v = ik.differential_inverse_kinematics(still, q, tasks, 0.1, gain=0.5)
    np.testing.assert_array_equal(v, np.zeros(3))


@pytest.mark.gives_nan
def test_weights_damping_and_locked_joints_of_a_velocity():
    """The minimum without limits, by its normal equations."""
    model, q = planar(), jnp.array([0.2, 0.1, 0.3])
    tasks = [ik.FrameTask("l2", IDENTITY, np.arange(1.0, 7.0)), ik.ComTask([0, 1, 0], [3, 2, 1])]
    unlimited = dataclasses.replace(model, velocity_limit=jnp.full(3, jnp.inf))

    def minimum(q):
        options = {"damping": 0.3, "locked": ["j1"]}
        return ik.differential_inverse_kinematics(unlimited, q, tasks, 0.1, **options)

    found = jax.tree.map(np.asarray, rows(model, tasks, q))
    J, weights = found.J[:, [0, 2]], found.weights
    H = J.T @ (weights[:, None] * J) + 0.3 * np.eye(2)
    free = np.linalg.solve(H, -J.T @ (weights * found.error)) / 0.1
    close(minimum(q), [free[0], 0, free[1]], 1e-10)
    assert jnp.all(jnp.isnan(jax.jit(minimum)(q.at[0].set(jnp.nan))))
    # A locked joint stops at once, also where limits of acceleration would not let it.
    limits = {"acceleration_limit": 0.1, "previous_velocity": jnp.array([0.0, 1.0, 0.0])}
    v = ik.differential_inverse_kinematics(model, q, tasks, 0.1, locked=["j1"], **limits)
    assert v[1] == 0
    assert jnp.max(jnp.abs(v)) > 0


def test_the_damping_is_above_the_rounding_errors_in_single_precision(arm):
    """Large weights, tasks that fewer dofs can satisfy, and a constraint."""
    model = arm.astype("float32")
    target = rbd.frame_placement(model, 0.4 * model.upper_position_limit, "tool")

    @jax.jit
    @jax.vmap
    def velocities(key, weight):
        q = rbd.random_configuration(model, key)

        def velocity(*tasks):
            return ik.differential_inverse_kinematics(model, q, tasks, 0.01)

        pose = ik.FrameTask("tool", target, weights=weight)
        place = ik.FrameTask.position("tool", target.p, weights=weight)
        return velocity(pose), velocity(place), velocity(pose, con.point(None, "tool", target.p))

    weights = jnp.repeat(jnp.array([1e-3, 1.0, 1e2, 1e4, 1e6], "float32"), 20)
    for v in velocities(jax.random.split(jax.random.key(0), len(weights)), weights):
        assert v.dtype == jnp.float32
        assert jnp.all(jnp.abs(v) <= model.velocity_limit)


def test_traced_values_that_are_not_finite_give_no_solution(arm):
    target = rbd.frame_placement(arm, 0.4 * arm.upper_position_limit, "tool")

    @jax.jit
    @jax.vmap
    def solved(q0, weight):
        tasks = [ik.FrameTask("tool", target, weights=weight)]
        return ik.inverse_kinematics(arm, tasks, q0)

    q0 = jnp.tile(0.3 * arm.upper_position_limit, (5, 1))
    found = solved(q0.at[1, 2].set(jnp.nan), jnp.array([1.0, 1.0, -1.0, jnp.nan, jnp.inf]))
    np.testing.assert_array_equal(found.converged, [True, False, False, False, False])
    np.testing.assert_array_equal(found.stationary, found.converged)
    np.testing.assert_array_equal(jnp.all(jnp.isnan(found.q), axis=1), ~found.converged)


def test_traced_values_out_of_their_range_give_no_velocity():
    """The time step, the gain, the damping and the largest acceleration, without limits."""
    free, q = jnp.full(3, jnp.inf), jnp.array([0.2, 0.1, 0.3])
    model = dataclasses.replace(planar(), lower_position_limit=-free, upper_position_limit=free)

    @jax.jit
    @jax.vmap
    def found(dt, gain, damping, largest):
        limits = {"acceleration_limit": largest, "previous_velocity": jnp.zeros(3)}
        tasks = [ik.PostureTask(q + 0.1, 1.0)]
        return ik.differential_inverse_kinematics(model, q, tasks, dt, gain, damping, **limits)

    wrong = {0: [0.0, -0.1], 1: [-0.1, 1.1], 2: [0.0, -1e-3], 3: [0.0, -2.0]}
    values = np.array([0.1, 0.5, 1e-3, 2.0])
    rows = [values, *(np.where(np.arange(4) == k, x, values) for k in wrong for x in wrong[k])]
    v = found(*np.array(rows).T)
    assert jnp.all(jnp.isfinite(v[0]))
    assert jnp.all(jnp.isnan(v[1:]))

    @jax.jit
    @jax.vmap
    def with_limits_and_weights(limit, weight):
        limited = dataclasses.replace(model, velocity_limit=jnp.array([1.0, limit, 1.0]))
        tasks = [ik.PostureTask(q + 0.1, jnp.stack([1.0, 1.0, weight])), ik.ComTask(jnp.zeros(3))]
        end = ik.inverse_kinematics(model, tasks, q, max_iterations=1)
        return ik.differential_inverse_kinematics(limited, q, tasks, 0.1), end

    v, end = with_limits_and_weights(jnp.array([1.0, -0.1, 1.0]), jnp.array([0.5, 0.5, -1e-3]))
    np.testing.assert_array_equal(jnp.all(jnp.isfinite(v), axis=1), [True, False, False])
    np.testing.assert_array_equal(jnp.all(jnp.isfinite(end.q), axis=1), [True, True, False])
    assert not end.converged[2]


def test_a_robot_without_dofs():
    model = zoo.build([], [])
    none, tasks = jnp.zeros(0), [ik.ComTask([0.0, 0.0, 1.0]), ik.PostureTask(jnp.zeros(0))]
    found = ik.inverse_kinematics(model, tasks, none)
    assert found.q.shape == (0,)
    assert not found.converged
    assert ik.inverse_kinematics(model, tasks[1:], none).converged
    stop = con.Equation(lambda model, q: jnp.ones(1))
    for more in ([], [stop]):
        v = ik.differential_inverse_kinematics(model, none, [*tasks, *more], 0.1)
        assert v.shape == (0,)
    assert con.maximal_dynamics(model, none, none, none).acceleration.shape == (0,)


def test_velocities_turn_a_gaze_from_backwards_within_the_limits():
    """The planar arm is straight along x, and the target is exactly behind its last link."""
    arm, q = planar(), jnp.zeros(3)
    tasks, gain = [ik.GazeTask("l2", [-3.0, 0.0, 0.0], [2.0, 0.0, 0.0])], jnp.asarray(0.5)
    for _ in range(40):
        q = q + 0.1 * velocity(arm, q, tasks, 0.1, gain)
        assert jnp.all(jnp.abs(q) <= 3.0)
    place, angle = planar_tip(q)
    close(np.exp(1j * angle), (-3 - place) / np.abs(-3 - place), 1e-6)


def planar_tip(q):
    """The origin of the last link of the planar arm as x + y i, and the angle of the link."""
    angles = np.cumsum(np.asarray(q))
    return np.exp(1j * angles[0]) + np.exp(1j * angles[1]), angles[2]


DT, LARGEST = 0.05, np.array([2.0, 0.7, 3.0])


@functools.cache
def limited():
    return dataclasses.replace(planar(), velocity_limit=jnp.array([1.5, jnp.inf, 0.4]))


def test_limits_of_acceleration_can_be_satisfied_in_every_step():
    """The bounds of random steps, and of the fastest steps to a limit, which end at rest there."""
    model, none = limited(), np.zeros(3, bool)

    @jax.jit
    @functools.partial(jax.vmap, in_axes=0)
    def moved(shares):
        def step(state, share):
            q, v = state
            change = differential.ChangeLimits(jnp.asarray(LARGEST), v)
            least, most = differential._bounds(model, q, jnp.asarray(DT), none, change)
            d = least + share * (most - least)
            return (q + d, d / DT), (q + d, d / DT, most - least)

        return jax.lax.scan(step, (jnp.zeros(3), jnp.zeros(3)), shares)[1]

    rng = np.random.default_rng(0)
    shares = np.repeat(rng.integers(0, 2, size=(20, 20, 3)), 20, axis=1).astype(float)
    shares[:, ::7] = rng.uniform(size=shares[:, ::7].shape)
    shares[0], shares[1] = 1.0, 0.0
    q, v, widths = moved(shares)
    assert np.all(widths >= 0)
    assert np.all(np.abs(q) <= 3.0 + 1e-15)
    assert np.all(np.abs(v) <= np.array(model.velocity_limit) + 1e-15)
    changes = np.diff(np.concatenate([np.zeros((20, 1, 3)), v], axis=1), axis=1) / DT
    assert np.all(np.abs(changes) <= LARGEST * (1 + 1e-9))
    assert np.mean(np.abs(changes) > 0.999 * LARGEST) > 0.3
    close(q[:2, -1], [[3.0] * 3, [-3.0] * 3], 1e-12)
    close(v[:2, -1], np.zeros((2, 3)), 1e-12)
    # The fastest motion brakes as late as possible: 1.5 m/s, then 2 m/s^2 until the limit.
    times = 1.5 / 2 + (3 - 1.5**2 / 2) / 1.5 + 1.5 / 2
    assert np.abs(np.sum(np.asarray(q)[0, :, 0] < 3.0 - 1e-9) * DT - times) < 3 * DT


def test_the_largest_displacement_from_which_a_joint_can_stop():
    """5 + 3 + 1 = 9 with changes of 2; beyond a limit and without one it is the gap."""
    gap, step = jnp.array([9.0, 0.5, -0.3, jnp.inf, 4.0]), jnp.array([2.0, 2.0, 2.0, 2.0, jnp.inf])
    largest = differential._stopping_displacement(gap, step)
    np.testing.assert_allclose(largest, [5.0, 0.5, -0.3, np.inf, 4.0], rtol=1e-14)
    # d + (d - s) + (d - 2 s) = 9, so the derivatives are 1 / 3 and 1.
    first = jax.jacrev(lambda *x: differential._stopping_displacement(*x)[:3], (0, 1))(gap, step)
    close(first[0][:, :3], np.diag([1 / 3, 1.0, 1.0]), 1e-14)
    close(first[1], np.diag([1.0, 0.0, 0.0]) @ np.eye(3, 5), 1e-14)


@pytest.mark.gives_nan
def test_the_velocity_of_a_robot_with_limits_of_acceleration():
    model, posture = limited(), [ik.PostureTask(jnp.array([9.0, -9.0, 0.01]), 1.0)]

    def found(q, v, **options):
        options = {"acceleration_limit": LARGEST, "previous_velocity": v} | options
        return ik.differential_inverse_kinematics(model, q, posture, DT, **options)

    q, v = jnp.array([0.1, 0.2, 0.3]), jnp.array([0.5, 0.2, 0.0])
    close(found(q, v), v + DT * LARGEST * np.array([1.0, -1.0, -1.0]), 1e-12)
    free = np.array([np.inf, 0.7, 3.0])
    close(found(q, v, acceleration_limit=free)[0], 1.5, 1e-12)  # the velocity limit
    # A joint beyond its limit moves back as fast as it can.
    outside = q.at[0].set(3.2)
    close(found(outside, v.at[0].set(-0.3))[0], -0.3 - DT * 2.0, 1e-12)
    close(found(q.at[0].set(-3.2), v.at[0].set(0.3))[0], 0.3 + DT * 2.0, 1e-12)
    # The velocity can be reduced to its limit, but not to the velocity that stops in time.
    fast = "1.55 for joint 'j0' (dof 0) and changes by at most 0.1 in a time step, expected a "
    fast += "velocity that can change to 0.1"
    for q_wrong, v_wrong, message in (
        (q, v.at[2].set(0.9), r"0.9 for joint 'j2' \(dof 2\) .* to 0.4, the velocity limit"),
        (q, v.at[2].set(-0.9), r"-0.9 for joint 'j2' .* to -0.4, the velocity limit"),
        (q.at[1].set(2.9), v.at[1].set(0.6), "'j1' .* stop before its position limit"),
        (q.at[1].set(-2.9), v.at[1].set(-0.6), "'j1' .* to -0.3.* stop before its position limit"),
        (
            q.at[0].set(2.99),
            v.at[0].set(1.55),
            re.escape(fast) + ".* from which the joint can stop",
        ),
        (q.at[0].set(3.0), v.at[0].set(0.6), "'j0' .* to 0.0, from which the joint can stop"),
        (q.at[0].set(-3.0), v.at[0].set(-0.6), "'j0' .* to -0.0, from which the joint can stop"),
    ):
        with pytest.raises(rbd.ArgumentError, match=message):
            found(q_wrong, v_wrong)
        assert jnp.all(jnp.isnan(jax.jit(found)(q_wrong, v_wrong)))
    # The first dof of the joint j1 is 6, and its coordinate is 7.
    floating = zoo.build(["free_flyer", "revolute", "revolute"], [-1, 0, 1])
    fast, none = jnp.zeros(8).at[6].set(1e3), (False,) * 8
    with pytest.raises(rbd.ArgumentError, match=r"1000.0 for joint 'j1' \(dof 6\)"):
        differential._raise_for_limits(floating, rbd.neutral(floating), DT, (1.0, fast), none)
    both, locked = fast.at[7].set(1e3), (*none[:6], True, False)
    with pytest.raises(rbd.ArgumentError, match=r"1000.0 for joint 'j2' \(dof 7\)"):
        differential._raise_for_limits(floating, rbd.neutral(floating), DT, (1.0, both), locked)
    for options, message in (
        ({"previous_velocity": None}, "previous_velocity is None, expected both"),
        ({"acceleration_limit": None}, "acceleration_limit is None, expected both"),
        ({"acceleration_limit": 0.0}, r"acceleration_limit is 0.*above 0"),
        ({"acceleration_limit": jnp.ones(2)}, r"acceleration_limit has shape \(2,\)"),
        ({"previous_velocity": jnp.ones(2)}, r"previous_velocity has shape \(2,\)"),
    ):
        with pytest.raises(rbd.ArgumentError, match=message):
            found(q, v, **options)


@pytest.mark.slow
def test_velocities_keep_loops_closed():
    model, loops, q = rbd.robots.load_linkage("five_bar")
    tasks = [ik.PostureTask(q + 0.2, 1.0), *loops]
    v = velocity(model, q, tasks, 0.01, 1.0)
    K = rows(model, tasks, q).K
    assert jnp.max(jnp.abs(v)) > 0.1
    close(K @ v, jnp.zeros(len(K)), 1e-9)
    wheel = con.Nonholonomic(lambda model, q: jnp.ones((1, model.nv), model.dtype))
    v = velocity(model, q, [ik.PostureTask(q + 0.2, 1.0), wheel], 0.01, 1.0)
    close(jnp.sum(v), 0.0, 1e-9)


@pytest.mark.slow
def test_derivatives_of_velocities(arm):
    """With dofs at their limits, in both modes, against central differences."""
    q = 0.3 * arm.upper_position_limit
    arm = eqx.tree_at(lambda m: m.velocity_limit, arm, jnp.full(arm.nv, 0.5))
    X = rbd.frame_placement(arm, q, "tool")

    def found(p):
        target = rbd.Pose(X.R, X.p + p[:3])
        slower = eqx.tree_at(lambda m: m.velocity_limit, arm, arm.velocity_limit + p[3])
        return ik.differential_inverse_kinematics(
            slower, q + p[4], [ik.FrameTask("tool", target)], 0.01, damping=1e-3
        )

    p = jnp.array([0.02, 0.03, -0.02, 0.0, 0.0])
    forward, reverse = jax.jit(lambda p: (jax.jacfwd(found)(p), jax.jacrev(found)(p)))(p)
    assert 0 < jnp.sum(jnp.abs(found(p)) == 0.5) < 7
    numerical = finite_differences.central(
        lambda h: jax.jit(jax.vmap(found))(p + h * jnp.eye(5)), 1e-5
    ).T
    close(forward, numerical, 1e-6)
    close(reverse, forward, 1e-10)


# ---------------------------------------------------------------------------------------- errors


def test_wrong_tasks(arm, monkeypatch):
    X = rbd.frame_placement(arm, rbd.neutral(arm), "tool")
    q0 = 0.3 * arm.upper_position_limit
    good = ik.FrameTask("tool", X)
    nan = rbd.Pose(X.R, X.p.at[0].set(jnp.nan))
    with pytest.raises(rbd.ArgumentError, match=r"target.p of the FrameTask of 'tool' .* finite"):
        ik.FrameTask("tool", nan)
    with pytest.raises(
        rbd.ArgumentError, match=r"(?s)target.R of the FrameTask of 'tool' .*rotation"
    ):
        ik.FrameTask("tool", rbd.Pose(-X.R, X.p))
    with pytest.raises(rbd.ArgumentError, match=r"target.R .* shape \(1, 3, 3\)"):
        ik.FrameTask("tool", rbd.Pose(X.R[None], X.p))
    with pytest.raises(rbd.ArgumentError, match=r"target.p .* shape \(1, 3\)"):
        ik.FrameTask("tool", rbd.Pose(X.R, X.p[None]))
    ik.FrameTask.orientation("tool", np.asarray(random_pose(0).R, np.float32))  # exact to 1e-7
    with pytest.raises(rbd.ArgumentError, match=r"weights of the FrameTask of 'tool' .* 0 or more"):
        ik.FrameTask("tool", X, -1.0)
    with pytest.raises(rbd.ArgumentError, match=r"weights .* shape \(3,\).* or \(6,\) of"):
        ik.FrameTask("tool", X, [1.0, 1.0, 1.0])
    with pytest.raises(rbd.ArgumentError, match=r"^p of the FrameTask of 'tool' .* shape \(2,\)"):
        ik.FrameTask.position("tool", np.zeros(2), relative_to="base")
    with pytest.raises(rbd.ArgumentError, match=r"^R of the FrameTask of 'tool' .* shape \(4, 4\)"):
        ik.FrameTask.orientation("tool", np.eye(4), relative_to="base")
    for axis in (np.zeros(3), [np.inf, 0.0, 0.0]):
        with pytest.raises(rbd.ArgumentError, match=r"axis of the GazeTask of 'tool' .*direction"):
            ik.GazeTask("tool", X.p, axis)
    with pytest.raises(rbd.ArgumentError, match=r"target of the GazeTask of 'tool' .*finite"):
        ik.GazeTask("tool", [0.0, np.nan, 0.0])
    with pytest.raises(rbd.ArgumentError, match=r"weights of the GazeTask .* 0 or more"):
        ik.GazeTask("tool", X.p, weights=-1.0)
    with pytest.raises(rbd.ArgumentError, match=r"weights of the GazeTask .* shape \(3,\)"):
        ik.GazeTask("tool", X.p, weights=np.ones(3))
    with pytest.raises(rbd.ArgumentError, match=r"target of the ComTask .* finite"):
        ik.ComTask([0.0, np.inf, 0.0])
    with pytest.raises(rbd.ArgumentError, match=r"target of the PostureTask .* finite"):
        ik.PostureTask([0.0, np.nan])
    # Rotations are exact to 1e-4, and weights are finite.
    for R in (1.001 * X.R, X.R.at[0].multiply(1.001)):
        with pytest.raises(rbd.ArgumentError, match=r"(?s)target.R .* a rotation matrix"):
            ik.FrameTask("tool", rbd.Pose(R, X.p))
    for weight in (-1.0, np.inf, np.nan):
        for name, task in (
            ("ComTask", functools.partial(ik.ComTask, X.p)),
            ("PostureTask", functools.partial(ik.PostureTask, q0)),
        ):
            with pytest.raises(rbd.ArgumentError, match=f"^weights of the {name} is .* finite, 0"):
                task(weight)
    with pytest.raises(rbd.ArgumentError, match=r"^target of the ComTask has shape \(2,\)"):
        ik.ComTask(np.zeros(2))
    with pytest.raises(rbd.ArgumentError, match=r"^target of the PostureTask has shape \(1, 7\)"):
        ik.PostureTask(np.zeros((1, 7)))
    # Without the tests' type checker.
    with monkeypatch.context() as patch:
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)
        for tasks, message in (
            (good, "^tasks is FrameTask.*, expected a sequence of tasks"),
            (con.point("tool", "base"), "^tasks is .*, expected a sequence of tasks"),
            ([good, "tool"], r"^tasks\[1\] is 'tool', expected a task or a Constraint"),
        ):
            with pytest.raises(rbd.ArgumentError, match="(?s)" + message):
                ik_tasks.checked_tasks(arm, tasks)
        for target, message in (
            (X.p, r"an array of shape \(3,\), .* use FrameTask.position$"),
            ([0.0, 0.0, 1.0], "use FrameTask.position$"),
            (np.eye(3), "for a rotation matrix use FrameTask.orientation$"),
            (np.eye(4), r"for a matrix T use Pose\(T\[:3, :3\], T\[:3, 3\]\)$"),
            ("tip", "is 'str', expected a Pose$"),
        ):
            with pytest.raises(rbd.ArgumentError, match=message):
                ik.FrameTask("tool", target)
        for names, message in (
            ({"frame": 3}, "frame is 3, expected the name of a frame"),
            ({"frame": "tool", "relative_to": 2}, "relative_to is 2, expected the name"),
        ):
            for task in (ik.FrameTask, ik.GazeTask):
                with pytest.raises(rbd.ArgumentError, match=message):
                    task(target=X if task is ik.FrameTask else X.p, **names)
    cases = {
        "no frame 'tol'.*did you mean 'tool'": [ik.FrameTask("tol", X)],
        "no frame 'tl'": [ik.GazeTask("tl", X.p)],
        "no frame 'bse'": [ik.FrameTask("tool", X, relative_to="bse")],
        r"tasks\[1\]: target of the PostureTask has shape \(2,\), expected \(7,\) \(nq\)": [
            good,
            ik.PostureTask([0.0, 0.0]),
        ],
        r"tasks\[0\]: weights of the PostureTask has shape \(3,\), expected \(7,\) \(nv\)": [
            ik.PostureTask(np.zeros(7), np.ones(3))
        ],
        "tasks is empty": [],
        r"tasks\[0\] is a Nonholonomic": [con.Nonholonomic(lambda m, q: jnp.zeros((1, 7)))],
    }
    for message, tasks in cases.items():
        with pytest.raises(rbd.ArgumentError, match=message):
            ik.inverse_kinematics(arm, tasks, q0)
        with pytest.raises(rbd.ArgumentError, match=message):
            ik.search_inverse_kinematics(arm, tasks, jax.random.key(0))
    base = next(f for f, b in zip(arm.frame_names, arm.frame_bodies) if b < 0)
    for fixed in (ik.FrameTask(base, X, relative_to=base), ik.GazeTask(base, X.p)):
        message = (
            rf"tasks\[1\]: frame '{base}' of .* is fixed to the world, expected a moving frame"
        )
        with pytest.raises(rbd.ArgumentError, match=message):
            ik.inverse_kinematics(arm, [good, fixed], q0)
    # One of the two frames moves.
    for task in (ik.FrameTask("tool", X, 1, base), ik.GazeTask(base, X.p, relative_to="tool")):
        assert ik_tasks.checked_tasks(arm, [task]) == (task,)
    small = zoo.small()
    zero = ik.PostureTask(np.zeros(small.nq))
    with pytest.raises(rbd.ArgumentError, match=r"tasks\[1\].*zero quaternion"):
        ik.inverse_kinematics(small, [ik.ComTask(X.p), zero], rbd.neutral(small))
    whole = ik.PostureTask(rbd.neutral(small), np.ones(small.nv))
    assert small.nv < small.nq
    assert ik_tasks.checked_tasks(small, [whole]) == (whole,)


@pytest.mark.gives_nan
@pytest.mark.cpu
def test_wrong_arguments(arm):
    q0 = 0.3 * arm.upper_position_limit
    tasks = [ik.FrameTask("tool", rbd.frame_placement(arm, q0, "tool"))]
    joint = arm.joint_names[2]
    outside = q0.at[2].set(arm.upper_position_limit[2] + 0.1)
    with pytest.raises(rbd.ArgumentError, match=f"q0 has .* for joint '{joint}', .* its limits"):
        ik.inverse_kinematics(arm, tasks, outside)
    with pytest.raises(rbd.ArgumentError, match=f"q0 has .* for joint '{joint}'"):
        ik.search_inverse_kinematics(arm, tasks, jax.random.key(0), q0=outside)
    lower, upper = (float(x[2]) for x in (arm.lower_position_limit, arm.upper_position_limit))
    hint = f"limits {lower} to {upper}, whose middle is {(lower + upper) / 2}; the neutral "
    hint += "configuration may be outside the limits"
    with pytest.raises(rbd.ArgumentError, match=re.escape(hint) + "$"):
        ik.inverse_kinematics(arm, tasks, outside)
    below = dataclasses.replace(
        arm, lower_position_limit=arm.lower_position_limit.at[2].set(-jnp.inf)
    )
    with pytest.raises(rbd.ArgumentError, match=f"limits -inf to {upper}; the neutral conf"):
        ik_solution._check_start(below, outside)

    def unchecked(limit, name):
        partly = dataclasses.replace(arm, **{name: limit})
        ik_solution._check_start(partly, outside)
        ik_solution.check_limits(partly)
        return limit

    for name in ("lower_position_limit", "upper_position_limit"):
        limit = getattr(arm, name)
        jax.jvp(functools.partial(unchecked, name=name), (limit,), (limit,))
    floating = zoo.build(["free_flyer", "revolute"], [-1, 0])
    high = rbd.neutral(floating).at[-1].set(floating.upper_position_limit[-1] + 1)
    with pytest.raises(rbd.ArgumentError, match="for joint 'j1', expected a value within"):
        ik_solution._check_start(floating, high)
    with pytest.raises(rbd.ArgumentError, match=r"q0 .*zero quaternion"):
        ik_solution._check_start(floating, jnp.zeros(floating.nq))
    with pytest.raises(rbd.ArgumentError, match=r"q0 is .*expected finite"):
        ik.inverse_kinematics(arm, tasks, q0.at[0].set(jnp.nan))
    with pytest.raises(rbd.ArgumentError, match=r"q0 has shape \(6,\), expected \(7,\)"):
        ik.inverse_kinematics(arm, tasks, q0[:6])
    crossed = dataclasses.replace(arm, lower_position_limit=arm.lower_position_limit.at[2].set(9.0))
    for function in (
        lambda: ik.inverse_kinematics(crossed, tasks, q0),
        lambda: ik.search_inverse_kinematics(crossed, tasks, jax.random.key(0)),
        lambda: ik.differential_inverse_kinematics(crossed, q0, tasks, 0.1),
    ):
        with pytest.raises(
            rbd.ArgumentError,
            match=f"limits of joint '{joint}' .* are 9.0 to {upper}, expected lower <= upper",
        ):
            function()
    unknown = dataclasses.replace(
        arm, upper_position_limit=arm.upper_position_limit.at[2].set(jnp.nan)
    )
    with pytest.raises(rbd.ArgumentError, match=f"are {lower} to nan, expected lower <= upper"):
        ik_solution.check_limits(unknown)
    # A joint that cannot move has equal limits.
    ik_solution.check_limits(
        dataclasses.replace(arm, lower_position_limit=arm.upper_position_limit)
    )
    assert jnp.all(jnp.isnan(solve(crossed, tasks, q0).q))
    # Traced: the nearest limit.
    assert within_limits(arm, solve(arm, tasks, outside).q)
    there = [ik.FrameTask("tool", rbd.frame_placement(arm, outside, "tool"))]
    assert within_limits(arm, solve(arm, there, outside).q)
    with pytest.raises(rbd.ArgumentError, match="no joint 'elbw'"):
        ik.inverse_kinematics(arm, tasks, q0, locked=["elbw"])
    with pytest.raises(rbd.ArgumentError, match="locked is 'elbow', expected a sequence"):
        ik.inverse_kinematics(arm, tasks, q0, locked="elbow")
    with pytest.raises(rbd.ArgumentError, match=r"tolerance is 0.*above 0"):
        ik.inverse_kinematics(arm, tasks, q0, tolerance=0.0)
    assert jnp.isnan(jax.jit(lambda x: ik_solution._tolerance(arm, x))(0.0))
    with pytest.raises(rbd.ArgumentError, match="max_iterations is 0, expected an integer"):
        ik.inverse_kinematics(arm, tasks, q0, max_iterations=0)
    for name in ("max_iterations", "seeds", "parallel"):
        with pytest.raises(rbd.ArgumentError, match=f"{name} is 0, expected an integer"):
            ik.search_inverse_kinematics(arm, tasks, jax.random.key(0), **{name: 0})
    for name, x in (("dt", 0.0), ("gain", 2.0), ("damping", 0.0)):
        with pytest.raises(rbd.ArgumentError, match=f"{name} is {x}"):
            ik.differential_inverse_kinematics(arm, q0, tasks, **{"dt": 0.1, name: x})
    slow = dataclasses.replace(arm, velocity_limit=-arm.velocity_limit)
    with pytest.raises(rbd.ArgumentError, match="velocity_limit"):
        ik.differential_inverse_kinematics(slow, q0, tasks, 0.1)


@pytest.mark.cpu
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_start_is_within_its_limits_to_rounding(dtype):
    """Eight eps are moved to the limit, with and without jit; the next float is not.

    The other limit of each joint is a smaller number.
    """
    limits = {"lower_position_limit": jnp.array([-0.5, -3.0, -0.125])}
    limits["upper_position_limit"] = jnp.array([3.0, 0.5, 0.25])
    model = dataclasses.replace(planar(), **limits).astype(dtype)
    step = 8 * np.finfo(dtype).eps
    q0 = jnp.asarray([3.0 * (1 + step), -3.0 * (1 + step), 0.25 + step], dtype)
    assert q0[0] > 3
    ik_solution._check_start(model, q0)
    limits = solver.Box(position_limits(model), np.zeros(3, bool))
    np.testing.assert_array_equal(limits.clip(model, q0), jnp.asarray([3.0, -3.0, 0.25], dtype))
    locked = solver.Box(position_limits(model), np.array([True, False, False]))
    np.testing.assert_array_equal(locked.clip(model, q0), [q0[0], -3.0, 0.25])
    messages = "q0 has 3.0.* for joint 'j0'", "q0 has -3.0.* for joint 'j1'", "q0 has 0.2.* 'j2'"
    for i, message in enumerate(messages):
        beyond = np.array(q0)
        beyond[i] = np.nextafter(beyond[i], np.sign(beyond[i]) * beyond.dtype.type(9))
        with pytest.raises(rbd.ArgumentError, match=message):
            ik_solution._check_start(model, jnp.asarray(beyond))


# ---------------------------------------------------------------------------------------- sweep

SWEEP = {
    "arm7": (None, "tool", ()),
    "panda": ("panda_description/urdf/panda.urdf", "panda_hand", ("panda_finger_joint1",)),
    "ur10": ("ur_description/urdf/ur10_robot.urdf", "tool0", ()),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SWEEP)
def test_random_targets_are_reached(name):
    """2,000 random targets, at most 16 starts, 1 mm and 0.1 degree, limits exact."""
    file, frame, locked = SWEEP[name]
    if file and real_robots.ROOT is None:
        pytest.skip("example-robot-data is not installed")
    model = rbd.load_robot(name) if file is None else rbd.load_urdf(real_robots.path_of(file))

    @jax.jit
    def found(keys):
        def one(key):
            draw, start = jax.random.split(key)
            X = rbd.frame_placement(model, rbd.random_configuration(model, draw), frame)
            task = ik.FrameTask(frame, X)
            return ik.search_inverse_kinematics(model, [task], start, locked=locked)

        return jax.lax.map(one, keys)

    solution = found(jax.random.split(jax.random.key(1), 2000))
    reached = (solution.errors.linear[:, 0] < 1e-3) & (
        solution.errors.angular[:, 0] < np.radians(0.1)
    )
    assert jnp.mean(reached) >= 0.999
    assert within_limits(model, solution.q)


# ---------------------------------------------------------------------------------------- guide


@pytest.mark.documents
def test_the_examples_of_the_guide_run():
    names = {}
    assert pages.run("inverse_kinematics.md", names) == 2
