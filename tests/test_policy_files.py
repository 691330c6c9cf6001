"""Policies without JAX: their values, and what the files beside them state of the environment."""

import dataclasses
import json
import os
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrbd import cli, envs, learning
from jaxrbd.actuators import PD
from jaxrbd.cli import export_command
from jaxrbd.errors import ArgumentError
from jaxrbd.learning import networks, policy_file
from support import nightly
from support.point import Point, PointWithSecrets
from support.random_policies import HIDDEN, session, trained

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

SIZE, COUNT = 5, 2
ALGORITHMS = {
    "shac": learning.Shac(hidden=HIDDEN),
    "apg": learning.Apg(hidden=HIDDEN),
    "ppo": learning.Ppo(hidden=HIDDEN),
    "with a mirror": learning.Shac(
        hidden=HIDDEN, mirror_observation=(-1, 1, -1, -1, 1), mirror_action=(-1, 1)
    ),
    "of an entry": learning.Ppo(hidden=HIDDEN, policy_observation="state"),
}


def observations(training, n=40):
    """Observations as often as the statistics have seen them, and those that the policy gets."""
    statistics = training.state.statistics

    def draw(seen):
        noise = jax.random.normal(jax.random.key(5), (n, *seen.mean.shape), seen.mean.dtype)
        return seen.mean[None] + jnp.sqrt(seen.variance)[None] * noise

    x = jax.tree.map(draw, statistics, is_leaf=lambda x: isinstance(x, networks.Statistics))
    name = training.algorithm.policy_observation
    return x, np.asarray(x if name is None else x[name])


# -------------------------------------------------------------------------------- the policy


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_policy_in_numpy_and_in_onnx_is_that_of_jax(name, tmp_path):
    training = trained(ALGORITHMS[name], Point(), SIZE, COUNT)
    given, x = observations(training)
    expected = np.asarray(training.policy()(given))
    assert np.std(expected, axis=0).min() > 0.1
    arrays = learning.policy_arrays(training)
    assert all(type(a) is np.ndarray for a in arrays.values())
    in_numpy = learning.numpy_policy(arrays)
    np.testing.assert_allclose(in_numpy(x), expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(in_numpy(x[3].tolist()), expected[3], rtol=0, atol=1e-12)
    learning.export_policy(training, tmp_path / "policy.onnx")
    run = session(tmp_path / "policy.onnx").run
    for rows in (slice(None), slice(7, 8)):
        (found,) = run(["action"], {"observation": x[rows].astype(np.float32)})
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected[rows], rtol=0, atol=1e-5)
    if name == "with a mirror":  # each side is better for some observations, and clearly
        signs = np.array(training.algorithm.mirror_observation)
        value = [
            np.asarray(networks.values(training.state.critic, training.state.statistics, y))
            for y in map(jnp.asarray, (x, x * signs))
        ]
        assert np.abs(value[0] - value[1]).min() > 1e-4
        assert 5 < np.sum(value[0] > value[1]) < 35


def test_the_layout_of_the_graph(tmp_path):
    training = trained(ALGORITHMS["apg"], Point(), 1, 1)
    learning.export_policy(training, tmp_path / "policy.onnx")
    model = onnx.load(tmp_path / "policy.onnx")
    onnx.checker.check_model(model, full_check=True)
    found = session(tmp_path / "policy.onnx")
    ((x,), (action,)) = found.get_inputs(), found.get_outputs()
    assert (x.name, x.shape, x.type) == ("observation", ["batch", 1], "tensor(float)")
    assert (action.name, action.shape, action.type) == ("action", ["batch", 1], "tensor(float)")


def test_the_same_policy_gives_the_same_bytes(tmp_path):
    for name in ("first", "second"):
        training = trained(ALGORITHMS["with a mirror"], Point(), SIZE, COUNT)
        learning.export_policy(training, tmp_path / f"{name}.onnx")
    for ending in ("onnx", "json"):
        first, second = (tmp_path / f"{name}.{ending}" for name in ("first", "second"))
        assert first.read_bytes() == second.read_bytes()


def test_policies_refuse_observations_of_another_size_and_values_that_are_not_finite():
    training = trained(ALGORITHMS["apg"], Point(), SIZE, COUNT)
    policy = learning.numpy_policy(learning.policy_arrays(training))
    with pytest.raises(ArgumentError, match=r"shape \(3, 4\), expected \(..., 5\)"):
        policy(np.zeros((3, 4)))
    with pytest.raises(ArgumentError, match=r"shape \(\), expected \(..., 5\)"):
        policy(np.zeros(()))
    for wrong in (["a"] * 5, [[1.0], [1.0, 2.0]], np.zeros(5, complex)):
        with pytest.raises(ArgumentError, match=r"observation is .*, expected an array of floats"):
            policy(wrong)
    statistics = training.state.statistics
    broken = statistics._replace(mean=statistics.mean.at[1].set(jnp.inf))
    training.state = training.state._replace(statistics=broken)
    with pytest.raises(ArgumentError, match="mean of the policy is not finite"):
        learning.policy_arrays(training)


