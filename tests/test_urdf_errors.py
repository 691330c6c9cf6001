"""Every fault of a URDF file raises an error that names the file, the line and the fault.

The first table changes one place of a correct file. The second one has whole documents.
"""

import re
import shlex
import warnings

import jax
import jaxtyping
import numpy as np
import pytest

from jaxrbd.errors import ArgumentError, InertiaWarning, LimitWarning, RobotFileError
from jaxrbd.io.urdf import load_urdf, parse_urdf, validate_urdf
from support.urdf_text import SOUND

LIMIT = '<limit lower="-1" upper="1" effort="10" velocity="5"/>'
SECOND_INERTIAL = (
    '<inertial><mass value="1"/>'
    '<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>'
)
UPPER, SHOULDER, WRIST = "link 'upper'", "joint 'shoulder'", "joint 'wrist'"

# (text of SOUND, what it is replaced by, line of the fault, words of the message)
FAULTS = {
    # names
    "robot without name": ('<robot name="arm"', "<robot", 1, "<robot> has no attribute 'name'"),
    "robot name empty": ('name="arm"', 'name=" "', 1, '<robot name=" ">', "empty"),
    "link without name": ('<link name="base"/>', "<link/>", 2, "<link> has no attribute 'name'"),
    "link name empty": ('<link name="base"/>', '<link name=""/>', 2, '<link name="">', "empty"),
    "joint without name": ('<joint name="shoulder"', "<joint", 10, "<joint> has no", "'name'"),
    "joint name empty": ('<joint name="shoulder"', '<joint name=""', 10, '<joint name="">'),
    "link twice": ('<link name="hand"/>', '<link name="base"/>', 18, "'base'", "on line 2", "same"),
    "joint twice": ('"wrist"', '"shoulder"', 19, SHOULDER, "on line 10", "same name"),
    "version unknown": ('version="1.0"', 'version="9.9"', 1, 'version="9.9"', "1.0, 1.1, 1.2"),
    "version empty": ('version="1.0"', 'version=""', 1, 'version=""', "expected one of"),
    # link references
    "parent unknown": (
        '<parent link="base"/>',
        '<parent link="x"/>',
        11,
        SHOULDER,
        '"x"',
        "no link",
    ),
    "child unknown": ('<child link="upper"/>', '<child link="x"/>', 12, SHOULDER, '"x"', "no link"),
    "parent missing": ('<parent link="base"/>', "", 10, SHOULDER, "<parent> is missing"),
    "child missing": ('<child link="upper"/>', "", 10, SHOULDER, "<child> is missing"),
    "parent without link": (
        '<parent link="base"/>',
        "<parent/>",
        11,
        SHOULDER,
        "no attribute 'link'",
    ),
    "child empty": ('<child link="upper"/>', '<child link=""/>', 12, SHOULDER, '<child link="">'),
    "two parents": (
        '<parent link="base"/>',
        '<parent link="base"/><parent link="hand"/>',
        11,
        SHOULDER,
        "<parent> is given twice, first on line 11",
    ),
    "two children": ('<child link="upper"/>', '<child link="upper"/>' * 2, 12, "<child>", "twice"),
    "child of two joints": (
        '<child link="hand"/>',
        '<child link="upper"/>',
        3,
        "link 'upper': child of two joints, 'shoulder' (line 10) and 'wrist' (line 19)",
    ),
    # joint type
    "type missing": (' type="revolute"', "", 10, SHOULDER, "<joint> has no attribute 'type'"),
    "type unknown": (
        '"revolute"',
        '"hinge"',
        10,
        SHOULDER,
        '<joint type="hinge">',
        "prismatic, fixed",
    ),
    "type in capitals": ('"revolute"', '"Revolute"', 10, SHOULDER, '<joint type="Revolute">'),
    "type not of URDF": ('"revolute"', '"spherical"', 10, SHOULDER, "floating, planar"),
    # axis
    "axis zero": ('<axis xyz="0 0 1"/>', '<axis xyz="0 0 0"/>', 14, SHOULDER, "<axis xyz>", "zero"),
    "axis NaN": (
        '<axis xyz="0 0 1"/>',
        '<axis xyz="0 nan 1"/>',
        14,
        SHOULDER,
        "'nan' is not finite",
    ),
    "axis infinite": ('<axis xyz="0 0 1"/>', '<axis xyz="0 0 -inf"/>', 14, "'-inf' is not finite"),
    "axis of two": ('<axis xyz="0 0 1"/>', '<axis xyz="0 1"/>', 14, "expected 3 numbers, found 2"),
    "axis of four": ('<axis xyz="0 0 1"/>', '<axis xyz="0 0 1 0"/>', 14, "3 numbers, found 4"),
    "axis empty": ('<axis xyz="0 0 1"/>', '<axis xyz=""/>', 14, '<axis xyz="">', "found 0"),
    "axis in words": ('<axis xyz="0 0 1"/>', '<axis xyz="z"/>', 14, "'z' is not a number"),
    "axis without xyz": ('<axis xyz="0 0 1"/>', '<axis rpy="0 0 1"/>', 14, "no attribute 'xyz'"),
    "axis twice": ('<axis xyz="0 0 1"/>', '<axis xyz="0 0 1"/>' * 2, 14, "<axis>", "twice"),
    # origin
    "origin of two": (
        '<origin xyz="0 0 1"',
        '<origin xyz="0 1"',
        13,
        SHOULDER,
        "<origin",
        "found 2",
    ),
    "origin with commas": ('xyz="0 0 1" rpy', 'xyz="0,0,1" rpy', 13, SHOULDER, "'0,0,1' is not a"),
    "rpy in words": ('rpy="0 0 0"', 'rpy="0 0 pi"', 13, SHOULDER, '<origin rpy="0 0 pi">', "'pi'"),
    "rpy infinite": ('rpy="0 0 0"', 'rpy="0 0 1e999"', 13, SHOULDER, "'1e999' is not finite"),
    "origin twice": (
        '<origin xyz="0 0 1"',
        '<origin/><origin xyz="0 0 1"',
        13,
        "<origin>",
        "twice",
    ),
    "quaternion in 1.0": ('rpy="0 0 0"', 'quat_xyzw="0 0 0 1"', 13, "quat_xyzw", "version"),
    # inertial
    "two inertials": (
        "</inertial>",
        "</inertial>" + SECOND_INERTIAL,
        8,
        UPPER,
        "<inertial>",
        "line 4",
    ),
    "mass missing": ('<mass value="2"/>', "", 4, UPPER, "<mass> is missing"),
    "mass without value": ('<mass value="2"/>', "<mass/>", 6, UPPER, "<mass> has no", "'value'"),
    "mass as text": ('<mass value="2"/>', "<mass>2</mass>", 6, UPPER, "<mass> has no", "'value'"),
    "mass in words": (
        '<mass value="2"/>',
        '<mass value="two"/>',
        6,
        UPPER,
        "'two' is not a number",
    ),
    "mass with unit": (
        '<mass value="2"/>',
        '<mass value="2kg"/>',
        6,
        UPPER,
        "'2kg' is not a number",
    ),
    "mass with comma": (
        '<mass value="2"/>',
        '<mass value="1,5"/>',
        6,
        UPPER,
        "'1,5' is not a number",
    ),
    "mass with underscore": (
        '<mass value="2"/>',
        '<mass value="1_0"/>',
        6,
        "'1_0' is not a number",
    ),
    "mass in hex": ('<mass value="2"/>', '<mass value="0x10"/>', 6, "'0x10' is not a number"),
    "mass in other digits": ('value="2"', 'value="\u0662"', 6, "is not a number"),
    "mass empty": ('<mass value="2"/>', '<mass value=""/>', 6, UPPER, "expected 1 number, found 0"),
    "mass of two": (
        '<mass value="2"/>',
        '<mass value="2 3"/>',
        6,
        UPPER,
        "expected 1 number, found 2",
    ),
    "mass negative": ('<mass value="2"/>', '<mass value="-2"/>', 6, UPPER, '"-2"', "at least 0"),
    "mass NaN": ('<mass value="2"/>', '<mass value="NaN"/>', 6, UPPER, "'NaN' is not finite"),
    "mass infinite": ('<mass value="2"/>', '<mass value="+Infinity"/>', 6, UPPER, "is not finite"),
    "mass too large": ('<mass value="2"/>', '<mass value="1e400"/>', 6, UPPER, "is not finite"),
    "mass twice": ('<mass value="2"/>', '<mass value="2"/>' * 2, 6, UPPER, "<mass>", "twice"),
    "inertia missing": (re.compile("<inertia .*"), "", 4, UPPER, "<inertia> is missing"),
    "inertia without ixy": (' ixy="0"', "", 7, UPPER, "<inertia> has no attribute 'ixy'"),
    "inertia in words": ('ixx="0.3"', 'ixx="big"', 7, UPPER, '<inertia ixx="big">', "not a number"),
    "inertia NaN": ('izz="0.5"', 'izz="nan"', 7, UPPER, '<inertia izz="nan">', "is not finite"),
    "centre of mass NaN": (
        'xyz="0 0 0.1"',
        'xyz="0 0 nan"',
        5,
        UPPER,
        "<origin xyz=",
        "not finite",
    ),
    # limit
    "limit missing": (re.compile("<limit .*"), "", 10, SHOULDER, "<limit> is missing"),
    "effort missing": (' effort="10"', "", 15, SHOULDER, "<limit> has no attribute 'effort'"),
    "velocity missing": (' velocity="5"', "", 15, SHOULDER, "<limit> has no attribute 'velocity'"),
    "limits inverted": ('upper="1"', 'upper="-2"', 15, SHOULDER, "lower -1 lies above upper -2"),
    "lower above absent upper": ('lower="-1" upper="1"', 'lower="1"', 15, "lower 1", "upper 0"),
    "lower NaN": ('lower="-1"', 'lower="nan"', 15, SHOULDER, '<limit lower="nan">', "not finite"),
    "upper in words": ('upper="1"', 'upper="max"', 15, SHOULDER, "'max' is not a number"),
    "effort negative": ('effort="10"', 'effort="-10"', 15, SHOULDER, 'effort="-10"', "at least 0"),
    "velocity negative": ('velocity="5"', 'velocity="-5"', 15, SHOULDER, 'velocity="-5"'),
    "effort infinite": ('effort="10"', 'effort="inf"', 15, SHOULDER, "'inf' is not finite"),
    "limit twice": (LIMIT, LIMIT * 2, 15, SHOULDER, "<limit> is given twice"),
    # dynamics
    "damping negative": (
        'damping="0.1"',
        'damping="-0.1"',
        16,
        SHOULDER,
        'damping="-0.1"',
        "at least 0",
    ),
    "friction negative": ('friction="0.2"', 'friction="-1"', 16, SHOULDER, 'friction="-1"'),
    "damping in words": ('damping="0.1"', 'damping="low"', 16, SHOULDER, "'low' is not a number"),
    "damping NaN": ('damping="0.1"', 'damping="nan"', 16, SHOULDER, "'nan' is not finite"),
    "dynamics twice": ("<dynamics", "<dynamics/><dynamics", 16, SHOULDER, "<dynamics>", "twice"),
    # mimic
    "mimic of nothing": ('joint="shoulder"', 'joint="elbow"', 22, WRIST, '"elbow"', "mimic=False"),
    "mimic of itself": ('joint="shoulder"', 'joint="wrist"', 19, "wrist", "mimic"),
    "mimic of a fixed joint": ('"revolute"', '"fixed"', 19, WRIST, "'shoulder'", "dof"),
    "mimic without joint": (' joint="shoulder"', "", 22, WRIST, "<mimic> has no attribute 'joint'"),
    "multiplier in words": ('multiplier="2"', 'multiplier="-"', 22, WRIST, "'-' is not a number"),
    "offset NaN": ('offset="0.5"', 'offset="nan"', 22, WRIST, "'nan' is not finite"),
    "mimic twice": ("<mimic", '<mimic joint="shoulder"/><mimic', 22, WRIST, "<mimic>", "twice"),
    # xacro
    "expression in a number": (
        '<mass value="2"/>',
        '<mass value="${m}"/>',
        6,
        UPPER,
        '"${m}"',
        "xacro",
    ),
    "expression in a name": ('<link name="hand"/>', '<link name="${p}hand"/>', 18, "xacro"),
    "substitution in a link": (
        '<child link="hand"/>',
        '<child link="$(arg h)"/>',
        21,
        WRIST,
        "xacro",
    ),
    "expression in a type": ('"revolute"', '"${type}"', 10, SHOULDER, "xacro"),
    "macro, prefix undeclared": ('<link name="hand"/>', '<xacro:hand side="l"/>', 18, "xacro"),
    # tree
    "root link twice": (
        '<link name="hand"/>',
        '<link name="hand"/><link name="x"/>',
        18,
        "'base', 'x'",
    ),
    "cycle of all links": (
        '<link name="base"/>',
        '<link name="base"/><joint name="back" type="fixed"><parent link="hand"/>'
        '<child link="base"/></joint>',
        2,
        "no root link",
        "'base', 'upper', 'hand'",
    ),
    "joint of a link to itself": (
        '<parent link="upper"/>',
        '<parent link="hand"/>',
        19,
        "cycle",
        "hand",
    ),
    "link with two parent joints": (
        '<link name="hand"/>',
        '<link name="hand"/><joint name="zip" type="fixed"><parent link="base"/>'
        '<child link="hand"/></joint>',
        18,
        "link 'hand': child of two joints, 'zip' (line 18) and 'wrist' (line 19)",
    ),
}


