"""Analytic derivatives and rates, compared with central differences and automatic derivatives.

Central differences of order eight have errors of 1e-11 here, are independent of JAX's rules and
compile quickly, so all quantities of all robots are compared with them. Automatic derivatives are
compared for all quantities on one small robot, and for the dynamics on all robots.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import jaxrbd as rbd
from support import zoo
from support.zoo import close

MODELS = {
    "connected": lambda: zoo.connected().with_dissipation(),
    "coupled": lambda: zoo.coupled().with_dissipation(),
    "following": lambda: zoo.following().with_dissipation(),
}
REFERENCES = ("local", "world", "local_world_aligned")
FRAME = 2
POINT = jnp.array([0.3, -0.2, 0.5])


def references(model):
    """All references if no joint follows another; else only the last, to save compilation."""
    return REFERENCES if model.velocity_map_is_identity else REFERENCES[2:]


def values(model, q, v, u, f):
    """The quantities that are differentiated; u is an acceleration, or forward dynamics' torque."""
    X = rbd.frame_placement(model, q, FRAME)
    return {
        "rnea": rbd.rnea(model, q, v, u, f),
        "fd": rbd.forward_dynamics(model, q, v, u, f),
        **{f"V {r}": rbd.frame_velocity(model, q, v, FRAME, r) for r in references(model)},
        **{f"A {r}": rbd.frame_acceleration(model, q, v, u, FRAME, r) for r in references(model)},
        "point": rbd.spatial.transform_point(X, POINT),
        "com": rbd.center_of_mass(model, q),
        "h": rbd.centroidal_momentum(model, q, v),
        "hdot": rbd.algorithms.centroidal_momentum_rate(model, q, v, u),
    }


def matrices(model, q):
    """The matrices whose time derivatives are compared."""
    return {
        **{f"J {r}": rbd.frame_jacobian(model, q, FRAME, r) for r in references(model)},
        "A": rbd.centroidal_momentum_matrix(model, q),
        "M": rbd.crba(model, q),
    }


def first_derivatives(model, q, v, u, f):
    """The results of the analytic functions, with the names of `values`."""
    d = {
        "rnea": rbd.rnea_derivatives(model, q, v, u, f),
        "fd": rbd.forward_dynamics_derivatives(model, q, v, u, f),
        "point": (rbd.algorithms.point_jacobian(model, q, FRAME, POINT),),
        "com": (rbd.com_jacobian(model, q),),
        "h": (rbd.algorithms.centroidal_derivatives(model, q, v, u).dh_dq,),
        "hdot": rbd.algorithms.centroidal_derivatives(model, q, v, u)[1:],
    }
    for r in references(model):
        V = rbd.algorithms.frame_velocity_derivatives(model, q, v, FRAME, r)
        V_q, *A = rbd.algorithms.frame_acceleration_derivatives(model, q, v, u, FRAME, r)
        d |= {f"V {r}": V, f"A {r}": A, f"V {r} again": (V_q,)}
    return d


STEP = 0.005
STENCIL = {1: 4 / 5, 2: -1 / 5, 3: 4 / 105, 4: -1 / 280}


def differences(function, n):
    """The Jacobian at zero of a pytree-valued function of n numbers, its last axis new."""
    offsets = jnp.concatenate([sign * k * STEP * jnp.eye(n) for k in STENCIL for sign in (1, -1)])
    sampled = jax.vmap(function)(offsets)
    weights = jnp.array([sign * c / STEP for c in STENCIL.values() for sign in (1, -1)])

    def combine(y):
        y = y.reshape(len(weights), n, *y.shape[1:])
        return jnp.moveaxis(jnp.tensordot(weights, y, 1), 0, -1)

    return jax.tree.map(combine, sampled)


def in_three(differentiate, function, model, q, v, u):
    """Derivatives of function(q, v, u) in q, v and u, by the function `differentiate`."""

    def of_all(x):
        dq, dv, du = jnp.split(x, 3)
        return function(rbd.integrate(model, q, dq), v + dv, u + du)

    jacobian = differentiate(of_all, 3 * model.nv)
    return jax.tree.map(lambda J: jnp.split(J, 3, axis=-1), jacobian)


def automatically(function, n):
    return jax.jacfwd(function)(jnp.zeros(n))


@jax.jit
def by_differences(model, q, v, u, f):
    """Numerical first derivatives and rates."""
    rates = differences(lambda t: matrices(model, rbd.integrate(model, q, t[0] * v)), 1)
    numerical = in_three(differences, lambda *x: values(model, *x, f), model, q, v, u)
    return numerical, jax.tree.map(lambda x: x[..., 0], rates)


analytically = jax.jit(first_derivatives)


@functools.cache
def case(name):
    model = MODELS[name]()
    state = zoo.state(model)
    return model, state, by_differences(model, *state)


def compare(analytic, other, tolerance, what):
    for quantity, found in analytic.items():
        for variable, ours, theirs in zip("qvu", found, other[quantity.removesuffix(" again")]):
            close(ours, theirs, tolerance, f"{what}, d({quantity})/d{variable}")


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_first_derivatives_are_right(name):
    model, state, (numerical, _) = case(name)
    compare(analytically(model, *state), numerical, 1e-10, name)


