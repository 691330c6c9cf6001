"""What pages and the live viewer send to viser: nodes, poses at their times, forces, controls."""

import html.parser
import inspect
import itertools
import socket
import threading
import types

import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import contact, view
from jaxrbd.collision import Box, PlacedShape, Sphere
from jaxrbd.errors import ArgumentError
from jaxrbd.model import (
    Fixed,
    Geometry,
    JointSpec,
    Link,
    MeshFile,
    link_inertia,
    placement_matrix,
)
from jaxrbd.view import contact_arrows, live, motion, picture, stage
from support.disk import full_disk

viser = pytest.importorskip("viser")

INERTIA = link_inertia(2.0, (0.0, 0.0, 0.0), np.diag([0.02, 0.03, 0.04]))
HALF = np.sqrt(0.5)
BALL = Geometry(Sphere(0.1))


def slider(name="link", color=(1.0, 0.5, 0.0, 0.25)) -> rbd.Model:
    """A link on a slider along x, with a box to look at and a ball that collides."""
    visuals, balls = (
        [Geometry(Box((0.1, 0.15, 0.2)), color=color)],
        [Geometry(Sphere(0.1))],
    )
    joint = JointSpec("slide", rbd.joints.Prismatic((1.0, 0.0, 0.0)), None, name, lower=-0.5)
    return rbd.build_model([Link(name, INERTIA, visuals, balls)], [joint])


# ----------------------------------------------------------------------------------------- pages


class Recording:
    """The messages (time in s, content) of a page, its duration, and the arrows that it draws."""

    def __init__(self):
        self.messages, self.duration, self.arrows = [], 0.0, []

    def about(self, kind: str, name: str = "") -> list[tuple[float, dict]]:
        """The messages of a kind about the nodes whose names end with `name`."""
        return [
            (time, message)
            for time, message in self.messages
            if message["type"] == kind and message.get("name", "").endswith(name)
        ]


@pytest.fixture
def recording(monkeypatch):
    """The recording of the last page."""
    found = Recording()
    with view.page.server("127.0.0.1", 0) as server:
        kind = type(server.get_scene_serializer())
    as_html, add_arrows = kind.as_html, viser.SceneApi.add_arrows

    def record(serializer):
        found.messages, found.duration = serializer._messages, serializer._time
        return as_html(serializer)

    def record_arrows(scene, name, points, *arguments, **options):
        found.arrows.append((name, np.asarray(points, float), options["colors"]))
        return add_arrows(scene, name, points, *arguments, **options)

    monkeypatch.setattr(kind, "as_html", record)
    monkeypatch.setattr(viser.SceneApi, "add_arrows", record_arrows)
    return found


def visible_layers(recording) -> set[str]:
    """The layers whose node is visible. Each layer has a node."""
    ends = {"frames": "/frame", "com": "/centre of mass"}
    ends |= {layer: f"/{layer}/" for layer in ("visuals", "collisions", "inertias")}
    found = {
        layer: message["visible"]
        for _, message in recording.about("SetSceneNodeVisibilityMessage")
        for layer, end in ends.items()
        if end in message["name"] + "$" * (not end.endswith("/"))
    }
    assert set(found) == set(view.LAYERS)
    return {layer for layer, visible in found.items() if visible}


@pytest.mark.parametrize("layer", view.LAYERS)
def test_the_layers_of_a_page_are_visible_at_its_start(layer, recording, tmp_path):
    other = "com" if layer == "visuals" else "visuals"
    for layers in ((layer,), (layer, other)):
        view.show(slider(), layers=layers)
        assert visible_layers(recording) == set(layers)
        view.save_html(tmp_path / "page.html", slider(), layers=layers)
        assert visible_layers(recording) == set(layers)
    view.show(slider(), layers=layer)  # one name instead of a list
    assert visible_layers(recording) == {layer}


def test_without_names_of_layers_a_page_shows_the_visuals(recording, tmp_path):
    view.show(slider())
    assert visible_layers(recording) == {"visuals"}
    view.save_html(tmp_path / "page.html", slider())
    assert visible_layers(recording) == {"visuals"}
    with view.serve(slider(), port=0) as viewer:
        layers = viewer._stage._layers
        shown = {layer for layer in layers if all(node.visible for node in layers[layer])}
        assert shown == {"visuals"}


def test_the_bodies_of_a_page_move_as_the_robots(recording):
    """Two robots, four times: the poses of both bodies, and the centres of mass."""
    model = rbd.load_robot("double_pendulum")
    q = np.random.default_rng(0).uniform(-1, 1, (2, 4, 2))
    q[:, 2], q[:, 3, 0] = q[:, 0], q[:, 2, 0]  # a pose that comes back, and one that stays
    start = {"position": (0.0, 0.0, 0.0), "wxyz": (1.0, 0.0, 0.0, 0.0)}
    view.show(model, q, dt=0.1)

    def last(kind, node, field, step):
        """What the node has at the time of the step. viser sends no value that does not change."""
        moves = [m[field] for time, m in recording.about(kind, node) if time < 0.1 * step + 0.05]
        return np.array([start[field], *moves][-1])

    for robot, step in itertools.product(range(2), range(4)):
        root = f"/{robot} {model.name}"
        kinematics = rbd.forward_kinematics(model, q[robot, step])
        com = last("SetPositionMessage", f"{root}/centre of mass", "position", step)
        np.testing.assert_allclose(com, rbd.center_of_mass(model, kinematics), atol=1e-12)
        for body, name in enumerate(model.body_names):
            node = f"{root}/{body} {name}"
            p = last("SetPositionMessage", node, "position", step)
            np.testing.assert_allclose(p, kinematics.X_WB.p[body], atol=1e-12)
            w, *xyz = last("SetOrientationMessage", node, "wxyz", step)
            R = rbd.so3.quaternion_to_matrix(jnp.array([*xyz, w]))
            np.testing.assert_allclose(R, kinematics.X_WB.R[body], atol=1e-12)


@pytest.mark.parametrize(("dt", "times"), [(0.1, [0, 0.1, 0.2, 0.3]), (0.02, [0, 1 / 30])])
def test_a_page_plays_in_real_time(dt, times, recording, tmp_path):
    """With fewer and with more than 30 configurations per second; each is shown as long."""
    q = np.linspace(0.1, 0.4, 4)[:, None]
    for act in (
        lambda **x: view.save_html(tmp_path / "a.html", slider(), q, **x),
        lambda **x: view.show(slider(), q, **x),
    ):
        act(dt=dt)
        moves = recording.about("SetPositionMessage", "/0 link")
        np.testing.assert_allclose([time for time, _ in moves], times, atol=1e-8)
        expected = q[np.round(np.array(times) / dt).astype(int), 0]
        np.testing.assert_allclose([m["position"][0] for _, m in moves], expected, atol=1e-12)
        np.testing.assert_allclose(recording.duration, times[-1] + times[1], atol=1e-8)


