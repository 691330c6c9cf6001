"""Three-vectors and 3x3 matrices as tuples of component arrays.

The functions of rigid-body algebra use these types only for intermediate values; no data structure
contains them. An operator splits its operands once, computes elementwise with the components, and
joins the result once. XLA fuses the elementwise operations. The operators split with `jnp.unstack`,
because the transpose of `jnp.unstack` (in reverse mode) is one concatenation. If each component
were a separate slice, reverse mode would have one padding for each component.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Sequence
from typing import overload

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..errors import ArgumentError
from .ranks import minus, plus, times


def require_entries(a: Array, *sizes: int) -> None:
    """Raise ArgumentError unless a is an array whose last axes, one or two, have these sizes."""
    shape = getattr(a, "shape", None)
    if shape is None or shape[-len(sizes) :] != sizes:
        kind = "vector" if len(sizes) == 1 else "matrix"
        found = f"is {a!r}, expected an array" if shape is None else f"has shape {shape}, expected"
        expected = ", ".join(map(str, sizes))
        raise ArgumentError(f"a {kind} {found} (..., {expected})")


def require_floats(x: Array, name: str, *shape: int) -> None:
    """Raise ArgumentError, which names the array, unless it is (..., *shape) with a floating dtype.

    It is for formulas with fractions, which would be rounded to integers in an integer dtype.
    """
    found, dtype = np.shape(x), getattr(x, "dtype", None)
    if found[-len(shape) :] != shape or dtype is None or not jnp.issubdtype(dtype, jnp.floating):
        expected = ", ".join(map(str, shape))
        raise ArgumentError(
            f"{name} has shape {found} and dtype {dtype}, expected an array (..., {expected}) of "
            f"floats"
        )


class Vec3:
    """Components x, y, z: arrays whose shapes broadcast to one common shape."""

    __slots__ = ("x", "y", "z")

    def __init__(self, x, y, z):
        self.x, self.y, self.z = x, y, z

    @classmethod
    def from_array(cls, a: Array) -> Vec3:
        """The components of an array (..., 3). Raises ArgumentError for another shape."""
        require_entries(a, 3)
        return cls(*jnp.unstack(a, axis=-1))

    def array(self) -> Array:
        """The array (..., 3)."""
        return join(self)

    @property
    def components(self) -> tuple:
        """The components x, y, z."""
        return self.x, self.y, self.z

    def __add__(self, b: Vec3) -> Vec3:
        return Vec3(plus(self.x, b.x), plus(self.y, b.y), plus(self.z, b.z))

    def __sub__(self, b: Vec3) -> Vec3:
        return Vec3(minus(self.x, b.x), minus(self.y, b.y), minus(self.z, b.z))

    def __neg__(self) -> Vec3:
        return Vec3(-self.x, -self.y, -self.z)

    def __rmul__(self, s) -> Vec3:
        return Vec3(times(s, self.x), times(s, self.y), times(s, self.z))

    def cross(self, b: Vec3) -> Vec3:
        return Vec3(
            minus(times(self.y, b.z), times(self.z, b.y)),
            minus(times(self.z, b.x), times(self.x, b.z)),
            minus(times(self.x, b.y), times(self.y, b.x)),
        )

    def dot(self, b: Vec3):
        return plus(plus(times(self.x, b.x), times(self.y, b.y)), times(self.z, b.z))


class Mat3:
    """A 3x3 matrix, stored as three rows."""

    __slots__ = ("rows",)

    def __init__(self, r0: Vec3, r1: Vec3, r2: Vec3):
        self.rows = (r0, r1, r2)

    @classmethod
    def from_array(cls, a: Array) -> Mat3:
        """The components of an array (..., 3, 3). Raises ArgumentError for another shape."""
        require_entries(a, 3, 3)
        c = jnp.unstack(a.reshape(*a.shape[:-2], 9), axis=-1)
        return cls(Vec3(*c[0:3]), Vec3(*c[3:6]), Vec3(*c[6:9]))

    @classmethod
    def symmetric(cls, xx, xy, yy, xz, yz, zz) -> Mat3:
        return cls(Vec3(xx, xy, xz), Vec3(xy, yy, yz), Vec3(xz, yz, zz))

    @classmethod
    def skew(cls, a: Vec3) -> Mat3:
        """The matrix of the cross product `a x`."""
        o = jnp.zeros_like(a.x)
        return cls(Vec3(o, -a.z, a.y), Vec3(a.z, o, -a.x), Vec3(-a.y, a.x, o))

    def array(self) -> Array:
        """The array (..., 3, 3)."""
        flat = join(*self.rows)
        return flat.reshape(*flat.shape[:-1], 3, 3)

    def upper(self) -> tuple:
        """Components xx, xy, yy, xz, yz, zz of a symmetric matrix."""
        a, b, c = self.rows
        return a.x, a.y, b.y, a.z, b.z, c.z

    @property
    def T(self) -> Mat3:
        a, b, c = self.rows
        return Mat3(Vec3(a.x, b.x, c.x), Vec3(a.y, b.y, c.y), Vec3(a.z, b.z, c.z))

    def __add__(self, b: Mat3) -> Mat3:
        return Mat3(*(r + s for r, s in zip(self.rows, b.rows)))

    def __sub__(self, b: Mat3) -> Mat3:
        return Mat3(*(r - s for r, s in zip(self.rows, b.rows)))

    @overload
    def __matmul__(self, b: Vec3) -> Vec3: ...

    @overload
    def __matmul__(self, b: Mat3) -> Mat3: ...

    def __matmul__(self, b: Vec3 | Mat3) -> Vec3 | Mat3:
        """Matrix times vector, or matrix times matrix."""
        if isinstance(b, Vec3):
            return Vec3(*(r.dot(b) for r in self.rows))
        r0, r1, r2 = b.rows
        return Mat3(*(r.x * r0 + r.y * r1 + r.z * r2 for r in self.rows))


def cross(a: Array, b: Array) -> Array:
    """The cross product `a x b` (..., 3) of three-vectors."""
    return Vec3.from_array(a).cross(Vec3.from_array(b)).array()


def norm(x: Array) -> Array:
    """The Euclidean norms (...) of vectors (..., n)."""
    return jnp.sqrt(jnp.sum(x * x, axis=-1))


def square_root(x: Array) -> Array:
    """The square root of x, 0 or more, with the derivative 0 at 0."""
    zero = x == 0
    return jnp.where(zero, 0, jnp.sqrt(jnp.where(zero, 1, x)))


def safe_norm(x: Array) -> Array:
    """`norm`, with the derivative 0 at 0."""
    return square_root(jnp.sum(x * x, axis=-1))


def linear_combination(c: Vec3, vectors: Sequence[Array]) -> Array:
    """The array `c.x a + c.y b + c.z d` (..., 3) of three vectors (..., 3).

    For the columns of a matrix, the result is the product of the matrix with c. For the rows of a
    matrix, the result is the product of the transpose with c. In this form XLA computes the three
    components of the result in one loop.
    """
    a, b, d = vectors
    x, y, z = (_with_last_axis(component) for component in c.components)
    return plus(plus(times(x, a), times(y, b)), times(z, d))


def columns(A: Array) -> Sequence[Array]:
    """The columns (..., 3) of a matrix (..., 3, 3)."""
    return jnp.unstack(A, axis=-1)


def rows(A: Array) -> Sequence[Array]:
    """The rows (..., n) of a matrix (..., 3, n)."""
    return jnp.unstack(A, axis=-2)


def small_product(A: Array, B: Array) -> Array:
    """`A @ B` of small matrices (..., l, m) and (..., m, n), as a sum of m outer products."""
    pairs = zip(jnp.split(A, A.shape[-1], axis=-1), jnp.split(B, B.shape[-2], axis=-2))
    return functools.reduce(operator.add, itertools.starmap(times, pairs))


def second_moments(I: Mat3) -> Mat3:
    """The second moments of mass `(tr(I)/2) E - I` of a rotational inertia I; E is the identity."""
    xx, xy, yy, xz, yz, zz = I.upper()
    return Mat3.symmetric((yy + zz - xx) / 2, -xy, (xx + zz - yy) / 2, -xz, -yz, (xx + yy - zz) / 2)


def join(*vectors: Vec3) -> Array:
    """The components of all vectors, concatenated on a new last axis."""
    return stack(*(c for v in vectors for c in (v.x, v.y, v.z)))


def stack(*components) -> Array:
    """Components, broadcast to a common shape, on a new last axis."""
    # jnp.stack is not used. On a mesh with axes of type Explicit, its batching rule in JAX 0.10
    # fails if only some components have a batch axis.
    columns = [_with_last_axis(c) for c in jnp.broadcast_arrays(*components)]
    return jnp.concatenate(columns, axis=-1)


def _with_last_axis(x: Array) -> Array:
    """The array `x[..., None]`."""
    return lax.expand_dims(x, [x.ndim])


def halves(a: Array) -> tuple[Vec3, Vec3]:
    """The linear part and the angular part of an array (..., 6).

    Raises ArgumentError for another shape.
    """
    require_entries(a, 6)
    c = jnp.unstack(a, axis=-1)
    return Vec3(*c[:3]), Vec3(*c[3:])
