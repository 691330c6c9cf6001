"""Labelled quantities: arrays with the names of their frames as static metadata.

The labels are part of the structure of the pytree. A mismatch raises FrameError while JAX traces,
and the compiled program is the same as without labels. The arrays follow `jaxrbd.spatial`: order
[linear; angular], inertias (10,), SI units. A quantity has no batch axis; use `jax.vmap` for a
batch. The constructor and the operations of a quantity check its shape and dtype.

Source: the spatial vector algebra of RigidBodyDynamics.jl, whose order is angular-first.
"""

from __future__ import annotations

import abc
import dataclasses
import secrets
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from .. import spatial
from .._math.linear import matmul
from ..errors import ArgumentError, FrameError
from ..model import arguments
from ..model.parameters import as_array, is_symmetric, real_array
from ..spatial import Pose


class Frame(str):
    """The name of a Cartesian frame. Frames with equal names are the same frame.

    A plain string "hand" may be used instead of `Frame("hand")`. `Frame()` is an anonymous frame:
    its name is random, so it differs from every other frame. Raises ArgumentError if the name is
    not a string or is empty.
    """

    __slots__ = ()

    def __new__(cls, name: Any = None) -> Frame:
        return label(f"anonymous-{secrets.token_hex(8)}" if name is None else name)


def label(name: Any) -> Frame:
    """The `Frame` of a name. Raises ArgumentError if the name is not a string or is empty."""
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"frame is {name!r}, expected a jaxrbd.frames.Frame or its name")
    return str.__new__(Frame, name)


def require(fits: bool, operation: str, expected: str, *quantities: Any) -> None:
    """Raise FrameError unless `fits`. The message names the operation and the quantities."""
    if not fits:
        found = " and ".join(x.described for x in quantities)
        raise FrameError(f"{operation}: {found}: expected {expected}")


def require_one_frame(operation: str, x: Any, y: Any) -> None:
    """Raise FrameError unless both quantities are expressed in the same frame."""
    require(x.frame == y.frame, operation, "both in one frame", x, y)


def check(frame: Quantity | str, *allowed: Quantity | str) -> None:
    """Raise FrameError, which names all frames, unless `frame` is one of the `allowed` frames.

    Each argument is a frame or a labelled quantity. A quantity stands for the frame in which it is
    expressed. The check runs in Python while JAX traces, so the compiled program does not contain
    it. Raises ArgumentError if an argument is neither a frame nor a quantity, or if `allowed` is
    empty.
    Source: the macro @framecheck of RigidBodyDynamics.jl.
    """
    if not allowed:
        raise ArgumentError("check: the allowed frames are missing, expected at least one")
    if _frame(frame) not in [_frame(x) for x in allowed]:
        found, *expected = (_described(x) for x in (frame, *allowed))
        raise FrameError(f"check: {found}: expected {' or '.join(expected)}")


def _frame(x: Quantity | str) -> Frame:
    return x.frame if isinstance(x, Quantity) else label(x)


def _described(x: Quantity | str) -> str:
    return x.described if isinstance(x, Quantity) else f'"{x}"'


def require_types(operation: str, *pairs: tuple[Any, type]) -> None:
    """Raise ArgumentError unless each argument has its type."""
    for x, kind in pairs:
        if not isinstance(x, kind):
            found = type(x).__name__
            raise ArgumentError(f"{operation}: found a {found}, expected a {kind.__name__}")


def _converter(noun: str, sizes: str) -> Callable[[Any], Array]:
    """A function that converts its argument to a floating-point array and checks the shape.

    `sizes`: the shape as text, such as "6 nv", where nv matches any size. `noun`: the name of the
    argument in messages.
    """
    wanted = sizes.split()

    def convert(x: Any) -> Array:
        array = as_array(x, noun)
        fits = (size in (str(n), "nv") for n, size in zip(array.shape, wanted))
        if array.ndim != len(wanted) or not all(fits):
            hint = "; batch with jax.vmap" if array.ndim > len(wanted) else ""
            raise ArgumentError(
                f"{noun} has shape {array.shape}, expected ({', '.join(wanted)}){hint}"
            )
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise ArgumentError(f"{noun} has dtype {array.dtype}, expected floats")
        return array

    return convert