# ------------------------------------------------------------------ what environments state

TASKS = ("cart-pole", "double-pendulum", "arm-reach", "hopper", "quadruped-trot")


@pytest.mark.parametrize("task", nightly.all_but(TASKS, learning.task_names()))
def test_the_parts_of_observations_and_commands_have_the_sizes_of_the_task(task):
    env = learning.load_task(task)
    params = env.default_params()
    found = env.interface(params)
    shapes = jax.eval_shape(env.reset, params, jax.random.key(0))
    assert sum(size for _, size in found.observation) == shapes.observation.shape[0]
    assert len({name for name, _ in found.observation}) == len(found.observation)
    assert len(found.actuators) == env.action_size
    for name in ("center", "scale", "stiffness", "damping", "effort"):
        x = getattr(found, name)
        assert x is None or x.shape == (env.action_size,)


def parts_of(env, params, observation):
    """The parts of an observation by name."""
    names, sizes = zip(*env.interface(params).observation)
    return dict(zip(names, np.split(np.asarray(observation), np.cumsum(sizes)[:-1])))


def test_the_parts_of_the_observation_of_a_trot_are_what_they_are_called(rng):
    env = envs.QuadrupedTrot()
    params = env.default_params()
    model = params.model
    q = np.concatenate([[0.1, 0.2, 0.3], [0.6, 0.0, 0.0, 0.8], rng.normal(size=12)])
    v, action, command = (jnp.asarray(rng.normal(size=n)) for n in (18, 12, 3))
    physics = envs.LeggedPhysics(
        jnp.asarray(q), v, None, action, None, command, jnp.asarray(0.125), None
    )
    found = parts_of(env, params, jax.jit(env.observe)(params, physics, jax.random.key(0)))
    down = [0.0, -2 * 0.6 * 0.8, -(1 - 2 * 0.6**2)]  # the z axis of the world, negative
    expected = {
        "gravity_direction": down,
        "linear_velocity": v[:3],
        "angular_velocity": v[3:6],
        "joint_positions_minus_pose": [
            q[model.joint(name).q][0] - params.home[model.joint(name).q][0]
            for name in env.interface(params).actuators
        ],
        "joint_velocities": v[6:],
        "last_action": action,
        "command": command,
        "sine_and_cosine_of_gait": [1.0, 0.0],  # a quarter of the period
    }
    assert [*found] == [*expected]
    for name, x in expected.items():
        np.testing.assert_allclose(found[name], x, atol=1e-12, err_msg=name)


def test_the_parts_of_the_observation_of_a_cart_pole_are_what_they_are_called():
    env = envs.CartPoleSwingUp()
    params = env.default_params()
    physics = envs.Motion(jnp.array([0.3, 0.5]), jnp.array([-0.7, 1.1]))
    found = parts_of(env, params, env.observe(params, physics, None))
    expected = [0.3, -0.7, np.sin(0.5), np.cos(0.5), 1.1]
    names = "position velocity sine_of_angle cosine_of_angle angular_velocity".split()
    assert {name: x.item() for name, x in found.items()} == pytest.approx(
        dict(zip(names, expected))
    )


@pytest.mark.parametrize("env", [envs.QuadrupedStand(), envs.ArmReach()])
def test_gains_and_centers_belong_to_the_named_joints(env):
    """With another value for each joint."""
    params = env.default_params()
    model = params.model
    values = np.arange(1.0, model.nv + 1)
    home = params.home.at[-env.action_size :].add(0.01 * np.arange(env.action_size))
    params = params._replace(home=home, control=PD(values, 2 * values, 3 * values))
    scale = 0.1 * np.arange(1.0, env.action_size + 1)
    params = params._replace(**{"stroke" if env.action_size == 12 else "range": scale})
    found = env.interface(params)
    for i, name in enumerate(found.actuators):
        (dof,) = values[model.joint(name).v]
        assert (found.stiffness[i], found.damping[i], found.effort[i]) == (dof, 2 * dof, 3 * dof)
        assert found.center[i] == home[model.joint(name).q] == found.pose[name]
        assert found.scale[i] == scale[i]
    np.testing.assert_array_equal(np.concatenate([*found.pose.values()]), home)


@pytest.mark.slow
def test_the_described_command_is_the_target_of_the_servos(rng):
    env = envs.QuadrupedStand()
    params = env.default_params()._replace(stroke=jnp.asarray(rng.uniform(0.1, 0.5, 12)))
    action = jnp.asarray(rng.uniform(-1, 1, 12))
    after = jax.jit(env.step)(params, env.reset(params, jax.random.key(0)), action)
    found = env.interface(params)
    np.testing.assert_allclose(after.physics.past[0], found.center + found.scale * action)


