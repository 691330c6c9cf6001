"""Exponentials, logarithms and their Jacobians, against mpmath and near every special angle."""

import functools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from jaxrbd import joints, se3, so3, spatial
from jaxrbd._math import series
from support import nightly
from support.zoo import close

ANGLES = [0.0, 1e-20, 1e-9, 1e-4, 0.3, 1.0, 1.99999, 2.00001, 3.0, np.pi - 1e-3, np.pi - 1e-7]
BEYOND = [np.pi, 4.0, 5.5, 2 * np.pi - 1e-3]


def rotation_vector(angle, seed=0):
    axis = np.random.default_rng(seed).normal(size=3)
    return jnp.array(angle * axis / np.linalg.norm(axis))


def expm(matrix) -> np.ndarray:
    """Matrix exponential in 40 digits."""
    with mpmath.workdps(40):
        return np.array(mpmath.expm(mpmath.matrix(np.asarray(matrix))).tolist(), dtype=float)


def hat(xi):
    """The 4x4 matrix of exponential coordinates."""
    return np.block([[spatial.skew(xi[3:]), np.array(xi[:3, None])], [np.zeros((1, 4))]])


@pytest.mark.parametrize("angle", ANGLES + BEYOND)
def test_exp_is_the_matrix_exponential(angle):
    w = rotation_vector(angle)
    close(so3.exp(w), expm(spatial.skew(w)), 1e-14)
    close(so3.quaternion_to_matrix(so3.quaternion_exp(w)), so3.exp(w), 1e-14)
    xi = jnp.concatenate([jnp.array([0.3, -2.0, 1.0]), w])
    close(spatial.pose_matrix(se3.exp(xi)), expm(hat(xi)), 1e-14)


@pytest.mark.parametrize("angle", ANGLES)
def test_log_inverts_exp(angle):
    w = rotation_vector(angle)
    scale = max(angle, 1e-300)
    assert np.abs(so3.log(so3.exp(w)) - w).max() <= 1e-12 * max(1, scale)
    # The quaternion is accurate also for the smallest angles.
    assert np.abs(so3.quaternion_log(so3.quaternion_exp(w)) - w).max() <= 1e-14 * scale
    xi = jnp.concatenate([jnp.array([0.3, -2.0, 1.0]), w])
    close(se3.log(se3.exp(xi)), xi, 1e-12)


def test_log_at_pi_is_a_rotation_by_pi():
    for seed in range(5):
        w = rotation_vector(np.pi, seed)
        found = so3.log(so3.exp(w))
        close(jnp.linalg.norm(found), np.pi, 1e-12)
        close(so3.exp(found), so3.exp(w), 1e-12)


@jax.jit
def differentiated_exp(w, xi):
    """The left Jacobians of SO(3) and SE(3), as derivatives of exp."""

    def left_so3(d):
        R = so3.exp(w + d) @ so3.exp(-w)
        return jnp.array([R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]]) / 2

    def left_se3(d):
        X = spatial.compose(se3.exp(xi + d), se3.exp(-xi))
        R = X.R
        turn = jnp.array([R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]]) / 2
        return jnp.concatenate([X.p, turn])

    return jax.jacfwd(left_so3)(jnp.zeros(3)), jax.jacfwd(left_se3)(jnp.zeros(6))


@functools.partial(jax.jit, static_argnums=0)
def jacobians(group, x):
    """The left Jacobian, its inverse, the right Jacobian and its inverse."""
    left = group.left_jacobian(x), group.left_jacobian_inverse(x)
    return *left, group.right_jacobian(x), group.right_jacobian_inverse(x)


@pytest.mark.parametrize("angle", ANGLES + BEYOND)
def test_jacobians_are_derivatives_of_exp(angle):
    w = rotation_vector(angle)
    xi = jnp.concatenate([jnp.array([0.3, -2.0, 1.0]), w])
    of_so3, of_se3 = differentiated_exp(w, xi)
    tolerance = 1e-13 / min(1.0, abs(2 * np.pi - angle)) ** 2
    for group, x, expected, error in ((so3, w, of_so3, 1e-13), (se3, xi, of_se3, 1e-12)):
        left, left_inverse, right, right_inverse = jacobians(group, x)
        close(left, expected, error)
        close(right, jacobians(group, -x)[0], 1e-15)
        one = jnp.eye(len(x))
        close(left @ left_inverse, one, tolerance)
        close(right @ right_inverse, one, tolerance)


