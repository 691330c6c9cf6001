"""The integrators: orders, conserved quantities, derivatives; the velocity bracket."""

import functools
from typing import Any, ClassVar

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import joints, spatial
from jaxrbd._math.root import find_root
from support import nightly, zoo
from support.zoo import close

ORDERS = {
    rbd.integrators.explicit_euler: 1,
    rbd.integrators.semi_implicit_euler: 1,
    rbd.integrators.variational_midpoint: 2,
    rbd.integrators.runge_kutta_munthe_kaas: 4,
}
integrator = pytest.mark.parametrize("step", ORDERS, ids=lambda step: step.__name__)


@functools.cache
def top():
    """A body on a ball joint in gravity, with its center of mass away from the joint."""
    return zoo.build(["spherical"], [-1], seed=6)


@functools.cache
def floating():
    """Every joint kind on a free-flyer, without gravity."""
    return zoo.build(
        ["free_flyer", "spherical", "planar", "helical", "translation", "universal", "revolute"],
        [-1, 0, 1, 2, 1, 0, 5],
        seed=7,
        gravity=(0, 0, 0),
    )


ROBOTS = {"top": top, "floating": floating}


def free(model):
    return lambda q, v: rbd.forward_dynamics(model, q, v, jnp.zeros(model.nv, model.dtype))


def driven(model):
    """Forces that depend on time, and friction; z holds the time and the work of the forces."""

    def dynamics(q, v, z):
        time, _ = z
        force = 0.5 * jnp.cos(3 * time) * jnp.linspace(-1, 1, model.nv, dtype=v.dtype) - 0.1 * v
        return rbd.forward_dynamics(model, q, v, force), (1.0, jnp.sum(force * v))

    return dynamics


def energy(model, q, v):
    return rbd.kinetic_energy(model, q, v) + rbd.potential_energy(model, q)


def repeat(model, dynamics, step):
    """Many steps as one program: a function of the state, dt and the number of steps."""

    @jax.jit
    def run(state, dt, count):
        return jax.lax.fori_loop(
            0, count, lambda _, s: step(model, dynamics, *s[:2], dt, *s[2:]), state
        )

    return run


# ------------------------------------------------------------------------------------------- orders


@functools.cache
def driven_run(robot, step):
    model = ROBOTS[robot]()
    return repeat(model, driven(model), step)


@functools.cache
def exact(robot):
    model = ROBOTS[robot]()
    start = *zoo.state(model)[:2], (jnp.zeros(()), jnp.zeros(()))
    return start, driven_run(robot, rbd.integrators.runge_kutta_munthe_kaas)(
        start, DURATION / 1024, 1024
    )


DURATION = 0.25
STEPS = 32, 64


@pytest.mark.parametrize(
    "step",
    nightly.all_but(set(ORDERS) - {rbd.integrators.variational_midpoint}, ORDERS),
    ids=lambda step: step.__name__,
)
@pytest.mark.parametrize("robot", nightly.all_but(["top"], ["top", "floating"]))
def test_order_of_convergence(robot, step):
    """Orders of the configuration, the velocity, and the work of the forces."""
    model = ROBOTS[robot]()
    start, (q, v, (_, work)) = exact(robot)

    def errors(count):
        found = driven_run(robot, step)(start, DURATION / count, count)
        close(found[2][0], DURATION, 1e-14)
        dq = rbd.difference(model, q, found[0])
        return np.array([jnp.linalg.norm(dq), jnp.linalg.norm(found[1] - v)]), abs(
            found[2][1] - work
        )

    (coarse, _), (fine, off) = errors(STEPS[0]), errors(STEPS[1])
    assert np.all(fine > 1e-12)  # otherwise rounding hides the order
    np.testing.assert_allclose(np.log2(coarse / fine), ORDERS[step], atol=0.2)
    assert off < 3 * np.max(fine)


