"""DC motors: the torque that a motor can give at its present speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.clip import clip_within
from ..model import Model, arguments
from .joint_values import ValuesOfDofs, joints_of_dofs, values_of_dofs


class DCMotor(ValuesOfDofs):
    """DC motors behind gears: each limits a requested joint torque by its torque-speed curve.

    One value per degree of freedom, (nv,). All values but `gear_ratio` belong to the shaft of the
    motor. For a linear motor, read N for N m and m/s for rad/s. For a rotary motor that drives a
    translation, `gear_ratio` is in rad/m:

    - `stall_torque` in N m, 0 or more: the torque at full voltage and zero speed;
    - `no_load_speed` in rad/s, more than 0: the speed at full voltage and zero torque. It is
      infinite for a motor whose torque does not depend on the speed;
    - `effort` in N m, 0 or more: the limit of the torque by the current, or infinite (default).
      `Model.effort_limit` is a limit at the joint: divide it by the gear ratio;
    - `gear_ratio`, finite, more than 0: the speed of the motor divided by the speed of the joint
      (default 1). The torque at the joint is the torque of the motor times the gear ratio.

    Let w be the speed of a motor, s the stall torque, w0 the no-load speed and e the effort. The
    supply and the effort limit the torque of the motor to the range from

        clip(-s (1 + w / w0), -e, e)    to    clip(s (1 - w / w0), -e, e).

    The range covers all four quadrants. At standstill it is from -min(s, e) to min(s, e). A motor
    that brakes can give the effort e at any speed, if e <= s. At the no-load speed a motor cannot
    accelerate any more. Beyond the no-load speed the range contains braking torques only.

    The inertia J of the rotor is not part of this class. A rotor that turns N times as fast as its
    joint adds N^2 J to the inertia of the joint: add N^2 J to `Model.armature`. The class has no
    friction: `Model.damping` and `Model.friction` describe the friction of the joint and gear. The
    gear has no losses and no play. Voltage, inductance and temperature are not modelled.

    All fields are leaves. Raises ArgumentError for values out of their range; the torque of a
    traced value out of its range is NaN.
    Source: the linear torque-speed curve of a DC motor. The limits agree with `DCMotor` of Isaac
    Lab, in the version with four quadrants.
    """

    RANGES: ClassVar = {
        "stall_torque": arguments.FINITE_NOT_NEGATIVE,
        "no_load_speed": arguments.Requirement("more than 0", lambda x: x > 0),
        "effort": arguments.NOT_NEGATIVE,
        "gear_ratio": arguments.POSITIVE,
    }

    stall_torque: Float[arguments.Parameter, " nv"]
    no_load_speed: Float[arguments.Parameter, " nv"]
    effort: Float[arguments.Parameter, " nv"]
    gear_ratio: Float[arguments.Parameter, " nv"]

    def __init__(
        self,
        stall_torque: ArrayLike | Sequence[int | float],
        no_load_speed: ArrayLike | Sequence[int | float],
        effort: ArrayLike | Sequence[int | float] | None = None,
        gear_ratio: ArrayLike | Sequence[int | float] | None = None,
    ):
        self.stall_torque = arguments.parameter(stall_torque, "stall_torque", (None,))
        shape = self.stall_torque.shape
        self.no_load_speed = arguments.parameter(no_load_speed, "no_load_speed", shape)
        effort = np.full(shape, np.inf) if effort is None else effort
        self.effort = arguments.parameter(effort, "effort", shape)
        gear_ratio = np.ones(shape) if gear_ratio is None else gear_ratio
        self.gear_ratio = arguments.parameter(gear_ratio, "gear_ratio", shape)
        self.require_ranges()

    @classmethod
    def for_joints(
        cls,
        model: Model,
        joints: Sequence[str],
        stall_torque: ArrayLike | Sequence[int | float],
        no_load_speed: ArrayLike | Sequence[int | float],
        effort: ArrayLike | Sequence[int | float] | None = None,
        gear_ratio: ArrayLike | Sequence[int | float] | None = None,
    ) -> DCMotor:
        """The motors of the named joints of a robot; all other dofs have the stall torque 0.

        - `joints`: n names of joints. A joint with several dofs has the same values for each dof;
        - the other arguments: () for all joints or (n,), one value per joint.

        Raises ArgumentError for an unknown joint, a joint that is named twice, and a joint that
        follows others.
        """
        joints = arguments.names(joints, "joints")
        owner, n = joints_of_dofs(model, joints), len(joints)
        return cls(
            values_of_dofs(owner, stall_torque, n, "stall_torque", 0.0),
            values_of_dofs(owner, no_load_speed, n, "no_load_speed", np.inf),
            None if effort is None else values_of_dofs(owner, effort, n, "effort", 0.0),
            None if gear_ratio is None else values_of_dofs(owner, gear_ratio, n, "gear_ratio", 1.0),
        )

    def __call__(self, model: Model, v: ArrayLike, tau: ArrayLike) -> Float[Array, " nv"]:
        """The joint torques (nv,) that the motors give for the requested joint torques `tau`.

        `v` (nv,): the velocity of the robot; `tau` (nv,) in N m (N), for example of a `PD`. The
        result is zero for a dof with the stall torque 0. Raises ArgumentError if the fields are not
        (nv,).
        """
        return _motor_torque(model, self, v, tau)


@arguments.compiled(arrays=("v", "tau"))
def _motor_torque(model: Model, motor: DCMotor, v: Array, tau: Array) -> Float[Array, " nv"]:
    stall, no_load, effort, gear = motor.checked_values(model)
    speed = gear * v / no_load  # relative to the no-load speed
    highest = clip_within(stall * (1 - speed), -effort, effort)
    lowest = clip_within(-stall * (1 + speed), -effort, effort)
    return gear * clip_within(tau / gear, lowest, highest)
