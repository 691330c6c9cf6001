"""Links of the documents in the repository: the files and the headings exist.

`mkdocs build --strict` checks the links of the site, where some links have other targets. It is no
part of the tests. These tests check the links as a reader of the repository follows them.
"""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "benchmarks/**/*.md", "tests/mutants/*.md")
    for path in ROOT.glob(pattern)
    # the environments of the benchmarks have documents of other libraries
    if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)


def anchors(text):
    """The anchors of the headings of a document, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ +(.*)$", FENCE.sub("", text), re.MULTILINE)
    words = [re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings]
    return {re.sub(r"\s", "-", heading) for heading in words}


def broken_links(path):
    """The relative links of a document whose file or heading does not exist."""
    broken = []
    for link in LINK.findall(re.sub(r"`[^`\n]*`", "", FENCE.sub("", path.read_text()))):
        target, _, anchor = link.partition("#")
        if ":" in target:
            continue
        found = path.parent / target if target else path
        if not found.exists() or (
            anchor and found.suffix == ".md" and anchor not in anchors(found.read_text())
        ):
            broken.append(link)
    return broken


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_links_of(name):
    assert not broken_links(ROOT / name)


def test_the_package_names_no_file_of_the_repository():
    """The package is installed without the documents, and their files have other names there."""
    texts = {path: path.read_text() for path in (ROOT / "jaxrbd").rglob("*.py")}
    named = re.compile(r"\b(docs|notebooks)/\w+\.\w+")
    assert not [path.name for path, text in texts.items() if named.search(text)]
    assert named.search("see `docs/mjcf.md`")


def test_the_documents_are_found():
    assert {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/quickstart.md"} <= {*DOCUMENTS}
    assert sum(len(LINK.findall((ROOT / name).read_text())) for name in DOCUMENTS) > 100


def test_broken_links_are_found(tmp_path):
    (tmp_path / "other.md").write_text("# File format\n\n```sh\n# a comment\n```\n")
    page = tmp_path / "page.md"
    page.write_text(
        "## A `name`, and more\n[1](other.md) [2](other.md#file-format) [3](#a-name-and-more)\n"
        "[4](gone.md) ![5](gone.png) [6](other.md#a-comment) [7](#other) [8](https://x.org/gone.md)\n"
        "```python\nx[9](gone)\n```\n`x[10](gone)`\n"
    )
    assert broken_links(page) == ["gone.md", "gone.png", "other.md#a-comment", "#other"]
