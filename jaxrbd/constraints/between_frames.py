"""Constraints between two frames: closed loops, and contacts with the world.

The equations are a function of the relative pose of the two frames. The chain rule gives the
`ConstraintRows` from this function and the motion of the two bodies. So a new kind of loop needs
one function of a pose. All constraints with the same function are evaluated in one batch, so
the size of the program hardly grows with the number of constraints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from .. import so3
from .._math.cast import stacked
from .._math.components import Mat3, Vec3, norm
from .._math.linear import complement, matmul
from ..algorithms.kinematics import (
    Kinematics,
    RootedPose,
    forward_kinematics,
    relative_pose,
    root_centred,
)
from ..algorithms.places import Places, find_places, place_jacobians, place_motions
from ..errors import ArgumentError
from ..joints import as_module
from ..model import Model, arguments
from ..model.joint_space import independent_force, motion_subspace
from ..model.names import require_frame_name
from ..spatial import (
    Pose,
    compose,
    cross_motion,
    identity_pose,
    rotate,
    skew,
    transform_force,
    transform_motion,
)
from .kinds import BodyMotion, Constraint, ConstraintRows


class FrameConstraint(Constraint):
    """Equations `error(X_AB) = 0` on the pose of a frame B relative to a frame A.

    - `error`: a function from a `Pose` to (m,): a plain function or, if it has parameters, an
      `eqx.Module`. `point`, `hinge` and `weld` return constraints with given errors;
    - `frame_a`, `frame_b`: names or indices of the frames of the model in which A and B are fixed;
      None is the world;
    - `X_a`, `X_b`: poses of A and B in these frames (default: the identity).

    Raises ArgumentError for an error that is not callable, for an X_a or X_b that is no rigid pose,
    and for a frame of another type.

    Each equation has one multiplier, a generalized force on B. The opposite force acts on A. The
    work of both forces is the multiplier times the change of the error.
    """

    error: Callable[[Pose], Array]
    frame_a: str | int | None = eqx.field(static=True)
    frame_b: str | int | None = eqx.field(static=True)
    X_a: Pose
    X_b: Pose

    def __init__(
        self,
        error: Callable[[Pose], Array],
        frame_a: str | int | None,
        frame_b: str | int | None,
        X_a: Pose | None = None,
        X_b: Pose | None = None,
    ):
        arguments.require_function(error, "error", "a function of a Pose")
        self.error = as_module(error)
        for name, frame in (("frame_a", frame_a), ("frame_b", frame_b)):
            if not arguments.is_integer(frame):
                require_frame_name(frame, name)
        self.frame_a, self.frame_b = frame_a, frame_b
        place = f"of the constraint between {frame_a!r} and {frame_b!r}"
        self.X_a = _pose_at() if X_a is None else arguments.pose_parameter(X_a, "X_a", place)
        self.X_b = _pose_at() if X_b is None else arguments.pose_parameter(X_b, "X_b", place)

    def position(self, model, q):
        (_, _, X_A), (_, _, X_B) = self._ends(model, q)
        return self.checked_error(model, relative_pose(X_A, X_B))

    def rows(self, model, motion):
        return rows_of_one_kind(model, motion, [self])[0]

    def wrenches(self, model, q, multiplier):
        (a, X_aA, X_A), (b, X_bB, X_B) = self._ends(model, q)
        X_AB = relative_pose(X_A, X_B)
        m = self.checked_error(model, X_AB).shape
        multiplier = arguments.array(model, multiplier, "multiplier", m, "m")
        zero = jnp.zeros(6, model.dtype)
        transposed = jax.linear_transpose(lambda x: error_rate(self.error, X_AB, x), zero)
        (wrench,) = transposed(multiplier)
        f_ext = jnp.zeros((model.nb, 6), model.dtype)
        if b >= 0:
            f_ext = f_ext.at[b].add(transform_force(X_bB, wrench))
        if a >= 0:
            f_ext = f_ext.at[a].add(-transform_force(compose(X_aA, X_AB), wrench))
        return f_ext

    def checked_error(self, model: Model, X: Pose) -> Array:
        """The error (m,) at the pose X of B in A."""
        value = jnp.asarray(self.error(X))
        if value.ndim != 1 or value.dtype != model.dtype:
            raise ArgumentError(
                f"the error between {self.frame_a!r} and {self.frame_b!r} has shape {value.shape} "
                f"and dtype {value.dtype}, expected (m,) of {model.dtype}"
            )
        return value

    def _ends(self, model: Model, q) -> tuple[Places, Places]:
        """`both_ends` of this constraint, without the axis of the constraints."""
        ends = both_ends(model, forward_kinematics(model, q), [self])
        return jax.tree.map(lambda x: x[0], ends)


def point(
    frame_a: str | int | None,
    frame_b: str | int | None,
    p_a: ArrayLike | Sequence[int | float] = (0.0, 0.0, 0.0),
    p_b: ArrayLike | Sequence[int | float] = (0.0, 0.0, 0.0),
) -> FrameConstraint:
    """A point fixed in one frame coincides with a point fixed in another frame: 3 equations.

    It is a ball joint, or a contact that sticks. `frame_a`, `frame_b`: names of the frames in which
    the points are fixed, or None for the world; `p_a`, `p_b` (3,): the points in these frames, in
    m. The multiplier (3,) is the force on the second frame at the point, in the axes of the first
    frame, in N. Raises ArgumentError for points that are not finite, and as `FrameConstraint`.
    """
    X_a, X_b = _pose_at(p_a, "p_a"), _pose_at(p_b, "p_b")
    return FrameConstraint(_position, frame_a, frame_b, X_a, X_b)


def hinge(
    frame_a: str | int | None,
    frame_b: str | int | None,
    axis: ArrayLike | Sequence[int | float],
    X_a: Pose | None = None,
    X_b: Pose | None = None,
) -> FrameConstraint:
    """Two frames A and B share their origin and an axis: 5 equations, a revolute joint.

    `frame_a`, `frame_b`: names of frames, or None for the world; `axis` (3,), of any length, has
    the same coordinates in A and B; `X_a`, `X_b`: poses of A and B in the named frames (default:
    the identity). The rotation about the axis is free. The equations also hold for opposite axes.
    Raises ArgumentError for an axis without a direction, and as `FrameConstraint`.
    """
    return FrameConstraint(_Hinge(axis), frame_a, frame_b, X_a, X_b)


def weld(
    frame_a: str | int | None,
    frame_b: str | int | None,
    X_a: Pose | None = None,
    X_b: Pose | None = None,
) -> FrameConstraint:
    """Two frames A and B coincide: 6 equations, a weld.

    `frame_a`, `frame_b`: names of frames, or None for the world; `X_a`, `X_b`: poses of A and B in
    the named frames (default: the identity). The error of the rotation is its rotation vector in A,
    in rad, with an angle of at most pi. Raises ArgumentError as `FrameConstraint`.
    """
    return FrameConstraint(_coincide, frame_a, frame_b, X_a, X_b)


def _position(X: Pose) -> Array:
    return X.p


def _coincide(X: Pose) -> Array:
    return jnp.concatenate([X.p, so3.log(X.R)])


class _Hinge(eqx.Module):
    axis: Array | np.ndarray

    def __init__(self, axis):
        self.axis = arguments.parameter(axis, "axis", (3,))
        arguments.require_direction(self.axis, "axis")

    def __call__(self, X: Pose) -> Array:
        axis = jnp.asarray(self.axis, X.p.dtype)
        axis = axis / norm(axis)
        normals = complement(axis[None])
        return jnp.concatenate([X.p, jnp.sum(normals * rotate(X.R, axis)[None], axis=-1)])


def _pose_at(p: ArrayLike | Sequence[int | float] = (0.0, 0.0, 0.0), name: str = "p") -> Pose:
    """A pose at the position p with the identity rotation; `name`: of p, for messages.

    Constants stay in float64 until the model's dtype is known.
    """
    position: Any = arguments.parameter(p, name, (3,))
    arguments.require(position, np.isfinite, name, "finite")
    axes: Any = np.eye(3)
    return Pose(axes, position)


# ------------------------------------------------------------------ rows of many constraints


def kind_key(constraint: FrameConstraint) -> tuple:
    """A key that is equal for constraints that `rows_of_one_kind` can evaluate together."""
    leaves, structure = jax.tree.flatten(constraint.error)
    return structure, tuple((jnp.shape(x), jnp.result_type(x)) for x in leaves)


def rows_of_one_kind(
    model: Model, motion: BodyMotion, constraints: Sequence[FrameConstraint]
) -> list[ConstraintRows]:
    """The rows of each constraint, for constraints with the same error function."""
    errors = error_functions(model, constraints)
    a, b = both_ends(model, motion.kinematics, constraints)
    a, b = _moving_ends(model, motion, a), _moving_ends(model, motion, b)
    rows = jax.vmap(_relative_rows)(errors, a, b)
    return [jax.tree.map(lambda x: x[i], rows) for i in range(len(constraints))]


class _End(NamedTuple):
    """One end of a constraint: a frame and its motion, expressed in the frame.

    - `X`: the pose in the world;
    - `J` (nv, 6): the Jacobian, one row per velocity in v;
    - `V` (6,): the spatial velocity; `A` (6,): the spatial acceleration for a = 0;
    - `J_terms` (nv, 2): each entry of J is a sum of terms. `J_terms` estimates the sum of the
      absolute values of these terms, for the linear and for the angular part of each row of J. A
      few eps times this sum is the rounding error, which decides whether a constraint row is
      redundant.
    """

    X: RootedPose
    J: Array
    V: Array
    A: Array
    J_terms: Array


def both_ends(
    model: Model, kinematics: Kinematics, constraints: Sequence[FrameConstraint]
) -> tuple[Places, Places]:
    """The frames A and the frames B of n constraints."""
    X_a, X_b = stacked([c.X_a for c in constraints]), stacked([c.X_b for c in constraints])
    return (
        find_places(model, kinematics, [c.frame_a for c in constraints], X_a),
        find_places(model, kinematics, [c.frame_b for c in constraints], X_b),
    )


def error_functions(
    model: Model, constraints: Sequence[FrameConstraint]
) -> Callable[[Pose], Array]:
    """The error functions of constraints of one kind, with their parameters stacked."""
    for constraint in constraints:
        jax.eval_shape(lambda: constraint.checked_error(model, identity_pose(model.dtype)))
    return stacked([constraint.error for constraint in constraints])


def _moving_ends(model: Model, motion: BodyMotion, ends: Places) -> _End:
    """The frames A, or the frames B, of n constraints with their motions, stacked."""
    kinematics = motion.kinematics
    J = place_jacobians(model, kinematics, ends)
    V, A = (place_motions(ends, x) for x in (motion.V, motion.A))
    p_RB = root_centred(kinematics).p
    moves = model.topology.movers(ends.bodies)
    J_terms = _jacobian_terms(model, kinematics.q, moves, ends.X.X_RF.p, p_RB)
    return _End(ends.X, J, V, A, lax.stop_gradient(J_terms))


def _jacobian_terms(
    model: Model, q: Array, moves: np.ndarray, p_RF: Array, p_RB: Array
) -> Float[Array, "n nv 2"]:
    """The `J_terms` of n frames at `p_RF` (n, 3).

    `moves` (n, nb): whether the joint of a body moves a frame; `p_RB` (nb, 3): the bodies' origins.
    The linear part of a row of J is `S_linear + S_angular x (p_F - p_dof)`. Both positions are sums
    of link vectors from the root body. The size of the terms of such a sum is estimated by the
    distance of the position from the root body.
    """
    dof_body = model.topology.dof_body
    S_linear, S_angular = jnp.split(motion_subspace(model), 2, axis=-1)
    arm = _length(p_RF)[:, None] + _length(p_RB)[dof_body][None]
    linear, angular = _length(S_linear), _length(S_angular)
    # Under vmap `arm` has a batch axis, and S has none. On a mesh with axes of type Explicit,
    # JAX cannot stack arrays of which only some have a batch axis. So the terms with `arm` are
    # added and not stacked.
    arm_factors = jnp.stack([angular, jnp.zeros_like(angular)], axis=-1)[None]
    terms = jnp.stack([linear, angular], axis=-1)[None] + arm[..., None] * arm_factors
    terms = jnp.where(moves[:, dof_body, None], terms, 0)
    if model.velocity_map_is_identity:
        return terms
    G_T = independent_force(model, q, jnp.eye(model.topology.nv, dtype=model.dtype))
    return matmul(jnp.abs(G_T), terms)


def _length(x: Array) -> Array:
    return norm(lax.stop_gradient(x))


def _relative_rows(error: Callable[[Pose], Array], a: _End, b: _End) -> ConstraintRows:
    """The rows of one constraint between the ends a and b."""
    X_AB, X_BA = relative_pose(a.X, b.X), relative_pose(b.X, a.X)
    J_a, V_a, A_a = (transform_motion(X_BA, x) for x in (a.J, a.V, a.A))
    V = b.V - V_a
    # In the axes of B, a motion vector m that is constant in A changes at the rate -V x m.
    A = b.A - A_a + cross_motion(V, V_a)
    K = jax.vmap(lambda x: error_rate(error, X_AB, x), out_axes=1)(b.J - J_a)
    velocity_product = jax.jvp(lambda X: error_rate(error, X, V), (X_AB,), (pose_rate(X_AB, V),))[1]
    return ConstraintRows(
        error(X_AB), K, error_rate(error, X_AB, A) + velocity_product, _row_terms(error, X_AB, a, b)
    )


def _row_terms(error: Callable[[Pose], Array], X_AB: Pose, a: _End, b: _End) -> Array:
    """`ConstraintRows.K_terms`: the norm of the derivative of the error times the `J_terms`."""
    X_AB = lax.stop_gradient(X_AB)
    rates = jax.vmap(lambda x: error_rate(error, X_AB, x))(jnp.eye(6, dtype=X_AB.p.dtype))
    by_linear, by_angular = (_length(x.T) for x in jnp.split(rates, 2))
    linear, angular = jnp.moveaxis(a.J_terms + b.J_terms, -1, 0)
    linear = linear + _length(X_AB.p) * a.J_terms[..., 1]
    return by_linear[:, None] * linear[None] + by_angular[:, None] * angular[None]


def error_rate(error: Callable[[Pose], Array], X: Pose, V: Array) -> Array:
    """Rate of the error for the velocity V of B relative to A, expressed in B."""
    return jax.jvp(error, (X,), (pose_rate(X, V),))[1]


def pose_rate(X: Pose, V: Array) -> Pose:
    """Rate of a pose for the body velocity V."""
    return Pose(
        (Mat3.from_array(X.R) @ Mat3.from_array(skew(V[3:]))).array(),
        (Mat3.from_array(X.R) @ Vec3.from_array(V[:3])).array(),
    )
