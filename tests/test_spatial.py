"""Spatial algebra: every operator against its 6x6 matrix, and the axioms they obey."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrbd import se3, spatial
from jaxrbd.errors import ArgumentError
from support.zoo import close, random_inertia

N = 5  # stacked operands, so that every test is one of broadcasting too


@pytest.fixture
def poses(rng):
    exp = jax.jit(se3.exp)
    return [exp(jnp.array(rng.normal(size=(N, 6)))) for _ in range(3)]


@pytest.fixture
def vectors(rng):
    return [jnp.array(rng.normal(size=(N, 6))) for _ in range(3)]


@pytest.fixture
def inertia(rng):
    return jnp.array([random_inertia(rng) for _ in range(N)])


def apply(matrices, vectors):
    return jnp.einsum("nij,nj->ni", matrices, vectors)


OPERATORS = {
    "transform_motion": (spatial.transform_motion, spatial.motion_matrix),
    "inverse_transform_motion": (spatial.inverse_transform_motion, spatial.inverse_motion_matrix),
    "transform_force": (spatial.transform_force, spatial.force_matrix),
    "inverse_transform_force": (spatial.inverse_transform_force, spatial.inverse_force_matrix),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_action_is_its_matrix(name, poses, vectors):
    operator, matrix = OPERATORS[name]
    close(operator(poses[0], vectors[0]), apply(matrix(poses[0]), vectors[0]), 1e-14)


def test_matrices_are_those_of_the_sheet(poses):
    """Block by block, with the two signs that the printed sheets lack (X^-1 and X*)."""
    X = jax.tree.map(lambda x: x[0], poses[0])
    R, px, o = X.R, spatial.skew(X.p), jnp.zeros((3, 3))
    close(spatial.motion_matrix(X), jnp.block([[R, px @ R], [o, R]]), 1e-15)
    close(spatial.inverse_motion_matrix(X), jnp.block([[R.T, -R.T @ px], [o, R.T]]), 1e-15)
    close(spatial.force_matrix(X), jnp.block([[R, o], [px @ R, R]]), 1e-15)
    close(spatial.inverse_force_matrix(X), jnp.block([[R.T, o], [-R.T @ px, R.T]]), 1e-15)


def test_inverse_matrices(poses):
    X, one = poses[0], jnp.broadcast_to(jnp.eye(6), (N, 6, 6))
    close(spatial.motion_matrix(X) @ spatial.inverse_motion_matrix(X), one, 1e-14)
    close(spatial.force_matrix(X) @ spatial.inverse_force_matrix(X), one, 1e-14)
    transposed = jnp.swapaxes(spatial.force_matrix(X), -1, -2)
    close(transposed @ spatial.motion_matrix(X), one, 1e-14)


def test_power_does_not_depend_on_the_frame(poses, vectors):
    v, f, _ = vectors
    moved = spatial.transform_motion(poses[0], v) * spatial.transform_force(poses[0], f)
    close(jnp.sum(moved, -1), jnp.sum(v * f, -1), 1e-13)


def test_group_axioms(poses):
    A, B, C = poses
    left = spatial.compose(spatial.compose(A, B), C)
    right = spatial.compose(A, spatial.compose(B, C))
    jax.tree.map(lambda a, b: close(a, b, 1e-14), left, right)
    one = spatial.identity_pose()
    for X in (spatial.compose(A, spatial.inverse(A)), spatial.inverse_compose(A, A)):
        close(X.R, jnp.broadcast_to(one.R, (N, 3, 3)), 1e-14)
        close(X.p, jnp.broadcast_to(one.p, (N, 3)), 1e-14)
    jax.tree.map(
        lambda a, b: close(a, b, 1e-14),
        spatial.inverse_compose(A, B),
        spatial.compose(spatial.inverse(A), B),
    )


def test_composition_is_the_product_of_homogeneous_matrices(poses):
    A, B, _ = poses
    product = spatial.pose_matrix(A) @ spatial.pose_matrix(B)
    close(spatial.pose_matrix(spatial.compose(A, B)), product, 1e-14)
    round_trip = spatial.pose_from_matrix(spatial.pose_matrix(A))
    jax.tree.map(lambda a, b: close(a, b, 0), round_trip, A)


def test_methods_of_poses_are_products_and_inverses_of_matrices(poses):
    A, B, C = poses
    H_A, H_B, H_C = A.matrix, B.matrix, C.matrix
    close(H_A, spatial.pose_matrix(A), 0)
    close(H_A[:, :3, :3], A.R, 0)
    close(H_A[:, :3, 3], A.p, 0)
    close(H_A[:, 3], jnp.broadcast_to(jnp.array([0.0, 0.0, 0.0, 1.0]), (N, 4)), 0)
    close((A @ B).matrix, H_A @ H_B, 1e-14)
    close((A @ B @ C).matrix, H_A @ H_B @ H_C, 1e-14)
    close(A.inverse().matrix, jnp.linalg.inv(H_A), 1e-13)
    assert type(A @ B) is type(A.inverse()) is spatial.Pose


@pytest.mark.slow
def test_methods_of_poses_under_vmap_broadcasting_and_grad(poses):
    A, B, _ = poses

    def product(a, b):
        return (a @ b.inverse()).matrix

    expected = A.matrix @ jnp.linalg.inv(B.matrix)
    close(jax.vmap(product)(A, B), expected, 1e-13)
    first = jax.tree.map(lambda x: x[0], B)
    broadcast = A.matrix @ jnp.linalg.inv(first.matrix)
    close(product(A, first), broadcast, 1e-13)
    close(jax.vmap(product, in_axes=(0, None))(A, first), broadcast, 1e-13)

    xi, eta = jnp.array(np.random.default_rng(1).normal(size=(2, 6)))
    weights = jnp.array(np.random.default_rng(2).normal(size=(4, 4)))

    def by_methods(xi):
        return jnp.sum(weights * (se3.exp(xi) @ se3.exp(eta).inverse()).matrix)

    def by_matrices(xi):
        inverse = jnp.linalg.inv(spatial.pose_matrix(se3.exp(eta)))
        return jnp.sum(weights * (spatial.pose_matrix(se3.exp(xi)) @ inverse))

    close(jax.grad(by_methods)(xi), jax.grad(by_matrices)(xi), 1e-13)


@pytest.mark.parametrize("other", [2.0, np.float64(2.0), np.eye(4), jnp.eye(4), None])
def test_a_pose_composes_with_poses_alone(other):
    X = spatial.identity_pose()
    for product in (lambda: X @ other, lambda: other @ X):
        with pytest.raises(ArgumentError, match=r"a pose is of the type .*, expected a Pose"):
            product()


def test_vectors_with_one_part_zero(vectors):
    x = vectors[0]
    linear, angular = spatial.from_linear(x[:, :3]), spatial.from_angular(x[:, 3:])
    close(linear + angular, x, 0)
    close(linear[:, 3:], jnp.zeros((N, 3)), 0)
    close(angular[:, :3], jnp.zeros((N, 3)), 0)


def test_points(poses, rng):
    x = jnp.array(rng.normal(size=(N, 3)))
    H = spatial.pose_matrix(poses[0])
    homogeneous = jnp.concatenate([x, jnp.ones((N, 1))], axis=-1)
    close(spatial.transform_point(poses[0], x), apply(H, homogeneous)[:, :3], 1e-14)
    back = spatial.inverse_transform_point(poses[0], spatial.transform_point(poses[0], x))
    close(back, x, 1e-14)
    close(spatial.inverse_rotate(poses[0].R, spatial.rotate(poses[0].R, x)), x, 1e-14)


def test_cross_products_are_their_matrices(vectors):
    v, m, _ = vectors
    close(spatial.cross_motion(v, m), apply(spatial.cross_motion_matrix(v), m), 1e-14)
    close(spatial.cross_force(v, m), apply(spatial.cross_force_matrix(v), m), 1e-14)


def test_cross_product_axioms(vectors):
    """Antisymmetry, the Jacobi identity, and duality of the two products."""
    a, b, c = vectors
    x, xf = spatial.cross_motion, spatial.cross_force
    close(x(a, b), -x(b, a), 1e-14)
    close(x(a, x(b, c)) + x(b, x(c, a)) + x(c, x(a, b)), jnp.zeros((N, 6)), 1e-13)
    close(jnp.sum(x(a, b) * c, -1), -jnp.sum(b * xf(a, c), -1), 1e-13)


def test_cross_products_are_rates_of_transforms(vectors):
    """d/dt of X(t) m for X moving with v from the identity: v x m; likewise for forces."""
    v, m, _ = vectors
    for transform, cross in (
        (spatial.transform_motion, spatial.cross_motion),
        (spatial.transform_force, spatial.cross_force),
    ):

        @jax.jit
        def rate_and_product(v, m, transform=transform, cross=cross):
            rate = jax.jvp(lambda t: transform(se3.exp(t * v), m), (0.0,), (1.0,))[1]
            return rate, cross(v, m)

        close(*rate_and_product(v, m), 1e-14)


def test_inertia_of_point_masses(rng):
    """Ten numbers from masses and points equal the integral over the body, as a 6x6 matrix."""
    masses, points = rng.uniform(0.1, 2, size=7), rng.normal(size=(7, 3))
    expected = np.zeros((6, 6))
    for m, p in zip(masses, points):
        J = np.hstack([np.eye(3), -np.array(spatial.skew(jnp.array(p)))])  # velocity of the point
        expected += m * J.T @ J
    m, com = masses.sum(), masses @ points / masses.sum()
    about = points - com
    I_com = sum(k * (r @ r * np.eye(3) - np.outer(r, r)) for k, r in zip(masses, about))
    inertia = spatial.inertia_from_com(jnp.array(m), jnp.array(com), jnp.array(I_com))
    close(spatial.inertia_matrix(inertia), expected, 1e-14)
    close(spatial.inertia_center_of_mass(inertia), com, 1e-15)


def test_inertia_action_and_its_velocity_product(inertia, vectors):
    v = vectors[0]
    momentum = apply(spatial.inertia_matrix(inertia), v)
    close(spatial.apply_inertia(inertia, v), momentum, 1e-14)
    close(spatial.gyroscopic_force(inertia, v), spatial.cross_force(v, momentum), 1e-13)


def test_velocity_product_costs_what_it_says(inertia, vectors):
    """Five crosses, one 3x3 product, one scaling by m and three additions of vectors."""
    jaxpr = jax.make_jaxpr(spatial.gyroscopic_force)(inertia[0], vectors[0][0])
    operations = [equation.primitive.name for equation in jaxpr.eqns]
    assert operations.count("mul") == 5 * 6 + 9 + 3
    assert operations.count("sub") + operations.count("add") == 5 * 3 + 6 + 3 * 3


def test_inertia_changes_frame_as_its_matrix_does(inertia, poses):
    X = poses[0]
    moved = spatial.transform_inertia(X, inertia)
    product = (
        spatial.force_matrix(X) @ spatial.inertia_matrix(inertia) @ spatial.inverse_motion_matrix(X)
    )
    close(spatial.inertia_matrix(moved), product, 1e-13)
    close(spatial.inverse_transform_inertia(X, moved), inertia, 1e-13)


def test_inertias_add(inertia):
    """The sum of two bodies by mass, centre and inertia about it (the sheet stops before this)."""
    p, q = inertia[0], inertia[1]
    cp, cq = spatial.inertia_center_of_mass(p), spatial.inertia_center_of_mass(q)

    def about_com(I):
        X = spatial.Pose(jnp.eye(3), spatial.inertia_center_of_mass(I))
        return spatial.inertia_matrix(spatial.inverse_transform_inertia(X, I))[3:, 3:]

    m = p[0] + q[0]
    lever = spatial.skew(cp - cq)
    I_com = about_com(p) + about_com(q) - p[0] * q[0] / m * lever @ lever
    by_hand = spatial.inertia_from_com(m, (p[0] * cp + q[0] * cq) / m, I_com)
    close(p + q, by_hand, 1e-14)


def test_massless_inertia_has_a_center_of_mass():
    close(spatial.inertia_center_of_mass(jnp.zeros(10)), jnp.zeros(3), 0)
    gradient = jax.jacrev(spatial.inertia_center_of_mass)(jnp.zeros(10))
    assert np.all(np.isfinite(gradient))


def test_featherstone_converters(poses, vectors):
    """His (2.24) and (2.31) in his order and with his (E, r)."""
    X, v = jax.tree.map(lambda x: x[0], poses[0]), vectors[0][0]
    E, r = spatial.pose_to_featherstone(X)
    o = jnp.zeros((3, 3))
    his = jnp.block([[E, o], [-E @ spatial.skew(r), E]])
    close(spatial.swap_blocks(spatial.inverse_motion_matrix(X)), his, 1e-15)
    close(his @ spatial.swap_halves(v), spatial.swap_halves(spatial.inverse_transform_motion(X, v)))
    linear, angular = spatial.skew(v[:3]), spatial.skew(v[3:])
    crm = jnp.block([[angular, o], [linear, angular]])
    close(spatial.swap_blocks(spatial.cross_motion_matrix(v)), crm, 0)
    jax.tree.map(lambda a, b: close(a, b, 0), spatial.pose_from_featherstone(E, r), X)
    close(spatial.swap_halves(spatial.swap_halves(v)), v, 0)


def test_skew_is_the_cross_product(vectors):
    """With two different vectors: of parallel ones the product is 0, whatever the sign."""
    a, b = vectors[0][:, :3], vectors[1][:, :3]
    close(apply(spatial.skew(a), b), jnp.cross(a, b), 1e-14)
    close(spatial.skew(a)[0], -spatial.skew(a)[0].T, 0)


def test_points_of_a_body_and_moments_about_points(vectors):
    """Featherstone's (2.1) and (2.6): velocity of the point x, moment about the point x."""
    (v, f, _), x = vectors, vectors[2][:, :3]
    at_x = spatial.Pose(jnp.broadcast_to(jnp.eye(3), (N, 3, 3)), x)
    moved = spatial.inverse_transform_motion(at_x, v)
    close(moved[:, :3], v[:, :3] + jnp.cross(v[:, 3:], x), 1e-14)
    close(moved[:, 3:], v[:, 3:], 0)
    moved = spatial.inverse_transform_force(at_x, f)
    close(moved[:, :3], f[:, :3], 0)
    close(moved[:, 3:], f[:, 3:] + jnp.cross(f[:, :3], x), 1e-14)


