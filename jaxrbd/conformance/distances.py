"""Derivatives of distances of shapes, for all pairs of kinds but height grids.

Each of the random pairs of two kinds, apart or overlapping, moves along a curve with the parameter
t: both poses along a screw, and all sizes and vertices along a line. The reference derivatives are
central differences of the distance, the points and the normal along this curve (`truth.py`). Where
the nearest points jump between two features of a shape, the distance has no derivative, and its
reference is unsure.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .. import collision, se3, so3
from ..collision import Separation
from ..collision.shapes import Shape
from ..errors import ArgumentError
from ..model import arguments
from ..spatial import Pose, compose
from .report import markdown
from .truth import true_derivatives

# The largest error of a derivative D, divided by 1 + |D|, for shapes of about 1 m.
DISTANCE_TOLERANCE = 1e-6
# The largest part of the pairs whose reference may be unsure.
_UNSURE = 0.15
# The size of the motion for each unit of t. The references use t between -1 and 1.
_LENGTH = 0.003
_VERTICES = 8

_Make = Callable[[np.random.Generator, int], Shape]
"""A function of a random generator and n, which returns n shapes as one batch."""


def _of_sizes(kind: type, *shapes: tuple[int, ...], rounded: bool = False) -> _Make:
    """Shapes of a kind whose constructor takes sizes of these shapes, then a rounding if wished."""

    def make(rng: np.random.Generator, n: int) -> Shape:
        sizes = [rng.uniform(0.2, 1, (n, *shape)) for shape in shapes]
        sizes += [rng.uniform(0, 0.1, n)] if rounded else []
        return jax.vmap(kind)(*map(jnp.asarray, sizes))

    return make


def _hulls(rng: np.random.Generator, n: int) -> Shape:
    vertices, rounding = rng.uniform(-1, 1, (n, _VERTICES, 3)), rng.uniform(0, 0.1, n)
    # Hulls have different numbers of edges; some repeat edges.
    hulls = [collision.ConvexMesh(*arrays) for arrays in zip(vertices, rounding)]
    most = max(len(hull.edge_normals) for hull in hulls)
    normals = [np.resize(hull.edge_normals, (most, 2, 3)) for hull in hulls]
    leaves = map(jnp.asarray, (vertices, rounding, np.stack(normals)))
    return jax.tree.unflatten(jax.tree.structure(hulls[0]), leaves)


_MAKE: dict[str, _Make] = {
    "sphere": _of_sizes(collision.Sphere, ()),
    "capsule": _of_sizes(collision.Capsule, (), ()),
    "box": _of_sizes(collision.Box, (3,), rounded=True),
    "cylinder": _of_sizes(collision.Cylinder, (), (), rounded=True),
    "ellipsoid": _of_sizes(collision.Ellipsoid, (3,), rounded=True),
    "hull": _hulls,
    "half-space": lambda rng, n: jax.vmap(lambda _: collision.HalfSpace())(jnp.zeros(n)),
}
SHAPE_PAIRS = tuple(itertools.combinations_with_replacement(_MAKE, 2))[:-1]
"""The names of all pairs of kinds of shapes. Two half-spaces have no distance."""


class DistanceCheck(NamedTuple):
    """One derivative of the distances of random pairs of two kinds.

    - `shapes`: the names of the two kinds; `state`: "apart" or "overlapping";
    - `derivative`: "first, forward", "first, reverse" or "second" of the distance, or "points": the
      first derivative of the points and of the normal;
    - `pairs`: the number of pairs; `unsure`: of these, how many have a reference whose uncertainty
      is above a third of the tolerance;
    - `error`: the largest error of the other pairs.

    The uncertainty and the error of a derivative D are divided by 1 + |D|.
    """

    shapes: tuple[str, str]
    state: str
    derivative: str
    pairs: int
    unsure: int
    error: float

    @property
    def wrong(self) -> bool:
        """Whether a derivative is wrong, or too many references are unsure."""
        right = self.error <= DISTANCE_TOLERANCE and self.unsure <= max(1, _UNSURE * self.pairs)
        return not right


class DistanceReport(NamedTuple):
    """The checks of all tested pairs of kinds."""

    checks: tuple[DistanceCheck, ...]

    @property
    def wrong(self) -> bool:
        """Whether any derivative is wrong, or too many references are unsure."""
        return any(check.wrong for check in self.checks)

    def table(self) -> str:
        """The largest errors of each pair of kinds, as Markdown."""
        names = list(dict.fromkeys(check.derivative for check in self.checks))
        rows = []
        for shapes in dict.fromkeys(check.shapes for check in self.checks):
            checks = [check for check in self.checks if check.shapes == shapes]
            counts = [check.pairs for check in checks if check.derivative == names[0]]
            unsure = max(check.unsure for check in checks)
            errors = [max(c.error for c in checks if c.derivative == name) for name in names]
            verdict = "WRONG" if any(check.wrong for check in checks) else "ok"
            numbers = [*map(str, [*counts, unsure]), *(f"{error:.0e}" for error in errors)]
            rows.append([", ".join(shapes), *numbers, verdict])
        header = ["shapes", "apart", "overlapping", "unsure", *names, "verdict"]
        return markdown(header, rows)


def check_distances(
    shapes: Sequence[tuple[str, str]] = SHAPE_PAIRS, samples: int = 64
) -> DistanceReport:
    """The errors of derivatives of `collision.distance` for random pairs of shapes, in float64.

    - `shapes`: pairs of kinds, from `SHAPE_PAIRS` (default: all);
    - `samples`: the number of random pairs of each two kinds. Some overlap, the others are apart.

    The sizes are 0.2 m to 1 m; hulls have 8 vertices. The function compiles one program for each
    two kinds. Raises ArgumentError for unknown pairs, and for a number of samples below 8.
    """
    pairs = arguments.sequence(shapes, "shapes", "pairs from SHAPE_PAIRS")
    for pair in pairs:
        if pair not in SHAPE_PAIRS:
            raise ArgumentError(f"shapes has {pair!r}, expected pairs from SHAPE_PAIRS")
    arguments.require_counts(least=8, samples=samples)
    with jax.enable_x64(True):
        checks = [_checks(pair, samples) for pair in pairs]
    return DistanceReport(tuple(itertools.chain(*checks)))


class _Derivatives(NamedTuple):
    """The distance, the points and the normal of a pair as `found` (10,), and derivatives by t.

    `first` (10,) is the derivative of `found` in forward mode. `reverse` () is the derivative of
    the distance in reverse mode, and `second` () the derivative of `reverse` in forward mode.
    """

    found: Array
    first: Array
    reverse: Array
    second: Array


def _checks(names: tuple[str, str], n: int) -> list[DistanceCheck]:
    """The checks of n random pairs of two kinds."""
    rng = np.random.default_rng(0)
    shapes = tuple(_MAKE[name](rng, n) for name in names)
    rates = jax.tree.map(lambda x: _LENGTH * x * rng.normal(size=x.shape), shapes)
    R = jax.vmap(so3.exp)(jnp.asarray(2 * rng.normal(size=(2 * n, 3)))).reshape(n, 2, 3, 3)
    X = Pose(R, jnp.asarray(rng.normal(size=(n, 2, 3))))
    twists = jnp.asarray(_LENGTH * rng.normal(size=(n, 2, 6)))
    # One program computes values and derivatives, because its compilation takes longest.
    program = jax.jit(jax.vmap(_derivatives, (None, 0, 0, 0, 0)))

    def derivatives(t: float) -> _Derivatives:
        return program(jnp.asarray(t), shapes, rates, X, twists)

    truth, gap = true_derivatives(lambda t: np.asarray(derivatives(t).found))
    at_zero = jax.tree.map(np.asarray, derivatives(0.0))
    checks = []
    for state, members in (
        ("apart", at_zero.found[:, 0] > 0),
        ("overlapping", at_zero.found[:, 0] <= 0),
    ):
        for derivative, order, found, entries in (
            ("first, forward", 1, at_zero.first[:, :1], slice(1)),
            ("first, reverse", 1, at_zero.reverse[:, None], slice(1)),
            ("second", 2, at_zero.second[:, None], slice(1)),
            ("points", 1, at_zero.first[:, 1:], slice(1, None)),
        ):
            true = truth[order][:, entries] / _LENGTH**order
            room = _LENGTH**order * (1 + np.abs(true))
            unsure = np.max(gap[order][:, entries] / room, axis=1) > DISTANCE_TOLERANCE / 3
            error = np.max(np.abs(found - truth[order][:, entries]) / room, axis=1)
            sure = error[members & ~unsure]
            counts = int(np.sum(members)), int(np.sum(members & unsure))
            largest = float(np.max(sure, initial=0.0))  # NaN if an error is NaN
            checks.append(DistanceCheck(names, state, derivative, *counts, largest))
    return checks


def _derivatives(
    t: Array,
    shapes: tuple[Shape, Shape],
    rates: tuple[Shape, Shape],
    X: Pose,
    twists: Array,
) -> _Derivatives:
    """The derivatives of one pair along its curve, see `_Derivatives`."""

    def separation(t: Array) -> Separation:
        a, b = jax.tree.map(lambda x, rate: x + t * rate, shapes, rates)
        moved = compose(X, jax.vmap(se3.exp)(t * twists))
        X_a, X_b = (Pose(moved.R[i], moved.p[i]) for i in range(2))
        return collision.distance(a, X_a, b, X_b)

    def by_both_modes(t: Array) -> tuple[Array, tuple[Separation, Separation]]:
        found, forward = jax.linearize(separation, t)
        (reverse,) = jax.linear_transpose(lambda dt: forward(dt).distance, t)(jnp.ones_like(t))
        return reverse, (found, forward(jnp.ones_like(t)))

    one = jnp.ones_like(t)
    reverse, second, (found, first) = jax.jvp(by_both_modes, (t,), (one,), has_aux=True)
    return _Derivatives(_flat(found), _flat(first), reverse, second)


def _flat(x: Separation) -> Array:
    """The distance, the points and the normal, (10,)."""
    return jnp.concatenate([x.distance[None], x.point_a, x.point_b, x.normal])
