"""Export algorithms as programs for any batch size and for several platforms.

`export_batched` makes a `jax.export.Exported` from an algorithm and a model. `save_program` writes
it to a file, and `load_program` reads the file. By default the program contains the parameters of
the robot. The page "Files of models and programs" of the documentation shows how to load a program
with JAX alone, without jaxrbd.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import export
from jaxtyping import PyTree

from ..errors import ArgumentError, SavedFileError
from ..model import Model, arguments as checked
from ..model.parameters import as_array, entries
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
    """A program that applies an algorithm to a batch of states of one robot.

    - `function(model, *arguments)`: a function of one state, such as `rnea`. Fix arguments that are
      not arrays, such as the name of a frame, with a lambda;
    - `arguments`: example arguments for one state, arrays or `jax.ShapeDtypeStruct`s; only shapes
      and dtypes are used;
    - `platforms`: the platforms of the program; the exporting machine need not have them;
    - `model_as_argument`: if False, the parameters of the robot are constants of the program. If
      True, the first argument of the program is `jax.tree.leaves(model)`, of this model or of any
      model with the same structure. The program does not check the structure.

    Returns a program whose `call` takes the arguments with a leading batch axis, of size 1 or more.
    The result has the same batch axis; dicts replace named tuples. Call the program through
    `jax.jit(program.call)`. Raises ArgumentError for a function or a model of another type, for an
    example argument that is no array, without an argument after the model, and for an unknown
    platform.
    """
    checked.robot(model)
    checked.require_flag(model_as_argument, "model_as_argument")
    checked.require_function(function, "function", "a function of a model")
    if not jax.tree.leaves(arguments):
        raise ArgumentError("no argument to batch: expected arguments of one state after the model")
    chosen = entries(platforms)
    if not chosen or not all(platform in PLATFORMS for platform in chosen):
        raise ArgumentError(f"platforms is {platforms!r}, expected some of {PLATFORMS}")
    leaves, structure = jax.tree.flatten(model)

    def single(leaves, arguments):
        return _plain(function(jax.tree.unflatten(structure, leaves), *arguments))

    def batched(leaves, arguments):
        return jax.vmap(single, (None, 0))(leaves, arguments)

    def program(*operands):
        if model_as_argument:
            return batched(operands[0], operands[1:])
        return batched(leaves, operands)

    (batch,) = export.symbolic_shape("b")
    operands = jax.tree.map(lambda x: _spec(x, batch), arguments)
    if model_as_argument:
        operands = (jax.tree.map(_spec, leaves), *operands)
    program.__name__ = getattr(function, "__name__", "program")
    return export.export(jax.jit(program), platforms=chosen)(*operands)


def save_program(
    program: export.Exported, path: str | os.PathLike[str], *, vjp_order: int = 0
) -> None:
    """Save an exported program to a file, for `load_program` or for JAX alone.

    `vjp_order`: how many times the loaded program can be differentiated in reverse mode; each order
    more than doubles the size of the file. If saving fails, the previous file is unchanged.

    Raises ArgumentError if `program` is no exported program, if JAX cannot serialize it, or if
    `vjp_order` is no integer of 0 or more. Raises OSError if the file cannot be written, and
    ImportError without the package flatbuffers (`pip install flatbuffers`).
    """
    checked.require_counts(least=0, vjp_order=vjp_order)
    checked.require_type(program, "program", export.Exported)
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
    """Load a program from a file of `save_program`. A program is code: load only trusted files.

    JAX reads a program if the exporting JAX version is at most six months older, or at most a few
    weeks newer, than the installed version.

    Raises SavedFileError, which names the file, if the file cannot be read, is no file of
    `save_program`, is truncated or altered, or has a version that jaxrbd or JAX cannot read. Raises
    ImportError without the package flatbuffers (`pip install flatbuffers`).
    """
    header, body = read_sealed(path, "program", VERSION)
    try:
        return export.deserialize(bytearray(body))
    except ImportError:
        raise
    except Exception as error:  # JAX documents no exception class
        raise SavedFileError(
            f"JAX {jax.__version__} cannot read the program of JAX {header.get('jax')}: {error}",
            file=os.fspath(path),
        ) from error


def _spec(x: Any, *batch: Any) -> jax.ShapeDtypeStruct:
    """The shape and dtype of the example x, after the leading axes `batch`."""
    x = x if isinstance(x, jax.ShapeDtypeStruct) else as_array(x, "an example argument")
    return jax.ShapeDtypeStruct((*batch, *x.shape), x.dtype)


def _plain(x: PyTree) -> PyTree:
    """The pytree with a dict for each named tuple, because a file cannot hold its class."""

    def named(x: Any) -> bool:
        return hasattr(x, "_asdict")

    def convert(x: Any) -> Any:
        return {name: _plain(y) for name, y in x._asdict().items()} if named(x) else x

    return jax.tree.map(convert, x, is_leaf=named)
