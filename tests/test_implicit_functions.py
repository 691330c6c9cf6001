"""Implicit functions under pairs of transformations: `grad` of `vmap` and `vmap` of `grad`.

An implicit function returns the result of a solver, and a rule gives its derivatives. JAX
transforms the value and the rule separately. With some orders of two transformations, the value and
the derivative get different batch axes: then the program of JAX is wrong, or has other values.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import (
    collision,
    constraints as con,
    contact,
    integrators,
    inverse_kinematics as ik,
    optimal_control as oc,
    so3,
    spatial,
)
from support import nightly, zoo
from support.zoo import close

ANCHOR = np.array([0.3, 0.2, 0.1])


@functools.cache
def arm():
    """Two revolute joints, with limits and friction."""
    model = zoo.chain(2)
    return model, jnp.array([0.3, -0.4]), jnp.array([0.5, 0.2])


def constraint():
    return con.Equation(lambda model, q: q[:1] + 0.3 * q[1:] ** 2 - 0.3)


def reached(p):
    model, q, _ = arm()
    return ik.inverse_kinematics(model, [ik.FrameTask.position("l1", p)], q)


def posture(p):
    model, q, _ = arm()
    return ik.inverse_kinematics(model, [ik.PostureTask(p[:2])], q)


def reached_with_weights(p):
    model, q, _ = arm()
    tasks = [ik.FrameTask.position("l1", ANCHOR, jnp.exp(p)), ik.PostureTask(q, 0.1)]
    return ik.inverse_kinematics(model, tasks, q)


def reached_from(p):
    model, q, _ = arm()
    tasks = [ik.FrameTask.position("l1", ANCHOR)]
    return ik.inverse_kinematics(model, tasks, q + p[:2], locked=["j0"])


def reached_with_a_constraint(p):
    model, q, _ = arm()
    return ik.inverse_kinematics(model, [constraint(), ik.PostureTask(q + p[:2])], q)


def searched(p):
    model, *_ = arm()
    tasks = [ik.FrameTask.position("l1", p)]
    return ik.search_inverse_kinematics(model, tasks, jax.random.key(0), seeds=2)


def velocity(p):
    model, q, _ = arm()
    tasks = [ik.FrameTask.position("l1", p), constraint()]
    return ik.differential_inverse_kinematics(model, q, tasks, 1.0)  # within its limits


def closed(p):
    model, q, _ = arm()
    return con.close_loops(model, q + p[:2], [constraint()])


def constrained(p):
    model, q, v = arm()
    return con.constrained_dynamics(model, q + p[:2], v, jnp.zeros(2), [constraint()])


def impact(p):
    model, q, v = arm()
    return con.impact(model, q, v + p[:2], [constraint()])


def accelerated(p):
    model, q, v = arm()
    return rbd.forward_dynamics(model, q + p[:2], v, jnp.zeros(2))


def stepped(p):
    model, q, v = arm()
    return contact.contact_step(model, contact.Scene(()), q, v + p[:2], jnp.zeros(2), 0.01)


SPHERES = contact.Scene(("l1",), 0.2)


def landed(p):
    model, q, v = arm()
    return contact.contact_step(
        model, SPHERES, q + p[:2], v, jnp.zeros(2), 0.01, constraints=[constraint()], smoothing=0.1
    )


def midpoint(p):
    model, q, v = arm()

    def dynamics(q, v):
        return rbd.forward_dynamics(model, q, v, jnp.zeros(2))

    return integrators.variational_midpoint(model, dynamics, q, v + p[:2], 0.01)


def problem(bounds):
    return oc.Problem(
        oc.vector_space(2),
        lambda t, x, u, p: x + 0.1 * jnp.stack([x[1], u[0] - jnp.sin(x[0])]),
        lambda t, x, u, p: jnp.concatenate([x - p, u]),
        lambda x, p: 3 * (x - p),
        control_bounds=bounds,
    )


def optimum(p):
    return oc.solve(problem((-0.2, 0.2)), p[:2], p[1:], jnp.zeros((3, 1)))


def optimum_without_bounds(p):
    guess = jnp.zeros((3, 1))
    return oc.solve(problem(None), p[:2], p[1:], guess, iterations=5, fixed_iterations=True)


def of_boxes(p):
    a, b = (collision.Box(jnp.array([0.2, 0.3, 0.1])) for _ in range(2))
    X_WB = spatial.Pose(so3.exp(p + 0.3), jnp.array([0.9, 0.2, 0.1]) + p)
    return collision.distance(a, spatial.identity_pose(p.dtype), b, X_WB)


FUNCTIONS = [
    posture,
    reached,
    reached_with_weights,
    reached_from,
    reached_with_a_constraint,
    searched,
    velocity,
    closed,
    constrained,
    impact,
    accelerated,
    stepped,
    landed,
    midpoint,
    optimum,
    optimum_without_bounds,
    of_boxes,
]
POINTS = jnp.array([[0.1, 0.2, 0.3], [0.2, -0.1, 0.1]])
CHANGES = jnp.array([[0.5, -1.0, 0.7], [1.0, 0.3, -0.6]])


def floats(function):
    """The function under `jit`, with the floats of its result as one vector."""
    arm()  # is kept, so JAX must not trace it

    @jax.jit
    def values(p):
        leaves = jax.tree.leaves(function(p))
        return jnp.concatenate([x.ravel() for x in leaves if jnp.issubdtype(x.dtype, jnp.floating)])

    return values


def gradient(f):
    """The gradient of a weighted sum of all values of f."""

    def total(x):
        y = f(x)
        weights = jnp.broadcast_to(jnp.sin(jnp.arange(1.0, y.shape[-1] + 1)), y.shape)
        return jnp.sum(weights * y)

    return jax.grad(total)


# Each entry returns the derivatives of f at x; `dx` is a direction.
DERIVATIVES = {
    "grad": lambda f, x, dx: gradient(f)(x),
    "jacfwd": lambda f, x, dx: jax.jacfwd(f)(x),
    "jvp": lambda f, x, dx: jax.jvp(f, (x,), (dx,))[1],
    "linearize": lambda f, x, dx: jax.linearize(f, x)[1](dx),
}


@pytest.mark.parametrize(
    "function", nightly.all_but([posture], FUNCTIONS), ids=lambda f: f.__name__
)
def test_gradients_of_a_batch_are_programs(function):
    jax.jit(gradient(jax.vmap(floats(function)))).lower(POINTS)


@pytest.mark.slow
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_derivatives_of_a_batch_are_a_batch_of_derivatives(function):
    f = floats(function)
    J = jax.jit(jax.vmap(jax.jacfwd(f)))(POINTS)
    assert jnp.max(jnp.abs(J)) > 0
    expected = {
        "grad": gradient(lambda x: jnp.einsum("bij,bj->bi", J, x))(POINTS),
        "jvp": jnp.einsum("bij,bj->bi", J, CHANGES),
    }
    for name, derivative in DERIVATIVES.items():
        of_batch = jax.jit(functools.partial(derivative, jax.vmap(f)))
        if name in expected:
            close(of_batch(POINTS, CHANGES), expected[name], 1e-9, name)
        else:
            of_batch.lower(POINTS, CHANGES)
        jax.jit(jax.vmap(of_batch)).lower(POINTS[:, None], CHANGES[:, None])


@pytest.mark.slow
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_second_derivatives_in_a_loop(function):
    """Forward over reverse mode, and reverse over reverse, against forward over forward."""
    # the history of a solve has NaN in the place of iterations that it did not need
    is_solve = function in (optimum, optimum_without_bounds)
    values = floats(lambda p: function(p)[:2] if is_solve else function(p))

    def total(p):
        def body(p, _):
            y = values(p)
            weights = jnp.sin(jnp.arange(1.0, y.size + 1))
            return p + 0.01 * jnp.tanh(jnp.sum(y)), jnp.dot(weights, y + y * y)

        return jnp.sum(jax.lax.scan(body, p, length=2)[1])

    @jax.jit
    def by_three_ways(p, dp):
        def along(p):
            return jax.jvp(total, (p,), (dp,))[1]

        gradient = jax.grad(total)
        forward_over_reverse = jax.jvp(gradient, (p,), (dp,))[1]
        reverse_over_reverse = jax.grad(lambda p: jnp.dot(gradient(p), dp))(p)
        return jax.jacfwd(along)(p), forward_over_reverse, reverse_over_reverse

    expected, *found = by_three_ways(POINTS[0], CHANGES[0])
    assert jnp.max(jnp.abs(expected)) > 0
    for x in found:
        close(x, expected, 1e-10)
