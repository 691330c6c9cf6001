"""Gradients, Jacobians and Hessians in the tangent space of the configuration."""

import functools

import jax
import jax.numpy as jnp
import pytest

import jaxrbd as rbd
from support import zoo
from support.zoo import close


def test_gradient_and_jacobian():
    model = zoo.connected()
    q, _, _, _ = zoo.state(model)
    potential = functools.partial(rbd.potential_energy, model)
    close(jax.jit(rbd.gradient(model, potential))(q), rbd.gravity_force(model, q))
    com = rbd.jacobian(model, lambda q, scale: scale * rbd.center_of_mass(model, q))
    close(jax.jit(com)(q, 2.0), 2 * rbd.com_jacobian(model, q))


def test_both_hessians():
    """Of the potential energy: the first is `dtau_dq` at rest, the second its symmetric part."""
    model = zoo.small()
    q, _, _, _ = zoo.state(model)
    zero = jnp.zeros(model.nv)
    potential = functools.partial(rbd.potential_energy, model)
    lie = jax.jit(rbd.hessian(model, potential, "lie"))(q)
    retraction = jax.jit(rbd.hessian(model, potential))(q)
    close(lie, rbd.rnea_derivatives(model, q, zero, zero).dtau_dq, 1e-12)
    close(retraction, (lie + lie.T) / 2, 1e-12)
    assert float(jnp.max(jnp.abs(lie - lie.T))) > 0.1


def test_wrong_arguments():
    model = zoo.small()
    with pytest.raises(rbd.ArgumentError, match="definition is 'newton'"):
        rbd.hessian(model, lambda q: q[0], "newton")
    with pytest.raises(rbd.ArgumentError, match="q has shape"):
        rbd.gradient(model, lambda q: q[0])(jnp.zeros(3))
