"""docs/developers/sources.md: its functions and tests exist; its tests use its functions."""

import ast
import functools
import importlib
import json
import pathlib
import re

import jaxrbd

TESTS = pathlib.Path(__file__).parent
DOCUMENT = (TESTS.parent / "docs" / "developers" / "sources.md").read_text(encoding="utf-8")
HEADING = "| item | right form | in jaxrbd | test |\n|---|---|---|---|\n"


def table(text):
    """The cells of the rows that begin the text."""
    lines = text.split("\n\n")[0].strip().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


ROWS = [row for text in DOCUMENT.split(HEADING)[1:] for row in table(text)]
CELLS = ("item", "right form", "function", "test")


def names(cell):
    """What a cell has in backquotes."""
    return re.findall(r"`([^`]*)`", cell)


@functools.cache
def functions_of(file):
    """The test functions of a file, as it is written: nothing is imported."""
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@functools.cache
def words_of(file):
    """The words in the source of a test module; for test_notebooks.py, of the notebooks."""
    paths = [TESTS / file]
    text = paths[0].read_text(encoding="utf-8")
    if file == "test_notebooks.py":
        paths = sorted((TESTS.parent / "notebooks").glob("*.ipynb"))
        notebooks = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
        cells = [cell for notebook in notebooks for cell in notebook["cells"]]
        text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return set(re.findall(r"\w+", text))


def find(name):
    """The thing that a dotted name means, relative to the package; AttributeError if nothing."""
    thing = jaxrbd
    for part in name.split("."):
        if not hasattr(thing, part) and hasattr(thing, "__path__"):
            importlib.import_module(f"{thing.__name__}.{part}")
        thing = getattr(thing, part)
    return thing


def test_three_documents_with_no_empty_cell():
    assert DOCUMENT.count(HEADING) == 3
    assert DOCUMENT.isascii()
    rows = [line for line in DOCUMENT.splitlines() if line.startswith("| ")]
    assert len(ROWS) == len(rows) - 3 > 100
    for row in ROWS:
        assert len(row) == 4, row
        for cell, what in zip(row, CELLS):
            assert cell, f"{row[0]}: {what} is empty"
    assert len({row[0] for row in ROWS}) == len(ROWS), "an item stands twice"


def test_every_function_exists():
    for item, _, functions, _ in ROWS:
        assert names(functions), item
        for name in names(functions):
            find(name)


def test_every_test_exists():
    for item, _, _, tests in ROWS:
        assert names(tests), item
        for name in names(tests):
            file, _, function = name.partition("::")
            assert function in functions_of(file), f"{item}: no test {name}"


def test_the_tests_of_a_row_use_its_functions():
    for item, _, functions, tests in ROWS:
        words = set().union(*(words_of(name.partition("::")[0]) for name in names(tests)))
        unused = [name for name in names(functions) if name.split(".")[-1] not in words]
        assert not unused, f"{item}: no test uses {unused}"


def test_functions_are_public():
    # The passes over the tree and its structure have no public function.
    internal = {"tree.accumulate", "tree.compose_poses", "tree.propagate", "topology.Topology"}
    for _, _, functions, _ in ROWS:
        for name in set(names(functions)) - internal:
            assert name.split(".")[0] in jaxrbd.__all__, name
            assert "joint_space" not in name
