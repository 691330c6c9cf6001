"""Gradients, Jacobians and Hessians in the tangent space of the configuration."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from support import zoo
from support.zoo import close


def cross_matrix(x):
    return np.cross(x, np.eye(3), axisb=0, axisc=0)


def test_derivatives_of_a_rotation():
    """A turn s changes `c = R^T a` by c x s, so the gradient of c . b is b x c."""
    model = zoo.build(["spherical"], [-1])
    q = zoo.state(model)[0]
    a, b = np.random.default_rng(0).normal(size=(2, 3))

    def vector(q, scale=1.0):
        return scale * jnp.matmul(a, rbd.so3.quaternion_to_matrix(q), precision="highest")

    def product(q):
        return jnp.sum(b * vector(q))

    @jax.jit
    def derivatives(q):
        lie = rbd.hessian(model, product, "lie")(q)
        of_product = rbd.gradient(model, product)(q), lie, rbd.hessian(model, product)(q)
        return vector(q), rbd.jacobian(model, vector)(q, 2.0), *of_product

    c, jacobian, gradient, lie, retraction = derivatives(q)
    close(jacobian, 2 * cross_matrix(c), 1e-14)
    close(gradient, np.cross(b, c), 1e-14)
    expected = cross_matrix(b) @ cross_matrix(np.asarray(c))
    close(lie, expected, 1e-13)
    close(retraction, (expected + expected.T) / 2, 1e-13)
    assert np.max(np.abs(expected - expected.T)) > 0.1


@pytest.mark.slow
def test_gradient_and_jacobian():
    model = zoo.connected()
    q, _, _, _ = zoo.state(model)
    potential = functools.partial(rbd.potential_energy, model)
    close(jax.jit(rbd.gradient(model, potential))(q), rbd.gravity_force(model, q))
    com = rbd.jacobian(model, lambda q, scale: scale * rbd.center_of_mass(model, q))
    close(jax.jit(com)(q, 2.0), 2 * rbd.com_jacobian(model, q))


@pytest.mark.slow
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
