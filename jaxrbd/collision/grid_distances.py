"""Distances of shapes to the ground of a `HeightGrid`.

The ground is all points below flat triangles through the nodes. The diagonal of each cell goes from
node [i, j] to node [i + 1, j + 1]. Outside of the rectangle of the nodes, the height is the height
of the nearest point of the border. For this, the grid has one more ring of nodes around it. The
ring is so far away that the nearest point of the ground is inside it.

The clearance of a core is the least height of its points above the ground. It is negative if the
core overlaps the ground; then it is minus the height by which the core must be raised.

- Core and ground apart: the distance is the least distance of the core from a triangle.
- Otherwise the clearance is the least clearance over all triangles. For one triangle, the core
  starts above it and is lowered to a distance of about `_gap`, by Newton's method: the distance is
  a convex function of the height of the core, and its slope is the z component of the normal.

Both searches are the same branch and bound. Each triangle has a lower bound for its distance or its
clearance, and so has each block of `BLOCK` x `BLOCK` cells. The triangle with the least bound of an
open block is tried: its distance or its clearance is computed. If no triangle of the open block has
a bound below the best value so far, the block with the least bound is opened next. The first bounds
follow from the bounding box of the core. The separation along each normal that is found is another
lower bound for all blocks and triangles.

The derivatives are the derivatives for the core and the best triangle, see `separation.py`.

Positions are in the axes of the grid, relative to the origin of the core.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .._math.cast import select
from .._math.linear import matmul
from .._math.rules import custom_jvp, with_value
from .._math.tiles import Row, repeat_in_blocks
from ..spatial import Pose
from .cores import Core, TriangleCore
from .height_grid import HeightGrid
from .hulls import first_corners, nearer_points, with_triangles
from .nearest import CorePair
from .separation import Separation, Touch, separation_at_touch, unit

# The number of cells of a block along x and along y.
BLOCK = 8
# The argument `iterations` of `nearer_points` in a step of the search.
_FEW = 5
# The largest number of steps for the same height of the core, and of heights for one triangle.
_VISITS, _HEIGHTS = 12, 30


class _Surface(NamedTuple):
    """The triangles of a `HeightGrid`.

    - `heights`: the row of a table that has the heights (nx, ny);
    - `spacing` (2,), `origin` (2,): as in the grid;
    - `tops` (kx, ky): the greatest height of each block;
    - `bottom` (): the least height.
    """

    heights: Row
    spacing: Array
    origin: Array
    tops: Array
    bottom: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of nodes along x and y."""
        return self.heights.table.shape[1:]

    def heights_at(self, i: Array, j: Array) -> Array:
        """The heights of nodes."""
        return self.heights.table[self.heights.row, i, j]


class _Placed(NamedTuple):
    """A core, its orientation R (3, 3) and the position p (3,) of its origin in the grid."""

    core: Any  # a Core
    R: Array
    p: Array

    def height(self, n: Array) -> Array:
        """The largest component () of a point of the core along n."""
        return self.core.height(matmul(n, self.R))

    def box(self) -> tuple[Array, Array]:
        """The lowest and the highest coordinates (3,) of the core."""
        axes = jnp.eye(3, dtype=self.p.dtype)
        heights = jax.vmap(self.height)(jnp.concatenate([-axes, axes]))
        return -heights[:3], heights[3:]


class _Ring(NamedTuple):
    """The coordinates x and y of the nodes around the grid: `low` (2,) and `high` (2,)."""

    low: Array
    high: Array


class _Found(NamedTuple):
    """A triangle, and the nearest points of the core and the triangle.

    - `value` (): the distance or the clearance of the core;
    - `place` (3,): the indices of the cell, and 0 or 1 for its two triangles;
    - `raised` (): the height by which the core was raised;
    - `n` (3,): the unit vector from the core to the triangle; `gap` (): their distance;
    - `u` (3,): the point of the triangle, relative to its centre;
    - `corners` (3, 2): as in `Touch`.
    """

    value: Array
    place: Array
    raised: Array
    n: Array
    gap: Array
    u: Array
    corners: Array


