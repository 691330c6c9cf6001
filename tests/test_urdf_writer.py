"""`save_urdf` and `urdf_text`: the loaded robot is the saved robot, or the error has the reason."""

import dataclasses
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd
from jaxrbd import joints
from jaxrbd.collision import Box, Sphere
from jaxrbd.errors import ArgumentError, ModelError
from jaxrbd.io import load_urdf, save_urdf, urdf_text, validate_urdf
from jaxrbd.model import (
    Fixed,
    Follow,
    Geometry,
    JointSpec,
    Link,
    MeshFile,
    Mimic,
    placement_matrix,
)
from jaxrbd.model.geometry import LinkGeometry
from support import real_robots, zoo
from support.urdf_text import EVERYTHING, SOUND

pytestmark = pytest.mark.filterwarnings(
    "ignore::jaxrbd.InertiaWarning", "ignore::jaxrbd.LimitWarning"
)

Z = (0.0, 0.0, 1.0)


def assert_same(ours, expected, tolerance=1e-13):
    """The models have one structure, names included, and parameters equal to rounding."""
    assert jax.tree.structure(ours) == jax.tree.structure(expected)
    for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(expected)):
        scale = max(1.0, np.max(np.abs(y), initial=0.0, where=np.isfinite(y)))
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance * scale)


def assert_round_trip(model, root_joint=None):
    text = urdf_text(model)
    assert_same(load_urdf(text, root_joint=root_joint), model)
    return text


def chain(*specs, placements=None, **options):
    """A robot of links l0, l1, ...; a spec is the kind of joint and its other parameters."""
    rng = np.random.default_rng(0)
    links = [Link("base", zoo.random_inertia(np.random.default_rng(1)))]
    joints = [JointSpec("mount", Fixed(), None, "base")]
    for i, (kind, parameters) in enumerate(specs):
        links.append(Link(f"l{i}", zoo.random_inertia(rng)))
        parent = f"l{i - 1}" if i else "base"
        placement = placements[i] if placements else zoo.random_placement(rng)
        limits = {"velocity_limit": 3.0, "effort_limit": 2.0} | parameters
        joints.append(JointSpec(f"j{i}", kind, parent, f"l{i}", placement, **limits))
    return jaxrbd.build_model(links, joints, **options)


def hinge(**parameters):
    return joints.Revolute(np.array([2.0, -3.0, 6.0]) / 7), parameters


def slider(**parameters):
    return joints.Prismatic(np.array([6.0, 2.0, 3.0]) / 7), parameters


# ------------------------------------------------------------------------------------ round trips


@pytest.mark.parametrize("root_joint", [None, "free_flyer", "planar", "spherical", "translation"])
def test_robots_of_files_are_saved_and_loaded(root_joint):
    for text in (SOUND, EVERYTHING):
        saved = assert_round_trip(load_urdf(text, root_joint=root_joint), root_joint)
        assert (f'root_joint="{root_joint}"' in saved) == (root_joint is not None)
        assert not [fault for fault in validate_urdf(saved) if "warning" not in fault]


@pytest.mark.parametrize("name", jaxrbd.robot_names())
def test_bundled_robots(name):
    root = "free_flyer" if name in ("quadruped", "humanoid") else None
    assert_round_trip(jaxrbd.load_robot(name), root)


@pytest.mark.parametrize("root_joint", [None, "free_flyer"])
@pytest.mark.parametrize("name", real_robots.mostly_slow())
def test_real_robots(name, root_joint):
    mimic = name not in real_robots.UNREADABLE_MIMIC
    assert_round_trip(real_robots.load(name, root_joint, mimic), root_joint)


def test_another_reader_reads_the_same_robot():
    pin = pytest.importorskip("pinocchio")
    from jaxrbd.io.pinocchio import from_pinocchio

    model = load_urdf(EVERYTHING, root_joint="free_flyer", mimic=False)
    text = urdf_text(model)
    found = from_pinocchio(pin.buildModelFromXML(text, pin.JointModelFreeFlyer()))
    expected = from_pinocchio(pin.buildModelFromXML(PLAIN, pin.JointModelFreeFlyer()))
    assert found.joint_names == model.joint_names
    for part in ("placement", "inertia", "joints", "damping", "friction"):
        assert_same(getattr(found, part), getattr(model, part))
        assert_same(getattr(found, part), getattr(expected, part))


