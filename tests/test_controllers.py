"""Controllers without JAX: commands of the actuators, in NumPy and in ONNX files."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrbd import envs, learning
from jaxrbd.envs import legged
from jaxrbd.errors import ArgumentError
from support.point import Point, PointWithSecrets
from support.random_policies import HIDDEN, session, trained

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

PPO = learning.Ppo(hidden=HIDDEN)


def outputs(path, **inputs):
    """The outputs of an ONNX file by name."""
    found = session(path)
    names = [x.name for x in found.get_outputs()]
    given = {name: np.asarray(x, np.float32) for name, x in inputs.items()}
    return dict(zip(names, found.run(names, given)))


def close(found, expected, atol):
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


# ------------------------------------------------------------------- a constant center


def stand(rng):
    """A training of a quadruped with another center and scale for each joint."""
    training = trained(PPO, envs.QuadrupedStand(), 45, 12)
    params = training.params
    home = params.home.at[7:].add(jnp.asarray(rng.normal(size=12)))
    training.params = params._replace(home=home, stroke=jnp.asarray(rng.uniform(0.1, 1, 12)))
    return training


def test_targets_are_the_center_and_the_scaled_action(rng, tmp_path):
    training = stand(rng)
    x = rng.normal(size=(20, 45))
    actions = np.asarray(training.policy()(jnp.asarray(x)))
    home, stroke = map(np.asarray, (training.params.home, training.params.stroke))
    expected = home[7:] + stroke * actions
    control = learning.numpy_controller(learning.controller_arrays(training))
    for rows in (slice(None), 3):
        found = control(x[rows])
        close(found.action, actions[rows], 1e-12)
        close(found.targets, expected[rows], 1e-12)
        assert found.history is None
    learning.export_policy(training, tmp_path / "policy.onnx")
    in_file = outputs(tmp_path / "policy.onnx", observation=x)
    assert [*in_file] == ["action", "targets"]
    close(in_file["action"], actions, 1e-5)
    close(in_file["targets"], expected, 1e-5)


def test_the_parameters_of_one_robot_have_another_center(rng):
    training = stand(rng)
    params = training.params._replace(home=training.params.home + 1)
    found, other = (learning.controller_arrays(training, x) for x in (None, params))
    close(other["action_center"], found["action_center"] + 1, 1e-12)
    close(other["mean"], found["mean"], 0)
    broken = training.params._replace(stroke=jnp.full(12, jnp.inf))
    with pytest.raises(ArgumentError, match="action_scale of the controller is not finite"):
        learning.controller_arrays(training, broken)


def test_the_metadata_of_the_file_states_what_the_description_states(rng, tmp_path):
    training = stand(rng)
    learning.export_policy(training, tmp_path / "policy.onnx")
    stated = session(tmp_path / "policy.onnx").get_modelmeta().custom_metadata_map
    description = json.loads((tmp_path / "policy.json").read_text())
    assert stated.pop("units").startswith("SI units")
    assert description["action"].pop("gait") is None
    assert {name: json.loads(text) for name, text in stated.items()} == description
    assert json.loads(stated["action"])["actuators"] == [*training.params.model.joint_names[1:]]
    assert json.loads(stated["control_rate"]) == 50


def test_an_environment_that_states_no_commands_has_no_targets(tmp_path):
    training = trained(PPO, Point(), 1, 1)
    found = learning.controller_arrays(training)
    assert [*found] == [*learning.policy_arrays(training)]
    assert learning.numpy_controller(found)([0.3]).targets is None
    learning.export_policy(training, tmp_path / "policy.onnx")
    assert [*outputs(tmp_path / "policy.onnx", observation=[[0.3]])] == ["action"]


# --------------------------------------------------------------------------- a gait


def trot(rng):
    """A trot with random postures, which need no inverse kinematics, and other gaits of its feet.

    The legs have two or four joints, and the first two joints belong to no leg.
    """
    env = envs.QuadrupedTrot()
    params = env.default_params()
    legs = np.zeros((4, 12))
    for leg, joints in zip(legs, ((2, 3), (4, 5, 6, 7), (8, 9), (10, 11))):
        leg[[*joints]] = 1
    postures = envs.GaitPostures(
        positions=rng.normal(size=(4, 3, 5, 12)),
        low=np.array([-0.1, -0.05, -0.01]),
        high=np.array([0.12, 0.07, 0.06]),
        legs=legs,
        places=rng.normal(size=(4, 3)) * [0.2, 0.1, 0.01] + [0.1, 0, -0.3],
        phases=np.array([0.0, 0.5, 0.5, 0.0]),
        turning=rng.normal(size=12),
        gravity=3.0,
    )
    home = params.home.at[7:].add(jnp.asarray(rng.normal(size=12)))
    params = params._replace(home=home, stroke=jnp.asarray(rng.uniform(0.1, 1, 12)))
    return env, legged.with_gait(params, postures, low=0.1)


def walking(env, params, rng, count=200):
    """A training, observations at any moment of the gait, and the centers of the next step.

    Some displacements of the feet are beyond the grid of the postures.
    """
    commands = jnp.asarray(rng.uniform(-1, 1, (count, 3)) * [0.6, 0.3, 0.8])
    times = jnp.asarray(rng.uniform(0, 5, count))
    # Also where the clock points along an axis, and where a foot is about to touch or to lift.
    axes = params.gait[0] * jnp.array([0.0, 0.25, 0.5, 0.75])
    ends = params.gait[0] * jnp.array([0.5, 1.0, 1.5]) - env.time_step
    times = times.at[:10].set(jnp.concatenate([axes, ends + 1e-4, ends - 1e-4]))
    model = params.model
    n = model.nv - 6
    q = jnp.concatenate([params.home[:7], jnp.asarray(rng.normal(size=n))])

    @jax.jit
    @jax.vmap
    def observed(time, command):
        zero = jnp.zeros(n)
        physics = envs.LeggedPhysics(q, jnp.ones(6 + n), None, zero, None, command, time, None)
        center = env.center(params, time + env.time_step, command)
        return env.observe(params, physics, jax.random.key(0)), center

    x, centers = observed(times, commands)
    training = trained(PPO, env, x.shape[1], n)
    training.params = params
    return training, np.asarray(x), np.asarray(centers)


def check_walking(training, x, centers, tmp_path):
    params = training.params
    actions = np.asarray(training.policy()(jnp.asarray(x)))
    expected = centers + np.asarray(params.stroke) * actions
    assert np.std(centers, axis=0).max() > 0.05
    control = learning.numpy_controller(learning.controller_arrays(training))
    close(control(x).targets, expected, 1e-11)
    close(control(x[5]).targets, expected[5], 1e-11)
    learning.export_policy(training, tmp_path / "policy.onnx")
    close(outputs(tmp_path / "policy.onnx", observation=x)["targets"], expected, 3e-5)


def test_targets_of_a_gait_are_those_of_the_environment(rng, tmp_path):
    env, params = trot(rng)
    training, x, centers = walking(env, params, rng)
    check_walking(training, x, centers, tmp_path)
    description = json.loads((tmp_path / "policy.json").read_text())["action"]
    assert description["center"] is None
    for name, value in env.interface(params).gait.items():
        close(description["gait"][name], value, 1e-15)
    stated = session(tmp_path / "policy.onnx").get_modelmeta().custom_metadata_map["action"]
    assert "gait" not in json.loads(stated)


def test_a_policy_without_the_clock_has_no_targets_of_a_gait(rng):
    """Or without the command: its controller cannot compute the center."""
    env, params = trot(rng)
    for hidden, size in (("command", 3), ("sine_and_cosine_of_gait", 2)):
        blind = envs.Asymmetric(env, (hidden,))
        policy = learning.Ppo(hidden=HIDDEN, policy_observation="state")
        training = trained(policy, blind, 50 - size, 12)
        training.params = params
        found = learning.controller_arrays(training)
        assert "action_scale" not in found
        assert learning.numpy_controller(found)(np.zeros(50 - size)).targets is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["quadruped", "humanoid"])
def test_targets_of_robots_that_follow_a_gait(name, rng, tmp_path):
    """With the postures of inverse kinematics; a step gives the servos these targets."""
    if name == "quadruped":
        env = envs.QuadrupedTrot()
        params = env.default_params()
        frames, phases = params.scene.frames, env.phases
        postures = envs.gait_postures(params.model, params.home, frames, phases)
        params = legged.with_gait(params, postures, low=0.1)
    else:
        env = envs.HumanoidWalk()
        params = env.default_params()
    training, x, centers = walking(env, params, rng)
    check_walking(training, x, centers, tmp_path)
    control = learning.numpy_controller(learning.controller_arrays(training))
    state = env.reset(params, jax.random.key(1))
    step = jax.jit(env.step)
    for _ in range(4):
        found = control(state.observation)
        state = step(params, state, jnp.asarray(found.action))
        close(found.targets, state.physics.past[0], 1e-10)


# ------------------------------------------------------------------------ a history


def histories(env, entry=None):
    """A random policy with a history of three observations, and its observations in an episode."""
    remembering = envs.History(env, 3, entry)
    params = env.default_params()
    step = jax.jit(remembering.step)
    state = jax.jit(remembering.reset)(params, jax.random.key(0))
    states = [state]
    algorithm = learning.Ppo(hidden=HIDDEN, policy_observation=entry)
    x = state.observation if entry is None else state.observation[entry]
    training = trained(algorithm, remembering, x.shape[0], env.action_size)
    for _ in range(5):
        state = step(params, state, training.policy()(state.observation))
        states.append(state)
    return training, states


@pytest.mark.parametrize("entry", [None, "state"])
def test_a_controller_keeps_the_history(entry, tmp_path):
    env = envs.CartPoleSwingUp()
    if entry is not None:
        env = envs.Asymmetric(env, ("velocity",))
    training, states = histories(env, entry)
    params = training.params
    control = learning.numpy_controller(learning.controller_arrays(training))
    learning.export_policy(training, tmp_path / "policy.onnx", history=True)
    history = in_file = None
    for state in states:
        expected = state.observation if entry is None else state.observation[entry]
        action = training.policy()(state.observation)
        newest = state.physics.newest if entry is None else state.physics.newest[entry]
        found = control(newest, history)
        history = found.history
        close(found.action, action, 1e-12)
        close(history, expected, 1e-12)
        close(found.targets, params.force * action, 1e-11)
        if in_file is None:
            in_file = {"next_history": np.tile(newest, 3)[None]}
        in_file = outputs(
            tmp_path / "policy.onnx", newest=newest[None], history=in_file["next_history"]
        )
        assert [*in_file] == ["action", "targets", "next_history"]
        close(in_file["action"][0], action, 1e-5)
        close(in_file["next_history"][0], expected, 1e-6)
        close(in_file["targets"][0], params.force * action, 1e-4)
    assert np.std([state.observation[entry or slice(None)] for state in states], axis=0).max() > 0.1
    description = learning.policy_description(training)["observation"]
    assert (description["history"], description["size"]) == (3, 3 * len(newest))


def test_a_file_has_no_history_by_default(tmp_path):
    """The input is the whole observation, and the output is the same."""
    training, states = histories(envs.CartPoleSwingUp())
    learning.export_policy(training, tmp_path / "policy.onnx")
    x = np.array([state.observation for state in states])
    found = outputs(tmp_path / "policy.onnx", observation=x)
    assert [*found] == ["action", "targets"]
    close(found["action"], training.policy()(jnp.asarray(x)), 1e-5)


def test_histories_that_are_refused(tmp_path):
    training = trained(PPO, Point(), 1, 1)
    with pytest.raises(ArgumentError, match=r"history is True, .* no History"):
        learning.export_policy(training, tmp_path / "policy.onnx", history=True)
    with pytest.raises(ArgumentError, match="history is 1, expected"):
        learning.export_policy(training, tmp_path / "policy.onnx", history=1)
    assert not (tmp_path / "policy.onnx").exists()
    control = learning.numpy_controller(learning.controller_arrays(training))
    with pytest.raises(ArgumentError, match="history is given, expected none"):
        control([0.1], [0.1])
    other_entry = envs.History(PointWithSecrets(), 2, "privileged_state")
    algorithm = learning.Ppo(hidden=HIDDEN, policy_observation="state")
    training = trained(algorithm, other_entry, 1, 1)
    assert "history_length" not in learning.controller_arrays(training)
    training = trained(PPO, envs.History(Point(), 4), 4, 1)
    control = learning.numpy_controller(learning.controller_arrays(training))
    with pytest.raises(ArgumentError, match=r"observation has shape \(4,\), expected \(..., 1\)"):
        control(np.zeros(4))
    with pytest.raises(ArgumentError, match=r"history has shape \(3,\), expected \(..., 4\)"):
        control(np.zeros(1), np.zeros(3))
