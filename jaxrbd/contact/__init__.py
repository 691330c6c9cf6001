"""Contact of points and spheres on a robot with the ground, for simulation and for learning.

`scene.py` describes the spheres, the ground and the material. There are two models of contact:

- `compliant.py`: a contact force `f_ext` for any integrator. It is smooth enough for gradients at
  touch-down and at rest;
- `convex.py`: a time step on rigid ground, which solves one convex problem.
"""

from .compliant import ContactForce, contact_energy, contact_force
from .convex import ContactStep, contact_step
from .height_grid import HeightGrid
from .inverse_inertia import inverse_inertias
from .scene import ContactPoints, Ground, Height, Material, Plane, Scene, contact_points

__all__ = [
    # the scene
    "Ground",
    "Height",
    "HeightGrid",
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
    "inverse_inertias",
]