# EVERYTHING as the URDF reader of Pinocchio accepts it.
PLAIN = EVERYTHING.replace('version="1.2"', 'version="1.0"').replace(
    'quat_xyzw="0.5 0.5 0.5 0.5"', f'rpy="{np.pi / 2!r} 0 {np.pi / 2!r}"'
)


@pytest.mark.slow
def test_dynamics_are_the_same():
    model = load_urdf(EVERYTHING, root_joint="free_flyer")
    loaded = load_urdf(urdf_text(model), root_joint="free_flyer")

    @jax.jit
    def quantities(model, q, v, a):
        X = jaxrbd.forward_kinematics(model, q)
        poses = jaxrbd.frame_placements(model, X)
        return poses, jaxrbd.crba(model, X), jaxrbd.rnea(model.with_dissipation(), q, v, a)

    q, v, a, _ = zoo.state(model)
    for found, expected in zip(*(jax.tree.leaves(quantities(m, q, v, a)) for m in (loaded, model))):
        zoo.close(found, expected, 1e-12)


def test_a_file_is_written(tmp_path):
    path = tmp_path / "arm.urdf"
    model = load_urdf(SOUND)
    path.write_text("before")
    with pytest.raises(ModelError, match="armature"):
        save_urdf(dataclasses.replace(model, armature=model.armature + 1), path)
    assert path.read_text() == "before"
    save_urdf(model, path)
    assert path.read_text() == urdf_text(model)
    assert_same(load_urdf(path), model)
    assert [file.name for file in tmp_path.iterdir()] == ["arm.urdf"]


@pytest.mark.parametrize("pitch", [0.0, 1.0, -np.pi / 2, np.pi / 2, np.pi / 2 - 1e-9, 1e-300])
def test_orientations_at_every_pitch(pitch):
    turn = placement_matrix((0, 0, 0), (1, 2, 3))  # it rounds the entries that are nearly zero
    placements = [
        turn @ (turn.T @ placement_matrix((0, 0, 0), (x, pitch, y)))
        for x, y in ((0.3, -2), (-3, 0.7))
    ]
    model = chain(hinge(lower=-1, upper=1), slider(), placements=placements)
    assert_same(load_urdf(urdf_text(model)), model, 2e-15)


def test_limits_that_urdf_states():
    model = chain(
        hinge(),
        hinge(velocity_limit=None),
        hinge(effort_limit=None, velocity_limit=None),
        hinge(lower=-1, upper=2, effort_limit=0.0),
        slider(),
        slider(lower=-0.5, upper=0.5),
    )
    text = assert_round_trip(model)
    types = [line.split('type="')[1].split('"')[0] for line in text.splitlines() if "type=" in line]
    assert types == [*["continuous"] * 3, "revolute", *["prismatic"] * 2]


def test_a_joint_that_mimics_has_the_limits_of_its_leader():
    model = chain(
        hinge(lower=-1, upper=2),
        hinge(mimic=Mimic("j0", -0.5, 0.1)),
        slider(mimic=Mimic("j0", 2.0, 0.0)),
        hinge(),
        slider(mimic=Mimic("j3", 0.0, 0.5)),
    )
    text = assert_round_trip(model)
    without = load_urdf(text, mimic=False)
    lower, upper = without.lower_position_limit, without.upper_position_limit
    np.testing.assert_allclose(lower, [-1, -0.9, -2, -np.inf, 0.5])
    np.testing.assert_allclose(upper, [2, 0.6, 4, np.inf, 0.5])
    np.testing.assert_allclose(without.velocity_limit, [3, 1.5, 6, 3, 0])
    np.testing.assert_allclose(without.effort_limit, np.full(5, 2))


