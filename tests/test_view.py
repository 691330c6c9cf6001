"""What is drawn of a robot, pictures without a browser, and the text of pages."""

import builtins
import dataclasses
import importlib.util
import inspect
import itertools
import pathlib
import re
import socket
import subprocess
import sys
import types
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import cli, contact, inverse_kinematics as ik, view
from jaxrbd.collision import (
    Box,
    Capsule,
    ConvexMesh,
    Cylinder,
    Ellipsoid,
    HalfSpace,
    PlacedShape,
    Separation,
    Sphere,
)
from jaxrbd.errors import ArgumentError, GeometryWarning
from jaxrbd.model import (
    Fixed,
    Geometry,
    JointSpec,
    Link,
    LinkGeometry,
    Mesh,
    MeshFile,
    link_inertia,
    placement_matrix,
)
from jaxrbd.robots import robot_path
from jaxrbd.view import contact_arrows, live, markers, motion, picture, raster, stage, triangles
from support import real_robots, zoo

needs_viser = pytest.mark.skipif(
    importlib.util.find_spec("viser") is None, reason="viser is not installed"
)
needs_trimesh = pytest.mark.skipif(
    importlib.util.find_spec("trimesh") is None, reason="trimesh is not installed"
)
POSE = placement_matrix((0.1, -0.2, 0.3), (0.4, -0.5, 0.6))
INERTIA = link_inertia(2.0, (0.1, 0.2, -0.1), np.diag([0.02, 0.03, 0.04]), POSE[:3, :3])


def single(visuals=(), collisions=(), inertia=INERTIA) -> rbd.Model:
    """A robot of one link on a slider along x."""
    slide = rbd.joints.Prismatic((1.0, 0.0, 0.0))
    joint = JointSpec("slide", slide, None, "link", lower=-0.5, upper=2.0)
    return rbd.build_model([Link("link", inertia, visuals, collisions)], [joint])


def moments(vertices, faces):
    """Volume, centroid and second moments about the centroid of a closed surface.

    The sign of the volume is positive if the faces are counter-clockwise seen from outside.
    """
    a, b, c = (vertices[faces[:, n]] for n in range(3))
    volume = np.einsum("ni,ni->n", a, np.cross(b, c)) / 6
    total = volume.sum()
    centroid = np.einsum("n,ni->i", volume, a + b + c) / 4 / total
    a, b, c = a - centroid, b - centroid, c - centroid
    volume = np.einsum("ni,ni->n", a, np.cross(b, c)) / 6
    corners = np.stack([a, b, c, np.zeros_like(a)])
    s = corners.sum(axis=0)
    second = np.einsum("kni,knj->nij", corners, corners) + np.einsum("ni,nj->nij", s, s)
    return total, centroid, np.einsum("n,nij->ij", volume, second) / 20


# ------------------------------------------------------------------------------------- triangles

VOLUMES = [
    (Box((0.5, 1.0, 1.5)), 6.0, 1e-12),
    (Sphere(0.5), np.pi / 6, 0.02),
    (Ellipsoid((0.5, 1.0, 2.0)), 4 / 3 * np.pi, 0.02),
    (Cylinder(0.5, 1.0), np.pi / 2, 0.01),
    (Capsule(0.5, 1.0), np.pi / 2 + np.pi / 6, 0.015),
]


@pytest.mark.parametrize(("shape", "volume", "tolerance"), VOLUMES)
def test_primitives_are_closed_and_face_outwards(shape, volume, tolerance):
    ((vertices, faces, color),) = triangles.shape_triangles(shape)
    found, centroid, _ = moments(vertices, faces)
    assert 1 - tolerance <= found / volume <= 1 + 1e-12
    np.testing.assert_allclose(centroid, 0, atol=1e-12)
    assert color is None
    _, place = np.unique(np.round(vertices, 9), axis=0, return_inverse=True)
    edges = place.reshape(-1)[faces][:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2)
    sound = {tuple(edge) for edge in edges.tolist()}
    assert len(sound) == len(edges)
    assert {(j, i) for i, j in sound} == sound  # every edge has two faces, one in each direction


def test_the_extents_of_primitives():
    for shape, extent in (
        (Cylinder(0.5, 1.0), (0.5, 0.5, 1.0)),
        (Capsule(0.5, 1.0), (0.5, 0.5, 1.5)),
        (Ellipsoid((0.5, 1.0, 2.0)), (0.5, 1.0, 2.0)),
    ):
        ((vertices, _, _),) = triangles.shape_triangles(shape)
        np.testing.assert_allclose(vertices.max(axis=0), extent, atol=1e-12)
        np.testing.assert_allclose(vertices.min(axis=0), -np.array(extent), atol=1e-12)


def test_roundings_are_not_drawn():
    for shape, plain in (
        (Box((0.5, 1.0, 1.5), 0.2), Box((0.5, 1.0, 1.5))),
        (Cylinder(0.5, 1.0, 0.2), Cylinder(0.5, 1.0)),
        (Ellipsoid((0.5, 1.0, 2.0), 0.2), Ellipsoid((0.5, 1.0, 2.0))),
    ):
        ((found, faces, _),), ((expected, *_),) = map(triangles.shape_triangles, (shape, plain))
        np.testing.assert_array_equal(found, expected)
        assert len(faces) > 0


def test_the_triangles_of_equal_shapes_are_computed_once(monkeypatch):
    """Shapes of another kind or with another size have their own triangles."""
    computed = []

    def counted(shape, packages):
        computed.append(shape)
        return triangles.shape_triangles(shape, packages)

    monkeypatch.setattr(importlib.import_module("jaxrbd.view.drawing"), "shape_triangles", counted)
    tetrahedron = np.vstack([np.zeros(3), np.eye(3)]), [[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]
    mesh = Mesh(*tetrahedron)
    shapes = [
        *(Cylinder(0.1, 0.2), Cylinder(0.1, 0.3), Capsule(0.1, 0.2), Box((0.1, 0.2, 0.3))),
        *(Box((0.1, 0.2, 0.4)), Box((0.1, 0.3, 0.2)), Sphere(0.1), mesh, Mesh(*tetrahedron)),
        Ellipsoid((0.1, 0.2, 0.3)),
    ]
    equal = [Cylinder(0.1, 0.2), Box((0.1, 0.2, 0.3)), Sphere(0.1), mesh]
    model = rbd.build_model([Link("link")], [JointSpec("weld", Fixed(), None, "link")])
    visuals = {"link": tuple(map(Geometry, [*shapes, *equal]))}
    model = dataclasses.replace(model, geometry=LinkGeometry(visuals=visuals))
    items = view.drawing(model).items
    assert len(computed) == len(shapes)
    for item, shape in zip(items, [*shapes, *equal], strict=True):
        ((vertices, _, _),) = triangles.shape_triangles(shape)
        np.testing.assert_array_equal(item.vertices, vertices)


def test_the_vertices_of_round_shapes():
    """Circles of 32 corners, half as many steps from pole to pole; edges are sharp or round."""

    def rings(*profile):
        """The places of the vertices of a surface of revolution, for radii and heights."""
        angle = 2 * np.pi * np.arange(32) / 32
        places = [(r * np.cos(a), r * np.sin(a), z) for r, z in profile for a in angle]
        return np.unique(np.round(places, 9) + 0.0, axis=0)

    angle = np.pi * np.arange(17) / 16 - np.pi / 2
    arc = np.stack([np.cos(angle), np.sin(angle)], 1)
    low, high = 0.5 * arc[:9] - (0, 1), 0.5 * arc[8:] + (0, 1)
    for shape, places, count in (
        (Ellipsoid((0.5, 1.0, 2.0)), rings(*arc) * (0.5, 1.0, 2.0), 17 * 32),
        (Sphere(2.0), 2 * rings(*arc), 17 * 32),
        (Capsule(0.5, 1.0), rings(*low, *high), 18 * 32),
        (Cylinder(0.5, 1.0), rings((0, -1), (0.5, -1), (0.5, 1), (0, 1)), 6 * 32),
    ):
        ((vertices, faces, _),) = triangles.shape_triangles(shape)
        assert len(vertices) == count
        found = np.unique(np.round(vertices, 9) + 0.0, axis=0)
        np.testing.assert_allclose(found, np.unique(places, axis=0), atol=1e-8)
        a, b, c = (vertices[faces[:, n]] for n in range(3))
        normals = np.cross(b - a, c - a)
        assert np.linalg.norm(normals, axis=1).min() > 1e-4  # no face at a pole without area
        shown = raster._vertex_normals(raster.Surface(vertices, faces, np.ones((len(faces), 4))))
        shown = shown[faces] / np.linalg.norm(shown[faces], axis=-1, keepdims=True)
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        assert np.einsum("nki,ni->nk", shown, normals).min() > 0.9  # the rim of a cylinder is sharp


@pytest.mark.parametrize(("angle", "count"), [(34, 4), (36, 6)])
def test_an_edge_is_sharp_above_35_degrees(angle, count):
    """Also if zero has a sign, and if a mesh in memory has the edge."""
    x, z = np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))
    soup = np.array([[0, 0, 0], [0, 1, 0], [-1, 0.5, 0], [0, 1, -0.0], [-0.0, 0, 0], [x, 0.5, -z]])
    faces = np.array([[0, 1, 2], [3, 4, 5]])
    ((vertices, found, _),) = triangles.shape_triangles(Mesh(soup, faces))
    assert len(vertices) == count
    np.testing.assert_array_equal(vertices[found], soup[faces])


def test_sharp_edges_have_separate_vertices_and_smooth_ones_do_not():
    corners = np.array([*itertools.product((0.0, 1.0), repeat=3)])
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    faces = np.array([t for a, b, c, d in quads for t in ((a, b, c), (a, c, d))])
    cube = triangles.with_edges(triangles.Triangles(corners, faces))
    assert len(cube.vertices) == 24
    np.testing.assert_array_equal(cube.vertices[cube.faces], corners[faces])
    (ball,) = triangles.shape_triangles(Sphere(1.0))
    ball = ball._replace(vertices=np.round(ball.vertices, 9))
    soup = triangles.Triangles(
        ball.vertices[ball.faces].reshape(-1, 3), np.arange(3 * len(ball.faces)).reshape(-1, 3)
    )
    used = len(np.unique(ball.vertices + 0.0, axis=0))
    assert len(triangles.with_edges(soup).vertices) <= used + 2


@needs_trimesh
def test_mesh_files_are_scaled_and_keep_their_colours(tmp_path):
    import trimesh

    box = trimesh.creation.box((1.0, 2.0, 3.0))
    box.apply_translation((5, 0, 0))
    for kind in ("stl", "obj", "ply", "glb"):
        box.export(tmp_path / f"box.{kind}")
        shape = MeshFile(f"box.{kind}", (2.0, -1.0, 1.0), str(tmp_path / "robot.urdf"))
        ((vertices, faces, _),) = triangles.shape_triangles(shape)
        volume, centroid, _ = moments(vertices, faces)
        np.testing.assert_allclose(volume, 12, rtol=1e-6)  # positive: not inside out
        np.testing.assert_allclose(centroid, (10, 0, 0), atol=1e-5)
    box.visual = trimesh.visual.ColorVisuals(box, face_colors=(255, 0, 0, 255))
    box.export(tmp_path / "red.ply")
    ((_, _, color),) = triangles.shape_triangles(MeshFile(str(tmp_path / "red.ply")))
    assert color == (1.0, 0.0, 0.0, 1.0)


@needs_trimesh
def test_a_mesh_file_is_scaled_after_the_poses_of_its_nodes(tmp_path):
    import trimesh

    scene = trimesh.Scene()
    scene.add_geometry(trimesh.creation.box((1.0, 2.0, 3.0)), transform=POSE)
    scene.export(tmp_path / "box.glb")
    scale = (2.0, -1.0, 0.5)
    shape = MeshFile("box.glb", scale, str(tmp_path / "robot.urdf"))
    ((vertices, _, _),) = triangles.shape_triangles(shape)
    corners = np.array([*itertools.product((-0.5, 0.5), (-1, 1), (-1.5, 1.5))])
    expected = scale * (corners @ POSE[:3, :3].T + POSE[:3, 3])
    found = np.unique(np.round(vertices, 4), axis=0)
    np.testing.assert_allclose(found, np.unique(np.round(expected, 4), axis=0), atol=2e-4)


