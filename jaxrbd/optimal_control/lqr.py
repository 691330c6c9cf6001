"""Linear-quadratic regulators that vary in time, with affine terms.

The problem has N stages, states x_t (n,) and controls u_t (m,):

    minimise   sum over t < N of  x^T Q x / 2 + u^T R u / 2 + u^T S x + q . x + r . u
               + x_N^T Q_N x_N / 2 + q_N . x_N
    subject to x_{t+1} = A x_t + B u_t + c,  x_0 given.

With the value function `x^T P x / 2 + p . x` of stage t + 1, the Hessian of stage t in u is
`F = R + B^T P B`. The minimum is unique if F is positive definite at every stage. The matrices Q, R
and S need not be positive definite for this.

The sequential method is the Riccati recursion, a loop over the stages. The parallel method is an
associative scan: it has about `2 log2 N` dependent steps, and each step costs more. It needs a
positive definite R at every stage.
Source of the parallel method: Sarkka and Garcia-Fernandez (2023), Temporal parallelization of
dynamic programming and linear quadratic control, section IV.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Bool, Float

from .._math.linear import einsum, matmul, solve, solve_positive_definite
from ..errors import ArgumentError
from ..model import arguments

METHODS = ("sequential", "parallel")


class LqrStages(NamedTuple):
    """The matrices of a linear-quadratic problem; the head of `lqr.py` states the problem.

    `A` (N, n, n), `B` (N, n, m), `c` (N, n): the dynamics. `Q` (N + 1, n, n), `R` (N, m, m),
    `S` (N, m, n), `q` (N + 1, n), `r` (N, m): the cost. The last entries of Q and q are the
    terminal cost. Q and R are symmetric.
    """

    A: Float[Array, "N n n"]
    B: Float[Array, "N n m"]
    c: Float[Array, "N n"]
    Q: Float[Array, "N_1 n n"]
    R: Float[Array, "N m m"]
    S: Float[Array, "N m n"]
    q: Float[Array, "N_1 n"]
    r: Float[Array, "N m"]


class LqrSolution(NamedTuple):
    """The minimum of a linear-quadratic problem.

    - `xs` (N + 1, n), `us` (N, m): states and controls;
    - `gains` (N, m, n), `offsets` (N, m): the optimal control of a state is `gains x + offsets`;
    - `costates` (N + 1, n): the gradient of the cost of the remaining stages in the state; costate
      t + 1 is the multiplier of the dynamics of stage t;
    - `definite` (): whether F and, for the parallel method, R are positive definite at every stage.
      If `definite` is False, the other fields are not finite or have no meaning. For the sequential
      method, the problem then has no unique minimum.
    """

    xs: Float[Array, "N_1 n"]
    us: Float[Array, "N m"]
    gains: Float[Array, "N m n"]
    offsets: Float[Array, "N m"]
    costates: Float[Array, "N_1 n"]
    definite: Bool[Array, ""]


def lqr(stages: LqrStages, x0: ArrayLike, riccati: str = "sequential") -> LqrSolution:
    """The states, controls, gains and costates that minimise a linear-quadratic cost.

    - `stages`: the problem, `LqrStages`;
    - `x0` (n,): the initial state;
    - `riccati`: "sequential" or "parallel", see the head of `lqr.py`.

    The field `definite` of the result states whether the method found a unique minimum. Raises
    ArgumentError for another method, for matrices whose shapes or dtypes do not match, and for a Q
    or R that is not symmetric (not checked if JAX traces it).
    """
    stages, x0 = checked(stages, x0)
    sequential = choice(riccati, "riccati", METHODS) == "sequential"
    method = _sequential if sequential else _parallel
    P, laws, xs = method(_homogeneous(stages), jnp.append(x0, 1))
    us = _apply(laws, xs[:-1])
    # An elimination with a pivot below zero gives NaN.
    definite = jnp.all(jnp.isfinite(laws)) & jnp.all(jnp.isfinite(xs))
    costates = _apply(P[:, :-1], xs)
    return LqrSolution(xs[:, :-1], us, laws[:, :, :-1], laws[:, :, -1], costates, definite)


def choice(value: str, name: str, allowed: tuple[str, ...]) -> str:
    """`value`, if it is one of the allowed words; else raises ArgumentError."""
    if not isinstance(value, str) or value not in allowed:
        raise ArgumentError(f"{name} is {value!r}, expected one of {allowed}")
    return value


def checked(stages: LqrStages, x0: ArrayLike) -> tuple[LqrStages, Array]:
    """The stages and the initial state as arrays, whose shapes and dtypes match."""
    given = arguments.sequence(stages, "stages", "the arrays of LqrStages")
    if len(given) != len(LqrStages._fields):
        raise ArgumentError(f"stages has {len(given)} entries, expected the 8 arrays of LqrStages")
    names = *LqrStages._fields, "x0"
    arrays = [arguments.as_array(x, name) for name, x in zip(names, (*given, x0))]
    for name, x in zip(names, arrays):
        if not jnp.issubdtype(x.dtype, jnp.floating):
            raise ArgumentError(f"{name} has dtype {x.dtype}, expected floats")
    stages, x0 = LqrStages(*arrays[:-1]), arrays[-1]
    if stages.B.ndim != 3:
        raise ArgumentError(
            f"B has shape {stages.B.shape}, expected (N, n, m) for N stages, states of size n and "
            f"controls of size m"
        )
    N, n, m = stages.B.shape
    if not N:
        raise ArgumentError(f"B has shape {stages.B.shape}, expected at least one stage")
    expected = (
        *((N, n, n), (N, n, m), (N, n)),
        *((N + 1, n, n), (N, m, m), (N, m, n), (N + 1, n), (N, m)),
        (n,),
    )
    for name, array, shape in zip(names, arrays, expected):
        if array.shape != shape:
            raise ArgumentError(
                f"{name} has shape {array.shape}, expected {shape} for {N} stages, states of size "
                f"{n} and controls of size {m}"
            )
        if array.dtype != stages.B.dtype:
            raise ArgumentError(f"{name} has dtype {array.dtype}, expected {stages.B.dtype} as B")
    _require_symmetric("Q", stages.Q)
    _require_symmetric("R", stages.R)
    return stages, x0


def _require_symmetric(name: str, matrices: Array) -> None:
    """Raise ArgumentError for a known matrix whose asymmetry is larger than rounding errors."""
    values = arguments.known(matrices)
    if values is None:
        return
    asymmetry = np.max(np.abs(values - np.swapaxes(values, -1, -2)), axis=(-1, -2), initial=0)
    size = np.max(np.abs(values), axis=(-1, -2), initial=0)
    wrong = np.argwhere(asymmetry > np.sqrt(np.finfo(values.dtype).eps) * size)
    if len(wrong):
        raise ArgumentError(f"{name}[{wrong[0, 0]}] is not symmetric, expected symmetric matrices")


def _apply(matrices: Array, vectors: Array) -> Array:
    """The product of each matrix (..., i, j) with its vector (..., j)."""
    return einsum("...ij,...j->...i", matrices, vectors)


def _symmetric(P: Array) -> Array:
    return (P + jnp.swapaxes(P, -1, -2)) / 2


class _Stages(NamedTuple):
    """The stages for states [x; 1]: the affine terms are entries of the matrices."""

    A: Array
    B: Array
    Q: Array
    R: Array
    S: Array


def _homogeneous(stages: LqrStages) -> _Stages:
    A, B, c, Q, R, S, q, r = stages

    def extended(matrices, columns, rows, corner):
        """The matrices with one more column and one more row."""
        wide = jnp.concatenate([matrices, columns[..., None]], axis=-1)
        last = jnp.pad(rows[..., None, :], ((0, 0), (0, 0), (0, 1)), constant_values=corner)
        return jnp.concatenate([wide, last], axis=-2)

    return _Stages(
        extended(A, c, jnp.zeros_like(c), 1),
        jnp.pad(B, ((0, 0), (0, 1), (0, 0))),
        extended(Q, q, q, 0),
        R,
        jnp.concatenate([S, r[..., None]], axis=-1),
    )


def _control_law(A: Array, B: Array, R: Array, S: Array, P: Array) -> Array:
    """The matrix (m, n + 1) that maps the state [x; 1] of a stage to its control.

    `P`: the matrix of the value function of the next stage.
    """
    m = R.shape[-1]
    F = jnp.concatenate([R, S], axis=1)
    F = F + matmul(matmul(P, B).T, jnp.concatenate([B, A], axis=1))
    return -solve_positive_definite(F[:, :m], F[:, m:])


# ------------------------------------------------------------------------------------- sequential


def _sequential(stages: _Stages, x0: Array):
    """P of all stages, the control laws and the states, by two loops."""

    def backward(P, stage):
        A, B, Q, R, S = stage
        law = _control_law(A, B, R, S, P)
        closed = A + matmul(B, law)
        # In this form, P is positive semidefinite if the cost is, with any rounding of `law`.
        left = jnp.concatenate([law, S])
        right = jnp.concatenate([S + matmul(R, law), law])
        P = _symmetric(Q + matmul(left.T, right) + matmul(closed.T, matmul(P, closed)))
        return P, (P, law, closed)

    def forward(x, closed):
        x = matmul(closed, x)
        return x, x

    end = stages.Q[-1]
    _, (P, laws, closed) = lax.scan(backward, end, stages._replace(Q=stages.Q[:-1]), reverse=True)
    _, xs = lax.scan(forward, x0, closed)
    return jnp.concatenate([P, end[None]]), laws, jnp.concatenate([x0[None], xs])


# --------------------------------------------------------------------------------------- parallel


def _parallel(stages: _Stages, x0: Array):
    """As `_sequential`, by associative scans of conditional value functions and of motions.

    The least cost of the stages from i to j - 1, from the state x at i to the state y at j, is the
    maximum over z of `x^T J x / 2 - eta . x - z^T C z / 2 - z . (y - A x - b)`, up to a constant.
    The tuple (A, b, C, eta, J) represents this function.
    """
    (A, c), B, (Q, q), R, (S, r) = (
        (stages.A[:, :-1, :-1], stages.A[:, :-1, -1]),
        stages.B[:, :-1],
        (stages.Q[:, :-1, :-1], stages.Q[:, :-1, -1]),
        stages.R,
        (stages.S[:, :, :-1], stages.S[:, :, -1]),
    )
    n = A.shape[-1]

    def element(A, B, c, Q, R, S, q, r):
        """The function of one stage. The unconstrained control is eliminated."""
        solved = solve_positive_definite(R, jnp.concatenate([S, B.T, r[:, None]], axis=1))
        by_S, by_B, by_r = solved[:, :n], solved[:, n:-1], solved[:, -1]
        return (
            A - matmul(B, by_S),
            c - matmul(B, by_r),
            _symmetric(matmul(B, by_B)),
            matmul(S.T, by_r) - q,
            Q - _symmetric(matmul(S.T, by_S)),
        )

    single = jax.vmap(element)(A, B, c, Q[:-1], R, S, q[:-1], r)
    zero = jnp.zeros_like(Q[-1])
    last = zero, jnp.zeros_like(q[-1]), zero, -q[-1], Q[-1]
    elements = jax.tree.map(lambda x, y: jnp.concatenate([x, y[None]]), single, last)

    def combine(later, earlier):
        """The function of two successive intervals; the state between them is eliminated."""
        A1, b1, C1, eta1, J1 = earlier
        A2, b2, C2, eta2, J2 = later
        one = jnp.eye(n, dtype=A1.dtype)
        right = jnp.concatenate([A1, C1, (b1 + matmul(C1, eta2[..., None])[..., 0])[..., None]], 1)
        solved = solve(one + matmul(C1, J2), right)
        A_mid, C_mid, b_mid = solved[:, :n], solved[:, n : 2 * n], solved[:, -1]
        gradient = eta2 - matmul(J2, b1)
        # (1 + J C)^-1 = 1 - J (1 + C J)^-1 C
        gradient = gradient - matmul(J2, matmul(C_mid, gradient))
        return (
            matmul(A2, A_mid),
            matmul(A2, b_mid) + b2,
            _symmetric(matmul(A2, matmul(C_mid, A2.T))) + C2,
            matmul(A1.T, gradient) + eta1,
            _symmetric(matmul(A1.T, matmul(J2, A_mid))) + J1,
        )

    _, _, _, eta, P = lax.associative_scan(jax.vmap(combine), elements, reverse=True)
    P = jnp.concatenate([P, -eta[..., None]], axis=-1)
    P = jnp.concatenate([P, jnp.pad(-eta[:, None], ((0, 0), (0, 0), (0, 1)))], axis=-2)
    A, B, _, R, S = stages
    laws = jax.vmap(_control_law)(A, B, R, S, P[1:])
    motions = lax.associative_scan(lambda first, second: matmul(second, first), A + matmul(B, laws))
    return P, laws, jnp.concatenate([x0[None], _apply(motions, x0)])
