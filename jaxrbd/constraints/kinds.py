"""Implicit constraints: closed loops and contacts between two frames, and equations of q.

A constraint is m equations `phi(q) = 0`. What the dynamics need of it are its `Rows`: phi itself,
its Jacobian K in the tangent space, and `dK/dt v`. Between two frames phi is a function of their
relative pose alone; the rows follow from it and from the motion of the bodies, so a new kind of
loop is one function of a pose.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .. import arguments
from .._algorithms.kinematics import Kinematics, body_columns, locate
from .._components import Mat3, Vec3
from .._linear import complement
from ..configuration import integrate
from ..errors import ArgumentError
from ..joints import as_module
from ..model import Model
from ..spatial import (
    Pose,
    compose,
    cross_motion,
    inverse_compose,
    inverse_transform_motion,
    rotate,
    skew,
    transform_force,
    transform_motion,
)


class Rows(NamedTuple):
    """m constraint equations at a state: `K a + bias = 0` keeps them.

    `position` (m,) is phi(q); `K` (m, nv) its Jacobian, `K v` its rate; `bias` (m,) is `dK/dt v`.
    Lengths in m, angles in rad.
    """

    position: Float[Array, " m"]
    K: Float[Array, "m nv"]
    bias: Float[Array, " m"]


class BodyMotion(NamedTuple):
    """The state that constraints are evaluated at.

    `V` (nb, 6) are the velocities of the bodies and `A` (nb, 6) their accelerations at a = 0, each
    in its body's own frame.
    """

    kinematics: Kinematics
    v: Array
    V: Array
    A: Array


class Constraint(eqx.Module):
    """m equations on the motion of a robot: `FrameConstraint`, `Equation` or `Nonholonomic`."""

    @abc.abstractmethod
    def rows(self, model: Model, motion: BodyMotion) -> Rows:
        """The equations at a state."""

    @abc.abstractmethod
    def position(self, model: Model, q: Float[Array, " nq"] | Kinematics) -> Float[Array, " m"]:
        """phi(q) alone."""

    @abc.abstractmethod
    def wrenches(
        self, model: Model, q: Float[Array, " nq"] | Kinematics, multiplier: Float[Array, " m"]
    ) -> Float[Array, "nb 6"]:
        """The forces on the bodies that the multipliers stand for, each in its body's frame."""


class Equation(Constraint):
    """Any equations `function(model, q) = 0` with values (m,): their rows by differentiation.

    `function` is a plain function or, where it has numbers of its own, an `eqx.Module`.
    """

    function: Callable[[Model, Array], Array]

    def __init__(self, function: Callable[[Model, Array], Array]):
        self.function = as_module(function)

    def position(self, model, q):
        q = q.q if isinstance(q, Kinematics) else q
        value = jnp.asarray(self.function(model, q))
        if value.ndim != 1 or value.dtype != model.dtype:
            raise ArgumentError(
                f"the function of an Equation gives shape {value.shape} and dtype {value.dtype}, "
                f"expected (m,) of {model.dtype}"
            )
        return value

    def rows(self, model, motion):
        q, zero = motion.kinematics.q, jnp.zeros(model.nv, model.dtype)

        def moved(dq):
            return self.position(model, integrate(model, q, dq))

        # A curve with constant v is a geodesic of `integrate`: its second derivative is the bias.
        def rate(t):
            return jax.jvp(moved, (t * motion.v,), (motion.v,))[1]

        bias = jax.jvp(rate, (jnp.zeros((), model.dtype),), (jnp.ones((), model.dtype),))[1]
        return Rows(moved(zero), jax.jacfwd(moved)(zero), bias)

    def wrenches(self, model, q, multiplier):
        raise ArgumentError(f"{self!r} states no forces on bodies, expected a FrameConstraint")


class Nonholonomic(Constraint):
    """Any equations `matrix(model, q) @ v = 0` that bind velocities and no configuration.

    `matrix` gives K (m, nv), as a plain function or an `eqx.Module`: a blade that does not slip
    sideways, a wheel that rolls. The position of its rows is zero.
    """

    matrix: Callable[[Model, Array], Array]

    def __init__(self, matrix: Callable[[Model, Array], Array]):
        self.matrix = as_module(matrix)

    def position(self, model, q):
        q = q.q if isinstance(q, Kinematics) else q
        return jnp.zeros(len(self._matrix(model, q)), model.dtype)

    def rows(self, model, motion):
        q, v = motion.kinematics.q, motion.v

        def rate(t):
            there = self._matrix(model, integrate(model, q, t * v))
            return jnp.matmul(there, v, precision="highest")

        bias = jax.jvp(rate, (jnp.zeros((), model.dtype),), (jnp.ones((), model.dtype),))[1]
        return Rows(self.position(model, q), self._matrix(model, q), bias)

    def wrenches(self, model, q, multiplier):
        raise ArgumentError(f"{self!r} states no forces on bodies, expected a FrameConstraint")

    def _matrix(self, model: Model, q: Array) -> Array:
        K = jnp.asarray(self.matrix(model, q))
        if K.ndim != 2 or K.shape[1] != model.nv or K.dtype != model.dtype:
            raise ArgumentError(
                f"the matrix of a Nonholonomic has shape {K.shape} and dtype {K.dtype}, expected "
                f"(m, {model.nv}) of {model.dtype}"
            )
        return K


