"""A robot with legs from an MJCF file follows commands; the file is read as it is."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np

from ..actuators import PD
from ..contact import Scene, contact_points, servo_of_actuators
from ..errors import ArgumentError
from ..io.mujoco import Imported, load_mjcf
from ..joints import FreeFlyer
from ..model.model import joint_kinds
from . import legged
from .quadruped import POSTURE_WEIGHTS


@dataclasses.dataclass(frozen=True)
class MjcfWalk(legged.LeggedEnv):
    """A robot from an MJCF file follows a random command: forward, sideways and turning velocity.

    The robot, its ground, friction and actuators are those of the file (`io.load_mjcf`). It has a
    free joint, then n hinges or slides, and one position actuator without activation dynamics per
    hinge or slide. In each step of the physics the actuators are PD control, as in the integrator
    implicitfast of MuJoCo.

    - `path`: a path, or the text of the file: a string that starts with '<';
    - `keyframe`: the name of the keyframe that is the posture for the action 0 (default: `qpos0`).
      The reset puts it on the ground;
    - `stroke` in rad or m: the change of the target positions for the action 1. The targets for
      actions between -1 and 1 stay in the control ranges of the file;
    - `phases`: for a gait, the phase of each contact of `Imported.scene` in periods, as in
      `QuadrupedTrot` (default: no gait);
    - `command`: half the widths of the uniform distributions of the commands: forward velocity and
      velocity to the left in m/s, and turning rate in rad/s;
    - `smoothing` in m: as in `contact_step` (default: exact derivatives);
    - `action_size` n and `base`, the name of the body with the free joint: found in the file;
    - action (n,): the target positions are `home + stroke * action`, in the order of the joints of
      the model;
    - observation (12 + 3 n,), or (14 + 3 n,) with a gait: as for `QuadrupedJoystick` and
      `QuadrupedTrot`;
    - physics: a `LeggedPhysics`; parameters: a `LeggedParams`;
    - an episode fails if the base is below half of its height in the posture, or tilted too much.
      It has 500 steps of 0.02 s; the physics has steps of 4 ms.

    Needs the package mujoco (`pip install mujoco`). Raises ArgumentError, which names the
    joint or the actuator, for a robot of another kind, for an unknown keyframe, and for a stroke
    beyond a control range. The other errors are those of `load_mjcf`.
    """

    path: str
    keyframe: str | None = None
    stroke: float = 0.5
    phases: tuple[float, ...] | None = None
    command: tuple[float, float, float] = (0.5, 0.0, 0.0)
    episode_steps: int = 500
    smoothing: float | None = None
    action_size: int = dataclasses.field(init=False)
    base: str = dataclasses.field(init=False)

    def __post_init__(self):
        model = self.default_params().model
        object.__setattr__(self, "action_size", model.nv - 6)
        object.__setattr__(self, "base", model.body_names[0])

    def default_params(self) -> legged.LeggedParams:
        robot = load_mjcf(self.path)
        scene = _scene_of_kind(robot)
        model = robot.model.with_dissipation()
        home = robot.q0
        if self.keyframe is not None:
            if self.keyframe not in robot.keyframes:
                raise ArgumentError(
                    f"keyframe is {self.keyframe!r}, expected one of {', '.join(robot.keyframes)}"
                )
            home = robot.keyframes[self.keyframe].q
        count = len(scene.frames)
        if self.phases is not None and len(self.phases) != count:
            raise ArgumentError(
                f"phases has {len(self.phases)} values, expected {count}, one per contact of the "
                f"ground with {', '.join(map(str, scene.frames))}"
            )
        control = _position_control(robot, np.asarray(home), self.stroke)
        lowest = jnp.min(
            contact_points(model, scene, home, jnp.zeros_like(model.armature)).distance
        )
        weights = dict(POSTURE_WEIGHTS, velocity=2.0, turning=1.0, bounce=0.1)
        if self.phases is not None:
            weights["gait"] = 1.0
        low = float(home[2] - lowest) / 2
        params = legged.default_params(model, scene, control, home, low, weights, self.command)
        return params._replace(stroke=jnp.asarray(self.stroke, model.dtype))


def _scene_of_kind(robot: Imported) -> Scene:
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
    if robot.constraints:
        raise ArgumentError(
            f"the robot has {len(robot.constraints)} equality constraints, expected none"
        )
    if robot.springs.joints:
        raise ArgumentError(f"joint {robot.springs.joints[0]!r} has a spring, expected none")
    return robot.scene


def _position_control(robot: Imported, home: np.ndarray, stroke: float) -> PD:
    """The position actuators of a robot as PD control, one per joint after the free joint.

    With the gear r, the actuator has the length r q. The control r q* has the target position q*.
    """
    model, actuators, filters = robot.model, robot.actuators, robot.filter
    joints = model.joint_names[1:]
    instant = np.array(filters.exact) & np.array(filters.early) & (filters.time_constant == 0)
    if not np.all(instant):
        name = actuators.names[int(np.argmin(instant))]
        raise ArgumentError(f"actuator {name!r} has activation dynamics, expected none")
    for name in joints:
        if (count := actuators.joints.count(name)) != 1:
            raise ArgumentError(f"joint {name!r} has {count} actuators, expected 1")
    gain, bias, gear, control_range, _, _ = map(np.asarray, actuators.values)
    for i, (name, joint) in enumerate(zip(actuators.names, actuators.joints)):
        kp, kd, r = gain[i, 0], -bias[i, 2], gear[i]
        if gain[i, 1] or gain[i, 2] or bias[i, 0] or bias[i, 1] != -kp or kp <= 0 or kd < 0:
            raise ArgumentError(
                f"actuator {name!r} of the joint {joint!r} is no position actuator: its gain is "
                f"{gain[i].tolist()} and its bias is {bias[i].tolist()}, expected [kp, 0, 0] and "
                f"[0, -kp, -kd]"
            )
        q = home[model.joint(joint).q][0]
        targets = r * (q - stroke), r * (q + stroke)
        low, high = control_range[i]
        if min(targets) < low or max(targets) > high:
            raise ArgumentError(
                f"stroke is {stroke}: actuator {name!r} gets controls from {min(targets):.4g} to "
                f"{max(targets):.4g}, expected from {low} to {high}"
            )
    servo, _ = servo_of_actuators(actuators, model, home, jnp.zeros(len(actuators.names)))
    return servo.control