def test_shapes_of_several_links_are_saved_and_loaded():
    at = np.eye(4)
    at[:3, 3] = 1, 2, 3
    scales = ((0.001, 0.001, 0.001), (1.0, 2.0, 3.0), (1.0, 1.0, 1.0))
    links = [
        Link(
            f"l{i}",
            zoo.random_inertia(np.random.default_rng(i)),
            (Geometry(MeshFile("package://p/a.stl", scale), at, (0.25 * i, 0.5, 0.75, 1.0), "a"),),
            (Geometry(Box((0.5, 1.0, 1.5 + i / 2)), at, None, ""),),
        )
        for i, scale in enumerate(scales)
    ]
    specs = [JointSpec("mount", Fixed(), None, "l0")]
    specs += [JointSpec(f"j{i}", joints.Revolute(Z), "l0", f"l{i}") for i in (1, 2)]
    model = jaxrbd.build_model(links, specs)
    text = urdf_text(model)
    found = load_urdf(text).geometry
    for ours, theirs in (
        (found.visuals, model.geometry.visuals),
        (found.collisions, model.geometry.collisions),
    ):
        assert [*ours] == [*theirs] == ["l0", "l1", "l2"]
        for name in ours:
            (x,), (y,) = ours[name], theirs[name]
            np.testing.assert_allclose(x.placement, y.placement)
            assert (x.shape, x.color, x.name) == (y.shape, y.color, y.name)
    # A material is defined once in a file: other readers take the first colour of a name.
    materials = re.findall('material name="(.*?)"', text)
    assert len(set(materials)) == len(materials) == 3


def test_infinite_limits_can_be_replaced():
    model = chain(hinge(lower=-1), slider(effort_limit=None), hinge(upper=3, velocity_limit=None))
    found = load_urdf(urdf_text(model, unlimited=100.0))
    np.testing.assert_array_equal(found.lower_position_limit, [-1, -np.inf, -100])
    np.testing.assert_array_equal(found.upper_position_limit, [100, np.inf, 3])
    np.testing.assert_array_equal(found.effort_limit, [2, 100, 2])
    np.testing.assert_array_equal(found.velocity_limit, [3, 3, 100])


def test_a_robot_without_a_link_on_the_world_gets_a_root_link():
    model = zoo.build(["free_flyer", "revolute"], [-1, 0])
    free = {
        "lower_position_limit": jnp.full(8, -jnp.inf),
        "upper_position_limit": jnp.full(8, jnp.inf),
        "velocity_limit": jnp.full(7, jnp.inf),
        "effort_limit": jnp.full(7, jnp.inf),
        "damping": jnp.zeros(7),
        "friction": jnp.zeros(7),
    }
    model = dataclasses.replace(model, **free)
    found = load_urdf(urdf_text(model))
    assert found.frame_names == ("world", *model.frame_names)
    for part in ("placement", "inertia", "gravity", "damping"):
        assert_same(getattr(found, part), getattr(model, part))
    axis = model.joints[1].axis  # load_urdf normalizes it
    assert_same(found.joints[1].axis, axis / np.linalg.norm(axis))
    assert found.joint_names == model.joint_names


def test_a_compound_joint_is_saved_as_its_stages():
    rng = np.random.default_rng(0)
    parameters = {"lower": -1.0, "upper": 1.0, "velocity_limit": 1.0, "effort_limit": 1.0}
    universal = JointSpec(
        "u", jaxrbd.model.universal((1, 0, 0), (0, 1, 0)), "base", "tip", **parameters
    )
    model = jaxrbd.build_model(
        [Link("base"), Link("tip", zoo.random_inertia(rng))],
        [JointSpec("mount", Fixed(), None, "base"), universal],
    )
    assert_round_trip(model)


# ---------------------------------------------------------------------------------- order of joints


def siblings(*names, welded=()):
    """A robot whose base carries these joints and welded links in the given order."""
    rng = np.random.default_rng(1)
    links, specs = [Link("base")], [JointSpec("mount", Fixed(), None, "base")]
    for name in names:
        kind = Fixed() if name in welded else joints.Revolute(Z)
        inertia = np.zeros(10) if name in welded else zoo.random_inertia(rng)
        links.append(Link(f"link {name}", inertia))
        specs.append(JointSpec(name, kind, "base", f"link {name}", zoo.random_placement(rng)))
    return jaxrbd.build_model(links, specs)


@pytest.mark.parametrize(
    ("names", "welded"),
    [
        ("abc", ""),
        ("axb", "x"),
        ("xyab", "xy"),
        ("bxa", "x"),  # a is attached to the welded link x
        ("bxazg", "x"),  # and g to the base again
        ("cxbya", "xy"),
        ("zxyba", "xy"),
        ("ayxbwvc", "yxwv"),
    ],
)
def test_the_order_of_joints_and_frames_is_kept(names, welded):
    assert_round_trip(siblings(*names, welded=welded))


def test_an_order_that_no_names_give_is_refused_or_changed():
    model = siblings("b", "a", "x", welded="x")
    with pytest.raises(ModelError, match=r"joint 'a': it comes after joint 'b'.*reorder") as error:
        urdf_text(model)
    assert error.value.joint == "a"
    assert load_urdf(urdf_text(model, reorder=True)).joint_names == ("a", "b")


