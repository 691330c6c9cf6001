"""The environment in which one policy walks with several robots."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._math.cast import cast
from ..actuators import PD
from ..contact import inverse_inertias
from ..errors import ArgumentError
from ..padded import PaddedRobots, is_no_padding, pad, pad_scenes
from . import legged
from .legged import LeggedEnv, LeggedParams


@dataclasses.dataclass(frozen=True)
class PaddedWalk(LeggedEnv):
    """Several robots with legs follow commands: one program, and one policy for all of them.

    - `walkers`: the environments of the robots, such as `QuadrupedTrot()` or `MjcfWalk(path)`. The
      task is that of the first one; all have a gait, or none;
    - action (n,): one entry per joint of the common tree of the robots (`jaxrbd.padded`), after the
      base. As in the environment of each robot; the entries of other joints have no effect;
    - observation (12 + 4 n + 3,), or with a gait (12 + 4 n + 5,): as for `QuadrupedJoystick` and
      `QuadrupedTrot`, with zeros for joints that the robot does not have; then, at the end, 1 for
      each joint that it has and 0 for the others, (n,);
    - physics: a `LeggedPhysics`; parameters: a `LeggedParams`. `default_params` are those of the
      first robot, and `params_of_all` those of any number of environments with different robots.

    Raises ArgumentError, which names the robot, for an environment that is no `LeggedEnv`, for
    robots with springs, tendons or constraints, and for robots with other reward terms.
    """

    walkers: tuple[LeggedEnv, ...]
    episode_steps: int = 500
    smoothing: float | None = None
    action_size: int = dataclasses.field(init=False)
    base: str = dataclasses.field(init=False)
    phases: tuple[float, ...] | None = dataclasses.field(init=False)

    def __post_init__(self):
        if not self.walkers:
            raise ArgumentError("walkers is empty, expected at least one environment")
        for i, walker in enumerate(self.walkers):
            if not isinstance(walker, LeggedEnv):
                raise ArgumentError(f"walkers[{i}] is {walker!r}, expected a LeggedEnv")
            if (walker.phases is None) != (self.walkers[0].phases is None):
                raise ArgumentError(f"walkers[{i}] and walkers[0] differ in having a gait")
        object.__setattr__(self, "walkers", tuple(self.walkers))
        robots, _ = self._robots_and_params()
        found = {
            "action_size": robots.model.nv - 6,
            "base": robots.model.frame_names[robots.model.frame_bodies.index(0)],
            "phases": self.walkers[0].phases,
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)
