"""The joint contract, and one class a kind.

A joint kind knows its pose, its motion subspace and its configuration manifold, and nothing of
trees. An instance holds the parameters of one joint, or of n joints of that kind with its fields
stacked along a leading axis; every method broadcasts, so both work. No algorithm asks for a kind:
a new joint is one class here and, if files can name it, one line in their reader.

The contract has one rule: in the child's frame the motion subspace S is *constant*. Then the
joint's bias acceleration is zero and every derivative is simple. A joint without that property
is built as a chain of joints that have it, see `jaxrbd.model.Compound`, or from two functions,
see `Custom`: a body with all six freedoms, whose velocity follows the joint's coordinates.
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
from jax.typing import ArrayLike
from jaxtyping import Float, PRNGKeyArray

from . import se3, so3
from ._math import series as _series
from ._math.components import Vec3, stack
from ._math.linear import einsum, inverse_positive_definite
from .spatial import Pose, compose, inverse_transform_point, rotate, transform_point

Parameter = Array | np.ndarray


class Joint(eqx.Module):
    """A joint of `nq` configuration coordinates and `nv` degrees of freedom.

    Methods take coordinates `q` (..., nq) and velocities `v` (..., nv); the leading axes are those
    of the stacked fields. SI units, radians.
    """

    nq: ClassVar[int]
    nv: ClassVar[int]
    # The first coordinate of the joint's unit quaternion, where it has one.
    quaternion: ClassVar[int | None] = None

    @abc.abstractmethod
    def pose(self, placement: Pose, q: Float[Array, "... nq"]) -> Pose:
        """Pose of the child in the parent: the joint's fixed `placement`, then its motion.

        The two come together so that a kind may fold the constant into its own formula.
        """

    @abc.abstractmethod
    def subspace(self) -> Float[Array, "... nv 6"]:
        """Rows of S: the child's velocity relative to the parent is S^T v, in the child's frame."""

    @abc.abstractmethod
    def neutral(self) -> Float[np.ndarray, " nq"]:
        """The configuration in which the child's frame lies on the placement."""

    @abc.abstractmethod
    def integrate(
        self, q: Float[Array, "... nq"], v: Float[Array, "... nv"]
    ) -> Float[Array, "... nq"]:
        """Configuration reached from q in unit time with the constant velocity v."""

    @abc.abstractmethod
    def difference(
        self, q0: Float[Array, "... nq"], q1: Float[Array, "... nq"]
    ) -> Float[Array, "... nv"]:
        """Constant velocity that leads from q0 to q1 in unit time."""

    @abc.abstractmethod
    def random(
        self, key: PRNGKeyArray, lower: Float[Array, "... nq"], upper: Float[Array, "... nq"]
    ) -> Float[Array, "... nq"]:
        """Random configuration, uniform; free of limits where these are infinite."""


def _parameter(x: ArrayLike | Sequence[int | float]) -> Parameter:
    """A parameter given as numbers is kept in float64 until the builder casts the whole model."""
    return x if isinstance(x, Array) else np.asarray(x, dtype=float)


class _Constant(eqx.Module):
    """A plain function as a pytree without leaves."""

    function: Callable = eqx.field(static=True)

    def __call__(self, *operands):
        return self.function(*operands)


def as_module(f: Callable) -> Any:
    """A function as a pytree: an `eqx.Module` as it is, a plain function as one without leaves."""
    return f if isinstance(f, eqx.Module) else _Constant(f)


class _Euclidean(Joint):
    """Joints whose configurations are a vector space: velocities are rates of coordinates."""

    def neutral(self):
        return np.zeros(self.nq)

    def integrate(self, q, v):
        return q + v

    def difference(self, q0, q1):
        return q1 - q0


