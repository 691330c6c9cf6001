"""Optimal control: optimality conditions, constraints, other solvers, errors."""

import functools

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import jaxrbd as rbd
from benchmarks.studies import swing_ups
from jaxrbd import constraints as con, integrators, optimal_control as oc
from jaxrbd.errors import ArgumentError
from jaxrbd.optimal_control import line_search
from jaxrbd.optimal_control.lqr import LqrSolution
from jaxrbd.optimal_control.penalty import LEAST_MU, first_penalty, updated_penalty
from jaxrbd.optimal_control.stages import (
    Multipliers,
    Values,
    all_values,
    estimated,
    linearise,
    lqr_stages,
    stage_values,
)
from support import finite_differences, pages, quadratic, zoo
from support.jax_events import work
from support.zoo import close

TOLERANCE = 1e-8
solve = functools.partial(oc.solve, tolerance=TOLERANCE)


def check(problem, x0, p, solution):
    """The solver converged, and the residuals computed anew agree."""
    assert solution.status == oc.Status.CONVERGED, solution.history
    assert oc.kkt_residual(problem, x0, p, solution).largest <= TOLERANCE


# ------------------------------------------------------------------------------------- problems


@functools.cache
def pendulum(bounds=None):
    """The swing-up of a pendulum in a vector space."""

    def dynamics(t, x, u, p):
        angle, speed = x
        speed = speed + 0.1 * (u[0] - 9.81 * jnp.sin(angle) - 0.1 * speed)
        return jnp.stack([angle + 0.1 * speed, speed])

    def cost(t, x, u, p):
        return jnp.concatenate([0.03 * (x - p), 0.1 * u])

    def last(x, p):
        return 10 * (x - p)

    problem = oc.Problem(oc.vector_space(2), dynamics, cost, last, control_bounds=bounds)
    return problem, jnp.zeros(2), jnp.array([np.pi, 0.0]), jnp.zeros((20, 1))


@pytest.fixture(scope="module")
def guide():
    """The names that the examples of the guide define: the swing-up of a cart-pole."""
    assert len(pages.blocks("optimal_control.md")) == 9
    found = {}
    assert pages.run("optimal_control.md", found) == 1
    return found


@functools.cache
def unicycle():
    """A vehicle that passes an obstacle, with bounds of both speeds, and parks at p."""

    def dynamics(t, x, u, p):
        return x + 0.1 * jnp.stack([u[0] * jnp.cos(x[2]), u[0] * jnp.sin(x[2]), u[1]])

    def path(t, x, u, p):
        return None, (0.25 - jnp.sum((x[:2] - jnp.array([1.0, 0.5])) ** 2))[None]

    problem = oc.Problem(
        oc.vector_space(3),
        dynamics,
        lambda t, x, u, p: 0.3 * u,
        control_bounds=([-1.0, -1.5], [1.0, 1.5]),
        path=path,
        terminal=lambda x, p: (x - p, None),
    )
    return problem, jnp.zeros(3), jnp.array([2.0, 1.0, 0.0]), jnp.full((30, 2), 0.1)


# --------------------------------------------------------------------------------------- spaces


def test_spaces_retract_and_return():
    model = zoo.small()
    space = oc.state_space(model)
    q, v, a, _ = zoo.state(model, 0)
    dx = 0.3 * jnp.concatenate([a, v])

    @jax.jit
    def evaluate(x, dx):
        zero = jnp.zeros(space.size)
        moved = space.retract(x, dx)
        by_change = jax.jacfwd(lambda d: space.difference(x, space.retract(x, d)))(zero)
        return moved, space.difference(x, moved), by_change

    (q_moved, v_moved), back, by_change = evaluate((q, v), dx)
    close(back, dx, 1e-12)
    close(by_change, jnp.eye(space.size), 1e-13)
    close(q_moved, rbd.integrate(model, q, dx[: model.nv]), 1e-15)
    close(v_moved, v + dx[model.nv :], 1e-15)
    parts = jnp.split(dx, np.cumsum(space.parts)[:-1])
    for got, expected in zip(space.move((q, v), *parts), (q_moved, v_moved)):
        close(got, expected, 1e-14)
    plain = oc.vector_space(3)
    assert plain.size == 3
    np.testing.assert_array_equal(plain.move(jnp.ones(3), dx[:3]), 1 + dx[:3])
    np.testing.assert_array_equal(plain.difference(jnp.ones(3), jnp.arange(3.0)), [-1, 0, 1])
    np.testing.assert_array_equal(plain.checked([1.0, 2.0, 3.0], "x"), [1, 2, 3])

    both, x = oc.product_space(plain, space), (jnp.arange(3.0), (q, v))
    change = jnp.concatenate([dx[:3], dx])
    moved = both.retract(both.checked(x, "x"), change)
    np.testing.assert_array_equal(moved[0], x[0] + dx[:3])
    close(jnp.concatenate(moved[1]), jnp.concatenate([q_moved, v_moved]), 1e-14)
    close(both.difference(x, moved), change, 1e-12)
    assert both.size == 3 + space.size
    for got, expected in zip(jax.tree.leaves(both.move(x, dx[:3], *parts)), jax.tree.leaves(moved)):
        close(got, expected, 1e-14)


def test_the_shortest_duration():
    """A mass m goes from rest to rest by the distance d under a force F: 2 sqrt(m d / F)."""

    def step(t, x, u, p):
        (y, w), T = x
        T = jnp.where(t == 0, u[1:], T)
        w = w + T / 20 * u[:1]
        return [[y + T / 20 * w, w], T]  # lists become tuples

    def cost(t, x, u, p):
        T = jnp.where(t == 0, u[1:], x[1])
        return jnp.concatenate([1e-4 * u[:1], jnp.sqrt(2 * T / 20), 0.1 * (u[1:] - T)])

    def last(x, p):
        (y, w), _ = x
        return jnp.concatenate([y - 1, w]), None

    line = oc.vector_space(1)
    space = oc.product_space(oc.product_space(line, line), line)
    bounds = jnp.array([-4.0, 0.01]), jnp.array([4.0, 20.0])
    problem = oc.Problem(space, step, cost, control_bounds=bounds, terminal=last)
    zero = jnp.zeros(1)
    for first in (0.2, 5.0):
        guess = jnp.tile(jnp.array([0.0, first]), (20, 1))
        found = solve(problem, ((zero, zero), jnp.array([first])), None, guess)
        assert found.status == oc.Status.CONVERGED
        close(found.xs[1][-1], [1.0], 1e-5)


# --------------------------------------------------------------------------------- unconstrained


@pytest.mark.parametrize("riccati", ["sequential", "parallel"])
def test_newton_steps_converge_quadratically(riccati):
    problem, x0, goal, us = pendulum()
    found = solve(problem, x0, goal, us, hessian="exact", riccati=riccati, iterations=40)
    check(problem, x0, goal, found)
    errors = np.asarray(found.history.residuals.stationarity)[: int(found.iterations) + 1]
    # The last step that begins far enough from rounding errors.
    assert errors[-1] < 1e-3 * errors[-2]
    assert errors[-2] < 0.1 * errors[-3]
    assert np.all(np.isposinf(found.history.cost[int(found.iterations) + 1 :]))
    # The states follow from the controls, and the costates from the cost.
    close(oc.follow(problem, x0, goal, found)[0], found.xs, 1e-7)


def test_any_guess_of_the_states_and_both_rollouts():
    """The minimum is the same as from a rollout, by all variants of the solver."""
    problem, x0, goal, us = pendulum()
    best = solve(problem, x0, goal, us, hessian="exact", iterations=40)
    noise = jnp.asarray(0.3 * np.random.default_rng(0).normal(size=(21, 2)))
    linear = solve(problem, x0, goal, (best.xs + noise, best.us), hessian="exact", iterations=40)
    feedback = solve(problem, x0, goal, 0.9 * best.us, rollout="feedback", iterations=300)
    for found in (linear, feedback):
        check(problem, x0, goal, found)
        close(found.cost, best.cost, 1e-7)
        close(found.xs, best.xs, 1e-5)
    assert linear.history.residuals.defects[0] > 0.1
    assert feedback.history.residuals.defects[1] < 1e-12


def test_a_rollout_with_feedback_shrinks_the_defects():
    """A step of the factor 1/4 leaves 3/4 of each defect, and the initial state stays.

    The dynamics differ from stage to stage.
    """
    pushes, us = jnp.linspace(1.0, 2.0, 20), jnp.zeros((20, 1))
    problem = oc.Problem(
        oc.vector_space(2),
        lambda t, x, u, p: jnp.sin(x) + p[t] * jnp.tanh(u),
        lambda t, x, u, p: u,
    )
    rng = np.random.default_rng(0)
    xs, gains = jnp.asarray(rng.normal(size=(21, 2))), jnp.asarray(rng.normal(size=(20, 1, 2)))
    step = LqrSolution(0 * xs, 0 * us, gains, us + 0.1, 0 * xs, jnp.asarray(True))

    def defects(xs, us):
        after = jax.vmap(problem.step, (0, 0, 0, None))(jnp.arange(20), xs[:-1], us, pushes)
        return after - xs[1:]

    bounds = -0.4, 0.5
    states, controls = line_search.feedback_motion(
        problem, pushes, xs, us, step, defects(xs, us), jnp.asarray(0.25), bounds
    )
    assert (jnp.min(controls), jnp.max(controls)) == bounds
    close(defects(states, controls), 0.75 * defects(xs, us))
    close(states[0], xs[0])


