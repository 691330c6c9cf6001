"""Passes of logarithmic depth: heavy paths, and forward dynamics by divide and conquer."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import tree
from jaxrbd.tree import paths
from support import nightly, zoo
from support.zoo import close

# Chains of joints of several dofs, whose first dofs move no inertia, with a branch.
KINDS = ["free_flyer", "euler", "spherical", "universal", "planar", "helical", "prismatic"]
PARENTS = [-1, 0, 1, 2, 1, 4, 3]


@functools.cache
def branched():
    model = zoo.build(KINDS, PARENTS, seed=7).with_dissipation()
    return dataclasses.replace(model, armature=model.armature.at[-2:].set(0.1))


def in_parallel(function):
    """The function, which JAX compiles with scans along paths."""

    @functools.wraps(function)
    def run(*operands):
        with tree.implementation("parallel"):
            return jax.jit(lambda *x: function(*x))(*operands)

    return run


def random_parents(rng, n, reach):
    return [-1, *(int(rng.integers(max(-1, i - reach), i)) for i in range(1, n))]


TREES = {
    "chain": list(range(-1, 19)),
    "star": [-1] + [0] * 11,
    "comb": [-1, *(i - 1 if i % 2 else i - 2 for i in range(1, 30))],
    "binary": [(i + 1) // 2 - 1 for i in range(31)],
    "random": random_parents(np.random.default_rng(0), 60, 8),
    "random, flat": random_parents(np.random.default_rng(1), 60, 60),
}


@pytest.mark.parametrize("parents", TREES.values(), ids=TREES)
def test_heavy_paths(parents):
    """Each node is on one path, and there are few levels."""
    levels = paths.heavy_paths(parents)
    nodes = np.concatenate([level.nodes for level in levels])
    assert sorted(nodes.tolist()) == list(range(len(parents)))
    assert len(levels) <= 1 + np.log2(len(parents))
    above = {-1}
    for level in levels:
        for i, node in enumerate(level.nodes):
            if level.is_start[i]:
                assert parents[node] in above
            else:
                assert parents[node] == level.nodes[i - 1]
                assert not level.is_tip[i - 1]
        assert level.is_tip.sum() == level.is_start.sum()
        above |= set(level.nodes.tolist())


@pytest.mark.parametrize("name", nightly.all_but(["comb", "random"], TREES))
def test_products_along_the_paths_of_a_tree(name, rng):
    """Of matrices, which do not commute, from the world and from the leaves."""
    parents = TREES[name]
    n = len(parents)
    A, b = rng.normal(size=(n, 2, 2)) / 2, rng.normal(size=(n + 1, 2))
    join = tree.affine(lambda A, below: below @ A, lambda A, y: (A @ y[..., None])[..., 0])

    def to_parents(level, rows, A):
        def join_below(above, below):
            (A, h), (A_below, h_below) = above, below
            return A @ A_below, h + (A @ h_below[..., None])[..., 0]

        return level.products_to_tips(join_below, (A, (A @ rows[..., None])[..., 0]))[1]

    @jax.jit
    def both(A, b):
        world = A[:1], b[n:]
        y = tree.products_from_world(parents, join, world, (A, b[:n]))[1]
        return y, tree.sums_of_children(parents, to_parents, b, A)

    y, F = both(jnp.array(A), jnp.array(b))
    expected, sums = np.array(b), np.array(b)
    for i in range(n):
        expected[i] += A[i] @ expected[parents[i]]
        sums[parents[n - 1 - i]] += A[n - 1 - i] @ sums[n - 1 - i]
    close(y, expected[:n], 1e-14)
    close(F, sums, 1e-14)


def dynamics(model, q, v, a, f_ext):
    """Inverse dynamics, forward dynamics under its result, and forward dynamics with poses."""
    tau, kinematics = rbd.rnea(model, q, v, a, f_ext), rbd.forward_kinematics(model, q)
    return (
        tau,
        rbd.forward_dynamics(model, q, v, tau, f_ext),
        rbd.forward_dynamics(model, kinematics, v, a),
    )


ROBOTS = {
    "branched": branched,
    "connected": lambda: zoo.connected().with_dissipation(),
    "everywhere": zoo.everywhere,
    "coupled": lambda: zoo.coupled().with_dissipation(),
    "following": zoo.following,
    "humanoid": lambda: rbd.load_robot("humanoid"),
    "chain of 40 ball joints": lambda: zoo.chain(40, "spherical"),
}


@pytest.mark.parametrize("name", nightly.all_but(["branched"], ROBOTS))
def test_forward_dynamics_inverts_inverse_dynamics(name):
    """All joint kinds in all places, external forces, dissipation, armature, and coupled joints."""
    model = ROBOTS[name]()
    state = zoo.state(model)
    tau, a, by_poses = in_parallel(dynamics)(model, *state)
    close(a, state[2], 1e-11)
    expected = jax.jit(dynamics)(model, *state)
    close(tau, expected[0], 1e-13)
    close(by_poses, expected[2], 1e-11)


DERIVATIVES = {
    "ball": lambda: zoo.build(["spherical", "revolute"], [-1, 0], seed=4),
    "branched": branched,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_of_forward_dynamics(name):
    """In both modes and in a batch, with respect to the state, the forces and the inertias."""
    model = DERIVATIVES[name]()
    q, v, tau, f_ext = zoo.state(model)
    inertia = model.inertia

    def acceleration(dq, v, tau, f_ext, inertia):
        moved = dataclasses.replace(model, inertia=inertia)
        return rbd.forward_dynamics(moved, rbd.integrate(model, q, dq), v, tau, f_ext)

    def change(*tangents):
        return jax.jvp(acceleration, (0 * v, v, tau, f_ext, inertia), tangents)[1]

    def both_modes(weights, *tangents):
        _, pull = jax.vjp(acceleration, 0 * v, v, tau, f_ext, inertia)
        return jax.vmap(change)(*tangents), pull(weights)

    rng = np.random.default_rng(1)
    shapes = [x.shape for x in (v, v, tau, f_ext)]
    tangents = [jnp.array(rng.normal(size=(2, *shape))) for shape in shapes]
    tangents.append(jnp.stack([inertia, -0.3 * inertia]))
    weights = jnp.array(rng.normal(size=v.shape))
    forward, backward = in_parallel(both_modes)(weights, *tangents)
    expected = jax.jit(jax.vmap(change))(*tangents)
    close(forward, expected, 1e-10)
    for k in range(2):
        work = sum(jnp.sum(x * dx[k]) for x, dx in zip(backward, tangents))
        close(work, jnp.sum(weights * expected[k]), 1e-10)


@pytest.mark.slow
def test_a_massless_link_in_the_middle_of_a_chain():
    """Neither the link nor its joint has inertia; the chain below it has."""
    model = zoo.chain(4)
    model = dataclasses.replace(model, inertia=model.inertia.at[1].set(0))
    state = zoo.state(model)
    close(in_parallel(dynamics)(model, *state)[1], state[2], 1e-11)


def test_rounding_in_single_precision():
    """Lever arms are short: a chain at rest loses few digits, where loops lose four."""
    n = 32
    spec = rbd.model.JointSpec
    rod = rbd.model.link_inertia(0.5, (0.02, 0.0, 0.15), np.diag([0.004, 0.005, 0.001]))
    names, place = [f"l{i}" for i in range(n)], rbd.model.placement_matrix((0.0, 0.0, 0.3))
    axes = [rbd.joints.Revolute(np.eye(3)[i % 3]) for i in range(n)]
    joints = [spec(x, axis, y, x, place) for x, y, axis in zip(names, [None, *names], axes)]
    double = rbd.build_model([rbd.model.Link(name, rod) for name in names], joints)
    single = jax.tree.map(lambda x: x.astype(jnp.float32), double)
    double = jax.tree.map(lambda x: x.astype(float), single)
    tau = np.random.default_rng(0).normal(size=n).astype(np.float32)
    zero = np.zeros(n, np.float32)
    exact = np.array(rbd.aba(double, *(jnp.array(x, float) for x in (zero, zero, tau))))
    operands = single, *map(jnp.array, (zero, zero, tau))
    found = in_parallel(rbd.forward_dynamics)(*operands)
    assert found.dtype == jnp.float32
    size = np.max(np.abs(exact))
    assert np.max(np.abs(np.array(found) - exact)) < 2e-6 * size
    assert np.max(np.abs(np.array(rbd.forward_dynamics(*operands)) - exact)) > 1e-4 * size


@pytest.mark.slow
def test_the_depth_is_logarithmic():
    """For twice the links the programs grow by a constant; loops are over the rows of 6x6."""

    def size(n):
        model = zoo.chain(n)
        q, v, a, _ = zoo.state(model)

        def both(q, v, a):
            return rbd.rnea(model, q, v, a), rbd.forward_dynamics(model, q, v, a)

        with tree.implementation("parallel"):
            program = str(jax.make_jaxpr(both)(q, v, a))
        assert set(re.findall(r"length=(\d+)", program)) == {"6"}
        assert "while[" not in program
        return program.count(" = ")

    first, second, third = map(size, (17, 33, 65))
    assert abs((third - second) - (second - first)) < 0.05 * first


@pytest.mark.slow
def test_an_exported_program_has_any_batch_size():
    model = zoo.small()
    q, v, a, _ = zoo.state(model)
    with tree.implementation("parallel"):
        program = rbd.io.export_batched(rbd.rnea, model, q, v, a)
    found = program.call(*(jnp.stack([x, x]) for x in (q, v, a)))
    close(found[1], rbd.rnea(model, q, v, a), 1e-13)