def broken(what: str) -> str:
    old, new, *_ = FAULTS[what]
    text = old.sub(new, SOUND) if isinstance(old, re.Pattern) else SOUND.replace(old, new, 1)
    assert text != SOUND
    return text


def error_of(text: str, **options) -> RobotFileError:
    with pytest.raises(RobotFileError) as caught:
        load_urdf(text, **options)
    return caught.value


def test_the_sound_robot_is_sound():
    model = load_urdf(SOUND)
    assert (model.nb, model.nq) == (2, 1)
    assert validate_urdf(SOUND) == []


@pytest.mark.parametrize("what", FAULTS)
def test_a_fault_is_named_with_its_line(what):
    _, _, line, *words = FAULTS[what]
    text = broken(what)
    error = error_of(text)
    assert str(error).startswith(f"<string>:{line}: ")
    assert (error.file, error.line) == ("<string>", line)
    for word in words:
        assert word in str(error)
    assert str(error) in validate_urdf(text)


def test_an_error_knows_the_link_or_joint():
    assert error_of(broken("mass negative")).link == "upper"
    assert error_of(broken("axis zero")).joint == "shoulder"
    assert error_of(broken("mimic of itself")).joint == "wrist"
    error = error_of(broken("robot without name"))
    assert (error.link, error.joint) == (None, None)