# ---------------------------------------------------------------------------------------- refusals

REFUSED = {
    "helical": (lambda: chain((joints.Helical(Z, 0.1), {})), "joint 'j0': .*Helical"),
    "spherical": (
        lambda: chain((joints.Spherical(), {})),
        "joint 'j0': .*Spherical, except as 'root_joint'",
    ),
    "translation": (lambda: chain((joints.Translation(), {})), "joint 'j0': .*Translation"),
    "user-defined": (lambda: chain((joints.Custom(2, zoo.crank), {})), "joint 'j0': .*Custom"),
    "nonlinear follower": (
        lambda: chain(hinge(), hinge(), hinge(mimic=Follow(("j0", "j1"), zoo.Polynomial()))),
        "joint 'j2': .*Follow",
    ),
    "armature": (lambda: chain(hinge(armature=0.1)), "joint 'j0' .*Revolute: its armature"),
    "armature of a planar joint": (
        lambda: chain((joints.Planar(), {"armature": 0.1})),
        "joint 'j0' .*Planar: its armature",
    ),
    "limits of a floating joint": (
        lambda: chain((joints.FreeFlyer(), {})),
        "joint 'j0' .*FreeFlyer: its velocity_limit",
    ),
    "damping of a planar joint": (
        lambda: chain(
            (joints.Planar(), {"velocity_limit": None, "effort_limit": None, "damping": 0.1})
        ),
        "joint 'j0' .*Planar: its damping",
    ),
    "damping of the root joint": (
        lambda: with_field(load_urdf(SOUND, root_joint="free_flyer"), "damping", 0.1),
        "joint 'root_joint' .*FreeFlyer: its damping",
    ),
    "armature of the root joint": (
        lambda: with_field(load_urdf(SOUND, root_joint="free_flyer"), "armature", 0.1),
        "joint 'root_joint' .*FreeFlyer: its armature",
    ),
    "one position limit": (lambda: chain(hinge(lower=-1)), "joint 'j0': its upper limit is inf"),
    "infinite effort": (
        lambda: chain(hinge(lower=-1, upper=1, effort_limit=None)),
        "joint 'j0': its effort limit is inf",
    ),
    "infinite velocity": (
        lambda: chain(slider(velocity_limit=None)),
        "joint 'j0': its velocity limit is inf",
    ),
    "mass moment without mass": (
        lambda: with_field(chain(hinge()), "inertia", np.array([[0, 1.0, *[0] * 8]])),
        "link 'l0': it has the mass moment",
    ),
    "negative mass": (
        lambda: with_field(chain(hinge()), "inertia", np.array([[-1.0, *[0] * 9]])),
        "link 'l0': its inertia is .* a mass of 0 or more",
    ),
    "inertia with NaN": (
        lambda: with_field(chain(hinge()), "inertia", np.array([[1.0, *[np.nan] * 9]])),
        "link 'l0': its inertia is .* finite numbers",
    ),
    "negative damping": (
        lambda: with_field(chain(hinge()), "damping", -0.1),
        r"joint 'j0': its damping is \[-0.1\], expected a finite number of 0 or more",
    ),
    "friction with NaN": (
        lambda: with_field(chain(slider()), "friction", np.nan),
        r"joint 'j0': its friction is \[nan\], expected a finite number of 0 or more",
    ),
    "negative effort": (
        lambda: with_field(chain(hinge()), "effort_limit", -1.0),
        "joint 'j0': its effort_limit is .* expected 0 or more",
    ),
    "limits in the wrong order": (
        lambda: with_field(chain(hinge(lower=-1, upper=1)), "lower_position_limit", 2.0),
        "joint 'j0': the lower position limit 2 is above the upper position limit 1",
    ),
    "limit with NaN": (
        lambda: with_field(chain(hinge()), "lower_position_limit", np.nan),
        "joint 'j0': its lower is .* expected a number",
    ),
    "name with a control character": (
        lambda: dataclasses.replace(chain(hinge()), joint_names=("j\x01",)),
        "joint .*: its name has a character",
    ),
    "name that is an expression": (
        lambda: dataclasses.replace(chain(hinge()), joint_names=("${j}",)),
        "joint .*: its name is an xacro",
    ),
    "empty name": (lambda: dataclasses.replace(chain(hinge()), name=" "), "robot ' ': .* is empty"),
}


