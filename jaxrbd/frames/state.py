"""The state of a robot, and its labelled quantities."""

from __future__ import annotations

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from ..algorithms.centroidal import centroidal_momentum_matrix
from ..algorithms.kinematics import (
    Kinematics,
    RootedPose,
    external_force,
    forward_kinematics,
    frame_jacobian,
    motions,
    relative_pose,
    root_centred,
    root_positions,
)
from ..algorithms.mass import center_of_mass_frame
from ..algorithms.places import find_places, place_motions
from ..errors import ArgumentError
from ..model import Model, arguments
from ..model.names import described
from ..spatial import (
    Pose,
    apply_inertia,
    cross_motion,
    from_linear,
    inverse_rotate,
    transform_force,
    transform_inertia,
    transform_motion,
)
from .operations import newton_euler
from .quantities import (
    Frame,
    GeometricJacobian,
    Momentum,
    MomentumMatrix,
    Point,
    Quantity,
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

_Q = TypeVar("_Q", bound=Quantity)


class State(eqx.Module):
    """A robot at one configuration, velocity and acceleration.

    Its methods return twists, wrenches and other quantities with the names of their frames.

    `State(model, q, v, a)`: `q` (nq,) or the `Kinematics` of a configuration; `v` (nv,); `a` (nv,),
    zero by default. The constructor computes pose, velocity and acceleration of all frames.

    The frames are "world" and the nf frames of `model.frame_names`: one per link, fixed to the body
    of the link. Links that are welded together form one body, which has the mass of all these
    links. If a link is named "world", it must be fixed to the world, and the methods use the frame
    of this link as "world".

    Arguments of the methods:

    - `body` is any frame in `relative_twist`, `relative_acceleration`, `jacobian` and
      `external_force`. In `inertia`, `newton_euler` and `gravity_wrench` it is one of
      `model.body_names`;
    - default of `base`: "world";
    - default of `frame`: `body` in a method that has an argument `body`, else "world";
    - default of `to` in `relative_transform`: "world".

    The constructor raises ArgumentError if a link named "world" moves. Methods raise ArgumentError
    for an unknown frame.

    Leaves: `model`, `kinematics`, `placement`, `V` and `A`. `placement` has the pose of each frame
    in the world. `V` and `A` (nf + 1, 6) have the velocity and the acceleration of each frame
    relative to the world, expressed in that frame. The last row of all three is for the world.
    """

    model: Model
    kinematics: Kinematics
    placement: RootedPose
    V: Float[Array, "n 6"]
    A: Float[Array, "n 6"]

    def __init__(
        self, model: Model, q: ArrayLike | Kinematics, v: ArrayLike, a: ArrayLike | None = None
    ):
        arguments.robot(model)
        if any(n == WORLD and i >= 0 for n, i in zip(model.frame_names, model.frame_bodies)):
            raise ArgumentError(f"{model!r} has a moving link named 'world', expected a fixed one")
        v = arguments.velocity(model, v)
        a = jnp.zeros_like(v) if a is None else arguments.velocity(model, a, "a")
        self.model = model
        self.kinematics = forward_kinematics(model, q)
        self.placement, self.V, self.A = _frame_motions(model, self.kinematics, v, a)

    @property
    def X(self) -> Pose:
        """The poses of the frames in the world: R (nf + 1, 3, 3), p (nf + 1, 3) in m.

        The last row is for the world.
        """
        return self.placement.X_WF

    # ---------------------------------------------------------------------------- change of frame

    def relative_transform(self, from_: str, to: str = WORLD) -> Transform:
        """The transform from frame `from_` to frame `to`."""
        pose = relative_pose(self._pose(to), self._pose(from_))
        return Transform(pose, from_=from_, to=to)

    def transform(self, x: _Q, to: str) -> _Q:
        """The quantity x expressed in frame `to`. All frames of x must be frames of the robot.

        Raises ArgumentError also if x is no quantity with a frame, such as a `Twist`.
        """
        if not isinstance(x, Quantity):
            raise ArgumentError(f"x is {described(x)}, expected a quantity with a frame")
        t = self.relative_transform(x.frame, to)
        if not isinstance(x, SpatialAcceleration):
            return transform(x, t)
        current = self.relative_twist(x.frame, to, x.frame)
        return transform(x, t, current, self.relative_twist(x.body, x.base, x.frame))

    # ------------------------------------------------------------------------------------- motion

    def relative_twist(self, body: str, base: str = WORLD, frame: str | None = None) -> Twist:
        """The twist of `body` relative to `base`, expressed in `frame`."""
        frame = body if frame is None else frame
        V = self._express(frame, body, self.V) - self._express(frame, base, self.V)
        return Twist(V, body=body, base=base, frame=frame)

    def relative_acceleration(
        self, body: str, base: str = WORLD, frame: str | None = None
    ) -> SpatialAcceleration:
        """The time derivative of `relative_twist(body, base, frame)`, without gravity."""
        frame = body if frame is None else frame
        twist = self.relative_twist(body, base, frame)
        A_body, A_base = (self._express(frame, x, self.A) for x in (body, base))
        in_fixed_frame = A_body - A_base  # the rate of the coordinates in a fixed frame
        # In a frame with velocity V, the rate of the coordinates of a twist T has the additional
        # term -V x T.
        A = in_fixed_frame - cross_motion(self.V[self._index(frame)], twist.array)
        return SpatialAcceleration(A, body=body, base=base, frame=frame)

    def jacobian(self, body: str, base: str = WORLD, frame: str | None = None) -> GeometricJacobian:
        """The Jacobian J (6, nv) with `J @ v == relative_twist(body, base, frame)`."""
        frame = body if frame is None else frame
        J = self._columns(body, frame) - self._columns(base, frame)
        return GeometricJacobian(J.T, body=body, base=base, frame=frame)

    # -------------------------------------------------------------------- mass, momentum and force

    def inertia(self, body: str, frame: str | None = None) -> SpatialInertia:
        """The spatial inertia (10,) of a moving body, one of `model.body_names`."""
        if body not in self.model.body_names:
            bodies = list(self.model.body_names)
            raise ArgumentError(f"no moving body {body!r} in {self.model!r}; bodies: {bodies}")
        inertia = self.model.inertia[self.model.body_names.index(body)]
        frame = body if frame is None else frame
        X_FB = self.relative_transform(body, frame).pose
        return SpatialInertia(transform_inertia(X_FB, inertia), frame=frame)

    def center_of_mass(self, frame: str = WORLD) -> Point:
        """The centre of mass of all moving bodies, in m."""
        com = center_of_mass_frame(self.model, self.kinematics)
        X_FC = relative_pose(self._pose(frame), com)
        return Point(X_FC.p, frame=frame)

    def momentum(self, frame: str = WORLD) -> Momentum:
        """The momentum of all moving bodies relative to the world."""
        V = self.V[np.array([self._index(body) for body in self.model.body_names], int)]
        roots = root_positions(self.model, self.kinematics)
        at_bodies = RootedPose(root_centred(self.kinematics), roots)
        X_FB = relative_pose(self._pose(frame), at_bodies)
        momenta = transform_force(X_FB, apply_inertia(self.model.inertia, V))
        return Momentum(jnp.sum(momenta, axis=0), frame=frame)

    def momentum_matrix(self, frame: str = WORLD) -> MomentumMatrix:
        """The momentum matrix A (6, nv) with `A @ v == momentum(frame)`."""
        about_com = centroidal_momentum_matrix(self.model, self.kinematics)
        com = center_of_mass_frame(self.model, self.kinematics)
        X_FC = relative_pose(self._pose(frame), com)
        return MomentumMatrix(transform_force(X_FC, about_com.T).T, frame=frame)

    def newton_euler(self, body: str, frame: str | None = None) -> Wrench:
        """Net wrench on a moving body: the sum of all wrenches, including gravity.

        The net wrench is the rate `d(I T)/dt` of the momentum of `body` relative to the world.
        `body`: one of `model.body_names`; `frame`: any frame of the robot.
        """
        inertia, frame = self.inertia(body), body if frame is None else frame
        A, T = self.relative_acceleration(body), self.relative_twist(body)
        return self.transform(newton_euler(inertia, A, T), frame)

    def gravity_wrench(self, body: str, frame: str | None = None) -> Wrench:
        """The wrench of gravity on a moving body, one of `model.body_names`."""
        inertia = self.inertia(body, frame)
        g = inverse_rotate(self._pose(inertia.frame).X_RF.R, self.model.gravity)
        return Wrench(apply_inertia(inertia.array, from_linear(g)), frame=inertia.frame)

    def external_force(self, wrench: Wrench, body: str) -> Float[Array, "nb 6"]:
        """The external force `f_ext` (nb, 6) of a wrench on a body, for `rnea` and `aba`.

        The wrench may be expressed in any frame of the robot. `body` may be any frame of the robot;
        if it is fixed to the world, the result is zero. For several wrenches, add the results.
        """
        require_types("external_force", (wrench, Wrench))
        local = self.transform(wrench, body).array
        if self._is_world(body):
            return jnp.zeros((self.model.nb, 6), self.model.dtype)
        return external_force(self.model, self.kinematics, body, local, "local")

    # --------------------------------------------------------------------------- frames by name

    def _is_world(self, frame: str) -> bool:
        """Whether `frame` is "world" and the model has no link of this name."""
        return label(frame) == WORLD and WORLD not in self.model.frame_names

    def _index(self, frame: str) -> int:
        """The index of a frame in `placement`, `V` and `A`."""
        return -1 if self._is_world(frame) else arguments.frame_index(self.model, label(frame))

    def _pose(self, frame: str) -> RootedPose:
        i = self._index(frame)
        return jax.tree.map(lambda x: x[i], self.placement)

    def _express(self, frame: str, body: str, motions: Array) -> Array:
        """The row of `motions` for `body`, expressed in `frame`; `motions` is `V` or `A`."""
        X_FB = relative_pose(self._pose(frame), self._pose(body))
        return transform_motion(X_FB, motions[self._index(body)])

    def _columns(self, body: str, frame: str) -> Array:
        """The columns (nv, 6) of the Jacobian of `body` relative to the world, in `frame`."""
        if self._is_world(body):
            return jnp.zeros((self.model.nv, 6), self.model.dtype)
        J = frame_jacobian(self.model, self.kinematics, body, "local")
        return transform_motion(self.relative_transform(body, frame).pose, J.T)


@jax.jit
def _frame_motions(model: Model, kinematics: Kinematics, v: Array, a: Array):
    """`placement`, `V` and `A` of a `State`."""
    frames = find_places(model, kinematics, [*range(len(model.frame_names)), None])
    V, A = (place_motions(frames, x) for x in motions(model, kinematics, v, a))
    return frames.X, V, A