class FrameConstraint(Constraint):
    """Equations `error(X_AB) = 0` on the pose of a frame B relative to a frame A.

    - `error`: from a `Pose` to (m,), as for `Equation`; `point`, `hinge` and `weld` have theirs;
    - `frame_a`, `frame_b`: names of frames of the model; None is the world;
    - `X_a`, `X_b`: poses of A and B in those frames, (default: the frames themselves).
    """

    error: Callable[[Pose], Array]
    frame_a: str | None = eqx.field(static=True)
    frame_b: str | None = eqx.field(static=True)
    X_a: Pose
    X_b: Pose

    def __init__(
        self,
        error: Callable[[Pose], Array],
        frame_a: str | None,
        frame_b: str | None,
        X_a: Pose | None = None,
        X_b: Pose | None = None,
    ):
        self.error = as_module(error)
        self.frame_a, self.frame_b = frame_a, frame_b
        self.X_a = _place() if X_a is None else X_a
        self.X_b = _place() if X_b is None else X_b

    def relative_pose(self, model: Model, q: Float[Array, " nq"] | Kinematics) -> Pose:
        """`X_AB`."""
        (_, _, X_WA), (_, _, X_WB) = self._ends(model, q)
        return inverse_compose(X_WA, X_WB)

    def position(self, model, q):
        return self._error(model, self.relative_pose(model, q))

    def rows(self, model, motion):
        kinematics = motion.kinematics
        (a, X_PA, X_WA), (b, X_PB, X_WB) = self._ends(model, kinematics)
        X_BA, X_AB = inverse_compose(X_WB, X_WA), inverse_compose(X_WA, X_WB)
        J_a, V_a, A_a = (transform_motion(X_BA, x) for x in _motion_of(model, motion, a, X_PA))
        J_b, V_b, A_b = _motion_of(model, motion, b, X_PB)
        V = V_b - V_a
        # What is fixed in A moves, seen from B, with velocity -V.
        A = A_b - A_a + cross_motion(V, V_a)

        def rate(X, x):
            """Rate of the error where B moves with velocity x, in its own frame."""
            return jax.jvp(lambda X: self._error(model, X), (X,), (_moving(X, x),))[1]

        position = self._error(model, X_AB)
        K = jax.vmap(lambda x: rate(X_AB, x), out_axes=1)(J_b - J_a)
        turned = jax.jvp(lambda X: rate(X, V), (X_AB,), (_moving(X_AB, V),))[1]
        return Rows(position, K, rate(X_AB, A) + turned)

    def wrenches(self, model, q, multiplier):
        (a, X_PA, X_WA), (b, X_PB, X_WB) = self._ends(model, q)
        X_AB = inverse_compose(X_WA, X_WB)
        m = self._error(model, X_AB).shape
        multiplier = arguments.array(model, multiplier, "multiplier", m, "m")
        zero = jnp.zeros(6, model.dtype)

        def error(x):
            return jax.jvp(lambda X: self._error(model, X), (X_AB,), (_moving(X_AB, x),))[1]

        (on_b,) = jax.linear_transpose(error, zero)(multiplier)
        f_ext = jnp.zeros((model.nb, 6), model.dtype)
        if b >= 0:
            f_ext = f_ext.at[b].add(transform_force(X_PB, on_b))
        if a >= 0:
            f_ext = f_ext.at[a].add(-transform_force(compose(X_PA, X_AB), on_b))
        return f_ext

    def _error(self, model: Model, X: Pose) -> Array:
        value = jnp.asarray(self.error(X))
        if value.ndim != 1 or value.dtype != model.dtype:
            raise ArgumentError(
                f"the error between {self.frame_a!r} and {self.frame_b!r} has shape {value.shape} "
                f"and dtype {value.dtype}, expected (m,) of {model.dtype}"
            )
        return value

    def _ends(self, model: Model, q) -> list[tuple[int, Pose, Pose]]:
        """Of A and B: the body (-1: the world), the pose in it, the pose in the world."""
        ends = []
        for frame, X in ((self.frame_a, self.X_a), (self.frame_b, self.X_b)):
            X = jax.tree.map(lambda x: jnp.asarray(x, model.dtype), X)
            if frame is None:
                ends.append((-1, X, X))
            else:
                body, X_PF, X_WF = locate(model, q, frame)
                ends.append((body, compose(X_PF, X), compose(X_WF, X)))
        return ends


