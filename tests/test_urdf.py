"""Reading of correct URDF files: inertias, placements, axes, limits, mimic, order, root joint."""

import dataclasses
import pathlib
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrbd.io.urdf import load_urdf, parse_urdf, validate_urdf
from jaxrbd.joints import FreeFlyer, Planar, Prismatic, Revolute, Spherical, Translation
from jaxrbd.model import Fixed, Link, Mimic, link_inertia, placement_matrix

LIMIT = '<limit lower="-1" upper="2" effort="10" velocity="5"/>'
INERTIA = '<inertia ixx="1" ixy="0.1" ixz="0.2" iyy="2" iyz="0.3" izz="2.5"/>'
INERTIA_MATRIX = np.array([[1, 0.1, 0.2], [0.1, 2, 0.3], [0.2, 0.3, 2.5]])


def joint(name, parent, child, inside=LIMIT, kind="revolute") -> str:
    return (
        f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>'
        f"{inside}</joint>"
    )


def robot(*elements: str, links="ab", attributes="") -> str:
    body = f'<inertial><mass value="1"/>{INERTIA}</inertial>'
    links = "".join(f'<link name="{name}">{body}</link>' for name in links)
    return f'<robot name="r" {attributes}>{links}{"".join(elements)}</robot>'


def only_joint(inside=LIMIT, kind="revolute", **options):
    """The description of the joint j of a robot of two links."""
    _, _, joints = parse_urdf(robot(joint("j", "a", "b", inside, kind)), **options)
    assert len(joints) == 2
    return joints[1]


def only_link(inertial: str, attributes="") -> Link:
    text = robot(f'<link name="a">{inertial}</link>', links="", attributes=attributes)
    _, (link,), _ = parse_urdf(text)
    return link


# ---------------------------------------------------------------------------------------- inertial


def test_inertial_is_read_in_its_own_axes_about_the_centre_of_mass():
    link = only_link(
        '<inertial><origin xyz="0.1 0.2 0.3" rpy="0.4 0.5 0.6"/>'
        f'<mass value="3"/>{INERTIA}</inertial>'
    )
    R = placement_matrix((0, 0, 0), (0.4, 0.5, 0.6))[:3, :3]
    expected = link_inertia(3.0, (0.1, 0.2, 0.3), INERTIA_MATRIX, R)
    np.testing.assert_array_equal(link.inertia, expected)
    # Without the rotation the moments would differ.
    unturned = link_inertia(3.0, (0.1, 0.2, 0.3), INERTIA_MATRIX)
    assert np.max(np.abs(expected - unturned)) > 0.1


def test_inertial_origin_is_the_identity_by_default():
    link = only_link(f'<inertial><mass value="3"/>{INERTIA}</inertial>')
    np.testing.assert_allclose(link.inertia, [3, 0, 0, 0, 1, 0.1, 2, 0.2, 0.3, 2.5])


def test_a_link_without_inertial_is_massless():
    assert not only_link("<contact/>").inertia.any()
    mass_only = '<inertial><mass value="0"/>' + INERTIA + "</inertial>"
    assert only_link(mass_only.replace("0.1", "0")).inertia[0] == 0


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-3", 1e-3), ("+1", 1), (" 2.5 ", 2.5), (".5", 0.5), ("1.", 1), ("1.5E+2", 150), ("-0", 0)],
)
def test_numbers_in_every_spelling(text, value):
    link = only_link(f'<inertial><mass value="{text}"/>{INERTIA}</inertial>')
    assert link.inertia[0] == value


def test_vectors_may_be_parted_by_any_blanks():
    spec = only_joint('<origin xyz=" 1\n\t 2   3 "/>' + LIMIT)
    np.testing.assert_array_equal(spec.placement[:3, 3], [1, 2, 3])


# ------------------------------------------------------------------------------ placement and axis


def test_placement_turns_about_fixed_axes():
    spec = only_joint('<origin xyz="1 2 3" rpy="0.1 0.2 0.3"/>' + LIMIT)
    np.testing.assert_array_equal(spec.placement, placement_matrix((1, 2, 3), (0.1, 0.2, 0.3)))


