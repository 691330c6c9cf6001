"""Inertia as it is felt at frames: the Delassus matrix and the operational-space inertia."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from ..model import Model, arguments
from .crba import crba, inverse_form
from .kinematics import Kinematics, forward_kinematics, frame_jacobian


@arguments.compiled(static_argnames=("frames", "reference"))
def delassus_matrix(
    model: Model,
    q: ArrayLike | Kinematics,
    frames: tuple[str | int, ...],
    reference: str = "local_world_aligned",
) -> Float[Array, "m m"]:
    """`J M^-1 J^T` of k frames: the accelerations that forces on the frames give them, (6k, 6k).

    - `q` (nq,) or its `Kinematics`; `frames`: a tuple of names or indices in `model.frame_names`;
    - `reference`: of every Jacobian, as in `frame_jacobian`.

    Symmetric, positive semidefinite, in the frames' order, six rows each. Where M is singular the
    result is not finite. Raises ArgumentError on a wrong shape or dtype, an unknown frame or
    reference. Source: Featherstone (8.5), as the inverse of the apparent inertia.
    """
    kinematics = forward_kinematics(model, q)
    names = [arguments.frame_index(model, frame) for frame in frames]
    J = [frame_jacobian(model, kinematics, frame, reference) for frame in names]
    stacked = jnp.concatenate([jnp.zeros((0, model.nv), model.dtype), *J])
    return inverse_form(crba(model, kinematics), stacked.T)


@arguments.compiled(static_argnames=("frames", "reference"))
def operational_space_inertia(
    model: Model,
    q: ArrayLike | Kinematics,
    frames: tuple[str | int, ...],
    reference: str = "local_world_aligned",
    damping: ArrayLike = 0.0,
) -> Float[Array, "m m"]:
    """`(J M^-1 J^T + damping 1)^-1` of k frames: their apparent inertia, (6k, 6k).

    Arguments as for `delassus_matrix`. Where the frames' Jacobian has not full row rank (fewer than
    six dofs move a frame, or a singular configuration) the result is not finite unless `damping`, a
    number in 1/kg on every row, is positive. Raises ArgumentError on a wrong shape or dtype, an
    unknown frame or reference. Source: Khatib (1987), equation 51.
    """
    damping = arguments.number(model, damping, "damping")
    D = delassus_matrix(model, q, frames, reference)
    one = jnp.eye(len(D), dtype=model.dtype)
    return inverse_form(D + damping * one, one)