FILE = """
<mujoco>
  <compiler angle="radian"/>
  <worldbody>
    <body name="upper"><joint name="shoulder" axis="0 1 0" ref="0.2" damping="0.3"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.3" size="0.02" mass="1"/>
      <body name="lower" pos="0 0 -0.3"><joint name="elbow" axis="0 1 0" damping="0.3"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.3" size="0.02" mass="1"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <position name="bend" joint="elbow" kp="50" kv="2" ctrlrange="-1 3"/>
    <motor name="swing" joint="shoulder" ctrlrange="-4 4"/>
  </actuator>
  <sensor><jointpos name="angle" joint="elbow"/></sensor>
</mujoco>
"""


def test_a_task_of_a_file_states_its_actuators():
    """In the order of the file, and the commands are the controls that act."""
    pytest.importorskip("mujoco")
    env = envs.MjcfTask(FILE, {"velocity": 1.0}, ("angle", "v", "action"))
    params = env.default_params()
    found = env.interface(params)
    assert found.observation == (("angle", 1), ("v", 2), ("action", 2))
    assert found.actuators == ("bend", "swing")
    np.testing.assert_array_equal(found.center, [1, 0])
    np.testing.assert_array_equal(found.scale, [2, 4])
    np.testing.assert_array_equal(found.stiffness, [50, 0])
    np.testing.assert_array_equal(found.damping, [2, 0])
    assert {name: x.tolist() for name, x in found.pose.items()} == {
        "shoulder": [0.2],
        "elbow": [0.0],
    }
    assert "path" not in env.settings()
    assert env.settings()["rewards"] == [["velocity", 1.0, "<lambda>"]]
    gain = params.actuators.gain.at[0, 1].set(1.0)  # now it depends on the length
    changed = eqx.tree_at(lambda params: params.actuators.gain, params, gain)
    assert env.interface(changed).stiffness is None


# ------------------------------------------------------------------------- the description


def test_the_description_of_a_hopper():
    training = trained(ALGORITHMS["apg"], envs.auto_reset(envs.Hopper()), 4, 1, jnp.float32)
    params = training.params
    control = dataclasses.replace(params.control, effort=jnp.full(2, jnp.inf))
    params = params._replace(control=control, stroke=jnp.float32(0.1))
    found = json.loads(json.dumps(learning.policy_description(training, params)))
    assert found == {
        "task": "a task",
        "environment": {"name": "Hopper", "settings": {"episode_steps": 100, "smoothing": None}},
        "algorithm": "apg",
        "updates": 2,
        "time_step": 0.02,
        "control_rate": 50.0,
        "observation": {
            "size": 4,
            "entry": None,
            "parts": [
                {"name": "height_minus_standing_height", "size": 1},
                {"name": "leg_position", "size": 1},
                {"name": "vertical_velocity", "size": 1},
                {"name": "leg_velocity", "size": 1},
            ],
            "history": None,
        },
        "action": {
            "size": 1,
            "actuators": ["extension"],
            "command": "target position in m of PD control",
            "center": [0.0],
            "scale": [0.1],
            "gait": None,
        },
        "stiffness": [4000.0],
        "damping": [60.0],
        "effort": [None],
        "pose": None,
    }


def test_an_environment_that_states_nothing():
    """The description has the sizes of the policy, and the entry that it gets."""
    training = trained(ALGORITHMS["of an entry"], PointWithSecrets(), 1, 1)
    found = learning.policy_description(training)
    assert found["observation"] == {
        "size": 1,
        "entry": "state",
        "parts": None,
        "history": None,
    }
    assert found["action"] == {
        "size": 1,
        "actuators": None,
        "command": None,
        "center": None,
        "scale": None,
        "gait": None,
    }
    assert (found["stiffness"], found["pose"], found["control_rate"]) == (None, None, 10.0)


def stating(**stated):
    """A point whose interface has some entries."""

    class Stated(PointWithSecrets):
        def interface(self, params):
            return envs.Interface(**stated)

    return Stated()


def test_the_entry_of_an_observation_has_its_own_parts():
    parts = {"state": (("place", 1),), "privileged_state": (("place", 1), ("friction", 1))}
    training = trained(ALGORITHMS["of an entry"], stating(observation=parts), 1, 1)
    found = learning.policy_description(training)["observation"]["parts"]
    assert found == [{"name": "place", "size": 1}]


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (
            {"observation": (("place", 1), ("speed", 1))},
            "observation .* Stated has the size 2, .*1",
        ),
        ({"actuators": ("a", "b")}, r"actuators of .* has the size \(2,\), expected \(1,\)"),
        ({"center": np.zeros((3, 1))}, r"center of .* has the size \(3, 1\), expected \(1,\)"),
        ({"stiffness": np.zeros(())}, r"stiffness of .* has the size \(\), expected \(1,\)"),
    ],
)
def test_an_interface_with_other_sizes_than_the_policy_is_refused(stated, message):
    training = trained(ALGORITHMS["apg"], stating(**stated), 1, 1)
    with pytest.raises(ArgumentError, match=message):
        learning.policy_description(training)


