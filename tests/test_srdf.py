"""SRDF files: configurations, groups, disabled collisions; errors name the line and the joint."""

import numpy as np
import pytest

import jaxrbd
from jaxrbd.errors import RobotFileError
from jaxrbd.io import (
    DisabledCollision,
    EndEffector,
    Group,
    VirtualJoint,
    load_srdf,
    load_urdf,
)
from jaxrbd.model import Mimic
from support import real_robots, zoo
from support.urdf_text import SOUND

pytestmark = pytest.mark.filterwarnings("ignore::jaxrbd.InertiaWarning")

TEXT = """\
<robot name="arm">
  <!-- a comment -->
  <group name="whole">
    <joint name="shoulder"/>
    <link name="hand"/>
    <chain base_link="base" tip_link="hand"/>
    <group name="other"/>
  </group>
  <group_state name="bent" group="whole">
    <joint name="root_joint" value="1 2 3 0 0 0 1"/>
    <joint name="shoulder" value="0.5"/>
  </group_state>
  <group_state name="up">
    <joint name="shoulder" value="-1"/>
  </group_state>
  <group_state name="bent" group="other"><joint name="shoulder" value="0.5"/></group_state>
  <virtual_joint name="float" type="floating" parent_frame="map" child_link="base"/>
  <end_effector name="tool" parent_link="hand" group="other" parent_group="whole"/>
  <end_effector name="tip" parent_link="hand" group="other"/>
  <passive_joint name="wrist"/>
  <disable_collisions link1="base" link2="upper" reason="Adjacent"/>
  <disable_collisions link1="upper" link2="hand"/>
  <link_sphere_approximation link="hand"/>
</robot>
"""


def arm():
    return load_urdf(SOUND, root_joint="free_flyer")


def test_everything_in_a_file():
    found = load_srdf(TEXT, arm())
    neutral = np.array([0, 0, 0, 0, 0, 0, 1, 0.0])
    assert found.name == "arm"
    assert list(found.configurations) == ["bent", "up"]
    np.testing.assert_array_equal(found.configurations["bent"], [1, 2, 3, 0, 0, 0, 1, 0.5])
    np.testing.assert_array_equal(found.configurations["up"], [*neutral[:7], -1])
    names = [(state.name, state.group, state.joints) for state in found.states]
    assert names == [
        ("bent", "whole", ("root_joint", "shoulder")),
        ("up", "", ("shoulder",)),
        ("bent", "other", ("shoulder",)),
    ]
    np.testing.assert_array_equal(found.states[2].q, [*neutral[:7], 0.5])
    whole = Group("whole", ("shoulder",), ("hand",), (("base", "hand"),), ("other",))
    assert found.groups == {"whole": whole}
    assert found.virtual_joints == {"float": VirtualJoint("float", "floating", "map", "base")}
    assert found.end_effectors == {
        "tool": EndEffector("tool", "hand", "other", "whole"),
        "tip": EndEffector("tip", "hand", "other", ""),
    }
    assert found.passive_joints == ("wrist",)
    assert found.disabled_collisions == (
        DisabledCollision("base", "upper", "Adjacent"),
        DisabledCollision("upper", "hand", ""),
    )


def test_configurations_have_the_dtype_of_the_model(tmp_path):
    path = tmp_path / "arm.srdf"
    path.write_text(TEXT)
    found = load_srdf(path, arm().astype(np.float32))
    assert found.configurations["bent"].dtype == np.float32
    assert found.states[0].q.dtype == np.float32


def state(*joints):
    inside = "\n".join(f'<joint name="{name}" value="{value}"/>' for name, value in joints)
    return f'<robot name="r">\n<group_state name="s">\n{inside}\n</group_state></robot>'


def test_the_rest_of_a_configuration_is_neutral_for_every_joint_kind():
    for model in (zoo.connected(), zoo.coupled()):
        name = model.joint_names[1]
        found = load_srdf(state((name, "0.25")), model).configurations["s"]
        expected = np.array(jaxrbd.neutral(model))
        expected[model.joint(name).q] = 0.25
        np.testing.assert_array_equal(found, expected)


def test_a_compound_joint_has_the_values_of_its_stages():
    model = zoo.build(["euler", "revolute"], [-1, 0])
    found = load_srdf(state(("j0", "1 2 3"), ("j1", "4")), model)
    np.testing.assert_array_equal(found.configurations["s"], [1, 2, 3, 4])
    found = load_srdf(state(("j0.2", "5")), model)
    np.testing.assert_array_equal(found.configurations["s"], [0, 5, 0, 0])


