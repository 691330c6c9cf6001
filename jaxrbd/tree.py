"""The sweeps over the tree, as the solves that they are.

Let L be the operator that hands each body its parent's motion: `(L y)_i = iX_p(i) y_p(i)`. A
sweep from the root to the leaves solves `(1 - L) y = b`, one from the leaves to the root solves
with the transpose, and composing the poses solves with a third such operator. Each is stated to
JAX as a linear solve, with a `lax.scan` as the solver: JAX then differentiates the *solve*, in
both modes and to any order, and never the scan. These scans are the only ones over the tree
(the articulated-body recursion excepted), so the program's size does not depend on the number of
bodies.

`lax.custom_linear_solve` trusts its operator: tests/test_tree.py checks that each solver inverts
its operator, and that `propagate` and `accumulate` are transposes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_batching import custom_vmap
from jaxtyping import Float

from ._math.components import small_product
from ._math.linear import matmul
from .spatial import Pose, identity_pose, inverse_transform_motion, transform_force
from .topology import Topology

# Up to so many bodies, sums over the tree may be a product with a constant 0/1 matrix.
_DENSE = 128


def propagate(
    topology: Topology,
    X: Pose,
    b: Float[Array, "nb 6"],
    world: Float[Array, "6"] | None = None,
) -> Float[Array, "nb 6"]:
    """Root to leaves: `y_i = iX_p(i) y_p(i) + b_i`, motions in each body's frame.

    `X`: poses of the bodies in their parents; `world`: the world's own motion, in its axes
    (default zero). Source: Featherstone (5.7), (5.8).
    """
    return _from_world(topology, X, b, world, _MOTION)


def accumulate(topology: Topology, X: Pose, f: Float[Array, "nb 6"]) -> Float[Array, "nb 6"]:
    """Leaves to root: `F_i = f_i + sum over children j of iX_j* F_j`, in each body's frame.

    The transpose of `propagate`. `X`: poses of the bodies in their parents.
    Source: Featherstone (5.20).
    """
    return _to_world(topology, X, f, _MOTION)


def compose_poses(topology: Topology, X: Pose) -> Pose:
    """Poses of the bodies in the world, `X_Wi = X_Wp(i) X_p(i)i`: R (nb, 3, 3) and p (nb, 3).

    `compose` is linear in its first operand, so this too is a solve, for the numbers of the world
    poses: what a body has beside what it is handed is nothing, and the world is the identity.
    """
    nothing = jnp.zeros((topology.nb, 12), X.p.dtype)
    world = _numbers(identity_pose(X.p.dtype))
    return _pose(_from_world(topology, X, nothing, world, _POSE))


def sum_to_leaves(topology: Topology, b: Float[Array, "nb n"]) -> Float[Array, "nb n"]:
    """`y_i = sum of b_j over the j that support i`: `propagate` where all share one frame."""
    return _from_world(topology, None, b, None, _SAME_FRAME)


def sum_to_root(topology: Topology, f: Float[Array, "nb n"]) -> Float[Array, "nb n"]:
    """`F_i = sum of f_j over the j that i supports`: `accumulate` where all share one frame.

    The transpose of `sum_to_leaves`.
    """
    return _to_world(topology, None, f, _SAME_FRAME)


# --------------------------------------------------------------- what one body hands to another


class _Transfer(NamedTuple):
    """What a parent hands its child through the child's pose, and the transpose of that."""

    down: Callable[[Any, Array], Array]
    up: Callable[[Any, Array], Array]


def _numbers(X: Pose) -> Array:
    """The twelve numbers of a pose, `[R p]` row by row, (..., 12)."""
    p = X.p[..., None]
    if p.shape[:-2] != X.R.shape[:-2]:  # where a batch has one of them in common
        p = p + jnp.zeros_like(X.R[..., :1])
    R = X.R if p.shape[:-1] == X.R.shape[:-1] else X.R + jnp.zeros_like(p)
    H = jnp.concatenate([R, p], axis=-1)
    return H.reshape(*H.shape[:-2], 12)


