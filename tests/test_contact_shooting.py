"""Contact steps as dynamics of optimal control, and trajectories that find their contacts."""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from benchmarks.studies import contact_motions, contact_mpc, legged_motions
from jaxrbd import contact, optimal_control as oc
from jaxrbd.actuators import PD
from jaxrbd.collision import PlacedShape, Sphere
from jaxrbd.errors import ArgumentError
from jaxrbd.joints import Planar, Prismatic, Revolute
from jaxrbd.model import JointSpec, Link, link_inertia
from support.zoo import close

DT = 0.02
BALL = link_inertia(1.0, (0, 0, 0), 0.01 * np.eye(3))


@functools.cache
def box():
    """Dynamics of a box in the x-z plane, with two corners that may touch the ground.

    A weak servo holds it, and a load rests on each corner.
    """
    upright = np.eye(4)
    upright[:3, :3] = [[1, 0, 0], [0, 0, -1], [0, 1, 0]]
    model = rbd.build_model(
        [Link("box", BALL)], [JointSpec("plane", Planar(), None, "box", upright)]
    )
    corners = np.array([[-0.1, -0.1, 0.0], [0.1, -0.1, 0.0]])
    scene = contact.Scene(["box"] * 2, 0.0, corners, material=contact.Material(friction=0.5))
    control = PD(np.array([2.0, 3.0, 1.0]), np.array([0.1, 0.2, 0.1]), np.full(3, np.inf))
    servo = contact.Servo(control, np.array([0.1, 0.2, 0.3]))
    return oc.contact_shooting(model, scene, DT, dofs=(2, 0), servo=servo, load=2.0)


@functools.cache
def rail():
    """A finger and a puck on one rail, with controls of the finger; a term draws it to the puck."""
    slide = Prismatic((1.0, 0.0, 0.0))
    model = rbd.build_model(
        [Link("finger", BALL), Link("puck", BALL)],
        [
            JointSpec("push", slide, None, "finger"),
            JointSpec("rail", slide, None, "puck", friction=2.0),
        ],
    ).with_dissipation()
    tip, puck = (PlacedShape(Sphere(0.05), name) for name in ("finger", "puck"))
    scene = contact.Scene((), pairs=contact.collision_pairs([(tip, puck)]))
    dynamics = oc.contact_shooting(model, scene, 0.04, dofs=[0])

    def cost(t, x, u, goal):
        return jnp.concatenate([0.02 * u, 0.1 * (x[0][:1] - x[0][1:] + 0.1)])

    def last(x, goal):
        return jnp.concatenate([10 * (x[0][1:] - goal), x[1]])

    return oc.Problem(oc.state_space(model), dynamics, cost, last)


@jax.jit
def step_and_matrices(dynamics, q, v, u, h):
    """The state after a step, its matrix [A B], and the matrix of central differences."""
    space = oc.state_space(dynamics.model)
    n, m = space.size, len(u)
    end = dynamics(0, (q, v), u, None)

    def after(change):
        x = space.retract((q, v), change[:n])
        return space.difference(end, dynamics(0, x, u + change[n:], None))

    changes = h * jnp.eye(n + m)
    differences = jax.vmap(lambda c: (after(c) - after(-c)) / (2 * h), out_axes=1)(changes)
    return end, jax.jacfwd(after)(jnp.zeros(n + m)), differences


STATES = {  # the height of the centre, the angle, the velocities and the smoothing
    "sticks": (0.0999, 0.0001, (0.0, 0.0, 0.0), 0.0),
    "slides": (0.0999, 0.0001, (1.0, -0.2, 0.3), 0.0),
    "lands on a corner": (0.11, 0.3, (0.5, -1.0, 0.0), 0.0),
    "apart": (0.3, 0.2, (0.5, 0.1, 0.3), 0.0),
    "relaxed": (0.13, 0.2, (0.5, -0.1, 0.3), 0.1),
}


