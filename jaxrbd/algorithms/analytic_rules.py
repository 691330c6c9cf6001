"""Rules that give a function of a robot's state analytic derivatives.

Let y be a function of the configuration q and of other vectors x_i (nv,), such as v and tau. Its
first derivatives are linear maps D_i of the changes of these vectors. The change of q is a
displacement (nv,). Forward mode needs `D_i change`, and reverse mode needs `weights . D_i`. The
derivatives of `weights . D_i` are the second derivatives of the scalar `weights . y`, matrices
H_ij. So the Hessian of a scalar function of y, in forward over reverse mode, takes one evaluation
of all H_ij. In forward over forward mode, and without a formula for H_ij, JAX differentiates the
program of the D_i.

D_q maps a velocity at q to the derivative of y along this velocity. When q moves with the velocity
d, the rate of the derivative along a velocity e is the symmetric second derivative in (d, e), plus
half of the derivative along the bracket [d, e] (`configuration.velocity_bracket`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import PyTree

from .._math.linear import matmul
from .._math.rules import changed_leaves, custom_jvp, instantiated
from ..configuration import displacement, velocity_bracket

Parts = tuple[int, ...]
"""Some of the vectors, by index: 0 for q, and the others in their order."""


@runtime_checkable
class Differential(Protocol):
    """The value y of a function, a pytree of arrays, and the maps D_i of its first derivatives.

    `point`: the arguments `(constants, q, *others)` at which the function has the value y.
    """

    @property
    def value(self) -> PyTree:
        """y."""
        ...

    def product(self, point: tuple, parts: Parts, changes: Sequence[Array]) -> PyTree:
        """The sum of `D_i change_i`: the change of y for the changes (nv,) of these vectors."""
        ...

    def weighted(self, point: tuple, parts: Parts, weights: PyTree) -> tuple[Array, ...]:
        """`weights . D_i` (nv,) for these vectors."""
        ...


class FirstOrder(NamedTuple):
    """A `Differential` of a pytree of vectors, as matrices.

    - `columns`: for q and each other vector, a pytree of matrices with nv columns, in the structure
      of y.
    """

    value: PyTree
    columns: tuple[PyTree, ...]

    def product(self, point: tuple, parts: Parts, changes: Sequence[Array]) -> PyTree:
        """The sum of the products of the matrices and the changes."""
        products = [
            jax.tree.map(lambda D, change=change: matmul(D, change), self.columns[i])
            for i, change in zip(parts, changes)
        ]
        return jax.tree.map(lambda *x: functools.reduce(jnp.add, x), *products)

    def weighted(self, point: tuple, parts: Parts, weights: PyTree) -> tuple[Array, ...]:
        """The products of the weights and the matrices."""

        def weighted_sum(columns):
            products = jax.tree.map(matmul, weights, columns)
            return functools.reduce(jnp.add, jax.tree.leaves(products))

        return tuple(weighted_sum(self.columns[i]) for i in parts)


SecondOrder = Sequence[Sequence[Array | None]]
"""The second derivatives H_ij (nv, nv) of `weights . y` by the vectors i and j; None for zero."""


def with_analytic_derivatives(
    value: Callable[..., PyTree],
    first_order: Callable[..., Differential],
    second_order: Callable[..., SecondOrder] | None = None,
    program: Callable[..., PyTree] | None = None,
) -> Callable[..., PyTree]:
    """The function `value(constants, q, *others)`, differentiated by analytic formulas.

    - `constants`: a tuple whose first entry is the model. With respect to the constants, JAX
      differentiates `program`, and the program of `first_order`;
    - `first_order(constants, q, *others)`: the `Differential`, which is a pytree;
    - `second_order(constants, q, *others, first, weights)`: the `SecondOrder` of `weights . y`;
      without it, JAX differentiates `first_order`;
    - `program(constants, q, *others)`: the value for derivatives with respect to the constants
      (default: `value`).
    """
    program = value if program is None else program

    @custom_jvp
    def function(point):
        return value(*point)

    @custom_jvp
    def known(point, first):
        """The value of the `Differential` `first` at the point. `first` has no derivatives."""
        return first.value

    @functools.partial(custom_jvp, nondiff_argnums=(0,))
    def product(parts, point, first, changes):
        """The sum of D_i change_i: the change of y for the changes (nv,) of these vectors."""
        return first.product(point, parts, changes)

    @functools.partial(custom_jvp, nondiff_argnums=(0,))
    def weighted(parts, point, first, weights):
        """`weights . D_i` (nv,) for these vectors."""
        return first.weighted(point, parts, weights)

    product.deftranspose(3, weighted)
    weighted.deftranspose(3, product)

    def function_rule(primals, tangents):
        (point,), (point_dot,) = primals, tangents
        first = first_order(*lax.stop_gradient(point))
        return known_rule((point, first), (point_dot, None))

    def known_rule(primals, tangents):
        (point, first), (point_dot, _) = primals, tangents
        constants, *vectors = point
        parts, changes = _changes(point, point_dot)
        change = product(parts, point, first, changes) if parts else None
        by_constants = _by_program(lambda x: program(x, *vectors), constants, point_dot[0])
        return known(point, first), _total(first.value, change, by_constants)

    def product_rule(parts, primals, tangents):
        """The tangent has the term `linear` from new changes and `curved` from a moved point."""
        (point, first, changes), (point_dot, _, changes_dot) = primals, tangents
        moving = [i for i, x in enumerate(changes_dot) if not isinstance(x, SymbolicZero)]
        linear = None
        if moving:
            given = tuple(changes_dot[i] for i in moving)
            linear = product(tuple(parts[i] for i in moving), point, first, given)

        def products(point):
            return first_order(*point).product(point, parts, changes)

        curved = _by_program(products, point, point_dot)
        return product(parts, point, first, changes), _total(first.value, linear, curved)

    def weighted_rule(parts, primals, tangents):
        """The tangent has the term `linear` from changed weights, and two terms from a moved point.

        `curved` is the term of the vectors that change, by H_ij. `by_jax` is the term of the
        constants; without `second_order`, it is the term of the vectors too.
        """
        (point, first, weights), (point_dot, _, weights_dot) = primals, tangents
        zeros = [isinstance(x, SymbolicZero) for x in jax.tree.leaves(weights_dot)]
        linear = curved = None
        if not all(zeros):
            linear = weighted(parts, point, first, jax.tree.map(instantiated, weights_dot))
        moving, changes = _changes(point, point_dot)
        operands, operands_dot = point, point_dot
        if moving and second_order is not None:
            # The first order is computed again, because third derivatives need derivatives of the
            # first order, and `first` has none. XLA computes the first order only once.
            fresh = first_order(*point)
            H = second_order(*point, fresh, weights)
            curved = _curved(H, point, fresh, weights, parts, moving, changes)
            operands, operands_dot = point[:1], point_dot[:1]  # by JAX: only the constants

        def sums(operands):
            moved = *operands, *point[len(operands) :]
            return first_order(*moved).weighted(moved, parts, weights)

        found = weighted(parts, point, first, weights)
        by_jax = _by_program(sums, operands, operands_dot)
        return found, _total(found, linear, curved, by_jax)

    rules = (function_rule, known_rule, product_rule, weighted_rule)
    for f, rule in zip((function, known, product, weighted), rules):
        f.defjvp(rule, symbolic_zeros=True)
    return lambda *point: function(point)


def _by_program(function: Callable, operands: PyTree, tangents: PyTree) -> PyTree | None:
    """The tangent of a function, whose program JAX differentiates; None if no operand changes."""
    leaves, changes, with_values = changed_leaves(operands, tangents)
    if not leaves:
        return None
    return jax.jvp(lambda leaves: function(with_values(leaves)), (leaves,), (changes,))[1]


def _changes(point: tuple, point_dot: tuple) -> tuple[Parts, tuple[Array, ...]]:
    """Which vectors of (constants, q, *others) change, and their changes (nv,)."""
    (constants, q, *_), (_, *tangents) = point, point_dot
    parts = tuple(i for i, x in enumerate(tangents) if not isinstance(x, SymbolicZero))
    changes = [tangents[i] for i in parts]
    if 0 in parts:
        changes[0] = displacement.unchecked(constants[0], q, changes[0])
    return parts, tuple(changes)


def _curved(
    H: SecondOrder,
    point: tuple,
    first: Differential,
    weights: PyTree,
    parts: Parts,
    moving: Parts,
    changes: Sequence[Array],
) -> tuple[Array, ...]:
    """The changes (nv,) of `weights . D_i` for i in `parts` when the vectors `moving` change."""
    found = []
    for i in parts:
        blocks = [(H[i][j], change) for j, change in zip(moving, changes)]
        products = [matmul(block, change) for block, change in blocks if block is not None]
        found.append(functools.reduce(jnp.add, products, jnp.zeros_like(changes[0])))
    if parts[0] == moving[0] == 0:
        # Half of the derivative along the bracket [d, e], as a linear map of e: see the head.
        (slope,) = first.weighted(point, (0,), weights)
        bracket = functools.partial(velocity_bracket.unchecked, point[0][0], changes[0])
        (turned,) = jax.linear_transpose(bracket, slope)(slope)
        found[0] = found[0] + turned / 2
    return tuple(found)


def _total(like: PyTree, *terms: PyTree | None) -> PyTree:
    """The sum of the terms that are not None."""
    given = [x for x in terms if x is not None]
    if not given:
        return jax.tree.map(jnp.zeros_like, like)
    return jax.tree.map(lambda *x: functools.reduce(jnp.add, x), *given)
