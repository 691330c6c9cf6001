"""Joints that make the mass matrix singular: single cases, and comparison with eigenvalues."""

import dataclasses
import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd.joints import Custom, FreeFlyer, Helical, Planar, Prismatic, Revolute, Spherical
from jaxrbd.model.checks import checked
from jaxrbd.model.mass_check import singular_joints
from support import nightly, real_robots, zoo
from support.urdf_text import SOUND

X, Y, Z = np.eye(3)
POINT, NOTHING = rbd.model.link_inertia(1.0), np.zeros(10)
BALL = rbd.model.link_inertia(1.0, (0, 0, 0), np.eye(3))
ROD = rbd.model.link_inertia(1.0, (0, 0, 0.5), np.diag([0.1, 0.1, 0]))


def robot(*parts):
    """Links a, b, ... in a chain of joints ja, jb, ...: (inertia, kind, fields of the joint)."""
    names = "abcdefgh"[: len(parts)]
    links = [rbd.model.Link(name, inertia) for name, (inertia, *_) in zip(names, parts)]
    joints = [
        rbd.model.JointSpec(f"j{name}", kind, parent, name, **dict(*fields))
        for name, parent, (_, kind, *fields) in zip(names, (None, *names), parts)
    ]
    return links, joints


def faults(links, joints):
    return {
        str(fault.joint): str(fault) for fault in singular_joints(links, checked(links, joints))
    }


def placed(xyz=(0, 0, 0), rpy=(0, 0, 0), **fields):
    return {"placement": rbd.model.placement_matrix(xyz, rpy), **fields}


def turned(R):
    """A point mass on an axis: the result must not depend on rounding."""
    return rbd.model.link_inertia(0.37, R @ Z * 0.7)


FAR = placed((1.3, -0.2, 0.7), (0.3, 1.0, -2.0))
BACK = np.linalg.inv(FAR["placement"])
AXIS = rbd.model.placement_matrix((0, 0, 0), (0.7, -0.4, 1.1))[:3, :3]

