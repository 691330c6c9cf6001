"""Joints that follow others by a function, and joints of one's own: robots in other words."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from support import finite_differences, zoo
from support.zoo import close


def robot(kinds, mimics=None, **options):
    """A free-flyer that carries a chain of joints j1, j2, ... of the given kinds."""
    rng = np.random.default_rng(0)
    mimics = mimics or {}
    links, joints = [], []
    for i, kind in enumerate([rbd.joints.FreeFlyer(), *kinds]):
        links.append(rbd.model.Link(f"l{i}", zoo.random_inertia(rng)))
        joints.append(
            rbd.model.JointSpec(
                f"j{i}",
                kind,
                f"l{i - 1}" if i else None,
                f"l{i}",
                zoo.random_placement(rng),
                mimic=mimics.get(f"j{i}"),
                **(options if i else {}),
            )
        )
    return rbd.build_model(links, joints)


@jax.jit
def results(model, q, v, a):
    """Everything that depends on how the joints move the bodies."""
    f_ext = None
    tip = len(model.frame_names) - 1
    return {
        "rnea": rbd.rnea(model, q, v, a, f_ext),
        "crba": rbd.crba(model, q),
        "qdd": rbd.forward_dynamics(model, q, v, a),
        "aba": rbd.aba(model, q, v, a),
        "A": rbd.frame_acceleration(model, q, v, a, tip),
        "J": rbd.frame_jacobian(model, q, tip),
        "J_dot": rbd.frame_jacobian_dot(model, q, v, tip),
        "T": rbd.kinetic_energy(model, q, v),
        "passive": rbd.passive_force(model, q, v),
        "q": rbd.integrate(model, q, v),
        "v": rbd.difference(model, q, rbd.integrate(model, q, 0.1 * v)),
        "derivatives": tuple(rbd.rnea_derivatives(model, q, v, a)),
        "regressor": rbd.joint_torque_regressor(model, q, v, a) @ model.inertia.ravel(),
    }


def same(ours, theirs, tolerance=1e-12):
    for what in ours:
        jax.tree.map(lambda x, y: close(x, y, tolerance, what), ours[what], theirs[what])


def universal(q):
    """Turned about x, then about z."""
    R = jnp.matmul(zoo.turn(q[0], 1, 2), zoo.turn(q[1], 0, 1), precision="highest")
    return rbd.Pose(R, jnp.zeros(3))


def universal_tangent(q):
    s, c = jnp.sin(q[1]), jnp.cos(q[1])
    o = jnp.zeros_like(s)
    first, second = jnp.stack([o, o, o, c, -s, o]), jnp.array([0, 0, 0, 0, 0, 1.0])
    return jnp.stack([first, second], axis=1)


def test_the_velocity_of_a_joint_of_ones_own():
    """Turned about x and then about z: the first axis is seen from the child, the second is z."""
    q = jnp.array([0.4, -0.9])
    derived = rbd.joints.Custom(2, universal).velocity_subspace(q[None])[0].T
    close(derived, universal_tangent(q), 1e-14)


def test_the_accelerations_of_followers_are_the_rates_of_their_velocities():
    """Along the motion `q + t v + t^2 a / 2`, compared with a difference quotient."""
    hinge = rbd.joints.Revolute((0, 0, 1))
    model = robot([hinge] * 3, {"j3": rbd.model.Follow(("j1", "j2"), zoo.Polynomial())})
    q, v, a, _ = zoo.state(model)
    v, a = v.at[:6].set(0), a.at[:6].set(0)  # the free-flyer rests

    @jax.jit
    def rates(t):
        q_t = q.at[7:].add(t * v[6:] + t**2 / 2 * a[6:])
        return (
            rbd.model.joint_space.tree_rates(model, q_t, v + t * a),
            rbd.model.joint_space.tree_rate_derivatives(model, q, v, a),
        )

    close(rates(jnp.zeros(()))[1], finite_differences.slope(lambda t: rates(t)[0]), 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("tangent_map", [None, universal_tangent], ids=["derived", "stated"])
def test_a_joint_of_ones_own_is_the_chain_that_it_describes(tangent_map):
    """A universal joint by its pose, against two hinges, with friction and armature."""
    options = {"armature": 0.1, "damping": 0.3, "friction": 0.2}
    hinge = rbd.joints.Revolute((1, 2, 3))
    own = robot([rbd.joints.Custom(2, universal, tangent_map), hinge], **options)
    chain = robot([rbd.model.universal((1, 0, 0), (0, 0, 1)), hinge], **options)
    assert (own.nq, own.nv, own.nb) == (chain.nq, chain.nv, chain.nb - 1)
    q, v, a, _ = zoo.state(chain)
    left, right = results(own, q, v, a), results(chain, q, v, a)
    same(left | {"regressor": 0.0}, right | {"regressor": 0.0})
    noisy = [m.with_dissipation() for m in (own, chain)]
    close(*(rbd.forward_dynamics(m, q, v, a) for m in noisy))


class Line(eqx.Module):
    """A linear coupling as a function with numbers of its own."""

    slope: jax.Array | float
    offset: jax.Array | float

    def __call__(self, x):
        return self.slope * x[0] + self.offset


def test_a_mimic_joint_stands_where_it_says():
    """`q = multiplier * q_leader + offset`, of a mimic of a mimic too; seen from the poses."""
    hinge = rbd.joints.Revolute((0, 0, 1))
    mimics = {"j2": rbd.model.Mimic("j1", -0.7, 0.2), "j3": rbd.model.Mimic("j2", 1.5, -0.4)}
    model = robot([hinge] * 3, mimics)
    q = zoo.state(model)[0]
    second = -0.7 * q[7] + 0.2
    angles = (q[7], second, 1.5 * second - 0.4)
    X = rbd.forward_kinematics(model, q).X_PB
    for body, angle in enumerate(angles, start=1):
        turned = model.placement.R[body].T @ X.R[body]
        close(turned, zoo.turn(angle, 0, 1), 1e-14)


def test_the_neutral_configuration_has_no_entries_of_followers():
    """The quaternion of a joint behind a follower is the identity."""
    hinge = rbd.joints.Revolute((0, 0, 1))
    mimics = {"j2": rbd.model.Mimic("j1", 2.0, 0.3)}
    model = robot([hinge, hinge, rbd.joints.Spherical()], mimics)
    close(rbd.neutral(model), jnp.zeros(12).at[jnp.array([6, 11])].set(1))


@pytest.mark.slow
def test_following_linearly_is_mimicking():
    kinds = [rbd.joints.Revolute((1, 0, 2)), rbd.joints.Prismatic((0, 1, 1))]
    options = {"armature": 0.1, "damping": 0.3, "friction": 0.2}
    function = Line(np.array(-0.7), np.array(0.2))
    follows = robot(kinds, {"j2": rbd.model.Follow(("j1",), function)}, **options)
    mimics = robot(kinds, {"j2": rbd.model.Mimic("j1", -0.7, 0.2)}, **options)
    state = zoo.state(mimics)[:3]
    same(results(follows, *state), results(mimics, *state))
    for left, right in zip(
        rbd.rnea_second_order(follows, *state, state[1]),
        rbd.rnea_second_order(mimics, *state, state[1]),
    ):
        close(left, right, 1e-11)


@pytest.mark.slow
def test_derivative_in_the_numbers_of_a_coupling():
    """They are leaves of the model: the torque's derivative in the slope of a coupling."""
    kinds = [rbd.joints.Revolute((1, 0, 2)), rbd.joints.Prismatic((0, 1, 1))]
    model = robot(kinds, {"j2": rbd.model.Follow(("j1",), Line(np.array(-0.7), np.array(0.2)))})
    q, v, a, _ = zoo.state(model)

    def torque(slope):
        leaf = model.coupling.followers[0].function.slope
        moved = eqx.tree_at(
            lambda m: m.coupling.followers[0].function.slope, model, jnp.full_like(leaf, slope)
        )
        return rbd.rnea(moved, q, v, a)[-1]

    exact, numerical = jax.jit(
        lambda s: (jax.grad(torque)(s), (torque(s + 1e-5) - torque(s - 1e-5)) / 2e-5)
    )(-0.7)
    assert abs(exact) > 1e-3
    close(exact, numerical, 1e-8)