def test_a_stage_and_its_joint_have_the_same_value():
    model = zoo.build(["euler", "revolute"], [-1, 0])
    found = load_srdf(state(("j0.2", "2"), ("j0", "1 2 3"), ("j0.2", "2")), model)
    np.testing.assert_array_equal(found.configurations["s"], [1, 2, 3, 0])
    assert found.states[0].joints == ("j0.2", "j0")
    for joints, words in (
        ([("j0.2", "5"), ("j0", "1 2 3")], r"joint 'j0': .* \[5\.0\] on line 3 and \[2\.0\] here"),
        ([("j0", "1 2 3"), ("j0.2", "5")], r"'j0\.2': .* \[2\.0\] on line 3 and \[5\.0\] here"),
    ):
        with pytest.raises(RobotFileError, match=words):
            load_srdf(state(*joints), model)


FAULTS = {
    "unknown joint": ([("elbow", "1")], 3, ["joint 'elbow'", "no moving joint", "skip_unknown"]),
    "second joint": ([("j0", "1"), ("elbow", "1")], 4, ["joint 'elbow'"]),
    "follower": ([("j2", "1")], 3, ["joint 'j2'", "follows another joint"]),
    "too few values": ([("j1", "0 0 1")], 3, ["joint 'j1'", "expected 4 numbers, found 3"]),
    "too many values": ([("j0", "0 1")], 3, ["joint 'j0'", "expected 1 number, found 2"]),
    "not a number": ([("j0", "pi")], 3, ["joint 'j0'", "'pi' is not a number"]),
    "not finite": ([("j0", "nan")], 3, ["joint 'j0'", "not finite"]),
    "zero quaternion": ([("j1", "0 0 0 0")], 3, ["joint 'j1'", "quaternion has norm 0"]),
    "large quaternion": ([("j1", "0 0 0 2")], 3, ["joint 'j1'", "norm 2, expected 1"]),
    "two values": ([("j0", "1"), ("j0", "2")], 4, ["joint 'j0'", "[1.0] on line 3 and [2.0]"]),
    "empty name": ([("", "1")], 3, ["a name may not be empty"]),
    "xacro": ([("j0", "${x}")], 3, ["joint 'j0'", "xacro"]),
}


def chain():
    mimics = {2: Mimic("j0")}
    return zoo.build(["revolute", "spherical", "revolute"], [-1, 0, 1], mimics=mimics)


@pytest.mark.parametrize(("joints", "line", "words"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_named_with_its_line(joints, line, words):
    with pytest.raises(RobotFileError) as error:
        load_srdf(state(*joints), chain())
    assert error.value.line == line
    assert str(error.value).startswith(f"<string>:{line}: ")
    assert all(word in str(error.value) for word in words), str(error.value)
    if joints[-1][0]:
        assert error.value.joint == joints[-1][0]


def test_unknown_joints_can_be_skipped():
    text = state(("elbow", "1 2"), ("j2", "1"), ("j0", "3"))
    found = load_srdf(text, chain(), skip_unknown_joints=True)
    assert found.states[0].joints == ("j0",)
    np.testing.assert_array_equal(found.configurations["s"], [3, 0, 0, 0, 1])
    with pytest.raises(RobotFileError, match="found 2"):  # other faults remain
        load_srdf(state(("j0", "1 2")), chain(), skip_unknown_joints=True)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("<sdf/>", 1, "expected <robot> as the outermost element, found <sdf>"),
        ("<robot/>", 1, "<robot> has no attribute 'name'"),
        ("<robot name='r'>\n<group/></robot>", 2, "<group> has no attribute 'name'"),
        ("<robot name='r'>\n<group_state/></robot>", 2, "<group_state> has no attribute 'name'"),
        ("<robot name='r'>\n<link name='a'/></robot>", 2, "found <link> in <robot>"),
        (
            "<robot name='r'>\n<disable_collisions link1='a'/></robot>",
            2,
            "<disable_collisions> has no attribute 'link2'",
        ),
        (
            "<robot name='r'><group name='g'>\n<chain base_link='a'/></group></robot>",
            2,
            "<chain> has no attribute 'tip_link'",
        ),
        (
            "<robot name='r'><group_state name='s'>\n<joint name='j0'/></group_state></robot>",
            2,
            "<joint> has no attribute 'value'",
        ),
    ],
)
def test_a_wrong_element_is_named_with_its_line(text, line, words):
    with pytest.raises(RobotFileError) as error:
        load_srdf(text, chain())
    assert error.value.line == line
    assert words in str(error.value)


