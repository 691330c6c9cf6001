"""A ground of measured or random heights: a grid of nodes, and a smooth surface through them.

The surface is not bilinear, although bilinear interpolation needs 4 nodes and this surface needs
16. A bilinear surface has edges: its normal jumps from cell to cell. Contact takes the normal from
the gradient of the distance, and derivatives of contact take the derivatives of this gradient.
If only the normal were smoothed, the normal would not be the gradient of the distance. Then the
compliant contact force would have no potential, and JAX would not return the derivatives of the
values that a step computes. A surface with continuous second derivatives has none of these
problems. It is also more accurate. These are the largest errors for nodes on a sine wave of
amplitude 0.2 m, with 16 nodes per wavelength of 1 m in x and in y:

    surface                              height     slope
    bilinear                             7.3 mm     0.24
    bilinear, slopes at nodes smoothed   7.3 mm     0.076
    this surface                         0.36 mm    0.032

If the spacing is halved, the errors of the last row fall to about an eighth and a quarter, and the
errors of the first row to a quarter and a half.
`tests/test_height_grid.py` measures these errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from ..errors import ArgumentError
from ..model import arguments
from .grounds import Terrain

# The surface at a point depends on a window of NODES x NODES nodes.
NODES = 4


class HeightGrid(Terrain):
    """A terrain through the heights of a rectangular grid of nodes.

    - `heights`: (nx, ny) in m, with 4 nodes or more along each axis. Entry [i, j] is the z of the
      node at `x = origin[0] + i spacing[0]`, `y = origin[1] + j spacing[1]`, in world axes. For
      distances (`collision.distance`), these are the axes of the frame of the shape;
    - `spacing`: () or (2,) in m, more than 0: the distances between nodes along x and y;
    - `origin`: (2,) in m, the x and y of node [0, 0] (default 0).

    All are leaves, so `vmap` and `grad` work over the heights. Along each axis, the surface between
    two nodes blends two parabolas: the parabola through these nodes and the node before them, and
    the parabola through these nodes and the node after them. The weight of the second parabola is
    `3 t^2 - 2 t^3`, where t goes from 0 to 1 between the two nodes. In the first and in the last
    cell, the surface is one parabola. Consequences:

    - the surface contains the nodes, and it is exact for planes and for parabolas;
    - the height and its first and second derivatives are continuous in the rectangle. So the
      distance and its gradient are continuously differentiable;
    - for a smooth terrain the errors of height and slope fall with the third and the second power
      of the spacing;
    - next to a step between two flat areas, the surface overshoots by 8 % of the height of the
      step. It can leave the range of the heights of the nodes;
    - outside the rectangle, the height is the height of the nearest point of its border. So the
      slope across the border is zero outside, and the normal jumps at the border.

    For contact, the distance of a point from the surface is computed as for a `Height`: it is exact
    for planes, and has errors of the order of the curvature times the square of the distance. For
    distances, the surface consists of flat triangles, see `collision.distance`. Raises
    ArgumentError for fewer than 4 nodes along an axis, heights or an origin that are not finite,
    and a spacing that is not finite and positive.
    """

    heights: Float[arguments.Parameter, "nx ny"]
    spacing: Float[arguments.Parameter, "2"]
    origin: Float[arguments.Parameter, "2"]

    def __init__(
        self,
        heights: ArrayLike | Sequence,
        spacing: ArrayLike | Sequence[int | float],
        origin: ArrayLike | Sequence[int | float] = (0.0, 0.0),
    ):
        self.heights = arguments.parameter(heights, "heights", (None, None))
        if min(self.heights.shape) < NODES:
            raise ArgumentError(
                f"heights has shape {self.heights.shape}, expected {NODES} nodes or more along "
                f"each axis"
            )
        spacing = arguments.parameter(spacing, "spacing", (), (2,))
        if spacing.ndim == 0:
            spacing = spacing * np.ones(2, spacing.dtype)
        self.spacing, self.origin = spacing, arguments.parameter(origin, "origin", (2,))
        values = arguments.known(self.heights)
        if values is not None and not np.all(np.isfinite(values)):
            i, j = np.argwhere(~np.isfinite(values))[0]
            raise ArgumentError(f"heights[{i}, {j}] is {values[i, j]}, expected finite heights")
        positive = "finite, more than 0"
        arguments.require(self.spacing, lambda x: (x > 0) & np.isfinite(x), "spacing", positive)
        arguments.require(self.origin, np.isfinite, "origin", "finite")

    def elevation(self, xy):
        return self._height_and_slope(xy)[0]

    def distance(self, x):
        h, slope = self._height_and_slope(x[:2])
        return (x[2] - h) / jnp.sqrt(1 + jnp.sum(slope * slope))

    def _height_and_slope(self, xy: Array) -> tuple[Array, Array]:
        """The height () and its gradient (2,) at xy (2,); the gradient is zero outside."""
        dtype = xy.dtype
        heights, spacing = jnp.asarray(self.heights, dtype), jnp.asarray(self.spacing, dtype)
        last = np.array(heights.shape, dtype) - 1
        u = (xy - jnp.asarray(self.origin, dtype)) / spacing
        inside = (u >= 0) & (u <= last)
        u = jnp.where(u < 0, 0, jnp.where(u > last, last, u))
        first = jnp.clip(jnp.floor(u).astype(int) - 1, 0, np.array(heights.shape) - NODES)
        window = lax.dynamic_slice(heights, (first[0], first[1]), (NODES, NODES))
        x, y = (weights(u[k] - first[k].astype(dtype)) for k in range(2))

        def product(along_x: Array, along_y: Array) -> Array:
            return jnp.sum(along_x[:, None] * along_y[None] * window)

        slope = jnp.stack([product(x.slope, y.value), product(x.value, y.slope)])
        return product(x.value, y.value), jnp.where(inside, slope / spacing, 0)


class Weights(NamedTuple):
    """The weights of 4 successive nodes for the value and the slope of a curve, (4,) each."""

    value: Float[Array, "4"]
    slope: Float[Array, "4"]


def weights(t: Float[Array, ""]) -> Weights:
    """The weights at the position t from 0 to 3, where node i is at the position i.

    The curve is the parabola through the first three nodes for t up to 1, a blend from 1 to 2, and
    the parabola through the last three nodes from 2 on. The two parabolas differ by `s (s - 1)`
    times a constant, where `s = t - 1`. So the difference is zero at both ends of the blend, where
    the rate of the blend is zero too. This makes the second derivative continuous.
    """
    s = t - 1
    b = jnp.clip(s, 0, 1)
    blend, rate = b * b * (3 - 2 * b), 6 * b * (1 - b)
    # The weights of the first parabola. The second parabola minus the first is bump times -1, 3,
    # -3, 1. The curve adds the fraction `blend` of this difference to the first parabola.
    bump, bump_slope = s * (s - 1) / 2, s - 0.5
    value = (bump, 1 - s * s, s * (s + 1) / 2, 0)
    slope = (bump_slope, -2 * s, s + 0.5, 0)
    added = blend * bump, rate * bump + blend * bump_slope
    return Weights(
        jnp.stack([x + c * added[0] for x, c in zip(value, (-1, 3, -3, 1))]),
        jnp.stack([x + c * added[1] for x, c in zip(slope, (-1, 3, -3, 1))]),
    )
