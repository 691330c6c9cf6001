"""The base class of joints, and one class per joint kind.

A class defines the pose, the motion subspace and the configuration manifold of a joint kind. It
does not use the kinematic tree. An instance holds the parameters of one joint, or of n joints of
one kind with a leading axis in each array. The methods broadcast over leading axes, except for
`neutral`, `joint_force` and `check_parameters`. No algorithm distinguishes joint kinds. So a new
kind needs one class here and the entries that CONTRIBUTING.md lists.

One rule holds for every class: in the child's frame the motion subspace S is *constant*. Then the
bias acceleration of the joint is zero, and every derivative is simple. A joint whose S depends on q
is modelled in one of two ways: as a chain of joints with constant S (`jaxrbd.model.Compound`), or
as a body with six degrees of freedom whose velocity is a function of the joint's coordinates and
velocities (`Custom`).
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.custom_derivatives import SymbolicZero
from jax.typing import ArrayLike
from jaxtyping import Float, PRNGKeyArray

from . import se3, so3
from ._math import series as _series
from ._math.cast import real_values
from ._math.components import Vec3, halves, stack
from ._math.linear import einsum, inverse_positive_definite, matmul
from ._math.ranks import same_rank
from ._math.rules import custom_jvp
from .errors import ArgumentError
from .spatial import (
    Pose,
    compose,
    from_linear,
    inverse_rotate,
    inverse_transform_point,
    rotate,
    transform_point,
)

Parameter = Array | np.ndarray


class Joint(eqx.Module):
    """A joint with `nq` configuration coordinates and `nv` degrees of freedom.

    Methods take coordinates `q` (..., nq) and velocities `v` (..., nv), with the leading axes of
    the stacked fields, in SI units and radians. Spatial vectors are [linear; angular].

    The subspace S (..., tree_nv, 6) is the transpose of Featherstone's matrix S: it has one row per
    degree of freedom that the joint adds to the tree. The velocities of these degrees of freedom
    are the *tree rates*. In all kinds except `Custom`,
    the tree rates are the velocities v of the joint. A kind whose tree rates differ from v has
    `tree_rates_are_joint_rates = False` and overrides `tree_nv`, `tree_rates`, `joint_force` and
    `velocity_subspace`.
    """

    nq: ClassVar[int]
    nv: ClassVar[int]
    # The index in q of the first entry of the unit quaternion, if the joint has a quaternion.
    quaternion: ClassVar[int | None] = None
    # Whether `tree_rates` is the identity.
    tree_rates_are_joint_rates: ClassVar[bool] = True
    # Whether dq/dt is v, as for joints whose configurations form a vector space.
    velocities_are_coordinate_rates: ClassVar[bool] = False
    # The index in v of the first entry of the child's angular velocity in the child's frame, if
    # three entries of v are this angular velocity.
    angular: ClassVar[int | None] = None
    # Whether a motor can drive the joint; see `Model.actuated`.
    actuated: ClassVar[bool] = True

    @abc.abstractmethod
    def pose(self, placement: Pose, q: Float[Array, "... nq"]) -> Pose:
        """Pose of the child in the parent: the fixed `placement` composed with the pose at q.

        The method takes `placement` as an argument, because some kinds combine the two poses in one
        formula that is cheaper than `compose`.
        """

    @abc.abstractmethod
    def subspace(self) -> Float[Array, "... tree_nv 6"]:
        """Rows of S, in the child's frame.

        `S^T tree_rates` is the spatial velocity of the child relative to the parent.
        """

    @abc.abstractmethod
    def neutral(self) -> Float[np.ndarray, " nq"]:
        """The configuration of zeros and identity quaternions.

        In this configuration the child frame is at the joint placement, except for `Custom`.
        """

    @abc.abstractmethod
    def integrate(
        self, q: Float[Array, "... nq"], v: Float[Array, "... nv"]
    ) -> Float[Array, "... nq"]:
        """Configuration that the joint reaches from q in unit time with the constant velocity v."""

    @abc.abstractmethod
    def difference(
        self, q0: Float[Array, "... nq"], q1: Float[Array, "... nq"]
    ) -> Float[Array, "... nv"]:
        """Constant velocity that moves the joint from q0 to q1 in unit time."""

    def velocity_of_rate(
        self, q: Float[Array, "... nq"], rate: Float[Array, "... nq"]
    ) -> Float[Array, "... nv"]:
        """Velocity at which the coordinates q have the rate `rate`.

        A quaternion in q may have any length. The rate of its length has no effect.
        """
        return jax.jvp(lambda moved: self.difference(q, moved), (q,), (rate,))[1]

    def displace(self, q: Float[Array, "... nq"], dx: Float[Array, "... nv"]):
        """Configuration (..., nq) that the joint reaches from q by the displacement dx.

        Most joints return `integrate(q, dx)`. But if the linear velocity is in axes that turn with
        the child, the linear part of dx is a translation along the child's axes at q; these axes do
        not turn during the displacement. The angular part of dx turns the child about its origin.
        """
        return self.integrate(q, dx)

    def transport(self, v: Float[Array, "... nv"], dx: Float[Array, "... nv"]):
        """The velocity v (..., nv), with its linear part in the axes after a displacement dx.

        In `v`, the linear part is in the axes before the displacement. The result is v, except for
        a joint whose linear velocity is in axes that turn with the child. The entries of an angular
        velocity do not change.
        """
        return v

    def turning_acceleration(self, v: Float[Array, "... nv"]) -> Float[Array, "... nv"]:
        """The rate of change (..., nv) of the velocity in fixed axes, at constant entries v.

        The result is zero, except for a joint whose linear velocity u is in axes that turn with the
        child, with the angular velocity w. For such a joint, the linear part of the result is
        `w x u`, and the angular part is zero.
        """
        return jnp.zeros_like(v)

    @abc.abstractmethod
    def random(
        self, key: PRNGKeyArray, lower: Float[Array, "... nq"], upper: Float[Array, "... nq"]
    ) -> Float[Array, "... nq"]:
        """Random configuration, uniform between the limits; without limits, in a default range.

        A quaternion is uniform over all rotations.
        """

    @property
    def tree_nv(self) -> int:
        """Number of rows of S."""
        return self.nv

    def tree_rates(
        self, q: Float[Array, "... nq"], v: Float[Array, "... nv"]
    ) -> Float[Array, "... tree_nv"]:
        """The tree rates for the velocity v; they are linear in v."""
        return v

    def joint_force(
        self, q: Float[Array, "n nq"], f: Float[Array, "n tree_nv ..."]
    ) -> Float[Array, "n nv ..."]:
        """Generalized force for the velocity v, from the generalized force `f` for the tree rates.

        The map is the transpose of `tree_rates`, applied to the second axis.
        """
        return f

    def velocity_subspace(self, q: Float[Array, "... nq"]) -> Float[Array, "... nv 6"]:
        """The child's spatial velocity relative to the parent for each unit velocity of the joint.

        The rows are in the child's frame. They are the rows of S if the tree rates are the
        velocities of the joint.
        """
        return self.subspace()

    def check_parameters(self) -> None:
        """Raise ValueError if a parameter is invalid. The fields must have no leading axes."""
        for field, given in vars(self).items():
            value = np.asarray(given, dtype=float)
            if not np.all(np.isfinite(value)):
                raise ValueError(f"{field} {value} is not finite")
            if field == "axis" and value.shape != (3,):
                raise ValueError(f"axis has shape {value.shape}, expected (3,)")
            if field in ("pitch", "turn", "advance") and value.shape != ():
                raise ValueError(f"{field} has shape {value.shape}, expected ()")
            if field == "axis" and not np.any(value):
                raise ValueError("axis is zero")


def _parameter(x: ArrayLike | Sequence[int | float]) -> Parameter:
    """The parameter as an array: a JAX array unchanged, otherwise a NumPy array in float64.

    Raises ArgumentError for an object that is no array of real numbers.
    """
    if isinstance(x, Array):
        return x
    values = real_values(x)
    if values is None:
        raise ArgumentError(f"a parameter of a joint is {x!r}, expected an array of floats")
    return values


class _PlainFunction(eqx.Module):
    """A plain function as a pytree without leaves."""

    function: Callable = eqx.field(static=True)

    def __call__(self, *operands):
        return self.function(*operands)


def as_module(f: Callable) -> Any:
    """The function as a pytree: a plain function has no leaves, an `eqx.Module` is unchanged."""
    return f if isinstance(f, eqx.Module) else _PlainFunction(f)


class _Euclidean(Joint):
    """Joints whose configurations form a vector space: v is the rate of q."""

    velocities_are_coordinate_rates: ClassVar[bool] = True
    reach: ClassVar[float] = 1.0  # the largest random coordinate without limits

    def neutral(self):
        return np.zeros(self.nq)

    def integrate(self, q, v):
        return q + v

    def difference(self, q0, q1):
        return q1 - q0

    def velocity_of_rate(self, q, rate):
        return rate

    def random(self, key, lower, upper):
        return _uniform(key, lower, upper, self.reach)


def lie_operation(
    joint: Joint,
    operation: Callable[[Array, Array], Array],
    u: Float[Array, "... nv"],
    w: Float[Array, "... nv"],
) -> Float[Array, "... nv"]:
    """The velocity x of a joint with `S^T x = operation(S^T u, S^T w)`.

    For `Custom` the equation does not apply: x is zero, because v is the rate of q.

    `operation`: a function of two motions, linear in the second motion. Each of its terms must
    contain a bracket (`cross_motion`). The bracket of two motions `S^T u` and `S^T w` of a joint is
    a motion `S^T x` of the joint, and zero for Euclidean joints. So x is zero for these joints, and
    `operation` is not called. For an operation that contains the term w itself, such as
    `w + u x w + ...`, pass the operation without this term, and add w to the result.
    """
    if isinstance(joint, _Euclidean):
        return jnp.zeros_like(w)
    if jax.tree.leaves(joint):
        S = joint.subspace()
        gram = einsum("...ik,...jk->...ij", S, S)
        inverse = jnp.vectorize(inverse_positive_definite, signature="(n,n)->(n,n)")(gram)
        pseudoinverse = einsum("...ij,...jk->...ki", inverse, S)
    else:  # a kind without parameters: its subspace is a constant of the compiled program
        constant = _constant_rows(type(joint))
        S, pseudoinverse = (jnp.asarray(x, w.dtype) for x in (constant, np.linalg.pinv(constant)))
    Su, Sw = (einsum("...j,...ji->...i", x, S) for x in (u, w))
    return einsum("...i,...ij->...j", operation(Su, Sw), pseudoinverse)


def subspace_rows(joint: Joint) -> np.ndarray:
    """The rows (tree_nv, 6) of `Joint.subspace` of one joint, in NumPy and double precision.

    For joints with one axis NumPy computes the rows, so the call compiles nothing.
    """
    if not isinstance(joint, _OneAxis):
        return (
            _constant_rows(type(joint)) if not vars(joint) else np.asarray(joint.subspace(), float)
        )
    axis = np.asarray(joint.axis, float)
    axis = axis / np.max(np.abs(axis))
    axis = axis / np.linalg.norm(axis)
    screw = as_screw(joint)
    return np.concatenate([float(screw.advance) * axis, float(screw.turn) * axis])[None]


def subspace_is_identity(joint: Joint) -> bool:
    """Whether the joint has no parameters and S is the 6x6 identity, as for a free-flyer.

    `Custom` has parameters, so the result is False, although its S is the identity too.
    """
    return not vars(joint) and np.array_equal(_constant_rows(type(joint)), np.eye(6))


@functools.cache
def _constant_rows(kind: type[Joint]) -> np.ndarray:
    with jax.ensure_compile_time_eval():
        return np.asarray(kind().subspace(), float)


def _uniform(key, lower, upper, reach):
    """Uniform between the limits; `reach` replaces infinite limits.

    An infinite lower limit becomes the smaller of `-reach` and `upper - reach`. An infinite upper
    limit becomes the larger of `reach` and `lower + reach`.
    """
    lower, upper, reach = same_rank(lower, upper, reach)
    low = jnp.where(jnp.isfinite(lower), lower, jnp.minimum(-reach, jnp.nan_to_num(upper) - reach))
    high = jnp.where(jnp.isfinite(upper), upper, jnp.maximum(reach, low + reach))
    return low + (high - low) * jax.random.uniform(key, low.shape, low.dtype)


def _unit(axis: Parameter) -> Vec3:
    a = Vec3.from_array(jnp.asarray(axis))
    return 1 / jnp.sqrt(a.dot(a)) * a


def _rotation_about(R0: Array, axis: Parameter, angle: Array) -> Array:
    """`R0 exp(angle axis) = R0 + sin(angle) R0 K + (1 - cos(angle)) R0 K^2`, with `K = [axis x]`.

    `R0 K` and `R0 K^2` depend only on the model, so they are computed once for a batch of angles.
    """
    a = _unit(axis)
    a = Vec3(*(c[..., None] for c in (a.x, a.y, a.z)))
    R1 = Vec3.from_array(R0).cross(a)  # r K = r x a for each row r
    R2 = R1.cross(a)
    s, c = jnp.sin(angle)[..., None, None], jnp.cos(angle)[..., None, None]
    return R0 + s * R1.array() + (1 - c) * R2.array()


class _OneAxis(_Euclidean):
    """Joints with an axis and one coordinate."""

    axis: Float[Parameter, "... 3"] = eqx.field(converter=_parameter)
    nq: ClassVar[int] = 1
    nv: ClassVar[int] = 1

    @abc.abstractmethod
    def rates(self) -> tuple[Parameter | float, Parameter | float]:
        """The angle in rad about the axis and the distance in m along it, per unit of q."""


class Revolute(_OneAxis):
    """One rotation about `axis` (..., 3), fixed in parent and child; q is the angle in rad.

    The methods normalize the axis. Source: Featherstone, table 4.1.
    """

    reach: ClassVar[float] = np.pi

    def rates(self):
        return 1.0, 0.0

    def pose(self, placement, q):
        return Pose(_rotation_about(placement.R, self.axis, q[..., 0]), placement.p)

    def subspace(self):
        a = _unit(self.axis)
        o = jnp.zeros_like(a.x)
        return stack(o, o, o, a.x, a.y, a.z)[..., None, :]


class Prismatic(_OneAxis):
    """One translation along `axis` (..., 3), fixed in parent and child; q is in metres.

    The methods normalize the axis. Source: Featherstone, table 4.1.
    """

    def rates(self):
        return 0.0, 1.0

    def pose(self, placement, q):
        direction = rotate(placement.R, _unit(self.axis).array())
        return Pose(placement.R, placement.p + q * direction)

    def subspace(self):
        a = _unit(self.axis)
        o = jnp.zeros_like(a.x)
        return stack(a.x, a.y, a.z, o, o, o)[..., None, :]


class Helical(_OneAxis):
    """A rotation about `axis` (..., 3) by the angle q in rad, and a translation `pitch q` along it.

    `pitch` (...) is in metres per radian.

    The methods normalize the axis. Source: Featherstone, table 4.1.
    """

    pitch: Float[Parameter, "..."] = eqx.field(converter=_parameter)
    reach: ClassVar[float] = np.pi

    def rates(self):
        return 1.0, self.pitch

    def pose(self, placement, q):
        advance = self.pitch[..., None] * rotate(placement.R, _unit(self.axis).array())
        R = _rotation_about(placement.R, self.axis, q[..., 0])
        return Pose(R, placement.p + q * advance)

    def subspace(self):
        a = _unit(self.axis)
        h = self.pitch
        return stack(h * a.x, h * a.y, h * a.z, a.x, a.y, a.z)[..., None, :]


class Screw(_OneAxis):
    """A rotation about and a translation along `axis` (..., 3), both in proportion to q.

    The angle is `turn` (...) times q in rad, and the translation is `advance` (...) times q in
    metres. Revolute joints have (turn, advance) = (1, 0), prismatic ones (0, 1) and helical ones
    (1, pitch). So one program can compute with all of them, as in `jaxrbd.padded`. The methods
    normalize the axis.
    """

    turn: Float[Parameter, "..."] = eqx.field(converter=_parameter)
    advance: Float[Parameter, "..."] = eqx.field(converter=_parameter)
    reach: ClassVar[float] = np.pi

    def rates(self):
        return self.turn, self.advance

    def pose(self, placement, q):
        direction = rotate(placement.R, _unit(self.axis).array())
        R = _rotation_about(placement.R, self.axis, jnp.asarray(self.turn) * q[..., 0])
        return Pose(R, placement.p + (self.advance[..., None] * q) * direction)

    def subspace(self):
        a = _unit(self.axis)
        h, w = self.advance, self.turn
        return stack(h * a.x, h * a.y, h * a.z, w * a.x, w * a.y, w * a.z)[..., None, :]

    def check_parameters(self):
        super().check_parameters()
        if not (self.turn or self.advance):
            raise ValueError("turn and advance are zero")


def has_one_axis(joint: Joint) -> bool:
    """Whether the joint is a revolute, prismatic, helical or screw joint."""
    return isinstance(joint, _OneAxis)


def as_screw(joint: Joint) -> Screw:
    """The joint with one axis as a `Screw`. Its fields may have leading axes."""
    if isinstance(joint, Screw):
        return joint
    assert isinstance(joint, _OneAxis)
    leading = np.zeros(np.shape(joint.axis)[:-1])
    return Screw(joint.axis, *(rate + leading for rate in joint.rates()))


class Translation(_Euclidean):
    """Three translations along the joint frame's axes: q is (x, y, z) in m, and v the rate of q."""

    nq: ClassVar[int] = 3
    nv: ClassVar[int] = 3

    def pose(self, placement, q):
        R = jnp.broadcast_to(placement.R, (*q.shape[:-1], 3, 3))
        return Pose(R, transform_point(placement, q))

    def subspace(self):
        return jnp.asarray(np.eye(6)[:3])


