"""Redundant rows have no effect, and small rows count, for any masses, units and scalings.

Each test fails if the rank is the number of large eigenvalues of the unscaled `K M^-1 K^T`.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import constraints as con, so3, spatial
from jaxrbd.robots.linkages import linkage_names, load_linkage
from support import finite_differences, nightly, zoo
from support.zoo import close


def bodies(*sizes, dtype):
    """Free bodies with the given masses and moments of inertia."""
    links = [
        rbd.model.Link(f"b{i}", rbd.model.link_inertia(mass, (0, 0, 0), moment * np.eye(3)))
        for i, (mass, moment) in enumerate(sizes)
    ]
    joints = [
        rbd.model.JointSpec(f"j{i}", rbd.joints.FreeFlyer(), None, link.name)
        for i, link in enumerate(links)
    ]
    return rbd.build_model(links, joints).astype(dtype)


EACH_DTYPE = pytest.mark.parametrize(
    "dtype",
    nightly.all_but([np.float32], [np.float32, np.float64]),
    ids=["float32", "float64"],
)
WELDED = {
    "a small inertia": [(10.0, 1e-4), (10.0, 1e-4)],
    "heavy and light": [(1e4, 1e3), (1e-2, 1e-7)],
}


@pytest.mark.slow
@EACH_DTYPE
@pytest.mark.parametrize("which", WELDED)
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_welded_bodies_do_not_fall(which, offset, dtype):
    """For any masses, inertias and places of the welds."""
    model = bodies(*WELDED[which], dtype=dtype)
    place = spatial.Pose(np.eye(3), np.array([offset, 0.0, 0.0]))
    welds = [con.weld(None, name, place, place) for name in model.body_names]
    zero = jnp.zeros(model.nv, dtype)
    found = con.constrained_dynamics(model, rbd.neutral(model), zero, zero, welds)
    close(found.acceleration, zero, 1e4 * np.finfo(dtype).eps)
    hit = con.impact(model, rbd.neutral(model), zero + 1, welds)
    close(hit.velocity, zero, 1e4 * np.finfo(dtype).eps)
    weights = [impulses[2] for impulses in found.multipliers]
    masses = [mass for mass, _ in WELDED[which]]
    close(np.array(weights) / masses, 9.81 * np.ones(len(masses)), 100 * np.finfo(dtype).eps)


@functools.partial(jax.jit, static_argnames="scale")
def scaled_equations(model, q, v, scale):
    """Two equations. The second is multiplied by a factor."""
    equations = (
        con.Equation(lambda model, q: q[:1] - 0.3),
        con.Equation(lambda model, q: scale * (q[1:] - 0.2)),
    )
    return con.constrained_dynamics(model, q, v, jnp.zeros_like(v), equations, None, 10.0)


@EACH_DTYPE
@pytest.mark.parametrize("scale", nightly.all_but([1e6], [1e-6, 1e6]))
def test_the_scaling_of_an_equation_does_not_matter(scale, dtype):
    model = rbd.load_robot("double_pendulum").astype(dtype)
    q, v = jnp.asarray([0.4, -0.3], dtype), jnp.asarray([0.2, 0.5], dtype)
    found, unscaled = (scaled_equations(model, q, v, x) for x in (scale, 1.0))
    # a = -2 s v - s^2 phi
    a = -20 * v - 100 * (q - jnp.asarray([0.3, 0.2], dtype))
    close(found.acceleration, a, 100 * np.finfo(dtype).eps)
    close(scale * found.multipliers[1], unscaled.multipliers[1], 1000 * np.finfo(dtype).eps)


@pytest.mark.slow
@EACH_DTYPE
def test_a_constraint_stated_twice_is_shared(dtype):
    """Also in other units: each of the two constraints carries half of the force."""
    model = rbd.load_robot("quadruped").astype(dtype)
    q, v, tau, _ = zoo.state(model)
    feet = [name for name in model.frame_names if name.endswith("foot")][:2]

    def millimetres(X):
        return 1e3 * X.p

    once = [con.point(None, foot) for foot in feet]
    again = [con.FrameConstraint(millimetres, None, feet[0])]
    expected, found = (
        con.constrained_dynamics(model, q, v, tau, stated) for stated in (once, once + again)
    )
    size = float(jnp.max(jnp.abs(expected.acceleration)))
    tolerance = 1e4 * np.finfo(dtype).eps
    close(found.acceleration / size, expected.acceleration / size, tolerance)
    for name in ("multipliers", "residuals"):
        (first, second), (one, two, in_millimetres) = (getattr(x, name) for x in (expected, found))
        size = float(max(jnp.max(jnp.abs(first)), jnp.max(jnp.abs(second)), 1))
        close(two / size, second / size, tolerance, name)
        if name == "multipliers":
            close(one / size, first / 2 / size, tolerance, name)
            close(1e3 * in_millimetres / size, first / 2 / size, tolerance, name)


def test_contradicting_constraints_show_in_the_residual():
    """One coordinate has two prescribed accelerations: the result is their mean."""
    model = rbd.load_robot("double_pendulum")
    zero = jnp.zeros(2)
    there = [con.Equation(lambda model, q, x=x: q[:1] - x) for x in (0.1, 0.3)]
    found = con.constrained_dynamics(model, zero, zero, zero, there, None, 1.0)
    close(found.acceleration[0], 0.2, 1e-9)
    close(jnp.concatenate(found.residuals), [0.1, -0.1], 1e-9)
    assert max(jnp.max(jnp.abs(x)) for x in found.multipliers) < 1e3


@jax.jit
def held(model, q, v, tau):
    """A humanoid with hands and feet welded at their places, and the relative size of `K a - k`."""
    places = [name for name in model.frame_names if name.endswith(("_hand", "_foot"))]
    welds = [con.weld(None, name, rbd.frame_placement(model, q, name)) for name in places]
    found = con.constrained_dynamics(model, q, v, tau, welds)
    rows = con.constraint_rows(model, q, v, welds)
    free = rbd.forward_dynamics(model, q, v, tau)
    missing = jnp.abs(rows.K @ found.acceleration + rows.bias)
    sizes = jnp.linalg.norm(rows.K, axis=1) * jnp.linalg.norm(free)
    return jnp.max(missing / sizes)


@pytest.mark.slow
@EACH_DTYPE
def test_a_humanoid_held_by_hands_and_feet(dtype):
    """The acceleration at each of many random states satisfies all 24 equations."""
    model = rbd.load_robot("humanoid").astype(dtype)
    keys = jax.random.split(jax.random.key(0), 64)
    q = jax.vmap(rbd.random_configuration, (None, 0))(model, keys)
    v, tau = (jax.random.normal(jax.random.key(i), (64, model.nv), dtype) for i in (1, 2))
    missing = jax.vmap(held, (None, 0, 0, 0))(model, q, v, tau)
    close(missing, jnp.zeros(64, dtype), 50 * np.finfo(dtype).eps)


@pytest.mark.slow
@pytest.mark.parametrize("name", linkage_names())
def test_linkages_move_alike_in_both_precisions(name):
    linkage = load_linkage(name)
    found = []
    for dtype in (np.float32, np.float64):
        model, loop, q = jax.tree.map(lambda x: jnp.asarray(x, dtype), linkage)
        v = jnp.zeros(model.nv, dtype)
        found.append(con.constrained_dynamics(model, q, v, v + 1, loop))
    single, double = found
    close(np.asarray(single.acceleration, float), double.acceleration, 1e-4)
    for residual in double.residuals:
        close(residual, jnp.zeros_like(residual))


@jax.jit
def reached(model, q, displacement):
    """The residual of a weld of the arm's tool to a reachable place, from a start near q."""
    there = rbd.frame_placement(model, rbd.integrate(model, q, displacement), "tool")
    return con.close_loops(model, q, [con.weld(None, "tool", there)]).residual