def _pose(X: Any) -> Pose:
    """The `Pose` X with its arrays converted. Raises ArgumentError for batch axes."""
    require_types("Transform", (X, Pose))
    return Pose(
        _converter("R of a transform", "3 3")(X.R), _converter("p of a transform", "3")(X.p)
    )


def _is_scalar(x: Any) -> bool:
    return isinstance(x, ArrayLike) and jnp.ndim(x) == 0


def _require_alike(operation: str, x: Quantity, y: Quantity) -> None:
    """Raise FrameError unless the frames are equal, ArgumentError unless the shapes are equal."""
    require_one_frame(operation, x, y)
    if x.array.shape != y.array.shape:
        shapes = f"{x.array.shape} and {y.array.shape}"
        raise ArgumentError(f"{operation}: {x.described}: shapes {shapes}, expected equal shapes")


# --------------------------------------------------------------------------------- base classes


class Quantity(eqx.Module):
    """An array and the frame in which it is expressed."""

    array: eqx.AbstractVar[Array]
    frame: Frame = eqx.field(static=True, converter=label, kw_only=True)
    _noun: ClassVar[str]
    __array_ufunc__: ClassVar[None] = None  # NumPy leaves the product with a quantity to this class

    @property
    def described(self) -> str:
        """The type and the frames in words, for error messages."""
        return f'{self._noun} expressed in "{self.frame}"'

    @abc.abstractmethod
    def _moved(self, X: Pose) -> Array:
        """The array in a new frame. X is the pose of the current frame in the new frame."""


class _Linear(Quantity):
    """Quantities that can be multiplied by a scalar and added by Python's `sum`."""

    def __radd__(self, other):
        """Return x for `0 + x`, because Python's `sum` starts with 0."""
        return self if type(other) is int and other == 0 else NotImplemented

    def __mul__(self, s):
        return dataclasses.replace(self, array=s * self.array) if _is_scalar(s) else NotImplemented

    def __rmul__(self, s):
        return self * s

    def __truediv__(self, s):
        return dataclasses.replace(self, array=self.array / s) if _is_scalar(s) else NotImplemented


class _Additive(_Linear):
    """Quantities of one type that can be added if they are expressed in the same frame."""

    def __add__(self, other):
        if type(other) is not type(self):
            return NotImplemented
        _require_alike("addition", self, other)
        return dataclasses.replace(self, array=self.array + other.array)

    def __sub__(self, other):
        if type(other) is not type(self):
            return NotImplemented
        _require_alike("subtraction", self, other)
        return dataclasses.replace(self, array=self.array - other.array)

    def __neg__(self):
        return dataclasses.replace(self, array=-self.array)


class _Relative(_Linear):
    """Quantities of the motion of `body` relative to `base`.

    They add along a chain of bodies: two quantities that are expressed in the same frame can be
    added if the base of one quantity is the body of the other quantity.
    """

    body: Frame = eqx.field(static=True, converter=label, kw_only=True)
    base: Frame = eqx.field(static=True, converter=label, kw_only=True)

    @property
    def described(self) -> str:
        motion = f'{self._noun} of "{self.body}" relative to "{self.base}"'
        return f'{motion} expressed in "{self.frame}"'

    def __add__(self, other):
        if type(other) is not type(self):
            return NotImplemented
        _require_alike("addition", self, other)
        low, high = (self, other) if self.body == other.base else (other, self)
        expected = "the base of one to be the body of the other"
        require(low.body == high.base, "addition", expected, self, other)
        array = self.array + other.array
        return dataclasses.replace(self, array=array, body=high.body, base=low.base)

    def __sub__(self, other):
        if type(other) is not type(self):
            return NotImplemented
        _require_alike("subtraction", self, other)
        from_base, to_body = self.base == other.base, self.body == other.body
        require(from_base or to_body, "subtraction", "the same base or the same body", self, other)
        body, base = (self.body, other.body) if from_base else (other.base, self.base)
        return dataclasses.replace(self, array=self.array - other.array, body=body, base=base)

    def __neg__(self):
        return dataclasses.replace(self, array=-self.array, body=self.base, base=self.body)


