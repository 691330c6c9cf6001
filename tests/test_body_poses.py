"""The analytic derivatives of the poses of bodies and frames, against the derivatives of JAX."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import joints
from jaxrbd.algorithms import body_poses as module
from jaxrbd.algorithms.body_poses import body_poses, compose_from_roots
from jaxrbd.model.joint_space import joint_poses
from support import zoo
from support.zoo import close

WAYS = {
    "forward": jax.jacfwd,
    "reverse": jax.jacrev,
    "forward over reverse": lambda f: jax.jacfwd(jax.grad(f)),
    "reverse over reverse": lambda f: jax.jacrev(jax.grad(f)),
    "forward over forward": lambda f: jax.jacfwd(jax.jacfwd(f)),
    "third": lambda f: lambda dq: jax.jvp(jax.jacfwd(jax.grad(f)), (dq,), (jnp.ones_like(dq),))[1],
}
ROBOTS = [zoo.small, zoo.coupled, zoo.following, zoo.connected]


def hinge_and_crank():
    """The motion subspace of the second joint depends on its coordinates."""
    kinds = [joints.Revolute([0.0, 0.6, 0.8]), joints.Custom(2, zoo.crank)]
    return zoo.serial(kinds, np.random.default_rng(3), {}, lambda kind: {})


def by_jax(model, q):
    return compose_from_roots(model.topology, joint_poses(model, q))


def total(poses, model, q):
    """A function of the poses of all bodies whose derivatives of every order have all terms."""
    X = poses(model, q)
    weights = jnp.asarray(np.random.default_rng(1).normal(size=(model.nb, 3, 4)))
    return jnp.sum(jnp.sin(weights * jnp.concatenate([X.R, X.p[..., None]], axis=2)))


def check(model, way):
    q, zero = zoo.state(model)[0], jnp.zeros(model.nv)

    def derivative(poses):
        return jax.jit(WAYS[way](lambda dq: total(poses, model, rbd.integrate(model, q, dq))))(zero)

    close(derivative(body_poses), derivative(by_jax), 1e-11, way)


@pytest.mark.parametrize("robot", [zoo.ball_and_hinge, hinge_and_crank])
def test_the_hessian_of_a_function_of_poses(robot):
    check(robot(), "forward over reverse")


@pytest.mark.slow
@pytest.mark.parametrize("robot", ROBOTS)
@pytest.mark.parametrize("way", WAYS)
def test_all_derivatives(robot, way):
    check(robot(), way)


def test_derivatives_by_the_coordinates_of_a_quaternion():
    """A change of q along a quaternion changes no pose."""
    model = zoo.small()
    q = zoo.state(model)[0]

    def gradient(poses):
        return jax.jit(jax.grad(lambda q: total(poses, model, q)))(q)

    close(gradient(body_poses), gradient(by_jax), 1e-12)


def test_the_gradient_in_the_model_changes_with_the_configuration():
    """A mixed derivative: by the places of the joints, and by the configuration."""
    model = zoo.ball_and_hinge()
    q = zoo.state(model)[0]

    def mixed(poses):
        def slope(p, dq):
            moved = eqx.tree_at(lambda m: m.placement.p, model, p)
            return total(poses, moved, rbd.integrate(model, q, dq))

        return jax.jit(jax.jacfwd(jax.grad(slope, 1)))(model.placement.p, jnp.zeros(model.nv))

    close(mixed(body_poses), mixed(by_jax), 1e-11)


def test_a_zero_quaternion_is_a_constant_identity():
    """While JAX traces, a zero quaternion stands for the identity, whatever its change is."""
    model, q = zoo.ball_and_hinge(), jnp.zeros(5)

    def hessian(poses):
        return jax.jit(jax.hessian(lambda q: total(poses, model, q)))(q)

    close(hessian(body_poses), hessian(by_jax), 1e-12)


def test_a_change_of_an_inertia_does_not_move_the_bodies():
    """The norm has no derivative at 0, so a tangent of zeros would give NaN."""
    model = zoo.chain(2)
    q = zoo.state(model)[0]

    def cost(inertia):
        heavier = eqx.tree_at(lambda m: m.inertia, model, inertia)
        p = rbd.forward_kinematics(heavier, q).X_WB.p[1]
        return jnp.sum(inertia) + jnp.linalg.norm(p - jax.lax.stop_gradient(p))

    inertia = jnp.asarray(model.inertia)
    assert jax.jvp(cost, (inertia,), (jnp.ones_like(inertia),))[1] == inertia.size


def test_the_hessian_of_the_pose_of_a_frame():
    """The position of the root is no part of the rule."""
    model = zoo.build(["free_flyer", "revolute"], [-1, 0], seed=4)
    q, zero, frame = zoo.state(model)[0], jnp.zeros(7), model.frame_names[-1]

    def hessian(pose):
        def distance(dq):
            X = pose(rbd.integrate(model, q, dq))
            return jnp.sum(jnp.sin(X.p)) + jnp.sum(X.R[:, 0] ** 3)

        return jax.jit(jax.hessian(distance))(zero)

    def by_program(q):
        X_PB = joint_poses(model, q)
        X_WB = rbd.tree.compose_poses(model.topology, X_PB)
        body = model.frame_bodies[-1]
        return jax.tree.map(lambda x: x[body], X_WB) @ jax.tree.map(
            lambda x: x[-1], model.frame_pose
        )

    close(hessian(lambda q: rbd.frame_placement(model, q, frame)), hessian(by_program), 1e-11)


def test_the_hessian_does_not_differentiate_the_first_derivatives(monkeypatch):
    """The operations of the compiled Hessian, with and without the formula of second order."""
    model = zoo.chain(6)
    q = zoo.state(model)[0]

    def operations():
        hessian = jax.jit(jax.hessian(lambda q: total(body_poses, model, q)))
        return hessian.lower(q).compile().cost_analysis()["flops"]

    with_formula = operations()
    monkeypatch.setattr(module, "_poses", module._poses_first_order)
    assert with_formula < 0.8 * operations()
