"""Values have the shapes and types of the annotations of the package.

The nightly run checks this in all tests. By default a separate process traces each algorithm that
is traced quickly.
"""

import os
import pathlib
import subprocess
import sys

import pytest

from support.algorithms import ALGORITHMS

PROGRAM = """
import sys

import conftest  # installs the check
import jax
import jaxtyping
from jaxrbd.io import load_urdf
from support import zoo
from support.algorithms import ALGORITHMS

try:
    load_urdf(3)
except jaxtyping.TypeCheckError:
    print("checked")
model = zoo.small()
state = zoo.state(model)
for name in sys.argv[1:]:
    try:
        jax.eval_shape(lambda *state: ALGORITHMS[name](model, *state), *state)
    except jaxtyping.TypeCheckError as error:
        print(name, error)
"""
TRACED_SLOWLY = {
    "close_loops",
    "constrained_dynamics",
    "constrained_dynamics_derivatives",
    "forward_dynamics_second_order",
    "hessian",
    "impact_derivatives",
    "inverse_kinematics",
    "kkt_system",
    "rnea_second_order",
    "search_inverse_kinematics",
    "step_derivatives",
    "tendon_dynamics",
    "touch",
    "variational_midpoint",
}


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(sorted(set(ALGORITHMS) - TRACED_SLOWLY), id="quick"),
        pytest.param(sorted(TRACED_SLOWLY), id="slow", marks=pytest.mark.slow),
    ],
)
def test_algorithms_follow_their_annotations(names):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *names],
        env={**os.environ, "JAXRBD_TEST_ANNOTATIONS": "1"},
        cwd=pathlib.Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == "checked\n"
