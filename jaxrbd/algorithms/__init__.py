"""The algorithms: pure functions of a `Model` and one state, each compiled at its first call.

The most used algorithms are also names of the package `jaxrbd` itself.
"""

from .aba import aba, aba_minverse
from .centroidal import (
    CentroidalDerivatives,
    centroidal_derivatives,
    centroidal_momentum,
    centroidal_momentum_matrix,
    centroidal_momentum_matrix_dot,
    centroidal_momentum_rate,
    com_jacobian,
)
from .coriolis import coriolis_matrix
from .crba import crba, mass_matrix_product, minverse
from .formulations.branch_sparse import ltl_factor, ltl_solve
from .forward_dynamics import forward_dynamics
from .frame_derivatives import (
    FrameAccelerationDerivatives,
    FrameVelocityDerivatives,
    frame_acceleration_derivatives,
    frame_jacobian_dot,
    frame_velocity_derivatives,
    point_jacobian,
)
from .kinematics import (
    BodyMotions,
    JointCalc,
    Kinematics,
    body_motions,
    external_force,
    forward_kinematics,
    frame_acceleration,
    frame_jacobian,
    frame_placement,
    frame_placements,
    frame_velocity,
    joint_calc,
)
from .mass import center_of_mass, kinetic_energy, passive_force, potential_energy, total_mass
from .operational_space import delassus_matrix, operational_space_inertia
from .regressors import (
    body_regressor,
    joint_torque_regressor,
    kinetic_energy_regressor,
    potential_energy_regressor,
)
from .rnea import bias_force, gravity_force, joint_wrenches, rnea, static_torque
from .rnea_derivatives import (
    ForwardDynamicsDerivatives,
    RneaDerivatives,
    forward_dynamics_derivatives,
    rnea_derivatives,
)
from .second_order import (
    ForwardDynamicsSecondOrder,
    RneaSecondOrder,
    forward_dynamics_second_order,
    rnea_second_order,
)

__all__ = [
    "BodyMotions",
    "CentroidalDerivatives",
    "ForwardDynamicsDerivatives",
    "ForwardDynamicsSecondOrder",
    "FrameAccelerationDerivatives",
    "FrameVelocityDerivatives",
    "JointCalc",
    "Kinematics",
    "RneaDerivatives",
    "RneaSecondOrder",
    "aba",
    "aba_minverse",
    "bias_force",
    "body_motions",
    "body_regressor",
    "center_of_mass",
    "centroidal_derivatives",
    "centroidal_momentum",
    "centroidal_momentum_matrix",
    "centroidal_momentum_matrix_dot",
    "centroidal_momentum_rate",
    "com_jacobian",
    "coriolis_matrix",
    "crba",
    "delassus_matrix",
    "external_force",
    "forward_dynamics",
    "forward_dynamics_derivatives",
    "forward_dynamics_second_order",
    "forward_kinematics",
    "frame_acceleration",
    "frame_acceleration_derivatives",
    "frame_jacobian",
    "frame_jacobian_dot",
    "frame_placement",
    "frame_placements",
    "frame_velocity",
    "frame_velocity_derivatives",
    "gravity_force",
    "joint_calc",
    "joint_torque_regressor",
    "joint_wrenches",
    "kinetic_energy",
    "kinetic_energy_regressor",
    "ltl_factor",
    "ltl_solve",
    "mass_matrix_product",
    "minverse",
    "operational_space_inertia",
    "passive_force",
    "point_jacobian",
    "potential_energy",
    "potential_energy_regressor",
    "rnea",
    "rnea_derivatives",
    "rnea_second_order",
    "static_torque",
    "total_mass",
]