def test_a_whole_step_to_a_bound_ends_within_the_bounds():
    """Exactly, where the sum of control and step is beyond the bound by rounding."""
    rng, upper = np.random.default_rng(0), jnp.array([0.3])
    us = jnp.asarray(rng.uniform(-0.3, 0.3, size=(50, 1)))
    assert np.any(us + (upper[None] - us) > upper[None])
    xs = jnp.zeros((51, 2))
    step = LqrSolution(xs, upper[None] - us, *4 * [None])
    _, ends = line_search.linear_motion(pendulum()[0], xs, us, step, jnp.ones(()), (-upper, upper))
    assert jnp.all(ends <= upper[None])
    close(ends, jnp.full((50, 1), 0.3), 1e-15)


def test_the_slope_of_the_merit_is_its_derivative():
    """Along a step that closes the defects, with random multipliers of all constraints."""
    problem, p = quadratic.problem(quadratic.PARAMETERS["upper"]), quadratic.PARAMETERS
    rng = np.random.default_rng(1)
    xs, us, dus, costates = (
        jnp.asarray(rng.normal(size=size)) for size in ((3, 1), (2, 3), (2, 3), (3, 1))
    )
    dus = 3 * dus
    multipliers = jax.tree.map(
        lambda x: jnp.asarray(rng.uniform(0.5, 1.5, x.shape)), quadratic.MINIMUM.multipliers
    )
    penalty = first_penalty(multipliers, jnp.asarray(0.5), jnp.asarray(1e-8))

    @jax.jit
    def evaluate(length, dus):
        linear = linearise(problem, p, xs, us, costates, multipliers, penalty.mu, False)
        values = linear.inner.values, linear.last.values
        stages = lqr_stages(linear, estimated(values, multipliers, penalty.mu), penalty.mu, 1)
        dxs = [jnp.zeros(1)]
        for A, B, c, du in zip(stages.A, stages.B, stages.c, dus):
            dxs.append(A @ dxs[-1] + B @ du + c)
        step = LqrSolution(jnp.stack(dxs), dus, dus, dus, costates, True)
        merit = line_search.merit_of_step(values, stages, step, penalty)

        def moved(factor):
            return xs + factor * step.xs, us + factor * dus

        values = all_values(problem, p, *moved(length))
        return line_search._merit(values, step, merit.rho, penalty), merit

    signs = set()
    for sign in (1, -1):
        change = sign * dus
        merit = evaluate(jnp.zeros(()), change)[1]
        close(
            finite_differences.slope(lambda t, change=change: evaluate(t, change)[0], 1e-4),
            merit.slope,
            1e-9,
        )
        assert jnp.max(jnp.abs(merit.defects)) > 0.1
        signs.add(float(jnp.sign(merit.slope)))
    assert signs == {1.0, -1.0}


def test_no_step_is_taken_along_which_the_merit_increases_at_first():
    """The cost u (1 - u) + 1e-5 u is about the same at u = 0 and u = 1, with the slope 1 at 0.

    No step ends where the cost is minus infinity, below a hole.
    """
    us, xs, zero = jnp.zeros((1, 1)), jnp.zeros((2, 1)), jnp.zeros(())
    none, end = jnp.zeros((1, 0)), jnp.zeros(0)
    penalty = first_penalty(Multipliers(none, none, end, end, us), jnp.ones(()), zero)

    def factor(sign, hole=-2.0):
        def evaluate(xs, us):
            cost = us[:, 0] * (1 - us[:, 0]) + 1e-5 * us[:, 0]
            cost = jnp.where(us[:, 0] < hole, -jnp.inf, cost)
            return (Values(us * 0, cost, none, none), Values(end, zero, end, end)), None

        step = LqrSolution(xs, us + sign, us, us, xs, jnp.asarray(True))
        merit = line_search.Merit(zero, zero + sign, zero + 1e-14, zero, zero, us)
        operands = xs, us, jnp.asarray(True), step, merit, penalty
        return line_search.line_search(
            *operands, lambda factor: (xs, factor * step.us), evaluate, None
        ).factor

    assert (factor(1.0), factor(-1.0), factor(-1.0, -0.9)) == (0, 1, 0.5)


def test_rounding_errors_of_a_large_cost_do_not_shorten_a_step():
    """A quadratic problem, whose minimum is one step away, with the cost 1e6 in each stage.

    The step decreases the cost by about 1e-11, and the cost has rounding errors of about 1e-9.
    """
    problem = oc.Problem(
        oc.vector_space(1),
        lambda t, x, u, p: x + u,
        lambda t, x, u, p: 1e6 + u[0] ** 2 / 2,
        lambda x, p: x - 1,
    )
    us = 1 / 21 + 1e-6 * np.random.default_rng(0).normal(size=(8, 20, 1))
    found = jax.jit(
        jax.vmap(lambda us: solve(problem, jnp.zeros(1), None, us, rollout="linear", iterations=5))
    )(jnp.asarray(us))
    np.testing.assert_array_equal(found.history.factor[:, 0], 1)
    np.testing.assert_array_equal(found.iterations, 1)
    close(found.us, jnp.full((8, 20, 1), 1 / 21), 1e-14)


def test_the_gain_of_a_step():
    """It is 1 for the cost -u + u^2 / 2, and -2 for -u + 2 u^2, whose step has the factor 1/4."""
    us, xs, zero = jnp.zeros((1, 1)), jnp.zeros((2, 1)), jnp.zeros(())
    none, end = jnp.zeros((1, 0)), jnp.zeros(0)
    penalty = first_penalty(Multipliers(none, none, end, end, us), jnp.ones(()), zero)
    step = LqrSolution(xs, us + 1, us, us, xs, jnp.asarray(True))
    merit = line_search.Merit(zero, zero - 1, zero + 1e-14, zero, zero, us)

    def trial(curvature):
        def evaluate(xs, us):
            cost = -us[:, 0] + curvature * us[:, 0] ** 2
            return (Values(us * 0, cost, none, none), Values(end, zero, end, end)), None

        operands = xs, us, jnp.asarray(True), step, merit, penalty
        found = line_search.line_search(
            *operands, lambda factor: (xs, factor * step.us), evaluate, None
        )
        assert found.measured
        return found.factor, found.gain

    assert trial(0.5) == (1, 1)
    assert trial(2.0) == (0.25, -2)


def test_another_solver_finds_the_same_minimum():
    """SLSQP of SciPy, over the controls of a problem with bounds."""
    from scipy import optimize

    problem, x0, goal, us = pendulum(bounds=(-5.0, 5.0))
    found = solve(problem, x0, goal, us, hessian="exact", iterations=100)
    check(problem, x0, goal, found)

    @jax.jit
    @jax.value_and_grad
    def cost(us):
        def stage(x, u):
            r = problem.cost.function(0, x, u[None], goal)
            return problem.dynamics.function(0, x, u[None], goal), jnp.sum(r * r) / 2

        x, costs = jax.lax.scan(stage, x0, us)
        return jnp.sum(costs) + jnp.sum(problem.terminal_cost.function(x, goal) ** 2) / 2

    start = np.asarray(found.us[:, 0]) + 0.3 * np.random.default_rng(0).normal(size=20)
    other = optimize.minimize(
        lambda us: tuple(map(np.asarray, cost(jnp.asarray(us)))),
        np.clip(start, -5, 5),
        jac=True,
        method="SLSQP",
        bounds=[(-5, 5)] * 20,
        options={"ftol": 1e-14, "maxiter": 500},
    )
    close(found.cost, other.fun, 1e-8)
    close(found.us[:, 0], other.x, 1e-4)
    # A multiplier is the gain in cost per move of the bound: positive at an upper bound.
    slopes = cost(found.us[:, 0])[1]
    held = np.abs(found.us[:, 0]) == 5
    assert set(np.asarray(found.us)[held, 0]) == {-5.0, 5.0}
    close(found.multipliers.bounds[:, 0], np.where(held, -slopes, 0), 1e-7)