@needs_trimesh
def test_the_colour_of_a_robot_file_comes_before_the_colour_of_a_mesh(tmp_path):
    import trimesh

    box = trimesh.creation.box((1.0, 1.0, 1.0))
    box.visual = trimesh.visual.ColorVisuals(box, face_colors=(255, 0, 51, 255))
    box.export(tmp_path / "box.ply")
    mesh, blue = MeshFile(str(tmp_path / "box.ply")), (0.0, 0.0, 1.0, 0.5)
    visuals = [Geometry(mesh), Geometry(mesh, color=blue), Geometry(Box((0.5, 0.5, 0.5)))]
    items = view.drawing(single(visuals, [Geometry(mesh), Geometry(mesh, color=blue)])).items
    red, given, plain, *collisions = (item.color for item in items[:5])
    assert (red, given) == ((1.0, 0.0, 0.2, 1.0), blue)
    assert len({red, given, plain, *collisions}) == 4  # all collisions have one colour


@needs_trimesh
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of pycollada with NumPy 2.5
def test_the_unit_of_a_collada_file_is_applied(tmp_path):
    import trimesh

    pytest.importorskip("collada")
    data = trimesh.creation.box((100.0, 200.0, 300.0)).export(file_type="dae").decode()
    assert (data.count("<unit"), data.count("</asset>")) == (0, 1)
    path = tmp_path / "box.dae"
    unit = '<unit name="centimeter" meter="0.01"/>'
    path.write_text(re.sub("(?=<up_axis>|</asset>)", unit, data, count=1))
    ((vertices, _, _),) = triangles.shape_triangles(MeshFile(str(path)))
    np.testing.assert_allclose(np.ptp(vertices, axis=0), (1, 2, 3), rtol=1e-6)


# --------------------------------------------------------------------------------------- drawing


@pytest.mark.parametrize("diagonal", [(0.02, 0.03, 0.04), (0.02, 0.04, 0.03)])
def test_a_link_without_shapes_is_a_box_of_its_inertia(diagonal):
    """The box and the ellipsoid of uniform density have the mass moments of the link."""
    R = POSE[:3, :3]
    inertia = link_inertia(2.0, (0.1, 0.2, -0.1), np.diag(diagonal), R)
    items = view.drawing(single(inertia=inertia)).items
    assert [item.layer for item in items] == ["visuals", "inertias"]
    for item in items:
        volume, centroid, second = moments(item.vertices, item.faces)
        np.testing.assert_allclose(centroid, (0.1, 0.2, -0.1), atol=1e-12)
        assert volume > 0  # not inside out
        about = np.trace(second) * np.eye(3) - second
        expected = R @ np.diag(diagonal) @ R.T
        np.testing.assert_allclose(2.0 * about / volume, expected, rtol=0, atol=2e-3 * 0.04 * 5)


@pytest.mark.parametrize(
    ("mass", "moments_of_inertia", "sides", "radii"),
    [
        (3.0, (0.25, 0.25, 0.0), (0.04, 0.04, 1.0), (0.02, 0.02, 1.0)),  # a rod of 1 m
        (3.0, (0.25, 0.25, 0.5), (0.04, 1.0, 1.0), (0.02, 1.0, 1.0)),  # a square of 1 m
        (7.85, (0.0, 0.0, 0.0), (0.1, 0.1, 0.1), (0.05, 0.05, 0.05)),  # a litre of steel
    ],
)
def test_links_without_thickness_have_a_width(mass, moments_of_inertia, sides, radii):
    """A part of the largest side, or the side of a cube of steel. The axes are turned."""
    inertia = link_inertia(mass, (0.1, 0.2, -0.1), np.diag(moments_of_inertia), POSE[:3, :3])
    box, ellipsoid = view.drawing(single(inertia=inertia)).items
    scale = np.sqrt(5 / 12) if max(radii) == 1 else 1.0
    for item, factor, expected, tolerance in (
        (box, 12, np.array(sides), 1e-9),
        (ellipsoid, 5, scale * np.array(radii), 0.01),
    ):
        volume, centroid, second = moments(item.vertices, item.faces)
        np.testing.assert_allclose(centroid, (0.1, 0.2, -0.1), atol=1e-9)
        found = np.sqrt(factor * np.linalg.eigvalsh(second) / volume)
        np.testing.assert_allclose(found, expected, rtol=tolerance)


def test_the_whole_drawing_of_a_robot():
    """A wall, a cart on a slider with a welded ball, and an arm without shapes."""
    wall = Geometry(Box((4.5, 4.5, 0.5)))
    box = Geometry(Box((0.1, 0.2, 0.3)), color=(0.1, 0.2, 0.3, 0.4), name="top")
    ball = Geometry(Sphere(0.5), color=(0.1, 0.2, 0.3, 0.4))
    lift, away = (placement_matrix(p, (0.0, 0.0, 0.0)) for p in ((0.0, 0.0, 2.0), (0.3, 0.0, 0.4)))
    inertia = link_inertia(2.0, (0.0, 0.0, 0.0), np.diag([0.02, 0.03, 0.04]))
    arm = link_inertia(6.0, (0.1, 0.2, 0.3), 3 * np.diag([0.02, 0.03, 0.04]))
    links = [
        Link("wall", visuals=[wall]),
        Link("cart", inertia, [box], [ball]),
        Link("ball", visuals=[Geometry(Sphere(0.1))]),
        Link("arm", arm),
    ]
    joints = [
        JointSpec("mount", Fixed(), None, "wall", lift),
        JointSpec("slide", rbd.joints.Prismatic((1.0, 0.0, 0.0)), "wall", "cart"),
        JointSpec("weld", Fixed(), "cart", "ball", lift),
        JointSpec("turn", rbd.joints.Revolute((0.0, 1.0, 0.0)), "cart", "arm", away),
    ]
    drawn = view.drawing(rbd.build_model(links, joints))
    grey, blue = (0.66, 0.69, 0.73, 1.0), (0.25, 0.45, 0.95, 0.45)
    second = np.array([0.025, 0.015, 0.005]) / 2  # along the axes, per mass
    sides, radii = np.sqrt(12 * second), np.sqrt(5 * second)
    center = np.array([0.1, 0.2, 0.3])
    expected = [
        ("wall", "visuals", -1, grey, (0, 0, 2), (9, 9, 1)),
        ("cart top", "visuals", 0, (0.1, 0.2, 0.3, 0.4), (0, 0, 0), (0.2, 0.4, 0.6)),
        ("ball", "visuals", 0, grey, (0, 0, 2), (0.2, 0.2, 0.2)),
        ("cart", "collisions", 0, (0.95, 0.55, 0.2, 0.45), (0, 0, 0), (1, 1, 1)),
        ("cart", "inertias", 0, blue, (0, 0, 0), 2 * radii),
        ("arm", "visuals", 1, grey, center, sides),
        ("arm", "inertias", 1, blue, center, 2 * radii),
    ]
    assert [(x.name, x.layer, x.body, x.color) for x in drawn.items] == [x[:4] for x in expected]
    for item, (*_, middle, extent) in zip(drawn.items, expected):
        low, high = item.vertices.min(axis=0), item.vertices.max(axis=0)
        np.testing.assert_allclose((low + high) / 2, middle, atol=1e-12, err_msg=item.name)
        np.testing.assert_allclose(high - low, extent, atol=1e-12, err_msg=item.name)
    np.testing.assert_allclose(drawn.masses, [2, 6])
    np.testing.assert_allclose(drawn.centers, [(0, 0, 0), center], atol=1e-15)
    np.testing.assert_allclose(drawn.reach, 0.5)
    # The wall does not move, and a layer that is not shown does not count.
    for layers, size in (((), 0.5), (("visuals",), 0.6), (("collisions",), 1), (view.LAYERS, 1)):
        np.testing.assert_allclose(drawn.size(layers), size)
    for parts, size in ((links[:1], 9.0), ([Link("wall")], 1e-3)):  # nothing moves
        fixed = view.drawing(rbd.build_model(parts, joints[:1]))
        assert (fixed.size(("visuals",)), fixed.reach) == (size, 0)
    # The box with the axes of the bodies and the centre of mass, which can be outside of all else.
    R, p = np.array([np.eye(3)] * 2), np.array([[0, 0, 0], [0.3, 0, 0.4]])
    for layers, low, high in (
        ((), (0, 0, 0), (0.3, 0, 0.4)),
        (("frames",), (0, 0, 0), (0.425, 0.125, 0.525)),
        (("com",), (0, 0, 0), (0.3, 0.15, 0.525)),
        (("collisions",), (-0.5, -0.5, -0.5), (0.5, 0.5, 0.5)),
        (("visuals",), (-4.5, -4.5, -0.3), (4.5, 4.5, 2.5)),
    ):
        box = motion.bounds(drawn, R, p, layers)
        np.testing.assert_allclose(box, [low, high], atol=1e-12, err_msg=str(layers))
    np.testing.assert_array_equal(motion.bounds(drawn, R, p), box)  # the visuals by default
    massless = drawn._replace(masses=np.zeros(2))
    np.testing.assert_array_equal(motion.center_of_mass(massless, R, p), [0, 0, 0])


def test_visuals_before_collisions_before_inertias():
    ball, box = Geometry(Sphere(1.0)), Geometry(Box((0.5, 0.5, 0.5)), color=(1, 0, 0, 1))

    def shown(**shapes):
        items = view.drawing(single(**shapes)).items
        return [(item.color, len(item.faces)) for item in items if item.layer == "visuals"]

    grey = (0.66, 0.69, 0.73, 1.0)
    assert shown(visuals=[box], collisions=[ball]) == [((1, 0, 0, 1), 12)]
    assert shown(collisions=[box]) == [(grey, 12)]
    ((color, _),) = shown()
    assert color == grey
    # A body without shapes does not have the collisions of another body.
    slides = [rbd.joints.Prismatic(axis) for axis in np.eye(3)[:2]]
    links = [Link("a", INERTIA, (), [ball]), Link("b", INERTIA)]
    joints = [JointSpec("a", slides[0], None, "a"), JointSpec("b", slides[1], "a", "b")]
    items = view.drawing(rbd.build_model(links, joints)).items
    visuals = [item for item in items if item.layer == "visuals"]
    assert [(item.name, item.body) for item in visuals] == [("a", 0), ("b", 1)]
    assert len(visuals[1].faces) == 12


def test_shapes_of_welded_links_are_in_the_frame_of_their_body():
    links = [
        Link("base", visuals=[Geometry(Box((0.5, 0.5, 0.5)))]),
        Link("body", INERTIA),
        Link("tool", visuals=[Geometry(Sphere(0.1), POSE, name="tip")]),
    ]
    joints = [
        JointSpec("mount", Fixed(), None, "base", POSE),
        JointSpec("turn", rbd.joints.Revolute((0.0, 0.0, 1.0)), "base", "body"),
        JointSpec("weld", Fixed(), "body", "tool", POSE),
    ]
    drawn = view.drawing(rbd.build_model(links, joints))
    by_name = {item.name: item for item in drawn.items if item.layer == "visuals"}
    assert [(name, item.body) for name, item in by_name.items()] == [("base", -1), ("tool tip", 0)]
    np.testing.assert_allclose(by_name["base"].vertices.mean(axis=0), POSE[:3, 3], atol=1e-12)
    center = by_name["tool tip"].vertices[by_name["tool tip"].faces].mean(axis=(0, 1))
    np.testing.assert_allclose(center, (POSE @ POSE)[:3, 3], atol=1e-12)


def test_a_missing_mesh_is_a_warning_that_names_it(tmp_path):
    damaged = tmp_path / "damaged.stl"
    damaged.write_bytes(b"solid nothing")
    for uri, message in (
        ("package://robot/missing.stl", "missing.stl"),
        (str(damaged), "damaged.stl"),
        (str(damaged.with_suffix(".mesh")), "damaged.mesh"),
    ):
        model = single([Geometry(MeshFile(uri))])
        with pytest.warns(GeometryWarning, match=f"link 'link': not drawn: .*{message}"):
            drawn = view.drawing(model)
        assert [item.layer for item in drawn.items] == ["visuals", "inertias"]  # the box


