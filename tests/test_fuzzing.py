"""Damaged files: each raises an error that names the file, or loads as a model of finite values.

The number of a case is the seed of the choice of a sound file and of a few changes to it. A failure
shows the call that makes the damaged file again.
"""

import contextlib
import copy
import hashlib
import json
import random
import re
import signal
import threading
import time
import warnings

import jax
import lxml.etree as etree
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd.robots import robot_path
from support import zoo
from support.urdf_text import EVERYTHING
from support.zoo import assert_identical

FEW = [*range(100), 593, 1186]  # 593: a large shape without entries; 1186: a long name
MANY = range(100, 2100)
# Loading takes milliseconds. The limit is for a machine under load.
LIMIT = 10.0  # s


@contextlib.contextmanager
def no_hang():
    """Fail after `LIMIT`: by an alarm, or at the end of the work if the system has no alarms."""
    alarms = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()

    def ring(*_):
        raise TimeoutError(f"not done after {LIMIT} s")

    start = time.monotonic()
    before = signal.signal(signal.SIGALRM, ring) if alarms else None
    try:
        if alarms:
            signal.setitimer(signal.ITIMER_REAL, LIMIT)
        yield
    finally:
        if alarms:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - start < LIMIT


def share_of_loaded(cases, load, recipe) -> float:
    """The share of the cases for which `load(case)` is true.

    An exception gets a note with the number of the case, and how to make its file again.
    """
    loaded = 0
    for case in cases:
        try:
            loaded += load(case)
        except Exception as error:
            error.add_note(f"case {case}: {recipe}")
            raise
    return loaded / len(cases)


# ------------------------------------------------------------------------------------------- URDF

NUMBERS = """
    nan NaN inf -inf 1e999 -1e999 -0 0 1e308 -1e308 1e200 -1e200 1e155 1e39 -1e39 1e20 1e-20 1e-46
    5e-324 1e-320 0x10 1_000 1,5 1e +-1 --1 1f 1e99999999999999 -1 3.14159 1e-9 pi 0.1. .5 5.
""".split()
# Numbers within the range of double precision. Results computed from them may be outside of it.
EXTREME = "-0 0 1e308 -1e308 1e200 -1e200 1e155 1e39 1e20 1e-20 1e-46 5e-324 1e-160 -1 1 7".split()
NUMERIC = "origin mass inertia axis limit dynamics mimic".split()
NUMERIC += "box sphere cylinder capsule mesh color".split()
NUMBERS += ["", " ", "1 2", "0 0 0", "\u0661", "\u00bd", "\u221e", "9" * 400, "0" * 5000 + "1"]
NAMES = ["", " ", "\t", "world", "root_joint", "root_joint_", "universe", "${x}", "$(find x)"]
NAMES += ["a" * 300, "\u00e9\u202e\U0001f916", "name", "'", '"', "<", "&amp;", "..", "shoulder"]
TAGS = (
    "robot link joint inertial origin mass inertia axis limit dynamics mimic parent child".split()
)
TAGS += "visual collision geometry box sphere cylinder capsule mesh material color".split()
ATTRIBUTES = """
    size radius length filename scale rgba
    name type link joint xyz rpy quat_xyzw value ixx ixy izz lower upper effort velocity damping
    friction multiplier offset version
""".split()
SCRAPS = [
    "<",
    ">",
    "</",
    "/>",
    '"',
    "&",
    "&amp;",
    "&#0;",
    "&#x1F916;",
    "&who;",
    "<!--",
    "-->",
    "--",
]
SCRAPS += ["<![CDATA[", "]]>", "<?", "?>", "<a>" * 300, "\0", "\x0b", "\ud800", "\ufeff", "\r", " "]
SCRAPS += ["<link/>", '<link name="x"/>', "<joint/>", "xmlns='u'", "xmlns:xacro='x'", "<xacro:if/>"]
DOCTYPES = [
    "<!DOCTYPE robot>",
    '<!DOCTYPE r [<!ENTITY x "0 0 1">]>',
    '<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
    '<!DOCTYPE r [<!ENTITY % x SYSTEM "file:///etc/passwd"> %x;]>',
    '<!DOCTYPE r [<!ATTLIST link name CDATA "x">]>',
]
PROLOGS = ["", "<!-- x -->", "<!-- a\nb -->\n", "<?pi?>\n", "<?pi a\nb?>", " \n\t", "<!--\n-->" * 9]


def sound_urdfs() -> list[str]:
    return [EVERYTHING, EVERYTHING, EVERYTHING] + [
        robot_path(name).read_text() for name in ("arm7", "cart_pole", "quadruped")
    ]


