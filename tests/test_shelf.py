"""Laws of the factors of M, frame inertia, velocity moments, the tangent space, program sizes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import spatial
from support import zoo
from support.zoo import close
from test_arguments import count_equations

MODELS = {
    "everywhere": zoo.everywhere,
    "connected": zoo.connected,
    "coupled": zoo.coupled,
    "chain": lambda: zoo.chain(8),
}


@functools.cache
def case(name):
    model = MODELS[name]()
    q, v, a, _ = zoo.state(model)
    M = rbd.crba(model, q)
    assert np.linalg.cond(M) < 1e4  # else the tolerances of its inverse would say nothing
    return model, q, v, a, M


# -------------------------------------------------------------------------------- factors of M


@pytest.mark.parametrize("name", ["everywhere", "connected", "chain"])
def test_branch_sparse_factor(name):
    """`L^T L = M`, lower-triangular, with the zeros of M, and solving with it gives `M^-1 b`."""
    model, _, _, b, M = case(name)
    L = rbd.algorithms.ltl_factor(model, M)
    close(L.T @ L, M, 1e-14)
    close(jnp.tril(L), L, 0)
    body = model.topology.dof_body
    apart = ~model.topology.supports[np.ix_(body, body)]
    assert not np.any(np.tril(np.array(L)) * (apart & apart.T))
    x = rbd.algorithms.ltl_solve(model, L, b)
    close(M @ x, b, 1e-15 * np.linalg.cond(M))


def test_derivative_of_the_branch_sparse_solution():
    """Through the factor and the solve: `d(M^-1 b) = -M^-1 dM M^-1 b`."""
    model, _, _, b, M = case("chain")
    dM = M @ M

    def solution(M):
        return rbd.algorithms.ltl_solve(model, rbd.algorithms.ltl_factor(model, M), b)

    x, dx = jax.jit(lambda M, dM: jax.jvp(solution, (M,), (dM,)))(M, dM)
    close(dx, -jnp.linalg.solve(M, dM @ x), 1e-14 * np.linalg.cond(M))


def test_no_branches_where_joints_follow_others():
    model, _, _, b, M = case("coupled")
    with pytest.raises(rbd.ArgumentError, match="follow others"):
        rbd.algorithms.ltl_factor(model, M)
    with pytest.raises(rbd.ArgumentError, match="follow others"):
        rbd.algorithms.ltl_solve(model, M, b)


@pytest.mark.parametrize("name", MODELS)
def test_inverse_by_the_dof_tree(name):
    model, q, _, _, M = case(name)
    Minv = rbd.algorithms.aba_minverse(model, q)
    close(M @ Minv, jnp.eye(model.nv), 1e-14 * np.linalg.cond(M))
    close(Minv, Minv.T, 0)


# --------------------------------------------------------------------------- inertia at a frame


def test_delassus_matrix_and_operational_space_inertia():
    model, q, _, _, M = case("connected")
    frames = ("l8", "l3")
    J = jnp.concatenate([rbd.frame_jacobian(model, q, name) for name in frames])
    D = rbd.algorithms.delassus_matrix(model, q, frames)
    close(D, J @ jnp.linalg.solve(M, J.T), 1e-11)
    Lambda = rbd.algorithms.operational_space_inertia(model, q, frames)
    close(Lambda @ D, jnp.eye(12), 1e-9)
    damped = rbd.algorithms.operational_space_inertia(model, q, frames, damping=0.5)
    close(damped @ (D + 0.5 * jnp.eye(12)), jnp.eye(12), 1e-11)


def test_a_free_body_is_felt_as_its_own_inertia():
    model = zoo.build(["free_flyer"], [-1])
    q = zoo.state(model)[0]
    felt = rbd.algorithms.operational_space_inertia(model, q, ("l0",), "local")
    close(felt, spatial.inertia_matrix(model.inertia[0]), 1e-12)


def test_static_torque_balances_gravity_and_external_forces():
    model, q, _, _, _ = case("connected")
    f_ext = zoo.state(model)[3]
    close(rbd.algorithms.static_torque(model, q), rbd.gravity_force(model, q))
    zero = jnp.zeros(model.nv)
    close(rbd.algorithms.static_torque(model, q, f_ext), rbd.rnea(model, q, zero, zero, f_ext))


def test_a_frame_welded_to_a_body():
    """Its velocity is the rate of its pose and is `J v`, and a force on it does its work."""
    rng = np.random.default_rng(4)
    links = [rbd.model.Link(name, zoo.random_inertia(rng)) for name in ("arm", "tool")]
    specs = [
        rbd.model.JointSpec("ball", rbd.joints.Spherical(), None, "arm", zoo.random_placement(rng)),
        rbd.model.JointSpec("weld", rbd.model.Fixed(), "arm", "tool", zoo.random_placement(rng)),
    ]
    model = rbd.build_model(links, specs)
    q, v, _, _ = zoo.state(model)
    R = rbd.frame_placement(model, q, "tool").R

    def pose(t):
        return spatial.pose_matrix(
            rbd.frame_placement(model, rbd.integrate(model, q, t * v), "tool")
        )

    rate = zoo.slope(pose)
    spin = R.T @ rate[:3, :3]
    turning = R @ jnp.array([spin[2, 1], spin[0, 2], spin[1, 0]])
    V = rbd.frame_velocity(model, q, v, "tool")
    close(V, jnp.concatenate([rate[:3, 3], turning]), 1e-10)
    close(rbd.frame_jacobian(model, q, "tool") @ v, V)
    wrench = jnp.array([1.0, -2.0, 0.5, 0.3, 0.7, -0.2])
    f_ext = rbd.external_force(model, q, "tool", wrench)
    V_arm = rbd.frame_velocity(model, q, v, "arm", "local")
    close(f_ext[0] @ V_arm, wrench @ V)


def test_point_jacobian_of_a_frame_fixed_to_the_world():
    base = rbd.model.Link("base")
    arm = rbd.model.Link("arm", rbd.model.link_inertia(1.0, (0, 0, 1)))
    joints = [
        rbd.model.JointSpec("weld", rbd.model.Fixed(), None, "base"),
        rbd.model.JointSpec("hinge", rbd.joints.Revolute((0, 1, 0)), "base", "arm"),
    ]
    model = rbd.build_model([base, arm], joints)
    q = jnp.zeros(1)
    close(rbd.algorithms.point_jacobian(model, q, "base", jnp.ones(3)), jnp.zeros((3, 1)))
    close(
        rbd.algorithms.point_jacobian(model, q, "arm", jnp.array([0, 0, 2.0])),
        jnp.array([[2.0], [0], [0]]),
    )
    zero = jnp.zeros(1)
    for found in rbd.algorithms.frame_acceleration_derivatives(model, q, zero, zero, "base"):
        close(found, jnp.zeros((6, 1)))
    close(rbd.frame_jacobian_dot(model, q, zero, "base"), jnp.zeros((6, 1)))


def test_jacobian_rates_far_from_the_world():
    """No digits are lost a kilometre from the world's origin."""
    model, q, v, a, _ = case("connected")
    far = q.at[:3].add(jnp.array([1000.0, -2000.0, 500.0]))
    close(rbd.coriolis_matrix(model, far, v), rbd.coriolis_matrix(model, q, v), 1e-12)
    for near, there in zip(
        rbd.rnea_derivatives(model, q, v, a), rbd.rnea_derivatives(model, far, v, a)
    ):
        close(there, near, 1e-12)
    A = rbd.algorithms.centroidal_derivatives(model, q, v, a)
    for near, there in zip(A, rbd.algorithms.centroidal_derivatives(model, far, v, a)):
        close(there, near, 1e-11)