@pytest.mark.slow
def test_a_constant_velocity_is_followed_exactly():
    """Constant entries of v by Munthe-Kaas; linear velocities of constant direction by Euler."""
    model = zoo.connected()
    q, v, _, _ = zoo.state(model)
    step = rbd.integrators.runge_kutta_munthe_kaas
    reached, still = step(model, lambda q, v: jnp.zeros_like(v), q, v, 0.3)
    close(reached, rbd.integrate(model, q, 0.3 * v), 1e-14)
    close(still, v, 0)

    base = zoo.build(["free_flyer", "planar"], [-1, -1], gravity=(0, 0, 0))
    q, v, _, _ = zoo.state(base)
    for step in (rbd.integrators.explicit_euler, rbd.integrators.semi_implicit_euler):
        # The acceleration of the entries of v if the linear velocities have fixed axes.
        turn = lambda q, v: -rbd.configuration.turning_acceleration(base, v)  # noqa: E731
        reached, end = step(base, turn, q, v, 0.3)
        X, X_0 = (rbd.frame_placements(base, x) for x in (reached, q))
        V, V_0 = (velocities_in_world(base, *x) for x in ((reached, end), (q, v)))
        close(V, V_0, 1e-14, "velocities")
        close(X.p, X_0.p + 0.3 * V_0[:, :3], 1e-14, "positions")
        rotations = jax.vmap(rbd.so3.exp)(0.3 * V_0[:, 3:])
        close(X.R, jnp.einsum("bij,bjk->bik", rotations, X_0.R), 1e-14, "rotations")


def velocities_in_world(model, q, v):
    """The velocities of all frames at their origins, in world axes, (n, 6)."""
    return jnp.stack([rbd.frame_velocity(model, q, v, frame) for frame in model.frame_names])


def test_which_velocity_an_euler_step_goes_with():
    """Explicit Euler uses the velocity at the start, semi-implicit Euler that at the end."""
    model = top()
    q, v, a, _ = zoo.state(model)
    velocities = {
        rbd.integrators.explicit_euler: v,
        rbd.integrators.semi_implicit_euler: v + 0.1 * a,
    }
    for step, velocity in velocities.items():
        reached, end, (time,) = step(model, lambda q, v, z: (a, (2.0,)), q, v, 0.1, (3.0,))
        close(reached, rbd.integrate(model, q, 0.1 * velocity), 1e-15)
        close(end, v + 0.1 * a, 1e-15)
        close(time, 3.2, 1e-15)


# ------------------------------------------------------------------------- what an integrator keeps


@functools.cache
def free_run(robot, step):
    model = ROBOTS[robot]()
    return repeat(model, free(model), step)


@pytest.mark.slow
def test_variational_steps_keep_momentum():
    """Without gravity, the whole robot's momentum about the world's origin is constant."""
    model = floating()
    state = zoo.state(model)[:2]

    @jax.jit
    def momentum(q, v):
        in_root = rbd.mass_matrix_product(model, q, v)[:6]  # at the free-flyer: of the whole robot
        return spatial.transform_force(rbd.frame_placement(model, q, "l0"), in_root)

    run = free_run("floating", rbd.integrators.variational_midpoint)
    close(momentum(*run(state, 0.01, 100)), momentum(*state), 1e-12)
    other = free_run("floating", rbd.integrators.semi_implicit_euler)(state, 0.01, 100)
    assert np.max(np.abs(momentum(*other) - momentum(*state))) > 1e-4


@pytest.mark.slow
def test_variational_steps_keep_the_symmetry_of_a_top():
    """Gravity has no moment about the vertical: only that angular momentum is constant."""
    model = top()
    state = zoo.state(model)[:2]

    @jax.jit
    def momentum(q, v):
        return rbd.frame_placement(model, q, "l0").R @ rbd.mass_matrix_product(model, q, v)

    change = momentum(
        *free_run("top", rbd.integrators.variational_midpoint)(state, 0.01, 500)
    ) - momentum(*state)
    assert abs(change[2]) < 1e-13
    assert np.linalg.norm(change[:2]) > 1e-3


@pytest.mark.slow
def test_energy_of_variational_steps_is_bounded():
    model = top()
    run = free_run("top", rbd.integrators.variational_midpoint)
    energy_at = jax.jit(functools.partial(energy, model))
    state = zoo.state(model)[:2]
    start = energy_at(*state)
    errors = []
    for _ in range(40):
        state = run(state, 0.01, 250)
        errors.append(abs(energy_at(*state) - start) / start)
    early, late = np.max(errors[:10]), np.max(errors[-10:])
    assert 1e-7 < late < 2 * early < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("robot", ["top", "quadruped"])