class _Spatial(Quantity):
    """Spatial vectors. The properties give the linear and the angular part as free vectors."""

    @property
    def linear(self) -> FreeVector:
        return FreeVector(self.array[:3], frame=self.frame)

    @property
    def angular(self) -> FreeVector:
        return FreeVector(self.array[3:], frame=self.frame)


# ------------------------------------------------------------------------------------- the types


class Transform(eqx.Module):
    """The pose of frame `from_` in frame `to`.

    It maps coordinates in `from_` to coordinates in `to`. `pose`: the `jaxrbd.Pose` `X_AB` with
    A = `to` and B = `from_`. `t @ s` composes transforms (first s, then t), and `t @ x` is
    `transform(x, t)`.
    """

    pose: Pose = eqx.field(converter=_pose)
    from_: Frame = eqx.field(static=True, converter=label, kw_only=True)
    to: Frame = eqx.field(static=True, converter=label, kw_only=True)

    @property
    def described(self) -> str:
        """The type and the frames in words, for error messages."""
        return f'transform from "{self.from_}" to "{self.to}"'

    def inverse(self) -> Transform:
        """The transform from `to` to `from_`."""
        return Transform(spatial.inverse(self.pose), from_=self.to, to=self.from_)

    def __matmul__(self, other):
        if isinstance(other, Quantity):
            return transform(other, self)
        if not isinstance(other, Transform):
            return NotImplemented
        expected = f'the second transform to lead to "{self.from_}"'
        require(self.from_ == other.to, "composition", expected, self, other)
        return Transform(spatial.compose(self.pose, other.pose), from_=other.from_, to=self.to)


class Point(Quantity):
    """Coordinates (3,) of a point in m; a transform rotates and translates them."""

    array: Float[Array, "3"] = eqx.field(converter=_converter("point", "3"))
    _noun: ClassVar[str] = "point"

    def __add__(self, other):
        if not isinstance(other, FreeVector):
            return NotImplemented
        require_one_frame("addition", self, other)
        return Point(self.array + other.array, frame=self.frame)

    __radd__ = __add__

    def __sub__(self, other):
        if isinstance(other, FreeVector):
            require_one_frame("subtraction", self, other)
            return Point(self.array - other.array, frame=self.frame)
        if not isinstance(other, Point):
            return NotImplemented
        require_one_frame("subtraction", self, other)
        return FreeVector(self.array - other.array, frame=self.frame)

    def _moved(self, X):
        return spatial.transform_point(X, self.array)


class FreeVector(_Additive):
    """Coordinates (3,) of a displacement, a point velocity or a force; a transform rotates them."""

    array: Float[Array, "3"] = eqx.field(converter=_converter("free vector", "3"))
    _noun: ClassVar[str] = "free vector"

    def _moved(self, X):
        return spatial.rotate(X.R, self.array)