@pytest.mark.slow
def test_described_and_built_again():
    """`describe` gives couplings and joints of one's own back; a locked leader locks followers."""
    model = zoo.following()
    again = rbd.build_model(*rbd.model.describe(model))
    q, v, a, _ = zoo.state(model)
    close(rbd.rnea(again, q, v, a), rbd.rnea(model, q, v, a))
    both = rbd.model.append_model(model, zoo.following(), prefix="other ")
    assert both.nv == 2 * model.nv
    with pytest.raises(rbd.ArgumentError, match="follows \\['j4'\\] too"):
        rbd.model.lock_joints(model, {"j2": 0.3})
    with pytest.raises(rbd.ArgumentError, match="follows \\['j2', 'j4'\\]"):
        rbd.model.lock_joints(model, {"j3": 0.3})
    locked = rbd.model.lock_joints(model, {"j2": 0.3, "j4": -0.2})
    assert locked.nv == model.nv - 2
    at = {"j2": 0.3, "j4": -0.2}
    full = q
    for name, value in at.items():
        own = model.topology.q_start[model.joint_names.index(name)]
        full = full.at[model.coupling.q_independent.index(int(own))].set(value)
    kept = [i for i, own in enumerate(model.coupling.q_independent) if own not in starts(model, at)]
    X = rbd.frame_placement(model, full, "l6")
    close(rbd.frame_placement(locked, full[np.array(kept)], "l6").p, X.p)


