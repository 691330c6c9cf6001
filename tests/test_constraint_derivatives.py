"""Analytic derivatives of constrained dynamics and of impacts.

The oracles are JAX's derivatives of the solution of the KKT system, which `constrained_dynamics`
uses for a `Kinematics`, and central differences. `test_constraints.py` has second derivatives, and
derivatives in all parameters.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import constraints as con
from jaxrbd.constraints import derivatives, kkt, row_derivatives
from support import zoo
from support.finite_differences import slope
from support.zoo import close
from test_constraints import Planes, pose, slide

NORMALS = jnp.array([[1.0, 2.0, 0.5], [-1.0, 0.3, 0.8]])
PLANES, AGAIN = (
    con.FrameConstraint(Planes(normals), "l5", "l2", pose(4), pose(5))
    for normals in (NORMALS, 0.7 * NORMALS[:1] - 1.3 * NORMALS[1:])
)
# Constraints between frames: between two trees, the same once more (redundant), with the world.
BETWEEN_FRAMES = (PLANES, AGAIN, con.point(None, "l5", (0.5, 0.2, 0.1)))
OTHER_KINDS = (
    con.FrameConstraint(slide, "l1", "l2"),
    con.Equation(lambda model, q: rbd.frame_placement(model, q, "l4").p[2:] - 0.3),
    con.Nonholonomic(lambda model, q: rbd.frame_jacobian(model, q, "l1")[:1]),
)
ACTIVE = {
    "redundant": (1, 1, 1),
    "independent": (1, 0, 1),
    "one": (0, 0, 1),
    "none": (0, 0, 0),
}
ALL_ACTIVE = {
    "redundant": (1, 1, 1, 0, 0, 0),
    "between frames": (1, 0, 1, 1, 0, 0),
    "other kinds": (0, 0, 1, 1, 1, 1),
}
GAINS, RESTITUTION = (3.0, 2.0), 0.3


@functools.cache
def robots():
    """Two trees with floating bases, in one model."""
    kinds = ["free_flyer", "spherical", "revolute", "free_flyer", "prismatic", "revolute"]
    return zoo.build(kinds, [-1, 0, 1, -1, 3, 4], seed=9, armature=0.1)


def motions(model, q, v, tau, f_ext, constraints, active):
    """Acceleration and multipliers, velocity after an impact and impulses."""
    dynamics = con.constrained_dynamics(
        model, q, v, tau, constraints, f_ext, jnp.array(GAINS), active
    )
    holonomic = slice(0, 4)  # the last two of `OTHER_KINDS` have no impacts here
    hit = con.impact(model, q, v, constraints[holonomic], RESTITUTION, active[holonomic])
    after = hit.velocity, jnp.concatenate(hit.impulses)
    return dynamics.acceleration, jnp.concatenate(dynamics.multipliers), *after


@jax.jit
def analytic(model, q, v, tau, f_ext, constraints, active, directions):
    """The derivatives of `motions` along the directions (dq, dv, dtau)."""
    D = con.constrained_dynamics_derivatives(
        model, q, v, tau, constraints, f_ext, jnp.array(GAINS), active
    )
    hit = con.impact_derivatives(model, q, v, constraints[:4], RESTITUTION, active[:4])
    return [
        sum(jnp.matmul(D, x, precision="highest") for D, x in zip(columns, directions))
        for columns in (D[:3], D[3:], hit[:2], hit[2:])
    ]


@jax.jit
def by_jax(model, q, v, tau, f_ext, constraints, active, directions):
    def moved(dq, v, tau):
        kinematics = rbd.forward_kinematics(model, rbd.integrate(model, q, dq))
        return motions(model, kinematics, v, tau, f_ext, constraints, active)

    return jax.jvp(moved, (jnp.zeros_like(v), v, tau), directions)


def draw(model, rng):
    return tuple(jnp.asarray(rng.normal(size=model.nv)) for _ in range(3))


def check_derivatives(constraints, active, rng):
    model = robots()
    q, v, tau, f_ext = zoo.state(model, 2)
    operands = (model, q, v, tau, f_ext, constraints, jnp.array(active), draw(model, rng))
    for found, expected in zip(analytic(*operands), by_jax(*operands)[1], strict=True):
        close(found, expected, 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("which", ACTIVE)
def test_the_derivatives_are_those_of_jax(which, rng):
    check_derivatives(BETWEEN_FRAMES, ACTIVE[which], rng)


@functools.cache
def branched():
    """A robot, constraints of two kinds between its branches, a state and vectors of the system.

    Another constraint stands between the two of one kind.
    """
    kinds = ["revolute", "revolute", "spherical", "prismatic"]
    model = zoo.build(kinds, [-1, 0, 1, 0], seed=9, armature=0.1)
    planes = con.FrameConstraint(Planes(NORMALS), "l3", "l2", pose(4), pose(5))
    others = con.FrameConstraint(Planes(NORMALS[::-1]), "l1", "l3", pose(6), pose(7))
    height = con.Equation(lambda model, q: rbd.frame_placement(model, q, "l2").p[2:] ** 2)
    q, *_ = zoo.state(model, 2)
    v, a, y = jnp.asarray(np.random.default_rng(0).normal(size=(3, model.nv)))
    constraints = planes, height, others
    return model, constraints, q, v, a, y, jnp.array([0.7, -0.4, 0.3, 0.9, -1.1])


@jax.jit
def rows_and_derivatives(dq, dv):
    """K, the equation c, `K y - lambda / s^2`; and analytic derivatives by q and v.

    Those of K are products: of `K^T lambda`, of `K y` and of the sums of `y_k^2 K_ik^2`.
    """
    model, constraints, q, v, a, y, multiplier = branched()
    p, d = gains = jnp.array(3.0), jnp.array(2.0)
    kinematics, v = rbd.forward_kinematics(model, rbd.integrate(model, q, dq)), v + dv
    rows = con.constraint_rows(model, kinematics, v, constraints)
    found = row_derivatives.row_derivatives(model, kinematics, v, a, constraints, gains)
    M = rbd.crba(model, kinematics)
    solution = kkt.Solution(a, multiplier, y, jnp.zeros_like(multiplier))
    system = derivatives._System(kinematics, M, rows, None, solution, multiplier)
    weights = derivatives._weights_by_q(model, system, found)
    rest = derivatives._multiplier_equation_by_q(system, found, weights)
    c = rows.K @ (a + d * v) + rows.bias + p * rows.position
    values = rows.K, c, rows.K @ y - multiplier * kkt.row_weights(M, rows.K)
    K_by_q = (
        found.derivative_of_K.force(multiplier),
        found.derivative_of_K.rate(y),
        found.derivative_of_K.squares(y * y),
    )
    return values, (K_by_q, found.by_q, rest, found.by_v)


def slopes(i, which):
    """The derivative of value i of `rows_and_derivatives` by q (0) or v (1), as last axis."""
    zero = jnp.zeros(branched()[0].nv)

    def along(axis):
        def value(t):
            arguments = [zero, zero]
            arguments[which] = t * axis
            return rows_and_derivatives(*arguments)[0][i]

        return slope(value, 1e-3)

    return jnp.stack([along(axis) for axis in jnp.eye(len(zero))], axis=-1)


def test_the_derivatives_of_the_rows_of_a_constraint():
    zero = jnp.zeros(branched()[0].nv)
    (K, *_), ((force, rate, squares), by_q, _, by_v) = rows_and_derivatives(zero, zero)
    *_, y, multiplier = branched()
    K_by_q = slopes(0, 0)
    close(force, np.einsum("i,ikj->kj", multiplier, K_by_q), 1e-9, "the constraint force by q")
    close(rate, np.einsum("k,ikj->ij", y, K_by_q), 1e-9, "the rate by q")
    close(squares, 2 * np.einsum("k,ik,ikj->ij", y * y, K, K_by_q), 1e-9, "the squares by q")
    close(by_q, slopes(1, 0), 1e-9, "the equation by q")
    close(by_v, slopes(1, 1), 1e-9, "the equation by v")


def test_the_shortest_multipliers_change_with_the_rows_and_with_the_masses():
    """The derivative of `K y - lambda / s^2`, which is 0, at constant lambda and y."""
    zero = jnp.zeros(branched()[0].nv)
    close(rows_and_derivatives(zero, zero)[1][2], slopes(2, 0), 1e-9)


@functools.cache
def contradicting():
    """Rates of motions under three equations on two joints, along directions of q, v and tau.

    Returns a function of t, which gives the acceleration, the multipliers, the residuals, the same
    of an impact, their derivatives by JAX, and the analytic derivatives of the first two of each.
    """
    model = rbd.load_robot("double_pendulum")
    loops = (con.Equation(lambda model, q: jnp.stack([q[0] * q[1], q[0] + q[1] ** 2, 3 * q[1]])),)
    state = jnp.array([[0.3, -0.5], [1.0, 2.0], [0.7, -0.2]])
    directions = jnp.array([[0.4, -0.7], [0.2, 0.5], [-0.3, 0.9]])
    gains = jnp.array(GAINS)

    def motion(q, v, tau):
        kinematics = rbd.forward_kinematics(model, q)
        found = con.constrained_dynamics(model, kinematics, v, tau, loops, stabilisation=gains)
        hit = con.impact(model, kinematics, v, loops, RESTITUTION)
        return [x[0] if isinstance(x, tuple) else x for x in (*found, *hit)]

    @jax.jit
    def evaluate(t):
        at = tuple(state + t * directions)
        found, rates = jax.jvp(motion, at, tuple(directions))
        D = con.constrained_dynamics_derivatives(model, *at, loops, stabilisation=gains)
        hit = con.impact_derivatives(model, *at[:2], loops, RESTITUTION)
        parts = D[:3], D[3:], hit[:2], hit[2:]
        return found, rates, [sum(map(jnp.matmul, part, directions)) for part in parts]

    return evaluate


def test_the_derivatives_where_constraints_contradict_each_other():
    found, rates, analytic_rates = contradicting()(jnp.zeros(()))
    assert jnp.max(jnp.abs(found[2])) > 0.1  # the residuals; an impact has none
    for rate, expected in zip(rates, slope(lambda t: contradicting()(t)[0], 1e-3), strict=True):
        close(rate, expected, 1e-8)
    for rate, i in zip(analytic_rates, (0, 1, 3, 4), strict=True):
        close(rate, rates[i], 1e-10)


@pytest.mark.slow
def test_the_second_derivatives_where_constraints_contradict_each_other():
    evaluate = contradicting()  # not while tracing: it is kept for other tests

    def rates(t):
        return evaluate(t)[1]

    found = jax.jit(lambda t: jax.jvp(rates, (t,), (jnp.ones(()),))[1])(jnp.zeros(()))
    for rate, expected in zip(found, slope(rates, 1e-3), strict=True):
        close(rate, expected, 1e-7)


def test_the_derivatives_of_an_impact_do_not_depend_on_gravity():
    model = rbd.load_robot("double_pendulum")
    q, v, direction = jnp.array([[0.3, -0.5], [1.0, 2.0], [0.4, -0.7]])
    stop = (con.Equation(lambda model, q: (q[0] * q[1])[None]),)

    @jax.jit
    def evaluate(t):
        moved = q + t * direction
        hit = con.impact(model, moved, v, stop, 0.3)
        found = con.impact_derivatives(model, moved, v, stop, 0.3)
        columns = found.dvelocity_dq, found.dimpulses_dq
        return (hit.velocity, hit.impulses[0]), tuple(D @ direction for D in columns)

    expected = slope(lambda t: evaluate(t)[0], 1e-3)
    for x, y in zip(evaluate(jnp.zeros(()))[1], expected):
        close(x, y, 1e-9)


@functools.cache
def motion_or_impact():
    """Functions of t: constrained dynamics with `impact`, without it, and an impact.

    The state and the joint forces move by t along a direction. The results are the acceleration
    (of an impact the change of the velocity), the multipliers and the residuals. The first function
    also has `impact` as argument. It and the last one also give the derivatives of the acceleration
    and the multipliers by t: by JAX and analytic, and analytic.
    """
    model = zoo.build(["free_flyer", "revolute", "spherical"], [-1, 0, 1], seed=3, armature=0.1)
    model = model.with_dissipation()
    q, v, tau, f_ext = zoo.state(model, 2)
    constraints = con.point(None, "l2", (0.5, 0.2, 0.1)), con.Equation(lambda model, q: q[7:8] ** 2)
    directions = draw(model, np.random.default_rng(0))

    def arguments(t):
        dq, dv, dtau = directions
        moved = rbd.integrate(model, q, t * dq), v + t * dv, tau + t * dtau
        return model, *moved, constraints, f_ext, jnp.array(GAINS)

    @jax.jit
    def either(t, hits):
        def dynamics(t):
            return con.constrained_dynamics(*arguments(t), impact=hits)

        found, rates = jax.jvp(dynamics, (t,), (jnp.ones(()),))
        columns = con.constrained_dynamics_derivatives(*arguments(t), impact=hits)
        by_t = (sum(map(jnp.matmul, part, directions)) for part in (columns[:3], columns[3:]))
        return tuple(found), (rates.acceleration, jnp.concatenate(rates.multipliers), *by_t)

    @jax.jit
    def motion(t):
        return tuple(con.constrained_dynamics(*arguments(t)))

    @jax.jit
    def hit(t):
        model, q, v, *_ = arguments(t)
        found = con.impact(model, q, v, constraints)
        by_q, by_v, impulses_by_q, impulses_by_v = con.impact_derivatives(model, q, v, constraints)
        dq, dv, _ = directions
        rates = by_q @ dq + by_v @ dv - dv, impulses_by_q @ dq + impulses_by_v @ dv
        return (found.velocity - v, *found[1:]), rates

    return either, motion, hit


@pytest.mark.parametrize("which", ["impact", "motion"])
def test_one_program_has_motions_and_impacts(which):
    """For a robot with gravity, dissipation, external forces, joint forces and stabilisation."""
    either, motion, hit = motion_or_impact()
    zero = jnp.zeros(())
    hits = jnp.array(float(which == "impact"))
    found, rates = either(zero, hits)
    expected = slope(lambda t: either(t, hits)[0], 1e-3)
    for rate, by_t in zip(rates, 2 * (expected[0], np.concatenate(expected[1])), strict=True):
        close(rate, by_t, 1e-8)
    if which == "impact":
        alone, rates_alone = hit(zero)
        for rate, by_t in zip(rates_alone, rates):
            close(rate, by_t, 1e-10)
    else:
        alone = motion(zero)
    assert float(jnp.max(jnp.abs(alone[0]))) > 0.1
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(alone), strict=True):
        close(x, y, 1e-10)


def test_the_derivatives_without_constraints():
    model = rbd.load_robot("double_pendulum")
    q, v, tau = jnp.array([[0.3, -0.5], [1.0, 2.0], [0.4, -0.7]])
    found = con.constrained_dynamics_derivatives(model, q, v, tau, [])
    for D, expected in zip(found[:3], rbd.forward_dynamics_derivatives(model, q, v, tau)):
        close(D, expected, 1e-12)
    assert [x.shape for x in found[3:]] == [(0, 2)] * 3
    close(con.impact_derivatives(model, q, v, []).dvelocity_dv, jnp.eye(2), 1e-15)


def test_rows_that_do_not_act_are_zero():
    """Also if they are not finite."""
    model = rbd.load_robot("double_pendulum")
    q, v = jnp.array([0.3, -0.5]), jnp.array([1.0, 2.0])
    equations = con.Equation(lambda model, q: q[:1]), con.Equation(lambda model, q: q[1:] * jnp.nan)
    found = jax.jit(con.constrained_dynamics)(
        model, q, v, v, equations, active=jnp.array([True, False])
    )
    close(found.acceleration[0], 0.0, 1e-12)
    close(found.multipliers[1], [0.0], 0)
    M, bias = rbd.crba(model, q), rbd.bias_force(model, q, v)
    close(M[1, 1] * found.acceleration[1] + bias[1], v[1], 1e-12, "the joint that is free")


@pytest.mark.gives_nan
def test_the_derivatives_of_rows_that_do_not_act_are_zero():
    """Also if they are not finite, as those of the distance from the place of a slide."""
    model = zoo.build(["prismatic"], [-1])
    q, v, a, _ = zoo.state(model)
    here = con.Equation(lambda model, x: jnp.linalg.norm(x - q)[None])

    @jax.jit
    def found(active):
        gains = jnp.ones(()), jnp.ones(())
        kinematics = rbd.forward_kinematics(model, q)
        rows = row_derivatives.row_derivatives(model, kinematics, v, a, (here,), gains, active)
        K_by_q = (
            rows.derivative_of_K.force(jnp.ones(1)),
            rows.derivative_of_K.rate(v),
            rows.derivative_of_K.squares(v),
        )
        return rows.by_q, rows.by_v, *K_by_q

    for rows in found(np.array([True])):
        assert not np.all(np.isfinite(rows))
    for rows in found(np.array([False])):
        np.testing.assert_array_equal(rows, np.zeros(rows.shape))


@pytest.mark.slow
@pytest.mark.parametrize("which", ALL_ACTIVE)
def test_the_derivatives_with_all_kinds_of_constraints(which, rng):
    check_derivatives(BETWEEN_FRAMES + OTHER_KINDS, ALL_ACTIVE[which], rng)


@pytest.mark.slow
def test_the_derivatives_with_joints_that_follow_others(rng):
    model = zoo.following()
    q, v, tau, f_ext = zoo.state(model)
    loop = (con.point(None, "l2", (0.1, 0.2, 0.3)), con.point("l0", "l2"))
    operands = (model, q, v, tau, f_ext, loop, jnp.array([1, 1]), draw(model, rng))
    for found, expected in zip(analytic(*operands), by_jax(*operands)[1], strict=True):
        close(found, expected, 1e-10)


@jax.jit
def system(model, q, v, f_ext, constraints):
    rows = con.constraint_rows(model, q, v, constraints)
    return rbd.crba(model, q), rbd.bias_force(model, q, v, f_ext), rows


@pytest.mark.slow
def test_constraints_that_do_not_act_are_as_if_absent(rng):
    """The dense KKT system of the constraints that act gives the same motion."""
    model = robots()
    q, v, tau, f_ext = zoo.state(model, 1)
    active = np.array(ACTIVE["independent"])
    operands = (model, q, v, tau, f_ext, BETWEEN_FRAMES, jnp.array(active), draw(model, rng))
    a, multiplier, after, _ = by_jax(*operands)[0]
    M, bias, (phi, K, velocity_product, _) = system(model, q, v, f_ext, BETWEEN_FRAMES)
    sizes = [2, 1, 3]
    acts = np.repeat(active, sizes) > 0
    p, d = GAINS
    K, k = np.asarray(K), np.asarray(-velocity_product - d * (K @ v) - p * phi)
    lever = np.linalg.solve(M, K[acts].T)
    free = np.linalg.solve(M, tau - bias)
    force = np.linalg.solve(K[acts] @ lever, k[acts] - K[acts] @ free)
    close(a, free + lever @ force, 1e-10, "acceleration")
    close(multiplier[acts], force, 1e-10, "multipliers")
    assert not np.any(multiplier[~acts])
    impulse = np.linalg.solve(K[acts] @ lever, -(1 + RESTITUTION) * K[acts] @ v)
    close(after, v + lever @ impulse, 1e-10, "velocity after an impact")


@pytest.mark.slow
def test_a_constraint_that_does_not_act_may_have_no_derivative():
    """The distance of a frame from a point that it is at: its derivative is NaN there."""
    model = zoo.build(["prismatic", "revolute"], [-1, 0])
    q, v, tau, _ = zoo.state(model)
    here = rbd.frame_placement(model, q, "l1").p

    def distance(model, q):
        return jnp.linalg.norm(rbd.frame_placement(model, q, "l1").p - here)[None]

    constraints = (con.Equation(lambda model, q: q[1:]), con.Equation(distance))
    derivatives = jax.jit(con.constrained_dynamics_derivatives)
    both = derivatives(model, q, v, tau, constraints, active=jnp.array([True, False]))
    one = derivatives(model, q, v, tau, constraints[:1])
    for with_both, alone in zip(both, one, strict=True):
        close(with_both[: len(alone)], alone, 1e-12)
        assert not np.any(with_both[len(alone) :])


@pytest.mark.slow
def test_both_modes_of_an_impact_are_the_true_derivatives(rng):
    model = robots()
    q, v, _, _ = zoo.state(model, 3)
    direction, dv, _ = draw(model, rng)

    def number(t, v):
        moved = rbd.integrate(model, q, t * direction)
        found = con.impact(model, moved, v, BETWEEN_FRAMES, 0.3)
        parts = jnp.concatenate([found.velocity, *found.impulses])
        return jnp.sum(jnp.cos(jnp.arange(float(len(parts)))) * parts)

    zero, one = jnp.zeros(()), jnp.ones(())
    forward = jax.jit(lambda: jax.jvp(number, (zero, v), (one, dv))[1])()
    by_t, by_v = jax.jit(jax.grad(number, (0, 1)))(zero, v)
    close(by_t + jnp.sum(by_v * dv), forward, 1e-10, "reverse and forward")
    number = jax.jit(number)
    close(forward, slope(lambda t: number(t, v + t * dv)), 1e-6, "the true derivative")


def test_bad_arguments():
    model = robots()
    q, v, tau, _ = zoo.state(model)
    with pytest.raises(rbd.ArgumentError, match=r"active has shape \(2,\), expected \(1,\)"):
        con.impact(model, q, v, (PLANES,), active=jnp.ones(2))
    with pytest.raises(rbd.ArgumentError, match=r"impact has shape \(2,\), expected \(\)"):
        con.constrained_dynamics(model, q, v, v, (PLANES,), impact=jnp.ones(2))
    with pytest.raises(rbd.ArgumentError, match="stabilisation has shape"):
        con.constrained_dynamics(model, q, v, tau, (PLANES,), stabilisation=np.ones(3))


def test_traced_phases_that_are_nan_give_nan():
    model = rbd.load_robot("double_pendulum")
    q, tip = jnp.ones(2), con.point(None, model.frame_names[-1])

    @jax.jit
    def evaluate(active, impact):
        moved = con.constrained_dynamics(model, q, q, q, [tip], active=active, impact=impact)
        return moved.acceleration, con.impact(model, q, q, [tip], active=active).velocity

    one, nan = jnp.ones(()), jnp.full((), jnp.nan, float)  # with a dtype: one program
    for active, impact in ((nan, 0 * one), (nan, one), (one, nan)):
        acceleration, velocity = evaluate(active[None], impact)
        assert np.all(np.isnan(acceleration))
        assert np.all(np.isnan(velocity)) == np.isnan(active)
    assert all(np.all(np.isfinite(x)) for x in evaluate(one[None], one))


@pytest.mark.slow
def test_a_negative_stabilisation_gives_nan():
    model = robots()
    q, v, tau, _ = zoo.state(model)
    found = con.constrained_dynamics(
        model, q, v, tau, (PLANES,), stabilisation=np.array([1.0, -1.0])
    )
    assert jnp.all(jnp.isnan(found.multipliers[0]))