@pytest.mark.slow
@EACH_DTYPE
def test_loops_close_in_both_precisions(dtype):
    model = rbd.load_robot("arm7").astype(dtype)
    keys = jax.random.split(jax.random.key(0), 64)
    q = jax.vmap(rbd.random_configuration, (None, 0))(model, keys)
    displacement = 0.02 * jax.random.normal(jax.random.key(1), (64, model.nv), dtype)
    residual = jax.vmap(reached, (None, 0, 0))(model, q, displacement)
    close(residual, jnp.zeros(64, dtype), 30 * np.finfo(dtype).eps)


# ---------------------------------------------------------------- numbers that no physics allows


@pytest.mark.gives_nan
@pytest.mark.parametrize("restitution", [-0.1, 1.3, float("nan")])
def test_a_restitution_out_of_its_range(restitution):
    model = rbd.load_robot("double_pendulum")
    q = v = jnp.ones(2)
    stops = [con.Equation(lambda model, q: q[:1])]
    with pytest.raises(rbd.ArgumentError, match="expected a number from 0 to 1"):
        con.impact(model, q, v, stops, restitution)
    traced = jax.jit(lambda e: con.impact(model, q, v, stops, e).velocity)(restitution)
    assert jnp.all(jnp.isnan(traced))


def test_an_impact_keeps_a_part_of_the_speed():
    """With restitution 0.3 the speed along the constraint is multiplied by -0.3."""
    model = rbd.load_robot("double_pendulum")
    q, v = jnp.array([0.3, -0.5]), jnp.array([1.0, 2.0])
    hit = con.impact(model, q, v, [con.Equation(lambda model, q: q[1:])], 0.3)
    close(hit.velocity[1], -0.6, 1e-14)
    close(rbd.crba(model, q) @ (hit.velocity - v), [0.0, hit.impulses[0][0]], 1e-13)