# name: (the chain, the joints without inertia along their motion)
CASES = {
    "a massless leaf": ([(BALL, Revolute(X)), (NOTHING, Revolute(X))], ["jb"]),
    "a massless link in between": ([(NOTHING, Revolute(X)), (BALL, Revolute(Y))], []),
    "a massless leaf on a slide": ([(BALL, Revolute(X)), (NOTHING, Prismatic(X))], ["jb"]),
    "a massless robot": ([(NOTHING, FreeFlyer()), (NOTHING, Revolute(X))], ["ja", "jb"]),
    "armature": ([(BALL, Revolute(X)), (NOTHING, Revolute(X), {"armature": 1e-3})], []),
    "a point mass on its axis": ([(rbd.model.link_inertia(1, (0, 0, 2)), Revolute(Z))], ["ja"]),
    "a point mass beside its axis": ([(rbd.model.link_inertia(1, (1e-6, 0, 2)), Revolute(Z))], []),
    "a point mass on a skew axis": ([(turned(AXIS), Revolute(AXIS @ Z))], ["ja"]),
    "a point mass on its slide": ([(POINT, Prismatic(Z))], []),
    "a point mass on its screw": ([(POINT, Helical(Z, 0.1))], []),
    "a point mass on its screw without pitch": ([(POINT, Helical(Z, 0.0))], ["ja"]),
    "a rod along its axis": ([(ROD, Revolute(Z))], ["ja"]),
    "a rod across its axis": ([(ROD, Revolute(X))], []),
    "a point mass in a ball joint": ([(POINT, Spherical())], ["ja"]),
    "a rod in a ball joint": ([(ROD, Spherical())], ["ja"]),
    "a body in a ball joint": ([(BALL, Spherical())], []),
    "a rod that flies": ([(ROD, FreeFlyer())], ["ja"]),
    "a rod that flies with a body": ([(ROD, FreeFlyer()), (BALL, Revolute(X))], []),
    "a point mass in the plane": ([(POINT, Planar())], ["ja"]),
    "a gimbal": ([(BALL, rbd.model.euler("zyx"))], []),
    "a gimbal with a point mass in it": ([(POINT, rbd.model.universal(X, Y))], ["ja"]),
    "a gimbal with armature": ([(POINT, rbd.model.universal(X, Y), {"armature": (1, 1)})], []),
    "a gimbal with armature on one axis": (
        [(POINT, rbd.model.universal(X, Y), {"armature": (1, 0)})],
        ["ja"],
    ),
    "two hinges on one axis": ([(NOTHING, Revolute(Z)), (BALL, Revolute(Z))], ["ja"]),
    "two hinges on one axis, both with inertia": ([(BALL, Revolute(Z)), (BALL, Revolute(Z))], []),
    "two parallel hinges": ([(NOTHING, Revolute(Z)), (BALL, Revolute(Z), FAR)], []),
    "four hinges without mass between": (
        [(NOTHING, Revolute(a)) for a in (X, Y, Z)] + [(BALL, Revolute(X))],
        ["ja"],
    ),
    "a tool on a hinge": ([(NOTHING, Revolute(X)), (BALL, rbd.model.Fixed(), FAR)], []),
    "a tool without mass": ([(BALL, Revolute(X)), (NOTHING, rbd.model.Fixed(), FAR)], []),
    "a point mass that is welded onto the axis": (
        [
            (NOTHING, Revolute(AXIS @ Z)),
            (NOTHING, rbd.model.Fixed(), FAR),
            (turned(AXIS), rbd.model.Fixed(), {"placement": BACK}),
        ],
        ["ja"],
    ),
    "a light finger on a heavy arm": (
        [
            (1e3 * BALL, Revolute(X)),
            (
                rbd.model.link_inertia(1e-9, (0, 0, 0), 1e-15 * np.eye(3)),
                Revolute(Y),
                placed((5, 5, 5)),
            ),
        ],
        [],
    ),
    "a follower gives its leader inertia": (
        [(NOTHING, Revolute(X)), (BALL, Revolute(Y), {"mimic": rbd.model.Mimic("ja", 2.0)})],
        [],
    ),
    "a follower without inertia": (
        [(BALL, Revolute(X)), (NOTHING, Revolute(Y), {"mimic": rbd.model.Mimic("ja", 2.0)})],
        [],
    ),
    "a follower that turns its leader's motion back": (
        [(NOTHING, Revolute(X)), (BALL, Revolute(X), {"mimic": rbd.model.Mimic("ja", -1.0)})],
        ["ja"],
    ),
    "two leaders, and a follower that turns the motion of one back": (
        [
            (BALL, Revolute(Y), FAR),
            (NOTHING, Revolute(AXIS @ Z)),
            (BALL, Revolute(AXIS @ Z), {"mimic": rbd.model.Mimic("jb", -1.0)}),
            (BALL, Revolute(Z), {"mimic": rbd.model.Mimic("ja", 0.5)}),
        ],
        ["jb"],
    ),
    "a follower that stands still": (
        [(NOTHING, Revolute(X)), (NOTHING, Revolute(Y), {"mimic": rbd.model.Mimic("ja", 0.0)})],
        ["ja"],
    ),
    "followers of a follower": (
        [
            (NOTHING, Revolute(X)),
            (NOTHING, Revolute(Y), {"mimic": rbd.model.Mimic("jc", 2.0, 0.3)}),
            (BALL, Revolute(Z), {"mimic": rbd.model.Mimic("ja", 2.0)}),
        ],
        [],
    ),
    "a follower's armature": (
        [
            (NOTHING, Revolute(X)),
            (NOTHING, Revolute(Y), {"mimic": rbd.model.Mimic("ja"), "armature": 1}),
        ],
        [],
    ),
    "a function that turns the motion back": (
        [
            (NOTHING, Revolute(X)),
            (BALL, Revolute(X), {"mimic": rbd.model.Follow(("ja",), lambda x: -jnp.sin(x[0]))}),
        ],
        [],
    ),
    "a function that turns all of the motion back": (
        [
            (NOTHING, Revolute(X)),
            (BALL, Revolute(X), {"mimic": rbd.model.Follow(("ja",), lambda x: -x[0])}),
        ],
        ["ja"],
    ),
    "a joint of one's own": ([(POINT, Custom(2, zoo.crank))], []),
    "a joint of one's own with nothing on it": ([(NOTHING, Custom(2, zoo.crank))], ["ja"]),
}


