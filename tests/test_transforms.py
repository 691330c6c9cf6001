"""Algorithms under all transformations; their derivatives against finite differences.

Derivatives are taken in the tangent space: they are the derivatives of
`f(integrate(q, dq), v + dv, u + du)` at zero. `grad` and `hessian` need a scalar, which is the
weighted sum of all values.
"""

import dataclasses
import functools

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import jaxrbd as rbd
from jaxrbd import se3, spatial
from support import finite_differences, nightly, zoo
from support.algorithms import ALGORITHMS
from support.zoo import close

# Tested at every state of `states`. Most run nightly: they share their parts with `rnea` and
# `integrate`, and `test_each_algorithm.py` tests the analytic derivatives.
AT_EVERY_STATE = """
    forward_kinematics frame_acceleration frame_jacobian rnea crba minverse forward_dynamics
    center_of_mass kinetic_energy passive_force integrate difference frame_placement
    frame_velocity external_force bias_force gravity_force mass_matrix_product aba
    potential_energy interpolate distance robot_distances
""".split()


def flat(name):
    """An algorithm as a function of (model, q, v, u) that returns one vector.

    The external forces are a function of v and u, so that they are differentiated, too.
    """

    def function(model, q, v, u):
        result = ALGORITHMS[name](model, q, v, u, jnp.outer(v[: model.nb], u[:6]))
        return ravel_pytree(result)[0]

    return function


def smooth_robot():
    """`zoo.small()` without Coulomb friction, which is not continuous at rest."""
    model = zoo.small()
    return dataclasses.replace(model, friction=0 * model.friction)


def states(model):
    """States (q, v, u) at which derivatives are compared."""
    q, v, u, _ = zoo.state(model)
    unit = rbd.neutral(model)
    negated = jnp.where(unit == 1, -1.0, unit)
    return {
        "random": (q, v, u),
        "neutral, at rest": (unit, jnp.zeros_like(v), jnp.zeros_like(u)),
        "neutral, moving": (unit, v, u),
        "negated quaternions": (negated, v, u),
        "scaled quaternions": (jnp.where(unit == 1, 3.0, unit), v, u),
    }


@functools.cache
def programs(name: str):
    """The weights, and compiled programs of derivatives, values and gradients for all states."""
    model, algorithm = smooth_robot(), flat(name)

    def value(x, q, v, u):
        dq, dv, du = jnp.split(x, 3)
        return algorithm(model, rbd.integrate(model, q, dq), v + dv, u + du)

    out = jax.eval_shape(value, jnp.zeros(3 * model.nv), *zoo.state(model)[:3])
    weights = jnp.sin(jnp.arange(1.0, out.size + 1))

    def scalar(x, *state):
        return jnp.sum(weights * value(x, *state))

    @jax.jit
    def derivatives(x, *state):
        return {
            "jacfwd": jax.jacfwd(value)(x, *state),
            "jacrev": jax.jacrev(value)(x, *state),
            "grad": jax.grad(scalar)(x, *state),
            "hessian": jax.hessian(scalar)(x, *state),
        }

    batch = jax.jit(jax.vmap(value, (0, None, None, None)))
    gradients = jax.jit(jax.vmap(jax.grad(scalar), (0, None, None, None)))
    return weights, derivatives, batch, gradients


def central_differences(batch, x, state, step):
    """Fourth-order central differences of a function of x, all directions in one batch."""
    n = x.size
    offsets = jnp.concatenate([k * step * jnp.eye(n) for k in (-2, -1, 1, 2)])
    values = batch(x + offsets, *state)
    a, b, c, d = values.reshape(4, n, *values.shape[1:])
    return jnp.moveaxis((a - 8 * b + 8 * c - d) / (12 * step), 0, -1)


@pytest.mark.slow
@pytest.mark.parametrize("name", AT_EVERY_STATE)
def test_all_transformations_agree_and_are_right(name):
    model = smooth_robot()
    weights, derivatives, batch, gradients = programs(name)
    x = jnp.zeros(3 * model.nv)
    for where, state in states(model).items():
        d = derivatives(x, *state)
        chex.assert_tree_all_finite(d, custom_message=where)
        numerical = central_differences(batch, x, state, 1e-3)
        close(d["jacfwd"], numerical, 1e-9, f"{name}, {where}: jacfwd")
        close(d["jacrev"], d["jacfwd"], 1e-12, f"{name}, {where}: jacrev")
        contracted = weights @ d["jacfwd"]
        close(d["grad"], contracted, 1e-12, f"{name}, {where}: grad")
        curvature = central_differences(gradients, x, state, 1e-3)
        close(d["hessian"], curvature, 1e-8, f"{name}, {where}: hessian")