def test_energy_drift_over_ten_seconds(robot):
    """A robot in free motion without gravity, with steps of 1 ms; relative to its energy."""
    model = top() if robot == "top" else rbd.load_robot(robot)
    if robot == "quadruped":
        model = eqx.tree_at(lambda m: m.gravity, model, jnp.zeros(3))
    run = repeat(model, free(model), rbd.integrators.runge_kutta_munthe_kaas)
    q, v, _, _ = zoo.state(model)
    end = run((q, v), 1e-3, 10_000)
    drift = energy(model, *end) - energy(model, q, v)
    assert abs(drift) < 1e-8 * rbd.kinetic_energy(model, q, v)


@pytest.mark.parametrize("robot", nightly.all_but(["top"], ROBOTS))
def test_variational_steps_go_back_where_they_came_from(robot):
    model = ROBOTS[robot]()
    q, v, _, _ = zoo.state(model)
    run = free_run(robot, rbd.integrators.variational_midpoint)
    there = run((q, v), 0.01, 20)
    back = run(there, -0.01, 20)
    close(rbd.difference(model, q, back[0]), jnp.zeros(model.nv), 1e-12)
    close(back[1], v, 1e-11)


# ---------------------------------------------------------------------------------- transformations


def spring(model, target, gain):
    """An acceleration towards a configuration that depends on the velocity; it compiles quickly."""

    def dynamics(q, v):
        return gain * rbd.difference(model, target, q) + jnp.sin(v) - v[::-1]

    return dynamics


def along_a_line(step):
    """A scalar result of one step, as a function of state, step size and dynamics along a line."""
    model = top()
    q, v, u, _ = zoo.state(model)
    weights = jnp.sin(jnp.arange(1.0, 2 * model.nv + 1))

    def value(s):
        start = rbd.integrate(model, q, s * u), v + s * u
        q1, v1 = step(model, spring(model, q, s - 3), *start, 0.05 * (1 + s))
        return jnp.sum(weights * jnp.concatenate([rbd.difference(model, q, q1), v1]))

    h = 1e-2
    values = jax.jit(jax.vmap(value))(h * jnp.arange(-3.0, 4.0))
    first = jnp.array([-1.0, 9, -45, 0, 45, -9, 1]) / (60 * h)
    second = jnp.array([2.0, -27, 270, -490, 270, -27, 2]) / (180 * h**2)
    return value, jnp.sum(first * values), jnp.sum(second * values)


@pytest.mark.parametrize(
    "step", nightly.all_but([rbd.integrators.semi_implicit_euler], ORDERS), ids=lambda x: x.__name__
)
def test_derivatives(step):
    value, slope, _ = along_a_line(step)
    _, forward = jax.jit(lambda s: jax.jvp(value, (s,), (1.0,)))(0.0)
    close(forward, slope, 1e-9)
    close(jax.jit(jax.grad(value))(0.0), forward, 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    [
        rbd.integrators.runge_kutta_munthe_kaas,
        pytest.param(
            rbd.integrators.variational_midpoint, marks=pytest.mark.slow
        ),  # takes minutes without a cache
    ],
)
def test_second_derivatives(step):
    value, _, curvature = along_a_line(step)
    _, second = jax.jit(lambda s: jax.jvp(jax.grad(value), (s,), (1.0,)))(0.0)
    close(second, curvature, 1e-8)


@pytest.mark.slow
@integrator
def test_batches_and_single_precision(step):
    model = top()
    q, v, _, _ = zoo.state(model)
    scales = jnp.array([0.0, 0.5, 1.0])

    def one(model, q, v, scale):
        return step(model, spring(model, rbd.neutral(model), -3), q, scale * v, 0.01)

    alone = jax.jit(one)
    together = jax.jit(jax.vmap(one, (None, None, None, 0)))(model, q, v, scales)
    for row, scale in enumerate(scales):
        for x, y in zip(together, alone(model, q, v, scale)):
            close(x[row], y, 1e-13)
    single = jax.tree.map(lambda x: x.astype(jnp.float32), (model, q, v, scales[2]))
    for x, y in zip(alone(*single), alone(model, q, v, 1.0)):
        assert x.dtype == jnp.float32
        close(x.astype(float), y, 1e-5)