def test_line_vectors_and_free_vectors(poses, vectors):
    """A force along a line has f . n = 0 in every frame, and slides; a couple only turns."""
    X, f, x = poses[0], vectors[0][:, :3], vectors[1][:, :3]
    along = jnp.concatenate([f, jnp.cross(x, f)], axis=-1)
    slid = jnp.concatenate([f, jnp.cross(x + 2 * f, f)], axis=-1)
    close(slid, along, 1e-13)
    moved = spatial.transform_force(X, along)
    close(jnp.sum(moved[:, :3] * moved[:, 3:], -1), jnp.zeros(N), 1e-13)
    about = spatial.transform_point(X, x)
    close(moved[:, 3:], jnp.cross(about, spatial.rotate(X.R, f)), 1e-13)
    zero = jnp.zeros_like(f)
    turned = spatial.rotate(X.R, f)
    couple = spatial.transform_force(X, jnp.concatenate([zero, f], axis=-1))
    close(couple, jnp.concatenate([zero, turned], axis=-1), 0)
    translation = spatial.transform_motion(X, jnp.concatenate([f, zero], axis=-1))
    close(translation, jnp.concatenate([turned, zero], axis=-1), 0)


def test_rates_in_moving_coordinates(poses, vectors, rng):
    """Featherstone's (2.36) and (2.45), for frames A and B that move with velocities in A."""
    (X_OA, X_OB, _), (v_A, v_B, m) = poses, vectors
    ring = jnp.array(rng.normal(size=(N, 6)))

    def A(t):
        return spatial.compose(X_OA, se3.exp(t * v_A))

    X_AB = spatial.inverse_compose(X_OA, X_OB)
    v_B_own = spatial.inverse_transform_motion(X_AB, v_B)

    def X_BA(t):
        return spatial.inverse_compose(spatial.compose(X_OB, se3.exp(t * v_B_own)), A(t))

    in_O = jax.jvp(lambda t: spatial.transform_motion(A(t), m + t * ring), (0.0,), (1.0,))[1]
    dot = ring + spatial.cross_motion(v_A, m)
    close(in_O, spatial.transform_motion(X_OA, dot), 1e-13)
    X, dX = jax.jvp(lambda t: spatial.motion_matrix(X_BA(t)), (0.0,), (1.0,))
    relative = apply(X, v_A - v_B)
    close(dX, spatial.cross_motion_matrix(relative) @ X, 1e-13)


