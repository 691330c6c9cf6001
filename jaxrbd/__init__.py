"""Rigid-body dynamics for JAX. The index of the public names.

The package exports the names that are used most. The other public names are in the modules, such
as `jaxrbd.algorithms`, `jaxrbd.model`, `jaxrbd.integrators` or `jaxrbd.io`. `jax.jit` compiles the
algorithms, so callers need not. Importing the package changes no setting of JAX and computes
nothing.

Every function raises ArgumentError if an argument has a wrong shape or dtype, and most docstrings
do not repeat this. A zero quaternion in a configuration raises ArgumentError too, if the
configuration is in the memory of a CPU and JAX does not trace it. Otherwise a zero quaternion is
read as the identity.
"""

from . import (
    actuators,
    algorithms,
    collision,
    configuration,
    constraints,
    contact,
    envs,
    errors,
    frames,
    identification,
    inertial_parameters,
    integrators,
    inverse_kinematics,
    io,
    joints,
    model,
    optimal_control,
    padded,
    passive,
    robots,
    se3,
    sensors,
    sharding,
    so3,
    spatial,
    tangent,
    tendons,
    view,
)
from .algorithms import (
    Kinematics,
    aba,
    bias_force,
    body_motions,
    center_of_mass,
    centroidal_momentum,
    centroidal_momentum_matrix,
    com_jacobian,
    coriolis_matrix,
    crba,
    external_force,
    forward_dynamics,
    forward_dynamics_derivatives,
    forward_dynamics_second_order,
    forward_kinematics,
    frame_acceleration,
    frame_jacobian,
    frame_jacobian_dot,
    frame_placement,
    frame_placements,
    frame_velocity,
    gravity_force,
    joint_torque_regressor,
    joint_wrenches,
    kinetic_energy,
    mass_matrix_product,
    minverse,
    passive_force,
    potential_energy,
    rnea,
    rnea_derivatives,
    rnea_second_order,
    total_mass,
)
from .configuration import difference, integrate, interpolate, neutral, random_configuration
from .errors import (
    ArgumentError,
    ContactWarning,
    FrameError,
    InertiaWarning,
    JaxRBDError,
    LimitWarning,
    ModelError,
    RobotFileError,
    SavedFileError,
    TrainingError,
)
from .io import load_mjcf, load_urdf
from .model import Model, build_model
from .robots import load_robot, robot_names
from .spatial import Pose
from .tangent import gradient, hessian, jacobian

__version__ = "0.3.0"

__all__ = [
    # the robot
    "Model",
    "build_model",
    "load_robot",
    "load_mjcf",
    "load_urdf",
    "robot_names",
    # configurations
    "difference",
    "integrate",
    "interpolate",
    "neutral",
    "random_configuration",
    # derivatives with respect to a configuration
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
    "body_motions",
    "frame_placement",
    "frame_placements",
    "frame_velocity",
    # dynamics
    "aba",
    "bias_force",
    "coriolis_matrix",
    "crba",
    "forward_dynamics",
    "gravity_force",
    "joint_wrenches",
    "mass_matrix_product",
    "minverse",
    "passive_force",
    "rnea",
    # analytic derivatives of the dynamics
    "forward_dynamics_derivatives",
    "forward_dynamics_second_order",
    "rnea_derivatives",
    "rnea_second_order",
    # mass, energy and momentum
    "center_of_mass",
    "centroidal_momentum",
    "centroidal_momentum_matrix",
    "com_jacobian",
    "joint_torque_regressor",
    "kinetic_energy",
    "potential_energy",
    "total_mass",
    # modules
    "actuators",
    "algorithms",
    "collision",
    "configuration",
    "constraints",
    "contact",
    "envs",
    "errors",
    "frames",
    "identification",
    "inertial_parameters",
    "integrators",
    "inverse_kinematics",
    "io",
    "joints",
    "model",
    "optimal_control",
    "padded",
    "passive",
    "robots",
    "se3",
    "sensors",
    "sharding",
    "so3",
    "spatial",
    "tangent",
    "tendons",
    "view",
    # errors and warnings
    "ArgumentError",
    "ContactWarning",
    "FrameError",
    "InertiaWarning",
    "JaxRBDError",
    "LimitWarning",
    "ModelError",
    "RobotFileError",
    "SavedFileError",
    "TrainingError",
]
