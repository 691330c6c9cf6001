"""Each algorithm in a separate call, against other algorithms and differences of values.

A derivative is compared along one direction in q, one in v and one in the last argument, with
differences of the function's values. Each function is a separate small program in the compilation
cache, so that this file finds a faulty function in seconds.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd.algorithms.rnea_derivatives import acceleration_and_derivatives
from support import nightly, zoo
from support.finite_differences import slope
from support.zoo import close

ROBOTS = {
    "connected": lambda: zoo.connected().with_dissipation(),
    "coupled": lambda: zoo.coupled().with_dissipation(),
    "following": lambda: zoo.following().with_dissipation(),
}


def robots(*by_default):
    """All robots as parameters of a test; those that are not `by_default` are marked slow."""
    return pytest.mark.parametrize("robot", nightly.all_but(by_default, ROBOTS), indirect=True)


FRAME = 2


@functools.cache
def case(name):
    """A robot with dissipation, a state, and directions in q, v and the last argument."""
    model = ROBOTS[name]()
    directions = [zoo.state(model, seed)[1] for seed in (1, 2, 3)]
    return model, zoo.state(model), directions


@pytest.fixture
def robot(request):
    return case(request.param)


def directional_derivative(function, robot, which):
    """The derivative of `function(q, v, u)` along the direction of one argument, by differences."""
    model, (q, v, u, _), directions = robot
    d = directions[which]
    moved = (
        lambda t: (rbd.integrate(model, q, t * d), v, u),
        lambda t: (q, v + t * d, u),
        lambda t: (q, v, u + t * d),
    )[which]
    return slope(lambda t: function(*moved(t)), 2e-3), d


def rounding_of_inverse(M):
    """A tolerance for results of solving with M. M must be far from singular."""
    condition = np.linalg.cond(M)
    assert condition < 1e4
    return 1e-14 * condition


def compare(function, robot, derivatives, tolerance=1e-8):
    for which, derivative in enumerate(derivatives):
        expected, d = directional_derivative(function, robot, which)
        close(derivative @ d, expected, tolerance, f"in {'qvu'[which]}")


# --------------------------------------------------------------------------------------- dynamics


@robots("connected")
def test_forward_dynamics_by_three_ways(robot):
    model, (q, v, a, f), _ = robot
    tau = rbd.rnea(model, q, v, a, f)
    M = np.asarray(rbd.crba(model, q))
    tolerance = rounding_of_inverse(M)
    close(rbd.forward_dynamics(model, q, v, tau, f), a, tolerance, "forward_dynamics")
    close(rbd.aba(model, q, v, tau, f), a, tolerance, "aba")
    solved = np.linalg.solve(M, tau - rbd.bias_force(model, q, v, f))
    close(solved, a, tolerance, "crba and bias_force")


@robots("connected")
def test_inertia(robot):
    model, (q, v, a, _), _ = robot
    M = rbd.crba(model, q)
    close(rbd.mass_matrix_product(model, q, a), M @ a)
    close(rbd.kinetic_energy(model, q, v), v @ M @ v / 2)
    close(rbd.minverse(model, q) @ M, jnp.eye(model.nv), rounding_of_inverse(M))
    close(rbd.algorithms.aba_minverse(model, q) @ M, jnp.eye(model.nv), rounding_of_inverse(M))


@robots("connected", "following")
def test_power(robot):
    """The power of tau is the rate of the energy plus the power lost to damping and friction."""
    model, (q, v, a, _), _ = robot

    def energy(t):
        q_t, v_t = rbd.integrate(model, q, t * v), v + t * a
        return rbd.kinetic_energy(model, q_t, v_t) + rbd.potential_energy(model, q_t)

    lost = -v @ rbd.passive_force(model, q, v)
    assert lost > 0.1
    close(v @ rbd.rnea(model, q, v, a), slope(energy) + lost, 1e-9)


@robots("connected")
def test_gravity(robot):
    model, (q, _, _, f), _ = robot
    expected, d = directional_derivative(lambda q, v, u: rbd.potential_energy(model, q), robot, 0)
    close(rbd.gravity_force(model, q) @ d, expected, 1e-9)
    some = range(0, model.nb, 5)
    f = jnp.where((jnp.arange(model.nb) % 5 == 0)[:, None], f, 0)
    V = [rbd.frame_velocity(model, q, d, model.body_names[i], "local") for i in some]
    virtual_work = sum(f[i] @ V_i for i, V_i in zip(some, V))
    held = rbd.algorithms.static_torque(model, q, f) - rbd.gravity_force(model, q)
    close(held @ d, -virtual_work, 1e-11)


@robots("connected", "following")
def test_coriolis_matrix(robot):
    model, (q, v, _, _), _ = robot

    @jax.jit
    def found(t):
        force = rbd.bias_force(model, q, v) + rbd.passive_force(model, q, v)
        without_gravity = force - rbd.gravity_force(model, q)
        moved = rbd.crba(model, rbd.integrate(model, q, t * v))
        return moved, rbd.coriolis_matrix(model, q, v), without_gravity

    M_dot = slope(lambda t: found(t)[0], 1e-3)
    _, C, without_gravity = found(jnp.zeros(()))
    close(M_dot - 2 * C, -(M_dot - 2 * C).T, 1e-9)
    close(C @ v, without_gravity, 1e-12)


@pytest.mark.slow
def test_coriolis_matrix_is_made_of_christoffel_symbols():
    """For joints of one dof: `C_ij = sum_k (d_k M_ij + d_j M_ik - d_i M_jk) v_k / 2`."""
    model = zoo.build(["revolute", "prismatic", "helical", "revolute"], [-1, 0, 1, 1], seed=6)
    q, v, _, _ = zoo.state(model)
    dM = jax.jit(jax.jacfwd(rbd.crba, argnums=1))(model, q)
    gamma = (dM + jnp.swapaxes(dM, 1, 2) - jnp.moveaxis(dM, 2, 0)) / 2
    close(rbd.coriolis_matrix(model, q, v), gamma @ v, 1e-12)


# ------------------------------------------------------------------------------------ derivatives


def test_rnea_derivatives_of_a_follower():
    """In v: the velocity of a joint that follows depends on q and v."""
    kinds = [rbd.joints.Revolute(axis) for axis in ((0, 0, 1), (0, 1, 0), (1, 0, 0))]
    follow = {"j2": rbd.model.Follow(("j0", "j1"), zoo.Polynomial())}
    model = zoo.serial(kinds, np.random.default_rng(0), follow, lambda kind: {})
    q, v, a, d = jnp.array([[0.4, -0.8], [1.0, 0.6], [0.3, -0.2], [0.7, -0.5]])

    @jax.jit
    def both(t):
        derivative = rbd.rnea_derivatives(model, q, v, a).dtau_dv @ d
        return rbd.rnea(model, q, v + t * d, a), derivative

    close(both(jnp.zeros(()))[1], slope(lambda t: both(t)[0]), 1e-9)


@robots("connected")
def test_rnea_derivatives(robot):
    model, (q, v, u, f), _ = robot
    found = rbd.rnea_derivatives(model, q, v, u, f)
    compare(lambda *state: rbd.rnea(model, *state, f), robot, found)


@robots("connected")
def test_forward_dynamics_derivatives(robot):
    model, (q, v, u, f), _ = robot
    found = rbd.forward_dynamics_derivatives(model, q, v, u, f)
    compare(lambda *state: rbd.forward_dynamics(model, *state, f), robot, found, 1e-7)


def test_derivatives_at_rest():
    """At v = 0 and the neutral configuration, without friction, which is not continuous there."""
    model, (_, v, u, f), directions = case("connected")
    model = eqx.tree_at(lambda m: m.friction, model, 0 * model.friction)
    robot = model, (rbd.neutral(model), 0 * v, 0 * u, f), directions
    state = robot[1]
    found = rbd.rnea_derivatives(model, *state)
    compare(lambda *x: rbd.rnea(model, *x, f), robot, found)
    found = rbd.forward_dynamics_derivatives(model, *state)
    compare(lambda *x: rbd.forward_dynamics(model, *x, f), robot, found, 1e-7)


def test_the_acceleration_of_the_derivatives_of_a_long_chain():
    """It satisfies `M a + bias = tau` to rounding, although M is ill-conditioned."""
    model = zoo.chain(64)

    @jax.jit
    def errors(q, v, tau):
        a = acceleration_and_derivatives(model, q, v, tau)[0]
        M, bias = rbd.crba(model, q), rbd.bias_force(model, q, v)
        return M @ a + bias - tau, jnp.abs(M) @ jnp.abs(a) + jnp.abs(bias), M

    for seed in range(3):
        q = rbd.random_configuration(model, jax.random.key(seed))
        v, tau = jax.random.normal(jax.random.key(seed + 50), (2, model.nv))
        error, terms, M = errors(q, v, tau)
        assert np.linalg.cond(M) > 1e4
        assert jnp.max(jnp.abs(error)) < 2e-15 * jnp.max(terms)


@pytest.mark.slow
def test_forward_dynamics_derivatives_of_a_long_chain():
    """The mass matrix is ill-conditioned: the acceleration comes from a solve, not the inverse."""
    model = zoo.chain(64)
    for seed in range(3):
        q = rbd.random_configuration(model, jax.random.key(seed))
        v, u = jax.random.normal(jax.random.key(seed + 50), (2, model.nv))
        found = rbd.forward_dynamics_derivatives(model, q, v, u).dqdd_dq
        expected = rbd.jacobian(model, lambda q: rbd.forward_dynamics(model, q, v, u))(q)
        assert np.abs(found - expected).max() < 5e-12 * np.abs(expected).max()


@pytest.mark.slow
@pytest.mark.parametrize("robot", ROBOTS, indirect=True)
def test_derivatives_of_the_dynamics_are_the_automatic_ones(robot):
    """With more digits than differences have."""
    model, (q, v, u, f), _ = robot

    def automatic(dynamics):
        def moved(dq, v, u):
            return dynamics(model, rbd.integrate(model, q, dq), v, u, f)

        return jax.jit(jax.jacfwd(moved, argnums=(0, 1, 2)))(jnp.zeros(model.nv), v, u)

    for dynamics, derivatives in (
        (rbd.rnea, rbd.rnea_derivatives),
        (rbd.forward_dynamics, rbd.forward_dynamics_derivatives),
    ):
        for found, expected in zip(derivatives(model, q, v, u, f), automatic(dynamics)):
            close(found, expected, 1e-11)


@pytest.mark.parametrize("inverse", [True, False], ids=["rnea", "forward_dynamics"])
@pytest.mark.parametrize(
    "robot", [pytest.param("connected", marks=pytest.mark.slow), "coupled"], indirect=True
)
def test_second_order(robot, inverse):
    """Compared with differences of the first derivatives, which are tested above."""
    model, (q, v, u, f), _ = robot
    weights = jnp.cos(jnp.arange(1.0, model.nv + 1))
    first = rbd.rnea_derivatives if inverse else rbd.forward_dynamics_derivatives
    second = rbd.rnea_second_order if inverse else rbd.forward_dynamics_second_order
    dq_dq, dq_dv, dv_dv, dq_du = second(model, q, v, u, weights, f)

    def gradient(k):
        return lambda *state: weights @ first(model, *state, f)[k]

    in_q, d = directional_derivative(gradient(0), robot, 0)
    close(d @ dq_dq @ d, d @ in_q, 1e-7, "q q")
    close(dq_dq, dq_dq.T, 1e-12)
    for name, k, which, derivative in (
        ("v q", 1, 0, dq_dv.T),
        ("q v", 0, 1, dq_dv),
        ("v v", 1, 1, dv_dv),
        ("q u", 0, 2, dq_du),
    ):
        expected, d = directional_derivative(gradient(k), robot, which)
        close(derivative @ d, expected, 1e-7, name)


@pytest.mark.slow
def test_second_derivatives_are_the_hessian_of_the_values():
    model = zoo.small()
    q, v, u, f = zoo.state(model)
    weights = jnp.cos(jnp.arange(1.0, model.nv + 1))

    def torque(dq, v, u):
        return weights @ rbd.rnea(model, rbd.integrate(model, q, dq), v, u, f)

    (qq, qv, qu), (_, vv, _), _ = jax.jit(jax.hessian(torque, argnums=(0, 1, 2)))(
        jnp.zeros(model.nv), v, u
    )
    for found, expected in zip(rbd.rnea_second_order(model, q, v, u, weights, f), (qq, qv, vv, qu)):
        close(found, expected, 1e-11)


@robots("connected")
def test_centroidal_derivatives(robot):
    model, (q, v, u, _), _ = robot
    dh_dq, *dhdot, A = rbd.algorithms.centroidal_derivatives(model, q, v, u)
    compare(lambda q, v, u: rbd.centroidal_momentum(model, q, v), robot, (dh_dq, A))
    compare(
        lambda q, v, u: rbd.algorithms.centroidal_momentum_rate(model, q, v, u),
        robot,
        (*dhdot, A),
        1e-8,
    )


@robots("connected")
def test_centroidal_momentum(robot):
    model, (q, v, u, _), _ = robot
    A, A_dot = (
        rbd.centroidal_momentum_matrix(model, q),
        rbd.algorithms.centroidal_momentum_matrix_dot(model, q, v),
    )
    rate = slope(
        lambda t: rbd.centroidal_momentum_matrix(model, rbd.integrate(model, q, t * v)), 1e-3
    )
    close(A_dot, rate, 1e-9)
    close(rbd.centroidal_momentum(model, q, v), A @ v)
    close(rbd.algorithms.centroidal_momentum_rate(model, q, v, u), A @ u + A_dot @ v)
    com, d = directional_derivative(lambda q, v, u: rbd.center_of_mass(model, q), robot, 0)
    close(rbd.com_jacobian(model, q) @ d, com, 1e-9)


@pytest.mark.parametrize(
    "reference", nightly.all_but(["local_world_aligned"], ["local", "world", "local_world_aligned"])
)
@robots("connected")
def test_motion_of_a_frame(robot, reference):
    model, (q, v, u, _), _ = robot
    frame = (FRAME, reference)
    J, J_dot = (
        rbd.frame_jacobian(model, q, *frame),
        rbd.frame_jacobian_dot(model, q, v, *frame),
    )
    rate = slope(lambda t: rbd.frame_jacobian(model, rbd.integrate(model, q, t * v), *frame), 1e-3)
    close(J_dot, rate, 1e-9)
    close(rbd.frame_velocity(model, q, v, *frame), J @ v)
    close(rbd.frame_acceleration(model, q, v, u, *frame), J @ u + J_dot @ v)
    V_q, *A = rbd.algorithms.frame_acceleration_derivatives(model, q, v, u, *frame)
    compare(lambda q, v, u: rbd.frame_velocity(model, q, v, *frame), robot, (V_q, J))
    compare(lambda q, v, u: rbd.frame_acceleration(model, q, v, u, *frame), robot, A)


@robots("connected")
def test_position_of_a_frame(robot):
    """The classical acceleration is the second time derivative of the position in the world."""
    model, (q, v, a, _), _ = robot

    def velocity(t):
        q_t, v_t = rbd.integrate(model, q, t * v), v + t * a
        return rbd.frame_velocity(model, q_t, v_t, FRAME)[:3]

    def position(t):
        return rbd.frame_placement(model, rbd.integrate(model, q, t * v), FRAME).p

    close(rbd.frame_velocity(model, q, v, FRAME)[:3], slope(position), 1e-9)
    close(rbd.frame_acceleration(model, q, v, a, FRAME)[:3], slope(velocity), 1e-9)
    point = jnp.array([0.3, -0.2, 0.5])

    def position_of_point(q, v, u):
        return rbd.spatial.transform_point(rbd.frame_placement(model, q, FRAME), point)

    expected, d = directional_derivative(position_of_point, robot, 0)
    close(rbd.algorithms.point_jacobian(model, q, FRAME, point) @ d, expected, 1e-9)


@robots("connected")
def test_regressors(robot):
    model, (q, v, a, _), _ = robot
    model = model.with_dissipation(False)
    light = eqx.tree_at(lambda m: m.armature, model, 0 * model.armature)
    inertias = model.inertia.ravel()
    close(rbd.joint_torque_regressor(model, q, v, a) @ inertias, rbd.rnea(light, q, v, a))
    close(
        rbd.algorithms.potential_energy_regressor(model, q) @ inertias,
        rbd.potential_energy(model, q),
    )
    close(
        rbd.algorithms.kinetic_energy_regressor(model, q, v) @ inertias,
        rbd.kinetic_energy(light, q, v),
    )
