"""The architecture, enforced: who may import whom, and what importing the package may do."""

import ast
import graphlib
import pathlib
import subprocess
import sys

import pytest

from jaxrbd import joints

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / "jaxrbd"
SOURCES = sorted(PACKAGE.rglob("*.py"))

# From the bottom to the top. A module imports from the rows above its own in this table, never from
# its own row or from below. A folder is one entry; its modules may import each other.
LAYERS = (
    ("errors",),
    ("_math",),
    ("spatial", "so3", "sharding"),
    ("se3", "inertial_parameters", "topology"),
    ("joints", "tree"),
    ("model",),
    ("configuration",),
    ("tangent",),
    ("algorithms",),
    ("tendons",),
    ("actuators", "constraints", "passive"),
    ("identification", "frames", "collision", "integrators"),
    ("contact",),
    ("sensors", "padded"),
    ("io",),
    ("robots", "inverse_kinematics", "optimal_control"),
    ("view",),
    ("envs",),
    ("__init__",),
    ("conformance", "learning"),
    ("cli",),
)
LEVEL = {module: level for level, row in enumerate(LAYERS) for module in row}

# What the levels alone would allow.
STRANGERS = {
    "joints": {"topology"},  # one joint kind at a time: no tree
    "algorithms": {"joints"},  # no algorithm knows a joint kind
}
ANYWHERE = {"jax", "jaxtyping", "equinox", "numpy"}
ONLY_IN = {
    "lxml": "io",
    "scipy": "collision",
    "mujoco": "io",
    "matplotlib": "cli",
    "shtab": "cli",
    "diffrax": "integrators",
    "optax": "learning",
    "onnx": "learning",
    "tensorboardX": "learning",
    "torch": "io",
    "gymnasium": "envs",
}
ONLY_IN |= {"viser": "view", "trimesh": "io", "rich": "view", "imageio_ffmpeg": "view"}
ONLY_IN |= {"PIL": "io view"}
RULES_OF_JAX = {"jax.custom_jvp", "lax.custom_root", "jax.lax.custom_root"}
LOOPS = {"scan", "fori_loop", "while_loop", "map"}
# The sweeps over the tree and, by index, over its dofs; time, with what a step of it repeats;
# Newton's steps; starts of a search; the stages of a trajectory; the blocks of a batch; the pivots
# of a matrix.
LOOPS_IN = {
    "tree/passes.py",
    "tree/gpu/kernels.py",
    "tree/gpu/lanes.py",
    "algorithms/formulations/branch_sparse.py",
    "_math/gpu_kernels.py",
    "_math/batch_last.py",
    "_math/linear.py",
    "_math/root.py",
    "_math/tiles.py",
    "integrators/rollout.py",
    "integrators/steps.py",
    "collision/cores.py",
    "collision/hulls.py",
    "collision/nearest.py",
    "collision/segment_cylinders.py",
    "collision/separation.py",
    "constraints/closing.py",
    "contact/free_motion.py",
    "contact/newton.py",
    "envs/environment.py",
    "learning/optimiser.py",
    "learning/rollouts.py",
    "learning/shac.py",
    "learning/training.py",
    "tendons/wrapping.py",
    "inverse_kinematics/box_qp.py",
    "inverse_kinematics/solution.py",
    "inverse_kinematics/solver.py",
    "optimal_control/bounded_step.py",
    "optimal_control/implicit.py",
    "optimal_control/line_search.py",
    "optimal_control/lqr.py",
    "optimal_control/solution.py",
    "optimal_control/solver.py",
}


def entry(path: pathlib.Path) -> str:
    """The module's entry in `LAYERS`: its folder's name, or its own."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: pathlib.Path) -> set[tuple[int, str]]:
    """What a file imports: (number of leading dots, dotted name).

    Imports under `if TYPE_CHECKING:` are left out, because they never run.
    """
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {(0, alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add((node.level, node.module))
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.level, alias.name) for alias in node.names}
    return found


def nodes(path: pathlib.Path):
    """The nodes of the syntax tree of a file, without the blocks `if TYPE_CHECKING:`."""
    tree = ast.parse(path.read_text())
    types = [
        n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"
    ]
    tree.body = [node for node in tree.body if node not in types]
    return ast.walk(tree)


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
        assert top in ANYWHERE or entry(path) in ONLY_IN.get(top, "").split(), (
            f"{entry(path)} imports {top}"
        )
        assert entry(path) != "topology" or top == "numpy"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_loops_over_the_tree_are_in_one_place(path):
    for node in ast.walk(ast.parse(path.read_text())):
        is_loop = (
            isinstance(node, ast.Attribute)
            and node.attr in LOOPS
            and ast.unparse(node.value) in ("lax", "jax.lax")
        )
        file = str(path.relative_to(PACKAGE))
        assert not is_loop or file in LOOPS_IN, f"{file}:{node.lineno}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_rules_for_derivatives_are_those_that_jax_keeps_in_loops(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            assert ast.unparse(node) not in RULES_OF_JAX, f"{path.name}:{node.lineno}"


def test_implementations_are_chosen_in_few_places():
    """No algorithm depends on the implementation of the passes."""
    chosen = set()
    for path in SOURCES:
        if any("implementations" in name.split(".") for _, name in imports(path)):
            chosen.add(str(path.relative_to(PACKAGE)))
    assert {name for name in chosen if not name.startswith("tree/")} == {"_math/linear.py"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_but_joints_tests_for_a_joint_kind(path):
    """The others use the contract, `joints.Joint`, alone."""
    kinds = {
        name
        for name, thing in vars(joints).items()
        if isinstance(thing, type) and issubclass(thing, joints.Joint) and thing is not joints.Joint
    }
    assert {"Revolute", "Custom"} <= kinds
    if path == PACKAGE / "joints.py":
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            names = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
            names |= {n.attr for n in ast.walk(node.args[1]) if isinstance(n, ast.Attribute)}
            assert not names & kinds, f"{path.name}:{node.lineno}"


def test_no_module_imports_itself_by_way_of_others():
    modules = {}
    for path in SOURCES:
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        modules[parts[:-1] if parts[-1] == "__init__" else parts] = path

    def imported(name, path):
        """The modules that a module imports; of a package, the file of its index."""
        package = name if path.name == "__init__.py" else name[:-1]
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = package[: len(package) - node.level + 1]
                base += tuple(node.module.split(".")) if node.module else ()
                for alias in node.names:
                    yield (*base, alias.name) if (*base, alias.name) in modules else base

    graph = {name: set(imported(name, path)) for name, path in modules.items()}
    assert sum(map(len, graph.values())) > 300
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules


def test_the_package_has_few_entries():
    assert len({entry(path) for path in SOURCES}) <= 35


def test_importing_changes_no_setting_and_starts_nothing():
    script = """
import sys
import jax
before = dict(jax.config.values)
import jaxrbd
assert dict(jax.config.values) == before, "a JAX setting changed"
heavy = {"diffrax", "gymnasium", "lxml", "matplotlib", "mujoco", "optax", "pinocchio", "pytest"}
heavy |= {"onnx", "torch", "scipy.optimize", "beartype", "viser", "trimesh"}
heavy &= set(sys.modules)
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
