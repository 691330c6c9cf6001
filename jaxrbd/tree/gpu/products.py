"""Passes over the bodies as products with a constant 0/1 matrix, in one frame per tree.

All bodies are computed at once, in a few large operations. So a GPU needs few kernels, but it
reads and writes more bytes than for a pass body by body. The common frame of a tree is the frame of
its root body, so no digits are lost far from the origin of the world.

An array (nb, ...) has the batch axes after the axis of the bodies. `to_child` and `to_parent` are
from `tree/linear_systems.py`: `to_child` transforms a row from frame A to frame B, where X is the
pose of B in A, and `to_parent` is the transpose of this transform.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..._math.linear import matmul
from ...spatial import Pose, compose, identity_pose, inverse
from ...topology import Topology

Transform = Callable[[Pose, Array], Array]


def forward_by_products(topology: Topology, to_child: Transform, X: Pose, b: Array) -> Array:
    """The rows `y_i = to_child(X_i, y_p(i)) + b_i`, (nb + 1, ...), of the bodies and the world.

    `b` (nb + 1, ...): the last row is the row of the world.
    """
    nb, X = topology.nb, in_one_batch(X)
    X_RB = poses_in_roots(topology, X)
    from_world = to_child(X, b[nb:])
    b_bodies = b[:nb] + jnp.where(_expand_to_rows(is_root(topology), from_world), from_world, 0)
    y = to_child(X_RB, matrix_times_rows(topology.supports.T, to_child(inverse(X_RB), b_bodies)))
    return jnp.concatenate([y, jnp.broadcast_to(b[nb:], (1, *y.shape[1:]))])


def backward_by_products(topology: Topology, to_parent: Transform, X: Pose, f: Array) -> Array:
    """The rows `F_i = f_i + sum over children j of to_parent(X_j, F_j)`, (nb + 1, ...).

    `f` (nb + 1, ...): the last row is the row of the world.
    """
    nb, X = topology.nb, in_one_batch(X)
    X_RB = poses_in_roots(topology, X)
    sums = matrix_times_rows(topology.supports, to_parent(X_RB, f[:nb]))
    F = to_parent(inverse(X_RB), sums)
    in_world = to_parent(X, F)
    roots = jnp.where(_expand_to_rows(is_root(topology), in_world), in_world, 0)
    return jnp.concatenate([F, f[nb:] + jnp.sum(roots, axis=0, keepdims=True)])


def poses_in_roots(topology: Topology, X: Pose) -> Pose:
    """The poses (nb, ...) of the bodies in the root body of their tree, by pointer doubling.

    Before step k, the pose of a body is relative to its ancestor 2^k levels above it, or to the
    root. The first step is step 0.
    """
    roots = is_root(topology)
    unit = identity_pose(X.p.dtype)
    R = jnp.where(_expand_to_rows(roots, X.R), unit.R, X.R)
    X = Pose(R, jnp.where(_expand_to_rows(roots, X.p), unit.p, X.p))
    ancestor = np.where(roots, np.arange(topology.nb), topology.parents)
    while not np.all(roots[ancestor]):
        X = compose(Pose(X.R[ancestor], X.p[ancestor]), X)
        ancestor = ancestor[ancestor]
    return X


def in_one_batch(X: Pose) -> Pose:
    """The poses, with R and p repeated along batch axes of size 1 to the same batch axes.

    The first axis of R and p is the bodies, and the batch axes follow it.
    """
    batch = jnp.broadcast_shapes(X.R.shape[1:-2], X.p.shape[1:-1])
    return Pose(
        jnp.broadcast_to(X.R, (len(X.R), *batch, 3, 3)),
        jnp.broadcast_to(X.p, (len(X.p), *batch, 3)),
    )


def is_root(topology: Topology) -> np.ndarray:
    """Whether the parent of each body is the world, (nb,)."""
    return np.array(topology.parents) < 0


def matrix_times_rows(A: np.ndarray, rows: Array) -> Array:
    """The product of A (n, n) with rows (n, ...)."""
    return matmul(jnp.asarray(A, rows.dtype), rows.reshape(len(rows), -1)).reshape(rows.shape)


def _expand_to_rows(x: np.ndarray, rows: Array) -> np.ndarray:
    """x (n,), with axes of size 1 to broadcast along the rows (n, ...)."""
    return x.reshape(-1, *(1,) * (rows.ndim - 1))