class Spherical(Joint):
    """A ball joint: q is a unit quaternion xyzw, v the angular velocity in the child's frame.

    Source: Featherstone, table 4.1.
    """

    nq: ClassVar[int] = 4
    nv: ClassVar[int] = 3
    quaternion: ClassVar[int | None] = 0
    angular: ClassVar[int | None] = 0

    def pose(self, placement, q):
        return compose(placement, Pose(so3.quaternion_to_matrix(q), jnp.zeros_like(q[..., :3])))

    def subspace(self):
        return jnp.asarray(np.eye(6)[3:])

    def neutral(self):
        return np.array([0.0, 0.0, 0.0, 1.0])

    def integrate(self, q, v):
        return so3.quaternion_multiply(so3.quaternion_normalize(q), so3.quaternion_exp(v))

    def difference(self, q0, q1):
        return _ball_difference(q0, q1)

    def velocity_of_rate(self, q, rate):
        return so3.quaternion_velocity(q, rate)

    def random(self, key, lower, upper):
        return so3.quaternion_normalize(jax.random.normal(key, lower.shape, lower.dtype))


class Planar(Joint):
    """Planar motion in the x-y plane of the joint frame: `q = [x y theta]`, in m and rad.

    `v = [vx vy w]` is in the child's frame. The configuration manifold is SE(2), and `integrate`
    uses the exponential of SE(2). The angle of `difference` is in [-pi, pi].
    """

    nq: ClassVar[int] = 3
    nv: ClassVar[int] = 3

    def pose(self, placement, q):
        x, y, angle = jnp.unstack(q, axis=-1)
        z_axis = jnp.array([0, 0, 1], q.dtype)
        p = transform_point(placement, stack(x, y, jnp.zeros_like(x)))
        return Pose(_rotation_about(placement.R, z_axis, angle), p)

    def subspace(self):
        return jnp.asarray(np.eye(6)[np.array([0, 1, 5])])

    def neutral(self):
        return np.zeros(3)

    def integrate(self, q, v):
        x, y, angle = jnp.unstack(q, axis=-1)
        vx, vy, w = jnp.unstack(v, axis=-1)
        a, b = _series.sinc(w * w), _series.cosc(w * w) * w
        dx, dy = a * vx - b * vy, b * vx + a * vy
        s, c = jnp.sin(angle), jnp.cos(angle)
        return stack(x + c * dx - s * dy, y + s * dx + c * dy, angle + w)

    def displace(self, q, dx):
        zero = jnp.zeros_like(q[..., 2])
        turn_back = stack(zero, zero, -q[..., 2])
        return q + self.transport(dx, turn_back)

    def transport(self, v, dx):
        vx, vy, w = jnp.unstack(v, axis=-1)
        s, c = jnp.sin(dx[..., 2]), jnp.cos(dx[..., 2])
        return stack(c * vx + s * vy, c * vy - s * vx, w)

    def turning_acceleration(self, v):
        vx, vy, w = jnp.unstack(v, axis=-1)
        return stack(-w * vy, w * vx, jnp.zeros_like(w))

    def difference(self, q0, q1):
        x, y, angle = jnp.unstack(q0, axis=-1)
        x1, y1, angle1 = jnp.unstack(q1, axis=-1)
        w = angle1 - angle
        w = w - 2 * np.pi * jnp.round(w / (2 * np.pi))
        s, c = jnp.sin(angle), jnp.cos(angle)
        dx, dy = c * (x1 - x) + s * (y1 - y), c * (y1 - y) - s * (x1 - x)
        a, b = 1 - _series.half_cot(w * w) * w * w, w / 2
        return stack(a * dx + b * dy, a * dy - b * dx, w)

    def velocity_of_rate(self, q, rate):
        return self.transport(rate, q)  # into the axes of the child, turned by the angle of q

    def random(self, key, lower, upper):
        reach = np.array([1, 1, np.pi])
        return _uniform(key, lower, upper, jnp.asarray(reach, lower.dtype))


