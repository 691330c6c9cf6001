"""One rigid body on one joint, by three methods that give the same result.

All quantities are in one frame: inertia I, motion subspace S (6, n), active force f, force of
gravity f_g, bias force `p = v x* I v - f_g`, and constraint force f_c. The equations are
`f + f_c = I a + p`, `a = S q_accel + b_S` with `b_S = dS/dt q_rate`, and `S^T f_c = 0`. The
functions take S with one row per dof, (n, 6).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ..._math.linear import complement, inverse_positive_definite, matmul, solve
from ...errors import ArgumentError
from ...model import arguments
from ...spatial import apply_inertia, inertia_matrix

METHODS = ("direct", "multipliers", "projection")


class ConstrainedBody(NamedTuple):
    """Acceleration (6,) of a body, constraint force (6,) and joint accelerations (n,)."""

    acceleration: Float[Array, "6"]
    constraint_force: Float[Array, "6"]
    joint_acceleration: Float[Array, " n"]


@partial(jax.jit, static_argnames="method")
def constrained_body(
    inertia: Float[Array, "10"],
    S: Float[Array, "n 6"],
    S_rate: Float[Array, "6"],
    force: Float[Array, "6"],
    bias: Float[Array, "6"],
    method: str = "direct",
) -> ConstrainedBody:
    """Acceleration of one body on one joint, and the constraint force of the joint.

    - `inertia` (10,), positive definite;
    - `S` (n, 6): the motion subspace, one row per dof;
    - `S_rate` (6,): `dS/dt q_rate`, in m/s^2 and rad/s^2;
    - `force` (6,): the active force; `bias` (6,): `v x* I v` minus the force of gravity, in N, N m;
    - `method`: "direct" eliminates the constraint force; "multipliers" solves for acceleration and
      constraint force together, with `f_c = T lambda` and the complement T of S; "projection"
      solves the equation of motion in the coordinates of the joint.

    All arguments are in one frame, which may be any frame. The three methods give the same result.
    Raises ArgumentError for another method and for an array of another shape. Source: Featherstone,
    section 3.6, (3.51) and following.
    """
    if method not in METHODS:
        raise ArgumentError(f"method is {method!r}, expected one of {METHODS}")
    inertia, S, S_rate, force, bias = (
        jnp.asarray(arguments.parameter(x, name, shape))
        for x, name, shape in (
            (inertia, "inertia", (10,)),
            (S, "S", ("n", 6)),
            (S_rate, "S_rate", (6,)),
            (force, "force", (6,)),
            (bias, "bias", (6,)),
        )
    )
    if method == "multipliers":
        T = complement(S)
        corner = jnp.zeros((len(T), len(T)), T.dtype)
        system = jnp.block([[inertia_matrix(inertia), T.T], [T, corner]])
        solved = solve(system, jnp.concatenate([force - bias, matmul(T, S_rate)]))
        a = solved[:6]
        q_accel = matmul(inverse_positive_definite(matmul(S, S.T)), matmul(S, a - S_rate))
        return ConstrainedBody(a, -matmul(T.T, solved[6:]), q_accel)
    if method == "direct":
        Phi = apparent_inverse_inertia(inertia, S)
        b = S_rate - matmul(Phi, apply_inertia(inertia, S_rate) + bias)
        a = matmul(Phi, force) + b
        q_accel = matmul(inverse_positive_definite(matmul(S, S.T)), matmul(S, a - S_rate))
    else:
        M, C = _joint_inertia(inertia, S), matmul(S, apply_inertia(inertia, S_rate) + bias)
        q_accel = matmul(inverse_positive_definite(M), matmul(S, force) - C)
        a = matmul(S.T, q_accel) + S_rate
    return ConstrainedBody(a, apply_inertia(inertia, a) + bias - force, q_accel)


@jax.jit
def apparent_inverse_inertia(
    inertia: Float[Array, "10"], S: Float[Array, "n 6"]
) -> Float[Array, "6 6"]:
    """The apparent inverse inertia `Phi = S (S^T I S)^-1 S^T` (6, 6) of a body on a joint.

    `inertia` (10,); `S` (n, 6), one row per dof. A force f accelerates the body by `Phi f + b`,
    where b does not depend on f. Source: Featherstone (3.54).
    """
    return matmul(S.T, matmul(inverse_positive_definite(_joint_inertia(inertia, S)), S))


def _joint_inertia(inertia: Array, S: Array) -> Array:
    """The joint-space inertia `S^T I S` (n, n)."""
    return matmul(S, jax.vmap(lambda s: apply_inertia(inertia, s), out_axes=1)(S))