class SpatialInertia(_Additive):
    """A spatial inertia (10,) about the origin of its frame: see `jaxrbd.spatial`.

    Inertias of several bodies, or of the parts of a body, can be added if they are expressed in the
    same frame. `inertia @ twist` is the momentum; the base of the twist must be inertial.
    """

    array: Float[Array, "10"] = eqx.field(converter=_converter("spatial inertia", "10"))
    _noun: ClassVar[str] = "spatial inertia"

    @classmethod
    def from_mass(
        cls, mass: ArrayLike, center_of_mass: Point, moment: ArrayLike, *, frame: str
    ) -> SpatialInertia:
        """The spatial inertia of a body from its mass, centre of mass and rotational inertia.

        - `mass` () in kg, 0 or more;
        - `center_of_mass`: a point expressed in `frame`;
        - `moment` (3, 3), symmetric, in kg m^2: the rotational inertia about the centre of mass, in
          the axes of `frame`.

        Raises FrameError if the point is expressed in another frame, and ArgumentError for a known
        mass that is negative or not finite, and a known moment that is not symmetric.
        """
        require_types("from_mass", (center_of_mass, Point))
        expected = f'a point expressed in "{label(frame)}"'
        require(center_of_mass.frame == frame, "from_mass", expected, center_of_mass)
        com = center_of_mass.array
        arguments.FINITE_NOT_NEGATIVE.check_known("mass", mass)
        mass = _converter("mass", "")(real_array(mass, "mass", com.dtype))
        moment = _converter("moment", "3 3")(real_array(moment, "moment", com.dtype))
        arguments.require(moment, is_symmetric, "moment", "a symmetric matrix")
        return cls(spatial.inertia_from_com(mass, com, moment), frame=frame)

    def __matmul__(self, twist):
        if not isinstance(twist, Twist):
            return NotImplemented
        require_one_frame("product", self, twist)
        return Momentum(spatial.apply_inertia(self.array, twist.array), frame=self.frame)

    def _moved(self, X):
        return spatial.transform_inertia(X, self.array)


class Twist(_Relative, _Spatial):
    """The velocity `[v; w]` (6,) of `body` relative to `base`, expressed in `frame`.

    w is the angular velocity of the body. v is the velocity, relative to the base, of the
    body-fixed point that coincides with the origin of `frame`. If `frame` is not the body frame, v
    is in general not the velocity of the origin of the body frame. Twists in the same frame add
    along a chain: the base of one twist is the body of the other twist. `-twist` is the twist of
    the base relative to the body.
    """

    array: Float[Array, "6"] = eqx.field(converter=_converter("twist", "6"))
    _noun: ClassVar[str] = "twist"

    def _moved(self, X):
        return spatial.transform_motion(X, self.array)


class SpatialAcceleration(_Relative, _Spatial):
    """The time derivative (6,) of the coordinates of a twist in `frame`, which may be moving.

    If `frame` is fixed to the body or to the base, the derivative is the spatial acceleration of
    the literature, expressed in `frame`. Accelerations add along a chain as twists do. A change of
    frame adds a term that twists do not have: see `transform`.
    """

    array: Float[Array, "6"] = eqx.field(converter=_converter("spatial acceleration", "6"))
    _noun: ClassVar[str] = "spatial acceleration"

    def _moved(self, X):
        return spatial.transform_motion(X, self.array)


class Momentum(_Additive, _Spatial):
    """The momentum `[l; k]` (6,) of one or more bodies, with k about the origin of the frame."""

    array: Float[Array, "6"] = eqx.field(converter=_converter("momentum", "6"))
    _noun: ClassVar[str] = "momentum"

    def _moved(self, X):
        return spatial.transform_force(X, self.array)


class Wrench(_Additive, _Spatial):
    """A wrench `[f; n]` (6,) in N and N m, with the moment n about the origin of the frame."""

    array: Float[Array, "6"] = eqx.field(converter=_converter("wrench", "6"))
    _noun: ClassVar[str] = "wrench"

    @classmethod
    def from_force(cls, force: FreeVector, point: Point) -> Wrench:
        """The wrench `[f; r x f]` of a force f that acts at a point r."""
        require_types("from_force", (force, FreeVector), (point, Point))
        require_one_frame("from_force", force, point)
        moment = jnp.cross(point.array, force.array)
        return cls(jnp.concatenate([force.array, moment]), frame=force.frame)

    def _moved(self, X):
        return spatial.transform_force(X, self.array)


