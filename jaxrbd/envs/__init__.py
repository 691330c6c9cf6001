"""Environments for learning: tasks of robots as pure functions.

An `Env` has `reset(params, key)` and `step(params, state, action)`. `params` is a pytree with the
robot, the weights of the reward and the other values of the task, such as the ground. Nothing is
changed in place, so JAX differentiates a step with respect to the state, the action and every leaf
of `params`, and `vmap` gives each environment different parameters.
"""

from .adapters import Box, BraxEnv, BraxState, GymnaxEnv, gymnasium_vector
from .arm_reach import ArmPhysics, ArmReach, ArmReachParams
from .batches import AutoReset, Vectorized, auto_reset, vectorize
from .cart_pole import CartPoleParams, CartPoleSwingUp
from .double_pendulum import DoublePendulumParams, DoublePendulumSwingUp
from .environment import Env, Interface, State
from .gait import GaitPostures, gait_postures
from .gymnasium_tasks import GYMNASIUM_TASKS, gymnasium_task
from .hopper import Hopper, HopperParams
from .humanoid import HumanoidStand, HumanoidWalk
from .legged import LeggedParams, LeggedPhysics
from .mirror import Mirror, SignedPermutation, mirror_image
from .mjcf import MjcfWalk
from .mjcf_task import MjcfParams, MjcfPhysics, MjcfTask, tolerance
from .motion import Motion
from .observations import Asymmetric, History, HistoryPhysics
from .padded_walk import PaddedWalk
from .quadruped import QuadrupedJoystick, QuadrupedStand, QuadrupedTrot
from .randomisation import Randomised, Scale, Shift, Uniform, randomise, stack_models

__all__ = [
    # the interface
    "Env",
    "Interface",
    "State",
    # batches
    "AutoReset",
    "Vectorized",
    "auto_reset",
    "vectorize",
    # interfaces of other libraries
    "Box",
    "BraxEnv",
    "BraxState",
    "GymnaxEnv",
    "gymnasium_vector",
    # random parameters
    "Randomised",
    "Scale",
    "Shift",
    "Uniform",
    "randomise",
    "stack_models",
    # environments
    "ArmPhysics",
    "ArmReach",
    "ArmReachParams",
    "CartPoleParams",
    "CartPoleSwingUp",
    "DoublePendulumParams",
    "DoublePendulumSwingUp",
    "Hopper",
    "HopperParams",
    "HumanoidStand",
    "HumanoidWalk",
    "GaitPostures",
    "LeggedParams",
    "LeggedPhysics",
    "gait_postures",
    "MjcfParams",
    "MjcfPhysics",
    "MjcfTask",
    "MjcfWalk",
    "PaddedWalk",
    "Motion",
    "QuadrupedJoystick",
    "QuadrupedStand",
    "QuadrupedTrot",
    # tasks of Gymnasium
    "GYMNASIUM_TASKS",
    "gymnasium_task",
    # environments with other observations
    "Asymmetric",
    "History",
    "HistoryPhysics",
    # the mirror image of a robot
    "Mirror",
    "SignedPermutation",
    "mirror_image",
    # reward terms
    "tolerance",
]
