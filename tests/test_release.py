"""What a release states in several files: its version, and the packages of the extras."""

import pathlib
import re
import tomllib

import jaxrbd
from jaxrbd import errors

ROOT = pathlib.Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_is_the_same_in_all_files():
    citation = (ROOT / "CITATION.cff").read_text()
    changes = (ROOT / "CHANGELOG.md").read_text()
    version, date = re.search(r"^## \[(\d[\d.]*)\] - ([\d-]+)$", changes, re.MULTILINE).groups()
    assert version == jaxrbd.__version__
    assert f"\nversion: {version}\n" in citation
    assert f'\ndate-released: "{date}"\n' in citation


def test_the_packages_of_an_extra_are_those_of_the_project():
    """A message names what pyproject.toml names, without versions and platforms."""
    stated = {
        extra: {re.match(r"[\w.-]+(\[\w+\])?", line)[0] for line in lines}
        for extra, lines in PROJECT["optional-dependencies"].items()
        if extra not in ("test", "docs", "dev")
    }
    named = {extra: set(errors.installation(extra).split()[2:]) for extra in stated}
    assert {extra: {word.strip("'") for word in words} for extra, words in named.items()} == stated
    assert errors.installation("view") == "pip install viser 'trimesh[easy]'"


def test_no_message_and_no_page_needs_an_index_with_jaxrbd():
    texts = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("notebooks/*.ipynb")]
    texts += ROOT.glob("jaxrbd/**/*.py")
    wrong = re.compile(r"pip install (-\S+ )*['\"]?jaxrbd\b(?!-)")
    assert wrong.search("pip install 'jaxrbd[view]'")
    assert not [path.name for path in texts if wrong.search(path.read_text(encoding="utf-8"))]
