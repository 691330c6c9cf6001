"""Mesh files from untrusted sources: limits, and files of each type within the limits."""

import base64
import importlib.util
import io
import json
import pathlib
import struct
import zlib

import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import view
from jaxrbd.errors import GeometryWarning
from jaxrbd.model import BoxShape, Geometry, JointSpec, Link, MeshFile, link_inertia
from jaxrbd.view import mesh_limits
from jaxrbd.view.mesh_limits import UnreadableMesh
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


def test_a_shape_beyond_single_precision_is_a_warning():
    model = robot([Geometry(BoxShape((1e39, 1.0, 1.0)))])
    with pytest.warns(
        GeometryWarning, match="link 'link': not drawn: .*a coordinate .* larger than 3.4e.38 m"
    ):
        view.drawing(model)


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
    box = Geometry(BoxShape((1.0, 1.0, 1.0)))
    monkeypatch.setattr(mesh_limits, "MAX_ROBOT_TRIANGLES", 30)
    for collisions in range(2):  # the collisions too
        model = robot([box] * (3 - collisions), [box] * collisions)
        with pytest.warns(GeometryWarning, match=r"'link': .*36 triangles .*, expected at most 30"):
            drawn = view.drawing(model)
        assert [item.layer for item in drawn.items] == ["visuals", "visuals", "inertias"]
