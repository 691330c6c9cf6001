"""Every algorithm under every transformation, and every derivative against finite differences.

Derivatives are taken in the tangent space: of `f(integrate(q, dq), v + dv, ...)` at zero. Each
algorithm is a function of (dq, v, u), u being its last vector argument, and its values are
contracted with fixed weights where a scalar is wanted.
"""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import se3, spatial
from support import zoo
from support.algorithms import PUBLIC
from support.zoo import close


def at_frame(function):
    return lambda m, *args: function(m, *args, "l2")


def stack_pose(X):
    return jnp.concatenate([X.R.ravel(), X.p.ravel()])


# name: function of (model, q, v, u)
ALGORITHMS = {
    "forward_kinematics": lambda m, q, v, u: stack_pose(rbd.forward_kinematics(m, q).X_WB),
    "frame_placement": lambda m, q, v, u: stack_pose(rbd.frame_placement(m, q, "l2")),
    "frame_velocity": lambda m, q, v, u: rbd.frame_velocity(m, q, v, "l2"),
    "frame_acceleration": lambda m, q, v, u: rbd.frame_acceleration(m, q, v, u, "l2"),
    "frame_jacobian": lambda m, q, v, u: rbd.frame_jacobian(m, q, "l2", "local"),
    "external_force": lambda m, q, v, u: rbd.external_force(m, q, "l2", u[:6]),
    "rnea": lambda m, q, v, u: rbd.rnea(m, q, v, u, jnp.outer(v[: m.nb], u[:6])),
    "bias_force": lambda m, q, v, u: rbd.bias_force(m, q, v),
    "gravity_force": lambda m, q, v, u: rbd.gravity_force(m, q),
    "crba": lambda m, q, v, u: rbd.crba(m, q),
    "mass_matrix_product": lambda m, q, v, u: rbd.mass_matrix_product(m, q, u),
    "minverse": lambda m, q, v, u: rbd.minverse(m, q),
    "aba": lambda m, q, v, u: rbd.aba(m, q, v, u, jnp.outer(v[: m.nb], u[:6])),
    "forward_dynamics": lambda m, q, v, u: rbd.forward_dynamics(
        m, q, v, u, jnp.outer(v[: m.nb], u[:6])
    ),
    "center_of_mass": lambda m, q, v, u: rbd.center_of_mass(m, q),
    "kinetic_energy": lambda m, q, v, u: rbd.kinetic_energy(m, q, v),
    "potential_energy": lambda m, q, v, u: rbd.potential_energy(m, q),
    # Without Coulomb friction, which jumps at rest.
    "passive_force": lambda m, q, v, u: (
        rbd.passive_force(dataclasses.replace(m, friction=0 * m.friction), q, v) * u
    ),
    "integrate": lambda m, q, v, u: rbd.integrate(m, q, v),
    "difference": lambda m, q, v, u: rbd.difference(m, q, rbd.integrate(m, q, 0.1 * v)),
    "interpolate": lambda m, q, v, u: rbd.interpolate(m, q, rbd.integrate(m, q, 0.1 * v), 0.3),
}


def states(model):
    """The configurations that derivatives are compared at, with v and u."""
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
    """One compiled program of all derivatives, and one of the value, shared by all states."""
    model = zoo.small()
    algorithm = ALGORITHMS[name]

    def value(x, q, v, u):
        dq, dv, du = jnp.split(x, 3)
        return algorithm(model, rbd.integrate(model, q, dq), v + dv, u + du)

    out = jax.eval_shape(value, jnp.zeros(3 * model.nv), *zoo.state(model)[:3])
    weights = jnp.sin(jnp.arange(1.0, out.size + 1)).reshape(out.shape)

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


@pytest.mark.parametrize("name", ALGORITHMS)
def test_all_transformations_agree_and_are_right(name):
    model = zoo.small()
    weights, derivatives, batch, gradients = programs(name)
    x = jnp.zeros(3 * model.nv)
    for where, state in states(model).items():
        d = derivatives(x, *state)
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(d)), where
        numerical = central_differences(batch, x, state, 1e-3)
        close(d["jacfwd"], numerical, 1e-9, f"{name}, {where}: jacfwd")
        close(d["jacrev"], d["jacfwd"], 1e-12, f"{name}, {where}: jacrev")
        contracted = jnp.tensordot(weights, d["jacfwd"], weights.ndim)
        close(d["grad"], contracted, 1e-12, f"{name}, {where}: grad")
        curvature = central_differences(gradients, x, state, 1e-3)
        close(d["hessian"], curvature, 1e-8, f"{name}, {where}: hessian")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_jit_and_vmap_change_nothing(name):
    model = zoo.small()
    algorithm = ALGORITHMS[name]
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


def test_derivatives_in_every_number_of_the_model():
    """Forward dynamics of a robot with every kind of parameter: jvp and central difference."""
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
    """A batch of robots that differ in every mass, in one program."""
    model = zoo.small()
    q, v, a, _ = zoo.state(model)
    scales = jnp.array([0.5, 1.0, 2.0])

    def tau(scale):
        heavier = eqx.tree_at(lambda m: m.inertia, model, scale * model.inertia)
        return rbd.rnea(heavier, q, v, a)

    for scaled, scale in zip(jax.vmap(tau)(scales), scales):
        close(scaled, scale * rbd.rnea(model, q, v, a), 1e-13)