class GeometricJacobian(_Relative):
    """The matrix (6, nv) that maps joint velocities v to a twist: `jacobian @ v`.

    Geometric Jacobians add and change frames as twists do.
    """

    array: Float[Array, "6 nv"] = eqx.field(converter=_converter("geometric Jacobian", "6 nv"))
    _noun: ClassVar[str] = "geometric Jacobian"

    def __matmul__(self, v: ArrayLike) -> Twist:
        labels = {"body": self.body, "base": self.base, "frame": self.frame}
        return Twist(_times_velocity(self, v), **labels)

    def _moved(self, X):
        return spatial.transform_motion(X, self.array.T).T


class MomentumMatrix(_Additive):
    """The matrix (6, nv) that maps joint velocities v to a momentum: `matrix @ v`."""

    array: Float[Array, "6 nv"] = eqx.field(converter=_converter("momentum matrix", "6 nv"))
    _noun: ClassVar[str] = "momentum matrix"

    def __matmul__(self, v: ArrayLike) -> Momentum:
        return Momentum(_times_velocity(self, v), frame=self.frame)

    def _moved(self, X):
        return spatial.transform_force(X, self.array.T).T


def _times_velocity(matrix: GeometricJacobian | MomentumMatrix, v: ArrayLike) -> Array:
    v, nv = as_array(v, "v"), matrix.array.shape[1]
    if v.shape != (nv,):
        raise ArgumentError(f"{matrix.described}: v has shape {v.shape}, expected ({nv},)")
    return matmul(matrix.array, v)


# ---------------------------------------------------------------------------------- change of frame

_Q = TypeVar("_Q", bound=Quantity)


def transform(
    x: _Q,
    t: Transform,
    twist_of_current_wrt_new: Twist | None = None,
    twist_of_body_wrt_base: Twist | None = None,
) -> _Q:
    """x expressed in `t.to`, for any labelled quantity x expressed in `t.from_`.

    Only a spatial acceleration needs the two twists, both expressed in `t.from_`:

    - `twist_of_current_wrt_new`: the twist of `t.from_` relative to `t.to`;
    - `twist_of_body_wrt_base`: the twist T of the body of x relative to the base of x.

    A twist T changes from the current frame C to the new frame N by `T_N = X_NC T_C`. Let W be the
    twist of C relative to N, expressed in C. Then the time derivative of this equation is
    `A_N = X_NC (A_C + W x T_C)`.

    Raises FrameError if the frames do not fit. Raises ArgumentError if x is not a labelled
    quantity, if a twist is missing for a spatial acceleration, or if a twist is given for a
    quantity of another type.
    """
    require_types("transform", (x, Quantity), (t, Transform))
    require(x.frame == t.from_, "transform", f'a transform from "{x.frame}"', x, t)
    if isinstance(x, SpatialAcceleration):
        x = _with_frame_motion(x, t, twist_of_current_wrt_new, twist_of_body_wrt_base)
    elif twist_of_current_wrt_new is not None or twist_of_body_wrt_base is not None:
        raise ArgumentError(f"transform: {x.described} takes no twists")
    return dataclasses.replace(x, array=x._moved(t.pose), frame=t.to)


def _with_frame_motion(A: SpatialAcceleration, t: Transform, current: Any, twist: Any):
    """A plus the term for the motion of the current frame in the new frame; see `transform`."""
    if current is None or twist is None:
        needed = "twist_of_current_wrt_new and twist_of_body_wrt_base"
        raise ArgumentError(f"transform: {A.described} needs {needed}")
    require_types("transform", (current, Twist), (twist, Twist))
    require_one_frame("transform", A, current)
    fits = (current.body, current.base) == (t.from_, t.to)
    expected = f'the first twist to be of "{t.from_}" relative to "{t.to}"'
    require(fits, "transform", expected, t, current)
    require_same_motion("transform", A, twist)
    rate = spatial.cross_motion(current.array, twist.array)
    return dataclasses.replace(A, array=A.array + rate)


def require_same_motion(operation: str, A: SpatialAcceleration, twist: Twist) -> None:
    """Raise FrameError unless A and the twist have the same body, base and frame."""
    fits = (A.body, A.base, A.frame) == (twist.body, twist.base, twist.frame)
    require(fits, operation, "one body, one base and one frame", A, twist)
