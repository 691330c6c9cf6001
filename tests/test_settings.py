"""The package under settings of JAX that refuse what JAX does silently by default."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrbd import (
    actuators,
    algorithms,
    collision,
    constraints,
    contact,
    envs,
    frames,
    inverse_kinematics as ik,
    learning,
    optimal_control,
    so3,
    spatial,
)
from jaxrbd.robots import load_robot
from support import nightly, zoo
from support.algorithms import ALGORITHMS
from support.point import Point


@pytest.fixture(autouse=True)
def strict():
    """JAX refuses operands with different numbers of axes."""
    with jax.numpy_rank_promotion("raise"):
        yield


def test_jax_refuses_other_ranks():
    with pytest.raises(ValueError, match="rank_promotion"):
        jnp.ones((2, 3)) + jnp.ones(3)


BY_DEFAULT = ("forward_kinematics", "rnea_derivatives", "contact_step")


@pytest.mark.parametrize("name", nightly.all_but(BY_DEFAULT, ALGORITHMS))
def test_an_algorithm_and_its_derivatives(name):
    model = zoo.small()
    state = zoo.state(model)

    def total(*state):
        found = jax.tree.leaves(ALGORITHMS[name](model, *state))
        return sum(jnp.sum(x) for x in found if jnp.issubdtype(x.dtype, jnp.floating))

    jax.eval_shape(total if name == "contact_step" else jax.grad(total, (0, 1)), *state)


def test_the_distance_of_two_hulls():
    hull = collision.ConvexMesh(np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]]))

    def distance(p):
        X = spatial.Pose(jnp.eye(3), p)
        return collision.distance(hull, spatial.identity_pose(), hull, X)

    jax.eval_shape(distance, jnp.ones(3))


@pytest.mark.slow
@pytest.mark.parametrize("robot", [zoo.connected, zoo.coupled, zoo.following])
@pytest.mark.parametrize("name", ["forward_dynamics_derivatives", "contact_step", "joint_calc"])
def test_joints_of_all_kinds(robot, name):
    model = robot().with_dissipation()
    jax.eval_shape(lambda *state: ALGORITHMS[name](model, *state), *zoo.state(model))


def test_rotations_of_a_batch():
    w = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)))
    np.testing.assert_allclose(jax.jit(lambda w: so3.log(so3.exp(w)))(w), w, rtol=1e-12)


@pytest.mark.parametrize(
    "algorithm", [learning.Ppo(4, 6, (3,), minibatches=2), learning.Shac(4, 6, (3,))]
)
def test_learning(algorithm):
    env, key = envs.vectorize(envs.auto_reset(Point())), jax.random.key(0)
    params = Point().default_params()
    state = jax.eval_shape(lambda key: algorithm.init(env, params, key), key)
    jax.eval_shape(lambda state: algorithm.update(env, params, state), state)


def test_optimal_control_with_bounds():
    model = load_robot("pendulum")
    problem = optimal_control.Problem(
        optimal_control.state_space(model),
        lambda t, x, u, p: (x[0] + 0.1 * x[1], x[1] + 0.1 * u),
        lambda t, x, u, p: jnp.concatenate([x[0], x[1], u]),
        control_bounds=(-jnp.ones(1), jnp.ones(1)),
    )
    x0 = jnp.ones(1), jnp.zeros(1)
    for rollout in ("linear", "feedback"):
        found = jax.eval_shape(
            lambda x0: optimal_control.solve(
                problem,
                x0,
                None,
                jnp.zeros((5, 1)),
                rollout=rollout,
            ),
            x0,
        )
        assert found.us.shape == (5, 1)


ENVIRONMENTS = {
    "ArmReach": envs.ArmReach,
    "Asymmetric": lambda: envs.Asymmetric(envs.QuadrupedTrot(), "linear_velocity"),
    "CartPoleSwingUp": envs.CartPoleSwingUp,
    "DoublePendulumSwingUp": envs.DoublePendulumSwingUp,
    "History": lambda: envs.History(envs.CartPoleSwingUp(), 2),
    "Hopper": envs.Hopper,
    "HumanoidStand": envs.HumanoidStand,
    "HumanoidWalk": envs.HumanoidWalk,
    "QuadrupedJoystick": envs.QuadrupedJoystick,
    "QuadrupedStand": envs.QuadrupedStand,
    "QuadrupedTrot": lambda: envs.QuadrupedTrot(rough=True),
}
WITHOUT_ROBOT = {"Env", "MjcfTask", "MjcfWalk", "PaddedWalk"}  # base classes, and of files


def test_the_table_has_all_environments():
    kinds = (x for x in map(envs.__dict__.get, envs.__all__) if isinstance(x, type))
    names = {kind.__name__ for kind in kinds if issubclass(kind, envs.Env)}
    assert names - WITHOUT_ROBOT == ENVIRONMENTS.keys()


@pytest.mark.parametrize("name", nightly.all_but(["ArmReach"], ENVIRONMENTS))
def test_environments(name):
    env = ENVIRONMENTS[name]()
    params = env.default_params()
    state = jax.eval_shape(env.reset, params, jax.random.key(0))
    jax.eval_shape(env.step, params, state, jnp.zeros(env.action_size))


def test_velocities_of_inverse_kinematics():
    model = load_robot("arm7")
    q = jnp.zeros(model.nq)
    tasks = [ik.PostureTask(q, 1.0)]
    jax.eval_shape(lambda q: ik.differential_inverse_kinematics(model, q, tasks, 0.1), q)


def test_searches_for_several_frames():
    model = load_robot("humanoid")
    tasks = [ik.FrameTask.position(foot, jnp.zeros(3)) for foot in ("left_foot", "right_foot")]
    jax.eval_shape(lambda key: ik.search_inverse_kinematics(model, tasks, key), jax.random.key(0))


def test_a_hinge():
    model = load_robot("arm7")
    hinge = constraints.hinge(None, "tool", (0.0, 1.0, 0.0))
    state = jnp.zeros((2, model.nq))
    jax.eval_shape(lambda x: constraints.constraint_rows(model, *x, [hinge]), state)


def test_servos_of_actuators():
    model = load_robot("double_pendulum")
    motors = actuators.AffineActuators(model.joint_names)
    state = jnp.zeros((2, 2))
    jax.eval_shape(lambda x: contact.servo_of_actuators(motors, model, *x), state)


def test_the_momentum_of_a_state():
    model = load_robot("humanoid")
    q, v = jnp.ones(model.nq), jnp.ones(model.nv)
    jax.eval_shape(lambda q, v: frames.State(model, q, v).momentum().array, q, v)


def test_a_body_regressor_of_two_ranks():
    found = jax.eval_shape(algorithms.body_regressor, jnp.ones((4, 1, 6)), jnp.ones((3, 6)))
    assert found.shape == (4, 3, 6, 10)
