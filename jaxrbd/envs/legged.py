"""A robot with legs on the ground, driven by servos: what the quadruped and the humanoid share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._math.cast import cast
from ..actuators import PD, Delay
from ..configuration import integrate
from ..contact import Scene, Servo, contact_points, contact_step, inverse_inertias
from ..model import Model
from ..sensors import Noise, projected_gravity
from .environment import Env, Parameter, substeps, uniform

TIME_STEP = 0.02  # s, between two actions
SUBSTEPS = 5  # of the physics


class LeggedParams(NamedTuple):
    """The parameters of a robot with a free-flying base and n joints.

    - `model`: the robot, with dissipation;
    - `scene`: the points that touch the ground, the ground and the friction;
    - `control`: the `PD` control of the joints;
    - `delay`: the delay of the target positions, in steps of the physics (4 ms);
    - `noise`: the `Noise` of the observation, but not of the commands;
    - `home` (nq,): the posture for the action 0. The reset puts it on the ground;
    - `stroke` () in rad: the change of the target positions for the action 1;
    - `start` (2,): half the widths of the uniform distributions of the initial positions of the
      joints about `home` in rad, and of all initial velocities in m/s and rad/s;
    - `tilt` () in rad: an episode fails if the base is tilted by more than this angle;
    - `low` () in m: an episode fails if the base is less than this height above the ground;
    - `command` (3,): half the widths of the uniform distributions of the commands: forward velocity
      and velocity to the left in m/s, and turning rate in rad/s;
    - `gait` (2,): the period in s and the height in m of the steps of `QuadrupedTrot`;
    - `weights`: of the reward terms.
    """

    model: Model
    scene: Scene
    control: PD
    delay: Delay
    noise: Noise
    home: Parameter
    stroke: Parameter
    start: Parameter
    tilt: Parameter
    low: Parameter
    command: Parameter
    gait: Parameter
    weights: Mapping[str, Parameter]


class LeggedPhysics(NamedTuple):
    """The physical state of a robot with legs.

    - `q` (nq,), `v` (nv,): the motion;
    - `past`: the past target positions, of `Delay`;
    - `action`, `last_action` (n,): the actions of this step and of the step before;
    - `command` (3,): the velocity to follow, as in `LeggedParams`;
    - `time` () in s: since the start of the episode;
    - `distance` (k,) in m: of each sphere of the scene from the ground, before the last step of the
      physics.
    """

    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    past: Float[Array, "m n"]
    action: Float[Array, " n"]
    last_action: Float[Array, " n"]
    command: Float[Array, "3"]
    time: Float[Array, ""]
    distance: Float[Array, " k"]


def default_params(
    model: Model,
    scene: Scene,
    control: PD,
    home: Array,
    low: float,
    weights: Mapping[str, Parameter],
    command: tuple[float, float, float] = (0.0, 0.0, 0.0),
) -> LeggedParams:
    """The usual parameters of a robot with legs, with the given parts."""
    scene = dataclasses.replace(scene, inverse_inertia=inverse_inertias(model, scene))
    params = LeggedParams(
        model=model,
        scene=scene,
        control=control,
        delay=Delay(0.0, 2 * SUBSTEPS),
        noise=Noise(),
        home=home,
        stroke=0.5,
        start=np.array([0.1, 0.1]),
        tilt=1.0,
        low=low,
        command=np.array(command),
        gait=np.array([0.5, 0.06]),
        weights=weights,
    )
    return cast(params, model.dtype)


def posture_terms(
    params: LeggedParams, action: Array, after: LeggedPhysics, frame: str
) -> dict[str, Float[Array, ""]]:
    """Reward terms for a quiet posture.

    `alive` is 1. The others are minus the sums of squares: of the horizontal components of the
    direction of gravity in the base (`upright`), of the joint positions minus `home` (`posture`),
    of the velocities of the joints (`joint_velocity`), and of the change of the action
    (`action_rate`).
    """
    gravity = projected_gravity(params.model, after.q, frame)
    return {
        "alive": jnp.ones((), action.dtype),
        "upright": -jnp.sum(gravity[:2] ** 2),
        "posture": -jnp.sum((after.q[7:] - params.home[7:]) ** 2),
        "joint_velocity": -jnp.sum(after.v[6:] ** 2),
        "action_rate": -jnp.sum((action - after.last_action) ** 2),
    }


def command_terms(after: LeggedPhysics) -> dict[str, Float[Array, ""]]:
    """Reward terms for the velocity of the base, which is expressed in the base.

    `velocity` and `turning` are 1 where the base has the commanded velocity, and decay with the
    square of the error in units of 0.5 m/s and 0.5 rad/s. `bounce` is minus the sum of squares of
    the other velocities of the base.
    """
    slip = jnp.sum((after.v[:2] - after.command[:2]) ** 2)
    turn = (after.v[5] - after.command[2]) ** 2
    return {
        "velocity": jnp.exp(-4 * slip),
        "turning": jnp.exp(-4 * turn),
        "bounce": -jnp.sum(after.v[2:5] ** 2),
    }


def gait_term(
    params: LeggedParams, after: LeggedPhysics, phases: Sequence[float]
) -> Float[Array, ""]:
    """Minus the mean of the squares of the errors of the heights of the feet above the ground.

    The heights are in units of the height of the steps. A foot with the phase 0 swings in the first
    half of the period, with the height of a half wave of the sine. `phases`: one per foot, in
    periods.
    """
    period, height = params.gait
    phase = after.time / period + jnp.asarray(phases, after.time.dtype)
    wanted = jnp.maximum(jnp.sin(2 * np.pi * phase), 0)
    return -jnp.mean((after.distance / height - wanted) ** 2)


class LeggedEnv(Env):
    """What the environments of robots with legs share: the start, the physics and the rewards.

    - `base`: the name of the frame of the base;
    - `smoothing`: as in `contact_step`;
    - `observes_command`: whether the observation contains the command;
    - `phases`: for a gait, the phase of each contact in periods. The observation then contains the
      clock of the gait, and there is a reward term `gait`.
    """

    base: str
    smoothing: float | None
    observes_command: bool = True
    phases: tuple[float, ...] | None = None
    time_step = TIME_STEP

    def initial(self, params, key):
        """A random start near the home posture, with the lowest point on the ground."""
        model, (joints, speed) = params.model, params.start
        joint_key, speed_key, command_key = jax.random.split(key, 3)
        width = jnp.full(model.nv, joints, model.dtype).at[:6].set(0)
        q = integrate(model, params.home, uniform(joint_key, width))
        v = uniform(speed_key, jnp.full(model.nv, speed, model.dtype))
        # The distance from uneven ground is below the height above it: the second step corrects it.
        for _ in range(2):
            q = q.at[2].add(-jnp.min(contact_points(model, params.scene, q, v).distance))
        distance = contact_points(model, params.scene, q, v).distance
        still = jnp.zeros(model.nv - 6, model.dtype)
        return LeggedPhysics(
            q=q,
            v=v,
            past=params.delay.init(params.home[7:]),
            action=still,
            last_action=still,
            command=uniform(command_key, params.command),
            time=jnp.zeros((), model.dtype),
            distance=distance,
        )

    def advance(self, params, physics, action, key):
        """The physical state after `TIME_STEP`, with the action as a change of the home posture."""
        model, scene, dt = params.model, params.scene, TIME_STEP / SUBSTEPS
        aim = params.home[7:] + params.stroke * action
        free = jnp.zeros(model.nv, model.dtype)

        def step(physics: LeggedPhysics) -> LeggedPhysics:
            past, delayed = params.delay.push(physics.past, aim)
            error = jnp.concatenate([jnp.zeros(6, model.dtype), delayed - physics.q[7:]])
            servo = Servo(params.control, None, error=error)
            q, v, smoothing = physics.q, physics.v, self.smoothing
            found = contact_step(model, scene, q, v, free, dt, servo=servo, smoothing=smoothing)
            distance = found.distance[: len(scene.frames)]  # without those of pairs
            return physics._replace(q=found.q, v=found.v, past=past, distance=distance)

        physics = substeps(step, physics, SUBSTEPS)
        return physics._replace(
            action=action, last_action=physics.action, time=physics.time + TIME_STEP
        )

    def observe(self, params, physics, key):
        """What the robot measures, with noise; then the command and the clock, without noise.

        The robot measures the direction of gravity in the base, the linear and angular velocity of
        the base, the joint positions minus `home`, the joint velocities, and the last action. The
        clock is the sine and the cosine of the phase of the gait.
        """
        measured = [
            projected_gravity(params.model, physics.q, self.base),
            physics.v[:6],
            physics.q[7:] - params.home[7:],
            physics.v[6:],
            physics.action,
        ]
        felt = [params.noise(key, jnp.concatenate(measured))]
        if self.observes_command:
            felt.append(physics.command)
        if self.phases is not None:
            angle = 2 * np.pi * physics.time / params.gait[0]
            felt.append(jnp.stack([jnp.sin(angle), jnp.cos(angle)]))
        return jnp.concatenate(felt)

    def terms(self, params, before, action, after):
        terms = posture_terms(params, action, after, self.base)
        if self.phases is not None:
            terms["gait"] = gait_term(params, after, self.phases)
        return terms | command_terms(after)

    def failed(self, params, physics):
        """Whether the base is too low or tilted too much."""
        ground = cast(params.scene.ground, params.model.dtype)
        height = physics.q[2] - ground.elevation(physics.q[:2])
        down = -projected_gravity(params.model, physics.q, self.base)[2]
        return (height < params.low) | (down < jnp.cos(params.tilt))
