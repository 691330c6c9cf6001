"""Every notebook runs from top to bottom, and its stored outputs are fit to be read."""

import pathlib
import re

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((pathlib.Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
# An absolute path of two names or more; not the path of an address, not a quotient of units.
ABSOLUTE = re.compile(r"(?<![\w/:.)\]])/(?:\w[\w.-]*/)+\w|\b[A-Z]:\\\w")

# Only the nightly tests run the longest notebooks.
LONG = (
    "04_constraints",
    "05_integrators",
    "06_trajectory_optimisation",
    "09_identification",
)

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def texts(node):
    """All strings of a notebook or of a part of it, except pictures."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict | list):
        parts = (
            [node[key] for key in node if key != "image/png"] if isinstance(node, dict) else node
        )
        for part in parts:
            yield from texts(part)


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in LONG else [])
        for path in NOTEBOOKS
    ],
)
@pytest.mark.documents
def test_notebook_runs(path, monkeypatch):
    # The kernel of this interpreter, even if the user has one of the same name.
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "1")
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()


@each_notebook
def test_what_is_stored(path):
    """Outputs are of one run, in order, without times and paths. Tracebacks are intended ones."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert path.read_text(encoding="utf-8").isascii()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)]
    assert any(cell.outputs for cell in code)
    for cell in code:
        assert "execution" not in cell.metadata
        meant = "raises-exception" in cell.metadata.get("tags", ())
        assert meant or all(output.output_type != "error" for output in cell.outputs), cell.source
    assert not [text for text in texts(notebook) if ABSOLUTE.search(text)]


@pytest.mark.parametrize("text", ["in /home/me/x.py", "\n/tmp/a", "'/a/b/c'", "C:\\me", "(/usr/b)"])
def test_an_absolute_path_is_seen(text):
    assert ABSOLUTE.search(text)


@pytest.mark.parametrize("text", ["https://docs.jax.dev/en", "docs/sources.md", "m/s", "1 / 2 / x"])
def test_what_is_no_absolute_path_is_not(text):
    assert not ABSOLUTE.search(text)
