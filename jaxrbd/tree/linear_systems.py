"""The passes over the kinematic tree, each defined for JAX as the solution of a linear system.

A forward pass (root to leaves) computes `y_i = iX_p(i) y_p(i) + b_i`, where p(i) is the parent of
body i. Let L be the operator with `(L y)_i = iX_p(i) y_p(i)`: L transforms each parent's motion
into the frame of the child. Then the forward pass solves `(1 - L) y = b`, and the backward pass
(leaves to root) solves `(1 - L)^T F = f`. The poses of the bodies in the world solve a system of
the same form.

Each pass is a `lax.custom_linear_solve` whose solver is from passes.py, paths.py or
gpu/products.py. JAX differentiates the linear system, in forward and reverse mode and to any order,
and never the solver. The world poses are computed by the solver alone, and their derivative rule is
such a solve. With the solver of passes.py, the size of the program does not depend on the number of
bodies.

`lax.custom_linear_solve` does not check that the solver inverts the operator. The tests of the
package check this for each solver, and check that `propagate` and `accumulate` are transposes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from .._math.components import small_product
from .._math.implementations import current_implementation
from .._math.linear import matmul
from .._math.ranks import times
from .._math.recompute import WORLD_POSES, stored
from .._math.rules import custom_jvp
from .._math.tiles import by_platform
from ..spatial import Pose, compose, identity_pose, inverse_transform_motion, transform_force
from ..topology import Topology
from .gpu.products import (
    backward_by_products,
    forward_by_products,
    in_one_batch,
    matrix_times_rows,
    poses_in_roots,
)
from .passes import (
    backward_pass_of_batch,
    forward_pass_of_batch,
    in_batches,
    nodes_first,
    number_of_states,
    parent_rows,
)
from .paths import affine, products_from_world, sums_of_children
from .pose_entries import entries_matrix, pose_entries, pose_of_entries

# The largest number of bodies for which a sum over the tree may be a product with a 0/1 matrix.
_DENSE = 128
# On a GPU, for more states than this, a pass body by body is faster than products, which read and
# write twice as many bytes. For the humanoid on an NVIDIA H200, the two times are equal at 27,000
# states in inverse dynamics, and at 200,000 states in forward dynamics.
_MANY_STATES = 50_000
# The loop reads and writes rows in place if they have at most this many entries.
_FEW_ENTRIES = 12


def propagate(
    topology: Topology,
    X: Pose,
    b: Float[Array, "nb 6"],
    world: Float[Array, "6"] | None = None,
) -> Float[Array, "nb 6"]:
    """Forward pass: the motions `y_i = iX_p(i) y_p(i) + b_i`, (nb, 6), in the bodies' frames.

    `X`: poses of the bodies in their parents; `b` (nb, 6): motions in the bodies' frames; `world`
    (6,): the motion of the world, in world axes (default zero). Source: Featherstone (5.7), (5.8).
    """
    return _solve_forward(topology, X, b, world, _MOTION)


def accumulate(topology: Topology, X: Pose, f: Float[Array, "nb 6"]) -> Float[Array, "nb 6"]:
    """Backward pass: the forces `F_i = f_i + sum over children j of iX_j* F_j`, (nb, 6).

    It is the transpose of `propagate`. `X`: poses of the bodies in their parents; `f` (nb, 6):
    forces. F and f are in the bodies' frames. Source: Featherstone (5.20).
    """
    return _solve_backward(topology, X, f, _MOTION)


def compose_poses(topology: Topology, X: Pose) -> Pose:
    """Poses of the bodies in the world, `X_Wi = X_Wp(i) X_p(i)i`: R (nb, 3, 3) and p (nb, 3).

    `compose` is linear in its first operand. So the entries of the world poses solve a linear
    system whose right-hand side is zero for the bodies and the identity for the world. The
    derivatives of the entries solve the same system with another right-hand side.
    """
    return pose_of_entries(_world_entries(topology, X))


@functools.partial(custom_jvp, nondiff_argnums=(0,))
def _world_entries(topology: Topology, X: Pose) -> Array:
    """The entries (nb, 12) of `compose_poses`."""

    def step(H_parent, X_i):
        return _pose_to_child(X_i, H_parent), None

    def one_pass(batch_axes, X):
        world = pose_entries(identity_pose(X.p.dtype)).reshape(*(1,) * batch_axes, 1, 12)
        rows = forward_pass_of_batch(
            topology.parents, step, batch_axes, world, X, rows_in_place=True
        )[0]
        return rows[..., :-1, :]

    def product(X):
        root = topology.root
        return pose_entries(compose(Pose(X.R[root], X.p[root]), poses_in_roots(topology, X)))

    def paths(X):
        X = in_one_batch(X)
        world = identity_pose(X.p.dtype)
        world = jax.tree.map(lambda x, y: jnp.broadcast_to(x, (1, *y.shape[1:])), world, X)
        return pose_entries(products_from_world(topology.parents, compose, world, X))

    return _solver(topology, _POSE, one_pass, product, paths)(X)


@_world_entries.defjvp
def _(topology, primals, tangents):
    # `contact_step` stores the poses, so its reverse mode does not compute the loop again.
    H = stored(_world_entries(topology, *primals), WORLD_POSES)
    world = pose_entries(identity_pose(H.dtype))[None]

    def from_parents(X):
        """The entries of the bodies for the constant poses H of the parents; zero for the world."""
        return _from_parents(topology, X, jnp.concatenate([H, world]), _POSE)

    b = jax.jvp(from_parents, primals, tangents)[1]
    return H, _solve_forward(topology, primals[0], b[:-1], None, _POSE)


def sum_to_leaves(
    topology: Topology,
    b: Float[Array, "nb n"],
    world: Float[Array, " n"] | None = None,
    few_kernels: bool = False,
) -> Float[Array, "nb n"]:
    """`propagate` in one common frame: `y_i` is the sum of `b_j` over the bodies that support i.

    `world` (n,): the motion of the world (default zero), which is added to all sums. With
    `few_kernels`, `implementation("automatic")` computes the sums of up to 128 bodies by a product
    with a 0/1 matrix, also where a pass is faster. On a CPU the product has six kernels less than
    the loop of the pass.
    """
    if few_kernels and current_implementation() == "automatic" and topology.nb <= _DENSE:
        sums = matmul(jnp.asarray(topology.supports.T, b.dtype), b)
        return sums if world is None else sums + world[None]
    y = _solve_forward(topology, None, b, None, _SAME_FRAME)
    # The addition takes less time than a pass with the row of the world in each state.
    return y if world is None else y + world[None]


def sum_to_root(topology: Topology, f: Float[Array, "nb n"]) -> Float[Array, "nb n"]:
    """`accumulate` in one common frame: `F_i` is the sum of `f_j` over the bodies j in i's subtree.

    It is the transpose of `sum_to_leaves`.
    """
    return _solve_backward(topology, None, f, _SAME_FRAME)


# -------------------------------------------------------- transforms between a body and its parent


class _Transform(NamedTuple):
    """A linear map from a parent's row to a child's row, and the transpose of the map.

    Both maps are functions of the pose of the child in the parent, and of the row.
    """

    to_child: Callable[[Any, Array], Array]
    to_parent: Callable[[Any, Array], Array]


def _pose_to_child(X: Pose, H: Array) -> Array:
    """The entries (..., 12) of the world pose of the child, from the entries H of the parent."""
    R, p = jnp.split(entries_matrix(H), [3], axis=-1)
    rotated = small_product(R, entries_matrix(pose_entries(X)))
    translation = times(p, jnp.array([0, 0, 0, 1], H.dtype))
    return (rotated + translation).reshape(*rotated.shape[:-2], 12)


def _pose_to_parent(X: Pose, C: Array) -> Array:
    """The transpose of `_pose_to_child`: `C = [A c]` becomes `[A R^T + c p^T, c]`."""
    C = entries_matrix(C)
    rotated = small_product(C, jnp.swapaxes(entries_matrix(pose_entries(X)), -1, -2))
    H = jnp.concatenate([rotated, jnp.broadcast_to(C[..., 3:], (*rotated.shape[:-1], 1))], axis=-1)
    return H.reshape(*H.shape[:-2], 12)


_MOTION = _Transform(inverse_transform_motion, transform_force)
_POSE = _Transform(_pose_to_child, _pose_to_parent)
_SAME_FRAME = _Transform(lambda _, x: x, lambda _, x: x)


# ------------------------------------------------- the linear systems; the last row is the world


def _solve_forward(
    topology: Topology, X: Pose | None, b: Array, world: Array | None, transform: _Transform
):
    """The solution y (nb, n) of `(1 - L) y = b`, where `world` (n,) is the row of the world."""
    world = jnp.zeros(b.shape[1:], b.dtype) if world is None else world
    y = lax.custom_linear_solve(
        lambda y: y - _from_parents(topology, X, y, transform),
        jnp.concatenate([b, world[None]]),
        lambda _, b: _forward_solver(topology, transform)(X, b),
        lambda _, f: _backward_solver(topology, transform)(X, f),
    )
    return y[: topology.nb]


def _solve_backward(topology: Topology, X: Pose | None, f: Array, transform: _Transform) -> Array:
    """The solution F (nb, n) of `(1 - L^T) F = f`."""
    F = lax.custom_linear_solve(
        lambda F: F - _from_children(topology, X, F, transform),
        jnp.pad(f, ((0, 1), (0, 0))),
        lambda _, f: _backward_solver(topology, transform)(X, f),
        lambda _, b: _forward_solver(topology, transform)(X, b),
    )
    return F[: topology.nb]


def _from_parents(topology: Topology, X: Pose | None, y: Array, transform: _Transform) -> Array:
    """`L y`: the parent's row in the frame of each body; zero for the world."""
    y_parent = y[parent_rows(topology.parents)]
    return jnp.concatenate([transform.to_child(X, y_parent), jnp.zeros_like(y[:1])])