@pytest.mark.parametrize(
    ("color", "rgb", "opacity"),
    [((1.0, 0.5, 0.0, 0.25), (255, 128, 0), 0.25), ((0.0, 0.2, 1.0, 1.0), (0, 51, 255), None)],
)
def test_the_colours_of_a_page(color, rgb, opacity, recording):
    view.show(slider(color=color))
    found = {m["name"].split("/")[3]: m["props"] for _, m in recording.about("MeshMessage")}
    assert (found["visuals"]["color"], found["visuals"]["opacity"]) == (rgb, opacity)
    assert found["collisions"]["color"] != rgb
    assert 0 < found["collisions"]["opacity"] < 1


@pytest.mark.parametrize(("z", "ground"), [(1.0, 0.0), (-2.0, -4.2)])
def test_a_page_looks_at_the_robot_from_above_the_ground(z, ground, recording):
    """The ground is at z = 0, or at the lowest point of the robot below that. z is up."""
    place = placement_matrix((0.3, 0.1, z), (0.0, 0.0, 0.0))
    box = Geometry(Box((0.1, 0.15, 0.2)), place)
    hinge = JointSpec("j", rbd.joints.Revolute((0.0, 0.0, 1.0)), None, "link", place)
    view.show(rbd.build_model([Link("link", INERTIA, [box])], [hinge]))
    ((_, camera),) = recording.about("SetCameraPositionMessage")
    ((_, target),) = recording.about("SetCameraLookAtMessage")
    floor = [m["position"][2] for _, m in recording.about("SetPositionMessage", "/ground")]
    np.testing.assert_allclose([0.0, *floor][-1], ground, atol=1e-12)
    look, position = np.array(target["look_at"]), np.array(camera["position"])
    # The middle of the box from 0.5 to 0.7, from 0.05 to 0.35, and of the origin of the body.
    np.testing.assert_allclose(look[:2], [0.5, 0.2], atol=1e-9)
    assert np.all((position - look) * [1, -1, 1] > 0.1)
    ((_, up),) = (x for x in recording.about("SetOrientationMessage") if x[1]["name"] == "")
    np.testing.assert_allclose(np.abs(up["wxyz"]), 0.5, atol=1e-9)  # the y axis of viser is up


def test_the_whole_scene_of_a_page(recording):
    """Two robots: a wall, and a cart on a vertical slider that touches the ground, with a marker.

    The box around the robots goes from -0.5 to 1 along x and z, and has the width 1 + 1.25.
    """
    inertia = link_inertia(2.0, (0.0, 0.0, 0.1), np.diag([0.02, 0.03, 0.04]))
    part = Geometry(Box((0.1, 0.15, 0.2)), color=(1.0, 0.5, 0.0, 0.25), name="a/b")
    lower = placement_matrix((0.5, 0.0, 0.5), (0.0, 0.0, 0.0))
    links = [
        Link("wall", visuals=[Geometry(Box((0.5, 0.5, 0.5)), lower)]),
        Link("cart", inertia, [part], [BALL]),
    ]
    joints = [
        JointSpec("mount", Fixed(), None, "wall", np.linalg.inv(lower)),
        JointSpec("lift", rbd.joints.Prismatic((0.0, 0.0, 1.0)), "wall", "cart", lower),
    ]
    model = rbd.build_model(links, joints)
    scene = contact.Scene.from_shapes([PlacedShape(Sphere(0.1), "cart")], [], contact.Plane())
    q = np.array([[[0.0995], [0.2]], [[0.0], [-0.1]]])
    markers = [view.Points([1.0, 0.0, 1.0], size=0.05)]
    options = {"layers": ("frames", "com", "visuals"), "contact": scene, "markers": markers}
    view.show(model, q, dt=0.1, **options)
    kinds = {"Frame", "Mesh", "Icosphere", "Grid", "Arrow"}
    nodes = {
        message["name"]: (kind, message["props"])
        for kind in kinds
        for _, message in recording.about(f"{kind}Message")
        if not message["virtual"] and message["name"] != "/WorldAxes"
    }
    hidden = {
        m["name"] for _, m in recording.about("SetSceneNodeVisibilityMessage") if not m["visible"]
    }
    unseen = [
        f"/{robot} robot/0 cart/{x}"
        for robot in "01"
        for x in ("collisions/2 cart", "inertias/3 cart")
    ]
    assert hidden == {"/WorldAxes", *unseen}
    size, axes = 0.4, 0.1  # of the cart, and of the axes of its frame
    mesh = {"side": "double", "wireframe": False, "scale": 1.0}
    arrow = {"shaft_radius": 0.01 * size, "head_radius": 0.025 * size, "head_length": 0.05 * size}
    expected = {}
    for robot in ("/0 robot", "/1 robot"):
        meshes = (
            ("world", "visuals", "0 wall", (168, 176, 186), None),
            ("0 cart", "visuals", "1 cart a_b", (255, 128, 0), 0.25),
            ("0 cart", "collisions", "2 cart", (242, 140, 51), 0.45),
            ("0 cart", "inertias", "3 cart", (64, 115, 242), 0.45),
            ("world", "markers", "4 markers[0]", (242, 153, 26), None),
        )
        expected |= {
            robot: ("Frame", {"show_axes": False}),
            f"{robot}/0 cart": ("Frame", {"show_axes": False}),
            f"{robot}/0 cart/frame": (
                "Frame",
                {"show_axes": True, "axes_length": axes, "axes_radius": 0.03 * axes},
            ),
            f"{robot}/centre of mass": (
                "Icosphere",
                {"radius": 0.1 * axes, "color": (230, 30, 150)},
            ),
            f"{robot}/contact forces": ("Arrow", arrow),
        }
        for body, layer, name, color, opacity in meshes:
            node = f"{robot}/{body}/{layer}/{name}"
            expected[node] = ("Mesh", mesh | {"color": color, "opacity": opacity})
    low, high = np.array([-0.5, -1.125, -0.5]), np.array([1.05, 1.125, 1.05])
    assert recording.arrows[0][2] == (220, 40, 40)
    extent, middle = np.linalg.norm(high - low), (low + high) / 2
    grid = {"width": 20 * extent, "height": 20 * extent, "cell_size": 0.2, "section_size": 1.0}
    expected["/ground"] = ("Grid", grid)
    assert set(nodes) == set(expected)
    for name, (kind, props) in expected.items():
        assert nodes[name][0] == kind
        for key, value in props.items():
            found = nodes[name][1][key]
            if isinstance(value, float):
                np.testing.assert_allclose(found, value, rtol=1e-6, err_msg=f"{name} {key}")
            else:
                assert found == value, (name, key)
    starts = {m["name"]: m["position"] for _, m in reversed(recording.about("SetPositionMessage"))}
    for name, position in {
        "/ground": (0, 0, -0.5),
        "/0 robot": (0, -0.625, 0),
        "/1 robot": (0, 0.625, 0),
        "/0 robot/0 cart": (0, 0, 0.0995),
        "/0 robot/centre of mass": (0, 0, 0.1995),
        "/1 robot/centre of mass": (0, 0, 0.1),
    }.items():
        np.testing.assert_allclose(starts[name], position, atol=1e-12, err_msg=name)
    ((_, camera),) = recording.about("SetCameraPositionMessage")
    ((_, target),) = recording.about("SetCameraLookAtMessage")
    ((_, lens),) = recording.about("SetCameraFovMessage")
    np.testing.assert_allclose(target["look_at"], middle, atol=1e-12)
    place = middle + extent * np.array([0.85, -0.7, 0.35])
    np.testing.assert_allclose(camera["position"], place, atol=1e-12)
    assert lens["fov"] == 0.9
    # A horizontal force is drawn too, and a force of zero is not.
    with view.page.server("127.0.0.1", 0) as server:
        found = motion.motion(model, q)
        shown = stage.Stage(server, model, view.drawing(model), found, ("visuals",))
        recording.arrows.clear()
        forces = np.array([[0.0, -2.0, 0.0], [0.0, 0.0, 0.0]])
        shown.show_forces(1, np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), forces, 0.5, True)
        ((name, points, _),) = recording.arrows
        assert name == "/1 robot/contact forces"
        np.testing.assert_allclose(points, [[[1, 2, 3], [1, 1, 3]]])
    # A page of another layer has arrows of the size of that layer.
    for layers, size in ((("collisions",), 0.2), ((), 0.4)):
        recording.arrows.clear()
        depth = np.sqrt(2.0 * 9.81 / scene.material.stiffness)
        view.show(model, np.array([0.1 - depth]), layers=layers, contact=scene)
        ((_, points, _),) = recording.arrows
        np.testing.assert_allclose(np.ptp(points[0, :, 2]), size, rtol=1e-4)


