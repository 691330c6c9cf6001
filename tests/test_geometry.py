"""Visual and collision geometry: read, kept by edits and files, and invisible to programs."""

import dataclasses
import os
import pathlib
import pickle
import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd.collision import Box, Capsule, Cylinder, Ellipsoid, Sphere
from jaxrbd.errors import ModelError, RobotFileError, SavedFileError
from jaxrbd.io import _sealed, load_urdf, model_file, parse_urdf, urdf_text, validate_urdf
from jaxrbd.model import (
    Fixed,
    Geometry,
    JointSpec,
    Link,
    LinkGeometry,
    Mesh,
    MeshFile,
    placement_matrix,
)
from jaxrbd.spatial import pose_matrix
from support import real_robots, zoo
from support.urdf_text import EVERYTHING

POSE = placement_matrix((0.1, -0.2, 0.3), (0.4, -0.5, 0.6))
RED = (1.0, 0.0, 0.0, 0.5)
TETRAHEDRON = Mesh(
    np.vstack([np.zeros(3), np.eye(3)]), [[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]
)
EVERY_SHAPE = (
    Box((0.5, 1.0, 1.5)),
    Sphere(0.25),
    Cylinder(0.1, 0.35),
    Capsule(0.2, 0.4),
    MeshFile("package://robot/part.stl", (1, -1, 2)),
    Ellipsoid((0.1, 0.2, 0.3)),
    TETRAHEDRON,
)
OF_URDF = (*EVERY_SHAPE[:3], EVERY_SHAPE[4])


def plain(shape: Geometry) -> tuple:
    """The content of a geometry, for comparisons."""
    fields = {name: np.asarray(x).tolist() for name, x in vars(shape.shape).items()}
    color = None if shape.color is None else tuple(shape.color)
    return (
        type(shape.shape).__name__,
        fields,
        np.asarray(shape.placement).tolist(),
        color,
        shape.name,
    )


def content(geometry: LinkGeometry) -> dict:
    return {
        kind: {link: [*map(plain, shapes)] for link, shapes in getattr(geometry, kind).items()}
        for kind in ("visuals", "collisions")
    }


def assert_close(ours: LinkGeometry, expected: LinkGeometry, kinds=("visuals", "collisions")):
    """The same geometry, with placements that are equal to rounding."""
    by_kind, expected_by_kind = content(ours), content(expected)
    for kind in kinds:
        assert [*by_kind[kind]] == [*expected_by_kind[kind]]
        for link, shapes in expected_by_kind[kind].items():
            for found, wanted in zip(by_kind[kind][link], shapes, strict=True):
                assert found[:2] + found[3:] == wanted[:2] + wanted[3:]
                np.testing.assert_allclose(found[2], wanted[2], rtol=0, atol=1e-14)


def arm(shapes=EVERY_SHAPE) -> rbd.Model:
    """A robot of four links; the first one is welded to the world, the last one to a body."""
    inertia = zoo.random_inertia(np.random.default_rng(0))
    visuals = [Geometry(shape, POSE, RED, f"part {i}") for i, shape in enumerate(shapes)]
    links = [
        Link("base", visuals=visuals[:1]),
        Link("upper", inertia, visuals[1:3], [Geometry(Box((0.05, 0.05, 0.05)))]),
        Link("lower", inertia),
        Link("tool", visuals=visuals[3:]),
    ]
    limits: dict[str, Any] = {"velocity_limit": 1.0, "effort_limit": 1.0}
    hinge = rbd.joints.Revolute((0.0, 0.0, 1.0))
    joints = [
        JointSpec("mount", Fixed(), None, "base"),
        JointSpec("a", hinge, "base", "upper", POSE, **limits),
        JointSpec("b", hinge, "upper", "lower", POSE, **limits),
        JointSpec("weld", Fixed(), "lower", "tool", POSE),
    ]
    return rbd.build_model(links, joints)


# --------------------------------------------------------------------------------------------- URDF


def test_every_element_of_urdf_is_read():
    (lower,) = [link for link in parse_urdf(EVERYTHING)[1] if link.name == "lower"]
    grey = (0.5, 0.5, 0.5, 1.0)
    expected = [
        Geometry(
            Box((0.5, 1.0, 0.0)),
            placement_matrix((0, 0, 0.1), (0, 0.2, 0)),
            grey,
            "plate",
        ),
        Geometry(MeshFile("package://all/lower.stl", (1.0, -1.0, 1.0)), color=RED),
    ]
    assert [*map(plain, lower.visuals)] == [*map(plain, expected)]
    solids = Sphere(0.5), Cylinder(0.5, 1.0), Capsule(0.5, 1.0)
    assert [plain(shape)[:2] for shape in lower.collisions] == [
        plain(Geometry(shape))[:2] for shape in solids
    ]


def test_a_reader_without_geometry_skips_it():
    text = EVERYTHING.replace('size="1 2 0"', 'size="1 -2 0"')
    with pytest.raises(RobotFileError, match="<box size"):
        load_urdf(text)
    with pytest.warns(rbd.InertiaWarning):
        model = load_urdf(text, geometry=False)
    assert content(model.geometry) == {"visuals": {}, "collisions": {}}
    assert not any(link.visuals for link in parse_urdf(text, geometry=False)[1])


FAULTS = {
    '<geometry><box size="1 -1 1"/></geometry>': "<box .*: expected at least 0",
    '<geometry><box size="1 1"/></geometry>': "<box .*: expected 3 numbers, found 2",
    '<geometry><box size="1 nan 1"/></geometry>': "<box .*: 'nan' is not finite",
    "<geometry><box/></geometry>": "<box> has no attribute 'size'",
    '<geometry><sphere radius="-1"/></geometry>': "<sphere .*: expected at least 0",
    '<geometry><cylinder radius="1"/></geometry>': "<cylinder> has no attribute 'length'",
    '<geometry><capsule length="x" radius="1"/></geometry>': "<capsule .*: 'x' is not a number",
    '<geometry><cone radius="1"/></geometry>': "<geometry> has <cone>, expected one of box",
    "<geometry/>": "<geometry> has nothing, expected one of box",
    '<geometry><box size="1 1 1"/><box size="1 1 1"/></geometry>': "has <box>, <box>",
    '<origin xyz="0 0 0"/>': "<geometry> is missing",
    "<geometry><mesh/></geometry>": "<mesh> has no attribute 'filename'",
    '<geometry><mesh filename="a.step"/></geometry>': "file type is '.step', expected one of .stl",
    '<geometry><mesh filename="a"/></geometry>': "file type is ''",
    '<geometry><mesh filename="a.stl" scale="1 0 1"/></geometry>': "a scale may not be 0",
    '<origin xyz="1"/><geometry><sphere radius="1"/></geometry>': "<origin .*: expected 3 numbers",
}


@pytest.mark.parametrize("tag", ["visual", "collision"])
@pytest.mark.parametrize("inside", FAULTS)
def test_bad_geometry_names_link_and_line(tag, inside):
    text = f'<robot name="r">\n<link name="a">\n<{tag}>\n{inside}\n</{tag}>\n</link></robot>'
    (fault,) = validate_urdf(text)
    line = 3 if "is missing" in FAULTS[inside] else 4
    assert re.match(f"<string>:{line}: link 'a': .*{FAULTS[inside]}", fault), fault
    with pytest.raises(RobotFileError) as error:
        load_urdf(text)
    assert (error.value.link, error.value.line, str(error.value)) == ("a", line, fault)


@pytest.mark.parametrize("rgba", ["1 0 0", "0 0 255 1", "-1 0 0 1"])
def test_a_bad_colour_names_its_line(rgba):
    material = f'<material name="m">\n<color rgba="{rgba}"/></material>'
    (fault,) = validate_urdf(f'<robot name="r"><link name="a"/>{material}</robot>')
    assert fault.startswith(f'<string>:2: <color rgba="{rgba}">: expected')


@pytest.mark.parametrize("name", real_robots.mostly_slow())
def test_real_robots_have_all_their_shapes(name):
    model = real_robots.load(name, None)
    text = re.sub("<!--.*?-->", "", real_robots.path_of(name).read_text(), flags=re.DOTALL)
    text = re.sub("<(gazebo|sensor).*?</\\1>", "", text, flags=re.DOTALL)
    for kind, tag in (("visuals", "visual"), ("collisions", "collision")):
        shapes = [shape for found in getattr(model.geometry, kind).values() for shape in found]
        assert len(shapes) == len(re.findall(f"<{tag}[ >]", text))
        meshes = [shape.shape for shape in shapes if isinstance(shape.shape, MeshFile)]
        assert all(mesh.robot_file == str(real_robots.path_of(name)) for mesh in meshes)


def test_a_urdf_file_keeps_the_geometry(tmp_path):
    model = arm(OF_URDF)
    assert_close(load_urdf(urdf_text(model)).geometry, model.geometry)
    assert "visual" not in urdf_text(model, geometry=False)
    # The written file may be in another folder: relative paths become absolute.
    beside, package = tmp_path / "robot.urdf", "package://robot/part.stl"
    for uri, expected in (("part.stl", tmp_path / "part.stl"), (package, package)):
        beside.write_text(urdf_text(arm([*OF_URDF[:3], MeshFile(uri)])))
        text = urdf_text(load_urdf(beside))
        assert re.findall('filename="(.*)"', text) == [str(expected)]
    named = urdf_text(arm([*OF_URDF[:3], MeshFile("part.stl", robot_file="robots/robot.urdf")]))
    assert re.findall('filename="(.*)"', named) == [os.path.abspath("robots/part.stl")]


def distance(geometry: Geometry, x: np.ndarray) -> np.ndarray:
    """The distances (n,) of points (n, 3) in the link to a sphere, a cylinder or a capsule."""
    shape, H = geometry.shape, np.asarray(geometry.placement)
    y = (x - H[:3, 3]) @ H[:3, :3]
    if isinstance(shape, Sphere):
        return np.linalg.norm(y, axis=1) - shape.radius
    beside, beyond = np.linalg.norm(y[:, :2], axis=1), np.abs(y[:, 2]) - shape.half_length
    if isinstance(shape, Capsule):
        return np.hypot(beside, np.maximum(beyond, 0)) - shape.radius
    out = np.stack([beside - shape.radius, beyond])
    return np.linalg.norm(np.maximum(out, 0), axis=0) + np.minimum(out.max(axis=0), 0)


def test_a_capsule_is_written_as_shapes_that_every_reader_knows(rng):
    pin = pytest.importorskip("pinocchio")
    model = arm([Capsule(0.2, 0.4), Box((0.5, 1.0, 1.5)), Capsule(0.1, 0.0), TUBE])
    text = urdf_text(model)
    assert "capsule" not in text
    loaded = load_urdf(text)
    # The union of the parts is the capsule.
    parts, (capsule,) = loaded.geometry.visuals["base"], model.geometry.visuals["base"]
    assert [part.name for part in parts] == ["part 0", "part 0 end 1", "part 0 end 2"]
    assert {part.color for part in parts} == {RED}
    x = POSE[:3, 3] + 0.3 * rng.normal(size=(500, 3))
    found = np.min([distance(part, x) for part in parts], axis=0)
    expected = distance(capsule, x)
    outside = expected > 0
    assert 50 < outside.sum() < 450
    np.testing.assert_array_equal(found > 0, outside)
    np.testing.assert_allclose(found[outside], expected[outside], atol=1e-12)
    upper = loaded.geometry.visuals["upper"]
    assert [type(part.shape) for part in upper] == [Box, Sphere]
    # The second conversion gives the same elements, with the same names.
    again = urdf_text(loaded)
    assert re.findall(NAMES, again) == re.findall(NAMES, text)
    assert_close(load_urdf(again).geometry, loaded.geometry)
    # Pinocchio reads every shape.
    pin_model = pin.buildModelFromXML(text)
    count = len(re.findall("<visual", text))
    assert count == 3 + 2 + 3
    for robot in (pin_model, pin.buildModelFromXML(again)):
        shapes = pin.buildGeomFromUrdfString(robot, text, pin.GeometryType.VISUAL)
        assert shapes.ngeoms == count


TUBE = Capsule(0.05, 0.15)
NAMES = r'<(?:visual|collision|material) name="[^"]*"|<(?:box|sphere|cylinder) [^>]*>'


@pytest.mark.parametrize("shape", EVERY_SHAPE[5:])
def test_a_urdf_file_cannot_state_every_shape(shape):
    with pytest.raises(
        ModelError, match=r"link 'tool': its visual 0 has (an Ellipsoid|a Mesh)"
    ) as error:
        urdf_text(arm([*OF_URDF[:3], shape]))
    assert error.value.link == "tool"
    links = [Link("a", collisions=[Geometry(Sphere(1.0), color=RED)])]
    model = rbd.build_model(links, [JointSpec("weld", Fixed(), None, "a")])
    with pytest.raises(ModelError, match="link 'a': its collision 0 has a colour"):
        urdf_text(model)


def test_a_urdf_file_has_full_lengths_and_no_rounding():
    text = urdf_text(arm([BOX, *OF_URDF[1:]]))
    assert re.findall("<(?:box|sphere|cylinder) (.*?) */>", text) == [
        'size="0.2 0.4 0.6"',
        'radius="0.25"',
        'radius="0.1" length="0.7"',
        'size="0.1 0.1 0.1"',
    ]
    for shape in (Box((0.1, 0.2, 0.3), 0.05), Cylinder(0.1, 0.35, 0.05)):
        message = f"link 'base': its visual 0 has a {type(shape).__name__} with a rounding"
        with pytest.raises(ModelError, match=message):
            urdf_text(arm([shape, *OF_URDF[1:]]))


# ------------------------------------------------------------------------------------------ builder

BOX, BALL = Box((0.1, 0.2, 0.3)), Sphere(1.0)


class Crate(Box):
    """A subclass, which viewers and files do not know."""


def damaged(shape: Any, **fields: Any) -> Geometry:
    """A geometry with sizes that the constructor of the shape would refuse."""

    def values(shape):
        return [getattr(shape, name) for name in fields]

    return Geometry(eqx.tree_at(values, shape, [*fields.values()]))


@pytest.mark.parametrize(
    ("geometry", "message"),
    [
        (damaged(BOX, half_sizes=(0.5, -0.5, 0.5)), "its Box: half_sizes is .* 0 or more"),
        (
            damaged(BOX, half_sizes=(1, 1)),
            r"its Box: half_sizes has shape \(2,\)",
        ),
        (damaged(BOX, rounding=0.2), "its Box: half_sizes is .*expected 0.2 or more, the rounding"),
        (damaged(BALL, radius=np.nan), "radius of its Sphere is not finite"),
        (
            damaged(BALL, radius=np.ones(4)),
            r"its Sphere: radius has shape \(4,\)",
        ),
        (damaged(Ellipsoid((1, 2, 3)), radii="abc"), "radii of its Ellipsoid is 'abc'"),
        (Geometry(Crate((1, 2, 3))), "its shape is a Crate, expected one of Box, Sphere"),
        (Geometry(MeshFile("part.step")), "file type is '.step'"),
        (Geometry(MeshFile(" ")), "name of its mesh"),
        (Geometry(MeshFile("a.stl", (1, 0, 1))), "scale is"),
        (Geometry(Mesh(np.eye(3), [[0, 1, 3]])), "expected indices of 3 vertices"),
        (Geometry(Mesh(np.eye(2), [[0, 1, 1]])), "expected finite numbers \\(n, 3\\)"),
        (Geometry(Mesh(np.eye(3), [[0.0, 1.0, 2.0]])), "expected whole numbers"),
        (Geometry(Mesh([["0", "0", "1"]] * 3, [[0, 1, 2]])), "its Mesh: expected vertices"),
        (Geometry(Mesh([[0, 0, 10**400]] * 3, [[0, 1, 2]])), "its Mesh: expected vertices"),
        (Geometry(BALL, color=(10**400, 0, 0, 1)), "color is .*, expected numbers"),
        (Geometry(BALL, 2 * np.eye(4)), "no rigid pose"),
        (Geometry(BALL, np.eye(3)), "placement of its geometry has shape"),
        (Geometry(BALL, color=(0, 0, 2, 1)), "color is"),
        (Geometry(BALL, color=("0", "0", "1", "1")), "color is .*, expected numbers"),
    ],
)
@pytest.mark.parametrize("kind", ["visuals", "collisions"])
def test_the_builder_refuses_bad_geometry(kind, geometry, message):
    links = [Link("a"), dataclasses.replace(Link("b"), **{kind: [geometry]})]
    joints = [JointSpec(f"on {link.name}", Fixed(), None, link.name) for link in links]
    with pytest.raises(ModelError, match=f"link 'b': {kind}: .*{message}") as error:
        rbd.build_model(links, joints)
    assert error.value.link == "b"


@pytest.mark.parametrize("kind", ["jit", "vmap"])
def test_the_builder_refuses_traced_sizes(kind):
    def mass(radius):
        links = [Link("a", collisions=[Geometry(Sphere(radius))])]
        return rbd.total_mass(rbd.build_model(links, [JointSpec("weld", Fixed(), None, "a")]))

    with pytest.raises(ModelError, match=r"radius of its Sphere is .*, expected numbers"):
        {"jit": jax.jit, "vmap": jax.vmap}[kind](mass)(jnp.ones(2)[0 if kind == "jit" else ...])


def test_sizes_in_a_model_are_constants_in_double_precision():
    sizes = np.array([1.0, 2.0, 3.0])
    shapes = [Box(sizes), Sphere(jnp.float32(0.1)), Capsule(jnp.ones(()), 1), *OF_URDF[3:]]
    (box,), (ball, rod), _ = arm(shapes).geometry.visuals.values()
    sizes[0] = 7.0
    assert bool(box.shape == Box((1, 2, 3)))
    assert bool(ball.shape == Sphere(np.float32(0.1)))
    assert bool(rod.shape == Capsule(1, 1))
    for x in jax.tree.leaves((box.shape, ball.shape, rod.shape)):
        assert (type(x), x.dtype, x.flags.writeable) == (np.ndarray, np.float64, False)


def test_geometry_must_be_on_frames():
    geometry = LinkGeometry(visuals={"no link": (Geometry(Sphere(1.0)),)})
    with pytest.raises(ModelError, match="'no link'"):
        dataclasses.replace(arm(), geometry=geometry)


# ----------------------------------------------------------------------------------------- programs


def test_geometry_does_not_affect_programs():
    model = arm()
    bare = dataclasses.replace(model, geometry=LinkGeometry())
    assert jax.tree.structure(model) == jax.tree.structure(bare)
    assert hash(jax.tree.structure(model)) == hash(jax.tree.structure(bare))
    assert len(jax.tree.leaves(model)) == len(jax.tree.leaves(bare))
    traced = []

    @jax.jit
    def mass(model):
        traced.append(1)
        return rbd.total_mass(model)

    assert mass(model) == mass(bare) == mass(arm(OF_URDF))
    assert len(traced) == 1


def test_changed_leaves_keep_the_geometry():
    model = arm()
    heavier = jax.tree.map(lambda x: 2 * x, model)
    batch = jax.vmap(lambda s: model.with_mass("upper", s))(jnp.ones(3))
    for changed in (heavier, batch, model.astype("float32"), model.with_dissipation()):
        assert content(changed.geometry) == content(model.geometry)
    assert content(pickle.loads(pickle.dumps(model)).geometry) == content(model.geometry)


# -------------------------------------------------------------------------------------------- edits


def world_poses(model, q) -> list:
    """The world pose of every shape with its content, sorted by name."""
    found, frames = [], rbd.frame_placements(model, jnp.asarray(q))
    for kind in ("visuals", "collisions"):
        for link, shapes in getattr(model.geometry, kind).items():
            index, H = model.frame_names.index(link), np.eye(4)
            H[:3, :3], H[:3, 3] = frames.R[index], frames.p[index]
            found += [(shape.name, plain(shape)[:2], H @ shape.placement) for shape in shapes]
    return sorted(found, key=lambda entry: entry[0])


def assert_same_places(ours, expected):
    for found, wanted in zip(ours, expected, strict=True):
        assert found[:2] == wanted[:2]
        np.testing.assert_allclose(found[2], wanted[2], rtol=0, atol=1e-14)


def test_a_description_has_the_geometry():
    model = arm()
    again = rbd.build_model(*rbd.model.describe(model))
    assert content(again.geometry) == content(model.geometry)


def test_locked_joints_keep_the_shapes_in_place():
    model, q = arm(), np.array([0.3, -0.7])
    for locked in ({"a": 0.3}, {"b": -0.7}, {"a": 0.3, "b": -0.7}):
        edited = rbd.model.lock_joints(model, locked)
        free = [q[i] for i, name in enumerate("ab") if name not in locked]
        assert_same_places(world_poses(edited, free), world_poses(model, q))


def test_an_appended_robot_brings_its_shapes():
    model, mount = arm(), placement_matrix((1, 2, 3), (0.1, 0.2, 0.3))
    both = rbd.model.append_model(model, arm(OF_URDF), placement=mount, prefix="second ")
    second = {link: s for link, s in both.geometry.visuals.items() if link.startswith("second ")}
    assert {link.removeprefix("second ") for link in second} == {"base", "upper", "tool"}
    alone = LinkGeometry(second, {})
    only = dataclasses.replace(both, geometry=alone)
    expected = dataclasses.replace(
        arm(OF_URDF), geometry=LinkGeometry(arm(OF_URDF).geometry.visuals)
    )
    moved = [(name, shape, mount @ H) for name, shape, H in world_poses(expected, [0.2, 0.4])]
    assert_same_places(world_poses(only, [0.0, 0.0, 0.2, 0.4]), moved)


# ------------------------------------------------------------------------------------ model files


def test_a_model_file_keeps_the_geometry(tmp_path):
    model = arm()
    rbd.io.save_model(model, tmp_path / "robot")
    loaded = rbd.io.load_model(tmp_path / "robot")
    assert content(loaded.geometry) == content(model.geometry)
    assert [*loaded.geometry.visuals] == [*model.geometry.visuals]


def test_a_model_file_of_version_1_has_no_geometry(tmp_path):
    path = tmp_path / "robot"
    rbd.io.save_model(arm(), path)
    header, body = _sealed.read_sealed(path, "model", model_file.VERSION)
    del header["geometry"]
    _sealed.write_sealed(path, "model", 1, header, body)
    assert content(rbd.io.load_model(path).geometry) == {"visuals": {}, "collisions": {}}


def old_record(shape: dict) -> dict:
    """The record of a shape in a file of version 3, with full sides and lengths."""
    shape = dict(shape)
    if shape["kind"] in ("Mesh", "MeshFile"):
        return shape
    shape["kind"] += "Shape"
    shape.pop("rounding", None)
    if "half_sizes" in shape:
        shape["size"] = [2 * x for x in shape.pop("half_sizes")]
    if "half_length" in shape:
        shape["length"] = 2 * shape.pop("half_length")
    return shape


@pytest.mark.parametrize("version", [2, 3])
def test_a_model_file_of_an_older_version_has_full_lengths(version, tmp_path):
    path, model = tmp_path / "robot", arm()
    rbd.io.save_model(model, path)
    header, body = _sealed.read_sealed(path, "model", model_file.VERSION)
    box, *_ = header["geometry"]
    assert box["shape"] == {"kind": "Box", "half_sizes": [0.5, 1.0, 1.5], "rounding": 0.0}
    for record in header["geometry"]:
        record["shape"] = old_record(record["shape"])
    assert box["shape"] == {"kind": "BoxShape", "size": [1.0, 2.0, 3.0]}
    _sealed.write_sealed(path, "model", version, header, body)
    assert content(rbd.io.load_model(path).geometry) == content(model.geometry)
    # A damaged record is an error, as in a file of this version.
    for change, message in (
        ({"size": [1, -1, 1]}, "half_sizes is"),
        ({"size": [1, 1]}, "half_sizes has shape"),
        ({"size": "abc"}, "abc"),
        ({"size": None}, "half_sizes"),
        ({"length": 1.0}, "half_length"),
        ({"kind": "ConeShape"}, "its shape is unknown"),
    ):
        bad = {**box, "shape": {**box["shape"], **change}}
        changed = {**header, "geometry": [bad, *header["geometry"][1:]]}
        _sealed.write_sealed(path, "model", version, changed, body)
        with pytest.raises(SavedFileError, match=f"{path}: entry 0 of its geometry.*{message}"):
            rbd.io.load_model(path)


def test_a_model_file_keeps_roundings(tmp_path):
    shapes = (Box((1, 2, 3), 0.1), Cylinder(1, 2, 0.3), Ellipsoid((1, 2, 3), 0.5))
    model = arm([*shapes, *EVERY_SHAPE[3:]])
    rbd.io.save_model(model, tmp_path / "robot")
    loaded = rbd.io.load_model(tmp_path / "robot")
    assert content(loaded.geometry) == content(model.geometry)
    (box,) = loaded.geometry.visuals["base"]
    assert bool(box.shape == shapes[0])


CHANGES = {
    "unknown link": (lambda r: r.update(link="x"), "on the link 'x', which is no frame"),
    "unknown role": (lambda r: r.update(role="both"), "the role 'both'"),
    "a list as role": (lambda r: r.update(role=[]), "the role \\[\\]"),
    "missing": (lambda r: r.pop("color"), "has not the fields"),
    "colour": (lambda r: r.update(color=[1, 2, 3, 4]), "color is"),
    "pose": (lambda r: r.update(placement=[[1]]), "placement of its geometry"),
    "a huge pose": (lambda r: r["placement"][0].__setitem__(3, 10**400), "too large"),
    "kind": (lambda r: r["shape"].update(kind="Cone"), "its shape is unknown"),
    "a list as kind": (lambda r: r["shape"].update(kind=[]), "its shape is unknown"),
    "negative": (lambda r: r["shape"].update(half_sizes=[1, -1, 1]), "half_sizes is"),
    "infinite": (lambda r: r["shape"].update(half_sizes=[1, float("inf"), 1]), "half_sizes is"),
    "too large": (lambda r: r["shape"].update(half_sizes=[1, 10**400, 1]), "too large"),
    "text": (lambda r: r["shape"].update(half_sizes="abc"), r"[\s\S]*half_sizes"),
    "two sides": (lambda r: r["shape"].update(half_sizes=[1, 1]), "half_sizes has shape"),
    "rounding": (lambda r: r["shape"].update(rounding=9), "the rounding"),
    "no sides": (lambda r: r["shape"].pop("half_sizes"), "half_sizes"),
    "extra": (lambda r: r["shape"].update(extra=1), "extra"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_file_with_bad_geometry(change, tmp_path):
    path = tmp_path / "robot"
    rbd.io.save_model(arm(), path)
    header, body = _sealed.read_sealed(path, "model", model_file.VERSION)
    edit, message = CHANGES[change]
    edit(header["geometry"][0])
    _sealed.write_sealed(path, "model", model_file.VERSION, header, body)
    with pytest.raises(SavedFileError, match=f"{path}: entry 0 of its geometry.*{message}"):
        rbd.io.load_model(path)


@pytest.mark.parametrize("data", ["!", "AAAA", None, "AAAAAAAAAAAAAAAAAAAA"])
def test_a_model_file_with_a_bad_mesh(data, tmp_path):
    path = tmp_path / "robot"
    rbd.io.save_model(arm(), path)
    header, body = _sealed.read_sealed(path, "model", model_file.VERSION)
    mesh = next(r for r in header["geometry"] if r["shape"]["kind"] == "Mesh")
    mesh["shape"]["faces"] = data
    _sealed.write_sealed(path, "model", model_file.VERSION, header, body)
    with pytest.raises(SavedFileError, match=f"{path}: entry .* of its geometry"):
        rbd.io.load_model(path)


# ------------------------------------------------------------------------------------------- MuJoCo


def test_geoms_of_mujoco_are_where_mujoco_has_them():
    mujoco = pytest.importorskip("mujoco")
    path = pathlib.Path(mujoco.__file__).parent / "testdata" / "model.xml"
    imported = rbd.io.load_mjcf(path, strict=False)
    model, compiled = imported.model, mujoco.MjModel.from_xml_path(str(path))
    data = mujoco.MjData(compiled)
    rng = np.random.default_rng(0)
    v = jnp.asarray(rng.normal(size=model.nv))
    q = rbd.integrate(model, imported.q0, v)
    data.qpos[:] = imported.coordinates.qpos(model, q)
    mujoco.mj_kinematics(compiled, data)
    X = rbd.forward_kinematics(model, q)
    found = {}
    for link, shapes in model.geometry.visuals.items():
        frame = model.frame_index(link)
        body = model.frame_bodies[frame]
        H = pose_matrix(model.frame_pose)[frame]
        if body >= 0:
            H = pose_matrix(X.X_WB)[body] @ H
        for shape in shapes:
            found[shape.name] = shape, H @ shape.placement
    kinds = set()
    for geom in range(compiled.ngeom):
        if compiled.geom_bodyid[geom] == 0:
            continue
        name = mujoco.mj_id2name(compiled, mujoco.mjtObj.mjOBJ_GEOM, geom) or f"geom{geom}"
        shape, H = found.pop(name)
        np.testing.assert_allclose(H[:3, 3], data.geom_xpos[geom], atol=1e-12)
        np.testing.assert_allclose(H[:3, :3].ravel(), data.geom_xmat[geom], atol=1e-12)
        size = compiled.geom_size[geom]
        kind = mujoco.mjtGeom(compiled.geom_type[geom]).name.removeprefix("mjGEOM_").lower()
        kinds.add(kind)
        assert type(shape.shape).__name__.lower() == kind
        if kind == "mesh":
            # MuJoCo's bounding box of the geom: centre and half sides.
            box = compiled.geom_aabb[geom]
            vertices = shape.shape.vertices
            np.testing.assert_allclose(np.max(vertices, 0), box[:3] + box[3:], atol=1e-6)
            np.testing.assert_allclose(np.min(vertices, 0), box[:3] - box[3:], atol=1e-6)
        if kind == "ellipsoid":
            assert tuple(shape.shape.radii) == tuple(size)
        if kind == "box":
            assert tuple(shape.shape.half_sizes) == tuple(size)
        if kind in ("capsule", "cylinder"):
            assert (shape.shape.radius, shape.shape.half_length) == (size[0], size[1])
    assert not found
    assert kinds >= {"ellipsoid", "capsule", "box", "cylinder", "mesh"}


GROUPS = """
<mujoco><worldbody><geom type="plane" size="1 1 1"/><body name="a"><joint/>
  <geom name="both" size="0.1" rgba="0 1 0 1"/>
  <geom name="seen" size="0.1" contype="0" conaffinity="0" group="1" material="m"/>
  <geom name="felt" size="0.1" group="3"/>
  <geom name="struck" size="0.1" group="3" contype="0" conaffinity="1"/>
  <geom name="tinted" size="0.1" contype="0" conaffinity="0" rgba="2 0 -1 1" material="m"/>
</body></worldbody>
<asset><material name="m" rgba="0 0 1 0.5"/></asset></mujoco>
"""


def test_the_second_of_two_meshes_of_a_file():
    """Its triangles enclose its volume. The first mesh has more triangles than vertices."""
    pytest.importorskip("mujoco")
    corners = " ".join(f"{x} {y} {z}" for x in (0, 1) for y in (0, 2) for z in (0, 3))
    text = f"""
    <mujoco><asset><mesh name="box" vertex="{corners}"/>
    <mesh name="small" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/></asset>
    <worldbody><body name="a"><joint/>
    <geom type="mesh" mesh="small"/><geom type="mesh" mesh="box"/></body></worldbody></mujoco>"""
    model = rbd.io.load_mjcf(text, strict=False).model
    volumes = [
        np.sum(np.linalg.det(shape.shape.vertices[shape.shape.faces])) / 6
        for shape in model.geometry.visuals["a"]
    ]
    np.testing.assert_allclose(volumes, [1 / 6, 6], rtol=1e-5)


def test_groups_and_contact_bits_say_what_a_geom_is_for():
    pytest.importorskip("mujoco")
    model = rbd.io.load_mjcf(GROUPS).model
    colors = {shape.name: shape.color for shape in model.geometry.visuals["a"]}
    assert colors == {
        "both": (0.0, 1.0, 0.0, 1.0),
        "seen": (0.0, 0.0, 1.0, 0.5),
        "tinted": (1.0, 0.0, 0.0, 1.0),
    }
    assert [shape.name for shape in model.geometry.collisions["a"]] == ["both", "felt", "struck"]
    assert {float(shape.shape.radius) for shape in model.geometry.collisions["a"]} == {0.1}
    assert [*model.geometry.visuals] == ["a"]
