"""Tests of the derivatives of a dynamics library at states where derivatives often fail.

`python -m jaxrbd.conformance` tests jaxrbd and prints tables; with `--adapter module:object` it
tests another library through an adapter (`Adapter`).

`python -m jaxrbd.conformance --solutions ROBOT` tests the derivatives of the solutions of optimal
control and inverse kinematics of jaxrbd for a robot of the user (`check_solutions`).

`python -m jaxrbd.conformance --distances` tests the derivatives of the distances of all pairs of
kinds of shapes (`check_distances`).
"""

from .adapters import QUANTITIES, STEP, Adapter, Functions, JaxRBD, Unsupported
from .distances import (
    DISTANCE_TOLERANCE,
    SHAPE_PAIRS,
    DistanceCheck,
    DistanceReport,
    check_distances,
)
from .report import MODES, PRECISIONS, TOLERANCE, Report
from .robots import ALL_TREES, KINDS, PLACES, Robot, Tree, make_robot
from .solutions import SOLUTION_TOLERANCE, SolutionCheck, SolutionReport, check_solutions
from .states import ANGLES, CONDITIONS, DIRECTIONS, SPEEDS, Condition
from .suite import QUICK_ORDERS, run
from .truth import true_derivatives
from .urdf import about_com, urdf

__all__ = [
    # the suite
    "Report",
    "run",
    # adapters of libraries
    "Adapter",
    "Functions",
    "JaxRBD",
    "Robot",
    "STEP",
    "Tree",
    "Unsupported",
    "about_com",
    "make_robot",
    "urdf",
    # the cases
    "ALL_TREES",
    "ANGLES",
    "CONDITIONS",
    "Condition",
    "DIRECTIONS",
    "KINDS",
    "MODES",
    "PLACES",
    "PRECISIONS",
    "QUANTITIES",
    "QUICK_ORDERS",
    "SPEEDS",
    "TOLERANCE",
    # derivatives of solutions
    "SOLUTION_TOLERANCE",
    "SolutionCheck",
    "SolutionReport",
    "check_solutions",
    # derivatives of distances
    "DISTANCE_TOLERANCE",
    "DistanceCheck",
    "DistanceReport",
    "SHAPE_PAIRS",
    "check_distances",
    # reference derivatives
    "true_derivatives",
]
