"""MJCF files: every feature without a counterpart is named, and faults of files are errors."""

import sys
import warnings

import mujoco
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd.io.mujoco import from_mujoco, load_mjcf
from jaxrbd.io.mujoco.imported import is_mjcf

# The places of a small model that a case fills; the rest has a counterpart.
TEXT = """
<mujoco>
  <compiler angle="radian"/>
  <option {option}><flag {flag}/></option>
  {top}
  <worldbody>
    <geom name="floor" type="plane" size="1 1 1" {floor}/>
    {world}
    <body name="base" pos="0 0 1" {base}>
      {base_joint}
      <geom name="hull" {hull}/>
      <site name="s0"/>
      <body name="arm" {arm}>
        <joint name="hinge" {hinge}/>
        <geom name="link" size="0.1" pos="0.1 0 0" {link}/>
        <site name="s1"/>
        <body name="wrist">
          <joint name="ball" type="ball" {ball}/>
          <geom name="tip" type="sphere" size="0.1" pos="0 0.1 0" contype="0" conaffinity="0"/>
        </body>
      </body>
    </body>
  </worldbody>
  {bottom}
</mujoco>
"""
PLACES = dict.fromkeys(
    "option flag top floor world base base_joint hull arm hinge link ball bottom".split(), ""
)
PLACES["hull"] = "size='0.1'"
PLACES["base_joint"] = "<freejoint name='free'/>"
MUSCLE = "0.75 1.05 1 200 0.5 1.6 1.5 1.3 1.2"
WEAK = MUSCLE.replace("1.3 1.2", "1.3 0.5")
IDLE_TENDON = "<tendon><fixed name='t'><joint joint='hinge' coef='1'/></fixed></tendon>"
PLASTIC = IDLE_TENDON.replace("name=", "stiffness='1' springyield='1' name=")


def text(**places):
    return TEXT.format(**PLACES | places)


RING = "type='sdf' mesh='ring'"  # no surface that jaxrbd knows
RINGS = """<extension><plugin plugin="mujoco.sdf.torus"><instance name="ring">
    <config key="radius1" value="0.35"/><config key="radius2" value="0.15"/>
  </instance></plugin></extension>
  <asset><mesh name="ring"><plugin instance="ring"/></mesh></asset>"""


def geom(attributes):
    plugin = "<plugin instance='ring'/>" if RING in attributes else ""
    return f"<geom {attributes}>{plugin}</geom>"


def actuator(what):
    return f"<actuator>{what}</actuator>"


def general(attributes):
    return actuator(f"<general name='m' joint='hinge' {attributes}/>")