@pytest.mark.parametrize("name", STATES)
def test_the_matrices_are_those_of_central_differences(name):
    """The linearisation of a stage is right at 1e-6, with and without smoothing."""
    height, angle, v, smoothing = STATES[name]
    q, u = jnp.array([0.2, height, angle]), jnp.array([0.1, 0.5])
    dynamics = box().with_smoothing(smoothing)
    _, AB, differences = step_and_matrices(dynamics, q, jnp.array(v), u, 1e-6)
    close(AB, differences, 1e-6)
    # A contact has an effect unless the box is apart.
    assert (abs(float(AB[4, 4]) - 1) > 0.05) == (name != "apart")


def test_the_effort_of_the_servo_limits_the_sum_of_servo_and_control():
    """A joint at its limit has a constant force, so its control has no effect; others are free."""
    given: Any = box().servo

    def limited(*effort):
        control = PD(given.control.stiffness, given.control.damping, effort)
        return dataclasses.replace(box(), servo=given._replace(control=control))

    q, v, u = jnp.array([0.2, 0.3, 0.2]), jnp.array([0.5, 0.1, 0.3]), jnp.array([0.3, 0.5])
    tau = jnp.array([0.5, 0.0, 0.3])
    dynamics = limited(5.0, np.inf, 0.15)  # only the angle reaches its limit
    _, AB, differences = step_and_matrices(dynamics, q, v, u, 1e-6)
    close(AB, differences, 1e-6)
    assert np.all(AB[:, 6] == 0)
    assert np.max(np.abs(AB[:, 7])) > 1e-3
    found = dynamics.step((q, v), u)
    close(found.joint_impulse.servo[2], DT * 0.15, 1e-15)
    close(dynamics.options().joint_forces(found, tau)[2], 0.15, 1e-13)

    # Below the limits, the step is the step without limits.
    below, free = (step_and_matrices(x, q, v, u, 1e-6) for x in (limited(5.0, 5.0, 5.0), box()))
    close(np.concatenate(below[0]), np.concatenate(free[0]), 1e-12)
    close(below[1], free[1], 1e-10)
    with_limit, without = (
        x.options().joint_forces(x.step((q, v), u), tau) for x in (limited(5.0, 5.0, 5.0), box())
    )
    close(with_limit, without, 1e-10)


def test_a_relaxed_step_is_a_contact_step_with_a_margin_and_a_compliance():
    dynamics, s = box(), 0.1
    q, v, u = jnp.array([0.2, 0.13, 0.2]), jnp.array([0.5, -0.1, 0.3]), jnp.array([0.1, 0.5])
    found, _, _ = step_and_matrices(dynamics.with_smoothing(s), q, v, u, 1e-6)
    material = dataclasses.replace(dynamics.scene.material, margin=np.asarray(s))
    scene = dataclasses.replace(dynamics.scene, material=material)
    weight = 2.0 * 9.81 * np.mean(contact.inverse_inertias(dynamics.model, scene).contacts)
    options = {"regularisation": 1e-3 + s / (weight * DT * (DT + 0.02)), "servo": dynamics.servo}
    tau = jnp.array([0.5, 0.0, 0.1])
    expected = contact.contact_step(dynamics.model, scene, q, v, tau, DT, **options)
    close(found[0], expected.q, 1e-12)
    close(found[1], expected.v, 1e-12)


@pytest.mark.slow
def test_the_smoothing_is_a_parameter_that_can_be_differentiated():
    q, v, u = jnp.array([0.2, 0.13, 0.2]), jnp.array([0.5, -0.1, 0.3]), jnp.array([0.1, 0.5])

    dynamics = box()

    @jax.jit
    def velocity(s):
        return eqx.tree_at(lambda d: d.smoothing, dynamics, s)(0, (q, v), u, None)[1]

    slope = jax.jit(jax.jacfwd(velocity))(0.1)
    assert jnp.max(jnp.abs(slope)) > 0.1
    close(slope, (velocity(0.1 + 1e-6) - velocity(0.1 - 1e-6)) / 2e-6, 1e-6)


@pytest.mark.slow
def test_second_derivatives():
    """A stage with the exact Hessian: the derivative of the matrices."""
    dynamics = box().with_smoothing(0.1)
    q, v, u = jnp.array([0.2, 0.13, 0.2]), jnp.array([0.5, -0.1, 0.3]), jnp.array([0.1, 0.5])

    def by_force(u):
        return jax.jacfwd(lambda u: dynamics(0, (q, v), u, None)[1])(u)

    second = jax.jit(jax.jacfwd(by_force))(u)
    plus, minus = (jax.jit(by_force)(u + h * jnp.array([0.0, 1.0])) for h in (1e-5, -1e-5))
    close(second[:, :, 1], (plus - minus) / 2e-5, 1e-5)
    reverse = jax.jit(jax.jacrev(lambda u: dynamics(0, (q, v), u, None)[1]))(u)
    close(reverse, by_force(u), 1e-9)