@pytest.mark.parametrize("angle", [0.0, 1e-20, 1e-9, 1e-4, np.pi, 2 * np.pi])
def test_pendulum_gradient_is_exact_at_every_angle(angle):
    """d(qdd)/dq of a point mass on a hinge is -(g / l) cos(q): never a false zero."""
    length = 0.7
    bob = rbd.model.Link("bob", rbd.model.link_inertia(2.0, (0, 0, -length)))
    hinge = rbd.model.JointSpec("hinge", rbd.joints.Revolute((0, 1, 0)), None, "bob")
    model = rbd.build_model([bob], [hinge])
    zero = jnp.zeros(1)

    def qdd(q):
        return rbd.forward_dynamics(model, jnp.reshape(q, (1,)), zero, zero)[0]

    slope = jax.grad(qdd)
    w2 = 9.81 / length
    assert float(qdd(angle)) == pytest.approx(-w2 * np.sin(angle), abs=1e-13)
    assert float(slope(angle)) == pytest.approx(-w2 * np.cos(angle), rel=1e-13)
    assert float(jax.grad(jax.grad(slope))(angle)) == pytest.approx(w2 * np.cos(angle), rel=1e-12)


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


# ------------------------------------------------- everything else, in every argument and number

TORQUE = "rnea_derivatives forward_dynamics_derivatives centroidal_derivatives".split()
SHELF = {
    **{
        name: lambda m, q, v, u, f, name=name: PUBLIC[name](m, q, v, u)
        for name in (*TORQUE, "centroidal_momentum_rate")
    },
    **{
        name: lambda m, q, v, u, f, name=name: PUBLIC[name](m, q, v)
        for name in "coriolis_matrix centroidal_momentum centroidal_momentum_matrix_dot".split()
    },
    **{
        name: lambda m, q, v, u, f, name=name: PUBLIC[name](m, q)
        for name in "aba_minverse com_jacobian centroidal_momentum_matrix".split()
    },
    "static_torque": lambda m, q, v, u, f: rbd.algorithms.static_torque(m, q, f),
    "rnea": lambda m, q, v, u, f: rbd.rnea(m, q, v, u, f),
    "ltl": lambda m, q, v, u, f: rbd.algorithms.ltl_solve(
        m, rbd.algorithms.ltl_factor(m, rbd.crba(m, q)), u
    ),
    "rnea_second_order": lambda m, q, v, u, f: rbd.rnea_second_order(m, q, v, u, u),
    "delassus_matrix": lambda m, q, v, u, f: rbd.algorithms.delassus_matrix(m, q, ("l1", "l2")),
    "operational_space_inertia": lambda m, q, v, u, f: rbd.algorithms.operational_space_inertia(
        m, q, ("l2",), damping=0.1
    ),
    "frame_jacobian_dot": lambda m, q, v, u, f: rbd.frame_jacobian_dot(m, q, v, "l2"),
    "frame_velocity_derivatives": lambda m, q, v, u, f: rbd.algorithms.frame_velocity_derivatives(
        m, q, v, "l2"
    ),
    "frame_acceleration_derivatives": lambda m, q, v, u, f: (
        rbd.algorithms.frame_acceleration_derivatives(m, q, v, u, "l2")
    ),
    "point_jacobian": lambda m, q, v, u, f: rbd.algorithms.point_jacobian(m, q, "l2", u[:3]),
    "joint_torque_regressor": lambda m, q, v, u, f: rbd.joint_torque_regressor(m, q, v, u),
    "energy regressors": lambda m, q, v, u, f: (
        rbd.algorithms.kinetic_energy_regressor(m, q, v),
        rbd.algorithms.potential_energy_regressor(m, q),
    ),
    "body_regressor": lambda m, q, v, u, f: rbd.algorithms.body_regressor(v[:6], u[:6]),
}
QUICK = ("rnea", "rnea_derivatives", "delassus_matrix")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in SHELF]
)
def test_derivatives_in_all_arguments_and_numbers(name):
    """Of the whole shelf in (model, q, v, u, f_ext): reverse, forward, and forward over reverse.

    The robot's joints have damping, which its dynamics hold. Configurations move through numbers
    that are no unit quaternions; the rotations of placements turn.
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
        values = SHELF[name](robot, *moved[1:])
        values = jnp.concatenate([x.ravel() for x in jax.tree.leaves(values)])
        return jnp.sum(jnp.sin(jnp.arange(1.0, values.size + 1)) * values)

    @jax.jit
    def derivatives(t):
        one = jnp.ones(())
        reverse, second = jax.jvp(jax.grad(number), (t,), (one,))
        return number(t), reverse, jax.jvp(number, (t,), (one,))[1], second

    h = 1e-3
    a, b, here, c, d = (derivatives(k * h) for k in (-2.0, -1.0, 0.0, 1.0, 2.0))
    _, reverse, forward, second = here
    close(reverse, forward, 1e-11, "reverse and forward")
    for order, exact in enumerate((forward, second)):
        slope = (a[order] - 8 * b[order] + 8 * c[order] - d[order]) / (12 * h)
        close(exact, slope, 1e-6, f"order {order + 1}")
