"""Mesh files from untrusted sources: limits, and files of each type within the limits."""

import base64
import importlib.util
import io
import itertools
import json
import pathlib
import struct
import sys
import zlib

import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import view
from jaxrbd.collision import Box, Capsule, Sphere
from jaxrbd.errors import GeometryWarning
from jaxrbd.io import mesh_limits
from jaxrbd.io.mesh_limits import UnreadableMesh
from jaxrbd.model import (
    Geometry,
    JointSpec,
    Link,
    MeshFile,
    link_inertia,
    placement_matrix,
)
from jaxrbd.view.triangles import shape_triangles

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("trimesh") is None, reason="trimesh is not installed"
)
CORNERS = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0]], "<f4")
EMBEDDED = "data:application/octet-stream;base64,"


def draw(path):
    return shape_triangles(MeshFile(str(path)))


def refused(path, data, message):
    """Write a file, and check that its error names the file and has the message."""
    (path.write_text if isinstance(data, str) else path.write_bytes)(data)
    with pytest.raises(UnreadableMesh, match=message) as caught:
        draw(path)
    assert path.name in str(caught.value)


def picture(width, height):
    """A PNG file. Its pixels are red."""
    image = pytest.importorskip("PIL.Image")
    stream = io.BytesIO()
    image.new("RGB", (width, height), (255, 0, 0)).save(stream, "PNG")
    return stream.getvalue()


def collada(
    nodes='<node id="n0"><instance_geometry url="#g"/></node>', last="n0", unit="1", **text
):
    """A file whose scene has one instance of the node `last`; `nodes` are in its library."""
    corners = " ".join(str(x) for x in CORNERS.ravel())
    shape = text.get("shape", '<triangles><input semantic="VERTEX" source="#v" offset="0"/>')
    shape = f"{shape}<p>0 1 2</p></{shape[1:].partition('>')[0]}>"
    names = "".join(f'<param name="{axis}" type="float"/>' for axis in "XYZ")
    return f"""<?xml version="1.0"?>{text.get("prolog", "")}
<COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema" version="1.4.1">
<asset><unit name="x" meter="{unit}"/></asset>
<library_geometries><geometry id="g"><mesh><source id="s"><float_array id="f" count="9">{corners}
</float_array><technique_common><accessor source="#f" count="3" stride="3">{names}</accessor>
</technique_common></source><vertices id="v"><input semantic="POSITION" source="#s"/></vertices>
{shape}</mesh></geometry></library_geometries>
<library_nodes>{nodes}</library_nodes>
<library_visual_scenes><visual_scene id="w"><node id="top"><instance_node url="#{last}"/></node>
</visual_scene></library_visual_scenes><scene><instance_visual_scene url="#w"/></scene></COLLADA>"""


def copies(levels, width):
    """Nodes in levels: each node has `width` instances of the node of the level below."""
    nodes = ['<node id="n0"><instance_geometry url="#g"/></node>']
    nodes += [
        f'<node id="n{k + 1}">' + f'<instance_node url="#n{k}"/>' * width + "</node>"
        for k in range(levels)
    ]
    return "".join(nodes), f"n{levels}"


def gltf(nodes=({"mesh": 0},), *, count=3, primitive=None, data=b"", **entries):
    """A file with one triangle per mesh; `data` follows the triangle in its buffer."""
    data = CORNERS.tobytes() + data
    tree = {
        "asset": {"version": "2.0"},
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": list(nodes),
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}, **(primitive or {})}]}],
        "accessors": [{"bufferView": 0, "componentType": 5126, "count": count, "type": "VEC3"}],
        "bufferViews": [{"buffer": 0, "byteLength": 36}],
        "buffers": [{"byteLength": len(data), "uri": EMBEDDED + base64.b64encode(data).decode()}],
    }
    return json.dumps({**tree, **entries})


def glb(text, binary=b""):
    text = text.encode() + b" " * (-len(text) % 4)
    chunk = struct.pack("<I4s", len(binary), b"BIN\0") + binary if binary else b""
    size = 20 + len(text) + len(chunk)
    return struct.pack("<4sIII4s", b"glTF", 2, size, len(text), b"JSON") + text + chunk


def stl(count, *, stated=None):
    facet = np.zeros(3, "<f4").tobytes() + CORNERS.tobytes() + b"\0\0"
    return bytes(80) + struct.pack("<I", count if stated is None else stated) + facet * count


def ply(length=3, kind="uchar", faces=1):
    header = f"""ply
format binary_little_endian 1.0
element vertex 3
property float x
property float y
property float z
element face {faces}
property list {kind} int vertex_indices
end_header
"""
    code = {"uchar": "<B3i", "uint": "<I3i"}[kind]
    return header.encode() + CORNERS.tobytes() + struct.pack(code, length, 0, 1, 2)


OBJ = "v 0 0 0\nv 1 0 0\nv 0 1 0\n"


def test_the_guide_states_the_limits():
    guide = pathlib.Path(__file__).parents[1] / "docs" / "viewing.md"
    rows = guide.read_text().partition("| limit | value |\n|---|---|\n")[2].split("\n\n")[0]
    stated = [row.split("|")[2].strip().replace(",", "") for row in rows.splitlines()]
    names = "BYTES BYTES TRIANGLES ROBOT_TRIANGLES NODES DEPTH MATERIALS PIXELS".split()
    limits = [getattr(mesh_limits, f"MAX_{name}") for name in names]
    assert stated == [f"{limits[0] / 2**20:.0f} MiB"] * 2 + [str(x) for x in limits[2:]]


