"""Poses: exponential, logarithm and their Jacobians on SE(3).

Exponential coordinates are a motion vector `xi = [v; w]` (..., 6), linear part first. `exp(xi)` is
the pose that a body reaches in unit time with the constant body velocity xi, from the identity.
Every function broadcasts over leading axes. Its derivatives of any order are finite, also at the
identity, except for the inverse Jacobians at the angle 2 pi.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from . import so3
from ._math import series as _series
from ._math.components import require_entries, require_floats
from ._math.linear import einsum, matmul
from ._math.ranks import identity_like
from .spatial import Pose, checked_pose, rotate


def exp(xi: Float[Array, "... 6"]) -> Pose:
    """The pose after unit time with the constant body velocity xi: `R = exp(w)`, `p = J_l(w) v`.

    Source: Sola, Deray and Atchuthan (2018), equation 172.
    """
    require_floats(xi, "xi", 6)
    w = xi[..., 3:]
    return Pose(so3.exp(w), so3.left_jacobian_product(w, xi[..., :3]))


def quaternion_exp(
    xi: Float[Array, "... 6"],
) -> tuple[Float[Array, "... 3"], Float[Array, "... 4"]]:
    """The position (..., 3) and the rotation of `exp(xi)`, as a unit quaternion (..., 4)."""
    require_floats(xi, "xi", 6)
    w = xi[..., 3:]
    # c0 to c3 are Stumpff's functions at half the angle |w|. They give c_2 and c_3 at |w|.
    c0, c1, c2, c3 = jnp.unstack(_series.stumpff(jnp.sum(w * w, axis=-1) / 4, 4), axis=-1)
    p = so3.double_cross(w, xi[..., :3], c1 * c1 / 2, (c2 + c0 * c3) / 4)
    return p, jnp.concatenate([(c1 / 2)[..., None] * w, c0[..., None]], axis=-1)


def log(X: Pose) -> Float[Array, "... 6"]:
    """Exponential coordinates of a pose, with angle in [0, pi]; inverse of `exp` below pi.

    Source: Sola, Deray and Atchuthan (2018), equation 173.
    """
    R, p = checked_pose(X)
    w = so3.log(R)
    return jnp.concatenate([rotate(so3.left_jacobian_inverse(w), p), w], axis=-1)


def left_jacobian(xi: Float[Array, "... 6"]) -> Float[Array, "... 6 6"]:
    """J with `exp(xi + d) = exp(J d) exp(xi)` to first order: `sum ad^k / (k+1)!`.

    `ad = (xi x)` is the matrix of the cross product of motions. The sum equals a polynomial of
    degree four in `ad`: see `_math.series.adjoint_coefficients`.
    """
    require_floats(xi, "xi", 6)
    ad = cross_matrix(xi)
    ad2 = matmul(ad, ad)
    x = jnp.sum(xi[..., 3:] ** 2, axis=-1)
    a1, a2, a3, a4 = (a[..., None, None] for a in _series.adjoint_coefficients(x))
    even = a2 * ad2 + a4 * matmul(ad2, ad2)
    odd = a1 * ad + a3 * matmul(ad2, ad)
    return identity_like(ad) + odd + even


def right_jacobian(xi: Float[Array, "... 6"]) -> Float[Array, "... 6 6"]:
    """J with `exp(xi + d) = exp(xi) exp(J d)` to first order."""
    return left_jacobian(-xi)


def left_jacobian_inverse(xi: Float[Array, "... 6"]) -> Float[Array, "... 6 6"]:
    """Inverse of `left_jacobian`, `1 - ad / 2 + b_2 ad^2 + b_4 ad^4`; infinite at the angle 2 pi.

    The coefficients are in `_math.series.inverse_adjoint_coefficients`.
    """
    require_floats(xi, "xi", 6)
    ad = cross_matrix(xi)
    ad2 = matmul(ad, ad)
    x = jnp.sum(xi[..., 3:] ** 2, axis=-1)
    b2, b4 = (b[..., None, None] for b in _series.inverse_adjoint_coefficients(x))
    return identity_like(ad) - ad / 2 + b2 * ad2 + b4 * matmul(ad2, ad2)


def right_jacobian_inverse(xi: Float[Array, "... 6"]) -> Float[Array, "... 6 6"]:
    """Inverse of `right_jacobian`; infinite at angle 2 pi."""
    return left_jacobian_inverse(-xi)


# The matrices of the cross products `e_k x` with the six unit motions.
_CROSSES = np.zeros((6, 6, 6))
for _k, _axis in enumerate(np.eye(3)):
    _CROSSES[3 + _k, :3, :3] = _CROSSES[3 + _k, 3:, 3:] = np.cross(np.eye(3), _axis)
    _CROSSES[_k, :3, 3:] = np.cross(np.eye(3), _axis)


def cross_matrix(xi: Float[Array, "... 6"]) -> Float[Array, "... 6 6"]:
    """The matrix `ad` of the cross product of motions `xi x`, by one product with a constant."""
    require_entries(xi, 6)
    return einsum("...k,kij->...ij", xi, jnp.asarray(_CROSSES, xi.dtype))
