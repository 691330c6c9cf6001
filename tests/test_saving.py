"""Models in files: loaded with the same bits and the same programs, or refused."""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import joints
from jaxrbd.io import _sealed, model_file
from jaxrbd.robots import robot_path
from support import real_robots, zoo
from support.disk import full_disk
from support.zoo import assert_identical


def batch(model):
    """Robots that differ only in their inertias. The other arrays have no batch axis."""
    scales = jnp.arange(1.0, 4.0)[:, None, None]
    return eqx.tree_at(lambda m: m.inertia, model, scales * model.inertia[None])


def odd(model):
    """Values that a text file would lose: a NaN's payload, -0, a subnormal; a name of two lines."""
    bits = np.array([0x7FF8000000000123, 1 << 63, 1], np.uint64)
    gravity = jnp.asarray(bits.view(float))
    return dataclasses.replace(model, gravity=gravity, name="\u00e9\n{} \ud800")


MODELS = {
    "everywhere": zoo.everywhere,
    "connected": zoo.connected,
    "coupled": lambda: zoo.coupled().with_dissipation(),
    "no joint": lambda: rbd.build_model([], []),
    "welded": lambda: rbd.load_robot("arm7"),
    "humanoid": lambda: rbd.load_robot("humanoid"),
    "batch": lambda: batch(zoo.small()),
    "stacked": lambda: jax.tree.map(lambda *x: jnp.stack(x), zoo.chain(3), zoo.chain(3, seed=6)),
    "odd": lambda: odd(zoo.small()),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_comes_back_to_the_bit(name, dtype, tmp_path):
    model = MODELS[name]()
    if dtype == "float32":
        model = model.astype(dtype)
    rbd.io.save_model(model, tmp_path / "robot.jaxrbd")
    found = rbd.io.load_model(tmp_path / "robot.jaxrbd")
    assert_identical(found, model)
    assert repr(found) == repr(model)
    rbd.io.save_model(found, str(tmp_path / "again.jaxrbd"))
    assert (tmp_path / "again.jaxrbd").read_bytes() == (tmp_path / "robot.jaxrbd").read_bytes()


@pytest.mark.parametrize("name", real_robots.mostly_slow())
def test_real_robots_come_back(name, tmp_path):
    model = real_robots.load(name, "free_flyer", name in real_robots.MIMIC)
    rbd.io.save_model(model, tmp_path / "robot.jaxrbd")
    assert_identical(rbd.io.load_model(tmp_path / "robot.jaxrbd"), model)


def test_neither_the_robots_file_nor_any_other_is_needed(tmp_path):
    urdf, saved = tmp_path / "arm.urdf", tmp_path / "arm.jaxrbd"
    urdf.write_bytes(robot_path("arm7").read_bytes())
    rbd.io.save_model(rbd.load_urdf(urdf), saved)
    urdf.unlink()
    assert_identical(rbd.io.load_model(saved), rbd.load_robot("arm7"))


def test_every_joint_kind_can_be_saved():
    """A new kind of `jaxrbd.joints` must also be named in `io/model_file.py`."""
    kinds = {
        name: thing
        for name, thing in vars(joints).items()
        if isinstance(thing, type) and issubclass(thing, joints.Joint) and not name.startswith("_")
    }
    del kinds["Joint"], kinds["Custom"]
    assert kinds == model_file._KINDS


# ------------------------------------------------------------------------------ what is not saved


def test_functions_are_not_saved(tmp_path):
    path = tmp_path / "robot.jaxrbd"
    with pytest.raises(rbd.ArgumentError, match="joint 'j1' is a Custom"):
        rbd.io.save_model(zoo.following(), path)
    links = [
        rbd.model.Link(name, rbd.model.link_inertia(1.0, (0.1, 0.2, 0.3))) for name in ("a", "b")
    ]
    specs = [
        rbd.model.JointSpec("first", joints.Revolute((0, 0, 1)), None, "a"),
        rbd.model.JointSpec(
            "second",
            joints.Revolute((0, 1, 0)),
            "a",
            "b",
            mimic=rbd.model.Follow(("first",), jnp.sum),
        ),
    ]
    with pytest.raises(rbd.ArgumentError, match="joint 'second' follows others by a function"):
        rbd.io.save_model(rbd.build_model(links, specs), path)

    class Own(joints.Revolute):
        pass

    specs[1] = rbd.model.JointSpec("second", Own((0, 1, 0)), "a", "b")
    with pytest.raises(rbd.ArgumentError, match=r"joint 'second' is a Own.*expected one of Revol"):
        rbd.io.save_model(rbd.build_model(links, specs), path)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gravity": jnp.zeros(3, jnp.float32)}, "gravity is float32, expected"),
        ({"gravity": jnp.zeros(2)}, r"gravity has shape \(2,\), expected \(3,\)"),
        ({"gravity": jnp.zeros(())}, r"gravity has shape \(\), expected \(3,\)"),
        ({"damping": None}, "differs from models of build_model"),
        ({"gravity": jnp.zeros((2, 3)), "inertia": jnp.zeros((4, 3, 10))}, "leading axes"),
    ],
)
def test_a_model_that_is_none_is_not_saved(change, message, tmp_path):
    model = zoo.small()
    names = tuple(change)
    wrong = eqx.tree_at(
        lambda m: [getattr(m, name) for name in names],
        model,
        list(change.values()),
        is_leaf=lambda x: x is None,
    )
    with pytest.raises(rbd.ArgumentError, match=message):
        rbd.io.save_model(wrong, tmp_path / "robot.jaxrbd")
    assert not [*tmp_path.iterdir()]


