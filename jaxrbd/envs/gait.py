"""The joint positions of a gait: each foot steps along the commanded velocity.

A foot swings in one half of the period T and stands in the other half. While it stands, it does not
move on the ground. In the swing its height is `sin(pi s)^2` times the height of the steps, where s
grows from 0 to 1 during the swing.

In each half of the period, the base moves as a linear inverted pendulum of height z over the
standing feet, with the acceleration `w^2 (b - b_s)` for the place b of the base, the place b_s of
the standing feet, and `w = sqrt(g / z)`. With the time t from the middle of the half, the motion
that repeats in each half has two parts:

- along the command, `b = L / 2 sinh(w t) / sinh(w T / 4)`, with the step length L;
- towards the standing feet at b_s, `b = b_s (1 - cosh(w t) / cosh(w T / 4))`.

Inverse kinematics finds the joint positions for displacements of the feet on a grid. Between the
points of the grid, the joint positions are interpolated linearly. For a displacement that a leg
cannot reach, they are the joint positions for the nearest place that it reaches. If the base turns,
the standing feet turn by the opposite angle relative to the base. The joint positions change by
this angle times a constant vector, `GaitPostures.turning`, which is computed for feet without
displacement. So the position of a foot that is both displaced and turned has an error of about the
displacement times the angle: 1.3 cm for a humanoid that walks at 0.6 m/s and turns at 0.5 rad/s.
The joint positions do not depend on masses and forces. So a robot that tracks them falls, unless
the actions of a policy correct them.

Source: Kajita, Hirukawa, Harada and Yokoi (2014), Introduction to humanoid robotics, section 4.2
(the pendulum).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from .. import so3
from .._math.cast import cast
from ..algorithms.kinematics import frame_placement, frame_placements
from ..configuration import neutral
from ..errors import ArgumentError
from ..inverse_kinematics import FrameTask, inverse_kinematics
from ..joints import FreeFlyer
from ..model import Model, arguments
from ..model.model import joint_kinds
from ..se3 import Pose
from .environment import Parameter

# The grid of displacements along x, y and z: the number of points, and the first and the last
# point, as fractions of the height of the base above the foot.
COUNTS = (9, 5, 6)
LOW, HIGH = (-0.4, -0.12, -0.05), (0.4, 0.12, 0.2)
# The largest error of the position of a foot that is lifted by half of `HIGH[2]`, as a fraction of
# the height of the base.
TOLERANCE = 0.01
TURN = 0.1  # rad, the angle of the feet in the finite difference for `GaitPostures.turning`


class GaitPostures(NamedTuple):
    """Joint positions that displace f feet from their places in a posture.

    n is the number of joints after the base. All vectors are in the axes of the base.

    - `positions` (i, j, k, n) in rad or m: the joint positions for a grid of displacements along x,
      y and z, which are the same for all feet;
    - `low`, `high` (3,) in m: the first and the last displacement of the grid. Beyond them, the
      positions are those for the nearest displacement of the grid; see `check_command`;
    - `legs` (f, n): 1 where the joint moves the foot, and 0 elsewhere;
    - `places` (f, 3) in m: from the base to the feet, in the posture;
    - `phases` (f,): the phase of each foot as a fraction of the period. A foot with the phase 0
      swings in the first half of the period, and a foot with the phase 1/2 in the second half;
    - `turning` (n,) in rad or m per rad: the change of the joint positions that turns all feet to
      the left about the z axis, in the posture. It is 0 for legs that do not hold the orientation
      of their foot;
    - `gravity` () in m/s^2: the acceleration of gravity.
    """

    positions: Parameter
    low: Parameter
    high: Parameter
    legs: Parameter
    places: Parameter
    phases: Parameter
    turning: Parameter
    gravity: Parameter

    def base_path(
        self, gait: Float[Array, "2"], time: Float[Array, ""], command: Float[Array, "3"]
    ) -> Float[Array, "2"]:
        """The place of the base in m, relative to a point: x and y in the axes of the base.

        The point is the place of the base in the middle of the current half of the period, without
        the motion towards the standing feet. It moves by one step length from each half to the
        next. The arguments are as for `displacements`.
        """
        progress, sway = self._pendulum(gait, time)
        return command[:2] * progress * gait[0] / 2 - sway

    def displacements(
        self, gait: Float[Array, "2"], time: Float[Array, ""], command: Float[Array, "3"]
    ) -> Float[Array, "f 3"]:
        """The displacements of the feet from `places` in m, in the axes of the base.

        `gait`: the period in s and the height of the steps in m; `time` in s since the start of the
        gait; `command`: forward velocity and velocity to the left in m/s, and turning rate in
        rad/s.
        """
        period, height = gait
        places = jnp.asarray(self.places)
        turned = jnp.stack([-places[:, 1], places[:, 0]], axis=1)
        # The length of a step: the distance that the base moves while the foot stands.
        length = (command[None, :2] + command[2] * turned) * period / 2
        progress, sway = self._pendulum(gait, time)
        lead, rise = self._swing_motion(gait, time)
        level = (lead - progress)[:, None] * length + sway[None]
        return jnp.concatenate([level, height * rise[:, None]], axis=1)

    def turns(
        self, gait: Float[Array, "2"], time: Float[Array, ""], command: Float[Array, "3"]
    ) -> Float[Array, " f"]:
        """The angles of the feet to the left in rad, relative to the base.

        The base turns at a constant rate. A standing foot does not turn on the ground. The
        arguments are as for `displacements`.
        """
        period = gait[0]
        # The turn of the base since the middle of the half, divided by its turn in a half.
        turned = time / period * 2 % 1 - 0.5
        return (self._swing_motion(gait, time)[0] - turned) * command[2] * period / 2

    def _swing_motion(
        self, gait: Float[Array, "2"], time: Float[Array, ""]
    ) -> tuple[Float[Array, " f"], Float[Array, " f"]]:
        """How far each foot is ahead of the standing feet, in step lengths, and its height.

        The unit of the height is the height of the steps. Both are 0 for a standing foot.
        """
        phase = (time / gait[0] + jnp.asarray(self.phases)) % 1
        s = phase * 2  # from 0 to 1 in the swing, and from 1 to 2 on the ground
        swings = s < 1
        # In the swing, the foot moves forward by two step lengths relative to the ground, from one
        # behind to one ahead of the standing feet.
        lead = jnp.where(swings, s * s * (6 - 4 * s) - 1, 0)
        return lead, jnp.where(swings, jnp.sin(np.pi * s) ** 2, 0)

    def _pendulum(
        self, gait: Float[Array, "2"], time: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, "2"]]:
        """The two parts of the motion of the base.

        The part along the command is in step lengths. The second part (2,) is in m, along x and y:
        it is minus the motion towards the standing feet.
        """
        period = gait[0]
        places, phases = jnp.asarray(self.places), jnp.asarray(self.phases)
        rate = jnp.sqrt(jnp.asarray(self.gravity) / jnp.abs(jnp.mean(places[:, 2])))
        half = time / period * 2  # halves of the period since the start
        x, end = rate * (half % 1 - 0.5) * period / 2, rate * period / 4  # w t and w T / 4
        early = (phases < 0.25).astype(places.dtype)  # 1 for the feet that swing in the first half
        weights = early / jnp.sum(early) - (1 - early) / jnp.sum(1 - early)
        # From the middle between both groups of feet to the mean place of the early feet.
        to_early = jnp.sum(places[:, :2] * weights[:, None], axis=0) / 2
        sign = jnp.where(half % 2 < 1, 1, -1)
        away = to_early * sign.astype(places.dtype)  # from the standing feet
        return jnp.sinh(x) / jnp.sinh(end) / 2, away * (1 - jnp.cosh(x) / jnp.cosh(end))

    def joint_positions(
        self,
        gait: Float[Array, "2"],
        time: Float[Array, ""],
        command: Float[Array, "3"],
        home: Float[Array, " n"],
    ) -> Float[Array, " n"]:
        """The joint positions of the gait in rad or m; `home` for joints outside of the legs.

        The other arguments are as for `displacements`.
        """
        displacements = self.displacements(gait, time, command)
        turns = self.turns(gait, time, command)[:, None] * jnp.asarray(self.turning)[None]
        postures = jax.vmap(self._interpolated)(displacements) + turns
        return home + jnp.sum(jnp.asarray(self.legs) * (postures - home[None]), axis=0)

    @jax.jit
    def extreme_positions(
        self, gait: Float[Array, "2"], command: Float[Array, "3"], home: Float[Array, " n"]
    ) -> Float[Array, "k n"]:
        """The joint positions (k, n) at 16 times of a period, for 27 commands: k = 16 * 27.

        The entries of the commands are 0, plus and minus the entries of `command`. `gait`, `home`:
        as for `joint_positions`.
        """

        def positions(time, command):
            return self.joint_positions(gait, time, command, home)

        found = _extremes(positions, gait, command)
        return found.reshape(-1, found.shape[-1])

    @jax.jit
    def _extreme_displacements(
        self, gait: Float[Array, "2"], command: Float[Array, "3"]
    ) -> Float[Array, "commands moments f 3"]:
        return _extremes(functools.partial(self.displacements, gait), gait, command)

    def check_command(self, gait: Float[Array, "2"], command: Float[Array, "3"]) -> None:
        """Raise ArgumentError if a foot leaves the grid for commands within +- `command`.

        The arguments are as for `displacements`, and not traced.
        """
        largest = np.max(np.abs(self._extreme_displacements(gait, command)), axis=(0, 1, 2))
        for axis, x, limit in zip("xyz", largest, np.asarray(self.high)):
            if not x <= limit * (1 + 1e-6):
                values = ", ".join(f"{c:.3g}" for c in np.asarray(command))
                raise ArgumentError(
                    f"the command ({values}) and the gait need displacements of the feet along "
                    f"{axis} up to {x:.3g} m, expected at most {limit:.3g} m: choose a smaller "
                    "command, or a shorter period"
                )

    def _interpolated(self, displacement: Float[Array, "3"]) -> Float[Array, " n"]:
        """The joint positions for one displacement, interpolated between the points of the grid."""
        positions = jnp.asarray(self.positions)
        cells = np.array(positions.shape[:3]) - 1
        low, high = jnp.asarray(self.low), jnp.asarray(self.high)
        place = (displacement - low) / (high - low) * cells.astype(low.dtype)
        index = jnp.clip(lax.stop_gradient(place).astype(int), 0, cells - 1)
        corners = lax.dynamic_slice(
            positions, (*index, jnp.zeros_like(index[0])), (2, 2, 2, positions.shape[3])
        )
        for fraction in jnp.clip(place - index.astype(place.dtype), 0, 1):
            corners = (1 - fraction) * corners[0] + fraction * corners[1]
        return corners


def _extremes(
    function: Callable[[Array, Array], Array], gait: Float[Array, "2"], command: Float[Array, "3"]
) -> Float[Array, "commands moments ..."]:
    """The values of a function of time and command, at 16 times of a period and for 27 commands.

    The entries of the commands are 0, plus and minus the entries of `command`.
    """
    times = gait[0] * jnp.arange(16, dtype=gait.dtype) / 16
    signs = jnp.asarray(list(itertools.product((-1, 0, 1), repeat=3)), gait.dtype)
    commands = signs * command[None]
    return jax.vmap(jax.vmap(function, (0, None)), (None, 0))(times, commands)


def gait_postures(
    model: Model,
    home: Float[Array, " nq"],
    frames: Sequence[str | int],
    phases: Sequence[float],
) -> GaitPostures:
    """The `GaitPostures` of a robot with a free-flying base and joints of one dof.

    `home`: the posture; `frames`: the names or indices of the links that touch the ground, in any
    order; a link may occur more than once; `phases`: the phase of each entry of `frames` as a
    fraction of the period, 0 or 1/2 up to whole periods. A foot keeps its orientation if its leg
    has six joints or more.

    Raises ArgumentError for another robot, for another number of phases than frames, for other
    phases, for two phases of one foot, if all feet have the same phase, for a joint that moves two
    feet, for a foot that is not below the base or that its leg cannot lift, and without gravity.
    """
    home = arguments.configuration(model, home)
    check_legged_robot(model)
    phase_by_foot = _phase_by_foot(model, frames, phases)
    rows = np.array([*phase_by_foot])
    feet = [model.frame_names[row] for row in rows]
    legs = model.topology.movers(np.array(model.frame_bodies)[rows])[:, 1:]  # without the base
    feet_of_joint = np.sum(legs, axis=0)
    if np.any(feet_of_joint > 1):
        joint = model.joint_names[1 + int(np.argmax(feet_of_joint))]
        raise ArgumentError(f"joint {joint!r} moves two feet, expected a leg for each foot")
    rigid = tuple(bool(count >= 6) for count in np.sum(legs, axis=1))
    fixed = [name for name, count in zip(model.joint_names[1:], feet_of_joint) if not count]
    locked = (model.joint_names[0], *fixed)
    home = home.at[:7].set(neutral(model)[:7])  # the base is at the world's origin
    gravity = float(np.linalg.norm(np.asarray(model.gravity)))
    if not gravity > 0:
        raise ArgumentError("the gravity of the model is 0, expected a gait under gravity")
    places = np.asarray(frame_placements(model, home).p)[rows]
    for foot, place in zip(feet, places):
        if not place[2] < 0:
            raise ArgumentError(f"the foot {foot!r} is not below the base in the posture")
    height = float(np.mean(-places[:, 2]))
    low, high = (height * np.array(x) for x in (LOW, HIGH))
    axes = [np.linspace(a, b, n) for a, b, n in zip(low, high, COUNTS)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    displacements = jnp.asarray(np.concatenate([grid, np.zeros((2, 3))]), home.dtype)
    turns = jnp.asarray(np.append(np.zeros(len(grid)), (TURN, -TURN)), home.dtype)
    positions, errors = _displaced_postures(
        model, home, displacements, turns, feet=tuple(feet), rigid=rigid, locked=locked
    )
    turning = (positions[-2] - positions[-1]) / (2 * TURN)
    lifted = int(np.argmin(np.linalg.norm(grid - [0, 0, high[2] / 2], axis=1)))
    for foot, error in zip(feet, np.asarray(errors)[lifted]):
        if not error <= TOLERANCE * height:
            raise ArgumentError(
                f"the leg of {foot!r} cannot lift the foot by {grid[lifted, 2]:.3g} m from the "
                f"posture: the nearest place is {error:.2g} m away"
            )
    positions = positions[:-2].reshape(*COUNTS, -1)
    postures = GaitPostures(
        positions=positions,
        low=low,
        high=high,
        legs=legs.astype(float),
        places=places,
        phases=np.array([*phase_by_foot.values()]),
        turning=turning,
        gravity=gravity,
    )
    return cast(postures, model.dtype)


def _phase_by_foot(
    model: Model, frames: Sequence[str | int], phases: Sequence[float]
) -> dict[int, float]:
    """The phase of each foot, 0 or 1/2, by the index of its frame. Errors as in `gait_postures`."""
    frames = arguments.sequence(frames, "frames", "frames")
    phases = np.asarray(arguments.parameter(phases, "phases", (None,))).tolist()
    if len(phases) != len(frames):
        raise ArgumentError(
            f"phases has {len(phases)} values, expected {len(frames)}, one per frame"
        )
    found: dict[int, float] = {}
    for frame, given in zip(map(model.frame_index, frames), phases):
        phase = round(2 * given % 2, 6) % 2 / 2
        if phase not in (0, 0.5):
            raise ArgumentError(
                f"phases has {given} for {model.frame_names[frame]!r}, expected 0 or 0.5"
            )
        if found.setdefault(frame, phase) != phase:
            raise ArgumentError(
                f"phases has {found[frame]} and {phase} for {model.frame_names[frame]!r}, expected "
                "one phase per foot"
            )
    if len(set(found.values())) != 2:
        raise ArgumentError(
            f"the feet have the phases {sorted(set(found.values()))}, expected 0 and 0.5"
        )
    return found


def check_legged_robot(model: Model) -> None:
    """Raise ArgumentError unless a robot has a free-flying base, and then joints of one dof."""
    kinds = joint_kinds(model)
    if kinds[:1] != [FreeFlyer] or any(nv != 1 for nv in model.joint_nvs[1:]):
        raise ArgumentError(
            f"the robot {model.name!r} has the joints {', '.join(model.joint_names[:3])}, ..., "
            "expected a free-flying base and then joints of one degree of freedom"
        )


@functools.partial(jax.jit, static_argnames=("feet", "rigid", "locked"))
def _displaced_postures(
    model: Model,
    home: Float[Array, " nq"],
    displacements: Float[Array, "m 3"],
    turns: Float[Array, " m"],
    feet: tuple[str, ...],
    rigid: tuple[bool, ...],
    locked: tuple[str, ...],
) -> tuple[Float[Array, "m n"], Float[Array, "m f"]]:
    """The joint positions for m displacements of all feet, and the errors of the feet in m.

    `rigid` (f,): whether the orientation of a foot is given; `turns` (m,) in rad: the angles by
    which such feet turn about the z axis; `locked`: the joints that do not move.
    """

    @jax.vmap
    def solve(displacement, turn):
        tasks, turned = [], so3.exp(jnp.zeros_like(displacement).at[2].set(turn))
        for foot, keeps in zip(feet, rigid):
            R, p = frame_placement(model, home, foot)
            weights = np.repeat([1.0, float(keeps)], 3)
            tasks.append(FrameTask(foot, Pose(turned @ R, p + displacement), weights))
        solution = inverse_kinematics(model, tasks, home, locked=locked, restart=False)
        return solution.q[7:], solution.errors.linear

    return solve(displacements, turns)
