"""Pseudo-inertia, log-Cholesky parameters, physical consistency, central inertia."""

import warnings

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import inertial_parameters as ip, se3, spatial
from jaxrbd.model.checks import inertia_faults
from support import real_robots
from support.zoo import close, random_inertia

# Compiled: JAX would compile each of their operations alone.
is_consistent = jax.jit(ip.is_physically_consistent)
consistency_margin, log_cholesky = jax.jit(ip.consistency_margin), jax.jit(ip.log_cholesky)
inertia_from_log_cholesky = jax.jit(ip.inertia_from_log_cholesky)

N = 6  # stacked, so that every test also tests broadcasting


@pytest.fixture
def inertia(rng):
    return jnp.array([random_inertia(rng) for _ in range(N)])


@pytest.fixture
def theta(rng):
    return jnp.array(rng.normal(size=(N, 10)))


def jacobians(function, x):
    """The Jacobians of a function of one inertia at each inertia of a stack."""
    return jax.jit(jax.vmap(jax.jacfwd(function)))(x)


def differences(function, x, step=1e-3):
    """Fourth-order central differences, (N, out, in)."""
    offsets = step * jnp.eye(x.shape[-1])
    a, b, c, d = (function(x[:, None] + k * offsets[None]) for k in (-2, -1, 1, 2))
    return jnp.swapaxes((a - 8 * b + 8 * c - d) / (12 * step), -1, -2)


# ------------------------------------------------------------------------ numbers about the centre


def test_numbers_about_the_centre_of_mass(rng):
    """From (masses, centers, inertias) to the ten parameters and back."""
    m, c = jnp.array(rng.uniform(1, 2, N)), jnp.array(rng.normal(size=(N, 3)))
    half = jnp.array(rng.normal(size=(N, 3, 3)))
    I = half + jnp.swapaxes(half, -1, -2)
    for back, expected in zip(
        spatial.inertia_to_com(spatial.inertia_from_com(m, c, I)), (m, c, I), strict=True
    ):
        close(back, expected, 1e-14)


def test_massless_numbers_stay_as_they_are():
    ten = jnp.arange(10.0)  # only the mass is zero
    m, c, I = spatial.inertia_to_com(ten)
    close(m, jnp.array(0.0), 0)
    close(c, jnp.zeros(3), 0)
    close(I, jnp.array([[4.0, 5, 7], [5, 6, 8], [7, 8, 9]]), 0)
    chex.assert_tree_all_finite(jax.jit(jax.jacrev(spatial.inertia_to_com))(ten))


# -------------------------------------------------------------------------------- pseudo-inertia


def test_pseudo_inertia_of_point_masses(rng):
    m, x = rng.uniform(0.1, 1, 7), np.c_[rng.normal(size=(7, 3)), np.ones(7)]
    inertia = sum(rbd.model.link_inertia(mass, point) for mass, point in zip(m, x[:, :3]))
    close(ip.pseudo_inertia(jnp.array(inertia)), np.einsum("n,ni,nj", m, x, x), 1e-14)


def test_pseudo_inertia_and_back(rng):
    anything = jnp.array(rng.normal(size=(N, 10)))
    close(ip.inertia_from_pseudo(ip.pseudo_inertia(anything)), anything, 1e-15)


def test_pseudo_inertia_moves_by_congruence(inertia, rng):
    """With the homogeneous matrix H of a pose, J_A = H J_B H^T."""
    X = se3.exp(jnp.array(rng.normal(size=(N, 6))))
    H = spatial.pose_matrix(X)
    moved = ip.pseudo_inertia(spatial.transform_inertia(X, inertia))
    close(moved, H @ ip.pseudo_inertia(inertia) @ jnp.swapaxes(H, -1, -2), 1e-13)


# -------------------------------------------------------------------------------- log-Cholesky


def test_log_cholesky_is_the_factor_of_the_pseudo_inertia(theta):
    alpha, d1, d2, d3, s12, s23, s13, t1, t2, t3 = np.moveaxis(np.asarray(theta), -1, 0)
    U = np.zeros((N, 4, 4))
    U[:, 0] = np.stack([np.exp(d1), s12, s13, t1], -1)
    U[:, 1, 1:] = np.stack([np.exp(d2), s23, t2], -1)
    U[:, 2, 2:] = np.stack([np.exp(d3), t3], -1)
    U[:, 3, 3] = 1
    U *= np.exp(alpha)[:, None, None]
    inertia = inertia_from_log_cholesky(theta)
    close(ip.pseudo_inertia(inertia), U @ np.swapaxes(U, -1, -2), 1e-14)
    close(inertia[:, 0], np.exp(2 * alpha), 1e-15)
    close(spatial.inertia_center_of_mass(inertia), theta[:, 7:], 1e-15)