def test_all_faults_are_found_in_one_pass():
    text = SOUND
    for old, new in (
        ('value="2"', 'value="-2"'),
        ('ixx="0.3"', 'ixx="x"'),
        ('izz="0.5"', 'izz="y"'),
        ('<axis xyz="0 0 1"/>', '<axis xyz="0 0 0"/>'),
        ('upper="1"', 'upper="-2"'),
        ('damping="0.1"', 'damping="-1"'),
        ('<child link="hand"/>', '<child link="nobody"/>'),
        ('offset="0.5"', 'offset="z"'),
    ):
        text = text.replace(old, new, 1)
    lines = [int(fault.split(":")[1]) for fault in validate_urdf(text)]
    assert lines == [6, 7, 7, 14, 15, 16, 21, 22]
    error = error_of(text)
    assert error.line == 6
    assert error.__notes__ == ["7 more; `jaxrbd check` lists all faults"]


@pytest.mark.parametrize("what", FAULTS)
def test_a_fault_is_not_the_cause_of_others(what):
    assert len(validate_urdf(broken(what))) == 1


def test_parse_urdf_raises_what_load_urdf_raises():
    with pytest.raises(RobotFileError, match=re.escape("<string>:6: link 'upper': <mass value=")):
        parse_urdf(broken("mass negative"))


