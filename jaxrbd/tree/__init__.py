"""Forward and backward passes over the kinematic tree.

- `linear_systems.py`: the passes over the bodies, each stated as the solution of a linear system;
- `passes.py`: the passes node by node, over bodies or dofs, for one state or a batch;
- `rows.py`: functions of single bodies or dofs, and sums over the dofs of each body;
- `gpu/`: other implementations of the passes and of these functions, for GPUs.

Only this package and `_math/linear.py` choose between implementations.
"""

from .._math.implementations import implementation
from .linear_systems import accumulate, compose_poses, propagate, sum_to_leaves, sum_to_root
from .passes import backward_pass, forward_pass
from .rows import map_rows, map_states, sum_dofs, sum_over_dofs

__all__ = [
    "accumulate",
    "backward_pass",
    "compose_poses",
    "forward_pass",
    "implementation",
    "map_rows",
    "map_states",
    "propagate",
    "sum_dofs",
    "sum_over_dofs",
    "sum_to_leaves",
    "sum_to_root",
]