def test_log_cholesky_and_back(inertia, theta):
    close(inertia_from_log_cholesky(log_cholesky(inertia)), inertia)
    close(log_cholesky(inertia_from_log_cholesky(theta)), theta)


@pytest.mark.slow
def test_log_cholesky_derivatives(inertia):
    theta = log_cholesky(inertia)
    forward, backward = (
        jacobians(ip.inertia_from_log_cholesky, theta),
        jacobians(ip.log_cholesky, inertia),
    )
    close(forward @ backward, jnp.broadcast_to(jnp.eye(10), (N, 10, 10)), 1e-11)
    close(forward, differences(ip.inertia_from_log_cholesky, theta), 1e-10)
    # The step along each of the ten parameters is relative to its value.
    scale = jnp.abs(inertia[:, :, None] * jnp.eye(10)[None])
    relative = differences(lambda k: log_cholesky(inertia[:, None] * (1 + k)), 0 * inertia, 1e-4)
    close(backward @ scale, relative * jnp.sign(inertia)[:, None], 1e-7)
    curvature = jax.jit(jax.vmap(jax.hessian(ip.inertia_from_log_cholesky)))(theta)
    close(curvature, jnp.swapaxes(curvature, -1, -2), 1e-14)
    reverse = jax.jit(jax.vmap(jax.jacrev(ip.log_cholesky)))(inertia)
    close(reverse, backward, 1e-12)


def test_every_theta_is_consistent(rng):
    theta = jnp.array(3 * rng.normal(size=(200, 10)))
    inertia = inertia_from_log_cholesky(theta)
    assert np.all(is_consistent(inertia))
    assert np.all(np.linalg.eigvalsh(ip.pseudo_inertia(inertia)) > -1e-13 * inertia[:, 4:7].sum())


@pytest.mark.gives_nan
def test_log_cholesky_is_not_finite_outside():
    """For a point mass, zero, a violated triangle inequality, and negative mass."""
    outside = jnp.array(
        [
            rbd.model.link_inertia(1.0, (0, 0, 0)),
            np.zeros(10),
            rbd.model.link_inertia(1.0, (0, 0, 0), np.diag([1.0, 1.0, 2.5])),
            -rbd.model.link_inertia(1.0, (0, 0, 0), np.diag([1.0, 1.0, 1.0])),
        ]
    )
    assert not np.any(np.all(np.isfinite(log_cholesky(outside)), axis=-1))


def test_pseudo_inertia_and_log_cholesky_are_those_of_pinocchio(theta):
    pin = pytest.importorskip("pinocchio", reason="Pinocchio has no wheel for this platform")
    ours = inertia_from_log_cholesky(theta)
    derivatives = jacobians(ip.inertia_from_log_cholesky, theta)
    for row, inertia, derivative in zip(np.asarray(theta), ours, derivatives):
        theirs = pin.LogCholeskyParameters(row)
        close(inertia, theirs.toDynamicParameters(), 1e-14)
        close(ip.pseudo_inertia(inertia), theirs.toPseudoInertia().toMatrix(), 1e-14)
        close(derivative, theirs.calculateJacobian(), 1e-14)


# ------------------------------------------------------------------------ physical consistency


def test_margin_is_the_least_eigenvalue_about_the_centre(inertia, rng):
    m, _, I = spatial.inertia_to_com(inertia)
    moments = np.linalg.eigvalsh(I)
    least = moments.sum(-1) / 2 - moments[:, -1]
    close(consistency_margin(inertia), np.minimum(least, m), 1e-14)
    X = se3.exp(jnp.array(rng.normal(size=(N, 6))))
    moved = spatial.transform_inertia(X, inertia)
    close(consistency_margin(moved), consistency_margin(inertia), 1e-14)