def test_a_missing_mesh_is_one_warning_with_the_argument_to_change():
    mesh = Geometry(MeshFile("package://robot/missing.stl"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        view.drawing(single([mesh, mesh], [mesh]))
    (warning,) = caught  # the file is opened once
    assert isinstance(warning.message, GeometryWarning)
    assert warning.message.argument == "packages"


def test_a_link_without_mass_and_shapes_is_not_drawn():
    links = [Link("frame"), Link("arm", INERTIA)]
    axes = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)
    roll, pitch = (rbd.joints.Revolute(axis) for axis in axes)
    joints = [JointSpec("a", roll, None, "frame"), JointSpec("b", pitch, "frame", "arm")]
    items = view.drawing(rbd.build_model(links, joints)).items
    assert [(item.name, item.layer) for item in items] == [("arm", "visuals"), ("arm", "inertias")]


def test_a_batch_of_models_is_refused():
    batch = jax.vmap(lambda m: zoo.small().with_mass("l0", m))(jnp.ones(2))
    with pytest.raises(ArgumentError, match="is a batch of models"):
        view.drawing(batch)


def test_an_inertia_that_is_not_finite_names_its_link():
    model = odd_inertias()
    inertia = np.array(model.inertia)
    inertia[1, 0] = np.nan
    with pytest.raises(rbd.ModelError, match="link 'b' has an inertia that is not finite") as error:
        view.drawing(eqx.tree_at(lambda m: m.inertia, model, jnp.asarray(inertia)))
    assert error.value.link == "b"


# Robots with meshes that cannot be drawn, and a part of the warnings.
UNDRAWN = {
    "romeo_laas_small": r"\.mesh",  # a file type of Ogre without a reader
    "anymal_b_simple": "anymal_foot.dae",  # pycollada finds no triangles: broken references
    "talos_full_v2": "package:///",  # the file names no package
}


@pytest.mark.slow
@needs_trimesh
@pytest.mark.parametrize("name", real_robots.ROBOTS)
def test_real_robots_are_drawn_with_every_mesh(name):
    model = real_robots.load(name, None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GeometryWarning)
        drawn = view.drawing(model, {"example-robot-data": real_robots.ROOT.parent})
    missing = [str(w.message) for w in caught if issubclass(w.category, GeometryWarning)]
    expected = [part for robot, part in UNDRAWN.items() if robot in name]
    assert bool(missing) == bool(expected), missing
    assert all(re.search(expected[0], message) for message in missing), missing
    box = picture.bounds(drawn, *(x[0, 0] for x in motion.motion(model, None)[1:3]))
    assert 0.05 < np.max(box[1] - box[0]) < 6  # in m: the units of the files are right


# ---------------------------------------------------------------------------------------- motion


@pytest.mark.slow
def test_poses_of_a_batch_of_trajectories():
    model = zoo.small()
    keys = jax.random.split(jax.random.key(0), 6)
    q = np.array([rbd.random_configuration(model, key) for key in keys]).reshape(2, 3, -1)
    found = motion.motion(model, q)
    for b, t in itertools.product(range(2), range(3)):
        X = rbd.forward_kinematics(model, q[b, t]).X_WB
        np.testing.assert_allclose(found.R[b, t], X.R, atol=1e-14)
        np.testing.assert_allclose(found.p[b, t], X.p, atol=1e-14)
        R = rbd.so3.quaternion_to_matrix(jnp.asarray(found.quaternion[b, t]))
        np.testing.assert_allclose(R, X.R, atol=1e-14)
        com = motion.center_of_mass(view.drawing(model), found.R[b, t], found.p[b, t])
        np.testing.assert_allclose(com, rbd.center_of_mass(model, q[b, t]), atol=1e-13)
    again = motion.motion(model, q[1, 2])
    np.testing.assert_array_equal(again.p[0, 0], found.p[1, 2])


def test_a_robot_without_joints_is_shown():
    links = [Link("link", visuals=[Geometry(Box((0.5, 0.5, 0.5)))])]
    model = rbd.build_model(links, [JointSpec("mount", Fixed(), None, "link")])
    assert view.render(model, width=40, height=30, ground=False).std() > 5


@pytest.mark.parametrize(
    ("q", "message"),
    [
        (np.zeros(2), r"trajectory has shape \(2,\) .* \(1,\) or \(T, 1\) or \(B, T, 1\)"),
        (np.zeros((0, 1)), "it has no configuration"),
        (np.array([[-np.inf], [0.0]]), r"trajectory\[0, 0\] is -inf, expected finite values"),
        (
            np.array([[0.0], [np.nan], [np.inf]]),
            r"trajectory\[1, 0\] is nan, expected finite values",
        ),
    ],
)
def test_bad_trajectories(q, message):
    with pytest.raises(ArgumentError, match=message):
        motion.motion(single(), q)


def test_few_programs_are_compiled_for_many_numbers_of_configurations():
    model = single()
    before = motion._poses._cache_size()
    for count in range(5, 9):
        q = np.linspace(0, 1, count)[:, None]
        np.testing.assert_array_equal(motion.motion(model, q).p[0, :, 0, 0], q[:, 0])
    assert motion._poses._cache_size() <= before + 1


def test_a_robot_in_single_precision_is_shown():
    """Also with whole numbers as its configuration."""
    model = single([Geometry(Sphere(0.1))])
    half = model.astype(jnp.float32)
    found = motion.motion(half, np.array([1]))
    np.testing.assert_array_equal(found.p, [[[[1, 0, 0]]]])
    scene = contact.Scene.from_shapes(
        [PlacedShape(Sphere(0.1), "link")], [], contact.Plane((1.0, 0.0, 0.0))
    )
    arrows = contact_arrows.contact_arrows(half, scene, motion.motion(half, np.array([0.0])), 0.01)
    assert arrows.forces[0, 0, 0, 0] > 1


def odd_inertias():
    """Two links 0.3 m apart; their ellipsoids are far larger than the robot."""
    inertia = link_inertia(1.0, (0.0, 0.0, 0.0), np.diag([40.0, 50.0, 60.0]))
    box, ball = Geometry(Box((0.1, 0.05, 0.05))), Geometry(Sphere(0.4))
    links = [Link("a", inertia, [box], [ball]), Link("b", inertia, [box])]
    hinge = rbd.joints.Revolute((0.0, 1.0, 0.0))
    place = placement_matrix((0.18, 0.0, 0.24), (0.0, 0.0, 0.0))
    far = placement_matrix((0.0, 50.0, 0.0), (0.0, 0.0, 0.0))
    joints = [JointSpec("j", hinge, None, "a", far), JointSpec("k", hinge, "a", "b", place)]
    return rbd.build_model(links, joints)


def box_and_surface(drawn, found, layers, side_by_side=True):
    """The box around the robots of a motion, and their triangles, at its first step."""
    offsets = stage.robot_offsets(drawn, found, layers, side_by_side)
    arguments = drawn, found, layers, offsets, 0
    return picture._box(*arguments), picture._surface(*arguments)


def test_axes_have_the_size_of_the_robot():
    """Neither an ellipsoid nor the distance of the robot from the origin counts."""
    drawn = view.drawing(odd_inertias())
    assert max(np.ptp(x.vertices) for x in drawn.items if x.layer == "inertias") > 10
    for layers, size in (
        (("frames",), 0.3),
        (("frames", "inertias"), 0.3),
        (("visuals", "frames"), 0.3),
        (("collisions", "frames"), 0.8),
    ):
        np.testing.assert_allclose(drawn.size(layers), size, rtol=1e-9)
    alone = view.drawing(single([Geometry(Box((0.2, 0.05, 0.05)))]))
    for layers in (("visuals",), ("frames",), ("inertias",)):
        assert alone.size(layers) == 0.4  # a body without reach
    found = motion.motion(odd_inertias(), None)
    box, surface = box_and_surface(drawn, found, ("frames",))
    np.testing.assert_allclose(np.ptp(box, axis=0), (0.255, 0.075, 0.315), atol=1e-6)
    np.testing.assert_allclose(surface.vertices.max(axis=0), box[1], atol=0.003)
    # The pendulum turns about y, so its axes x and z do not have the axes of the world.
    pendulum = rbd.load_robot("pendulum")
    found = motion.motion(pendulum, np.array([0.6]))
    box, surface = box_and_surface(view.drawing(pendulum), found, ("frames",))
    np.testing.assert_allclose(surface.vertices.max(axis=0), box[1], atol=0.008)
    np.testing.assert_allclose(surface.vertices.min(axis=0), box[0], atol=0.008)


@pytest.mark.parametrize("layer", view.LAYERS)
def test_hidden_layers_do_not_affect_a_picture(layer):
    """Not the lengths of axes, the distance of robots, the ground nor the camera."""
    model = odd_inertias()
    drawn, found = view.drawing(model), motion.motion(model, np.zeros((2, 1, 2)))
    items = [
        item if item.layer == layer else item._replace(vertices=7 * item.vertices)
        for item in drawn.items
    ]
    other = drawn._replace(items=tuple(items))
    box, surface = box_and_surface(drawn, found, (layer,))
    other_box, other_surface = box_and_surface(other, found, (layer,))
    np.testing.assert_array_equal(other_box, box)
    np.testing.assert_array_equal(other_surface.vertices, surface.vertices)
    # The box contains what is drawn. The ball of the centre of mass and the rods have a radius.
    assert np.all(surface.vertices.max(axis=0) <= box[1] + 0.01)
    assert np.all(surface.vertices.min(axis=0) >= box[0] - 0.01)
    if importlib.util.find_spec("viser") is not None:
        cameras = []
        for scene in (drawn, other):
            with view.page.server("127.0.0.1", 0) as server:
                shown = stage.Stage(server, model, scene, found, (layer,))
                camera = server.initial_camera
                cameras.append((camera.position, camera.look_at, shown.size, shown.offsets))
        for one, two in zip(*cameras):
            np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("layer", view.LAYERS)
def test_every_layer_of_a_robot_is_beside_the_other_robot(layer):
    """Two robots in one posture have the same triangles, 2.5 m apart."""
    shape = [Geometry(Box((0.5, 1.0, 1.5)))]
    model = single(shape, shape, link_inertia(1.0, (0.0, 0.0, 0.0), np.diag([0.1, 0.1, 0.1])))
    found = motion.motion(model, np.zeros((2, 1, 1)))
    box, surface = box_and_surface(view.drawing(model), found, (layer, "visuals"))
    used = surface.vertices[surface.faces].reshape(2, -1, 3)
    np.testing.assert_allclose(used[1] - used[0], np.tile([0, 2.5, 0], (used.shape[1], 1)))
    assert box[1, 1] - box[0, 1] >= 4.5 - 1e-9


def test_robots_stand_side_by_side():
    model = single([Geometry(Box((0.5, 1.0, 1.5)))])
    offsets = stage.robot_offsets(view.drawing(model), motion.motion(model, np.zeros((3, 1, 1))))
    np.testing.assert_allclose(offsets, [[0, -2.5, 0], [0, 0, 0], [0, 2.5, 0]])


def test_contact_forces_carry_the_weight():
    model = single([Geometry(Sphere(0.1))])
    model = rbd.build_model(*rbd.model.describe(model), gravity=(-9.81, 0.0, 0.0))
    scene = contact.Scene.from_shapes(
        [PlacedShape(Sphere(0.1), "link")], [], contact.Plane((1.0, 0.0, 0.0))
    )
    depth = np.sqrt(2.0 * 9.81 / 1e7)  # the documented depth of rest
    found = motion.motion(model, np.array([0.1 - depth]))
    arrows = contact_arrows.contact_arrows(model, scene, found, 0.01)
    np.testing.assert_allclose(arrows.forces, [[[[2 * 9.81, 0, 0]]]], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(arrows.points, [[[[0.1 - depth, 0, 0]]]], atol=1e-12)
    drawn = view.drawing(model)
    np.testing.assert_allclose(contact_arrows.arrow_scale(model, drawn, 0.5), 0.5 / 19.62)
    moon = dataclasses.replace(model, gravity=jnp.array([0.0, 1.2, -0.9]))
    np.testing.assert_allclose(contact_arrows.arrow_scale(moon, drawn, 0.5), 0.5 / 3.0)
    free = dataclasses.replace(model, gravity=jnp.zeros(3))
    assert contact_arrows.arrow_scale(free, drawn, 0.5) == 0.5


# -------------------------------------------------------------------------------------- pictures

WHITE, RED = np.ones(3), np.array([[1.0, 0.0, 0.0, 1.0]])


def test_the_raster_shows_a_square_where_it_is():
    vertices = np.array([[0, -1, -1], [0, 1, -1], [0, 1, 1], [0, -1, 1]], float)
    faces, red = np.array([[0, 1, 2], [0, 2, 3]]), np.tile([1.0, 0, 0, 1], (2, 1))
    camera = raster.Camera(np.array([4.0, 0, 0]), np.zeros(3), 2 * np.arctan(0.5))
    shown = raster.draw(raster.Surface(vertices, faces, red), camera, 40, 40, WHITE)
    inside = np.zeros((40, 40), bool)
    inside[10:30, 10:30] = True  # the square fills half of the field of view
    np.testing.assert_array_equal(shown[..., 1] < 0.5, inside)


def test_up_is_up_in_a_picture():
    vertices = np.array([[0, 0.2, 0.5], [0, 1, 0.5], [0, 0.2, 1]])  # at y > 0, z > 0
    surface = raster.Surface(vertices, np.array([[0, 1, 2]]), np.array([[1.0, 0, 0, 1]]))
    camera = raster.Camera(np.array([4.0, 0, 0]), np.zeros(3), 1.0)
    shown = raster.draw(surface, camera, 40, 40, WHITE)[..., 1] < 0.5
    assert shown[:20, 20:].any()  # from +x, y is to the right and z is up
    shown[:20, 20:] = False
    assert not shown.any()


def test_the_raster_shows_the_nearest_triangle_and_blends_the_transparent():
    square = np.array([[0, -1, -1], [0, 1, -1], [0, 1, 1], [0, -1, 1]], float)
    vertices = np.concatenate([square + np.array([x, 0, 0]) for x in range(3)])
    quad = np.array([[0, 1, 2], [0, 2, 3]])
    camera = raster.Camera(np.array([6.0, 0, 0]), np.zeros(3), 0.5)

    def center(order, colors):
        faces = np.concatenate([quad + 4 * k for k in order])
        surface = raster.Surface(vertices, faces, np.repeat([colors[k] for k in order], 2, axis=0))
        return raster.draw(surface, camera, 20, 20, WHITE)[10, 10]

    red, green, blue = np.eye(3, 4) + np.array([0, 0, 0, 1.0])
    for order in itertools.permutations(range(3)):
        nearest = center(order, [red, green, blue])
        assert nearest[2] > 0
        assert nearest[0] == nearest[1] == 0
    glass = np.array([0, 0, 1.0, 0.25])
    for order in itertools.permutations(range(3)):
        mixed = center(order, [red, green, glass])
        np.testing.assert_allclose(mixed[0], 0, atol=1e-12)
        np.testing.assert_allclose(mixed[1] / mixed[2], 3, rtol=1e-9)


def test_both_sides_of_a_triangle_are_lit():
    vertices = np.array([[0, -1, -1], [0, 1, -1], [0, 1, 1]], float)
    for x in (4.0, -4.0):
        camera = raster.Camera(np.array([x, 0.5, 2.0]), np.zeros(3), 0.8)
        one, other = (
            raster.draw(raster.Surface(vertices, np.array([face]), RED), camera, 9, 9, WHITE)
            for face in ([0, 1, 2], [0, 2, 1])
        )
        np.testing.assert_allclose(one, other, atol=1e-12)
        assert np.any(one[..., 1] == 0)


def test_a_side_without_light_is_ambient():
    """No light comes from below, and no direction takes light away."""
    vertices = np.array([[-1, -1, 0], [1, -1, 0], [0, 1, 0]], float)
    camera = raster.Camera(np.array([0.0, 0.1, -4.0]), np.zeros(3), 0.2)
    shown = raster.draw(raster.Surface(vertices, np.array([[0, 1, 2]]), RED), camera, 5, 5, WHITE)
    np.testing.assert_allclose(shown[2, 2], [AMBIENT, 0, 0], atol=1e-12)
    camera = camera._replace(position=np.array([0.0, 0.1, 4.0]))  # a bit more light than 1
    shown = raster.draw(raster.Surface(vertices, np.array([[0, 1, 2]]), RED), camera, 5, 5, WHITE)
    np.testing.assert_allclose(shown[2, 2], [1, 0, 0], atol=1e-12)


def test_the_normals_of_a_ball_point_outwards():
    ((vertices, faces, _),) = triangles.shape_triangles(Sphere(1.0))
    normals = raster._vertex_normals(raster.Surface(vertices, faces, np.ones((len(faces), 4))))
    outwards = np.einsum("ni,ni->n", normals, vertices) / np.linalg.norm(normals, axis=1)
    assert np.min(outwards[np.unique(faces)]) > 0.99


# The light, and the colours of the tiles of the ground.
AMBIENT, TILES = 0.32, np.array([[0.93, 0.94, 0.95], [0.86, 0.87, 0.89]])
LIGHTS = [(np.array([0.4, 0.3, 0.85]), 0.65), (np.array([-0.6, 0.5, 0.35]), 0.3)]


def traced(ray, surface, normals, camera, ground, background=WHITE):
    """The colour of one ray, by intersections in the world; the ray has the depth 1."""
    color, nearest = background, max(ray[2] / (ground.height - camera.position[2]), 0)
    if nearest > 0:  # an inverse depth
        place = (camera.position + ray / nearest)[:2]
        fade = np.exp(-np.sum((place - camera.target[:2]) ** 2) / ground.range**2)
        tile = TILES[int(np.sum(np.floor(place / ground.side))) % 2]
        color = color + fade * (tile - color)
    # The ray is a sum of the vectors to the corners. The sum of the weights is the inverse depth.
    vectors = surface.vertices[surface.faces] - camera.position
    weights = np.linalg.solve(np.swapaxes(vectors, 1, 2), ray[:, None])[..., 0]
    inverse = np.where(np.all(weights > 0, axis=1), weights.sum(axis=1), 0)
    for opaque in (True, False):
        found = np.where((surface.colors[:, 3] >= 0.999) == opaque, inverse, 0)
        face = np.argmax(found)
        if found[face] > nearest:
            nearest = found[face]
            normal = weights[face] @ normals[surface.faces[face]]
            normal = normal / np.linalg.norm(normal) * -np.sign(normal @ ray)
            light = AMBIENT + sum(
                strength * max(normal @ direction / np.linalg.norm(direction), 0)
                for direction, strength in LIGHTS
            )
            *rgb, opacity = surface.colors[face]
            color = color + opacity * (np.minimum(np.array(rgb) * light, 1) - color)
    return color


@pytest.mark.parametrize("seed", [3, 26, 35])
def test_a_picture_is_what_ray_tracing_finds(seed):
    """Large faces near the camera, also beyond each border; the normals of their corners differ."""
    draws = np.random.default_rng(seed)
    vertices = draws.uniform((-1.0, -1.0, -0.3), (1.0, 1.0, 1.0), (9, 3))
    faces = np.array([draws.permutation(9)[:3] for _ in range(12)])
    colors = np.column_stack(
        [draws.uniform(0.2, 1.0, (12, 3)), np.where(np.arange(12) % 3, 1, 0.4)]
    )
    surface = raster.Surface(vertices, faces, colors)
    camera = raster.Camera(np.array([1.1, -1.0, 0.7]), np.array([0.1, 0.2, 0.3]), 0.7)
    ground = raster.Ground(-0.1, 0.5, 2.0)
    corners = vertices[faces]
    area = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normals = np.array([area[np.any(faces == k, axis=1)].sum(axis=0) for k in range(9)])
    width, height = 32, 24
    y, x = np.mgrid[height - 1 : -height : -2, 1 - width : width : 2] / height
    right, up, back = camera.axes
    rays = np.tan(0.35) * (x[..., None] * right + y[..., None] * up) - back
    shown = raster.draw(surface, camera, width, height, WHITE, ground)
    expected = np.apply_along_axis(traced, 2, rays, surface, normals, camera, ground)
    np.testing.assert_allclose(shown, expected, atol=1e-9)


def corner_normals(vertices, faces):
    """The sums of the normals of the faces at each vertex, weighted by the areas."""
    a, b, c = (vertices[faces[:, n]] for n in range(3))
    normals = np.zeros_like(vertices)
    for n in range(3):
        np.add.at(normals, faces[:, n], np.cross(b - a, c - a))
    return normals


def documented(model, q, markers_, layers, width, height, pixels, smooth=1, **options):
    """The colours of some pixels of a picture, as `render` and its guide describe it.

    `q` (B, nq): the robots stand side by side. `options`: the direction of the camera, and the
    background.
    """
    drawn = view.drawing(model)
    drawn, shown = markers.decorated(model, drawn, layers, markers_, None)
    found = motion.motion(model, q[:, None])
    offsets = stage.robot_offsets(drawn, found, shown)
    vertices, faces, colors, low, high = [], [], [], [], []
    for R, p, offset in zip(found.R[:, 0], found.p[:, 0], offsets):
        box = motion.bounds(drawn, R, p, shown) + offset
        low, high = [*low, box[0]], [*high, box[1]]
        parts = [
            (x.vertices @ R[x.body].T + p[x.body] if x.body >= 0 else x.vertices, x.faces, x.color)
            for x in drawn.items
            if x.layer in shown
        ]
        length = 0.25 * drawn.size(shown)
        if "com" in layers:
            ((ball, triangles_, _),) = triangles.shape_triangles(Sphere(0.1 * length))
            center = motion.center_of_mass(drawn, R, p)
            parts.append((ball + center, triangles_, (0.9, 0.1, 0.6, 1.0)))
        if "frames" in layers:
            for k, color in enumerate(AXES):
                rod = markers.rods(p, p + length * R[:, :, k], 0.03 * length, 0.03 * length)
                parts.append((*rod, color))
        for corners, triangles_, color in parts:
            faces.append(triangles_ + sum(map(len, vertices)))
            vertices.append(corners + offset)
            colors.append(np.tile(color, (len(triangles_), 1)))
    surface = raster.Surface(*map(np.concatenate, (vertices, faces, colors)))
    low, high = np.min(low, axis=0), np.max(high, axis=0)
    middle, extent = (low + high) / 2, max(high - low)
    back = np.array(options.get("camera", (1.0, -0.8, 0.35)))
    back = back / np.linalg.norm(back)
    right = np.cross([0, 0, 1], back) / np.hypot(*back[:2])
    up, slope = np.cross(back, right), np.tan(0.3)
    # The nearest place from which all corners of the box are in the picture, and 8 % more.
    corners = np.array([*itertools.product(*zip(low, high))]) - middle
    x, y, z = corners @ right, corners @ up, corners @ back
    distance = 1.08 * max(np.maximum(abs(y), abs(x) * height / width) / slope + z)
    camera = raster.Camera(middle + distance * back, middle)
    side = min(
        x for k in range(-3, 3) for x in (1 * 10.0**k, 2 * 10.0**k, 5 * 10.0**k) if x >= extent / 4
    )
    ground = raster.Ground(min(0, low[2]), side, 8 * extent)
    normals = corner_normals(surface.vertices, surface.faces)
    found = []
    for row, column in pixels:
        samples = []
        for i, j in itertools.product((np.arange(smooth) + 0.5) / smooth, repeat=2):
            x, y = (2 * column + 2 * i - width) / height, (height - 2 * row - 2 * j) / height
            ray = slope * (x * right + y * up) - back
            samples.append(
                traced(ray, surface, normals, camera, ground, options.get("background", WHITE))
            )
        found.append(255 * np.clip(np.mean(samples, axis=0), 0, 1))
    return np.array(found)


def test_a_picture_without_options_is_as_documented():
    """A cube of 1 m beside the origin, whose bright side is brighter than white."""
    cube = Geometry(
        Box((0.5, 0.5, 0.5)), placement_matrix((0, 0.5, 1.5), (0, 0, 0)), (1, 0.5, 0, 1)
    )
    model = single([cube])
    shown = view.render(model)
    assert shown.shape == (480, 640, 3)
    draws = np.random.default_rng(0)
    pixels = np.stack([draws.integers(0, 480, 120), draws.integers(0, 640, 120)], axis=1)
    expected = documented(model, np.zeros((1, 1)), (), ("visuals",), 640, 480, pixels, smooth=2)
    np.testing.assert_allclose(shown[tuple(pixels.T)], expected, atol=0.501)
    assert len(np.unique(expected.round(), axis=0)) > 20


def test_a_picture_of_two_robots_in_all_layers_is_as_documented():
    """With a marker, from the left, on a blue-violet background."""
    model = single(
        [Geometry(Box((0.15, 0.1, 0.25)), POSE, (0.2, 0.4, 0.9, 0.9))],
        [Geometry(Sphere(0.3))],
    )
    q, line = np.array([[-0.4], [0.7]]), view.Path([[0.0, 0.0, 0.5], [1.0, 0.5, 0.5]], size=0.05)
    options = {"camera": (0.2, 1.0, 0.7), "background": (1.0, 0.0, 0.3)}
    shown = view.render(
        model, q, width=48, height=80, layers=view.LAYERS, markers=[line], smooth=1, **options
    )
    pixels = np.stack(np.unravel_index(np.arange(0, 48 * 80, 9), (80, 48)), axis=1)
    options["background"] = np.array(options["background"])
    expected = documented(model, q, [line], view.LAYERS, 48, 80, pixels, **options)
    np.testing.assert_allclose(shown[tuple(pixels.T)], expected, atol=0.501)
    assert len(np.unique(expected.round(), axis=0)) > 100


def test_a_picture_of_a_point():
    """A robot without any extent is seen from 1.08 times 1 cm; the ground has tiles of 0.5 mm."""
    model = rbd.build_model([Link("frame")], [JointSpec("fix", Fixed(), None, "frame")])
    box, _ = box_and_surface(view.drawing(model), motion.motion(model, None), ("visuals",))
    np.testing.assert_array_equal(box, np.zeros((2, 3)))
    camera = raster.Camera(np.array([1.0, 0, 0]), np.zeros(3))
    np.testing.assert_allclose(picture._fitting_distance(camera, box, 1.0), 0.0108)
    # With a target at the back of a plate, the front decides.
    plate, far = np.array([[0, -1, 0], [4, 1, 0]]), 1 / np.tan(0.3) + 4
    np.testing.assert_allclose(picture._fitting_distance(camera, plate, 1.0), 1.08 * far)
    np.testing.assert_allclose(picture._ground(box), (0, 5e-4, 8e-3))
    assert view.render(model, width=16, height=12).std() > 1  # the ground
    # The sides of tiles are 1, 2 or 5 times a power of ten, and at least a quarter of the robot.
    for extent, side in ((4.0, 1.0), (4.1, 2.0), (8.0, 2.0), (8.1, 5.0), (20.0, 5.0), (20.1, 10.0)):
        ground = picture._ground(np.array([[0, 0, 0.5], [0, extent, 1]]))
        np.testing.assert_allclose(ground, (0.0, side, 8 * extent))


def test_a_picture_is_drawn_in_blocks(monkeypatch):
    """Many triangles of one size, in blocks of a few triangles."""
    ((vertices, faces, _),) = triangles.shape_triangles(Sphere(1.0))
    surface = raster.Surface(vertices, faces, np.tile(RED, (len(faces), 1)))
    camera = raster.Camera(np.array([4.0, 1.0, 2.0]), np.zeros(3))
    whole = raster.draw(surface, camera, 40, 40, WHITE)
    monkeypatch.setattr(raster, "_SAMPLES", 100)
    np.testing.assert_array_equal(raster.draw(surface, camera, 40, 40, WHITE), whole)


def test_invisible_near_and_double_triangles():
    camera = raster.Camera(np.array([0.0, 0.0, 1.0]), np.zeros(3))
    corners = np.array([[-1, -1, 0], [1, -1, 0], [0, 1, 0]], float)

    def middle(vertices, faces, colors):
        surface = raster.Surface(np.array(vertices, float), np.array(faces), np.array(colors))
        return raster.draw(surface, camera, 9, 9, WHITE)[4, 4]

    # A triangle with the opacity 0 hides nothing, also no glass.
    glass, above = [1.0, 0, 0, 0.5], corners * 0.5 + (0, 0, 0.5)
    alone = middle(corners, [[0, 1, 2]], [glass])
    both = middle([*corners, *above], [[0, 1, 2], [3, 4, 5]], [glass, [0, 0, 0, 0.0]])
    np.testing.assert_array_equal(both, alone)
    # Nearer than a thousandth of the distance to the target nothing is seen.
    for depth, seen in ((0.002, True), (0.0005, False)):
        near = 0.01 * corners + (0, 0, 1 - depth)
        assert bool(np.any(middle(near, [[0, 1, 2]], RED) != 1)) == seen
    # Two triangles in one place and in opposite directions have no normal, so ambient light.
    double = middle(corners, [[0, 1, 2], [0, 2, 1]], [*RED, *RED])
    np.testing.assert_allclose(double, [AMBIENT, 0, 0], atol=1e-12)


def test_z_is_up_unless_the_camera_looks_along_z():
    for x, up in ((0.1, (0, 0, 1)), (0.01, (0, 1, 0))):
        axes = raster.Camera(np.array([x, 0.0, 1.0]), np.zeros(3)).axes
        assert abs(axes[0] @ up) < 1e-12 < axes[1] @ up


def test_the_axes_of_a_camera_are_a_rotation():
    for position in ((1.0, -2.0, 3.0), (0.1, 0.2, -5.0), (0.0, 0.0, 4.0)):
        axes = raster.Camera(np.array(position), np.zeros(3)).axes
        np.testing.assert_allclose(axes @ axes.T, np.eye(3), atol=1e-12)
        np.testing.assert_allclose(np.linalg.det(axes), 1)
        np.testing.assert_allclose(axes[2], position / np.linalg.norm(position))


def test_a_triangle_with_a_corner_behind_the_camera_is_not_drawn():
    camera = raster.Camera(np.array([0.0, 0.0, 2.0]), np.zeros(3))
    for z, seen in ((1.0, True), (3.0, False)):
        vertices = np.array([[-1, -1, 0], [1, -1, 0], [0, 1, z]], float)
        surface = raster.Surface(vertices, np.array([[0, 1, 2]]), RED)
        assert np.any(raster.draw(surface, camera, 8, 8, WHITE) != 1) == seen


def test_glass_behind_a_wall_is_not_seen():
    square = np.array([[0, -1, -1], [0, 1, -1], [0, 1, 1], [0, -1, 1]], float)
    vertices = np.concatenate([square, square + np.array([1.0, 0, 0])])
    faces = np.array([[0, 1, 2], [0, 2, 3], [4, 5, 6], [4, 6, 7]])
    glass, wall = [0, 0, 1.0, 0.25], [1.0, 0, 0, 1]
    surface = raster.Surface(vertices, faces, np.array([glass, glass, wall, wall]))
    for x, blue in ((6.0, False), (-6.0, True)):
        camera = raster.Camera(np.array([x, 0, 0]), np.zeros(3), 0.2)
        assert np.all(raster.draw(surface, camera, 8, 8, WHITE)[..., 2] > 0) == blue


def test_the_ground_is_not_seen_from_below():
    camera = raster.Camera(np.array([3.0, 0.1, -1.0]), np.array([0.0, 0.0, -1.5]), 0.6)
    none = raster.Surface(np.zeros((0, 3)), np.zeros((0, 3), int), np.zeros((0, 4)))
    shown = raster.draw(none, camera, 8, 8, WHITE, raster.Ground(0.0, 1.0, 50.0))
    np.testing.assert_array_equal(shown, np.ones((8, 8, 3)))


def test_the_ground_below_zero_is_seen_from_below_zero():
    camera = raster.Camera(np.array([3.0, 0.1, -1.0]), np.array([0.0, 0.0, -1.5]), 0.6)
    none = raster.Surface(np.zeros((0, 3)), np.zeros((0, 3), int), np.zeros((0, 4)))
    shown = raster.draw(none, camera, 8, 8, WHITE, raster.Ground(-2.0, 1.0, 50.0))
    assert shown.min() < 0.9


def test_the_ground_hides_what_is_below():
    ground = raster.Ground(0.0, 1.0, 50.0)
    camera = raster.Camera(np.array([3.0, 0.1, 3.0]), np.zeros(3), 0.6)
    vertices = np.array([[-1, -1, 0], [1, -1, 0], [0, 1, 0]], float)
    red = np.array([[1.0, 0, 0, 1]])
    for height, visible in ((0.1, True), (-0.1, False)):
        surface = raster.Surface(vertices + np.array([0, 0, height]), np.array([[0, 1, 2]]), red)
        shown = raster.draw(surface, camera, 30, 30, WHITE, ground)
        assert bool(np.any(shown[..., 1] < 0.2)) == visible


def test_render_frames_the_robot():
    model = single([Geometry(Box((0.2, 0.2, 0.2)), color=(1, 0, 0, 1))])
    seen = []
    for q in (np.zeros(1), np.array([[0.0], [0.0], [0.0]])):
        options = {"width": 160, "height": 120, "ground": False, "smooth": 1}
        image = view.render(model, q, camera=(1.0, 0.0, 0.3), **options)
        assert (image.shape, image.dtype) == ((120, 160, 3), np.uint8)
        red = (image[..., 0] > 1.5 * image[..., 1].astype(int)) & (image[..., 1] < 100)
        border = np.concatenate([red[0], red[-1], red[:, 0], red[:, -1]])
        assert not border.any()
        rows, columns = np.nonzero(red)
        assert max(np.ptp(rows) / 120, np.ptp(columns) / 160) > 0.5
        gaps = np.diff(np.flatnonzero(red.any(axis=0)))
        seen.append(1 + np.count_nonzero(gaps > 1))
    assert seen == [1, 3]
    # Without names of layers only the visual shapes are shown.
    ball = single([Geometry(Box((0.2, 0.2, 0.2)))], [Geometry(Sphere(0.3))])
    plain, visuals = (
        view.render(ball, width=40, height=30, **x) for x in ({}, {"layers": "visuals"})
    )
    np.testing.assert_array_equal(plain, visuals)
    for layers in (("frames",), ("com",), ("inertias",), ("collisions",)):
        picture_of = view.render(model, layers=layers, width=80, height=60, ground=False)
        assert (picture_of.std() > 1) == (layers != ("collisions",))


def plates():
    """A cube on a hinge about y through its bottom: red in front (+x), blue at the back."""

    def plate(place, color):
        shape = Box((0.1, 0.5, 0.5))
        pose = placement_matrix(place, (0.0, 0.0, 0.0))
        return Geometry(shape, pose, (*color, 1.0))

    visuals = [plate((0.4, 0, 0.5), (1.0, 0.0, 0.0)), plate((-0.4, 0, 0.5), (0.0, 0.0, 1.0))]
    joint = JointSpec("hinge", rbd.joints.Revolute((0.0, 1.0, 0.0)), None, "cube")
    return rbd.build_model([Link("cube", INERTIA, visuals)], [joint])


def colored(q, **options):
    """Where a picture of the plates is red, and where it is blue."""
    options = {"width": 40, "height": 30, "smooth": 1, "ground": False} | options
    picture = view.render(plates(), np.array([q]), **options).astype(int)
    return [
        (picture[..., k] > 80) & (picture[..., [0, 1, 2]].sum(axis=2) < 1.3 * picture[..., k])
        for k in (0, 2)
    ]


def test_the_camera_is_where_it_is_told():
    """In front only the front is seen, at the back only the back, from the side both."""
    for camera, seen in (((1, 0, 0), (True, False)), ((-3, 0, 0), (False, True))):
        assert tuple(map(np.any, colored(0.0, camera=camera))) == seen
    red, blue = (np.flatnonzero(x.any(axis=0)) for x in colored(0.0, camera=(0, -1, 0)))
    assert red.min() > blue.max()  # from -y, x is to the right
    red, blue = (np.flatnonzero(x.any(axis=1)) for x in colored(0.0, camera=(0, -1, 0)))
    assert (red.min(), red.max()) == (blue.min(), blue.max())
    np.testing.assert_array_equal(colored(0.3), colored(0.3, camera=(1.0, -0.8, 0.35)))
    # The middle of the cube is in the middle of the picture.
    np.testing.assert_array_equal(colored(0.0), colored(0.0, target=(0.0, 0.0, 0.5)))
    top = colored(0.0, camera=(0, 0, 1))  # from above, y is up in the picture and x to the right
    assert np.flatnonzero(top[0].any(axis=0)).min() > np.flatnonzero(top[1].any(axis=0)).max()
    large = {"camera": (1, 0, 0), "width": 160, "height": 120}
    (far, _), (near, _) = (colored(0.0, distance=d, **large) for d in (8.0, 4.0))
    # The front is 0.5 m nearer than the target.
    np.testing.assert_allclose(near.sum() / far.sum(), (7.5 / 3.5) ** 2, rtol=0.05)
    (left, _) = colored(0.0, distance=4.0, target=(0.0, 0.5, 0.5), **large)
    shift = np.mean(np.nonzero(near)[1]) - np.mean(np.nonzero(left)[1])
    assert shift > 15  # the camera moves to the right, so the cube moves to the left


def test_a_picture_shows_the_robot_where_its_bodies_are():
    """The hinge turns z to x: the front is below, and the cube is at x = 0.5."""
    red, blue = colored(np.pi / 2, camera=(0, -1, 0), target=(0.0, 0.0, 0.0), distance=6.0)
    rows, columns = (np.nonzero(red | blue)[k] for k in (0, 1))
    assert columns.min() >= 19
    assert np.flatnonzero(red.any(axis=1)).min() > np.flatnonzero(blue.any(axis=1)).max()
    assert abs(rows.min() + rows.max() - 29) <= 1
    half = np.sqrt(0.5) / 2
    for q, low, high in (
        (np.pi / 2, (0.0, -0.5, -0.5), (1.0, 0.5, 0.5)),
        (np.pi / 4, (-half, -0.5, -half), (3 * half, 0.5, 3 * half)),
    ):
        found = motion.motion(plates(), np.array([q]))
        box, surface = box_and_surface(view.drawing(plates()), found, ("visuals",))
        np.testing.assert_allclose(box, [low, high], atol=1e-12)
        np.testing.assert_allclose(surface.vertices.min(axis=0), low, atol=1e-12)
        np.testing.assert_allclose(surface.vertices.max(axis=0), high, atol=1e-12)


def test_the_background_and_the_size_of_a_picture():
    for width, height in ((40, 20), (20, 40)):
        picture = view.render(
            boxed(), width=width, height=height, background=(0.2, 0.4, 0.999), ground=False
        )
        assert picture.shape == (height, width, 3)
        changed = np.any(picture != (51, 102, 255), axis=2)  # the nearest values
        rows, columns = np.nonzero(changed)  # the box fits, and fills half of the smaller side
        border = np.concatenate([changed[0], changed[-1], changed[:, 0], changed[:, -1]])
        assert not border.any()
        assert max(np.ptp(rows), np.ptp(columns)) > 9


def test_pixels_are_the_means_of_samples():
    """A picture with 3 x 3 samples is a picture of three times the size, averaged."""
    options = {"camera": (1.0, -0.5, 0.4), "distance": 4.0}
    fine = view.render(plates(), width=60, height=45, smooth=1, **options)
    coarse = view.render(plates(), width=20, height=15, smooth=3, **options)
    means = fine.reshape(15, 3, 20, 3, 3).mean(axis=(1, 3))
    np.testing.assert_allclose(coarse, means, atol=1)


def test_the_ground_is_at_zero_or_below_the_robot():
    for z, height in ((1.0, 0.0), (-3.0, -3.5)):
        ground = picture._ground(np.array([[0, 0, z - 0.5], [1, 2, z + 0.5]]))
        assert ground.height == height
    for extent in (0.9, 1.0, 2.1, 5.0):
        side = picture._ground(np.array([[0, 0, 0], [extent / 2, extent, 0.1]])).side
        assert 1.6 <= extent / side <= 4.0  # two to four tiles along the robot


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"width": 0}, "width is 0"),
        ({"height": 0}, "height is 0"),
        ({"smooth": 0}, "smooth is 0"),
        ({"camera": (0, 0, 0)}, "camera is zero"),
        ({"camera": (0, 0)}, r"camera has shape \(2,\)"),
        ({"camera": ("1", "0", "0")}, "camera is .*, expected an array of floats"),
        ({"target": (0.0, np.nan, 0.0)}, "target is .* expected finite entries"),
        ({"background": (0.0, np.inf, 0.0)}, "background is .* expected finite entries"),
        ({"distance": -1.0}, "distance is -1.0"),
        ({"distance": 0.0}, "distance is 0.0"),
        ({"distance": np.inf}, "distance is inf"),
        ({"layers": ("walls",)}, "layers has 'walls', expected some of visuals"),
    ],
)
def test_bad_arguments_of_render(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        view.render(single(), **arguments)


# ---------------------------------------------------------------------------- markers and ghosts

TURN = jax.jit(rbd.so3.exp)(jnp.array([0.4, -0.5, 0.6]))
MARKERS = {
    "points": view.Points([[0.0, 0.5, 0.2], [0.0, -0.5, 0.2]], (0.0, 1.0, 0.0), 0.1),
    "axes": view.Axes(rbd.Pose(TURN, jnp.array([0.2, 0.5, 0.0])), 0.6),
    "arrows": view.Arrows([0.0, 0.5, 0.0], [0.0, 0.0, 0.7], (1, 0, 0, 0.5), 0.05),
    "path": view.Path(
        [[0.0, 0.5, 0.0], [0.2, 0.5, 0.4], [0.2, 0.5, 0.4], [0.0, -0.6, 0.4]], size=0.04
    ),
}


BALL = Geometry(Sphere(0.1))


def boxed():
    return single([Geometry(Box((0.1, 0.1, 0.1)))])


def decorated(*added, ghosts=None):
    """The items that markers and ghosts add to a drawing."""
    drawn = view.drawing(boxed())
    scene, layers = markers.decorated(boxed(), drawn, ("visuals",), added, ghosts)
    assert scene.items[: len(drawn.items)] == drawn.items
    assert scene.size(layers) == drawn.size(("visuals",))
    return scene.items[len(drawn.items) :], layers


def test_markers_are_where_they_are_placed():
    items, layers = decorated(*MARKERS.values())
    assert layers == ("visuals", "markers")
    points, *three, arrow, path = items
    assert {(item.layer, item.body) for item in items} == {("markers", -1)}
    boxes = [np.array([x.vertices.min(axis=0), x.vertices.max(axis=0)]) for x in items]
    np.testing.assert_allclose(boxes[0], [[-0.1, -0.6, 0.1], [0.1, 0.6, 0.3]], atol=1e-12)
    assert points.color == (0.0, 1.0, 0.0, 1.0)
    for k, item in enumerate(three):
        ends = np.array([[0.2, 0.5, 0.0], np.array([0.2, 0.5, 0.0]) + 0.6 * np.asarray(TURN[:, k])])
        means = item.vertices.reshape(2, -1, 3).mean(axis=1)
        np.testing.assert_allclose(means, ends, atol=1e-12)
        assert np.argmax(item.color[:3]) == k
        line = (item.vertices - ends[0]) @ (np.eye(3) - np.outer(TURN[:, k], TURN[:, k]))
        np.testing.assert_allclose(np.linalg.norm(line, axis=1), 0.018, atol=1e-12)
    assert arrow.color == (1, 0, 0, 0.5)
    np.testing.assert_allclose(arrow.vertices[:, 2].min(), 0.0, atol=1e-12)
    np.testing.assert_allclose(arrow.vertices[-1], [0.0, 0.5, 0.7], atol=1e-12)  # the tip
    offsets = np.linalg.norm((arrow.vertices - [0.0, 0.5, 0.0])[:, :2], axis=1).reshape(4, -1)
    widths = np.tile([[0.05], [0.05], [0.125], [0.0]], offsets.shape[1])  # shaft and head
    np.testing.assert_allclose(offsets, widths, atol=1e-12)
    assert len(path.vertices) == 2 * len(three[0].vertices)  # without the repeated point
    np.testing.assert_allclose(boxes[-1].mean(axis=0)[1:], [-0.05, 0.2], atol=0.04)


def test_rods_have_their_radii_in_all_directions():
    ends = np.array([*np.eye(3), *-np.eye(3), (1.0, -2.0, 3.0), (-1.0, -1.0, 0.0)])
    starts = np.tile([1.0, 2.0, 3.0], (len(ends), 1))
    vertices, faces = markers.rods(starts, starts + ends, 0.1, 0.2)
    rings = vertices.reshape(len(ends), 2, -1, 3) - np.stack([starts, starts + ends], 1)[:, :, None]
    np.testing.assert_allclose(np.einsum("nrki,ni->nrk", rings, ends), 0, atol=1e-12)
    lengths = np.linalg.norm(rings, axis=-1)
    np.testing.assert_allclose(lengths, np.broadcast_to([[0.1], [0.2]], lengths.shape))
    corners = vertices[faces].reshape(len(ends), -1, 3, 3)
    middles = corners.mean(axis=2) - (starts + ends / 2)[:, None]
    normals = np.cross(corners[:, :, 1] - corners[:, :, 0], corners[:, :, 2] - corners[:, :, 0])
    outwards = middles - np.einsum("nfi,ni,nj->nfj", middles, ends, ends) / np.sum(
        ends**2, axis=1
    ).reshape(-1, 1, 1)
    assert np.all(np.einsum("nfi,nfi->nf", normals, outwards) > 0)


AXES = ((0.9, 0.2, 0.2, 1.0), (0.2, 0.7, 0.25, 1.0), (0.2, 0.35, 0.95, 1.0))


def test_markers_without_options_are_as_documented():
    """Beside a robot of 1 m, whose axes are 0.25 m long. A ghost has 0.3 of its opacity."""
    model = single([Geometry(Box((0.5, 0.05, 0.05)), color=(1, 0.5, 0, 0.5))], [BALL])
    added = [
        view.Points([0.0, 0.0, 2.0]),
        view.Axes(rbd.Pose(jnp.eye(3), jnp.zeros(3))),
        view.Arrows([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]], [[0.0, 0.0, 1.0], [0.0, 0.0, 0.1]]),
        view.Path([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]]),
        view.Points(np.zeros((0, 3))),  # none
    ]
    scene, layers = markers.decorated(model, view.drawing(model), ("com",), added, np.array([0.5]))
    assert layers == ("com", "markers", "ghosts")
    ball, *axes, arrows, path, ghost = scene.items[3:]
    expected = [
        ("markers[0]", "markers", (0.95, 0.6, 0.1, 1)),
        *((f"markers[1] {x}", "markers", color) for x, color in zip("xyz", AXES)),
        ("markers[2]", "markers", (0.85, 0.15, 0.15, 1)),
        ("markers[3]", "markers", (0.1, 0.55, 0.75, 1)),
        ("0 link", "ghosts", (1, 0.5, 0, 0.15)),
    ]
    assert [(x.name, x.layer, x.color) for x in scene.items[3:]] == expected
    np.testing.assert_allclose(np.linalg.norm(ball.vertices - (0, 0, 2), axis=1), 0.025)

    def radii(item, heights):
        """The radii of rings of 8 vertices around vertical lines, which have these heights."""
        rings = item.vertices.reshape(-1, 8, 3)
        means = rings.mean(axis=1)
        np.testing.assert_allclose(means[:, 2], heights, atol=1e-12)
        lengths = np.linalg.norm(rings - means[:, None], axis=2)
        np.testing.assert_allclose(lengths, lengths[:, :1] + 0 * lengths, atol=1e-12)
        return lengths[:, 0]

    np.testing.assert_allclose(radii(axes[2], [0, 0.5]), 0.015)
    np.testing.assert_allclose(radii(path, [0, 1]), 0.015)
    # The shafts and then the heads, of 6 radii or half of the arrow.
    found = radii(arrows, [0, 0.91, 0, 0.05, 0.91, 1, 0.05, 0.1])
    np.testing.assert_allclose(found, [0.015] * 4 + [0.0375, 0] * 2, atol=1e-12)
    np.testing.assert_allclose(ghost.vertices.mean(axis=0), [0.5, 0, 0], atol=1e-12)
    # The faces of each rod have all vertices of this rod.
    for item in (*axes, path, arrows):
        rods = item.faces.reshape(-1, 48) // 16
        np.testing.assert_array_equal(rods, np.arange(len(item.vertices) // 16)[:, None] + 0 * rods)
        np.testing.assert_array_equal(np.unique(item.faces), np.arange(len(item.vertices)))
    # With the collisions alone, the size of the robot is the size of the ball.
    scene, _ = markers.decorated(model, view.drawing(model), ("collisions",), added[:1], None)
    assert np.ptp(scene.items[-1].vertices[:, 2]) == pytest.approx(0.1 * 0.25 * 0.4)


def test_ghosts_are_translucent_postures_in_the_same_place():
    items, layers = decorated(ghosts=np.array([[0.5], [1.5]]))
    assert layers == ("visuals", "ghosts")
    centers = [item.vertices.mean(axis=0) for item in items]
    np.testing.assert_allclose(centers, [[0.5, 0, 0], [1.5, 0, 0]], atol=1e-12)
    assert {(item.layer, item.body) for item in items} == {("ghosts", -1)}
    assert all(0.1 < item.color[3] < 0.5 for item in items)
    assert len(decorated(ghosts=np.array([0.5]))[0]) == 1
    # What is fixed to the world has no other posture.
    wall = [Link("wall", visuals=[Geometry(Box((0.5, 0.5, 0.5)))]), Link("link", INERTIA)]
    slide = JointSpec("slide", rbd.joints.Prismatic((1.0, 0.0, 0.0)), "wall", "link")
    model = rbd.build_model(wall, [JointSpec("mount", Fixed(), None, "wall"), slide])
    scene, _ = markers.decorated(model, view.drawing(model), (), [], np.array([0.5]))
    assert [item.name for item in scene.items if item.layer == "ghosts"] == ["0 link"]


@pytest.mark.parametrize("name", ["points", "axes", "arrows", "path"])
def test_markers_without_a_size_have_the_size_of_the_robot(name):
    """Around their points and lines they are smaller than the robot, and twice as large around
    a robot of twice the size.
    """
    marker = MARKERS[name]._replace(size=None)
    assert type(marker)._field_defaults["size"] is None
    reaches = []
    for size in (1.0, 2.0):
        model = single([Geometry(Box((size / 2, 0.05, 0.05)))])
        scene, _ = markers.decorated(model, view.drawing(model), ("visuals",), [marker], None)
        vertices = np.concatenate([x.vertices for x in scene.items if x.layer == "markers"])
        if name == "axes":
            reaches.append(np.linalg.norm(vertices - np.array(marker.poses.p), axis=1).max())
        else:  # the lowest point is below a point or a line with the lowest height
            heights = {"points": 0.2, "arrows": 0.5, "path": 0.0}
            axis = 1 if name == "arrows" else 2
            reaches.append(heights[name] - vertices[:, axis].min())
    np.testing.assert_allclose(reaches[1], 2 * reaches[0], rtol=0.02)
    assert 0.005 < reaches[0] < 0.6


def test_a_batch_of_postures_in_one_place():
    """The markers of several robots in one place are drawn once."""
    model, q = boxed(), np.array([[[0.0]], [[0.5]]])
    found = motion.motion(model, q)
    added = MARKERS["points"]
    drawn, layers = markers.decorated(model, view.drawing(model), ("visuals",), [added], None)
    for side_by_side, width in ((False, 1.2), (True, 2.7)):
        box, _ = box_and_surface(drawn, found, layers, side_by_side)
        np.testing.assert_allclose(np.ptp(box, axis=0)[1], width, atol=1e-9)
        if importlib.util.find_spec("viser") is not None:
            with view.page.server("127.0.0.1", 0) as server:
                shown = stage.Stage(server, model, drawn, found, layers, side_by_side)
                assert np.any(shown.offsets) == side_by_side
                assert len(shown._layers["markers"]) == 1 + side_by_side
                assert all(handle.visible for handle in shown._layers["markers"])


def test_pictures_show_markers_and_ghosts():
    def shown(**options):
        options = {"width": 60, "height": 45, "smooth": 1, "distance": 4.0} | options
        return view.render(boxed(), ground=False, target=(0, 0, 0), **options).astype(int)

    plain = shown()
    for name, marker in MARKERS.items():
        assert np.count_nonzero(shown(markers=[marker]) != plain) > 30, name
    ghost = np.abs(shown(ghosts=np.array([[0.6]])) - plain)
    assert np.count_nonzero(ghost) > 30
    assert np.max(ghost) < 100  # translucent
    green = shown(markers=[MARKERS["points"]])
    green = (green[..., 1] > 100) & (green[..., 0] < 60)
    assert green[:, :30].any() & green[:, 30:].any()


@needs_viser
def test_pages_show_markers_and_ghosts(tmp_path):
    """Random points do not compress, so they need their space in the page."""
    walk = view.Path(np.random.default_rng(0).normal(size=(100, 3)))
    ghosts = np.linspace(0.1, 0.9, 9)[:, None]

    def saved(**options):
        view.save_html(tmp_path / "page.html", boxed(), **options)
        return len((tmp_path / "page.html").read_text())

    for size in (lambda **x: len(view.show(boxed(), **x).html), saved):
        plain = size()
        assert size(markers=[walk]) > plain + 5_000
        assert size(ghosts=ghosts) > plain + 500
    with view.serve(boxed(), port=0, markers=[walk], ghosts=ghosts) as viewer:
        assert [len(viewer._stage._layers[layer]) for layer in ("markers", "ghosts")] == [1, 9]


def test_paths_of_a_frame_and_of_the_centre_of_mass():
    pendulum = rbd.load_robot("pendulum")
    model = rbd.model.add_frame(pendulum, "tip", pendulum.frame_names[-1], POSE)
    q = np.linspace(-1.0, 1.0, 5)[:, None]
    found = motion.motion(model, q)
    path = view.frame_path(model, q, "tip", (1, 1, 0))
    expected = jax.vmap(rbd.frame_placement, (None, 0, None))(model, q, "tip").p
    np.testing.assert_allclose(path.points, expected, atol=1e-14)
    assert path.color == (1, 1, 0)
    centers = motion.center_of_mass(view.drawing(model), found.R[0], found.p[0])
    np.testing.assert_allclose(view.frame_path(model, q).points, centers, atol=1e-14)
    fixed = rbd.model.add_frame(model, "wall", placement=POSE)
    np.testing.assert_allclose(view.frame_path(fixed, q, "wall").points, [POSE[:3, 3]] * 5)
    assert view.frame_path(model, q).color == (0.1, 0.55, 0.75)
    assert view.frame_path(model, q, color=(1, 0, 0)).color == (1, 0, 0)
    with pytest.raises(ArgumentError, match=r"trajectory has shape \(2, 5, 1\) .* or \(T, 1\)"):
        view.frame_path(model, np.zeros((2, 5, 1)), "tip")
    still = rbd.build_model([Link("frame")], [JointSpec("fix", Fixed(), None, "frame")])
    massless = view.frame_path(still, np.zeros((5, 0)))
    np.testing.assert_array_equal(massless.points, np.zeros((5, 3)))


def test_targets_of_tasks_are_markers():
    X = rbd.Pose(TURN, jnp.array([0.1, 0.2, 0.3]))
    *axes, first, second, third, fourth = view.targets(
        [
            ik.FrameTask("link", X),
            ik.FrameTask("link", X, (1.0, 1.0, 1.0, 0.0, 0.0, 0.5)),
            ik.FrameTask.position("link", X.p),
            ik.FrameTask("link", X, (0.0, 0.0, 1.0, 0.0, 0.0, 0.0)),
            ik.GazeTask("link", X.p),
            ik.ComTask(X.p),
        ]
    )
    for marker in axes:
        assert isinstance(marker, view.Axes)
        np.testing.assert_array_equal(marker.poses.R, X.R)
    for marker in (first, second, third, fourth):
        assert isinstance(marker, view.Points)
        np.testing.assert_array_equal(marker.positions, X.p)
    for task, message in (
        (ik.PostureTask([0.0]), r"tasks\[0\] is PostureTask.*expected a target with a position"),
        (ik.FrameTask.orientation("link", X.R), "expected a target with a position"),
        (ik.GazeTask("link", X.p, relative_to="link"), r"tasks\[0\] is relative to a frame"),
    ):
        with pytest.raises(ArgumentError, match=message):
            view.targets([task])
    with pytest.raises(ArgumentError, match="expected a sequence of tasks"):
        view.targets(ik.FrameTask("link", X))


def test_markers_of_separations():
    """Of pairs within a distance: points and arrows, red where shapes overlap."""
    n = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    distance, a = np.array([0.3, -0.1, 2.0]), np.array([[0.1, 0.2, 0.3]] * 3)
    found = Separation(distance, a, a + distance[:, None] * n, n)
    near = view.separations(found, 0.5)
    points, arrows, red_points, red_arrows = near
    np.testing.assert_allclose(points.positions, [[0.1, 0.2, 0.3], [0.4, 0.2, 0.3]])
    np.testing.assert_allclose(arrows.origins, [[0.1, 0.2, 0.3]])
    np.testing.assert_allclose(arrows.vectors, [[0.3, 0, 0]], atol=1e-15)
    np.testing.assert_allclose(red_points.positions, [[0.1, 0.2, 0.3], [0.1, 0.2, 0.2]])
    # The second shape leaves the first one along the normal.
    np.testing.assert_allclose(red_arrows.origins, [[0.1, 0.2, 0.2]])
    np.testing.assert_allclose(red_arrows.vectors, [[0, 0, 0.1]], atol=1e-15)
    assert points.color == arrows.color != red_points.color == red_arrows.color
    assert red_points.color[0] > 0.8
    assert len(view.separations(found)[0].positions) == 4
    one = view.separations(Separation(*(x[0] for x in found)))
    np.testing.assert_allclose(one[0].positions, points.positions)
    assert view.separations(found, -1.0) == []
    with pytest.raises(ArgumentError, match="within is nan, expected a distance in m"):
        view.separations(found, np.nan)


def test_obstacles_are_markers():
    """Shapes in the world, in their poses; not those on the robot, and no half-spaces."""
    X = rbd.Pose(np.asarray(TURN), np.array([1.0, 2.0, 3.0]))
    corners = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]])
    shapes = [
        PlacedShape(Box([0.1, 0.2, 0.3]), None, X, "wall"),
        PlacedShape(ConvexMesh(corners), None, X),
        PlacedShape(Sphere(0.1), "link"),
        PlacedShape(HalfSpace()),
    ]
    items, layers = decorated(view.Obstacles(shapes, (0, 1, 0)))
    assert layers == ("visuals", "markers")
    assert items[0].name == "markers[0] wall"
    box, hull = items
    local = (box.vertices - X.p) @ X.R
    np.testing.assert_allclose(np.abs(local).max(axis=0), [0.1, 0.2, 0.3], atol=1e-12)
    assert box.color == (0, 1, 0, 1)
    local = (hull.vertices - X.p) @ X.R
    triangles_ = local[hull.faces]
    volume = np.sum(np.linalg.det(triangles_ - 0.25)) / 6  # positive if all faces are outward
    np.testing.assert_allclose(volume, 1 / 6, atol=1e-12)
    with pytest.raises(ArgumentError, match=r"markers\[0\].shapes has Sphere"):
        decorated(view.Obstacles(iter([Sphere(0.1)])))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"markers": [view.Points([0.0, 1.0])]}, r"markers\[0\].positions has shape \(2,\)"),
        ({"markers": [view.Points([0.0, 1.0, np.nan])]}, r"markers\[0\].positions .* finite"),
        ({"markers": [view.Points([0, 0, 0], (1, 2, 0))]}, r"markers\[0\].color is .* 0 to 1"),
        ({"markers": [view.Points([0, 0, 0], (0, -0.1, 0))]}, r"markers\[0\].color is .* 0 to 1"),
        ({"markers": [view.Points([0, 0, 0], (1, 0))]}, r"markers\[0\].color .* \(3,\) or \(4,\)"),
        ({"markers": [view.Points([0, 0, 0], (1, 0, 0, 1, 1))]}, "has shape .5,. "),
        (
            {"markers": [view.Axes(rbd.Pose(jnp.zeros((2, 3, 3)), jnp.zeros((3, 3))))]},
            r"markers\[0\].poses has 2 rotations and 3 positions",
        ),
        (
            {"markers": [view.Axes(rbd.Pose(jnp.full((1, 3, 3), np.nan), jnp.zeros((1, 3))))]},
            r"markers\[0\].poses.R is",
        ),
        (
            {"markers": [view.Axes(rbd.Pose(jnp.eye(3), jnp.array([0, 0, np.inf])))]},
            r"markers\[0\].poses.p .* finite",
        ),
        (
            {"markers": [view.Arrows([0, 0, np.nan], np.zeros(3))]},
            r"markers\[0\].origins .* finite",
        ),
        ({"markers": [view.Points([0, 0, 0], size=0.0)]}, r"markers\[0\].size is 0.* above 0"),
        ({"markers": [view.Points([0, 0, 0], size=np.inf)]}, r"markers\[0\].size is inf.* above 0"),
        (
            {"markers": [view.Arrows(np.zeros((2, 3)), np.zeros((3, 3)))]},
            r"markers\[0\] has 2 origins and 3 vectors",
        ),
        (
            {"markers": [view.Arrows(np.zeros(3), [0.0, 0.0, np.nan])]},
            r"markers\[0\].vectors .* finite",
        ),
        ({"markers": [view.Path(np.zeros((4, 2)))]}, r"markers\[0\].points has shape \(4, 2\)"),
        ({"ghosts": np.zeros((2, 3, 1))}, r"ghosts has shape \(2, 3, 1\) .* or \(G, 1\)"),
        ({"ghosts": np.zeros(2)}, r"ghosts has shape \(2,\)"),
    ],
)
def test_bad_markers_and_ghosts(options, message):
    with pytest.raises(ArgumentError, match=message):
        view.render(boxed(), **options)


