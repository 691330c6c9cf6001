"""The Delassus matrix and the operational-space inertia."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import algorithms, spatial
from support import finite_differences, zoo
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


SCREW = rbd.joints.Custom(1, lambda q: rbd.se3.exp(q[0] * jnp.arange(1.0, 7.0)))
FOLLOWED = {
    "mimic": rbd.model.Mimic("j0", 1.3),
    "function": rbd.model.Follow(("j0",), lambda x: jnp.sin(x[0])),
    "custom": None,
}


@pytest.mark.parametrize("kind", FOLLOWED)
def test_too_few_dofs_of_joints_that_follow_others(kind):
    """Five entries of v move the frame "tip", by six or more dofs of the tree."""
    axes, end = np.eye(3), 5 if kind == "custom" else 6
    links, joints = [], []
    for i in range(end + 1):
        name = "tip" if i == end - 1 else f"l{i}"
        links.append(rbd.model.Link(name, rbd.model.link_inertia(1.0, (0.1, 0.2, 0.3), axes)))
        joint = SCREW if kind == "custom" and i == 0 else rbd.joints.Revolute(axes[i % 3])
        parent = None if i in (0, end) else links[-2].name
        placement = rbd.model.placement_matrix((0.1, 0.2, 0.3), (0.3 * i, 0.2, 0.1))
        rule = FOLLOWED[kind] if i == 5 and kind != "custom" else None
        joints.append(rbd.model.JointSpec(f"j{i}", joint, parent, name, placement, mimic=rule))
    model = rbd.build_model(links, joints)
    q = jnp.stack([rbd.random_configuration(model, jax.random.key(i)) for i in range(100)])
    inertia = jax.vmap(lambda q: rbd.algorithms.operational_space_inertia(model, q, ("tip",)))
    assert jnp.all(jnp.isnan(inertia(q)))


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
    difference = finite_differences.central(lambda h: gradient(0.1 + h), 1e-5)
    np.testing.assert_allclose(second, difference, rtol=1e-7)
