"""The mirror image of a robot with legs, whose left and right sides are alike.

The mirror is the plane y = 0 of the base, between left and right. A motion of the robot has a
mirror image, in which the left leg moves as the right leg did. `mirror_image` finds the joints that
change places, and the signs of all entries of an observation and of an action.

A joint with the motion vector (v, w) at the base has the image (S v, -S w), with
S = diag(1, -1, 1), because an angular velocity is a pseudovector. Joint j is the image of joint i
if the motion vector of j is s times the image of the motion vector of i, with s = 1 or -1. Then the
coordinate of j in the image is s times the coordinate of i.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
from jax import Array
from jaxtyping import Float

from ..algorithms.common_frame import dof_columns
from ..algorithms.kinematics import forward_kinematics, root_centred
from ..configuration import neutral
from ..errors import ArgumentError
from ..model import Model, arguments
from ..se3 import Pose
from ..spatial import inertia_center_of_mass
from .environment import Env, Parts, checked_env
from .gait import check_legged_robot
from .legged import LeggedEnv, LeggedParams

# The signs of the vectors of an observation: x forward, y to the left, z up. A command consists of
# the velocities along x and y, and the turning rate about z.
_SIGNS = {
    "gravity_direction": (1, -1, 1),
    "linear_velocity": (1, -1, 1),
    "angular_velocity": (-1, 1, -1),
    "command": (1, -1, -1),
}
_JOINT_PARTS = ("joint_positions_minus_pose", "joint_velocities", "last_action")
_CLOCK = "sine_and_cosine_of_gait"
# The largest difference of motion vectors and positions. Positions are relative to the size of the
# robot: the largest distance of a joint from the base along an axis.
_TOLERANCE = 1e-3
# The largest difference of masses and gains, relative to their values, and of centres of mass,
# relative to the size of the robot. The sides of the files of real robots differ a little.
_MASS_TOLERANCE = 0.02


class SignedPermutation(NamedTuple):
    """A function from arrays (..., n) to arrays (..., n): it permutes the entries and sets signs.

    Entry i of the result is `signs[i]` times the entry `places[i]` of the argument. Raises
    ArgumentError for an argument of another size.
    """

    places: tuple[int, ...]
    signs: tuple[int, ...]

    def __call__(self, x: Float[Array, "... n"]) -> Float[Array, "... n"]:
        if np.shape(x)[-1:] != (len(self.signs),):
            raise ArgumentError(f"x has shape {np.shape(x)}, expected (..., {len(self.signs)})")
        return x[..., np.array(self.places)] * np.array(self.signs, x.dtype)


class Mirror(NamedTuple):
    """The images of observations and of actions in the mirror; `mirror_image` returns it."""

    observation: SignedPermutation
    action: SignedPermutation


def mirror_image(env: Env, params: LeggedParams | None = None, entry: str | None = None) -> Mirror:
    """The mirror image of the observations and the actions of a robot with legs.

    - `env`: an environment of one robot with legs, also in an `Asymmetric` or `History`;
    - `params`: its parameters (default: `env.default_params()`);
    - `entry`: if its observations are dicts, the entry that the result is for.

    In the posture `home`, the robot must look the same in the mirror. The function compares the
    axes and places of the joints, the masses and centres of mass of their bodies, the strokes, the
    gains and the largest forces, and with a gait the feet. The joints have one degree of freedom.
    The gait of the image may be half a period later: the sine and the cosine of the gait then
    change their signs.

    Raises ArgumentError, which names the joint, the foot or the part of the observation, for a
    robot or an environment that has no mirror image.
    """
    inner: Any = checked_env(env)
    while not isinstance(inner, LeggedEnv) and isinstance(getattr(inner, "env", None), Env):
        inner = inner.env
    given = env.default_params() if params is None else params
    if isinstance(inner, LeggedEnv):
        arguments.require_type(given, "params", LeggedParams)
    if not isinstance(inner, LeggedEnv) or given.phases is not None:
        raise ArgumentError(
            f"env is {type(inner).__name__!r}, expected an environment of one robot with legs"
        )
    stated: Any = env.interface(given).observation
    entries: dict[str | None, Parts] = stated if isinstance(stated, dict) else {None: stated}
    if not isinstance(entry, str | None) or entry not in entries:
        raise ArgumentError(f"entry is {entry!r}, expected {', '.join(sorted(map(str, entries)))}")
    model = given.model
    base = neutral(model)[:7]  # the base is at the world's origin
    home = arguments.configuration(model, given.home, "params.home").at[:7].set(base)
    X_WB = root_centred(forward_kinematics(model, home))
    joints = _mirrored_joints(model, X_WB)
    _check_bodies(given, X_WB, joints)
    clock = 1 if inner.phases is None else _clock_sign(given, X_WB, inner.phases)
    return Mirror(_mirrored_parts(entries[entry], joints, clock), joints)


def _mirrored_parts(parts: Parts, joints: SignedPermutation, clock: int) -> SignedPermutation:
    """The image of an observation.

    `joints`: the image of the values of the joints; `clock`: the sign of the image of the clock.
    """
    known = {name: SignedPermutation((0, 1, 2), axis_signs) for name, axis_signs in _SIGNS.items()}
    known |= dict.fromkeys(_JOINT_PARTS, joints)
    known[_CLOCK] = SignedPermutation((0, 1), (clock, clock))
    places, signs = [], []
    for name, size in parts:
        image = known.get(re.sub(r"\[-\d+\]$", "", name))  # without the age in a history
        if image is None or len(image.signs) != size:
            raise ArgumentError(
                f"the part {name!r} of the observation, of size {size}, has no known mirror image"
            )
        places += [len(signs) + place for place in image.places]
        signs += image.signs
    return SignedPermutation(tuple(places), tuple(signs))


def _mirrored_joints(model: Model, X_WB: Pose) -> SignedPermutation:
    """The image of the values of the joints after the base; `X_WB`: the poses of the bodies."""
    check_legged_robot(model)
    n = model.nv - 6
    motions = np.asarray(dof_columns(model, X_WB))[6:]
    origins = np.asarray(X_WB.p)[np.array(model.topology.dof_body)[6:]]
    size = _size(origins)
    tolerance = _TOLERANCE * size
    image_signs, partners, signs = np.array([1, -1, 1, -1, 1, -1]), [], []
    for i in range(n):
        # Two joints can have the same axis. Then the origins of their bodies differ.
        distance = np.linalg.norm(origins - origins[i] * image_signs[:3], axis=1)
        image = motions[i] * image_signs
        # The linear part at the base is a lever arm of a hinge, or the direction of a slide.
        linear = max(size, float(np.linalg.norm(image[:3])))
        scale = np.repeat([linear, 1.0], 3)
        found = [
            (distance[j], j, sign)
            for j in range(n)
            for sign in (1, -1)
            if np.max(np.abs(image - sign * motions[j]) / scale) < _TOLERANCE
        ]
        nearest = min(found, default=None)
        close = [j for d, j, _ in found if nearest and d < nearest[0] + tolerance]
        if nearest is None or len(close) > 1 or nearest[1] in partners:
            raise ArgumentError(
                f"joint {model.joint_names[1 + i]!r} has no mirror image in the posture, or several"
            )
        partners.append(nearest[1])
        signs.append(nearest[2])
    # Joint partners[i] of the image has signs[i] times the value of joint i.
    order = np.argsort(partners)
    return SignedPermutation(tuple(order.tolist()), tuple(np.array(signs)[order].tolist()))


def _size(points: np.ndarray) -> float:
    """The largest absolute coordinate of points (n, 3) in m, as a size of a robot; 1 if it is 0."""
    return float(np.abs(points).max(initial=0.0)) or 1.0


def _check_bodies(params: LeggedParams, X_WB: Pose, joints: SignedPermutation) -> None:
    """Raise ArgumentError if bodies or controls of two mirrored joints differ."""
    model, image = params.model, np.array(joints.places)
    bodies = np.array(model.topology.dof_body)[6:]
    masses = np.asarray(model.inertia)[:, 0]
    centres = np.asarray(inertia_center_of_mass(model.inertia))
    points = np.asarray(X_WB.p) + (np.asarray(X_WB.R) @ centres[..., None])[..., 0]
    size = _size(np.asarray(X_WB.p)[bodies])
    distance = np.linalg.norm(points[bodies][image] - points[bodies] * [1, -1, 1], axis=1) / size
    n = len(bodies)
    control = params.control
    values = {
        "mass of the body": masses[bodies],
        "stroke": np.broadcast_to(params.stroke, n),
        "stiffness": np.asarray(control.stiffness)[6:],
        "damping": np.asarray(control.damping)[6:],
        "effort": np.asarray(control.effort)[6:],
    }
    for i in range(n):
        here, there = (model.joint_names[1 + j] for j in (i, image[i]))
        if distance[i] > _MASS_TOLERANCE:
            raise ArgumentError(
                f"the bodies of joint {here!r} and of its mirror image {there!r} have centres of "
                "mass that are no mirror images of each other in the posture"
            )
        for name, x in values.items():
            if not np.isclose(x[i], x[image[i]], rtol=_MASS_TOLERANCE, atol=0):
                raise ArgumentError(
                    f"the {name} is {x[i]:.6g} for joint {here!r} and {x[image[i]]:.6g} for its "
                    f"mirror image {there!r}, expected the same"
                )


def _clock_sign(params: LeggedParams, X_WB: Pose, phases: tuple[float, ...]) -> int:
    """1 if mirrored feet have the same phase, and -1 if their phases differ by half a period."""
    model, scene = params.model, params.scene
    bodies = scene.bodies(model)
    offsets = np.asarray(scene.centres(model))[..., None]
    points = np.asarray((X_WB.R[bodies] @ offsets)[..., 0] + X_WB.p[bodies])
    images = points * np.array([1, -1, 1])
    shifts = set()
    for frame, image, phase in zip(scene.frames, images, phases):
        distance = np.linalg.norm(points - image, axis=1)
        nearest = int(np.argmin(distance))
        name = model.frame_names[model.frame_index(frame)]
        if not distance[nearest] < _TOLERANCE * _size(points):
            raise ArgumentError(f"the foot {name!r} has no mirror image in the posture")
        shifts.add(round((phases[nearest] - phase) % 1, 6) % 1)
    if len(shifts) != 1 or not shifts <= {0, 0.5}:
        raise ArgumentError(
            f"the phases of the feet and of their mirror images differ by {sorted(shifts)}, "
            "expected 0 or 0.5 for all feet"
        )
    return 1 if shifts == {0} else -1