# name: (the changed places, the text in `omitted`)
REFUSED = {
    "override": ({"flag": "override='enable'"}, "option flag override (parameters of contacts)"),
    "gravcomp without motors": (
        {"arm": "gravcomp='0.5'", "hinge": "actuatorgravcomp='true'"},
        "joint 'hinge': actuatorgravcomp without actuators",
    ),
    "gravcomp of motors": (
        {
            "arm": "gravcomp='0.5'",
            "hinge": "actuatorgravcomp='true' actuatorfrcrange='-1 1' actuatorfrclimited='true'",
            "bottom": general(""),
        },
        "joint 'hinge': actuatorgravcomp with actuatorfrcrange",
    ),
    "mocap": (
        {
            "world": "<body name='hand' mocap='true'><body name='finger'><joint/><geom size='1'/>"
            "</body></body>"
        },
        "body 'hand': mocap, and it carries the moving body 'finger'",
    ),
    "frictionloss": (
        {"base_joint": "<joint name='free' type='free' frictionloss='1'/>"},
        "joint 'free': frictionloss of the translation of a free joint",
    ),
    "dynamics": ({"bottom": general("dyntype='user'")}, "actuator 'm': dyntype user"),
    "filter": (
        {"bottom": general("dyntype='filter' dynprm='0'")},
        "actuator 'm': dyntype filter with the time constant 0",
    ),
    "muscle": (
        {"bottom": general(f"gaintype='muscle' gainprm='{WEAK}' lengthrange='0 1'")},
        "actuator 'm': muscle with fvmax 0.5",
    ),
    "bias": (
        {"bottom": general(f"biastype='muscle' biasprm='{MUSCLE}' lengthrange='0 1'")},
        "actuator 'm': biastype muscle with gaintype fixed",
    ),
    "three rotations": (
        {"bottom": actuator("<orientation name='m' joint='ball'/>")},
        "actuator 'm': transmission to a so3",
    ),
    "negative tendon": (
        {"bottom": IDLE_TENDON.replace("name=", "stiffness='-3' name=")},
        "tendon 't': negative stiffness",
    ),
    "density": (
        {"top": "<option density='-2' viscosity='1'/>"},
        "option density -2",
    ),
    "body": (
        {"bottom": actuator("<adhesion name='m' body='arm' ctrlrange='0 1'/>")},
        "actuator 'm': transmission to a body",
    ),
    "obstacle": (
        {"top": RINGS, "world": geom(f"name='step' {RING}")},
        "geom 'step': contact of an sdf with the geom 'hull'",
    ),
    "two height fields": (
        {
            "top": "<asset><hfield name='h' nrow='4' ncol='4' size='1 1 1 1'/></asset>",
            "world": "<geom name='hills' type='hfield' hfield='h'/>"
            "<geom name='dunes' type='hfield' hfield='h'/>",
        },
        "geom 'dunes': a second height field, besides 'hills'",
    ),
    "sdf": (
        {"top": RINGS, "base_joint": "<freejoint name='free'/>" + geom(f"name='ring' {RING}")},
        "geom 'ring': contact of an sdf with the ground",
    ),
    "anisotropic": (
        {"bottom": "<contact><pair geom1='floor' geom2='link' friction='1 0.5'/></contact>"},
        "pair of the geoms 'floor' and 'link': anisotropic friction",
    ),
    "turned hills": (
        {
            "floor": "contype='0' conaffinity='0'",
            "top": "<asset><hfield name='h' nrow='2' ncol='2' size='1 1 1 1'/></asset>",
            "world": "<geom name='hills' type='hfield' hfield='h' euler='0.1 0 0'/>",
        },
        "geom 'hills': a height field that is turned",
    ),
    "plugin": (
        {
            "top": "<extension><plugin plugin='mujoco.pid'><instance name='pid'>"
            "<config key='kp' value='1'/></instance></plugin></extension>",
            "bottom": actuator("<plugin name='m' joint='hinge' instance='pid'/>"),
        },
        "plugin 'pid'",
    ),
    "plugin without a name": (
        {
            "top": "<extension><plugin plugin='mujoco.pid'/></extension>",
            "bottom": actuator(
                "<plugin name='m' joint='hinge' plugin='mujoco.pid'>"
                "<config key='kp' value='1'/></plugin>"
            ),
        },
        "plugin 'plugin0'",
    ),
    "flex": (
        {
            "world": "<flexcomp name='cloth' type='grid' count='2 2 1' spacing='.1 .1 .1' dim='2'>"
            "<contact contype='0' conaffinity='0'/></flexcomp>"
        },
        "flex 'cloth'",
    ),
    # attributes of newer versions of MuJoCo
    "tendon": (
        {"bottom": PLASTIC},
        "tendon 't': springyield",
    ),
    "negative damping": (
        {"bottom": IDLE_TENDON.replace("name=", "damping='1 -2' name=")},
        "tendon 't': negative damping",
    ),
    "plastic": (
        {"hinge": "stiffness='1' springyield='0.1'"},
        "joint 'hinge': springyield",
    ),
    "delay": (
        {"bottom": general("delay='0.01' nsample='8' interp='cubic'")},
        "actuator 'm': delay of the control with a cubic interpolation",
    ),
    "delay beyond its samples": (
        {"bottom": general("delay='0.05' nsample='2'")},
        "actuator 'm': delay of the control beyond its 2 samples",
    ),
    "surfacevel": (
        {"floor": "surfacevel='1 0 0 0 0 0'"},
        "contact of the geoms 'floor' and 'hull': surfacevel",
    ),
    "adhesion": (
        {"hull": "size='0.1' adhesion='1'"},
        "contact of the geoms 'floor' and 'hull': adhesion",
    ),
}


def compiled(places):
    """MuJoCo's model, or a skipped test if this version of MuJoCo does not know an attribute."""
    try:
        return mujoco.MjModel.from_xml_string(text(**places))
    except ValueError as error:
        if mujoco.__version__ < "4":
            pytest.skip(f"MuJoCo {mujoco.__version__}: {error}")
        raise


def test_the_model_without_changes_is_loaded():
    found = load_mjcf(text())
    assert (found.omitted, found.model.nv) == ((), 10)
    assert len(found.scene.frames) == 2


@pytest.mark.parametrize("name", REFUSED)
def test_a_feature_without_counterpart_is_named(name):
    places, expected = REFUSED[name]
    mj_model = compiled(places)
    with pytest.raises(rbd.ModelError) as error:
        from_mujoco(mj_model)
    assert str(error.value).startswith("no counterpart for ")
    assert expected in str(error.value)
    with warnings.catch_warnings():
        if name == "turned hills":  # this is the only ground
            warnings.simplefilter("ignore", rbd.ContactWarning)
        found = from_mujoco(mj_model, strict=False)
    assert expected in found.omitted
    assert found.model.nv >= 10
    assert all(np.all(np.isfinite(x)) for x in found.q0)


