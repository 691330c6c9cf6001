"""Motion constraints, and the dynamics of robots under them.

- Implicit constraints `phi(q) = 0`: `kinds.py` defines them, and `between_frames.py` defines closed
  loops and contacts. `implicit.py` solves for acceleration, constraint forces and impulses, with
  the KKT system of `kkt.py`; `derivatives.py` and `row_derivatives.py` have the derivatives of the
  solution. `closing.py` solves for configurations that satisfy the constraints.
- Other formulations, which no other module uses: `formulations/`.
"""

from .between_frames import FrameConstraint, hinge, point, weld
from .closing import Closure, close_loops
from .derivatives import ConstrainedDynamicsDerivatives, ImpactDerivatives
from .formulations.explicit import ExplicitDynamics, explicit_dynamics
from .formulations.maximal import (
    MaximalDynamics,
    joint_subspaces,
    maximal_dynamics,
    maximal_system,
)
from .formulations.single_body import (
    ConstrainedBody,
    apparent_inverse_inertia,
    constrained_body,
)
from .implicit import (
    ConstrainedDynamics,
    Impact,
    constrained_dynamics,
    constrained_dynamics_derivatives,
    constraint_rows,
    constraint_wrenches,
    impact,
    impact_derivatives,
    kkt_system,
)
from .kinds import Constraint, ConstraintRows, Equation, Nonholonomic

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
    "ConstrainedDynamicsDerivatives",
    "Impact",
    "ImpactDerivatives",
    "close_loops",
    "constrained_dynamics",
    "constrained_dynamics_derivatives",
    "constraint_rows",
    "constraint_wrenches",
    "impact",
    "impact_derivatives",
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
    "maximal_system",
]