def test_copies_of_nodes_are_counted_before_they_are_made(tmp_path, monkeypatch):
    import trimesh

    refused(tmp_path / "a.dae", collada(*copies(7, 10)), r"21,111,113 nodes, with copies, .*10,000")
    chain = [{"children": [k + 1]} for k in range(99)] + [{"mesh": 0}]
    refused(tmp_path / "b.gltf", gltf(chain), "65 levels of nodes, expected at most 64")
    star = [{"children": list(range(1, 10_001))}, *({"mesh": 0} for _ in range(10_000))]
    refused(tmp_path / "c.gltf", gltf(star), "10,001 nodes, expected at most 10,000")
    refused(tmp_path / "d.dae", collada(*copies(70, 1)), "65 levels of nodes")
    # Just within the limits, and just beyond.
    (tmp_path / "e.dae").write_text(collada(*copies(2, 3)))
    (tmp_path / "e.gltf").write_text(gltf([{"children": [1, 2]}, {"mesh": 0}, {"mesh": 0}]))
    monkeypatch.setattr(mesh_limits, "MAX_TRIANGLES", 9)
    assert len(draw(tmp_path / "e.dae")) == 9
    monkeypatch.setattr(mesh_limits, "MAX_TRIANGLES", 2)
    assert len(draw(tmp_path / "e.gltf")) == 2
    part = {"attributes": {"POSITION": 0}}
    twice = gltf(
        [{"children": [1, 2]}, {"mesh": 0}, {"mesh": 0}], meshes=[{"primitives": [part, part]}]
    )
    (tmp_path / "f.gltf").write_text(twice)
    with monkeypatch.context() as patch:
        patch.setattr(mesh_limits, "MAX_TRIANGLES", 4)
        patch.setattr(mesh_limits, "MAX_NODES", 4)
        assert len(draw(tmp_path / "f.gltf")) == 4
    monkeypatch.setattr(trimesh, "load_scene", None)  # the files below are not read
    with monkeypatch.context() as patch:
        patch.setattr(mesh_limits, "MAX_TRIANGLES", 4)
        patch.setattr(mesh_limits, "MAX_NODES", 3)
        refused(tmp_path / "f.gltf", twice, "4 parts, with copies")
    uses = '<instance_material symbol="m" target="#m"/>' * 9997  # with three nodes and a shape
    uses = f"<bind_material><technique_common>{uses}</technique_common></bind_material>"
    node = f'<node id="n0"><instance_geometry url="#g">{uses}</instance_geometry></node>'
    refused(tmp_path / "f.dae", collada(node), "10,001 nodes, with copies")
    monkeypatch.setattr(mesh_limits, "MAX_TRIANGLES", 8)
    refused(tmp_path / "e.dae", collada(*copies(2, 3)), "9 triangles, with copies")
    monkeypatch.setattr(mesh_limits, "MAX_TRIANGLES", 1)
    refused(tmp_path / "e.gltf", (tmp_path / "e.gltf").read_text(), "2 triangles, with copies")


def test_scenes_that_contain_themselves(tmp_path):
    loop = '<node id="n0"><instance_node url="#n1"/></node>'
    loop += '<node id="n1"><instance_node url="#n0"/></node>'
    refused(tmp_path / "a.dae", collada(loop), "node 'n0' contains itself")
    refused(tmp_path / "a.gltf", gltf([{"children": [1]}, {"children": [0]}]), "contains itself")
    shared = [{"children": [1, 2]}, {"children": [3]}, {"children": [3]}, {"mesh": 0}]
    refused(tmp_path / "b.gltf", gltf(shared), "two parents")


def test_counts_that_the_data_do_not_have(tmp_path, monkeypatch):
    refused(tmp_path / "a.ply", ply(2**32 - 1, "uint"), "4,294,967,295 entries in the lists")
    refused(tmp_path / "b.ply", ply(faces=10**9), "1,000,000,000 elements face")
    refused(tmp_path / "a.gltf", gltf(count=10**9), "entries in its accessors")
    view_ = [{"buffer": 0, "byteLength": 10**9}]
    refused(tmp_path / "b.gltf", gltf(bufferViews=view_), "1,000,000,000 bytes in its views")
    strips = (
        '<polylist><input semantic="VERTEX" source="#v" offset="0"/><vcount>2000000000</vcount>'
    )
    refused(tmp_path / "a.dae", collada(shape=strips), "2,000,000,000 corners in <vcount>")
    refused(tmp_path / "a.stl", stl(1, stated=10**9), "no triangles")
    monkeypatch.setattr(mesh_limits, "MAX_TRIANGLES", 2)
    refused(tmp_path / "b.stl", stl(3), "3 triangles, expected at most 2")
    refused(tmp_path / "a.obj", OBJ + "f 1 2 3 1 2\n", "3 triangles, expected at most 2")
    refused(tmp_path / "b.obj", OBJ + "f 1 2 \\\n 3 1 2\n", "3 triangles, expected at most 2")
    refused(tmp_path / "c.obj", OBJ + "f 0/1 1 2\n", "a face has the vertex 0")
    three = gltf(primitive={"mode": 5}, count=5, data=bytes(24))
    refused(tmp_path / "c.gltf", three.replace('"byteLength": 36', '"byteLength": 60'), "triangles")
    refused(tmp_path / "d.gltf", gltf(count=21, primitive={"mode": 1}, data=bytes(216)), "vertices")
    parts = [{"attributes": {"POSITION": k}, "mode": 1} for k in range(2)]
    accessor = {"bufferView": 0, "componentType": 5126, "type": "VEC3"}
    counts = [accessor | {"count": 21}, accessor | {"count": -21}]
    less = gltf(meshes=[{"primitives": parts}], accessors=counts)
    refused(tmp_path / "e.gltf", less, "42 vertices in its parts")
    indices = {"bufferView": 0, "componentType": 5125, "count": 9, "type": "SCALAR"}
    parts = [{"attributes": {"POSITION": 1}, "indices": 0}]
    corners = [indices, accessor | {"count": 3}]
    indexed = gltf(meshes=[{"primitives": parts}], accessors=corners)
    refused(tmp_path / "f.gltf", indexed, "3 triangles, expected at most 2")
    text = "solid\n" + "facet\nendfacet\n" * 3
    refused(tmp_path / "c.stl", text, "3 triangles, expected at most 2")
    refused(tmp_path / "c.stl", text.upper(), "3 triangles, expected at most 2")


def test_a_truncated_ply_file_is_refused(tmp_path):
    vertices = "element vertex 3\nproperty float x\nproperty float y\nproperty float z\n"
    faces = "element face 2\nproperty list uchar int vertex_indices\nend_header\n"
    text = f"ply\nformat ascii 1.0\n{vertices}{faces}0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n"
    refused(tmp_path / "a.ply", text, "it has 4 elements, expected 5, as its header says")
    (tmp_path / "a.ply").write_text(text + "3 0 2 1\n")
    assert len(draw(tmp_path / "a.ply")[0].faces) == 2


def test_white_space_in_an_obj_file(tmp_path):
    """A blank before a vertex or a face, and a tab after its first letter, change nothing."""
    text = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 2 3\nf 1 3 4\nf 1 2 4\n"
    spaced = text.replace("v 1", " v\t1").replace("v 0 1", "v\t0 1")
    spaced = spaced.replace("f 1 2 3", " f 1  2 3").replace("f 1 2 4", "f\t1 2 4")
    corners = []
    for content in (text, spaced):
        (tmp_path / "a.obj").write_text(content)
        (part,) = draw(tmp_path / "a.obj")
        corners.append(part.vertices[part.faces].tolist())
    assert np.shape(corners) == (2, 3, 3, 3)
    assert corners[0] == corners[1]


