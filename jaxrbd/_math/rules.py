"""Functions with rules for their derivatives: `custom_jvp` and `implicit_root`.

They replace `jax.custom_jvp` and `lax.custom_root`. When JAX 0.10 differentiates a `lax.scan` in
reverse mode, it drops the rules of `jax.custom_jvp` and `lax.custom_root` in the body of the loop,
so a second derivative differentiates the code of the function instead. That is wrong for a function
that searches for its result. Here a call is one operation of the program, and JAX keeps the rules
of operations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.extend.core as jax_core
import jax.numpy as jnp
from jax import Array, core
from jax.custom_derivatives import SymbolicZero
from jax.interpreters import ad, batching, mlir
from jax.typing import ArrayLike
from jaxtyping import PyTree

Changes = Mapping[int, Array]
"""The tangents of some arrays in a list, by their indices. Other arrays do not change."""

CALL = "jaxrbd_call"
"""The name of the operation of a call."""


class custom_jvp:
    """A function whose derivative is a rule, with the interface of `jax.custom_jvp`.

    `nondiff_argnums`: the indices of arguments that are no arrays. The rule takes them first. The
    function must not use arrays of an enclosing function that have a tangent or a batch axis.
    """

    def __init__(self, function: Callable[..., Any], nondiff_argnums: Sequence[int] = ()):
        functools.update_wrapper(self, function)
        self._function, self._static = function, frozenset(nondiff_argnums)
        self._rule: Callable[..., tuple[Any, Any]] | None = None
        self._symbolic_zeros = False
        self._linear: tuple[int, Callable[..., Any]] | None = None

    def defjvp(self, rule: Callable[..., tuple[Any, Any]], symbolic_zeros: bool = False) -> None:
        """Set the rule, a function of (primals, tangents) that returns the result and its tangent.

        With `symbolic_zeros`, an argument that does not change has the tangent `SymbolicZero`.
        """
        self._rule, self._symbolic_zeros = rule, symbolic_zeros

    def deftranspose(self, argument: int, transpose: Callable[..., Any]) -> None:
        """Set the transpose of the function, which is linear in the argument with this index.

        `transpose` takes the arguments of the function, with the cotangent of the result in place
        of this argument, and returns the cotangent of this argument. It may be a `custom_jvp` too.
        """
        self._linear = argument, transpose

    def __call__(self, *arguments: Any) -> Any:
        static = [x for i, x in enumerate(arguments) if i in self._static]
        operands = [x for i, x in enumerate(arguments) if i not in self._static]
        leaves, tree = jax.tree.flatten(operands)
        result_tree = None

        def flat(result: Any) -> list[Array]:
            nonlocal result_tree
            found, result_tree = jax.tree.flatten(result)
            return found

        def all_arguments(leaves: Sequence[Any]) -> list[Any]:
            changing, fixed = iter(tree.unflatten(leaves)), iter(static)
            return [next(fixed if i in self._static else changing) for i in range(len(arguments))]

        def value(*leaves: Array) -> list[Array]:
            return flat(self._function(*all_arguments(leaves)))

        def rule(leaves: list[Array], changes: Changes) -> tuple[list[Array], Changes]:
            assert self._rule is not None
            zeros = (SymbolicZero(jax.typeof(x).to_tangent_aval()) for x in leaves)
            tangents = [changes.get(i, zero) for i, zero in enumerate(zeros)]
            if not self._symbolic_zeros:
                tangents = [instantiated(x) for x in tangents]
            primals = tuple(tree.unflatten(leaves)), tuple(tree.unflatten(tangents))
            result, tangent = self._rule(*static, *primals)
            found = flat(result)
            assert result_tree is not None
            return found, _changes(result_tree.flatten_up_to(tangent))

        def transpose(known: Changes, cotangents: list[Array]) -> Changes:
            assert self._linear is not None
            assert result_tree is not None
            argument, transposed = self._linear
            replaced = all_arguments([known.get(i) for i in range(len(leaves))])
            replaced[argument] = result_tree.unflatten(cotangents)
            return dict(zip(linear, jax.tree.leaves(transposed(*replaced))))

        linear: list[int] = []
        if self._linear is not None:
            linear = jax.tree.leaves(all_arguments(range(len(leaves)))[self._linear[0]])
        function = _Function(value, rule, linear, transpose)
        found = _call.bind(*leaves, function=function)
        return jax.tree.unflatten(result_tree, found)


def implicit_root(
    equations: Callable[[Array], Array],
    solve: Callable[[], Array],
    tangent_solve: Callable[[Callable[[Array], Array], Array], Array],
) -> Array:
    """The root x (n,) of `equations`, differentiated as an implicit function.

    - `solve()` returns the root. JAX does not differentiate it.
    - `tangent_solve(A, b)` returns the solution of `A(x) = b` for a linear function A. JAX
      differentiates it, for derivatives of higher order.

    All three functions may use arrays of enclosing functions, as for `lax.custom_root`.
    """

    def tangent(x, b):
        return tangent_solve(jax.linearize(equations, x)[1], b)

    search, search_constants, like = _closed(solve)
    residual, constants = _closed(equations, like)[:2]
    change, change_constants = _closed(tangent, like, like)[:2]

    @custom_jvp
    def root(constants, search_constants, change_constants):
        del constants, change_constants
        return search(search_constants)

    @root.defjvp
    def _(primals, tangents):
        x = root(*primals)
        constants, _, change_constants = primals
        b = jax.jvp(lambda constants: residual(constants, x), (constants,), (tangents[0],))[1]
        return x, -change(change_constants, x, b)

    return root(constants, search_constants, change_constants)


def changed_leaves(
    operands: PyTree, tangents: PyTree
) -> tuple[list[Array], list[Array], Callable[[list[Array]], PyTree]]:
    """The leaves of the operands that change, their tangents, and a function that puts them back.

    `tangents` has the structure of `operands`. A leaf does not change if its tangent is a
    `SymbolicZero`. The function takes new values of the changing leaves, and returns the operands
    with these values.
    """
    leaves, tree = jax.tree.flatten(operands)
    changes = tree.flatten_up_to(tangents)
    indices = [i for i, x in enumerate(changes) if not isinstance(x, SymbolicZero)]

    def with_values(values: list[Array]) -> PyTree:
        found = list(leaves)
        for i, x in zip(indices, values):
            found[i] = x
        return tree.unflatten(found)

    return [leaves[i] for i in indices], [changes[i] for i in indices], with_values


@custom_jvp
def with_value(x: Array, value: Array) -> Array:
    """`value`, with the derivatives of x; the derivatives of `value` are ignored."""
    return value


@with_value.defjvp
def _(primals, tangents):
    return with_value(*primals), tangents[0]


def program_of_call(call: jax_core.JaxprEqn) -> jax_core.ClosedJaxpr:
    """The program of the function that an operation with the name `CALL` calls."""
    return call.params["function"].program(*(x.aval for x in call.invars))


def _closed(
    function: Callable[..., Array], *like: Any
) -> tuple[Callable[..., Array], tuple[ArrayLike, ...], jax.ShapeDtypeStruct]:
    """A function of (constants, *operands), the constants, and the shape of the result.

    The constants are the arrays of enclosing functions that `function` uses.
    """
    program, shape = jax.make_jaxpr(function, return_shape=True)(*like)

    def closed(constants, *operands):
        return core.eval_jaxpr(program.jaxpr, constants, *operands)[0]

    return closed, tuple(program.consts), shape


class _Function:
    """A function of arrays that returns a list of arrays, and its rule.

    The rule takes the arrays and their changes, and returns the results and their changes. The
    function may state that it is linear in the arrays with the indices `linear`. Then `transpose`
    takes the other arrays and the cotangents of the results, and returns the cotangents of the
    arrays with these indices.
    """

    def __init__(
        self,
        value: Callable[..., list[Array]],
        rule: Callable[[list[Array], Changes], tuple[list[Array], Changes]],
        linear: Sequence[int],
        transpose: Callable[[Changes, list[Array]], Changes],
    ):
        self.value, self.rule, self.linear, self.transpose = value, rule, linear, transpose
        self._programs: dict[tuple, jax_core.ClosedJaxpr] = {}

    def program(self, *operands: Any) -> jax_core.ClosedJaxpr:
        """The program of the function for operands of these shapes. It is traced once."""
        if operands not in self._programs:
            self._programs[operands] = jax.make_jaxpr(self.value)(*operands)
        return self._programs[operands]

    def batched(self, axes: Sequence[int | None]) -> _Function:
        """The function of operands with these batch axes. The axis of a result is 0."""

        def rule(leaves, changes):
            mapped = {i: axes[i] for i in changes}
            return jax.vmap(self.rule, in_axes=(list(axes), mapped))(leaves, changes)

        def transpose(known, cotangents):
            mapped = {i: axes[i] for i in known}
            found = jax.vmap(self.transpose, in_axes=(mapped, 0))(known, cotangents)

            def operand_cotangent(x: Array, axis: int | None) -> Array:
                return jnp.sum(x, 0) if axis is None else jnp.moveaxis(x, 0, axis)

            return {i: operand_cotangent(x, axes[i]) for i, x in found.items()}

        return _Function(jax.vmap(self.value, in_axes=tuple(axes)), rule, self.linear, transpose)


_call = jax_core.Primitive(CALL)
_call.multiple_results = True


@_call.def_impl
def _run(*operands: Array, function: _Function) -> list[Array]:
    return function.value(*operands)


@_call.def_effectful_abstract_eval
def _shapes_and_effects(*operands: Any, function: _Function) -> tuple[Any, Any]:
    program = function.program(*operands)
    return program.out_avals, program.effects


def _differentiate(
    operands: Sequence[Any], tangents: Sequence[Any], *, function: _Function
) -> tuple[list[Array], list[Any]]:
    results, changes = function.rule(list(operands), _changes(tangents))
    unchanged = (ad.Zero(jax.typeof(x).to_tangent_aval()) for x in results)
    return results, [changes.get(i, zero) for i, zero in enumerate(unchanged)]


def _batch(
    operands: Sequence[Any], axes: Sequence[int | None], *, function: _Function
) -> tuple[list[Array], list[int]]:
    results = _call.bind(*operands, function=function.batched(axes))
    return results, [0] * len(results)


def _transpose(
    cotangents: Sequence[Any], *operands: Any, function: _Function
) -> list[Array | None]:
    """For each operand the cotangent if it is an undefined primal, else None.

    The function is linear in the undefined primals.
    """
    unknown = [i for i, x in enumerate(operands) if ad.is_undefined_primal(x)]
    cotangents = [ad.instantiate_zeros(x) for x in cotangents]
    if function.linear and set(unknown) <= set(function.linear):
        known = {i: x for i, x in enumerate(operands) if i not in function.linear}
        found = function.transpose(known, cotangents)
        return [found[i] if i in unknown else None for i in range(len(operands))]

    def linear(*values: Array) -> list[Array]:
        found = dict(zip(unknown, values))
        return function.value(*(found.get(i, x) for i, x in enumerate(operands)))

    shapes = (jax.ShapeDtypeStruct(operands[i].aval.shape, operands[i].aval.dtype) for i in unknown)
    transpose = jax.linear_transpose(linear, *shapes)
    found = dict(zip(unknown, transpose(cotangents)))
    return [found.get(i) for i in range(len(operands))]


def _changes(tangents: Sequence[Any]) -> Changes:
    zeros = ad.Zero, SymbolicZero
    return {
        i: x
        for i, x in enumerate(tangents)
        if not isinstance(x, zeros) and x.dtype != jax.dtypes.float0
    }


def instantiated(tangent: Any) -> Any:
    """The tangent, with zeros in place of a `SymbolicZero`."""
    is_zero = isinstance(tangent, SymbolicZero)
    return ad.instantiate_zeros(ad.Zero(tangent.aval)) if is_zero else tangent


def _evaluate(*operands: Array, function: _Function) -> list[Array]:
    return jax_core.jaxpr_as_fun(function.program(*map(jax.typeof, operands)))(*operands)


ad.primitive_jvps[_call] = _differentiate
ad.primitive_transposes[_call] = _transpose
batching.primitive_batchers[_call] = _batch
mlir.register_lowering(_call, mlir.lower_fun(_evaluate, multiple_results=True))
