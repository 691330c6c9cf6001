"""Indices of joints with one degree of freedom, and checked parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from ..errors import ArgumentError
from . import arguments
from .model import Model


class JointIndices(NamedTuple):
    """Indices of n joints among the coordinates and the velocities of all joints.

    `q` and `v`: (n,), or (n, k) for joints with k coordinates or velocities.
    """

    q: np.ndarray
    v: np.ndarray


def scalar_joints(model: Model, joints: Sequence[str]) -> JointIndices:
    """The indices of joints with one coordinate and one velocity, (n,) each.

    Raises ArgumentError for an unknown joint or a joint of another size.
    """
    v_start = np.cumsum([0, *model.joint_nvs])
    q, v = [], []
    for name in joints:
        bodies = model.joint(name).bodies
        nv = v_start[bodies[-1] + 1] - v_start[bodies[0]]
        if len(bodies) != 1 or nv != 1 or model.topology.nqs[bodies[0]] != 1:
            raise ArgumentError(f"joint {name!r} has {nv} degrees of freedom, expected one")
        q.append(int(model.topology.q_start[bodies[0]]))
        v.append(int(v_start[bodies[0]]))
    return JointIndices(np.array(q, int), np.array(v, int))


def parameters(
    x: ArrayLike | Sequence | None, name: str, default: np.ndarray
) -> arguments.Parameter:
    """`x`, or `default` if `x` is None, as an array with the shape of `default`.

    Raises ArgumentError as `required_parameters`.
    """
    return default if x is None else required_parameters(x, name, default.shape)


def required_parameters(
    x: ArrayLike | Sequence, name: str, *shapes: tuple[int | str | None, ...]
) -> arguments.Parameter:
    """As `arguments.parameter`, but NaN raises ArgumentError too."""
    array = arguments.parameter(x, name, *shapes)
    arguments.require(array, lambda x: ~np.isnan(x), name, "no NaN")
    return array


def polynomials(x: ArrayLike | Sequence, name: str, n: int | None) -> arguments.Parameter:
    """Coefficients of n polynomials, one row (p,) each, or n constants: (n, p) or (n,).

    Column k has the coefficients of the power k. `n`: None accepts any count. Raises ArgumentError
    as `required_parameters`, and for rows without coefficients.
    """
    array = required_parameters(x, name, (n,), (n, "p"))
    if array.ndim == 2 and array.shape[1] == 0:
        raise ArgumentError(
            f"{name} has shape {array.shape}, expected at least one coefficient per row"
        )
    return array


def ranges(x: ArrayLike | Sequence | None, name: str, n: int) -> arguments.Parameter:
    """Lower and upper bounds (n, 2), infinite if `x` is None.

    Raises ArgumentError as `parameters`, for a lower bound above the upper bound, for a lower bound
    of infinity and for an upper bound of minus infinity.
    """
    bounds = parameters(x, name, np.tile([-np.inf, np.inf], (n, 1)))
    values = arguments.known(bounds)
    if values is not None and np.any(values[:, 0] > values[:, 1]):
        raise ArgumentError(f"{name} has a lower bound above the upper bound: {values.tolist()}")
    arguments.require(bounds[:, 0], lambda x: x < np.inf, f"{name}[:, 0]", "below infinity")
    arguments.require(bounds[:, 1], lambda x: x > -np.inf, f"{name}[:, 1]", "above minus infinity")
    return bounds
