"""Forward and backward passes over the kinematic tree.

- `linear_systems.py`: the passes over the bodies, each stated as the solution of a linear system;
- `passes.py`: the passes node by node, over bodies or dofs, for one state or a batch;
- `kernels.py`: a pass as one GPU kernel, and `lanes.py`: the step of a pass inside this kernel.
"""

from .._math.implementations import implementation
from .linear_systems import accumulate, compose_poses, propagate, sum_to_leaves, sum_to_root
from .passes import backward_pass, forward_pass

__all__ = [
    "accumulate",
    "backward_pass",
    "compose_poses",
    "forward_pass",
    "implementation",
    "propagate",
    "sum_to_leaves",
    "sum_to_root",
]
