"""Single precision far from the world's origin: the digits of the robot, and not of the distance.

Each algorithm runs in float32 with the robot at the origin and 1, 10 and 1,000 km away, and is
compared with float64 at the same configuration, as float32 rounds it. No error may grow with the
distance, but for positions in the world, which float32 cannot hold with more digits, and what is
made of them: their errors are compared with the rounding of the distance.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
import zoo
from algorithms import ALGORITHMS
from jaxrbd import constraints as con, frames

# Horizontal offsets of the robot, in m. All are multiples of 1,000, see `anchor`.
OFFSETS = np.array([[0, 0, 0], [1e3, 0, 0], [6e3, -8e3, 0], [8e5, 6e5, 0]])
STATES = 8
EPS = float(jnp.finfo(jnp.float32).eps)


@functools.cache
def model():
    """`zoo.small()` with its base at the world's origin for q = 0, as float32 has it."""
    small = zoo.small()
    R, p = small.placement
    placement = rbd.Pose(R.at[0].set(jnp.eye(3)), p.at[0].set(0))
    return dataclasses.replace(small, placement=placement).astype("float32")


@functools.cache
def states():
    """Configurations at all offsets (offsets, states, nq) as float32 has them, and v, u, f."""
    q, v, u, f = (
        jnp.stack(x).astype(jnp.float32)
        for x in zip(*(zoo.state(zoo.small(), seed) for seed in range(STATES)))
    )
    far = jnp.tile(q, (len(OFFSETS), 1, 1)).at[..., :3].add(jnp.float32(OFFSETS)[:, None])
    return far, v, u, f


def anchor(q):
    """A point of the world near the robot, of which float32 has all digits: its offset."""
    return 1000 * jnp.round(q[:3] / 1000)


def loop(q):
    """A point of the last link held at a point of the world near the robot."""
    return (con.point(None, "l2", anchor(q) + jnp.array([0.125, 0.25, 0.375], q.dtype)),)


def labelled(m, q, v, u, f):
    """Quantities of `frames.State` that lie between frames of the robot."""
    state = frames.State(m, q, v, u)
    return (
        state.relative_transform("l0", "l2"),
        state.relative_twist("l2", "l0", "l1"),
        state.relative_acceleration("l2", "l1"),
        state.jacobian("l2", "l0"),
        state.inertia("l2", "l0"),
        state.center_of_mass("l1"),
        state.momentum("l1"),
        state.momentum_matrix("l2"),
    )


CASES = {
    **ALGORITHMS,
    "constrained_dynamics": lambda m, q, v, u, f: con.constrained_dynamics(
        m, q, v, u, loop(q), f, 5.0
    ),
    "constraint_rows": lambda m, q, v, u, f: con.constraint_rows(m, q, v, loop(q)),
    "constraint_wrenches": lambda m, q, v, u, f: con.constraint_wrenches(m, q, loop(q), (u[:3],)),
    "impact": lambda m, q, v, u, f: con.impact(m, q, v, loop(q)),
    "kkt_system": lambda m, q, v, u, f: con.kkt_system(m, q, v, u, loop(q), f),
    "close_loops": lambda m, q, v, u, f: con.close_loops(m, q, loop(q)),
    "labelled": labelled,
    "rnea_gradient": lambda m, q, v, u, f: rbd.jacobian(m, lambda q: rbd.rnea(m, q, v, u, f))(q),
    "crba_gradient": lambda m, q, v, u, f: rbd.jacobian(m, lambda q: rbd.crba(m, q))(q),
    "forward_dynamics_gradient": lambda m, q, v, u, f: rbd.jacobian(
        m, lambda q: rbd.forward_dynamics(m, q, v, u, f)
    )(q),
}
# No functions of the configuration, or of the place of the robot alone.
for _name in (
    "difference interpolate neutral total_mass random_configuration velocity_bracket"
).split():
    del CASES[_name]


def after_position(q):
    """A configuration without the position of its free-flyer."""
    return q[..., 3:]


def position(q):
    return q[..., :3]


# By name, what of a result is a position in the world, and what is not.
POSITIONS = {
    "forward_kinematics": lambda r: ((r.X_WB.R, r.p_RB, r.X_PB.R, r.X_PB.p[..., 1:, :]), r.X_WB.p),
    "frame_placement": lambda r: (r.R, r.p),
    "center_of_mass": lambda r: ((), r),
    "contact_points": lambda r: ((r.distance, r.gradient, r.velocity, r.arm), r.position),
    "contact_step": lambda r: ((after_position(r.q), r[1:]), position(r.q)),
    "integrate": lambda q: (after_position(q), position(q)),
    "close_loops": lambda r: ((after_position(r.q), r.residual), position(r.q)),
    "explicit_dynamics": lambda r: ((r.y_accel, r.v, r.a, r.G, r.M, r.C), position(r.q)),
    **dict.fromkeys(
        "explicit_euler semi_implicit_euler runge_kutta_munthe_kaas variational_midpoint".split(),
        lambda r: ((after_position(r[0]), r[1]), position(r[0])),
    ),
}


def errors(actual, expected):
    """The largest error of each leaf at each offset, and the leaf's scale."""

    def of_leaf(a, b):
        assert a.dtype == jnp.float32 or not jnp.issubdtype(a.dtype, jnp.floating)
        a, b = (np.asarray(x, float).reshape(len(OFFSETS), -1) for x in (a, b))
        return np.max(np.abs(a - b), axis=1, initial=0), np.max(np.abs(b), axis=1, initial=0)

    return [of_leaf(*pair) for pair in zip(jax.tree.leaves(actual), jax.tree.leaves(expected))]


@functools.cache
def results(name):
    """Of an algorithm: in float32, and in float64 at the same states."""
    q, *rest = states()

    def program(model, q, *rest):
        each = jax.vmap(functools.partial(CASES[name], model))
        return jax.vmap(lambda q: each(q, *rest))(q)

    single = jax.jit(program)(model(), q, *rest)
    double = jax.jit(program)(model().astype("float64"), *(x.astype(float) for x in (q, *rest)))
    return single, double


# Their programs take long to compile.
SLOW = (
    "close_loops explicit_dynamics forward_dynamics_gradient forward_dynamics_second_order hessian "
    "runge_kutta_munthe_kaas variational_midpoint"
).split()


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in CASES]
)
def test_no_error_grows_with_the_distance(name):
    single, double = results(name)
    if name in POSITIONS:
        (single, placed), (double, truly) = POSITIONS[name](single), POSITIONS[name](double)
        ((error, _),) = errors(placed, truly)
        distance = np.max(np.abs(OFFSETS), axis=1)
        assert np.all(error <= EPS * np.maximum(distance, 8)), error
    for error, scale in errors(single, double):
        assert np.all(error <= 2 * error[0] + 2 * EPS * scale[0]), (error, scale)