def test_a_default_namespace_is_not_in_messages():
    text = broken("mass negative").replace("<robot ", '<robot xmlns="http://www.ros.org" ')
    assert str(error_of(text)).startswith("<string>:6: link 'upper': <mass value=")


def test_random_damage_gives_a_model_or_a_named_fault(rng):
    words = re.findall(r'"[^"]*"|\w+|\W', SOUND)
    scraps = ["0", "1e308", "5e-324", '""', "<", ">", '"', "</", "&amp;", "<!--", "-->", "1 1"]
    refused = 0
    for _ in range(300):
        damaged = list(words)
        for index in rng.integers(len(words), size=2):
            damaged[index] = str(rng.choice([*scraps, *words]))
        text = "".join(damaged)
        faults = validate_urdf(text)
        if all(": warning: " in fault for fault in faults):
            with warnings.catch_warnings():
                for category in (InertiaWarning, LimitWarning):
                    warnings.simplefilter("ignore", category)
                load_urdf(text)
        else:
            refused += 1
            assert str(error_of(text)) in faults
    assert 20 < refused < 280


# ------------------------------------------------------------------------------------- documents

BILLION = (
    '<!DOCTYPE r [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi"))
    + ']><robot name="&i;"/>'
)
XACRO = 'xmlns:xacro="http://www.ros.org/wiki/xacro"'