@pytest.mark.parametrize("case", CASES)
def test_case(case):
    parts, expected = CASES[case]
    assert list(faults(*robot(*parts))) == expected


@pytest.mark.parametrize("case", [name for name, (parts, _) in CASES.items() if len(parts) > 1])
def test_the_order_in_which_joints_are_stated_does_not_matter(case):
    parts, expected = CASES[case]
    links, joints = robot(*parts)
    assert sorted(faults(links[::-1], joints[::-1])) == expected


def in_units(links, joints, length):
    """The robot in another unit of length."""
    powers = np.array([0, 1, 1, 1, 2, 2, 2, 2, 2, 2])
    links = [
        dataclasses.replace(link, inertia=np.asarray(link.inertia) * length**powers)
        for link in links
    ]
    changed = []
    for joint in joints:
        placement = np.array(joint.placement, float)
        placement[:3, 3] *= length
        kind = joint.kind
        if isinstance(kind, Helical):
            kind = Helical(kind.axis, kind.pitch * length)
        armature = np.asarray(joint.armature, float) * length**2  # of hinges
        changed.append(
            dataclasses.replace(joint, placement=placement, kind=kind, armature=armature)
        )
    return links, changed


@pytest.mark.parametrize("length", [1e-12, 1e9])
def test_the_unit_of_length_does_not_matter(length):
    for name, (parts, expected) in CASES.items():
        if not any(isinstance(kind, Custom) for _, kind, *_ in parts):
            assert list(faults(*in_units(*robot(*parts), length))) == expected, name


# ---------------------------------------------------------------- against the mass matrix itself

TREES = {
    "tree": (
        ["free_flyer", "universal", "spherical", "revolute", "prismatic", "planar", "helical"],
        [-1, 0, 1, 0, 3, 4, 3],
        {},
    ),
    "coupled": (
        ["revolute", "revolute", "prismatic", "helical", "spherical", "revolute"],
        [-1, 0, 1, 2, 2, 0],
        {
            2: rbd.model.Mimic("j5", -0.7, 0.2),
            3: rbd.model.Mimic("j2", 1.5),
            1: rbd.model.Mimic("j0", 0.4),
        },
    ),
}


@functools.cache
def description(name):
    kinds, parents, mimics = TREES[name]
    rng = np.random.default_rng(4)
    joints = []
    for i, (kind, parent) in enumerate(zip(kinds, parents)):
        base = None if parent < 0 else f"l{parent}"
        place = zoo.random_placement(rng)
        joints.append(
            rbd.model.JointSpec(
                f"j{i}", zoo.KINDS[kind](rng), base, f"l{i}", place, mimic=mimics.get(i)
            )
        )
    return joints


@jax.jit
def mass_matrices(model, keys):
    def one(key):
        return rbd.crba(model, rbd.random_configuration(model, key))

    return jax.vmap(one)(keys)


@pytest.mark.parametrize("name", nightly.all_but(["tree"], TREES))
def test_against_the_eigenvalues_of_the_mass_matrix(name):
    """Massless links, points, rods and bodies: a joint is named exactly where M is singular."""
    joints, rng = description(name), np.random.default_rng(7)
    keys = jax.random.split(jax.random.key(0), 4)
    counts = {True: 0, False: 0}
    for _ in range(60):
        shapes = rng.choice(4, size=len(joints), p=[0.25, 0.1, 0.1, 0.55])
        body = [NOTHING, POINT, ROD, zoo.random_inertia(rng)]
        links = [rbd.model.Link(f"l{i}", body[k]) for i, k in enumerate(shapes)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rbd.InertiaWarning)
            M = np.asarray(mass_matrices(rbd.build_model(links, joints), keys))
        values = np.linalg.eigvalsh(M)
        least = np.max(values[:, 0]) / np.max(values, initial=1.0)
        singular = bool(least < 1e-13)
        assert singular or least > 1e-9  # no case is close to singular
        assert bool(faults(links, joints)) == singular
        counts[singular] += 1
    assert min(counts.values()) > 5