# ----------------------------------------------------------------------------- whole or not at all


@pytest.mark.parametrize("failing", ["fsync", "replace", "write"])
def test_a_write_that_fails_leaves_the_old_file_and_no_litter(failing, tmp_path, monkeypatch):
    path, other = tmp_path / "robot.jaxrbd", zoo.connected()
    rbd.io.save_model(zoo.small(), path)
    before = path.read_bytes()

    def fail(*_):
        assert len([*tmp_path.iterdir()]) == 2, "the new file is beside the old one"
        raise OSError("no space left on device")

    if failing == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    elif failing == "replace":
        monkeypatch.setattr(pathlib.Path, "replace", fail)
    disk = full_disk() if failing == "write" else contextlib.nullcontext()
    with disk, pytest.raises(OSError, match=r"no space|too large") as error:
        rbd.io.save_model(other, path)
    assert error.value.filename == (str(path) if failing == "write" else None)
    assert path.read_bytes() == before
    assert [*tmp_path.iterdir()] == [path]


WRITER = """
import sys
from jaxrbd.io._sealed import write_sealed
print("ready", flush=True)
for i in range(10**6):
    write_sealed(sys.argv[1], "model", 1, {"number": i}, bytes([i % 256]) * 10**6)
"""


def test_a_reader_and_a_crash_see_a_whole_file(tmp_path):
    """One process writes repeatedly, another one reads, and the first one is killed."""
    path = tmp_path / "file"
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        seen = set()
        while len(seen) < 20:
            assert writer.poll() is None
            if path.exists():
                seen.add(_whole(path))
        writer.kill()
    _whole(path)


def _whole(path):
    header, body = _sealed.read_sealed(path, "model", 1)
    assert body == bytes([header["number"] % 256]) * 10**6
    return header["number"]


LEFT = "0123456789abcdef"


def test_what_a_killed_writer_leaves_is_removed_by_the_next(tmp_path):
    """Writers killed during the writing or before the first byte. Files of others stay."""
    path = tmp_path / "robot.jaxrbd"
    command = [sys.executable, "-c", WRITER, str(path)]
    while not (left := [*tmp_path.glob(".robot.jaxrbd.*.tmp")]):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            for _ in range(10_000):
                if [*tmp_path.glob(".robot.jaxrbd.*.tmp")]:
                    break
            writer.kill()
    empty = tmp_path / f".robot.jaxrbd.{LEFT}.tmp"
    empty.write_bytes(b"")
    others = {
        ".robot.jaxrbd.0123.tmp": b"jaxrbd ",  # not a name of a temporary file of jaxrbd
        f".robot.jaxrbd.{LEFT.upper()}.tmp": b"jaxrbd ",
        f".arm.jaxrbd.{LEFT}.tmp": b"jaxrbd model",  # a temporary file of another file
        f".robot.jaxrbd.{LEFT[::-1]}.tmp": b"something else",
        f"robot.jaxrbd.{LEFT}.tmp": b"jaxrbd model",
    }
    for name, content in others.items():
        (tmp_path / name).write_bytes(content)
    rbd.io.save_model(zoo.small(), path)
    assert not any(file.exists() for file in [empty, *left])
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([path.name, *others])
    assert all((tmp_path / name).read_bytes() == content for name, content in others.items())


