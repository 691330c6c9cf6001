"""Limits of mesh files, which are checked before a library reads the file.

A robot file from an untrusted source can name any mesh file. A short file can state a scene of
millions of copies, or a picture of billions of pixels. So the checks compute the size of the scene
from the header, the text, the XML or the JSON of the file. They raise UnreadableMesh, which names
the limit, if the scene is too large.
"""

from __future__ import annotations

import base64
import io
import json
import re
import struct
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import JaxRBDError
from ._xml import large_root

MAX_BYTES = 2**26  # of a mesh file, and of all files together that it names
MAX_TRIANGLES = 1_000_000  # with the copies of a scene
MAX_ROBOT_TRIANGLES = 5_000_000  # of all shapes of a robot
MAX_NODES = 10_000  # of a scene, with copies: nodes, and parts with triangles
MAX_DEPTH = 64  # levels of nodes in nodes
MAX_MATERIALS = 1000  # of an OBJ file
MAX_PIXELS = 2**26  # of a texture, and of all textures that give the colours of a file

PICTURES = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "TGA")
_COMPRESSED = ("KHR_draco_mesh_compression", "EXT_meshopt_compression")
_COMPONENTS = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4, "MAT2": 4, "MAT3": 9, "MAT4": 16}
_PLY_BYTES = {
    **dict.fromkeys(("char", "uchar", "int8", "uint8"), 1),
    **dict.fromkeys(("short", "ushort", "int16", "uint16", "float16"), 2),
    **dict.fromkeys(("int", "uint", "int32", "uint32", "float", "float32"), 4),
    **dict.fromkeys(("double", "float64", "int64", "uint64"), 8),
}


class UnreadableMesh(JaxRBDError):
    """A mesh file that is missing, damaged, without triangles or too large."""


class NamedFiles:
    """The files that a mesh file names, such as textures, in the form of a resolver of trimesh.

    A file must be in the folder of the mesh file or below. trimesh ignores the errors of textures,
    so the first error about a limit is kept in `fault`, and the caller raises it.
    """

    def __init__(self, mesh: Path):
        self.file_name = mesh.name
        self.fault: UnreadableMesh | None = None
        self._folder = mesh.parent.resolve()
        self._known: dict[Path, bytes] = {}

    def get(self, name: str) -> bytes:
        """The content of a file.

        Raises FileNotFoundError if no such file is in the folder of the mesh file or below, and
        UnreadableMesh for a file beyond a limit.
        """
        for candidate in (name.strip(), name.strip().lstrip("/"), re.split(r"[/\\]", name)[-1]):
            path = (self._folder / candidate).resolve()
            if path.is_relative_to(self._folder) and path.is_file():
                return self._read(path)
        raise FileNotFoundError(name)

    __getitem__ = get

    def _read(self, path: Path) -> bytes:
        if path not in self._known:
            try:
                size = path.stat().st_size + sum(map(len, self._known.values()))
                check_limit(size, MAX_BYTES, f"bytes in the files that it names, with {path.name}")
                data = path.read_bytes()
                if path.suffix.lower() not in (".bin", ".mtl"):
                    check_picture(data, path.name)
            except UnreadableMesh as error:
                self.fault = self.fault or error
                raise
            self._known[path] = data
        return self._known[path]


def checked_data(path: Path, files: NamedFiles) -> bytes:
    """The content of a mesh file for trimesh, after the checks.

    The materials of a glTF scene keep only their names and base colours.
    """
    kind = path.suffix.lower()
    if kind not in _CHECKS:
        raise UnreadableMesh(
            f"its file type {path.suffix!r} has no reader, expected one of {', '.join(_CHECKS)}"
        )
    check_limit(path.stat().st_size, MAX_BYTES, "bytes")
    data = path.read_bytes()
    return _CHECKS[kind](data, files)


def check_limit(found: int | float, limit: int, what: str) -> None:
    """Raise UnreadableMesh if `found` is more than the limit."""
    if not found <= limit:
        raise UnreadableMesh(f"it has {found:,} {what}, expected at most {limit:,}")


def check_coordinates(x: np.ndarray) -> None:
    """Raise UnreadableMesh for a coordinate that viewers cannot state in single precision."""
    largest = np.finfo(np.float32).max
    if not np.all(np.abs(x) <= largest):
        raise UnreadableMesh(
            f"it has a coordinate that is not finite or larger than {largest:.1e} m"
        )


