"""The joint contract, for every joint kind."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import joints, se3, spatial
from support import nightly, zoo
from support.zoo import close

KINDS = {
    "revolute": joints.Revolute((1.0, -2.0, 0.5)),
    "prismatic": joints.Prismatic((1.0, -2.0, 0.5)),
    "helical": joints.Helical((1.0, -2.0, 0.5), 0.3),
    "screw": joints.Screw((1.0, -2.0, 0.5), -0.7, 0.3),
    "spherical": joints.Spherical(),
    "planar": joints.Planar(),
    "translation": joints.Translation(),
    "free_flyer": joints.FreeFlyer(),
}
PLACEMENT = se3.exp(jnp.array([0.3, -0.2, 1.0, 0.5, 1.5, -0.7]))


@pytest.fixture(params=KINDS)
def joint(request):
    return KINDS[request.param]


def sample(joint, seed=0):
    """A random configuration and two random velocities of a single joint."""
    keys = jax.random.split(jax.random.key(seed), 3)
    infinite = jnp.full((joint.nq,), jnp.inf)
    q = joint.random(keys[0], -infinite, infinite)
    v, w = (0.5 * jax.random.normal(k, (joint.nv,)) for k in keys[1:])
    return q, v, w


def test_every_kind_of_the_module_is_tested():
    public = {
        x
        for x in vars(joints).values()
        if isinstance(x, type) and issubclass(x, joints.Joint) and not x.__name__.startswith("_")
    }
    elsewhere = {joints.Joint, joints.Custom}  # the second is in test_following.py
    assert public - elsewhere == {type(kind) for kind in KINDS.values()}


def test_shapes(joint):
    q, v, _ = sample(joint)
    assert q.shape == joint.neutral().shape == (joint.nq,)
    assert joint.subspace().shape == (joint.nv, 6)
    assert joint.integrate(q, v).shape == (joint.nq,)
    assert joint.difference(q, q).shape == (joint.nv,)


def test_neutral_leaves_the_child_on_the_placement(joint):
    X = joint.pose(PLACEMENT, jnp.array(joint.neutral()))
    close(X.R, PLACEMENT.R, 1e-15)
    close(X.p, PLACEMENT.p, 1e-15)


def test_difference_inverts_integrate(joint):
    q, v, _ = sample(joint)
    close(joint.difference(q, joint.integrate(q, v)), v, 1e-13)
    close(joint.difference(q, q), jnp.zeros(joint.nv), 1e-14)
    reached = joint.integrate(q, joint.difference(q, joint.integrate(q, v)))
    X, expected = (joint.pose(PLACEMENT, x) for x in (reached, joint.integrate(q, v)))
    close(spatial.pose_matrix(X), spatial.pose_matrix(expected), 1e-13)


def test_integrate_is_a_one_parameter_group(joint):
    """A step of s and a step of t with the same velocity equal one step of s + t."""
    q, v, _ = sample(joint)
    in_two = joint.integrate(joint.integrate(q, 0.3 * v), 0.7 * v)
    close(in_two, joint.integrate(q, v), 1e-13)


def test_the_subspace_is_the_derivative_of_the_pose(joint):
    """The child's velocity relative to its parent, in the child's frame, is S^T v at any q."""
    q, v, _ = sample(joint)

    def pose(t):
        return joint.pose(PLACEMENT, joint.integrate(q, t * v))

    X, dX = jax.jvp(pose, (0.0,), (1.0,))
    spin = X.R.T @ dX.R
    velocity = jnp.concatenate([X.R.T @ dX.p, jnp.array([spin[2, 1], spin[0, 2], spin[1, 0]])])
    close(joint.subspace().T @ v, velocity, 1e-13)


def test_stacked_joints_equal_single_ones(joint):
    """Fields, placements and coordinates stacked along a leading axis, as a model holds them."""
    samples = [sample(joint, seed) for seed in range(3)]
    q, v, w = (jnp.stack(x) for x in zip(*samples))
    many = jax.tree.map(lambda x: jnp.stack([x] * 3), joint)
    placements = jax.tree.map(lambda x: jnp.stack([x] * 3), PLACEMENT)
    X = many.pose(placements, q)
    stepped, back = many.integrate(q, v), many.difference(q, many.integrate(q, w))
    for i, (qi, vi, wi) in enumerate(samples):
        Xi = joint.pose(PLACEMENT, qi)
        close(jnp.broadcast_to(X.R, (3, 3, 3))[i], Xi.R, 1e-15)
        close(jnp.broadcast_to(X.p, (3, 3))[i], Xi.p, 1e-15)
        close(stepped[i], joint.integrate(qi, vi), 1e-15)
        close(back[i], joint.difference(qi, joint.integrate(qi, wi)), 1e-13)


@pytest.mark.parametrize("kind", ["revolute", "prismatic", "helical"])
def test_the_length_of_an_axis_is_of_no_effect(kind):
    joint = KINDS[kind]
    longer = type(joint)(3.0 * joint.axis, *([joint.pitch] if kind == "helical" else []))
    q = jnp.array([0.8])
    for x, y in zip(longer.pose(PLACEMENT, q), joint.pose(PLACEMENT, q)):
        close(x, y, 1e-15)
    close(longer.subspace(), joint.subspace(), 1e-15)


def test_random_respects_limits_and_their_absence(joint):
    lower, upper = jnp.full((joint.nq,), -0.3), jnp.full((joint.nq,), 0.2)
    infinite = jnp.full((joint.nq,), jnp.inf)
    for seed in range(20):
        key = jax.random.key(seed)
        q = joint.random(key, lower, upper)
        assert np.all(np.isfinite(joint.random(key, -infinite, infinite)))
        assert np.all(np.isfinite(joint.random(key, jnp.full((joint.nq,), 7.0), infinite)))
        bounded = {"Spherical": 0, "FreeFlyer": 3}.get(type(joint).__name__, joint.nq)
        assert np.all((lower[:bounded] <= q[:bounded]) & (q[:bounded] <= upper[:bounded]))
        if joint.nq > joint.nv:
            close(jnp.linalg.norm(q[-4:]), 1.0, 1e-14)


def test_planar_difference_goes_the_shorter_way():
    planar = joints.Planar()
    v = planar.difference(jnp.array([0.0, 0.0, 3.0]), jnp.array([0.0, 0.0, -3.0]))
    close(v, jnp.array([0.0, 0.0, 2 * np.pi - 6.0]), 1e-14)


@pytest.mark.parametrize("kind", ["spherical", "free_flyer"])
def test_q_and_minus_q_are_one_configuration(kind):
    joint = KINDS[kind]
    q, v, _ = sample(joint)
    sign = jnp.ones(joint.nq).at[-4:].set(-1.0)
    for x, y in zip(joint.pose(PLACEMENT, sign * q), joint.pose(PLACEMENT, q)):
        close(x, y, 1e-15)
    close(joint.difference(q, sign * q), jnp.zeros(joint.nv), 1e-14)
    close(joint.difference(sign * q, joint.integrate(q, v)), v, 1e-13)


def test_zoo_covers_every_kind_in_every_place():
    model = zoo.everywhere()
    parents, children = model.topology.parents, set(model.topology.parents)
    places = {}
    for joint, bodies in zip(model.joints, model.joint_bodies):
        for body in bodies:
            place = "root" if parents[body] < 0 else "middle" if body in children else "leaf"
            places.setdefault(type(joint), set()).add(place)
    assert places == {type(kind): {"root", "middle", "leaf"} for kind in KINDS.values()}


class Cylindrical(joints.Joint):
    """A user-defined joint: slides along z and rotates about z, q = (distance, angle)."""

    nq: ClassVar[int] = 2
    nv: ClassVar[int] = 2

    def pose(self, placement, q):
        turned = joints.Revolute((0, 0, 1)).pose(placement, q[..., 1:])
        return joints.Prismatic((0, 0, 1)).pose(turned, q[..., :1])

    def subspace(self):
        return jnp.eye(6)[jnp.array([2, 5])]

    def neutral(self):
        return np.zeros(2)

    def integrate(self, q, v):
        return q + v

    def difference(self, q0, q1):
        return q1 - q0

    def random(self, key, lower, upper):
        return jax.random.normal(key, lower.shape, lower.dtype)


def test_a_new_joint_is_one_class():
    """The algorithms accept it without other code, and agree with a chain of known joints."""
    z = (0, 0, 1)
    known = rbd.model.Compound((joints.Prismatic(z), joints.Revolute(z)))
    rng = np.random.default_rng(0)
    links = [rbd.model.Link(name, zoo.random_inertia(rng)) for name in "abc"]
    placements = [zoo.random_placement(rng) for _ in links]

    def robot(kind):
        kinds = [kind, joints.Spherical(), kind]
        return rbd.build_model(
            links,
            [
                rbd.model.JointSpec(f"j{i}", kinds[i], [None, "a", "b"][i], "abc"[i], placements[i])
                for i in range(3)
            ],
        )

    new, chain = robot(Cylindrical()), robot(known)
    q, v, a, _ = zoo.state(new)
    close(rbd.rnea(new, q, v, a), rbd.rnea(chain, q, v, a), 1e-13)
    close(rbd.crba(new, q), rbd.crba(chain, q), 1e-13)
    close(rbd.aba(new, q, v, a), rbd.forward_dynamics(chain, q, v, a), 1e-10)
    close(rbd.integrate(new, q, v), rbd.integrate(chain, q, v), 1e-14)


class Tilted(joints.Joint):
    """A ball joint with parameters: its angular velocities are about three rows of any length."""

    axes: jax.Array
    nq: ClassVar[int] = 4
    nv: ClassVar[int] = 3

    def pose(self, placement, q):
        return joints.Spherical().pose(placement, q)

    def subspace(self):
        return jnp.concatenate([jnp.zeros_like(self.axes), self.axes], axis=-1)

    def neutral(self):
        return joints.Spherical().neutral()

    def integrate(self, q, v):
        return joints.Spherical().integrate(q, jnp.einsum("...j,...ji", v, self.axes))

    def difference(self, q0, q1):
        w = joints.Spherical().difference(q0, q1)
        return jnp.einsum("...j,...ji", w, jnp.linalg.inv(self.axes))

    def random(self, key, lower, upper):
        return joints.Spherical().random(key, lower, upper)


@pytest.mark.parametrize("stack", [(), (4,), (2, 3)])
def test_operations_on_velocities_of_a_joint_with_parameters(stack, rng):
    """`S [u, w] = (S u) x (S w)` for any number of stacked joints, without LAPACK."""
    joint = Tilted(jnp.array(np.eye(3) + 0.4 * rng.normal(size=(*stack, 3, 3))))
    u, w = jnp.array(rng.normal(size=(2, *stack, 3)))

    def bracket(joint, u, w):
        return joints.lie_operation(joint, spatial.cross_motion, u, w)

    def motion(v):
        return jnp.einsum("...j,...ji", v, joint.subspace())

    program = jax.jit(bracket)
    zoo.close(motion(program(joint, u, w)), spatial.cross_motion(motion(u), motion(w)), 1e-13)
    assert "lapack" not in program.lower(joint, u, w).as_text()
    slope = jax.jit(jax.jacfwd(lambda axes: bracket(Tilted(axes), u, w)))(joint.axes)
    assert np.all(np.isfinite(slope))


PLAIN = {
    "ball joint": (joints._ball_difference, joints._rotation_difference, 4),
    "free joint": (joints._free_difference, joints._pose_difference, 7),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("size", nightly.all_but([1e-3], [0.0, 1e-3, 1.0]))
def test_closed_derivatives_of_differences_are_those_of_the_formulas(name, size):
    """First and second derivatives, in both modes, for quaternions of any length."""
    closed, plain, n = PLAIN[name]
    first, change = np.random.default_rng(0).normal(size=(2, 7))
    first, second = first[-n:], (first + size * change)[-n:]

    @jax.jit
    def derivatives(*x):
        def both(mode, f):
            return mode(lambda *x: f(*x), (0, 1))

        modes = [both(mode, f) for f in (closed, plain) for mode in (jax.jacfwd, jax.jacrev)]
        twice = [both(jax.jacfwd, both(jax.jacrev, f)) for f in (closed, plain)]
        return [f(*x) for f in modes], [f(*x) for f in twice]

    (forward, reverse, *expected), (found, hessian) = derivatives(first, second)
    for actual, value in zip(jax.tree.leaves((forward, reverse)), jax.tree.leaves(expected)):
        close(actual, value, 1e-12)
    for actual, value in zip(jax.tree.leaves(found), jax.tree.leaves(hessian)):
        close(actual, value, 1e-11)


@pytest.mark.parametrize("kind", [joints.Spherical, joints.FreeFlyer])
def test_a_zero_quaternion_has_finite_derivatives(kind):
    """Where JAX traces a zero quaternion, it is the identity; its rate has no effect."""
    joint = kind()
    zero, rate = jnp.zeros(joint.nq), jnp.ones(joint.nq)
    assert np.all(np.isfinite(joint.velocity_of_rate(zero, rate)))
    close(joint.velocity_of_rate(zero, rate)[-3:], jnp.zeros(3), 0)
    for tangents in ((rate, 0 * rate), (0 * rate, rate)):
        change = jax.jvp(joint.difference, (zero, zero), tangents)[1]
        assert np.all(np.isfinite(change))


@pytest.mark.parametrize("joint", [joints.Spherical(), joints.FreeFlyer()])
def test_a_velocity_of_a_rate_moves_at_this_rate(joint):
    """The displacement at the rate of q under a velocity is this velocity, for any length of q."""
    q, v = np.random.default_rng(0).normal(size=(2, 7))
    q, v = jnp.asarray(q[-joint.nq :]), jnp.asarray(v[: joint.nv])
    _, rate = jax.jvp(lambda v: joint.integrate(q, v), (0 * v,), (v,))
    unit = joint.integrate(q, 0 * v)
    scale = jnp.ones(joint.nq).at[-4:].set(3)
    close(joint.velocity_of_rate(unit, rate), v, 1e-14)
    close(joint.velocity_of_rate(scale * unit, scale * rate), v, 1e-14)
