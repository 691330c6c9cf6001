"""Closed loops in `contact_step`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import constraints as con
from jaxrbd.contact import Scene, contact_step
from jaxrbd.model import JointSpec, Link, link_inertia
from jaxrbd.robots import load_linkage
from support.finite_differences import slope
from support.turning import in_first_axes
from support.zoo import close
from test_contact import derivative_check, direction_of

DT, RECOVERY, REGULARISATION = 4e-3, 0.02, 1e-3
NOTHING = Scene(())


@jax.jit
def laws(linkage, q, v, tau):
    """A step, the change of momentum, and the rows of the constraints."""
    model, constraints, _ = linkage
    step = contact_step(model, NOTHING, q, v, tau, DT, constraints=constraints)
    M = rbd.crba(model, q)
    start, after = in_first_axes(model, v, step.v, DT)
    momentum = M @ (after - start) + DT * (rbd.bias_force(model, q, v) - tau)
    rows = con.constraint_rows(model, q, v, constraints)
    error = con.constraint_rows(model, step.q, step.v, constraints).position
    inverse = jnp.diag(rows.K @ jnp.linalg.inv(M) @ rows.K.T)
    return step, after, momentum, rows, inverse + 1e-4 * jnp.mean(inverse), error


def errors_of_a_slider(model, q):
    """The slider is held at x = 0.03 m. The second equation does not depend on its position."""
    return jnp.stack([q[0] - 0.03, 0.02 + 0 * q[0]])


def held_slider():
    """A body of 2 kg on a slider along x, and its constraints."""
    link = Link("body", link_inertia(2.0, (0, 0, 0), np.eye(3)))
    slider = JointSpec("joint", rbd.joints.Prismatic((1, 0, 0)), None, "body")
    return rbd.build_model([link], [slider]), (con.Equation(errors_of_a_slider),)


@jax.jit
def step_of_a_slider(state, direction):
    """A step from (q, v, tau, dt), and its derivative in one direction."""
    model, constraints = held_slider()

    def step(q, v, tau, dt):
        options = None, REGULARISATION, RECOVERY, None, constraints
        found = contact_step(model, NOTHING, q, v, tau, dt, *options)
        return found.q, found.v, found.constraint_impulse

    return jax.jvp(step, state, direction)


SLIDER = jnp.array([0.05]), jnp.array([0.4]), jnp.array([1.5]), jnp.asarray(DT)


def test_the_laws_of_a_held_slider():
    """Momentum, and impulses by their formula, also where the slider cannot move."""
    (_, v, impulse), _ = step_of_a_slider(SLIDER, SLIDER)
    close(2 * (v - SLIDER[1]), DT * SLIDER[2] + impulse[:1], 1e-12, "momentum")
    inverse_inertia = jnp.array([1 / 2, 0]) + 1e-4 * jnp.mean(jnp.array([1 / 2, 0]))
    gap = -jnp.array([0.02, 0.02]) / (DT + RECOVERY) - jnp.array([1.0, 0]) * v
    close(impulse * REGULARISATION * inverse_inertia, gap, 1e-12, "impulses")


def test_the_derivatives_of_a_step_of_a_held_slider():
    """In q, v, tau and dt, compared with differences."""
    direction = jnp.array([0.02]), jnp.array([-0.3]), jnp.array([0.7]), jnp.asarray(1e-3)

    def moved(t):
        state = jax.tree.map(lambda x, dx: x + t * dx, SLIDER, direction)
        return step_of_a_slider(state, SLIDER)[0]

    for found, expected in zip(step_of_a_slider(SLIDER, direction)[1], slope(moved)):
        close(found, expected, 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["four_bar", "standing_quadruped"])
def test_the_laws_of_constraint_impulses(name, rng):
    """Momentum, the formula of the impulses, and errors that decay."""
    linkage = load_linkage(name)
    model, _, q = linkage
    for size in (0.0, 1e-2):
        moved = rbd.integrate(model, q, jnp.asarray(size * rng.normal(size=model.nv)))
        v, tau = (jnp.asarray(rng.normal(size=model.nv)) for _ in range(2))
        step, after, momentum, rows, inverse, error = laws(linkage, moved, v, tau)
        assert step.residual < 1e-12
        close(rows.K.T @ step.constraint_impulse + step.joint_impulse.total, momentum, 1e-10)
        u = rows.K @ after
        target = -rows.position / (DT + RECOVERY)
        close(step.constraint_impulse * REGULARISATION * inverse, target - u, 1e-10)
        if size:
            assert jnp.linalg.norm(error) < jnp.linalg.norm(rows.position)


@pytest.mark.slow
def test_a_linkage_falls_as_with_the_exact_constraints():
    """Against `constrained_dynamics` with steps of 50 us: half the step, half the error."""
    model, constraints, q = load_linkage("four_bar")
    zero = jnp.zeros(model.nv)

    def exact(state, _):
        q, v = state
        a = con.constrained_dynamics(model, q, v, zero, constraints, stabilisation=10.0)
        v = v + 5e-5 * a.acceleration
        return (rbd.integrate(model, q, 5e-5 * v), v), None

    def step(dt):
        def advance(state, _):
            found = contact_step(
                model, NOTHING, *state, zero, dt, constraints=constraints, regularisation=1e-5
            )
            return (found.q, found.v), con.constraint_rows(model, *state, constraints).position

        return advance

    run = lambda advance, n: jax.jit(lambda: jax.lax.scan(advance, (q, zero), length=n))()  # noqa: E731
    reference = run(exact, 4000)[0][0]
    errors = []
    for n in (50, 100):
        (found, _), loop = run(step(0.2 / n), n)
        errors.append(float(jnp.linalg.norm(found - reference)))
        assert jnp.max(jnp.abs(loop)) < 5e-4
    assert errors[0] < 0.05
    assert 1.6 < errors[0] / errors[1] < 2.5


@pytest.mark.slow
def test_derivatives_in_everything(rng):
    linkage = load_linkage("four_bar")
    model, constraints, q = linkage

    def number(model, constraints, q, v, tau, dt, regularisation, recovery):
        step = contact_step(
            model, NOTHING, q, v, tau, dt, None, regularisation, recovery, None, constraints
        )
        parts = jnp.concatenate([step.q, step.v, step.constraint_impulse])
        return jnp.sum(jnp.cos(jnp.arange(len(parts)).astype(parts.dtype)) * parts), step

    v, tau = (jnp.asarray(rng.normal(size=model.nv)) for _ in range(2))
    q = rbd.integrate(model, q, jnp.asarray(1e-2 * rng.normal(size=model.nv)))
    operands = jax.tree.map(jnp.asarray, (model, constraints, q, v, tau, DT, 0.1, RECOVERY))
    direction = direction_of(operands, 0, 1e-2)
    # The poses of the hinge turn as rotations.
    still = jax.tree.map(jnp.zeros_like, operands[1])
    direction = (direction[0], still, *direction[2:5], *(0.1 * x for x in operands[5:]))
    derivative_check(number)(operands, direction, 1e-4)


@pytest.mark.slow
def test_redundant_rows_and_single_precision(rng):
    """The same constraint twice is half as compliant, also in float32."""
    model, constraints, q = load_linkage("four_bar")
    v = jnp.asarray(rng.normal(size=model.nv))
    step = jax.jit(
        lambda model, q, v, constraints: contact_step(
            model, NOTHING, q, v, jnp.zeros_like(v), DT, constraints=constraints
        )
    )
    once, twice = (step(model, q, v, n * constraints) for n in (1, 2))
    stiff = contact_step(
        model, NOTHING, q, v, jnp.zeros_like(v), DT, constraints=constraints, regularisation=5e-4
    )
    assert jnp.max(jnp.abs(once.v - twice.v)) > 1e-4
    close(stiff.v, twice.v, 1e-9)
    half = len(twice.constraint_impulse) // 2
    close(twice.constraint_impulse[:half], twice.constraint_impulse[half:], 1e-9)
    low = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (model, q, v, 2 * constraints))
    close(step(*low).v.astype(float), twice.v, 1e-4)
