"""The tool of an arm reaches a random point."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._math.cast import cast
from .._math.components import square_root
from ..actuators import PD
from ..algorithms.kinematics import frame_placement
from ..algorithms.rnea import gravity_force
from ..configuration import random_configuration
from ..model import Model
from ..robots import home_posture, load_robot
from .environment import Env, Interface, Parameter, pose_by_joint, uniform
from .motion import Motion, move

TOOL = "tool"


class ArmReachParams(NamedTuple):
    """The parameters of `ArmReach`.

    - `model`: the bundled robot "arm7" with the armature of its gears;
    - `control`: the `PD` control of the joints;
    - `home` (7,) in rad: the posture for the action 0;
    - `range` (7,) in rad: the change of the target posture for the action 1;
    - `start` (7,) in rad: half the widths of the uniform distribution of the initial posture about
      `home`;
    - `precision` () in m: the distance at which the reward term `precision` falls to 1/e;
    - `weights`: the weights of the reward terms `distance` (minus the distance in m), `precision`
      (from 0 to 1), `velocity` and `action` (minus the sums of squares).
    """

    model: Model
    control: PD
    home: Parameter
    range: Parameter
    start: Parameter
    precision: Parameter
    weights: Mapping[str, Parameter]


class ArmPhysics(NamedTuple):
    """The motion, q (7,) in rad and v (7,) in rad/s, and the target (3,) in m in world axes."""

    motion: Motion
    target: Float[Array, "3"]


@dataclasses.dataclass(frozen=True)
class ArmReach(Env):
    """The tool of an arm with seven joints reaches a random point, and stays there.

    - action (7,): the target posture is `home + range * action`. A PD control with compensation of
      gravity drives the joints towards this posture;
    - observation (20,): q - home, v, the position of the tool relative to the target in m, and the
      target in m, both in world axes;
    - physics: an `ArmPhysics`;
    - an episode never fails. It has 100 steps of 0.02 s.

    The target is the position of the tool in a random configuration within the joint limits, so the
    arm can reach it.
    """

    episode_steps: int = 100
    action_size = 7
    time_step = 0.02

    def default_params(self) -> ArmReachParams:
        model = load_robot("arm7")
        model = dataclasses.replace(model, armature=jnp.full(7, 0.1, model.dtype))  # kg m^2
        effort = np.asarray(model.effort_limit)
        control = PD(2.0 * effort, 0.5 * effort, effort)
        middle = (np.asarray(model.lower_position_limit) + model.upper_position_limit) / 2
        reach = np.asarray(model.upper_position_limit) - middle
        weights = {"distance": 1.0, "precision": 1.0, "velocity": 0.001, "action": 0.001}
        home = home_posture("arm7")
        params = ArmReachParams(model, control, home, reach, 0.1 * reach, 0.05, weights)
        return cast(params, model.dtype)

    def shapes(self, params):
        return {"home": ((7,),), "range": ((7,),), "start": ((7,),), "precision": ((),)}

    def initial(self, params, key):
        model = params.model
        start_key, target_key = jax.random.split(key)
        q = params.home + uniform(start_key, params.start)
        target = frame_placement(model, random_configuration(model, target_key), TOOL).p
        return ArmPhysics(Motion(q, jnp.zeros(model.nv, model.dtype)), target)

    def advance(self, params, physics, action, key):
        model, aim = params.model, params.home + params.range * action

        def torque(q, v):
            return params.control(model, q, v, aim) + gravity_force(model, q)

        return physics._replace(motion=move(model, physics.motion, torque, self.time_step, count=5))

    def observe(self, params, physics, key):
        (q, v), target = physics
        return jnp.concatenate([q - params.home, v, self._error(params, physics), target])

    def terms(self, params, before, action, after):
        square = jnp.sum(self._error(params, after) ** 2)
        return {
            "distance": -square_root(square),
            "precision": jnp.exp(-square / params.precision**2),
            "velocity": -jnp.sum(after.motion.v**2),
            "action": -jnp.sum(action * action),
        }

    def failed(self, params, physics):
        return jnp.zeros((), bool)

    def configuration(self, physics):
        return physics.motion.q

    def interface(self, params):
        model, control = params.model, params.control
        return Interface(
            observation=(
                ("joint_positions_minus_pose", 7),
                ("joint_velocities", 7),
                ("tool_minus_target", 3),
                ("target", 3),
            ),
            actuators=model.joint_names,
            command="target position in rad of PD control with compensation of gravity",
            center=params.home,
            scale=params.range,
            stiffness=control.stiffness,
            damping=control.damping,
            effort=control.effort,
            pose=pose_by_joint(model, params.home),
        )

    def _error(self, params: ArmReachParams, physics: ArmPhysics) -> Array:
        return frame_placement(params.model, physics.motion.q, TOOL).p - physics.target
