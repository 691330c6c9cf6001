"""Descriptions of tendons: sums of joint coordinates, and paths over points and shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from ..errors import ArgumentError
from ..model import arguments
from ..model.joints_by_name import parameters, required_parameters
from ..model.names import require_frame_name
from ..model.shapes import Cylinder, Sphere, Vector
from ..spatial import Pose


class PathPoint(eqx.Module):
    """A point through which a tendon passes.

    - `frame`: the name of a frame of the model, or None for the world;
    - `position` (3,) in m, finite, in the frame; by default the origin of the frame.
    """

    frame: str | None = eqx.field(static=True)
    position: Float[arguments.Parameter, "3"]

    def __init__(self, frame: str | None, position: Vector | None = None):
        require_frame_name(frame, "frame")
        self.frame = frame
        self.position = parameters(position, "position", np.zeros(3))
        arguments.require(self.position, np.isfinite, "position", "finite")


class Wrap(eqx.Module):
    """A sphere or a cylinder that a tendon passes between two points.

    - `shape`: a `Sphere` or a `Cylinder`. A cylinder has no ends here: its half length and its
      rounding are not used;
    - `frame`: the name of a frame of the model, or None for the world;
    - `X_FS`: the pose of the shape in this frame, or only the position (3,) in m; by default the
      identity;
    - `side`: a `PathPoint` or the name of a frame, which selects the path around the shape. By
      default, the path is the shorter one. The side point is inside if its distance from the center
      is less than the radius, also for a cylinder. With a side point inside, a tendon that would
      miss the shape bends towards the shape and touches it. With a side point outside, the path is
      the longer one if the direction from the center to the side point is between the directions
      opposite to the two ends of the path. For a sphere, the side point is first projected onto the
      plane of the center and both ends.

    The attribute `side_is_inside` states whether the side point is inside; without a `side` it is
    False. The constructor computes it if the side point is in the `frame` of the shape and no value
    is traced; later changes of values do not change it. Otherwise it is None, and the compiled
    program tests the side point in each state, which makes the program larger.
    """

    shape: Sphere | Cylinder
    X_FS: Pose
    side: PathPoint | None
    frame: str | None = eqx.field(static=True)
    side_is_inside: bool | None = eqx.field(static=True)

    def __init__(
        self,
        shape: Sphere | Cylinder,
        frame: str | None,
        X_FS: Pose | Vector | None = None,
        side: PathPoint | str | None = None,
    ):
        if not isinstance(shape, Sphere | Cylinder):
            raise ArgumentError(f"shape is {shape!r}, expected a Sphere or a Cylinder")
        require_frame_name(frame, "frame")
        self.shape, self.frame = shape, frame
        R, p = (X_FS.R, X_FS.p) if isinstance(X_FS, Pose) else (None, X_FS)
        rotation: Any = parameters(R, "X_FS.R", np.eye(3))
        position: Any = parameters(p, "X_FS.p", np.zeros(3))
        self.X_FS = arguments.pose_parameter(Pose(rotation, position), "X_FS")
        self.side = PathPoint(side) if isinstance(side, str) else side
        if self.side is not None and not isinstance(self.side, PathPoint):
            raise ArgumentError(
                f"side is {side!r}, expected a PathPoint, the name of a frame, or None"
            )
        self.side_is_inside = False if self.side is None else self._side_is_inside(self.side)

    def _side_is_inside(self, side: PathPoint) -> bool | None:
        if side.frame != self.frame:
            return None
        values = side.position, self.X_FS.p, self.shape.radius
        position, center, radius = (arguments.known(x) for x in values)
        if position is None or center is None or radius is None:
            return None
        return bool(np.linalg.norm(position - center) < radius)


class Pulley(eqx.Module):
    """The end of a branch of a tendon; pulleys divide a path into branches.

    The next branch begins at the next point of the path. `divisor` (), finite and more than 0: the
    length and the tension of the next branch are divided by it.
    """

    divisor: Float[arguments.Parameter, ""]

    def __init__(self, divisor: ArrayLike):
        self.divisor = arguments.parameter(divisor, "divisor", ())
        arguments.require(
            self.divisor, lambda x: (x > 0) & np.isfinite(x), "divisor", "more than 0, and finite"
        )


def _checked_name(name: str) -> str:
    if not isinstance(name, str):
        raise ArgumentError(f"name is {name!r}, expected the name of a tendon")
    return name


class FixedTendon(eqx.Module):
    """A tendon whose length is a sum of joint coordinates, each times a coefficient.

    - `name`: a name for messages;
    - `coefficients` (n,) in m/rad or m/m, or a mapping from names of joints to coefficients;
    - `joints`: the names of n joints with one degree of freedom, n of at least 1. None if
      `coefficients` is a mapping.

    Raises ArgumentError if no joint is named, if a joint is named twice, if a coefficient is not
    finite, and if `coefficients` is a mapping and `joints` is not None.
    """

    name: str = eqx.field(static=True)
    joints: tuple[str, ...] = eqx.field(static=True)
    coefficients: Float[arguments.Parameter, " n"]

    def __init__(
        self,
        name: str,
        coefficients: Mapping[str, ArrayLike] | ArrayLike | Sequence,
        joints: Sequence[str] | None = None,
    ):
        if isinstance(coefficients, Mapping):
            if joints is not None:
                raise ArgumentError("joints is given, and coefficients has names too")
            joints, coefficients = tuple(coefficients), [*coefficients.values()]
        self.name, self.joints = _checked_name(name), arguments.names(joints, "joints")
        if not self.joints:
            raise ArgumentError(f"tendon {name!r} has no joints, expected one or more")
        if len(set(self.joints)) < len(self.joints):
            raise ArgumentError(
                f"tendon {name!r} has the joints {self.joints!r}, expected each joint once"
            )
        self.coefficients = required_parameters(coefficients, "coefficients", (len(self.joints),))
        arguments.require(self.coefficients, np.isfinite, "coefficients", "finite")


class RotationAngle(eqx.Module):
    """The angle of the rotation of a spherical joint, from 0 to pi, in place of a length.

    The limits of `Tendons` limit the rotation: `Tendons([RotationAngle("cone", "ball")],
    limits=[[-inf, 1.0]])` keeps the angle between the rotation of the joint and the identity, about
    any axis, below 1 rad. At the angle 0 the derivatives are zero, because the axis is not unique
    there.

    - `name`: a name for messages;
    - `joint`: the name of a spherical joint or of a free-flyer.

    Source: MuJoCo, XML reference, body/joint, attribute range.
    """

    name: str = eqx.field(static=True)
    joint: str = eqx.field(static=True)

    def __post_init__(self):
        _checked_name(self.name)
        if not isinstance(self.joint, str):
            raise ArgumentError(f"joint is {self.joint!r}, expected the name of a joint")


class SpatialTendon(eqx.Module):
    """A tendon along the shortest path over points, past spheres and around cylinders.

    - `name`: a name for messages;
    - `path`: `PathPoint`s, `Wrap`s between two `PathPoint`s, and `Pulley`s between branches; a path
      may begin with a pulley. The name of a frame stands for the origin of the frame.

    Each branch has at least two points. Raises ArgumentError, which names the tendon and the place
    in the path, for another path. Source: MuJoCo, XML reference, tendon/spatial.
    """

    name: str = eqx.field(static=True)
    path: tuple[PathPoint | Wrap | Pulley, ...]

    def __init__(self, name: str, path: Sequence[PathPoint | Wrap | Pulley | str]):
        self.name = _checked_name(name)
        parts = arguments.sequence(path, f"path of tendon {name!r}", "points, wraps and pulleys")
        self.path = tuple(PathPoint(x) if isinstance(x, str) else x for x in parts)
        self._check()

    def _check(self) -> None:
        branches = [0]  # the number of points of each branch
        for place, part in enumerate(self.path):
            where = f"entry {place} of the path of tendon {self.name!r}"
            if isinstance(part, Pulley):
                branches.append(0)
            elif isinstance(part, PathPoint):
                branches[-1] += 1
            elif not isinstance(part, Wrap):
                raise ArgumentError(
                    f"{where} is {part!r}, expected a PathPoint, a Wrap, a Pulley or the name of a "
                    "frame"
                )
            else:
                around = self.path[max(place - 1, 0) : place + 2]
                if len(around) < 3 or not all(isinstance(x, PathPoint) for x in around[::2]):
                    raise ArgumentError(
                        f"{where} is a Wrap, expected a PathPoint before and after it"
                    )
        if self.path and isinstance(self.path[0], Pulley):
            branches = branches[1:]
        for number, points in enumerate(branches):
            if points < 2:
                raise ArgumentError(
                    f"branch {number} of tendon {self.name!r} has {points} points, expected two or "
                    "more"
                )


Tendon = FixedTendon | SpatialTendon | RotationAngle