def test_an_array_is_not_a_marker_and_a_name_is_not_a_colour():
    """Without the types that the tests check."""
    with pytest.raises(ArgumentError, match=r"markers\[2\] is \(0.0,\), expected Points, Axes"):
        inspect.unwrap(markers._items)((0.0,), 2, 1.0)
    with pytest.raises(ArgumentError, match=r"markers\[2\].color is 'red', expected"):
        inspect.unwrap(markers._color)("red", "markers[2].color")


# ----------------------------------------------------------------------------------------- pages


@needs_viser
def test_a_page_has_everything_in_itself(tmp_path, capsys):
    """A mesh is in the page once, and no other file. Random vertices do not compress."""
    vertices = np.random.default_rng(0).normal(size=(900, 3))
    model = single([Geometry(Mesh(vertices, np.arange(900).reshape(-1, 3)))])
    sizes = {}
    for name, q in {"one": np.zeros((1, 1)), "many": np.linspace(0, 1, 20)[:, None]}.items():
        view.save_html(tmp_path / name, model, q, dt=0.05)
        for text in ((tmp_path / name).read_text(), view.show(model, q, dt=0.05).html):
            assert text.count("__VISER_EMBED_DATA__") > 0
            assert not re.findall(r"""(?:src|href) ?= ?["'](?!data:)[^"'#]+["']""", text)
            assert not re.findall(r"@import|url\(['\"]?(?!data:|#)\w+[:/.]", text)
            sizes[name] = len(text)
    assert capsys.readouterr().out == ""
    small = len(view.show(boxed()).html)
    assert 10_000 < sizes["one"] - small < 30_000  # 900 vertices of 12 bytes in base 64, faces
    assert 0 < sizes["many"] - sizes["one"] < 5000  # the poses


