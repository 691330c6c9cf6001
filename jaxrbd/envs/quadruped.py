"""Tasks of the bundled quadruped: standing, following commands, trotting."""

from __future__ import annotations

import dataclasses

import numpy as np

from ..actuators import PD
from ..contact import HeightGrid, Material, Plane, Scene
from ..model import arguments
from ..robots import home_posture, load_robot
from . import legged

FEET = tuple(f"{end}_{side}_foot" for end in ("front", "hind") for side in ("left", "right"))
# The feet of one diagonal swing in the first half of the period, the other feet in the second half.
PHASES = (0.0, 0.5, 0.5, 0.0)


@dataclasses.dataclass(frozen=True)
class QuadrupedStand(legged.LeggedEnv):
    """The quadruped stands still in its home posture.

    - action (12,): the target positions of the joints are `home + stroke * action`;
    - observation (45,): in the frame of the trunk, the direction of gravity, and the linear and
      angular velocity; the joint positions minus `home`, their rates, and the last action;
    - physics: a `LeggedPhysics`; parameters: a `LeggedParams`;
    - `rough`: whether the default ground is a `HeightGrid` with hills of 0.05 m, or a plane;
    - `smoothing` in m: as in `contact_step` (default: exact derivatives);
    - an episode fails if the trunk is too low or tilted too much. It has 500 steps of 0.02 s; the
      physics has steps of 4 ms.
    """

    episode_steps: int = 500
    rough: bool = False
    smoothing: float | None = None
    action_size = 12
    base = "trunk"
    observes_command = False

    def default_params(self) -> legged.LeggedParams:
        weights = dict(POSTURE_WEIGHTS, velocity=1.0, turning=0.5, bounce=0.1)
        return quadruped_params(self.rough, weights, (0.0, 0.0, 0.0))


@dataclasses.dataclass(frozen=True)
class QuadrupedJoystick(legged.LeggedEnv):
    """The quadruped follows a random command: forward, sideways and turning velocity.

    As `QuadrupedStand`, with the command (3,) at the end of the observation (48,). Each episode has
    a new command.
    """

    episode_steps: int = 500
    rough: bool = False
    smoothing: float | None = None
    action_size = 12
    base = "trunk"

    def default_params(self) -> legged.LeggedParams:
        weights = dict(POSTURE_WEIGHTS, velocity=2.0, turning=1.0, bounce=0.1)
        return quadruped_params(self.rough, weights, (1.0, 0.5, 1.0))


@dataclasses.dataclass(frozen=True)
class QuadrupedTrot(QuadrupedJoystick):
    """The quadruped follows a random command, and its diagonal feet swing in turn.

    As `QuadrupedJoystick`, with the sine and the cosine of the phase of the gait at the end of the
    observation (50,). The reward term `gait` is minus the mean squared error of the foot heights,
    divided by the square of the step height. Each foot should follow half a sine wave in one half
    of the period, and stay on the ground in the other half.
    """

    phases = PHASES

    def default_params(self) -> legged.LeggedParams:
        weights = dict(POSTURE_WEIGHTS, velocity=2.0, turning=1.0, bounce=0.1, gait=1.0)
        return quadruped_params(self.rough, weights, (0.5, 0.0, 0.0))


POSTURE_WEIGHTS = {
    "alive": 0.5,
    "upright": 1.0,
    "posture": 0.1,
    "joint_velocity": 0.0005,
    "action_rate": 0.01,
}


def quadruped_params(
    rough: bool, weights: dict[str, float], command: tuple[float, float, float]
) -> legged.LeggedParams:
    """The parameters of the quadruped on a plane or, if `rough`, on hills."""
    arguments.require_flag(rough, "rough")
    model = load_robot("quadruped").with_dissipation()
    ground = hills() if rough else Plane()
    scene = Scene(FEET, 0.02, ground=ground, material=Material(friction=0.8))
    effort = np.asarray(model.effort_limit)[6:]
    control = PD.for_joints(model, model.joint_names[1:], 60.0, 2.0, effort)
    home = home_posture("quadruped")
    return legged.default_params(
        model, scene, control, home, low=0.15, weights=weights, command=command
    )


def hills() -> HeightGrid:
    """A square of 10 m with smooth random hills and valleys of about 0.05 m, always the same."""
    random = np.random.default_rng(0)
    wide = random.normal(size=(27, 27))
    smooth = (wide[1:-1, 1:-1] * 2 + wide[:-2, 1:-1] + wide[2:, 1:-1]) / 4
    return HeightGrid(0.05 * smooth, 10 / 24, (-5.0, -5.0))
