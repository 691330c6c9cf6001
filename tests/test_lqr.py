"""Linear-quadratic regulators, against the dense linear system of their optimality conditions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrbd.errors import ArgumentError
from jaxrbd.optimal_control import LqrStages, lqr
from jaxrbd.optimal_control.bounded_step import Step, bounded_step, clamped
from support import nightly

solve = jax.jit(lqr, static_argnames="riccati")
METHODS = ("sequential", "parallel")


def random_problem(N, n, m, seed=0):
    """Stages with a positive definite cost of (x, u), cross terms and affine terms."""
    rng = np.random.default_rng([seed, N, n, m])
    # The spectral radius of A is about 1.
    A = np.eye(n) + 0.3 * rng.normal(size=(N, n, n)) / np.sqrt(n)
    B = rng.normal(size=(N, n, m))
    root = rng.normal(size=(N, n + m, n + m))
    H = np.einsum("tij,tkj->tik", root, root) / (n + m) + 0.1 * np.eye(n + m)
    end = rng.normal(size=(1, n, n))
    Q = np.concatenate([H[:, :n, :n], end @ end.transpose(0, 2, 1)])
    c, q, r = rng.normal(size=(N, n)), rng.normal(size=(N + 1, n)), rng.normal(size=(N, m))
    return LqrStages(A, B, c, Q, H[:, n:, n:], H[:, n:, :n], q, r), rng.normal(size=n)


def dense(stages, x0):
    """States, controls and multipliers by one dense linear system, in float64."""
    A, B, c, Q, R, S, q, r = stages
    N, n, m = B.shape
    width = (N + 1) * n + N * m
    H, g = np.zeros((width, width)), np.zeros(width)
    G, d = np.zeros(((N + 1) * n, width)), np.zeros((N + 1) * n)

    def x(t):
        return slice(t * n, (t + 1) * n)

    def u(t):
        return slice((N + 1) * n + t * m, (N + 1) * n + (t + 1) * m)

    G[x(0), x(0)], d[x(0)] = -np.eye(n), -x0
    for t in range(N + 1):
        H[x(t), x(t)], g[x(t)] = Q[t], q[t]
    for t in range(N):
        H[u(t), u(t)], g[u(t)] = R[t], r[t]
        H[u(t), x(t)], H[x(t), u(t)] = S[t], S[t].T
        G[x(t + 1), x(t + 1)], G[x(t + 1), x(t)], G[x(t + 1), u(t)] = -np.eye(n), A[t], B[t]
        d[x(t + 1)] = -c[t]
    system = np.block([[H, G.T], [G, np.zeros((len(d), len(d)))]])
    solution = np.linalg.solve(system, np.concatenate([-g, d]))
    xs, us, costates = np.split(solution, [(N + 1) * n, width])
    return xs.reshape(N + 1, n), us.reshape(N, m), costates.reshape(N + 1, n)


def agree(found, expected, tolerance):
    for x, y in zip((found.xs, found.us, found.costates), expected):
        assert np.max(np.abs(np.asarray(x) - y), initial=0) <= tolerance * np.max(
            np.abs(y), initial=1
        )


SIZES = [(1, 3, 2), (7, 2, 3), (7, 4, 1), (100, 3, 2)]


@pytest.mark.parametrize("riccati", METHODS)
@pytest.mark.parametrize("sizes", nightly.all_but(SIZES[:2], SIZES), ids=str)
def test_the_solution_of_the_dense_system(sizes, riccati):
    stages, x0 = random_problem(*sizes)
    found = solve(stages, x0, riccati=riccati)
    assert found.definite
    agree(found, dense(stages, x0), 1e-10)
    law = np.einsum("tij,tj->ti", found.gains, found.xs[:-1]) + found.offsets
    np.testing.assert_allclose(law, found.us, atol=1e-12)
    single = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (stages, x0))
    found = solve(*single, riccati=riccati)
    assert all(x.dtype == jnp.float32 for x in found[:5])
    agree(found, dense(stages, x0), 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("riccati", METHODS)
def test_a_long_horizon(riccati):
    stages, x0 = random_problem(1000, 3, 2)
    agree(solve(stages, x0, riccati=riccati), dense(stages, x0), 1e-10)


@pytest.mark.parametrize("riccati", METHODS)
def test_the_gains_are_optimal_for_every_initial_state(riccati):
    stages, x0 = random_problem(7, 4, 1)
    found = solve(stages, x0, riccati=riccati)
    other = x0 + np.random.default_rng(1).normal(size=4)
    x, us = other, []
    for t in range(7):
        us.append(found.gains[t] @ x + found.offsets[t])
        x = stages.A[t] @ x + stages.B[t] @ us[t] + stages.c[t]
    np.testing.assert_allclose(us, dense(stages, other)[1], atol=1e-10)


@pytest.mark.parametrize("riccati", METHODS)
def test_derivatives_by_all_arrays_are_those_of_the_dense_system(riccati):
    """In both modes and of second order, along a random change of all arrays."""
    stages, x0 = random_problem(3, 2, 2)
    change, dx = random_problem(3, 2, 2, seed=1)
    d_stages = jax.tree.map(lambda x: 0.1 * x, change)
    weights = np.cos(np.arange(3 * 2).reshape(3, 2))

    def moved(t):
        return jax.tree.map(lambda x, dx: x + t * dx, (stages, x0), (d_stages, dx))

    def value(arguments):
        found = lqr(*arguments, riccati)
        parts = found.xs[1:], found.us, found.offsets, found.costates[:-1]
        return sum(jnp.sum(jnp.cos(weights + i) * x) for i, x in enumerate(parts)) + jnp.sum(
            found.gains**2
        )

    value_at = jax.jit(lambda t: value(moved(t)))
    first, second = jax.jit(jax.jvp, static_argnums=0)(jax.grad(value_at), (0.0,), (1.0,))
    h = 1e-4
    low, middle, high = (float(value_at(t)) for t in (-h, 0.0, h))
    np.testing.assert_allclose(first, (high - low) / (2 * h), rtol=1e-6)
    np.testing.assert_allclose(second, (high - 2 * middle + low) / h**2, rtol=1e-4)
    gradient = jax.jit(jax.grad(value))((stages, x0))
    products = jax.tree.map(lambda x, dx: jnp.sum(x * dx), gradient, (d_stages, dx))
    np.testing.assert_allclose(sum(jax.tree.leaves(products)), first, rtol=1e-10)


def test_a_cost_that_is_convex_only_on_the_dynamics():
    """One R is negative, but the total cost is convex in the controls."""
    stages, x0 = random_problem(7, 4, 1)
    R, S = np.array(stages.R), np.array(stages.S)
    R[3], S[3] = -0.01, 0
    stages = stages._replace(R=R, S=S)
    found = solve(stages, x0)
    assert found.definite
    agree(found, dense(stages, x0), 1e-10)


@pytest.mark.parametrize("riccati", METHODS)
def test_problems_without_a_unique_minimum_are_named(riccati):
    stages, x0 = random_problem(7, 4, 1)
    R, B = np.array(stages.R), np.array(stages.B)
    R[3] = -100.0
    assert not solve(stages._replace(R=R), x0, riccati=riccati).definite
    R[3], B[3] = 0, 0  # a control without effect and without cost
    assert not solve(stages._replace(R=R, B=B), x0, riccati=riccati).definite


@pytest.mark.parametrize("riccati", METHODS)
def test_stages_without_controls(riccati):
    stages, x0 = random_problem(7, 4, 1)
    R, r = np.zeros((7, 0, 0)), np.zeros((7, 0))
    stages = stages._replace(B=np.zeros((7, 4, 0)), S=np.zeros((7, 0, 4)), R=R, r=r)
    found = solve(stages, x0, riccati=riccati)
    assert found.definite
    agree(found, dense(stages, x0), 1e-10)


def test_wrong_stages():
    stages, x0 = random_problem(1, 3, 2)
    with pytest.raises(ArgumentError, match=r"S has shape \(1, 3, 2\), expected \(1, 2, 3\)"):
        lqr(stages._replace(S=stages.S.transpose(0, 2, 1)), x0)
    with pytest.raises(ArgumentError, match="x0 has dtype float32, expected float64"):
        lqr(stages, np.float32(x0))
    with pytest.raises(ArgumentError, match=r"x0 has shape \(2,\), expected \(3,\)"):
        lqr(stages, x0[:2])
    with pytest.raises(ArgumentError, match="riccati is 'fast', expected one of"):
        lqr(stages, x0, "fast")
    with pytest.raises(ArgumentError, match="at least one stage"):
        lqr(LqrStages(*(x[:0] for x in stages)), x0)
    with pytest.raises(ArgumentError, match=r"B has shape \(3, 2\)"):
        lqr(stages._replace(B=stages.B[0]), x0)


def motion(stages, x0, us):
    xs = [x0]
    for A, B, c, u in zip(stages.A, stages.B, stages.c, us):
        xs.append(A @ xs[-1] + B @ u + c)
    return np.array(xs)


def slopes(stages, x0, us):
    """The derivatives of the cost by the controls; differences of a quadratic function are exact.

    They are relative to the cost.
    """
    *_, Q, R, S, q, r = stages

    def cost(us):
        xs = motion(stages, x0, us)
        inner = np.einsum("ti,tij,tj", us, R, us) / 2 + np.einsum("ti,tij,tj", us, S, xs[:-1])
        return np.einsum("ti,tij,tj", xs, Q, xs) / 2 + inner + np.sum(q * xs) + np.sum(r * us)

    found = np.zeros(us.shape)
    for i in np.ndindex(us.shape):
        change = np.zeros(us.shape)
        change[i] = 0.1
        found[i] = (cost(us + change) - cost(us - change)) / 0.2
    return found / abs(cost(us))


def test_controls_that_are_held_move_the_states():
    """The others are the minimum: the derivative of the cost by each of them is zero."""
    stages, x0 = random_problem(2, 3, 2)
    held, values = np.array([[True, False], [False, True]]), np.array([[0.7, 0.0], [0.0, -0.4]])
    clamp = jax.jit(lambda stages, held, values: lqr(clamped(stages, held, values), x0))
    found = clamp(LqrStages(*map(jnp.asarray, stages)), held, values)
    us = np.asarray(found.us)
    np.testing.assert_allclose(us[held], values[held], rtol=1e-14)
    np.testing.assert_allclose(found.xs, motion(stages, x0, us), rtol=1e-12)
    assert np.max(np.abs(slopes(stages, x0, us)[~held])) < 1e-11


def test_a_step_is_the_minimum_within_the_bounds():
    """The cost increases from a bound to the inside, for any active set at the start."""
    stages, _ = random_problem(7, 2, 3)
    us = np.random.default_rng(0).uniform(-0.3, 0.2, (7, 3))
    stages, none = LqrStages(*map(jnp.asarray, stages)), jnp.zeros((), int)
    operands = jnp.asarray(us), (jnp.full(3, -0.3), jnp.full(3, 0.2)), "sequential"

    @jax.jit
    def step(active):
        zero = jnp.zeros(())
        blank = jax.eval_shape(lambda: lqr(stages, jnp.zeros(2)))
        solution = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), blank)
        start = Step(solution, active, zero, zero > 0, zero > 0, none)
        return bounded_step(stages, stages, start, *operands)

    for active in (0, 1, -1):
        found = step(jnp.full((7, 3), active, float))
        assert found.found
        ends = us + found.solution.us
        sides = np.where(np.isclose(ends, 0.2), 1, np.where(np.isclose(ends, -0.3), -1, 0))
        np.testing.assert_array_equal(found.active, sides)
        assert {*sides.ravel()} == {-1, 0, 1}
        by_us = slopes(stages, np.zeros(2), np.asarray(found.solution.us))
        assert np.max(np.abs(by_us[sides == 0])) < 1e-11
        assert np.all(by_us[sides == 1] < 0)
        assert np.all(by_us[sides == -1] > 0)