@needs_viser
def test_a_page_has_the_poses_of_every_frame():
    """The recorded messages move the body as the trajectory does."""
    model, q = single([Geometry(Box((0.5, 0.5, 0.5)))]), np.array([0.1, 0.25, 1.0])
    drawn, found = view.drawing(model), motion.motion(model, q[:, None])
    with view.page.server("127.0.0.1", 0) as server:
        shown = stage.Stage(server, model, drawn, found, ("visuals",))
        recording = server.get_scene_serializer()
        for step in range(3):
            shown.place(found, step)
            recording.insert_sleep(0.1)
        server.flush()
        moves = [
            (round(time, 6), message["position"])
            for time, message in recording._messages
            if message["type"] == "SetPositionMessage" and message["name"].endswith("/0 link")
        ]
        recording.serialize()
    assert [time for time, _ in moves] == [0.0, 0.1, 0.2]
    np.testing.assert_allclose([p[0] for _, p in moves], q, atol=1e-12)


@needs_viser
def test_a_page_has_the_orientations_of_the_bodies():
    """viser's quaternions are w, x, y, z."""
    joint = JointSpec("root", rbd.joints.FreeFlyer(), None, "link")
    model = rbd.build_model([Link("link", INERTIA)], [joint])
    q = np.array([0.0, 0.0, 0.0, 0.1, 0.3, -0.5, np.sqrt(0.65)])
    found = motion.motion(model, q)
    with view.page.server("127.0.0.1", 0) as server:
        shown = stage.Stage(server, model, view.drawing(model), found, ("visuals",))
        shown.place(found, 0)
        (w, *xyz) = shown._bodies[0][0].wxyz
    R = rbd.so3.quaternion_to_matrix(jnp.array([*xyz, w]))
    np.testing.assert_allclose(R, rbd.forward_kinematics(model, q).X_WB.R[0], atol=1e-12)