@pytest.mark.parametrize(
    "origin", ["", "<origin/>", '<origin xyz="0 0 0"/>', '<origin rpy="0 0 0"/>']
)
def test_placement_is_the_identity_by_default(origin):
    np.testing.assert_array_equal(only_joint(origin + LIMIT).placement, np.eye(4))


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_placement_by_quaternion(version):
    s = np.sqrt(0.5)
    for quaternion in (f"0 0 {s} {s}", "0 0 2 2", "0 0 -1e-200 -1e-200"):
        text = robot(
            joint("j", "a", "b", f'<origin quat_xyzw="{quaternion}"/>' + LIMIT),
            attributes=f'version="{version}"',
        )
        _, _, (_, spec) = parse_urdf(text)
        np.testing.assert_allclose(
            spec.placement, placement_matrix((0, 0, 0), (0, 0, np.pi / 2)), atol=1e-15
        )


def test_quaternion_and_rpy_agree():
    # About x, then y, then z: 0.2, 0.3 and 0.4 rad.
    (sx, sy, sz), (cx, cy, cz) = np.sin([0.1, 0.15, 0.2]), np.cos([0.1, 0.15, 0.2])
    quaternion = (
        sx * cy * cz - cx * sy * sz,
        cx * sy * cz + sx * cy * sz,
        cx * cy * sz - sx * sy * cz,
        cx * cy * cz + sx * sy * sz,
    )
    inside = f'<origin quat_xyzw="{" ".join(map(repr, map(float, quaternion)))}"/>' + LIMIT
    _, _, (_, spec) = parse_urdf(robot(joint("j", "a", "b", inside), attributes='version="1.2"'))
    np.testing.assert_allclose(
        spec.placement, placement_matrix((0, 0, 0), (0.2, 0.3, 0.4)), atol=1e-15
    )


@pytest.mark.parametrize("kind", ["revolute", "prismatic", "continuous"])
@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        ("", (1, 0, 0)),
        ('<axis xyz="0 -2 0"/>', (0, -1, 0)),
        ('<axis xyz="3 0 4"/>', (0.6, 0, 0.8)),
        ('<axis xyz="0 0 1e-200"/>', (0, 0, 1)),
        ('<axis xyz="0 3e300 4e300"/>', (0, 0.6, 0.8)),
    ],
)
def test_axis_is_normalised_and_x_by_default(kind, axis, expected):
    spec = only_joint(axis + LIMIT, kind)
    assert type(spec.kind) is {"prismatic": Prismatic}.get(kind, Revolute)
    np.testing.assert_allclose(spec.kind.axis, expected, rtol=1e-15)


# ------------------------------------------------------------------------------------- joint types


def test_joint_types_without_axis():
    assert isinstance(only_joint("", "fixed").kind, Fixed)
    assert isinstance(only_joint("", "floating").kind, FreeFlyer)
    for axis in ("", '<axis xyz="0 0 1"/>', '<axis xyz="0 0 7"/>'):
        assert isinstance(only_joint(axis, "planar").kind, Planar)


@pytest.mark.parametrize("kind", ["fixed", "floating", "planar"])
def test_what_a_joint_has_no_use_for_is_skipped(kind):
    # Real robots have <mimic> and <axis xyz="0 0 0"> on fixed joints.
    axis = "" if kind == "planar" else '<axis xyz="0 0 0"/>'
    spec = only_joint(axis + LIMIT + '<dynamics damping="1"/><mimic joint="nobody"/>', kind)
    assert spec.mimic is None
    assert spec.damping == 0
    assert (spec.lower, spec.upper, spec.effort_limit, spec.velocity_limit) == (None,) * 4


def test_sizes_of_every_joint_type():
    kinds = ("revolute", "continuous", "prismatic", "fixed", "floating", "planar")
    joints = [joint(f"j{i}", "r", str(i), LIMIT, kind) for i, kind in enumerate(kinds)]
    model = load_urdf(robot(*joints, links="r012345").replace(LIMIT, "<axis/>", 0))
    assert (model.nb, model.nq, model.nv) == (5, 13, 12)
    assert model.joint_names == ("j0", "j1", "j2", "j4", "j5")
    assert model.frame_names == tuple("r012345")


# ------------------------------------------------------------------------------ limits, dynamics


