"""Forward dynamics, differentiated as the implicit function that inverse dynamics defines."""

from __future__ import annotations

from collections.abc import Callable

from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.linear import inverse_positive_definite, matmul
from ..model import Model, arguments
from .articulated import articulate, articulated_solve
from .crba import crba, mass_matrix_product
from .kinematics import Kinematics, forward_kinematics, root_centred
from .rnea import bias_force


@arguments.compiled
def forward_dynamics(
    model: Model,
    q: ArrayLike | Kinematics,
    v: ArrayLike,
    tau: ArrayLike,
    f_ext: ArrayLike | None = None,
) -> Float[Array, " nv"]:
    """Acceleration of the robot under the joint forces tau, `M(q)^-1 (tau - bias)`, (nv,).

    - `q` (nq,) or its `Kinematics`, `v` (nv,), `tau` (nv,) in N or N m;
    - `f_ext` (nb, 6): external forces as in `rnea`.

    The result is in rad/s^2 or m/s^2; `bias` is `bias_force(model, q, v, f_ext)`. The solver uses
    articulated-body inertias and takes O(nv) operations. JAX differentiates the equation
    `M a = tau - bias` and not the solver; `mass_matrix_product` computes `M a`. So the derivative
    is `M^-1 (dtau - d rnea)`, where d rnea is the derivative of `rnea` at constant a. The value and
    all derivatives share one factorisation of M. Where M is singular (a massless last link without
    armature) the result is not finite.
    Source: Featherstone, section 6.1 and table 7.1.
    """
    kinematics = forward_kinematics(model, q)
    tau = arguments.velocity(model, tau, "tau")
    return solve_mass_matrix(model, kinematics, tau - bias_force(model, kinematics, v, f_ext))


def solve_mass_matrix(
    model: Model, q: Array | Kinematics, b: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    """`M(q)^-1 b` (nv,) for a generalized force b, differentiated as an implicit function."""
    kinematics = forward_kinematics(model, q)
    solve = mass_matrix_solver(*lax.stop_gradient((model, kinematics)))
    return lax.custom_linear_solve(
        lambda x: mass_matrix_product(model, kinematics, x),
        b,
        lambda _, b: solve(b),
        symmetric=True,
    )


def mass_matrix_solver(model: Model, kinematics: Kinematics) -> Callable[[Array], Array]:
    """The function `b -> M(q)^-1 b`, b (nv,). Calls of the function share one factorisation."""
    if not model.velocity_map_is_identity:
        inverse = inverse_positive_definite(crba(model, kinematics))
        return lambda b: matmul(inverse, b)
    factors = articulate(model, root_centred(kinematics))
    return lambda b: articulated_solve(model, factors, b)
