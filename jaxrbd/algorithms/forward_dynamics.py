"""Forward dynamics as the implicit function of inverse dynamics."""

from __future__ import annotations

from collections.abc import Callable

from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from .._math.linear import inverse_positive_definite, matmul
from ..model import Model, arguments
from .articulated import articulate, articulated_solve
from .crba import crba, mass_matrix_product
from .kinematics import forward_kinematics, root_centred
from .rnea import bias_force


@arguments.compiled
def forward_dynamics(
    model: Model, q: ArrayLike, v: ArrayLike, tau: ArrayLike, f_ext: ArrayLike | None = None
) -> Float[Array, " nv"]:
    """Acceleration of the robot under the joint forces tau: `M(q)^-1 (tau - bias)`.

    - `q` (nq,), `v` (nv,), `tau` (nv,) in N or N m;
    - `f_ext` (nb, 6): external forces as in `rnea`.

    Returns a (nv,), in rad/s^2 or m/s^2. The solver is the articulated-body one, at cost O(nv), but
    JAX is told the *operator*: `M x = S^T accumulate(I propagate(S x))`. So the derivative is the
    implicit `M^-1 (dtau - d rnea)`, the factors are not differentiated, and they are shared by the
    value and all its derivatives. Where M is singular (a massless last link without armature) the
    result is not finite. Raises ArgumentError on a wrong shape or dtype.
    Source: Featherstone, section 6.1 and table 7.1.
    """
    q = arguments.configuration(model, q)
    v = arguments.velocity(model, v)
    tau = arguments.velocity(model, tau, "tau")
    return solve_mass_matrix(model, q, tau - bias_force(model, q, v, f_ext))


def solve_mass_matrix(model: Model, q: Array, b: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """`M(q)^-1 b` (nv,), for b in N or N m, as an implicit function of its arguments."""
    solve = mass_matrix_solver(lax.stop_gradient(model), lax.stop_gradient(q))
    return lax.custom_linear_solve(
        lambda x: mass_matrix_product(model, q, x), b, lambda _, b: solve(b), symmetric=True
    )


def mass_matrix_solver(model: Model, q: Array) -> Callable[[Array], Array]:
    """The function `b -> M(q)^-1 b`, b (nv,); what it shares is computed once."""
    if not model.velocity_map_is_identity:
        inverse = inverse_positive_definite(crba(model, q))
        return lambda b: matmul(inverse, b)
    of = articulate(model, root_centred(forward_kinematics(model, q)))
    return lambda b: articulated_solve(model, of, b)