@pytest.mark.slow
def test_a_finger_finds_the_puck_that_it_pushes():
    """Without contact in the guess; rigid contact alone finds no contact."""
    problem, goal = rail(), jnp.array([0.3])
    x0 = jnp.array([-0.3, 0.0]), jnp.zeros(2)
    guesses = 0.1 * np.random.default_rng(0).normal(size=(3, 25, 1))
    for guess in guesses:
        found = oc.solve_contacts(problem, x0, goal, guess)
        assert abs(found.solution.xs[0][-1, 1] - 0.3) < 5e-3
        assert found.solution.residuals.defects < 1e-9
        assert found.replay_error < 1e-6
        assert 0 < found.penetration < 1e-4
        assert found.complementarity < 1e-4
        assert found.solution.us.shape == (25, 1)
        assert found.cost[-1] == found.solution.cost
        close(found.joint_forces[:, :1], found.solution.us, 1e-12)
    alone = oc.solve_contacts(problem, x0, goal, guesses[0], smoothing=[0.0])
    assert abs(alone.solution.xs[0][-1, 1]) < 1e-6


@pytest.mark.parametrize("frames", [(), ("wheel",)])
def test_a_load_without_contacts_has_no_effect(frames):
    """Also for a contact on the axis of the only joint, which cannot move."""
    axle = JointSpec("axle", Revolute((0.0, 0.0, 1.0)), None, "wheel")
    model = rbd.build_model([Link("wheel", BALL)], [axle])
    x, u = (jnp.array([0.1]), jnp.array([0.2])), jnp.ones(1)
    loaded, free = (
        oc.contact_shooting(model, contact.Scene(frames), 0.04, smoothing=0.1, load=load)(
            0, x, u, None
        )
        for load in (2.0, None)
    )
    np.testing.assert_array_equal(np.concatenate(loaded), np.concatenate(free))
    assert np.all(np.isfinite(np.concatenate(loaded)))


def test_bad_input_is_named():
    problem, dynamics = rail(), box()
    model, scene = dynamics.model, dynamics.scene
    x0, goal, us = (jnp.array([-0.3, 0.0]), jnp.zeros(2)), jnp.array([0.3]), jnp.zeros((5, 1))
    for options, words in (
        ({"dt": 0.0}, "dt"),
        ({"smoothing": -0.1}, "smoothing"),
        ({"regularisation": 0.0}, "regularisation"),
        ({"recovery": -1.0}, "recovery"),
        ({"load": 0.0}, "load is 0.0, expected a finite number above 0"),
        ({"servo": 3}, "servo is 'int', expected a Servo"),
        ({"dofs": (0, 0)}, "dofs"),
    ):
        with pytest.raises(ArgumentError, match=words):
            oc.contact_shooting(model, scene, **{"dt": 0.04, **options})
    with pytest.raises(ArgumentError, match="scene"):
        oc.contact_shooting(model, "ground", 0.04)  # pyright: ignore[reportArgumentType]

    def refused(words, guess: Any = us, x0=x0, problem=problem, **options):
        with pytest.raises(ArgumentError, match=words):
            oc.solve_contacts(problem, x0, goal, guess, **options)

    for lengths in ([], [0.1, 0.05], [0.1, 0.2, 0.0], [0.1, 0.1, 0.0], [np.nan, 0.0], [[0.0]]):
        refused("smoothing", smoothing=lengths)
    with pytest.raises(ArgumentError, match="smoothing is traced"):
        jax.jit(lambda s: oc.solve_contacts(problem, x0, goal, us, smoothing=s))(jnp.zeros(1))
    with pytest.raises(ArgumentError, match="first argument is None, expected the Model"):
        oc.contact_shooting(None, dataclasses.replace(scene, inverse_inertia=None), 0.04)  # pyright: ignore[reportArgumentType]
    for depth, expected in (
        ("a", "depth is 'a'"),
        (np.nan, "depth is nan"),
        (np.zeros(2), r"\(2,\)"),
    ):
        refused(expected, depth=depth)
    refused("controls of guess", guess=jnp.zeros(5))
    refused("guess of shape", guess=jnp.zeros((5, 3)))
    refused("x0 penetrates", x0=(jnp.array([-0.09, 0.0]), jnp.zeros(2)))
    qs = jnp.tile(x0[0], (6, 1)).at[3, 0].set(-0.05)
    refused("guess penetrates: contact 0 .* 0.05 m in state 3", guess=((qs, 0 * qs), us))
    refused("states of guess", guess=((qs[1:] * 10, 0 * qs[1:]), us))
    other = oc.Problem(problem.space, lambda t, x, u, p: x, problem.cost)
    refused("contact_shooting", problem=other)