def lie_operation(
    joint: Joint,
    operation: Callable[[Array, Array], Array],
    u: Float[Array, "... nv"],
    w: Float[Array, "... nv"],
) -> Float[Array, "... nv"]:
    """An operation of motions, such as the bracket `cross_motion`, on velocities of a joint.

    `S x = operation(S u, S w)`, linear in its second operand. As S is constant, its motions are
    closed under whatever is made of brackets. It is 0 where velocities are rates of coordinates,
    since brackets are: state `Ad - 1`, and not `Ad`.
    """
    if isinstance(joint, _Euclidean):
        return jnp.zeros_like(w)
    if jax.tree.leaves(joint):
        S = joint.subspace()
        gram = einsum("...ik,...jk->...ij", S, S)
        inverse = jnp.vectorize(inverse_positive_definite, signature="(n,n)->(n,n)")(gram)
        inverse = einsum("...ij,...jk->...ki", inverse, S)
    else:  # a kind without parameters: its subspace is a constant of the program
        constant = _constant_rows(type(joint))
        S, inverse = (jnp.asarray(x, w.dtype) for x in (constant, np.linalg.pinv(constant)))
    Su, Sw = (einsum("...j,...ji->...i", x, S) for x in (u, w))
    return einsum("...i,...ij->...j", operation(Su, Sw), inverse)


def subspace_rows(joint: Joint) -> np.ndarray:
    """The rows (nv, 6) of S of one joint, in NumPy and double precision.

    Nothing is compiled for the joints that robot files can state: see `Joint.subspace`.
    """
    if not isinstance(joint, (Revolute, Prismatic, Helical)):
        return (
            _constant_rows(type(joint)) if not vars(joint) else np.asarray(joint.subspace(), float)
        )
    axis = np.asarray(joint.axis, float)
    axis = axis / np.max(np.abs(axis))
    axis = axis / np.linalg.norm(axis)
    turn = 0.0 if isinstance(joint, Prismatic) else 1.0
    advance = float(joint.pitch) if isinstance(joint, Helical) else 1 - turn
    return np.concatenate([advance * axis, turn * axis])[None]


@functools.cache
def _constant_rows(kind: type[Joint]) -> np.ndarray:
    with jax.ensure_compile_time_eval():
        return np.asarray(kind().subspace(), float)


def _uniform(key, lower, upper, reach):
    """Uniform between the limits; an infinite one is put `reach` away from 0 or from the other."""
    low = jnp.where(jnp.isfinite(lower), lower, jnp.minimum(-reach, jnp.nan_to_num(upper) - reach))
    high = jnp.where(jnp.isfinite(upper), upper, jnp.maximum(reach, low + reach))
    return low + (high - low) * jax.random.uniform(key, low.shape, low.dtype)


def _unit(axis: Parameter) -> Vec3:
    a = Vec3.from_array(jnp.asarray(axis))
    return 1 / jnp.sqrt(a.dot(a)) * a


def _rotation_about(R0: Array, axis: Parameter, angle: Array) -> Array:
    """`R0 exp(angle axis) = R0 + sin R0 K + (1 - cos) R0 K^2`, elementwise in the angle.

    `R0 K` and `R0 K^2` depend on the model alone: in a batch they are computed once.
    """
    a = _unit(axis)
    a = Vec3(*(c[..., None] for c in (a.x, a.y, a.z)))
    R1 = Vec3.from_array(R0).cross(a)  # r K = r x a for each row r
    R2 = R1.cross(a)
    s, c = jnp.sin(angle)[..., None, None], jnp.cos(angle)[..., None, None]
    return R0 + s * R1.array() + (1 - c) * R2.array()


class Revolute(_Euclidean):
    """One rotation about `axis` (..., 3), fixed in parent and child; q is the angle in rad.

    The axis is normalised where it is read. Source: Featherstone, table 4.1.
    """

    axis: Float[Parameter, "... 3"] = eqx.field(converter=_parameter)
    nq: ClassVar[int] = 1
    nv: ClassVar[int] = 1

    def pose(self, placement, q):
        return Pose(_rotation_about(placement.R, self.axis, q[..., 0]), placement.p)

    def subspace(self):
        a = _unit(self.axis)
        o = jnp.zeros_like(a.x)
        return stack(o, o, o, a.x, a.y, a.z)[..., None, :]

    def random(self, key, lower, upper):
        return _uniform(key, lower, upper, np.pi)