def test_many_materials_of_an_obj_file(tmp_path, monkeypatch):
    text = OBJ + "".join(f"usemtl m{k}\nf 1 2 3\n" for k in range(3))
    (tmp_path / "a.obj").write_text(text)
    monkeypatch.setattr(mesh_limits, "MAX_MATERIALS", 3)
    assert len(draw(tmp_path / "a.obj")) == 3
    monkeypatch.setattr(mesh_limits, "MAX_MATERIALS", 2)
    refused(tmp_path / "a.obj", text, "3 materials, expected at most 2")
    # Each material costs an array of all vertices; normals are no vertices.
    monkeypatch.setattr(mesh_limits, "MAX_TRIANGLES", 1)
    (tmp_path / "b.obj").write_text(OBJ + "usemtl m\n" + "vn 0 0 1\n" * 1000 + "f 1 2 3\n")
    assert len(draw(tmp_path / "b.obj")) == 1
    many = OBJ + "usemtl m\n" + "v 0 0 1\n" * 1000 + "f 1 2 3\n"
    refused(tmp_path / "b.obj", many, "1,003 materials times vertices, expected at most 1,000")


def test_the_size_of_a_file_and_of_the_files_that_it_names(tmp_path, monkeypatch):
    monkeypatch.setattr(mesh_limits, "MAX_BYTES", 134)
    (tmp_path / "a.stl").write_bytes(stl(1))
    assert len(draw(tmp_path / "a.stl")) == 1
    refused(tmp_path / "a.stl", stl(2), "184 bytes, expected at most 134")
    (tmp_path / "a.mtl").write_text("newmtl m\n" + "# comment\n" * 20)
    refused(tmp_path / "a.obj", "mtllib a.mtl\n" + OBJ + "f 1 2 3\n", "in the files that it names")


TEXTURED = "mtllib a.mtl\n" + OBJ + "vt 0 0\nvt 1 0\nvt 0 1\nusemtl m\nf 1/1 2/2 3/3\n"


def test_pixels_are_counted_before_a_texture_is_decoded(tmp_path, monkeypatch):
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "a.mtl").write_text("newmtl m\nmap_Kd a.png\n")
    (tmp_path / "a.png").write_bytes(picture(20, 10))
    (tmp_path / "a.obj").write_text(TEXTURED)
    embedded = EMBEDDED + base64.b64encode(picture(20, 10)).decode()
    material = {"pbrMetallicRoughness": {"baseColorTexture": {"index": 0}}}
    gloss = {"diffuseTexture": {"index": 0}}
    gloss = {"extensions": {"KHR_materials_pbrSpecularGlossiness": gloss}}
    gloss["pbrMetallicRoughness"] = {"baseColorTexture": {"index": 1}}  # for other readers
    accessor = {"bufferView": 0, "componentType": 5126, "count": 3}
    part = {"attributes": {"POSITION": 0, "TEXCOORD_0": 1}, "material": 0}
    entries = {
        "accessors": [{**accessor, "type": "VEC3"}, {**accessor, "type": "VEC2"}],
        "meshes": [{"primitives": [part]}],
        "textures": [{"source": 0}],
    }
    bytes_ = picture(20, 10)
    views = [{"buffer": 0, "byteLength": 36}]
    views.append({"buffer": 0, "byteLength": len(bytes_), "byteOffset": 436})
    files = {
        "a.obj": TEXTURED,
        "a.gltf": gltf(images=[{"uri": embedded}], materials=[material], **entries),
        "b.gltf": gltf(images=[{"uri": embedded}], materials=[gloss], **entries),
        "c.gltf": gltf(images=[{"uri": "a.png"}], materials=[material], **entries),
        "d.gltf": gltf(
            images=[{"bufferView": 1}],
            materials=[material],
            data=bytes(400) + bytes_,
            bufferViews=views,
            **entries,
        ),
    }
    monkeypatch.setattr(mesh_limits, "MAX_PIXELS", 200)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        ((_, _, color),) = draw(tmp_path / name)
        assert color == (1, 0, 0, 1), name
    monkeypatch.setattr(mesh_limits, "MAX_PIXELS", 199)
    monkeypatch.setattr(image.Image, "convert", None)  # no texture is decoded
    for name, text in files.items():
        refused(tmp_path / name, text, "200 pixels in its texture .*, expected at most 199")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "TGA"])
def test_each_type_of_texture_gives_the_colour(kind, tmp_path):
    """Also where two materials name one file, which is read once."""
    image, name = pytest.importorskip("PIL.Image"), f"a.{kind.lower()}"
    image.new("RGB", (8, 8), (255, 0, 0)).save(tmp_path / name, kind)
    (tmp_path / "a.mtl").write_text(f"newmtl m\nmap_Kd {name}\nnewmtl n\nmap_Kd {name}\n")
    (tmp_path / "a.obj").write_text(TEXTURED + "usemtl n\nf 1/1 2/2 3/3\n")
    for part in draw(tmp_path / "a.obj"):
        np.testing.assert_allclose(part.color, (1, 0, 0, 1), atol=0.02)


def test_a_texture_of_another_type_gives_no_colour(tmp_path):
    """PIL starts other programs for some types."""
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (8, 8), (255, 0, 0)).save(tmp_path / "a.png", "PPM")
    (tmp_path / "a.mtl").write_text("newmtl m\nmap_Kd a.png\n")
    (tmp_path / "a.obj").write_text(TEXTURED)
    (part,) = draw(tmp_path / "a.obj")
    assert part.color is None


def test_the_textures_of_a_file_are_counted_together(tmp_path, monkeypatch):
    """And each part has the colour of its own texture."""
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "a.mtl").write_text("newmtl m\nmap_Kd a.png\nnewmtl n\nmap_Kd b.png\n")
    for name, color in (("a.png", "red"), ("b.png", "blue")):
        image.new("RGB", (10, 10), color).save(tmp_path / name)
    text = TEXTURED + "usemtl n\nf 3/3 2/2 1/1\n"  # the blue face looks down
    (tmp_path / "a.obj").write_text(text)
    monkeypatch.setattr(mesh_limits, "MAX_PIXELS", 200)
    parts = draw(tmp_path / "a.obj")
    assert {part.color for part in parts} == {(1, 0, 0, 1), (0, 0, 1, 1)}
    for vertices, faces, color in parts:
        up = np.linalg.det(vertices[faces[0]] + [0, 0, 1]) > 0
        assert color == (up, 0, not up, 1)
    monkeypatch.setattr(mesh_limits, "MAX_PIXELS", 199)
    refused(tmp_path / "a.obj", text, "200 pixels in its textures")


