"""Spatial vector algebra on stacked arrays, and the conventions of the package.

- A spatial vector is `(..., 6)`: `[linear; angular]`. The linear part of a spatial velocity is the
  velocity of the body point that is at the frame's origin. The angular part of a spatial force is
  the moment of the force about the frame's origin.
- A pose `X_AB = (R_AB, p_AB)` maps coordinates in B to coordinates in A: `x_A = R x_B + p`. Names
  follow Drake's monogram notation, in which adjacent frames cancel: `compose(X_AB, X_BC)` is
  `X_AC`.
- An inertia is `(..., 10)`: `[m, m c, Ixx, Ixy, Iyy, Ixz, Iyz, Izz]`, with the mass m, the centre
  of mass c and the rotational inertia I about the frame's *origin* (not the centre of mass). The
  inertia of two bodies together is the sum of the arrays, if both are in one frame. Only functions
  of the centre of mass and `inverse_inertia_matrix` divide by the mass.

Every function broadcasts over leading axes and keeps the dtype of its operands. It raises
ArgumentError for an operand that is no array, or no Pose, and for arrays whose last axes have other
sizes. All quantities are in SI units. Sources: Mansard's SE(3) sheet of Pinocchio; Featherstone,
chapter 2. Featherstone puts the angular part of a spatial vector first. The last section of this
module converts between the two orders.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float

from ._math.components import (
    Mat3,
    Vec3,
    columns,
    halves,
    join,
    linear_combination,
    require_entries,
    rows,
    second_moments,
    small_product,
    stack,
)
from ._math.linear import matmul
from ._math.ranks import identity_like, minus, plus, same_rank, times
from .errors import ArgumentError

# ---------------------------------------------------------------------------------------- poses


class Pose(NamedTuple):
    """A pose `X_AB` of frame B in frame A: rotation `R` (..., 3, 3), position `p` (..., 3) in m.

    `X_AB @ X_BC` is `compose(X_AB, X_BC)`, `X_AB.inverse()` is `inverse(X_AB)` and `X_AB.matrix` is
    `pose_matrix(X_AB)`.
    """

    R: Float[Array, "... 3 3"]
    p: Float[Array, "... 3"]

    __array_ufunc__ = None  # so NumPy leaves `array @ X` to `__rmatmul__`

    def __matmul__(self, X_BC: Pose) -> Pose:
        """The pose `X_AC` of C in A: the function `compose`."""
        return compose(self, X_BC)

    def __rmatmul__(self, other: object) -> Pose:
        """Raises ArgumentError, because the left operand is no Pose."""
        raise _no_pose(other)

    def inverse(self) -> Pose:
        """The pose `X_BA` of A in B: the function `inverse`."""
        return inverse(self)

    @property
    def matrix(self) -> Float[Array, "... 4 4"]:
        """The homogeneous matrix `[[R, p], [0, 1]]` (..., 4, 4): the function `pose_matrix`."""
        return pose_matrix(self)


def identity_pose(dtype: DTypeLike | None = None) -> Pose:
    """The identity pose; `dtype` defaults to JAX's default float."""
    return Pose(jnp.eye(3, dtype=dtype), jnp.zeros(3, dtype=dtype))


def compose(X_AB: Pose, X_BC: Pose) -> Pose:
    """Pose `X_AC` of C in A. Source: SE(3) sheet, section 2."""
    X_AB, X_BC = checked_pose(X_AB), checked_pose(X_BC)
    return Pose(small_product(X_AB.R, X_BC.R), transform_point(X_AB, X_BC.p))


def inverse(X_AB: Pose) -> Pose:
    """Pose `X_BA` of A in B. Source: SE(3) sheet, section 1."""
    R_BA = Mat3.from_array(checked_pose(X_AB).R).T
    return Pose(R_BA.array(), (-(R_BA @ Vec3.from_array(X_AB.p))).array())


def inverse_compose(X_AB: Pose, X_AC: Pose) -> Pose:
    """Pose `X_BC = X_AB^-1 X_AC` of C in B. Source: SE(3) sheet, section 2."""
    X_AB, X_AC = checked_pose(X_AB), checked_pose(X_AC)
    R_BA = jnp.swapaxes(X_AB.R, -1, -2)
    return Pose(small_product(R_BA, X_AC.R), inverse_transform_point(X_AB, X_AC.p))