@pytest.mark.slow
def test_gauss_newton_converges_where_the_residuals_are_large():
    """The tip of an arm cannot reach p. Near the minimum, rounding errors hide the merit."""

    def dynamics(t, x, u, p):
        v = x[2:] + 0.1 * u
        return jnp.concatenate([x[:2] + 0.1 * v, v])

    def last(x, p):
        a, b = x[0], x[0] + x[1]
        tip = jnp.stack([jnp.cos(a) + jnp.cos(b), jnp.sin(a) + jnp.sin(b)])
        return jnp.concatenate([5 * (tip - p), x[2:]])

    problem = oc.Problem(
        oc.vector_space(4),
        dynamics,
        lambda t, x, u, p: 0.1 * jnp.concatenate([x[2:], u]),
        last,
    )
    operands = jnp.array([0.3, 0.5, 0.0, 0.0]), jnp.array([-1.0, 2.5])
    found = solve(problem, *operands, jnp.zeros((15, 2)), iterations=200)
    check(problem, *operands, found)
    assert found.cost > 5
    # The exact Hessian has no minimum at first. It takes over near the solution.
    exact = solve(problem, *operands, jnp.zeros((15, 2)), hessian="exact", iterations=200)
    check(problem, *operands, exact)
    close(exact.cost, found.cost, 1e-12)
    close(exact.history.cost[:5], found.history.cost[:5], 1e-10)
    assert 5 * exact.iterations < found.iterations
    # Without defects, the merit is the cost. Each step decreases it, some by a part of the step.
    options = {"rollout": "feedback", "iterations": 30, "hessian": "exact"}
    steps = solve(problem, *operands, jnp.zeros((15, 2)), **options)
    count = int(steps.iterations)
    costs, factors = (np.asarray(x)[:count] for x in (steps.history.cost, steps.history.factor))
    assert np.all(np.diff(costs) < 1e-12 * costs[0])
    assert np.any((factors > 0) & (factors < 1))
    assert factors[-1] == 1


# -------------------------------------------------------------------------------------- rollouts


@pytest.mark.slow
def test_the_automatic_rollout_starts_again_from_the_guess():
    """An acrobot of two point masses, whose linear rollout finds no step after some iterations."""

    def dynamics(t, x, u, goal):
        a, b, v, w = x
        c, s = jnp.cos(b), jnp.sin(b)
        m, k = 3 + 2 * c, 1 + c
        weight = 9.81 * jnp.sin(a + b)
        f = s * w * (2 * v + w) - 19.62 * jnp.sin(a) - weight
        g = u[0] - s * v * v - weight
        v = v + 0.05 * (f - k * g) / (m - k * k)
        w = w + 0.05 * (m * g - k * f) / (m - k * k)
        return jnp.stack([a + 0.05 * v, b + 0.05 * w, v, w])

    problem = oc.Problem(
        oc.vector_space(4),
        dynamics,
        lambda t, x, u, goal: 0.1 * u,
        lambda x, goal: 10 * (x - goal),
        control_bounds=(-15.0, 15.0),
    )
    goal = jnp.array([np.pi, 0.0, 0.0, 0.0])
    us = 15.0 * jnp.asarray(np.random.default_rng(0).normal(size=(8, 50, 1))[7])
    found = solve(problem, jnp.zeros(4), goal, us, hessian="exact", iterations=60)
    check(problem, jnp.zeros(4), goal, found)
    rows = jax.tree.map(lambda x: np.asarray(x)[: int(found.iterations) + 1], found.history)
    again = 1 + int(np.flatnonzero(rows.cost[1:] == rows.cost[0])[0])
    assert rows.shift[again - 1] > 1e9
    assert rows.factor[again - 1] == 0
    assert rows.shift[again] == rows.shift[0] < 1
    close(rows.residuals.stationarity[again], rows.residuals.stationarity[0])
    # With feedback, each step shrinks the defects, which come from a guess beyond the bounds.
    assert np.max(np.diff(rows.residuals.defects[:again])) > 0.1
    defects = rows.residuals.defects[again:]
    close(defects[1:], (1 - rows.factor[again:-1]) * defects[:-1], 1e-12)
    assert defects[0] > 0.1
    assert defects[-1] < 1e-12


def test_the_automatic_rollout_continues_with_feedback(monkeypatch):
    """After the default number of linear steps, which is three here."""
    problem, x0, goal, us = pendulum.__wrapped__()
    linear = solve(problem, x0, goal, us, rollout="linear", iterations=3)
    assert linear.status == oc.Status.ITERATION_LIMIT
    monkeypatch.setattr(oc.solution, "ITERATIONS", 3)
    found = oc.solve(problem, x0, goal, us)
    assert found.iterations == 6
    assert len(found.history.cost) == 6
    close(found.history.cost[:3], linear.history.cost)
    defects = np.asarray(found.history.residuals.defects)
    assert defects[3] > 1e-6
    assert np.all(found.history.factor[3:5] == 1)
    assert np.max(defects[4:]) < 1e-12


@pytest.mark.slow
def test_swing_ups_reach_their_goals():
    """At least 38 of 40, from random controls; 100 steps of the linear rollout reach 30."""
    reached = {name: int(jnp.sum(swing_ups.reached(name))) for name in swing_ups.ROBOTS}
    assert sum(reached.values()) >= 38, reached


# ----------------------------------------------------------------------------------- constraints


@pytest.mark.documents
def test_control_bounds_hold_exactly(guide):
    found = guide["solution"]
    assert found.status == oc.Status.CONVERGED
    upper, lower = (np.asarray(found.us) == bound for bound in (6.0, -6.0))
    assert np.sum(upper) > 1
    assert np.sum(lower) > 1
    assert np.max(np.abs(found.us)) <= 6.0
    by_bounds = np.asarray(found.multipliers.bounds)
    assert np.all(by_bounds[upper] >= 0)
    assert np.all(by_bounds[lower] <= 0)
    assert np.max(np.abs(by_bounds)) > 1e-2
    np.testing.assert_array_equal(by_bounds[~(upper | lower)], 0)
    np.testing.assert_array_equal(np.asarray(found.gains)[upper | lower], 0)


def test_a_quadratic_program_has_the_minimum_of_its_dense_system():
    """Stages that differ, bounds, and constraints of all kinds, of which some do not act."""
    upper, x0 = quadratic.PARAMETERS["upper"], quadratic.PARAMETERS["start"]
    problem, minimum = quadratic.problem(upper), quadratic.MINIMUM
    operands = problem, x0, quadratic.PARAMETERS
    found = oc.solve(*operands, jnp.zeros((2, 3)), tolerance=1e-11, mu=0.03)
    assert found.status == oc.Status.CONVERGED
    assert found.history.mu[0] == 0.03
    for name, expected in minimum._asdict().items():
        for x, y in zip(jax.tree.leaves(getattr(found, name)), jax.tree.leaves(expected)):
            if x.size:
                close(x, y, 1e-9, name)
    # The states of the guess follow from its controls, and the motion from x0 is the minimum.
    assert found.history.residuals.defects[0] < 1e-14
    xs, us = oc.follow(*operands, found)
    close(xs, minimum.xs, 1e-9)
    close(us, minimum.us, 1e-9)
    # An end out of reach within the bounds.
    far = quadratic.PARAMETERS | {"end": jnp.asarray(-1000.0)}
    found = oc.solve(problem, x0, far, jnp.zeros((2, 3)), tolerance=1e-11, mu=0.03)
    assert found.status == oc.Status.INFEASIBLE


def test_each_residual_is_the_largest_error_of_its_kind():
    """At a minimum all are zero. One change at a time violates one condition."""
    upper, x0 = quadratic.PARAMETERS["upper"], quadratic.PARAMETERS["start"]
    problem, minimum = quadratic.problem(upper), quadratic.MINIMUM
    xs, us, costates, multipliers, _ = minimum

    def residuals(x0=x0, xs=xs, us=us, **changed):
        solution = oc.Solution(*4 * [None], multipliers._replace(**changed), *5 * [None])
        solution = solution._replace(xs=xs, us=us, costates=costates)
        return oc.kkt_residual(problem, x0, quadratic.PARAMETERS, solution)

    close(jnp.stack(residuals()), jnp.zeros(5), 1e-13)
    close(residuals(x0 + 0.3).defects, 0.3, 1e-13)
    # The end is beyond a terminal inequality only, with its multiplier z.
    z, z_end = multipliers.inequalities, multipliers.terminal_inequalities
    beyond = residuals(xs=xs.at[2].add(0.1))
    close(beyond.inequalities, 0.1, 1e-13)
    close(beyond.complementarity, 0.1 * z_end[0], 1e-13)
    close(residuals(us=us.at[0, 0].add(0.25)).inequalities, 0.25, 1e-13)
    close(residuals(us=us.at[1, 0].set(-9.5)).inequalities, 0.5, 1e-13)
    close(residuals(us=us.at[0, 2].add(0.2)).inequalities, 0.2, 1e-13)
    close(residuals(us=us.at[0, 1].add(0.2)).equalities, 0.2, 1e-13)
    # Multipliers of constraints that do not act, and negative multipliers of those that act.
    gap = us[0, 2] - 8
    close(residuals(inequalities=z.at[0, 1].set(0.5)).complementarity, -0.5 * gap, 1e-13)
    gap = xs[2, 0] - 8
    close(residuals(terminal_inequalities=z_end.at[1].set(0.5)).complementarity, -0.5 * gap, 1e-13)
    close(residuals(inequalities=z.at[0, 0].set(-0.7)).complementarity, 0.7, 1e-13)
    close(residuals(terminal_inequalities=z_end.at[0].set(-0.7)).complementarity, 0.7, 1e-13)
    wrong = residuals(terminal_inequalities=-z_end)
    close(wrong.stationarity, 2 * z_end[0], 1e-13)
    for i in range(5):
        assert oc.Residuals(*jnp.eye(5)[i]).largest == 1


