"""The command line, called in this process: its output, its files, its answers to bad input."""

import argparse
import dataclasses
import importlib.util
import json
import os
import pathlib
import re
import select
import shlex
import shutil
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd
from jaxrbd import cli, learning
from jaxrbd.cli import (
    bench_command,
    completion,
    info_command,
    messages,
    outputs,
    rollout_command,
    train_command,
)
from jaxrbd.cli.overview import overview
from jaxrbd.cli.reports import print_json
from jaxrbd.robots import robot_path
from support.disk import full_disk

BAD = """<robot name="bad">
  <link name="a"/>
  <joint name="j" type="revolute">
    <parent link="a"/>
    <child link="nowhere"/>
    <axis xyz="0 0 0"/>
  </joint>
</robot>
"""

HEAVY_ON_ONE_SIDE = """<robot name="odd">
  <link name="base"/>
  <link name="arm">
    <inertial>
      <mass value="1"/>
      <inertia ixx="1" iyy="1" izz="5" ixy="0" ixz="0" iyz="0"/>
    </inertial>
  </link>
  <joint name="j" type="revolute">
    <parent link="base"/>
    <child link="arm"/>
    <axis xyz="0 1 0"/>
    <limit lower="-1" upper="1" effort="1" velocity="1"/>
    <dynamics damping="0.1" friction="0.2"/>
  </joint>
</robot>
"""


def number_after(words: str, text: str) -> float:
    """The number after the given words in a text."""
    return float(re.search(words + r" ([-+.\de]+)", text).group(1))


@pytest.fixture
def small(tmp_path):
    """The options of a very short rollout, and its output folder."""
    out = tmp_path / "out"
    return ["--batch", "3", "--steps", "5", "--out", str(out)], out


@pytest.mark.slow
def test_rollout_of_the_default_robot(small, capsys):
    options, out = small
    assert cli.main(["rollout", *options]) == 0
    text = capsys.readouterr().out
    assert "quadruped  3 trajectories of 5 steps" in text
    assert "18 dofs (12 driven), float64" in text
    assert len(re.findall(r"15 samples in .* samples/s \(after .* of compilation\)", text)) == 2
    assert number_after("largest", text) < 1e-4  # the start is at rest
    assert number_after("central difference:", text) < 1e-7

    assert (out / "rollout.png").read_bytes().startswith(b"\x89PNG")
    found = np.load(out / "trajectories.npz")
    shapes = {name: found[name].shape for name in found}
    assert shapes == {
        "time": (6,),
        "q": (3, 6, 19),
        "v": (3, 6, 18),
        "tau": (3, 5, 18),
        "cost": (3,),
    }
    np.testing.assert_allclose(np.linalg.norm(found["q"][..., 3:7], axis=-1), 1, atol=1e-12)
    assert np.all(found["tau"][..., :6] == 0)
    assert np.all(np.abs(found["tau"]) <= 0.1 * 36)
    assert np.ptp(found["q"], axis=0).max() > 0.1  # trajectories differ


@pytest.mark.slow
def test_rollout_in_single_precision(small, capsys):
    options, out = small
    assert cli.main(["rollout", "double_pendulum", "--float32", "--no-plot", *options]) == 0
    text = capsys.readouterr().out
    assert "float32" in text
    assert number_after("largest", text) < 1e-2
    assert number_after("central difference:", text) < 1e-4
    assert np.load(out / "trajectories.npz")["q"].dtype == np.float32
    assert not (out / "rollout.png").exists()


@pytest.mark.slow
def test_rollout_in_blocks_is_the_rollout_of_each(tmp_path, capsys, monkeypatch):
    runs = []
    for block in (128, 2):
        monkeypatch.setattr("jaxrbd.cli.rollout_command.BLOCK", block)
        out = tmp_path / str(block)
        options = ["--batch", "3", "--steps", "2", "--no-plot", "--undamped", "--out", str(out)]
        assert cli.main(["rollout", "pendulum", *options]) == 0
        runs.append(np.load(out / "trajectories.npz"))
    for name in runs[0]:
        np.testing.assert_allclose(runs[0][name], runs[1][name], atol=1e-14)
    assert "50%" in capsys.readouterr().err


@pytest.mark.slow
def test_rollout_of_a_file(small, tmp_path, capsys):
    options, _ = small
    path = tmp_path / "odd.urdf"
    path.write_text(HEAVY_ON_ONE_SIDE)
    assert cli.main(["rollout", str(path), "--no-plot", *options]) == 0
    printed = capsys.readouterr()
    assert "dry friction is set to zero" in printed.out
    assert "jaxrbd: warning: " in printed.err
    assert "arm" in printed.err


MJCF = """<mujoco model="swing">
  <worldbody>
    <body name="rod"><joint name="pivot" axis="0 1 0" damping="0.1" {joint}/>
      <geom type="capsule" size="0.1" fromto="0 0 0 0 0 -1"/></body>
  </worldbody>
</mujoco>
"""