@pytest.mark.parametrize("name", nightly.all_but(["rnea", "integrate"], AT_EVERY_STATE))
def test_jit_and_vmap_change_nothing(name):
    model, algorithm = smooth_robot(), flat(name)
    singles = [zoo.state(model, seed)[:3] for seed in range(3)]
    batched = jax.vmap(lambda q, v, u: algorithm(model, q, v, u))(
        *(jnp.stack(x) for x in zip(*singles))
    )
    jitted = jax.jit(algorithm)
    for row, state in zip(batched, singles):
        close(jitted(model, *state), algorithm(model, *state), 1e-13, name)
        close(row, algorithm(model, *state), 1e-12, name)


def leaf_directions(model):
    """A random direction for every leaf of the model that the dynamics depend on."""
    rng = np.random.default_rng(0)
    zero = jax.tree.map(jnp.zeros_like, model)
    rows = {
        "inertia": lambda m: m.inertia,
        "gravity": lambda m: m.gravity,
        "placement position": lambda m: m.placement.p,
        "armature": lambda m: m.armature,
        "axis": lambda m: next(j for j in m.joints if hasattr(j, "axis")).axis,
        "pitch": lambda m: next(j for j in m.joints if hasattr(j, "pitch")).pitch,
        "mimic multiplier": lambda m: m.coupling.v_multiplier,
        "mimic offset": lambda m: m.coupling.q_offset,
    }
    for name, leaf in rows.items():
        yield name, eqx.tree_at(leaf, zero, jnp.array(rng.normal(size=leaf(model).shape)))


@pytest.mark.slow
def test_derivatives_in_every_number_of_the_model():
    """Forward dynamics of a robot with every kind of parameter: jvp and central differences."""
    model = zoo.coupled()
    q, v, u, f = zoo.state(model)

    def moved(t, direction):
        return jax.tree.map(lambda x, d: jnp.where(jnp.isfinite(x), x + t * d, x), model, direction)

    @jax.jit
    def both(direction, step):
        def qdd(t):
            return rbd.forward_dynamics(moved(t, direction), q, v, u, f)

        a, b, c, d = (qdd(k * step) for k in (-2, -1, 1, 2))
        return jax.jvp(qdd, (0.0,), (1.0,))[1], (a - 8 * b + 8 * c - d) / (12 * step)

    for name, direction in leaf_directions(model):
        exact, numerical = both(direction, 1e-4)
        assert jnp.max(jnp.abs(exact)) > 1e-6, f"{name} has no effect"
        close(exact, numerical, 1e-8, name)


def test_vmap_over_models():
    """A batch of robots with different masses, in one program."""
    model = zoo.small()
    q, v, a, _ = zoo.state(model)
    scales = jnp.array([0.5, 1.0, 2.0])

    def tau(scale):
        heavier = eqx.tree_at(lambda m: m.inertia, model, scale * model.inertia)
        return rbd.rnea(heavier, q, v, a)

    for scaled, scale in zip(jax.vmap(tau)(scales), scales):
        close(scaled, scale * rbd.rnea(model, q, v, a), 1e-13)


LENGTH = 0.7
ANGLES = [0.0, 1e-20, 1e-9, 1e-4, np.pi, 2 * np.pi]


@functools.cache
def pendulum():
    """qdd of a point mass on a hinge and its first three derivatives, as functions of q."""
    bob = rbd.model.Link("bob", rbd.model.link_inertia(2.0, (0, 0, -LENGTH)))
    hinge = rbd.model.JointSpec("hinge", rbd.joints.Revolute((0, 1, 0)), None, "bob")
    model = rbd.build_model([bob], [hinge])
    zero = jnp.zeros(1)

    def qdd(q):
        return rbd.forward_dynamics(model, jnp.reshape(q, (1,)), zero, zero)[0]

    slope = jax.grad(qdd)
    return jax.jit(lambda q: (qdd(q), slope(q))), jax.jit(jax.grad(jax.grad(slope)))