# ------------------------------------------------------------------------------ velocity moments


def test_the_velocity_moments_are_the_velocity_dependent_part_of_a_body():
    """`2 B x = v x* I x - I (v x x) + x x* I v`, `B + B^T` the rate of I, and the momentum."""
    rng = np.random.default_rng(3)
    inertia = jnp.array(zoo.random_inertia(rng))
    v, x, y = jnp.array(rng.normal(size=(3, 6)))
    moments = spatial.velocity_moments(inertia, v)
    I, cross = spatial.apply_inertia, spatial.cross_force
    Bx = spatial.apply_velocity_moments(moments, x)
    by_crosses = (
        cross(v, I(inertia, x)) - I(inertia, spatial.cross_motion(v, x)) + cross(x, I(inertia, v))
    )
    close(2 * Bx, by_crosses, 1e-13)
    close(spatial.apply_velocity_moments(moments, v), spatial.gyroscopic_force(inertia, v), 1e-13)
    close(y @ Bx, x[3:] @ spatial.apply_velocity_moments_transpose(moments, y), 1e-13)
    close(spatial.momentum_from_moments(moments), I(inertia, v), 1e-13)

    def moved(t):
        return spatial.transform_inertia(rbd.se3.exp(t * v), inertia)

    rate = jax.jvp(moved, (0.0,), (1.0,))[1]
    close(spatial.inertia_rate_from_moments(moments), rate, 1e-13)


