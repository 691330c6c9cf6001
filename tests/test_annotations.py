"""Values have the shapes and types of the annotations of the package.

The nightly run checks this in all tests. By default a separate process traces some algorithms.
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
BY_DEFAULT = {
    "aba",
    "body_motions",
    "center_of_mass",
    "crba",
    "forward_dynamics",
    "forward_kinematics",
    "frame_jacobian",
    "minverse",
    "point_jacobian",
    "rnea",
    "rnea_derivatives",
}


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(sorted(BY_DEFAULT), id="few"),
        pytest.param(sorted(set(ALGORITHMS) - BY_DEFAULT), id="others", marks=pytest.mark.slow),
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
