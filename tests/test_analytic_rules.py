"""Second derivatives through functions with analytic rules, against the derivatives of JAX.

The other program is forward dynamics for a `Kinematics`, whose derivatives are those of JAX.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd.integrators.analytic_acceleration import acceleration
from support import zoo
from support.zoo import close

WAYS = {
    "forward over reverse": lambda f: jax.jacfwd(jax.grad(f, (0, 1, 2)), (0, 1, 2)),
    "reverse over reverse": lambda f: jax.jacrev(jax.grad(f, (0, 1, 2)), (0, 1, 2)),
    "forward over forward": lambda f: jax.jacfwd(jax.jacfwd(f, (0, 1, 2)), (0, 1, 2)),
    "third, along v": lambda f: (
        lambda dq, dv, dtau: jax.jvp(
            lambda t: jax.jacfwd(jax.grad(f, (0, 1, 2)), (0, 1, 2))(dq, dv + t, dtau),
            (0.0,),
            (1.0,),
        )[1]
    ),
}


def by_rule(model, q, v, tau, f_ext):
    return acceleration((model, f_ext), q, v, tau)


def by_jax(model, q, v, tau, f_ext):
    return rbd.forward_dynamics(model, rbd.forward_kinematics(model, q), v, tau, f_ext)


def curvature(dynamics, model, way, differentiate):
    """A derivative of a function of the acceleration, by displacements of q, by v and by tau."""
    q, v, tau, f_ext = zoo.state(model)
    weights = jnp.asarray(np.random.default_rng(1).normal(size=model.nv))

    def total(dq, dv, dtau):
        a = dynamics(model, rbd.integrate(model, q, dq), v + dv, tau + dtau, f_ext)
        return jnp.sum(jnp.sin(weights * a))

    return jax.jit(differentiate(WAYS[way](total)))(*jnp.zeros((3, model.nv)))


def check(model, way, differentiate=lambda f: f):
    found, expected = (curvature(f, model, way, differentiate) for f in (by_rule, by_jax))
    for i, (row, right) in enumerate(zip(found, expected, strict=True)):
        for j, (block, matrix) in enumerate(zip(row, right, strict=True)):
            close(block, matrix, 1e-10, f"{way}: block {i}, {j}")


def test_the_hessian_of_a_function_of_the_acceleration():
    check(zoo.ball_and_hinge(), "forward over reverse")


@pytest.mark.slow
@pytest.mark.parametrize("robot", [zoo.ball_and_hinge, zoo.small, zoo.coupled])
@pytest.mark.parametrize("way", WAYS)
def test_all_second_derivatives(robot, way):
    check(robot(), way)


def test_the_gradient_in_the_model_changes_with_the_state():
    """A mixed derivative: by the mass of a link, and by the state along one direction."""
    model = zoo.ball_and_hinge()
    q, v, tau, f_ext = zoo.state(model)
    direction = jnp.asarray(np.random.default_rng(2).normal(size=(3, model.nv)))

    def mixed(dynamics):
        def slope(mass, t):
            heavier = model.with_mass("l1", mass)
            moved = rbd.integrate(model, q, t * direction[0])
            return jnp.sum(dynamics(heavier, moved, v, tau + t * direction[1], f_ext) ** 3)

        return jax.jit(jax.jacfwd(jax.grad(slope, 1), 0))(2.0, 0.0)

    close(mixed(by_rule), mixed(by_jax), 1e-10)


def test_the_hessian_does_not_differentiate_the_matrices():
    """The operations of the compiled Hessian, without and with the formulas of second order."""
    model = zoo.chain(6)
    q, v, tau, _ = zoo.state(model)

    def operations(way):
        def total(dq, dv, dtau):
            a = acceleration((model, None), rbd.integrate(model, q, dq), v + dv, tau + dtau)
            return jnp.sum(a * a)

        compiled = jax.jit(WAYS[way](total)).lower(*jnp.zeros((3, 6))).compile()
        return compiled.cost_analysis()["flops"]

    assert operations("forward over reverse") < operations("forward over forward") / 3
