"""The KKT system of a robot under implicit constraints.

For constraints `K a = k`, the acceleration a of the robot and the multipliers lambda solve the KKT
system, Featherstone (3.17),

    [M  K^T] [    a    ]   [tau - bias]
    [K   0 ] [-lambda  ] = [     k    ].

Let W be the inverse of the Cholesky factor of M, so that `W M W^T = 1`. Let s be the diagonal
matrix of the scales of the rows of K, and `A = s K W^T`. Then `a = M^-1 (tau - bias) + W^T u` with
`A u = s (k - K M^-1 (tau - bias))`, and the pseudo-inverse of A gives u.

Rows may be redundant, as for a planar linkage with a hinge (five equations) as its loop constraint,
or for a door on two hinges. The acceleration is then still unique. Of all possible multipliers, the
solver returns the multipliers with the least `|lambda / s|`. A row is redundant if the part of the
row that is independent of the other rows is as small as the rounding errors of K. So masses, units
and the scaling of an equation do not matter.

If constraints contradict each other, the solver minimises `|s (k - K a)|`. At this minimum, the
vector `e = s^2 (k - K a)` satisfies `K^T e = 0`. Without a contradiction e is 0.

Derivatives are computed from the equations, not from the solver. The derivatives are right to any
order where the rank of K does not change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from .._math.linear import REDUNDANT, inverse_factor, matmul, pseudo_inverse
from .kinds import ConstraintRows


class ScaledRows(NamedTuple):
    """Rows of K, scaled, in coordinates in which the mass matrix is the identity.

    - `A` (m, nv): `s K W^T`, with `W` (nv, nv) the inverse of the Cholesky factor of M;
    - `s` (m,): the scale of each row, 0 for a row that consists of rounding errors;
    - `inverse` (nv, m): the pseudo-inverse of A;
    - `error` (m,): for each row of A, an estimate of the norm of the rounding errors; 1 for a row
      with the scale 0.

    JAX treats these arrays as constants.
    """

    A: Float[Array, "m nv"]
    W: Float[Array, "nv nv"]
    s: Float[Array, " m"]
    inverse: Float[Array, "nv m"]
    error: Float[Array, " m"]


def scaled_rows(M: Float[Array, "nv nv"], rows: ConstraintRows) -> ScaledRows:
    """The scaled rows `s K`: a unit multiplier of such a row changes its `s K a` by about 1."""
    M, rows = lax.stop_gradient((M, rows))
    assert rows.K_terms is not None  # `constraint_blocks` sets them
    W = inverse_factor(M)
    eps = float(jnp.finfo(W.dtype).eps)
    A, terms = matmul(rows.K, W.T), matmul(rows.K_terms, jnp.abs(W).T)
    error = eps * jnp.sqrt(jnp.sum(terms * terms, axis=1))
    significant = jnp.sum(A * A, axis=1) > (REDUNDANT * error) ** 2
    s = jnp.where(significant, 1 / jnp.sqrt(jnp.where(significant, row_weights(M, rows.K), 1)), 0)
    A, error = s[:, None] * A, jnp.where(significant, s * error, 1)
    return ScaledRows(A, W, s, pseudo_inverse(A, error), error)


def row_weights(M: Array, K: Array) -> Array:
    """`1 / s^2` (m,): the diagonal of `K D^-1 K^T`, where D is the diagonal of M."""
    return jnp.sum(K * K / jnp.diagonal(M)[None], axis=1)


class Solution(NamedTuple):
    """The solution of a KKT system.

    x (nv,), lambda (m,), y (nv,) with `lambda = s^2 K y`, and `e = s^2 (k - K x)` (m,), which is 0
    unless constraints contradict each other.
    """

    x: Array
    multiplier: Array
    y: Array
    e: Array


def kkt_solver(M: Array, rows: ConstraintRows) -> Callable[[Array, Array, Array, Array], Solution]:
    """A function (force, k, rest, gradient) that solves the KKT system for x and lambda.

    The function `equations` below has four equations:

        M x - K^T lambda = force,     K x + e / s^2 = k,
        lambda / s^2 - K y = rest,    K^T e = gradient.

    Except for derivatives, `rest` (m,) and `gradient` (nv,) are 0. For redundant rows, lambda is
    not unique. The third equation selects the lambda with the least `|lambda / s|`, which is
    `s^2 K y` for some y. If constraints contradict each other, e is not 0, and the last equation is
    the condition for the least `|s (k - K x)|`. The unknowns are x, lambda, e and z (m,) with
    `y = W^T A^+ z`. The last equation is multiplied by the transpose of `W^T A^+`, so it has m
    rows. JAX treats W and the pseudo-inverse A^+ as constants. With the argument `many`, the
    function multiplies matrices first, which takes less time if `jax.vmap` calls it.
    """
    K, weights = rows.K, row_weights(M, rows.K)
    A, W, s, inverse, _ = scaled_rows(M, rows)
    sizes = [len(M), len(M) + len(K), len(M) + 2 * len(K)]

    def equations(unknown):
        x, multiplier, z, e = jnp.split(unknown, sizes)
        force, k = matmul(M, x) - matmul(K.T, multiplier), matmul(K, x) + weights * e
        rest = weights * multiplier - matmul(K, minimal(z))
        return jnp.concatenate([force, k, rest, in_range(matmul(K.T, e))])

    def minimal(z):
        return matmul(W.T, matmul(inverse, z))

    def in_range(gradient):
        return matmul(inverse.T, matmul(W, gradient))

    fixed = lax.stop_gradient((K, weights))

    def solve(right):
        """The unknowns (n,) for the right-hand side (n,) of the equations."""
        K, _ = fixed
        force, k, rest, gradient = jnp.split(right, sizes)
        x = matmul(W.T, matmul(W, force))
        change = jnp.zeros_like(x)
        for _ in range(2):  # the second step corrects the rounding errors of the first
            step = matmul(inverse, s * (k - matmul(K, x)) - gradient)
            x, change = x + matmul(W.T, step), change + step
        # Of lambda / s, the first equation gives the part in the range of A, and the third equation
        # the part orthogonal to the range.
        independent = matmul(A, matmul(inverse, s * rest))
        return unknowns(x, matmul(inverse.T, change) + s * rest - independent, k, rest)

    def solve_many(right):
        """As `solve`, for many right-hand sides: the products of matrices are formed once."""
        force, k, rest, gradient = jnp.split(right, sizes)
        # The two steps of `solve` together.
        both_steps = 2 * inverse - matmul(inverse, matmul(A, inverse))
        to_x = matmul(W.T, both_steps)
        free = matmul(W.T, W) - matmul(to_x, matmul(A, W))
        driven = s * k - gradient
        x = matmul(free, force) + matmul(to_x, driven)
        part_in_range = matmul(matmul(inverse.T, both_steps), driven) - matmul(to_x.T, force)
        independent = matmul(matmul(A, inverse), s * rest)
        return unknowns(x, part_in_range + s * rest - independent, k, rest)

    def unknowns(x, scaled_multiplier, k, rest):
        K, weights = fixed
        multiplier = s * scaled_multiplier
        z, e = s * (weights * multiplier - rest), s * s * (k - matmul(K, x))
        return jnp.concatenate([x, multiplier, z, e])

    def solution(force, k, rest, gradient, many=False):
        solver = solve_many if many else solve
        solved = lax.custom_linear_solve(
            equations,
            jnp.concatenate([force, k, rest, in_range(gradient)]),
            lambda _, b: solver(b),
            lambda _, b: jax.linear_transpose(solver, b)(b)[0],
        )
        x, multiplier, z, e = jnp.split(solved, sizes)
        return Solution(x, multiplier, minimal(z), e)

    return solution