def test_robots_are_apart_by_the_widest_at_its_start():
    """The hinge about x turns a plank of 1 m; the second robot lies at its start."""
    plank = Geometry(Box((0.1, 0.05, 0.5)))
    hinge = JointSpec("hinge", rbd.joints.Revolute((1.0, 0.0, 0.0)), None, "link")
    model = rbd.build_model([Link("link", INERTIA, [plank])], [hinge])
    drawn, lying = view.drawing(model), np.pi / 2
    for start in (0.0, lying):
        found = motion.motion(model, np.array([[[0.0], [lying]], [[start], [0.0]]]))
        width = 1.25 * (1.0 if start else 0.1)
        offsets = stage.robot_offsets(drawn, found)
        np.testing.assert_allclose(offsets[:, 1], [-width / 2, width / 2])
    # Without a width it is the size of the robot.
    np.testing.assert_allclose(stage.robot_offsets(drawn, found, ())[:, 1], [-0.625, 0.625])
    large = drawn._replace(reach=3.0)
    np.testing.assert_allclose(stage.robot_offsets(large, found, ())[:, 1], [-1.875, 1.875])


def test_the_camera_of_a_page_looks_at_the_start(recording):
    """The box of 0.2 m is at x = 0 and then at x = 1; robots in one place all have their boxes."""
    q = np.array([[[0.0], [1.0]], [[0.0], [2.0]]])
    view.show(slider(color=(1.0, 0.5, 0.0, 0.95)), q, side_by_side=False)
    ((_, target),) = recording.about("SetCameraLookAtMessage")
    np.testing.assert_allclose(target["look_at"], [0, 0, 0], atol=1e-12)
    meshes = [m for _, m in recording.about("MeshMessage") if "/visuals/" in m["name"]]
    assert [m["name"].split("/")[1] for m in meshes] == ["0 robot", "1 robot"]
    assert [m["props"]["opacity"] for m in meshes] == [0.95] * 2


def test_lengths_of_the_grid_are_round():
    for x, length in (
        (0.11, 0.1),
        (0.16, 0.2),
        (3.4, 2),
        (3.6, 5),
        (7.4, 5),
        (7.6, 10),
        (70.0, 50),
    ):
        np.testing.assert_allclose(stage._round(x), length)


def test_a_robot_without_extent_has_a_page(recording):
    model = rbd.build_model([Link("frame")], [JointSpec("fix", Fixed(), None, "frame")])
    view.show(model)
    ((_, grid),) = recording.about("GridMessage")
    assert (grid["props"]["width"], grid["props"]["cell_size"]) == (20.0, 0.1)
    with view.serve(model, port=0) as viewer:
        assert viewer.q.shape == (0,)
        assert {kind for _, kind, *_ in controls(viewer)} == {"Checkbox"}  # nothing moves


def test_pages_have_documented_defaults(recording, tmp_path):
    """50 configurations per second, of which 30 are kept, and 480 pixels."""
    q = np.linspace(0, 1, 51)[:, None]
    for act in (view.show, lambda *x: view.save_html(tmp_path / "a.html", *x)):
        act(slider(), q)
        times = [time for time, _ in recording.about("SetPositionMessage", "/0 link")]
        np.testing.assert_allclose(times, np.arange(1, 31) / 30, atol=1e-6)
        np.testing.assert_allclose(recording.duration, 31 / 30)
    # 205 steps of 0.02 s are 123 frames, although 4.1 s times 30 is rounded to less.
    view.show(slider(), np.zeros((206, 1)))
    np.testing.assert_allclose(recording.duration, 124 / 30)
    (frame,) = _Frame(view.show(slider())._repr_html_()).elements
    assert (frame["height"], frame["width"]) == ("480", "100%")
    assert frame["style"] == "border:none;display:block"
    assert view.Page("").height == 480
    view.Page("\N{SNOWMAN}").save(tmp_path / "b.html")
    assert (tmp_path / "b.html").read_text("utf-8") == "\N{SNOWMAN}"
    # A batch has the times of its second axis.
    view.show(slider(), np.zeros((3, 5, 1)), dt=0.1)
    np.testing.assert_allclose(recording.duration, 0.5)
    view.show(slider(), np.zeros(1), dt=0.1)
    assert recording.duration == 0


