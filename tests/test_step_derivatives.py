"""The derivatives of a time step, against central differences of the step itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxrbd as rbd
from jaxrbd import integrators
from jaxrbd.model.joint_space import entries_of_all_joints, independent_entries
from support import finite_differences, zoo
from support.zoo import close

DT = 0.05
STEPS = [
    integrators.explicit_euler,
    integrators.semi_implicit_euler,
    integrators.runge_kutta_munthe_kaas,
    pytest.param(integrators.variational_midpoint, marks=pytest.mark.slow),
]


def plain_step(model, integrator, q, v, tau, f_ext):
    def dynamics(q, v):
        return rbd.forward_dynamics(model, q, v, tau, f_ext)

    return integrator(model, dynamics, q, v, DT)


def central_differences(model, integrator, q, v, tau, f_ext, h=1e-5):
    """A and B (2 nv, ...) from two steps for each entry of the state and of tau, as one batch."""
    nv = model.nv
    changes = h * np.concatenate([np.eye(3 * nv), -np.eye(3 * nv)])
    dq, dv, dtau = (jnp.array(x) for x in np.split(changes, 3, axis=1))
    q_next, _ = plain_step(model, integrator, q, v, tau, f_ext)

    def moved(dq, dv, dtau):
        q_moved = rbd.integrate(model, q, dq)
        q_end, v_end = plain_step(model, integrator, q_moved, v + dv, tau + dtau, f_ext)
        return jnp.concatenate([rbd.difference(model, q_next, q_end), v_end])

    plus, minus = jnp.split(jax.vmap(moved)(dq, dv, dtau), 2)
    both = (plus - minus).T / (2 * h)
    return both[:, : 2 * nv], both[:, 2 * nv :]


@pytest.mark.slow
@pytest.mark.parametrize("integrator", STEPS, ids=lambda step: getattr(step, "__name__", None))
def test_the_derivatives_are_those_of_the_step(integrator):
    """A free-flyer, a ball joint and a hinge, with external forces."""
    model = zoo.small()
    q, v, tau, f_ext = zoo.state(model)
    step = jax.jit(integrators.step_derivatives, static_argnums=1)
    found = step(model, integrator, q, v, tau, DT, f_ext)
    expected = jax.jit(plain_step, static_argnums=1)(model, integrator, q, v, tau, f_ext)
    close(found.q, expected[0], 1e-12)
    close(found.v, expected[1], 1e-12)
    A, B = jax.jit(central_differences, static_argnums=1)(model, integrator, q, v, tau, f_ext)
    close(found.A, A, 1e-8)
    close(found.B, B, 1e-8)


def test_joints_that_follow_others_are_left_out_in_reverse_mode():
    """The transpose of filling in zeros for followers is taking the other entries."""
    model = zoo.coupled()
    of_all = jnp.arange(1.0, sum(model.joint_nvs) + 1)
    (transpose,) = jax.linear_transpose(
        lambda x: entries_of_all_joints(model, x, "v"), jnp.zeros(model.nv)
    )(of_all)
    np.testing.assert_array_equal(transpose, independent_entries(model, of_all, "v"))


def test_the_tangent_space_of_the_end_turns_with_the_velocity():
    """For a step `q' = q exp(dt v)`, a change of q is seen from the end by exp(-dt v)."""
    model = zoo.build(["spherical"], [-1])
    q = rbd.neutral(model)
    v, direction, tau = jnp.asarray(np.random.default_rng(0).normal(size=(3, 3)))

    def turn(model, dynamics, q, v, dt):
        return rbd.integrate(model, q, dt * v), v

    @jax.jit
    def rate(v):
        def block(v):
            return rbd.integrators.step_derivatives(model, turn, q, v, tau, DT).A[:3, :3]

        return jax.jvp(block, (v,), (direction,))

    def expected(t):
        return Rotation.from_rotvec(-DT * np.array(v + t * direction)).as_matrix()

    found, change = rate(v)
    close(found, expected(0), 1e-14)
    close(change, finite_differences.slope(expected, 1e-2), 1e-9)


@pytest.mark.slow
def test_the_derivatives_with_joints_that_follow_others():
    model = zoo.coupled()
    q, v, tau, f_ext = zoo.state(model)
    integrator = integrators.semi_implicit_euler
    found = jax.jit(integrators.step_derivatives, static_argnums=1)(
        model, integrator, q, v, tau, DT, f_ext
    )
    A, B = jax.jit(central_differences, static_argnums=1)(model, integrator, q, v, tau, f_ext)
    close(found.A, A, 1e-8)
    close(found.B, B, 1e-8)


@pytest.mark.slow
def test_a_variational_step_with_joints_that_follow_others():
    """Two steps, forward and backward in time, return to the start."""
    model = zoo.coupled()
    q, v, _, _ = zoo.state(model)

    @jax.jit
    def step(q, v, dt):
        def dynamics(q, v):
            return rbd.forward_dynamics(model, q, v, jnp.zeros_like(v))

        return integrators.variational_midpoint(model, dynamics, q, v, dt)

    q_end, v_end = step(*step(q, v, 1e-3), -1e-3)
    close(rbd.difference(model, q, q_end), jnp.zeros(model.nv), 1e-10)
    close(v_end, v, 1e-10)


@pytest.mark.slow
def test_derivatives_in_the_model_and_of_the_derivatives():
    """The step is differentiated by the inertias, and A once more by v."""
    model = zoo.small()
    q, v, tau, _ = zoo.state(model)
    integrator = integrators.semi_implicit_euler
    direction = jnp.array(np.random.default_rng(0).normal(size=v.shape))

    def step(t):
        heavier = model.with_mass("l1", (1 + t) * 2.0)
        return integrators.step_derivatives(heavier, integrator, q, v + t * direction, tau, DT)

    def selected(t):
        found = step(t)
        return found.v, found.A

    slope = jax.jit(jax.jacfwd(selected))(0.0)
    selected = jax.jit(selected)
    expected = finite_differences.central(selected, 1e-5)
    jax.tree.map(lambda x, y: close(x, y, 1e-7), slope, expected)


@pytest.mark.slow
def test_the_dynamics_are_differentiated_once():
    """The four stages of a Runge-Kutta step are one loop, in which the derivatives are analytic."""
    model = zoo.small()
    q, v, tau, _ = zoo.state(model)

    def size(integrator):
        lowered = jax.jit(integrators.step_derivatives, static_argnums=1).lower(
            model, integrator, q, v, tau, DT
        )
        return len(lowered.as_text().splitlines())

    once = size(integrators.semi_implicit_euler)
    assert size(integrators.runge_kutta_munthe_kaas) < 2 * once