# ------------------------------------------------------------------------------- tangent space


def test_gradient_and_jacobian():
    model, q, _, _, _ = case("connected")
    potential = functools.partial(rbd.potential_energy, model)
    close(jax.jit(rbd.gradient(model, potential))(q), rbd.gravity_force(model, q))
    com = rbd.jacobian(model, lambda q, scale: scale * rbd.center_of_mass(model, q))
    close(jax.jit(com)(q, 2.0), 2 * rbd.com_jacobian(model, q))


def test_both_hessians():
    """The iterated Lie derivative is that of `rnea_derivatives`; the other its symmetric part."""
    model = zoo.small()
    q, _, _, _ = zoo.state(model)
    zero = jnp.zeros(model.nv)
    potential = functools.partial(rbd.potential_energy, model)
    lie = jax.jit(rbd.hessian(model, potential, "lie"))(q)
    retraction = jax.jit(rbd.hessian(model, potential))(q)
    close(lie, rbd.rnea_derivatives(model, q, zero, zero).dtau_dq, 1e-12)
    close(retraction, (lie + lie.T) / 2, 1e-12)
    assert float(jnp.max(jnp.abs(lie - lie.T))) > 0.1


def test_tangent_functions_say_what_is_wrong():
    model = zoo.small()
    with pytest.raises(rbd.ArgumentError, match="definition is 'newton'"):
        rbd.hessian(model, lambda q: q[0], "newton")
    with pytest.raises(rbd.ArgumentError, match="q has shape"):
        rbd.gradient(model, lambda q: q[0])(jnp.zeros(3))


# ------------------------------------------------------------------------ size of the programs


SIZED = {
    "rnea_derivatives": lambda m, q, v: rbd.rnea_derivatives(m, q, v, v),
    "forward_dynamics_derivatives": lambda m, q, v: rbd.forward_dynamics_derivatives(m, q, v, v),
    "rnea_second_order": lambda m, q, v: rbd.rnea_second_order(m, q, v, v, v),
    "coriolis_matrix": rbd.coriolis_matrix,
    "frame_jacobian_dot": lambda m, q, v: rbd.frame_jacobian_dot(m, q, v, "l1"),
    "frame_acceleration_derivatives": lambda m, q, v: rbd.algorithms.frame_acceleration_derivatives(
        m, q, v, v, "l1"
    ),
    "point_jacobian": lambda m, q, v: rbd.algorithms.point_jacobian(m, q, "l1", jnp.ones(3)),
    "centroidal_derivatives": lambda m, q, v: rbd.algorithms.centroidal_derivatives(m, q, v, v),
    "centroidal_momentum_matrix_dot": rbd.algorithms.centroidal_momentum_matrix_dot,
    "delassus_matrix": lambda m, q, v: rbd.algorithms.delassus_matrix(m, q, ("l1",)),
    "aba_minverse": lambda m, q, v: rbd.algorithms.aba_minverse(m, q),
    "ltl": lambda m, q, v: rbd.algorithms.ltl_solve(
        m, rbd.algorithms.ltl_factor(m, rbd.crba(m, q)), v
    ),
    "joint_torque_regressor": lambda m, q, v: rbd.joint_torque_regressor(m, q, v, v),
}


def size(function, model) -> int:
    program = jax.make_jaxpr(function)(model, rbd.neutral(model), jnp.zeros(model.nv))
    return count_equations(program.jaxpr)


@pytest.mark.parametrize("name", SIZED)
def test_program_size_does_not_depend_on_the_robot(name):
    # An inverse halves a matrix three times, if there is something to halve: so from 16 on.
    short, long, very_long = (size(SIZED[name], zoo.chain(n)) for n in (16, 40, 150))
    assert short == long
    assert very_long <= 1.5 * short  # sums over supports are sweeps and not products


def test_derivatives_are_little_more_to_compile_than_the_value():
    """Equations stand for the time: `rnea_derivatives` is to take no more than thrice `rnea`'s."""
    model = rbd.load_robot("humanoid")
    of_value = size(lambda m, q, v: rbd.rnea(m, q, v, v), model)
    assert size(SIZED["rnea_derivatives"], model) < 2 * of_value
    assert size(SIZED["rnea_second_order"], model) < 3 * of_value