def limits(spec):
    return spec.lower, spec.upper, spec.effort_limit, spec.velocity_limit


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (LIMIT, (-1, 2, 10, 5)),
        ('<limit upper="2" effort="0" velocity="0"/>', (0, 2, 0, 0)),
        ('<limit lower="-2" effort="1" velocity="1"/>', (-2, 0, 1, 1)),
        ('<limit lower="0" upper="0" effort="1" velocity="1"/>', (0, 0, 1, 1)),
        # A joint without both limits is free: a real robot has such wheels.
        ('<limit effort="1" velocity="1"/>', (None, None, 1, 1)),
    ],
)
def test_limits(limit, expected):
    assert limits(only_joint(limit)) == expected


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("", (None,) * 4),
        ("<limit/>", (None,) * 4),
        ('<limit effort="3"/>', (None, None, 3, None)),
        (LIMIT, (None, None, 10, 5)),
    ],
)
def test_limits_of_a_continuous_joint(limit, expected):
    assert limits(only_joint(limit, "continuous")) == expected


def test_limits_reach_the_model():
    free = joint("k", "b", "c", '<limit effort="1" velocity="1"/>')
    model = load_urdf(robot(joint("j", "a", "b"), free, links="abc"))
    np.testing.assert_array_equal(model.lower_position_limit, [-1, -np.inf])
    np.testing.assert_array_equal(model.upper_position_limit, [2, np.inf])
    np.testing.assert_array_equal(model.effort_limit, [10, 1])
    np.testing.assert_array_equal(model.velocity_limit, [5, 1])


def test_damping_and_friction():
    for dynamics, expected in (
        ("", (0, 0)),
        ("<dynamics/>", (0, 0)),
        ('<dynamics damping="0.5"/>', (0.5, 0)),
        ('<dynamics damping="0.5" friction="0.25"/>', (0.5, 0.25)),
    ):
        spec = only_joint(LIMIT + dynamics)
        assert (spec.damping, spec.friction) == expected


# ------------------------------------------------------------------------------------------- mimic

CHAIN = robot(
    joint("j1", "a", "b", LIMIT + '<mimic joint="j2" multiplier="2" offset="1"/>'),
    joint("j2", "b", "c", LIMIT + '<mimic joint="j3" multiplier="-3" offset="0.25"/>'),
    joint("j3", "c", "d"),
    links="abcd",
)


def test_mimic_reads_multiplier_and_offset():
    assert only_joint(LIMIT + '<mimic joint="j"/>').mimic == Mimic("j", 1.0, 0.0)
    _, _, joints = parse_urdf(CHAIN)
    mimics = [None, Mimic("j2", 2.0, 1.0), Mimic("j3", -3.0, 0.25), None]
    assert [spec.mimic for spec in joints] == mimics


def test_mimic_of_a_mimic():
    model = load_urdf(CHAIN)
    assert (model.nb, model.nq, model.nv) == (3, 1, 1)
    np.testing.assert_allclose(model.coupling.position(jnp.array([0.5])), [-1.5, -1.25, 0.5])


def test_mimic_false_leaves_joints_independent_and_mimic_unread():
    model = load_urdf(CHAIN, mimic=False)
    assert (model.nq, model.coupling) == (3, None)
    text = CHAIN.replace('joint="j3"', 'joint="nobody"').replace("-3", "three")
    assert load_urdf(text, mimic=False).nq == 3


# ------------------------------------------------------------------------------------------- order


def test_siblings_come_by_joint_name_and_fixed_joints_count():
    #      r: m -> M, a -> A (fixed), z -> Z
    #      A: y -> Y; M: c -> C (fixed); C: b -> B
    text = robot(
        joint("z", "r", "Z"),
        joint("m", "r", "M"),
        joint("b", "C", "B"),
        joint("a", "r", "A", "", "fixed"),
        joint("y", "A", "Y"),
        joint("c", "M", "C", "", "fixed"),
        joint("Up", "r", "U"),
        links="ZYMCBArU",
    )
    model = load_urdf(text)
    assert model.joint_names == ("Up", "y", "m", "b", "z")
    assert model.body_names == ("U", "Y", "M", "B", "Z")
    assert model.frame_names == ("r", "U", "A", "Y", "M", "C", "B", "Z")
    assert model.topology.parents == (-1, -1, -1, 2, -1)