@pytest.mark.slow
def test_first_derivatives_are_the_automatic_ones():
    model = zoo.small()
    q, v, u, f = zoo.state(model)

    @jax.jit
    def automatic(model, q, v, u, f):
        return in_three(automatically, lambda *x: values(model, *x, f), model, q, v, u)

    compare(analytically(model, q, v, u, f), automatic(model, q, v, u, f), 1e-12, "small")


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_derivatives_of_the_dynamics_are_the_automatic_ones(name):
    model, (q, v, u, f), _ = case(name)

    def dynamics(q, v, u):
        return {
            "rnea": rbd.rnea(model, q, v, u, f),
            "fd": rbd.forward_dynamics(model, q, v, u, f),
        }

    automatic = jax.jit(lambda: in_three(automatically, dynamics, model, q, v, u))()
    analytic = analytically(model, q, v, u, f)
    compare({key: analytic[key] for key in automatic}, automatic, 1e-11, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_rates_are_the_derivatives_along_the_motion(name):
    model, (q, v, u, _), (_, rates) = case(name)
    for r in references(model):
        close(rbd.frame_jacobian_dot(model, q, v, FRAME, r), rates[f"J {r}"], 1e-10, r)
    A_dot = rbd.algorithms.centroidal_momentum_matrix_dot(model, q, v)
    close(A_dot, rates["A"], 1e-10, "centroidal momentum matrix")
    A = rbd.centroidal_momentum_matrix(model, q)
    close(A @ v, rbd.centroidal_momentum(model, q, v), 1e-12)
    close(A @ u + A_dot @ v, rbd.algorithms.centroidal_momentum_rate(model, q, v, u), 1e-12)
    for r in references(model):
        J = rbd.frame_jacobian(model, q, FRAME, r)
        J_dot = rbd.frame_jacobian_dot(model, q, v, FRAME, r)
        close(J @ u + J_dot @ v, rbd.frame_acceleration(model, q, v, u, FRAME, r), 1e-12, r)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_coriolis_matrix(name):
    """`dM/dt - 2 C` is skew-symmetric, and `C v` is the velocity part of the bias force."""
    model, (q, v, _, _), (_, rates) = case(name)
    C = rbd.coriolis_matrix(model, q, v)
    skew = rates["M"] - 2 * C
    close(skew, -skew.T, 1e-10)
    bias = rbd.bias_force(model.with_dissipation(False), q, v)
    close(C @ v, bias - rbd.gravity_force(model, q), 1e-12)


def test_coriolis_matrix_is_made_of_christoffel_symbols():
    """For joints of one dof: `C_ij = sum_k (d_k M_ij + d_j M_ik - d_i M_jk) v_k / 2`."""
    model = zoo.build(["revolute", "prismatic", "helical", "revolute"], [-1, 0, 1, 1], seed=6)
    q, v, _, _ = zoo.state(model)
    dM = jax.jit(jax.jacfwd(rbd.crba, argnums=1))(model, q)
    gamma = (dM + jnp.swapaxes(dM, 1, 2) - jnp.moveaxis(dM, 2, 0)) / 2
    close(rbd.coriolis_matrix(model, q, v), gamma @ v, 1e-12)


@jax.jit
def second_orders(model, q, v, u, weights, f):
    """The analytic second derivatives, and differences of the analytic first derivatives."""

    def gradients(q, v, u):
        rnea = rbd.rnea_derivatives(model, q, v, u, f)
        forward_dynamics = rbd.forward_dynamics_derivatives(model, q, v, u, f)
        return [[weights @ x for x in first] for first in (rnea, forward_dynamics)]

    numerical = in_three(differences, gradients, model, q, v, u)
    return (
        (rbd.rnea_second_order(model, q, v, u, weights, f), numerical[0]),
        (rbd.forward_dynamics_second_order(model, q, v, u, weights, f), numerical[1]),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_second_derivatives_are_those_of_the_first(name):
    model, (q, v, u, f), _ = case(name)
    weights = jnp.cos(jnp.arange(1.0, model.nv + 1))
    for analytic, first in second_orders(model, q, v, u, weights, f):
        (qq, qv, qu), (_, vv, vu), (_, _, uu) = first
        close(analytic[0], (qq + qq.T) / 2, 1e-9, f"{name}: dq dq")
        close(analytic[1], qv, 1e-9, f"{name}: dq dv")
        close(analytic[2], vv, 1e-9, f"{name}: dv dv")
        close(analytic[3], qu, 1e-9, f"{name}: dq du")
        close(vu, jnp.zeros_like(vu), 1e-9)
        close(uu, jnp.zeros_like(uu), 1e-9)


@pytest.mark.slow
def test_second_derivatives_are_the_hessian_of_the_values():
    """Compared with automatic derivatives of the values on a small robot."""
    model = zoo.small()
    q, v, u, f = zoo.state(model)
    weights = jnp.cos(jnp.arange(1.0, model.nv + 1))

    def torque(dq, v, u):
        return weights @ rbd.rnea(model, rbd.integrate(model, q, dq), v, u, f)

    (qq, qv, qu), (_, vv, _), _ = jax.jit(jax.hessian(torque, argnums=(0, 1, 2)))(
        jnp.zeros(model.nv), v, u
    )
    for ours, theirs in zip(rbd.rnea_second_order(model, q, v, u, weights, f), (qq, qv, vv, qu)):
        close(ours, theirs, 1e-11)


@pytest.mark.slow
def test_at_rest():
    """Derivatives at v = 0 and the neutral configuration.

    The robot has no friction, which is not continuous there.
    """
    model = zoo.connected().with_dissipation()
    model = eqx.tree_at(lambda m: m.friction, model, 0 * model.friction)
    zero, f = jnp.zeros(model.nv), jnp.zeros((model.nb, 6))
    state = (rbd.neutral(model), zero, zero, f)
    numerical, _ = by_differences(model, *state)
    compare(analytically(model, *state), numerical, 1e-10, "at rest")