def starts(model, names):
    return {int(model.topology.q_start[model.joint_names.index(name)]) for name in names}


def nowhere(q):
    return rbd.Pose(2 * jnp.eye(3), jnp.zeros(3))


def flat(q):
    return rbd.Pose(jnp.eye(3), jnp.zeros(2))


def wrong_tangent(q):
    return 2 * universal_tangent(q)


BAD = {
    "no rotation": (rbd.joints.Custom(1, nowhere), None, "no rigid pose"),
    "no pose": (rbd.joints.Custom(1, flat), None, "expected a Pose"),
    "fails": (
        rbd.joints.Custom(1, universal),
        None,
        "motion fails on coordinates of shape \\(1,\\)",
    ),
    "tangent": (
        rbd.joints.Custom(2, universal, wrong_tangent),
        None,
        "tangent_map is not the derivative",
    ),
    "tangent's size": (
        rbd.joints.Custom(2, universal, lambda q: jnp.zeros((6, 3))),
        None,
        "tangent_map gives \\(6, 3\\), expected \\(6, 2\\)",
    ),
    "unknown": (
        rbd.joints.Revolute((1, 0, 0)),
        rbd.model.Follow(("j9",), jnp.sum),
        "unknown joint 'j9'",
    ),
    "nobody": (rbd.joints.Revolute((1, 0, 0)), rbd.model.Follow((), jnp.sum), "follows no joint"),
    "wide leader": (
        rbd.joints.Revolute((1, 0, 0)),
        rbd.model.Follow(("j0",), jnp.sum),
        "not have one dof",
    ),
    "itself": (
        rbd.joints.Revolute((1, 0, 0)),
        rbd.model.Follow(("j2",), jnp.sum),
        "follows others",
    ),
    "by zero": (
        rbd.joints.Revolute((1, 0, 0)),
        rbd.model.Follow(("j1",), lambda x: 1 / 0),
        "function fails on coordinates of shape \\(1,\\): division by zero",
    ),
    "no number": (
        rbd.joints.Revolute((1, 0, 0)),
        rbd.model.Follow(("j1",), lambda x: jnp.ones(2)),
        "expected a finite number",
    ),
    "infinite": (
        rbd.joints.Revolute((1, 0, 0)),
        rbd.model.Follow(("j1",), lambda x: 1 / x),
        "finite",
    ),
    "wide follower": (
        rbd.joints.Spherical(),
        rbd.model.Follow(("j1",), jnp.sum),
        "mimic needs a joint",
    ),
}


@pytest.mark.parametrize("fault", BAD)
def test_faults_name_the_joint(fault):
    kind, follow, message = BAD[fault]
    with pytest.raises(rbd.ModelError, match=message) as caught:
        robot([rbd.joints.Revolute((0, 0, 1)), kind], {"j2": follow})
    assert caught.value.joint == "j2"
    assert "'j2'" in str(caught.value)


@pytest.mark.parametrize("kind", ["Custom", "Mimic"])
def test_the_branch_sparse_factor_names_the_joint_that_it_excludes(kind):
    """The mass matrix of such a robot lacks the zeros of the tree; the message says why."""
    hinge = rbd.joints.Revolute((0, 0, 1))
    if kind == "Custom":
        model, message = robot([rbd.joints.Custom(2, universal)]), "has a joints.Custom"
    else:
        model, message = (
            robot([hinge, hinge], {"j2": rbd.model.Mimic("j1")}),
            "has joints that follow others",
        )
    with pytest.raises(rbd.ArgumentError, match=message):
        rbd.algorithms.ltl_factor(model, jnp.eye(model.nv))


def test_a_mimic_of_a_follower_is_refused():
    hinge = rbd.joints.Revolute((0, 0, 1))
    chain = {"j2": rbd.model.Follow(("j1",), jnp.sum), "j3": rbd.model.Mimic("j2")}
    with pytest.raises(rbd.ModelError, match="state a Follow"):
        robot([hinge, hinge, hinge], chain)


@pytest.mark.slow
def test_dissipation_is_off_unless_asked_for():
    model = zoo.following()
    assert not model.dissipative
    q, v, a, _ = zoo.state(model)
    on = model.with_dissipation()
    lost = rbd.passive_force(model, q, v)
    close(rbd.rnea(on, q, v, a), rbd.rnea(model, q, v, a) - lost)
    expected = rbd.forward_dynamics(model, q, v, a + lost)
    close(rbd.forward_dynamics(on, q, v, a), expected)
    close(rbd.aba(on, q, v, a), expected)
    assert float(v @ lost) < 0
