"""The analytic derivatives of the pose of a frame, against the derivatives of JAX.

The other program is the pose for a `Kinematics`, which JAX differentiates.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import joints
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


def ball_and_hinge():
    """The displacements of a ball joint do not commute."""
    return zoo.build(["spherical", "revolute"], [-1, 0], seed=4)


def hinge_and_crank():
    """The motion subspace of the second joint depends on its coordinates."""
    kinds = [joints.Revolute([0.0, 0.6, 0.8]), joints.Custom(2, zoo.crank)]
    return zoo.serial(kinds, np.random.default_rng(3), {}, lambda kind: {})


def by_rule(model, q, frame):
    return rbd.frame_placement(model, q, frame)


def by_jax(model, q, frame):
    return rbd.frame_placement(model, rbd.forward_kinematics(model, q), frame)


def total(placement, model, q, frame):
    """A function of the pose whose derivatives of every order have all terms."""
    X = placement(model, q, frame)
    weights = jnp.asarray(np.random.default_rng(1).normal(size=(4, 3)))
    return jnp.sum(jnp.sin(weights * jnp.concatenate([X.R, X.p[None]])))


def check(model, way, frame):
    q, zero = zoo.state(model)[0], jnp.zeros(model.nv)

    def derivative(placement):
        return jax.jit(
            WAYS[way](lambda dq: total(placement, model, rbd.integrate(model, q, dq), frame))
        )(zero)

    close(derivative(by_rule), derivative(by_jax), 1e-11, way)


@pytest.mark.parametrize("robot", [ball_and_hinge, hinge_and_crank])
def test_the_hessian_of_a_function_of_a_pose(robot):
    model = robot()
    check(model, "forward over reverse", model.frame_names[-1])


@pytest.mark.slow
@pytest.mark.parametrize("robot", ROBOTS)
@pytest.mark.parametrize("way", WAYS)
def test_all_derivatives(robot, way):
    model = robot()
    check(model, way, model.frame_names[-1])
    check(model, way, model.frame_names[model.nb // 2])


def test_derivatives_by_the_coordinates_of_a_quaternion():
    """A change of q along a quaternion changes no pose."""
    model = zoo.small()
    q = zoo.state(model)[0]

    def gradient(placement):
        return jax.jit(jax.grad(lambda q: total(placement, model, q, model.frame_names[-1])))(q)

    close(gradient(by_rule), gradient(by_jax), 1e-12)


def test_a_frame_that_is_fixed_to_the_world_has_no_derivatives():
    model = rbd.model.add_frame(
        zoo.chain(2), "post", placement=rbd.Pose(jnp.eye(3), jnp.array([1.0, 2.0, 3.0]))
    )
    q = jnp.array([0.3, 0.4])
    gradient = jax.grad(lambda q: total(by_rule, model, q, "post"))(q)
    close(by_rule(model, q, "post").p, np.array([1.0, 2.0, 3.0]))
    close(gradient, np.zeros(2))


def test_the_gradient_in_the_model_changes_with_the_configuration():
    """A mixed derivative: by the place of the frame, and by the configuration."""
    model = ball_and_hinge()
    q, frame = zoo.state(model)[0], model.frame_names[-1]

    def mixed(placement):
        def slope(p, dq):
            moved = rbd.model.add_frame(model, "tool", frame, rbd.Pose(jnp.eye(3), p))
            return total(placement, moved, rbd.integrate(model, q, dq), "tool")

        return jax.jit(jax.jacfwd(jax.grad(slope, 1)))(jnp.ones(3), jnp.zeros(model.nv))

    close(mixed(by_rule), mixed(by_jax), 1e-11)


def test_the_hessian_does_not_differentiate_the_columns():
    """The operations of the compiled Hessian, without and with the formula of second order."""
    model = zoo.chain(6)
    q = zoo.state(model)[0]

    def operations(way):
        function = WAYS[way](lambda q: total(by_rule, model, q, model.frame_names[-1]))
        return jax.jit(function).lower(q).compile().cost_analysis()["flops"]

    assert operations("forward over reverse") < operations("forward over forward") / 3