def check_picture(data: bytes, name: str) -> None:
    """Raise UnreadableMesh for a picture with too many pixels; its header states their number."""
    try:
        from PIL import Image
    except ImportError:  # then no texture is read
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=PICTURES) as picture:
                pixels = picture.width * picture.height
    except Image.DecompressionBombError:
        raise UnreadableMesh(
            f"its texture {name} has more pixels than PIL reads, expected at most {MAX_PIXELS:,}"
        ) from None
    except Exception:  # no picture, or a damaged one: it has no colours
        return
    check_limit(pixels, MAX_PIXELS, f"pixels in its texture {name}")


# ---------------------------------------------------------------------- STL, OBJ and PLY


def _check_stl(data: bytes, files: NamedFiles) -> bytes:
    del files
    count = int.from_bytes(data[80:84], "little") if len(data) >= 84 else 0
    if len(data) != 84 + 50 * count:  # no binary file, but a text
        count = data.lower().count(b"endfacet")
    check_limit(count, MAX_TRIANGLES, "triangles")
    return data


def _check_obj(data: bytes, files: NamedFiles) -> bytes:
    del files
    data = data.replace(b"\r\n", b"\n").replace(b"\\\n", b"")
    # trimesh skips vertices and faces with a blank before the first word, or with a tab after it.
    data = re.sub(
        rb"^(?:[ \t]+(v|vt|vn|f)[ \t]|(v|vt|vn|f)\t)", rb"\1\2 ", data, flags=re.MULTILINE
    )
    lines = data.split(b"\n")

    def polygons() -> Iterator[list[bytes]]:
        """The corners of each polygon. A list of all corners could be large before the check."""
        return (line.split()[1:] for line in lines if line.startswith(b"f"))

    # A polygon of n corners has n - 2 triangles.
    check_limit(sum(max(len(corners) - 2, 0) for corners in polygons()), MAX_TRIANGLES, "triangles")
    # trimesh would read the number 0 as the last vertex.
    if any(corner.split(b"/")[0] == b"0" for corners in polygons() for corner in corners):
        raise UnreadableMesh("a face has the vertex 0, expected numbers from 1")
    materials = len(set(re.findall(rb"usemtl ([^\n]*)", data)))
    check_limit(materials, MAX_MATERIALS, "materials")
    # trimesh makes an array of all vertices for each material.
    vertices = sum(line.startswith(b"v ") for line in lines)
    check_limit(materials * vertices, 1000 * MAX_TRIANGLES, "materials times vertices")
    return data


def _check_ply(data: bytes, files: NamedFiles) -> bytes:
    """The header states the counts. trimesh takes the length of the first list for all lists."""
    del files
    end = re.search(rb"^.*end_header.*\n", data, re.MULTILINE)
    if end is None:
        raise UnreadableMesh("it has no header of a PLY file that ends in end_header")
    header = [line.split() for line in data[: end.start()].decode("utf-8", "replace").split("\n")]
    binary = not any(words[:1] == ["format"] and "ascii" in words[1] for words in header)
    order = "big" if any("big" in word for words in header[:2] for word in words) else "little"
    elements: list[tuple[int, list[list[str]]]] = []
    for words in header:
        if words[:1] == ["element"]:
            elements.append((int(words[2]), []))
            check_limit(elements[-1][0], 3 * MAX_TRIANGLES, f"elements {words[1]}")
        elif words[:1] == ["property"]:
            elements[-1][1].append(words[1:])
    if not binary:  # one line per element
        found = sum(bool(line.strip()) for line in data[end.end() :].split(b"\n"))
        stated = sum(count for count, _ in elements)
        if found < stated:
            raise UnreadableMesh(f"it has {found} elements, expected {stated}, as its header says")
    place = end.end()
    for count, properties in elements if binary else ():
        size = 0
        for words in properties:
            if words[0] != "list":
                size += _PLY_BYTES[words[0]]
                continue
            start = place + size
            prefix = _PLY_BYTES[words[1]]
            length = int.from_bytes(data[start : start + prefix], order)  # type: ignore[arg-type]
            check_limit(count * length, 3 * MAX_TRIANGLES, f"entries in the lists {words[-1]}")
            size += prefix + length * _PLY_BYTES[words[2]]
        place += count * size
    return data


# ------------------------------------------------------------------------------- COLLADA