@pytest.mark.slow
def test_single_precision():
    """A motion in float32 has the dtype of the model."""
    problem: Any = rail()
    model = problem.dynamics.model.astype("float32")
    dynamics = dataclasses.replace(problem.dynamics, model=model)
    problem = oc.Problem(oc.state_space(model), dynamics, problem.cost, problem.terminal_cost)
    x0, goal, guess = jax.tree.map(
        lambda x: x.astype("float32"),
        ((jnp.array([-0.3, 0.0]), jnp.zeros(2)), jnp.array([0.3]), jnp.zeros((25, 1))),
    )
    found = oc.solve_contacts(problem, x0, goal, guess)
    assert found.solution.us.dtype == found.complementarity.dtype == jnp.float32
    assert abs(found.solution.xs[0][-1, 1] - 0.3) < 5e-3


@pytest.mark.slow
def test_a_controller_finds_a_trot(monkeypatch):
    """Without a schedule: diagonal feet swing together, at the commanded velocity.

    The joint forces of the plans reach the limits of the robot, and are within them.
    """
    forces, next_plan = [], contact_mpc.next_plan

    def recorded_plan(x, command, plan):
        plan = next_plan(x, command, plan)
        forces.append(np.abs(contact_mpc.joint_forces(plan)))
        return plan

    monkeypatch.setattr(contact_mpc, "next_plan", recorded_plan)
    states, _, fell = contact_mpc.walk(4.0, (0.4, 0.0, 0.0))
    effort = contact_mpc.robot().model.effort_limit[6:]
    assert np.max(np.stack(forces) / effort) == pytest.approx(1, abs=1e-9)
    q, v = (np.stack(x) for x in zip(*states))
    model = contact_mpc.robot().model
    heights = jax.jit(jax.vmap(lambda q: contact_mpc.heights(rbd.forward_kinematics(model, q))))
    assert not fell
    assert abs(np.mean(v[40:, 0]) - 0.4) < 0.06
    together = np.corrcoef(np.asarray(heights(q[40:])).T)
    assert min(together[0, 3], together[1, 2]) > 0.3 > 0 > together[0, 1]
    assert np.ptp(q[40:, 2]) < 0.05


@pytest.mark.slow
def test_a_quadruped_stands_up():
    """It lies on its trunk, and no schedule states a contact; also with half the time step."""
    motion = legged_motions.motions()["stand_up"]
    problem, half = motion.problem(motion.dt), motion.problem(motion.dt / 2)
    x0, goal, guess = motion.start(np.random.default_rng(7))
    found = oc.solve_contacts(problem, x0, goal, guess, motion.smoothing, motion.iterations)
    solution, last = found.solution, jax.tree.map(lambda x: x[-1], found.solution.xs)
    assert contact_motions.largest_error(motion, solution.xs, goal) < 5e-3
    halved, _ = contact_motions.half_steps(half, x0, solution)
    assert contact_motions.largest_error(motion, halved, goal) < 0.02
    assert solution.residuals.defects < 1e-9
    part = legged_motions.PART
    assert contact_motions.largest_effort(problem, part, found.joint_forces) < part + 1e-9
    assert found.penetration < 0.01
    assert x0[0][2] < 0.07
    assert last[0][2] > 0.3
    assert np.max(np.abs(last[1])) < 0.5  # it stands still