def test_frames_of_a_page_are_at_most_thirty_per_second():
    assert [*view.page._kept(5, 0.1)] == [0, 1, 2, 3, 4]
    kept = view.page._kept(1001, 0.001)
    assert len(kept) == 31
    np.testing.assert_allclose(np.array(kept) * 0.001, np.arange(31) / 30, atol=5.1e-4)


@needs_viser
@pytest.mark.parametrize("dt", [0.0, -1.0, np.nan, np.inf])
def test_a_bad_time_step_of_a_page(dt, tmp_path):
    for act in (
        view.show,
        view.serve,
        lambda *x, **y: view.save_html(tmp_path / "a.html", *x, **y),
    ):
        with pytest.raises(ArgumentError, match=r"dt is .*, expected a positive time in s"):
            act(single(), dt=dt)
    assert not (tmp_path / "a.html").exists()


def test_without_the_extra_the_error_names_it(monkeypatch, tmp_path):
    find = importlib.util.find_spec
    hidden = ("viser", "trimesh")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name in hidden else find(name, *a)
    )
    load = builtins.__import__

    def refuse(name, *args, **kwargs):
        assert name.partition(".")[0] not in hidden
        return load(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    for act in (view.show, view.serve, lambda model: view.save_html(tmp_path / "a", model)):
        with pytest.raises(ArgumentError, match=r"viser: pip install viser"):
            act(single())
    mesh = tmp_path / "a.stl"
    mesh.write_bytes(b"")
    with pytest.raises(ArgumentError, match=r"trimesh: pip install viser 'trimesh\[easy\]'"):
        view.drawing(single([Geometry(MeshFile(str(mesh)))]))
    assert view.render(single([Geometry(Sphere(0.3))]), width=40, height=30).std() > 5


# ------------------------------------------------------------------------------------ live viewer


def test_ranges_of_sliders():
    model = rbd.load_robot("quadruped")
    dofs = live.slider_ranges(model, 1.0)
    assert len(dofs) == model.nv
    assert [dof.label for dof in dofs[:3]] == ["root_joint 1", "root_joint 2", "root_joint 3"]
    assert [dof.upper for dof in dofs[:6]] == [2.0] * 3 + [np.pi] * 3
    for dof, lower, upper in zip(
        dofs[6:], model.lower_position_limit[7:], model.upper_position_limit[7:]
    ):
        assert (dof.lower, dof.upper) == (float(lower), float(upper))
    (slide,) = live.slider_ranges(single(), 1.0)
    assert slide == ("slide", -0.5, 2.0)


@pytest.mark.parametrize(
    ("kind", "lower", "upper", "expected"),
    [
        ("prismatic", -np.inf, np.inf, (-2.0, 2.0)),
        ("prismatic", -np.inf, 0.5, (-2.0, 0.5)),
        ("prismatic", -np.inf, -5.0, (-7.0, -5.0)),
        ("prismatic", 4.0, np.inf, (4.0, 6.0)),
        ("prismatic", -4.0, np.inf, (-4.0, 2.0)),
        ("revolute", -np.inf, np.inf, (-np.pi, np.pi)),
        ("revolute", 1.0, np.inf, (1.0, 1.0 + np.pi)),
        ("revolute", -9.0, 9.0, (-9.0, 9.0)),
    ],
)
def test_sliders_of_joints_without_some_limits(kind, lower, upper, expected):
    """The slider reaches each limit, and otherwise the usual range."""
    axis = (0.0, 1.0, 0.0)
    made = {"prismatic": rbd.joints.Prismatic(axis), "revolute": rbd.joints.Revolute(axis)}[kind]
    joint = JointSpec("j", made, None, "link", lower=lower, upper=upper)
    model = rbd.build_model([Link("link", INERTIA)], [joint])
    np.testing.assert_allclose(live.slider_ranges(model, 1.0)[0][1:], expected)


@pytest.mark.slow
@needs_viser
def test_a_viewer_shows_plays_and_reaches():
    model = rbd.load_robot("arm7")
    with view.serve(model, port=0) as viewer:
        np.testing.assert_array_equal(viewer.q, np.zeros(7))
        q = np.full(7, 0.4)
        viewer.set_configuration(q)
        np.testing.assert_array_equal(viewer.q, q)
        np.testing.assert_allclose([slider.value for slider in viewer._sliders], q)
        X = rbd.frame_placement(model, jnp.full(7, 0.45), model.frame_names[-1])
        viewer.reach(model.frame_names[-1], X.p, rbd.so3.quaternion_from_matrix(X.R))
        reached = rbd.frame_placement(model, viewer.q, model.frame_names[-1])
        np.testing.assert_allclose(reached.p, X.p, atol=1e-8)
        np.testing.assert_allclose(reached.R, X.R, atol=1e-8)
        with pytest.raises(ArgumentError, match="2 robots, expected 1"):
            viewer.set_configuration(np.zeros((2, 7)))
        viewer.play(np.linspace(0, 1, 50)[:, None] * np.ones(7), dt=0.02)
        seen = set()
        for _ in range(200):
            seen.add(round(float(viewer.q[0]), 3))
            if len(seen) > 4:
                break
            viewer._stopped.wait(0.05)
        assert len(seen) > 4


# ----------------------------------------------------------------------------------- command line


@pytest.mark.slow
@needs_viser
def test_a_rollout_writes_a_page(tmp_path, capsys):
    page = tmp_path / "rollout.html"
    options = ["--batch", "3", "--steps", "5", "--no-plot", "--out", str(tmp_path)]
    assert cli.main(["rollout", "pendulum", *options, "--html", str(page)]) == 0
    assert "__VISER_EMBED_DATA__" in page.read_text()
    assert f"wrote      {page}" in capsys.readouterr().out


@pytest.mark.slow
@needs_viser
@needs_trimesh
def test_a_rollout_finds_the_meshes_of_a_package(tmp_path, capsys):
    import trimesh

    urdf, page, meshes = tmp_path / "arm.urdf", tmp_path / "arm.html", tmp_path / "meshes"
    text = robot_path("pendulum").read_text()
    mesh = '<mesh filename="package://my_arm/rod.stl"/>'
    text, changes = re.subn("<(cylinder|box|sphere|capsule) [^>]*/>", mesh, text)
    assert changes
    urdf.write_text(text)
    meshes.mkdir()
    options = ["--batch", "2", "--steps", "2", "--no-plot", "--out", str(tmp_path)]
    command = ["rollout", str(urdf), *options, "--html", str(page)]
    assert cli.main([*command, "--package", f"my_arm={meshes}"]) == 0
    error = capsys.readouterr().err
    assert re.search(
        r"^jaxrbd: warning: link .* not drawn: .* in the package 'my_arm'", error, re.M
    )
    assert "GeometryWarning" not in error
    trimesh.creation.box((0.1, 0.1, 0.5)).export(meshes / "rod.stl")
    assert cli.main([*command, "--package", f"my_arm={meshes}"]) == 0
    assert "warning" not in capsys.readouterr().err


@needs_viser
def test_pages_and_servers_print_nothing_into_a_notebook(monkeypatch):
    """In a notebook, rich shows the messages of viser as an output of the cell."""
    display = pytest.importorskip("IPython.display")
    rich = pytest.importorskip("rich")
    shown = []
    monkeypatch.setattr(display, "display", lambda *x, **_: shown.append(x))
    console = rich.get_console()
    monkeypatch.setattr(console, "is_jupyter", True)
    rich.print("seen")
    assert len(shown) == 1
    view.show(rbd.load_robot("pendulum"))
    with view.serve(rbd.load_robot("pendulum"), port=8123):
        pass
    assert len(shown) == 1
    rich.print("seen again")
    assert len(shown) == 2


@needs_viser
def test_a_page_is_served_at_a_free_port_or_refused():
    pendulum = rbd.load_robot("pendulum")
    for port in (70000, -1, "a", 8080.5, True):
        with pytest.raises(rbd.ArgumentError, match=r"port is .*, expected an integer from 0"):
            view.serve(pendulum, port=port)
    for host in ("nohost.invalid", "192.0.2.1", 3, None, "", b"localhost"):
        with pytest.raises(rbd.ArgumentError, match="host is"):
            view.serve(pendulum, host=host)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 65535))
        with pytest.raises(rbd.ArgumentError, match=r"no port of 127\.0\.0\.1 from 65535"):
            view.serve(pendulum, port=65535)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://localhost:80"),
        ("::", "http://localhost:80"),
        ("10.0.0.1", "http://10.0.0.1:80"),
        ("::1", "http://[::1]:80"),
    ],
)
def test_the_address_of_a_viewer(host, url):
    viewer = object.__new__(view.Viewer)
    viewer._server = types.SimpleNamespace(get_host=lambda: host, get_port=lambda: 80)
    assert viewer.url == url