def rotate(R: Float[Array, "... 3 3"], x: Float[Array, "... 3"]) -> Float[Array, "... 3"]:
    """The free vector `R x`."""
    require_entries(R, 3, 3)
    return linear_combination(Vec3.from_array(x), columns(R))


def inverse_rotate(R: Float[Array, "... 3 3"], x: Float[Array, "... 3"]) -> Float[Array, "... 3"]:
    """The free vector `R^T x`."""
    require_entries(R, 3, 3)
    return linear_combination(Vec3.from_array(x), rows(R))


def transform_point(X_AB: Pose, x_B: Float[Array, "... 3"]) -> Float[Array, "... 3"]:
    """Coordinates in A, `R x + p`, of the point with coordinates `x_B` in B, in metres."""
    R, p = checked_pose(X_AB)
    return plus(rotate(R, x_B), p)


def inverse_transform_point(X_AB: Pose, x_A: Float[Array, "... 3"]) -> Float[Array, "... 3"]:
    """Coordinates in B, `R^T (x - p)`, of the point with coordinates `x_A` in A, in metres."""
    R, p = checked_pose(X_AB)
    require_entries(x_A, 3)
    return inverse_rotate(R, minus(x_A, p))


def pose_matrix(X: Pose) -> Float[Array, "... 4 4"]:
    """The homogeneous matrix `[[R, p], [0, 1]]`. Source: SE(3) sheet, section 1."""
    R, p = checked_pose(X)
    top = jnp.concatenate([R, p[..., None]], axis=-1)
    last = jnp.broadcast_to(jnp.array([0, 0, 0, 1], top.dtype), (*top.shape[:-2], 1, 4))
    return jnp.concatenate([top, last], axis=-2)


def pose_from_matrix(H: Float[Array, "... 4 4"]) -> Pose:
    """The pose of a homogeneous matrix; its last row is not read."""
    require_entries(H, 4, 4)
    return Pose(H[..., :3, :3], H[..., :3, 3])


def checked_pose(X: Pose) -> Pose:
    """The pose. Raises ArgumentError for another object, and for R and p of other shapes."""
    if not isinstance(X, Pose):
        raise _no_pose(X)
    require_entries(X.R, 3, 3)
    require_entries(X.p, 3)
    return X


def _no_pose(x: object) -> ArgumentError:
    return ArgumentError(f"a pose is of the type {type(x).__name__}, expected a Pose")


# ---------------------------------------------------------------------- vectors with one part zero


def from_linear(x: Float[Array, "... 3"]) -> Float[Array, "... 6"]:
    """The spatial vector `[x; 0]` (..., 6) with the linear part x and no angular part."""
    require_entries(x, 3)
    return jnp.concatenate([x, jnp.zeros_like(x)], axis=-1)


def from_angular(x: Float[Array, "... 3"]) -> Float[Array, "... 6"]:
    """The spatial vector `[0; x]` (..., 6) with the angular part x and no linear part."""
    require_entries(x, 3)
    return jnp.concatenate([jnp.zeros_like(x), x], axis=-1)


# --------------------------------------------------------------------------------------- motion


def transform_motion(X_AB: Pose, m_B: Float[Array, "... 6"]) -> Float[Array, "... 6"]:
    """Motion vector in A from its coordinates in B: `[R v + p x R w; R w]`.

    Source: SE(3) sheet, section 3, the action of `X`.
    """
    X_AB = checked_pose(X_AB)
    R, p, (v, w) = columns(X_AB.R), Vec3.from_array(X_AB.p), halves(m_B)
    Rw = linear_combination(w, R)
    return jnp.concatenate(
        [linear_combination(v, R) + p.cross(Vec3.from_array(Rw)).array(), Rw], axis=-1
    )


def inverse_transform_motion(X_AB: Pose, m_A: Float[Array, "... 6"]) -> Float[Array, "... 6"]:
    """Motion vector in B from its coordinates in A: `[R^T (v - p x w); R^T w]`.

    Source: SE(3) sheet, section 3, the action of `X^-1`.
    """
    X_AB = checked_pose(X_AB)
    Rt, p, (v, w) = rows(X_AB.R), Vec3.from_array(X_AB.p), halves(m_A)
    return jnp.concatenate(
        [linear_combination(v + w.cross(p), Rt), linear_combination(w, Rt)], axis=-1
    )