def test_writers_at_once_leave_each_others_new_files(tmp_path, monkeypatch):
    """While one writer is active, another one saves and removes remains of killed writers."""
    pytest.importorskip("fcntl")
    path, fsync, seen = tmp_path / "robot.jaxrbd", os.fsync, []

    def save_in_between(descriptor):
        if not seen:
            seen.append(None)
            command = [sys.executable, "-c", WRITER.replace("10**6):", "3):"), str(path)]
            subprocess.run(command, check=True, capture_output=True, timeout=60)
            seen.extend(tmp_path.glob(".robot.jaxrbd.*.tmp"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", save_in_between)
    rbd.io.save_model(zoo.small(), path)
    assert len(seen) == 2, "the new file of this writer is still there when the other has ended"
    assert_identical(rbd.io.load_model(path), zoo.small())
    assert [*tmp_path.iterdir()] == [path]


def test_a_new_file_that_another_removed_before_it_was_locked_is_made_again(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    flock, removed = fcntl.flock, []

    def remove_first(file, how):
        if not removed:
            removed.extend(tmp_path.iterdir())
            removed[0].unlink()
        return flock(file, how)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    rbd.io.save_model(zoo.small(), tmp_path / "robot.jaxrbd")
    assert len(removed) == 1
    assert [*tmp_path.iterdir()] == [tmp_path / "robot.jaxrbd"]


def test_a_link_stays_a_link_and_a_new_file_has_the_usual_mode(tmp_path):
    target, link, plain = tmp_path / "target", tmp_path / "link", tmp_path / "plain"
    plain.write_bytes(b"")
    link.symlink_to(target)
    rbd.io.save_model(zoo.small(), link)
    assert link.is_symlink()
    assert target.stat().st_mode == plain.stat().st_mode
    target.chmod(0o600)
    rbd.io.save_model(zoo.small(), link)
    assert target.stat().st_mode & 0o777 == 0o600
    with pytest.raises(rbd.ArgumentError, match="expected the path of a file"):
        rbd.io.save_model(zoo.small(), "a\0b")
    assert_identical(rbd.io.load_model(link), zoo.small())


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        rbd.io.save_model(zoo.small(), tmp_path / "nowhere" / "robot.jaxrbd")


# ----------------------------------------------------------------------------------- refused files


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> bytes:
    """The saved file of a robot with joints that follow others."""
    path = tmp_path_factory.mktemp("saved") / "file"
    rbd.io.save_model(zoo.coupled(), path)
    return path.read_bytes()


def refused(data: bytes, message: str, tmp_path) -> None:
    path = tmp_path / "robot.jaxrbd"
    path.write_bytes(data)
    with pytest.raises(rbd.SavedFileError, match=message) as error:
        rbd.io.load_model(path)
    assert str(error.value).startswith(f"{path}: ")
    assert error.value.file == str(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"\x80\x04\x95 a pickle", "not a file that jaxrbd saved"),
        (b"<robot name='r'/>", "not a file that jaxrbd saved"),
        (b"\0" * 5000, "not a file that jaxrbd saved"),
        (b"jaxrbd model one 12 ab\n{}", "its first line is truncated or altered"),
        (b"jaxrbd model 1 12\n{}", "its first line is truncated or altered"),
        (b"jaxrbd " + b"x" * 10**5, "its first line is truncated or altered"),
        (b"jaxrbd model 0 2 00\n{}", "version 0 of the format: the first version is 1"),
        (b"jaxrbd program 1 2 00\n{}", "it holds a 'program', expected a 'model'"),
        (b"jaxrbd model 6 2 00\n{}", "version 6 .* needs a newer jaxrbd: this one reads 5"),
    ],
)
def test_a_foreign_file(data, message, tmp_path):
    refused(data, message, tmp_path)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(rbd.SavedFileError, match=r"nowhere: the file cannot be read: No such file"):
        rbd.io.load_model(tmp_path / "nowhere")
    with pytest.raises(rbd.SavedFileError, match="the file cannot be read"):
        rbd.io.load_model(tmp_path)


def test_every_truncation_and_every_altered_byte_is_refused(saved, tmp_path):
    data = saved
    draw = random.Random(0)
    start = data.index(b"\n") + 1
    for length in {*range(start + 3), *draw.sample(range(len(data)), 100), len(data) - 1}:
        message = "truncated" if length >= start else "empty|truncated|not a file"
        refused(data[:length], message, tmp_path)
    for place in {*range(start), *draw.sample(range(len(data)), 300)}:
        altered = bytearray(data)
        altered[place] ^= 1 << draw.randrange(8)
        refused(bytes(altered), ".", tmp_path)
    refused(data + b"\0", "altered", tmp_path)


def test_another_version_in_the_first_line_is_refused(saved, tmp_path):
    """The checksum does not contain the first line."""
    older = saved.replace(b"jaxrbd model 5 ", b"jaxrbd model 4 ", 1)
    assert older != saved
    refused(older, "altered: the version of its first line differs", tmp_path)


def sealed(header, body) -> bytes:
    """A file with any content and a correct checksum."""
    content = json.dumps(header).encode() + b"\n" + body
    digest = hashlib.sha256(content).hexdigest()
    return f"jaxrbd model 5 {len(content)} {digest}\n".encode() + content


@pytest.fixture
def contents(saved):
    """The header of that file, as a dictionary, and its body."""
    _, line, body = saved.split(b"\n", 2)
    return json.loads(line), body


def put(*path):
    """A change of the header: the last item of `path` replaces the entry at the other items."""

    def change(header):
        *way, entry, value = path
        for key in way:
            header = header[key]
        header[entry] = value

    return change


UNTRUE = {
    "its header has not the form": put("name", None),
    "entry 1 of its joints has not the form": put("joints", 1, {"name": "j"}),
    "entry 0 of its frames has not the form": put("frames", 0, "body", True),
    "entry 2 of its arrays has not the form": put("arrays", 2, []),
    "its arrays are 'float16', expected": put("dtype", "float16"),
    "'inertia' has shape .*-10": put("arrays", 2, "shape", [7, -10]),
    "'inertia' has 65 axes": put("arrays", 2, "shape", [1] * 63 + [7, 10]),
    r"'inertia' has shape .*1.5": put("arrays", 2, "shape", [7, 1.5]),
    r"inertia has shape \(70,\), expected \(7, 10\)": put("arrays", 2, "shape", [70]),
    "its arrays are .* bytes, but": put("arrays", 2, "shape", [2, 7, 10]),
    "its arrays are .*spin.*, expected": put("arrays", 2, "name", "spin"),
    r"joints.1.axis has shape \(3, 3\), expected \(2, 3\)": put("joints", 5, "kind", "Prismatic"),
    "its arrays are .*, expected .*": put("joints", 6, "kind", "Prismatic"),
    "two of its arrays": put("arrays", 2, "name", "placement.R"),
    "joint 'j6' is of the unknown kind 'Custom'; known: Revolute": put(
        "joints", 4, "kind", "Custom"
    ),
    "joint 'j6' is of the unknown kind '__reduce__'": put("joints", 4, "kind", "__reduce__"),
    r"body 3 has parent 3: expected one in \[-1, 3\)": put("joints", 3, "parent", 3),
    "body 3 has parent -2": put("joints", 3, "parent", -2),
    "two of its joints have the same name": put("joints", 3, "name", "j2"),
    "two of its bodies have the same name": put("joints", 3, "body", "l2"),
    "two of its frames have the same name": put("frames", 3, "name", "l2"),
    "frame 'l3' is on body 7 of 7": put("frames", 2, "body", 7),
    "frame 'l3' is on body -2": put("frames", 2, "body", -2),
    "joint 'j3' follows joint 9, expected an independent one": put("joints", 2, "leader", 9),
    "joint 'j3' follows joint 6, expected an independent one": put("joints", 2, "leader", 6),
    "joint 'j3' follows joint 0: expected one dof each": put("joints", 2, "leader", 0),
    "joint 'j5' follows joint 1: expected one dof each": put("joints", 3, "leader", 1),
}


@pytest.mark.parametrize("message", UNTRUE)
def test_a_header_that_is_not_true_is_refused(message, contents, tmp_path):
    header, body = contents
    UNTRUE[message](header)
    refused(sealed(header, body), message, tmp_path)


def test_a_header_that_is_none(contents, tmp_path):
    header, body = contents
    for data in (b"[1", b"\xff", b"[" * 10**5):
        content = data + b"\n"
        digest = hashlib.sha256(content).hexdigest()
        seal = f"jaxrbd model 5 {len(content)} {digest}\n".encode()
        refused(seal + content, "its header is not JSON", tmp_path)
    refused(sealed([header], body), "its header is not an object", tmp_path)
    refused(sealed(header, body[:-8]), "its arrays are .* bytes, but", tmp_path)
    refused(sealed(header, body + b"12345678"), "its arrays are .* bytes, but", tmp_path)


# -------------------------------------------------------------------------------------- precision


def test_a_model_is_cast_on_request(tmp_path):
    path = tmp_path / "robot.jaxrbd"
    model = zoo.small()
    rbd.io.save_model(model, path)
    assert_identical(rbd.io.load_model(path, dtype="float32"), model.astype("float32"))
    rbd.io.save_model(model.astype("float32"), path)
    assert_identical(
        rbd.io.load_model(path, dtype=np.float64), model.astype("float32").astype("float64")
    )
    swapped = rbd.io.load_model(path, dtype=np.dtype(np.float32).newbyteorder())
    assert_identical(swapped, model.astype("float32"))
    with pytest.raises(rbd.ArgumentError, match="dtype is float16, expected float32 or float64"):
        rbd.io.load_model(path, dtype="float16")


def test_doubles_are_not_made_singles_in_silence(tmp_path):
    path = tmp_path / "robot.jaxrbd"
    rbd.io.save_model(zoo.small(), path)
    with jax.enable_x64(False):
        with pytest.raises(rbd.ArgumentError, match=r"robot.jaxrbd: .*jax_enable_x64"):
            rbd.io.load_model(path)
        assert rbd.io.load_model(path, dtype="float32").dtype == np.float32


@pytest.mark.parametrize("version", [1, 2])
def test_files_of_older_versions_have_no_masses_on_the_world(version, tmp_path):
    """Every other array is read as it was saved, also for a batch of models."""
    base = rbd.model.Link("base", zoo.random_inertia(np.random.default_rng(0)))
    tip = rbd.model.Link("tip", zoo.random_inertia(np.random.default_rng(1)))
    weld = rbd.model.JointSpec("w", rbd.model.Fixed(), None, "base")
    hinge = rbd.model.JointSpec("j", rbd.joints.Revolute((0.0, 0.0, 1.0)), "base", "tip")
    model = rbd.build_model([base, tip], [weld, hinge])
    assert model.fixed_inertia[0, 0] > 0
    stacked = jax.tree.map(lambda *x: jnp.stack(x), model, model.with_mass("tip", 2.0))
    for robot in (model, batch(model), stacked):
        path = tmp_path / "old"
        rbd.io.save_model(robot, path)
        header, body = _sealed.read_sealed(path, "model", model_file.VERSION)
        arrays, parts, start = header["arrays"], [], 0
        for array in arrays:
            end = start + 8 * int(np.prod(array["shape"]))
            if array["name"] != "fixed_inertia":
                parts.append(body[start:end])
            start = end
        header["arrays"] = [array for array in arrays if array["name"] != "fixed_inertia"]
        if version == 1:
            del header["geometry"]
        _sealed.write_sealed(path, "model", version, header, b"".join(parts))
        loaded = rbd.io.load_model(path)
        zeros = jnp.zeros((*robot.inertia.shape[:-2], 1, 10))
        expected = eqx.tree_at(lambda m: m.fixed_inertia, robot, zeros)
        assert_identical(loaded, expected)


def test_the_file_is_what_the_document_says(tmp_path):
    """A file can be read with numpy and json alone, as docs/developers/model_files.md shows."""
    model = zoo.connected()
    rbd.io.save_model(model, tmp_path / "robot.jaxrbd")
    docs = pathlib.Path(__file__).parents[1] / "docs"
    document = docs / "developers" / "model_files.md"
    (recipe,) = [
        text.partition("```")[0]
        for text in document.read_text().split("```python\n")[1:]
        if "frombuffer" in text
    ]
    names = {}
    exec(recipe.replace("robot.jaxrbd", str(tmp_path / "robot.jaxrbd")), names)
    arrays = names["arrays"]
    for found, expected in (
        (arrays["inertia"], model.inertia),
        (arrays["placement.R"], model.placement.R),
        (arrays["joints.1.axis"], model.joints[1].axis),
    ):
        np.testing.assert_array_equal(found, expected)
    assert len(arrays) == len(jax.tree.leaves(model))
