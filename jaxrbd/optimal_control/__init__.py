"""Optimal control: trajectories that minimise a cost, subject to dynamics and constraints."""

from .contact_shooting import (
    ContactShooting,
    ContactSolution,
    contact_shooting,
    solve_contacts,
)
from .lqr import LqrSolution, LqrStages, lqr
from .problem import (
    JointTorques,
    Problem,
    ShootingStep,
    at_stage,
    joint_torques,
    shooting_step,
)
from .solution import Solution, first_solution, follow, kkt_residual, shift, solve
from .solver import History, Status
from .spaces import (
    ProductSpace,
    RobotStateSpace,
    Space,
    VectorSpace,
    product_space,
    state_space,
    vector_space,
)
from .stages import Multipliers, Residuals

__all__ = [
    "ContactShooting",
    "ContactSolution",
    "History",
    "JointTorques",
    "LqrSolution",
    "LqrStages",
    "Multipliers",
    "Problem",
    "ProductSpace",
    "Residuals",
    "RobotStateSpace",
    "ShootingStep",
    "Solution",
    "Space",
    "Status",
    "VectorSpace",
    "at_stage",
    "contact_shooting",
    "first_solution",
    "follow",
    "joint_torques",
    "kkt_residual",
    "lqr",
    "product_space",
    "shift",
    "shooting_step",
    "solve",
    "solve_contacts",
    "state_space",
    "vector_space",
]