def cross_motion(v: Float[Array, "... 6"], m: Float[Array, "... 6"]) -> Float[Array, "... 6"]:
    """Cross product `v x m` (..., 6): the rate of a motion vector m that moves with velocity v.

    Source: SE(3) sheet, section 6; Featherstone (2.31) with the halves exchanged.
    """
    (v1, w1), (v2, w2) = halves(v), halves(m)
    return join(v1.cross(w2) + w1.cross(v2), w1.cross(w2))


# ---------------------------------------------------------------------------------------- force


def transform_force(X_AB: Pose, f_B: Float[Array, "... 6"]) -> Float[Array, "... 6"]:
    """Force vector in A from its coordinates in B: `[R f; R n + p x R f]`.

    Source: SE(3) sheet, section 4, the action of `X*`.
    """
    X_AB = checked_pose(X_AB)
    R, p, (f, n) = columns(X_AB.R), Vec3.from_array(X_AB.p), halves(f_B)
    Rf = linear_combination(f, R)
    return jnp.concatenate(
        [Rf, linear_combination(n, R) + p.cross(Vec3.from_array(Rf)).array()], axis=-1
    )


def inverse_transform_force(X_AB: Pose, f_A: Float[Array, "... 6"]) -> Float[Array, "... 6"]:
    """Force vector in B from its coordinates in A: `[R^T f; R^T (n - p x f)]`.

    Source: SE(3) sheet, section 4, the action of `X^-*`.
    """
    X_AB = checked_pose(X_AB)
    Rt, p, (f, n) = rows(X_AB.R), Vec3.from_array(X_AB.p), halves(f_A)
    return jnp.concatenate(
        [linear_combination(f, Rt), linear_combination(n + f.cross(p), Rt)], axis=-1
    )


def cross_force(v: Float[Array, "... 6"], f: Float[Array, "... 6"]) -> Float[Array, "... 6"]:
    """Cross product `v x* f` (..., 6): the rate of a force vector f that moves with velocity v.

    Source: SE(3) sheet, section 6; Featherstone (2.32) with the halves exchanged.
    """
    (v1, w1), (f2, n2) = halves(v), halves(f)
    return join(w1.cross(f2), w1.cross(n2) + v1.cross(f2))


# -------------------------------------------------------------------------------------- inertia


def inertia_from_com(
    mass: Float[Array, "..."], com: Float[Array, "... 3"], I_com: Float[Array, "... 3 3"]
) -> Float[Array, "... 10"]:
    """Inertia (..., 10) of a body from its mass, centre of mass and central rotational inertia.

    `mass` (...) in kg; `com` (..., 3) in m; `I_com` (..., 3, 3), symmetric, in kg m^2: the
    rotational inertia about the centre of mass. `com` and `I_com` are in the axes of the frame.
    Source: SE(3) sheet, section 5.1; Featherstone (2.63).
    """
    if not isinstance(mass, int | float) and not hasattr(mass, "shape"):
        raise ArgumentError(f"mass is {mass!r}, expected an array")
    mass, c, I_c = jnp.asarray(mass), Vec3.from_array(com), Mat3.from_array(I_com)
    I_o = I_c - Mat3(*(mass * r for r in _skew_squared(c, c).rows))
    return _join_inertia(mass, mass * c, I_o)


def inertia_to_com(
    inertia: Float[Array, "... 10"],
) -> tuple[Float[Array, "..."], Float[Array, "... 3"], Float[Array, "... 3 3"]]:
    """Mass, centre of mass and central rotational inertia: the inverse of `inertia_from_com`.

    Returns `mass` (...) in kg, `com` (..., 3) in m, `I_com` (..., 3, 3) in kg m^2. Where the mass
    is zero, `com` is the origin, and `I_com` is the rotational inertia about the origin.
    """
    m, h, I_o = _split_inertia(inertia)
    com = inertia_center_of_mass(inertia)
    return m, com, (I_o + _skew_squared(h, Vec3.from_array(com))).array()


