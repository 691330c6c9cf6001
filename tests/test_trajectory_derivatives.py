"""Derivatives of solutions of optimal control problems, against solutions of changed problems."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxrbd as rbd
from jaxrbd import optimal_control as oc
from jaxrbd.optimal_control.implicit import Point, _transported, with_derivatives
from jaxrbd.optimal_control.stages import Multipliers
from support import finite_differences, quadratic, zoo
from support.zoo import close

TOLERANCE = 1e-6
options = {"hessian": "exact", "iterations": 60, "tolerance": 1e-11}


def fields(solution):
    """The fields of a solution that have derivatives."""
    return solution.xs, solution.us, solution.costates, solution.multipliers, solution.cost


def changes(theta, seed=0):
    """Random changes of all float leaves."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(size=jnp.shape(x))), theta)


def dot(a, b):
    products = jax.tree.map(lambda x, y: jnp.sum(x * y), a, b)
    return sum(jax.tree.leaves(products))


def moved(theta, change, h):
    return jax.tree.map(lambda x, dx: x + h * dx, theta, change)


def differences(function, theta, change, h):
    """The derivative of a function for a change of theta, by its values at four points."""
    return finite_differences.slope(lambda e: function(moved(theta, change, e)), h)


def agree(found, expected, tolerance=TOLERANCE):
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        if x.size:
            close(x, y, tolerance)


# ------------------------------------------------------------------------------------- problems


@functools.cache
def vehicle():
    """A vehicle that passes an obstacle and lifts its load, with all kinds of constraints."""

    def dynamics(t, x, u, p):
        return x + 0.3 * jnp.stack([u[0] * jnp.cos(x[2]), u[0] * jnp.sin(x[2]), u[1]])

    def path(t, x, u, p):
        gap = jnp.sum((x[:2] - p["centre"]) ** 2) - p["radius"] ** 2
        return (u[2] - p["lift"] * u[0] * x[2])[None], -gap[None]

    problem = oc.Problem(
        oc.vector_space(3),
        dynamics,
        lambda t, x, u, p: jnp.concatenate([0.3 * u, 0.1 * x]),
        lambda x, p: x - 0.5,
        control_bounds=([-1.0, -1.5, -9.0], [1.0, 1.5, 9.0]),
        path=path,
        terminal=lambda x, p: (x[:2] - p["goal"], jnp.stack([x[2] - 0.2, -x[2] - 3])),
    )
    p = {
        "goal": jnp.array([2.0, 1.0]),
        "centre": jnp.array([1.0, 0.5]),
        "radius": jnp.array(0.5),
        "lift": jnp.array(0.7),
    }
    theta = jax.tree.map(jnp.asarray, (problem, jnp.array([0.0, 0.1, -0.2]), p))
    found = oc.solve(*theta, jnp.full((10, 3), 0.1), **options)
    assert found.status == oc.Status.CONVERGED
    return theta, found


@functools.cache
def ball():
    """A body on a ball joint, whose centre of mass and configuration reach the goals p.

    The controls are accelerations. The mass of the body acts through the centre of mass.
    """
    model = zoo.build(["spherical"], [-1])
    space = oc.state_space(model)

    class Reach(eqx.Module):
        model: rbd.Model

        def __call__(self, x, p):
            error = rbd.center_of_mass(self.model, x[0]) - p["centre"]
            return jnp.concatenate([3 * rbd.difference(model, x[0], p["q"]), 5 * error])

    def step(t, x, u, p):
        v = x[1] + 0.2 * u
        return rbd.integrate(model, x[0], 0.2 * v), v

    def cost(t, x, u, p):
        return jnp.concatenate([0.3 * x[1], 0.3 * u])

    bounds = (-3.0, jnp.array([3.0, 3.0, 0.5]))
    problem = oc.Problem(space, step, cost, Reach(model), control_bounds=bounds)
    start = rbd.integrate(model, rbd.neutral(model), 0.3 * jnp.cos(jnp.arange(1.0, 4.0)))
    goal = rbd.integrate(model, start, jnp.array([1.0, -1.2, 0.9]))
    p = {"q": goal, "centre": jnp.array([0.3, 0.2, -0.4])}
    theta = jax.tree.map(jnp.asarray, (problem, (start, 0.5 * jnp.ones(3)), p))
    found = oc.solve(*theta, jnp.zeros((4, 3)), **options)
    assert found.status == oc.Status.CONVERGED
    return theta, found


