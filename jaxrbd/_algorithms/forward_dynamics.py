"""Forward dynamics as the implicit function of inverse dynamics."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from .. import arguments
from ..model import Model
from .crba import crba, mass_matrix_product
from .rnea import bias_force


@jax.jit
def forward_dynamics(
    model: Model, q: ArrayLike, v: ArrayLike, tau: ArrayLike, f_ext: ArrayLike | None = None
) -> Float[Array, " nv"]:
    """Acceleration of the robot under the joint forces tau: `M(q)^-1 (tau - bias)`.

    - `q` (nq,), `v` (nv,), `tau` (nv,) in N or N m;
    - `f_ext` (nb, 6): external forces as in `rnea`.

    Returns a (nv,), in rad/s^2 or m/s^2. The solver is CRBA with a Cholesky factor, but JAX is
    told the *operator*: `M x = S^T accumulate(I propagate(S x))`. So the derivative is the
    implicit `M^-1 (dtau - d rnea)`, the factor is not differentiated, and it is shared by the
    value and all its derivatives. Where M is singular (a massless last link without armature) the
    result is not finite. Raises ArgumentError on a wrong shape or dtype.
    Source: Featherstone, section 6.1.
    """
    q = arguments.configuration(model, q)
    v = arguments.velocity(model, v)
    tau = arguments.velocity(model, tau, "tau")
    M = crba(lax.stop_gradient(model), lax.stop_gradient(q))
    factor = jnp.linalg.cholesky(M, symmetrize_input=False)
    return lax.custom_linear_solve(
        lambda x: mass_matrix_product(model, q, x),
        tau - bias_force(model, q, v, f_ext),
        lambda _, b: jax.scipy.linalg.cho_solve((factor, True), b),
        symmetric=True,
    )
