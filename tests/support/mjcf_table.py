"""docs/developers/mjcf_files.md: which MJCF files of the wheels of MuJoCo are loaded.

    python -m tests.support.mjcf_table

The command needs the packages mujoco and mujoco-mjx, whose files are in one folder.
"""

import collections
import importlib.metadata
import pathlib
import re
import warnings

import mujoco

import jaxrbd
from jaxrbd.io import load_mjcf

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "developers" / "mjcf_files.md"
BEGIN, END = "<!-- the table of tests/support/mjcf_table.py begins -->\n", "<!-- and ends -->\n"
SENTENCE = "The table has all MJCF files of mujoco {} and mujoco-mjx {}."
PACKAGE = pathlib.Path(mujoco.__file__).parent


def version(distribution):
    """The version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


VERSIONS = version("mujoco"), version("mujoco-mjx")


def files():
    """The MJCF files of the packages, by the path in the package."""
    return {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.xml"))}


def outcome(path):
    """What `load_mjcf` does with a file: (whether the file is loaded, what is left out)."""
    with warnings.catch_warnings():
        for category in (jaxrbd.InertiaWarning, jaxrbd.ContactWarning):
            warnings.simplefilter("ignore", category)
        return _outcome(path)


def _outcome(path):
    try:
        found = load_mjcf(path)
    except jaxrbd.RobotFileError as error:
        try:
            found = load_mjcf(path, strict=False)
        except jaxrbd.RobotFileError:
            (reason, *_) = str(error).removeprefix(f"{path}: ").splitlines()
            return False, reason
        return False, summary(found.omitted)
    contacts = "" if found.scene is None else f", {len(found.scene.frames)} spheres"
    pairs = f", pairs of geoms: {len(found.pairs)}" if found.pairs else ""
    model = found.model
    return True, f"nv = {model.nv}, {len(found.actuators.names)} actuators{contacts}{pairs}"


def summary(omitted):
    """The features of `omitted` without the names of elements, with their counts."""
    kinds = collections.Counter()
    for text in omitted:
        group = re.fullmatch(r"(.*) \((\d+) (?:contacts of \d+ )?(?:geom|pair)s?: .*\)", text)
        kind, count = group.groups() if group else (text, 1)
        kinds[re.sub(r"(, besides)? '[^']*'( of body '[^']*')?", "", kind)] += int(count)
    return "; ".join(f"{kind} ({n})" if n > 1 else kind for kind, n in kinds.items())


def row(name, path):
    """One row of the table."""
    loaded, text = outcome(path)
    return f"| `{name}` | {'loaded' if loaded else 'refused'} | {text} |\n"


def table():
    """The text between the marks of the page."""
    rows = [row(name, path) for name, path in files().items()]
    head = "| file | `load_mjcf` | content, or what has no counterpart |\n|---|---|---|\n"
    return f"{SENTENCE.format(*VERSIONS)}\n\n{head}{''.join(rows)}"


def stated_rows():
    """The rows of the page, by the name of the file."""
    lines = stated().splitlines(keepends=True)
    return {line.split("`")[1]: line for line in lines if line.startswith(("| `mjx", "| `test"))}


def stated_versions():
    """The versions of mujoco and mujoco-mjx that the page states."""
    return tuple(re.findall(r"mujoco[-\w]* ([\d.]*\d)", stated()))


def stated():
    """The text between the marks of the page."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


def main():
    """Write the table."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(before + BEGIN + table() + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