def nasty(draw: random.Random, root: etree._Element) -> str:
    """A value for an attribute: numbers, a name, or the value of another attribute."""
    kind = draw.randrange(5)
    if kind == 0:
        return draw.choice(NAMES)
    if kind == 1:
        element = draw.choice([*root.iter("*")])
        return draw.choice([*element.attrib.values(), ""])
    count = draw.choice((1, 1, 3, 3, 3, 2, 4, 6))
    return " ".join(draw.choice(NUMBERS) for _ in range(count if kind == 2 else 1))


def change_tree(draw: random.Random, root: etree._Element) -> None:
    """One change of an element or of an attribute, in place."""
    elements = [*root.iter("*")]
    element, other = draw.choice(elements), draw.choice(elements)
    parent = element.getparent()
    change = draw.randrange(16)
    if change == 0 and parent is not None:
        parent.remove(element)
    elif change == 1 and parent is not None:
        parent.insert(draw.randrange(len(parent) + 1), copy.deepcopy(element))
    elif change == 2:
        other.append(copy.deepcopy(element))
    elif change == 3 and parent is not None and other is not root:
        first, second = copy.deepcopy(element), copy.deepcopy(other)
        other.getparent().replace(other, first)
        if element.getparent() is not None:
            element.getparent().replace(element, second)
    elif change == 4:
        element.tag = draw.choice(TAGS)
    elif change == 5 and len(element.attrib):
        del element.attrib[draw.choice([*element.attrib])]
    elif change == 6 and len(element.attrib):
        value = element.attrib.pop(draw.choice([*element.attrib]))
        element.set(draw.choice(ATTRIBUTES), value)
    elif change == 7:
        element.set(draw.choice(ATTRIBUTES), storable(nasty(draw, root)))
    elif change == 8:
        element.append(draw.choice((etree.Comment("x"), etree.PI("pi", "x"))))
        element.text = draw.choice(("", "text", "1 2 3"))
    elif change in (9, 10) and len(element.attrib):
        element.set(draw.choice([*element.attrib]), storable(nasty(draw, root)))
    elif change > 10:
        element = draw.choice([x for x in elements if x.tag in NUMERIC and len(x.attrib)] or [root])
        name = draw.choice([*element.attrib] or ["version"])
        words = element.get(name, "").split() or [""]
        words[draw.randrange(len(words))] = draw.choice(EXTREME)
        element.set(name, " ".join(words))


def storable(text: str) -> str:
    return re.sub("[\0-\x08\x0b-\x1f\ud800-\udfff]", "?", text)


def change_text(draw: random.Random, text: str) -> str:
    """One change of the text. The result may no longer be XML."""
    start, end = sorted(draw.randrange(len(text) + 1) for _ in range(2))
    change = draw.randrange(7)
    if change == 0:
        return text[:start] + draw.choice(SCRAPS) + text[start:]
    if change == 1:
        return text[:start] + text[start : start + 200] + text[start:]
    if change == 2:
        return text[:start] + text[min(end, start + 200) :]
    if change == 3:
        return text[:start]
    body = re.sub(r"^<\?xml.*?\?>\s*", "", text)
    if change == 4:
        used = re.sub(r'"[^"&]*"', '"&x;"', body, count=1) if draw.random() < 0.3 else body
        return draw.choice(PROLOGS) + draw.choice(DOCTYPES) + draw.choice(PROLOGS) + used
    if change == 5:
        name = draw.choice(("utf-8", "utf-16", "latin-1", "ascii", "UCS-4", "nonsense", "utf-7"))
        return f'<?xml version="1.0" encoding="{name}"?>\n{body}'
    return draw.choice(PROLOGS) + body + draw.choice(PROLOGS)


def change_bytes(draw: random.Random, data: bytes) -> bytes:
    """One change of the bytes. The result may no longer be text."""
    if not data:
        return data
    place = draw.randrange(len(data))
    change = draw.randrange(4)
    if change == 0:
        return data[:place]
    if change == 1:
        return data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :]
    if change == 2:
        return data[:place] + draw.randbytes(draw.choice((1, 4, 50))) + data[place:]
    encoding = draw.choice(("utf-16", "utf-16-le", "utf-8-sig", "latin-1", "utf-32"))
    return data.decode("utf-8", "replace").encode(encoding, "replace")


