"""Programs for a CPU: bounds of their kernels, which cost compilation time and single calls."""

import re

import jaxlib.version
import pytest

from benchmarks.studies import common

# Kernels of the programs of the quadruped in float64, with a batch of 64.
BOUNDS = {
    "fk": 18,
    "rnea": 33,
    "crba": 31,
    "fd": 70,
    "drnea": 95,
    "integrate gradient": 24,
}
SLOW_BOUNDS = {
    "rnea gradient": 105,
    "fd gradient": 142,
    "dfd": 120,
    "integrate": 8,
    "euler": 77,
    "euler gradient": 175,
    "kutta": 109,
    "kutta gradient": 365,
    # Of these, about 17 and 67 are for the rotation of spinning bodies (contact/free_motion.py).
    "contact": 200,
    "contact gradient": 480,
}

# The XLA of jaxlib 0.12 fuses fewer operations of these programs.
NEWER_BOUNDS = {
    "rnea": 36,
    "crba": 40,
    "fd": 86,
    "drnea": 98,
    "integrate gradient": 39,
    "fd gradient": 168,
    "dfd": 128,
    "integrate": 10,
    "euler": 98,
    "euler gradient": 210,
    "kutta": 128,
    "kutta gradient": 425,
    "contact": 232,
    "contact gradient": 515,
}


@pytest.fixture
def as_for_users(monkeypatch, request):
    """Dtypes are promoted as for users, in processes of their own.

    Slow tests compile as for users too. With the XLA flags of the other tests, a large program has
    more kernels: the gradient of a contact step 495, not 475.
    """
    monkeypatch.delenv("JAX_NUMPY_DTYPE_PROMOTION", raising=False)
    if request.node.get_closest_marker("slow"):
        monkeypatch.delenv("XLA_FLAGS", raising=False)


def counted(robot, jobs):
    words = ["--robot", robot, "--batch", "64", "--jobs", ",".join(jobs)]
    output = common.python("-m", "tests.support.cpu_kernels", *words)
    return {name: int(count) for name, count in re.findall(r"(?m)^\| ([\w ]+) \| (\d+) \|", output)}


@pytest.mark.parametrize("bounds", [BOUNDS, pytest.param(SLOW_BOUNDS, marks=pytest.mark.slow)])
def test_kernels_have_bounds(bounds, as_for_users):
    if jaxlib.version.__version_info__ >= (0, 11):
        bounds = {name: NEWER_BOUNDS.get(name, bound) for name, bound in bounds.items()}
    found = counted("quadruped", bounds)
    assert found.keys() == bounds.keys()
    assert {name: count for name, count in found.items() if count > bounds[name]} == {}


ENVIRONMENT = """
import sys
from benchmarks.studies import environment_speed
from tests.support import cpu_kernels

library, stored = environment_speed.load_jaxrbd(), sys.argv[1] == "stored"
program = environment_speed.gradient_program(library, 64, 8, stored)
print(cpu_kernels.count_kernels(program.compiled.as_text()))
"""


# Of these, about 110 and 140 are for spinning bodies and for the search along a step, and 130 and
# 170 for values that are not finite: states, actions, observations and reward terms.
@pytest.mark.slow
@pytest.mark.parametrize(("step", "bound"), [("stored", 960), ("computed again", 1120)])
def test_kernels_of_the_gradient_of_an_environment_have_bounds(step, bound, as_for_users):
    """With a stored step, and with a step that is computed again."""
    assert int(common.python("-c", ENVIRONMENT, step)) <= bound


@pytest.mark.slow
def test_kernels_do_not_depend_on_the_number_of_bodies(as_for_users):
    jobs = ["fk", "rnea", "crba", "fd", "drnea", "dfd"]
    assert counted("chain30", jobs) == counted("chain33", jobs)


# Kernels of `optimal_control.solve` with the Gauss-Newton matrix. The automatic rollout has the
# dynamics of a stage twice: about 150 kernels for arm7, and 190 for the quadruped.
SOLVERS = {"solve arm7": 640, "solve quadruped": 830}


@pytest.mark.slow
def test_solvers_of_optimal_control_have_bounds(as_for_users):
    found = counted("quadruped", SOLVERS)
    assert found.keys() == SOLVERS.keys()
    assert {name: count for name, count in found.items() if count > SOLVERS[name]} == {}