DOCUMENTS = {
    "empty element only": ("<", 1, "not well-formed"),
    "truncated": (SOUND[: SOUND.index("</joint>")], 17, "not well-formed", "Premature end"),
    "truncated in a tag": (SOUND[: SOUND.index('"revolute"')], 10, "not well-formed"),
    "tags crossed": ("<robot name='r'>\n<link name='a'>\n</robot></link>", 3, "mismatch: link"),
    "attribute twice": ("<robot name='r'>\n<link name='a' name='b'/></robot>", 2, "redefined"),
    "two documents": (
        "<robot name='r'/>\n<robot name='r'/>",
        2,
        "not well-formed",
        "Extra content",
    ),
    "null byte": ("<robot name='r'>\n\0</robot>", 2, "not well-formed"),
    "lone surrogate": ("<robot name='\ud800'/>", 1, "not well-formed"),
    "entity undefined": ("<robot name='r'>\n<link name='&who;'/></robot>", 2, "'who' not defined"),
    "other root": ("<!-- x -->\n<sdf version='1.7'/>", 2, "expected <robot>", "found <sdf>"),
    "html": ("<html><body>404</body></html>", 1, "found <html>"),
    "robot with a prefix": ('<u:robot xmlns:u="urdf" name="r"/>', 1, "found <u:robot>"),
    "no link": ("<!-- -->\n<robot name='r'/>", 2, "<robot> has no <link>"),
    "DOCTYPE": ("<!DOCTYPE robot>\n<robot name='r'/>", 1, "DOCTYPE"),
    "DOCTYPE further down": (
        '<?xml version="1.0"?>\n<!-- <robot> -->\n<?pi?>\n <!DOCTYPE robot><robot/>',
        4,
        "DOCTYPE",
    ),
    "external entity": (
        '<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/hostname">]><robot name="r">&x;</robot>',
        1,
        "DOCTYPE",
    ),
    "billion laughs": (BILLION, 1, "DOCTYPE"),
    # The pattern must skip the comment of two lines.
    "DOCTYPE after a long comment": (
        "<!-- a\nb -->\n<?pi a\nb?>\n" + BILLION,
        5,
        "DOCTYPE",
    ),
    "nesting bomb": (
        "<robot name='r'>\n" + "<a>" * 100_000 + "</a>" * 100_000 + "</robot>",
        2,
        "not well-formed",
        "depth",
    ),
    "xacro macro": (
        f"<robot name='r' {XACRO}>\n<xacro:property name='m' value='1'/></robot>",
        2,
        "xacro FILE",
    ),
    "xacro below a link": (
        f"<robot name='r' {XACRO}><link name='a'>\n<xacro:if value='1'/></link></robot>",
        2,
        "xacro FILE",
    ),
    "xacro by another prefix": (
        "<robot name='r' xmlns:x='http://ros.org/wiki/xacro'>\n<x:macro name='m'/></robot>",
        2,
        "xacro FILE",
    ),
    "cycle besides the tree": (
        "<robot name='r'><link name='a'/><link name='b'/><link name='c'/>\n"
        "<joint name='j' type='fixed'><parent link='b'/><child link='c'/></joint>\n"
        "<joint name='k' type='fixed'><parent link='c'/><child link='b'/></joint></robot>",
        3,
        "cycle",
        "'b'",
        "'c'",
    ),
    "child of three joints": (
        "<robot name='r'><link name='a'/>\n<link name='b'/>\n"
        "<joint name='k' type='fixed'><parent link='a'/><child link='b'/></joint>\n"
        "<joint name='i' type='fixed'><parent link='a'/><child link='b'/></joint>\n"
        "<joint name='j' type='fixed'><parent link='a'/><child link='b'/></joint></robot>",
        2,
        "link 'b': child of 3 joints, 'k' (line 3), 'i' (line 4) and 'j' (line 5)",
    ),
    "ring of mimic joints": (
        SOUND.replace("<dynamics", '<mimic joint="wrist"/><dynamics'),
        19,
        "ring",
        "'wrist'",
    ),
    "planar axis across the plane": (
        "<robot name='r'><link name='a'/><link name='b'/><joint name='j' type='planar'>"
        "<parent link='a'/><child link='b'/>\n<axis xyz='1 0 0'/></joint></robot>",
        2,
        "joint 'j'",
        "planar",
        "expected z",
    ),
    "planar leader of a mimic": (
        SOUND.replace('"revolute"', '"planar"'),
        19,
        WRIST,
        "'shoulder'",
        "dof",
    ),
    "zero quaternion": (
        "<robot name='r' version='1.1'><link name='a'><inertial>\n"
        "<origin quat_xyzw='0 0 0 0'/><mass value='0'/>"
        "<inertia ixx='0' ixy='0' ixz='0' iyy='0' iyz='0' izz='0'/></inertial></link></robot>",
        2,
        "link 'a'",
        "quat_xyzw",
        "zero",
    ),
    "rpy and quaternion": (
        SOUND.replace('"1.0"', '"1.1"').replace('rpy="0.3 0 0"', 'rpy="0 0 0" quat_xyzw="0 0 0 1"'),
        5,
        UPPER,
        "both rpy and quat_xyzw",
    ),
}