SERIES = {
    "cos": (lambda x: series.stumpff(x, 1)[..., 0], mpmath.cos),
    "sinc": (series.sinc, lambda t: mpmath.sin(t) / t),
    "cosc": (series.cosc, lambda t: (1 - mpmath.cos(t)) / t**2),
    "sincc": (lambda x: series.stumpff(x, 4)[..., 3], lambda t: (t - mpmath.sin(t)) / t**3),
    "half_cot": (series.half_cot, lambda t: (1 - t / 2 * mpmath.cot(t / 2)) / t**2),
}


@functools.cache
def value_and_derivatives(name):
    """A function of x that returns the value of a series and its first three derivatives, (4,)."""
    functions = [ALL_SERIES[name][0]]
    for _ in range(3):
        functions.append(jax.grad(functions[-1]))
    return jax.jit(lambda x: jnp.stack([f(x) for f in functions]))


@pytest.mark.parametrize("name", SERIES)
@pytest.mark.parametrize("x", [0.0, 1e-40, 1e-18, 1e-8, 0.5, 3.999999, 4.000001, 9.0, 30.0])
def test_series_and_three_derivatives_are_right_everywhere(name, x):
    """Compared with mpmath's derivatives of the closed form, on both sides of the switch."""
    closed = SERIES[name][1]
    for order, found in enumerate(value_and_derivatives(name)(x)):
        with mpmath.workdps(60):
            point = mpmath.mpf(x) if x > 1e-12 else mpmath.mpf("1e-12")
            expected = float(mpmath.diff(lambda y: closed(mpmath.sqrt(y)), point, order))
        assert float(found) == pytest.approx(expected, rel=3e-11, abs=1e-12), order


def adjoint_coefficient(k):
    return lambda x: series.adjoint_coefficients(x)[k]


ALL_SERIES = {
    **SERIES,
    "a1": (
        adjoint_coefficient(0),
        lambda t: (4 - t * mpmath.sin(t) - 4 * mpmath.cos(t)) / (2 * t**2),
    ),
    "a2": (
        adjoint_coefficient(1),
        lambda t: (4 * t - 5 * mpmath.sin(t) + t * mpmath.cos(t)) / (2 * t**3),
    ),
    "a3": (
        adjoint_coefficient(2),
        lambda t: (2 - t * mpmath.sin(t) - 2 * mpmath.cos(t)) / (2 * t**4),
    ),
    "a4": (
        adjoint_coefficient(3),
        lambda t: (2 * t - 3 * mpmath.sin(t) + t * mpmath.cos(t)) / (2 * t**5),
    ),
}


@pytest.mark.parametrize("name", ALL_SERIES)
def test_series_and_three_derivatives_have_all_digits(name):
    """Where the closed form loses digits, and more digits in higher derivatives."""
    closed = ALL_SERIES[name][1]
    x = np.array([1e-3, 0.06, 0.26, 0.5, 1.0, 2.0, 3.9, 4.1, 7.0])
    found = np.stack([value_and_derivatives(name)(a) for a in x])
    with mpmath.workdps(50):
        expected = [
            [mpmath.diff(lambda y: closed(mpmath.sqrt(y)), mpmath.mpf(a), k) for k in range(4)]
            for a in x
        ]
    expected = np.array(expected, float)
    # The cosine crosses zero: its error is relative to its largest value.
    scale = np.max(np.abs(expected), axis=0) if name == "cos" else np.abs(expected)
    # The radius of convergence of the cotangent's series is 4 pi^2, so it converges more slowly.
    tolerance = 1e-12 if name == "half_cot" else 1e-13
    assert np.max(np.abs(found - expected) / scale) < tolerance


def turn(t):
    """The angle of the logarithm of a rotation by 2 t about an axis."""
    return so3.quaternion_log(jnp.stack([jnp.sin(t), 0 * t, 0 * t, jnp.cos(t)]))[0]


turn_rate, turn_curvature = jax.jit(jax.grad(turn)), jax.jit(jax.grad(jax.grad(turn)))