def test_mjcf_files(tmp_path, capsys, monkeypatch):
    path = tmp_path / "swing.xml"
    path.write_text(MJCF.format(joint=""))
    assert cli.main(["check", str(path)]) == 0
    assert capsys.readouterr().out == f"ok: {path}\n"
    assert cli.main(["info", str(path)]) == 0
    printed = capsys.readouterr()
    assert "swing: 1 bodies" in printed.out
    assert "pivot  Revolute" in printed.out
    assert printed.err == ""

    path.write_text(
        MJCF.format(joint="").replace(
            "<worldbody>", "<option><flag override='enable'/></option><worldbody>"
        )
    )
    assert cli.main(["check", str(path)]) == 0
    warning = f"{path}: warning: no counterpart for option flag override (parameters of contacts)\n"
    assert capsys.readouterr().out == f"{warning}ok: {path} (1 warning)\n"
    assert cli.main(["check", "--strict", str(path)]) == 1
    assert cli.main(["info", str(path)]) == 0
    assert "no counterpart for option flag override" in capsys.readouterr().err

    ball = np.random.default_rng(0).normal(size=(100, 3))
    ball /= np.linalg.norm(ball, axis=1, keepdims=True)
    asset = f"<asset><mesh name='ball' vertex='{' '.join(map(str, ball.ravel()))}'/></asset>"
    bodies = "<body><freejoint/><geom type='mesh' mesh='ball'/></body>" * 2
    path.write_text(f"<mujoco>{asset}<worldbody>{bodies}</worldbody></mujoco>")
    assert cli.main(["check", str(path)]) == 0
    text = "hulls with fewer vertices than in MuJoCo for 2 meshes: the mesh "
    assert capsys.readouterr().out.startswith(f"{path}: warning: {text}")
    assert cli.main(["info", str(path)]) == 0
    assert capsys.readouterr().err.startswith(f"jaxrbd: warning: {path}: {text}")

    path.write_text(MJCF.format(joint="colour='red'"))
    assert cli.main(["check", str(path)]) == 1
    assert "colour" in capsys.readouterr().out
    assert cli.main(["info", "--free-flyer", str(path)]) == 1
    assert "--free-flyer is for URDF files" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "mujoco", None)
    for command in ("check", "info"):
        assert cli.main([command, str(path)]) == 1
        assert "pip install mujoco" in capsys.readouterr().err


def test_a_rollout_without_torques_says_so(capsys):
    model = jaxrbd.load_robot("double_pendulum")
    options = argparse.Namespace(batch=2, steps=3, dt=0.1)
    for scale, says_so in ((np.zeros(2), True), (np.array([0.0, 1.0]), False)):
        rollout_command._report_inputs(model, scale, options, jax.devices())
        assert ("all torques are zero" in capsys.readouterr().out) == says_so


@pytest.mark.slow
def test_rollout_without_effort_limits_says_so(small, tmp_path, capsys):
    path = tmp_path / "swing.xml"
    path.write_text(MJCF.format(joint=""))
    note = "note       no joint has an effort limit, so all torques are zero\n"
    assert cli.main(["rollout", str(path), "--no-plot", *small[0]]) == 0
    assert note in capsys.readouterr().out
    path.write_text(MJCF.format(joint="actuatorfrcrange='-1 1'"))
    assert cli.main(["rollout", str(path), "--no-plot", *small[0]]) == 0
    assert note not in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("robot", jaxrbd.robot_names())
def test_rollout_of_every_bundled_robot(robot, tmp_path, capsys):
    # The torques make the arm's light wrist too fast for the default step.
    step = {"arm7": "2.5e-4"}.get(robot, "2e-3")
    options = ["--batch", "8", "--dt", step, "--out", str(tmp_path / "out")]
    assert cli.main(["rollout", robot, *options]) == 0
    text = capsys.readouterr().out
    assert number_after("largest", text) < 1e-5
    assert number_after("central difference:", text) < 1e-7


@pytest.mark.slow
def test_rollout_that_diverges(small, capsys):
    options, out = small
    assert cli.main(["rollout", "pendulum", "--dt", "1e9", "--no-plot", *options]) == 1
    assert "become infinite or NaN" in capsys.readouterr().err
    assert not (out / "trajectories.npz").exists()


def test_rollout_without_matplotlib(small, capsys, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert cli.main(["rollout", "pendulum", *small[0]]) == 1
    assert "pip install matplotlib, or --no-plot" in capsys.readouterr().err


def test_rollout_that_cannot_write(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main(["rollout", "pendulum", "--no-plot", "--out", str(tmp_path / "file")]) == 1
    assert "jaxrbd: error: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ["--batch", "0"],
        ["--batch", "foo"],
        ["--steps", "-1"],
        ["--steps", "1.5"],
        ["--dt", "0"],
        ["--dt", "nan"],
        ["--dt", "foo"],
        ["--seed", "x"],
    ],
)
def test_options_out_of_range(options, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["rollout", "pendulum", *options])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert f"argument {options[0]}: expected " in error
    assert f"found {options[1]}" in error.replace("'", "")


def test_info(capsys):
    assert cli.main(["info", "quadruped"]) == 0
    text = capsys.readouterr().out
    assert "quadruped: 13 bodies, 18 frames, nq = 19, nv = 18, 15 kg" in text
    assert "|   |-- " not in text  # the legs are chains: only the trunk has more than one child
    lines = text.splitlines()
    assert "`-- trunk  7.4 kg  [root_joint: FreeFlyer]" in lines
    assert "    |-- front_left_hip  0.6 kg  [front_left_hip_joint: Revolute]" in lines
    (knee,) = [line.split() for line in lines if line.startswith("hind_right_knee_joint")]
    assert knee[1:] == "Revolute hind_right_thigh 18 17 -2.7 0 36 18 0.072 0".split()
    assert "front_left_foot" in text


@pytest.mark.parametrize(
    ("robot", "where"),
    [
        ("cart_pole", "(0, 0, 0.15) m, 0.09 m above the joint slide"),
        ("double_pendulum", "(0, 0, -1) m, 1 m below the joint shoulder"),
    ],
)
def test_info_shows_which_way_neutral_points(robot, where, capsys):
    assert cli.main(["info", robot]) == 0
    assert f"neutral configuration: centre of mass at {where}\n" in capsys.readouterr().out


def test_info_without_gravity_or_mass():
    model = jaxrbd.load_robot("cart_pole")
    weightless = overview(dataclasses.replace(model, gravity=0 * model.gravity)).splitlines()
    assert weightless[1] == "neutral configuration: centre of mass at (0, 0, 0.15) m"
    massless = overview(dataclasses.replace(model, inertia=0 * model.inertia)).splitlines()
    assert massless[1] == "neutral configuration: no moving mass"


def test_info_of_a_robot_on_a_free_flyer(capsys):
    assert cli.main(["info", "cart_pole", "--free-flyer"]) == 0
    text = capsys.readouterr().out
    assert "nq = 9, nv = 8, 6.2 kg in the moving bodies" in text
    assert "every frame is a body frame" in text