class FreeFlyer(Joint):
    """Free motion: `q = [x y z qx qy qz qw]`, with a unit quaternion and the position in m.

    v is the spatial velocity [linear; angular] in the *child's* (body) frame.
    The configuration manifold is SE(3). `integrate` and `difference` use the exponential and the
    logarithm of SE(3).
    """

    nq: ClassVar[int] = 7
    nv: ClassVar[int] = 6
    actuated: ClassVar[bool] = False
    quaternion: ClassVar[int | None] = 3
    angular: ClassVar[int | None] = 3

    def pose(self, placement, q):
        return compose(placement, _free_pose(q))

    def subspace(self):
        return jnp.asarray(np.eye(6))

    def neutral(self):
        return np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])

    def integrate(self, q, v):
        rotation = so3.quaternion_normalize(q[..., 3:])
        p, step = se3.quaternion_exp(v)
        p = q[..., :3] + so3.quaternion_rotate(rotation, p)
        return jnp.concatenate([p, so3.quaternion_multiply(rotation, step)], axis=-1)

    def displace(self, q, dx):
        rotation = so3.quaternion_normalize(q[..., 3:])
        p = q[..., :3] + so3.quaternion_rotate(rotation, dx[..., :3])
        turned = so3.quaternion_multiply(rotation, so3.quaternion_exp(dx[..., 3:]))
        return jnp.concatenate([p, turned], axis=-1)

    def transport(self, v, dx):
        back = so3.quaternion_exp(-dx[..., 3:])
        return jnp.concatenate([so3.quaternion_rotate(back, v[..., :3]), v[..., 3:]], axis=-1)

    def turning_acceleration(self, v):
        linear, w = halves(v)
        return from_linear(w.cross(linear).array())

    def difference(self, q0, q1):
        return _free_difference(q0, q1)

    def velocity_of_rate(self, q, rate):
        linear = inverse_rotate(so3.quaternion_to_matrix(q[..., 3:]), rate[..., :3])
        angular = so3.quaternion_velocity(q[..., 3:], rate[..., 3:])
        return jnp.concatenate([linear, angular], axis=-1)

    def random(self, key, lower, upper):
        position_key, rotation_key = jax.random.split(key)
        p = _uniform(position_key, lower[..., :3], upper[..., :3], 1.0)
        quaternion = jax.random.normal(rotation_key, lower[..., 3:].shape, lower.dtype)
        return jnp.concatenate([p, so3.quaternion_normalize(quaternion)], axis=-1)


