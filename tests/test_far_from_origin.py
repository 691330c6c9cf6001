"""Single precision far from the world's origin: the distance does not reduce the precision.

Each algorithm runs in float32 with the robot at the origin and 1, 10 and 1,000 km away. It is
compared with float64 at the same configuration, which is rounded to float32. No error may grow
with the distance, except for positions in the world and quantities that are computed from them:
their errors are compared with the rounding of the distance.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import constraints as con, frames
from jaxrbd.algorithms.forward_dynamics import solve_mass_matrix
from support import nightly, zoo
from support.algorithms import ALGORITHMS

# Horizontal offsets of the robot, in m. All are multiples of 1,000, see `anchor`.
OFFSETS = np.array([[0, 0, 0], [1e3, 0, 0], [6e3, -8e3, 0], [8e5, 6e5, 0]])
STATES = 8
EPS = float(jnp.finfo(jnp.float32).eps)


@functools.cache
def model():
    """`zoo.small()` in float32, with its base at the world's origin for q = 0."""
    small = zoo.small()
    R, p = small.placement
    placement = rbd.Pose(R.at[0].set(jnp.eye(3)), p.at[0].set(0))
    return dataclasses.replace(small, placement=placement).astype("float32")


@functools.cache
def states():
    """Configurations in float32 at all offsets, (offsets, states, nq), and v, u, f."""
    q, v, u, f = (
        jnp.stack(x).astype(jnp.float32)
        for x in zip(*(zoo.state(zoo.small(), seed) for seed in range(STATES)))
    )
    far = jnp.tile(q, (len(OFFSETS), 1, 1)).at[..., :3].add(jnp.float32(OFFSETS)[:, None])
    return far, v, u, f


def anchor(q):
    """The offset of the robot: a point near the robot that is exact in float32."""
    return 1000 * jnp.round(q[:3] / 1000)


def loop(q):
    """A point of the last link held at a point of the world near the robot."""
    return (con.point(None, "l2", anchor(q) + jnp.array([0.125, 0.25, 0.375], q.dtype)),)


def nearby(m, q):
    """The origin of the last link held within 6 cm of where it is.

    Its coordinates are multiples of 1/16 m, which are exact in float32 up to 1,000 km.
    """
    from_anchor = q[:3] - anchor(q) + rbd.forward_kinematics(m, q).p_RB[-1]
    return (con.point(None, "l2", anchor(q) + jnp.round(16 * from_anchor) / 16),)


def labelled(m, q, v, u, f):
    """Quantities of `frames.State` between frames of the robot."""
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
    # The points of the table's constraint are near the world's origin. These are near the robot.
    "constrained_dynamics": lambda m, q, v, u, f: con.constrained_dynamics(
        m, q, v, u, loop(q), f, 5.0
    ),
    "constraint_rows": lambda m, q, v, u, f: con.constraint_rows(m, q, v, loop(q)),
    "constraint_wrenches": lambda m, q, v, u, f: con.constraint_wrenches(m, q, loop(q), (u[:3],)),
    "constrained_dynamics_derivatives": lambda m, q, v, u, f: con.constrained_dynamics_derivatives(
        m, q, v, u, loop(q), f, 5.0
    ),
    "impact_derivatives": lambda m, q, v, u, f: con.impact_derivatives(m, q, v, loop(q)),
    "impact": lambda m, q, v, u, f: con.impact(m, q, v, loop(q)),
    "kkt_system": lambda m, q, v, u, f: con.kkt_system(m, q, v, u, loop(q), f),
    "close_loops": lambda m, q, v, u, f: con.close_loops(m, q, nearby(m, q)),
    "labelled": labelled,
    "rnea_gradient": lambda m, q, v, u, f: rbd.jacobian(m, lambda q: rbd.rnea(m, q, v, u, f))(q),
    "crba_gradient": lambda m, q, v, u, f: rbd.jacobian(m, lambda q: rbd.crba(m, q))(q),
    "forward_dynamics_of_kinematics": lambda m, q, v, u, f: rbd.forward_dynamics(
        m, rbd.forward_kinematics(m, q), v, u, f
    ),
    "forward_dynamics_gradient": lambda m, q, v, u, f: rbd.jacobian(
        m, lambda q: rbd.forward_dynamics(m, q, v, u, f)
    )(q),
}
# Not tested here: their results do not depend on the robot's position, or are a configuration. The
# configuration of inverse kinematics depends on how a target in the world is rounded. `distance`
# takes poses in the world, which are rounded.
for _name in (
    "difference interpolate neutral total_mass random_configuration velocity_bracket distance "
    "inverse_kinematics search_inverse_kinematics"
).split():
    del CASES[_name]