def test_an_equality_of_another_kind_is_named():
    equalities = "<joint name='d' joint1='hinge'/><joint name='e' joint1='hinge'/>"
    mj_model = compiled({"bottom": f"<equality>{equalities}</equality>"})
    mj_model.eq_type[1] = int(mujoco.mjtEq.mjEQ_DISTANCE)
    found = from_mujoco(mj_model, strict=False)
    assert found.omitted == ("equality 'e': distance",)
    assert len(found.constraints) == 1


# property: (attributes of the tendon, the flag that disables it, what is read)
TENDON_PROPERTIES = {
    "stiffness": ("stiffness='2'", "spring", [2.0]),
    "damping": ("damping='3'", "damper", [3.0]),
    "limits": ("range='-1 4'", "limit", [[-1.0, 4.0]]),
    "friction": ("frictionloss='5'", "frictionloss", [5.0]),
    "armature": ("armature='6'", None, [6.0]),
}


@pytest.mark.parametrize("name", TENDON_PROPERTIES)
def test_a_property_of_a_tendon_is_read_unless_a_flag_disables_it(name):
    attributes, flag, expected = TENDON_PROPERTIES[name]
    bottom = IDLE_TENDON.replace("name=", f"{attributes} name=")
    found = from_mujoco(compiled({"bottom": bottom})).tendons
    assert found.names == ("t",)
    for other in TENDON_PROPERTIES:
        value = getattr(found, other)
        if other == name:
            np.testing.assert_array_equal(value, expected)
        else:
            assert value is None
    if flag is not None:
        disabled = from_mujoco(compiled({"bottom": bottom, "flag": f"{flag}='disable'"}))
        assert getattr(disabled.tendons, name) is None


def test_polynomials_of_tendons_are_read_unless_a_flag_disables_them():
    bottom = IDLE_TENDON.replace("name=", "stiffness='0 2' damping='0 0 3' name=")
    found = from_mujoco(compiled({"bottom": bottom})).tendons
    np.testing.assert_array_equal(found.stiffness, [[0, 2, 0]])
    np.testing.assert_array_equal(found.damping, [[0, 0, 3]])
    for flag, name in (("spring", "stiffness"), ("damper", "damping")):
        disabled = from_mujoco(compiled({"bottom": bottom, "flag": f"{flag}='disable'"}))
        assert getattr(disabled.tendons, name) is None


def test_one_message_names_all_features():
    places = {
        "flag": "override='enable'",
        "hinge": "stiffness='1' springyield='1'",
        "bottom": PLASTIC,
    }
    with pytest.raises(rbd.RobotFileError) as error:
        load_mjcf(text(**places))
    assert str(error.value) == (
        "<string>: no counterpart for option flag override "
        "(parameters of contacts); tendon 't': "
        "springyield; joint 'hinge': springyield (strict=False leaves this out)"
    )
    assert error.value.file == "<string>"


WALKER = """
<mujoco>
  {rings}
  <worldbody>
    {world}
    <body name="base" pos="0 0 1"><freejoint/>{hull}{legs}</body>
  </worldbody>
</mujoco>
"""
SILENT = "contype='0' conaffinity='0'"
FLOOR = "<geom name='floor' type='plane' size='1 1 1'/>"


def walker(legs, world=FLOOR, hull=RING):
    """A robot with two rings per leg, whose geoms have no names."""
    two = geom(RING) + geom(f"{RING} pos='0 0 -.2'")
    legs = "".join(
        f"<body name='leg{i}' pos='{i} 0 0'><joint axis='0 1 0'/>{two}</body>" for i in range(legs)
    )
    hull = geom(f"name='hull' {hull}")
    rings = RINGS if RING in world + hull + legs else ""
    return WALKER.format(rings=rings, world=world, hull=hull, legs=legs)