def apply_inertia(inertia: Float[Array, "... 10"], v: Float[Array, "... 6"]):
    """Force vector `I v` (..., 6), `[m v - mc x w; mc x v + I w]`, for example the momentum.

    Source: SE(3) sheet, section 5.1, with I about the origin.
    """
    m, h, I_o = _split_inertia(inertia)
    linear, w = halves(v)
    force = m[..., None] * v[..., :3] + w.cross(h).array()
    moment = h.cross(linear).array() + linear_combination(w, [row.array() for row in I_o.rows])
    return jnp.concatenate([force, moment], axis=-1)


def gyroscopic_force(inertia: Float[Array, "... 10"], v: Float[Array, "... 6"]):
    """Velocity-product force `v x* (I v)` (..., 6).

    The computation takes 5 cross products, 1 matrix product and 3 additions.
    Source: SE(3) sheet, section 6, the form with `beta`, here `beta = w x mc`.
    """
    m, h, I_o = _split_inertia(inertia)
    linear, w = halves(v)
    beta = w.cross(h)
    moment = w.cross(h.cross(linear) + I_o @ w) + linear.cross(beta)
    return join(w.cross(m * linear + beta), moment)


def inertial_force(
    inertia: Float[Array, "... 10"], v: Float[Array, "... 6"], a: Float[Array, "... 6"]
):
    """Force `I a + v x* (I v)` (..., 6) that gives the moving body the spatial acceleration a.

    Source: Featherstone, section 2.14.
    """
    return apply_inertia(inertia, a) + gyroscopic_force(inertia, v)


def transform_inertia(X_AB: Pose, inertia_B: Float[Array, "... 10"]) -> Float[Array, "... 10"]:
    """Inertia in A from its coordinates in B.

    The second moments of mass are `Sigma = int r r^T dm = (tr(I)/2) E - I`; E is the 3x3 identity.
    With the moments Sigma_B in B, the moments in A are `R Sigma_B R^T + p (h + m p)^T + h p^T`,
    where `h = R mc`. Source: SE(3) sheet, section 5.1, in a form that does not divide by the mass.
    """
    (R, p), (m, h_B, I_B) = checked_pose(X_AB), _split_inertia(inertia_B)
    moments = jnp.concatenate([second_moments(I_B).array(), h_B.array()[..., None]], axis=-1)
    rotated = small_product(R, moments)
    h = rotated[..., 3]
    h_A = plus(h, times(m[..., None], p))
    p, _ = same_rank(p, h)
    Sigma = (
        small_product(rotated[..., :3], jnp.swapaxes(R, -1, -2))
        + p[..., :, None] * h_A[..., None, :]
        + h[..., :, None] * p[..., None, :]
    )
    trace = Sigma[..., 0, 0] + Sigma[..., 1, 1] + Sigma[..., 2, 2]
    I_A = trace[..., None, None] * identity_like(Sigma) - Sigma
    # `Mat3.from_array` in place of these slices would compile to more kernels.
    flat = I_A.reshape(*I_A.shape[:-2], 9)
    upper = [flat[..., i : i + 1] for i in _UPPER]
    mass = jnp.broadcast_to(m[..., None], (*h_A.shape[:-1], 1))
    return jnp.concatenate([mass, h_A, *upper], axis=-1)


# The positions of the entries xx, xy, yy, xz, yz, zz in a 3x3 matrix, flattened by rows.
_UPPER = (0, 1, 4, 2, 5, 8)


def inverse_transform_inertia(
    X_AB: Pose, inertia_A: Float[Array, "... 10"]
) -> Float[Array, "... 10"]:
    """Inertia in B from its coordinates in A; inverse of `transform_inertia`."""
    X_AB = checked_pose(X_AB)
    R, p, (m, h_A, I_A) = (
        Mat3.from_array(X_AB.R),
        Vec3.from_array(X_AB.p),
        _split_inertia(inertia_A),
    )
    mp = m * p
    centred = I_A + _skew_squared(p, h_A + h_A - mp)
    return _join_inertia(m, R.T @ (h_A - mp), R.T @ centred @ R)


