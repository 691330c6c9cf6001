"""Optimal control: trajectories that minimise a cost, subject to dynamics and constraints."""

from .lqr import LqrSolution, LqrStages, lqr

__all__ = ["LqrSolution", "LqrStages", "lqr"]