@pytest.mark.parametrize(("u", "v"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_the_texture_of_a_corner_is_its_pixel(u, v, tmp_path):
    """The texture coordinates of OBJ files begin in the lower left corner."""
    image = pytest.importorskip("PIL.Image")
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 10
    image.fromarray(pixels).save(tmp_path / "a.png")
    (tmp_path / "a.mtl").write_text("newmtl m\nmap_Kd a.png\n")
    text = "mtllib a.mtl\n" + OBJ + f"vt {u} {v}\nusemtl m\nf 1/1 2/1 3/1\n"
    (tmp_path / "a.obj").write_text(text)
    ((_, _, color),) = draw(tmp_path / "a.obj")
    np.testing.assert_allclose(np.array(color[:3]) * 255, pixels[1 - v, 2 * u], atol=1e-9)


def test_textures_repeat(tmp_path):
    """The lower left quarter of the texture is red."""
    image = pytest.importorskip("PIL.Image")
    pixels = np.full((12, 8, 3), 255, np.uint8)
    pixels[6:, :4, 1:] = 0
    image.fromarray(pixels).save(tmp_path / "a.png")
    (tmp_path / "a.mtl").write_text("newmtl m\nmap_Kd a.png\n")
    for u, v, red in ((1.25, 0.25, True), (0.25, -0.75, True), (-0.25, 2.25, False)):
        text = "mtllib a.mtl\n" + OBJ + f"vt {u} {v}\nusemtl m\nf 1/1 2/1 3/1\n"
        (tmp_path / "a.obj").write_text(text)
        ((_, _, color),) = draw(tmp_path / "a.obj")
        assert color == (1, 1 - red, 1 - red, 1)


def test_colours_without_a_texture(tmp_path):
    (tmp_path / "a.obj").write_text(TEXTURED)
    assert draw(tmp_path / "a.obj")[0].color is None  # the file of the material is missing
    (tmp_path / "a.mtl").write_text("newmtl m\nKd 0.2 0.4 0.6\n")
    ((_, _, color),) = draw(tmp_path / "a.obj")
    assert color is not None
    np.testing.assert_allclose(color, (0.2, 0.4, 0.6, 1), atol=1 / 255)
    base = {"pbrMetallicRoughness": {"baseColorFactor": [0.2, 0.4, 0.6, 0.8]}}
    gloss = {"KHR_materials_pbrSpecularGlossiness": {"diffuseFactor": [0.8, 0.6, 0.4, 0.2]}}
    part = {"attributes": {"POSITION": 0}, "material": 0}
    for material, expected in (
        (base, (0.2, 0.4, 0.6, 0.8)),
        (base | {"extensions": gloss}, (0.8, 0.6, 0.4, 0.2)),
    ):
        text = gltf(meshes=[{"primitives": [part]}], materials=[material])
        (tmp_path / "a.gltf").write_text(text)
        ((_, _, color),) = draw(tmp_path / "a.gltf")
        np.testing.assert_allclose(color, expected, atol=1 / 255)


def test_a_header_of_more_pixels_than_pil_reads(tmp_path):
    (tmp_path / "a.mtl").write_text("newmtl m\nmap_Kd a.png\n")
    data = bytearray(picture(1, 1))
    data[16:24] = struct.pack(">II", 100_000, 100_000)
    data[29:33] = struct.pack(">I", zlib.crc32(bytes(data[12:29])))
    (tmp_path / "a.png").write_bytes(data)
    refused(tmp_path / "a.obj", TEXTURED, "its texture a.png has more pixels than PIL reads")


def check(kind, data, files=None):
    """The data that the checks of a file type let through."""
    data = data.encode() if isinstance(data, str) else data
    return mesh_limits._CHECKS[f".{kind}"](data, files or mesh_limits.NamedFiles(pathlib.Path("a")))


def bounded(monkeypatch, limit, value, kind, data, message):
    """The file is within the limit if it has this value, and the message names one less."""
    monkeypatch.setattr(mesh_limits, limit, value)
    check(kind, data)
    monkeypatch.setattr(mesh_limits, limit, value - 1)
    with pytest.raises(UnreadableMesh, match=message):
        check(kind, data)
    monkeypatch.undo()


def test_the_names_of_files_in_a_mesh_file(tmp_path, monkeypatch):
    """Names of other systems too. All files together have a limit, and each is counted once."""
    (tmp_path / "sub").mkdir()
    for name, size in (("a.bin", 60), ("sub/b.bin", 41), ("c.bin", 99)):
        (tmp_path / name).write_bytes(name[-5:-4].encode() * size)
    for name, letter in (
        ("a.bin", b"a"),
        (" a.bin ", b"a"),
        ("/a.bin", b"a"),
        ("sub/b.bin", b"b"),
        ("C:\\meshes\\a.bin", b"a"),
        ("gone/a.bin", b"a"),
        (" /sub/b.bin", b"b"),
    ):
        assert mesh_limits.NamedFiles(tmp_path / "x.obj").get(name)[:1] == letter
        assert mesh_limits.NamedFiles(tmp_path / "x.obj")[name][:1] == letter
    files = mesh_limits.NamedFiles(tmp_path / "x.obj")
    with pytest.raises(FileNotFoundError, match=r"gone\.bin"):
        files.get("gone.bin")
    monkeypatch.setattr(mesh_limits, "MAX_BYTES", 101)
    for name in ("a.bin", "sub/b.bin", "a.bin"):
        files.get(name)
    monkeypatch.setattr(mesh_limits, "MAX_BYTES", 100)
    files = mesh_limits.NamedFiles(tmp_path / "x.obj")
    files.get("a.bin")
    first = "101 bytes in the files that it names, with b.bin"
    for name, message in (("sub/b.bin", first), ("c.bin", "159 bytes .*, with c.bin")):
        with pytest.raises(UnreadableMesh, match=message):
            files.get(name)
    assert first in str(files.fault)


def test_headers_of_pictures(monkeypatch):
    """Above 89 million pixels PIL warns, and above 179 million it raises an error."""
    pytest.importorskip("PIL.Image")

    def header(width, height):
        data = bytearray(picture(1, 1))
        data[16:24] = struct.pack(">II", width, height)
        data[29:33] = struct.pack(">I", zlib.crc32(bytes(data[12:29])))
        return bytes(data)

    large = header(20_000, 20_000)
    mesh_limits.check_picture(header(8192, 8192), "p")
    mesh_limits.check_picture(b"no picture", "p")
    for side, message in (
        (8193, "67,125,249 pixels in its texture p, expected at most 67,108,864"),
        (10_000, "100,000,000 pixels in its texture p, "),
        (20_000, "texture p has more pixels than PIL reads, expected at most 67,108,864"),
    ):
        with pytest.raises(UnreadableMesh, match=message):
            mesh_limits.check_picture(header(side, side), "p")
    monkeypatch.setitem(sys.modules, "PIL", None)  # then no texture is read
    mesh_limits.check_picture(large, "p")


def test_lists_of_a_ply_file_are_found_behind_all_types(monkeypatch):
    """In both byte orders: rows of one type, lists of this type, and then the list of a face."""
    names = "char uchar int8 uint8 short ushort int16 uint16 float16 int uint int32 uint32 float "
    names += "float32 double float64 int64 uint64"
    types = dict(zip(names.split(), "bBbBhHhHeiIiIffddqQ"))
    for (name, code), (order, sign) in itertools.product(
        types.items(), (("little", "<"), ("big", ">"))
    ):
        rows = struct.pack(f"{sign}{code}", 1) * 3
        rows += struct.pack(f"{sign}B2{code}B2{code}", 2, 1, 1, 2, 1, 1)
        header = [
            "ply",
            f"format binary_{order}_endian 1.0",
            "element first 3",
            f"property {name} x",
            "element second 2",
            f"property list uchar {name} more",
            "element face 2",
            "property float quality",
            "property list int int vertex_indices",
            "end_header\n",
        ]
        data = "\n".join(header).encode() + rows + struct.pack(f"{sign}fi", 0.5, 9)
        message = "18 entries in the lists vertex_indices, expected at most 15"
        bounded(monkeypatch, "MAX_TRIANGLES", 6, "ply", data, message)
    for name, code in types.items():
        if code in "efd":
            continue
        header = (
            f"ply\nformat binary_little_endian 1.0\nelement a 2\nproperty list {name} short x\n"
        )
        data = f"{header}element b 1\nproperty list {name} int y\nend_header\n".encode()
        row = struct.pack(f"<{code}2h", 2, 0, 0)
        data += row * 2 + struct.pack(f"<{code}", 9)
        message = "9 entries in the lists y, expected at most 6"
        bounded(monkeypatch, "MAX_TRIANGLES", 3, "ply", data, message)
    rows = ply(faces=6)
    bounded(monkeypatch, "MAX_TRIANGLES", 6, "ply", rows, "18 entries .*, expected at most 15")
    text = "ply\nformat ascii 1.0\nelement vertex 9\nproperty list uchar int x\nend_header\n"
    text += "1 0\n" * 9
    bounded(monkeypatch, "MAX_TRIANGLES", 3, "ply", text, "9 elements vertex, expected at most 6")


def test_the_counts_of_an_obj_file_are_exact(monkeypatch):
    faces = "f 1 2 3 1 2\nf 1 2 3\n" + "f\nf 1\n" * 5  # the last ones have no triangle
    bounded(monkeypatch, "MAX_TRIANGLES", 4, "obj", OBJ + faces, "4 triangles, .* at most 3")
    text = OBJ.replace("\n", "\r\n") + "f 1 2 \\\r\n 3 1 2\r\n"
    bounded(monkeypatch, "MAX_TRIANGLES", 3, "obj", text, "3 triangles, expected at most 2")
    uses = "".join(f"usemtl {name}\nf 1 2 3\n" for name in "abab")
    bounded(monkeypatch, "MAX_MATERIALS", 2, "obj", OBJ + uses, "2 materials, expected at most 1")
    many = "v 0 0 1\n" * 2000
    many_uses = many + "usemtl a\nusemtl b\nf 1 2 3\n"
    message = "4,000 materials times .* most 3,000"
    bounded(monkeypatch, "MAX_TRIANGLES", 4, "obj", many_uses, message)
    monkeypatch.setattr(mesh_limits, "MAX_TRIANGLES", 1)
    check("obj", many + "f 1 2 3\n")  # without a material
    check("stl", stl(1))
    with pytest.raises(UnreadableMesh, match="256 triangles"):
        check("stl", stl(256))


SHAPE = '<{0}><input semantic="VERTEX" source="#v" offset="0"/>{1}<p>{2}</p></{0}>'


def test_the_counts_of_a_collada_file_are_exact(monkeypatch):
    """From the indices that the file has, for all kinds of primitives."""

    def shape(kind, indices, more=""):
        parts = collada().partition("<triangles>")
        rest = parts[2].partition("</triangles>")[2]
        return parts[0] + SHAPE.format(kind, more, "0 " * indices) + rest

    other, shared = (f'<input semantic="NORMAL" source="#n" offset="{k}"/>' for k in (1, 0))
    for kind, indices, more, triangles in (
        ("triangles", 9, "", 3),
        ("triangles", 18, other, 3),
        ("triangles", 9, shared, 3),
        ("polylist", 5, "", 5),
        ("polygons", 5, "", 5),
        ("tristrips", 5, "", 5),
        ("trifans", 5, "", 5),
    ):
        message = f"{triangles} triangles, with copies"
        bounded(monkeypatch, "MAX_TRIANGLES", triangles, "dae", shape(kind, indices, more), message)
    with pytest.raises(UnreadableMesh, match=r"13 corners in <vcount> of <polylist>.* most 5"):
        check("dae", shape("polylist", 5, "<vcount>-5 8</vcount>"))
    check("dae", shape("polylist", 5, "<vcount>2 3</vcount>"))
    # Two nodes, or two geometries, with one name: the larger one counts.
    two = '<instance_geometry url="#g"/>' * 2
    same = f'<node id="n0">{two}</node><node id="n0"><instance_geometry url="#g"/></node>'
    for nodes in (same, f'<node id="n0"/>{same}', f"{same}<node id='n0'><!-- none --></node>"):
        bounded(monkeypatch, "MAX_TRIANGLES", 2, "dae", collada(nodes), "2 triangles, with copies")
        bounded(monkeypatch, "MAX_NODES", 5, "dae", collada(nodes), "5 nodes, with copies")
    nested = f'<node id="n0"><node>{two}</node><node>{two}</node></node>'
    bounded(monkeypatch, "MAX_TRIANGLES", 4, "dae", collada(nested), "4 triangles, with copies")
    text = shape("triangles", 9)
    small = text[text.index("<geometry") : text.index("</library_geometries>")]
    small = small.replace("0 0 0 0 0 0 0 0 0", "0 0 0")
    both = text.replace("</library_geometries>", small + "</library_geometries>")
    bounded(monkeypatch, "MAX_TRIANGLES", 3, "dae", both, "3 triangles, with copies")
    # A second scene counts too.
    scene = f'<visual_scene id="x"><node>{two}</node></visual_scene></library_visual_scenes>'
    scenes = collada().replace("</library_visual_scenes>", scene)
    bounded(monkeypatch, "MAX_TRIANGLES", 2, "dae", scenes, "2 triangles, with copies")
    # The nodes: 62 levels below the scene, a node of the scene and the last node.
    check("dae", collada(*copies(62, 1)))
    with pytest.raises(UnreadableMesh, match="65 levels of nodes"):
        check("dae", collada(*copies(63, 1)))
    # Other values than positions need not be finite.
    normals = '<source id="n"><float_array id="nf" count="1">nan</float_array></source><vertices'
    check("dae", collada().replace("<vertices", normals))
    with pytest.raises(UnreadableMesh, match="a coordinate that is not finite"):
        check("dae", collada().replace("0.0 0.0 0.0", "0.0 nan 0.0", 1))
    check("dae", collada().replace("0.0 0.0 0.0", "0.0 3.3e38 -3.3e38", 1))


def test_the_counts_of_a_gltf_file_are_exact(monkeypatch):
    def tree(**entries):
        return json.dumps(entries)

    sizes = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4, "MAT2": 4, "MAT3": 9, "MAT4": 16}
    for kind, size in sizes.items():
        text = tree(accessors=[{"count": 100, "type": kind}, {"count": -100, "type": kind}])
        message = f"{200 * size:,} entries in its accessors"
        bounded(monkeypatch, "MAX_TRIANGLES", 2 * size, "gltf", text, message)
    views = tree(bufferViews=[{"byteLength": 60}, {"byteLength": -60}])
    bounded(monkeypatch, "MAX_BYTES", 60, "gltf", views, "120 bytes in its views, .* most 118")
    accessors = [{"count": -10, "type": "SCALAR"}, {"count": -9, "type": "SCALAR"}]
    lines = {"attributes": {"POSITION": 0}, "mode": 4}
    parts = tree(accessors=accessors, meshes=[{"primitives": [lines] * 3}])
    bounded(monkeypatch, "MAX_NODES", 3, "gltf", parts, "3 parts, expected at most 2")
    vertices = tree(accessors=accessors, meshes=[{"primitives": [lines]}, {"primitives": [lines]}])
    bounded(monkeypatch, "MAX_TRIANGLES", 6, "gltf", vertices, "6 triangles, expected at most 5")
    points = {"attributes": {"POSITION": 0}, "indices": 1}
    few = tree(
        accessors=[accessors[0], {"count": 0, "type": "SCALAR"}],
        meshes=[{"primitives": [points] * 3}],
    )
    bounded(monkeypatch, "MAX_TRIANGLES", 3, "gltf", few, "30 vertices in its parts, .* most 20")
    for mode, triangles in ((None, 3), (4, 3), (5, 9), (6, 9), (1, 9)):
        one = {"attributes": {"POSITION": 0}, "indices": 1}
        one |= {} if mode is None else {"mode": mode}
        text = tree(accessors=accessors, meshes=[{"primitives": [one, one]}], nodes=[{"mesh": 0}])
        message = f"{2 * triangles} triangles, "
        bounded(monkeypatch, "MAX_TRIANGLES", 2 * triangles, "gltf", text, message)
    copied = tree(
        accessors=accessors, meshes=[{"primitives": [lines]}], nodes=[{"mesh": 0}, {"mesh": 0}]
    )
    message = "6 triangles, with copies, expected at most 5"
    bounded(monkeypatch, "MAX_TRIANGLES", 6, "gltf", copied, message)
    roots = tree(nodes=[{}], scenes=[{"nodes": [0]}, {"nodes": [0, 0]}])
    bounded(monkeypatch, "MAX_NODES", 3, "gltf", roots, "3 nodes in its scenes, .* at most 2")
    chain = [*({"children": [k + 1]} for k in range(64)), {}]
    check("gltf", tree(nodes=chain))
    with pytest.raises(UnreadableMesh, match="65 levels of nodes"):
        check("gltf", tree(nodes=[*chain[:-1], {"children": [65]}, {}]))


def test_the_materials_of_a_gltf_file_keep_their_colours_alone(monkeypatch):
    """And a GLB file has the right lengths after its scene has been written again."""
    base = {"baseColorFactor": [1, 0, 0, 1], "baseColorTexture": {"index": 0}, "metallicFactor": 1}
    gloss = {"extensions": {"KHR_materials_pbrSpecularGlossiness": {"diffuseFactor": [0, 1, 0, 1]}}}
    materials = [
        {"name": "m", "pbrMetallicRoughness": base, "normalTexture": {"index": 9}},
        {"pbrMetallicRoughness": base, "alphaMode": "BLEND", **gloss},
        {"emissiveFactor": [1, 1, 1]},
    ]
    expected = [
        {
            "name": "m",
            "pbrMetallicRoughness": {k: base[k] for k in ("baseColorFactor", "baseColorTexture")},
        },
        {
            "pbrMetallicRoughness": {
                "baseColorFactor": [0, 1, 0, 1],
                "baseColorTexture": {"index": 0},
            }
        },
        {"pbrMetallicRoughness": {}},
    ]
    assert json.loads(check("gltf", gltf(materials=materials)))["materials"] == expected
    for name in ("m", "mm", "mmm", "mmmm"):
        materials[2] = {"name": name}
        given = glb(gltf(materials=materials), b"1234")
        found = check("glb", given)
        magic, version, size, length, kind = struct.unpack("<4sIII4s", found[:20])
        assert (magic, version, size, kind) == (b"glTF", 2, len(found), b"JSON")
        assert length % 4 == 0
        assert json.loads(found[20 : 20 + length])["materials"][2]["name"] == name
        assert found[20 + length :] == struct.pack("<I4s", 4, b"BIN\0") + b"1234"


def test_pictures_in_the_buffers_of_a_gltf_file(tmp_path, monkeypatch):
    """At the start of buffers and behind it, in the file, in other files and in a GLB file."""
    data = picture(20, 10)
    (tmp_path / "a.bin").write_bytes(bytes(3) + data)
    files = mesh_limits.NamedFiles(tmp_path / "a.glb")
    inside = {"uri": EMBEDDED + base64.b64encode(data).decode()}
    for buffer, offset, binary in (
        (inside, None, b""),
        ({"uri": "a.bin"}, 3, b""),
        ({}, None, data),
        ({}, 5, bytes(5) + data),
    ):
        place = {} if offset is None else {"byteOffset": offset}
        text = json.dumps(
            {
                "buffers": [{"uri": EMBEDDED}, buffer],
                "bufferViews": [{"buffer": 1, "byteLength": len(data), **place}],
                "images": [{"uri": "gone.png"}, {"uri": "gone.png"}, {"bufferView": 0}],
            }
        )
        monkeypatch.setattr(mesh_limits, "MAX_PIXELS", 200)
        check("glb", glb(text, binary), files)
        monkeypatch.setattr(mesh_limits, "MAX_PIXELS", 199)
        with pytest.raises(UnreadableMesh, match=r"200 pixels in its texture 2, .* most 199"):
            check("glb", glb(text, binary), files)
    text = json.dumps({"images": [{}, {}, {"uri": "data:image/png;base64," + inside["uri"][37:]}]})
    with pytest.raises(UnreadableMesh, match="200 pixels in its texture 2, "):
        check("gltf", text)


def test_what_the_reader_finds_is_limited_too(tmp_path, monkeypatch):
    """As if the checks before the reader were wrong."""
    for kind in (".obj", ".ply"):
        monkeypatch.setitem(mesh_limits._CHECKS, kind, lambda data, _: data)
    text = OBJ + "".join(f"usemtl m{k}\nf 1 2 3\n" for k in range(3))
    (tmp_path / "a.obj").write_text(text)
    for limit, what in (("MAX_NODES", "parts"), ("MAX_TRIANGLES", "triangles")):
        with monkeypatch.context() as patch:
            patch.setattr(mesh_limits, limit, 3)
            assert len(draw(tmp_path / "a.obj")) == 3
            patch.setattr(mesh_limits, limit, 2)
            refused(tmp_path / "a.obj", text, f"3 {what}, with copies, expected at most 2")
    negative = ply()[:-12] + struct.pack("<3i", 0, -1, 2)
    refused(tmp_path / "a.ply", negative, "negative index of a vertex")
    far = gltf([{"mesh": 0, "scale": [1e200, -1e200, 1]}])
    (tmp_path / "a.gltf").write_text(far)
    with pytest.raises(UnreadableMesh, match=r"larger than 3.4e.38 m"):
        shape_triangles(MeshFile(str(tmp_path / "a.gltf"), (1e200, 1e200, 1.0)))


def test_a_colour_is_the_mean_of_faces_or_corners(tmp_path):
    import trimesh

    vertices = np.array([*CORNERS, [1, 1, 0]])
    mesh = trimesh.Trimesh(vertices, [[0, 1, 2], [1, 3, 2]], process=False)
    mesh.visual.face_colors = [[255, 0, 51, 255], [0, 0, 51, 51]]
    mesh.export(tmp_path / "a.ply")
    ((_, _, color),) = draw(tmp_path / "a.ply")
    np.testing.assert_allclose(color, (0.5, 0, 0.2, 0.6), atol=1e-12)
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (6, 9, 4), dtype=np.uint8)
    image.fromarray(pixels).save(tmp_path / "a.png")
    (tmp_path / "a.mtl").write_text("newmtl m\nmap_Kd a.png\n")
    corners = [(0.2, 0.7), (0.7, 0.1), (0.95, 0.55)]  # 1.6, 5.6, 7.6; from above 1.5+, 4.5, 2.25
    text = "mtllib a.mtl\n" + OBJ + "".join(f"vt {u} {v}\n" for u, v in corners)
    (tmp_path / "a.obj").write_text(text + "usemtl m\nf 1/1 2/2 3/3\n")
    ((_, _, color),) = draw(tmp_path / "a.obj")
    rows, columns = [round(5 * (1 - v)) for _, v in corners], [round(8 * u) for u, _ in corners]
    expected = pixels[rows, columns].mean(axis=0) / 255
    np.testing.assert_allclose(color, expected, atol=1e-12)
    # Instead of a texture that is no picture, the grey of a material without a colour.
    (tmp_path / "a.png").write_bytes(b"no picture")
    red, green, blue, opacity = draw(tmp_path / "a.obj")[0].color
    assert (red == green == blue, opacity) == (True, 1)