# ------------------------------------------------------- derivatives at a minimum that is known


def test_the_derivatives_of_a_quadratic_program():
    """Reverse mode, by all parameters, for constraints of all kinds of which some do not act."""
    found, weights = quadratic.MINIMUM, changes(quadratic.MINIMUM)

    @jax.jit
    def by_parameters(p):
        def moved(p):
            return with_derivatives((quadratic.problem(p["upper"]), p["start"], p), found)

        return jax.vjp(moved, p)[1](weights)[0]

    slopes = by_parameters(quadratic.PARAMETERS)
    p = {name: np.array(x, complex) for name, x in quadratic.PARAMETERS.items()}
    for name, x in p.items():
        for i in np.ndindex(x.shape):
            step = np.zeros(x.shape)
            step[i] = 1e-30  # the derivative by a complex step is exact
            change = jax.tree.map(
                lambda y: y.imag / 1e-30, quadratic.minimum({**p, name: x + 1j * step})
            )
            close(slopes[name][i], dot(weights, change), 1e-12, name)


@pytest.mark.parametrize(("goal", "size"), [(None, 1e-3), (0.7, 1.0)])
def test_the_derivatives_at_inequalities_and_at_equal_bounds(goal, size):
    """The first two controls have their least component along a unit vector.

    If this constraint is small, the linear solve needs several refinements. The third control has
    no effect and equal bounds. The others move the state. Its first entry ends at its least value,
    the second one at the goal: an equality, or none.
    """
    p = {"least": 0.4, "bound": 0.6, "end": 1.0, "start": 0.0, "goal": goal or 0.0}
    none, push, along = np.zeros((1, 0)), np.array([1.0, p["goal"]]), np.array([0.6, 0.8])
    point = Point(
        np.stack([np.zeros(2), push]),
        np.array([[*p["least"] * along, p["bound"], *push]]),
        np.stack([-push, -push]),
        Multipliers(
            none,
            np.array([[p["least"] / size]]),
            -push[1:] if goal else none[0],
            push[:1],
            np.zeros((1, 5)),
        ),
        np.array((p["least"] ** 2 + push @ push) / 2),
    )

    @jax.jit
    @jax.jacfwd
    def by_parameters(p):
        bounds = (jnp.stack([x, x, p["bound"], x, x]) for x in (-9.0, 9.0))
        problem = oc.Problem(
            oc.vector_space(2),
            lambda t, x, u, p: x + u[3:],
            lambda t, x, u, p: u[np.array([0, 1, 3, 4])],
            control_bounds=tuple(bounds),
            path=lambda t, x, u, p: (None, size * (p["least"] - along @ u[:2])[None]),
            terminal=lambda x, p: (x[1:] - p["goal"] if goal else None, p["end"] - x[:1]),
        )
        return with_derivatives((problem, jnp.stack([p["start"], 0.0]), p), point)

    found = by_parameters(jax.tree.map(jnp.asarray, p))
    rates = {name: (np.zeros(5), 0, 0, 0) for name in p}
    rates["least"] = np.array([*along, 0, 0, 0]), 1 / size, 0, 0
    rates["bound"] = np.eye(5)[2], 0, 0, 0
    rates["end"] = np.eye(5)[3], 0, 1, 0
    rates["start"] = -np.eye(5)[3], 0, -1, 0
    if goal:
        rates["goal"] = np.eye(5)[4], 0, 0, -1
    _, z, y_end, z_end, _ = found.multipliers
    for name, (of_us, of_z, of_z_end, of_y_end) in rates.items():
        close(found.us[name][0], of_us, 1e-14, name)
        close(z[name][0, 0], of_z, 1e-14, name)
        close(z_end[name][0], of_z_end, 1e-14, name)
        if goal:
            close(y_end[name][0], of_y_end, 1e-14, name)