# --------------------------------------------------------------------------------- what is said


def test_the_message_names_joint_link_and_freedoms():
    parts = [(ROD, FreeFlyer()), (NOTHING, Spherical()), (POINT, Revolute(Z))]
    text = "no link that moves with {!r} has inertia along its motion{}, and it has no armature"
    assert faults(*robot(*parts)) == {
        "ja": "joint 'ja': " + text.format("a", " (1 of 6 degrees of freedom)"),
        "jb": "joint 'jb': " + text.format("b", " (3 of 3 degrees of freedom)"),
        "jc": "joint 'jc': " + text.format("c", ""),
    }
    # With the second ball joint, also the other two rotations of the first one have no effect.
    twice = faults(*robot((NOTHING, Spherical()), (ROD, Spherical())))
    assert twice["ja"] == "joint 'ja': " + text.format("a", " (1 of 3 degrees of freedom)")
    cancelled = faults(*robot((NOTHING, Revolute(Z)), (BALL, Revolute(Z))))
    assert cancelled == {
        "ja": "joint 'ja': other joints can cancel its effect on every link with inertia, and it "
        "has no armature"
    }


def test_loading_warns_or_with_strict_refuses():
    links, joints = robot((BALL, Revolute(X)), (NOTHING, Revolute(X)))
    with pytest.warns(rbd.InertiaWarning, match="robot: the mass matrix is singular .* joint 'jb'"):
        rbd.build_model(links, joints)
    with pytest.raises(rbd.ModelError, match="joint 'jb': no link that moves with 'b'") as error:
        rbd.build_model(links, joints, strict=True)
    assert (error.value.joint, error.value.link) == ("jb", "b")


def test_a_file_is_named_with_the_line_of_the_joint():
    """Without the mimic of the shoulder, the wrist has no inertia."""
    assert rbd.io.validate_urdf(SOUND) == []
    rbd.load_urdf(SOUND, strict=True)
    with pytest.warns(rbd.InertiaWarning, match="joint 'wrist'"):
        rbd.load_urdf(SOUND, mimic=False)
    with pytest.raises(rbd.RobotFileError, match=r"^<string>:19: the mass matrix .* joint 'wrist'"):
        rbd.load_urdf(SOUND, mimic=False, strict=True)
    free = SOUND.replace('<mimic joint="shoulder" multiplier="2" offset="0.5"/>', "")
    (warning,) = rbd.io.validate_urdf(free)
    assert warning.startswith("<string>:19: warning: joint 'wrist': no link that moves with 'hand'")


@pytest.mark.parametrize(
    ("old", "new"),
    [('value="2"', 'value="1e308"'), ("0 0 0.1", "0 0 1e150"), ("0 0 1", "1e308 1e308 1")],
)
def test_numbers_that_overflow_are_no_reason_to_fail(old, new):
    text = SOUND.replace(old, new, 1)
    assert text != SOUND
    links, joints = rbd.io.parse_urdf(text, root_joint="free_flyer")[1:]
    assert faults([*links, rbd.model.Link("far", BALL)], [*joints, on_hand()]) == {}


def on_hand():
    return rbd.model.JointSpec(
        "far", Revolute(X), "hand", "far", rbd.model.placement_matrix((1e300, 1e300, 1))
    )


@pytest.mark.parametrize("name", rbd.robot_names())
def test_bundled_robots_can_be_inverted(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rbd.load_robot(name)


@pytest.mark.slow
@pytest.mark.parametrize("root_joint", [None, "free_flyer"])
def test_real_robots_are_named_exactly_where_their_mass_matrix_is_singular(root_joint):
    """All robots of example-robot-data. `real_robots.SINGULAR` has the results of the oracles."""
    if not real_robots.ROBOTS:
        pytest.skip("example-robot-data is not installed")
    singular = []
    for name in real_robots.ROBOTS:
        _, links, joints = rbd.io.parse_urdf(
            real_robots.path_of(name), root_joint=root_joint, mimic=name in real_robots.MIMIC
        )
        if faults(links, joints):
            singular.append(name)
    assert sorted(singular) == sorted(real_robots.SINGULAR)