def test_paths_and_ends_satisfy_their_constraints():
    problem, x0, goal, us = unicycle()
    found = solve(problem, x0, goal, us, hessian="exact", iterations=100)
    check(problem, x0, goal, found)
    close(found.xs[-1], goal, 1e-6)
    distance = np.linalg.norm(np.asarray(found.xs)[:-1, :2] - [1.0, 0.5], axis=1)
    assert np.min(distance) > 0.5 - 1e-6
    touches = np.abs(distance - 0.5) < 1e-6
    z = np.asarray(found.multipliers.inequalities)[:, 0]
    assert 0 < np.sum(touches) < 30
    assert np.all(z >= 0)
    assert np.max(z) > 1e-2
    assert np.max(np.abs(z[~touches]), initial=0) < 1e-6
    # The multiplier of an equality is the derivative of the cost in its value.
    moved = goal + jnp.array([1e-3, 0.0, 0.0])
    other = solve(problem, x0, moved, found, hessian="exact", iterations=100)
    check(problem, x0, moved, other)
    # The solution itself is a guess with its multipliers, so it is the end of a solve.
    assert solve(problem, x0, goal, found, hessian="exact", iterations=100).iterations <= 1
    slope = (other.cost - found.cost) / 1e-3
    ends = (found.multipliers.terminal_equalities, other.multipliers.terminal_equalities)
    close(slope, -(ends[0] + ends[1])[0] / 2, 1e-4)


def sharing():
    """The problem of `unicycle` with `shared`, and the list of the calls of this function."""
    plain, *_ = unicycle()
    calls = []

    def shared(t, x, u, p):
        calls.append(t)
        direction = jnp.stack([jnp.cos(x[2]), jnp.sin(x[2])])
        return direction, 0.3 * u, 0.25 - jnp.sum((x[:2] - jnp.array([1.0, 0.5])) ** 2)

    def dynamics(t, x, u, p, found):
        return x + 0.1 * jnp.concatenate([u[0] * found[0], u[1:]])

    problem = oc.Problem(
        plain.space,
        dynamics,
        lambda t, x, u, p, found: found[1],
        control_bounds=plain.control_bounds,
        path=lambda t, x, u, p, found: (None, found[2][None]),
        terminal=plain.terminal,
        shared=shared,
    )
    return problem, calls


def test_functions_share_what_is_computed_once():
    """The functions of a stage with `shared` have the values of those without it."""
    plain, _, goal, us = unicycle()
    problem, calls = sharing()
    x, u, stage = jnp.array([0.1, 0.2, 0.3]), us[0], jnp.asarray(2)

    def values(problem):
        return stage_values(problem, goal, stage, x, 2 * x, u)

    found, expected = jax.jit(lambda: (values(problem), values(plain)))()
    assert calls == [2]
    for a, b in zip(found, expected):
        close(a, b, 1e-15)
    close(problem.step(0, x, u, goal), plain.dynamics(0, x, u, goal), 1e-15)


@pytest.mark.slow
def test_a_problem_that_shares_has_the_same_solution():
    """And the same derivative of the solution."""
    plain, x0, goal, us = unicycle()
    problem, _ = sharing()

    def end(problem, goal):
        found = solve(problem, x0, goal, us, hessian="exact", iterations=100, tolerance=1e-10)
        return found.us[3], found

    (expected, of_plain), (got, found) = (
        jax.jacfwd(functools.partial(end, problem), has_aux=True)(goal)
        for problem in (plain, problem)
    )
    check(problem, x0, goal, found)
    close(found.us, of_plain.us, 1e-9)
    close(got, expected, 1e-7)
    followed = oc.follow(problem, x0 + 0.01, goal, found)[0]
    close(followed, oc.follow(plain, x0 + 0.01, goal, of_plain)[0], 1e-7)
    feedback = solve(problem, x0, goal, found, rollout="feedback", iterations=5)
    check(problem, x0, goal, feedback)


def test_the_penalty_of_constraints():
    """When multipliers, mu and the tolerance change, and which violations count."""
    zero, solver_tolerance = jnp.zeros(()), jnp.asarray(1e-3)
    none = Values(jnp.zeros((2, 0)), jnp.zeros(2), jnp.zeros((2, 1)), jnp.zeros((2, 1)))
    end = Values(zero[None], zero, jnp.zeros(1), jnp.zeros(1))
    old = Multipliers(none.h, none.g, end.h, end.g, none.g)
    new = jax.tree.map(lambda x: x + 1.5, old)
    updated = jax.jit(updated_penalty)

    def after(penalty, size, errors=(0.0, 0.0), inner=none, last=None, new=new):
        last = end._replace(h=jnp.full(1, size)) if last is None else last
        residuals = oc.Residuals(*map(jnp.asarray, errors), zero, zero, zero)
        return updated(penalty, (inner, last), new, residuals, solver_tolerance)

    first = first_penalty(old, jnp.asarray(0.01), solver_tolerance)
    # It stays where the trajectory is not stationary, has defects or violates no constraint.
    for size, errors in ((0.5, (0.2, 0.0)), (0.5, (0.0, 0.2)), (0.0, (0.0, 0.0))):
        for x, y in zip(jax.tree.leaves(after(first, size, errors)), jax.tree.leaves(first)):
            np.testing.assert_array_equal(x, y)
    # The violations of the constraints of all kinds count.
    stages = jnp.array([[0.0], [-0.5]])
    for inner, last in (
        (none._replace(h=stages), end),
        (none._replace(g=-stages), end),
        (none, end._replace(h=jnp.array([-0.5]))),
        (none, end._replace(g=jnp.array([0.5]))),
    ):
        assert after(first, None, inner=inner, last=last).violation == 0.5
    second = after(first, 0.5)
    np.testing.assert_array_equal(second.multipliers.equalities, new.equalities)
    assert (second.mu, second.tolerance) == (0.01, 0.1 * first.tolerance)
    # Without improvement mu decreases to its least value; then the violation counts as a stall.
    third = after(second, 0.4)
    close(third.mu, 1e-3, 1e-15)
    assert third.stalls == 0
    assert third.tolerance == second.tolerance  # an infeasible problem need not be exact
    assert after(second, 0.1).mu == 0.01
    tight = second._replace(tolerance=1.5 * solver_tolerance)
    assert after(tight, 0.1).tolerance == solver_tolerance
    # The stationarity counts relative to large multipliers.
    large = jax.tree.map(lambda x: 20 * x, new)
    for size, is_stationary in ((0.29, True), (0.31, False)):
        assert (after(first, 0.5, (size, 0.0), new=large).violation == 0.5) == is_stationary
    least = second._replace(mu=jnp.asarray(LEAST_MU))
    assert after(third._replace(mu=2 * least.mu), 0.4).mu == LEAST_MU
    for size, stalls in ((0.5, 1), (0.1, 0)):
        found = after(least, size)
        assert (found.mu, found.stalls) == (LEAST_MU, stalls)
    small = least._replace(violation=jnp.asarray(5e-4))
    assert after(small, 5e-4).stalls == 0  # within the tolerance of the solver


def test_rows_of_stages_beyond_a_table_are_nan():
    """A motion with a schedule that is too short fails; JAX would repeat the last row."""
    tables = {"acts": jnp.array([[True, False], [True, True]]), "x": jnp.array([1.0, 2.0])}
    row = jax.jit(oc.at_stage)(tables, 1)
    np.testing.assert_array_equal(row["acts"], [1.0, 1.0])
    assert row["acts"].dtype == float
    assert row["x"] == 2.0
    for t in (2, -1):
        assert all(np.all(np.isnan(x)) for x in jax.tree.leaves(oc.at_stage(tables, t)))
    problem = oc.Problem(
        oc.vector_space(1),
        lambda t, x, u, p: x + oc.at_stage(p, t) * u,
        lambda t, x, u, p: jnp.concatenate([x, u]),
    )
    statuses = [
        oc.solve(problem, jnp.ones(1), jnp.ones(rows, int), jnp.zeros((4, 1))).status
        for rows in (3, 4)
    ]
    assert statuses == [oc.Status.FAILED, oc.Status.CONVERGED]


def test_a_traced_time_step_of_zero_fails():
    model = rbd.load_robot("pendulum")

    @jax.jit
    def status(dt):
        step = oc.shooting_step(model, oc.joint_torques(model), integrators.semi_implicit_euler, dt)
        problem = oc.Problem(
            oc.state_space(model), step, lambda t, x, u, p: jnp.concatenate([*x, u])
        )
        x0 = jnp.ones(1), jnp.zeros(1)
        return oc.solve(problem, x0, None, jnp.zeros((3, 1)), rollout="linear").status

    assert [status(dt) for dt in (0.1, 0.0, -0.1)] == [
        oc.Status.CONVERGED,
        oc.Status.FAILED,
        oc.Status.FAILED,
    ]