def _check_dae(data: bytes, files: NamedFiles) -> bytes:
    """Check the numbers of nodes and triangles, with copies, and the unit and the vertices.

    A node can contain instances of other nodes, so a short file can have many copies.
    """
    del files
    root = large_root(data)
    if (unit := next(_named(root, "unit"), None)) is not None:
        meter = unit.get("meter", "1")
        try:
            length = float(meter)
        except ValueError:
            length = np.nan
        if not (np.isfinite(length) and length > 0):
            raise UnreadableMesh(f'<unit meter="{meter}">: expected a positive finite length')
    triangles: dict[str, int] = {}
    for geometry in _named(root, "geometry"):
        name = geometry.get("id", "")
        triangles[name] = max(triangles.get(name, 0), _dae_triangles(geometry))
    # trimesh drops vertices of a COLLADA file that are not finite, so they are refused here.
    positions = {
        entry.get("source", "").removeprefix("#")
        for entry in _named(root, "input")
        if entry.get("semantic") == "POSITION"
    }
    for source in _named(root, "source"):
        if source.get("id", "") in positions:
            for values in _named(source, "float_array"):
                check_coordinates(np.array((values.text or "").split(), float))
    nodes: dict[str, list[Any]] = {}
    for node in _named(root, "node"):
        nodes.setdefault(node.get("id", ""), []).append(node)
    known: dict[Any, tuple[int, int]] = {}

    def size(element: Any, depth: int) -> tuple[int, int]:
        """The numbers of nodes and triangles in a node and in all nodes below, with copies."""
        if element in known:
            count, total = known[element]
            if count < 0:
                raise UnreadableMesh(f"its node {element.get('id')!r} contains itself")
            return count, total
        check_limit(depth, MAX_DEPTH, "levels of nodes")
        known[element] = (-1, 0)  # its size is being computed
        count, total = 1, 0
        for child in element:
            tag, url = _tag(child), (child.get("url") or "").removeprefix("#")
            found = {"node": [child], "instance_node": nodes.get(url, [])}.get(tag, [])
            sizes = [size(node, depth + 1) for node in found]
            # If several nodes have the id of an instance, the largest one counts.
            count += max((n for n, _ in sizes), default=0)
            total += max((n for _, n in sizes), default=0)
            if tag == "instance_geometry":
                count += 1 + sum(1 for _ in _named(child, "instance_material"))
                total += triangles.get(url, 0)
        known[element] = count, total
        return count, total

    for scene in _named(root, "visual_scene"):
        count, total = size(scene, 0)
        check_limit(count, MAX_NODES, "nodes, with copies")
        check_limit(total, MAX_TRIANGLES, "triangles, with copies")
    return data


def _dae_triangles(geometry: Any) -> int:
    """An upper bound of the number of triangles of a geometry, from the number of its indices."""
    total = 0
    for kind in ("triangles", "polylist", "polygons", "tristrips", "trifans"):
        for primitive in _named(geometry, kind):
            offsets = [int(x.get("offset", "0")) for x in _named(primitive, "input")]
            entries = sum(len((p.text or "").split()) for p in _named(primitive, "p"))
            corners = entries // (max(offsets, default=0) + 1)
            total += corners // 3 if kind == "triangles" else corners
            for counts in _named(primitive, "vcount"):
                stated = sum(abs(int(x)) for x in (counts.text or "").split())
                check_limit(stated, corners, f"corners in <vcount> of <{kind}>")
    return total


def _tag(element: Any) -> str:
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _named(element: Any, tag: str) -> Any:
    """The element and its descendants that have this tag, in any namespace."""
    return element.iter(f"{{*}}{tag}")


# ---------------------------------------------------------------------------------- glTF


def _check_gltf(data: bytes, files: NamedFiles) -> bytes:
    return _json_bytes(_checked_tree(json.loads(data), b"", files))


def _check_glb(data: bytes, files: NamedFiles) -> bytes:
    magic, version, _, length, kind = struct.unpack("<4sIII4s", data[:20])
    if (magic, version, kind) != (b"glTF", 2, b"JSON"):
        raise UnreadableMesh("it does not begin with the header of a GLB file of version 2")
    rest = data[20 + length :]  # the binary chunk, which begins with a header of 8 bytes
    text = _json_bytes(_checked_tree(json.loads(data[20 : 20 + length]), rest[8:], files))
    text += b" " * (-len(text) % 4)
    size = 20 + len(text) + len(rest)
    return struct.pack("<4sIII4s", b"glTF", 2, size, len(text), b"JSON") + text + rest


def _json_bytes(tree: dict) -> bytes:
    """The checked scene as JSON in ASCII, so that trimesh reads the scene that was checked."""
    return json.dumps(tree).encode("ascii")


