"""Inverse kinematics: configurations and velocities that reach targets within joint limits.

- `tasks.py`: targets of frames, directions, the centre of mass and the posture, and distances;
- `solution.py`: `inverse_kinematics` from one start and `search_inverse_kinematics` from many;
  `solver.py` has the iterations, `implicit.py` the derivatives of a solution;
- `differential.py`: `differential_inverse_kinematics`, which returns a velocity; `box_qp.py` solves
  its quadratic program.
"""

from .differential import differential_inverse_kinematics
from .solution import IkSolution, inverse_kinematics, search_inverse_kinematics
from .tasks import Clearance, ComTask, FrameTask, GazeTask, PostureTask, Task, TaskErrors

__all__ = [
    "Clearance",
    "ComTask",
    "FrameTask",
    "GazeTask",
    "IkSolution",
    "PostureTask",
    "Task",
    "TaskErrors",
    "differential_inverse_kinematics",
    "inverse_kinematics",
    "search_inverse_kinematics",
]
