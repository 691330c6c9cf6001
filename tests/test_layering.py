"""The architecture, enforced: who may import whom, and what importing the package may do."""

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / "jaxrbd"
SOURCES = sorted(PACKAGE.rglob("*.py"))

# From the bottom to the top. A module imports from the rows above its own in this table, never from
# its own row or from below. A folder is one entry; its modules may import each other.
LAYERS = (
    ("errors", "_components", "_series", "_linear"),
    ("spatial", "so3", "sharding"),
    ("se3", "inertial_parameters", "topology"),
    ("joints", "tree"),
    ("coupling", "description"),
    ("model", "checks", "mass_check"),
    ("joint_space", "arguments"),
    ("builder", "configuration"),
    ("editing", "tangent"),
    ("_algorithms",),
    ("io", "identification", "frames", "constraints", "contact", "integrators"),
    ("robots", "diffrax_adapter"),
    ("__init__",),
    ("_rollout", "_overview", "testing"),
    ("_rollout_plot",),
    ("_rollout_command",),
    ("cli",),
)
LEVEL = {module: level for level, row in enumerate(LAYERS) for module in row}

# What the levels alone would allow.
STRANGERS = {
    "joints": {"topology"},  # one joint kind at a time: no tree
    "_algorithms": {"joints"},  # no algorithm knows a joint kind
}
ANYWHERE = {"jax", "jaxtyping", "equinox", "numpy"}
ONLY_IN = {"lxml": "io", "matplotlib": "_rollout_plot", "diffrax": "diffrax_adapter"}
LOOPS = {"scan", "fori_loop", "while_loop", "map"}
# The sweeps over the tree and, by index, over its dofs; time, with what a step of it repeats;
# Newton's steps; the blocks of a batch; the pivots of a matrix.
LOOPS_IN = {
    "tree",
    "aba",
    "articulated",
    "_linear",
    "branch_sparse",
    "integrators",
    "closing",
    "convex",
    "sharding",
}


def entry(path: pathlib.Path) -> str:
    """The module's entry in `LAYERS`: its folder's name, or its own."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: pathlib.Path) -> set[tuple[int, str]]:
    """What a file imports: (number of leading dots, dotted name)."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {(0, alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add((node.level, node.module))
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.level, alias.name) for alias in node.names}
    return found


def own_imports(path: pathlib.Path) -> set[str]:
    """The entries of the package that a file imports, its own folder excepted."""
    found = set()
    for dots, name in imports(path):
        depth = len(path.relative_to(PACKAGE).parts)
        if dots == depth:
            first = name.split(".")[0]
            found.add(first if first in LEVEL else "__init__")
        elif dots == 0 and name.split(".")[0] == "jaxrbd":
            found.add("__init__")
    return found


def test_every_module_has_a_layer():
    assert {entry(path) for path in SOURCES} == set(LEVEL)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down_the_layers(path):
    module = entry(path)
    for imported in own_imports(path):
        assert LEVEL[imported] < LEVEL[module], f"{module} imports {imported}"
        assert imported not in STRANGERS.get(module, ()), f"{module} imports {imported}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_third_parties_are_met_where_they_belong(path):
    for dots, name in imports(path):
        top = name.split(".")[0]
        if dots or top in sys.stdlib_module_names or top == "jaxrbd":
            continue
        assert top in ANYWHERE or ONLY_IN.get(top) == entry(path), f"{entry(path)} imports {top}"
        assert entry(path) != "topology" or top == "numpy"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_loops_over_the_tree_are_in_one_place(path):
    for node in ast.walk(ast.parse(path.read_text())):
        is_loop = (
            isinstance(node, ast.Attribute)
            and node.attr in LOOPS
            and ast.unparse(node.value) in ("lax", "jax.lax")
        )
        assert not is_loop or path.stem in LOOPS_IN, f"{path.name}:{node.lineno}"


def test_importing_changes_no_setting_and_starts_nothing():
    script = """
import sys
import jax
before = dict(jax.config.values)
import jaxrbd
assert dict(jax.config.values) == before, "a JAX setting changed"
heavy = {"diffrax", "matplotlib", "beartype", "pytest", "scipy.optimize"} & set(sys.modules)
assert not heavy, heavy
jax.config.update("jax_platforms", "no_such_platform")
try:
    jax.devices()
except RuntimeError:
    print("asleep")
"""
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.stdout.strip() == "asleep", result.stderr


def test_sources_are_ascii():
    texts = [*SOURCES, *PACKAGE.rglob("*.urdf"), *ROOT.glob("*.md"), *ROOT.glob("tests/*.py")]
    foreign = [path.name for path in texts if not path.read_text(encoding="utf-8").isascii()]
    assert not foreign