@pytest.mark.parametrize("what", DOCUMENTS)
def test_a_document_that_is_no_robot_is_refused(what):
    text, line, *words = DOCUMENTS[what]
    error = error_of(text)
    assert str(error).startswith(f"<string>:{line}: ")
    for word in words:
        assert word in str(error)
    assert str(error) in validate_urdf(text)


HUGE = {
    "inertia too large": ('xyz="0 0 0.1"', 'xyz="0 0 1e200"', 3, UPPER, "inertia is not finite"),
    "axis of a hinge": ('<axis xyz="0 0 1"/>', '<axis xyz="0 0 1e308"/>', None),
    "poses composed": (
        '<link name="hand"/>',
        '<link name="hand"/><link name="far"/><link name="farther"/>'
        '<joint name="j" type="fixed"><parent link="upper"/><child link="far"/>'
        '<origin xyz="1e308 0 0"/></joint>'
        '<joint name="k" type="fixed"><parent link="far"/><child link="farther"/>'
        '<origin xyz="1e308 0 0"/></joint>',
        18,
        "link 'farther'",
        "pose",
        "float64",
    ),
    "inertias summed": (
        '<link name="hand"/>',
        '<link name="hand"/>'
        + "".join(
            f"<link name='{name}'><inertial><mass value='1e308'/><inertia ixx='0' ixy='0' ixz='0' "
            f"iyy='0' iyz='0' izz='0'/></inertial></link><joint name='to {name}' type='fixed'>"
            f"<parent link='upper'/><child link='{name}'/></joint>"
            for name in "ab"
        ),
        3,
        UPPER,
        "inertia, summed with the links welded to it",
        "float64",
    ),
    "mimic of a mimic": (
        '<link name="hand"/>',
        '<link name="hand"/><link name="c"/><joint name="deep" type="continuous">'
        '<parent link="base"/><child link="c"/>'
        '<mimic joint="wrist" multiplier="1e308" offset="1"/></joint>',
        18,
        "joint 'deep'",
        "mimic",
        "float64",
    ),
}


@pytest.mark.parametrize("what", HUGE)
def test_numbers_that_are_too_large_together_are_refused(what):
    """Each number is finite in the file, but values computed from them are not."""
    old, new, line, *words = HUGE[what]
    text = SOUND.replace(old, new, 1).replace('multiplier="2"', 'multiplier="2e10"')
    if line is None:
        load_urdf(text)
        return
    error = error_of(text)
    assert error.line == line
    for word in words:
        assert word in str(error)
    assert str(error) in validate_urdf(text)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('<mass value="2"/>', '<mass value="1e39"/>', (UPPER, "inertia", "float32")),
        ('xyz="0 0 1" rpy', 'xyz="0 0 1e39" rpy', (SHOULDER, "placement", "float32")),
        ('damping="0.1"', 'damping="1e39"', (SHOULDER, "damping", "float32")),
        ('offset="0.5"', 'offset="1e39"', (WRIST, "mimic", "float32")),
    ],
)
def test_numbers_that_single_precision_cannot_hold_are_refused(old, new, words):
    text = SOUND.replace(old, new, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InertiaWarning)  # inertias are negligible here
        load_urdf(text)
    with jax.enable_x64(False):
        message = str(error_of(text))
        limited = load_urdf(SOUND.replace('effort="10"', 'effort="1e300"'))
    for word in words:
        assert word in message
    assert np.isinf(limited.effort_limit[0]), "a limit out of range is no limit"


