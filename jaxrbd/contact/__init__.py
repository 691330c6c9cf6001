"""Contact of a robot with the ground and between shapes, for simulation and for learning.

`scene.py` describes the spheres, the ground and the material, and `shape_pairs.py` pairs of shapes.
There are two models of contact:

- `compliant.py`: a contact force `f_ext` for any integrator. It is smooth enough for gradients at
  touch-down and at rest;
- `convex.py`: a time step with rigid contact, or with the soft contact of `softness.py`, which
  solves one convex problem. `actuator_servo.py` makes the servo of a step from affine actuators,
  such as the actuators of MJCF files, or from any joint forces.
"""

from ..collision.grounds import Ground, Terrain
from ..collision.height_grid import HeightGrid
from .actuator_servo import servo_of_actuators, servo_of_forces
from .compliant import ContactForce, contact_energy, contact_force
from .contact_step_derivatives import contact_step_derivatives
from .convex import ContactStep, contact_step, step_wrenches
from .inverse_inertia import inverse_inertias
from .joint_terms import JointImpulses, Servo, TendonServo
from .scene import (
    ContactPoints,
    Height,
    InverseInertias,
    Material,
    Plane,
    Scene,
    contact_points,
)
from .shape_pairs import CollisionPairs, collision_pairs
from .softness import Softness

__all__ = [
    # the scene
    "Ground",
    "Height",
    "HeightGrid",
    "Material",
    "Plane",
    "Scene",
    "Softness",
    "Terrain",
    "ContactPoints",
    "contact_points",
    # shapes that touch each other
    "CollisionPairs",
    "collision_pairs",
    # a force
    "ContactForce",
    "contact_energy",
    "contact_force",
    # a time step
    "ContactStep",
    "InverseInertias",
    "JointImpulses",
    "Servo",
    "TendonServo",
    "contact_step",
    "contact_step_derivatives",
    "inverse_inertias",
    "servo_of_actuators",
    "servo_of_forces",
    "step_wrenches",
]