WARNED = """
import sys, warnings
from jaxrbd import load_urdf, view

model = load_urdf(sys.argv[1])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    view.render(model, width=8, height=8)
    view.show(model)
    view.save_html(sys.argv[2], model)
    view.serve(model, port=8124).stop()
print([(warning.category.__name__, warning.filename) for warning in caught])
"""


@needs_viser
@needs_trimesh
def test_warnings_point_at_the_call_of_the_user(tmp_path):
    """In another process, because the tests put other frames between the functions."""
    script, urdf = tmp_path / "script.py", tmp_path / "r.urdf"
    script.write_text(WARNED)
    urdf.write_text(
        '<robot name="r"><link name="a"><visual><geometry><mesh filename="gone.stl"/></geometry>'
        "</visual></link></robot>"
    )
    command = [sys.executable, script, urdf, tmp_path / "page.html"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.stdout == f"{[('GeometryWarning', str(script))] * 4}\n", result.stderr


def test_a_mesh_in_memory_is_drawn():
    vertices = np.vstack([np.zeros(3), np.eye(3)])
    tetrahedron = Mesh(vertices, np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]))
    item, _ = view.drawing(single([Geometry(tetrahedron)])).items
    volume, _, _ = moments(item.vertices, item.faces)
    np.testing.assert_allclose(volume, 1 / 6)


def test_a_link_with_an_empty_mesh_is_a_box():
    flat = Mesh(np.zeros((3, 3)), np.array([[0, 1, 2]]))  # a triangle without area
    items = view.drawing(single([Geometry(flat)])).items
    assert (items[0].layer, len(items[0].faces)) == ("visuals", 12)


@pytest.mark.documents
@needs_viser
def test_the_examples_of_the_guide_run(tmp_path, monkeypatch):
    guide = pathlib.Path(__file__).parents[1] / "docs" / "viewing.md"
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    try:
        for example in re.findall(r"```python\n(.*?)```", guide.read_text(), re.DOTALL):
            exec(example, names)
    finally:
        if "viewer" in names:
            names["viewer"].stop()
    assert names["picture"].shape == (240, 320, 3)
    assert (tmp_path / "two_arms.html").stat().st_size > 10**5
    assert np.any(names["with_ghosts"] != names["one_place"])
    assert names["viewer"].url.startswith("http://localhost:")
