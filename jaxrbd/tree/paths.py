"""Passes of logarithmic depth: associative products along the heavy paths of a tree.

The heavy child of a node is the child with the most descendants. Each node and its heavy child are
on one heavy path. In a tree of n nodes, a path from the world to a node uses parts of at most
`1 + log2(n)` heavy paths. So the heavy paths have at most `1 + log2(n)` levels: the paths that
start at the world are on level 0, and a path that starts below a node of level k is on level k + 1.
A chain is one path.

All products along the paths of one level are computed at once, by doubling: each step doubles the
number of factors of each product. So a path of m nodes takes log2(m) steps, where a loop takes m.
`lax.associative_scan` computes the same products in 2 log2(m) steps with fewer operations. With it,
the program of forward dynamics of a chain of 256 links has 981 kernels on a GPU and takes longer to
compile; by doubling it has 571 kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._math.implementations import paths_selected
from .._math.rows import merge_rows, take_rows

# An associative product of two pytrees: the first operand is nearer to the root.
Join = Callable[[Any, Any], Any]


def by_loops_or_paths(
    by_loops: Callable[..., Any], by_paths: Callable[..., Any], *operands: Any
) -> Any:
    """`by_loops(*operands)`, or `by_paths(*operands)` in the context `implementation("parallel")`.

    Both functions compute the same result. `by_paths` has logarithmic depth.
    """
    return (by_paths if paths_selected() else by_loops)(*operands)


class Level(NamedTuple):
    """The heavy paths of one level, one after the other, each from its start to its tip.

    - `nodes` (m,): the indices of the nodes;
    - `is_start`, `is_tip` (m,): whether a node is the first or the last one of its path.

    The methods take and return arrays (m, ...) or pytrees of them, one row per node of the level.
    """

    nodes: np.ndarray
    is_start: np.ndarray
    is_tip: np.ndarray

    def products_from_starts(self, join: Join, x: Any) -> Any:
        """For each node, the product of the rows from the start of its path to the node."""
        return _scan(join, x, self.is_start)

    def products_to_tips(self, join: Join, x: Any) -> Any:
        """For each node, the product of the rows from the node to the tip of its path."""
        return _scan(lambda below, above: join(above, below), x, self.is_tip, reverse=True)

    def rows_of_heavy_child(self, x: Array) -> Array:
        """For each node the row of its heavy child; zero for the tips."""
        zero = jnp.zeros_like(x[:1])
        index = np.where(self.is_tip, len(x), np.arange(1, len(x) + 1))
        return take_rows(jnp.concatenate([x, zero]), index)


def _scan(join: Join, x: Any, is_first: np.ndarray, reverse: bool = False) -> Any:
    """The products of the rows in order; a row with `is_first` starts a new product.

    With `reverse`, the order is from the last row to row 0. Before step k, the product of a row has
    the last 2^k factors of the final product (or all of them, if they are fewer). The product of
    the row 2^k places earlier in the order has the factors before these.
    """
    firsts = is_first[::-1] if reverse else is_first
    place = np.arange(len(firsts)) - np.maximum.accumulate(np.where(firsts, range(len(firsts)), 0))
    place = place[::-1] if reverse else place
    rows, reach = np.arange(len(place)), 1
    while np.any(place >= reach):
        grows = place >= reach
        before = rows[grows] + (reach if reverse else -reach)
        joined = join(rows_of(x, before), rows_of(x, rows[grows]))
        index = np.where(grows, len(rows) + np.cumsum(grows) - 1, rows)
        x = rows_of(jax.tree.map(lambda *y: jnp.concatenate(y), x, joined), index)
        reach *= 2
    return x


def rows_of(x: Any, index: np.ndarray) -> Any:
    """The rows of all arrays of a pytree."""
    return jax.tree.map(lambda x: take_rows(x, index), x)


def heavy_paths(parents: Sequence[int] | np.ndarray) -> tuple[Level, ...]:
    """The levels of the heavy paths of a tree, from the root; -1 is the parent of a root."""
    return _heavy_paths(tuple(int(parent) for parent in parents))


@functools.cache
def _heavy_paths(parents: tuple[int, ...]) -> tuple[Level, ...]:
    size = np.ones(len(parents) + 1, int)  # the number of nodes in the subtree of each node
    for node in reversed(range(len(parents))):
        size[parents[node]] += size[node]  # the last entry, -1, is the world
    heavy: dict[int, int] = {}  # the heavy child of each node
    for node, parent in enumerate(parents):
        if parent >= 0 and size[node] > size[heavy.setdefault(parent, node)]:
            heavy[parent] = node
    levels: list[list[list[int]]] = []  # the paths of each level
    level_of = {-1: -1}
    for node, parent in enumerate(parents):
        if heavy.get(parent) == node:
            continue
        path = [node]
        while path[-1] in heavy:
            path.append(heavy[path[-1]])
        level = level_of[parent] + 1
        level_of.update(dict.fromkeys(path, level))
        if level == len(levels):
            levels.append([])
        levels[level].append(path)
    return tuple(map(_level, levels))


def _level(paths: list[list[int]]) -> Level:
    ends = np.cumsum([len(path) for path in paths])
    place = np.arange(ends[-1])
    return Level(np.concatenate(paths), np.isin(place, [0, *ends]), np.isin(place, ends - 1))


def products_from_world(
    parents: Sequence[int] | np.ndarray, join: Join, world: Any, elements: Any
) -> Any:
    """Forward pass: for each node, the product of the elements from the world to the node.

    `elements`: a pytree of arrays (n, ...), one row per node; `world`: the element of the world, as
    arrays (1, ...). Returns arrays (n, ...).
    """
    parents, done, found = np.array(parents, int), [np.array([-1])], [world]
    for level in heavy_paths(parents):
        x = rows_of(elements, level.nodes)
        starts = np.flatnonzero(level.is_start)
        place = {node: row for row, node in enumerate(np.concatenate(done).tolist())}
        above = np.array([place[parent] for parent in parents[level.nodes[starts]].tolist()])
        rows_above = rows_of(jax.tree.map(lambda *x: jnp.concatenate(x), *found), above)
        first = join(rows_above, rows_of(x, starts))
        x = jax.tree.map(lambda x, first, i=starts: x.at[i].set(first), x, first)
        found.append(level.products_from_starts(join, x))
        done.append(level.nodes)
    places = done[1:]
    return jax.tree.map(
        lambda *x: merge_rows(list(x[1:]), places, x[0].shape[1:], x[0].dtype), *found
    )


def sums_of_children(
    parents: Sequence[int] | np.ndarray,
    to_parents: Callable[[Level, Array, Any], Array],
    rows: Array,
    nodes: Any,
) -> Array:
    """Backward pass: each node adds an addend to the row of its parent.

    - `to_parents(level, rows, nodes)`: the addends (m, ...) of the nodes of a level. `rows`
      (m, ...) contain the addends of all children except the heavy child; `nodes` is the data
      of the nodes. The addend of a node includes the addends of all nodes below it on its path;
    - `rows` (n + 1, ...): the rows before the pass; the last row belongs to the world;
    - `nodes`: a pytree of arrays (n, ...).

    Returns the rows after the pass, (n + 1, ...).
    """
    parents, finished = np.array(parents, int), []
    levels = heavy_paths(parents)
    for level in reversed(levels):
        level_rows = take_rows(rows, level.nodes)
        addends = to_parents(level, level_rows, rows_of(nodes, level.nodes))
        finished.append(level_rows + level.rows_of_heavy_child(addends))
        starts = np.flatnonzero(level.is_start)
        rows = rows.at[parents[level.nodes[starts]]].add(take_rows(addends, starts))
    places = [level.nodes for level in reversed(levels)]
    return merge_rows([*finished, rows[-1:]], [*places, np.array([len(parents)])], (), rows.dtype)


def affine(product: Callable[[Any, Any], Any], apply: Callable[[Any, Array], Array]) -> Join:
    """The join of affine maps `y -> apply(A, y) + b`, for the elements (A, b) of a forward pass.

    `product(A, A_below)` is the matrix of the map that applies A first.
    """

    def join(above, below):
        (A, b), (A_below, b_below) = above, below
        return product(A, A_below), apply(A_below, b) + b_below

    return join