def test_the_second_derivatives_of_a_minimum():
    """The control that minimises (u^2 + 3 (x + s u - 1)^2) / 2 is 3 s (1 - x) / (1 + 3 s^2)."""

    def control(s):
        return 3 * s * 0.7 / (1 + 3 * s * s)

    s = 0.7
    u = control(s)
    end = 0.3 + s * u
    none = np.zeros((1, 0))
    point = Point(
        np.array([[0.3], [end]]),
        np.array([[u]]),
        np.full((2, 1), 3 * (end - 1)),
        Multipliers(none, none, none[0], none[0], np.zeros((1, 1))),
        np.array((u * u + 3 * (end - 1) ** 2) / 2),
    )
    point = jax.tree.map(jnp.asarray, point)
    problem = oc.Problem(
        oc.vector_space(1),
        lambda t, x, u, p: x + p * u,
        lambda t, x, u, p: u,
        lambda x, p: np.sqrt(3.0) * (x - 1),
    )

    def found(s):
        return with_derivatives((problem, np.array([0.3]), s), point).us[0, 0]

    def second(f):
        def slope(s):
            return jax.jvp(f, (s,), (jnp.ones(()),))[1]

        return jax.jit(lambda s: jax.jvp(slope, (s,), (jnp.ones(()),))[1])(jnp.asarray(s))

    close(second(found), second(control), 1e-12)


def test_gradients_move_with_their_tangent_space():
    """The gradient of a . R b at `R exp(d)` is b x R^T a; d is a change from another place.

    There, the gradient by d has other entries.
    """
    space = oc.state_space(zoo.build(["spherical"], [-1]))
    a, b, d = np.random.default_rng(0).normal(size=(3, 3))
    start = Rotation.from_rotvec([0.3, -0.5, 0.4])

    def value(d):
        return a @ (start * Rotation.from_rotvec(np.array(d))).apply(b)

    by_change = [
        finite_differences.slope(lambda h: value(d + h * axis), 1e-3) for axis in np.eye(3)
    ]
    moved = (start * Rotation.from_rotvec(d)).inv()
    rest = np.array([1.0, 2.0, 3.0])  # the gradient by the velocity
    found = jax.jit(functools.partial(_transported, space))(
        (jnp.asarray(start.as_quat()), jnp.zeros(3)),
        jnp.concatenate([d, rest]),
        jnp.concatenate([jnp.array(by_change), rest]),
    )
    close(found, np.concatenate([np.cross(b, moved.apply(a)), rest]), 1e-9)


# ---------------------------------------------------------------------------------------- tests


@pytest.mark.slow
def test_all_constraints_and_parameters():
    """Bounds, goals and x0 change; constraints of all kinds are active, and some are not."""
    theta, found = vehicle()
    _, z, _, z_last, by_bounds = found.multipliers
    for active in (z > 0, z_last > 0, by_bounds != 0):
        assert 0 < jnp.sum(active) < active.size

    def solve(theta):
        return fields(oc.solve(*theta, found, **options))

    change = changes(theta)
    _, pull = jax.vjp(solve, theta)
    _, tangent = jax.jvp(solve, (theta,), (change,))
    agree(tangent, differences(solve, theta, change, 3e-4))
    weights = changes(tangent, 1)
    products = dot(pull(weights)[0], change), dot(weights, tangent)
    close(*products, 1e-11)