def test_many_contacts_without_counterpart_are_one_text():
    """The texts state counts and the bodies of the first geoms, and nothing twice."""
    with pytest.raises(rbd.RobotFileError) as error:
        load_mjcf(walker(12))
    # Each of the 24 geoms of the legs can touch the 22 geoms of the other legs.
    texts = (
        "plugin 'ring'",
        "contact of an sdf with the ground (25 geoms: 'hull' of body 'base', 'geom2' of body "
        "'leg0', 'geom3' of body 'leg0', 'geom4' of body 'leg1' and 21 more)",
        "contact of an sdf with other geoms (264 contacts of 24 geoms: 'geom2' of body 'leg0', "
        "'geom4' of body 'leg1', 'geom5' of body 'leg1', 'geom6' of body 'leg2' and 20 more)",
    )
    assert str(error.value) == (
        f"<string>: no counterpart for {'; '.join(texts)} (strict=False leaves this out)"
    )
    pair = "<contact><pair geom1='hull' geom2='tip'/></contact>"  # without adhesion
    sticky = {"floor": "adhesion='1'", "bottom": pair}
    compiled(sticky)  # skips the test if this version of MuJoCo does not know adhesion
    found = load_mjcf(
        text(**sticky).replace("<site name='s1'/>".replace("'", '"'), "<geom size='.1'/>" * 4),
        strict=False,
    )
    assert found.omitted == (
        "contacts with adhesion (6 pairs: 'floor' of body 'world' and 'hull' of body 'base', "
        "'floor' of body 'world' and 'link' of body 'arm', 'floor' of body 'world' and 'geom3' of "
        "body 'arm', 'floor' of body 'world' and 'geom4' of body 'arm' and 2 more)",
    )
    # Few contacts have one text each; two rings that touch each other have one text.
    found = load_mjcf(walker(2, world=""), strict=False)
    assert list(found.omitted) == [
        "plugin 'ring'",
        "geom 'geom1' of body 'leg0': contact of an sdf with the geom 'geom3' of body 'leg1'",
        "geom 'geom1' of body 'leg0': contact of an sdf with the geom 'geom4' of body 'leg1'",
        "geom 'geom2' of body 'leg0': contact of an sdf with the geom 'geom3' of body 'leg1'",
        "geom 'geom2' of body 'leg0': contact of an sdf with the geom 'geom4' of body 'leg1'",
    ]
    tendons = "".join(PLASTIC.replace("name='t'", f"name='t{i}'") for i in range(23))
    with pytest.raises(rbd.RobotFileError, match=r"'t18'.*; tendon 't19'.* and 3 more \(strict"):
        load_mjcf(text(bottom=tendons))


def test_a_robot_that_can_touch_nothing_gives_a_warning():
    with pytest.warns(rbd.ContactWarning) as caught:
        found = load_mjcf(walker(2), strict=False)
    assert found.scene is None
    assert [str(warning.message) for warning in caught] == [
        "<string>: no contact can support body 'base' with a free joint, because contacts of its "
        "geoms were left out: the sdf 'hull' of body 'base', the sdf 'geom2' of body 'leg0', the "
        "sdf 'geom3' of body 'leg0', the sdf 'geom4' of body 'leg1' and 1 more"
    ]
    # A contact with another robot does not carry the robot, nor a rock without counterpart.
    other = "<body name='other' pos='0 0 3'><freejoint/><geom size='.1' contype='3'/></body>"
    above = "size='.1' contype='2' conaffinity='2'"  # touches the other robot only
    rock = geom(f"name='rock' {RING}")
    for legs, world, hull in ((2, FLOOR + other, above), (0, rock, "size='.1'")):
        with pytest.warns(rbd.ContactWarning, match="'base' with a free joint") as caught:
            found = load_mjcf(walker(legs, world, hull), strict=False)
        assert len(caught) == 1
        assert len(found.pairs) == (legs > 0)
    # A geom that loses two contacts has one place in the text.
    with pytest.warns(rbd.ContactWarning, match="left out: the sdf 'hull' of body 'base'$"):
        load_mjcf(walker(0, FLOOR + rock), strict=False)
    # One geom of the robot, or a fixed base, is enough for no warning, which is an error here.
    assert load_mjcf(walker(2, hull="size='.1'"), strict=False).scene is not None
    fixed = walker(2).replace("<freejoint/>", "<joint axis='1 0 0'/>")
    assert load_mjcf(fixed, strict=False).scene is None
    silent = RING + " contype='0' conaffinity='0'"
    assert load_mjcf(walker(0, hull=silent), strict=False).scene is None


def test_boxes_touch_with_four_points():
    box = "type='box' size='.1 .1 .1'"
    world = "<geom name='rail' type='capsule' size='.1 1'/>" + "".join(
        f"<body name='b{i}' pos='{i} 0 0'><freejoint/><geom {box}/></body>" for i in range(3)
    )
    found = load_mjcf(walker(0, world, "size='.1'"))
    assert len(found.scene.pairs) == 3 * 4 + 3 * 2 + 3 + 1


def test_a_file_is_named_in_its_errors(tmp_path):
    path = tmp_path / "robot.xml"
    path.write_text(text(flag="override='enable'"))
    with pytest.raises(rbd.RobotFileError, match=r"robot\.xml: no counterpart for option flag ov"):
        load_mjcf(path)
    path.write_text(text(arm="colour='red'"))
    with pytest.raises(rbd.RobotFileError, match=r"robot\.xml: MuJoCo cannot read .*colour"):
        load_mjcf(path)
    path.write_text(text())
    assert load_mjcf(str(path)).model.nv == 10
    with pytest.raises(rbd.RobotFileError, match="nowhere"):
        load_mjcf(tmp_path / "nowhere.xml")