class Custom(_Euclidean):
    """A joint that the user defines by the child's pose as a function of `nv` coordinates.

    - `nv`: the number of coordinates and of velocities; v is the rate of q;
    - `motion(q)`: `Pose` of the child in the placement of the joint, for q (nv,);
    - `tangent_map(q)`: the matrix (6, nv) with `V = tangent_map(q) @ dq/dt`, where V (6,) is the
      child's spatial velocity relative to the placement, in the child's frame. Without
      `tangent_map`, forward-mode differentiation of `motion` gives the matrix.

    `motion` and `tangent_map` are pure functions of jax.numpy, or `eqx.Module`s with a `__call__`;
    the arrays of a module become floats and leaves of the model, so indices belong in static
    fields. The map from v to the child's velocity may depend on q. In the tree the child is a body
    with six degrees of freedom. All algorithms and derivatives compute the tree rates of the child
    by the tangent map. Source: Featherstone, section 3.5.
    """

    tree_rates_are_joint_rates: ClassVar[bool] = False

    nv: int = eqx.field(static=True)  # pyright: ignore[reportIncompatibleVariableOverride]
    motion: Callable[[Array], Pose] = eqx.field(converter=as_module)
    tangent_map: Callable[[Array], Array] | None = eqx.field(
        converter=lambda f: f if f is None else as_module(f), default=None
    )

    @property
    def nq(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.nv

    @property
    def tree_nv(self):
        return 6

    def pose(self, placement, q):
        return compose(placement, _each(lambda f, q: f(q), q.ndim - 1)(self.motion, q))

    def subspace(self):
        return jnp.eye(6)

    def neutral(self):
        return np.zeros(self.nv)

    def tree_rates(self, q, v):
        return jnp.sum(self.velocity_subspace(q) * v[..., None], axis=-2)

    def joint_force(self, q, f):
        return einsum("nij,nj...->ni...", self.velocity_subspace(q), f)

    def velocity_subspace(self, q):
        if self.tangent_map is not None:
            columns = _each(lambda f, q: f(q), q.ndim - 1)(self.tangent_map, q)
        else:
            columns = _each(_tangent_map_of, q.ndim - 1)(self.motion, q)
        return jnp.swapaxes(columns, -1, -2)

    def check_parameters(self):
        """Raise ValueError if `motion` or `tangent_map` gives an invalid result.

        Both functions are tested at two configurations. `motion` must give a pose, and
        `tangent_map` must give the derivative of `motion`.
        """
        if isinstance(self.nv, bool) or not isinstance(self.nv, int | np.integer) or self.nv < 0:
            raise ValueError(f"nv is {self.nv!r}, expected an int of 0 or more")
        single = jnp.result_type(float) == jnp.float32
        rest = jnp.asarray(self.neutral())
        for q in (rest, jnp.asarray(generic_coordinates(self.nv), rest.dtype)):
            pose = evaluate(self.motion, q, "motion")
            shapes = tuple(np.shape(getattr(pose, part, ())) for part in "Rp")
            if shapes != ((3, 3), (3,)):
                raise ValueError(f"motion gives {pose!r}, expected a Pose of (3, 3) and (3,)")
            R, p = (np.asarray(part, float) for part in pose)
            if not (np.all(np.isfinite(R)) and np.all(np.isfinite(p))):
                raise ValueError("motion gives a pose that is not finite")
            if not is_rotation(R):
                raise ValueError("motion gives no rigid pose (R, p) with R a rotation")
            if self.tangent_map is None:
                continue
            derived = Custom(self.nv, self.motion)
            expected = np.asarray(derived.velocity_subspace(q)).T
            tangent = np.asarray(evaluate(self.tangent_map, q, "tangent_map"))
            if tangent.shape != expected.shape:
                raise ValueError(f"tangent_map gives {tangent.shape}, expected {expected.shape}")
            if not np.allclose(tangent, expected, rtol=0, atol=1e-3 if single else 1e-8):
                raise ValueError(
                    f"tangent_map is not the derivative of motion at q = {q}: "
                    f"{tangent.tolist()}, expected {expected.tolist()}"
                )


def generic_coordinates(nv: int) -> Float[np.ndarray, " nv"]:
    """Coordinates with irregular values, at which `Custom.check_parameters` tests the functions."""
    return 0.3 * np.cos(np.arange(1.0, nv + 1))


def is_rotation(R: np.ndarray) -> bool:
    """Whether R (3, 3) is a rotation matrix.

    An entry of `R R^T` may differ from the identity by 1e-6, on the diagonal by 1.1e-5. This test
    is for descriptions of robots, which are in float64. Poses of pytrees may be in float32, so
    `jaxrbd.model.parameters.are_rotations` has the tolerance 1e-4.
    """
    return np.allclose(R @ R.T, np.eye(3), atol=1e-6) and bool(np.linalg.det(R) > 0)


def evaluate(function: Callable, coordinates: Array, name: str) -> Any:
    """The function's value at the coordinates. Raises ValueError if the function fails there."""
    shape = coordinates.shape
    try:
        function(np.asarray(coordinates))  # NumPy raises on an index out of range, JAX does not
    except IndexError as fault:
        raise ValueError(f"{name} fails on coordinates of shape {shape}: {fault}") from None
    except Exception:  # the function need not accept NumPy arrays
        pass
    try:
        return function(coordinates)
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as fault:
        raise ValueError(f"{name} fails on coordinates of shape {shape}: {fault}") from None


def _tangent_map_of(motion: Callable[[Array], Pose], q: Array) -> Array:
    """The tangent map (6, n) of the function `motion` at q (n,): `[R^T dp; vee(R^T dR)]`."""
    R = motion(q).R
    dR, dp = jax.jacfwd(lambda q: tuple(motion(q)))(q)
    skew = einsum("ki,kjn->ijn", R, dR)
    linear = einsum("ki,kn->in", R, dp)
    return jnp.concatenate([linear, jnp.stack([skew[2, 1], skew[0, 2], skew[1, 0]])])


def _each(function: Callable, depth: int) -> Callable:
    """`function` mapped over `depth` leading axes."""
    for _ in range(depth):
        function = jax.vmap(function)
    return function


# ----------------------------------------------------------- configurations of ball and free joints
#
# The velocity from q0 to q1 is d = log(q0^-1 q1). Let w0, w1 be the body velocities of q0 and q1,
# `d x` the cross product of velocities, and J the right Jacobian of exp. Then the rate of d is
# `J(d)^-1 (w1 - w0) + d x w0`. The matrices of this linear map do not depend on the rates of q0 and
# q1. So JAX computes them once for all columns of a Jacobian.


def _with_derivatives(difference: Callable, group: Any):
    """The function difference(q0, q1) of a group, with derivatives in closed form.

    `group`: `so3` or `se3`.
    """
    difference = custom_jvp(difference)

    def derivative(primals, tangents):
        (q0, q1), (q0_dot, q1_dot) = primals, tangents
        d = difference(q0, q1)
        J_inverse = group.right_jacobian_inverse(d)
        rate = jnp.zeros_like(d)
        if not isinstance(q0_dot, SymbolicZero):
            by_q0 = matmul(group.cross_matrix(d) - J_inverse, _velocity_matrix(q0))
            rate = rate + _product(by_q0, q0_dot)
        if not isinstance(q1_dot, SymbolicZero):
            rate = rate + _product(matmul(J_inverse, _velocity_matrix(q1)), q1_dot)
        return d, rate

    difference.defjvp(derivative, symbolic_zeros=True)
    return difference


def _product(matrix: Array, vector: Array) -> Array:
    return matmul(matrix, vector[..., None])[..., 0]


# The angular velocity of a rotation with a unit quaternion q is `sum_i q_i M_i dq/dt`, where M_i is
# `_RATE_MATRICES[i]`.
_RATE_MATRICES = 2.0 * np.array(
    [
        [[0, 0, 0, -1], [0, 0, 1, 0], [0, -1, 0, 0]],
        [[0, 0, -1, 0], [0, 0, 0, -1], [1, 0, 0, 0]],
        [[0, 1, 0, 0], [-1, 0, 0, 0], [0, 0, 0, -1]],
        [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]],
    ]
)