def test_files_outside_of_the_folder_are_not_read(tmp_path):
    folder = tmp_path / "meshes"
    folder.mkdir()
    (tmp_path / "a.png").write_bytes(picture(2, 2))
    (tmp_path / "tri.bin").write_bytes(CORNERS.tobytes())
    for place in ("../", f"{tmp_path}/"):
        (folder / "a.mtl").write_text(f"newmtl m\nmap_Kd {place}a.png\n")
        (folder / "a.obj").write_text(TEXTURED)
        ((_, _, color),) = draw(folder / "a.obj")
        assert color != (1, 0, 0, 1)
        outside = gltf(buffers=[{"byteLength": 36, "uri": f"{place}tri.bin"}])
        refused(folder / "a.gltf", outside, "tri.bin")
    (folder / "tri.bin").write_bytes(CORNERS.tobytes())
    (folder / "b.gltf").write_text(gltf(buffers=[{"byteLength": 36, "uri": "tri.bin"}]))
    assert len(draw(folder / "b.gltf")) == 1


@pytest.mark.parametrize("unit", ["0", "-1", "nan", "inf", "inch"])
def test_units_of_a_collada_file(unit, tmp_path):
    pytest.importorskip("collada")
    message = f'<unit meter="{unit}">: expected a positive finite length'
    refused(tmp_path / "a.dae", collada(unit=unit), message)
    (tmp_path / "b.dae").write_text(collada().replace(' meter="1"', ""))  # 1 m by default
    np.testing.assert_allclose(np.ptp(draw(tmp_path / "b.dae")[0].vertices, axis=0), [1, 1, 0])


