"""`jaxrbd check --overlaps`: links whose collision shapes overlap."""

import json

import numpy as np
import pytest

import jaxrbd
from jaxrbd import cli
from jaxrbd.io import _sealed, model_file, urdf as urdf_reader
from jaxrbd.io.mujoco import imported

LINK = """<link name="{0}"><inertial><mass value="1"/>
    <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><geometry><sphere radius="{1}"/></geometry></collision>{2}</link>"""
JOINT = """<joint name="to_{1}" type="revolute"><parent link="{0}"/><child link="{1}"/>
    <origin xyz="{2} 0 0"/><axis xyz="0 0 1"/>
    <limit lower="-4" upper="4" effort="1" velocity="1"/></joint>"""
MESH = """<collision><geometry><mesh filename="package://robot/hand.stl"/></geometry></collision>"""
SRDF = """<robot name="r"><group name="all"><joint name="to_hand"/></group>
    <group_state name="folded" group="all"><joint name="to_lower" value="3.14159265"/></group_state>
    {0}</robot>"""
DISABLED = """<disable_collisions link1="base" link2="hand"/>"""


@pytest.fixture
def urdf(tmp_path):
    """Spheres in a row, 0.5 m apart. In the state "folded" the hand is at the base."""
    links = [LINK.format("base", 0.2, ""), LINK.format("upper", 0.1, "")]
    links += [LINK.format("lower", 0.1, ""), LINK.format("hand", 0.45, MESH)]
    pairs = [("base", "upper", 0.5), ("upper", "lower", 0.5), ("lower", "hand", 0.5)]
    joints = [JOINT.format(*pair) for pair in pairs]
    path = tmp_path / "robot.urdf"
    path.write_text(f"<robot name='r'>{''.join([*links, *joints])}</robot>")
    return path


def check(capsys, *options):
    """The exit status and the messages of the findings."""
    status = cli.main(["check", "--json", "--overlaps", *map(str, options)])
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert {found["severity"] for found in findings} <= {"warning"}
    return status, [found["message"] for found in findings]


def test_links_that_overlap_are_warnings(urdf, tmp_path, capsys):
    srdf = tmp_path / "robot.srdf"
    srdf.write_text(SRDF.format(""))
    status, messages = check(capsys, urdf)
    assert status == 0
    left_out = [text for text in messages if "overlap by" not in text]
    assert len(left_out) == 2  # the mesh is not found, so it has no distances
    assert "hand.stl" in left_out[0]
    assert left_out[1].startswith("no distances of hand 1: MeshFile")
    assert [text for text in messages if "overlap by" in text] == []
    _, messages = check(capsys, urdf, "--srdf", srdf)
    overlaps = [text for text in messages if "overlap by" in text]
    # The hand is 0.5 m from the lower link, towards the base; the upper link is there.
    assert overlaps == [
        "the links 'base' and 'hand' overlap by 0.15 m in the state 'folded'",
        "the links 'upper' and 'hand' overlap by 0.55 m in the state 'folded'",
    ]
    srdf.write_text(SRDF.format(DISABLED))
    assert check(capsys, urdf, "--srdf", srdf)[1] == [*left_out, overlaps[1]]
    assert check(capsys, urdf, "--srdf", srdf, "--strict")[0] == 1
    srdf.write_text(SRDF.format(DISABLED.replace("hand", "Hand")))
    unknown = f"{srdf} disables pairs of unknown links: 'Hand'"
    assert check(capsys, urdf, "--srdf", srdf)[1] == [unknown, *left_out, *overlaps]


MJCF = """<mujoco><worldbody><body name="a"><freejoint/><geom size=".1"/></body>
    <body name="b" pos="0 0 1"><freejoint/><geom size=".2"/></body>
    <body name="c" pos="0 0 1.1"><freejoint/><geom size=".2"/></body></worldbody>
    <contact><exclude body1="b" body2="c"/></contact>
    <keyframe><key name="home" qpos="0 0 0 1 0 0 0 0 .25 0 1 0 0 0 0 0 3 1 0 0 0"/></keyframe>
    </mujoco>"""