def test_info_shows_mimic_joints(tmp_path, capsys):
    path = tmp_path / "twin.urdf"
    text = robot_path("double_pendulum").read_text()
    last = text.rindex("</joint>")
    path.write_text(
        text[:last] + '<mimic joint="shoulder" multiplier="-2" offset="0.5"/>' + text[last:]
    )
    assert cli.main(["info", str(path)]) == 0
    text = capsys.readouterr().out
    assert "nv = 1 (2 with the mimic joints)" in text
    assert re.search(r"elbow +Revolute +upper_rod += -2 shoulder \+ 0.5", text)


@pytest.mark.parametrize("robot", jaxrbd.robot_names())
def test_check_passes_the_bundled_robots(robot, capsys):
    assert cli.main(["check", robot]) == 0
    assert capsys.readouterr().out == f"ok: {robot_path(robot)}\n"


def test_check_lists_the_faults(tmp_path, capsys):
    path = tmp_path / "bad.urdf"
    path.write_text(BAD)
    assert cli.main(["check", str(path)]) == 1
    text = capsys.readouterr().out
    for fault in ("nowhere", "axis"):
        assert fault in text
    assert re.search(rf"{re.escape(str(path))}: \d+ faults?$", text.strip())


def test_check_separates_warnings_from_faults(tmp_path, capsys):
    """The status is 0 with only warnings, 1 with --strict. Errors are printed before warnings."""
    path = tmp_path / "odd.urdf"
    path.write_text(HEAVY_ON_ONE_SIDE)
    warning = f"{path}:3: warning: link 'arm': triangle inequality violated"
    assert cli.main(["check", str(path)]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith(warning)
    assert last == f"ok: {path} (1 warning)"
    assert cli.main(["check", "--strict", str(path)]) == 1
    assert capsys.readouterr().out.splitlines()[1] == f"{path}: 1 warning"
    path.write_text(HEAVY_ON_ONE_SIDE.replace('damping="0.1"', 'damping="-1"'))
    assert cli.main(["check", str(path)]) == 1
    fault, warned, summary = capsys.readouterr().out.splitlines()
    assert fault.startswith(f"{path}:14: joint 'j': <dynamics damping")
    assert warned.startswith(warning)
    assert summary == f"{path}: 1 fault, 1 warning"


def test_check_lists_joints_that_nothing_resists(tmp_path, capsys):
    path = tmp_path / "empty.urdf"
    path.write_text(
        HEAVY_ON_ONE_SIDE.replace('value="1"', 'value="0"')
        .replace("5", "0")
        .replace('ixx="1" iyy="1"', 'ixx="0" iyy="0"')
    )
    assert cli.main(["check", str(path)]) == 0
    warned, summary = capsys.readouterr().out.splitlines()
    assert warned.startswith(f"{path}:9: warning: joint 'j': no link that moves with 'arm' has")
    assert summary == f"ok: {path} (1 warning)"


def test_check_prints_rounding_as_zero(tmp_path, capsys):
    """A rod with inertia 0 about its own axis and a distant center of mass."""
    path = tmp_path / "rod.urdf"
    path.write_text(
        HEAVY_ON_ONE_SIDE.replace("<mass", '<origin xyz="0.3 0.7 0.1" rpy="1 2 3"/><mass').replace(
            'iyy="1" izz="5"', 'iyy="0" izz="2"'
        )
    )
    cli.main(["check", str(path)])
    assert "principal moments 0, 1, 2 kg m^2" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["rollout", "info", "check"])
def test_an_unknown_robot(command, capsys):
    assert cli.main([command, "cow"]) == 1
    error = capsys.readouterr().err
    assert "cow" in error
    assert "quadruped" in error
    assert "did you mean" not in error
    for name, message in {
        "quadrupd": "humanoid; did you mean 'quadruped'?",
        "gone.urdf": "error: file not found: 'gone.urdf'",
        "gone.xml": "error: file not found: 'gone.xml'",
    }.items():
        assert cli.main([command, name]) == 1
        assert message in capsys.readouterr().err


def test_an_unknown_command_or_task(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["chek", "arm7"])
    assert stop.value.code == 2
    assert "did you mean 'check'?" in capsys.readouterr().err
    assert cli.main(["train", "cartpole"]) == 1
    assert "did you mean 'cart-pole'?" in capsys.readouterr().err


def test_an_unknown_option_shows_the_usage_of_its_command(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["check", "arm7", "--strikt"])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("usage: jaxrbd check ")
    assert error.endswith("jaxrbd check: error: unrecognized arguments: --strikt\n")


def test_convert(tmp_path, capsys):
    """MJCF to URDF, URDF to a model file, and back: the same robot."""
    path, urdf, saved = tmp_path / "swing.xml", tmp_path / "swing.urdf", tmp_path / "arm.jaxrbd"
    path.write_text(MJCF.format(joint="range='-90 90'"))
    assert cli.main(["convert", str(path), str(urdf)]) == 1
    head, *lines = capsys.readouterr().err.splitlines()
    assert head == "jaxrbd: error: 2 parts of the robot cannot be in a URDF file:"
    assert lines == [
        f"  joint 'pivot': its {limit} limit is inf, and URDF needs a finite number; "
        "set the limit, or give one by the option --unlimited X"
        for limit in ("effort", "velocity")
    ]
    assert cli.main(["convert", str(path), str(urdf), "--unlimited", "50"]) == 0
    assert capsys.readouterr().out == f"ok: {urdf}\n"
    ours, again = jaxrbd.io.load_mjcf(path).model, jaxrbd.load_urdf(urdf)
    assert again.joint_names == ours.joint_names
    np.testing.assert_allclose(again.inertia, ours.inertia, rtol=0, atol=1e-14)

    assert cli.main(["convert", "arm7", str(saved)]) == 0
    loaded = jaxrbd.io.load_model(saved)
    assert loaded.dtype == np.float64
    np.testing.assert_array_equal(loaded.inertia, jaxrbd.load_robot("arm7").inertia)

    capsys.readouterr()
    assert cli.main(["convert", "arm7", str(tmp_path / "arm.txt")]) == 1
    assert "expected a name that ends in .urdf or .jaxrbd" in capsys.readouterr().err
    assert not (tmp_path / "arm.txt").exists()
    assert cli.main(["convert", str(urdf), str(tmp_path / "." / "swing.urdf")]) == 1
    assert "which is the file of the robot" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "option", "words"),
    [
        (
            "<body><joint name='h' damping='1'/><geom type='ellipsoid' size='1 2 3'/></body>",
            "--no-geometry",
            "leave out the shapes by the option --no-geometry",
        ),
        (
            "<body><geom size='1'/><body><joint name='b'/><geom size='1'/></body>"
            "<body pos='1 1 1'><joint name='a'/><geom size='1'/></body></body>",
            "--reorder",
            "rename a joint, or accept the order by the option --reorder",
        ),
    ],
)
def test_errors_of_convert_name_its_options(text, option, words, tmp_path, capsys):
    path, urdf = tmp_path / "robot.xml", tmp_path / "robot.urdf"
    path.write_text(f"<mujoco><worldbody>{text}</worldbody></mujoco>")
    assert cli.main(["convert", str(path), str(urdf), "--unlimited", "9"]) == 1
    assert capsys.readouterr().err.endswith(f"{words}\n")
    assert cli.main(["convert", str(path), str(urdf), "--unlimited", "9", option]) == 0