@pytest.mark.parametrize("x", [1e300, -1e300, 4e38, np.nan, np.inf])
def test_coordinates_beyond_single_precision(x, tmp_path):
    header = ply().replace(b"float", b"double").partition(b"end_header\n")
    corners = CORNERS.astype(float)
    corners[1, 0] = x
    data = header[0] + header[1] + corners.tobytes() + struct.pack("<B3i", 3, 0, 1, 2)
    refused(tmp_path / "a.ply", data, "not finite or larger than 3.4e.38 m")
    text = OBJ.replace("v 1 0 0", f"v {x} 0 0") + "f 1 2 3\n"
    refused(tmp_path / "a.obj", text, "cannot be read")
    refused(tmp_path / "a.dae", collada().replace(">0.0 0.0 0.0", f">{x} 0 0"), "a coordinate .*")


def test_scales_and_nodes_beyond_single_precision(tmp_path):
    (tmp_path / "a.obj").write_text(OBJ + "f 1 2 3\n")
    with pytest.raises(UnreadableMesh, match=r"a.obj.*larger than 3.4e.38 m"):
        shape_triangles(MeshFile(str(tmp_path / "a.obj"), (1e39, 1.0, 1.0)))
    large = gltf([{"mesh": 0, "scale": [1e39, 1, 1]}])
    refused(tmp_path / "a.gltf", large, "larger than 3.4e.38 m")


