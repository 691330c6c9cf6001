"""The environment of any robot from an MJCF file, with rewards and observations by name."""

from __future__ import annotations

import dataclasses
import numbers
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
    ContactStep,
    Scene,
    contact_step,
    inverse_inertias,
    servo_of_actuators,
    step_wrenches,
)
from ..errors import ArgumentError, listed
from ..io.mujoco import Imported, MujocoBodies, MujocoCoordinates, load_mjcf
from ..model import Model, arguments
from ..model.joint_indices import is_free
from ..model.names import described, similar_names
from ..passive import PassiveForces
from ..sensors import RobotSensors, SubtreeSensor, TendonSensor, touch
from ..tendons import SpatialTendon, Tendons
from .environment import Env, Interface, Parameter, pose_by_joint, repeat, uniform
from .keyframes import find_keyframe

# The names of the forces of a step, and all names in observations besides those of sensors.
_FORCES = ("touch", "limit_force", "cfrc_ext")
_STATE = ("q", "v", "activation", "action", *_FORCES)


class MjcfParams(NamedTuple):
    """The parameters of a `MjcfTask`.

    - `model`, `scene`, `actuators`, `filter`, `sensors`, `passive`, `tendons`, `constraints`,
      `coordinates`, `bodies`: the parts of `io.mujoco.Imported`; the model has dissipation, the
      sensors are those of the task, and the tendons are those that act, or all of them if a sensor
      reads tendons;
    - `delay`: the `Delay` of the controls, or None;
    - `home` (nq,), `home_velocity` (nv,), `home_activation` (n,): the start of an episode, before
      the random change;
    - `start` (2,): the ranges of the random change. The coordinates of the start are uniform within
      `home` +- `start[0]` rad or m, except those of free joints, and the velocities are uniform
      within `home_velocity` +- `start[1]` m/s or rad/s. If the task has `draw_start`, this function
      defines the meaning of `start`;
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
    coordinates: MujocoCoordinates
    bodies: MujocoBodies
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
    - `past` (m, n): the past controls, as in `Delay`; None without delays;
    - `action`, `last_action` (n,): the actions of this step and of the step before;
    - `time` () in s: the time since the start of the episode;
    - `readings`: the exact readings of the sensors by name, for this state and the acceleration in
      the last step of the physics. After a reset, the acceleration and the contact forces are zero.
      The following entries are the mean forces in the last step of the physics, if the task uses
      them: "touch" (k,) in N, the normal force of each contact; "limit_force" (nv,) in N or N m,
      the forces of joint limits; "cfrc_ext" (bodies, 6), as `io.mujoco.MujocoBodies.cfrc_ext`.
    """

    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    activation: Float[Array, " n"]
    past: Float[Array, "m n"] | None
    action: Float[Array, " n"]
    last_action: Float[Array, " n"]
    time: Float[Array, ""]
    readings: dict[str, Float[Array, "..."]]


# A function of the parameters, the state before the step, the action and the state after the step.
RewardTerm = Callable[[MjcfParams, MjcfPhysics, Array, MjcfPhysics], Array]

# A stored reward term: name, weight and function. A stored range: name of an actuator, and range.
_Term = tuple[str, float, RewardTerm]
_Range = tuple[str, tuple[float, float]]