@pytest.mark.parametrize(
    ("faulty", "message"),
    [
        ("<robot name='r'><link name='a'/></robot>", "expected <mujoco> .* found 'robot'"),
        ("<mujoco><worldbody></mujoco>", "not well-formed"),
        ("<mujoco><worldbody><body><joint/></body></worldbody></mujoco>", "MuJoCo cannot read"),
    ],
)
def test_a_text_that_is_no_mjcf(faulty, message):
    with pytest.raises(rbd.RobotFileError, match=f"<string>.*{message}"):
        load_mjcf(faulty)


def test_an_object_that_is_no_model():
    with pytest.raises(rbd.ArgumentError, match=r"mj_model is 'str', expected a mujoco\.MjModel"):
        from_mujoco("robot.xml")


def test_the_command_for_pip_if_mujoco_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    for load in (load_mjcf, from_mujoco):
        with pytest.raises(rbd.ArgumentError, match="pip install mujoco"):
            load("<mujoco/>")


def test_elements_without_names_and_names_in_use():
    found = load_mjcf(
        """
        <mujoco>
          <worldbody>
            <body><joint pos="0.1 0 0"/><geom size="1"/>
              <body name="body1.site"><joint name="hinge"/><joint pos="0 1 0"/><geom size="1"/>
                <site name="body1"/><site/><site name="body1.site_"/></body>
            </body>
            <body name="joint0"><joint name="body2" type="ball"/><geom size="1"/></body>
          </worldbody>
          <actuator><motor joint="hinge"/></actuator>
        </mujoco>
        """
    )
    model = found.model
    assert model.joint_names == ("joint0", "hinge", "joint2", "body2")
    sites = {"body1": "body1.site_", "site1": "site1", "body1.site_": "body1.site_.site"}
    assert found.sites == sites
    frames = {"body1", "body1.site", "joint0", "joint0.anchor", "hinge.anchor", "joint2.anchor"}
    assert {*model.frame_names} == frames | {*sites.values()}
    assert found.actuators.names == ("actuator0",)
    # All geoms without names are in contact only with each other.
    assert found.pairs == (("geom0", "geom2"), ("geom1", "geom2"))


def test_a_name_for_an_element_without_name_is_in_use():
    found = load_mjcf(text(world="<site name='site1'/><site/>"))
    assert found.sites == {name: name for name in ("site1", "site1_", "s0", "s1")}


def test_which_files_are_mjcf(tmp_path):
    path = tmp_path / "robot.xml"
    comment = "<?xml version='1.0'?><!-- <robot> --><mujoco>"
    for content, expected in (
        (text(), True),
        ("<robot/>", False),
        ("<robot>", False),
        (comment, True),
        ("mujoco", False),
        ("", False),  # these two raise errors in `load_mjcf`
        ("<!DOCTYPE mujoco><mujoco/>", False),
    ):
        path.write_text(content)
        assert is_mjcf(path) == expected


def test_a_file_that_is_not_well_formed_is_read_as_mujoco_reads_it():
    """Some files of MyoSuite have "--" in a comment or no blank between two attributes."""
    world = "<worldbody><body><geom size='1'/><joint name='a'axis='1 0 0'/></body></worldbody>"
    found = load_mjcf(f"<mujoco><!-- a -- b -->{world}</mujoco>")
    assert found.model.joint_names == ("a",)
    with pytest.raises(rbd.RobotFileError, match="not well-formed"):
        load_mjcf(f"<mujoco><!-- a -- b -->{world}")


def test_a_mocap_body_is_a_frame_that_touches():
    world = "<body name='target' pos='1 2 3' quat='1 0 0 1' mocap='true'><geom size='9'/></body>"
    found = load_mjcf(text(world=world))
    assert found.scene.frames == ("base", "arm")  # not the target
    assert {pair[0] for pair in found.pairs} == {"geom1"}
    pose = rbd.frame_placement(found.model, found.q0, "target")
    np.testing.assert_allclose(pose.p, [1, 2, 3], atol=1e-15)


def test_a_plane_of_a_mocap_body_is_a_half_space():
    """It moves with the body, so it is a shape and not the ground, which does not move."""
    lift = "<body name='lift' pos='0 0 -9' mocap='true'><geom type='plane' size='1 1 1'/></body>"
    scene = load_mjcf(text(world=lift, floor="contype='0' conaffinity='0'")).scene
    assert scene.frames == ()
    assert "lift" in [frame for frames in scene.pairs.frames for frame in frames]


# ------------------------------------------------- one element of several, and disabled elements