@pytest.mark.parametrize("shape", [Box((5e39, 0.5, 0.5)), Capsule(1e200, 0.5)])
def test_a_shape_beyond_single_precision_is_a_warning(shape):
    """Without a warning of NumPy, which is an error here."""
    model = robot([Geometry(shape, placement_matrix((0.0, 0.0, 0.0), (0.5, 0.6, 0.7)))])
    with pytest.warns(
        GeometryWarning, match="link 'link': not drawn: .*a coordinate .* larger than 3.4e.38 m"
    ):
        drawn = view.drawing(model)
    assert [item.layer for item in drawn.items] == ["visuals", "inertias"]  # of the inertia


def test_other_contents_and_types(tmp_path):
    refused(tmp_path / "a.mesh", b"", r"type '.mesh' has no reader, expected one of .stl, .obj")
    refused(tmp_path / "a.dae", b"PK\3\4" + bytes(40), "not well-formed XML")
    entity = '<!DOCTYPE x [<!ENTITY a "0 1 2">]>'
    refused(tmp_path / "b.dae", collada(prolog=entity), "may not have a DOCTYPE")
    refused(tmp_path / "a.glb", gltf(), "header of a GLB file")
    first = b"glTF\1" + glb(gltf())[5:]
    refused(tmp_path / "b.glb", first, "header of a GLB file of version 2")
    refused(tmp_path / "a.ply", b"ply\n", "no header of a PLY file")
    for name in ("KHR_draco_mesh_compression", "EXT_meshopt_compression"):
        packed = gltf(primitive={"extensions": {name: {}}})
        refused(tmp_path / "a.gltf", packed, f"compressed by {name}, which has no reader")
    refused(tmp_path / "b.obj", OBJ + "f 1 1 2\n", "no triangle")
    # trimesh would read "model.gltf" in place of a file that is no JSON.
    (tmp_path / "model.gltf").write_text(gltf())
    refused(tmp_path / "c.gltf", b"{", "cannot be read")


