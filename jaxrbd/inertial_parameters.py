"""Parameterizations of an inertia, and tests of its physical consistency.

An inertia is `(..., 10)`, `[m, m c, Ixx, Ixy, Iyy, Ixz, Iyz, Izz]` about the frame's origin, as in
`jaxrbd.spatial`. Its pseudo-inertia is the 4x4 matrix of second moments of the mass,

    J = integral of [x; 1] [x; 1]^T dm = [[Sigma, h], [h^T, m]],

with the second moments `Sigma = (tr(I)/2) E - I`, the 3x3 identity E, and `h = m c`. J is linear in
the ten parameters. J is positive definite if and only if the inertia is the inertia
of some rigid body whose mass does not lie in one plane. The log-Cholesky parameters describe a
triangular factor of J by ten values without constraints. Every function broadcasts over leading
axes, keeps the dtype of its operand and can be differentiated. All quantities are in SI units.
Sources: Wensing, Kim and Slotine (2018), "Linear matrix inequalities for physically consistent
inertial parameter identification"; Rucker and Wensing (2022), "Smooth parameterization of
rigid-body inertia".
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from ._math.components import (
    Mat3,
    Vec3,
    require_entries,
    require_floats,
    safe_norm,
    second_moments,
    stack,
)
from ._math.linear import symmetric_eigenvalues
from .spatial import inertia_to_com

# A bound on the rounding error of an inertia that is moved to its centre of mass, in units of eps
# times the trace of the rotational inertia about the origin.
_ROUNDING = 64


# ------------------------------------------------------------------------------- pseudo-inertia


def pseudo_inertia(inertia: Float[Array, "... 10"]) -> Float[Array, "... 4 4"]:
    """The pseudo-inertia `[[Sigma, h], [h^T, m]]` (..., 4, 4), symmetric, in kg m^2, kg m, kg.

    Source: Wensing, Kim and Slotine (2018).
    """
    require_entries(inertia, 10)
    m, hx, hy, hz, *I = jnp.unstack(inertia, axis=-1)
    a, b, c = second_moments(Mat3.symmetric(*I)).rows
    rows = (a.x, a.y, a.z, hx), (b.x, b.y, b.z, hy), (c.x, c.y, c.z, hz), (hx, hy, hz, m)
    return jnp.stack([stack(*row) for row in rows], axis=-2)


def inertia_from_pseudo(J: Float[Array, "... 4 4"]) -> Float[Array, "... 10"]:
    """The inertia (..., 10) of the symmetric part of a pseudo-inertia.

    Inverse of `pseudo_inertia`: `I = tr(Sigma) E - Sigma`.
    """
    require_entries(J, 4, 4)
    J = (J + jnp.swapaxes(J, -1, -2)) / 2
    xx, xy, xz, hx, _, yy, yz, hy, _, _, zz, hz, _, _, _, m = jnp.unstack(
        J.reshape(*J.shape[:-2], 16), axis=-1
    )
    return stack(m, hx, hy, hz, yy + zz, -xy, xx + zz, -xz, -yz, xx + yy)


# -------------------------------------------------------------------------------- log-Cholesky


def inertia_from_log_cholesky(theta: Float[Array, "... 10"]) -> Float[Array, "... 10"]:
    """The inertia (..., 10) of log-Cholesky parameters, which is always physically consistent.

    `theta` (..., 10) is `[alpha, d1, d2, d3, s12, s23, s13, t1, t2, t3]`, ten finite values. The
    pseudo-inertia is `U U^T` with

        U = e^alpha [[e^d1, s12, s13, t1], [0, e^d2, s23, t2], [0, 0, e^d3, t3], [0, 0, 0, 1]],

    so the mass is `e^(2 alpha)` in kg, and t is the centre of mass in m. The function and its
    inverse `log_cholesky` are smooth. Source: Rucker and Wensing (2022).
    """
    require_entries(theta, 10)
    alpha, d1, d2, d3, s12, s23, s13, t1, t2, t3 = jnp.unstack(theta, axis=-1)
    o = jnp.zeros_like(alpha)
    r1, r2, r3 = Vec3(jnp.exp(d1), s12, s13), Vec3(o, jnp.exp(d2), s23), Vec3(o, o, jnp.exp(d3))
    # The rows of U without e^alpha. Their products are the second moments for a mass of 1 kg.
    xx, yy, zz = r1.dot(r1) + t1 * t1, r2.dot(r2) + t2 * t2, r3.dot(r3) + t3 * t3
    xy, xz, yz = r1.dot(r2) + t1 * t2, r1.dot(r3) + t1 * t3, r2.dot(r3) + t2 * t3
    unit = stack(jnp.ones_like(o), t1, t2, t3, yy + zz, -xy, xx + zz, -xz, -yz, xx + yy)
    return jnp.exp(2 * theta[..., :1]) * unit


def log_cholesky(inertia: Float[Array, "... 10"]) -> Float[Array, "... 10"]:
    """The log-Cholesky parameters (..., 10) of an inertia; inverse of `inertia_from_log_cholesky`.

    The parameters are finite where `consistency_margin` is positive by more than rounding errors.
    The parameters are not finite where the pseudo-inertia is not positive definite: for a point
    mass, a rod, a plate, a massless link, and for inertias that are not physically consistent.
    Source: Rucker and Wensing (2022); the equations are solved from the last row of U to the first.
    """
    m, com, I_com = inertia_to_com(inertia)
    t1, t2, t3 = jnp.unstack(com, axis=-1)
    sxx, sxy, syy, sxz, syz, szz = (s / m for s in second_moments(Mat3.from_array(I_com)).upper())
    u33 = jnp.sqrt(szz)
    s13, s23 = sxz / u33, syz / u33
    u22 = jnp.sqrt(syy - s23 * s23)
    s12 = (sxy - s13 * s23) / u22
    u11 = jnp.sqrt(sxx - s12 * s12 - s13 * s13)
    logs = (jnp.log(x) for x in (u11, u22, u33))
    return stack(jnp.log(m) / 2, *logs, s12, s23, s13, t1, t2, t3)


# ------------------------------------------------------------------------ physical consistency


def consistency_margin(inertia: Float[Array, "... 10"]) -> Float[Array, "..."]:
    """The smallest eigenvalue of the pseudo-inertia about the centre of mass (...).

    The margin is the smaller of two values. The first value is the mass in kg. The second value is
    `(I_1 + I_2 - I_3) / 2` in kg m^2, where I_3 is the largest principal moment of inertia and I_1
    and I_2 are the others. The margin does not depend on the frame. The margin is negative for an
    inertia that is not physically consistent, and zero for a point mass, a rod and a plate. For a
    link with zero mass the margin is minus the norm of the other nine parameters.
    """
    m, _, I_com = inertia_to_com(inertia)
    least = symmetric_eigenvalues(second_moments(Mat3.from_array(I_com)).array())[..., 0]
    rest = jnp.where((m == 0)[..., None], inertia[..., 1:], 0)
    return jnp.where(m == 0, -safe_norm(rest), jnp.minimum(m, least))


def is_physically_consistent(
    inertia: Float[Array, "... 10"], tolerance: float = 1e-6
) -> Bool[Array, "..."]:
    """Whether a rigid body can have the inertia, (...). `InertiaWarning` uses the same criterion.

    The principal moments of inertia about the centre of mass must be non-negative and must satisfy
    the triangle inequality, up to `tolerance` (without unit) times the largest moment. For a link
    with zero mass the other nine parameters must be zero.
    Source: Traversaro et al. (2016), "Identification of fully physical consistent inertial
    parameters using optimization on manifolds".
    """
    require_floats(inertia, "inertia", 10)
    m, _, I_com = inertia_to_com(inertia)
    moments = symmetric_eigenvalues(second_moments(Mat3.from_array(I_com)).array())
    least, *others = jnp.unstack(moments, axis=-1)
    largest_moment = jnp.abs(sum(others))
    about_origin = inertia[..., 4] + inertia[..., 6] + inertia[..., 9]
    rounding = _ROUNDING * jnp.finfo(inertia.dtype).eps * about_origin
    triangle = 2 * least >= -tolerance * largest_moment - rounding
    nothing = jnp.all(inertia == 0, axis=-1)
    return jnp.where(m > 0, triangle, nothing)
