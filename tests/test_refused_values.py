"""Values that functions of several rooms refuse, by name."""

import dataclasses
import types

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import (
    actuators,
    algorithms,
    collision,
    conformance,
    constraints,
    contact,
    envs,
    frames,
    identification,
    inertial_parameters,
    integrators,
    inverse_kinematics as ik,
    io,
    joints,
    learning,
    optimal_control,
    padded,
    passive,
    robots,
    se3,
    sensors,
    sharding,
    so3,
    spatial,
    tendons,
    view,
)
from jaxrbd.learning.networks import Layer
from jaxrbd.model.geometry import LinkGeometry
from jaxrbd.spatial import Pose
from support import zoo

ARM = rbd.load_robot("double_pendulum")
SAMPLES = np.zeros((30, ARM.nv))
EMPTY_REPORT = conformance.Report(
    "jaxrbd", conformance.ALL_TREES, conformance.CONDITIONS, conformance.QUANTITIES, order=1
)
Q = np.zeros(ARM.nq)
Q5 = jnp.zeros(5)
MESH = jax.make_mesh((1,), ("devices",))
LABELS = {"body": "a", "base": "b", "frame": "b"}


def with_color(red):
    (shape,) = ARM.geometry.visuals["base"]
    shape = dataclasses.replace(shape, color=(red, 0, 0, 1))
    return dataclasses.replace(ARM, geometry=LinkGeometry({"base": (shape,)}))


def started(episode_steps):
    env = envs.CartPoleSwingUp(episode_steps=episode_steps)
    return env.reset(env.default_params(), jax.random.key(0))


def stepped_batch():
    state, params = started(100), CART_POLE.default_params()
    keys = jax.random.split(state.key, 3)
    return CART_POLE.step(params, state._replace(key=keys), jnp.zeros(1))


def fitted(max_steps):
    return identification.identify_consistent_inertia(
        ARM, SAMPLES, SAMPLES, SAMPLES, SAMPLES, max_steps=max_steps
    )


def fitted_parameters(measurements):
    return identification.identify_parameters(lambda p: p * jnp.ones(3), 1.0, measurements)


def shooting(**options):
    return optimal_control.contact_shooting(ARM, contact.Scene((TIP,)), **options)


def servo_shooting(*given, **fields):
    servo = contact.Servo(actuators.PD(*np.ones((3, 2))), *given, **fields)
    return shooting(dt=0.01, servo=servo)


def tendon_servo_step(tendons=None, **fields):
    one = {name: np.ones(1) for name in ("stiffness", "damping", "length", "rate")}
    given = one | {"force_range": np.array([[-1.0, 1.0]])} | fields
    servo = contact.TendonServo((ROPE,) if tendons is None else tendons, **given)
    joints = actuators.PD(*np.zeros((2, 2)))
    return contact_stepped(servo=contact.Servo(joints, Q, tendons=servo))


def shot(x, dt=0.01):
    torques, step = optimal_control.joint_torques(ARM), integrators.semi_implicit_euler
    return optimal_control.shooting_step(ARM, torques, step, dt)(0, x, Q, None)


def constrained(**options):
    point = constraints.point(None, TIP)
    return constraints.constrained_dynamics(ARM, Q, Q, Q, [point], **options)


def activation_time(**times):
    given = {"rise": [0.1], "fall": [0.1], "width": [0.0]} | times
    return actuators.activation_time(*np.ones((2, 1)), **{k: np.array(x) for k, x in given.items()})


def contact_stepped(**options):
    return contact.contact_step(ARM, contact.Scene((TIP,)), Q, Q, Q, 0.01, **options)


def contacts_solved(q=Q, v=Q, us=None, frames=ARM.frame_names[-1:], **options):
    step = optimal_control.contact_shooting(ARM, contact.Scene(frames), dt=0.01)
    given = optimal_control.Problem(
        optimal_control.state_space(ARM), step, lambda t, x, u, p: u, lambda x, p: x[0]
    )
    us = np.zeros((2, ARM.nv)) if us is None else us
    return optimal_control.solve_contacts(given, (q, v), None, us, **options)


def scanned(frame, pattern):
    return sensors.height_scan(ARM, Q, contact.Plane(), frame, pattern)


def problem(**options):
    functions = {"dynamics": lambda t, x, u, p: x + u, "cost": lambda t, x, u, p: u}
    return optimal_control.Problem(optimal_control.vector_space(2), **(functions | options))


def solved(p=None, guess=SAMPLES, tolerance=None, mu=0.1, iterations=None, **options):
    return optimal_control.solve(
        problem(**options), Q, p, guess, iterations=iterations, tolerance=tolerance, mu=mu
    )


def warm_start():
    return optimal_control.first_solution(problem(), Q, None, SAMPLES)


def rollout(steps, inputs=None):
    return rbd.integrators.rollout(lambda *x: x[:1], (np.zeros(1),), inputs, steps)


def identified(**options):
    samples = SAMPLES, SAMPLES, SAMPLES, SAMPLES
    return identification.identify_inertia(ARM, *samples, **options)


def regulator(x0=(0.0, 0.0), riccati="sequential", **arrays):
    """A regulator of three stages, with two states and two controls."""
    one = np.tile(np.eye(2), (3, 1, 1))
    given = {"A": one, "B": one, "c": np.zeros((3, 2)), "Q": np.tile(np.eye(2), (4, 1, 1))}
    given |= {"R": one, "S": 0 * one, "q": np.zeros((4, 2)), "r": np.zeros((3, 2))}
    return optimal_control.lqr(optimal_control.LqrStages(**(given | arrays)), x0, riccati)


def moved(dynamics=lambda q, v, z=None: v, q=(0.0, 0.0), dt=0.1, z=None):
    q = np.asarray(q) if isinstance(q, tuple) else q
    return rbd.integrators.semi_implicit_euler(ARM, dynamics, q, np.zeros(2), dt, z)


def derivatives_of(integrator, dt=0.1):
    return integrators.step_derivatives(ARM, integrator, Q, Q, Q, dt)


def trained(network=None, **options):
    apg = learning.Apg(batch=2, horizon=2, hidden=(4,), updates=1, policy_network=network)
    return learning.Training(apg, CART_POLE, **options)


def batch_of(n, axes):
    batch = envs.vectorize(CART_POLE, axes)
    return lambda params: batch.reset(params, jax.random.split(KEY, n))


def stepped(action):
    params = CART_POLE.default_params()
    return CART_POLE.step(params, CART_POLE.reset(params, KEY), action)


def observed(observation):
    class Other(envs.CartPoleSwingUp):
        def observe(self, params, physics, key):
            return observation

    return Other().reset(CART_POLE.default_params(), KEY)


def reset_with(**changes):
    return CART_POLE.reset(CART_POLE.default_params()._replace(**changes), KEY)


def differential(q=Q, dt=0.01, **options):
    tasks = [ik.PostureTask(Q + 0.1)]
    return ik.differential_inverse_kinematics(ARM, q, tasks, dt, **options)


def solved_tasks(*tasks):
    return ik.inverse_kinematics(ARM, tasks, Q)


def randomised(name, distribution):
    return envs.randomise(CART_POLE.default_params(), {name: distribution}, KEY, 2)


def pushed(pushes):
    env = envs.QuadrupedTrot()
    params = env.default_params()._replace(pushes=jnp.array(pushes))
    shapes = jax.eval_shape(env.initial, params, KEY)
    physics = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return env.advance(params, physics, np.zeros(env.action_size), KEY)


def locked_sphere():
    ball = zoo.build(["spherical"], [-1])
    return rbd.model.lock_joints(ball, {ball.joint_names[0]: np.zeros(4)})