def point(
    frame_a: str | None,
    frame_b: str | None,
    p_a: ArrayLike | Sequence[float] = (0.0, 0.0, 0.0),
    p_b: ArrayLike | Sequence[float] = (0.0, 0.0, 0.0),
) -> FrameConstraint:
    """A point of one frame stays on a point of another: 3 equations, a ball joint or a contact.

    `p_a`, `p_b` (3,) in m, in the frames; None is the world. The multiplier is the force on B at
    the point, in A's axes.
    """
    return FrameConstraint(_position, frame_a, frame_b, _place(p_a), _place(p_b))


def hinge(
    frame_a: str | None,
    frame_b: str | None,
    axis: ArrayLike | Sequence[float],
    X_a: Pose | None = None,
    X_b: Pose | None = None,
) -> FrameConstraint:
    """Two frames share their origin and an axis: 5 equations, the closure of a revolute joint.

    `axis` (3,), of any length, has the same coordinates in A and B; `X_a`, `X_b` are the poses of A
    and B in the frames. The turn between them is free, at any angle.
    """
    return FrameConstraint(_Hinge(axis), frame_a, frame_b, X_a, X_b)


def weld(
    frame_a: str | None,
    frame_b: str | None,
    X_a: Pose | None = None,
    X_b: Pose | None = None,
) -> FrameConstraint:
    """Two frames coincide: 6 equations.

    `X_a`, `X_b` are the poses of A and B in the frames. The rotation enters as `2 tan(angle / 2)`
    along its axis, the Rodrigues vector: the rotation vector to second order, with no other zero.
    """
    return FrameConstraint(_coincide, frame_a, frame_b, X_a, X_b)


def _position(X: Pose) -> Array:
    return X.p


def _coincide(X: Pose) -> Array:
    skewed, trace = X.R - X.R.T, jnp.trace(X.R)
    sine = jnp.stack([skewed[2, 1], skewed[0, 2], skewed[1, 0]]) / 2
    return jnp.concatenate([X.p, 4 * sine / (1 + trace)])


class _Hinge(eqx.Module):
    axis: Array | np.ndarray

    def __init__(self, axis):
        self.axis = axis if isinstance(axis, Array) else np.asarray(axis, float)
        if self.axis.shape != (3,):
            raise ArgumentError(f"axis has shape {self.axis.shape}, expected (3,)")

    def __call__(self, X: Pose) -> Array:
        axis = jnp.asarray(self.axis, X.p.dtype)
        axis = axis / jnp.sqrt(jnp.sum(axis * axis))
        across = complement(axis[None])
        return jnp.concatenate([X.p, jnp.sum(across * rotate(X.R, axis), axis=-1)])


def _place(p: ArrayLike | Sequence[float] = (0.0, 0.0, 0.0)) -> Pose:
    """A translation; numbers are kept in float64 until the model's dtype is known."""
    at: Any = p if isinstance(p, Array) else np.asarray(p, float)
    if at.shape != (3,):
        raise ArgumentError(f"a point has shape {at.shape}, expected (3,)")
    axes: Any = np.eye(3)
    return Pose(axes, at)


def _moving(X: Pose, V: Array) -> Pose:
    """Rate of a pose that moves with velocity V, in its own frame."""
    return Pose(
        (Mat3.of(X.R) @ Mat3.of(skew(V[3:]))).array(), (Mat3.of(X.R) @ Vec3.of(V[:3])).array()
    )


def _motion_of(model: Model, motion: BodyMotion, body: int, X_PF: Pose):
    """Of a frame at X_PF in a body, in that frame: Jacobian (nv, 6), V, and A at a = 0."""
    if body < 0:
        zero = jnp.zeros(6, model.dtype)
        return jnp.zeros((model.nv, 6), model.dtype), zero, zero
    X_WP = jax.tree.map(lambda x: x[body], motion.kinematics.X_WB)
    J = body_columns(model, motion.kinematics, body, X_WP)
    return tuple(inverse_transform_motion(X_PF, x) for x in (J, motion.V[body], motion.A[body]))