class Prismatic(_Euclidean):
    """One translation along `axis` (..., 3), fixed in parent and child; q is in metres.

    The axis is normalised where it is read. Source: Featherstone, table 4.1.
    """

    axis: Float[Parameter, "... 3"] = eqx.field(converter=_parameter)
    nq: ClassVar[int] = 1
    nv: ClassVar[int] = 1

    def pose(self, placement, q):
        along = rotate(placement.R, _unit(self.axis).array())
        return Pose(placement.R, placement.p + q * along)

    def subspace(self):
        a = _unit(self.axis)
        o = jnp.zeros_like(a.x)
        return stack(a.x, a.y, a.z, o, o, o)[..., None, :]

    def random(self, key, lower, upper):
        return _uniform(key, lower, upper, 1.0)


class Helical(_Euclidean):
    """A screw about `axis` (..., 3) with `pitch` (...) in metres per radian; q is the angle.

    The axis is normalised where it is read. Source: Featherstone, table 4.1.
    """

    axis: Float[Parameter, "... 3"] = eqx.field(converter=_parameter)
    pitch: Float[Parameter, "..."] = eqx.field(converter=_parameter)
    nq: ClassVar[int] = 1
    nv: ClassVar[int] = 1

    def pose(self, placement, q):
        advance = self.pitch[..., None] * rotate(placement.R, _unit(self.axis).array())
        R = _rotation_about(placement.R, self.axis, q[..., 0])
        return Pose(R, placement.p + q * advance)

    def subspace(self):
        a = _unit(self.axis)
        h = self.pitch
        return stack(h * a.x, h * a.y, h * a.z, a.x, a.y, a.z)[..., None, :]

    def random(self, key, lower, upper):
        return _uniform(key, lower, upper, np.pi)


class Translation(_Euclidean):
    """Three translations along the joint frame's axes; q and v are (x, y, z) in metres."""

    nq: ClassVar[int] = 3
    nv: ClassVar[int] = 3

    def pose(self, placement, q):
        R = jnp.broadcast_to(placement.R, (*q.shape[:-1], 3, 3))
        return Pose(R, transform_point(placement, q))

    def subspace(self):
        return jnp.asarray(np.eye(6)[:3])

    def random(self, key, lower, upper):
        return _uniform(key, lower, upper, 1.0)


class Spherical(Joint):
    """A ball joint: q is a unit quaternion xyzw, v the angular velocity in the child's frame.

    Source: Featherstone, table 4.1.
    """

    nq: ClassVar[int] = 4
    nv: ClassVar[int] = 3
    quaternion: ClassVar[int | None] = 0

    def pose(self, placement, q):
        return compose(placement, Pose(so3.quaternion_to_matrix(q), jnp.zeros_like(q[..., :3])))

    def subspace(self):
        return jnp.asarray(np.eye(6)[3:])

    def neutral(self):
        return np.array([0.0, 0.0, 0.0, 1.0])

    def integrate(self, q, v):
        return _integrate_quaternion(q, v)

    def difference(self, q0, q1):
        return _quaternion_difference(q0, q1)

    def random(self, key, lower, upper):
        return so3.quaternion_normalize(jax.random.normal(key, lower.shape, lower.dtype))