class _Search(NamedTuple):
    """The state of the search.

    - `blocks` (k,): lower bounds for the blocks; infinite for blocks that were open;
    - `block` (): the open block;
    - `triangles` (m,): lower bounds for the triangles of the open block; infinite for triangles
      that were tried;
    - `vertical` (): whether the search is for the clearance;
    - `best`: the best triangle so far;
    - `distance` (): the least distance, if the search for the clearance follows the one for the
      distance. It is 0 if the core overlaps the ground;
    - `trial`: the triangle that is tried; `busy` (): whether it needs more steps; `visits` (): the
      number of steps for this height of the core; `heights` (): the number of heights.
    """

    blocks: Array
    block: Array
    triangles: Array
    vertical: Array
    best: _Found
    distance: Array
    trial: _Found
    busy: Array
    visits: Array
    heights: Array


def grid_separations(grid: HeightGrid, X_WG: Pose, b: tuple[Core, Array], X_WB: Pose) -> Separation:
    """The `Separation` of a grid and each of n cores with roundings.

    X_WG and X_WB are the poses of the grid and of the cores, with n rows. If a core overlaps the
    ground, the distance is its clearance minus the rounding, and the normal is the normal of the
    ground at the point of the core that touches the ground last when the core is raised. The
    derivative of the distance with respect to the position of the core is then the normal, divided
    by its component along the z axis of the grid.
    """
    surface = _surface(grid)

    def one(X_WG: Pose, b: tuple[Core, Array], X_WB: Pose) -> Separation:
        core, radius = b
        p = matmul(X_WB.p - X_WG.p, X_WG.R)
        placed = _Placed(core, matmul(X_WG.R.T, X_WB.R), p)
        distance, point, normal = _core_distance(surface, placed)
        normal = matmul(X_WG.R, normal)
        point_b = matmul(X_WG.R, point) + X_WB.p - radius * normal
        distance = distance - radius
        return Separation(distance, point_b - distance * normal, point_b, normal)

    return jax.vmap(one)(X_WG, b, X_WB)