@pytest.mark.gives_nan
def test_a_step_too_large_gives_nan_and_not_a_wrong_state():
    model = top()
    q, v, _, _ = zoo.state(model)
    assert np.all(
        np.isnan(free_run("top", rbd.integrators.variational_midpoint)((q, v), 30.0, 1)[1])
    )


@pytest.mark.slow
@pytest.mark.parametrize("robot", ["pendulum", "arm7"])
def test_small_steps_are_the_same_in_both_precisions(robot):
    """Steps in single precision are those in double precision to rounding, for small steps too."""
    model = rbd.load_robot(robot)
    keys = jax.random.split(jax.random.key(0), 64)
    dts = jnp.array([1e-5, 1e-4, 1e-3, 4e-3])

    @jax.jit
    def steps(model, q, v, dts):
        def one(q, v, dt):
            return rbd.integrators.variational_midpoint(model, free(model), q, v, dt)

        return jax.vmap(jax.vmap(one, (0, 0, None)), (None, None, 0))(q, v, dts)

    q = jax.jit(jax.vmap(lambda key: rbd.random_configuration(model, key)))(keys)
    v = jax.random.normal(keys[0], (64, model.nv))
    single = jax.tree.map(lambda x: x.astype(jnp.float32), (model, q, v, dts))
    double = jax.tree.map(lambda x: x.astype(float), single)
    for found, expected in zip(steps(*single), steps(*double)):
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * np.max(np.abs(expected)))


def sprung_mass(gain):
    """A mass on a slide with a spring, and the initial state."""
    links = [rbd.model.Link("mass", rbd.model.link_inertia(1.3, (0, 0, 0), np.eye(3)))]
    model = rbd.build_model(
        links, [rbd.model.JointSpec("slide", joints.Prismatic((1.0, 0, 0)), None, "mass")]
    )
    return model, jnp.array([0.3]), jnp.array([0.5]), gain


def energies(model, q, v, gain, count, dtype):
    """The energies after each of `count` steps of 1 ms, relative to the largest kinetic energy."""
    model, q, v = jax.tree.map(lambda x: x.astype(dtype), (model, q, v))
    springy = gain > 0
    gain, dt = jnp.asarray(gain, dtype), jnp.asarray(1e-3, dtype)

    def step(state, _):
        def dynamics(q, v):
            return rbd.forward_dynamics(model, q, v, -gain * q if springy else 0 * v)

        q, v = rbd.integrators.variational_midpoint(model, dynamics, *state, dt)
        kinetic = rbd.kinetic_energy(model, q, v)
        potential = rbd.potential_energy(model, q) + (gain * (q @ q) / 2 if springy else 0)
        return (q, v), (kinetic, kinetic + potential)

    kinetic, total = jax.jit(lambda s: jax.lax.scan(step, s, length=count)[1])((q, v))
    return np.asarray((total - total[0]) / jnp.max(kinetic))


def test_a_body_without_forces_keeps_its_velocity_to_the_last_bit():
    model, *_ = sprung_mass(0.0)
    model = jax.tree.map(lambda x: x.astype(jnp.float32), model)
    v = np.random.default_rng(0).normal(size=(200, 1)).astype(np.float32)
    dt = jnp.asarray(1e-3, jnp.float32)
    step = functools.partial(rbd.integrators.variational_midpoint, model, lambda q, v: 0 * v)
    _, after = jax.jit(jax.vmap(lambda v: step(0 * v, v, dt)))(v)
    np.testing.assert_array_equal(after, v)


def test_a_variational_step_of_zero_seconds_changes_nothing():
    model, q, v, _ = sprung_mass(80.0)
    run = jax.jit(functools.partial(rbd.integrators.variational_midpoint, model, lambda q, v: -q))
    for x, expected in zip(run(q, v, 0.0), (q, v)):
        np.testing.assert_array_equal(x, expected)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_spring_keeps_its_energy_to_rounding(dtype):
    """Over 20,000 steps. In some of them the velocity is zero."""
    errors = energies(*sprung_mass(80.0), 20_000, dtype)
    assert np.max(np.abs(errors)) < 400 * jnp.finfo(dtype).eps


