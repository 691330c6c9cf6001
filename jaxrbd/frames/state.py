"""The labelled quantities of a robot."""

from __future__ import annotations

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .. import arguments
from .._algorithms.centroidal import centroidal_momentum_matrix
from .._algorithms.kinematics import (
    Kinematics,
    body_motions,
    external_force,
    forward_kinematics,
    frame_jacobian,
    locate,
)
from .._algorithms.mass import center_of_mass
from ..errors import ArgumentError
from ..model import Model
from ..spatial import (
    Pose,
    apply_inertia,
    cross_motion,
    identity_pose,
    inverse_compose,
    inverse_rotate,
    inverse_transform_point,
    transform_force,
    transform_inertia,
    transform_motion,
)
from .quantities import (
    Frame,
    FreeVector,
    GeometricJacobian,
    Momentum,
    MomentumMatrix,
    Point,
    SpatialAcceleration,
    SpatialInertia,
    Transform,
    Twist,
    Wrench,
    label,
    require_types,
    transform,
)

WORLD = Frame("world")

_Q = TypeVar("_Q", Point, FreeVector, SpatialInertia, Twist, SpatialAcceleration, Momentum, Wrench)


class State(eqx.Module):
    """A robot at a configuration and a velocity, which hands out labelled quantities.

    `State(model, q, v, a)`: `q` (nq,) or its `Kinematics`, `v` (nv,), and, if accelerations are
    wanted, `a` (nv,), by default zero. Positions and motions of the bodies are computed once.

    Frames are those of `model.frame_names`, each fixed to its body, and "world". Of a link that is
    welded to another the mass is part of that body's. Where a frame is left out, it is "world" for
    a base, and else the body. Methods raise ArgumentError where the robot has no such frame, the
    constructor on a wrong shape or dtype, or where a moving link is named "world".
    """

    model: Model
    kinematics: Kinematics
    V: Float[Array, "nb 6"]  # of the bodies relative to the world, in their own frames
    A: Float[Array, "nb 6"]

    def __init__(
        self, model: Model, q: ArrayLike | Kinematics, v: ArrayLike, a: ArrayLike | None = None
    ):
        if WORLD in model.frame_names and model.frame_bodies[model.frame_names.index(WORLD)] >= 0:
            raise ArgumentError(
                f"{model!r} has a moving link named {WORLD!r}, expected a fixed one"
            )
        v = arguments.velocity(model, v)
        a = jnp.zeros_like(v) if a is None else arguments.velocity(model, a, "a")
        self.model = model
        self.kinematics = forward_kinematics(model, q)
        self.V, self.A = body_motions(model, self.kinematics, v, a)

    # ------------------------------------------------------------------------------ change of frame

    def relative_transform(self, from_: str, to: str = WORLD) -> Transform:
        """The transform from a frame to another."""
        pose = inverse_compose(self._place(to)[1], self._place(from_)[1])
        return Transform(pose, from_=from_, to=to)

    def transform(self, x: _Q, to: str) -> _Q:
        """x, whatever its type, expressed in a frame; all frames of x must be the robot's."""
        t = self.relative_transform(x.frame, to)
        if not isinstance(x, SpatialAcceleration):
            return transform(x, t)
        current = self.relative_twist(x.frame, to, x.frame)
        return transform(x, t, current, self.relative_twist(x.body, x.base, x.frame))

    # --------------------------------------------------------------------------------------- motion

    def relative_twist(self, body: str, base: str = WORLD, frame: str | None = None) -> Twist:
        """The twist of a body relative to another, expressed in a frame."""
        frame = body if frame is None else frame
        V = self._motion(self.V, body, frame) - self._motion(self.V, base, frame)
        return Twist(V, body=body, base=base, frame=frame)

    def relative_acceleration(
        self, body: str, base: str = WORLD, frame: str | None = None
    ) -> SpatialAcceleration:
        """The time derivative of `relative_twist`; gravity is not in it."""
        frame = body if frame is None else frame
        twist = self.relative_twist(body, base, frame)
        A = self._motion(self.A, body, frame) - self._motion(self.A, base, frame)
        # So far as if the frame were at rest in the world.
        A = A - cross_motion(self._motion(self.V, frame, frame), twist.array)
        return SpatialAcceleration(A, body=body, base=base, frame=frame)

    def jacobian(self, body: str, base: str = WORLD, frame: str | None = None) -> GeometricJacobian:
        """The J (6, nv) with `J @ v == relative_twist(body, base, frame)`."""
        frame = body if frame is None else frame
        J = self._columns(body, frame) - self._columns(base, frame)
        return GeometricJacobian(J.T, body=body, base=base, frame=frame)

    # ------------------------------------------------------------------------ mass, momentum, force

    def inertia(self, body: str, frame: str | None = None) -> SpatialInertia:
        """The spatial inertia of a moving body, one of `model.body_names`."""
        frame, i = body if frame is None else frame, self._moving(body)
        inertia = transform_inertia(self._pose(i, frame), self.model.inertia[i])
        return SpatialInertia(inertia, frame=frame)

    def center_of_mass(self, frame: str = WORLD) -> Point:
        """The centre of mass of all moving bodies."""
        com = center_of_mass(self.model, self.kinematics)
        return Point(inverse_transform_point(self._place(frame)[1], com), frame=frame)

    def momentum(self, frame: str = WORLD) -> Momentum:
        """The momentum of all moving bodies relative to the world."""
        X_FB = inverse_compose(self._place(frame)[1], self.kinematics.X_WB)
        of_bodies = transform_force(X_FB, apply_inertia(self.model.inertia, self.V))
        return Momentum(jnp.sum(of_bodies, axis=0), frame=frame)

    def momentum_matrix(self, frame: str = WORLD) -> MomentumMatrix:
        """The A (6, nv) with `A @ v == momentum(frame)`."""
        com = center_of_mass(self.model, self.kinematics)
        X_WC = Pose(jnp.eye(3, dtype=com.dtype), com)
        about_com = centroidal_momentum_matrix(self.model, self.kinematics)
        X_FC = inverse_compose(self._place(frame)[1], X_WC)
        return MomentumMatrix(transform_force(X_FC, about_com.T).T, frame=frame)

    def gravity_wrench(self, body: str, frame: str | None = None) -> Wrench:
        """Gravity's wrench on a moving body, one of `model.body_names`."""
        inertia = self.inertia(body, frame)
        g = inverse_rotate(self._place(inertia.frame)[1].R, self.model.gravity)
        falling = jnp.concatenate([g, jnp.zeros_like(g)])
        return Wrench(apply_inertia(inertia.array, falling), frame=inertia.frame)

    def external_force(self, wrench: Wrench, body: str) -> Float[Array, "nb 6"]:
        """The `f_ext` (nb, 6) for `rnea` and others of a wrench on a body; add several for several.

        The wrench may be expressed in any frame of the robot's. Zero for a body fixed to the world.
        """
        require_types("external_force", (wrench, Wrench))
        local = self.transform(wrench, body).array
        if self._place(body)[0] < 0:
            return jnp.zeros_like(self.V)
        return external_force(self.model, self.kinematics, label(body), local, "local")

    # -------------------------------------------------------------------------------- what is where

    def _place(self, frame: str) -> tuple[int, Pose]:
        """The body (-1: the world) that a frame is fixed to, and the frame's pose in the world."""
        frame = label(frame)
        if frame == WORLD and WORLD not in self.model.frame_names:
            return -1, identity_pose(self.model.dtype)
        body, _, X_WF = locate(self.model, self.kinematics, frame)
        return body, X_WF

    def _moving(self, body: str) -> int:
        if body not in self.model.body_names:
            bodies = list(self.model.body_names)
            raise ArgumentError(f"no moving body {body!r} in {self.model!r}; bodies: {bodies}")
        return self.model.body_names.index(body)

    def _pose(self, body: int, frame: str) -> Pose:
        """The pose of a moving body in a frame."""
        X_WB = jax.tree.map(lambda x: x[body], self.kinematics.X_WB)
        return inverse_compose(self._place(frame)[1], X_WB)

    def _motion(self, motions: Array, body: str, frame: str) -> Array:
        """The body's one of the motions (nb, 6) relative to the world, in a frame's coordinates."""
        i = self._place(body)[0]
        if i < 0:
            return jnp.zeros_like(motions[0])
        return transform_motion(self._pose(i, frame), motions[i])

    def _columns(self, body: str, frame: str) -> Array:
        """The columns (nv, 6) of the body's Jacobian relative to the world, in a frame."""
        if self._place(body)[0] < 0:
            return jnp.zeros((self.model.nv, 6), self.model.dtype)
        J = frame_jacobian(self.model, self.kinematics, label(body), "local")
        return transform_motion(self.relative_transform(body, frame).pose, J.T)
