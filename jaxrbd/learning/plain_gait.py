"""The joint positions of a gait without JAX: the formulas of `envs.GaitPostures`, in NumPy.

The phases of the feet are 0 or 1/2. With the period T and the phase p of the gait in periods:

- `half = 2 p mod 2` is below 1 in the first half of the period; `s = half mod 1` is the time since
  the start of the half, in halves. Feet with the phase 0 swing in the first half, and feet with the
  phase 1/2 in the second half;
- for a foot that swings, `lead = s^2 (6 - 4 s) - 1` and `rise = sin(pi s)^2`. Both are 0 for a foot
  that stands;
- with `w = sqrt(gravity / z)`, where z is the mean height of the base above the feet, the base has
  moved by `progress = sinh(w (s - 1/2) T / 2) / sinh(w T / 4) / 2` step lengths since the middle of
  the half, and by `b (1 - cosh(w (s - 1/2) T / 2) / cosh(w T / 4))` towards the standing feet. b is
  half of the vector from the mean place of the swinging feet to the mean place of the others;
- for the command (c_x, c_y, c_z) and a foot at the place (x, y, z), the step length is
  `(c_x - c_z y, c_y + c_z x) T / 2`. The foot is displaced horizontally by
  `(lead - progress) length - b (1 - cosh / cosh)`, and vertically by `height rise`. It is turned by
  `(lead - s + 1/2) c_z T / 2`;
- the joint positions of the leg are interpolated linearly in the grid `positions` at the
  displacement, plus `turning` times the turn. All other joints have the positions `home`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np


def gait_center(arrays: Mapping[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """The target positions (..., k) of a gait for the action 0; see the head of the file.

    `arrays`: of `controller_arrays`; `x` (..., m): the observation.
    """
    gait = GaitConstants.of(arrays)
    command = x[..., gait.command][..., None, :]  # (..., 1, 3)
    sine, cosine = (x[..., i, None] for i in gait.clock)  # (..., 1)
    half = (np.arctan2(sine, cosine) / np.pi + gait.advance) % 2
    second = half >= 1
    s = half - second
    # The motion of the base.
    angle = gait.angle * (s - 0.5)
    progress = np.sinh(angle) * gait.progress
    sway = np.where(second, -1, 1) * gait.to_early * (1 - np.cosh(angle) * gait.sway)
    # The motion of the feet.
    swings = second ^ gait.early
    lead = np.where(swings, s * s * (6 - 4 * s) - 1, 0)
    rise = np.where(swings, np.sin(np.pi * s) ** 2, 0)
    length = (command[..., :2] + command[..., 2:] * gait.turned) * gait.half_period
    level = (lead - progress)[..., None] * length + sway[..., None, :]
    displacement = np.concatenate([level, gait.height * rise[..., None]], axis=-1)
    turn = (lead - s + 0.5) * command[..., 2] * gait.half_period
    # Between the points of the grid, the joint positions are interpolated linearly.
    place = np.clip((displacement - gait.low) * gait.density, 0, gait.cells)
    corner = np.minimum(np.floor(place), gait.cells - 1)
    fraction = place - corner
    rows = np.sum(corner * gait.strides, axis=-1)[..., None] + gait.offsets
    weights = np.prod(fraction[..., None, :] * gait.slopes + gait.starts, axis=-1)
    postures = np.sum(weights[..., None] * gait.positions[rows.astype(int)], axis=-2)
    postures = postures + turn[..., None] * gait.turning
    return gait.others + np.sum(gait.legs * postures, axis=-2)


class GaitConstants(NamedTuple):
    """What the center of a gait depends on, besides the observation, as arrays of NumPy.

    - `command`, `clock`: indices of the observation; `early` (f,): whether a foot swings first;
    - `advance`: the step in halves of the period; `half_period` in s; `height` of the steps in m;
    - `angle`, `progress`, `sway`: w T / 2, 1 / (2 sinh(w T / 4)) and 1 / cosh(w T / 4);
    - `to_early` (2,) in m: half of the vector from the feet that swing in the second half to those
      that swing in the first half; `turned` (f, 2): the places, turned by a right angle;
    - `low` (3,), `density` (3,), `cells` (3,): the first point of the grid, its cells per m, and
      their number; `positions` (points, k): the joint positions in the points of the grid;
    - `strides` (3,), `offsets` (8,): of the rows of `positions`; `slopes`, `starts` (8, 3): the
      weights of the corners of a cell are products of `slopes * fraction + starts`;
    - `turning` (k,), `legs` (f, k): as in `GaitPostures`; `others` (k,): the positions of the
      joints outside of the legs, and 0 in the legs.
    """

    command: np.ndarray
    clock: np.ndarray
    early: np.ndarray
    advance: np.ndarray
    half_period: np.ndarray
    height: np.ndarray
    angle: np.ndarray
    progress: np.ndarray
    sway: np.ndarray
    to_early: np.ndarray
    turned: np.ndarray
    low: np.ndarray
    density: np.ndarray
    cells: np.ndarray
    positions: np.ndarray
    strides: np.ndarray
    offsets: np.ndarray
    slopes: np.ndarray
    starts: np.ndarray
    turning: np.ndarray
    legs: np.ndarray
    others: np.ndarray

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> GaitConstants:
        """The constants of the arrays of `controller_arrays`."""
        gait = {
            name.removeprefix("gait_"): np.asarray(x)
            for name, x in arrays.items()
            if name.startswith("gait_")
        }
        places, positions, legs = gait["places"], gait["positions"], gait["legs"]
        early = gait["phases"] < 0.25
        rate = np.sqrt(gait["gravity"] / np.abs(np.mean(places[:, 2])))
        end = rate * gait["period"] / 4
        to_early = np.mean(places[early, :2], axis=0) - np.mean(places[~early, :2], axis=0)
        counts = np.array(positions.shape[:3])
        strides = np.array([counts[1] * counts[2], counts[2], 1])
        bits = np.array([*itertools.product((0, 1), repeat=3)])
        return cls(
            command=gait["command"] + np.arange(3),
            clock=gait["clock"] + np.arange(2),
            early=early,
            advance=2 * gait["time_step"] / gait["period"],
            half_period=gait["period"] / 2,
            height=gait["height"],
            angle=2 * end,
            progress=0.5 / np.sinh(end),
            sway=1 / np.cosh(end),
            to_early=to_early / 2,
            turned=np.stack([-places[:, 1], places[:, 0]], axis=1),
            low=gait["low"],
            density=(counts - 1) / (gait["high"] - gait["low"]),
            cells=counts - 1,
            positions=positions.reshape(-1, positions.shape[3]),
            strides=strides,
            offsets=bits @ strides,
            slopes=2 * bits - 1,
            starts=1 - bits,
            turning=gait["turning"],
            legs=legs,
            others=gait["home"] * (1 - np.sum(legs, axis=0)),
        )