def test_keyframes_after_an_omitted_actuator():
    found = load_mjcf(
        text(
            bottom="<actuator><motor name='l' joint='hinge'/>"
            "<general name='m' joint='hinge' dyntype='user'/><motor name='n' joint='hinge'/>"
            "</actuator><keyframe>"
            "<key name='a' ctrl='1 2 3' qpos='1 2 3 1 0 0 0 0.5 1 0 0 0'/>"
            "<key name='b' ctrl='4 5 6' qpos='6 5 4 1 0 0 0 0.7 1 0 0 0' "
            "qvel='1 2 3 4 5 6 7 8 9 10'/></keyframe>"
        ),
        strict=False,
    )
    assert found.omitted == ("actuator 'm': dyntype user",)
    a, b = found.keyframes["a"], found.keyframes["b"]
    assert (a.control.tolist(), b.control.tolist()) == ([1, 3], [4, 6])
    assert (a.q[:3].tolist(), b.q[:3].tolist()) == ([1, 2, 3], [6, 5, 4])
    assert (a.v.tolist(), b.v.tolist()) == (10 * [0], [*range(1, 11)])


def test_an_actuator_after_actuators_with_several_controls():
    drives = (
        "<orientation name='o' joint='ball' kp='1'/><pid name='p' joint='hinge' "
        "kp='1'/><motor name='m' joint='hinge' gear='2' ctrlrange='-1 3'/>"
    )
    keyframe = "<keyframe><key name='k' ctrl='1 2 3 4 5 6'/></keyframe>"
    found = from_mujoco(compiled({"bottom": actuator(drives) + keyframe}), strict=False)
    drives = found.actuators
    assert (drives.names, found.keyframes["k"].control.tolist()) == (("m",), [6])
    assert (drives.gear.tolist(), drives.control_range.tolist()) == ([2], [[-1, 3]])
    omitted = ["actuator 'o': transmission to a so3", "actuator 'p': gaintype pid"]
    assert list(found.omitted) == omitted


def test_asymmetric_ranges_and_friction_of_a_free_joint():
    found = load_mjcf(
        text(
            hinge="actuatorfrcrange='-5 2' actuatorfrclimited='true'",
            base_joint="<joint name='free' type='free' frictionloss='0.3'/>",
        ),
        strict=False,
    )
    assert found.model.effort_limit[6] == 5
    assert found.model.friction[:6].tolist() == [0, 0, 0, 0.3, 0.3, 0.3]


def test_the_second_of_two_height_fields_is_the_ground():
    fields = "".join(
        f"<hfield name='{name}' nrow='4' ncol='4' size='1 1 1 1' elevation='{values}'/>"
        for name, values in (("a", 16 * "1 "), ("b", "1 " + 14 * "0 " + "0.5"))
    )
    ground = "<geom name='field' type='hfield' hfield='b'/>"
    robot = "<body><freejoint/><geom size='.1'/></body>"
    found = load_mjcf(
        f"<mujoco><asset>{fields}</asset><worldbody>{ground}{robot}</worldbody></mujoco>"
    )
    heights = np.asarray(found.scene.ground.heights)
    assert (heights.min(), heights[0, -1], heights[-1, 0]) == (0, 1, 0.5)


def test_the_friction_of_the_geom_with_the_higher_priority():
    found = load_mjcf(text(floor="friction='0.9'", hull="size='0.1' friction='0.2' priority='1'"))
    assert np.asarray(found.scene.friction)[0] == 0.2


def test_actuators_of_joints_in_another_order_than_the_joints():
    """Armature and damping with the square of the gear, and the force ranges of the joints."""
    joints = "".join(
        f"<body><joint name='{name}' actuatorfrcrange='-{i} {i}'/><geom size='.1'/></body>"
        for i, name in enumerate("xyz", 1)
    )
    motors = "<motor jointinparent='z'/><motor joint='x'/><motor joint='z'/>"
    found = load_mjcf(text(world=joints, bottom=actuator(motors)), strict=False)
    assert found.actuators.joints == ("z", "x", "z")
    np.testing.assert_array_equal(found.actuators.joint_force_range, [[-3, 3], [-1, 1]])
    places = {"bottom": actuator("<motor joint='hinge' armature='2' damping='5' gear='3'/>")}
    model = from_mujoco(compiled(places)).model
    expected = np.eye(10)[6]  # the six dofs of the free joint come first
    np.testing.assert_allclose(model.armature, 9 * 2 * expected, rtol=1e-15)
    np.testing.assert_allclose(model.damping, 9 * 5 * expected, rtol=1e-15)


def test_different_damping_and_armature_along_the_axes_of_a_free_joint():
    """A file cannot state it, but a program can change a compiled model."""
    changed = compiled({})
    changed.dof_damping[:6] = [1, 1, 2, 3, 4, 5]
    changed.dof_armature[:6] = 1
    found = from_mujoco(changed)
    assert found.model.damping[:6].tolist() == [0, 0, 0, 3, 4, 5]
    assert found.passive.damping.joints == ("free",)
    np.testing.assert_array_equal(found.passive.damping.coefficients, [1, 1, 2, 0, 0, 0])
    assert (found.passive.armature.joints, found.model.armature[0]) == (("free",), 1)
    changed.dof_armature[:6] = [1, 1, 2, 3, 4, 5]
    found = from_mujoco(changed, strict=False)
    assert found.omitted == ("joint 'free': different armature along the axes of a free joint",)
    assert found.model.armature[:6].tolist() == [0, 0, 0, 3, 4, 5]
    assert found.passive.armature is None


