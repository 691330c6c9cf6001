"""Whether a library's derivatives are right, not merely finite, at singular-looking states.

`python -m jaxrbd.conformance` prints the table for jaxrbd itself, and with
`--adapter module:object` for another library. This is the index of the names that an adapter needs.
"""

from .adapters import QUANTITIES, STEP, Adapter, Functions, JaxRBD, Unsupported
from .report import MODES, PRECISIONS, TOLERANCE, Report
from .robots import ALL_TREES, KINDS, PLACES, Robot, Tree, make_robot
from .states import ANGLES, CONDITIONS, DIRECTIONS, SPEEDS, Condition
from .suite import QUICK_ORDERS, run
from .truth import true_derivatives
from .urdf import about_com, urdf

__all__ = [
    # run it
    "Report",
    "run",
    # point it at a library
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
    # what there is to test
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
    # the truth
    "true_derivatives",
]
