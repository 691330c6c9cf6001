"""Motion constraints: what they are, and the dynamics of robots that obey them.

Implicit constraints `phi(q) = 0`: `kinds.py` and, for closed loops and contacts,
`between_frames.py` state them; `implicit.py` solves for the motion, its forces and its impulses.
Explicit ones `q = gamma(y)`: `explicit.py`. One body on one joint: `single_body.py`. All joints as
constraints on free bodies: `maximal.py`.
"""

from .between_frames import FrameConstraint, hinge, point, weld
from .closing import Closure, close_loops
from .explicit import ExplicitDynamics, explicit_dynamics
from .implicit import (
    ConstrainedDynamics,
    Impact,
    constrained_dynamics,
    constraint_rows,
    constraint_wrenches,
    impact,
    kkt_system,
)
from .kinds import Constraint, ConstraintRows, Equation, Nonholonomic
from .maximal import MaximalDynamics, joint_subspaces, maximal_dynamics
from .single_body import ConstrainedBody, apparent_inverse_inertia, constrained_body

__all__ = [
    # kinds
    "Constraint",
    "Equation",
    "FrameConstraint",
    "Nonholonomic",
    "ConstraintRows",
    "hinge",
    "point",
    "weld",
    # implicit constraints
    "Closure",
    "ConstrainedDynamics",
    "Impact",
    "close_loops",
    "constrained_dynamics",
    "constraint_rows",
    "constraint_wrenches",
    "impact",
    "kkt_system",
    # explicit constraints
    "ExplicitDynamics",
    "explicit_dynamics",
    # joints as constraints
    "ConstrainedBody",
    "MaximalDynamics",
    "apparent_inverse_inertia",
    "constrained_body",
    "joint_subspaces",
    "maximal_dynamics",
]