def test_infeasible_problems_say_so():
    problem, x0, _, us = unicycle()
    for distance in (9.0, 100.0):
        goal = jnp.array([distance, 1.0, 0.0])
        found = solve(problem, x0, goal, us, hessian="exact", iterations=100)
        assert found.status == oc.Status.INFEASIBLE
    assert solve(problem, x0, goal, us).status == oc.Status.INFEASIBLE  # Gauss-Newton


def test_problems_without_a_step_fail_or_are_infeasible():
    """The cost has no minimum. The control moves the state by p, and the end is 1 or more."""
    problem = oc.Problem(
        oc.vector_space(1),
        lambda t, x, u, p: x + p * u,
        lambda t, x, u, p: -1e10 * jnp.sum(u * u),
        terminal=lambda x, p: (None, 1 - x),
    )

    def status(p, mu):
        operands = jnp.zeros(1), jnp.asarray(p), jnp.zeros((2, 1))
        found = oc.solve(problem, *operands, rollout="linear", mu=jnp.asarray(mu))
        assert found.iterations == 0
        return found.status

    assert status(1.0, 1e-2) == oc.Status.FAILED  # the end is in reach
    assert status(0.0, LEAST_MU) == oc.Status.INFEASIBLE


def test_other_ends_of_a_solve():
    problem, x0, goal, us = pendulum()
    options = {"hessian": "exact", "iterations": 2, "fixed_iterations": True}
    options |= {"riccati": "parallel", "tolerance": TOLERANCE}
    guess = jnp.zeros((21, 2)), us
    few = oc.solve(problem, x0, goal, guess, **options)
    assert few.status == oc.Status.ITERATION_LIMIT
    assert few.iterations == 2
    assert few.residuals.largest > TOLERANCE
    again = oc.kkt_residual(problem, x0, goal, few)
    jax.tree.map(lambda x, y: close(x, y, 1e-12), tuple(again), tuple(few.residuals))
    broken = oc.solve(problem, x0, goal.at[0].set(jnp.nan), guess, **options)
    assert broken.status == oc.Status.FAILED
    # One loop has a fixed length, the guess and two steps, and no loop runs over the 20 stages.
    program = str(oc.solve.trace(problem, x0, goal, guess, **options).jaxpr)
    assert "length=3" in program
    assert "length=20" not in program


# ----------------------------------------------------------------------------- robots on manifolds


@functools.cache
def quadruped():
    """A quadruped in free fall that moves its legs; the goal p is a configuration."""
    model = rbd.load_robot("quadruped")
    legs = range(6, model.nv)
    step = oc.shooting_step(
        model, oc.joint_torques(model, legs), integrators.semi_implicit_euler, 0.02
    )

    def cost(t, x, u, p):
        return jnp.concatenate([0.1 * x[1], 0.1 * u])

    def last(x, p):
        return 3 * rbd.difference(model, x[0], p)

    problem = oc.Problem(oc.state_space(model), step, cost, last)
    start = rbd.integrate(model, rbd.neutral(model), 0.3 * jnp.cos(jnp.arange(1.0, model.nv + 1)))
    goal = rbd.integrate(model, start, 0.2 * jnp.sin(jnp.arange(1.0, model.nv + 1)))
    x0 = start, jnp.zeros(model.nv)
    return problem, x0, goal, jnp.zeros((5, model.nv - 6))


@pytest.mark.slow
def test_a_floating_base_stays_on_its_manifold():
    problem, x0, goal, us = quadruped()
    xs = jax.tree.map(lambda x: jnp.repeat(x[None], 6, axis=0), x0)
    found = solve(problem, x0, goal, (xs, us), iterations=60)
    check(problem, x0, goal, found)
    quaternions = np.asarray(found.xs[0])[:, 3:7]
    np.testing.assert_allclose(np.linalg.norm(quaternions, axis=1), 1, atol=1e-14)
    assert np.max(np.abs(quaternions - quaternions[0])) > 1e-3
    assert np.max(np.abs(found.us)) > 0.1
    # The same trajectory and the same end with the other sign of a quaternion.
    opposite = goal.at[3:7].multiply(-1)
    again = solve(problem, x0, opposite, (xs, us), iterations=60)
    close(again.us, found.us, 1e-6)


def test_the_jacobians_of_the_parts_of_a_state():
    """The Gauss-Newton matrices of an oscillator on a hinge: columns by q, by v and by u."""
    space = oc.state_space(zoo.chain(1))

    def step(t, x, u, p):
        v = x[1] + 0.1 * (u[:1] - 4 * x[0])
        return x[0] + 0.1 * v, v

    def cost(t, x, u, p):
        return jnp.concatenate([x[0], 2 * x[1], 3 * u])

    def scalar_cost(t, x, u, p):
        return jnp.sum(cost(t, x, u, p) ** 2) / 2

    xs, us = (jnp.zeros((3, 1)), jnp.ones((3, 1))), jnp.ones((2, 2))
    none = jnp.zeros((2, 0))
    multipliers = Multipliers(none, none, none[0], none[0], us)

    @jax.jit
    def linear(xs):
        operands = None, xs, us, jnp.zeros((3, 2)), multipliers, jnp.ones(()), False
        return [linearise(oc.Problem(space, step, f), *operands) for f in (cost, scalar_cost)]

    found, scalar = linear(xs)
    A = np.array([[1 - 0.04, 0.1, 0.01, 0.0], [-0.4, 1.0, 0.1, 0.0]])
    for jacobians, hessian in zip(found.inner.jacobians.defect, found.inner.hessian):
        close(jacobians, A, 1e-14)
        close(hessian, np.diag([1.0, 4.0, 9.0, 9.0]), 1e-14)
    close(scalar.inner.hessian, found.inner.hessian, 1e-14, "the Hessian of a scalar cost")


def test_the_exact_hessian_weights_each_function_with_its_multiplier():
    """Each function has one second derivative. Constraints have the multipliers y_hat and z_hat."""
    functions = {
        "dynamics": lambda t, x, u, p: u * x,
        "cost": lambda t, x, u, p: 2 * jnp.sum(u * u),
        "terminal_cost": lambda x, p: x,
        "path": lambda t, x, u, p: (x * x / 2, jnp.concatenate([u * u / 2, -x * x])),
        "terminal": lambda x, p: (x * x / 2, 3 * x * x / 2),
    }
    problem = oc.Problem(oc.vector_space(1), **functions)
    x, u, mu, y, z, y_last, z_last = 0.6, 0.8, 0.5, 0.2, 0.3, 0.7, 1.1
    multipliers = Multipliers(*map(jnp.array, ([[y]], [[z, 0.1]], [y_last], [z_last], [[0.0]])))
    xs, us, costates = jnp.full((2, 1), x), jnp.full((1, 1), u), jnp.array([[0.0], [-0.9]])
    linear = jax.jit(
        lambda xs: linearise(problem, None, xs, us, costates, multipliers, jnp.asarray(mu), True)
    )(xs)
    curvature = [[y + x * x / 2 / mu, -0.9], [-0.9, z + u * u / 2 / mu]]
    close(linear.inner.curvature[0], curvature, 1e-15)
    close(linear.inner.hessian[0], np.array(curvature) + np.diag([0, 4]), 1e-15)
    by_end = y_last + x * x / 2 / mu + 3 * (z_last + 3 * x * x / 2 / mu)
    close(linear.last.curvature, [[by_end]], 1e-14)
    close(linear.last.hessian, [[1 + by_end]], 1e-14)


def test_a_time_step_has_the_acceleration_of_its_stage():
    """Constant accelerations p[t] of a hinge, by the semi-implicit Euler method."""

    def acceleration(t, q, v, u, p):
        return p[t] + u

    step = oc.shooting_step(
        zoo.chain(1), acceleration, integrators.semi_implicit_euler, jnp.asarray(0.1)
    )
    x, accelerations = (jnp.array([0.4]), jnp.array([0.7])), jnp.array([[1.0], [2.0], [5.0]])
    q, v = jax.jit(jax.vmap(lambda t: step(t, x, jnp.array([0.5]), accelerations)))(jnp.arange(3))
    close(v, 0.7 + 0.1 * (accelerations + 0.5), 1e-14)
    close(q, 0.4 + 0.1 * v, 1e-14)


def test_joint_torques_act_on_their_dofs():
    """The acceleration, and its rate along a motion, are those of `forward_dynamics`."""
    model = zoo.chain(2)
    q, v, dq, dv, tau, dtau = jnp.asarray(np.random.default_rng(0).normal(size=(6, 2)))

    @jax.jit
    def evaluate(t):
        def found(t):
            return oc.joint_torques(model, [1])(
                0, q + t * dq, v + t * dv, (tau + t * dtau)[1:], None
            )

        force = (tau + t * dtau).at[0].set(0.0)
        expected = rbd.forward_dynamics(model, q + t * dq, v + t * dv, force)
        return jax.jvp(found, (t,), (jnp.ones(()),)), expected

    (value, rate), expected = evaluate(jnp.zeros(()))
    close(value, expected, 1e-11)
    close(rate, finite_differences.slope(lambda t: evaluate(t)[1], 1e-3), 1e-8)
    # Gravity and forces have no effect on the change of v in an impact.
    hit = oc.joint_torques(model, impact=lambda t, p: True)
    np.testing.assert_array_equal(hit(0, q, v, tau, None), np.zeros(2))


