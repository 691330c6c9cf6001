"""Rotations: exponential, logarithm, their Jacobians, and unit quaternions xyzw.

A rotation vector `w` (..., 3) is a rotation about the axis w by the angle |w| in radians.
Quaternions (..., 4) are `[x y z w]`. `quaternion_to_matrix` and `quaternion_log` give the same
result for a quaternion of any length, and read the zero quaternion as the identity.
`quaternion_rotate`, `unit_quaternion_to_matrix` and `unit_quaternion_log` require a unit
quaternion. `quaternion_multiply` and `quaternion_conjugate` do not normalize. q and -q are the same
rotation. Every function broadcasts over leading axes. Its derivatives of any order are finite, also
at the identity, except for the inverse Jacobians at the angle 2 pi. The formulas below use the
angle t = |w| and `A = sin(t) / t`, `B = (1 - cos t) / t^2`, `C = (t - sin t) / t^3`,
`D = (1 - (t/2) cot(t/2)) / t^2`.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ._math import series as _series
from ._math.components import Mat3, Vec3, require_entries, require_floats, stack
from ._math.linear import power_of_two
from ._math.ranks import identity_like, times
from ._math.rules import custom_jvp

# asin(s) / s as a series in s^2: (2k)! / (4^k (k!)^2 (2k + 1)).
_ASIN_SWITCH = 1 / 16
_ASIN_SERIES = [1.0]
for _k in range(1, 14):
    _ASIN_SERIES.append(_ASIN_SERIES[-1] * (2 * _k - 1) ** 2 / (2 * _k * (2 * _k + 1)))


def exp(w: Float[Array, "... 3"]) -> Float[Array, "... 3 3"]:
    """Rotation matrix of a rotation vector: `1 + A [w x] + B [w x]^2` (Rodrigues)."""
    require_floats(w, "w", 3)
    x = jnp.sum(w * w, axis=-1)
    _, A, B = jnp.unstack(_series.stumpff(x, 3), axis=-1)
    return _polynomial(w, A, B)


@custom_jvp
def log(R: Float[Array, "... 3 3"]) -> Float[Array, "... 3"]:
    """Rotation vector of a rotation matrix, with angle in [0, pi]; inverse of `exp` below pi.

    At the angle pi, w and -w are the same rotation, and the function returns one of them. The
    derivative is `right_jacobian_inverse(w)` times the body angular velocity of R.
    """
    return quaternion_log(quaternion_from_matrix(R))


@log.defjvp
def _(primals, tangents):
    (R,), (rate,) = primals, tangents
    w = log(R)
    return w, _log_rate(w, _body_velocity(R, rate))


def _body_velocity(
    R: Float[Array, "... 3 3"], rate: Float[Array, "... 3 3"]
) -> Float[Array, "... 3"]:
    """The body angular velocity (..., 3) of a rotation, from the rate of its matrix."""
    x, y, z = Mat3.from_array(R).T.rows
    rate_x, rate_y, rate_z = Mat3.from_array(rate).T.rows
    # R^T R' is skew: each entry is half the difference of two entries of opposite sign.
    return (
        stack(
            z.dot(rate_y) - y.dot(rate_z),
            x.dot(rate_z) - z.dot(rate_x),
            y.dot(rate_x) - x.dot(rate_y),
        )
        / 2
    )


def left_jacobian(w: Float[Array, "... 3"]) -> Float[Array, "... 3 3"]:
    """J with `exp(w + dw) = exp(J dw) exp(w)` to first order: `1 + B [w x] + C [w x]^2`.

    Source: Sola, Deray and Atchuthan (2018), equation 145.
    """
    require_floats(w, "w", 3)
    x = jnp.sum(w * w, axis=-1)
    _, _, B, C = jnp.unstack(_series.stumpff(x, 4), axis=-1)
    return _polynomial(w, B, C)


def left_jacobian_product(
    w: Float[Array, "... 3"], v: Float[Array, "... 3"]
) -> Float[Array, "... 3"]:
    """The vector `left_jacobian(w) v`, (..., 3), without the matrix."""
    require_floats(w, "w", 3)
    _, _, B, C = jnp.unstack(_series.stumpff(jnp.sum(w * w, axis=-1), 4), axis=-1)
    return double_cross(w, v, B, C)


def double_cross(w: Float[Array, "... 3"], v: Float[Array, "... 3"], a, b):
    """`v + a (w x v) + b (w x (w x v))` (..., 3), for factors a and b (...)."""
    axis, vector = Vec3.from_array(w), Vec3.from_array(v)
    cross = axis.cross(vector)
    return (vector + a * cross + b * axis.cross(cross)).array()


def right_jacobian(w: Float[Array, "... 3"]) -> Float[Array, "... 3 3"]:
    """J with `exp(w + dw) = exp(w) exp(J dw)` to first order: `left_jacobian(w)^T`."""
    return left_jacobian(-w)


def left_jacobian_inverse(w: Float[Array, "... 3"]) -> Float[Array, "... 3 3"]:
    """Inverse of `left_jacobian`, `1 - [w x]/2 + D [w x]^2`; infinite at angle 2 pi.

    Source: Sola, Deray and Atchuthan (2018), equation 146.
    """
    require_floats(w, "w", 3)
    x = jnp.sum(w * w, axis=-1)
    return _polynomial(w, jnp.full_like(x, -0.5), _series.half_cot(x))


def right_jacobian_inverse(w: Float[Array, "... 3"]) -> Float[Array, "... 3 3"]:
    """Inverse of `right_jacobian`; infinite at angle 2 pi."""
    return left_jacobian_inverse(-w)


def _polynomial(w: Array, a: Array, b: Array) -> Array:
    """`1 + a [w x] + b [w x]^2`."""
    K, KK, _ = _skew_and_square(w)
    return identity_like(K) + a[..., None, None] * K + b[..., None, None] * KK


def _skew_and_square(w: Array) -> tuple[Array, Array, Array]:
    """The matrix `[w x]` (..., 3, 3) of a cross product, its square, and |w|^2 (..., 1, 1)."""
    # A sum of matrices is one kernel. For nine separate entries XLA would compile nine kernels.
    matrices = _ONE_AND_CROSSES.reshape(4, *[1] * (w.ndim - 1), 3, 3)
    one, Kx, Ky, Kz = jnp.asarray(matrices, w.dtype)
    x, y, z = jnp.split(w[..., None], 3, axis=-2)
    length2 = x * x + y * y + z * z
    square = w[..., None] * w[..., None, :] - length2 * one
    return x * Kx + y * Ky + z * Kz, square, length2


# ---------------------------------------------------------------------------------- quaternions


def quaternion_identity(dtype=None) -> Float[Array, "4"]:
    """The quaternion `[0 0 0 1]` of the identity."""
    return jnp.array([0, 0, 0, 1], dtype=dtype or jnp.result_type(float))


def quaternion_normalize(q: Float[Array, "... 4"]) -> Float[Array, "... 4"]:
    """The unit quaternion `q / |q|`; where q is zero, the identity with zero derivatives."""
    scale, zero = _scale(q)
    q = jnp.where(zero, quaternion_identity(q.dtype), q / scale)
    return q / jnp.sqrt(jnp.sum(q * q, axis=-1, keepdims=True))


def _scale(q: Array) -> tuple[Array, Array]:
    """A power of two (..., 1) by which q (..., 4) is divided, and whether q is zero (..., 1).

    The absolute value of the largest entry of the quotient is from 2 to 4, so the sum of squares
    neither overflows nor underflows. The division has no rounding error. JAX treats the divisor as
    a constant in derivatives. So the derivatives are right to any order if the caller's result does
    not depend on the divisor. The divisor is 1 if q is zero.
    """
    require_floats(q, "q", 4)
    x, y, z, w = jnp.split(jnp.abs(q), 4, axis=-1)
    largest = jnp.maximum(jnp.maximum(x, y), jnp.maximum(z, w))
    scale = power_of_two(largest)
    zero = scale == 0
    return jnp.where(zero, 1, scale), zero


def quaternion_velocity(
    q: Float[Array, "... 4"], rate: Float[Array, "... 4"]
) -> Float[Array, "... 3"]:
    """The angular velocity (..., 3) of a rotation q with the rate dq/dt, in the rotated frame.

    q may have any length, and the rate of the length has no effect. Where q is zero, the result is
    zero.
    """
    scale, zero = _scale(q)
    q, rate = q / scale, jnp.where(zero, 0, rate / scale)
    length2 = jnp.where(zero, 1, jnp.sum(q * q, axis=-1, keepdims=True))
    return 2 * quaternion_multiply(quaternion_conjugate(q), rate)[..., :3] / length2


def quaternion_multiply(q: Float[Array, "... 4"], r: Float[Array, "... 4"]):
    """Hamilton product `q r` (..., 4), not normalized: the rotation r followed by q."""
    require_entries(q, 4)
    require_entries(r, 4)
    x, y, z, w = jnp.unstack(q, axis=-1)
    rx, ry, rz, rw = jnp.unstack(r, axis=-1)
    u, s = Vec3(x, y, z), Vec3(rx, ry, rz)
    vector = w * s + rw * u + u.cross(s)
    return stack(vector.x, vector.y, vector.z, w * rw - u.dot(s))


def quaternion_rotate(q: Float[Array, "... 4"], x: Float[Array, "... 3"]) -> Float[Array, "... 3"]:
    """The vector x (..., 3), rotated by a unit quaternion."""
    require_entries(q, 4)
    return double_cross(q[..., :3], x, 2 * q[..., 3], 2)


def quaternion_conjugate(q: Float[Array, "... 4"]) -> Float[Array, "... 4"]:
    """`[-x -y -z w]`: the inverse of a unit quaternion."""
    require_entries(q, 4)
    return times(q, jnp.array([-1, -1, -1, 1], q.dtype))


def quaternion_to_matrix(q: Float[Array, "... 4"]) -> Float[Array, "... 3 3"]:
    """Rotation matrix of a quaternion of any length; the identity where the quaternion is zero."""
    scale, zero = _scale(q)
    q = q / scale
    w, zero = q[..., 3:, None], zero[..., None]
    K, KK, length2 = _skew_and_square(q[..., :3])
    s = jnp.where(zero, 0, 2 / jnp.where(zero, 1, length2 + w * w))
    return identity_like(K) + s * (KK + w * K)


def unit_quaternion_to_matrix(q: Float[Array, "... 4"]) -> Float[Array, "... 3 3"]:
    """Rotation matrix of a unit quaternion."""
    require_floats(q, "q", 4)
    K, KK, _ = _skew_and_square(q[..., :3])
    return identity_like(K) + 2 * (KK + q[..., 3:, None] * K)


def cross_matrix(w: Float[Array, "... 3"]) -> Float[Array, "... 3 3"]:
    """The matrix `[w x]` of the cross product with w."""
    require_entries(w, 3)
    return _skew_and_square(w)[0]


# The identity matrix, and the matrices of the cross products with the three axes.
_ONE_AND_CROSSES = np.array([np.eye(3), *(np.cross(np.eye(3), axis) for axis in np.eye(3))])


def quaternion_from_matrix(R: Float[Array, "... 3 3"]) -> Float[Array, "... 4"]:
    """One of the two unit quaternions of a rotation matrix.

    The matrix `4 q q^T` is an affine function of R. The row of this matrix with the largest
    diagonal entry, normalized, is q or -q.
    """
    require_floats(R, "R", 3, 3)
    a, b, c = Mat3.from_array(R).rows
    outer = jnp.stack(
        [
            stack(1 + a.x - b.y - c.z, a.y + b.x, a.z + c.x, c.y - b.z),
            stack(a.y + b.x, 1 - a.x + b.y - c.z, b.z + c.y, a.z - c.x),
            stack(a.z + c.x, b.z + c.y, 1 - a.x - b.y + c.z, b.x - a.y),
            stack(c.y - b.z, a.z - c.x, b.x - a.y, 1 + a.x + b.y + c.z),
        ],
        axis=-2,
    )
    largest = jnp.argmax(jnp.diagonal(outer, axis1=-2, axis2=-1), axis=-1)
    row = jnp.take_along_axis(outer, largest[..., None, None], axis=-2)[..., 0, :]
    return quaternion_normalize(row)


def quaternion_exp(w: Float[Array, "... 3"]) -> Float[Array, "... 4"]:
    """Unit quaternion of a rotation vector: `[sin(t/2) w/t, cos(t/2)]`, t = |w|."""
    require_floats(w, "w", 3)
    x = jnp.sum(w * w, axis=-1, keepdims=True) / 4
    cosine, sinc = jnp.split(_series.stumpff(x[..., 0], 2), 2, axis=-1)
    return jnp.concatenate([sinc / 2 * w, cosine], axis=-1)


def quaternion_log(q: Float[Array, "... 4"]) -> Float[Array, "... 3"]:
    """Rotation vector of a quaternion [u w], angle in [0, pi]: `2 atan2(|u|, w) u/|u|`, w >= 0."""
    return unit_quaternion_log(quaternion_normalize(q))


@custom_jvp
def unit_quaternion_log(q: Float[Array, "... 4"]) -> Float[Array, "... 3"]:
    """`quaternion_log` of a unit quaternion (..., 4).

    The derivative is `right_jacobian_inverse(w)` times the body angular velocity of the rotation.
    Source: Sola, Deray and Atchuthan (2018), equation 144.
    """
    require_floats(q, "q", 4)
    q = jnp.where(q[..., 3:] < 0, -q, q)
    u, w = q[..., :3], q[..., 3]
    s2 = jnp.sum(u * u, axis=-1)
    small = s2 < _ASIN_SWITCH
    series = jnp.polyval(
        jnp.array(_ASIN_SERIES[::-1], q.dtype), jnp.where(small, s2, 0), unroll=len(_ASIN_SERIES)
    )
    s = jnp.sqrt(jnp.where(small, 1, s2))
    ratio = jnp.where(small, series, jnp.arctan2(s, jnp.where(small, 1, w)) / s)
    return 2 * ratio[..., None] * u


@unit_quaternion_log.defjvp
def _(primals, tangents):
    (q,), (rate,) = primals, tangents
    w = unit_quaternion_log(q)
    velocity = 2 * quaternion_multiply(quaternion_conjugate(q), rate)[..., :3]
    return w, _log_rate(w, velocity)


def _log_rate(w: Float[Array, "... 3"], velocity: Float[Array, "... 3"]) -> Float[Array, "... 3"]:
    """The rate (..., 3) of a rotation vector w for an angular velocity in the body's axes."""
    D = _series.half_cot(jnp.sum(w * w, axis=-1))
    return double_cross(w, velocity, jnp.full_like(D, 0.5), D)


def rotation_from_rpy(rpy: Float[Array, "... 3"]) -> Float[Array, "... 3 3"]:
    """Rotation matrix of roll, pitch and yaw in rad about fixed axes: `Rz(yaw) Ry(pitch) Rx(roll)`.

    Source: the URDF specification, element origin.
    """
    require_floats(rpy, "rpy", 3)
    (sr, sp, sy), (cr, cp, cy) = (
        jnp.unstack(jnp.sin(rpy), axis=-1),
        jnp.unstack(jnp.cos(rpy), axis=-1),
    )
    return Mat3(
        Vec3(cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr),
        Vec3(sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr),
        Vec3(-sp, cp * sr, cp * cr),
    ).array()
