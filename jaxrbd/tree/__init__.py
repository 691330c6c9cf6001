"""Forward and backward passes over the kinematic tree.

- `linear_systems.py`: the passes over the bodies, each stated as the solution of a linear system;
- `passes.py`: the passes node by node, over bodies or dofs, for one state or a batch;
- `map_rows` in `passes.py`: functions of single bodies or dofs;
- `kernels.py`: a pass, or a function of single nodes, as one GPU kernel, and `lanes.py`: the step
  of a pass or the function inside this kernel.
"""

from .._math.implementations import implementation
from .linear_systems import accumulate, compose_poses, propagate, sum_to_leaves, sum_to_root
from .passes import backward_pass, forward_pass, map_rows

__all__ = [
    "accumulate",
    "backward_pass",
    "compose_poses",
    "forward_pass",
    "implementation",
    "map_rows",
    "propagate",
    "sum_to_leaves",
    "sum_to_root",
]
