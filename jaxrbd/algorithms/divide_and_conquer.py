"""Forward dynamics of logarithmic depth: articulated bodies, composed by divide and conquer.

All quantities are in the frames of the nodes of the dof tree, so the lever arms are short, however
long a chain is. X is the transform of motions from the parent node to the node, S the motion vector
of the dof, d the armature, and I the inertia of the node and of its children off the path, whose
dofs are eliminated.

A segment is a part of a heavy path (tree/paths.py): a node and the nodes below it, up to a last
node, the tip. Let a be the acceleration of the parent of the segment. A body at the tip needs the
force f for its acceleration a_tip, so it acts on the segment with the force -f. Without bias forces
the segment obeys

    a_tip = A a - C f,    force of the parent on the segment = J a + A^T f.

C is the inverse inertia at the tip if the parent is at rest. J is the articulated-body inertia at
the parent if no body is at the tip. For one node, with `U = I S`, `D = S . U + d` and
`R = 1 - S U^T / D`, the segment is `A = R X`, `C = S S^T / D`, `J = X^T (I - U U^T / D) X`. Two
segments (1 above 2) make a segment

    A = A_2 M A_1,    C = C_2 + A_2 M C_1 A_2^T,    J = J_1 + A_1^T J_2 M A_1,

with `M = (1 + C_1 J_2)^-1`. J and C are positive semidefinite, so the inverse exists. This product
is associative. J of the segment from a node to the tip of its path is what the node adds to the
articulated-body inertia of its parent.

D is zero for a node without inertia and armature, such as the first nodes of a ball joint. So each
node i except the first one of a path moves a part P_i of its inertia to its parent. With the heavy
child c of node i, `P_i = X_i^T (I_i + P_c) X_i / 2`, where P_c is 0 at the tip. The segment of node
i has `I_i + P_c` in place of I_i, and `J_i - P_i` in place of J_i. The sum of the inertias does not
change, and D is positive wherever a node further down the path has inertia. `J_i - P_i` can be
indefinite, but M exists: if P is the part that moves to the tip of segment 1, then
`M^-1 = (1 + C_1 P)^-1 (1 + C_1 J_2)`,
with C_1 and J_2 of the segments before the move.

The remaining passes are affine maps. Let p be the articulated bias force of a node: the bias force
of the node plus the addends of its children. c is the bias acceleration. With the articulated-body
inertia Y, U, D and R computed from Y, and `F = R X`, the maps are

    addend to p of the parent = F^T (p + Y c) + X^T U tau / D,
    acceleration = F a + R c + S u / D,    u = tau - S . p.

Sources: Featherstone (1999), A divide-and-conquer articulated-body algorithm for parallel O(log(n))
calculation of rigid-body dynamics; for the form of the segments, which needs no inverses of
inertias: Sarkka and Garcia-Fernandez (2023), Temporal parallelization of dynamic programming and
linear quadratic control.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._math.linear import einsum, matmul, solve
from ..model import Model
from ..tree import affine, products_from_world, sums_of_children
from .dof_tree import DofTree, dof_tree
from .kinematics import Kinematics
from .rnea import gravity_acceleration


def divide_and_conquer(
    model: Model, q: Array | Kinematics, v: Array, tau: Array, f_ext: Array | None = None
) -> Float[Array, " nv"]:
    """Acceleration of the robot under the joint forces tau, in logarithmic depth, (nv,).

    Arguments and result as for `forward_dynamics`. There is no rule for the derivatives: JAX
    differentiates the program. Needs a model whose velocity map G is the identity. Source: the head
    of this file.
    """
    nodes, parents = dof_tree(model, q, v, tau, f_ext), model.topology.dof_parent
    Y = articulated_inertias(parents, nodes)
    U, D, R = _eliminated(nodes, Y)
    F = matmul(R, nodes.X)

    def to_parents(level, p, data):
        """What each node of a `Level` of heavy paths adds to p of its parent."""
        F_T, addend = data
        return level.products_to_tips(_join_forces, (F_T, _apply(F_T, p) + addend))[1]

    F_T = _transposed(F)
    addend = _apply(F_T, _apply(Y, nodes.c)) + einsum(
        "nij,ni->nj", nodes.X, U * (nodes.tau / D)[:, None]
    )
    p = sums_of_children(parents, to_parents, _with_world(nodes.p), (F_T, addend))[:-1]
    u = nodes.tau - jnp.sum(nodes.S * p, axis=-1)

    world = jnp.zeros_like(F[:1]), gravity_acceleration(model)[None]
    b = _apply(R, nodes.c) + nodes.S * (u / D)[:, None]
    join = affine(lambda F, F_below: matmul(F_below, F), _apply)
    A = jnp.concatenate([products_from_world(parents, join, world, (F, b))[1], world[1]])
    a = _apply(nodes.X, A[parents]) + nodes.c  # the parent -1 is the last row of A, the world
    return (u - jnp.sum(U * a, axis=-1)) / D


def articulated_inertias(parents: np.ndarray, nodes: DofTree) -> Float[Array, "nv 6 6"]:
    """The articulated-body inertias of the nodes of a dof tree, each in the frame of its node."""

    def to_parents(level, I, nodes):
        """What each node of a `Level` of heavy paths adds to the inertia of its parent."""
        scaled = nodes.X / jnp.sqrt(jnp.array(2, I.dtype))  # so that P has the factor 1/2
        moved = level.products_to_tips(_join_moved, (scaled, _congruent(scaled, I)))[1]
        moved = jnp.where(level.is_start[:, None, None], 0, moved)
        Y = I + level.rows_of_heavy_child(moved)
        U, D, R = _eliminated(nodes, Y)
        S = nodes.S
        C = S[:, :, None] * (S / D[:, None])[:, None]
        J = _congruent(nodes.X, Y - U[:, :, None] * (U / D[:, None])[:, None]) - moved
        segments = matmul(R, nodes.X), C, J
        return level.products_to_tips(jax.vmap(_join_segments), segments)[2] + moved

    return sums_of_children(parents, to_parents, _with_world(nodes.I), nodes)[:-1]


def _eliminated(nodes: DofTree, Y: Array) -> tuple[Array, Array, Array]:
    """U (nv, 6), D (nv,) and R (nv, 6, 6) of nodes with the articulated-body inertias Y."""
    U = _apply(Y, nodes.S)
    D = jnp.sum(nodes.S * U, axis=-1) + nodes.armature
    one = jnp.eye(6, dtype=Y.dtype)[None]
    return U, D, one - nodes.S[:, :, None] * (U / D[:, None])[:, None]


def _join_segments(above, below):
    """The segment of two segments, by the formulas at the head of this file."""
    (A_1, C_1, J_1), (A_2, C_2, J_2) = above, below
    M = jnp.eye(6, dtype=A_1.dtype) + matmul(C_1, J_2)
    solved = solve(M, jnp.concatenate([A_1, matmul(C_1, A_2.T)], axis=1))
    MA, MCA = solved[:, :6], solved[:, 6:]
    C, J = C_2 + matmul(A_2, MCA), J_1 + matmul(A_1.T, matmul(J_2, MA))
    return matmul(A_2, MA), (C + C.T) / 2, (J + J.T) / 2


def _join_moved(above, below):
    """The inertias P of the head of this file, as products along a path."""
    (X, P), (X_below, P_below) = above, below
    return matmul(X_below, X), P + _congruent(X, P_below)


def _join_forces(above, below):
    """The affine map of two segments.

    It maps an addend to p of their tip to the addend to p of their parent.
    """
    (F_T, h), (F_T_below, h_below) = above, below
    return matmul(F_T, F_T_below), h + _apply(F_T, h_below)


def _congruent(X: Array, Y: Array) -> Array:
    """The inertias `X^T Y X` in the frames of the parents, (..., 6, 6)."""
    return matmul(_transposed(X), matmul(Y, X))


def _apply(A: Array, x: Array) -> Array:
    """The products `A x` of matrices (..., 6, 6) with vectors (..., 6)."""
    return einsum("...ij,...j->...i", A, x)


def _transposed(A: Array) -> Array:
    return jnp.swapaxes(A, -1, -2)


def _with_world(rows: Array) -> Array:
    """The rows (nv, ...), and a zero row for the world."""
    return jnp.concatenate([rows, jnp.zeros((1, *rows.shape[1:]), rows.dtype)])
