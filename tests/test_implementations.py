"""The passes by loops, by products and by GPU kernels give the same results."""

import dataclasses
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxrbd as rbd
from jaxrbd import spatial, tree
from jaxrbd._math import linear
from jaxrbd.errors import ArgumentError
from jaxrbd.model.joint_space import joint_poses
from jaxrbd.tree.gpu import kernels, lanes
from support import nightly, zoo
from support.zoo import close

OTHERS = ["products", "parallel", "interpreted kernels"]
# All joint kinds in all places, with several trees; and a chain, the deepest tree.
ROBOTS = {"everywhere": zoo.everywhere, "chain of 9": lambda: zoo.chain(9)}
BATCH = 130  # a full block of lanes, and two lanes of the next


def states(model, batch):
    keys = jax.random.split(jax.random.key(0), batch)
    q = jax.vmap(rbd.random_configuration, (None, 0))(model, keys)
    v, a = np.random.default_rng(0).normal(size=(2, batch, model.nv))
    return q, jnp.asarray(v, model.dtype), jnp.asarray(a, model.dtype)


def quantities(model, q, v, a):
    """What the passes compute, and a gradient through the transposed passes."""

    def work(q):
        return jnp.sum(jnp.sin(rbd.rnea(model, q, v, a)))

    tau, M = rbd.rnea(model, q, v, a), rbd.crba(model, q)
    solved = rbd.forward_dynamics(model, q, v, a)
    return (
        rbd.forward_kinematics(model, q).X_WB,
        tau,
        M,
        # Some mass matrices are nearly singular. There the accelerations are large and inexact.
        linear.matmul(M, solved) / (1 + jnp.max(jnp.abs(solved))),
        jax.grad(work)(q),
    )


@pytest.mark.slow
@pytest.mark.parametrize("robot", ROBOTS)
def test_the_implementations_agree(robot):
    model = ROBOTS[robot]()
    operands = states(model, BATCH)
    with tree.implementation("scan"):
        expected = jax.jit(jax.vmap(quantities, (None, 0, 0, 0)))(model, *operands)
    for name in OTHERS:
        with tree.implementation(name):
            found = jax.jit(jax.vmap(quantities, (None, 0, 0, 0)))(model, *operands)
        jax.tree.map(lambda x, y: close(x, y, 1e-12), found, expected)


def test_sums_over_the_dofs_of_each_body(rng):
    """Bodies with six dofs, three dofs and one dof, of which each dof is added once."""
    topology = zoo.small().topology
    x = rng.normal(size=(topology.nv, 2))
    expected = np.zeros((topology.nb, 2))
    np.add.at(expected, np.array(topology.dof_body), 1 + x * x)
    for way in ("scan", "interpreted kernels"):
        with tree.implementation(way):
            total = jax.jit(lambda x: tree.sum_over_dofs(topology, lambda x: 1 + x * x, x))
            close(total(jnp.asarray(x)), expected, 1e-14)


@pytest.mark.slow
def test_the_kernels_of_derivatives_agree():
    """The derivatives of forward dynamics use all functions of single rows, and the factor of M."""
    model = zoo.small()
    operands = (*states(model, 2), jnp.ones((2, model.nb, 6)))

    def work(*state):
        return tuple(rbd.forward_dynamics_derivatives(model, *state))

    found = []
    for way in ("scan", "interpreted kernels"):
        with tree.implementation(way):
            found.append(jax.jit(jax.vmap(lambda *state: work(*state)))(*operands))
    jax.tree.map(lambda x, y: close(x, y, 1e-12), *found)


@pytest.mark.slow
def test_the_derivatives_of_kernels_of_rows_agree():
    model = zoo.connected()
    q, v, a = states(model, 2)

    def work(q, v, a, inertia):
        moved = dataclasses.replace(model, inertia=inertia)
        found = rbd.rnea_derivatives(moved, q, v, a)
        return sum(jnp.sum(jnp.sin(x)) for x in found)

    found = []
    for way in ("scan", "interpreted kernels"):
        with tree.implementation(way):
            gradient = jax.vmap(jax.grad(lambda *x: work(*x), (0, 1, 2, 3)), (0, 0, 0, None))
            found.append(jax.jit(gradient)(q, v, a, model.inertia))
    jax.tree.map(lambda x, y: close(x, y, 1e-12), *found)


def row_function(X, x, many):
    """A function of a pose, of a row, and of several rows."""
    moved = spatial.transform_motion(X, x) * jnp.sum(many * many, axis=-2)
    return moved, jnp.sum(moved * x, axis=-1)


def mapped_rows(R, p, x, many):
    indices = (np.array([2, 0, 1]), None, np.array([[0, 1], [1, 1], [2, 0]]))
    return tree.map_rows(row_function, spatial.Pose(R, p), x, many, indices=indices)


