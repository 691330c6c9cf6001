"""jaxrbd: rigid-body dynamics for JAX. The index of its public names; importing it runs nothing."""

from . import constraints, contact, frames, inertial_parameters, joints, se3, so3, spatial
from ._algorithms.aba import aba, aba_minverse
from ._algorithms.branch_sparse import ltl_factor, ltl_solve
from ._algorithms.centroidal import (
    CentroidalDerivatives,
    centroidal_derivatives,
    centroidal_momentum,
    centroidal_momentum_matrix,
    centroidal_momentum_matrix_dot,
    centroidal_momentum_rate,
    com_jacobian,
)
from ._algorithms.coriolis import coriolis_matrix
from ._algorithms.crba import crba, mass_matrix_product, minverse
from ._algorithms.forward_dynamics import forward_dynamics
from ._algorithms.frame_derivatives import (
    FrameAccelerationDerivatives,
    FrameVelocityDerivatives,
    frame_acceleration_derivatives,
    frame_jacobian_dot,
    frame_velocity_derivatives,
    point_jacobian,
)
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
from ._algorithms.operational_space import delassus_matrix, operational_space_inertia
from ._algorithms.regressors import (
    body_regressor,
    joint_torque_regressor,
    kinetic_energy_regressor,
    potential_energy_regressor,
)
from ._algorithms.rnea import bias_force, gravity_force, rnea, static_torque
from ._algorithms.rnea_derivatives import (
    ForwardDynamicsDerivatives,
    RneaDerivatives,
    forward_dynamics_derivatives,
    rnea_derivatives,
)
from ._algorithms.second_order import (
    ForwardDynamicsSecondOrder,
    RneaSecondOrder,
    forward_dynamics_second_order,
    rnea_second_order,
)
from .builder import build_model
from .configuration import (
    configuration_rate,
    difference,
    integrate,
    interpolate,
    neutral,
    random_configuration,
    velocity_bracket,
)
from .description import (
    Compound,
    Fixed,
    Follow,
    JointSpec,
    Link,
    Mimic,
    euler,
    link_inertia,
    pose_matrix,
    universal,
)
from .editing import append_model, describe, lock_joints
from .errors import (
    ArgumentError,
    FrameError,
    InertiaWarning,
    JaxRBDError,
    ModelError,
    RobotFileError,
    SavedFileError,
)
from .identification import (
    BaseParameters,
    Identification,
    base_parameters,
    identify_consistent_inertia,
    identify_inertia,
)
from .integrators import (
    explicit_euler,
    rollout,
    runge_kutta_munthe_kaas,
    semi_implicit_euler,
    variational_midpoint,
)
from .io.model_file import load_model, save_model
from .io.program import export_batched, load_program, save_program
from .io.urdf import load_urdf, parse_urdf, validate_urdf
from .model import Model
from .robots import load_robot, robot_names
from .robots.linkages import Linkage, linkage_names, load_linkage
from .sharding import local_batch, over_devices, pad_batch, shard_batch
from .spatial import Pose
from .tangent import gradient, hessian, jacobian

__version__ = "0.1.0"

__all__ = [
    # the robot: load it, or build it by hand
    "Model",
    "Linkage",
    "linkage_names",
    "load_linkage",
    "load_model",
    "load_robot",
    "load_urdf",
    "parse_urdf",
    "robot_names",
    "save_model",
    "validate_urdf",
    "Compound",
    "Fixed",
    "Follow",
    "JointSpec",
    "Link",
    "Mimic",
    "append_model",
    "build_model",
    "describe",
    "euler",
    "link_inertia",
    "lock_joints",
    "pose_matrix",
    "universal",
    # configurations
    "configuration_rate",
    "difference",
    "integrate",
    "interpolate",
    "neutral",
    "random_configuration",
    "velocity_bracket",
    "gradient",
    "hessian",
    "jacobian",
    # kinematics
    "Kinematics",
    "Pose",
    "external_force",
    "forward_kinematics",
    "frame_acceleration",
    "frame_jacobian",
    "frame_jacobian_dot",
    "frame_placement",
    "frame_velocity",
    "point_jacobian",
    # dynamics
    "aba",
    "aba_minverse",
    "bias_force",
    "coriolis_matrix",
    "crba",
    "delassus_matrix",
    "forward_dynamics",
    "gravity_force",
    "ltl_factor",
    "ltl_solve",
    "mass_matrix_product",
    "minverse",
    "operational_space_inertia",
    "passive_force",
    "rnea",
    "static_torque",
    # integration of motion
    "explicit_euler",
    "rollout",
    "runge_kutta_munthe_kaas",
    "semi_implicit_euler",
    "variational_midpoint",
    # batches over many devices
    "local_batch",
    "over_devices",
    "pad_batch",
    "shard_batch",
    # analytic derivatives
    "CentroidalDerivatives",
    "ForwardDynamicsDerivatives",
    "ForwardDynamicsSecondOrder",
    "FrameAccelerationDerivatives",
    "FrameVelocityDerivatives",
    "RneaDerivatives",
    "RneaSecondOrder",
    "centroidal_derivatives",
    "forward_dynamics_derivatives",
    "forward_dynamics_second_order",
    "frame_acceleration_derivatives",
    "frame_velocity_derivatives",
    "rnea_derivatives",
    "rnea_second_order",
    # mass and energy
    "center_of_mass",
    "centroidal_momentum",
    "centroidal_momentum_matrix",
    "centroidal_momentum_matrix_dot",
    "centroidal_momentum_rate",
    "com_jacobian",
    "kinetic_energy",
    "potential_energy",
    "total_mass",
    # regressors, and the inertias from measurements
    "BaseParameters",
    "Identification",
    "base_parameters",
    "body_regressor",
    "identify_consistent_inertia",
    "identify_inertia",
    "joint_torque_regressor",
    "kinetic_energy_regressor",
    "potential_energy_regressor",
    # programs for other processes and machines
    "export_batched",
    "load_program",
    "save_program",
    # modules of operators, of labelled quantities, of joint kinds, of constraints and of contact
    "constraints",
    "contact",
    "frames",
    "inertial_parameters",
    "joints",
    "se3",
    "so3",
    "spatial",
    # errors
    "ArgumentError",
    "FrameError",
    "InertiaWarning",
    "JaxRBDError",
    "ModelError",
    "RobotFileError",
    "SavedFileError",
]