def test_a_negative_stabilisation():
    model = rbd.load_robot("double_pendulum")
    q = v = jnp.ones(2)
    stops = [con.Equation(lambda model, q: q[:1])]
    with pytest.raises(
        rbd.ArgumentError, match=r"stabilisation is -1.0, expected finite, 0 or more"
    ):
        con.constrained_dynamics(model, q, v, v, stops, None, -1.0)


# --------------------------------------------------------------------------------- single rows


@pytest.mark.slow
def test_a_point_on_the_axis_of_its_only_joint():
    """The point cannot move: its rows are rounding errors of any scale, and constrain nothing."""
    placement = np.eye(4)
    placement[:3, :3] = np.asarray(so3.exp(jnp.array([0.3, -1.2, 0.7])))
    placement[:3, 3] = 0.1, 0.7, -0.3
    axis = np.array([1.0, 2.0, -0.7])
    link = rbd.model.Link("l0", rbd.model.link_inertia(2.0, (0.3, 0.1, 0.0), 0.1 * np.eye(3)))
    joint = rbd.model.JointSpec("j0", rbd.joints.Revolute(axis), None, "l0", placement)
    model = rbd.build_model([link], [joint])
    q, v, tau = jnp.array([0.4]), jnp.array([1.3]), jnp.array([0.2])
    on_the_axis = con.point(None, "l0", (0.0, 0.0, 0.0), 0.37 * axis)
    rows = con.constraint_rows(model, q, v, [on_the_axis])
    assert 0 < np.max(np.abs(rows.K)) < 1e-15  # otherwise the test is meaningless
    found = con.constrained_dynamics(model, q, v, tau, [on_the_axis])
    close(found.acceleration, rbd.forward_dynamics(model, q, v, tau), 1e-13)
    close(found.multipliers[0], np.zeros(3))


def test_the_length_of_a_hinge_axis_does_not_matter():
    model = rbd.load_robot("arm7")
    q, v, *_ = zoo.state(model)
    short, long = (con.hinge(None, "tool", x * np.array([1.0, -2.0, 2.0])) for x in (1e-3, 7.0))
    rows, same = (con.constraint_rows(model, q, v, [hinge]) for hinge in (short, long))
    for name in ("position", "K", "bias"):
        close(getattr(rows, name), getattr(same, name), 1e-13, name)


@pytest.mark.slow
def test_the_derivatives_of_a_closed_loop():
    """The robot moves along the constraint forces at q, which depend on q."""
    model = rbd.load_robot("arm7")
    q, displacement, *_ = zoo.state(model)
    there = rbd.frame_placement(model, rbd.integrate(model, q, 0.05 * displacement), "tool").p
    direction = jnp.asarray(np.sin(np.arange(model.nv) + 1.0))

    @jax.jit
    def closed(t):
        start = rbd.integrate(model, q, t * direction)
        return con.close_loops(model, start, [con.point(None, "tool", there)]).q

    _, forward = jax.jvp(closed, (jnp.zeros(()),), (jnp.ones(()),))
    close(forward, finite_differences.slope(closed), 1e-8)


def test_external_forces_act_on_explicit_dynamics():
    """A force on a body has the same effect as its generalized force."""
    model = rbd.load_robot("double_pendulum")
    _, _, tau, f_ext = zoo.state(model)

    def follows(y):
        return jnp.concatenate([y, 0.5 * y**2])

    y, y_dot = jnp.array([0.3]), jnp.array([0.7])
    found = con.explicit_dynamics(model, follows, y, y_dot, tau, f_ext)
    q, zero = follows(y), jnp.zeros(2)
    as_tau = rbd.rnea(model, q, zero, zero) - rbd.rnea(model, q, zero, zero, f_ext)
    expected = con.explicit_dynamics(model, follows, y, y_dot, tau + as_tau)
    close(found.a, expected.a, 1e-12)
    assert jnp.max(jnp.abs(as_tau)) > 0.1
