"""Joint damping and Coulomb friction: their values, and their effect in all dynamics."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import jaxrbd as rbd
from jaxrbd import constraints as con
from support import finite_differences, nightly, zoo
from support.zoo import close

TREES = {"small": zoo.small, "connected": zoo.connected}
MODELS = {**TREES, "coupled": zoo.coupled, "following": zoo.following}


@jax.jit
def lost_power(model, q, v):
    """The lost power, from rates of the joints: sum of `damping rate^2 + friction |rate|`, in W."""
    free = eqx.tree_at(lambda m: m.coupling, model, None, is_leaf=lambda c: c is None)

    def coordinates(t):
        moved = rbd.integrate(model, q, t * v)
        return moved if model.coupling is None else model.coupling.position(moved)

    start = coordinates(0.0)
    rates = finite_differences.slope(lambda t: rbd.difference(free, start, coordinates(t)))
    return jnp.sum(model.damping * rates**2 + model.friction * jnp.abs(rates))


@pytest.mark.parametrize("name", nightly.all_but(["coupled"], MODELS))
def test_the_power_of_the_passive_force_is_what_the_joints_lose(name):
    """Also for joints that follow others, with velocities that are multiples of their leaders'."""
    model = MODELS[name]()
    q, v, _, _ = zoo.state(model)
    close(v @ rbd.passive_force(model, q, v), -lost_power(model, q, v), 1e-10)


def test_each_dof_of_a_tree_has_its_own():
    model = zoo.connected()
    q, v, _, _ = zoo.state(model)
    expected = -(model.damping * v + model.friction * jnp.sign(v))
    close(rbd.passive_force(model, q, v), expected, 1e-15)
    assert len(set(model.damping.tolist())) == len(set(model.friction.tolist())) == model.nv


@jax.jit
def motions(model, q, v, u, f):
    return {
        "rnea": rbd.rnea(model, q, v, u, f),
        "bias_force": rbd.bias_force(model, q, v, f),
        "forward_dynamics": rbd.forward_dynamics(model, q, v, u, f),
        "aba": rbd.aba(model, q, v, u, f),
        "gravity_force": rbd.gravity_force(model, q),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["connected", "coupled"])
def test_dissipation_is_a_torque_that_the_joints_lack(name):
    model = MODELS[name]()
    q, v, u, f = zoo.state(model)
    passive = rbd.passive_force(model, q, v)
    lossy, free = motions(model.with_dissipation(), q, v, u, f), motions(model, q, v, u, f)
    pushed = motions(model, q, v, u + passive, f)
    close(lossy["rnea"], free["rnea"] - passive)
    close(lossy["bias_force"], free["bias_force"] - passive)
    close(lossy["forward_dynamics"], pushed["forward_dynamics"], 1e-11)
    close(lossy["aba"], pushed["aba"], 1e-11)
    close(lossy["gravity_force"], free["gravity_force"])


def test_maximal_coordinates_have_it():
    model = zoo.small()
    q, v, u, f = zoo.state(model)
    pushed = u + rbd.passive_force(model, q, v)
    found = con.maximal_dynamics(model.with_dissipation(), q, v, u, f)
    close(found.acceleration, rbd.forward_dynamics(model, q, v, pushed, f), 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["small", "coupled"])
def test_derivatives_are_the_differences_of_values(name):
    """Derivatives of rnea in v against differences of its values."""
    model = MODELS[name]().with_dissipation()
    q, v, u, _ = zoo.state(model)
    h = 1e-3
    steps = h * jnp.array([-2.0, -1.0, 1.0, 2.0])[:, None, None] * jnp.eye(model.nv)
    torque = functools.partial(rbd.rnea, model)
    values = jax.jit(jax.vmap(jax.vmap(lambda dv: torque(q, v + dv, u))))(steps)
    slope = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * h)
    close(rbd.rnea_derivatives(model, q, v, u).dtau_dv, slope.T, 1e-9)


def test_derivatives_of_forward_dynamics_are_taken_at_its_acceleration():
    """In q: as without dissipation, at the joint forces that give the same acceleration."""
    model = zoo.small()
    q, v, u, f = zoo.state(model)
    pushed = u + rbd.passive_force(model, q, v)
    found = rbd.forward_dynamics_derivatives(model.with_dissipation(), q, v, u, f)
    free = rbd.forward_dynamics_derivatives(model, q, v, pushed, f)
    close(found.dqdd_dq, free.dqdd_dq, 1e-10)
    assert jnp.abs(found.dqdd_dv - free.dqdd_dv).max() > 1e-3  # the damping is differentiated