TIP = ARM.frame_names[-1]
SEVERAL = jax.tree.map(lambda x: jnp.stack([x] * 3), ARM)
KEY = jax.random.key(0)
ORIGIN = Pose(np.eye(3), np.zeros(3))
CART_POLE = envs.CartPoleSwingUp()
SCALE = envs.Scale(0.9, 1.1)
MUSCLES = actuators.Muscles([1.0], [[1.0, 2.0]])
FILTER = actuators.Filter([0.1, 0.1])
GAINS = actuators.PD(*np.ones((2, 2)))
BALL_JOINT = zoo.build(["spherical"], [-1])
ROPE = tendons.FixedTendon("rope", {ARM.joint_names[0]: 1.0})
BALL = collision.PlacedShape(collision.Sphere(0.1), None, np.zeros(3))
STRETCHED = Pose(2 * np.eye(3)[None], np.zeros((1, 3)))
PAST = actuators.Delay(1.0, 2).init((np.zeros(2), np.zeros(3)))
TWO_NUMBERS = optimal_control.product_space(*[optimal_control.vector_space(1)] * 2)
SKEWED = [[1.0, 9.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
MOTOR = (
    "<mujoco><worldbody><body><joint name='a'/><geom size='1'/></body></worldbody>"
    "<actuator><motor joint='a' ctrlrange='-1 1'/></actuator></mujoco>"
)
REFUSED = {
    "is fixed to the body of '": lambda: ik.inverse_kinematics(
        ARM, [ik.FrameTask(TIP, ORIGIN, relative_to=ARM.body_names[-1])], Q
    ),
    "mu is None": lambda: solved(mu=None),
    "spacing is [1, [2]]": lambda: contact.HeightGrid(np.zeros((5, 5)), [1, [2]]),
    "length is None, expected an array": lambda: MUSCLES.forces(None, [1.0]),
    "rate is 'a', expected an array": lambda: MUSCLES.forces([1.0], "a"),
    "frame is None, expected the name or the index": lambda: scanned(None, [[0.0, 0.0]]),
    "pattern has dtype complex128, expected real": lambda: scanned(TIP, np.array([[1j, 0]])),
    "name is 3, expected the name of a tendon": lambda: tendons.SpatialTendon(3, ["a", "b"]),
    "name is 4, expected the name of a tendon": lambda: tendons.RotationAngle(4, "ball"),
    "name is 5, expected the name of a tendon": lambda: tendons.FixedTendon(5, {"a": 1.0}),
    "x0 is [nan nan] in state 0, expected finite": lambda: contacts_solved(Q * np.nan),
    "the velocity of x0 is [nan nan], expected finite": lambda: contacts_solved(v=Q * np.nan),
    "the controls of guess is [[nan nan]": lambda: contacts_solved(us=np.full((2, 2), np.nan)),
    "the velocities of guess is [[nan nan]": lambda: contacts_solved(
        us=((np.zeros((3, 2)), np.full((3, 2), np.nan)), np.zeros((2, 2))), depth=10.0
    ),
    "guess is [nan nan] in state 0, expected finite": lambda: contacts_solved(
        us=((np.full((3, 2), np.nan), np.zeros((3, 2))), np.zeros((2, 2))), frames=()
    ),
    "the states of guess are PyTreeDef(*)": lambda: contacts_solved(
        us=(3.0, np.zeros((2, 2))), depth=10.0
    ),
    "iterations is None, expected an integer": lambda: contacts_solved(iterations=None),
    "u has shape (2,), expected (1,)": lambda: shooting(dt=0.01, dofs=[1]).step((Q, Q), [1, 2]),
    "u is None, expected an array": lambda: optimal_control.joint_torques(ARM)(0, Q, Q, None, 0),
    "x is None, expected a sequence of q and v": lambda: shooting(dt=0.01).step(None, Q),
    "x has 3 entries, expected q and v": lambda: shooting(dt=0.01).step((Q, Q, Q), Q),
    "pairs is Material(": lambda: contact.Scene.from_shapes((), contact.Material()),
    "pairs[0] is 3, expected a sequence of two shapes": lambda: contact.collision_pairs([3]),
    "pairs[0] has 3 entries, expected two shapes": lambda: contact.collision_pairs([(1, 2, 3)]),
    "tolerance has shape (2,), expected a number": lambda: solved(tolerance=[1.0, 2.0]),
    "mu is inf, expected a finite number above 0": lambda: solved(mu=np.inf),
    "target.R of the FrameTask has shape (4, 3, 3), expected (3, 3); batch": lambda: solved_tasks(
        jax.vmap(lambda p: ik.FrameTask.position(TIP, p))(jnp.ones((4, 3)))
    ),
    "axis of the GazeTask has shape (4, 3), expected (3,); batch": lambda: solved_tasks(
        eqx.tree_at(lambda x: x.axis, ik.GazeTask(TIP, np.ones(3)), np.ones((4, 3)))
    ),
    "target of the ComTask has shape (3, 3), expected (3,); batch": lambda: solved_tasks(
        jax.vmap(ik.ComTask)(jnp.ones((3, 3)))
    ),
    "margin of the Clearance has shape (2, 0), expected (0,); batch": lambda: solved_tasks(
        eqx.tree_at(
            lambda x: x.margin, ik.Clearance(collision.DistancePairs((), ())), np.ones((2, 0))
        )
    ),
    "x0[0] has the zero quaternion for joint 'j0'": lambda: optimal_control.solve(
        optimal_control.Problem(
            optimal_control.state_space(BALL_JOINT), lambda t, x, u, p: x, lambda t, x, u, p: u
        ),
        (np.zeros(4), np.zeros(3)),
        None,
        np.zeros((2, 3)),
    ),
    "riccati is array(['a', 'b']": lambda: regulator(riccati=np.array(["a", "b"])),
    "mu has dtype bool, expected real numbers": lambda: solved(mu=True),
    "tolerance has dtype bool, expected real numbers": lambda: solved(tolerance=True),
    "acceleration_limit has dtype bool, expected real numbers": lambda: differential(
        acceleration_limit=True, previous_velocity=Q
    ),
    "is twice in locked, expected each joint once": lambda: differential(
        locked=[ARM.joint_names[0]] * 2
    ),
    "dt is inf, expected a finite number above 0": lambda: differential(dt=np.inf),
    "damping is inf, expected": lambda: differential(damping=np.inf),
    "q is [nan": lambda: differential(q=np.full(ARM.nq, np.nan)),
    "previous_velocity is [nan": lambda: differential(
        acceleration_limit=1.0, previous_velocity=np.full(ARM.nv, np.nan)
    ),
    "restart is 'no', expected True or False": lambda: ik.inverse_kinematics(
        ARM, [ik.PostureTask(Q)], Q, restart="no"
    ),
    "params.weights is None, expected a dict": lambda: reset_with(weights=None),
    "params.weights['angle'] is 'str', expected a number": lambda: reset_with(
        weights=dict.fromkeys(CART_POLE.default_params().weights, "a")
    ),
    "params.force is 'list', expected an array": lambda: reset_with(force=[1.0]),
    "q is a Kinematics with q of shape (2,) and positions of bodies of shape (2, 3), expected": (
        lambda: algorithms.com_jacobian(zoo.chain(3), rbd.forward_kinematics(ARM, Q))
    ),
    "mass is -1.0, expected finite": lambda: ARM.with_mass(ARM.body_names[0], -1.0),
    "mass is nan": lambda: ARM.with_mass(ARM.body_names[0], np.nan),
    "mass is inf, expected finite": lambda: ARM.with_payload(TIP, np.inf),
    "expected a symmetric matrix": lambda: ARM.with_payload(TIP, 1.0, inertia_com=SKEWED),
    "on is 'off', expected True or False": lambda: ARM.with_dissipation("off"),
    "has a zero quaternion": locked_sphere,
    "prefix is None, expected a text": lambda: rbd.model.append_model(ARM, ARM, prefix=None),
    "poses is ['a'], expected a mapping": lambda: rbd.model.place_frames(ARM, ["a"]),
    "measured is array([0.+1.j": lambda: fitted_parameters(np.ones(3) * 1j),
    "start has no entries": lambda: identification.identify_parameters(
        lambda p: jnp.ones(3), jnp.zeros(0), np.ones(3)
    ),
    "stiffness is [inf], expected finite, 0 or more": lambda: tendons.Tendons(
        [ROPE], stiffness=[np.inf]
    ),
    "force_range[:, 1] is [-inf], expected above": lambda: actuators.AffineActuators(
        ARM.joint_names[:1], force_range=[[-np.inf, -np.inf]]
    ),
    "rest[:, 0] is [inf]": lambda: tendons.Tendons([ROPE], rest=[[np.inf, np.inf]]),
    "pairs is an array of shape (), expected DistancePairs": lambda: collision.robot_distances(
        ARM, Q, pairs=3
    ),
    "disabled has None, expected pairs": lambda: collision.pairs_of(ARM, disabled=[None]),
    "strict is 'no', expected True or False": lambda: envs.MjcfWalk(MOTOR, strict="no"),
    "mimic is 'no', expected True or False": lambda: io.load_mjcf(MOTOR, mimic="no"),
    "rough is 'no', expected True or False": lambda: envs.QuadrupedStand(
        rough="no"
    ).default_params(),
    "follows_gait is 'no', expected True or False": lambda: envs.MjcfWalk(MOTOR, follows_gait="no"),
    "implicit is 'no', expected True or False": lambda: envs.MjcfTask(
        MOTOR, {"alive": 1.0}, implicit="no"
    ),
    "disabled has {'a'}": lambda: collision.pairs_of(ARM, disabled=[{"a"}]),
    "members has (0.0, 1.0)": lambda: collision.DistancePairs((BALL, BALL), ((0.0, 1.0),)),
    "shapes[0] is Sphere": lambda: collision.DistancePairs((BALL.shape, BALL), ((0, 1),)),
    "parts is 5, expected a mapping": lambda: io.save_model(ARM, "unused.jaxrbd", 5),
    "command[1] has shape (3,), expected (2,)": lambda: actuators.Delay([1.0, 2.0], 2).push(
        PAST, (np.zeros(2), np.zeros(3))
    ),
    "height is '3', expected an integer": lambda: view.show(ARM, height="3"),
    "width is True, expected a whole": lambda: view.render(ARM, width=True),
    "distance is 'a', expected": lambda: view.render(ARM, distance="a"),
    "ground is 'no', expected True or False": lambda: view.render(ARM, ground="no"),
    "side_by_side is 2, expected True or False": lambda: view.render(ARM, side_by_side=2),
    "contact is 'str', expected a Scene": lambda: view.show(ARM, contact="ground"),
    "contact is 'int', expected a Scene": lambda: view.serve(ARM, contact=3),
    "found.distance is [nan], expected no NaN": lambda: view.separations(
        collision.Separation(np.array([np.nan]), *np.zeros((3, 1, 3)))
    ),
    "markers[0].shapes has 'far' with a coordinate above 1e+09 m": lambda: view.render(
        ARM, markers=[view.Obstacles([collision.PlacedShape(BALL.shape, None, [2e9, 0, 0], "far")])]
    ),
    "adjacent is 'no', expected True or False": lambda: collision.pairs_of(ARM, adjacent="no"),
    "dt is inf, expected a finite number": lambda: shooting(dt=np.inf),
    "recovery is inf, expected finite": lambda: shooting(dt=0.01, recovery=np.inf),
    "path_or_text is 3, expected a path or a text": lambda: io.load_mjcf(3),
    "root_joint is ['free_flyer']": lambda: io.load_urdf("<robot/>", root_joint=["free_flyer"]),
    "episode_steps is 0": lambda: started(0),
    "episode_steps is 1.5": lambda: started(1.5),
    "episode_steps is nan": lambda: started(float("nan")),
    "dofs is (0.2, 0.7)": lambda: optimal_control.joint_torques(ARM, dofs=[0.2, 0.7]),
    "dt is 0.0, expected a finite number above 0": lambda: shot((Q, Q), 0.0),
    "x has 1 entries, expected q and v": lambda: shot((Q,)),
    "x is 3, expected a sequence of q and v": lambda: shooting(dt=0.01)(0, 3, Q, None),
    "stabilisation is [ 1. -1.], expected finite": lambda: constrained(stabilisation=(1.0, -1.0)),
    "stabilisation is [nan  1.], expected finite": lambda: optimal_control.joint_torques(
        ARM, constraints=[constraints.point(None, TIP)], stabilisation=[np.nan, 1.0]
    ),
    "frame_b is an array of shape (3,), expected the name": lambda: constraints.point(
        TIP, Q[[0] * 3]
    ),
    "frame is None, expected the name of a frame": lambda: ik.FrameTask(None, ORIGIN),
    "frame is 3, expected the name of a frame, or None": lambda: tendons.PathPoint(3),
    "x[0] is a tuple, expected q": lambda: shot(((Q, Q), np.ones(1))),
    "dx has shape (3,), expected (2,)": lambda: TWO_NUMBERS.retract(
        (np.ones(1), np.ones(1)), np.ones(3)
    ),
    "move has 1 parts, expected 2": lambda: TWO_NUMBERS.move((np.ones(1), np.ones(1)), np.ones(1)),
    "move has 3 parts, expected 2": lambda: optimal_control.state_space(ARM).move((Q, Q), Q, Q, Q),
    "move has 2 parts, expected 1": lambda: optimal_control.vector_space(2).move(Q, Q, Q),
    "x has 1 entries, expected 2 states": lambda: TWO_NUMBERS.move(
        (np.ones(1),), np.ones(1), np.ones(1)
    ),
    "x is 3, expected a sequence of states": lambda: TWO_NUMBERS.retract(3, np.ones(2)),
    "x0 has 1 entries, expected 2 states": lambda: TWO_NUMBERS.difference(
        (np.ones(1),), (np.ones(1), np.ones(1))
    ),
    "x1 is 4, expected a sequence of states": lambda: TWO_NUMBERS.difference(
        (np.ones(1), np.ones(1)), 4
    ),
    "fixed_iterations is 'no', expected True or False": lambda: optimal_control.solve(
        problem(), Q, None, SAMPLES, fixed_iterations="no"
    ),
    "product_space has no spaces": lambda: optimal_control.product_space(),
    "spaces[1] is 'int', expected a Space": lambda: optimal_control.product_space(
        optimal_control.vector_space(1), 3
    ),
    "x has 3 entries, expected 2 states": lambda: TWO_NUMBERS.checked(np.ones((3, 1)), "x"),
    "x[1] has shape (2,)": lambda: TWO_NUMBERS.checked((np.ones(1), np.ones(2)), "x"),
    "stabilisation is None, expected an array": lambda: constrained(stabilisation=None),
    "active is [None], expected an array": lambda: constrained(active=[None]),
    "active is [nan], expected bool or numbers, not NaN": lambda: constrained(active=[np.nan]),
    "active has dtype complex128, expected bool": lambda: constrained(active=np.array([1j])),
    "impact is nan, expected bool or numbers, not NaN": lambda: constrained(impact=np.nan),
    "impact has the arguments (t), expected the call impact(t, p)": lambda: (
        optimal_control.joint_torques(ARM, impact=lambda t: True)
    ),
    "servo.position is 'home', expected an array": lambda: servo_shooting("home"),
    "servo.position is [nan nan], expected finite entries": lambda: servo_shooting(Q * np.nan),
    "servo.velocity is [nan nan], expected finite": lambda: servo_shooting(Q, Q * np.nan),
    "servo.position is [nan  0.], expected finite": lambda: contact_stepped(
        servo=contact.Servo(GAINS, np.array([np.nan, 0.0]))
    ),
    "servo.velocity is [ 0. nan], expected finite": lambda: contact_stepped(
        servo=contact.Servo(GAINS, Q, np.array([0.0, np.nan]))
    ),
    "servo.force is [ 0. inf], expected finite": lambda: contact_stepped(
        servo=contact.Servo(GAINS, Q, force=np.array([0.0, np.inf]))
    ),
    "servo.force is 2.0 for joint 'elbow', which has no stiffness": lambda: contact_stepped(
        servo=contact.Servo(actuators.PD([1.0, 0.0], [0.0, 0.0]), Q, force=np.array([0.0, 2.0]))
    ),
    "servo.force is 3.0 for joint 'shoulder', which has no stiffness": lambda: shooting(
        dt=0.01, servo=contact.Servo(actuators.PD(*np.zeros((2, 2))), Q, force=jnp.array([3.0, 0]))
    ),
    "servo.control.effort is 5.0 for joint 'elbow', which has no stiffness": lambda: shooting(
        dt=0.01, servo=contact.Servo(actuators.PD([1.0, 0.0], [0.0, 0.0], [9.0, 5.0]), Q)
    ),
    "servo.error is [inf  0.], expected finite": lambda: contact_stepped(
        servo=contact.Servo(GAINS, None, error=np.array([np.inf, 0.0]))
    ),
    "servo.tendons.length is [nan], expected finite": lambda: tendon_servo_step(
        length=np.full(1, np.nan)
    ),
    "servo.tendons.rate is [inf], expected finite": lambda: tendon_servo_step(
        rate=np.full(1, np.inf)
    ),
    "servo has no position and no error": lambda: servo_shooting(None),
    "servo.tendons is 'int', expected a TendonServo": lambda: servo_shooting(Q, tendons=3),
    "servo.position has the zero quaternion": lambda: optimal_control.contact_shooting(
        BALL_JOINT,
        contact.Scene(()),
        0.01,
        servo=contact.Servo(actuators.PD(*np.ones((3, 3))), np.zeros(4)),
    ),
    "servo.tendons.force_range is [[nan  1.]]": lambda: tendon_servo_step(
        force_range=np.array([[np.nan, 1.0]])
    ),
    "servo.tendons.force_range is [[ 1. -1.]], expected lower": lambda: tendon_servo_step(
        force_range=np.array([[1.0, -1.0]])
    ),
    "servo.tendons.force_range has shape (1, 3)": lambda: tendon_servo_step(
        force_range=np.ones((1, 3))
    ),
    "servo.tendons.stiffness is [-1.], expected finite, 0": lambda: tendon_servo_step(
        stiffness=-np.ones(1)
    ),
    "servo.tendons.rate has shape (), expected (1,)": lambda: tendon_servo_step(rate=1.0),
    "servo.tendons.tendons[0] is an array of shape ()": lambda: tendon_servo_step((3.0,)),
    "dofs is (True,)": lambda: optimal_control.joint_torques(ARM, dofs=[True]),
    "tolerance is nan": lambda: identification.base_parameters(ARM, float("nan")),
    "tolerance is -1.0": lambda: identification.base_parameters(ARM, -1.0),
    "max_steps is 0": lambda: fitted(0),
    "max_steps is 2.5": lambda: fitted(2.5),
    "steps is 2.5": lambda: rollout(2.5),
    "steps is True": lambda: rollout(True),
    "steps is -1": lambda: rollout(-1),
    "constraints[0] is a Nonholonomic constraint": lambda: constraints.close_loops(
        ARM, Q, [constraints.Nonholonomic(lambda model, q: jnp.ones((1, 2)))]
    ),
    "constraints is": lambda: constraints.close_loops(ARM, np.zeros(2), constraints.point(None, 0)),
    "axis is [0. 0. 0.]": lambda: constraints.hinge(None, 0, (0, 0, 0)),
    "axis is (True, False, False), expected": lambda: constraints.hinge(
        None, 0, (True, False, False)
    ),
    "stabilisation has dtype bool": lambda: constrained(stabilisation=True),
    "multipliers[0] is None": lambda: constraints.constraint_wrenches(
        ARM, Q, [constraints.point(None, TIP)], [None]
    ),
    "multipliers is an array of shape ()": lambda: constraints.constraint_wrenches(
        ARM, Q, [constraints.point(None, TIP)], jnp.zeros(())
    ),
    "bias has shape (1,)": lambda: constraints.constrained_body(
        ARM.inertia[0], np.eye(1, 6), *np.zeros((2, 6)), np.zeros(1)
    ),
    "frames is 3, expected a sequence of frames": lambda: algorithms.delassus_matrix(ARM, Q, 3),
    "frames is 'tool', expected a sequence": lambda: algorithms.delassus_matrix(ARM, Q, "tool"),
    "reference is 'x', expected one of": lambda: algorithms.delassus_matrix(ARM, Q, (), "x"),
    "frames is (['tool'],), expected names": lambda: algorithms.delassus_matrix(ARM, Q, [["tool"]]),
    "V is None, expected an array": lambda: algorithms.body_regressor(None, np.zeros(6)),
    "inputs has the shapes [(3, 2), (4, 2)]": lambda: rollout(
        None, (np.zeros((3, 2)), np.zeros((4, 2)))
    ),
    "inputs has the shapes [()]": lambda: rollout(None, 1.0),
    "inputs has the shapes []": lambda: rollout(None, ()),
    "z contains 'str', expected arrays of real": lambda: rbd.integrators.explicit_euler(
        ARM, lambda q, v, z: (v, z), Q, Q, 0.1, z="x"
    ),
    "regularization is None, expected": lambda: identified(regularization=None),
    "regularization is 'x', expected": lambda: identified(regularization="x"),
    "tolerance is 'x', expected": lambda: identification.base_parameters(ARM, "x"),
    "x is 'int', expected a quantity": lambda: frames.State(ARM, Q, Q).transform(3, "world"),
    "stages has 2 entries": lambda: optimal_control.lqr((np.eye(2), np.eye(2)), np.zeros(2)),
    "stages is 3, expected": lambda: optimal_control.lqr(3, np.zeros(2)),
    "c is None, expected an array": lambda: regulator(c=None),
    "c has dtype int64, expected floats": lambda: regulator(c=np.zeros((3, 2), int)),
    "x0 has dtype complex128": lambda: regulator(x0=np.zeros(2, complex)),
    "R[1] is not symmetric": lambda: regulator(
        R=np.eye(2) + np.array([0.0, 1e-3, 0.0])[:, None, None] * np.triu(np.ones((2, 2)), 1)
    ),
    "Q[0] is not symmetric": lambda: regulator(Q=np.tile([[1.0, 0.5], [0.4, 1.0]], (4, 1, 1))),
    "problem is 'int', expected a Problem": lambda: optimal_control.solve_contacts(
        3, (Q, Q), None, np.zeros((2, 2))
    ),
    "servo is an array of shape (), expected a Servo": lambda: contact_stepped(servo=5),
    "servo.control is an array of shape (), expected a PD": lambda: contact_stepped(
        servo=contact.Servo(5, Q)
    ),
    "constraints is an array of shape (), expected a": lambda: contact_stepped(constraints=5),
    "tendons is an array of shape (), expected a Tendons": lambda: contact_stepped(tendons=5),
    "actuators is 'int', expected an AffineActuators": lambda: contact.servo_of_actuators(
        5, ARM, Q, Q
    ),
    "shapes is None, expected a sequence of PlacedShape": lambda: contact.Scene.from_shapes(None),
    "step is an array of shape (), expected a ContactStep": lambda: contact.step_wrenches(
        ARM, contact.Scene((TIP,)), Q, 5, 0.01
    ),
    "q is a Kinematics, expected an array; a Kinematics has": lambda: (
        contact.contact_step_derivatives(
            ARM, contact.Scene((TIP,)), rbd.forward_kinematics(ARM, Q), Q, Q, 0.01
        )
    ),
    "height is 3, expected a function of xy": lambda: contact.Height(3),
    "force is 3, expected a function of q and v": lambda: contact.servo_of_forces(3, ARM, Q, Q),
    "pairs is 5, expected DistancePairs": lambda: contact.Scene.from_model(ARM, pairs=5),
    "algorithm is 'str', expected a Shac, an Apg": lambda: learning.Training("ppo", CART_POLE),
    "env is 'str', expected an Env": lambda: learning.Training(learning.Ppo(), "cart-pole"),
    "mesh is 'int', expected a Mesh": lambda: learning.Training(learning.Ppo(), CART_POLE, mesh=5),
    "block is 0, expected an": lambda: learning.Training(learning.Ppo(), CART_POLE, block=0),
    "batch is 256, expected a multiple of 3, the number of devices times block": lambda: (
        learning.Training(learning.Ppo(), CART_POLE, block=3)
    ),
    "training is 'int', expected a Training": lambda: learning.policy_arrays(5),
    "arrays has no 'mean'": lambda: learning.numpy_policy({}),
    "arrays has no 'bias_1'": lambda: learning.numpy_policy(
        dict.fromkeys(("mean", "scale", "weight_0", "bias_0", "weight_1"))
    ),
    "params is 'Model', expected parameters with": lambda: learning.policy_description(
        trained(), ARM
    ),
    "after is 1.5, expected an integer": lambda: learning.tensorboard_writer("x", 1.5).__enter__(),
    "params is 'int', expected a LeggedParams": lambda: envs.mirror_image(envs.QuadrupedTrot(), 3),
    "x has shape (3,), expected (..., 2)": lambda: envs.SignedPermutation((1, 0), (1, 1))(
        np.zeros(3)
    ),
    "task is 'int', expected a str": lambda: trained(task=3),
    "path is 'no/folder/x', and its folder does not exist": lambda: next(
        trained().run("no/folder/x")
    ),
    "stop_at is True": lambda: learning.Evaluations(1, stop_at=True),
    "env is 'int', expected an Env": lambda: learning.Evaluations(1, env=3),
    "arrays is None, expected a Mapping": lambda: learning.numpy_policy(None),
    "training is 'float', expected a Training": lambda: learning.policy_description(3.0),
    "params is 'int', expected parameters with": lambda: envs.gymnasium_vector(CART_POLE, 2, 3),
    "state is 'int', expected a State": lambda: envs.GymnaxEnv(CART_POLE).step(KEY, 4, np.zeros(1)),
    "state is 'int', expected a BraxState": lambda: envs.BraxEnv(CART_POLE).step(5, np.zeros(1)),
    "state.key has shape (3,) and dtype key<fry>, expected one key": stepped_batch,
    "episodes is 2.5, expected an integer": lambda: learning.evaluate(
        CART_POLE, CART_POLE.default_params(), jnp.sin, KEY, 2.5
    ),
    "key has shape () and dtype int64, expected one key of": lambda: learning.evaluate(
        CART_POLE, CART_POLE.default_params(), jnp.sin, 0
    ),
    "policy calls functions of NumPy": lambda: learning.evaluate(
        CART_POLE, CART_POLE.default_params(), lambda x: np.sin(x[:, :1]), KEY, 2
    ),
    "policy is None, expected a function": lambda: learning.evaluate(
        CART_POLE, CART_POLE.default_params(), None, KEY
    ),
    "env is 'Vectorized', expected an Env": lambda: learning.motions(
        envs.vectorize(CART_POLE), CART_POLE.default_params(), jnp.sin, KEY
    ),
    "every is 1.5, expected an integer": lambda: next(trained(None).run(every=1.5)),
    "evaluation is 'int', expected an Evaluations": lambda: next(trained(None).run(evaluation=3)),
    "observation is 'a', expected an array": lambda: trained(None).policy()("a"),
    "updates lead to": lambda: learning.Training(
        learning.Ppo(batch=2, horizon=2, hidden=(4,), minibatches=4, updates=2**62), CART_POLE
    ),
    "makes a network that fails for observations (2, 5): ": lambda: trained(lambda *x: None),
    "makes a network that fails for observations (2, 5): tuple": lambda: trained(lambda *x: ()),
    "makes a network with a leaf of int64": lambda: trained(lambda *x: (jnp.zeros(3, int),)),
    "array of params has shape (7,), expected 4 rows on axis 0": lambda: batch_of(4, axes=0)(
        jnp.zeros(7)
    ),
    "model.gravity of params has shape (3,), expected 2 rows": lambda: batch_of(
        2, randomised("model.gravity", envs.Uniform(np.zeros(3), np.ones(3))).axes
    )(CART_POLE.default_params()),
    "params_axes is {'a': 0}, expected the axes": lambda: batch_of(2, {"a": 0})(
        CART_POLE.default_params()
    ),
    "without 'home', expected parameters such as default_params() of ArmReach": lambda: (
        envs.ArmReach().reset(CART_POLE.default_params(), KEY)
    ),
    "models is None, expected a sequence of Model": lambda: padded.pad(None),
    "models is 5, expected a sequence of Model": lambda: padded.alike(5),
    "robots is None, expected a PaddedRobots": lambda: padded.pad_scenes(None, None),
    "scenes is None, expected a sequence of Scene": lambda: padded.pad_scenes(
        padded.pad([ARM]), None
    ),
    "key has shape (3,) and dtype int64": lambda: ik.search_inverse_kinematics(
        ARM, [ik.PostureTask(Q)], [1, 2, 3]
    ),
    "is [[1], [1, 2]], expected an array of floats": lambda: ik.FrameTask.position(
        TIP, np.zeros(3), [[1], [1, 2]]
    ),
    "most_vertices is 8.5, expected an": lambda: collision.convex_hull(
        np.eye(4, 3), most_vertices=8.5
    ),
    "most_vertices is 2.5, expected an": lambda: collision.pairs_of(ARM, most_vertices=2.5),
    "name is 3, expected a name": lambda: collision.PlacedShape(collision.Sphere(0.1), name=3),
    "frame is 1.5, expected a name": lambda: collision.PlacedShape(collision.Sphere(0.1), 1.5),
    "a parameter of a joint is 'a', expected an array": lambda: joints.Screw(
        (0.0, 0.0, 1.0), "a", 1.0
    ),
    "constraints is None, expected a sequence": lambda: constraints.constrained_dynamics(
        ARM, Q, Q, Q, None
    ),
    "p_a is 'a', expected an array": lambda: constraints.point(None, TIP, "a"),
    "function is None, expected a function of (model, q)": lambda: constraints.Equation(None),
    "an array is traced by JAX, expected known": lambda: jax.jit(identified)(),
    "problem is None, expected a Problem": lambda: optimal_control.solve(None, Q, None, Q),
    "problem is 'str', expected a Problem": lambda: optimal_control.kkt_residual("a", Q, None, Q),
    "solution is 'str', expected a Solution": lambda: optimal_control.shift("a", 1),
    "solution is an array of shape (2,), expected a Solution": lambda: optimal_control.follow(
        problem(), Q, None, Q
    ),
    "control_bounds have shapes (2,) and (3,)": lambda: problem(
        control_bounds=(np.zeros(2), np.ones(3))
    ),
    "p is 'str', expected arrays": lambda: solved(p="a"),
    "tolerance is 'str', expected arrays": lambda: solved(tolerance="a"),
    "mu is 'str', expected arrays": lambda: solved(mu="a"),
    "iterations is (3,), expected an integer": lambda: solved(iterations=[3]),
    "guess is None, expected an array": lambda: solved(guess=None),
    "the result of dynamics is None, expected an array": lambda: solved(
        dynamics=lambda t, x, u, p: None
    ),
    "the result of dynamics has shape (3,)": lambda: solved(
        dynamics=lambda t, x, u, p: jnp.zeros(3)
    ),
    "the result of dynamics is float32, expected float64": lambda: solved(
        dynamics=lambda t, x, u, p: x.astype(jnp.float32)
    ),
    "dynamics(t, x, u, p) raises an error for the x0 and p": lambda: solved(
        dynamics=lambda t, x, u, p: x + p["mass"]
    ),
    "the result of cost is None, expected an array": lambda: solved(cost=lambda t, x, u, p: None),
    "the result of cost is (": lambda: solved(cost=lambda t, x, u, p: (x, u[:1])),
    "the result of path is None, expected the pair": lambda: solved(path=lambda t, x, u, p: None),
    "the equalities of the result of path is 'a'": lambda: solved(
        path=lambda t, x, u, p: ("a", None)
    ),
    "KeyError 'goal'": lambda: solved(p={}, cost=lambda t, x, u, p: x - p["goal"]),
    "has no attribute goal": lambda: solved(p=Q, cost=lambda t, x, u, p: x - p.goal),
    "the multipliers of guess is None": lambda: solved(
        guess=warm_start()._replace(multipliers=None)
    ),
    "t is an array of shape (1,)": lambda: optimal_control.at_stage(np.ones(3), np.zeros(1, int)),
    "t is an array of shape (), expected an integer": lambda: optimal_control.at_stage(
        np.ones(3), 0.5
    ),
    "expected one row for each stage": lambda: optimal_control.at_stage(
        (np.ones(3), np.ones(4)), 0
    ),
    "terminal_cost(x, p) raises an error": lambda: solved(terminal_cost=lambda x, p: x + "a"),
    "the inequalities of the result of terminal have shape (1, 2)": lambda: solved(
        terminal=lambda x, p: (None, x[None])
    ),
    "dofs is 3, expected a sequence of different ints": lambda: optimal_control.joint_torques(
        ARM, dofs=3
    ),
    "markers[0].color has shape ()": lambda: view.render(
        ARM, markers=[view.Points(np.zeros(3), color=3)]
    ),
    "markers[0].poses is an array of shape": lambda: view.render(
        ARM, markers=[view.Axes(np.eye(4))]
    ),
    "markers[0].shapes is 3": lambda: view.render(ARM, markers=[view.Obstacles(3)]),
    "markers is 3, expected a sequence": lambda: view.render(ARM, markers=3),
    "layers is 3, expected a sequence": lambda: view.render(ARM, layers=3),
    "q is ['a', 'b'], expected": lambda: view.render(ARM, ["a", "b"]),
    "q is [[0.0, 0.0], [0.0]], expected": lambda: view.render(ARM, [[0.0, 0.0], [0.0]]),
    "q is array([0.+1.j": lambda: view.render(ARM, np.array([1j, 0])),
    "q has shape (3,) and dtype float64, expected (2,) or (B, 2)": lambda: view.render(
        ARM, np.zeros(3)
    ),
    "ghosts has shape (1, 1, 2) and dtype float64, expected (2,) or (G, 2)": lambda: view.render(
        ARM, ghosts=np.zeros((1, 1, 2))
    ),
    "background is [255.   0.   0.], expected values from 0 to 1": lambda: view.render(
        ARM, background=(255, 0, 0)
    ),
    "background is [ 0.  0. -1.], expected values": lambda: view.render(ARM, background=(0, 0, -1)),
    "distance is 1e+30, expected above 0 m, at most 1e+09": lambda: view.render(ARM, distance=1e30),
    "joints has the entry 3, expected a name": lambda: tendons.FixedTendon("a", {3: 1.0}),
    "joints is 3, expected a sequence of names": lambda: tendons.FixedTendon("a", [1.0], 3),
    "joint is 3, expected the name of a joint": lambda: tendons.RotationAngle("a", 3),
    "mass is 'x', expected an array of floats": lambda: rbd.model.link_inertia("x"),
    "com has shape (2,)": lambda: rbd.model.link_inertia(1.0, (0.0, 0.0)),
    "per_row is 'no', expected True or False": lambda: envs.Scale(0.9, 1.1, per_row="no"),
    "params is 'int', expected parameters with the field": lambda: envs.BraxEnv(CART_POLE, 3),
    "dx has shape (1,) and dtype float64, expected (2,)": lambda: problem().space.retract(
        Q, np.ones(1)
    ),
    "x1 has shape () and dtype float64, expected (2,)": lambda: problem().space.difference(Q, 1.0),
    "dx has shape (2,), expected (4,)": lambda: optimal_control.state_space(ARM).retract((Q, Q), Q),
    "dv has shape (1,), expected (2,)": lambda: optimal_control.state_space(ARM).move(
        (Q, Q), Q, np.ones(1)
    ),
    "x1[1] has shape (1,), expected (2,)": lambda: optimal_control.state_space(ARM).difference(
        (Q, Q), (Q, np.ones(1))
    ),
    "constraints is {}, expected a sequence": lambda: contact_stepped(constraints={}),
    "dt is True, expected a positive": lambda: view.save_html("unused.html", ARM, dt=True),
    "world is None, expected a sequence": lambda: collision.pairs_of(ARM, None),
    "disabled is None, expected a sequence": lambda: collision.pairs_of(ARM, disabled=None),
    "path of tendon 'a' is None": lambda: tendons.SpatialTendon("a", None),
    "tendons is 3, expected a sequence": lambda: tendons.Tendons(3),
    "stiffness is [inf], expected finite": lambda: passive.JointSprings(["a"], [np.inf]),
    "position_rest is [[inf": lambda: passive.JointSprings(
        positions=["a"], position_stiffness=[1.0], position_rest=[[np.inf, 0.0, 0.0]]
    ),
    "masses is [inf], expected finite": lambda: passive.GravityCompensation(
        [TIP], [1.0], [np.inf], [[0.0, 0.0, 0.0]]
    ),
    "semi_axes is [[inf": lambda: passive.FluidEllipsoids([TIP], [[np.inf, 1.0, 1.0]]),
    "added_volume is [[inf": lambda: passive.FluidEllipsoids(
        [TIP], [[1.0, 1.0, 1.0]], added_volume=[[np.inf, 0.0, 0.0]]
    ),
    "wind is [inf": lambda: passive.FluidForces(1.0, 0.0, [np.inf, 0.0, 0.0]),
    ", None], expected an array": lambda: algorithms.crba(ARM, [0.0, None]),
    "q is [[0.0], [0.0, 1.0]], expected": lambda: moved(q=[[0.0], [0.0, 1.0]]),
    "q is 'ab', expected an array": lambda: moved(q="ab"),
    "dt is 'a', expected an array": lambda: moved(dt="a"),
    "dt has dtype complex128, expected real numbers": lambda: moved(dt=1j),
    "z contains an array of shape (1,), expected arrays of real": lambda: moved(z=np.array([1j])),
    "z contains 'bool', expected arrays of real": lambda: moved(z=True),
    "the rate of z from dynamics contains an array of shape (1,)": lambda: moved(
        lambda q, v, z: (v, z.astype(complex)), z=np.zeros(1)
    ),
    "the rate of z from dynamics contains 'str'": lambda: moved(lambda q, v, z: (v, "a"), z=0.0),
    "the result of dynamics(q, v) is 'a'": lambda: moved(lambda q, v: "a"),
    "dt is nan, expected finite": lambda: moved(dt=np.nan),
    "dt is -inf, expected finite": lambda: derivatives_of(
        lambda model, dynamics, q, v, dt: (q, v), -np.inf
    ),
    "integrator is None, expected a function": lambda: derivatives_of(None),
    "expected the call integrator(model, dynamics, q, v, dt)": lambda: derivatives_of(
        lambda q, v: (q, v)
    ),
    "the result of integrator is 'int', expected the pair (q, v)": lambda: derivatives_of(
        lambda *x: 3
    ),
    "v of the result of integrator has shape (1,)": lambda: derivatives_of(
        lambda model, dynamics, q, v, dt: (q, v[:1])
    ),
    "dtype is 'float16', expected float32 or float64": lambda: ARM.astype("float16"),
    "'double_pendulum' is a batch of models": lambda: algorithms.total_mass(SEVERAL),
    "expected (2, 10) for one robot; batch with jax.vmap": lambda: algorithms.crba(SEVERAL, Q),
    "its inertias have shape (3, 2, 10)": lambda: SEVERAL.with_mass(ARM.body_names[0], 2.0),
    "inertias have shape (3, 2, 10)": lambda: SEVERAL.with_payload(TIP, 2.0),
    "key has shape () and dtype int64, expected one key": lambda: sensors.Noise(1.0)(3, Q),
    "key has shape (2,)": lambda: sensors.Noise(1.0)(jax.random.split(KEY), Q),
    "pattern is None, expected an array": lambda: sensors.height_scan(
        ARM, Q, contact.Plane((0.0, 0.0, 1.0), 0.0), TIP, None
    ),
    "activation is None, expected an array": lambda: FILTER.push(None, np.zeros(2), 0.1),
    "command is 'a', expected an array": lambda: actuators.Delay(1.0, 2).init("a"),
    "command is None, expected an array or": lambda: actuators.Delay(1.0, 2).init(None),
    "past has 'a', expected a result": lambda: actuators.Delay(1.0, 2).push("a", np.zeros(2)),
    "q is 'a', expected an array": lambda: identification.identify_inertia(
        ARM, "a", SAMPLES, SAMPLES, SAMPLES
    ),
    "predict is None, expected a function": lambda: identification.identify_parameters(
        None, 1.0, np.ones(3)
    ),
    "start is 'a', expected an array": lambda: identification.identify_parameters(
        lambda p: p, "a", np.ones(3)
    ),
    "predict returns the dtype int64": lambda: identification.identify_parameters(
        lambda p: jnp.ones(3, int), 1.0, np.ones(3)
    ),
    "markers[0].positions is [[0, 0], [1]]": lambda: view.render(
        ARM, markers=[view.Points([[0, 0], [1]])]
    ),
    "target is [1.e+300 0.e+000 0.e+000], expected entries of at most 1e+09 m": lambda: view.render(
        ARM, target=[1e300, 0, 0]
    ),
    "markers[0].positions is [1.e+300": lambda: view.render(
        ARM, markers=[view.Points([1e300, 0, 0])]
    ),
    "markers[0].size is 1e+300, expected above 0 m, at most": lambda: view.render(
        ARM, markers=[view.Points(np.zeros(3), size=1e300)]
    ),
    "markers[0].size is 'a'": lambda: view.render(
        ARM, markers=[view.Points(np.zeros(3), size="a")]
    ),
    "trajectory[1] has the zero quaternion for joint": lambda: view.save_html(
        "unused.html", BALL_JOINT, [[0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]]
    ),
    "q has the zero quaternion for joint": lambda: view.render(BALL_JOINT, np.zeros(4)),
    "packages is 3, expected a mapping": lambda: io.find_package_file("package://a/b", 3),
    "packages['a'] is 3, expected a folder": lambda: io.find_package_file("a.stl", {"a": 3}),
    "urdf_path is 3, expected the path": lambda: io.find_package_file("a.stl", urdf_path=3),
    "humanoid; found ['a']": lambda: robots.load_robot(["a"]),
    "standing_quadruped; found ['a']": lambda: robots.load_linkage(["a"]),
    "xpos has shape (4,) and xquat (4,), expected": lambda: io.mujoco.pose_from_mujoco(
        np.zeros(4), np.zeros(4)
    ),
    "xpos has shape (3,) and xquat (2, 4), expected": lambda: io.mujoco.pose_from_mujoco(
        np.zeros(3), np.zeros((2, 4))
    ),
    "X_FS.R is [[2. 0. 0.]": lambda: collision.PlacedShape(
        collision.Sphere(0.1), None, Pose(2 * np.eye(3), np.zeros(3))
    ),
    "X_WA.R is [[2. 0. 0.]": lambda: collision.distance(
        collision.Sphere(0.1), Pose(2 * np.eye(3), np.zeros(3)), collision.Sphere(0.1), ORIGIN
    ),
    "clip is None, expected": lambda: learning.Ppo(clip=None),
    "learning_rate is True, expected a number": lambda: learning.Apg(learning_rate=True),
    "minibatches is 2.0, expected an integer": lambda: learning.Ppo(minibatches=2.0),
    "critic_minibatches is None, expected an integer": lambda: learning.Shac(
        critic_minibatches=None
    ),
    "policy_network is 5, expected a function": lambda: learning.Apg(policy_network=5),
    "returns the shape (2, 3) for observations (2, 5), expected (2, 1)": lambda: trained(
        lambda key, sizes, dtype, factor: (Layer(jnp.zeros((5, 3), dtype), jnp.zeros(3, dtype)),)
    ),
    "makes a network with the leaf 'tanh', expected arrays": lambda: trained(lambda *x: ["tanh"]),
    "observation has shape (1,), expected (..., 5)": lambda: trained(None).policy()(jnp.ones(1)),
    "material is 0.7, expected a Material": lambda: contact.Scene([TIP], 0.1, material=0.7),
    "pairs is [1, 2], expected CollisionPairs": lambda: contact.Scene([TIP], 0.1, pairs=[1, 2]),
    "ground is 5, expected a Ground": lambda: contact.Scene([TIP], 0.1, ground=5),
    "inverse_inertia is 5, expected": lambda: contact.Scene([TIP], 0.1, inverse_inertia=5),
    "frames is 5, expected a sequence of frames": lambda: contact.Scene(5, 0.1),
    "mimic is 1, expected True or False": lambda: io.load_urdf("<robot/>", mimic=1),
    "geometry is 1, expected True or False": lambda: io.parse_urdf("<robot/>", geometry=1),
    "strict is 1, expected True or False": lambda: io.load_urdf("<robot/>", strict=1),
    "reorder is 'no', expected True or False": lambda: io.urdf_text(ARM, reorder="no"),
    "geometry is 'no', expected True or False": lambda: io.urdf_text(ARM, geometry="no"),
    "skip_unknown_joints is 'no', expected True or False": lambda: io.load_srdf(
        "<robot/>", ARM, skip_unknown_joints="no"
    ),
    "search_environment is 'no', expected True or False": lambda: io.find_package_file(
        "a.stl", search_environment="no"
    ),
    "model_as_argument is 'no', expected True or False": lambda: io.export_batched(
        rbd.rnea, ARM, Q, model_as_argument="no"
    ),
    "link 'base': a visual shape: color is (2.0, 0.0, 0.0, 1.0), expected": lambda: io.save_model(
        with_color(2), "unused.jaxrbd"
    ),
    "search_environment is 1, expected True or False": lambda: io.read_meshes(
        ARM, search_environment=1
    ),
    "expected a function of JAX": lambda: io.pytorch.torch_function(3),
    "path is None, expected the path": lambda: io.save_model(ARM, None),
    "program is 'int', expected an Exported": lambda: io.save_program(3, "unused"),
    "function is None, expected a function": lambda: io.export_batched(None, ARM, Q),
    "an example argument is 'a', expected an array": lambda: io.export_batched(rbd.rnea, ARM, "a"),
    "platforms is 5, expected some of": lambda: io.export_batched(rbd.rnea, ARM, Q, platforms=5),
    "the first argument is 'int', expected the Model": lambda: io.export_batched(rbd.rnea, 3, Q),
    "path is 3, expected the path of a file": lambda: io.load_model(3),
    "task is ['a'], expected one of": lambda: learning.load_task(["a"]),
    "steps is 'a', expected an integer": lambda: learning.algorithm_for("cart-pole", "ppo", "a"),
    "algorithm is ['a'], expected one of": lambda: learning.load_task("cart-pole", ["a"]),
    "env is None, expected an environment": lambda: envs.vectorize(None),
    "env is 'AutoReset', expected an Env": lambda: envs.BraxEnv(envs.auto_reset(CART_POLE)),
    "env is 'AutoReset', expected an Env without": lambda: envs.GymnaxEnv(
        envs.auto_reset(CART_POLE)
    ),
    "env is None, expected an Env": lambda: envs.mirror_image(None),
    "hidden is 3, expected a sequence": lambda: envs.Asymmetric(envs.QuadrupedTrot(), 3),
    "an entry of the result of observe is 'text', expected": lambda: observed({"a": "text"}),
    "with the joints Revolute, Revolute, expected Prismatic, Revolute": lambda: reset_with(
        model=ARM
    ),
    "with the joints Revolute, Revolute, expected Prismatic, Prismatic": lambda: (
        envs.Hopper().reset(envs.Hopper().default_params()._replace(model=ARM), KEY)
    ),
    "state has the reward terms ['action', 'angular_velocity', 'height']": lambda: CART_POLE.step(
        CART_POLE.default_params(),
        envs.DoublePendulumSwingUp().reset(envs.DoublePendulumSwingUp().default_params(), KEY),
        np.zeros(1),
    ),
    "key is None, expected an array": lambda: CART_POLE.reset(CART_POLE.default_params(), None),
    "action is 'x', expected an array": lambda: stepped("x"),
    "margin is 0.0, expected above 0": lambda: envs.tolerance(1.0, 0.0, 2.0, 0.0),
    "lower is 2.0 and upper is 1.0": lambda: envs.tolerance(1.0, 2.0, 1.0, 1.0),
    "x has shape (3,), lower (2,), upper () and margin (), expected shapes that": lambda: (
        envs.tolerance(np.zeros(3), np.zeros(2), 1.0, 1.0)
    ),
    "lower is nan and upper is 1.0": lambda: envs.tolerance(1.0, np.nan, 1.0, 1.0),
    "params is 'SimpleNamespace', expected parameters with": lambda: CART_POLE.reset(
        types.SimpleNamespace(model=CART_POLE.default_params().model), jax.random.key(0)
    ),
    "params is 'CartPoleParams', expected a LeggedParams": lambda: envs.QuadrupedStand().reset(
        CART_POLE.default_params(), jax.random.key(0)
    ),
    "mesh is 'float', expected a Mesh": lambda: envs.vectorize(CART_POLE, mesh=5.0),
    "x has dtype bool, expected floats": lambda: envs.tolerance(True, 0.0, 1.0, 1.0),
    "upper is 'a', expected an array": lambda: envs.tolerance(1.0, 0.0, "a", 1.0),
    "params has no 'model.inertia[0]'": lambda: randomised("model.inertia[0]", SCALE),
    "params has no 'model.inertia.T'": lambda: randomised("model.inertia.T", SCALE),
    "low of Uniform has shape (4,), expected (3,)": lambda: randomised(
        "model.gravity", envs.Uniform(np.zeros(4), np.ones(4))
    ),
    "low of Scale has shape (3,), expected ()": lambda: randomised(
        "model.gravity", envs.Scale(np.ones(3), np.ones(3))
    ),
    "the distribution of 'model.armature' gives None": lambda: randomised(
        "model.armature", lambda key, x: None
    ),
    "high is inf, expected finite": lambda: envs.Uniform(0.0, np.inf),
    "low is -1e+38 and high is 3e+38, expected a difference that float32": lambda: envs.Uniform(
        -1e38, 3e38
    )(KEY, jnp.zeros(2, jnp.float32)),
    "x has shape (2,) and dtype int64, expected (2,) of floats": lambda: envs.Uniform(0.0, 1.0)(
        KEY, jnp.arange(2)
    ),
    "x has shape (1,) and dtype int64, expected (1,) of floats": lambda: SCALE(KEY, jnp.arange(1)),
    "x is None, expected an array": lambda: envs.Shift(0.0, 1.0)(KEY, None),
    "distributions is 3, expected a mapping": lambda: envs.randomise(None, 3, KEY, 2),
    "distributions has the entry 3": lambda: envs.randomise(None, {3: SCALE}, KEY, 2),
    "params.pushes is [0.5 0. ], expected": lambda: pushed([0.5, 0.0]),
    "params.pushes is [-0.5  1. ], expected": lambda: pushed([-0.5, 1.0]),
    "acceleration has an impact, a change of v": lambda: optimal_control.shooting_step(
        ARM,
        optimal_control.joint_torques(ARM, impact=lambda t, p: True),
        rbd.integrators.semi_implicit_euler,
        0.01,
    ),
    "matrix is 3, expected a function": lambda: constraints.Nonholonomic(3),
    "error is 3, expected a function": lambda: constraints.FrameConstraint(3, None, TIP),
    "contact is None, expected a ContactForce": lambda: sensors.touch(
        ARM, contact.Scene((TIP,)), Q, None, 0.01
    ),
    "key has shape () and dtype int": lambda: sensors.RobotSensors(
        [sensors.StateSensor("clock", "time", noise=1.0)]
    ).with_noise(3, jnp.zeros(1)),
    "quantities has 'nothing'": lambda: conformance.run(quantities=["nothing"]),
    "modes has 'backward'": lambda: conformance.run(modes=["backward"]),
    "precisions has 'float16'": lambda: conformance.run(precisions=["float16"]),
    "trees is empty, expected at least one entry": lambda: conformance.run(trees=[]),
    "conditions is empty, expected": lambda: conformance.run(conditions=[]),
    "precisions is empty, expected": lambda: conformance.run(precisions=[]),
    "order has ('float64', 'backward'), expected keys": lambda: conformance.run(
        order={("float64", "backward"): 1}
    ),
    "order has no entry for the given precisions": lambda: conformance.run(
        order=conformance.QUICK_ORDERS, precisions=["float32"], modes=["forward"]
    ),
    "the axis tree has no label 'arm'": lambda: EMPTY_REPORT.select(tree="arm"),
    "no axis ['robot']": lambda: EMPTY_REPORT.select(robot="arm"),
    "order is 4 for ('float64', 'forward')": lambda: conformance.run(order=4),
    "order is True, expected an integer": lambda: conformance.run(order=True),
    "order is 1.0 for ('float64', 'forward')": lambda: conformance.run(
        order={("float64", "forward"): 1.0}
    ),
    "adapter is 'str', expected an Adapter": lambda: conformance.run("jaxrbd"),
    "progress is 3, expected a function": lambda: conformance.run(progress=3),
    "trees has 'arm', expected objects of type Tree": lambda: conformance.run(trees=["arm"]),
    "conditions has 'rest', expected": lambda: conformance.run(conditions=["rest"]),
    "quantities is 'step', expected a sequence": lambda: conformance.run(quantities="step"),
    "trees[0] is 'str', expected a Tree": lambda: conformance.make_robot(["arm"]),
    "robot is 'str', expected a Robot": lambda: conformance.urdf("arm"),
    "curve is 3, expected a function": lambda: conformance.true_derivatives(3),
    "shapes has ('cone', 'box'), expected pairs from SHAPE_PAIRS": lambda: (
        conformance.check_distances([("cone", "box")])
    ),
    "samples is 2, expected an integer of 8 or more": lambda: conformance.check_distances(
        samples=2
    ),
    "expected a robot with one dof or more": lambda: conformance.check_solutions(
        rbd.model.lock_joints(ARM, dict.fromkeys(ARM.joint_names, 0.0))
    ),
    "X_FB.R is [[[2.": lambda: passive.FluidBoxes([TIP], [[1.0, 1.0, 1.0]], STRETCHED),
    "X_FS.R is [[2.": lambda: tendons.Wrap(BALL.shape, TIP, Pose(2 * np.eye(3), np.zeros(3))),
    "a vector has shape (4,), expected (..., 3)": lambda: spatial.from_linear(jnp.zeros(4)),
    "a vector has shape (2,), expected (..., 3)": lambda: spatial.from_angular(jnp.zeros(2)),
    "a vector has shape (7,), expected (..., 6)": lambda: spatial.swap_halves(jnp.zeros(7)),
    "a matrix has shape (7, 7), expected (..., 6, 6)": lambda: spatial.swap_blocks(
        jnp.zeros((7, 7))
    ),
    "a matrix has shape (5, 5), expected (..., 4, 4)": lambda: spatial.pose_from_matrix(
        jnp.zeros((5, 5))
    ),
    "a matrix has shape (4, 3), expected (..., 3, 3)": lambda: spatial.rotate(
        jnp.zeros((4, 3)), jnp.zeros(3)
    ),
    "a matrix has shape (3, 4), expected (..., 3, 3)": lambda: spatial.inverse_rotate(
        jnp.zeros((3, 4)), jnp.zeros(3)
    ),
    "rpy has shape (2,) and dtype float64, expected": lambda: so3.rotation_from_rpy(jnp.zeros(2)),
    "q has shape (5,) and dtype float64, expected": lambda: so3.unit_quaternion_to_matrix(Q5),
    "w has shape (3,) and dtype int64, expected": lambda: so3.exp(jnp.arange(3)),
    "w has shape (1, 3) and dtype int64": lambda: so3.left_jacobian_inverse(jnp.ones((1, 3), int)),
    "q has shape (4,) and dtype int64": lambda: so3.quaternion_to_matrix(jnp.arange(4)),
    "R has shape (3, 3) and dtype int64": lambda: so3.log(jnp.eye(3, dtype=int)),
    "xi has shape (6,) and dtype int64": lambda: se3.left_jacobian(jnp.arange(6)),
    "a vector is [1, 2, 3], expected an array (..., 3)": lambda: spatial.skew([1, 2, 3]),
    "a pose is of the type ndarray, expected a Pose": lambda: spatial.compose(ORIGIN, np.eye(4)),
    "a pose is of the type tuple, expected a Pose": lambda: spatial.inverse((np.eye(3), Q)),
    "a matrix has shape (4, 4), expected (..., 3, 3)": lambda: spatial.inverse(
        Pose(np.eye(4), np.zeros(3))
    ),
    "a matrix has shape (3, 5), expected (..., 3, 3)": lambda: spatial.inertia_from_com(
        1.0, np.zeros(3), np.zeros((3, 5))
    ),
    "a vector has shape (0,), expected (..., 3)": lambda: spatial.compose(
        Pose(np.eye(3), np.zeros(0)), ORIGIN
    ),
    "a vector has shape (5,), expected (..., 12)": lambda: spatial.momentum_from_moments(Q5),
    "mass is [1.0], expected an array": lambda: spatial.inertia_from_com(
        [1.0], np.zeros(3), np.eye(3)
    ),
    "dt has dtype bool, expected real numbers": lambda: moved(dt=True),
    "offset is True, expected an array of floats": lambda: contact.Plane((0.0, 0.0, 1.0), True),
    "stiffness is [True, 2.0], expected an array of floats": lambda: actuators.PD(
        [True, 2.0], [1.0, 1.0]
    ),
    "servo contains an array of shape (1,), expected arrays": lambda: tendon_servo_step(
        stiffness=np.array(["a"])
    ),
    "a vector has shape (5,), expected (..., 6)": lambda: spatial.cross_force(Q5, Q5),
    "a vector has shape (5,), expected (..., 3)": lambda: spatial.skew(Q5),
    "a vector has shape (5,), expected (..., 10)": lambda: spatial.inertia_matrix(Q5),
    "a vector has shape (7,), expected (..., 10)": lambda: inertial_parameters.pseudo_inertia(
        jnp.zeros(7)
    ),
    "a vector has shape (8,), expected (..., 10)": lambda: (
        inertial_parameters.inertia_from_log_cholesky(jnp.zeros(8))
    ),
    "inertia has shape (10,) and dtype int64": lambda: inertial_parameters.is_physically_consistent(
        jnp.arange(10)
    ),
    "key has shape (3,) and dtype float64": lambda: rbd.random_configuration(ARM, jnp.zeros(3)),
    "q is a Kinematics, expected an array": lambda: rbd.integrate(
        ARM, rbd.forward_kinematics(ARM, Q), Q
    ),
    "v is a Kinematics, expected an array": lambda: rbd.kinetic_energy(
        ARM, Q, rbd.forward_kinematics(ARM, Q)
    ),
    "damping is -1.0, expected finite, 0 or": lambda: algorithms.operational_space_inertia(
        ARM, Q, (TIP,), damping=-1.0
    ),
    "placement.p has shape (2,)": lambda: rbd.model.append_model(
        ARM, ARM, TIP, Pose(np.eye(3), np.zeros(2)), "x"
    ),
    "inertia_com is [[0. 1.": lambda: rbd.model.link_inertia(
        1.0, inertia_com=np.arange(9.0).reshape(3, 3)
    ),
    "rotation is [[2. 0.": lambda: rbd.model.link_inertia(1.0, rotation=2 * np.eye(3)),
    "links is None, expected a sequence of Link": lambda: rbd.build_model(None, []),
    "an entry of links is 'str', expected a Link": lambda: rbd.build_model(["a"], []),
    "an entry of joints is 'int', expected a JointSpec": lambda: rbd.build_model([], [3]),
    "the name of a link is 3, expected": lambda: rbd.build_model([rbd.model.Link(3)], []),
    "the name of a joint is 3, expected": lambda: rbd.build_model(
        [], [rbd.model.JointSpec(3, rbd.model.Fixed(), None, "a")]
    ),
    "name is 5, expected a name": lambda: rbd.build_model([], [], name=5),
    "joints is 'j1', expected a sequence of names": lambda: rbd.model.Follow("j1", sum),
    "block is 2.5, expected None or an integer": lambda: sharding.over_devices(
        sum, MESH, block=2.5
    ),
    "multiple is 2.5, expected an integer": lambda: sharding.pad_batch(Q, 2.5),
    "mesh is None, expected a jax": lambda: sharding.shard_batch(Q, None),
    "in_axes is False, expected 0 or None": lambda: sharding.over_devices(sum, MESH, False),
    "in_axes is (0, 0.0), expected 0 or None": lambda: sharding.over_devices(sum, MESH, (0, 0.0)),
    "function is 3, expected a function of q": lambda: rbd.tangent.gradient(ARM, 3),
    "function is 'f', expected a function of q": lambda: rbd.tangent.jacobian(ARM, "f"),
    "function is None, expected a function of q": lambda: rbd.tangent.hessian(ARM, None),
    "mesh is 2, expected a jax": lambda: sharding.over_devices(sum, 2),
    "the batch has a 'ndarray', expected arrays of JAX": lambda: sharding.local_batch(Q),
    "gear is [inf], expected finite": lambda: actuators.AffineActuators(["a"], gear=[np.inf]),
    "moment is [ 0.  0. inf], expected finite": lambda: actuators.FrameForce(
        TIP, moment=[0, 0, np.inf]
    ),
    "axis is [ 0.  0. inf], expected finite": lambda: actuators.BallTorque("a", [0, 0, np.inf]),
    "rise is [-0.1], expected finite, more than 0": lambda: activation_time(rise=[-0.1]),
    "fall is [inf], expected finite": lambda: activation_time(fall=[np.inf]),
    "width is [nan], expected 0 or more": lambda: activation_time(width=[np.nan]),
    "fall has shape (2,)": lambda: activation_time(fall=[0.1, 0.1]),
    "X_FP.R of sensor 'tilt' is [[2.": lambda: sensors.FrameSensor(
        "tilt", "x_axis", TIP, Pose(2 * np.eye(3), np.zeros(3))
    ),
    "magnetic_field is [ 0.  0. inf]": lambda: sensors.FrameSensor(
        "compass", "magnetometer", TIP, magnetic_field=[0, 0, np.inf]
    ),
    "inertia is [inf": lambda: sensors.SubtreeSensor(
        "load", "force", TIP, inertia=np.full(10, np.inf), carried=[]
    ),
    "position is [ 0.  0. inf], expected finite": lambda: tendons.PathPoint(TIP, [0, 0, np.inf]),
    "tendon 'twice' has the joints ('a', 'a'), expected each joint once": lambda: (
        tendons.FixedTendon("twice", [1.0, 2.0], ["a", "a"])
    ),
    "coefficients is [inf], expected finite": lambda: tendons.FixedTendon("t", {"a": np.inf}),
    "coefficients is None, expected an array": lambda: tendons.FixedTendon("t", None, ["a"]),
    "coefficients is [[inf  1.]], expected finite": lambda: passive.PolynomialDamping(
        ["a"], [[np.inf, 1.0]]
    ),
    "ball_rest is [[0. 0. 0. 0.]], expected no zero rows": lambda: passive.JointSprings(
        balls=["a"], ball_stiffness=[1.0], ball_rest=np.zeros((1, 4))
    ),
    "twist is 'spin', expected an array": lambda: frames.Twist("spin", **LABELS),
    "v is None, expected an array": lambda: (
        frames.GeometricJacobian(np.zeros((6, 2)), **LABELS) @ None
    ),
    "mass is 'heavy', expected an array": lambda: frames.SpatialInertia.from_mass(
        "heavy", frames.Point(np.zeros(3), frame="a"), np.eye(3), frame="a"
    ),
    "mass is -2.0, expected finite, 0 or more": lambda: frames.SpatialInertia.from_mass(
        -2.0, frames.Point(np.zeros(3), frame="a"), np.eye(3), frame="a"
    ),
    "step is None, expected a function": lambda: integrators.rollout(None, (Q,), steps=1),
    "scene is None, expected a Scene": lambda: padded.acting_contacts(None),
    "scene is 'tuple', expected a Scene": lambda: sensors.touch(ARM, (), Q, None),
    "tendons is None, expected a Tendons": lambda: tendons.tendon_dynamics(ARM, None, Q, Q, Q),
    "the first argument is None, expected the Model": lambda: frames.State(None, Q, Q),
    "state is an array of shape (2,), expected a tuple": lambda: integrators.rollout(
        lambda q: (q,), Q, steps=1
    ),
    "p_a is [ 0. nan  0.]": lambda: constraints.point(None, 0, (0, np.nan, 0)),
    "p_b has shape (2,)": lambda: constraints.point(None, 0, p_b=(0, 0)),
    "a vector has shape (9,), expected (..., 4)": lambda: so3.quaternion_multiply(
        jnp.zeros(9), jnp.zeros(4)
    ),
    "a vector has shape (6,), expected (..., 4)": lambda: so3.quaternion_multiply(
        jnp.zeros(4), jnp.zeros(6)
    ),
    "a vector has shape (7,), expected (..., 4)": lambda: so3.quaternion_rotate(
        jnp.zeros(7), jnp.zeros(3)
    ),
    "a vector has shape (1,), expected (..., 4)": lambda: so3.quaternion_conjugate(jnp.zeros(1)),
    "a vector has shape (9,), expected (..., 3)": lambda: so3.cross_matrix(jnp.zeros(9)),
    "q has shape (7,) and dtype float64, expected": lambda: so3.unit_quaternion_log(jnp.zeros(7)),
    "a vector has shape (9,), expected (..., 6)": lambda: se3.cross_matrix(jnp.zeros(9)),
    "a matrix has shape (3, 3), expected (..., 4, 4)": lambda: (
        inertial_parameters.inertia_from_pseudo(jnp.eye(3))
    ),
    "mass is None, expected an array": lambda: spatial.inertia_from_com(
        None, np.zeros(3), np.eye(3)
    ),
    "a parameter of a joint is ('0', '0', '1')": lambda: joints.Revolute(("0", "0", "1")),
    "configuration is True, expected numbers (1,)": lambda: rbd.model.lock_joints(
        ARM, {ARM.joint_names[0]: True}
    ),
    "moment is [[1. 1. 0.]": lambda: frames.SpatialInertia.from_mass(
        1.0,
        frames.Point(np.zeros(3), frame="a"),
        np.eye(3) + np.eye(3, k=1),
        frame="a",
    ),
    "alpha is nan, expected finite": lambda: rbd.interpolate(ARM, Q, Q, np.nan),
    "dtype is None, expected float32 or float64": lambda: ARM.astype(None),
    "function is 3, expected a function of one sample": lambda: sharding.over_devices(3, MESH),
    "strict is 0, expected True or False": lambda: rbd.build_model([], [], strict=0),
    "mass is nan, expected finite": lambda: rbd.model.link_inertia(np.nan),
    "com is [ 0. inf  0.]": lambda: rbd.model.link_inertia(1.0, (0.0, np.inf, 0.0)),
    "step returned PyTreeDef(*), expected the structure": lambda: integrators.rollout(
        lambda q: q, (Q,), steps=1
    ),
    "X is an array of shape (4, 4), expected a Pose": lambda: io.mujoco.mujoco_pose(jnp.eye(4)),
    "xquat is [nan  0.  0.  0.], expected finite": lambda: io.mujoco.pose_from_mujoco(
        np.zeros(3), np.array([np.nan, 0, 0, 0])
    ),
    "pattern has dtype bool, expected real numbers": lambda: scanned(TIP, np.ones((2, 2), bool)),
    "moment has dtype bool, expected real": lambda: frames.SpatialInertia.from_mass(
        1.0, frames.Point(np.zeros(3), frame="a"), np.eye(3, dtype=bool), frame="a"
    ),
    "a pose is of the type ndarray": lambda: se3.log(np.eye(4)),
}


def test_a_robot_without_joints_has_no_momentum():
    model = rbd.model.lock_joints(ARM, dict.fromkeys(ARM.joint_names, 0.0))
    state = frames.State(model, jnp.zeros(0), jnp.zeros(0))
    np.testing.assert_array_equal(state.momentum().array, np.zeros(6))


@pytest.mark.parametrize("message", REFUSED)
def test_values_are_refused_by_name(message):
    with pytest.raises(rbd.ArgumentError) as error:
        REFUSED[message]()
    assert message in str(error.value)


@pytest.mark.parametrize("tag", ["group", "virtual_joint", "end_effector"])
def test_names_that_occur_twice_in_an_srdf_file_are_refused(tag):
    attributes = 'type="fixed" parent_frame="w" child_link="a" parent_link="a" group="g"'
    line = f'<{tag} name="x" {attributes}/>\n'
    with pytest.raises(rbd.RobotFileError, match=f"the {tag} on line 2 has the same name"):
        rbd.io.load_srdf(f'<robot name="r">\n{line}{line}</robot>', ARM)
