"""jaxrbd: rigid-body dynamics for JAX. The index of its public names; importing it runs nothing."""

from . import se3, so3, spatial
from ._algorithms.aba import aba
from ._algorithms.crba import crba, mass_matrix_product, minverse
from ._algorithms.forward_dynamics import forward_dynamics
from ._algorithms.kinematics import (
    Kinematics,
    external_force,
    forward_kinematics,
    frame_acceleration,
    frame_jacobian,
    frame_placement,
    frame_velocity,
)
from ._algorithms.mass import (
    center_of_mass,
    kinetic_energy,
    passive_force,
    potential_energy,
    total_mass,
)
from ._algorithms.rnea import bias_force, gravity_force, rnea
from .configuration import difference, integrate, interpolate, neutral, random_configuration
from .model import Model