def test_links_of_which_several_have_no_finite_inertia_are_all_listed():
    faulty = SOUND.replace('xyz="0 0 0.1"', 'xyz="0 0 1e200"', 1)
    inertial = faulty[faulty.index("<inertial>") : faulty.index("</inertial>") + 11]
    faults = validate_urdf(
        faulty.replace('<link name="hand"/>', f'<link name="hand">{inertial}</link>')
    )
    assert [fault.split(":")[1] for fault in faults] == ["3", "18"]


def test_messages_are_not_as_long_as_what_is_wrong():
    for old in ('"1.0"', '"revolute"', 'link="base"', 'value="2"', 'joint="shoulder"'):
        name = old.partition("=")[0] + "=" if "=" in old else ""
        assert len(str(error_of(SOUND.replace(old, f'{name}"{"1" * 10_000}"')))) < 300


def test_many_roots_are_listed_but_not_without_end():
    links = "\n".join(f"<link name='l{i}'/>" for i in range(100))
    message = str(error_of(f"<robot name='r'>\n{links}</robot>"))
    assert message.startswith("<string>:3: link 'l1'")
    assert message.endswith("'l6', 'l7', ...")


# ----------------------------------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("content", "line", "word"),
    [
        (b"", 1, "empty"),
        (b" \n\t\n", 1, "empty"),
        (b"\xef\xbb\xbf", 1, "empty"),
        (b"hello", 1, "not well-formed"),
        (b"\x7fELF\x02\x01\x01", 1, "not well-formed"),
        (SOUND.encode("utf-16"), 1, "byte 0xff is not UTF-8"),
        (b'<robot name="r">\n<link name="\xe9"/></robot>', 2, "byte 0xe9 is not UTF-8"),
        (SOUND.replace('value="2"', 'value="-2"').encode(), 6, "link 'upper'"),
    ],
)
def test_a_bad_file_is_named(tmp_path, content, line, word):
    path = tmp_path / "bad.urdf"
    path.write_bytes(content)
    for given in (path, str(path)):
        error = error_of(given)
        assert str(error).startswith(f"{path}:{line}: ")
        assert word in str(error)
        assert validate_urdf(given) == [str(error)]


@pytest.mark.parametrize("path", ["no/such.urdf", "", ".", "x" * 10_000, "nul\0.urdf"])
def test_a_file_that_cannot_be_read_is_named(path):
    error = error_of(path)
    assert path[:20] in str(error)
    assert "cannot be read" in str(error)
    assert len(str(error)) < 500
    assert error.line is None
    assert validate_urdf(path) == [str(error)]


@pytest.mark.parametrize(
    ("name", "expanded"),
    [
        ("arm.urdf.xacro", "arm.urdf"),
        ("arm.xacro", "arm.urdf"),
        ("my arm.urdf.xacro", "my arm.urdf"),
        ("arm.urdf", "arm_expanded.urdf"),
        ("arm.srdf.xacro", "arm.srdf"),
        ("arm.xml", "arm_expanded.xml"),
    ],
)
def test_the_command_for_a_xacro_file_has_its_name(tmp_path, name, expanded):
    path = tmp_path / name
    path.write_text(f"<robot name='r' {XACRO}>\n<xacro:property name='m' value='1'/></robot>")
    error = error_of(path)
    command = re.search("`(.*)`", str(error))[1]
    assert shlex.split(command) == ["xacro", str(path), ">", str(tmp_path / expanded)]
    assert error.line == 2
    # An expression in an attribute has the same advice.
    path.write_text(SOUND.replace('"2"', '"${m}"', 1))
    assert f"`{command}`" in str(error_of(path))


def test_a_file_named_xacro_is_refused(tmp_path):
    path = tmp_path / "arm.urdf.xacro"
    path.write_text(SOUND)
    assert "expand it first with `xacro " in str(error_of(path))
    assert validate_urdf(path) == [str(error_of(path))]
    # Files that xacro wrote declare its prefix, too.
    path = tmp_path / "arm.urdf"
    path.write_text(SOUND.replace('<robot name="arm"', f'<robot {XACRO} name="arm"'))
    assert not [fault for fault in validate_urdf(path) if "warning" not in fault]