# A part of an observation, (n,): a function of the parameters and the state.
Observed = Callable[[MjcfParams, MjcfPhysics], Array]

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
      are `alive` (always 1) and minus the sum of squares of `action` (the action), `action_rate`
      (its change), `velocity` (v) and `posture` (the displacement from the start `home`);
    - `observations`: names of sensors of the file, and the names `q`, `v`, `activation`, `action`
      (of the last step), `touch`, `limit_force` and `cfrc_ext` of `MjcfPhysics` and its `readings`;
      or functions of an `MjcfParams` and an `MjcfPhysics` that return an array (n,). The
      observation consists of these arrays, one after another. Sensors have the
      noise that the file states;
    - `sensors`: the names of more sensors and forces in `MjcfPhysics.readings`, for functions of
      `rewards`, `observations` and `fails`;
    - `fails`: a function of an `MjcfParams` and an `MjcfPhysics` that returns whether the episode
      fails (default: never);
    - `keyframe`: the name of the keyframe at which episodes start (default: `qpos0`);
    - `start`: the ranges of the random start, as `MjcfParams.start`;
    - `draw_start`: a function of an `MjcfParams` and a random key that returns q and v at the start
      of an episode (default: uniform, as `MjcfParams.start`);
    - `control_range`: a mapping from the names of actuators to the controls of the actions -1 and
      1. The default is the control range of the file, for muscles within [0, 1]; an actuator
      without a range needs an entry;
    - `time_step` in s, `substeps`: the duration of a step, and its number of steps of the physics;
    - `implicit`: whether the forces of actuators use the state after each step of the physics, as
      `contact.servo_of_actuators`, which is stable for any gains (default). Otherwise they use the
      state before the step, which is possible for all actuators;
    - `smoothing` in m: as in `contact_step` (default: exact derivatives);
    - `soft`: whether contacts and position limits are soft as in MuJoCo; see `io.from_mujoco`;
    - `strict`: as in `load_mjcf`; with False, `omitted` has a text for each omitted feature;
    - `action_size`, `omitted`: read from the file, and no arguments;
    - action (n,): the control is `control_center + control_scale * action`;
    - physics: an `MjcfPhysics`; parameters: an `MjcfParams`.

    The environment stores `rewards` and `control_range` as tuples. Two tasks with equal functions
    are equal; plain functions are compared by identity. The readings of force sensors contain the
    forces of contacts, but not those of constraints between frames and of spatial tendons. So a
    task with force sensors and such constraints or tendons raises an error. Needs the package
    mujoco (`pip install mujoco`). Raises ArgumentError, which names the element, for a robot
    without actuators, an unknown keyframe, sensor, reward term or actuator, and an actuator without
    control range. Also raises the errors of `servo_of_actuators` and of `load_mjcf`.
    """

    path: str
    rewards: Mapping[str, float | tuple[float, RewardTerm]] | tuple[_Term, ...]
    observations: Sequence[str | Observed] = ("q", "v")
    sensors: Sequence[str] = ()
    fails: Callable[[MjcfParams, MjcfPhysics], Bool[Array, ""]] | None = None
    keyframe: str | None = None
    start: tuple[float, float] = (0.05, 0.05)
    draw_start: Callable[[MjcfParams, Array], tuple[Array, Array]] | None = None
    control_range: Mapping[str, tuple[float, float]] | tuple[_Range, ...] | None = None
    episode_steps: int = 500
    time_step: float = 0.02
    substeps: int = 5
    implicit: bool = True
    smoothing: float | None = None
    strict: bool = True
    soft: bool = False
    action_size: int = dataclasses.field(init=False)
    omitted: tuple[str, ...] = dataclasses.field(init=False)

    def __post_init__(self):
        robot = load_mjcf(self.path, self.strict, soft=self.soft)
        fields = {
            "rewards": _checked_rewards(self.rewards),
            "observations": _checked_entries(self.observations, "observations", robot, _STATE),
            "sensors": _checked_entries(self.sensors, "sensors", robot, _FORCES),
            "start": _checked_start(self.start),
            "control_range": _checked_ranges(self.control_range, robot),
            "action_size": len(robot.actuators.names),
            "omitted": robot.omitted,
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        if not self.action_size:
            raise ArgumentError("the robot has no actuators, expected at least one")
        arguments.require_counts(substeps=self.substeps, episode_steps=self.episode_steps)
        is_number = isinstance(self.time_step, int | float) and not isinstance(self.time_step, bool)
        if not is_number or not 0 < self.time_step < np.inf:
            raise ArgumentError(
                f"time_step is {self.time_step!r}, expected more than 0, and finite"
            )
        arguments.require_flag(self.implicit, "implicit")
        for name in ("fails", "draw_start"):
            function = getattr(self, name)
            if function is not None and not callable(function):
                raise ArgumentError(f"{name} is {function!r}, expected a function or None")
        params = self._params(robot)  # for its checks
        _require_complete_forces(robot, params.sensors)
        if self.implicit:
            _check_servo(robot.actuators, params)

    def default_params(self) -> MjcfParams:
        return self._params(load_mjcf(self.path, self.strict, soft=self.soft))

    def _params(self, robot: Imported) -> MjcfParams:
        """The default parameters, for the robot of the file."""
        model, n = robot.model, len(robot.actuators.names)
        home, velocity = robot.q0, jnp.zeros(model.nv, model.dtype)
        activation = jnp.zeros(n, model.dtype)
        if self.keyframe is not None:
            key = find_keyframe(robot, self.keyframe)
            home, velocity, activation = key.q, key.v, key.activation
            model = robot.place_mocap(key.mocap)
        model = model.with_dissipation()
        scene = Scene(()) if robot.scene is None else robot.scene
        scales = inverse_inertias(model, scene)
        if (given := scene.inverse_inertia) is not None:  # those of MuJoCo, for soft contacts
            scales = given._replace(trees=scales.trees)
        scene = dataclasses.replace(scene, inverse_inertia=scales)
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
            coordinates=robot.coordinates,
            bodies=robot.bodies,
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
    def _terms(self) -> tuple[_Term, ...]:
        """The reward terms: names, weights and functions."""
        return self.rewards  # pyright: ignore[reportReturnType]

    @property
    def _sensor_names(self) -> tuple[str, ...]:
        """The names of the sensors that the task reads, each once."""
        return tuple(name for name in self._names if name not in _STATE)

    @property
    def _force_names(self) -> tuple[str, ...]:
        """The names of the forces that the task reads."""
        return tuple(name for name in _FORCES if name in self._names)

    @property
    def _names(self) -> tuple[str, ...]:
        """All names in `observations` and `sensors`, each once."""
        names = dict.fromkeys([*self.observations, *self.sensors])
        return tuple(name for name in names if isinstance(name, str))

    def shapes(self, params):
        model, per_action = params.model, ((self.action_size,),)
        found = {
            "home": ((model.nq,),),
            "home_velocity": ((model.nv,),),
            "home_activation": per_action,
            "control_center": per_action,
            "control_scale": per_action,
        }
        return found if self.draw_start else found | {"start": ((2,),)}

    def initial(self, params, key):
        """The start, with random coordinates and velocities; see `MjcfParams.start`."""
        model = params.model
        drawn = (self.draw_start or _uniform_start)(params, key)
        if not isinstance(drawn, tuple | list) or len(drawn) != 2:
            raise ArgumentError(f"draw_start returns {described(drawn)}, expected a pair (q, v)")
        q, v = drawn
        q, v = arguments.configuration(model, q), arguments.velocity(model, v)
        no_action = jnp.zeros(self.action_size, model.dtype)
        control = params.control_center
        _, filtered = params.filter.push(params.home_activation, control, self._dt)
        past = None if params.delay is None else params.delay.init(control)
        time = jnp.zeros((), model.dtype)
        activation = params.home_activation
        state = _StepState(q, v, activation, past, filtered, jnp.zeros_like(v))
        readings = self._readings(params, state, None, time)
        return MjcfPhysics(q, v, activation, past, no_action, no_action, time, readings)

    def advance(self, params, physics, action, key):
        """The physical state after `substeps` steps of `contact_step`."""
        control = params.control_center + params.control_scale * action
        zero = jnp.zeros_like(physics.v)
        start = _StepState(physics.q, physics.v, physics.activation, physics.past, control, zero)

        def step(states):
            state, _ = states
            moved, contact = self._step(params, state, control)
            return moved, (state.q, contact) if self._measures_contacts(params) else None

        # Only the forces of the last step are measured.
        shapes = jax.eval_shape(step, (start, None))[1]
        last = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        moved, last = repeat(step, (start, last), self.substeps)
        time = physics.time + self.time_step
        readings = self._readings(params, moved, last, time)
        q, v, activation = moved.q, moved.v, moved.activation
        return MjcfPhysics(q, v, activation, moved.past, action, physics.action, time, readings)

    @property
    def _dt(self) -> float:
        """The duration of a step of the physics in s."""
        return self.time_step / self.substeps

    def _step(
        self, params: MjcfParams, state: _StepState, control: Array
    ) -> tuple[_StepState, ContactStep]:
        """The state after one step of the physics, and the result of `contact_step`."""
        model, scene, dt = params.model, params.scene, self._dt
        q, v = state.q, state.v
        past = state.past
        if params.delay is not None:
            past, control = params.delay.push(past, control)
        activation, filtered = params.filter.push(state.activation, control, dt)
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
        a = (step.v - v) / dt
        return _StepState(step.q, step.v, activation, past, filtered, a), step

    @staticmethod
    def _has_subtree_sensors(params: MjcfParams) -> bool:
        """Whether a sensor may read the forces of contacts; only a `SubtreeSensor` does."""
        return any(isinstance(sensor, SubtreeSensor) for sensor in params.sensors.sensors)

    def _measures_contacts(self, params: MjcfParams) -> bool:
        """Whether the readings need the contacts of the last step of the physics."""
        return bool(self._force_names) or self._has_subtree_sensors(params)

    def _forces(self, params: MjcfParams, q: Array, step: ContactStep) -> dict[str, Array]:
        """The forces of a step of the physics from q, by name."""
        model, scene, dt = params.model, params.scene, self._dt
        forces = {
            "touch": lambda: touch(model, scene, q, step, dt).normal_force,
            "limit_force": lambda: step.joint_impulse.limit / dt,
            "cfrc_ext": lambda: params.bodies.cfrc_ext(model, scene, q, step, dt),
        }
        return {name: forces[name]() for name in self._force_names}

    def _no_forces(self, params: MjcfParams) -> dict[str, Array]:
        """Zeros of the shapes of `_forces`."""
        shapes = {
            "touch": params.scene.size,
            "limit_force": params.model.nv,
            "cfrc_ext": (len(params.bodies.frames), 6),
        }
        return {name: jnp.zeros(shapes[name], params.model.dtype) for name in self._force_names}

    def _readings(
        self,
        params: MjcfParams,
        state: _StepState,
        last: tuple[Array, ContactStep] | None,
        time: Array,
    ) -> dict[str, Array]:
        """The readings after a step of the physics.

        `last`: q before this step, and the step; None at the start, where the forces are zero.
        """
        readings = self._no_forces(params) if last is None else self._forces(params, *last)
        f_ext = None
        if self._has_subtree_sensors(params):
            f_ext = jnp.zeros((params.model.nb, 6), params.model.dtype)
            if last is not None:
                f_ext = step_wrenches(params.model, params.scene, *last, self._dt)
        if params.sensors.sensors:
            values = params.sensors(
                params.model,
                state.q,
                state.v,
                state.a,
                f_ext,
                actuators=params.actuators,
                control=state.filtered,
                tendons=params.tendons,
                passive=params.passive,
                time=time,
            )
            readings |= params.sensors.by_name(values)
        return readings

    def observe(self, params, physics, key):
        """The arrays of `observations`, one after another; sensors with their noise."""
        observed = self._observed(params, physics, key)
        return jnp.concatenate([jnp.zeros(0, params.model.dtype), *observed])

    def _observed(self, params: MjcfParams, physics: MjcfPhysics, key: Array) -> list[Array]:
        """The arrays (n,) of `observations`; sensors with their noise."""
        arrays = {name: getattr(physics, name) for name in _STATE if name not in _FORCES}
        arrays |= physics.readings
        sensors = params.sensors
        if sensors.sensors:
            exact = jnp.concatenate([physics.readings[name] for name in sensors.names])
            arrays |= sensors.by_name(sensors.with_noise(key, exact))
        observed = []
        for entry in self.observations:
            known = isinstance(entry, str)
            observed.append(jnp.ravel(arrays[entry]) if known else _value(entry, params, physics))
        return observed

    def settings(self):
        """The static settings without the path, because a file can move; see `Env.settings`."""
        found = super().settings()
        del found["path"]
        return found

    def interface(self, params):
        """The command is the control of the actuators of the file.

        The gains are for the length of each actuator: the gear times the position that it drives.
        They are stated unless an actuator is a muscle, or has a gain that depends on its length or
        on the rate of its length.
        """

        def observed() -> list[Array]:
            key = jax.random.key(0)
            return self._observed(params, self.initial(params, key), key)

        sizes = [x.shape[0] for x in jax.eval_shape(observed)]
        actuators, gains = params.actuators, {}
        if actuators.muscles is None and not np.any(np.asarray(actuators.gain)[:, 1:]):
            stiffness, damping = -actuators.bias[:, 1], -actuators.bias[:, 2]
            gains = {"stiffness": stiffness, "damping": damping}
        return Interface(
            observation=tuple(zip(self.settings()["observations"], sizes)),
            actuators=actuators.names,
            command="control of the actuators of the MJCF file, in their units",
            center=params.control_center,
            scale=params.control_scale,
            pose=pose_by_joint(params.model, params.home),
            **gains,
        )

    def terms(self, params, before, action, after):
        return {name: term(params, before, action, after) for name, _, term in self._terms}

    def failed(self, params, physics):
        if self.fails is None:
            return jnp.zeros((), bool)
        failed = arguments.as_array(self.fails(params, physics), "the result of fails")
        if (failed.shape, failed.dtype) != ((), np.bool_):
            raise ArgumentError(
                f"fails returns the shape {failed.shape} and the dtype {failed.dtype}, expected "
                "one truth value"
            )
        return failed


class _StepState(NamedTuple):
    """The motion during a step.

    - `q`, `v`, `activation`: the state; `past`: the past controls;
    - `filtered`: the control after the delay and the activation dynamics;
    - `a` (nv,): the acceleration of the last step of the physics.
    """

    q: Array
    v: Array
    activation: Array
    past: Array | None
    filtered: Array
    a: Array


def tolerance(
    x: ArrayLike, lower: ArrayLike, upper: ArrayLike, margin: ArrayLike
) -> Float[Array, "..."]:
    """1 where x is between two bounds, and a smooth decrease outside: 0.1 at the distance `margin`.

    All arguments have the unit of x; `margin` is more than 0, and the shapes broadcast. With the
    distance d of x from the bounds, the value is `0.1 ** ((d / margin) ** 2)`. It is a common
    reward term, as in the control suite of dm_control. Raises ArgumentError for objects that are no
    real numbers, for shapes that do not broadcast, for a known margin that is not above 0, and for
    known bounds in the wrong order.
    Source: Tassa et al. (2018), DeepMind Control Suite, section on rewards.
    """
    x, below, above, width = (
        arguments.as_array(value, name)
        for name, value in (("x", x), ("lower", lower), ("upper", upper), ("margin", margin))
    )
    try:
        np.broadcast_shapes(x.shape, below.shape, above.shape, width.shape)
    except ValueError:
        raise ArgumentError(
            f"x has shape {x.shape}, lower {below.shape}, upper {above.shape} and margin "
            f"{width.shape}, expected shapes that broadcast"
        ) from None
    if jnp.issubdtype(x.dtype, jnp.integer):
        x = x.astype(float)
    for name, value in (("x", x), ("lower", below), ("upper", above), ("margin", width)):
        if not jnp.isdtype(value.dtype, ("real floating", "integral")):
            raise ArgumentError(f"{name} has dtype {value.dtype}, expected floats")
    arguments.require(width, lambda x: x > 0, "margin", "above 0")
    bounds = [arguments.known(bound) for bound in (below, above)]
    if bounds[0] is not None and bounds[1] is not None and not np.all(bounds[0] <= bounds[1]):
        raise ArgumentError(f"lower is {lower} and upper is {upper}, expected lower <= upper")
    below, above, width = (value.astype(x.dtype) for value in (below, above, width))
    distance = jnp.maximum(jnp.maximum(below - x, x - above), 0) / width
    return jnp.exp(np.log(0.1).astype(x.dtype) * distance**2)


def _checked_rewards(
    rewards: Mapping[str, float | tuple[float, RewardTerm]] | tuple[_Term, ...],
) -> tuple[_Term, ...]:
    """Names, weights and functions of the terms. Raises ArgumentError, which names the term."""
    if isinstance(rewards, tuple) and all(
        isinstance(term, tuple) and len(term) == 3 and callable(term[2]) for term in rewards
    ):
        return rewards  # the stored terms, from `dataclasses.replace`
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
        arguments.require_function(term, f"the reward term {name!r}", "a function")
        is_number = isinstance(weight, numbers.Real) and not isinstance(weight, bool)
        if not is_number or not np.isfinite(weight):
            raise ArgumentError(f"the weight of {name!r} is {weight!r}, expected a finite number")
        terms.append((name, float(weight), term))
    return tuple(terms)


def _checked_entries(
    names: Sequence[str | Observed], what: str, robot: Imported, others: Sequence[str]
) -> tuple[str | Observed, ...]:
    """The checked entries of the setting `what`: names of sensors or `others`.

    The setting "observations" may also have functions. Raises ArgumentError for other entries.
    """
    if not isinstance(names, Sequence) or isinstance(names, str):
        raise ArgumentError(f"{what} is {names!r}, expected a sequence of names")
    file_names = (*robot.sensors.names, *dict(robot.sensors.left_out))
    functions = what == "observations"
    or_function = " or a function" if functions else ""
    for name in names:
        if functions and callable(name):
            continue
        if not isinstance(name, str):
            raise ArgumentError(f"{what} has the entry {name!r}, expected a name{or_function}")
        if name in _STATE and name in file_names:
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
    ranges: Mapping[str, tuple[float, float]] | tuple[_Range, ...] | None, robot: Imported
) -> tuple[_Range, ...] | None:
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
        numbers = numbers and not any(isinstance(x, bool) for x in given)
        numbers = numbers and all(isinstance(x, int | float) and np.isfinite(x) for x in given)
        if not numbers or given[0] > given[1]:
            raise ArgumentError(
                f"control_range of {name!r} is {given!r}, expected two finite numbers in order"
            )
        found.append((name, (float(given[0]), float(given[1]))))
    return tuple(found)


def _value(function: Observed, params: MjcfParams, physics: MjcfPhysics) -> Array:
    """The result of a function of `observations`.

    Raises ArgumentError if it is not (n,) in the dtype of the model.
    """
    found, name = function(params, physics), getattr(function, "__name__", repr(function))
    if found is None:
        raise ArgumentError(f"the function {name} of observations returns None, expected (n,)")
    if jnp.ndim(found) != 1 or jnp.result_type(found) != params.model.dtype:
        raise ArgumentError(
            f"the function {name} of observations returns shape {jnp.shape(found)} and dtype "
            f"{jnp.result_type(found)}, expected (n,) and {params.model.dtype}"
        )
    return jnp.asarray(found)


def _uniform_start(params: MjcfParams, key: Array) -> tuple[Array, Array]:
    """The configuration and the velocity at the start; see `MjcfParams.start`."""
    model, (joints, speed) = params.model, params.start
    joint_key, speed_key = jax.random.split(key)
    width = jnp.where(_free_joint_mask(model), 0, joints)
    q = integrate(model, params.home, uniform(joint_key, width))
    v = params.home_velocity + uniform(speed_key, jnp.full(model.nv, speed, model.dtype))
    return q, v


def _checked_start(start: tuple[float, float]) -> tuple[float, float]:
    """The ranges of the start. Raises ArgumentError unless they are two numbers, 0 or more."""
    values = arguments.parameter(start, "start", (2,))
    arguments.require_not_negative(values, "start")
    return float(values[0]), float(values[1])


def _check_servo(actuators: AffineActuators, params: MjcfParams) -> None:
    """Raise ArgumentError as `servo_of_actuators` does, at both ends of the control range.

    The stiffness and the damping are affine in the control, so both ends suffice.
    """

    def servo(control: ArrayLike) -> Any:
        return servo_of_actuators(
            actuators, params.model, params.home, control, params.home_velocity
        )

    center, scale = (np.asarray(x) for x in (params.control_center, params.control_scale))
    controls = np.stack([center - scale, center + scale])
    # The jitted function returns NaN for a negative gain. Its call without jit raises the error.
    gains = jax.device_get(jax.jit(jax.vmap(servo))(controls))
    if any(np.any(np.isnan(x)) for x in jax.tree.leaves(gains)):
        for control in controls:
            servo(control)


def _require_complete_forces(robot: Imported, sensors: RobotSensors) -> None:
    """Raise ArgumentError for a force sensor if constraints join frames or spatial tendons act."""
    names = [x.name for x in sensors.sensors if x.quantity in ("force", "torque")]
    acting = [*robot.tendons.only_acting().tendons, *robot.actuators.tendons]
    spatial_tendons = [repr(tendon.name) for tendon in acting if isinstance(tendon, SpatialTendon)]
    joined = any(isinstance(constraint, FrameConstraint) for constraint in robot.constraints)
    if names and (spatial_tendons or joined):
        what = (
            f"the tendons {listed(spatial_tendons, 10)}"
            if spatial_tendons
            else "the equalities of frames"
        )
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


def _free_joint_mask(model: Model) -> np.ndarray:
    """Whether each velocity (nv,) is one of a free joint."""
    free = np.zeros(model.nv, bool)
    for name in model.joint_names:
        joint = model.joint(name)
        free[joint.v] = is_free(model, joint.bodies[0])
    return free
