"""Evaluation of a function of one state for many states, with one vector of states per entry.

A GPU kernel computes fast if each thread has one state and each entry of an array is a register. So
this module evaluates a function entry by entry. An array (3, 3) of the function is a NumPy array
(3, 3) of objects, and each object is a vector with one value per state (a lane vector).

`evaluate` reads the program of the function (its jaxpr). Operations that move entries, such as a
transposition, move the objects. Operations on entries apply to the lane vectors. Operations on
constants are computed while JAX traces. The steps of a `scan` follow each other in the program. A
`while` is one loop for all states. It ends when the condition is false for all of them, and a state
whose condition is false keeps its values.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend import core

from ..._math.rules import CALL, program_of_call


def _broadcast(x: np.ndarray, shape, broadcast_dimensions) -> np.ndarray:
    sizes = np.ones(len(shape), int)
    sizes[list(broadcast_dimensions)] = x.shape
    return np.broadcast_to(x.reshape(sizes), shape)


def _slice(x: np.ndarray, starts, limits, strides) -> np.ndarray:
    return x[tuple(slice(*range_) for range_ in zip(starts, limits, strides or (1,) * x.ndim))]


# Operations that move entries: functions of the operands and of the parameters of the operation.
_MOVES: dict[str, Callable[..., Any]] = {
    "broadcast_in_dim": lambda p, x: _broadcast(x, p["shape"], p["broadcast_dimensions"]),
    "concatenate": lambda p, *x: np.concatenate(x, p["dimension"]),
    "expand_dims": lambda p, x: np.expand_dims(x, p["dimensions"]),
    "reshape": lambda p, x: x.reshape(p["new_sizes"]),
    "slice": lambda p, x: _slice(x, p["start_indices"], p["limit_indices"], p["strides"]),
    "split": lambda p, x: np.split(x, np.cumsum(p["sizes"])[:-1], p["axis"]),
    "squeeze": lambda p, x: np.squeeze(x, p["dimensions"]),
    "stack": lambda p, *x: np.stack(x, p["axis"]),
    "transpose": lambda p, x: np.transpose(x, p["permutation"]),
    "unstack": lambda p, x: list(np.moveaxis(x, p["axis"], 0)),
}
# Operations that take the entries whose indices are constant operands.
_TAKES = ("dynamic_slice", "gather")
# Reductions: the operations that combine two object arrays.
_REDUCTIONS: dict[str, Any] = {
    "reduce_and": np.frompyfunc(operator.and_, 2, 1),
    "reduce_max": np.frompyfunc(jnp.maximum, 2, 1),
    "reduce_min": np.frompyfunc(jnp.minimum, 2, 1),
    "reduce_or": np.frompyfunc(operator.or_, 2, 1),
    "reduce_sum": np.frompyfunc(operator.add, 2, 1),
}


def _select(condition: Any, *cases: Any) -> Any:
    """One of two cases, each a lane vector or a number; the second where the condition holds."""
    if isinstance(condition, np.generic):
        return cases[int(condition)]
    shape = np.broadcast_shapes(np.shape(condition), *map(np.shape, cases))
    condition, first, second = (jnp.broadcast_to(x, shape) for x in (condition, *cases))
    return lax.select(condition, second, first)


def _is_zero(x: Any) -> bool:
    """Whether x is the constant zero. Sums and products leave it out, as in sparse matrices."""
    return isinstance(x, np.generic) and bool(x == 0)


def _sum(x: Any, y: Any) -> Any:
    return y if _is_zero(x) else x if _is_zero(y) else x + y


def _product(x: Any, y: Any) -> Any:
    return x if _is_zero(x) else y if _is_zero(y) else x * y


# Operations on single entries: functions of the parameters of the operation and of the entries.
_ENTRYWISE: dict[str, Callable[..., Any]] = {
    "abs": lambda p, x: abs(x),
    "add": lambda p, x, y: _sum(x, y),
    "add_any": lambda p, x, y: _sum(x, y),
    "and": lambda p, x, y: x & y,
    "convert_element_type": lambda p, x: x.astype(p["new_dtype"]),
    "div": lambda p, x, y: x / y,
    "eq": lambda p, x, y: x == y,
    "ge": lambda p, x, y: x >= y,
    "gt": lambda p, x, y: x > y,
    "integer_pow": lambda p, x: x ** p["y"],
    "le": lambda p, x, y: x <= y,
    "lt": lambda p, x, y: x < y,
    "max": lambda p, x, y: jnp.maximum(x, y),
    "min": lambda p, x, y: jnp.minimum(x, y),
    "mul": lambda p, x, y: _product(x, y),
    "ne": lambda p, x, y: x != y,
    "neg": lambda p, x: -x,
    "not": lambda p, x: ~x,
    "or": lambda p, x, y: x | y,
    "rsqrt": lambda p, x: lax.rsqrt(x),
    "select_n": lambda p, *x: _select(*x),
    "sign": lambda p, x: jnp.sign(x),
    "sqrt": lambda p, x: lax.sqrt(x),
    "sub": lambda p, x, y: x - y,
}
_CALLS = ("jit", "pjit", "closed_call", CALL)


def evaluate(function: Callable[..., Any], like: Any, *operands: Any) -> Any:
    """The result of `function(*operands)`, a pytree of object arrays of lane vectors.

    `operands`: pytrees of object arrays, as `entries` makes them; `like`: the operands of one
    state, as pytrees of arrays or `jax.ShapeDtypeStruct`. Raises NotImplementedError, which names
    the operation, if the function has an operation on entries that this module does not know.
    """
    program, shapes = jax.make_jaxpr(function, return_shape=True)(*like)
    leaves = jax.tree.leaves(operands)
    vectors = (x for array in leaves for x in array.reshape(-1) if np.ndim(x) == 1)
    found = _run(program, leaves, next(vectors, jnp.zeros(())))
    return jax.tree.unflatten(jax.tree.structure(shapes), [*map(_as_objects, found)])


def _called_program(equation: core.JaxprEqn) -> core.ClosedJaxpr:
    if equation.primitive.name == CALL:
        return program_of_call(equation)
    return equation.params["jaxpr" if "jaxpr" in equation.params else "call_jaxpr"]


def entries(shape: tuple[int, ...], read: Callable[[int], Any]) -> np.ndarray:
    """An object array of this shape; entry number k, row by row, is `read(k)`."""
    x = np.empty(shape, object)
    flat = x.reshape(-1)
    for k in range(flat.size):
        flat[k] = read(k)
    return x


def _run(program: core.ClosedJaxpr, operands: list[np.ndarray], vector: Array) -> list[np.ndarray]:
    """The results of the program. `vector`: a lane vector among the operands."""
    values = dict(zip(program.jaxpr.constvars, program.consts))
    values.update(zip(program.jaxpr.invars, operands))

    def value(variable):
        is_literal = isinstance(variable, core.Literal)
        return np.asarray(variable.val) if is_literal else values[variable]

    for equation in program.jaxpr.eqns:
        name, parameters = equation.primitive.name, equation.params
        x = [value(variable) for variable in equation.invars]
        if not any(map(_is_object_array, x)) and name not in _CALLS:
            x = [
                np.zeros(v.aval.shape, v.aval.dtype) if np.size(y) == 0 else y
                for v, y in zip(equation.invars, x)
            ]
            with jax.ensure_compile_time_eval():
                results = equation.primitive.bind(*x, **parameters)
            results = results if equation.primitive.multiple_results else [results]
            values.update(zip(equation.outvars, map(np.asarray, results)))
            continue
        if name in _TAKES:
            results = _taken_entries(equation.primitive, parameters, *x)
        elif name in _CALLS:
            results = _run(_called_program(equation), x, vector)
        elif name in _LOOPS:
            results = _LOOPS[name](equation, vector, *x)
        elif name == "optimization_barrier":
            results = x
        else:
            results = _changed_entries(name, parameters, [*map(_as_objects, x)])
        if not equation.primitive.multiple_results:
            results = [results]
        for variable, result in zip(equation.outvars, results):
            values[variable] = _objects(result, variable.aval.shape)
    return [value(variable) for variable in program.jaxpr.outvars]


def _changed_entries(name: str, parameters: dict[str, Any], x: list[np.ndarray]) -> Any:
    """The result of an operation that moves, adds or changes entries."""
    if name in _MOVES:
        return _MOVES[name](parameters, *x)
    if name in _REDUCTIONS:
        axes = tuple(parameters["axes"])
        (operand,) = x
        kept = np.moveaxis(operand, axes, range(len(axes)))
        rows = kept.reshape(int(np.prod(kept.shape[: len(axes)])), *kept.shape[len(axes) :])
        combine = _REDUCTIONS[name]
        total = rows[:1]
        for k in range(1, len(rows)):
            total = combine(total, rows[k : k + 1])
        return np.squeeze(total, 0)
    if name in _ENTRYWISE:
        # NumPy would warn of floating-point flags that the operations of JAX raise.
        with np.errstate(all="ignore"):
            operation = functools.partial(_ENTRYWISE[name], parameters)
            return np.frompyfunc(operation, len(x), 1)(*x)
    raise NotImplementedError(f"jaxrbd.tree.gpu.lanes has no operation {name!r}")


def _taken_entries(primitive: Any, parameters: dict[str, Any], x: np.ndarray, *places: Any) -> Any:
    """The entries of x that the operation takes. It is applied to the indices of the entries."""
    indices = np.arange(x.size, dtype=np.int32).reshape(x.shape)
    with jax.ensure_compile_time_eval():
        taken = np.asarray(primitive.bind(indices, *places, **parameters))
    return x.reshape(-1)[taken]


def _scan(equation: core.JaxprEqn, vector: Array, *operands: Any) -> list[Any]:
    """The steps of the scan, one after the other."""
    step, length = equation.params["jaxpr"], equation.params["length"]
    # The operands are constants, carried arrays, and arrays with one row per step. The parameters
    # that state how many operands are of each kind differ between versions of JAX. So the code
    # compares shapes: an array with one row per step has one axis more than the operand of a step.
    results: list[Any] = [x.aval for x in equation.outvars]
    carried = sum(x.shape == y.shape for x, y in zip(results, step.out_avals))
    stepped = sum(np.shape(x) != y.shape for x, y in zip(operands, step.in_avals))
    first = len(operands) - stepped
    fixed, carry = operands[: first - carried], list(operands[first - carried : first])
    rows: list[Any] = [None] * length
    for i in reversed(range(length)) if equation.params["reverse"] else range(length):
        slices = [np.squeeze(x[i : i + 1], 0) for x in operands[first:]]
        found = _run(step, [*fixed, *carry, *slices], vector)
        carry, rows[i] = found[:carried], found[carried:]
    return [*carry, *(np.stack([*map(_as_objects, x)]) for x in zip(*rows))]


def _while(equation: core.JaxprEqn, vector: Array, *operands: Any) -> list[Any]:
    """The results of a loop that runs until it has ended for all states."""
    parameters = equation.params
    condition_constants, body_constants = parameters["cond_nconsts"], parameters["body_nconsts"]
    fixed = operands[: condition_constants + body_constants]
    shapes = [np.shape(x) for x in operands[len(fixed) :]]
    starts = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])

    def lane_vector(x: Any) -> Array:
        """x as a lane vector that a loop can carry.

        Mosaic GPU gives a constant vector another register layout than a computed vector, and a
        value that a loop carries must keep one layout. The result of a selection has the layout of
        a computed vector.
        """
        x = jnp.broadcast_to(x, vector.shape)
        return lax.select(vector == vector, x, x)

    def flat(arrays: Any) -> list[Array]:
        return [lane_vector(entry) for x in arrays for entry in _as_objects(x).reshape(-1)]

    def arrays(vectors: Any) -> list[np.ndarray]:
        return [
            entries(shape, lambda k, first=first: vectors[first + k])
            for shape, first in zip(shapes, starts)
        ]

    def going_on(vectors: Any) -> Array:
        """1 for each state whose loop has not ended, else 0."""
        found = _run(
            parameters["cond_jaxpr"], [*fixed[:condition_constants], *arrays(vectors)], vector
        )
        one = jnp.ones(vector.shape, jnp.int32)
        return lax.select(flat(found)[0], one, 0 * one)

    def body(state: Any) -> Any:
        going, vectors = state
        operands = [*fixed[condition_constants:], *arrays(vectors)]
        changed = flat(_run(parameters["body_jaxpr"], operands, vector))
        vectors = tuple(lax.select(going > 0, x, y) for x, y in zip(changed, vectors))
        return going_on(vectors), vectors

    start = tuple(flat(operands[len(fixed) :]))
    found = lax.while_loop(lambda state: jnp.max(state[0]) > 0, body, (going_on(start), start))
    return arrays(found[1])


_LOOPS: dict[str, Callable[..., Any]] = {"scan": _scan, "while": _while}


def _is_object_array(x: Any) -> bool:
    """Whether x is an array of objects; False for an empty array, which has no lane vectors."""
    return isinstance(x, np.ndarray) and x.dtype == object and x.size > 0


def _as_objects(x: Any) -> np.ndarray:
    """x as an array of objects; the objects of a constant are numbers."""
    if _is_object_array(x):
        return x
    x = np.asarray(x)
    flat = x.reshape(-1)
    return entries(x.shape, lambda k: flat[k])


def _objects(x: Any, shape: tuple[int, ...]) -> np.ndarray:
    """x as an object array, also where NumPy returned the single entry of an array ()."""
    if isinstance(x, np.ndarray) and x.shape == shape:
        return x
    return entries((), lambda _: x)