def mutated_urdf(case: int) -> bytes:
    """The damaged URDF file of a case."""
    draw = random.Random(f"urdf {case}")
    root = etree.fromstring(draw.choice(sound_urdfs()).encode())
    for _ in range(draw.choice((0, 1, 1, 2, 3, 5))):
        change_tree(draw, root)
    text = etree.tostring(root, encoding="unicode")
    for _ in range(draw.choice((0, 0, 0, 1, 2))):
        text = change_text(draw, text)
    data = text.encode("utf-8", "surrogatepass")
    for _ in range(draw.choice((0, 0, 0, 0, 1, 2))):
        data = change_bytes(draw, data)
    return data


def finite(model: rbd.Model) -> None:
    """No value of the model is NaN, and only limits are infinite."""
    for path, leaf in jax.tree.flatten_with_path(model)[0]:
        name, x = jax.tree_util.keystr(path), np.asarray(leaf)
        good = ~np.isnan(x) if "limit" in name else np.isfinite(x)
        assert np.all(good), f"{name} is {x[~good]}"


def load_damaged_urdf(path, data: bytes) -> str:
    """Load a damaged file in both precisions: "loaded", or the error message."""
    path.write_bytes(data)
    results = []
    for double in (True, False):
        refusal = None
        with jax.enable_x64(double), warnings.catch_warnings(), no_hang():
            warnings.simplefilter("ignore", rbd.InertiaWarning)
            warnings.simplefilter("ignore", rbd.LimitWarning)
            try:
                finite(rbd.load_urdf(path))
            except rbd.RobotFileError as error:
                refusal = error
        results.append("loaded" if refusal is None else str(refusal))
        if refusal is not None:
            assert refusal.line is not None
            assert 1 <= refusal.line <= data.count(b"\n") + data.count(b"\r") + 1
            assert results[-1].startswith(f"{path}:{refusal.line}: ")
            assert len(results[-1]) < 4000
    with no_hang():
        faults = rbd.io.validate_urdf(path)
    double, single = results
    assert double == "loaded" or double in faults
    # A number beyond the range of float32 is not a fault of the file.
    assert single == double or "float32" in single
    return double


def check_urdfs(cases, tmp_path) -> None:
    def load(case):
        return load_damaged_urdf(tmp_path / "damaged.urdf", mutated_urdf(case)) == "loaded"

    share = share_of_loaded(cases, load, "mutated_urdf(case)")
    assert 0.1 < share < 0.6, "the damage is too small or too large to test the reader"


def test_damaged_urdf(tmp_path):
    check_urdfs(FEW, tmp_path)


@pytest.mark.slow
def test_much_damaged_urdf(tmp_path):
    check_urdfs(MANY, tmp_path)


# ------------------------------------------------------------------------------------ saved files

VALUES = [None, True, False, 0, 1, -1, 2, 7, 2**31, 2**63, -(2**63), 10**30, 0.5, -0.0, 1e308, ""]
VALUES += [
    "inertia",
    "Revolute",
    "FreeFlyer",
    "Custom",
    "__class__",
    "float32",
    "float16",
    "\ud800",
]
VALUES += ["l1", "j1", [], {}, [1], [[]], [1] * 70, [0], {"name": "x"}, float("nan"), float("inf")]


