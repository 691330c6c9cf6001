"""Optimal control: trajectories that minimise a cost, subject to dynamics and constraints."""

from .lqr import LqrSolution, LqrStages, lqr
from .problem import JointTorques, Problem, ShootingStep, joint_torques, shooting_step
from .solution import Solution, follow, kkt_residual, shift, solve
from .solver import History, Status
from .spaces import RobotStateSpace, Space, VectorSpace, state_space, vector_space
from .stages import Multipliers, Residuals

__all__ = [
    "History",
    "JointTorques",
    "LqrSolution",
    "LqrStages",
    "Multipliers",
    "Problem",
    "Residuals",
    "RobotStateSpace",
    "ShootingStep",
    "Solution",
    "Space",
    "Status",
    "VectorSpace",
    "follow",
    "joint_torques",
    "kkt_residual",
    "lqr",
    "shift",
    "shooting_step",
    "solve",
    "state_space",
    "vector_space",
]