def test_files_of_each_type_are_drawn(tmp_path):
    flat = gltf(buffers=[{"byteLength": 36}])
    files = {
        "a.stl": stl(1),
        "a.obj": OBJ.encode() + b"f 1 2 3\n",
        "a.ply": ply(),
        "a.gltf": gltf([{"mesh": 0, "translation": [0, 0, 0]}]).encode(),
        "a.GLB": glb(flat, CORNERS.tobytes()),
        "a.dae": collada().encode(),
        "polygons.dae": collada(
            shape='<polylist><input semantic="VERTEX" source="#v" offset="0"/><vcount>3</vcount>'
        ).encode(),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        ((vertices, faces, _),) = draw(tmp_path / name)
        np.testing.assert_allclose(vertices[faces[0]], CORNERS, err_msg=name)
    # A part without a face does not matter.
    accessor = {"bufferView": 0, "componentType": 5126, "count": 3, "type": "VEC3"}
    none = {"bufferView": 0, "componentType": 5125, "count": 0, "type": "SCALAR"}
    part = {"attributes": {"POSITION": 0}}
    meshes = [{"primitives": [part, part | {"indices": 1}]}]
    (tmp_path / "b.gltf").write_text(gltf(accessors=[accessor, none], meshes=meshes))
    ((vertices, faces, _),) = draw(tmp_path / "b.gltf")
    np.testing.assert_allclose(vertices[faces[0]], CORNERS)


def test_vertices_without_a_face_are_ignored(tmp_path):
    """trimesh leaves them in PLY files. They need not even be finite."""
    rows = ["nan inf 0", *(" ".join(map(str, corner)) for corner in CORNERS), "3 1 2 3\n"]
    header = ply().partition(b"end_header\n")[0].decode()
    header = header.replace("binary_little_endian", "ascii").replace("vertex 3", "vertex 4")
    (tmp_path / "a.ply").write_text(header + "end_header\n" + "\n".join(rows))
    ((vertices, faces, _),) = draw(tmp_path / "a.ply")
    np.testing.assert_allclose(vertices[faces[0]], CORNERS)


def robot(visuals, collisions=()):
    slide = rbd.joints.Prismatic((1.0, 0.0, 0.0))
    links = [Link("link", link_inertia(1.0, np.zeros(3), np.eye(3)), visuals, collisions)]
    return rbd.build_model(links, [JointSpec("slide", slide, None, "link")])


def test_the_triangles_of_all_shapes_are_counted(monkeypatch):
    box = Geometry(Box((0.5, 0.5, 0.5)))
    monkeypatch.setattr(mesh_limits, "MAX_ROBOT_TRIANGLES", 30)
    for collisions in range(2):  # the collisions too
        model = robot([box] * (3 - collisions), [box] * collisions)
        with pytest.warns(GeometryWarning, match=r"'link': .*36 triangles .*, expected at most 30"):
            drawn = view.drawing(model)
        assert [item.layer for item in drawn.items] == ["visuals", "visuals", "inertias"]
    # A shape that is refused does not count, so the next one is drawn.
    with pytest.warns(GeometryWarning, match="972 triangles"):
        drawn = view.drawing(robot([box, Geometry(Sphere(1.0)), box]))
    assert [len(item.faces) for item in drawn.items[:2]] == [12, 12]