def _surface(grid: HeightGrid) -> _Surface:
    heights = jnp.asarray(grid.heights)
    tops = heights
    for _ in range(2):
        # The blocks cover all cells, also the cells between the nodes and the ring: first along one
        # axis, then along the other one. Cells without area fill the last block.
        count = len(tops)
        blocks = -(-(count + 1) // BLOCK)
        rows = np.arange(blocks)[:, None] * BLOCK + np.arange(BLOCK + 1)
        tops = jnp.max(tops[np.clip(rows - 1, 0, count - 1)], axis=1).T
    row = Row(heights[None], jnp.zeros((), jnp.int32))
    return _Surface(
        row, jnp.asarray(grid.spacing), jnp.asarray(grid.origin), tops, jnp.min(heights)
    )


@custom_jvp
def _core_distance(surface: _Surface, placed: _Placed) -> tuple[Array, Array, Array]:
    """The signed distance () of a core, the point (3,) of the core, and the normal (3,)."""
    return _refined(surface, placed, _search(surface, placed))


@_core_distance.defjvp
def _(primals, tangents):
    found = lax.stop_gradient(_search(*lax.stop_gradient(primals)))
    return jax.jvp(lambda *operands: _refined(*operands, found), primals, tangents)


@jax.jit
def _refined(surface: _Surface, placed: _Placed, search: _Search) -> tuple[Array, Array, Array]:
    """The result of `_core_distance` for the triangle that the search found."""
    best, vertical = search.best, search.vertical
    ring = lax.stop_gradient(_ring(surface, placed))
    pair = _pair(placed, _corners(surface, placed, ring, best.place))
    moved = _raised(pair, best.raised)
    touch = Touch(best.n, best.gap, best.u, jnp.ones_like(vertical), best.corners)
    distance, point, _, n = separation_at_touch(moved, touch)
    point = point - _upwards(best.raised) - lax.stop_gradient(pair.p)
    fixed_n, fixed_point = lax.stop_gradient((n, point))
    # In the search for a clearance, the gap is so small that the derivatives of the points and of
    # the normal would be rounding errors: both are constant. The value is from the search, where
    # errors of the normal have less effect.
    width = _width_at(with_triangles(moved, best.corners), fixed_n, best.u)
    clearance = with_value(width / jnp.where(vertical, -fixed_n[2], 1), best.value)
    touching = with_value(width, search.distance)  # nearer than the gap, but no overlap
    value = jnp.where(clearance > 0, touching, clearance)
    return select(vertical, (value, fixed_point, -fixed_n), (distance, point, -n))


def _width_at(pair: CorePair, n: Array, u: Array) -> Array:
    """The gap along n between the points of the cores that are nearest at u.

    In derivatives, n and the places of the points are constant.
    """
    fixed = lax.stop_gradient(pair)
    a, _ = pair.a.nearest(matmul(u - fixed.p, fixed.R))
    b, _ = pair.b.nearest(fixed.nearest_in_a(u)[0])
    return jnp.dot(n, b - pair.p) - jnp.dot(matmul(n, pair.R), a)


def _pair(placed: _Placed, corners: Array) -> CorePair:
    """The core and the triangle with these corners (3, 3). The origin is the triangle's centre.

    The centre is constant in derivatives.
    """
    centre = lax.stop_gradient(jnp.mean(corners, axis=0))
    return CorePair(placed.core, TriangleCore(corners - centre[None]), placed.R, -centre)


def _raised(pair: CorePair, height: Array) -> CorePair:
    """The pair after the core was raised by a height ()."""
    return pair._replace(p=pair.p + _upwards(height))


def _upwards(height: Array) -> Array:
    """The vector (3,) of this length along z."""
    return jnp.stack([jnp.zeros_like(height), jnp.zeros_like(height), height])


# ------------------------------------------------------------------------------ the surface


def _ring(surface: _Surface, placed: _Placed) -> _Ring:
    """The ring. All points of the ground outside of it are farther than the nearest point."""
    low, high = placed.box()
    last = np.array(surface.shape, placed.p.dtype) - 1
    first_node = surface.origin - placed.p[:2]
    last_node = first_node + last * surface.spacing
    # The core is at most this height above the ground.
    height = jnp.maximum(placed.p[2] + low[2] - surface.bottom, 0)
    margin = height + surface.spacing
    return _Ring(
        jnp.minimum(first_node, low[:2]) - margin, jnp.maximum(last_node, high[:2]) + margin
    )


def _coordinates(surface: _Surface, placed: _Placed, ring: _Ring, index: Array, axis: int) -> Array:
    """The coordinates along x or y of nodes. The index of the ring is 0 or more than n."""
    count = surface.shape[axis]
    place = jnp.clip(index - 1, 0, count - 1).astype(placed.p.dtype)
    inside = surface.origin[axis] - placed.p[axis] + place * surface.spacing[axis]
    outside = jnp.where(index == 0, ring.low[axis], ring.high[axis])
    return jnp.where((index > 0) & (index <= count), inside, outside)


def _heights(surface: _Surface, placed: _Placed, i: Array, j: Array) -> Array:
    """The z of nodes. The height of the ring is the height of the nearest node of the grid."""
    rows, columns = (jnp.clip(k - 1, 0, n - 1) for k, n in zip((i, j), surface.shape))
    return surface.heights_at(rows, columns) - placed.p[2]


def _corners(surface: _Surface, placed: _Placed, ring: _Ring, place: Array) -> Array:
    """The corners (3, 3) of the triangle at a place (3,), see `_Found`."""
    upper = place[2]
    # (0, 0), (1, 0), (1, 1) or (0, 0), (1, 1), (0, 1), counter-clockwise from above.
    i = place[0] + jnp.stack([0 * upper, 1 + 0 * upper, 1 - upper])
    j = place[1] + jnp.stack([0 * upper, upper, 1 + 0 * upper])
    x, y = (_coordinates(surface, placed, ring, k, axis) for axis, k in enumerate((i, j)))
    return jnp.stack([x, y, _heights(surface, placed, i, j)], axis=1)


def _height_below(surface: _Surface, x: Array, y: Array) -> Array:
    """The height () of the surface at the coordinates x and y in the grid."""
    last = np.array(surface.shape, np.int32) - 1
    place = (jnp.stack([x, y]) - surface.origin) / surface.spacing
    place = jnp.clip(place, 0, last.astype(place.dtype))
    cell = jnp.clip(jnp.floor(place).astype(jnp.int32), 0, last - 1)
    (i, j), (s, t) = cell, place - cell.astype(place.dtype)
    z = surface.heights_at
    lower = (1 - s) * z(i, j) + (s - t) * z(i + 1, j) + t * z(i + 1, j + 1)
    upper = (1 - t) * z(i, j) + (t - s) * z(i, j + 1) + s * z(i + 1, j + 1)
    return jnp.where(s >= t, lower, upper)


# ------------------------------------------------------------------------------- the search


@jax.jit
def _search(surface: _Surface, placed: _Placed) -> _Search:
    """The triangle with the least distance or clearance."""
    none, zero = jnp.zeros_like(placed.p[0]), jnp.zeros((), jnp.int32)
    infinite, down = none + jnp.inf, _downwards(placed)
    lowest = placed.p + matmul(placed.R, placed.core.support(matmul(down, placed.R)))
    vertical = lowest[2] <= _height_below(surface, lowest[0], lowest[1])
    place, corners = jnp.zeros(3, jnp.int32), jnp.zeros((3, 2), jnp.int32)
    found = _Found(infinite, place, none, down, infinite, jnp.zeros_like(down), corners)
    blocks = _block_bounds(surface, placed, vertical)
    triangles = jnp.full(2 * BLOCK * BLOCK, infinite)
    search = _Search(blocks, zero, triangles, vertical, found, none, found, zero > 0, zero, zero)
    small = surface._replace(heights=None)
    table = surface.heights.table[surface.heights.row]

    def step(operands, searches, heights):
        def one(operands, search, row):
            return _step(operands, search, Row(heights.table, row))

        return jax.vmap(one)(operands, searches, heights.row)

    return repeat_in_blocks(step, (small, placed), search, table)


def _step(
    operands: tuple[_Surface, _Placed], search: _Search, heights: Row
) -> tuple[_Search, Array]:
    """One step of the search. The second result is whether another step is needed."""
    surface, placed = operands
    surface = surface._replace(heights=heights)
    ring, vertical = _ring(surface, placed), search.vertical
    eps, size = jnp.finfo(placed.p.dtype).eps, _size(surface, placed)

    def is_better(bound: Array) -> Array:
        return bound + 4 * eps * (size + jnp.abs(bound)) < search.best.value

    # Without a triangle whose bound is below the best value, the next block is opened.
    next_block = jnp.argmin(search.blocks).astype(jnp.int32)
    opens = ~search.busy & ~is_better(jnp.min(search.triangles))
    ended = opens & ~is_better(search.blocks[next_block])
    block = jnp.where(opens, next_block, search.block)
    nodes = _block_nodes(surface, placed, ring, block)
    blocks = jnp.where(
        opens & (jnp.arange(len(search.blocks), dtype=jnp.int32) == block), jnp.inf, search.blocks
    )
    bounds = jnp.maximum(
        _triangle_bounds(placed, nodes, vertical),
        _bounds_along(placed, search.best.n, _farthest(nodes, -search.best.n), vertical),
    )
    triangles = jnp.where(opens, bounds, search.triangles)
    # The next triangle is tried, or the last one is tried further.
    triangle = jnp.argmin(triangles).astype(jnp.int32)
    begins = ~search.busy & ~ended & is_better(triangles[triangle])
    place = jnp.stack([*_cell_of(surface, block, triangle // 2), triangle % 2])
    place = jnp.where(begins, place, search.trial.place)
    tried = begins & (jnp.arange(len(triangles), dtype=jnp.int32) == triangle)
    triangles = jnp.where(tried, jnp.inf, triangles)
    corners = _corners(surface, placed, ring, place)
    first = _first_trial(surface, placed, place, corners, vertical)
    zero = jnp.zeros_like(search.heights)
    search = search._replace(
        trial=select(begins, first, search.trial),
        busy=begins | search.busy,
        visits=jnp.where(begins, zero, search.visits),
        heights=jnp.where(begins, zero, search.heights),
    )
    found, search = _tried(surface, placed, corners, search)
    improves = (found.value < search.best.value) & (begins | ~opens) & ~search.busy
    best = select(improves, found, search.best)
    along = partial(_bounds_along, placed, found.n, vertical=vertical)
    triangles = jnp.maximum(triangles, along(_farthest(nodes, -found.n)))
    blocks = jnp.maximum(blocks, along(_farthest_of_blocks(surface, placed, ring, -found.n)))
    search = search._replace(blocks=blocks, block=block, triangles=triangles, best=best)
    # If the core touches or overlaps the ground, the search for the clearance follows.
    again = ended & (best.value <= _gap(surface, placed)) & ~vertical
    all_true, infinite = jnp.ones_like(again), jnp.full_like(best.value, jnp.inf)
    restart = search._replace(
        blocks=_block_bounds(surface, placed, all_true),
        triangles=jnp.full_like(triangles, jnp.inf),
        vertical=all_true,
        best=best._replace(value=infinite),
        distance=best.value,
    )
    return select(again, restart, search), ~ended | again


def _first_trial(
    surface: _Surface, placed: _Placed, place: Array, corners: Array, vertical: Array
) -> _Found:
    """The start of the trial of a triangle. For a clearance, the core is above the triangle."""
    pair, gap, down = _pair(placed, corners), _gap(surface, placed), _downwards(placed)
    lowest = -placed.height(down)
    raised = jnp.where(vertical, jnp.max(corners[:, 2]) - lowest + gap, 0)
    u = pair.b.nearest(pair.p)[0]
    return _Found(jnp.full_like(gap, jnp.inf), place, raised, down, gap, u, first_corners(pair))


def _tried(
    surface: _Surface, placed: _Placed, corners: Array, search: _Search
) -> tuple[_Found, _Search]:
    """A few iterations for the triangle with these corners (3, 3).

    The results are the triangle with the nearest points, and the search for the next step.
    """
    trial, vertical, gap = search.trial, search.vertical, _gap(surface, placed)
    moved = _raised(_pair(placed, corners), trial.raised)
    u, hull_corners, inexact, _ = nearer_points(
        moved, trial.u, trial.corners, _FEW, jnp.zeros_like(vertical)
    )
    v = u - with_triangles(moved, hull_corners).nearest_in_a(u)[0]
    n, length = unit(v, _downwards(placed)), jnp.sqrt(jnp.dot(v, v))
    width, slope = moved.width(n), -n[2]
    # A core that is lowered can miss the triangle.
    meets = slope > jnp.finfo(slope.dtype).eps ** 0.5
    slope = jnp.where(meets, slope, 1)
    clearance = jnp.where(meets, length / slope - trial.raised, jnp.inf)
    value = jnp.where(vertical, clearance, jnp.where(width > 0, length, 0))
    found = trial._replace(value=value, n=n, gap=length, u=u, corners=hull_corners)
    # The separation along n is a lower bound, also for points that are not exact.
    bound = jnp.where(vertical, jnp.where(meets, width / slope - trial.raised, -jnp.inf), width)
    inexact &= (search.visits < _VISITS) & (bound < search.best.value)
    lowered = vertical & ~inexact & meets & (length > 2 * gap)
    lowered &= (clearance < search.best.value) & (search.heights < _HEIGHTS)
    raised = jnp.where(lowered, gap / slope - clearance, trial.raised)
    return found, search._replace(
        trial=found._replace(raised=raised),
        busy=search.busy & (inexact | lowered),
        visits=jnp.where(inexact, search.visits + 1, 0),
        heights=search.heights + lowered.astype(search.heights.dtype),
    )


def _downwards(placed: _Placed) -> Array:
    return -jnp.eye(3, dtype=placed.p.dtype)[2]


def _size(surface: _Surface, placed: _Placed) -> Array:
    """The size () of the core and of a triangle."""
    return placed.core.extent() + jnp.sum(surface.spacing)


def _gap(surface: _Surface, placed: _Placed) -> Array:
    """The distance from which on the normal of two nearest points is exact enough."""
    size = _size(surface, placed)
    return jnp.finfo(size.dtype).eps ** 0.5 * size


# ------------------------------------------------------------------------------- the bounds


def _cell_of(surface: _Surface, block: Array, cell: Array) -> tuple[Array, Array]:
    """The indices of a cell. Blocks, and the cells in a block, are counted row by row."""
    columns = surface.tops.shape[1]
    i, j = block // columns, block % columns
    return BLOCK * i + cell // BLOCK, BLOCK * j + cell % BLOCK


def _block_nodes(surface: _Surface, placed: _Placed, ring: _Ring, block: Array) -> Array:
    """The nodes (BLOCK + 1, BLOCK + 1, 3) of a block."""
    steps = np.arange(BLOCK + 1, dtype=np.int32)
    i, j = (k + steps for k in _cell_of(surface, block, jnp.zeros_like(block)))
    x, y = (_coordinates(surface, placed, ring, k, axis) for axis, k in enumerate((i, j)))
    z = _heights(surface, placed, i[:, None], j[None])
    return jnp.stack([*(jnp.broadcast_to(c, z.shape) for c in (x[:, None], y[None])), z], axis=2)


def _of_triangles(values: Array) -> Array:
    """The greatest values (m,) of the nodes of the triangles, for values of the nodes."""
    ends = jnp.maximum(values[:-1, :-1], values[1:, 1:])
    both = jnp.maximum(ends, values[1:, :-1]), jnp.maximum(ends, values[:-1, 1:])
    return jnp.stack(both, axis=2).ravel()


def _farthest(nodes: Array, n: Array) -> Array:
    """The largest components (m,) of points of the triangles along n."""
    return _of_triangles(matmul(nodes, n))


def _triangle_bounds(placed: _Placed, nodes: Array, vertical: Array) -> Array:
    """Lower bounds (m,) for the triangles from the bounding box of the core."""
    x, y = nodes[:, 0, 0], nodes[0, :, 1]
    shape = BLOCK, BLOCK, 2
    x_low, x_high, y_low, y_high = (
        jnp.broadcast_to(side, shape).ravel()
        for side in (x[:-1, None, None], x[1:, None, None], y[None, :-1, None], y[None, 1:, None])
    )
    tops = _of_triangles(nodes[:, :, 2])
    return _box_bounds(placed, x_low, x_high, y_low, y_high, tops, vertical)


def _block_bounds(surface: _Surface, placed: _Placed, vertical: Array) -> Array:
    """Lower bounds (k,) for the blocks from the bounding box of the core."""
    return _box_bounds(placed, *_block_boxes(surface, placed, _ring(surface, placed)), vertical)


def _block_boxes(
    surface: _Surface, placed: _Placed, ring: _Ring
) -> tuple[Array, Array, Array, Array, Array]:
    """The least x, the greatest x, the least y, the greatest y and the greatest z of the blocks."""
    sides = []
    for axis, count in enumerate(surface.tops.shape):
        index = BLOCK * np.arange(count + 1, dtype=np.int32)
        x = _coordinates(surface, placed, ring, jnp.asarray(index), axis)
        for side in (x[:-1], x[1:]):
            side = side[:, None] if axis == 0 else side[None]
            sides.append(jnp.broadcast_to(side, surface.tops.shape).ravel())
    return *sides, surface.tops.ravel() - placed.p[2]


def _box_bounds(
    placed: _Placed, x0: Array, x1: Array, y0: Array, y1: Array, top: Array, vertical: Array
) -> Array:
    """Lower bounds for parts of the ground in boxes without bottom."""
    low, high = placed.box()
    dx = jnp.maximum(jnp.maximum(x0 - high[0], low[0] - x1), 0)
    dy = jnp.maximum(jnp.maximum(y0 - high[1], low[1] - y1), 0)
    rise = low[2] - top
    dz = jnp.maximum(rise, 0)
    above = (dx <= 0) & (dy <= 0)
    distance = jnp.sqrt(dx * dx + dy * dy + dz * dz)
    return jnp.where(vertical, jnp.where(above, rise, jnp.inf), distance)


def _farthest_of_blocks(surface: _Surface, placed: _Placed, ring: _Ring, n: Array) -> Array:
    """The largest components (k,) of points of the blocks along n; infinite if n is downwards."""
    x0, x1, y0, y1, top = _block_boxes(surface, placed, ring)
    found = jnp.maximum(n[0] * x0, n[0] * x1) + jnp.maximum(n[1] * y0, n[1] * y1) + n[2] * top
    return jnp.where(n[2] >= 0, found, jnp.inf)


def _bounds_along(placed: _Placed, n: Array, farthest: Array, vertical: Array) -> Array:
    """Lower bounds from the separation along the unit vector n from the core to the ground.

    `farthest`: the largest components of points of the parts of the ground along -n.
    """
    separation = -placed.height(n) - farthest
    rises = -n[2] > jnp.finfo(n.dtype).eps ** 0.5
    clearance = jnp.where(rises, separation / jnp.where(rises, -n[2], 1), -jnp.inf)
    return jnp.where(vertical, clearance, separation)