def test_wrong_joint_torques_are_named():
    model = zoo.small()
    q, v, tau, _ = zoo.state(model)
    for dofs in ((0, 0), (-1,), (0, model.nv)):
        with pytest.raises(ArgumentError, match=r"dofs is .*, expected different ints from 0 to"):
            oc.joint_torques(model, dofs)
    with pytest.raises(ArgumentError, match=r"u has shape \(3,\), expected \(2,\)"):
        oc.joint_torques(model, [0, 1])(0, q, v, tau[:3], None)


@jax.jit
def accelerations(q, v, u):
    """The acceleration and its Jacobians by `joint_torques`, and by `forward_dynamics`."""
    model, dofs = zoo.small(), np.array([9, 6])

    def plain(q, v, u):
        return rbd.forward_dynamics(model, q, v, jnp.zeros(model.nv).at[dofs].set(u))

    def analytic(q, v, u):
        return oc.joint_torques(model, dofs.tolist())(0, q, v, u, None)

    def evaluate(f):
        by_q = rbd.jacobian(model, lambda q: f(q, v, u))(q)
        return f(q, v, u), by_q, *jax.jacfwd(f, (1, 2))(q, v, u)

    return evaluate(analytic), evaluate(plain)


@pytest.mark.slow
def test_joint_torques_have_the_derivatives_of_forward_dynamics():
    q, v, tau, _ = zoo.state(zoo.small())
    found, expected = accelerations(q, v, tau[:2])
    for x, y in zip(found, expected):
        close(x, y, 1e-10)


def test_the_parameters_select_the_constraints_that_act():
    """Row t of a table in p states which joint follows `a = -2 v - 3 (q - 1)` in stage t.

    In stage 3, an impact stops the first joint.
    """
    model = rbd.load_robot("double_pendulum")
    q, v, u = jnp.array([[0.3, -0.5], [1.0, 2.0], [0.4, -0.7]])
    joints = [con.Equation(lambda model, q, i=i: q[i : i + 1] - 1) for i in range(2)]
    acceleration = oc.joint_torques(
        model, None, joints, (3.0, 2.0), lambda t, p: p[t], lambda t, p: t == 3
    )
    table = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
    assert oc.joint_torques(model, None, joints).stabilisation == 0  # by default

    @jax.jit
    @jax.vmap
    def evaluate(t):
        operands = t, q, v, u, table
        return acceleration.constrained(*operands), acceleration(*operands)

    found, direct = evaluate(jnp.arange(4))
    found, hit = (jax.tree.map(lambda x, part=part: x[part], found) for part in (slice(3), 3))
    close(hit.acceleration[0], -v[0], 1e-12, "the impact")
    close(direct[3], hit.acceleration, 1e-14)
    direct, table = direct[:3], table[:3]
    M, rest = rbd.crba(model, q), u - rbd.bias_force(model, q, v)
    a, led = found.acceleration, -2 * v - 3 * (q - 1)
    close(direct, a, 1e-14)
    close(jnp.diagonal(a), led, 1e-11)
    multipliers = jnp.concatenate(found.multipliers, axis=1)
    close(a @ M.T, rest[None] + multipliers, 1e-11, "the equation of motion")
    close(jnp.where(table > 0, 0, multipliers), jnp.zeros((3, 2)), 0, "constraints that do not act")


def test_an_impact_stops_the_joints_that_take_part():
    model = rbd.load_robot("double_pendulum")
    q, v = jnp.array([0.3, -0.5]), jnp.array([1.0, 2.0])
    joints = [con.Equation(lambda model, q, i=i: q[i : i + 1]) for i in range(2)]
    hit = jax.jit(lambda active: con.impact(model, q, v, joints, active=active))(
        jnp.array([False, True])
    )
    close(hit.velocity[1], 0.0, 1e-12)
    momentum = rbd.crba(model, q) @ (hit.velocity - v)
    close(momentum, [0.0, hit.impulses[1][0]], 1e-12, "the other joint has no impulse")


# ------------------------------------------------------------------------------- use of a solution


def test_feedback_corrects_a_disturbance():
    problem, x0, goal, us = pendulum()
    found = solve(problem, x0, goal, us, hessian="exact", iterations=40)
    disturbed = x0 + jnp.array([0.05, -0.05])
    xs, controls = oc.follow(problem, disturbed, goal, found)
    _, open_loop = jax.lax.scan(
        lambda x, u: (problem.dynamics(0, x, u, goal),) * 2, disturbed, found.us
    )
    end = found.xs[-1]
    assert jnp.linalg.norm(xs[-1] - end) < 0.2 * jnp.linalg.norm(open_loop[-1] - end)
    close(controls[0], found.us[0] + found.gains[0] @ (disturbed - x0), 1e-14)
    bounded = pendulum(bounds=(-5.0, 5.0))[0]
    assert jnp.max(jnp.abs(oc.follow(bounded, disturbed, goal, found)[1])) == 5.0
    # The gains are the derivative of the optimal control in the state.

    def first(x0):
        again = solve(problem, x0, goal, found, hessian="exact", iterations=40)
        return (again.us[0], again.xs[-1], again.costates[-1], again.cost), again.status

    change = jnp.array([1.0, -2.0])
    _, rates, status = jax.jit(lambda *x: jax.jvp(first, *x, has_aux=True))((x0,), (change,))
    assert status == oc.Status.CONVERGED
    rate, by_end, by_costate, by_cost = rates
    close(rate, found.gains[0] @ change, 1e-6)
    # The last costate is the gradient of the terminal cost, the first one that of the least cost.
    close(by_costate, 100 * by_end, 1e-12)
    close(by_cost, found.costates[0] @ change, 1e-6)


def test_the_first_costate_and_the_gains_of_a_converged_solve_belong_to_its_trajectory():
    """A warm start that has converged, and a problem of one stage, take no second step."""
    problem, x0, goal, us = pendulum()
    options = {"hessian": "exact", "iterations": 40}
    found = solve(problem, x0, goal, us, **options)
    # Wrong costates and gains of the warm start do not stay, and its multiple of the identity.
    stale = found._replace(costates=found.costates.at[0].add(1.0), gains=0 * found.gains)
    assert oc.kkt_residual(problem, x0, goal, stale).stationarity >= 1
    again = solve(problem, x0, goal, stale, **options)
    check(problem, x0, goal, again)
    assert again.iterations == 0
    close(again.costates, found.costates, 1e-6)
    close(again.gains, found.gains, 1e-6)
    bowl = oc.Problem(
        oc.vector_space(1),
        lambda t, x, u, p: x + u,
        lambda t, x, u, p: jnp.stack([x[0], u[0], 0.3 * x[0] ** 2]),
        lambda x, p: 2 * x,
    )
    one = solve(bowl, jnp.ones(1), None, jnp.zeros((1, 1)), iterations=20)
    check(bowl, jnp.ones(1), None, one)
    # The cost is (x^2 + u^2 + 0.09 x^4) / 2 + 2 (x + u)^2, least at u = -4/5 x.
    close(one.costates[0], [1 + 0.18 + 4 * (1 - 0.8)], 1e-12)
    close(one.gains[0], [[-0.8]], 1e-12)


def test_the_solutions_of_all_options_have_the_same_types():
    """So one program for a guess from `shift` serves the solutions of all solves."""
    problem = oc.Problem(
        oc.vector_space(1), lambda t, x, u, p: x + u, lambda t, x, u, p: jnp.concatenate([x, u])
    )

    def types(**options):
        found = jax.eval_shape(
            functools.partial(oc.solve, problem, **options), jnp.ones(1), None, jnp.zeros((2, 1))
        )
        return jax.tree.map(lambda x: (x.shape, x.dtype, x.weak_type), found._replace(history=None))

    first = types()
    assert first.status == ((), jnp.zeros((), int).dtype, False)
    for rollout in ("linear", "feedback"):
        for fixed in (False, True):
            options = {"rollout": rollout, "iterations": 3, "fixed_iterations": fixed}
            assert types(**options) == first, options
    for options in ({"hessian": "exact"}, {"riccati": "parallel"}):
        assert types(**options) == first, options