def test_order_in_the_file_does_not_matter():
    elements = [joint("x", "a", "b"), joint("w", "b", "c"), joint("v", "a", "d")]
    names = {
        load_urdf(robot(*order, links="abcd")).joint_names for order in (elements, elements[::-1])
    }
    assert names == {("v", "x", "w")}


def test_names_are_any_text():
    text = '<robot name="r\u00f6bot"><link name="a&amp;&lt;b"/><link name=" \u811a "/></robot>'
    name, links, joints = parse_urdf(
        text.replace("</robot>", joint("j k", "a&amp;&lt;b", " \u811a ") + "</robot>")
    )
    assert name == "r\u00f6bot"
    assert [link.name for link in links] == ["a&<b", " \u811a "]
    assert joints[1].name == "j k"


# ------------------------------------------------------------------------------------------- root


@pytest.mark.parametrize(
    ("root_joint", "kind"),
    [
        (None, Fixed),
        ("free_flyer", FreeFlyer),
        ("planar", Planar),
        ("spherical", Spherical),
        ("translation", Translation),
    ],
)
def test_root_joint(root_joint, kind):
    text = robot(joint("j", "a", "b"))
    _, _, (root, _) = parse_urdf(text, root_joint=root_joint)
    assert (root.name, root.parent, root.child) == ("root_joint", None, "a")
    assert isinstance(root.kind, kind)
    model = load_urdf(text, root_joint=root_joint)
    names = ("j",) if root_joint is None else ("root_joint", "j")
    assert model.joint_names == names
    assert model.nq == 1 + getattr(kind, "nq", 0)


def test_a_welded_root_leaves_the_name_to_the_file():
    _, _, joints = parse_urdf(robot(joint("root_joint", "a", "b")))
    assert [spec.name for spec in joints] == ["root_joint_", "root_joint"]
    assert load_urdf(robot(joint("root_joint", "a", "b"))).joint_names == ("root_joint",)


def test_gravity_and_name_reach_the_model():
    model = load_urdf(robot(joint("j", "a", "b")), gravity=(0, 1, 2))
    np.testing.assert_array_equal(model.gravity, [0, 1, 2])
    assert model.name == "r"
    np.testing.assert_array_equal(load_urdf(robot(links="a")).gravity, [0, 0, -9.81])


def test_a_single_link():
    model = load_urdf(robot(links="a"))
    assert (model.nb, model.nq, model.nv) == (0, 0, 0)
    assert model.frame_names == ("a",)
    flying = load_urdf(robot(links="a"), root_joint="free_flyer")
    assert (flying.nb, flying.nq, flying.nv) == (1, 7, 6)


# ---------------------------------------------------------------------------------- XML and files

PLAIN = robot(
    joint("j", "a", "b"),
    '<link name="c"/>',
    joint("k", "b", "c"),
    joint("weld", "c", "d", "", "fixed"),
    links="abd",
)


def described(*args, **options):
    """A description in a form that can be compared with ==."""
    name, links, joints = parse_urdf(*args, **options)
    specs = [
        (spec.name, spec.parent, spec.child, spec.placement.tolist(), spec.lower, spec.damping)
        for spec in joints
    ]
    return name, [(link.name, link.inertia.tolist()) for link in links], specs