def _from_children(topology: Topology, X: Pose | None, F: Array, transform: _Transform) -> Array:
    """`L^T F`: for each body and the world, the sum of its children's rows in the body's frame."""
    in_parents = transform.to_parent(X, F[: topology.nb])
    return jnp.zeros_like(F).at[parent_rows(topology.parents)].add(in_parents)


# ----------------------------------------------------------------------- the passes, body by body


def _forward_solver(topology: Topology, transform: _Transform):
    """The solver of `(1 - L) y = b`: a forward pass, as a function of X and b."""

    def step(y_parent, body):
        X_i, b_i = body
        return transform.to_child(X_i, y_parent) + b_i, None

    def forward(batch_axes, X, b):
        bodies, world = b[..., :-1, :], b[..., -1:, :]
        nodes, in_place = (X, bodies), b.shape[-1] <= _FEW_ENTRIES
        return forward_pass_of_batch(topology.parents, step, batch_axes, world, nodes, in_place)[0]

    def product(X, b):
        if transform is _SAME_FRAME:
            return matrix_times_rows(_supports(topology).T, b)
        return forward_by_products(topology, transform.to_child, X, b)

    def paths(X, b):
        X, b = _in_one_batch(X, b)
        join = affine(_composed, transform.to_child)
        world = jax.tree.map(lambda x: jnp.zeros_like(x[:1]), X), b[-1:]
        _, y = products_from_world(topology.parents, join, world, (X, b[:-1]))
        return jnp.concatenate([y, b[-1:]])

    return _solver(topology, transform, forward, product, paths)