def test_the_gains_of_a_converged_solve_have_no_multiple_of_the_identity():
    """The Gauss-Newton matrix neglects most of the curvature, so the multiple is needed."""
    problem = oc.Problem(
        oc.vector_space(1),
        lambda t, x, u, p: x + u,
        lambda t, x, u, p: 2 * u,
        lambda x, p: jnp.stack([x[0], 3 + 1.5 * x[0] ** 2]),
    )
    found = solve(problem, jnp.ones(1), None, jnp.zeros((1, 1)), iterations=100)
    check(problem, jnp.ones(1), None, found)
    n = int(found.iterations)
    assert found.history.shift[n - 1] > 0.1
    assert found.history.shift[n] == 0
    slope = 1 + (3 * found.xs[1, 0]) ** 2  # the Gauss-Newton matrix of the end
    close(found.gains[0], [[-slope / (4 + slope)]], 1e-12)
    # The limit of iterations ends a solve like the tolerance.
    options = {"rollout": "linear", "iterations": n - 1}
    unfinished = solve(problem, jnp.ones(1), None, jnp.zeros((1, 1)), **options)
    assert unfinished.status == oc.Status.ITERATION_LIMIT
    close(unfinished.gains, found.gains, 1e-6)


def test_a_shifted_solution_is_a_guess():
    problem, x0, goal, us = pendulum()
    found = solve(problem, x0, goal, us, hessian="exact", iterations=40)
    # Multipliers of constraints of all kinds, as of another problem.
    rng = np.random.default_rng(0)
    sizes = (20, 1), (20, 2), (3,), (4,), (20, 1)
    multipliers = Multipliers(*(jnp.asarray(rng.normal(size=size)) for size in sizes))
    found = found._replace(multipliers=multipliers)
    moved = oc.shift(found, 3)
    np.testing.assert_array_equal(moved.us[:-3], found.us[3:])
    np.testing.assert_array_equal(moved.us[-3:], jnp.repeat(found.us[-1:], 3, axis=0))
    np.testing.assert_array_equal(moved.xs[:-3], found.xs[3:])
    np.testing.assert_array_equal(moved.costates[:-3], found.costates[3:])
    np.testing.assert_array_equal(moved.gains[:-3], found.gains[3:])
    for name, new, old in zip(Multipliers._fields, moved.multipliers, found.multipliers):
        if name.startswith("terminal"):
            np.testing.assert_array_equal(new, old)
        else:
            np.testing.assert_array_equal(new[:-3], old[3:])
            np.testing.assert_array_equal(new[-3:], jnp.repeat(old[-1:], 3, axis=0))
    # Neither the type of the guess nor the programs depend on the options of the solve.
    assert moved.history.cost.shape == moved.history.residuals.defects.shape == (0,)
    oc.follow(problem, x0, goal, found)
    short = found._replace(history=jax.tree.map(lambda x: x[:3], found.history))
    with work() as events:
        again = oc.shift(short, 3)
        oc.follow(problem, x0, goal, short)
    assert not events
    assert jax.tree.map(jnp.shape, again) == jax.tree.map(jnp.shape, moved)
    with pytest.raises(ArgumentError, match="n is 21, expected an int from 0 to 20"):
        oc.shift(found, 21)


def test_a_controller_that_starts_with_a_first_solution_needs_one_program():
    problem, x0, goal, us = pendulum(bounds=(-5.0, 5.0))
    options = {"rollout": "feedback", "iterations": 2, "fixed_iterations": True}
    first = oc.first_solution(problem, x0, goal, us + 6)
    np.testing.assert_array_equal(first.us, 5)
    found = solve(problem, x0, goal, first, **options)
    guess = oc.shift(found, 0)
    with work() as events:
        again = solve(problem, x0, goal, guess, **options)
    assert not events
    # The guess is that of `solve` with controls, and the second solve continues.
    from_controls = solve(problem, x0, goal, us + 6, **options)
    close(found.us, from_controls.us, 1e-12)
    close(found.xs, from_controls.xs, 1e-12)
    assert again.cost < found.cost < jnp.inf
    # A pair of states and controls, and a solution of another problem, are guesses too.
    pair = oc.first_solution(problem, x0, goal, (found.xs.at[0].set(7), found.us))
    np.testing.assert_array_equal(pair.xs, found.xs)
    with_path = oc.Problem(
        problem.space,
        problem.dynamics,
        problem.cost,
        path=lambda t, x, u, p: (None, u - 4),
        control_bounds=problem.control_bounds,
    )
    assert oc.first_solution(with_path, x0, goal, found).multipliers.inequalities.shape == (20, 1)


@pytest.mark.slow
@pytest.mark.parametrize("hessian", ["gauss_newton", "exact"])
def test_batches_and_a_fixed_number_of_iterations(hessian):
    """Each member of a batch is the solution of its problem, also where steps are scaled."""
    problem, x0, goal, us = pendulum(bounds=(-5.0, 5.0))
    starts = x0 + jnp.array([[0.0, 0.0], [0.5, 0.0], [0.0, -1.0]])
    options = {"hessian": hessian, "iterations": 60, "fixed_iterations": True}
    batch = jax.jit(jax.vmap(lambda x0: solve(problem, x0, goal, us, **options)))(starts)
    for i in range(3):
        single = solve(problem, starts[i], goal, us, hessian=hessian, iterations=100)
        check(problem, starts[i], goal, single)
        assert batch.status[i] == oc.Status.CONVERGED
        assert batch.iterations[i] == single.iterations
        close(batch.us[i], single.us, 1e-9)
    factors = batch.history.factor[:, :10]
    assert jnp.any((jnp.min(factors, axis=0) < 1) & (jnp.max(factors, axis=0) == 1))


def test_single_precision():
    problem, *operands = pendulum(bounds=(-5.0, 5.0))
    single = jax.tree.map(lambda x: x.astype(jnp.float32), tuple(operands))
    found = oc.solve(problem, *single, hessian="exact", iterations=40)
    assert found.us.dtype == found.costates.dtype == jnp.float32
    assert found.status == oc.Status.CONVERGED
    double = solve(problem, *operands, hessian="exact", iterations=100)
    close(np.asarray(found.cost, float), double.cost, 1e-4)


# ------------------------------------------------------------------------------------------ errors


def test_wrong_problems_are_named():
    space, zero = oc.vector_space(2), jnp.zeros(2)

    def step(t, x, u, p):
        return x

    def cost(t, x, u, p):
        return u

    us = jnp.zeros((3, 1))
    for n in (0, True):
        with pytest.raises(ArgumentError, match=f"n is {n}, expected an integer of 1 or more"):
            oc.vector_space(n)
    oc.Problem(space, step, cost, control_bounds=(jnp.zeros(2, "float32"), 1.0))  # two dtypes
    with pytest.raises(ArgumentError, match=r"control_bounds\[1\] - control_bounds\[0\]"):
        oc.Problem(space, step, cost, control_bounds=(1.0, -1.0))
    for bounds in ((np.nan, 1.0), (np.inf, np.inf), ([0.0, np.inf], [1.0, np.inf])):
        with pytest.raises(ArgumentError, match=r"control_bounds\[0\] is .* below infinity"):
            oc.Problem(space, step, cost, control_bounds=bounds)
    for bounds in ((-1.0, np.nan), (-np.inf, -np.inf)):
        with pytest.raises(ArgumentError, match=r"control_bounds\[1\] is .* above minus infinity"):
            oc.Problem(space, step, cost, control_bounds=bounds)
    with pytest.raises(ArgumentError, match=r"control_bounds is \(-1.*\), expected the pair"):
        oc.Problem(space, step, cost, control_bounds=(-1.0, 0.0, 1.0))
    problem = oc.Problem(space, step, cost)
    with pytest.raises(ArgumentError, match=r"x0 has shape \(3,\)"):
        oc.solve(problem, jnp.zeros(3), None, us)
    for f in (oc.follow, oc.kkt_residual):
        with pytest.raises(ArgumentError, match=r"x0 has shape \(3,\)"):
            f(problem, jnp.zeros(3), None, oc.Solution(*10 * [None]))
    with pytest.raises(ArgumentError, match="the controls of guess have shape"):
        oc.solve(problem, zero, None, us[:, 0])
    with pytest.raises(ArgumentError, match="the states of guess have shape"):
        oc.solve(problem, zero, None, (jnp.zeros((3, 2)), us))
    with pytest.raises(ArgumentError, match="hessian is 'newton', expected one of"):
        oc.solve(problem, zero, None, us, hessian="newton")
    for mu in (0.0, -1, np.nan):
        with pytest.raises(ArgumentError, match=f"mu is {mu}, expected a finite number above 0"):
            oc.solve(problem, zero, None, us, mu=mu)
    for tolerance in (-1e-9, np.nan, np.inf):
        with pytest.raises(
            ArgumentError, match=f"tolerance is {tolerance}, expected finite, 0 or more"
        ):
            oc.solve(problem, zero, None, us, tolerance=tolerance)
    with pytest.raises(ArgumentError, match=r"mu has shape \(2,\), expected a number"):
        oc.solve(problem, zero, None, us, mu=jnp.ones(2))
    traced = jax.jit(lambda x: oc.solve(problem, zero, None, us, tolerance=x).status)
    assert traced(-1.0) == oc.Status.FAILED
    assert traced(1.0) == oc.Status.CONVERGED
    with pytest.raises(ArgumentError, match="iterations is 0"):
        oc.solve(problem, zero, None, us, iterations=0)
    with pytest.raises(ArgumentError, match="x0 has dtype float32, expected float64"):
        oc.solve(problem, zero.astype(jnp.float32), None, us)
    with pytest.raises(ArgumentError, match=r"control_bounds\[0\] has shape \(2,\)"):
        oc.solve(oc.Problem(space, step, cost, control_bounds=([0, 0], [1, 1])), zero, None, us)
    with pytest.raises(ArgumentError, match=r"result of path is an array .*, expected the pair"):
        oc.solve(oc.Problem(space, step, cost, path=cost), zero, None, us)
    three = oc.Problem(space, step, cost, path=lambda t, x, u, p: (None, None, None))
    with pytest.raises(ArgumentError, match="the result of path is 'tuple', expected the pair"):
        oc.solve(three, zero, None, us)
    end = oc.Problem(space, step, cost, terminal=lambda x, p: (None, x[0]))
    with pytest.raises(ArgumentError, match="inequalities of the result of terminal have shape"):
        oc.solve(end, zero, None, us)
    with pytest.raises(ArgumentError, match="the result of cost has shape"):
        oc.solve(oc.Problem(space, step, lambda t, x, u, p: u[None]), zero, None, us)
    states = oc.state_space(zoo.small())
    found = r"x0 is an array of shape \(2,\) and dtype float64, expected the pair \(q, v\) of arr"
    with pytest.raises(ArgumentError, match=found):
        states.checked(zero, "x0")
    with pytest.raises(ArgumentError, match=r"\(1,\) for the controls of shape \(3, 1\) of guess"):
        oc.solve(oc.Problem(space, step, cost, control_bounds=([0, 0], [1, 1])), zero, None, us)