def _checked_tree(tree: dict, binary: bytes, files: NamedFiles) -> dict:
    """The JSON of a glTF file after the checks; `binary`: the buffer in a GLB file."""
    accessors, views, meshes = (tree.get(key, []) for key in ("accessors", "bufferViews", "meshes"))
    entries = sum(abs(a["count"]) * _COMPONENTS[a["type"]] for a in accessors)
    check_limit(entries, 100 * MAX_TRIANGLES, "entries in its accessors")
    check_limit(sum(abs(v["byteLength"]) for v in views), 2 * MAX_BYTES, "bytes in its views")
    sizes = [_mesh_size(mesh["primitives"], accessors) for mesh in meshes]
    parts, triangles, vertices = np.array([(0, 0, 0), *sizes], object).sum(axis=0)
    check_limit(parts, MAX_NODES, "parts")
    check_limit(vertices, 10 * MAX_TRIANGLES, "vertices in its parts")
    check_limit(triangles, MAX_TRIANGLES, "triangles")
    _check_nodes(tree, sizes)
    _check_pictures(tree, binary, files)
    for material in tree.get("materials", []):
        _use_base_color(material)
    return tree


def _mesh_size(primitives: list[dict], accessors: list[dict]) -> tuple[int, int, int]:
    """The numbers of parts, triangles and vertices of a mesh."""
    triangles = vertices = 0
    for primitive in primitives:
        if packed := set(_COMPRESSED) & set(primitive.get("extensions", {})):
            raise UnreadableMesh(f"it is compressed by {min(packed)}, which has no reader")
        points = abs(accessors[primitive["attributes"]["POSITION"]]["count"])
        indices = primitive.get("indices")
        corners = points if indices is None else abs(accessors[indices]["count"])
        triangles += corners // 3 if primitive.get("mode", 4) == 4 else corners
        vertices += points
    return len(primitives), triangles, vertices


def _check_nodes(tree: dict, sizes: list[tuple[int, int, int]]) -> None:
    """Check that the nodes are a forest, as the format requires, and count what they draw.

    In a forest, each node is drawn at most once.
    """
    nodes = tree.get("nodes", [])
    check_limit(len(nodes), MAX_NODES, "nodes")
    children = [child for node in nodes for child in node.get("children", [])]
    roots = [root for scene in tree.get("scenes", []) for root in scene.get("nodes", [])]
    check_limit(len(roots), MAX_NODES, "nodes in its scenes")
    if len(set(children)) < len(children):
        raise UnreadableMesh("one of its nodes has two parents")
    drawn = [sizes[node["mesh"]] for node in nodes if "mesh" in node]
    parts, triangles, _ = np.array([(0, 0, 0), *drawn], object).sum(axis=0)
    check_limit(parts, MAX_NODES, "parts, with copies")
    check_limit(triangles, MAX_TRIANGLES, "triangles, with copies")
    level, depth, seen = set(range(len(nodes))) - set(children), 0, 0
    while level:
        check_limit(depth, MAX_DEPTH, "levels of nodes")
        seen += len(level)
        level = {child for node in level for child in nodes[node].get("children", [])}
        depth += 1
    if seen < len(nodes):
        raise UnreadableMesh("one of its nodes contains itself")


def _check_pictures(tree: dict, binary: bytes, files: NamedFiles) -> None:
    """Check the pictures in buffers and in data URIs; `files` checks pictures in other files."""
    buffers: dict[int, bytes] = {}
    for number, picture in enumerate(tree.get("images", [])):
        if "bufferView" in picture:
            view = tree["bufferViews"][picture["bufferView"]]
            which = view["buffer"]
            if which not in buffers:
                uri = tree["buffers"][which].get("uri")
                buffers[which] = binary if uri is None else _content(uri, files)
            start = view.get("byteOffset", 0)
            check_picture(buffers[which][start : start + view["byteLength"]], f"{number}")
        elif "base64," in picture.get("uri", ""):
            check_picture(_content(picture["uri"], files), f"{number}")


def _content(uri: str, files: NamedFiles) -> bytes:
    _, found, text = uri.partition("base64,")
    return base64.b64decode(text) if found else files.get(uri)


def _use_base_color(material: dict) -> None:
    """Delete all properties of a material except its name and its base colour.

    A diffuse colour of KHR_materials_pbrSpecularGlossiness becomes the base colour.
    """
    gloss = material.get("extensions", {}).get("KHR_materials_pbrSpecularGlossiness", {})
    base = material.get("pbrMetallicRoughness", {})
    kept = {
        "baseColorFactor": gloss.get("diffuseFactor", base.get("baseColorFactor")),
        "baseColorTexture": gloss.get("diffuseTexture", base.get("baseColorTexture")),
    }
    name = {key: material[key] for key in ("name",) if key in material}
    material.clear()
    material.update(name)
    material["pbrMetallicRoughness"] = {key: x for key, x in kept.items() if x is not None}


_CHECKS: dict[str, Callable[[bytes, NamedFiles], bytes]] = {
    ".stl": _check_stl,
    ".obj": _check_obj,
    ".dae": _check_dae,
    ".glb": _check_glb,
    ".gltf": _check_gltf,
    ".ply": _check_ply,
}
