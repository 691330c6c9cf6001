"""Inertia of the robot at its frames: the Delassus matrix and the operational-space inertia."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from ..model import Model, arguments
from .crba import crba, inverse_form
from .kinematics import Kinematics, forward_kinematics, frame_jacobian
from .places import bodies_of


@arguments.compiled(arrays=("q",), static_argnames=("frames", "reference"))
def delassus_matrix(
    model: Model,
    q: Array | Kinematics,
    frames: tuple[str | int, ...],
    reference: str = "local_world_aligned",
) -> Float[Array, "m m"]:
    """Delassus matrix `J M^-1 J^T` of k frames, (6k, 6k).

    The matrix maps forces on the frames to the accelerations that these forces cause at the frames.
    J has the rows of the Jacobians of all frames.

    - `q` (nq,) or its `Kinematics`; `frames`: a tuple of frames, each as in `Model.frame_index`;
    - `reference`: the reference frame of every Jacobian, as in `frame_jacobian`.

    The matrix is symmetric and positive semidefinite, with six rows per frame in the order of
    `frames`. Where M is singular, the result has no meaning, as for `minverse`. Raises
    ArgumentError for an unknown frame or reference. Source: Featherstone (8.5), as the inverse of
    the apparent inertia.
    """
    arguments.reference_frame(reference)
    kinematics = forward_kinematics.unchecked(model, q)
    frames = arguments.sequence(frames, "frames", "frames")
    indices = [arguments.frame_index(model, frame) for frame in frames]
    J = [frame_jacobian(model, kinematics, index, reference) for index in indices]
    stacked = jnp.concatenate([jnp.zeros((0, model.nv), model.dtype), *J])
    return inverse_form(crba(model, kinematics), stacked.T)


@arguments.compiled(
    arrays=("q",),
    static_argnames=("frames", "reference"),
    checks={"damping": arguments.FINITE_NOT_NEGATIVE},
)
def operational_space_inertia(
    model: Model,
    q: Array | Kinematics,
    frames: tuple[str | int, ...],
    reference: str = "local_world_aligned",
    damping: ArrayLike = 0.0,
) -> Float[Array, "m m"]:
    """Operational-space inertia `(J M^-1 J^T + damping E)^-1` of k frames, (6k, 6k).

    Arguments as for `delassus_matrix`; E is the identity matrix, so `damping` is added to each
    diagonal entry of `J M^-1 J^T`. The unit of `damping`, 0 or more, is 1/kg in linear rows and
    1/(kg m^2) in angular rows. Without damping the result is NaN if fewer than six entries of v
    move one of the frames, or if fewer than 6k entries move the frames together. In a singular
    configuration without damping, the result is not finite or has entries of the size of `1 / eps`
    of the dtype. Raises ArgumentError for an unknown frame or reference, and for a damping that is
    negative or not finite; a traced damping of this kind gives NaN.
    Source: Khatib (1987), equation 51.
    """
    damping = arguments.FINITE_NOT_NEGATIVE.or_nan(arguments.number(model, damping, "damping"))
    D = delassus_matrix.unchecked(model, q, frames, reference)
    one = jnp.eye(len(D), dtype=model.dtype)
    inertia = inverse_form(D + damping * one, one)
    if not _can_have_full_rank(model, frames):
        inertia = jnp.where(damping > 0, inertia, jnp.nan)
    return inertia


def _can_have_full_rank(model: Model, frames: tuple[str | int, ...]) -> bool:
    """Whether at least six entries of v move each of k frames, and 6k entries move all frames."""
    bodies = bodies_of(model, frames)
    moves = model.topology.movers(bodies)[:, np.repeat(np.arange(model.nb), model.joint_nvs)]
    if model.coupling is not None:
        moves = moves @ model.coupling.velocity_dependence
    enough = np.sum(np.any(moves, axis=0)) >= 6 * len(frames)
    return bool(enough and np.all(np.sum(moves, axis=1) >= 6))