def test_inverse_actions_cost_what_the_actions_do(poses, vectors):
    """The sheet calls X^-1 and X^-* the cheaper ones; counted, they are not."""

    def operations(transform):
        X = jax.tree.map(lambda x: x[0], poses[0])
        jaxpr = jax.make_jaxpr(transform)(X, vectors[0][0])
        counts = Counter()
        for equation in jaxpr.eqns:
            counts[equation.primitive.name] += equation.outvars[0].aval.size
        return counts["mul"], counts["add"] + counts["sub"]

    for transform, _ in OPERATORS.values():
        assert operations(transform) == (24, 18)


def test_the_triplet_about_the_centre_of_mass(inertia, poses):
    """The sheet's (m, c, I): it goes to (m, p + R c, R I R^T), with I about the centre of mass."""
    R, p = poses[0]
    m, c, I = spatial.inertia_to_com(inertia)
    I_A = R @ I @ jnp.swapaxes(R, -1, -2)
    by_hand = spatial.inertia_from_com(m, spatial.rotate(R, c) + p, I_A)
    close(spatial.transform_inertia(poses[0], inertia), by_hand, 1e-13)


def test_momentum_and_its_rate(inertia, vectors):
    """Newton's and Euler's equations at the centre of mass, moved to the frame's origin."""
    v, a, _ = vectors
    m, c, I = spatial.inertia_to_com(inertia)
    w, m = v[:, 3:], m[:, None]
    at_com = v[:, :3] + jnp.cross(w, c)
    h_com = apply(I, w)
    momentum = jnp.concatenate([m * at_com, h_com + jnp.cross(c, m * at_com)], axis=-1)
    close(spatial.apply_inertia(inertia, v), momentum, 1e-13)
    # the classical acceleration of the centre of mass
    a_com = a[:, :3] + jnp.cross(a[:, 3:], c) + jnp.cross(w, at_com)
    n_com = apply(I, a[:, 3:]) + jnp.cross(w, h_com)
    force = jnp.concatenate([m * a_com, n_com + jnp.cross(c, m * a_com)], axis=-1)
    ours = spatial.apply_inertia(inertia, a) + spatial.gyroscopic_force(inertia, v)
    close(ours, force, 1e-13)

    def momentum_in_world(t):
        """Of a body with velocity v and spatial acceleration a."""
        return spatial.transform_force(se3.exp(t * v), spatial.apply_inertia(inertia, v + t * a))

    rate = jax.jit(lambda: jax.jvp(momentum_in_world, (0.0,), (1.0,))[1])()
    close(rate, ours, 1e-13)