I_PLATE = np.diag([1.0, 2.0, 3.0])
MARGINS = {
    "ball": (rbd.model.link_inertia(10.0, (0, 0, 0), np.eye(3)), 0.5, True),
    "light ball": (rbd.model.link_inertia(0.1, (0, 0, 0), np.eye(3)), 0.1, True),
    "plate": (rbd.model.link_inertia(10.0, (0, 0, 0), I_PLATE), 0.0, True),
    "rod": (rbd.model.link_inertia(10.0, (0, 0, 0), np.diag([0.0, 1.0, 1.0])), 0.0, True),
    "point far away": (rbd.model.link_inertia(10.0, (3, -4, 5)), 0.0, True),
    "no triangle": (rbd.model.link_inertia(10.0, (0, 0, 0), np.diag([1.0, 1, 2.5])), -0.25, False),
    "negative mass": (rbd.model.link_inertia(-1.0, (0, 0, 0), np.eye(3)), -1.0, False),
    "nothing": (np.zeros(10), 0.0, True),
    "moment without mass": (np.eye(10)[2], -1.0, False),
    "inertia without mass": (rbd.model.link_inertia(0.0, (0, 0, 0), np.eye(3)), -(3**0.5), False),
    "rounded plate": (
        rbd.model.link_inertia(10.0, (0, 0, 0), I_PLATE * [1, 1, 1 + 1e-7]),
        -1.5e-7,
        True,
    ),
}


@pytest.mark.parametrize("name", MARGINS)
def test_margins(name):
    inertia, margin, consistent = MARGINS[name]
    close(consistency_margin(jnp.array(inertia)), jnp.array(margin), 1e-6 * abs(margin) + 1e-13)
    assert bool(is_consistent(jnp.array(inertia))) == consistent


def test_consistency_in_single_precision():
    for name, (inertia, _, consistent) in MARGINS.items():
        single = jnp.array(inertia, jnp.float32)
        assert bool(is_consistent(single)) == consistent, name
        assert consistency_margin(single).dtype == jnp.float32
        assert log_cholesky(single).dtype == jnp.float32


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_what_rounding_leaves_of_a_plate_is_consistent(dtype, rng):
    """Plates, rods and points on the border, far from the frame, for both dtypes."""
    inertias, wrong = [], []
    for thickness in ((1, 1, 0), (1, 0, 0), (0, 0, 0)):
        for _ in range(50):
            turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
            spread = 0.1 * np.array(thickness) * rng.uniform(0.2, 1, 3)
            moments = np.diag(spread.sum() - spread)
            com = rng.normal(size=3)
            inertias.append(rbd.model.link_inertia(1.0, com, moments, turn))
            # the thinnest possible body, and one thinner by a twentieth of its size
            wrong.append(rbd.model.link_inertia(1.0, com, moments - 0.005 * np.eye(3), turn))
    assert np.all(is_consistent(jnp.array(np.array(inertias), dtype)))
    assert not np.any(is_consistent(jnp.array(np.array(wrong), dtype)))


@pytest.mark.gives_nan
def test_nan_is_not_consistent():
    for i in range(10):
        assert not is_consistent(jnp.ones(10).at[i].set(jnp.nan))


@pytest.mark.slow
def test_consistent_is_what_loading_does_not_warn_of(rng):
    """The same bodies as in the warnings of real robots, and random bodies near the border."""
    inertias = []
    for name in real_robots.UNPHYSICAL[::4]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            inertias.append(
                np.asarray(rbd.load_urdf(real_robots.path_of(name), mimic=False).inertia)
            )
    for _ in range(200):
        moments = np.diag(rng.dirichlet(np.ones(3)) - rng.choice([0.0, 0.2]))
        m, c = rng.uniform(0.5, 5), rng.normal(size=3)
        inertias.append(rbd.model.link_inertia(m, c, moments.sum() * np.eye(3) - moments)[None])
    inertias = np.concatenate(inertias)
    links = [rbd.model.Link(str(i), ten) for i, ten in enumerate(inertias)]
    faulty = np.array([link.name in inertia_faults([link]) for link in links])
    assert 50 < faulty.sum() < len(links) - 50
    np.testing.assert_array_equal(is_consistent(jnp.array(inertias)), ~faulty)


@pytest.mark.slow
def test_gradient_of_the_margin(inertia):
    """The gradient equals differences, and is finite where moments are equal."""
    gradient = jax.jit(jax.vmap(jax.grad(ip.consistency_margin)))(inertia)
    numerical = differences(
        lambda k: consistency_margin(inertia[:, None] + k)[..., None], 0 * inertia, 1e-6
    )
    close(gradient, numerical[:, 0], 1e-7)
    for name in ("ball", "light ball", "rod", "nothing", "moment without mass"):
        slope = jax.grad(ip.consistency_margin)(jnp.array(MARGINS[name][0]))
        chex.assert_tree_all_finite(slope, custom_message=name)
