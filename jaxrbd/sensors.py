"""Sensors: what the sensors of a robot measure in one state, and noise.

Every function returns exact values. `Noise` adds bias, white noise and quantisation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, PRNGKeyArray

from ._math.cast import cast
from ._math.components import cross
from ._math.rows import take_rows
from .algorithms.kinematics import (
    Kinematics,
    configuration_of,
    find_frame,
    forward_kinematics,
    frame_axes,
    motions,
)
from .contact import ContactForce, ContactStep, Ground, Scene, Terrain
from .contact.contacts import find_contacts
from .contact.scene import lengths_and_normals
from .errors import ArgumentError
from .model import Model, arguments
from .model.joint_space import joint_coordinates, joint_rates
from .spatial import from_linear, inverse_rotate, inverse_transform_motion

__all__ = [
    # motion
    "ImuReading",
    "imu",
    "projected_gravity",
    "JointReading",
    "joint_encoders",
    # contact and the ground
    "Touch",
    "touch",
    "height_scan",
    # errors of sensors
    "Noise",
]


class ImuReading(NamedTuple):
    """What an IMU in a frame measures, in the axes of the frame.

    - `accelerometer` (3,) in m/s^2: the specific force, which is the acceleration of the origin of
      the frame minus gravity;
    - `gyroscope` (3,) in rad/s: the angular velocity of the frame relative to the world.
    """

    accelerometer: Float[Array, "3"]
    gyroscope: Float[Array, "3"]


@arguments.compiled(arrays=("q", "v", "a"), static_argnames="frame")
def imu(model: Model, q: Array | Kinematics, v: Array, a: Array, frame: str | int) -> ImuReading:
    """What an IMU in a frame measures: the specific force and the angular velocity.

    `q` (nq,) or its `Kinematics`, `v` (nv,), `a` (nv,); `frame`: as in `Model.frame_index`. The
    acceleration a is the result of `forward_dynamics`, or `(step.v - v) / dt` for a time step with
    contact. At rest the accelerometer measures the negative gravity, so its value points upwards.
    In free fall it measures zero. Raises ArgumentError for an unknown frame.
    """
    kinematics = forward_kinematics.unchecked(model, q)
    body, X_BF, X = find_frame(model, kinematics, frame)
    if body < 0:  # X.X_RF.R is the rotation of the frame in the world
        still = jnp.zeros(3, model.dtype)
        return ImuReading(inverse_rotate(X.X_RF.R, -model.gravity), still)
    # A world that accelerates upwards adds the negative gravity to every body.
    V, A = motions(model, kinematics, v, a, from_linear(-model.gravity))
    V_F = inverse_transform_motion(X_BF, V[body])
    A_F = inverse_transform_motion(X_BF, A[body])
    return ImuReading(A_F[:3] + cross(V_F[3:], V_F[:3]), V_F[3:])


@arguments.compiled(arrays=("q",), static_argnames="frame")
def projected_gravity(model: Model, q: Array | Kinematics, frame: str | int) -> Float[Array, "3"]:
    """The direction of gravity as a unit vector (3,), in the axes of a frame.

    `q` (nq,) or its `Kinematics`; `frame`: as in `Model.frame_index`. The result is zero if the
    model has no gravity. Raises ArgumentError for an unknown frame.
    """
    R_WF = frame_axes(model, q, frame)
    squared = jnp.sum(model.gravity**2)
    direction = model.gravity / jnp.sqrt(jnp.where(squared > 0, squared, 1))
    return inverse_rotate(R_WF, direction)


class JointReading(NamedTuple):
    """What the encoders of n joints measure.

    - `position` (n,): the coordinates of the joints, in rad or m;
    - `velocity` (n,): the velocities of the joints, in rad/s or m/s.
    """

    position: Float[Array, " n"]
    velocity: Float[Array, " n"]


@arguments.compiled(arrays=("q", "v"), static_argnames="joints")
def joint_encoders(
    model: Model, q: Array | Kinematics, v: Array, joints: Sequence[str]
) -> JointReading:
    """The positions and velocities of joints, in the order of their names.

    `q` (nq,) or its `Kinematics`, `v` (nv,); `joints`: a sequence of names. The joints have one
    coordinate and one velocity each; they may follow other joints. A compound joint j has one
    encoder per stage, for which "j.1" is the name of the first stage; the name "j" means all stages
    in order. Raises ArgumentError for an unknown joint and for a joint with more coordinates, such
    as a ball joint.
    """
    if isinstance(joints, str):
        raise ArgumentError(f"joints is {joints!r}, expected a sequence of names of joints")
    q = configuration_of(q)
    bodies = []
    for name in joints:
        for body in model.joint(name).bodies:
            sizes = model.topology.nqs[body], model.joint_nvs[body]
            if sizes != (1, 1):
                raise ArgumentError(
                    f"joint {name!r} of {model!r} has {sizes[0]} coordinates and {sizes[1]} "
                    f"velocities; expected a joint with one coordinate, which an encoder measures"
                )
            bodies.append(body)
    q_start, v_start = (np.cumsum([0, *n]) for n in (model.topology.nqs, model.joint_nvs))
    index = np.array(bodies, int)
    return JointReading(
        take_rows(joint_coordinates(model, q), q_start[index]),
        take_rows(joint_rates(model, q, v), v_start[index]),
    )


class Touch(NamedTuple):
    """What touch sensors measure: first at the n spheres of a scene, then at its m pairs of shapes.

    - `touching` (n + m,) of bool: whether the ground pushes on each sphere, and whether the shapes
      of each pair push on each other;
    - `normal_force` (n + m,): the force on each sphere along the normal of the ground, and the
      force between the shapes of each pair along the normal of their contact, in N, 0 or more.
    """

    touching: Bool[Array, " contacts"]
    normal_force: Float[Array, " contacts"]


@arguments.compiled(checks={"dt": arguments.POSITIVE})
def touch(
    model: Model,
    scene: Scene,
    q: ArrayLike | Kinematics,
    contact: ContactForce | ContactStep,
    dt: ArrayLike | None = None,
) -> Touch:
    """Which spheres and pairs of a scene are in contact, and the normal forces.

    - `contact`: the result of `contact_force` or of `contact_step` for the scene;
    - `q` (nq,) or its `Kinematics`: the configuration for which the contact was computed. For a
      `ContactStep` this is the configuration before the step;
    - `dt` in s: the duration of the step. The normal force of a `ContactStep` is the normal impulse
      divided by dt, which is the mean force in the step. For a `ContactForce` dt is None.

    The values are in the order of the contacts of the scene: n spheres on the ground, then m pairs,
    which `scene.pairs` lists. The ground contacts are the first `len(scene.frames)` values.

    Raises ArgumentError for a dt that is not positive, for a `ContactStep` without dt, for a
    `ContactForce` with dt, and for a `contact` with another number of contacts than the scene.
    """
    if (dt is None) != isinstance(contact, ContactForce):
        given = "is None" if dt is None else "was given"
        expected = "None" if dt is not None else "the duration of the step in s"
        raise ArgumentError(f"dt {given} for a {type(contact).__name__}, expected {expected}")
    if contact.distance.shape != (scene.size,):
        n, m = len(scene.frames), scene.size - len(scene.frames)
        raise ArgumentError(
            f"contact.distance has shape {contact.distance.shape}, expected ({scene.size},) for a "
            f"scene of {n} spheres and {m} pairs"
        )
    if dt is None:
        force = contact.normal_force  # pyright: ignore[reportAttributeAccessIssue]
    else:
        dt = arguments.POSITIVE.or_nan(arguments.number(model, dt, "dt"))
        kinematics = forward_kinematics(model, q)
        gradient = find_contacts(model, scene.astype(model.dtype), kinematics).gradient
        _, normal = lengths_and_normals(gradient)
        impulse = contact.impulse  # pyright: ignore[reportAttributeAccessIssue]
        force = jnp.sum(normal * impulse, axis=-1) / dt
    return Touch(force > 0, force)


@arguments.compiled(arrays=("q",), static_argnames="frame")
def height_scan(
    model: Model,
    q: Array | Kinematics,
    ground: Ground,
    frame: str | int,
    pattern: ArrayLike | Sequence,
) -> Float[Array, " n"]:
    """The heights (n,) in m of the origin of a frame above the ground at n points.

    - `q` (nq,) or its `Kinematics`; `frame`: as in `Model.frame_index`;
    - `ground`: a `Terrain`, such as a `Plane`, a `Height` or a `HeightGrid`;
    - `pattern` (n, 2) in m: the horizontal positions of the points relative to the origin of the
      frame. The pattern turns with the frame about the vertical only: its first axis is the
      horizontal projection of the x axis of the frame. If the x axis of the frame is vertical, the
      first axis of the pattern is the x axis of the world.

    Entry i is the z of the origin of the frame minus the z of the ground at point i. It is positive
    where the ground is below the frame. Raises ArgumentError for an unknown frame and for a ground
    that is no `Terrain`.
    """
    if not isinstance(ground, Terrain):
        raise ArgumentError(
            f"ground is {type(ground).__name__!r}, expected a Terrain, which has an elevation"
        )
    pattern = jnp.asarray(pattern, model.dtype)
    if pattern.ndim != 2 or pattern.shape[1] != 2:
        raise ArgumentError(f"pattern has shape {pattern.shape}, expected (n, 2)")
    terrain = cast(ground, model.dtype)
    X = find_frame(model, q, frame)[2]
    p = X.X_WF.p
    x, y = X.X_RF.R[0, 0], X.X_RF.R[1, 0]
    squared = x * x + y * y
    size = jnp.sqrt(jnp.where(squared > 0, squared, 1))
    cos, sin = jnp.where(squared > 0, x / size, 1), y / size
    offsets = cos * pattern + sin * jnp.stack([-pattern[:, 1], pattern[:, 0]], axis=-1)
    return p[2] - jax.vmap(terrain.elevation)(p[None, :2] + offsets)


class Noise(eqx.Module):
    """The errors of a sensor: a bias, white noise and quantisation.

    - `std`: standard deviation of the white noise, 0 or more (default 0);
    - `bias`: a constant error (default 0);
    - `resolution`: the difference between two successive values that the sensor can give, more than
      0, or None for a sensor without quantisation (default).

    Each is () for all values of the sensor, or has the shape of the measured array; the units are
    those of the sensor. All fields are leaves, so with `vmap` each environment has its own bias.
    Raises ArgumentError for a parameter that is not finite, a negative standard deviation and a
    resolution that is not positive.
    """

    std: Float[arguments.Parameter, "..."]
    bias: Float[arguments.Parameter, "..."]
    resolution: Float[arguments.Parameter, "..."] | None

    def __init__(
        self,
        std: ArrayLike | Sequence = 0.0,
        bias: ArrayLike | Sequence = 0.0,
        resolution: ArrayLike | Sequence | None = None,
    ):
        self.std = arguments.parameter(std, "std", np.shape(std))
        self.bias = arguments.parameter(bias, "bias", np.shape(bias))
        self.resolution = None
        arguments.require(self.std, lambda x: (x >= 0) & np.isfinite(x), "std", "finite, 0 or more")
        arguments.require(self.bias, np.isfinite, "bias", "finite")
        if resolution is not None:
            step = arguments.parameter(resolution, "resolution", np.shape(resolution))
            arguments.require(
                step, lambda x: (x > 0) & np.isfinite(x), "resolution", "finite, more than 0"
            )
            self.resolution = step

    def __call__(self, key: PRNGKeyArray, x: ArrayLike) -> Float[Array, "..."]:
        """The measured values for the exact values x: noisy, then rounded to the resolution.

        `key`: a key of `jax.random`, another one for each measurement. The result is
        `x + bias + std n`, where n is normal with unit variance and independent for each entry of
        x. It is rounded to the nearest multiple of the resolution. The derivative of the rounding
        is zero. Raises ArgumentError if a field has neither the shape () nor the shape of x.
        """
        return _measured(self, key, x)


@jax.jit
def _measured(noise: Noise, key: PRNGKeyArray, x: ArrayLike) -> Float[Array, "..."]:
    x = jnp.asarray(x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise ArgumentError(f"x has dtype {x.dtype}, expected floats")

    def field(name: str) -> Array:
        value = jnp.asarray(getattr(noise, name), x.dtype)
        if value.shape not in ((), x.shape):
            raise ArgumentError(f"{name} has shape {value.shape}, expected () or {x.shape} as x")
        return value

    noisy = x + field("bias") + field("std") * jax.random.normal(key, x.shape, x.dtype)
    if noise.resolution is None:
        return noisy
    step = field("resolution")
    return step * jnp.round(noisy / step)
