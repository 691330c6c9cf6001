"""Algorithms as programs for any batch size and several platforms, saved without Python.

`export_batched` makes a `jax.export.Exported` of an algorithm and a robot; `save_program` and
`load_program` keep it in a file. What calls the program needs neither the robot's file nor the
robot, and jaxrbd only to load: `docs/saving.md` says how to load it with JAX alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import export
from jaxtyping import PyTree

from ..errors import ArgumentError, SavedFileError
from ..model import Model
from ._sealed import read_sealed, write_sealed

VERSION = 1
PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def export_batched(
    function: Callable[..., Any],
    model: Model,
    *arguments: PyTree,
    platforms: Sequence[str] = ("cpu", "cuda"),
    model_as_argument: bool = False,
) -> export.Exported:
    """An algorithm of a robot as a program that takes batches of any size.

    - `function(model, *arguments)`: of one state, such as `rnea`; names of frames and the like are
      fixed by a lambda;
    - `arguments`: of one state, arrays or `jax.ShapeDtypeStruct`s, for their shapes and dtypes;
    - `platforms`: what it is compiled for, of which this machine need have none;
    - `model_as_argument`: if False, the robot's numbers are constants of the program; if True the
      program takes them as its first argument, `jax.tree.leaves(model)`, of this or any model of
      the same structure, and of no other: that is not checked.

    Returns a program whose `call` takes the arguments with one leading axis, the batch, of one or
    more. Its result has the same axis, and dicts where the function returns a named tuple. Call it
    through `jax.jit(program.call)`. Raises ArgumentError where there is no argument to batch or a
    platform is unknown, and what `function` raises.
    """
    if not jax.tree.leaves(arguments):
        raise ArgumentError("no argument to batch: expected those of one state after the model")
    if not platforms or isinstance(platforms, str) or not set(platforms) <= set(PLATFORMS):
        raise ArgumentError(f"platforms is {platforms!r}, expected some of {PLATFORMS}")
    leaves, structure = jax.tree.flatten(model)

    def of_one(numbers, arguments):
        return _plain(function(jax.tree.unflatten(structure, numbers), *arguments))

    def of_batch(numbers, arguments):
        return jax.vmap(of_one, (None, 0))(numbers, arguments)

    def program(*operands):
        if model_as_argument:
            return of_batch(operands[0], operands[1:])
        return of_batch(leaves, operands)

    (batch,) = export.symbolic_shape("b")
    operands = jax.tree.map(lambda x: _spec(x, batch), arguments)
    if model_as_argument:
        operands = (jax.tree.map(_spec, leaves), *operands)
    program.__name__ = getattr(function, "__name__", "program")
    return export.export(jax.jit(program), platforms=tuple(platforms))(*operands)


def save_program(
    program: export.Exported, path: str | os.PathLike[str], *, vjp_order: int = 0
) -> None:
    """Save an exported program to a file, for `load_program` or for JAX alone.

    `vjp_order`: how often the loaded program can be differentiated, by reverse mode; every order
    more than doubles the file. The file appears whole or not at all: a failure leaves the one that
    was there.

    Raises ArgumentError for what JAX cannot serialize and for a `vjp_order` that is no integer of 0
    or more, OSError where the file cannot be written, and ImportError without the package
    flatbuffers (`pip install 'jaxrbd[export]'`).
    """
    if isinstance(vjp_order, bool) or not isinstance(vjp_order, int) or vjp_order < 0:
        raise ArgumentError(f"vjp_order is {vjp_order!r}, expected an integer of 0 or more")
    try:
        body = program.serialize(vjp_order=vjp_order)
    except ValueError as error:
        raise ArgumentError(f"the program cannot be saved: {error}") from error
    header = {
        "function": program.fun_name,
        "arguments": [str(x) for x in program.in_avals],
        "results": [str(x) for x in program.out_avals],
        "platforms": [*program.platforms],
        "jax": jax.__version__,
    }
    write_sealed(path, "program", VERSION, header, bytes(body))


def load_program(path: str | os.PathLike[str]) -> export.Exported:
    """The program that `save_program` wrote to a file. A program is code: load what you trust.

    JAX reads programs of versions up to six months older, and some weeks newer, than itself.
    Raises SavedFileError, which names the file, where it cannot be read, is not a program of
    `save_program`'s, truncated, altered, or of a version that this one or JAX does not know.
    Raises ImportError without the package flatbuffers (`pip install 'jaxrbd[export]'`).
    """
    header, body = read_sealed(path, "program", VERSION)
    try:
        return export.deserialize(bytearray(body))
    except ImportError:
        raise
    except Exception as error:  # JAX promises no kind
        raise SavedFileError(
            f"JAX {jax.__version__} cannot read the program, which is of JAX {header.get('jax')}: "
            f"{error}",
            file=os.fspath(path),
        ) from error


def _spec(x: Any, *batch: Any) -> jax.ShapeDtypeStruct:
    """The shape and dtype of an example, with the batch's axis before it."""
    x = x if isinstance(x, jax.ShapeDtypeStruct) else jnp.asarray(x)
    return jax.ShapeDtypeStruct((*batch, *x.shape), x.dtype)


def _plain(x: PyTree) -> PyTree:
    """Named tuples as dicts, which a file can hold and who loads it need not know."""

    def named(x: Any) -> bool:
        return hasattr(x, "_asdict")

    def convert(x: Any) -> Any:
        return {name: _plain(y) for name, y in x._asdict().items()} if named(x) else x

    return jax.tree.map(convert, x, is_leaf=named)