def test_an_mjcf_file_has_keyframes_and_excluded_pairs(tmp_path, capsys):
    path = tmp_path / "robot.xml"
    path.write_text(MJCF)
    expected = "the links 'a' and 'b' overlap by 0.05 m in the keyframe 'home'"
    assert check(capsys, path) == (0, [expected])
    assert cli.main(["check", "--overlaps", "--srdf", "x.srdf", str(path)]) == 1
    assert "--srdf is for URDF files" in capsys.readouterr().err


MJCF_ARM = """<mujoco><worldbody><body name="base"><geom size=".3"/>
    <body name="upper" pos="0 0 1"><joint axis="0 1 0"/><geom size=".1"/>
    <body name="lower" pos="0 0 1"><joint axis="0 1 0"/><geom size=".1" pos="0 0 2"/></body></body>
    </body><body name="table"><geom size=".3"/></body></worldbody>
    <contact><exclude body1="lower" body2="table"/></contact>
    <keyframe><key name="folded" qpos="0 3.14159265358979"/></keyframe></mujoco>"""


def test_a_link_of_an_mjcf_file_that_is_fixed_to_the_world_overlaps(tmp_path, capsys):
    path = tmp_path / "robot.xml"
    path.write_text(MJCF_ARM)
    expected = "the links 'base' and 'lower' overlap by 0.4 m in the keyframe 'folded'"
    assert check(capsys, path) == (0, [expected])


@pytest.mark.parametrize("words", [["--srdf", "x.srdf"], ["--package", "a=."]])
def test_an_option_of_overlaps_needs_overlaps(words, urdf, capsys):
    assert cli.main(["check", *words, str(urdf)]) == 1
    assert f"{words[0]} is for --overlaps" in capsys.readouterr().err


def test_a_faulty_file_has_no_overlaps(tmp_path, capsys):
    path = tmp_path / "robot.urdf"
    path.write_text("<robot name='r'><link name='a'/><link name='a'/></robot>")
    assert cli.main(["check", "--overlaps", str(path)]) == 1
    assert "overlap by" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ending", "command", "module", "reader"),
    [
        ("urdf", ("check", "--overlaps"), urdf_reader, "parse_document"),
        ("xml", ("check", "--overlaps"), imported, "_import"),
        pytest.param(
            *("jaxrbd", ("check", "--overlaps"), model_file, "read_sealed"),
            marks=pytest.mark.slow,
        ),
        ("jaxrbd", ("info",), model_file, "read_sealed"),
    ],
)
def test_a_file_is_read_once(tmp_path, monkeypatch, ending, command, module, reader):
    path = tmp_path / f"robot.{ending}"
    if ending == "jaxrbd":
        model = jaxrbd.load_robot("arm7")
        jaxrbd.io.save_model(model, path, {"gain": np.ones(2)})
    else:
        path.write_text(f"<robot name='r'>{LINK.format('a', 1, '')}</robot>")
    if ending == "xml":
        path.write_text(MJCF)
    calls, read = [], getattr(module, reader)
    monkeypatch.setattr(module, reader, lambda *args: [calls.append(args), read(*args)][1])
    assert cli.main([*command, str(path)]) == 0
    assert len(calls) == 1


def test_the_parts_of_a_model_file_are_checked(tmp_path, capsys):
    path, model = tmp_path / "robot.jaxrbd", jaxrbd.load_robot("arm7")
    jaxrbd.io.save_model(model, path, {"noise": jaxrbd.sensors.Noise(0.5)})
    header, body = _sealed.read_sealed(path, "model", model_file.VERSION)
    header["parts"]["noise"]["arguments"]["std"] = -1.0
    _sealed.write_sealed(path, "model", model_file.VERSION, header, body)
    assert cli.main(["check", str(path)]) == 1
    assert "parts['noise']: std is -1.0, expected finite" in capsys.readouterr().out
