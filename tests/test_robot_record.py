"""A checkpoint states its robot, and another robot does not continue its training."""

import dataclasses
import types

import pytest

from jaxrbd import envs, learning
from jaxrbd.errors import SavedFileError
from jaxrbd.io import _sealed
from jaxrbd.learning import checkpoint
from jaxrbd.learning.robot_record import robot_differences, robot_record
from jaxrbd.robots import load_robot
from support import zoo
from support.point import Point

APG = learning.Apg(2, 2, (3,), updates=1)


def point_of(model):
    """A point whose parameters contain any robot; its name and its settings are always the same."""

    class PointOf(Point):
        def default_params(self):
            return super().default_params()._replace(model=model)

    return PointOf()


def training(model):
    return learning.Training(APG, point_of(model))


def test_a_checkpoint_of_another_robot_is_refused(tmp_path):
    """By the name of a joint or of a link, or by the structure; other masses are no difference."""
    path, model = tmp_path / "file", load_robot("double_pendulum")
    training(model).save(path)
    heavy = dataclasses.replace(model, name="heavy", inertia=2 * model.inertia)
    training(heavy).load(path)
    learning.load_training(path, point_of(heavy))
    joints, links = model.joint_names, model.body_names
    for changes, message in (
        ({"joint_names": joints[::-1]}, f"its joint 0 is {joints[0]!r}, expected {joints[1]!r}$"),
        ({"body_names": (links[0], "claw")}, f"its link 1 is {links[1]!r}, expected 'claw'$"),
    ):
        with pytest.raises(SavedFileError, match=message):
            training(dataclasses.replace(model, **changes)).load(path)
    with pytest.raises(SavedFileError, match="its joint 0 is 'shoulder', expected "):
        learning.load_training(path, point_of(load_robot("arm7")))


def test_a_checkpoint_of_another_structure_is_refused(tmp_path):
    """With the same names: a joint of another kind, or on another body."""
    path = tmp_path / "file"

    def chain(kinds, parents):
        return training(zoo.build(kinds, parents))

    chain(["revolute"] * 3, [-1, 0, 1]).save(path)
    chain(["revolute"] * 3, [-1, 0, 1]).load(path)
    for other in (
        (["revolute"] * 3, [-1, 0, 0]),
        (["revolute", "revolute", "prismatic"], [-1, 0, 1]),
    ):
        with pytest.raises(SavedFileError, match="its digest of the joints of "):
            chain(*other).load(path)


def test_older_checkpoints_do_not_state_the_robot(tmp_path):
    path, model = tmp_path / "file", load_robot("double_pendulum")
    training(model).save(path)
    header, body = _sealed.read_sealed(path, "checkpoint", checkpoint.VERSION)
    del header["about"]["robot"]
    _sealed.write_sealed(path, "checkpoint", checkpoint.VERSION, header, body)
    training(load_robot("arm7")).load(path)


def test_actuators_and_lists_that_differ_are_named():
    model = load_robot("pendulum")

    def record(*names):
        return robot_record(types.SimpleNamespace(model=model, actuators=Names(names)))

    @dataclasses.dataclass
    class Names:
        names: tuple

    one, two = record("a"), record("b", "c")
    assert [*robot_differences(one, one)] == []
    assert [*robot_differences(one, two)] == [
        ("actuator 0", "a", "b"),
        ("number of actuators", 1, 2),
    ]
    none = robot_record(types.SimpleNamespace(model=model))
    assert [*robot_differences(one, none)] == [("list of actuators", ["a"], None)]
    assert [name for name, _, _ in robot_differences(3, none)][-1] == "digest of the joints of None"
    assert robot_record(types.SimpleNamespace()) is None
    assert [*robot_differences(one, None)] == []


def test_robots_from_files_with_other_names():
    """Of a walk, whose settings do not contain the file, and of a task with actuators."""
    pytest.importorskip("mujoco")
    file = """
    <mujoco>
      <worldbody>
        <geom type="plane" size="5 5 1"/>
        <body name="trunk" pos="0 0 0.4"><freejoint/>
          <geom type="box" size="0.2 0.2 0.05" mass="4"/>
          <body name="leg"><joint name="knee" axis="0 1 0" armature="0.02"/>
            <geom type="box" size="0.2 0.2 0.02" pos="0 0 -0.3" mass="1"/></body>
        </body>
      </worldbody>
      <actuator><position name="servo" joint="knee" kp="50" kv="2" ctrlrange="-2 2"/></actuator>
    </mujoco>
    """
    renamed = file.replace("knee", "ankle")
    walks = [envs.MjcfWalk(text) for text in (file, renamed)]
    assert walks[0].settings() == walks[1].settings()
    first, second = (robot_record(walk.default_params()) for walk in walks)
    assert [*robot_differences(first, second)] == [("joint 1", "knee", "ankle")]
    texts = file, file.replace('name="servo"', 'name="motor"')
    tasks = [envs.MjcfTask(text, {"alive": 1.0}) for text in texts]
    first, second = (robot_record(task.default_params()) for task in tasks)
    assert [*robot_differences(first, second)] == [("actuator 0", "servo", "motor")]
