"""Mesh files of the collision geometry, and the hulls of real meshes."""

import dataclasses
import importlib.util

import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import io
from jaxrbd.collision import PlacedShape, Sphere, pairs_of, robot_distances
from jaxrbd.model.geometry import Mesh, MeshFile
from jaxrbd.spatial import Pose
from support import real_robots

if importlib.util.find_spec("trimesh") is None:
    pytest.skip("trimesh is not installed", allow_module_level=True)

LINK = """<link name="{0}"><inertial><mass value="1"/>
    <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>{1}</link>"""
MESH = """<collision><origin xyz="0 0 0.5"/><geometry><mesh filename="{}" scale="{}"/></geometry>
    </collision>"""


def robot(folder, meshes):
    """A model with one moving link "arm" and collision meshes: pairs (file name, scale)."""
    shapes = "".join(MESH.format(*mesh) for mesh in meshes)
    visual = f'<visual><geometry><mesh filename="{meshes[0][0]}"/></geometry></visual>'
    file = folder / "robot.urdf"
    file.write_text(
        f"""<robot name="r">{LINK.format("base", "")}{LINK.format("arm", visual + shapes)}
        <joint name="turn" type="continuous"><parent link="base"/><child link="arm"/>
        <axis xyz="0 0 1"/></joint></robot>"""
    )
    return rbd.load_urdf(file)


def write_boxes(folder):
    """`box.stl`: 1 m x 2 m x 3 m about the origin; `two.glb`: with another box at x = 5 m."""
    import trimesh

    box, other = trimesh.creation.box((1.0, 2.0, 3.0)), trimesh.creation.box((1.0, 1.0, 1.0))
    other.apply_translation((5.0, 0, 0))
    box.export(folder / "box.stl")
    trimesh.Scene([box, other]).export(folder / "two.glb")


def test_mesh_files_become_meshes(tmp_path):
    """All parts of a file, scaled, in the frame of the file; visual files stay files."""
    write_boxes(tmp_path)
    files = robot(
        tmp_path, [("box.stl", "0.1 0.1 0.2"), ("two.glb", "1 1 1"), ("box.stl", "1 1 1")]
    )
    assert len(pairs_of(files).left_out) == 3
    model = io.read_meshes(files)
    small, two, large = (geometry.shape for geometry in model.geometry.collisions["arm"])
    assert isinstance(small, Mesh)
    np.testing.assert_allclose(np.max(small.vertices, axis=0), [0.05, 0.1, 0.3], atol=1e-7)
    np.testing.assert_allclose(np.max(large.vertices, axis=0), [0.5, 1, 1.5], atol=1e-7)
    np.testing.assert_allclose(np.min(two.vertices, axis=0), [-0.5, -1, -1.5], atol=1e-7)
    np.testing.assert_allclose(np.max(two.vertices, axis=0), [5.5, 1, 1.5], atol=1e-7)
    corners = two.vertices[two.faces]
    volume = np.sum(np.linalg.det(corners)) / 6
    np.testing.assert_allclose(volume, 1 * 2 * 3 + 1, rtol=1e-6)
    (visual,) = model.geometry.visuals["arm"]
    assert isinstance(visual.shape, MeshFile)
    assert pairs_of(model).left_out == ()
    for before, after in zip(files.geometry.collisions["arm"], model.geometry.collisions["arm"]):
        np.testing.assert_array_equal(before.placement, after.placement)


@pytest.mark.slow
def test_the_distance_of_a_mesh_of_a_robot(tmp_path):
    """The box of the link has its corner (0.5, 1, 2) in the frame of the link."""
    write_boxes(tmp_path)
    model = io.read_meshes(robot(tmp_path, [("box.stl", "1 1 1")]))
    ball = PlacedShape(Sphere(0.5), X_FS=Pose(np.eye(3), np.array([3.5, 1.0, 2.0])), name="ball")
    pairs = pairs_of(model, [ball])
    assert pairs.names == (("arm", "ball"),)
    np.testing.assert_allclose(robot_distances(model, jnp.zeros(1), pairs), [2.5], atol=1e-12)


def test_files_in_packages_and_files_that_cannot_be_read(tmp_path):
    (tmp_path / "files" / "meshes").mkdir(parents=True)
    write_boxes(tmp_path / "files" / "meshes")
    uri = "package://shapes/meshes/box.stl"
    model = io.read_meshes(robot(tmp_path, [(uri, "1 1 1")]), {"shapes": str(tmp_path / "files")})
    assert isinstance(model.geometry.collisions["arm"][0].shape, Mesh)
    with pytest.raises(rbd.ArgumentError, match=r"link 'arm': .*shapes"):
        io.read_meshes(robot(tmp_path, [(uri, "1 1 1")]))
    (tmp_path / "broken.stl").write_bytes(b"solid but not finished")
    with pytest.raises(rbd.ArgumentError, match=r"link 'arm': mesh .*broken\.stl' cannot be read"):
        io.read_meshes(robot(tmp_path, [("broken.stl", "1 1 1")]))
    (tmp_path / "flat.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nv 1 1 0\nf 1 2 3\nf 2 4 3\n")
    with pytest.raises(
        rbd.ArgumentError, match=r"link 'arm': mesh .*flat\.obj' has only points in"
    ):
        io.read_meshes(robot(tmp_path, [("flat.obj", "1 1 1")]))


def test_a_model_without_mesh_files_does_not_change():
    model = rbd.load_robot("arm7")
    found = io.read_meshes(model)
    assert found.geometry.collisions == model.geometry.collisions
    assert dataclasses.replace(found, geometry=model.geometry) == model


@pytest.mark.slow
@pytest.mark.skipif(real_robots.ROOT is None, reason="example-robot-data is not installed")
def test_the_meshes_of_a_panda():
    """Its hulls are simplified to 64 vertices within 3 mm; none has more than 256."""
    path = real_robots.path_of("panda_description/urdf/panda.urdf")
    packages = {"example-robot-data": str(real_robots.ROOT.parent)}
    model = io.read_meshes(rbd.load_urdf(path), packages)
    pairs = pairs_of(model)
    assert pairs.left_out == ()
    assert len(pairs.simplified) == 9
    assert all(float(text.split()[-2]) < 3e-3 for text in pairs.simplified)
    assert pairs_of(model, most_vertices=256).simplified == ()