def _matrix(numbers: Array) -> Array:
    return numbers.reshape(*numbers.shape[:-1], 3, 4)


def _pose(numbers: Array) -> Pose:
    H = _matrix(numbers)
    return Pose(H[..., :3], H[..., 3])


def _pose_to_child(X: Pose, H: Array) -> Array:
    """The numbers (..., 12) of the child's world pose from those of its parent's."""
    R, p = jnp.split(_matrix(H), [3], axis=-1)
    turned = small_product(R, _matrix(_numbers(X)))
    moved = p * jnp.array([0, 0, 0, 1], H.dtype)
    return (turned + moved).reshape(*turned.shape[:-2], 12)


def _pose_to_parent(X: Pose, C: Array) -> Array:
    """The transpose of `_pose_to_child`: `[C c]` becomes `[C R^T + c p^T, c]`."""
    C = _matrix(C)
    turned = small_product(C, jnp.swapaxes(_matrix(_numbers(X)), -1, -2))
    H = jnp.concatenate([turned, jnp.broadcast_to(C[..., 3:], (*turned.shape[:-1], 1))], axis=-1)
    return H.reshape(*H.shape[:-2], 12)


_MOTION = _Transfer(inverse_transform_motion, transform_force)
_POSE = _Transfer(_pose_to_child, _pose_to_parent)
_SAME_FRAME = _Transfer(lambda _, x: x, lambda _, x: x)


# ------------------------------------------------------- the solves; the world is the last row


def _from_world(topology: Topology, X: Pose | None, b: Array, world: Array | None, hand: _Transfer):
    """Solve `(1 - L) y = b` below a world that is given; the bodies' rows of y."""
    world = jnp.zeros(b.shape[1:], b.dtype) if world is None else world
    y = lax.custom_linear_solve(
        lambda y: y - _down(topology, X, y, hand),
        jnp.concatenate([b, world[None]]),
        lambda _, b: _sweep_down(topology, hand)(X, b),
        lambda _, f: _sweep_up(topology, hand)(X, f),
    )
    return y[: topology.nb]


def _to_world(topology: Topology, X: Pose | None, f: Array, hand: _Transfer) -> Array:
    """Solve `(1 - L^T) F = f`, the transpose."""
    F = lax.custom_linear_solve(
        lambda F: F - _up(topology, X, F, hand),
        jnp.pad(f, ((0, 1), (0, 0))),
        lambda _, f: _sweep_up(topology, hand)(X, f),
        lambda _, b: _sweep_down(topology, hand)(X, b),
    )
    return F[: topology.nb]


def _down(topology: Topology, X: Pose | None, y: Array, hand: _Transfer) -> Array:
    """`L y`: what each body is handed by its parent; nothing is handed to the world."""
    at_parent = y[parent_rows(topology.parents)]
    return jnp.concatenate([hand.down(X, at_parent), jnp.zeros_like(y[:1])])


def _up(topology: Topology, X: Pose | None, F: Array, hand: _Transfer) -> Array:
    """`L^T F`: what each body, and the world, is handed by its children."""
    handed = hand.up(X, F[: topology.nb])
    return jnp.zeros_like(F).at[parent_rows(topology.parents)].add(handed)


def parent_rows(parents: Sequence[int] | np.ndarray) -> np.ndarray:
    """The row of each node's parent, (n,); the world's is the last, n."""
    rows = np.array(parents, dtype=np.int32)
    return np.where(rows < 0, len(rows), rows)


# ------------------------------------------------------------------------- the sweeps, body by body


def _sweep_down(topology: Topology, hand: _Transfer):
    """The solver of `(1 - L) y = b`, from the roots down, as a function of X and b."""

    def body(y, step):
        (i, parent, X_i), b_i = step
        return put_row(y, i, hand.down(X_i, row_at(y, parent)) + b_i), None

    def sweep(X, b):
        b = _spread(X, b)
        y = jnp.concatenate([jnp.zeros_like(b[: topology.nb]), b[topology.nb :]])
        return lax.scan(body, y, (_steps(topology, X), b[: topology.nb]))[0]

    def product(_, b):
        return _rows_by(_supports(topology).T, b)

    return _solver(topology, hand, sweep, product)


