"""The environment of any robot from an MJCF file, with rewards and observations by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float

from .._math.cast import cast
from ..actuators import AffineActuators, Delay, Filter
from ..configuration import difference, integrate
from ..constraints import Constraint, FrameConstraint
from ..contact import (
    Scene,
    contact_step,
    inverse_inertias,
    servo_of_actuators,
    step_wrenches,
)
from ..errors import ArgumentError, listed
from ..io.mujoco import Imported, load_mjcf
from ..model import Model, arguments
from ..model.joint_places import is_free
from ..model.names import similar_names
from ..passive import PassiveForces
from ..sensors import RobotSensors, SubtreeSensor, TendonSensor, touch
from ..tendons import SpatialTendon, Tendons
from .environment import Env, Interface, Parameter, pose_by_joint, substeps, uniform
from .keyframes import find_keyframe

# The parts of an observation besides the sensors.
_STATE = ("q", "v", "activation", "action", "touch")


class MjcfParams(NamedTuple):
    """The parameters of a `MjcfTask`.

    - `model`, `scene`, `actuators`, `filter`, `sensors`, `passive`, `tendons`, `constraints`: the
      parts of `io.mujoco.Imported`; the model has dissipation, the sensors are those of the task,
      and the tendons are those that act, or all of them if a sensor reads tendons;
    - `delay`: the `Delay` of the controls, or None;
    - `home` (nq,), `home_velocity` (nv,), `home_activation` (n,): the start of an episode, before
      the random change;
    - `start` (2,): the ranges of the random change. The coordinates of the start are uniform within
      `home` +- `start[0]` rad or m, except those of free joints, and the velocities are uniform
      within `home_velocity` +- `start[1]` m/s or rad/s;
    - `control_center`, `control_scale` (n,): the control is `center + scale * action`;
    - `weights`: the weights of the reward terms.
    """

    model: Model
    scene: Scene
    actuators: AffineActuators
    delay: Delay | None
    filter: Filter
    sensors: RobotSensors
    passive: PassiveForces
    tendons: Tendons
    constraints: tuple[Constraint, ...]
    home: Parameter
    home_velocity: Parameter
    home_activation: Parameter
    start: Parameter
    control_center: Parameter
    control_scale: Parameter
    weights: Mapping[str, Parameter]


class MjcfPhysics(NamedTuple):
    """The physical state of a `MjcfTask`.

    - `q` (nq,), `v` (nv,), `activation` (n,): the motion, and the activation of the actuators;
    - `past`: the past controls, of `Delay`; None without delays;
    - `action`, `last_action` (n,): the actions of this step and of the step before;
    - `time` () in s: the time since the start of the episode;
    - `readings`: the exact readings of the sensors by name, in this state with the acceleration of
      the last step of the physics. After a reset, the acceleration and the contact forces are zero.
      The entry "touch" (k,) in N, if the task uses it, has the normal force of each contact.
    """

    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    activation: Float[Array, " n"]
    past: Float[Array, "m n"] | None
    action: Float[Array, " n"]
    last_action: Float[Array, " n"]
    time: Float[Array, ""]
    readings: dict[str, Float[Array, " width"]]


# A function of the parameters, the state before the step, the action and the state after the step.
RewardTerm = Callable[[MjcfParams, MjcfPhysics, Array, MjcfPhysics], Array]

_REWARDS: Mapping[str, RewardTerm] = {
    "alive": lambda params, before, action, after: jnp.ones((), action.dtype),
    "action": lambda params, before, action, after: -jnp.sum(action**2),
    "action_rate": lambda params, before, action, after: -jnp.sum((action - before.action) ** 2),
    "velocity": lambda params, before, action, after: -jnp.sum(after.v**2),
    "posture": lambda params, before, action, after: (
        -jnp.sum(difference(params.model, params.home, after.q) ** 2)
    ),
}


@dataclasses.dataclass(frozen=True)
class MjcfTask(Env):
    """A task of any robot from an MJCF file, with its actuators, tendons, muscles and sensors.

    - `path`: a path, or the text of the file: a string that starts with '<';
    - `rewards`: a mapping from the names of the reward terms to their weights, or to pairs of a
      weight and a function `term(params, before, action, after)` of an `MjcfParams`, an
      `MjcfPhysics`, the action, and the `MjcfPhysics` after the step. The terms with a weight only
      are `alive` (1) and minus the sum of squares of `action` (the action), `action_rate` (its
      change), `velocity` (v) and `posture` (the displacement from the start `home`);
    - `observations`: names of sensors of the file, and of `q`, `v`, `activation`, `action` (the
      last one) and `touch` (the normal force of each contact). The observation consists of these
      arrays, one after another. Sensors have the noise that the file states;
    - `sensors`: more names, of sensors in `MjcfPhysics.readings` that only rewards use;
    - `fails`: a function of an `MjcfParams` and an `MjcfPhysics` that returns whether the episode
      fails (default: never);
    - `keyframe`: the name of the keyframe at which episodes start (default: `qpos0`);
    - `start`: the ranges of the random start, as `MjcfParams.start`;
    - `control_range`: a mapping from the names of actuators to the controls of the actions -1 and
      1. The default is the control range of the file; an actuator without one needs an entry;
    - `time_step` in s, `substeps`: the duration of a step, and its number of steps of the physics;
    - `implicit`: whether the forces of actuators use the state after each step of the physics, as
      `contact.servo_of_actuators`, which is stable for any gains (default). Otherwise they use the
      state before it, which all actuators can;
    - `smoothing` in m: as in `contact_step` (default: exact derivatives);
    - `strict`: as in `load_mjcf`; with False, `omitted` has a text for each omitted feature;
    - `action_size` and `omitted` are no arguments: the environment finds them in the file;
    - action (n,): the control is `control_center + control_scale * action`;
    - physics: an `MjcfPhysics`; parameters: an `MjcfParams`.

    The environment stores `rewards` and `control_range` as tuples. The functions are compared by
    identity: two tasks with the same function are equal. Force sensors know the forces of contacts,
    and not those of constraints between frames and of spatial tendons, so a task with both is
    refused. Needs the package mujoco (`pip install mujoco`). Raises ArgumentError, which names the
    element, for a robot without actuators, an unknown keyframe, sensor, reward term or actuator, an
    actuator without control range, and as `servo_of_actuators`. Other errors are as for
    `load_mjcf`.
    """

    path: str
    rewards: Mapping[str, float | tuple[float, RewardTerm]]
    observations: Sequence[str] = ("q", "v")
    sensors: Sequence[str] = ()
    fails: Callable[[MjcfParams, MjcfPhysics], Bool[Array, ""]] | None = None
    keyframe: str | None = None
    start: tuple[float, float] = (0.05, 0.05)
    control_range: Mapping[str, tuple[float, float]] | None = None
    episode_steps: int = 500
    time_step: float = 0.02
    substeps: int = 5
    implicit: bool = True
    smoothing: float | None = None
    strict: bool = True
    action_size: int = dataclasses.field(init=False)
    omitted: tuple[str, ...] = dataclasses.field(init=False)

    def __post_init__(self):
        robot = load_mjcf(self.path, self.strict)
        found = {
            "rewards": _checked_rewards(self.rewards),
            "observations": _names(self.observations, "observations", robot, _STATE),
            "sensors": _names(self.sensors, "sensors", robot, ("touch",)),
            "start": _checked_start(self.start),
            "control_range": _checked_ranges(self.control_range, robot),
            "action_size": len(robot.actuators.names),
            "omitted": robot.omitted,
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)
        if not self.action_size:
            raise ArgumentError("the robot has no actuators, expected at least one")
        arguments.require_counts(substeps=self.substeps, episode_steps=self.episode_steps)
        if not isinstance(self.time_step, int | float) or not 0 < self.time_step < np.inf:
            raise ArgumentError(
                f"time_step is {self.time_step!r}, expected more than 0, and finite"
            )
        if self.fails is not None and not callable(self.fails):
            raise ArgumentError(f"fails is {self.fails!r}, expected a function or None")
        params = self._params(robot)  # for its checks
        _require_complete_forces(robot, params.sensors)
        if self.implicit:
            # The stiffness and the damping are affine in the control.
            for end in (-1, 1):
                control = jnp.asarray(params.control_center + end * params.control_scale)
                servo_of_actuators(
                    robot.actuators, params.model, params.home, control, params.home_velocity
                )

    def default_params(self) -> MjcfParams:
        return self._params(load_mjcf(self.path, self.strict))

    def _params(self, robot: Imported) -> MjcfParams:
        model, n = robot.model, len(robot.actuators.names)
        home, velocity = robot.q0, jnp.zeros(model.nv, model.dtype)
        activation = jnp.zeros(n, model.dtype)
        if self.keyframe is not None:
            key = find_keyframe(robot, self.keyframe)
            home, velocity, activation = key.q, key.v, key.activation
            model = robot.place_mocap(key.mocap)
        model = model.with_dissipation()
        scene = Scene(()) if robot.scene is None else robot.scene
        scene = dataclasses.replace(scene, inverse_inertia=inverse_inertias(model, scene))
        ranges = _control_ranges(robot, dict(self.control_range or ()))
        low, high = ranges.T
        sensors = robot.sensors.chosen(self._sensor_names)
        reads_tendons = any(isinstance(sensor, TendonSensor) for sensor in sensors.sensors)
        params = MjcfParams(
            model=model,
            scene=scene,
            actuators=robot.actuators,
            delay=robot.delay(self._dt),
            filter=robot.filter,
            sensors=sensors,
            passive=robot.passive,
            tendons=robot.tendons if reads_tendons else robot.tendons.only_acting(),
            constraints=robot.constraints,
            home=home,
            home_velocity=velocity,
            home_activation=activation,
            start=np.array(self.start),
            control_center=(low + high) / 2,
            control_scale=(high - low) / 2,
            weights={name: weight for name, weight, _ in self._terms},
        )
        return cast(params, model.dtype)

    @property
    def _terms(self) -> tuple[tuple[str, float, RewardTerm], ...]:
        """The reward terms: names, weights and functions."""
        return self.rewards  # pyright: ignore[reportReturnType]

    @property
    def _sensor_names(self) -> tuple[str, ...]:
        """The names of the sensors that the task reads, each once."""
        names = dict.fromkeys([*self.observations, *self.sensors])
        return tuple(name for name in names if name not in _STATE)

    def initial(self, params, key):
        """The start, with random coordinates and velocities; see `MjcfParams.start`."""
        model, (joints, speed) = params.model, params.start
        joint_key, speed_key = jax.random.split(key)
        width = jnp.where(_on_free_joints(model), 0, joints)
        q = integrate(model, params.home, uniform(joint_key, width))
        v = params.home_velocity + uniform(speed_key, jnp.full(model.nv, speed, model.dtype))
        no_action = jnp.zeros(self.action_size, model.dtype)
        control = params.control_center
        _, filtered = params.filter.push(params.home_activation, control, self._dt)
        past = None if params.delay is None else params.delay.init(control)
        time = jnp.zeros((), model.dtype)
        moving = self._without_forces(params, q, v, params.home_activation, past, filtered)
        readings = self._readings(params, moving, time)
        activation = params.home_activation
        return MjcfPhysics(q, v, activation, past, no_action, no_action, time, readings)

    def advance(self, params, physics, action, key):
        """The physical state after `substeps` steps of `contact_step`."""
        control = params.control_center + params.control_scale * action
        q, v, activation = physics.q, physics.v, physics.activation
        start = self._without_forces(params, q, v, activation, physics.past, control)
        moved = substeps(lambda x: self._step(params, x, control), start, self.substeps)
        time = physics.time + self.time_step
        readings = self._readings(params, moved, time)
        q, v, activation = moved.q, moved.v, moved.activation
        return MjcfPhysics(q, v, activation, moved.past, action, physics.action, time, readings)

    @property
    def _dt(self) -> float:
        """The duration of a step of the physics in s."""
        return self.time_step / self.substeps

    @property
    def _touches(self) -> bool:
        """Whether the task reads the forces of contacts."""
        return "touch" in (*self.observations, *self.sensors)

    def _without_forces(
        self,
        params: MjcfParams,
        q: Array,
        v: Array,
        activation: Array,
        past: Array | None,
        filtered: Array,
    ) -> _Moving:
        """The state before the first step of the physics."""
        model, scene = params.model, params.scene
        feels = any(isinstance(sensor, SubtreeSensor) for sensor in params.sensors.sensors)
        f_ext = jnp.zeros((model.nb, 6), model.dtype) if feels else None
        touches = jnp.zeros(scene.size, model.dtype) if self._touches else None
        return _Moving(q, v, activation, past, filtered, jnp.zeros_like(v), f_ext, touches)

    def _step(self, params: MjcfParams, moving: _Moving, control: Array) -> _Moving:
        model, scene, dt = params.model, params.scene, self._dt
        q, v = moving.q, moving.v
        past = moving.past
        if params.delay is not None:
            past, control = params.delay.push(past, control)
        activation, filtered = params.filter.push(moving.activation, control, dt)
        tau, servo = params.passive(model, q, v), None
        if self.implicit:
            servo, force = servo_of_actuators(params.actuators, model, q, filtered, v)
        else:
            force = params.actuators(model, q, v, filtered)
        step = contact_step(
            model,
            scene,
            q,
            v,
            tau + force,
            dt,
            servo=servo,
            constraints=params.constraints,
            smoothing=self.smoothing,
            tendons=params.tendons,
        )
        f_ext = touches = None
        if moving.f_ext is not None:
            f_ext = step_wrenches(model, scene, q, step, dt)
        if moving.touch is not None:
            touches = touch(model, scene, q, step, dt).normal_force
        a = (step.v - v) / dt
        return _Moving(step.q, step.v, activation, past, filtered, a, f_ext, touches)

    def _readings(self, params: MjcfParams, moving: _Moving, time: Array) -> dict[str, Array]:
        readings = {} if moving.touch is None else {"touch": moving.touch}
        if params.sensors.sensors:
            values = params.sensors(
                params.model,
                moving.q,
                moving.v,
                moving.a,
                moving.f_ext,
                actuators=params.actuators,
                control=moving.filtered,
                tendons=params.tendons,
                passive=params.passive,
                time=time,
            )
            readings |= params.sensors.by_name(values)
        return readings

    def observe(self, params, physics, key):
        """The arrays of `observations`, one after another; sensors with their noise."""
        arrays = self._observable(params, physics, key)
        observed = [arrays[name] for name in self.observations]
        return jnp.concatenate([jnp.zeros(0, params.model.dtype), *observed])

    def _observable(
        self, params: MjcfParams, physics: MjcfPhysics, key: Array
    ) -> dict[str, Float[Array, " width"]]:
        """The arrays that an observation can have, by name; sensors with their noise."""
        arrays = {name: getattr(physics, name) for name in _STATE if name != "touch"}
        arrays |= physics.readings
        sensors = params.sensors
        if sensors.sensors:
            exact = jnp.concatenate([physics.readings[name] for name in sensors.names])
            arrays |= sensors.by_name(sensors.with_noise(key, exact))
        return arrays

    def settings(self):
        """The static settings without the path, because a file can move; see `Env.settings`."""
        found = super().settings()
        del found["path"]
        return found

    def interface(self, params):
        """The command is the control of the actuators of the file.

        The gains are those of the length of each actuator, which is the gear times the position of
        its joint. They are stated if no actuator is a muscle or has a gain that depends on its
        length or its rate.
        """

        def observable() -> dict[str, Array]:
            key = jax.random.key(0)
            return self._observable(params, self.initial(params, key), key)

        shapes = jax.eval_shape(observable)
        actuators, gains = params.actuators, {}
        if actuators.muscles is None and not np.any(np.asarray(actuators.gain)[:, 1:]):
            stiffness, damping = -actuators.bias[:, 1], -actuators.bias[:, 2]
            gains = {"stiffness": stiffness, "damping": damping}
        return Interface(
            observation=tuple((name, shapes[name].shape[0]) for name in self.observations),
            actuators=actuators.names,
            command="control of the actuators of the MJCF file, in their units",
            center=params.control_center,
            scale=params.control_scale,
            pose=pose_by_joint(params.model, params.home),
            **gains,
        )

    def terms(self, params, before, action, after):
        found = {name: term(params, before, action, after) for name, _, term in self._terms}
        for name, value in found.items():
            if jnp.shape(value) != ():
                raise ArgumentError(
                    f"the reward term {name!r} has shape {jnp.shape(value)}, expected a number"
                )
        return found

    def failed(self, params, physics):
        if self.fails is None:
            return jnp.zeros((), bool)
        failed = jnp.asarray(self.fails(params, physics), bool)
        if failed.shape != ():
            raise ArgumentError(f"fails returns the shape {failed.shape}, expected one value")
        return failed


class _Moving(NamedTuple):
    """The motion during a step.

    - `q`, `v`, `activation`: the state; `past`: the past controls;
    - `filtered`: the control after the delay and the activation dynamics;
    - `a` (nv,): the acceleration of the last step of the physics;
    - `f_ext` (nb, 6), `touch` (k,): the forces of the contacts, if a sensor needs them.
    """

    q: Array
    v: Array
    activation: Array
    past: Array | None
    filtered: Array
    a: Array
    f_ext: Array | None
    touch: Array | None


def tolerance(
    x: ArrayLike, lower: ArrayLike, upper: ArrayLike, margin: ArrayLike
) -> Float[Array, "..."]:
    """1 where x is between two bounds, and a smooth decrease outside: 0.1 at the distance `margin`.

    All arguments have the unit of x; `margin` is more than 0. With the distance d of x from the
    bounds, the value is `0.1 ** ((d / margin) ** 2)`. It is a common reward term, as in the control
    suite of dm_control. Source: Tassa et al. (2018), DeepMind Control Suite, section on rewards.
    """
    x = jnp.asarray(x)
    below, above = (jnp.asarray(bound, x.dtype) for bound in (lower, upper))
    distance = jnp.maximum(jnp.maximum(below - x, x - above), 0) / jnp.asarray(margin, x.dtype)
    return jnp.exp(np.log(0.1).astype(x.dtype) * distance**2)


def _checked_rewards(
    rewards: Mapping[str, float | tuple[float, RewardTerm]],
) -> tuple[tuple[str, float, RewardTerm], ...]:
    """Names, weights and functions of the terms. Raises ArgumentError, which names the term."""
    if isinstance(rewards, tuple) and all(
        isinstance(term, tuple) and len(term) == 3 and callable(term[2]) for term in rewards
    ):
        return rewards  # of `dataclasses.replace`
    if not isinstance(rewards, Mapping):
        raise ArgumentError(f"rewards is {rewards!r}, expected a mapping from names to weights")
    terms = []
    for name, given in rewards.items():
        if isinstance(given, tuple | list) and len(given) != 2:
            raise ArgumentError(f"the reward term {name!r} is {given!r}, expected a pair")
        weight, term = given if isinstance(given, tuple | list) else (given, _REWARDS.get(name))
        if term is None:
            raise ArgumentError(
                f"there is no reward term {name!r}; expected one of {', '.join(_REWARDS)}, or a "
                "pair of a weight and a function"
            )
        if not callable(term):
            raise ArgumentError(f"the reward term {name!r} is {term!r}, expected a function")
        if not isinstance(weight, int | float) or not np.isfinite(weight):
            raise ArgumentError(f"the weight of {name!r} is {weight!r}, expected a finite number")
        terms.append((name, float(weight), term))
    return tuple(terms)


def _names(
    names: Sequence[str], what: str, robot: Imported, others: Sequence[str]
) -> tuple[str, ...]:
    """The names of sensors, or of `others`. Raises ArgumentError for other names."""
    if not isinstance(names, Sequence) or isinstance(names, str):
        raise ArgumentError(f"{what} is {names!r}, expected a sequence of names")
    given = (*robot.sensors.names, *dict(robot.sensors.left_out))
    for name in names:
        if not isinstance(name, str):
            raise ArgumentError(f"{what} has the entry {name!r}, expected a name")
        if name in _STATE and name in given:
            raise ArgumentError(
                f"{name!r} in {what} is a sensor of the file, and also a part of observations: "
                "rename the sensor"
            )
        if name not in (*others, *robot.sensors.names):
            if name in dict(robot.sensors.left_out):
                robot.sensors.chosen([name])  # raises with the reason
            sensors = listed([repr(x) for x in robot.sensors.names], 40) or "none"
            raise ArgumentError(
                f"{name!r} in {what} is unknown, expected one of {', '.join(others)}, or a sensor: "
                f"{sensors}{similar_names(name, (*others, *robot.sensors.names))}"
            )
    return tuple(names)


def _checked_ranges(
    ranges: Mapping[str, tuple[float, float]] | None, robot: Imported
) -> tuple[tuple[str, tuple[float, float]], ...] | None:
    """The control ranges by actuator. Raises ArgumentError for unknown actuators."""
    if ranges is None:
        return None
    if not isinstance(ranges, Mapping | tuple):
        raise ArgumentError(f"control_range is {ranges!r}, expected a mapping from names")
    found = []
    for name, given in dict(ranges).items():
        if name not in robot.actuators.names:
            known = listed([repr(x) for x in robot.actuators.names], 40)
            hint = similar_names(str(name), robot.actuators.names)
            raise ArgumentError(
                f"control_range has the actuator {name!r}, expected one of {known}{hint}"
            )
        numbers = isinstance(given, Sequence) and len(given) == 2
        numbers = numbers and all(isinstance(x, int | float) and np.isfinite(x) for x in given)
        if not numbers or given[0] > given[1]:
            raise ArgumentError(
                f"control_range of {name!r} is {given!r}, expected two finite numbers in order"
            )
        found.append((name, (float(given[0]), float(given[1]))))
    return tuple(found)


def _checked_start(start: tuple[float, float]) -> tuple[float, float]:
    """The ranges of the start. Raises ArgumentError unless they are two numbers, 0 or more."""
    values = arguments.parameter(start, "start", (2,))
    arguments.require(values, lambda x: (x >= 0) & np.isfinite(x), "start", "finite, 0 or more")
    return float(values[0]), float(values[1])


def _require_complete_forces(robot: Imported, sensors: RobotSensors) -> None:
    """Raise ArgumentError for a force sensor, where frames are joined or spatial tendons act."""
    names = [x.name for x in sensors.sensors if x.quantity in ("force", "torque")]
    acting = [*robot.tendons.only_acting().tendons, *robot.actuators.tendons]
    cords = [repr(tendon.name) for tendon in acting if isinstance(tendon, SpatialTendon)]
    joined = any(isinstance(constraint, FrameConstraint) for constraint in robot.constraints)
    if names and (cords or joined):
        what = f"the tendons {listed(cords, 10)}" if cords else "the equalities of frames"
        raise ArgumentError(
            f"sensor {names[0]!r} measures a force, which does not contain the forces of {what}: "
            "leave out the sensor"
        )


def _control_ranges(
    robot: Imported, given: Mapping[str, tuple[float, float]]
) -> Float[np.ndarray, "n 2"]:
    """The controls (n, 2) of the actions -1 and 1."""
    ranges: Any = np.array(robot.actuators.control_range, float)
    commands = np.array(robot.filter.command_range, float)
    ranges = np.stack(
        [np.maximum(ranges[:, 0], commands[:, 0]), np.minimum(ranges[:, 1], commands[:, 1])], axis=1
    )
    muscles = np.array([kind == "muscle" for kind in robot.filter.kinds], bool)
    ranges[muscles] = np.clip(ranges[muscles], 0, 1)
    for i, name in enumerate(robot.actuators.names):
        if name in given:
            ranges[i] = given[name]
        if not np.all(np.isfinite(ranges[i])):
            raise ArgumentError(
                f"actuator {name!r} has no control range, expected an entry of control_range"
            )
    return ranges


def _on_free_joints(model: Model) -> np.ndarray:
    """Whether each velocity (nv,) is one of a free joint."""
    free = np.zeros(model.nv, bool)
    for name in model.joint_names:
        joint = model.joint(name)
        free[joint.v] = is_free(model, joint.bodies[0])
    return free