def test_a_plane_besides_the_ground_is_a_half_space():
    deck = "<geom name='deck' type='plane' size='1 1 1' pos='0 0 -3' friction='0.3'/>"
    found = load_mjcf(text(world=deck, hull="size='.1' friction='0.2'", link="friction='0.2'"))
    scene, model = found.scene, found.model
    assert (scene.ground.offset, scene.frames) == (0, ("base", "arm"))
    assert {frozenset(pair) for pair in found.pairs} == {
        frozenset(("deck", geom)) for geom in ("hull", "link")
    }
    np.testing.assert_allclose(scene.friction, [1, 1, 0.3, 0.3])
    kinematics = rbd.forward_kinematics(model, found.q0)
    distance = rbd.contact.contacts.find_contacts(model, scene.astype(float), kinematics).distance
    np.testing.assert_allclose(distance[2:], distance[:2] + 3, atol=1e-12)


def test_a_plane_besides_a_height_field_is_a_half_space():
    """The height field is the ground, although the plane is the first surface of the file."""
    hills = "<geom name='hills' type='hfield' hfield='h' pos='0 0 -2'/>"
    top = "<asset><hfield name='h' nrow='4' ncol='4' size='9 9 1 1'/></asset>"
    scene = load_mjcf(text(top=top, world=hills)).scene
    assert isinstance(scene.ground, rbd.contact.HeightGrid)
    np.testing.assert_allclose(scene.ground.heights, -2)
    assert scene.pairs.frames[0].count(None) == len(scene.pairs) > 0
    assert {shape.name for shape in scene.pairs.shapes} >= {"floor"}


def test_contacts_with_a_second_height_field_are_not_counted():
    fields = {
        "top": RINGS + REFUSED["two height fields"][0]["top"],
        "world": REFUSED["two height fields"][0]["world"],
    }
    found = load_mjcf(text(**REFUSED["sdf"][0] | fields), strict=False)
    assert set(found.omitted) == {
        "geom 'dunes': a second height field, besides 'hills'",
        "geom 'ring': contact of an sdf with the ground",
        "geom 'ring': contact of an sdf with the geom 'floor'",
        "plugin 'ring'",
    }


def test_parameters_of_explicit_pairs():
    """They replace the parameters of the geoms. A feature of two pairs has one text."""
    hull = f"size='.1' {SILENT}"

    def found(*pairs):
        pairs = "".join(f"<pair geom1='floor' geom2='link' {x}/>" for x in pairs)
        places = {"hull": hull, "link": "condim='6'"}
        return from_mujoco(compiled(places | {"bottom": f"<contact>{pairs}</contact>"}), False)

    for attributes, feature, coefficients in (
        ("condim='1'", None, (0.0, None, None)),
        ("condim='3'", None, (0.5, None, None)),
        ("condim='4'", None, (0.5, 0.02, None)),
        ("condim='6'", None, (0.5, 0.02, 0.03)),
        ("adhesion='1'", "adhesion", (0.5, None, None)),
    ):
        robot = found(f"friction='.5 .5 .02 .03 .03' {attributes}")
        message = f"contact of the geoms 'floor' and 'link': {feature}"
        assert robot.omitted == (() if feature is None else (message,))
        material = robot.scene.material
        for x, expected in zip(
            (material.friction, material.torsional, material.rolling), coefficients
        ):
            assert x is None if expected is None else np.asarray(x).tolist() == [expected]
    pairs = "".join(f"<pair geom1='floor' geom2='{geom}'/>" for geom in ("stone", "link"))
    places = {"world": "<geom name='stone' size='1'/>", "bottom": f"<contact>{pairs}</contact>"}
    scene = load_mjcf(text(hull=hull, link=SILENT, **places)).scene  # nothing moves a stone
    assert scene.frames == ("arm",)
    anisotropic = ("pair of the geoms 'floor' and 'link': anisotropic friction",)
    assert found("friction='.5 .1'", "friction='.5 .1'").omitted == anisotropic
    rolling = "friction='.5 .5 .1 .02 .03'"
    assert found(f"{rolling} condim='6'").omitted == anisotropic
    assert found(f"{rolling} condim='4'").omitted == ()
    # A moment needs a friction of sliding, so a contact without friction has MuJoCo's least one.
    slippery = found("friction='0 0 .1 .02 .02' condim='6'").scene.material
    assert np.asarray(slippery.friction).tolist() == [1e-5]