def test_a_guess_of_the_wrong_size_is_named():
    model = rbd.load_robot("double_pendulum")
    step = oc.shooting_step(
        model, oc.joint_torques(model, [0]), rbd.integrators.semi_implicit_euler, 0.01
    )
    problem = oc.Problem(oc.state_space(model), step, lambda t, x, u, p: u)
    x0 = jnp.zeros(2), jnp.zeros(2)
    with pytest.raises(
        ArgumentError,
        match=r"dynamics\(t, x, u, p\) raises .* guess of shape \(5, 2\): "
        r"u has shape \(2,\), expected \(1,\)",
    ):
        oc.solve(problem, x0, None, jnp.zeros((5, 2)))
    shares = oc.Problem(
        problem.space,
        lambda t, x, u, p, shared: step(t, x, u, p),
        lambda t, x, u, p, shared: u,
        shared=lambda t, x, u, p: x,
    )
    with pytest.raises(
        ArgumentError, match=r"dynamics\(t, x, u, p, shared\) raises .* u has shape"
    ):
        oc.solve(shares, x0, None, jnp.zeros((5, 2)))


def test_a_solution_of_a_problem_with_other_constraints_is_no_guess():
    """The message names the field; its shapes are those of a trajectory with three stages."""
    space = oc.vector_space(2)

    def stage(t, x, u, p):
        return x

    def path(t, x, u, p):
        return u, None

    def terminal(x, p):
        return None, x

    us = jnp.zeros((3, 1))
    one = jax.eval_shape(lambda us: oc.solve(oc.Problem(space, stage, stage), us[:2, 0], 0, us), us)
    guess = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), one)
    for others, message in (
        (
            {"path": path},
            r"multipliers.equalities of guess has shape \(3, 0\) .*\(3, 1\) of float64",
        ),
        ({"terminal": terminal}, r"terminal_inequalities of guess has shape \(0,\) .* \(2,\)"),
    ):
        with pytest.raises(ArgumentError, match=message):
            oc.solve(oc.Problem(space, stage, stage, **others), jnp.zeros(2), 0, guess)
    for name, x in (("costates", guess.costates[1:]), ("gains", guess.gains[..., 1:])):
        wrong = guess._replace(**{name: x})
        with pytest.raises(ArgumentError, match=f"{name} of guess has shape"):
            oc.solve(oc.Problem(space, stage, stage), jnp.zeros(2), 0, wrong)
    single = guess._replace(costates=guess.costates.astype(jnp.float32))
    with pytest.raises(
        ArgumentError, match=r"costates of guess has shape \(4, 2\) and dtype float32"
    ):
        oc.solve(oc.Problem(space, stage, stage), jnp.zeros(2), 0, single)


def test_a_solution_of_another_problem_is_named():
    """The solution has three stages, two states and one control."""
    space, x0 = oc.vector_space(2), jnp.zeros(2)

    def stage(t, x, u, p):
        return x

    us = jnp.zeros((3, 1))
    one = jax.eval_shape(lambda us: oc.solve(oc.Problem(space, stage, stage), x0, 0, us), us)
    solution = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), one)
    large = oc.Problem(oc.vector_space(3), stage, stage)
    two_controls = oc.Problem(space, lambda t, x, u, p: x + jnp.eye(2) @ u, stage)
    bounded = oc.Problem(space, stage, stage, control_bounds=([0, 0], [1, 1]))
    for f in (oc.follow, oc.kkt_residual):
        with pytest.raises(
            ArgumentError, match=r"states of solution have shape \(4, 2\) .* \(4, 3\)"
        ):
            f(large, jnp.zeros(3), 0, solution)
        with pytest.raises(ArgumentError, match=r"a row of the controls of solution of shape"):
            f(two_controls, x0, 0, solution)
        with pytest.raises(ArgumentError, match=r"controls of shape \(3, 1\) of solution"):
            f(bounded, x0, 0, solution)
    constrained = oc.Problem(space, stage, stage, path=lambda t, x, u, p: (u, None))
    with pytest.raises(ArgumentError, match=r"multipliers.equalities of solution has .* \(3, 0\)"):
        oc.kkt_residual(constrained, x0, 0, solution)


def test_functions_with_other_arguments_are_refused(monkeypatch):
    space = oc.vector_space(2)

    def stage(t, x, u, p):
        return x

    def wrong(x, u):
        return x

    def variadic(*arguments):
        return arguments[1]

    oc.Problem(space, variadic, stage, variadic, path=variadic)
    call = r"has the arguments \(x, u\), expected the call"
    for name, arguments in {
        "dynamics": {"dynamics": wrong, "cost": stage},
        "cost": {"dynamics": stage, "cost": wrong},
        "path": {"dynamics": stage, "cost": stage, "path": wrong},
    }.items():
        with pytest.raises(ArgumentError, match=rf"{name} {call} {name}\(t, x, u, p\)"):
            oc.Problem(space, **arguments)
    with pytest.raises(ArgumentError, match=r"shared .* expected the call shared\(t, x, u, p\)"):
        oc.Problem(space, variadic, variadic, shared=wrong)
    of_five = r"cost has the arguments .*, expected the call cost\(t, x, u, p, shared\)"
    with pytest.raises(ArgumentError, match=of_five):
        oc.Problem(space, variadic, stage, shared=stage)
    with pytest.raises(ArgumentError, match=r"expected the call terminal_cost\(x, p\)"):
        oc.Problem(space, stage, stage, terminal_cost=stage)
    model = rbd.load_robot("pendulum")
    with pytest.raises(ArgumentError, match=r"acceleration .* acceleration\(t, q, v, u, p\)"):
        oc.shooting_step(model, wrong, rbd.integrators.explicit_euler, 0.1)
    # Without the tests' type checker.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    for message, call in {
        "integrator is 0.1, expected a function": lambda: oc.shooting_step(
            model, variadic, 0.1, 0.1
        ),
        "acceleration is 2, expected a function": lambda: oc.shooting_step(model, 2, variadic, 0.1),
        "active is 3, expected a function": lambda: oc.joint_torques(model, active=3),
        "impact is 3, expected a function": lambda: oc.joint_torques(model, impact=3),
        "dynamics is None, expected a function": lambda: oc.Problem(space, None, stage),
        "space is 2, expected a Space": lambda: oc.Problem(2, stage, stage),
    }.items():
        with pytest.raises(ArgumentError, match=message):
            call()


# ------------------------------------------------------------------------------------- the guide


@pytest.mark.documents
def test_the_examples_of_the_guide(guide):
    """The obstacle matters: the path touches the margin."""
    assert abs(np.min(guide["distances"]) - 0.02) < 1e-6
    assert guide["residuals"].largest < 1e-7
    assert guide["plan"].residuals.defects < 1e-2
    assert guide["plan"].status == oc.Status.CONVERGED
    assert len(guide["trot"].constraints) == guide["stands"].shape[1] == 4


def test_the_dofs_may_be_an_array():
    """The dofs are static, so they are ints of Python, without a warning of equinox."""
    model = rbd.load_robot("double_pendulum")
    assert oc.joint_torques(model, np.array([1])).dofs == (1,)
    assert all(type(dof) is int for dof in oc.joint_torques(model, np.array([1, 0])).dofs)