def _backward_solver(topology: Topology, transform: _Transform):
    """The solver of `(1 - L^T) F = f`: a backward pass, as a function of X and f."""

    def step(F_i, X_i):
        return transform.to_parent(X_i, F_i), None

    def backward(batch_axes, X, f):
        in_place = f.shape[-1] <= _FEW_ENTRIES
        return backward_pass_of_batch(topology.parents, step, batch_axes, f, X, in_place)[0]

    def product(X, f):
        if transform is _SAME_FRAME:
            return matrix_times_rows(_supports(topology), f)
        return backward_by_products(topology, transform.to_parent, X, f)

    def paths(X, f):
        def join(above, below):
            (X, h), (X_below, h_below) = above, below
            return _composed(X, X_below), h + transform.to_parent(X, h_below)

        def to_parents(level, f, X):
            return level.products_to_tips(join, (X, transform.to_parent(X, f)))[1]

        X, f = _in_one_batch(X, f)
        return sums_of_children(topology.parents, to_parents, f, X)

    return _solver(topology, transform, backward, product, paths)


def _composed(X: Pose | None, X_below: Pose | None) -> Pose | None:
    """The composed pose of two bodies that follow each other; None in one common frame."""
    return None if X is None or X_below is None else compose(X, X_below)


def _in_one_batch(X: Pose | None, rows: Array) -> tuple[Pose | None, Array]:
    """The poses (nb, *batch) and the rows (nb + 1, *batch, n), where both have the same batch."""
    if X is None:
        return None, rows
    X = in_one_batch(X)
    batch = jnp.broadcast_shapes(X.p.shape[1:-1], rows.shape[1:-1])
    return X, jnp.broadcast_to(rows, (len(rows), *batch, rows.shape[-1]))


def _solver(
    topology: Topology,
    transform: _Transform,
    one_pass: Callable,
    product: Callable,
    paths: Callable,
):
    """A function of the transforms and the rows that solves the linear system of the tree.

    It solves the system by a pass, by the product with a matrix, or by products along paths: the
    context `implementation` selects one of them. By default it takes the faster one of the first
    two.

    The product takes one step, and the pass takes nb steps. On a GPU each step launches several
    kernels. On a CPU the pass is faster for batches, because the pass adds fewer rows: `crba` of a
    batch is 15 % faster with the pass. But for one state, the product is faster on a CPU if all
    rows are in one common frame, because it needs no transforms then.
    """

    def chosen(batch_axes, *operands):
        by_pass = functools.partial(one_pass, batch_axes)
        by_product = nodes_first(product, batch_axes)
        by_paths = nodes_first(paths, batch_axes)

        selected = current_implementation()
        if selected != "automatic":
            solve = {"products": by_product, "parallel": by_paths}.get(selected, by_pass)
            return solve(*operands)
        if topology.nb > _DENSE:
            return by_pass(*operands)

        # Sums in one common frame need no transforms.
        one_frame = transform is _SAME_FRAME
        few = number_of_states(batch_axes, *operands) <= _MANY_STATES
        on_cpu = by_product if one_frame and not batch_axes else by_pass
        on_gpu = by_product if one_frame or few else by_pass

        if on_cpu is on_gpu:
            return on_cpu(*operands)
        return by_platform(on_cpu, on_gpu, *operands)

    return in_batches(chosen)


def _supports(topology: Topology) -> np.ndarray:
    """`[i, j]`: whether row i supports row j, (nb + 1, nb + 1); the world supports all rows."""
    return np.vstack([np.pad(topology.supports, ((0, 0), (0, 1))), np.ones(topology.nb + 1)])