def test_every_option_for_an_argument_is_one_of_a_command():
    commands = completion.commands_of(cli._parser()).values()
    known = {option for command in commands for option in command._option_string_actions}
    assert {text.split()[0] for text in messages.OPTIONS.values()} <= known


WITH_PARTS = """<mujoco model="swing">
  <worldbody>
    <geom name="ground" type="plane" size="1 1 1"/>
    <body name="rod"><joint name="pivot" axis="0 1 0" stiffness="2"/>
      <geom name="bar" type="capsule" size="0.1" fromto="0 0 0 0 0 -1"/>
      <body name="tip"><joint name="hinge" axis="1 0 0"/><geom name="ball" size="0.2"/></body>
    </body>
    <body name="block" pos="1 0 0"><joint name="slide" type="slide"/><geom size="0.1"/></body>
  </worldbody>
  <actuator><motor joint="pivot"/><motor joint="hinge"/></actuator>
  <equality><joint joint1="pivot" joint2="hinge"/></equality>
  <keyframe><key name="home"/></keyframe>
</mujoco>
"""


def test_parts_of_mjcf_files_that_are_left_out_are_counted(tmp_path, capsys):
    path, saved = tmp_path / "swing.xml", tmp_path / "swing.jaxrbd"
    path.write_text(WITH_PARTS)
    assert cli.main(["convert", str(path), str(saved)]) == 0
    other = "4 contact points, 2 pairs of shapes, 1 constraint, 1 keyframe\n"
    printed = capsys.readouterr()
    warning = f"jaxrbd: warning: {path}: left out: "
    assert (printed.out, printed.err) == (f"ok: {saved}\n", warning + other)
    parts = jaxrbd.io.load_parts(saved)
    assert len(parts["actuators"].names) == 2
    assert len(parts["passive"].springs.joints) == 1
    assert cli.main(["info", str(path)]) == 0
    assert capsys.readouterr().err == f"{warning}2 actuators, 1 spring, {other}"
    # A model file that comes from a model file keeps the parts.
    again = tmp_path / "again.jaxrbd"
    assert cli.main(["convert", str(saved), str(again)]) == 0
    assert [*jaxrbd.io.load_parts(again)] == [*parts]


@pytest.mark.parametrize("command", ["info", "check"])
def test_a_model_file_with_another_ending_is_named(tmp_path, capsys, command):
    path = tmp_path / "arm.urdf"
    jaxrbd.io.save_model(jaxrbd.load_robot("pendulum"), path)
    assert cli.main([command, str(path)]) == 1
    expected = f"{path}: jaxrbd saved this file, expected a name that ends in .jaxrbd\n"
    assert capsys.readouterr().err == f"jaxrbd: error: {expected}"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
def test_a_pipe_is_no_robot_file(tmp_path, capsys):
    path = tmp_path / "robot.urdf"
    os.mkfifo(path)
    assert cli.main(["info", str(path)]) == 1
    assert "is a pipe or a device, expected a file" in capsys.readouterr().err


def test_delays_that_a_urdf_file_cannot_hold_are_counted(tmp_path, capsys):
    path, saved, urdf = (tmp_path / f"swing.{ending}" for ending in ("xml", "jaxrbd", "urdf"))
    delayed = '<motor joint="hinge" delay="0.01" nsample="9"/>'
    path.write_text(WITH_PARTS.replace('<motor joint="hinge"/>', delayed))
    assert cli.main(["convert", str(path), str(saved)]) == 0
    assert "delayed" not in capsys.readouterr().err
    for robot in (path, saved):
        assert cli.main(["convert", str(robot), str(urdf), "--unlimited", "9"]) == 0
        assert "left out: 2 actuators, 1 delayed control, 1 spring" in capsys.readouterr().err


def test_tendons_are_no_part_of_a_urdf_file(tmp_path, capsys):
    path, out = tmp_path / "swing.xml", tmp_path / "swing.urdf"
    tendon = '<tendon><fixed name="cord"><joint joint="a" coef="1"/></fixed></tendon></mujoco>'
    body = '<body><joint name="a" range="-1 1"/><geom size="1"/></body>'
    path.write_text(f"<mujoco><worldbody>{body}</worldbody>{tendon}")
    assert cli.main(["convert", str(path), str(out), "--unlimited", "9"]) == 1
    assert "a URDF file cannot hold the tendons 'cord': write a .jaxrbd" in capsys.readouterr().err
    assert not out.exists()
    assert cli.main(["convert", str(path), str(out), "--unlimited", "9", "--no-tendons"]) == 0
    assert "left out: 1 tendon\n" in capsys.readouterr().err