@pytest.mark.parametrize("given", [SOUND.encode(), None, 3, ["a.urdf"]])
def test_only_paths_and_texts_are_taken(given, monkeypatch):
    # Without the tests' type checker.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ArgumentError, match=f"path_or_text.*found {type(given).__name__}"):
        load_urdf(given)


def test_an_unknown_root_joint_is_refused():
    with pytest.raises(ArgumentError, match=r"'freeflyer'.*'free_flyer'"):
        load_urdf(SOUND, root_joint="freeflyer")


def test_a_joint_may_not_take_the_name_of_a_moving_root_joint():
    text = SOUND.replace('"wrist"', '"root_joint"')
    message = str(error_of(text, root_joint="free_flyer"))
    assert message.startswith("<string>:19: joint 'root_joint'")
    assert "rename" in message


# --------------------------------------------------------------------------------------- inertia

UNPHYSICAL = {
    "triangle inequality": SOUND.replace('izz="0.5"', 'izz="5"'),
    "not positive semidefinite": SOUND.replace('izz="0.5"', 'izz="-0.5"'),
}


@pytest.mark.parametrize("what", UNPHYSICAL)
def test_an_inertia_that_cannot_exist_warns_or_fails(what):
    text = UNPHYSICAL[what]
    with pytest.warns(InertiaWarning, match=f"'upper'.*{what}"):
        load_urdf(text)
    message = str(error_of(text, strict=True))
    assert message.startswith("<string>:3: ")
    assert what in message
    assert validate_urdf(text) == [message.replace(":3: ", ":3: warning: ", 1)]


# (the limit of a joint, the words of the warning, or None)
LIMITS = {
    "no velocity": ('lower="-1" upper="1" effort="0" velocity="0"', "velocity limit 0"),
    "no range": ('lower="0" upper="0" effort="1" velocity="1"', "equal lower and upper"),
    "degrees": ('lower="-15" upper="90" effort="1" velocity="1"', "radians"),
    "a turn and a half": ('lower="-9.42" upper="9.42" effort="1" velocity="1"', None),
    "a number for no limit": ('lower="-1e16" upper="1e16" effort="1" velocity="1"', None),
    "no motor": ('lower="-1" upper="1" effort="0" velocity="1"', None),
}


@pytest.mark.parametrize("what", LIMITS)
def test_limits_that_are_probably_wrong_give_one_warning(what):
    limit, words = LIMITS[what]
    text = SOUND.replace('lower="-1" upper="1" effort="10" velocity="5"', limit)
    assert text != SOUND
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load_urdf(text)
    lines = validate_urdf(text)
    if words is None:
        assert (caught, lines) == ([], [])
        return
    (warning,) = caught
    assert warning.category is LimitWarning
    assert str(warning.message).startswith("<string>: joints have doubtful limits: ")
    assert words in str(warning.message)
    assert "('shoulder'" in str(warning.message)
    assert lines[0].startswith("<string>:10: warning: joint 'shoulder': ")
    assert words in lines[0]


def test_limits_of_several_kinds_give_one_warning_without_followers():
    text = """<robot name="r"><link name="a"/><link name="b"/><link name="c"/><link name="d"/>
    <joint name="j" type="revolute"><parent link="a"/><child link="b"/>
      <limit lower="-180" upper="180" effort="0" velocity="0"/></joint>
    <joint name="k" type="prismatic"><parent link="a"/><child link="c"/>
      <limit lower="90" upper="90" effort="1" velocity="0"/></joint>
    <joint name="l" type="revolute"><parent link="a"/><child link="d"/><mimic joint="j"/>
      <limit lower="0" upper="0" effort="0" velocity="0"/></joint></robot>"""
    with (
        pytest.warns(InertiaWarning),
        pytest.warns(
            LimitWarning,
            match=r"velocity .* \('j', 'k'\); equal .* \('k'\); limits beyond .* \('j'\)$",
        ),
    ):
        load_urdf(text)
    doubts = [line for line in validate_urdf(text) if "limit" in line]
    assert [line.split(":")[1] for line in doubts] == ["2", "2", "4", "4"]


def test_an_inertia_is_reported_beside_other_faults():
    text = UNPHYSICAL["triangle inequality"].replace('damping="0.1"', 'damping="-1"')
    assert [fault.split(":")[1] for fault in validate_urdf(text)] == ["3", "16"]