def _velocity_matrix(q: Array) -> Array:
    """The matrix (..., nv, nq) from the rate of q to the body velocity, of a ball or free joint."""
    unit = so3.quaternion_normalize(q[..., -4:])
    length = jnp.sum(unit * q[..., -4:], axis=-1)[..., None, None]
    # A zero quaternion is read as the identity, and its rates have no effect.
    length = jnp.where(length > 0, length, jnp.inf)
    angular = einsum("...k,kij->...ij", unit, jnp.asarray(_RATE_MATRICES, q.dtype)) / length
    if q.shape[-1] == 4:
        return angular
    linear = jnp.swapaxes(so3.unit_quaternion_to_matrix(unit), -1, -2)
    batch = [(0, 0)] * (q.ndim - 1)
    linear = jnp.pad(linear, [*batch, (0, 3), (0, 4)])
    return linear + jnp.pad(angular, [*batch, (3, 0), (3, 0)])


def _free_pose(q: Array) -> Pose:
    return Pose(so3.quaternion_to_matrix(q[..., 3:]), q[..., :3])


def _rotation_difference(q0: Array, q1: Array) -> Array:
    q0, q1 = so3.quaternion_normalize(q0), so3.quaternion_normalize(q1)
    return so3.unit_quaternion_log(so3.quaternion_multiply(so3.quaternion_conjugate(q0), q1))


def _pose_difference(q0: Array, q1: Array) -> Array:
    w = _rotation_difference(q0[..., 3:], q1[..., 3:])
    p = inverse_transform_point(_free_pose(q0), q1[..., :3])
    return jnp.concatenate([rotate(so3.left_jacobian_inverse(w), p), w], axis=-1)


_ball_difference = _with_derivatives(_rotation_difference, so3)
_free_difference = _with_derivatives(_pose_difference, se3)