def test_an_error_names_the_argument_of_its_function(tmp_path):
    bad = np.zeros((2, 3))
    for name, act in {
        "q": lambda: view.show(slider(), bad),
        "q ": lambda: view.render(slider(), bad),
        "q  ": lambda: view.serve(slider(), bad, port=0),
        "trajectory": lambda: view.save_html(tmp_path / "a.html", slider(), bad),
    }.items():
        with pytest.raises(ArgumentError, match=rf"^{name.strip()} has shape"):
            act()
    check = inspect.unwrap(view.page.check_dt)  # without the types that the tests check
    with pytest.raises(ArgumentError, match=r"dt is '0\.1', expected a positive time in s"):
        check("0.1")
    found = check(np.float32(0.5))
    assert (found, type(found)) == (0.5, float)


def test_a_pose_that_does_not_change_is_not_sent_again(recording):
    """The link slides, so that its orientation stays; then it rests."""
    view.show(slider(), np.array([[0.1], [0.2], [0.2]]), dt=0.1)
    assert len(recording.about("SetPositionMessage", "/0 link")) == 2
    assert len(recording.about("SetPositionMessage", "/centre of mass")) == 2
    assert len(recording.about("SetOrientationMessage", "/0 link")) <= 1


def test_balls_and_axes_have_one_size_in_pages_and_pictures(recording):
    model = slider()
    view.show(model)
    ((_, ball),) = recording.about("IcosphereMessage")
    ((_, axes),) = recording.about("FrameMessage", "/frame")
    found = motion.motion(model, None)
    surface = picture._surface(view.drawing(model), found, ("com",), np.zeros((1, 3)), 0)
    radius = np.linalg.norm(surface.vertices, axis=1).max()
    np.testing.assert_allclose(ball["props"]["radius"], radius, rtol=1e-6)
    rgb = np.array(ball["props"]["color"]) / 255
    np.testing.assert_allclose(
        surface.colors[:, :3], np.tile(rgb, (len(surface.faces), 1)), atol=0.02
    )
    np.testing.assert_array_equal(surface.colors, [(0.9, 0.1, 0.6, 1.0)] * len(surface.faces))
    surface = picture._surface(view.drawing(model), found, ("frames",), np.zeros((1, 3)), 0)
    length = axes["props"]["axes_length"]
    np.testing.assert_allclose(surface.vertices.max(axis=0), length, rtol=1e-6)
    radius = axes["props"]["axes_radius"]
    np.testing.assert_allclose(surface.vertices.min(axis=0), -radius, rtol=1e-6)


@pytest.mark.parametrize("act", ["show", "save_html", "render", "serve"])
def test_meshes_are_found_in_the_given_folders(act, tmp_path):
    """A mesh that is not found is a warning, which is an error here."""
    pytest.importorskip("trimesh").creation.box().export(tmp_path / "a.stl")
    mesh = Geometry(MeshFile("package://parts/a.stl"))
    joint = JointSpec("slide", rbd.joints.Prismatic((1.0, 0.0, 0.0)), None, "link")
    model = rbd.build_model([Link("link", INERTIA, [mesh])], [joint])
    options = {"packages": {"parts": tmp_path}}
    if act == "save_html":
        view.save_html(tmp_path / "a.html", model, **options)
    elif act == "serve":
        view.serve(model, port=0, **options).stop()
    elif act == "show":
        view.show(model, **options)
    else:
        view.render(model, width=8, height=8, **options)


@pytest.mark.parametrize("side_by_side", [True, False])
def test_robots_of_a_page_are_side_by_side_or_in_one_place(side_by_side, recording, tmp_path):
    """The box is 0.3 m wide, so the robots are 0.375 m apart."""
    q = np.array([[[0.0]], [[0.5]]])
    apart = [-0.1875, 0.1875] if side_by_side else [0, 0]
    for act in (view.show, lambda *x, **y: view.save_html(tmp_path / "a.html", *x, **y)):
        act(slider(), q, side_by_side=side_by_side)
        found = {m["name"]: m["position"][1] for _, m in recording.about("SetPositionMessage")}
        roots = [found.get(f"/{robot} robot", 0.0) for robot in range(2)]
        np.testing.assert_allclose(roots, apart, atol=1e-9)
        ((_, camera),) = recording.about("SetCameraLookAtMessage")
        np.testing.assert_allclose(camera["look_at"], [0.25, 0, 0], atol=1e-9)  # the middle
    with view.serve(slider(), q, side_by_side=side_by_side, port=0) as viewer:
        np.testing.assert_allclose(viewer._stage.offsets[:, 1], apart, atol=1e-9)


def test_names_with_slashes_are_one_node(recording):
    """A slash in a name would make another level in the tree of the scene."""
    view.show(slider("arm/left/"))
    (mesh, *_) = [m["name"] for _, m in recording.about("MeshMessage")]
    assert mesh == "/robot/0 arm_left_/visuals/0 arm_left_"
    view.show(slider(" "))
    assert recording.about("MeshMessage")[0][1]["name"] == "/robot/0 _/visuals/0 _"


def ball_on_ground() -> tuple[rbd.Model, contact.Scene]:
    """A ball of 2 kg on sliders along x and z, and the ground z = 0.

    The ball is beside the origin of its link, and touches the cart.
    """
    links = [Link("cart"), Link("ball", INERTIA, [BALL])]
    joints = [
        JointSpec("x", rbd.joints.Prismatic((1.0, 0.0, 0.0)), None, "cart"),
        JointSpec("z", rbd.joints.Prismatic((0.0, 0.0, 1.0)), "cart", "ball"),
    ]
    model = rbd.build_model(links, joints)
    ball, bumper = (
        PlacedShape(Sphere(0.1), "ball", (0.05, 0.02, 0.0)),
        PlacedShape(Sphere(0.05), "cart", (0.0, 0.1, 0.1)),
    )
    return model, contact.Scene.from_shapes([ball], [(ball, bumper)], contact.Plane())


def test_contact_arrows_are_the_documented_forces():
    """Damping and friction, with velocities from the differences of two accelerated motions."""
    model, scene = ball_on_ground()
    k, c, slip = scene.material.stiffness, scene.material.dissipation, scene.material.slip_speed
    x, z = [0.0, 0.004, 0.002, 0.002, -0.01], [0.098, 0.097, 0.0965, 0.0975, 0.0972]
    q, dt = np.array([np.stack([x, z], 1), np.stack([z, z[::-1]], 1)]), 0.05
    found = contact_arrows.contact_arrows(model, scene, motion.motion(model, q), dt)
    v = np.diff(q, axis=1) / dt
    v = np.concatenate([v, v[:, -1:]], axis=1)
    damping = -c * v[..., 1]
    normal = k * (0.1 - q[..., 1]) ** 2 * (damping + np.sqrt(1 + damping**2))
    friction = -scene.friction[0] * normal * v[..., 0] / np.hypot(v[..., 0], slip)
    expected = np.stack([friction, 0 * friction, normal], axis=-1)
    np.testing.assert_allclose(found.forces[:, :, 0], expected, rtol=1e-6, atol=1e-9)
    assert np.all(np.abs(friction).max(axis=1) > 5)
    centers = np.stack([q[..., 0] + 0.05, 0 * q[..., 0] + 0.02, q[..., 1]], axis=-1)
    np.testing.assert_allclose(found.points[:, :, 0], centers, atol=1e-12)