def inertia_regressor(v: Float[Array, "... 6"]) -> Float[Array, "... 6 10"]:
    """The matrix Y (..., 6, 10) with `Y @ inertia == apply_inertia(inertia, v)` for any inertia.

    Its block rows are `[v, w x, 0]` and `[0, -v x, L(w)]`. The matrix L(w) maps the six entries of
    the rotational inertia to `I w`.
    """
    linear, w = halves(v)
    o = jnp.zeros_like(w.x)
    zeros = (o, o, o, o, o, o)
    wx, vx = Mat3.skew(w).rows, Mat3.skew(-linear).rows
    L = ((w.x, w.y, o, w.z, o, o), (o, w.x, w.y, o, w.z, o), (o, o, o, w.x, w.y, w.z))
    force = ((x, r.x, r.y, r.z, *zeros) for x, r in zip(linear.components, wx))
    moment = ((o, r.x, r.y, r.z, *row) for r, row in zip(vx, L))
    return jnp.stack([stack(*row) for row in (*force, *moment)], axis=-2)


def inertia_center_of_mass(inertia: Float[Array, "... 10"]) -> Float[Array, "... 3"]:
    """Centre of mass (..., 3) in m, in the frame of the inertia; the origin for a mass of zero."""
    require_entries(inertia, 10)
    m = inertia[..., 0:1]
    has_mass = m != 0
    return jnp.where(has_mass, inertia[..., 1:4] / jnp.where(has_mass, m, 1), 0)


def _split_inertia(inertia: Array) -> tuple[Array, Vec3, Mat3]:
    """The mass m, the first moment m c and the rotational inertia of an inertia (..., 10)."""
    require_entries(inertia, 10)
    m, hx, hy, hz, *I_o = jnp.unstack(inertia, axis=-1)
    return m, Vec3(hx, hy, hz), Mat3.symmetric(*I_o)


def _join_inertia(m, h: Vec3, I_o: Mat3) -> Array:
    return stack(m, h.x, h.y, h.z, *I_o.upper())


def _from_second_moments(Sigma: Mat3) -> Mat3:
    """The rotational inertia `tr(Sigma) E - Sigma` with the second moments of mass Sigma."""
    xx, xy, yy, xz, yz, zz = Sigma.upper()
    return Mat3.symmetric(yy + zz, -xy, xx + zz, -xz, -yz, xx + yy)


def _skew_squared(a: Vec3, b: Vec3) -> Mat3:
    """The symmetric part of `[a x][b x]`, which is `(a b^T + b a^T) / 2 - (a . b) 1`."""
    xx, yy, zz = a.x * b.x, a.y * b.y, a.z * b.z
    xy = (a.x * b.y + a.y * b.x) / 2
    xz = (a.x * b.z + a.z * b.x) / 2
    yz = (a.y * b.z + a.z * b.y) / 2
    return Mat3.symmetric(-(yy + zz), xy, -(xx + zz), xz, yz, -(xx + yy))


# ----------------------------------------------------------------------------- velocity moments


def velocity_moments(inertia: Float[Array, "... 10"], v: Float[Array, "... 6"]):
    """The first moments `[p, N]` (..., 12) of the velocity field of a moving body.

    The point r of the body has the velocity `u = v + w x r`. The moments are
    `p = int u dm = m v + w x mc` (3 entries) and `N = int u r^T dm = v mc^T + [w x] Sigma`
    (9 entries, row by row), where `Sigma = int r r^T dm = (tr(I)/2) E - I`; E is the 3x3 identity.
    Velocity moments of several bodies in one frame add, as inertias do. The moments determine
    all velocity terms in the derivatives of the dynamics: the matrix B of `apply_velocity_moments`,
    the momentum and the rate of the inertia. Source: Echeandia and Wensing (2021), equation 15,
    which states B with 36 entries.
    """
    m, h, I_o = _split_inertia(inertia)
    linear, w = halves(v)
    p = m[..., None] * v[..., :3] + w.cross(h).array()
    h, (a, b, c) = h.array(), [row.array() for row in second_moments(I_o).rows]
    N = (
        linear_combination(Vec3(linear.x, w.y, -w.z), (h, c, b)),
        linear_combination(Vec3(linear.y, w.z, -w.x), (h, a, c)),
        linear_combination(Vec3(linear.z, w.x, -w.y), (h, b, a)),
    )
    return jnp.concatenate([p, *N], axis=-1)


