"""Evaluation of a function of one state for many states, with one vector of states per entry.

A GPU kernel computes fast if each thread has one state and each entry of an array is a register. So
this module evaluates a function entry by entry. An array (3, 3) of the function is a NumPy array
(3, 3) of objects, and each object is a vector with one value per state (a lane vector).

`evaluate` reads the program of the function (its jaxpr). Operations that move entries, such as a
transposition, move the objects. Operations on entries apply to the lane vectors. Operations on
constants are computed while JAX traces.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core


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
_SUMS = {"reduce_sum": lambda p, x: np.sum(x, axis=tuple(p["axes"]))}
# Operations on single entries.
_ENTRYWISE: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "add_any": operator.add,
    "convert_element_type": lambda x: x,
    "div": operator.truediv,
    "mul": operator.mul,
    "neg": operator.neg,
    "sub": operator.sub,
}
_CALLS = ("jit", "pjit", "closed_call", "custom_jvp_call")


def evaluate(function: Callable[..., Any], like: Any, *operands: Any) -> Any:
    """The result of `function(*operands)`, a pytree of object arrays of lane vectors.

    `operands`: pytrees of object arrays, as `entries` makes them; `like`: the operands of one
    state, as pytrees of arrays or `jax.ShapeDtypeStruct`. Raises NotImplementedError, which names
    the operation, if the function has an operation that is not in the tables above.
    """
    program, shapes = jax.make_jaxpr(function, return_shape=True)(*like)
    found = _run(program, jax.tree.leaves(operands))
    results = [x if _has_lanes(x) else _constant(x) for x in found]
    return jax.tree.unflatten(jax.tree.structure(shapes), results)


def entries(shape: tuple[int, ...], read: Callable[[int], Any]) -> np.ndarray:
    """An object array of this shape; entry number k, row by row, is `read(k)`."""
    x = np.empty(shape, object)
    flat = x.reshape(-1)
    for k in range(flat.size):
        flat[k] = read(k)
    return x


def _run(program: core.ClosedJaxpr, operands: list[np.ndarray]) -> list[np.ndarray]:
    values = dict(zip(program.jaxpr.constvars, program.consts))
    values.update(zip(program.jaxpr.invars, operands))

    def value(variable):
        is_literal = isinstance(variable, core.Literal)
        return np.asarray(variable.val) if is_literal else values[variable]

    for equation in program.jaxpr.eqns:
        name, parameters = equation.primitive.name, equation.params
        x = [value(variable) for variable in equation.invars]
        if not any(map(_has_lanes, x)) and name not in _CALLS:
            with jax.ensure_compile_time_eval():
                results = equation.primitive.bind(*x, **parameters)
            results = results if equation.primitive.multiple_results else [results]
            values.update(zip(equation.outvars, map(np.asarray, results)))
            continue
        x = x if name in _CALLS else [y if _has_lanes(y) else _constant(y) for y in x]
        if name in _CALLS:
            inner = parameters["jaxpr" if "jaxpr" in parameters else "call_jaxpr"]
            results = _run(inner, x)
        elif name in _MOVES:
            results = _MOVES[name](parameters, *x)
        elif name in _SUMS:
            results = _SUMS[name](parameters, *x)
        elif name in _ENTRYWISE:
            # NumPy would warn of floating-point flags that the operations of JAX raise.
            with np.errstate(all="ignore"):
                results = np.frompyfunc(_ENTRYWISE[name], len(x), 1)(*x)
        else:
            raise NotImplementedError(f"jaxrbd.tree.gpu.lanes has no operation {name!r}")
        if not equation.primitive.multiple_results:
            results = [results]
        for variable, result in zip(equation.outvars, results):
            values[variable] = _objects(result, variable.aval.shape)
    return [value(variable) for variable in program.jaxpr.outvars]


def _has_lanes(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype == object


def _constant(x: Any) -> np.ndarray:
    x = np.asarray(x)
    flat = x.reshape(-1)
    return entries(x.shape, lambda k: jnp.asarray(flat[k]))


def _objects(x: Any, shape: tuple[int, ...]) -> np.ndarray:
    """x as an object array, also where NumPy returned the single entry of an array ()."""
    if isinstance(x, np.ndarray) and x.shape == shape:
        return x
    return entries((), lambda _: x)