def test_the_forces_of_a_page_change_with_time(recording, tmp_path):
    """At the depth of rest an arrow has the size of the robot, at twice the depth four times that.

    The robot rests, moves, rests, and leaves the ground. The second robot is above the ground.
    """
    model, scene = ball_on_ground()
    depth = np.sqrt(2.0 * 9.81 / scene.material.stiffness)
    z = 0.1 - depth * np.array([1, 1, 2, 2, -1])
    q = np.stack([np.stack([0 * z + 0.3, z], 1), np.stack([0 * z, 0 * z + 0.5], 1)])
    size = view.drawing(model).size(("visuals",))
    for act in (
        lambda: view.show(model, q, dt=0.1, contact=scene),
        lambda: view.save_html(tmp_path / "a.html", model, q, dt=0.1, contact=scene),
    ):
        recording.arrows.clear()
        act()
        assert {name for name, *_ in recording.arrows} == {"/0 robot/contact forces"}
        red, green, blue = recording.arrows[0][2]
        assert red > 3 * max(green, blue)
        times = [time for time, _ in recording.about("ArrowMessage")]
        np.testing.assert_allclose(times, [0, 0.1, 0.2, 0.3], atol=1e-9)
        damping = scene.material.dissipation * depth / 0.1
        moving = size * (damping + np.sqrt(1 + damping**2))
        for step, length in ((0, size), (1, moving), (2, 4 * size)):
            expected = [[[0.35, 0.02, z[step]], [0.35, 0.02, z[step] + length]]]
            np.testing.assert_allclose(recording.arrows[step][1], expected, rtol=1e-4, atol=1e-6)
        gone = [time for time, _ in recording.about("RemoveSceneNodeMessage", "forces")]
        np.testing.assert_allclose(gone, [0.1, 0.2, 0.3, 0.4], atol=1e-9)


