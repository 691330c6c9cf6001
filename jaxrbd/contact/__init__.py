"""Contact of a robot's points and spheres with the ground, for simulation and for learning.

`scene.py` states what may touch, the ground, and the material. Two models move the robot on it:
`compliant.py` has a force, smooth enough for gradients at touch-down and at rest, which any
integrator takes as `f_ext`; `convex.py` has a time step in which nothing yields, by one convex
problem.
"""

from .compliant import ContactForce, contact_energy, contact_force
from .convex import ContactStep, contact_step
from .scene import ContactPoints, Ground, Height, Material, Plane, Scene, contact_points

__all__ = [
    # the scene
    "Ground",
    "Height",
    "Material",
    "Plane",
    "Scene",
    "ContactPoints",
    "contact_points",
    # a force
    "ContactForce",
    "contact_energy",
    "contact_force",
    # a time step
    "ContactStep",
    "contact_step",
]
