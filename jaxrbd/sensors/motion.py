"""Inertial measurement units, the direction of gravity, and encoders of joints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._math.components import cross
from .._math.rows import take_rows
from ..algorithms.kinematics import (
    Kinematics,
    configuration_of,
    find_frame,
    forward_kinematics,
    frame_axes,
    motions,
)
from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.joint_space import joint_coordinates, joint_rates
from ..spatial import from_linear, inverse_rotate, inverse_transform_motion


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
    # An upward acceleration of the world adds the negative gravity to the accelerations of bodies.
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
    """The positions and velocities of joints, in the order of `joints`.

    `q` (nq,) or its `Kinematics`, `v` (nv,); `joints`: a sequence of names. The joints have one
    coordinate and one velocity each; they may follow other joints. A compound joint j has one
    encoder per stage, for which "j.1" is the name of the first stage; the name "j" means all stages
    in order. Raises ArgumentError for an unknown joint and for a joint with more coordinates, such
    as a ball joint.
    """
    joints = arguments.names(joints, "joints")
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
