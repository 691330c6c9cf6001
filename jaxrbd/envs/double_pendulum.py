"""The swing-up of a double pendulum."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from .._math.cast import cast
from ..joints import Revolute
from ..model import Model
from ..robots import load_robot
from .environment import Env, Interface, Parameter, require_joint_kinds, uniform
from .motion import Motion, move


class DoublePendulumParams(NamedTuple):
    """The parameters of `DoublePendulumSwingUp`.

    - `model`: the bundled robot "double_pendulum", or another robot with two revolute joints, which
      hangs down at q = 0. The rewards and the observations assume parallel axes of the joints; the
      rewards also assume two rods of 1 m;
    - `torque` (2,) in N m: the torques of the shoulder and the elbow for the action 1. The default
      torque of the shoulder cannot lift the stretched pendulum, so the pendulum must swing;
    - `start` (4,): half the widths of the uniform distribution of the start about the hanging
      pendulum: two angles in rad, and their rates;
    - `weights`: the weights of the reward terms `height`, `angular_velocity` and `action`. `height`
      is minus the sum of two distances in m: how far the end of each rod is below its highest
      place. The other terms are minus sums of squares.
    """

    model: Model
    torque: Parameter
    start: Parameter
    weights: Mapping[str, Parameter]


@dataclasses.dataclass(frozen=True)
class DoublePendulumSwingUp(Env):
    """A double pendulum with two motors swings up and balances.

    - action (2,): the torques of the shoulder and the elbow, in units of `params.torque`;
    - observation (6,): the sines and the cosines of the angles of both rods from the downward
      vertical, and the rates of both joints;
    - physics: a `Motion`;
    - an episode never fails. It has 250 steps of 0.02 s.
    """

    episode_steps: int = 250
    action_size = 2
    time_step = 0.02

    def default_params(self) -> DoublePendulumParams:
        model = load_robot("double_pendulum")
        torque, start = np.array([12.0, 8.0]), np.array([0.5, 0.5, 0.1, 0.1])
        weights = {"height": 1.0, "angular_velocity": 0.01, "action": 0.01}
        return cast(DoublePendulumParams(model, torque, start, weights), model.dtype)

    def shapes(self, params):
        require_joint_kinds(params.model, Revolute, Revolute)
        return {"torque": ((2,),), "start": ((4,),)}

    def initial(self, params, key):
        shift = uniform(key, params.start)
        return Motion(shift[:2], shift[2:])

    def advance(self, params, physics, action, key):
        tau = params.torque * action
        return move(params.model, physics, lambda q, v: tau, self.time_step, count=4)

    def observe(self, params, physics, key):
        angles = jnp.cumsum(physics.q)
        return jnp.concatenate([jnp.sin(angles), jnp.cos(angles), physics.v])

    def terms(self, params, before, action, after):
        upper, lower = 1 + jnp.cos(jnp.cumsum(after.q))
        return {
            "height": -(2 * upper + lower),
            "angular_velocity": -jnp.sum(after.v * after.v),
            "action": -jnp.sum(action * action),
        }

    def failed(self, params, physics):
        return jnp.zeros((), bool)

    def interface(self, params):
        names = "sines_of_angles cosines_of_angles joint_velocities".split()
        return Interface(
            observation=tuple((name, 2) for name in names),
            actuators=params.model.joint_names,
            command="torque in N m",
            center=jnp.zeros_like(params.torque),
            scale=params.torque,
        )