@pytest.mark.parametrize("angle", [0.3, 0.5, 0.505, 0.51, 0.7, 1.0, 1.04, 1.05, 2.0, 3.0])
def test_logarithm_and_its_derivatives_have_all_digits(angle):
    """Near the switch between the series and the closed form, along one axis."""
    t = angle / 2
    assert abs(turn(t) - angle) < 4e-16 * angle
    assert abs(turn_rate(t) - 2) < 4e-15
    assert abs(turn_curvature(t)) < 1e-13


LENGTHS = {"float64": [1e-300, 1e-160, 1e-20, 0.5, 1.0, -1.0, 3.0, 1e20, 1e160, 1.7e308]}
LENGTHS["float32"] = [1e-36, 1e-20, 0.7, 1.0, -1.0, 1e20, 3.4e38]


@pytest.mark.parametrize(("dtype", "length"), [(t, x) for t in LENGTHS for x in LENGTHS[t]])
def test_quaternion_reading_ignores_length_and_sign(dtype, length):
    """For all lengths in the range of the dtype, also where the square of a length overflows."""
    # The largest entry is 1, so that its product with a length is in the range of the dtype.
    q = so3.quaternion_exp(rotation_vector(1.2)).astype(dtype)
    q = q / jnp.max(jnp.abs(q))
    unit, longer = so3.quaternion_normalize(q), jnp.asarray(length, dtype) * q
    eps = float(jnp.finfo(dtype).eps)
    close(so3.quaternion_to_matrix(longer), so3.quaternion_to_matrix(unit), 4 * eps)
    close(so3.quaternion_log(longer), so3.quaternion_log(unit), 8 * eps)
    close(so3.quaternion_normalize(longer), float(np.sign(length)) * unit, 2 * eps)


def test_lengths_of_a_power_of_two_change_no_digit():
    """The rotation matrix of a unit quaternion is also exact: there is no second rounding."""
    q = so3.quaternion_exp(rotation_vector(1.2))
    for length in (2.0**-900, 0.25, 2.0, 2.0**900):
        np.testing.assert_array_equal(
            so3.quaternion_to_matrix(length * q), so3.quaternion_to_matrix(q)
        )


def plain_matrix(q):
    """The formula of textbooks, for its derivatives."""
    x, y, z, w = q
    rows = [
        [w * w + x * x - y * y - z * z, 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), w * w - x * x + y * y - z * z, 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z],
    ]
    return jnp.array(rows) / jnp.sum(q * q)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_three_derivatives_of_quaternion_reading(mode):
    """They equal those of the plain formula, also along the quaternion, where they are zero."""
    plain = {
        so3.quaternion_to_matrix: plain_matrix,
        so3.quaternion_normalize: lambda q: q / jnp.sqrt(jnp.sum(q * q)),
    }
    for function, formula in plain.items():
        q = 1.7 * so3.quaternion_exp(rotation_vector(2.5))
        close(function(q), formula(q), 1e-15)
        for _ in range(3):
            function, formula = mode(function), mode(formula)
            close(jax.jit(function)(q), jax.jit(formula)(q), 1e-13)
    first = jax.jit(mode(so3.quaternion_to_matrix))
    close(first(q) @ q, jnp.zeros((3, 3)), 1e-15)
    # For other lengths they are divided by the length.
    for length in (1e-300, 1e-160, 1e160, 1e300):
        close(first(length * q) * length, first(q), 1e-13)


def test_differences_of_quaternions_of_any_length():
    """In single precision, where the product of two quaternions overflows or underflows."""
    ball = joints.Spherical()
    q0, q1 = (so3.quaternion_exp(rotation_vector(x, x)).astype("float32") for x in (1, 2))
    expected = ball.difference(q0, q1)
    for a, b in ((1e-30, 1e-30), (1e30, 1e30), (-1e-30, 1e30)):
        found = ball.difference(jnp.float32(a) * q0, jnp.float32(b) * q1)
        close(found, expected, 1e-6)
        close(ball.integrate(jnp.float32(a) * q0, expected), float(np.sign(a)) * q1, 1e-6)


def test_zero_quaternion_is_the_identity_with_finite_derivatives():
    zero = jnp.zeros(4)
    close(so3.quaternion_to_matrix(zero), jnp.eye(3), 0)
    close(so3.quaternion_normalize(zero), jnp.array([0.0, 0, 0, 1]), 0)
    for function in (so3.quaternion_to_matrix, so3.quaternion_normalize, so3.quaternion_log):
        for transform in (jax.jacfwd, jax.jacrev):
            assert np.all(np.isfinite(jax.jit(transform(function))(zero)))


