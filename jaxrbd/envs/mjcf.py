"""The environment in which a robot with legs from an MJCF file follows commands."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from .._math.cast import cast
from ..actuators import PD
from ..contact import Scene, contact_points, servo_of_actuators
from ..errors import ArgumentError, listed
from ..io.mujoco import Imported, load_mjcf
from ..joints import FreeFlyer
from ..model import arguments
from ..model.model import joint_kinds
from . import legged
from .gait import gait_postures
from .keyframes import find_keyframe
from .quadruped import POSTURE_WEIGHTS

# A setting of an environment: one value for all joints, one value per joint, or values by name.
PerJoint = ArrayLike | Sequence[int | float] | Mapping[str, ArrayLike]


@dataclasses.dataclass(frozen=True)
class MjcfWalk(legged.LeggedEnv):
    """A robot from an MJCF file follows a random command: forward, sideways and turning velocity.

    The file has the robot, its ground, friction and actuators (`io.load_mjcf`). The robot has a
    free joint, then n hinges or slides, and one actuator without activation dynamics per hinge or
    slide: a position actuator or a motor. In each step of the physics, a position actuator is PD
    control with the gains of the file, as in the integrator implicitfast of MuJoCo. A motor is
    driven by PD control with the gains `stiffness` and `damping`; the file states its largest
    force. Springs, tendons, fluid forces and equality constraints of the file act. `MjcfTask` is
    for robots with other actuators and other tasks.

    The settings `stroke`, `stiffness` and `damping` are per joint: one value for all joints, one
    value per joint in the order of the model, or a mapping from the names of the joints to values.
    The environment stores a float or a tuple of floats.

    - `path`: a path, or the text of the file: a string that starts with '<';
    - `keyframe`: the name of the keyframe that is the posture for the action 0 (default: `qpos0`).
      The reset puts the robot in this posture on the ground. The mocap bodies are at the poses of
      the keyframe;
    - `stroke` in rad or m, per hinge or slide: the change of the target positions for the action 1.
      The targets of position actuators for actions between -1 and 1 must stay in the control ranges
      of the file;
    - `phases`: for a gait, the phase of each contact of `Imported.scene` in periods, as in
      `QuadrupedTrot` (default: no gait);
    - `follows_gait`: whether the target positions for the action 0 are the joint positions of the
      gait (`GaitPostures`), in which the feet step along the command, instead of the posture. Then
      every link that touches the ground is a foot, with one phase; the reward term `posture` is for
      the joint positions of the gait; an episode starts at any moment of the gait, and fails below
      0.7 of the height of the base in the posture or at a tilt of 0.5 rad. `phases` must be given;
    - `command`: half the widths of the uniform distributions of the commands: forward velocity and
      velocity to the left in m/s, and turning rate in rad/s;
    - `smoothing` in m: as in `contact_step` (default: exact derivatives);
    - `strict`: whether to refuse a file with features that jaxrbd does not have, as in `load_mjcf`.
      Otherwise these features are left out, and `omitted` has a text for each;
    - `stiffness` in N m/rad or N/m and `damping` in N m s/rad or N s/m, per hinge or slide with a
      motor: the gains of the PD control. There are no default gains;
    - `action_size` (n), `base` (the name of the body with the free joint) and `omitted`: read from
      the file, and no arguments;
    - action (n,): the target positions are those for the action 0 plus `stroke * action`, in the
      order of the joints of the model;
    - observation (12 + 3 n,), or (14 + 3 n,) with a gait: as for `QuadrupedJoystick` and
      `QuadrupedTrot`;
    - physics: a `LeggedPhysics`; parameters: a `LeggedParams`;
    - an episode fails if the base is below half of its height in the posture, or tilted too much.
      It has 500 steps of 0.02 s; the physics has steps of 4 ms.

    Needs the package mujoco (`pip install mujoco`). Raises ArgumentError, which names the
    joint or the actuator, for a robot of another kind, for an unknown keyframe, for a stroke
    beyond a control range, for missing gains, for phases and commands that are not finite, and for
    negative commands. Other errors are as for `load_mjcf` and `gait_postures`.
    """

    path: str
    keyframe: str | None = None
    stroke: PerJoint = 0.5
    phases: tuple[float, ...] | None = None
    command: tuple[float, float, float] = (0.5, 0.0, 0.0)
    episode_steps: int = 500
    smoothing: float | None = None
    strict: bool = True
    stiffness: PerJoint | None = None
    damping: PerJoint | None = None
    follows_gait: bool = False
    action_size: int = dataclasses.field(init=False)
    base: str = dataclasses.field(init=False)
    omitted: tuple[str, ...] = dataclasses.field(init=False)

    def __post_init__(self):
        arguments.require_flag(self.follows_gait, "follows_gait")
        robot = load_mjcf(self.path, self.strict)
        joints = robot.model.joint_names[1:]
        scene = _checked_scene(robot)
        motors = _motors(robot)
        found = {
            "action_size": robot.model.nv - 6,
            "base": robot.model.body_names[0],
            "omitted": robot.omitted,
            "stroke": _setting(self.stroke, "stroke", joints),
            "stiffness": _gain(self.stiffness, "stiffness", motors),
            "damping": _gain(self.damping, "damping", motors),
            "command": _checked_command(self.command),
            "phases": _checked_phases(self.phases, scene),
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)
        _params(self, robot, scene)  # for its checks

    def default_params(self) -> legged.LeggedParams:
        robot = load_mjcf(self.path, self.strict)
        return _params(self, robot, _checked_scene(robot))

    def settings(self):
        """The static settings without the path, because a file can move; see `Env.settings`."""
        found = super().settings()
        del found["path"]
        return found


def _params(env: MjcfWalk, robot: Imported, scene: Scene) -> legged.LeggedParams:
    """The default parameters of an environment; raises ArgumentError as `MjcfWalk`."""
    model, home = robot.model, robot.q0
    if env.keyframe is not None:
        keyframe = find_keyframe(robot, env.keyframe)
        model, home = robot.place_mocap(keyframe.mocap), keyframe.q
    model = model.with_dissipation()
    motors = _motors(robot)
    control = _joint_control(robot, motors, env.stiffness, env.damping)
    lowest = jnp.min(contact_points(model, scene, home, jnp.zeros_like(model.armature)).distance)
    weights = dict(POSTURE_WEIGHTS, velocity=2.0, turning=1.0, bounce=0.1)
    if env.phases is not None:
        weights["gait"] = 1.0
    height = float(home[2] - lowest)  # of the base in the posture
    params = legged.default_params(model, scene, control, home, height / 2, weights, env.command)
    if env.follows_gait:
        if env.phases is None:
            raise ArgumentError("phases is None, expected the phase of each contact for a gait")
        postures = gait_postures(model, home, scene.frames, env.phases)
        params = legged.with_gait(params, postures, low=0.7 * height)
    targets = params.home[None, 7:]
    if params.postures is not None:
        params.postures.check_command(params.gait, params.command)
        targets = params.postures.extreme_positions(params.gait, params.command, params.home[7:])
    _require_reachable_targets(robot, motors, np.asarray(targets), np.asarray(env.stroke))
    acting = {
        "passive": robot.passive,
        "tendons": robot.tendons.only_acting(),
        "constraints": robot.constraints,
    }
    return params._replace(stroke=jnp.asarray(env.stroke, model.dtype), **cast(acting, model.dtype))


def _checked_command(command: Sequence[float]) -> tuple[float, ...]:
    """The ranges of the commands as a tuple. Raises ArgumentError unless they are 0 or more."""
    values = arguments.parameter(command, "command", (3,))
    arguments.require_not_negative(values, "command")
    return tuple(map(float, values))


def _checked_phases(phases: Sequence[float] | None, scene: Scene) -> tuple[float, ...] | None:
    """The phases as a tuple. Raises ArgumentError unless there is one per contact, or None."""
    if phases is None:
        return None
    values, count = arguments.parameter(phases, "phases", (None,)), len(scene.frames)
    arguments.require(values, np.isfinite, "phases", "finite numbers")
    if len(values) != count:
        raise ArgumentError(
            f"phases has {len(values)} values, expected {count}, one per contact of the ground "
            f"with {', '.join(map(str, scene.frames))}"
        )
    return tuple(map(float, values))


def _setting(x: PerJoint, name: str, joints: Sequence[str]) -> float | tuple[float, ...]:
    """A setting as one value for all joints, or as a tuple with one value per joint."""
    given: Any = x
    if isinstance(x, Mapping):
        if set(x) != set(joints):
            missing = [repr(joint) for joint in joints if joint not in x]
            unknown = [repr(joint) for joint in x if joint not in joints]
            found = f"no value for {listed(missing, 40)}" if missing else "a value for each joint"
            more = f", and a value for {listed(unknown)}" if unknown else ""
            raise ArgumentError(
                f"{name} has {found}{more}, expected one value for each of the {len(joints)} joints"
            )
        given = [x[joint] for joint in joints]
    values = arguments.parameter(given, name, (), (None,))
    arguments.require(values, np.isfinite, name, "finite values")
    if not values.ndim:
        return float(values)
    if len(values) != len(joints):
        raise ArgumentError(
            f"{name} has {len(values)} values, expected 1 or {len(joints)}, one per joint: "
            f"{listed([*map(repr, joints)], 40)}"
        )
    return tuple(map(float, values))


def _gain(x: PerJoint | None, name: str, motors: Sequence[str]) -> float | tuple[float, ...] | None:
    """The gains of the joints with motors; None if there are no motors."""
    joints = listed([*map(repr, motors)], 40)
    if x is None and motors:
        raise ArgumentError(f"{name} is missing, expected the gains of {joints}, which have motors")
    if x is None:
        return None
    if not motors:
        raise ArgumentError(f"{name} is {x!r}, expected None, because no actuator is a motor")
    gains = _setting(x, name, motors)
    arguments.require(np.asarray(gains), lambda gain: gain >= 0, name, "0 or more")
    return gains


def _checked_scene(robot: Imported) -> Scene:
    """The scene of a robot that has a free joint, then joints with one dof, and a ground.

    Raises ArgumentError for other robots.
    """
    model = robot.model
    if joint_kinds(model)[:1] != [FreeFlyer]:
        raise ArgumentError(
            f"joint {model.joint_names[0]!r}, the first one, is no free joint"
            if model.joint_names
            else "the robot has no joints, expected a free joint first"
        )
    for name, nv in zip(model.joint_names[1:], model.joint_nvs[1:]):
        if nv != 1:
            raise ArgumentError(f"joint {name!r} has {nv} degrees of freedom, expected 1")
    if robot.scene is None or not robot.scene.frames:
        raise ArgumentError("no geom of the robot can touch a ground")
    return robot.scene


def _motors(robot: Imported) -> list[str]:
    """The joints with motors, in the order of the model; all other joints have position actuators.

    Raises ArgumentError for other actuators, and for a joint that does not have exactly one.
    """
    actuators, instant = robot.actuators, robot.filter.instant
    if not np.all(instant):
        name = actuators.names[int(np.argmin(instant))]
        raise ArgumentError(f"actuator {name!r} has activation dynamics, expected none")
    if np.any(robot.delays):
        name = actuators.names[int(np.argmax(robot.delays > 0))]
        raise ArgumentError(f"the control of actuator {name!r} has a delay, expected none")
    if actuators.muscles is not None:
        name = actuators.names[int(np.argmax(actuators.muscles.peak_force > 0))]
        raise ArgumentError(f"actuator {name!r} is a muscle, expected a motor or a servo")
    joints, driven = robot.model.joint_names[1:], actuators.require_joints()
    for name in joints:
        if (count := driven.count(name)) != 1:
            raise ArgumentError(f"joint {name!r} has {count} actuators, expected 1")
    gain, bias = np.asarray(actuators.gain), np.asarray(actuators.bias)
    motors = set()
    for i, (name, joint) in enumerate(zip(actuators.names, driven)):
        kp, kd = gain[i, 0], -bias[i, 2]
        if kp and not gain[i, 1:].any() and not bias[i].any():
            motors.add(joint)
        elif gain[i, 1] or gain[i, 2] or bias[i, 0] or bias[i, 1] != -kp or kp <= 0 or kd < 0:
            raise ArgumentError(
                f"actuator {name!r} of the joint {joint!r} is no motor and no position actuator: "
                f"its gain is {gain[i].tolist()} and its bias is {bias[i].tolist()}, expected "
                f"[k, 0, 0] and [0, 0, 0], or [kp, 0, 0] and [0, -kp, -kd]"
            )
    return [joint for joint in joints if joint in motors]


def _require_reachable_targets(
    robot: Imported, motors: Sequence[str], targets: np.ndarray, stroke: np.ndarray
) -> None:
    """Raise ArgumentError for targets of position actuators beyond their control ranges.

    `targets` (k, n): target positions of the n joints for the action 0; `stroke` () or (n,).

    With the gear r, the actuator has the length r q. The control r q* sets the target position q*.
    """
    model, actuators = robot.model, robot.actuators
    strokes = dict(zip(model.joint_names[1:], np.broadcast_to(stroke, model.nv - 6)))
    faults = []
    for name, joint, r, (low, high) in zip(
        actuators.names,
        actuators.require_joints(),
        actuators.gear,
        np.asarray(actuators.control_range),
    ):
        if joint in motors:
            continue
        centres = r * targets[:, model.joint(joint).v.start - 6]
        least, most = centres.min(), centres.max()
        reach = abs(r * strokes[joint])
        if least - reach < low or most + reach > high:
            room = min(least - low, high - most) / abs(r)
            advice = f"a stroke up to {room:.4g}" if room >= 0 else "another posture"
            faults.append(
                f"stroke is {strokes[joint]:.4g} for the joint {joint!r}: actuator {name!r} gets "
                f"controls from {least - reach:.4g} to {most + reach:.4g}, expected from {low} "
                f"to {high}, so {advice}"
            )
    if faults:
        raise ArgumentError(listed(faults, 40, "; "))


def _joint_control(
    robot: Imported, motors: Sequence[str], stiffness: PerJoint | None, damping: PerJoint | None
) -> PD:
    """The actuators of a robot as PD control, one per joint after the free joint."""
    model, actuators = robot.model, robot.actuators
    servo, _ = servo_of_actuators(
        actuators, model, robot.q0, jnp.zeros(len(actuators.names), model.dtype)
    )
    if not motors:
        return servo.control
    # The force of a motor is `gear * gain * control`, so the control range limits the force too.
    effort = np.full(len(motors), np.inf)
    for name, joint, r, gain, (low, high) in zip(
        actuators.names,
        actuators.require_joints(),
        actuators.gear,
        np.asarray(actuators.gain),
        np.asarray(actuators.control_range),
    ):
        if joint in motors:
            if low != -high:
                raise ArgumentError(
                    f"actuator {name!r} has controls from {low} to {high}, expected the same limit "
                    f"in both directions"
                )
            effort[motors.index(joint)] = abs(r * gain[0]) * high
    gains = np.asarray(stiffness, float), np.asarray(damping, float)
    # The gains of `servo` are zero for motors, and the gains of `driven` for all other joints.
    driven = PD.for_joints(model, motors, *gains, effort)
    return PD(
        servo.control.stiffness + driven.stiffness,
        servo.control.damping + driven.damping,
        jnp.minimum(servo.control.effort, driven.effort),
    )
