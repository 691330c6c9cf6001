"""The pages of docs/ whose blocks of code are one program: the programs run, their asserts hold."""

import importlib.util
import pathlib
import re

import matplotlib.pyplot as plt
import numpy as np
import pytest

DOCS = pathlib.Path(__file__).parents[1] / "docs"

# the number of blocks of each page
PROGRAMS = {
    "quickstart.md": 9,
    "conventions.md": 4,
    "choose.md": 2,
    "sharp_bits.md": 10,
    "load.md": 4,
    "batch.md": 7,
    "identify.md": 4,
    "control.md": 4,
    "add_a_joint.md": 3,
}


@pytest.mark.parametrize("page", PROGRAMS)
def test_the_blocks_of(page, tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert len(blocks) == PROGRAMS[page]
    monkeypatch.chdir(tmp_path)
    names = {"__name__": page}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page}, block {number}", "exec"), names)


def test_the_pictures_of_the_conventions(tmp_path):
    """The script draws the committed pictures, up to the fonts of another matplotlib."""
    path = DOCS / "conventions_pictures.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = (DOCS / "conventions.md").read_text()
    for drawn in script.write(tmp_path):
        committed = DOCS / drawn.name
        assert f"]({drawn.name})" in page
        assert committed.stat().st_size < 60_000
        first, second = plt.imread(drawn), plt.imread(committed)
        assert first.shape == second.shape
        assert np.mean(np.abs(first - second)) < 0.02