def places(value: object, way: tuple = ()) -> list[tuple]:
    """The paths of all entries of the lists and dictionaries in a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, x in inner:
        found.append((*way, key))
        if isinstance(x, (dict, list)):
            found += places(x, (*way, key))
    return found


def change_header(draw: random.Random, header: dict) -> None:
    """One change of an entry, or of the entries of one object, in place."""
    *way, key = draw.choice(places(header))
    holder = header
    for step in way:
        holder = holder[step]
    change = draw.randrange(5)
    if change == 0:
        del holder[key]
    elif change == 1 and isinstance(holder, list):
        holder.insert(draw.randrange(len(holder) + 1), copy.deepcopy(holder[key]))
    elif change == 2 and isinstance(holder, list):
        draw.shuffle(holder)
    elif change == 3 and isinstance(holder, dict):
        holder[draw.choice(("name", "shape", "extra", ""))] = holder.pop(key)
    else:
        holder[key] = copy.deepcopy(draw.choice(VALUES))


def holds_records(table: object) -> bool:
    return isinstance(table, list) and table != [] and all(isinstance(x, dict) and x for x in table)


def change_entry(draw: random.Random, header: dict) -> None:
    """One change of an entry, in place, that keeps the structure of the header."""
    tables = [name for name in ("joints", "frames", "arrays") if holds_records(header.get(name))]
    if not tables:
        return
    table = draw.choice(tables)
    if table == "arrays" and draw.random() < 0.5:
        lead = draw.choice(([1], [2], [0], [1] * 70, [2**31 - 1, 0], [0] * 40))
        chosen = draw.choice((header[table], draw.sample(header[table], 1)))
        for record in chosen:
            if isinstance(record.get("shape"), list):
                record["shape"] = lead + record["shape"]
        return
    record, other = draw.choice(header[table]), draw.choice(header[table])
    key = draw.choice([*record])
    if isinstance(record[key], int) and draw.random() < 0.7:
        record[key] = draw.choice((record[key] - 1, record[key] + 1, draw.randrange(-1, 8)))
    elif key == "kind":
        record[key] = draw.choice("Revolute Prismatic Helical Spherical Planar FreeFlyer".split())
    elif key in other:
        record[key], other[key] = other[key], record[key]


def mutated_save(case: int, data: bytes) -> bytes:
    """The damaged file of a case, made from a sound file. Most have a correct checksum."""
    draw = random.Random(f"saved {case}")
    seal, line, body = data.split(b"\n", 2)
    if draw.random() < 0.2:
        return change_bytes(draw, data)
    header = json.loads(line)
    for _ in range(draw.choice((0, 1, 1, 1, 2))):
        draw.choice((change_header, change_entry, change_entry))(draw, header)
    line = json.dumps(header).encode()
    if draw.random() < 0.1:
        line = change_bytes(draw, line)
    if draw.random() < 0.2:
        body = change_bytes(draw, body)
    content = line + b"\n" + body
    kind, version, size = seal.decode().split(" ")[1:4]
    if draw.random() < 0.1:
        kind = draw.choice(("model", "program", "", "MODEL"))
        version = draw.choice(("0", "1", "2", "-1", "01", "1e0", "9" * 5000))
    digest = hashlib.sha256(content).hexdigest()
    size = draw.choice((str(len(content)),) * 60 + (size, "-1", "9" * 5000, "", "0x10"))
    return f"jaxrbd {kind} {version} {size} {digest}\n".encode() + content


def load_damaged_save(load, path, data: bytes):
    """The result of `load`, or None if it raises SavedFileError."""
    path.write_bytes(data)
    with no_hang():
        try:
            return load(path)
        except rbd.SavedFileError as error:
            message = str(error)
    assert message.startswith(f"{path}: ")
    assert len(message) < 10_000
    return None


def save_of_a_robot(folder) -> bytes:
    path = folder / "sound.jaxrbd"
    rbd.io.save_model(zoo.coupled(), path)
    return path.read_bytes()


def check_saves(cases, folder) -> None:
    """A file that is not refused is a model, and saving and loading it again changes nothing."""
    sound = save_of_a_robot(folder)

    def load(case):
        data = mutated_save(case, sound)
        model = load_damaged_save(rbd.io.load_model, folder / "damaged.jaxrbd", data)
        if model is None:
            return False
        assert isinstance(model, rbd.Model)
        rbd.io.save_model(model, folder / "again.jaxrbd")
        assert_identical(rbd.io.load_model(folder / "again.jaxrbd"), model)
        return True

    share = share_of_loaded(cases, load, "mutated_save(case, save_of_a_robot(folder))")
    assert 0.05 < share < 0.6


def test_damaged_save(tmp_path):
    check_saves(FEW, tmp_path)


@pytest.mark.slow
def test_much_damaged_save(tmp_path):
    check_saves(MANY, tmp_path)


def save_of_a_program(folder) -> bytes:
    path, model = folder / "sound.jaxrbd", zoo.chain(1)
    state = rbd.neutral(model)
    program = rbd.io.export_batched(rbd.gravity_force, model, state, platforms=("cpu",))
    rbd.io.save_program(program, path)
    return path.read_bytes()


def check_programs(cases, folder) -> None:
    """A file that is not refused is a program. Its content is checked only when it is compiled."""
    sound = save_of_a_program(folder)

    def load(case):
        data = mutated_save(case, sound)
        program = load_damaged_save(rbd.io.load_program, folder / "damaged.jaxrbd", data)
        assert program is None or isinstance(program, jax.export.Exported)
        return program is not None

    share = share_of_loaded(cases, load, "mutated_save(case, save_of_a_program(folder))")
    assert 0.05 < share < 0.95


@pytest.mark.slow
def test_damaged_program(tmp_path):
    check_programs(FEW, tmp_path)


@pytest.mark.slow
def test_much_damaged_program(tmp_path):
    check_programs(MANY, tmp_path)