def after_position(q):
    """A configuration without the position of its free-flyer."""
    return q[..., 3:]


def position(q):
    return q[..., :3]


# By name, the parts of a result that are not positions in the world, and those that are.
POSITIONS = {
    "forward_kinematics": lambda r: ((r.X_WB.R, r.p_RB, r.X_PB.R, r.X_PB.p[..., 1:, :]), r.X_WB.p),
    "frame_placement": lambda r: (r.R, r.p),
    "frame_placements": lambda r: (r.R, r.p),
    "center_of_mass": lambda r: ((), r),
    "contact_points": lambda r: ((r.distance, r.gradient, r.velocity, r.arm), r.position),
    "robot_separations": lambda r: ((r.distance, r.normal), (r.point_a, r.point_b)),
    "contact_step": lambda r: ((after_position(r.q), r[1:]), position(r.q)),
    **dict.fromkeys(("displace", "integrate"), lambda q: (after_position(q), position(q))),
    # The loops are closed for the rounded position of the base, so all results depend on it.
    "close_loops": lambda r: ((), (r.q, r.residual)),
    "explicit_dynamics": lambda r: ((r.y_accel, r.v, r.a, r.G, r.M, r.C), position(r.q)),
    **dict.fromkeys(
        ("step_derivatives", "contact_step_derivatives"),
        lambda r: ((after_position(r.q), r.v, r.A, r.B), position(r.q)),
    ),
    **dict.fromkeys(
        (
            "explicit_euler semi_implicit_euler runge_kutta_munthe_kaas variational_midpoint "
            "state_space shooting_step"
        ).split(),
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
    """The results of an algorithm in float32, and in float64 at the same states."""
    q, *rest = states()

    def program(model, q, *rest):
        each = jax.vmap(functools.partial(CASES[name], model))
        return jax.vmap(lambda q: each(q, *rest))(q)

    single = jax.jit(program)(model(), q, *rest)
    double = jax.jit(program)(model().astype("float64"), *(x.astype(float) for x in (q, *rest)))
    return single, double


# The parts that the others share.
BY_DEFAULT = "com_jacobian crba forward_dynamics frame_jacobian integrate".split()


@pytest.mark.parametrize("name", nightly.all_but(BY_DEFAULT, CASES))
def test_no_error_grows_with_the_distance(name):
    single, double = results(name)
    if name in POSITIONS:
        (single, placed), (double, truly) = POSITIONS[name](single), POSITIONS[name](double)
        distance = np.max(np.abs(OFFSETS), axis=1)
        for error, _ in errors(placed, truly):
            searched = error[0] if name == "robot_separations" else 0
            assert np.all(error <= searched + EPS * np.maximum(distance, 8)), error
    leaves = errors(single, double)
    largest = max((scale[0] for _, scale in leaves), default=0)
    for error, scale in leaves:
        # A leaf that is zero up to rounding in float64, such as the residual of constraints, has
        # the rounding errors of its terms.
        size = scale[0] if scale[0] > 1e-12 * largest else largest
        assert np.all(error <= 2 * error[0] + 2 * EPS * size), (error, scale)


def test_what_a_robot_meets_moves_with_it():
    """The same floating robot at the origin and 1,000 km away: a force, and a point of the world.

    Its accelerations, and the error of a point of the robot held at the point of the world.
    """
    robot = zoo.build(["free_flyer", "revolute"], [-1, 0]).astype("float32")
    R, p = robot.placement
    placement = rbd.Pose(R.at[0].set(np.eye(3, dtype="float32")), p.at[0].set(0))
    robot = dataclasses.replace(robot, placement=placement)
    q, v, force, _ = zoo.state(robot)
    q = q.at[:3].set(jnp.float32([0.25, -0.5, 0.125]))  # exact in float32, also with an offset

    @jax.jit
    def found(offset):
        moved = q.at[:3].add(offset)
        place = offset + jnp.float32([0.5, 0.25, -0.375])
        rows = con.constraint_rows(robot, moved, v, (con.point(None, "l1", place),))
        return solve_mass_matrix(robot, moved, force), rows.position, rows.K

    near, far = (found(jnp.asarray(x, jnp.float32)) for x in (OFFSETS[0], OFFSETS[-1]))
    for x, y in zip(near, far):
        zoo.close(y, x, 4 * EPS)


@pytest.mark.slow
def test_references_at_the_origin_of_the_world():
    """Quantities about the world's origin have a lever arm, and errors of its rounding."""
    q, v, u, _ = states()

    def program(model, q, v, wrench):
        def each(q, v, wrench):
            f_ext = rbd.external_force(model, q, "l2", wrench, "world")
            return (
                rbd.frame_velocity(model, q, v, "l2", "world"),
                rbd.frame_jacobian(model, q, "l2", "world").T,
                # The moment comes first: it has the lever arm, and the force is exact.
                jnp.concatenate([f_ext[..., 3:], f_ext[..., :3]], axis=-1),
            )

        return jax.vmap(lambda q: jax.vmap(each)(q, v, wrench))(q)

    operands = q, v, u[:, :6]
    single = jax.jit(program)(model(), *operands)
    double = jax.jit(program)(model().astype("float64"), *(x.astype(float) for x in operands))
    distance = np.linalg.norm(OFFSETS, axis=1)
    for a, b in zip(single, double):
        ((linear, _),) = errors(a[..., :3], b[..., :3])
        ((angular, scale),) = errors(a[..., 3:], b[..., 3:])
        assert np.all(linear <= 8 * EPS * np.maximum(distance, 8) * scale[0])
        assert np.all(angular <= 2 * angular[0] + 2 * EPS * scale[0])


WITH_KINEMATICS = """
    crba com_jacobian centroidal_momentum_matrix frame_jacobian point_jacobian external_force
    contact_energy
""".split()


@pytest.mark.slow
def test_kinematics_are_as_good_as_the_configuration():
    """The kinematics of `forward_kinematics`, and kinematics from the poses alone."""
    q = states()[0][-1, 0]

    @jax.jit
    def program(model, q):
        kinematics = rbd.forward_kinematics(model, q)
        by_hand = rbd.Kinematics(q, kinematics.X_PB, kinematics.X_WB)
        given = (q, kinematics, by_hand)
        ones = jnp.ones(model.nv, model.dtype)
        return {
            name: [ALGORITHMS[name](model, x, ones, ones, None) for x in given]
            for name in WITH_KINEMATICS
        }

    for name, (expected, *found) in program(model(), q).items():
        for x in found:
            np.testing.assert_allclose(
                x, expected, rtol=0, atol=4 * EPS * np.max(expected), err_msg=name
            )


@pytest.mark.slow
def test_two_robots_far_from_the_origin_see_each_other():
    """A constraint between links of two trees, which have different roots."""
    kinds = ["free_flyer", "revolute"] * 2
    pair = zoo.build(kinds, [-1, 0, -1, 2], seed=2)
    R, p = pair.placement
    roots = np.array([0, 2])
    placement = rbd.Pose(R.at[roots].set(jnp.eye(3)), p.at[roots].set(0))
    pair = dataclasses.replace(pair, placement=placement).astype("float32")
    between = (con.weld("l1", "l3"),)
    q, v, *_ = zoo.state(pair)
    offset = jnp.float32(OFFSETS[-1])
    far = q.at[:3].add(offset).at[8:11].add(offset)

    @jax.jit
    def program(model, q, v):
        return con.constraint_rows(model, q, v, between), rbd.com_jacobian(model, q)

    single = program(pair, far, v)
    double = program(pair.astype("float64"), far.astype(float), v.astype(float))
    for a, b in zip(jax.tree.leaves(single), jax.tree.leaves(double)):
        zoo.close(a.astype(float), b, 20 * EPS)


@pytest.mark.slow
def test_double_precision_two_kilometers_away():
    """Coriolis matrix and derivatives: the same to 1e-11 or better."""
    model = zoo.connected()
    q, v, a, _ = zoo.state(model)
    far = q.at[:3].add(jnp.array([1000.0, -2000.0, 500.0]))
    zoo.close(rbd.coriolis_matrix(model, far, v), rbd.coriolis_matrix(model, q, v), 1e-12)
    for near, there in zip(
        rbd.rnea_derivatives(model, q, v, a), rbd.rnea_derivatives(model, far, v, a)
    ):
        zoo.close(there, near, 1e-12)
    A = rbd.algorithms.centroidal_derivatives(model, q, v, a)
    for near, there in zip(A, rbd.algorithms.centroidal_derivatives(model, far, v, a)):
        zoo.close(there, near, 1e-11)