class _Frame(html.parser.HTMLParser):
    """The attributes of the element of a text of HTML."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[dict] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append(dict(attrs) | {"": tag})


def test_a_notebook_displays_the_whole_page():
    """The page is the value of one attribute, also with quotes, brackets and references in it."""
    shown = view.show(slider(), height=321)
    (frame,) = _Frame(shown._repr_html_()).elements
    assert (frame[""], frame["height"], frame["srcdoc"] == shown.html) == ("iframe", "321", True)
    for quote in "\"'<&":
        assert quote in shown.html
    assert repr(view.Page(1_540_000 * ".")) == "Page(1.5 MB of HTML)"


def test_a_page_that_cannot_be_written_leaves_the_file(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("before")
    with full_disk(), pytest.raises(OSError, match=r"page\.html"):
        view.save_html(path, slider())
    assert path.read_text() == "before"
    assert [*tmp_path.iterdir()] == [path]


# ------------------------------------------------------------------------------------ live viewer


@pytest.fixture
def without_player(monkeypatch):
    """Viewers do not play: the function of their thread, which then ends at once."""
    play = live.Viewer._play
    monkeypatch.setattr(live.Viewer, "_play", lambda self: None)
    return play


def use(viewer, label, value):
    """Set a control of the live page, as a user in a browser does."""
    inputs = viewer._server.gui._gui_input_handle_from_uuid.values()
    (control,) = (control for control in inputs if control.label == label)
    control.value = value
    for function in control._impl.update_cb:
        function(types.SimpleNamespace(client="a browser", target=control))


def test_boxes_of_a_live_page_show_and_hide_layers():
    options = {"layers": ("visuals", "com"), "markers": [view.Points(np.zeros(3))]}
    with view.serve(slider(), np.zeros((2, 1, 1)), port=0, **options) as viewer:
        layers = viewer._stage._layers

        def visible():
            """The layers that both robots show."""
            found = {layer: {node.visible for node in layers[layer]} for layer in layers}
            assert all(len(seen) == 1 for seen in found.values())
            return {layer for layer, seen in found.items() if True in seen}

        assert visible() == {"visuals", "com", "markers"}
        use(viewer, "markers", False)
        assert visible() == {"visuals", "com"}
        use(viewer, "markers", True)
        inputs = viewer._server.gui._gui_input_handle_from_uuid.values()
        checked = {x.label for x in inputs if x.value is True}
        assert checked == {"visuals", "centre of mass", "markers"}
        use(viewer, "markers", False)
        use(viewer, "visuals", False)
        use(viewer, "inertia ellipsoids", True)
        assert visible() == {"inertias", "com"}
        use(viewer, "visuals", True)
        use(viewer, "centre of mass", False)
        assert visible() == {"inertias", "visuals"}
        use(viewer, "collisions", True)
        use(viewer, "visuals", False)
        assert visible() == {"inertias", "collisions"}
        use(viewer, "frames", True)
        assert visible() == {"inertias", "collisions", "frames"}


def controls(viewer):
    """The controls of a live page: folder, kind, label, value, and range and step of a slider."""
    gui = viewer._server.gui
    folders = {key: x.label for key, x in gui._container_handle_from_uuid.items() if key != "root"}
    found = []
    for control in gui._gui_input_handle_from_uuid.values():
        props, folder = control._impl.props, folders.get(control._impl.parent_container_id, "")
        kind = type(control).__name__.removeprefix("Gui").removesuffix("Handle")
        numbers = [props.min, props.max, props.step] if kind == "Slider" else []
        options = [props.options] if kind == "Dropdown" else []
        found.append((folder, kind, props.label, control.value, *numbers, *options))
    return found


def test_the_controls_of_a_live_page(without_player):
    """A robot with a hinge on a free-flyer, and joints in another order than their kinds."""
    place = placement_matrix((0.0, 0.0, 3.0), (0.0, 0.0, 0.0))
    links = [Link(name, INERTIA) for name in ("base", "arm", "tool", "tip")]
    slide, turn = rbd.joints.Prismatic((1.0, 0.0, 0.0)), rbd.joints.Revolute((1.0, 0.0, 0.0))
    joints = [
        JointSpec("hinge", turn, None, "base", lower=0.5, upper=1.5),
        JointSpec("slide", slide, "base", "arm", place),
        JointSpec("root", rbd.joints.FreeFlyer(), None, "tool"),
        JointSpec("still", turn, "tool", "tip", lower=-0.25, upper=-0.25),
    ]
    model = rbd.build_model(links, joints)
    with view.serve(model, port=0, layers=("com",)) as viewer:
        np.testing.assert_array_equal(viewer.q, [0.5, *np.zeros(7), 1, -0.25][:10])
        found = controls(viewer)
        size = viewer._stage.size
        assert size == 3
        boxes = [("visuals", False), ("collisions", False), ("frames", False)]
        boxes += [("inertia ellipsoids", False), ("centre of mass", True)]
        frames = ("none", "base", "arm", "tool", "tip")
        expected = [
            *(("Show", "Checkbox", *box) for box in boxes),
            ("Inverse kinematics", "Dropdown", "drag", "none", frames),
            ("Inverse kinematics", "Checkbox", "keep the root", True),
            ("Joints", "Slider", "hinge", 0.5, 0.5, 1.5, 0.001),
            ("Joints", "Slider", "slide", 0.0, -6.0, 6.0, 0.012),
            *(("Joints", "Slider", f"root {k}", 0.0, -6.0, 6.0, 0.012) for k in (1, 2, 3)),
            *(
                ("Joints", "Slider", f"root {k}", 0.0, -np.pi, np.pi, np.pi / 500)
                for k in (4, 5, 6)
            ),
            ("Joints", "Slider", "still", -0.25, -0.25, -0.249, 1e-3),
        ]
        assert [x[:4] for x in found] == [x[:4] for x in expected]
        for one, two in zip(found, expected):
            if one[1] == "Slider":
                np.testing.assert_allclose(one[4:], two[4:])
            else:
                assert one[4:] == two[4:]
        # The sliders of the free-flyer are coordinates of `integrate`.
        neutral = rbd.neutral(model)
        np.testing.assert_array_equal(motion.motion(model, None).q, [[neutral]])
        x = np.array([0.5, 0.0, 0.1, 0.0, 0.0, 0.0, 0.6, 0.0, -0.25])
        use(viewer, "root 1", 0.1)
        use(viewer, "root 5", 0.6)
        np.testing.assert_allclose(viewer.q, rbd.integrate(model, neutral, jnp.array(x)))
        x[5:8] = 0.3, -0.2, 0.4
        viewer.set_configuration(rbd.integrate(model, neutral, jnp.array(x)))
        np.testing.assert_allclose([slider.value for slider in viewer._sliders], x, atol=1e-12)
        # A value beyond a slider is shown at its end.
        q = viewer.q
        q[0] = 9.0
        viewer.set_configuration(q)
        assert (viewer._sliders[0].value, viewer.q[0]) == (1.5, 9.0)
        use(viewer, "drag", "arm")
        assert viewer._handle.scale == pytest.approx(0.4 * 3)
        assert viewer._handle.depth_test is False
        removed = []
        viewer._handle.remove = lambda: removed.append(1)
        use(viewer, "drag", "tip")
        assert removed == [1]


def test_a_trajectory_of_one_configuration_and_default_times(without_player):
    with view.serve(slider(), np.array([[0.1], [0.2], [0.3]]), port=0) as viewer:
        assert controls(viewer)[5:7] == [
            ("", "Checkbox", "play", True),
            ("", "Slider", "time in s", 0.0, 0.0, 0.04, 0.02),
        ]
        viewer.play(np.array([[0.4]]), dt=0.25)
        playback = [x for x in controls(viewer) if x[0] == ""]  # without those of the first
        assert playback == [
            ("", "Checkbox", "play", True),
            ("", "Slider", "time in s", 0.0, 0.0, 0.25, 0.25),
        ]
        use(viewer, "time in s", 0.25)
        np.testing.assert_array_equal(viewer.q, [0.4])
        viewer.play(np.array([[0.4], [0.5]]))
        assert viewer._time_slider.max == 0.02
        with pytest.raises(ArgumentError, match=r"dt is 0\.0, expected a positive time"):
            viewer.play(np.array([[0.4], [0.5]]), dt=0.0)
        with pytest.raises(ArgumentError, match=r"^q has shape"):
            viewer.set_configuration(np.zeros(2))
        with pytest.raises(ArgumentError, match=r"^trajectory has shape"):
            viewer.play(np.zeros((2, 2)))
        assert repr(viewer) == f"Viewer('robot', http://localhost:{viewer._server.get_port()})"
        assert viewer._player.daemon  # it does not keep Python running
        # Thirty configurations per second.
        asked = []
        viewer._stopped.wait = lambda seconds: asked.append(seconds) or True
        without_player(viewer)
        assert asked == [1 / 30]
        del viewer._stopped.wait
        named = types.SimpleNamespace(get_host=lambda: "10.0.0.5", get_port=lambda: 81)
        assert live.Viewer.url.fget(types.SimpleNamespace(_server=named)) == "http://10.0.0.5:81"
    viewer.wait()  # it is stopped, so this ends


def test_a_time_slider_has_the_time_of_the_trajectory(without_player):
    """Of the first trajectory, and of one with another time step that is played later."""
    first, second = np.linspace(0, 0.4, 5)[:, None], np.linspace(0.5, 0.8, 4)[:, None]
    with view.serve(slider(), first, dt=0.25, port=0) as viewer:
        for q, dt in ((first, 0.25), (second, 2.0)):
            if q is second:
                viewer.play(q, dt=dt)
            assert viewer._time_slider.max == (len(q) - 1) * dt
            for step in (2, 0, 1.6, len(q) - 1):
                use(viewer, "time in s", step * dt)
                np.testing.assert_array_equal(viewer.q, q[round(step)])  # the nearest
                assert not viewer._play_box.value  # it stays where the user has put it
                use(viewer, "play", True)
            use(viewer, "slide", 0.3)
            np.testing.assert_allclose(viewer.q, [0.3])
            assert not viewer._play_box.value
            use(viewer, "play", True)
            viewer.set_configuration(np.array([1.5]))
            assert not viewer._play_box.value
            viewer.q[:] = 7  # a copy
            np.testing.assert_array_equal(viewer.q, [1.5])


def test_a_trajectory_is_played_in_real_time_again_and_again(without_player, monkeypatch):
    """By a clock that goes forward by 0.25 s each time."""
    q = np.linspace(0, 0.4, 5)[:, None]
    with view.serve(slider(), q, dt=0.5, port=0) as viewer:
        clock, seen = itertools.count(0, 0.25), []
        monkeypatch.setattr(live, "time", types.SimpleNamespace(monotonic=lambda: next(clock)))

        def wait(_):
            seen.append(viewer._time_slider.value)
            np.testing.assert_array_equal(viewer.q, q[round(seen[-1] / 0.5)])
            return len(seen) > 12

        with monkeypatch.context() as patch:
            patch.setattr(viewer._stopped, "wait", wait)
            without_player(viewer)
        assert seen == [*np.arange(0, 2.1, 0.25), 0, 0.25, 0.5, 0.75]
        viewer._pause()
        seen.clear()
        with monkeypatch.context() as patch:
            patch.setattr(viewer._stopped, "wait", wait)
            without_player(viewer)
        assert set(seen) == {0.75}


def test_sliders_move_the_robot_and_follow_it():
    model = rbd.load_robot("double_pendulum")
    with view.serve(model, np.array([0.3, -0.4]), port=0) as viewer:
        np.testing.assert_allclose([x.value for x in viewer._sliders], [0.3, -0.4])
        inputs = {x.label: x for x in viewer._server.gui._gui_input_handle_from_uuid.values()}
        assert "keep the root" not in inputs  # no free-flyer
        assert inputs["drag"].options == ("none", "upper_rod", "lower_rod")  # without the base
        use(viewer, model.joint_names[1], 0.7)
        np.testing.assert_allclose(viewer.q, [0.3, 0.7], atol=1e-12)
        viewer.set_configuration(np.array([-0.2, 0.1]))
        np.testing.assert_allclose([x.value for x in viewer._sliders], [-0.2, 0.1])


def test_a_live_page_draws_the_forces_of_rest():
    """They follow the robot, and their box hides them."""
    model, scene = ball_on_ground()
    depth = np.sqrt(2.0 * 9.81 / scene.material.stiffness)

    def arrows(viewer):
        """The lengths of the visible arrows, per size of the robot."""
        handles = [x for x in viewer._stage._forces.values() if x.visible]
        return [np.ptp(np.asarray(x.points)[0, :, 2]) / viewer._stage.size for x in handles]

    with view.serve(model, np.array([0.3, 0.1 - depth]), port=0, contact=scene) as viewer:
        np.testing.assert_allclose(arrows(viewer), [1], rtol=1e-4)
        assert ("Show", "Checkbox", "contact forces", True) in controls(viewer)
        viewer.set_configuration(np.array([0.3, 0.1 - 2 * depth]))
        np.testing.assert_allclose(arrows(viewer), [4], rtol=1e-4)
        use(viewer, "contact forces", False)
        assert arrows(viewer) == []
        use(viewer, "contact forces", True)
        np.testing.assert_allclose(arrows(viewer), [4], rtol=1e-4)
        viewer.set_configuration(np.array([0.3, 0.1 + depth]))
        assert arrows(viewer) == []
    # The second robot is above the ground.
    q = np.array([[[0.3, 0.1 - depth]], [[0.3, 0.5]]])
    with view.serve(model, q, port=0, contact=scene) as viewer:
        np.testing.assert_allclose(arrows(viewer), [1], rtol=1e-4)


def test_a_server_listens_where_it_is_told(monkeypatch):
    for options, host in (({}, "127.0.0.1"), ({"host": "0.0.0.0"}, "0.0.0.0")):
        with view.serve(slider(), port=0, **options) as viewer:
            assert viewer._server.get_host() == host
            assert viewer.url == f"http://localhost:{viewer._server.get_port()}"
    # Without a port it is 8080, which may be in use here.
    asked = {}
    module = types.SimpleNamespace(
        ViserServer=lambda **x: asked.update(x) or viser.ViserServer(**{**x, "port": 0})
    )
    monkeypatch.setattr(live, "viser_module", lambda: module)
    view.serve(slider()).stop()
    assert (asked["host"], asked["port"]) == ("127.0.0.1", 8080)
    view.serve(slider(), port=8123).stop()
    assert asked["port"] == 8123
    # A page needs no server, and the one that writes it is seen by this machine alone.
    monkeypatch.setattr(view.page, "viser_module", lambda: module)
    view.show(slider())
    assert (asked["host"], asked["port"]) == ("127.0.0.1", 0)


def test_an_interrupt_from_the_keyboard_stops_a_viewer(without_player, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    with view.serve(slider(), port=0) as viewer:
        monkeypatch.setattr(viewer._stopped, "wait", interrupt)
        try:
            viewer.wait()
        except KeyboardInterrupt:
            pytest.fail("the interrupt is not handled")
        assert viewer._stopped.is_set()


def test_one_thread_at_a_time_moves_the_robot(without_player, monkeypatch):
    """While a method or a control moves the robot, another thread waits for the lock."""
    q = np.array([[0.1], [0.2]])
    solution = types.SimpleNamespace(q=q[0])
    monkeypatch.setattr(live, "inverse_kinematics", lambda *_, **__: solution)
    with view.serve(slider(), q, dt=0.1, port=0) as viewer:
        free, place, lock = [], viewer._stage.place, viewer._lock

        def take():
            free.append(lock.acquire(blocking=False))
            if free[-1]:
                lock.release()

        def watched(*arguments):
            thread = threading.Thread(target=take)
            thread.start()
            thread.join()
            place(*arguments)

        monkeypatch.setattr(viewer._stage, "place", watched)
        use(viewer, "time in s", 0.1)
        use(viewer, "slide", 0.3)
        viewer.set_configuration(q[0])
        viewer.reach("link", np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0]))
        use(viewer, "play", True)
        monkeypatch.setattr(viewer._stopped, "wait", lambda _: len(free) > 4)
        without_player(viewer)
    assert free == [False] * 5


def test_a_live_page_starts_within_the_limits():
    model = rbd.build_model(
        [Link("link", INERTIA)],
        [JointSpec("j", rbd.joints.Prismatic((1.0, 0.0, 0.0)), None, "link", lower=0.2, upper=0.9)],
    )
    with view.serve(model, port=0) as viewer:
        np.testing.assert_allclose(viewer.q, [0.2])


def test_a_drag_asks_for_the_pose_of_the_handle(monkeypatch):
    """A base on a free-flyer with a hinge. The handle is turned by 90 degrees about x, then z."""
    links = [Link("base", INERTIA), Link("arm", INERTIA)]
    joints = [
        JointSpec("root", rbd.joints.FreeFlyer(), None, "base"),
        JointSpec("hinge", rbd.joints.Revolute((1.0, 0.0, 0.0)), "base", "arm", upper=0.3),
    ]
    model, asked = rbd.build_model(links, joints), []
    q = jnp.array([0.1, 0.2, 0.3, 0.0, 0.0, HALF, HALF, 0.5])

    def solve(model, tasks, start, **options):
        assert options["max_iterations"] == 30
        np.testing.assert_array_equal(tasks[0].weights, [1, 1, 1, 0.1, 0.1, 0.1])
        asked.append((*tasks, options["locked"], start))
        return types.SimpleNamespace(q=q)

    def drag(handle, wxyz, position):
        handle.wxyz, handle.position = wxyz, position
        for function in handle._impl_aux.update_cb:
            function(types.SimpleNamespace(target=handle))
        task, locked, _ = asked[-1]
        return task.frame, np.asarray(task.target.R), np.asarray(task.target.p), locked

    monkeypatch.setattr(live, "inverse_kinematics", solve)
    with view.serve(model, port=0) as viewer:
        inputs = viewer._server.gui._gui_input_handle_from_uuid.values()
        (choice,) = (control for control in inputs if control.label == "drag")
        assert (choice.value, choice.options) == ("none", ("none", "base", "arm"))
        use(viewer, "drag", "arm")
        np.testing.assert_allclose(viewer._handle.wxyz, [1, 0, 0, 0], atol=1e-12)
        found = drag(viewer._handle, (HALF, HALF, 0.0, 0.0), (0.3, 0.0, 0.0))
        assert (found[0], found[3]) == ("arm", ("root",))
        np.testing.assert_allclose(found[1], [[1, 0, 0], [0, 0, -1], [0, 1, 0]], atol=1e-12)
        np.testing.assert_array_equal(found[2], [0.3, 0, 0])
        np.testing.assert_array_equal(viewer.q, q)
        count = len(asked)
        drag(viewer._handle, (HALF, HALF, 0.0, 0.0), (0.3, 0.0, 0.0))
        assert len(asked) == count  # the same pose again
        use(viewer, "keep the root", False)
        found = drag(viewer._handle, (HALF, 0.0, 0.0, HALF), (0.1, 0.2, 0.3))
        assert found[3] == ()
        np.testing.assert_allclose(asked[-1][2], [*q[:7], 0.3])  # moved into the limits
        np.testing.assert_allclose(found[1], [[0, -1, 0], [1, 0, 0], [0, 0, 1]], atol=1e-12)
        before, count = viewer._handle, len(asked)
        before.position = (9.0, 9.0, 9.0)
        use(viewer, "drag", "base")  # a new handle, at the base
        for function in before._impl_aux.update_cb:  # a late event of the one before
            function(types.SimpleNamespace(target=before))
        assert len(asked) == count
        np.testing.assert_allclose(viewer._handle.wxyz, [HALF, 0, 0, HALF], atol=1e-12)
        np.testing.assert_allclose(viewer._handle.position, q[:3], atol=1e-12)
        use(viewer, "drag", "none")
        assert viewer._handle is None


def test_reaching_starts_within_the_limits_and_stops_playback(without_player, monkeypatch):
    starts = []

    def solve(model, tasks, start, **_):
        starts.append(np.asarray(start))
        return types.SimpleNamespace(q=start)

    monkeypatch.setattr(live, "inverse_kinematics", solve)
    with view.serve(slider(), np.array([[-0.9], [0.2]]), port=0) as viewer:
        assert viewer._play_box.value
        viewer.reach("link", np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0]))
        assert not viewer._play_box.value
        np.testing.assert_array_equal(starts, [[-0.5]])


def test_only_free_flyers_of_root_bodies_are_kept():
    links = [Link("hand", INERTIA), Link("base", INERTIA), Link("ball", INERTIA)]
    joints = [
        JointSpec("slide", rbd.joints.Prismatic((1.0, 0.0, 0.0)), None, "hand"),
        JointSpec("thrown", rbd.joints.FreeFlyer(), "hand", "ball"),
        JointSpec("root", rbd.joints.FreeFlyer(), None, "base"),
    ]
    viewer = types.SimpleNamespace(_model=rbd.build_model(links, joints))
    assert live.Viewer._roots.fget(viewer) == ("root",)


def test_a_frame_is_not_dragged_to_a_zero_quaternion():
    with view.serve(slider(), port=0) as viewer:
        with pytest.raises(ArgumentError, match=r"quaternion is .*, expected finite and not zero"):
            viewer.reach("link", np.zeros(3), np.zeros(4))
        with pytest.raises(ArgumentError, match=r"position is .*, expected finite"):
            viewer.reach("link", np.full(3, np.nan), np.ones(4))


def test_several_robots_are_not_dragged():
    with view.serve(slider(), np.zeros((2, 1, 1)), port=0) as viewer:
        assert viewer.q.shape == (2, 1)
        with pytest.raises(ArgumentError, match="the viewer shows 2 robots, expected one"):
            viewer.reach("link", np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0]))
        with pytest.raises(ArgumentError, match="1 robots, expected 2"):
            viewer.play(np.zeros((3, 1)))
        viewer.set_configuration(np.array([[0.1], [0.2]]))
        np.testing.assert_array_equal(viewer.q, [[0.1], [0.2]])
        viewer.play(np.ones((2, 3, 1)))
        viewer.q[:] = 7  # a copy
        assert np.all(viewer.q != 7)


def test_a_slider_of_a_joint_with_one_position():
    joint = JointSpec("j", rbd.joints.Prismatic((1.0, 0.0, 0.0)), None, "link", lower=2, upper=2)
    with view.serve(rbd.build_model([Link("link", INERTIA)], [joint]), port=0) as viewer:
        assert (viewer._sliders[0].value, viewer._sliders[0].min) == (2.0, 2.0)
        assert viewer._sliders[0].max > 2


def test_a_viewer_that_is_stopped_or_fails_stops_its_server(monkeypatch):
    stopped = []
    stop = viser.ViserServer.stop
    monkeypatch.setattr(
        viser.ViserServer, "stop", lambda x: stopped.append(x.get_port()) or stop(x)
    )
    with view.serve(slider(), port=0) as viewer:
        port = viewer._server.get_port()
        socket.create_connection(("127.0.0.1", port), timeout=10).close()
    viewer.stop()  # again
    assert stopped == [port]
    for show in (viewer.set_configuration, viewer.play):
        with pytest.raises(rbd.errors.JaxRBDError, match="is stopped: `serve` starts a new viewer"):
            show(np.zeros((1, 1)))
    with pytest.raises(rbd.errors.JaxRBDError, match="is stopped"):
        viewer.reach("link", np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0]))
    assert not viewer._player.is_alive()
    _, scene = ball_on_ground()
    with pytest.raises(ArgumentError, match="ball"):
        view.serve(slider(), port=0, contact=scene)
    assert len(stopped) == 2
