"""Robots with legs on the ground, driven by servos: parameters, rewards and the base class."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from .._math.cast import cast
from ..actuators import PD, Delay
from ..configuration import integrate
from ..constraints import Constraint
from ..contact import Scene, Servo, contact_points, contact_step, inverse_inertias
from ..model import Model, arguments
from ..passive import PassiveForces
from ..sensors import Noise, projected_gravity
from ..so3 import quaternion_conjugate, quaternion_normalize, quaternion_rotate
from ..tendons import Tendons
from .environment import Env, Interface, Parameter, pose_by_joint, repeat, sizes, uniform
from .gait import GaitPostures

TIME_STEP = 0.02  # s, between two actions
SUBSTEPS = 5  # steps of the physics per action
# Weights of reward terms for a robot that follows the postures of a gait. All other terms have the
# usual weights.
GAIT_WEIGHTS = {"alive": 2.0, "posture": 8.0, "velocity": 3.0, "gait": 4.0, "action_rate": 0.003}


class LeggedParams(NamedTuple):
    """The parameters of a robot with a free-flying base and n joints.

    - `model`: the robot, with dissipation;
    - `scene`: the points that touch the ground, the ground and the friction;
    - `control`: the `PD` control of the joints;
    - `delay`: the delay of the target positions, in steps of the physics (4 ms);
    - `noise`: the `Noise` of the measured part of the observation. The command and the clock of the
      gait have no noise;
    - `home` (nq,): the posture for the action 0, unless the robot follows a gait. The reset puts
      the robot on the ground;
    - `stroke` () or (n,) in rad or m: the change of the target positions for the action 1;
    - `start` (2,): the ranges of the random initial state. The initial joint positions are uniform
      within `home` +- `start[0]` rad or m, and all initial velocities are uniform within
      +- `start[1]` m/s or rad/s. A robot that follows a gait has the joint positions and velocities
      of the gait in place of `home` and 0;
    - `tilt` () in rad: an episode fails if the base is tilted by more than this angle;
    - `low` () in m: the least height of the base above the ground. Below it, an episode fails;
    - `command` (3,): the ranges of the random commands: forward velocity and velocity to the left
      in m/s, and turning rate in rad/s. Entry i is uniform within +- `command[i]`;
    - `gait` (2,): the period of the gait in s, and the height of its steps in m;
    - `weights`: the weights of the reward terms;
    - `passive`, `tendons`, `constraints`: springs and other passive forces, tendons that act, and
      constraints between links, by default none;
    - `phases` (k,): the phase of each sphere as a fraction of the period, only for `PaddedWalk`,
      whose robots have different phases, else None;
    - `postures`: the `GaitPostures` of a robot that follows the joint positions of a gait, else
      None;
    - `pushes` (2,): random pushes, or None. The first entry is a velocity in m/s, and the second
      one the mean time between two pushes in s, at least 0.02 s. A push adds a horizontal velocity
      to the base, whose components along x and y of the world are uniform within +- `pushes[0]`.
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
    passive: PassiveForces = PassiveForces()
    tendons: Tendons = Tendons(())
    constraints: tuple[Constraint, ...] = ()
    phases: Parameter | None = None
    postures: GaitPostures | None = None
    pushes: Parameter | None = None


