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

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from ._components import Mat3, Vec3
from .spatial import Pose, compose, inverse_transform_motion, transform_force
from .topology import Topology

# Up to so many bodies, a product with a constant 0/1 matrix beats a gather or a scatter on a CPU.
_DENSE = 128

Hand = Callable[[Any, Array], Array]


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
    if world is not None:
        roots = np.flatnonzero(np.array(topology.parents) < 0)
        b = b.at[roots].add(inverse_transform_motion(Pose(X.R[roots], X.p[roots]), world))
    return _solve(
        lambda y: y - _down(topology, X, y, inverse_transform_motion),
        b,
        solve=lambda b: _sweep_down(topology, X, b, inverse_transform_motion),
        transpose_solve=lambda f: _sweep_up(topology, X, f, transform_force),
    )


def accumulate(topology: Topology, X: Pose, f: Float[Array, "nb 6"]) -> Float[Array, "nb 6"]:
    """Leaves to root: `F_i = f_i + sum over children j of iX_j* F_j`, in each body's frame.

    The transpose of `propagate`. `X`: poses of the bodies in their parents.
    Source: Featherstone (5.20).
    """
    return _solve(
        lambda F: F - _up(topology, X, F, transform_force),
        f,
        solve=lambda f: _sweep_up(topology, X, f, transform_force),
        transpose_solve=lambda b: _sweep_down(topology, X, b, inverse_transform_motion),
    )


def compose_poses(topology: Topology, X: Pose) -> Pose:
    """Poses of the bodies in the world, `X_Wi = X_Wp(i) X_p(i)i`: R (nb, 3, 3) and p (nb, 3).

    `compose` is linear in its first operand, so this too is a solve, for the numbers of the world
    poses. The world's own pose is the identity: the right-hand side is X at the roots, zero
    elsewhere.
    """
    roots = np.array(topology.parents) < 0
    H = _solve(
        lambda H: H - _down(topology, X, H, _pose_to_child),
        jnp.where(roots[:, None], _numbers(X), 0),
        solve=lambda b: _sweep_down(topology, X, b, _pose_to_child),
        transpose_solve=lambda c: _sweep_up(topology, X, c, _pose_to_parent),
    )
    return _pose(H)


def sum_to_leaves(topology: Topology, b: Float[Array, "nb n"]) -> Float[Array, "nb n"]:
    """`y_i = sum of b_j over the j that support i`: `propagate` where all share one frame."""
    if topology.nb <= _DENSE:
        return jnp.matmul(_supports(topology, b.dtype).T, b, precision="highest")
    return _solve(
        lambda y: y - _down(topology, None, y, _same),
        b,
        solve=lambda b: _sweep_down(topology, None, b, _same),
        transpose_solve=lambda f: _sweep_up(topology, None, f, _same),
    )


def sum_to_root(topology: Topology, f: Float[Array, "nb n"]) -> Float[Array, "nb n"]:
    """`F_i = sum of f_j over the j that i supports`: `accumulate` where all share one frame.

    The transpose of `sum_to_leaves`.
    """
    if topology.nb <= _DENSE:
        return jnp.matmul(_supports(topology, f.dtype), f, precision="highest")
    return _solve(
        lambda F: F - _up(topology, None, F, _same),
        f,
        solve=lambda f: _sweep_up(topology, None, f, _same),
        transpose_solve=lambda b: _sweep_down(topology, None, b, _same),
    )


def _supports(topology: Topology, dtype) -> Array:
    return jnp.asarray(topology.supports, dtype)


def _same(_: None, x: Array) -> Array:
    return x


def _numbers(X: Pose) -> Array:
    """The twelve numbers of a pose, (..., 12)."""
    return jnp.concatenate([X.R.reshape(*X.R.shape[:-2], 9), X.p], axis=-1)


def _pose(H: Array) -> Pose:
    return Pose(H[..., :9].reshape(*H.shape[:-1], 3, 3), H[..., 9:])


