"""The twelve entries of a pose as one array, which a pass over the tree computes."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from ..spatial import Pose


def pose_entries(X: Pose) -> Array:
    """The twelve entries of a pose, `[R p]` row by row, (..., 12)."""
    p = X.p[..., None]
    if p.shape[:-2] != X.R.shape[:-2]:  # where only one of R and p is batched
        p = p + jnp.zeros_like(X.R[..., :1])
    R = X.R if p.shape[:-1] == X.R.shape[:-1] else X.R + jnp.zeros_like(p)
    H = jnp.concatenate([R, p], axis=-1)
    return H.reshape(*H.shape[:-2], 12)


def entries_matrix(entries: Array) -> Array:
    """The matrix `[R p]` (..., 3, 4) of the entries (..., 12)."""
    return entries.reshape(*entries.shape[:-1], 3, 4)


def pose_of_entries(entries: Array) -> Pose:
    """The pose of the entries (..., 12)."""
    H = entries_matrix(entries)
    return Pose(H[..., :3], H[..., 3])