def _sweep_up(topology: Topology, hand: _Transfer):
    """The solver of `(1 - L^T) F = f`, from the leaves up, as a function of X and f."""

    def body(F, step):
        i, parent, X_i = step
        at_parent = row_at(F, parent) + hand.up(X_i, row_at(F, i))
        return put_row(F, parent, at_parent), None

    def sweep(X, f):
        return lax.scan(body, _spread(X, f), _steps(topology, X), reverse=True)[0]

    def product(_, f):
        return _rows_by(_supports(topology), f)

    return _solver(topology, hand, sweep, product)


def _solver(topology: Topology, hand: _Transfer, sweep: Callable, product: Callable):
    """The sweep; or, where all share one frame, the product with a 0/1 matrix that it comes to.

    The product is one step where the sweep is nb. On a CPU the sweep, which has less to add, is the
    faster as soon as there is a batch: crba by 15 %.
    """

    def faster(X, b):
        if hand is not _SAME_FRAME or topology.nb > _DENSE:
            return sweep(X, b)
        if b.ndim == 2:
            return product(X, b)
        return lax.platform_dependent(X, b, cpu=sweep, default=product)

    return batched_behind_nodes(faster)


def _supports(topology: Topology) -> np.ndarray:
    """`[i, j]`: whether row i is j or supports it, (nb + 1, nb + 1); the world supports all."""
    return np.vstack([np.pad(topology.supports, ((0, 0), (0, 1))), np.ones(topology.nb + 1)])


def _rows_by(A: np.ndarray, rows: Array) -> Array:
    """The rows (n, ...) that A (n, n) makes of rows (n, ...)."""
    return matmul(jnp.asarray(A, rows.dtype), rows.reshape(len(rows), -1)).reshape(rows.shape)


def _steps(topology: Topology, X: Pose | None):
    i = np.arange(topology.nb, dtype=np.int32)
    return jnp.asarray(i), jnp.asarray(parent_rows(topology.parents)), X


def row_at(x: Array, i: Array) -> Array:
    """`x[i]`, in a scan that `batched_behind_nodes` batches."""
    return lax.dynamic_index_in_dim(x, i, keepdims=False)


def put_row(x: Array, i: Array, row: Array) -> Array:
    """x with the row i replaced."""
    return lax.dynamic_update_index_in_dim(x, row, i, 0)


def _spread(X: Pose | None, b: Array) -> Array:
    return b if X is None else spread(b, X.R[..., 0, 0] + X.p[..., 0])


def spread(x: Array, like: Array) -> Array:
    """x (n, ...), repeated along the batch's axes that `like` (n, ...) has and x has not.

    By an addition, and not by a broadcast, so that it is split over devices as `like` is.
    """
    axes = like.ndim
    lacks = any(n != 1 and own == 1 for n, own in zip(like.shape[1:], x.shape[1:axes]))
    return x + jnp.expand_dims(jnp.zeros_like(like[:1]), tuple(range(axes, x.ndim))) if lacks else x


def batched_behind_nodes(sweep: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays with an axis of bodies (or dofs) in front, for scans over that axis.

    Under `vmap` it runs once, on arrays whose second axis is the batch's. The rows that a step
    reads and writes then lie side by side, and it stays a slice of the buffer, where the batching
    rules of JAX would make it a gather and a scatter. All results get the batch's axis.
    """
    batched_sweep = custom_vmap(sweep)

    @batched_sweep.def_vmap
    def rule(_, batched, *operands):
        def behind_nodes(x, is_batched):
            return jnp.moveaxis(x, 0, 1) if is_batched else x[:, None]

        results = batched_sweep(*jax.tree.map(behind_nodes, operands, tuple(batched)))
        in_front = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), results)
        return in_front, jax.tree.map(lambda _: True, results)

    return batched_sweep