def apply_velocity_moments(moments: Float[Array, "... 12"], x: Float[Array, "... 6"]):
    """Force `B x` (..., 6) of a body with the given velocity moments, for a motion x.

    `B x = int [w x u; r x (w x u)] dm = [w x p; tr(N) w - N w]`, with w the angular part of the
    motion x. The linear part of x has no effect. For the moments of a body with the inertia I and
    the velocity v, `2 B x = cross_force(v, I x) - I cross_motion(v, x) + cross_force(x, I v)`, and
    `B v = cross_force(v, I v)`.
    """
    p, N, trace = _split_moments(moments)
    w = halves(x)[1]
    moment = trace[..., None] * x[..., 3:] - linear_combination(
        w, [row.array() for row in N.T.rows]
    )
    return jnp.concatenate([w.cross(p).array(), moment], axis=-1)


def apply_velocity_moments_transpose(moments: Float[Array, "... 12"], x: Float[Array, "... 6"]):
    """Angular part (..., 3) of `B^T x`, `p x v + tr(N) w - N^T w`, for x = [v; w].

    B is the matrix of `apply_velocity_moments`. The linear part of `B^T x` is zero.
    """
    p, N, trace = _split_moments(moments)
    v, w = halves(x)
    return (p.cross(v) + (trace * w - N.T @ w)).array()


def inertia_rate_from_moments(moments: Float[Array, "... 12"]) -> Float[Array, "... 10"]:
    """Rate (..., 10) of the inertia of the moving body, in a frame that is fixed in the world.

    As a matrix, the rate is `B + B^T`.
    """
    p, N, trace = _split_moments(moments)
    return _join_inertia(jnp.zeros_like(trace), p, _from_second_moments(N + N.T))


def momentum_from_moments(moments: Float[Array, "... 12"]) -> Float[Array, "... 6"]:
    """Momentum `I v` (..., 6) of the body with these velocity moments."""
    p, N, _ = _split_moments(moments)
    a, b, c = N.rows
    return join(p, Vec3(c.y - b.z, a.z - c.x, b.x - a.y))


def _split_moments(moments: Array) -> tuple[Vec3, Mat3, Array]:
    """The parts p and N of velocity moments, and the trace of N."""
    require_entries(moments, 12)
    c = jnp.unstack(moments, axis=-1)
    N = Mat3(Vec3(*c[3:6]), Vec3(*c[6:9]), Vec3(*c[9:12]))
    return Vec3(*c[:3]), N, c[3] + c[7] + c[11]


# ------------------------------------------------------------------------ operators as matrices


def skew(a: Float[Array, "... 3"]) -> Float[Array, "... 3 3"]:
    """The matrix of the cross product: `skew(a) @ b == a x b`."""
    return Mat3.skew(Vec3.from_array(a)).array()


def motion_matrix(X_AB: Pose) -> Float[Array, "... 6 6"]:
    """`[[R, [p x] R], [0, R]]`: the matrix of `transform_motion`.

    Source: SE(3) sheet, section 3.
    """
    R, pR = _rotation_and_lever(X_AB)
    return _blocks(R, pR, jnp.zeros_like(R), R)


def inverse_motion_matrix(X_AB: Pose) -> Float[Array, "... 6 6"]:
    """`[[R^T, -R^T [p x]], [0, R^T]]`: the matrix of `inverse_transform_motion`."""
    R, pR = _rotation_and_lever(X_AB)
    return _blocks(_t(R), _t(pR), jnp.zeros_like(R), _t(R))


def force_matrix(X_AB: Pose) -> Float[Array, "... 6 6"]:
    """`[[R, 0], [[p x] R, R]]`: the matrix of `transform_force`. Source: SE(3) sheet, section 4."""
    R, pR = _rotation_and_lever(X_AB)
    return _blocks(R, jnp.zeros_like(R), pR, R)


def inverse_force_matrix(X_AB: Pose) -> Float[Array, "... 6 6"]:
    """`[[R^T, 0], [-R^T [p x], R^T]]`: the matrix of `inverse_transform_force`."""
    R, pR = _rotation_and_lever(X_AB)
    return _blocks(_t(R), jnp.zeros_like(R), _t(pR), _t(R))


def cross_motion_matrix(v: Float[Array, "... 6"]) -> Float[Array, "... 6 6"]:
    """`[[w x, v x], [0, w x]]`: the matrix of `v x`.

    Source: Featherstone (2.31), halves exchanged.
    """
    require_entries(v, 6)
    vx, wx = skew(v[..., :3]), skew(v[..., 3:])
    return _blocks(wx, vx, jnp.zeros_like(wx), wx)