def with_field(model, field, value):
    return dataclasses.replace(model, **{field: jnp.zeros_like(getattr(model, field)) + value})


@pytest.mark.parametrize(("make", "words"), REFUSED.values(), ids=REFUSED)
def test_what_urdf_cannot_state_is_refused_by_name(make, words):
    with pytest.raises(ModelError, match=words) as error:
        urdf_text(make())
    faults = error.value.faults or (error.value,)
    assert [fault for fault in faults if re.search(words, str(fault))]
    for fault in faults:
        assert str(fault) in str(error.value)
        if str(fault).startswith("joint "):
            assert str(fault).startswith(f"joint {fault.joint!r}")


def test_all_faults_are_one_error():
    """The faults of the robot, of its links and of its joints, one line each."""
    slide = slider(armature=0.2, velocity_limit=None, effort_limit=None)
    model = chain(hinge(armature=0.1), slide)
    model = dataclasses.replace(model, gravity=jnp.zeros(3), name=" ")
    with pytest.raises(ModelError) as error:
        urdf_text(model)
    first, *lines = str(error.value).splitlines()
    assert first == "6 parts of the robot cannot be in a URDF file:"
    assert lines == [f"  {fault}" for fault in error.value.faults]
    starts = [
        "gravity is",
        "robot ' ': its name",
        "joint 'j0' of the kind Revolute: its armature",
        "joint 'j1' of the kind Prismatic: its armature",
        "joint 'j1': its effort limit",
        "joint 'j1': its velocity limit",
    ]
    assert all(line.startswith(f"  {start}") for line, start in zip(lines, starts, strict=True))
    arguments = [fault.argument for fault in error.value.faults]
    assert arguments == [None] * 4 + ["unlimited"] * 2
    with pytest.raises(ModelError, match=r"^4 parts"):
        urdf_text(model, unlimited=5.0)

    disordered = with_field(siblings("b", "a", "x", welded="x"), "armature", 0.1)
    with pytest.raises(ModelError, match=r"^3 parts[^:]*:\n.*argument `reorder`\n.*armature"):
        urdf_text(disordered)


NO_BALL = Geometry(eqx.tree_at(lambda ball: ball.radius, Sphere(0.1), np.array(np.nan)))


def test_models_and_arguments_that_are_refused():
    model = chain(hinge())
    for wrong, words in (
        (model.with_dissipation(), "dissipation is on.*with_dissipation"),
        (dataclasses.replace(model, gravity=jnp.zeros(3)), r"gravity is \[0.0, 0.0, 0.0\]"),
        (jax.tree.map(lambda x: jnp.stack([x, x]), model), "is a batch of models"),
    ):
        with pytest.raises(ArgumentError, match=words):
            urdf_text(wrong)
    for shape, words in (
        (Geometry(MeshFile("a\0.stl"), np.eye(4)), "has the file 'a.x00.stl' with a character"),
        (Geometry(MeshFile("$(a).stl"), np.eye(4)), "has the file .* an xacro expression"),
        (Geometry(Sphere(0.1), np.eye(4), None, "a\0"), "has the name 'a.x00' with a character"),
        (NO_BALL, "link 'l0': its visual 0: radius of its Sphere is not finite"),
        (Geometry(Sphere(0.1), 2 * np.eye(4)), "link 'l0': its visual 0: placement of its"),
    ):
        wrong = dataclasses.replace(model, geometry=LinkGeometry({"l0": (shape,)}))
        with pytest.raises(ModelError, match=words):
            urdf_text(wrong)
    for unlimited in (-1.0, np.inf, np.nan, "x", True):
        with pytest.raises(ArgumentError, match="unlimited is"):
            urdf_text(model, unlimited=unlimited)
    words = r"the lower position limit 2 is above the upper position limit 1, with unlimited=1\.0"
    with pytest.raises(ModelError, match=words):
        urdf_text(chain(hinge(lower=2)), unlimited=1.0)


def test_names_with_special_characters():
    model = chain(hinge(), hinge())
    odd = dataclasses.replace(model, joint_names=('a<&>"b', "c\u00e9 \n'"), name='"&')
    assert_same(load_urdf(urdf_text(odd)), odd)


def test_single_precision():
    model = chain(hinge(lower=-1, upper=1), slider()).astype(np.float32)
    assert_same(load_urdf(urdf_text(model)).astype(np.float32), model, 1e-6)
