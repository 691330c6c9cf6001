"""The pages of docs/ whose blocks of code are one program: the programs run, their asserts hold."""

import pathlib
import re

import pytest

DOCS = pathlib.Path(__file__).parents[1] / "docs"

# the number of blocks of each page
PROGRAMS = {
    "quickstart.md": 9,
}


@pytest.mark.parametrize("page", PROGRAMS)
def test_the_blocks_of(page, tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert len(blocks) == PROGRAMS[page]
    monkeypatch.chdir(tmp_path)
    names = {"__name__": page}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page}, block {number}", "exec"), names)
