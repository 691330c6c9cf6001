"""Closed loops in `contact_step`."""

import jax
import jax.numpy as jnp
import pytest

import jaxrbd as rbd
from jaxrbd import constraints as con
from jaxrbd.contact import Scene, contact_step
from jaxrbd.robots import load_linkage
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


@pytest.mark.parametrize(
    "name", ["four_bar", pytest.param("standing_quadruped", marks=pytest.mark.slow)]
)
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