def test_quaternion_product_is_the_product_of_rotations(rng):
    q, r = (so3.quaternion_normalize(jnp.array(rng.normal(size=(6, 4)))) for _ in range(2))
    product = so3.quaternion_to_matrix(so3.quaternion_multiply(q, r))
    close(product, so3.quaternion_to_matrix(q) @ so3.quaternion_to_matrix(r), 1e-14)
    back = so3.quaternion_multiply(q, so3.quaternion_conjugate(q))
    close(back, jnp.broadcast_to(jnp.array([0.0, 0, 0, 1]), (6, 4)), 1e-15)


def test_quaternion_from_matrix_in_every_branch():
    """Near each of the four basis quaternions, where each of the four rows is the largest."""
    for branch in range(4):
        q = so3.quaternion_normalize(jnp.eye(4)[branch] + 0.1)
        found = so3.quaternion_from_matrix(so3.quaternion_to_matrix(q))
        close(found * jnp.sign(jnp.sum(found * q)), q, 1e-15)


def test_roll_pitch_yaw_turn_about_fixed_axes():
    r, p, y = 0.3, -1.1, 2.0
    turns = [so3.exp(a * jnp.eye(3)[i]) for i, a in enumerate((r, p, y))]
    close(so3.rotation_from_rpy(jnp.array([r, p, y])), turns[2] @ turns[1] @ turns[0], 1e-15)


@functools.partial(jax.jit, static_argnums=0)
def derivatives_of_log(mode, w):
    """The derivatives of log(exp(w) exp(d)) by d at 0, by matrices and quaternions; the third."""
    q = so3.quaternion_exp(w)

    def of_matrix(d):
        return so3.log(so3.exp(w) @ so3.exp(d))

    def of_quaternion(d):
        return so3.quaternion_log(so3.quaternion_multiply(q, so3.quaternion_exp(d)))

    zero = jnp.zeros(3)
    third = jax.jacfwd(mode(jax.jacfwd(of_quaternion)))(zero)
    return mode(of_matrix)(zero), mode(of_quaternion)(zero), third


@pytest.mark.parametrize("angle", nightly.all_but([1e-9], [0.0, 1e-9, 1e-4, 1.5, np.pi - 1e-3]))
@pytest.mark.parametrize("mode", nightly.all_but([jax.jacrev], [jax.jacfwd, jax.jacrev]))
def test_derivatives_of_log_are_the_inverse_jacobian(angle, mode):
    """d log(exp(w) exp(d)) / dd at 0 is the inverse of the right Jacobian, by both modes."""
    w = rotation_vector(angle)
    by_matrix, by_quaternion, third = derivatives_of_log(mode, w)
    close(by_matrix, so3.right_jacobian_inverse(w), 1e-9)
    close(by_quaternion, so3.right_jacobian_inverse(w), 1e-10)
    assert np.all(np.isfinite(third))


@jax.jit
def rate_of_log(xi, twist):
    def coordinates(t):
        return se3.log(spatial.compose(se3.exp(xi), se3.exp(t * twist)))

    return jax.jvp(coordinates, (0.0,), (1.0,))[1]


@pytest.mark.parametrize("angle", [0.0, 1e-9, 1e-4, 1.5, np.pi - 1e-3])
def test_rate_of_the_logarithm_of_a_pose(angle):
    """For a pose with a body velocity: the inverse right Jacobian times the velocity."""
    xi = jnp.concatenate([jnp.array([0.3, -2.0, 1.0]), rotation_vector(angle)])
    twist = jnp.array([0.5, 1.0, -0.7, 0.2, -1.1, 0.4])
    close(rate_of_log(xi, twist), se3.right_jacobian_inverse(xi) @ twist, 1e-9)


def test_exp_and_log_in_float32():
    for angle in ANGLES:
        w = rotation_vector(angle).astype(jnp.float32)
        R = so3.exp(w)
        assert R.dtype == jnp.float32
        close(R, so3.exp(rotation_vector(angle)).astype(jnp.float32), 3e-7)
        if angle < 3.1:
            close(so3.log(R), w, 1e-5)
