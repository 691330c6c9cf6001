"""Forward and backward passes over the kinematic tree.

- `linear_systems.py`: the passes over the bodies, each stated as the solution of a linear system;
- `passes.py`: the passes node by node, over bodies or dofs, for one state or a batch;
- `paths.py`: passes of logarithmic depth, by products along the heavy paths of the tree;
- `rows.py`: functions of single bodies or dofs, and sums over the dofs of each body;
- `gpu/`: other implementations of the passes and of these functions, for GPUs.

Only this package and `_math/linear.py` choose between implementations.
"""

from .._math.implementations import implementation
from .linear_systems import accumulate, compose_poses, propagate, sum_to_leaves, sum_to_root
from .passes import backward_pass, forward_pass
from .paths import affine, by_loops_or_paths, products_from_world, sums_of_children
from .rows import map_rows, map_states, sum_dofs, sum_over_dofs

__all__ = [
    "accumulate",
    "affine",
    "backward_pass",
    "by_loops_or_paths",
    "compose_poses",
    "forward_pass",
    "implementation",
    "map_rows",
    "map_states",
    "products_from_world",
    "propagate",
    "sum_dofs",
    "sum_over_dofs",
    "sum_to_leaves",
    "sum_to_root",
    "sums_of_children",
]
