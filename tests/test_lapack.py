"""No program calls LAPACK, and programs with constraints and contact never hang.

XLA divides a large batch of LAPACK calls into tasks of its thread pool. The tasks of two calls can
wait for each other forever.
"""

import ast
import os
import pathlib
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

import jaxrbd
from support import nightly, zoo
from support.algorithms import ALGORITHMS

PACKAGE = pathlib.Path(jaxrbd.__file__).parent
HERE = pathlib.Path(__file__).parent

# The names, in a lowered program, of operations that a CPU computes with LAPACK.
BY_LAPACK = ("lapack", "cholesky", "triangular_solve", "eigh", "Eigh", "Qr", "svd")


@pytest.fixture(scope="module")
def batch():
    """A model, and two states of it."""
    model = zoo.small()
    return model, *(jnp.stack([x, 0.9 * x]) for x in zoo.state(model))


def lowered(function, batch):
    batched = jax.vmap(function, (None, 0, 0, 0, 0))
    return jax.jit(batched).lower(*batch).as_text()


# The other programs take long to lower. `test_the_package_names_no_linear_algebra_of_jax` reads the
# whole package.
BY_DEFAULT = ("minverse",)


@pytest.mark.parametrize("name", nightly.all_but(BY_DEFAULT, ALGORITHMS))
def test_no_program_calls_lapack(name, batch):
    function = ALGORITHMS[name]

    def total(model, *state):
        return sum(jnp.sum(x) for x in jax.tree.leaves(function(model, *state)))

    def gradient(model, *state):
        return jax.grad(total, argnums=(0, 1, 2, 3, 4))(model, *state)

    for program in (lowered(function, batch), lowered(gradient, batch)):
        assert "stablehlo" in program
        program = program.replace("height", "")  # the name of a function contains "eigh"
        assert not [word for word in BY_LAPACK if word in program]


def test_such_a_call_is_noticed(batch):
    def solved(model, q, v, u, f):
        return jnp.linalg.solve(jaxrbd.crba(model, q), v)

    assert "lapack" in lowered(solved, batch)


def test_the_package_names_no_linear_algebra_of_jax():
    """Also in code that no algorithm of `algorithms.ALGORITHMS` calls."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
            if re.fullmatch(r"[\w.]*(linalg|scipy)\.\w+", name):
                allowed = name.startswith("np.linalg.") or name == "jnp.linalg.norm"
                assert allowed, f"{path.name}:{node.lineno}: {name}"
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [getattr(node, "module", None) or "", *(x.name for x in node.names)]
                # Hulls of meshes are made by SciPy with known values, never in a program.
                names = [name for name in names if name != "scipy.spatial"]
                assert not any("linalg" in name or "scipy" in name for name in names), path.name


@pytest.mark.slow
@pytest.mark.parametrize(("threads", "devices"), [(1, 1), (2, 1), (1, 2)])
def test_constraints_and_contact_do_not_hang(threads, devices):
    """With JAX's default flags and default thread pool, as a user runs them."""
    ours = ("XLA_FLAGS", "NPROC", "JAX_NUMPY_DTYPE_PROMOTION")
    environment = {name: x for name, x in os.environ.items() if name not in ours}
    environment["PYTHONPATH"] = str(HERE.parent)
    command = [
        sys.executable,
        HERE / "support" / "stress.py",
        "--threads",
        threads,
        "--devices",
        devices,
    ]
    done = subprocess.run(
        [*map(str, command), "--seconds", "2"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) > 0