@pytest.mark.parametrize(
    ("version", "expected"), [("4.0.0", 0.08), ("3.8.1", 0.05), ("3.3.7", 0.03)]
)
def test_a_margin_by_the_rule_of_the_version(monkeypatch, version, expected):
    """The rules were read from contacts (`includemargin`) of MuJoCo 3.3, 3.4, 3.5, 3.8 and 3.9."""
    places = {"floor": "margin='.03' gap='.01'", "hull": "size='.1' margin='.05' gap='.02'"}
    pair = "<contact><pair geom1='floor' geom2='link' margin='.05' gap='.02'/></contact>"
    monkeypatch.setattr(mujoco, "__version__", version)
    scene = from_mujoco(compiled(places | {"bottom": pair})).scene
    pair_margin = 0.03 if version < "3.5" else 0.05
    margins = dict(zip(scene.frames, np.asarray(scene.margin).tolist()))
    assert margins == pytest.approx({"base": expected, "arm": pair_margin})


def test_the_dimension_of_the_geom_with_the_higher_priority():
    found = load_mjcf(
        text(floor="condim='4'", hull="size='.1' condim='1' priority='1'", link="priority='1'")
    )
    assert np.asarray(found.scene.friction).tolist() == [0, 1]


JOINTS = """
<mujoco><option><flag {flag}/></option><worldbody><geom type="plane" size="1 1 1"/>
  <body><joint name="a"/><geom size=".1"/></body><body><joint name="b"/><geom size=".1"/></body>
  <body><joint name="c"/><geom size=".1"/></body></worldbody>
  <equality><joint joint1="b" joint2="a"/><joint joint1="c" joint2="b"/></equality></mujoco>
"""


def test_a_follower_does_not_follow_a_follower():
    found = load_mjcf(JOINTS.format(flag=""), mimic=True)
    assert (found.model.nv, len(found.constraints)) == (2, 1)


CHAIN = JOINTS.replace(
    "</equality>",
    "<joint joint1='a' joint2='d'/><joint joint1='d' joint2='a' active='false'/></equality>",
).replace("</worldbody>", "<body><joint name='d'/><geom size='.1'/></body></worldbody>")


def test_equalities_that_give_no_followers():
    """The leader a does not become a follower of d, and d follows a only if this is active."""
    found = load_mjcf(CHAIN.format(flag=""), mimic=True)
    assert (found.model.nv, len(found.constraints), len(found.inactive_constraints)) == (3, 2, 1)
    assert [equation.function.joint for equation in found.constraints] == ["c", "a"]
    found = load_mjcf(CHAIN.format(flag="equality='disable'"), mimic=True)
    assert (found.model.nv, found.constraints, found.inactive_constraints) == (4, (), ())


@pytest.mark.parametrize("flag", ["", "limit", "frictionloss", "constraint"])
def test_disabled_limits_and_dry_friction(flag):
    flags = f"{flag}='disable'" if flag else ""
    hinge = "limited='true' range='-1 2' frictionloss='0.3'"
    model = load_mjcf(text(hinge=hinge, flag=flags)).model
    hinge = model.joint("hinge")
    limits = [-np.inf, np.inf] if flag in ("limit", "constraint") else [-1, 2]
    found = [float(x[hinge.q][0]) for x in (model.lower_position_limit, model.upper_position_limit)]
    assert found == limits
    assert model.friction[hinge.v] == (0.3 if flag in ("", "limit") else 0)


def test_disabled_actuators():
    motor = actuator("<motor joint='hinge'/>") + "<keyframe><key ctrl='1'/></keyframe>"
    found = load_mjcf(text(bottom=motor, flag="actuation='disable'"))
    assert (found.actuators.names, found.keyframes["key0"].control.shape) == ((), (0,))


@pytest.mark.parametrize("flag", ["equality", "contact", "constraint"])
def test_disabled_equalities_and_contacts(flag):
    found = load_mjcf(JOINTS.format(flag=f"{flag}='disable'"))
    assert len(found.constraints) == (2 if flag == "contact" else 0)
    assert (found.scene is None) == (flag != "equality")


def test_a_partial_interaction_with_a_fluid_is_named():
    """A file states 0 or 1, but a program can change a compiled model."""
    changed = compiled({"option": "density='1'", "link": "fluidshape='ellipsoid'"})
    changed.geom_fluid[changed.geom("link").id, 0] = 0.5
    found = from_mujoco(changed, strict=False)
    assert found.omitted == ("geom 'link': fluid interaction 0.5",)
    assert found.passive.fluid.ellipsoids is None
    assert found.passive.fluid.boxes.frames == ("base", "wrist")


def test_a_viscous_fluid_without_density_is_read():
    fluid = from_mujoco(compiled({"option": "viscosity='0.1'"})).passive.fluid
    assert (fluid.density, fluid.viscosity) == (0, 0.1)
    assert fluid.boxes.frames == ("base", "arm", "wrist")
    assert from_mujoco(compiled({})).passive.parts == ()