def test_a_training_with_many_robots_needs_the_parameters_of_one():
    training = trained(ALGORITHMS["apg"], Point(), 1, 1)
    training.params_axes = 0
    with pytest.raises(
        ArgumentError, match="params is missing, expected the parameters of one robot"
    ):
        learning.policy_description(training)
    assert learning.policy_description(training, training.params)["task"] == "a task"


# ----------------------------------------------------------------------------- the command


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    """A file with the training of a point, which `jaxrbd export` loads."""
    path = tmp_path / "checkpoint.jaxrbd"
    learning.Training(learning.Apg(2, 2, (4,), updates=1), Point(), task="cart-pole").save(path)
    monkeypatch.setattr(
        export_command, "load_training", lambda path: learning.load_training(path, Point())
    )
    return str(path)


def test_the_command_writes_both_files(checkpoint, tmp_path, capsys):
    """Also over old ones. The bytes are the same each time."""
    out = tmp_path / "policy.onnx"
    contents = []
    for _ in range(2):
        assert cli.main(["export", checkpoint, str(out)]) == 0
        assert capsys.readouterr().out == f"ok: {out}, {out.with_suffix('.json')}\n"
        contents.append((out.read_bytes(), out.with_suffix(".json").read_bytes()))
    assert contents[0] == contents[1]
    description = json.loads(contents[0][1])
    assert description["environment"] == {"name": "Point", "settings": {"episode_steps": 6}}
    x = np.array([[0.3], [-0.2]], np.float32)
    expected = learning.load_training(checkpoint, Point()).policy()(jnp.asarray(x, float))
    (found,) = session(out).run(None, {"observation": x})
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_the_command_writes_a_file_with_a_history(tmp_path, monkeypatch, capsys):
    path, out = tmp_path / "checkpoint.jaxrbd", tmp_path / "policy.onnx"
    for env, status in ((envs.History(Point(), 3), 0), (Point(), 1)):
        learning.Training(learning.Apg(2, 2, (4,), updates=1), env, task="cart-pole").save(path)
        monkeypatch.setattr(
            export_command, "load_training", lambda path, env=env: learning.load_training(path, env)
        )
        assert cli.main(["export", str(path), str(out), "--history"]) == status
    assert {x.name for x in session(out).get_inputs()} == {"newest", "history"}
    assert "history is True, expected False" in capsys.readouterr().err


def test_outputs_that_the_command_refuses(tmp_path, capsys, monkeypatch):
    """Before it loads the training."""
    monkeypatch.setattr(export_command, "load_training", None)
    (tmp_path / "e.json").mkdir()
    for out, message in {
        "policy.txt": "expected a name that ends in .onnx",
        "policy": "expected a name that ends in .onnx",
        "e.onnx": f"{tmp_path / 'e.json'} is a folder, expected a file",
        "gone/policy.onnx": f"the folder '{tmp_path / 'gone'}' does not exist",
    }.items():
        assert cli.main(["export", "file", str(tmp_path / out)]) == 1
        assert message in capsys.readouterr().err


def test_the_command_does_not_overwrite_the_checkpoint(checkpoint, tmp_path, capsys):
    path, out = tmp_path / "policy.json", tmp_path / "policy.onnx"
    os.rename(checkpoint, path)
    content = path.read_bytes()
    assert cli.main(["export", str(path), str(out)]) == 1
    assert f"OUT is '{out}', but {path} is the checkpoint" in capsys.readouterr().err
    assert path.read_bytes() == content
    assert not out.exists()


def test_files_that_are_no_checkpoints_are_refused(tmp_path, capsys):
    for name, message in {
        "none": "cannot be read",
        "model": "holds a 'model', expected a 'check",
    }.items():
        if name == "model":
            assert cli.main(["convert", "pendulum", str(tmp_path / "model.jaxrbd")]) == 0
        path = tmp_path / f"{name}.jaxrbd"
        assert cli.main(["export", str(path), str(tmp_path / "policy.onnx")]) == 1
        assert message in capsys.readouterr().err
    assert not (tmp_path / "policy.onnx").exists()


def test_the_package_onnx_is_missing(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert cli.main(["export", "file", str(tmp_path / "policy.onnx")]) == 1
    assert "ONNX files need the package onnx: pip install onnx\n" in capsys.readouterr().err
    with pytest.raises(ArgumentError, match="pip install onnx"):
        policy_file.checked_paths(tmp_path / "policy.onnx")
