"""The Delassus matrix and the operational-space inertia."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd as rbd
from jaxrbd import algorithms, spatial
from support import zoo
from support.zoo import close


def test_delassus_matrix_and_operational_space_inertia():
    model = zoo.connected()
    q, _, _, _ = zoo.state(model)
    M = rbd.crba(model, q)
    frames = ("l8", "l3")
    J = jnp.concatenate([rbd.frame_jacobian(model, q, name) for name in frames])
    D = rbd.algorithms.delassus_matrix(model, q, frames)
    close(D, J @ jnp.linalg.solve(M, J.T), 1e-11)
    Lambda = rbd.algorithms.operational_space_inertia(model, q, frames)
    close(Lambda @ D, jnp.eye(12), 1e-9)
    damped = rbd.algorithms.operational_space_inertia(model, q, frames, damping=0.5)
    close(damped @ (D + 0.5 * jnp.eye(12)), jnp.eye(12), 1e-11)


def test_inertia_of_a_free_body():
    model = zoo.build(["free_flyer"], [-1])
    q = zoo.state(model)[0]
    inertia = rbd.algorithms.operational_space_inertia(model, q, ("l0",), "local")
    close(inertia, spatial.inertia_matrix(model.inertia[0]), 1e-12)


def test_too_few_dofs_have_no_inertia_without_damping():
    """Three dofs for one frame, and nine for two frames of which each has six.

    In some of the states, rounding errors make the matrix positive definite.
    """
    chain = zoo.chain(3)
    fork = zoo.build(["free_flyer", "revolute", "revolute", "prismatic"], [-1, 0, 1, 0])
    for model, frames in ((chain, ("l2",)), (fork, ("l2", "l3"))):
        q = jnp.stack([zoo.state(model, seed)[0] for seed in range(100)])

        @jax.jit
        @functools.partial(jax.vmap, in_axes=(0, None))
        def inertia(q, damping, model=model, frames=frames):
            return rbd.algorithms.operational_space_inertia(model, q, frames, "local", damping)

        assert jnp.all(jnp.isnan(inertia(q, 0.0)))
        assert jnp.all(jnp.isfinite(inertia(q, 0.5)))


def test_second_derivatives_in_a_loop():
    """They do not come from a rule: `inverse_positive_definite` solves a linear system."""
    model = rbd.load_robot("double_pendulum")
    frames = (model.frame_names[-1],)

    def total(t):
        def step(q, _):
            found = algorithms.minverse(model, q), algorithms.delassus_matrix(model, q, frames)
            first, second = (jnp.sum(jnp.cos(x)) for x in found)
            return q + 0.01 * jnp.stack([first, second]), first + second

        start = jnp.array([0.3, -0.4]) + t * jnp.array([0.5, 0.8])
        return jnp.sum(jax.lax.scan(step, start, length=2)[1])

    gradient = jax.jit(jax.grad(total))
    second = jax.jit(jax.jvp, static_argnums=0)(jax.grad(total), (0.1,), (1.0,))[1]
    h = 1e-5
    difference = (gradient(0.1 + h) - gradient(0.1 - h)) / (2 * h)
    np.testing.assert_allclose(second, difference, rtol=1e-7)