@pytest.mark.parametrize(
    "text",
    [
        "\n  " + PLAIN,
        "\ufeff" + PLAIN,
        '<?xml version="1.0"?>' + PLAIN,
        '<?xml version="1.0" encoding="utf-8" standalone="yes"?>\n<!-- a --><?b c?>' + PLAIN,
        '<?xml version="1.0" encoding="ascii"?>' + PLAIN,
        PLAIN.replace("/>", "/>\r\n<!-- <link name='a'/> <!DOCTYPE x> -->"),
        PLAIN.replace("<robot ", '<robot xmlns="http://www.ros.org" '),
        PLAIN.replace("<robot ", '<robot xmlns:xacro="http://wiki.ros.org/xacro" '),
        PLAIN.replace("<robot ", '<robot version="1.0" '),
        PLAIN.replace("</robot>", "<![CDATA[<!DOCTYPE x>]]></robot>"),
        PLAIN.replace("</robot>", "<material name='m'/><gazebo><link name='a'/></gazebo></robot>"),
        PLAIN.replace("</robot>", "<transmission><joint name='j'/></transmission></robot>"),
        PLAIN.replace("</robot>", '<s:link xmlns:s="sensors" name="a"/></robot>'),
        PLAIN.replace("</robot>", "<note value='${PWD}'/></robot>"),
        PLAIN.replace("</joint>", "<calibration rising='x'/><safety_controller/></joint>"),
        PLAIN.replace(
            '<link name="c"/>', '<link name="c"><sensor><origin xyz="0"/></sensor></link>'
        ),
    ],
)
def test_what_does_not_concern_dynamics_changes_nothing(text):
    assert described(text) == described(PLAIN)


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_a_file_is_read_by_any_kind_of_path(tmp_path, bom):
    path = tmp_path / "caf\u00e9 robot.xml"
    path.write_bytes(bom + PLAIN.encode())
    assert described(path) == described(str(path)) == described(PLAIN)
    assert described(pathlib.PurePath(path)) == described(PLAIN)
    assert validate_urdf(path) == []


def test_the_line_of_an_element_is_where_its_start_tag_ends():
    (fault,) = validate_urdf(
        PLAIN.replace('name="k"', '\nname="k"\ntype="x"\n', 1).replace(
            'type="x"\n type="revolute"', 'type="x"'
        )
    )
    assert fault.startswith("<string>:3: joint 'k'")


def test_lines_are_right_within_one_beyond_the_65535_that_libxml2_counts_exactly():
    text = PLAIN.replace("</robot>", "\n" * 70_000 + '<joint name="j" type="fixed"/>\n</robot>')
    (fault,) = [fault for fault in validate_urdf(text) if "same name" in fault]
    assert int(fault.split(":")[1]) in (70_001, 70_002)


def test_a_description_can_be_changed_before_it_is_built():
    from jaxrbd.model.builder import build_model

    name, links, joints = parse_urdf(PLAIN)
    joints = [dataclasses.replace(spec, damping=0.5) for spec in joints]
    model = build_model(links, joints, name=name)
    np.testing.assert_array_equal(model.damping, [0.5, 0.5])


# ------------------------------------------------------------------------------------------- size


BIG = """
import sys, time
from jaxrbd.io.urdf import load_urdf
inertia = '<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/>'
for parent in (lambda i: i - 1, lambda i: 0):
    links = "".join(
        f'<link name="l{i}"><inertial><mass value="1"/>{inertia}</inertial></link>'
        for i in range(3000)
    )
    joints = "".join(
        f'<joint name="j{i}" type="continuous"><parent link="l{parent(i)}"/>'
        f'<child link="l{i}"/><origin xyz="0 0 1" rpy="1 0 0"/><axis xyz="0 1 0"/></joint>'
        for i in range(1, 3000)
    )
    start = time.process_time()
    assert load_urdf(f'<robot name="r">{links}{joints}</robot>').nb == 2999
    print(time.process_time() - start)
"""


@pytest.mark.slow
def test_a_chain_and_a_star_of_three_thousand_links_load_in_ten_seconds():
    # In a separate process: the type checker of the tests would triple the time.
    done = subprocess.run(
        [sys.executable, "-c", BIG], capture_output=True, text=True, check=True, timeout=60
    )
    seconds = [float(line) for line in done.stdout.split()]
    assert len(seconds) == 2
    assert max(seconds) < 10


@pytest.mark.parametrize("step", [1, -1])
def test_depth_is_no_matter_of_recursion(step):
    n = 1100
    links = [f'<link name="l{i}"/>' for i in range(n)]
    joints = [joint(f"j{i}", f"l{i - 1}", f"l{i}", "", "fixed") for i in range(1, n)]
    model = load_urdf(robot(*links[::step], *joints[::step], links=""))
    assert model.frame_names == tuple(f"l{i}" for i in range(n))


def test_a_cycle_of_eleven_hundred_links():
    n = 1100
    joints = [joint(f"j{i}", f"l{i}", f"l{(i + 1) % n}", "", "fixed") for i in range(n)]
    links = [f'<link name="l{i}"/>' for i in range(n)]
    (fault,) = validate_urdf(robot(*links, *joints, links=""))
    assert "cycle, parent before child: 'l0', 'l1'" in fault