@pytest.mark.slow
@pytest.mark.parametrize("robot", ["pendulum", "spring", "slide", "quadruped"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_energy_is_bounded_over_100_000_steps(robot, dtype):
    if robot in ("spring", "slide"):
        model, q, v, gain = sprung_mass(80.0 if robot == "spring" else 0.0)
    else:
        model, gain = rbd.load_robot(robot), 0.0
        v = 0.5 * np.random.default_rng(0).normal(size=model.nv)
        q, v = rbd.neutral(model) + float(robot == "pendulum"), jnp.asarray(v)
        if robot == "quadruped":
            model = eqx.tree_at(lambda m: m.gravity, model, jnp.zeros(3))
    errors = np.abs(energies(model, q, v, gain, 100_000, dtype))
    early, late = np.max(errors[:50_000]), np.max(errors[50_000:])
    assert late < 2 * early + 1000 * jnp.finfo(dtype).eps
    assert late < 0.01


@pytest.mark.slow
def test_an_accepted_step_solves_its_equations():
    """A variational step of any size conserves a top's vertical momentum, or it is NaN."""
    model = top()
    states = [zoo.state(model, seed)[:2] for seed in range(6)]

    def change(q, v, dt):
        def momentum(q, v):
            return rbd.frame_placement(model, q, "l0").R @ rbd.mass_matrix_product(model, q, v)

        start = momentum(q, v)
        end = momentum(*rbd.integrators.variational_midpoint(model, free(model), q, v, dt))
        return jnp.abs(end[2] - start[2]) / jnp.linalg.norm(end)

    over_all = jax.jit(jax.vmap(jax.vmap(change, (None, None, 0)), (0, 0, None)))
    found = over_all(*(jnp.stack(x) for x in zip(*states)), jnp.linspace(0.2, 4.0, 40))
    accepted = found[np.isfinite(found)]
    assert 0.2 < accepted.size / found.size < 0.8
    assert np.max(accepted) < 1e-12


@pytest.mark.gives_nan
def test_a_root_is_accepted_only_if_the_iterations_end():
    """Linear equations, from well to badly conditioned: some need more than the allowed steps."""
    B = np.random.default_rng(0).normal(size=(24, 24))
    B /= np.linalg.norm(B, 2)
    b = np.random.default_rng(1).normal(size=24)
    one = jnp.ones(24)

    def error(scale):
        (x,) = find_root(lambda x: ((x[0] + scale * (B @ x[0]) - b,), (one,)), (jnp.zeros(24),))
        return jnp.max(jnp.abs(x + scale * (B @ x) - b))

    errors = jax.jit(jax.vmap(error))(jnp.linspace(0.2, 2.0, 60))
    assert 0.2 < np.mean(np.isnan(errors)) < 0.8
    assert np.nanmax(errors) < 1e-14


def test_a_root_that_is_small_beside_its_terms_is_found():
    """The rounding errors of the terms are larger than the digits of the root."""
    expected = 1e-9 * np.random.default_rng(0).normal(size=(50, 6))
    ones = jnp.ones(6)

    @jax.jit
    @jax.vmap
    def found(target):
        def residual(x):
            return (x[0] + (1 + jnp.sin(x[0]) / 5) - (1 + jnp.sin(target) / 5) - target,), (ones,)

        return find_root(residual, (0 * target,))[0]

    np.testing.assert_allclose(found(expected), expected, rtol=0, atol=1e-15)


def test_a_root_is_exact_also_from_a_close_guess():
    """The first correction is small, but wrong by a third, because the derivative is 1.5."""
    expected = jnp.array([2.0, -1.0])
    guess = expected * (1 + 1e-9)
    (x,) = find_root(lambda x: ((1.5 * (x[0] - expected),), (jnp.abs(expected),)), (guess,))
    np.testing.assert_allclose(x, expected, rtol=1e-15)


def test_fewer_digits_take_fewer_evaluations():
    """The iteration of an implicit step in float32 ends at the precision of float32."""

    def evaluations(dtype):
        count = []

        def residual(x):
            jax.debug.callback(lambda: count.append(1))
            target = jnp.arange(1, 4, dtype=dtype)
            return (x[0] + jnp.sin(x[0]) / 10 - target,), (target,)

        (x,) = jax.jit(lambda x: find_root(residual, (x,)))(jnp.ones(3, dtype))
        jax.block_until_ready(x)
        jax.effects_barrier()
        close(x + jnp.sin(x) / 10, jnp.arange(1, 4, dtype=dtype), 4 * jnp.finfo(dtype).eps)
        return len(count)

    assert 4 * evaluations(jnp.float32) <= 3 * evaluations(jnp.float64)


def test_rollout_is_the_steps_one_by_one():
    model = top()
    q, v, _, _ = zoo.state(model)
    forces = jnp.cos(jnp.arange(9.0)).reshape(3, 3)

    def step(q, v, tau):
        def dynamics(q, v):
            return rbd.forward_dynamics(model, q, v, tau)

        return rbd.integrators.semi_implicit_euler(model, dynamics, q, v, 0.1)

    qs, vs = rbd.integrators.rollout(step, (q, v), forces)
    assert qs.shape == (4, 4)
    close(qs[0], q, 0)
    state = q, v
    for i, tau in enumerate(forces):
        state = step(*state, tau)
        close(qs[i + 1], state[0], 1e-14)
        close(vs[i + 1], state[1], 1e-14)
    unforced = rbd.integrators.rollout(lambda q, v: step(q, v, jnp.zeros(3)), (q, v), steps=2)
    assert unforced[0].shape == (3, 4)


def test_bad_arguments(monkeypatch):
    model = top()
    q, v, _, _ = zoo.state(model)
    dynamics = free(model)
    euler = rbd.integrators.explicit_euler
    wrong: dict[str, Any] = {
        "q has shape": lambda: euler(model, dynamics, q[:3], v, 0.1),
        "v has dtype|v of shape": lambda: euler(model, dynamics, q, v.astype(jnp.float32), 0.1),
        "dt has shape": lambda: euler(model, dynamics, q, v, jnp.ones(3)),
        r"dynamics\(q, v\) has shape": lambda: euler(model, lambda q, v: q, q, v, 0.1),
        "returns two": lambda: euler(model, lambda q, v, z: v, q, v, 0.1, 0.0),
        "rate of z": lambda: euler(model, lambda q, v, z: (v, jnp.ones(2)), q, v, 0.1, 0.0),
        "number of steps": lambda: rbd.integrators.rollout(lambda *s: s, (q, v)),
        "either inputs": lambda: rbd.integrators.rollout(lambda *s: s, (q, v), v, steps=3),
    }
    for message, call in wrong.items():
        with pytest.raises(rbd.ArgumentError, match=message):
            call()
    # Without the tests' type checker.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    found = r"dynamics is an array of shape \(\d+,\), expected a function dynamics\(q, v\)"
    with pytest.raises(rbd.ArgumentError, match=found):
        euler(model, v, q, v, 0.1)


# -------------------------------------------------------------------------------------- the bracket


class Eccentric(joints.Joint):
    """A ball joint with its center away from the child's frame: a subspace with a parameter."""

    arm: jax.Array | np.ndarray = eqx.field(default_factory=lambda: np.array([0.3, -0.2, 0.5]))
    nq: ClassVar[int] = 4
    nv: ClassVar[int] = 3
    ball: ClassVar[joints.Joint] = joints.Spherical()

    def pose(self, placement, q):
        turned = self.ball.pose(placement, q)
        arm = jnp.broadcast_to(self.arm, (*q.shape[:-1], 3))
        return rbd.Pose(turned.R, turned.p + spatial.rotate(turned.R, arm))

    def subspace(self):
        turn = jnp.broadcast_to(jnp.eye(3), (*self.arm.shape[:-1], 3, 3))
        arm = self.arm[..., None, :]
        lever = jnp.cross(turn, jnp.broadcast_to(arm, (*arm.shape[:-2], 3, 3)))
        return jnp.concatenate([lever, turn], axis=-1)

    def neutral(self):
        return self.ball.neutral()

    def integrate(self, q, v):
        return self.ball.integrate(q, v)

    def difference(self, q0, q1):
        return self.ball.difference(q0, q1)

    def random(self, key, lower, upper):
        return self.ball.random(key, lower, upper)


def eccentric():
    rng = np.random.default_rng(0)
    links = [rbd.model.Link(name, zoo.random_inertia(rng)) for name in "ab"]
    specs = [
        rbd.model.JointSpec("ja", Eccentric(), None, "a", zoo.random_placement(rng)),
        rbd.model.JointSpec("jb", joints.Planar(), "a", "b", zoo.random_placement(rng)),
    ]
    return rbd.build_model(links, specs)


@pytest.mark.slow
@pytest.mark.parametrize("robot", [zoo.connected, zoo.coupled, zoo.following, eccentric])
def test_bracket(robot):
    model = robot()
    q, u, w, _ = zoo.state(model)
    x = jnp.roll(u, 1)

    @jax.jit
    def both(q, u, w, x):
        def b(u, w):
            return rbd.configuration.velocity_bracket(model, u, w)

        def conjugated(s, t):
            """The velocity t w, expressed in the frame that is reached with s u."""
            q_st = rbd.integrate(model, rbd.integrate(model, q, s * u), t * w)
            return rbd.difference(model, q, rbd.integrate(model, q_st, -s * u))

        jacobi = b(u, b(w, x)) + b(w, b(x, u)) + b(x, b(u, w))
        commutator = jax.jacfwd(jax.jacfwd(conjugated), 1)(0.0, 0.0)
        return b(u, w), b(w, u), jacobi, commutator

    forth, back, jacobi, commutator = both(q, u, w, x)
    close(back, -forth, 1e-14)
    close(jacobi, jnp.zeros(model.nv), 1e-13)
    close(forth, commutator, 1e-12)
    rotates = robot is not zoo.following
    assert bool(np.any(np.abs(forth) > 0.1)) == rotates


def test_the_bracket_is_differentiable_in_the_joint():
    """The subspace has parameters, but they do not change the bracket of two rotations."""
    model = eccentric()
    _, u, w, _ = zoo.state(model)
    slope = jax.grad(lambda m: jnp.sum(rbd.configuration.velocity_bracket(m, u, w)))(model)
    zeros = jax.tree.map(jnp.zeros_like, slope)
    chex.assert_trees_all_close(slope, zeros, rtol=0, atol=1e-13)


def test_configuration_rate_is_the_rate_of_the_coordinates():
    model = zoo.connected()
    q, v, _, _ = zoo.state(model)
    h = 1e-4
    ahead, behind = (rbd.integrate(model, q, s * v) for s in (h, -h))
    close(rbd.configuration.configuration_rate(model, q, v), (ahead - behind) / (2 * h), 1e-7)


# ------------------------------------------------------------------------------------------ diffrax


def test_diffrax_agrees():
    """An adaptive solver that also integrates z equals many steps of fourth order."""
    diffrax = pytest.importorskip("diffrax")
    from jaxrbd.integrators import diffrax_adapter

    model = zoo.small()
    q, v, _, _ = zoo.state(model)
    y0 = q, v, (jnp.zeros(()), jnp.zeros(()))

    @jax.jit
    def solve(y0):
        solution = diffrax.diffeqsolve(
            diffrax_adapter.ode_term(model, driven(model)),
            diffrax.Tsit5(),
            0.0,
            0.25,
            1e-3,
            y0,
            stepsize_controller=diffrax.PIDController(rtol=1e-10, atol=1e-10),
        )
        return diffrax_adapter.normalized(model, jax.tree.map(lambda x: x[0], solution.ys))

    found = solve(y0)
    expected = repeat(model, driven(model), rbd.integrators.runge_kutta_munthe_kaas)(
        y0, 0.25 / 512, 512
    )
    close(rbd.difference(model, expected[0], found[0]), jnp.zeros(model.nv), 1e-9)
    close(found[1], expected[1], 1e-9)
    close(found[2][1], expected[2][1], 1e-9)
    close(found[0], rbd.integrate(model, found[0], jnp.zeros(model.nv)), 1e-14)