def _pose_to_child(X: Pose, H: Array) -> Array:
    """The numbers (..., 12) of the child's world pose from those of its parent's."""
    return _numbers(compose(_pose(H), X))


def _pose_to_parent(X: Pose, C: Array) -> Array:
    """The transpose of `_pose_to_child`: `(C, c)` becomes `(C R^T + c p^T, c)`."""
    c, p = Vec3.of(C[..., 9:]), Vec3.of(X.p)
    lever = Mat3(c.x * p, c.y * p, c.z * p)
    turned = Mat3.of(C[..., :9].reshape(*C.shape[:-1], 3, 3)) @ Mat3.of(X.R).T
    return _numbers(Pose((turned + lever).array(), C[..., 9:]))


# ------------------------------------------------------------- one step of every body at once


def _down(topology: Topology, X: Pose | None, y: Array, hand: Hand) -> Array:
    """`L y`: what each body is handed by its parent, zero at the roots."""
    parents = np.array(topology.parents, dtype=int)
    if topology.nb <= _DENSE:
        at_parent = jnp.matmul(_children(parents, y.dtype).T, y, precision="highest")
    else:
        at_parent = jnp.where(parents[:, None] < 0, 0, y[parents])
    return hand(X, at_parent)


def _up(topology: Topology, X: Pose | None, f: Array, hand: Hand) -> Array:
    """`L^T f`: what each body is handed by its children."""
    parents = np.array(topology.parents, dtype=int)
    handed = hand(X, f)
    if topology.nb <= _DENSE:
        return jnp.matmul(_children(parents, f.dtype), handed, precision="highest")
    padded = jnp.zeros((topology.nb + 1, f.shape[1]), f.dtype)
    return padded.at[parents].add(handed)[: topology.nb]


def _children(parents: np.ndarray, dtype) -> Array:
    """`[i, j]` is 1 where body j is a child of body i."""
    return jnp.asarray(parents == np.arange(len(parents))[:, None], dtype)


# ------------------------------------------------------------------------- the sweeps, body by body


def _sweep_down(topology: Topology, X: Pose | None, b: Array, hand: Hand) -> Array:
    """Solve `(1 - L) y = b` from the roots down; the buffer's last row is the world's zero."""

    def body(y, step):
        i, parent, X_i, b_i = step
        y_i = hand(X_i, lax.dynamic_index_in_dim(y, parent, keepdims=False)) + b_i
        return lax.dynamic_update_index_in_dim(y, y_i, i, 0), None

    y0 = jnp.zeros((topology.nb + 1, b.shape[1]), b.dtype)
    y, _ = lax.scan(body, y0, (*_numbering(topology), X, b))
    return y[: topology.nb]


def _sweep_up(topology: Topology, X: Pose | None, f: Array, hand: Hand) -> Array:
    """Solve `(1 - L^T) F = f` from the leaves up; the buffer's last row collects the world's."""

    def body(F, step):
        i, parent, X_i = step
        handed = hand(X_i, lax.dynamic_index_in_dim(F, i, keepdims=False))
        at_parent = lax.dynamic_index_in_dim(F, parent, keepdims=False) + handed
        return lax.dynamic_update_index_in_dim(F, at_parent, parent, 0), None

    F0 = jnp.concatenate([f, jnp.zeros((1, f.shape[1]), f.dtype)])
    F, _ = lax.scan(body, F0, (*_numbering(topology), X), reverse=True)
    return F[: topology.nb]


def _numbering(topology: Topology) -> tuple[Array, Array]:
    """Each body's row in the buffer and its parent's; the world's row is the last."""
    i = np.arange(topology.nb, dtype=np.int32)
    parents = np.array(topology.parents, dtype=np.int32)
    return jnp.asarray(i), jnp.asarray(np.where(parents < 0, topology.nb, parents))


def _solve(matvec, b: Array, *, solve, transpose_solve) -> Array:
    return lax.custom_linear_solve(
        matvec, b, lambda _, rhs: solve(rhs), lambda _, rhs: transpose_solve(rhs)
    )