class LeggedPhysics(NamedTuple):
    """The physical state of a robot with legs.

    - `q` (nq,), `v` (nv,): the motion;
    - `past` (m, n): the past target positions, as in `Delay`;
    - `action`, `last_action` (n,): the actions of this step and of the step before;
    - `command` (3,): the velocity to follow, as in `LeggedParams`;
    - `time` () in s: the time since the start of the episode or, with `postures`, of the gait;
    - `distance` (k,) in m: the distance of each sphere of the scene from the ground, before the
      last step of the physics.
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
    """`LeggedParams` with the given values, and default values for all other parameters."""
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


def with_gait(params: LeggedParams, postures: GaitPostures, low: float) -> LeggedParams:
    """The parameters of a robot that follows the joint positions of a gait.

    `low` in m: as in `LeggedParams`. The period of the gait is proportional to the square root of
    the height z of the base above the feet, and the height of the steps to z: 0.7 s and 8 cm for
    z = 0.8 m.
    """
    z = -np.mean(np.asarray(postures.places)[:, 2])
    changes = {
        "postures": postures,
        "gait": np.array([2.5 * np.sqrt(z / np.asarray(postures.gravity)), 0.1 * z]),
        "start": np.array([0.03, 0.1]),
        "tilt": 0.5,
        "low": low,
        "weights": {**params.weights, **GAIT_WEIGHTS},
    }
    return params._replace(**cast(changes, params.model.dtype))


def posture_terms(
    params: LeggedParams, action: Array, after: LeggedPhysics, base: str, center: Array
) -> dict[str, Float[Array, ""]]:
    """Reward terms for a quiet posture.

    `base` is the name of the base frame, and `center` (n,) are the joint positions of the posture.
    `alive` is 1. The other terms are minus a sum of squares:

    - `upright`: of the x and y components of the direction of gravity in the base frame;
    - `posture`: of the joint positions minus `center`;
    - `joint_velocity`: of the velocities of the joints;
    - `action_rate`: of the change of the action.
    """
    gravity = projected_gravity(params.model, after.q, base)
    return {
        "alive": jnp.ones((), action.dtype),
        "upright": -jnp.sum(gravity[:2] ** 2),
        "posture": -jnp.sum((after.q[7:] - center) ** 2),
        "joint_velocity": -jnp.sum(after.v[6:] ** 2),
        "action_rate": -jnp.sum((action - after.last_action) ** 2),
    }


def command_terms(after: LeggedPhysics) -> dict[str, Float[Array, ""]]:
    """Reward terms for the velocity of the base, which is expressed in the base frame.

    `velocity` is `exp(-(error / 0.5)^2)`, where the error in m/s is the norm of the errors of the
    forward velocity and the velocity to the left. `turning` is the same function of the error of
    the turning rate in rad/s. `bounce` is minus the sum of squares of the other velocities of the
    base.
    """
    squared_error = jnp.sum((after.v[:2] - after.command[:2]) ** 2)
    squared_turning_error = (after.v[5] - after.command[2]) ** 2
    return {
        "velocity": jnp.exp(-4 * squared_error),
        "turning": jnp.exp(-4 * squared_turning_error),
        "bounce": -jnp.sum(after.v[2:5] ** 2),
    }


def gait_errors(
    params: LeggedParams, after: LeggedPhysics, phases: Sequence[float] | Array
) -> Float[Array, " k"]:
    """The squared error of the height of each sphere, divided by the square of the step height.

    A sphere with the phase 0 should follow half a sine wave in the first half of the period, with
    the step height as its amplitude, and stay on the ground in the second half. `phases`: one per
    sphere of the scene, as fractions of the period.
    """
    period, height = params.gait
    phase = after.time / period + jnp.asarray(phases, after.time.dtype)
    wanted = jnp.maximum(jnp.sin(2 * np.pi * phase), 0)
    return (after.distance / height - wanted) ** 2


class LeggedEnv(Env):
    """What the environments of robots with legs share: the start, the physics and the rewards.

    - `base`: the name of the frame of the base;
    - `smoothing`: as in `contact_step`;
    - `observes_command`: whether the observation contains the command;
    - `phases`: for a gait, the phase of each sphere of the scene as a fraction of the period. The
      observation then contains the clock of the gait, and there is a reward term `gait`.
    """

    base: str
    smoothing: float | None
    observes_command: bool = True
    phases: tuple[float, ...] | None = None
    time_step = TIME_STEP

    def shapes(self, params):
        arguments.require_type(params, "params", LeggedParams)
        model = params.model
        found = {
            "home": ((model.nq,),),
            "stroke": ((), (model.nv - 6,)),
            "start": ((2,),),
            "tilt": ((),),
            "low": ((),),
            "command": ((3,),),
            "gait": ((2,),),
            "phases": ((len(params.scene.frames),),),
            "pushes": ((2,),),
        }
        return {name: x for name, x in found.items() if getattr(params, name) is not None}

    def initial(self, params, key):
        """A random start near the home posture, with the lowest point on the ground.

        A robot with the postures of a gait starts at a random moment of the gait, with the
        velocities of the gait.
        """
        model, (joints, speed) = params.model, params.start
        joint_key, speed_key, command_key = jax.random.split(key, 3)
        command = uniform(command_key, params.command)
        time, home, rates = self._start(params, command, jax.random.fold_in(command_key, 0))
        width = jnp.full(model.nv, joints, model.dtype).at[:6].set(0)
        q = integrate(model, home, uniform(joint_key, width))
        v = rates + uniform(speed_key, jnp.full(model.nv, speed, model.dtype))
        # Above a slope, a sphere is nearer to the surface than its height above the surface. So one
        # move by the distance does not reach the ground. A second move corrects most of the error.
        for _ in range(2):
            distance = contact_points(model, params.scene, q, v).distance
            q = q.at[2].add(-jnp.min(distance, where=self._acting_spheres(params), initial=jnp.inf))
        distance = contact_points(model, params.scene, q, v).distance
        no_action = jnp.zeros(model.nv - 6, model.dtype)
        return LeggedPhysics(
            q=q,
            v=v,
            past=params.delay.init(home[7:]),
            action=no_action,
            last_action=no_action,
            command=command,
            time=time,
            distance=distance,
        )

    def _start(
        self, params: LeggedParams, command: Float[Array, "3"], key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], Float[Array, " nq"], Float[Array, " nv"]]:
        """The time in the gait, the configuration and the velocity at the start, without noise."""
        model, postures, home = params.model, params.postures, jnp.asarray(params.home)
        time = jnp.zeros((), model.dtype)
        if postures is None:
            return time, home, jnp.zeros(model.nv, model.dtype)
        time = params.gait[0] * jax.random.uniform(key, (), model.dtype)

        def motion(time):
            positions = self.center(params, time, command)
            return positions, postures.base_path(params.gait, time, command)

        one = jnp.ones_like(time)
        (positions, _), (rates, velocity) = jax.jvp(motion, (time,), (one,))
        base = jnp.concatenate([velocity, jnp.zeros(3, model.dtype), command[2:]])
        return time, home.at[7:].set(positions), jnp.concatenate([base, rates])

    def _acting_spheres(self, params: LeggedParams) -> Array | bool:
        """Which spheres of the scene belong to the robot: all, unless the scene is padded."""
        return True

    def advance(self, params, physics, action, key):
        """The physical state after `TIME_STEP`, with the action as a change of `center`."""
        model, scene, dt = params.model, params.scene, TIME_STEP / SUBSTEPS
        time = physics.time + TIME_STEP
        if params.pushes is not None:
            physics = physics._replace(v=_pushed(params.pushes, physics.q, physics.v, key))
        aim = self.center(params, time, physics.command) + params.stroke * action

        def step(physics: LeggedPhysics) -> LeggedPhysics:
            past, delayed = params.delay.push(physics.past, aim)
            error = jnp.concatenate([jnp.zeros(6, model.dtype), delayed - physics.q[7:]])
            servo = Servo(params.control, None, error=error)
            q, v = physics.q, physics.v
            found = contact_step(
                model,
                scene,
                q,
                v,
                params.passive(model, q, v),
                dt,
                servo=servo,
                constraints=params.constraints,
                smoothing=self.smoothing,
                tendons=params.tendons,
            )
            distance = found.distance[: len(scene.frames)]  # without the pairs
            return physics._replace(q=found.q, v=found.v, past=past, distance=distance)

        physics = repeat(step, physics, SUBSTEPS)
        return physics._replace(action=action, last_action=physics.action, time=time)

    def center(
        self, params: LeggedParams, time: Float[Array, ""], command: Float[Array, "3"]
    ) -> Float[Array, " n"]:
        """The target positions of the joints for the action 0 in a step, in rad or m.

        They are the joint positions of `home` or, with `postures`, of the gait. `time` in s at the
        end of the step, since the start of the gait; `command`: as in `LeggedPhysics`.
        """
        home = jnp.asarray(params.home)[7:]
        if params.postures is None:
            return home
        return params.postures.joint_positions(params.gait, time, command, home)

    def observe(self, params, physics, key):
        """What the robot measures, with noise; then the command and the clock, without noise.

        The robot measures the direction of gravity, and the linear and angular velocity of the
        base, in the base frame; the joint positions minus `home`, the joint velocities, and the
        last action. The clock is the sine and the cosine of the phase of the gait.
        """
        measured, exact = self._observed(params, physics)
        noisy = params.noise(key, jnp.concatenate([*measured.values()]))
        return jnp.concatenate([noisy, *exact.values()])

    def _observed(
        self, params: LeggedParams, physics: LeggedPhysics
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """The parts of an observation by name, in their order: those with noise, and the others."""
        measured = {
            "gravity_direction": projected_gravity(params.model, physics.q, self.base),
            "linear_velocity": physics.v[:3],
            "angular_velocity": physics.v[3:6],
            "joint_positions_minus_pose": physics.q[7:] - params.home[7:],
            "joint_velocities": physics.v[6:],
            "last_action": physics.action,  # not `physics.last_action`, which is one step older
        }
        exact = {}
        if self.observes_command:
            exact["command"] = physics.command
        if self.phases is not None:
            angle = 2 * np.pi * physics.time / params.gait[0]
            exact["sine_and_cosine_of_gait"] = jnp.stack([jnp.sin(angle), jnp.cos(angle)])
        return measured, exact

    def interface(self, params):
        def observed() -> dict[str, Array]:
            measured, exact = self._observed(params, self.initial(params, jax.random.key(0)))
            return measured | exact

        model, home, control = params.model, params.home, params.control
        return Interface(
            observation=sizes(observed),
            actuators=model.joint_names[1:],
            command="target position in rad or m of PD control",
            center=home[7:] if params.postures is None else None,  # it changes with time
            scale=jnp.broadcast_to(params.stroke, home[7:].shape),
            stiffness=control.stiffness[6:],
            damping=control.damping[6:],
            effort=control.effort[6:],
            pose=pose_by_joint(model, home),
            gait=_gait_by_name(params),
        )

    def terms(self, params, before, action, after):
        center = self.center(params, after.time, after.command)
        terms = posture_terms(params, action, after, self.base, center)
        if self.phases is not None:
            terms["gait"] = -jnp.mean(gait_errors(params, after, self.phases))
        return terms | command_terms(after)

    def failed(self, params, physics):
        """Whether the base is below `low`, or tilted by more than `tilt`."""
        ground = cast(params.scene.ground, params.model.dtype)
        height = physics.q[2] - ground.elevation(physics.q[:2])
        down = -projected_gravity(params.model, physics.q, self.base)[2]
        return (height < params.low) | (down < jnp.cos(params.tilt))


def _gait_by_name(params: LeggedParams) -> dict[str, Any] | None:
    """What the joint positions of a gait depend on, as in `Interface.gait`; None without one."""
    if params.postures is None:
        return None
    gait = {"period": params.gait[0], "height": params.gait[1], "home": params.home[7:]}
    return {**gait, **params.postures._asdict()}


def _pushes_are_valid(pushes: Any) -> Any:
    """Whether the velocity is 0 or more, and the mean time between pushes at least a time step."""
    return (pushes[0] >= 0) & (pushes[1] >= TIME_STEP * (1 - 1e-6))


def _pushed(
    pushes: Float[Array, "2"], q: Float[Array, " nq"], v: Float[Array, " nv"], key: PRNGKeyArray
) -> Float[Array, " nv"]:
    """The velocity after a random push, or without one; see `LeggedParams.pushes`."""
    speed_key, time_key = jax.random.split(key)
    arguments.require(
        pushes, _pushes_are_valid, "params.pushes", f"0 or more, and {TIME_STEP} s or more"
    )
    speed, interval = jnp.where(_pushes_are_valid(pushes), pushes, jnp.nan)
    # The probability of a push in this step is TIME_STEP / interval.
    happens = jax.random.uniform(time_key, (), v.dtype) * interval < TIME_STEP
    change = jnp.where(happens, uniform(speed_key, speed * jnp.array([1, 1, 0], v.dtype)), 0)
    world_to_base = quaternion_conjugate(quaternion_normalize(q[3:7]))
    return v.at[:3].add(quaternion_rotate(world_to_base, change))
