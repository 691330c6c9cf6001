"""The sweeps: each solver inverts its operator, and the upward sweep is the downward transpose."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import spatial, tree
from jaxrbd.model.joint_space import joint_poses
from jaxrbd.topology import Topology
from support import finite_differences, nightly, zoo
from support.zoo import close

TREES = {
    "everywhere": zoo.everywhere,
    "connected": zoo.connected,
    "chain of 7": lambda: zoo.chain(7),
    "chain of 8": lambda: zoo.chain(8),
    "chain of 64": lambda: zoo.chain(64),
    "chain of 200": lambda: zoo.chain(200),  # beyond the size up to which operators are dense
    "star of 9": lambda: zoo.build(["revolute"] * 9, [-1] + [0] * 8),
}


@pytest.fixture(params=nightly.all_but(["everywhere", "chain of 7"], TREES))
def swept(request, rng):
    """A topology, the bodies' poses in their parents, and two random right-hand sides."""
    model = TREES[request.param]()
    X = jax.jit(joint_poses)(model, zoo.state(model)[0])
    b, c = (jnp.array(rng.normal(size=(model.nb, 6))) for _ in range(2))
    return model.topology, X, b, c


def parent_of(topology, y, world):
    """The row of each body's parent."""
    y, world = np.asarray(y), np.asarray(world)
    return jnp.asarray([world if p < 0 else y[p] for p in topology.parents])


def test_propagate_solves_its_equation(swept):
    topology, X, b, c = swept
    world = c[0]
    y = tree.propagate(topology, X, b, world=world)
    handed = jax.jit(spatial.inverse_transform_motion)(X, parent_of(topology, y, world))
    close(np.asarray(y) - np.asarray(handed), b, 1e-12)


def test_accumulate_solves_its_equation(swept):
    topology, X, b, _ = swept
    F = tree.accumulate(topology, X, b)
    handed, expected = np.array(jax.jit(spatial.transform_force)(X, F)), np.array(b)
    for body, parent in enumerate(topology.parents):
        if parent >= 0:
            expected[parent] += handed[body]
    close(F, expected, 1e-12)


def test_accumulate_is_the_transpose_of_propagate(swept):
    topology, X, b, c = swept
    left = jnp.sum(c * tree.propagate(topology, X, b))
    right = jnp.sum(tree.accumulate(topology, X, c) * b)
    close(left, right, 1e-12 * max(1, topology.nb / 10))
    _, pull = jax.vjp(lambda b: tree.propagate(topology, X, b), b)
    close(pull(c)[0], tree.accumulate(topology, X, c), 1e-13)


def test_compose_poses_composes(swept):
    topology, X, _, _ = swept
    X_WB = tree.compose_poses(topology, X)
    H = np.array(spatial.pose_matrix(X))
    world = []
    for body, parent in enumerate(topology.parents):
        world.append(H[body] if parent < 0 else world[parent] @ H[body])
    close(spatial.pose_matrix(X_WB), np.array(world), 1e-12)


@pytest.mark.parametrize("mode", nightly.all_but([jax.jacrev], [jax.jacfwd, jax.jacrev]))
def test_derivatives_are_those_of_the_solution(mode, rng):
    """Both modes, in the poses and the right-hand side, against central differences."""
    model = zoo.connected()
    q, v, _, _ = zoo.state(model)
    weights = jnp.array(rng.normal(size=(model.nb, 6)))

    def scalar(t):
        X = joint_poses(model, rbd.integrate(model, q, t * v))
        y = tree.propagate(model.topology, X, jnp.sin(weights + t))
        F = tree.accumulate(model.topology, X, y**2)
        X_WB = tree.compose_poses(model.topology, X)
        return jnp.sum(weights * F) + jnp.sum(X_WB.p**2) + jnp.sum(X_WB.R[:, 0, 1])

    scalar = jax.jit(scalar)
    close(jax.jit(mode(scalar))(0.0), finite_differences.central(scalar, 1e-5), 1e-7)


@pytest.mark.cpu
@pytest.mark.parametrize("n", [7, 8, 64])
def test_the_lowered_program_of_a_chain_does_not_grow(n):
    """No sweep is unrolled over the bodies: chains of any length have programs of the same size."""

    def size(n):
        topology = Topology((-1, *range(n - 1)), (1,) * n, (1,) * n)
        X = spatial.Pose(jnp.zeros((n, 3, 3)), jnp.zeros((n, 3)))

        def sweeps(X, b):
            y = tree.propagate(topology, X, b)
            return tree.accumulate(topology, X, y), tree.compose_poses(topology, X)

        return len(jax.jit(sweeps).lower(X, jnp.zeros((n, 6))).as_text().splitlines())

    assert size(n) == size(5)


SWEEPS = [tree.propagate, tree.accumulate, tree.compose_poses]


@pytest.mark.slow
@pytest.mark.parametrize("sweep", nightly.all_but(SWEEPS[1:], SWEEPS))
def test_a_batch_of_sweeps_is_the_sweep_of_each(sweep, rng):
    """For any choice of batched operands, and for batches of batches."""
    model = zoo.connected()
    topology, nb = model.topology, model.nb
    R = jax.jit(jax.vmap(jax.vmap(rbd.so3.exp)))(jnp.array(rng.normal(size=(2, 3, nb, 3))))
    p, b = jnp.array(rng.normal(size=(2, 3, nb, 3))), jnp.array(rng.normal(size=(2, 3, nb, 6)))

    def numbers(R, p, b):
        X = spatial.Pose(R, p)
        result = sweep(topology, X) if sweep is tree.compose_poses else sweep(topology, X, b)
        return jnp.concatenate([x.reshape(nb, -1) for x in jax.tree.leaves(result)], axis=1)

    single = jax.jit(numbers)
    for varying in [(0, 0, 0), (0, None, None), (None, 0, None), (None, None, 0), (0, None, 0)]:
        for outer in [(0, 0, 0), varying]:
            operands = []
            for x, o, i in zip((R, p, b), outer, varying):
                x = x if o == 0 else x[0]
                operands.append(x if i == 0 else x[:, 0] if o == 0 else x[0])
            batched = jax.jit(jax.vmap(jax.vmap(numbers, varying), outer))(*operands)
            for j, k in np.ndindex(2, 3):
                sample = [
                    x[tuple(n for n, axis in ((j, o), (k, i)) if axis == 0)]
                    for x, o, i in zip(operands, outer, varying)
                ]
                close(batched[j, k], single(*sample), 1e-13)


def test_sums_over_the_tree_alone_in_batches_and_transposed(swept, rng):
    """A product for one state and a sweep for a batch; each sum is the other's transpose."""
    topology, _, b, c = swept
    batch = jnp.array(rng.normal(size=(2, 3, topology.nb, 4)))
    above = topology.supports.astype(float)
    for sums, matrix in ((tree.sum_to_root, above), (tree.sum_to_leaves, above.T)):
        one = jax.jit(lambda b, sums=sums: sums(topology, b))
        close(one(b), matrix @ b, 1e-13)
        close(jax.jit(jax.vmap(jax.vmap(one)))(batch), matrix @ batch, 1e-13)
        _, pull = jax.vjp(one, b)
        close(pull(c)[0], matrix.T @ c, 1e-13)