class Planar(Joint):
    """Motion in the x-y plane of the joint frame: `q = [x y theta]`, v in the moving frame.

    The plane's positions are SE(2): `integrate` follows its exponential, and `difference` turns by
    the shorter way, its angle in [-pi, pi].
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

    def difference(self, q0, q1):
        x, y, angle = jnp.unstack(q0, axis=-1)
        x1, y1, angle1 = jnp.unstack(q1, axis=-1)
        w = angle1 - angle
        w = w - 2 * np.pi * jnp.round(w / (2 * np.pi))
        s, c = jnp.sin(angle), jnp.cos(angle)
        dx, dy = c * (x1 - x) + s * (y1 - y), c * (y1 - y) - s * (x1 - x)
        a, b = 1 - _series.half_cot(w * w) * w * w, w / 2
        return stack(a * dx + b * dy, a * dy - b * dx, w)

    def random(self, key, lower, upper):
        reach = np.array([1, 1, np.pi])
        return _uniform(key, lower, upper, jnp.asarray(reach, lower.dtype))


class FreeFlyer(Joint):
    """No constraint: `q = [x y z qx qy qz qw]`, `v = [v; w]` in the *child's* (body) frame.

    The configurations are SE(3): `integrate` and `difference` are its exponential and logarithm.
    """

    nq: ClassVar[int] = 7
    nv: ClassVar[int] = 6
    quaternion: ClassVar[int | None] = 3

    def pose(self, placement, q):
        return compose(placement, self._motion(q))

    def subspace(self):
        return jnp.asarray(np.eye(6))

    def neutral(self):
        return np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])

    def integrate(self, q, v):
        step = se3.exp(v)
        p = compose(self._motion(q), step).p
        return jnp.concatenate([p, _integrate_quaternion(q[..., 3:], v[..., 3:])], axis=-1)

    def difference(self, q0, q1):
        w = _quaternion_difference(q0[..., 3:], q1[..., 3:])
        p = inverse_transform_point(self._motion(q0), q1[..., :3])
        return jnp.concatenate([rotate(so3.left_jacobian_inverse(w), p), w], axis=-1)

    def random(self, key, lower, upper):
        at, turn = jax.random.split(key)
        p = _uniform(at, lower[..., :3], upper[..., :3], 1.0)
        turn = jax.random.normal(turn, lower[..., 3:].shape, lower.dtype)
        return jnp.concatenate([p, so3.quaternion_normalize(turn)], axis=-1)

    @staticmethod
    def _motion(q) -> Pose:
        return Pose(so3.quaternion_to_matrix(q[..., 3:]), q[..., :3])


class Custom(_Euclidean):
    """A joint of your own: the child's pose as a function of `nv` coordinates.

    - `nv`: the number of coordinates, and of velocities, which are their rates;
    - `motion(q)`: `Pose` of the child in the joint's fixed side, for q (nv,);
    - `tangent_map(q)`: its derivative (6, nv), the child's velocity `[v; w]` in its own frame being
      `tangent_map(q) @ dq/dt`. None derives it from `motion` by forward-mode differentiation.

    Each is a pure function of jax.numpy, or an `eqx.Module` with a `__call__`, whose arrays are
    then leaves of the model. The subspace of such a joint may depend on q: it is a free body whose
    six velocities follow the coordinates through the tangent map, in every algorithm and
    derivative. Source: Featherstone, section 3.5.
    """

    nv: int = eqx.field(static=True)  # pyright: ignore[reportIncompatibleVariableOverride]
    motion: Callable[[Array], Pose] = eqx.field(converter=as_module)
    tangent_map: Callable[[Array], Array] | None = eqx.field(
        converter=lambda f: f if f is None else as_module(f), default=None
    )

    @property
    def nq(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.nv

    def pose(self, placement, q):
        return compose(placement, _each(lambda f, q: f(q), q.ndim - 1)(self.motion, q))

    def subspace(self):
        return jnp.eye(6)

    def neutral(self):
        return np.zeros(self.nv)

    def tangent(self, q: Float[Array, "... nv"]) -> Float[Array, "... nv 6"]:
        """The child's velocity for a unit rate of each coordinate, in its own frame."""
        if self.tangent_map is not None:
            columns = _each(lambda f, q: f(q), q.ndim - 1)(self.tangent_map, q)
        else:
            columns = _each(_body_velocity, q.ndim - 1)(self.motion, q)
        return jnp.swapaxes(columns, -1, -2)

    def random(self, key, lower, upper):
        return _uniform(key, lower, upper, 1.0)


def _body_velocity(motion: Callable[[Array], Pose], q: Array) -> Array:
    """The tangent map (6, n) of a pose: `[R^T dp; vee(R^T dR)]`."""
    R = motion(q).R
    dR, dp = jax.jacfwd(lambda q: tuple(motion(q)))(q)
    turn = einsum("ki,kjn->ijn", R, dR)
    linear = einsum("ki,kn->in", R, dp)
    return jnp.concatenate([linear, jnp.stack([turn[2, 1], turn[0, 2], turn[1, 0]])])


def _each(function: Callable, depth: int) -> Callable:
    """`function` mapped over so many leading axes."""
    for _ in range(depth):
        function = jax.vmap(function)
    return function


def _integrate_quaternion(q, w):
    turned = so3.quaternion_multiply(so3.quaternion_normalize(q), so3.quaternion_exp(w))
    return so3.quaternion_normalize(turned)


def _quaternion_difference(q0, q1):
    q0, q1 = so3.quaternion_normalize(q0), so3.quaternion_normalize(q1)
    return so3.quaternion_log(so3.quaternion_multiply(so3.quaternion_conjugate(q0), q1))
