"""Linear-quadratic regulators, against the dense linear system of their optimality conditions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrbd.errors import ArgumentError
from jaxrbd.optimal_control import LqrStages, lqr
from jaxrbd.optimal_control.bounded_step import clamped
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


def test_controls_that_are_held_move_the_states():
    """The others are the minimum: the derivative of the cost by each of them is zero."""
    stages, x0 = random_problem(2, 3, 2)
    held, values = np.array([[True, False], [False, True]]), np.array([[0.7, 0.0], [0.0, -0.4]])
    clamp = jax.jit(lambda stages, held, values: lqr(clamped(stages, held, values), x0))
    found = clamp(LqrStages(*map(jnp.asarray, stages)), held, values)
    us = np.asarray(found.us)
    np.testing.assert_allclose(us[held], values[held], rtol=1e-14)
    A, B, c, Q, R, S, q, r = stages

    def motion(us):
        xs = [x0]
        for t, u in enumerate(us):
            xs.append(A[t] @ xs[t] + B[t] @ u + c[t])
        return np.array(xs)

    def cost(us):
        xs = motion(us)
        inner = np.einsum("ti,tij,tj", us, R, us) / 2 + np.einsum("ti,tij,tj", us, S, xs[:-1])
        return np.einsum("ti,tij,tj", xs, Q, xs) / 2 + inner + np.sum(q * xs) + np.sum(r * us)

    np.testing.assert_allclose(found.xs, motion(us), rtol=1e-12)
    for i in np.argwhere(~held):
        change = np.zeros((2, 2))
        change[tuple(i)] = 0.1
        assert abs(cost(us + change) - cost(us - change)) < 1e-12 * abs(cost(us))