@pytest.mark.slow
def test_states_on_a_manifold_and_the_inertia_of_a_link():
    (problem, x0, p), found = ball()
    assert 0 < jnp.sum(found.multipliers.bounds != 0) < 12
    inertia = problem.terminal_cost.model.inertia

    def leaves(problem):
        return problem.terminal_cost.model.inertia, problem.control_bounds

    def solve(theta):
        values, *operands = theta
        return fields(oc.solve(eqx.tree_at(leaves, problem, values), *operands, found, **options))

    theta = (inertia, problem.control_bounds), x0, p
    change = changes(theta)
    change = ((0.1 * inertia * change[0][0], change[0][1]), *change[1:])
    expected = differences(solve, theta, change, 1e-3)
    agree(jax.jvp(solve, (theta,), (change,))[1], expected)


def pendulum():
    """A pendulum that swings up at p, the pair of its bounds and its goal."""

    def dynamics(t, x, u, p):
        speed = x[1] + 0.2 * (u[0] - 9.81 * jnp.sin(x[0]))
        return jnp.stack([x[0] + 0.2 * speed, speed])

    return oc.Problem(
        oc.vector_space(2),
        dynamics,
        lambda t, x, u, p: 0.1 * jnp.concatenate([x - p, u]),
        lambda x, p: 3 * (x - p),
        control_bounds=(-8.0, 5.0),
    )


@pytest.mark.slow
def test_gradients_of_batches_second_derivatives_and_envelopes():
    problem, p = pendulum(), jnp.array([np.pi, 0.0])
    starts = jnp.array([[0.0, 0.1], [0.4, -0.2], [-0.3, 0.3]])
    guess = jnp.ones((12, 1))

    def solve(x0, p, bounds):
        new = eqx.tree_at(lambda problem: problem.control_bounds, problem, bounds)
        return oc.solve(new, x0, p, guess, **options)

    bounds = jax.tree.map(jnp.asarray, problem.control_bounds)

    @jax.jit
    @jax.vmap
    def evaluate(x0):
        found = solve(x0, p, bounds)
        gradient = jax.grad(lambda *x: solve(*x).cost, (0, 1, 2))(x0, p, bounds)
        return found, gradient

    found, (by_x0, _, by_bounds) = evaluate(starts)
    np.testing.assert_array_equal(found.status, oc.Status.CONVERGED)
    held = found.multipliers.bounds
    assert jnp.all(jnp.any(held != 0, axis=(1, 2)))
    # The derivatives of the least cost are multipliers.
    close(by_x0, found.costates[:, 0], 1e-9)
    for sign, slope in zip((-1, 1), by_bounds):
        close(slope, -jnp.sum(jnp.where(sign * held > 0, held, 0), axis=(1, 2)), 1e-9)

    @jax.jit
    def gradient(x0):
        return jax.grad(lambda x0: solve(x0, p, bounds).xs[6, 1])(x0)

    hessian = jax.jit(jax.jacfwd(gradient))(starts[0])
    expected = [
        finite_differences.slope(lambda e: gradient(starts[0] + e * axis), 1e-3)
        for axis in jnp.eye(2)
    ]
    assert jnp.max(jnp.abs(hessian)) > 1e-2
    close(hessian, jnp.stack(expected, 1), 1e-6)


def test_joint_torques_have_the_derivatives_of_forward_dynamics_in_the_model():
    model = zoo.chain(1)
    q, v, tau = jnp.array([[0.4], [0.7], [-0.5]])
    change = jax.tree.map(lambda x: 0.1 * x, (model.inertia, model.gravity))

    def by_model(f):
        def evaluate(values):
            leaves = eqx.tree_at(lambda model: (model.inertia, model.gravity), model, values)
            return f(leaves)

        return jax.jvp(evaluate, ((model.inertia, model.gravity),), (change,))[1]

    @jax.jit
    def both():
        found = by_model(lambda model: oc.joint_torques(model)(0, q, v, tau, None))
        return found, by_model(lambda model: rbd.forward_dynamics(model, q, v, tau))

    found, expected = both()
    assert jnp.max(jnp.abs(expected)) > 0.1
    close(found, expected, 1e-12)
