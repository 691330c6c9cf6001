"""A hopper that moves along the vertical."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from .._math.cast import cast
from ..actuators import PD
from ..contact import Scene, Servo, contact_step, inverse_inertias
from ..joints import Prismatic
from ..model import Fixed, JointSpec, Link, Model, build_model, link_inertia, placement_matrix
from .environment import Env, Interface, Parameter, repeat, require_joint_kinds, uniform
from .motion import Motion

REST = 0.5  # m, from the body to the centre of the foot at the position 0 of the leg
RADIUS = 0.03  # m, of the foot
STROKE = 0.15  # m, in both directions
SUBSTEPS = 5  # steps of the physics per action


class HopperParams(NamedTuple):
    """The parameters of `Hopper`.

    - `model`: a body of 3 kg, and a leg of 0.3 kg with a foot, which slides along the vertical; or
      another robot with two prismatic joints, the body and the leg;
    - `scene`: the foot, a sphere, and the ground;
    - `control`: the `PD` control of the leg, with the limit of its force;
    - `stroke` () in m: the change of the target length of the leg for the action 1;
    - `target` () in m: the height of the body at which the reward is largest;
    - `start` (4,): half the widths of the uniform distributions of the initial height of the foot
      above the ground in m, of the initial position of the leg in m, and of the initial velocities
      of the body and of the leg in m/s. The least height of the foot is 0;
    - `weights`: the weights of the reward terms `height` (minus the square of the distance in m of
      the body from the target) and `action` (minus the square of the action).
    """

    model: Model
    scene: Scene
    control: PD
    stroke: Parameter
    target: Parameter
    start: Parameter
    weights: Mapping[str, Parameter]


@dataclasses.dataclass(frozen=True)
class Hopper(Env):
    """A body on a leg hops along the vertical, so that its height is near a target.

    The target is higher than the body of a standing hopper, so the hopper must leave the ground.

    - action (1,): the target position of the leg, in units of `params.stroke`;
    - observation (4,): the height of the body minus the height of the standing body in m, the
      position of the leg in m, and their rates;
    - physics: a `Motion` with q = (height of the body, position of the leg);
    - `smoothing` in m: as in `contact_step` (default: exact derivatives);
    - an episode never fails. It has 100 steps of 0.02 s; the physics has steps of 4 ms.
    """

    episode_steps: int = 100
    smoothing: float | None = None
    action_size = 1
    time_step = 0.02

    def default_params(self) -> HopperParams:
        model = build_hopper()
        scene = Scene(["foot"], RADIUS)
        scene = dataclasses.replace(scene, inverse_inertia=inverse_inertias(model, scene))
        control = PD([0.0, 4000.0], [0.0, 60.0], [np.inf, 200.0])
        start = np.array([0.3, 0.05, 1.0, 0.5])
        weights = {"height": 1.0, "action": 0.001}
        params = HopperParams(model, scene, control, STROKE, 0.9, start, weights)
        return cast(params, model.dtype)

    def shapes(self, params):
        require_joint_kinds(params.model, Prismatic, Prismatic)
        return {"stroke": ((),), "target": ((),), "start": ((4,),)}

    def initial(self, params, key):
        shift = uniform(key, params.start)
        lowest = REST + RADIUS + shift[1]
        q = jnp.stack([lowest + params.start[0] + shift[0], shift[1]])
        return Motion(q, shift[2:])

    def advance(self, params, physics, action, key):
        model, no_force = params.model, jnp.zeros_like(physics.v)
        target = jnp.stack([jnp.zeros_like(action[0]), params.stroke * action[0]])
        servo = Servo(params.control, target)

        def step(motion):
            found = contact_step(
                model,
                params.scene,
                *motion,
                no_force,
                self.time_step / SUBSTEPS,
                servo=servo,
                smoothing=self.smoothing,
            )
            return Motion(found.q, found.v)

        return repeat(step, physics, SUBSTEPS)

    def observe(self, params, physics, key):
        (height, leg), (speed, rate) = physics
        return jnp.stack([height - (REST + RADIUS), leg, speed, rate])

    def terms(self, params, before, action, after):
        error = after.q[0] - params.target
        return {"height": -error * error, "action": -jnp.sum(action * action)}

    def failed(self, params, physics):
        return jnp.zeros((), bool)

    def interface(self, params):
        control = params.control
        names = "height_minus_standing_height leg_position vertical_velocity leg_velocity".split()
        return Interface(
            observation=tuple((name, 1) for name in names),
            actuators=params.model.joint_names[1:],
            command="target position in m of PD control",
            center=jnp.zeros(1, params.model.dtype),
            scale=params.stroke[None],
            stiffness=control.stiffness[1:],
            damping=control.damping[1:],
            effort=control.effort[1:],
        )


def build_hopper() -> Model:
    """The hopper: q = (height of the body, position of the leg, positive for a longer leg)."""
    links = [
        Link("body", link_inertia(3.0, (0.0, 0.0, 0.0), 0.02 * np.eye(3))),
        Link("leg", link_inertia(0.3, (0.0, 0.0, 0.0), 0.002 * np.eye(3))),
        Link("foot"),
    ]
    down = placement_matrix((0.0, 0.0, -REST))
    joints = [
        JointSpec("slide", Prismatic((0.0, 0.0, 1.0)), None, "body"),
        JointSpec(
            "extension",
            Prismatic((0.0, 0.0, -1.0)),
            "body",
            "leg",
            down,
            lower=-STROKE,
            upper=STROKE,
        ),
        JointSpec("foot", Fixed(), "leg", "foot"),
    ]
    return build_model(links, joints, name="hopper")
