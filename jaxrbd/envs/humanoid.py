"""Tasks of the bundled humanoid: standing, walking."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from ..actuators import PD
from ..contact import Material, Scene
from ..robots import home_posture, load_robot
from . import legged
from .gait import gait_postures

SOLE = (0.12, 0.05)  # m, half the length and half the width
# The left foot swings in the first half of the period, the right foot in the second half.
PHASES = (0.0,) * 4 + (0.5,) * 4


@dataclasses.dataclass(frozen=True)
class HumanoidStand(legged.LeggedEnv):
    """The humanoid stands still in its home posture. Its soles touch the ground at their corners.

    - action (29,): the target positions of the joints are `home + stroke * action`;
    - observation (96,): in the frame of the pelvis, the direction of gravity, and the linear and
      angular velocity; the joint positions minus `home`, their rates, and the last action;
    - physics: a `LeggedPhysics`; parameters: a `LeggedParams`;
    - `smoothing` in m: as in `contact_step` (default: exact derivatives);
    - an episode fails if the pelvis is too low or tilted too much. It has 500 steps of 0.02 s; the
      physics has steps of 4 ms.
    """

    episode_steps: int = 500
    smoothing: float | None = None
    action_size = 29
    base = "pelvis"
    observes_command = False

    def default_params(self) -> legged.LeggedParams:
        return _humanoid_params((0.0, 0.0, 0.0))


@dataclasses.dataclass(frozen=True)
class HumanoidWalk(legged.LeggedEnv):
    """The humanoid follows a random forward velocity, and steps with its feet in turn.

    - action (29,): the target positions of the joints are those of the gait (`GaitPostures`) plus
      `stroke * action`;
    - observation (101,): as for `HumanoidStand`, then the command (3,), and the sine and the cosine
      of the phase of the gait;
    - the reward has the term `gait` of `QuadrupedTrot`, and the term `posture` is for the joint
      positions of the gait;
    - an episode starts at any moment of the gait. It fails if the pelvis is too low or tilted by
      more than 0.5 rad.

    All else is as for `HumanoidStand`.
    """

    episode_steps: int = 500
    smoothing: float | None = None
    action_size = 29
    base = "pelvis"
    phases = PHASES

    def default_params(self) -> legged.LeggedParams:
        params = _humanoid_params((0.8, 0.0, 0.0))
        postures = gait_postures(params.model, params.home, params.scene.frames, PHASES)
        return legged.with_gait(params, postures, low=0.7)


def _humanoid_params(command: tuple[float, float, float]) -> legged.LeggedParams:
    """The parameters of the humanoid without a gait; `command`: as in `LeggedParams`."""
    model = load_robot("humanoid").with_dissipation()
    corners = np.array([(x, y, 0.0) for x, y in itertools.product(*((-s, s) for s in SOLE))])
    soles = [name for name in model.frame_names if name.endswith("_sole")]
    frames = [sole for sole in soles for _ in corners]
    offsets = np.tile(corners, (len(soles), 1))
    scene = Scene(frames, 0.0, offsets, material=Material(friction=0.8))
    effort = np.asarray(model.effort_limit)[6:]
    control = PD.for_joints(model, model.joint_names[1:], 3 * effort, 0.1 * effort, effort)
    weights = {
        "alive": 1.0,
        "upright": 1.0,
        "posture": 0.1,
        "joint_velocity": 0.0005,
        "action_rate": 0.01,
        "velocity": 1.0,
        "turning": 0.5,
        "bounce": 0.1,
    }
    home = home_posture("humanoid")
    return legged.default_params(
        model, scene, control, home, low=0.5, weights=weights, command=command
    )