def cross_force_matrix(v: Float[Array, "... 6"]) -> Float[Array, "... 6 6"]:
    """`[[w x, 0], [v x, w x]] = -cross_motion_matrix(v)^T`: the matrix of `v x*`."""
    return -_t(cross_motion_matrix(v))


def inertia_matrix(inertia: Float[Array, "... 10"]) -> Float[Array, "... 6 6"]:
    """`[[m 1, -[mc x]], [[mc x], I]]`: the matrix of `apply_inertia`.

    Source: SE(3) sheet, section 5.1.
    """
    m, h, I_o = _split_inertia(inertia)
    hx = Mat3.skew(h).array()
    m1 = m[..., None, None] * identity_like(hx)
    return _blocks(m1, -hx, hx, I_o.array())


def inverse_inertia_matrix(inertia: Float[Array, "... 10"]) -> Float[Array, "... 6 6"]:
    """The inverse of `inertia_matrix`, (..., 6, 6).

    It maps a force on the body to its acceleration, if the velocity of the body is zero.
    With the mass m, the centre of mass c and the rotational inertia I_c about the centre of mass,
    the inverse is `[[1/m - [c x] I_c^-1 [c x], [c x] I_c^-1], [-I_c^-1 [c x], I_c^-1]]`. If the
    mass is zero or I_c is singular, the result is not finite or, with rounding errors, wrong.
    Source: Featherstone, section 2.13.
    """
    m, c, I_c = inertia_to_com(inertia)
    a, b, d = (I_c[..., i, :] for i in range(3))
    adjugate = jnp.stack([jnp.cross(b, d), jnp.cross(d, a), jnp.cross(a, b)], axis=-1)
    inverse = adjugate / jnp.sum(a * adjugate[..., :, 0], axis=-1)[..., None, None]
    cx = skew(c)
    cx_inverse = matmul(cx, inverse)
    one = identity_like(cx) / m[..., None, None]
    return _blocks(one - matmul(cx_inverse, cx), cx_inverse, _t(cx_inverse), inverse)


def _rotation_and_lever(X: Pose) -> tuple[Array, Array]:
    """The matrices R and `[p x] R` (..., 3, 3) of a pose."""
    X = checked_pose(X)
    pR = Mat3.skew(Vec3.from_array(X.p)) @ Mat3.from_array(X.R)
    return X.R, pR.array()


def _t(a: Array) -> Array:
    return jnp.swapaxes(a, -1, -2)


def _blocks(a: Array, b: Array, c: Array, d: Array) -> Array:
    top = jnp.concatenate([a, b], axis=-1)
    bottom = jnp.concatenate([c, d], axis=-1)
    return jnp.concatenate([top, bottom], axis=-2)


# ----------------------------------------------------- Featherstone's order and his transforms


def swap_halves(x: Float[Array, "... 6"]) -> Float[Array, "... 6"]:
    """A spatial vector changed from linear-first to angular-first order, or back."""
    require_entries(x, 6)
    return jnp.concatenate([x[..., 3:], x[..., :3]], axis=-1)


def swap_blocks(A: Float[Array, "... 6 6"]) -> Float[Array, "... 6 6"]:
    """A 6x6 matrix on spatial vectors changed from linear-first to angular-first order, or back."""
    require_entries(A, 6, 6)
    return _blocks(A[..., 3:, 3:], A[..., 3:, :3], A[..., :3, 3:], A[..., :3, :3])


def pose_to_featherstone(
    X_AB: Pose,
) -> tuple[Float[Array, "... 3 3"], Float[Array, "... 3"]]:
    """Featherstone's `(E, r)` of a pose: `E = R^T` and `r = p`.

    E maps coordinates in the axes of A to the axes of B, and r is the origin of B in A. The matrix
    `[[E, 0], [-E r x, E]]` of Featherstone (2.24) is `inverse_motion_matrix(X_AB)` in angular-first
    order.
    """
    R, p = checked_pose(X_AB)
    return _t(R), p


def pose_from_featherstone(E: Float[Array, "... 3 3"], r: Float[Array, "... 3"]) -> Pose:
    """The pose `X_AB` of Featherstone's `(E, r)`: the inverse of `pose_to_featherstone`."""
    require_entries(E, 3, 3)
    require_entries(r, 3)
    return Pose(_t(E), r)