@pytest.mark.parametrize("angle", ANGLES)
def test_pendulum_gradient_is_exact_at_every_angle(angle):
    """d(qdd)/dq of a point mass on a hinge is -(g / l) cos(q) at every angle."""
    qdd, slope = map(float, pendulum()[0](angle))
    w2 = 9.81 / LENGTH
    assert qdd == pytest.approx(-w2 * np.sin(angle), abs=1e-13)
    assert slope == pytest.approx(-w2 * np.cos(angle), rel=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("angle", ANGLES)
def test_third_derivative_of_a_pendulum_is_exact_at_every_angle(angle):
    third = float(pendulum()[1](angle))
    assert third == pytest.approx(9.81 / LENGTH * np.cos(angle), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("speed", [0.0, 1e-20, 1e-9, 1e-4])
def test_a_step_of_a_free_body_has_the_true_derivative_at_rest(speed):
    """d(rotation reached)/d(angular velocity) is dt times the right Jacobian, also at rest."""
    model = zoo.build(["free_flyer"], [-1])
    q, dt = rbd.neutral(model), 0.1
    v = jnp.zeros(6).at[3:].set(speed * jnp.array([0.6, 0.0, 0.8]))

    def step(v):
        return rbd.difference(model, q, rbd.integrate(model, q, dt * v))

    for mode in (jax.jacfwd, jax.jacrev):
        close(mode(step)(v), dt * jnp.eye(6), 1e-15)
    quaternion = jax.jacfwd(lambda v: rbd.integrate(model, q, dt * v))(v)[3:6, 3:]
    close(quaternion, dt / 2 * jnp.eye(3), 1e-9)


# ----------------------------------------- the other algorithms, in all operands and parameters

IN_ALL_OPERANDS = {
    name: ALGORITHMS[name]
    for name in """
        rnea_derivatives forward_dynamics_derivatives centroidal_derivatives
        centroidal_momentum_rate coriolis_matrix centroidal_momentum centroidal_momentum_matrix_dot
        aba_minverse com_jacobian centroidal_momentum_matrix static_torque rnea ltl_solve
        rnea_second_order delassus_matrix operational_space_inertia frame_jacobian_dot
        frame_velocity_derivatives frame_acceleration_derivatives point_jacobian
        joint_torque_regressor kinetic_energy_regressor potential_energy_regressor
    """.split()
}
# It takes two motions and no model, so it has no entry in the table.
IN_ALL_OPERANDS["body_regressor"] = lambda m, q, v, u, f: rbd.algorithms.body_regressor(
    v[:6], u[:6]
)


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_ALL_OPERANDS)
def test_derivatives_in_all_arguments_and_numbers(name):
    """Derivatives along one curve in (model, q, v, u, f_ext): forward, reverse, second order.

    The robot has damped joints and dissipation is part of its dynamics. Along the curve the
    quaternions of q do not stay unit quaternions, and the placements rotate.
    """
    model = zoo.build(["free_flyer", "helical", "spherical"], [-1, 0, 1], seed=4, armature=0.1)
    model = eqx.tree_at(lambda m: m.damping, model, 0.3 + model.damping).with_dissipation()
    operands = (model, *zoo.state(model))
    rng = np.random.default_rng(0)
    moves = jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), 0.3, 0.0), operands)
    direction = jax.tree.map(lambda x: x * rng.normal(size=x.shape), moves)
    spin = jnp.asarray(rng.normal(size=(model.nb, 3)))

    def number(t):
        moved = jax.tree.map(lambda x, dx: x + jnp.where(dx == 0, 0, t * dx), operands, direction)
        turned = spatial.compose(model.placement, se3.exp(t * jnp.pad(spin, ((0, 0), (3, 0)))))
        robot = eqx.tree_at(lambda m: m.placement.R, moved[0], turned.R)
        values = IN_ALL_OPERANDS[name](robot, *moved[1:])
        values = ravel_pytree(values)[0]
        return jnp.sum(jnp.sin(jnp.arange(1.0, values.size + 1)) * values)

    @jax.jit
    def derivatives(t):
        """The value, its derivative in both modes, and its second derivative."""
        one = jnp.ones(())
        value, forward = jax.jvp(number, (t,), (one,))
        reverse, second = jax.jvp(jax.grad(number), (t,), (one,))
        return value, reverse, forward, second

    slopes = finite_differences.slope(lambda t: derivatives(t)[:2], 1e-3)
    _, reverse, forward, second = derivatives(jnp.zeros(()))
    close(reverse, forward, 1e-11, "reverse and forward")
    for order, exact in enumerate((forward, second)):
        close(exact, slopes[order], 1e-6, f"order {order + 1}")