def test_functions_of_rows(rng):
    """Values and derivatives to second order, of a batch in which some operands are shared."""
    R, p, x, many = (jnp.array(rng.normal(size=s)) for s in ((3, 3, 3), (3, 3), (5, 3, 6), (3, 6)))

    def work(R, p, x, many):
        def total(p, x, many):
            return sum(jnp.sum(jnp.sin(y)) for y in mapped_rows(R, p, x, many))

        curvature = jax.jvp(jax.grad(total, (0, 1, 2)), (p, x, many), (p, x, many))
        return mapped_rows(R, p, x, many), curvature

    found = []
    for way in ("scan", "interpreted kernels"):
        with tree.implementation(way):
            run = jax.vmap(lambda *operands: work(*operands), (None, None, 0, None))
            found.append(jax.jit(run)(R, p, x, many))
    jax.tree.map(lambda x, y: close(x, y, 1e-13), *found)
    one = row_function(spatial.Pose(R[1], p[1]), x[0, 2], many[np.array([2, 0])])
    jax.tree.map(lambda x, y: close(x[0][2], y, 1e-14), found[1][0], one)


def test_functions_of_rows_on_another_device(rng):
    """Where the kernels are for another device, operands of all batch sizes broadcast."""
    R, p, many = (jnp.array(rng.normal(size=s)) for s in ((3, 3, 3), (3, 3), (3, 6)))
    x = jnp.array(rng.normal(size=(5, 3, 6)))
    run = jax.vmap(mapped_rows, (None, None, 0, None))
    expected = jax.jit(run)(R, p, x, many)
    with tree.implementation("kernels"):
        found = jax.jit(jax.vmap(lambda *y: mapped_rows(*y), (None, None, 0, None)))(R, p, x, many)
    jax.tree.map(lambda x, y: close(x, y, 1e-14), found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_the_implementations_agree_for_one_state(name):
    model = zoo.connected()
    operands = [x[0] for x in states(model, 1)]
    with tree.implementation("scan"):
        expected = jax.jit(quantities)(model, *operands)
    with tree.implementation(name):
        found = jax.jit(quantities)(model, *operands)
    jax.tree.map(lambda x, y: close(x, y, 1e-12), found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("sweep", [tree.propagate, tree.accumulate])
def test_batches_of_batches_and_shared_operands(sweep, name, rng):
    """The poses have one batch axis, the motions another, and the pass is mapped over both."""
    model = zoo.connected()
    topology, nb = model.topology, model.nb
    q = states(model, 3)[0]
    X = jax.vmap(joint_poses, (None, 0))(model, q)
    b = jnp.array(rng.normal(size=(2, nb, 6)))

    def each(X):
        return jax.vmap(lambda b: sweep(topology, X, b))(b)

    found = []
    for way in ("scan", name):
        with tree.implementation(way):
            found.append(jax.jit(jax.vmap(each))(X))
    close(found[1], found[0], 1e-13)
    with tree.implementation(name):
        close(jax.jit(lambda b: each(jax.tree.map(lambda x: x[0], X)))(b), found[0][0], 1e-13)


@pytest.mark.parametrize("name", nightly.all_but(["products"], OTHERS))
def test_batches_of_positions_alone(name, rng):
    """The rotations and the rows are shared, as for a robot whose joints are all prismatic."""
    topology = zoo.build(["prismatic"] * 3, [-1, 0, 1]).topology
    R = jax.jit(jax.vmap(rbd.so3.exp))(jnp.array(rng.normal(size=(3, 3))))
    p, rows = jnp.array(rng.normal(size=(2, 3, 3))), jnp.array(rng.normal(size=(3, 6)))

    def sweeps(p):
        X = spatial.Pose(R, p)
        return tree.propagate(topology, X, rows), tree.accumulate(topology, X, rows)

    expected = [jnp.stack(x) for x in zip(*map(jax.jit(sweeps), p))]
    with tree.implementation(name):
        found = jax.jit(jax.vmap(sweeps))(p)
    jax.tree.map(lambda x, y: close(x, y, 1e-13), list(found), expected)


@pytest.mark.parametrize("name", OTHERS)
def test_the_motion_of_the_world(name, rng):
    """A forward pass starts with the row of the world, and a backward pass ends there."""
    model = zoo.build(["revolute"] * 5, [-1, 0, 0, -1, 3])  # two trees
    X = jax.jit(joint_poses)(model, zoo.state(model)[0])
    b, world = (jnp.array(rng.normal(size=s)) for s in ((model.nb, 6), (6,)))

    def total(world):
        return jnp.sum(tree.propagate(model.topology, X, b, world) ** 2)

    expected = jax.jit(jax.value_and_grad(total))(world)
    with tree.implementation(name):
        found = jax.jit(jax.value_and_grad(total))(world)
    jax.tree.map(lambda x, y: close(x, y, 1e-12), found, expected)


def test_products_lose_no_digits_far_from_the_world(rng):
    """The common frame of a tree is its root body, so the distance of the root does not matter."""
    model = rbd.load_robot("quadruped")
    q = np.array(zoo.state(model)[0])
    b = jnp.array(rng.normal(size=(model.nb, 6)))
    q[:3] = [1e9, -2e9, 1e9]
    X = jax.jit(joint_poses)(model, jnp.array(q))
    expected = jax.jit(lambda X: tree.propagate(model.topology, X, b))(X)
    with tree.implementation("products"):
        close(jax.jit(lambda X: tree.propagate(model.topology, X, b))(X), expected, 1e-13)


@pytest.mark.parametrize(
    ("n", "batch"),
    [
        (9, None),
        (9, BATCH),
        *(pytest.param(*x, marks=pytest.mark.slow) for x in [(0, 3), (1, 3), (45, 2)]),
    ],
)
def test_the_kernel_of_inverse_factors(n, batch, rng):
    """Of one positive definite matrix, of a batch, and of large matrices by blocks."""
    A = rng.normal(size=(batch or 1, n, n))
    M = jnp.array(A @ A.swapaxes(1, 2) + np.eye(n))

    def factors(M):
        W = linear.inverse_factor(M)
        return W, linear.inverse_positive_definite(M, W)

    found = []
    for way in ("scan", "interpreted kernels"):
        with tree.implementation(way):
            run = jax.jit(jax.vmap(factors) if batch else factors)
            found.append(run(M if batch else M[0]))
    jax.tree.map(lambda x, y: close(x, y, 1e-12), *found)
    W = found[1][0]
    close(W @ M @ jnp.swapaxes(W, -1, -2), jnp.broadcast_to(jnp.eye(n), M.shape), 1e-12)
    assert not jnp.any(jnp.triu(W, 1))


@pytest.mark.gives_nan
def test_the_kernel_of_a_singular_matrix_gives_no_finite_factor():
    with tree.implementation("interpreted kernels"):
        W = jax.jit(linear.inverse_factor)(jnp.diag(jnp.array([1.0, 0.0, 2.0])))
    assert not jnp.all(jnp.isfinite(W))


@pytest.mark.slow
def test_single_precision():
    model = jax.tree.map(lambda x: x.astype(jnp.float32), rbd.load_robot("quadruped"))
    operands = states(model, 2)
    expected = jax.jit(jax.vmap(rbd.rnea, (None, 0, 0, 0)))(model, *operands)
    for name in OTHERS:
        with tree.implementation(name):
            found = jax.jit(jax.vmap(rbd.rnea, (None, 0, 0, 0)))(model, *operands)
        assert found.dtype == jnp.float32
        close(found, expected, 1e-5)


def test_products_have_no_loops_over_the_bodies():
    model = zoo.chain(9)
    operands = states(model, 2)
    with tree.implementation("products"):
        program = jax.jit(jax.vmap(rbd.rnea, (None, 0, 0, 0))).lower(model, *operands).as_text()
    assert "stablehlo.while" not in program


@pytest.mark.cpu
def test_the_number_of_states_decides_on_a_gpu(monkeypatch):
    """For many states a pass reads and writes less than the products."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    model = zoo.chain(11)  # as no other test, because JAX stores what it has traced
    X = joint_poses(model, zoo.state(model)[0])

    def program(batch):
        mapped = jax.vmap(lambda b: tree.propagate(model.topology, X, b))
        traced = jax.jit(mapped).trace(jax.ShapeDtypeStruct((batch, 11, 6), X.p.dtype))
        return traced.lower(lowering_platforms=("cuda",)).as_text()

    assert "stablehlo.while" not in program(4096)
    assert "stablehlo.while" in program(1_000_000)
    monkeypatch.undo()
    assert "stablehlo.while" in program(4095)


@pytest.mark.parametrize("name", OTHERS)
def test_recursions_that_jax_differentiates_remain_loops(name):
    """A kernel has no derivative, and JAX differentiates the recursion of `aba`."""
    model = zoo.chain(3)
    q, v, tau = (x[0] for x in states(model, 1))

    def work(tau):
        return jnp.sum(jnp.sin(rbd.aba(model, q, v, tau)))

    expected = jax.jit(jax.grad(work))(tau)
    with tree.implementation(name):
        close(jax.jit(jax.grad(work))(tau), expected, 1e-13)


def test_another_name_is_refused():
    with pytest.raises(ArgumentError, match=r"'loops', expected one of .*'products'"):
        tree.implementation("loops")


def test_kernels_need_a_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax.experimental.pallas.mosaic_gpu", None)
    with pytest.raises(ArgumentError, match=r"'kernels' needs .*: pip install absl-py"):
        tree.implementation("kernels")


@pytest.mark.slow
@pytest.mark.cpu
def test_kernels_on_a_cpu_are_loops():
    model = zoo.chain(9)
    operands = states(model, 2)
    expected = jax.jit(jax.vmap(rbd.rnea, (None, 0, 0, 0)))(model, *operands)
    with tree.implementation("kernels"):
        found = jax.jit(jax.vmap(rbd.rnea, (None, 0, 0, 0)))(model, *operands)
    np.testing.assert_array_equal(found, expected)


# ------------------------------------------------------------------------------------------- lanes


def by_lanes(function, *operands):
    """The function of each column of operands (..., batch), by one evaluation for all columns."""
    arrays = []
    for x in operands:
        flat = x.reshape(-1, x.shape[-1])
        arrays.append(lanes.entries(x.shape[:-1], flat.__getitem__))
    like = [jax.ShapeDtypeStruct(x.shape[:-1], x.dtype) for x in operands]
    results = lanes.evaluate(function, like, *arrays)

    def stacked(x):
        return np.array([jnp.broadcast_to(y, (5,)) for y in x.reshape(-1)]).reshape(*x.shape, 5)

    return jax.tree.map(stacked, results)


@pytest.mark.parametrize(
    "function",
    [
        lambda A, x: jnp.sum(A * x, axis=-1),
        lambda A, x: jnp.concatenate([A.T, -A[::1, 1:2]], axis=1) / (2 + x[:, None] * x[:, None]),
        lambda A, x: jnp.stack(jnp.split(x, 3)) * A[None, 0, 1] - jnp.ones((3, 1)),
        lambda A, x: A * jnp.eye(3)[:, ::-1] - jnp.arange(9.0).reshape(3, 3),
        lambda A, x: jnp.sum(jnp.outer(x, x).reshape(9)[2:8:3]) + jnp.unstack(A, axis=1)[2],
        lambda A, x: spatial.inverse_transform_motion(
            spatial.Pose(A, x), jnp.concatenate([x, A[0]])
        ),
        lambda A, x: jnp.where(x < A, jnp.maximum(A, 0.5), jnp.sign(x)) * jnp.eye(3),
        lambda A, x: (
            A[np.array([2, 0, 2]), np.array([1, 1, 0])] + lax.dynamic_slice(A, (1, 2), (1, 1))[0]
        ),
        lambda A, x: jnp.where(
            jnp.any(A > 1) & ~jnp.all(x > 0), jnp.max(A), jnp.min(x, initial=0.0)
        ),
        lambda A, x: lax.scan(lambda s, a: (s * a[0] - s, s + a), x, A, reverse=True),
        # Each state has its own number of steps; a state has none, and one has an infinite value.
        lambda A, x: lax.while_loop(
            lambda state: (state[0] < 20) & (jnp.sum(state[1]) < 10),
            lambda state: (state[0] + 1, 2 * state[1] + jnp.abs(A[0])),
            (jnp.zeros((), jnp.int32), jnp.where(A[0, 0] > 0, x, 4.0)),
        ),
    ],
)
def test_lanes_evaluate_each_state(function, rng):
    A, x = jnp.array(rng.normal(size=(3, 3, 5))), jnp.array(rng.normal(size=(3, 5)))
    with jax.numpy_rank_promotion("allow"):  # some of the functions broadcast
        found = by_lanes(function, A, x)
        each = [function(A[..., k], x[..., k]) for k in range(5)]
    expected = jax.tree.map(lambda *x: jnp.stack(x, axis=-1), *each)
    jax.tree.map(lambda x, y: close(x, y, 1e-15), found, expected)


def test_lanes_name_an_unknown_operation(rng):
    with pytest.raises(NotImplementedError, match="'sort'"):
        by_lanes(jnp.sort, jnp.array(rng.normal(size=(3, 5))))


def test_a_kernel_repeats_no_shared_data():
    """Data that all states share is one value per node in the kernel's operands."""
    n, batch = 4, 256
    rows = jnp.zeros((1, batch, 2))
    shared = jnp.ones((n, 1, 2))

    def step(row, x):
        return row + x, None

    found, _ = jax.jit(
        lambda rows, x: kernels.pass_by_kernel(
            np.array([4, 0, 1, 2]), step, 1, rows, x, backward=False, interpret=True
        )
    )(rows, shared)
    close(found[3], jnp.full((batch, 2), 4.0), 1e-15)
    program = jax.make_jaxpr(
        lambda x: kernels.pass_by_kernel(
            np.array([4, 0, 1, 2]), step, 1, rows, x, backward=False, interpret=True
        )
    )(shared)
    (call,) = [e for e in program.eqns if e.primitive.name == "pallas_call"]
    assert (n, 2, 1) in [v.aval.shape for v in call.invars]