# Pairs of an SRDF file and a URDF file of one robot; the flag: whether the SRDF file has values of
# joints that the URDF file does not have, or that are fixed there.
PAIRS = [
    ("hyq_description/srdf/hyq.srdf", "hyq_description/robots/hyq_no_sensors.urdf", False),
    ("go1_description/srdf/go1.srdf", "go1_description/urdf/go1.urdf", False),
    ("xarm_description/srdf/xarm7.srdf", "xarm_description/urdf/xarm7.urdf", False),
    ("pr2_description/srdf/pr2.srdf", "pr2_description/urdf/pr2.urdf", False),
    ("centauro_description/srdf/centauro.srdf", "centauro_description/urdf/centauro.urdf", False),
    ("solo_description/srdf/solo.srdf", "solo_description/robots/solo12.urdf", False),
    ("romeo_description/srdf/romeo.srdf", "romeo_description/urdf/romeo_small.urdf", True),
    ("finger_edu_description/srdf/finger_edu.srdf", None, True),
]


@pytest.mark.parametrize(
    ("srdf", "urdf", "partial"),
    # The second robot has a free-flyer joint, and the last file no URDF file of its name.
    [
        pytest.param(*pair, marks=() if pair in (PAIRS[0], PAIRS[-1]) else pytest.mark.slow)
        for pair in PAIRS
    ],
)
def test_configurations_are_those_of_pinocchio(srdf, urdf, partial):
    pin = pytest.importorskip("pinocchio")
    from jaxrbd.io.pinocchio import coordinate_map

    path = real_robots.path_of(srdf)
    urdf = urdf or next(f for f in real_robots.FILES if f.startswith(srdf.partition("/")[0]))
    model = real_robots.load(urdf, "free_flyer")
    pin_model = pin.buildModelFromUrdf(str(real_robots.path_of(urdf)), pin.JointModelFreeFlyer())
    pin.loadReferenceConfigurations(pin_model, str(path), False)
    coordinates = coordinate_map(pin_model, model)
    if partial:
        with pytest.raises(RobotFileError, match="skip_unknown_joints"):
            load_srdf(path, model)
    found = load_srdf(path, model, skip_unknown_joints=partial)
    expected = {entry.key(): entry.data() for entry in pin_model.referenceConfigurations}
    assert set(found.configurations) == set(expected) != set()
    for name, q_pin in expected.items():
        zoo.close(found.configurations[name], coordinates.q(q_pin), 1e-15, name)
    count = path.read_text().count("<disable_collisions ")
    assert abs(len(found.disabled_collisions) - count) <= path.read_text().count("<!--")


def test_every_file_is_read():
    model = arm()
    files = sorted(real_robots.ROOT.rglob("*.srdf")) if real_robots.ROOT else []
    if not files:
        pytest.skip("example-robot-data is not installed")
    pairs = 0
    for path in files:
        pairs += len(load_srdf(path, model, skip_unknown_joints=True).disabled_collisions)
    assert len(files) >= 38
    assert pairs > 5000


def test_a_zero_quaternion_of_a_free_flyer_is_refused():
    text = state(("root_joint", "1 2 3 0 0 0 0"))
    with pytest.raises(RobotFileError, match=r"joint 'root_joint'.*quaternion has norm 0"):
        load_srdf(text, arm())


def test_a_rounded_quaternion_is_normalised():
    found = load_srdf(state(("j1", "0.5 0.5 0.5 0.5003")), chain()).configurations["s"]
    np.testing.assert_allclose(np.linalg.norm(found[1:5]), 1, rtol=1e-15)


def test_the_first_fault_of_the_file_is_raised():
    text = """<robot name="r">
    <group_state name="s" group="g"><joint name="shoulder" value="nan"/></group_state>
    <passive_joint/></robot>"""
    with pytest.raises(RobotFileError, match="joint 'shoulder'") as error:
        load_srdf(text, arm())
    assert error.value.line == 2
