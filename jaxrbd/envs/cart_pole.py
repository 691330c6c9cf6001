"""The swing-up of a cart-pole."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._math.cast import cast
from ..joints import Prismatic, Revolute
from ..model import Model
from ..robots import load_robot
from .environment import Env, Interface, Parameter, require_joint_kinds, uniform
from .motion import Motion, move


class CartPoleParams(NamedTuple):
    """The parameters of `CartPoleSwingUp`.

    - `model`: the bundled robot "cart_pole", or another robot with a prismatic joint, the cart, and
      then a revolute joint, the pole. The pole stands up at the angle 0;
    - `force` () in N: the force on the cart for the action 1;
    - `start` (4,): half the widths of the uniform distribution of the start, about the hanging
      pole: position in m, angle in rad, and their rates;
    - `weights`: the weights of the reward terms `angle`, `angular_velocity`, `position` and
      `velocity`, which are the negative squares of these quantities.
    """

    model: Model
    force: Parameter
    start: Parameter
    weights: Mapping[str, Parameter]


@dataclasses.dataclass(frozen=True)
class CartPoleSwingUp(Env):
    """A cart with a motor swings its pole up and holds it at the origin.

    - action (1,): the force on the cart, in units of `params.force`;
    - observation (5,): the position and the velocity of the cart, the sine and the cosine of the
      angle of the pole from the upright, and its rate;
    - physics: a `Motion`;
    - an episode never fails. It has 240 steps of 1/60 s.

    The reward terms, the number of steps and the start are as in the task CartPoleSwingUp of Xu et
    al. (2022), Accelerated policy learning with parallel differentiable simulation. The angle in
    the reward is between -pi and pi. Position limits do not act.
    """

    episode_steps: int = 240
    action_size = 1
    time_step = 1 / 60

    def default_params(self) -> CartPoleParams:
        model = load_robot("cart_pole")
        start = np.array([np.pi / 2, np.pi / 2, 0.25, 0.25])
        weights = {"angle": 1.0, "angular_velocity": 0.1, "position": 0.05, "velocity": 0.1}
        return cast(CartPoleParams(model, 20.0, start, weights), model.dtype)

    def shapes(self, params):
        require_joint_kinds(params.model, Prismatic, Revolute)
        return {"force": ((),), "start": ((4,),)}

    def initial(self, params, key):
        shift = uniform(key, params.start)
        return Motion(shift[:2].at[1].add(np.pi), shift[2:])

    def advance(self, params, physics, action, key):
        # Not `jnp.stack`, which needs equal shardings on a mesh with axes of type Explicit.
        tau = params.force * action * jnp.array([1.0, 0.0], action.dtype)
        return move(params.model, physics, lambda q, v: tau, self.time_step, count=4)

    def observe(self, params, physics, key):
        (x, angle), (speed, rate) = physics
        return jnp.stack([x, speed, jnp.sin(angle), jnp.cos(angle), rate])

    def terms(self, params, before, action, after):
        (x, angle), (speed, rate) = after
        turns = jax.lax.stop_gradient(jnp.round(angle / (2 * np.pi)))
        angle = angle - 2 * np.pi * turns
        values = {"angle": angle, "angular_velocity": rate, "position": x, "velocity": speed}
        return {name: -value * value for name, value in values.items()}

    def failed(self, params, physics):
        return jnp.zeros((), bool)

    def interface(self, params):
        names = "position velocity sine_of_angle cosine_of_angle angular_velocity".split()
        return Interface(
            observation=tuple((name, 1) for name in names),
            actuators=params.model.joint_names[:1],
            command="force in N",
            center=jnp.zeros(1, params.model.dtype),
            scale=params.force[None],
        )
