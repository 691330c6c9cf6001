"""The height of a surface on a grid of points."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from ..errors import ArgumentError
from .scene import Number, _numbers, _require


class HeightGrid(eqx.Module):
    """The heights of a grid of points with a piecewise linear surface between them.

    It is a function for `Height`: a call maps xy (2,) in m to a height () in m.

    - `heights`: (nx, ny) in m, at least 2 x 2 points: `heights[i, j]` is the height at
      `corner + [i, j] * spacing`;
    - `corner` (2,): the position in m of the first point;
    - `spacing` (2,): the distances in m between neighbours along x and y, above 0.

    Each cell of the grid consists of two triangles, divided by the diagonal from its first to its
    last point. Outside of the grid the surface has the height of the nearest point of its border.
    The gradient jumps at the edges of the triangles. Raises ArgumentError for a wrong shape or a
    spacing that is not above 0.
    """

    heights: Float[Number, "nx ny"]
    corner: Float[Number, "2"]
    spacing: Float[Number, "2"]

    def __init__(
        self,
        heights: ArrayLike | Sequence,
        corner: ArrayLike | Sequence[int | float],
        spacing: ArrayLike | Sequence[int | float],
    ):
        shape = np.shape(heights)
        if len(shape) != 2 or min(shape) < 2:
            raise ArgumentError(f"heights has shape {shape}, expected at least 2 x 2 points")
        self.heights = _numbers(heights, "heights", shape)
        self.corner = _numbers(corner, "corner", (2,))
        self.spacing = _numbers(spacing, "spacing", (2,))
        _require(self.spacing, lambda x: bool(np.all(x > 0)), "spacing", "above 0")

    def __call__(self, xy: Float[Array, "2"]) -> Float[Array, ""]:
        """The height () in m at xy (2,) in m."""
        heights, corner, spacing = (
            jnp.asarray(x, xy.dtype) for x in (self.heights, self.corner, self.spacing)
        )
        cells = np.array(heights.shape) - 1
        place = jnp.clip((xy - corner) / spacing, 0, jnp.asarray(cells, xy.dtype))
        cell = jnp.clip(jnp.floor(place).astype(int), 0, cells - 1)
        x, y = place - cell.astype(xy.dtype)
        i, j = cell
        first, last = heights[i, j], heights[i + 1, j + 1]
        along_x, along_y = heights[i + 1, j], heights[i, j + 1]
        below = first + x * (along_x - first) + y * (last - along_x)
        above = first + y * (along_y - first) + x * (last - along_y)
        return jnp.where(x > y, below, above)
