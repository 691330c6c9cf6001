"""The derivative rule of forward dynamics, compared with the derivatives of the linear solve.

For a `Kinematics`, JAX differentiates the solve with M and the poses of the bodies. This is another
program, which uses no displacements.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from support import finite_differences, zoo
from support.zoo import close

# A small robot, one tree with all joint kinds, and several trees.
ROBOTS = {
    "small": zoo.small,
    "connected": lambda: zoo.connected().with_dissipation(),
    "everywhere": zoo.everywhere,
}


def state(model):
    """A state whose quaternions have not the length 1, and external forces."""
    rng = np.random.default_rng(0)
    q = 1.3 * rbd.random_configuration(model, jax.random.key(0))
    v, tau = (jnp.asarray(x) for x in rng.normal(size=(2, model.nv)))
    return (q, v, tau), jnp.asarray(rng.normal(size=(model.nb, 6)))


def both_ways(function):
    """The results of a function of forward dynamics, for a configuration and for a `Kinematics`."""

    def by_poses(model, q, *rest):
        return rbd.forward_dynamics(model, rbd.forward_kinematics(model, q), *rest)

    return function(rbd.forward_dynamics), function(by_poses)


@pytest.mark.parametrize(
    ("robot", "order"),
    [
        ("small", 2),
        pytest.param("connected", 3, marks=pytest.mark.slow),
        pytest.param("everywhere", 3, marks=pytest.mark.slow),
    ],
)
def test_derivatives_of_any_order(robot, order):
    """The gradient, and its derivatives along one direction up to the given order."""
    model = ROBOTS[robot]()
    at, f_ext = state(model)
    rng = np.random.default_rng(1)
    direction = tuple(jnp.asarray(rng.normal(size=x.shape)) for x in at)

    def derivatives(dynamics):
        def total(*x):
            return jnp.sum(jnp.sin(dynamics(model, *x, f_ext) / 10))

        def gradient(*x):
            return jax.grad(total, (0, 1, 2))(*x)

        def curvature(*x):
            return jax.jvp(gradient, x, direction)

        highest = {2: gradient, 3: curvature}[order]
        return jax.jit(lambda: jax.jvp(highest, at, direction))()

    jax.tree.map(lambda x, y: close(x, y, 1e-10), *both_ways(derivatives))


@functools.cache
def floating_chain():
    """A floating chain of three bodies, its state, and forces on the bodies."""
    with jax.ensure_compile_time_eval():  # the first call is in a traced function
        model = zoo.build(["free_flyer", "revolute", "revolute"], [-1, 0, 1])
        return model, zoo.state(model)


@jax.jit
def moved_acceleration(t, directions):
    """The acceleration of the chain, t along directions in q, v and tau, and its derivative."""
    model, (q, v, tau, f_ext) = floating_chain()
    dq, dv, dtau = directions

    def acceleration(t):
        moved = rbd.integrate(model, q, t * dq), v + t * dv, tau + t * dtau
        return rbd.forward_dynamics(model, *moved, f_ext)

    return jax.jvp(acceleration, (t,), (jnp.ones_like(t),))


@pytest.mark.parametrize("changed", ["q", "v", "tau"])
def test_derivatives_are_differences_of_accelerations(changed):
    direction = np.cos(np.arange(8.0))
    directions = jnp.stack([direction * (changed == name) for name in ("q", "v", "tau")])
    derivative = moved_acceleration(jnp.zeros(()), directions)[1]
    close(
        derivative, finite_differences.slope(lambda t: moved_acceleration(t, directions)[0]), 1e-8
    )


def test_derivatives_by_the_mass():
    """Of a pendulum: `a = (tau - m g l sin(q)) / (m l^2)`, in the mass m at constant l."""
    length, g, tau, angle = 0.7, 9.81, 0.4, 0.6
    inertia = rbd.model.link_inertia(1.0, (0, 0, -length))
    spec = rbd.model.JointSpec("hinge", rbd.joints.Revolute((0, 1, 0)), None, "bob")
    model = rbd.build_model([rbd.model.Link("bob", inertia)], [spec], gravity=(0, 0, -g))

    @jax.jit
    def of_mass(m):
        q, v, force = (jnp.array([x]) for x in (angle, 2.0, tau))

        def acceleration(m):
            heavier = dataclasses.replace(model, inertia=m * model.inertia)
            return rbd.forward_dynamics(heavier, q, v, force)[0]

        return jax.value_and_grad(acceleration)(m)

    m = 1.3
    value, derivative = of_mass(m)
    close(value, tau / (m * length**2) - g * np.sin(angle) / length, 1e-12)
    close(derivative, -tau / (m**2 * length**2), 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("changed", ["q", "v", "tau"])
def test_derivatives_by_one_argument(changed):
    model = zoo.small()
    at, f_ext = state(model)
    i = ["q", "v", "tau"].index(changed)

    def derivative(dynamics):
        def one(x):
            return dynamics(model, *at[:i], x, *at[i + 1 :], f_ext)

        return jax.jit(jax.jacfwd(one))(at[i])

    close(*both_ways(derivative), 1e-11)


@pytest.mark.slow
def test_derivatives_by_the_model_of_derivatives_by_the_state():
    model = zoo.small()
    at, f_ext = state(model)

    def mixed(dynamics):
        def gradient(inertia, x, f_ext):
            moved = dataclasses.replace(model, inertia=inertia, placement=model.placement)
            return jax.grad(lambda *x: jnp.sum(dynamics(moved, *x, f_ext)), (0, 1, 2))(*x)

        operands = model.inertia, at, f_ext
        return jax.jit(lambda *x: jax.jvp(gradient, x, x))(*operands)

    jax.tree.map(lambda x, y: close(x, y, 1e-10), *both_ways(mixed))