def test_a_bad_file_is_a_message(tmp_path, capsys):
    path = tmp_path / "bad.urdf"
    path.write_text(BAD)
    assert cli.main(["info", str(path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"jaxrbd: error: {path}:")
    assert "Traceback" not in error


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"jaxrbd {jaxrbd.__version__}\n"


@pytest.mark.slow
def test_a_reader_that_leaves_early_is_no_error():
    script = "import sys; from jaxrbd import cli; sys.exit(cli.main(['info', 'humanoid']))"
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "BrokenPipe" not in result.stderr


@pytest.mark.parametrize("command", ["info", "check", "rollout"])
def test_a_xacro_file_is_refused_with_the_command_for_it(tmp_path, capsys, command):
    path = tmp_path / "arm.urdf.xacro"
    path.write_text('<robot name="r" xmlns:xacro="http://ros.org/wiki/xacro"><xacro:arm/></robot>')
    assert cli.main([command, str(path)]) == 1
    written = capsys.readouterr()
    expected = f"`xacro {shlex.quote(str(path))} > {shlex.quote(str(tmp_path / 'arm.urdf'))}`"
    assert expected in written.out + written.err


def test_model_files_are_robots(tmp_path, capsys):
    path = str(tmp_path / "two words.jaxrbd")
    assert cli.main(["convert", "double_pendulum", path]) == 0
    assert cli.main(["info", "double_pendulum"]) == 0
    of_robot = capsys.readouterr().out.partition("\n")[2]
    assert cli.main(["info", path]) == 0
    assert capsys.readouterr().out in of_robot
    assert cli.main(["check", path]) == 0
    assert capsys.readouterr().out == f"ok: {path}\n"
    script = f"from jaxrbd import cli; raise SystemExit(cli.main(['check', {path!r}]))"
    environment = {**os.environ, "JAX_ENABLE_X64": "0"}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)
    assert cli.main(["info", path, "--free-flyer"]) == 1
    assert "a model file has its joints" in capsys.readouterr().err
    pathlib.Path(path).write_bytes(b"")
    assert cli.main(["info", path]) == 1
    assert path in capsys.readouterr().err
    assert cli.main(["check", path, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    (finding,) = report["findings"]
    assert (report["file"], report["ok"], finding["severity"]) == (path, False, "fault")
    assert finding["message"] == "the file is empty"


# ------------------------------------------------------------------------------------------- JSON


def documented_fields(command):
    """The fields of the object of a command in docs/commands.md."""
    page = (pathlib.Path(__file__).parents[1] / "docs" / "commands.md").read_text()
    table = page.partition(f"| field of `{command}` |")[2].partition("\n\n")[0]
    return {
        name
        for row in table.splitlines()[2:]
        for name in re.findall(r"`(\w+)`", row[2:].partition(" | ")[0])
    }


def one_object(capsys):
    """The only JSON object on standard output."""
    return json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(name))


@pytest.mark.parametrize("robot", ["quadruped", "cart_pole"])
def test_info_as_json(robot, capsys):
    assert cli.main(["info", robot, "--json"]) == 0
    found, model = one_object(capsys), jaxrbd.load_robot(robot)
    assert set(found) == documented_fields("info")
    assert (found["name"], found["nb"], found["nq"]) == (robot, model.nb, model.nq)
    np.testing.assert_allclose(found["mass"], jaxrbd.total_mass(model), rtol=1e-12)
    com = jaxrbd.center_of_mass(model, jaxrbd.neutral(model))
    np.testing.assert_allclose(found["neutral_center_of_mass"], com, atol=1e-12)
    assert found["gravity"] == [0, 0, -9.81]
    assert [body["name"] for body in found["bodies"]] == list(model.body_names)
    np.testing.assert_allclose([body["mass"] for body in found["bodies"]], model.inertia[:, 0])
    assert [body["parent"] for body in found["bodies"]][:2] == [None, model.body_names[0]]
    assert {frame["name"]: frame["body"] for frame in found["frames"]} == {
        name: None if body < 0 else model.body_names[body]
        for name, body in zip(model.frame_names, model.frame_bodies)
    }
    assert [joint["name"] for joint in found["joints"]] == list(model.joint_names)
    for joint in found["joints"]:
        place = model.joint(joint["name"])
        assert joint["q"] == [place.q.start, place.q.stop]
        assert joint["v"] == [place.v.start, place.v.stop]
        for field, limits in {
            "lower": model.lower_position_limit[place.q],
            "upper": model.upper_position_limit[place.q],
            "effort": model.effort_limit[place.v],
            "velocity": model.velocity_limit[place.v],
            "damping": model.damping[place.v],
        }.items():
            expected = [x if np.isfinite(x) else None for x in np.asarray(limits).tolist()]
            assert joint[field] == expected, (joint["name"], field)


def test_info_as_json_has_all_digits():
    """In a process in which JAX has single precision by default."""
    script = "from jaxrbd import cli; cli.main(['info', 'pendulum', '--json'])"
    environment = {**os.environ, "JAX_ENABLE_X64": "0"}
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(result.stdout)["gravity"] == [0, 0, -9.81]


@pytest.mark.slow
def test_bench_as_json(capsys):
    options = ["--batch", "2", "--jobs", "rnea,gradient", "--seconds", "1e-3", "--float32"]
    assert cli.main(["bench", "pendulum", "--json", *options]) == 0
    report = one_object(capsys)
    assert set(report) == documented_fields("bench")
    assert (report["robot"], report["nv"], report["batch"]) == ("pendulum", 1, 2)
    assert (report["dtype"], report["platform"]) == ("float32", "cpu")
    assert [job["job"] for job in report["jobs"]] == ["rnea", "gradient"]
    for job in report["jobs"]:
        assert 0 < job["fastest"] <= job["median"]
        assert job["states_per_second"] == pytest.approx(1e6 / job["fastest"])


@pytest.mark.slow
def test_bench_measures_what_its_jobs_say():
    model = jaxrbd.load_robot("arm7")
    q, v, tau = (jnp.full(7, x) for x in (0.3, 0.2, 0.1))
    for name in ("rnea", "crba", "forward_dynamics", "rnea_derivatives"):
        job, function = bench_command.JOBS[name], getattr(jaxrbd, name)
        expected = function(model, q) if name == "crba" else function(model, q, v, tau)
        for found, wanted in zip(job(model, q, v, tau), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
    derivative = jaxrbd.forward_dynamics_derivatives(model, q, v, tau).dqdd_dq
    expected = 2 * jaxrbd.forward_dynamics(model, q, v, tau) @ derivative
    found = bench_command.JOBS["gradient"](model, q, v, tau)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * np.max(np.abs(expected)))


def test_calls_last_as_long_as_stated(monkeypatch):
    now = iter(np.arange(0, 1e3, 0.125))
    monkeypatch.setattr(bench_command.time, "perf_counter", lambda: next(now))
    calls = []
    assert len(bench_command._call_times(lambda: calls.append(1), 2.0)) == 16
    assert len(calls) == 17  # one call before the others is not timed
    assert len(bench_command._call_times(lambda: 0, 1e-3)) == bench_command.CALLS


def test_times_are_per_state(monkeypatch):
    monkeypatch.setattr(bench_command, "_call_times", lambda call, seconds: [2.0, 8.0, 4.0])
    model = jaxrbd.load_robot("pendulum")
    [timing] = bench_command.measure(model, ["crba"], batch=4, seconds=1.0, seed=0)
    assert timing[2:] == (5e5, 1e6, 2.0)


def test_bench_shows_a_row_for_each_job(capsys):
    assert cli.main(["bench", "pendulum", "--jobs", "crba", "--seconds", "1e-3"]) == 0
    out = capsys.readouterr().out
    assert "pendulum: 1 degrees of freedom, batch 64, float64" in out
    assert re.search(r"^crba +[\d.]+ s +[\d.]+ us +[\d.]+ us +[\d,]+$", out, re.M)


def test_bench_refuses_an_unknown_job(capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", "pendulum", "--jobs", "rnea,fast"])
    assert "--jobs: 'fast', expected some of forward_kinematics, rnea" in capsys.readouterr().err


def test_info_of_followers_as_json(tmp_path, capsys):
    path = tmp_path / "twin.urdf"
    text = robot_path("double_pendulum").read_text()
    last = text.rindex("</joint>")
    mimic = '<mimic joint="shoulder" multiplier="-2" offset="0.5"/>'
    path.write_text(text[:last] + mimic + text[last:])
    assert cli.main(["info", str(path), "--json"]) == 0
    shoulder, elbow = one_object(capsys)["joints"]
    assert shoulder["follows"] is None
    assert elbow["follows"] == {"joints": ["shoulder"], "multiplier": -2, "offset": 0.5}
    assert elbow["q"] == [1, 1]


def test_check_as_json(tmp_path, capsys):
    assert cli.main(["check", "arm7", "--json"]) == 0
    found = one_object(capsys)
    assert found == {"file": str(robot_path("arm7")), "ok": True, "findings": []}
    assert set(found) == documented_fields("check")
    path = tmp_path / "odd.urdf"
    path.write_text(HEAVY_ON_ONE_SIDE.replace('damping="0.1"', 'damping="-1"'))
    assert cli.main(["check", str(path), "--json"]) == 1
    found = one_object(capsys)
    assert not found["ok"]
    fault, warned = found["findings"]
    assert (fault["severity"], fault["line"], fault["joint"]) == ("fault", 14, "j")
    assert (warned["severity"], warned["line"], warned["link"]) == ("warning", 3, "arm")
    assert fault["message"].startswith("joint 'j': <dynamics damping")
    assert warned["message"].startswith("link 'arm': triangle inequality violated")
    path.write_text(HEAVY_ON_ONE_SIDE)
    assert cli.main(["check", str(path), "--json"]) == 0
    assert one_object(capsys)["ok"]
    assert cli.main(["check", str(path), "--json", "--strict"]) == 1
    assert not one_object(capsys)["ok"]


def test_rollout_as_json(tmp_path, capsys):
    out = tmp_path / "out"
    options = ["--batch", "3", "--steps", "2", "--undamped", "--no-plot", "--out", str(out)]
    assert cli.main(["rollout", "pendulum", "--json", *options]) == 0
    found = one_object(capsys)
    assert set(found) == documented_fields("rollout")
    assert (found["robot"], found["batch"], found["steps"]) == ("pendulum", 3, 2)
    assert (found["dt"], found["dtype"], found["devices"]) == (2e-3, "float64", 1)
    for times in (found["simulate"], found["gradient"]):
        assert times["samples"] == 6
        assert times["seconds"] > 0
        assert times["compile_seconds"] > 0
    assert 0 <= found["energy_error"]["median_at_end"] <= found["energy_error"]["largest"] < 1e-4
    # Over two steps the torques change the cost little, so the difference has rounding errors.
    assert 0 < found["gradient_error"] < 1e-5
    assert found["files"] == [str(out / "trajectories.npz")]
    assert (out / "trajectories.npz").exists()


def test_rollout_of_a_robot_without_joints(tmp_path, capsys):
    """All slopes are 0: their relative error is not 0 / 0."""
    path = tmp_path / "one.urdf"
    path.write_text('<robot name="one"><link name="a"/></robot>')
    options = ["--batch", "2", "--steps", "2", "--no-plot", "--out", str(tmp_path / "out")]
    assert cli.main(["rollout", str(path), "--json", *options]) == 0
    found = one_object(capsys)
    assert (found["nv"], found["gradient_error"]) == (0, 0)


@pytest.mark.parametrize("command", ["info", "check", "rollout"])
def test_an_error_with_json_prints_no_object(command, capsys):
    assert cli.main([command, "cow", "--json"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("jaxrbd: error: ")


def test_numbers_that_are_not_finite_are_null(capsys):
    print_json({"a": [1.0, float("inf")], "b": {"c": float("nan")}, "d": 2})
    assert one_object(capsys) == {"a": [1.0, None], "b": {"c": None}, "d": 2}


# ----------------------------------------------------------------------------- errors, help, status

COMMANDS = tuple("rollout bench info check convert view train play export completion".split())


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_shows_an_example_that_is_valid(command, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([command, "--help"])
    assert stop.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    example = re.search(rf"example: jaxrbd ({command} .*)", text)[1].partition(" && ")[0]
    words = shlex.split(example.partition(" >")[0])
    assert cli._parser().parse_args(words).run is not None


def test_every_command_is_tested_and_documented(capsys):
    assert tuple(cli.commands_of(cli._parser())) == COMMANDS
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    text = capsys.readouterr().out
    commands = re.findall(r"^    (\w+)(?: |$)", text, re.MULTILINE)
    assert sorted(commands) == sorted(COMMANDS)
    page = (pathlib.Path(__file__).parents[1] / "docs" / "commands.md").read_text()
    assert all(f"`jaxrbd {command} " in page for command in commands)


FAULTY = {
    "bytes.urdf": bytes(range(256)),
    "empty.urdf": b"",
    "text.urdf": b"hello",
    "half.xml": b"<mujoco><worldbody>",
    "massless.xml": b"<mujoco>\n<worldbody><body><joint/></body></worldbody></mujoco>",
    "deep.urdf": b"<a>" * 2000,
    "two_roots.urdf": b'<robot name="o"><link name="a&#10;b"/><link name="c"/></robot>',
}


def test_a_missing_mesh_names_the_option_for_its_package(tmp_path, capsys):
    path, png = tmp_path / "arm.urdf", tmp_path / "arm.png"
    path.write_text(
        '<robot name="r"><link name="a"><visual><geometry>'
        '<mesh filename="package://my_arm/a.stl"/></geometry></visual><collision><geometry>'
        '<mesh filename="package://my_arm/hull_a.stl"/></geometry></collision></link></robot>'
    )
    words = "give the folder of the package 'my_arm' by the option --package NAME=DIR"
    assert cli.main(["view", str(path), "--png", str(png)]) == 0
    first, second, *places = capsys.readouterr().err.split("jaxrbd: warning: ")[1:]
    assert (f"{words}; looked for:\n  {tmp_path}" in first, places) == (True, [])
    assert second.endswith(f"a.stl', but there is no such file; {words}\n")
    (tmp_path / "damaged.stl").touch()
    path.write_text(path.read_text().replace("package://my_arm/a.stl", "damaged.stl"))
    assert cli.main(["view", str(path), "--png", str(png)]) == 0
    damaged, missing = capsys.readouterr().err.split("jaxrbd: warning: ")[1:]
    assert ("looked for" in damaged, "looked for" in missing) == (False, True)
    gone = ["--package", f"my_arm={tmp_path / 'gone'}"]
    with pytest.raises(SystemExit) as stop:
        cli.main(["view", str(path), "--png", str(png), *gone])
    assert stop.value.code == 2
    assert f"argument --package: '{tmp_path / 'gone'}' is no folder" in capsys.readouterr().err


def test_a_page_or_picture_in_a_missing_folder_is_an_error_at_the_start(tmp_path, capsys):
    path = str(tmp_path / "gone" / "file")
    for words in (
        ["view", "arm7", "--png"],
        ["play", "x", "--html"],
        ["play", "x", "--video"],
        ["rollout", "--html"],
    ):
        assert cli.main([*words, path]) == 1
        error = f"jaxrbd: error: {words[-1]}: the folder '{tmp_path / 'gone'}' does not exist\n"
        printed = capsys.readouterr()
        assert (printed.out, printed.err) == ("", error)
    assert cli.main(["play", "x", "--html", str(tmp_path)]) == 1
    error = f"jaxrbd: error: --html: '{tmp_path}' is a folder, expected a file\n"
    assert capsys.readouterr().err == error
    assert cli.main(["view", "arm7", "--png", ""]) == 1
    assert capsys.readouterr().err == "jaxrbd: error: --png is '', expected a file\n"
    assert cli.main(["view", "arm7", "--png", "a.jpg"]) == 1
    assert "--png: the name 'a.jpg' ends in '.jpg', expected '.png'" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_named(tmp_path, capsys):
    path = tmp_path / "gone" / "out.urdf"
    assert cli.main(["convert", "pendulum", str(path)]) == 1
    assert capsys.readouterr().err == (f"jaxrbd: error: {path}: No such file or directory\n")


@pytest.mark.parametrize("words", [["rollout", "pendulum", "--no-plot"], ["train", "cart-pole"]])
def test_an_output_folder_that_cannot_be_made_is_named(words, tmp_path, capsys, monkeypatch):
    """Before anything is computed: a file, a folder in a file, a folder without permission."""
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.write_text("not a folder")

    def refuse(**options):
        raise PermissionError(13, "Permission denied", str(options["dir"]))

    monkeypatch.setattr(outputs.tempfile, "TemporaryFile", refuse)
    for out, reason in (
        (file, f"'{file}' is a file, expected a folder"),
        (file / "a" / "b", f"'{file}' is a file, expected a folder"),
        (folder, "Permission denied"),
    ):
        assert cli.main([*words, "--no-cache", "--out", str(out)]) == 1
        assert capsys.readouterr().err == f"jaxrbd: error: output folder {out}: {reason}\n"


def test_an_output_folder_with_a_long_name_is_refused(tmp_path):
    with pytest.raises(jaxrbd.ArgumentError, match=r"output folder .*: File name too long"):
        outputs.make_folder(tmp_path / ("a" * 300))


def test_the_file_that_fills_the_disk_is_named(tmp_path):
    """The files of `rollout` and `train`, by their functions, without a simulation."""
    model, zeros = jaxrbd.load_robot("pendulum"), np.zeros((1, 300, 1))
    options = argparse.Namespace(no_plot=True, html=None, dt=0.1, steps=299)
    found = rollout_command.Outputs((zeros, zeros, zeros), zeros, zeros)
    inputs = rollout_command.Inputs(zeros, zeros, zeros)

    class Endless(learning.Training):
        """A training with many updates and no checkpoint."""

        def __init__(self):
            self.algorithm, self.records = learning.Apg(updates=10**4), []

        def run(self, checkpoint, every, evaluation):
            return (learning.Record(i, i, {"return": 0.0}) for i in range(1, 10**4))

    writers = {
        "trajectories.npz": lambda: rollout_command._write(
            tmp_path, model, options, inputs, found, zeros
        ),
        "metrics.jsonl": lambda: train_command._train(Endless(), tmp_path, [], 9, None),
    }
    for name, write in writers.items():
        with full_disk(), pytest.raises(OSError, match=name) as error:
            write()
        message = messages.error_message(error.value)
        assert message.startswith(f"{tmp_path / name}: ")
        assert "Errno" not in message
        assert "\n" not in message


def test_help_shows_each_default_once(capsys):
    with pytest.raises(SystemExit):
        cli.main(["rollout", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "number of trajectories (default: 1024)" in text
    assert "seed of the random numbers (default: 0)" in text
    assert "output folder (default: rollout-ROBOT) --json" in text
    assert not re.search(r"default: (None|False|\[\])", text)


@pytest.mark.parametrize("name", FAULTY)
def test_errors_are_one_line(name, tmp_path, capsys):
    path = tmp_path / name
    path.write_bytes(FAULTY[name])
    for command in (["info"], ["rollout", "--no-plot"], ["convert"]):
        out = [str(tmp_path / "out.urdf")] if command == ["convert"] else []
        assert cli.main([*command, str(path), *out]) == 1
        printed = capsys.readouterr()
        assert printed.out == ""
        assert re.fullmatch(r"jaxrbd: error: [^\n]+\n", printed.err)
    assert cli.main(["check", str(path)]) == 1
    assert re.fullmatch(r"[^\n]+\n[^\n]+: 1 fault\n", capsys.readouterr().out)


@pytest.mark.gives_nan
@pytest.mark.parametrize(
    "arguments",
    [
        ["convert", "pendulum", "{gone}/out.urdf"],
        ["info", "{folder}"],
        ["rollout", "pendulum", "--batch", "999999999999", "--no-plot", "--out", "{folder}"],
    ],
    ids=["convert", "folder", "memory"],
)
def test_errors_of_files_and_memory_are_one_line(arguments, tmp_path, capsys):
    words = [word.format(gone=tmp_path / "gone", folder=tmp_path) for word in arguments]
    assert cli.main(words) == 1
    assert re.fullmatch(r"jaxrbd: error: [^\n]+\n", capsys.readouterr().err)


@pytest.mark.parametrize(
    "arguments",
    [[], ["cow"], ["info"], ["view", "arm7", "--port", "70000"], ["rollout", "--seed", "1" * 30]],
)
def test_invalid_options_have_the_status_2(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err


def test_an_interrupt_has_the_status_130(monkeypatch, capsys):
    def interrupt(model):
        raise KeyboardInterrupt

    monkeypatch.setattr(info_command, "overview", interrupt)
    assert cli.main(["info", "pendulum"]) == 130
    assert capsys.readouterr().out == ""


# -------------------------------------------------------------------------------- tab completion


def test_completion_needs_shtab(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert cli.main(["completion", "bash"]) == 1
    assert "pip install shtab" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_scripts_have_the_commands(shell, capsys):
    assert cli.main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert all(command in text for command in COMMANDS)
    assert "strict" in text
    assert shell == "tcsh" or "double_pendulum" in text
    assert "cart-pole double-pendulum" in text


@pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("bash") is None, reason="the script needs a recent bash"
)
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("jaxrbd ch", {"check"}),
        ("jaxrbd check --st", {"--strict"}),
        ("jaxrbd info quad", {"quadruped", "quad.urdf"}),
        ("jaxrbd train cart", {"cart-pole"}),
    ],
)
def test_bash_completes(typed, expected, tmp_path, capsys):
    assert cli.main(["completion", "bash"]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    (tmp_path / "quad.urdf").write_text("")
    words = typed.split()
    command = (
        f"source {script}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; "
        "_shtab_jaxrbd; printf '%s\n' \"${COMPREPLY[@]}\""
    )
    result = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert set(result.stdout.split()) == expected


TERMINAL_SHELLS = {
    "zsh": (
        ["zsh", "-f", "-i"],
        "fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D",
        "_jaxrbd",
    ),
    "tcsh": (["tcsh", "-f"], "source {folder}/script", "script"),
}


@pytest.mark.parametrize(
    ("shell", "typed", "completed"),
    [
        ("zsh", "jaxrbd ch", "jaxrbd check "),
        ("zsh", "jaxrbd check --st", "jaxrbd check --strict "),
        ("zsh", "jaxrbd info quadr", "jaxrbd info quadruped "),
        ("zsh", "jaxrbd train cart", "jaxrbd train cart-pole "),
        ("tcsh", "jaxrbd ch", "jaxrbd check "),
        ("tcsh", "jaxrbd info qu", "jaxrbd info quiet.urdf "),
        ("tcsh", "jaxrbd train cart", "jaxrbd train cart-pole "),
    ],
)
def test_a_shell_in_a_terminal_completes(shell, typed, completed, tmp_path, capsys):
    program, setup, name = TERMINAL_SHELLS[shell]
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    assert cli.main(["completion", shell]) == 0
    (tmp_path / name).write_text(capsys.readouterr().out)
    (tmp_path / "quiet.urdf").write_text("")
    lines = f"cd {tmp_path}\n{setup.format(folder=tmp_path)}\n{typed}\t"
    assert completed in terminal_output(program, lines, until=completed)


def terminal_output(program: list[str], typed: str, until: str) -> str:
    """What a program shows in a terminal, without control codes, until a text or for 60 s."""
    launcher = [sys.executable, "-c", "import pty, sys; pty.spawn(sys.argv[1:])", *program]
    process = subprocess.Popen(launcher, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    shown, deadline = "", time.monotonic() + 60
    try:
        process.stdin.write(typed.encode())
        process.stdin.flush()
        while until not in shown and time.monotonic() < deadline:
            if select.select([process.stdout], [], [], 0.5)[0]:
                text = os.read(process.stdout.fileno(), 65536).decode(errors="replace")
                shown = re.sub(r"\x1b\[[\d;?]*[A-Za-z]|\r|.\x08", "", shown + text)
    finally:
        process.kill()
        process.communicate()
    return shown