def test_inertias_broadcast_over_leading_axes(poses, rng):
    """One inertia at several poses, and several masses in an array of NumPy."""
    X, inertia = poses[0], jnp.asarray(random_inertia(rng))
    several = spatial.transform_inertia(X, inertia)
    close(several, spatial.transform_inertia(X, jnp.broadcast_to(inertia, (N, 10))), 0)
    masses, (_, c, I) = np.arange(1.0, N + 1), spatial.inertia_to_com(inertia)
    inertias = spatial.inertia_from_com(masses, c, I)
    close(inertias[-1], spatial.inertia_from_com(float(N), c, I), 0)


@pytest.mark.gives_nan
def test_the_inverse_inertia(rng):
    """Against the matrix inverse; as a map from a force to the acceleration of a body at rest."""
    inertia = jnp.stack([jnp.asarray(random_inertia(rng)) for _ in range(3)])
    inverse = spatial.inverse_inertia_matrix(inertia)
    close(spatial.inertia_matrix(inertia) @ inverse, jnp.broadcast_to(jnp.eye(6), (3, 6, 6)), 1e-11)
    force = jnp.asarray(rng.normal(size=(3, 6)))
    acceleration = jnp.einsum("nij,nj->ni", inverse, force)
    close(spatial.apply_inertia(inertia, acceleration), force, 1e-11)
    assert not np.any(np.isfinite(spatial.inverse_inertia_matrix(jnp.zeros(10))))
